#![doc = include_str!("../README.md")]

pub mod experiment;
pub mod files;
#[doc(hidden)]
pub mod kinds;
pub mod loss_scale;
pub mod memory;
pub mod optim;
#[doc(hidden)]
pub mod pairs;
pub mod params;
pub mod random;
pub mod run_folder;
pub mod schedule;
pub mod tensor_file;
pub mod trainer;
