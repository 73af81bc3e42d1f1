//! The portable way to run a program: an interpreter whose every instruction works on a block of vectors.
//!
//! The longer the block, the less it costs to decode an instruction, but the slots of all values that are
//! alive at a time should stay in the cache. The inner loops are plain code on arrays of words, compiled for
//! every instruction set and chosen at run time.

#![expect(clippy::inline_always, reason = "the code of a block must be compiled for its instruction set")]

use super::compiled::{Layout, Vector};
use super::straight::{Instruction, NEVER, Operation, Straight, Uses};
use crate::simplify::Literal;
use fearless_simd::{Level, Simd, dispatch};
use std::cell::Cell;

/// The bytes that the slots of a block should fit in: half of a usual second-level cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// The least vectors of a block: fewer, and decoding instructions takes longer than running them.
const MIN_BLOCK: usize = 4;
/// The most vectors of a block.
const MAX_BLOCK: usize = 64;

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At this vector of the source.
    Source(u32),
    /// At this word of the source, between two vectors: it is copied to a slot before it is used.
    Between(u32),
    /// In a slot.
    Slot(u32),
}

/// One operation on a block.
#[derive(Clone, Copy, Debug)]
enum Move {
    Load { word: u32, out: u32 },
    Compute { operation: Operation, a: Place, b: Place, out: u32 },
    Fill { value: Vector, offset: u32 },
    Store { a: Place, inverted: bool, offset: u32 },
}

/// A program for the interpreter.
#[derive(Clone, Debug)]
pub(super) struct Portable {
    moves: Vec<Move>,
    slots: usize,
}

impl Place {
    fn of_word(word: u32) -> Place {
        let words = Vector::WORDS as u32;
        if word.is_multiple_of(words) { Place::Source(word / words) } else { Place::Between(word) }
    }
}

impl Portable {
    pub fn new(program: &Straight, layout: &Layout) -> Portable {
        let uses = Uses::new(program);
        let mut places: Vec<Place> = layout.inputs.iter().map(|&word| Place::of_word(word)).collect();
        places.reserve(program.operations());
        let (mut free, mut slots) = (Vec::new(), 0);
        let mut take = |free: &mut Vec<u32>| {
            free.pop().unwrap_or_else(|| {
                slots += 1;
                slots - 1
            })
        };
        let mut moves = Vec::with_capacity(program.instructions.len());
        for (&instruction, again) in program.instructions.iter().zip(&uses.again) {
            for value in instruction.reads().into_iter().flatten() {
                if let Place::Between(word) = places[value as usize] {
                    let out = take(&mut free);
                    moves.push(Move::Load { word, out });
                    places[value as usize] = Place::Slot(out);
                }
            }
            let operands = instruction.reads().map(|value| value.map(|value| places[value as usize]));
            // A slot that is read for the last time may be written by the same instruction.
            for (operand, &again) in operands.iter().zip(again) {
                if let (Some(Place::Slot(slot)), NEVER) = (operand, again) {
                    free.push(*slot);
                }
            }
            moves.push(match (instruction, operands) {
                (Instruction::Compute(step), [Some(a), Some(b)]) => {
                    let out = take(&mut free);
                    places.push(Place::Slot(out));
                    Move::Compute { operation: step.operation, a, b, out }
                }
                (Instruction::Store { literal, output }, [Some(a), _]) => Move::Store {
                    a,
                    inverted: literal.is_inverted(),
                    offset: layout.outputs[output as usize] / Vector::WORDS as u32,
                },
                (Instruction::Store { literal, output }, _) => {
                    let value = if literal == Literal::TRUE { Vector::ONES } else { Vector::ZERO };
                    Move::Fill { value, offset: layout.outputs[output as usize] / Vector::WORDS as u32 }
                }
                (Instruction::Compute(_), _) => continue, // An operation has two operands.
            });
        }
        Portable { moves, slots: slots as usize }
    }

    /// Runs the program; see [`super::compiled::Compiled::run`].
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        let fitting = BLOCK_BYTES / (self.slots.max(1) * size_of::<Vector>());
        let block = fitting.clamp(MIN_BLOCK, MAX_BLOCK).min(count);
        if scratch.len() < self.slots * block {
            scratch.resize(self.slots * block, Vector::ZERO);
        }
        let slots = Cell::from_mut(scratch.as_mut_slice()).as_slice_of_cells();
        let level = Level::new();
        for start in (0..count).step_by(block) {
            let block = Block { start, len: block.min(count - start), stride: block, source, slots };
            dispatch!(level, simd => run_block(simd, &self.moves, block, target));
        }
    }
}

