//! Covariates of tables in memory, and the parts of a table: some of its covariates, or its earlier values.

use std::ops::RangeInclusive;

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::DataProblem;
use super::is_finite_f32;
use super::table::{Columns, Series, Table};

impl Table {
    /// Adds a past covariate, which is known up to the forecast origin: for every series its id and one number for each
    /// value.
    pub fn with_past_covariate<I: AsRef<str>, V: AsRef<[f64]>>(
        self,
        name: &str,
        numbers: impl IntoIterator<Item = (I, V)>,
    ) -> Result<Table, DataProblem> {
        self.with_rows(name, numbers, |len| len..=len, |table| &mut table.past, |series| &mut series.past)
    }

    /// Adds a known-future covariate: for every series its id and its numbers from the first value on. A forecast needs
    /// numbers for the whole horizon after the last value; they can also be given later, to
    /// [`Forecaster::predict_with_future`](crate::Forecaster::predict_with_future).
    ///
    /// ```
    /// use gatework_forecast::Table;
    ///
    /// let table = Table::from_series("D", [("sales", "2024-01-01", vec![3.0, 9.0, 4.0])])?;
    /// let table = table.with_future_covariate("promotion", [("sales", [0.0, 1.0, 0.0, 1.0, 1.0])])?;
    /// let error = table.with_future_covariate("price", [("sales", [2.5])]).unwrap_err();
    /// assert_eq!(error.to_string(), "series \"sales\": \"price\" has 1 numbers, but the series has 3 values");
    /// # Ok::<(), gatework_forecast::data::DataProblem>(())
    /// ```
    pub fn with_future_covariate<I: AsRef<str>, V: AsRef<[f64]>>(
        self,
        name: &str,
        numbers: impl IntoIterator<Item = (I, V)>,
    ) -> Result<Table, DataProblem> {
        let lengths = |len| len..=usize::MAX;
        self.with_rows(name, numbers, lengths, |table| &mut table.future, |series| &mut series.future)
    }

    /// Adds a column to the rows of every series. `lengths` returns how many numbers a series of this many values may have.
    fn with_rows<I: AsRef<str>, V: AsRef<[f64]>>(
        mut self,
        name: &str,
        numbers: impl IntoIterator<Item = (I, V)>,
        lengths: fn(usize) -> RangeInclusive<usize>,
        names: fn(&mut Columns) -> &mut Vec<String>,
        rows: fn(&mut Series) -> &mut Vec<f64>,
    ) -> Result<Table, DataProblem> {
        let numbers = self.of_every_series(name, numbers)?;
        let names = names(&mut self.columns);
        for (place, numbers) in numbers {
            let series = &mut self.series[place];
            check_length(series, name, numbers.as_ref(), &lengths(series.values.len()))?;
            let rows = rows(series);
            *rows = with_column(rows, names.len(), numbers.as_ref());
        }
        names.push(name.to_string());
        Ok(self)
    }

    /// Adds a static covariate: for every series its id and a number.
    pub fn with_static_covariate<I: AsRef<str>>(
        mut self,
        name: &str,
        numbers: impl IntoIterator<Item = (I, f64)>,
    ) -> Result<Table, DataProblem> {
        let numbers = numbers.into_iter().map(|(id, number)| (id, [number]));
        for (place, [number]) in self.of_every_series(name, numbers)? {
            self.series[place].fixed.push(number);
        }
        self.columns.fixed.push(name.to_string());
        Ok(self)
    }

    /// Sets the numbers of a known-future covariate after the last value of a series.
    pub fn set_future(&mut self, id: &str, name: &str, numbers: &[f64]) -> Result<(), DataProblem> {
        let width = self.columns.future.len();
        let column = place("known-future", &self.columns.future, name)?;
        let Some(series) = self.series.iter_mut().find(|series| series.id == id) else {
            return Err(DataProblem::UnknownSeries { id: id.to_string() });
        };
        check_finite(id, name, numbers)?;
        let begin = series.values.len();
        let rows = (series.future.len() / width).max(begin + numbers.len());
        series.future.resize(rows * width, f64::NAN);
        let after = series.future.chunks_mut(width).skip(begin);
        after.zip(numbers).for_each(|(row, number)| row[column] = *number);
        Ok(())
    }

