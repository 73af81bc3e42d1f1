//! Element-wise arithmetic on all four types.
//!
//! An operation is one row of a table below: its documentation, its names, and its implementation on vectors.

use fearless_simd::{Simd, prelude::*};

use super::{Number, VectorError, check, elementwise};
use crate::kernel::level;

/// Operation from two slices to a third.
type BinaryRun<T> = fn(&[T], &[T], &mut [T]) -> Result<(), VectorError>;
/// Operation on two slices with the result in place of the first.
type BinaryInPlace<T> = fn(&mut [T], &[T]) -> Result<(), VectorError>;
/// Operation from one slice to another.
type UnaryRun<T> = fn(&[T], &mut [T]) -> Result<(), VectorError>;

/// Entry of the list of binary operations, for tests and benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct Binary<T> {
    /// The name of the public function.
    pub name: &'static str,
    /// The operation.
    pub run: BinaryRun<T>,
    /// The operation with the result in place of the first operand.
    pub run_in_place: BinaryInPlace<T>,
}

/// Entry of the list of unary operations, for tests and benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct Unary<T> {
    /// The name of the public function.
    pub name: &'static str,
    /// The operation.
    pub run: UnaryRun<T>,
    /// The operation with the result in place of the operand.
    pub run_in_place: fn(&mut [T]),
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $in_place:ident: |$simd:ident, $a:ident, $b:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name<T: Number>(a: &[T], b: &[T], out: &mut [T]) -> Result<(), VectorError> {
                check(stringify!($name), "b", b.len(), a.len())?;
                check(stringify!($name), "out", out.len(), a.len())?;
                (T::compiled().binary.$name)(a, b, out);
                Ok(())
            }

            #[doc = concat!("[`", stringify!($name), "`] with the result in `a`.")]
            #[inline]
            pub fn $in_place<T: Number>(a: &mut [T], b: &[T]) -> Result<(), VectorError> {
                check(stringify!($in_place), "b", b.len(), a.len())?;
                (T::compiled().binary.$in_place)(a, b);
                Ok(())
            }
        )*

        /// The binary operations, compiled for a type.
        #[derive(Debug)]
        pub(super) struct CompiledBinary<T> {
            $($name: fn(&[T], &[T], &mut [T]), $in_place: fn(&mut [T], &[T]),)*
        }

        impl<T: Number> CompiledBinary<T> {
            pub(super) const fn new() -> Self {
                $(
                    fn $name<T: Number>(a: &[T], b: &[T], out: &mut [T]) {
                        #[inline(always)]
                        fn pass<S: Simd, T: Number, const NON_TEMPORAL: bool>(simd: S, a: &[T], b: &[T], out: &mut [T]) {
                            elementwise::zip::<S, T::Vector<S>, NON_TEMPORAL>(simd, a, b, out, #[inline(always)] |$a, $b| {
                                let $simd = simd;
                                $body
                            });
                        }
                        elementwise::streaming2(a, b, out, [
                            |a, b, out| dispatch!(level(), simd => pass::<_, T, false>(simd, a, b, out)),
                            |a, b, out| dispatch!(level(), simd => pass::<_, T, true>(simd, a, b, out)),
                        ]);
                    }

                    fn $in_place<T: Number>(a: &mut [T], b: &[T]) {
                        #[inline(always)]
                        fn pass<S: Simd, T: Number>(simd: S, a: &mut [T], b: &[T]) {
                            elementwise::zip_in_place::<S, T::Vector<S>>(simd, a, b, #[inline(always)] |$a, $b| {
                                let $simd = simd;
                                $body
                            });
                        }
                        elementwise::for_chunks2(b, a, (), |b, a, ()| dispatch!(level(), simd => pass(simd, a, b)));
                    }
                )*
                Self { $($name: $name::<T>, $in_place: $in_place::<T>,)* }
            }
        }

        /// Returns all binary operations.
        pub fn binary<T: Number>() -> Vec<Binary<T>> {
            vec![$(Binary { name: stringify!($name), run: $name, run_in_place: $in_place }),*]
        }
    };
}

