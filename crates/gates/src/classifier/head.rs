//! The head of a soft classifier: group sums, softmax and cross-entropy, on one tile.
//!
//! The outputs of a network are divided among the classes in contiguous groups of equal size. The score of a class is the
//! sum of its group, divided by the temperature, so the gradient is the same for all outputs of a group.

use super::network::BatchResult;
use crate::kernel::{LANES, Row};

/// The head of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of classes, which divides the number of outputs of a member.
    pub classes: usize,
    /// Number of members.
    pub members: usize,
    /// Divisor of the sums.
    pub temperature: f32,
    /// Weight of a sample in the loss.
    pub weight: f32,
}

/// Adds the loss of a tile to `result`, and replaces the outputs by their gradients. Lane `i` has the label `labels[i]`;
/// lanes beyond them have no sample and a gradient of zero. The outputs are those of one member after the other: the loss is the
/// mean of theirs, and a sample is correct by the sum of their scores.
pub fn cross_entropy(outputs: &mut [Row], labels: &[u32], head: Settings, result: &mut BatchResult) {
    let mut sums = vec![Row::ZERO; head.classes];
    for member in outputs.chunks_exact_mut(outputs.len() / head.members) {
        let scores = member_loss(member, labels, head, result);
        for (sum, score) in sums.iter_mut().zip(scores) {
            sum.0.iter_mut().zip(score.0).for_each(|(sum, score)| *sum += score);
        }
    }
    let (_, best) = largest(&sums);
    result.correct += labels.iter().zip(best).filter(|(label, best)| *label == best).count();
}

/// The largest score of each lane, and the first class that has it.
fn largest(scores: &[Row]) -> ([f32; LANES], [u32; LANES]) {
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut best = [0u32; LANES];
    for (class, score) in (0u32..).zip(scores) {
        for lane in 0..LANES {
            if score.0[lane] > most[lane] {
                (most[lane], best[lane]) = (score.0[lane], class);
            }
        }
    }
    (most, best)
}

/// Adds the loss of a member, replaces its outputs by their gradients, and returns its scores.
fn member_loss(outputs: &mut [Row], labels: &[u32], head: Settings, result: &mut BatchResult) -> Vec<Row> {
    let (group, members) = (outputs.len() / head.classes, head.members as f32);
    let scores: Vec<Row> = outputs.chunks_exact(group).map(|rows| sum(rows, head.temperature)).collect();
    let (most, _) = largest(&scores);
    let mut mean = [0.0f32; LANES];
    for score in &scores {
        mean.iter_mut().zip(score.0).for_each(|(mean, score)| *mean += score / head.classes as f32);
    }
    let mut powers = scores.clone();
    let mut total = [0.0f32; LANES];
    for (lane, &label) in labels.iter().enumerate() {
        let mut loss = 0.0f64;
        for (class, power) in (0u32..).zip(&mut powers) {
            let value = power.0[lane];
            result.spread += f64::from((value - mean[lane]).powi(2)) / f64::from(members);
            if class == label {
                loss += f64::from(most[lane] - value);
            }
            power.0[lane] = (value - most[lane]).exp();
            total[lane] += power.0[lane];
        }
        result.loss += (loss + f64::from(total[lane].ln())) / f64::from(members);
    }
    let scale = head.weight / head.temperature / members;
    for ((class, power), rows) in (0u32..).zip(&powers).zip(outputs.chunks_exact_mut(group)) {
        let mut grad = Row::ZERO;
        for (lane, &label) in labels.iter().enumerate() {
            let probability = power.0[lane] / total[lane];
            grad.0[lane] = scale * (probability - if class == label { 1.0 } else { 0.0 });
        }
        rows.fill(grad);
    }
    scores
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
