//! Neural forecasting of time series on a CPU.
//!
//! [`fit`] trains a model on a table; the resulting [`Forecaster`] forecasts tables in the units of the data, with
//! calibrated prediction intervals:
//!
//! ```
//! use gatework_forecast::data::Table;
//! use gatework_forecast::experiment::Experiment;
//! use gatework_forecast::{fit, models::NLinear};
//!
//! let values: Vec<f64> = (0..200).map(|day| 50.0 + 10.0 * f64::from(day % 7)).collect();
//! let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
//!
//! let mut experiment = Experiment::new(NLinear {}, 14);
//! experiment.training.epochs = Some(30);
//! let mut model = fit(&table, &experiment)?;
//!
//! let forecast = &model.predict(&table)?[0];
//! assert_eq!(forecast.values.len(), 14);
//! let interval = &forecast.intervals[0];
//! assert!(interval.level == 0.8 && interval.low[0] <= forecast.values[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files are read by [`data::read`], experiments in TOML by [`experiment::ForecastExperiment`]. A trained model is saved by
//! [`Forecaster::to_bytes`] and served to many threads by [`service::Service`].
//!
//! Modules in the order of their dependencies; each uses only those above it:
//!
//! | module | contents |
//! |---|---|
//! | [`data`] | tables of time series, scaling, windows, batches |
//! | [`metrics`] | accuracy metrics of forecasts |
//! | [`network`] | building blocks: graphs, layers, losses, normalisation |
//! | [`models`] | one file per model; [`Model`] is the list |
//! | [`specification`] | a model with its loss and window sizes, and its graph |
//! | [`trained_network`] | a trained network: its file and its forecasts |
//! | [`training`] | training settings and the training task |
//! | [`prediction`] | forecasts of tables in the units of the data, with calibrated intervals |
//! | [`evaluation`] | rolling-origin evaluation against baselines |
//! | [`service`] | a thread-safe predictor with request batching and a cache |
//! | [`experiment`] | experiments in TOML and their data |
//! | [`run`] | training into a run folder, opening and evaluating one |
//! | [`fit`] | training on a table in memory |

pub mod data;
pub mod evaluation;
pub mod experiment;
mod fit;
pub mod metrics;
pub mod models;
pub mod network;
pub mod prediction;
pub mod run;
pub mod service;
pub mod specification;
#[cfg(test)]
mod test_fixtures;
#[cfg(test)]
mod test_signal;
pub mod trained_network;
pub mod training;

pub use fit::{FitError, fit};
pub use models::Model;
pub use network::loss::Loss;
pub use prediction::{Forecaster, Prediction};
pub use specification::{Specification, SpecificationError};
pub use trained_network::{Forecast, NetworkError, TrainedNetwork};
pub use training::{ForecastTask, Training};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
