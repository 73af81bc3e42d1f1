//! Forecasts of tables in the units of the data.
//!
//! | module | contents |
//! |---|---|
//! | [`conformal`] | prediction intervals calibrated on held-out errors |
//! | [`context`] | what a trained model stores about its data; [`Prediction`] and [`Interval`] |
//! | `forecaster` | [`Forecaster`]: a trained network with its context |
//! | `onnx` | forecasters as ONNX models (feature `onnx`) |
//! | `error` | [`PredictError`] |

pub mod conformal;
pub mod context;
mod error;
mod forecaster;
#[cfg(feature = "onnx")]
pub mod onnx;

pub(crate) use context::HistoryProblem;
pub use context::{Context, ContextError, Interval, NotFinite, Prediction, Prepared};
pub use error::PredictError;
pub use forecaster::{Forecaster, SeriesForecast};
