//! The exponential and what is made of it.
//!
//! `x = n ln 2 + r` with an integer n and |r| <= ln(2)/2, so `e^x = 2^n e^r`. n comes from an addition that pushes the
//! fraction out of the mantissa and leaves n in its lowest bits, ln 2 is subtracted in two parts, and e^r is
//! `1 + r + r^2 P(r)`. The factor 2^n is applied by one instruction, or as two powers of about half of n, so that overflow
//! and subnormal results need no case of their own.

use fearless_simd::{Select, Simd, prelude::*};

use super::scale::scale;
use super::{Bits, Real, Vector, bits, from_bits, polynomial, splat};

/// A power of e that is still to be put together: `(1 + fraction) * powers[0] * powers[1]`, where the powers are those
/// of two. A factor applied before the second one does not meet subnormal numbers.
#[derive(Clone, Copy)]
pub(super) struct Scaled<S: Simd, T: Real> {
    fraction: Vector<S, T>,
    /// The exponent of both powers together.
    exponent: Vector<S, T>,
    powers: [Vector<S, T>; 2],
}

impl<S: Simd, T: Real> Scaled<S, T> {
    #[inline(always)]
    pub(super) fn value(self) -> Vector<S, T> {
        let value = self.fraction + T::ONE;
        scale::<S, T>(value.token(), value, self.exponent).unwrap_or_else(
            #[inline(always)]
            || value * self.powers[0] * self.powers[1],
        )
    }

    /// The power times `factor`, except for [`last_power`](Self::last_power).
    #[inline(always)]
    pub(super) fn times(self, factor: Vector<S, T>) -> Vector<S, T> {
        let factor = factor * self.powers[0];
        self.fraction.mul_add(factor, factor)
    }

    #[inline(always)]
    pub(super) fn last_power(self) -> Vector<S, T> {
        self.powers[1]
    }
}

/// The integer n nearest to `x / ln 2`, as a number and in the form of `EXPONENT_SHIFTER`, and `x - n ln 2`.
#[inline(always)]
fn reduce<S: Simd, T: Real>(x: Vector<S, T>) -> (Vector<S, T>, Bits<S, T>, Vector<S, T>) {
    let simd = x.token();
    let shifted = x.mul_add(splat::<S, T>(simd, T::LOG2_E), splat::<S, T>(simd, T::EXPONENT_SHIFTER));
    let n = shifted - splat::<S, T>(simd, T::EXPONENT_SHIFTER);
    let r = n.mul_add(splat::<S, T>(simd, -T::LN_2_HIGH), x);
    (n, bits(shifted), n.mul_add(splat::<S, T>(simd, -T::LN_2_LOW), r))
}

/// `e^r - 1` for |r| <= ln(2)/2.
#[inline(always)]
fn expm1_reduced<S: Simd, T: Real>(simd: S, r: Vector<S, T>) -> Vector<S, T> {
    polynomial::<S, T>(simd, r, T::EXP).mul_add(r * r, r)
}

/// `e^x`, for `x` within `EXP_RANGE` or some way below it.
#[inline(always)]
pub(super) fn exp_scaled<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Scaled<S, T> {
    let (exponent, n, r) = reduce::<S, T>(x);
    Scaled { fraction: expm1_reduced::<S, T>(simd, r), exponent, powers: powers::<S, T>(n) }
}

/// `2^(high + low)`, where `low` is what rounding to `high` left, for sums within `EXP_RANGE` times log2 e or some way below
/// it.
#[inline(always)]
pub(super) fn exp2_scaled<S: Simd, T: Real>(simd: S, high: Vector<S, T>, low: Vector<S, T>) -> Scaled<S, T> {
    let shifter = splat::<S, T>(simd, T::EXPONENT_SHIFTER);
    let shifted = high + shifter;
    let exponent = shifted - shifter;
    let r = (high - exponent) + low;
    let fraction = polynomial::<S, T>(simd, r, T::EXP2) * r;
    Scaled { fraction, exponent, powers: powers::<S, T>(bits(shifted)) }
}

/// Two powers of two whose product is 2^n. What is given stands for n + twice the bias: each half carries the bias once.
#[inline(always)]
fn powers<S: Simd, T: Real>(n: Bits<S, T>) -> [Vector<S, T>; 2] {
    let half = n >> 1;
    [power::<S, T>(half), power::<S, T>(n - half)]
}

/// The power of two whose exponent, with its bias, is in the lowest bits.
#[inline(always)]
pub(super) fn power<S: Simd, T: Real>(exponent: Bits<S, T>) -> Vector<S, T> {
    from_bits(exponent << T::MANTISSA)
}

/// `e^x`. Error at most 1.5 ULP in both widths. Minus infinity gives 0, infinity infinity.
#[inline(always)]
pub fn exp<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let [least, most] = T::EXP_RANGE;
    exp_scaled::<S, T>(simd, x.clamp(least, most)).value()
}

/// `(e^x - 1) / 2` for `x` from `EXPM1_MIN` to the upper end of `EXP_RANGE`, where the sign of a zero does not matter.
#[inline(always)]
fn half_expm1<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let (_, n, r) = reduce::<S, T>(x);
    // 2^(n - 1), which is finite where 2^n is not.
    let half = power::<S, T>(n - T::HALF_EXPONENTS);
    expm1_reduced::<S, T>(simd, r).mul_add(half, half - T::HALF)
}

/// `e^x - 1`, accurate for small `x` too. Error at most 2.5 ULP in both widths. Minus infinity gives -1,
/// infinity infinity, -0 gives -0.
#[inline(always)]
pub fn expm1<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let value = half_expm1::<S, T>(simd, x.clamp(T::EXPM1_MIN, T::EXP_RANGE[1]));
    (value + value).copysign(x)
}

/// `(e^2x - 1) / (e^2x + 1)`. Error at most 3 ULP in both widths. Minus infinity gives -1, infinity 1, -0
/// gives -0.
#[inline(always)]
pub fn tanh<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = x.abs().clamp(T::NIL, T::TANH_MAX);
    let half = half_expm1::<S, T>(simd, size + size);
    (half / (half + T::ONE)).copysign(x)
}

/// `1 / (1 + e^-x)`. Error at most 2.5 ULP in both widths. Minus infinity gives 0, infinity 1.
#[inline(always)]
pub fn sigmoid<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    // The power of the negative magnitude does not overflow, and keeps its accuracy in the tail.
    let power = exp::<S, T>(simd, -x.abs());
    let one = splat::<S, T>(simd, T::ONE);
    x.simd_lt(T::NIL).select(power, one) / (power + one)
}

/// `x / (1 + e^-x)`. Error at most 3 ULP in both widths. Minus infinity gives -0, infinity infinity, -0
/// gives -0.
#[inline(always)]
pub fn silu<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let bounded = x.clamp(-T::SILU_MAX, T::SILU_MAX);
    gated::<S, T>(x, bounded, exp_scaled::<S, T>(simd, -bounded.abs()))
}

/// `x sigmoid(y)` from `power = e^-|y|`, where y has the sign of x; `bounded` is x, or so negative that the result is 0.
#[inline(always)]
pub(super) fn gated<S: Simd, T: Real>(
    x: Vector<S, T>,
    bounded: Vector<S, T>,
    power: Scaled<S, T>,
) -> Vector<S, T> {
    let negative = x.simd_lt(T::NIL);
    let dividend = negative.select(power.times(bounded), x);
    let scale = negative.select(power.last_power(), splat::<S, T>(x.token(), T::ONE));
    dividend / (power.value() + T::ONE) * scale
}
