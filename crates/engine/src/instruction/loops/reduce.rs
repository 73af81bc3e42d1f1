//! The reduction at the end of a loop.

use crate::kernel::SharedSlice;
use crate::ops::Reduction;

use super::chunks::Chunk;
use super::compile::CompiledLoop;
use super::math::Math;
use super::tile::{Tile, Worker};
use super::{Operand, Shared};

/// Rows that are summed before they are added to a result, so that every addend goes through few additions even if there
/// are very many rows.
pub(super) const BLOCK_ROWS: usize = 64;

/// A reduction with its place in the arena.
#[derive(Clone, Debug)]
pub(super) struct CompiledReduction {
    pub op: Reduction,
    pub from: Operand,
    /// Offset of the result in the arena, and its elements.
    pub out: usize,
    pub length: usize,
    /// Rows of the loop for each result, or for each row of results.
    pub rows: usize,
    /// Whether a row is reduced to one number; otherwise rows are combined element by element.
    pub along_rows: bool,
}

/// The accumulator of one result. Floating-point sums are compensated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accumulator<T> {
    op: Reduction,
    sum: f64,
    /// Rounding errors of `sum`.
    compensation: f64,
    /// The result of every other reduction.
    value: T,
}

impl<T: Math> Accumulator<T> {
    pub fn new(op: Reduction) -> Accumulator<T> {
        Accumulator { op, sum: 0.0, compensation: 0.0, value: T::neutral(op) }
    }

    fn is_compensated(&self) -> bool {
        self.op == Reduction::Sum && T::DTYPE.is_float()
    }

    /// Adds the reduced value of a part of a row.
    fn add(&mut self, part: T) {
        if self.is_compensated() {
            self.add_number(part.number());
        } else {
            T::combine(self.op, std::slice::from_mut(&mut self.value), &[part]);
        }
    }

    /// Adds with Neumaier's compensated summation.
    fn add_number(&mut self, x: f64) {
        let sum = self.sum + x;
        self.compensation +=
            if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        self.sum = sum;
    }

    /// Adds the accumulator of another chunk of the same result.
    fn join(&mut self, other: &Accumulator<T>) {
        if self.is_compensated() {
            self.add_number(other.sum);
            self.compensation += other.compensation;
        } else {
            self.add(other.value);
        }
    }

    fn result(&self) -> T {
        match self.is_compensated() {
            true if self.sum.is_finite() => T::from_number(self.sum + self.compensation),
            true => T::from_number(self.sum),
            false => self.value,
        }
    }
}

/// The result that a chunk is working on, if rows are reduced to numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<T> {
    place: usize,
    total: Accumulator<T>,
}

impl CompiledLoop {
    /// Whether chunks have partial results, which are combined at the end.
    pub(super) fn has_partial_results(&self) -> bool {
        self.reduce.as_ref().is_some_and(|reduce| {
            let parts = if reduce.along_rows { self.chunks.per_group() } else { self.chunks.row_splits() };
            parts > 1
        })
    }

    /// Adds a tile to the results of the reduction.
    pub(super) fn reduce_tile<T: Math>(
        &self,
        shared: &Shared<'_, T>,
        worker: &mut Worker<T>,
        current: &mut Option<Current<T>>,
        (chunk, tile): (&Chunk, &Tile),
    ) {
        let Some(reduce) = &self.reduce else { return };
        if reduce.along_rows {
            let elements = worker.read(self, &shared.arena, reduce.from, tile.size());
            for (row, elements) in elements.chunks_exact(tile.length).enumerate() {
                let place = reduce.out + (tile.first + row) / reduce.rows;
                let current = at(current, &shared.arena, place, reduce.op);
                current.total.add(T::reduce(reduce.op, elements));
            }
            return;
        }
        let mut block = std::mem::take(&mut worker.block);
        let part = &mut block[tile.begin - chunk.columns.start..][..tile.length];
        for row in worker.read(self, &shared.arena, reduce.from, tile.size()).chunks_exact(tile.length) {
            T::combine(reduce.op, part, row);
        }
        worker.block = block;
    }

    /// Adds a block of rows to its result if the block or the result is complete. `next` is the first row after the block.
    pub(super) fn flush_block<T: Math>(
        &self,
        shared: &Shared<'_, T>,
        worker: &mut Worker<T>,
        chunk: &Chunk,
        next: usize,
    ) {
        let Some(reduce) = self.reduce.as_ref().filter(|reduce| !reduce.along_rows) else { return };
        let is_complete = next.is_multiple_of(reduce.rows) || next == chunk.rows.end;
        if worker.block_rows < BLOCK_ROWS && !is_complete {
            return;
        }
        let (row, length) = (self.sizes[self.sizes.len() - 1], chunk.columns.len());
        let result = if self.has_partial_results() {
            let part = self.chunks.row_split_of(chunk.index);
            shared.rows.write(part * row + chunk.columns.start, length)
        } else {
            let place = reduce.out + (next - 1) / reduce.rows * row;
            shared.arena.write(place + chunk.columns.start, length)
        };
        let block = &mut worker.block[..length];
        let begin = next - worker.block_rows;
        if begin == chunk.rows.start || begin.is_multiple_of(reduce.rows) {
            result.copy_from_slice(block);
        } else {
            T::combine(reduce.op, result, block);
        }
        block.fill(T::neutral(reduce.op));
        worker.block_rows = 0;
    }

    /// Writes the last result of a chunk, or keeps it as a partial result.
    pub(super) fn finish<T: Math>(&self, shared: &Shared<'_, T>, current: Option<Current<T>>, chunk: &Chunk) {
        let Some(Current { place, total }) = current else { return };
        if self.has_partial_results() {
            shared.totals.write(chunk.index, 1)[0] = total;
        } else {
            shared.arena.write(place, 1)[0] = total.result();
        }
    }

    /// Combines the partial results of the chunks, in order.
    pub(super) fn combine_partial_results<T: Math>(
        &self,
        arena: &mut [T],
        totals: &[Accumulator<T>],
        rows: &[T],
    ) {
        let Some(reduce) = self.reduce.as_ref().filter(|_| self.has_partial_results()) else { return };
        let out = &mut arena[reduce.out..][..reduce.length];
        if reduce.along_rows {
            for (out, parts) in out.iter_mut().zip(totals.chunks_exact(self.chunks.per_group())) {
                let mut total = Accumulator::new(reduce.op);
                for part in parts {
                    total.join(part);
                }
                *out = total.result();
            }
            return;
        }
        let row = self.sizes[self.sizes.len() - 1];
        let parts = rows.chunks_exact(row * self.chunks.row_splits());
        for (out, parts) in out.chunks_exact_mut(row).zip(parts) {
            let (first, others) = parts.split_at(row);
            out.copy_from_slice(first);
            for part in others.chunks_exact(row) {
                T::combine(reduce.op, out, part);
            }
        }
    }
}

/// The accumulator of the result at a place. Writes the previous result if that is another one.
fn at<'a, T: Math>(
    current: &'a mut Option<Current<T>>,
    arena: &SharedSlice<'_, T>,
    place: usize,
    op: Reduction,
) -> &'a mut Current<T> {
    if let Some(before) = current.filter(|current| current.place != place) {
        arena.write(before.place, 1)[0] = before.total.result();
        *current = None;
    }
    current.get_or_insert_with(|| Current { place, total: Accumulator::new(op) })
}
