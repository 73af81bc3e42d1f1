//! GEMM of any element type and any strides: `f64`, integers, and `f32` where neither the rows nor the columns of the result
//! are contiguous. Integers wrap on overflow: the result is exact modulo 2^32 or 2^64.
//!
//! ```text
//! for each block of depth, for each block of columns        panels of two vectors of columns, packed
//!     for each block of rows                                tiles of up to 6 rows, packed: [depth][row]
//!         for each panel                                    in the first-level cache
//!             for each tile                                 one broadcast and two multiply-adds per row and depth
//! ```
//!
//! The longer axis of the result goes along the lanes. Packing does not pay for a few rows or columns: see `dots` and `few_rows`.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use super::{Bases, Gemm, dots, few_rows};
use crate::dtype::Element;
use crate::kernel::level;
use crate::parallel;

/// Largest number of rows of a tile.
const TILE_ROWS: usize = 6;

/// Vectors of a panel.
const PANEL_VECTORS: usize = 2;

/// Depth of a block.
const BLOCK_DEPTH: usize = 256;

/// Rows of a block, a multiple of [`TILE_ROWS`]: packed, they take a quarter of a second-level cache of 512 kB.
const BLOCK_ROWS: usize = 60;

/// Columns of a block, a multiple of all panels.
const BLOCK_COLUMNS: usize = 512;

/// Threads share the columns of a result in multiples of this.
const CHUNK_COLUMNS: usize = 32;

/// Matrix that is read: element (i, j) is at `at + i * strides[0] + j * strides[1]`.
#[derive(Clone, Copy)]
pub(super) struct Source<T> {
    pub at: *const T,
    pub strides: [usize; 2],
}

impl<T: Copy> Source<T> {
    fn transposed(self) -> Source<T> {
        Source { strides: [self.strides[1], self.strides[0]], ..self }
    }

    pub fn pointer(&self, row: usize, column: usize) -> *const T {
        self.at.wrapping_add(row * self.strides[0] + column * self.strides[1])
    }

    /// # Safety
    /// The element may be read.
    #[inline(always)]
    pub unsafe fn get(&self, row: usize, column: usize) -> T {
        // SAFETY: guaranteed by the caller.
        unsafe { *self.pointer(row, column) }
    }
}

/// A multiplication of which the columns of the result go along the lanes.
#[derive(Clone, Copy)]
pub(super) struct Product<T> {
    /// Rows and columns of the result, and depth.
    pub sizes: [usize; 3],
    pub a: Source<T>,
    pub b: Source<T>,
    pub out: *mut T,
    pub strides: [usize; 2],
    pub accumulate: bool,
}

// SAFETY: threads compute disjoint chunks of the result, and nothing else is written.
unsafe impl<T: Send> Send for Product<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Product<T> {}

/// Multiplies matrices. The order of a sum does not depend on the number of threads.
///
/// # Safety
/// Same as for [`super::multiply_at`]; no size is 0.
pub(super) unsafe fn multiply<T: Element>(bases: Bases<T>, gemm: &Gemm, threads: bool) {
    let Gemm { sizes: [m, n, k], a, b, out: (out, strides), accumulate } = *gemm;
    let a = Source { at: bases.a.wrapping_add(a.0), strides: a.1 };
    let b = Source { at: bases.b.wrapping_add(b.0), strides: b.1 };
    let mut product =
        Product { sizes: [m, n, k], a, b, out: bases.out.wrapping_add(out), strides, accumulate };
    // SAFETY: guaranteed by the caller.
    if unsafe { dots::multiply(product, threads) } {
        return;
    }
    // Short rows would leave lanes empty, and scattered columns need a store for each lane.
    let is_wide = |columns: usize, stride: usize| (columns >= 32, stride == 1, columns);
    if is_wide(m, strides[0]) > is_wide(n, strides[1]) {
        product = product.transposed();
    }
    let has_few_rows = few_rows::applies(&product);
    let chunks = if threads { parallel::threads() } else { 1 };
    parallel::for_each_index(chunks, |chunk| {
        let part = product.chunk(chunk, chunks);
        // SAFETY: guaranteed by the caller; the chunks of a result are disjoint.
        dispatch!(level(), simd => unsafe {
            if has_few_rows { part.few_rows(simd) } else { part.run(simd) }
        });
    });
}

