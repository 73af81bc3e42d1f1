//! Evaluation of forecasters against baselines.
//!
//! | module | contents |
//! |---|---|
//! | [`baselines`] | naive, seasonal naive, drift, Naive2 and Theta forecasts |
//! | `backtest` | rolling-origin evaluation and calibration of intervals |

mod backtest;
pub mod baselines;

pub use backtest::{
    EnsembleMember, Evaluation, ScaledErrors, Score, Watch, calibrate, evaluate, scaled_errors, unwatched,
};
pub use baselines::Baseline;
