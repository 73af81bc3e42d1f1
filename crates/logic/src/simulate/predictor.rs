//! Prediction with a classifier: encoder, gates and head as one compiled program, 256 samples per instruction.
//!
//! The scores of the classes are computed bit-sliced by carry-save adders, and the arg-max by comparators, in the same
//! program as the gates: between the encoder and the class of a sample no value leaves the bit-sliced form.

use super::compiled::{CompiledProgram, Layout, Mode, Vector};
use super::encode::{BlockEncoder, EncoderScratch, SAMPLES};
use crate::classifier::{Classifier, ClassifierError, Encoder, Order, Rows, WholeCircuit};
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;
use rayon::prelude::*;
use std::sync::Mutex;

/// The bytes that the inputs of a block should fit in, and the most vectors of a block.
const BLOCK_BYTES: usize = 1 << 15;
const MAX_BLOCK: usize = 8;
/// The vector operations of a chunk of parallel work: 100 to 200 microseconds.
const THREAD_WORK: usize = 1 << 18;

/// A classifier, compiled to run on many samples at once.
///
/// ```
/// use gatework_logic::classifier::{Classifier, Encoder, Feature, Head};
/// use gatework_logic::{Circuit, Gate, Node, simulate::Predictor};
///
/// let encoder = Encoder::new(vec![Feature::numeric("width", vec![0.8])], None)?;
/// let circuit = Circuit::new(1, vec![Node::new(Gate::NOT_A, 0, 0)], vec![1, 0])?;
/// let head = Head::equal_groups(vec!["setosa".into(), "other".into()], 2, 1.0)?;
/// let predictor = Predictor::new(&Classifier::new(encoder, circuit, head)?);
/// assert_eq!(predictor.predict_many(&[0.2, 1.5, 0.4])?, [0, 1, 0]);
/// assert_eq!(predictor.scores_many(&[0.2, 1.5])?, [1, 0, 0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Predictor {
    encoder: BlockEncoder,
    features: usize,
    compiled: CompiledProgram,
    operations: usize,
    /// Vectors per block.
    block: usize,
    /// The outputs of the program that are the bits of the score of each class, and those of the label, the lowest
    /// bit first.
    scores: Vec<Vec<usize>>,
    label: Vec<usize>,
    outputs: usize,
    /// Buffers that are not in use.
    buffers: Mutex<Vec<Buffers>>,
}

/// The buffers of a block.
#[derive(Debug, Default)]
struct Buffers {
    source: Vec<Vector>,
    target: Vec<Vector>,
    scratch: Vec<Vector>,
    encoder: EncoderScratch,
}

impl Predictor {
    /// Compiles a classifier to native code if the processor is supported, else for the interpreter.
    pub fn new(classifier: &Classifier) -> Predictor {
        Predictor::with_mode(classifier, Mode::Native)
    }

    /// Compiles a classifier for the interpreter, which runs on every processor.
    pub fn portable(classifier: &Classifier) -> Predictor {
        Predictor::with_mode(classifier, Mode::Interpreter)
    }

    fn with_mode(classifier: &Classifier, mode: Mode) -> Predictor {
        let whole = WholeCircuit::new(classifier, Order::Serial);
        let mut literals: Vec<Literal> = Vec::new();
        // The highest bit of a sum comes first: its cone has all adders in the order in which the outputs are added.
        let mut place = |bits: &Vec<Literal>| -> Vec<usize> {
            literals.extend(bits.iter().rev());
            (0..bits.len()).map(|bit| literals.len() - 1 - bit).collect()
        };
        let scores = whole.scores.iter().map(&mut place).collect();
        let label = place(&whole.label);
        let program = StraightLineProgram::lower(&whole.xag, &literals);
        let fitting = BLOCK_BYTES / (program.inputs.max(1) * size_of::<Vector>());
        let block = fitting.clamp(1, MAX_BLOCK);
        let vectors = |signals: usize| (0..signals).map(|signal| signal * block);
        let layout = Layout::at_vectors(vectors(program.inputs), vectors(program.outputs));
        Predictor {
            encoder: BlockEncoder::new(classifier.encoder()),
            features: classifier.encoder().features().len(),
            compiled: CompiledProgram::new(&program, &layout, mode),
            operations: program.operations(),
            block,
            scores,
            label,
            outputs: program.outputs,
            buffers: Mutex::default(),
        }
    }

