//! Guesses of the columns of the times: which they are, how their dates are written, and whether they have to be rounded.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::BufRead;

use super::sample::{Column, Sample};
use super::{Hints, IDS};
use crate::data::csv::open_plain;
use crate::data::date_format::DateFormat;
use crate::data::error::DataProblem;
use crate::data::frequency::Frequency;
use crate::data::time::{self, Civil, TimeKind};

/// Names of columns of times, in order of preference.
const TIMES: &[&str] = &[
    "ds",
    "date",
    "datetime",
    "timestamp",
    "time",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "period",
    "datum",
    "zeit",
    "fecha",
    "data",
    "jour",
    "t",
    "step",
    "index",
];

/// Names of columns of row numbers: times only if there are no others.
pub(super) const NUMBERS: &[&str] = &["", "unnamed: 0", "row", "row_number", "no", "nr", "n", "obs"];

/// Formats of dates that are tried if times are not recognised without one.
const DATES: &[&str] = &[
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d.%m.%Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%d-%m-%y",
    "%m-%d-%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d. %b %Y",
    "%b %Y",
    "%b-%Y",
    "%b-%y",
    "%Y %b",
    "%Y-%b",
    "%m/%Y",
    "%m.%Y",
    "%Y.%m.%d",
    "%Y.%m",
    "%YM%m",
    "%Y-%m-%d",
    "%Y/%m/%d",
    "Q%q %Y",
    "Q%q-%Y",
    "%Y Q%q",
    "%Y q%q",
    "%G-W%V",
    "%GW%V",
    "%G W%V",
];
const CLOCKS: &[&str] = &["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"];

/// Units that times are rounded to, the coarsest first.
const UNITS: &[&str] = &["Q", "M", "W", "D", "h", "30min", "15min", "10min", "5min", "min", "s"];

/// A column that may have the times of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeColumn {
    /// Its name.
    pub name: String,
    /// Whether it has dates. If not, it has whole numbers, and the name of a column of times.
    pub has_dates: bool,
}

/// Finds the column of the times of a CSV file, plain or gzip: one with dates before one with whole numbers. `None` if there is none,
/// or if the file cannot be read.
pub fn time_column(input: impl BufRead) -> Option<TimeColumn> {
    let sample = Sample::read(open_plain(input).ok()?).ok()?;
    let is_number = |text: &str| text.parse().is_ok_and(|number| time::date_of_number(number).is_none());
    let known =
        |column: &usize| !sample.rows.is_empty() && sample.texts(*column).count() == sample.rows.len();
    let columns = sample.ranked((0..sample.header.len()).filter(known), TIMES);
    let mut times = columns.into_iter().filter_map(|column| {
        // An error says that dates are ambiguous: they are dates.
        let is_time =
            !matches!(sample.time_of(column, sample.is_named(column, TIMES), &mut Vec::new()), Ok(None));
        let has_dates = !sample.texts(column).any(is_number);
        is_time.then(|| TimeColumn { name: sample.header[column].clone(), has_dates })
    });
    let first = times.next()?;
    if first.has_dates { Some(first) } else { Some(times.find(|time| time.has_dates).unwrap_or(first)) }
}

/// The column of the times and their format.
pub(super) struct Time {
    pub(super) column: usize,
    /// Further columns of the times.
    pub(super) parts: Vec<usize>,
    pub(super) format: Option<DateFormat>,
}

impl Time {
    fn new(column: usize, format: Option<DateFormat>) -> Time {
        Time { column, parts: Vec::new(), format }
    }

    /// Returns whether the times are read from a column.
    pub(super) fn has(&self, column: usize) -> bool {
        self.column == column || self.parts.contains(&column)
    }

    /// Returns the text of the time of a row.
    pub(super) fn text(&self, row: &[String]) -> String {
        let parts = self.parts.iter().map(|part| row[*part].as_str());
        std::iter::once(row[self.column].as_str()).chain(parts).collect::<Vec<_>>().join(" ")
    }

    fn tick(&self, row: &[String]) -> Option<(i64, TimeKind)> {
        let text = self.text(row);
        match &self.format {
            Some(format) => Some((format.parse(&text)?, format.kind())),
            None => time::parse(&text),
        }
    }
}