impl<T: Element> Product<T> {
    /// Returns the multiplication of the transposed matrices, which has the transposed result.
    pub fn transposed(self) -> Self {
        let ([m, n, k], [by_row, by_column]) = (self.sizes, self.strides);
        let (a, b) = (self.b.transposed(), self.a.transposed());
        Self { sizes: [n, m, k], a, b, strides: [by_column, by_row], ..self }
    }

    /// Returns some rows of the result, or some columns if there are more.
    fn chunk(self, chunk: usize, chunks: usize) -> Self {
        let [m, n, k] = self.sizes;
        if m > n {
            let rows = parallel::chunk_range(m, chunk, chunks);
            let a = Source { at: self.a.pointer(rows.start, 0), ..self.a };
            let out = self.out.wrapping_add(rows.start * self.strides[0]);
            return Self { sizes: [rows.len(), n, k], a, out, ..self };
        }
        let panels = parallel::chunk_range(n.div_ceil(CHUNK_COLUMNS), chunk, chunks);
        let [begin, end] = [panels.start, panels.end].map(|panel| n.min(panel * CHUNK_COLUMNS));
        let b = Source { at: self.b.pointer(0, begin), ..self.b };
        let out = self.out.wrapping_add(begin * self.strides[1]);
        Self { sizes: [m, end - begin, k], b, out, ..self }
    }

    /// # Safety
    /// Same as for [`multiply`].
    #[inline(always)]
    unsafe fn run<S: Simd>(self, simd: S) {
        let [m, n, k] = self.sizes;
        let panel = PANEL_VECTORS * T::Vector::<S>::LEN;
        let columns = n.min(BLOCK_COLUMNS).next_multiple_of(panel);
        let mut panels = vec![T::ZERO; k.min(BLOCK_DEPTH) * columns];
        let mut rows = vec![T::ZERO; k.min(BLOCK_DEPTH) * m.min(BLOCK_ROWS)];
        for from in (0..k).step_by(BLOCK_DEPTH) {
            let depth = from..k.min(from + BLOCK_DEPTH);
            for first in (0..n).step_by(BLOCK_COLUMNS) {
                let columns = first..n.min(first + BLOCK_COLUMNS);
                for (i, column) in columns.clone().step_by(panel).enumerate() {
                    let to = &mut panels[i * depth.len() * panel..];
                    let columns = column..columns.end.min(column + panel);
                    // SAFETY: guaranteed by the caller; columns and depth are those of the second operand.
                    unsafe { self.pack_panel(to, depth.clone(), columns, panel) };
                }
                for row in (0..m).step_by(BLOCK_ROWS) {
                    let block = row..m.min(row + BLOCK_ROWS);
                    // SAFETY: guaranteed by the caller; rows, columns and depth are those of the matrices.
                    unsafe {
                        self.pack_rows(&mut rows, depth.clone(), block.clone());
                        self.block(simd, &rows, &panels, depth.clone(), block, columns.clone());
                    }
                }
            }
        }
    }

    /// Multiplies a packed block of rows with packed panels.
    ///
    /// # Safety
    /// The block of the result may be read and written, and nothing else accesses it.
    #[inline(always)]
    unsafe fn block<S: Simd>(
        &self,
        simd: S,
        rows: &[T],
        panels: &[T],
        depth: Range<usize>,
        block: Range<usize>,
        columns: Range<usize>,
    ) {
        let panel = PANEL_VECTORS * T::Vector::<S>::LEN;
        let accumulate = self.accumulate || depth.start > 0;
        for (column, b) in columns.clone().step_by(panel).zip(panels.chunks_exact(depth.len() * panel)) {
            for row in block.clone().step_by(TILE_ROWS) {
                let len = panel.min(columns.end - column);
                let to = Tile { product: self, row, column, len, accumulate };
                let count = TILE_ROWS.min(block.end - row);
                let rows = &rows[(row - block.start) * depth.len()..][..count * depth.len()];
                // SAFETY: guaranteed by the caller; the tile is a part of the block.
                unsafe {
                    match count {
                        1 => to.compute::<S, 1>(simd, rows, b),
                        2 => to.compute::<S, 2>(simd, rows, b),
                        3 => to.compute::<S, 3>(simd, rows, b),
                        4 => to.compute::<S, 4>(simd, rows, b),
                        5 => to.compute::<S, 5>(simd, rows, b),
                        _ => to.compute::<S, TILE_ROWS>(simd, rows, b),
                    }
                }
            }
        }
    }

