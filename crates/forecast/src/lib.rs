//! Neural forecasting of time series on a CPU.
//!
//! A [`Table`] holds the series. [`Forecaster::builder`] trains a model on it; the resulting [`Forecaster`] forecasts tables in the
//! units of the data, with calibrated prediction intervals:
//!
//! ```
//! use gatework_forecast::{Forecaster, Table, models::NLinear};
//!
//! let values: Vec<f64> = (0..200).map(|day| 50.0 + 10.0 * f64::from(day % 7)).collect();
//! let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
//! let model = Forecaster::builder().model(NLinear {}).horizon(14).fit(&table)?;
//!
//! for series in model.predict(&table)? {
//!     let interval = &series.intervals[0]; // 80 %
//!     for (step, time) in series.times.iter().enumerate() {
//!         println!("{time} {:.1} [{:.1}, {:.1}]", series.values[step], interval.low[step], interval.high[step]);
//!     }
//! }
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! model.save(&path)?;
//! let model = Forecaster::load(&path)?;
//! # let forecast = &model.predict(&table)?[0];
//! # assert_eq!((forecast.times.len(), forecast.intervals[0].level), (14, 0.8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | forecast without choosing anything | [`automatic::Automatic`] |
//! | make a table | [`Table::read`] (CSV, Parquet), [`Table::from_series`], [`Table::from_columns`], `Table::from_record_batches` (Arrow) |
//! | add covariates in memory | [`Table::with_past_covariate`], [`Table::with_future_covariate`], [`Table::with_static_covariate`] |
//! | choose a model and train it | [`models`], [`ForecasterBuilder`] |
//! | forecast | [`Forecaster::predict`], [`Forecaster::predict_with_future`], [`Forecaster::predict_one`], [`Forecaster::predict_many`] |
//! | score, compared with baselines | [`ForecasterBuilder::cross_validate`], [`Forecaster::evaluate`] |
//! | store | [`Forecaster::save`], [`Forecaster::load`] |
//! | serve many requests | [`service::Service`] |
//! | train from TOML, with checkpoints | [`experiment::ForecastExperiment`], [`run`] |
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
//! | [`classical`] | statistical models of single series: exponential smoothing, regression, decomposition |
//! | [`service`] | a thread-safe predictor with request batching and a cache |
//! | [`experiment`] | experiments in TOML and their data |
//! | [`run`] | training into a run folder, opening and evaluating one |
//! | `fit` | [`ForecasterBuilder`]: training on a table in memory |
//! | [`automatic`] | comparison of all models on rolling origins, choice, intervals |

pub mod automatic;
pub mod classical;
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

pub use data::Table;
pub use evaluation::{Evaluation, OriginForecast, Origins};
pub use fit::{CrossValidation, FitError, ForecasterBuilder, Progress, Refit, Reply};
pub use models::Model;
pub use network::loss::Loss;
pub use prediction::{Forecaster, Interval, PredictError, Prediction, SeriesForecast};
pub use specification::{Specification, SpecificationError};
pub use trained_network::{Forecast, NetworkError, TrainedNetwork};
pub use training::{ForecastTask, Training};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
