//! From an automaton to a program: a flat list of instructions over slots.
//!
//! The circuit is simplified and cut down to the cone of the observed channels. A slot is the storage of one
//! intermediate value for a block of cells; it is free again after the last use of the value. An instruction
//! never writes to a slot that it reads, so the inner loops have no aliases.

use crate::automaton::{Automaton, AutomatonError, Boundary, NEIGHBOURS};
use crate::circuit::{Circuit, Node};
use crate::cone::{Cone, Event};
use crate::gate::Gate;

/// One operation on a block of cells. `out`, `a` and `b` are slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Read a neighbour of every cell, in one of [`Program::planes`].
    Load { out: u32, plane: u32, neighbour: u8 },
    /// A constant.
    Fill { out: u32, value: bool },
    /// The inverse of a slot.
    Not { out: u32, a: u32 },
    /// A gate of two different slots.
    Gate { gate: Gate, out: u32, a: u32, b: u32 },
    /// Write the new bits of a channel.
    Store { a: u32, channel: u32 },
}

/// A compiled automaton.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub boundary: Boundary,
    /// Whether each channel is live.
    pub live: Vec<bool>,
    /// The channels that are read.
    pub planes: Vec<usize>,
    pub instructions: Vec<Instruction>,
    /// The number of slots.
    pub slots: usize,
    /// The number of instructions that compute something.
    pub gates: usize,
}

impl Program {
    /// Compiles an automaton of which the first `observed` channels are looked at.
    pub fn new(automaton: &Automaton, observed: usize) -> Result<Program, AutomatonError> {
        automaton.check()?;
        let circuit = automaton.circuit.simplify();
        let cone = Cone::new(&circuit, observed);
        let mut allocator = Allocator::new(&circuit, &cone.events);
        let mut planes = Planes { channels: Vec::new(), index: vec![None; automaton.channels] };
        let mut gates = 0;
        let mut instructions = Vec::with_capacity(cone.events.len());
        for (time, &event) in cone.events.iter().enumerate() {
            instructions.push(match event {
                Event::Load { input } => {
                    let (channel, neighbour) = (input as usize / NEIGHBOURS, input as usize % NEIGHBOURS);
                    let out = allocator.take(input);
                    Instruction::Load { out, plane: planes.plane(channel), neighbour: neighbour as u8 }
                }
                Event::Compute { signal } => {
                    gates += 1;
                    compute(&circuit, &mut allocator, signal)
                }
                Event::Store { signal, channel } => {
                    Instruction::Store { a: allocator.slot(signal), channel: channel as u32 }
                }
            });
            for signal in reads(&circuit, event) {
                allocator.release(signal, time);
            }
        }
        let (planes, slots) = (planes.channels, allocator.slots as usize);
        Ok(Program { boundary: automaton.boundary, live: cone.live, planes, instructions, slots, gates })
    }
}

/// The instruction for a gate of a simplified circuit.
fn compute(circuit: &Circuit, allocator: &mut Allocator, signal: u32) -> Instruction {
    let out = allocator.take(signal);
    let node = circuit.nodes()[signal as usize - circuit.inputs()];
    match node.gate {
        Gate::FALSE | Gate::TRUE => Instruction::Fill { out, value: node.gate == Gate::TRUE },
        Gate::NOT_A => Instruction::Not { out, a: allocator.slot(node.a) },
        gate => Instruction::Gate { gate, out, a: allocator.slot(node.a), b: allocator.slot(node.b) },
    }
}

/// The signals that an event reads.
fn reads(circuit: &Circuit, event: Event) -> impl Iterator<Item = u32> {
    let (node, stored) = match event {
        Event::Load { .. } => (None, None),
        Event::Compute { signal } => (circuit.node(signal), None),
        Event::Store { signal, .. } => (None, Some(signal)),
    };
    node.into_iter().flat_map(Node::dependencies).chain(stored)
}

/// Numbers the channels that are read.
struct Planes {
    channels: Vec<usize>,
    index: Vec<Option<u32>>,
}

impl Planes {
    fn plane(&mut self, channel: usize) -> u32 {
        *self.index[channel].get_or_insert_with(|| {
            self.channels.push(channel);
            self.channels.len() as u32 - 1
        })
    }
}

/// Hands out slots and takes them back at the last use of their value.
struct Allocator {
    slot_of: Vec<u32>,
    last_use: Vec<u32>,
    free: Vec<u32>,
    slots: u32,
}

impl Allocator {
    fn new(circuit: &Circuit, events: &[Event]) -> Allocator {
        let mut last_use = vec![0; circuit.signals()];
        for (time, &event) in events.iter().enumerate() {
            for signal in reads(circuit, event) {
                last_use[signal as usize] = time as u32;
            }
        }
        Allocator { slot_of: vec![0; circuit.signals()], last_use, free: Vec::new(), slots: 0 }
    }

    /// A slot for a new value.
    fn take(&mut self, signal: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.slot_of[signal as usize] = slot;
        slot
    }

    /// The slot of a value.
    fn slot(&self, signal: u32) -> u32 {
        self.slot_of[signal as usize]
    }

    /// Frees the slot of a value if this is its last use.
    fn release(&mut self, signal: u32, time: usize) {
        if self.last_use[signal as usize] == time as u32 {
            self.free.push(self.slot(signal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(nodes: Vec<Node>, outputs: Vec<u32>, observed: usize) -> Program {
        let channels = outputs.len();
        let circuit = Circuit::new(9 * channels, nodes, outputs).unwrap();
        Program::new(&Automaton::new(channels, Boundary::Torus, circuit).unwrap(), observed).unwrap()
    }

    #[test]
    fn a_long_chain_needs_few_slots() {
        let nodes = (0..1000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, i % 9)).collect();
        let program = program(nodes, vec![1008], 1);
        // XOR(0, 0) at the start is a constant.
        assert_eq!(program.gates, 998);
        assert!(program.slots <= 11, "{} slots", program.slots);
    }

    #[test]
    fn only_the_planes_that_are_needed_are_read() {
        // Channel 0 is the AND of two neighbours in channel 1, which keeps its value; channel 2 reads
        // everything.
        let nodes = vec![Node::new(Gate::AND, 9, 10), Node::new(Gate::OR, 27, 5)];
        let program = program(nodes, vec![27, 13, 28], 1);
        assert_eq!((program.planes, program.live, program.gates), (vec![1], vec![true, true, false], 1));
        assert_eq!(program.instructions.len(), 4);
    }

    #[test]
    fn no_instruction_writes_to_a_slot_it_reads() {
        let circuit = crate::arbitrary::large(12, 4000);
        for instruction in Program::new(&circuit, 12).unwrap().instructions {
            match instruction {
                Instruction::Gate { out, a, b, .. } => assert!(out != a && out != b && a != b),
                Instruction::Not { out, a } => assert!(out != a),
                _ => {}
            }
        }
    }
}
