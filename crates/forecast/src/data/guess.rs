//! Guesses how to read a file: layout, columns, decimal separator and format of dates, each with its reason.
//!
//! The beginning and the end of the file are looked at. Guesses that could go either way are errors that name the
//! setting to give.

mod sample;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::BufRead;

use self::sample::{Column, Sample, is_missing};
use super::csv::open_plain;
use super::date_format::DateFormat;
use super::error::{DataError, DataProblem};
use super::frequency::Frequency;
use super::number::Decimal;
use super::rows::Located;
use super::table::{Layout, Missing, Schema, Target};
use super::time::{self, TimeKind};

/// Names of columns of times, ids and targets, in order of preference.
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
const IDS: &[&str] = &[
    "unique_id",
    "id",
    "series",
    "series_id",
    "item_id",
    "item",
    "sku",
    "product",
    "product_id",
    "article",
    "store",
    "store_id",
    "shop",
    "region",
    "symbol",
    "ticker",
    "name",
    "category",
    "city",
    "country",
    "sensor",
    "meter",
];
const TARGETS: &[&str] = &[
    "y",
    "target",
    "value",
    "values",
    "sales",
    "demand",
    "quantity",
    "qty",
    "units",
    "units_sold",
    "amount",
    "revenue",
    "orders",
    "visitors",
    "count",
    "load",
    "consumption",
    "temp",
    "temperature",
    "close",
    "price",
];

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
    "%m/%Y",
    "%m.%Y",
    "%Y.%m.%d",
    "%Y.%m",
];
const CLOCKS: &[&str] = &["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"];

/// What is known about a file without looking at it. Everything that is not given is guessed.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Layout of the file.
    pub layout: Option<Layout>,
    /// Columns of the id.
    pub id: Vec<String>,
    /// Column of the times.
    pub time: Option<String>,
    /// Columns of the values: one of a long file, one or several of a wide one.
    pub target: Vec<String>,
    /// Known-future covariates.
    pub future: Option<Vec<String>>,
    /// Decimal separator.
    pub decimal: Option<Decimal>,
    /// Format of the times.
    pub date_format: Option<String>,
    /// Frequency.
    pub frequency: Option<String>,
    /// Policy for gaps.
    pub missing: Option<Missing>,
}

/// How a file is read, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// The columns.
    pub schema: Schema,
    /// What was guessed, one line each.
    pub notes: Vec<String>,
}

/// Guesses how to read a CSV file, plain or gzip. Errors call it `origin`.
pub fn guess_csv(input: impl BufRead, origin: &str, hints: &Hints) -> Result<Guess, DataError> {
    let at_origin = |(line, problem): Located| problem.at(origin, line);
    let sample = Sample::read(open_plain(input).map_err(at_origin)?).map_err(at_origin)?;
    sample.guess(hints).map_err(|problem| problem.at(origin, Some(1)))
}

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

impl Sample {
    fn guess(&self, hints: &Hints) -> Result<Guess, DataProblem> {
        let mut notes = Vec::new();
        if let Some(guess) = self.one_series_per_row(hints, &mut notes) {
            return Ok(guess);
        }
        let columns: Vec<Column> = (0..self.header.len()).map(|column| self.column(column)).collect();
        let time = self.time(hints, &columns, &mut notes)?;
        let decimal = self.decimal(hints, &columns, time.column, &mut notes);
        let roles = self.roles(hints, &columns, &time, decimal, &mut notes)?;
        let name = |column: &usize| self.header[*column].clone();
        let layout = roles.layout;
        let target = match (layout, roles.targets.as_slice()) {
            (Layout::Long, [one]) => Target::One(name(one)),
            (_, several) => Target::Several(several.iter().map(name).collect()),
        };
        let schema = Schema {
            layout,
            id: roles.ids.first().map(name),
            id_parts: roles.ids.iter().skip(1).map(name).collect(),
            time: name(&time.column),
            target,
            decimal,
            date_format: time.format.map(|format| format.to_string()),
            future: roles.future.iter().map(name).collect(),
            missing: hints.missing.unwrap_or(Missing::Interpolate),
            frequency: hints.frequency.clone(),
            ..Schema::default()
        };
        Ok(Guess { schema, notes })
    }

