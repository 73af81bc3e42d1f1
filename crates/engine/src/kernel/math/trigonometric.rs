//! Sine and cosine.
//!
//! The angle is reduced to quarter turns and a remainder between -pi/4 and pi/4, which is kept as a sum of two numbers so
//! that the result is accurate near its zeros; large angles are reduced by [`payne_hanek`](super::payne_hanek). Sine and
//! cosine of the remainder are two polynomials; the quarter turns select one of them and its sign.

use fearless_simd::{Simd, prelude::*};

use super::{Bits, Real, ReducedAngle, Vector, bits, from_bits, polynomial, splat};

/// Sine, of an angle in radians. Error at most 1 ULP in both widths, for angles of any size. Infinity gives NaN, -0
/// gives -0.
#[inline(always)]
pub fn sin<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = x.abs();
    let quarter = T::reduce_angle(simd, size);
    let sign = bits(size) ^ bits(x);
    rotate::<S, T>(simd, quarter, quarter.turns, sign)
}

/// Cosine, of an angle in radians. Error at most 1 ULP in both widths, for angles of any size. Infinity gives
/// NaN.
#[inline(always)]
pub fn cos<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let quarter = T::reduce_angle(simd, x.abs());
    rotate::<S, T>(simd, quarter, quarter.turns + integer::<S, T>(simd, 1), integer::<S, T>(simd, 0))
}

/// Returns the sine of a remainder after `turns` quarter turns, negated where `sign` has the sign bit.
#[inline(always)]
fn rotate<S: Simd, T: Real>(
    simd: S,
    quarter: ReducedAngle<S, T>,
    turns: Bits<S, T>,
    sign: Bits<S, T>,
) -> Vector<S, T> {
    let ReducedAngle { high, low, .. } = quarter;
    let z = high * high;
    let half = z * T::HALF;
    let one = splat::<S, T>(simd, T::ONE);

    let sine = polynomial::<S, T>(simd, z, T::SIN) * z;
    let sine = high + (sine * high + low * (one - half));

    let most = one - half;
    let cosine = polynomial::<S, T>(simd, z, T::COS);
    let cosine = most + ((one - most - half) + (cosine * z * z - high * low));

    // All ones where the number of quarter turns is odd.
    let odd = integer::<S, T>(simd, 0) - (turns & integer::<S, T>(simd, 1));
    let value = (bits(cosine) & odd) | (bits(sine) & !odd);
    let turned = (turns & integer::<S, T>(simd, 2)) << (8 * size_of::<T>() as u32 - 2);
    from_bits(value ^ turned ^ sign)
}

#[inline(always)]
fn integer<S: Simd, T: Real>(simd: S, value: u8) -> Bits<S, T> {
    Bits::<S, T>::splat(simd, value.into())
}
