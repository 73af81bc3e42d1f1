//! Fused optimiser passes: a whole optimiser step is one walk over memory, in which each element of the parameters,
//! the gradient and the optimiser's slots is read once and written once.
//!
//! ```text
//! for each element:
//!     g = clip(scale * g)                       // `Clipping`, the same for every optimiser
//!     g = g + decay * p                         // weight decay that goes through the optimiser
//!     slots, direction = the optimiser's rule   // `adam`, `sgd`, `rmsprop`
//!     p = p - rate * direction
//! ```
//!
//! Each rule is written once over a vector and instantiated for every instruction set. Everything that is the same
//! for all elements (the bias corrections of Adam, above all) is computed beforehand in `f64` and folded into a few
//! constants, which leaves Adam with one square root and one division for each element.
//!
//! The rules use only additions, multiplications, divisions, square roots and comparisons, each rounded on its own
//! (no fused multiply-add), and a tail shorter than a vector goes through a padded buffer and the same code. A
//! result therefore has the same bits wherever the element lies in the slice and whatever the instruction set. The
//! passes run on the calling thread.

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

use fearless_simd::{Level, Select, Simd, SimdBase, SimdFloat, dispatch, prelude::*};

/// How each gradient element is treated before the optimiser sees it: `g` becomes `scale * g`, limited to
/// `-limit ..= limit`. A NaN stays a NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipping {
    /// Factor on every element; a clip by norm is such a factor.
    pub scale: f32,
    /// Largest magnitude of an element after scaling.
    pub limit: f32,
}

impl Clipping {
    /// Leaves every gradient as it is.
    pub const NONE: Self = Self { scale: 1.0, limit: f32::INFINITY };
}

impl Default for Clipping {
    fn default() -> Self {
        Self::NONE
    }
}

/// Settings of one [`adam`] pass.
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
    /// Treatment of the gradient.
    pub clipping: Clipping,
}

/// Settings of one [`sgd`] pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Share of the momentum buffer that stays; 0 means that there is no buffer.
    pub momentum: f64,
    /// Whether to look ahead along the momentum (Nesterov).
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Treatment of the gradient.
    pub clipping: Clipping,
}

/// Settings of one [`rmsprop`] pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rmsprop {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the mean square.
    pub alpha: f64,
    /// Added to the root of the mean square; above zero, or elements with no gradient become NaN.
    pub epsilon: f64,
    /// Share of the momentum buffer that stays; 0 means that there is no buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Treatment of the gradient.
    pub clipping: Clipping,
}

/// One step of Adam or AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) on `values`, with the moments `first`
/// and `second`, which start as zeros.
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
/// use gatework_engine::kernel::optim::{Adam, Clipping, adam};
///
/// let settings = Adam {
///     learning_rate: 0.5,
///     beta1: 0.9,
///     beta2: 0.999,
///     epsilon: 1e-8,
///     weight_decay: 0.0,
///     decoupled: true,
///     step: 1,
///     clipping: Clipping::NONE,
/// };
/// let (mut values, mut first, mut second) = ([1.0, 1.0], [0.0; 2], [0.0; 2]);
/// adam(&settings, &mut values, &[3.0, -4.0], &mut first, &mut second);
/// // The first step moves every parameter by the learning rate, against the sign of its gradient.
/// assert!((values[0] - 0.5).abs() < 1e-6 && (values[1] - 1.5).abs() < 1e-6);
/// ```
pub fn adam(settings: &Adam, values: &mut [f32], grads: &[f32], first: &mut [f32], second: &mut [f32]) {
    adam_on(Level::new(), settings, values, grads, [first, second]);
}

/// One step of stochastic gradient descent on `values`. `buffer` is the momentum, which starts as zeros (so that it
/// is the gradient itself after the first step); it is left alone, and may be empty, if the momentum is 0.
///
/// ```text
/// b = momentum * b + g
/// p = p - learning_rate * b                     // plain
/// p = p - learning_rate * (g + momentum * b)    // Nesterov
/// ```
///
/// # Panics
/// If the slices that are in use differ in length.
pub fn sgd(settings: &Sgd, values: &mut [f32], grads: &[f32], buffer: &mut [f32]) {
    sgd_on(Level::new(), settings, values, grads, buffer);
}

