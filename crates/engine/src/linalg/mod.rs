//! Matrices in slices: multiplication, matrix-vector products and transposition.
//!
//! ```
//! use gatework_engine::linalg;
//!
//! // [2, 3] times [3, 2]
//! let a = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let b = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
//! let mut out = [0.0; 4];
//! linalg::matmul(&a, &b, &mut out, 2, 3, 2)?;
//! assert_eq!(out, [4.0, 5.0, 10.0, 11.0]);
//! # Ok::<(), linalg::LinalgError>(())
//! ```
//!
//! | function | computes |
//! |---|---|
//! | [`matmul`] | the product of two row-major matrices |
//! | [`matmul_views`], [`matmul_add_views`] | the same with strides: transposed matrices, blocks of larger ones |
//! | [`matvec`] | a matrix times a vector |
//! | [`transpose`] | the transposed matrix |
//! | [`dot`] | the dot product of two vectors |
//!
//! The element types are those of [`Number`]: `f32`, `f64`, `i32` and `i64`. Integers wrap on overflow and are exact
//! otherwise. Floating-point products use fused multiply-adds where the processor has them, and the order of a sum depends on
//! the sizes and the instruction set, so the last bits may differ from those of a plain loop; the error of an element is at
//! most `k` rounding errors of the sum of `|a[i, l] b[l, j]|`. NaN and infinities propagate as in a plain loop.
//!
//! Large matrices are processed by the threads of the current rayon pool. A result has the same bits for any number of threads.

mod error;
mod matvec;
mod multiply;
mod transpose;
mod view;

pub use crate::vector::{Number, dot};
pub use error::LinalgError;
pub use matvec::matvec;
pub(crate) use matvec::matvec_of;
pub use multiply::{matmul, matmul_add_views, matmul_views};
pub use transpose::transpose;
pub(crate) use transpose::transpose_of;
pub use view::{MatrixView, MatrixViewMut};