binary! {
    /// `out[i] = a[i] + b[i]`.
    add, add_in_place: |_simd, a, b| a + b;
    /// `out[i] = a[i] - b[i]`.
    sub, sub_in_place: |_simd, a, b| a - b;
    /// `out[i] = a[i] * b[i]`.
    mul, mul_in_place: |_simd, a, b| a * b;
    /// `out[i] = a[i] / b[i]`. Integers are truncated towards zero; a divisor of 0 gives 0, and the smallest integer
    /// divided by -1 is itself.
    div, div_in_place: |simd, a, b| T::divide(simd, a, b);
    /// The smaller of `a[i]` and `b[i]`: NaN if either is NaN, and -0 is below 0 (`minimum` of IEEE 754-2019).
    min, min_in_place: |simd, a, b| T::minimum(simd, a, b);
    /// The larger of `a[i]` and `b[i]`: NaN if either is NaN, and 0 is above -0 (`maximum` of IEEE 754-2019).
    max, max_in_place: |simd, a, b| T::maximum(simd, a, b);
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $in_place:ident: |$simd:ident, $x:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name<T: Number>(x: &[T], out: &mut [T]) -> Result<(), VectorError> {
                check(stringify!($name), "out", out.len(), x.len())?;
                (T::compiled().unary.$name)(x, out);
                Ok(())
            }

            #[doc = concat!("[`", stringify!($name), "`] with the result in place.")]
            #[inline]
            pub fn $in_place<T: Number>(x: &mut [T]) {
                (T::compiled().unary.$in_place)(x);
            }
        )*

        /// The unary operations, compiled for a type.
        #[derive(Debug)]
        pub(super) struct CompiledUnary<T> {
            $($name: fn(&[T], &mut [T]), $in_place: fn(&mut [T]),)*
        }

        impl<T: Number> CompiledUnary<T> {
            pub(super) const fn new() -> Self {
                $(
                    fn $name<T: Number>(x: &[T], out: &mut [T]) {
                        #[inline(always)]
                        fn pass<S: Simd, T: Number, const NON_TEMPORAL: bool>(simd: S, x: &[T], out: &mut [T]) {
                            elementwise::map::<S, T::Vector<S>, { elementwise::UNROLL_CHEAP }, NON_TEMPORAL>(simd, x, out, #[inline(always)] |$x| {
                                let $simd = simd;
                                $body
                            });
                        }
                        elementwise::streaming(x, out, (), [
                            |x, out, ()| dispatch!(level(), simd => pass::<_, T, false>(simd, x, out)),
                            |x, out, ()| dispatch!(level(), simd => pass::<_, T, true>(simd, x, out)),
                        ]);
                    }

                    fn $in_place<T: Number>(x: &mut [T]) {
                        #[inline(always)]
                        fn pass<S: Simd, T: Number>(simd: S, x: &mut [T]) {
                            elementwise::map_in_place::<S, T::Vector<S>>(simd, x, #[inline(always)] |$x| {
                                let $simd = simd;
                                $body
                            });
                        }
                        elementwise::for_chunks(x, (), |x, ()| dispatch!(level(), simd => pass(simd, x)));
                    }
                )*
                Self { $($name: $name::<T>, $in_place: $in_place::<T>,)* }
            }
        }

        /// Returns all unary operations.
        pub fn unary<T: Number>() -> Vec<Unary<T>> {
            vec![$(Unary { name: stringify!($name), run: $name, run_in_place: $in_place }),*]
        }
    };
}

unary! {
    /// `out[i] = |x[i]|`. The smallest integer is unchanged.
    abs, abs_in_place: |_simd, x| x.abs();
    /// `out[i] = -x[i]`. The smallest integer is unchanged.
    neg, neg_in_place: |simd, x| T::negate(simd, x);
    /// `out[i] = x[i] * x[i]`.
    square, square_in_place: |_simd, x| x * x;
    /// The larger of `x[i]` and 0. NaN stays NaN, -0 stays -0.
    relu, relu_in_place: |simd, x| T::relu(simd, x);
}

/// `out[i] = value`.
pub fn fill<T: Number>(value: T, out: &mut [T]) {
    elementwise::for_chunks(out, value, <[T]>::fill);
}

