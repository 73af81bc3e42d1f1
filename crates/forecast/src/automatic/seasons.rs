//! The seasons of a table: those of its frequency, or the one that the data show.

use crate::classical::seasonal::detect;
use crate::data::Table;
use crate::data::frequency::TimeStep;
use crate::data::time::{DAY, TimeKind};

/// Days of a year, and working days.
const YEAR: f64 = 365.25;
const WORKING_YEAR: f64 = 261.0;

/// Series that are looked at for a season of their own.
const SERIES: usize = 30;

/// Returns the lengths of the seasons in steps, the shortest first. Seasons that no series repeats are left out.
pub fn seasons(table: &Table) -> Vec<f64> {
    let longest = table.series.iter().map(|series| series.values.len()).max().unwrap_or(0) as f64;
    let frequency = &table.frequency;
    let of_calendar: Vec<f64> = match frequency.step {
        TimeStep::Ticks(_) if frequency.kind == TimeKind::Integer => Vec::new(),
        TimeStep::Ticks(step) => [DAY as f64, 7.0 * DAY as f64, YEAR * DAY as f64]
            .into_iter()
            .map(|period| period / step as f64)
            .filter(|period| *period >= 2.0)
            .collect(),
        TimeStep::Weekdays => vec![5.0, WORKING_YEAR],
        TimeStep::Months { count, .. } => vec![12.0 / count as f64],
    };
    let repeated = |period: &f64| *period >= 2.0 && 2.0 * period <= longest;
    let calendar: Vec<f64> = of_calendar.iter().copied().filter(repeated).collect();
    // A year of years is no season: the data may have one of their own, as sunspots do.
    if !of_calendar.iter().any(|period| *period >= 2.0) {
        return own_season(table).into_iter().map(|season| season as f64).collect();
    }
    calendar
}

/// Returns the season that most of the series show.
fn own_season(table: &Table) -> Option<usize> {
    let mut found: Vec<usize> = table
        .series
        .iter()
        .filter(|series| series.values.iter().all(|x| x.is_finite()))
        .take(SERIES)
        .map(|series| detect(&series.values))
        .collect();
    found.sort_unstable();
    let middle = found.get(found.len() / 2).copied()?;
    (middle > 1).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seasons_are_those_of_the_calendar_or_of_the_data() {
        let of = |frequency: &str, start: &str, values: Vec<f64>| {
            seasons(&Table::from_series(frequency, [("a", start, values)]).unwrap())
        };
        let wave = |n: usize, period: f64| -> Vec<f64> {
            (0..n)
                .map(|i| {
                    (i as f64 / period * std::f64::consts::TAU).sin() * 9.0 + (i * 7919 % 13) as f64 / 13.0
                })
                .collect()
        };
        assert_eq!(of("D", "2020-01-01", vec![1.0; 800]), [7.0, 365.25]);
        assert_eq!(of("D", "2020-01-01", vec![1.0; 300]), [7.0]);
        assert_eq!(of("h", "2020-01-01 00:00", vec![1.0; 400]), [24.0, 168.0]);
        assert_eq!(of("M", "2020-01", vec![1.0; 36]), [12.0]);
        assert_eq!(of("M", "2020-01", vec![1.0; 20]), [0.0; 0]);
        assert_eq!(of("1", "1", wave(300, 11.0)), [11.0]);
        assert_eq!(of("Y", "1700-01-01", wave(300, 11.0)), [11.0]);
        assert_eq!(of("1", "1", vec![1.0; 30]), [0.0; 0]);
    }
}