    /// Returns the places of the series with their numbers. Every series must have numbers once.
    fn of_every_series<I: AsRef<str>, V: AsRef<[f64]>>(
        &self,
        name: &str,
        numbers: impl IntoIterator<Item = (I, V)>,
    ) -> Result<Vec<(usize, V)>, DataProblem> {
        let Columns { past, future, fixed } = &self.columns;
        if [past, future, fixed].into_iter().flatten().any(|known| known == name) {
            return Err(DataProblem::ColumnTwice { name: name.to_string() });
        }
        let places: FxHashMap<&str, usize> =
            self.series.iter().enumerate().rev().map(|(place, series)| (series.id.as_str(), place)).collect();
        let mut found: Vec<(usize, V)> = Vec::with_capacity(self.series.len());
        for (id, numbers) in numbers {
            let id = id.as_ref();
            let place = places.get(id).copied();
            let place = place.ok_or_else(|| DataProblem::UnknownSeries { id: id.to_string() })?;
            check_finite(id, name, numbers.as_ref())?;
            found.push((place, numbers));
        }
        let mut has = vec![false; self.series.len()];
        for (place, _) in &found {
            if std::mem::replace(&mut has[*place], true) {
                return Err(DataProblem::DuplicateSeries { id: self.series[*place].id.clone() });
            }
        }
        match has.iter().position(|has| !has) {
            Some(place) => {
                Err(DataProblem::NoValues { id: self.series[place].id.clone(), column: name.to_string() })
            }
            None => Ok(found),
        }
    }

    /// Returns the table with these covariates only, in this order.
    pub(crate) fn select(mut self, columns: &Columns) -> Result<Table, DataProblem> {
        if self.columns == *columns {
            return Ok(self);
        }
        let places = |kind: &'static str, known: &[String], names: &[String]| {
            names.iter().map(|name| place(kind, known, name)).collect::<Result<Vec<_>, _>>()
        };
        let past = places("past", &self.columns.past, &columns.past)?;
        let future = places("known-future", &self.columns.future, &columns.future)?;
        let fixed = places("static", &self.columns.fixed, &columns.fixed)?;
        let widths = [self.columns.past.len(), self.columns.future.len(), self.columns.fixed.len()];
        for Series { past: p, future: f, fixed: s, .. } in &mut self.series {
            for ((rows, width), places) in [p, f, s].into_iter().zip(widths).zip([&past, &future, &fixed]) {
                let row = |row: &[f64]| places.iter().map(|place| row[*place]).collect::<Vec<_>>();
                *rows = rows.chunks_exact(width.max(1)).flat_map(row).collect();
            }
        }
        self.columns = columns.clone();
        Ok(self)
    }

    /// Returns the table without the last `steps` values of every series. Known-future covariates remain. Values at the new
    /// end that were imputed from removed ones are missing.
    #[must_use]
    pub fn without_last(&self, steps: usize) -> Table {
        let mut table = self.clone();
        let past = table.columns.past.len();
        for series in &mut table.series {
            let end = series.values.len().saturating_sub(steps);
            series.values.truncate(end);
            series.past.truncate(end * past);
            series.leaky.retain(|row| *row < end);
            let mut row = end;
            while row > 0 && series.leaky.last() == Some(&(row - 1)) {
                row -= 1;
                series.leaky.pop();
                series.values[row] = f64::NAN;
            }
        }
        table
    }

    /// Checks what readers guarantee, for tables that were changed since: there are series, their ids differ, their numbers
    /// fit into 32 bits, and they have numbers for every covariate.
    pub(crate) fn check(&self) -> Result<(), DataProblem> {
        if self.series.is_empty() {
            return Err(DataProblem::Empty);
        }
        let mut ids = FxHashSet::default();
        for series in &self.series {
            let id = || series.id.clone();
            if !ids.insert(series.id.as_str()) {
                return Err(DataProblem::DuplicateSeries { id: id() });
            }
            if series.values.is_empty() {
                return Err(DataProblem::NoValues { id: id(), column: "the series".into() });
            }
            if let Some(index) = series.values.iter().position(|value| (*value as f32).is_infinite()) {
                return Err(DataProblem::NotFinite { id: id(), index, value: series.values[index] });
            }
            let rows = series.values.len();
            let future = self.columns.future.len();
            for (kind, numbers, columns, rows) in [
                ("past", &series.past, self.columns.past.len(), rows),
                ("known-future", &series.future, future, rows.max(series.future.len() / future.max(1))),
                ("static", &series.fixed, self.columns.fixed.len(), 1),
            ] {
                let (found, expected) = (numbers.len(), columns * rows);
                if found != expected {
                    return Err(DataProblem::Covariates { id: id(), kind, columns, found, expected });
                }
            }
        }
        Ok(())
    }
}

