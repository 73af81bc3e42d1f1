//! Numbers of 16 bits, in which weights are stored: half precision of IEEE 754 and bfloat16.

/// A format of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// IEEE 754 half precision: 5 bits of exponent, 11 of precision; up to 65504.
    F16,
    /// The upper half of an `f32`: its range with 8 bits of precision.
    Bf16,
}

impl Half {
    /// The nearest number of the format, ties to the even one. What is too large becomes infinity; NaN stays NaN.
    pub fn encode(self, x: f32) -> u16 {
        match self {
            Half::F16 => encode_f16(x),
            Half::Bf16 => encode_bf16(x),
        }
    }

    /// Numbers of the format as `f32`, exactly. Of slices of different lengths the shorter one counts.
    pub fn decode(self, from: &[u16], to: &mut [f32]) {
        match self {
            Half::F16 => to.iter_mut().zip(from).for_each(|(to, &bits)| *to = decode_f16(bits)),
            Half::Bf16 => {
                to.iter_mut().zip(from).for_each(|(to, &bits)| *to = f32::from_bits(u32::from(bits) << 16));
            }
        }
    }
}

fn encode_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // Half of the last place, less one if that is even.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn encode_f16(x: f32) -> u16 {
    let (bits, sign) = (x.to_bits() & 0x7fff_ffff, (x.to_bits() >> 16) as u16 & 0x8000);
    if x.is_nan() {
        return sign | 0x7e00;
    }
    // Below 2^-14 the format counts multiples of 2^-24: an addition of 0.5 rounds to them.
    let rounded = if bits < 0x3880_0000 {
        (f32::from_bits(bits) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        // The exponent with its other bias, and half of the last place, less one if that is even.
        ((bits - (112 << 23)) + 0xfff + (bits >> 13 & 1)) >> 13
    };
    sign | rounded.min(0x7c00) as u16
}

fn decode_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let size = u32::from(bits & 0x7fff) << 13;
    let value = if size >= 0x7c00 << 13 {
        // Infinity or NaN.
        f32::from_bits(size + (224 << 23))
    } else {
        // The exponent with its other bias; the product makes subnormal numbers normal.
        f32::from_bits(size) * f32::from_bits((127 + 112) << 23)
    };
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(format: Half, bits: u16) -> f32 {
        let mut out = [0.0];
        format.decode(&[bits], &mut out);
        out[0]
    }

    /// 2 to a power, exactly. (`powi` may be wrong in the last place, and under Miri it is.)
    fn power_of_two(exponent: i32) -> f64 {
        f64::from_bits(((1023 + exponent) as u64) << 52)
    }

    /// The value of half precision by its definition.
    fn naive_f16(bits: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let size = match exponent {
            0 => mantissa * power_of_two(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + mantissa) * power_of_two(exponent - 25),
        };
        if bits >> 15 == 1 { -size } else { size }
    }

    #[test]
    fn all_half_numbers_have_their_value_and_come_back() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let value = decoded(Half::F16, bits);
            let right = naive_f16(bits);
            assert!(f64::from(value) == right || right.is_nan() && value.is_nan(), "{bits:#x}: {value}");
            assert!(value.is_nan() || Half::F16.encode(value) == bits, "{bits:#x}");
            let brain = decoded(Half::Bf16, bits);
            assert!(brain.is_nan() || Half::Bf16.encode(brain) == bits, "{bits:#x}");
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest_and_to_even() {
        for format in [Half::F16, Half::Bf16] {
            for bits in (0x0000..0x7b00u16).step_by(if cfg!(miri) { 1009 } else { 7 }) {
                let (low, high) = (decoded(format, bits), decoded(format, bits + 1));
                let middle = low + (high - low) / 2.0;
                let even = if bits % 2 == 0 { bits } else { bits + 1 };
                assert_eq!(format.encode(middle), even, "{format:?} {middle}");
                assert_eq!(format.encode(f32::from_bits(middle.to_bits() + 1)), bits + 1);
                assert_eq!(format.encode(-f32::from_bits(middle.to_bits() - 1)), bits | 0x8000);
            }
            assert_eq!(decoded(format, format.encode(f32::INFINITY)), f32::INFINITY);
            assert!(decoded(format, format.encode(f32::NAN)).is_nan());
        }
        assert_eq!(decoded(Half::F16, Half::F16.encode(1e6)), f32::INFINITY);
    }
}
