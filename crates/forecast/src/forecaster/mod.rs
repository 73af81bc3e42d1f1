//! A trained model: its file, its forecasts and its quantised variants.
//!
//! | module | contents |
//! |---|---|
//! | `model` | [`Forecaster`]: parameters and compiled prediction programs |
//! | `forecast` | [`Forecast`]: points, quantiles, distribution parameters or samples for a batch |
//! | `file` | the model file: safetensors with a checked header |
//! | `quantization` | [`Precision`]: parameters in 16 or 8 bits |
//! | `sampling` | ancestral sampling for autoregressive models |
//! | `error` | [`ForecasterError`] |

mod error;
mod file;
mod forecast;
mod model;
mod quantization;
mod sampling;

pub use error::ForecasterError;
#[cfg(feature = "onnx")]
pub(crate) use forecast::median_position;
pub use forecast::{Forecast, ForecastKind};
pub use model::{Forecaster, MAX_ROWS};
pub use quantization::Precision;
