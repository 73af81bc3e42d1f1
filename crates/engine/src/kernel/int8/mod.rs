//! Products of 8-bit integers: weights quantised by output, activations by row, sums in 32 bits.
//!
//! ```text
//! weights      w = scale[o] * q       q from -127 to 127, the largest of a row of weights is 127 or -127
//! activations  x = scale * (u - zero) u from 0 to 255, so that the range of a row and 0 are covered
//! product      sum of w x = scale[o] * scale * (sum of q u - zero * sum of q)
//! ```
//!
//! The sums of `q u` are exact: nothing saturates, and an input of up to 2^16 elements cannot overflow. What is lost is
//! the rounding of weights (half a step) and of activations (half a step, and another for the zero), so an element is wrong
//! by at most
//!
//! ```text
//! sum over i of  |x[i]| scale[o] / 2  +  |w[i]| scale  +  scale[o] scale
//! ```
//!
//! unless a scale underflows: rows of weights or activations below 1e-36 count as 0.
//!
//! Weights lie in panels of 16 outputs, `[inputs / 4][output][4 inputs]`: a vector of 512 bits meets four activations that are
//! the same for all outputs (`tiles`).

mod tiles;

use tiles::{GROUP, PANEL, Take};

/// Elements of an input at most.
pub const MOST_INPUTS: usize = 1 << 16;

/// Outputs at most.
pub const MOST_OUTPUTS: usize = 1 << 24;

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
    /// More than anybody means.
    #[error("{0} outputs are more than 2^24")]
    Outputs(usize),
    /// NaN or infinity among the weights.
    #[error("weight {input} of output {output} is not finite")]
    Weight {
        /// The row.
        output: usize,
        /// The column.
        input: usize,
    },
}

/// Whether the processor has instructions for such products. Without, they take longer than those of `f32`.
pub fn is_fast() -> bool {
    tiles::is_fast()
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
    /// Elements of a row.
    inputs: usize,
    /// Rows, padded with zeros to a multiple of [`GROUP`].
    values: Vec<u8>,
    /// Scale and zero of each row.
    scales: Vec<(f32, u8)>,
    /// A row whose elements do not lie behind each other.
    gathered: Vec<f32>,
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
        if outputs > MOST_OUTPUTS {
            return Err(Int8Error::Outputs(outputs));
        }
        let (depth, padded) = (inputs.next_multiple_of(GROUP), outputs.next_multiple_of(PANEL));
        let (mut values, mut sums) = (vec![0; padded * depth], vec![0; padded]);
        let (mut scales, mut row) = (Vec::with_capacity(outputs), vec![0.0; inputs]);
        for output in 0..outputs {
            row.iter_mut().enumerate().for_each(|(input, to)| *to = weight(output, input));
            if let Some(input) = row.iter().position(|x| !x.is_finite()) {
                return Err(Int8Error::Weight { output, input });
            }
            let scale = row.iter().fold(0.0, |most: f32, x| most.max(x.abs())) / 127.0;
            // A scale that underflows would make the factor infinite.
            let factor = if scale > f32::MIN_POSITIVE { 1.0 / f64::from(scale) } else { 0.0 };
            for (input, x) in row.iter().enumerate() {
                let value = (f64::from(*x) * factor).round() as i8;
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

    /// `out[r, o] = sum over i of weights[o, i] * x[r, i]` for any number of rows of `x`. A row with NaN or infinity
    /// gives NaN.
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
            activations.clear(inputs);
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
        assert_eq!(activations.inputs, inputs, "rows of that length");
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
            // Products and difference are below 255 * 127 * 2^16, which is less than 2^31.
            let value = (sums[i] - i32::from(zero) * totals[i]) as f32 * scales[i] * scale + bias[i];
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
    /// Forgets all rows; the next ones have so many elements.
    pub fn clear(&mut self, inputs: usize) {
        self.inputs = inputs;
        self.values.clear();
        self.scales.clear();
    }

    /// Quantises a row.
    ///
    /// # Panics
    /// If it has another length than [`Activations::clear`] was told.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.inputs, "a row of that length");
        let begin = self.values.len();
        self.values.resize(begin + row.len().next_multiple_of(GROUP), 0);
        let to = &mut self.values[begin..begin + row.len()];
        self.scales.push(dispatch!(super::level(), _ => quantize_row(row, to)));
    }

    /// The same of a row that has every `stride`-th element of a slice.
    pub fn push_strided(&mut self, from: &[f32], stride: usize) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        gathered.extend(from.iter().step_by(stride.max(1)).take(self.inputs));
        self.push(&gathered);
        self.gathered = gathered;
    }
}

/// Least and largest number, and 0; none if a number is not finite. In lanes, so that it is done in vectors.
#[inline(always)]
fn range(x: &[f32]) -> Option<(f32, f32)> {
    let (mut low, mut high, mut nothing) = ([0.0f32; 16], [0.0f32; 16], [0.0f32; 16]);
    let (whole, rest) = x.as_chunks::<16>();
    for x in whole {
        for i in 0..16 {
            low[i] = if x[i] < low[i] { x[i] } else { low[i] };
            high[i] = if x[i] > high[i] { x[i] } else { high[i] };
            // NaN for what is not finite, and stays so.
            nothing[i] += x[i] * 0.0;
        }
    }
    let least = low.iter().chain(rest).fold(0.0, |low: f32, &x| if x < low { x } else { low });
    let largest = high.iter().chain(rest).fold(0.0, |high: f32, &x| if x > high { x } else { high });
    let is_finite = nothing.iter().all(|x| *x == 0.0) && rest.iter().all(|x| x.is_finite());
    is_finite.then_some((least, largest))
}

