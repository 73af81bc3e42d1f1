//! Bit-parallel evaluation of a circuit on a batch of samples, 256 samples per instruction.
//!
//! A batch is split into blocks. The inputs of a block are copied to a contiguous buffer, the program runs on it, and the
//! outputs are copied back, so that all intermediate values stay in the cache. Large batches run in parallel, block by
//! block; the result does not depend on the number of threads.

use super::compiled::{CompiledProgram, Layout, Mode, Vector};
use crate::circuit::Circuit;
use crate::straight_line::StraightLineProgram;
use rayon::prelude::*;
use thiserror::Error;

/// The bytes that the inputs and outputs of a block should fit in.
const BLOCK_BYTES: usize = 1 << 18;
/// The fewest vectors of a block, which amortise the overhead of the interpreter.
const MIN_BLOCK: usize = 4;
/// The most vectors of a block.
const MAX_BLOCK: usize = 32;
/// The vector operations of a chunk of parallel work: 100 to 200 microseconds.
const THREAD_WORK: usize = 1 << 18;

/// A circuit, compiled to run on many samples at once.
///
/// Inputs and outputs are bit-sliced, with 64 samples per word and signal after signal: bit `s % 64` of word
/// `signal * words + s / 64` is the value of a signal in sample `s`, with `words = samples.div_ceil(64)`.
///
/// ```
/// use gatework_logic::{Circuit, Gate, Node, simulate::Executor};
///
/// let adder = Circuit::new(2, vec![Node::new(Gate::XOR, 0, 1), Node::new(Gate::AND, 0, 1)], vec![2, 3])?;
/// // Four samples: 0 + 0, 1 + 0, 0 + 1 and 1 + 1.
/// let mut outputs = [0; 2];
/// Executor::new(&adder).run(4, &[0b1010, 0b1100], &mut outputs)?;
/// assert_eq!(outputs, [0b0110, 0b1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Executor {
    inputs: usize,
    outputs: usize,
    operations: usize,
    compiled: CompiledProgram,
    /// Vectors per block.
    block: usize,
}

/// A batch whose size does not match the ports of the circuit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{samples} samples of {signals} {port}s need {expected} words, but the slice has {given}")]
pub struct BatchError {
    /// `input` or `output`.
    pub port: &'static str,
    /// The number of samples.
    pub samples: usize,
    /// The number of inputs or outputs.
    pub signals: usize,
    /// The number of words that the batch needs.
    pub expected: usize,
    /// The number of words in the slice.
    pub given: usize,
}

impl Executor {
    /// Compiles a circuit to native code if the processor is supported, else for the interpreter.
    pub fn new(circuit: &Circuit) -> Executor {
        Executor::with_mode(circuit, Mode::Native)
    }

    /// Compiles a circuit for the interpreter, which runs on every processor.
    pub fn portable(circuit: &Circuit) -> Executor {
        Executor::with_mode(circuit, Mode::Interpreter)
    }

    fn with_mode(circuit: &Circuit, mode: Mode) -> Executor {
        let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
        let fitting = BLOCK_BYTES / ((inputs + outputs).max(1) * size_of::<Vector>());
        let block = fitting.clamp(MIN_BLOCK, MAX_BLOCK);
        let vectors = |signals: usize| (0..signals).map(|signal| signal * block);
        let layout = Layout::at_vectors(vectors(inputs), vectors(outputs));
        let program = StraightLineProgram::new(circuit);
        let compiled = CompiledProgram::new(&program, &layout, mode);
        Executor { inputs, outputs, operations: program.operations(), compiled, block }
    }

    /// Whether the circuit is compiled to native code.
    pub fn is_native(&self) -> bool {
        self.compiled.is_native()
    }

    /// The number of bitwise operations per sample.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Runs a batch. The unused bits in the last words of the inputs are ignored; those of the outputs become 0.
    pub fn run(&self, samples: usize, inputs: &[u64], outputs: &mut [u64]) -> Result<(), BatchError> {
        let words = samples.div_ceil(64);
        check("input", samples, self.inputs, inputs.len())?;
        check("output", samples, self.outputs, outputs.len())?;
        if words == 0 || self.outputs == 0 {
            return Ok(());
        }
        let batch = Batch { words, inputs, tail: u64::MAX >> (samples.wrapping_neg() % 64) };
        let block_words = self.block * Vector::WORDS;
        let blocks_per_chunk =
            THREAD_WORK.div_ceil(self.block * (self.operations + self.inputs + self.outputs));
        let chunk_words = block_words * blocks_per_chunk.max(1);
        let mut chunks: Vec<Vec<&mut [u64]>> = Vec::new();
        chunks.resize_with(words.div_ceil(chunk_words), || Vec::with_capacity(self.outputs));
        for row in outputs.chunks_exact_mut(words) {
            for (chunk, words) in chunks.iter_mut().zip(row.chunks_mut(chunk_words)) {
                chunk.push(words);
            }
        }
        let run = |(index, mut rows): (usize, Vec<&mut [u64]>)| {
            let mut buffers = BlockBuffers::new(self);
            for offset in (0..chunk_words.min(words - index * chunk_words)).step_by(block_words) {
                self.run_block(&batch, index * chunk_words + offset, offset, &mut rows, &mut buffers);
            }
        };
        if chunks.len() > 1 {
            chunks.into_par_iter().enumerate().for_each(run);
        } else {
            chunks.into_iter().enumerate().for_each(run);
        }
        Ok(())
    }

