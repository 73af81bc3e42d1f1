//! Straight-line programs: the intermediate representation between logic networks and all code that runs them.
//!
//! ```text
//! circuit -> XAG (structural hashing) -> straight-line program -> block interpreter, x86-64, WebAssembly, C, Rust
//! ```
//!
//! A node of an XAG is an AND with optional inverters, or an XOR. Each becomes one of four bitwise operations: the
//! result of a node is stored in the polarity that needs no inverter (an AND of two inverted operands as an OR), and
//! the readers absorb the inversion. Only an output may need an inverter of its own.
//!
//! The program is ordered depth first from the outputs: a value is computed shortly before its first use, so few values
//! are live at a time, and nodes outside of the fan-in cones of the outputs are left out. [`Liveness`] says when
//! values are used next; [`SlotAllocator`] reuses the storage of values that are dead.

mod liveness;

pub(crate) use liveness::{Liveness, NEVER, SlotAllocator, last_uses};

use crate::circuit::Circuit;
use crate::literal::Literal;
use crate::xag::{self, Xag};

/// A bitwise operation that vector units compute in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitwiseOp {
    /// `a & b`.
    And,
    /// `!a & b`.
    AndNot,
    /// `a | b`.
    Or,
    /// `a ^ b`.
    Xor,
}

/// An instruction of a straight-line program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Computes the next value.
    Compute { op: BitwiseOp, a: u32, b: u32 },
    /// Writes a literal, possibly a constant, to an output.
    Store { literal: Literal, output: u32 },
}

impl Instruction {
    /// The values that are read.
    pub fn reads(self) -> [Option<u32>; 2] {
        match self {
            Instruction::Compute { a, b, .. } => [Some(a), Some(b)],
            Instruction::Store { literal, .. } => {
                [(!literal.is_constant()).then(|| literal.node() as u32), None]
            }
        }
    }
}

/// A straight-line program.
///
/// Values are numbered as the nodes of a [`Literal`]: 0 is the constant, `1..=inputs` are the inputs, and each
/// [`Instruction::Compute`] adds one. Operands are defined before they are used, and the two operands of an operation
/// differ.
#[derive(Clone, Debug)]
pub(crate) struct StraightLineProgram {
    pub inputs: usize,
    pub outputs: usize,
    pub instructions: Vec<Instruction>,
}

impl StraightLineProgram {
    /// Lowers a circuit.
    pub fn new(circuit: &Circuit) -> StraightLineProgram {
        let xag = Xag::from_circuit(circuit);
        StraightLineProgram::lower(&xag, xag.outputs())
    }

    /// Lowers the fan-in cones of some literals of an XAG, which become the outputs.
    pub fn lower(xag: &Xag, outputs: &[Literal]) -> StraightLineProgram {
        let instructions = depth_first(xag.inputs(), &Operation::select(xag), outputs);
        StraightLineProgram { inputs: xag.inputs(), outputs: outputs.len(), instructions }
    }

    /// The number of bitwise operations.
    pub fn operations(&self) -> usize {
        self.instructions.len() - self.outputs
    }

    /// The number of values: the constant, the inputs and the results.
    pub fn values(&self) -> usize {
        1 + self.inputs + self.operations()
    }

    /// The input that a value is, if it is one.
    pub fn input(&self, value: u32) -> Option<usize> {
        (value as usize).checked_sub(1).filter(|&input| input < self.inputs)
    }
}

/// A node of an XAG as a bitwise operation on stored values.
#[derive(Clone, Copy)]
struct Operation {
    op: BitwiseOp,
    a: u32,
    b: u32,
    /// Whether the result is the inverse of the node.
    inverted: bool,
}

impl Operation {
    /// The operation of every gate, in order.
    fn select(xag: &Xag) -> Vec<Operation> {
        let first = xag.inputs() + 1;
        let mut operations: Vec<Operation> = Vec::with_capacity(xag.gates());
        for index in xag.gate_range() {
            let node = xag.node(index);
            let stored = |literal: Literal| {
                let inverse = literal.node().checked_sub(first).is_some_and(|gate| operations[gate].inverted);
                literal.invert_if(inverse)
            };
            let [a, b] = node.fanins().map(stored);
            let [x, y] = [a.node() as u32, b.node() as u32];
            let symmetric = |op, inverted| Operation { op, a: x.min(y), b: x.max(y), inverted };
            let and_not = |a, b| Operation { op: BitwiseOp::AndNot, a, b, inverted: false };
            operations.push(match (node.operation(), a.is_inverted(), b.is_inverted()) {
                (xag::Operation::Xor, not_a, not_b) => symmetric(BitwiseOp::Xor, not_a != not_b),
                (xag::Operation::And, false, false) => symmetric(BitwiseOp::And, false),
                (xag::Operation::And, true, false) => and_not(x, y),
                (xag::Operation::And, false, true) => and_not(y, x),
                (xag::Operation::And, true, true) => symmetric(BitwiseOp::Or, true),
            });
        }
        operations
    }
}

