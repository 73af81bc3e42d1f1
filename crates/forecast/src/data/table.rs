//! Time series on one regular grid with their covariates, and the columns of a file.
//!
//! Every gap of a file is rejected, imputed or marked by NaN, as the [`Missing`] policy says, and counted in the
//! [`Report`].

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};

use super::error::DataProblem;
use super::frequency::Frequency;
use super::number::Decimal;
use super::time::TimeForm;

/// The layout of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Layout {
    /// One observation per row: id, time, value, covariates.
    #[default]
    Long,
    /// One time per row, one series per column (ETT).
    Wide,
    /// One series per row: id, then its values (M4). Times are 1, 2, 3, ..., or the names of the columns.
    Rows,
}

/// The policy for missing values, missing times and times that are not on the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// Reject them.
    #[default]
    Error,
    /// Mark them by NaN; no window contains them. Times that are not on the grid are dropped.
    Drop,
    /// Impute the previous value.
    ForwardFill,
    /// Impute by linear interpolation.
    Interpolate,
    /// Impute zero: rows of a day without sales are not written.
    Zero,
}

/// The policy for several rows of a series at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// Reject them.
    #[default]
    Error,
    /// Add up the values: several sales of a day.
    Sum,
    /// Take the mean of the values: the hour that a clock repeats in autumn.
    Mean,
    /// Take the last row of the file: corrections follow.
    Last,
}

/// Returns whether a setting has its default, which is not written.
fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// The columns of a file and how to read them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schema {
    /// Layout of the file.
    pub layout: Layout,
    /// Column of the series ids. Default: `unique_id` if there is such a column, otherwise all rows are one series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Column of the times.
    pub time: String,
    /// Column of the values. In a wide file, the columns that are series; the default `y` stands for all columns.
    pub target: Target,
    /// Further columns of the id in a long file: their texts follow after a slash, for example of a store and an item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub id_parts: Vec<String>,
    /// Decimal separator. If it is given, thousands may be grouped, and currency and percent signs are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal: Option<Decimal>,
    /// Format of the times, such as `%d/%m/%Y`. Default: recognised, unless it is ambiguous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date_format: Option<String>,
    /// Past covariates: known up to the forecast origin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<String>,
    /// Known-future covariates: known over the horizon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub future: Vec<String>,
    /// Static covariates: constant within a series.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    /// Further columns of the time: their texts follow after a space, for example of a date and an hour.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub time_parts: Vec<String>,
    /// Whether the names of the columns of a file with one series per row, after the first, are the times of the values. Default:
    /// times are 1, 2, 3, ...
    #[serde(skip_serializing_if = "is_default")]
    pub times_in_header: bool,
    /// The frequency that times are rounded to: down to the month, week or day that has them, or to the nearest hour, minute or second.
    /// Default: times are not rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<String>,
    /// Policy for several rows of a series at one time.
    #[serde(skip_serializing_if = "is_default")]
    pub duplicates: Duplicates,
    /// Policy for missing values.
    pub missing: Missing,
    /// Frequency; detected from the data by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency: Option<String>,
    /// Expected frequency, used if the times are compatible with it, even if they are too few to detect it: that of the
    /// model that forecasts the data. Not part of a file.
    #[serde(skip)]
    pub expected: Option<String>,
}

/// The target column or columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Target {
    /// One column.
    One(String),
    /// Several columns of a wide file.
    Several(Vec<String>),
}

impl Default for Schema {
    fn default() -> Schema {
        Schema {
            layout: Layout::Long,
            id: None,
            time: "ds".into(),
            target: Target::One("y".into()),
            id_parts: Vec::new(),
            decimal: None,
            date_format: None,
            time_parts: Vec::new(),
            times_in_header: false,
            round: None,
            duplicates: Duplicates::Error,
            past: Vec::new(),
            future: Vec::new(),
            fixed: Vec::new(),
            missing: Missing::Error,
            frequency: None,
            expected: None,
        }
    }
}

/// One time series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Unique id.
    pub id: String,
    /// Time of its first value.
    pub start: i64,
    /// Reference time of the grid. For months it has the day of the month of the grid, which the first value may lack (a
    /// series on the 30th may start on 28 February).
    pub origin: i64,
    /// Values, one per step of the grid; NaN if missing.
    pub values: Vec<f64>,
    /// Sorted positions whose value or past covariate was imputed from later ones. A forecast from there would be data
    /// leakage, so that no window has its forecast origin there.
    pub leaky: Vec<usize>,
    /// Past covariates: `[values, columns]`.
    pub past: Vec<f64>,
    /// Known-future covariates: `[values or more, columns]`.
    pub future: Vec<f64>,
    /// Static covariates.
    pub fixed: Vec<f64>,
}

