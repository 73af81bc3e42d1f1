//! The oracle: evaluates a graph node by node and element by element, as simply as possible.
//!
//! Every value is computed in `f64` (or `i64`) and rounded to its type. Composite operations are evaluated by their definition
//! in elementary operations. Compiled programs are tested against this interpreter.

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op, Scalar, Window};
use crate::ops::Reduction;
use crate::shape::Shape;

/// A tensor of the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: Shape,
    /// The elements in row-major order.
    pub elements: Elements,
}

/// The elements of a [`Value`].
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Floating-point numbers; those of an `f32` tensor are rounded to `f32`.
    Float(Vec<f64>),
    /// Integers; those of an `i32` tensor are in its range.
    Int(Vec<i64>),
}

/// Values that do not fit the inputs of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// An input is missing.
    #[error("input {0:?} is missing")]
    Missing(String),
    /// An input has a wrong type or shape.
    #[error("input {name:?} is {found}, expected {wanted}")]
    Mismatch {
        /// The name of the input.
        name: String,
        /// Type, shape and number of elements of the value.
        found: String,
        /// Type and shape of the input.
        wanted: String,
    },
}

impl Value {
    /// A tensor of `f32` or `f64`; elements are rounded to the type.
    pub fn float(dtype: DType, shape: Shape, elements: Vec<f64>) -> Value {
        let round = |x: f64| if dtype == DType::F32 { f64::from(x as f32) } else { x };
        Value { dtype, shape, elements: Elements::Float(elements.into_iter().map(round).collect()) }
    }

    /// A tensor of `i32` or `i64`; elements wrap.
    pub fn int(dtype: DType, shape: Shape, elements: Vec<i64>) -> Value {
        let wrap = |x: i64| if dtype == DType::I32 { i64::from(x as i32) } else { x };
        Value { dtype, shape, elements: Elements::Int(elements.into_iter().map(wrap).collect()) }
    }

    /// The elements as `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.elements {
            Elements::Float(elements) => elements.clone(),
            Elements::Int(elements) => elements.iter().map(|&x| x as f64).collect(),
        }
    }

    /// A tensor whose element `i` is element `source(i)` of this one, or zero where that is `None`.
    fn pick(&self, shape: Shape, source: impl Fn(&[usize]) -> Option<usize>) -> Value {
        let sources: Vec<Option<usize>> = indices(&shape).map(|index| source(&index)).collect();
        let elements = match &self.elements {
            Elements::Float(from) => {
                Elements::Float(sources.iter().map(|&at| at.map_or(0.0, |at| from[at])).collect())
            }
            Elements::Int(from) => {
                Elements::Int(sources.iter().map(|&at| at.map_or(0, |at| from[at])).collect())
            }
        };
        Value { dtype: self.dtype, shape, elements }
    }

    /// A tensor to whose element `target(i)` every element `i` of this one is added, unless that is `None`.
    fn accumulate(&self, shape: Shape, target: impl Fn(&[usize]) -> Option<usize>) -> Value {
        let targets: Vec<Option<usize>> = indices(&self.shape).map(|index| target(&index)).collect();
        match &self.elements {
            Elements::Float(from) => {
                let mut sums = vec![0.0; shape.elements()];
                from.iter()
                    .enumerate()
                    .for_each(|(i, x)| targets[i].into_iter().for_each(|at| sums[at] += x));
                Value::float(self.dtype, shape, sums)
            }
            Elements::Int(from) => {
                let mut sums = vec![0i64; shape.elements()];
                let mut add = |at: usize, x: i64| sums[at] = sums[at].wrapping_add(x);
                from.iter().enumerate().for_each(|(i, x)| targets[i].into_iter().for_each(|at| add(at, *x)));
                Value::int(self.dtype, shape, sums)
            }
        }
    }
}

/// All indices of a shape, in row-major order.
fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = *shape;
    (0..shape.elements()).map(move |mut flat| {
        let mut index = vec![0; shape.axes()];
        for axis in (0..shape.axes()).rev() {
            index[axis] = flat % shape[axis];
            flat /= shape[axis];
        }
        index
    })
}

/// The row-major position of an index.
pub(crate) fn place(shape: &Shape, index: &[usize]) -> usize {
    index.iter().zip(&**shape).fold(0, |flat, (&i, &size)| flat * size + i)
}

impl Graph {
    /// Evaluates the outputs.
    pub fn interpret(&self, inputs: &[(&str, Value)]) -> Result<Vec<Value>, InputError> {
        let ids: Vec<Id> = self.outputs().iter().map(|(_, id)| *id).collect();
        self.interpret_nodes(inputs, &ids)
    }

