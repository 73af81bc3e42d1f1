//! The training loop.
//!
//! A [`Task`] holds parameters in one flat arena, and computes losses and gradients of an update. An [`Attempt`] trains a
//! task from one seed: it holds the optimiser state, the losses and the best parameters, and can be saved as a
//! checkpoint. [`run`] makes attempts with several seeds, sequentially or concurrently, until one succeeds.

mod attempt;
mod checkpoint;
mod seeds;

pub use attempt::{Attempt, Best, Metric, Outcome, Settings, Stage};
pub use checkpoint::{CheckpointError, CheckpointProblem};
pub use seeds::{Observer, Options, Quiet, run};

use crate::files::FileError;
use crate::loss_scale::Overflow;
use crate::optim::{Clip, Optimizer, OptimizerState, Step};
use crate::params::Params;

/// An error of a task.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a [`Task`] that was asked to stop in the middle of an update. Nothing may have changed since the update before:
/// the update is repeated when training is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A model with a loss that can be trained.
pub trait Task {
    /// Returns the parameters.
    fn params(&self) -> &Params;

    /// Returns the parameters for modification.
    fn params_mut(&mut self) -> &mut Params;

    /// Computes the losses of an update at the current parameters, and writes the gradients to the arena. The same update of
    /// the same seed uses the same random numbers.
    fn step(&mut self, update: u64) -> Result<Losses, TaskError>;

    /// Computes the losses of an update like [`Task::step`], and may apply the optimiser step to all parameters at once
    /// instead of writing their gradients to the arena. An update that computes the hard loss must not change the parameters,
    /// which may be the best so far.
    fn step_and_update(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        let _ = step;
        self.step(update)
    }

    /// Computes the losses and gradients of an update like [`Task::step`], with the gradients multiplied by a power of two; the
    /// losses are not.
    fn step_scaled(&mut self, update: u64, scale: f32) -> Result<Losses, TaskError> {
        let losses = self.step(update)?;
        self.params_mut().grads.iter_mut().for_each(|grad| *grad *= scale);
        Ok(losses)
    }

    /// Checks the current parameters thoroughly, on new data for every update.
    fn passes(&mut self, update: u64) -> Result<bool, TaskError>;

    /// Returns whether [`Task::finish`] does something. All updates are then made, even if success is unlikely.
    fn finishes(&self) -> bool {
        false
    }

    /// Processes the best parameters after the last update, for example by a discrete search. `stop` is called with the
    /// progress from time to time. Returns `None` if there is nothing to do, or if `stop` returned true; the work
    /// then starts again when training is resumed.
    fn finish(
        &mut self,
        best: &[f32],
        stop: &dyn Fn(Finishing) -> bool,
    ) -> Result<Option<Finished>, TaskError> {
        let _ = (best, stop);
        Ok(None)
    }
}

/// Computes the losses of an update. The flag says whether the optimiser step was applied already; if not, the gradients are
/// in the arena.
pub fn step_and_update(
    task: &mut impl Task,
    update: u64,
    optimizer: &Optimizer,
    state: &mut OptimizerState,
    rate: f32,
    clip: Option<Clip>,
) -> Result<(Losses, bool), TaskError> {
    match optimizer.begin(state, rate, clip) {
        Some(mut step) => {
            let losses = task.step_and_update(update, &mut step)?;
            Ok((losses, step.is_applied()))
        }
        None => Ok((task.step(update)?, false)),
    }
}

/// The progress of [`Task::finish`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finishing {
    /// What is done now, for example `search`.
    pub stage: &'static str,
    /// The current hard loss.
    pub hard: f64,
    /// The units of work of this stage that are done.
    pub done: u64,
    /// All units of work of this stage; 0 if they are not known.
    pub total: u64,
}

/// The result of [`Task::finish`].
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The loss of the discrete result.
    pub hard: f64,
    /// The number of moves of the search.
    pub moves: u64,
    /// Pairs of a number of moves and the loss after them, in order.
    pub trace: Vec<(u64, f64)>,
    /// Whether it passes the thorough check.
    pub passes: bool,
    /// The wrong bits after each stage, in order.
    pub stages: Vec<Stage>,
    /// The serialised model; it may differ in shape from the one that was trained.
    pub model: Vec<u8>,
}

/// The losses of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// The differentiable loss that is minimised.
    pub soft: f64,
    /// The loss of the discrete model, or the validation loss, if it was computed in this update.
    pub hard: Option<f64>,
}

/// An error that ends training.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The loss is not finite.
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
    /// The gradients are not finite, though the loss is.
    #[error("seed {seed}, update {update}: {source}")]
    Overflow {
        /// The seed.
        seed: u64,
        /// The update.
        update: u64,
        /// What to do.
        source: Overflow,
    },
    /// The task failed.
    #[error("seed {seed} failed")]
    Task {
        /// The seed.
        seed: u64,
        /// The error of the task.
        source: TaskError,
    },
    /// A checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A checkpoint cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// An error and its causes, as the command line prints them.
    fn with_causes(error: &dyn Error) -> String {
        let causes = std::iter::successors(Some(error), |&error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn an_error_does_not_repeat_its_cause() {
        let error = TrainError::Task { seed: 5, source: "a layer is empty".into() };
        assert_eq!(with_causes(&error), "seed 5 failed: a layer is empty");
    }
}
