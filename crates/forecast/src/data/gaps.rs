//! Detection and imputation of gaps: missing values, missing times, and times that are not on the grid.

use std::collections::BTreeSet;

use super::error::DataProblem;
use super::frequency::{Frequency, TimeStep};
use super::rows::{Located, Rows};
use super::table::{Missing, Report, Schema, Series, Target};
use super::time::{self, Civil};

/// Maximum number of grid points: per row, and in addition. A few dates must not become years of hours.
const MAX_POINTS_PER_ROW: i64 = 16;
const EXTRA_POINTS: i64 = 1000;

/// Maps the sorted rows of a series to the grid.
pub fn regularise(
    rows: Rows,
    frequency: &Frequency,
    schema: &Schema,
    report: &mut Report,
) -> Result<Series, Located> {
    let gaps = Gaps::find(&rows, frequency, schema)?;
    report.missing_values += gaps.missing_values;
    report.not_yet_known += gaps.not_yet_known;
    report.missing_times += gaps.missing_times;
    report.irregular_times += gaps.irregular;
    if schema.missing == Missing::Error {
        gaps.reject(&rows, frequency)?;
    }
    if gaps.none() {
        let start = rows.ticks[0];
        let mut series = Series {
            id: rows.id,
            start,
            origin: gaps.origin,
            values: rows.values,
            leaky: Vec::new(),
            past: rows.past,
            future: rows.future,
            fixed: rows.fixed,
        };
        series.values.truncate(gaps.observed);
        series.past.truncate(gaps.observed * schema.past.len());
        return Ok(series);
    }
    fill(rows, frequency, schema, &gaps)
}

/// The gaps of a series.
struct Gaps<'a> {
    schema: &'a Schema,
    /// Reference time of the grid.
    origin: i64,
    /// Number of rows up to the last value. Later rows have known-future covariates only.
    observed: usize,
    missing_values: u64,
    /// Rows without a value after the last value.
    not_yet_known: u64,
    missing_times: u64,
    irregular: u64,
    /// The first row of each kind of gap.
    first_value: Option<(usize, String)>,
    first_gap: Option<(usize, i64)>,
    first_irregular: Option<usize>,
}

