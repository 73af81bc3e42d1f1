//! Training of forecasters on tables in memory.
//!
//! | module | contents |
//! |---|---|
//! | `builder` | [`ForecasterBuilder`]: the options, and training |
//! | `progress` | [`Progress`]: reports after each epoch, and cancellation |
//! | `cross_validation` | [`CrossValidation`]: scores of models trained on earlier values |

mod builder;
mod cross_validation;
mod progress;
#[cfg(test)]
mod tests;

pub use builder::ForecasterBuilder;
pub use cross_validation::{CrossValidation, Refit};
pub use progress::{Progress, Reply};

use gatework_train::experiment::Problem;
use gatework_train::trainer::TrainError;

use crate::data::DataProblem;
use crate::experiment::DatasetError;
use crate::prediction::PredictError;
use crate::specification::SpecificationError;

/// A forecaster that cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// An option is invalid.
    #[error("{}", .0.message)]
    Option(Problem),
    /// The horizon was not set.
    #[error("the horizon is not set; call `horizon` with the number of steps to forecast")]
    NoHorizon,
    /// The table is inconsistent, or has no covariate of this name.
    #[error(transparent)]
    Table(#[from] DataProblem),
    /// The table cannot be used with these options.
    #[error(transparent)]
    Data(#[from] DatasetError),
    /// The network cannot be built.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// Training has failed.
    #[error(transparent)]
    Training(#[from] TrainError),
    /// The validation loss was never finite.
    #[error("the validation loss was never finite: training has diverged; lower the learning rate")]
    Diverged,
    /// Training was cancelled by the progress callback or by the flag.
    #[error("training was cancelled")]
    Cancelled,
    /// The trained model cannot be built or evaluated, or its intervals cannot be calibrated.
    #[error(transparent)]
    Predict(#[from] PredictError),
}
