//! Training in one call, and its result.

use std::borrow::Borrow;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_engine::Runner;

use super::programs::{Mode, NetworkError, compile};
use super::task::{GraphTask, Validation, initial};
use super::{Batch, Model, Outputs};
use crate::optim::{Clip, Optimizer};
use crate::params::Params;
use crate::schedule::{LearningRate, Schedule};
use crate::trainer::{self, Attempt, Observer, Options, Outcome, Quiet, Settings, TrainError};

/// An error of [`Training::run`], or of the use of its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// A setting is out of range.
    #[error("{0}")]
    Setting(String),
    /// The network cannot be compiled or run.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Training was stopped before its end.
    #[error("training was stopped after {updates} updates; if it has checkpoints, run it again to continue")]
    Stopped {
        /// The updates that were made.
        updates: u64,
    },
}

/// The training of a network: a function that declares inputs and parameters for a number of rows and returns its
/// [`Outputs`]. See the [module](super) for an example. A network can be a closure, too, if it is written as the argument of
/// [`Training::new`], where its type is known.
#[derive(Clone)]
#[must_use]
pub struct Training<F> {
    network: F,
    settings: Settings,
    seed: u64,
    threads: usize,
    validation: Validation,
    checkpoints: Option<PathBuf>,
    interval: Duration,
}

impl<F> fmt::Debug for Training<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Training")
            .field("settings", &self.settings)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<F: Fn(&Model, usize) -> Outputs<'_> + Sync> Training<F> {
    /// Creates a training of 1000 updates by Adam with learning rate 0.001, from seed 0, on all threads.
    pub fn new(network: F) -> Training<F> {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
        let rate = LearningRate::constant(1e-3);
        Training {
            network,
            settings: Settings {
                updates: 1000,
                rate,
                optimizer,
                clip: None,
                stable: 1,
                patience: None,
                scales_loss: false,
            },
            seed: 0,
            threads: rayon::current_num_threads(),
            validation: Validation::default(),
            checkpoints: None,
            interval: Duration::from_secs(60),
        }
    }

    /// Sets the number of updates.
    pub fn updates(mut self, updates: u64) -> Self {
        self.settings.updates = updates;
        self
    }

    /// Sets the optimiser.
    pub fn optimizer(mut self, optimizer: Optimizer) -> Self {
        self.settings.optimizer = optimizer;
        self
    }

    /// Sets the learning rate from which the schedule starts.
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.settings.rate.base = rate;
        self
    }

    /// Sets the learning rate schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.settings.rate.schedule = schedule;
        self
    }

    /// Sets the number of updates in which the learning rate rises from 0.
    pub fn warmup(mut self, updates: u64) -> Self {
        self.settings.rate.warmup = updates;
        self
    }

    /// Sets the gradient clipping.
    pub fn clip(mut self, clip: Clip) -> Self {
        self.settings.clip = Some(clip);
        self
    }

    /// Computes the mean loss of these batches every `every` updates and after the last one. The result then has the parameters
    /// with the lowest validation loss.
    pub fn validation(mut self, batches: impl IntoIterator<Item = Batch>, every: u64) -> Self {
        self.validation = Validation { batches: batches.into_iter().collect(), every };
        self
    }

    /// Ends training after this many validations in a row without a lower loss.
    pub fn patience(mut self, validations: u64) -> Self {
        self.settings.patience = Some(validations);
        self
    }

    /// Sets the seed of the initial parameters, which is also given to the function that makes the batches.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of threads, which does not change the result.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Writes checkpoints to a folder, in intervals and at the end, and resumes from one that is there. A resumed training has
    /// the same result as an uninterrupted one.
    pub fn checkpoints(mut self, folder: impl Into<PathBuf>, interval: Duration) -> Self {
        (self.checkpoints, self.interval) = (Some(folder.into()), interval);
        self
    }

    /// Trains the parameters. `batches` makes the iterator of batches, one for each update, from the seed; it must make the
    /// same batches whenever it is called.
    pub fn run<I>(self, batches: impl Fn(u64) -> I + Sync) -> Result<Trained<F>, TrainingError>
    where
        I: IntoIterator<Item: Borrow<Batch>>,
    {
        self.run_observed(batches, &Quiet, &AtomicBool::new(false))
    }

    /// Like [`Training::run`]. The observer is told of every update; training ends with [`TrainingError::Stopped`] when `stop`
    /// is set.
    pub fn run_observed<I>(
        self,
        batches: impl Fn(u64) -> I + Sync,
        observer: &impl Observer,
        stop: &AtomicBool,
    ) -> Result<Trained<F>, TrainingError>
    where
        I: IntoIterator<Item: Borrow<Batch>>,
    {
        self.validate().map_err(TrainingError::Setting)?;
        // One more than there are steps of the optimiser: the last one computes the losses of the final parameters.
        let updates = self.settings.updates.saturating_add(1);
        let options = Options {
            settings: Settings { updates, ..self.settings.clone() },
            seeds: vec![self.seed],
            until_success: false,
            concurrent_attempts: 1,
            threads_per_attempt: self.threads,
            checkpoints: self.checkpoints.clone(),
            interval: self.interval,
        };
        // Reported here without the seed, which it does not depend on.
        let mut params = initial(&self.network, self.seed)?;
        let make = |seed| {
            let task = GraphTask::new(&self.network, batches(seed).into_iter(), updates, seed)?;
            Ok(task.with_validation(self.validation.batches.clone(), self.validation.every))
        };
        let attempts = trainer::run(&options, make, observer, stop)?;
        let updates = attempts.first().map_or(0, |attempt| attempt.update);
        match attempts.into_iter().next() {
            Some(attempt @ Attempt { best: Some(_), .. }) if attempt.outcome != Outcome::Running => {
                let best = attempt.best.as_ref().map_or(&[][..], |best| &best.values);
                params.values.copy_from_slice(best);
                Ok(Trained { network: self.network, params, attempt })
            }
            _ => Err(TrainingError::Stopped { updates }),
        }
    }

    fn validate(&self) -> Result<(), String> {
        self.settings.rate.validate()?;
        self.settings.optimizer.validate()?;
        self.settings.clip.map_or(Ok(()), |clip| clip.validate())
    }
}

