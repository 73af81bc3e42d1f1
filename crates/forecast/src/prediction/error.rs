//! Errors of forecasts.

use gatework_train::trainer::Interrupted;

use super::context::{ContextError, HistoryProblem, NotFinite};
use crate::data::scale::UnknownSeries;
use crate::data::{DataProblem, WindowError};
use crate::trained_network::NetworkError;

/// A forecast that cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The model cannot be read, written or run.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The windows are invalid.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// A series is not known to the scaler.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// The table does not fit the model.
    #[error(transparent)]
    Table(#[from] ContextError),
    /// A value of a history is not finite.
    #[error("series {id:?}: value {index} of the history is {value:?}; values must be finite")]
    NotFiniteHistory {
        /// Id of the series.
        id: String,
        /// Its index, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The model reads covariates or the calendar, but only values were given.
    #[error("the model reads covariates; call predict with a table that has them")]
    NeedsCovariates,
    /// A forecast is not finite.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// There is no window to evaluate.
    #[error(
        "there is no window to evaluate: none was requested, or each one has a gap or starts at an interpolated value"
    )]
    NoOrigins,
    /// The members of an ensemble forecast different windows.
    #[error(
        "the members of an ensemble must forecast the same horizon of the same series from the same origins"
    )]
    EnsembleMismatch,
    /// The caller ended an evaluation.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The model file has no context.
    #[error(
        "{path}: the model file has no information about its data: {problem}; train it with an experiment"
    )]
    NoContext {
        /// Path of the file.
        path: String,
        /// Why the context cannot be read.
        problem: String,
    },
}

impl PredictError {
    /// Adds the series to a problem of its history.
    pub(super) fn of_history(id: &str, problem: HistoryProblem) -> PredictError {
        let id = id.to_string();
        match problem {
            HistoryProblem::NeedsCovariates => PredictError::NeedsCovariates,
            HistoryProblem::TooShort { found: length, needed } => {
                WindowError::TooShortToForecast { id, length, needed }.into()
            }
            HistoryProblem::NotFinite { index, value } => PredictError::NotFiniteHistory { id, index, value },
        }
    }
}

impl From<DataProblem> for PredictError {
    fn from(problem: DataProblem) -> PredictError {
        PredictError::Table(problem.into())
    }
}