/// Returns the formats of dates that are tried.
fn formats() -> Vec<DateFormat> {
    let texts = DATES.iter().flat_map(|date| CLOCKS.iter().map(move |clock| format!("{date}{clock}")));
    texts.filter_map(|text| DateFormat::new(&text)).collect()
}

impl Sample {
    pub(super) fn time(
        &self,
        hints: &Hints,
        columns: &[Column],
        notes: &mut Vec<String>,
    ) -> Result<Time, DataProblem> {
        let declared = |text: &String| {
            DateFormat::new(text).ok_or_else(|| DataProblem::DateFormat { text: text.clone() })
        };
        let format = hints.date_format.as_ref().map(declared).transpose()?;
        if let Some(name) = &hints.time {
            let column = self.find(name)?;
            if format.is_some() {
                return Ok(Time::new(column, format));
            }
            return self.time_of(column, true, notes)?.ok_or_else(|| DataProblem::Time {
                text: self.texts(column).next().unwrap_or_default().to_string(),
            });
        }
        let known: Vec<usize> =
            (0..self.header.len()).filter(|column| columns[*column].known == self.rows.len()).collect();
        if format.is_none()
            && let Some(time) = self.time_of_parts(&known)
        {
            let names: Vec<String> =
                time.parts.iter().map(|part| format!("{:?}", self.header[*part])).collect();
            notes.push(format!("times: {:?} with {}", self.header[time.column], names.join(" and ")));
            return Ok(time);
        }
        for column in self.ranked(known.iter().copied(), TIMES) {
            let named = self.is_named(column, TIMES);
            let found = match &format {
                Some(format) => self
                    .texts(column)
                    .all(|text| format.parse(text).is_some())
                    .then(|| Time::new(column, Some(*format))),
                None => self.time_of(column, named, notes)?,
            };
            if let Some(mut time) = found {
                let why = if named || format.is_some() { "" } else { ", which has dates" };
                notes.push(format!("times: {:?}{why}", self.header[column]));
                if let Some(clock) = self.clock(&time, &known) {
                    notes.push(format!("with the time of day in {:?}", self.header[clock.0]));
                    (time.parts, time.format) = (vec![clock.0], clock.1);
                }
                return Ok(time);
            }
        }
        let in_order = |column: &&usize| {
            let numbers: Option<Vec<i64>> = self.texts(**column).map(|text| text.parse().ok()).collect();
            self.is_named(**column, NUMBERS)
                && numbers.is_some_and(|all| all.windows(2).all(|pair| pair[1] == pair[0] + 1))
        };
        if let Some(column) = known.iter().find(in_order) {
            notes.push(format!("times: the numbers of the rows in {:?}", self.header[*column]));
            return Ok(Time::new(*column, None));
        }
        Err(DataProblem::Unreadable(self.no_times(columns)))
    }

    /// Says that there is no column of times, and what is nearly one.
    fn no_times(&self, columns: &[Column]) -> String {
        let number = |text: &str| text.parse::<f64>().is_ok();
        if let Some(message) = self.several_forms() {
            return message;
        }
        let is_date = |text: &str| time::parse(text).is_some_and(|(_, kind)| kind != TimeKind::Integer);
        if self.header.iter().all(|text| number(text) || is_date(text)) && columns.len() < 3 {
            return "the first row has no names of columns; add a row such as date,sales at the top".into();
        }
        for (column, about) in columns.iter().enumerate() {
            let others = || self.texts(column).filter(|text| !is_date(text));
            let count = others().count();
            if count > 0
                && 10 * count < about.known
                && let Some(text) = others().next()
            {
                return format!(
                    "{:?} has dates, but also {text:?}; remove such rows, for example of totals",
                    self.header[column]
                );
            }
        }
        format!(
            "there is no column of times (dates such as 2024-01-31, 31/01/2024, or whole numbers in a column named \"time\" or \
             \"ds\"); the columns are {}; name it with --date, and its format with --date-format; without any times, number the \
             rows in a column named \"time\"",
            self.header.join(", ")
        )
    }