    /// Runs the block that begins at word `start` of the batch and at word `offset` of the rows of a chunk.
    fn run_block(
        &self,
        batch: &Batch<'_>,
        start: usize,
        offset: usize,
        rows: &mut [&mut [u64]],
        buffers: &mut BlockBuffers,
    ) {
        let len = (self.block * Vector::WORDS).min(batch.words - start);
        let input_rows = batch.inputs.chunks_exact(batch.words);
        for (row, vectors) in input_rows.zip(buffers.source.chunks_exact_mut(self.block)) {
            // Whole vectors have a constant size, so they are copied without a call.
            let (whole, rest) = row[start..start + len].as_chunks();
            for (words, vector) in whole.iter().zip(&mut *vectors) {
                vector.0 = *words;
            }
            if !rest.is_empty() {
                vectors[whole.len()].0[..rest.len()].copy_from_slice(rest);
            }
        }
        let count = len.div_ceil(Vector::WORDS);
        self.compiled.run(&buffers.source, &mut buffers.target, count, &mut buffers.scratch);
        for (row, vectors) in rows.iter_mut().zip(buffers.target.chunks_exact(self.block)) {
            let row = &mut row[offset..offset + len];
            let (whole, rest) = row.as_chunks_mut();
            for (words, vector) in whole.iter_mut().zip(vectors) {
                *words = vector.0;
            }
            if !rest.is_empty() {
                rest.copy_from_slice(&vectors[whole.len()].0[..rest.len()]);
            }
            if start + len == batch.words {
                row[len - 1] &= batch.tail;
            }
        }
    }
}

/// Checks the length of a slice.
fn check(port: &'static str, samples: usize, signals: usize, given: usize) -> Result<(), BatchError> {
    let expected = samples.div_ceil(64).saturating_mul(signals);
    if given == expected { Ok(()) } else { Err(BatchError { port, samples, signals, expected, given }) }
}

/// The inputs of a batch.
struct Batch<'a> {
    /// Words per signal.
    words: usize,
    inputs: &'a [u64],
    /// The mask of the used bits of the last word.
    tail: u64,
}

/// The buffers of one block.
struct BlockBuffers {
    source: Vec<Vector>,
    target: Vec<Vector>,
    scratch: Vec<Vector>,
}

impl BlockBuffers {
    fn new(executor: &Executor) -> BlockBuffers {
        let vectors = |signals| vec![Vector::ZERO; signals * executor.block];
        BlockBuffers {
            source: vectors(executor.inputs),
            target: vectors(executor.outputs),
            scratch: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use proptest::prelude::*;

    /// Compares every `stride`th sample of a random batch with [`Circuit::eval`].
    fn check_batch(circuit: &Circuit, executor: &Executor, samples: usize, stride: usize) {
        let words = samples.div_ceil(64);
        let inputs: Vec<u64> = arbitrary::numbers().take(words * circuit.inputs()).collect();
        let mut outputs = vec![u64::MAX; words * circuit.outputs().len()];
        executor.run(samples, &inputs, &mut outputs).unwrap();
        let bit = |words_of: &[u64], signal, s: usize| words_of[signal * words + s / 64] >> (s % 64) & 1 == 1;
        for s in (0..samples).step_by(stride).chain(samples.checked_sub(1)) {
            let bits: Vec<bool> = (0..circuit.inputs()).map(|i| bit(&inputs, i, s)).collect();
            let results: Vec<bool> = (0..circuit.outputs().len()).map(|o| bit(&outputs, o, s)).collect();
            assert_eq!(results, circuit.eval(&bits).unwrap(), "sample {s}");
        }
        for row in outputs.chunks_exact(words.max(1)) {
            assert!((samples..words * 64).all(|s| !bit(row, 0, s)), "unused bits are 0");
        }
    }

    fn both(circuit: &Circuit) -> [Executor; 2] {
        [Executor::new(circuit), Executor::portable(circuit)]
    }

    proptest! {
        #[test]
        fn batches_of_any_length_equal_the_reference(
            circuit in arbitrary::circuit(0..=8, 60),
            samples in prop_oneof![0usize..3, 60usize..70, 250usize..260, 0usize..1100],
        ) {
            for executor in both(&circuit) {
                check_batch(&circuit, &executor, samples, 1);
            }
        }
    }

    #[test]
    fn batches_of_many_chunks_equal_the_reference() {
        let gate = |i: u32| if i.is_multiple_of(3) { Gate::NAND } else { Gate::XOR };
        let nodes =
            (0..2000).map(|i| Node::new(gate(i), if i == 0 { 0 } else { 7 + i }, i * 5 % 8)).collect();
        let circuit = Circuit::new(8, nodes, vec![2007, 1500]).unwrap();
        for executor in both(&circuit) {
            let chunk = THREAD_WORK / executor.operations() * 256;
            check_batch(&circuit, &executor, 2 * chunk + 77, 9973);
        }
    }

    #[test]
    fn slices_of_the_wrong_length_are_errors() {
        let executor = Executor::new(&Circuit::new(2, vec![], vec![1]).unwrap());
        let error = executor.run(65, &[0; 3], &mut [0; 2]).unwrap_err();
        assert_eq!(error.to_string(), "65 samples of 2 inputs need 4 words, but the slice has 3");
        let error = executor.run(64, &[0; 2], &mut []).unwrap_err();
        assert_eq!((error.port, error.expected, error.given), ("output", 1, 0));
        assert!(executor.run(usize::MAX, &[], &mut []).is_err());
    }
}
