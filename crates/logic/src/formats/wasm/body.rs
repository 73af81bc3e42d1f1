//! The circuit itself as WebAssembly code: one instruction per gate, on 128 samples or cells at a time.
//!
//! The instruction set has no NAND, NOR, XNOR or OR-NOT. Such a gate is computed without its inverter, and the
//! gates that read it absorb the inversion into their own function; only an output may need an instruction
//! for it.
//!
//! Values live in locals, which are reused after the last use of a value. A function may have 50,000 locals
//! and engines take long to compile large ones, so a large circuit is cut into parts of [`PART`] operations,
//! each a function of its own. A value that a later part needs is also written to a place in memory.

use super::assembly::Assembly;
use crate::circuit::{Circuit, Node};
use crate::cone::Event;
use crate::gate::Gate;
use std::ops::Range;
use wasm_encoder::{InstructionSink, MemArg, MemArgTarget, ValType};

/// The most operations of one function.
pub(super) const PART: usize = 4096;

/// Where the planes of a module are: how inputs are read and outputs written.
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
    /// How many locals of the type `v128` they use, from the first one on.
    pub locals: u32,
}

/// The code of a circuit.
pub(super) struct Body {
    /// The parts, in the order in which they run.
    pub parts: Vec<Part>,
    /// The bytes in memory for the values that are passed from part to part.
    pub passed_bytes: u64,
}

impl Body {
    /// The code of the whole circuit and how many locals it uses, for a function with these parameters. If there
    /// is more than one part, the parts become functions with the same parameters, and the code calls them.
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

/// Compiles the events of a circuit.
///
/// The locals from `first_local` on are free to use; passed values are in memory from `passed` on.
pub(super) fn compile(
    circuit: &Circuit,
    events: &[Event],
    ports: &dyn Ports,
    first_local: u32,
    passed: u64,
) -> Body {
    let mut compiler = Compiler::new(circuit, events, first_local, passed);
    let mut parts = Vec::new();
    let mut start = 0;
    while start < events.len() || parts.is_empty() {
        let end = events.len().min(start + PART);
        parts.push(compiler.part(events, start..end, ports));
        start = end;
    }
    Body { parts, passed_bytes: 16 * compiler.places.made as u64 }
}

/// Numbers to hand out; those that are given back are used again.
#[derive(Default)]
struct Pool {
    free: Vec<u32>,
    made: u32,
}

impl Pool {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        })
    }
}

struct Compiler<'a> {
    circuit: &'a Circuit,
    first_local: u32,
    passed: u64,
    /// The last event that reads each signal.
    last_use: Vec<u32>,
    /// The last event of the current part that reads each signal.
    last_use_here: Vec<u32>,
    /// Whether the stored word of a signal is inverted.
    inverted: Vec<bool>,
    /// The local of each signal in the current part.
    local: Vec<Option<u32>>,
    /// The place of each passed signal.
    place: Vec<Option<u32>>,
    locals: Pool,
    places: Pool,
}

