//! ONNX Runtime as the judge of exported models.
//!
//! A test collects [`Case`]s in a [`Judge`], which are all run by one Python process: the file must be valid for
//! `onnx.checker`, and the outputs of ONNX Runtime must be those of the case.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a folder of cases; see the script.
const SCRIPT: &str = include_str!("../onnx_judge.py");

/// The elements of a tensor in row-major order.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// 32-bit floating point.
    F32(Vec<f32>),
    /// 64-bit floating point.
    F64(Vec<f64>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// 64-bit integers.
    I64(Vec<i64>),
}

/// A tensor with a name.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name of the input or output.
    pub name: String,
    /// The sizes of the axes.
    pub sizes: Vec<usize>,
    /// The elements.
    pub numbers: Numbers,
}

impl Tensor {
    /// Creates a tensor.
    pub fn new(name: &str, sizes: &[usize], numbers: Numbers) -> Tensor {
        Tensor { name: name.to_string(), sizes: sizes.to_vec(), numbers }
    }

    /// Returns the bytes of a NumPy file.
    fn to_npy(&self) -> Vec<u8> {
        let (kind, data): (&str, Vec<u8>) = match &self.numbers {
            Numbers::F32(numbers) => ("<f4", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Numbers::F64(numbers) => ("<f8", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Numbers::I32(numbers) => ("<i4", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Numbers::I64(numbers) => ("<i8", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
        };
        let mut sizes = String::new();
        for size in &self.sizes {
            let _ = write!(sizes, "{size},");
        }
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({sizes}), }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }
}

/// A model, inputs, and the outputs that they should give.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in messages.
    pub name: String,
    /// The bytes of the ONNX file.
    pub model: Vec<u8>,
    /// All inputs of the model.
    pub inputs: Vec<Tensor>,
    /// Outputs of the model.
    pub outputs: Vec<Tensor>,
    /// The unit of errors for each row of the outputs; if empty, the largest element of an output, or 1.
    pub units: Vec<f64>,
    /// Largest error. NaN and infinities must be equal.
    pub tolerance: f64,
}

/// A Python with `onnxruntime` and `onnx`.
#[derive(Debug)]
pub struct Judge(PathBuf);

impl Judge {
    /// Finds Python in the environment of `.ci/setup` or in the path, or prints that it is missing.
    ///
    /// # Panics
    /// If it is missing and `GATEWORK_JUDGES` is `required`.
    pub fn find() -> Option<Judge> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let own = cache.map(|cache| cache.join("gatework/judges/bin/python"));
        let has_runtime = |python: &PathBuf| {
            let import = ["-c", "import onnxruntime, onnx, numpy"];
            Command::new(python).args(import).output().is_ok_and(|output| output.status.success())
        };
        let found = own.into_iter().chain([PathBuf::from("python3")]).find(has_runtime);
        if found.is_none() {
            // The test harness captures eprintln! and shows it for failures only.
            let _ = writeln!(std::io::stderr(), "skipped: Python with onnxruntime and onnx is not installed");
            let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
            assert!(!required, "Python with onnxruntime and onnx is required but not installed");
        }
        found.map(Judge)
    }

    /// Runs all cases, and returns what the script prints: a line with the largest error for each.
    ///
    /// # Panics
    /// If a model is not valid, or an output is wrong.
    pub fn check(&self, cases: &[Case]) -> String {
        let folder = Folder::new();
        for (number, case) in cases.iter().enumerate() {
            let place = folder.0.join(format!("{number:04}"));
            std::fs::create_dir_all(&place).expect("the temporary folder is writable");
            let write = |name: &str, bytes: &[u8]| {
                std::fs::write(place.join(name), bytes).expect("the temporary folder is writable");
            };
            write("model.onnx", &case.model);
            write("name", case.name.as_bytes());
            write("tolerance", case.tolerance.to_string().as_bytes());
            case.inputs.iter().for_each(|x| write(&format!("in.{}.npy", x.name), &x.to_npy()));
            if !case.units.is_empty() {
                let units = Tensor::new("units", &[case.units.len()], Numbers::F64(case.units.clone()));
                write("units.npy", &units.to_npy());
            }
            case.outputs.iter().for_each(|x| write(&format!("out.{}.npy", x.name), &x.to_npy()));
        }
        let script = folder.0.join("judge.py");
        std::fs::write(&script, SCRIPT).expect("the temporary folder is writable");
        let output = Command::new(&self.0).arg(&script).arg(&folder.0).output().expect("Python starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (status, errors) = (output.status, String::from_utf8_lossy(&output.stderr));
        assert!(status.success(), "{said}{errors}ended with {status}");
        said
    }
}

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("gatework-onnx-{process}-{number}"));
        std::fs::create_dir_all(&path).expect("temporary folders are writable");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
    }
}