    /// Evaluates the given nodes, in their order.
    pub fn interpret_nodes(&self, inputs: &[(&str, Value)], wanted: &[Id]) -> Result<Vec<Value>, InputError> {
        let needed = reachable(self, wanted.iter().copied());
        let mut values: Vec<Option<Value>> = vec![None; self.nodes().len()];
        for id in self.ids().filter(|id| needed[id.0 as usize]) {
            let node = self.node(id);
            let value = if let Op::Input(name) = &node.op {
                find(inputs, name, node)?
            } else {
                let args = node.args.iter().filter_map(|arg| values[arg.0 as usize].as_ref());
                evaluate(node, &args.collect::<Vec<_>>())
            };
            values[id.0 as usize] = Some(value);
        }
        Ok(wanted.iter().filter_map(|id| values[id.0 as usize].clone()).collect())
    }
}

/// For every node, whether one of the given nodes depends on it.
pub(crate) fn reachable(graph: &Graph, from: impl IntoIterator<Item = Id>) -> Vec<bool> {
    let mut reached = vec![false; graph.nodes().len()];
    let mut stack: Vec<Id> = from.into_iter().collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut reached[id.0 as usize], true) {
            stack.extend(&graph.node(id).args);
        }
    }
    reached
}

fn find(inputs: &[(&str, Value)], name: &str, node: &Node) -> Result<Value, InputError> {
    let (_, value) = inputs
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| InputError::Missing(name.to_string()))?;
    let (count, is_float) = match &value.elements {
        Elements::Float(elements) => (elements.len(), true),
        Elements::Int(elements) => (elements.len(), false),
    };
    let is_whole = count == value.shape.elements() && is_float == value.dtype.is_float();
    if (value.dtype, value.shape) != (node.dtype, node.shape) || !is_whole {
        return Err(InputError::Mismatch {
            name: name.to_string(),
            found: format!("{}{} with {count} elements", value.dtype, value.shape),
            wanted: format!("{}{}", node.dtype, node.shape),
        });
    }
    Ok(value.clone())
}

/// The value of a node that is not an input.
pub(crate) fn evaluate(node: &Node, args: &[&Value]) -> Value {
    let (shape, dtype) = (node.shape, node.dtype);
    let first = || args[0];
    match &node.op {
        Op::Input(_) => unreachable!("inputs are given"),
        Op::Constant(Scalar::Float(bits)) => Value::float(dtype, shape, vec![f64::from_bits(*bits)]),
        Op::Constant(Scalar::Int(value)) => Value::int(dtype, shape, vec![*value]),
        Op::Data(bits) if dtype.is_float() => {
            Value::float(dtype, shape, bits.iter().map(|&bits| f64::from_bits(bits)).collect())
        }
        Op::Data(bits) => Value::int(dtype, shape, bits.iter().map(|&bits| bits as i64).collect()),
        Op::Unary(op) => match &first().elements {
            Elements::Float(x) => {
                Value::float(dtype, shape, x.iter().map(|&x| (op.row().scalar)(x)).collect())
            }
            Elements::Int(x) => {
                let function = op.row().integer.unwrap_or(|x| x);
                Value::int(dtype, shape, x.iter().map(|&x| function(x)).collect())
            }
        },
        Op::Binary(op) => match (&args[0].elements, &args[1].elements) {
            (Elements::Float(a), Elements::Float(b)) => {
                let pairs = a.iter().zip(b);
                Value::float(dtype, shape, pairs.map(|(&a, &b)| (op.row().scalar)(a, b)).collect())
            }
            (Elements::Int(a), Elements::Int(b)) => {
                let pairs = a.iter().zip(b);
                Value::int(dtype, shape, pairs.map(|(&a, &b)| (op.row().integer)(a, b)).collect())
            }
            _ => unreachable!("operands have one type"),
        },
        Op::Select => select(args, shape, dtype),
        Op::Cast => cast(first(), dtype),
        Op::Reduce(op, _) => reduce(*op, first(), shape),
        Op::ArgReduce { largest, axis } => arg_reduce(first(), *axis, *largest, shape),
        Op::Reshape => Value { shape, ..first().clone() },
        Op::Expand => {
            let from = first().shape;
            first().pick(shape, |index| {
                let index: Vec<usize> = index.iter().zip(&*from).map(|(&i, &size)| i.min(size - 1)).collect();
                Some(place(&from, &index))
            })
        }
        Op::Permute(order) => {
            let from = first().shape;
            first().pick(shape, |index| {
                let mut source = vec![0; order.len()];
                order.iter().zip(index).for_each(|(&axis, &i)| source[axis] = i);
                Some(place(&from, &source))
            })
        }
        &Op::Slice { axis, begin, step } => select_slices(first(), shape, axis, |i| Some(begin + i * step)),
        &Op::Pad { axis, before, .. } => {
            let size = first().shape[axis];
            select_slices(first(), shape, axis, |i| i.checked_sub(before).filter(|&i| i < size))
        }
        &Op::Concat(axis) => concat(args, axis, shape),
        &Op::Gather(axis) => {
            let (size, rows) = (first().shape[axis], args[1].to_f64());
            select_slices(first(), shape, axis, |i| {
                Some(rows[i] as usize).filter(|&at| rows[i] >= 0.0 && at < size)
            })
        }
        &Op::ScatterAdd { axis, size } => {
            let rows = args[1].to_f64();
            first().accumulate(shape, |index| {
                let row = rows[index[axis]];
                let mut target = index.to_vec();
                target[axis] = row as usize;
                (row >= 0.0 && target[axis] < size).then(|| place(&shape, &target))
            })
        }
        Op::Unfold(window) => {
            let from = first().shape;
            first().pick(shape, |index| Some(place(&from, &window_source(window, index))))
        }
        Op::Fold(window, _) => {
            first().accumulate(shape, |index| Some(place(&shape, &window_source(window, index))))
        }
        Op::CumSum { reverse } => cumsum(first(), *reverse),
        Op::MatMul => matmul(args[0], args[1], shape, dtype),
        other => {
            let composite = other.composite().expect("every other operation is composite");
            composite.evaluate(node, args)
        }
    }
}

