//! The planner: from a graph in canonical form to a sequence of instructions on buffers in one arena per element type.
//!
//! ```text
//! reshape, expand, permute, slice, unfold:  views, without any instruction
//! element-wise operations:                  fused into loops of the same shape
//! reductions:                               the end of a loop
//! matmul:                                   one instruction on views (a transposed operand is a matter of strides), with
//!                                           a fused bias and ReLU; sums of products are accumulated in place
//! pad, concat, fold:                        loops that write to slices of a buffer
//! gather, scatter, cumsum, arg, cast:       one instruction each
//! composite operations:                     as their `Composite::plan` says
//! ```
//!
//! An element-wise operation whose only reader is another one of the same shape is computed where it is read. All others
//! are stored, by the loop that computes their operands if that has the same shape.
//!
//! A value that is rounded to a 16-bit format is stored in 16 bits, right after its operand is computed, so that the memory
//! of the operand can be reused. Loops widen it as they load it; for all other instructions it is widened to a temporary
//! buffer (`half`).

mod arena;
mod fuse;
mod half;
mod matmul;

use std::sync::Arc;

use crate::dtype::DType;
use crate::graph::{Graph, Id, Op, Window};
use crate::instruction::matmul::SecondOperand;
use crate::instruction::memory::ARENAS;
use crate::instruction::{
    ArgReduce, Cast, CumSum, Execute, Gather, Instruction, Loop, MatMul, ScatterAdd, View, Zero,
};
use crate::kernel::half::Half;
use crate::program::weights::{Residence, Weights};
use crate::shape::Shape;

use matmul::Role;

/// A range of the arena of its type.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub dtype: DType,
    /// The 16-bit format that the elements are stored in, if they are.
    pub half: Option<Half>,
    pub elements: usize,
    pub kind: BufferKind,
    /// The first element in the arena.
    pub offset: usize,
}

/// What a buffer holds.
#[derive(Clone, Debug)]
pub(crate) enum BufferKind {
    /// An input. Its memory is not reused.
    Input(String),
    /// An input that is part of shared weights. It is not laid out: plain weights have a fixed offset, packed ones none.
    Weights { name: String, is_packed: bool },
    /// Constants, by their bits. Its memory is not reused.
    Data(Arc<[u64]>),
    /// An intermediate value, whose memory is reused, or an output, whose memory is not.
    Value { output: bool },
}

/// Instructions in order, and the memory they work on.
#[derive(Debug)]
pub(crate) struct Plan {
    pub buffers: Vec<Buffer>,
    pub instructions: Vec<Instruction>,
    /// The buffers that each instruction reads or writes.
    pub touched: Vec<Vec<usize>>,
    /// Name, shape and buffer of each output.
    pub outputs: Vec<(String, Shape, usize)>,
    /// Elements of each arena, in the order of [`DType::ALL`], 16-bit numbers last.
    pub memory: [usize; ARENAS],
    /// Largest number of bytes of intermediate values, outputs excluded, that exist at the same time.
    pub peak: usize,
    /// Matrix multiplications whose second operand is a packed matrix of shared weights, and the index of the matrix.
    pub packed: Vec<(usize, usize)>,
}

impl Plan {
    /// Plans a graph in canonical form, some inputs of which may be shared weights.
    pub fn new(graph: &Graph, weights: Option<&Weights>) -> Plan {
        let mut planner = Planner::new(graph);
        let roundings = half::roundings(graph);
        for id in graph.ids() {
            planner.plan(id);
            roundings[id.0 as usize].iter().for_each(|&rounding| planner.plan(rounding));
        }
        planner.finish(weights)
    }

    /// The matrix multiplications that read a buffer, if each of them reads it as one packable second operand and nothing
    /// else reads it. Offsets are relative to the buffer before the layout, and to the arena afterwards.
    pub fn second_operands(&self, buffer: usize) -> Option<Vec<(usize, SecondOperand)>> {
        let readers = self.touched.iter().enumerate().filter(|(_, touched)| touched.contains(&buffer));
        readers
            .map(|(index, _)| match &self.instructions[index] {
                Instruction::MatMul(matmul) => Some((index, matmul.second_operand(buffer)?)),
                _ => None,
            })
            .collect()
    }

