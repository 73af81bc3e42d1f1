//! Fusion around matrix multiplications: sums of products are accumulated in place, and no addend is stored on its own.
//!
//! ```text
//! a b + c d             the second product is accumulated onto the first
//! sum over a batch      all products of the batch are accumulated in one place
//! pad(a b) + pad(c d)   each is accumulated into a slice of zeros (the gradient of overlapping views)
//! ```
//!
//! A bias and a ReLU after a product become its epilogue, which runs while the product is in the L1 cache.

use super::{MatMul, Planner, View};
use crate::dtype::DType;
use crate::graph::{Graph, Id, Op};
use crate::instruction::Instruction;
use crate::instruction::matmul::Bias;
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

/// The part of a node in a sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    None,
    /// It is a sum of products, and stored.
    Sum,
    /// It is accumulated into such a sum.
    Addend,
}

/// The roles of all nodes. `has_single_reader`: whether a node has a single reader and is not an output.
pub(super) fn roles(graph: &Graph, has_single_reader: impl Fn(Id) -> bool) -> Vec<Role> {
    let mut roles = vec![Role::None; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let addends: &[Id] = match &node.op {
            Op::Binary(Binary::Add) => &node.args,
            Op::Reduce(Reduction::Sum, _) if is_batch_sum(graph, id) => &node.args,
            _ => continue,
        };
        // A sum of products can be an addend itself.
        let fits = |id: Id| {
            has_single_reader(id)
                && (roles[id.0 as usize] == Role::Sum || is_product(graph, id, &has_single_reader))
        };
        if addends.iter().all(|&addend| fits(addend)) && (addends.len() == 1 || addends[0] != addends[1]) {
            for &addend in addends {
                mark(graph, addend, &mut roles);
            }
            roles[id.0 as usize] = Role::Sum;
        }
    }
    roles
}

/// Marks an addend and the nodes between it and its product.
fn mark(graph: &Graph, id: Id, roles: &mut [Role]) {
    let is_sum = roles[id.0 as usize] == Role::Sum;
    roles[id.0 as usize] = Role::Addend;
    let node = graph.node(id);
    if !is_sum && node.op != Op::MatMul {
        mark(graph, node.args[0], roles);
    }
}

/// Whether a node sums the products of a batch.
fn is_batch_sum(graph: &Graph, id: Id) -> bool {
    let node = graph.node(id);
    match &node.op {
        Op::Reduce(Reduction::Sum, axes) => {
            let product = graph.node(node.args[0]);
            product.op == Op::MatMul && axes.iter().all(|&axis| axis + 2 < product.shape.axes())
        }
        _ => false,
    }
}

/// Whether a node is a product, possibly padded, possibly reshaped.
fn is_product(graph: &Graph, id: Id, has_single_reader: &impl Fn(Id) -> bool) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::MatMul => true,
        Op::Pad { .. } => {
            has_single_reader(node.args[0]) && is_padded(graph, node.args[0], has_single_reader)
        }
        Op::Reshape => has_single_reader(node.args[0]) && is_product(graph, node.args[0], has_single_reader),
        _ => false,
    }
}

/// Whether a node is a product, possibly padded, but not reshaped: its place in the sum is a slice.
fn is_padded(graph: &Graph, id: Id, has_single_reader: &impl Fn(Id) -> bool) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::MatMul => true,
        Op::Pad { .. } => {
            has_single_reader(node.args[0]) && is_padded(graph, node.args[0], has_single_reader)
        }
        _ => false,
    }
}

