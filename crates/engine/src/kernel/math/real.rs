//! Constants and polynomial coefficients of the functions in both widths.
//!
//! The polynomials are our own minimax fits: a Remez exchange in 60-digit arithmetic that minimises the relative error of
//! the whole function, then rounded to the type. The documentation of each constant states the interval, the comment before
//! its value the error of the fit before rounding.

#![allow(
    clippy::unreadable_literal,
    clippy::excessive_precision,
    reason = "coefficients are not read digit by digit"
)]

use fearless_simd::{Simd, SimdFloatElement, prelude::*};

use super::bits;
use super::payne_hanek::{ReducedAngle, reduce_large};
use crate::dtype::Element;

/// A floating-point type with the constants that the functions of [`math`](super) need.
///
/// Polynomials list their coefficients from the constant term upwards.
pub trait Real: Element + SimdFloatElement<Bits: From<u8>> {
    /// Rounds `x` to the type.
    fn from_f64(x: f64) -> Self;
    /// Converts to `f64`, exactly.
    fn to_f64(self) -> f64;

    /// Number of stored bits of the mantissa.
    const MANTISSA: u32;
    /// 1.5 x 2^MANTISSA + twice the bias. Adding it rounds to an integer n and leaves n + twice the bias in the lowest
    /// bits.
    const EXPONENT_SHIFTER: Self;
    /// Like `EXPONENT_SHIFTER`, for n - 1 + the bias.
    const HALF_SHIFTER: Self;
    /// 1.5 x 2^(MANTISSA - 4), or - 3. Adding it rounds to a multiple of 1/16 (1/8) and leaves its fraction in the lowest
    /// bits.
    const TABLE_SHIFTER: Self;
    /// 1.5 x 2^MANTISSA. Adding it rounds to an integer and leaves it in the lowest bits.
    const INTEGER_SHIFTER: Self;
    /// The bits of 2^MANTISSA. A bitwise or with an integer gives the bits of 2^MANTISSA + the integer.
    const INTEGER_BITS: Self::Bits;
    /// 2^MANTISSA + the bias.
    const INTEGER_BIAS: Self;

    /// 1/2.
    const HALF: Self;
    /// 1.
    const ONE: Self;
    /// 2.
    const TWO: Self;
    /// Infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The smallest normal number.
    const MIN_POSITIVE: Self;

    /// log2 e.
    const LOG2_E: Self;
    /// Upper part of ln 2, with so few bits that the product with an exponent is exact.
    const LN_2_HIGH: Self;
    /// ln 2 minus `LN_2_HIGH`.
    const LN_2_LOW: Self;
    /// The bits of 1/sqrt(2).
    const SQRT_HALF_BITS: Self::Bits;
    /// The bits of 1 minus the bits of 1/sqrt(2).
    const ONE_MINUS_SQRT_HALF_BITS: Self::Bits;
    /// Mask of the stored bits of the mantissa.
    const MANTISSA_BITS: Self::Bits;
    /// A power of two that makes subnormal numbers normal, and its exponent.
    const SUBNORMAL_SCALE: [Self; 2];

    /// exp is 0 below and infinite above this range.
    const EXP_RANGE: [Self; 2];
    /// expm1 is -1 below this.
    const EXPM1_MIN: Self;
    /// tanh is 1 above this.
    const TANH_MAX: Self;
    /// erf is 1 above this.
    const ERF_MAX: Self;
    /// silu is 0 below minus this.
    const SILU_MAX: Self;
    /// gelu is 0 below minus this, and the identity above.
    const GELU_MAX: Self;
    /// gelu_tanh is 0 below minus this, and the identity above.
    const GELU_TANH_MAX: Self;