/// Quantises a row; returns its scale and its zero.
#[inline(always)]
fn quantize_row(x: &[f32], to: &mut [u8]) -> (f32, u8) {
    let Some((low, high)) = range(x) else { return (f32::NAN, 0) };
    let scale = high / 255.0 - low / 255.0;
    if scale < f32::MIN_POSITIVE {
        return (0.0, 0);
    }
    let factor = 1.0 / scale;
    let zero = (-low * factor).round();
    // Adding it leaves a number rounded to an integer in the lowest bits.
    let shifter = 12_582_912.0f32;
    for (to, &x) in to.iter_mut().zip(x) {
        *to = ((x * factor + zero).clamp(0.0, 255.0) + shifter).to_bits() as u8;
    }
    (scale, zero as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
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

    /// The formula, number by number.
    fn slow(weights: &Weights, rows: &Activations, bias: Option<&[f32]>, relu: bool) -> Vec<f32> {
        let depth = weights.inputs.next_multiple_of(GROUP);
        let result = |(row, output): (usize, usize)| {
            let (scale, zero) = rows.scales[row];
            let sum: i64 = (0..weights.inputs)
                .map(|i| {
                    let q = i64::from(weights.values[tiles::place(output, i, depth)]);
                    q * (i64::from(rows.values[row * depth + i]) - i64::from(zero))
                })
                .sum();
            let value = sum as f32 * weights.scales[output] * scale + bias.map_or(0.0, |bias| bias[output]);
            if relu { value.max(0.0) } else { value }
        };
        let (count, outputs) = (rows.scales.len(), weights.outputs);
        (0..count).flat_map(|row| (0..outputs).map(move |output| (row, output))).map(result).collect()
    }

    proptest! {
        #![proptest_config(cases(48))]

        #[test]
        fn a_product_is_the_formula_on_every_instruction_set(
            outputs in 1usize..70, inputs in 1usize..40, rows in 1usize..ROWS, gap in 0usize..3, relu: bool,
            has_bias: bool,
        ) {
            let number = |i: usize| (i * 7919 % 1013) as f32 / 506.5 - 1.0;
            let weights = Weights::quantize_by(outputs, inputs, |o, i| number(o * inputs + i)).unwrap();
            let bias: Vec<f32> = (0..outputs).map(number).collect();
            let bias = has_bias.then_some(&bias[..]);
            on_every_level(|| {
                let mut activations = Activations::default();
                activations.clear(inputs);
                for row in 0..rows {
                    let row: Vec<f32> = (0..inputs).map(|i| number(row * 31 + i * 7 + 5)).collect();
                    activations.push(&row);
                }
                let stride = outputs + gap;
                let mut out = vec![7.0; rows * stride];
                weights.multiply_quantized(&activations, bias, relu, &mut out, stride);
                let right = slow(&weights, &activations, bias, relu);
                for (out, right) in out.chunks(stride).zip(right.chunks(outputs)) {
                    // A result that is added to a bias may be rounded once or twice.
                    assert!(out.iter().zip(right).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)));
                    assert!(out[outputs..].iter().all(|&x| x == 7.0), "what lies between rows stays");
                }
            });
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
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(run(&[bad, 1.0]).iter().chain(&run(&[-1.0, bad])).all(|y| y.is_nan()));
            let mut long = [0.5; 34];
            for place in [0, 15, 16, 33] {
                long[place] = bad;
                assert_eq!(range(&long), None);
                long[place] = 0.5;
            }
            assert_eq!(range(&long), Some((0.0, 0.5)));
        }
        assert!((run(&[1e38, -1e38])[0] / 3e38 - 1.0).abs() < 0.02, "a wide row is finite");
        assert!(run(&[]).is_empty());
        let large = Weights::quantize(&[1e32, 0.0], 1, 2).unwrap();
        let mut out = [7.0];
        large.multiply(&[0.0, 1e32], &mut Activations::default(), &mut out).unwrap();
        assert_eq!(out, [0.0], "scales whose product overflows");
    }

    #[test]
    fn mistakes_are_named() {
        let error = Weights::quantize(&[1.0; 5], 2, 3).unwrap_err().to_string();
        assert_eq!(error, "weights has 5 elements, but 2x3 weights need 6");
        let error = Weights::quantize(&[1.0, f32::NAN], 1, 2).unwrap_err().to_string();
        assert_eq!(error, "weight 1 of output 0 is not finite");
        assert!(Weights::quantize(&[], 0, MOST_INPUTS + 1).is_err());
        assert!(Weights::quantize(&[], usize::MAX, 0).is_err());
        let weights = Weights::quantize(&[1.0; 6], 2, 3).unwrap();
        assert!(weights.multiply(&[0.0; 4], &mut Activations::default(), &mut [0.0; 2]).is_err());
        assert!(weights.multiply(&[0.0; 3], &mut Activations::default(), &mut [0.0; 3]).is_err());
    }
}
