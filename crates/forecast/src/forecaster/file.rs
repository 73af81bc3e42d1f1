//! The model file of a forecaster: safetensors with the specification, the metadata and a checksum in its header.

use std::path::Path;

use gatework_train::files::{self, NewerVersion};
use gatework_train::params::Params;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use super::error::ForecasterError;
use super::model::Forecaster;
use crate::specification::{Mode, Specification};

/// Key of the header entry in the safetensors metadata.
const HEADER: &str = "gatework-forecaster";

/// The version of model files that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

/// The header entry of a model file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// 0 in files that were written before they had a version.
    #[serde(default)]
    version: u64,
    specification: Specification,
    #[serde(rename = "attached")]
    metadata: serde_json::Value,
    checksum: String,
}

impl Header {
    /// Returns the checksum of header and parameters.
    fn sum(&self, params: &Params) -> String {
        let text = serde_json::to_string(&(&self.specification, &self.metadata)).unwrap_or_default();
        let names = params.tensors().iter().flat_map(|tensor| tensor.name.bytes().map(u64::from));
        let values = params.values.iter().map(|value| u64::from(value.to_bits()));
        // Files that were written before they had a version have a checksum without it.
        let version = Some(self.version).filter(|&version| version > 0);
        let words = text.bytes().map(u64::from).chain(names).chain(values).chain(version);
        // The map is a bijection for each word (the factor is odd), and it depends on the position of the word.
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        format!("{:016x}", words.fold(0, mix))
    }
}

impl Forecaster {
    /// Returns the bytes of the model file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self.params().values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let views = self.params().tensors().iter().map(|tensor| {
            let data = &bytes[4 * tensor.range.start..4 * tensor.range.end];
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), data);
            (tensor.name.as_str(), view.expect("the length of the data follows from the shape"))
        });
        let mut header = Header {
            version: VERSION,
            specification: self.specification().clone(),
            metadata: self.metadata.clone(),
            checksum: String::new(),
        };
        header.checksum = header.sum(self.params());
        let text = serde_json::to_string(&header).expect("the header has string keys only");
        let metadata = [(HEADER.to_string(), text)].into();
        safetensors::serialize(views, Some(metadata)).expect("names are unique and shapes are valid")
    }

    /// Reads a forecaster from the bytes of a model file. Shapes, names and the checksum are verified, so that a corrupt
    /// file is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Forecaster, ForecasterError> {
        parse(bytes).map_err(|problem| ForecasterError::Format(problem.to_string()))
    }

    /// Writes the model file atomically.
    pub fn save(&self, path: &Path) -> Result<(), ForecasterError> {
        Ok(files::write_atomic(path, &self.to_bytes())?)
    }

    /// Reads a model file.
    pub fn load(path: &Path) -> Result<Forecaster, ForecasterError> {
        let bytes = files::read(path)?;
        let path = path.to_path_buf();
        parse(&bytes).map_err(|problem| match problem {
            Problem::Newer(newer) => ForecasterError::Newer { path, newer },
            Problem::Other(problem) => ForecasterError::Unusable { path, problem },
        })
    }
}

/// Why bytes are not those of a usable model file.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Newer(#[from] NewerVersion),
    #[error("{0}")]
    Other(String),
}

impl From<String> for Problem {
    fn from(problem: String) -> Problem {
        Problem::Other(problem)
    }
}

fn parse(bytes: &[u8]) -> Result<Forecaster, Problem> {
    let broken = |error: safetensors::SafeTensorError| format!("not a complete model file ({error})");
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let file = SafeTensors::deserialize(bytes).map_err(broken)?;
    let text = header.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
    let text = text.ok_or_else(|| "not a forecaster of Gatework".to_string())?;
    files::check_json_version(text, VERSION)?;
    let header: Header = serde_json::from_str(text).map_err(|error| format!("unreadable header: {error}"))?;
    let specification = header.specification.clone();
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
    if header.sum(&params) != header.checksum {
        return Err(Problem::Other("the checksum does not match: the file is corrupt".into()));
    }
    let mut forecaster = Forecaster::new(specification, params).map_err(|error| error.to_string())?;
    forecaster.metadata = header.metadata;
    Ok(forecaster)
}
