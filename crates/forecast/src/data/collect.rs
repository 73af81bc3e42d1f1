//! Collects the observations of a reader, and builds a table from them.
//!
//! A row takes 20 bytes plus 8 per covariate, whatever the length of its id: ten million rows take a few hundred
//! megabytes. The values of sorted series without gaps are not copied.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::date_format::DateFormat;
use super::error::DataProblem;
use super::frequency::Frequency;
use super::gaps::regularise;
use super::rows::{Located, Rows};
use super::table::{Columns, Missing, Report, Schema, Series, Table};
use super::time::{self, TimeForm, TimeKind};

/// Rows of a series that show a frequency of its own.
const ENOUGH: usize = 8;

/// One row of one series.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub line: u64,
    pub tick: i64,
    pub value: f64,
    pub past: &'a [f64],
    pub future: &'a [f64],
    pub fixed: &'a [f64],
}

/// Collects the observations of all series.
#[derive(Debug)]
pub struct Collector {
    columns: Columns,
    kind: Option<TimeKind>,
    /// Time zone as minutes ahead of UTC; 0 if there are several.
    offset: Option<i64>,
    /// Format of the first time.
    form: TimeForm,
    /// The format that the schema declares, or the text that is not one.
    declared: Option<Result<DateFormat, String>>,
    ids: FxHashMap<Box<str>, usize>,
    /// Series of the previous row: rows of a series are mostly contiguous.
    last: usize,
    series: Vec<Rows>,
    report: Report,
}

impl Collector {
    pub fn new(schema: &Schema) -> Collector {
        let columns =
            Columns { past: schema.past.clone(), future: schema.future.clone(), fixed: schema.fixed.clone() };
        Collector {
            columns,
            kind: None,
            offset: None,
            form: TimeForm::default(),
            declared: schema
                .date_format
                .as_ref()
                .map(|text| DateFormat::new(text).ok_or_else(|| text.clone())),
            ids: FxHashMap::default(),
            last: usize::MAX,
            series: Vec::new(),
            report: Report::default(),
        }
    }

    /// Returns the number of a series, which is created if necessary.
    pub fn series(&mut self, id: &[u8]) -> usize {
        if self.series.get(self.last).is_some_and(|rows| rows.id.as_bytes() == id) {
            return self.last;
        }
        let name = decode(id);
        self.last = if let Some(found) = self.ids.get(name.as_ref()) {
            *found
        } else {
            self.ids.insert(name.as_ref().into(), self.series.len());
            self.series.push(Rows { id: name.into_owned(), ..Rows::default() });
            self.series.len() - 1
        };
        self.last
    }

