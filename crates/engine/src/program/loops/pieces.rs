//! Pieces of a loop, which threads share.
//!
//! A loop is `groups` of `rows` of `columns`: the rows of a group go into one result, or into one row of results; without a
//! reduction every row is a group. Groups are shared out first, for their results have nothing to do with each other. Where
//! there are too few, rows that are put together element by element are cut into columns, which do not meet either. What is
//! left is cut although its parts belong to one result: they are reduced apart and put together in their order.
//!
//! The cuts follow from the work alone, and not from the number of threads: neither do the bits of the results.

use std::ops::Range;

use crate::parallel::chunk_range;

use super::reduce::BLOCK_ROWS;
use super::tile::TILE;

/// Work of a piece at least, in loads, stores and cheap operations on vectors of four bytes (some 0.06 ns each): less is not
/// worth a second thread.
const PIECE: usize = if cfg!(test) { 1 << 13 } else { 1 << 17 };

/// Pieces at most: each has a result of its own, and these are put together one after another.
const MOST: usize = 64;

/// A direction of a loop: so many units, in so many shares.
#[derive(Clone, Copy, Debug)]
struct Cut {
    units: usize,
    shares: usize,
}

impl Cut {
    fn new(units: usize, shares: usize) -> Cut {
        Cut { units, shares: shares.min(units).max(1) }
    }

    fn share(self, part: usize) -> Range<usize> {
        chunk_range(self.units, part, self.shares)
    }
}

/// How a loop is cut.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    groups: Cut,
    rows: Cut,
    /// In tiles.
    columns: Cut,
    row: usize,
}

/// A part of the rows of a loop, and of the elements of each.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub number: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// What a reduction does with the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// They become one number.
    Along,
    /// They are put together element by element, or stay what they are.
    Across,
}

impl Pieces {
    /// Cuts `groups` of `rows` of `row` elements, each of which takes `weight` units of work.
    pub fn new([groups, rows, row]: [usize; 3], kind: Rows, weight: usize) -> Pieces {
        let work = [groups, rows, row, weight].into_iter().fold(1, usize::saturating_mul);
        let wanted = (work / PIECE).clamp(1, MOST);
        let by_group = Cut::new(groups, wanted);
        let left = wanted.div_ceil(by_group.shares);
        let tiles = row.div_ceil(TILE);
        let (rows, columns) = match kind {
            Rows::Along => {
                let rows = Cut::new(rows, left);
                (rows, Cut::new(tiles, left.div_ceil(rows.shares)))
            }
            Rows::Across => {
                let columns = Cut::new(tiles, left);
                // The rows of results that are put together are few beside those that go into them.
                let shares = left.div_ceil(columns.shares).min(rows / BLOCK_ROWS);
                (Cut::new(rows, shares), columns)
            }
        };
        Pieces { groups: by_group, rows, columns, row }
    }

    /// All in one piece.
    pub fn uncut(sizes: [usize; 3]) -> Pieces {
        Pieces::new(sizes, Rows::Across, 0)
    }

    pub fn count(&self) -> usize {
        self.groups.shares * self.of_a_group()
    }

    /// Pieces that a group is cut into; only a group that is a share of its own is cut.
    pub fn of_a_group(&self) -> usize {
        self.rows.shares * self.columns.shares
    }

    /// Shares that the rows of a group are cut into.
    pub fn row_shares(&self) -> usize {
        self.rows.shares
    }

    /// The most elements of a row that a piece has.
    pub fn widest(&self) -> usize {
        (self.columns.units.div_ceil(self.columns.shares) * TILE).min(self.row)
    }

    /// Shares of rows before that of a piece.
    pub fn row_share_of(&self, number: usize) -> usize {
        number / self.columns.shares
    }

    pub fn piece(&self, number: usize) -> Piece {
        let (row_share, column_share) = (self.row_share_of(number), number % self.columns.shares);
        let groups = self.groups.share(row_share / self.rows.shares);
        let rows = self.rows.share(row_share % self.rows.shares);
        let begin = groups.start * self.rows.units + rows.start;
        let columns = self.columns.share(column_share);
        Piece {
            number,
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
        fn pieces_cover_all_elements_once(
            groups in 1usize..70, rows in 1usize..200, row in 1usize..2000, weight in 1usize..20, along: bool,
        ) {
            let kind = if along { Rows::Along } else { Rows::Across };
            let pieces = Pieces::new([groups, rows, row], kind, weight);
            let mut seen = vec![0; groups * rows * row];
            for number in 0..pieces.count() {
                let piece = pieces.piece(number);
                prop_assert!(piece.columns.len() <= pieces.widest());
                for at in piece.rows {
                    seen[at * row..][piece.columns.clone()].iter_mut().for_each(|seen| *seen += 1);
                }
            }
            prop_assert!(seen.iter().all(|&seen| seen == 1));
        }
    }

    #[test]
    fn groups_are_cut_first_then_what_does_not_meet() {
        let counts = |sizes, kind| {
            let pieces = Pieces::new(sizes, kind, 1);
            (pieces.groups.shares, pieces.rows.shares, pieces.columns.shares)
        };
        let most = MOST * PIECE;
        assert_eq!(counts([most, 1, 1], Rows::Across), (MOST, 1, 1));
        assert_eq!(counts([1, 1, most], Rows::Along), (1, 1, MOST));
        assert_eq!(counts([1, most / 8, 8], Rows::Across), (1, MOST, 1));
        // No share of rows is shorter than a block.
        assert_eq!(counts([1, 5 * BLOCK_ROWS, most / 5 / BLOCK_ROWS], Rows::Across).1, 5);
        assert_eq!(counts([1, 16, most / 16], Rows::Across), (1, 1, MOST));
        assert_eq!(counts([2, 8, most / 16], Rows::Along), (2, 8, 4));
        assert_eq!(counts([1, 1, PIECE], Rows::Along), (1, 1, 1));
    }
}
