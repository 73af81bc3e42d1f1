//! Chunks of a loop, for threads.
//!
//! A loop consists of `groups` of `rows` of `columns`: the rows of a group are reduced to one result, or to one row of
//! results; without a reduction every row is a group. Groups are distributed first, because they are independent. If there
//! are too few, rows that are combined element by element are split into column ranges, which are independent as well. After
//! that, groups themselves are split: their partial results are combined in order.
//!
//! The split depends on the amount of work alone, not on the number of threads, and so do the bits of the results.

use std::ops::Range;

use crate::parallel::chunk_range;

use super::reduce::BLOCK_ROWS;
use super::tile::TILE;

/// Least work of a chunk, in loads, stores and additions of four-byte elements (about 0.06 ns each). Less is not worth a
/// second thread.
const MIN_CHUNK_WORK: usize = if cfg!(test) { 1 << 13 } else { 1 << 17 };

/// Largest number of chunks: their partial results are combined sequentially.
const MAX_CHUNKS: usize = 64;

/// One dimension of a loop: `units` split into `parts`.
#[derive(Clone, Copy, Debug)]
struct Split {
    units: usize,
    parts: usize,
}

impl Split {
    fn new(units: usize, parts: usize) -> Split {
        Split { units, parts: parts.min(units).max(1) }
    }

    fn part(self, index: usize) -> Range<usize> {
        chunk_range(self.units, index, self.parts)
    }
}

/// The split of a loop into chunks.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    groups: Split,
    rows: Split,
    /// In units of [`TILE`] elements.
    columns: Split,
    row: usize,
}

/// A range of the rows of a loop, and of the columns of each.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub index: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// What a reduction does with the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowUse {
    /// They are reduced to one number.
    Reduced,
    /// They are combined element by element, or there is no reduction.
    Combined,
}

impl Chunks {
    /// Splits `groups` of `rows` of `row` elements with a cost of `cost` each.
    pub fn new([groups, rows, row]: [usize; 3], row_use: RowUse, cost: usize) -> Chunks {
        let work = [groups, rows, row, cost].into_iter().fold(1, usize::saturating_mul);
        let wanted = (work / MIN_CHUNK_WORK).clamp(1, MAX_CHUNKS);
        let groups = Split::new(groups, wanted);
        let per_group = wanted.div_ceil(groups.parts);
        let tiles = row.div_ceil(TILE);
        let (rows, columns) = match row_use {
            RowUse::Reduced => {
                let rows = Split::new(rows, per_group);
                (rows, Split::new(tiles, per_group.div_ceil(rows.parts)))
            }
            RowUse::Combined => {
                let columns = Split::new(tiles, per_group);
                // Far fewer partial rows than rows, so that combining them costs little.
                let parts = per_group.div_ceil(columns.parts).min(rows / BLOCK_ROWS);
                (Split::new(rows, parts), columns)
            }
        };
        Chunks { groups, rows, columns, row }
    }

    /// A single chunk.
    pub fn whole(sizes: [usize; 3]) -> Chunks {
        Chunks::new(sizes, RowUse::Combined, 0)
    }

    pub fn count(&self) -> usize {
        self.groups.parts * self.per_group()
    }

    /// Chunks of a group. More than one only if every chunk belongs to a single group.
    pub fn per_group(&self) -> usize {
        self.rows.parts * self.columns.parts
    }

    /// Parts that the rows of a group are split into.
    pub fn row_splits(&self) -> usize {
        self.rows.parts
    }

    /// Largest number of columns of a chunk.
    pub fn max_columns(&self) -> usize {
        (self.columns.units.div_ceil(self.columns.parts) * TILE).min(self.row)
    }

    /// The index of the part of the rows that a chunk covers, counted over all groups.
    pub fn row_split_of(&self, chunk: usize) -> usize {
        chunk / self.columns.parts
    }

    pub fn chunk(&self, index: usize) -> Chunk {
        let (row_part, column_part) = (self.row_split_of(index), index % self.columns.parts);
        let groups = self.groups.part(row_part / self.rows.parts);
        let rows = self.rows.part(row_part % self.rows.parts);
        let begin = groups.start * self.rows.units + rows.start;
        let columns = self.columns.part(column_part);
        Chunk {
            index,
            rows: begin..(groups.end - 1) * self.rows.units + rows.end,
            columns: columns.start * TILE..(columns.end * TILE).min(self.row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cover_all_elements_once(
            groups in 1usize..70, rows in 1usize..200, row in 1usize..2000, cost in 1usize..20, along: bool,
        ) {
            let row_use = if along { RowUse::Reduced } else { RowUse::Combined };
            let chunks = Chunks::new([groups, rows, row], row_use, cost);
            let mut seen = vec![0; groups * rows * row];
            for index in 0..chunks.count() {
                let chunk = chunks.chunk(index);
                prop_assert!(chunk.columns.len() <= chunks.max_columns());
                for at in chunk.rows {
                    seen[at * row..][chunk.columns.clone()].iter_mut().for_each(|seen| *seen += 1);
                }
            }
            prop_assert!(seen.iter().all(|&seen| seen == 1));
        }
    }

    #[test]
    fn groups_are_split_first_then_columns_then_rows() {
        let counts = |sizes, row_use| {
            let chunks = Chunks::new(sizes, row_use, 1);
            (chunks.groups.parts, chunks.rows.parts, chunks.columns.parts)
        };
        let most = MAX_CHUNKS * MIN_CHUNK_WORK;
        assert_eq!(counts([most, 1, 1], RowUse::Combined), (MAX_CHUNKS, 1, 1));
        assert_eq!(counts([1, 1, most], RowUse::Reduced), (1, 1, MAX_CHUNKS));
        assert_eq!(counts([1, most / 8, 8], RowUse::Combined), (1, MAX_CHUNKS, 1));
        // Parts of rows are not shorter than a block.
        assert_eq!(counts([1, 5 * BLOCK_ROWS, most / 5 / BLOCK_ROWS], RowUse::Combined).1, 5);
        assert_eq!(counts([1, 16, most / 16], RowUse::Combined), (1, 1, MAX_CHUNKS));
        assert_eq!(counts([2, 8, most / 16], RowUse::Reduced), (2, 8, 4));
        assert_eq!(counts([1, 1, MIN_CHUNK_WORK], RowUse::Reduced), (1, 1, 1));
    }
}
