//! Windows over the series of a table: observed values and the steps to forecast.
//!
//! A window belongs to the subset that contains its targets; its input may reach back into the previous subset. Windows
//! that contain a missing value are left out. Windows are numbered series by series, and a list of numbers is copied to a
//! batch without allocation.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{Batch, BatchShape};
use super::split::{Split, Subset};
use super::table::{Series, Table};

/// Sizes and stride of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSizes {
    /// Observed values.
    pub input: usize,
    /// Steps to forecast.
    pub horizon: usize,
    /// Steps between consecutive windows.
    pub stride: usize,
}

/// Windows that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A series is too short for a window.
    #[error(
        "series {id:?} has {length} values for training, but a window needs {needed}; shorten input or horizon, or set skip_short_series = true"
    )]
    TooShort {
        /// Id of the series.
        id: String,
        /// Number of its training values.
        length: usize,
        /// Input plus horizon.
        needed: usize,
    },
    /// A series has no window because of its gaps.
    #[error(
        "series {id:?} has {length} times for training, but no more than {longest} in a row without a gap, and a window needs {needed}; fill the gaps (missing = \"forward-fill\" or \"interpolate\"), shorten input or horizon, or set skip_short_series = true"
    )]
    Gaps {
        /// Id of the series.
        id: String,
        /// Number of its training times.
        length: usize,
        /// Longest run without a gap.
        longest: usize,
        /// Input plus horizon, plus what the stride may skip after a gap.
        needed: usize,
    },
    /// All forecast origins of a series are at interpolated values.
    #[error(
        "series {id:?} has {length} values for training, but every window of {needed} would have its forecast origin at an interpolated value, which is data leakage; set missing = \"forward-fill\", a stride of 1, or skip_short_series = true"
    )]
    Leakage {
        /// Id of the series.
        id: String,
        /// Number of its training values.
        length: usize,
        /// Input plus horizon.
        needed: usize,
    },
    /// No series has a window.
    #[error(
        "no series has a run of {needed} values without a gap, as a window needs; shorten input or horizon"
    )]
    None {
        /// Input plus horizon.
        needed: usize,
    },
    /// A series is too short to forecast.
    #[error("series {id:?} has {length} values without a gap at its end, but the model reads {needed}")]
    TooShortToForecast {
        /// Id of the series.
        id: String,
        /// Number of values after the last gap.
        length: usize,
        /// Number of values that the model reads.
        needed: usize,
    },
    /// A series is too short to evaluate.
    #[error(
        "series {id:?} has {length} values, but the forecast origins need {needed}; evaluate fewer windows"
    )]
    TooShortToEvaluate {
        /// Id of the series.
        id: String,
        /// Number of its values.
        length: usize,
        /// Number of values from the input of the first window to the end of the last one.
        needed: usize,
    },
    /// A known-future covariate ends before the horizon.
    #[error(
        "series {id:?}: the known-future covariate {column:?} has {length} rows after the last value, but the horizon is {needed}; add rows"
    )]
    FutureUnknown {
        /// Id of the series.
        id: String,
        /// The first covariate that ends too early.
        column: String,
        /// Rows after the last value.
        length: usize,
        /// The horizon.
        needed: usize,
    },
    /// The batch has another shape.
    #[error("a batch of shape {found:?} was given, but {expected:?} is needed")]
    Shape {
        /// Shape of the batch.
        found: BatchShape,
        /// Shape of the windows.
        expected: BatchShape,
    },
    /// There is no such window.
    #[error("there is no window {number}; there are {count}")]
    Number {
        /// Number of the window.
        number: usize,
        /// Number of windows.
        count: usize,
    },
}

/// Consecutive windows of one series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    series: usize,
    /// Forecast origin of its first window: the position of the first target.
    first: usize,
    /// Number of windows in earlier runs.
    before: usize,
}

/// The windows of one subset of a table.
#[derive(Clone, Debug)]
pub struct Windows {
    table: Arc<Table>,
    sizes: WindowSizes,
    runs: Vec<Run>,
    count: usize,
}

