//! Adam and AdamW.

use fearless_simd::{Level, Simd, SimdFloat};

use super::Clipping;
use super::step::{clip, step, with_complement};

/// Settings of one [`adam`] step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the corrected second moment; above zero, or elements with no gradient become NaN.
    pub epsilon: f64,
    /// Strength of the weight decay.
    pub weight_decay: f64,
    /// Whether the weight decay acts on the parameter itself (AdamW) or is added to the gradient (Adam).
    pub decoupled: bool,
    /// Number of this step, counted from 1, for the bias corrections.
    pub step: u64,
    /// Gradient clipping.
    pub clipping: Clipping,
}

/// AdamW with a learning rate of 0.001, betas of 0.9 and 0.999, and neither weight decay nor clipping.
impl Default for Adam {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            decoupled: true,
            step: 1,
            clipping: Clipping::NONE,
        }
    }
}

/// Performs one step of Adam or AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) on `values`, with the moments
/// `first` and `second`, which start as zeros.
///
/// ```text
/// m = beta1 * m + (1 - beta1) * g           m_hat = m / (1 - beta1^step)
/// v = beta2 * v + (1 - beta2) * g * g       v_hat = v / (1 - beta2^step)
/// p = p - learning_rate * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * p)
/// ```
///
/// # Panics
/// If the slices differ in length.
///
/// ```
/// use gatework_engine::kernel::optim::{Adam, adam};
///
/// let settings = Adam { learning_rate: 0.5, ..Adam::default() };
/// let (mut values, mut first, mut second) = ([1.0, 1.0], [0.0; 2], [0.0; 2]);
/// adam(&settings, &mut values, &[3.0, -4.0], &mut first, &mut second);
/// // The first step moves every parameter by the learning rate, against the sign of its gradient.
/// assert!((values[0] - 0.5).abs() < 1e-6 && (values[1] - 1.5).abs() < 1e-6);
/// ```
pub fn adam(settings: &Adam, values: &mut [f32], grads: &[f32], first: &mut [f32], second: &mut [f32]) {
    adam_on(crate::kernel::level(), settings, values, grads, [first, second]);
}

/// The constants of Adam after folding. With `c1 = 1 - beta1^step` and `c2 = 1 - beta2^step`,
///
/// ```text
/// learning_rate * (m / c1) / (sqrt(v / c2) + epsilon)
///     = (learning_rate * sqrt(c2) / c1) * m / (sqrt(v) + epsilon * sqrt(c2))
/// ```
struct FoldedAdam {
    rate: f32,
    epsilon: f32,
    /// Decay added to the gradient.
    coupled: f32,
    /// Decay subtracted from the parameter, including the learning rate. A factor `1 - rate * decay` would save an
    /// operation, but its rounding would bias a small decay.
    decoupled: f32,
}

impl FoldedAdam {
    fn new(settings: &Adam) -> Self {
        let &Adam { learning_rate, beta1, beta2, epsilon, weight_decay, .. } = settings;
        let step = settings.step.max(1);
        let correction1 = 1.0 - power(beta1, step);
        let root2 = (1.0 - power(beta2, step)).sqrt();
        let (coupled, decoupled) =
            if settings.decoupled { (0.0, learning_rate * weight_decay) } else { (weight_decay, 0.0) };
        Self {
            rate: (learning_rate * root2 / correction1) as f32,
            epsilon: (epsilon * root2) as f32,
            coupled: coupled as f32,
            decoupled: decoupled as f32,
        }
    }
}

/// Returns `base^exponent` by repeated squaring. Unlike `powf`, it has the same bits on every platform.
pub(super) fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

pub(super) fn adam_on(
    level: Level,
    settings: &Adam,
    values: &mut [f32],
    grads: &[f32],
    slots: [&mut [f32]; 2],
) {
    dispatch!(level, simd => adam_pass(simd, settings, values, grads, slots));
}

#[inline(always)]
fn adam_pass<S: Simd>(simd: S, settings: &Adam, values: &mut [f32], grads: &[f32], slots: [&mut [f32]; 2]) {
    let clipping = settings.clipping;
    let ([old1, new1], [old2, new2]) = (with_complement(settings.beta1), with_complement(settings.beta2));
    let FoldedAdam { rate, epsilon, coupled, decoupled } = FoldedAdam::new(settings);
    step(
        simd,
        values,
        grads,
        slots,
        #[inline(always)]
        |p, g, [m, v]| {
            let g = clip(simd, clipping, g) + p * coupled;
            let m = m * old1 + g * new1;
            let v = v * old2 + g * g * new2;
            let change = m / (v.sqrt() + epsilon) * rate + p * decoupled;
            (p - change, [m, v])
        },
    );
}
