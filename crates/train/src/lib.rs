//! What every learner of Gatework shares: the training loop, optimisers, learning-rate schedules, checkpoints, experiment
//! files and run folders.
//!
//! | module | what is in it |
//! |---|---|
//! | [`trainer`] | the training loop: tasks, seeds and restarts, checkpoints |
//! | [`params`], [`optim`], [`schedule`] | the flat parameter arena, optimisers, learning rates |
//! | [`random`] | counter-based random numbers |
//! | [`experiment`] | reading experiment files: TOML with errors that name the line |
//! | [`files`] | files that are written whole or not at all |

pub mod experiment;
pub mod files;
pub mod kinds;
pub mod optim;
pub mod pairs;
pub mod params;
pub mod random;
pub mod run_folder;
pub mod schedule;
pub mod trainer;