impl Windows {
    /// Finds the windows whose targets are in a subset.
    pub fn new(table: &Arc<Table>, sizes: WindowSizes, split: &Split, subset: Subset) -> Windows {
        let mut windows = Windows::empty(table, sizes);
        for (number, series) in table.series.iter().enumerate() {
            let range = split.range(subset, series.values.len());
            windows.add_series(number, series, range);
        }
        windows
    }

    /// Returns one window per series, whose targets follow its last value.
    pub fn at_series_end(table: &Arc<Table>, input: usize, horizon: usize) -> Result<Windows, WindowError> {
        let mut windows = Windows::empty(table, WindowSizes { input, horizon, stride: 1 });
        let (past, future) = (table.columns.past.len(), table.columns.future.len());
        for (number, series) in table.series.iter().enumerate() {
            let (id, end) = (|| series.id.clone(), series.values.len());
            let length = (0..end).rev().take_while(|&row| is_known(series, past, future, row)).count();
            if length < input {
                return Err(WindowError::TooShortToForecast { id: id(), length, needed: input });
            }
            for (place, column) in table.columns.future.iter().enumerate() {
                let length = known_future_rows(series, future, place, horizon);
                if length < horizon {
                    let column = column.clone();
                    return Err(WindowError::FutureUnknown { id: id(), column, length, needed: horizon });
                }
            }
            windows.add_run(number, end, 1);
        }
        Ok(windows)
    }

    fn empty(table: &Arc<Table>, sizes: WindowSizes) -> Windows {
        let sizes = WindowSizes { stride: sizes.stride.max(1), ..sizes };
        Windows { table: Arc::clone(table), sizes, runs: Vec::new(), count: 0 }
    }

    fn add_run(&mut self, series: usize, first: usize, count: usize) {
        if count > 0 {
            self.runs.push(Run { series, first, before: self.count });
            self.count += count;
        }
    }

    /// Adds the windows of a series whose targets are in a range. Forecast origins are excluded if the window contains a
    /// missing value, or if its last value was imputed from later ones (data leakage).
    fn add_series(&mut self, number: usize, series: &Series, targets: Range<usize>) {
        let WindowSizes { input, horizon, stride } = self.sizes;
        let first = targets.start.max(input);
        let Some(end) = (targets.end + 1).checked_sub(horizon).filter(|end| *end > first) else { return };
        let columns = &self.table.columns;
        let (past, future) = (columns.past.len(), columns.future.len());
        let missing = (first - input..end + horizon - 1)
            .filter(|&row| !is_known(series, past, future, row))
            .map(|row| (row + 1).saturating_sub(horizon)..row + 1 + input);
        let leaky = series.leaky.iter().map(|row| row + 1..row + 2);
        let mut excluded: Vec<Range<usize>> = missing.chain(leaky).collect();
        excluded.sort_unstable_by_key(|range| range.start);
        excluded.push(end..end);
        let mut origin = first;
        for gap in excluded {
            // The windows before the gap; the next one starts after it.
            let count = gap.start.min(end).saturating_sub(origin).div_ceil(stride);
            self.add_run(number, origin, count);
            origin = origin.max(first + gap.end.saturating_sub(first).div_ceil(stride) * stride);
        }
    }

    /// Returns the number of windows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no windows.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the numbers of the series without windows.
    pub fn series_without_windows(&self) -> Vec<usize> {
        let mut has = vec![false; self.table.series.len()];
        self.runs.iter().for_each(|run| has[run.series] = true);
        (0..has.len()).filter(|series| !has[*series]).collect()
    }

    /// Checks that every series, or at least one, has a training window.
    pub fn check(&self, split: &Split, skip_short_series: bool) -> Result<(), WindowError> {
        let needed = self.sizes.input + self.sizes.horizon;
        if let Some(series) = self.series_without_windows().first().filter(|_| !skip_short_series) {
            let series = &self.table.series[*series];
            return Err(self.explain_missing_window(series, split.range(Subset::Train, series.values.len())));
        }
        if self.is_empty() { Err(WindowError::None { needed }) } else { Ok(()) }
    }

