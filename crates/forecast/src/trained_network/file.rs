//! The model file of a trained network: safetensors with the specification, the metadata and a checksum in its header.

use std::path::Path;

use gatework_engine::program::WeightsBuilder;
use gatework_train::files;
use gatework_train::tensor_file::{NamedTensor, TensorFileError, TensorFormat};
use half::f16;
use half::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::network::{TrainedNetwork, write_finite};
use super::quantization::{Precision, integers};
use crate::specification::Specification;

/// The newest format: version 3 has quantised weights. Weights in 32 bits are still written in version 2.
const FORMAT: TensorFormat = TensorFormat { key: "gatework-forecaster", version: 3 };
const FULL_PRECISION: TensorFormat = TensorFormat { version: 2, ..FORMAT };

/// The header of a model file.
#[derive(Serialize, Deserialize)]
struct Header {
    specification: Specification,
    #[serde(rename = "attached")]
    metadata: serde_json::Value,
    #[serde(default, skip_serializing_if = "is_f32")]
    precision: Precision,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_f32(precision: &Precision) -> bool {
    *precision == Precision::F32
}

/// Returns the name of the scales of a tensor of 8-bit integers.
fn scales_name(name: &str) -> String {
    format!("{name}.scales")
}

impl TrainedNetwork {
    /// Returns the bytes of the model file. Quantised weights are written as they are.
    pub fn to_bytes(&self) -> Vec<u8> {
        let precision = self.precision();
        let mut tensors: Vec<NamedTensor> = Vec::new();
        for (name, shape) in self.parameters() {
            let mut push = |dtype, data| tensors.push((name.clone(), dtype, shape.clone(), data));
            let floats = || self.weights().read(name).unwrap_or_default();
            let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
            match precision {
                Precision::F32 => push(Dtype::F32, bytes(&floats())),
                Precision::F16 => {
                    let halves = Vec::<f16>::from_f32_slice(&floats());
                    push(Dtype::F16, halves.iter().flat_map(|value| value.to_le_bytes()).collect());
                }
                Precision::Int8 => {
                    let quantised = self.weights().read_int8(name);
                    let quantised = quantised.map(|(values, scales, axis)| (values, scales.to_vec(), axis));
                    let Some((values, scales, axis)) = quantised.or_else(|| integers(&floats(), shape))
                    else {
                        push(Dtype::F32, bytes(&floats()));
                        continue;
                    };
                    push(Dtype::I8, values.iter().map(|value| value.cast_unsigned()).collect());
                    let shape = shape.iter().enumerate().map(|(i, &size)| if i == axis { size } else { 1 });
                    tensors.push((scales_name(name), Dtype::F32, shape.collect(), bytes(&scales)));
                }
            }
        }
        let header = Header {
            specification: self.specification().clone(),
            metadata: self.metadata.clone(),
            precision,
        };
        if precision == Precision::F32 { FULL_PRECISION } else { FORMAT }.write(&header, &tensors)
    }

    /// Reads a trained network from the bytes of a model file. Shapes, names and the checksum are verified, so that a corrupt
    /// file is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<TrainedNetwork, NetworkError> {
        parse(bytes).map_err(|problem| NetworkError::Format(problem.to_string()))
    }

    /// Writes the model file atomically.
    pub fn save(&self, path: &Path) -> Result<(), NetworkError> {
        Ok(files::write_atomic(path, &self.to_bytes())?)
    }

    /// Reads a model file.
    pub fn load(path: &Path) -> Result<TrainedNetwork, NetworkError> {
        let bytes = files::read(path)?;
        let path = path.to_path_buf();
        parse(&bytes).map_err(|problem| match problem {
            Problem::Format(TensorFileError::Newer(newer)) => NetworkError::Newer { path, newer },
            problem => NetworkError::Unusable { path, problem: problem.to_string() },
        })
    }
}

/// Why bytes are not those of a usable model file.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Format(#[from] TensorFileError),
    #[error("{0}")]
    Other(String),
}

impl From<String> for Problem {
    fn from(problem: String) -> Problem {
        Problem::Other(problem)
    }
}

fn parse(bytes: &[u8]) -> Result<TrainedNetwork, Problem> {
    let (header, file): (Header, SafeTensors<'_>) = FORMAT.read(bytes)?;
    let Header { specification, metadata, precision } = header;
    let count = specification.counted_parameters().map_err(|error| error.to_string())?.0.len();
    let is_scales = |name: &str| precision == Precision::Int8 && name.ends_with(&scales_name(""));
    let found = file.names().into_iter().filter(|name| !is_scales(name)).count();
    if count != found {
        return Err(format!("it has {found} tensors, but the model has {count}").into());
    }
    let mut network = TrainedNetwork::build(specification, precision, |name, shape, weights| {
        read_tensor(&file, precision, name, shape, weights)
    })
    .map_err(|error| error.to_string())?;
    network.metadata = metadata;
    network.warm_up(&[1]).map_err(|error| error.to_string())?;
    Ok(network)
}

/// Reads a tensor of a file into the weights.
fn read_tensor(
    file: &SafeTensors<'_>,
    precision: Precision,
    name: &str,
    shape: &[usize],
    weights: &mut WeightsBuilder,
) -> Result<(), NetworkError> {
    let problem = |problem: String| NetworkError::Format(problem);
    let tensor = |name: &str| file.tensor(name).map_err(|_| problem(format!("tensor {name} is missing")));
    let floats =
        |data: &[u8]| data.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    let found = tensor(name)?;
    if found.shape() != shape {
        return Err(problem(format!("tensor {name} has the shape {:?}, not {shape:?}", found.shape())));
    }
    match (found.dtype(), precision) {
        (Dtype::F32, Precision::F32 | Precision::Int8) => {
            let values: Vec<f32> = floats(found.data());
            write_finite(weights, name, &values)
        }
        (Dtype::F16, Precision::F16) => {
            let values =
                found.data().as_chunks::<2>().0.iter().map(|value| f16::from_le_bytes(*value).to_f32());
            write_finite(weights, name, &values.collect::<Vec<f32>>())
        }
        (Dtype::I8, Precision::Int8) => {
            let scales = tensor(&scales_name(name))?;
            // If all scales have size 1, the axis is one of size 1.
            let axis = scales.shape().iter().position(|&size| size != 1);
            let axis = axis.or_else(|| shape.iter().rposition(|&size| size == 1)).unwrap_or(0);
            let is_axis = |(i, &size): (usize, &usize)| size == if i == axis { shape[i] } else { 1 };
            let fits = scales.shape().len() == shape.len() && scales.shape().iter().enumerate().all(is_axis);
            if scales.dtype() != Dtype::F32 || shape.is_empty() || !fits {
                let name = scales_name(name);
                return Err(problem(format!("tensor {name} does not hold a scale for each output")));
            }
            let scales: Vec<f32> = floats(scales.data());
            if scales.iter().any(|scale| !(127.0 * scale).is_finite()) {
                return Err(problem(format!("tensor {} is not finite", scales_name(name))));
            }
            let values: Vec<i8> = found.data().iter().map(|value| value.cast_signed()).collect();
            // Some kernels have no -128.
            if values.contains(&i8::MIN) {
                return Err(problem(format!(
                    "tensor {name} has a value of -128; values are from -127 to 127"
                )));
            }
            Ok(weights.write_int8(name, &values, &scales, axis)?)
        }
        (dtype, _) => Err(problem(format!("tensor {name} is {dtype:?} in a file of {}", precision.name()))),
    }
}
