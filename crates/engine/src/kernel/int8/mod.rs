//! Products of 8-bit integers: weights quantised by output, activations by row, sums in 32 bits.
//!
//! ```text
//! weights      w = scale[o] * q       q from -127 to 127, the largest of a row of weights is 127 or -127
//! activations  x = scale * (u - zero) u from 0 to 255, so that the range of a row and 0 are covered
//! product      sum of w x = scale[o] * scale * (sum of q u - zero * sum of q)
//! ```
//!
//! The sums of `q u` are exact: nothing saturates, and an input of less than 2^16 elements cannot overflow. What is lost is
//! the rounding of weights (half a step) and of activations (half a step, and another for the zero), so an element is wrong
//! by at most
//!
//! ```text
//! sum over i of  |x[i]| scale[o] / 2  +  |w[i]| scale  +  scale[o] scale
//! ```
//!
//! Weights lie in panels of 16 outputs, [inputs / 4][output][4 inputs]: a vector of 512 bits meets four activations that are
//! the same for all outputs (`tiles`).

mod tiles;

use tiles::{GROUP, PANEL, Take};

/// Elements of an input at most.
pub const MOST_INPUTS: usize = 1 << 16;

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
    /// Panels; what is behind the last output and the last input is 0.
    values: Vec<i8>,
    scales: Vec<f32>,
    /// The sum of each output, padded to whole panels.
    sums: Vec<i32>,
}

/// Rows of activations as 8-bit integers: memory that products can share, so that they allocate nothing.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    /// Rows, padded with zeros to a multiple of [`GROUP`].
    values: Vec<u8>,
    /// Scale and zero of each row.
    scales: Vec<(f32, u8)>,
}

/// Rows of a product at most that are quantised and multiplied together, so that their activations stay in the caches.
pub const ROWS: usize = 64;

impl Weights {
    /// Quantises a matrix that lies row by row.
    pub fn quantize(weights: &[f32], outputs: usize, inputs: usize) -> Result<Weights, Int8Error> {
        let needed = outputs.saturating_mul(inputs);
        if weights.len() != needed {
            return Err(Int8Error::Length { what: "weights", found: weights.len(), needed, outputs, inputs });
        }
        Weights::quantize_by(outputs, inputs, |output, input| weights[output * inputs + input])
    }

    /// Quantises a matrix of which `weight` gives the elements by output and input.
    pub fn quantize_by(
        outputs: usize,
        inputs: usize,
        weight: impl Fn(usize, usize) -> f32,
    ) -> Result<Weights, Int8Error> {
        if inputs > MOST_INPUTS {
            return Err(Int8Error::Inputs(inputs));
        }
        let (depth, padded) = (inputs.next_multiple_of(GROUP), outputs.next_multiple_of(PANEL));
        let (mut values, mut sums) = (vec![0; padded * depth], vec![0; padded]);
        let mut scales = Vec::with_capacity(outputs);
        for output in 0..outputs {
            if let Some(input) = (0..inputs).find(|&input| !weight(output, input).is_finite()) {
                return Err(Int8Error::Weight { output, input });
            }
            let most = (0..inputs).fold(0.0, |most: f32, input| most.max(weight(output, input).abs()));
            let scale = most / 127.0;
            // A scale that underflows would make the factor infinite.
            let factor = if scale > f32::MIN_POSITIVE { 1.0 / f64::from(scale) } else { 0.0 };
            for input in 0..inputs {
                let value = (f64::from(weight(output, input)) * factor).round() as i8;
                values[tiles::place(output, input, depth)] = value;
                sums[output] += i32::from(value);
            }
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
    /// infinity gives NaN.
    pub fn multiply(
        &self,
        x: &[f32],
        activations: &mut Activations,
        out: &mut [f32],
    ) -> Result<(), Int8Error> {
        let &Weights { outputs, inputs, .. } = self;
        let rows = x.len().checked_div(inputs).unwrap_or(0);
        let length = |what, found, needed| Int8Error::Length { what, found, needed, outputs, inputs };
        if x.len() != rows * inputs {
            return Err(length("x", x.len(), rows * inputs));
        }
        if out.len() != rows * outputs {
            return Err(length("out", out.len(), rows * outputs));
        }
        if outputs == 0 {
            return Ok(());
        }
        for (x, out) in x.chunks(ROWS * inputs.max(1)).zip(out.chunks_mut(ROWS * outputs)) {
            activations.clear();
            x.chunks_exact(inputs).for_each(|row| activations.push(row));
            self.multiply_quantized(activations, None, false, out, outputs);
        }
        Ok(())
    }

    /// As [`Weights::multiply`], with rows that are quantised already, to rows that lie `stride` apart. A bias is added, and
    /// what is below 0 becomes 0 if the rectifier is asked for.
    ///
    /// # Panics
    /// If the rows have another length, or the result or the bias is too short.
    pub fn multiply_quantized(
        &self,
        activations: &Activations,
        bias: Option<&[f32]>,
        relu: bool,
        out: &mut [f32],
        stride: usize,
    ) {
        let &Weights { outputs, inputs, .. } = self;
        let depth = inputs.next_multiple_of(GROUP);
        assert_eq!(activations.values.len(), activations.scales.len() * depth, "rows of that length");
        let mut finish = Finish { weights: self, activations, bias, relu, out, stride };
        if depth > 0 {
            tiles::add_up(&activations.values, &self.values, depth, &mut finish);
            return;
        }
        for row in 0..activations.scales.len() {
            (0..outputs.div_ceil(PANEL)).for_each(|panel| finish.take(row, panel, &[0; PANEL]));
        }
    }
}

/// Makes results of sums.
struct Finish<'a> {
    weights: &'a Weights,
    activations: &'a Activations,
    bias: Option<&'a [f32]>,
    relu: bool,
    out: &'a mut [f32],
    stride: usize,
}

impl Take for Finish<'_> {
    #[inline(always)]
    fn take(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]) {
        let first = panel * PANEL;
        let count = PANEL.min(self.weights.outputs - first);
        let (scale, zero) = self.activations.scales[row];
        let scales = padded(&self.weights.scales[first..first + count]);
        let totals = padded(&self.weights.sums[first..first + count]);
        let bias = self.bias.map_or([0.0; PANEL], |bias| padded(&bias[first..first + count]));
        let mut values = [0.0; PANEL];
        for i in 0..PANEL {
            // The difference fits into 32 bits, if not the product.
            let sum = sums[i].wrapping_sub(i32::from(zero).wrapping_mul(totals[i]));
            let value = sum as f32 * (scales[i] * scale) + bias[i];
            values[i] = if self.relu && value < 0.0 { 0.0 } else { value };
        }
        let out = &mut self.out[row * self.stride + first..][..count];
        match out.as_chunks_mut::<PANEL>().0 {
            [out] => *out = values,
            _ => out.copy_from_slice(&values[..count]),
        }
    }
}

