//! Axes: where the ticks go (at 1, 2 or 5 times a power of ten) and how numbers are written beside them. Logarithmic
//! axes are counted in whole ticks, so that no range of numbers, however wide or narrow, makes the arithmetic fail.

/// The decimal logarithms of the three ticks in a decade: 1, 2 and 5.
const IN_DECADE: [f64; 3] = [0.0, std::f64::consts::LOG10_2, 1.0 - std::f64::consts::LOG10_2];

/// A tick on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// From 0 at the low end to 1 at the high end of the axis.
    pub(super) at: f64,
    /// What stands beside it; empty for a minor tick.
    pub(super) label: String,
}

/// A linear axis of update counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    /// The number at the low end.
    low: f64,
    /// The number at the high end, greater than `low`.
    high: f64,
}

impl Linear {
    /// An axis that holds the updates from `first` to `last`, starts at 0 if that is near, and ends at a tick if one
    /// follows closely (a run of 500 updates ends at 499).
    pub(super) fn new(first: u64, last: u64) -> Self {
        let (mut low, mut high) = (first as f64, last as f64);
        if low <= high * 0.1 {
            low = 0.0;
        }
        if high <= low {
            let room = (low * 0.1).max(1.0);
            (low, high) = ((low - room).max(0.0), low + room);
        }
        let axis = Self { low, high };
        let end = ((high / axis.step()).ceil() * axis.step()).max(high);
        if end - high <= (high - low) * 0.02 { Self { low, high: end } } else { axis }
    }

    /// The place of a number, from 0 to 1 within the axis.
    pub(super) fn at(self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// The distance from tick to tick: at least 1, so that there are about four to eight.
    fn step(self) -> f64 {
        let rough = ((self.high - self.low) / 8.0).max(1.0);
        let tick = tick_at_or_below(rough.log10());
        let exact = log10_of(tick) >= rough.log10() - 1e-9;
        10f64.powf(log10_of(if exact { tick } else { tick + 1 })).round()
    }

    /// Four to eight ticks at whole numbers, fewer if there are fewer.
    pub(super) fn ticks(self) -> Vec<Tick> {
        let step = self.step();
        let (from, to) = ((self.low / step).ceil(), (self.high / step).floor());
        let count = (to - from).clamp(0.0, 20.0) as usize;
        (0..=count)
            .map(|i| (from + i as f64) * step)
            .map(|value| Tick { at: self.at(value), label: axis_number(value, self.high) })
            .filter(|tick| (0.0..=1.0).contains(&tick.at))
            .collect()
    }
}

/// A logarithmic axis. Its ends are ticks, counted in thirds of a decade: tick 0 is 1, tick 1 is 2, tick 2 is 5,
/// tick 3 is 10, tick -1 is 0.5.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    /// The tick at the low end.
    low: i32,
    /// The tick at the high end, greater than `low`.
    high: i32,
}

impl Log {
    /// An axis that holds the positive finite numbers from `min` to `max`, with room around a narrow range.
    pub(super) fn new(min: f64, max: f64) -> Self {
        let low = tick_at_or_below(min.log10());
        let mut high = tick_at_or_below(max.log10());
        if log10_of(high) < max.log10() - 1e-9 {
            high += 1;
        }
        if high - low >= 3 { Self { low, high } } else { Self { low: low - 1, high: high + 1 } }
    }

    /// The place of a positive number, from 0 to 1 within the axis.
    pub(super) fn at(self, value: f64) -> f64 {
        self.at_log(value.log10())
    }

    /// The place of a number with this decimal logarithm.
    fn at_log(self, log: f64) -> f64 {
        let low = log10_of(self.low);
        (log - low) / (log10_of(self.high) - low)
    }

    /// Labelled ticks at 1, 2, 5 on a short axis, at powers of ten on a longer one, with minor ticks between if there
    /// is room for them.
    pub(super) fn ticks(self) -> Vec<Tick> {
        let thirds = self.high - self.low;
        let all_labelled = thirds <= 7;
        let decades =
            [1, 2, 5, 10, 20, 50, 100].into_iter().find(|step| thirds <= step * 3 * 9).unwrap_or(200);
        (self.low..=self.high)
            .filter(|tick| thirds <= 15 || tick.rem_euclid(3 * decades) == 0)
            .map(|tick| {
                let labelled = all_labelled || tick.rem_euclid(3 * decades) == 0;
                let label = if labelled { tick_label(tick) } else { String::new() };
                Tick { at: self.at_log(log10_of(tick)), label }
            })
            .collect()
    }
}

/// The decimal logarithm of a tick (see [`Log`]).
fn log10_of(tick: i32) -> f64 {
    f64::from(tick.div_euclid(3)) + IN_DECADE[tick.rem_euclid(3) as usize]
}

