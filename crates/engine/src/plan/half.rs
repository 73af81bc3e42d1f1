//! Values that are stored in 16 bits: when they are rounded, and how instructions other than loops read them.
//!
//! A value that the backward pass needs is rounded as soon as it is computed. Its `f32` memory is then free after the last
//! reader of the forward pass. A matrix multiplication reads it in slices along the inner axis: each slice is widened to a
//! small buffer, and its product is accumulated.

use super::{BufferKind, MatMul, Planner, View};
use crate::dtype::DType;
use crate::graph::{Graph, Id, Op};
use crate::kernel::half::Half;
use crate::parallel::chunk_range;
use crate::shape::Shape;

/// Elements of the slice of an operand that is widened for a matrix multiplication: it fits into the L2 cache.
const SLICE_LEN: usize = 1 << 14;

/// Least length of the inner axis of a slice. Each slice is a matrix multiplication of its own, which reads and writes the
/// whole result.
const MIN_INNER: usize = 128;

/// The format that the value of a node is stored in, if it is a 16-bit format.
pub(super) fn format(graph: &Graph, id: Id) -> Option<Half> {
    match graph.node(id) {
        node if node.dtype != DType::F32 => None,
        node => match node.op {
            Op::Unary(op) => op.rounds_to(),
            _ => None,
        },
    }
}

/// For each node the nodes that are its value in 16 bits.
pub(super) fn roundings(graph: &Graph) -> Vec<Vec<Id>> {
    let mut roundings = vec![Vec::new(); graph.nodes().len()];
    for id in graph.ids().filter(|&id| format(graph, id).is_some()) {
        roundings[graph.node(id).args[0].0 as usize].push(id);
    }
    roundings
}

impl Planner<'_> {
    /// A new buffer for the value of a node in 16 bits.
    pub(super) fn half_value(&mut self, id: Id, format: Half) -> View {
        let out = self.value(id);
        self.buffers[out.buffer].half = Some(format);
        out.moved(out.buffer, Some(format))
    }

    /// The memory of an operand that a loop can overwrite with the value of a node: a product that only the loop reads. Programs
    /// without 16-bit values use new memory, which is faster.
    pub(super) fn overwritten(&self, id: Id, instruction: usize) -> Option<View> {
        let node = self.graph.node(id);
        let is_free = |arg: Id, view: &View| {
            self.graph.node(arg).op == Op::MatMul
                && self.single_reader[arg.0 as usize]
                && *view == View::whole(view.buffer, node.dtype, node.shape)
                && self.complete_after[view.buffer] <= instruction
        };
        let mut stack = if self.saves_memory { node.args.clone() } else { Vec::new() };
        while let Some(arg) = stack.pop() {
            match self.views[arg.0 as usize] {
                Some(view) if is_free(arg, &view) => return Some(view),
                None if self.fused[arg.0 as usize] => stack.extend(&self.graph.node(arg).args),
                _ => {}
            }
        }
        None
    }

    /// A copy in `f32` of a tensor that is stored in 16 bits.
    pub(super) fn widened(&mut self, x: View) -> View {
        if let Some((dense, inverse)) = in_memory_order(&x) {
            let out = self.scratch_like(&dense);
            self.copy(dense, out);
            return out.permuted(&inverse);
        }
        // Elements that are shown repeatedly are widened once, with all others of the buffer.
        let whole = Shape::from_checked(&[self.buffers[x.buffer].elements]);
        let from = View::whole(x.buffer, x.dtype, whole).moved(x.buffer, x.half);
        let out = self.scratch_like(&from);
        self.copy(from, out);
        x.moved(out.buffer, None)
    }

    /// A new contiguous buffer with the sizes of a tensor.
    fn scratch_like(&mut self, x: &View) -> View {
        self.buffer(x.dtype, x.sizes, BufferKind::Value { output: false })
    }

    /// Multiplies two nodes. Operands that are stored in 16 bits are widened slice by slice.
    pub(super) fn multiply(&mut self, operands: [Id; 2], out: View, accumulate: bool) {
        let [a, b] = operands.map(|id| match self.stored(id) {
            x if x.half.is_some() && in_memory_order(&x).is_none() => self.widened(x),
            x => x,
        });
        let axes = a.sizes.axes();
        let inner = a.sizes[axes - 1];
        let narrow_len = |x: &View| if x.half.is_some() { x.elements() } else { 0 };
        let longest = narrow_len(&a).max(narrow_len(&b));
        let slices = longest.div_ceil(SLICE_LEN).clamp(1, (inner / MIN_INNER).max(1));
        // The slices of an operand share a buffer.
        let buffers = [a, b].map(|x| {
            let len = narrow_len(&x) / inner.max(1) * inner.div_ceil(slices);
            x.half.map(|_| self.scratch(x.dtype, len).buffer)
        });
        for slice in 0..slices {
            let range = chunk_range(inner, slice, slices);
            let mut operands =
                [(a, axes - 1), (b, axes - 2)].map(|(x, axis)| x.sliced(axis, range.start, range.len(), 1));
            for (x, buffer) in operands.iter_mut().zip(buffers) {
                if let Some((buffer, (sorted, inverse))) = buffer.zip(in_memory_order(x)) {
                    let out = View::whole(buffer, x.dtype, sorted.sizes);
                    self.copy(sorted, out);
                    *x = out.permuted(&inverse);
                }
            }
            let [a, b] = operands;
            self.push(MatMul::new(a, b, out, accumulate || slice > 0), out);
        }
    }
}

/// A tensor with its axes in the order of memory, and the permutation back; `None` if it shows elements repeatedly.
fn in_memory_order(x: &View) -> Option<(View, Vec<usize>)> {
    let mut order: Vec<usize> = (0..x.sizes.axes()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(x.strides()[axis]));
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    let sorted = x.permuted(&order);
    // Every stride exceeds the distance between the first and the last element of the axes after it.
    let mut span = 0;
    let is_injective = sorted.sizes.iter().zip(sorted.strides()).rev().all(|(&size, &stride)| {
        let exceeds = size <= 1 || stride > span;
        span += stride * size.saturating_sub(1);
        exceeds
    });
    is_injective.then_some((sorted, inverse))
}
