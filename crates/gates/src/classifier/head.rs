//! The head of a soft classifier: group sums, softmax and cross-entropy, on one tile.
//!
//! The outputs of a network are divided among the classes in contiguous groups of equal size. The score of a class is the
//! sum of its group, divided by the temperature, so the gradient is the same for all outputs of a group.

use super::network::BatchResult;
use crate::kernel::{LANES, Row};

/// The head of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of classes, which divides the number of outputs.
    pub classes: usize,
    /// Divisor of the sums.
    pub temperature: f32,
    /// Weight of a sample in the loss.
    pub weight: f32,
}

/// Adds the loss of a tile to `result`, and replaces the outputs by their gradients. Lane `i` has the label `labels[i]`;
/// lanes beyond them have no sample and a gradient of zero.
pub fn cross_entropy(outputs: &mut [Row], labels: &[u32], head: Settings, result: &mut BatchResult) {
    let group = outputs.len() / head.classes;
    let mut scores: Vec<Row> = outputs.chunks_exact(group).map(|rows| sum(rows, head.temperature)).collect();
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut best = [0u32; LANES];
    for (class, score) in (0u32..).zip(&scores) {
        for lane in 0..LANES {
            if score.0[lane] > most[lane] {
                (most[lane], best[lane]) = (score.0[lane], class);
            }
        }
    }
    let mut mean = [0.0f32; LANES];
    for score in &scores {
        mean.iter_mut().zip(score.0).for_each(|(mean, score)| *mean += score / head.classes as f32);
    }
    let mut total = [0.0f32; LANES];
    for (lane, &label) in labels.iter().enumerate() {
        for (class, score) in (0u32..).zip(&mut scores) {
            let value = score.0[lane];
            result.spread += f64::from((value - mean[lane]).powi(2));
            if class == label {
                result.loss += f64::from(most[lane] - value);
            }
            score.0[lane] = (value - most[lane]).exp();
            total[lane] += score.0[lane];
        }
        result.loss += f64::from(total[lane].ln());
        result.correct += usize::from(best[lane] == label);
    }
    let scale = head.weight / head.temperature;
    for ((class, score), rows) in (0u32..).zip(&scores).zip(outputs.chunks_exact_mut(group)) {
        let mut grad = Row::ZERO;
        for (lane, &label) in labels.iter().enumerate() {
            let probability = score.0[lane] / total[lane];
            grad.0[lane] = scale * (probability - if class == label { 1.0 } else { 0.0 });
        }
        rows.fill(grad);
    }
}

/// Returns the sum of some rows, divided by the temperature.
fn sum(rows: &[Row], temperature: f32) -> Row {
    let mut sum = Row::ZERO;
    for row in rows {
        sum.0.iter_mut().zip(row.0).for_each(|(sum, value)| *sum += value);
    }
    sum.0.iter_mut().for_each(|sum| *sum /= temperature);
    sum
}
