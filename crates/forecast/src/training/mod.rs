//! Training of a forecaster.
//!
//! | module | contents |
//! |---|---|
//! | [`settings`] | [`Training`]: epochs, batch size, optimiser, early stopping, as an experiment file states them |
//! | [`task`] | [`ForecastTask`]: one seed in training, as the trainer of `gatework-train` drives it |
//! | `programs` | compiled training and evaluation programs, and data-parallel gradients |

mod programs;
pub mod settings;
pub mod task;

pub use settings::{ActivationPrecision, Training};
pub use task::ForecastTask;
