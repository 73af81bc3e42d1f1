//! Sine and cosine.
//!
//! The angle is reduced to quarter turns and a rest between -pi/4 and pi/4, which is kept as a sum of two numbers so that
//! it is accurate near the zeros; large angles take the way of [`quarter`](super::quarter). Sine and cosine of the rest are
//! two polynomials; the quarter turns choose one and its sign.

use fearless_simd::{Simd, prelude::*};

use super::{Bits, Quarter, Real, Vector, bits, from_bits, polynomial, splat};

/// Sine, of an angle in radians. Error at most 1 ULP in both widths, for angles of any size. Infinity gives NaN,
/// -0 gives -0.
#[inline(always)]
pub fn sin<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = x.abs();
    let quarter = T::quarter_turns(simd, size);
    let sign = bits(size) ^ bits(x);
    rotate::<S, T>(simd, quarter, quarter.turns, sign)
}

/// Cosine, of an angle in radians. Error at most 1 ULP in both widths, for angles of any size. Infinity gives
/// NaN.
#[inline(always)]
pub fn cos<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let quarter = T::quarter_turns(simd, x.abs());
    rotate::<S, T>(simd, quarter, quarter.turns + integer::<S, T>(simd, 1), integer::<S, T>(simd, 0))
}

/// The sine of a rest after `turns` quarter turns, with its sign changed where `sign` has the sign bit.
#[inline(always)]
fn rotate<S: Simd, T: Real>(
    simd: S,
    quarter: Quarter<S, T>,
    turns: Bits<S, T>,
    sign: Bits<S, T>,
) -> Vector<S, T> {
    let Quarter { high, low, .. } = quarter;
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
