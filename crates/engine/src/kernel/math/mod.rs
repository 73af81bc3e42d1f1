//! Vector maths: the functions of a real variable, a vector at a time, in `f32` and `f64`.
//!
//! Each is written once over the vector type and the constants of [`Real`], without branches: reduce the argument to a small
//! interval, evaluate a polynomial there, put the result together. (Where registers can be tables, exp and gelu use them as
//! such.) The polynomials are our own minimax fits; they stand beside the constants of [`Real`]. The comment of each function states its largest
//! error in ULP (units in the last place of the result); `docs/numerics.md` has what was measured, and where. The command
//! that measures `f32`, at all 2^32 arguments, is `cargo run --release -p gatework-engine --example exhaustive`.
//! Multiplications and additions fuse where the processor can, and exp, gelu and its slope have two forms, so the last bit may differ between
//! instruction sets; the bounds are meant for all, and tests try them on all. The scalar vectors of `fearless_simd`'s
//! `Fallback` are none of them on x86-64: what is said of NaN does not hold there.
//!
//! Where nothing else is said, NaN gives NaN, 0 and -0 give what the formula gives, and subnormal arguments and results
//! are exact to the same bounds.
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
//! | `gaussian` | erf, gelu and its slope, gelu_tanh |

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod exponential;
mod gaussian;
mod logarithm;
pub mod naive;
mod quarter;
mod real;
mod scale;
mod trigonometric;

use fearless_simd::{Select, Simd, SimdFloatElement, prelude::*};

use crate::dtype::{bits, from_bits};
pub use exponential::{exp, expm1, sigmoid, silu, tanh};
pub use gaussian::{erf, gelu, gelu_slope, gelu_tanh};
pub use logarithm::{log, log1p, softplus};
pub use quarter::Quarter;
pub use real::Real;
pub use trigonometric::{cos, sin};

/// The vector of `T` on instruction set `S`.
pub type Vector<S, T> = <T as SimdFloatElement>::Native<S>;
/// The same vector as unsigned integers.
type Bits<S, T> = <Vector<S, T> as SimdFloat<S>>::Bits;

/// All lanes the same.
#[inline(always)]
fn splat<S: Simd, T: Real>(simd: S, value: T) -> Vector<S, T> {
    Vector::<S, T>::splat(simd, value)
}

/// The smaller of x and a bound; NaN stays NaN.
#[inline(always)]
fn at_most<S: Simd, T: Real>(x: Vector<S, T>, most: T) -> Vector<S, T> {
    let most = splat::<S, T>(x.token(), most);
    // The instructions of x86 give their second operand where one is NaN; fearless_simd 1.2 keeps the order of operands, and tests
    // with NaN on every instruction set would notice if another version did not.
    if cfg!(target_arch = "x86_64") { most.min(x) } else { x.simd_gt(most).select(most, x) }
}

/// The larger of x and a bound; NaN stays NaN.
#[inline(always)]
fn at_least<S: Simd, T: Real>(x: Vector<S, T>, least: T) -> Vector<S, T> {
    let least = splat::<S, T>(x.token(), least);
    if cfg!(target_arch = "x86_64") { least.max(x) } else { x.simd_lt(least).select(least, x) }
}

/// The value of a polynomial whose coefficients begin with the constant one.
#[inline(always)]
fn polynomial<S: Simd, T: Real>(simd: S, x: Vector<S, T>, coefficients: &[T]) -> Vector<S, T> {
    let mut sum = splat::<S, T>(simd, T::NIL);
    for (i, &c) in coefficients.iter().rev().enumerate() {
        let c = splat::<S, T>(simd, c);
        sum = if i == 0 { c } else { sum.mul_add(x, c) };
    }
    sum
}

/// `1 / sqrt(x)`: a square root and a division, each rounded correctly. Error at most 1.5 ULP. 0 gives infinity, -0
/// minus infinity, infinity 0, what is negative NaN.
#[inline(always)]
pub fn rsqrt<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    splat::<S, T>(simd, T::ONE) / x.sqrt()
}

/// `1 / x`, rounded correctly. 0 gives infinity, -0 minus infinity.
#[inline(always)]
pub fn recip<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    splat::<S, T>(simd, T::ONE) / x
}
