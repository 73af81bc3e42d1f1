//! What becomes of the tiles of a loop that ends with a reduction.

use crate::kernel::SharedSlice;
use crate::ops::Reduction;
use crate::plan::Operand;

use super::pieces::Piece;
use super::tile::{Tile, Worker};
use super::{Common, Compiled};
use crate::program::math::Math;

/// Rows that are added up before they are added to a result: an addend goes through few additions even if there are very
/// many rows.
pub(super) const BLOCK_ROWS: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct CompiledReduce {
    pub op: Reduction,
    pub from: Operand,
    /// Begin and length of the result in the arena.
    pub out: usize,
    pub length: usize,
    /// Rows of the loop that go into one result (or one row of results).
    pub rows: usize,
    /// Whether a row becomes one number, or rows are put together element by element.
    pub along: bool,
}

/// One result in the making. A sum of floating-point numbers keeps what rounding lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total<T> {
    op: Reduction,
    sum: f64,
    lost: f64,
    /// The result of everything but such a sum.
    value: T,
}

impl<T: Math> Total<T> {
    pub fn new(op: Reduction) -> Total<T> {
        Total { op, sum: 0.0, lost: 0.0, value: T::neutral(op) }
    }

    fn is_compensated(&self) -> bool {
        self.op == Reduction::Sum && T::DTYPE.is_float()
    }

    /// Adds what the reduction makes of a part of a row.
    fn add(&mut self, part: T) {
        if self.is_compensated() {
            self.add_number(part.number());
        } else {
            T::combine(self.op, std::slice::from_mut(&mut self.value), &[part]);
        }
    }

    /// Neumaier's sum: what is too small for the sum is kept beside it.
    fn add_number(&mut self, x: f64) {
        let sum = self.sum + x;
        self.lost += if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        self.sum = sum;
    }

    /// Adds the total of another part of what goes into the result.
    fn join(&mut self, other: &Total<T>) {
        if self.is_compensated() {
            self.add_number(other.sum);
            self.lost += other.lost;
        } else {
            self.add(other.value);
        }
    }

    fn result(&self) -> T {
        match self.is_compensated() {
            true if self.sum.is_finite() => T::from_number(self.sum + self.lost),
            true => T::from_number(self.sum),
            false => self.value,
        }
    }
}

/// The result that a piece is at, if its rows become numbers: its place, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<T> {
    place: usize,
    total: Total<T>,
}

impl Compiled {
    /// Whether pieces have parts of results, which are put together at the end.
    pub(super) fn joins(&self) -> bool {
        self.reduce.as_ref().is_some_and(|reduce| {
            let parts = if reduce.along { self.pieces.of_a_group() } else { self.pieces.row_shares() };
            parts > 1
        })
    }

    /// Adds a tile to the results of the reduction.
    pub(super) fn fold<T: Math>(
        &self,
        common: &Common<'_, T>,
        worker: &mut Worker<T>,
        current: &mut Option<Current<T>>,
        (piece, tile): (&Piece, &Tile),
    ) {
        let Some(reduce) = &self.reduce else { return };
        if reduce.along {
            let elements = worker.read(self, &common.arena, reduce.from, tile.size());
            for (row, elements) in elements.chunks_exact(tile.length).enumerate() {
                let place = reduce.out + (tile.first + row) / reduce.rows;
                let current = at(current, &common.arena, place, reduce.op);
                current.total.add(T::part(reduce.op, elements));
            }
            return;
        }
        let mut block = std::mem::take(&mut worker.block);
        let part = &mut block[tile.begin - piece.columns.start..][..tile.length];
        for row in worker.read(self, &common.arena, reduce.from, tile.size()).chunks_exact(tile.length) {
            T::combine(reduce.op, part, row);
        }
        worker.block = block;
    }

    /// Adds a block of rows to the result that they belong to, if the block or the result is complete; `next` is the first
    /// row that is not in the block.
    pub(super) fn flush_block<T: Math>(
        &self,
        common: &Common<'_, T>,
        worker: &mut Worker<T>,
        piece: &Piece,
        next: usize,
    ) {
        let Some(reduce) = self.reduce.as_ref().filter(|reduce| !reduce.along) else { return };
        let is_complete = next.is_multiple_of(reduce.rows) || next == piece.rows.end;
        if worker.block_rows < BLOCK_ROWS && !is_complete {
            return;
        }
        let (row, length) = (self.sizes[self.sizes.len() - 1], piece.columns.len());
        let result = if self.joins() {
            let share = self.pieces.row_share_of(piece.number);
            common.rows.write(share * row + piece.columns.start, length)
        } else {
            let place = reduce.out + (next - 1) / reduce.rows * row;
            common.arena.write(place + piece.columns.start, length)
        };
        let block = &mut worker.block[..length];
        let begin = next - worker.block_rows;
        if begin == piece.rows.start || begin.is_multiple_of(reduce.rows) {
            result.copy_from_slice(block);
        } else {
            T::combine(reduce.op, result, block);
        }
        block.fill(T::neutral(reduce.op));
        worker.block_rows = 0;
    }

    /// Writes the last result of a piece, or keeps it as a part of one.
    pub(super) fn finish<T: Math>(&self, common: &Common<'_, T>, current: Option<Current<T>>, piece: &Piece) {
        let Some(Current { place, total }) = current else { return };
        if self.joins() {
            common.totals.write(piece.number, 1)[0] = total;
        } else {
            common.arena.write(place, 1)[0] = total.result();
        }
    }

    /// Puts the parts of results together, in their order.
    pub(super) fn join<T: Math>(&self, arena: &mut [T], totals: &[Total<T>], rows: &[T]) {
        let Some(reduce) = self.reduce.as_ref().filter(|_| self.joins()) else { return };
        let out = &mut arena[reduce.out..][..reduce.length];
        if reduce.along {
            for (out, parts) in out.iter_mut().zip(totals.chunks_exact(self.pieces.of_a_group())) {
                let mut total = Total::new(reduce.op);
                for part in parts {
                    total.join(part);
                }
                *out = total.result();
            }
            return;
        }
        let row = self.sizes[self.sizes.len() - 1];
        let parts = rows.chunks_exact(row * self.pieces.row_shares());
        for (out, parts) in out.chunks_exact_mut(row).zip(parts) {
            let (first, others) = parts.split_at(row);
            out.copy_from_slice(first);
            for part in others.chunks_exact(row) {
                T::combine(reduce.op, out, part);
            }
        }
    }
}

/// The total of the result with some place. The result before it is complete, and is written.
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
    current.get_or_insert_with(|| Current { place, total: Total::new(op) })
}
