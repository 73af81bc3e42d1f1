//! Tables built from columns in memory, which are read as those of a file.

use ::csv::ByteRecord;

use super::csv::read_records;
use super::error::{DataError, DataProblem};
use super::table::{Schema, Table};

/// What errors call a table in memory.
pub(super) const ORIGIN: &str = "table";

/// A column of a table in memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Column<'a> {
    /// Numbers; NaN is a missing value.
    Numbers(&'a [f64]),
    /// Integers: values, or times that are counted.
    Integers(&'a [i64]),
    /// Texts: ids, or times such as `2024-01-31`; an empty text is a missing value.
    Texts(&'a [&'a str]),
    /// Texts that are owned.
    Strings(&'a [String]),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Column::Numbers(numbers) => numbers.len(),
            Column::Integers(numbers) => numbers.len(),
            Column::Texts(texts) => texts.len(),
            Column::Strings(texts) => texts.len(),
        }
    }

    /// Appends the field of a row, as CSV has it. Numbers are written with all of their digits.
    fn write(&self, row: usize, record: &mut ByteRecord) {
        match self {
            Column::Numbers(numbers) => record.push_field(numbers[row].to_string().as_bytes()),
            Column::Integers(numbers) => record.push_field(numbers[row].to_string().as_bytes()),
            Column::Texts(texts) => record.push_field(texts[row].as_bytes()),
            Column::Strings(texts) => record.push_field(texts[row].as_bytes()),
        }
    }
}

impl Table {
    /// Builds a table from named columns, which are read as those of a CSV file with these columns. The line of an error is
    /// the row, from 1.
    ///
    /// ```
    /// use gatework_forecast::data::{Column, Schema, Table};
    ///
    /// let columns = [
    ///     ("unique_id", Column::Texts(&["a", "a", "a", "b", "b"])),
    ///     ("ds", Column::Texts(&["2024-01", "2024-02", "2024-03", "2024-01", "2024-02"])),
    ///     ("y", Column::Numbers(&[1.0, 2.0, 3.0, 10.0, 11.0])),
    /// ];
    /// let table = Table::from_columns(&columns, &Schema::default())?;
    /// assert_eq!(table.series[1].values, [10.0, 11.0]);
    /// # Ok::<(), gatework_forecast::data::DataError>(())
    /// ```
    pub fn from_columns(columns: &[(&str, Column<'_>)], schema: &Schema) -> Result<Table, DataError> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        if let Some((name, column)) = columns.iter().find(|(_, column)| column.len() != rows) {
            let problem =
                DataProblem::ColumnLength { name: (*name).to_string(), found: column.len(), expected: rows };
            return Err(problem.at(ORIGIN, None));
        }
        let header: Vec<String> = columns.iter().map(|(name, _)| (*name).to_string()).collect();
        let mut row = 0;
        let next = |record: &mut ByteRecord| {
            if row == rows {
                return Ok(None);
            }
            record.clear();
            for (_, column) in columns {
                column.write(row, record);
            }
            row += 1;
            Ok(Some(row as u64))
        };
        read_records(&header, schema, next).map_err(|(line, problem)| problem.at(ORIGIN, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::read_csv;

    #[test]
    fn columns_are_read_like_csv() {
        let schema: Schema = toml::from_str("future = ['p']\nmissing = 'drop'").unwrap();
        let days: Vec<String> = (1..=5).map(|day| format!("2024-01-0{day}")).collect();
        let columns = [
            ("ds", Column::Strings(&days)),
            ("y", Column::Numbers(&[0.1, f64::NAN, 1e-7, 1.0 / 3.0, f64::NAN])),
            ("p", Column::Integers(&[0, 1, 0, 1, -1])),
        ];
        let table = Table::from_columns(&columns, &schema).unwrap();
        let third = 1.0 / 3.0;
        let text = format!(
            "ds,y,p\n2024-01-01,0.1,0\n2024-01-02,,1\n2024-01-03,1e-7,0\n2024-01-04,{third},1\n2024-01-05,,-1\n"
        );
        let file = read_csv(text.as_bytes(), "x", &schema).unwrap();
        assert_eq!(format!("{table:?}"), format!("{file:?}"));
    }

    #[test]
    fn errors_name_their_row_or_column() {
        let message = |days: &[&str], values: &[f64]| {
            let columns = [("ds", Column::Texts(days)), ("y", Column::Numbers(values))];
            Table::from_columns(&columns, &Schema::default()).unwrap_err().to_string()
        };
        let twice = message(&["2024-01-01", "2024-01-02", "2024-01-02"], &[1.0; 3]);
        assert_eq!(twice, "table:3: series \"y\" has two rows at 2024-01-02; the other is line 2");
        assert_eq!(
            message(&["2024-01-01"], &[1.0; 2]),
            "table: the column \"y\" has 2 rows, but others have 1"
        );
        assert_eq!(message(&[], &[]), "table: there are no rows of data");
        assert!(message(&["2024-01-01", "x"], &[1.0; 2]).starts_with("table:2: \"x\" is not a time"));
        let infinite = message(&["2024-01-01"], &[f64::INFINITY]);
        assert_eq!(infinite, "table:1: y: inf is infinite, or too large for 32-bit numbers");
        assert!(Table::from_columns(&[], &Schema::default()).is_err());
    }
}
