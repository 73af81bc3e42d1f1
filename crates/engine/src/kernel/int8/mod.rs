//! Matrix multiplication of 8-bit integers: weights quantised per output, activations per row, sums in 32 bits.
//!
//! ```text
//! weights      w = scale[o] * q       q from -127 to 127, the largest of an output is 127 or -127
//! activations  x = scale * (u - zero) u from 0 to 255, so that the range of a row includes 0
//! product      sum of w x = scale[o] * scale * (sum of q u - zero * sum of q)
//! ```
//!
//! The sums of `q u` are exact: nothing saturates, and an input of up to 2^16 elements cannot overflow. Weights are rounded
//! to half a step, activations to half a step plus another one for the zero point, so the error of a result is at most
//!
//! ```text
//! sum over i of  |x[i]| scale[o] / 2  +  |w[i]| scale  +  scale[o] scale
//! ```
//!
//! unless a scale underflows: rows of weights or activations below 1e-36 are treated as 0.
//!
//! Weights are packed in panels of 16 outputs, `[inputs / 4][output][4 inputs]`, so that a vector of 512 bits is multiplied
//! with four broadcast activations (`tiles`).

mod tiles;

use tiles::{GROUP, PANEL, SumSink};

/// Largest number of inputs.
pub const MAX_INPUTS: usize = 1 << 16;

/// Largest number of outputs.
pub const MAX_OUTPUTS: usize = 1 << 24;

/// Error of the quantisation or multiplication of 8-bit matrices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Int8Error {
    /// A slice has the wrong length.
    #[error("{what} has {found} elements, but {outputs}x{inputs} weights need {needed}")]
    Length {
        /// Name of the slice.
        what: &'static str,
        /// Its number of elements.
        found: usize,
        /// The required number of elements.
        needed: usize,
        /// Rows of the weights.
        outputs: usize,
        /// Columns of the weights.
        inputs: usize,
    },
    /// The number of inputs exceeds [`MAX_INPUTS`], above which sums could overflow.
    #[error("{0} inputs are more than 2^16, so sums could overflow")]
    Inputs(usize),
    /// There are too many outputs.
    #[error("{0} outputs are more than 2^24")]
    Outputs(usize),
    /// A weight is NaN or infinite.
    #[error("weight {input} of output {output} is not finite")]
    Weight {
        /// Row of the weight.
        output: usize,
        /// Column of the weight.
        input: usize,
    },
}

/// Returns whether the processor has instructions for 8-bit dot products. Without them, `f32` is faster.
pub fn is_fast() -> bool {
    tiles::is_fast()
}

/// Matrix of weights, [outputs, inputs], as 8-bit integers with a scale per output.
#[derive(Clone, Debug)]
pub struct Weights {
    outputs: usize,
    inputs: usize,
    /// Packed panels, padded with zeros.
    values: Vec<i8>,
    scales: Vec<f32>,
    /// Sum of the weights of each output, padded to whole panels.
    sums: Vec<i32>,
}

/// Rows of activations as 8-bit integers. Reusing it avoids allocations.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    /// Elements of a row.
    inputs: usize,
    /// Rows, padded with zeros to a multiple of [`GROUP`].
    values: Vec<u8>,
    /// Scale and zero point of each row.
    scales: Vec<(f32, u8)>,
    /// Buffer for a strided row.
    gathered: Vec<f32>,
}

/// Largest number of rows that are quantised and multiplied at a time, so that their activations stay in the caches.
pub const CHUNK_ROWS: usize = 64;

impl Weights {
    /// Quantises a row-major matrix.
    pub fn quantize(weights: &[f32], outputs: usize, inputs: usize) -> Result<Weights, Int8Error> {
        let needed = outputs.saturating_mul(inputs);
        if weights.len() != needed {
            return Err(Int8Error::Length { what: "weights", found: weights.len(), needed, outputs, inputs });
        }
        Weights::quantize_by(outputs, inputs, |output, input| weights[output * inputs + input])
    }

    /// Quantises a matrix whose elements are `weight(output, input)`.
    pub fn quantize_by(
        outputs: usize,
        inputs: usize,
        weight: impl Fn(usize, usize) -> f32,
    ) -> Result<Weights, Int8Error> {
        let mut weights = Weights::empty(outputs, inputs)?;
        let mut row = vec![0.0; inputs];
        for output in 0..outputs {
            row.iter_mut().enumerate().for_each(|(input, to)| *to = weight(output, input));
            if let Some(input) = row.iter().position(|x| !x.is_finite()) {
                return Err(Int8Error::Weight { output, input });
            }
            let scale = row.iter().fold(0.0, |most: f32, x| most.max(x.abs())) / 127.0;
            // A scale that underflows would make the factor infinite.
            let factor = if scale > f32::MIN_POSITIVE { 1.0 / f64::from(scale) } else { 0.0 };
            for (input, x) in row.iter().enumerate() {
                weights.set(output, input, (f64::from(*x) * factor).round() as i8);
            }
            weights.scales.push(scale);
        }
        Ok(weights)
    }

