//! Layer norm, number by number.

use super::Value;
use crate::dtype::DType;
use crate::shape::Shape;

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    numbers.sum::<f64>() / count
}

/// A row with mean 0 and variance 1, and one over its deviation.
fn normal(x: &[f64], epsilon: f64) -> (Vec<f64>, f64) {
    let level = mean(x.iter().copied());
    let variance = mean(x.iter().map(|x| (x - level) * (x - level)));
    let scale = 1.0 / (variance + epsilon).sqrt();
    (x.iter().map(|x| (x - level) * scale).collect(), scale)
}

/// The result; see [`Op::LayerNorm`](crate::graph::Op::LayerNorm).
pub(super) fn forward(epsilon: f64, args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let [x, gain, bias] = [0, 1, 2].map(|arg| args[arg].to_f64());
    let mut elements = Vec::new();
    for row in x.chunks(gain.len()) {
        let (normal, _) = normal(row, epsilon);
        elements.extend(normal.iter().zip(&gain).zip(&bias).map(|((n, gain), bias)| n * gain + bias));
    }
    Value::float(dtype, shape, elements)
}

/// The gradients of the operands; see [`Op::LayerNormGradient`](crate::graph::Op::LayerNormGradient).
pub(super) fn backward(epsilon: f64, args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let [dy, x, gain] = [0, 1, 2].map(|arg| args[arg].to_f64());
    let columns = gain.len();
    let (mut elements, mut of_gain, mut of_bias) = (Vec::new(), vec![0.0; columns], vec![0.0; columns]);
    for (row, dy) in x.chunks(columns).zip(dy.chunks(columns)) {
        let (normal, scale) = normal(row, epsilon);
        let g: Vec<f64> = dy.iter().zip(&gain).map(|(dy, gain)| dy * gain).collect();
        let level = mean(g.iter().copied());
        let slope = mean(g.iter().zip(&normal).map(|(g, n)| g * n));
        elements.extend(g.iter().zip(&normal).map(|(g, n)| (g - level - n * slope) * scale));
        for i in 0..columns {
            of_gain[i] += dy[i] * normal[i];
            of_bias[i] += dy[i];
        }
    }
    Value::float(dtype, shape, [elements, of_gain, of_bias].concat())
}
