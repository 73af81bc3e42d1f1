//! The operations of each type, compiled in this crate once.
//!
//! The public functions are generic, and generic code is compiled in the crate that calls it: every test and every tool
//! would compile all vector code of all instruction sets again. So they only look up a function of the type in a table
//! that lives here. The call through the table costs about a nanosecond.

use super::arithmetic::{CompiledBinary, CompiledUnary, scaled_add_of};
use super::function::CompiledFunctions;
use super::loss::CompiledLosses;
use super::pair::CompiledPairs;
use super::softmax::{log_softmax_of, log_sum_exp_of, normalise_of, softmax_of};
use super::{VectorError, reduce};
use crate::dtype::Element;
use crate::kernel::math::Real;

/// A function of a slice that gives an element and its place.
type Extremum<T> = fn(&[T]) -> Option<(T, usize)>;

/// A slice times a factor added to another.
type ScaledAdd<T> = fn(T, &[T], &mut [T]) -> Result<(), VectorError>;

/// The operations that all types have.
#[derive(Debug)]
pub struct Compiled<T> {
    pub(super) binary: CompiledBinary<T>,
    pub(super) unary: CompiledUnary<T>,
    pub(super) pair: CompiledPairs<T>,
    pub(super) scaled_add: ScaledAdd<T>,
    pub(super) sum: fn(&[T]) -> T,
    pub(super) dot: fn(&[T], &[T]) -> T,
    pub(super) least: Extremum<T>,
    pub(super) most: Extremum<T>,
}

/// A number that vector operations work on: `f32`, `f64`, `i32` or `i64`.
pub trait Number: Element {
    /// The vector operations of the type.
    #[doc(hidden)]
    fn compiled() -> &'static Compiled<Self>;
}

/// A floating-point number that vector operations work on.
pub trait RealNumber: Number + Real {
    /// The vector functions of the type.
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

impl<T: Number> Compiled<T> {
    pub(crate) const fn new() -> Self {
        Self {
            binary: CompiledBinary::new(),
            unary: CompiledUnary::new(),
            pair: CompiledPairs::new(),
            scaled_add: scaled_add_of,
            sum: reduce::sum_of_slice,
            dot: reduce::dot_of_slices,
            least: reduce::least,
            most: reduce::most,
        }
    }
}

/// The operations of floating-point types.
#[derive(Debug)]
pub struct CompiledReal<T> {
    pub(crate) functions: CompiledFunctions<T>,
    pub(super) losses: CompiledLosses<T>,
    pub(super) softmax: fn(&[T], &mut [T]),
    pub(super) log_softmax: fn(&[T], &mut [T]),
    pub(super) normalise: fn(&[T], &mut [T]),
    pub(super) log_sum_exp: fn(&[T]) -> Option<(T, T)>,
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
        }
    }
}