    /// Says that the dates of a column are written in several ways.
    fn several_forms(&self) -> Option<String> {
        let plain = |text: &str| time::parse(text).is_some_and(|(_, kind)| kind > TimeKind::Month);
        let formats = formats();
        let other = |text: &str| formats.iter().any(|format| format.parse(text).is_some());
        (0..self.header.len()).find_map(|column| {
            let texts: Vec<&str> = self.texts(column).collect();
            let first = texts.first().filter(|text| plain(text) || other(text))?;
            if !texts.iter().all(|text| plain(text) || other(text)) {
                return None;
            }
            // A text that no format of the first one reads.
            let alike = |text: &str| {
                plain(first) && plain(text)
                    || formats.iter().any(|format| format.parse(first).is_some() && format.parse(text).is_some())
            };
            let unlike = texts.iter().find(|text| !alike(text))?;
            Some(format!(
                "{:?} has dates in several forms, such as {first:?} and {unlike:?}; write all of them in one form",
                self.header[column]
            ))
        })
    }

    /// Returns the format of the names of the columns after the first if they are ascending dates that need one.
    pub(super) fn format_of_header(&self, notes: &mut Vec<String>) -> Result<Option<String>, DataProblem> {
        let names: Vec<&str> = self.header.iter().skip(1).map(String::as_str).collect();
        if names.len() < 2 || names.iter().all(|name| time::parse(name).is_some()) {
            return Ok(None);
        }
        let ascending = |format: &DateFormat| {
            let ticks: Option<Vec<i64>> = names.iter().map(|name| format.parse(name)).collect();
            ticks.is_some_and(|ticks| ticks.windows(2).all(|pair| pair[0] < pair[1]))
        };
        let fitting: Vec<DateFormat> = formats().into_iter().filter(ascending).collect();
        let format = most_regular(&fitting, &names, "the names of the columns", notes)?;
        Ok(format.map(|format| format.to_string()))
    }

    /// Returns how the times of a column are read; `None` if they are not times.
    pub(super) fn time_of(
        &self,
        column: usize,
        named: bool,
        notes: &mut Vec<String>,
    ) -> Result<Option<Time>, DataProblem> {
        let parsed: Option<Vec<TimeKind>> =
            self.texts(column).map(|text| time::parse(text).map(|(_, kind)| kind)).collect();
        if let Some(kinds) = parsed {
            let integers = kinds.contains(&TimeKind::Integer);
            let dates = || {
                self.texts(column).all(|text| text.parse().is_ok_and(|n| time::date_of_number(n).is_some()))
            };
            if integers
                && named
                && !dates()
                && let Some(format) = self.format_of_numbers(column)
            {
                let example = self.texts(column).next().unwrap_or_default();
                notes.push(format!("numbers such as {example} are {}", about(&format)));
                return Ok(Some(Time::new(column, Some(format))));
            }
            return Ok((!integers || named || dates()).then_some(Time::new(column, None)));
        }
        let texts: Vec<&str> = self.texts(column).collect();
        let fits = |format: &DateFormat| texts.iter().all(|text| format.parse(text).is_some());
        let fitting: Vec<DateFormat> = formats().into_iter().filter(fits).collect();
        let format = most_regular(&fitting, &texts, &format!("{:?}", self.header[column]), notes)?;
        Ok(format.map(|format| Time::new(column, Some(format))))
    }

    /// Returns the format of numbers that are months such as 201501, or seconds or milliseconds since 1970. `None` if they
    /// are counted.
    fn format_of_numbers(&self, column: usize) -> Option<DateFormat> {
        let formats = ["%Y%m", "%s", "%Q"].into_iter().filter_map(DateFormat::new);
        let years = 1800..2200;
        let recent = 1980..2100;
        formats.into_iter().find(|format| {
            self.texts(column).all(|text| {
                let range = if format.kind() == TimeKind::Month { &years } else { &recent };
                let length = if format.kind() == TimeKind::Month { text.len() == 6 } else { text.len() >= 9 };
                length && format.parse(text).is_some_and(|tick| range.contains(&Civil::of_tick(tick).year))
            })
        })
    }

