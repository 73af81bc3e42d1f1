//! What Gatework learns, and how.
//!
//! | module | what is in it |
//! |---|---|
//! | [`gates`] | soft gate networks: wiring and start values |
//! | [`automata`] | soft cellular automata: models, tasks, roll-outs, evaluation |
//! | [`data`] | tables of time series, windows over them, batches |
//! | [`forecast`] | neural forecasting models, their training, what they are compared with |
//! | [`experiment`] | what is to be learned, whatever the task |
//! | [`params`], [`optim`], [`schedule`] | the flat parameter arena, optimisers, learning rates |
//! | [`train`] | the training loop, seeds and restarts, checkpoints |
//! | [`random`] | random numbers that depend on nothing but where they are used |
//! | [`files`] | files that are written whole or not at all |

pub mod automata;
pub mod data;
pub mod experiment;
pub mod files;
pub mod forecast;
pub mod gates;
#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
mod kinds;
pub mod optim;
mod pairs;
pub mod params;
pub mod random;
pub mod schedule;
pub mod train;
