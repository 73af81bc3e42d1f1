//! Calendar features as known-future covariates: hours, weekdays, months, and Fourier terms of any period.

use serde::{Deserialize, Serialize};

use super::frequency::{Frequency, TimeStep};
use super::table::{Series, Table};
use super::time::{self, Civil, DAY, SECOND, TimeKind, month_days};

/// A calendar cycle. The feature is the position in it, from -0.5 to 0.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cycle {
    /// Minute of the hour.
    Minute,
    /// Hour of the day.
    Hour,
    /// Day of the week; Monday is -0.5.
    Weekday,
    /// Day of the month.
    MonthDay,
    /// Day of the year.
    YearDay,
    /// Month of the year.
    Month,
}

impl Cycle {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Fourier terms of a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fourier {
    /// Period in steps.
    pub period: f64,
    /// Number of harmonics.
    pub order: usize,
}

/// The calendar features of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calendar {
    /// Positions in calendar cycles.
    pub cycles: Vec<Cycle>,
    /// Fourier terms.
    pub fourier: Vec<Fourier>,
}

/// Calendar features that cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// Integer times have no calendar.
    #[error("times are integers, which have no {}; remove it from the calendar, or use dates", .0.name())]
    NoCalendar(Cycle),
    /// A period or order is out of range.
    #[error(
        "a Fourier term needs a period above 1 and an order of 1 to half of it, not {period} and {order}"
    )]
    Fourier {
        /// The period.
        period: f64,
        /// The order.
        order: usize,
    },
}

impl Calendar {
    /// Returns the number of features.
    pub fn len(&self) -> usize {
        self.cycles.len() + self.fourier.iter().map(|f| 2 * f.order).sum::<usize>()
    }

    /// Returns whether there are no features.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the ranges of the Fourier terms.
    pub fn check(&self) -> Result<(), CalendarError> {
        let is_valid = |f: &&Fourier| f.period > 1.0 && f.order >= 1 && f.order as f64 <= f.period / 2.0;
        match self.fourier.iter().find(|f| !is_valid(f)) {
            Some(&Fourier { period, order }) => Err(CalendarError::Fourier { period, order }),
            None => Ok(()),
        }
    }

    /// Adds the features to the known-future covariates of a table, up to a horizon after the last value.
    pub fn add(&self, table: &mut Table, horizon: usize) -> Result<(), CalendarError> {
        self.check()?;
        if self.is_empty() {
            return Ok(());
        }
        if let Some(cycle) = self.cycles.first().filter(|_| table.frequency.kind == TimeKind::Integer) {
            return Err(CalendarError::NoCalendar(*cycle));
        }
        let (frequency, width) = (table.frequency, table.columns.future.len());
        for series in &mut table.series {
            self.extend(series, &frequency, width, horizon);
        }
        table.columns.future.extend(self.names());
        Ok(())
    }

    /// Returns the names of the features, in their order.
    pub fn names(&self) -> Vec<String> {
        let cycles = self.cycles.iter().map(|cycle| cycle.name());
        let fourier = self.fourier.iter().flat_map(|f| {
            (1..=f.order).flat_map(move |k| ["sin", "cos"].map(|name| format!("{name} {k}/{}", f.period)))
        });
        cycles.chain(fourier).collect()
    }

    fn extend(&self, series: &mut Series, frequency: &Frequency, width: usize, horizon: usize) {
        // The features end with the covariates of the file, if there are any.
        let rows = series.future.len().checked_div(width).unwrap_or(series.values.len() + horizon);
        let mut extended = Vec::with_capacity(rows * (width + self.len()));
        for row in 0..rows {
            extended.extend_from_slice(&series.future[row * width..][..width]);
            let tick = series.time(frequency, row).unwrap_or(series.start);
            self.add_row(frequency, tick, &mut extended);
        }
        series.future = extended;
    }

    /// Appends the features of one time.
    pub fn add_row(&self, frequency: &Frequency, tick: i64, row: &mut Vec<f64>) {
        row.extend(self.cycles.iter().map(|cycle| cycle.at(tick)));
        let position = position(frequency, tick);
        for f in &self.fourier {
            for k in 1..=f.order {
                let angle = (position * k as f64 / f.period).rem_euclid(1.0) * std::f64::consts::TAU;
                row.extend([angle.sin(), angle.cos()]);
            }
        }
    }
}