    /// Finds dates whose year, month and day have columns of their own, if no column has dates.
    fn time_of_parts(&self, known: &[usize]) -> Option<Time> {
        let named = |names: &[&str]| known.iter().copied().find(|column| self.is_named(*column, names));
        let has_dates = |column: &usize| {
            self.texts(*column).all(|text| {
                time::parse(text).is_some_and(|(_, kind)| kind > TimeKind::Month)
                    || text.len() > 4 && text.parse::<f64>().is_err() && text.contains(['/', '.', '-'])
            })
        };
        if known.iter().any(has_dates) {
            return None;
        }
        let column = named(&["year", "yr", "jahr"])?;
        let (quarter, month) = (named(&["quarter", "qtr"]), named(&["month", "mon", "mo"]));
        let (day, hour) = (named(&["day", "dom", "day_of_month"]), named(&["hour", "hr"]));
        let (parts, formats): (Vec<usize>, &[&str]) = match (quarter, month, day, hour) {
            (_, Some(month), Some(day), Some(hour)) => {
                (vec![month, day, hour], &["%Y %m %d %H", "%Y %b %d %H"])
            }
            (_, Some(month), Some(day), None) => (vec![month, day], &["%Y %m %d", "%Y %b %d"]),
            (_, Some(month), None, _) => (vec![month], &["%Y %m", "%Y %b"]),
            (Some(quarter), None, _, _) => (vec![quarter], &["%Y %q", "%Y Q%q"]),
            _ => return None,
        };
        let fits = |format: &DateFormat| {
            let time = Time { column, parts: parts.clone(), format: Some(*format) };
            self.rows.iter().all(|row| time.tick(row).is_some())
        };
        let format = formats.iter().filter_map(|text| DateFormat::new(text)).find(fits)?;
        let time = Time { column, parts, format: Some(format) };
        // Features of a finer time have such names too.
        let count = |texts: &mut dyn Iterator<Item = i64>| texts.collect::<HashSet<i64>>().len();
        let found = count(&mut self.rows.iter().filter_map(|row| Some(time.tick(row)?.0)));
        let is_finer = |other: &usize| {
            self.is_named(*other, TIMES)
                && !time.has(*other)
                && count(&mut self.texts(*other).filter_map(|text| text.parse().ok())) > found
        };
        (!known.iter().any(is_finer)).then_some(time)
    }

    /// Finds the column of the time of day of dates without one, and the format of both.
    fn clock(&self, time: &Time, known: &[usize]) -> Option<(usize, Option<DateFormat>)> {
        let first = self.rows.first()?;
        // Such as 20230131.
        let numbers = time.format.is_none()
            && self
                .texts(time.column)
                .all(|text| text.parse().is_ok_and(|n| time::date_of_number(n).is_some()));
        if !numbers && time.tick(first)?.1 != TimeKind::Date {
            return None;
        }
        let named = ["time", "hour", "hr", "clock", "time_of_day", "uhrzeit", "hora"];
        let candidates = known.iter().copied().filter(|c| *c != time.column && self.is_named(*c, &named));
        let dates = time.format.map_or_else(
            || vec!["%Y-%m-%d".to_string(), "%Y/%m/%d".to_string(), "%Y%m%d".to_string()],
            |format| vec![format.to_string()],
        );
        for column in candidates {
            // A day has several times: of days with one, the column says something else.
            let days: HashSet<&str> = self.texts(time.column).collect();
            let times: HashSet<(&str, &str)> =
                self.rows.iter().map(|row| (row[time.column].as_str(), row[column].as_str())).collect();
            if times.len() < 2 * days.len() {
                continue;
            }
            let fits = |format: &Option<DateFormat>| {
                let time = Time { column: time.column, parts: vec![column], format: *format };
                self.rows.iter().all(|row| time.tick(row).is_some_and(|(_, k)| k == TimeKind::DateTime))
            };
            let clocks = [" %H:%M", " %H:%M:%S", " %H", " %I:%M %p"];
            let declared = dates.iter().flat_map(|date| clocks.map(|clock| format!("{date}{clock}")));
            let declared = declared.filter_map(|format| DateFormat::new(&format));
            let formats = std::iter::once(None).chain(declared.map(Some));
            if let Some(format) = formats.into_iter().find(fits) {
                return Some((column, format));
            }
        }
        None
    }

