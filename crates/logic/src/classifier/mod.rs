//! Classifiers made of gates: an encoder, a circuit and a head.
//!
//! ```text
//! row of values -> encoder -> bits -> circuit -> bits -> head -> class
//! ```
//!
//! The [`Encoder`] turns the values of a sample into the inputs of the [`Circuit`]. The outputs of the circuit are divided
//! into contiguous groups, one per class; the score of a class is the number of ones in its group. The class with the
//! highest score is predicted, and the first one of several with the same score.
//!
//! ```
//! use gatework_logic::classifier::{Classifier, Encoder, Feature, Head};
//! use gatework_logic::{Circuit, Gate, Node};
//!
//! // A petal that is long or wide belongs to the second class.
//! let features = vec![Feature::numeric("length", vec![2.5]), Feature::numeric("width", vec![0.8])];
//! let gates = vec![Node::new(Gate::NOR, 0, 1), Node::new(Gate::OR, 0, 1)];
//! let classifier = Classifier::new(
//!     Encoder::new(features, None)?,
//!     Circuit::new(2, gates, vec![2, 3])?,
//!     Head::equal_groups(vec!["setosa".into(), "other".into()], 2, 1.0)?,
//! )?;
//! assert_eq!(classifier.scores(&[4.9, 1.5])?, [0, 1]);
//! assert_eq!(classifier.predict(&[1.4, 0.2])?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `encoder` | [`Encoder`]: features, thermometer bits, one-hot bits |
//! | `head` | [`Head`]: classes and their groups of outputs |
//! | [`import`] | networks of other libraries, from safetensors files |
//! | `arithmetic` | the head as gates: adders and comparators |
//!
//! [`Predictor`](crate::simulate::Predictor) runs a classifier at millions of samples per second.

mod arithmetic;
mod encoder;
mod head;
pub mod import;

pub(crate) use arithmetic::{Order, WholeCircuit, label_bits};
pub use encoder::{Encoder, Feature, FeatureKind, MAX_PIXEL, Rows};
pub use head::{Class, Head, MAX_CLASSES, MAX_OFFSET};

use crate::circuit::{Circuit, CircuitError, MAX_INPUTS};
use rustc_hash::FxHashSet;
use thiserror::Error;

/// A classifier: an encoder, a circuit and a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    encoder: Encoder,
    circuit: Circuit,
    head: Head,
}

/// An error of building or running a classifier.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ClassifierError {
    /// The encoder has no features.
    #[error("a classifier needs at least one feature")]
    NoFeatures,
    /// The thresholds of a feature are not finite, or do not ascend.
    #[error("the thresholds of feature {feature} (\"{name}\") are not finite numbers in ascending order")]
    Thresholds {
        /// The index of the feature.
        feature: usize,
        /// The name of the feature.
        name: String,
    },
    /// A feature has a category twice.
    #[error("feature {feature} (\"{name}\") has the category \"{category}\" twice")]
    Category {
        /// The index of the feature.
        feature: usize,
        /// The name of the feature.
        name: String,
        /// The name of the category.
        category: String,
    },
    /// Two features have the same name.
    #[error("two features have the name \"{0}\"")]
    FeatureName(String),
    /// The features have more bits than a circuit may have inputs.
    #[error("the features have {bits} bits, but the maximum is {MAX_INPUTS}")]
    TooManyBits {
        /// The number of bits.
        bits: usize,
    },
    /// The shape of an image does not match the number of features.
    #[error(
        "an image of {}x{}x{} (channels, height, width) does not have {features} features",
        shape[0], shape[1], shape[2]
    )]
    Shape {
        /// Channels, height and width.
        shape: [usize; 3],
        /// The number of features.
        features: usize,
    },
    /// A feature of an image is not a plain number.
    #[error("feature {feature} (\"{name}\") of an image must be numeric and cannot be missing")]
    Pixel {
        /// The index of the feature.
        feature: usize,
        /// The name of the feature.
        name: String,
    },
    /// There are no classes, one class, or more than [`MAX_CLASSES`].
    #[error("there are {classes} classes, but a classifier has 2 to {MAX_CLASSES}")]
    Classes {
        /// The number of classes.
        classes: usize,
    },
    /// Two classes have the same name.
    #[error("two classes have the name \"{0}\"")]
    ClassName(String),
    /// The outputs cannot be divided into equal groups.
    #[error(
        "{outputs} outputs cannot be divided into {classes} equal groups; use a multiple of the number of classes"
    )]
    Groups {
        /// The number of outputs.
        outputs: usize,
        /// The number of classes.
        classes: usize,
    },
    /// The offset of a class is too large.
    #[error("the offset of class {class} is {offset}, but the maximum is {MAX_OFFSET}")]
    Offset {
        /// The index of the class.
        class: usize,
        /// The offset.
        offset: u32,
    },
    /// The temperature is not a positive number.
    #[error("the temperature is {0}, but must be a positive number")]
    Temperature(f32),
    /// The circuit does not have one input per bit of the encoder.
    #[error("the encoder has {bits} bits, but the circuit has {inputs} inputs")]
    Inputs {
        /// The number of bits of the encoder.
        bits: usize,
        /// The number of inputs of the circuit.
        inputs: usize,
    },
    /// The groups of the head do not have as many outputs as the circuit.
    #[error("the groups of the head have {groups} outputs, but the circuit has {outputs}")]
    Outputs {
        /// The sum of the sizes of the groups.
        groups: usize,
        /// The number of outputs of the circuit.
        outputs: usize,
    },
    /// The number of values is not a multiple of the number of features.
    #[error("{values} values are not whole rows of {features} features")]
    Row {
        /// The number of values.
        values: usize,
        /// The number of features.
        features: usize,
    },
    /// The circuit cannot be evaluated.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
}

