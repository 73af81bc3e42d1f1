//! Instruction selection and register allocation for straight-line programs.
//!
//! The next use of every value is known, so one forward pass allocates the sixteen registers. If all are taken, the value
//! whose next use is furthest in the future is evicted (Belady's algorithm) and spilled to scratch memory, unless memory
//! has a copy of it already. An operand that is only in memory becomes a memory operand of the instruction that uses it.
//! The pass takes linear time.

use super::encode::{Assembler, Base, Opcode, Operand, Register, VPAND, VPANDN, VPOR, VPXOR};
use crate::literal::Literal;
use crate::simulate::compiled::{Layout, Vector};
use crate::straight_line::{BitwiseOp, Instruction, Liveness, NEVER, SlotAllocator, StraightLineProgram};

/// Machine code, and the number of vectors of scratch memory that it needs.
pub(super) struct MachineCode {
    pub code: Vec<u8>,
    pub scratch: usize,
}

/// Generates `extern "sysv64" fn(source, target, scratch, count)`, which runs `count` iterations of the program (at least
/// one), each one vector after the one before. `None` if an offset does not fit a displacement.
pub(super) fn generate(program: &StraightLineProgram, layout: &Layout) -> Option<MachineCode> {
    let last = layout.inputs.iter().chain(&layout.outputs).max().copied().unwrap_or(0);
    i32::try_from(
        (u64::from(last) * size_of::<u64>() as u64).max((program.values() * size_of::<Vector>()) as u64),
    )
    .ok()?;
    let liveness = Liveness::new(program);
    let mut generator = Generator::new(program, layout);
    for (&instruction, &again) in program.instructions.iter().zip(&liveness.next_use) {
        match instruction {
            Instruction::Compute { op, a, b } => {
                generator.compute(op, [(a, again[0]), (b, again[1])], &liveness.first_use);
            }
            Instruction::Store { literal, output } => {
                generator.output(literal, layout.outputs[output as usize], again[0]);
            }
        }
    }
    generator.assembler.end_loop()?;
    Some(MachineCode { code: generator.assembler.bytes, scratch: generator.slots.count() })
}

/// The offset in bytes of a word of the source or the target.
fn of_word(word: u32) -> i32 {
    (word as usize * size_of::<u64>()) as i32
}

/// The offset in bytes of a slot of the scratch memory.
fn of_slot(slot: u32) -> i32 {
    (slot as usize * size_of::<Vector>()) as i32
}

const REGISTERS: usize = 16;
/// No value, no register or no slot.
const NONE: u32 = u32::MAX;

struct Generator<'a> {
    assembler: Assembler,
    layout: &'a Layout,
    /// The register of each value, or [`NONE`].
    register: Vec<u32>,
    /// The spill slot of each value, or [`NONE`]. Inputs are in the source.
    slot: Vec<u32>,
    /// The value in each register, or [`NONE`], and its next use.
    held: [u32; REGISTERS],
    next: [u32; REGISTERS],
    slots: SlotAllocator,
    /// The number of values that are defined so far.
    values: u32,
}

