//! Products of 8-bit integers: weights quantised by output, activations by row, sums in 32 bits.
//!
//! ```text
//! weights      w = scale[o] * q       q from -127 to 127, the largest of a row of weights is 127 or -127
//! activations  x = scale * (u - zero) u from 0 to 255, so that the range of a row and 0 are covered
//! product      sum of w x = scale[o] * scale * (sum of q u - zero * sum of q)
//! ```
//!
//! The sums of `q u` are exact: pairs of products of 16 bits are added in 32 bits, nothing saturates, and an input of less
//! than 2^16 elements cannot overflow. What is lost is the rounding of weights (half a step) and of activations (half a
//! step, and another for the zero), so an element is wrong by at most
//!
//! ```text
//! sum over i of  |x[i]| scale[o] / 2  +  |w[i]| scale  +  scale[o] scale
//! ```

#![expect(unsafe_code, reason = "the instructions of the processor for 16-bit products")]

/// Elements of an input at most.
pub const MOST_INPUTS: usize = 1 << 16;

/// Rows are padded with zeros to a multiple of this.
const STEP: usize = 16;

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Int8Error {
    /// A slice of another length.
    #[error("{what} has {found} elements, but {outputs}x{inputs} weights need {needed}")]
    Length {
        /// The slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it should have.
        needed: usize,
        /// Rows of the weights.
        outputs: usize,
        /// Their columns.
        inputs: usize,
    },
    /// Sums could overflow.
    #[error("{0} inputs are more than 2^16: sums could overflow")]
    Inputs(usize),
    /// NaN or infinity among the weights.
    #[error("weight {input} of output {output} is not finite")]
    Weight {
        /// The row.
        output: usize,
        /// The column.
        input: usize,
    },
}

/// A matrix of weights, [outputs, inputs], as 8-bit integers with a scale for each output.
#[derive(Clone, Debug)]
pub struct Weights {
    outputs: usize,
    inputs: usize,
    /// Rows, padded.
    values: Vec<i8>,
    scales: Vec<f32>,
    /// The sum of each row.
    sums: Vec<i32>,
}

impl Weights {
    /// Quantises a matrix that lies row by row.
    pub fn quantize(weights: &[f32], outputs: usize, inputs: usize) -> Result<Weights, Int8Error> {
        let needed = outputs.saturating_mul(inputs);
        if weights.len() != needed {
            return Err(Int8Error::Length { what: "weights", found: weights.len(), needed, outputs, inputs });
        }
        if inputs > MOST_INPUTS {
            return Err(Int8Error::Inputs(inputs));
        }
        let width = inputs.next_multiple_of(STEP);
        let (mut values, mut scales, mut sums) = (vec![0; outputs * width], Vec::new(), Vec::new());
        for output in 0..outputs {
            let row = &weights[output * inputs..][..inputs];
            if let Some(input) = row.iter().position(|x| !x.is_finite()) {
                return Err(Int8Error::Weight { output, input });
            }
            let most = row.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            let scale = most / 127.0;
            let to = &mut values[output * width..][..inputs];
            // A scale that underflows would make the factor infinite.
            let factor = if scale > f32::MIN_POSITIVE { 1.0 / f64::from(scale) } else { 0.0 };
            to.iter_mut().zip(row).for_each(|(to, &x)| *to = (f64::from(x) * factor).round() as i8);
            sums.push(to.iter().map(|&q| i32::from(q)).sum());
            scales.push(scale);
        }
        Ok(Weights { outputs, inputs, values, scales, sums })
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.values.len() + 4 * (self.scales.len() + self.sums.len())
    }

    /// The scales of the outputs.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// `out[r, o] = sum over i of weights[o, i] * x[r, i]` for any number of rows of `x`. NaN counts as 0, and a row with
    /// infinity gives NaN. `row` is memory that calls can share, so that they allocate nothing.
    pub fn multiply(&self, x: &[f32], row: &mut Vec<u8>, out: &mut [f32]) -> Result<(), Int8Error> {
        let &Weights { outputs, inputs, .. } = self;
        let rows = x.len().checked_div(inputs).unwrap_or(0);
        let length = |what, found, needed| Int8Error::Length { what, found, needed, outputs, inputs };
        if x.len() != rows * inputs {
            return Err(length("x", x.len(), rows * inputs));
        }
        if out.len() != rows * outputs {
            return Err(length("out", out.len(), rows * outputs));
        }
        if inputs == 0 || outputs == 0 {
            return Ok(());
        }
        let width = inputs.next_multiple_of(STEP);
        row.clear();
        row.resize(width, 0);
        for (x, out) in x.chunks_exact(inputs).zip(out.chunks_exact_mut(outputs)) {
            let (scale, zero) = quantize_row(x, &mut row[..inputs]);
            for (o, out) in out.iter_mut().enumerate() {
                let sum = dot(row, &self.values[o * width..][..width]);
                let sum = i64::from(sum) - i64::from(zero) * i64::from(self.sums[o]);
                *out = sum as f32 * (self.scales[o] * scale);
            }
        }
        Ok(())
    }
}

/// Quantises a row; returns its scale and its zero. Behind the row there are zeros, whose weights are zeros too.
fn quantize_row(x: &[f32], to: &mut [u8]) -> (f32, u8) {
    let (low, high) = x.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
    let scale = high / 255.0 - low / 255.0;
    if scale.is_infinite() || scale < f32::MIN_POSITIVE {
        to.fill(0);
        return (if scale.is_infinite() { f32::NAN } else { 0.0 }, 0);
    }
    let factor = 1.0 / scale;
    let zero = (-low * factor).round();
    let known = |x: f32| if x.is_nan() { 0.0 } else { x };
    to.iter_mut().zip(x).for_each(|(to, &x)| *to = (known(x) * factor + zero).round() as u8);
    (scale, zero as u8)
}

