//! `x 2^n` in one instruction, where the processor has one: AVX-512 does. It rounds as a product with powers of two does, and
//! takes the place of six operations that make these powers and multiply with them.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "an instruction without a safe name")
)]

use fearless_simd::Simd;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use fearless_simd::prelude::*;

use super::{Real, Vector};

/// `x 2^n` for whole numbers n; `None` if there is no instruction for it.
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
}
