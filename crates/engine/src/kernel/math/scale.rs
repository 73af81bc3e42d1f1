//! `x 2^n` in one instruction, where the processor has one: AVX-512 does. It rounds as a product with powers of two does, and
//! takes the place of six operations that make these powers and multiply with them.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "an instruction without a safe name")
)]

use fearless_simd::{Simd, prelude::*};

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
