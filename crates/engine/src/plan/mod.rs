//! The plan: from a graph in canonical form to kernels in an order, and a place for every value.
//!
//! ```text
//! reshape, expand, permute, slice, unfold:  views; they cost nothing
//! element-wise operations:                  fused into loops with everything of the same shape that can join
//! reductions:                               the end of a loop
//! products:                                 one kernel each, on views (a transposed operand is another stride), with a
//!                                           bias and a relu behind them; sums of products are added up where they are
//!                                           computed
//! pad, concat, fold:                        loops that write into parts of a buffer
//! attention, layer norm, recurrent cells:   one kernel each, and one for their gradients
//! gather, scatter, cumsum, arg, cast:       one kernel each
//! ```
//!
//! An element-wise operation whose only reader is another one of the same shape is computed where it is read. All others
//! are stored, by the loop that their operands come from if that has the same shape.

mod arena;
mod fuse;
mod products;
mod view;

use std::sync::Arc;

use crate::dtype::DType;
use crate::graph::{Cell, Graph, Id, Node, Op, Scalar};
use crate::kernel::norm::LayerNorm;
use crate::kernel::recurrent::Steps;
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

use products::Role;
pub(crate) use view::View;

/// A piece of memory of one type.
#[derive(Clone, Debug)]
pub(crate) struct BufferPlan {
    pub dtype: DType,
    pub elements: usize,
    pub kind: BufferKind,
    /// Place in the memory of its type.
    pub offset: usize,
}

/// What a buffer is for.
#[derive(Clone, Debug)]
pub(crate) enum BufferKind {
    /// An input; it keeps its place.
    Input(String),
    /// Given numbers; it keeps its place.
    Data(Arc<[u64]>),
    /// A value between kernels, or an output, which keeps its place.
    Value { output: bool },
}

/// Something an operation of a loop reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// The result of an earlier operation of the loop.
    Slot(usize),
    /// A tensor in memory, by its number in the loop.
    Load(usize),
    /// A constant, by its number in the loop.
    Constant(usize),
}

/// One operation of a loop; its result is the slot of its number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Unary(Unary, Operand),
    Binary(Binary, [Operand; 2]),
    Select([Operand; 3]),
    /// The operand itself, to be stored or reduced.
    Copy(Operand),
}

/// One pass over a shape: element-wise operations, tile by tile, with what they read and store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loop {
    pub sizes: Vec<usize>,
    pub loads: Vec<View>,
    pub constants: Vec<Scalar>,
    pub steps: Vec<Step>,
    /// The slot and where it goes.
    pub stores: Vec<(usize, View)>,
    pub reduce: Option<Reduce>,
}

/// The reduction at the end of a loop.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub op: Reduction,
    pub slot: usize,
    /// Axes of the loop that go.
    pub axes: Vec<usize>,
    /// The result: the axes that stay, row by row.
    pub out: usize,
}

/// What runs.
#[derive(Clone, Debug)]
pub(crate) enum Kernel {
    Loop(Loop),
    /// Zeros everywhere.
    Zero {
        buffer: usize,
    },
    /// `[batch.., m, k]` times `[batch.., k, n]`.
    MatMul {
        a: View,
        b: View,
        out: View,
        /// Whether the product is added to what the result holds. Products of a batch whose results share a place (a
        /// stride of 0) are added up in any case.
        accumulate: bool,
        /// A row, in the shape of the result, that is added to all rows, and whether a relu follows.
        bias: Option<(View, bool)>,
    },
    Cast {
        x: View,
        out: usize,
    },
    /// Slices of an axis at indices; those outside are zeros.
    Gather {
        x: View,
        indices: View,
        axis: usize,
        out: usize,
    },
    ScatterAdd {
        x: View,
        indices: View,
        axis: usize,
        out: View,
    },
    CumSum {
        x: View,
        reverse: bool,
        out: usize,
    },
    ArgReduce {
        x: View,
        axis: usize,
        largest: bool,
        out: usize,
    },
    /// The softmax of every row of a dense tensor, or its logarithm.
    Softmax {
        x: View,
        row: usize,
        log: bool,
        out: usize,
    },
    /// A recurrent cell over time.
    Recurrent(Recurrent),
    /// Attention of many heads.
    Attention(Attention),
    /// Layer norm, or its gradient; all is dense.
    LayerNorm {
        epsilon: u64,
        x: View,
        gain: View,
        /// The bias, or the gradient of the result.
        other: View,
        out: usize,
        /// What the gradient needs beside.
        scratch: Option<usize>,
    },
}

