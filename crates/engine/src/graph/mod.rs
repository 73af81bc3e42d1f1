//! Graphs: numeric expressions as data.
//!
//! A [`Graph`] is a flat list of nodes in topological order. Nodes are interned: the same operation on the same operands is
//! one node, however often it is written. Every node has a shape and a type; operands that do not fit are an error when the
//! node is built, never when the graph runs.
//!
//! | file | what is in it |
//! |---|---|
//! | `build` | the builder: one method for each elementary operation, with broadcasting |
//! | `layers` | layers made of other operations: convolution, pooling, losses |
//! | `scope`, `tensor` | graphs written as expressions, with deferred errors |
//! | `error` | errors, with the types and shapes of the operands |
//!
//! Composite operations (softmax, layer norm, attention, recurrent cells) are in [`ops`](crate::ops), which also says what
//! a new operation of each kind touches.
//!
//! A [`Scope`] is the short way to write a graph: see there. The builder is the explicit one, with an error for each operation:
//!
//! ```
//! use gatework_engine::{DType, Graph};
//!
//! let mut g = Graph::new();
//! let x = g.input("x", DType::F32, &[32, 168])?;
//! let w = g.input("w", DType::F32, &[168, 64])?;
//! let b = g.input("b", DType::F32, &[64])?;
//! let product = g.matmul(x, w)?;
//! let sum = g.add(product, b)?; // b is broadcast
//! let y = g.gelu(sum)?;
//! g.output("y", y)?;
//! assert_eq!(g.shape(y).to_string(), "[32, 64]");
//! # Ok::<(), gatework_engine::GraphError>(())
//! ```

mod build;
mod error;
mod layers;
mod scope;
mod tensor;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::dtype::DType;
use crate::ops::attention::{Attention, AttentionGradient};
use crate::ops::layer_norm::{LayerNorm, LayerNormGradient};
use crate::ops::recurrent::{Recurrent, RecurrentGradient};
use crate::ops::softmax::Softmax;
use crate::ops::{Binary, Composite, Reduction, Unary};
use crate::shape::Shape;

pub use crate::ops::recurrent::{Cell, Gru, Lstm};
pub use error::{ExpressionError, GraphError, Operand};
pub use layers::Conv1d;
pub use scope::Scope;
pub(crate) use tensor::tensor_methods;
pub use tensor::{IntoTensor, Tensor};

/// The id of a node: its index in the graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u32);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The value of a constant: the bits of an `f64`, or an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// A floating-point number, by its bits, so that -0 and NaN compare equal to themselves only.
    Float(u64),
    /// An integer.
    Int(i64),
}

impl Scalar {
    /// The bits of the `f64` or of the `i64`.
    pub fn bits(self) -> u64 {
        match self {
            Scalar::Float(bits) => bits,
            Scalar::Int(value) => value as u64,
        }
    }
}

