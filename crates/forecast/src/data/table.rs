//! Many time series on one regular grid, with the columns that go with them, and how to ask for them.
//!
//! A table in memory has no gaps that are not marked: what a file leaves out was refused, filled in, or stands as NaN,
//! as the [`Missing`] policy says, and is counted in the [`Report`].

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};

use super::error::DataProblem;
use super::frequency::Frequency;
use super::time::Form;

/// How the series are laid out in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One observation a row: id, time, value, other columns.
    #[default]
    Long,
    /// One time a row, one series a column (ETT).
    Wide,
    /// One series a row: id, then its values (M4). Times are 1, 2, 3, ...
    Rows,
}

/// What is done about missing values, missing times and times between two points of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// They are an error.
    #[default]
    Error,
    /// They stand as NaN, and no window touches them. Times off the grid are left out.
    Drop,
    /// The last value known at that time.
    ForwardFill,
    /// On the straight line between the values before and after.
    Interpolate,
}

/// How a file is to be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schema {
    /// The layout.
    pub layout: Layout,
    /// Column of the series' names. Without it: `unique_id` if there is such a column, else all rows are one series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Column of the times.
    pub time: String,
    /// Column of the values; in a wide file, only the series of these columns. All, if it is `y` and there is no such
    /// column.
    pub target: Target,
    /// Columns that are known up to the present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<String>,
    /// Columns that are known in advance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub future: Vec<String>,
    /// Columns that belong to a series as a whole.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    /// What is done about gaps.
    pub missing: Missing,
    /// The frequency; without it, it is found from the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency: Option<String>,
    /// The frequency that is expected, and taken if the times can be of it, even if they are too few to tell: that of the
    /// model which new data are for. A file does not name it.
    #[serde(skip)]
    pub expected: Option<String>,
}

/// The column or columns of the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Target {
    /// One.
    One(String),
    /// Several, of a wide file.
    Several(Vec<String>),
}

impl Default for Schema {
    fn default() -> Schema {
        Schema {
            layout: Layout::Long,
            id: None,
            time: "ds".into(),
            target: Target::One("y".into()),
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
    /// Its name.
    pub id: String,
    /// Time of its first value.
    pub start: i64,
    /// A time on the grid that all others are counted from. Of months, its day is that of all that have so many days,
    /// which the first value may lack.
    pub origin: i64,
    /// Its values, one a step of the grid. NaN where nothing is known.
    pub values: Vec<f64>,
    /// Positions, in their order, where a value or one of a past column was filled in with knowledge of a later one: nobody
    /// stood there and knew it, so no window has its present there.
    pub leaky: Vec<usize>,
    /// `[values, past columns]`.
    pub past: Vec<f64>,
    /// `[values or more, future columns]`: rows after the last value are known in advance.
    pub future: Vec<f64>,
    /// One number for each static column.
    pub fixed: Vec<f64>,
}

impl Series {
    /// The time of a value, which may be one to come. `None` out of range.
    pub fn time(&self, frequency: &Frequency, position: usize) -> Option<i64> {
        let first = frequency.steps(self.origin, self.start)?;
        frequency.at(self.origin, first.checked_add(position as i64)?)
    }
}

/// Names of the columns that go with the series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Known up to the present.
    pub past: Vec<String>,
    /// Known in advance.
    pub future: Vec<String>,
    /// Of a series as a whole.
    pub fixed: Vec<String>,
}

/// Many time series on one grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// From one value to the next.
    pub frequency: Frequency,
    /// Minutes ahead of UTC that times are written with: the zone of all of them, or 0 if they have several. `None` if
    /// they have none.
    pub offset: Option<i64>,
    /// How times are written.
    pub form: Form,
    /// Names of the columns.
    pub columns: Columns,
    /// The series, in the order of their first rows.
    pub series: Vec<Series>,
    /// What was found while reading.
    pub report: Report,
}

