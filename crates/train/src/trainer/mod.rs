//! Training: one loop for everything that is learned.
//!
//! A [`Task`] has parameters in one flat arena, takes a step (fills in their gradients and says its losses) and
//! can be checked. An [`Attempt`] trains one task from one seed: optimiser, learning rate, best parameters,
//! success, checkpoint. [`run`] makes attempts, one seed after another or side by side, until one succeeds.

mod attempt;
mod checkpoint;
mod seeds;

pub use attempt::{Attempt, Best, Metric, Outcome, Settings};
pub use checkpoint::CheckpointError;
pub use seeds::{Observer, Options, Quiet, run};

use crate::files::FileError;
use crate::optim::{Clip, Optimizer, OptimizerState, Step};
use crate::params::Params;

/// What a task may fail with.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// Something that can be trained.
pub trait Task {
    /// Its parameters.
    fn params(&self) -> &Params;

    /// Its parameters, to be changed.
    fn params_mut(&mut self) -> &mut Params;

    /// The losses of an update at the present parameters, and their gradients in the arena. The same update of
    /// the same seed draws the same random numbers.
    fn step(&mut self, update: u64) -> Result<Losses, TaskError>;

    /// The losses of an update like [`Task::step`], after which either `step` has moved all parameters, or their gradients
    /// are in the arena. An update that looks at the hard loss moves nothing: its parameters may be the best.
    fn step_and_move(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        let _ = step;
        self.step(update)
    }

    /// A thorough check of the present parameters on data that training has not seen, drawn anew for every update.
    fn passes(&mut self, update: u64) -> Result<bool, TaskError>;

    /// Whether there is something to do when the updates are used up. All of them are then worth making.
    fn finishes(&self) -> bool {
        false
    }

    /// What is left to do when the updates are used up, from the best parameters on. `None` if there is nothing to do,
    /// or if `stop`, which is told the hard loss now and then, said to leave it; it is then done from the start when
    /// training goes on.
    fn finish(&mut self, best: &[f32], stop: &dyn Fn(f64) -> bool) -> Result<Option<Finished>, TaskError> {
        let _ = (best, stop);
        Ok(None)
    }
}

/// The losses of an update, and whether the optimiser has moved the parameters already; if not, their gradients are in the
/// arena.
pub fn step_and_move(
    task: &mut impl Task,
    update: u64,
    optimizer: &Optimizer,
    state: &mut OptimizerState,
    rate: f32,
    clip: Option<Clip>,
) -> Result<(Losses, bool), TaskError> {
    match optimizer.begin(state, rate, clip) {
        Some(mut step) => {
            let losses = task.step_and_move(update, &mut step)?;
            Ok((losses, step.is_taken()))
        }
        None => Ok((task.step(update)?, false)),
    }
}

/// What became of a task after its last update.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The loss of the discrete result.
    pub hard: f64,
    /// Moves that were made to get there, if they are counted.
    pub moves: u64,
    /// The loss after so many moves, in order.
    pub trace: Vec<(u64, f64)>,
    /// Whether it passes the thorough check.
    pub passes: bool,
    /// The result as the task stores it; parameters alone may not describe it any more.
    pub model: Vec<u8>,
}

/// The losses of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// What gradient descent makes smaller.
    pub soft: f64,
    /// What it is all for: the loss of the discrete result, or that on data kept aside; if it was looked at.
    pub hard: Option<f64>,
}

/// Training that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The loss is no number any more.
    #[error(
        "seed {seed}, update {update}: the loss is {loss}; a lower learning rate or a gradient clip may help"
    )]
    NotFinite {
        /// The seed.
        seed: u64,
        /// The update.
        update: u64,
        /// The loss.
        loss: f64,
    },
    /// The task failed.
    #[error("seed {seed} failed")]
    Task {
        /// The seed.
        seed: u64,
        /// What it said.
        source: TaskError,
    },
    /// A checkpoint that cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A checkpoint that cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No threads to be had.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// What the command line prints: an error and its causes.
    fn with_causes(error: &dyn Error) -> String {
        let causes = std::iter::successors(Some(error), |&error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn an_error_with_its_causes_says_each_once() {
        let error = TrainError::Task { seed: 5, source: "a layer is empty".into() };
        assert_eq!(with_causes(&error), "seed 5 failed: a layer is empty");
    }
}
