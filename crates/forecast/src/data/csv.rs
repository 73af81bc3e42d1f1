//! CSV reader for long files, wide files and files with one series per row. Comma, semicolon or tab; plain or gzip; any
//! encoding with ASCII digits.

use std::io::BufRead;

use ::csv::{ByteRecord, ReaderBuilder};
use flate2::bufread::MultiGzDecoder;

use super::collect::{Collector, Observation, decode};
use super::error::{DataError, DataProblem};
use super::number::Decimal;
use super::rows::Located;
use super::table::{Layout, Schema, Table, Target};
use super::time::TimeKind;
use super::utf16::without_utf16;

/// Reads a table from CSV. Errors call it `origin`.
pub fn read_csv(input: impl BufRead, origin: &str, schema: &Schema) -> Result<Table, DataError> {
    let result = open_plain(input).and_then(|input| read_plain(input, schema));
    result.map_err(|(line, problem)| problem.at(origin, line))
}

/// Decompresses a file if it is compressed with gzip, and converts it to UTF-8 if it is UTF-16.
pub(super) fn open_plain<'a>(mut input: impl BufRead + 'a) -> Result<Box<dyn BufRead + 'a>, Located> {
    let unreadable = |error: std::io::Error| (None, DataProblem::Unreadable(error.to_string()));
    if input.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]) {
        let plain = std::io::BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input));
        return without_utf16(plain).and_then(without_separator).map_err(unreadable);
    }
    without_utf16(input).and_then(without_separator).map_err(unreadable)
}

/// Skips a declaration such as `sep=;`, which spreadsheets read and write as the first line. Its line stays, empty.
fn without_separator(mut input: Box<dyn BufRead + '_>) -> std::io::Result<Box<dyn BufRead + '_>> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let start = input.fill_buf()?;
    let mark = if start.starts_with(MARK) { MARK.len() } else { 0 };
    let line = start[mark..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    // The separator may be a tab.
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() == 5 && line[..4].eq_ignore_ascii_case(b"sep=") {
        input.consume(mark + 5);
    }
    Ok(input)
}

fn read_plain(mut input: impl BufRead, schema: &Schema) -> Result<Table, Located> {
    let unreadable = |error: std::io::Error| (None, DataProblem::Unreadable(error.to_string()));
    let delimiter = delimiter(input.fill_buf().map_err(unreadable)?);
    let mut reader = ReaderBuilder::new().flexible(true).delimiter(delimiter).from_reader(input);
    let header = reader.byte_headers().map_err(|error| from_csv(&error))?.clone();
    let header: Vec<String> = header.iter().map(|name| decode(name).trim().into()).collect();
    if header.iter().all(String::is_empty) {
        return Err((None, DataProblem::Empty));
    }
    read_records(&header, schema, |record| {
        let more = reader.read_byte_record(record).map_err(|error| from_csv(&error))?;
        Ok(more.then(|| record.position().map_or(0, ::csv::Position::line)))
    })
}

/// Reads a table from records. `next` fills in a record and returns its line.
pub(super) fn read_records(
    header: &[String],
    schema: &Schema,
    next: impl FnMut(&mut ByteRecord) -> Result<Option<u64>, Located>,
) -> Result<Table, Located> {
    let mut collector = Collector::new(schema);
    let at_header = |problem| (Some(1), problem);
    match schema.layout {
        Layout::Long => {
            let mut rows = Long::new(schema, header).map_err(at_header)?;
            for_each_record(next, header.len(), |line, record| rows.read(line, record, &mut collector))?;
        }
        Layout::Wide => {
            let mut rows = Wide::new(schema, header, &mut collector).map_err(at_header)?;
            for_each_record(next, header.len(), |line, record| rows.read(line, record, &mut collector))?;
        }
        Layout::Rows => {
            if let Some(name) = [&schema.past, &schema.future, &schema.fixed].into_iter().flatten().next() {
                return Err(at_header(missing_column(name, header)));
            }
            let times = times_of_columns(schema, header, &mut collector).map_err(at_header)?;
            for_each_record(next, header.len(), |line, record| {
                read_series(line, record, schema.decimal, &times, &mut collector)
            })?;
        }
    }
    collector.finish(schema)
}

/// Returns the most frequent delimiter of the first line that is not empty; a comma in case of a tie.
pub(super) fn delimiter(start: &[u8]) -> u8 {
    let mut lines = start.split(|b| *b == b'\n');
    let line = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let count = |delimiter: u8| line.split(|b| *b == delimiter).count();
    [b';', b'\t', b'|']
        .into_iter()
        .fold(b',', |best, other| if count(other) > count(best) { other } else { best })
}

pub(super) fn from_csv(error: &::csv::Error) -> Located {
    let line = error.position().map(::csv::Position::line);
    (line, DataProblem::Unreadable(error.to_string()))
}

/// Calls `read` for every record with its line.
fn for_each_record(
    mut next: impl FnMut(&mut ByteRecord) -> Result<Option<u64>, Located>,
    fields: usize,
    mut read: impl FnMut(u64, &ByteRecord) -> Result<(), DataProblem>,
) -> Result<(), Located> {
    let mut record = ByteRecord::new();
    while let Some(line) = next(&mut record)? {
        if record.len() != fields {
            return Err((Some(line), DataProblem::Fields { found: record.len(), expected: fields }));
        }
        read(line, &record).map_err(|problem| (Some(line), problem))?;
    }
    Ok(())
}

fn missing_column(name: &str, header: &[String]) -> DataProblem {
    DataProblem::MissingColumn { name: name.to_string(), known: header.join(", ") }
}

/// Returns the index of a column.
fn find(name: &str, header: &[String]) -> Result<usize, DataProblem> {
    let mut found = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(i, _)| i);
    let first = found.next().ok_or_else(|| missing_column(name, header))?;
    if found.next().is_some() {
        return Err(DataProblem::ColumnTwice { name: name.to_string() });
    }
    Ok(first)
}

