//! Training of an experiment on its data: the steps that [`fit`](crate::fit()) and [`Job`](super::Job) share.

use std::sync::atomic::AtomicBool;

use gatework_train::trainer::{self, Attempt, Best, Observer, Options, Settings, TaskError, TrainError};

use crate::data::Subset;
use crate::evaluation::calibrate;
use crate::experiment::{Dataset, Experiment};
use crate::prediction::{Context, PredictError, Predictor};
use crate::{ForecastTask, Forecaster, ForecasterError};

/// The maximum number of windows that intervals are calibrated on.
const MAX_CALIBRATION_WINDOWS: usize = 5000;

/// Returns the settings of the training loop.
pub(crate) fn settings(experiment: &Experiment, dataset: &Dataset) -> Settings {
    experiment.training.settings(dataset.updates_per_epoch(experiment))
}

/// Trains all seeds of the options.
pub(crate) fn train(
    experiment: &Experiment,
    dataset: &Dataset,
    options: &Options,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Vec<Attempt>, TrainError> {
    let (specification, training) = (experiment.specification(), &experiment.training);
    let make = |seed| -> Result<ForecastTask<_>, TaskError> {
        let task = ForecastTask::new(&specification, dataset.loader(experiment, seed), seed)?
            .with_validation_start(training.validation_start_epoch.unwrap_or(1))
            .with_activations(training.precision.half());
        Ok(match training.micro_batch {
            Some(rows) => task.with_micro_batch(rows),
            None => task,
        })
    };
    trainer::run(options, make, observer, stop)
}

/// Returns the model with the best parameters of a seed, and with intervals calibrated on the validation subset.
pub(crate) fn predictor(
    experiment: &Experiment,
    dataset: &Dataset,
    best: &Best,
) -> Result<Predictor, PredictError> {
    let specification = experiment.specification();
    let mut params = specification.params(experiment.seed).map_err(ForecasterError::from)?;
    params.values.copy_from_slice(&best.values);
    let mut predictor = Predictor::new(Forecaster::new(specification, params)?, dataset.context(experiment));
    let count = dataset.windows(Subset::Validation, 1).len();
    let windows = dataset.windows(Subset::Validation, count.div_ceil(MAX_CALIBRATION_WINDOWS).max(1));
    let conformal = calibrate(&mut predictor, &windows, &dataset.table, &experiment.intervals)?;
    let context = Context { conformal, ..predictor.context().clone() };
    Ok(predictor.with_context(context))
}
