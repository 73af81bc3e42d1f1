//! After a success: a smaller circuit that passes the same checks.
//!
//! Annealing continues from the circuit that was found, at a temperature so low that no cell becomes wrong and with a high
//! penalty on active gates. Moves that only replace wires cost nothing and lead to further reductions. A smaller circuit is
//! kept if it passes every check.

use gatework_logic::simulate::variants::Grids;

use super::annealing::{Chain, MoveSettings};
use super::{MARGIN, MOVES_PER_ROUND, Search, StopCheck};
use crate::automata::model::Model;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Finishing, TaskError};

/// The temperature: one wrong bit changes the weight of an automaton by a factor of e^-20.
const TEMPERATURE: f64 = 0.05;

/// Prior weight of an active gate; a wire has 1.
const ACTIVE: f64 = 0.002;

impl Search<'_> {
    /// Returns the smallest model that `shrink` moves find, or `None` if it was stopped.
    pub(super) fn shrunk(
        &self,
        model: Model,
        time: u64,
        stop: &StopCheck<'_>,
    ) -> Result<Option<Model>, TaskError> {
        let observed = self.loaded.target.channels();
        let settings =
            MoveSettings { temperature: TEMPERATURE, active: ACTIVE, rewire: self.settings.rewire };
        let mut best = model;
        let mut grids = self.grids(time)?;
        let mut chain = self.chain(&best, &grids, time)?;
        let mut fewest = chain.gates();
        for number in 0..self.settings.shrink {
            let progress =
                Finishing { stage: "shrink", hard: 0.0, done: number, total: self.settings.shrink };
            if number % MOVES_PER_ROUND == 0 && stop(progress) {
                return Ok(None);
            }
            chain.step(&grids, &settings)?;
            if chain.wrong() > 0 || chain.gates() >= fewest {
                continue;
            }
            let smaller = chain.model(MARGIN);
            if self.passes(&smaller, time + number)? {
                fewest = smaller.gate_counts(observed).reachable;
                best = smaller;
            } else {
                // Right on these grids, but not on others.
                grids = self.grids(time + 1 + number)?;
                chain = self.chain(&best, &grids, time + 1 + number)?;
            }
        }
        Ok(Some(best))
    }

    fn chain(&self, model: &Model, grids: &[Grids], time: u64) -> Result<Chain, TaskError> {
        let random = Random::new(self.seed, Purpose::Shrink, time);
        Ok(Chain::new(model, self.loaded.target.channels(), grids, random)?)
    }
}
