//! Tables built from Arrow record batches. Fields are converted to the text of a CSV file, so that all formats are parsed
//! and checked alike.

use ::csv::ByteRecord;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use super::columns::ORIGIN;
use super::csv::read_records;
use super::error::{DataError, DataProblem};
use super::table::{Schema, Table};
use super::time::{self, DAY, TimeKind};

/// Returns the text of a row of a column.
type Field<'a> = Box<dyn Fn(usize) -> String + 'a>;

impl Table {
    /// Builds a table from record batches with the same columns, which are read as those of a CSV file. Ids and times may be
    /// texts, dictionaries of texts, integers, dates or timestamps; times with a zone are converted to UTC. The line of an
    /// error is the row, from 1. Needs the feature `arrow`.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use arrow_array::{ArrayRef, Date32Array, Float64Array, RecordBatch};
    /// use gatework_forecast::data::{Schema, Table};
    ///
    /// let days: ArrayRef = Arc::new(Date32Array::from(vec![19_723, 19_724, 19_725]));
    /// let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
    /// let batch = RecordBatch::try_from_iter([("ds", days), ("y", values)])?;
    /// let table = Table::from_record_batches([&batch], &Schema::default())?;
    /// assert_eq!(table.time(&table.series[0], 3), "2024-01-04");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_record_batches<'a>(
        batches: impl IntoIterator<Item = &'a RecordBatch>,
        schema: &Schema,
    ) -> Result<Table, DataError> {
        let batches: Vec<&RecordBatch> = batches.into_iter().collect();
        let at = |problem: DataProblem| problem.at(ORIGIN, None);
        let Some(first) = batches.first() else { return Err(at(DataProblem::Empty)) };
        let names = |batch: &RecordBatch| -> Vec<String> {
            batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
        };
        let header = names(first);
        if batches.iter().any(|batch| names(batch) != header) {
            let message = "the record batches have different columns; pass those of one table".to_string();
            return Err(at(DataProblem::Unreadable(message)));
        }
        let used = used_columns(schema, &header);
        let mut fields: Vec<(usize, Vec<Option<Field<'_>>>)> = Vec::with_capacity(batches.len());
        for batch in &batches {
            let columns = batch.columns().iter().zip(&header).zip(&used);
            let columns =
                columns.map(|((array, name), used)| used.then(|| field(array.as_ref(), name)).transpose());
            fields.push((batch.num_rows(), columns.collect::<Result<_, _>>().map_err(at)?));
        }
        let mut rows = fields.iter().flat_map(|(rows, columns)| (0..*rows).map(move |row| (columns, row)));
        let mut line = 0;
        let next = |record: &mut ByteRecord| {
            let Some((columns, row)) = rows.next() else { return Ok(None) };
            record.clear();
            for column in columns {
                record.push_field(column.as_ref().map_or_else(String::new, |field| field(row)).as_bytes());
            }
            line += 1;
            Ok(Some(line))
        };
        read_records(&header, schema, next).map_err(|(line, problem)| problem.at(ORIGIN, line))
    }
}

/// Returns which columns may be read: other columns of a long table may have any type.
fn used_columns(schema: &Schema, header: &[String]) -> Vec<bool> {
    use super::table::{Layout, Target};
    let target = match &schema.target {
        Target::One(name) => std::slice::from_ref(name),
        Target::Several(names) => names,
    };
    let id = schema.id.as_deref().unwrap_or("unique_id");
    let is_used = |name: &String| {
        let lists = [target, &schema.past, &schema.future, &schema.fixed];
        name == id || *name == schema.time || lists.iter().any(|list| list.contains(name))
    };
    header.iter().map(|name| schema.layout != Layout::Long || is_used(name)).collect()
}

