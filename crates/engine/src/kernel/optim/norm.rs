//! The Euclidean norm of a gradient.

use fearless_simd::{Level, Simd};

/// Returns the Euclidean norm of a gradient, summed in `f64`. It cannot overflow, and NaN or infinity in any element
/// propagates. The order of the sum is the same for every instruction set.
///
/// ```
/// assert_eq!(gatework_engine::kernel::optim::norm(&[3.0, -4.0]), 5.0);
/// ```
pub fn norm(grads: &[f32]) -> f64 {
    norm_on(crate::kernel::level(), grads)
}

/// Partial sums of [`norm`]; element `i` belongs to sum `i % SUMS`, whatever the vector width.
const SUMS: usize = 16;

pub(super) fn norm_on(level: Level, grads: &[f32]) -> f64 {
    dispatch!(level, simd => norm_pass(simd, grads))
}

#[inline(always)]
fn norm_pass<S: Simd>(_: S, grads: &[f32]) -> f64 {
    // Loops over arrays of constant length, which the compiler vectorises.
    let (chunks, tail) = grads.as_chunks::<SUMS>();
    let mut sums = [0.0; SUMS];
    for chunk in chunks {
        for (sum, &g) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(g) * f64::from(g);
        }
    }
    for (sum, &g) in sums.iter_mut().zip(tail) {
        *sum += f64::from(g) * f64::from(g);
    }
    sums.iter().sum::<f64>().sqrt()
}
