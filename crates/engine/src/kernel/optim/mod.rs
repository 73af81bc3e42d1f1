//! Fused optimiser steps: one pass over memory, in which each element of the parameters, the gradient and the optimiser
//! state is read once and written once.
//!
//! ```text
//! for each element:
//!     g = clip(scale * g)                       // `Clipping`, the same for every optimiser
//!     g = g + decay * p                         // coupled weight decay
//!     state, direction = rule(state, g)         // `adam`, `sgd`, `rmsprop`
//!     p = p - rate * direction
//! ```
//!
//! Each rule is written once over a vector and instantiated for every instruction set. Terms that are the same for all
//! elements (such as the bias corrections of Adam) are computed beforehand in `f64` and folded into constants, which leaves
//! Adam with one square root and one division per element.
//!
//! The rules use only additions, multiplications, divisions, square roots and comparisons, each rounded separately (no
//! fused multiply-add), and the last elements, fewer than a vector has lanes, go through a padded buffer and the same code.
//! A result therefore has the same bits at every position of an element and with every instruction set. The passes run on
//! the calling thread.

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod adam;
mod norm;
mod rmsprop;
mod sgd;
mod step;

pub use adam::{Adam, adam};
pub use norm::norm;
pub use rmsprop::{Rmsprop, rmsprop};
pub use sgd::{Sgd, sgd};

/// Gradient clipping before the optimiser step: `g` becomes `scale * g`, clamped to `-limit ..= limit`. NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipping {
    /// Factor of every element, for clipping by norm.
    pub scale: f32,
    /// Largest magnitude of an element after scaling, for clipping by value.
    pub limit: f32,
}

impl Clipping {
    /// No clipping.
    pub const NONE: Self = Self { scale: 1.0, limit: f32::INFINITY };
}

impl Default for Clipping {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::adam::{adam_on, power};
    use super::norm::norm_on;
    use super::rmsprop::rmsprop_on;
    use super::sgd::sgd_on;
    use super::*;
    use crate::kernel::tests::cases;
    use fearless_simd::Level;
    use proptest::prelude::*;

    /// Parameters, gradient and two state slots; the second slot is positive, like mean squares.
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

    /// Any of the optimisers, for properties of all of them.
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
        fn reference(self, p: f64, g: f64, first: f64, second: f64) -> [f64; 3] {
            match self {
                Self::Adam(s) => {
                    let (lr, decay, t) = (s.learning_rate, s.weight_decay, s.step as f64);
                    let (beta1, beta2) = (s.beta1, s.beta2);
                    let g = reference_clip(s.clipping, g) + if s.decoupled { 0.0 } else { decay * p };
                    let m = beta1 * first + (1.0 - beta1) * g;
                    let v = beta2 * second + (1.0 - beta2) * g * g;
                    let m_hat = m / (1.0 - beta1.powf(t));
                    let v_hat = v / (1.0 - beta2.powf(t));
                    let decay = if s.decoupled { decay * p } else { 0.0 };
                    [p - lr * (m_hat / (v_hat.sqrt() + s.epsilon) + decay), m, v]
                }
                Self::Sgd(s) => {
                    let (lr, momentum) = (s.learning_rate, s.momentum);
                    let g = reference_clip(s.clipping, g) + s.weight_decay * p;
                    if momentum == 0.0 {
                        return [p - lr * g, first, second];
                    }
                    let b = momentum * first + g;
                    [p - lr * if s.nesterov { g + momentum * b } else { b }, b, second]
                }
                Self::Rmsprop(s) => {
                    let (lr, momentum) = (s.learning_rate, s.momentum);
                    let alpha = s.alpha;
                    let g = reference_clip(s.clipping, g) + s.weight_decay * p;
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

    fn reference_clip(clipping: Clipping, g: f64) -> f64 {
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

    /// One of each optimiser, with all terms enabled.
    fn every_pass(clipping: Clipping) -> [Pass; 3] {
        let (learning_rate, momentum, weight_decay, epsilon) = (0.1, 0.9, 0.01, 1e-8);
        [
            Pass::Adam(Adam { learning_rate, beta2: 0.99, weight_decay, clipping, ..Adam::default() }),
            Pass::Sgd(Sgd { learning_rate, momentum, nesterov: true, weight_decay, clipping }),
            Pass::Rmsprop(Rmsprop { learning_rate, alpha: 0.99, epsilon, momentum, weight_decay, clipping }),
        ]
    }

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn steps_agree_with_the_reference(pass in pass(), before in arrays()) {
            let after = pass.run(Level::new(), &before);
            for i in 0..before.values.len() {
                let [p, g, m, v] = [before.values[i], before.grads[i], before.first[i], before.second[i]];
                let wanted = pass.reference(p.into(), g.into(), m.into(), v.into());
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
        fn norm_agrees_with_the_reference(grads in proptest::collection::vec(-1e30f32..1e30, 0..100)) {
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
    fn clipping_by_value_replaces_large_gradients_by_the_limit() {
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
    fn subnormal_slots_are_flushed_to_zero() {
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
    fn a_small_decay_is_unbiased() {
        let settings = Adam { learning_rate: 1e-4, beta2: 0.99, weight_decay: 1e-2, ..Adam::default() };
        let before: Vec<f32> = (0..4096).map(|i| 1.0 + i as f32 / 4096.0).collect();
        let mut after = before.clone();
        adam(&settings, &mut after, &[0.0; 4096], &mut [0.0; 4096], &mut [0.0; 4096]);
        let sum = |values: &[f32]| values.iter().map(|&p| f64::from(p)).sum::<f64>();
        let decay = (sum(&before) - sum(&after)) / sum(&before);
        assert!((decay / 1e-6 - 1.0).abs() < 2e-3, "{decay}");
    }

    #[test]
    fn norm_propagates_non_finite_elements_and_does_not_overflow() {
        assert!(norm(&[1.0, f32::NAN]).is_nan());
        assert_eq!(norm(&[1.0, f32::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(norm(&[f32::MAX]), f64::from(f32::MAX));
        assert_eq!(norm(&[]), 0.0);
    }
}
