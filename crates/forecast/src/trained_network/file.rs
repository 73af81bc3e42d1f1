//! The model file of a trained network: safetensors with the specification, the metadata and a checksum in its header.

use std::path::Path;

use gatework_train::files;
use gatework_train::params::Params;
use gatework_train::tensor_file::{NamedTensor, TensorFileError, TensorFormat};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::network::TrainedNetwork;
use crate::specification::{Mode, Specification};

const FORMAT: TensorFormat = TensorFormat { key: "gatework-forecaster", version: 2 };

/// The header of a model file.
#[derive(Serialize, Deserialize)]
struct Header {
    specification: Specification,
    #[serde(rename = "attached")]
    metadata: serde_json::Value,
}

impl TrainedNetwork {
    /// Returns the bytes of the model file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let params = self.params();
        let tensors: Vec<NamedTensor> = params
            .tensors()
            .iter()
            .map(|tensor| {
                let values = &params.values[tensor.range.clone()];
                let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (tensor.name.clone(), Dtype::F32, tensor.shape.clone(), data)
            })
            .collect();
        let header = Header { specification: self.specification().clone(), metadata: self.metadata.clone() };
        FORMAT.write(&header, &tensors)
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
    let (Header { specification, metadata }, file): (Header, SafeTensors<'_>) = FORMAT.read(bytes)?;
    let (_, bindings) = specification.network(1, Mode::Evaluation).map_err(|error| error.to_string())?;
    if bindings.parameters.len() != file.len() {
        return Err(format!(
            "it has {} tensors, but the model has {}",
            file.len(),
            bindings.parameters.len()
        )
        .into());
    }
    let mut params = Params::new();
    for parameter in &bindings.parameters {
        let name = &parameter.name;
        let tensor = file.tensor(name).map_err(|_| format!("tensor {name} is missing"))?;
        if (tensor.dtype(), tensor.shape()) != (Dtype::F32, &parameter.shape) {
            return Err(format!("tensor {name} is not F32{:?}", parameter.shape).into());
        }
        let values = tensor.data().as_chunks::<4>().0;
        params.add(name, &parameter.shape, |i| f32::from_le_bytes(values[i]));
    }
    let mut network = TrainedNetwork::new(specification, params).map_err(|error| error.to_string())?;
    network.metadata = metadata;
    Ok(network)
}