/// Returns the place of a covariate.
fn place(kind: &'static str, known: &[String], name: &str) -> Result<usize, DataProblem> {
    let missing = || DataProblem::MissingCovariate {
        kind,
        name: name.to_string(),
        known: if known.is_empty() { "none".into() } else { known.join(", ") },
    };
    known.iter().position(|column| column == name).ok_or_else(missing)
}

/// Adds a column to rows of `width` numbers. Where the columns have different lengths, numbers are missing.
fn with_column(rows: &[f64], width: usize, numbers: &[f64]) -> Vec<f64> {
    let count = rows.len().checked_div(width).unwrap_or(0).max(numbers.len());
    let row = |row: usize| {
        let before = (0..width).map(move |column| rows.get(row * width + column));
        before.chain([numbers.get(row)]).map(|number| number.copied().unwrap_or(f64::NAN))
    };
    (0..count).flat_map(row).collect()
}

/// Checks the count of the numbers of a covariate.
fn check_length(
    series: &Series,
    name: &str,
    numbers: &[f64],
    lengths: &RangeInclusive<usize>,
) -> Result<(), DataProblem> {
    if lengths.contains(&numbers.len()) {
        return Ok(());
    }
    Err(DataProblem::CovariateLength {
        id: series.id.clone(),
        column: name.to_string(),
        found: numbers.len(),
        values: series.values.len(),
    })
}

