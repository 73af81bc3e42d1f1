//! Range reduction of large angles (M. Payne, R. Hanek, "Radian reduction for trigonometric functions", 1983).
//!
//! `x / (pi/2)` is needed modulo 4 with about sixty bits after the binary point, however large `x` is. Only a window of the
//! binary digits of 2/pi matters: the digits before it contribute multiples of 4, those after it are too small. The product
//! of the mantissa with the window is exact in integers. It is computed lane by lane, and only if an angle is large.

use fearless_simd::{Simd, SimdFloatElement, prelude::*};

use super::Real;

/// An angle as `turns` quarter turns (modulo 4, in the lowest two bits of an integer) plus a remainder `high + low`,
/// between -pi/4 and pi/4.
#[derive(Clone, Copy)]
pub struct ReducedAngle<S: Simd, T: Real> {
    pub(super) turns: <T::Native<S> as SimdFloat<S>>::Bits,
    pub(super) high: T::Native<S>,
    pub(super) low: T::Native<S>,
}

/// Reduces the lanes of `x` that are not below `limit`, and keeps the others.
#[inline(always)]
pub(super) fn reduce_large<S: Simd, T: Real>(
    _: S,
    x: T::Native<S>,
    limit: T,
    mut quarter: ReducedAngle<S, T>,
) -> ReducedAngle<S, T> {
    let ReducedAngle { turns, high, low } = &mut quarter;
    reduce_lanes(x.as_slice(), limit, turns.as_mut_slice(), high.as_mut_slice(), low.as_mut_slice());
    quarter
}

#[cold]
#[inline(never)]
fn reduce_lanes<T: Real>(
    x: &[T],
    limit: T,
    turns: &mut [<T as SimdFloatElement>::Bits],
    high: &mut [T],
    low: &mut [T],
) {
    for (i, &x) in x.iter().enumerate() {
        if x < limit {
            continue;
        }
        let (quarters, rest, error) = reduce(x.to_f64());
        turns[i] = quarters.into();
        high[i] = T::from_f64(rest + error);
        low[i] = T::from_f64(rest - high[i].to_f64() + error);
    }
}

/// The binary digits of 2/pi, 64 per word, after 64 zeros.
const DIGITS: [u64; 21] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
    0xf0cf_bc20_9af4_361d,
];

/// pi/2 minus its nearest `f64`.
const FRAC_PI_2_LOW: f64 = 6.123_233_995_736_766e-17;

/// 2^-128.
const SCALE: f64 = 1.0 / ((1u128 << 127) as f64 * 2.0);

/// Returns the quarter turns of `x >= 1` modulo 4, and the remainder as a rounded value and its error. NaN if `x` is not
/// finite.
fn reduce(x: f64) -> (u8, f64, f64) {
    if !x.is_finite() {
        return (0, f64::NAN, f64::NAN);
    }
    let bits = x.to_bits();
    let mantissa = (bits & f64::MANTISSA_BITS) | (1 << 52);
    // x = mantissa * 2^exponent
    let exponent = (bits >> 52) as i64 - 1075;

    // 192 digits, the first of which has weight 2^1 when multiplied with the mantissa.
    let start = (exponent - 2 + 64) as usize;
    let window = [0, 1, 2].map(|i| digits(start + 64 * i));
    // As an integer, the product has the binary point before its last 190 bits.
    let mut product = [0; 4];
    let mut carry = 0;
    for i in (0..3).rev() {
        let sum = u128::from(mantissa) * u128::from(window[i]) + carry;
        product[i + 1] = sum as u64;
        carry = sum >> 64;
    }
    product[0] = carry as u64;

    let upper = u128::from(product[0]) << 64 | u128::from(product[1]);
    let lower = u128::from(product[2]) << 64 | u128::from(product[3]);
    // The first 128 bits after the point; interpreted as signed they are the distance to the nearest integer.
    let fraction = (upper << 66 | lower >> 62).cast_signed();
    let turns = ((upper >> 62) as u8).wrapping_add(u8::from(fraction < 0));

    let head = fraction as f64;
    let tail = fraction.wrapping_sub(head as i128) as f64;
    let quarter = std::f64::consts::FRAC_PI_2;
    let rest = head * quarter;
    let error = head.mul_add(quarter, -rest) + head * FRAC_PI_2_LOW + tail * quarter;
    (turns & 3, rest * SCALE, error * SCALE)
}

/// Returns 64 digits of 2/pi from `start` on, an index into the bits of [`DIGITS`].
fn digits(start: usize) -> u64 {
    let (word, shift) = (start / 64, start % 64);
    let next = DIGITS.get(word + 1).copied().unwrap_or(0);
    DIGITS[word] << shift | next.checked_shr(64 - shift as u32).unwrap_or(0)
}