    /// Returns why a series has no window in a range.
    fn explain_missing_window(&self, series: &Series, range: Range<usize>) -> WindowError {
        let WindowSizes { input, horizon, stride } = self.sizes;
        let (id, length, needed) = (series.id.clone(), range.len(), input + horizon);
        let columns = &self.table.columns;
        let longest = longest_run(series, columns.past.len(), columns.future.len(), range);
        if longest == length && length >= needed {
            return WindowError::Leakage { id, length, needed };
        }
        if length < needed {
            return WindowError::TooShort { id, length, needed };
        }
        let needed = if longest < needed { needed } else { needed + stride - 1 };
        WindowError::Gaps { id, length, longest, needed }
    }

    /// Returns the series number and the forecast origin (position of the first target) of a window.
    pub fn origin(&self, number: usize) -> Option<(usize, usize)> {
        if number >= self.count {
            return None;
        }
        let run = &self.runs[self.runs.partition_point(|run| run.before <= number) - 1];
        Some((run.series, run.first + (number - run.before) * self.sizes.stride))
    }

    /// Returns the time of the first target of a window; 0 if there is no such window.
    pub fn time(&self, number: usize) -> i64 {
        let time = |(series, origin): (usize, usize)| {
            self.table.series.get(series)?.time(&self.table.frequency, origin)
        };
        self.origin(number).and_then(time).unwrap_or(0)
    }

    /// Returns the shape of a batch of this many windows.
    pub fn shape(&self, rows: usize) -> BatchShape {
        let columns = &self.table.columns;
        BatchShape {
            rows,
            input: self.sizes.input,
            horizon: self.sizes.horizon,
            past_columns: columns.past.len(),
            future_columns: columns.future.len(),
            static_columns: columns.fixed.len(),
        }
    }

    /// Fills a batch with windows. Unknown targets are 0.
    pub fn fill(&self, numbers: &[u32], batch: &mut Batch) -> Result<(), WindowError> {
        let expected = self.shape(numbers.len());
        if !batch.has_room(expected) {
            return Err(WindowError::Shape { found: batch.shape, expected });
        }
        for (row, &number) in numbers.iter().enumerate() {
            let number = number as usize;
            let (series, origin) =
                self.origin(number).ok_or(WindowError::Number { number, count: self.count })?;
            copy(&self.table.series[series], origin, row, batch);
        }
        Ok(())
    }
}

/// Returns whether a row of a series has no missing number.
fn is_known(series: &Series, past: usize, future: usize, row: usize) -> bool {
    let all = |values: &[f64]| values.iter().all(|value| !value.is_nan());
    all(&series.values[row..=row])
        && all(&series.past[row * past..][..past])
        && all(&series.future[row * future..][..future])
}

