//! [`ForecasterBuilder`]: the options of a forecaster, and its training on a table in memory.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_train::trainer::Options;

use super::FitError;
use super::progress::{Callback, Progress, Reply, Reporter};
use crate::data::calendar::Calendar;
use crate::data::scale::Scaling;
use crate::data::{Columns, Length, Schema, Split, Table};
use crate::evaluation::unwatched;
use crate::experiment::{Dataset, Experiment};
use crate::models::{Model, Nhits};
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::prediction::Forecaster;
use crate::run;
use crate::training::Training;

/// The options of a forecaster. They are those of an [`Experiment`], with the same defaults, except that no test subset is
/// held back; the horizon has no default.
///
/// ```
/// use gatework_forecast::{Forecaster, Loss, Table, models::NLinear};
///
/// let values: Vec<f64> = (0..200).map(|day| 50.0 + 10.0 * f64::from(day % 7)).collect();
/// let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
/// let model = Forecaster::builder()
///     .model(NLinear {})
///     .horizon(7)
///     .loss(Loss::Mae)
///     .epochs(10)
///     .on_progress(|progress| eprintln!("{progress}"))
///     .fit(&table)?;
/// assert_eq!(model.predict(&table)?[0].values.len(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct ForecasterBuilder<'a> {
    experiment: Experiment,
    /// Names of the past, known-future and static covariates to read; all those of the table by default.
    covariates: [Option<Vec<String>>; 3],
    threads: usize,
    on_progress: Option<Mutex<Callback<'a>>>,
    cancel: Option<&'a AtomicBool>,
}

impl Forecaster {
    /// Returns the options of a new forecaster: N-HiTS with default settings. The horizon must be set.
    pub fn builder<'a>() -> ForecasterBuilder<'a> {
        ForecasterBuilder::from(Experiment::new(Nhits::default(), 0)).test(0)
    }
}

impl From<Experiment> for ForecasterBuilder<'_> {
    /// Takes over the options of an experiment. Its data are not read; covariates that it names are selected.
    fn from(experiment: Experiment) -> Self {
        let Schema { past, future, fixed, .. } = &experiment.columns;
        let covariates = [past, future, fixed].map(|names| (!names.is_empty()).then(|| names.clone()));
        ForecasterBuilder { experiment, covariates, threads: 0, on_progress: None, cancel: None }
    }
}

impl<'a> ForecasterBuilder<'a> {
    /// Sets the model: one of [`models`](crate::models), default [`Nhits`].
    pub fn model(mut self, model: impl Into<Model>) -> Self {
        self.experiment.model = model.into();
        self
    }

    /// Sets the number of steps to forecast.
    pub fn horizon(mut self, steps: usize) -> Self {
        self.experiment.horizon = steps;
        self
    }

    /// Sets the number of values that the model reads; default: three times the horizon.
    pub fn input(mut self, values: usize) -> Self {
        self.experiment.input = Some(values);
        self
    }

    /// Sets the training loss; default: that of experiments, [`Loss::default`].
    pub fn loss(mut self, loss: Loss) -> Self {
        self.experiment.loss = loss;
        self
    }

    /// Sets the levels (nominal coverage) of the prediction intervals; default: 0.8 and 0.95.
    pub fn levels(mut self, levels: impl IntoIterator<Item = f64>) -> Self {
        self.experiment.intervals = levels.into_iter().collect();
        self
    }

    /// Sets the scaling of values; default: mean and standard deviation of each series.
    pub fn scaling(mut self, scaling: Scaling) -> Self {
        self.experiment.scaling = scaling;
        self
    }

    /// Sets the normalisation of windows; default: that of the model.
    pub fn normalization(mut self, normalization: Normalization) -> Self {
        self.experiment.normalization = Some(normalization);
        self
    }

    /// Sets the calendar features, which are known-future covariates; default: none.
    pub fn calendar(mut self, calendar: Calendar) -> Self {
        self.experiment.calendar = calendar;
        self
    }

    /// Sets the steps per season, for baselines, MASE and intervals; the default follows from the frequency.
    pub fn season(mut self, steps: usize) -> Self {
        self.experiment.season = Some(steps);
        self
    }

    /// Sets the length of the validation subset, as steps or as a fraction, for early stopping and the calibration of
    /// intervals; default: 0.1.
    pub fn validation(mut self, length: impl Into<Length>) -> Self {
        self.experiment.split.validation = length.into();
        self
    }

    /// Sets the length of the test subset at the end of every series, as steps or as a fraction; default: 0, which trains on all
    /// values but those of the validation subset. Training does not read a test subset, so that [`Forecaster::evaluate`] can
    /// measure the error on it; [`ForecasterBuilder::cross_validate`] needs none.
    pub fn test(mut self, length: impl Into<Length>) -> Self {
        self.experiment.split.test = length.into();
        self
    }

    /// Sets the stride of the training windows; default: 1.
    pub fn stride(mut self, steps: usize) -> Self {
        self.experiment.stride = steps;
        self
    }

    /// Trains without the series that are shorter than a window, which are otherwise an error.
    pub fn skip_short_series(mut self, skip: bool) -> Self {
        self.experiment.skip_short_series = skip;
        self
    }