    /// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2.
    const EXP: &'static [Self];
    /// (e^r - 1 - r) / r^2 for |r| <= ln(2)/32 (f32) or ln(2)/16 (f64).
    const EXP_AFTER_TABLE: &'static [Self];
    /// 2^(j/16) for j from 0 to 15 (f32), or 2^(j/8) from 0 to 7 (f64).
    const EXP2_TABLE: &'static [Self];
    /// (2^r - 1) / r for |r| <= 1/2.
    const EXP2: &'static [Self];
    /// (ln((1+s)/(1-s)) - 2s) / s^3 in s^2, for |s| <= 0.172.
    const LOG: &'static [Self];
    /// (sin r - r) / r^3 in r^2, for |r| <= pi/4.
    const SIN: &'static [Self];
    /// (cos r - 1 + r^2/2) / r^4 in r^2, for |r| <= pi/4.
    const COS: &'static [Self];
    /// erf(x)/x - 1 in x^2, for |x| <= 1.
    const ERF: &'static [Self];
    /// e^(a^2/2) erfc(a/sqrt(2)) / 2 divided by `GAUSSIAN_FACTOR`, as a numerator and a denominator whose last coefficients
    /// are 1 and not listed, for a from 0 to 15 (f32) or 39 (f64). In f32 it compensates for the error of
    /// `GAUSSIAN_LN_2_LOW`: at 15 it is smaller by 3e-7.
    const MILLS_RATIO: [&'static [Self]; 2];
    /// The factor that the quotient of `MILLS_RATIO` leaves out, about 1/sqrt(2 pi).
    const GAUSSIAN_FACTOR: Self;
    /// 2 ln 2 minus twice `LN_2_HIGH`. In f32 the sum of both is representable.
    const GAUSSIAN_LN_2_LOW: Self;
    /// `GAUSSIAN_FACTOR` times 2^-40 (f32) or 2^-100 (f64) times e^(-r/2), for |r| <= ln 2.
    const GAUSSIAN: &'static [Self];
    /// Adding it rounds to an integer n and leaves n + 40 (n + 100), with the bias of the exponent, in the lowest bits.
    const GAUSSIAN_SHIFTER: Self;
    /// Like `GAUSSIAN`, for |r| <= ln(2)/32; empty if the type has no table.
    const GAUSSIAN_AFTER_TABLE: &'static [Self];
    /// Like `GAUSSIAN_SHIFTER`, for n in 32nds.
    const GAUSSIAN_TABLE_SHIFTER: Self;

    /// Reduces `x >= 0` to quarter turns and a remainder.
    fn reduce_angle<S: Simd>(simd: S, x: Self::Native<S>) -> ReducedAngle<S, Self>;
}

/// 2/pi.
const FRAC_2_PI: f64 = std::f64::consts::FRAC_2_PI;
/// pi/2 in parts of 33 bits, whose products with an integer of 20 bits are exact, and the remainder.
const FRAC_PI_2_PARTS: [f64; 4] =
    [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32];

/// 2^(j/32) for j from 0 to 31, rounded.
pub(super) const EXP2_TABLE_32: [f32; 32] = [
    1.0,
    1.0218972,
    1.0442737,
    1.0671405,
    1.0905077,
    1.1143868,
    1.1387886,
    1.1637249,
    1.1892071,
    1.2152474,
    1.2418578,
    1.269051,
    1.2968396,
    1.3252367,
    1.3542556,
    1.38391,
    std::f32::consts::SQRT_2,
    1.4451808,
    1.4768262,
    1.5091645,
    1.5422108,
    1.5759809,
    1.6104903,
    1.6457555,
    1.6817929,
    1.7186193,
    1.7562522,
    1.7947091,
    1.8340081,
    1.8741677,
    1.9152066,
    1.9571441,
];

impl Real for f32 {
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as Self
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    const MANTISSA: u32 = 23;
    const EXPONENT_SHIFTER: Self = 12_582_912.0 + 254.0;
    const HALF_SHIFTER: Self = 12_582_912.0 + 126.0;
    const TABLE_SHIFTER: Self = 786_432.0;
    const INTEGER_SHIFTER: Self = 12_582_912.0;
    const INTEGER_BITS: u32 = 0x4b00_0000;
    const INTEGER_BIAS: Self = 8_388_608.0 + 127.0;

    const HALF: Self = 0.5;
    const ONE: Self = 1.0;
    const TWO: Self = 2.0;
    const INFINITY: Self = Self::INFINITY;
    const NAN: Self = Self::NAN;
    const MIN_POSITIVE: Self = Self::MIN_POSITIVE;

