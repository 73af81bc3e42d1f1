//! The block interpreter: a straight-line program whose every instruction works on a block of vectors.
//!
//! The longer the block, the less it costs to decode an instruction; but the slots of all live values should stay in the
//! cache. The inner loops are plain code on arrays of words, compiled for every instruction set and chosen at run time.

#![expect(clippy::inline_always, reason = "the code of a block must be compiled for its instruction set")]

use super::compiled::{Layout, Vector};
use crate::straight_line::{BitwiseOp, Instruction, Liveness, NEVER, SlotAllocator, StraightLineProgram};
use fearless_simd::{Level, Simd, dispatch};
use std::cell::Cell;

/// The bytes that the slots of a block should fit in: half of a usual second-level cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// The fewest vectors of a block: with fewer, decoding instructions takes longer than executing them.
const MIN_BLOCK: usize = 4;
/// The most vectors of a block.
const MAX_BLOCK: usize = 64;

/// A group of words that the inner loops compute at once.
pub(super) trait Words: Copy + 'static {
    const ZEROS: Self;
    const ONES: Self;

    /// Applies a function of words to two groups.
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self;
}

impl<const N: usize> Words for [u64; N] {
    const ZEROS: Self = [0; N];
    const ONES: Self = [u64::MAX; N];

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        std::array::from_fn(|i| f(self[i], other[i]))
    }
}

impl Words for Vector {
    const ZEROS: Self = Vector::ZERO;
    const ONES: Self = Vector::ONES;

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Vector::zip(self, other, f)
    }
}

/// The inputs and outputs of a block. All slices have the length of the block.
pub(super) trait BlockPorts<'a, W> {
    /// The words of an input that is read in place.
    fn input(&self, input: u32) -> &'a [W];
    /// Copies any other input to a slot.
    fn load(&self, input: u32, slot: &mut [W]);
    /// Writes words, or their inverse, to an output.
    fn store(&mut self, output: u32, words: &[W], inverted: bool);
}

/// An operand of an instruction.
#[derive(Clone, Copy, Debug)]
enum Operand {
    /// An input that is read in place.
    Input(u32),
    Slot(u32),
}

/// An instruction on a block.
#[derive(Clone, Copy, Debug)]
enum BlockInstruction {
    Load { input: u32, out: u32 },
    Fill { ones: bool, out: u32 },
    Compute { op: BitwiseOp, a: Operand, b: Operand, out: u32 },
    Store { a: Operand, inverted: bool, output: u32 },
}

/// A straight-line program with its values in slots.
#[derive(Clone, Debug)]
pub(super) struct BlockProgram {
    instructions: Vec<BlockInstruction>,
    slots: usize,
}