/// Slices of an axis: index `i` of the result is index `source(i)` of the operand, or zeros.
fn select_slices(x: &Value, shape: Shape, axis: usize, source: impl Fn(usize) -> Option<usize>) -> Value {
    x.pick(shape, |index| {
        let mut from = index.to_vec();
        from[axis] = source(index[axis])?;
        Some(place(&x.shape, &from))
    })
}

/// The index that an element of a window comes from.
fn window_source(window: &Window, index: &[usize]) -> Vec<usize> {
    let (rest, last) = index.split_at(index.len() - 2);
    [rest, &[last[0] * window.stride + last[1] * window.dilation]].concat()
}

/// The value of a composite operation, defined by elementary operations. They are evaluated in `f64`; the result is rounded
/// once.
pub(crate) fn by_definition(
    node: &Node,
    args: &[&Value],
    define: impl FnOnce(&mut Graph, &[Id]) -> Result<Id, GraphError>,
) -> Value {
    let names: Vec<String> = (0..args.len()).map(|arg| arg.to_string()).collect();
    let (mut definition, mut inputs) = (Graph::new(), Vec::new());
    let build = || {
        let mut ids = Vec::new();
        for (name, arg) in names.iter().zip(args) {
            ids.push(definition.input(name, DType::F64, &arg.shape)?);
            inputs.push((name.as_str(), Value::float(DType::F64, arg.shape, arg.to_f64())));
        }
        define(&mut definition, &ids)
    };
    let Ok(result) = build() else { unreachable!("the operands were checked when the node was built") };
    let Ok(values) = definition.interpret_nodes(&inputs, &[result]) else {
        unreachable!("every operand is an input")
    };
    Value::float(node.dtype, node.shape, values[0].to_f64())
}

fn select(args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let condition = args[0].to_f64();
    let first = |i: usize| condition[i] != 0.0;
    let elements = match (&args[1].elements, &args[2].elements) {
        (Elements::Float(a), Elements::Float(b)) => {
            Elements::Float((0..a.len()).map(|i| if first(i) { a[i] } else { b[i] }).collect())
        }
        (Elements::Int(a), Elements::Int(b)) => {
            Elements::Int((0..a.len()).map(|i| if first(i) { a[i] } else { b[i] }).collect())
        }
        _ => unreachable!("operands have one type"),
    };
    Value { dtype, shape, elements }
}

fn cast(x: &Value, dtype: DType) -> Value {
    match (&x.elements, dtype) {
        (Elements::Float(from), DType::I32) => {
            Value::int(dtype, x.shape, from.iter().map(|&x| i64::from(x as i32)).collect())
        }
        (Elements::Float(from), DType::I64) => {
            Value::int(dtype, x.shape, from.iter().map(|&x| x as i64).collect())
        }
        (Elements::Int(from), DType::I32 | DType::I64) => Value::int(dtype, x.shape, from.clone()),
        // Rounded once: not every i64 is an f64.
        (Elements::Int(from), DType::F32) => {
            Value::float(dtype, x.shape, from.iter().map(|&x| f64::from(x as f32)).collect())
        }
        (_, DType::F32 | DType::F64) => Value::float(dtype, x.shape, x.to_f64()),
    }
}