    const LOG2_E: Self = std::f32::consts::LOG2_E;
    const LN_2_HIGH: Self = 0.69314575;
    const LN_2_LOW: Self = 1.4286068e-6;
    const SQRT_HALF_BITS: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    const ONE_MINUS_SQRT_HALF_BITS: u32 = 1f32.to_bits() - Self::SQRT_HALF_BITS;
    const MANTISSA_BITS: u32 = 0x007f_ffff;
    const SUBNORMAL_SCALE: [Self; 2] = [33_554_432.0, 25.0];

    const EXP_RANGE: [Self; 2] = [-104.0, 89.0];
    const EXPM1_MIN: Self = -20.0;
    const TANH_MAX: Self = 9.2;
    const ERF_MAX: Self = 4.0;
    const SILU_MAX: Self = 110.0;
    const GELU_MAX: Self = 15.0;
    const GELU_TANH_MAX: Self = 11.0;

    // 2^-28.3
    const EXP: &'static [Self] = &[0.49999994, 0.16666518, 0.04166836, 0.008368977, 0.0013818183];
    // 2^-27.6
    const EXP_AFTER_TABLE: &'static [Self] = &[0.50000978, 0.16666862];
    const EXP2_TABLE: &'static [Self] = &{
        let mut powers = [0.0; 16];
        let mut j = 0;
        while j < 16 {
            powers[j] = EXP2_TABLE_32[2 * j];
            j += 1;
        }
        powers
    };
    // 2^-26.5
    const EXP2: &'static [Self] =
        &[0.6931471879, 0.240226498, 0.05550357435, 0.009618237467, 0.001339073522, 0.000154035165];
    // 2^-36.5
    const LOG: &'static [Self] = &[0.6666666, 0.40000343, 0.2853668, 0.23594803];
    // 2^-27.8
    const SIN: &'static [Self] = &[-0.16666652, 0.008332051, -0.00019500061];
    // 2^-32.6
    const COS: &'static [Self] = &[0.04166664, -0.0013887141, 2.4413182e-5];
    // 2^-29.6
    const ERF: &'static [Self] =
        &[0.12837917, -0.37612626, 0.11283585, -0.026853805, 0.005188316, -0.00080100907, 7.853508e-5];
    // 2^-26.5: the error of the rounded coefficients and the factor below, found by a search around those of the fit.
    const MILLS_RATIO: [&'static [Self]; 2] = [
        &[118.724625, 104.705025, 43.971012, 9.80263],
        &[94.72925, 159.12619, 114.68325, 44.95892, 9.803195],
    ];
    const GAUSSIAN_FACTOR: Self = 0.39894524;
    const GAUSSIAN_LN_2_LOW: Self = 2.0 * (std::f32::consts::LN_2 - Self::LN_2_HIGH);
    // 2^-26.5; the first coefficient is exact.
    const GAUSSIAN: &'static [Self] = &[
        3.6283858e-13,
        -1.8141929e-13,
        4.5354823e-14,
        -7.5590635e-15,
        9.448876e-16,
        -9.4895718e-17,
        7.899498e-18,
    ];
    const GAUSSIAN_SHIFTER: Self = 12_582_912.0 + 127.0 + 40.0;
    // 2^-24.2
    const GAUSSIAN_AFTER_TABLE: &'static [Self] = &[3.6283858e-13, -1.8142195e-13, 4.5354823e-14];
    const GAUSSIAN_TABLE_SHIFTER: Self = 393_216.0 + 127.0 + 40.0;

    #[inline(always)]
    fn reduce_angle<S: Simd>(simd: S, x: S::f32s) -> ReducedAngle<S, Self> {
        // The remainder is computed in f64, where two parts of pi/2 are enough below this limit.
        const LIMIT: f32 = 131_072.0;
        let shifted = x.mul_add(FRAC_2_PI as f32, Self::INTEGER_SHIFTER);
        let turns = shifted - Self::INTEGER_SHIFTER;
        let ((x0, x1), (turns0, turns1)) = (x.widen(), turns.widen());
        let rest0 = (x0 - turns0 * FRAC_PI_2_PARTS[0]) - turns0 * FRAC_PI_2_PARTS[1];
        let rest1 = (x1 - turns1 * FRAC_PI_2_PARTS[0]) - turns1 * FRAC_PI_2_PARTS[1];
        let [high, low] = narrow(simd, rest0, rest1);
        let quarter = ReducedAngle { turns: bits(shifted), high, low };
        if x.simd_lt(LIMIT).all_true() { quarter } else { reduce_large(simd, x, LIMIT, quarter) }
    }
}

