//! Operations on slices of numbers, to be called directly.
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
//! Types are `f32`, `f64`, `i32` and `i64`; integers wrap on overflow. Results go into a slice of the caller's, or take
//! the place of the first operand (`_in_place`). Lengths that do not fit are an error; a length of 0 is not. The
//! instruction set is chosen at run time, and long slices are shared among the threads of the current rayon pool.
//! Results have the same bits for any number of threads and wherever a slice lies. `docs/numerics.md` states the error
//! of each function.

pub mod arithmetic;
mod compiled;
pub mod function;
pub mod loss;
mod pair;
pub mod reduce;
pub mod softmax;
mod walk;

use std::fmt;

pub use arithmetic::*;
#[doc(hidden)]
pub use compiled::{Compiled, CompiledReal, Number, RealNumber};
pub use function::*;
pub use loss::*;
pub(crate) use pair::*;
pub use reduce::*;
pub use softmax::*;

/// What was wrong with the operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VectorError {
    /// A slice has not the length that the others ask for.
    Length {
        /// The operation.
        operation: &'static str,
        /// The slice that does not fit.
        slice: &'static str,
        /// Its length.
        len: usize,
        /// The length it should have.
        expected: usize,
    },
    /// A target names a class that there is not.
    Class {
        /// The row of the target.
        row: usize,
        /// The class it names.
        class: usize,
        /// How many classes there are.
        classes: usize,
    },
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { operation, slice, len, expected } => {
                write!(f, "{operation}: `{slice}` has {len} elements, but {expected} are needed")
            }
            Self::Class { row, class, classes } => {
                write!(
                    f,
                    "cross_entropy: the target of row {row} is class {class}, but there are {classes} classes"
                )
            }
        }
    }
}

impl std::error::Error for VectorError {}

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
