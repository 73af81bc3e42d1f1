//! Mutants of tables: CSV in every layout, gzip, and Parquet with the feature `parquet`. A reader refuses a mutant with an error
//! that names it, or uses it. `GATEWORK_MUTANTS` sets the number of mutants of each kind.

use std::fmt::Write as _;
use std::io::Write as _;

use gatework_forecast::data::{Layout, Missing, Schema, Table, read_csv};
use gatework_test_support::counting::CountingAllocator;
use gatework_test_support::mutation::{check, count};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Mutants of each kind of file, unless `GATEWORK_MUTANTS` is set.
const MUTANTS: u64 = 300;

/// A table of two series with covariates.
fn long() -> Vec<u8> {
    let mut text = String::from("unique_id,ds,y,p,f,s\n");
    for day in 1..=28 {
        let _ = writeln!(text, "a,2024-02-{day:02},{day}.5,{},0,1", day % 7);
        let _ = writeln!(text, "\"b, c\",2024-02-{day:02} 00:00:00,{},,1e3,-2", day * day);
    }
    text.into_bytes()
}

/// The same table in columns, with gaps, and in one series per row.
const WIDE: &str = "ds;north;south\n2020Q1;1;2\n2020Q2;NA;3\n2020Q3;2.5;4\n2021Q1;1e-3;true\n2021Q2;7;8\n";
const ROWS: &str = "id,1,2,3,4\na,1,2,3,\nb,4,5,6,7\n\"c\"\"d\",0.5,,2,3\n";

fn schemas() -> Vec<Schema> {
    let covariates = Schema {
        past: vec!["p".into()],
        future: vec!["f".into()],
        fixed: vec!["s".into()],
        ..Schema::default()
    };
    let mut schemas = vec![covariates];
    for layout in [Layout::Long, Layout::Wide, Layout::Rows] {
        for missing in [Missing::Error, Missing::Drop, Missing::ForwardFill, Missing::Interpolate] {
            schemas.push(Schema { layout, missing, ..Schema::default() });
        }
    }
    schemas
}

/// Describes a table, and checks that its columns have the lengths that they should have.
fn meaning(table: &Table, schema: &Schema) -> String {
    for series in &table.series {
        assert_eq!(series.past.len(), series.values.len() * schema.past.len());
        assert!(series.future.len() >= series.values.len() * schema.future.len());
        assert!(schema.missing == Missing::Drop || series.values.iter().all(|value| value.is_finite()));
    }
    let ends: Vec<String> =
        table.series.iter().map(|series| table.time(series, series.values.len())).collect();
    format!("{table:?} {ends:?}")
}

/// Reads bytes with every schema. Fails if all of them refuse it.
fn with_every_schema(bytes: &[u8]) -> Result<String, String> {
    let mut results = schemas().into_iter().map(|schema| {
        let table = read_csv(bytes, "mutant.csv", &schema).map_err(|error| error.to_string())?;
        Ok(meaning(&table, &schema))
    });
    let first = results.next().unwrap_or(Err(String::new()));
    results.fold(first, Result::or)
}

#[test]
fn csv() {
    let originals = [long(), WIDE.as_bytes().to_vec(), ROWS.as_bytes().to_vec()];
    check("CSV", "mutant.csv", false, &originals, count(MUTANTS), with_every_schema);
}

#[test]
fn gzip() {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(&long()).unwrap();
    let originals = [writer.finish().unwrap()];
    check("gzip", "mutant.csv", false, &originals, count(MUTANTS), with_every_schema);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutant.parquet");
    check("Parquet", "mutant.parquet", false, &[parquet_file()], count(MUTANTS), |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let schema = Schema::default();
        Table::read(&path, &schema).map(|table| meaning(&table, &schema)).map_err(|error| error.to_string())
    });
}

/// A Parquet file of one series.
#[cfg(feature = "parquet")]
fn parquet_file() -> Vec<u8> {
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::file::writer::SerializedFileWriter;
    let message = "message m { required binary unique_id (UTF8); required int64 ds (TIMESTAMP(MICROS, false)); optional double y; }";
    let schema = parquet::schema::parser::parse_message_type(message).unwrap().into();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, std::sync::Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                writer.write_batch(&vec![ByteArray::from("a"); 20], None, None).unwrap();
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let times: Vec<i64> = (0..20).map(|hour| hour * 3_600_000_000).collect();
                writer.write_batch(&times, None, None).unwrap();
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let values: Vec<f64> = (0..20).map(f64::from).collect();
                writer.write_batch(&values, Some(&[1; 20]), None).unwrap();
            }
            _ => unreachable!("three columns"),
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}
