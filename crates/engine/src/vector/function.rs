//! Elementary functions and activations, element by element, for `f32` and `f64`.
//!
//! A function is one row of the table below: its documentation, its names, the largest error in ULP that its test allows
//! (`f32`, `f64`), its reference implementation in `f64`, and its implementation on vectors.

use fearless_simd::{Select, Simd, prelude::*};

use super::{RealNumber, VectorError, check, elementwise};
use crate::dtype::{bits, from_bits};
use crate::kernel::level;
use crate::kernel::math::{self, reference};

/// Entry of the list of functions, for tests and benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct Function<T> {
    /// The name of the public function.
    pub name: &'static str,
    /// The function on a slice, with the parameter of the table row if it has one.
    pub run: fn(&[T], &mut [T]) -> Result<(), VectorError>,
    /// The function with the result in place of the operand.
    pub run_in_place: fn(&mut [T]),
    /// The reference implementation.
    pub reference: fn(f64) -> f64,
    /// Largest allowed error in ULP for `f32` and `f64`.
    pub ulps: [f64; 2],
    /// Exponent of two below which errors are measured in the ULP of that power: for functions with cancellation near a
    /// zero.
    pub least: Option<i32>,
}

impl<T> Function<T> {
    /// Returns the error of a value in ULP of a type with `digits` binary digits and smallest exponent `least`.
    pub fn error(&self, value: f64, expected: f64, digits: i32, least: i32) -> f64 {
        reference::ulps(value, expected, digits, self.least.unwrap_or(least))
    }
}

/// A function, compiled for a type.
#[derive(Debug)]
pub(crate) struct CompiledFunction<T> {
    /// The function of a slice. Functions without a parameter ignore the third argument.
    pub plain: fn(&[T], &mut [T], T),
    /// The function with non-temporal stores to a result that begins at a cache line.
    pub streaming: fn(&[T], &mut [T], T),
    /// The function of `a b + c`, or of `a b - c` if the flag is set. Both operations round, and their result is not
    /// stored. The slices have the length of the result.
    pub of_affine: fn([&[T]; 3], bool, T, &mut [T]),
}

/// Returns the parameter, or 0 for functions without one.
#[inline(always)]
pub(super) fn parameter<T: RealNumber>(given: Option<T>) -> T {
    given.unwrap_or(T::ZERO)
}

macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $in_place:ident ($($parameter:ident = $example:literal)?) [$f32:literal, $f64:literal] ULP
        $(from 2^$least:literal on)? of $reference:expr, |$simd:ident, $x:ident| $body:expr;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name<T: RealNumber>(x: &[T], $($parameter: T,)? out: &mut [T]) -> Result<(), VectorError> {
                check(stringify!($name), "out", out.len(), x.len())?;
                let given: [T; _] = [$($parameter)?];
                let CompiledFunction { plain, streaming, .. } = T::compiled_real().functions.$name;
                elementwise::streaming(x, out, parameter(given.first().copied()), [plain, streaming]);
                Ok(())
            }

            #[doc = concat!("[`", stringify!($name), "`] with the result in place.")]
            pub fn $in_place<T: RealNumber>(x: &mut [T], $($parameter: T)?) {
                let given: [T; _] = [$($parameter)?];
                elementwise::map_blocks_in_place(x, parameter(given.first().copied()), T::compiled_real().functions.$name.plain);
            }
        )*

        /// The functions, compiled for a type.
        #[derive(Debug)]
        pub(crate) struct CompiledFunctions<T> {
            $(pub $name: CompiledFunction<T>,)*
        }

        impl<T: RealNumber> CompiledFunctions<T> {
            pub(super) const fn new() -> Self {
                $(
                    mod $name {
                        use super::*;

                        #[inline(always)]
                        fn of<S: Simd, T: RealNumber>($simd: S, $x: T::Native<S>, parameter: T) -> T::Native<S> {
                            $(let $parameter = parameter;)?
                            let _ = parameter;
                            $body
                        }

                        #[inline(always)]
                        fn pass<S: Simd, T: RealNumber, const NON_TEMPORAL: bool>(
                            simd: S, x: &[T], parameter: T, out: &mut [T],
                        ) {
                            elementwise::map::<S, T::Native<S>, { elementwise::UNROLL_COSTLY }, NON_TEMPORAL>(
                                simd, x, out, #[inline(always)] |x| of(simd, x, parameter),
                            );
                        }

                        pub fn plain<T: RealNumber>(x: &[T], out: &mut [T], parameter: T) {
                            dispatch!(level(), simd => pass::<_, T, false>(simd, x, parameter, out));
                        }

                        pub fn streaming<T: RealNumber>(x: &[T], out: &mut [T], parameter: T) {
                            dispatch!(level(), simd => pass::<_, T, true>(simd, x, parameter, out));
                        }

                        pub fn of_affine<T: RealNumber>(
                            operands: [&[T]; 3], minus: bool, parameter: T, out: &mut [T],
                        ) {
                            #[inline(always)]
                            fn pass_affine<S: Simd, T: RealNumber>(
                                simd: S, operands: [&[T]; 3], minus: bool, parameter: T, out: &mut [T],
                            ) {
                                // One loop for both signs: a second one would double the code.
                                let sign = bits(T::Native::<S>::splat(simd, if minus { -T::ZERO } else { T::ZERO }));
                                elementwise::zip3::<S, T::Native<S>>(simd, operands, out, #[inline(always)] |a, b, c| {
                                    let c: T::Native<S> = from_bits(bits(c) ^ sign);
                                    of(simd, a * b + c, parameter)
                                });
                            }
                            dispatch!(level(), simd => pass_affine(simd, operands, minus, parameter, out));
                        }
                    }
                )*
                Self { $($name: CompiledFunction { plain: $name::plain, streaming: $name::streaming, of_affine: $name::of_affine },)* }
            }
        }

        /// Returns all functions with their error bounds and reference implementations.
        pub fn functions<T: RealNumber>() -> Vec<Function<T>> {
            vec![$(Function {
                name: stringify!($name),
                run: |x, out| $name(x, $(T::from_f64({ let $parameter = $example; $parameter }),)? out),
                run_in_place: |x| $in_place(x, $(T::from_f64({ let $parameter = $example; $parameter }))?),
                reference: $reference,
                ulps: [$f32, $f64],
                least: [$($least)?].first().copied(),
            }),*]
        }
    };
}