/// The operations that the outputs need, depth first, and a store after each output's value.
fn depth_first(inputs: usize, operations: &[Operation], outputs: &[Literal]) -> Vec<Instruction> {
    const UNVISITED: u32 = u32::MAX;
    let first = inputs + 1;
    let mut renumbered = vec![UNVISITED; first + operations.len()];
    for (value, number) in renumbered.iter_mut().take(first).enumerate() {
        *number = value as u32;
    }
    let mut next = first as u32;
    let mut instructions = Vec::with_capacity(operations.len() + outputs.len());
    let mut stack: Vec<u32> = Vec::new();
    for (output, &literal) in outputs.iter().enumerate() {
        stack.push(literal.node() as u32);
        while let Some(&node) = stack.last() {
            if renumbered[node as usize] != UNVISITED {
                stack.pop();
                continue;
            }
            let Operation { op, a, b, .. } = operations[node as usize - first];
            let (left, right) = (renumbered[a as usize], renumbered[b as usize]);
            if left != UNVISITED && right != UNVISITED {
                instructions.push(Instruction::Compute { op, a: left, b: right });
                renumbered[node as usize] = next;
                next += 1;
                stack.pop();
            } else {
                stack.extend([b, a].into_iter().filter(|&operand| renumbered[operand as usize] == UNVISITED));
            }
        }
        let inverse = literal.node().checked_sub(first).is_some_and(|gate| operations[gate].inverted);
        let value = renumbered[literal.node()] as usize;
        let literal = Literal::new(value, literal.is_inverted() != inverse);
        instructions.push(Instruction::Store { literal, output: output as u32 });
    }
    instructions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use proptest::prelude::*;

    /// The outputs of a program for one assignment: the reference implementation of all back ends.
    fn eval(program: &StraightLineProgram, inputs: &[bool]) -> Vec<bool> {
        let mut values = [&[false], inputs].concat();
        let mut outputs = vec![false; program.outputs];
        for &instruction in &program.instructions {
            match instruction {
                Instruction::Compute { op, a, b } => {
                    let (a, b) = (values[a as usize], values[b as usize]);
                    values.push(match op {
                        BitwiseOp::And => a & b,
                        BitwiseOp::AndNot => !a & b,
                        BitwiseOp::Or => a | b,
                        BitwiseOp::Xor => a ^ b,
                    });
                }
                Instruction::Store { literal, output } => {
                    outputs[output as usize] = values[literal.node()] ^ literal.is_inverted();
                }
            }
        }
        outputs
    }

    proptest! {
        #[test]
        fn a_program_computes_its_circuit(
            circuit in arbitrary::circuit(0..=6, 60),
            bits in prop::collection::vec(any::<bool>(), 6),
        ) {
            let bits = &bits[..circuit.inputs()];
            let program = StraightLineProgram::new(&circuit);
            prop_assert_eq!(eval(&program, bits), circuit.eval(bits).unwrap());
            prop_assert!(program.operations() <= circuit.reachable());
        }
    }

    #[test]
    fn every_gate_is_one_operation_and_complements_share_it() {
        for gate in Gate::ALL.into_iter().filter(|gate| gate.depends_on_a() && gate.depends_on_b()) {
            let nodes =
                vec![Node::new(gate, 0, 1), Node::new(gate.not(), 0, 1), Node::new(gate.swap(), 1, 0)];
            let program = StraightLineProgram::new(&Circuit::new(2, nodes, vec![2, 3, 4]).unwrap());
            assert_eq!(program.operations(), 1, "{gate}");
        }
    }

    #[test]
    fn deep_chains_do_not_overflow_the_stack() {
        let nodes = (0..200_000).map(|i| Node::new(Gate::NAND, if i == 0 { 0 } else { 1 + i }, 1)).collect();
        let program = StraightLineProgram::new(&Circuit::new(2, nodes, vec![200_001]).unwrap());
        assert_eq!(program.instructions.len(), 200_001);
    }
}
