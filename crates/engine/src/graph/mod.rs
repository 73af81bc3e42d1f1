//! Graphs: numeric expressions as data.
//!
//! A [`Graph`] is a flat list of nodes in topological order. Nodes are interned: an operation on the same operands is
//! the same node, however often it is written. Every node knows its shape and type; what does not fit is an error when
//! it is built, never when it runs.
//!
//! | file | what is in it |
//! |---|---|
//! | `build` | the builder: one method an operation, with broadcasting |
//! | `layers` | what is made of other operations: softmax, convolution, losses |
//! | `attention`, `norm` | attention of many heads, layer norm |
//! | `recurrent` | GRU and LSTM over time |
//! | `definition` | what softmax, attention, layer norm and recurrent cells are made of |
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

mod attention;
mod build;
mod definition;
mod layers;
mod norm;
mod recurrent;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::dtype::DType;
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::{Shape, ShapeError};

pub use layers::Conv1d;
pub use recurrent::{Cell, Gru, Lstm};

/// A node of a graph.
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
    /// A floating-point number, by its bits, so that -0 and NaN are themselves.
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
pub enum Op {
    /// A tensor that is given when the program runs.
    Input(Arc<str>),
    /// One number.
    Constant(Scalar),
    /// Given numbers: the bits of an `f64` or of an `i64` for each element.
    Data(Arc<[u64]>),
    /// A function of each element.
    Unary(Unary),
    /// A function of each pair of elements.
    Binary(Binary),
    /// The second operand where the first is not 0, else the third.
    Select,
    /// Another type: integers of floating-point numbers round towards zero and stay in range, NaN becomes 0.
    Cast,
    /// A reduction over axes, which stay with size 1.
    Reduce(Reduction, Vec<usize>),
    /// The index of the largest (or smallest) element along an axis, the first of equals; NaN is the largest and the
    /// smallest.
    ArgReduce {
        /// The largest, not the smallest.
        largest: bool,
        /// The axis; it stays with size 1.
        axis: usize,
    },
    /// The same elements in another shape.
    Reshape,
    /// Axes of size 1 repeated.
    Expand,
    /// Axes in another order: axis `i` of the result is axis `order[i]` of the operand.
    Permute(Vec<usize>),
    /// Every `step`-th index of an axis from `begin` on.
    Slice {
        /// The axis.
        axis: usize,
        /// The first index.
        begin: usize,
        /// Distance of the indices, at least 1.
        step: usize,
    },
    /// Zeros before and behind an axis.
    Pad {
        /// The axis.
        axis: usize,
        /// Zeros before.
        before: usize,
        /// Zeros behind.
        after: usize,
    },
    /// Operands behind each other along an axis.
    Concat(usize),
    /// Indices (second operand, an `i32` vector) of an axis of the first. Those outside give zeros.
    Gather(usize),
    /// The adjoint of [`Op::Gather`]: slices of the first operand added up at the indices of an axis of a given size.
    ScatterAdd {
        /// The axis.
        axis: usize,
        /// Its size in the result.
        size: usize,
    },
    /// Windows of the last axis: `[.., n]` becomes `[.., windows, size]`.
    Unfold(Window),
    /// The adjoint of [`Op::Unfold`]: windows added up where they came from, on an axis of a given size.
    Fold(Window, usize),
    /// Running sums along the last axis, or from its end.
    CumSum {
        /// From the end.
        reverse: bool,
    },
    /// The matrix product of the last two axes; the axes before are a batch.
    MatMul,
    /// Exponentials along the last axis that sum to 1, or their logarithms.
    Softmax {
        /// The logarithms.
        log: bool,
    },
    /// `gain (x - mean) / deviation + bias` of every row. Operands: x `[rows, columns]`, gain and bias `[columns]`.
    LayerNorm {
        /// Added to the variance: the bits of an `f64`.
        epsilon: u64,
    },
    /// The gradients of [`Op::LayerNorm`], those of x, of the gain and of the bias behind each other. Operands: the gradient
    /// of the result, x, gain.
    LayerNormGradient {
        /// Added to the variance: the bits of an `f64`.
        epsilon: u64,
    },
    /// `softmax(q k' / sqrt(d)) v` of every head. Operands: queries `[batch, tokens, heads * d]`, keys `[batch, others, heads *
    /// d]`, values `[batch, others, heads * e]`. The result is `[batch, tokens, heads * e]`.
    Attention {
        /// Heads, which lie side by side in the last axis.
        heads: usize,
    },
    /// The gradients of [`Op::Attention`], those of the queries, of the keys and of the values behind each other. Operands:
    /// the gradient of the result, queries, keys, values.
    AttentionGradient {
        /// Heads.
        heads: usize,
    },
    /// A recurrent cell over time. Operands: inputs `[time, batch, features]`, weights of the inputs `[features, gates *
    /// hidden]` and of the state `[hidden, gates * hidden]`, biases beside the inputs and beside the state. The result
    /// `[parts, time, batch, hidden]` has the states as its first part; the others are for the gradient (see
    /// `kernel::recurrent`).
    Recurrent(Cell),
    /// The gradients of the operands of a [`Op::Recurrent`] in its order, those of the weights turned, behind each other in
    /// one axis. Operands: the gradients of the states `[time, batch, hidden]`, the result of the forward pass, the inputs,
    /// the weights of the inputs and of the state.
    RecurrentGradient(Cell),
}

/// Windows that slide over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Elements of a window.
    pub size: usize,
    /// From one window to the next.
    pub stride: usize,
    /// From one element of a window to the next.
    pub dilation: usize,
}

