//! Errors of data: what is wrong, in which file, at which line.

use super::date_format::DateFormat;
use super::frequency::Frequency;
use super::number::Decimal;
use gatework_train::files::FileError;

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content is invalid.
    #[error("{origin}:{}{problem}", line.map_or(" ".to_string(), |line| format!("{line}: ")))]
    Content {
        /// The file, or the name of built-in data.
        origin: String,
        /// The line, if known. The header is line 1.
        line: Option<u64>,
        /// What is wrong.
        problem: Box<DataProblem>,
    },
}

/// A problem of the content of a table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataProblem {
    /// There are no rows.
    #[error("there are no rows of data")]
    Empty,
    /// A column is missing.
    #[error("there is no column {name:?}; there are {known}{}", setting(name, known))]
    MissingColumn {
        /// The column.
        name: String,
        /// The existing columns.
        known: String,
    },
    /// A column occurs twice, or has two roles.
    #[error("the column {name:?} occurs or is used twice; rename or remove one")]
    ColumnTwice {
        /// The column.
        name: String,
    },
    /// A row has too few or too many fields.
    #[error(
        "the row has {found} fields, but the header has {expected}; quote fields that contain the delimiter, and remove lines \
         above the names of the columns"
    )]
    Fields {
        /// Fields of the row.
        found: usize,
        /// Fields of the header.
        expected: usize,
    },
    /// A text is not a time.
    #[error(
        "{text:?} is not a time such as 2024-01-31, 2024-01-31 13:00:00, 2024-01, 17; declare the format of other dates, for example date_format = \"%d/%m/%Y\""
    )]
    Time {
        /// The text.
        text: String,
    },
    /// A text does not have the declared format.
    #[error("{text:?} is not a time of the format {format}; correct it, or set date_format")]
    DeclaredTime {
        /// The text.
        text: String,
        /// The format.
        format: Box<DateFormat>,
    },
    /// The declared format of times is invalid.
    #[error(
        "date_format = {text:?} is not a format of dates; write for example %d/%m/%Y, %m/%d/%y %I:%M %p, %Y-%m-%d %H:%M"
    )]
    DateFormat {
        /// The text.
        text: String,
    },
    /// Numbers and dates are mixed.
    #[error("{text:?} is a time of another kind than those before; write all times alike")]
    MixedTimes {
        /// The text.
        text: String,
    },
    /// Times with and without a time zone are mixed.
    #[error(
        "{text:?}: some times have a time zone and others have none; write all of them with a zone, such as Z, or without"
    )]
    MixedZones {
        /// The text.
        text: String,
    },
    /// A text is not a number.
    #[error("{column}: {text:?} is not a number{}", remedy(text))]
    Number {
        /// The column.
        column: String,
        /// The text.
        text: String,
    },
    /// A number is infinite or beyond the range of 32 bits.
    #[error("{column}: {text} is infinite, or too large for 32-bit numbers")]
    Infinite {
        /// The column.
        column: String,
        /// The text.
        text: String,
    },
    /// Two series have the same id.
    #[error("two series have the id {id:?}; rename one")]
    DuplicateSeries {
        /// The id.
        id: String,
    },
    /// A value of a series in memory is NaN, infinite or beyond the range of 32 bits.
    #[error("series {id:?}: value {index} is {value}; values must be finite")]
    NotFinite {
        /// Id of the series.
        id: String,
        /// Index of the value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// There is no series of this id.
    #[error("there is no series {id:?}")]
    UnknownSeries {
        /// The id.
        id: String,
    },
    /// Columns in memory have different lengths.
    #[error("the column {name:?} has {found} rows, but others have {expected}")]
    ColumnLength {
        /// The column.
        name: String,
        /// Its rows.
        found: usize,
        /// The rows of the first column.
        expected: usize,
    },
    /// A covariate in memory does not have a number for each value of its series.
    #[error("series {id:?}: {column:?} has {found} numbers, but the series has {values} values")]
    CovariateLength {
        /// Id of the series.
        id: String,
        /// The covariate.
        column: String,
        /// Its numbers.
        found: usize,
        /// The values of the series.
        values: usize,
    },
    /// A number of a covariate in memory is NaN, infinite or beyond the range of 32 bits.
    #[error("series {id:?}: {column:?} is {value} at {index}; covariates must be finite")]
    CovariateNotFinite {
        /// Id of the series.
        id: String,
        /// The covariate.
        column: String,
        /// Index of the number, from 0.
        index: usize,
        /// The number.
        value: f64,
    },
    /// A series does not have the numbers of the covariates of its table.
    #[error("series {id:?} has {found} numbers for its {columns} {kind} covariates, but needs {expected}")]
    Covariates {
        /// Id of the series.
        id: String,
        /// "past", "known-future" or "static".
        kind: &'static str,
        /// Covariates of this kind.
        columns: usize,
        /// Numbers of the series.
        found: usize,
        /// Covariates times rows.
        expected: usize,
    },
    /// A table does not have a covariate.
    #[error("there is no {kind} covariate {name:?}; there are {known}")]
    MissingCovariate {
        /// "past", "known-future" or "static".
        kind: &'static str,
        /// The covariate.
        name: String,
        /// The existing ones.
        known: String,
    },
    /// A series has two rows at one time.
    #[error("series {id:?} has two rows at {time}; the other is line {other}")]
    Duplicate {
        /// Id of the series.
        id: String,
        /// The time.
        time: String,
        /// The line of the other row.
        other: u64,
    },
    /// A static covariate changes within a series.
    #[error("series {id:?}: the static covariate {column} changes; make it a past or future one")]
    NotStatic {
        /// Id of the series.
        id: String,
        /// The column.
        column: String,
    },
    /// A value is missing.
    #[error(
        "series {id:?}: {column} is missing at {time}; allow it by missing = \"drop\", \"forward-fill\" or \"interpolate\""
    )]
    MissingValue {
        /// Id of the series.
        id: String,
        /// The column.
        column: String,
        /// The time.
        time: String,
    },
    /// Times are missing.
    #[error(
        "series {id:?}: {count} of its times before {time} are missing (frequency {frequency}); allow it by missing = \"drop\", \"forward-fill\" or \"interpolate\""
    )]
    MissingTimes {
        /// Id of the series.
        id: String,
        /// Number of missing times.
        count: i64,
        /// The time after the gap.
        time: String,
        /// The frequency.
        frequency: Frequency,
    },
    /// A time is not on the grid of the frequency.
    #[error(
        "series {id:?}: {time} is not on the time grid (frequency {frequency}); allow it by missing = \"drop\", \"forward-fill\" or \"interpolate\""
    )]
    Irregular {
        /// Id of the series.
        id: String,
        /// The time.
        time: String,
        /// The frequency.
        frequency: Frequency,
    },
    /// Most of the grid has no rows.
    #[error(
        "series {id:?}: the time grid (frequency {frequency}) has {points} points for {rows} rows; set frequency if this one is wrong"
    )]
    TooSparse {
        /// Id of the series.
        id: String,
        /// Points of the grid.
        points: i64,
        /// Rows of the series.
        rows: usize,
        /// The frequency.
        frequency: Frequency,
    },
    /// A column of a series has no values.
    #[error("series {id:?}: {column} has no value")]
    NoValues {
        /// Id of the series.
        id: String,
        /// The column.
        column: String,
    },
    /// Values are missing where the test data continue the series.
    #[error(
        "the test data cannot continue the series: values are missing at the end of the data or at the start of the test data"
    )]
    NotJoined,
    /// A series of the test data is not in the data.
    #[error("series {id:?} of the test data is not in the data")]
    NoHistory {
        /// Id of the series.
        id: String,
    },
    /// No series is long enough to detect the frequency.
    #[error("the frequency cannot be detected from series of fewer than 3 rows; set frequency")]
    NoFrequency,
    /// A text is not a frequency of these times.
    #[error(
        "{text:?} is not a frequency of these times; use for example h, 15min, D, B, W, M, Q, Y, or a number for integers"
    )]
    Frequency {
        /// The text.
        text: String,
    },
    /// Series have different frequencies.
    #[error(
        "mixed frequencies: series {first:?} has {first_frequency}, series {second:?} has {second_frequency}; set frequency, or split the file"
    )]
    MixedFrequencies {
        /// Id of a series.
        first: String,
        /// Its frequency.
        first_frequency: Frequency,
        /// Id of a series with another frequency.
        second: String,
        /// Its frequency.
        second_frequency: Frequency,
    },
    /// The table cannot be parsed.
    #[error("{0}")]
    Unreadable(String),
}

