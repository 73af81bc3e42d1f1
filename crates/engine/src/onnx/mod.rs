//! Graphs as ONNX models, which other runtimes load.
//!
//! [`write()`] writes a graph with its fixed sizes; [`write_batched`] writes one whose batch size is chosen when the model runs.
//! Inputs whose values are given become constants of the model (initialisers), the others its inputs. Models use the standard
//! operators of [`OPSET`] and nothing else.
//!
//! ```
//! use gatework_engine::{DType, Graph, GraphError, onnx};
//!
//! let build = |batch: usize| {
//!     let mut g = Graph::new();
//!     let x = g.input("x", DType::F32, &[batch, 3])?;
//!     let w = g.input("w", DType::F32, &[3, 2])?;
//!     let product = g.matmul(x, w)?;
//!     let y = g.relu(product)?;
//!     g.output("y", y)?;
//!     Ok::<Graph, onnx::OnnxError>(g)
//! };
//! let weights = [0.5f32; 6];
//! let model = onnx::Model::named("linear").with_parameter("w", &weights[..]);
//! let bytes = onnx::write_batched(build, &model)?; // x is [batch, 3], y is [batch, 2]
//! # assert!(!bytes.is_empty());
//! # Ok::<(), onnx::OnnxError>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `schema` | the messages of the format |
//! | `batch` | which sizes depend on the batch |
//! | `operations` | the ONNX form of every elementary operation |
//! | `writer` | nodes and constants under construction |
//! | `names` | unique names |
//!
//! An operation of the engine has one place that states its ONNX form: an element-wise one its row in the table of `ops`, a
//! composite one its file there, an elementary one an arm in `operations`. Operations without an operator of their own are
//! written by their definition in other operations.
//!
//! Results are those of the engine up to rounding, with these exceptions, where ONNX leaves the result open: conversions of numbers
//! that are out of range of an integer type, and the position of the largest element if there is NaN.

mod batch;
mod names;
mod operations;
pub(crate) mod schema;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use prost::Message as _;

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id};
use batch::{Dim, Pair, SIZES};
use schema::{Dimension, Entry, OperatorSet, Tensor, TensorShape, TensorType, Type, ValueInfo};
use writer::{Value, Writer};

/// The version of the standard operators that models use.
pub const OPSET: i64 = 17;

/// The version of the file format that belongs to [`OPSET`].
const IR_VERSION: i64 = 8;

/// Protocol buffers cannot be larger.
const MAX_BYTES: usize = i32::MAX as usize;

/// The code of Booleans in ONNX.
const BOOL: i32 = 9;

/// Returns the code of an element type in ONNX.
fn element_type(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::F64 => 11,
    }
}

/// A graph that cannot be written as an ONNX model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// An operation has no ONNX form.
    #[error("{operation} of {dtype} cannot be written as ONNX: {problem}")]
    Operation {
        /// The operation.
        operation: String,
        /// The type of its result.
        dtype: DType,
        /// Why there is no form.
        problem: &'static str,
    },
    /// A size depends on the batch in a way that ONNX cannot express.
    #[error("{operation} depends on the batch size; write the graph with a fixed batch size")]
    Batch {
        /// The operation.
        operation: String,
    },
    /// No input has the batch size as an axis.
    #[error("no input has an axis of the batch size; write the graph with a fixed batch size")]
    NoBatchAxis,
    /// A value is given for something that is not an input of the graph.
    #[error("{0:?} is not an input of the graph; parameters are inputs whose values are given")]
    UnknownParameter(String),
    /// The values of a parameter do not fit.
    #[error("parameter {name:?} is {expected}, but {found} are given")]
    Parameter {
        /// The name of the input.
        name: String,
        /// Its type and shape.
        expected: String,
        /// Type and number of the values.
        found: String,
    },
    /// The model is too large for the format.
    #[error("the model has {0} bytes, but an ONNX file holds at most 2 GB")]
    TooLarge(usize),
    /// The definition of an operation cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// The values of a parameter, in row-major order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Values<'a> {
    /// 32-bit floating point.
    F32(&'a [f32]),
    /// 64-bit floating point.
    F64(&'a [f64]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// 64-bit integers.
    I64(&'a [i64]),
}

macro_rules! values {
    ($($type:ty, $variant:ident;)*) => {
        $(impl<'a> From<&'a [$type]> for Values<'a> {
            fn from(values: &'a [$type]) -> Values<'a> {
                Values::$variant(values)
            }
        })*

        impl Values<'_> {
            fn dtype(&self) -> DType {
                match self {
                    $(Values::$variant(_) => DType::$variant,)*
                }
            }

            fn len(&self) -> usize {
                match self {
                    $(Values::$variant(values) => values.len(),)*
                }
            }

            fn to_bytes(self) -> Vec<u8> {
                match self {
                    $(Values::$variant(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),)*
                }
            }
        }
    };
}

values! {
    f32, F32;
    f64, F64;
    i32, I32;
    i64, I64;
}

/// What a model has besides its graph: a name, the values of parameters, and texts for its readers.
#[derive(Clone, Debug, Default)]
pub struct Model<'a> {
    name: String,
    description: String,
    parameters: Vec<(&'a str, Values<'a>)>,
    metadata: Vec<(String, String)>,
    documented: Vec<(String, String)>,
}