    /// Sets the past covariates that the model reads; default: all of the table.
    pub fn past_covariates<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.covariates[0] = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the known-future covariates that the model reads; default: all of the table.
    pub fn future_covariates<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.covariates[1] = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the static covariates that the model reads; default: all of the table.
    pub fn static_covariates<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.covariates[2] = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the maximum number of epochs; default: ten, or as many as make 1000 updates.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.experiment.training.epochs = Some(epochs);
        self
    }

    /// Sets the number of windows per update; default: 32.
    pub fn batch(mut self, windows: usize) -> Self {
        self.experiment.training.batch = windows;
        self
    }

    /// Sets the initial learning rate; default: 0.001.
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.experiment.training.learning_rate = rate;
        self
    }

    /// Sets the early-stopping patience: epochs without a lower validation loss; default: all epochs are made.
    pub fn patience(mut self, epochs: u64) -> Self {
        self.experiment.training.patience = Some(epochs);
        self
    }

    /// Sets all training settings, among them the optimiser, the schedule and gradient clipping.
    pub fn training(mut self, training: Training) -> Self {
        self.experiment.training = training;
        self
    }

    /// Sets the seed of initial parameters, order of windows and dropout; default: 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.experiment.seed = seed;
        self
    }

    /// Sets the number of threads that train; default: all cores. The result does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Calls a function after every epoch. Training is cancelled if it returns [`ControlFlow::Break`](std::ops::ControlFlow).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use gatework_forecast::{FitError, Forecaster, Table, models::NLinear};
    ///
    /// let values: Vec<f64> = (0..200).map(|day| f64::from(day % 7)).collect();
    /// let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
    /// let few = |progress: &gatework_forecast::Progress| match progress.epoch {
    ///     0..3 => ControlFlow::Continue(()),
    ///     _ => ControlFlow::Break(()),
    /// };
    /// let cancelled = Forecaster::builder().model(NLinear {}).horizon(7).on_progress(few).fit(&table);
    /// assert!(matches!(cancelled, Err(FitError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_progress<R: Reply>(mut self, mut call: impl FnMut(&Progress) -> R + Send + 'a) -> Self {
        self.on_progress = Some(Mutex::new(Box::new(move |progress| call(progress).flow())));
        self
    }

    /// Cancels training soon after another thread has set this flag.
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Returns the experiment with these options. Its columns are completed by those of the table when it is trained.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Trains a forecaster on a table, keeps the parameters with the lowest validation loss, and calibrates its intervals on
    /// the validation subset. The result depends only on the table and the options.
    pub fn fit(&self, table: &Table) -> Result<Forecaster, FitError> {
        self.fit_split(table, self.experiment.split)
    }

    /// Trains a forecaster with other subsets than those of the options.
    pub(super) fn fit_split(&self, table: &Table, split: Split) -> Result<Forecaster, FitError> {
        if self.experiment.horizon == 0 {
            return Err(FitError::NoHorizon);
        }
        let columns = self.columns(table);
        let Columns { past, future, fixed } = columns.clone();
        let columns_of_file = Schema { past, future, fixed, ..self.experiment.columns.clone() };
        let experiment = Experiment { columns: columns_of_file, split, ..self.experiment.clone() };
        experiment.check().map_err(FitError::Option)?;
        experiment.specification().parameters()?;
        table.check()?;
        let dataset = Dataset::from_table(&experiment, table.clone().select(&columns)?)?;
        self.train(&experiment, &dataset)
    }

    /// Returns the covariates to read.
    fn columns(&self, table: &Table) -> Columns {
        let [past, future, fixed] = self.covariates.clone();
        let all = table.columns.clone();
        Columns {
            past: past.unwrap_or(all.past),
            future: future.unwrap_or(all.future),
            fixed: fixed.unwrap_or(all.fixed),
        }
    }

    fn train(&self, experiment: &Experiment, dataset: &Dataset) -> Result<Forecaster, FitError> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let options = Options {
            settings: run::settings(experiment, dataset),
            seeds: vec![experiment.seed],
            until_success: false,
            concurrent_attempts: 1,
            threads_per_attempt: if self.threads == 0 { all() } else { self.threads },
            checkpoints: None,
            interval: Duration::MAX,
        };
        let stop = AtomicBool::new(false);
        let reporter = Reporter {
            callback: self.on_progress.as_ref(),
            cancel: self.cancel,
            stop: &stop,
            settings: &options.settings,
            updates_per_epoch: dataset.updates_per_epoch(experiment),
        };
        let attempts = run::train(experiment, dataset, &options, &reporter, &stop)?;
        if !options.is_complete(&attempts) {
            return Err(FitError::Cancelled);
        }
        let best = attempts.into_iter().next().and_then(|attempt| attempt.best).ok_or(FitError::Diverged)?;
        Ok(run::forecaster(experiment, dataset, &best, &unwatched)?)
    }
}

impl fmt::Debug for ForecasterBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForecasterBuilder").field("experiment", &self.experiment).finish_non_exhaustive()
    }
}