/// Attention, or its gradient. The operands are `[batch, tokens, columns]`; the columns of a token lie behind each other.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub heads: usize,
    /// Queries, keys and values.
    pub operands: [View; 3],
    /// The gradient of the result, if it is that of the operands which is computed.
    pub gradient: Option<View>,
    pub out: usize,
}

/// A recurrent cell over time, or its gradient. All but the weights are dense.
#[derive(Clone, Debug)]
pub(crate) struct Recurrent {
    pub cell: Cell,
    pub backward: bool,
    /// Forward: whether more of the tape is read than its states. Backward: whether the gradient of the inputs is read.
    pub all: bool,
    /// Steps, rows, width of the state, and width of the inputs.
    pub sizes: [usize; 4],
    /// The operands, in the order of the graph.
    pub args: Vec<View>,
    pub out: usize,
    pub scratch: usize,
}

/// Kernels in their order, and the memory they work on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub buffers: Vec<BufferPlan>,
    /// Each with the type of its elements.
    pub kernels: Vec<(DType, Kernel)>,
    /// Name, shape and buffer of each output.
    pub outputs: Vec<(String, Shape, usize)>,
    /// Elements of the memory of each type, in the order of [`DType::ALL`].
    pub memory: [usize; 4],
}

impl Plan {
    /// Plans a graph in canonical form.
    pub fn new(graph: &Graph) -> Plan {
        let mut planner = Planner::new(graph);
        for id in graph.ids() {
            planner.place(id);
        }
        planner.finish()
    }
}

/// A plan in the making.
struct Planner<'a> {
    graph: &'a Graph,
    /// Whether each node is computed by its only reader on the way.
    fused: Vec<bool>,
    /// Whether each node has one reader and is no output.
    own: Vec<bool>,
    views: Vec<Option<View>>,
    buffers: Vec<BufferPlan>,
    kernels: Vec<(DType, Kernel)>,
    /// The kernel after which each buffer is complete.
    written: Vec<usize>,
    /// Where a stored node is found inside the loop that computes it: kernel and slot.
    slots: Vec<Option<(usize, usize)>>,
    /// What each node has to do with sums of products.
    roles: Vec<Role>,
}

/// Operations that are fused into one another at most: their tiles share the first caches, and a chain of any length can
/// be planned.
const DEEPEST: usize = 64;

fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Select)
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph) -> Planner<'a> {
        let count = graph.nodes().len();
        let mut readers: Vec<Vec<Id>> = vec![Vec::new(); count];
        for id in graph.ids() {
            for arg in &graph.node(id).args {
                readers[arg.0 as usize].push(id);
            }
        }
        let mut outputs = vec![false; count];
        graph.outputs().iter().for_each(|(_, id)| outputs[id.0 as usize] = true);
        let is_output = |id: Id| outputs[id.0 as usize];
        let only_reader = |id: Id| match readers[id.0 as usize][..] {
            [reader] if !is_output(id) => Some(reader),
            _ => None,
        };
        let roles = products::roles(graph, |id| only_reader(id).is_some());
        let joins = |id: Id| match only_reader(id) {
            Some(reader) if is_elementwise(&graph.node(id).op) && roles[id.0 as usize] == Role::None => {
                let reader = graph.node(reader);
                is_elementwise(&reader.op) || matches!(reader.op, Op::Reduce(..))
            }
            _ => false,
        };
        let (mut fused, mut depths) = (vec![false; count], vec![0; count]);
        for id in graph.ids() {
            let place = |id: &Id| id.0 as usize;
            let below =
                graph.node(id).args.iter().map(place).filter(|&arg| fused[arg]).map(|arg| depths[arg] + 1);
            let depth = below.max().unwrap_or(0);
            (fused[place(&id)], depths[place(&id)]) = (joins(id) && depth < DEEPEST, depth);
        }
        let own = graph.ids().map(|id| only_reader(id).is_some()).collect();
        Planner {
            graph,
            fused,
            own,
            roles,
            views: vec![None; count],
            buffers: Vec::new(),
            kernels: Vec::new(),
            written: Vec::new(),
            slots: vec![None; count],
        }
    }

    fn buffer(&mut self, dtype: DType, elements: usize, kind: BufferKind) -> usize {
        self.buffers.push(BufferPlan { dtype, elements, kind, offset: 0 });
        self.written.push(0);
        self.buffers.len() - 1
    }

    /// A new buffer for the value of a node.
    fn value(&mut self, id: Id) -> usize {
        let (dtype, elements) = (self.graph.dtype(id), self.graph.shape(id).elements());
        self.buffer(dtype, elements, BufferKind::Value { output: false })
    }

    /// Adds a kernel that completes a buffer.
    fn push(&mut self, dtype: DType, kernel: Kernel, out: usize) {
        self.kernels.push((dtype, kernel));
        self.written[out] = self.kernels.len();
    }

    /// The view of a node that is stored. Constants are stored when something other than a loop reads them.
    fn view(&mut self, id: Id) -> View {
        if let Some(view) = &self.views[id.0 as usize] {
            return view.clone();
        }
        let Op::Constant(scalar) = self.graph.node(id).op else {
            unreachable!("operands are placed before they are read")
        };
        let buffer = self.buffer(self.graph.dtype(id), 1, BufferKind::Data([scalar.bits()].into()));
        let view = View::whole(buffer, &Shape::SCALAR);
        self.views[id.0 as usize] = Some(view.clone());
        view
    }

    fn place(&mut self, id: Id) {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let view = match &node.op {
            Op::Constant(_) => return,
            _ if self.fused[id.0 as usize] || self.roles[id.0 as usize] == Role::Part => return,
            _ if self.roles[id.0 as usize] == Role::Sum => self.sum_of_products(id),
            Op::Input(name) => {
                View::whole(self.buffer(dtype, shape.elements(), BufferKind::Input(name.to_string())), &shape)
            }
            Op::Data(bits) => {
                View::whole(self.buffer(dtype, shape.elements(), BufferKind::Data(bits.clone())), &shape)
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select => {
                self.finish_product(id).unwrap_or_else(|| self.store_loop(id))
            }
            Op::Reduce(op, axes) => self.reduce_loop(id, *op, axes),
            Op::Expand => self.view(node.args[0]).expanded(&shape),
            Op::Permute(order) => self.view(node.args[0]).permuted(order),
            &Op::Slice { axis, begin, step } => {
                self.view(node.args[0]).sliced(axis, begin, shape[axis], step)
            }
            Op::Unfold(window) => self.view(node.args[0]).unfolded(window),
            Op::Reshape => {
                let x = self.view(node.args[0]);
                if let Some(view) = x.reshaped(&shape) {
                    view
                } else {
                    let out = self.value(id);
                    let to = View::whole(out, &Shape::from_checked(&x.sizes));
                    self.copy(dtype, x, to);
                    View::whole(out, &shape)
                }
            }
            &Op::Pad { axis, before, .. } => {
                let x = self.view(node.args[0]);
                let out = self.zeros(id);
                let count = x.sizes[axis];
                self.copy(dtype, x, View::whole(out, &shape).sliced(axis, before, count, 1));
                View::whole(out, &shape)
            }
            &Op::Concat(axis) => {
                let out = self.value(id);
                let mut begin = 0;
                for &part in &node.args {
                    let x = self.view(part);
                    let count = x.sizes[axis];
                    self.copy(dtype, x, View::whole(out, &shape).sliced(axis, begin, count, 1));
                    begin += count;
                }
                View::whole(out, &shape)
            }
            Op::Fold(window, length) => self.fold(id, window.size, window.stride, window.dilation, *length),
            &Op::Softmax { log } => self.softmax(id, log),
            &Op::LayerNorm { epsilon } => self.layer_norm(id, epsilon, [0, 1, 2], false),
            &Op::LayerNormGradient { epsilon } => self.layer_norm(id, epsilon, [1, 2, 0], true),
            &Op::Attention { heads } => self.attention(id, heads, false),
            &Op::AttentionGradient { heads } => self.attention(id, heads, true),
            &Op::Recurrent(cell) => self.recurrent(id, cell, false),
            &Op::RecurrentGradient(cell) => self.recurrent(id, cell, true),
            other => self.place_kernel(id, other),
        };
        self.views[id.0 as usize] = Some(view);
    }

    /// Operations that have a kernel of their own.
    fn place_kernel(&mut self, id: Id, op: &Op) -> View {
        let node = self.graph.node(id);
        let shape = node.shape;
        let x = self.view(node.args[0]);
        let second = node.args.get(1).map(|&arg| self.view(arg));
        let out = if matches!(op, Op::ScatterAdd { .. }) { self.zeros(id) } else { self.value(id) };
        let whole = View::whole(out, &shape);
        let dtype = self.graph.dtype(node.args[0]);
        let kernel = match (op, second) {
            (Op::MatMul, Some(b)) => {
                Kernel::MatMul { a: x, b, out: whole.clone(), accumulate: false, bias: None }
            }
            (&Op::Gather(axis), Some(indices)) => Kernel::Gather { x, indices, axis, out },
            (&Op::ScatterAdd { axis, .. }, Some(indices)) => {
                Kernel::ScatterAdd { x, indices, axis, out: whole.clone() }
            }
            (&Op::CumSum { reverse }, _) => Kernel::CumSum { x, reverse, out },
            (&Op::ArgReduce { largest, axis }, _) => Kernel::ArgReduce { x, axis, largest, out },
            _ => Kernel::Cast { x, out },
        };
        self.push(dtype, kernel, out);
        whole
    }

    /// The view of a node, copied if its elements do not lie behind each other.
    fn dense(&mut self, id: Id) -> View {
        let (x, shape, dtype) = (self.view(id), self.graph.shape(id), self.graph.dtype(id));
        if x.is_contiguous() {
            return x;
        }
        let out = self.value(id);
        self.copy(dtype, x, View::whole(out, &shape));
        View::whole(out, &shape)
    }

    fn softmax(&mut self, id: Id, log: bool) -> View {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let x = self.dense(node.args[0]);
        let out = self.value(id);
        self.push(dtype, Kernel::Softmax { x, row: shape[shape.axes() - 1], log, out }, out);
        View::whole(out, &shape)
    }

    /// Layer norm. `order`: where x, the gain and the third operand are.
    fn layer_norm(&mut self, id: Id, epsilon: u64, order: [usize; 3], backward: bool) -> View {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let [x, gain, other] = order.map(|arg| self.dense(node.args[arg]));
        let scratch = backward.then(|| {
            let len = LayerNorm::scratch_len(x.sizes[0], x.sizes[1]);
            self.buffer(dtype, len, BufferKind::Value { output: false })
        });
        let out = self.value(id);
        self.push(dtype, Kernel::LayerNorm { epsilon, x, gain, other, out, scratch }, out);
        View::whole(out, &shape)
    }

    fn attention(&mut self, id: Id, heads: usize, backward: bool) -> View {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let mut args = node.args.iter().map(|&arg| {
            let view = self.view(arg);
            // Rows that overlap, or are one and the same, are told apart.
            let in_rows = view.strides[2] == 1 && view.strides[1] >= view.sizes[2];
            if in_rows { view } else { self.dense(arg) }
        });
        let gradient = if backward { args.next() } else { None };
        let operands = [0; 3].map(|_| args.next().expect("attention has three operands"));
        drop(args);
        let out = self.value(id);
        self.push(dtype, Kernel::Attention(Attention { heads, operands, gradient, out }), out);
        View::whole(out, &shape)
    }

    fn recurrent(&mut self, id: Id, cell: Cell, backward: bool) -> View {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let [inputs, weights] = if backward { [2, 4] } else { [0, 2] };
        let &[time, batch, features] = &*self.graph.shape(node.args[inputs]) else {
            unreachable!("three axes")
        };
        let hidden = self.graph.shape(node.args[weights])[0];
        let sizes = [time, batch, hidden, features];
        // Weights are packed, as they are.
        let is_weights = |i: usize| i == weights || i + 1 == weights;
        let view = |(i, &arg): (usize, &Id)| if is_weights(i) { self.view(arg) } else { self.dense(arg) };
        let args = node.args.iter().enumerate().map(view).collect();
        let scratch_len = match dtype {
            DType::F32 => Steps::scratch_len::<f32>,
            _ => Steps::scratch_len::<f64>,
        };
        let scratch = scratch_len(cell, sizes, backward);
        let scratch = self.buffer(dtype, scratch, BufferKind::Value { output: false });
        let out = self.value(id);
        let all = if backward {
            self.is_read(id, |begin| begin < time * batch * features)
        } else {
            self.is_read(id, |begin| begin > 0)
        };
        let kernel = Recurrent { cell, backward, all, sizes, args, out, scratch };
        self.push(dtype, Kernel::Recurrent(kernel), out);
        View::whole(out, &shape)
    }

    /// Whether something of a node is read that is not a slice along its first axis, or one whose begin or end is `asked` for.
    fn is_read(&self, id: Id, asked: impl Fn(usize) -> bool) -> bool {
        let is_output = self.graph.outputs().iter().any(|(_, output)| *output == id);
        let mut readers = self.graph.nodes().iter().filter(|node| node.args.contains(&id));
        let is_asked = |node: &Node| match node.op {
            Op::Slice { axis: 0, begin, .. } => asked(begin) || asked(begin + node.shape[0].max(1) - 1),
            _ => true,
        };
        is_output || readers.any(is_asked)
    }

    /// A buffer of zeros for a node.
    fn zeros(&mut self, id: Id) -> usize {
        let out = self.value(id);
        self.push(self.graph.dtype(id), Kernel::Zero { buffer: out }, out);
        out
    }

    /// A loop that copies a tensor into a part of a buffer.
    fn copy(&mut self, dtype: DType, x: View, to: View) {
        let out = to.buffer;
        let kernel = Loop {
            sizes: x.sizes.clone(),
            loads: vec![x],
            steps: vec![Step::Copy(Operand::Load(0))],
            stores: vec![(0, to)],
            ..Loop::default()
        };
        self.push(dtype, Kernel::Loop(kernel), out);
    }

    /// Windows added up: one loop for each element of a window, whose targets do not overlap.
    fn fold(&mut self, id: Id, size: usize, stride: usize, dilation: usize, length: usize) -> View {
        let node = self.graph.node(id);
        let x = self.view(node.args[0]);
        let out = self.zeros(id);
        let whole = View::whole(out, &node.shape);
        let axis = node.shape.axes() - 1;
        let windows = x.sizes[x.sizes.len() - 2];
        debug_assert!(length == node.shape[axis]);
        for element in 0..size {
            let mut from = x.clone().sliced(x.sizes.len() - 1, element, 1, 1);
            from.sizes.pop();
            from.strides.pop();
            let to = whole.clone().sliced(axis, element * dilation, windows, stride);
            let kernel = Loop {
                sizes: from.sizes.clone(),
                loads: vec![to.clone(), from],
                steps: vec![Step::Binary(Binary::Add, [Operand::Load(0), Operand::Load(1)])],
                stores: vec![(0, to)],
                ..Loop::default()
            };
            self.push(node.dtype, Kernel::Loop(kernel), out);
        }
        whole
    }

    /// Copies outputs that are views or inputs into buffers of their own, and gives every buffer its place.
    fn finish(mut self) -> Plan {
        let mut outputs = Vec::new();
        for (name, id) in self.graph.outputs() {
            let (shape, dtype) = (self.graph.shape(*id), self.graph.dtype(*id));
            let view = self.view(*id);
            let own = matches!(self.buffers[view.buffer].kind, BufferKind::Value { output: false })
                && view == View::whole(view.buffer, &shape);
            let buffer = if own {
                view.buffer
            } else {
                let buffer = self.buffer(dtype, shape.elements(), BufferKind::Value { output: false });
                self.copy(dtype, view, View::whole(buffer, &shape));
                buffer
            };
            self.buffers[buffer].kind = BufferKind::Value { output: true };
            outputs.push((name.clone(), shape, buffer));
        }
        let memory = arena::place(&mut self.buffers, &self.kernels);
        Plan { buffers: self.buffers, kernels: self.kernels, outputs, memory }
    }
}
