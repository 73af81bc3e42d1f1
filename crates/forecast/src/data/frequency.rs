//! Frequencies: the regular grids of times, detected from data or given by name.

use rustc_hash::FxHashMap;

use super::time::{self, Civil, DAY, SECOND, TimeKind};

/// The step between consecutive times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeStep {
    /// A fixed number of ticks: integers, or microseconds.
    Ticks(i64),
    /// Monday to Friday.
    Weekdays,
    /// Months, on the same day or on the last day.
    Months {
        /// Number of months.
        count: i64,
        /// Whether times are on the last day of the month.
        last_day: bool,
    },
}

/// The grid of the times of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frequency {
    /// Kind of the times.
    pub kind: TimeKind,
    /// Step between consecutive times.
    pub step: TimeStep,
}

/// The Monday from which weeks are counted: 5 January 1970.
const MONDAY: i64 = 4 * DAY;

/// Maximum number of differences used for detection.
const MAX_DIFFERENCES: usize = 4096;

impl Frequency {
    /// Returns whether the step is a multiple of quarters.
    pub fn is_of_quarters(&self) -> bool {
        matches!(self.step, TimeStep::Months { count, .. } if count % 3 == 0)
    }

    /// Detects the frequency of strictly ascending times, at least three: the most common difference.
    pub fn detect(ticks: &[i64], kind: TimeKind) -> Option<Frequency> {
        if ticks.len() < 3 {
            return None;
        }
        let ticks = &ticks[..ticks.len().min(MAX_DIFFERENCES + 1)];
        let apart = most_common(ticks.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])))?;
        if kind == TimeKind::Integer {
            return Some(Frequency { kind, step: TimeStep::Ticks(apart) });
        }
        let months = if apart >= 28 * DAY && apart % DAY == 0 { detect_months(ticks) } else { None };
        let days = || {
            if apart == DAY && skips_weekends(ticks) { TimeStep::Weekdays } else { TimeStep::Ticks(apart) }
        };
        let step = months.unwrap_or_else(days);
        Some(Frequency { kind, step })
    }

    /// Parses a name: `h`, `15min`, `D`, `B` (Monday to Friday), `W`, `M`, `Q`, `Y`, `30s`, `500us`, or a number for
    /// integers.
    pub fn parse(text: &str, kind: TimeKind) -> Option<Frequency> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = text[split..].to_ascii_lowercase();
        let most = if matches!(unit.as_str(), "" | "us") { i64::MAX } else { 1_000_000 };
        let count =
            if split == 0 { 1 } else { text[..split].parse().ok().filter(|n| (1..=most).contains(n))? };
        let months = |n: i64| TimeStep::Months { count: count * n, last_day: false };
        let step = match unit.as_str() {
            "" | "us" => TimeStep::Ticks(count),
            "s" => TimeStep::Ticks(count * SECOND),
            "min" | "t" => TimeStep::Ticks(count * 60 * SECOND),
            "h" => TimeStep::Ticks(count * 3600 * SECOND),
            "d" => TimeStep::Ticks(count * DAY),
            "b" if count == 1 => TimeStep::Weekdays,
            "w" => TimeStep::Ticks(count * 7 * DAY),
            "m" | "ms" => months(1),
            "me" => TimeStep::Months { count, last_day: true },
            "q" | "qs" => months(3),
            "y" | "ys" => months(12),
            _ => return None,
        };
        let plain = text.len() == split;
        (plain == (kind == TimeKind::Integer)).then_some(Frequency { kind, step })
    }

    /// Returns the steps from one time to another; `None` if it is not on the grid.
    pub fn steps(&self, start: i64, tick: i64) -> Option<i64> {
        let n = self.floor(start, tick)?;
        (self.at(start, n) == Some(tick)).then_some(n)
    }

    /// Returns the index of the last grid point that is not after a time; `None` if out of range.
    pub fn floor(&self, start: i64, tick: i64) -> Option<i64> {
        match self.step {
            TimeStep::Ticks(step) => Some(tick.checked_sub(start)?.div_euclid(step)),
            TimeStep::Weekdays => {
                let within = start.rem_euclid(DAY);
                let day = tick.checked_sub(within)?.div_euclid(DAY);
                Some(weekday_number(day) - weekday_number(start.div_euclid(DAY)))
            }
            TimeStep::Months { count, .. } => {
                let months = Civil::of_tick(tick).months() - Civil::of_tick(start).months();
                let n = months.div_euclid(count);
                Some(if self.at(start, n)? > tick { n - 1 } else { n })
            }
        }
    }

    /// Returns the time of a grid point; `None` if out of range.
    pub fn at(&self, start: i64, steps: i64) -> Option<i64> {
        match self.step {
            TimeStep::Ticks(step) => start.checked_add(steps.checked_mul(step)?),
            TimeStep::Weekdays => {
                let n = weekday_number(start.div_euclid(DAY)).checked_add(steps)?;
                let day = n.div_euclid(5).checked_mul(7)? + n.rem_euclid(5) - 3;
                day.checked_mul(DAY)?.checked_add(start.rem_euclid(DAY))
            }
            TimeStep::Months { count, last_day } => {
                let first = Civil::of_tick(start);
                let months = first.months().checked_add(steps.checked_mul(count)?)?;
                // The year is out of range of a tick.
                if months.abs() > 12 * 290_000 {
                    return None;
                }
                let day = if last_day { 31 } else { first.day };
                Some(Civil::in_month(months, day).tick() + start.rem_euclid(DAY))
            }
        }
    }

    /// Rounds a time to the grid of the calendar with this step: down to the month, week or day, or to the nearest hour,
    /// minute or second.
    pub fn round(&self, tick: i64) -> i64 {
        match self.step {
            TimeStep::Ticks(step) if step < DAY => tick.saturating_add(step / 2).div_euclid(step) * step,
            TimeStep::Ticks(step) if step % (7 * DAY) == 0 => {
                tick.saturating_sub(MONDAY).div_euclid(step) * step + MONDAY
            }
            TimeStep::Ticks(step) => tick.div_euclid(step) * step,
            TimeStep::Weekdays => tick.div_euclid(DAY) * DAY,
            TimeStep::Months { count, .. } => {
                let months = Civil::of_tick(tick).months().div_euclid(count) * count;
                Civil::in_month(months, 1).tick()
            }
        }
    }

    /// Returns the kind of times that are rounded to this frequency.
    pub fn kind_of_rounded(&self) -> TimeKind {
        match self.step {
            TimeStep::Ticks(step) if step < DAY => TimeKind::DateTime,
            TimeStep::Ticks(_) | TimeStep::Weekdays => TimeKind::Date,
            TimeStep::Months { .. } => TimeKind::Month,
        }
    }

    /// Returns whether nearly all times follow the one before by one step.
    pub fn is_regular(&self, ticks: &[i64]) -> bool {
        let follow = ticks.windows(2).filter(|pair| self.steps(pair[0], pair[1]) == Some(1)).count();
        10 * follow >= 9 * ticks.len().saturating_sub(1)
    }

    /// Returns the default season: a day of hours, a week of days, a year of months.
    pub fn season(&self) -> usize {
        match self.step {
            TimeStep::Ticks(_) if self.kind == TimeKind::Integer => 1,
            TimeStep::Ticks(step) if step < DAY && DAY % step == 0 => (DAY / step) as usize,
            TimeStep::Ticks(step) if step == DAY => 7,
            TimeStep::Ticks(step) if step == 7 * DAY => 52,
            TimeStep::Ticks(_) => 1,
            TimeStep::Weekdays => 5,
            TimeStep::Months { count, .. } => (12 / count.clamp(1, 12)) as usize,
        }
    }
}

