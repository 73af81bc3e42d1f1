//! Element types of tensors and vectors.

use std::fmt;

use fearless_simd::{Select, Simd, SimdElement, prelude::*};

/// Element type as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point.
    F64,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 4] = [Self::F32, Self::F64, Self::I32, Self::I64];

    /// Returns the name: `f32`, `f64`, `i32` or `i64`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Returns whether it is a floating-point type. Only these have gradients.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// Element type of buffers and SIMD vectors: `f32`, `f64`, `i32` or `i64`.
///
/// Operations that differ between integers and floating-point numbers are methods; all others come with the vector type.
pub trait Element: SimdElement + Send + Sync + sealed::Sealed + 'static {
    /// The type as a value.
    const DTYPE: DType;
    /// Zero.
    const ZERO: Self;
    /// SIMD vector with the width of instruction set `S`.
    type Vector<S: Simd>: SimdBase<S, Element = Self>;

    /// `a + b`; integers wrap.
    fn plus(a: Self, b: Self) -> Self;

    /// `a * b + c`: fused where the instruction set has it; integers wrap.
    fn multiply_add<S: Simd>(a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;

    /// `a / b`. Integers: truncated towards zero, 0 where `b` is 0, and the smallest integer divided by -1 is
    /// itself.
    fn divide<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// The minimum. Floating point: `minimum` of IEEE 754-2019, NaN if either is NaN, and -0 below 0.
    fn minimum<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// The maximum. Floating point: `maximum` of IEEE 754-2019, NaN if either is NaN, and 0 above -0.
    fn maximum<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// 0 where `a` is negative, otherwise `a`; NaN and -0 are unchanged.
    fn relu<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;

    /// `-a`. The smallest integer is unchanged.
    fn negate<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;

    /// Returns whether it is NaN; always false for integers.
    fn is_nan(self) -> bool;
}

macro_rules! float_element {
    ($type:ty, $dtype:expr, $vector:ident) => {
        impl Element for $type {
            const DTYPE: DType = $dtype;
            const ZERO: Self = 0.0;
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn plus(a: Self, b: Self) -> Self {
                a + b
            }

            #[inline(always)]
            fn multiply_add<S: Simd>(a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                a.mul_add(b, c)
            }

            #[inline(always)]
            fn divide<S: Simd>(_: S, a: S::$vector, b: S::$vector) -> S::$vector {
                a / b
            }

            #[inline(always)]
            fn minimum<S: Simd>(_: S, a: S::$vector, b: S::$vector) -> S::$vector {
                // Of equal operands (0 and -0) one order of `min` returns the first and the other the second; the bitwise
                // or has the sign of -0.
                let least = from_bits(bits(a.min(b)) | bits(b.min(a)));
                either_is_nan(a, b).select(a + b, least)
            }

            #[inline(always)]
            fn maximum<S: Simd>(_: S, a: S::$vector, b: S::$vector) -> S::$vector {
                let most = from_bits(bits(a.max(b)) & bits(b.max(a)));
                either_is_nan(a, b).select(a + b, most)
            }

            #[inline(always)]
            fn relu<S: Simd>(simd: S, a: S::$vector) -> S::$vector {
                let zero = S::$vector::splat(simd, 0.0);
                // The x86 instruction returns its second operand if one is NaN or both are zeros.
                if cfg!(target_arch = "x86_64") { zero.max(a) } else { a.simd_lt(zero).select(zero, a) }
            }

            #[inline(always)]
            fn negate<S: Simd>(_: S, a: S::$vector) -> S::$vector {
                -a
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}

float_element!(f32, DType::F32, f32s);
float_element!(f64, DType::F64, f64s);

/// Returns the bits as unsigned integers. Unlike the method of the vectors, it is always inlined.
#[inline(always)]
pub(crate) fn bits<S: Simd, V: SimdFloat<S>>(x: V) -> V::Bits {
    x.bitcast()
}

/// Returns the numbers with these bits.
#[inline(always)]
pub(crate) fn from_bits<S: Simd, V: SimdFloat<S>>(bits: V::Bits) -> V {
    bits.bitcast()
}

/// Returns a mask of the lanes where either operand is NaN.
#[inline(always)]
fn either_is_nan<S: Simd, V: SimdBase<S>>(a: V, b: V) -> V::Mask {
    a.simd_ne(a) | b.simd_ne(b)
}

macro_rules! integer_element {
    ($type:ty, $dtype:expr, $vector:ident, $quotient:expr) => {
        impl Element for $type {
            const DTYPE: DType = $dtype;
            const ZERO: Self = 0;
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn plus(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }

            #[inline(always)]
            fn multiply_add<S: Simd>(a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                a * b + c
            }

            #[inline(always)]
            fn divide<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                let mut quotients = a;
                for ((q, &a), &b) in quotients.as_mut_slice().iter_mut().zip(a.as_slice()).zip(b.as_slice()) {
                    *q = $quotient(a, b);
                }
                let quotients = b.simd_eq(-1).select(-a, quotients);
                b.simd_eq(0).select(S::$vector::splat(simd, 0), quotients)
            }

            #[inline(always)]
            fn minimum<S: Simd>(_: S, a: S::$vector, b: S::$vector) -> S::$vector {
                a.min(b)
            }

            #[inline(always)]
            fn maximum<S: Simd>(_: S, a: S::$vector, b: S::$vector) -> S::$vector {
                a.max(b)
            }

            #[inline(always)]
            fn relu<S: Simd>(simd: S, a: S::$vector) -> S::$vector {
                a.max(S::$vector::splat(simd, 0))
            }

            #[inline(always)]
            fn negate<S: Simd>(_: S, a: S::$vector) -> S::$vector {
                -a
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    };
}

integer_element!(i32, DType::I32, i32s, quotient_i32);
integer_element!(i64, DType::I64, i64s, quotient_i64);

/// Returns the truncated quotient; unspecified if the divisor is 0 or -1.
///
/// Computed in `f64`, for which there are vector instructions: an exact quotient that is not an integer is at least 2^-31
/// below the next one, which exceeds the rounding error.
#[inline(always)]
fn quotient_i32(a: i32, b: i32) -> i32 {
    (f64::from(a) / f64::from(b)) as i32
}

/// Returns the truncated quotient; unspecified if the divisor is 0 or -1.
#[inline(always)]
fn quotient_i64(a: i64, b: i64) -> i64 {
    a.wrapping_div(if b == 0 { 1 } else { b })
}
