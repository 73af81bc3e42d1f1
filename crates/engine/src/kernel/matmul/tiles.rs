//! GEMM of `f32` matrices with a micro-kernel of 6 rows by two vectors of columns, which stay in registers.
//!
//! ```text
//! for each block of columns, for each block of depth       384 of the depth at a time
//!     for each block of rows
//!         for each panel of two vectors of columns         packed once: [depth][panel], in the first-level cache
//!             for each tile of up to 6 rows                one broadcast and two multiply-adds per row and depth
//! ```
//!
//! The first operand is read in place if its rows or its columns are contiguous, and packed otherwise; a tile prefetches
//! the rows of the next one. A single row is multiplied with four panels at a time. Rows are distributed evenly among tiles
//! (32 are 6 + 6 + 5 + 5 + 5 + 5), because a tile of few rows is limited by the latency of its additions. The order
//! of the sums does not depend on the blocks of rows and columns, so threads can compute chunks of a result with the same
//! bits.

use std::cell::RefCell;
use std::ops::Range;

use fearless_simd::{Select, Simd, prelude::*};

use super::packing::{pack_panel, pack_rows};
use super::sparse::SparseScratch;
use crate::buffer::Buffer;
use crate::kernel::half::{Half, widen};
use crate::kernel::prefetch_line;
use crate::parallel;

/// Largest number of rows of a tile.
const TILE_ROWS: usize = 6;

/// Depth of a block: with AVX2, a panel takes three quarters of a first-level cache of 32 kB.
pub(super) const BLOCK_DEPTH: usize = 384;

/// Rows of a block: with [`BLOCK_DEPTH`] they take less than a third of a second-level cache of 512 kB.
pub(super) const BLOCK_ROWS: usize = 96;

/// Columns of a block.
pub(super) const BLOCK_COLUMNS: usize = 512;

/// Panels that a single row is multiplied with at a time.
const ROW_PANELS: usize = 4;

/// Elements of a cache line.
const CACHE_LINE: usize = 16;

/// Columns of a panel with the widest vectors; the columns of packed matrices are padded to a multiple of it.
pub(super) const MAX_PANEL: usize = 32;

/// Matrix that is read: element (i, j) is at `at + i * strides[0] + j * strides[1]`.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub at: *const f32,
    pub strides: [usize; 2],
}

impl Source {
    pub fn offset(self, row: usize, column: usize) -> Source {
        // The matrix is within one allocation, and so is the element.
        Source { at: self.at.wrapping_add(row * self.strides[0] + column * self.strides[1]), ..self }
    }
}

/// Second operand of a multiplication.
#[derive(Clone, Copy)]
pub(super) enum Rhs {
    /// Read in place.
    Unpacked(Source),
    /// Packed by `packing::pack`.
    Packed(Packed<f32>),
    /// Packed likewise, in half precision. Panels are expanded before they are used.
    Half(Packed<u16>),
}

impl Rhs {
    /// Returns the operand without the columns before `column`, the first one of a panel.
    pub fn at_column(self, column: usize) -> Rhs {
        match self {
            Rhs::Unpacked(source) => Rhs::Unpacked(source.offset(0, column)),
            Rhs::Packed(packed) => Rhs::Packed(Packed { first: packed.first + column, ..packed }),
            Rhs::Half(packed) => Rhs::Half(Packed { first: packed.first + column, ..packed }),
        }
    }
}

/// Matrix that was packed by `packing::pack`, without the columns before `first`.
#[derive(Clone, Copy)]
pub(super) struct Packed<T> {
    pub at: *const T,
    /// Columns of the whole matrix.
    pub columns: usize,
    pub first: usize,
    /// Whether all elements are known to be finite.
    pub is_finite: bool,
}

impl<T> Packed<T> {
    /// Returns the address of the panel of a column, the first one of a panel, in a block of `depth` rows from row `from` on.
    pub fn panel(&self, from: usize, depth: usize, column: usize, panel: usize) -> *const T {
        let padded = self.columns.next_multiple_of(panel);
        self.at.wrapping_add(from * padded + (self.first + column) * depth)
    }
}

/// Result of a multiplication: contiguous rows with a stride.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub at: *mut f32,
    pub stride: usize,
    /// Whether the product is added to the result instead of replacing it.
    pub accumulate: bool,
    /// Applied to the complete sums.
    pub epilogue: EpiloguePtr<f32>,
}

