//! The rows of a file that are looked at, and what the texts of its columns are.

use std::collections::{HashSet, VecDeque};
use std::io::BufRead;

use ::csv::{ByteRecord, ReaderBuilder};

use crate::data::collect::decode;
pub(super) use crate::data::csv::is_missing;
use crate::data::csv::{delimiter, from_csv};
use crate::data::error::DataProblem;
use crate::data::number::Decimal;
use crate::data::rows::Located;

/// Rows that are looked at, at the beginning and at the end.
const FIRST_ROWS: usize = 20_000;
const LAST_ROWS: usize = 5_000;

/// The rows that are looked at.
pub(super) struct Sample {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) delimiter: u8,
}

/// What the texts of a column are.
pub(super) struct Column {
    /// Texts that are not empty and do not stand for a missing value.
    pub(super) known: usize,
    pub(super) plain: usize,
    pub(super) decimals: [usize; 2],
    pub(super) binary: bool,
    pub(super) distinct: usize,
}

impl Column {
    pub(super) fn is_numeric(&self, decimal: Option<Decimal>) -> bool {
        let count = match decimal {
            None => self.plain,
            Some(Decimal::Point) => self.plain.max(self.decimals[0]),
            Some(Decimal::Comma) => self.decimals[1],
        };
        self.known > 0 && count == self.known
    }
}

impl Sample {
    pub(super) fn read(mut input: impl BufRead) -> Result<Sample, Located> {
        let unreadable = |error: std::io::Error| (None, DataProblem::Unreadable(error.to_string()));
        let delimiter = delimiter(input.fill_buf().map_err(unreadable)?);
        let mut reader = ReaderBuilder::new().flexible(true).delimiter(delimiter).from_reader(input);
        let text = |record: &ByteRecord| -> Vec<String> {
            record.iter().map(|field| decode(field).trim().to_string()).collect()
        };
        let header = text(reader.byte_headers().map_err(|error| from_csv(&error))?);
        let mut record = ByteRecord::new();
        let (mut rows, mut last) = (Vec::new(), VecDeque::new());
        while reader.read_byte_record(&mut record).map_err(|error| from_csv(&error))? {
            if record.len() != header.len() {
                let line = record.position().map(::csv::Position::line);
                return Err((line, DataProblem::Fields { found: record.len(), expected: header.len() }));
            }
            if rows.len() < FIRST_ROWS {
                rows.push(text(&record));
            } else {
                if last.len() == LAST_ROWS {
                    last.pop_front();
                }
                last.push_back(record.clone());
            }
        }
        rows.extend(last.iter().map(text));
        if rows.is_empty() || header.iter().all(String::is_empty) {
            return Err((None, DataProblem::Empty));
        }
        Ok(Sample { header, rows, delimiter })
    }

    pub(super) fn texts(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[column].as_str()).filter(|text| !is_missing(text))
    }

    pub(super) fn column(&self, column: usize) -> Column {
        let mut found = Column { known: 0, plain: 0, decimals: [0, 0], binary: true, distinct: 0 };
        let mut distinct = HashSet::new();
        for text in self.texts(column) {
            found.known += 1;
            let truth = matches!(text, "True" | "true" | "TRUE" | "False" | "false" | "FALSE");
            let plain = truth || text.parse::<f64>().is_ok();
            found.plain += usize::from(plain);
            for (count, decimal) in found.decimals.iter_mut().zip([Decimal::Point, Decimal::Comma]) {
                *count += usize::from(truth || decimal.parse(text).is_some());
            }
            found.binary &= truth || matches!(text, "0" | "1" | "0.0" | "1.0");
            if distinct.len() < 1000 {
                distinct.insert(text);
            }
        }
        found.distinct = distinct.len();
        found
    }

    pub(super) fn find(&self, name: &str) -> Result<usize, DataProblem> {
        self.header.iter().position(|column| column == name).ok_or_else(|| DataProblem::MissingColumn {
            name: name.to_string(),
            known: self.header.join(", "),
        })
    }

    /// Returns the columns in order of preference: known names first.
    pub(super) fn ranked(&self, columns: impl Iterator<Item = usize>, names: &[&str]) -> Vec<usize> {
        let rank = |column: &usize| {
            let name = self.header[*column].to_lowercase();
            names.iter().position(|known| *known == name).unwrap_or(names.len())
        };
        let mut columns: Vec<usize> = columns.collect();
        columns.sort_by_key(|column| (rank(column), *column));
        columns
    }

    pub(super) fn is_named(&self, column: usize, names: &[&str]) -> bool {
        names.contains(&self.header[column].to_lowercase().as_str())
    }

    /// Returns whether a column counts the rows. Of a table with several series (`repeated`), a column that grows by one from row to
    /// row does; of a single series only if its name says so, since a value may grow too.
    pub(super) fn has_row_numbers(&self, column: usize, repeated: bool) -> bool {
        let name = self.header[column].to_lowercase();
        let named = super::times::NUMBERS.contains(&name.as_str())
            || ["index", "id"].contains(&name.as_str())
            || name.ends_with("_id");
        let numbers = self.rows.iter().take(FIRST_ROWS).map(|row| row[column].parse::<i64>().ok());
        let Some(numbers) = numbers.collect::<Option<Vec<i64>>>() else { return false };
        (repeated || named)
            && numbers.len() > 2
            && numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
    }
}
