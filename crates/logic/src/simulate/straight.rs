//! Straight-line programs: a circuit as a sequence of four vector operations.
//!
//! Every two-input gate is AND, AND-NOT, OR or XOR of its operands, up to an inverted result. The builder
//! keeps for each signal a *literal*, a stored value and whether it is stored inverted; gates absorb the
//! inversions of their operands, and an inversion only costs something where it reaches an output. Equal
//! operations are computed once.
//!
//! The program is ordered depth first from the outputs: a value is computed shortly before it is used, so
//! few values are alive at a time, and what no output needs is left out.

use super::functions::Function;
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::simplify::{Literal, Reduced, reduce};
use rustc_hash::FxHashMap;

/// What a vector unit computes in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    /// `a & b`.
    And,
    /// `!a & b`.
    AndNot,
    /// `a | b`.
    Or,
    /// `a ^ b`.
    Xor,
}

/// One operation and the values it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub operation: Operation,
    pub a: u32,
    pub b: u32,
}

/// One instruction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Compute the next value.
    Compute(Step),
    /// Write a literal, possibly a constant, to an output.
    Store { literal: Literal, output: u32 },
}

impl Instruction {
    /// The values that are read.
    pub fn reads(self) -> [Option<u32>; 2] {
        match self {
            Instruction::Compute(step) => [Some(step.a), Some(step.b)],
            Instruction::Store { literal, .. } => [(!literal.is_constant()).then(|| literal.signal()), None],
        }
    }
}

/// A straight-line program.
///
/// The values `0..inputs` are the inputs; each [`Instruction::Compute`] adds one, in order. Operands come
/// before their instruction and the two operands of an operation differ.
#[derive(Clone, Debug)]
pub(super) struct Straight {
    pub inputs: usize,
    pub outputs: usize,
    pub instructions: Vec<Instruction>,
}

impl Straight {
    /// The program of a circuit.
    pub fn new(circuit: &Circuit) -> Straight {
        let mut builder = Builder::new(circuit.inputs());
        let inputs: Vec<Literal> = (0..circuit.inputs() as u32).map(Literal::of).collect();
        let outputs = builder.apply(circuit, inputs);
        builder.finish(&outputs)
    }

    /// The number of operations.
    pub fn operations(&self) -> usize {
        self.instructions.len() - self.outputs
    }

    /// The number of values: inputs and results.
    pub fn values(&self) -> usize {
        self.inputs + self.operations()
    }
}

/// Collects operations, each one once.
pub(super) struct Builder {
    inputs: usize,
    steps: Vec<Step>,
    known: FxHashMap<Step, Literal>,
    functions: Option<Functions>,
}

/// What is known of values with few inputs.
#[derive(Default)]
struct Functions {
    /// The function of each value, if it has few inputs, and whether the value is its inverse.
    of_value: Vec<Option<(Function, bool)>>,
    /// The literal that has each function.
    literals: FxHashMap<Function, Literal>,
}

impl Builder {
    pub fn new(inputs: usize) -> Builder {
        Builder { inputs, steps: Vec::new(), known: FxHashMap::default(), functions: None }
    }

    /// The builder, with an eye for values that are the same function of at most six inputs, however they are
    /// computed.
    pub fn merging_functions(mut self) -> Builder {
        let inputs = 0..self.inputs as u32;
        let of_value = inputs.map(|input| Some((Function::input(input), false))).collect();
        self.functions = Some(Functions { of_value, literals: FxHashMap::default() });
        self
    }

    /// Adds the gates of a circuit that reads `literals`, and returns its outputs.
    pub fn apply(&mut self, circuit: &Circuit, mut literals: Vec<Literal>) -> Vec<Literal> {
        self.known.reserve(circuit.nodes().len());
        literals.reserve(circuit.nodes().len());
        for node in circuit.nodes() {
            literals.push(match node.gate {
                Gate::FALSE => Literal::FALSE,
                Gate::TRUE => Literal::TRUE,
                gate => self.gate(gate, literals[node.a as usize], literals[node.b as usize]),
            });
        }
        circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect()
    }

