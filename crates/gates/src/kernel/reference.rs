//! Reference implementation of the gate kernels: all 16 terms of a gate, one lane at a time, in f64. Tests compare with it.

use super::{FUNCTIONS, Wires};

/// Returns the real-valued relaxation of Boolean function `index`.
pub fn function(index: usize, a: f64, b: f64) -> f64 {
    match index {
        0 => 0.0,
        1 => a * b,
        2 => a - a * b,
        3 => a,
        4 => b - a * b,
        5 => b,
        6 => a + b - 2.0 * a * b,
        7 => a + b - a * b,
        8 => 1.0 - (a + b - a * b),
        9 => 1.0 - (a + b - 2.0 * a * b),
        10 => 1.0 - b,
        11 => 1.0 - b + a * b,
        12 => 1.0 - a,
        13 => 1.0 - a + a * b,
        14 => 1.0 - a * b,
        _ => 1.0,
    }
}

/// Returns the derivatives of [`function`] with respect to `a` and `b`.
fn derivatives(index: usize, a: f64, b: f64) -> (f64, f64) {
    // Every function is linear in a and in b, so a difference quotient over [0, 1] is exact.
    (function(index, 1.0, b) - function(index, 0.0, b), function(index, a, 1.0) - function(index, a, 0.0))
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = logits.iter().map(|&x| (x - most).exp()).collect();
    let total: f64 = e.iter().sum();
    e.iter().map(|&e| e / total).collect()
}

/// Returns the values of every node of a network for one lane: the inputs, then layer by layer.
pub fn forward(wires: &Wires, logits: &[f64], inputs: &[f64]) -> Vec<Vec<f64>> {
    let mut nodes = vec![inputs.to_vec()];
    let mut gates = logits.chunks_exact(FUNCTIONS);
    for layer in &wires.layers {
        let before = &nodes[nodes.len() - 1];
        let values = layer
            .a
            .iter()
            .zip(&layer.b)
            .zip(&mut gates)
            .map(|((&a, &b), logits)| {
                let (a, b) = (before[a as usize], before[b as usize]);
                softmax(logits).iter().enumerate().map(|(i, p)| p * function(i, a, b)).sum()
            })
            .collect();
        nodes.push(values);
    }
    nodes
}

/// Backward pass of one lane: adds to the gradients of the logits and returns those of the inputs.
pub fn backward(
    wires: &Wires,
    logits: &[f64],
    inputs: &[f64],
    output_grads: &[f64],
    logit_grads: &mut [f64],
) -> Vec<f64> {
    let nodes = forward(wires, logits, inputs);
    let mut grads = output_grads.to_vec();
    let mut first = wires.gates();
    for (layer, before) in wires.layers.iter().zip(&nodes).rev() {
        first -= layer.len();
        let mut before_grads = vec![0.0; before.len()];
        for (gate, &g) in grads.iter().enumerate().take(layer.len()) {
            let at = (first + gate) * FUNCTIONS;
            let p = softmax(&logits[at..at + FUNCTIONS]);
            let (a, b) = (layer.a[gate] as usize, layer.b[gate] as usize);
            let (x, y) = (before[a], before[b]);
            let mean: f64 = p.iter().enumerate().map(|(i, p)| p * function(i, x, y)).sum();
            for (i, &p) in p.iter().enumerate() {
                logit_grads[at + i] += g * p * (function(i, x, y) - mean);
                let (by_a, by_b) = derivatives(i, x, y);
                before_grads[a] += g * p * by_a;
                before_grads[b] += g * p * by_b;
            }
        }
        grads = before_grads;
    }
    grads
}

/// Checks that the error of each gradient is at most 2e-5 of the largest one.
#[cfg(test)]
pub(super) fn assert_gradients_agree(of: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(0.0, |most: f64, grad| most.max(grad.abs()));
    for (ours, theirs) in ours.iter().zip(theirs) {
        let error = (ours - theirs).abs();
        assert!(
            error <= 2e-5 * largest,
            "gradient of {of}: {ours} for {theirs}, and the largest is {largest}"
        );
    }
}

/// Checks the gradients of logits. Each is a probability times a difference between functions, and probabilities differ by
/// orders of magnitude, so the gradients are divided by the probabilities first.
#[cfg(test)]
pub(super) fn assert_logit_gradients_agree(logits: &[f32], ours: &[f32], theirs: &[f64]) {
    let logits: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let probabilities: Vec<f64> = logits.chunks_exact(FUNCTIONS).flat_map(softmax).collect();
    let by_probability = |grads: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
        grads.zip(&probabilities).map(|(grad, p)| grad / p).collect()
    };
    let ours = by_probability(&mut ours.iter().map(|&x| f64::from(x)));
    assert_gradients_agree("a function", &ours, &by_probability(&mut theirs.iter().copied()));
}
