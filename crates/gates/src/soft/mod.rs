//! Soft gate networks: how their gates are wired and where they start from.
//!
//! The kernels that run them are in [`crate::kernel`].

mod softness;
mod wiring;

pub use softness::{Numbers, Softness, contract, expand};
pub use wiring::{Wiring, WiringError, moore, network};

use crate::kernel::FUNCTIONS;

/// Logits of the start: 0, and 10 for function A, so that every gate passes its first operand through.
pub const PASS_THROUGH: f32 = 10.0;

/// The function that passes the first operand through.
pub const FUNCTION_A: usize = 3;

/// The function that passes the second operand through.
const FUNCTION_B: usize = 5;

/// The start value of a logit, by its position in an array of 16 logits for each gate.
pub fn start_logit(position: usize) -> f32 {
    if position % FUNCTIONS == FUNCTION_A { PASS_THROUGH } else { 0.0 }
}

/// The most likely function of each gate; the first one of equals.
pub fn arg_max(logits: &[f32]) -> Vec<u8> {
    let best = |gate: &[f32]| {
        let mut best = 0;
        for (i, &logit) in gate.iter().enumerate() {
            if logit > gate[best] {
                best = i;
            }
        }
        best as u8
    };
    logits.chunks_exact(FUNCTIONS).map(best).collect()
}

/// Adds the gradient of `price` times the expected number of active gates: those that are no wires.
pub fn add_price(logits: &[f32], price: f32, grads: &mut [f32]) {
    for (logits, grads) in logits.chunks_exact(FUNCTIONS).zip(grads.chunks_exact_mut(FUNCTIONS)) {
        let shares = soft_max(logits);
        let wire = shares[FUNCTION_A] + shares[FUNCTION_B];
        for (function, (grad, share)) in grads.iter_mut().zip(shares).enumerate() {
            let is_wire = if function == FUNCTION_A || function == FUNCTION_B { 1.0 } else { 0.0 };
            *grad += price * share * (wire - is_wire);
        }
    }
}

/// The shares of the functions of a gate.
fn soft_max(logits: &[f32]) -> [f32; FUNCTIONS] {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shares: [f32; FUNCTIONS] = std::array::from_fn(|i| (logits[i] - most).exp());
    let sum: f32 = shares.iter().sum();
    shares.map(|share| share / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_of_the_price_is_that_of_the_expected_active_gates() {
        let logits: Vec<f32> = (0..32).map(|i| ((i * 37 % 23) as f32 - 11.0) / 6.0).collect();
        let active = |logits: &[f32]| -> f64 {
            let gates = logits.chunks_exact(FUNCTIONS).map(soft_max);
            gates.map(|shares| 1.0 - f64::from(shares[FUNCTION_A]) - f64::from(shares[FUNCTION_B])).sum()
        };
        let mut grads = vec![1.0; 32];
        add_price(&logits, 2.0, &mut grads);
        for i in 0..32 {
            let moved = |by: f32| {
                let mut logits = logits.clone();
                logits[i] += by;
                active(&logits)
            };
            let slope = (moved(0.01) - moved(-0.01)) / 0.02;
            assert!((f64::from(grads[i]) - 1.0 - 2.0 * slope).abs() < 1e-3, "{i}: {} {slope}", grads[i]);
        }
    }

    #[test]
    fn gates_start_as_wires_and_ties_go_to_the_first() {
        let start: Vec<f32> = (0..32).map(start_logit).collect();
        assert_eq!(arg_max(&start), [3, 3]);
        assert_eq!(arg_max(&[0.5; 16]), [0]);
    }
}
