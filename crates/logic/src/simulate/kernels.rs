//! The inner loops: one gate on a block of cells.
//!
//! The gate is chosen outside of the loop, and the loops work on groups of [`LANES`] words, which the
//! compiler turns into vector instructions.

use crate::gate::Gate;

/// The words that the inner loops treat as one.
pub(super) const LANES: usize = 4;
/// A group of words.
pub(super) type Lanes = [u64; LANES];

/// `out = gate(a, b)`. The slices have the same length.
pub(super) fn gate(gate: Gate, out: &mut [Lanes], a: &[Lanes], b: &[Lanes]) {
    match gate {
        Gate::FALSE => out.fill([0; LANES]),
        Gate::AND => zip(out, a, b, |a, b| a & b),
        Gate::A_AND_NOT_B => zip(out, a, b, |a, b| a & !b),
        Gate::A => out.copy_from_slice(a),
        Gate::NOT_A_AND_B => zip(out, a, b, |a, b| !a & b),
        Gate::B => out.copy_from_slice(b),
        Gate::XOR => zip(out, a, b, |a, b| a ^ b),
        Gate::OR => zip(out, a, b, |a, b| a | b),
        Gate::NOR => zip(out, a, b, |a, b| !(a | b)),
        Gate::XNOR => zip(out, a, b, |a, b| !(a ^ b)),
        Gate::NOT_B => not(out, b),
        Gate::A_OR_NOT_B => zip(out, a, b, |a, b| a | !b),
        Gate::NOT_A => not(out, a),
        Gate::NOT_A_OR_B => zip(out, a, b, |a, b| !a | b),
        Gate::NAND => zip(out, a, b, |a, b| !(a & b)),
        _ => out.fill([u64::MAX; LANES]),
    }
}

/// `out = !a`. The slices have the same length.
pub(super) fn not(out: &mut [Lanes], a: &[Lanes]) {
    zip(out, a, a, |a, _| !a);
}

#[inline]
fn zip(out: &mut [Lanes], a: &[Lanes], b: &[Lanes], f: impl Fn(u64, u64) -> u64) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        for i in 0..LANES {
            out[i] = f(a[i], b[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_is_its_word_function() {
        let a = [[0, 1, 0x5555, u64::MAX], [7, 6, 5, 4], [1 << 63, 9, 9, 9]];
        let b = [[0, 3, 0x3333, u64::MAX], [0, 0, 1, 12], [1 << 63, 8, 7, 6]];
        for kind in Gate::ALL {
            let mut out = [[0; LANES]; 3];
            gate(kind, &mut out, &a, &b);
            for (i, word) in out.as_flattened().iter().enumerate() {
                assert_eq!(*word, kind.eval_word(a.as_flattened()[i], b.as_flattened()[i]), "{kind}");
            }
        }
    }
}