impl Series {
    /// Returns the time of a position, which may be after the last value; `None` if out of range.
    pub fn time(&self, frequency: &Frequency, position: usize) -> Option<i64> {
        let first = frequency.steps(self.origin, self.start)?;
        frequency.at(self.origin, first.checked_add(position as i64)?)
    }
}

/// Names of the covariates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Past covariates.
    pub past: Vec<String>,
    /// Known-future covariates.
    pub future: Vec<String>,
    /// Static covariates.
    pub fixed: Vec<String>,
}

/// Time series on one regular grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Frequency of the grid.
    pub frequency: Frequency,
    /// Time zone as minutes ahead of UTC: that of all times, or 0 if they have several. `None` if they have none.
    pub offset: Option<i64>,
    /// Format of the times.
    pub form: TimeForm,
    /// Names of the covariates.
    pub columns: Columns,
    /// Series, in the order of their first rows.
    pub series: Vec<Series>,
    /// Irregularities found while reading.
    pub report: Report,
}

impl Table {
    /// Formats the time of a position of a series; empty if out of range.
    pub fn time(&self, series: &Series, position: usize) -> String {
        let tick = series.time(&self.frequency, position);
        tick.map_or_else(String::new, |tick| self.form.format(tick, self.frequency.kind, self.offset))
    }

    /// Returns the series of an id.
    pub fn find(&self, id: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.id == id)
    }

    /// Returns the number of values of all series.
    pub fn values(&self) -> usize {
        self.series.iter().map(|series| series.values.len()).sum()
    }

    /// Returns a hash of names, times and values.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        let Columns { past, future, fixed } = &self.columns;
        (self.frequency.to_string(), past, future, fixed).hash(&mut hasher);
        for series in &self.series {
            (&series.id, series.start, series.values.len()).hash(&mut hasher);
            let numbers = [&series.values, &series.past, &series.future, &series.fixed];
            numbers.into_iter().flatten().for_each(|number| number.to_bits().hash(&mut hasher));
        }
        hasher.finish()
    }

    /// Appends the values of another table with the same series. For tables with one series per row, which have no times
    /// and no covariates.
    pub(crate) fn append(&mut self, after: Table) -> Result<(), DataProblem> {
        if let Some(series) = self.series.iter().find(|series| after.find(&series.id).is_none()) {
            return Err(DataProblem::NoValues { id: series.id.clone(), column: "the row".into() });
        }
        let places: FxHashMap<&str, usize> =
            self.series.iter().enumerate().map(|(place, series)| (series.id.as_str(), place)).collect();
        let place =
            |id: &str| places.get(id).copied().ok_or_else(|| DataProblem::NoHistory { id: id.into() });
        let found = after.series.iter().map(|series| place(&series.id)).collect::<Result<Vec<_>, _>>()?;
        // Missing values at the ends were trimmed: the values would be appended too early.
        let starts_late = after.series.iter().any(|series| series.start != 1);
        if starts_late || self.report.not_yet_known > 0 {
            return Err(DataProblem::NotJoined);
        }
        for (place, series) in found.into_iter().zip(after.series) {
            let values = &mut self.series[place].values;
            let before = values.len();
            values.extend(series.values);
            self.series[place].leaky.extend(series.leaky.iter().map(|row| before + row));
        }
        self.report.add(&after.report);
        Ok(())
    }
}

/// Irregularities found while reading a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Number of rows.
    pub rows: u64,
    /// Number of missing values.
    pub missing_values: u64,
    /// Number of rows without a value after the last value.
    pub not_yet_known: u64,
    /// Number of grid points without a row.
    pub missing_times: u64,
    /// Number of rows at times that are not on the grid.
    pub irregular_times: u64,
    /// Number of series whose rows were not sorted by time.
    pub unsorted_series: u64,
    /// Rows that were merged into others of the same time.
    pub merged_rows: u64,
}

impl Report {
    /// Adds the counts of another report.
    fn add(&mut self, other: &Report) {
        let Report {
            rows,
            missing_values,
            not_yet_known,
            missing_times,
            irregular_times,
            unsorted_series,
            merged_rows,
        } = other;
        self.rows += rows;
        self.missing_values += missing_values;
        self.not_yet_known += not_yet_known;
        self.missing_times += missing_times;
        self.irregular_times += irregular_times;
        self.unsorted_series += unsorted_series;
        self.merged_rows += merged_rows;
    }