impl Real for f64 {
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    const MANTISSA: u32 = 52;
    const EXPONENT_SHIFTER: Self = 6_755_399_441_055_744.0 + 2046.0;
    const HALF_SHIFTER: Self = 6_755_399_441_055_744.0 + 1022.0;
    const TABLE_SHIFTER: Self = 844_424_930_131_968.0;
    const INTEGER_SHIFTER: Self = 6_755_399_441_055_744.0;
    const INTEGER_BITS: u64 = 0x4330_0000_0000_0000;
    const INTEGER_BIAS: Self = 4_503_599_627_370_496.0 + 1023.0;

    const HALF: Self = 0.5;
    const ONE: Self = 1.0;
    const TWO: Self = 2.0;
    const INFINITY: Self = Self::INFINITY;
    const NAN: Self = Self::NAN;
    const MIN_POSITIVE: Self = Self::MIN_POSITIVE;

    const LOG2_E: Self = std::f64::consts::LOG2_E;
    const LN_2_HIGH: Self = 0.693147180559663;
    const LN_2_LOW: Self = 2.8235290563031577e-13;
    const SQRT_HALF_BITS: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    const ONE_MINUS_SQRT_HALF_BITS: u64 = 1f64.to_bits() - Self::SQRT_HALF_BITS;
    const MANTISSA_BITS: u64 = 0x000f_ffff_ffff_ffff;
    const SUBNORMAL_SCALE: [Self; 2] = [18_014_398_509_481_984.0, 54.0];

    const EXP_RANGE: [Self; 2] = [-746.0, 710.0];
    const EXPM1_MIN: Self = -40.0;
    const TANH_MAX: Self = 20.0;
    const ERF_MAX: Self = 6.0;
    const SILU_MAX: Self = 760.0;
    const GELU_MAX: Self = 39.0;
    const GELU_TANH_MAX: Self = 22.0;

