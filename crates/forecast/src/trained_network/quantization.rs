//! Quantised weights: parameters rounded to 16 or 8 bits. With 16 bits, computation stays in 32 bits. With 8 bits, linear
//! layers use integer matrix multiplication where the processor supports it (AVX2, AVX-512 VNNI): their inputs are
//! quantised too, and forecasts are faster. Models that draw samples compute in 32 bits.

use half::f16;
use half::prelude::*;
use serde::{Deserialize, Serialize};

use gatework_train::params::{Params, Tensor};

/// The number format of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// IEEE 754 single precision.
    #[default]
    F32,
    /// IEEE 754 half precision: 11 bits of significand, up to 65504.
    F16,
    /// Matrices as integers from -127 to 127 with one scale per output; vectors are unchanged.
    Int8,
}

impl Precision {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Int8 => "int8",
        }
    }

    /// Rounds parameters, except for matrices that the program quantises itself, and returns their size in bytes.
    pub fn round(self, params: &mut Params, dense: &[&str]) -> usize {
        match self {
            Precision::F32 => 4 * params.len(),
            Precision::F16 => {
                let rounded = Vec::<f16>::from_f32_slice(&params.values);
                rounded.convert_to_f32_slice(&mut params.values);
                2 * params.len()
            }
            Precision::Int8 => {
                let tensors: Vec<Tensor> = params.tensors().to_vec();
                let round = |tensor: &Tensor| {
                    if dense.contains(&tensor.name.as_str()) {
                        tensor.range.len() + 4 * tensor.shape.last().unwrap_or(&0)
                    } else {
                        round_tensor(tensor, &mut params.values)
                    }
                };
                tensors.iter().map(round).sum()
            }
        }
    }
}

/// Rounds a tensor to 8 bits. Layers store outputs along the last or the first axis: the one with the smaller error is
/// chosen.
fn round_tensor(tensor: &Tensor, values: &mut [f32]) -> usize {
    let values = &mut values[tensor.range.clone()];
    let [first, .., last] = tensor.shape[..] else { return 4 * values.len() };
    let by_last = rounded(values, last, |place| place % last.max(1));
    let inner = values.len().checked_div(first).unwrap_or(0).max(1);
    let by_first = rounded(values, first, |place| place / inner);
    let (loss, kept, outputs) =
        if by_last.0 <= by_first.0 { (by_last.0, by_last.1, last) } else { (by_first.0, by_first.1, first) };
    // Values that are not finite are left unchanged: a trained network rejects them.
    if loss.is_finite() {
        values.copy_from_slice(&kept);
    }
    values.len() + 4 * outputs
}

/// Returns the integers, scales and axis of the outputs of a tensor that is rounded to 8 bits; `None` if its values are not
/// exactly the products of integers and scales.
pub(super) fn integers(values: &[f32], shape: &[usize]) -> Option<(Vec<i8>, Vec<f32>, usize)> {
    let [first, .., last] = *shape else { return None };
    let inner = values.len().checked_div(first)?.max(1);
    let by_last = integers_by(values, last, |place| place % last);
    let by_last = by_last.map(|(values, scales)| (values, scales, shape.len() - 1));
    by_last.or_else(|| {
        let (values, scales) = integers_by(values, first, |place| place / inner)?;
        Some((values, scales, 0))
    })
}

/// Returns integers and one scale per output whose products are the values.
fn integers_by(
    values: &[f32],
    outputs: usize,
    output: impl Fn(usize) -> usize,
) -> Option<(Vec<i8>, Vec<f32>)> {
    let mut by_output = vec![Vec::new(); outputs];
    values.iter().enumerate().for_each(|(place, value)| by_output[output(place)].push(*value));
    let mut scales = Vec::with_capacity(outputs);
    for values in &by_output {
        let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let near = most / 127.0;
        // The largest value is 127 times the scale, rounded: the scale is this quotient or a neighbour of it.
        let is_scale = |scale: &f32| values.iter().all(|value| integer(*value, *scale) * scale == *value);
        scales.push([near, near.next_up(), near.next_down()].into_iter().find(is_scale)?);
    }
    let integers = values.iter().enumerate();
    Some((integers.map(|(place, value)| integer(*value, scales[output(place)]) as i8).collect(), scales))
}

/// Returns the integer, as a number, whose product with a scale is nearest to a value.
fn integer(value: f32, scale: f32) -> f32 {
    if scale > f32::MIN_POSITIVE { (value / scale).round().clamp(-127.0, 127.0) } else { 0.0 }
}