    /// Packs some columns of the second operand as [depth][panel], padded with zeros.
    ///
    /// # Safety
    /// The elements may be read.
    #[inline(always)]
    unsafe fn pack_panel(&self, to: &mut [T], depth: Range<usize>, columns: Range<usize>, panel: usize) {
        for (to, l) in to.chunks_exact_mut(panel).zip(depth) {
            let (to, padding) = to.split_at_mut(columns.len());
            if self.b.strides[1] == 1 {
                // SAFETY: guaranteed by the caller; the columns are contiguous.
                to.copy_from_slice(unsafe {
                    std::slice::from_raw_parts(self.b.pointer(l, columns.start), columns.len())
                });
            } else {
                for (to, j) in to.iter_mut().zip(columns.clone()) {
                    // SAFETY: guaranteed by the caller.
                    *to = unsafe { self.b.get(l, j) };
                }
            }
            padding.fill(T::ZERO);
        }
    }

    /// Packs a block of rows of the first operand, tile by tile, as [depth][row of the tile].
    ///
    /// # Safety
    /// The elements may be read.
    #[inline(always)]
    unsafe fn pack_rows(&self, to: &mut [T], depth: Range<usize>, block: Range<usize>) {
        for (row, to) in block.clone().step_by(TILE_ROWS).zip(to.chunks_mut(TILE_ROWS * depth.len())) {
            let count = TILE_ROWS.min(block.end - row);
            for (to, l) in to.chunks_exact_mut(count).zip(depth.clone()) {
                for (i, to) in to.iter_mut().enumerate() {
                    // SAFETY: guaranteed by the caller.
                    *to = unsafe { self.a.get(row + i, l) };
                }
            }
        }
    }
}

/// Tile of a result: its first row and column, its number of columns, and whether the product is added to it.
struct Tile<'a, T> {
    product: &'a Product<T>,
    row: usize,
    column: usize,
    len: usize,
    accumulate: bool,
}

impl<T: Element> Tile<'_, T> {
    /// Multiplies `R` packed rows with a packed panel.
    ///
    /// # Safety
    /// The tile may be read and written, and nothing else accesses it.
    #[inline(always)]
    unsafe fn compute<S: Simd, const R: usize>(&self, simd: S, rows: &[T], b: &[T]) {
        let lanes = T::Vector::<S>::LEN;
        let mut sums = [[T::Vector::<S>::splat(simd, T::ZERO); PANEL_VECTORS]; R];
        let (rows, _) = rows.as_chunks::<R>();
        for (rows, b) in rows.iter().zip(b.chunks_exact(PANEL_VECTORS * lanes)) {
            let b0 = T::Vector::<S>::from_slice(simd, &b[..lanes]);
            let b1 = T::Vector::<S>::from_slice(simd, &b[lanes..2 * lanes]);
            for i in 0..R {
                let a = T::Vector::<S>::splat(simd, rows[i]);
                sums[i][0] = T::multiply_add::<S>(a, b0, sums[i][0]);
                sums[i][1] = T::multiply_add::<S>(a, b1, sums[i][1]);
            }
        }
        let Product { out, strides, .. } = *self.product;
        for (i, sums) in sums.iter().enumerate() {
            let row = out.wrapping_add((self.row + i) * strides[0] + self.column * strides[1]);
            for (v, &sum) in sums.iter().enumerate() {
                let begin = v * lanes;
                let count = self.len.saturating_sub(begin).min(lanes);
                if count == lanes && strides[1] == 1 {
                    // SAFETY: a vector of the tile.
                    let to = unsafe { std::slice::from_raw_parts_mut(row.add(begin), lanes) };
                    let sum = if self.accumulate { sum + T::Vector::<S>::from_slice(simd, to) } else { sum };
                    sum.store_slice(to);
                    continue;
                }
                for (j, &sum) in sum.as_slice()[..count].iter().enumerate() {
                    // SAFETY: an element of the tile.
                    unsafe {
                        let to = row.add((begin + j) * strides[1]);
                        *to = if self.accumulate { T::plus(*to, sum) } else { sum };
                    }
                }
            }
        }
    }
}