    /// Whether the classifier is compiled to native code.
    pub fn is_native(&self) -> bool {
        self.compiled.is_native()
    }

    /// The number of bitwise operations per sample: gates, adders and comparators.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.scores.len()
    }

    /// Returns the class of one sample.
    pub fn predict<'a>(&self, row: impl Into<Rows<'a>>) -> Result<usize, ClassifierError> {
        self.one(row.into(), |target| number(&self.label, self.block, target, 0) as usize)
    }

    /// Returns the score of every class for one sample.
    pub fn scores<'a>(&self, row: impl Into<Rows<'a>>) -> Result<Vec<u32>, ClassifierError> {
        self.one(row.into(), |target| {
            self.scores.iter().map(|bits| number(bits, self.block, target, 0)).collect()
        })
    }

    /// Returns the class of every sample. Large batches run in parallel.
    pub fn predict_many<'a>(&self, rows: impl Into<Rows<'a>>) -> Result<Vec<u32>, ClassifierError> {
        self.many(rows.into(), 1, |target, vector, labels| {
            unpack(&self.label, self.block, target, vector, labels, 1);
        })
    }

    /// Returns the scores of every sample: sample after sample, one score per class.
    pub fn scores_many<'a>(&self, rows: impl Into<Rows<'a>>) -> Result<Vec<u32>, ClassifierError> {
        let classes = self.scores.len();
        self.many(rows.into(), classes, |target, vector, scores| {
            for (class, bits) in self.scores.iter().enumerate() {
                unpack(bits, self.block, target, vector, &mut scores[class..], classes);
            }
        })
    }

    fn one<T>(&self, row: Rows<'_>, read: impl Fn(&[Vector]) -> T) -> Result<T, ClassifierError> {
        if row.len() != self.features {
            return Err(ClassifierError::Row { values: row.len(), features: self.features });
        }
        let mut buffers = self.take_buffers();
        self.encoder.encode_one(row, &mut buffers.source, self.block);
        self.compiled.run(&buffers.source, &mut buffers.target, 1, &mut buffers.scratch);
        let result = read(&buffers.target);
        self.return_buffers(buffers);
        Ok(result)
    }

    /// Runs a batch. `read` takes the results of one vector, `per_sample` numbers for each of its samples.
    fn many(
        &self,
        rows: Rows<'_>,
        per_sample: usize,
        read: impl Fn(&[Vector], usize, &mut [u32]) + Sync,
    ) -> Result<Vec<u32>, ClassifierError> {
        if !rows.len().is_multiple_of(self.features) {
            return Err(ClassifierError::Row { values: rows.len(), features: self.features });
        }
        let samples = rows.len() / self.features;
        let block = self.block * SAMPLES;
        let blocks = THREAD_WORK.div_ceil(self.block * (self.operations + self.encoder.bits() + 1));
        let chunk = block * blocks.max(1);
        let mut results = vec![0; samples * per_sample];
        let run = |(index, results): (usize, &mut [u32])| {
            let mut buffers = self.take_buffers();
            for (within, results) in results.chunks_mut(block * per_sample).enumerate() {
                let first = index * chunk + within * block;
                let count = (results.len() / per_sample).div_ceil(SAMPLES);
                for vector in 0..count {
                    let source = &mut buffers.source[vector..];
                    self.encoder.encode(
                        rows,
                        first + vector * SAMPLES,
                        source,
                        self.block,
                        &mut buffers.encoder,
                    );
                }
                self.compiled.run(&buffers.source, &mut buffers.target, count, &mut buffers.scratch);
                for (vector, results) in results.chunks_mut(SAMPLES * per_sample).enumerate() {
                    read(&buffers.target, vector, results);
                }
            }
            self.return_buffers(buffers);
        };
        if samples > chunk {
            results.par_chunks_mut(chunk * per_sample).enumerate().for_each(run);
        } else {
            results.chunks_mut(chunk * per_sample).enumerate().for_each(run);
        }
        Ok(results)
    }

    /// Returns buffers that are not in use, or new ones.
    fn take_buffers(&self) -> Buffers {
        let pooled = self.buffers.lock().ok().and_then(|mut buffers| buffers.pop());
        pooled.unwrap_or_else(|| Buffers {
            source: vec![Vector::ZERO; self.encoder.bits() * self.block],
            target: vec![Vector::ZERO; self.outputs * self.block],
            ..Buffers::default()
        })
    }

    fn return_buffers(&self, buffers: Buffers) {
        if let Ok(mut pool) = self.buffers.lock() {
            pool.push(buffers);
        }
    }
}

