//! Softmax, log-softmax and normalisation to zero mean and unit variance.

use fearless_simd::{Simd, prelude::*};

use super::reduce::{max_value, mean, min_value, pairwise, sum_of};
use super::{RealNumber, VectorError, check, elementwise};
use crate::kernel::level;
use crate::kernel::math;

/// Computes `out[i] = e^x[i] / sum of e^x`. The largest element is subtracted first, so that nothing overflows.
///
/// The results are NaN if an element is NaN or infinity, or all are minus infinity.
///
/// ```
/// let mut out = [0.0; 2];
/// gatework_engine::vector::softmax(&[1000.0f32, 1000.0], &mut out)?;
/// assert_eq!(out, [0.5, 0.5]);
/// # Ok::<(), gatework_engine::vector::VectorError>(())
/// ```
pub fn softmax<T: RealNumber>(x: &[T], out: &mut [T]) -> Result<(), VectorError> {
    check("softmax", "out", out.len(), x.len())?;
    (T::compiled_real().softmax)(x, out);
    Ok(())
}

/// Computes the softmax of a slice on one thread.
#[inline(always)]
pub(super) fn softmax_row<S: Simd, T: RealNumber>(simd: S, x: &[T], out: &mut [T]) {
    let max = largest(simd, x);
    let sum = exponentials(simd, x, max, out);
    scale_in_place(simd, out, T::ONE / sum);
}

pub(super) fn softmax_of<T: RealNumber>(x: &[T], out: &mut [T]) {
    if x.len() <= elementwise::CHUNK_LEN {
        return dispatch!(level(), simd => softmax_row(simd, x, out));
    }
    let max = largest_of(x);
    let sum = elementwise::reduce_chunks_into(
        x,
        out,
        max,
        |x, out, max| dispatch!(level(), simd => exponentials(simd, x, max, out)),
        pairwise,
    );
    let factor = T::ONE / sum;
    elementwise::for_chunks(
        out,
        factor,
        |out, factor| dispatch!(level(), simd => scale_in_place(simd, out, factor)),
    );
}

/// Returns the largest element of a slice of any length, as [`largest`] defines it.
fn largest_of<T: RealNumber>(x: &[T]) -> T {
    let work = |x: &[T], ()| dispatch!(level(), simd => largest(simd, x));
    let join =
        |largest: &mut [T]| largest.iter().copied().fold(-T::INFINITY, |a, b| if a > b { a } else { b });
    elementwise::reduce_chunks(x, (), work, join)
}

/// Returns the largest element. With a NaN it may be any element: the exponential of the NaN makes all results NaN anyway.
/// Of zeros with different signs it may be either one.
#[inline(always)]
fn largest<S: Simd, T: RealNumber>(simd: S, x: &[T]) -> T {
    let least = T::Native::<S>::splat(simd, -T::INFINITY);
    let (mut a, mut b, mut c, mut d) = (least, least, least, least);
    let n = T::Native::<S>::LEN;
    let mut groups = x.chunks_exact(4 * n);
    for x in groups.by_ref() {
        a = a.max(T::Native::<S>::from_slice(simd, &x[..n]));
        b = b.max(T::Native::<S>::from_slice(simd, &x[n..2 * n]));
        c = c.max(T::Native::<S>::from_slice(simd, &x[2 * n..3 * n]));
        d = d.max(T::Native::<S>::from_slice(simd, &x[3 * n..]));
    }
    let mut rest = groups.remainder().chunks_exact(n);
    for x in rest.by_ref() {
        a = a.max(T::Native::<S>::from_slice(simd, x));
    }
    if !rest.remainder().is_empty() {
        b = b.max(elementwise::padded::<S, T::Native<S>>(simd, rest.remainder()));
    }
    a.max(b).max(c.max(d)).reduce_max()
}

/// Computes `out[i] = x[i] - ln(sum of e^x)` without overflow.
///
/// The results are NaN if an element is NaN or infinity, or all are minus infinity.
pub fn log_softmax<T: RealNumber>(x: &[T], out: &mut [T]) -> Result<(), VectorError> {
    check("log_softmax", "out", out.len(), x.len())?;
    (T::compiled_real().log_softmax)(x, out);
    Ok(())
}

pub(super) fn log_softmax_of<T: RealNumber>(x: &[T], out: &mut [T]) {
    let Some((max, log_sum)) = log_sum_exp(x) else { return };
    elementwise::for_chunks2(
        x,
        out,
        (max, log_sum),
        |x, out, (max, log_sum)| dispatch!(level(), simd => subtract(simd, x, max, log_sum, out)),
    );
}

/// Returns the largest element and `ln(sum of e^(x - largest))`, or `None` if there are no elements.
pub(super) fn log_sum_exp<T: RealNumber>(x: &[T]) -> Option<(T, T)> {
    (T::compiled_real().log_sum_exp)(x)
}