/// What a node computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// A tensor that is given when the program runs.
    Input(Arc<str>),
    /// A scalar constant.
    Constant(Scalar),
    /// A constant tensor: the bits of an `f64` or of an `i64` for each element.
    Data(Arc<[u64]>),
    /// A function of each element.
    Unary(Unary),
    /// A function of each pair of elements.
    Binary(Binary),
    /// The second operand where the first is not 0, else the third.
    Select,
    /// Another type. From floating point to integers it truncates and saturates, and NaN becomes 0.
    Cast,
    /// A reduction over axes, which keep size 1.
    Reduce(Reduction, Vec<usize>),
    /// The index of the largest (or smallest) element along an axis, the first of equal ones. NaN wins over every number.
    ArgReduce {
        /// Whether it is the largest.
        largest: bool,
        /// The axis, which keeps size 1.
        axis: usize,
    },
    /// The same elements in another shape.
    Reshape,
    /// Axes of size 1 broadcast.
    Expand,
    /// Axes in another order: axis `i` of the result is axis `order[i]` of the operand.
    Permute(Vec<usize>),
    /// Every `step`-th index of an axis, starting at `begin`.
    Slice {
        /// The sliced axis.
        axis: usize,
        /// The first index.
        begin: usize,
        /// Distance between indices, at least 1.
        step: usize,
    },
    /// Zeros before and after an axis.
    Pad {
        /// The padded axis.
        axis: usize,
        /// Number of zeros before it.
        before: usize,
        /// Number of zeros after it.
        after: usize,
    },
    /// Operands concatenated along an axis.
    Concat(usize),
    /// Slices of an axis of the first operand at indices (second operand, an `i32` vector). Indices outside give zeros.
    Gather(usize),
    /// The adjoint of [`Op::Gather`]: slices of the first operand added at the indices of an axis.
    ScatterAdd {
        /// The axis.
        axis: usize,
        /// Its size in the result.
        size: usize,
    },
    /// Windows of the last axis: `[.., n]` becomes `[.., windows, size]`.
    Unfold(Window),
    /// The adjoint of [`Op::Unfold`]: windows added where they came from, on an axis of the given size.
    Fold(Window, usize),
    /// Cumulative sums along the last axis.
    CumSum {
        /// Whether they start at the end.
        reverse: bool,
    },
    /// The matrix product of the last two axes; the axes before are a batch.
    MatMul,
    /// Softmax along the last axis.
    Softmax(Softmax),
    /// Layer norm of rows.
    LayerNorm(LayerNorm),
    /// The gradients of layer norm.
    LayerNormGradient(LayerNormGradient),
    /// Multi-head attention.
    Attention(Attention),
    /// The gradients of attention.
    AttentionGradient(AttentionGradient),
    /// A recurrent cell over time.
    Recurrent(Recurrent),
    /// The gradients of a recurrent cell.
    RecurrentGradient(RecurrentGradient),
}

impl Op {
    /// The composite operation that this is, if it is not an elementary one.
    pub(crate) fn composite(&self) -> Option<&dyn Composite> {
        Some(match self {
            Op::Softmax(op) => op,
            Op::LayerNorm(op) => op,
            Op::LayerNormGradient(op) => op,
            Op::Attention(op) => op,
            Op::AttentionGradient(op) => op,
            Op::Recurrent(op) => op,
            Op::RecurrentGradient(op) => op,
            _ => return None,
        })
    }
}

/// Sliding windows over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Elements of a window.
    pub size: usize,
    /// Distance between the starts of two windows.
    pub stride: usize,
    /// Distance between two elements of a window.
    pub dilation: usize,
}

impl Window {
    /// Number of windows that fit an axis of a length.
    pub fn count(&self, length: usize) -> usize {
        let span = (self.size.max(1) - 1).saturating_mul(self.dilation).saturating_add(1);
        length.checked_sub(span).map_or(0, |rest| rest / self.stride.max(1) + 1)
    }
}

/// A node: an operation, its operands, and the shape and type of its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// The operands, which come before the node.
    pub args: Vec<Id>,
    /// Shape of the result.
    pub shape: Shape,
    /// Type of the result.
    pub dtype: DType,
}

/// A numeric expression with named inputs and outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// A hash of each node that does not depend on the order in which nodes were built.
    hashes: Vec<u64>,
    interned: FxHashMap<Node, Id>,
    outputs: Vec<(String, Id)>,
    relaxed: bool,
}

impl Graph {
    /// Creates an empty graph. Rewriting it never changes a result.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Creates an empty graph that may be rewritten by identities of real numbers: sums are reordered, divisions by constants
    /// become multiplications, `x * 0` becomes 0.
    pub fn relaxed() -> Graph {
        Graph { relaxed: true, ..Graph::default() }
    }

    /// Whether the graph may be rewritten by identities of real numbers.
    pub fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// The nodes, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns a node by its id.
    ///
    /// # Panics
    /// If the graph has no such node.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The shape of the result of a node.
    ///
    /// # Panics
    /// If the graph has no such node.
    pub fn shape(&self, id: Id) -> Shape {
        self.node(id).shape
    }

