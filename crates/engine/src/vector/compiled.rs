//! Tables of the operations of each element type, so that they are compiled once, in this crate.
//!
//! The public functions are generic, and generic code is compiled in the crate that calls it: every test and every binary
//! would compile the vector code of all instruction sets again. So the public functions only look up a function pointer in
//! a static table of this module. The indirect call takes about a nanosecond.

use super::arithmetic::{CompiledBinary, CompiledUnary, scaled_add_of};
use super::function::CompiledFunctions;
use super::fused::CompiledFused;
use super::loss::CompiledLosses;
use super::rows::CompiledRows;
use super::softmax::{log_softmax_of, log_sum_exp_of, normalise_of, softmax_of};
use super::{VectorError, reduce};
use crate::dtype::Element;
use crate::kernel::math::Real;
use crate::kernel::matmul::{Gemm, GemmElement, multiply_slices};
use crate::linalg::{matvec_of, transpose_of};

/// Function of a slice that returns an element and the start of the block that contains it.
type Extremum<T> = fn(&[T]) -> Option<(T, usize)>;

/// Function that adds a multiple of a slice to another one.
type ScaledAdd<T> = fn(T, &[T], &mut [T]) -> Result<(), VectorError>;

/// Operations of all element types.
#[derive(Debug)]
pub struct Compiled<T> {
    pub(super) binary: CompiledBinary<T>,
    pub(super) unary: CompiledUnary<T>,
    pub(super) fused: CompiledFused<T>,
    pub(super) scaled_add: ScaledAdd<T>,
    pub(super) sum: fn(&[T]) -> T,
    pub(super) dot: fn(&[T], &[T]) -> T,
    pub(super) smallest: Extremum<T>,
    pub(super) largest: Extremum<T>,
    pub(crate) matmul: fn(&[T], &[T], &mut [T], &Gemm),
    pub(crate) matvec: fn(&[T], &[T], &mut [T]),
    pub(crate) transpose: fn(&[T], &mut [T], usize, usize),
}

/// Element type of operations on slices: `f32`, `f64`, `i32` or `i64`.
///
/// The bound of a generic function that calls operations of [`vector`](super) or [`linalg`](crate::linalg). Through
/// [`Element`], a `T: Number` is `Copy`, `Send`, `Sync`, `Default`, `Debug`, `Display` and `PartialOrd`, has the operators of
/// numbers (`+`, `-`, `*`, `/` and so on, which overflow as those of the type itself), and the constants
/// [`ZERO`](Element::ZERO) and [`DTYPE`](Element::DTYPE).
///
/// The trait is sealed: kernels are compiled for these four types, and no others can implement it.
///
/// ```
/// use gatework_engine::vector::{self, Number};
///
/// fn range<T: Number>(x: &[T]) -> Option<T> {
///     Some(vector::max_value(x)? - vector::min_value(x)?)
/// }
/// assert_eq!(range(&[3, -1, 2]), Some(4));
/// assert_eq!(range(&[0.5f32, 0.25]), Some(0.25));
/// ```
pub trait Number: Element {
    /// Returns the table of operations of the type.
    #[doc(hidden)]
    fn compiled() -> &'static Compiled<Self>;
}

/// Floating-point element type of operations on slices: `f32` or `f64`.
///
/// The bound of a generic function that calls floating-point operations of [`vector`](super). Through [`Real`], it adds
/// [`from_f64`](Real::from_f64) and [`to_f64`](Real::to_f64), negation, and constants such as [`ONE`](Real::ONE),
/// [`INFINITY`](Real::INFINITY) and [`NAN`](Real::NAN) to those of [`Number`]. The trait is sealed.
///
/// ```
/// use gatework_engine::vector::{self, RealNumber, VectorError};
///
/// /// The entropy of logits, in nats.
/// fn entropy<T: RealNumber>(logits: &[T]) -> Result<T, VectorError> {
///     let (mut p, mut log_p) = (vec![T::ZERO; logits.len()], vec![T::ZERO; logits.len()]);
///     vector::softmax(logits, &mut p)?;
///     vector::log_softmax(logits, &mut log_p)?;
///     Ok(-vector::dot(&p, &log_p)?)
/// }
/// assert_eq!(entropy(&[5.0f64, 5.0])?, f64::ln(2.0));
/// # Ok::<(), VectorError>(())
/// ```
pub trait RealNumber: Number + Real {
    /// Returns the table of floating-point operations of the type.
    #[doc(hidden)]
    fn compiled_real() -> &'static CompiledReal<Self>;
}

macro_rules! compiled {
    ($($trait:ident, $function:ident: $table:ident of $($type:ty)*;)*) => {
        $($(
            impl $trait for $type {
                #[inline]
                fn $function() -> &'static $table<$type> {
                    static COMPILED: $table<$type> = $table::new();
                    &COMPILED
                }
            }
        )*)*
    };
}

compiled! {
    Number, compiled: Compiled of f32 f64 i32 i64;
    RealNumber, compiled_real: CompiledReal of f32 f64;
}

impl<T: Number + GemmElement> Compiled<T> {
    pub(crate) const fn new() -> Self {
        Self {
            binary: CompiledBinary::new(),
            unary: CompiledUnary::new(),
            fused: CompiledFused::new(),
            scaled_add: scaled_add_of,
            sum: reduce::sum_of_slice,
            dot: reduce::dot_of_slices,
            smallest: reduce::smallest,
            largest: reduce::largest,
            matmul: multiply_slices,
            matvec: matvec_of,
            transpose: transpose_of,
        }
    }
}

/// Operations of floating-point types only.
#[derive(Debug)]
pub struct CompiledReal<T> {
    pub(crate) functions: CompiledFunctions<T>,
    pub(super) losses: CompiledLosses<T>,
    pub(super) softmax: fn(&[T], &mut [T]),
    pub(super) log_softmax: fn(&[T], &mut [T]),
    pub(super) normalise: fn(&[T], &mut [T]),
    pub(super) log_sum_exp: fn(&[T]) -> Option<(T, T)>,
    pub(super) rows: CompiledRows<T>,
}

impl<T: RealNumber> CompiledReal<T> {
    pub(crate) const fn new() -> Self {
        Self {
            functions: CompiledFunctions::new(),
            losses: CompiledLosses::new(),
            softmax: softmax_of,
            log_softmax: log_softmax_of,
            normalise: normalise_of,
            log_sum_exp: log_sum_exp_of,
            rows: CompiledRows::new(),
        }
    }
}
