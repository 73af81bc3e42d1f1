//! Networks of other libraries (difflogic, torchlogix), read from the tensors of a safetensors file.
//!
//! | tensor | shape | content |
//! |---|---|---|
//! | `layer.N.a`, `layer.N.b` | gates | the operands, as indices into the layer before; the inputs for layer 0 |
//! | `layer.N.gate` | gates | the functions, 0 to 15 in the order of [`Gate::ALL`], which is that of difflogic |
//! | `layer.N.weight` | gates x 16 | or logits of the sixteen functions, of which the largest counts |
//! | `inputs` | 1 | the number of input bits |
//! | `classes` | 1 | the number of classes, which divide the outputs of the last layer into equal groups |
//! | `tau` | 1 | optional: the temperature |
//! | `feature`, `threshold` | inputs | optional: input bit i is `row[feature[i]] > threshold[i]`; by default a row has the bits themselves |
//! | `shape` | 3 | optional: channels, height and width of images, whose values are 0 to 255 |
//!
//! Indices may have any integer type, other numbers are `F32` or `F64`.

use super::{Classifier, ClassifierError, Encoder, Feature, Head};
use crate::circuit::{Circuit, CircuitError, MAX_INPUTS, Node};
use crate::gate::Gate;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use thiserror::Error;

/// The most features of an imported network.
const MAX_FEATURES: usize = 1 << 18;

/// A file that is not a network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is not a safetensors file.
    #[error("not a safetensors file: {0}")]
    File(String),
    /// A tensor does not exist.
    #[error("the tensor `{0}` is missing")]
    Missing(String),
    /// A tensor has another type or shape than expected.
    #[error("the tensor `{name}` must have {expected}, but has type {dtype} and shape {shape:?}")]
    Tensor {
        /// The name of the tensor.
        name: String,
        /// The expected type and shape.
        expected: String,
        /// The type.
        dtype: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// An element is out of range.
    #[error("element {index} of the tensor `{name}` is {value}, but must be {expected}")]
    Element {
        /// The name of the tensor.
        name: String,
        /// The index of the element.
        index: usize,
        /// Its value.
        value: String,
        /// The range.
        expected: String,
    },
    /// The tensors are not a valid circuit.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The tensors are not a valid classifier.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
}

/// Whether a safetensors file holds a network that [`from_tensors`] reads.
pub fn is_network(bytes: &[u8]) -> bool {
    SafeTensors::deserialize(bytes).is_ok_and(|file| file.tensor("layer.0.a").is_ok())
}

/// Reads a network of layers from a safetensors file; see the [module documentation](self) for its tensors.
pub fn from_tensors(bytes: &[u8]) -> Result<Classifier, ImportError> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| ImportError::File(error.to_string()))?;
    let tensors = Tensors(&file);
    // A file of a few bytes must not take gigabytes: without thresholds, every input is a feature.
    let max_inputs = if tensors.has("threshold") { MAX_INPUTS } else { MAX_FEATURES };
    let inputs = tensors.size("inputs", max_inputs)?;
    let classes = tensors.size("classes", super::MAX_CLASSES)?;
    let (encoder, position) = encoder(&tensors, inputs)?;
    let mut nodes: Vec<Node> = Vec::new();
    // The signals of the layer before.
    let mut before: Vec<u32> = position;
    for layer in 0.. {
        if layer > 0 && !tensors.has(&format!("layer.{layer}.a")) {
            break;
        }
        let [a, b] =
            ["a", "b"].map(|operand| tensors.indices(&format!("layer.{layer}.{operand}"), before.len()));
        let (a, b) = (a?, b?);
        let gates = tensors.gates(layer, a.len())?;
        if b.len() != a.len() {
            return Err(tensors.unexpected(&format!("layer.{layer}.b"), format!("{} integers", a.len())));
        }
        let first = encoder.bits() + nodes.len();
        let operands = a.into_iter().zip(b);
        nodes.extend(operands.zip(gates).map(|((a, b), gate)| Node::new(gate, before[a], before[b])));
        before = (first as u32..(encoder.bits() + nodes.len()) as u32).collect();
    }
    let circuit = Circuit::new(encoder.bits(), nodes, before)?;
    let tau = if tensors.has("tau") { tensors.numbers("tau", 1)?[0] } else { 1.0 };
    let names = (0..classes).map(|class| class.to_string()).collect();
    let head = Head::equal_groups(names, circuit.outputs().len(), tau)?;
    Ok(Classifier::new(encoder, circuit, head)?)
}

