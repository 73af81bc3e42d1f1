//! What the operations of loops do on tiles, for each type.

use crate::ops::{Binary, Reduction, Unary};
use crate::vector;

use super::memory::Stored;

/// Two cheap operations in one pass over their three operands; each rounds on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    MulAdd,
    MulSub,
    MulMul,
    AddMul,
    SubMul,
}

impl Pair {
    /// The second operation on the result of the first and a third operand.
    pub fn of(first: Binary, second: Binary) -> Option<Pair> {
        Some(match (first, second) {
            (Binary::Mul, Binary::Add) => Pair::MulAdd,
            (Binary::Mul, Binary::Sub) => Pair::MulSub,
            (Binary::Mul, Binary::Mul) => Pair::MulMul,
            (Binary::Add, Binary::Mul) => Pair::AddMul,
            (Binary::Sub, Binary::Mul) => Pair::SubMul,
            _ => return None,
        })
    }
}

/// The operations of loops on slices.
pub(crate) trait Math: Stored {
    /// One operand.
    fn unary(op: Unary, x: &[Self], out: &mut [Self]);

    /// What a reduction of nothing gives.
    fn neutral(op: Reduction) -> Self;

    /// Two operands of the length of the result.
    fn binary(op: Binary, a: &[Self], b: &[Self], out: &mut [Self]) {
        let truth = |value: bool| Self::from_integer(i64::from(value));
        let compare = |out: &mut [Self], holds: fn(Self, Self) -> bool| {
            out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = truth(holds(a, b)));
        };
        let done = match op {
            Binary::Add => vector::add(a, b, out),
            Binary::Sub => vector::sub(a, b, out),
            Binary::Mul => vector::mul(a, b, out),
            Binary::Div => vector::div(a, b, out),
            Binary::Min => vector::min(a, b, out),
            Binary::Max => vector::max(a, b, out),
            Binary::Less => return compare(out, |a, b| a < b),
            Binary::LessEqual => return compare(out, |a, b| a <= b),
            Binary::Equal => return compare(out, |a, b| a == b),
        };
        done.expect("tiles have one length");
    }

    /// Two operations on three operands of the length of the result.
    fn pair(pair: Pair, operands: [&[Self]; 3], out: &mut [Self]) {
        match pair {
            Pair::MulAdd => vector::mul_then_add(operands, out),
            Pair::MulSub => vector::mul_then_sub(operands, out),
            Pair::MulMul => vector::mul_then_mul(operands, out),
            Pair::AddMul => vector::add_then_mul(operands, out),
            Pair::SubMul => vector::sub_then_mul(operands, out),
        }
    }

    /// The second operand where the first is not 0, else the third.
    fn select(condition: &[Self], a: &[Self], b: &[Self], out: &mut [Self]) {
        for (((out, &condition), &a), &b) in out.iter_mut().zip(condition).zip(a).zip(b) {
            *out = if condition == Self::ZERO { b } else { a };
        }
    }

    /// What a reduction makes of some elements.
    fn part(op: Reduction, x: &[Self]) -> Self {
        let part = match op {
            Reduction::Sum => Some(vector::sum(x)),
            Reduction::Max => vector::max_value(x),
            Reduction::Min => vector::min_value(x),
        };
        part.unwrap_or_else(|| Self::neutral(op))
    }

    /// Results and more elements, one for each.
    fn combine(op: Reduction, so_far: &mut [Self], part: &[Self]) {
        let done = match op {
            Reduction::Sum => vector::add_in_place(so_far, part),
            Reduction::Max => vector::max_in_place(so_far, part),
            Reduction::Min => vector::min_in_place(so_far, part),
        };
        done.expect("rows have one length");
    }
}

macro_rules! real_math {
    ($type:ty) => {
        impl Math for $type {
            fn unary(op: Unary, x: &[$type], out: &mut [$type]) {
                let done = match op {
                    Unary::Neg => vector::neg(x, out),
                    Unary::Abs => vector::abs(x, out),
                    Unary::Square => vector::square(x, out),
                    Unary::Sqrt => vector::sqrt(x, out),
                    Unary::Rsqrt => vector::rsqrt(x, out),
                    Unary::Recip => vector::recip(x, out),
                    Unary::Exp => vector::exp(x, out),
                    Unary::Expm1 => vector::expm1(x, out),
                    Unary::Log => vector::log(x, out),
                    Unary::Log1p => vector::log1p(x, out),
                    Unary::Sin => vector::sin(x, out),
                    Unary::Cos => vector::cos(x, out),
                    Unary::Erf => vector::erf(x, out),
                    Unary::Relu => vector::relu(x, out),
                    Unary::Sigmoid => vector::sigmoid(x, out),
                    Unary::Tanh => vector::tanh(x, out),
                    Unary::Gelu => vector::gelu(x, out),
                    Unary::GeluSlope => vector::gelu_slope(x, out),
                    Unary::GeluTanh => vector::gelu_tanh(x, out),
                    Unary::Silu => vector::silu(x, out),
                    Unary::Softplus => vector::softplus(x, out),
                    Unary::Sign | Unary::Floor => {
                        let scalar = op.row().scalar;
                        out.iter_mut().zip(x).for_each(|(out, &x)| *out = scalar(x.into()) as $type);
                        Ok(())
                    }
                };
                done.expect("tiles have one length");
            }

            fn neutral(op: Reduction) -> $type {
                match op {
                    Reduction::Sum => 0.0,
                    Reduction::Max => <$type>::NEG_INFINITY,
                    Reduction::Min => <$type>::INFINITY,
                }
            }
        }
    };
}

real_math!(f32);
real_math!(f64);

macro_rules! integer_math {
    ($type:ty) => {
        impl Math for $type {
            fn unary(op: Unary, x: &[$type], out: &mut [$type]) {
                let function = op.row().integer.unwrap_or(|x| x);
                out.iter_mut().zip(x).for_each(|(out, &x)| *out = function(i64::from(x)) as $type);
            }

            fn neutral(op: Reduction) -> $type {
                match op {
                    Reduction::Sum => 0,
                    Reduction::Max => <$type>::MIN,
                    Reduction::Min => <$type>::MAX,
                }
            }
        }
    };
}

integer_math!(i32);
integer_math!(i64);