    /// Returns the unit that times have to be rounded to, so that nearly all are regular: months of which the last working day is
    /// given, or hours whose measurements come some seconds late. `None` if they are regular in half of the series.
    pub(super) fn rounding(&self, time: &Time, ids: &[usize]) -> Option<&'static str> {
        let kind = time.tick(self.rows.first()?)?.1;
        if kind < TimeKind::Date {
            return None;
        }
        let mut by_series: BTreeMap<Vec<&str>, BTreeSet<i64>> = BTreeMap::new();
        for row in &self.rows {
            let id = ids.iter().map(|id| row[*id].as_str()).collect();
            by_series.entry(id).or_default().extend(time.tick(row).map(|(tick, _)| tick));
        }
        let long = by_series.values().filter(|ticks| ticks.len() >= 8);
        let series: Vec<Vec<i64>> = long.map(|ticks| ticks.iter().copied().collect()).collect();
        let on_grid = |frequency: &Frequency, ticks: &[i64]| {
            ticks.iter().filter(|tick| frequency.steps(ticks[0], **tick).is_some()).count()
        };
        let is_regular = |ticks: &&Vec<i64>| {
            Frequency::detect(ticks, kind).is_none_or(|found| 2 * on_grid(&found, ticks) >= ticks.len())
        };
        if 2 * series.iter().filter(is_regular).count() >= series.len() {
            return None;
        }
        UNITS.iter().copied().find(|unit| {
            let Some(unit) = Frequency::parse(unit, kind) else { return false };
            let rounded =
                |ticks: &Vec<i64>| -> Vec<i64> { ticks.iter().map(|tick| unit.round(*tick)).collect() };
            let becomes_regular = |ticks: &&Vec<i64>| {
                let rounded = rounded(ticks);
                Frequency::detect(&rounded, kind).is_some_and(|frequency| frequency.is_regular(&rounded))
            };
            // Two times of a series must not become one.
            series.iter().all(|ticks| rounded(ticks).windows(2).all(|pair| pair[0] < pair[1]))
                && 10 * series.iter().filter(becomes_regular).count() >= 9 * series.len()
        })
    }

    /// Returns whether a column has the name of one of ids.
    pub(super) fn has_id_name(&self, column: usize) -> bool {
        self.is_named(column, IDS)
    }
}

/// Returns the one of several formats with which dates are most regular, and notes it; `None` if there is no format. Formats with
/// which they are nearly as regular are an error: the dates, which are in `place`, are ambiguous.
fn most_regular(
    fitting: &[DateFormat],
    texts: &[&str],
    place: &str,
    notes: &mut Vec<String>,
) -> Result<Option<DateFormat>, DataProblem> {
    let regularities: Vec<f64> = fitting.iter().map(|format| regularity(texts, format)).collect();
    let Some(best) = regularities.iter().copied().max_by(f64::total_cmp) else { return Ok(None) };
    let equal: Vec<DateFormat> = fitting
        .iter()
        .zip(&regularities)
        .filter(|(_, regularity)| 1.5 * *regularity >= best)
        .map(|(format, _)| *format)
        .collect();
    let example = texts.first().copied().unwrap_or_default();
    if let [format] = equal.as_slice() {
        let why = if fitting.len() > 1 { ", with which the times are regular" } else { "" };
        notes.push(format!("dates such as {example} are {format}{why}"));
        return Ok(Some(*format));
    }
    let choices: Vec<String> = equal.iter().map(|format| format!("{:?}", format.to_string())).collect();
    Err(DataProblem::Unreadable(format!(
        "{place}: dates such as {example:?} are ambiguous; say which with --date-format {}",
        choices.join(" or ")
    )))
}

/// Returns how much of a regular grid the times fill: 1 without gaps.
fn regularity(texts: &[&str], format: &DateFormat) -> f64 {
    let ticks: BTreeSet<i64> = texts.iter().filter_map(|text| format.parse(text)).collect();
    let ticks: Vec<i64> = ticks.into_iter().collect();
    let (Some(frequency), Some(first), Some(last)) =
        (Frequency::detect(&ticks, format.kind()), ticks.first(), ticks.last())
    else {
        return 1.0;
    };
    let on_grid = ticks.iter().filter(|tick| frequency.steps(*first, **tick).is_some()).count() as f64;
    let points = frequency.floor(*first, *last).unwrap_or(i64::MAX) as f64 + 1.0;
    on_grid / points.max(ticks.len() as f64)
}

/// Describes a format of numbers.
fn about(format: &DateFormat) -> &'static str {
    match format.to_string().as_str() {
        "%s" => "seconds since 1970",
        "%Q" => "milliseconds since 1970",
        _ => "months",
    }
}
