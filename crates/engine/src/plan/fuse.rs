//! Element-wise operations and reductions: which loop a node becomes a part of, and what the loop reads for it.

use super::{Kernel, Loop, Operand, Planner, Reduce, Step, View, is_elementwise};
use crate::dtype::DType;
use crate::graph::{Id, Op, Scalar};
use crate::ops::Reduction;
use crate::shape::Shape;

impl Planner<'_> {
    /// An element-wise node as the end of a loop that stores it.
    pub(super) fn store_loop(&mut self, id: Id) -> View {
        let node = self.graph.node(id);
        let (kernel, slot) = self.join(id, &node.shape, node.dtype);
        let out = self.value(id);
        let view = View::whole(out, &node.shape);
        if let Kernel::Loop(body) = &mut self.kernels[kernel].1 {
            body.stores.push((slot, view.clone()));
        }
        self.written[out] = kernel + 1;
        self.slots[id.0 as usize] = Some((kernel, slot));
        view
    }

    /// A reduction as the end of a loop.
    pub(super) fn reduce_loop(&mut self, id: Id, op: Reduction, axes: &[usize]) -> View {
        let node = self.graph.node(id);
        let x = node.args[0];
        let shape = self.graph.shape(x);
        let (kernel, slot) = self.join(x, &shape, node.dtype);
        let out = self.value(id);
        if let Kernel::Loop(body) = &mut self.kernels[kernel].1 {
            body.reduce = Some(Reduce { op, slot, axes: axes.to_vec(), out });
        }
        self.written[out] = kernel + 1;
        View::whole(out, &node.shape)
    }

    /// Adds a node, with what is fused into it, to the last kernel that its operands come from if that is a loop of the
    /// same shape and type, or else to a new loop. Returns the kernel and the slot of the node.
    fn join(&mut self, id: Id, shape: &Shape, dtype: DType) -> (usize, usize) {
        let ready = self.ready(id);
        let fits = |(kernel_type, kernel): &(DType, Kernel)| {
            *kernel_type == dtype
                && matches!(kernel, Kernel::Loop(body) if body.sizes == **shape && body.reduce.is_none())
        };
        match ready.checked_sub(1).filter(|&last| fits(&self.kernels[last]) && self.sees(id, last)) {
            Some(last) => {
                let slot = self.add(id, last);
                (last, slot)
            }
            None => self.fresh_loop(id, shape, dtype),
        }
    }

    fn fresh_loop(&mut self, id: Id, shape: &Shape, dtype: DType) -> (usize, usize) {
        // Constants that are stored are written before anything runs.
        self.kernels.push((dtype, Kernel::Loop(Loop { sizes: shape.to_vec(), ..Loop::default() })));
        let kernel = self.kernels.len() - 1;
        let slot = self.add(id, kernel);
        (kernel, slot)
    }

    /// The number of kernels after which everything that a node and what is fused into it read is complete.
    fn ready(&self, id: Id) -> usize {
        let node = self.graph.node(id);
        if let Some(view) = &self.views[id.0 as usize] {
            return self.written[view.buffer];
        }
        node.args.iter().map(|&arg| self.ready(arg)).max().unwrap_or(0)
    }

    /// Whether everything that a node reads of what a loop writes is at hand inside the loop: element for element, not as
    /// a view that looks elsewhere, which is complete only when the loop has ended.
    fn sees(&self, id: Id, kernel: usize) -> bool {
        if self.slots[id.0 as usize].is_some_and(|(at, _)| at == kernel) {
            return true;
        }
        match &self.views[id.0 as usize] {
            Some(view) => self.written[view.buffer] <= kernel,
            None => self.graph.node(id).args.iter().all(|&arg| self.sees(arg, kernel)),
        }
    }

    /// Adds a node to a loop, with what is fused into it, and returns its slot.
    fn add(&mut self, id: Id, kernel: usize) -> usize {
        let operand = self.operand(id, kernel, true);
        match operand {
            Operand::Slot(slot) => slot,
            other => self.step(kernel, Step::Copy(other)),
        }
    }

    fn step(&mut self, kernel: usize, step: Step) -> usize {
        let Kernel::Loop(body) = &mut self.kernels[kernel].1 else { unreachable!("only loops have steps") };
        body.steps.push(step);
        body.steps.len() - 1
    }

    /// What a loop reads to have the value of a node. `root`: the node itself is computed here, not loaded.
    fn operand(&mut self, id: Id, kernel: usize, root: bool) -> Operand {
        if let Some((_, slot)) = self.slots[id.0 as usize].filter(|&(at, _)| at == kernel) {
            return Operand::Slot(slot);
        }
        if let Some(scalar) = self.uniform(id) {
            let Kernel::Loop(body) = &mut self.kernels[kernel].1 else {
                unreachable!("only loops have operands")
            };
            let place = body.constants.iter().position(|&known| known == scalar);
            return Operand::Constant(place.unwrap_or_else(|| {
                body.constants.push(scalar);
                body.constants.len() - 1
            }));
        }
        let node = self.graph.node(id);
        let compute = is_elementwise(&node.op)
            && (self.fused[id.0 as usize] || root && self.views[id.0 as usize].is_none());
        if !compute {
            let view = self.view(id);
            let Kernel::Loop(body) = &mut self.kernels[kernel].1 else {
                unreachable!("only loops have operands")
            };
            let place = body.loads.iter().position(|known| *known == view);
            return Operand::Load(place.unwrap_or_else(|| {
                body.loads.push(view);
                body.loads.len() - 1
            }));
        }
        let args: Vec<Operand> = node.args.iter().map(|&arg| self.operand(arg, kernel, false)).collect();
        let step = match (&node.op, &args[..]) {
            (Op::Unary(op), &[x]) => Step::Unary(*op, x),
            (Op::Binary(op), &[a, b]) => Step::Binary(*op, [a, b]),
            (_, &[condition, a, b]) => Step::Select([condition, a, b]),
            _ => unreachable!("element-wise operations have one to three operands"),
        };
        Operand::Slot(self.step(kernel, step))
    }

    /// The number that a node is everywhere, if it is a constant in some shape.
    pub(super) fn uniform(&self, id: Id) -> Option<Scalar> {
        let node = self.graph.node(id);
        match &node.op {
            Op::Constant(scalar) => Some(*scalar),
            Op::Expand | Op::Reshape => self.uniform(node.args[0]),
            _ => None,
        }
    }
}
