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
//! | [`gates`] | soft gate networks, forward and backward, 32 lanes at a time |
//! | [`int8`] | matrix multiplication of quantised weights and activations |
//! | [`math`] | elementary functions and activations on SIMD vectors |
//! | [`matmul`] | matrix multiplication (GEMM) |
//! | `norm` | layer normalisation, forward and backward |
//! | [`optim`] | fused optimiser steps |
//! | [`random`] | counter-based random numbers and dropout masks |
//! | `recurrent` | GRU and LSTM over time, forward and backward |
//! | [`transpose`] | cells x channels to channels x cells and back |

/// Evaluates an expression with the vectors of an instruction set, compiled for it.
///
/// SSE4.2 alone runs the code of SSE2: processors without AVX2 are older than 2015, and every version of every kernel has
/// to be compiled.
macro_rules! dispatch {
    ($level:expr, $simd:pat => $body:expr) => {{
        #[cfg(target_arch = "x86_64")]
        match $level {
            fearless_simd::Level::Avx512(token) => $crate::kernel::with_vectors!(token, $simd => $body),
            fearless_simd::Level::Avx2(token) => $crate::kernel::with_vectors!(token, $simd => $body),
            lower => match lower.as_sse2() {
                Some(token) => $crate::kernel::apart(|| $crate::kernel::with_vectors!(token, $simd => $body)),
                None => unreachable!("SSE2 is part of x86-64"),
            },
        }
        #[cfg(not(target_arch = "x86_64"))]
        fearless_simd::dispatch!($level, $simd => $body)
    }};
}
pub(crate) use dispatch;

/// Evaluates an expression with the vectors of one instruction set.
#[cfg(target_arch = "x86_64")]
macro_rules! with_vectors {
    ($token:expr, $simd:pat => $body:expr) => {{
        let token = $token;
        let $simd = token;
        fearless_simd::Simd::vectorize(
            token,
            #[inline(always)]
            || $body,
        )
    }};
}
#[cfg(target_arch = "x86_64")]
pub(crate) use with_vectors;

/// Calls a function that must not become part of its caller: the code for SSE2, which every function could hold, would
/// make all others wait for its registers and its place on the stack.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
pub(crate) fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

pub(crate) mod attention;
pub mod gates;
pub mod int8;
pub mod math;
pub mod matmul;
pub(crate) mod norm;
pub mod optim;
pub mod random;
pub(crate) mod recurrent;
mod shared;
pub mod transpose;

use fearless_simd::Level;

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

/// The instruction set to use: the best there is. Built with `RUSTFLAGS='--cfg gatework_simd="avx2"'` (or `"sse2"`), the
/// kernels of this crate use a lesser one, so that its errors and its speed can be measured.
#[inline(always)]
pub(crate) fn level() -> Level {
    #[cfg(test)]
    if let Some(level) = tests::LEVEL.get() {
        return level;
    }
    #[cfg(target_arch = "x86_64")]
    if cfg!(gatework_simd = "avx2")
        && let Some(avx2) = Level::new().as_avx2()
    {
        return Level::Avx2(avx2);
    }
    #[cfg(target_arch = "x86_64")]
    if cfg!(gatework_simd = "sse2")
        && let Some(sse2) = Level::new().as_sse2()
    {
        return Level::Sse2(sse2);
    }
    Level::new()
}

/// Name of the instruction set that the kernels use on this machine, as benchmarks report it.
pub fn simd_name() -> &'static str {
    let level = level();
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        if level.as_avx512().is_some() {
            return "avx512";
        }
        if level.as_avx2().is_some() {
            return "avx2";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if level.as_neon().is_some() {
        return "neon";
    }
    if level.is_fallback() { "scalar" } else { "sse2" }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use proptest::test_runner::Config;

    use super::*;

    /// How a property is tried: so many times, or twice under Miri, which is some thousand times slower and has no files.
    pub fn cases(count: u32) -> Config {
        if cfg!(miri) {
            Config { failure_persistence: None, ..Config::with_cases(2) }
        } else {
            Config::with_cases(count)
        }
    }

    thread_local! {
        /// The instruction set that tests on this thread ask for.
        pub static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// Runs `test` on every instruction set of this machine.
    pub fn on_every_level(test: impl Fn()) {
        let mut levels = vec![Level::new()];
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        {
            levels.extend(Level::new().as_sse2().map(Level::Sse2));
            levels.extend(Level::new().as_avx2().map(Level::Avx2));
        }
        for level in levels {
            LEVEL.set(Some(level));
            test();
        }
        LEVEL.set(None);
    }
}