fn reduce(op: Reduction, x: &Value, shape: Shape) -> Value {
    let target = |index: &[usize]| {
        let index: Vec<usize> = index.iter().zip(&*shape).map(|(&i, &size)| i.min(size - 1)).collect();
        place(&shape, &index)
    };
    let targets: Vec<usize> = indices(&x.shape).map(|index| target(&index)).collect();
    let (binary, neutral) = (op.row().binary.row(), op.row().neutral);
    match &x.elements {
        Elements::Float(from) => {
            let mut results = vec![neutral; shape.elements()];
            from.iter().zip(&targets).for_each(|(&x, &at)| results[at] = (binary.scalar)(results[at], x));
            Value::float(x.dtype, shape, results)
        }
        Elements::Int(from) => {
            let neutral = if x.dtype == DType::I32 { i64::from(neutral as i32) } else { neutral as i64 };
            let mut results = vec![neutral; shape.elements()];
            from.iter().zip(&targets).for_each(|(&x, &at)| results[at] = (binary.integer)(results[at], x));
            Value::int(x.dtype, shape, results)
        }
    }
}

fn arg_reduce(x: &Value, axis: usize, largest: bool, shape: Shape) -> Value {
    let along = |index: Vec<usize>| {
        let at = |i: usize| {
            let mut index = index.clone();
            index[axis] = i;
            place(&x.shape, &index)
        };
        let beats = |new: usize, old: usize| match &x.elements {
            Elements::Float(from) => {
                let (new, old) = (from[new], from[old]);
                !old.is_nan() && (new.is_nan() || if largest { new > old } else { new < old })
            }
            Elements::Int(from) => {
                if largest {
                    from[new] > from[old]
                } else {
                    from[new] < from[old]
                }
            }
        };
        let best = (1..x.shape[axis]).fold(0, |best, i| if beats(at(i), at(best)) { i } else { best });
        best as i64
    };
    Value::int(DType::I32, shape, indices(&shape).map(along).collect())
}

fn concat(parts: &[&Value], axis: usize, shape: Shape) -> Value {
    let mut begin = 0;
    let mut sum: Option<Value> = None;
    for part in parts {
        let size = part.shape[axis];
        // Each part is padded with zeros, then chosen by position.
        let placed = select_slices(part, shape, axis, |i| i.checked_sub(begin).filter(|&i| i < size));
        let here: Vec<bool> =
            indices(&shape).map(|index| (begin..begin + size).contains(&index[axis])).collect();
        sum = Some(match sum {
            None => placed,
            Some(mut sum) => {
                match (&mut sum.elements, &placed.elements) {
                    (Elements::Float(to), Elements::Float(from)) => {
                        (0..to.len()).filter(|&i| here[i]).for_each(|i| to[i] = from[i]);
                    }
                    (Elements::Int(to), Elements::Int(from)) => {
                        (0..to.len()).filter(|&i| here[i]).for_each(|i| to[i] = from[i]);
                    }
                    _ => unreachable!("parts have one type"),
                }
                sum
            }
        });
        begin += size;
    }
    sum.unwrap_or_else(|| unreachable!("there is at least one part"))
}

fn cumsum(x: &Value, reverse: bool) -> Value {
    let length = x.shape.last().copied().unwrap_or(1).max(1);
    let order = |i: usize| if reverse { length - 1 - i } else { i };
    match &x.elements {
        Elements::Float(from) => {
            let mut to = from.clone();
            for row in to.chunks_exact_mut(length) {
                (1..length).for_each(|i| row[order(i)] += row[order(i - 1)]);
            }
            Value::float(x.dtype, x.shape, to)
        }
        Elements::Int(from) => {
            let mut to = from.clone();
            for row in to.chunks_exact_mut(length) {
                (1..length).for_each(|i| row[order(i)] = row[order(i)].wrapping_add(row[order(i - 1)]));
            }
            Value::int(x.dtype, x.shape, to)
        }
    }
}

fn matmul(a: &Value, b: &Value, shape: Shape, dtype: DType) -> Value {
    let (left, right) = (a.to_f64(), b.to_f64());
    let inner = a.shape.last().copied().unwrap_or(0);
    let dot = |index: Vec<usize>| {
        let (batch, matrix) = index.split_at(index.len() - 2);
        let term = |k: usize| {
            let at = place(&a.shape, &[batch, &[matrix[0], k]].concat());
            left[at] * right[place(&b.shape, &[batch, &[k, matrix[1]]].concat())]
        };
        (0..inner).map(term).sum()
    };
    Value::float(dtype, shape, indices(&shape).map(dot).collect())
}