impl BlockProgram {
    /// Allocates slots to the values of a program. Inputs for which `in_place` is `false` are loaded before their first
    /// use.
    pub fn new(program: &StraightLineProgram, in_place: impl Fn(usize) -> bool) -> BlockProgram {
        let liveness = Liveness::new(program);
        // The operand of each value, once it is computed or loaded.
        let mut operands: Vec<Option<Operand>> = vec![None];
        let input = |input: usize| in_place(input).then_some(Operand::Input(input as u32));
        operands.extend((0..program.inputs).map(input));
        operands.reserve(program.operations());
        let mut slots = SlotAllocator::default();
        let mut instructions = Vec::with_capacity(program.instructions.len());
        for (&instruction, next_use) in program.instructions.iter().zip(&liveness.next_use) {
            let mut operand = |value: u32| {
                *operands[value as usize].get_or_insert_with(|| {
                    let out = slots.take();
                    instructions.push(BlockInstruction::Load { input: value - 1, out });
                    Operand::Slot(out)
                })
            };
            let [a, b] = instruction.reads().map(|value| value.map(&mut operand));
            // A slot that is read for the last time may be written by the same instruction.
            for (operand, &next_use) in [a, b].into_iter().zip(next_use) {
                if let (Some(Operand::Slot(slot)), NEVER) = (operand, next_use) {
                    slots.release(slot);
                }
            }
            let instruction = match (instruction, a, b) {
                (Instruction::Compute { op, .. }, Some(a), Some(b)) => {
                    let out = slots.take();
                    operands.push(Some(Operand::Slot(out)));
                    BlockInstruction::Compute { op, a, b, out }
                }
                (Instruction::Store { literal, output }, Some(a), _) => {
                    BlockInstruction::Store { a, inverted: literal.is_inverted(), output }
                }
                (Instruction::Store { literal, output }, None, _) => {
                    let out = slots.take();
                    slots.release(out);
                    instructions.push(BlockInstruction::Fill { ones: literal.is_inverted(), out });
                    BlockInstruction::Store { a: Operand::Slot(out), inverted: false, output }
                }
                (Instruction::Compute { .. }, ..) => continue, // An operation has two operands.
            };
            instructions.push(instruction);
        }
        BlockProgram { instructions, slots: slots.count() }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Computes a block. The slots are `slots.len() / self.slots()` groups long, of which `len` are computed.
    #[inline(always)]
    pub fn run<'a, W: Words, P: BlockPorts<'a, W>>(&self, slots: &mut [W], len: usize, ports: &mut P) {
        let stride = slots.len() / self.slots.max(1);
        let range = |slot: u32| slot as usize * stride..slot as usize * stride + len;
        for &instruction in &self.instructions {
            match instruction {
                BlockInstruction::Load { input, out } => ports.load(input, &mut slots[range(out)]),
                BlockInstruction::Fill { ones, out } => {
                    slots[range(out)].fill(if ones { W::ONES } else { W::ZEROS });
                }
                BlockInstruction::Compute { op, a, b, out } => {
                    let cells = Cell::from_mut(&mut *slots).as_slice_of_cells();
                    let input = |operand| match operand {
                        Operand::Input(input) => Source::Input(ports.input(input)),
                        Operand::Slot(slot) => Source::Slot(&cells[range(slot)]),
                    };
                    let (out, a, b) = (&cells[range(out)], input(a), input(b));
                    match op {
                        BitwiseOp::And => zip(out, a, b, |a, b| a & b),
                        BitwiseOp::AndNot => zip(out, a, b, |a, b| !a & b),
                        BitwiseOp::Or => zip(out, a, b, |a, b| a | b),
                        BitwiseOp::Xor => zip(out, a, b, |a, b| a ^ b),
                    }
                }
                BlockInstruction::Store { a, inverted, output } => match a {
                    Operand::Input(input) => ports.store(output, ports.input(input), inverted),
                    Operand::Slot(slot) => ports.store(output, &slots[range(slot)], inverted),
                },
            }
        }
    }
}

/// The words of an operand.
#[derive(Clone, Copy)]
enum Source<'a, W> {
    Input(&'a [W]),
    Slot(&'a [Cell<W>]),
}

/// `out = f(a, b)`, group by group.
#[inline(always)]
fn zip<W: Words>(out: &[Cell<W>], a: Source<'_, W>, b: Source<'_, W>, f: impl Fn(u64, u64) -> u64) {
    match (a, b) {
        (Source::Slot(a), Source::Slot(b)) => {
            for ((out, a), b) in out.iter().zip(a).zip(b) {
                out.set(a.get().zip(b.get(), &f));
            }
        }
        (Source::Input(a), Source::Slot(b)) => {
            for ((out, a), b) in out.iter().zip(a).zip(b) {
                out.set(a.zip(b.get(), &f));
            }
        }
        (Source::Slot(a), Source::Input(b)) => {
            for ((out, a), b) in out.iter().zip(a).zip(b) {
                out.set(a.get().zip(*b, &f));
            }
        }
        (Source::Input(a), Source::Input(b)) => {
            for ((out, a), b) in out.iter().zip(a).zip(b) {
                out.set(a.zip(*b, &f));
            }
        }
    }
}

/// A program with its inputs and outputs at fixed offsets in memory, interpreted; see
/// [`CompiledProgram`](super::compiled::CompiledProgram).
#[derive(Clone, Debug)]
pub(super) struct BlockInterpreter {
    program: BlockProgram,
    layout: Layout,
}

impl BlockInterpreter {
    pub fn new(program: &StraightLineProgram, layout: &Layout) -> BlockInterpreter {
        let is_aligned = |input: usize| (layout.inputs[input] as usize).is_multiple_of(Vector::WORDS);
        BlockInterpreter { program: BlockProgram::new(program, is_aligned), layout: layout.clone() }
    }

    /// Runs the program; see [`CompiledProgram::run`](super::compiled::CompiledProgram::run).
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        let slots = self.program.slots();
        let fitting = BLOCK_BYTES / (slots.max(1) * size_of::<Vector>());
        let block = fitting.clamp(MIN_BLOCK, MAX_BLOCK).min(count);
        if scratch.len() < slots * block {
            scratch.resize(slots * block, Vector::ZERO);
        }
        let level = Level::new();
        for start in (0..count).step_by(block) {
            let len = block.min(count - start);
            let mut ports = MemoryPorts { layout: &self.layout, start, len, source, target };
            dispatch!(level, simd => run_block(simd, &self.program, &mut scratch[..slots * block], &mut ports));
        }
    }
}

#[inline(always)]
fn run_block<S: Simd>(_: S, program: &BlockProgram, slots: &mut [Vector], ports: &mut MemoryPorts<'_>) {
    program.run(slots, ports.len, ports);
}

/// The vectors of a block in memory.
struct MemoryPorts<'a> {
    layout: &'a Layout,
    start: usize,
    len: usize,
    source: &'a [Vector],
    target: &'a mut [Vector],
}

