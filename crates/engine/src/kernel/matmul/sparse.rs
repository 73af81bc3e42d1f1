//! GEMM with a first operand of which about half the elements are zeros, such as ReLU activations and their gradients.
//!
//! ```text
//! for each block of columns, for each block of depth        as in `tiles`, with the same panels
//!     for each block of rows
//!         compact the nonzero elements, slice by slice of the depth, row by row
//!         for each group of four panels
//!             for each slice                                 four panels of it fit into the first-level cache
//!                 for each row                               eight vectors of sums in registers
//!                     for each nonzero element               one broadcast and eight multiply-adds
//! ```
//!
//! A tile of the dense GEMM reuses every load for six rows; here every multiply-add has a load of its own, which the
//! first-level cache delivers almost at the rate of the multiply-adds. The sums are those of the dense GEMM, in the same
//! order: adding `0 * b` changes nothing unless b is infinite or NaN, and blocks with such a b are left to the tiles. The
//! only exception is a sum that underflows to -0: it stays -0 here, where the tiles may add 0 to it. Which kernel computes
//! a result does not depend on the number of threads.

use std::ops::Range;

use fearless_simd::{Simd, f32x8, prelude::*};

use super::nonzeros::Nonzeros;
use super::packing::is_finite;
use super::tiles::{
    BLOCK_COLUMNS, BLOCK_DEPTH, BLOCK_ROWS, Block, BlockedGemm, MAX_PANEL, Rhs, Scratch, Source, Target,
    apply_epilogue_to_rows, load, store,
};
use crate::buffer::Buffer;
use crate::simd::transpose::{BLOCK, transpose_block};

/// Panels that are multiplied at a time, with two vectors of sums each.
const GROUP_PANELS: usize = 4;

/// Columns of a panel with the narrowest vectors, whose slices are the deepest.
const MIN_PANEL: usize = 8;

/// Smallest rows, columns and depth for which sparsity is considered.
const MIN_SIZES: [usize; 3] = [16, 64, 32];

/// Rows and columns of the sample by which the density is estimated.
const SAMPLE_SIDE: usize = 16;

/// Largest number of nonzero elements in a sample of 256 for which this kernel is faster than the tiles.
const MAX_SAMPLE_NONZEROS: usize = 144;

/// Scratch memory of a thread.
pub(super) struct SparseScratch {
    /// The nonzero elements. The index of a value is the offset within a panel of the row that it is multiplied with.
    entries: Nonzeros,
    /// Start of the entries of each row in each slice, slice by slice, and the end of the last ones.
    begins: Vec<usize>,
    /// Sums of a block of rows and a group of panels.
    sums: Buffer<f32>,
    /// Slice of rows of a transposed operand.
    transposed: Buffer<f32>,
}

impl SparseScratch {
    /// Allocates room for a block of rows.
    pub fn new() -> SparseScratch {
        SparseScratch {
            entries: Nonzeros::new(BLOCK_ROWS * BLOCK_DEPTH),
            begins: Vec::with_capacity(BLOCK_ROWS * BLOCK_DEPTH.div_ceil(slice(MAX_PANEL)) + 1),
            sums: Buffer::zeroed(BLOCK_ROWS * GROUP_PANELS * MAX_PANEL),
            transposed: Buffer::zeroed(BLOCK_ROWS * slice(MIN_PANEL)),
        }
    }
}

/// Returns the depth at which four panels take three quarters of a first-level cache of 32 kB.
const fn slice(panel: usize) -> usize {
    1536 / panel
}

/// Returns whether this kernel is faster than the tiles, by a sample of the first operand.
///
/// # Safety
/// The elements of the operand may be read.
pub(super) unsafe fn is_profitable(sizes: [usize; 3], a: Source) -> bool {
    let [rows, _, depth] = sizes;
    if sizes.iter().zip(MIN_SIZES).any(|(&size, least)| size < least) {
        return false;
    }
    let indices = (0..SAMPLE_SIDE * SAMPLE_SIDE).map(|i| (i / SAMPLE_SIDE, i % SAMPLE_SIDE));
    let filled = indices.filter(|&(i, j)| {
        // The sampled columns differ from row to row.
        let at = a.offset(i * rows / SAMPLE_SIDE, (j * depth / SAMPLE_SIDE + 7 * i) % depth).at;
        // SAFETY: an element of the operand.
        unsafe { *at != 0.0 }
    });
    filled.count() <= MAX_SAMPLE_NONZEROS
}