/// Returns the texts of a column; those of null are empty.
fn field<'a>(array: &'a dyn Array, name: &str) -> Result<Field<'a>, DataProblem> {
    fn primitive<'a, T: ArrowPrimitiveType>(
        array: &'a dyn Array,
        text: impl Fn(T::Native) -> String + 'a,
    ) -> Field<'a> {
        let array = array.as_primitive::<T>();
        Box::new(move |row| text(array.value(row)))
    }
    let date = |tick: i64| time::format(tick, TimeKind::Date);
    let text: Field<'a> = match array.data_type() {
        DataType::Null => Box::new(|_| String::new()),
        DataType::Utf8 => Box::new(|row| array.as_string::<i32>().value(row).to_string()),
        DataType::LargeUtf8 => Box::new(|row| array.as_string::<i64>().value(row).to_string()),
        DataType::Utf8View => Box::new(|row| array.as_string_view().value(row).to_string()),
        DataType::Boolean => Box::new(|row| array.as_boolean().value(row).to_string()),
        DataType::Int8 => primitive::<Int8Type>(array, |x| x.to_string()),
        DataType::Int16 => primitive::<Int16Type>(array, |x| x.to_string()),
        DataType::Int32 => primitive::<Int32Type>(array, |x| x.to_string()),
        DataType::Int64 => primitive::<Int64Type>(array, |x| x.to_string()),
        DataType::UInt8 => primitive::<UInt8Type>(array, |x| x.to_string()),
        DataType::UInt16 => primitive::<UInt16Type>(array, |x| x.to_string()),
        DataType::UInt32 => primitive::<UInt32Type>(array, |x| x.to_string()),
        DataType::UInt64 => primitive::<UInt64Type>(array, |x| x.to_string()),
        DataType::Float16 => primitive::<Float16Type>(array, |x| x.to_string()),
        DataType::Float32 => primitive::<Float32Type>(array, |x| x.to_string()),
        DataType::Float64 => primitive::<Float64Type>(array, |x| x.to_string()),
        DataType::Date32 => primitive::<Date32Type>(array, move |days| date(i64::from(days) * DAY)),
        DataType::Date64 => primitive::<Date64Type>(array, move |ms| date(ms.saturating_mul(1000))),
        DataType::Timestamp(unit, zone) => {
            let zone = if zone.is_some() { "Z" } else { "" };
            let stamp = move |tick: i64| time::format(tick, TimeKind::DateTime) + zone;
            match unit {
                TimeUnit::Second => {
                    primitive::<TimestampSecondType>(array, move |s| stamp(s.saturating_mul(1_000_000)))
                }
                TimeUnit::Millisecond => {
                    primitive::<TimestampMillisecondType>(array, move |ms| stamp(ms.saturating_mul(1000)))
                }
                TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(array, stamp),
                TimeUnit::Nanosecond => {
                    primitive::<TimestampNanosecondType>(array, move |ns| stamp(ns.div_euclid(1000)))
                }
            }
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), field(dictionary.values().as_ref(), name)?);
            Box::new(move |row| keys.get(row).map_or_else(String::new, |key| values(*key)))
        }
        other => {
            let message = format!(
                "the column {name:?} has the type {other}, which is not supported; convert it to numbers, texts, dates or timestamps"
            );
            return Err(DataProblem::Unreadable(message));
        }
    };
    Ok(Box::new(move |row| if array.is_null(row) { String::new() } else { text(row) }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, LargeStringArray,
        ListArray, StringArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    };

    use super::*;
    use crate::data::{Missing, read_csv};

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .unwrap()
    }

    const HOUR: i64 = 3600 * time::SECOND;

    #[test]
    fn record_batches_are_read_like_csv() {
        let csv = "unique_id,ds,y,p\na,1970-01-01 00:00:00,0.1,3\na,1970-01-01 01:00:00,,4
a,1970-01-01 02:00:00,2.5,5\nb,1970-01-01 00:00:00,7,6\nb,1970-01-01 01:00:00,8,7\n";
        let schema = Schema { past: vec!["p".into()], missing: Missing::Interpolate, ..Schema::default() };
        let file = read_csv(csv.as_bytes(), "x", &schema).unwrap();
        let hours: Vec<i64> = [0, 1, 2, 0, 1].map(|hour| hour * HOUR).to_vec();
        let values = [Some(0.1), None, Some(2.5), Some(7.0), Some(8.0)];
        let ids = ["a", "a", "a", "b", "b"];
        let all: [Vec<ArrayRef>; 4] = [
            vec![
                Arc::new(StringArray::from(ids.to_vec())),
                Arc::new(LargeStringArray::from(ids.to_vec())),
                Arc::new(ids.iter().copied().collect::<DictionaryArray<Int32Type>>()),
            ],
            vec![
                Arc::new(TimestampMicrosecondArray::from(hours.clone())),
                Arc::new(TimestampNanosecondArray::from_iter_values(hours.iter().map(|us| us * 1000))),
            ],
            vec![
                Arc::new(Float64Array::from(values.to_vec())),
                Arc::new(Float32Array::from_iter(values.map(|value| value.map(|x| x as f32)))),
            ],
            vec![
                Arc::new(Int64Array::from(vec![3, 4, 5, 6, 7])),
                Arc::new(Int32Array::from(vec![3, 4, 5, 6, 7])),
            ],
        ];
        for choice in 0..3 {
            let [id, ds, y, p] =
                all.each_ref().map(|columns| Arc::clone(&columns[choice.min(columns.len() - 1)]));
            let batch = batch(vec![("unique_id", id), ("ds", ds), ("y", y), ("p", p)]);
            let parts = [batch.slice(0, 2), batch.slice(2, 3)];
            assert_eq!(Table::from_record_batches(&parts, &schema).unwrap(), file, "{choice}");
        }
        let zoned = TimestampMicrosecondArray::from(hours[..3].to_vec()).with_timezone("Europe/Berlin");
        let y: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
        let batch = batch(vec![("ds", Arc::new(zoned)), ("y", y)]);
        let table = Table::from_record_batches([&batch], &Schema::default()).unwrap();
        assert_eq!(table.offset, Some(0), "times are in UTC");
    }

    #[test]
    fn errors_name_their_row_or_column() {
        let ds: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 2]));
        let y: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
        let message = |batches: &[RecordBatch]| {
            Table::from_record_batches(batches, &Schema::default()).unwrap_err().to_string()
        };
        let twice = batch(vec![("ds", Arc::clone(&ds)), ("y", Arc::clone(&y))]);
        assert_eq!(
            message(std::slice::from_ref(&twice)),
            "table:3: series \"y\" has two rows at 2; the other is line 2"
        );
        let other = batch(vec![("ds", Arc::clone(&ds)), ("z", Arc::clone(&y))]);
        assert!(message(&[twice, other]).contains("different columns"));
        assert_eq!(message(&[]), "table: there are no rows of data");
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]); 3]));
        let ds: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let list = batch(vec![("ds", Arc::clone(&ds)), ("y", Arc::clone(&lists))]);
        assert!(message(&[list]).contains("the column \"y\" has the type"));
        let unused = batch(vec![("ds", ds), ("y", y), ("tags", lists)]);
        assert!(Table::from_record_batches([&unused], &Schema::default()).is_ok());
    }
}
