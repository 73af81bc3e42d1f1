//! Element-wise operations and reductions on slices, for each element type.

use crate::dtype::DType;
use crate::kernel::half::{self, Half};
use crate::ops::{Binary, Reduction, Unary};
use crate::vector::{self, RealNumber as _};

use crate::instruction::Stored;

/// Two binary operations in one pass over their three operands; each rounds on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    MulAdd,
    MulSub,
    MulMul,
    AddMul,
    SubMul,
}

impl Pair {
    /// The pair that applies `second` to the result of `first` and a third operand.
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

/// Conversions to and from 16-bit formats, on slices of one length.
pub(crate) trait Halves: Stored {
    /// Rounds to the numbers of a format; only for floating-point types.
    fn round_to(format: Half, _: &[Self], _: &mut [Self]) {
        unreachable!("{} is not rounded to {format}", Self::DTYPE)
    }

    /// Converts from 16-bit numbers; only for `f32`.
    fn widen(format: Half, _: &[u16], _: &mut [Self]) {
        unreachable!("{} is not stored as {format}", Self::DTYPE)
    }

    /// Converts to 16-bit numbers; only for `f32`.
    fn narrow(format: Half, _: &[Self], _: &mut [u16]) {
        unreachable!("{} is not stored as {format}", Self::DTYPE)
    }
}

impl Halves for f32 {
    fn round_to(format: Half, x: &[f32], out: &mut [f32]) {
        half::round(format, x, out);
    }

    fn widen(format: Half, from: &[u16], to: &mut [f32]) {
        half::widen(format, from, to);
    }

    fn narrow(format: Half, from: &[f32], to: &mut [u16]) {
        half::narrow(format, from, to);
    }
}

impl Halves for f64 {
    fn round_to(format: Half, x: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = format.round(x));
    }
}

impl Halves for i32 {}
impl Halves for i64 {}

/// Operations on slices of one length.
pub(crate) trait Math: Halves {
    /// Applies a function to every element.
    fn unary(op: Unary, x: &[Self], out: &mut [Self]);

    /// Applies a function to `a b + c`, or to `a b - c`, in one pass; product and sum are rounded separately. Only for functions
    /// that [`takes_affine`] accepts.
    fn unary_of_affine(op: Unary, operands: [&[Self]; 3], minus: bool, out: &mut [Self]);

    /// The neutral element of a reduction.
    fn neutral(op: Reduction) -> Self {
        Self::from_number(op.row().neutral)
    }

    /// Applies a binary operation to every pair of elements.
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

    /// Applies two binary operations to three operands.
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

    /// Reduces a slice to one number.
    fn reduce(op: Reduction, x: &[Self]) -> Self {
        let result = match op {
            Reduction::Sum => Some(vector::sum(x)),
            Reduction::Max => vector::max_value(x),
            Reduction::Min => vector::min_value(x),
        };
        result.unwrap_or_else(|| Self::neutral(op))
    }

    /// Combines partial results element by element.
    fn combine(op: Reduction, results: &mut [Self], others: &[Self]) {
        let done = match op {
            Reduction::Sum => vector::add_in_place(results, others),
            Reduction::Max => vector::max_in_place(results, others),
            Reduction::Min => vector::min_in_place(results, others),
        };
        done.expect("rows have one length");
    }
}

/// Whether a function can be applied to `a b + c` in registers.
pub(super) fn takes_affine(dtype: DType, op: Unary) -> bool {
    dtype.is_float() && is_function(op)
}

