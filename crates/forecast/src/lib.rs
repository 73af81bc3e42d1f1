//! Neural forecasting of time series on a CPU.
//!
//! Modules in the order of their dependencies; each uses only those above it:
//!
//! | module | contents |
//! |---|---|
//! | [`data`] | tables of time series, scaling, windows, batches |
//! | [`metrics`] | accuracy measures of forecasts |
//! | [`network`] | building blocks: graphs, layers, losses, normalisation |
//! | [`models`] | one file per model; [`Model`] is the list |
//! | [`specification`] | a model with its loss and window sizes, and its graph |
//! | [`forecaster`] | a trained model: its file and its forecasts |
//! | [`training`] | training settings and the training task |
//! | [`prediction`] | forecasts of tables in the units of the data, with calibrated intervals |
//! | [`evaluation`] | rolling-origin evaluation against baselines |
//! | [`service`] | a thread-safe predictor with request batching and a cache |
//! | [`experiment`] | TOML experiments and their data |

pub mod data;
pub mod evaluation;
pub mod experiment;
pub mod forecaster;
pub mod metrics;
pub mod models;
pub mod network;
pub mod prediction;
pub mod service;
pub mod specification;
#[cfg(test)]
mod test_fixtures;
#[cfg(test)]
mod test_signal;
pub mod training;

pub use forecaster::{Forecast, Forecaster, ForecasterError};
pub use models::Model;
pub use network::loss::Loss;
pub use prediction::{Prediction, Predictor};
pub use specification::{Specification, SpecificationError};
pub use training::{ForecastTask, Training};
