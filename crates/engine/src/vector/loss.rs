//! Loss functions: the mean over all elements or rows. The mean of an empty slice is NaN.
//!
//! An element-wise loss is one row of the table below: its documentation, its name, and its implementation on vectors.

use fearless_simd::{Select, Simd, prelude::*};

use super::function::parameter;
use super::reduce::{pairwise, sum_of_pairs};
use super::softmax::log_sum_exp;
use super::{RealNumber, VectorError, check, elementwise};
use crate::kernel::level;
use crate::kernel::math;

macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $name:ident ($($parameter:ident)?): |$simd:ident, $x:ident, $target:ident| $body:expr;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name<T: RealNumber>(x: &[T], target: &[T], $($parameter: T)?) -> Result<T, VectorError> {
                check(stringify!($name), "target", target.len(), x.len())?;
                let given: [T; _] = [$($parameter)?];
                let sum = (T::compiled_real().losses.$name)(x, target, parameter(given.first().copied()));
                Ok(sum / T::from_f64(x.len() as f64))
            }
        )*

        /// Functions that sum up the losses, compiled for a type. Those without a parameter ignore the third argument.
        #[derive(Debug)]
        pub(super) struct CompiledLosses<T> {
            $($name: fn(&[T], &[T], T) -> T,)*
        }

        impl<T: RealNumber> CompiledLosses<T> {
            pub(super) const fn new() -> Self {
                $(
                    fn $name<T: RealNumber>(x: &[T], target: &[T], parameter: T) -> T {
                        #[inline(always)]
                        fn pass<S: Simd, T: RealNumber>(simd: S, x: &[T], target: &[T], parameter: T) -> T {
                            $(let $parameter = parameter;)?
                            let _ = parameter;
                            sum_of_pairs::<S, T::Native<S>>(simd, x, target, #[inline(always)] |$x, $target| {
                                let $simd = simd;
                                $body
                            })
                        }
                        elementwise::reduce_chunks2(
                            x,
                            target,
                            parameter,
                            |x, target, parameter| dispatch!(level(), simd => pass(simd, x, target, parameter)),
                            pairwise,
                        )
                    }
                )*
                Self { $($name: $name::<T>,)* }
            }
        }
    };
}

losses! {
    /// The mean of `(x - target)^2`.
    mse(): |_simd, x, target| (x - target) * (x - target);
    /// The mean of `|x - target|`.
    mae(): |_simd, x, target| (x - target).abs();
    /// The mean of the Huber loss: `d^2 / 2` with `d = |x - target|`, or `delta (d - delta/2)` where `d` is above `delta`.
    huber(delta): |simd, x, target| {
        let d = (x - target).abs();
        let delta = T::Native::<S>::splat(simd, delta);
        d.simd_gt(delta).select((d - delta * T::HALF) * delta, d * d * T::HALF)
    };
    /// The mean of `-(target ln x + (1 - target) ln(1 - x))` for probabilities `x`. The logarithms are clamped to at least
    /// -100, so a certain and wrong prediction costs 100, as in PyTorch. An `x` outside 0 to 1 gives NaN.
    binary_cross_entropy(): |simd, x, target| {
        let least = T::Native::<S>::splat(simd, T::from_f64(-100.0));
        let yes = math::log::<S, T>(simd, x);
        let no = math::log1p::<S, T>(simd, -x);
        let yes = yes.simd_lt(least).select(least, yes);
        let no = no.simd_lt(least).select(least, no);
        // -(no + target (yes - no)); neither is infinite after the clamp.
        (target - T::ONE) * no - target * yes
    };
}

/// The mean over rows of `-log_softmax(row)[target]`. `logits` holds one row per target, and a target is the index of a
/// class.
///
/// ```
/// let loss = gatework_engine::vector::cross_entropy(&[0.0f64, 0.0, 0.0, 100.0], &[0, 1])?;
/// assert_eq!(loss, f64::ln(2.0) / 2.0);
/// # Ok::<(), gatework_engine::vector::VectorError>(())
/// ```
pub fn cross_entropy<T: RealNumber>(logits: &[T], targets: &[usize]) -> Result<T, VectorError> {
    let classes = logits.len().checked_div(targets.len()).unwrap_or(0);
    check("cross_entropy", "logits", logits.len(), classes * targets.len())?;
    let mut total = 0.0;
    for (row, &class) in targets.iter().enumerate() {
        let logits = &logits[row * classes..][..classes];
        let (Some(&logit), Some((max, log_sum))) = (logits.get(class), log_sum_exp(logits)) else {
            return Err(VectorError::Class { row, class, classes });
        };
        total += log_sum.to_f64() + (max.to_f64() - logit.to_f64());
    }
    Ok(T::from_f64(total / targets.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    fn reference(x: &[f64], target: &[f64], term: impl Fn(f64, f64) -> f64) -> f64 {
        x.iter().zip(target).map(|(&x, &target)| term(x, target)).sum::<f64>() / x.len() as f64
    }

    proptest! {
        #![proptest_config(cases(50))]

        #[test]
        fn losses_of_any_length_equal_the_reference(pairs in proptest::collection::vec((0f64..1.0, 0f64..1.0), 1..200)) {
            let (x, target): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let same = |got: Result<f64, VectorError>, expected: f64| {
                let got = got.unwrap();
                assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{got}, not {expected}");
            };
            on_every_level(|| {
                same(mse(&x, &target), reference(&x, &target, |x, y| (x - y).powi(2)));
                same(mae(&x, &target), reference(&x, &target, |x, y| (x - y).abs()));
                same(huber(&x, &target, 0.3), reference(&x, &target, |x, y| {
                    let d = (x - y).abs();
                    if d > 0.3 { 0.3 * (d - 0.15) } else { d * d / 2.0 }
                }));
                same(binary_cross_entropy(&x, &target), reference(&x, &target, |x, y| {
                    -(y * x.ln().max(-100.0) + (1.0 - y) * (-x).ln_1p().max(-100.0))
                }));
            });
        }

        #[test]
        fn cross_entropy_equals_the_reference(rows in 1usize..9, classes in 1usize..40, seed in 0usize..1000) {
            let logits: Vec<f64> = (0..rows * classes).map(|i| ((i * 37 + seed) % 101) as f64 * 0.1 - 5.0).collect();
            let targets: Vec<usize> = (0..rows).map(|row| (row * 7 + seed) % classes).collect();
            let expected: f64 = targets.iter().enumerate().map(|(row, &target)| {
                let row = &logits[row * classes..(row + 1) * classes];
                row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[target]
            }).sum();
            let got = cross_entropy(&logits, &targets).unwrap() * rows as f64;
            prop_assert!((got - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn special_cases_have_the_documented_values() {
        assert_eq!(binary_cross_entropy(&[0.0f32, 1.0], &[1.0, 0.0]), Ok(100.0));
        assert_eq!(binary_cross_entropy(&[0.0f32, 1.0], &[0.0, 1.0]), Ok(0.0));
        assert!(binary_cross_entropy(&[1.5f32], &[1.0]).unwrap().is_nan());
        assert!(mse::<f32>(&[], &[]).unwrap().is_nan());
        assert!(mse(&[1.0f32], &[]).is_err());
        assert!(cross_entropy::<f32>(&[], &[]).unwrap().is_nan());
        let error = cross_entropy(&[0.0f32; 6], &[0, 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cross_entropy: the target of row 1 is class 3, but there are 3 classes"
        );
        assert!(cross_entropy(&[0.0f32; 7], &[0, 1]).is_err());
        assert!(cross_entropy::<f32>(&[], &[0]).is_err());
    }
}
