//! Errors of trained networks.

use std::path::PathBuf;

use gatework_engine::program::ProgramError;
use gatework_train::files::{FileError, NewerVersion};
use gatework_train::memory::OutOfMemory;

use crate::network::feed::BatchError;
use crate::specification::SpecificationError;

/// A trained network that cannot be built, read or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The model file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The model file is truncated, corrupt or of another format.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The model file was written by a newer version of Gatework.
    #[error("{}: {newer}", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Its version.
        newer: NewerVersion,
    },
    /// The bytes are not those of a model file.
    #[error("{0}")]
    Format(String),
    /// The specification is invalid.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// The parameters do not belong to the model.
    #[error("{0}")]
    Parameters(String),
    /// The batch does not fit the model.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The model does not fit into memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The compiled program cannot run.
    #[error(transparent)]
    Program(#[from] ProgramError),
}