/// Epilogue of a multiplication, with a pointer to the bias.
#[derive(Clone, Copy, Debug)]
pub struct EpiloguePtr<T> {
    /// Bias, one element per column.
    pub bias: Option<*const T>,
    /// Whether ReLU is applied after the bias.
    pub relu: bool,
}

// SAFETY: the bias is only read.
unsafe impl<T: Sync> Send for EpiloguePtr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for EpiloguePtr<T> {}

impl<T> EpiloguePtr<T> {
    /// No epilogue.
    pub const NONE: EpiloguePtr<T> = EpiloguePtr { bias: None, relu: false };

    /// Returns the epilogue without the columns before `column`.
    pub fn at_column(self, column: usize) -> EpiloguePtr<T> {
        EpiloguePtr { bias: self.bias.map(|bias| bias.wrapping_add(column)), ..self }
    }
}

thread_local! {
    /// Packing buffers of a thread, allocated by its first multiplication.
    pub(super) static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        panels: Buffer::zeroed(BLOCK_DEPTH * BLOCK_COLUMNS),
        rows: Buffer::zeroed(BLOCK_DEPTH * BLOCK_ROWS),
        sparse: SparseScratch::new(),
    });
}

/// Packed panels of the second operand, packed rows of the first, and its nonzero elements.
pub(super) struct Scratch {
    pub panels: Buffer<f32>,
    pub rows: Buffer<f32>,
    pub sparse: SparseScratch,
}

/// Multiplies `a` [rows, depth] with `b` [depth, columns], by tiles or by the nonzero elements of `a`.
///
/// # Safety
/// The three matrices may be read, and the result may be written; nothing else accesses the result meanwhile. The depth is
/// at least 1.
pub(super) unsafe fn multiply(sizes: [usize; 3], a: Source, b: Rhs, out: Target, is_sparse: bool) {
    SCRATCH.with_borrow_mut(|scratch| {
        dispatch!(crate::kernel::level(), simd => {
            let product = BlockedGemm { simd, sizes, a, b, out };
            // SAFETY: guaranteed by the caller.
            unsafe { if is_sparse { product.run_sparse(scratch) } else { product.run(scratch) } }
        });
    });
}

pub(super) struct BlockedGemm<S> {
    pub simd: S,
    pub sizes: [usize; 3],
    pub a: Source,
    pub b: Rhs,
    pub out: Target,
}

/// Block of a multiplication: `rows` from `row` on, and `depth` from `from` on.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub row: usize,
    pub rows: usize,
    pub from: usize,
    pub depth: usize,
}

impl<S: Simd> BlockedGemm<S> {
    pub const PANEL: usize = 2 * S::f32s::LEN;

    /// # Safety
    /// Same as for [`multiply`].
    #[inline(always)]
    unsafe fn run(&self, scratch: &mut Scratch) {
        let [rows, columns, depth] = self.sizes;
        for first in (0..columns).step_by(BLOCK_COLUMNS) {
            let last = columns.min(first + BLOCK_COLUMNS);
            for from in (0..depth).step_by(BLOCK_DEPTH) {
                for row in (0..rows).step_by(BLOCK_ROWS) {
                    let block = Block {
                        row,
                        rows: BLOCK_ROWS.min(rows - row),
                        from,
                        depth: BLOCK_DEPTH.min(depth - from),
                    };
                    // SAFETY: the block is a part of the multiplication.
                    unsafe { self.run_block(block, first..last, scratch) };
                }
            }
        }
    }

    /// Computes a block of some columns by tiles; the first block of rows packs the panels.
    ///
    /// # Safety
    /// Same as for [`multiply`]; the block and the columns are part of the multiplication.
    #[inline(always)]
    pub unsafe fn run_block(&self, block: Block, columns: Range<usize>, scratch: &mut Scratch) {
        // SAFETY: guaranteed by the caller; the scratch memory has room for the rows of a block.
        let a = unsafe { self.rows(block, &mut scratch.rows) };
        let mut rest = columns.start;
        while block.rows == 1 && rest + ROW_PANELS * Self::PANEL <= columns.end {
            let end = rest + ROW_PANELS * Self::PANEL;
            // SAFETY: as below; the panels are contiguous.
            unsafe {
                for column in (rest..end).step_by(Self::PANEL) {
                    self.panel(block, columns.start, column, Self::PANEL, &mut scratch.panels);
                }
                let panels = self.packed_panel(block, columns.start, rest, &scratch.panels);
                self.wide_row(block, a, panels, rest);
            }
            rest = end;
        }
        for column in (rest..columns.end).step_by(Self::PANEL) {
            let width = Self::PANEL.min(columns.end - column);
            // SAFETY: the panel is within the columns; the rows are those of the block.
            unsafe {
                let panel = self.panel(block, columns.start, column, width, &mut scratch.panels);
                self.column(block, a, panel, column, width);
            }
        }
    }

