//! The bits of samples, packed sample by sample for training.

use gatework_logic::classifier::{Encoder, FeatureKind};
use rayon::prelude::*;

use super::data::Dataset;
use super::missing::DefaultDirections;
use crate::kernel::Row;

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// How one bit follows from the value of a feature.
#[derive(Clone, Copy, Debug)]
enum Test {
    Above(f32),
    AboveOrMissing(f32),
    Is(f32),
    Missing,
}

/// An encoder as a flat list of tests. The bits are those of [`Encoder::encode_row`], except that missing values
/// are in the default direction of each threshold.
#[derive(Clone, Debug)]
pub struct FlatEncoder {
    tests: Vec<(u32, Test)>,
}

impl FlatEncoder {
    /// Flattens an encoder.
    pub fn new(encoder: &Encoder, directions: &DefaultDirections) -> FlatEncoder {
        let mut tests = Vec::with_capacity(encoder.bits());
        for (column, feature) in (0u32..).zip(encoder.features()) {
            match &feature.kind {
                FeatureKind::Numeric(thresholds) => {
                    let first = tests.len();
                    tests.extend(thresholds.iter().enumerate().map(|(at, &threshold)| {
                        let is_above = directions.missing_bit(first + at).is_some();
                        let test = if is_above { Test::AboveOrMissing } else { Test::Above };
                        (column, test(threshold))
                    }));
                }
                FeatureKind::Categorical(names) => {
                    tests.extend((0..names.len()).map(|index| (column, Test::Is(index as f32))));
                }
            }
            if feature.missing {
                tests.push((column, Test::Missing));
            }
        }
        FlatEncoder { tests }
    }

    /// Number of bits.
    pub fn bits(&self) -> usize {
        self.tests.len()
    }

    /// Writes the bits of a row of values, the first one to bit 0 of the first word.
    pub fn encode(&self, row: &[f32], words: &mut [u64]) {
        for (tests, word) in self.tests.chunks(WORD).zip(words) {
            *word = 0;
            for (bit, &(column, test)) in tests.iter().enumerate() {
                let value = row[column as usize];
                #[expect(clippy::float_cmp, reason = "an index is an integer")]
                let is_set = match test {
                    Test::Above(threshold) => value > threshold,
                    Test::AboveOrMissing(threshold) => value > threshold || value.is_nan(),
                    Test::Is(index) => value == index,
                    Test::Missing => value.is_nan(),
                };
                *word |= u64::from(is_set) << bit;
            }
        }
    }
}

/// The bits of samples, packed sample by sample.
#[derive(Clone, Debug)]
pub struct PackedBits {
    bits: usize,
    words: Vec<u64>,
}

impl PackedBits {
    /// Encodes some rows of a data set.
    pub fn new(encoder: &FlatEncoder, data: &Dataset, rows: &[u32]) -> PackedBits {
        let bits = encoder.bits();
        let stride = bits.div_ceil(WORD).max(1);
        let mut words = vec![0; rows.len() * stride];
        words.par_chunks_exact_mut(stride).zip(rows).for_each_init(
            || vec![0.0; data.features().len()],
            |values, (words, &row)| {
                data.copy_row(row as usize, values);
                encoder.encode(values, words);
            },
        );
        PackedBits { bits, words }
    }

    /// Number of bits of a sample.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Number of words of a sample.
    fn stride(&self) -> usize {
        self.bits.div_ceil(WORD).max(1)
    }

    /// The bits of a sample.
    pub fn sample(&self, sample: usize) -> &[u64] {
        &self.words[sample * self.stride()..][..self.stride()]
    }
}

/// Writes packed bits to a lane of a tile, as 0 and 1.
pub fn write_lane(words: &[u64], lane: usize, rows: &mut [Row]) {
    for (rows, &word) in rows.chunks_mut(WORD).zip(words) {
        for (bit, row) in rows.iter_mut().enumerate() {
            row.0[lane] = (word >> bit & 1) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::LANES;
    use gatework_logic::classifier::{Feature, Rows};
    use proptest::prelude::*;

    fn encoder() -> Encoder {
        let names = (0..40).map(|i| i.to_string()).collect();
        let features = vec![
            Feature::numeric("a", (0..50).map(|i| i as f32 / 50.0).collect()),
            Feature::categorical("b", names).with_missing(),
        ];
        Encoder::new(features, None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_lane_has_the_bits_of_its_sample(a in -0.5f32..1.5, b in 0u32..42, lane in 0usize..LANES) {
            let row = [a, if b == 41 { f32::NAN } else { b as f32 }];
            let data = Dataset::new(2, row.to_vec(), vec![0]).unwrap();
            let flat = FlatEncoder::new(&encoder(), &DefaultDirections::default());
            let packed = PackedBits::new(&flat, &data, &[0]);
            let mut rows = vec![Row([0.5; LANES]); flat.bits()];
            write_lane(packed.sample(0), lane, &mut rows);
            let bits: Vec<bool> = rows.iter().map(|row| row.0[lane] == 1.0).collect();
            prop_assert_eq!(bits, encoder().encode_row(Rows::from(&row)).unwrap());
            prop_assert!(rows.iter().all(|row| row.0[(lane + 1) % LANES] == 0.5));
        }
    }
}
