//! Operations on slices of numbers, like those of numpy on arrays.
//!
//! ```
//! use gatework_engine::vector;
//!
//! let (a, b) = ([1.0f32, 2.0, 3.0], [10.0, 20.0, 30.0]);
//! let mut out = [0.0; 3];
//! vector::add(&a, &b, &mut out)?;
//! assert_eq!(out, [11.0, 22.0, 33.0]);
//! vector::sqrt_in_place(&mut out);
//! assert_eq!(vector::arg_max(&out), Some(2));
//! # Ok::<(), vector::VectorError>(())
//! ```
//!
//! | module | operations |
//! |---|---|
//! | [`arithmetic`] | add, sub, mul, div, min, max, abs, neg, square, relu, fill, copy, scaled_add: all types |
//! | [`function`] | sqrt, exp, log, sin, cos, erf, sigmoid, gelu and so on: `f32` and `f64` |
//! | [`reduce`] | sum, mean, min, max, arg_min, arg_max, dot |
//! | [`softmax`](mod@softmax) | softmax, log_softmax, normalise |
//! | [`loss`] | mse, mae, huber, cross_entropy, binary_cross_entropy |
//!
//! The element types are `f32`, `f64`, `i32` and `i64`; integers wrap on overflow. An operation writes to a slice of the
//! caller or, with the suffix `_in_place`, to its first operand. Slices of different lengths are an error; empty slices are
//! not. The instruction set is chosen at run time, and long slices are processed by the threads of the current rayon pool.
//! A result has the same bits for any number of threads and any alignment of the slices. [`functions`] lists the error
//! bound of each function.

pub mod arithmetic;
mod compiled;
mod elementwise;
pub mod function;
mod fused;
pub mod loss;
pub mod reduce;
pub mod softmax;

pub use arithmetic::*;
#[doc(hidden)]
pub use compiled::{Compiled, CompiledReal};
pub use compiled::{Number, RealNumber};
pub use function::*;
pub(crate) use fused::*;
pub use loss::*;
pub use reduce::*;
pub use softmax::*;

/// Error of a vector operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VectorError {
    /// A slice does not have the same length as the others.
    #[error("{operation}: `{slice}` has {len} elements, but {expected} are needed")]
    Length {
        /// The operation.
        operation: &'static str,
        /// The slice that does not fit.
        slice: &'static str,
        /// Its number of elements.
        len: usize,
        /// The required number of elements.
        expected: usize,
    },
    /// A target of [`cross_entropy`] is not below the number of classes.
    #[error("cross_entropy: the target of row {row} is class {class}, but there are {classes} classes")]
    Class {
        /// The row of the target.
        row: usize,
        /// The class that is out of range.
        class: usize,
        /// The number of classes.
        classes: usize,
    },
}

/// Checks the length of a slice.
#[inline(always)]
fn check(
    operation: &'static str,
    slice: &'static str,
    len: usize,
    expected: usize,
) -> Result<(), VectorError> {
    if len == expected { Ok(()) } else { Err(VectorError::Length { operation, slice, len, expected }) }
}