/// The binary number of sample 0 of a vector.
fn number(bits: &[usize], block: usize, target: &[Vector], vector: usize) -> u32 {
    let bit = |(i, &output): (usize, &usize)| (target[output * block + vector].0[0] as u32 & 1) << i;
    bits.iter().enumerate().map(bit).sum()
}

/// Writes the binary numbers of the samples of a vector, each `stride` after the one before.
fn unpack(
    bits: &[usize],
    block: usize,
    target: &[Vector],
    vector: usize,
    numbers: &mut [u32],
    stride: usize,
) {
    for (word, numbers) in numbers.chunks_mut(64 * stride).enumerate() {
        for (i, &output) in bits.iter().enumerate() {
            let mut samples = target[output * block + vector].0[word];
            for number in numbers.iter_mut().step_by(stride) {
                let bit = (samples as u32 & 1) << i;
                *number = if i == 0 { bit } else { *number | bit };
                samples >>= 1;
            }
        }
    }
}

impl Encoder {
    /// Encodes samples to the bit-sliced form that [`Executor`](super::Executor) takes: bit `s % 64` of word
    /// `bit * words + s / 64` is a bit of sample `s`, with `words = samples.div_ceil(64)`.
    ///
    /// ```
    /// use gatework_logic::classifier::{Encoder, Feature};
    ///
    /// let encoder = Encoder::new(vec![Feature::numeric("size", vec![1.0, 2.0])], None)?;
    /// assert_eq!(encoder.encode(&[0.5, 1.5, 2.5])?, [0b110, 0b100]);
    /// # Ok::<(), gatework_logic::ClassifierError>(())
    /// ```
    pub fn encode<'a>(&self, rows: impl Into<Rows<'a>>) -> Result<Vec<u64>, ClassifierError> {
        let rows = rows.into();
        let samples = self.count(rows)?;
        let words = samples.div_ceil(64);
        let encoder = BlockEncoder::new(self);
        let mut encoded = vec![0; words * self.bits()];
        let (mut target, mut scratch) = (vec![Vector::ZERO; self.bits()], EncoderScratch::default());
        for start in (0..words).step_by(Vector::WORDS) {
            encoder.encode(rows, start * 64, &mut target, 1, &mut scratch);
            let len = Vector::WORDS.min(words - start);
            for (row, vector) in encoded.chunks_exact_mut(words).zip(&target) {
                row[start..start + len].copy_from_slice(&vector.0[..len]);
            }
        }
        let tail = u64::MAX >> (samples.wrapping_neg() % 64);
        encoded.chunks_exact_mut(words.max(1)).for_each(|row| row[words - 1] &= tail);
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::classifier::FeatureKind;
    use proptest::prelude::*;

    /// Values near the thresholds of the features, categories, and some that are missing or infinite.
    fn rows(encoder: &Encoder, samples: usize) -> Vec<f32> {
        let mut numbers = arbitrary::numbers();
        let mut next = |below: u64| (numbers.next().unwrap_or_default() >> 8) % below;
        let mut value = |kind: &FeatureKind| match (kind, next(16)) {
            (_, 0) => f32::NAN,
            (_, 1) => f32::INFINITY,
            (FeatureKind::Numeric(thresholds), 2..8) if !thresholds.is_empty() => {
                thresholds[next(u64::MAX) as usize % thresholds.len()]
            }
            (FeatureKind::Numeric(_), _) => (next(u64::MAX) % 512) as f32 / 16.0 - 16.0,
            (FeatureKind::Categorical(names), _) => (next(u64::MAX) as usize % (names.len() + 1)) as f32,
        };
        (0..samples).flat_map(|_| encoder.features().iter()).map(|feature| value(&feature.kind)).collect()
    }

    fn check(classifier: &Classifier, predictor: &Predictor, rows: Rows<'_>, samples: usize) {
        let (features, classes) = (predictor.features, predictor.classes());
        let labels = predictor.predict_many(rows).unwrap();
        let scores = predictor.scores_many(rows).unwrap();
        let encoded = classifier.encoder().encode(rows).unwrap();
        let words = samples.div_ceil(64);
        for s in 0..samples {
            let range = s * features..(s + 1) * features;
            let row = match rows {
                Rows::Floats(values) => Rows::Floats(&values[range]),
                Rows::Bytes(values) => Rows::Bytes(&values[range]),
            };
            let bits = classifier.encoder().encode_row(row).unwrap();
            let sliced = (0..bits.len()).map(|bit| encoded[bit * words + s / 64] >> (s % 64) & 1 == 1);
            assert_eq!(sliced.collect::<Vec<_>>(), bits, "sample {s}");
            assert_eq!(scores[s * classes..(s + 1) * classes], classifier.scores(row).unwrap(), "sample {s}");
            assert_eq!(labels[s] as usize, classifier.predict(row).unwrap(), "sample {s}");
            if s < 3 {
                assert_eq!(predictor.predict(row).unwrap(), labels[s] as usize);
                assert_eq!(predictor.scores(row).unwrap(), scores[s * classes..(s + 1) * classes]);
            }
        }
        let unused = |row: &[u64]| (samples..words * 64).all(|s| row[s / 64] >> (s % 64) & 1 == 0);
        assert!(encoded.chunks_exact(words.max(1)).all(unused), "unused bits are 0");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn predictions_equal_the_reference(
            classifier in arbitrary::classifier(),
            samples in prop_oneof![0usize..3, 60usize..70, 250usize..260, 500usize..530],
        ) {
            let floats = rows(classifier.encoder(), samples);
            let bytes: Vec<u8> = arbitrary::numbers().take(floats.len()).map(|n| (n >> 20) as u8).collect();
            for predictor in [Predictor::new(&classifier), Predictor::portable(&classifier)] {
                check(&classifier, &predictor, Rows::from(&floats), samples);
                check(&classifier, &predictor, Rows::from(&bytes), samples);
            }
        }
    }

    #[test]
    fn batches_of_many_chunks_equal_single_samples() {
        use crate::classifier::{Feature, Head};
        use crate::{Circuit, Gate, Node};
        let features = (0..40).map(|i| Feature::numeric(format!("p{i}"), vec![i as f32 * 5.0])).collect();
        let node = |i: u32| Node::new(Gate::ALL[1 + i as usize % 14], 40 + i - 1, i * 7 % 40);
        let circuit = Circuit::new(40, (0..3000).map(node).collect(), (2000..3000).collect()).unwrap();
        let head = Head::equal_groups((0..10).map(|i| i.to_string()).collect(), 1000, 1.0).unwrap();
        let classifier = Classifier::new(Encoder::new(features, None).unwrap(), circuit, head).unwrap();
        let predictor = Predictor::new(&classifier);
        let samples = 40_000;
        let bytes: Vec<u8> = arbitrary::numbers().take(40 * samples).map(|n| (n >> 20) as u8).collect();
        let labels = predictor.predict_many(&bytes).unwrap();
        for s in (0..samples).step_by(997).chain([samples - 1]) {
            assert_eq!(labels[s] as usize, classifier.predict(&bytes[40 * s..40 * (s + 1)]).unwrap());
        }
    }

    #[test]
    fn rows_of_another_length_are_errors() {
        use crate::classifier::{Feature, Head};
        let features = vec![Feature::numeric("a", vec![0.0]), Feature::numeric("b", vec![])];
        let head = Head::equal_groups(vec!["x".into(), "y".into()], 2, 1.0).unwrap();
        let circuit = crate::Circuit::new(1, vec![], vec![0, 0]).unwrap();
        let classifier = Classifier::new(Encoder::new(features, None).unwrap(), circuit, head).unwrap();
        let predictor = Predictor::new(&classifier);
        let error = ClassifierError::Row { values: 3, features: 2 };
        assert_eq!(predictor.predict_many(&[0.0f32; 3]).unwrap_err(), error);
        assert_eq!(predictor.predict(&[0u8; 3]).unwrap_err(), error);
        assert!(predictor.predict_many(&[0u8; 0]).unwrap().is_empty());
    }
}