/// The encoder, and the bit of the encoder that each input of the network is.
fn encoder(tensors: &Tensors<'_>, inputs: usize) -> Result<(Encoder, Vec<u32>), ImportError> {
    let (features, thresholds) = if tensors.has("feature") || tensors.has("threshold") {
        (tensors.indices("feature", MAX_FEATURES)?, tensors.numbers("threshold", inputs)?)
    } else {
        ((0..inputs).collect(), vec![0.5; inputs])
    };
    if features.len() != inputs {
        return Err(tensors.unexpected("feature", format!("{inputs} integers")));
    }
    if let Some(index) = thresholds.iter().position(|threshold| !threshold.is_finite()) {
        let value = thresholds[index].to_string();
        let expected = "a finite number".into();
        return Err(ImportError::Element { name: "threshold".into(), index, value, expected });
    }
    let shape = if tensors.has("shape") {
        let sizes = tensors.indices("shape", MAX_FEATURES)?;
        Some(sizes.try_into().map_err(|_| tensors.unexpected("shape", "three integers".into()))?)
    } else {
        None
    };
    let pixels =
        shape.map_or(0, |shape: [usize; 3]| shape.iter().fold(1, |a: usize, &b| a.saturating_mul(b)));
    let count = features.iter().max().map_or(0, |&last| last + 1).max(pixels.min(MAX_FEATURES));
    let mut levels: Vec<Vec<f32>> = vec![Vec::new(); count];
    for (&feature, &threshold) in features.iter().zip(&thresholds) {
        levels[feature].push(threshold);
    }
    for level in &mut levels {
        level.sort_by(f32::total_cmp);
        // An element that is not above the one before is equal to it; -0 and 0 are the same threshold.
        level.dedup_by(|later, before| later <= before);
    }
    let list = levels.iter().enumerate();
    let encoder = Encoder::new(
        list.map(|(i, level)| Feature::numeric(format!("x{i}"), level.clone())).collect(),
        shape,
    )?;
    let starts: Vec<usize> = encoder.ranges().map(|range| range.start).collect();
    let position = |(&feature, &threshold): (&usize, &f32)| {
        (starts[feature] + levels[feature].partition_point(|&level| level < threshold)) as u32
    };
    let positions = features.iter().zip(&thresholds).map(position).collect();
    Ok((encoder, positions))
}

/// The tensors of a file, with checks.
struct Tensors<'a>(&'a SafeTensors<'a>);

