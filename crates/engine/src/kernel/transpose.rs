//! Transposition of row-major matrices.
//!
//! A matrix is processed in tiles of 64 x 64 elements, so that few pages are used at a time, and a tile in blocks of
//! 16 x 16, which are copied to a buffer by rows and from there by columns: every cache line is read and written once, also if
//! rows are a power of two apart and compete for the same lines of a cache.

#![expect(unsafe_code, reason = "several threads write disjoint tiles of one slice")]

use super::SharedSlice;
use crate::parallel::{self, Wake};

/// Side of a block.
const BLOCK: usize = 16;

/// Side of a tile.
const TILE: usize = 64;

/// Smallest number of elements of a parallel task.
const TASK_MIN_LEN: usize = 1 << 15;

/// Computes `out[j, i] = x[i, j]` for `x` of `[rows, columns]`.
///
/// # Panics
/// If a slice does not have `rows * columns` elements.
pub(crate) fn transpose<T: Copy + Default + Send + Sync>(
    x: &[T],
    out: &mut [T],
    rows: usize,
    columns: usize,
) {
    assert!(x.len() == rows * columns && out.len() == x.len(), "a matrix has the wrong length");
    // SAFETY: the tiles of the result are disjoint.
    let out = unsafe { SharedSlice::new(out) };
    let [tile_rows, tile_columns] = [rows.div_ceil(TILE), columns.div_ceil(TILE)];
    let tile_len = rows.min(TILE) * columns.min(TILE);
    let (tiles, task_tiles) = (tile_rows * tile_columns, TASK_MIN_LEN.div_ceil(tile_len.max(1)));
    parallel::for_each_claimed(tiles.div_ceil(task_tiles), Wake::Always, |task| {
        for tile in (task * task_tiles..tiles).take(task_tiles) {
            let (row, column) = (tile % tile_rows * TILE, tile / tile_rows * TILE);
            let (row_end, column_end) = (rows.min(row + TILE), columns.min(column + TILE));
            for row in (row..row_end).step_by(BLOCK) {
                for column in (column..column_end).step_by(BLOCK) {
                    let count = [BLOCK.min(row_end - row), BLOCK.min(column_end - column)];
                    let x = &x[row * columns + column..];
                    if count == [BLOCK; 2] {
                        whole_block(x, columns, &out, column * rows + row, rows);
                    } else {
                        partial_block(x, columns, &out, column * rows + row, rows, count);
                    }
                }
            }
        }
    });
}

/// Transposes a block whose first element is the first of `x`, to `begin`.
fn whole_block<T: Copy + Default>(
    x: &[T],
    columns: usize,
    out: &SharedSlice<'_, T>,
    begin: usize,
    rows: usize,
) {
    let mut block = [[T::default(); BLOCK]; BLOCK];
    for (i, x) in x.chunks(columns).take(BLOCK).enumerate() {
        for (to, &x) in block.iter_mut().zip(&x[..BLOCK]) {
            to[i] = x;
        }
    }
    for (j, block) in block.iter().enumerate() {
        out.write(begin + j * rows, BLOCK).copy_from_slice(block);
    }
}

/// Transposes a block at the edge.
fn partial_block<T: Copy>(
    x: &[T],
    columns: usize,
    out: &SharedSlice<'_, T>,
    begin: usize,
    rows: usize,
    count: [usize; 2],
) {
    for j in 0..count[1] {
        for (to, x) in out.write(begin + j * rows, count[0]).iter_mut().zip(x[j..].iter().step_by(columns)) {
            *to = *x;
        }
    }
}