pub(super) fn log_sum_exp_of<T: RealNumber>(x: &[T]) -> Option<(T, T)> {
    if x.is_empty() {
        return None;
    }
    let max = largest_of(x);
    let work = |x: &[T], max| dispatch!(level(), simd => sum_of_exponentials(simd, x, max));
    let sum = elementwise::reduce_chunks(x, max, work, pairwise);
    Some((max, T::from_f64(sum.to_f64().ln())))
}

/// Returns the sum of `e^(x[i] - max)`.
#[inline(always)]
fn sum_of_exponentials<S: Simd, T: RealNumber>(simd: S, x: &[T], max: T) -> T {
    sum_of::<S, T::Native<S>>(
        simd,
        x,
        #[inline(always)]
        |x| math::exp::<S, T>(simd, x - max),
    )
}

/// Computes the log-softmax of a slice on one thread.
#[inline(always)]
pub(super) fn log_softmax_row<S: Simd, T: RealNumber>(simd: S, x: &[T], out: &mut [T]) {
    let max = largest(simd, x);
    let sum = sum_of_exponentials(simd, x, max);
    subtract(simd, x, max, T::from_f64(sum.to_f64().ln()), out);
}

/// Computes `out[i] = (x[i] - mean) / deviation` with the population standard deviation. If all elements are equal, the
/// results are 0.
pub fn normalise<T: RealNumber>(x: &[T], out: &mut [T]) -> Result<(), VectorError> {
    check("normalise", "out", out.len(), x.len())?;
    (T::compiled_real().normalise)(x, out);
    Ok(())
}

pub(super) fn normalise_of<T: RealNumber>(x: &[T], out: &mut [T]) {
    #[inline(always)]
    fn scale<S: Simd, T: RealNumber>(simd: S, x: &[T], mean: T, factor: T, out: &mut [T]) {
        elementwise::map::<S, T::Native<S>, { elementwise::UNROLL_CHEAP }, false>(
            simd,
            x,
            out,
            #[inline(always)]
            |x| (x - mean) * factor,
        );
    }
    // Rounding of the mean would leave a residue.
    if max_value(x) == min_value(x) {
        let is_finite = x.first().is_some_and(|x| x.to_f64().is_finite());
        return out.fill(if is_finite { T::ZERO } else { T::NAN });
    }
    let (mean, variance) = moments_of(x);
    let deviation = variance.to_f64().sqrt();
    let factor = T::from_f64(if deviation == 0.0 { 0.0 } else { 1.0 / deviation });
    elementwise::for_chunks2(
        x,
        out,
        (mean, factor),
        |x, out, (mean, factor)| dispatch!(level(), simd => scale(simd, x, mean, factor, out)),
    );
}

/// Returns the mean and the population variance of a slice of any length.
pub(super) fn moments_of<T: RealNumber>(x: &[T]) -> (T, T) {
    let mean = mean(x);
    let work = |x: &[T], mean| dispatch!(level(), simd => sum_of_squares(simd, x, mean));
    let sum = elementwise::reduce_chunks(x, mean, work, pairwise);
    (mean, T::from_f64(sum.to_f64() / x.len() as f64))
}

/// Returns the sum of `(x[i] - mean)^2`.
#[inline(always)]
pub(super) fn sum_of_squares<S: Simd, T: RealNumber>(simd: S, x: &[T], mean: T) -> T {
    sum_of::<S, T::Native<S>>(
        simd,
        x,
        #[inline(always)]
        |x| (x - mean) * (x - mean),
    )
}

/// Computes `out[i] = e^(x[i] - max)` and returns the sum of the results.
#[inline(always)]
fn exponentials<S: Simd, T: RealNumber>(simd: S, x: &[T], max: T, out: &mut [T]) -> T {
    elementwise::map::<S, T::Native<S>, { elementwise::UNROLL_COSTLY }, false>(
        simd,
        x,
        out,
        #[inline(always)]
        |x| math::exp::<S, T>(simd, x - max),
    );
    sum_of::<S, T::Native<S>>(
        simd,
        out,
        #[inline(always)]
        |x| x,
    )
}

/// Computes `x[i] = x[i] * factor`.
#[inline(always)]
fn scale_in_place<S: Simd, T: RealNumber>(simd: S, x: &mut [T], factor: T) {
    elementwise::map_in_place::<S, T::Native<S>>(
        simd,
        x,
        #[inline(always)]
        |x| x * factor,
    );
}

