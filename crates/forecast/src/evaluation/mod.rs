//! Evaluation of forecasters against baselines.
//!
//! | module | contents |
//! |---|---|
//! | `backtest` | [`evaluate`]: scores over windows; scaled errors, calibration of intervals |
//! | `origins` | [`Origins`]: the last forecast origins of a table; [`Forecaster::evaluate`](crate::Forecaster::evaluate) |
//! | [`baselines`] | naive, seasonal naive, drift, Naive2, Theta |

mod backtest;
pub mod baselines;
mod origins;

pub use backtest::{
    EnsembleMember, Evaluation, ScaledErrors, Score, Watch, calibrate, evaluate, scaled_errors, unwatched,
};
pub use baselines::Baseline;
pub(crate) use origins::{Evaluator, for_each_origin};
pub use origins::{OriginForecast, Origins};
