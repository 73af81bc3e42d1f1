//! The encoder of a classifier, bit-sliced: 256 samples become one vector per bit.
//!
//! Byte `b` of a vector holds samples `8 b` to `8 b + 7`. Bytes (images) are compared along a row: eight rows give a byte of
//! bits for each feature, and 8x8 blocks of these bytes are transposed to words. Numbers (tables) are
//! transposed first: a column of 256 values is compared with every threshold of its feature. Both loops have no branches
//! and are compiled to vector instructions.

#![expect(clippy::inline_always, reason = "loops must be compiled for the caller's instruction set")]

use super::compiled::Vector;
use crate::classifier::{Encoder, FeatureKind, MAX_PIXEL, Rows};
use fearless_simd::{Level, Simd, dispatch};

/// The samples of a vector.
pub(super) const SAMPLES: usize = 64 * Vector::WORDS;
/// The bytes of a vector.
const BYTES: usize = SAMPLES / 8;
/// No bit.
const NONE: u32 = u32::MAX;
/// The most places of levels for each bit and each feature. A level has a place for every feature, so features with very
/// different numbers of thresholds would take much memory.
const MAX_PLACES: usize = 16;

/// An encoder for blocks of 256 samples.
#[derive(Clone, Debug)]
pub(super) struct BlockEncoder {
    features: usize,
    bits: usize,
    columns: Vec<Column>,
    /// The thresholds of bytes, if all features are numeric: level i has threshold i of every feature.
    levels: Option<Vec<ByteLevel>>,
    /// The bits that are 1 for every byte: their thresholds are negative.
    always: Vec<usize>,
}

/// A feature.
#[derive(Clone, Debug)]
struct Column {
    /// The first bit.
    start: usize,
    kind: ColumnKind,
    missing: bool,
}

#[derive(Clone, Debug)]
enum ColumnKind {
    Numeric(Vec<f32>),
    Categorical(usize),
}

/// One threshold of every feature.
#[derive(Clone, Debug)]
struct ByteLevel {
    /// For each feature, the largest byte that is not above the threshold.
    below: Vec<u8>,
    /// For each feature, the bit of the threshold, or [`NONE`].
    bit: Vec<u32>,
}

/// The buffers of a block encoder.
#[derive(Clone, Debug, Default)]
pub(super) struct EncoderScratch {
    bytes: Vec<u8>,
    floats: Vec<f32>,
    empty_row: Vec<u8>,
}

impl BlockEncoder {
    pub fn new(encoder: &Encoder) -> BlockEncoder {
        let columns: Vec<Column> = encoder
            .features()
            .iter()
            .zip(encoder.ranges())
            .map(|(feature, range)| Column {
                start: range.start,
                kind: match &feature.kind {
                    FeatureKind::Numeric(thresholds) => ColumnKind::Numeric(thresholds.clone()),
                    FeatureKind::Categorical(names) => ColumnKind::Categorical(names.len()),
                },
                missing: feature.missing,
            })
            .collect();
        let (levels, always) = byte_levels(&columns);
        BlockEncoder { features: columns.len(), bits: encoder.bits(), columns, levels, always }
    }

    /// The number of bits of a sample.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Encodes up to 256 samples from sample `first` on; bit i becomes vector `i * stride` of the target. The bits of
    /// samples that do not exist are undefined.
    pub fn encode(
        &self,
        rows: Rows<'_>,
        first: usize,
        target: &mut [Vector],
        stride: usize,
        scratch: &mut EncoderScratch,
    ) {
        let count = (rows.len() / self.features - first).min(SAMPLES);
        let range = first * self.features..(first + count) * self.features;
        match (rows, &self.levels) {
            (Rows::Bytes(values), Some(levels)) => {
                self.encode_bytes(&values[range], levels, target, stride, scratch);
            }
            (Rows::Bytes(values), None) => {
                let mut floats = std::mem::take(&mut scratch.floats);
                floats.clear();
                floats.extend(values[range].iter().map(|&value| f32::from(value)));
                self.encode_floats(&floats, target, stride);
                scratch.floats = floats;
            }
            (Rows::Floats(values), _) => self.encode_floats(&values[range], target, stride),
        }
    }