    /// Adds a gate.
    pub fn gate(&mut self, gate: Gate, a: Literal, b: Literal) -> Literal {
        match reduce(gate, a, b) {
            Reduced::Literal(literal) => literal,
            Reduced::Gate(node) => {
                let (step, inverted) = operation(node);
                let literal = self.value(step);
                if inverted { literal.not() } else { literal }
            }
        }
    }

    /// The result of an operation.
    fn value(&mut self, step: Step) -> Literal {
        if let Some(&literal) = self.known.get(&step) {
            return literal;
        }
        let function = self.functions.as_ref().and_then(|functions| functions.of(step));
        let literal = self.same_function(function).unwrap_or_else(|| self.add(step, function));
        self.known.insert(step, literal);
        literal
    }

    /// An earlier literal with this function.
    fn same_function(&self, function: Option<(Function, bool)>) -> Option<Literal> {
        let (function, inverted) = function?;
        let literal = if function.is_constant() {
            Literal::FALSE
        } else if let Some(input) = function.as_input() {
            Literal::of(input)
        } else {
            *self.functions.as_ref()?.literals.get(&function)?
        };
        Some(if inverted { literal.not() } else { literal })
    }

    /// Adds an operation.
    fn add(&mut self, step: Step, function: Option<(Function, bool)>) -> Literal {
        self.steps.push(step);
        let literal = Literal::of((self.inputs + self.steps.len() - 1) as u32);
        if let Some(functions) = &mut self.functions {
            functions.of_value.push(function);
            if let Some((function, inverted)) = function {
                functions.literals.insert(function, if inverted { literal.not() } else { literal });
            }
        }
        literal
    }

    /// The program that computes the outputs.
    pub fn finish(self, outputs: &[Literal]) -> Straight {
        drop(self.known);
        let instructions = depth_first(self.inputs, &self.steps, outputs);
        Straight { inputs: self.inputs, outputs: outputs.len(), instructions }
    }
}

impl Functions {
    /// The function of an operation.
    fn of(&self, Step { operation, a, b }: Step) -> Option<(Function, bool)> {
        let ((f, not_a), (g, not_b)) = (self.of_value[a as usize]?, self.of_value[b as usize]?);
        Function::combine(operation, f, g, [not_a, not_b])
    }
}

/// A gate that depends on both operands, as an operation, and whether the result is inverted.
fn operation(node: Node) -> (Step, bool) {
    let (low, high) = (node.a.min(node.b), node.a.max(node.b));
    let both = |operation| Step { operation, a: low, b: high };
    let and_not = |a, b| Step { operation: Operation::AndNot, a, b };
    match node.gate {
        Gate::AND => (both(Operation::And), false),
        Gate::NAND => (both(Operation::And), true),
        Gate::OR => (both(Operation::Or), false),
        Gate::NOR => (both(Operation::Or), true),
        Gate::NOT_A_AND_B => (and_not(node.a, node.b), false),
        Gate::A_OR_NOT_B => (and_not(node.a, node.b), true),
        Gate::A_AND_NOT_B => (and_not(node.b, node.a), false),
        Gate::NOT_A_OR_B => (and_not(node.b, node.a), true),
        gate => (both(Operation::Xor), gate == Gate::XNOR),
    }
}

/// The operations that the outputs need, depth first, and a store after each output's value.
fn depth_first(inputs: usize, steps: &[Step], outputs: &[Literal]) -> Vec<Instruction> {
    const WAITING: u32 = u32::MAX;
    let mut renamed = vec![WAITING; inputs + steps.len()];
    for (value, name) in renamed.iter_mut().take(inputs).enumerate() {
        *name = value as u32;
    }
    let mut next = inputs as u32;
    let mut instructions = Vec::with_capacity(steps.len() + outputs.len());
    let mut stack: Vec<u32> = Vec::new();
    for (output, &literal) in outputs.iter().enumerate() {
        if !literal.is_constant() {
            stack.push(literal.signal());
        }
        while let Some(&value) = stack.last() {
            if renamed[value as usize] != WAITING {
                stack.pop();
                continue;
            }
            let Step { operation, a, b } = steps[value as usize - inputs];
            let (left, right) = (renamed[a as usize], renamed[b as usize]);
            if left != WAITING && right != WAITING {
                instructions.push(Instruction::Compute(Step { operation, a: left, b: right }));
                renamed[value as usize] = next;
                next += 1;
                stack.pop();
            } else {
                stack.extend([b, a].into_iter().filter(|&operand| renamed[operand as usize] == WAITING));
            }
        }
        let renamed = literal.map_signal(|signal| renamed[signal as usize]);
        instructions.push(Instruction::Store { literal: renamed, output: output as u32 });
    }
    instructions
}

