//! The ONNX form of every operation of a graph.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::batch::{Dim, Pair, broadcast};
use super::schema::Attribute;
use super::writer::{Value, Writer};
use super::{OnnxError, element_type};
use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op, Window};
use crate::interpret::reachable;
use crate::ops::OnnxForm;

/// The values of the nodes of a graph.
pub type Values = FxHashMap<Id, Value>;

/// Adds the result of an operation on operands, in other operations.
type Definition<'a> = dyn Fn(&mut Graph, &[Id]) -> Result<Id, GraphError> + 'a;

/// A node that is written, and the values of the nodes before it.
struct Place<'a> {
    pair: Pair<'a>,
    id: Id,
    node: &'a Node,
    values: &'a Values,
}

impl Place<'_> {
    /// The value of an operand, which may have to be broadcast.
    fn arg(&self, index: usize) -> Result<&Value, OnnxError> {
        let id = self.node.args[index];
        // Only the states of a recurrent cell are values of the model.
        self.values.get(&id).ok_or_else(|| {
            refusal(self.pair.graph().node(id), "only its states are available, not what its gradient reads")
        })
    }

    fn args(&self) -> Result<Vec<Value>, OnnxError> {
        (0..self.node.args.len()).map(|index| self.arg(index).cloned()).collect()
    }

    /// The sizes of an operand.
    fn arg_dims(&self, index: usize) -> Result<Vec<Dim>, OnnxError> {
        self.pair.dims(self.node.args[index])
    }
}

fn refusal(node: &Node, problem: &'static str) -> OnnxError {
    OnnxError::Operation { operation: node.op.to_string(), dtype: node.dtype, problem }
}

impl Writer {
    /// Writes the nodes of a graph that its outputs depend on. `values` holds those of its inputs.
    pub fn graph(&mut self, pair: Pair<'_>, values: &mut Values) -> Result<(), OnnxError> {
        let outputs = pair.outputs()?;
        let needed = reachable(pair.graph(), outputs.iter().map(|(_, id)| *id));
        for id in pair.graph().ids() {
            if !needed[id.0 as usize] || values.contains_key(&id) {
                continue;
            }
            let place = Place { pair, id, node: pair.node(id)?, values };
            if let Some(value) = self.operation(&place)? {
                values.insert(id, value);
            }
        }
        Ok(())
    }