/// Returns the settings that name other columns than the default ones; those of all that are missing.
fn setting(name: &str, known: &str) -> String {
    let is_known = |name: &str| known.split(", ").any(|known| known == name);
    let missing = |(default, _): &(&str, &str)| !is_known(default);
    let settings: Vec<&str> = [("ds", "time = \"...\""), ("y", "target = \"...\"")]
        .iter()
        .filter(|s| missing(s))
        .map(|(_, set)| *set)
        .collect();
    if matches!(name, "ds" | "y") && !settings.is_empty() {
        format!("; set {} in [columns]", settings.join(" and "))
    } else {
        String::new()
    }
}

/// Returns the setting that reads a number.
fn remedy(text: &str) -> String {
    let set = [Decimal::Point, Decimal::Comma].into_iter().find(|decimal| decimal.parse(text).is_some());
    match (set, text.contains([',', '.'])) {
        (Some(_), false) => "; set decimal = \".\" to ignore currency and percent signs".into(),
        (Some(_), true) if [Decimal::Point, Decimal::Comma].iter().all(|d| d.parse(text).is_some()) => {
            "; set decimal = \".\" if thousands are grouped by commas, or decimal = \",\" for decimal commas"
                .into()
        }
        (Some(decimal), true) => format!("; set decimal = \"{}\"", decimal.separator()),
        (None, _) => String::new(),
    }
}

impl DataProblem {
    /// Returns whether another policy for missing values would allow it.
    pub fn is_gap(&self) -> bool {
        matches!(
            self,
            DataProblem::MissingValue { .. }
                | DataProblem::MissingTimes { .. }
                | DataProblem::Irregular { .. }
        )
    }

    /// Adds the file and the line.
    pub fn at(self, origin: &str, line: Option<u64>) -> DataError {
        DataError::Content { origin: origin.to_string(), line, problem: Box::new(self) }
    }
}
