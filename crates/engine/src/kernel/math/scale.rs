//! Powers of two by single instructions, where the processor has them: AVX-512 does. One multiplies with 2^n and rounds as a
//! product with powers of two does, in place of six operations that make these powers and multiply with them. Another looks
//! up as many numbers as a register holds, or as two do: the powers 2^(j/16) (2^(j/8) in f64) or 2^(j/32), with which a short
//! polynomial is enough.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "an instruction without a safe name")
)]

use fearless_simd::Simd;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use fearless_simd::prelude::*;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::real::POWERS_OF_32NDS;
use super::{Real, Vector};

/// `x 2^floor(n)`; `None` if there is no instruction for it.
#[inline(always)]
pub(super) fn scale<S: Simd, T: Real>(simd: S, x: Vector<S, T>, n: Vector<S, T>) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level() {
        use std::arch::x86_64 as arch;
        let mut out = x;
        let (to, n) = (out.as_mut_slice(), n.as_slice());
        assert!(size_of_val(to) == 64 && size_of_val(n) == 64, "vectors of 512 bits");
        let (to, n) = (to.as_mut_ptr(), n.as_ptr());
        // SAFETY: the processor has AVX-512, as there is such a level; both are vectors of it, of one of two types.
        unsafe {
            if size_of::<T>() == 4 {
                let (x, n) = (arch::_mm512_loadu_ps(to.cast()), arch::_mm512_loadu_ps(n.cast()));
                arch::_mm512_storeu_ps(to.cast(), arch::_mm512_scalef_ps(x, n));
            } else {
                let (x, n) = (arch::_mm512_loadu_pd(to.cast()), arch::_mm512_loadu_pd(n.cast()));
                arch::_mm512_storeu_pd(to.cast(), arch::_mm512_scalef_pd(x, n));
            }
        }
        return Some(out);
    }
    let _ = (simd, x, n);
    None
}

/// The number of a table as large as a vector whose place is in the lowest bits; `None` if there is no instruction for it.
#[inline(always)]
pub(super) fn look_up<S: Simd, T: Real>(
    simd: S,
    table: &'static [T],
    place: Vector<S, T>,
) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level() {
        use std::arch::x86_64 as arch;
        let mut out = place;
        let to = out.as_mut_slice();
        assert!(size_of_val(to) == 64 && size_of_val(table) == 64, "vectors of 512 bits");
        let (to, table) = (to.as_mut_ptr(), table.as_ptr());
        // SAFETY: the processor has AVX-512, as there is such a level; both are vectors of it, of one of two types. Of a place
        // only the bits count that name one of the numbers.
        unsafe {
            let place = arch::_mm512_loadu_si512(to.cast());
            if size_of::<T>() == 4 {
                let table = arch::_mm512_loadu_ps(table.cast());
                arch::_mm512_storeu_ps(to.cast(), arch::_mm512_permutexvar_ps(place, table));
            } else {
                let table = arch::_mm512_loadu_pd(table.cast());
                arch::_mm512_storeu_pd(to.cast(), arch::_mm512_permutexvar_pd(place, table));
            }
        }
        return Some(out);
    }
    let _ = (simd, table, place);
    None
}

/// What is to be added to `j << 18` to have the bits of 2^(j/32) without the bias of the exponent. With n of 32 in front of j,
/// the sum has that exponent.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BENDS: [u32; 32] = {
    let mut bends = [0; 32];
    let mut j = 0;
    while j < 32 {
        bends[j] = POWERS_OF_32NDS[j].to_bits() - 1f32.to_bits();
        bends[j] = bends[j].wrapping_sub((j as u32) << 18);
        j += 1;
    }
    bends
};

