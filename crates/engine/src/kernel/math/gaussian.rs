//! The error function, gelu, and the tanh approximation of gelu.
//!
//! Near 0, erf is x times a polynomial in x^2. Everything else comes from the tail probability of the standard normal
//! distribution, `P(X > a) = e^(-a^2/2) E(a)` for a >= 0. E (up to a constant the Mills ratio) decreases slowly and is a
//! quotient of two polynomials with positive coefficients, so that nothing cancels. Both polynomials are monic, which saves
//! two multiplications; their common factor is part of the exponential. The exponent is reduced with a fused multiply-add
//! before it is rounded, so the tails are as accurate as the rest.

use fearless_simd::{Select, Simd, prelude::*};

use super::avx512::exp2_of_32nds;
use super::exponential::{exp_scaled, exp2_scaled, power, x_sigmoid};
use super::real::{two_product, two_sum};
use super::{Real, Vector, at_least, at_most, bits, polynomial, splat};

/// Returns `E(a)`, where `e^(-a^2/2) E(a)` is the probability of values above `a >= 0`, divided by `GAUSSIAN_FACTOR`, as
/// numerator and denominator.
#[inline(always)]
fn mills_ratio<S: Simd, T: Real>(simd: S, a: Vector<S, T>) -> [Vector<S, T>; 2] {
    let [above, below] = T::MILLS_RATIO;
    [monic::<S, T>(simd, a, above), monic::<S, T>(simd, a, below)]
}

/// Evaluates a polynomial whose last coefficient is 1 and not listed.
#[inline(always)]
fn monic<S: Simd, T: Real>(simd: S, x: Vector<S, T>, coefficients: &[T]) -> Vector<S, T> {
    let mut sum = splat::<S, T>(simd, T::ONE);
    for (i, &c) in coefficients.iter().rev().enumerate() {
        let c = splat::<S, T>(simd, c);
        sum = if i == 0 { x + c } else { sum.mul_add(x, c) };
    }
    sum
}

/// Returns `GAUSSIAN_FACTOR` times `e^(-a^2/2)`, for `a` from 0 to `GELU_MAX`.
///
/// `a^2 = r - 2 n ln 2` with an integer n. The product with the upper part of ln 2 is exact, and a^2 is added to it before
/// rounding. 2^n may be subnormal, so a part of it is a factor of the coefficients.
#[inline(always)]
fn gaussian<S: Simd, T: Real>(simd: S, a: Vector<S, T>) -> Vector<S, T> {
    if let Some(gaussian) = gaussian_by_table::<S, T>(simd, a) {
        return gaussian;
    }
    let shifter = splat::<S, T>(simd, T::GAUSSIAN_SHIFTER);
    let shifted = (a * a).mul_add(splat::<S, T>(simd, -T::HALF * T::LOG2_E), shifter);
    let n = shifted - shifter;
    let r = a.mul_add_precise(a, n * (T::TWO * T::LN_2_HIGH));
    let r = n.mul_add(splat::<S, T>(simd, T::GAUSSIAN_LN_2_LOW), r);
    polynomial::<S, T>(simd, r, T::GAUSSIAN) * power::<S, T>(bits(shifted))
}

/// Computes the same with a table lookup and n in 32nds, or returns `None` without AVX-512.
#[inline(always)]
fn gaussian_by_table<S: Simd, T: Real>(simd: S, a: Vector<S, T>) -> Option<Vector<S, T>> {
    let shifter = splat::<S, T>(simd, T::GAUSSIAN_TABLE_SHIFTER);
    let square = a * a;
    let shifted = square.mul_add(splat::<S, T>(simd, -T::HALF * T::LOG2_E), shifter);
    let power = exp2_of_32nds::<S, T>(simd, shifted)?;
    let n = shifted - shifter;
    let ln_2 = splat::<S, T>(simd, T::TWO * T::LN_2_HIGH + T::GAUSSIAN_LN_2_LOW);
    // The square plus its rounding error.
    let r = n.mul_add(ln_2, square) + a.mul_add(a, -square);
    Some(polynomial::<S, T>(simd, r, T::GAUSSIAN_AFTER_TABLE) * power)
}

/// Returns erf(x) for |x| <= 1.
#[inline(always)]
fn erf_near_zero<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    polynomial::<S, T>(simd, x * x, T::ERF).mul_add(x, x)
}