impl<'a> Model<'a> {
    /// A model without parameters.
    pub fn named(name: &str) -> Model<'a> {
        Model { name: name.to_string(), ..Model::default() }
    }

    /// Adds a text that describes the model.
    #[must_use]
    pub fn with_description(mut self, text: &str) -> Model<'a> {
        self.description = text.to_string();
        self
    }

    /// Adds the values of an input of the graph, which becomes a constant.
    #[must_use]
    pub fn with_parameter(mut self, name: &'a str, values: impl Into<Values<'a>>) -> Model<'a> {
        self.parameters.push((name, values.into()));
        self
    }

    /// Adds a text that describes an input or output.
    #[must_use]
    pub fn with_documented(mut self, name: &str, text: &str) -> Model<'a> {
        self.documented.push((name.to_string(), text.to_string()));
        self
    }

    /// Adds an entry to the metadata, which programs can read.
    #[must_use]
    pub fn with_metadata(mut self, key: &str, value: &str) -> Model<'a> {
        self.metadata.push((key.to_string(), value.to_string()));
        self
    }
}

/// Returns the bytes of an ONNX model with the sizes of a graph.
pub fn write(graph: &Graph, model: &Model<'_>) -> Result<Vec<u8>, OnnxError> {
    to_bytes(Pair([graph, graph]), model)
}

/// Returns the bytes of an ONNX model for any batch size. `build` returns the graph for a batch size; it is called twice, and
/// the sizes that differ are those of the batch.
///
/// A graph that depends on the batch size otherwise than by multiples, as a mean over the batch does, is an error.
pub fn write_batched<E: From<OnnxError>>(
    mut build: impl FnMut(usize) -> Result<Graph, E>,
    model: &Model<'_>,
) -> Result<Vec<u8>, E> {
    let [a, b] = [build(SIZES[0])?, build(SIZES[1])?];
    Ok(to_bytes(Pair([&a, &b]), model)?)
}

fn to_bytes(pair: Pair<'_>, model: &Model<'_>) -> Result<Vec<u8>, OnnxError> {
    let graph = pair.graph();
    let mut writer = Writer::default();
    let (mut inputs, mut values, mut outputs) = (Vec::new(), operations::Values::default(), Vec::new());
    if let Some((name, _)) =
        model.parameters.iter().find(|(name, _)| graph.inputs().all(|(input, _)| input != *name))
    {
        return Err(OnnxError::UnknownParameter((*name).to_string()));
    }
    // The names of outputs are reserved first, so that those of inputs and outputs are kept if they are identifiers.
    let output_names: Vec<String> =
        graph.outputs().iter().map(|(name, _)| writer.names.unique(name)).collect();
    for (name, id) in graph.inputs() {
        let dims = pair.dims(id)?;
        let unique = writer.names.unique(name);
        let value = Value { name: unique.clone(), dims };
        if let Some((_, given)) = model.parameters.iter().find(|(parameter, _)| *parameter == name) {
            writer.initializers.push(parameter(graph, id, name, &unique, *given)?);
        } else {
            let axis = value.dims.iter().position(|dim| *dim == Dim::Batch(1));
            writer.batch_axis = writer.batch_axis.or(axis.map(|axis| (unique, axis)));
            inputs.push(value_info(&value, graph.dtype(id), model.documentation(name)));
        }
        values.insert(id, value);
    }
    writer.graph(pair, &mut values)?;
    for ((name, id), unique) in graph.outputs().iter().zip(&output_names) {
        let dims = pair.dims(*id)?;
        let whole = writer.whole(&values[id], &dims)?;
        writer.add("Identity", &[&whole], Vec::new(), unique);
        let value = Value { name: unique.clone(), dims };
        outputs.push(value_info(&value, graph.dtype(*id), model.documentation(name)));
    }
    writer.remove_unused(&output_names);
    let name = if model.name.is_empty() { "graph" } else { &model.name };
    let graph = schema::Graph {
        node: writer.nodes,
        name: name.to_string(),
        initializer: writer.initializers,
        input: inputs,
        output: outputs,
    };
    let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
    let model = schema::Model {
        ir_version: IR_VERSION,
        producer_name: "gatework".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        doc_string: model.description.clone(),
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata_props: model.metadata.iter().map(entry).collect(),
    };
    match model.encoded_len() {
        bytes if bytes > MAX_BYTES => Err(OnnxError::TooLarge(bytes)),
        _ => Ok(model.encode_to_vec()),
    }
}

impl Model<'_> {
    fn documentation(&self, name: &str) -> String {
        let documented = self.documented.iter().find(|(documented, _)| documented == name);
        documented.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

/// Returns the constant of a parameter.
fn parameter(
    graph: &Graph,
    id: Id,
    name: &str,
    unique: &str,
    values: Values<'_>,
) -> Result<Tensor, OnnxError> {
    let (dtype, shape) = (graph.dtype(id), graph.shape(id));
    if (values.dtype(), values.len()) != (dtype, shape.elements()) {
        return Err(OnnxError::Parameter {
            name: name.to_string(),
            expected: format!("{dtype}{shape}"),
            found: format!("{} numbers of {}", values.len(), values.dtype()),
        });
    }
    let dims = shape.iter().map(|&size| size as i64).collect();
    let data_type = element_type(dtype);
    Ok(Tensor { dims, data_type, name: unique.to_string(), raw_data: values.to_bytes() })
}

fn value_info(value: &Value, dtype: DType, doc_string: String) -> ValueInfo {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => Dimension { dim_value: Some(*size as i64), dim_param: None },
        Dim::Batch(1) => Dimension { dim_value: None, dim_param: Some("batch".into()) },
        Dim::Batch(factor) => Dimension { dim_value: None, dim_param: Some(format!("batch_times_{factor}")) },
    };
    let shape = TensorShape { dim: value.dims.iter().map(dim).collect() };
    let tensor_type = TensorType { elem_type: element_type(dtype), shape: Some(shape) };
    ValueInfo {
        name: value.name.clone(),
        value_type: Some(Type { tensor_type: Some(tensor_type) }),
        doc_string,
    }
}
