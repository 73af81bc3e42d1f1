//! RMSprop, with or without momentum.

use fearless_simd::{Level, Simd, SimdFloat};

use super::Clipping;
use super::step::{clip, step, with_complement};

/// Settings of one [`rmsprop`] step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rmsprop {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the mean square.
    pub alpha: f64,
    /// Added to the root of the mean square; above zero, or elements with no gradient become NaN.
    pub epsilon: f64,
    /// Momentum coefficient; 0 means that there is no momentum buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Gradient clipping.
    pub clipping: Clipping,
}

/// Performs one step of RMSprop (Tieleman and Hinton 2012) on `values`, with the mean square `square` and the momentum
/// `buffer`, which start as zeros; `buffer` is not used, and may be empty, if the momentum is 0.
///
/// ```text
/// s = alpha * s + (1 - alpha) * g * g
/// b = momentum * b + g / (sqrt(s) + epsilon)
/// p = p - learning_rate * b
/// ```
///
/// # Panics
/// If the slices differ in length, except for an unused `buffer`.
pub fn rmsprop(
    settings: &Rmsprop,
    values: &mut [f32],
    grads: &[f32],
    square: &mut [f32],
    buffer: &mut [f32],
) {
    rmsprop_on(crate::kernel::level(), settings, values, grads, square, buffer);
}

pub(super) fn rmsprop_on(
    level: Level,
    settings: &Rmsprop,
    values: &mut [f32],
    grads: &[f32],
    square: &mut [f32],
    buffer: &mut [f32],
) {
    if settings.momentum == 0.0 {
        dispatch!(level, simd => rmsprop_plain_pass(simd, settings, values, grads, square));
    } else {
        dispatch!(level, simd => rmsprop_momentum_pass(simd, settings, values, grads, [square, buffer]));
    }
}

#[inline(always)]
fn rmsprop_plain_pass<S: Simd>(
    simd: S,
    settings: &Rmsprop,
    values: &mut [f32],
    grads: &[f32],
    square: &mut [f32],
) {
    let clipping = settings.clipping;
    let [old, new] = with_complement(settings.alpha);
    let [rate, epsilon, decay] =
        [settings.learning_rate, settings.epsilon, settings.weight_decay].map(|x| x as f32);
    step(
        simd,
        values,
        grads,
        [square],
        #[inline(always)]
        |p, g, [s]| {
            let g = clip(simd, clipping, g) + p * decay;
            let s = s * old + g * g * new;
            (p - g / (s.sqrt() + epsilon) * rate, [s])
        },
    );
}

#[inline(always)]
fn rmsprop_momentum_pass<S: Simd>(
    simd: S,
    settings: &Rmsprop,
    values: &mut [f32],
    grads: &[f32],
    slots: [&mut [f32]; 2],
) {
    let clipping = settings.clipping;
    let [old, new] = with_complement(settings.alpha);
    let [rate, epsilon, momentum, decay] =
        [settings.learning_rate, settings.epsilon, settings.momentum, settings.weight_decay]
            .map(|x| x as f32);
    step(
        simd,
        values,
        grads,
        slots,
        #[inline(always)]
        |p, g, [s, b]| {
            let g = clip(simd, clipping, g) + p * decay;
            let s = s * old + g * g * new;
            let b = b * momentum + g / (s.sqrt() + epsilon);
            (p - b * rate, [s, b])
        },
    );
}