    /// Writes one node. There is no value for a recurrent cell: its states are written where they are read.
    fn operation(&mut self, place: &Place<'_>) -> Result<Option<Value>, OnnxError> {
        let &Place { pair, id, node, .. } = place;
        let dims = pair.dims(id)?;
        let name = match &node.op {
            Op::Input(_) => unreachable!("the values of inputs are given"),
            Op::Constant(scalar) => self.constant(node.dtype, &[], elements(node.dtype, &[scalar.bits()])),
            Op::Data(bits) => self.constant(node.dtype, &node.shape, elements(node.dtype, bits)),
            Op::Unary(op) => return self.elementwise_form(place, &op.row().onnx).map(Some),
            Op::Binary(op) => return self.elementwise_form(place, &op.row().onnx).map(Some),
            Op::Select => {
                let mut args = place.args()?;
                args[0] = self.condition(&args[0]);
                return Ok(Some(self.elementwise("Where", &args)));
            }
            Op::Cast => {
                let x = place.arg(0)?;
                let name = self.cast(&x.name, element_type(node.dtype));
                return Ok(Some(Value { name, dims: x.dims.clone() }));
            }
            // Broadcasting is left to the operations that read the value.
            Op::Expand => return place.arg(0).cloned().map(Some),
            Op::Reshape => return self.reshape_node(place, &dims).map(Some),
            Op::Reduce(op, axes) => {
                let x = self.whole_arg(place, 0)?;
                let operator = op.row().onnx;
                if operator == "ReduceSum" {
                    let axes = self.integers(axes.iter().copied());
                    self.node(operator, &[&x, &axes], vec![])
                } else {
                    let axes = Attribute::ints("axes", axes.iter().map(|&axis| axis as i64));
                    self.node(operator, &[&x], vec![axes])
                }
            }
            Op::ArgReduce { largest, axis } => {
                let x = self.whole_arg(place, 0)?;
                let operator = if *largest { "ArgMax" } else { "ArgMin" };
                let index = self.node(operator, &[&x], vec![Attribute::int("axis", *axis as i64)]);
                self.cast(&index, element_type(DType::I32))
            }
            Op::Permute(order) => {
                let x = self.whole_arg(place, 0)?;
                self.transpose(&x, order)
            }
            &Op::Slice { axis, begin, step } => {
                let operand = pair.graph().node(node.args[0]);
                if let Op::Recurrent(_) = operand.op {
                    return self.states(place, axis, begin).map(Some);
                }
                let x = self.whole_arg(place, 0)?;
                let Dim::Fixed(count) = dims[axis] else { return Err(batch_dependent(node)) };
                self.slice(&x, axis, begin..begin + (count.max(1) - 1) * step + usize::from(count > 0), step)
            }
            &Op::Pad { axis, before, after } => {
                let x = self.whole_arg(place, 0)?;
                let mut pads = vec![0; 2 * dims.len()];
                (pads[axis], pads[dims.len() + axis]) = (before, after);
                let pads = self.integers(pads);
                let zero = self.scalar(node.dtype, 0.0);
                self.node("Pad", &[&x, &pads, &zero], vec![])
            }
            Op::Concat(axis) => {
                let parts: Result<Vec<String>, OnnxError> =
                    (0..node.args.len()).map(|index| self.whole_arg(place, index)).collect();
                let parts = parts?;
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.node("Concat", &parts, vec![Attribute::int("axis", *axis as i64)])
            }
            &Op::Gather(axis) => return self.gather(place, axis).map(Some),
            &Op::ScatterAdd { axis, size } => {
                let indices = self.whole_arg(place, 1)?;
                let last = self.scalar(DType::I32, size as f64);
                let (_, indices) = self.valid_indices(&indices, size, &last);
                self.scatter_add(place, &place.arg_dims(0)?, axis, &indices, size)?
            }
            Op::Unfold(window) => {
                let x = self.whole_arg(place, 0)?;
                let [.., Dim::Fixed(count), Dim::Fixed(size)] = dims[..] else {
                    return Err(batch_dependent(node));
                };
                let indices = self.window_indices(*window, &[count, size]);
                self.node("Gather", &[&x, &indices], vec![Attribute::int("axis", -1)])
            }
            Op::Fold(window, length) => {
                let mut flat = place.arg_dims(0)?;
                let (Some(Dim::Fixed(size)), Some(Dim::Fixed(count))) = (flat.pop(), flat.pop()) else {
                    return Err(batch_dependent(node));
                };
                flat.push(Dim::Fixed(count * size));
                let indices = self.window_indices(*window, &[count * size]);
                self.scatter_add(place, &flat, flat.len() - 1, &indices, *length)?
            }
            Op::CumSum { reverse } => {
                let x = self.whole_arg(place, 0)?;
                let axis = self.scalar(DType::I64, dims.len() as f64 - 1.0);
                self.node("CumSum", &[&x, &axis], vec![Attribute::int("reverse", i64::from(*reverse))])
            }
            Op::MatMul => return self.matmul(place).map(Some),
            Op::Recurrent(_) => return Ok(None),
            _ => return self.composite(place, dims).map(Some),
        };
        Ok(Some(Value { name, dims }))
    }

    /// An operand with all of its sizes.
    fn whole_arg(&mut self, place: &Place<'_>, index: usize) -> Result<String, OnnxError> {
        let value = place.arg(index)?.clone();
        self.whole(&value, &place.arg_dims(index)?)
    }

    fn elementwise_form(&mut self, place: &Place<'_>, form: &OnnxForm) -> Result<Value, OnnxError> {
        let node = place.node;
        match form {
            OnnxForm::Operator("Floor") if !node.dtype.is_float() => place.arg(0).cloned(),
            OnnxForm::Operator("Div") if !node.dtype.is_float() => {
                Err(refusal(node, "a division of integers by zero is 0 here, but undefined there"))
            }
            OnnxForm::Operator(operator) => Ok(self.elementwise(operator, &place.args()?)),
            OnnxForm::Comparison(operator) => Ok(self.comparison(operator, &place.args()?, node.dtype)),
            OnnxForm::Missing(problem) => Err(refusal(node, problem)),
            OnnxForm::Definition(define) => self.definition(place, &|g, args| define(g, args[0])),
        }
    }

