//! The numeric engine of Gatework: SIMD kernels that choose their instruction set at run time, and the
//! deterministic split of work between threads.
//!
//! [`kernel`] holds everything that is fast; each fast routine has a slow, obvious twin that the tests
//! compare it with.

pub mod kernel;
pub mod parallel;