impl<'a> Generator<'a> {
    fn new(program: &StraightLineProgram, layout: &'a Layout) -> Generator<'a> {
        // Most instructions have 4 to 8 bytes.
        let bytes = Vec::with_capacity(program.instructions.len() * 10 + 64);
        Generator {
            assembler: Assembler { bytes },
            layout,
            register: vec![NONE; program.values()],
            slot: vec![NONE; program.values()],
            held: [NONE; REGISTERS],
            next: [NEVER; REGISTERS],
            slots: SlotAllocator::default(),
            values: program.inputs as u32 + 1,
        }
    }

    /// Computes the next value from two operands and their next uses.
    fn compute(&mut self, op: BitwiseOp, [mut a, mut b]: [(u32, u32); 2], first: &[u32]) {
        // The first operand must be in a register, the second may be in memory. If both are in memory, the one with the
        // earlier next use is loaded.
        if op != BitwiseOp::AndNot && self.rank(b) < self.rank(a) {
            (a, b) = (b, a);
        }
        let left = self.in_register(a, b.0);
        let right = self.operand(b);
        // The result may take the register of an operand, and evict an operand; but the spill slot of an operand must
        // not be reused before it is read.
        self.release_register(a);
        self.release_register(b);
        let out = self.take_register(NONE);
        self.assembler.operate(opcode(op), out, left, right);
        self.release_slot(a);
        self.release_slot(b);
        let value = self.values;
        self.values += 1;
        self.hold(out, value, first[value as usize]);
    }

    /// The priority of an operand to be the first one: lower is better.
    fn rank(&self, (value, again): (u32, u32)) -> u64 {
        let in_memory = self.register[value as usize] == NONE;
        u64::from(in_memory) << 32 | u64::from(again)
    }

    fn output(&mut self, literal: Literal, offset: u32, again: u32) {
        let displacement = of_word(offset);
        if literal.is_constant() || literal.is_inverted() {
            let keep = if literal.is_constant() { NONE } else { self.register[literal.node()] };
            let register = self.take_register(keep);
            if literal == Literal::FALSE {
                self.assembler.zeros(register);
            } else {
                self.assembler.ones(register);
            }
            if !literal.is_constant() {
                let operand = self.location(literal.node() as u32);
                self.assembler.operate(VPXOR, register, register, operand);
                self.release_register((literal.node() as u32, again));
                self.release_slot((literal.node() as u32, again));
            }
            self.assembler.store(Base::Target, displacement, register);
        } else {
            let register = self.in_register((literal.node() as u32, again), NONE);
            self.assembler.store(Base::Target, displacement, register);
            self.release_register((literal.node() as u32, again));
            self.release_slot((literal.node() as u32, again));
        }
    }

    /// Returns the register of a value, loading it if necessary, without evicting `other`.
    fn in_register(&mut self, (value, again): (u32, u32), other: u32) -> Register {
        let register = self.register[value as usize];
        if register != NONE {
            return register as Register;
        }
        let keep = if other == NONE { NONE } else { self.register[other as usize] };
        let register = self.take_register(keep);
        self.load(register, value, again);
        register
    }

    /// Returns a value as a second operand: its register, or memory. It is loaded if it is used again and a register is
    /// free.
    fn operand(&mut self, (value, again): (u32, u32)) -> Operand {
        let wanted = self.register[value as usize] == NONE && again != NEVER;
        if let Some(register) = self.free_register().filter(|_| wanted) {
            self.load(register, value, again);
        }
        self.location(value)
    }

    fn load(&mut self, register: Register, value: u32, next: u32) {
        if let Operand::Memory { base, displacement } = self.memory(value) {
            self.assembler.load(register, base, displacement);
        }
        self.hold(register, value, next);
    }

    /// The register of a value, or its location in memory if it is in no register.
    fn location(&self, value: u32) -> Operand {
        match self.register[value as usize] {
            NONE => self.memory(value),
            register => Operand::Register(register as Register),
        }
    }

    /// The location of a value in memory.
    fn memory(&self, value: u32) -> Operand {
        match self.layout.inputs.get(value as usize - 1) {
            Some(&word) => Operand::Memory { base: Base::Source, displacement: of_word(word) },
            None => Operand::Memory { base: Base::Scratch, displacement: of_slot(self.slot[value as usize]) },
        }
    }

    fn hold(&mut self, register: Register, value: u32, next: u32) {
        self.held[usize::from(register)] = value;
        self.next[usize::from(register)] = next;
        self.register[value as usize] = u32::from(register);
    }

    /// Updates the next use of a value after a use; frees its register if it is dead.
    fn release_register(&mut self, (value, again): (u32, u32)) {
        let register = self.register[value as usize];
        if register != NONE {
            self.next[register as usize] = again;
            if again == NEVER {
                self.held[register as usize] = NONE;
                self.register[value as usize] = NONE;
            }
        }
    }

    /// Frees the spill slot of a value after its last use.
    fn release_slot(&mut self, (value, again): (u32, u32)) {
        let slot = self.slot[value as usize];
        if again == NEVER && slot != NONE {
            self.slots.release(slot);
        }
    }

    fn free_register(&self) -> Option<Register> {
        self.held.iter().position(|&value| value == NONE).map(|register| register as Register)
    }

    /// Returns a register to write to, evicting a value if necessary, but not from `keep`.
    fn take_register(&mut self, keep: u32) -> Register {
        if let Some(register) = self.free_register() {
            return register;
        }
        let candidates = (0..REGISTERS).filter(|&register| register as u32 != keep);
        let victim = candidates.max_by_key(|&register| self.next[register]).unwrap_or(0);
        self.evict(victim as Register);
        victim as Register
    }

    /// Frees a register, spilling its value unless memory has a copy of it.
    fn evict(&mut self, register: Register) {
        let value = self.held[usize::from(register)];
        let is_input = value as usize <= self.layout.inputs.len();
        if !is_input && self.slot[value as usize] == NONE {
            let slot = self.slots.take();
            self.slot[value as usize] = slot;
            self.assembler.store(Base::Scratch, of_slot(slot), register);
        }
        self.register[value as usize] = NONE;
        self.held[usize::from(register)] = NONE;
    }
}

fn opcode(op: BitwiseOp) -> Opcode {
    match op {
        BitwiseOp::And => VPAND,
        BitwiseOp::AndNot => VPANDN,
        BitwiseOp::Or => VPOR,
        BitwiseOp::Xor => VPXOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    /// The code of a circuit with contiguous inputs and outputs.
    fn code(circuit: &Circuit) -> MachineCode {
        let layout = Layout::at_vectors(0..circuit.inputs(), 0..circuit.outputs().len());
        generate(&StraightLineProgram::new(circuit), &layout).unwrap()
    }

    /// The sum of all products of pairs of neighbours, with all products before all sums.
    fn sum_of_products(inputs: u32) -> Circuit {
        let products = (0..inputs - 1).map(|i| Node::new(Gate::AND, i, i + 1));
        // The first sum reads the last two products, each of the others the sum and the product before.
        let sums = (0..inputs - 2).map(|i| Node::new(Gate::XOR, 2 * inputs - 2 + i, 2 * inputs - 3 - i));
        let nodes: Vec<Node> = products.chain(sums).collect();
        let last = inputs + nodes.len() as u32 - 1;
        Circuit::new(inputs as usize, nodes, (inputs..=last).collect()).unwrap()
    }

    #[test]
    fn a_chain_needs_no_spill_slots() {
        let nodes = (0..1000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 2 + i }, 1 + i % 2));
        let circuit = Circuit::new(3, nodes.collect(), vec![1002]).unwrap();
        let generated = code(&circuit);
        assert_eq!(generated.scratch, 0);
        // An instruction of four bytes for each gate, three loads, a store, and the end of the loop.
        assert!(generated.code.len() < 1000 * 4 + 50, "{} bytes", generated.code.len());
    }

    #[test]
    fn values_that_do_not_fit_in_registers_are_spilled() {
        assert_eq!(code(&sum_of_products(10)).scratch, 0);
        let scratch = code(&sum_of_products(100)).scratch;
        assert!((80..100).contains(&scratch), "{scratch} vectors");
    }

    #[test]
    fn offsets_beyond_32_bits_are_refused() {
        let program = StraightLineProgram::new(&Circuit::new(1, vec![], vec![0]).unwrap());
        let layout = Layout { inputs: vec![1 << 28], outputs: vec![0] };
        assert!(generate(&program, &layout).is_none());
    }
}