    /// Recognises a file as M4 has them: an id, then the values of a series.
    fn one_series_per_row(&self, hints: &Hints, notes: &mut Vec<String>) -> Option<Guess> {
        let declared = hints.layout == Some(Layout::Rows);
        if hints.layout.is_some_and(|layout| layout != Layout::Rows) || hints.time.is_some() {
            return None;
        }
        let numbers = |row: &Vec<String>| {
            row.len() > 8 && row[1..].iter().all(|text| is_missing(text) || text.parse::<f64>().is_ok())
        };
        let ids: HashSet<&str> = self.rows.iter().map(|row| row[0].as_str()).collect();
        let unlike_times = |text: &&str| time::parse(text).is_none() && text.parse::<f64>().is_err();
        let found =
            ids.len() == self.rows.len() && ids.iter().all(unlike_times) && self.rows.iter().all(numbers);
        if !found && !declared {
            return None;
        }
        notes.push(format!("layout: one series per row, with its id in {:?}", self.header[0]));
        let missing = hints.missing.unwrap_or(Missing::Interpolate);
        let schema =
            Schema { layout: Layout::Rows, missing, frequency: hints.frequency.clone(), ..Schema::default() };
        Some(Guess { schema, notes: std::mem::take(notes) })
    }

    fn time(&self, hints: &Hints, columns: &[Column], notes: &mut Vec<String>) -> Result<Time, DataProblem> {
        if let Some(name) = &hints.time {
            let column = self.find(name)?;
            if let Some(text) = &hints.date_format {
                let format =
                    DateFormat::new(text).ok_or_else(|| DataProblem::DateFormat { text: text.clone() })?;
                return Ok(Time { column, format: Some(format) });
            }
            return self.time_of(column, true, notes)?.ok_or_else(|| DataProblem::Time {
                text: self.texts(column).next().unwrap_or_default().to_string(),
            });
        }
        let known = (0..self.header.len()).filter(|column| columns[*column].known == self.rows.len());
        let ranked = self.ranked(known, TIMES);
        for &column in &ranked {
            let named = self.is_named(column, TIMES);
            if let Some(text) = &hints.date_format {
                let format =
                    DateFormat::new(text).ok_or_else(|| DataProblem::DateFormat { text: text.clone() })?;
                if self.texts(column).all(|text| format.parse(text).is_some()) {
                    notes.push(format!("times: {:?}", self.header[column]));
                    return Ok(Time { column, format: Some(format) });
                }
            } else if let Some(time) = self.time_of(column, named, notes)? {
                notes.push(format!(
                    "times: {:?}{}",
                    self.header[column],
                    if named { "" } else { ", which has dates" }
                ));
                return Ok(time);
            }
        }
        let message = format!(
            "there is no column of times (dates such as 2024-01-31, 31/01/2024, or whole numbers in a column named \"time\" or \
             \"ds\"); the columns are {}; name it with --date, and its format with --date-format",
            self.header.join(", ")
        );
        Err(DataProblem::Unreadable(message))
    }