    /// Packs weights that are quantised already: `value(output, input)`, from -127 to 127, and a scale for each output.
    pub fn from_parts(
        outputs: usize,
        inputs: usize,
        value: impl Fn(usize, usize) -> i8,
        scales: &[f32],
    ) -> Result<Weights, Int8Error> {
        let mut weights = Weights::empty(outputs, inputs)?;
        if scales.len() != outputs {
            let (what, found, needed) = ("scales", scales.len(), outputs);
            return Err(Int8Error::Length { what, found, needed, outputs, inputs });
        }
        weights.scales.extend_from_slice(scales);
        for (output, input) in (0..outputs).flat_map(|output| (0..inputs).map(move |input| (output, input))) {
            weights.set(output, input, value(output, input).max(-127));
        }
        Ok(weights)
    }

    /// Creates weights of zeros, without scales.
    fn empty(outputs: usize, inputs: usize) -> Result<Weights, Int8Error> {
        if inputs > MAX_INPUTS {
            return Err(Int8Error::Inputs(inputs));
        }
        if outputs > MAX_OUTPUTS {
            return Err(Int8Error::Outputs(outputs));
        }
        let (depth, padded) = (inputs.next_multiple_of(GROUP), outputs.next_multiple_of(PANEL));
        let (values, sums, scales) = (vec![0; padded * depth], vec![0; padded], Vec::with_capacity(outputs));
        Ok(Weights { outputs, inputs, values, scales, sums })
    }

    fn set(&mut self, output: usize, input: usize, value: i8) {
        self.values[tiles::weight_index(output, input, self.inputs.next_multiple_of(GROUP))] = value;
        self.sums[output] += i32::from(value);
    }

    /// Calls `f` with output, input, integer and scale of every weight.
    pub fn for_each(&self, mut f: impl FnMut(usize, usize, i8, f32)) {
        let depth = self.inputs.next_multiple_of(GROUP);
        for (output, &scale) in self.scales.iter().enumerate() {
            for input in 0..self.inputs {
                f(output, input, self.values[tiles::weight_index(output, input, depth)], scale);
            }
        }
    }

    /// Returns the scale of each output.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Returns the bytes of values, scales and sums.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.values[..]) + size_of_val(&self.scales[..]) + size_of_val(&self.sums[..])
    }

    /// Computes `out[r, o] = sum over i of weights[o, i] * x[r, i]` for any number of rows of `x`. A row with NaN or
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
        for (x, out) in x.chunks(CHUNK_ROWS * inputs.max(1)).zip(out.chunks_mut(CHUNK_ROWS * outputs)) {
            activations.clear(inputs);
            x.chunks_exact(inputs).for_each(|row| activations.push(row));
            self.multiply_quantized(activations, None, false, out, outputs);
        }
        Ok(())
    }

    /// Multiplies like [`Weights::multiply`], with quantised rows, into rows with a stride. Adds a bias, and applies ReLU
    /// if asked to.
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
        assert_eq!(
            activations.inputs, inputs,
            "the activations have another number of inputs than the weights"
        );
        let mut epilogue = Epilogue { weights: self, activations, bias, relu, out, stride };
        if depth > 0 {
            tiles::multiply(&activations.values, &self.values, depth, &mut epilogue);
            return;
        }
        for row in 0..activations.scales.len() {
            (0..outputs.div_ceil(PANEL)).for_each(|panel| epilogue.store(row, panel, &[0; PANEL]));
        }
    }
}

/// Epilogue: scales integer sums, adds the bias and applies ReLU.
struct Epilogue<'a> {
    weights: &'a Weights,
    activations: &'a Activations,
    bias: Option<&'a [f32]>,
    relu: bool,
    out: &'a mut [f32],
    stride: usize,
}

impl SumSink for Epilogue<'_> {
    #[inline(always)]
    fn store(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]) {
        let first = panel * PANEL;
        let count = PANEL.min(self.weights.outputs - first);
        let (scale, zero) = self.activations.scales[row];
        let scales = padded(&self.weights.scales[first..first + count]);
        let totals = padded(&self.weights.sums[first..first + count]);
        let bias = self.bias.map_or([0.0; PANEL], |bias| padded(&bias[first..first + count]));
        let mut values = [0.0; PANEL];
        for i in 0..PANEL {
            // Products and differences are below 255 * 127 * 2^16, which is less than 2^31.
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

/// Returns the elements of a panel, padded with zeros after the last output.
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
    /// Removes all rows and sets the number of inputs of the next ones.
    pub fn clear(&mut self, inputs: usize) {
        self.inputs = inputs;
        self.values.clear();
        self.scales.clear();
    }

    /// Quantises a row and appends it.
    ///
    /// # Panics
    /// If its length is not the number of inputs.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.inputs, "a row has the wrong number of inputs");
        let begin = self.values.len();
        self.values.resize(begin + row.len().next_multiple_of(GROUP), 0);
        let to = &mut self.values[begin..begin + row.len()];
        self.scales.push(dispatch!(super::level(), _ => quantize_row(row, to)));
    }

    /// Quantises and appends a row that consists of every `stride`-th element of a slice.
    pub fn push_strided(&mut self, from: &[f32], stride: usize) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        gathered.extend(from.iter().step_by(stride.max(1)).take(self.inputs));
        self.push(&gathered);
        self.gathered = gathered;
    }
}