/// The vectors that are computed together.
#[derive(Clone, Copy)]
struct Block<'a> {
    start: usize,
    len: usize,
    /// The vectors of a slot.
    stride: usize,
    source: &'a [Vector],
    slots: &'a [Cell<Vector>],
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn slot(self, slot: u32) -> &'a [Cell<Vector>] {
        &self.slots[slot as usize * self.stride..][..self.len]
    }

    #[inline(always)]
    fn source(self, offset: u32) -> &'a [Vector] {
        &self.source[offset as usize + self.start..][..self.len]
    }

    /// Copies the vectors that begin at a word between two of the source.
    #[inline(always)]
    fn load(self, word: u32, out: u32) {
        let (first, within) = (word as usize / Vector::WORDS, word as usize % Vector::WORDS);
        let pairs = self.source[first + self.start..][..=self.len].windows(2);
        for (out, pair) in self.slot(out).iter().zip(pairs) {
            let word = |i: usize| pair[(within + i) / Vector::WORDS].0[(within + i) % Vector::WORDS];
            out.set(Vector(std::array::from_fn(word)));
        }
    }
}

#[inline(always)]
fn run_block<S: Simd>(_: S, moves: &[Move], block: Block<'_>, target: &mut [Vector]) {
    for &instruction in moves {
        match instruction {
            Move::Load { word, out } => block.load(word, out),
            Move::Compute { operation, a, b, out } => {
                let out = block.slot(out);
                match operation {
                    Operation::And => zip(block, out, a, b, |a, b| a & b),
                    Operation::AndNot => zip(block, out, a, b, |a, b| !a & b),
                    Operation::Or => zip(block, out, a, b, |a, b| a | b),
                    Operation::Xor => zip(block, out, a, b, |a, b| a ^ b),
                }
            }
            Move::Fill { value, offset } => {
                target[offset as usize + block.start..][..block.len].fill(value);
            }
            Move::Store { a, inverted, offset } => {
                let target = &mut target[offset as usize + block.start..][..block.len];
                let flip = if inverted { Vector::ONES } else { Vector::ZERO };
                match a {
                    Place::Source(a) => {
                        for (out, a) in target.iter_mut().zip(block.source(a)) {
                            *out = a.zip(flip, |a, b| a ^ b);
                        }
                    }
                    Place::Slot(a) => {
                        for (out, a) in target.iter_mut().zip(block.slot(a)) {
                            *out = a.get().zip(flip, |a, b| a ^ b);
                        }
                    }
                    Place::Between(_) => {}
                }
            }
        }
    }
}

/// `out = f(a, b)`, vector by vector.
#[inline(always)]
fn zip(block: Block<'_>, out: &[Cell<Vector>], a: Place, b: Place, f: impl Fn(u64, u64) -> u64) {
    match (a, b) {
        (Place::Slot(a), Place::Slot(b)) => {
            for ((out, a), b) in out.iter().zip(block.slot(a)).zip(block.slot(b)) {
                out.set(a.get().zip(b.get(), &f));
            }
        }
        (Place::Source(a), Place::Slot(b)) => {
            for ((out, a), b) in out.iter().zip(block.source(a)).zip(block.slot(b)) {
                out.set(a.zip(b.get(), &f));
            }
        }
        (Place::Slot(a), Place::Source(b)) => {
            for ((out, a), b) in out.iter().zip(block.slot(a)).zip(block.source(b)) {
                out.set(a.get().zip(*b, &f));
            }
        }
        (Place::Source(a), Place::Source(b)) => {
            for ((out, a), b) in out.iter().zip(block.source(a)).zip(block.source(b)) {
                out.set(a.zip(*b, &f));
            }
        }
        (Place::Between(_), _) | (_, Place::Between(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    #[test]
    fn a_long_chain_needs_one_slot() {
        let nodes =
            (0..1000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 2 + i }, 1 + i % 2)).collect();
        let program = Straight::new(&Circuit::new(3, nodes, vec![1002]).unwrap());
        let portable = Portable::new(&program, &Layout::at_vectors(0..3, 0..1));
        assert_eq!((portable.slots, portable.moves.len()), (1, 1001));
    }
}
