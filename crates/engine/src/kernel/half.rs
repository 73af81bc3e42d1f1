//! Conversion between `f32` and IEEE 754 half precision, which are stored as their bits.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "processor intrinsics for half precision")
)]

/// Rounds to the nearest half, ties to even; numbers from 65520 on become infinite.
pub(crate) fn from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & 0x7fff_ffff);
    let half = if magnitude > f32::INFINITY.to_bits() {
        // NaN stays NaN.
        0x7e00 | (magnitude >> 13) as u16 & 0x03ff
    } else if magnitude >= 0x4780_0000 {
        // 2^16 and more, and infinity.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14: adding a half moves the last bit of a subnormal half to the last bit of the sum, which is rounded.
        (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits()) as u16
    } else {
        // The exponent bias changes from 127 to 15; a carry of the rounding may reach the exponent.
        let odd = magnitude >> 13 & 1;
        ((magnitude - (112 << 23) + 0x0fff + odd) >> 13) as u16
    };
    sign | half
}

/// Returns the number that the bits of a half stand for.
pub(crate) fn to_f32(half: u16) -> f32 {
    let (sign, magnitude) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff) << 13);
    // Exponents below the bias of the halves, subnormals included, are exact in the product.
    let finite = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let bits = if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { finite.to_bits() };
    f32::from_bits(sign | bits)
}

/// Converts halves to `f32`.
///
/// # Panics
/// If the slices have different lengths.
pub(crate) fn expand(from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "slices of different lengths");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if super::level().as_avx2().is_some() {
        // SAFETY: the level includes F16C, and the slices have the same length.
        return unsafe { x86::expand(from, to) };
    }
    to.iter_mut().zip(from).for_each(|(to, &half)| *to = to_f32(half));
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};

    /// # Safety
    /// The processor has F16C; the slices have the same length.
    #[target_feature(enable = "avx,f16c")]
    pub unsafe fn expand(from: &[u16], to: &mut [f32]) {
        let (halves, rest) = from.as_chunks::<8>();
        let (floats, last) = to.as_chunks_mut::<8>();
        for (half, float) in halves.iter().zip(floats) {
            // SAFETY: eight halves are read and eight numbers written; the accesses are unaligned.
            unsafe {
                _mm256_storeu_ps(float.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(half.as_ptr().cast())))
            };
        }
        last.iter_mut().zip(rest).for_each(|(to, &half)| *to = super::to_f32(half));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::on_every_level;

    /// The value of a half by its definition.
    fn definition(half: u16) -> f64 {
        let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        if half & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_half_is_converted_and_back() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        on_every_level(|| {
            let mut floats = vec![0.0; all.len()];
            expand(&all, &mut floats);
            for (&half, &float) in all.iter().zip(&floats) {
                let right = definition(half);
                assert!(f64::from(float) == right || float.is_nan() && right.is_nan(), "{half:#x}: {float}");
                assert!(to_f32(half).to_bits() == float.to_bits() || float.is_nan(), "{half:#x}");
                assert!(from_f32(float) == half || float.is_nan(), "{half:#x}");
            }
        });
    }

    #[test]
    fn numbers_between_halves_are_rounded_to_the_nearest_ties_to_even() {
        for half in 0..0x7c00u16 {
            let (low, high) = (definition(half), if half == 0x7bff { 65536.0 } else { definition(half + 1) });
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(from_f32(middle), half + (half & 1), "{half:#x}");
            assert_eq!(from_f32(middle.next_down()), half, "{half:#x}");
            assert_eq!(from_f32(-middle.next_up()), (half + 1) | 0x8000, "{half:#x}");
        }
        assert_eq!((from_f32(1e30), from_f32(f32::NEG_INFINITY)), (0x7c00, 0xfc00));
        assert!(to_f32(from_f32(f32::NAN)).is_nan());
    }
}
