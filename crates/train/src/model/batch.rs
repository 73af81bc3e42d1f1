//! Batches of named inputs, and mini-batches of a table in memory.

use gatework_engine::Runner;
use gatework_engine::program::ProgramError;

use crate::random::{Purpose, Random};

/// The elements of an input, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 32-bit floating-point numbers.
    F32(Vec<f32>),
    /// 64-bit floating-point numbers.
    F64(Vec<f64>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// 64-bit integers.
    I64(Vec<i64>),
}

macro_rules! values {
    ($($variant:ident $type:ty;)*) => {
        $(impl From<Vec<$type>> for Values {
            fn from(values: Vec<$type>) -> Values {
                Values::$variant(values)
            }
        })*

        impl Values {
            /// The number of elements.
            fn len(&self) -> usize {
                match self {
                    $(Values::$variant(values) => values.len(),)*
                }
            }

            /// The elements of some rows of `width` elements each.
            fn rows(&self, width: usize, rows: &[usize]) -> Values {
                match self {
                    $(Values::$variant(values) => {
                        let row = |&row: &usize| &values[row * width..][..width];
                        Values::$variant(rows.iter().flat_map(row).copied().collect())
                    })*
                }
            }

            fn write(&self, runner: &mut Runner, name: &str) -> Result<(), ProgramError> {
                match self {
                    $(Values::$variant(values) => runner.write(name, values),)*
                }
            }
        }
    };
}

values! {
    F32 f32;
    F64 f64;
    I32 i32;
    I64 i64;
}

/// Values for the inputs of a network.
///
/// ```
/// use gatework_train::model::Batch;
///
/// let batch = Batch::new(2).with("x", vec![0.5f32, 1.5]).with("label", vec![0, 1]);
/// assert_eq!(batch.rows(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    rows: usize,
    inputs: Vec<(String, Values)>,
}

impl Batch {
    /// Creates a batch without inputs. The network is built for this number of rows.
    pub fn new(rows: usize) -> Batch {
        Batch { rows, inputs: Vec::new() }
    }

    /// Adds the elements of an input, in row-major order.
    #[must_use]
    pub fn with(mut self, name: &str, values: impl Into<Values>) -> Batch {
        self.inputs.push((name.to_string(), values.into()));
        self
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes the inputs that a program has.
    pub(super) fn write_used(&self, runner: &mut Runner) -> Result<(), ProgramError> {
        let used = self.inputs.iter().filter(|(name, _)| runner.program().has_input(name));
        used.collect::<Vec<_>>().iter().try_for_each(|(name, values)| values.write(runner, name))
    }

    /// Writes all inputs into a program.
    pub(super) fn write(&self, runner: &mut Runner) -> Result<(), ProgramError> {
        self.inputs.iter().try_for_each(|(name, values)| values.write(runner, name))
    }
}

/// A column that does not fit a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {name:?} has {found} values, but {rows} rows of {width} need {}", rows.saturating_mul(*width))]
pub struct TableError {
    /// The name of the column.
    pub name: String,
    /// Values per row.
    pub width: usize,
    /// Rows of the table.
    pub rows: usize,
    /// Values of the column.
    pub found: usize,
}

/// Examples in memory: named columns with a number of values per row.
///
/// ```
/// use gatework_train::model::Table;
///
/// let table = Table::new(3).with("x", 2, vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?.with("label", 1, vec![7, 8, 9])?;
/// let (held_back, rest) = (table.select(&[0]), table.select(&[1, 2]));
/// assert_eq!((held_back.rows(), rest.rows()), (1, 2));
/// let sizes: Vec<usize> = table.minibatches(2, 1).take(4).map(|batch| batch.rows()).collect();
/// assert_eq!(sizes, [2, 1, 2, 1]);
/// # Ok::<(), gatework_train::model::TableError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    rows: usize,
    columns: Vec<(String, usize, Values)>,
}

impl Table {
    /// Creates a table without columns.
    pub fn new(rows: usize) -> Table {
        Table { rows, columns: Vec::new() }
    }

