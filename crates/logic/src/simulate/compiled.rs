//! Compiled programs: a straight-line program in a loop over vectors, with its inputs and outputs at fixed offsets.
//!
//! ```text
//! for k in 0..count:
//!     output[o] at target[outputs[o] + k] = program(input[i] at source[inputs[i] + k], ...)
//! ```
//!
//! Offsets are in words: inputs may be unaligned, outputs are aligned to vectors.
//!
//! On a batch of samples this runs a circuit; on the rows of a grid it runs the rule of an automaton along a row. The
//! program is native code where there is a code generator for the processor, and interpreted elsewhere.

use super::interpreter::BlockInterpreter;
use super::native::NativeCode;
use crate::straight_line::StraightLineProgram;

/// A vector of 256 cells or samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub(super) struct Vector(pub [u64; 4]);

impl Vector {
    pub const WORDS: usize = 4;
    pub const ZERO: Vector = Vector([0; 4]);
    pub const ONES: Vector = Vector([u64::MAX; 4]);

    /// Applies a function of words to two vectors.
    #[expect(clippy::inline_always, reason = "it must be compiled for the caller's instruction set")]
    #[inline(always)]
    pub fn zip(self, other: Vector, f: impl Fn(u64, u64) -> u64) -> Vector {
        Vector(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

/// The offsets of the inputs and outputs of a program in memory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The first word of each input.
    pub inputs: Vec<u32>,
    /// The first word of each output, aligned to a vector.
    pub outputs: Vec<u32>,
}

impl Layout {
    /// A layout with all inputs and outputs aligned, given by the index of their first vector.
    pub fn at_vectors(inputs: impl Iterator<Item = usize>, outputs: impl Iterator<Item = usize>) -> Layout {
        let word = |vector: usize| (vector * Vector::WORDS) as u32;
        Layout { inputs: inputs.map(word).collect(), outputs: outputs.map(word).collect() }
    }
}

/// The back end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Native code if there is a code generator for the processor, else the interpreter.
    Native,
    /// The interpreter.
    Interpreter,
}

/// A straight-line program that is ready to run.
#[derive(Clone, Debug)]
pub(super) enum CompiledProgram {
    Native(NativeCode),
    Interpreted(BlockInterpreter),
}

impl CompiledProgram {
    /// Compiles a program.
    pub fn new(program: &StraightLineProgram, layout: &Layout, mode: Mode) -> CompiledProgram {
        match mode {
            Mode::Native => CompiledProgram::reusing(None, program, layout),
            Mode::Interpreter => CompiledProgram::Interpreted(BlockInterpreter::new(program, layout)),
        }
    }

    /// Compiles to native code if possible, reusing the memory of a program that is no longer needed.
    pub fn reusing(
        old: Option<CompiledProgram>,
        program: &StraightLineProgram,
        layout: &Layout,
    ) -> CompiledProgram {
        let old = old.and_then(|old| match old {
            CompiledProgram::Native(native) => Some(native),
            CompiledProgram::Interpreted(_) => None,
        });
        match NativeCode::new(program, layout, old) {
            Some(native) => CompiledProgram::Native(native),
            None => CompiledProgram::Interpreted(BlockInterpreter::new(program, layout)),
        }
    }

    /// Whether this is native code.
    pub fn is_native(&self) -> bool {
        matches!(self, CompiledProgram::Native(_))
    }

