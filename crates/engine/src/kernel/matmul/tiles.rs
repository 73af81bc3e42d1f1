//! The product of `f32` matrices in tiles of 6 rows and two vectors of columns that stay in registers.
//!
//! ```text
//! for each block of columns, for each block of depth       what is summed over, 384 at a time
//!     for each block of rows
//!         for each panel of two vectors of columns         packed once: [depth][panel], in the first cache
//!             for each tile of up to 6 rows                one broadcast and two multiply-adds a row and depth
//! ```
//!
//! The first operand is read where it lies if its rows or its columns are contiguous, and packed otherwise; a tile asks for
//! what the next one reads. A single row takes four panels at a time. Rows are shared evenly among
//! tiles (32 are 6 + 6 + 5 + 5 + 5 + 5), because a tile of few rows waits for its own sums. Every element of the result is
//! summed in the same order whatever the blocks of rows and columns are, so parts of a product can be computed by
//! different threads with the same bits.

use std::cell::RefCell;
use std::ops::Range;

use fearless_simd::{Select, Simd, prelude::*};

use super::packing::{pack_panel, pack_rows};
use super::sparse::Lists;
use crate::buffer::Buffer;
use crate::kernel::prefetch_line;
use crate::parallel;

/// Rows of a tile at most.
const TILE_ROWS: usize = 6;

/// What is summed over in one go: with AVX2, a panel of it takes three quarters of a first cache of 32 kB.
pub(super) const DEPTH: usize = 384;

/// Rows of a block: with [`DEPTH`] they take less than a third of a second cache of 512 kB.
pub(super) const ROWS: usize = 96;

/// Columns of a block.
pub(super) const COLUMNS: usize = 512;

/// Panels that a single row is multiplied with together.
const PANELS: usize = 4;

/// Elements of a cache line.
const LINE: usize = 16;

/// Columns of a panel on the widest instruction set; packed matrices have a multiple of it.
pub(super) const WIDEST_PANEL: usize = 32;

/// A matrix that is read: element (i, j) lies at `at + i * strides[0] + j * strides[1]`.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub at: *const f32,
    pub strides: [usize; 2],
}

impl Source {
    pub fn offset(self, row: usize, column: usize) -> Source {
        // The matrix lies in one allocation, and so does the element.
        Source { at: self.at.wrapping_add(row * self.strides[0] + column * self.strides[1]), ..self }
    }
}

/// The second operand of a product.
#[derive(Clone, Copy)]
pub(super) enum Right {
    /// As it lies.
    Plain(Source),
    /// As `packing::pack` has left it.
    Packed(Packed),
}

impl Right {
    /// The same from a column on, the first of a panel.
    pub fn at_column(self, column: usize) -> Right {
        match self {
            Right::Plain(source) => Right::Plain(source.offset(0, column)),
            Right::Packed(packed) => Right::Packed(Packed { first: packed.first + column, ..packed }),
        }
    }
}

/// A matrix as `packing::pack` has left it, from a column on.
#[derive(Clone, Copy)]
pub(super) struct Packed {
    pub at: *const f32,
    /// Columns of the whole matrix.
    pub columns: usize,
    pub first: usize,
    /// Whether it is known that all elements are finite.
    pub is_finite: bool,
}

/// Where a product goes: rows that lie `stride` apart, each contiguous.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub at: *mut f32,
    pub stride: usize,
    /// Whether the product is added to what is there.
    pub accumulate: bool,
    /// What happens to the complete sums.
    pub finish: Finish<f32>,
}

/// What happens to a product when it is complete.
#[derive(Clone, Copy, Debug)]
pub struct Finish<T> {
    /// A number for each column that is added.
    pub bias: Option<*const T>,
    /// Whether what is below zero becomes zero.
    pub relu: bool,
}

// SAFETY: the bias is only read.
unsafe impl<T: Sync> Send for Finish<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Finish<T> {}

impl<T> Finish<T> {
    /// Nothing.
    pub const NONE: Finish<T> = Finish { bias: None, relu: false };

