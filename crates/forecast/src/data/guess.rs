//! Guesses how to read a file: layout, columns, decimal separator and format of dates, each with its reason.
//!
//! The beginning and the end of the file are looked at. Guesses that could go either way are errors that name the
//! setting to give.

mod sample;
#[cfg(test)]
mod tests;
mod times;

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use self::sample::{Column, Sample, is_missing};
use self::times::Time;
pub use self::times::{TimeColumn, time_column};
use super::collect::Collector;
use super::csv::open_plain;
use super::error::{DataError, DataProblem};
use super::number::Decimal;
use super::rows::Located;
use super::table::{Duplicates, Layout, Missing, Schema, Target};
use super::time;

/// Names of columns of ids and targets, in order of preference.
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
    /// Policy for several rows of a series at one time.
    pub duplicates: Duplicates,
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

impl Sample {
    fn guess(&self, hints: &Hints) -> Result<Guess, DataProblem> {
        let mut notes = Vec::new();
        if self.has_no_header() {
            let message = format!(
                "the first row ({}) has no names of columns, but data; add a row such as date,sales at the top",
                self.header.join(", ")
            );
            return Err(DataProblem::Unreadable(message));
        }
        if let Some(guess) = self.one_series_per_row(hints, &mut notes)? {
            return Ok(guess);
        }
        // A file with one series per row needs no names.
        if let Some(title) = self.title() {
            let message = format!(
                "the first row has only {title:?}, no names of columns; remove the rows above the names of the columns"
            );
            return Err(DataProblem::Unreadable(message));
        }
        let columns: Vec<Column> = (0..self.header.len()).map(|column| self.column(column)).collect();
        let time = self.time(hints, &columns, &mut notes)?;
        let decimal = self.decimal(hints, &columns, &time, &mut notes);
        let roles = self.roles(hints, &columns, &time, decimal, &mut notes)?;
        let round = if hints.frequency.is_none() { self.rounding(&time, &roles.ids) } else { None };
        if let Some(unit) = round {
            notes.push(format!("times are not regular, but become so if they are rounded ({unit})"));
        }
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
            time_parts: time.parts.iter().map(name).collect(),
            round: round.map(str::to_string),
            duplicates: hints.duplicates,
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

    /// Returns whether the first row is one of data: a date and numbers, as in the rows below.
    fn has_no_header(&self) -> bool {
        let is_date = |text: &str| time::parse(text).is_some_and(|(_, kind)| kind > time::TimeKind::Month);
        let is_number = |text: &str| text.parse::<f64>().is_ok();
        let like_row = |row: &Vec<String>| {
            self.header
                .iter()
                .zip(row)
                .all(|(a, b)| (is_date(a) && is_date(b)) || (is_number(a) && (is_number(b) || is_missing(b))))
        };
        self.header.iter().any(|text| is_date(text))
            && self.header.iter().any(|text| is_number(text))
            && self.rows.iter().take(10).all(like_row)
    }

    /// Returns the only text of the first row, which is in its first field, above rows with more.
    fn title(&self) -> Option<&str> {
        let fuller = |row: &&Vec<String>| row.iter().filter(|text| !text.is_empty()).count() > 1;
        let [first, others @ ..] = self.header.as_slice() else { return None };
        let only = !others.is_empty() && others.iter().all(String::is_empty);
        let filled = self.rows.iter().filter(fuller).count() * 2 > self.rows.len();
        (only && filled && !first.is_empty()).then_some(first)
    }

    /// Recognises a file as M4 has them: an id, then the values of a series.
    fn one_series_per_row(
        &self,
        hints: &Hints,
        notes: &mut Vec<String>,
    ) -> Result<Option<Guess>, DataProblem> {
        let declared = hints.layout == Some(Layout::Rows);
        if hints.layout.is_some_and(|layout| layout != Layout::Rows) || hints.time.is_some() {
            return Ok(None);
        }
        let numbers = |row: &Vec<String>| {
            row.len() > 8 && row[1..].iter().all(|text| is_missing(text) || text.parse::<f64>().is_ok())
        };
        let ids: HashSet<&str> = self.rows.iter().map(|row| row[0].as_str()).collect();
        let unlike_times = |text: &&str| time::parse(text).is_none() && text.parse::<f64>().is_err();
        let found =
            ids.len() == self.rows.len() && ids.iter().all(unlike_times) && self.rows.iter().all(numbers);
        if !found && !declared {
            return Ok(None);
        }
        notes.push(format!("layout: one series per row, with its id in {:?}", self.header[0]));
        let date_format = match &hints.date_format {
            Some(declared) => Some(declared.clone()),
            None => self.format_of_header(notes)?,
        };
        let mut schema = Schema {
            layout: Layout::Rows,
            missing: hints.missing.unwrap_or(Missing::Interpolate),
            frequency: hints.frequency.clone(),
            date_format,
            ..Schema::default()
        };
        let names = self.header.get(1..).unwrap_or_default();
        schema.times_in_header = hints.date_format.is_some() || Collector::new(&schema).are_times(names);
        if schema.times_in_header
            && let [first, .., last] = names
        {
            notes.push(format!("times: the names of the columns, from {first} to {last}"));
        }
        Ok(Some(Guess { schema, notes: std::mem::take(notes) }))
    }

    fn decimal(
        &self,
        hints: &Hints,
        columns: &[Column],
        time: &Time,
        notes: &mut Vec<String>,
    ) -> Option<Decimal> {
        if hints.decimal.is_some() {
            return hints.decimal;
        }
        let others = || columns.iter().enumerate().filter(move |(number, _)| !time.has(*number));
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
        let all = || (0..self.header.len()).filter(|column| !time.has(*column));
        let declared: Vec<usize> =
            hints.target.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?;
        let ids = self.ids(hints, columns, time, decimal, &declared)?;
        let mut numeric: Vec<usize> = all()
            .filter(|c| columns[*c].is_numeric(decimal) && !ids.contains(c) && !self.header[*c].is_empty())
            .collect();
        // The numbers of the rows are not values, unless there are no others.
        if numeric.iter().any(|c| declared.contains(c) || !self.has_row_numbers(*c, !ids.is_empty())) {
            numeric.retain(|c| declared.contains(c) || !self.has_row_numbers(*c, !ids.is_empty()));
        }
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
                None if all().any(|column| !ids.contains(&column)) => {
                    DataProblem::Unreadable("no column beside the times has any value".into())
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
            let could_be_known = future.is_empty() && numeric.iter().any(|column| !used(column));
            let advice = if could_be_known && layout == Layout::Long {
                format!(
                    "; what is known in advance, such as a promotion, is used if rows for the forecast follow in which {:?} is empty",
                    self.header[targets[0]]
                )
            } else {
                String::new()
            };
            notes.push(format!("not used: {}{advice}", unused.join(", ")));
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
                seen.insert((time.text(row), key))
            })
        };
        let candidates = (0..self.header.len()).filter(|&column| {
            let full = columns[column].known == self.rows.len();
            let texts = !columns[column].is_numeric(decimal);
            let codes = self.has_id_name(column) || columns[column].distinct * 4 <= self.rows.len();
            !time.has(column) && !declared.contains(&column) && full && (texts || codes)
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
        candidates.truncate(MAX_ID_CANDIDATES);
        // Numbers that have no name of an id only where the others do not suffice: values may differ at every time too.
        let named = candidates.iter().take_while(|column| !texts_first(column)).count();
        let of = |columns: &[usize]| (1..=3).flat_map(|size| subsets(columns, size)).collect::<Vec<_>>();
        let sets = of(&candidates[..named]).into_iter().chain(of(&candidates));
        let in_order = sets.map(|mut ids| {
            ids.sort_unstable();
            ids
        });
        if let Some(found) = in_order.into_iter().find(|ids| unique(ids)) {
            return Ok(found);
        }
        if hints.duplicates != Duplicates::Error {
            // The rows of a time are merged: all texts that are not nearly different in every row are part of the id.
            let few = |column: &usize| columns[*column].distinct * 4 <= self.rows.len();
            return Ok(candidates.into_iter().filter(|c| self.has_id_name(*c) && few(c)).collect());
        }
        let mut first = HashSet::new();
        let twice = self.rows.iter().map(|row| time.text(row)).find(|text| !first.insert(text.clone()));
        let time = twice.unwrap_or_default();
        Err(DataProblem::Unreadable(format!(
            "several rows have the time {time:?}, and no one to three columns tell their series apart; name the columns of \
             the id with --id, or merge the rows of a time with --duplicates sum, mean or last"
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
                let similar = |column: &&usize| {
                    let name = self.header[**column].to_lowercase();
                    name.split(|c: char| !c.is_alphanumeric())
                        .any(|word| word == "sold" || TARGETS.contains(&word))
                };
                let target = values.iter().find(similar).unwrap_or(first);
                notes.push(format!(
                    "several columns have numbers; --target chooses another than {:?}",
                    self.header[*target]
                ));
                (vec![*target], Layout::Long)
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

/// Columns that may be part of an id.
const MAX_ID_CANDIDATES: usize = 12;

/// Returns the subsets of a size, those of the first columns first.
fn subsets(of: &[usize], size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let from = |place: usize| {
        subsets(&of[place + 1..], size - 1).into_iter().map(move |mut rest| {
            rest.insert(0, of[place]);
            rest
        })
    };
    (0..of.len()).flat_map(from).collect()
}

/// What the columns are.
struct Roles {
    layout: Layout,
    ids: Vec<usize>,
    targets: Vec<usize>,
    future: Vec<usize>,
}