    /// Returns the rows of a block: in place, or packed tile by tile.
    #[inline(always)]
    unsafe fn rows(&self, block: Block, packed: &mut [f32]) -> Rows {
        let source = self.a.offset(block.row, block.from);
        if source.strides[1] == 1 || source.strides[0] == 1 {
            return Rows::Unpacked(source);
        }
        let packed = &mut packed[..block.rows * block.depth];
        let tiles = block.rows.div_ceil(TILE_ROWS);
        for tile in 0..tiles {
            let share = parallel::chunk_range(block.rows, tile, tiles);
            let to = &mut packed[share.start * block.depth..share.end * block.depth];
            // SAFETY: the rows of the tile are rows of the block.
            unsafe {
                match share.len() {
                    1 => pack_rows::<1>(source.offset(share.start, 0), to),
                    2 => pack_rows::<2>(source.offset(share.start, 0), to),
                    3 => pack_rows::<3>(source.offset(share.start, 0), to),
                    4 => pack_rows::<4>(source.offset(share.start, 0), to),
                    5 => pack_rows::<5>(source.offset(share.start, 0), to),
                    _ => pack_rows::<6>(source.offset(share.start, 0), to),
                }
            }
        }
        Rows::Packed(packed.as_ptr())
    }

    /// Returns a panel of the second operand, and packs it for the first block of rows.
    #[inline(always)]
    pub unsafe fn panel(
        &self,
        block: Block,
        first: usize,
        column: usize,
        width: usize,
        panels: &mut [f32],
    ) -> *const f32 {
        if block.row == 0 && !matches!(self.b, Rhs::Packed(_)) {
            let panel = &mut panels[(column - first) * block.depth..][..Self::PANEL * block.depth];
            match self.b {
                Rhs::Unpacked(b) => {
                    let source = b.offset(block.from, column);
                    // SAFETY: the columns are columns of the operand, and the panel has room for them.
                    unsafe { pack_panel(self.simd, source, block.depth, width, panel.as_mut_ptr()) };
                }
                Rhs::Half(b) => {
                    let halves = b.panel(block.from, block.depth, column, Self::PANEL);
                    // SAFETY: a packed panel of the depth of the block.
                    widen(Half::F16, unsafe { std::slice::from_raw_parts(halves, panel.len()) }, panel);
                }
                Rhs::Packed(_) => {}
            }
        }
        self.packed_panel(block, first, column, panels)
    }

    /// Returns the address of a packed panel of the second operand.
    #[inline(always)]
    pub fn packed_panel(&self, block: Block, first: usize, column: usize, panels: &[f32]) -> *const f32 {
        match self.b {
            Rhs::Packed(b) => b.panel(block.from, block.depth, column, Self::PANEL),
            Rhs::Unpacked(_) | Rhs::Half(_) => panels[(column - first) * block.depth..].as_ptr(),
        }
    }

    /// Computes the only row of a block in several panels.
    ///
    /// # Safety
    /// The row is that of the block, [`ROW_PANELS`] consecutive panels have its depth, and their columns are columns of the
    /// result.
    #[inline(always)]
    unsafe fn wide_row(&self, block: Block, a: Rows, panels: *const f32, column: usize) {
        let row = match a {
            Rows::Unpacked(source) => source,
            Rows::Packed(at) => Source { at, strides: [1, 1] },
        };
        let out = Target {
            at: self.out.at.wrapping_add(block.row * self.out.stride + column),
            accumulate: self.out.accumulate || block.from > 0,
            epilogue: self.out.epilogue.at_column(column),
            ..self.out
        };
        // SAFETY: the row and the panels have the depth of the block, and the columns are columns of the result.
        unsafe {
            row_of_panels(self.simd, block.depth, row, panels, out);
            for panel in 0..ROW_PANELS {
                let at = panel * Self::PANEL;
                let out = Target { at: out.at.add(at), epilogue: out.epilogue.at_column(at), ..out };
                if block.from + block.depth == self.sizes[2] {
                    apply_epilogue_to_rows(self.simd, 1, out, Self::PANEL);
                }
            }
        }
    }

