//! After a success: the same with fewer gates.
//!
//! The bath goes on from the circuit that was found, so cold that no bit may become wrong, with gates at a high price. Wires
//! may still move, which costs nothing and opens ways. A smaller circuit is kept when it passes every check.

use gatework_logic::simulate::variants::Grids as Boards;

use super::bath::{Bath, Heat};
use super::{MARGIN, Search};
use crate::automata::model::Model;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// The temperature: a single wrong bit makes an automaton e^-20 times as likely.
const COLD: f64 = 0.05;

/// The weight of an active gate beside that of a wire.
const PRICE: f64 = 0.002;

impl Search<'_> {
    /// A model with as few gates as `shrink` moves find; `passes` says whether one is as right as it was. `None` if it was
    /// stopped.
    pub(super) fn shrunk(
        &self,
        model: Model,
        time: u64,
        passes: &dyn Fn(&Model, u64) -> Result<bool, TaskError>,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Model>, TaskError> {
        let observed = self.loaded.target.channels();
        let heat = Heat { temperature: COLD, active: PRICE, rewire: self.settings.rewire, guided: 0.0 };
        let mut best = model;
        let mut boards = self.boards(time)?;
        let mut bath = self.bath(&best, &boards, time)?;
        let mut fewest = bath.gates();
        for number in 0..self.settings.shrink {
            if number % super::MOVES_TOGETHER == 0 && stop(0.0) {
                return Ok(None);
            }
            bath.step(&boards, &heat)?;
            if bath.wrong() > 0 || bath.gates() >= fewest {
                continue;
            }
            let smaller = bath.model(MARGIN);
            if passes(&smaller, time + number)? {
                fewest = smaller.gate_counts(observed).reachable;
                best = smaller;
            } else {
                // Right on these boards, but not on others.
                boards = self.boards(time + 1 + number)?;
                bath = self.bath(&best, &boards, time + 1 + number)?;
            }
        }
        Ok(Some(best))
    }

    fn bath(&self, model: &Model, boards: &[Boards], time: u64) -> Result<Bath, TaskError> {
        let random = Random::new(self.seed, Purpose::Shrink, time);
        Ok(Bath::new(model, self.loaded.target.channels(), boards, random)?)
    }
}
