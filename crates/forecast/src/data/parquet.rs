//! Parquet reader. Fields are converted to the text of a CSV file, so that both formats are parsed and checked alike; the
//! line of an error is the number of the row, from 2.

use std::cell::Cell;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use ::csv::ByteRecord;
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::csv::read_records;
use super::error::{DataError, DataProblem};
use super::rows::Located;
use super::table::{Schema, Table};
use super::time::{self, DAY, TimeKind};

/// Reads a table from a Parquet file. Errors call it `origin`.
pub fn read(file: File, origin: &str, schema: &Schema) -> Result<Table, DataError> {
    let result = without_panics(|| read_rows(file, schema)).unwrap_or_else(|| {
        Err((None, DataProblem::Unreadable("the file is corrupt: a page cannot be decoded".into())))
    });
    result.map_err(|(line, problem)| problem.at(origin, line))
}

thread_local! {
    /// Whether a panic of this thread is caught by [`without_panics`].
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function and returns its result, or `None` if it panics. The library panics on some corrupt pages, for example on
/// encoded values that end too early.
///
/// The message of such a panic is not printed: it would be about the library, and the caller reports the file. Panics elsewhere
/// go to the hook that was installed before.
fn without_panics<T>(function: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                previous(panic);
            }
        }));
    });
    let was_caught = IS_CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(function));
    IS_CAUGHT.set(was_caught);
    result.ok()
}

fn read_rows(file: File, schema: &Schema) -> Result<Table, Located> {
    let broken = |error: parquet::errors::ParquetError| (None, DataProblem::Unreadable(error.to_string()));
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
        let row = row.map_err(|error| (Some(line), DataProblem::Unreadable(error.to_string())))?;
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

/// Formats a field as in CSV.
fn text(field: &Field, nanoseconds: bool) -> String {
    let stamp = |tick: i64| time::format(tick, TimeKind::DateTime);
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Date(days) => time::format(i64::from(*days) * DAY, TimeKind::Date),
        Field::TimestampMillis(moment) => stamp(moment.saturating_mul(1000)),
        Field::TimestampMicros(moment) => stamp(*moment),
        Field::Long(moment) if nanoseconds => stamp(moment.div_euclid(1000)),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::sync::Arc;

    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Writes a file of ids, times (microseconds or nanoseconds) and optional values.
    fn file(unit: &str, times: &[i64], values: &[Option<f64>]) -> File {
        let message = format!(
            "message m {{ required binary unique_id (UTF8); required int64 ds (TIMESTAMP({unit}, false)); optional double y; }}"
        );
        let schema = Arc::new(parse_message_type(&message).unwrap());
        let mut output = tempfile::tempfile().unwrap();
        let properties = Arc::new(WriterProperties::builder().build());
        let copy = output.try_clone().unwrap();
        let mut writer = SerializedFileWriter::new(copy, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(w) => {
                    w.write_batch(&vec![ByteArray::from("a"); times.len()], None, None).unwrap();
                }
                ColumnWriter::Int64ColumnWriter(w) => {
                    w.write_batch(times, None, None).unwrap();
                }
                ColumnWriter::DoubleColumnWriter(w) => {
                    let known: Vec<f64> = values.iter().flatten().copied().collect();
                    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                    w.write_batch(&known, Some(&levels), None).unwrap();
                }
                _ => unreachable!("three columns"),
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        output.flush().unwrap();
        output.seek(SeekFrom::Start(0)).unwrap();
        output
    }

    const HOUR: i64 = 3600 * time::SECOND;

    #[test]
    fn a_parquet_file_is_read_like_csv() {
        for (unit, factor) in [("MICROS", 1), ("NANOS", 1000)] {
            let times: Vec<i64> = (0..4).map(|hour| hour * HOUR * factor).collect();
            let values = [Some(1.0), None, Some(3.5), Some(4.0)];
            let schema = Schema { missing: super::super::Missing::Interpolate, ..Schema::default() };
            let table = read(file(unit, &times, &values), "a.parquet", &schema).unwrap();
            assert_eq!(table.series[0].values, [1.0, 2.25, 3.5, 4.0]);
            assert_eq!((table.frequency.to_string().as_str(), table.report.missing_values), ("h", 1));
            assert_eq!(table.time(&table.series[0], 1), "1970-01-01 01:00:00");
        }
    }

    #[test]
    fn a_panic_of_the_library_is_caught() {
        assert_eq!(without_panics(|| 1), Some(1));
        let inner = || without_panics(|| panic!("a corrupt page"));
        assert_eq!(without_panics(|| (inner(), IS_CAUGHT.get())), Some((None::<()>, true)));
        assert!(!IS_CAUGHT.get());
    }

    #[test]
    fn errors_name_their_row() {
        let times = [0, HOUR, HOUR];
        let error =
            read(file("MICROS", &times, &[Some(1.0); 3]), "a.parquet", &Schema::default()).unwrap_err();
        assert!(error.to_string().starts_with("a.parquet:4: series \"a\" has two rows"), "{error}");
        let mut none = tempfile::tempfile().unwrap();
        none.write_all(b"PAR1 and nothing else").unwrap();
        let error = read(none, "a.parquet", &Schema::default()).unwrap_err();
        assert!(error.to_string().starts_with("a.parquet: "), "{error}");
    }
}
