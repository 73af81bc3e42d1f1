//! The tables of element-wise operations and of reductions.
//!
//! A row is the name of an operation, its scalar meaning (on `f64`, rounded to the type afterwards), its meaning for integers if
//! it has one, its ONNX form, and its gradient in terms of other operations. The methods of graphs and tensors, the interpreter, the gradients and the tests
//! follow from the row.

use crate::graph::{Graph, GraphError, Id, IntoTensor, Tensor};
use crate::kernel::half::Half;
use crate::kernel::math::reference;

/// How an operation is written as ONNX.
#[cfg_attr(not(feature = "onnx"), allow(dead_code, reason = "read by the ONNX writer only"))]
pub(crate) enum OnnxForm {
    /// An operator with the same meaning.
    Operator(&'static str),
    /// An operator with a Boolean result, which is converted to a number.
    Comparison(&'static str),
    /// Other operations of the graph.
    Definition(fn(&mut Graph, Id) -> Result<Id, GraphError>),
    /// None, and why.
    Missing(&'static str),
}

use OnnxForm::{Comparison, Definition, Missing, Operator};

const TRAINING_ONLY: OnnxForm = Missing("rounding to 16 bits is for training; write the graph of a forecast");

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
    #[cfg_attr(not(feature = "onnx"), allow(dead_code, reason = "read by the ONNX writer only"))]
    pub onnx: OnnxForm,
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
    #[cfg_attr(not(feature = "onnx"), allow(dead_code, reason = "read by the ONNX writer only"))]
    pub onnx: OnnxForm,
    pub gradient: fn(&mut Graph, BinaryGradient) -> OperandGradients,
}

macro_rules! unary_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $scalar:expr, $integer:expr, $onnx:expr, $gradient:expr;)*) => {
        /// Element-wise operations with one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Unary {
            $($(#[$doc])* $op,)*
        }

        impl Unary {
            /// All operations, in the order of the table.
            pub const ALL: &'static [Unary] = &[$(Unary::$op,)*];

            pub(crate) fn row(self) -> &'static UnaryRow {
                static TABLE: &[UnaryRow] = &[$(UnaryRow {
                    name: stringify!($name), scalar: $scalar, integer: $integer, onnx: $onnx, gradient: $gradient,
                },)*];
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
    Neg neg: |x| -x, Some(i64::wrapping_neg), Operator("Neg"), |g, u| g.neg(u.dy).map(Some);
    /// The absolute value; that of the least integer wraps.
    Abs abs: f64::abs, Some(i64::wrapping_abs), Operator("Abs"), |g, u| {
        let sign = g.sign(u.x)?;
        g.mul(u.dy, sign).map(Some)
    };
    /// -1, 0 or 1; the sign of NaN is NaN.
    Sign sign: sign, Some(i64::signum), Operator("Sign"), |_, _| Ok(None);
    /// The largest integer that is at most `x`.
    Floor floor: f64::floor, Some(|x| x), Operator("Floor"), |_, _| Ok(None);
    /// `x * x`; integers wrap.
    Square square: |x| x * x, Some(|x| x.wrapping_mul(x)), Definition(|g, x| g.mul(x, x)), |g, u| {
        let twice = g.add(u.x, u.x)?;
        g.mul(u.dy, twice).map(Some)
    };
    /// Rounded to the nearest number of 8 significant bits, ties to even. The derivative is taken to be 1.
    ///
    /// `f32` results are stored in 16 bits.
    RoundBf16 round_bf16: |x| Half::Bf16.round(x), None, TRAINING_ONLY, |_, u| Ok(Some(u.dy));
    /// Rounded to the nearest IEEE 754 binary16 number, ties to even; infinite from 65,520 on. The derivative is taken to
    /// be 1.
    ///
    /// `f32` results are stored in 16 bits.
    RoundF16 round_f16: |x| Half::F16.round(x), None, TRAINING_ONLY, |_, u| Ok(Some(u.dy));
    /// The square root; NaN below zero.
    Sqrt sqrt: f64::sqrt, None, Operator("Sqrt"), |g, u| {
        let twice = g.add(u.y, u.y)?;
        g.div(u.dy, twice).map(Some)
    };
    /// `1 / sqrt(x)`.
    Rsqrt rsqrt: reference::rsqrt, None, Definition(reciprocal_root), |g, u| {
        let cube = g.square(u.y)?;
        let cube = g.mul(cube, u.y)?;
        let derivative = g.scale(cube, -0.5)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `1 / x`.
    Recip recip: |x| 1.0 / x, None, Operator("Reciprocal"), |g, u| {
        let square = g.square(u.y)?;
        let derivative = g.neg(square)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// e to the power of `x`.
    Exp exp: f64::exp, None, Operator("Exp"), |g, u| g.mul(u.dy, u.y).map(Some);
    /// `exp(x) - 1`, accurate near zero.
    Expm1 expm1: f64::exp_m1, None, Definition(expm1_by_tanh), |g, u| {
        let derivative = g.offset(u.y, 1.0)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The natural logarithm; NaN below zero, minus infinity at zero.
    Log log: f64::ln, None, Operator("Log"), |g, u| g.div(u.dy, u.x).map(Some);
    /// `log(1 + x)`, accurate near zero.
    Log1p log1p: f64::ln_1p, None, Definition(log1p_by_log), |g, u| {
        let below = g.offset(u.x, 1.0)?;
        g.div(u.dy, below).map(Some)
    };
    /// The sine.
    Sin sin: f64::sin, None, Operator("Sin"), |g, u| {
        let derivative = g.cos(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The cosine.
    Cos cos: f64::cos, None, Operator("Cos"), |g, u| {
        let derivative = g.sin(u.x)?;
        let derivative = g.neg(derivative)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The error function.
    Erf erf: reference::erf, None, Operator("Erf"), |g, u| {
        let density = normal_density(g, u.x, 1.0, std::f64::consts::FRAC_2_SQRT_PI)?;
        g.mul(u.dy, density).map(Some)
    };
    /// `max(x, 0)`; NaN stays NaN.
    Relu relu: |x| if x < 0.0 { 0.0 } else { x }, Some(|x| x.max(0)), Operator("Relu"), |g, u| {
        // The result is positive where the operand is, and unlike that it is stored anyway.
        let zero = g.zeros_like(u.y)?;
        let above = g.greater(u.y, zero)?;
        g.select(above, u.dy, zero).map(Some)
    };
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid: reference::sigmoid, None, Operator("Sigmoid"), |g, u| {
        let rest = g.one_minus(u.y)?;
        let derivative = g.mul(u.y, rest)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The hyperbolic tangent.
    Tanh tanh: f64::tanh, None, Operator("Tanh"), |g, u| {
        let square = g.square(u.y)?;
        let derivative = g.one_minus(square)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `x` times the cumulative normal distribution at `x`: `x / 2 * (1 + erf(x / sqrt 2))`.
    Gelu gelu: reference::gelu, None, Definition(gelu_by_erf), |g, u| {
        let derivative = g.gelu_derivative(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// The derivative of [`Unary::Gelu`]: the cumulative normal distribution at `x`, plus `x` times the density.
    GeluDerivative gelu_derivative: reference::gelu_derivative, None, Definition(gelu_derivative_by_erf), |g, u| {
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
    GeluTanh gelu_tanh: reference::gelu_tanh, None, Definition(gelu_by_tanh), |g, u| {
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
    Silu silu: reference::silu, None, Definition(silu_by_sigmoid), |g, u| {
        let s = g.sigmoid(u.x)?;
        let rest = g.one_minus(s)?;
        let bend = g.mul(u.y, rest)?;
        let derivative = g.add(s, bend)?;
        g.mul(u.dy, derivative).map(Some)
    };
    /// `log(1 + exp(x))`.
    Softplus softplus: reference::softplus, None, Operator("Softplus"), |g, u| {
        let derivative = g.sigmoid(u.x)?;
        g.mul(u.dy, derivative).map(Some)
    };
}

macro_rules! binary_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $scalar:expr, $integer:expr, $commutes:expr, $onnx:expr, $gradient:expr;)*) => {
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
                    name: stringify!($name), scalar: $scalar, integer: $integer, commutes: $commutes, onnx: $onnx, gradient: $gradient,
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
    Add add: |a, b| a + b, i64::wrapping_add, true, Operator("Add"), |_, p| Ok([Some(p.dy), Some(p.dy)]);
    /// `a - b`; integers wrap.
    Sub sub: |a, b| a - b, i64::wrapping_sub, false, Operator("Sub"), |g, p| Ok([Some(p.dy), Some(g.neg(p.dy)?)]);
    /// `a * b`; integers wrap.
    Mul mul: |a, b| a * b, i64::wrapping_mul, true, Operator("Mul"), |g, p| Ok([Some(g.mul(p.dy, p.b)?), Some(g.mul(p.dy, p.a)?)]);
    /// `a / b`; integers round towards zero, the quotient by zero is 0, and that of the least integer by -1 wraps.
    Div div: |a, b| a / b, divide, false, Operator("Div"), |g, p| {
        let da = g.div(p.dy, p.b)?;
        let ratio = g.div(p.a, p.b)?;
        let derivative = g.mul(da, ratio)?;
        Ok([Some(da), Some(g.neg(derivative)?)])
    };
    /// The smaller operand; NaN if either is, and -0 is less than 0.
    Min min: minimum, i64::min, true, Operator("Min"), |g, p| extreme_gradient(g, &p, Graph::less);
    /// The larger operand; NaN if either is, and -0 is less than 0.
    Max max: |a, b| -minimum(-a, -b), i64::max, true, Operator("Max"), |g, p| extreme_gradient(g, &p, Graph::greater);
    /// 1 if `a < b`, else 0, in the type of the operands.
    Less less: |a, b| truth(a < b), |a, b| i64::from(a < b), false, Comparison("Less"), |_, _| Ok([None, None]);
    /// 1 if `a <= b`, else 0, in the type of the operands.
    LessEqual less_equal: |a, b| truth(a <= b), |a, b| i64::from(a <= b), false, Comparison("LessOrEqual"), |_, _| Ok([None, None]);
    /// 1 if `a == b`, else 0, in the type of the operands.
    Equal equal: |a, b| truth(a == b), |a, b| i64::from(a == b), true, Comparison("Equal"), |_, _| Ok([None, None]);
}

/// A row of the table of reductions.
pub(crate) struct ReductionRow {
    pub name: &'static str,
    /// The operation that combines two elements.
    pub binary: Binary,
    /// The result for no elements.
    pub neutral: f64,
    /// The ONNX operator.
    #[cfg_attr(not(feature = "onnx"), allow(dead_code, reason = "read by the ONNX writer only"))]
    pub onnx: &'static str,
}

macro_rules! reduction_table {
    ($($(#[$doc:meta])* $op:ident $name:ident: $binary:ident, $neutral:expr, $onnx:expr;)*) => {
        /// Reductions over axes, which keep size 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reduction {
            $($(#[$doc])* $op,)*
        }

        impl Reduction {
            pub(crate) fn row(self) -> &'static ReductionRow {
                static TABLE: &[ReductionRow] = &[$(ReductionRow {
                    name: stringify!($name), binary: Binary::$binary, neutral: $neutral, onnx: $onnx,
                },)*];
                &TABLE[self as usize]
            }
        }
    };
}

reduction_table! {
    /// The sum; 0 for no elements.
    Sum sum: Add, 0.0, "ReduceSum";
    /// The largest element; NaN if one is NaN. Minus infinity or the least integer for no elements.
    Max max: Max, f64::NEG_INFINITY, "ReduceMax";
    /// The smallest element; NaN if one is NaN. Infinity or the largest integer for no elements.
    Min min: Min, f64::INFINITY, "ReduceMin";
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

fn reciprocal_root(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let root = g.sqrt(x)?;
    g.recip(root)
}

/// `tanh(x / 2) * (exp(x) + 1)`, which is accurate near zero.
fn expm1_by_tanh(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let half = g.scale(x, 0.5)?;
    let tanh = g.tanh(half)?;
    let exp = g.exp(x)?;
    let sum = g.offset(exp, 1.0)?;
    g.mul(tanh, sum)
}

/// `log(u) * x / (u - 1)` for `u = 1 + x`, in which rounding errors of u cancel (Kahan); x where u is 1, and `log(u)` where it
/// is x.
fn log1p_by_log(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let (one, u) = (g.constant_like(x, 1.0)?, g.offset(x, 1.0)?);
    let log = g.log(u)?;
    let rounded = g.sub(u, one)?;
    let ratio = g.div(x, rounded)?;
    let (is_one, is_x) = (g.equal(u, one)?, g.equal(u, x)?);
    let ratio = g.select(is_x, one, ratio)?;
    let product = g.mul(log, ratio)?;
    g.select(is_one, x, product)
}

/// `(1 + erf(x / sqrt 2)) / 2`.
fn normal_probability(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let scaled = g.scale(x, std::f64::consts::FRAC_1_SQRT_2)?;
    let erf = g.erf(scaled)?;
    let twice = g.offset(erf, 1.0)?;
    g.scale(twice, 0.5)
}

fn gelu_by_erf(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let probability = normal_probability(g, x)?;
    g.mul(x, probability)
}

fn gelu_derivative_by_erf(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let probability = normal_probability(g, x)?;
    let factor = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    let density = normal_density(g, x, 0.5, factor)?;
    let slope = g.mul(x, density)?;
    g.add(probability, slope)
}

fn gelu_by_tanh(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let square = g.square(x)?;
    let inner = g.scale(square, GELU * GELU_CUBE)?;
    let inner = g.offset(inner, GELU)?;
    let inner = g.mul(x, inner)?;
    let tanh = g.tanh(inner)?;
    let twice = g.offset(tanh, 1.0)?;
    let probability = g.scale(twice, 0.5)?;
    g.mul(x, probability)
}

fn silu_by_sigmoid(g: &mut Graph, x: Id) -> Result<Id, GraphError> {
    let sigmoid = g.sigmoid(x)?;
    g.mul(x, sigmoid)
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
    use crate::dtype::DType;
    use crate::interpret::Value;

    #[test]
    fn extremes_propagate_nan_and_order_zeros() {
        let max = Binary::Max.row().scalar;
        assert!(minimum(f64::NAN, 1.0).is_nan() && max(1.0, f64::NAN).is_nan());
        assert!(minimum(0.0, -0.0).is_sign_negative() && max(-0.0, 0.0).is_sign_positive());
        assert_eq!((minimum(2.0, 1.0), max(2.0, 1.0)), (1.0, 2.0));
    }

    #[test]
    fn onnx_definitions_have_the_meaning_of_their_rows() {
        let points = [-40.0, -3.0, -1.0, -0.7, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 0.7, 3.0, 40.0, 1e5];
        for op in Unary::ALL {
            let Definition(define) = &op.row().onnx else { continue };
            let mut g = Graph::new();
            let x = g.input("x", DType::F64, &[points.len()]).unwrap();
            let y = define(&mut g, x).unwrap();
            let value = Value::float(DType::F64, g.shape(x), points.to_vec());
            let found = g.interpret_nodes(&[("x", value)], &[y]).unwrap()[0].to_f64();
            for (&x, y) in points.iter().zip(found) {
                let right = (op.row().scalar)(x);
                let same = (y - right).abs() <= 1e-14 * right.abs().max(0.1 * x.abs()) || y == right;
                assert!(same || y.is_nan() && right.is_nan(), "{op:?}({x}) = {y} for {right}");
            }
        }
    }

    #[test]
    fn integer_division_never_traps() {
        let div = Binary::Div.row().integer;
        assert_eq!((div(7, 0), div(-7, 2), div(i64::MIN, -1)), (0, -3, i64::MIN));
    }
}
