//! The error function and the two forms of gelu.
//!
//! Near 0, erf is x times a polynomial in x^2. Beyond, `1 - erf(t) = e^(-t^2) E(t)`, where E falls slowly and is a
//! polynomial in `1 / (1 + 0.6 t)`. The gelus multiply by a probability that vanishes quickly for negative x; its exponent
//! is carried as a sum of two numbers, so that the tail is as accurate as the rest.

use fearless_simd::{Select, Simd, prelude::*};

use super::exponential::{exp_scaled, exp2_scaled, gated};
use super::{Real, Vector, bits, from_bits, polynomial, splat};

/// `P`, `x z` and `z` with `z = 1 / (1 + slope * x)` and `e^(t^2) (1 - erf(t)) = P z`, where `slope * x = 0.6 t`, for t from
/// 0.7 on. x z and not z comes from the division: a product with x is then rounded once less.
#[inline(always)]
fn complement<S: Simd, T: Real>(simd: S, x: Vector<S, T>, slope: f64) -> [Vector<S, T>; 3] {
    let one = splat::<S, T>(simd, T::ONE);
    let slope = splat::<S, T>(simd, T::from_f64(slope));
    let xz = x / x.mul_add(slope, one);
    // 2z - 1
    let argument = xz.mul_add(-(slope + slope), one);
    [polynomial::<S, T>(simd, argument, T::ERFCX), xz, one - xz * slope]
}

/// erf for |x| <= 1.
#[inline(always)]
fn erf_near_zero<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    polynomial::<S, T>(simd, x * x, T::ERF).mul_add(x, x)
}

/// The error function, `2/sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`. Error at most 2 ULP in both widths. Minus infinity gives -1, infinity 1, -0 gives -0.
#[inline(always)]
pub fn erf<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = x.abs();
    let small = erf_near_zero::<S, T>(simd, x);
    let bounded = size.clamp(T::NIL, T::ERF_MAX);
    let [polynomial, _, z] = complement::<S, T>(simd, bounded, 0.6);
    let complement = exp_scaled::<S, T>(simd, -(bounded * bounded), None).value() * (polynomial * z);
    let large = (splat::<S, T>(simd, T::ONE) - complement).copysign(x);
    size.simd_lt(T::ONE).select(small, large)
}

/// `x (1 + erf(x / sqrt 2)) / 2`: x times the probability that a standard normal variable is below x. Error at most 4 ULP in both widths. Minus infinity gives -0, infinity infinity, -0 gives -0.
#[inline(always)]
pub fn gelu<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let bounded = x.abs().clamp(T::NIL, T::GELU_MAX);
    // |x| as a number with an exact square and a small rest.
    let upper: Vector<S, T> = from_bits(bits(bounded) & T::UPPER_HALF);
    let lower = bounded - upper;
    let density =
        exp_scaled::<S, T>(simd, upper * upper * -T::HALF, Some((bounded + upper) * lower * -T::HALF));
    // |x| times the probability beyond it.
    let slope = 0.6 * std::f64::consts::FRAC_1_SQRT_2;
    let [polynomial, xz, _] = complement::<S, T>(simd, bounded, slope);
    let beyond = density.times(polynomial * xz * T::HALF) * density.scale();
    // -0 minus a number is its negative, 0 included.
    let negative = x.simd_lt(T::NIL);
    let tails = negative.select(splat::<S, T>(simd, -T::NIL), x) - beyond;
    let near = erf_near_zero::<S, T>(simd, x * T::from_f64(std::f64::consts::FRAC_1_SQRT_2));
    let centre = x * near.mul_add(splat::<S, T>(simd, T::HALF), splat::<S, T>(simd, T::HALF));
    x.abs().simd_lt(T::ONE).select(centre, tails)
}

/// -sqrt(8/pi) log2 e, as a sum of two numbers.
const SLOPE: [f64; 2] = [-2.302_208_198_144_324_8, -1.313_282_604_076_971_2e-16];
/// -sqrt(8/pi) log2 e times 0.044715, likewise.
const CUBE: [f64; 2] = [-0.102_943_239_580_023_5, 5.978_177_400_718_744e-18];

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, an approximation of [`gelu`] (D. Hendrycks, K. Gimpel, "Gaussian
/// error linear units", 2016). Error at most 3.5 ULP in both widths. Minus infinity gives -0, infinity infinity,
/// -0 gives -0.
#[inline(always)]
pub fn gelu_tanh<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    // (1 + tanh(y/2)) / 2 = sigmoid(y)
    let bounded = x.clamp(-T::GELU_TANH_MAX, T::GELU_TANH_MAX);
    let [high, low] = T::cubic(simd, SLOPE, CUBE, bounded.abs());
    gated::<S, T>(x, bounded, exp2_scaled::<S, T>(simd, high, low))
}