    /// An operation by its definition in other operations.
    fn definition(&mut self, place: &Place<'_>, define: &Definition<'_>) -> Result<Value, OnnxError> {
        let build = |graph: &Graph| {
            let mut definition = Graph::new();
            let mut operands = Vec::new();
            for (index, &arg) in place.node.args.iter().enumerate() {
                operands.push(definition.input(&index.to_string(), graph.dtype(arg), &graph.shape(arg))?);
            }
            let result = define(&mut definition, &operands)?;
            definition.output("result", result)?;
            Ok::<_, GraphError>((definition, operands, result))
        };
        let [a, b] = place.pair.0;
        let ((a, operands, result), (b, ..)) = (build(a)?, build(b)?);
        let mut values = operands.into_iter().zip(place.args()?).collect();
        self.graph(Pair([&a, &b]), &mut values)?;
        values.remove(&result).ok_or_else(|| refusal(place.node, "its definition has no value"))
    }

    /// A composite operation: its own operator, or its definition.
    fn composite(&mut self, place: &Place<'_>, dims: Vec<Dim>) -> Result<Value, OnnxError> {
        let Some(composite) = place.node.op.composite() else {
            unreachable!("every other operation is composite")
        };
        let args: Result<Vec<String>, OnnxError> =
            (0..place.node.args.len()).map(|index| self.whole_arg(place, index)).collect();
        match composite.onnx(self, place.node, &args?) {
            Some(name) => Ok(Value { name, dims }),
            None => self.definition(place, &|g, args| composite.define(g, args)),
        }
    }

    /// The states of a recurrent cell, which are the first part of its tape: `[1, time, batch, hidden]`.
    fn states(&mut self, place: &Place<'_>, axis: usize, begin: usize) -> Result<Value, OnnxError> {
        let id = place.node.args[0];
        if (axis, begin, place.node.shape[0]) != (0, 0, 1) {
            place.arg(0)?;
        }
        let tape = Place { id, node: place.pair.node(id)?, ..*place };
        self.composite(&tape, place.pair.dims(place.id)?)
    }

    fn reshape_node(&mut self, place: &Place<'_>, dims: &[Dim]) -> Result<Value, OnnxError> {
        let (x, from) = (place.arg(0)?.clone(), place.arg_dims(0)?);
        // Leading axes of size 1 are implied by broadcasting.
        let leading = dims.len().saturating_sub(from.len());
        let is_padded = dims[leading..] == from && dims[..leading].iter().all(|dim| *dim == Dim::Fixed(1));
        if is_padded || x.dims.is_empty() {
            return Ok(x);
        }
        let x = self.whole(&x, &from)?;
        Ok(Value { name: self.reshape(&x, dims)?, dims: dims.to_vec() })
    }

    pub fn transpose(&mut self, x: &str, order: &[usize]) -> String {
        let order = order.iter().map(|&axis| axis as i64);
        self.node("Transpose", &[x], vec![Attribute::ints("perm", order)])
    }

    fn slice(&mut self, x: &str, axis: usize, range: Range<usize>, step: usize) -> String {
        let [begin, end, axis, step] = [range.start, range.end, axis, step].map(|n| self.integers([n]));
        self.node("Slice", &[x, &begin, &end, &axis, &step], vec![])
    }

    /// The matrix product. Axes before the last two may have to be broadcast.
    fn matmul(&mut self, place: &Place<'_>) -> Result<Value, OnnxError> {
        let mut matrices = Vec::new();
        for index in 0..2 {
            let (value, dims) = (place.arg(index)?.clone(), place.arg_dims(index)?);
            let is_matrix =
                value.dims.len() >= 2 && value.dims[value.dims.len() - 2..] == dims[dims.len() - 2..];
            matrices.push(if is_matrix { value } else { Value { name: self.whole(&value, &dims)?, dims } });
        }
        let ([a @ .., rows, _], [b @ .., _, columns]) = (&matrices[0].dims[..], &matrices[1].dims[..]) else {
            unreachable!("a matrix has two axes")
        };
        let dims = [broadcast(a, b), vec![*rows, *columns]].concat();
        let name = self.node("MatMul", &[&matrices[0].name, &matrices[1].name], vec![]);
        Ok(Value { name, dims })
    }