impl Table {
    /// The time of a value of a series, as text. Empty out of range.
    pub fn time(&self, series: &Series, position: usize) -> String {
        let tick = series.time(&self.frequency, position);
        tick.map_or_else(String::new, |tick| self.form.format(tick, self.frequency.kind, self.offset))
    }

    /// The series of a name.
    pub fn find(&self, id: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.id == id)
    }

    /// Values of all series together.
    pub fn values(&self) -> usize {
        self.series.iter().map(|series| series.values.len()).sum()
    }

    /// A number that another table has only by chance: of its names, times and values.
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

    /// Lets the series go on with the values of another table, which must have the same ones. For tables whose times are
    /// mere numbers of values and which have no further columns: one series a row.
    pub(crate) fn append(&mut self, after: Table) -> Result<(), DataProblem> {
        if let Some(series) = self.series.iter().find(|series| after.find(&series.id).is_none()) {
            return Err(DataProblem::NoValues { id: series.id.clone(), column: "the row".into() });
        }
        let places: FxHashMap<&str, usize> =
            self.series.iter().enumerate().map(|(place, series)| (series.id.as_str(), place)).collect();
        let place =
            |id: &str| places.get(id).copied().ok_or_else(|| DataProblem::NoHistory { id: id.into() });
        let found = after.series.iter().map(|series| place(&series.id)).collect::<Result<Vec<_>, _>>()?;
        // Missing values at the ends were cut: what goes on would go on too early.
        let begins_late = after.series.iter().any(|series| series.start != 1);
        if begins_late || self.report.not_yet_known > 0 {
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

/// What was found while reading a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Rows read.
    pub rows: u64,
    /// Values that were empty or not a number.
    pub missing_values: u64,
    /// Rows without a value behind the last one.
    pub not_yet_known: u64,
    /// Points of the grid that had no row.
    pub missing_times: u64,
    /// Rows at times between two points of the grid.
    pub irregular_times: u64,
    /// Series whose rows were not in the order of time.
    pub unsorted_series: u64,
}

impl Report {
    /// Adds what was found in another file.
    fn add(&mut self, other: &Report) {
        let Report { rows, missing_values, not_yet_known, missing_times, irregular_times, unsorted_series } =
            other;
        self.rows += rows;
        self.missing_values += missing_values;
        self.not_yet_known += not_yet_known;
        self.missing_times += missing_times;
        self.irregular_times += irregular_times;
        self.unsorted_series += unsorted_series;
    }

    /// One line for each thing that was found; none if the data are in order.
    pub fn lines(&self, missing: Missing) -> Vec<String> {
        let done = match missing {
            Missing::Error => "",
            Missing::Drop => ": windows that touch them are left out",
            Missing::ForwardFill => ": filled with the value before",
            Missing::Interpolate => ": filled by interpolation",
        };
        let irregular = match missing {
            Missing::Drop => ": left out",
            _ => done,
        };
        [
            (self.missing_values, "missing values", done),
            (self.not_yet_known, "values after the last one are missing", ": the series end before them"),
            (self.missing_times, "missing times", done),
            (self.irregular_times, "times off the grid", irregular),
            (self.unsorted_series, "series out of order", ": sorted"),
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
    fn a_schema_says_what_it_leaves_out() {
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
    fn a_table_goes_on_with_another_of_the_same_series() {
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
        assert!(unknown.contains("series \"c\" goes on, but does not begin"), "{unknown}");
    }

    #[test]
    fn a_fingerprint_knows_every_number_and_name() {
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
    fn reports_say_what_was_done() {
        let report = Report { missing_times: 2, unsorted_series: 1, ..Report::default() };
        assert_eq!(
            report.lines(Missing::ForwardFill),
            ["2 missing times: filled with the value before", "1 series out of order: sorted"]
        );
        assert!(Report::default().lines(Missing::Drop).is_empty());
    }
}