impl<'a> Compiler<'a> {
    fn new(circuit: &'a Circuit, events: &[Event], first_local: u32, passed: u64) -> Compiler<'a> {
        let signals = circuit.signals();
        let mut last_use = vec![0; signals];
        for (time, &event) in events.iter().enumerate() {
            for signal in reads(circuit, event) {
                last_use[signal as usize] = time as u32;
            }
        }
        Compiler {
            circuit,
            first_local,
            passed,
            last_use,
            last_use_here: vec![0; signals],
            inverted: vec![false; signals],
            local: vec![None; signals],
            place: vec![None; signals],
            locals: Pool::default(),
            places: Pool::default(),
        }
    }

    fn part(&mut self, events: &[Event], range: Range<usize>, ports: &dyn Ports) -> Part {
        for time in range.clone() {
            for signal in reads(self.circuit, events[time]) {
                self.last_use_here[signal as usize] = time as u32;
            }
        }
        self.locals = Pool::default();
        let mut bytes = Vec::new();
        let mut code = InstructionSink::new(&mut bytes);
        for time in range.clone() {
            let event = events[time];
            for signal in reads(self.circuit, event) {
                self.fetch(&mut code, signal);
            }
            let defined = match event {
                Event::Load { input } => {
                    ports.load(&mut code, input);
                    Some(input)
                }
                Event::Compute { signal } => {
                    self.gate(&mut code, signal);
                    Some(signal)
                }
                Event::Store { signal, channel } => {
                    ports.store(&mut code, channel, &|code| self.push(code, signal));
                    None
                }
            };
            for signal in reads(self.circuit, event) {
                self.release(signal, time);
            }
            if let Some(signal) = defined {
                self.define(&mut code, signal, time, range.end);
            }
        }
        Part { code: bytes, locals: self.locals.made }
    }

    /// Makes sure that a signal is in a local.
    fn fetch(&mut self, code: &mut InstructionSink<'_>, signal: u32) {
        let signal = signal as usize;
        if let (None, Some(place)) = (self.local[signal], self.place[signal]) {
            let local = self.first_local + self.locals.take();
            code.i32_const(0).v128_load(at(self.passed + 16 * u64::from(place))).local_set(local);
            self.local[signal] = Some(local);
        }
    }

    /// The local of a signal that was fetched.
    fn local(&self, signal: u32) -> u32 {
        self.local[signal as usize].unwrap_or(self.first_local)
    }

    /// Pushes the true value of a signal.
    fn push(&self, code: &mut InstructionSink<'_>, signal: u32) {
        code.local_get(self.local(signal));
        if self.inverted[signal as usize] {
            code.v128_not();
        }
    }

    /// Computes a gate, or its inverse, and leaves it on the stack.
    fn gate(&mut self, code: &mut InstructionSink<'_>, signal: u32) {
        let Some(Node { gate, a, b }) = self.circuit.node(signal) else { return };
        let gate = if self.inverted[a as usize] { gate.not_a() } else { gate };
        let gate = if self.inverted[b as usize] { gate.not_b() } else { gate };
        // One of a gate and its inverse has f(0, 0) = 0: a constant, a wire, AND, OR, XOR or AND-NOT.
        let inverted = gate.eval(false, false);
        let gate = if inverted { gate.not() } else { gate };
        self.inverted[signal as usize] = inverted;
        match gate {
            Gate::AND => code.local_get(self.local(a)).local_get(self.local(b)).v128_and(),
            Gate::OR => code.local_get(self.local(a)).local_get(self.local(b)).v128_or(),
            Gate::XOR => code.local_get(self.local(a)).local_get(self.local(b)).v128_xor(),
            Gate::A_AND_NOT_B => code.local_get(self.local(a)).local_get(self.local(b)).v128_andnot(),
            Gate::NOT_A_AND_B => code.local_get(self.local(b)).local_get(self.local(a)).v128_andnot(),
            Gate::A => code.local_get(self.local(a)),
            Gate::B => code.local_get(self.local(b)),
            _ => code.v128_const(0),
        };
    }

    /// Takes the value of a signal from the stack into a local, and into memory if a later part needs it.
    fn define(&mut self, code: &mut InstructionSink<'_>, signal: u32, time: usize, end: usize) {
        let index = signal as usize;
        let local = self.first_local + self.locals.take();
        self.local[index] = Some(local);
        code.local_set(local);
        if self.last_use[index] as usize >= end {
            let place = self.places.take();
            self.place[index] = Some(place);
            code.i32_const(0).local_get(local).v128_store(at(self.passed + 16 * u64::from(place)));
        }
        if self.last_use_here[index] as usize <= time {
            self.free_local(index);
        }
    }

    /// Frees what a signal occupies, if this is its last use.
    fn release(&mut self, signal: u32, time: usize) {
        let signal = signal as usize;
        if self.last_use_here[signal] as usize == time {
            self.free_local(signal);
        }
        if self.last_use[signal] as usize == time {
            self.places.free.extend(self.place[signal].take());
        }
    }

    fn free_local(&mut self, signal: usize) {
        self.locals.free.extend(self.local[signal].take().map(|local| local - self.first_local));
    }
}

/// The signals that an event reads.
fn reads(circuit: &Circuit, event: Event) -> impl Iterator<Item = u32> + use<> {
    let (node, stored) = match event {
        Event::Load { .. } => (None, None),
        Event::Compute { signal } => (circuit.node(signal), None),
        Event::Store { signal, .. } => (None, Some(signal)),
    };
    node.into_iter().flat_map(Node::dependencies).chain(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cone::order;

    /// Ports that take no code.
    struct Nowhere;

    impl Ports for Nowhere {
        fn load(&self, _: &mut InstructionSink<'_>, _: u32) {}

        fn store(&self, code: &mut InstructionSink<'_>, _: usize, value: &dyn Fn(&mut InstructionSink<'_>)) {
            value(code);
        }
    }

    fn compiled(nodes: Vec<Node>, output: u32) -> Body {
        let circuit = Circuit::new(9, nodes, vec![output]).unwrap();
        compile(&circuit, &order(&circuit), &Nowhere, 0, 16)
    }

    #[test]
    fn a_long_chain_needs_few_locals() {
        let nodes = (0..1000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, (i + 1) % 9));
        let body = compiled(nodes.collect(), 1008);
        assert_eq!((body.parts.len(), body.passed_bytes), (1, 0));
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
    fn places_of_passed_values_are_used_again() {
        let gates = 10 * PART as u32;
        let nodes = (0..gates).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, (i + 1) % 9));
        let body = compiled(nodes.collect(), 8 + gates);
        // The nine inputs and the end of the chain.
        assert_eq!((body.parts.len(), body.passed_bytes), (11, 16 * 10));
    }
}
