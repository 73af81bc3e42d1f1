//! Forecasting: what forecasts are compared with, and how they are judged.
//!
//! | module | what is in it |
//! |---|---|
//! | [`baselines`] | forecasts that learn nothing or next to nothing: every model is shown beside them |
//! | [`metrics`] | how far forecasts are from what came |

pub mod baselines;
pub mod metrics;