/// When values are used next.
pub(super) struct Uses {
    /// For each instruction, when its operands are used again; [`NEVER`] if this is the last time.
    pub again: Vec<[u32; 2]>,
    /// For each value, when it is used first.
    pub first: Vec<u32>,
}

/// The time that never comes.
pub(super) const NEVER: u32 = u32::MAX;

impl Uses {
    pub fn new(program: &Straight) -> Uses {
        let mut first = vec![NEVER; program.values()];
        let mut again = vec![[NEVER; 2]; program.instructions.len()];
        for (time, instruction) in program.instructions.iter().enumerate().rev() {
            let reads = instruction.reads();
            again[time] = reads.map(|value| value.map_or(NEVER, |value| first[value as usize]));
            for value in reads.into_iter().flatten() {
                first[value as usize] = time as u32;
            }
        }
        Uses { again, first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    /// The outputs of a program for one assignment.
    fn eval(program: &Straight, inputs: &[bool]) -> Vec<bool> {
        let mut values = inputs.to_vec();
        let mut outputs = vec![false; program.outputs];
        for &instruction in &program.instructions {
            match instruction {
                Instruction::Compute(Step { operation, a, b }) => {
                    let (a, b) = (values[a as usize], values[b as usize]);
                    values.push(match operation {
                        Operation::And => a & b,
                        Operation::AndNot => !a & b,
                        Operation::Or => a | b,
                        Operation::Xor => a ^ b,
                    });
                }
                Instruction::Store { literal, output } => {
                    outputs[output as usize] = if literal.is_constant() {
                        literal == Literal::TRUE
                    } else {
                        values[literal.signal() as usize] ^ literal.is_inverted()
                    };
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
            let program = Straight::new(&circuit);
            prop_assert_eq!(eval(&program, bits), circuit.eval(bits).unwrap());
            prop_assert!(program.operations() <= circuit.reachable());
        }

        #[test]
        fn uses_are_in_order(circuit in arbitrary::circuit(0..=6, 60)) {
            let program = Straight::new(&circuit);
            let uses = Uses::new(&program);
            for value in 0..program.values() as u32 {
                let reads = |i: &Instruction| i.reads().contains(&Some(value));
                let mut expected = uses.first[value as usize];
                for (time, instruction) in program.instructions.iter().enumerate().filter(|(_, i)| reads(i)) {
                    prop_assert_eq!(time as u32, expected);
                    let operand = usize::from(instruction.reads()[0] != Some(value));
                    expected = uses.again[time][operand];
                }
                prop_assert_eq!(expected, NEVER);
            }
        }
    }

    #[test]
    fn every_gate_is_one_operation_and_opposites_share_it() {
        for gate in Gate::ALL.into_iter().filter(|gate| gate.depends_on_a() && gate.depends_on_b()) {
            let nodes =
                vec![Node::new(gate, 0, 1), Node::new(gate.not(), 0, 1), Node::new(gate.swap(), 1, 0)];
            let program = Straight::new(&Circuit::new(2, nodes, vec![2, 3, 4]).unwrap());
            assert_eq!(program.operations(), 1, "{gate}");
        }
    }

    #[test]
    fn deep_chains_need_no_deep_stack() {
        let nodes = (0..200_000).map(|i| Node::new(Gate::NAND, if i == 0 { 0 } else { 1 + i }, 1)).collect();
        let program = Straight::new(&Circuit::new(2, nodes, vec![200_001]).unwrap());
        assert_eq!(program.instructions.len(), 200_001);
    }
}