impl<'a> BlockPorts<'a, Vector> for MemoryPorts<'a> {
    #[inline(always)]
    fn input(&self, input: u32) -> &'a [Vector] {
        &self.source[self.layout.inputs[input as usize] as usize / Vector::WORDS + self.start..][..self.len]
    }

    /// Copies vectors that are not aligned to those of the source.
    #[inline(always)]
    fn load(&self, input: u32, slot: &mut [Vector]) {
        let word = self.layout.inputs[input as usize] as usize;
        let (first, within) = (word / Vector::WORDS, word % Vector::WORDS);
        let pairs = self.source[first + self.start..][..=self.len].windows(2);
        for (out, pair) in slot.iter_mut().zip(pairs) {
            let word = |i: usize| pair[(within + i) / Vector::WORDS].0[(within + i) % Vector::WORDS];
            *out = Vector(std::array::from_fn(word));
        }
    }

    #[inline(always)]
    fn store(&mut self, output: u32, words: &[Vector], inverted: bool) {
        let offset = self.layout.outputs[output as usize] as usize / Vector::WORDS;
        let target = &mut self.target[offset + self.start..][..self.len];
        let flip = if inverted { Vector::ONES } else { Vector::ZERO };
        for (out, a) in target.iter_mut().zip(words) {
            *out = Vector::zip(*a, flip, |a, b| a ^ b);
        }
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
        let program = StraightLineProgram::new(&Circuit::new(3, nodes, vec![1002]).unwrap());
        let program = BlockProgram::new(&program, |_| true);
        assert_eq!((program.slots, program.instructions.len()), (1, 1001));
    }

    #[test]
    fn inputs_are_loaded_once_and_their_slots_reused() {
        let nodes =
            (0..1000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, (i + 1) % 9)).collect();
        let program = StraightLineProgram::new(&Circuit::new(9, nodes, vec![1008]).unwrap());
        let program = BlockProgram::new(&program, |_| false);
        let loads = program.instructions.iter().filter(|i| matches!(i, BlockInstruction::Load { .. }));
        assert_eq!((loads.count(), program.slots), (9, 10));
    }
}