    /// Computes the tiles of a block in one panel.
    #[inline(always)]
    unsafe fn column(&self, block: Block, a: Rows, panel: *const f32, column: usize, width: usize) {
        let tiles = block.rows.div_ceil(TILE_ROWS);
        for i in 0..tiles {
            let share = parallel::chunk_range(block.rows, i, tiles);
            let rows = match a {
                Rows::Unpacked(source) => source.offset(share.start, 0),
                Rows::Packed(at) => {
                    Source { at: at.wrapping_add(share.start * block.depth), strides: [1, share.len()] }
                }
            };
            let out = Target {
                at: self.out.at.wrapping_add((block.row + share.start) * self.out.stride + column),
                accumulate: self.out.accumulate || block.from > 0,
                ..self.out
            };
            // SAFETY: the rows and the panel have the depth of the block, and the tile is a part of the result.
            unsafe {
                if width == Self::PANEL {
                    tile(self.simd, share.len(), block.depth, rows, panel, out);
                } else {
                    partial_tile(self.simd, share.len(), block.depth, rows, panel, out, width);
                }
            }
            if block.from + block.depth == self.sizes[2] {
                let out = Target { epilogue: self.out.epilogue.at_column(column), ..out };
                // SAFETY: the rows of the tile.
                unsafe { apply_epilogue_to_rows(self.simd, share.len(), out, width) };
            }
        }
    }
}

/// Rows of a block of the first operand.
#[derive(Clone, Copy)]
enum Rows {
    Unpacked(Source),
    /// Tile by tile, each [depth][rows of the tile].
    Packed(*const f32),
}

/// Computes a tile of the result: up to six rows of a panel.
///
/// # Safety
/// The rows of the first operand and a panel of the second, both of that depth, may be read; the tile may be written.
#[inline(always)]
unsafe fn tile<S: Simd>(simd: S, count: usize, depth: usize, rows: Source, panel: *const f32, out: Target) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => tile_of::<S, 1>(simd, depth, rows, panel, out),
            2 => tile_of::<S, 2>(simd, depth, rows, panel, out),
            3 => tile_of::<S, 3>(simd, depth, rows, panel, out),
            4 => tile_of::<S, 4>(simd, depth, rows, panel, out),
            5 => tile_of::<S, 5>(simd, depth, rows, panel, out),
            _ => tile_of::<S, 6>(simd, depth, rows, panel, out),
        }
    }
}

/// Computes the first columns of a tile through a buffer of the whole tile.
///
/// # Safety
/// Same as for [`tile`], of which `width` columns may be written.
#[inline(always)]
unsafe fn partial_tile<S: Simd>(
    simd: S,
    count: usize,
    depth: usize,
    rows: Source,
    panel: *const f32,
    out: Target,
    width: usize,
) {
    let mut whole = [0.0; TILE_ROWS * MAX_PANEL];
    let to = Target { at: whole.as_mut_ptr(), stride: MAX_PANEL, accumulate: false, ..out };
    // SAFETY: guaranteed by the caller; a tile fits into the array.
    unsafe { tile(simd, count, depth, rows, panel, to) };
    for (i, values) in whole.chunks_exact(MAX_PANEL).take(count).enumerate() {
        // SAFETY: a row of the tile.
        let row = unsafe { std::slice::from_raw_parts_mut(out.at.add(i * out.stride), width) };
        for (to, &value) in row.iter_mut().zip(values) {
            *to = if out.accumulate { *to + value } else { value };
        }
    }
}

