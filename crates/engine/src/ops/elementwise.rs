//! The tables of element-wise operations and of reductions.
//!
//! A row is the name of an operation, its scalar meaning (on `f64`, rounded to the type afterwards), its meaning for integers if
//! it has one, and its gradient in terms of other operations. The methods of graphs and tensors, the interpreter, the gradients and the tests
//! follow from the row.

use crate::graph::{Graph, GraphError, Id, IntoTensor, Tensor};
use crate::kernel::half::Half;
use crate::kernel::math::reference;

/// The arguments of the gradient rule of a unary operation: operand, result and the gradient of the result.
pub(crate) struct UnaryGradient {
    pub x: Id,
    pub y: Id,
    pub dy: Id,
}

/// A row of the table of unary operations. A gradient of `None` is zero everywhere.
pub(crate) struct UnaryRow {
    pub name: &'static str,
    pub scalar: fn(f64) -> f64,
    pub integer: Option<fn(i64) -> i64>,
    pub gradient: fn(&mut Graph, UnaryGradient) -> Result<Option<Id>, GraphError>,
}

/// The arguments of the gradient rule of a binary operation: operands and the gradient of the result.
pub(crate) struct BinaryGradient {
    pub a: Id,
    pub b: Id,
    pub dy: Id,
}

/// The gradients of two operands; `None` is zero everywhere.
type OperandGradients = Result<[Option<Id>; 2], GraphError>;

/// A row of the table of binary operations.
pub(crate) struct BinaryRow {
    pub name: &'static str,
    pub scalar: fn(f64, f64) -> f64,
    pub integer: fn(i64, i64) -> i64,
    /// Whether the operation is commutative.
    pub commutes: bool,
    pub gradient: fn(&mut Graph, BinaryGradient) -> OperandGradients,
}

macro_rules! unary_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $scalar:expr, $integer:expr, $gradient:expr;)*) => {
        /// Element-wise operations with one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Unary {
            $($(#[$doc])* $op,)*
        }

        impl Unary {
            /// All operations, in the order of the table.
            pub const ALL: &'static [Unary] = &[$(Unary::$op,)*];

            pub(crate) fn row(self) -> &'static UnaryRow {
                static TABLE: &[UnaryRow] =
                    &[$(UnaryRow { name: stringify!($name), scalar: $scalar, integer: $integer, gradient: $gradient },)*];
                &TABLE[self as usize]
            }
        }

        impl Graph {
            $($(#[$doc])* pub fn $name(&mut self, x: Id) -> Result<Id, GraphError> {
                self.unary(Unary::$op, x)
            })*
        }

        #[allow(clippy::should_implement_trait, reason = "the operators are implemented, too")]
        impl<'s> Tensor<'s> {
            $($(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Tensor<'s> {
                self.unary(Unary::$op)
            })*
        }
    };
}