    /// Describes each kind of irregularity in one line.
    pub fn lines(&self, missing: Missing) -> Vec<String> {
        let done = match missing {
            Missing::Error => "",
            Missing::Drop => ": windows that contain them are left out",
            Missing::ForwardFill => ": filled with the previous value",
            Missing::Interpolate => ": filled by interpolation",
            Missing::Zero => ": filled with zero",
        };
        let irregular = match missing {
            Missing::Drop | Missing::Zero => ": dropped",
            _ => done,
        };
        [
            (self.missing_values, "missing values", done),
            (self.not_yet_known, "rows without a value at the end", ": the series end before them"),
            (self.missing_times, "missing times", done),
            (self.irregular_times, "times not on the grid", irregular),
            (self.unsorted_series, "series not sorted by time", ": sorted"),
            (self.merged_rows, "rows at times of other rows", ": merged"),
        ]
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, done)| format!("{count} {what}{done}"))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_columns_have_defaults() {
        let schema: Schema = toml::from_str("time = \"Month\"\ntarget = \"Passengers\"").unwrap();
        assert_eq!(schema.time, "Month");
        assert_eq!(schema.target, Target::One("Passengers".into()));
        assert_eq!((schema.layout, schema.missing), (Layout::Long, Missing::Error));
        let wide: Schema =
            toml::from_str("layout = \"wide\"\ntarget = [\"OT\"]\nmissing = \"forward-fill\"").unwrap();
        assert_eq!(wide.target, Target::Several(vec!["OT".into()]));
        assert!(toml::from_str::<Schema>("tine = \"ds\"").unwrap_err().message().contains("unknown field"));
        let again: Schema = toml::from_str(&toml::to_string(&wide).unwrap()).unwrap();
        assert_eq!(again, wide);
    }

    #[test]
    fn a_table_is_continued_by_test_data() {
        let read = |text: &str| {
            let schema: Schema = toml::from_str("layout = \"rows\"").unwrap();
            crate::data::read_csv(text.as_bytes(), "x", &schema).unwrap()
        };
        let mut table = read("id,1,2,3\na,1,2,3\nb,4,5,6\n");
        table.append(read("id,1,2,3\nb,7,8,9\na,1,1,1\n")).unwrap();
        assert_eq!(table.series[0].values, [1., 2., 3., 1., 1., 1.]);
        assert_eq!(table.series[1].values, [4., 5., 6., 7., 8., 9.]);
        let message = |text: &str| table.clone().append(read(text)).unwrap_err().to_string();
        assert!(message("id,1,2,3\na,1,1,1\n").contains("series \"b\": the row has no value"));
        let late = crate::data::read_csv(
            "id,1,2,3\nb,NA,8,9\na,1,1,1\n".as_bytes(),
            "x",
            &toml::from_str("layout = \"rows\"\nmissing = \"drop\"").unwrap(),
        );
        assert_eq!(table.clone().append(late.unwrap()), Err(DataProblem::NotJoined));
        let unknown = message("id,1,2,3\na,1,1,1\nb,1,1,1\nc,1,1,1\n");
        assert!(unknown.contains("series \"c\" of the test data is not in the data"), "{unknown}");
    }

    #[test]
    fn a_fingerprint_depends_on_every_number_and_name() {
        let fingerprint = |text: &str| {
            let schema: Schema = toml::from_str("past = [\"p\"]\nfrequency = \"1\"").unwrap();
            crate::data::read_csv(text.as_bytes(), "x", &schema).unwrap().fingerprint()
        };
        let rows = "unique_id,ds,y,p\na,1,2,3\na,2,4,5\n";
        assert_eq!(fingerprint(rows), fingerprint(&rows.replace("2,4", "2,4.0")));
        for (from, to) in
            [("a,", "b,"), ("a,1", "a,0\na,1"), ("2,4", "2,4.5"), ("4,5", "4,6"), ("a,2,4,5\n", "")]
        {
            let other = rows.replace(from, to).replace("a,0\n", "a,0,1,1\n");
            assert_ne!(fingerprint(rows), fingerprint(&other), "{other}");
        }
    }

    #[test]
    fn reports_describe_what_was_done() {
        let report = Report { missing_times: 2, unsorted_series: 1, ..Report::default() };
        assert_eq!(
            report.lines(Missing::ForwardFill),
            ["2 missing times: filled with the previous value", "1 series not sorted by time: sorted"]
        );
        assert!(Report::default().lines(Missing::Drop).is_empty());
    }
}