fn find_all(names: &[String], header: &[String]) -> Result<Vec<usize>, DataProblem> {
    names.iter().map(|name| find(name, header)).collect()
}

/// Returns whether a text stands for a missing value.
pub(super) fn is_missing(text: &str) -> bool {
    const WORDS: [&str; 14] =
        ["", "NA", "N/A", "#N/A", "na", "n/a", "null", "NULL", "None", "-", ".", "?", "NaN", "nan"];
    WORDS.contains(&text)
}

/// Parses a number; NaN if it is missing. Numbers beyond the range of 32 bits, which models use, are an error.
fn number(field: &[u8], decimal: Option<Decimal>, column: impl Fn() -> String) -> Result<f64, DataProblem> {
    let text = field.trim_ascii();
    let text = || String::from_utf8_lossy(text).into_owned();
    let parsed = std::str::from_utf8(field.trim_ascii()).ok().and_then(|text| match text {
        text if is_missing(text) => Some(f64::NAN),
        "True" | "true" | "TRUE" => Some(1.0),
        "False" | "false" | "FALSE" => Some(0.0),
        text => match decimal {
            // Declared separators come first: 1.234 may be grouped.
            Some(decimal) => decimal.parse(text).or_else(|| text.parse().ok().filter(|x: &f64| x.is_nan())),
            None => text.parse().ok(),
        },
    });
    match parsed {
        None => Err(DataProblem::Number { column: column(), text: text() }),
        Some(value) if (value as f32).is_infinite() => {
            Err(DataProblem::Infinite { column: column(), text: text() })
        }
        Some(value) => Ok(value),
    }
}

fn numbers(
    record: &ByteRecord,
    columns: &[usize],
    header: &[String],
    decimal: Option<Decimal>,
    into: &mut Vec<f64>,
) -> Result<(), DataProblem> {
    into.clear();
    for &column in columns {
        into.push(number(&record[column], decimal, || header[column].clone())?);
    }
    Ok(())
}

/// The columns of the times.
struct Times {
    column: usize,
    /// Further columns, whose texts follow after a space.
    parts: Vec<usize>,
    joined: Vec<u8>,
}

