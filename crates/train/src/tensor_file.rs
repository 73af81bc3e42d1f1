//! Safetensors files with a JSON header, a format version and a checksum: the format of models and checkpoints.
//!
//! The header is the only entry of the safetensors metadata, because several entries would have no fixed order:
//!
//! ```text
//! {"version":2,"checksum":"1c291ca3", the fields of the caller}
//! ```
//!
//! The checksum is the CRC-32 (as in gzip and PNG) of the fields and of the name, type, shape and data of every tensor.
//! Files of version 1 and earlier have no such checksum and are read without it.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::{NewerVersion, check_version};

/// The first version with a checksum.
const FIRST_CHECKED: u64 = 2;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub struct TensorFormat {
    /// The metadata key of the header, which identifies the kind.
    pub key: &'static str,
    /// The version that is written, and the newest that is read: 2 or more.
    pub version: u64,
}

/// A tensor to be written: its name, type, shape and data.
pub type NamedTensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// Bytes that are not those of a file of the requested kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFileError {
    /// The file is truncated, or not a safetensors file.
    #[error("not a complete safetensors file ({0})")]
    Incomplete(#[from] safetensors::SafeTensorError),
    /// The file is of another kind.
    #[error("it has no entry {key:?} in its metadata: it is a file of another kind")]
    Foreign {
        /// The metadata key that is missing.
        key: &'static str,
    },
    /// The file was written by a newer version of Gatework.
    #[error(transparent)]
    Newer(#[from] NewerVersion),
    /// The header does not have the fields of this kind.
    #[error("unreadable header: {0}")]
    Header(#[from] serde_json::Error),
    /// The content has changed since the file was written.
    #[error("the checksum does not match: the file is corrupt")]
    Corrupt,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    version: u64,
    checksum: Option<String>,
}

impl TensorFormat {
    /// Returns the bytes of a file. The header must be a struct. Equal content has equal bytes.
    pub fn write(&self, header: &impl Serialize, tensors: &[NamedTensor]) -> Vec<u8> {
        let header = serde_json::to_string(header).expect("the keys of a header are strings");
        let views: Vec<(&str, TensorView<'_>)> = tensors
            .iter()
            .map(|(name, dtype, shape, data)| {
                let view = TensorView::new(*dtype, shape.clone(), data);
                (name.as_str(), view.expect("as many bytes as the shape says"))
            })
            .collect();
        let fields = header.strip_prefix('{').expect("a header is a struct");
        let text = self.prefix(checksum(fields, views.clone())) + fields;
        let metadata = [(self.key.to_string(), text)].into();
        safetensors::serialize(views, Some(metadata)).expect("names are unique and shapes are valid")
    }

    /// Reads the header and the tensors of a file, and verifies its checksum.
    pub fn read<'a, H: DeserializeOwned>(
        &self,
        bytes: &'a [u8],
    ) -> Result<(H, SafeTensors<'a>), TensorFileError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let tensors = SafeTensors::deserialize(bytes)?;
        let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(self.key));
        let text = text.ok_or(TensorFileError::Foreign { key: self.key })?;
        let envelope: Envelope = serde_json::from_str(text)?;
        check_version(Some(envelope.version), self.version)?;
        // Forecasters of version 1 have another checksum, of 16 digits.
        let sum = envelope.checksum.filter(|sum| sum.len() == 8);
        match sum.and_then(|sum| u32::from_str_radix(&sum, 16).ok()) {
            Some(sum) => {
                let fields =
                    text.strip_prefix(&TensorFormat { version: envelope.version, ..*self }.prefix(sum));
                let fields = fields.ok_or(TensorFileError::Corrupt)?;
                let views = tensors.tensors();
                if checksum(fields, views.iter().map(|(name, view)| (name.as_str(), view.clone())).collect())
                    != sum
                {
                    return Err(TensorFileError::Corrupt);
                }
            }
            None if envelope.version < FIRST_CHECKED => {}
            None => return Err(TensorFileError::Corrupt),
        }
        Ok((serde_json::from_str(text)?, tensors))
    }

    /// The begin of the header text, before the fields of the caller.
    fn prefix(&self, checksum: u32) -> String {
        format!("{{\"version\":{},\"checksum\":\"{checksum:08x}\",", self.version)
    }
}

/// The CRC-32 of the fields and of all tensors, in the order of their names.
fn checksum(fields: &str, mut tensors: Vec<(&str, TensorView<'_>)>) -> u32 {
    tensors.sort_by_key(|(name, _)| *name);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields.as_bytes());
    for (name, view) in tensors {
        hasher.update(format!("{name} {:?} {:?}", view.dtype(), view.shape()).as_bytes());
        hasher.update(view.data());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: TensorFormat = TensorFormat { key: "gatework-test", version: 2 };

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Fields {
        name: String,
        share: f64,
    }

    fn content() -> (Fields, Vec<NamedTensor>) {
        let fields = Fields { name: "a \"quoted\" name".into(), share: 0.1 };
        let tensors = vec![
            ("b".to_string(), Dtype::F32, vec![2], vec![0, 0, 128, 63, 0, 0, 0, 64]),
            ("a".to_string(), Dtype::U8, vec![3, 1], vec![1, 2, 3]),
        ];
        (fields, tensors)
    }

    #[test]
    fn a_file_is_read_back() {
        let (fields, tensors) = content();
        let bytes = FORMAT.write(&fields, &tensors);
        let (read, file) = FORMAT.read::<Fields>(&bytes).unwrap();
        assert_eq!(read, fields);
        for (name, dtype, shape, data) in &tensors {
            let tensor = file.tensor(name).unwrap();
            assert_eq!((tensor.dtype(), tensor.shape(), tensor.data()), (*dtype, &shape[..], &data[..]));
        }
        // A checksum must not change from one version to the next.
        let header = String::from_utf8_lossy(&bytes);
        assert!(header.contains(r#"\"checksum\":\"021cf769\""#), "{header}");
        let reversed: Vec<NamedTensor> = tensors.into_iter().rev().collect();
        assert_eq!(FORMAT.write(&fields, &reversed), bytes, "the order of the tensors does not matter");
    }

    #[test]
    fn every_flipped_bit_is_found_or_changes_nothing() {
        let (fields, tensors) = content();
        let bytes = FORMAT.write(&fields, &tensors);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok((read, file)) = FORMAT.read::<Fields>(&flipped) else { continue };
            assert_eq!(read, fields, "bit {bit}");
            for (name, dtype, shape, data) in &tensors {
                let tensor = file.tensor(name).unwrap();
                let found = (tensor.dtype(), tensor.shape(), tensor.data());
                assert_eq!(found, (*dtype, &shape[..], &data[..]), "bit {bit}");
            }
        }
    }

    /// A file whose header has this text.
    fn with_header(text: &str) -> Vec<u8> {
        let tensors: Vec<(String, TensorView<'_>)> = Vec::new();
        safetensors::serialize(tensors, Some([(FORMAT.key.to_string(), text.to_string())].into())).unwrap()
    }

    #[test]
    fn files_without_a_checksum_are_read_only_if_their_version_had_none() {
        for header in [
            r#"{"name":"x","share":0.5}"#,
            r#"{"version":1,"name":"x","share":0.5}"#,
            r#"{"version":1,"name":"x","share":0.5,"checksum":"0123456789abcdef"}"#,
        ] {
            let bytes = with_header(header);
            assert_eq!(FORMAT.read::<Fields>(&bytes).unwrap().0.name, "x", "{header}");
        }
        let bytes = with_header(r#"{"version":2,"name":"x","share":0.5}"#);
        assert!(matches!(FORMAT.read::<Fields>(&bytes), Err(TensorFileError::Corrupt)));
        let bytes = with_header(r#"{"version":3,"new":{}}"#);
        assert!(matches!(FORMAT.read::<Fields>(&bytes), Err(TensorFileError::Newer(_))));
    }

    #[test]
    fn other_files_are_refused() {
        let (fields, tensors) = content();
        let bytes = TensorFormat { key: "other", ..FORMAT }.write(&fields, &tensors);
        let error = FORMAT.read::<Fields>(&bytes).unwrap_err();
        assert!(matches!(error, TensorFileError::Foreign { key: "gatework-test" }), "{error}");
        for cut in [0, 7, 20, bytes.len() - 1] {
            let error = FORMAT.read::<Fields>(&bytes[..cut]).unwrap_err();
            assert!(matches!(error, TensorFileError::Incomplete(_)), "cut at {cut}: {error}");
        }
    }
}