/// The sum of products, exactly. Both have one length, a multiple of [`STEP`].
fn dot(a: &[u8], b: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if super::level().as_avx2().is_some() {
        // SAFETY: the level says that the processor has AVX2.
        return unsafe { dot_avx2(a, b) };
    }
    dot_plain(a, b)
}

fn dot_plain(a: &[u8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

/// Sixteen products at a time, widened to 16 bits; pairs are added in 32 bits.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(a: &[u8], b: &[i8]) -> i32 {
    use std::arch::x86_64::{
        __m128i, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16, _mm256_madd_epi16,
        _mm256_setzero_si256,
    };
    let mut sums = [_mm256_setzero_si256(); 2];
    for (i, (a, b)) in a.as_chunks::<STEP>().0.iter().zip(b.as_chunks::<STEP>().0).enumerate() {
        // SAFETY: both arrays are 128 bits, and every pattern of bits is a vector.
        let (a, b) = unsafe {
            (std::mem::transmute::<[u8; STEP], __m128i>(*a), std::mem::transmute::<[i8; STEP], __m128i>(*b))
        };
        let products = _mm256_madd_epi16(_mm256_cvtepu8_epi16(a), _mm256_cvtepi8_epi16(b));
        sums[i % 2] = _mm256_add_epi32(sums[i % 2], products);
    }
    // SAFETY: a vector of 256 bits is eight integers of 32.
    let lanes: [i32; 8] = unsafe { std::mem::transmute(_mm256_add_epi32(sums[0], sums[1])) };
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::cases;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn a_product_is_as_wrong_as_its_rounding_allows(
            weights in prop::collection::vec(-3f32..3.0, 1..400), rows in 1usize..4, outputs in 1usize..6, seed in 0usize..100,
        ) {
            let inputs = weights.len().div_ceil(outputs);
            let mut weights = weights;
            weights.resize(outputs * inputs, 0.5);
            let x: Vec<f32> = (0..rows * inputs).map(|i| ((i * 37 + seed) % 101) as f32 * 0.07 - 2.0).collect();
            let quantized = Weights::quantize(&weights, outputs, inputs).unwrap();
            let mut out = vec![0.0; rows * outputs];
            quantized.multiply(&x, &mut Vec::new(), &mut out).unwrap();
            for (r, x) in x.chunks(inputs).enumerate() {
                let range = x.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
                let scale = f64::from(range.1 - range.0) / 255.0;
                for (o, w) in weights.chunks(inputs).enumerate() {
                    let step = f64::from(quantized.scales()[o]);
                    let pairs = || x.iter().zip(w).map(|(&x, &w)| (f64::from(x), f64::from(w)));
                    let right: f64 = pairs().map(|(x, w)| x * w).sum();
                    // The zero is rounded too, which moves activations by up to another half step.
                    let bound: f64 =
                        pairs().map(|(x, w)| x.abs() * step / 2.0 + w.abs() * scale + scale * step).sum();
                    let error = (f64::from(out[r * outputs + o]) - right).abs();
                    prop_assert!(error <= bound * 1.001 + 1e-5, "{error} above {bound}");
                }
            }
        }

        #[test]
        fn sums_are_exact(pairs in prop::collection::vec((any::<u8>(), any::<i8>()), 0..20)) {
            let (mut a, mut b): (Vec<u8>, Vec<i8>) = pairs.into_iter().unzip();
            a.resize(32, 255);
            b.resize(32, -128);
            crate::kernel::tests::on_every_level(|| assert_eq!(dot(&a, &b), dot_plain(&a, &b)));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn the_largest_sums_do_not_saturate() {
        let (a, b) = (vec![255; MOST_INPUTS], vec![-127; MOST_INPUTS]);
        assert_eq!(dot(&a, &b), -255 * 127 * MOST_INPUTS as i32);
    }

    #[test]
    fn special_rows_have_the_documented_values() {
        let weights = Weights::quantize(&[1.0, -2.0, 0.0, 0.0], 2, 2).unwrap();
        let run = |x: &[f32]| {
            let mut out = vec![7.0; x.len() / 2 * 2];
            weights.multiply(x, &mut Vec::new(), &mut out).unwrap();
            out
        };
        assert_eq!(run(&[0.0, 0.0]), [0.0, 0.0]);
        assert!(run(&[f32::INFINITY, 1.0]).iter().all(|y| y.is_nan()));
        assert!((run(&[f32::NAN, 1.0])[0] + 2.0).abs() < 0.02);
        assert!((run(&[f32::NAN, -1.0])[0] - 2.0).abs() < 0.02, "NaN counts as 0 beside negative numbers");
        assert!((run(&[1e38, -1e38])[0] / 3e38 - 1.0).abs() < 0.02, "a wide row is finite");
        assert!(run(&[]).is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let error = Weights::quantize(&[1.0; 5], 2, 3).unwrap_err().to_string();
        assert_eq!(error, "weights has 5 elements, but 2x3 weights need 6");
        let error = Weights::quantize(&[1.0, f32::NAN], 1, 2).unwrap_err().to_string();
        assert_eq!(error, "weight 1 of output 0 is not finite");
        assert!(Weights::quantize(&[], 0, MOST_INPUTS + 1).is_err());
        let weights = Weights::quantize(&[1.0; 6], 2, 3).unwrap();
        assert!(weights.multiply(&[0.0; 4], &mut Vec::new(), &mut [0.0; 2]).is_err());
        assert!(weights.multiply(&[0.0; 3], &mut Vec::new(), &mut [0.0; 3]).is_err());
    }
}