impl<'a> Gaps<'a> {
    fn find(rows: &Rows, frequency: &Frequency, schema: &'a Schema) -> Result<Gaps<'a>, Located> {
        let last = rows.values.iter().rposition(|value| !value.is_nan());
        let Some(last) = last else {
            let problem = DataProblem::NoValues { id: rows.id.clone(), column: target(schema).to_string() };
            return Err((rows.lines.first().map(|line| (*line).into()), problem));
        };
        // Without known-future covariates, a row without a value has no information.
        let observed = if schema.future.is_empty() { rows.values.len() } else { last + 1 };
        let mut gaps = Gaps {
            schema,
            origin: origin(&rows.ticks, frequency),
            observed,
            missing_values: 0,
            not_yet_known: (observed - last - 1) as u64,
            missing_times: 0,
            irregular: 0,
            first_value: None,
            first_gap: None,
            first_irregular: None,
        };
        gaps.find_missing_values(rows);
        gaps.find_missing_times(rows, frequency)?;
        Ok(gaps)
    }

    fn find_missing_values(&mut self, rows: &Rows) {
        let schema = self.schema;
        let name = target(schema).to_string();
        self.note_missing(&rows.values[..self.observed], std::slice::from_ref(&name));
        self.missing_values -= self.not_yet_known;
        self.note_missing(&rows.past[..self.observed * schema.past.len()], &schema.past);
        self.note_missing(&rows.future, &schema.future);
    }

    fn note_missing(&mut self, values: &[f64], names: &[String]) {
        let count = values.iter().filter(|value| value.is_nan()).count();
        self.missing_values += count as u64;
        if count > 0 && self.first_value.is_none() {
            let first = values.iter().position(|value| value.is_nan()).unwrap_or(0);
            self.first_value = Some((first / names.len(), names[first % names.len()].clone()));
        }
    }

    fn find_missing_times(&mut self, rows: &Rows, frequency: &Frequency) -> Result<(), Located> {
        let mut before: Option<i64> = None;
        let mut first = 0;
        for (row, &tick) in rows.ticks.iter().enumerate() {
            let Some(point) = frequency.steps(self.origin, tick) else {
                self.irregular += 1;
                self.first_irregular.get_or_insert(row);
                continue;
            };
            if let Some(before) = before {
                let missing = point.saturating_sub(before) - 1;
                if missing > 0 {
                    self.missing_times += missing as u64;
                    self.first_gap.get_or_insert((row, missing));
                }
            } else {
                first = point;
            }
            before = Some(point);
        }
        let mut last = before.unwrap_or(first);
        if matches!(self.schema.missing, Missing::ForwardFill | Missing::Interpolate) {
            // Times that are not on the grid are imputed from.
            let point = |tick: Option<&i64>| tick.and_then(|tick| frequency.floor(self.origin, *tick));
            first = point(rows.ticks.first()).map_or(first, |point| point.min(first));
            last = point(rows.ticks.last()).map_or(last, |point| point.max(last));
        }
        let points = last.saturating_sub(first).saturating_add(1);
        let count = rows.ticks.len();
        if points > MAX_POINTS_PER_ROW * count as i64 + EXTRA_POINTS {
            let problem =
                DataProblem::TooSparse { id: rows.id.clone(), points, rows: count, frequency: *frequency };
            return Err((rows.lines.first().map(|line| (*line).into()), problem));
        }
        Ok(())
    }

    fn none(&self) -> bool {
        self.missing_values == 0 && self.not_yet_known == 0 && self.missing_times == 0 && self.irregular == 0
    }

    /// Returns the first gap as an error.
    fn reject(&self, rows: &Rows, frequency: &Frequency) -> Result<(), Located> {
        let id = || rows.id.clone();
        let time = |row: usize| time::format(rows.ticks[row], frequency.kind);
        let frequency = *frequency;
        let (row, problem) = if let Some((row, column)) = &self.first_value {
            (*row, DataProblem::MissingValue { id: id(), column: column.clone(), time: time(*row) })
        } else if let Some(row) = self.first_irregular {
            (row, DataProblem::Irregular { id: id(), time: time(row), frequency })
        } else if let Some((row, count)) = self.first_gap {
            (row, DataProblem::MissingTimes { id: id(), count, time: time(row), frequency })
        } else {
            return Ok(());
        };
        Err((Some(rows.lines[row].into()), problem))
    }
}

/// Returns the name of the target column.
fn target(schema: &Schema) -> &str {
    match &schema.target {
        Target::One(name) => name,
        Target::Several(_) => "the value",
    }
}

/// Returns a reference time of the grid: the first row that is followed by the next grid point. For months, the first row
/// with the largest day of the month, if as many rows are on its grid: 28 February may stand for the 30th.
fn origin(ticks: &[i64], frequency: &Frequency) -> i64 {
    let followed = ticks.windows(2).find(|pair| frequency.steps(pair[0], pair[1]) == Some(1));
    let first = followed.map_or(ticks[0], |pair| pair[0]);
    if !matches!(frequency.step, TimeStep::Months { last_day: false, .. }) {
        return first;
    }
    let day = |tick: i64| Civil::of_tick(tick).day;
    let largest =
        ticks.iter().copied().fold(first, |best, tick| if day(tick) > day(best) { tick } else { best });
    let on_grid = |from: i64| ticks.iter().filter(|tick| frequency.steps(from, **tick).is_some()).count();
    if largest != first && on_grid(largest) >= on_grid(first) { largest } else { first }
}

/// Imputes the gaps, or marks them by NaN.
fn fill(rows: Rows, frequency: &Frequency, schema: &Schema, gaps: &Gaps<'_>) -> Result<Series, Located> {
    let known: Vec<usize> = (0..rows.ticks.len())
        .filter(|&row| {
            schema.missing != Missing::Drop || frequency.steps(gaps.origin, rows.ticks[row]).is_some()
        })
        .collect();
    // Missing values at the end are not imputed: the forecast starts after the last value.
    let end = rows.values.iter().rposition(|value| !value.is_nan()).map_or(0, |last| last + 1);
    let observed = known.partition_point(|&row| row < end);
    let grid = Grid { frequency: *frequency, origin: gaps.origin, missing: schema.missing };
    let column = |values: &[f64], width: usize, c: usize, rows_used: &[usize], name: &str| {
        let filled = grid.column(&rows.ticks, rows_used, |row| values[row * width + c]);
        filled.ok_or_else(|| {
            let problem = DataProblem::NoValues { id: rows.id.clone(), column: name.to_string() };
            (rows.lines.first().map(|line| u64::from(*line)), problem)
        })
    };
    let used = &known[..observed];
    let Column { first: start, mut values, mut leaky } = column(&rows.values, 1, 0, used, target(schema))?;
    trim_end(&mut values);
    let columns_of = |all: &[f64], names: &[String], rows_used: &[usize]| {
        let mut columns = Vec::with_capacity(names.len());
        for (c, name) in names.iter().enumerate() {
            columns.push(column(all, names.len(), c, rows_used, name)?);
        }
        Ok(columns)
    };
    let past = columns_of(&rows.past, &schema.past, used)?;
    for column in &past {
        leaky.extend(&column.leaky);
        // A covariate is extended to the start by its first value.
        leaky.extend((start..column.first).filter(|_| schema.missing != Missing::Drop));
    }
    let past = interleave(&past, start, values.len(), schema.missing);
    let future = columns_of(&rows.future, &schema.future, &known)?;
    let ends = future.iter().map(|column| (column.first + column.values.len() as i64 - start) as usize);
    let future = interleave(&future, start, ends.min().unwrap_or(0), schema.missing);
    let time = frequency.at(gaps.origin, start).unwrap_or(rows.ticks[0]);
    let rest = future.len() / schema.future.len().max(1);
    if !schema.future.is_empty() {
        values.truncate(rest);
    }
    let (id, origin, fixed) = (rows.id, gaps.origin, rows.fixed);
    let leaky = leaky.into_iter().filter_map(|point| usize::try_from(point - start).ok()).collect();
    Ok(Series { id, start: time, origin, values, leaky, past, future, fixed })
}

/// Interleaves columns from a grid point on. Outside its range, a column keeps its first or last value; with `Drop` it is
/// NaN.
fn interleave(columns: &[Column], start: i64, length: usize, missing: Missing) -> Vec<f64> {
    let at = |Column { first, values, .. }: &Column, row: usize| {
        let position = start + row as i64 - first;
        let inside = position.clamp(0, values.len() as i64 - 1);
        if inside != position && missing == Missing::Drop { f64::NAN } else { values[inside as usize] }
    };
    (0..length).flat_map(|row| columns.iter().map(move |column| at(column, row))).collect()
}

fn trim_end(values: &mut Vec<f64>) {
    let length = values.iter().rposition(|value| !value.is_nan()).map_or(0, |last| last + 1);
    values.truncate(length);
}

/// A column on the grid.
struct Column {
    first: i64,
    values: Vec<f64>,
    /// Grid points whose value was imputed from a later one.
    leaky: BTreeSet<i64>,
}

/// A grid and its imputation policy.
struct Grid {
    frequency: Frequency,
    origin: i64,
    missing: Missing,
}

impl Grid {
    /// Returns the values of a column from the first known one to the last row; `None` if there is no value.
    fn column(&self, ticks: &[i64], rows: &[usize], value: impl Fn(usize) -> f64) -> Option<Column> {
        let known: Vec<(i64, f64)> =
            rows.iter().map(|&row| (ticks[row], value(row))).filter(|(_, value)| !value.is_nan()).collect();
        let (first_tick, last_tick) = (known.first()?.0, ticks[*rows.last()?]);
        let floor = self.frequency.floor(self.origin, first_tick)?;
        let first = floor + i64::from(self.frequency.at(self.origin, floor)? < first_tick);
        let last = self.frequency.floor(self.origin, last_tick)?.max(first);
        let mut values = Vec::with_capacity((last - first + 1) as usize);
        let (mut after, mut leaky) = (0, BTreeSet::new());
        for point in first..=last {
            let tick = self.frequency.at(self.origin, point)?;
            while after < known.len() && known[after].0 <= tick {
                after += 1;
            }
            let before = known.get(after.wrapping_sub(1)).copied();
            let later = known.get(after).copied();
            values.push(self.value(tick, before, later));
            if self.missing == Missing::Interpolate
                && before.is_some_and(|(earlier, _)| earlier < tick)
                && later.is_some()
            {
                leaky.insert(point);
            }
        }
        Some(Column { first, values, leaky })
    }

    /// Returns the value at a time between two known ones.
    fn value(&self, tick: i64, before: Option<(i64, f64)>, after: Option<(i64, f64)>) -> f64 {
        let Some((earlier, left)) = before else { return f64::NAN };
        if earlier == tick {
            return left;
        }
        match (self.missing, after) {
            (Missing::Error | Missing::Drop, _) => f64::NAN,
            (Missing::Interpolate, Some((later, right))) => {
                let fraction = (tick - earlier) as f64 / (later - earlier) as f64;
                left + fraction * (right - left)
            }
            (Missing::Zero, _) => 0.0,
            (Missing::ForwardFill | Missing::Interpolate, _) => left,
        }
    }
}