    /// Whether a buffer is not in the arena, because all its readers read packed weights.
    pub fn is_packed(&self, buffer: usize) -> bool {
        matches!(self.buffers[buffer].kind, BufferKind::Weights { is_packed: true, .. })
    }

    /// Takes the inputs that are shared weights out of the arena.
    fn bind(&mut self, weights: &Weights) {
        for index in 0..self.buffers.len() {
            let BufferKind::Input(name) = &self.buffers[index].kind else { continue };
            let Some(residence) = weights.residence(name, || self.second_operands(index)) else { continue };
            let (name, is_packed) = (name.clone(), matches!(residence, Residence::Packed(_)));
            match residence {
                Residence::Plain(offset) => self.buffers[index].offset = offset,
                Residence::Packed(operands) => self.packed.extend(operands),
            }
            self.buffers[index].kind = BufferKind::Weights { name, is_packed };
        }
        self.packed.sort_unstable();
    }
}

/// An unfinished plan.
pub(crate) struct Planner<'a> {
    pub graph: &'a Graph,
    /// Whether each node is computed inside the loop of its only reader.
    fused: Vec<bool>,
    /// Whether each node has a single reader and is not an output.
    single_reader: Vec<bool>,
    views: Vec<Option<View>>,
    buffers: Vec<Buffer>,
    instructions: Vec<Instruction>,
    /// The number of instructions after which each buffer is complete.
    complete_after: Vec<usize>,
    /// For stored nodes of loops: the instruction that computes the node, and the slot inside it.
    slots: Vec<Option<(usize, usize)>>,
    /// The part of each node in a sum of products.
    roles: Vec<Role>,
    /// Whether some values are stored in 16 bits: memory is then scarce.
    saves_memory: bool,
}

