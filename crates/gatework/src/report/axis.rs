//! Axes of plots: linear, logarithmic and counts, with ticks at 1, 2 or 5 times a power of ten and their labels.
//!
//! Logarithmic axes are counted in whole ticks, so that no range, however wide or narrow, overflows the arithmetic.

use crate::number::{beside_axis, count as count_label, group_thousands, superscript};

/// The decimal logarithms of the three ticks in a decade: 1, 2 and 5.
const IN_DECADE: [f64; 3] = [0.0, std::f64::consts::LOG10_2, 1.0 - std::f64::consts::LOG10_2];

/// A map from values to places on an axis.
pub(super) trait Axis {
    /// Returns the place of a value: 0 at the low end, 1 at the high end.
    fn at(&self, value: f64) -> f64;

    /// Returns the ticks in ascending order.
    fn ticks(&self) -> Vec<Tick>;
}

/// A tick on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// From 0 at the low end to 1 at the high end of the axis.
    pub(super) at: f64,
    /// Text of the label; empty for a minor tick.
    pub(super) label: String,
}

/// A linear axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    /// The number at the low end.
    low: f64,
    /// The number at the high end, greater than `low`.
    high: f64,
    /// The distance from tick to tick.
    step: f64,
}

impl Linear {
    /// An axis that holds the updates from `first` to `last`, starts at 0 if that is near, and ends at a tick if one
    /// follows closely (a run of 500 updates ends at 499). Its four to eight ticks are whole numbers, fewer if there are
    /// fewer.
    pub(super) fn of_updates(first: u64, last: u64) -> Self {
        let (mut low, mut high) = (first as f64, last as f64);
        if low <= high * 0.1 {
            low = 0.0;
        }
        if high <= low {
            let room = (low * 0.1).max(1.0);
            (low, high) = ((low - room).max(0.0), low + room);
        }
        let step = round_step(((high - low) / 8.0).max(1.0));
        let end = ((high / step).ceil() * step).max(high);
        if end - high <= (high - low) * 0.02 {
            high = end;
        }
        Self { low, high, step }
    }

    /// An axis from `low` to `high` with three to six ticks between.
    pub(super) fn of_values(low: f64, high: f64) -> Self {
        Self { low, high, step: round_step((high - low) / 6.0) }
    }
}

impl Axis for Linear {
    fn at(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// The multiples of the step.
    fn ticks(&self) -> Vec<Tick> {
        let (from, to) = ((self.low / self.step).ceil(), (self.high / self.step).floor());
        let count = (to - from).clamp(0.0, 20.0) as usize;
        let mut values: Vec<f64> = (0..=count).map(|i| (from + i as f64) * self.step).collect();
        values.retain(|value| (0.0..=1.0).contains(&self.at(*value)));
        let labels = beside_axis(&values, self.step);
        values.into_iter().zip(labels).map(|(value, label)| Tick { at: self.at(value), label }).collect()
    }
}

/// 1, 2 or 5 times a power of ten: the first that is not below `rough`, but for rounding.
fn round_step(rough: f64) -> f64 {
    let tick = tick_at_or_below(rough.log10());
    let is_exact = log10_of(tick) >= rough.log10() - 1e-9;
    let tick = if is_exact { tick } else { tick + 1 };
    [1.0, 2.0, 5.0][tick.rem_euclid(3) as usize] * 10f64.powi(tick.div_euclid(3))
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

    /// The place of a number with this decimal logarithm.
    fn at_log(self, log: f64) -> f64 {
        let low = log10_of(self.low);
        (log - low) / (log10_of(self.high) - low)
    }
}

impl Axis for Log {
    fn at(&self, value: f64) -> f64 {
        self.at_log(value.log10())
    }

    /// Labelled ticks at 1, 2, 5 on a short axis, at powers of ten on a longer one, with minor ticks between if there
    /// is room for them.
    fn ticks(&self) -> Vec<Tick> {
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

/// An axis of counts from 0 to `max`, logarithmic in 1 + count: 0 is at the low end, and 1 is visibly above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// The count at the high end, at least 1.
    max: usize,
}

impl Counts {
    /// An axis whose high end is `max`, or 1 if that is 0.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1) }
    }
}

impl Axis for Counts {
    fn at(&self, value: f64) -> f64 {
        value.ln_1p() / (self.max as f64).ln_1p()
    }

    /// 0 and the powers of ten; on a wide axis every second power and so on, about ten ticks at most.
    fn ticks(&self) -> Vec<Tick> {
        let powers = (0..20).map_while(|power| 10usize.checked_pow(power)).filter(|&power| power <= self.max);
        let counts = std::iter::once(0).chain(powers.step_by(self.max.ilog10() as usize / 10 + 1));
        let tick = |count: usize| Tick {
            at: self.at(count as f64),
            label: count_label(count as f64, self.max as f64),
        };
        counts.map(tick).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn update_ticks_are_round_numbers() {
        assert_eq!(
            labels(&Linear::of_updates(1, 2999).ticks()),
            ["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000"]
        );
        assert_eq!(labels(&Linear::of_updates(0, 1).ticks()), ["0", "1"]);
        assert_eq!(labels(&Linear::of_updates(7, 7).ticks()), ["6", "7", "8"]);
        assert_eq!(labels(&Linear::of_updates(0, 1_000_000).ticks())[1], "200,000");
    }

    #[test]
    fn ticks_of_values_are_round_and_told_apart() {
        assert_eq!(
            labels(&Linear::of_values(85.0, 642.0).ticks()),
            ["100", "200", "300", "400", "500", "600"]
        );
        assert_eq!(labels(&Linear::of_values(4.5, 5.5).ticks()), ["4.6", "4.8", "5.0", "5.2", "5.4"]);
        assert_eq!(
            labels(&Linear::of_values(1.689e9, 1.711e9).ticks()),
            ["1.690·10⁹", "1.695·10⁹", "1.700·10⁹", "1.705·10⁹", "1.710·10⁹"]
        );
        for (low, high) in [(-1.0, 1.0), (1e15, 1e15 + 2.0), (-3e-9, 1e-9), (0.0, 1e30), (-1e7, 12.0)] {
            let ticks = Linear::of_values(low, high).ticks();
            let mut labels = labels(&ticks);
            assert!((3..=7).contains(&labels.len()), "{labels:?}");
            labels.dedup();
            assert_eq!(labels.len(), ticks.len(), "{labels:?}");
        }
        assert!(Linear::of_values(0.0, 1e-322).ticks().len() < 30);
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
    fn counts_grow_with_the_logarithm_from_0() {
        let axis = Counts::new(9999);
        let ends = [0.0, 1.0, 2.0, 10.0, 100.0, 9999.0].map(|count| axis.at(count));
        assert_eq!((ends[0], ends[5]), (0.0, 1.0));
        assert!(ends.is_sorted() && ends[1] > 0.05);
        assert_eq!(labels(&axis.ticks()), ["0", "1", "10", "100", "1,000"]);
        assert!(Counts::new(usize::MAX).ticks().len() <= 12);
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
            let axis = Linear::of_updates(first, last);
            assert!(
                (0.0..=1.0).contains(&axis.at(first as f64)) && (0.0..=1.0).contains(&axis.at(last as f64))
            );
            assert!(axis.ticks().len() <= 21);
        }
    }
}