    fn encode_bytes(
        &self,
        rows: &[u8],
        levels: &[ByteLevel],
        target: &mut [Vector],
        stride: usize,
        scratch: &mut EncoderScratch,
    ) {
        let n = self.features;
        // Features are processed in blocks of eight; the last block is padded.
        let width = n.next_multiple_of(8);
        scratch.bytes.resize(BYTES * width, 0);
        scratch.empty_row.resize(n, 0);
        let simd_level = Level::new();
        for level in levels {
            let groups = scratch.bytes.chunks_exact_mut(width);
            for (out, rows) in groups.zip(rows.chunks(8 * n)) {
                let row = |i: usize| rows.get(i * n..(i + 1) * n).unwrap_or(&scratch.empty_row);
                let rows: [&[u8]; 8] = std::array::from_fn(row);
                dispatch!(simd_level, simd => compare_bytes(simd, rows, &level.below, &mut out[..n]));
            }
            transpose_bytes(&scratch.bytes, width, &level.bit, target, stride);
        }
        for &bit in &self.always {
            target[bit * stride] = Vector::ONES;
        }
        for column in self.columns.iter().filter(|column| column.missing) {
            let ColumnKind::Numeric(thresholds) = &column.kind else { continue };
            target[(column.start + thresholds.len()) * stride] = Vector::ZERO;
        }
    }

    fn encode_floats(&self, rows: &[f32], target: &mut [Vector], stride: usize) {
        let level = Level::new();
        let mut values = Samples([[0.0; BYTES]; 8]);
        for (feature, column) in self.columns.iter().enumerate() {
            for (sample, row) in rows.chunks_exact(self.features).enumerate() {
                values.0[sample % 8][sample / 8] = row[feature];
            }
            let mut bit = column.start;
            let mut push = |vector| {
                target[bit * stride] = vector;
                bit += 1;
            };
            match &column.kind {
                ColumnKind::Numeric(thresholds) => {
                    for &threshold in thresholds {
                        push(dispatch!(level, simd => values.test(simd, |value| value > threshold)));
                    }
                }
                #[expect(clippy::float_cmp, reason = "an index is an integer")]
                &ColumnKind::Categorical(categories) => {
                    for category in 0..categories {
                        let category = category as f32;
                        push(dispatch!(level, simd => values.test(simd, |value| value == category)));
                    }
                }
            }
            if column.missing {
                push(dispatch!(level, simd => values.test(simd, f32::is_nan)));
            }
        }
    }

    /// Encodes one row as the first sample of vectors; the bits of the other samples are undefined.
    pub fn encode_one(&self, row: Rows<'_>, target: &mut [Vector], stride: usize) {
        for (feature, column) in self.columns.iter().enumerate() {
            let value = row.get(feature);
            let mut bit = column.start;
            let mut push = |set: bool| {
                target[bit * stride].0[0] = u64::from(set);
                bit += 1;
            };
            match &column.kind {
                ColumnKind::Numeric(thresholds) => thresholds.iter().for_each(|&t| push(value > t)),
                #[expect(clippy::float_cmp, reason = "an index is an integer")]
                &ColumnKind::Categorical(count) => (0..count).for_each(|i| push(value == i as f32)),
            }
            if column.missing {
                push(value.is_nan());
            }
        }
    }
}

/// The levels of bytes, and the bits that are always 1; no levels if a feature is categorical, or if they are mostly empty.
fn byte_levels(columns: &[Column]) -> (Option<Vec<ByteLevel>>, Vec<usize>) {
    let (mut levels, mut always) = (Vec::new(), Vec::new());
    let thresholds = |column: &Column| match &column.kind {
        ColumnKind::Numeric(thresholds) => thresholds.len(),
        ColumnKind::Categorical(_) => 0,
    };
    let bits: usize = columns.iter().map(thresholds).sum();
    let most = columns.iter().map(thresholds).max().unwrap_or(0);
    if most.saturating_mul(columns.len()) > MAX_PLACES * (bits + columns.len()) {
        return (None, Vec::new());
    }
    for (feature, column) in columns.iter().enumerate() {
        let ColumnKind::Numeric(thresholds) = &column.kind else { return (None, Vec::new()) };
        for (i, &threshold) in thresholds.iter().enumerate() {
            if levels.len() <= i {
                let (below, bit) = (vec![u8::MAX; columns.len()], vec![NONE; columns.len()]);
                levels.push(ByteLevel { below, bit });
            }
            levels[i].below[feature] = threshold.clamp(0.0, MAX_PIXEL as f32) as u8;
            levels[i].bit[feature] = (column.start + i) as u32;
            if threshold < 0.0 {
                always.push(column.start + i);
            }
        }
    }
    (Some(levels), always)
}

