//! A trained network: its file, its forecasts and its quantised variants.
//!
//! | module | contents |
//! |---|---|
//! | `network` | [`TrainedNetwork`]: a specification with trained weights |
//! | `programs` | the weights, stored once, and the programs for several batch sizes |
//! | `forecast` | [`Forecast`]: points, quantiles, distribution parameters or samples for a batch |
//! | `file` | the model file: safetensors with a checked header |
//! | `quantization` | [`Precision`]: parameters in 16 or 8 bits |
//! | `sampling` | ancestral sampling for autoregressive models |
//! | `error` | [`NetworkError`] |

mod error;
mod file;
mod forecast;
mod network;
mod programs;
mod quantization;
mod sampling;

pub use error::NetworkError;
#[cfg(feature = "onnx")]
pub(crate) use forecast::median_position;
pub use forecast::{Forecast, ForecastKind};
pub use network::{MAX_ROWS, TrainedNetwork};
pub use programs::ModelMemory;
pub use quantization::Precision;
