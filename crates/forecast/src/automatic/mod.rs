//! Forecasts without settings: models are compared on rolling origins, the best ensemble is chosen for each group of series,
//! and its intervals are calibrated by its errors.
//!
//! ```
//! use gatework_forecast::Table;
//! use gatework_forecast::automatic::Automatic;
//!
//! let values: Vec<f64> = (0..120).map(|day| 50.0 + 10.0 * f64::from(day % 7) + f64::from(day * 31 % 5)).collect();
//! let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
//! let result = Automatic::new(14).networks(false).forecast(&table)?;
//! println!("{}: {:?}", result.groups[0].members.join(", "), result.forecasts[0].values);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `candidates` | [`Candidate`], the models that are compared |
//! | `series` | series without gaps, their [`Group`] and [`Quality`] |
//! | `seasons` | [`seasons`] of a table |
//! | `comparison` | forecasts from rolling origins |
//! | `choice` | the choice of a model or an ensemble |
//! | `errors` | errors of the choice where it was not chosen, coverage |
//! | `intervals` | prediction intervals from the errors of rolling origins |
//! | [`Hierarchy`] | sums of series, and forecasts that add up |
//! | `file` | [`ForecastFile`]: the settings as TOML |
//! | `run` | the steps in their order |
//! | `result` | [`AutomaticForecast`]: forecasts, scores and what was chosen |

mod candidates;
mod choice;
mod comparison;
mod errors;
mod file;
mod hierarchy;
mod intervals;
mod result;
mod run;
mod seasons;
mod series;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use candidates::Candidate;
pub use file::{ForecastFile, ForecastFileError};
pub use hierarchy::Hierarchy;
pub use result::{AutomaticForecast, CandidateScore, Coverage, GroupChoice, SeriesChoice};
pub use seasons::seasons;
pub use series::{Group, Quality};

use crate::data::Table;
use crate::fit::FitError;

/// The settings of an automatic forecast.
#[must_use]
pub struct Automatic<'a> {
    horizon: usize,
    time: Duration,
    levels: Vec<f64>,
    seasons: Option<Vec<f64>>,
    models: Vec<String>,
    networks: bool,
    keep_errors: bool,
    on_progress: Option<&'a (dyn Fn(&Progress) + Sync)>,
    cancel: Option<&'a AtomicBool>,
}

/// The progress of an automatic forecast.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// What is done now.
    pub doing: String,
    /// Candidates that are done.
    pub done: usize,
    /// All candidates.
    pub candidates: usize,
    /// Time since the beginning.
    pub elapsed: Duration,
    /// The longest time until the end of the comparison.
    pub left: Duration,
}

/// An automatic forecast that is impossible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutomaticError {
    /// The horizon is 0.
    #[error("the horizon is 0; it is the number of steps to forecast, at least 1")]
    NoHorizon,
    /// The horizon is longer than any series.
    #[error("the horizon of {horizon} steps is longer than the longest series, which has {longest} values")]
    TooLong {
        /// The horizon.
        horizon: usize,
        /// Values of the longest series.
        longest: usize,
    },
    /// An interval level is not between 0 and 1.
    #[error("the interval level {0} is not between 0 and 1")]
    Level(f64),
    /// No candidate has one of the names.
    #[error("there is no model {name:?}; there are {known}")]
    UnknownModel {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// No series has a value.
    #[error("no series has a value")]
    NoValues,
    /// A network cannot be trained.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// It was cancelled.
    #[error("the forecast was interrupted")]
    Interrupted,
}

impl<'a> Automatic<'a> {
    /// Forecasts this number of steps.
    pub fn new(horizon: usize) -> Automatic<'a> {
        Automatic {
            horizon,
            time: Duration::from_secs(60),
            levels: vec![0.8, 0.95],
            seasons: None,
            models: Vec::new(),
            networks: true,
            keep_errors: false,
            on_progress: None,
            cancel: None,
        }
    }

    /// Sets the time for the comparison, default one minute. Candidates that are not done in time are left out; the fast
    /// ones come first. The result depends on the machine only if some are left out.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the levels (nominal coverage) of the prediction intervals; default: 0.8 and 0.95.
    pub fn levels(mut self, levels: impl IntoIterator<Item = f64>) -> Self {
        self.levels = levels.into_iter().collect();
        self
    }

    /// Sets the lengths of the seasons in steps; default: those of the frequency, or of the data.
    pub fn seasons(mut self, seasons: impl IntoIterator<Item = f64>) -> Self {
        self.seasons = Some(seasons.into_iter().collect());
        self
    }

    /// Compares only models of these names.
    pub fn models<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.models = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether neural networks are compared too; default: yes.
    pub fn networks(mut self, networks: bool) -> Self {
        self.networks = networks;
        self
    }

    /// Sets whether the result has the errors of the comparison; default: no.
    pub fn keep_errors(mut self, keep: bool) -> Self {
        self.keep_errors = keep;
        self
    }

    /// Calls a function before every candidate.
    pub fn on_progress(mut self, call: &'a (dyn Fn(&Progress) + Sync)) -> Self {
        self.on_progress = Some(call);
        self
    }

    /// Ends the comparison soon after another thread has set this flag.
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Compares, chooses, and forecasts the steps after the last value of every series.
    pub fn forecast(&self, table: &Table) -> Result<AutomaticForecast, AutomaticError> {
        run::run(self, table)
    }
}

impl std::fmt::Debug for Automatic<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Automatic")
            .field("horizon", &self.horizon)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
