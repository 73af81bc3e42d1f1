//! Data that cannot be used: what is wrong, in which file, at which line.

use super::frequency::Frequency;
use gatework_train::files::FileError;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in it is wrong.
    #[error("{origin}:{}{problem}", line.map_or(" ".to_string(), |line| format!("{line}: ")))]
    Content {
        /// The file.
        origin: String,
        /// The line, where it is known. The header is line 1.
        line: Option<u64>,
        /// What is wrong.
        problem: Box<DataProblem>,
    },
}

/// What is wrong with data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataProblem {
    /// Nothing in it.
    #[error("there are no rows of data")]
    Empty,
    /// A column that is not there.
    #[error("there is no column {name:?}; there are {known}")]
    MissingColumn {
        /// The column.
        name: String,
        /// All columns.
        known: String,
    },
    /// A column that is there, or used, twice.
    #[error("the column {name:?} is there or used twice")]
    ColumnTwice {
        /// The column.
        name: String,
    },
    /// A row with too few or too many fields.
    #[error("{found} fields, but the header has {expected}")]
    Fields {
        /// In this row.
        found: usize,
        /// In the header.
        expected: usize,
    },
    /// Text that is no time.
    #[error("{text:?} is no time; for example 2024-01-31, 2024-01-31 13:00:00, 2024-01, 17")]
    Time {
        /// The text.
        text: String,
    },
    /// Numbers and dates in one column.
    #[error("{text:?} is a time of another kind than those before")]
    MixedTimes {
        /// The text.
        text: String,
    },
    /// Times with a zone and times without one in one column.
    #[error(
        "{text:?}: some times have a zone and others have none; write all of them with one, such as Z, or none of them"
    )]
    MixedZones {
        /// The text.
        text: String,
    },
    /// Text that is no number.
    #[error("{column}: {text:?} is no number")]
    Number {
        /// The column.
        column: String,
        /// The text.
        text: String,
    },
    /// Infinite, or too large for 32 bits.
    #[error("{column}: {text} is infinite, or too large")]
    Infinite {
        /// The column.
        column: String,
        /// The text.
        text: String,
    },
    /// Two rows of one series at one time.
    #[error("series {id:?} has two rows at {time}; the other is line {other}")]
    Duplicate {
        /// The series.
        id: String,
        /// The time.
        time: String,
        /// The line of the other row.
        other: u64,
    },
    /// A static column that changes.
    #[error("series {id:?}: the static column {column} changes")]
    NotStatic {
        /// The series.
        id: String,
        /// The column.
        column: String,
    },
    /// A value that is missing, when that is an error.
    #[error(
        "series {id:?}: {column} is missing at {time}; missing = \"drop\", \"forward-fill\" or \"interpolate\" allows it"
    )]
    MissingValue {
        /// The series.
        id: String,
        /// The column.
        column: String,
        /// The time.
        time: String,
    },
    /// Times that are missing, when that is an error.
    #[error(
        "series {id:?}: {count} of its times before {time} are missing (frequency {frequency}); missing = \"drop\", \"forward-fill\" or \"interpolate\" allows it"
    )]
    MissingTimes {
        /// The series.
        id: String,
        /// How many.
        count: i64,
        /// The time after the gap.
        time: String,
        /// The frequency.
        frequency: Frequency,
    },
    /// A time off the grid, when that is an error.
    #[error(
        "series {id:?}: {time} is off the grid (frequency {frequency}); missing = \"drop\", \"forward-fill\" or \"interpolate\" allows it"
    )]
    Irregular {
        /// The series.
        id: String,
        /// The time.
        time: String,
        /// The frequency.
        frequency: Frequency,
    },
    /// Gaps so large that filling them in would be most of the series.
    #[error(
        "series {id:?}: {points} points of the grid (frequency {frequency}) for {rows} rows; name the frequency if it is another"
    )]
    TooSparse {
        /// The series.
        id: String,
        /// Points of the grid.
        points: i64,
        /// Rows.
        rows: usize,
        /// The frequency.
        frequency: Frequency,
    },
    /// A column without any number.
    #[error("series {id:?}: {column} has no value at all")]
    NoValues {
        /// The series.
        id: String,
        /// The column.
        column: String,
    },
    /// Values are missing where series should go on.
    #[error(
        "the series cannot go on: values are missing at the end of the data before, or at the begin of these"
    )]
    NotJoined,
    /// A series of test data that the data before do not have.
    #[error("series {id:?} goes on, but does not begin: the data before have no such series")]
    NoHistory {
        /// The series.
        id: String,
    },
    /// No series is long enough to tell.
    #[error("the frequency cannot be found from series of fewer than 3 rows; name it")]
    NoFrequency,
    /// Text that names no frequency.
    #[error(
        "{text:?} is no frequency of such times; for example h, 15min, D, B, W, M, Q, Y, or a number for integers"
    )]
    Frequency {
        /// The text.
        text: String,
    },
    /// Series of different frequencies.
    #[error(
        "mixed frequencies: series {first:?} has {first_frequency}, series {second:?} has {second_frequency}; name the frequency, or split the file"
    )]
    MixedFrequencies {
        /// A series.
        first: String,
        /// Its frequency.
        first_frequency: Frequency,
        /// Another.
        second: String,
        /// Its frequency.
        second_frequency: Frequency,
    },
    /// Not a table at all.
    #[error("{0}")]
    Unreadable(String),
}

impl DataProblem {
    /// Whether a policy for gaps would allow it.
    pub fn is_gap(&self) -> bool {
        matches!(
            self,
            DataProblem::MissingValue { .. }
                | DataProblem::MissingTimes { .. }
                | DataProblem::Irregular { .. }
        )
    }

    /// The error, in a file.
    pub fn at(self, origin: &str, line: Option<u64>) -> DataError {
        DataError::Content { origin: origin.to_string(), line, problem: Box::new(self) }
    }
}