/// Longest chain of operations that are fused into one another. Bounds the tiles that share the L1 cache, and the depth of
/// recursion.
const MAX_FUSED_DEPTH: usize = 64;

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
        let only_reader = |id: Id| match readers[id.0 as usize][..] {
            [reader] if !outputs[id.0 as usize] => Some(reader),
            _ => None,
        };
        let roles = matmul::roles(graph, |id| only_reader(id).is_some());
        let can_fuse = |id: Id| match only_reader(id).filter(|_| half::format(graph, id).is_none()) {
            Some(reader) if is_elementwise(&graph.node(id).op) && roles[id.0 as usize] == Role::None => {
                let reader = graph.node(reader);
                is_elementwise(&reader.op) || matches!(reader.op, Op::Reduce(..))
            }
            _ => false,
        };
        let (mut fused, mut depths) = (vec![false; count], vec![0; count]);
        for id in graph.ids() {
            let index = |id: &Id| id.0 as usize;
            let args = graph.node(id).args.iter().map(index);
            let depth = args.filter(|&arg| fused[arg]).map(|arg| depths[arg] + 1).max().unwrap_or(0);
            (fused[index(&id)], depths[index(&id)]) = (can_fuse(id) && depth < MAX_FUSED_DEPTH, depth);
        }
        let single_reader = graph.ids().map(|id| only_reader(id).is_some()).collect();
        Planner {
            graph,
            fused,
            single_reader,
            roles,
            views: vec![None; count],
            buffers: Vec::new(),
            instructions: Vec::new(),
            complete_after: Vec::new(),
            slots: vec![None; count],
            saves_memory: graph.ids().any(|id| half::format(graph, id).is_some()),
        }
    }

    /// A new buffer as a contiguous tensor.
    fn buffer(&mut self, dtype: DType, shape: Shape, kind: BufferKind) -> View {
        self.buffers.push(Buffer { dtype, half: None, elements: shape.elements(), kind, offset: 0 });
        self.complete_after.push(0);
        View::whole(self.buffers.len() - 1, dtype, shape)
    }

    /// A new buffer for the value of a node.
    pub fn value(&mut self, id: Id) -> View {
        self.buffer(self.graph.dtype(id), self.graph.shape(id), BufferKind::Value { output: false })
    }

    /// A new buffer for the first indices of axis 0 of a node, if nothing reads the others.
    pub fn first_of(&mut self, id: Id, count: usize) -> View {
        let shape = self.graph.shape(id).with(0, count);
        self.buffer(self.graph.dtype(id), shape, BufferKind::Value { output: false })
    }

    /// A new buffer for temporary values of one instruction.
    pub fn scratch(&mut self, dtype: DType, elements: usize) -> View {
        self.buffer(dtype, Shape::from_checked(&[elements]), BufferKind::Value { output: false })
    }

    /// Appends an instruction, the last one so far that writes to `out`.
    fn push(&mut self, instruction: impl Into<Instruction>, out: View) {
        self.instructions.push(instruction.into());
        self.complete_after[out.buffer] = self.instructions.len();
    }

    /// Appends an instruction that computes `out`.
    pub fn compute(&mut self, instruction: impl Execute + 'static, out: View) -> View {
        self.push(Instruction::Other(Box::new(instruction)), out);
        out
    }

    /// The view of a node that is in memory, widened if it is stored in 16 bits.
    pub fn view(&mut self, id: Id) -> View {
        let view = self.stored(id);
        if view.half.is_some() { self.widened(view) } else { view }
    }

    /// The view of a node as it is stored. Constants are stored when something other than a loop reads them.
    fn stored(&mut self, id: Id) -> View {
        if let Some(view) = self.views[id.0 as usize] {
            return view;
        }
        let Op::Constant(scalar) = self.graph.node(id).op else {
            unreachable!("operands are planned before they are read")
        };
        let kind = BufferKind::Data([scalar.bits()].into());
        let view = self.buffer(self.graph.dtype(id), Shape::SCALAR, kind);
        self.views[id.0 as usize] = Some(view);
        view
    }

    /// The view of a node, copied if it is not contiguous.
    pub fn contiguous(&mut self, id: Id) -> View {
        let x = self.stored(id);
        if x.is_contiguous() && x.half.is_none() {
            return x;
        }
        let out = self.value(id);
        self.copy(x, out);
        out
    }

    /// Whether part of a node is read that is not a slice along its first axis, or a slice whose first or last index is
    /// `needed`.
    pub fn is_read(&self, id: Id, needed: impl Fn(usize) -> bool) -> bool {
        let is_output = self.graph.outputs().iter().any(|(_, output)| *output == id);
        let mut readers = self.graph.nodes().iter().filter(|node| node.args.contains(&id));
        is_output
            || readers.any(|node| match node.op {
                Op::Slice { axis: 0, begin, .. } => needed(begin) || needed(begin + node.shape[0].max(1) - 1),
                _ => true,
            })
    }

    fn plan(&mut self, id: Id) {
        let node = self.graph.node(id);
        let (shape, dtype) = (node.shape, node.dtype);
        let arg = |i: usize| node.args[i];
        let view = match &node.op {
            Op::Constant(_) => return,
            // Roundings are planned early.
            _ if self.views[id.0 as usize].is_some() => return,
            _ if self.fused[id.0 as usize] || self.roles[id.0 as usize] == Role::Addend => return,
            _ if self.roles[id.0 as usize] == Role::Sum => self.sum_of_products(id),
            Op::Input(name) => self.buffer(dtype, shape, BufferKind::Input(name.to_string())),
            Op::Data(bits) => self.buffer(dtype, shape, BufferKind::Data(bits.clone())),
            Op::Unary(_) | Op::Binary(_) | Op::Select => {
                self.fuse_epilogue(id).unwrap_or_else(|| self.store_loop(id))
            }
            Op::Reduce(op, axes) => self.reduce_loop(id, *op, axes),
            Op::Expand => self.stored(arg(0)).expanded(shape),
            Op::Permute(order) => self.stored(arg(0)).permuted(order),
            &Op::Slice { axis, begin, step } => self.stored(arg(0)).sliced(axis, begin, shape[axis], step),
            Op::Unfold(window) => self.stored(arg(0)).unfolded(window),
            Op::Reshape => {
                let x = self.stored(arg(0));
                x.reshaped(shape).unwrap_or_else(|| {
                    let out = self.value(id);
                    self.copy(x, View::whole(out.buffer, dtype, x.sizes));
                    out
                })
            }
            &Op::Pad { axis, before, .. } => {
                let x = self.stored(arg(0));
                let out = self.zeros(id);
                self.copy(x, out.sliced(axis, before, x.sizes[axis], 1));
                out
            }
            &Op::Concat(axis) => {
                let out = self.value(id);
                let mut begin = 0;
                for &part in &node.args {
                    let x = self.stored(part);
                    self.copy(x, out.sliced(axis, begin, x.sizes[axis], 1));
                    begin += x.sizes[axis];
                }
                out
            }
            Op::Fold(window, _) => self.fold(id, *window),
            Op::MatMul => {
                let out = self.value(id);
                self.multiply([arg(0), arg(1)], out, false);
                out
            }
            Op::Cast => {
                let (x, out) = (self.view(arg(0)), self.value(id));
                self.compute(Cast { x, out }, out)
            }
            &Op::Gather(axis) => {
                let (x, indices) = (self.view(arg(0)), self.view(arg(1)));
                let out = self.value(id);
                self.compute(Gather { x, indices, axis, out }, out)
            }
            &Op::ScatterAdd { axis, .. } => {
                let (x, indices) = (self.view(arg(0)), self.view(arg(1)));
                let out = self.zeros(id);
                self.compute(ScatterAdd { x, indices, axis, out }, out)
            }
            &Op::CumSum { reverse } => {
                let (x, out) = (self.view(arg(0)), self.value(id));
                self.compute(CumSum { x, reverse, out }, out)
            }
            &Op::ArgReduce { largest, axis } => {
                let (x, out) = (self.view(arg(0)), self.value(id));
                self.compute(ArgReduce { x, axis, largest, out }, out)
            }
            other => {
                let composite = other.composite().expect("every other operation is composite");
                composite.plan(self, id)
            }
        };
        self.views[id.0 as usize] = Some(view);
    }

    /// A buffer of zeros for a node.
    fn zeros(&mut self, id: Id) -> View {
        let out = self.value(id);
        self.compute(Zero { out }, out)
    }

    /// Copies a tensor.
    fn copy(&mut self, x: View, out: View) {
        self.push(Loop::copy(x, out), out);
    }

    /// Adds windows to zeros: one loop for each element of a window, because windows overlap.
    fn fold(&mut self, id: Id, window: Window) -> View {
        let x = self.stored(self.graph.node(id).args[0]);
        let out = self.zeros(id);
        let (axis, windows) = (out.sizes.axes() - 1, x.sizes[x.sizes.axes() - 2]);
        for element in 0..window.size {
            let from = x.sliced(axis + 1, element, 1, 1).leading(axis + 1);
            let to = out.sliced(axis, element * window.dilation, windows, window.stride);
            self.push(Loop::add_to(from, to), out);
        }
        out
    }

    /// Copies outputs that are views or inputs to buffers of their own, and assigns offsets to all buffers.
    fn finish(mut self, weights: Option<&Weights>) -> Plan {
        let mut outputs = Vec::new();
        for (name, id) in self.graph.outputs() {
            let shape = self.graph.shape(*id);
            let mut view = self.view(*id);
            let is_own = matches!(self.buffers[view.buffer].kind, BufferKind::Value { output: false })
                && view == View::whole(view.buffer, view.dtype, shape);
            if !is_own {
                let out = self.value(*id);
                self.copy(view, out);
                view = out;
            }
            self.buffers[view.buffer].kind = BufferKind::Value { output: true };
            outputs.push((name.clone(), shape, view.buffer));
        }
        let Planner { buffers, mut instructions, .. } = self;
        let touched: Vec<Vec<usize>> = instructions.iter_mut().map(Instruction::buffers).collect();
        let (memory, packed) = ([0; ARENAS], Vec::new());
        let mut plan = Plan { buffers, instructions, touched, outputs, memory, peak: 0, packed };
        if let Some(weights) = weights {
            plan.bind(weights);
        }
        let reserved = weights.map_or(0, Weights::plain_len);
        let arena::Layout { memory, peak } = arena::lay_out(&mut plan.buffers, &plan.touched, reserved);
        (plan.memory, plan.peak) = (memory, peak);
        for instruction in &mut plan.instructions {
            instruction.place(|buffer| plan.buffers[buffer].offset);
        }
        plan
    }
}