impl Tensors<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.tensor(name).is_ok()
    }

    fn get(&self, name: &str) -> Result<TensorView<'_>, ImportError> {
        self.0.tensor(name).map_err(|_| ImportError::Missing(name.into()))
    }

    /// The error for a tensor of another type or shape.
    fn unexpected(&self, name: &str, expected: String) -> ImportError {
        match self.get(name) {
            Ok(view) => ImportError::Tensor {
                name: name.into(),
                expected,
                dtype: format!("{:?}", view.dtype()),
                shape: view.shape().to_vec(),
            },
            Err(error) => error,
        }
    }

    /// A single integer from 1 on.
    fn size(&self, name: &str, max: usize) -> Result<usize, ImportError> {
        match self.indices(name, max + 1)?[..] {
            [size] if size > 0 => Ok(size),
            _ => Err(self.unexpected(name, "one integer from 1 on".into())),
        }
    }

    /// Integers below `end`.
    fn indices(&self, name: &str, end: usize) -> Result<Vec<usize>, ImportError> {
        let view = self.get(name)?;
        let width = match view.dtype() {
            Dtype::U8 | Dtype::I8 => 1,
            Dtype::U16 | Dtype::I16 => 2,
            Dtype::U32 | Dtype::I32 => 4,
            Dtype::U64 | Dtype::I64 => 8,
            _ => return Err(self.unexpected(name, "an integer type".into())),
        };
        let is_signed = matches!(view.dtype(), Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64);
        let number = |(index, bytes): (usize, &[u8])| {
            let is_negative = is_signed && bytes.last().is_some_and(|&byte| byte >> 7 == 1);
            let number = bytes.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
            usize::try_from(number).ok().filter(|&number| number < end && !is_negative).ok_or_else(|| {
                ImportError::Element {
                    name: name.into(),
                    index,
                    value: number.to_string(),
                    expected: format!("below {end}"),
                }
            })
        };
        view.data().chunks_exact(width).enumerate().map(number).collect()
    }

    /// Floating-point numbers.
    fn numbers(&self, name: &str, count: usize) -> Result<Vec<f32>, ImportError> {
        let view = self.get(name)?;
        let list: Vec<f32> = match view.dtype() {
            Dtype::F32 => {
                let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
                view.data().chunks_exact(4).map(number).collect()
            }
            Dtype::F64 => {
                let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default()) as f32;
                view.data().chunks_exact(8).map(number).collect()
            }
            _ => return Err(self.unexpected(name, format!("{count} numbers of type F32 or F64"))),
        };
        if list.len() == count {
            Ok(list)
        } else {
            Err(self.unexpected(name, format!("{count} numbers of type F32 or F64")))
        }
    }

    /// The functions of a layer.
    fn gates(&self, layer: usize, count: usize) -> Result<Vec<Gate>, ImportError> {
        let name = format!("layer.{layer}.gate");
        if self.has(&name) {
            let indices = self.indices(&name, Gate::ALL.len())?;
            if indices.len() != count {
                return Err(self.unexpected(&name, format!("{count} integers")));
            }
            return Ok(indices.into_iter().map(|index| Gate::ALL[index]).collect());
        }
        let name = format!("layer.{layer}.weight");
        let logits = self.numbers(&name, count.saturating_mul(Gate::ALL.len()))?;
        if let Some(index) = logits.iter().position(|logit| logit.is_nan()) {
            let expected = "a number: the training of this network has diverged".into();
            return Err(ImportError::Element { name, index, value: "NaN".into(), expected });
        }
        // The first one of several that are equal, as PyTorch does.
        let largest = |logits: &[f32]| {
            let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
            Gate::ALL[(0..logits.len()).reduce(better).unwrap_or(0)]
        };
        Ok(logits.chunks_exact(Gate::ALL.len()).map(largest).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Stored = (Dtype, Vec<usize>, Vec<u8>);

    fn integers(values: &[i64]) -> Stored {
        (Dtype::I64, vec![values.len()], values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn floats(shape: &[usize], values: &[f32]) -> Stored {
        (Dtype::F32, shape.to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// XOR and AND of two bits, then a layer of logits: OR of both, and the first one inverted.
    fn network() -> BTreeMap<String, Stored> {
        let mut logits = [0.0; 32];
        logits[7] = 2.0;
        logits[16 + 12] = 1.0;
        let list = [
            ("inputs", integers(&[2])),
            ("classes", integers(&[2])),
            ("layer.0.a", integers(&[0, 0])),
            ("layer.0.b", integers(&[1, 1])),
            ("layer.0.gate", integers(&[6, 1])),
            ("layer.1.a", integers(&[0, 0])),
            ("layer.1.b", integers(&[1, 1])),
            ("layer.1.weight", floats(&[2, 16], &logits)),
        ];
        list.into_iter().map(|(name, tensor)| (name.to_string(), tensor)).collect()
    }

    fn file(tensors: &BTreeMap<String, Stored>) -> Vec<u8> {
        let views = tensors.iter().map(|(name, (dtype, shape, data))| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn layers_of_indices_and_of_logits_are_read() {
        let bytes = file(&network());
        assert!(is_network(&bytes));
        let classifier = from_tensors(&bytes).unwrap();
        let scores =
            [[0.0f32, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]].map(|row| classifier.scores(&row).unwrap());
        assert_eq!(scores, [[0, 1], [1, 0], [1, 0], [1, 1]]);
        assert!(!is_network(b"{}") && from_tensors(b"{}").is_err());
    }

    #[test]
    fn thresholds_in_any_order_become_the_encoder() {
        let mut tensors = network();
        // Both inputs are bits of feature 1, the higher threshold first; feature 0 is not used.
        tensors.insert("feature".into(), integers(&[1, 1]));
        tensors.insert("threshold".into(), floats(&[2], &[3.0, -1.0]));
        tensors.insert("tau".into(), floats(&[1], &[10.0]));
        let classifier = from_tensors(&file(&tensors)).unwrap();
        assert_eq!(classifier.encoder().features()[1], Feature::numeric("x1", vec![-1.0, 3.0]));
        // Above -1 only: input 0 is 0, input 1 is 1.
        assert_eq!(classifier.scores(&[9.0f32, 0.0]).unwrap(), [1, 0]);
        assert!((classifier.head().temperature() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn faulty_tensors_are_named() {
        let message = |name: &str, tensor: Option<Stored>| {
            let mut tensors = network();
            tensors.remove(name);
            tensors.extend(tensor.map(|tensor| (name.to_string(), tensor)));
            from_tensors(&file(&tensors)).unwrap_err().to_string()
        };
        assert_eq!(message("classes", None), "the tensor `classes` is missing");
        assert_eq!(message("layer.1.weight", None), "the tensor `layer.1.weight` is missing");
        assert_eq!(
            message("layer.1.a", Some(integers(&[0, 2]))),
            "element 1 of the tensor `layer.1.a` is 2, but must be below 2"
        );
        assert!(
            message("layer.0.a", Some(integers(&[0, -1]))).starts_with("element 1 of the tensor `layer.0.a`")
        );
        assert_eq!(
            message("layer.0.b", Some(integers(&[0]))),
            "the tensor `layer.0.b` must have 2 integers, but has type I64 and shape [1]"
        );
        assert!(message("layer.0.gate", Some(integers(&[16, 0]))).contains("must be below 16"));
        assert!(message("classes", Some(integers(&[3]))).contains("cannot be divided into 3 equal groups"));
        let mut logits = [0.0; 32];
        logits[17] = f32::NAN;
        assert!(
            message("layer.1.weight", Some(floats(&[2, 16], &logits)))
                .starts_with("element 17 of the tensor `layer.1.weight` is NaN, but must be a number")
        );
        assert!(message("threshold", Some(floats(&[2], &[f32::NAN, 0.0]))).contains("`feature` is missing"));
    }
}
