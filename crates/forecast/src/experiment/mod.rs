//! Experiments: what is trained on which data, as a TOML file states it.
//!
//! | module | contents |
//! |---|---|
//! | [`definition`] | the file format, its defaults and its checks |
//! | [`dataset`] | the data of an experiment, scaled and cut into windows |

pub mod dataset;
pub mod definition;

pub use dataset::{Dataset, DatasetError};
pub use definition::{BUILT_IN, BUILT_IN_DATA, Experiment, FIGURES, ForecastExperiment, Published, Task};
