//! The gates of a module: a straight-line program as WebAssembly code, on 128 samples or cells at a time.
//!
//! Values live in locals, which are reused after the last use of a value. A function may have 50,000 locals and engines
//! take long to compile large ones, so a large program is cut into parts of [`PART`] instructions, each a function of its
//! own. A value that is live across the end of a part is also stored in memory.

use super::assembly::Assembly;
use crate::literal::Literal;
use crate::straight_line::{
    BitwiseOp, Instruction, Liveness, NEVER, SlotAllocator, StraightLineProgram, last_uses,
};
use std::ops::Range;
use wasm_encoder::{InstructionSink, MemArg, MemArgTarget, ValType};

/// The most instructions of a straight-line program in one function.
pub(super) const PART: usize = 4096;

/// Code that reads inputs and writes outputs.
pub(super) trait Ports {
    /// Pushes the word of an input.
    fn load(&self, code: &mut InstructionSink<'_>, input: u32);
    /// Writes the word that `value` pushes to an output.
    fn store(&self, code: &mut InstructionSink<'_>, output: usize, value: &dyn Fn(&mut InstructionSink<'_>));
}

/// The code of one part.
pub(super) struct Part {
    /// The instructions.
    pub code: Vec<u8>,
    /// The number of `v128` locals that they use.
    pub locals: u32,
}

/// The code of a program.
pub(super) struct Body {
    /// The parts, in the order in which they run.
    pub parts: Vec<Part>,
    /// The bytes of memory for values that are live across parts.
    pub spilled_bytes: u64,
}

impl Body {
    /// Returns the code of the whole program, for a function with these parameters. If there is more than one part, the
    /// parts become functions with the same parameters, and the code calls them.
    pub fn inline(mut self, assembly: &mut Assembly, parameters: &[ValType]) -> Part {
        if self.parts.len() == 1 {
            return self.parts.remove(0);
        }
        let mut calls = Vec::new();
        for part in self.parts {
            let function = assembly.function_of(parameters, &[], &[(part.locals, ValType::V128)], part.code);
            let mut code = InstructionSink::new(&mut calls);
            for parameter in 0..parameters.len() {
                code.local_get(parameter as u32);
            }
            code.call(function);
        }
        Part { code: calls, locals: 0 }
    }
}

/// A memory operand without a promise of alignment.
pub(super) fn at(offset: u64) -> MemArg {
    MemArg { offset, align: 0, target: MemArgTarget::Memory(0), ordering: None }
}

/// Compiles a program.
///
/// The locals from `first_local` on are free to use; values that are live across parts are in memory from address
/// `spilled` on.
pub(super) fn compile(
    program: &StraightLineProgram,
    ports: &dyn Ports,
    first_local: u32,
    spilled: u64,
) -> Body {
    let mut compiler = Compiler::new(program, ports, first_local, spilled);
    let mut parts = Vec::new();
    let mut start = 0;
    while start < program.instructions.len() || parts.is_empty() {
        let end = program.instructions.len().min(start + PART);
        parts.push(compiler.part(start..end));
        start = end;
    }
    Body { parts, spilled_bytes: 16 * compiler.places.count() as u64 }
}

struct Compiler<'a> {
    program: &'a StraightLineProgram,
    ports: &'a dyn Ports,
    first_local: u32,
    spilled: u64,
    liveness: Liveness,
    last_use: Vec<u32>,
    /// The local of each value in the current part.
    local: Vec<Option<u32>>,
    /// The place in memory of each value that is live across parts.
    place: Vec<Option<u32>>,
    locals: SlotAllocator,
    places: SlotAllocator,
    /// The number of values that are defined so far.
    values: u32,
}

