//! Conversions between `f32` and 16-bit floating-point formats.
//!
//! 16-bit numbers are a storage format: they are widened before anything is computed with them. The conversions are
//! branch-free integer code on one number; the compiler vectorises the loops for the instruction set that they are
//! dispatched to, except that processors with F16C widen `f16` by an instruction. The reference implementation is the
//! crate `half`.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "processor intrinsics for half precision")
)]

use std::fmt;

use crate::kernel::level;

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Half {
    /// The upper half of an `f32`: 8 significant bits, the range of `f32`.
    Bf16,
    /// IEEE 754 binary16: 11 significant bits, at most 65,504.
    F16,
}

impl Half {
    /// Both formats.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::F16];

    /// Bytes of a number.
    pub const BYTES: usize = size_of::<u16>();

    /// Returns the name: `bf16` or `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Rounds a number to the nearest of the format, ties to even; numbers beyond the largest one become infinite.
    ///
    /// ```
    /// use gatework_engine::kernel::half::Half;
    ///
    /// assert_eq!(Half::Bf16.round(1.0 + 1.0 / 256.0), 1.0);
    /// assert_eq!(Half::F16.round(65_520.0), f64::INFINITY);
    /// ```
    pub fn round(self, x: f64) -> f64 {
        // Significant bits, and the exponent of the smallest subnormal number.
        let (digits, least) = match self {
            Self::Bf16 => (8, -133),
            Self::F16 => (11, -24),
        };
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let unit = 2f64.powi((exponent - digits + 1).max(least));
        let rounded = (x / unit).round_ties_even() * unit;
        let limit = match self {
            Self::Bf16 => 2f64.powi(128),
            Self::F16 => 65_536.0,
        };
        if rounded.abs() < limit { rounded } else { f64::INFINITY.copysign(x) }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rounds to the bits of a 16-bit format: to nearest, ties to even. NaN stay NaN.
///
/// # Panics
/// If the slices differ in length.
pub fn narrow(format: Half, from: &[f32], to: &mut [u16]) {
    assert_eq!(from.len(), to.len(), "slices of different lengths");
    match format {
        Half::Bf16 => dispatch!(level(), _ => map(from, to, narrow_bf16)),
        Half::F16 => dispatch!(level(), _ => map(from, to, narrow_f16)),
    }
}

/// Converts from the bits of a 16-bit format; exact.
///
/// # Panics
/// If the slices differ in length.
pub fn widen(format: Half, from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "slices of different lengths");
    match format {
        Half::Bf16 => dispatch!(level(), _ => map(from, to, widen_bf16)),
        Half::F16 => widen_f16_rows(from, &[0], from.len(), to),
    }
}

/// Converts rows of a matrix of `f16` to the same places of another one: `width` elements from each of the offsets on.
///
/// # Panics
/// If a row is out of bounds.
pub(crate) fn widen_f16_rows(from: &[u16], offsets: &[u32], width: usize, to: &mut [f32]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if level().as_avx512().is_some() {
            // SAFETY: the processor has AVX-512.
            return unsafe { x86::widen_f16_rows_512(from, offsets, width, to) };
        }
        if level().as_avx2().is_some() {
            // SAFETY: the level includes F16C.
            return unsafe { x86::widen_f16_rows(from, offsets, width, to) };
        }
    }
    dispatch!(level(), _ => for_rows(from, offsets, width, to, |from, to| map(from, to, widen_f16)));
}

