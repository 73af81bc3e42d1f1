//! Numbers formatted for people: single values, axis labels, table columns, percentages. Different values that a reader compares
//! are never formatted alike.

/// Magnitudes that are written in plain digits on axes and in tables; others get a power of ten.
const PLAIN: std::ops::Range<f64> = 1e-4..1e7;

/// Numbers smaller than this fraction of the largest in a column do not add decimals to it.
const NOTHING: f64 = 1e-6;

/// Formats a measured number in about three digits: 0, 0.0123, 4.56, 1,234, 3.2·10⁻⁷.
pub fn measured(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "not finite".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if (999.5..999_999.5).contains(&size) {
        return group_thousands(&format!("{value:.0}"));
    }
    if (1e-3..999.5).contains(&size) {
        let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
        return trim_zeros(&format!("{value:.decimals$}"));
    }
    // Rust's own scientific format rounds the mantissa and the exponent together: 9.99e-7 becomes 1.0e-6.
    let scientific = format!("{value:.1e}");
    match scientific.split_once('e') {
        Some((mantissa, exponent)) => {
            let factor = if mantissa == "1.0" { String::new() } else { trim_zeros(mantissa) + "·" };
            format!("{factor}10{}", superscript(exponent.parse().unwrap_or(0)))
        }
        None => scientific,
    }
}

/// Formats multiples of `step`, which is 1, 2 or 5 times a power of ten, with all digits down to those of the step: 0, 0.5, 1.0;
/// 1.690·10⁹, 1.695·10⁹.
pub fn beside_axis(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(step, |largest, value| largest.max(value.abs()));
    let [last, first] = [step, largest].map(|number| (number.log10() + 1e-9).floor());
    let write = |&value: &f64| {
        if PLAIN.contains(&largest) {
            let decimals = (-last).clamp(0.0, 17.0) as usize;
            return group_thousands(&format!("{:.decimals$}", value + 0.0));
        }
        if value == 0.0 {
            return "0".to_owned();
        }
        let decimals = (first - last).clamp(0.0, 17.0) as usize;
        // In two steps, because 10³²⁰ is not a number.
        let half = (first / 2.0).trunc();
        let mantissa = value / 10f64.powf(half) / 10f64.powf(first - half);
        format!("{mantissa:.decimals$}·10{}", superscript(first as i32))
    };
    values.iter().map(write).collect()
}

/// Formats the numbers of a column uniformly: with `decimals` decimals; with more if the smallest needs them for three significant
/// digits, with fewer if the largest would exceed nine digits; as 1.234e-9 if plain digits are long. NaN becomes `-`.
pub fn column(values: &[f64], decimals: usize) -> Vec<String> {
    let sizes = || values.iter().map(|value| value.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let largest = sizes().fold(0.0, f64::max);
    let least = sizes().filter(|size| *size > largest * NOTHING).fold(largest, f64::min);
    let are_plain = largest == 0.0 || PLAIN.contains(&least) && PLAIN.contains(&largest);
    let places = |size: f64, digits: f64| (digits - 1.0 - size.log10().floor()).max(0.0) as usize;
    let plain =
        if largest > 0.0 { decimals.max(places(least, 3.0)).min(places(largest, 9.0)) } else { decimals };
    let write = |&value: &f64| match value {
        _ if value.is_nan() => "-".to_owned(),
        _ if are_plain => format!("{value:.plain$}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.decimals$e}"),
    };
    values.iter().map(write).collect()
}

/// Formats a value of a series with this range: as the shortest `f32` or, if that does not resolve a millionth of the range,
/// with as many decimals as needed.
pub fn within(value: f64, range: f64) -> String {
    let (rounded, error) = (value as f32, 1e-6 * range);
    if (f64::from(rounded) - value).abs() <= error {
        return rounded.to_string();
    }
    let decimals = -error.log10().floor().min(0.0) as usize;
    format!("{value:.decimals$}")
}

/// Formats a fraction in percent, with all its digits and without the sign: 80, 99.9.
pub fn percent(share: f64) -> String {
    // Moves the decimal point in the shortest decimal form: 0.07 * 100.0 is 7.000000000000001.
    let text = share.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = format!("{fraction:0<2}");
    let (hundredths, rest) = fraction.split_at(2);
    let digits = format!("{whole}{hundredths}");
    let number = match digits.trim_start_matches('0') {
        "" => "0",
        number => number,
    };
    if rest.is_empty() { number.to_owned() } else { format!("{number}.{rest}") }
}

/// Formats a whole number on an axis that ends at `high`: in all digits unless the longest label would be too long.
pub fn count(value: f64, high: f64) -> String {
    if high < PLAIN.end { group_thousands(&format!("{value:.0}")) } else { measured(value) }
}

/// Groups thousands: 1,234,567.8. Expects an optional sign, digits and optional decimals.
pub fn group_thousands(number: &str) -> String {
    let (whole, decimals) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + decimals
}

/// Formats an exponent in superscript digits: ⁻¹².
pub fn superscript(exponent: i32) -> String {
    let raise = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        // '⁰' and '⁴' to '⁹' follow one another in Unicode.
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    };
    exponent.to_string().chars().map(raise).collect()
}