/// `out[i] = x[i]`.
pub fn copy<T: Number>(x: &[T], out: &mut [T]) -> Result<(), VectorError> {
    check("copy", "out", out.len(), x.len())?;
    elementwise::for_chunks2(x, out, (), |x, out, ()| out.copy_from_slice(x));
    Ok(())
}

/// `y[i] = y[i] + factor * x[i]`. Product and sum are rounded separately.
pub fn scaled_add<T: Number>(factor: T, x: &[T], y: &mut [T]) -> Result<(), VectorError> {
    (T::compiled().scaled_add)(factor, x, y)
}

pub(super) fn scaled_add_of<T: Number>(factor: T, x: &[T], y: &mut [T]) -> Result<(), VectorError> {
    #[inline(always)]
    fn pass<S: Simd, T: Number>(simd: S, factor: T, x: &[T], y: &mut [T]) {
        let factor = T::Vector::<S>::splat(simd, factor);
        elementwise::zip_in_place::<S, T::Vector<S>>(
            simd,
            y,
            x,
            #[inline(always)]
            |y, x| y + factor * x,
        );
    }
    check("scaled_add", "x", x.len(), y.len())?;
    elementwise::for_chunks2(
        x,
        y,
        factor,
        |x, y, factor| dispatch!(level(), simd => pass(simd, factor, x, y)),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    /// The mathematical result of an integer operation, before it wraps to the width of the type.
    fn reference_integer(name: &str, a: i128, b: i128) -> i128 {
        match name {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            "div" => a.checked_div(b).unwrap_or(0),
            "min" => a.min(b),
            "max" => a.max(b),
            "abs" => a.abs(),
            "neg" => -a,
            "square" => a * a,
            "relu" => a.max(0),
            _ => panic!("{name} has no reference implementation"),
        }
    }

    /// The result of a floating-point operation. `f32` operands go through `f64`, where one operation is innocuous double
    /// rounding.
    fn reference_float(name: &str, a: f64, b: f64) -> f64 {
        let extremum = |first: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { first };
        match name {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            "div" => a / b,
            "min" => extremum(if a < b || (a == b && a.is_sign_negative()) { a } else { b }),
            "max" => extremum(if a > b || (a == b && a.is_sign_positive()) { a } else { b }),
            "abs" => a.abs(),
            "neg" => -a,
            "square" => a * a,
            "relu" => {
                if a < 0.0 {
                    0.0
                } else {
                    a
                }
            }
            _ => panic!("{name} has no reference implementation"),
        }
    }

    /// Compares every operation, on every instruction set, into a slice and in place, with `reference`.
    fn compare<T: Number>(
        a: &[T],
        b: &[T],
        reference: impl Fn(&str, T, T) -> T,
        same: impl Fn(T, T) -> bool,
    ) {
        let check = |name: &str, out: &[T]| {
            for (i, &got) in out.iter().enumerate() {
                let expected = reference(name, a[i], b[i]);
                assert!(same(got, expected), "{name}({}, {}) = {got}, not {expected}", a[i], b[i]);
            }
        };
        on_every_level(|| {
            let mut out = vec![T::ZERO; a.len()];
            for operation in binary::<T>() {
                (operation.run)(a, b, &mut out).unwrap();
                check(operation.name, &out);
                out.copy_from_slice(a);
                (operation.run_in_place)(&mut out, b).unwrap();
                check(operation.name, &out);
            }
            for operation in unary::<T>() {
                (operation.run)(a, &mut out).unwrap();
                check(operation.name, &out);
                out.copy_from_slice(a);
                (operation.run_in_place)(&mut out);
                check(operation.name, &out);
            }
        });
    }

    /// All pairs of the values, so that every case occurs in every lane.
    fn pairs<T: Copy>(values: &[T]) -> (Vec<T>, Vec<T>) {
        values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).unzip()
    }

    #[test]
    fn floating_point_numbers_follow_ieee_754_also_for_special_values() {
        let values = [0.0, -0.0, 1.0, -2.5, 1e-40, -1e-45, 3e38, f32::MIN_POSITIVE, f32::NAN];
        let values = [&values[..], &[f32::INFINITY, f32::NEG_INFINITY]].concat();
        let (a, b) = pairs(&values);
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        compare(&a, &b, |name, a, b| reference_float(name, a.into(), b.into()) as f32, same);
        let values: Vec<f64> = values.iter().map(|&x| x.into()).chain([1e-310, 1e308]).collect();
        let (a, b) = pairs(&values);
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        compare(&a, &b, reference_float, same);
    }

    #[test]
    fn integers_wrap_and_division_never_fails() {
        let (a, b) = pairs(&[0, 1, -1, 2, -3, 7, 1_000_003, i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1]);
        compare(&a, &b, |name, a, b| reference_integer(name, a.into(), b.into()) as i32, |a, b| a == b);
        let (a, b) = pairs(&[0, 1, -1, 2, -3, 7, 1 << 40, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1]);
        compare(&a, &b, |name, a, b| reference_integer(name, a.into(), b.into()) as i64, |a, b| a == b);
    }

    proptest! {
        #![proptest_config(cases(20))]

        #[test]
        fn integers_of_any_length_equal_the_reference(pairs: Vec<(i32, i32)>, wide: Vec<(i64, i64)>) {
            let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            compare(&a, &b, |name, a, b| reference_integer(name, a.into(), b.into()) as i32, |a, b| a == b);
            let (a, b): (Vec<_>, Vec<_>) = wide.into_iter().unzip();
            compare(&a, &b, |name, a, b| reference_integer(name, a.into(), b.into()) as i64, |a, b| a == b);
        }
    }

    #[test]
    fn different_lengths_are_an_error_and_nothing_is_written() {
        let mut out = [7; 2];
        let error = add(&[1, 2, 3], &[1, 2, 3], &mut out).unwrap_err();
        assert_eq!(error.to_string(), "add: `out` has 2 elements, but 3 are needed");
        assert!(div_in_place(&mut out, &[1]).is_err());
        assert!(copy(&[1], &mut out).is_err());
        assert!(scaled_add(1, &[1], &mut out).is_err());
        assert_eq!(out, [7; 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn long_slices_are_processed_in_parallel_chunks() {
        let len = 3 * elementwise::CHUNK_LEN + 17;
        let x: Vec<i32> = (0..len as i32).collect();
        let mut out = vec![0; len];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            fill(5, &mut out);
            scaled_add(2, &x, &mut out).unwrap();
        });
        assert!(out.iter().zip(&x).all(|(&out, &x)| out == 5 + 2 * x));
        pool.install(|| copy(&x, &mut out)).unwrap();
        assert_eq!(out, x);
    }

    /// Checks that non-temporal stores, to any alignment, give the results of ordinary ones.
    fn check_non_temporal<T: Number>(integer: fn(i16) -> T) {
        let guard = integer(77);
        let len = 3 * elementwise::CHUNK_LEN + 29;
        let number = |i: usize| (i * 7919 % 1013) as i16 - 500;
        // The divisors are odd, so none is 0.
        let (a, b): (Vec<T>, Vec<T>) =
            (0..len).map(|i| (integer(number(i)), integer(number(i + 3) | 1))).unzip();
        let mut memory = vec![T::ZERO; len + 20];
        for (begin, threads) in [(0, 1), (1, 2), (9, 1), (18, 3)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut check = |name: &str, run: &(dyn Fn(&mut [T]) + Sync), right: &[T]| {
                memory.fill(guard);
                pool.install(|| run(&mut memory[begin..begin + len]));
                assert!(memory[begin..begin + len] == *right, "{name} {} {begin}", T::DTYPE);
                let (before, after) = (&memory[..begin], &memory[begin + len..]);
                assert!(before.iter().chain(after).all(|&x| x == guard), "{name} {} {begin}", T::DTYPE);
            };
            for op in binary::<T>() {
                let mut right = a.clone();
                (op.run_in_place)(&mut right, &b).unwrap();
                check(op.name, &|out| (op.run)(&a, &b, out).unwrap(), &right);
            }
            for op in unary::<T>() {
                let mut right = a.clone();
                (op.run_in_place)(&mut right);
                check(op.name, &|out| (op.run)(&a, out).unwrap(), &right);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn non_temporal_stores_give_the_same_results() {
        check_non_temporal(f32::from);
        check_non_temporal(f64::from);
        check_non_temporal(i32::from);
        check_non_temporal(i64::from);
    }
}