impl<'a> Compiler<'a> {
    fn new(
        program: &'a StraightLineProgram,
        ports: &'a dyn Ports,
        first_local: u32,
        spilled: u64,
    ) -> Compiler<'a> {
        Compiler {
            program,
            ports,
            first_local,
            spilled,
            liveness: Liveness::new(program),
            last_use: last_uses(program),
            local: vec![None; program.values()],
            place: vec![None; program.values()],
            locals: SlotAllocator::default(),
            places: SlotAllocator::default(),
            values: program.inputs as u32 + 1,
        }
    }

    fn part(&mut self, range: Range<usize>) -> Part {
        self.locals = SlotAllocator::default();
        let mut bytes = Vec::new();
        let mut code = InstructionSink::new(&mut bytes);
        for time in range.clone() {
            let instruction = self.program.instructions[time];
            for value in instruction.reads().into_iter().flatten() {
                self.fetch(&mut code, value, range.end);
            }
            match instruction {
                Instruction::Compute { op, a, b } => {
                    let (a, b) = (self.local(a), self.local(b));
                    match op {
                        BitwiseOp::And => code.local_get(a).local_get(b).v128_and(),
                        BitwiseOp::AndNot => code.local_get(b).local_get(a).v128_andnot(),
                        BitwiseOp::Or => code.local_get(a).local_get(b).v128_or(),
                        BitwiseOp::Xor => code.local_get(a).local_get(b).v128_xor(),
                    };
                }
                Instruction::Store { literal, output } => {
                    self.ports.store(&mut code, output as usize, &|code| self.push(code, literal));
                }
            }
            for (value, next_use) in instruction.reads().into_iter().zip(self.liveness.next_use[time]) {
                self.release(value, next_use, range.end);
            }
            if let Instruction::Compute { .. } = instruction {
                self.define(&mut code, self.values, range.end);
                self.release(Some(self.values), self.liveness.first_use[self.values as usize], range.end);
                self.values += 1;
            }
        }
        Part { code: bytes, locals: self.locals.count() as u32 }
    }

    /// Makes sure that a value is in a local: inputs are read at their first use.
    fn fetch(&mut self, code: &mut InstructionSink<'_>, value: u32, end: usize) {
        if self.local[value as usize].is_some() {
            return;
        }
        match self.place[value as usize] {
            Some(place) => {
                code.i32_const(0).v128_load(at(self.spilled + 16 * u64::from(place)));
            }
            None => self.ports.load(code, value - 1),
        }
        self.define(code, value, end);
    }

    /// The local of a value that was fetched.
    fn local(&self, value: u32) -> u32 {
        self.first_local + self.local[value as usize].unwrap_or_default()
    }

    fn push(&self, code: &mut InstructionSink<'_>, literal: Literal) {
        if literal.is_constant() {
            code.v128_const(0);
        } else {
            code.local_get(self.local(literal.node() as u32));
        }
        if literal.is_inverted() {
            code.v128_not();
        }
    }

    /// Takes a value from the stack into a local, and into memory if a later part needs it.
    fn define(&mut self, code: &mut InstructionSink<'_>, value: u32, end: usize) {
        let index = value as usize;
        self.local[index] = Some(self.locals.take());
        code.local_set(self.local(value));
        if self.last_use[index] as usize >= end && self.place[index].is_none() {
            let place = self.places.take();
            self.place[index] = Some(place);
            code.i32_const(0).local_get(self.local(value));
            code.v128_store(at(self.spilled + 16 * u64::from(place)));
        }
    }

    /// Frees the local of a value that is not used again in this part, and its place if it is dead.
    fn release(&mut self, value: Option<u32>, next_use: u32, end: usize) {
        let Some(value) = value else { return };
        if next_use as usize >= end {
            self.local[value as usize].take().into_iter().for_each(|local| self.locals.release(local));
        }
        if next_use == NEVER {
            self.place[value as usize].take().into_iter().for_each(|place| self.places.release(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    /// Ports without code.
    struct NoPorts;

    impl Ports for NoPorts {
        fn load(&self, _: &mut InstructionSink<'_>, _: u32) {}

        fn store(&self, code: &mut InstructionSink<'_>, _: usize, value: &dyn Fn(&mut InstructionSink<'_>)) {
            value(code);
        }
    }

    fn compiled(nodes: Vec<Node>, output: u32) -> Body {
        let circuit = Circuit::new(9, nodes, vec![output]).unwrap();
        compile(&StraightLineProgram::new(&circuit), &NoPorts, 0, 16)
    }

    fn chain(gates: u32) -> Vec<Node> {
        (0..gates).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, (i + 1) % 9)).collect()
    }

    #[test]
    fn a_long_chain_needs_few_locals() {
        let body = compiled(chain(1000), 1008);
        assert_eq!((body.parts.len(), body.spilled_bytes), (1, 0));
        assert!(body.parts[0].locals <= 11, "{} locals", body.parts[0].locals);
    }

    #[test]
    fn a_gate_is_one_instruction_whatever_its_inverters() {
        for gate in Gate::ALL.into_iter().filter(|gate| gate.depends_on_a() && gate.depends_on_b()) {
            let inverting = compiled(vec![Node::new(gate, 0, 1), Node::new(Gate::NAND, 9, 2)], 10);
            let plain = compiled(vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::NAND, 9, 2)], 10);
            assert_eq!(inverting.parts[0].code.len(), plain.parts[0].code.len(), "{gate}");
        }
    }

    #[test]
    fn places_of_spilled_values_are_reused() {
        let gates = 10 * PART as u32;
        let body = compiled(chain(gates), 8 + gates);
        // The nine inputs and the end of the chain.
        assert_eq!((body.parts.len(), body.spilled_bytes), (11, 16 * 10));
    }
}