functions! {
    /// The square root, rounded correctly. Negative numbers give NaN, -0 gives -0.
    sqrt, sqrt_in_place () [0.5, 0.5] ULP of f64::sqrt, |_simd, x| x.sqrt();
    /// `1 / sqrt(x)`; see [`math::rsqrt`].
    rsqrt, rsqrt_in_place () [1.5, 1.5] ULP of reference::rsqrt, |simd, x| math::rsqrt::<S, T>(simd, x);
    /// `1 / x`, rounded correctly.
    recip, recip_in_place () [0.5, 0.5] ULP of f64::recip, |simd, x| math::recip::<S, T>(simd, x);
    /// `e^x`; see [`math::exp`].
    exp, exp_in_place () [1.5, 1.5] ULP of f64::exp, |simd, x| math::exp::<S, T>(simd, x);
    /// `e^x - 1`; see [`math::expm1`].
    expm1, expm1_in_place () [2.5, 2.5] ULP of f64::exp_m1, |simd, x| math::expm1::<S, T>(simd, x);
    /// The natural logarithm; see [`math::log`].
    log, log_in_place () [1.0, 1.0] ULP of f64::ln, |simd, x| math::log::<S, T>(simd, x);
    /// `ln(1 + x)`; see [`math::log1p`].
    log1p, log1p_in_place () [1.5, 1.5] ULP of f64::ln_1p, |simd, x| math::log1p::<S, T>(simd, x);
    /// The sine of an angle in radians; see [`math::sin`].
    sin, sin_in_place () [1.0, 1.0] ULP of f64::sin, |simd, x| math::sin::<S, T>(simd, x);
    /// The cosine of an angle in radians; see [`math::cos`].
    cos, cos_in_place () [1.0, 1.0] ULP of f64::cos, |simd, x| math::cos::<S, T>(simd, x);
    /// The error function; see [`math::erf`].
    erf, erf_in_place () [2.0, 2.0] ULP of reference::erf, |simd, x| math::erf::<S, T>(simd, x);
    /// `(e^x - e^-x) / (e^x + e^-x)`; see [`math::tanh`].
    tanh, tanh_in_place () [3.0, 3.0] ULP of f64::tanh, |simd, x| math::tanh::<S, T>(simd, x);
    /// `1 / (1 + e^-x)`; see [`math::sigmoid`].
    sigmoid, sigmoid_in_place () [2.5, 2.5] ULP of reference::sigmoid, |simd, x| math::sigmoid::<S, T>(simd, x);
    /// `x / (1 + e^-x)`, also called swish; see [`math::silu`].
    silu, silu_in_place () [3.0, 3.0] ULP of reference::silu, |simd, x| math::silu::<S, T>(simd, x);
    /// `ln(1 + e^x)`; see [`math::softplus`].
    softplus, softplus_in_place () [2.0, 2.0] ULP of reference::softplus, |simd, x| math::softplus::<S, T>(simd, x);
    /// `x (1 + erf(x / sqrt 2)) / 2`; see [`math::gelu`].
    gelu, gelu_in_place () [8.0, 10.0] ULP of reference::gelu, |simd, x| math::gelu::<S, T>(simd, x);
    /// The derivative of [`gelu`]; see [`math::gelu_derivative`].
    gelu_derivative, gelu_derivative_in_place () [7.0, 6.0] ULP from 2^-3 on of reference::gelu_derivative,
    |simd, x| math::gelu_derivative::<S, T>(simd, x);
    /// The tanh approximation of gelu; see [`math::gelu_tanh`].
    gelu_tanh, gelu_tanh_in_place () [3.5, 3.5] ULP of reference::gelu_tanh,
    |simd, x| math::gelu_tanh::<S, T>(simd, x);
    /// `x`, or `slope * x` where `x` is negative.
    leaky_relu, leaky_relu_in_place (slope = 0.01) [1.0, 1.0] ULP of |x| if x < 0.0 { 0.01 * x } else { x },
    |_simd, x| x.simd_lt(T::ZERO).select(x * slope, x);
    /// `x`, or `scale (e^x - 1)` where `x` is negative; see [`math::expm1`] for the error, to which the product adds half
    /// an ULP.
    elu, elu_in_place (scale = 1.5) [3.0, 3.0] ULP of |x| if x > 0.0 { x } else { 1.5 * x.exp_m1() },
    |simd, x| x.simd_gt(T::ZERO).select(x, math::expm1::<S, T>(simd, x) * scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::on_every_level;

    /// Special arguments, some thousand spread over all bit patterns, and many from -20 to 20.
    fn arguments() -> Vec<f64> {
        let special =
            [0.0, 1e-45, 1e-40, f64::from(f32::MIN_POSITIVE), 0.5, 1.0, 1.5, 88.7, 88.8, 103.9, 104.1];
        let large = [709.7, 710.5, 745.0, 746.0, 1e5, 2e5, 1e6, 2e6, 1e22, 3e38, f64::INFINITY, f64::NAN];
        let spread = (0..=u32::MAX).step_by(1_000_003).map(|bits| f64::from(f32::from_bits(bits)));
        // Not multiples of a power of two, whose logarithms are easy.
        let usual = (0..60_000).map(|i| f64::from(i) * 0.000_333_137);
        let positive = special.into_iter().chain(large).chain(usual);
        // Miri is about a thousand times slower and runs on a sample.
        let step = if cfg!(miri) { 97 } else { 1 };
        positive.flat_map(|x| [x, -x]).chain(spread).step_by(step).collect()
    }

    #[test]
    fn every_f32_function_keeps_its_bound_on_every_instruction_set() {
        let x: Vec<f32> = arguments().into_iter().map(|x| x as f32).collect();
        on_every_level(|| {
            for function in functions::<f32>() {
                let mut out = vec![0.0; x.len()];
                (function.run)(&x, &mut out).unwrap();
                for (&x, &y) in x.iter().zip(&out) {
                    let expected = (function.reference)(x.into());
                    let rounded = expected as f32;
                    let expected = if rounded.is_infinite() { rounded.into() } else { expected };
                    let error = function.error(y.into(), expected, 24, -126);
                    assert!(error <= function.ulps[0], "{}({x:e}) = {y:e}: {error} ULP", function.name);
                    let zeros = y == 0.0 && expected == 0.0;
                    assert!(
                        !zeros || y.to_bits() == rounded.to_bits(),
                        "{}({x}): sign of zero",
                        function.name
                    );
                }
            }
        });
    }

    /// Functions whose reference is the standard library.
    const STANDARD: [&str; 9] = ["sqrt", "recip", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh"];

    #[test]
    fn every_f64_function_is_close_to_its_reference_on_every_instruction_set() {
        let x = arguments();
        on_every_level(|| {
            for function in functions::<f64>() {
                let mut out = vec![0.0; x.len()];
                (function.run)(&x, &mut out).unwrap();
                for (&x, &y) in x.iter().zip(&out) {
                    let expected = (function.reference)(x);
                    // The standard library is accurate to one or two ULP, our own references to about 1e-14, and less in
                    // the tails, by the magnitude of the exponent.
                    let slack = if STANDARD.contains(&function.name) && !cfg!(miri) {
                        2.0
                    } else {
                        40.0 + 4.0 * expected.abs().ln().abs().min(745.0)
                    };
                    let allowed = function.ulps[1] + slack;
                    let error = function.error(y, expected, 53, -1022);
                    assert!(error <= allowed, "{}({x:e}) = {y:e}: {error} ULP", function.name);
                }
            }
        });
    }

    #[test]
    fn a_result_does_not_depend_on_the_position_of_an_element() {
        let x: Vec<f32> = (0..232).map(|i| (i as f32 - 100.0) * 0.37).collect();
        on_every_level(|| {
            for function in functions::<f32>() {
                let mut whole = vec![0.0; x.len()];
                (function.run)(&x, &mut whole).unwrap();
                for len in (0..200).step_by(if cfg!(miri) { 61 } else { 1 }) {
                    let first = len % 32;
                    let mut out = vec![0.0; len];
                    (function.run)(&x[first..first + len], &mut out).unwrap();
                    let mut place = x[first..first + len].to_vec();
                    (function.run_in_place)(&mut place);
                    // The payload of a NaN is not specified.
                    let bits = |x: &f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
                    let bits = |x: &[f32]| x.iter().map(bits).collect::<Vec<_>>();
                    assert_eq!(bits(&out), bits(&whole[first..first + len]), "{} of {len}", function.name);
                    assert_eq!(bits(&out), bits(&place), "{} in place", function.name);
                }
            }
        });
    }

    /// Checks that non-temporal stores, to any alignment, give the results of ordinary ones.
    fn check_non_temporal<T: RealNumber>() {
        let len = 2 * elementwise::CHUNK_LEN + 29;
        let x: Vec<T> = (0..len).map(|i| T::from_f64((i * 7919 % 4001) as f64 * 0.01 - 20.0)).collect();
        let bits = |x: &[T]| {
            let bit = |x: &T| if x.to_f64().is_nan() { f64::NAN.to_bits() } else { x.to_f64().to_bits() };
            x.iter().map(bit).collect::<Vec<_>>()
        };
        for function in functions::<T>() {
            let mut right = x.clone();
            x.chunks(1000).zip(right.chunks_mut(1000)).for_each(|(x, out)| (function.run)(x, out).unwrap());
            for begin in [0, 5] {
                let mut out = vec![T::ZERO; len + begin];
                (function.run)(&x, &mut out[begin..]).unwrap();
                assert!(bits(&out[begin..]) == bits(&right), "{} {} {begin}", function.name, T::DTYPE);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn non_temporal_stores_give_the_same_results() {
        // The instruction set is overridden on one thread only.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        pool.install(|| {
            on_every_level(|| {
                check_non_temporal::<f32>();
                check_non_temporal::<f64>();
            });
        });
    }

    #[test]
    fn different_lengths_are_an_error() {
        for function in functions::<f64>() {
            let error = (function.run)(&[1.0; 3], &mut [0.0; 4]).unwrap_err().to_string();
            assert_eq!(error, format!("{}: `out` has 4 elements, but 3 are needed", function.name));
        }
    }
}
