//! SIMD kernels, written once over a vector type, compiled for every instruction set, and selected at run time.
//!
//! A plain `cargo build --release` contains SSE2, AVX2 and AVX-512 versions of each kernel on x86-64 (NEON on AArch64); the
//! widest one that the processor supports is used. The vector types come from `fearless_simd`.
//!
//! Most of the `unsafe` code of this crate is in these modules: raw pointers in micro-kernels, memory that threads share
//! (`shared`), and intrinsics that `fearless_simd` does not have. `attention`, `norm`, `recurrent` and `shared` rely on the
//! memory plan of a program, which guarantees that operands and results are disjoint, so they are private.
//!
//! | module | contents |
//! |---|---|
//! | `attention` | multi-head attention, forward and backward |
//! | `half` | conversion of half-precision numbers |
//! | [`int8`] | matrix multiplication of quantised weights and activations |
//! | [`math`] | elementary functions and activations on SIMD vectors |
//! | [`matmul`] | matrix multiplication (GEMM) |
//! | `norm` | layer normalisation, forward and backward |
//! | [`optim`] | fused optimiser steps |
//! | [`random`] | counter-based random numbers and dropout masks |
//! | `recurrent` | GRU and LSTM over time, forward and backward |

pub(crate) mod attention;
mod half;
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
pub(crate) use shared::SharedSlice;

/// Prefetches the cache line of an address into the first-level cache. The address may be invalid. Does nothing on targets
/// without a stable prefetch intrinsic.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a processor intrinsic"))]
pub(crate) fn prefetch_line<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Stores a vector with non-temporal instructions, which bypass the caches; with ordinary ones on targets that have none.
/// The stores are visible to other threads only after [`store_fence`].
///
/// # Panics
/// If the size of the vector is not a multiple of 16 bytes, or `to` is not aligned to the size of the stores (16, 32 or 64
/// bytes).
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a processor intrinsic"))]
pub(crate) fn store_non_temporal<T: Copy>(level: Level, from: &[T], to: &mut [T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64 as arch;
        let (bytes, to) = (size_of_val(from), &mut to[..from.len()]);
        let width = match level {
            Level::Avx512(_) if bytes == 64 => 64,
            Level::Avx2(_) if bytes == 32 => 32,
            _ => 16,
        };
        let is_aligned = to.as_ptr().addr().is_multiple_of(width);
        assert!(bytes.is_multiple_of(width) && is_aligned, "a non-temporal store is not aligned");
        let (from, to) = (from.as_ptr().cast::<u8>(), to.as_mut_ptr().cast::<u8>());
        // SAFETY: both slices have `bytes` bytes, `to` is aligned, and the processor supports the level.
        unsafe {
            match width {
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

/// Makes earlier non-temporal stores of this thread visible to other threads before any later store.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a processor intrinsic"))]
pub(crate) fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence accesses no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
