//! Forecasts of tables in the units of the data.
//!
//! | module | contents |
//! |---|---|
//! | [`conformal`] | prediction intervals calibrated on held-out errors |
//! | [`context`] | what a trained model stores about its data; [`Prediction`] and [`Interval`] |
//! | [`forecaster`] | [`Forecaster`]: a trained network with its context |

pub mod conformal;
pub mod context;
pub mod forecaster;

pub use context::{Context, ContextError, Interval, NotFinite, Prediction, Prepared};
pub use forecaster::{Forecaster, PredictError};