/// Applies a conversion to rows.
#[inline(always)]
fn for_rows(
    from: &[u16],
    offsets: &[u32],
    width: usize,
    to: &mut [f32],
    convert: impl Fn(&[u16], &mut [f32]),
) {
    for &offset in offsets {
        let offset = offset as usize;
        convert(&from[offset..][..width], &mut to[offset..][..width]);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_cvtph_ps, _mm256_loadu_si256, _mm256_storeu_ps, _mm512_cvtph_ps,
        _mm512_storeu_ps,
    };

    use super::for_rows;

    /// # Safety
    /// The processor has F16C.
    #[target_feature(enable = "avx,f16c")]
    pub unsafe fn widen_f16_rows(from: &[u16], offsets: &[u32], width: usize, to: &mut [f32]) {
        // SAFETY: guaranteed by the caller.
        for_rows(from, offsets, width, to, |from, to| unsafe { widen_f16(from, to) });
    }

    /// # Safety
    /// The processor has AVX-512F and F16C.
    #[target_feature(enable = "avx512f,f16c")]
    pub unsafe fn widen_f16_rows_512(from: &[u16], offsets: &[u32], width: usize, to: &mut [f32]) {
        for_rows(from, offsets, width, to, |from, to| {
            let (halves, rest) = from.as_chunks::<16>();
            let (floats, last) = to.as_chunks_mut::<16>();
            for (half, float) in halves.iter().zip(floats) {
                // SAFETY: sixteen halves are read and sixteen numbers written; the accesses are unaligned.
                unsafe {
                    let half = _mm256_loadu_si256(half.as_ptr().cast());
                    _mm512_storeu_ps(float.as_mut_ptr(), _mm512_cvtph_ps(half));
                }
            }
            // SAFETY: the processor has F16C.
            unsafe { widen_f16(rest, last) };
        });
    }

    /// # Safety
    /// The processor has F16C.
    #[inline]
    #[target_feature(enable = "avx,f16c")]
    unsafe fn widen_f16(from: &[u16], to: &mut [f32]) {
        let (halves, rest) = from.as_chunks::<8>();
        let (floats, last) = to.as_chunks_mut::<8>();
        for (half, float) in halves.iter().zip(floats) {
            // SAFETY: eight halves are read and eight numbers written; the accesses are unaligned.
            unsafe {
                _mm256_storeu_ps(float.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(half.as_ptr().cast())));
            }
        }
        last.iter_mut().zip(rest).for_each(|(to, &half)| *to = super::widen_f16(half));
    }
}

/// Rounds to the numbers of a 16-bit format, as [`narrow`] and [`widen`] do.
///
/// # Panics
/// If the slices differ in length.
pub fn round(format: Half, from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "slices of different lengths");
    match format {
        Half::Bf16 => dispatch!(level(), _ => map(from, to, round_bf16)),
        Half::F16 => dispatch!(level(), _ => map(from, to, round_f16)),
    }
}

#[inline(always)]
fn map<T: Copy, U>(from: &[T], to: &mut [U], convert: impl Fn(T) -> U) {
    to.iter_mut().zip(from).for_each(
        #[inline(always)]
        |(to, &from)| *to = convert(from),
    );
}

/// The bits that are cut off round the rest up if they exceed one half, or equal it and the rest is odd.
#[inline(always)]
fn narrow_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // The carry must not turn NaN into infinity or zero.
    let nan = bits >> 16 | 0x40;
    (if x.is_nan() { nan } else { rounded }) as u16
}

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn round_bf16(x: f32) -> f32 {
    widen_bf16(narrow_bf16(x))
}

#[inline(always)]
fn round_f16(x: f32) -> f32 {
    widen_f16(narrow_f16(x))
}

/// The exponent of an `f32` has this offset to that of the same number in `f16`.
const EXPONENT_OFFSET: u32 = (127 - 15) << 23;

/// Normal numbers round as in [`narrow_bf16`]. Adding 0.5 to a smaller number moves its subnormal `f16` bits to the end
/// of the significand, and the addition rounds.
#[inline(always)]
fn narrow_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let sign = bits >> 16 & 0x8000;
    let normal = magnitude.wrapping_sub(EXPONENT_OFFSET).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    let finite = if magnitude < EXPONENT_OFFSET + (1 << 23) { subnormal } else { normal };
    // From 2^16 on.
    let large = if magnitude > 0x7f80_0000 { nan } else { 0x7c00 };
    (sign | if magnitude >= (127 + 16) << 23 { large } else { finite }) as u16
}