impl<S: Simd> BlockedGemm<S> {
    const SLICE: usize = slice(Self::PANEL);

    /// Multiplies by the nonzero elements of the first operand.
    ///
    /// # Safety
    /// Same as for `multiply`.
    #[inline(always)]
    pub(super) unsafe fn run_sparse(&self, scratch: &mut Scratch) {
        let [rows, columns, depth] = self.sizes;
        for first in (0..columns).step_by(BLOCK_COLUMNS) {
            let here = first..columns.min(first + BLOCK_COLUMNS);
            for from in (0..depth).step_by(BLOCK_DEPTH) {
                let depth = BLOCK_DEPTH.min(depth - from);
                let block = |row: usize| Block { row, rows: BLOCK_ROWS.min(rows - row), from, depth };
                // SAFETY: the columns and the depth are a part of the multiplication.
                let is_finite = unsafe { self.pack_panels(block(0), here.clone(), &mut scratch.panels) };
                for block in (0..rows).step_by(BLOCK_ROWS).map(block) {
                    // SAFETY: the block is a part of the multiplication, and its panels are packed.
                    unsafe {
                        if is_finite {
                            self.compact(block, &mut scratch.sparse);
                            self.multiply_nonzeros(block, here.clone(), scratch);
                        } else {
                            self.run_block(block, here.clone(), scratch);
                        }
                    }
                }
            }
        }
    }

    /// Packs the panels of some columns, and returns whether all their elements are finite.
    #[inline(always)]
    unsafe fn pack_panels(&self, block: Block, columns: Range<usize>, panels: &mut [f32]) -> bool {
        if let Rhs::Packed(packed) = self.b {
            return packed.is_finite;
        }
        let mut finite = true;
        for column in columns.clone().step_by(Self::PANEL) {
            let width = Self::PANEL.min(columns.end - column);
            // SAFETY: guaranteed by the caller; a packed panel has the depth of the block.
            finite &= unsafe {
                let panel = self.panel(block, columns.start, column, width, panels);
                is_finite(self.simd, std::slice::from_raw_parts(panel, Self::PANEL * block.depth))
            };
        }
        finite
    }

    /// Compacts the nonzero elements of a block of rows.
    #[inline(always)]
    unsafe fn compact(&self, block: Block, sparse: &mut SparseScratch) {
        let SparseScratch { entries, begins, transposed, .. } = sparse;
        begins.clear();
        entries.len = 0;
        for slice in (0..block.depth).step_by(Self::SLICE) {
            let len = Self::SLICE.min(block.depth - slice);
            let mut source = self.a.offset(block.row, block.from + slice);
            if source.strides[1] != 1 {
                // SAFETY: rows of the operand.
                unsafe { transpose_rows(self.simd, source, block.rows, len, transposed) };
                source = Source { at: transposed.as_ptr(), strides: [len, 1] };
            }
            for row in 0..block.rows {
                begins.push(entries.len);
                // SAFETY: a slice of a row of the operand.
                let row = unsafe { std::slice::from_raw_parts(source.offset(row, 0).at, len) };
                entries.add(row, (slice * Self::PANEL) as u32, Self::PANEL as u32);
            }
        }
        begins.push(entries.len);
    }

    /// Multiplies the nonzero elements of a block of rows with the panels of some columns.
    #[inline(always)]
    unsafe fn multiply_nonzeros(&self, block: Block, columns: Range<usize>, scratch: &mut Scratch) {
        let Scratch { panels, sparse, .. } = scratch;
        for begin in columns.clone().step_by(GROUP_PANELS * Self::PANEL) {
            let here = begin..columns.end.min(begin + GROUP_PANELS * Self::PANEL);
            let mut group = [std::ptr::null(); GROUP_PANELS];
            for (panel, column) in group.iter_mut().zip(here.clone().step_by(Self::PANEL)) {
                *panel = self.packed_panel(block, columns.start, column, panels);
            }
            // SAFETY: the indices of the entries are rows of the panels, which have the depth of the block.
            unsafe {
                match here.len().div_ceil(Self::PANEL) {
                    1 => self.multiply_group::<1>(block, here, group, sparse),
                    2 => self.multiply_group::<2>(block, here, group, sparse),
                    3 => self.multiply_group::<3>(block, here, group, sparse),
                    _ => self.multiply_group::<GROUP_PANELS>(block, here, group, sparse),
                }
            }
        }
    }

