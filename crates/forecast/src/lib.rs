//! Forecasting: neural models of time series, their training and their use.
//!
//! | module | what is in it |
//! |---|---|
//! | [`models`] | one file a model; [`Model`] is the list |
//! | [`network`], [`layers`], [`inputs`] | what models are written with: tensors as formulas, layers, the batch |
//! | [`loss`], [`distribution`], [`normalize`] | what is trained for; windows brought to one level and size |
//! | [`specification`] | all of the above as one description, and the network that follows from it |
//! | [`training`], [`trainer`] | how a forecaster is trained, and the forecaster as something the trainer can train |
//! | [`forecaster`], `sampling` | a trained model: its file and its forecasts |
//! | [`data`] | tables of time series, windows over them, batches |
//! | [`service`] | a thread-safe predictor with warm programs, a cache and request batching |
//! | [`experiment`], [`dataset`] | what is to be trained, as TOML; its data, scaled and cut into windows |
//! | [`weights`] | weights in fewer bits |
//! | [`context`], [`predictor`] | what a trained model knows of its data; forecasts in their units |
//! | [`run`] | training into a run folder, opening and evaluating one |
//! | [`conformal`] | intervals from the errors on windows kept aside |
//! | [`evaluate`] | rolling origins, beside the baselines |
//! | [`baselines`] | forecasts that learn nothing or next to nothing: every model is shown beside them |
//! | [`metrics`] | how far forecasts are from what came |

pub mod baselines;
pub mod conformal;
pub mod context;
pub mod data;
pub mod dataset;
pub mod distribution;
pub mod evaluate;
pub mod experiment;
pub mod forecaster;
pub mod inputs;
pub mod layers;
pub mod loss;
pub mod metrics;
pub mod models;
pub mod network;
pub mod normalize;
pub mod predictor;
pub mod run;
mod sampling;
pub mod service;
#[cfg(test)]
mod signal;
pub mod specification;
pub mod trainer;
pub mod training;
pub mod weights;

pub use forecaster::{Forecast, Forecaster, ForecasterError};
pub use loss::Loss;
pub use models::Model;
pub use specification::{Specification, SpecificationError};
pub use trainer::{ForecastTask, Windows};
pub use training::Training;