impl Cycle {
    /// Returns the position of a time in the cycle.
    fn at(self, tick: i64) -> f64 {
        let civil = Civil::of_tick(tick);
        let within = tick.rem_euclid(DAY);
        let (place, last) = match self {
            Cycle::Minute => (within / (60 * SECOND) % 60, 59),
            Cycle::Hour => (within / (3600 * SECOND), 23),
            Cycle::Weekday => (time::weekday(tick), 6),
            Cycle::MonthDay => (i64::from(civil.day) - 1, 30),
            Cycle::YearDay => (civil.day_of_year(), 365),
            Cycle::Month => (i64::from(civil.month) - 1, 11),
        };
        place as f64 / last as f64 - 0.5
    }
}

/// Returns the position of a time on a grid that is common to all series, so that they share their phase.
fn position(frequency: &Frequency, tick: i64) -> f64 {
    match frequency.step {
        TimeStep::Ticks(step) => tick as f64 / step as f64,
        TimeStep::Weekdays => frequency.floor(0, tick).unwrap_or(0) as f64,
        TimeStep::Months { count, .. } => {
            let civil = Civil::of_tick(tick);
            let within = f64::from(civil.day - 1) / f64::from(month_days(civil.year, civil.month));
            (civil.months() as f64 + within) / count as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Schema, read_csv};

    fn months(first: u32) -> Table {
        use std::fmt::Write as _;
        let mut text = "ds,y\n".to_string();
        for month in first..first + 4 {
            writeln!(text, "2024-{month:02},{month}").unwrap();
        }
        read_csv(text.as_bytes(), "a", &Schema::default()).unwrap()
    }

    #[test]
    fn cycles_run_from_minus_to_plus_one_half() {
        let at = |cycle: Cycle, text: &str| cycle.at(time::parse(text).unwrap().0);
        assert_eq!(at(Cycle::Hour, "2024-01-01 00:30"), -0.5);
        assert_eq!(at(Cycle::Hour, "2024-01-01 23:30"), 0.5);
        assert_eq!(at(Cycle::Weekday, "2024-01-07"), 0.5);
        assert_eq!(at(Cycle::Month, "2024-12-01"), 0.5);
        assert_eq!(at(Cycle::MonthDay, "2024-12-31"), 0.5);
        assert_eq!(at(Cycle::YearDay, "2024-12-31"), 0.5);
        assert_eq!(at(Cycle::Minute, "2024-12-31 00:59"), 0.5);
    }

    #[test]
    fn features_extend_over_the_horizon_and_share_their_phase() {
        let calendar: Calendar =
            toml::from_str("cycles = [\"month\"]\nfourier = [{ period = 12, order = 2 }]").unwrap();
        let (mut early, mut late) = (months(1), months(3));
        calendar.add(&mut early, 2).unwrap();
        calendar.add(&mut late, 2).unwrap();
        assert_eq!((early.columns.future.len(), early.series[0].future.len()), (5, 6 * 5));
        // March is the third row of one table and the first of the other.
        assert_eq!(early.series[0].future[2 * 5..3 * 5], late.series[0].future[..5]);
        assert_eq!(early.columns.future[1], "sin 1/12");
    }

    #[test]
    fn a_fourier_term_repeats_after_its_period() {
        let mut table = months(1);
        let calendar = Calendar { cycles: Vec::new(), fourier: vec![Fourier { period: 3.0, order: 1 }] };
        calendar.add(&mut table, 4).unwrap();
        let future = &table.series[0].future;
        for place in 0..10 {
            assert!((future[place] - future[place + 6]).abs() < 1e-5);
        }
        assert!((future[0] - future[2]).abs() > 0.1);
    }

    #[test]
    fn invalid_calendars_are_rejected() {
        let mut numbers = read_csv(&b"ds,y\n1,1\n2,2\n3,3\n"[..], "a", &Schema::default()).unwrap();
        let calendar: Calendar = toml::from_str("cycles = [\"hour\"]").unwrap();
        assert_eq!(calendar.add(&mut numbers, 1), Err(CalendarError::NoCalendar(Cycle::Hour)));
        let calendar: Calendar = toml::from_str("fourier = [{ period = 4, order = 3 }]").unwrap();
        assert!(matches!(calendar.add(&mut numbers, 1), Err(CalendarError::Fourier { .. })));
    }
}