    /// The same from a column on.
    pub fn at_column(self, column: usize) -> Finish<T> {
        Finish { bias: self.bias.map(|bias| bias.wrapping_add(column)), ..self }
    }
}

thread_local! {
    /// Memory for the product that a thread computes, as large as it gets from the first product on.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        panels: Buffer::zeroed(DEPTH * COLUMNS),
        rows: Buffer::zeroed(DEPTH * ROWS),
        lists: Lists::new(),
    });
}

/// Packed panels of the second operand, packed rows of the first, and lists of its elements.
pub(super) struct Scratch {
    pub panels: Buffer<f32>,
    pub rows: Buffer<f32>,
    pub lists: Lists,
}

/// Multiplies `a` [rows, depth] with `b` [depth, columns], by lists of the elements of `a` that are not 0 or by tiles.
///
/// # Safety
/// The elements of all three matrices lie in memory that may be read, and the result in memory that may be written and that
/// nothing else reads or writes meanwhile. The depth is at least 1.
pub(super) unsafe fn multiply(sizes: [usize; 3], a: Source, b: Right, out: Target, by_lists: bool) {
    SCRATCH.with_borrow_mut(|scratch| {
        dispatch!(crate::kernel::level(), simd => {
            let product = Product { simd, sizes, a, b, out };
            // SAFETY: as the caller promises.
            unsafe { if by_lists { product.run_sparse(scratch) } else { product.run(scratch) } }
        });
    });
}

pub(super) struct Product<S> {
    pub simd: S,
    pub sizes: [usize; 3],
    pub a: Source,
    pub b: Right,
    pub out: Target,
}

/// Part of a product: `rows` from `row` on, and `depth` from `from` on.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub row: usize,
    pub rows: usize,
    pub from: usize,
    pub depth: usize,
}

impl<S: Simd> Product<S> {
    pub const PANEL: usize = 2 * S::f32s::LEN;

    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn run(&self, scratch: &mut Scratch) {
        let [rows, columns, depth] = self.sizes;
        for first in (0..columns).step_by(COLUMNS) {
            let last = columns.min(first + COLUMNS);
            for from in (0..depth).step_by(DEPTH) {
                for row in (0..rows).step_by(ROWS) {
                    let block =
                        Block { row, rows: ROWS.min(rows - row), from, depth: DEPTH.min(depth - from) };
                    // SAFETY: the block is a part of the product.
                    unsafe { self.run_block(block, first..last, scratch) };
                }
            }
        }
    }

    /// A block and some columns, by tiles; the first block of rows packs the panels.
    ///
    /// # Safety
    /// As for [`multiply`]; the block and the columns are part of the product.
    #[inline(always)]
    pub unsafe fn run_block(&self, block: Block, columns: Range<usize>, scratch: &mut Scratch) {
        // SAFETY: as the caller promises; the scratch memory has room for the rows of a block.
        let a = unsafe { self.rows(block, &mut scratch.rows) };
        let mut rest = columns.start;
        while block.rows == 1 && rest + PANELS * Self::PANEL <= columns.end {
            let end = rest + PANELS * Self::PANEL;
            // SAFETY: as below; the panels lie behind each other.
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
            // SAFETY: likewise for its columns; the rows are those that were made ready.
            unsafe {
                let panel = self.panel(block, columns.start, column, width, &mut scratch.panels);
                self.column(block, a, panel, column, width);
            }
        }
    }