impl Classifier {
    /// Creates a classifier. The circuit must have one input per bit of the encoder, and the outputs that the groups of
    /// the head have together.
    pub fn new(encoder: Encoder, circuit: Circuit, head: Head) -> Result<Classifier, ClassifierError> {
        let (bits, inputs) = (encoder.bits(), circuit.inputs());
        if bits != inputs {
            return Err(ClassifierError::Inputs { bits, inputs });
        }
        let (groups, outputs) = (head.outputs(), circuit.outputs().len());
        if groups != outputs {
            return Err(ClassifierError::Outputs { groups, outputs });
        }
        Ok(Classifier { encoder, circuit, head })
    }

    /// Returns the encoder.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Returns the circuit between the encoder and the head.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// Returns the head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Replaces the circuit, for example by a minimised one. It must have the same number of inputs and outputs.
    pub fn with_circuit(self, circuit: Circuit) -> Result<Classifier, ClassifierError> {
        Classifier::new(self.encoder, circuit, self.head)
    }

    /// Returns the circuit from the bits of the encoder to the class, as a binary number with its lowest bit first: the
    /// gates, adders for the scores and comparators for the arg-max.
    pub fn label_circuit(&self) -> Circuit {
        WholeCircuit::new(self, Order::Tree).label_circuit(&self.circuit)
    }

    /// Returns the score of every class for one row.
    ///
    /// This is the reference implementation, gate by gate; it takes milliseconds for a large circuit.
    pub fn scores<'a>(&self, row: impl Into<Rows<'a>>) -> Result<Vec<u32>, ClassifierError> {
        let outputs = self.circuit.eval(&self.encoder.encode_row(row.into())?)?;
        Ok(self.head.scores(&outputs))
    }

    /// Returns the class with the highest score for one row, the first one of several; see [`Classifier::scores`].
    pub fn predict<'a>(&self, row: impl Into<Rows<'a>>) -> Result<usize, ClassifierError> {
        Ok(arg_max(&self.scores(row)?))
    }
}

/// Returns the index of the first maximum.
pub fn arg_max(scores: &[u32]) -> usize {
    let better = |best: usize, class: usize| if scores[class] > scores[best] { class } else { best };
    (0..scores.len()).reduce(better).unwrap_or(0)
}

/// Returns a name that occurs twice.
fn duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = FxHashSet::default();
    names.into_iter().find(|&name| !seen.insert(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Node;
    use crate::gate::Gate;

    fn encoder() -> Encoder {
        Encoder::new(vec![Feature::numeric("a", vec![0.0, 1.0])], None).unwrap()
    }

    fn head() -> Head {
        Head::equal_groups(vec!["no".into(), "yes".into()], 4, 1.0).unwrap()
    }

    #[test]
    fn scores_are_the_ones_of_each_group_and_ties_go_to_the_first_class() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::NOT_A, 0, 0)], vec![2, 0, 0, 1]).unwrap();
        let classifier = Classifier::new(encoder(), circuit, head()).unwrap();
        assert_eq!(classifier.scores(&[-1.0f32]).unwrap(), [1, 0]);
        assert_eq!(classifier.scores(&[0.5f32]).unwrap(), [1, 1]);
        assert_eq!(classifier.scores(&[2u8]).unwrap(), [1, 2]);
        let labels = [-1.0, 0.5, 2.0].map(|value: f32| classifier.predict(&[value]).unwrap());
        assert_eq!(labels, [0, 0, 1]);
    }

    #[test]
    fn ports_must_match_encoder_and_head() {
        let circuit = |inputs, outputs| Circuit::new(inputs, vec![], vec![0; outputs]).unwrap();
        let error = Classifier::new(encoder(), circuit(3, 4), head()).unwrap_err();
        assert_eq!(error, ClassifierError::Inputs { bits: 2, inputs: 3 });
        let error = Classifier::new(encoder(), circuit(2, 5), head()).unwrap_err();
        assert_eq!(error, ClassifierError::Outputs { groups: 4, outputs: 5 });
        let classifier = Classifier::new(encoder(), circuit(2, 4), head()).unwrap();
        assert_eq!(
            classifier.scores(&[1.0f32, 2.0]).unwrap_err().to_string(),
            "2 values are not whole rows of 1 features"
        );
    }
}