/// Returns the length of the longest run of rows without a missing number.
fn longest_run(series: &Series, past: usize, future: usize, range: Range<usize>) -> usize {
    let (mut longest, mut run) = (0, 0);
    for row in range {
        run = if is_known(series, past, future, row) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Returns the number of rows of a known-future covariate after the last value, at most the horizon.
fn known_future_rows(series: &Series, width: usize, column: usize, horizon: usize) -> usize {
    let rows = series.future.chunks(width).skip(series.values.len()).take(horizon);
    rows.take_while(|row| row.get(column).is_some_and(|number| !number.is_nan())).count()
}

/// Copies a window into a row of a batch, rounded to 32 bits.
fn copy(series: &Series, origin: usize, row: usize, batch: &mut Batch) {
    let BatchShape { input, horizon, past_columns, future_columns, static_columns, .. } = batch.shape;
    let begin = origin - input;
    let round =
        |to: &mut [f32], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as f32);
    round(&mut batch.past[row * input..][..input], &series.values[begin..origin]);
    let target = &mut batch.target[row * horizon..][..horizon];
    let known = &series.values[origin..series.values.len().min(origin + horizon)];
    round(&mut target[..known.len()], known);
    target[known.len()..].fill(0.0);
    let place = |width: usize, rows: usize| (row * rows * width, begin * width, rows * width);
    let (to, from, length) = place(past_columns, input);
    round(&mut batch.past_columns[to..][..length], &series.past[from..][..length]);
    let (to, from, length) = place(future_columns, input + horizon);
    round(&mut batch.future_columns[to..][..length], &series.future[from..][..length]);
    round(&mut batch.static_columns[row * static_columns..][..static_columns], &series.fixed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::frequency::{Frequency, TimeStep};
    use crate::data::split::Length;
    use crate::data::table::{Columns, Report};
    use crate::data::time::{TimeForm, TimeKind};
    use proptest::prelude::*;

    fn table(series: Vec<Vec<f64>>) -> Arc<Table> {
        let series = series.into_iter().enumerate().map(|(i, values)| Series {
            id: format!("s{i}"),
            start: 0,
            origin: 0,
            past: values.iter().map(|x| x + 0.25).collect(),
            future: values.iter().flat_map(|x| [x + 0.5, x + 0.75]).chain([7.0; 4]).collect(),
            fixed: vec![i as f64],
            leaky: Vec::new(),
            values,
        });
        let names = |n: usize| (0..n).map(|i| format!("c{i}")).collect();
        Arc::new(Table {
            frequency: Frequency { kind: TimeKind::Integer, step: TimeStep::Ticks(1) },
            offset: None,
            form: TimeForm::default(),
            columns: Columns { past: names(1), future: names(2), fixed: names(1) },
            series: series.collect(),
            report: Report::default(),
        })
    }

    fn counting(lengths: &[usize]) -> Arc<Table> {
        table(lengths.iter().map(|n| (0..*n).map(|i| i as f64).collect()).collect())
    }

    fn steps(train: usize, validation: usize, test: usize) -> Split {
        let [train, validation, test] = [train, validation, test].map(Length::Steps);
        Split { train: Some(train), validation, test }
    }

    #[test]
    fn inputs_reach_into_the_previous_subset_but_targets_do_not() {
        let table = counting(&[20]);
        let sizes = WindowSizes { input: 4, horizon: 2, stride: 1 };
        let count = |subset| Windows::new(&table, sizes, &steps(10, 5, 5), subset).len();
        assert_eq!([count(Subset::Train), count(Subset::Validation), count(Subset::Test)], [5, 4, 4]);
        let test = Windows::new(&table, sizes, &steps(10, 5, 5), Subset::Test);
        assert_eq!((test.origin(0), test.origin(3), test.origin(4)), (Some((0, 15)), Some((0, 18)), None));
    }

    #[test]
    fn a_batch_holds_windows_and_covariates() {
        let table = counting(&[3, 9]);
        let sizes = WindowSizes { input: 2, horizon: 1, stride: 3 };
        let windows = Windows::new(&table, sizes, &steps(9, 0, 0), Subset::Train);
        // One of the first series, three of the second.
        assert_eq!(windows.len(), 4);
        let mut batch = Batch::new(windows.shape(2));
        windows.fill(&[2, 0], &mut batch).unwrap();
        assert_eq!((batch.past.as_slice(), batch.target.as_slice()), (&[3., 4., 0., 1.][..], &[5., 2.][..]));
        assert_eq!(batch.past_columns, [3.25, 4.25, 0.25, 1.25]);
        assert_eq!(batch.future_columns[..6], [3.5, 3.75, 4.5, 4.75, 5.5, 5.75]);
        assert_eq!(batch.static_columns, [1., 0.]);
        assert!(
            windows.fill(&[4, 0], &mut batch).unwrap_err().to_string().contains("no window 4; there are 4")
        );
        let mut other = Batch::new(BatchShape { input: 7, ..windows.shape(2) });
        assert!(matches!(windows.fill(&[0, 0], &mut other), Err(WindowError::Shape { .. })));
    }

    #[test]
    fn windows_at_the_end_need_known_future_covariates() {
        let table = counting(&[5, 6]);
        let windows = Windows::at_series_end(&table, 3, 2).unwrap();
        let mut batch = Batch::new(windows.shape(2));
        batch.target.fill(9.0);
        windows.fill(&[0, 1], &mut batch).unwrap();
        assert_eq!(batch.past, [2., 3., 4., 3., 4., 5.]);
        assert_eq!(batch.target, [0.; 4]);
        assert_eq!(batch.future_columns[6..10], [7.0; 4]);
        assert!(matches!(
            Windows::at_series_end(&table, 6, 2),
            Err(WindowError::TooShortToForecast { length: 5, .. })
        ));
        assert!(matches!(
            Windows::at_series_end(&table, 3, 3),
            Err(WindowError::FutureUnknown { length: 2, .. })
        ));
    }

    #[test]
    fn short_series_are_reported_or_skipped() {
        let table = counting(&[20, 4]);
        let split = steps(20, 0, 0);
        let sizes = WindowSizes { input: 4, horizon: 2, stride: 1 };
        let windows = Windows::new(&table, sizes, &split, Subset::Train);
        let message = windows.check(&split, false).unwrap_err().to_string();
        assert!(
            message.contains("series \"s1\" has 4 values for training, but a window needs 6"),
            "{message}"
        );
        assert_eq!((windows.check(&split, true), windows.series_without_windows()), (Ok(()), vec![1]));
        let none = Windows::new(&table, WindowSizes { input: 40, ..sizes }, &split, Subset::Train);
        assert_eq!(none.check(&split, true), Err(WindowError::None { needed: 42 }));
    }

    #[test]
    fn close_gaps_are_reported() {
        let value = |gap: usize| move |i: usize| if i % gap == gap - 1 { f64::NAN } else { 1.0 };
        let message = |values: Vec<f64>, stride: usize| {
            let (table, split) = (table(vec![values]), steps(47, 0, 0));
            let sizes = WindowSizes { input: 6, horizon: 3, stride };
            Windows::new(&table, sizes, &split, Subset::Train).check(&split, false).unwrap_err().to_string()
        };
        let close = message((0..47).map(value(7)).collect(), 1);
        let part =
            "has 47 times for training, but no more than 6 in a row without a gap, and a window needs 9";
        assert!(close.contains(part), "{close}");
        // Short, and without a gap.
        let short = message((0..8).map(value(9)).collect(), 1);
        assert!(short.contains("has 8 values for training, but a window needs 9"), "{short}");
        // Nine in a row, from 1 to 9, but windows of this stride begin at 0 and 20.
        let mut passed = vec![f64::NAN; 12];
        passed[1..10].fill(1.0);
        let passed = message(passed, 20);
        assert!(passed.contains("no more than 9 in a row without a gap, and a window needs 28"), "{passed}");
    }

    proptest! {
        #[test]
        fn windows_equal_those_of_the_reference_implementation(
            lengths in prop::collection::vec(0usize..40, 1..4),
            gaps in prop::collection::vec((0usize..4, 0usize..40), 0..5),
            (input, horizon, stride) in (1usize..6, 1usize..5, 1usize..4),
            train in 0usize..40,
            leaky in prop::collection::btree_set(0usize..40, 0..4),
        ) {
            let mut all: Vec<Vec<f64>> = lengths.iter().map(|n| (0..*n).map(|i| i as f64).collect()).collect();
            for (series, row) in gaps {
                if let Some(value) = all.get_mut(series).and_then(|values| values.get_mut(row)) {
                    *value = f64::NAN;
                }
            }
            let mut table = table(all.clone());
            for series in &mut Arc::get_mut(&mut table).unwrap().series {
                series.leaky = leaky.iter().copied().filter(|row| *row < series.values.len()).collect();
            }
            let split = Split { train: Some(Length::Steps(train)), validation: Length::Steps(40), test: Length::Steps(0) };
            for subset in [Subset::Train, Subset::Validation] {
                let windows = Windows::new(&table, WindowSizes { input, horizon, stride }, &split, subset);
                let mut reference = Vec::new();
                for (series, values) in all.iter().enumerate() {
                    let range = split.range(subset, values.len());
                    let first = range.start.max(input);
                    for origin in (first..values.len()).filter(|t| (t - first).is_multiple_of(stride)) {
                        let inside = origin + horizon <= range.end && !leaky.contains(&(origin - 1));
                        if inside && values[origin - input..origin + horizon].iter().all(|x| !x.is_nan()) {
                            reference.push((series, origin));
                        }
                    }
                }
                let found: Vec<(usize, usize)> = (0..windows.len()).map(|i| windows.origin(i).unwrap()).collect();
                prop_assert_eq!(found, reference);
            }
        }
    }
}
