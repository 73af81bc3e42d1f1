//! Parquet files, row by row. Every field becomes the text that a CSV file would have, so that both are read, checked
//! and refused in the same way; the line of an error is the number of the row, from 2.

use std::fs::File;

use ::csv::ByteRecord;
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::collect::Located;
use super::csv::read_records;
use super::error::{DataError, Problem};
use super::table::{Schema, Table};
use super::time::{self, DAY, Kind};

/// Reads a table from a Parquet file. `origin` is what errors call it.
pub fn read(file: File, origin: &str, schema: &Schema) -> Result<Table, DataError> {
    read_rows(file, schema).map_err(|(line, problem)| problem.at(origin, line))
}

fn read_rows(file: File, schema: &Schema) -> Result<Table, Located> {
    let broken = |error: parquet::errors::ParquetError| (None, Problem::Unreadable(error.to_string()));
    let reader = SerializedFileReader::new(file).map_err(broken)?;
    let fields = reader.metadata().file_metadata().schema_descr();
    let header: Vec<String> =
        fields.root_schema().get_fields().iter().map(|f| f.name().to_string()).collect();
    let nanoseconds: Vec<bool> = fields
        .root_schema()
        .get_fields()
        .iter()
        .map(|f| is_nanoseconds(f.get_basic_info().logical_type_ref()))
        .collect();
    let mut rows = reader.get_row_iter(None).map_err(broken)?;
    let mut line = 1;
    read_records(&header, schema, |record: &mut ByteRecord| {
        line += 1;
        let Some(row) = rows.next() else { return Ok(None) };
        let row = row.map_err(|error| (Some(line), Problem::Unreadable(error.to_string())))?;
        record.clear();
        for ((_, field), nanoseconds) in row.get_column_iter().zip(&nanoseconds) {
            record.push_field(text(field, *nanoseconds).as_bytes());
        }
        Ok(Some(line))
    })
}

fn is_nanoseconds(logical: Option<&LogicalType>) -> bool {
    matches!(logical, Some(LogicalType::Timestamp(stamp)) if stamp.unit == TimeUnit::NANOS)
}

/// A field as CSV has it.
fn text(field: &Field, nanoseconds: bool) -> String {
    let stamp = |tick: i64| time::format(tick, Kind::DateTime);
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Date(days) => time::format(i64::from(*days) * DAY, Kind::Date),
        Field::TimestampMillis(stamp_) => stamp(stamp_.saturating_mul(1000)),
        Field::TimestampMicros(stamp_) => stamp(*stamp_),
        Field::Long(stamp_) if nanoseconds => stamp(stamp_.div_euclid(1000)),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        other => other.to_string(),
    }
}
