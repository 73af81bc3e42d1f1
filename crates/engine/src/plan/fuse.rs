//! Loop fusion: which loop an element-wise operation or a reduction becomes part of, and what the loop loads for it.

use super::{Planner, View, half, is_elementwise};
use crate::dtype::DType;
use crate::graph::{Id, Op, Scalar};
use crate::instruction::loops::{ElementOp, Operand, Reduce};
use crate::instruction::{Instruction, Loop};
use crate::ops::Reduction;
use crate::shape::Shape;

impl Planner<'_> {
    /// Stores an element-wise node at the end of a loop.
    pub(super) fn store_loop(&mut self, id: Id) -> View {
        let node = self.graph.node(id);
        let (instruction, slot) = self.join(id, &node.shape, node.dtype);
        let out = match half::format(self.graph, id) {
            Some(format) => self.half_value(id, format),
            None => self.overwritten(id, instruction).unwrap_or_else(|| self.value(id)),
        };
        self.body(instruction).stores.push((slot, out));
        self.complete_after[out.buffer] = instruction + 1;
        self.slots[id.0 as usize] = Some((instruction, slot));
        out
    }

    /// Reduces a node at the end of a loop.
    pub(super) fn reduce_loop(&mut self, id: Id, op: Reduction, axes: &[usize]) -> View {
        let node = self.graph.node(id);
        let x = node.args[0];
        let (instruction, slot) = self.join(x, &self.graph.shape(x), node.dtype);
        let out = self.value(id);
        self.body(instruction).reduce = Some(Reduce { op, slot, axes: axes.to_vec(), out });
        self.complete_after[out.buffer] = instruction + 1;
        out
    }

    /// The loop that is an instruction.
    fn body(&mut self, instruction: usize) -> &mut Loop {
        match &mut self.instructions[instruction] {
            Instruction::Loop(body) => body,
            _ => unreachable!("nodes are only fused into loops"),
        }
    }

    /// Adds a node, with the nodes fused into it, to the instruction that completes its operands if that is a loop of the same
    /// shape and type, or else to a new loop. Returns the instruction and the slot of the node.
    fn join(&mut self, id: Id, shape: &Shape, dtype: DType) -> (usize, usize) {
        let fits = |instruction: &Instruction| match instruction {
            Instruction::Loop(body) => body.dtype == dtype && body.sizes == **shape && body.reduce.is_none(),
            _ => false,
        };
        let last = self.ready_after(id).checked_sub(1);
        // A loop that rounds a value reads what the next function of that value reads.
        let rounding = self.instructions.len().checked_sub(1).filter(|&last| self.rounds(last));
        let joins = |&at: &usize| fits(&self.instructions[at]) && self.is_visible(id, at);
        let instruction = last.into_iter().chain(rounding).find(joins).unwrap_or_else(|| {
            self.instructions.push(Loop::new(dtype, shape).into());
            self.instructions.len() - 1
        });
        (instruction, self.add(id, instruction))
    }

    /// Whether an instruction is a loop that stores 16-bit numbers.
    fn rounds(&self, instruction: usize) -> bool {
        match &self.instructions[instruction] {
            Instruction::Loop(body) => body.stores.iter().any(|(_, store)| store.half.is_some()),
            _ => false,
        }
    }

    /// The number of instructions after which the operands of a node, and of the nodes fused into it, are complete.
    fn ready_after(&self, id: Id) -> usize {
        match &self.views[id.0 as usize] {
            Some(view) => self.complete_after[view.buffer],
            None => self.graph.node(id).args.iter().map(|&arg| self.ready_after(arg)).max().unwrap_or(0),
        }
    }

    /// Whether a node can be computed inside a loop: everything it reads is complete before the loop, or computed by the loop
    /// element for element. A view of a result of the loop is not, because it may show other elements.
    fn is_visible(&self, id: Id, instruction: usize) -> bool {
        if self.slots[id.0 as usize].is_some_and(|(at, _)| at == instruction) {
            return true;
        }
        match &self.views[id.0 as usize] {
            Some(view) => self.complete_after[view.buffer] <= instruction,
            None => self.graph.node(id).args.iter().all(|&arg| self.is_visible(arg, instruction)),
        }
    }

    /// Adds a node to a loop, with the nodes fused into it, and returns its slot.
    fn add(&mut self, id: Id, instruction: usize) -> usize {
        match self.operand(id, instruction, true) {
            Operand::Slot(slot) => slot,
            other => self.add_op(instruction, ElementOp::Copy(other)),
        }
    }

    fn add_op(&mut self, instruction: usize, op: ElementOp) -> usize {
        let ops = &mut self.body(instruction).ops;
        ops.push(op);
        ops.len() - 1
    }

    /// The operand of a loop that has the value of a node. `is_root`: the node itself is computed here, not loaded.
    fn operand(&mut self, id: Id, instruction: usize, is_root: bool) -> Operand {
        if let Some((_, slot)) = self.slots[id.0 as usize].filter(|&(at, _)| at == instruction) {
            return Operand::Slot(slot);
        }
        if let Some(scalar) = self.uniform(id) {
            return Operand::Constant(position_or_push(&mut self.body(instruction).constants, scalar));
        }
        let node = self.graph.node(id);
        let is_computed = is_elementwise(&node.op)
            && (self.fused[id.0 as usize] || is_root && self.views[id.0 as usize].is_none());
        if !is_computed {
            let view = self.stored(id);
            return Operand::Load(position_or_push(&mut self.body(instruction).loads, view));
        }
        let args: Vec<Operand> = node.args.iter().map(|&arg| self.operand(arg, instruction, false)).collect();
        let op = match (&node.op, &args[..]) {
            (Op::Unary(op), &[x]) => ElementOp::Unary(*op, x),
            (Op::Binary(op), &[a, b]) => ElementOp::Binary(*op, [a, b]),
            (_, &[condition, a, b]) => ElementOp::Select([condition, a, b]),
            _ => unreachable!("element-wise operations have one to three operands"),
        };
        Operand::Slot(self.add_op(instruction, op))
    }

    /// The number that all elements of a node are, if it is a constant in any shape.
    pub(super) fn uniform(&self, id: Id) -> Option<Scalar> {
        let node = self.graph.node(id);
        match &node.op {
            Op::Constant(scalar) => Some(*scalar),
            Op::Expand | Op::Reshape => self.uniform(node.args[0]),
            _ => None,
        }
    }
}

/// The index of an item, which is appended if it is new.
fn position_or_push<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
