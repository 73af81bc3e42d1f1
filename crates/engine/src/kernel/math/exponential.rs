//! The exponential, and the functions that are computed from it.
//!
//! `x = n ln 2 + r` with an integer n and |r| <= ln(2)/2, so `e^x = 2^n e^r`. Adding a large constant rounds to n and
//! leaves it in the lowest bits of the mantissa; ln 2 is subtracted in two parts (Cody and Waite), and e^r is `1 + r + r^2
//! P(r)`. The factor 2^n is applied by one instruction (AVX-512), or as two powers of about half of n, so that overflow and
//! subnormal results need no special cases. With table lookups in registers (AVX-512), n is a multiple of 1/16 (1/8 in
//! f64), the power of its fractional part comes from a table, and P has a lower degree.

use fearless_simd::{Select, Simd, prelude::*};

use super::avx512::{lookup, scale};
use super::{Bits, Real, Vector, at_least, at_most, bits, from_bits, polynomial, splat};

/// A power of e before its exponent is applied: `(1 + fraction) * powers[0] * powers[1]`, where both powers are powers of
/// two. A factor that is applied before the second power does not underflow.
#[derive(Clone, Copy)]
pub(super) struct ScaledExp<S: Simd, T: Real> {
    fraction: Vector<S, T>,
    /// Exponent of the product of both powers.
    exponent: Vector<S, T>,
    powers: [Vector<S, T>; 2],
}

impl<S: Simd, T: Real> ScaledExp<S, T> {
    #[inline(always)]
    pub(super) fn value(self) -> Vector<S, T> {
        let value = self.fraction + T::ONE;
        scale::<S, T>(value.token(), value, self.exponent).unwrap_or_else(
            #[inline(always)]
            || value * self.powers[0] * self.powers[1],
        )
    }

    /// Returns the power times `factor`, without [`last_power`](Self::last_power).
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

/// Returns the multiple n of a unit that is nearest to `x / ln 2`, as a number and in the lowest bits, and `x - n ln 2`.
/// The shifter determines the unit and the bias that is added to n in the bits.
#[inline(always)]
fn reduce<S: Simd, T: Real>(x: Vector<S, T>, shifter: T) -> (Vector<S, T>, Vector<S, T>, Vector<S, T>) {
    let simd = x.token();
    let shifter = splat::<S, T>(simd, shifter);
    let shifted = x.mul_add(splat::<S, T>(simd, T::LOG2_E), shifter);
    let n = shifted - shifter;
    let r = n.mul_add(splat::<S, T>(simd, -T::LN_2_HIGH), x);
    (n, shifted, n.mul_add(splat::<S, T>(simd, -T::LN_2_LOW), r))
}

/// `e^r - 1` for |r| <= ln(2)/2.
#[inline(always)]
fn expm1_reduced<S: Simd, T: Real>(simd: S, r: Vector<S, T>) -> Vector<S, T> {
    polynomial::<S, T>(simd, r, T::EXP).mul_add(r * r, r)
}

/// Returns `e^x` for `x` within or slightly below `EXP_RANGE`.
#[inline(always)]
pub(super) fn exp_scaled<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> ScaledExp<S, T> {
    let (exponent, n, r) = reduce::<S, T>(x, T::EXPONENT_SHIFTER);
    ScaledExp { fraction: expm1_reduced::<S, T>(simd, r), exponent, powers: powers::<S, T>(bits(n)) }
}

/// Returns `2^(high + low)`, where `low` is the rounding error of `high`, for sums within or slightly below `EXP_RANGE`
/// times log2 e.
#[inline(always)]
pub(super) fn exp2_scaled<S: Simd, T: Real>(
    simd: S,
    high: Vector<S, T>,
    low: Vector<S, T>,
) -> ScaledExp<S, T> {
    let shifter = splat::<S, T>(simd, T::EXPONENT_SHIFTER);
    let shifted = high + shifter;
    let exponent = shifted - shifter;
    let r = (high - exponent) + low;
    let fraction = polynomial::<S, T>(simd, r, T::EXP2) * r;
    ScaledExp { fraction, exponent, powers: powers::<S, T>(bits(shifted)) }
}

/// Returns two powers of two whose product is 2^n, given n plus twice the bias: each half contains the bias once.
#[inline(always)]
fn powers<S: Simd, T: Real>(n: Bits<S, T>) -> [Vector<S, T>; 2] {
    let half = n >> 1;
    [power::<S, T>(half), power::<S, T>(n - half)]
}

/// Returns the power of two whose biased exponent is in the lowest bits.
#[inline(always)]
pub(super) fn power<S: Simd, T: Real>(exponent: Bits<S, T>) -> Vector<S, T> {
    from_bits(exponent << T::MANTISSA)
}

/// `e^x`. Error at most 1.5 ULP in both widths. Minus infinity gives 0, infinity infinity.
#[inline(always)]
pub fn exp<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let [least, most] = T::EXP_RANGE;
    let x = x.clamp(least, most);
    exp_by_table::<S, T>(simd, x).unwrap_or_else(
        #[inline(always)]
        || exp_scaled::<S, T>(simd, x).value(),
    )
}

