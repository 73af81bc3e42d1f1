//! Code that all optimisers share: the loop over elements, and clipping.

use fearless_simd::{Select, Simd, SimdBase, prelude::*};

use super::Clipping;

/// Returns a decay and its complement. The complement is taken before rounding: the relative error of `1 - 0.99` in `f32`
/// is 1e-6, which would be visible in the mean squares of RMSprop.
pub(super) fn with_complement(decay: f64) -> [f32; 2] {
    [decay, 1.0 - decay].map(|share| share as f32)
}

/// Scales and clamps a gradient. Comparisons with NaN are false, so NaN propagates; `min` and `max` would remove it on some
/// instruction sets.
#[inline(always)]
pub(super) fn clip<S: Simd>(simd: S, clipping: Clipping, g: S::f32s) -> S::f32s {
    let upper = clipping.limit.simd_into(simd);
    let lower = (-clipping.limit).simd_into(simd);
    let g = g * clipping.scale;
    let g = g.simd_gt(upper).select(upper, g);
    g.simd_lt(lower).select(lower, g)
}

/// Lanes of the widest vector of any instruction set.
const MAX_LANES: usize = 16;

/// Applies `rule(parameter, gradient, slots) -> (parameter, slots)` to every element, a vector at a time.
#[inline(always)]
pub(super) fn step<S: Simd, const K: usize>(
    simd: S,
    values: &mut [f32],
    grads: &[f32],
    mut slots: [&mut [f32]; K],
    rule: impl Fn(S::f32s, S::f32s, [S::f32s; K]) -> (S::f32s, [S::f32s; K]),
) {
    let lanes = S::f32s::LEN;
    let count = values.len();
    assert_eq!(grads.len(), count, "the gradient and the parameters differ in length");
    for slot in &slots {
        assert_eq!(slot.len(), count, "an optimiser slot and the parameters differ in length");
    }

    let whole = count - count % lanes;
    let mut at = 0;
    while at < whole {
        let p = S::f32s::from_slice(simd, &values[at..at + lanes]);
        let g = S::f32s::from_slice(simd, &grads[at..at + lanes]);
        let state = std::array::from_fn(
            #[inline(always)]
            |k| S::f32s::from_slice(simd, &slots[k][at..at + lanes]),
        );
        let (p, state) = rule(p, g, state);
        p.store_slice(&mut values[at..at + lanes]);
        for k in 0..K {
            flush(simd, state[k]).store_slice(&mut slots[k][at..at + lanes]);
        }
        at += lanes;
    }

    if whole < count {
        let state = std::array::from_fn(
            #[inline(always)]
            |k| load_tail(simd, &slots[k][whole..]),
        );
        let (p, state) = rule(load_tail(simd, &values[whole..]), load_tail(simd, &grads[whole..]), state);
        values[whole..].copy_from_slice(&p.as_slice()[..count - whole]);
        for (slot, state) in slots.iter_mut().zip(&state) {
            slot[whole..].copy_from_slice(&flush(simd, *state).as_slice()[..count - whole]);
        }
    }
}

/// Flushes subnormal numbers to zero. The slots of a parameter without gradient decay to subnormal numbers and, by
/// rounding, would never reach zero; arithmetic with subnormal numbers is slow.
#[inline(always)]
fn flush<S: Simd>(simd: S, slot: S::f32s) -> S::f32s {
    slot.abs().simd_lt(f32::MIN_POSITIVE).select(0.0.simd_into(simd), slot)
}

/// Loads fewer elements than a vector has lanes, padded with zeros.
#[inline(always)]
fn load_tail<S: Simd>(simd: S, tail: &[f32]) -> S::f32s {
    let mut padded = [0.0; MAX_LANES];
    padded[..tail.len()].copy_from_slice(tail);
    S::f32s::from_slice(simd, &padded[..S::f32s::LEN])
}