/// A trained network.
#[derive(Clone)]
pub struct Trained<F> {
    network: F,
    params: Params,
    attempt: Attempt,
}

impl<F> fmt::Debug for Trained<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trained").field("parameters", &self.params.tensors()).finish_non_exhaustive()
    }
}

impl<F: Fn(&Model, usize) -> Outputs<'_>> Trained<F> {
    /// The parameters: those with the lowest validation loss, or the final ones if there was no validation.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The elements of a parameter, in row-major order.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.params.get(name).map(|tensor| &self.params.values[tensor.range.clone()])
    }

    /// The course of the training: the losses of all updates, the best one, the outcome.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Compiles the outputs of the network, without loss and gradients, for a number of rows. The parameters are written
    /// already.
    pub fn runner(&self, rows: usize) -> Result<Runner, NetworkError> {
        let mut runner = compile(&self.network, rows, &self.params, Mode::Prediction)?.runner();
        for tensor in self.params.tensors() {
            // An output may not depend on all parameters.
            if runner.program().has_input(&tensor.name) {
                let written = runner.write(&tensor.name, &self.params.values[tensor.range.clone()]);
                written.map_err(|error| NetworkError::Batch { rows, error })?;
            }
        }
        Ok(runner)
    }

    /// Runs the trained network on a batch. Inputs that its outputs do not depend on, such as labels, are ignored. The outputs
    /// are read from the runner that is returned.
    pub fn predict(&self, batch: &Batch) -> Result<Runner, NetworkError> {
        let mut runner = self.runner(batch.rows())?;
        batch.write_used(&mut runner).map_err(|error| NetworkError::Batch { rows: batch.rows(), error })?;
        runner.run();
        Ok(runner)
    }
}
