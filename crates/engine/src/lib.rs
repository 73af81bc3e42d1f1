//! The numeric engine of Gatework: SIMD kernels that choose their instruction set at run time, and the
//! deterministic split of work between threads.
//!
//! [`kernel`] holds everything that is fast; each fast routine has a slow, obvious twin that the tests
//! compare it with.

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

pub mod buffer;
pub mod dtype;
pub mod kernel;
pub mod parallel;
pub mod vector;