/// Subnormal numbers are normalised by a subtraction of floating-point numbers.
#[inline(always)]
fn widen_f16(half: u16) -> f32 {
    let half = u32::from(half);
    let magnitude = (half & 0x7fff) << 13;
    let exponent = magnitude & (0x7c00 << 13);
    let normal = magnitude + EXPONENT_OFFSET;
    let infinite = normal + EXPONENT_OFFSET;
    let smallest = EXPONENT_OFFSET + (1 << 23);
    let subnormal = (f32::from_bits(magnitude + smallest) - f32::from_bits(smallest)).to_bits();
    let finite = if exponent == 0 { subnormal } else { normal };
    let bits = if exponent == 0x7c00 << 13 { infinite } else { finite };
    f32::from_bits(bits | (half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use half::{bf16, f16};
    use proptest::prelude::*;

    /// The reference implementation of [`narrow`].
    fn to_bits(format: Half, x: f32) -> u16 {
        match format {
            Half::Bf16 => bf16::from_f32(x).to_bits(),
            Half::F16 => f16::from_f32(x).to_bits(),
        }
    }

    /// The reference implementation of [`widen`].
    fn from_bits(format: Half, bits: u16) -> f32 {
        match format {
            Half::Bf16 => bf16::from_bits(bits).to_f32(),
            Half::F16 => f16::from_bits(bits).to_f32(),
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    fn check_narrow(numbers: &[f32]) {
        for format in Half::ALL {
            let (mut bits, mut rounded) = (vec![0; numbers.len()], vec![0.0; numbers.len()]);
            narrow(format, numbers, &mut bits);
            round(format, numbers, &mut rounded);
            for ((&x, &bits), &rounded) in numbers.iter().zip(&bits).zip(&rounded) {
                let right = to_bits(format, x);
                assert_eq!(bits, right, "{format} of {x:e}, {:#x}", x.to_bits());
                assert!(same(rounded, from_bits(format, right)), "{format} of {x:e}: {rounded:e}");
                assert!(same(format.round(x.into()) as f32, rounded), "{format} of {x:e} in f64");
            }
        }
    }

    #[test]
    fn all_16_bit_patterns_are_widened() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        on_every_level(|| {
            for format in Half::ALL {
                let mut wide = vec![0.0; all.len()];
                widen(format, &all, &mut wide);
                for (&bits, &wide) in all.iter().zip(&wide) {
                    assert!(same(wide, from_bits(format, bits)), "{format} {bits:#x}: {wide:e}");
                }
            }
        });
    }

    #[test]
    fn rows_of_any_width_are_widened_in_place_and_nothing_else() {
        let from: Vec<u16> = (0..200u16).map(|i| i.wrapping_mul(331)).collect();
        on_every_level(|| {
            for width in [0, 1, 7, 8, 15, 16, 17, 33, 40] {
                let mut to = vec![-1.0; from.len()];
                widen_f16_rows(&from, &[0, 80, 160], width, &mut to);
                for (i, (&bits, &wide)) in from.iter().zip(&to).enumerate() {
                    let right = if i % 80 < width { from_bits(Half::F16, bits) } else { -1.0 };
                    assert!(same(wide, right), "{i} of rows of {width}: {wide:e}");
                }
            }
        });
    }

    /// The numbers of both formats, the midpoints between neighbours, and the numbers next to these: every place where the
    /// result changes.
    #[test]
    fn numbers_around_every_16_bit_pattern_and_midpoint_are_narrowed() {
        let step = if cfg!(miri) { 997 } else { 1 };
        let mut numbers: Vec<f32> = Vec::new();
        for bits in (0..=u16::MAX).step_by(step) {
            for format in Half::ALL {
                let (x, next) = (from_bits(format, bits), from_bits(format, bits.wrapping_add(1)));
                let middle = f64::from(x).midpoint(f64::from(next)) as f32;
                numbers.extend([x, x.next_down(), x.next_up(), middle, middle.next_down(), middle.next_up()]);
            }
        }
        on_every_level(|| check_narrow(&numbers));
    }

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn any_numbers_are_narrowed(bits in prop::collection::vec(any::<u32>(), 0..300)) {
            let numbers: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            on_every_level(|| check_narrow(&numbers));
        }
    }
}
