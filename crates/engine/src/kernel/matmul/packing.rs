//! Packing of operands into the order in which the micro-kernels read them.

use fearless_simd::{Simd, f32x8, prelude::*};

use super::tiles::{BLOCK_DEPTH, MAX_PANEL, Source};
use crate::simd::transpose::{BLOCK, transpose_block};

/// Returns the number of elements of a packed matrix.
pub(super) fn packed_len(depth: usize, columns: usize) -> usize {
    depth * columns.next_multiple_of(MAX_PANEL)
}

/// Returns the columns of a panel with the vectors of this processor.
pub(super) fn panel_columns() -> usize {
    fn of<S: Simd>(_: S) -> usize {
        2 * S::f32s::LEN
    }
    dispatch!(crate::kernel::level(), simd => of(simd))
}

/// Returns the index of an element of a packed matrix of `[depth, columns]`.
pub(super) fn element_index(row: usize, column: usize, [depth, columns]: [usize; 2], panel: usize) -> usize {
    let from = row - row % BLOCK_DEPTH;
    let here = BLOCK_DEPTH.min(depth - from);
    from * columns.next_multiple_of(panel)
        + column / panel * panel * here
        + (row - from) * panel
        + column % panel
}

/// Packs a second operand, and returns whether all of its elements are finite.
///
/// # Safety
/// The `depth` times `columns` elements of the source may be read, and [`packed_len`] elements may be written to `to`.
pub(super) unsafe fn pack(source: Source, depth: usize, columns: usize, to: *mut f32) -> bool {
    dispatch!(crate::kernel::level(), simd => {
        // SAFETY: guaranteed by the caller.
        unsafe { pack_all(simd, source, depth, columns, to) }
    })
}

#[inline(always)]
unsafe fn pack_all<S: Simd>(simd: S, source: Source, depth: usize, columns: usize, to: *mut f32) -> bool {
    let panel = 2 * S::f32s::LEN;
    let padded = columns.next_multiple_of(panel);
    let mut finite = true;
    for from in (0..depth).step_by(BLOCK_DEPTH) {
        let here = BLOCK_DEPTH.min(depth - from);
        for column in (0..columns).step_by(panel) {
            // SAFETY: the panels of `here` rows are contiguous; the elements of the source are in bounds.
            unsafe {
                let to = to.add(from * padded + column * here);
                pack_panel(simd, source.offset(from, column), here, panel.min(columns - column), to);
                finite &= is_finite(simd, std::slice::from_raw_parts(to, here * panel));
            }
        }
    }
    finite
}

/// Returns whether all elements of a packed panel are finite.
#[inline(always)]
pub(super) fn is_finite<S: Simd>(simd: S, panel: &[f32]) -> bool {
    let zero = S::f32s::splat(simd, 0.0);
    let mut sums = [zero; 4];
    for (i, x) in panel.chunks_exact(S::f32s::LEN).enumerate() {
        // 0 times infinity or NaN is NaN, which propagates.
        sums[i % 4] = S::f32s::from_slice(simd, x).mul_add(zero, sums[i % 4]);
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).simd_eq(zero).all_true()
}

/// Packs a tile of rows, [depth][rows].
///
/// # Safety
/// `M` rows with as many columns as `to` has room for may be read.
#[inline(always)]
pub(super) unsafe fn pack_rows<const M: usize>(source: Source, to: &mut [f32]) {
    for (column, to) in to.as_chunks_mut::<M>().0.iter_mut().enumerate() {
        let at = source.offset(0, column).at;
        for (row, to) in to.iter_mut().enumerate() {
            // SAFETY: an element of the rows.
            *to = unsafe { *at.add(row * source.strides[0]) };
        }
    }
}

/// Packs up to a panel of columns as [depth][panel], padded with zeros.
///
/// # Safety
/// The columns may be read, and a panel of that depth may be written.
#[inline(always)]
pub(super) unsafe fn pack_panel<S: Simd>(
    simd: S,
    source: Source,
    depth: usize,
    columns: usize,
    to: *mut f32,
) {
    let panel = 2 * S::f32s::LEN;
    // SAFETY: rows of the panel and, below, elements of the columns.
    let row = |i: usize| unsafe { std::slice::from_raw_parts_mut(to.add(i * panel), panel) };
    if columns == panel && source.strides[1] == 1 {
        for i in 0..depth {
            let (low, high) = row(i).split_at_mut(S::f32s::LEN);
            // SAFETY: a row of the columns.
            let from = unsafe { std::slice::from_raw_parts(source.offset(i, 0).at, panel) };
            S::f32s::from_slice(simd, &from[..S::f32s::LEN]).store_slice(low);
            S::f32s::from_slice(simd, &from[S::f32s::LEN..]).store_slice(high);
        }
    } else if columns == panel && source.strides[0] == 1 {
        for column in (0..panel).step_by(BLOCK) {
            let whole = depth - depth % BLOCK;
            for i in (0..whole).step_by(BLOCK) {
                let mut block = [f32x8::splat(simd, 0.0); BLOCK];
                for (j, values) in block.iter_mut().enumerate() {
                    let at = source.offset(i, column + j).at;
                    // SAFETY: eight elements of a column.
                    *values = f32x8::from_slice(simd, unsafe { std::slice::from_raw_parts(at, BLOCK) });
                }
                for (j, values) in transpose_block(simd, block).iter().enumerate() {
                    values.store_slice(&mut row(i + j)[column..column + BLOCK]);
                }
            }
            for i in whole..depth {
                for (j, to) in row(i)[column..column + BLOCK].iter_mut().enumerate() {
                    // SAFETY: an element of the columns.
                    *to = unsafe { *source.offset(i, column + j).at };
                }
            }
        }
    } else {
        for i in 0..depth {
            for (j, to) in row(i).iter_mut().enumerate() {
                // SAFETY: an element of the columns.
                *to = if j < columns { unsafe { *source.offset(i, j).at } } else { 0.0 };
            }
        }
    }
}
