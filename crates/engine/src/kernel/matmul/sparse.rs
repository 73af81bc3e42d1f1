//! The product with a first operand that is half zeros, or more, as rectifiers and their gradients leave it.
//!
//! ```text
//! for each block of columns, for each block of depth        as in `tiles`, with the same panels
//!     for each block of rows
//!         list the elements that are not 0, slice by slice of the depth, row by row
//!         for each group of four panels
//!             for each slice                                 four panels of it lie in the first cache
//!                 for each row                               eight vectors of sums in registers
//!                     for each element of the list           one broadcast and eight multiply-adds
//! ```
//!
//! A tile of the dense product shares what it loads among six rows; here every multiply-add loads an operand of its own,
//! which the first cache delivers almost as fast as the sums take it. The sums are those of the dense product, in the same
//! order: adding `0 * b` changes nothing, unless b is infinite or no number. Blocks with such a b are left to the tiles. Only
//! a sum that has come down to -0, because its products are too small for any number, stays -0 here where the tiles may add
//! 0 to it; which of the two a product takes does not depend on the threads.

use std::ops::Range;

use fearless_simd::{Simd, f32x8, prelude::*};

use super::lists::List;
use super::packing::is_finite;
use super::tiles::{
    Block, COLUMNS, DEPTH, Product, ROWS, Right, Scratch, Source, Target, WIDEST_PANEL, finish_rows, load,
    store,
};
use crate::buffer::Buffer;
use crate::simd::transpose::{BLOCK, transpose_block};

/// Panels that are multiplied together: two vectors of sums each.
const TOGETHER: usize = 4;

/// Columns of a panel on the narrowest instruction set, whose slices are the deepest.
const NARROWEST_PANEL: usize = 8;

/// Sides of products that are worth a look.
const LEAST: [usize; 3] = [16, 64, 32];

/// Elements in a row and in a column of the sample.
const SAMPLE: usize = 16;

/// Elements of a sample of 256 that are not 0, at most: with more the tiles are faster.
const MOST_OF_SAMPLE: usize = 144;

/// Memory of a thread for such products.
pub(super) struct Lists {
    /// A value's place is where the row of the second operand begins that it is multiplied with, in elements from the
    /// begin of a panel.
    entries: List,
    /// Where the entries of a row in a slice begin, slice by slice, and where the last ones end.
    begins: Vec<usize>,
    /// Sums of a block of rows and a group of panels.
    sums: Buffer<f32>,
    /// A slice of rows that do not lie in rows.
    turned: Buffer<f32>,
}

impl Lists {
    /// Room for a block of rows.
    pub fn new() -> Lists {
        Lists {
            entries: List::new(ROWS * DEPTH),
            begins: Vec::with_capacity(ROWS * DEPTH.div_ceil(slice(WIDEST_PANEL)) + 1),
            sums: Buffer::zeroed(ROWS * TOGETHER * WIDEST_PANEL),
            turned: Buffer::zeroed(ROWS * slice(NARROWEST_PANEL)),
        }
    }
}

/// Depth of which four panels take three quarters of a first cache of 32 kB.
const fn slice(panel: usize) -> usize {
    1536 / panel
}

/// Whether a product of such sizes, with this first operand, is better computed here, by a sample of its elements.
///
/// # Safety
/// The elements of the operand may be read.
pub(super) unsafe fn is_worth(sizes: [usize; 3], a: Source) -> bool {
    let [rows, _, depth] = sizes;
    if sizes.iter().zip(LEAST).any(|(&size, least)| size < least) {
        return false;
    }
    let places = (0..SAMPLE * SAMPLE).map(|i| (i / SAMPLE, i % SAMPLE));
    let filled = places.filter(|&(i, j)| {
        // Every row of the sample has other columns.
        let at = a.offset(i * rows / SAMPLE, (j * depth / SAMPLE + 7 * i) % depth).at;
        // SAFETY: an element of the operand.
        unsafe { *at != 0.0 }
    });
    filled.count() <= MOST_OF_SAMPLE
}

impl<S: Simd> Product<S> {
    const SLICE: usize = slice(Self::PANEL);