macro_rules! real_math {
    ($($type:ident)*; $table:tt) => {
        $(real_math!(@type $type $table);)*
        real_math!(@names $table);
    };
    (@names { $($op:ident $function:ident,)* }) => {
        fn is_function(op: Unary) -> bool {
            matches!(op, $(Unary::$op)|*)
        }
    };
    (@type $type:ident { $($op:ident $function:ident,)* }) => {
        impl Math for $type {
            fn unary(op: Unary, x: &[$type], out: &mut [$type]) {
                let done = match op {
                    $(Unary::$op => vector::$function(x, out),)*
                    Unary::Neg => vector::neg(x, out),
                    Unary::Abs => vector::abs(x, out),
                    Unary::Square => vector::square(x, out),
                    Unary::Relu => vector::relu(x, out),
                    Unary::RoundBf16 | Unary::RoundF16 => {
                        op.rounds_to().into_iter().for_each(|format| $type::round_to(format, x, out));
                        Ok(())
                    }
                    Unary::Sign | Unary::Floor => {
                        let scalar = op.row().scalar;
                        out.iter_mut().zip(x).for_each(|(out, &x)| *out = scalar(x.into()) as $type);
                        Ok(())
                    }
                };
                done.expect("tiles have one length");
            }

            fn unary_of_affine(op: Unary, operands: [&[$type]; 3], minus: bool, out: &mut [$type]) {
                let functions = &$type::compiled_real().functions;
                let function = match op {
                    $(Unary::$op => functions.$function.of_affine,)*
                    _ => unreachable!("{} does not take a b + c", op.row().name),
                };
                function(operands, minus, 0.0, out);
            }
        }
    };
}

real_math! {
    f32 f64; {
        Sqrt sqrt,
        Rsqrt rsqrt,
        Recip recip,
        Exp exp,
        Expm1 expm1,
        Log log,
        Log1p log1p,
        Sin sin,
        Cos cos,
        Erf erf,
        Sigmoid sigmoid,
        Tanh tanh,
        Gelu gelu,
        GeluDerivative gelu_derivative,
        GeluTanh gelu_tanh,
        Silu silu,
        Softplus softplus,
    }
}

macro_rules! integer_math {
    ($type:ty) => {
        impl Math for $type {
            fn unary(op: Unary, x: &[$type], out: &mut [$type]) {
                let function = op.row().integer.unwrap_or(|x| x);
                out.iter_mut().zip(x).for_each(|(out, &x)| *out = function(i64::from(x)) as $type);
            }

            fn unary_of_affine(op: Unary, _: [&[$type]; 3], _: bool, _: &mut [$type]) {
                unreachable!("{} of integers does not take a b + c", op.row().name)
            }
        }
    };
}

integer_math!(i32);
integer_math!(i64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::on_every_level;

    /// Reference implementation: `a b + c` is stored before the function is applied.
    fn one_by_one<T: Math>(op: Unary, [a, b, c]: [&[T]; 3], minus: bool) -> Vec<T> {
        let [mut product, mut sum, mut result] = [a.to_vec(), a.to_vec(), a.to_vec()];
        T::binary(Binary::Mul, a, b, &mut product);
        T::binary(if minus { Binary::Sub } else { Binary::Add }, &product, c, &mut sum);
        T::unary(op, &sum, &mut result);
        result
    }

    fn check<T: Math>(numbers: &[T], bits: fn(T) -> u64) {
        let functions: Vec<Unary> =
            Unary::ALL.iter().copied().filter(|&op| takes_affine(T::DTYPE, op)).collect();
        assert!(functions.contains(&Unary::Gelu) && !functions.contains(&Unary::Relu));
        on_every_level(|| {
            for (&op, minus) in functions.iter().flat_map(|op| [(op, false), (op, true)]) {
                for length in [0, 1, 7, 16, 33] {
                    let operands = [&numbers[..length], &numbers[20..][..length], &numbers[31..][..length]];
                    let mut ours = vec![T::ZERO; length];
                    T::unary_of_affine(op, operands, minus, &mut ours);
                    let right = one_by_one(op, operands, minus);
                    let bits = |numbers: &[T]| numbers.iter().map(|&x| bits(x)).collect::<Vec<_>>();
                    assert_eq!(bits(&ours), bits(&right), "{op:?}, minus: {minus}");
                }
            }
        });
    }

    #[test]
    fn functions_of_a_b_plus_c_have_the_bits_of_separate_passes() {
        let wild = [f64::NAN, f64::INFINITY, -0.0, 0.0, 1e-40, -3e38, 88.5, f64::NEG_INFINITY];
        let usual = (0..64).map(|i| f64::from(i * 37 % 61) / 8.0 - 3.75);
        let numbers: Vec<f64> =
            usual.enumerate().map(|(i, x)| if i % 5 == 3 { wild[i / 5 % 8] } else { x }).collect();
        // All NaN count as equal.
        check(&numbers, |x| if x.is_nan() { u64::MAX } else { x.to_bits() });
        let narrow: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
        check(&narrow, |x| if x.is_nan() { u64::MAX } else { x.to_bits().into() });
    }
}