/// Removes trailing zeros of a decimal fraction.
fn trim_zeros(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 0.0123, 4.5, 999.6, 1234.0, 3.21e-7, 9.99e-4, 2.5e12].map(measured);
        assert_eq!(written, ["0", "0.0123", "4.5", "1,000", "1,234", "3.2·10⁻⁷", "10⁻³", "2.5·10¹²"]);
        assert_eq!(group_thousands("-123456"), "-123,456");
        assert_eq!(group_thousands("1234.5678"), "1,234.5678");
    }

    #[test]
    fn neighbours_on_an_axis_are_told_apart() {
        assert_eq!(beside_axis(&[-0.5, 0.0, 0.5], 0.5), ["-0.5", "0.0", "0.5"]);
        assert_eq!(beside_axis(&[1.69e9, 1.695e9], 5e6), ["1.690·10⁹", "1.695·10⁹"]);
        assert_eq!(beside_axis(&[0.0, 2e-9], 2e-9), ["0", "2·10⁻⁹"]);
        assert_eq!(beside_axis(&[99_999.99, 100_000.0], 0.01), ["99,999.99", "100,000.00"]);
        assert_eq!(beside_axis(&[1e300, 5e-324], f64::NAN).len(), 2);
    }

    #[test]
    fn columns_keep_the_digits_of_their_numbers() {
        assert_eq!(column(&[14.6031, 0.48, f64::NAN], 3), ["14.603", "0.480", "-"]);
        assert_eq!(column(&[1.23e-4, 2.5e-3], 3), ["0.000123", "0.002500"]);
        assert_eq!(column(&[1.25e-9, 0.0, 3.0e-10], 3), ["1.250e-9", "0", "3.000e-10"]);
        assert_eq!(column(&[4e30, 12.5], 3), ["4.000e30", "1.250e1"]);
        assert_eq!(column(&[8_500_474.942_3, 12.5], 3), ["8500474.94", "12.50"]);
        assert_eq!(column(&[50.0, 1e-8], 3), ["50.000", "0.000"]);
        assert_eq!(column(&[0.0, f64::INFINITY], 3), ["0.000", "inf"]);
    }

    #[test]
    fn numbers_of_a_series_have_the_digits_that_mean_something() {
        assert_eq!(within(448.350_738_123_456, 518.0), "448.35074");
        assert_eq!(within(0.1, 1.0), "0.1");
        assert_eq!(within(200_000_004.312_345_7, 12.0), "200000004.31235");
        assert_eq!(within(-5e7 - 10.0 / 3.0, 6000.0), "-50000003.333");
        assert_eq!(within(1e12 + 1.0 / 3.0, 1e3), "1000000000000.333");
        // Beyond what 32 bits hold.
        assert_eq!(within(1e39, 1e33), format!("{:.0}", 1e39));
    }

    #[test]
    fn shares_keep_their_digits() {
        let shares = [0.8, 0.07, 0.999, 0.9995, 0.005, 0.1, 1.0, 0.000_000_1];
        assert_eq!(shares.map(percent), ["80", "7", "99.9", "99.95", "0.5", "10", "100", "0.00001"]);
        assert_ne!(percent(0.9), percent(0.9_f64.next_up()));
    }
}