/// Micro-kernel of `M` rows. Only vector operations may touch the sums here, or the compiler spills them.
#[inline(always)]
unsafe fn tile_of<S: Simd, const M: usize>(
    simd: S,
    depth: usize,
    rows: Source,
    panel: *const f32,
    out: Target,
) {
    let lanes = S::f32s::LEN;
    let mut sums = [[S::f32s::splat(simd, 0.0); 2]; M];
    let [by_row, by_depth] = rows.strides;
    let (mut a, mut b) = (rows.at, panel);
    let mut left = depth;
    while left > 0 {
        let here = left.min(CACHE_LINE);
        left -= here;
        // Prefetches the rows of the next tile, which are adjacent to these if the matrix is transposed.
        if by_depth == 1 {
            for i in 0..M {
                prefetch_line(a.wrapping_add((M + i) * by_row));
            }
        } else if by_depth >= CACHE_LINE {
            for i in 0..here {
                prefetch_line(a.wrapping_add(i * by_depth + CACHE_LINE));
            }
        }
        for _ in 0..here {
            // SAFETY: a row of the panel, and elements of the rows.
            unsafe {
                let (low, high) = (load(simd, b), load(simd, b.add(lanes)));
                for (i, [left, right]) in sums.iter_mut().enumerate() {
                    let x = S::f32s::splat(simd, *a.add(i * by_row));
                    *left = x.mul_add(low, *left);
                    *right = x.mul_add(high, *right);
                }
            }
            a = a.wrapping_add(by_depth);
            b = b.wrapping_add(2 * lanes);
        }
    }
    // SAFETY: rows of the tile.
    unsafe {
        if out.accumulate {
            for (i, sums) in sums.iter_mut().enumerate() {
                let row = out.at.add(i * out.stride);
                *sums = [load(simd, row) + sums[0], load(simd, row.add(lanes)) + sums[1]];
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let row = out.at.add(i * out.stride);
            store(simd, row, sums[0]);
            store(simd, row.add(lanes), sums[1]);
        }
    }
}

/// Computes one row of several panels: enough independent sums to hide the latency of the additions.
///
/// # Safety
/// The row and the panels, all of that depth, may be read, and as many columns of the result may be read and written.
#[inline(always)]
unsafe fn row_of_panels<S: Simd>(simd: S, depth: usize, row: Source, panels: *const f32, out: Target) {
    let lanes = S::f32s::LEN;
    let mut sums = [[S::f32s::splat(simd, 0.0); 2]; ROW_PANELS];
    for k in 0..depth {
        // SAFETY: an element of the row, and rows of the panels.
        unsafe {
            let x = S::f32s::splat(simd, *row.at.add(k * row.strides[1]));
            for (i, [left, right]) in sums.iter_mut().enumerate() {
                let b = panels.add((i * depth + k) * 2 * lanes);
                *left = x.mul_add(load(simd, b), *left);
                *right = x.mul_add(load(simd, b.add(lanes)), *right);
            }
        }
    }
    for (i, [left, right]) in sums.into_iter().enumerate() {
        // SAFETY: columns of the result.
        unsafe {
            let to = out.at.add(2 * i * lanes);
            let [left, right] = if out.accumulate {
                [load(simd, to) + left, load(simd, to.add(lanes)) + right]
            } else {
                [left, right]
            };
            store(simd, to, left);
            store(simd, to.add(lanes), right);
        }
    }
}

/// # Safety
/// A vector may be read there.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(simd: S, at: *const f32) -> S::f32s {
    // SAFETY: guaranteed by the caller.
    S::f32s::from_slice(simd, unsafe { std::slice::from_raw_parts(at, S::f32s::LEN) })
}

/// # Safety
/// A vector may be written there.
#[inline(always)]
pub(super) unsafe fn store<S: Simd>(_: S, at: *mut f32, value: S::f32s) {
    // SAFETY: guaranteed by the caller.
    value.store_slice(unsafe { std::slice::from_raw_parts_mut(at, S::f32s::LEN) });
}

/// Applies the epilogue to rows of a panel that have just been stored and are in the first-level cache. Applying it to the
/// registers before the stores would make the compiler spill the sums.
///
/// # Safety
/// The rows may be written, and the bias, if there is one, may be read.
#[inline(always)]
pub(super) unsafe fn apply_epilogue_to_rows<S: Simd>(simd: S, rows: usize, out: Target, width: usize) {
    let Some(bias) = out.epilogue.bias else { return };
    // SAFETY: the bias has an element for each column.
    let bias = unsafe { std::slice::from_raw_parts(bias, width) };
    let zero = S::f32s::splat(simd, 0.0);
    for i in 0..rows {
        // SAFETY: a row of the panel.
        let row = unsafe { std::slice::from_raw_parts_mut(out.at.add(i * out.stride), width) };
        if width == 2 * S::f32s::LEN {
            for (to, bias) in row.chunks_exact_mut(S::f32s::LEN).zip(bias.chunks_exact(S::f32s::LEN)) {
                let value = S::f32s::from_slice(simd, to) + S::f32s::from_slice(simd, bias);
                let cut = value.simd_lt(zero).select(zero, value);
                (if out.epilogue.relu { cut } else { value }).store_slice(to);
            }
        } else {
            for (to, &bias) in row.iter_mut().zip(bias) {
                let value = *to + bias;
                *to = if out.epilogue.relu && value < 0.0 { 0.0 } else { value };
            }
        }
    }
}
