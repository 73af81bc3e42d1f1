//! Soft gate networks: wiring and initial logits.
//!
//! The kernels that run them are in [`crate::kernel`].

mod gate_settings;
mod wiring;

pub use gate_settings::{GateSettings, Numbers, contract, expand};
pub use wiring::{Wiring, WiringError, moore, network};

use crate::kernel::FUNCTIONS;

/// Initial logit of function A; all others are 0, so that every gate passes its first operand through.
pub const PASS_THROUGH: f32 = 10.0;

/// The function that passes the first operand through.
pub const FUNCTION_A: usize = 3;

/// Returns the initial value of a logit, by its position in an array of 16 logits for each gate.
pub fn start_logit(position: usize) -> f32 {
    if position % FUNCTIONS == FUNCTION_A { PASS_THROUGH } else { 0.0 }
}

/// Returns the most likely function of each gate; on a tie, the one with the lowest index.
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
    fn gates_start_as_wires_and_ties_go_to_the_lowest_index() {
        let start: Vec<f32> = (0..32).map(start_logit).collect();
        assert_eq!(arg_max(&start), [3, 3]);
        assert_eq!(arg_max(&[0.5; 16]), [0]);
    }
}