    /// The rows of a block: as they lie, or packed tile by tile.
    #[inline(always)]
    unsafe fn rows(&self, block: Block, packed: &mut [f32]) -> Rows {
        let source = self.a.offset(block.row, block.from);
        if source.strides[1] == 1 || source.strides[0] == 1 {
            return Rows::Plain(source);
        }
        let packed = &mut packed[..block.rows * block.depth];
        let tiles = block.rows.div_ceil(TILE_ROWS);
        for tile in 0..tiles {
            let share = parallel::share(block.rows, tile, tiles);
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

    /// A panel of the second operand; it is packed for the first block of rows and is there for the others.
    #[inline(always)]
    pub unsafe fn panel(
        &self,
        block: Block,
        first: usize,
        column: usize,
        width: usize,
        panels: &mut [f32],
    ) -> *const f32 {
        if let (Right::Plain(b), 0) = (self.b, block.row) {
            let source = b.offset(block.from, column);
            let panel = &mut panels[(column - first) * block.depth..][..Self::PANEL * block.depth];
            // SAFETY: the columns are columns of the operand, and the panel has room for them.
            unsafe { pack_panel(self.simd, source, block.depth, width, panel.as_mut_ptr()) };
        }
        self.packed_panel(block, first, column, panels)
    }

    /// Where a panel of the second operand is when it is packed.
    #[inline(always)]
    pub fn packed_panel(&self, block: Block, first: usize, column: usize, panels: &[f32]) -> *const f32 {
        match self.b {
            Right::Packed(b) => {
                let padded = b.columns.next_multiple_of(Self::PANEL);
                b.at.wrapping_add(block.from * padded + (b.first + column) * block.depth)
            }
            Right::Plain(_) => panels[(column - first) * block.depth..].as_ptr(),
        }
    }

    /// The only row of a block, in several panels.
    ///
    /// # Safety
    /// The rows are those of the block, [`PANELS`] panels from there on are as deep, and their columns are columns of the
    /// result.
    #[inline(always)]
    unsafe fn wide_row(&self, block: Block, a: Rows, panels: *const f32, column: usize) {
        let row = match a {
            Rows::Plain(source) => source,
            Rows::Packed(at) => Source { at, strides: [1, 1] },
        };
        let out = Target {
            at: self.out.at.wrapping_add(block.row * self.out.stride + column),
            accumulate: self.out.accumulate || block.from > 0,
            finish: self.out.finish.at_column(column),
            ..self.out
        };
        // SAFETY: the row and the panels are as deep as the block, and the columns are columns of the result.
        unsafe {
            row_of_panels(self.simd, block.depth, row, panels, out);
            for panel in 0..PANELS {
                let at = panel * Self::PANEL;
                let out = Target { at: out.at.add(at), finish: out.finish.at_column(at), ..out };
                if block.from + block.depth == self.sizes[2] {
                    finish_rows(self.simd, 1, out, Self::PANEL);
                }
            }
        }
    }

    /// The tiles of a block in one panel.
    #[inline(always)]
    unsafe fn column(&self, block: Block, a: Rows, panel: *const f32, column: usize, width: usize) {
        let tiles = block.rows.div_ceil(TILE_ROWS);
        for i in 0..tiles {
            let share = parallel::share(block.rows, i, tiles);
            let rows = match a {
                Rows::Plain(source) => source.offset(share.start, 0),
                Rows::Packed(at) => {
                    Source { at: at.wrapping_add(share.start * block.depth), strides: [1, share.len()] }
                }
            };
            let out = Target {
                at: self.out.at.wrapping_add((block.row + share.start) * self.out.stride + column),
                accumulate: self.out.accumulate || block.from > 0,
                ..self.out
            };
            // SAFETY: the rows and the panel are as deep as the block, and the tile is a part of the result.
            unsafe {
                if width == Self::PANEL {
                    tile(self.simd, share.len(), block.depth, rows, panel, out);
                } else {
                    part_of_tile(self.simd, share.len(), block.depth, rows, panel, out, width);
                }
            }
            if block.from + block.depth == self.sizes[2] {
                let out = Target { finish: self.out.finish.at_column(column), ..out };
                // SAFETY: the rows of the tile.
                unsafe { finish_rows(self.simd, share.len(), out, width) };
            }
        }
    }
}

/// Rows of a block of the first operand.
#[derive(Clone, Copy)]
enum Rows {
    Plain(Source),
    /// Tile by tile, each [depth][rows of the tile].
    Packed(*const f32),
}

/// A tile of the result: up to six rows of a panel.
///
/// # Safety
/// The rows of the first operand and a panel of the second, both of that depth, may be read; the tile may be written.
#[inline(always)]
unsafe fn tile<S: Simd>(simd: S, count: usize, depth: usize, rows: Source, panel: *const f32, out: Target) {
    // SAFETY: as the caller promises.
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

/// The first columns of a tile, by way of a whole one.
///
/// # Safety
/// As for [`tile`], of which `width` columns may be written.
#[inline(always)]
unsafe fn part_of_tile<S: Simd>(
    simd: S,
    count: usize,
    depth: usize,
    rows: Source,
    panel: *const f32,
    out: Target,
    width: usize,
) {
    let mut whole = [0.0; TILE_ROWS * WIDEST_PANEL];
    let to = Target { at: whole.as_mut_ptr(), stride: WIDEST_PANEL, accumulate: false, ..out };
    // SAFETY: as the caller promises; a tile fits into the array.
    unsafe { tile(simd, count, depth, rows, panel, to) };
    for (i, values) in whole.chunks_exact(WIDEST_PANEL).take(count).enumerate() {
        // SAFETY: a row of the tile.
        let row = unsafe { std::slice::from_raw_parts_mut(out.at.add(i * out.stride), width) };
        for (to, &value) in row.iter_mut().zip(values) {
            *to = if out.accumulate { *to + value } else { value };
        }
    }
}

/// A tile of `M` rows. Nothing but vectors may happen to the sums here: else they leave the registers.
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
        let here = left.min(LINE);
        left -= here;
        // What the next tile reads: the next rows, which lie beside these if the matrix is a transposed one.
        if by_depth == 1 {
            for i in 0..M {
                prefetch_line(a.wrapping_add((M + i) * by_row));
            }
        } else if by_depth >= LINE {
            for i in 0..here {
                prefetch_line(a.wrapping_add(i * by_depth + LINE));
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

/// One row of several panels: enough sums that none waits for itself.
///
/// # Safety
/// The row and the panels, all of that depth, may be read, and as many columns of the result be read and written.
#[inline(always)]
unsafe fn row_of_panels<S: Simd>(simd: S, depth: usize, row: Source, panels: *const f32, out: Target) {
    let lanes = S::f32s::LEN;
    let mut sums = [[S::f32s::splat(simd, 0.0); 2]; PANELS];
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
    // SAFETY: as the caller promises.
    S::f32s::from_slice(simd, unsafe { std::slice::from_raw_parts(at, S::f32s::LEN) })
}

/// # Safety
/// A vector may be written there.
#[inline(always)]
pub(super) unsafe fn store<S: Simd>(_: S, at: *mut f32, value: S::f32s) {
    // SAFETY: as the caller promises.
    value.store_slice(unsafe { std::slice::from_raw_parts_mut(at, S::f32s::LEN) });
}

/// Finishes rows of a panel that have just been stored: they are in the first cache. In registers, before they are stored,
/// it would take the compiler those of the sums.
///
/// # Safety
/// The rows may be written, and the bias, if there is one, be read.
#[inline(always)]
pub(super) unsafe fn finish_rows<S: Simd>(simd: S, rows: usize, out: Target, width: usize) {
    let Some(bias) = out.finish.bias else { return };
    // SAFETY: there is a number for each column.
    let bias = unsafe { std::slice::from_raw_parts(bias, width) };
    let zero = S::f32s::splat(simd, 0.0);
    for i in 0..rows {
        // SAFETY: a row of the panel.
        let row = unsafe { std::slice::from_raw_parts_mut(out.at.add(i * out.stride), width) };
        if width == 2 * S::f32s::LEN {
            for (to, bias) in row.chunks_exact_mut(S::f32s::LEN).zip(bias.chunks_exact(S::f32s::LEN)) {
                let value = S::f32s::from_slice(simd, to) + S::f32s::from_slice(simd, bias);
                let cut = value.simd_lt(zero).select(zero, value);
                (if out.finish.relu { cut } else { value }).store_slice(to);
            }
        } else {
            for (to, &bias) in row.iter_mut().zip(bias) {
                let value = *to + bias;
                *to = if out.finish.relu && value < 0.0 { 0.0 } else { value };
            }
        }
    }
}
