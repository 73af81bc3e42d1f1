//! Counterexamples for the search: grids on which a circuit fails that is right on the grids of the search.
//!
//! The checks of training ask for more than the grids of the search show: more start states, larger grids for more steps, and
//! later steps if a pattern has to stay. Without such a grid among its own, the search would not know what to improve.

use gatework_logic::{Automaton, Boundary, Grid, Simulator};

use super::{Case, Search};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Counterexamples that a run adds to its grids at most; the latest ones are kept.
pub const MAX_HARDER: usize = 2;

/// Sizes between the grid of training and that of a protocol that are tried.
const PARTS: usize = 8;

impl Search<'_> {
    /// Returns grids on which an automaton is wrong: of the size of training, or as small as possible between that and the grid
    /// of a protocol. `None` if none is found, or for a rule, whose check has no grids.
    pub(super) fn harder(&self, automaton: &Automaton, time: u64) -> Result<Option<Case>, TaskError> {
        let (experiment, samples) = (&self.loaded.experiment, self.settings.samples);
        let settings = &experiment.automaton;
        if self.loaded.target.is_rule() {
            return Ok(None);
        }
        let mut trials = vec![(settings.grid, settings.steps, experiment.training.checks)];
        if experiment.success.stays() {
            let later = [1, settings.steps].map(|later| (settings.grid, settings.steps + later, samples));
            trials.extend(later);
        }
        for protocol in self.protocols() {
            let between = |from: usize, to: usize, part: usize| {
                let [from, to] = [from * (PARTS - part), to * part];
                (from + to).div_ceil(PARTS)
            };
            for part in 1..=PARTS {
                let grid = [0, 1].map(|axis| between(settings.grid[axis], protocol.grid[axis], part));
                // Only some tori fit a tile.
                let fits = self.loaded.target.check_size(grid, settings.boundary).is_ok();
                if settings.boundary == Boundary::Zeros || fits {
                    trials.push((grid, between(settings.steps, protocol.steps, part), samples));
                }
            }
        }
        let mut random = Random::new(self.seed, Purpose::Search, u64::MAX - time);
        for (grid, steps, samples) in trials {
            let case = self.case_of(grid, samples, steps, 0, &mut random)?;
            if let Some(failed) = case.failed(automaton, self.settings.samples)? {
                return Ok(Some(failed));
            }
        }
        Ok(None)
    }
}

impl Case {
    /// Returns the grids that are wrong after the steps, at most this many of them; `None` if all are right.
    fn failed(&self, automaton: &Automaton, most: usize) -> Result<Option<Case>, TaskError> {
        let observed = self.target.channels();
        let (mut simulator, mut grid) = (Simulator::new(automaton, observed)?, self.start.clone());
        for step in 0..self.steps {
            match self.fires.get(step) {
                Some(mask) => simulator.step_masked(&mut grid, mask)?,
                None => simulator.step(&mut grid)?,
            }
        }
        let words = grid.words_per_sample();
        let is_wrong = |sample: &usize| {
            let bits = |grid: &Grid, channel: usize| grid.plane(channel)[sample * words..][..words].to_vec();
            (0..observed).any(|channel| bits(&grid, channel) != bits(&self.target, channel))
        };
        let failed: Vec<usize> = (0..grid.samples()).filter(is_wrong).take(most.max(1)).collect();
        if failed.is_empty() {
            return Ok(None);
        }
        let chosen = |grid: &Grid| selected(grid, &failed);
        let (start, target) = (chosen(&self.start)?, chosen(&self.target)?);
        Ok(Some(Case { start, target, steps: self.steps, fires: self.fires.clone() }))
    }
}

/// Returns some of the samples of a grid.
fn selected(grid: &Grid, samples: &[usize]) -> Result<Grid, TaskError> {
    let words = grid.words_per_sample();
    let mut selected = Grid::new(samples.len(), grid.height(), grid.width(), grid.channels())?;
    for channel in 0..grid.channels() {
        let from = grid.plane(channel);
        for (to, &sample) in selected.plane_mut(channel).chunks_exact_mut(words).zip(samples) {
            to.copy_from_slice(&from[sample * words..][..words]);
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::experiment::AutomatonExperiment;
    use crate::automata::search::Check;
    use gatework_logic::{Circuit, Gate, Node};

    /// Stripes of two columns that are counted from the left edge, a column a step.
    fn stripes(channels: usize) -> Automaton {
        // The first channel is the inverse of the second one to the left, and that is the first one to its left.
        let nodes = vec![Node::new(Gate::NOT_A, 9 + 3, 9 + 3)];
        let outputs = [(channels * 9) as u32, 3].into_iter().chain((2..channels as u32).map(|c| 9 * c));
        let circuit = Circuit::new(channels * 9, nodes, outputs.collect()).unwrap();
        Automaton::new(channels, Boundary::Zeros, circuit).unwrap()
    }

    fn harder(loaded: &AutomatonExperiment, automaton: &Automaton) -> Option<Case> {
        let settings = loaded.experiment.search().unwrap();
        let check: &Check<'_> = &|_, _| Ok(true);
        Search { loaded, settings, seed: 1, check }.harder(automaton, 1).unwrap()
    }

    #[test]
    fn a_failing_circuit_gets_the_grids_on_which_it_fails() {
        let loaded = AutomatonExperiment::find("checkerboard").unwrap();
        let zeros = Circuit::new(72, vec![Node::new(Gate::FALSE, 0, 0)], vec![72; 8]).unwrap();
        let zeros = Automaton::new(8, Boundary::Zeros, zeros).unwrap();
        let case = harder(&loaded, &zeros).unwrap();
        assert_eq!((case.start.height(), case.steps), (16, 20));
        assert_eq!(case.start.samples(), loaded.experiment.search().unwrap().samples);
        assert!(case.failed(&zeros, 1).unwrap().is_some());
    }

    #[test]
    fn a_circuit_that_is_right_on_small_grids_only_gets_a_larger_one() {
        let mut loaded = AutomatonExperiment::find("stripes").unwrap();
        let rule = stripes(loaded.experiment.automaton.channels);
        assert!(harder(&loaded, &rule).is_none(), "right in all protocols");
        loaded.experiment.protocols[0].steps = 30;
        let case = harder(&loaded, &rule).unwrap();
        assert!((17..48).contains(&case.start.width()) && case.steps < 30, "the smallest grid that fails");
    }
}