    /// Adds a column with `width` values per row.
    pub fn with(mut self, name: &str, width: usize, values: impl Into<Values>) -> Result<Table, TableError> {
        let (rows, values) = (self.rows, values.into());
        if rows.checked_mul(width) != Some(values.len()) {
            return Err(TableError { name: name.to_string(), width, rows, found: values.len() });
        }
        self.columns.push((name.to_string(), width, values));
        Ok(self)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns a table of some rows. Indices beyond the last row are skipped.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Table {
        let rows: Vec<usize> = rows.iter().copied().filter(|&row| row < self.rows).collect();
        let columns = self.columns.iter();
        let columns = columns.map(|(name, width, values)| (name.clone(), *width, values.rows(*width, &rows)));
        Table { rows: rows.len(), columns: columns.collect() }
    }

    /// Splits the rows at random into two tables. The second one has the given fraction of them, rounded.
    #[must_use]
    pub fn split(&self, fraction: f64, seed: u64) -> (Table, Table) {
        let mut order: Vec<usize> = (0..self.rows).collect();
        Random::new(seed, Purpose::Check, 0).shuffle(&mut order);
        let held_back = (self.rows as f64 * fraction.clamp(0.0, 1.0)).round() as usize;
        let (rest, held_back) = order.split_at(self.rows - held_back.min(self.rows));
        (self.select(rest), self.select(held_back))
    }

    /// Returns all rows as one batch.
    pub fn batch(&self) -> Batch {
        let inputs = self.columns.iter().map(|(name, _, values)| (name.clone(), values.clone()));
        Batch { rows: self.rows, inputs: inputs.collect() }
    }

    /// Returns an endless iterator of mini-batches: every epoch visits all rows once, in an order that depends on the seed and
    /// the epoch. The last one of an epoch has the remaining rows.
    pub fn minibatches(&self, rows: usize, seed: u64) -> Minibatches<'_> {
        Minibatches { table: self, rows: rows.max(1), seed, next: 0, order: Vec::new(), epoch: None }
    }
}

/// Mini-batches of a [`Table`]. Skipping is fast: a batch is a function of the seed and its position.
#[derive(Clone, Debug)]
pub struct Minibatches<'t> {
    table: &'t Table,
    rows: usize,
    seed: u64,
    /// The position of the next batch.
    next: u64,
    /// The rows of an epoch, in order.
    order: Vec<usize>,
    epoch: Option<u64>,
}

impl Iterator for Minibatches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.nth(0)
    }

    fn nth(&mut self, skipped: usize) -> Option<Batch> {
        let per_epoch = self.table.rows.div_ceil(self.rows).max(1) as u64;
        let position = self.next.saturating_add(skipped as u64);
        self.next = position.saturating_add(1);
        let (epoch, index) = (position / per_epoch, (position % per_epoch) as usize);
        if self.epoch != Some(epoch) {
            self.order = (0..self.table.rows).collect();
            Random::new(self.seed, Purpose::Shuffle, epoch).shuffle(&mut self.order);
            self.epoch = Some(epoch);
        }
        let rows = &self.order[index * self.rows..][..self.rows.min(self.table.rows - index * self.rows)];
        let input =
            |(name, width, values): &(String, usize, Values)| (name.clone(), values.rows(*width, rows));
        Some(Batch { rows: rows.len(), inputs: self.table.columns.iter().map(input).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let x: Vec<f32> = (0..20).map(|i| i as f32).collect();
        Table::new(10).with("x", 2, x).unwrap().with("row", 1, (0..10).collect::<Vec<i32>>()).unwrap()
    }

    fn rows(batch: &Batch) -> Vec<i32> {
        let (Values::F32(x), Values::I32(rows)) = (&batch.inputs[0].1, &batch.inputs[1].1) else {
            panic!("{batch:?}");
        };
        let wanted: Vec<f32> =
            rows.iter().flat_map(|&row| [2 * row, 2 * row + 1].map(|x| x as f32)).collect();
        assert_eq!(*x, wanted, "columns have the same rows");
        rows.clone()
    }

    #[test]
    fn an_epoch_visits_every_row_once_in_a_new_order() {
        let table = table();
        let batches: Vec<Vec<i32>> = table.minibatches(4, 1).take(6).map(|batch| rows(&batch)).collect();
        let epochs: Vec<Vec<i32>> = batches.chunks(3).map(<[Vec<i32>]>::concat).collect();
        assert_ne!(epochs[0], epochs[1]);
        for mut epoch in epochs {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..10).collect::<Vec<_>>());
        }
        let skipped: Vec<Vec<i32>> =
            table.minibatches(4, 1).skip(4).take(2).map(|batch| rows(&batch)).collect();
        assert_eq!(skipped, batches[4..]);
        assert_ne!(
            rows(&table.minibatches(10, 2).next().unwrap()),
            rows(&table.minibatches(10, 1).next().unwrap())
        );
    }

    #[test]
    fn a_split_has_every_row_once() {
        let (rest, held_back) = table().split(0.3, 1);
        assert_eq!((rest.rows(), held_back.rows()), (7, 3));
        let mut all = [rows(&rest.batch()), rows(&held_back.batch())].concat();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn columns_that_do_not_fit_are_refused_and_empty_tables_have_empty_batches() {
        let error = table().with("y", 3, vec![0.5f64; 29]).unwrap_err().to_string();
        assert_eq!(error, "column \"y\" has 29 values, but 10 rows of 3 need 30");
        assert!(table().with("y", usize::MAX, vec![0i64]).is_err());
        let empty = table().select(&[10, 11]);
        assert_eq!(empty.minibatches(4, 1).nth(7).unwrap().rows(), 0);
    }
}
