//! Sums of products: what is added up is never stored on its own.
//!
//! ```text
//! a b + c d             the second product is added to the first where that lies
//! sum over a batch      all products of the batch are added up in one place
//! pad(a b) + pad(c d)   each is added to its part of zeros (the gradient of overlapping views)
//! ```
//!
//! A row that is added to all rows of a product, and a relu behind that, are done while the product is in the first cache.

use super::{Kernel, Planner, View};
use crate::dtype::DType;
use crate::graph::{Graph, Id, Op};
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

/// What a node has to do with a sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing.
    None,
    /// It is such a sum, and stored.
    Sum,
    /// It is added up where such a sum lies.
    Part,
}

/// The roles of all nodes. `is_own`: a node has one reader and is no output.
pub(super) fn roles(graph: &Graph, is_own: impl Fn(Id) -> bool) -> Vec<Role> {
    let mut roles = vec![Role::None; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let parts: &[Id] = match &node.op {
            Op::Binary(Binary::Add) => &node.args,
            Op::Reduce(Reduction::Sum, _) if is_batch_sum(graph, id) => &node.args,
            _ => continue,
        };
        // A sum of products can be a part itself.
        let joins = |part: Id| {
            is_own(part) && (roles[part.0 as usize] == Role::Sum || is_product(graph, part, &is_own))
        };
        if parts.iter().all(|&part| joins(part)) && (parts.len() == 1 || parts[0] != parts[1]) {
            for &part in parts {
                mark(graph, part, &mut roles);
            }
            roles[id.0 as usize] = Role::Sum;
        }
    }
    roles
}

/// Marks a part and what leads to its product.
fn mark(graph: &Graph, id: Id, roles: &mut [Role]) {
    let is_sum = roles[id.0 as usize] == Role::Sum;
    roles[id.0 as usize] = Role::Part;
    let node = graph.node(id);
    if !is_sum && node.op != Op::MatMul {
        mark(graph, node.args[0], roles);
    }
}

/// Whether a node is the sum of the products of a batch.
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

/// Whether a node is a product, perhaps padded, perhaps in another shape.
fn is_product(graph: &Graph, id: Id, is_own: &impl Fn(Id) -> bool) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::MatMul => true,
        Op::Pad { .. } => is_own(node.args[0]) && is_padded(graph, node.args[0], is_own),
        Op::Reshape => is_own(node.args[0]) && is_product(graph, node.args[0], is_own),
        _ => false,
    }
}

/// Whether a node is a product, perhaps padded: its place in what it is added to needs no other shape.
fn is_padded(graph: &Graph, id: Id, is_own: &impl Fn(Id) -> bool) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::MatMul => true,
        Op::Pad { .. } => is_own(node.args[0]) && is_padded(graph, node.args[0], is_own),
        _ => false,
    }
}

impl Planner<'_> {
    /// Stores a sum of products.
    pub(super) fn sum_of_products(&mut self, id: Id) -> View {
        let mut parts = Vec::new();
        self.collect_parts(id, &mut parts);
        let dtype = self.graph.dtype(id);
        let shape = self.graph.shape(id);
        // One that covers everything comes first, or else zeros do.
        let first = parts.iter().position(|&part| self.covers(part));
        let out = if let Some(first) = first {
            parts.swap(0, first);
            self.value(id)
        } else {
            self.zeros(id)
        };
        for (i, &part) in parts.iter().enumerate() {
            self.add_product(dtype, part, View::whole(out, &shape), i > 0 || first.is_none());
        }
        View::whole(out, &shape)
    }

    /// Makes an addition of a row, and a relu behind it, part of the product it belongs to, if nothing else reads that.
    pub(super) fn finish_product(&mut self, id: Id) -> Option<View> {
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
            let kernel = self.product_of(product)?;
            let bias = self.row_view(row, &shape, kernel)?;
            let Kernel::MatMul { out, bias: finish, .. } = &mut self.kernels[kernel].1 else { return None };
            *finish = Some((bias, relu));
            Some(View::whole(out.buffer, &shape))
        })
    }

    /// The kernel that computes a node, if that is one plain product, perhaps in another shape, that only one node reads.
    fn product_of(&self, id: Id) -> Option<usize> {
        let node = self.graph.node(id);
        if !self.own[id.0 as usize] {
            return None;
        }
        match node.op {
            Op::Reshape if node.shape.last() == self.graph.shape(node.args[0]).last() => {
                self.product_of(node.args[0])
            }
            Op::MatMul if self.roles[id.0 as usize] == Role::None => {
                let buffer = self.views[id.0 as usize].as_ref()?.buffer;
                let kernel = self.written[buffer].checked_sub(1)?;
                matches!(self.kernels[kernel].1, Kernel::MatMul { .. }).then_some(kernel)
            }
            _ => None,
        }
    }

    /// The view of a node that is the same row everywhere, if it is complete before a kernel.
    fn row_view(&mut self, id: Id, shape: &Shape, kernel: usize) -> Option<View> {
        if self.uniform(id).is_some() {
            return None;
        }
        let view = self.views[id.0 as usize].clone()?;
        let (&by_column, by_row) = view.strides.split_last()?;
        let is_row = by_column == 1 && by_row.iter().all(|&stride| stride == 0) && view.sizes == **shape;
        (is_row && self.written[view.buffer] <= kernel).then_some(view)
    }

    /// The products of a sum, in order.
    fn collect_parts(&self, id: Id, parts: &mut Vec<Id>) {
        let node = self.graph.node(id);
        match node.op {
            Op::Binary(Binary::Add) => node.args.iter().for_each(|&arg| self.collect_parts(arg, parts)),
            _ => parts.push(id),
        }
    }

    /// Whether a part of a sum writes all of it.
    fn covers(&self, part: Id) -> bool {
        let node = self.graph.node(part);
        match node.op {
            Op::MatMul | Op::Reduce(..) => true,
            Op::Reshape => self.covers(node.args[0]),
            _ => false,
        }
    }

    /// Adds a product to a part of a sum, or writes it there.
    fn add_product(&mut self, dtype: DType, id: Id, to: View, accumulate: bool) {
        let node = self.graph.node(id);
        let from = node.args[0];
        match node.op {
            Op::Reshape => {
                let to = to.reshaped(&self.graph.shape(from)).expect("a whole buffer has any shape");
                self.add_product(dtype, from, to, accumulate);
            }
            Op::Pad { axis, before, .. } => {
                let count = self.graph.shape(from)[axis];
                self.add_product(dtype, from, to.sliced(axis, before, count, 1), accumulate);
            }
            Op::Reduce(..) => {
                let to = to.expanded(&self.graph.shape(from));
                self.add_product(dtype, from, to, accumulate);
            }
            _ => {
                let (a, b) = (self.view(from), self.view(node.args[1]));
                let buffer = to.buffer;
                self.push(dtype, Kernel::MatMul { a, b, out: to, accumulate, bias: None }, buffer);
            }
        }
    }
}
