//! Copies batches into the inputs of compiled programs.

use std::ops::Range;

use gatework_engine::{Runner, program::ProgramError};

use super::inputs::NAMES;
use crate::data::{Batch, BatchShape};

/// A batch that does not fit the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The batch has no rows.
    #[error("the batch has no windows")]
    Empty,
    /// The sizes of the batch are not those of the network.
    #[error("a batch of {found:?} was given, but the model needs {expected:?}")]
    Shape {
        /// Sizes of the batch.
        found: BatchShape,
        /// Sizes of the network.
        expected: BatchShape,
    },
    /// A field of the batch is not as long as its shape says.
    #[error("{field} of a batch has {found} numbers, not {expected}")]
    Length {
        /// Name of the field.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The length that the shape requires.
        expected: usize,
    },
}

/// Checks that a batch is not empty and has the sizes of the network. Targets may be missing where they are not read.
pub fn check_batch(shape: BatchShape, batch: &Batch, with_target: bool) -> Result<(), BatchError> {
    let expected = BatchShape { rows: batch.shape.rows, ..shape };
    if batch.shape.rows == 0 {
        return Err(BatchError::Empty);
    }
    if batch.shape != expected {
        return Err(BatchError::Shape { found: batch.shape, expected });
    }
    let fields = NAMES.into_iter().zip(fields(batch)).zip(lengths(&batch.shape));
    for ((field, numbers), expected) in fields.filter(|((name, _), _)| with_target || *name != NAMES[1]) {
        if numbers.len() != expected {
            return Err(BatchError::Length { field, found: numbers.len(), expected });
        }
    }
    Ok(())
}

/// Returns the number of elements of each field of a batch, in the order of [`NAMES`].
fn lengths(shape: &BatchShape) -> [usize; 5] {
    let BatchShape { rows, input, horizon, past_columns, future_columns, static_columns } = *shape;
    let per_row = [input, horizon, input * past_columns, (input + horizon) * future_columns, static_columns];
    per_row.map(|numbers| rows * numbers)
}

/// Copies rows of a batch, targets included, into a program.
pub fn write_rows(runner: &mut Runner, batch: &Batch, rows: Range<usize>) -> Result<(), ProgramError> {
    for (name, numbers) in NAMES.into_iter().zip(fields(batch)) {
        let width = numbers.len() / batch.shape.rows.max(1);
        if width > 0 {
            runner.write(name, &numbers[rows.start * width..rows.end * width])?;
        }
    }
    Ok(())
}

/// Copies rows of a batch, without targets, into a program for `size` windows. If there are fewer rows, the remaining
/// windows are filled with zeros, in the buffer `padded`.
pub fn write_padded(
    runner: &mut Runner,
    batch: &Batch,
    rows: Range<usize>,
    size: usize,
    padded: &mut Vec<f32>,
) -> Result<(), ProgramError> {
    for (name, numbers) in NAMES.into_iter().zip(fields(batch)) {
        let width = numbers.len() / batch.shape.rows.max(1);
        if width == 0 || name == NAMES[1] {
            continue;
        }
        let given = &numbers[rows.start * width..rows.end * width];
        if rows.len() == size {
            runner.write(name, given)?;
        } else {
            padded.clear();
            padded.extend_from_slice(given);
            padded.resize(size * width, 0.0);
            runner.write(name, padded)?;
        }
    }
    Ok(())
}

/// Returns the fields of a batch, in the order of [`NAMES`].
fn fields(batch: &Batch) -> [&[f32]; 5] {
    [&batch.past, &batch.target, &batch.past_columns, &batch.future_columns, &batch.static_columns]
}
