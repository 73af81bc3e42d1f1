//! The kernels: written once over a vector type, compiled for every instruction set, chosen at run time.
//!
//! A plain `cargo build --release` carries SSE2, AVX2 and AVX-512 versions of each kernel on x86-64 (NEON on AArch64);
//! the first call looks at the processor and takes the widest. Vectors come from `fearless_simd`. `unsafe` code is found in
//! products, attention, norms and recurrent cells (results that
//! several threads write), in `shared` (memory that pieces of a loop share), in [`int8`], in `math::scale` and here (instructions that the
//! vectors do not have). Attention, norms, recurrent cells and `shared` rely on the plan of a program to keep what they read and what they
//! write apart, so only programs can call them.
//!
//! | module | what it does |
//! |---|---|
//! | `attention` | attention of many heads, forward and backward |
//! | [`half`] | weights stored in 16 bits |
//! | [`int8`] | products of quantised weights and activations |
//! | [`math`] | exp, log, sin, tanh and the like, a vector at a time |
//! | [`matmul`] | the matrix product |
//! | `norm` | layer norm, forward and backward |
//! | [`optim`] | optimiser steps, one pass over memory each |
//! | [`random`] | random bits and the masks of dropout |
//! | `recurrent` | GRU and LSTM over time, forward and backward |

pub(crate) mod attention;
pub mod half;
pub mod int8;
pub mod math;
pub mod matmul;
pub(crate) mod norm;
pub mod optim;
pub mod random;
pub(crate) mod recurrent;
mod shared;

use fearless_simd::Level;

pub(crate) use crate::simd::level;
pub use crate::simd::simd_name;
#[cfg(test)]
pub(crate) use crate::simd::testing as tests;
pub(crate) use shared::Divided;

/// Asks for one cache line, wherever it is. Where the processor cannot be asked, nothing happens.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an address is handed to the processor"))]
pub(crate) fn prefetch_line<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Copies a vector of some instruction set to memory past the caches, where that is possible. Other threads may see it after
/// [`settle_streams`].
///
/// # Panics
/// If it has no multiple of 16 bytes, or `to` does not begin with a cache line or a multiple of the vector after it.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an instruction without a safe name"))]
pub(crate) fn stream<T: Copy>(level: Level, from: &[T], to: &mut [T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64 as arch;
        let (bytes, to) = (size_of_val(from), &mut to[..from.len()]);
        let at_once = match level {
            Level::Avx512(_) if bytes == 64 => 64,
            Level::Avx2(_) if bytes == 32 => 32,
            _ => 16,
        };
        let is_aligned = to.as_ptr().addr().is_multiple_of(at_once);
        assert!(bytes.is_multiple_of(at_once) && is_aligned, "whole parts of lines");
        let (from, to) = (from.as_ptr().cast::<u8>(), to.as_mut_ptr().cast::<u8>());
        // SAFETY: both have as many bytes, `to` is aligned, and the processor has the instructions of the level.
        unsafe {
            match at_once {
                64 => arch::_mm512_stream_si512(to.cast(), arch::_mm512_loadu_si512(from.cast())),
                32 => arch::_mm256_stream_si256(to.cast(), arch::_mm256_loadu_si256(from.cast())),
                _ => {
                    for i in (0..bytes).step_by(16) {
                        arch::_mm_stream_si128(to.add(i).cast(), arch::_mm_loadu_si128(from.add(i).cast()));
                    }
                }
            }
        }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        let _ = level;
        to[..from.len()].copy_from_slice(from);
    }
}

/// Waits until what was streamed by this thread can be seen by others.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an instruction without a safe name"))]
pub(crate) fn settle_streams() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it orders stores, and does nothing else.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