unary_table! {
    /// `-x`; integers wrap.
    Neg neg: |x| -x, Some(i64::wrapping_neg), |g, u| g.neg(u.dy).map(Some);
    /// The absolute value; that of the least integer wraps.
    Abs abs: f64::abs, Some(i64::wrapping_abs), |g, u| {
        let sign = g.sign(u.x)?;
        g.mul(u.dy, sign).map(Some)
    };
    /// -1, 0 or 1; the sign of NaN is NaN.
    Sign sign: sign, Some(i64::signum), |_, _| Ok(None);
    /// The largest integer that is at most `x`.
    Floor floor: f64::floor, Some(|x| x), |_, _| Ok(None);
    /// `x * x`; integers wrap.
    Square square: |x| x * x, Some(|x| x.wrapping_mul(x)), |g, u| {
        let twice = g.add(u.x, u.x)?;
        g.mul(u.dy, twice).map(Some)
    };
    /// Rounded to the nearest number of 8 significant bits, ties to even. The derivative is taken to be 1.
    ///
    /// `f32` results are stored in 16 bits.
    RoundBf16 round_bf16: |x| Half::Bf16.round(x), None, |_, u| Ok(Some(u.dy));
    /// Rounded to the nearest IEEE 754 binary16 number, ties to even; infinite from 65,520 on. The derivative is taken to
    /// be 1.
    ///
    /// `f32` results are stored in 16 bits.
    RoundF16 round_f16: |x| Half::F16.round(x), None, |_, u| Ok(Some(u.dy));
    /// The square root; NaN below zero.
    Sqrt sqrt: f64::sqrt, None, |g, u| {
        let twice = g.add(u.y, u.y)?;
        g.div(u.dy, twice).map(Some)
    };
    /// `1 / sqrt(x)`.
    Rsqrt rsqrt: reference::rsqrt, None, |g, u| {
        let cube = g.square(u.y)?;
        let cube = g.mul(cube, u.y)?;
        let derivative = g.scale(cube, -0.5)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `1 / x`.
    Recip recip: |x| 1.0 / x, None, |g, u| {
        let square = g.square(u.y)?;
        let derivative = g.neg(square)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// e to the power of `x`.
    Exp exp: f64::exp, None, |g, u| g.mul(u.dy, u.y).map(Some);
    /// `exp(x) - 1`, accurate near zero.
    Expm1 expm1: f64::exp_m1, None, |g, u| {
        let derivative = g.offset(u.y, 1.0)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The natural logarithm; NaN below zero, minus infinity at zero.
    Log log: f64::ln, None, |g, u| g.div(u.dy, u.x).map(Some);
    /// `log(1 + x)`, accurate near zero.
    Log1p log1p: f64::ln_1p, None, |g, u| {
        let below = g.offset(u.x, 1.0)?;
        g.div(u.dy, below).map(Some)
    };
    /// The sine.
    Sin sin: f64::sin, None, |g, u| {
        let derivative = g.cos(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The cosine.
    Cos cos: f64::cos, None, |g, u| {
        let derivative = g.sin(u.x)?;
        let derivative = g.neg(derivative)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The error function.
    Erf erf: reference::erf, None, |g, u| {
        let density = normal_density(g, u.x, 1.0, std::f64::consts::FRAC_2_SQRT_PI)?;
        g.mul(u.dy, density).map(Some)
    };
    /// `max(x, 0)`; NaN stays NaN.
    Relu relu: |x| if x < 0.0 { 0.0 } else { x }, Some(|x| x.max(0)), |g, u| {
        // The result is positive where the operand is, and unlike that it is stored anyway.
        let zero = g.zeros_like(u.y)?;
        let above = g.greater(u.y, zero)?;
        g.select(above, u.dy, zero).map(Some)
    };
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid: reference::sigmoid, None, |g, u| {
        let rest = g.one_minus(u.y)?;
        let derivative = g.mul(u.y, rest)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The hyperbolic tangent.
    Tanh tanh: f64::tanh, None, |g, u| {
        let square = g.square(u.y)?;
        let derivative = g.one_minus(square)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `x` times the cumulative normal distribution at `x`: `x / 2 * (1 + erf(x / sqrt 2))`.
    Gelu gelu: reference::gelu, None, |g, u| {
        let derivative = g.gelu_derivative(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The derivative of [`Unary::Gelu`]: the cumulative normal distribution at `x`, plus `x` times the density.
    GeluDerivative gelu_derivative: reference::gelu_derivative, None, |g, u| {
        // (2 - x^2) times the density.
        let factor = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
        let density = normal_density(g, u.x, 0.5, factor)?;
        let square = g.square(u.x)?;
        let two = g.constant_like(u.x, 2.0)?;
        let bend = g.sub(two, square)?;
        let derivative = g.mul(bend, density)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The approximation of [`Unary::Gelu`] by tanh: `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh gelu_tanh: reference::gelu_tanh, None, |g, u| {
        let square = g.square(u.x)?;
        let inner = g.scale(square, GELU * GELU_CUBE)?;
        let inner = g.offset(inner, GELU)?;
        let inner = g.mul(u.x, inner)?;
        let tanh = g.tanh(inner)?;
        // The derivatives of `inner` and of tanh.
        let derivative = g.scale(square, 3.0 * GELU * GELU_CUBE)?;
        let derivative = g.offset(derivative, GELU)?;
        let flat = g.square(tanh)?;
        let flat = g.one_minus(flat)?;
        let derivative = g.mul(derivative, flat)?;
        let derivative = g.mul(u.x, derivative)?;
        let sum = g.add(tanh, derivative)?;
        let sum = g.offset(sum, 1.0)?;
        let half = g.scale(sum, 0.5)?;
        g.mul(u.dy, half).map(Some)
    };
    /// `x * sigmoid(x)`.
    Silu silu: reference::silu, None, |g, u| {
        let s = g.sigmoid(u.x)?;
        let rest = g.one_minus(s)?;
        let bend = g.mul(u.y, rest)?;
        let derivative = g.add(s, bend)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `log(1 + exp(x))`.
    Softplus softplus: reference::softplus, None, |g, u| {
        let derivative = g.sigmoid(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
}

macro_rules! binary_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $scalar:expr, $integer:expr, $commutes:expr, $gradient:expr;)*) => {
        /// Element-wise operations with two operands of one type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Binary {
            $($(#[$doc])* $op,)*
        }

        impl Binary {
            /// All operations, in the order of the table.
            pub const ALL: &'static [Binary] = &[$(Binary::$op,)*];

            pub(crate) fn row(self) -> &'static BinaryRow {
                static TABLE: &[BinaryRow] = &[$(BinaryRow {
                    name: stringify!($name), scalar: $scalar, integer: $integer, commutes: $commutes, gradient: $gradient,
                },)*];
                &TABLE[self as usize]
            }
        }

        impl Graph {
            $($(#[$doc])* pub fn $name(&mut self, a: Id, b: Id) -> Result<Id, GraphError> {
                self.binary(Binary::$op, a, b)
            })*
        }

        #[allow(clippy::should_implement_trait, reason = "the operators are implemented, too")]
        impl<'s> Tensor<'s> {
            $($(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(self, b: impl IntoTensor<'s>) -> Tensor<'s> {
                self.binary(Binary::$op, b)
            })*
        }
    };
}

impl Unary {
    /// The 16-bit format that the operation rounds to, if it does.
    pub(crate) fn rounds_to(self) -> Option<Half> {
        match self {
            Unary::RoundBf16 => Some(Half::Bf16),
            Unary::RoundF16 => Some(Half::F16),
            _ => None,
        }
    }
}

binary_table! {
    /// `a + b`; integers wrap.
    Add add: |a, b| a + b, i64::wrapping_add, true, |_, p| Ok([Some(p.dy), Some(p.dy)]);
    /// `a - b`; integers wrap.
    Sub sub: |a, b| a - b, i64::wrapping_sub, false, |g, p| Ok([Some(p.dy), Some(g.neg(p.dy)?)]);
    /// `a * b`; integers wrap.
    Mul mul: |a, b| a * b, i64::wrapping_mul, true, |g, p| Ok([Some(g.mul(p.dy, p.b)?), Some(g.mul(p.dy, p.a)?)]);
    /// `a / b`; integers round towards zero, the quotient by zero is 0, and that of the least integer by -1 wraps.
    Div div: |a, b| a / b, divide, false, |g, p| {
        let da = g.div(p.dy, p.b)?;
        let ratio = g.div(p.a, p.b)?;
        let derivative = g.mul(da, ratio)?;
        Ok([Some(da), Some(g.neg(derivative)?)])
    };
    /// The smaller operand; NaN if either is, and -0 is less than 0.
    Min min: minimum, i64::min, true, |g, p| extreme_gradient(g, &p, Graph::less);
    /// The larger operand; NaN if either is, and -0 is less than 0.
    Max max: |a, b| -minimum(-a, -b), i64::max, true, |g, p| extreme_gradient(g, &p, Graph::greater);
    /// 1 if `a < b`, else 0, in the type of the operands.
    Less less: |a, b| truth(a < b), |a, b| i64::from(a < b), false, |_, _| Ok([None, None]);
    /// 1 if `a <= b`, else 0, in the type of the operands.
    LessEqual less_equal: |a, b| truth(a <= b), |a, b| i64::from(a <= b), false, |_, _| Ok([None, None]);
    /// 1 if `a == b`, else 0, in the type of the operands.
    Equal equal: |a, b| truth(a == b), |a, b| i64::from(a == b), true, |_, _| Ok([None, None]);
}

/// A row of the table of reductions.
pub(crate) struct ReductionRow {
    pub name: &'static str,
    /// The operation that combines two elements.
    pub binary: Binary,
    /// The result for no elements.
    pub neutral: f64,
}

macro_rules! reduction_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $binary:ident, $neutral:expr;)*) => {
        /// Reductions over axes, which keep size 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reduction {
            $($(#[$doc])* $op,)*
        }

        impl Reduction {
            pub(crate) fn row(self) -> &'static ReductionRow {
                static TABLE: &[ReductionRow] =
                    &[$(ReductionRow { name: stringify!($name), binary: Binary::$binary, neutral: $neutral },)*];
                &TABLE[self as usize]
            }
        }
    };
}

reduction_table! {
    /// The sum; 0 for no elements.
    Sum sum: Add, 0.0;
    /// The largest element; NaN if one is NaN. Minus infinity or the least integer for no elements.
    Max max: Max, f64::NEG_INFINITY;
    /// The smallest element; NaN if one is NaN. Infinity or the largest integer for no elements.
    Min min: Min, f64::INFINITY;
}

impl Reduction {
    /// The name of the reduction.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

const GELU: f64 = 0.797_884_560_802_865_4; // sqrt(2 / pi)
const GELU_CUBE: f64 = 0.044_715;

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x * 0.0
    }
}

fn divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

/// IEEE 754-2019 minimum.
fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a < b || a == b && a.is_sign_negative() {
        a
    } else {
        b
    }
}

/// `factor * exp(-rate * x^2)`.
fn normal_density(g: &mut Graph, x: Id, rate: f64, factor: f64) -> Result<Id, GraphError> {
    let square = g.square(x)?;
    let exponent = g.scale(square, -rate)?;
    let exp = g.exp(exponent)?;
    g.scale(exp, factor)
}

/// The gradient of a minimum or maximum: all of it for the operand that is the result, half for each if they are equal.
fn extreme_gradient(
    g: &mut Graph,
    p: &BinaryGradient,
    wins: fn(&mut Graph, Id, Id) -> Result<Id, GraphError>,
) -> OperandGradients {
    let equal = g.equal(p.a, p.b)?;
    let half = g.scale(equal, 0.5)?;
    let mut share = |winner, loser| -> Result<Option<Id>, GraphError> {
        let wins = wins(g, winner, loser)?;
        let share = g.add(wins, half)?;
        g.mul(p.dy, share).map(Some)
    };
    Ok([share(p.a, p.b)?, share(p.b, p.a)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_propagate_nan_and_order_zeros() {
        let max = Binary::Max.row().scalar;
        assert!(minimum(f64::NAN, 1.0).is_nan() && max(1.0, f64::NAN).is_nan());
        assert!(minimum(0.0, -0.0).is_sign_negative() && max(-0.0, 0.0).is_sign_positive());
        assert_eq!((minimum(2.0, 1.0), max(2.0, 1.0)), (1.0, 2.0));
    }

    #[test]
    fn integer_division_never_traps() {
        let div = Binary::Div.row().integer;
        assert_eq!((div(7, 0), div(-7, 2), div(i64::MIN, -1)), (0, -3, i64::MIN));
    }
}