    /// Returns how the times of a column are read; `None` if they are not times.
    fn time_of(
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
            return Ok((!integers || named || dates()).then_some(Time { column, format: None }));
        }
        let formats = DATES.iter().flat_map(|date| CLOCKS.iter().map(move |clock| format!("{date}{clock}")));
        let fitting: Vec<(DateFormat, f64)> = formats
            .filter_map(|text| DateFormat::new(&text))
            .filter(|format| self.texts(column).all(|text| format.parse(text).is_some()))
            .map(|format| (format, self.regularity(column, &format)))
            .collect();
        let Some(best) = fitting.iter().map(|(_, regularity)| *regularity).max_by(f64::total_cmp) else {
            return Ok(None);
        };
        let equal: Vec<&DateFormat> = fitting
            .iter()
            .filter(|(_, regularity)| 1.5 * regularity >= best)
            .map(|(format, _)| format)
            .collect();
        let example = self.texts(column).next().unwrap_or_default();
        match equal.as_slice() {
            [format] => {
                let why = if fitting.len() > 1 { ", with which the times are regular" } else { "" };
                notes.push(format!("dates such as {example} are {format}{why}"));
                Ok(Some(Time { column, format: Some(**format) }))
            }
            several => {
                let choices: Vec<String> =
                    several.iter().map(|format| format!("{:?}", format.to_string())).collect();
                Err(DataProblem::Unreadable(format!(
                    "{:?}: dates such as {example:?} are ambiguous; say which with --date-format {}",
                    self.header[column],
                    choices.join(" or ")
                )))
            }
        }
    }

    /// Returns how much of a regular grid the times fill: 1 without gaps.
    fn regularity(&self, column: usize, format: &DateFormat) -> f64 {
        let ticks: BTreeSet<i64> = self.texts(column).filter_map(|text| format.parse(text)).collect();
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

    fn decimal(
        &self,
        hints: &Hints,
        columns: &[Column],
        time: usize,
        notes: &mut Vec<String>,
    ) -> Option<Decimal> {
        if hints.decimal.is_some() {
            return hints.decimal;
        }
        let others = || columns.iter().enumerate().filter(move |(number, _)| *number != time);
        let written: Vec<(usize, &Column)> = others()
            .filter(|(_, column)| column.plain < column.known && column.decimals.contains(&column.known))
            .collect();
        if written.is_empty() {
            return None;
        }
        let fits = |side: usize| written.iter().all(|(_, column)| column.decimals[side] == column.known);
        let example = written
            .iter()
            .flat_map(|(number, _)| self.texts(*number))
            .find(|text| text.parse::<f64>().is_err())
            .unwrap_or_default();
        let (decimal, why) = match (fits(0), fits(1)) {
            (false, true) => (Decimal::Comma, ""),
            (true, true) if self.delimiter == b';' => (Decimal::Comma, ", as in files with semicolons"),
            (true, true) if example.contains(',') => (Decimal::Point, ", with commas between thousands"),
            (true, _) => (Decimal::Point, ""),
            (false, false) => return None,
        };
        notes.push(format!("numbers such as {example}: decimal separator {:?}{why}", decimal.separator()));
        Some(decimal)
    }

    fn roles(
        &self,
        hints: &Hints,
        columns: &[Column],
        time: &Time,
        decimal: Option<Decimal>,
        notes: &mut Vec<String>,
    ) -> Result<Roles, DataProblem> {
        let all = || (0..self.header.len()).filter(|column| *column != time.column);
        let declared: Vec<usize> =
            hints.target.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?;
        let ids = self.ids(hints, columns, time, decimal, &declared)?;
        let numeric: Vec<usize> = all()
            .filter(|c| columns[*c].is_numeric(decimal) && !ids.contains(c) && !self.header[*c].is_empty())
            .collect();
        let several = all().filter(|c| columns[*c].known > 0).count() > 1;
        if numeric.is_empty() {
            let texts = all().find(|c| columns[*c].known > 0 && !ids.contains(c));
            let example = texts.and_then(|column| {
                Some((column, self.texts(column).find(|text| text.parse::<f64>().is_err())?))
            });
            return Err(match example {
                Some((column, text)) => {
                    DataProblem::Number { column: self.header[column].clone(), text: text.into() }
                }
                None if several => {
                    DataProblem::Unreadable("no column has numbers only; name it with --target".into())
                }
                None => DataProblem::Unreadable("there is no column of values beside the times".into()),
            });
        }
        let repeated = !ids.is_empty() && (hints.layout != Some(Layout::Wide));
        let (targets, layout) = if declared.is_empty() {
            self.targets(hints, columns, &numeric, repeated, notes)
        } else {
            let wide = hints.layout == Some(Layout::Wide) || declared.len() > 1;
            (declared, if wide { Layout::Wide } else { Layout::Long })
        };
        if !repeated {
            notes.push(match (layout, targets.len()) {
                (Layout::Wide, count) => format!("layout: wide, {count} series in columns of their own"),
                _ => format!("layout: one series, {:?}", self.header[targets[0]]),
            });
        } else if layout == Layout::Wide {
            let message =
                "the times are repeated, so that each row is of one series: name one column with --target";
            return Err(DataProblem::Unreadable(message.into()));
        } else {
            let names: Vec<String> = ids.iter().map(|id| format!("{:?}", self.header[*id])).collect();
            notes.push(format!(
                "layout: long, with one series for each {}; values: {:?}",
                names.join(" and "),
                self.header[targets[0]]
            ));
        }
        let future = self.future(hints, &numeric, &targets, layout, &ids, notes)?;
        let used =
            |column: &usize| targets.contains(column) || ids.contains(column) || future.contains(column);
        let unused: Vec<String> =
            all().filter(|column| !used(column)).map(|column| format!("{:?}", self.header[column])).collect();
        if !unused.is_empty() {
            notes.push(format!("not used: {}", unused.join(", ")));
        }
        Ok(Roles { layout, ids, targets, future })
    }

    /// Returns the columns whose texts together tell rows of one time apart.
    fn ids(
        &self,
        hints: &Hints,
        columns: &[Column],
        time: &Time,
        decimal: Option<Decimal>,
        declared: &[usize],
    ) -> Result<Vec<usize>, DataProblem> {
        if !hints.id.is_empty() {
            return hints.id.iter().map(|name| self.find(name)).collect();
        }
        let unique = |ids: &[usize]| {
            let mut seen = HashSet::new();
            self.rows.iter().all(|row| {
                let key: Vec<&str> = ids.iter().map(|id| row[*id].as_str()).collect();
                seen.insert((row[time.column].as_str(), key))
            })
        };
        let candidates = (0..self.header.len()).filter(|&column| {
            let full = columns[column].known == self.rows.len();
            let texts = !columns[column].is_numeric(decimal);
            let codes = self.is_named(column, IDS) || columns[column].distinct * 4 <= self.rows.len();
            column != time.column && !declared.contains(&column) && full && (texts || codes)
        });
        let texts_first =
            |column: &usize| columns[*column].is_numeric(decimal) && !self.is_named(*column, IDS);
        let mut candidates = self.ranked(candidates, IDS);
        candidates.sort_by_key(texts_first);
        if unique(&[]) {
            // A single series may have an id all the same.
            let id = candidates.into_iter().find(|c| columns[*c].distinct == 1 && self.is_named(*c, IDS));
            return Ok(id.into_iter().collect());
        }
        let pairs = || {
            candidates
                .iter()
                .enumerate()
                .flat_map(|(i, a)| candidates[i + 1..].iter().map(move |b| vec![*a.min(b), *a.max(b)]))
        };
        let single = candidates.iter().map(|column| vec![*column]);
        if let Some(found) = single.chain(pairs()).find(|ids| unique(ids)) {
            return Ok(found);
        }
        let mut first: HashMap<&str, usize> = HashMap::new();
        let twice = self.rows.iter().position(|row| {
            *first.entry(&row[time.column]).or_insert(0) > 0 || {
                first.insert(&row[time.column], 1);
                false
            }
        });
        let time = twice.map_or("", |row| self.rows[row][time.column].as_str());
        Err(DataProblem::Unreadable(format!(
            "several rows have the time {time:?}, and no column or pair of columns tells their series apart; name the columns of \
             the id with --id, or add up the rows of a time"
        )))
    }

    fn targets(
        &self,
        hints: &Hints,
        columns: &[Column],
        numeric: &[usize],
        repeated: bool,
        notes: &mut Vec<String>,
    ) -> (Vec<usize>, Layout) {
        if hints.layout == Some(Layout::Wide) {
            return (numeric.to_vec(), Layout::Wide);
        }
        // Only the values are unknown in the future.
        let ends_early = |column: &usize| {
            let others = numeric.iter().filter(|other| *other != column);
            let empty = |row: &&Vec<String>| is_missing(&row[*column]);
            let more_in_others = others
                .clone()
                .all(|other| self.rows.iter().rev().take_while(empty).any(|row| !is_missing(&row[*other])));
            numeric.len() > 1 && more_in_others && others.count() > 0
        };
        if let Some(column) = numeric.iter().find(|column| ends_early(column)) {
            return (vec![*column], Layout::Long);
        }
        let named = |column: &&usize| self.is_named(**column, TARGETS) && !columns[**column].binary;
        let ranked = self.ranked(numeric.iter().copied(), TARGETS);
        if let Some(column) = ranked.iter().find(named) {
            return (vec![*column], Layout::Long);
        }
        let values: Vec<usize> = numeric.iter().copied().filter(|column| !columns[*column].binary).collect();
        match values.as_slice() {
            [] => (vec![numeric[0]], Layout::Long),
            [one] => (vec![*one], Layout::Long),
            several if !repeated => (several.to_vec(), Layout::Wide),
            [first, ..] => {
                notes.push(format!(
                    "several columns have numbers; --target chooses another than {:?}",
                    self.header[*first]
                ));
                (vec![*first], Layout::Long)
            }
        }
    }

    /// Returns the columns that have numbers after the last target value.
    fn future(
        &self,
        hints: &Hints,
        numeric: &[usize],
        targets: &[usize],
        layout: Layout,
        ids: &[usize],
        notes: &mut Vec<String>,
    ) -> Result<Vec<usize>, DataProblem> {
        if let Some(names) = &hints.future {
            return names.iter().map(|name| self.find(name)).collect();
        }
        let id = |row: &'_ [String]| -> Vec<String> { ids.iter().map(|id| row[*id].clone()).collect() };
        let mut last: HashMap<Vec<String>, usize> = HashMap::new();
        for (number, row) in self.rows.iter().enumerate() {
            if targets.iter().any(|target| !is_missing(&row[*target])) {
                last.insert(id(row), number);
            }
        }
        let after =
            |(number, row): &(usize, &Vec<String>)| last.get(&id(row)).is_some_and(|last| number > last);
        let rows: Vec<&Vec<String>> =
            self.rows.iter().enumerate().filter(after).map(|(_, row)| row).collect();
        let others = numeric.iter().copied().filter(|column| !targets.contains(column));
        let known = |column: &usize| {
            rows.iter().all(|row| !is_missing(&row[*column]))
                && self.texts(*column).count() == self.rows.len()
        };
        if rows.is_empty() || layout == Layout::Rows {
            return Ok(Vec::new());
        }
        let future: Vec<usize> = others.filter(known).collect();
        if !future.is_empty() {
            let names: Vec<String> =
                future.iter().map(|column| format!("{:?}", self.header[*column])).collect();
            notes.push(format!("known in advance: {}, which go on after the last value", names.join(", ")));
        }
        Ok(future)
    }
}

/// The column of the times and their format.
struct Time {
    column: usize,
    format: Option<DateFormat>,
}

/// What the columns are.
struct Roles {
    layout: Layout,
    ids: Vec<usize>,
    targets: Vec<usize>,
    future: Vec<usize>,
}
