#![doc = include_str!("../README.md")]

pub mod datasets;
pub mod experiment;
pub mod files;
#[doc(hidden)]
pub mod kinds;
pub mod loss_scale;
pub mod memory;
pub mod model;
pub mod optim;
pub mod params;
pub mod random;
pub mod run_folder;
pub mod schedule;
pub mod tensor_file;
pub mod trainer;