/// One step of RMSprop (Tieleman and Hinton 2012) on `values`, with the mean square `square` and the momentum
/// `buffer`, which start as zeros; `buffer` is left alone, and may be empty, if the momentum is 0.
///
/// ```text
/// s = alpha * s + (1 - alpha) * g * g
/// b = momentum * b + g / (sqrt(s) + epsilon)
/// p = p - learning_rate * b
/// ```
///
/// # Panics
/// If the slices that are in use differ in length.
pub fn rmsprop(
    settings: &Rmsprop,
    values: &mut [f32],
    grads: &[f32],
    square: &mut [f32],
    buffer: &mut [f32],
) {
    rmsprop_on(Level::new(), settings, values, grads, square, buffer);
}

/// The Euclidean norm of a gradient, summed in `f64`: it cannot overflow, and NaN or infinity in any element shows.
/// The order of the sum is the same for every instruction set.
///
/// ```
/// assert_eq!(gatework_engine::kernel::optim::norm(&[3.0, -4.0]), 5.0);
/// ```
pub fn norm(grads: &[f32]) -> f64 {
    norm_on(Level::new(), grads)
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
    /// Decay subtracted from the parameter, learning rate included. A factor `1 - rate * decay` would save an
    /// operation, but it rounds a small decay always to the same side.
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

/// A decay and its complement. The complement is taken before rounding: `1 - 0.99` in `f32` is wrong by one part in
/// a million, which the mean squares of RMSprop would show from the first step on.
fn shares(decay: f64) -> [f32; 2] {
    [decay, 1.0 - decay].map(|share| share as f32)
}

/// `base^exponent` by repeated squaring: unlike `powf`, the same bits on every platform.
fn power(mut base: f64, mut exponent: u64) -> f64 {
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

fn adam_on(level: Level, settings: &Adam, values: &mut [f32], grads: &[f32], slots: [&mut [f32]; 2]) {
    dispatch!(level, simd => adam_pass(simd, settings, values, grads, slots));
}

#[inline(always)]
fn adam_pass<S: Simd>(simd: S, settings: &Adam, values: &mut [f32], grads: &[f32], slots: [&mut [f32]; 2]) {
    let clipping = settings.clipping;
    let ([old1, new1], [old2, new2]) = (shares(settings.beta1), shares(settings.beta2));
    let FoldedAdam { rate, epsilon, coupled, decoupled } = FoldedAdam::new(settings);
    sweep(
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

fn sgd_on(level: Level, settings: &Sgd, values: &mut [f32], grads: &[f32], buffer: &mut [f32]) {
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
    sweep(
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
    sweep(
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

fn rmsprop_on(
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
    let [old, new] = shares(settings.alpha);
    let [rate, epsilon, decay] =
        [settings.learning_rate, settings.epsilon, settings.weight_decay].map(|x| x as f32);
    sweep(
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
    let [old, new] = shares(settings.alpha);
    let [rate, epsilon, momentum, decay] =
        [settings.learning_rate, settings.epsilon, settings.momentum, settings.weight_decay]
            .map(|x| x as f32);
    sweep(
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

/// Scales and limits a gradient. Comparisons with NaN are false, so a NaN passes; `min` and `max` would hide it on
/// some instruction sets.
#[inline(always)]
fn clip<S: Simd>(simd: S, clipping: Clipping, g: S::f32s) -> S::f32s {
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
fn sweep<S: Simd, const K: usize>(
    simd: S,
    values: &mut [f32],
    grads: &[f32],
    mut slots: [&mut [f32]; K],
    rule: impl Fn(S::f32s, S::f32s, [S::f32s; K]) -> (S::f32s, [S::f32s; K]),
) {
    let lanes = S::f32s::LEN;
    let count = values.len();
    assert_eq!(grads.len(), count, "the gradient must have as many elements as the parameters");
    for slot in &slots {
        assert_eq!(slot.len(), count, "an optimiser slot must have as many elements as the parameters");
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

/// Sets subnormal numbers to zero. The slots of a parameter without gradient decay into the subnormals and, by
/// rounding, would stay there for ever; processors calculate more slowly with subnormals.
#[inline(always)]
fn flush<S: Simd>(simd: S, slot: S::f32s) -> S::f32s {
    slot.abs().simd_lt(f32::MIN_POSITIVE).select(0.0.simd_into(simd), slot)
}

/// Loads fewer elements than a vector has, with zeros for the rest.
#[inline(always)]
fn load_tail<S: Simd>(simd: S, tail: &[f32]) -> S::f32s {
    let mut padded = [0.0; MAX_LANES];
    padded[..tail.len()].copy_from_slice(tail);
    S::f32s::from_slice(simd, &padded[..S::f32s::LEN])
}

/// Partial sums of [`norm`]; element `i` belongs to sum `i % SUMS`, whatever the vector width.
const SUMS: usize = 16;

fn norm_on(level: Level, grads: &[f32]) -> f64 {
    dispatch!(level, simd => norm_pass(simd, grads))
}

#[inline(always)]
fn norm_pass<S: Simd>(_: S, grads: &[f32]) -> f64 {
    // Plain loops over fixed arrays, which the compiler turns into vectors of the instruction set at hand.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parameters, gradient and two slots; the second slot is positive, as mean squares are.
    #[derive(Clone, Debug, PartialEq)]
    struct Arrays {
        values: Vec<f32>,
        grads: Vec<f32>,
        first: Vec<f32>,
        second: Vec<f32>,
    }

    impl Arrays {
        fn constant(count: usize, value: f32, grad: f32, slot: f32) -> Self {
            Self {
                values: vec![value; count],
                grads: vec![grad; count],
                first: vec![slot; count],
                second: vec![slot; count],
            }
        }

        fn element(&self, i: usize) -> Self {
            Self {
                values: vec![self.values[i]],
                grads: vec![self.grads[i]],
                first: vec![self.first[i]],
                second: vec![self.second[i]],
            }
        }

        fn bits(&self) -> Vec<u32> {
            [&self.values, &self.first, &self.second].into_iter().flatten().map(|x| x.to_bits()).collect()
        }
    }

    fn arrays() -> impl Strategy<Value = Arrays> {
        let element = (-10.0f32..10.0, -10.0f32..10.0, -1.0f32..1.0, 0.01f32..1.0);
        proptest::collection::vec(element, 0..100).prop_map(|elements| Arrays {
            values: elements.iter().map(|e| e.0).collect(),
            grads: elements.iter().map(|e| e.1).collect(),
            first: elements.iter().map(|e| e.2).collect(),
            second: elements.iter().map(|e| e.3).collect(),
        })
    }

    fn clipping() -> impl Strategy<Value = Clipping> {
        prop_oneof![
            Just(Clipping::NONE),
            (0.1f32..1.0).prop_map(|scale| Clipping { scale, ..Clipping::NONE }),
            (0.1f32..10.0).prop_map(|limit| Clipping { limit, ..Clipping::NONE }),
        ]
    }

    /// Any of the optimisers, so that what holds for all of them is tested once.
    #[derive(Clone, Copy, Debug)]
    enum Pass {
        Adam(Adam),
        Sgd(Sgd),
        Rmsprop(Rmsprop),
    }

    impl Pass {
        fn run(self, level: Level, arrays: &Arrays) -> Arrays {
            let mut after = arrays.clone();
            let Arrays { values, grads, first, second } = &mut after;
            match self {
                Self::Adam(settings) => adam_on(level, &settings, values, grads, [first, second]),
                Self::Sgd(settings) => sgd_on(level, &settings, values, grads, first),
                Self::Rmsprop(settings) => rmsprop_on(level, &settings, values, grads, second, first),
            }
            after
        }

        /// The textbook formulas on one element, in `f64`: parameter, first and second slot after the step.
        fn naive(self, p: f64, g: f64, first: f64, second: f64) -> [f64; 3] {
            match self {
                Self::Adam(s) => {
                    let (lr, decay, t) = (s.learning_rate, s.weight_decay, s.step as f64);
                    let (beta1, beta2) = (s.beta1, s.beta2);
                    let g = naive_clip(s.clipping, g) + if s.decoupled { 0.0 } else { decay * p };
                    let m = beta1 * first + (1.0 - beta1) * g;
                    let v = beta2 * second + (1.0 - beta2) * g * g;
                    let m_hat = m / (1.0 - beta1.powf(t));
                    let v_hat = v / (1.0 - beta2.powf(t));
                    let decay = if s.decoupled { decay * p } else { 0.0 };
                    [p - lr * (m_hat / (v_hat.sqrt() + s.epsilon) + decay), m, v]
                }
                Self::Sgd(s) => {
                    let (lr, momentum) = (s.learning_rate, s.momentum);
                    let g = naive_clip(s.clipping, g) + s.weight_decay * p;
                    if momentum == 0.0 {
                        return [p - lr * g, first, second];
                    }
                    let b = momentum * first + g;
                    [p - lr * if s.nesterov { g + momentum * b } else { b }, b, second]
                }
                Self::Rmsprop(s) => {
                    let (lr, momentum) = (s.learning_rate, s.momentum);
                    let alpha = s.alpha;
                    let g = naive_clip(s.clipping, g) + s.weight_decay * p;
                    let square = alpha * second + (1.0 - alpha) * g * g;
                    let direction = g / (square.sqrt() + s.epsilon);
                    if momentum == 0.0 {
                        return [p - lr * direction, first, square];
                    }
                    let b = momentum * first + direction;
                    [p - lr * b, b, square]
                }
            }
        }
    }

    fn naive_clip(clipping: Clipping, g: f64) -> f64 {
        let limit = f64::from(clipping.limit);
        (g * f64::from(clipping.scale)).clamp(-limit, limit)
    }

    fn pass() -> impl Strategy<Value = Pass> {
        let momentum = || prop_oneof![Just(0.0), 0.1..0.99];
        let decay = || prop_oneof![Just(0.0), 0.001..0.1];
        let rate = || 1e-4..0.1;
        let adam = (rate(), 0.5..0.95, 0.9..0.9999, decay(), any::<bool>(), 1u64..2000, clipping()).prop_map(
            |(learning_rate, beta1, beta2, weight_decay, decoupled, step, clipping)| {
                let epsilon = 1e-8;
                Pass::Adam(Adam {
                    learning_rate,
                    beta1,
                    beta2,
                    epsilon,
                    weight_decay,
                    decoupled,
                    step,
                    clipping,
                })
            },
        );
        let sgd = (rate(), momentum(), any::<bool>(), decay(), clipping()).prop_map(
            |(learning_rate, momentum, nesterov, weight_decay, clipping)| {
                Pass::Sgd(Sgd { learning_rate, momentum, nesterov, weight_decay, clipping })
            },
        );
        let rmsprop = (rate(), 0.5..0.999, momentum(), decay(), clipping()).prop_map(
            |(learning_rate, alpha, momentum, weight_decay, clipping)| {
                let epsilon = 1e-8;
                Pass::Rmsprop(Rmsprop { learning_rate, alpha, epsilon, momentum, weight_decay, clipping })
            },
        );
        prop_oneof![adam, sgd, rmsprop]
    }

    /// One of each optimiser, with every term switched on.
    fn every_pass(clipping: Clipping) -> [Pass; 3] {
        let (learning_rate, momentum, weight_decay, epsilon) = (0.1, 0.9, 0.01, 1e-8);
        [
            Pass::Adam(Adam {
                learning_rate,
                beta1: 0.9,
                beta2: 0.99,
                epsilon,
                weight_decay,
                decoupled: true,
                step: 1,
                clipping,
            }),
            Pass::Sgd(Sgd { learning_rate, momentum, nesterov: true, weight_decay, clipping }),
            Pass::Rmsprop(Rmsprop { learning_rate, alpha: 0.99, epsilon, momentum, weight_decay, clipping }),
        ]
    }

    proptest! {
        #[test]
        fn passes_agree_with_the_naive_twin(pass in pass(), before in arrays()) {
            let after = pass.run(Level::new(), &before);
            for i in 0..before.values.len() {
                let [p, g, m, v] = [before.values[i], before.grads[i], before.first[i], before.second[i]];
                let wanted = pass.naive(p.into(), g.into(), m.into(), v.into());
                let got = [after.values[i], after.first[i], after.second[i]];
                for (got, wanted) in got.into_iter().zip(wanted) {
                    let scale = 1.0 + f64::from(p).abs() + wanted.abs();
                    prop_assert!((f64::from(got) - wanted).abs() < 3e-6 * scale, "{i}: {got} for {wanted}");
                }
            }
        }

        #[test]
        fn an_element_has_the_same_result_at_every_position(pass in pass(), before in arrays()) {
            let after = pass.run(Level::new(), &before);
            for i in 0..before.values.len() {
                let alone = pass.run(Level::new(), &before.element(i));
                prop_assert_eq!(alone.bits(), after.element(i).bits());
            }
        }

        #[test]
        fn instruction_sets_agree_bit_for_bit(pass in pass(), before in arrays()) {
            let slowest = pass.run(Level::baseline(), &before);
            let fastest = pass.run(Level::new(), &before);
            prop_assert_eq!(slowest.bits(), fastest.bits());
            prop_assert_eq!(norm_on(Level::baseline(), &before.grads), norm(&before.grads));
        }

        #[test]
        fn norm_agrees_with_the_naive_twin(grads in proptest::collection::vec(-1e30f32..1e30, 0..100)) {
            let wanted = grads.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            prop_assert!((norm(&grads) - wanted).abs() <= 1e-14 * wanted);
        }

        #[test]
        fn power_agrees_with_the_standard_library(base in 0.0f64..1.0, exponent in 0u64..10_000) {
            let wanted = base.powf(exponent as f64);
            prop_assert!((power(base, exponent) - wanted).abs() <= 1e-11 * wanted + f64::MIN_POSITIVE);
        }
    }

    #[test]
    fn a_limited_gradient_acts_as_the_limit() {
        for (limited, plain) in
            every_pass(Clipping { scale: 1.0, limit: 2.0 }).into_iter().zip(every_pass(Clipping::NONE))
        {
            for (grad, wanted) in [(7.0, 2.0), (-7.0, -2.0), (f32::INFINITY, 2.0), (1.5, 1.5)] {
                let clipped = limited.run(Level::new(), &Arrays::constant(11, 1.0, grad, 0.5));
                let wanted = plain.run(Level::new(), &Arrays::constant(11, 1.0, wanted, 0.5));
                assert_eq!(clipped.bits(), wanted.bits());
            }
        }
    }

    #[test]
    fn a_nan_gradient_reaches_its_parameter_and_no_other() {
        for pass in every_pass(Clipping { scale: 0.5, limit: 1.0 }) {
            for bad in [0, 3, 17, 20] {
                let mut before = Arrays::constant(21, 1.0, 1.0, 0.5);
                before.grads[bad] = f32::NAN;
                let after = pass.run(Level::new(), &before);
                for (i, p) in after.values.iter().enumerate() {
                    assert_eq!(p.is_nan(), i == bad, "element {i} of {pass:?}");
                }
            }
        }
    }

    #[test]
    fn slots_do_not_linger_among_the_subnormals() {
        for pass in every_pass(Clipping::NONE) {
            let mut arrays = Arrays::constant(21, 0.0, 0.0, 1.2e-38);
            for _ in 0..10 {
                arrays = pass.run(Level::new(), &arrays);
                let mut slots = arrays.first.iter().chain(&arrays.second);
                assert!(slots.all(|&x| x == 0.0 || x.is_normal()), "{pass:?}: {arrays:?}");
            }
        }
    }

    #[test]
    fn a_small_decay_is_right_on_average() {
        let settings = Adam {
            learning_rate: 1e-4,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 1e-2,
            decoupled: true,
            step: 1,
            clipping: Clipping::NONE,
        };
        let before: Vec<f32> = (0..4096).map(|i| 1.0 + i as f32 / 4096.0).collect();
        let mut after = before.clone();
        adam(&settings, &mut after, &[0.0; 4096], &mut [0.0; 4096], &mut [0.0; 4096]);
        let sum = |values: &[f32]| values.iter().map(|&p| f64::from(p)).sum::<f64>();
        let decay = (sum(&before) - sum(&after)) / sum(&before);
        assert!((decay / 1e-6 - 1.0).abs() < 2e-3, "{decay}");
    }

    #[test]
    fn norm_shows_what_is_not_finite_and_does_not_overflow() {
        assert!(norm(&[1.0, f32::NAN]).is_nan());
        assert_eq!(norm(&[1.0, f32::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(norm(&[f32::MAX]), f64::from(f32::MAX));
        assert_eq!(norm(&[]), 0.0);
    }
}
