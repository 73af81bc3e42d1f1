//! Tables of the operations of each element type, so that they are compiled once, in this crate.
//!
//! The public functions are generic, and generic code is compiled in the crate that calls it: every test and every binary
//! would compile the vector code of all instruction sets again. So the public functions only look up a function pointer in
//! a static table of this module. The indirect call takes about a nanosecond.

use super::arithmetic::{CompiledBinary, CompiledUnary, scaled_add_of};
use super::function::CompiledFunctions;
use super::fused::CompiledFused;
use super::loss::CompiledLosses;
use super::softmax::{log_softmax_of, log_sum_exp_of, normalise_of, softmax_of};
use super::{VectorError, reduce};
use crate::dtype::Element;
use crate::kernel::math::Real;

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
}

/// Element type of vector operations: `f32`, `f64`, `i32` or `i64`.
pub trait Number: Element {
    /// Returns the table of operations of the type.
    #[doc(hidden)]
    fn compiled() -> &'static Compiled<Self>;
}

/// Floating-point element type of vector operations: `f32` or `f64`.
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

impl<T: Number> Compiled<T> {
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