/// Compares eight rows with the thresholds: bit i of byte f is whether `rows[i][f]` is above `below[f]`.
#[inline(always)]
fn compare_bytes<S: Simd>(_: S, rows: [&[u8]; 8], below: &[u8], out: &mut [u8]) {
    let n = out.len();
    let (below, rows) = (&below[..n], rows.map(|row| &row[..n]));
    for f in 0..n {
        let bit = |i: usize| u8::from(rows[i][f] > below[f]) << i;
        out[f] = bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(7);
    }
}

/// Turns rows of bytes, one byte of samples per feature, into vectors, one per feature that has a bit.
fn transpose_bytes(rows: &[u8], width: usize, bits: &[u32], target: &mut [Vector], stride: usize) {
    for (block, bits) in bits.chunks(8).enumerate() {
        if bits.iter().all(|&bit| bit == NONE) {
            continue;
        }
        for word in 0..Vector::WORDS {
            let row = |i: usize| {
                let at = (8 * word + i) * width + 8 * block;
                u64::from_le_bytes(rows[at..at + 8].try_into().unwrap_or_default())
            };
            let columns = transpose_8x8(std::array::from_fn(row));
            for (&bit, column) in bits.iter().zip(columns) {
                if bit != NONE {
                    target[bit as usize * stride].0[word] = column;
                }
            }
        }
    }
}

/// Transposes an 8x8 matrix of bytes: blocks of four rows and columns are exchanged, then of two, then of one.
#[inline]
fn transpose_8x8(mut rows: [u64; 8]) -> [u64; 8] {
    let steps =
        [(4, 32, 0x0000_0000_ffff_ffff), (2, 16, 0x0000_ffff_0000_ffff), (1, 8, 0x00ff_00ff_00ff_00ff)];
    for (distance, shift, mask) in steps {
        for i in (0..8).filter(|i| i & distance == 0) {
            let moved = (rows[i] >> shift ^ rows[i + distance]) & mask;
            rows[i] ^= moved << shift;
            rows[i + distance] ^= moved;
        }
    }
    rows
}

/// The values of a feature: sample `8 b + i` is `[i][b]`.
struct Samples([[f32; BYTES]; 8]);

impl Samples {
    /// The samples for which a test holds.
    #[inline(always)]
    fn test<S: Simd>(&self, _: S, test: impl Fn(f32) -> bool) -> Vector {
        let mut bytes = [0u32; BYTES];
        for (i, values) in self.0.iter().enumerate() {
            for (byte, &value) in bytes.iter_mut().zip(values) {
                *byte |= u32::from(test(value)) << i;
            }
        }
        let word = |w: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * w + b] as u8));
        Vector(std::array::from_fn(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::Feature;

    #[test]
    fn memory_is_in_proportion_to_the_bits_also_for_one_feature_with_many() {
        let features = |many: usize| {
            let thresholds = |i: usize| (0..if i == 0 { many } else { 0 }).map(|i| i as f32).collect();
            (0..50_000).map(|i| Feature::numeric(format!("f{i}"), thresholds(i))).collect()
        };
        // With levels, this would take 12 GB.
        let uneven = BlockEncoder::new(&Encoder::new(features(50_000), None).unwrap());
        assert!(uneven.levels.is_none());
        let even = BlockEncoder::new(&Encoder::new(features(3), None).unwrap());
        assert_eq!(even.levels.map(|levels| levels.len()), Some(3));
    }
}