    /// Slices at indices, zeros where an index is outside. ONNX has no such indices: they are replaced, and the result as well.
    fn gather(&mut self, place: &Place<'_>, axis: usize) -> Result<Value, OnnxError> {
        let (node, graph) = (place.node, place.pair.graph());
        let dims = place.pair.dims(place.id)?;
        let Dim::Fixed(size) = place.arg_dims(0)?[axis] else { return Err(batch_dependent(node)) };
        if size == 0 {
            return Ok(Value { name: self.scalar(node.dtype, 0.0), dims: Vec::new() });
        }
        let (x, indices) = (self.whole_arg(place, 0)?, self.whole_arg(place, 1)?);
        let along = vec![Attribute::int("axis", axis as i64)];
        let known = match &graph.node(node.args[1]).op {
            Op::Data(indices) => indices.iter().all(|&index| (index as usize) < size),
            _ => false,
        };
        if known {
            return Ok(Value { name: self.node("Gather", &[&x, &indices], along), dims });
        }
        let first = self.scalar(DType::I32, 0.0);
        let (valid, indices) = self.valid_indices(&indices, size, &first);
        let slices = self.node("Gather", &[&x, &indices], along);
        let column: Vec<Dim> =
            (axis..dims.len()).map(|i| if i == axis { dims[i] } else { Dim::Fixed(1) }).collect();
        let valid = self.reshape(&valid, &column)?;
        let zero = self.scalar(node.dtype, 0.0);
        Ok(Value { name: self.node("Where", &[&valid, &slices, &zero], vec![]), dims })
    }

    /// Whether indices (`i32`) are below a size, and the indices with the others replaced.
    fn valid_indices(&mut self, indices: &str, size: usize, other: &str) -> (String, String) {
        let (zero, size) = (self.scalar(DType::I32, 0.0), self.scalar(DType::I32, size as f64));
        let not_below = self.node("GreaterOrEqual", &[indices, &zero], vec![]);
        let below_size = self.node("Less", &[indices, &size], vec![]);
        let valid = self.node("And", &[&not_below, &below_size], vec![]);
        let replaced = self.node("Where", &[&valid, indices, other], vec![]);
        (valid, replaced)
    }

    /// The first operand, with sizes `from`, added at indices of an axis to zeros. Slices at index `size` are dropped.
    fn scatter_add(
        &mut self,
        place: &Place<'_>,
        from: &[Dim],
        axis: usize,
        indices: &str,
        size: usize,
    ) -> Result<String, OnnxError> {
        let x = self.whole_arg(place, 0)?;
        let x = if place.arg_dims(0)? == from { x } else { self.reshape(&x, from)? };
        let mut order: Vec<usize> = (0..from.len()).collect();
        order.swap(0, axis);
        let mut shape = from.to_vec();
        shape[axis] = Dim::Fixed(size + 1);
        shape.swap(0, axis);
        let x = self.transpose(&x, &order);
        let zero = Value { name: self.scalar(place.node.dtype, 0.0), dims: Vec::new() };
        let zeros = self.whole(&zero, &shape)?;
        let indices = self.cast(indices, element_type(DType::I64));
        let rows = self.reshape(&indices, &[from[axis], Dim::Fixed(1)])?;
        let sums = self.node("ScatterND", &[&zeros, &rows, &x], vec![Attribute::text("reduction", "add")]);
        let sums = self.slice(&sums, 0, 0..size, 1);
        Ok(self.transpose(&sums, &order))
    }

    /// The indices of the elements of all windows.
    fn window_indices(&mut self, window: Window, sizes: &[usize]) -> String {
        let Window { size, stride, dilation } = window;
        let count = sizes.iter().product::<usize>() / size.max(1);
        let index = |window: usize| (0..size).map(move |i| window * stride + i * dilation);
        let bytes = (0..count).flat_map(index).flat_map(|index| (index as i64).to_le_bytes()).collect();
        self.constant(DType::I64, sizes, bytes)
    }
}

fn batch_dependent(node: &Node) -> OnnxError {
    OnnxError::Batch { operation: node.op.to_string() }
}

/// The little-endian elements of a constant, given the bits of an `f64` or `i64` for each.
fn elements(dtype: DType, bits: &[u64]) -> Vec<u8> {
    match dtype {
        DType::F32 => bits.iter().flat_map(|&bits| (f64::from_bits(bits) as f32).to_le_bytes()).collect(),
        DType::I32 => bits.iter().flat_map(|&bits| (bits as i32).to_le_bytes()).collect(),
        DType::F64 | DType::I64 => bits.iter().flat_map(|&bits| bits.to_le_bytes()).collect(),
    }
}
