//! Run-time selection of the SIMD instruction set, shared by every crate that has kernels.
//!
//! A kernel is written once, generic over [`Simd`], and instantiated for SSE2, AVX2 and AVX-512 on x86-64 (NEON on
//! AArch64). `dispatch!(level(), simd => body)` runs `body` with the widest instruction set of the processor.

#[doc(hidden)]
pub use fearless_simd;
pub use fearless_simd::{Level, Simd};

/// Runs an expression with the vectors of the given [`Level`](simd::Level), compiled for its instruction set.
///
/// SSE4.2 without AVX2 runs the SSE2 code: such processors predate 2015, and each instantiation costs compile time.
#[macro_export]
#[doc(hidden)]
macro_rules! dispatch {
    ($level:expr, $simd:pat => $body:expr) => {{
        // One instantiation instead of three: a third of the compile time.
        #[cfg(all(target_arch = "x86_64", gatework_simd = "avx2"))]
        match $level.as_avx2().or_else(|| $crate::simd::Level::new().as_avx2()) {
            Some(token) => $crate::with_vectors!(token, $simd => $body),
            None => unimplemented!("this build is for processors with AVX2 only"),
        }
        #[cfg(all(target_arch = "x86_64", not(gatework_simd = "avx2")))]
        match $level {
            $crate::simd::Level::Avx512(token) => $crate::with_vectors!(token, $simd => $body),
            $crate::simd::Level::Avx2(token) => $crate::with_vectors!(token, $simd => $body),
            lower => match lower.as_sse2() {
                Some(token) => $crate::simd::outlined(|| $crate::with_vectors!(token, $simd => $body)),
                None => unreachable!("SSE2 is part of x86-64"),
            },
        }
        #[cfg(not(target_arch = "x86_64"))]
        $crate::simd::fearless_simd::dispatch!($level, $simd => $body)
    }};
}

/// Runs an expression with the vectors of one instruction set.
#[macro_export]
#[doc(hidden)]
macro_rules! with_vectors {
    ($token:expr, $simd:pat => $body:expr) => {{
        let token = $token;
        let $simd = token;
        $crate::simd::Simd::vectorize(
            token,
            #[inline(always)]
            || $body,
        )
    }};
}

// After the macros, which it uses.
pub mod transpose;

/// Calls a function without inlining it. SSE2 is part of the baseline, so its code could be inlined into the dispatching
/// function and would add register pressure and stack space to the other paths.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn outlined<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Returns the widest instruction set of this processor. Built with `RUSTFLAGS='--cfg gatework_simd="avx2"'` (or
/// `"sse2"`), it returns the named one, so that its accuracy and speed can be measured. A build for AVX2 has no other
/// kernels, and takes a third of the time to compile.
#[inline(always)]
pub fn level() -> Level {
    #[cfg(any(test, feature = "testing"))]
    if let Some(level) = testing::LEVEL.get() {
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

/// Returns the name of the instruction set that the kernels use on this machine.
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

/// Overrides the instruction set in tests, so that the kernels of every supported one are tested.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::cell::Cell;

    use super::Level;

    thread_local! {
        /// The instruction set that this thread uses instead of the widest.
        pub static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// Runs `test` with every instruction set of this machine.
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

    /// Returns the configuration of a property test with this many cases. Miri is some thousand times slower and has no
    /// files: it gets two cases.
    #[cfg(test)]
    pub fn cases(count: u32) -> proptest::test_runner::Config {
        use proptest::test_runner::Config;
        if cfg!(miri) {
            Config { failure_persistence: None, ..Config::with_cases(2) }
        } else {
            Config::with_cases(count)
        }
    }
}
