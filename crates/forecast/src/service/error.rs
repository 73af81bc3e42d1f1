//! Errors of services.

use crate::prediction::{ContextError, HistoryProblem, NotFinite, PredictError};

/// A request that cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The model cannot be read.
    #[error(transparent)]
    Model(#[from] PredictError),
    /// The forecast is not finite.
    #[error(transparent)]
    Forecast(#[from] NotFinite),
    /// The series was not in the training data.
    #[error("series {id:?} was not in the training data; set new_series to scale it by its own values")]
    UnknownSeries {
        /// Id of the series.
        id: String,
    },
    /// The history is too short.
    #[error("series {id:?}: {found} values were given, but the model reads {needed}")]
    TooShort {
        /// Id of the series.
        id: String,
        /// Number of values given.
        found: usize,
        /// Number of values that the model reads.
        needed: usize,
    },
    /// A value is not finite.
    #[error("series {id:?}: value {index} of the history is {value:?}; values must be finite")]
    NotFinite {
        /// Id of the series.
        id: String,
        /// Its index, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The model reads covariates, but only values were given.
    #[error("the model reads covariates; call predict_table with a table that has them")]
    NeedsCovariates,
    /// The table does not fit the model.
    #[error(transparent)]
    Table(#[from] ContextError),
    /// A stream needs exactly one series.
    #[error("a stream follows one series, but the table has {0}; split the table")]
    NotOneSeries(usize),
    /// The covariates of a new observation are not those of the model.
    #[error("{found} {kind} covariates were given with an observation, but the model reads {needed}")]
    Covariates {
        /// "past" or "known-future".
        kind: &'static str,
        /// Number of covariates that were given.
        found: usize,
        /// Number that the model reads.
        needed: usize,
    },
    /// The queue is full.
    #[error("{waiting} requests are waiting, which is the limit; try again later or raise queue_capacity")]
    Busy {
        /// Requests that wait.
        waiting: usize,
    },
    /// The model exceeds the memory limit.
    #[error(
        "the model needs {needed} bytes for batches of {max_batch}, but the limit is {limit}; lower max_batch, \
         quantise the model, or raise memory_limit"
    )]
    Memory {
        /// Bytes of weights and programs.
        needed: usize,
        /// The largest batch.
        max_batch: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The tolerance of the cache is not a number from 0 to 0.25.
    #[error("tolerance is {0}, but must be from 0 (exact) to 0.25")]
    Tolerance(f64),
    /// The model failed.
    #[error("{0}")]
    Failed(String),
}

impl ServiceError {
    /// Adds the series to a problem of its history.
    pub(super) fn of_history(id: &str, problem: HistoryProblem) -> ServiceError {
        let id = id.to_string();
        match problem {
            HistoryProblem::NeedsCovariates => ServiceError::NeedsCovariates,
            HistoryProblem::TooShort { found, needed } => ServiceError::TooShort { id, found, needed },
            HistoryProblem::NotFinite { index, value } => ServiceError::NotFinite { id, index, value },
        }
    }
}
