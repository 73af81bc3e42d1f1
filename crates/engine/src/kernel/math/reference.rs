//! Reference implementations of the vector functions: the textbook formulas in `f64`, on one number.
//!
//! Their relative error is about 1e-14, also for tiny results, which is far below half an ULP of `f32`.

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// `x / (1 + e^-x)`, and -0 for minus infinity.
pub fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) }
}

/// `ln(1 + e^x)`.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The error function: the Taylor series of `e^(x^2) erf(x)`, whose terms are all positive, then the continued fraction
/// of the complement.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 { (1.0 - erfc(x.abs())).copysign(x) } else { series(x) }
}

/// `1 - erf(x)`, accurate where it is tiny.
pub fn erfc(x: f64) -> f64 {
    if x < 1.0 {
        return 1.0 - erf(x);
    }
    if x == f64::INFINITY {
        return 0.0;
    }
    // e^(-x^2) / (sqrt(pi) (x + (1/2) / (x + 1 / (x + (3/2) / (x + ...)))))
    let terms = 20 + (300.0 / (x * x)) as i32;
    let fraction = (1..=terms).rev().fold(x, |rest, k| x + 0.5 * f64::from(k) / rest);
    (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
}

/// `2/sqrt(pi) e^(-x^2) (x + 2x^3/3 + 4x^5/15 + ...)`.
fn series(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for k in 1..100 {
        term *= 2.0 * x * x / f64::from(2 * k + 1);
        sum += term;
        if term.abs() < 1e-17 * sum.abs() {
            break;
        }
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `x (1 + erf(x / sqrt 2)) / 2`, and -0 for minus infinity.
pub fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

/// The derivative of [`gelu`], -0 for minus infinity and 1 for infinity.
pub fn gelu_derivative(x: f64) -> f64 {
    let root = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    let density = (-0.5 * x * x).exp() * root;
    if density == 0.0 {
        return if x < 0.0 { -0.0 } else { 1.0 };
    }
    0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2) + x * density
}

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, and -0 for minus infinity.
pub fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x);
    x * sigmoid(2.0 * inner)
}

/// `1 / sqrt(x)`.
pub fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Returns the distance between `value`, of a type with `digits` binary digits and smallest exponent `least`, and
/// `expected`, in units in the last place of the latter. Equal infinities, two NaN and equal zeros have distance 0.
pub fn ulps(value: f64, expected: f64, digits: i32, least: i32) -> f64 {
    if value == expected || (value.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    if !value.is_finite() || !expected.is_finite() {
        return f64::INFINITY;
    }
    let exponent = ((expected.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    (value - expected).abs() / 2f64.powi(exponent) * 2f64.powi(digits - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the exp of Miri is wrong in the last place, differently each time")]
    fn erf_has_its_known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, wanted) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (2.0, 0.995_322_265_0),
            (2.4, 0.999_311_486_1),
            (3.0, 0.999_977_909_5),
        ] {
            assert!((erf(x) - wanted).abs() < 1e-10 && erf(-x) == -erf(x), "erf({x}) = {}", erf(x));
        }
        assert!((erf(2.999_999_999) - erf(3.000_000_001)).abs() < 1e-11, "the two formulas meet");
        assert_eq!((erf(f64::INFINITY), erf(f64::NEG_INFINITY)), (1.0, -1.0));
        assert!(erf(f64::NAN).is_nan());
    }
}