impl Times {
    fn new(schema: &Schema, header: &[String]) -> Result<Times, DataProblem> {
        let parts = find_all(&schema.time_parts, header)?;
        Ok(Times { column: find(&schema.time, header)?, parts, joined: Vec::new() })
    }

    fn contains(&self, column: usize) -> bool {
        self.column == column || self.parts.contains(&column)
    }

    fn read(&mut self, record: &ByteRecord, collector: &mut Collector) -> Result<i64, DataProblem> {
        let mut field = &record[self.column];
        if !self.parts.is_empty() {
            self.joined.clear();
            self.joined.extend_from_slice(field.trim_ascii());
            for part in &self.parts {
                self.joined.push(b' ');
                self.joined.extend_from_slice(record[*part].trim_ascii());
            }
            field = &self.joined;
        }
        match std::str::from_utf8(field) {
            Ok(text) => collector.time(text),
            Err(_) => Err(DataProblem::Time { text: String::from_utf8_lossy(field).into_owned() }),
        }
    }
}

/// Reader of long files.
struct Long<'a> {
    header: &'a [String],
    id: Option<usize>,
    /// Further columns of the id.
    parts: Vec<usize>,
    /// The id of a row with several columns.
    joined: Vec<u8>,
    times: Times,
    target: usize,
    target_name: &'a str,
    exogenous: Exogenous<'a>,
}

impl<'a> Long<'a> {
    fn new(schema: &'a Schema, header: &'a [String]) -> Result<Long<'a>, DataProblem> {
        let target_name = match &schema.target {
            Target::One(name) => name.as_str(),
            Target::Several(names) if names.len() == 1 => names[0].as_str(),
            Target::Several(_) => {
                return Err(DataProblem::Unreadable(
                    "a long file has one target column; set columns.layout = \"wide\" for several".into(),
                ));
            }
        };
        let id = match &schema.id {
            Some(name) => Some(find(name, header)?),
            None => find("unique_id", header).ok(),
        };
        let times = Times::new(schema, header)?;
        let target = find(target_name, header)?;
        if times.contains(target) || id.is_some_and(|id| times.contains(id) || id == target) {
            return Err(DataProblem::ColumnTwice { name: target_name.to_string() });
        }
        let parts = find_all(&schema.id_parts, header)?;
        let joined = Vec::new();
        Ok(Long {
            header,
            id,
            parts,
            joined,
            times,
            target,
            target_name,
            exogenous: Exogenous::new(schema, header)?,
        })
    }

    fn read(&mut self, line: u64, record: &ByteRecord, collector: &mut Collector) -> Result<(), DataProblem> {
        let tick = self.times.read(record, collector)?;
        let value =
            number(&record[self.target], self.exogenous.decimal, || self.header[self.target].clone())?;
        self.exogenous.read(record)?;
        let id = self.id.map_or(self.target_name.as_bytes(), |id| &record[id]);
        let series = if self.parts.is_empty() {
            collector.series(id.trim_ascii())
        } else {
            self.joined.clear();
            self.joined.extend_from_slice(id.trim_ascii());
            for part in &self.parts {
                self.joined.push(b'/');
                self.joined.extend_from_slice(record[*part].trim_ascii());
            }
            collector.series(&self.joined)
        };
        collector.push(series, self.exogenous.observation(line, tick, value))
    }
}

/// Covariates of a row.
struct Exogenous<'a> {
    header: &'a [String],
    decimal: Option<Decimal>,
    columns: [Vec<usize>; 3],
    read: [Vec<f64>; 3],
}