/// Checks that the numbers of a covariate are finite.
fn check_finite(id: &str, name: &str, numbers: &[f64]) -> Result<(), DataProblem> {
    match numbers.iter().position(|number| !is_finite_f32(*number)) {
        Some(index) => Err(DataProblem::CovariateNotFinite {
            id: id.to_string(),
            column: name.to_string(),
            index,
            value: numbers[index],
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Schema, read_csv};

    fn table() -> Table {
        let series = [("a", "2024-01-01", vec![1.0, 2.0, 3.0]), ("b", "2024-01-01", vec![4.0, 5.0])];
        Table::from_series("D", series).unwrap()
    }

    #[test]
    fn covariates_in_memory_are_those_of_a_file() {
        let text = "unique_id,ds,y,p,f,g,s\na,2024-01-01,1,10,0,7,5\na,2024-01-02,2,20,1,8,5\na,2024-01-03,3,30,0,9,5
a,2024-01-04,,,1,6,5\nb,2024-01-01,4,40,1,1,6\nb,2024-01-02,5,50,0,2,6\n";
        let schema: Schema = toml::from_str("past = ['p']\nfuture = ['f', 'g']\nstatic = ['s']").unwrap();
        let file = read_csv(text.as_bytes(), "x", &schema).unwrap();
        let memory = table()
            .with_past_covariate("p", [("a", &[10.0, 20.0, 30.0][..]), ("b", &[40.0, 50.0])])
            .unwrap()
            .with_future_covariate("f", [("b", &[1.0, 0.0][..]), ("a", &[0.0, 1.0, 0.0])])
            .unwrap()
            .with_future_covariate("g", [("a", &[7.0, 8.0, 9.0, 6.0][..]), ("b", &[1.0, 2.0])])
            .unwrap()
            .with_static_covariate("s", [("a", 5.0), ("b", 6.0)]);
        let mut memory = memory.unwrap();
        memory.set_future("a", "f", &[1.0]).unwrap();
        assert_eq!((&memory.series, &memory.columns), (&file.series, &file.columns));
        assert_eq!(memory.check(), Ok(()));
        let g = Columns { future: vec!["g".into()], ..Columns::default() };
        let selected = memory.select(&g).unwrap();
        assert_eq!(selected.series[0].future, [7.0, 8.0, 9.0, 6.0]);
        assert!(selected.series[0].past.is_empty() && selected.series[0].fixed.is_empty());
        assert_eq!(selected.check(), Ok(()));
    }

    #[test]
    fn invalid_covariates_are_named() {
        let future = |name: &str, a: &[f64], other: &str| {
            table().with_future_covariate(name, [("a", a), (other, &[1.0, 2.0])]).map(|_| ())
        };
        let message = |result: Result<(), DataProblem>| result.unwrap_err().to_string();
        let good = [1.0, 2.0, 3.0];
        assert_eq!(future("f", &good, "b"), Ok(()));
        assert_eq!(message(future("f", &good, "c")), "there is no series \"c\"");
        assert_eq!(message(future("f", &good, "a")), "two series have the id \"a\"; rename one");
        let short = message(future("f", &good[..2], "b"));
        assert_eq!(short, "series \"a\": \"f\" has 2 numbers, but the series has 3 values");
        let not_finite = message(future("f", &[1.0, f64::NAN, 3.0], "b"));
        assert_eq!(not_finite, "series \"a\": \"f\" is NaN at 1; covariates must be finite");
        let one = table().with_static_covariate("s", [("a", 1.0)]).map(|_| ());
        assert_eq!(message(one), "series \"b\": s has no value");
        let mut table = table().with_static_covariate("s", [("a", 1.0), ("b", 2.0)]).unwrap();
        let twice = table.clone().with_static_covariate("s", [("a", 1.0), ("b", 2.0)]).map(|_| ());
        assert!(message(twice).contains("the column \"s\" occurs or is used twice"));
        let unknown = message(table.set_future("a", "f", &[1.0]));
        assert_eq!(unknown, "there is no known-future covariate \"f\"; there are none");
    }

    #[test]
    fn inconsistent_tables_are_reported() {
        let message = |change: &dyn Fn(&mut Table)| {
            let mut table = table();
            change(&mut table);
            table.check().unwrap_err().to_string()
        };
        assert_eq!(message(&|table| table.series.clear()), "there are no rows of data");
        assert!(message(&|table| table.series[1].id = "a".into()).contains("two series have the id \"a\""));
        assert!(message(&|table| table.series[1].values.clear()).contains("series \"b\": the series has no"));
        assert!(message(&|table| table.series[0].values[2] = 1e39).contains("series \"a\": value 2 is 1000"));
        let past = message(&|table| table.columns.past.push("p".into()));
        assert_eq!(past, "series \"a\" has 0 numbers for its 1 past covariates, but needs 3");
        let future = message(&|table| table.series[0].future = vec![1.0; 3]);
        assert!(future.contains("3 numbers for its 0 known-future covariates, but needs 0"), "{future}");
    }

    #[test]
    fn values_imputed_from_removed_ones_are_missing() {
        let mut table = table();
        table.series[0] = Series { values: (0..10).map(f64::from).collect(), ..table.series[0].clone() };
        table.series[0].leaky = vec![2, 5, 6];
        let earlier = table.without_last(3);
        assert_eq!(earlier.series[0].values[..5], [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert!(
            earlier.series[0].values.len() == 7 && earlier.series[0].values[5..].iter().all(|x| x.is_nan())
        );
        assert_eq!(earlier.series[0].leaky, [2]);
        assert!(earlier.series[1].values.is_empty());
    }
}
