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
//! | [`rows`] | softmax, log_softmax, layer_norm, mean and variance of every row of a matrix |
//! | [`loss`] | mse, mae, huber, cross_entropy, binary_cross_entropy |
//!
//! The element types are those of [`Number`]: `f32`, `f64`, `i32` and `i64`; functions and losses need a [`RealNumber`]: `f32`
//! or `f64`. Integers wrap on overflow. An operation writes to a slice of the
//! caller or, with the suffix `_in_place`, to its first operand. Slices of different lengths are an error; empty slices are
//! not. The instruction set is chosen at run time, and long slices are processed by the threads of the current rayon pool.
//! A result has the same bits for any number of threads and any alignment of the slices. [`functions`] lists the error
//! bound of each function. Matrix multiplication is in [`linalg`](crate::linalg).
//!
//! # Generic functions
//!
//! Functions of your own can be generic over the same types. [`Number`] has the operators, constants and comparisons of
//! numbers; [`RealNumber`] adds conversions from and to `f64`:
//!
//! ```
//! use gatework_engine::vector::{self, Number, RealNumber, VectorError};
//!
//! /// The squared length of a vector, in any type.
//! fn square_norm<T: Number>(x: &[T]) -> Result<T, VectorError> {
//!     vector::dot(x, x)
//! }
//!
//! /// Divides a vector by its length; zero stays zero.
//! fn normalise_length<T: RealNumber>(x: &mut [T]) -> Result<(), VectorError> {
//!     let length = T::from_f64(square_norm(x)?.to_f64().sqrt());
//!     if length > T::ZERO {
//!         let divisor = vec![length; x.len()];
//!         vector::div_in_place(x, &divisor)?;
//!     }
//!     Ok(())
//! }
//!
//! assert_eq!(square_norm(&[1i32, 2, 3])?, 14);
//! let mut x = [3.0f32, 4.0];
//! normalise_length(&mut x)?;
//! assert_eq!(x, [0.6, 0.8]);
//! # Ok::<(), VectorError>(())
//! ```

pub mod arithmetic;
mod compiled;
mod elementwise;
pub mod function;
mod fused;
pub mod loss;
pub mod reduce;
pub mod rows;
pub mod softmax;

pub use arithmetic::*;
pub use compiled::{Number, RealNumber};
pub(crate) use elementwise::CHUNK_LEN;
pub use function::*;
pub(crate) use fused::*;
pub use loss::*;
pub use reduce::*;
pub(crate) use reduce::{dot_of_slices, sum_of_pairs};
pub use rows::*;
pub(crate) use rows::{column_of_rows, for_rows};
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
    /// The length of a slice is not a multiple of the number of columns, or there are no columns.
    #[error("{operation}: `{slice}` has {len} elements, which are not whole rows of {columns}")]
    Rows {
        /// The operation.
        operation: &'static str,
        /// The slice that does not fit.
        slice: &'static str,
        /// Its number of elements.
        len: usize,
        /// The number of elements of a row.
        columns: usize,
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