/// 2^n for f32, where n plus the bias of the exponent is in the lowest bits of a place, in 32nds; `None` if there is no
/// instruction to look it up, or for another type.
#[inline(always)]
pub(super) fn power_of_32nds<S: Simd, T: Real>(simd: S, place: Vector<S, T>) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level()
        && size_of::<T>() == 4
    {
        use std::arch::x86_64 as arch;
        let mut out = place;
        let to = out.as_mut_slice();
        assert!(size_of_val(to) == 64, "a vector of 512 bits");
        let to = to.as_mut_ptr();
        // SAFETY: the processor has AVX-512, as there is such a level; this is a vector of it, of numbers of 32 bits. Of a place
        // only the bits count that name one of the 32 numbers.
        unsafe {
            let place = arch::_mm512_loadu_si512(to.cast());
            let [low, high] = [0, 16].map(|first| arch::_mm512_loadu_si512(BENDS[first..].as_ptr().cast()));
            let bend = arch::_mm512_permutex2var_epi32(low, place, high);
            let power = arch::_mm512_add_epi32(arch::_mm512_slli_epi32::<18>(place), bend);
            arch::_mm512_storeu_si512(to.cast(), power);
        }
        return Some(out);
    }
    let _ = (simd, place);
    None
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use fearless_simd::Level;

    use super::*;

    /// What the instruction gives for the same lane in all places, if there is one.
    #[inline(always)]
    fn scaled<S: Simd, T: Real>(simd: S, x: T, n: f64) -> Option<T> {
        let [x, n] = [x, T::from_f64(n)].map(|x| Vector::<S, T>::splat(simd, x));
        scale::<S, T>(simd, x, n).map(|scaled| scaled.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn the_instruction_rounds_as_products_with_powers_of_two_do() {
        let fractions = (0..2000).map(|i| 0.7 + f64::from(i) * 0.000_361_7);
        let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0];
        for x in fractions.chain(wild) {
            let (narrow, wide) = (x as f32, x);
            for n in -170..=135 {
                // Exact in 64 bits, so that it is rounded once.
                let right = (f64::from(narrow) * 2f64.powi(n)) as f32;
                let ours = dispatch!(Level::new(), simd => scaled(simd, narrow, n.into()));
                let same = ours
                    .is_none_or(|ours| ours.to_bits() == right.to_bits() || ours.is_nan() && right.is_nan());
                assert!(same, "{narrow} 2^{n}: {ours:?} for {right}");
            }
            for n in (-1150..=-960).chain(1000..=1030) {
                let half = n / 2;
                let right = wide * 2f64.powi(half) * 2f64.powi(n - half);
                let ours = dispatch!(Level::new(), simd => scaled(simd, wide, n.into()));
                let same = ours
                    .is_none_or(|ours| ours.to_bits() == right.to_bits() || ours.is_nan() && right.is_nan());
                assert!(same, "{wide} 2^{n}: {ours:?} for {right}");
            }
        }
    }

    #[inline(always)]
    fn found<S: Simd, T: Real>(simd: S, place: T) -> Option<T> {
        let place = Vector::<S, T>::splat(simd, place);
        look_up::<S, T>(simd, T::POWERS, place).map(|found| found.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn a_place_is_looked_up_by_its_lowest_bits() {
        for j in 0..16u8 {
            let place = f32::TABLE_SHIFTER + f32::from(j) / 16.0 - 5.0;
            let ours = dispatch!(Level::new(), simd => found(simd, place));
            assert!(ours.is_none_or(|ours| ours == f32::POWERS[usize::from(j)]), "{j}: {ours:?}");
        }
        for j in 0..8u8 {
            let place = f64::TABLE_SHIFTER + f64::from(j) / 8.0 - 5.0;
            let ours = dispatch!(Level::new(), simd => found(simd, place));
            assert!(ours.is_none_or(|ours| ours == f64::POWERS[usize::from(j)]), "{j}: {ours:?}");
        }
    }

    #[inline(always)]
    fn powered<S: Simd, T: Real>(simd: S, place: T) -> Option<T> {
        let place = Vector::<S, T>::splat(simd, place);
        power_of_32nds::<S, T>(simd, place).map(|power| power.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn powers_of_32nds_are_those_of_the_table_and_of_two() {
        for n in -126 * 32..128 * 32_i32 {
            // The shifter of `bell` adds 40, so that small powers have an exponent.
            let place = f32::BELL_NEAR_SHIFTER - 40.0 + n as f32 / 32.0;
            let right = POWERS_OF_32NDS[n.rem_euclid(32) as usize] * 2f32.powi(n.div_euclid(32));
            let ours = dispatch!(Level::new(), simd => powered(simd, place));
            assert!(ours.is_none_or(|ours| ours == right), "{n}: {ours:?} for {right}");
        }
        assert_eq!(dispatch!(Level::new(), simd => powered(simd, 1f64)), None);
    }

    #[test]
    fn the_tables_hold_rounded_powers() {
        let narrow = |j: usize, n: f64| 2f64.powf(j as f64 / n) as f32;
        f32::POWERS.iter().enumerate().for_each(|(j, &x)| assert_eq!(x, narrow(j, 16.0)));
        POWERS_OF_32NDS.iter().enumerate().for_each(|(j, &x)| assert_eq!(x, narrow(j, 32.0)));
        for (j, &x) in f64::POWERS.iter().enumerate() {
            // x^8 in twice the digits is 2^j times 1 + 8 times the relative error of x.
            let (mut power, mut rest) = (x, 0.0);
            for _ in 0..3 {
                let square = power * power;
                (power, rest) = (square, power.mul_add(power, -square) + 2.0 * power * rest);
            }
            let whole = f64::from(1u32 << j);
            let error = ((power - whole) + rest) / whole / 8.0 * x;
            assert!(error.abs() <= f64::EPSILON / 2.0 * 1.000_001, "{j}: {error}");
        }
    }
}
