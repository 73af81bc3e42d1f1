//! Classifiers made of gates: from data to a circuit that labels an image or a row of a table.
//!
//! ```text
//! data -> encoder (bits) -> soft gate layers -> group sums -> gradient descent -> hard circuit
//! ```
//!
//! [`ClassifierBuilder`] trains on data in memory or in a file; [`experiment`] and [`run`] train an experiment file into a run folder. The
//! result is a [`gatework_logic::classifier::Classifier`], which predicts, is minimised and is exported.
//!
//! ```
//! use gatework_gates::classifier::ClassifierBuilder;
//!
//! // Exclusive or: no single bit tells the class.
//! let x = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
//! let fitted = ClassifierBuilder::new().fit(2, &x, &[0, 1, 1, 0])?;
//! assert_eq!(fitted.predict(&x)?, [0, 1, 1, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`data`] | data sets, files, splits, augmentation |
//! | [`encoder`] | thresholds fitted to the training rows |
//! | [`network`] | the soft network: layers, learned wires, group sums |
//! | [`task`] | training of a seed |
//! | [`choose`] | an experiment for data of which nothing else is known |
//! | [`experiment`], [`run`] | experiment files and run folders |
//! | [`search`] | gates of the hard circuit fitted to the training rows again |
//! | [`reduce`] | fewer gates by what the data never show |
//! | [`evaluate`] | accuracy, confusion matrix, precision and recall |

pub mod bits;
mod builder;
pub mod choose;
pub mod data;
pub mod encoder;
pub mod evaluate;
pub mod experiment;
mod head;
mod information;
mod missing;
pub mod network;
pub mod reduce;
pub mod run;
pub mod search;
pub mod task;

pub use builder::{ClassifierBuilder, Fitted};

use gatework_logic::CircuitError;
use gatework_logic::classifier as logic;

/// A classifier that cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifierError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] data::DataError),
    /// The encoder cannot be fitted.
    #[error("encoder: {0}")]
    Encoder(encoder::EncoderError),
    /// The network cannot be made.
    #[error("model: {0}")]
    Network(network::NetworkError),
    /// The hard circuit is not valid.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The parts do not form a classifier.
    #[error(transparent)]
    Classifier(#[from] logic::ClassifierError),
    /// A setting of the training is out of range.
    #[error("{0}")]
    Setting(String),
    /// Training failed.
    #[error(transparent)]
    Training(#[from] gatework_train::trainer::TrainError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] gatework_train::memory::OutOfMemory),
}

// The texts of these two are in the messages. As sources they would be printed again.
impl From<encoder::EncoderError> for ClassifierError {
    fn from(error: encoder::EncoderError) -> ClassifierError {
        ClassifierError::Encoder(error)
    }
}

impl From<network::NetworkError> for ClassifierError {
    fn from(error: network::NetworkError) -> ClassifierError {
        ClassifierError::Network(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn no_text_is_in_a_message_twice() {
        let errors: [ClassifierError; 2] =
            [encoder::EncoderError::Constant.into(), network::NetworkError::NoLayers.into()];
        for error in errors {
            let source = error.source().map(ToString::to_string);
            assert!(source.is_none_or(|source| !error.to_string().contains(&source)), "{error}");
        }
    }
}