/// Computes `out[i] = x[i] - a - b`.
#[inline(always)]
fn subtract<S: Simd, T: RealNumber>(simd: S, x: &[T], a: T, b: T, out: &mut [T]) {
    elementwise::map::<S, T::Native<S>, { elementwise::UNROLL_CHEAP }, false>(
        simd,
        x,
        out,
        #[inline(always)]
        |x| x - a - b,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    fn reference_softmax(x: &[f32]) -> Vec<f64> {
        let max = x.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let powers: Vec<f64> = x.iter().map(|&x| f64::from(x - max).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }

    proptest! {
        #![proptest_config(cases(50))]

        #[test]
        fn rows_of_any_length_equal_the_reference(x in proptest::collection::vec(-50f32..50.0, 0..200)) {
            let expected = reference_softmax(&x);
            let count = x.len() as f64;
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
            let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
            on_every_level(|| {
                let mut out = vec![0.0; x.len()];
                softmax(&x, &mut out).unwrap();
                for (&got, &expected) in out.iter().zip(&expected) {
                    assert!((f64::from(got) - expected).abs() <= 2e-6 * expected + 1e-44, "{got} {expected}");
                }
                log_softmax(&x, &mut out).unwrap();
                for (&got, &expected) in out.iter().zip(&expected) {
                    assert!((f64::from(got) - expected.ln()).abs() <= 2e-5, "{got} {}", expected.ln());
                }
                normalise(&x, &mut out).unwrap();
                if x.len() > 1 {
                    for (&got, &x) in out.iter().zip(&x) {
                        let expected = (f64::from(x) - mean) / variance.sqrt();
                        assert!((f64::from(got) - expected).abs() <= 1e-4, "{got} {expected}");
                    }
                }
            });
        }
    }

    /// Subtracting another element than the largest would overflow or underflow.
    #[test]
    fn the_largest_element_is_found_at_every_position() {
        fn find<T: RealNumber>(longest: usize, others: T, max: T) {
            for len in (1..longest).step_by(if cfg!(miri) { 37 } else { 1 }) {
                for place in (0..len).step_by(1 + len / 23) {
                    let mut x = vec![others; len];
                    x[place] = max;
                    assert!(largest_of(&x) == max, "{place} of {len} {}", T::DTYPE);
                }
            }
        }
        on_every_level(|| {
            find(200, 0f32, 500.0);
            find(200, -500f32, -499.0);
            find(120, 0f64, 5000.0);
            find(120, f64::NEG_INFINITY, -3.0);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn the_largest_element_is_found_in_every_chunk() {
        let mut x = vec![-1f32; 5 * elementwise::CHUNK_LEN + 3];
        for place in [
            0,
            elementwise::CHUNK_LEN - 1,
            elementwise::CHUNK_LEN,
            3 * elementwise::CHUNK_LEN + 70,
            x.len() - 1,
        ] {
            x[place] = 200.0;
            assert_eq!(largest_of(&x), 200.0, "{place}");
            x[place] = -1.0;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn long_rows_have_the_same_bits_for_any_number_of_threads() {
        let x: Vec<f32> = (0..300_001).map(|i| (i % 1013) as f32 * 0.01).collect();
        let results = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = [vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; x.len()]];
            pool.install(|| softmax(&x, &mut out[0])).unwrap();
            pool.install(|| log_softmax(&x, &mut out[1])).unwrap();
            pool.install(|| normalise(&x, &mut out[2])).unwrap();
            out
        });
        assert_eq!(results[0], results[1]);
        let total: f64 = results[0][0].iter().map(|&x| f64::from(x)).sum();
        assert!((total - 1.0).abs() < 1e-5);
    }

    #[test]
    fn special_rows_have_the_documented_values() {
        let mut out = [7.0f64; 3];
        softmax(&[0.0, f64::NEG_INFINITY, 0.0], &mut out).unwrap();
        assert_eq!(out, [0.5, 0.0, 0.5]);
        for bad in [f64::NAN, f64::INFINITY] {
            softmax(&[0.0, bad, 1.0], &mut out).unwrap();
            assert!(out.iter().all(|x| x.is_nan()));
            log_softmax(&[0.0, bad, 1.0], &mut out).unwrap();
            assert!(out.iter().all(|x| x.is_nan()));
        }
        softmax(&[f64::NEG_INFINITY; 3], &mut out).unwrap();
        assert!(out.iter().all(|x| x.is_nan()));
        normalise(&[4.0; 3], &mut out).unwrap();
        assert_eq!(out, [0.0; 3]);
        for len in 0..40 {
            let mut out = vec![7.0; len];
            normalise(&vec![0.1f32; len], &mut out).unwrap();
            assert!(out.iter().all(|x| x.to_bits() == 0), "{len}: {out:?}");
        }
        assert_eq!(softmax::<f32>(&[], &mut []), Ok(()));
        assert!(softmax(&[1.0f32], &mut []).is_err());
    }
}