impl<'a> Exogenous<'a> {
    fn new(schema: &Schema, header: &'a [String]) -> Result<Exogenous<'a>, DataProblem> {
        let columns = [
            find_all(&schema.past, header)?,
            find_all(&schema.future, header)?,
            find_all(&schema.fixed, header)?,
        ];
        Ok(Exogenous { header, decimal: schema.decimal, columns, read: Default::default() })
    }

    fn read(&mut self, record: &ByteRecord) -> Result<(), DataProblem> {
        for (columns, into) in self.columns.iter().zip(&mut self.read) {
            numbers(record, columns, self.header, self.decimal, into)?;
        }
        if let Some(c) = self.read[2].iter().position(|value| value.is_nan()) {
            let column = self.header[self.columns[2][c]].clone();
            return Err(DataProblem::Number { column, text: String::new() });
        }
        Ok(())
    }

    fn observation(&self, line: u64, tick: i64, value: f64) -> Observation<'_> {
        let [past, future, fixed] = &self.read;
        Observation { line, tick, value, past, future, fixed }
    }
}

/// Reader of wide files.
struct Wide<'a> {
    header: &'a [String],
    times: Times,
    /// Column and number of each series.
    series: Vec<(usize, usize)>,
    exogenous: Exogenous<'a>,
}

impl<'a> Wide<'a> {
    fn new(
        schema: &Schema,
        header: &'a [String],
        collector: &mut Collector,
    ) -> Result<Wide<'a>, DataProblem> {
        let times = Times::new(schema, header)?;
        let exogenous = Exogenous::new(schema, header)?;
        let used = |column: &usize| {
            times.contains(*column) || exogenous.columns.iter().flatten().any(|c| c == column)
        };
        let columns = match &schema.target {
            Target::Several(names) => find_all(names, header)?,
            // "y" is the default.
            Target::One(name) if name != "y" => vec![find(name, header)?],
            Target::One(name) => {
                let all: Vec<usize> = (0..header.len()).filter(|column| !used(column)).collect();
                if all.len() > 1 && all.iter().any(|column| header[*column] == *name) {
                    return Err(DataProblem::Unreadable(
                        "target = \"y\" is ambiguous: it is a column, but also stands for all columns of a wide file; write a list, for example target = [\"y\"]".into(),
                    ));
                }
                all
            }
        };
        if let Some(column) = columns.iter().find(|column| used(column)) {
            return Err(DataProblem::ColumnTwice { name: header[*column].clone() });
        }
        let mut series = Vec::with_capacity(columns.len());
        for column in columns {
            find(&header[column], header)?;
            series.push((column, collector.series(header[column].as_bytes())));
        }
        Ok(Wide { header, times, series, exogenous })
    }

    fn read(&mut self, line: u64, record: &ByteRecord, collector: &mut Collector) -> Result<(), DataProblem> {
        let tick = self.times.read(record, collector)?;
        self.exogenous.read(record)?;
        for &(column, series) in &self.series {
            let value = number(&record[column], self.exogenous.decimal, || self.header[column].clone())?;
            collector.push(series, self.exogenous.observation(line, tick, value))?;
        }
        Ok(())
    }
}

/// Returns the times of the values of a file with one series per row: the names of their columns if the schema says so,
/// otherwise 1, 2, 3, ...
fn times_of_columns(
    schema: &Schema,
    header: &[String],
    collector: &mut Collector,
) -> Result<Vec<i64>, DataProblem> {
    let names = header.get(1..).unwrap_or_default();
    if schema.times_in_header {
        return names.iter().map(|name| collector.time(name)).collect();
    }
    collector.kind_of(TimeKind::Integer);
    Ok((1..=names.len() as i64).collect())
}

/// Reads one series per row: its id, then its values. Empty fields at the end are ignored.
fn read_series(
    line: u64,
    record: &ByteRecord,
    decimal: Option<Decimal>,
    times: &[i64],
    collector: &mut Collector,
) -> Result<(), DataProblem> {
    let id = record.get(0).unwrap_or_default().trim_ascii();
    let series = collector.series(id);
    let values = || record.iter().skip(1).map(<[u8]>::trim_ascii);
    let length =
        values().collect::<Vec<_>>().iter().rposition(|field| !field.is_empty()).map_or(0, |last| last + 1);
    for ((position, field), &tick) in values().take(length).enumerate().zip(times) {
        let value = number(field, decimal, || format!("value {}", position + 1))?;
        let row = Observation { line, tick, value, past: &[], future: &[], fixed: &[] };
        collector.push(series, row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