/// The numbers of a panel; behind the last output there is nothing.
#[inline(always)]
fn padded<T: Copy + Default>(numbers: &[T]) -> [T; PANEL] {
    if let [all] = numbers.as_chunks::<PANEL>().0 {
        return *all;
    }
    let mut all = [T::default(); PANEL];
    all[..numbers.len()].copy_from_slice(numbers);
    all
}

impl Activations {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.values.clear();
        self.scales.clear();
    }

    /// Quantises a row.
    pub fn push(&mut self, row: &[f32]) {
        let begin = self.values.len();
        self.values.resize(begin + row.len().next_multiple_of(GROUP), 0);
        let to = &mut self.values[begin..begin + row.len()];
        self.scales.push(dispatch!(super::level(), _ => quantize_row(row, to)));
    }
}

/// Least and largest number, and 0; NaN counts as 0. In lanes, so that it is done in vectors.
#[inline(always)]
fn range(x: &[f32]) -> (f32, f32) {
    let (mut low, mut high) = ([0.0f32; 16], [0.0f32; 16]);
    let (whole, rest) = x.as_chunks::<16>();
    for x in whole {
        for i in 0..16 {
            low[i] = if x[i] < low[i] { x[i] } else { low[i] };
            high[i] = if x[i] > high[i] { x[i] } else { high[i] };
        }
    }
    let least = low.iter().chain(rest).fold(0.0, |low: f32, &x| if x < low { x } else { low });
    let largest = high.iter().chain(rest).fold(0.0, |high: f32, &x| if x > high { x } else { high });
    (least, largest)
}

/// Quantises a row; returns its scale and its zero.
#[inline(always)]
fn quantize_row(x: &[f32], to: &mut [u8]) -> (f32, u8) {
    let (low, high) = range(x);
    let scale = high / 255.0 - low / 255.0;
    if scale.is_infinite() || scale < f32::MIN_POSITIVE {
        to.fill(0);
        return (if scale.is_infinite() { f32::NAN } else { 0.0 }, 0);
    }
    let factor = 1.0 / scale;
    let zero = (-low * factor).round();
    // Adding it leaves a number rounded to an integer in the lowest bits.
    let shifter = 12_582_912.0f32;
    for (to, &x) in to.iter_mut().zip(x) {
        let x = if x.is_nan() { 0.0 } else { x };
        *to = ((x * factor + zero).clamp(0.0, 255.0) + shifter).to_bits() as u8;
    }
    (scale, zero as u8)
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
            quantized.multiply(&x, &mut Activations::default(), &mut out).unwrap();
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
    }

    #[test]
    fn special_rows_have_the_documented_values() {
        let weights = Weights::quantize(&[1.0, -2.0, 0.0, 0.0], 2, 2).unwrap();
        let run = |x: &[f32]| {
            let mut out = vec![7.0; x.len() / 2 * 2];
            weights.multiply(x, &mut Activations::default(), &mut out).unwrap();
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
        assert!(weights.multiply(&[0.0; 4], &mut Activations::default(), &mut [0.0; 2]).is_err());
        assert!(weights.multiply(&[0.0; 3], &mut Activations::default(), &mut [0.0; 3]).is_err());
    }
}