/// The error function, `2/sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`. Error at most 2 ULP in both widths.
/// Minus infinity gives -1, infinity 1, -0 gives -0.
#[inline(always)]
pub fn erf<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let size = x.abs();
    let small = erf_near_zero::<S, T>(simd, x);
    let bounded = at_most::<S, T>(size, T::ERF_MAX);
    let [above, below] = mills_ratio::<S, T>(simd, bounded * T::from_f64(std::f64::consts::SQRT_2));
    let power = exp_scaled::<S, T>(simd, -(bounded * bounded));
    let complement = power.times(above * (T::TWO * T::GAUSSIAN_FACTOR) / below) * power.last_power();
    let large = (splat::<S, T>(simd, T::ONE) - complement).copysign(x);
    size.simd_lt(T::ONE).select(small, large)
}

/// The Gaussian error linear unit, `x (1 + erf(x / sqrt 2)) / 2`. Error at most 8 ULP in f32 (7 with fused multiply-add),
/// 10 in f64. Minus infinity gives -0, infinity infinity, -0 gives -0.
#[inline(always)]
pub fn gelu<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let a = x.abs().min(splat::<S, T>(simd, T::GELU_MAX));
    let [above, below] = mills_ratio::<S, T>(simd, a);
    let lost = above * a / below;
    // -0 minus a number is its negative, 0 included.
    (-lost).mul_add(gaussian::<S, T>(simd, a), at_least::<S, T>(x, -T::ZERO))
}

/// The derivative of [`gelu`]: the probability below x, plus x times the density at x. It has a zero, so the error of small
/// results is measured in ULP of 1/8: at most 7 in f32, 6 in f64. Minus infinity gives -0, infinity 1.
#[inline(always)]
pub fn gelu_derivative<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    let a = at_most::<S, T>(x.abs(), T::GELU_MAX);
    let [above, below] = mills_ratio::<S, T>(simd, a);
    let gaussian = gaussian::<S, T>(simd, a);
    let root = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    let root = splat::<S, T>(simd, T::from_f64(-root / T::GAUSSIAN_FACTOR.to_f64()));
    let left = a.mul_add(root, above / below);
    let right = (-left).mul_add(gaussian, splat::<S, T>(simd, T::ONE));
    x.simd_lt(T::ZERO).select(left * gaussian, right)
}

/// -sqrt(8/pi) log2 e, as a sum of two numbers.
const GELU_TANH_LINEAR: [f64; 2] = [-2.302_208_198_144_324_8, -1.313_282_604_076_971_2e-16];
/// -sqrt(8/pi) log2 e times 0.044715, as a sum of two numbers.
const GELU_TANH_CUBIC: [f64; 2] = [-0.102_943_239_580_023_5, 5.978_177_400_718_744e-18];

/// Returns `GELU_TANH_LINEAR x + GELU_TANH_CUBIC x^3` as a value and its rounding error.
#[inline(always)]
fn cubic<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> [Vector<S, T>; 2] {
    let parts = |[high, low]: [f64; 2]| {
        let first = T::from_f64(high);
        [splat::<S, T>(simd, first), splat::<S, T>(simd, T::from_f64(high - first.to_f64() + low))]
    };
    let ([a, a_low], [b, b_low]) = (parts(GELU_TANH_LINEAR), parts(GELU_TANH_CUBIC));
    let (square, square_low) = two_product(x, x);
    let (cube, cube_low) = two_product(square, b);
    let (sum, sum_low) = two_sum(a, cube);
    let low = square_low.mul_add(b, square.mul_add(b_low, a_low)) + cube_low + sum_low;
    let (high, high_low) = two_product(sum, x);
    [high, low.mul_add(x, high_low)]
}

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, an approximation of [`gelu`] (D. Hendrycks, K. Gimpel, "Gaussian
/// error linear units", 2016). Error at most 3.5 ULP in both widths. Minus infinity gives -0, infinity infinity,
/// -0 gives -0.
#[inline(always)]
pub fn gelu_tanh<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    // (1 + tanh(y/2)) / 2 = sigmoid(y)
    let bounded = x.clamp(-T::GELU_TANH_MAX, T::GELU_TANH_MAX);
    let [high, low] = cubic::<S, T>(simd, bounded.abs());
    x_sigmoid::<S, T>(x, bounded, exp2_scaled::<S, T>(simd, high, low))
}
