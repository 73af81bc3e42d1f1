//! Training of an experiment on its data: the steps that [`ForecasterBuilder`](crate::ForecasterBuilder) and [`Job`](super::Job) share.

use std::sync::atomic::{AtomicBool, Ordering};

use gatework_train::memory;
use gatework_train::trainer::{
    self, Attempt, Best, Interrupted, Observer, Options, Settings, TaskError, TrainError,
};

use crate::data::{Batch, BatchSource, Loader, Subset};
use crate::evaluation::{Watch, calibrate};
use crate::experiment::{Dataset, Experiment};
use crate::prediction::{Context, Forecaster, PredictError};
use crate::{ForecastTask, NetworkError, TrainedNetwork};

/// The maximum number of windows that intervals are calibrated on.
const MAX_CALIBRATION_WINDOWS: usize = 5000;

/// Returns the settings of the training loop.
pub(crate) fn settings(experiment: &Experiment, dataset: &Dataset) -> Settings {
    experiment.training.settings(dataset.updates_per_epoch(experiment))
}

/// Returns the task of a seed, which ends early once `stop` is set.
fn task<'a>(
    experiment: &Experiment,
    dataset: &Dataset,
    seed: u64,
    stop: &'a AtomicBool,
) -> Result<ForecastTask<Interruptible<'a, Loader>>, TaskError> {
    let training = &experiment.training;
    let source = Interruptible { source: dataset.loader(experiment, seed), stop };
    let task = ForecastTask::new(&experiment.specification(), source, seed)?
        .with_validation_start(training.validation_start_epoch.unwrap_or(1))
        .with_activations(training.precision.half());
    Ok(match training.micro_batch {
        Some(rows) => task.with_micro_batch(rows),
        None => task,
    })
}

/// Trains all seeds of the options.
pub(crate) fn train(
    experiment: &Experiment,
    dataset: &Dataset,
    options: &Options,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Vec<Attempt>, TrainError> {
    trainer::run(options, |seed| task(experiment, dataset, seed, stop), observer, stop)
}

/// Returns how many of `wanted` seeds fit into memory if they are trained at the same time and share the threads. It is 1 for a
/// model that cannot be built; training reports why.
pub(crate) fn concurrent_seeds(
    experiment: &Experiment,
    dataset: &Dataset,
    wanted: usize,
    threads: usize,
) -> usize {
    if wanted < 2 {
        return 1;
    }
    let never = AtomicBool::new(false);
    let Ok(task) = task(experiment, dataset, experiment.seed, &never) else { return 1 };
    memory::concurrent(wanted, |seeds| {
        let each = task.memory(experiment.training.batch, threads / seeds);
        each.map_or(f64::INFINITY, |each| each * seeds as f64)
    })
}

/// Batches that end with an error once a flag is set. The trainer looks at the flag between updates, and the validation after an
/// epoch can take longer than many updates.
struct Interruptible<'a, W> {
    source: W,
    stop: &'a AtomicBool,
}

impl<W: BatchSource> BatchSource for Interruptible<'_, W> {
    fn updates_per_epoch(&self) -> u64 {
        self.source.updates_per_epoch()
    }

    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
        self.source.training(update, batch)
    }

    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
        if self.stop.load(Ordering::Relaxed) {
            Err(Interrupted.into())
        } else {
            self.source.validation(index, batch)
        }
    }
}

/// Returns the model with the best parameters of a seed, and with intervals calibrated on the validation subset.
pub(crate) fn forecaster(
    experiment: &Experiment,
    dataset: &Dataset,
    best: &Best,
    watch: Watch<'_>,
) -> Result<Forecaster, PredictError> {
    let specification = experiment.specification();
    let mut params = specification.params(experiment.seed).map_err(NetworkError::from)?;
    params.values.copy_from_slice(&best.values);
    let forecaster =
        Forecaster::new(TrainedNetwork::new(specification, params)?, dataset.context(experiment));
    let count = dataset.windows(Subset::Validation, 1).len();
    let windows = dataset.windows(Subset::Validation, count.div_ceil(MAX_CALIBRATION_WINDOWS).max(1));
    let conformal = calibrate(&forecaster, &windows, &dataset.table, &experiment.intervals, watch)?;
    let context = Context { conformal, ..forecaster.context().clone() };
    Ok(forecaster.with_context(context))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gatework_train::experiment::Source;
    use gatework_train::trainer::{Outcome, Quiet};

    use super::*;
    use crate::experiment::{BUILT_IN, ForecastExperiment};

    /// Sets the flag during each validation.
    struct Interrupting<'a>(Loader, &'a AtomicBool);

    impl BatchSource for Interrupting<'_> {
        fn updates_per_epoch(&self) -> u64 {
            self.0.updates_per_epoch()
        }

        fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
            Ok(self.0.training(update, batch)?)
        }

        fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
            self.1.store(true, Ordering::Relaxed);
            Ok(self.0.validation(index, batch)?)
        }
    }

    fn small() -> (Experiment, Dataset) {
        let mut loaded = ForecastExperiment::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        loaded.experiment.training.epochs = Some(3);
        let dataset = Dataset::load(&loaded).unwrap();
        (loaded.experiment, dataset)
    }

    #[test]
    fn an_interrupt_during_validation_ends_it_and_a_resumed_run_has_the_same_bits() {
        let (experiment, dataset) = small();
        let folder = tempfile::tempdir().unwrap();
        let options = |checkpoints| Options {
            settings: settings(&experiment, &dataset),
            seeds: vec![1],
            until_success: false,
            concurrent_attempts: 1,
            threads_per_attempt: 1,
            checkpoints,
            interval: Duration::MAX,
        };
        let kept = options(Some(folder.path().to_path_buf()));
        let stop = AtomicBool::new(false);
        let make = |seed| {
            let source = Interrupting(dataset.loader(&experiment, seed), &stop);
            let source = Interruptible { source, stop: &stop };
            Ok(ForecastTask::new(&experiment.specification(), source, seed)?)
        };
        let stopped = trainer::run(&kept, make, &Quiet, &stop).unwrap();
        assert_eq!(stopped[0].outcome, Outcome::Running);
        assert_eq!(stopped[0].update, dataset.updates_per_epoch(&experiment));
        let train = |options| train(&experiment, &dataset, options, &Quiet, &AtomicBool::new(false)).unwrap();
        let (resumed, whole) = (train(&kept), train(&options(None)));
        assert_eq!(resumed[0].best, whole[0].best);
        assert_eq!(resumed[0].metrics, whole[0].metrics);
    }

    #[test]
    fn the_memory_of_concurrent_seeds_is_that_of_their_micro_batches() {
        let (mut experiment, dataset) = small();
        assert_eq!(concurrent_seeds(&experiment, &dataset, 3, 4), 3);
        let never = AtomicBool::new(false);
        experiment.training.micro_batch = Some(8);
        let task = task(&experiment, &dataset, 1, &never).unwrap();
        let [one, two, many] =
            [(32, 1), (32, 2), (32, 100)].map(|(batch, threads)| task.memory(batch, threads).unwrap());
        assert!(one < two && two < many && many < 4.0 * one, "{one} {two} {many}");
    }
}