    /// The type of the result of a node.
    ///
    /// # Panics
    /// If the graph has no such node.
    pub fn dtype(&self, id: Id) -> DType {
        self.node(id).dtype
    }

    /// The ids of all nodes, in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// The inputs with their names, in the order of creation.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Id)> {
        self.ids().filter_map(|id| match &self.node(id).op {
            Op::Input(name) => Some((&**name, id)),
            _ => None,
        })
    }

    /// The outputs with their names.
    pub fn outputs(&self) -> &[(String, Id)] {
        &self.outputs
    }

    /// Makes a node an output. Names of outputs must differ.
    pub fn output(&mut self, name: &str, id: Id) -> Result<(), GraphError> {
        self.known("output", &[id])?;
        if self.outputs.iter().any(|(known, _)| known == name) {
            return Err(GraphError::OutputExists { name: name.to_string() });
        }
        self.outputs.push((name.to_string(), id));
        Ok(())
    }

    /// The graph of other outputs: the nodes that they depend on, in the same order.
    pub(crate) fn with_outputs(&self, outputs: &[(&str, Id)]) -> Result<Graph, GraphError> {
        let mut needed = vec![false; self.nodes.len()];
        for (_, id) in outputs {
            needed[id.0 as usize] = true;
        }
        for id in self.ids().rev() {
            if needed[id.0 as usize] {
                for arg in &self.node(id).args {
                    needed[arg.0 as usize] = true;
                }
            }
        }
        let mut to = Graph { relaxed: self.relaxed, ..Graph::default() };
        let mut new = vec![Id(0); self.nodes.len()];
        for id in self.ids().filter(|id| needed[id.0 as usize]) {
            let Node { op, args, shape, dtype } = self.node(id).clone();
            let args = args.iter().map(|arg| new[arg.0 as usize]).collect();
            new[id.0 as usize] = to.intern(op, args, shape, dtype);
        }
        for (name, id) in outputs {
            to.output(name, new[id.0 as usize])?;
        }
        Ok(to)
    }

    /// A hash of what a node computes, independent of the order in which nodes were built.
    pub fn node_hash(&self, id: Id) -> u64 {
        self.hashes[id.0 as usize]
    }

    /// A hash of the whole graph: what its outputs compute, and their names. It does not depend on the order in which nodes were
    /// built.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.relaxed.hash(&mut hasher);
        for (name, id) in &self.outputs {
            (name, self.node_hash(*id)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns the node of an operation with checked operands, shape and type: an equal one, if there is one.
    pub(crate) fn intern(&mut self, op: Op, args: Vec<Id>, shape: Shape, dtype: DType) -> Id {
        let node = Node { op, args, shape, dtype };
        if let Some(&id) = self.interned.get(&node) {
            return id;
        }
        let id = Id(self.nodes.len() as u32);
        let mut hasher = FxHasher::default();
        (&node.op, node.shape, node.dtype).hash(&mut hasher);
        for arg in &node.args {
            self.node_hash(*arg).hash(&mut hasher);
        }
        self.hashes.push(hasher.finish());
        self.interned.insert(node.clone(), id);
        self.nodes.push(node);
        id
    }

    /// Checks that operands are nodes of this graph.
    pub(crate) fn known(&self, operation: &str, args: &[Id]) -> Result<(), GraphError> {
        match args.iter().find(|id| id.0 as usize >= self.nodes.len()) {
            None => Ok(()),
            Some(&id) => Err(GraphError::UnknownNode { operation: operation.to_string(), id }),
        }
    }

    /// An operand in an error message.
    pub(crate) fn operand(&self, id: Id) -> Operand {
        Operand { id, dtype: self.dtype(id), shape: self.shape(id) }
    }

    /// An error about an operation on known operands.
    pub(crate) fn error<T>(
        &self,
        operation: &str,
        args: &[Id],
        problem: impl Into<String>,
    ) -> Result<T, GraphError> {
        let operands = args.iter().map(|&id| self.operand(id)).collect();
        Err(GraphError::Operands { operation: operation.to_string(), operands, problem: problem.into() })
    }

    /// An error about the types of known operands.
    pub(crate) fn type_error<T>(
        &self,
        operation: &str,
        args: &[Id],
        problem: &'static str,
    ) -> Result<T, GraphError> {
        let operands = args.iter().map(|&id| self.operand(id)).collect();
        Err(GraphError::Types { operation: operation.to_string(), operands, problem })
    }

    /// Checks that the graph is legal: every node is one that the builder would create. Debug builds check after every rewriting
    /// pass.
    pub fn check(&self) -> Result<(), GraphError> {
        let mut again = Graph::default();
        for (index, node) in self.nodes.iter().enumerate() {
            let illegal =
                |problem| Err(GraphError::Illegal { node: format!("%{index} = {}", node.op), problem });
            if node.args.iter().any(|arg| arg.0 as usize >= index) {
                return illegal("reads a later node");
            }
            let id = again.rebuild(&node.op, &node.args, node.shape, node.dtype)?;
            if id.0 as usize != index || again.node(id) != node {
                return illegal("the builder would not create this node");
            }
        }
        for (name, id) in &self.outputs {
            self.known(&format!("output {name:?}"), &[*id])?;
        }
        Ok(())
    }
}

/// Graphs are equal if they have the same nodes in the same order, and the same outputs.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        // The other fields follow from the nodes.
        (self.relaxed, &self.outputs, &self.nodes) == (other.relaxed, &other.outputs, &other.nodes)
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Input(name) => write!(f, "input {name:?}"),
            Op::Constant(Scalar::Float(bits)) => write!(f, "{:?}", f64::from_bits(*bits)),
            Op::Constant(Scalar::Int(value)) => write!(f, "{value}"),
            Op::Data(_) => f.write_str("data"),
            Op::Unary(op) => f.write_str(op.row().name),
            Op::Binary(op) => f.write_str(op.row().name),
            Op::Select => f.write_str("select"),
            Op::Cast => f.write_str("cast"),
            Op::Reduce(reduction, axes) => write!(f, "{}{axes:?}", reduction.name()),
            Op::ArgReduce { largest, axis } => {
                write!(f, "arg_{}[{axis}]", if *largest { "max" } else { "min" })
            }
            Op::Reshape => f.write_str("reshape"),
            Op::Expand => f.write_str("expand"),
            Op::Permute(order) => write!(f, "permute{order:?}"),
            Op::Slice { axis, begin, step } => write!(f, "slice[{axis}: {begin}.. by {step}]"),
            Op::Pad { axis, before, after } => write!(f, "pad[{axis}: {before}, {after}]"),
            Op::Concat(axis) => write!(f, "concat[{axis}]"),
            Op::Gather(axis) => write!(f, "gather[{axis}]"),
            Op::ScatterAdd { axis, size } => write!(f, "scatter_add[{axis}: {size}]"),
            Op::Unfold(Window { size, stride, dilation }) => {
                write!(f, "unfold[{size} by {stride}, {dilation}]")
            }
            Op::Fold(Window { size, stride, dilation }, length) => {
                write!(f, "fold[{size} by {stride}, {dilation} to {length}]")
            }
            Op::CumSum { reverse } => write!(f, "cumsum{}", if *reverse { " reverse" } else { "" }),
            Op::MatMul => f.write_str("matmul"),
            composite => match composite.composite() {
                Some(composite) => composite.fmt(f),
                None => unreachable!("every other operation is composite"),
            },
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in self.ids() {
            let Node { op, args, shape, dtype } = self.node(id);
            let args: Vec<String> = args.iter().map(Id::to_string).collect();
            writeln!(f, "{id} = {op} {} : {dtype}{shape}", args.join(" "))?;
        }
        for (name, id) in &self.outputs {
            writeln!(f, "output {name:?} = {id}")?;
        }
        Ok(())
    }
}