impl std::fmt::Display for Frequency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            TimeStep::Ticks(step) if self.kind == TimeKind::Integer => write!(f, "{step}"),
            TimeStep::Ticks(step) => {
                const UNITS: [(i64, &str); 5] =
                    [(7 * DAY, "W"), (DAY, "D"), (3600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s")];
                let unit = UNITS.iter().find(|(unit, _)| step % unit == 0);
                let (count, name) = unit.map_or((step, "us"), |(unit, name)| (step / unit, name));
                if count == 1 { write!(f, "{name}") } else { write!(f, "{count}{name}") }
            }
            TimeStep::Weekdays => write!(f, "B"),
            TimeStep::Months { count, last_day } => {
                if count != 1 {
                    write!(f, "{count}")?;
                }
                write!(f, "{}", if last_day { "ME" } else { "M" })
            }
        }
    }
}

/// Returns the most common value; the smallest in case of a tie.
fn most_common(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut counts: FxHashMap<i64, usize> = FxHashMap::default();
    for value in values.filter(|value| *value > 0) {
        *counts.entry(value).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(value, count)| (*count, std::cmp::Reverse(*value)))
        .map(|(value, _)| value)
}

/// Detects months: nearly all times are on the same day of the month or on its last day.
fn detect_months(ticks: &[i64]) -> Option<TimeStep> {
    let nearly_all = |n: usize| n * 10 >= ticks.len() * 9;
    let days = || ticks.iter().map(|tick| Civil::of_tick(*tick));
    let day = most_common(days().map(|civil| i64::from(civil.day)))?;
    let count = most_common(
        ticks.windows(2).map(|pair| Civil::of_tick(pair[1]).months() - Civil::of_tick(pair[0]).months()),
    )?;
    if nearly_all(days().filter(|civil| civil.ends_month()).count()) {
        return Some(TimeStep::Months { count, last_day: true });
    }
    // 28 February stands for the 30th.
    let on_day = |civil: &Civil| *civil == Civil::in_month(civil.months(), day as u32);
    nearly_all(days().filter(on_day).count()).then_some(TimeStep::Months { count, last_day: false })
}

