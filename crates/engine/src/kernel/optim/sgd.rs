//! Stochastic gradient descent, with or without momentum.

use fearless_simd::{Level, Simd};

use super::Clipping;
use super::step::{clip, step};

/// Settings of one [`sgd`] step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Momentum coefficient; 0 means that there is no momentum buffer.
    pub momentum: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Gradient clipping.
    pub clipping: Clipping,
}

/// Performs one step of stochastic gradient descent on `values`. `buffer` is the momentum, which starts as zeros (so that
/// it is the gradient itself after the first step); it is not used, and may be empty, if the momentum is 0.
///
/// ```text
/// b = momentum * b + g
/// p = p - learning_rate * b                     // plain
/// p = p - learning_rate * (g + momentum * b)    // Nesterov
/// ```
///
/// # Panics
/// If the slices differ in length, except for an unused `buffer`.
pub fn sgd(settings: &Sgd, values: &mut [f32], grads: &[f32], buffer: &mut [f32]) {
    sgd_on(crate::kernel::level(), settings, values, grads, buffer);
}

pub(super) fn sgd_on(level: Level, settings: &Sgd, values: &mut [f32], grads: &[f32], buffer: &mut [f32]) {
    if settings.momentum == 0.0 {
        dispatch!(level, simd => sgd_plain_pass(simd, settings, values, grads));
    } else {
        dispatch!(level, simd => sgd_momentum_pass(simd, settings, values, grads, buffer));
    }
}

#[inline(always)]
fn sgd_plain_pass<S: Simd>(simd: S, settings: &Sgd, values: &mut [f32], grads: &[f32]) {
    let clipping = settings.clipping;
    let [rate, decay] = [settings.learning_rate, settings.weight_decay].map(|x| x as f32);
    step(
        simd,
        values,
        grads,
        [],
        #[inline(always)]
        |p, g, []| {
            let g = clip(simd, clipping, g) + p * decay;
            (p - g * rate, [])
        },
    );
}

#[inline(always)]
fn sgd_momentum_pass<S: Simd>(
    simd: S,
    settings: &Sgd,
    values: &mut [f32],
    grads: &[f32],
    buffer: &mut [f32],
) {
    let &Sgd { nesterov, clipping, .. } = settings;
    let [rate, momentum, decay] =
        [settings.learning_rate, settings.momentum, settings.weight_decay].map(|x| x as f32);
    step(
        simd,
        values,
        grads,
        [buffer],
        #[inline(always)]
        |p, g, [b]| {
            let g = clip(simd, clipping, g) + p * decay;
            let b = b * momentum + g;
            let direction = if nesterov { g + b * momentum } else { b };
            (p - direction * rate, [b])
        },
    );
}
