//! Forecasts of tables in the units of the data.
//!
//! | module | contents |
//! |---|---|
//! | [`conformal`] | prediction intervals calibrated on held-out errors |
//! | [`context`] | what a trained model stores about its data; [`Prediction`] and [`Interval`] |
//! | `onnx` | forecasters as ONNX models (feature `onnx`) |
//! | [`predictor`] | [`Predictor`]: a forecaster with its context |

pub mod conformal;
pub mod context;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod predictor;

pub use context::{Context, ContextError, Interval, NotFinite, Prediction, Prepared};
pub use predictor::{PredictError, Predictor};