    /// Runs `count` iterations, each one vector after the one before. Panics if the slices are too short.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        if count == 0 {
            return;
        }
        match self {
            CompiledProgram::Native(native) => native.run(source, target, count, scratch),
            CompiledProgram::Interpreted(interpreter) => interpreter.run(source, target, count, scratch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;
    use proptest::prelude::*;

    /// Runs a circuit on random samples and compares some bits of every vector with [`Circuit::eval`]. Input i is
    /// `shift * i % 5` words past an aligned vector.
    fn check(circuit: &Circuit, mode: Mode, count: usize, shift: usize) {
        let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
        // A gap of two vectors between inputs, and of one between outputs.
        let (at_input, at_output) = (|i| i * (count + 2), |i| i * (count + 1));
        let mut layout = Layout::at_vectors((0..inputs).map(at_input), (0..outputs).map(at_output));
        let shift = |i: usize| shift * i % 5;
        layout.inputs.iter_mut().enumerate().for_each(|(i, word)| *word += shift(i) as u32);
        let mut words = arbitrary::numbers();
        let mut vector = || Vector(std::array::from_fn(|_| words.next().unwrap_or_default()));
        let source: Vec<Vector> = (0..inputs * (count + 2)).map(|_| vector()).collect();
        let filler = Vector([0xabcd; 4]);
        let mut target = vec![filler; outputs * (count + 1)];
        let compiled = CompiledProgram::new(&StraightLineProgram::new(circuit), &layout, mode);
        let mut scratch = Vec::new();
        compiled.run(&source, &mut target, count, &mut scratch);
        let bit = |vectors: &[Vector], word: usize, at: usize| {
            let word = word + at / 64;
            vectors[word / 4].0[word % 4] >> (at % 64) & 1 == 1
        };
        for k in 0..count {
            for at in [0, 1, 63, 64, 200, 255] {
                let bits: Vec<bool> =
                    (0..inputs).map(|i| bit(&source, 4 * (at_input(i) + k) + shift(i), at)).collect();
                let results: Vec<bool> =
                    (0..outputs).map(|i| bit(&target, 4 * (at_output(i) + k), at)).collect();
                assert!(results == circuit.eval(&bits).unwrap(), "vector {k}, bit {at}");
            }
        }
        assert!((0..outputs).all(|i| target[i * (count + 1) + count] == filler), "a store is out of range");
    }

    fn check_both(circuit: &Circuit, count: usize) {
        for shift in [0, 1] {
            check(circuit, Mode::Interpreter, count, shift);
            check(circuit, Mode::Native, count, shift);
        }
    }

    proptest! {
        #[test]
        fn programs_compute_their_circuits(circuit in arbitrary::circuit(0..=9, 80), count in 1usize..5) {
            check_both(&circuit, count);
        }

        #[test]
        fn many_live_values_are_spilled(circuit in arbitrary::circuit(30..=60, 400), count in 1usize..4) {
            check_both(&circuit, count);
        }
    }

    #[test]
    fn native_code_is_used_on_processors_with_avx2() {
        let compiled = CompiledProgram::new(
            &StraightLineProgram::new(&Circuit::new(1, vec![], vec![0]).unwrap()),
            &Layout::at_vectors(0..1, 0..1),
            Mode::Native,
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(compiled.is_native(), std::is_x86_feature_detected!("avx2"));
        #[cfg(not(target_arch = "x86_64"))]
        assert!(!compiled.is_native());
    }

    #[test]
    fn circuits_without_gates_or_ports_run() {
        let circuit = |inputs, nodes, outputs| Circuit::new(inputs, nodes, outputs).unwrap();
        check_both(&circuit(0, vec![], vec![]), 3);
        check_both(&circuit(1, vec![], vec![0, 0]), 3);
        check_both(
            &circuit(0, vec![Node::new(Gate::TRUE, 0, 0), Node::new(Gate::FALSE, 0, 0)], vec![0, 1]),
            3,
        );
        check_both(&circuit(2, vec![Node::new(Gate::NOT_A, 0, 0)], vec![2, 1, 0, 2]), 3);
    }

    #[test]
    fn deep_chains_run() {
        let node = |i: u32| Node::new(Gate::ALL[1 + i as usize % 14], 3 + i - 1, i % 3);
        let nodes = (0..5000).map(node).collect();
        check_both(&Circuit::new(3, nodes, vec![5002]).unwrap(), 2);
    }

    #[test]
    fn circuits_with_40_000_live_values_run() {
        // More than 2^15 values are live at a time, so displacements need 32 bits.
        let width = 40_000;
        let gates = [Gate::XOR, Gate::NAND, Gate::OR, Gate::A_AND_NOT_B, Gate::XNOR, Gate::NOR];
        let mut nodes = Vec::new();
        for (layer, n) in arbitrary::numbers().take(3).enumerate() {
            let (stride, start) = (n as u32 % 10_000 * 2 + 1, layer as u32 * width);
            let node = |i: u32| {
                Node::new(gates[i as usize % 6], start + i, start + (i.wrapping_mul(stride) + 7) % width)
            };
            nodes.extend((0..width).map(node));
        }
        let outputs = (3 * width..4 * width).collect();
        check_both(&Circuit::new(width as usize, nodes, outputs).unwrap(), 1);
    }
}