/// Returns whether the times skip a weekend and are never on one.
fn skips_weekends(ticks: &[i64]) -> bool {
    let over = ticks.windows(2).any(|pair| pair[1] - pair[0] == 3 * DAY && time::weekday(pair[0]) == 4);
    over && ticks.iter().all(|tick| time::weekday(*tick) < 5)
}

/// Returns the number of weekdays since Monday 1969-12-29; a weekend counts as the Friday before it.
fn weekday_number(day: i64) -> i64 {
    let day = day + 3;
    day.div_euclid(7) * 5 + day.rem_euclid(7).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_rounded_to_the_calendar() {
        let at = |text: &str| time::parse(text).unwrap().0;
        for (unit, text, expected) in [
            ("M", "2015-02-27", "2015-02-01"),
            ("Q", "2015-06-30", "2015-04-01"),
            ("W", "2024-01-07", "2024-01-01"),
            ("W", "2024-01-08", "2024-01-08"),
            ("2W", "1970-01-18", "1970-01-05"),
            ("2W", "1970-01-04", "1969-12-22"),
            ("D", "2024-01-07 23:59:00", "2024-01-07"),
            ("h", "2024-01-07 23:59:30", "2024-01-08"),
            ("15min", "1969-12-31 23:50:00", "1969-12-31 23:45:00"),
        ] {
            let frequency = Frequency::parse(unit, TimeKind::DateTime).unwrap();
            assert_eq!(frequency.round(at(text)), at(expected), "{unit} {text}");
        }
    }

    fn days(text: &[&str]) -> Vec<i64> {
        text.iter().map(|text| time::parse(text).unwrap().0).collect()
    }

    fn name(ticks: &[i64], kind: TimeKind) -> String {
        Frequency::detect(ticks, kind).map_or("none".into(), |f| f.to_string())
    }

    #[test]
    fn frequencies_are_detected() {
        assert_eq!(name(&[1, 2, 3, 5], TimeKind::Integer), "1");
        assert_eq!(name(&days(&["1949-01", "1949-02", "1949-03"]), TimeKind::Month), "M");
        assert_eq!(name(&days(&["1949-01-31", "1949-02-28", "1949-03-31"]), TimeKind::Date), "ME");
        assert_eq!(name(&days(&["1949-01-01", "1949-04-01", "1949-07-01"]), TimeKind::Date), "3M");
        assert_eq!(name(&days(&["2000-01-01", "2001-01-01", "2002-01-01"]), TimeKind::Date), "12M");
        assert_eq!(name(&days(&["2015-02-28", "2015-03-30", "2015-04-30"]), TimeKind::Date), "M");
        assert_eq!(
            name(&days(&["2000-01-01", "2000-01-02", "2000-01-04", "2000-01-05"]), TimeKind::Date),
            "D"
        );
        assert_eq!(name(&days(&["2000-01-01", "2000-01-08", "2000-01-15"]), TimeKind::Date), "W");
        let quarter_hours = days(&["2000-01-01 00:00", "2000-01-01 00:15", "2000-01-01 00:30"]);
        assert_eq!(name(&quarter_hours, TimeKind::DateTime), "15min");
        // Thursday, Friday, Monday, Tuesday.
        let trading = days(&["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"]);
        assert_eq!(name(&trading, TimeKind::Date), "B");
        assert_eq!(name(&days(&["2000-01-01", "2000-01-02"]), TimeKind::Date), "none");
    }

    #[test]
    fn months_keep_their_day_if_possible() {
        let start = days(&["2024-01-30"])[0];
        let monthly =
            Frequency { kind: TimeKind::Date, step: TimeStep::Months { count: 1, last_day: false } };
        let written = |n| time::format(monthly.at(start, n).unwrap(), TimeKind::Date);
        assert_eq!([written(1), written(2), written(12)], ["2024-02-29", "2024-03-30", "2025-01-30"]);
    }

    #[test]
    fn names_are_parsed_or_rejected() {
        for (text, kind) in [
            ("15min", TimeKind::DateTime),
            ("1500000us", TimeKind::DateTime),
            ("D", TimeKind::Date),
            ("B", TimeKind::Date),
            ("3ME", TimeKind::Date),
            ("2", TimeKind::Integer),
            ("3600000", TimeKind::Integer),
        ] {
            let frequency = Frequency::parse(text, kind).unwrap();
            assert_eq!(frequency.to_string(), text);
        }
        for (text, kind) in
            [("x", TimeKind::Date), ("2", TimeKind::Date), ("h", TimeKind::Integer), ("0D", TimeKind::Date)]
        {
            assert_eq!(Frequency::parse(text, kind), None, "{text}");
        }
    }

    fn any_frequency() -> impl Strategy<Value = Frequency> {
        let step = prop_oneof![
            (1..100i64).prop_map(|n| TimeStep::Ticks(n * 60 * SECOND)),
            Just(TimeStep::Weekdays),
            (1..13i64).prop_map(|count| TimeStep::Months { count, last_day: true }),
            (1..13i64).prop_map(|count| TimeStep::Months { count, last_day: false }),
        ];
        step.prop_map(|step| Frequency { kind: TimeKind::DateTime, step })
    }

    proptest! {
        #[test]
        fn steps_is_the_inverse_of_at(frequency in any_frequency(), day in -20_000i64..30_000, n in -500i64..500) {
            let start = match frequency.step {
                // Monday, and the end of a month: points of the grid themselves.
                TimeStep::Weekdays => (day.div_euclid(7) * 7 + 4) * DAY,
                TimeStep::Months { last_day: true, .. } => Civil::in_month(Civil::of_days(day).months(), 31).tick(),
                _ => day * DAY,
            } + 7;
            let tick = frequency.at(start, n).unwrap();
            prop_assert_eq!(frequency.steps(start, tick), Some(n));
            prop_assert_eq!(frequency.floor(start, tick + 1), Some(n));
            prop_assert_eq!(frequency.floor(start, tick - 1), Some(n - 1));
            prop_assert_eq!(frequency.steps(start, tick + 1), None);
            prop_assert!(frequency.at(start, n + 1).unwrap() > tick);
        }
    }
}