/// The last tick (see [`Log`]) whose logarithm is not above `log`, but for rounding.
fn tick_at_or_below(log: f64) -> i32 {
    let decade = log.clamp(-400.0, 400.0).floor();
    let fraction = log - decade + 1e-9;
    let third = IN_DECADE.iter().filter(|&&start| start <= fraction).count() as i32 - 1;
    // A logarithm just below a whole number counts as the next decade.
    decade as i32 * 3 + if fraction >= 1.0 { 3 } else { third.max(0) }
}

/// 0.002, 0.5, 1000; 10⁻⁶, 5·10⁴ when plain digits are long.
fn tick_label(tick: i32) -> String {
    let (decade, digit) = (tick.div_euclid(3), [1, 2, 5][tick.rem_euclid(3) as usize]);
    match decade {
        0..=3 => group_thousands(&format!("{digit}{}", "0".repeat(decade as usize))),
        -3..0 => format!("0.{}{digit}", "0".repeat((-decade - 1) as usize)),
        _ if digit == 1 => format!("10{}", superscript(decade)),
        _ => format!("{digit}·10{}", superscript(decade)),
    }
}

/// A whole number on an axis that ends at `high`: all digits if the longest number is not too long.
pub(super) fn axis_number(value: f64, high: f64) -> String {
    if high < 1e7 { group_thousands(&format!("{value:.0}")) } else { measured(value) }
}

/// A measured number in about three digits: 0, 0.0123, 4.56, 1,234, 3.2·10⁻⁷.
pub(super) fn measured(value: f64) -> String {
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

/// A measured number on an axis of this range: in about three digits, or in as many as tell it from its neighbours.
pub(super) fn measured_within(value: f64, range: f64) -> String {
    if range > value.abs() * 0.1 {
        return measured(value);
    }
    let decimals = (1.0 - range.log10().floor()).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    group_thousands(whole) + rest
}

/// Without zeros at the end of a decimal fraction.
fn trim_zeros(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

/// 1,234,567. Expects an optional sign and digits.
pub(super) fn group_thousands(number: &str) -> String {
    let (sign, digits) = number.split_at(usize::from(number.starts_with('-')));
    let mut grouped = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// An exponent in raised digits: ⁻¹².
fn superscript(exponent: i32) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn update_ticks_are_round_numbers() {
        assert_eq!(
            labels(&Linear::new(1, 2999).ticks()),
            ["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000"]
        );
        assert_eq!(labels(&Linear::new(0, 1).ticks()), ["0", "1"]);
        assert_eq!(labels(&Linear::new(7, 7).ticks()), ["6", "7", "8"]);
        assert_eq!(labels(&Linear::new(0, 1_000_000).ticks())[1], "200,000");
    }

    #[test]
    fn log_ticks_are_1_2_5_on_a_short_axis_and_decades_on_a_long_one() {
        assert_eq!(labels(&Log::new(3.0, 70.0).ticks()), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(
            labels(&Log::new(1e-4, 1e3).ticks()),
            ["10⁻⁴", "0.001", "0.01", "0.1", "1", "10", "100", "1,000"]
        );
        assert!(labels(&Log::new(1e-300, 1e300).ticks()).len() <= 10);
    }

    #[test]
    fn every_range_gives_places_within_the_axis() {
        let numbers = [5e-324, 1e-300, 1e-9, 0.1, 0.999_999_999_9, 1.0, 2.0, 7.0, 1e9, f64::MAX];
        for (i, &min) in numbers.iter().enumerate() {
            for &max in &numbers[i..] {
                let axis = Log::new(min, max);
                for value in [min, max] {
                    assert!((-1e-6..=1.0 + 1e-6).contains(&axis.at(value)), "{value} on {axis:?}");
                }
                assert!(!labels(&axis.ticks()).is_empty() && axis.ticks().len() < 40);
            }
        }
        for (first, last) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX), (5, 6)] {
            let axis = Linear::new(first, last);
            assert!(
                (0.0..=1.0).contains(&axis.at(first as f64)) && (0.0..=1.0).contains(&axis.at(last as f64))
            );
            assert!(axis.ticks().len() <= 21);
        }
    }

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 0.0123, 4.5, 999.6, 1234.0, 3.21e-7, 9.99e-4, 2.5e12].map(measured);
        assert_eq!(written, ["0", "0.0123", "4.5", "1,000", "1,234", "3.2·10⁻⁷", "10⁻³", "2.5·10¹²"]);
        assert_eq!(group_thousands("-123456"), "-123,456");
        let written =
            [(4.5, 10.0), (199_999_994.4, 12.0), (1234.56, 3.0)].map(|(x, range)| measured_within(x, range));
        assert_eq!(written, ["4.5", "199,999,994", "1,234.6"]);
    }
}