    // 2^-56.8
    const EXP: &'static [Self] = &[
        0.5000000000000011,
        0.16666666666666682,
        0.041666666666517936,
        0.008333333333314676,
        0.0013888888949054358,
        0.00019841269905788956,
        2.4801485935820545e-5,
        2.7557223049804586e-6,
        2.763317784969714e-7,
        2.511672660435195e-8,
    ];
    // 2^-56.5
    const EXP_AFTER_TABLE: &'static [Self] = &[
        0.5000000000000051,
        0.16666666666666724,
        0.0416666666173296,
        0.008333333327851467,
        0.0013889588505409305,
        0.00019842047189636849,
    ];
    const EXP2_TABLE: &'static [Self] = &[
        1.0,
        1.0905077326652577,
        1.189207115002721,
        1.2968395546510096,
        std::f64::consts::SQRT_2,
        1.5422108254079407,
        1.681792830507429,
        1.8340080864093424,
    ];
    // 2^-61.9
    const EXP2: &'static [Self] = &[
        std::f64::consts::LN_2,
        0.240226506959100713,
        0.0555041086648216265,
        0.00961812910762843696,
        0.00133335581464066299,
        0.000154035303934661488,
        0.0000152527338413787099,
        1.32154867213724387e-6,
        1.01780571690369222e-7,
        7.05493226693309963e-9,
        4.45580491203255129e-10,
        2.56784352206150461e-11,
    ];
    // 2^-65.6
    const LOG: &'static [Self] = &[
        0.6666666666666666,
        0.40000000000006636,
        0.2857142856896019,
        0.2222222266580455,
        0.18181774138837684,
        0.1538715774127943,
        0.13248602992047206,
        0.1326514586602109,
    ];
    // 2^-57.5
    const SIN: &'static [Self] = &[
        -0.16666666666666619,
        0.008333333333319195,
        -0.00019841269827175611,
        2.7557312763704576e-6,
        -2.5050611015432608e-8,
        1.5888194981296756e-10,
    ];
    // 2^-61.5
    const COS: &'static [Self] = &[
        0.041666666666666644,
        -0.0013888888888880975,
        2.480158729297611e-5,
        -2.755731513842531e-7,
        2.087580212315596e-9,
        -1.1362436009474765e-11,
    ];
    // 2^-62.7
    const ERF: &'static [Self] = &[
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954857,
        -0.026866170645072757,
        0.005223977624779767,
        -0.0008548326978686744,
        0.00012055331035042226,
        -1.4925593464713084e-5,
        1.6460972165876362e-6,
        -1.635001850094874e-7,
        1.4657835488841254e-8,
        -1.1365496968629933e-9,
        5.944979108447625e-11,
    ];
    // 2^-58.9
    const MILLS_RATIO: [&'static [Self]; 2] = [
        &[
            2302982.3879130078,
            3804309.812645737,
            3115860.4581180443,
            1634652.028550497,
            602596.4664317254,
            162349.71416836168,
            32328.259887789864,
            4703.569913781991,
            480.3056900272074,
            31.29724484018588,
        ],
        &[
            1837514.0911171862,
            4501524.187581783,
            5159036.556942752,
            3658525.180663948,
            1787907.85050967,
            633974.1007076263,
            166990.69017198237,
            32806.56555980215,
            4734.8671590336935,
            481.30569002093665,
            31.29724484025475,
        ],
    ];
    const GAUSSIAN_FACTOR: Self = 0.3989422804015373;
    const GAUSSIAN_LN_2_LOW: Self = 2.0 * Self::LN_2_LOW;
    // 2^-58.1
    const GAUSSIAN: &'static [Self] = &[
        3.147099684484914e-31,
        -1.573549842242457e-31,
        3.9338746056061575e-32,
        -6.556457676010244e-33,
        8.195572094977646e-34,
        -8.195572094999281e-35,
        6.829643443718079e-36,
        -4.878316735221834e-37,
        3.048935429995891e-38,
        -1.6938551582319513e-39,
        8.492453023315214e-41,
        -3.8585853481389394e-42,
    ];
    const GAUSSIAN_SHIFTER: Self = 6_755_399_441_055_744.0 + 1023.0 + 100.0;
    // 32 numbers of this width do not fit into the registers of a table lookup.
    const GAUSSIAN_AFTER_TABLE: &'static [Self] = &[];
    const GAUSSIAN_TABLE_SHIFTER: Self = 0.0;

    #[inline(always)]
    fn reduce_angle<S: Simd>(simd: S, x: S::f64s) -> ReducedAngle<S, Self> {
        const LIMIT: f64 = 1_048_576.0;
        let shifted = x.mul_add(FRAC_2_PI, Self::INTEGER_SHIFTER);
        let turns = shifted - Self::INTEGER_SHIFTER;
        // All products but the last are exact, and so are the sums with their errors.
        let first = x - turns * FRAC_PI_2_PARTS[0];
        let (second, error2) = two_sum(first, -(turns * FRAC_PI_2_PARTS[1]));
        let (third, error3) = two_sum(second, -(turns * FRAC_PI_2_PARTS[2]));
        let errors = error2 + error3 - turns * FRAC_PI_2_PARTS[3];
        let high = third + errors;
        let quarter = ReducedAngle { turns: bits(shifted), high, low: third - high + errors };
        if x.simd_lt(LIMIT).all_true() { quarter } else { reduce_large(simd, x, LIMIT, quarter) }
    }
}

/// Returns two halves of a vector as `f32`, and the rounding errors.
#[inline(always)]
fn narrow<S: Simd>(_: S, first: S::f64s, second: S::f64s) -> [S::f32s; 2] {
    let high = first.narrow(second);
    let (first_high, second_high) = high.widen();
    [high, (first - first_high).narrow(second - second_high)]
}

/// Returns `a + b` and its rounding error.
#[inline(always)]
pub(super) fn two_sum<S: Simd, V: SimdFloat<S>>(a: V, b: V) -> (V, V) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// Returns `a * b` and its rounding error.
#[inline(always)]
pub(super) fn two_product<S: Simd, V: SimdFloat<S>>(a: V, b: V) -> (V, V) {
    let product = a * b;
    (product, a.mul_sub_precise(b, product))
}
