//! The rows of a series as a reader finds them, before they are mapped to a grid.

use super::error::DataProblem;
use super::frequency::Frequency;
use super::table::Duplicates;
use super::time::{self, TimeKind};

/// A problem and its line.
pub type Located = (Option<u64>, DataProblem);

/// The rows of one series, as read.
#[derive(Debug, Default)]
pub struct Rows {
    pub id: String,
    pub ticks: Vec<i64>,
    pub lines: Vec<u32>,
    pub values: Vec<f64>,
    /// `[rows, columns]`.
    pub past: Vec<f64>,
    /// `[rows, columns]`.
    pub future: Vec<f64>,
    pub fixed: Vec<f64>,
}

impl Rows {
    /// Returns whether sorted times are compatible with a frequency: all are on its grid, and at least half follow the
    /// previous one by one step. Fewer than three times are compatible with any frequency.
    pub fn is_compatible(&self, frequency: &Frequency) -> bool {
        let Some(&start) = self.ticks.first() else { return true };
        let on_grid = |tick: &i64| frequency.steps(start, *tick).is_some();
        let next = |pair: &&[i64]| frequency.steps(pair[0], pair[1]) == Some(1);
        let few = self.ticks.len() < 3;
        let follow = self.ticks.windows(2).filter(next).count();
        few || (self.ticks.iter().all(on_grid) && 2 * follow + 1 >= self.ticks.len())
    }

    /// Sorts the rows by time, equal times by line. Returns whether they were unsorted.
    pub fn sort(&mut self) -> bool {
        if self.ticks.is_sorted() {
            return false;
        }
        let mut order: Vec<u32> = (0..self.ticks.len() as u32).collect();
        order.sort_by_key(|&row| self.ticks[row as usize]);
        let rows = self.ticks.len();
        let take = |values: &[f64]| -> Vec<f64> {
            let width = values.len() / rows;
            order.iter().flat_map(|&row| &values[row as usize * width..][..width]).copied().collect()
        };
        self.values = take(&self.values);
        self.past = take(&self.past);
        self.future = take(&self.future);
        self.lines = order.iter().map(|&row| self.lines[row as usize]).collect();
        self.ticks.sort_unstable();
        true
    }

    /// Merges the rows of equal times, which are adjacent. Covariates are those of the last row. Returns the number of rows
    /// that were merged into others.
    pub fn merge(&mut self, policy: Duplicates) -> u64 {
        let rows = self.ticks.len();
        if policy == Duplicates::Error || self.ticks.windows(2).all(|pair| pair[0] != pair[1]) {
            return 0;
        }
        let widths = [self.past.len() / rows, self.future.len() / rows];
        let mut kept = 0;
        let mut row = 0;
        while row < rows {
            let end = row + self.ticks[row..].iter().take_while(|tick| **tick == self.ticks[row]).count();
            let known = self.values[row..end].iter().filter(|value| !value.is_nan());
            let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            let value = match policy {
                _ if count == 0.0 => f64::NAN,
                Duplicates::Sum => sum,
                Duplicates::Mean => sum / count,
                Duplicates::Error | Duplicates::Last => self.values[end - 1],
            };
            self.ticks[kept] = self.ticks[row];
            self.lines[kept] = self.lines[row];
            self.values[kept] = value;
            for (columns, width) in [&mut self.past, &mut self.future].into_iter().zip(widths) {
                columns.copy_within((end - 1) * width..end * width, kept * width);
            }
            kept += 1;
            row = end;
        }
        self.ticks.truncate(kept);
        self.lines.truncate(kept);
        self.values.truncate(kept);
        self.past.truncate(kept * widths[0]);
        self.future.truncate(kept * widths[1]);
        (rows - kept) as u64
    }

    pub fn check_duplicates(&self, kind: TimeKind) -> Result<(), Located> {
        let Some(row) = self.ticks.windows(2).position(|pair| pair[0] == pair[1]) else { return Ok(()) };
        let problem = DataProblem::Duplicate {
            id: self.id.clone(),
            time: time::format(self.ticks[row], kind),
            other: self.lines[row].into(),
        };
        Err((Some(self.lines[row + 1].into()), problem))
    }
}
