//! The nodes and constants of a model under construction.

use rustc_hash::{FxHashMap, FxHashSet};

use super::batch::{Dim, broadcast};
use super::names::Names;
use super::schema::{Attribute, Node, Tensor};
use super::{BOOL, OnnxError, element_type};
use crate::dtype::DType;

/// A value of the model. Broadcasting is lazy: the sizes of a value broadcast to those of its node of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// The name of the value.
    pub name: String,
    /// Its sizes.
    pub dims: Vec<Dim>,
}

/// Collects nodes and constants.
#[derive(Debug, Default)]
pub struct Writer {
    pub(super) nodes: Vec<Node>,
    pub(super) initializers: Vec<Tensor>,
    pub(super) names: Names,
    /// Names of constants by type, sizes and elements.
    constants: FxHashMap<(i32, Vec<i64>, Vec<u8>), String>,
    /// Boolean values of which a number was made, by the name of the number.
    conditions: FxHashMap<String, String>,
    /// The input and axis that the batch size is read from.
    pub(super) batch_axis: Option<(String, usize)>,
    batch_size: Option<String>,
}

impl Writer {
    /// Adds a node with one result, and returns its name.
    pub fn node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        let output = self.names.unique(&operator.to_lowercase());
        self.add(operator, inputs, attributes, &output);
        output
    }

    /// Adds a node whose result has a given name.
    pub(super) fn add(&mut self, operator: &str, inputs: &[&str], attribute: Vec<Attribute>, output: &str) {
        self.nodes.push(Node {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output.to_string()],
            name: format!("node_{output}"),
            op_type: operator.to_string(),
            attribute,
        });
    }

    /// Adds a constant tensor of little-endian elements, or returns the name of an equal one.
    pub fn constant(&mut self, dtype: DType, sizes: &[usize], elements: Vec<u8>) -> String {
        let dims: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let data_type = element_type(dtype);
        let key = (data_type, dims, elements);
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let name = self.names.unique("constant");
        let (_, dims, raw_data) = key.clone();
        self.initializers.push(Tensor { dims, data_type, name: name.clone(), raw_data });
        self.constants.insert(key, name.clone());
        name
    }

    /// Adds a vector of 64-bit integers: sizes, axes or indices.
    pub fn integers(&mut self, values: impl IntoIterator<Item = usize>) -> String {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, &[values.len()], bytes)
    }

    /// Adds a scalar.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> String {
        let bytes = match dtype {
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::I32 => (value as i32).to_le_bytes().to_vec(),
            DType::I64 => (value as i64).to_le_bytes().to_vec(),
        };
        self.constant(dtype, &[], bytes)
    }

    /// Converts to another type.
    pub fn cast(&mut self, value: &str, to: i32) -> String {
        self.node("Cast", &[value], vec![Attribute::int("to", i64::from(to))])
    }

    /// An element-wise operator on operands that broadcast.
    pub fn elementwise(&mut self, operator: &str, args: &[Value]) -> Value {
        let names: Vec<&str> = args.iter().map(|arg| arg.name.as_str()).collect();
        let dims = args.iter().fold(Vec::new(), |dims, arg| broadcast(&dims, &arg.dims));
        Value { name: self.node(operator, &names, Vec::new()), dims }
    }

    /// A comparison as a number: 1 if it is true, else 0.
    pub fn comparison(&mut self, operator: &str, args: &[Value], dtype: DType) -> Value {
        let condition = self.elementwise(operator, args);
        let name = self.cast(&condition.name, element_type(dtype));
        self.conditions.insert(name.clone(), condition.name);
        Value { name, ..condition }
    }

    /// Whether a value is not 0, as a Boolean value.
    pub fn condition(&mut self, value: &Value) -> Value {
        let known = self.conditions.get(&value.name).cloned();
        let name = known.unwrap_or_else(|| self.cast(&value.name, BOOL));
        Value { name, ..value.clone() }
    }

    /// The name of a value with all of its sizes, broadcast if need be.
    pub fn whole(&mut self, value: &Value, dims: &[Dim]) -> Result<String, OnnxError> {
        if value.dims == dims {
            return Ok(value.name.clone());
        }
        let shape = self.shape(dims)?;
        Ok(self.node("Expand", &[&value.name, &shape], Vec::new()))
    }

    /// The same elements with other sizes.
    pub fn reshape(&mut self, value: &str, dims: &[Dim]) -> Result<String, OnnxError> {
        let is_fixed = |dim: &Dim| matches!(dim, Dim::Fixed(_));
        if dims.contains(&Dim::Fixed(0)) {
            let shape = self.shape(dims)?;
            return Ok(self.node("Reshape", &[value, &shape], vec![Attribute::int("allowzero", 1)]));
        }
        // The one size that is not fixed follows from the others.
        let shape = if dims.iter().filter(|dim| !is_fixed(dim)).count() == 1 {
            let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size as i64 } else { -1 };
            let bytes = dims.iter().flat_map(|dim| size(dim).to_le_bytes()).collect();
            self.constant(DType::I64, &[dims.len()], bytes)
        } else {
            self.shape(dims)?
        };
        Ok(self.node("Reshape", &[value, &shape], Vec::new()))
    }

    /// A vector of sizes.
    pub fn shape(&mut self, dims: &[Dim]) -> Result<String, OnnxError> {
        let mut parts = Vec::new();
        for chunk in dims.chunk_by(|a, b| matches!((a, b), (Dim::Fixed(_), Dim::Fixed(_)))) {
            if let [Dim::Batch(factor)] = chunk {
                let batch = self.batch_size()?;
                let factor = self.integers([*factor]);
                parts.push(self.node("Mul", &[&batch, &factor], Vec::new()));
            } else {
                let sizes =
                    chunk.iter().filter_map(|dim| if let Dim::Fixed(n) = dim { Some(*n) } else { None });
                parts.push(self.integers(sizes));
            }
        }
        Ok(match &parts[..] {
            [] => self.integers([]),
            [part] => part.clone(),
            parts => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.node("Concat", &parts, vec![Attribute::int("axis", 0)])
            }
        })
    }

    /// The batch size, a vector of one integer.
    fn batch_size(&mut self) -> Result<String, OnnxError> {
        if let Some(name) = &self.batch_size {
            return Ok(name.clone());
        }
        let Some((input, axis)) = self.batch_axis.clone() else { return Err(OnnxError::NoBatchAxis) };
        let axis = axis as i64;
        let range = vec![Attribute::int("start", axis), Attribute::int("end", axis + 1)];
        let name = self.node("Shape", &[&input], range);
        self.batch_size = Some(name.clone());
        Ok(name)
    }

    /// Removes the nodes and constants that no output depends on.
    pub fn remove_unused(&mut self, outputs: &[String]) {
        let mut used: FxHashSet<String> = outputs.iter().cloned().collect();
        let mut kept: Vec<Node> = Vec::new();
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if node.output.iter().any(|output| used.contains(output)) {
                used.extend(node.input.iter().cloned());
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        self.initializers.retain(|tensor| used.contains(&tensor.name));
    }
}