/// Returns the squared error and the values rounded with one scale per output.
fn rounded(values: &[f32], outputs: usize, output: impl Fn(usize) -> usize) -> (f64, Vec<f32>) {
    let mut most = vec![0.0f32; outputs];
    for (place, value) in values.iter().enumerate() {
        let most = &mut most[output(place)];
        *most = most.max(value.abs());
    }
    let mut loss = 0.0;
    let round = |(place, &value): (usize, &f32)| {
        let scale = most[output(place)] / 127.0;
        let near = integer(value, scale) * scale;
        loss += f64::from(value - near).powi(2);
        near
    };
    let near = values.iter().enumerate().map(round).collect();
    (loss, near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Batch;
    use crate::{Specification, TrainedNetwork};
    use gatework_engine::kernel::int8;
    use proptest::prelude::*;

    fn params(shape: &[usize], values: &[f32]) -> Params {
        let mut params = Params::new();
        params.add("weight", shape, |i| values[i]);
        params
    }

    #[test]
    fn vectors_are_exact_and_matrices_keep_their_largest_weights() {
        let mut vector = params(&[3], &[0.1, 0.2, 0.3]);
        assert_eq!(Precision::Int8.round(&mut vector, &[]), 12);
        assert_eq!(vector.values, [0.1, 0.2, 0.3]);
        // Two columns of different magnitude: each has its own scale.
        let mut matrix = params(&[3, 2], &[127.0, 0.127, -64.0, 0.0636, 0.0, -0.0004]);
        assert_eq!(Precision::Int8.round(&mut matrix, &[]), 6 + 8);
        let expected = [127.0, 0.127, -64.0, 0.064, 0.0, 0.0];
        assert!(matrix.values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}", matrix.values);
    }

    #[test]
    fn values_out_of_range_of_half_precision_are_rejected() {
        let text = "model = 'nlinear'\ninput = 8\nhorizon = 2";
        let specification: Specification = toml::from_str(text).unwrap();
        let mut params = specification.params(1).unwrap();
        params.values[0] = 1e6;
        let network = TrainedNetwork::new(specification, params).unwrap();
        let message = network.with_precision(Precision::F16).err().unwrap().to_string();
        assert_eq!(message, "a parameter is too large for f16");
        // Eight rows of two weights and a bias: scales per row, since the large weight would dominate its column.
        let mut params = network.params();
        assert_eq!(Precision::Int8.round(&mut params, &[]), 16 + 4 * 8 + 4 * 2);
        // Integer matrix multiplication has one scale for each of its two outputs.
        let expected = if int8::is_fast() { 16 + 4 * 2 + 4 * 2 } else { 16 + 4 * 8 + 4 * 2 };
        assert_eq!(network.with_precision(Precision::Int8).unwrap().1, expected);
    }

    #[test]
    fn int8_linear_layers_quantise_activations_too() {
        let text = "model = 'nhits'\ninput = 48\nhorizon = 12";
        let specification: Specification = toml::from_str(text).unwrap();
        let params = specification.params(1).unwrap();
        let exact = TrainedNetwork::new(specification.clone(), params.clone()).unwrap();
        let (integers, _) = exact.with_precision(Precision::Int8).unwrap();
        let mut params = params;
        Precision::Int8.round(&mut params, &[]);
        let rounded = TrainedNetwork::new(specification.clone(), params).unwrap();
        for rows in [1, 3, 40] {
            let mut batch = Batch::new(specification.shape(rows));
            batch
                .past
                .iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x = (i as f32 * 0.37).sin() + 0.1 * i as f32);
            let forecast = |network: &TrainedNetwork| network.predict(&batch).unwrap().values;
            let [exact, rounded, integers] = [&exact, &rounded, &integers].map(forecast);
            let size = exact.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let distance = |other: &[f32]| {
                exact.iter().zip(other).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / size
            };
            assert!(rounded != integers || !int8::is_fast(), "activations are rounded too");
            assert!(distance(&integers) < 0.03, "{rows}: {}, {}", distance(&integers), distance(&rounded));
        }
    }

    proptest! {
        #[test]
        fn rounding_errors_are_at_most_half_a_step(
            values in prop::collection::vec(-1e3f32..1e3, 12),
            shape in prop::sample::select(vec![vec![3, 4], vec![4, 3], vec![2, 3, 2]]),
        ) {
            let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let mut int8 = params(&shape, &values);
            Precision::Int8.round(&mut int8, &[]);
            let mut half = params(&shape, &values);
            Precision::F16.round(&mut half, &[]);
            for (value, (int8, half)) in values.iter().zip(int8.values.iter().zip(&half.values)) {
                prop_assert!((value - int8).abs() <= most / 254.0 * 1.0001);
                prop_assert!((value - half).abs() <= value.abs() / 2048.0 + 1e-7);
            }
        }
    }
}