impl Window {
    /// Number of windows that fit an axis.
    pub fn count(&self, length: usize) -> usize {
        let span = (self.size.max(1) - 1).saturating_mul(self.dilation).saturating_add(1);
        length.checked_sub(span).map_or(0, |rest| rest / self.stride.max(1) + 1)
    }
}

/// A node: an operation, its operands, and what comes out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// The operands; they come before the node.
    pub args: Vec<Id>,
    /// Shape of the result.
    pub shape: Shape,
    /// Type of the result.
    pub dtype: DType,
}

/// Something that cannot be built: which operation, on what, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {problem}")]
pub struct GraphError {
    /// The operation and its operands with their types and shapes.
    pub operation: String,
    /// What is wrong.
    pub problem: String,
}

impl From<ShapeError> for GraphError {
    fn from(error: ShapeError) -> GraphError {
        GraphError { operation: "shape".into(), problem: error.to_string() }
    }
}

/// A numeric expression with named inputs and outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// A number for each node that depends on what it computes and not on when it was built.
    hashes: Vec<u64>,
    interned: FxHashMap<Node, Id>,
    outputs: Vec<(String, Id)>,
    relaxed: bool,
}

impl Graph {
    /// An empty graph whose rewriting never changes a result.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// An empty graph that may be rewritten as real numbers allow: sums reordered, divisions by constants turned into
    /// multiplications, `x * 0` taken for 0.
    pub fn relaxed() -> Graph {
        Graph { relaxed: true, ..Graph::default() }
    }

    /// Whether results may change as real numbers allow.
    pub fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// The nodes, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node. Panics if the graph has no such node, as indexing does.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The shape of a node's result. Panics if the graph has no such node.
    pub fn shape(&self, id: Id) -> Shape {
        self.node(id).shape
    }

    /// The type of a node's result. Panics if the graph has no such node.
    pub fn dtype(&self, id: Id) -> DType {
        self.node(id).dtype
    }

    /// The ids of all nodes, in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// The inputs with their names, in the order in which they were made.
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

    /// Makes a node an output. A name stands for one output only.
    pub fn output(&mut self, name: &str, id: Id) -> Result<(), GraphError> {
        self.known("output", &[id])?;
        if self.outputs.iter().any(|(known, _)| known == name) {
            let problem = "there is an output of that name already".into();
            return Err(GraphError { operation: format!("output {name:?}"), problem });
        }
        self.outputs.push((name.to_string(), id));
        Ok(())
    }

    /// A number that depends on what a node computes, and not on when or in what order it was built.
    pub fn hash(&self, id: Id) -> u64 {
        self.hashes[id.0 as usize]
    }

    /// A number for the whole graph: what its outputs compute, and their names.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.relaxed.hash(&mut hasher);
        for (name, id) in &self.outputs {
            (name, self.hash(*id)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The node of an operation whose shape and type were worked out; an equal one, if there is one.
    pub(crate) fn intern(&mut self, op: Op, args: Vec<Id>, shape: Shape, dtype: DType) -> Id {
        let node = Node { op, args, shape, dtype };
        if let Some(&id) = self.interned.get(&node) {
            return id;
        }
        let id = Id(self.nodes.len() as u32);
        let mut hasher = FxHasher::default();
        (&node.op, node.shape, node.dtype).hash(&mut hasher);
        for arg in &node.args {
            self.hash(*arg).hash(&mut hasher);
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
            Some(id) => Err(GraphError {
                operation: operation.to_string(),
                problem: format!("{id} is no node of this graph"),
            }),
        }
    }

    /// An error of an operation on known operands.
    pub(crate) fn error<T>(
        &self,
        operation: &str,
        args: &[Id],
        problem: impl Into<String>,
    ) -> Result<T, GraphError> {
        let operand = |&id: &Id| format!("{id} {}{}", self.dtype(id), self.shape(id));
        let operands: Vec<String> = args.iter().map(operand).collect();
        Err(GraphError {
            operation: format!("{operation}({})", operands.join(", ")),
            problem: problem.into(),
        })
    }

    /// Checks what every node of a legal graph satisfies. Rewrites call it after every pass in debug builds.
    pub fn check(&self) -> Result<(), GraphError> {
        let mut again = Graph::default();
        for (index, node) in self.nodes.iter().enumerate() {
            let operation = || format!("%{index} = {}", node.op);
            if node.args.iter().any(|arg| arg.0 as usize >= index) {
                return Err(GraphError { operation: operation(), problem: "reads a node behind it".into() });
            }
            let id = again.rebuild(&node.op, &node.args, node.shape, node.dtype)?;
            if id.0 as usize != index || again.node(id) != node {
                let problem = "the builder would not have made this node".into();
                return Err(GraphError { operation: operation(), problem });
            }
        }
        for (name, id) in &self.outputs {
            self.known(&format!("output {name:?}"), &[*id])?;
        }
        Ok(())
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
            Op::Softmax { log } => write!(f, "{}softmax", if *log { "log_" } else { "" }),
            Op::LayerNorm { epsilon } => write!(f, "layer_norm[{:?}]", f64::from_bits(*epsilon)),
            Op::LayerNormGradient { epsilon } => {
                write!(f, "layer_norm_gradient[{:?}]", f64::from_bits(*epsilon))
            }
            Op::Attention { heads } => write!(f, "attention[{heads}]"),
            Op::AttentionGradient { heads } => write!(f, "attention_gradient[{heads}]"),
            Op::Recurrent(cell) => write!(f, "{}", cell.name()),
            Op::RecurrentGradient(cell) => write!(f, "{}_gradient", cell.name()),
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
