//! The logarithm, and the functions that are computed from it.
//!
//! `x = 2^n (1 + f)` with 1 + f between sqrt(1/2) and sqrt(2). With `s = f / (2 + f)`,
//! `ln(1 + f) = f - f^2/2 + s (f^2/2 + s^2 P(s^2))`, a form in which the leading terms are exact or nearly so (as in Sun's
//! fdlibm, "e_log.c", with our own polynomial). n ln 2 is added in two parts.

use fearless_simd::{Select, Simd, prelude::*};

use super::{Bits, Real, Vector, bits, exponential::exp_neg_abs, from_bits, polynomial, splat};

/// Returns n and 1 + f of a positive normal number.
#[inline(always)]
fn split<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> (Vector<S, T>, Vector<S, T>) {
    let bits = bits(x) + T::ONE_MINUS_SQRT_HALF_BITS;
    let biased = (bits >> T::MANTISSA) | Bits::<S, T>::splat(simd, T::INTEGER_BITS);
    let mantissa = (bits & T::MANTISSA_BITS) + T::SQRT_HALF_BITS;
    (from_bits::<S, Vector<S, T>>(biased) - T::INTEGER_BIAS, from_bits(mantissa))
}

/// Returns `n ln 2 + ln(1 + f) + low`.
#[inline(always)]
fn combine<S: Simd, T: Real>(simd: S, n: Vector<S, T>, f: Vector<S, T>, low: Vector<S, T>) -> Vector<S, T> {
    let half_square = f * f * T::HALF;
    let s = f / (f + T::TWO);
    let z = s * s;
    let tail = polynomial::<S, T>(simd, z, T::LOG) * z + half_square;
    let tail = s * tail + (n * T::LN_2_LOW + low);
    n * T::LN_2_HIGH + (f - (half_square - tail))
}

/// The natural logarithm. Error at most 1 ULP in both widths. 0 and -0 give minus infinity, negative numbers NaN, infinity
/// infinity.
#[inline(always)]
pub fn log<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let subnormal = x.simd_lt(T::MIN_POSITIVE);
    let [factor, exponent] = T::SUBNORMAL_SCALE;
    let (n, mantissa) = split::<S, T>(simd, subnormal.select(x * factor, x));
    let n = n - subnormal.select(splat::<S, T>(simd, exponent), splat::<S, T>(simd, T::ZERO));
    let value = combine::<S, T>(simd, n, mantissa - T::ONE, splat::<S, T>(simd, T::ZERO));
    replace_special::<S, T>(simd, x, value)
}

/// Replaces `value`, the logarithm of `x`, where `x` is 0, negative, infinite or NaN.
#[inline(always)]
fn replace_special<S: Simd, T: Real>(simd: S, x: Vector<S, T>, value: Vector<S, T>) -> Vector<S, T> {
    let beyond = x.simd_eq(T::ZERO).select(splat::<S, T>(simd, -T::INFINITY), splat::<S, T>(simd, T::NAN));
    let value = x.simd_gt(T::ZERO).select(value, beyond);
    x.simd_eq(T::INFINITY).select(x, value)
}

/// Returns `ln(1 + x)` for finite `x >= 0`, given the rounded sum 1 + x.
#[inline(always)]
fn log1p_bounded<S: Simd, T: Real>(simd: S, x: Vector<S, T>, sum: Vector<S, T>) -> Vector<S, T> {
    let nil = splat::<S, T>(simd, T::ZERO);
    let (n, mantissa) = split::<S, T>(simd, sum);
    // The rounding error of 1 + x. Where n = 0 it is not needed: f is x itself.
    let lost = x.simd_ge(T::ONE).select(splat::<S, T>(simd, T::ONE) - (sum - x), x - (sum - T::ONE));
    let near = n.simd_eq(T::ZERO);
    let f = near.select(x, mantissa - T::ONE);
    combine::<S, T>(simd, n, f, near.select(nil, lost / sum))
}

/// `ln(1 + x)`, accurate for small `x` too. Error at most 1.5 ULP in both widths. -1 gives minus infinity, smaller numbers
/// NaN, infinity infinity, -0 gives -0.
#[inline(always)]
pub fn log1p<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let sum = x + T::ONE;
    replace_special::<S, T>(simd, sum, log1p_bounded::<S, T>(simd, x, sum)).copysign(x)
}

/// `ln(1 + e^x)`. Error at most 2 ULP in both widths. Minus infinity gives 0, infinity infinity.
#[inline(always)]
pub fn softplus<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let power = exp_neg_abs::<S, T>(simd, x);
    let positive = x.simd_gt(T::ZERO).select(x, splat::<S, T>(simd, T::ZERO));
    positive + log1p_bounded::<S, T>(simd, power, power + T::ONE)
}