    /// The product by lists of elements.
    ///
    /// # Safety
    /// As for `multiply`.
    #[inline(always)]
    pub(super) unsafe fn run_sparse(&self, scratch: &mut Scratch) {
        let [rows, columns, depth] = self.sizes;
        for first in (0..columns).step_by(COLUMNS) {
            let here = first..columns.min(first + COLUMNS);
            for from in (0..depth).step_by(DEPTH) {
                let depth = DEPTH.min(depth - from);
                let block = |row: usize| Block { row, rows: ROWS.min(rows - row), from, depth };
                // SAFETY: the columns and the depth are those of a part of the product.
                let is_finite = unsafe { self.pack_panels(block(0), here.clone(), &mut scratch.panels) };
                for block in (0..rows).step_by(ROWS).map(block) {
                    // SAFETY: the block is a part of the product, and its panels are packed.
                    unsafe {
                        if is_finite {
                            self.list(block, &mut scratch.lists);
                            self.multiply_lists(block, here.clone(), scratch);
                        } else {
                            self.run_block(block, here.clone(), scratch);
                        }
                    }
                }
            }
        }
    }

    /// Packs the panels of some columns, as the first block of rows does; whether all their elements are finite.
    #[inline(always)]
    unsafe fn pack_panels(&self, block: Block, columns: Range<usize>, panels: &mut [f32]) -> bool {
        if let Right::Packed(packed) = self.b {
            return packed.is_finite;
        }
        let mut finite = true;
        for column in columns.clone().step_by(Self::PANEL) {
            let width = Self::PANEL.min(columns.end - column);
            // SAFETY: as the caller promises; a packed panel is as deep as the block.
            finite &= unsafe {
                let panel = self.panel(block, columns.start, column, width, panels);
                is_finite(self.simd, std::slice::from_raw_parts(panel, Self::PANEL * block.depth))
            };
        }
        finite
    }

    /// Lists the elements of a block of rows that are not 0.
    #[inline(always)]
    unsafe fn list(&self, block: Block, lists: &mut Lists) {
        let Lists { entries, begins, turned, .. } = lists;
        begins.clear();
        entries.len = 0;
        for slice in (0..block.depth).step_by(Self::SLICE) {
            let len = Self::SLICE.min(block.depth - slice);
            let mut source = self.a.offset(block.row, block.from + slice);
            if source.strides[1] != 1 {
                // SAFETY: rows of the operand.
                unsafe { turn(self.simd, source, block.rows, len, turned) };
                source = Source { at: turned.as_ptr(), strides: [len, 1] };
            }
            for row in 0..block.rows {
                begins.push(entries.len);
                // SAFETY: a part of a row of the operand.
                let row = unsafe { std::slice::from_raw_parts(source.offset(row, 0).at, len) };
                entries.add(row, (slice * Self::PANEL) as u32, Self::PANEL as u32);
            }
        }
        begins.push(entries.len);
    }

    /// Multiplies the listed elements of a block of rows with the panels of some columns.
    #[inline(always)]
    unsafe fn multiply_lists(&self, block: Block, columns: Range<usize>, scratch: &mut Scratch) {
        let Scratch { panels, lists, .. } = scratch;
        for begin in columns.clone().step_by(TOGETHER * Self::PANEL) {
            let here = begin..columns.end.min(begin + TOGETHER * Self::PANEL);
            let mut group = [std::ptr::null(); TOGETHER];
            for (panel, column) in group.iter_mut().zip(here.clone().step_by(Self::PANEL)) {
                *panel = self.packed_panel(block, columns.start, column, panels);
            }
            // SAFETY: the places of the entries are rows of the panels, which are as deep as the block.
            unsafe {
                match here.len().div_ceil(Self::PANEL) {
                    1 => self.multiply_group::<1>(block, here, group, lists),
                    2 => self.multiply_group::<2>(block, here, group, lists),
                    3 => self.multiply_group::<3>(block, here, group, lists),
                    _ => self.multiply_group::<TOGETHER>(block, here, group, lists),
                }
            }
        }
    }

