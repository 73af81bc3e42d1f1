//! Tables built from series in memory.

use rustc_hash::FxHashSet;

use super::error::DataProblem;
use super::frequency::Frequency;
use super::is_finite_f32;
use super::table::{Columns, Report, Series, Table};
use super::time::{self, TimeForm};

impl Table {
    /// Builds a table of series without covariates. Each series has an id, the time of its first value, and its values.
    /// Times are written as in a file: `2024-01-31`, `2024-01-31 13:00`, `2024-01` or an integer. The frequency is `h`,
    /// `15min`, `D`, `B`, `W`, `M`, `Q`, `Y`, or a number for integer times.
    ///
    /// ```
    /// use gatework_forecast::data::Table;
    ///
    /// let table = Table::from_series("M", [("a", "2024-01", vec![1.0, 2.0, 3.0])])?;
    /// assert_eq!(table.time(&table.series[0], 3), "2024-04");
    /// let error = Table::from_series("M", [("a", "2024-01", vec![1.0, f64::NAN])]).unwrap_err();
    /// assert_eq!(error.to_string(), "series \"a\": value 1 is NaN; values must be finite");
    /// # Ok::<(), gatework_forecast::data::DataProblem>(())
    /// ```
    pub fn from_series<I, T>(
        frequency: &str,
        series: impl IntoIterator<Item = (I, T, Vec<f64>)>,
    ) -> Result<Table, DataProblem>
    where
        I: Into<String>,
        T: AsRef<str>,
    {
        let mut table: Option<Table> = None;
        let mut ids = FxHashSet::default();
        for (id, start, values) in series {
            let (id, start) = (id.into(), start.as_ref());
            let unreadable = || DataProblem::Time { text: start.to_string() };
            let (tick, kind, offset) = time::parse_zoned(start).ok_or_else(unreadable)?;
            let step = Frequency::parse(frequency, kind)
                .ok_or_else(|| DataProblem::Frequency { text: frequency.to_string() })?;
            check_values(&id, &values)?;
            if step.steps(tick, tick).is_none() {
                return Err(DataProblem::Irregular { id, time: start.to_string(), frequency: step });
            }
            let table = table.get_or_insert_with(|| {
                let mut form = TimeForm::of(start);
                form.quarter = form.quarter.filter(|_| step.is_of_quarters());
                let (columns, report) = (Columns::default(), Report::default());
                Table { frequency: step, offset, form, columns, series: Vec::new(), report }
            });
            if table.frequency != step {
                return Err(DataProblem::MixedTimes { text: start.to_string() });
            }
            if table.offset.is_some() != offset.is_some() {
                return Err(DataProblem::MixedZones { text: start.to_string() });
            }
            if table.offset != offset {
                table.offset = Some(0);
            }
            if !ids.insert(id.clone()) {
                return Err(DataProblem::DuplicateSeries { id });
            }
            table.report.rows += values.len() as u64;
            table.series.push(Series { id, start: tick, origin: tick, values, ..Series::default() });
        }
        table.ok_or(DataProblem::Empty)
    }
}

/// Checks that a series has values, and that the model can represent them.
fn check_values(id: &str, values: &[f64]) -> Result<(), DataProblem> {
    if values.is_empty() {
        return Err(DataProblem::NoValues { id: id.to_string(), column: "the series".into() });
    }
    match values.iter().position(|value| !is_finite_f32(*value)) {
        Some(index) => Err(DataProblem::NotFinite { id: id.to_string(), index, value: values[index] }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Schema, read_csv};

    #[test]
    fn a_table_in_memory_equals_the_table_of_a_file() {
        let text = "unique_id,ds,y\na,2024-01-31,1\na,2024-02-01,2\na,2024-02-02,3\nb,2024-01-31,4\nb,2024-02-01,5\n";
        let file = read_csv(text.as_bytes(), "x", &Schema::default()).unwrap();
        let series = [("a", "2024-01-31", vec![1., 2., 3.]), ("b", "2024-01-31", vec![4., 5.])];
        assert_eq!(Table::from_series("D", series).unwrap(), file);
    }

    #[test]
    fn invalid_series_are_reported() {
        let message = |frequency: &str, series: &[(&str, &str, &[f64])]| {
            let series = series.iter().map(|(id, start, values)| (*id, *start, values.to_vec()));
            Table::from_series(frequency, series).unwrap_err().to_string()
        };
        for (frequency, series, part) in [
            ("D", &[][..], "there are no rows of data"),
            ("D", &[("a", "2024-01-01", &[][..])], "series \"a\": the series has no value"),
            ("D", &[("a", "2024-01-01", &[1.0, f64::INFINITY])], "series \"a\": value 1 is inf"),
            ("D", &[("a", "2024-01-01", &[1e39])], "series \"a\": value 0 is 1000"),
            ("D", &[("a", "2024-13-01", &[1.0])], "\"2024-13-01\" is not a time"),
            ("D", &[("a", "7", &[1.0])], "\"D\" is not a frequency"),
            ("B", &[("a", "2024-01-06", &[1.0])], "2024-01-06 is not on the time grid (frequency B)"),
            (
                "D",
                &[("a", "2024-01-01", &[1.0]), ("a", "2024-01-01", &[2.0])],
                "two series have the id \"a\"",
            ),
            (
                "D",
                &[("a", "2024-01-01", &[1.0]), ("b", "2024-01", &[2.0])],
                "\"2024-01\" is a time of another kind",
            ),
        ] {
            let message = message(frequency, series);
            assert!(message.contains(part), "{message}");
        }
    }
}