    /// Returns whether texts are ascending times of one kind, at least two.
    pub fn are_times(&self, texts: &[String]) -> bool {
        let read = |text: &String| match &self.declared {
            Some(Ok(format)) => format.parse(text).map(|tick| (tick, format.kind(), None)),
            Some(Err(_)) => None,
            None => time::parse_zoned(text),
        };
        let Some(times) = texts.iter().map(read).collect::<Option<Vec<_>>>() else { return false };
        times.len() > 1 && times.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 == pair[1].1)
    }

    /// Parses a time, which must be of the same kind as those before.
    pub fn time(&mut self, text: &str) -> Result<i64, DataProblem> {
        if let Some(declared) = &self.declared {
            let format = declared.clone().map_err(|text| DataProblem::DateFormat { text })?;
            let wrong = || DataProblem::DeclaredTime { text: text.to_string(), format: Box::new(format) };
            (self.kind, self.form) = (Some(format.kind()), TimeForm::declared(format));
            return format.parse(text).ok_or_else(wrong);
        }
        let read = time::parse_zoned(text).ok_or_else(|| DataProblem::Time { text: text.to_string() })?;
        let (tick, kind, offset) = read;
        if self.kind.is_none() {
            (self.offset, self.form) = (offset, TimeForm::of(text));
        }
        self.kind_of(kind).ok_or_else(|| DataProblem::MixedTimes { text: text.to_string() })?;
        self.zone_of(offset).ok_or_else(|| DataProblem::MixedZones { text: text.to_string() })?;
        Ok(tick)
    }

    /// Records the zone of a time; `None` if only some times have one.
    fn zone_of(&mut self, offset: Option<i64>) -> Option<()> {
        let alike = self.offset.is_some() == offset.is_some();
        if self.offset != offset {
            self.offset = Some(0);
        }
        alike.then_some(())
    }

    /// Records the kind of a time; `None` if numbers and dates are mixed.
    pub fn kind_of(&mut self, kind: TimeKind) -> Option<()> {
        let before = *self.kind.get_or_insert(kind);
        self.kind = Some(before.max(kind));
        ((before == TimeKind::Integer) == (kind == TimeKind::Integer)).then_some(())
    }

    /// Adds an observation to a series.
    pub fn push(&mut self, series: usize, row: Observation<'_>) -> Result<(), DataProblem> {
        let rows = &mut self.series[series];
        if rows.ticks.is_empty() {
            rows.fixed = row.fixed.to_vec();
        } else if let Some(column) = rows.fixed.iter().zip(row.fixed).position(|(a, b)| a != b) {
            return Err(DataProblem::NotStatic {
                id: rows.id.clone(),
                column: self.columns.fixed[column].clone(),
            });
        }
        rows.ticks.push(row.tick);
        rows.lines.push(u32::try_from(row.line).unwrap_or(u32::MAX));
        rows.values.push(row.value);
        rows.past.extend_from_slice(row.past);
        rows.future.extend_from_slice(row.future);
        self.report.rows += 1;
        Ok(())
    }

    /// Sorts and checks the rows, detects the frequency and regularises every series.
    pub fn finish(mut self, schema: &Schema) -> Result<Table, Located> {
        let kind = self.kind.filter(|_| !self.series.is_empty()).ok_or((None, DataProblem::Empty))?;
        let kind = if kind == TimeKind::Integer { self.dates_of_numbers(schema) } else { kind };
        let kind = self.round(schema, kind).map_err(|problem| (None, problem))?;
        for rows in &mut self.series {
            self.report.unsorted_series += u64::from(rows.sort());
            self.report.merged_rows += rows.merge(schema.duplicates);
            rows.check_duplicates(kind)?;
        }
        let frequency = self.frequency(schema, kind).map_err(|problem| (None, problem))?;
        let mut series: Vec<Series> = Vec::with_capacity(self.series.len());
        for rows in self.series {
            series.push(regularise(rows, &frequency, schema, &mut self.report)?);
        }
        let Collector { offset, mut form, columns, report, .. } = self;
        // Not all times of a monthly grid are quarters.
        form.quarter = form.quarter.filter(|_| frequency.is_of_quarters());
        Ok(Table { frequency, offset, form, columns, series, report })
    }

    /// Converts integers such as 20230131 to dates if all of them are dates and the frequency is not a number. Returns the
    /// resulting kind.
    fn dates_of_numbers(&mut self, schema: &Schema) -> TimeKind {
        let named =
            schema.frequency.as_ref().is_some_and(|text| Frequency::parse(text, TimeKind::Integer).is_some());
        let mut ticks = self.series.iter().flat_map(|rows| &rows.ticks);
        if named || !ticks.all(|tick| time::date_of_number(*tick).is_some()) {
            return TimeKind::Integer;
        }
        for tick in self.series.iter_mut().flat_map(|rows| &mut rows.ticks) {
            *tick = time::date_of_number(*tick).unwrap_or(*tick);
        }
        self.form = TimeForm::number();
        TimeKind::Date
    }

    /// Rounds all times if the schema says so. Returns the resulting kind.
    fn round(&mut self, schema: &Schema, kind: TimeKind) -> Result<TimeKind, DataProblem> {
        let Some(text) = &schema.round else { return Ok(kind) };
        let unit = Frequency::parse(text, kind).filter(|_| kind != TimeKind::Integer);
        let unit = unit.ok_or_else(|| DataProblem::Frequency { text: text.clone() })?;
        for tick in self.series.iter_mut().flat_map(|rows| &mut rows.ticks) {
            *tick = unit.round(*tick);
        }
        Ok(kind.min(unit.kind_of_rounded()))
    }

    /// Detects the frequency of all times together, for series of which each has only some of them, such as sales without rows for
    /// days without any. `None` if a series is regular with another frequency, or has times that are not on the grid.
    fn common_frequency(&self, kind: TimeKind) -> Option<Frequency> {
        let mut ticks: Vec<i64> = self.series.iter().flat_map(|rows| rows.ticks.iter().copied()).collect();
        ticks.sort_unstable();
        ticks.dedup();
        let common = Frequency::detect(&ticks, kind)?;
        let fits = |rows: &Rows| {
            let Some(&start) = rows.ticks.first() else { return true };
            let own = Frequency::detect(&rows.ticks, kind);
            rows.ticks.iter().all(|tick| common.steps(start, *tick).is_some())
                && own.is_none_or(|own| {
                    own == common || rows.ticks.len() < ENOUGH || !own.is_regular(&rows.ticks)
                })
        };
        self.series.iter().all(fits).then_some(common)
    }

    fn frequency(&self, schema: &Schema, kind: TimeKind) -> Result<Frequency, DataProblem> {
        if let Some(text) = &schema.frequency {
            return Frequency::parse(text, kind).ok_or_else(|| DataProblem::Frequency { text: text.clone() });
        }
        let expected = schema.expected.as_ref().and_then(|text| Frequency::parse(text, kind));
        if let Some(frequency) = expected
            && self.series.iter().all(|rows| rows.is_compatible(&frequency))
        {
            return Ok(frequency);
        }
        let mut found: Option<(&Rows, Frequency)> = None;
        for rows in &self.series {
            let Some(frequency) = Frequency::detect(&rows.ticks, kind) else { continue };
            match found {
                Some((first, first_frequency)) if first_frequency != frequency => {
                    if schema.missing != Missing::Error
                        && let Some(common) = self.common_frequency(kind)
                    {
                        return Ok(common);
                    }
                    return Err(DataProblem::MixedFrequencies {
                        first: first.id.clone(),
                        first_frequency,
                        second: rows.id.clone(),
                        second_frequency: frequency,
                    });
                }
                _ => found = Some((rows, frequency)),
            }
        }
        found.map(|(_, frequency)| frequency).ok_or_else(|| match &schema.expected {
            Some(text) => DataProblem::Frequency { text: text.clone() },
            None => DataProblem::NoFrequency,
        })
    }
}

/// Decodes a name from UTF-8, or from Latin-1 if it is not valid UTF-8.
pub fn decode(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) => text.into(),
        Err(_) => name.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
    }
}