impl Planner<'_> {
    /// Computes a sum of products.
    pub(super) fn sum_of_products(&mut self, id: Id) -> View {
        let mut addends = Vec::new();
        self.collect_addends(id, &mut addends);
        // One that covers the whole sum comes first; if there is none, zeros do.
        let first = addends.iter().position(|&addend| self.is_whole(addend));
        let out = if let Some(first) = first {
            addends.swap(0, first);
            self.value(id)
        } else {
            self.zeros(id)
        };
        for (i, &addend) in addends.iter().enumerate() {
            self.accumulate(addend, out, i > 0 || first.is_none());
        }
        out
    }

    /// Makes the addition of a row, and a ReLU after it, the epilogue of the product they belong to, if that has no other
    /// reader.
    pub(super) fn fuse_epilogue(&mut self, id: Id) -> Option<View> {
        let relu = self.graph.node(id).op == Op::Unary(Unary::Relu);
        let sum = if relu { self.graph.node(id).args[0] } else { id };
        let node = self.graph.node(sum);
        let is_part = id == sum || self.fused[sum.0 as usize];
        if node.op != Op::Binary(Binary::Add) || node.dtype != DType::F32 || !is_part {
            return None;
        }
        let (first, second) = (node.args[0], node.args[1]);
        let shape = node.shape;
        [(first, second), (second, first)].into_iter().find_map(|(product, row)| {
            let index = self.product_of(product)?;
            let row = self.row_view(row, &shape, index)?;
            let Instruction::MatMul(matmul) = &mut self.instructions[index] else { return None };
            matmul.bias = Some(Bias { row, relu });
            Some(View::whole(matmul.out.buffer, node.dtype, shape))
        })
    }

    /// The instruction that computes a node, if it is a plain product, possibly reshaped, with a single reader.
    fn product_of(&self, id: Id) -> Option<usize> {
        let node = self.graph.node(id);
        if !self.single_reader[id.0 as usize] {
            return None;
        }
        match node.op {
            Op::Reshape if node.shape.last() == self.graph.shape(node.args[0]).last() => {
                self.product_of(node.args[0])
            }
            Op::MatMul if self.roles[id.0 as usize] == Role::None => {
                let buffer = self.views[id.0 as usize].as_ref()?.buffer;
                let index = self.complete_after[buffer].checked_sub(1)?;
                let is_plain = |matmul: &MatMul| !matmul.accumulate;
                matches!(&self.instructions[index], Instruction::MatMul(matmul) if is_plain(matmul))
                    .then_some(index)
            }
            _ => None,
        }
    }

    /// The view of a node that is one row, broadcast, if it is complete before an instruction.
    fn row_view(&mut self, id: Id, shape: &Shape, instruction: usize) -> Option<View> {
        if self.uniform(id).is_some() {
            return None;
        }
        let view = self.views[id.0 as usize].filter(|view| view.half.is_none())?;
        let (&by_column, by_row) = view.strides().split_last()?;
        let is_row = by_column == 1 && by_row.iter().all(|&stride| stride == 0) && view.sizes == *shape;
        (is_row && self.complete_after[view.buffer] <= instruction).then_some(view)
    }

    /// The addends of a sum, in order.
    fn collect_addends(&self, id: Id, addends: &mut Vec<Id>) {
        let node = self.graph.node(id);
        match node.op {
            Op::Binary(Binary::Add) => node.args.iter().for_each(|&arg| self.collect_addends(arg, addends)),
            _ => addends.push(id),
        }
    }

    /// Whether an addend covers the whole sum.
    fn is_whole(&self, addend: Id) -> bool {
        let node = self.graph.node(addend);
        match node.op {
            Op::MatMul | Op::Reduce(..) => true,
            Op::Reshape => self.is_whole(node.args[0]),
            _ => false,
        }
    }

    /// Adds an addend to a sum, or writes it there.
    fn accumulate(&mut self, id: Id, out: View, accumulate: bool) {
        let node = self.graph.node(id);
        let from = node.args[0];
        let shape = self.graph.shape(from);
        match node.op {
            Op::Reshape => {
                let out = out.reshaped(shape).expect("a contiguous tensor can have any shape");
                self.accumulate(from, out, accumulate);
            }
            Op::Pad { axis, before, .. } => {
                self.accumulate(from, out.sliced(axis, before, shape[axis], 1), accumulate);
            }
            Op::Reduce(..) => self.accumulate(from, out.expanded(shape), accumulate),
            _ => self.multiply([from, node.args[1]], out, accumulate),
        }
    }
}