/// Returns the smallest and the largest of the numbers and 0, or `None` if one is not finite. The compiler vectorises the
/// lanes.
#[inline(always)]
fn range(x: &[f32]) -> Option<(f32, f32)> {
    let (mut low, mut high, mut nothing) = ([0.0f32; 16], [0.0f32; 16], [0.0f32; 16]);
    let (whole, rest) = x.as_chunks::<16>();
    for x in whole {
        for i in 0..16 {
            low[i] = if x[i] < low[i] { x[i] } else { low[i] };
            high[i] = if x[i] > high[i] { x[i] } else { high[i] };
            // NaN if an element is not finite.
            nothing[i] += x[i] * 0.0;
        }
    }
    let least = low.iter().chain(rest).fold(0.0, |low: f32, &x| if x < low { x } else { low });
    let largest = high.iter().chain(rest).fold(0.0, |high: f32, &x| if x > high { x } else { high });
    let is_finite = nothing.iter().all(|x| *x == 0.0) && rest.iter().all(|x| x.is_finite());
    is_finite.then_some((least, largest))
}

/// Quantises a row, and returns its scale and zero point.
#[inline(always)]
fn quantize_row(x: &[f32], to: &mut [u8]) -> (f32, u8) {
    let Some((low, high)) = range(x) else { return (f32::NAN, 0) };
    let scale = high / 255.0 - low / 255.0;
    if scale < f32::MIN_POSITIVE {
        return (0.0, 0);
    }
    let factor = 1.0 / scale;
    let zero = (-low * factor).round();
    // Adding it rounds to an integer and leaves it in the lowest bits.
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
        fn errors_are_within_the_bound_of_the_rounding(
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
                    let step = f64::from(quantized.scales[o]);
                    let pairs = || x.iter().zip(w).map(|(&x, &w)| (f64::from(x), f64::from(w)));
                    let right: f64 = pairs().map(|(x, w)| x * w).sum();
                    // The zero point is rounded too, which moves activations by up to another half step.
                    let bound: f64 =
                        pairs().map(|(x, w)| x.abs() * step / 2.0 + w.abs() * scale + scale * step).sum();
                    let error = (f64::from(out[r * outputs + o]) - right).abs();
                    prop_assert!(error <= bound * 1.001 + 1e-5, "{error} above {bound}");
                }
            }
        }
    }

    /// Reference implementation.
    fn reference(weights: &Weights, rows: &Activations, bias: Option<&[f32]>, relu: bool) -> Vec<f32> {
        let depth = weights.inputs.next_multiple_of(GROUP);
        let result = |(row, output): (usize, usize)| {
            let (scale, zero) = rows.scales[row];
            let sum: i64 = (0..weights.inputs)
                .map(|i| {
                    let q = i64::from(weights.values[tiles::weight_index(output, i, depth)]);
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
        fn every_instruction_set_agrees_with_the_reference(
            outputs in 1usize..70, inputs in 1usize..40, rows in 1usize..CHUNK_ROWS, gap in 0usize..3, relu: bool,
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
                let right = reference(&weights, &activations, bias, relu);
                for (out, right) in out.chunks(stride).zip(right.chunks(outputs)) {
                    // A result to which a bias is added may be rounded once (fused) or twice.
                    assert!(out.iter().zip(right).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)));
                    assert!(out[outputs..].iter().all(|&x| x == 7.0), "elements between rows are unchanged");
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
        assert!((run(&[1e38, -1e38])[0] / 3e38 - 1.0).abs() < 0.02, "the range of a row overflows");
        assert!(run(&[]).is_empty());
        let large = Weights::quantize(&[1e32, 0.0], 1, 2).unwrap();
        let mut out = [7.0];
        large.multiply(&[0.0, 1e32], &mut Activations::default(), &mut out).unwrap();
        assert_eq!(out, [0.0], "scales whose product overflows");
    }

    #[test]
    fn errors_name_the_problem() {
        let error = Weights::quantize(&[1.0; 5], 2, 3).unwrap_err().to_string();
        assert_eq!(error, "weights has 5 elements, but 2x3 weights need 6");
        let error = Weights::quantize(&[1.0, f32::NAN], 1, 2).unwrap_err().to_string();
        assert_eq!(error, "weight 1 of output 0 is not finite");
        assert!(Weights::quantize(&[], 0, MAX_INPUTS + 1).is_err());
        assert!(Weights::quantize(&[], usize::MAX, 0).is_err());
        let weights = Weights::quantize(&[1.0; 6], 2, 3).unwrap();
        assert!(weights.multiply(&[0.0; 4], &mut Activations::default(), &mut [0.0; 2]).is_err());
        assert!(weights.multiply(&[0.0; 3], &mut Activations::default(), &mut [0.0; 3]).is_err());
    }
}
