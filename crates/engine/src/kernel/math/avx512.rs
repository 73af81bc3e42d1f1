//! Powers of two with AVX-512. `vscalef` multiplies with 2^n and rounds like a product with powers of two, and replaces six
//! operations that compute these powers and multiply with them. `vperm` looks up numbers in a table of one or two
//! registers: the powers 2^(j/16) (2^(j/8) in f64) or 2^(j/32), with which a polynomial of low degree is enough.

#![cfg_attr(all(target_arch = "x86_64", not(miri)), expect(unsafe_code, reason = "processor intrinsics"))]

use fearless_simd::Simd;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use fearless_simd::prelude::*;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::real::EXP2_TABLE_32;
use super::{Real, Vector};

/// Returns `x 2^floor(n)`, or `None` without AVX-512.
#[inline(always)]
pub(super) fn scale<S: Simd, T: Real>(simd: S, x: Vector<S, T>, n: Vector<S, T>) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level() {
        use std::arch::x86_64 as arch;
        let mut out = x;
        let (to, n) = (out.as_mut_slice(), n.as_slice());
        assert!(size_of_val(to) == 64 && size_of_val(n) == 64, "not a vector of 512 bits");
        let (to, n) = (to.as_mut_ptr(), n.as_ptr());
        // SAFETY: the level proves AVX-512; both pointers refer to 64 bytes of one of two types.
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

/// Looks up numbers in a table of the size of a vector, or returns `None` without AVX-512. The index is in the lowest bits
/// of `place`.
#[inline(always)]
pub(super) fn lookup<S: Simd, T: Real>(
    simd: S,
    table: &'static [T],
    place: Vector<S, T>,
) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level() {
        use std::arch::x86_64 as arch;
        let mut out = place;
        let to = out.as_mut_slice();
        assert!(size_of_val(to) == 64 && size_of_val(table) == 64, "not a vector of 512 bits");
        let (to, table) = (to.as_mut_ptr(), table.as_ptr());
        // SAFETY: the level proves AVX-512; both pointers refer to 64 bytes of one of two types. The instruction ignores
        // the bits of an index beyond the table.
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

/// The bits of 2^(j/32), without the bias of the exponent, minus `j << 18`. With an integer n in the bits above j, the sum
/// with `(32 n + j) << 18` has the exponent n.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const OFFSETS: [u32; 32] = {
    let mut offsets = [0; 32];
    let mut j = 0;
    while j < 32 {
        offsets[j] = EXP2_TABLE_32[j].to_bits() - 1f32.to_bits();
        offsets[j] = offsets[j].wrapping_sub((j as u32) << 18);
        j += 1;
    }
    offsets
};

/// Returns 2^n for f32, where n plus the bias of the exponent is in the lowest bits of `place`, in 32nds; `None` without
/// AVX-512, or for another type.
#[inline(always)]
pub(super) fn exp2_of_32nds<S: Simd, T: Real>(simd: S, place: Vector<S, T>) -> Option<Vector<S, T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let fearless_simd::Level::Avx512(_) = simd.level()
        && size_of::<T>() == 4
    {
        use std::arch::x86_64 as arch;
        let mut out = place;
        let to = out.as_mut_slice();
        assert!(size_of_val(to) == 64, "not a vector of 512 bits");
        let to = to.as_mut_ptr();
        // SAFETY: the level proves AVX-512, and the pointer refers to 64 bytes. The instruction ignores the bits of an
        // index beyond the table.
        unsafe {
            let place = arch::_mm512_loadu_si512(to.cast());
            let [low, high] = [0, 16].map(|first| arch::_mm512_loadu_si512(OFFSETS[first..].as_ptr().cast()));
            let offset = arch::_mm512_permutex2var_epi32(low, place, high);
            let power = arch::_mm512_add_epi32(arch::_mm512_slli_epi32::<18>(place), offset);
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

    /// Returns the result of the instruction for a splatted argument, if the processor has it.
    #[inline(always)]
    fn scaled<S: Simd, T: Real>(simd: S, x: T, n: f64) -> Option<T> {
        let [x, n] = [x, T::from_f64(n)].map(|x| Vector::<S, T>::splat(simd, x));
        scale::<S, T>(simd, x, n).map(|scaled| scaled.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn scaling_rounds_like_products_with_powers_of_two() {
        let fractions = (0..2000).map(|i| 0.7 + f64::from(i) * 0.000_361_7);
        let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0];
        for x in fractions.chain(wild) {
            let (narrow, wide) = (x as f32, x);
            for n in -170..=135 {
                // Exact in f64, so it is rounded once.
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
        lookup::<S, T>(simd, T::EXP2_TABLE, place).map(|found| found.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn the_index_of_a_lookup_is_in_the_lowest_bits() {
        for j in 0..16u8 {
            let place = f32::TABLE_SHIFTER + f32::from(j) / 16.0 - 5.0;
            let ours = dispatch!(Level::new(), simd => found(simd, place));
            assert!(ours.is_none_or(|ours| ours == f32::EXP2_TABLE[usize::from(j)]), "{j}: {ours:?}");
        }
        for j in 0..8u8 {
            let place = f64::TABLE_SHIFTER + f64::from(j) / 8.0 - 5.0;
            let ours = dispatch!(Level::new(), simd => found(simd, place));
            assert!(ours.is_none_or(|ours| ours == f64::EXP2_TABLE[usize::from(j)]), "{j}: {ours:?}");
        }
    }

    #[inline(always)]
    fn powered<S: Simd, T: Real>(simd: S, place: T) -> Option<T> {
        let place = Vector::<S, T>::splat(simd, place);
        exp2_of_32nds::<S, T>(simd, place).map(|power| power.as_slice()[Vector::<S, T>::LEN - 1])
    }

    #[test]
    fn powers_of_32nds_equal_the_products_of_table_and_power_of_two() {
        for n in -126 * 32..128 * 32_i32 {
            // The shifter adds 40, so that small powers are normal.
            let place = f32::GAUSSIAN_TABLE_SHIFTER - 40.0 + n as f32 / 32.0;
            let right = EXP2_TABLE_32[n.rem_euclid(32) as usize] * 2f32.powi(n.div_euclid(32));
            let ours = dispatch!(Level::new(), simd => powered(simd, place));
            assert!(ours.is_none_or(|ours| ours == right), "{n}: {ours:?} for {right}");
        }
        assert_eq!(dispatch!(Level::new(), simd => powered(simd, 1f64)), None);
    }

    #[test]
    fn the_tables_are_rounded_correctly() {
        let narrow = |j: usize, n: f64| 2f64.powf(j as f64 / n) as f32;
        f32::EXP2_TABLE.iter().enumerate().for_each(|(j, &x)| assert_eq!(x, narrow(j, 16.0)));
        EXP2_TABLE_32.iter().enumerate().for_each(|(j, &x)| assert_eq!(x, narrow(j, 32.0)));
        for (j, &x) in f64::EXP2_TABLE.iter().enumerate() {
            // x^8 in double-double arithmetic is 2^j (1 + 8 e) with the relative error e of x.
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
