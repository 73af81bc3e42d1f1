//! Elementary functions and activations on SIMD vectors, in `f32` and `f64`.
//!
//! Each function is written once over the vector type and the constants of [`Real`], without branches: it reduces the
//! argument to a small interval and evaluates a polynomial there. With AVX-512, exp and gelu look up powers of two in
//! registers. The polynomials are our own minimax fits; `real.rs` has their coefficients, intervals and errors.
//!
//! The documentation of each function states its largest error in ULP (units in the last place of the result). `cargo run
//! --release -p gatework-engine --example exhaustive` measures the errors in `f32` at all 2^32 arguments. The last bit may
//! differ between instruction sets, because not all have fused multiply-add and exp, gelu and its derivative have two
//! implementations; the bounds hold for all of them, except that NaN is not propagated by the scalar `Fallback` level of
//! `fearless_simd`, which x86-64 never selects.
//!
//! Unless stated otherwise, NaN gives NaN, 0 and -0 give the value of the formula, and the bounds include subnormal
//! arguments and results.
//!
//! ```
//! use fearless_simd::{Level, dispatch, prelude::*};
//! use gatework_engine::kernel::math;
//!
//! #[inline(always)]
//! fn first_power<S: Simd>(simd: S, x: f32) -> f32 {
//!     math::exp::<S, f32>(simd, S::f32s::splat(simd, x))[0]
//! }
//! assert_eq!(dispatch!(Level::new(), simd => first_power(simd, 0.0)), 1.0);
//! ```
//!
//! | module | functions |
//! |---|---|
//! | `exponential` | exp, expm1, sigmoid, tanh, silu |
//! | `logarithm` | log, log1p, softplus |
//! | `trigonometric` | sin, cos |
//! | `gaussian` | erf, gelu, gelu_derivative, gelu_tanh |

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod avx512;
mod exponential;
mod gaussian;
mod logarithm;
mod payne_hanek;
mod real;
pub mod reference;
mod trigonometric;

use fearless_simd::{Select, Simd, SimdFloatElement, prelude::*};

use crate::dtype::{bits, from_bits};
pub use exponential::{exp, expm1, sigmoid, silu, tanh};
pub use gaussian::{erf, gelu, gelu_derivative, gelu_tanh};
pub use logarithm::{log, log1p, softplus};
pub use payne_hanek::ReducedAngle;
pub use real::Real;
pub use trigonometric::{cos, sin};

/// Vector of `T` with the width of instruction set `S`.
pub type Vector<S, T> = <T as SimdFloatElement>::Native<S>;
/// Vector of unsigned integers of the same width.
type Bits<S, T> = <Vector<S, T> as SimdFloat<S>>::Bits;

/// Returns a vector with all lanes equal.
#[inline(always)]
fn splat<S: Simd, T: Real>(simd: S, value: T) -> Vector<S, T> {
    Vector::<S, T>::splat(simd, value)
}

/// Returns the smaller of x and a bound; NaN stays NaN.
#[inline(always)]
fn at_most<S: Simd, T: Real>(x: Vector<S, T>, most: T) -> Vector<S, T> {
    let most = splat::<S, T>(x.token(), most);
    // The x86 instructions return their second operand if one is NaN. fearless_simd 1.2 keeps the order of operands; tests
    // with NaN on every instruction set detect if another version does not.
    if cfg!(target_arch = "x86_64") { most.min(x) } else { x.simd_gt(most).select(most, x) }
}

/// Returns the larger of x and a bound; NaN stays NaN.
#[inline(always)]
fn at_least<S: Simd, T: Real>(x: Vector<S, T>, least: T) -> Vector<S, T> {
    let least = splat::<S, T>(x.token(), least);
    if cfg!(target_arch = "x86_64") { least.max(x) } else { x.simd_lt(least).select(least, x) }
}

/// Evaluates a polynomial by Horner's rule; the coefficients begin with the constant term.
#[inline(always)]
fn polynomial<S: Simd, T: Real>(simd: S, x: Vector<S, T>, coefficients: &[T]) -> Vector<S, T> {
    let mut sum = splat::<S, T>(simd, T::ZERO);
    for (i, &c) in coefficients.iter().rev().enumerate() {
        let c = splat::<S, T>(simd, c);
        sum = if i == 0 { c } else { sum.mul_add(x, c) };
    }
    sum
}

/// `1 / sqrt(x)`: a square root and a division, each rounded correctly. Error at most 1.5 ULP. 0 gives infinity, -0
/// minus infinity, infinity 0, negative numbers NaN.
#[inline(always)]
pub fn rsqrt<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    splat::<S, T>(simd, T::ONE) / x.sqrt()
}

/// `1 / x`, rounded correctly. 0 gives infinity, -0 minus infinity.
#[inline(always)]
pub fn recip<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    splat::<S, T>(simd, T::ONE) / x
}