    /// Computes the sums of all rows of a block over all slices, for `P` panels of some columns.
    ///
    /// # Safety
    /// The columns are columns of the result, and the index of every entry is a row of the panels.
    #[inline(always)]
    unsafe fn multiply_group<const P: usize>(
        &self,
        block: Block,
        columns: Range<usize>,
        panels: [*const f32; GROUP_PANELS],
        sparse: &mut SparseScratch,
    ) {
        let (width, accumulate) = (P * Self::PANEL, self.out.accumulate || block.from > 0);
        let out = self.out.at.wrapping_add(block.row * self.out.stride + columns.start);
        let slices = block.depth.div_ceil(Self::SLICE);
        for slice in 0..slices {
            for row in 0..block.rows {
                let i = slice * block.rows + row;
                let entries = sparse.begins[i]..sparse.begins[i + 1];
                let (values, indices) =
                    (&sparse.entries.values[entries.clone()], &sparse.entries.indices[entries]);
                let sums = sparse.sums[row * width..][..width].as_mut_ptr();
                let before = if slice > 0 { sums.cast_const() } else { std::ptr::null() };
                let result = out.wrapping_add(row * self.out.stride);
                // SAFETY: the sums of a row have room for the panels, and so has the row of the result if no panel exceeds
                // its columns.
                unsafe {
                    if slice + 1 < slices {
                        add_row::<S, P>(self.simd, values, indices, panels, [before, std::ptr::null()], sums);
                    } else if columns.len() == width {
                        let after = if accumulate { result.cast_const() } else { std::ptr::null() };
                        add_row::<S, P>(self.simd, values, indices, panels, [before, after], result);
                    } else {
                        add_row::<S, P>(self.simd, values, indices, panels, [before, std::ptr::null()], sums);
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
            let out = Target { at, epilogue: self.out.epilogue.at_column(column), ..self.out };
            // SAFETY: the rows of the block.
            unsafe {
                apply_epilogue_to_rows(self.simd, block.rows, out, Self::PANEL.min(columns.end - column));
            };
        }
    }
}

/// Adds the products of the elements of a row and `P` panels to the sums at `before`, in order, and these to the elements
/// at `after`. A null pointer stands for zeros.
///
/// # Safety
/// Every index is a row of the panels. Two vectors per panel may be read at the pointers and written to `to`.
#[inline(always)]
unsafe fn add_row<S: Simd, const P: usize>(
    simd: S,
    values: &[f32],
    indices: &[u32],
    panels: [*const f32; GROUP_PANELS],
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
    for (&value, &index) in values.iter().zip(indices) {
        let (x, index) = (S::f32s::splat(simd, value), index as usize);
        for (panel, [left, right]) in panels.iter().zip(&mut sums) {
            // SAFETY: a row of a panel.
            unsafe {
                *left = x.mul_add(load(simd, panel.add(index)), *left);
                *right = x.mul_add(load(simd, panel.add(index + lanes)), *right);
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

/// Copies rows of a transposed matrix to [rows][len].
///
/// # Safety
/// The elements may be read.
#[inline(always)]
unsafe fn transpose_rows<S: Simd>(simd: S, source: Source, rows: usize, len: usize, to: &mut [f32]) {
    let to = &mut to[..rows * len];
    let whole = if source.strides[0] == 1 { [rows - rows % BLOCK, len - len % BLOCK] } else { [0; 2] };
    for (row, k) in
        (0..whole[0]).step_by(BLOCK).flat_map(|row| (0..whole[1]).step_by(BLOCK).map(move |k| (row, k)))
    {
        let mut block = [f32x8::splat(simd, 0.0); BLOCK];
        for (j, values) in block.iter_mut().enumerate() {
            let at = source.offset(row, k + j).at;
            // SAFETY: eight contiguous elements.
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