    /// The sums of all rows of a block over all slices, for `P` panels that hold some columns.
    ///
    /// # Safety
    /// The columns are columns of the result, and the place of every entry is a row of the panels.
    #[inline(always)]
    unsafe fn multiply_group<const P: usize>(
        &self,
        block: Block,
        columns: Range<usize>,
        panels: [*const f32; TOGETHER],
        lists: &mut Lists,
    ) {
        let (width, accumulate) = (P * Self::PANEL, self.out.accumulate || block.from > 0);
        let out = self.out.at.wrapping_add(block.row * self.out.stride + columns.start);
        let slices = block.depth.div_ceil(Self::SLICE);
        for slice in 0..slices {
            for row in 0..block.rows {
                let i = slice * block.rows + row;
                let entries = lists.begins[i]..lists.begins[i + 1];
                let (values, places) =
                    (&lists.entries.values[entries.clone()], &lists.entries.places[entries]);
                let sums = lists.sums[row * width..][..width].as_mut_ptr();
                let before = if slice > 0 { sums.cast_const() } else { std::ptr::null() };
                let result = out.wrapping_add(row * self.out.stride);
                // SAFETY: the sums of a row have room for the panels, and so has the row of the result where no panel
                // reaches beyond its columns.
                unsafe {
                    if slice + 1 < slices {
                        add_row::<S, P>(self.simd, values, places, panels, [before, std::ptr::null()], sums);
                    } else if columns.len() == width {
                        let after = if accumulate { result.cast_const() } else { std::ptr::null() };
                        add_row::<S, P>(self.simd, values, places, panels, [before, after], result);
                    } else {
                        add_row::<S, P>(self.simd, values, places, panels, [before, std::ptr::null()], sums);
                        for j in 0..columns.len() {
                            let to = &mut *result.add(j);
                            *to = if accumulate { *to + *sums.add(j) } else { *sums.add(j) };
                        }
                    }
                }
            }
        }
        if block.from + block.depth < self.sizes[2] {
            return;
        }
        for column in columns.clone().step_by(Self::PANEL) {
            let at = out.wrapping_add(column - columns.start);
            let out = Target { at, finish: self.out.finish.at_column(column), ..self.out };
            // SAFETY: the rows of the block.
            unsafe { finish_rows(self.simd, block.rows, out, Self::PANEL.min(columns.end - column)) };
        }
    }
}

/// Adds the products of the elements of a row with `P` panels: to the sums `before`, in order, and those to what was there
/// `after`. Where a pointer is null, there is nothing.
///
/// # Safety
/// Every place is a row of the panels. Two vectors for every panel may be read at the pointers and written to `to`.
#[inline(always)]
unsafe fn add_row<S: Simd, const P: usize>(
    simd: S,
    values: &[f32],
    places: &[u32],
    panels: [*const f32; TOGETHER],
    [before, after]: [*const f32; 2],
    to: *mut f32,
) {
    let lanes = S::f32s::LEN;
    let mut sums = [[S::f32s::splat(simd, 0.0); 2]; P];
    if !before.is_null() {
        for (p, [left, right]) in sums.iter_mut().enumerate() {
            // SAFETY: there are two vectors for every panel.
            unsafe {
                *left = load(simd, before.add(2 * p * lanes));
                *right = load(simd, before.add((2 * p + 1) * lanes));
            }
        }
    }
    for (&value, &place) in values.iter().zip(places) {
        let (x, place) = (S::f32s::splat(simd, value), place as usize);
        for (panel, [left, right]) in panels.iter().zip(&mut sums) {
            // SAFETY: a row of a panel.
            unsafe {
                *left = x.mul_add(load(simd, panel.add(place)), *left);
                *right = x.mul_add(load(simd, panel.add(place + lanes)), *right);
            }
        }
    }
    if !after.is_null() {
        for (p, [left, right]) in sums.iter_mut().enumerate() {
            // SAFETY: as above.
            unsafe {
                *left = load(simd, after.add(2 * p * lanes)) + *left;
                *right = load(simd, after.add((2 * p + 1) * lanes)) + *right;
            }
        }
    }
    for (p, [left, right]) in sums.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe {
            store(simd, to.add(2 * p * lanes), left);
            store(simd, to.add((2 * p + 1) * lanes), right);
        }
    }
}
/// Copies some rows of a matrix, [rows][len].
///
/// # Safety
/// The elements may be read.
#[inline(always)]
unsafe fn turn<S: Simd>(simd: S, source: Source, rows: usize, len: usize, to: &mut [f32]) {
    let to = &mut to[..rows * len];
    let whole = if source.strides[0] == 1 { [rows - rows % BLOCK, len - len % BLOCK] } else { [0; 2] };
    for (row, k) in
        (0..whole[0]).step_by(BLOCK).flat_map(|row| (0..whole[1]).step_by(BLOCK).map(move |k| (row, k)))
    {
        let mut block = [f32x8::splat(simd, 0.0); BLOCK];
        for (j, values) in block.iter_mut().enumerate() {
            let at = source.offset(row, k + j).at;
            // SAFETY: eight elements that lie behind each other.
            *values = f32x8::from_slice(simd, unsafe { std::slice::from_raw_parts(at, BLOCK) });
        }
        for (i, values) in transpose_block(simd, block).iter().enumerate() {
            values.store_slice(&mut to[(row + i) * len + k..][..BLOCK]);
        }
    }
    for (row, to) in to.chunks_exact_mut(len).enumerate() {
        let first = if row < whole[0] { whole[1] } else { 0 };
        for (k, to) in to.iter_mut().enumerate().skip(first) {
            // SAFETY: an element of the rows.
            *to = unsafe { *source.offset(row, k).at };
        }
    }
}