/// Returns `e^x` for `x` within `EXP_RANGE` with a table lookup, or `None` without AVX-512.
#[inline(always)]
fn exp_by_table<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Option<Vector<S, T>> {
    let (n, place, r) = reduce::<S, T>(x, T::TABLE_SHIFTER);
    let power = lookup::<S, T>(simd, T::EXP2_TABLE, place)?;
    let fraction = polynomial::<S, T>(simd, r, T::EXP_AFTER_TABLE).mul_add(r * r, r);
    scale::<S, T>(simd, fraction.mul_add(power, power), n)
}

/// Returns `(2^n e^r - 1) / 2`, with an unspecified sign of zero; n is biased as by `HALF_SHIFTER`.
#[inline(always)]
fn half_expm1<S: Simd, T: Real>(simd: S, n: Vector<S, T>, r: Vector<S, T>) -> Vector<S, T> {
    // 2^(n - 1) is finite where 2^n is not.
    let half = power::<S, T>(bits(n));
    expm1_reduced::<S, T>(simd, r).mul_add(half, half - T::HALF)
}

/// `e^x - 1`, accurate for small `x` too. Error at most 2.5 ULP in both widths. Minus infinity gives -1,
/// infinity infinity, -0 gives -0.
#[inline(always)]
pub fn expm1<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let (_, n, r) = reduce::<S, T>(x.clamp(T::EXPM1_MIN, T::EXP_RANGE[1]), T::HALF_SHIFTER);
    let value = half_expm1::<S, T>(simd, n, r);
    (value + value).copysign(x)
}

/// `(e^2x - 1) / (e^2x + 1)`. Error at most 3 ULP in both widths. Minus infinity gives -1, infinity 1, -0
/// gives -0.
#[inline(always)]
pub fn tanh<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = at_most::<S, T>(x.abs(), T::TANH_MAX);
    let twice = size + size;
    let shifter = splat::<S, T>(simd, T::HALF_SHIFTER);
    let n = twice.mul_add(splat::<S, T>(simd, T::LOG2_E), shifter);
    // One term of ln 2 is enough: where n is so large that the second would matter, tanh is flat.
    let ln_2 = splat::<S, T>(simd, -(T::LN_2_HIGH + T::LN_2_LOW));
    let half = half_expm1::<S, T>(simd, n, (n - shifter).mul_add(ln_2, twice));
    (half / (half + T::ONE)).copysign(x)
}

/// Returns `e^-|x|` for functions that are computed from it. Does not use the table, whose additional rounding would exceed
/// their error bounds.
#[inline(always)]
pub(super) fn exp_neg_abs<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    exp_scaled::<S, T>(simd, at_least::<S, T>(-x.abs(), T::EXP_RANGE[0])).value()
}

/// `1 / (1 + e^-x)`. Error at most 2.5 ULP in both widths. Minus infinity gives 0, infinity 1.
#[inline(always)]
pub fn sigmoid<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    // e^-|x| does not overflow, and keeps its relative accuracy in the tail.
    let power = exp_neg_abs::<S, T>(simd, x);
    let one = splat::<S, T>(simd, T::ONE);
    x.simd_lt(T::ZERO).select(power, one) / (power + one)
}

/// `x / (1 + e^-x)`. Error at most 3 ULP in both widths. Minus infinity gives -0, infinity infinity, -0
/// gives -0.
#[inline(always)]
pub fn silu<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let bounded = x.clamp(-T::SILU_MAX, T::SILU_MAX);
    x_sigmoid::<S, T>(x, bounded, exp_scaled::<S, T>(simd, -bounded.abs()))
}

/// Returns `x sigmoid(y)` from `power = e^-|y|`, where y has the sign of x. `bounded` is x, clamped to where the result is
/// 0.
#[inline(always)]
pub(super) fn x_sigmoid<S: Simd, T: Real>(
    x: Vector<S, T>,
    bounded: Vector<S, T>,
    power: ScaledExp<S, T>,
) -> Vector<S, T> {
    let negative = x.simd_lt(T::ZERO);
    let dividend = negative.select(power.times(bounded), x);
    let scale = negative.select(power.last_power(), splat::<S, T>(x.token(), T::ONE));
    dividend / (power.value() + T::ONE) * scale
}
