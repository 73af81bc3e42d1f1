//! Soft gate networks: how their gates are wired and where they start from.
//!
//! The kernels that run them are in [`gatework_engine::kernel::gates`].

mod wiring;

pub use wiring::{Wiring, WiringError, moore, network};

use gatework_engine::kernel::gates::FUNCTIONS;

/// Logits of the start: 0, and 10 for function A, so that every gate passes its first operand through.
pub const PASS_THROUGH: f32 = 10.0;

/// The function that passes the first operand through.
pub const FUNCTION_A: usize = 3;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_start_as_wires_and_ties_go_to_the_first() {
        let start: Vec<f32> = (0..32).map(start_logit).collect();
        assert_eq!(arg_max(&start), [3, 3]);
        assert_eq!(arg_max(&[0.5; 16]), [0]);
    }
}
