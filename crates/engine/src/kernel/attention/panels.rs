//! GEMM of small matrices that are in the caches, with a second operand in panels of one or two vectors of columns.
//!
//! ```text
//! for each tile of up to 6 rows
//!     for each panel                     [depth][panel], contiguous
//!         for each element of the depth  one broadcast and two multiply-adds per row
//! ```

use fearless_simd::{Simd, prelude::*};

use super::super::math::{Real, Vector};
use crate::parallel;

/// Largest number of rows of a tile: their sums fill the registers of AVX2.
const TILE_ROWS: usize = 6;

/// Returns the columns of a panel.
pub(super) const fn panel<S: Simd, T: Real>() -> usize {
    2 * Vector::<S, T>::LEN
}

/// Returns the columns of the panels of a narrow matrix: those of a panel, or half of them if the last vector would be
/// padding only.
pub(super) const fn narrow_panel<S: Simd, T: Real>(columns: usize) -> usize {
    let lanes = Vector::<S, T>::LEN;
    if columns.div_ceil(lanes).is_multiple_of(2) { 2 * lanes } else { lanes }
}

/// Multiplication of rows with panels.
#[derive(Clone, Copy)]
pub(super) struct PanelGemm<T> {
    /// Rows of the result.
    pub rows: usize,
    /// Panels of the result.
    pub panels: usize,
    /// Columns of a panel: one or two vectors.
    pub panel: usize,
    /// Length of the sums.
    pub depth: usize,
    /// The first operand.
    pub a: Rows<T>,
    /// First panel of the second operand, and the stride of the panels.
    pub b: (*const T, usize),
    /// The result, its row stride and its panel stride.
    pub out: (*mut T, [usize; 2]),
    /// Whether the product is added to the result instead of replacing it.
    pub accumulate: bool,
}

/// Rows of a matrix whose elements are in groups: element (i, g * group + j) is at
/// `at + i * by_row + g * by_group + j * by_depth`.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    pub at: *const T,
    pub by_row: usize,
    pub by_depth: usize,
    pub group: usize,
    pub by_group: usize,
}

impl<T> Rows<T> {
    /// Creates the rows of a matrix with two strides.
    pub fn strided(at: *const T, by_row: usize, by_depth: usize) -> Rows<T> {
        Rows { at, by_row, by_depth, group: usize::MAX, by_group: 0 }
    }
}

/// Multiplies. Not inlined, so that the tiles are compiled once per instruction set and type.
///
/// # Safety
/// The rows and the panels, both of the depth, may be read, and `panels` panels of each row of the result may be written;
/// the result aliases neither.
#[inline(never)]
pub(super) unsafe fn multiply<S: Simd, T: Real>(simd: S, gemm: &PanelGemm<T>) {
    simd.vectorize(
        #[inline(always)]
        || {
            let (tiles, panel_of_two) = (gemm.rows.div_ceil(TILE_ROWS), panel::<S, T>());
            for i in 0..tiles {
                let share = parallel::chunk_range(gemm.rows, i, tiles);
                for panel in 0..gemm.panels {
                    // SAFETY: guaranteed by the caller, for a tile of the result.
                    unsafe {
                        if gemm.panel == panel_of_two {
                            tile::<S, T, 2>(simd, gemm, share.start, share.len(), panel);
                        } else {
                            tile::<S, T, 1>(simd, gemm, share.start, share.len(), panel);
                        }
                    }
                }
            }
        },
    );
}

/// Computes one tile: `count` rows from `first` on, in one panel of `W` vectors.
///
/// # Safety
/// Same as for [`multiply`].
#[inline(always)]
unsafe fn tile<S: Simd, T: Real, const W: usize>(
    simd: S,
    gemm: &PanelGemm<T>,
    first: usize,
    count: usize,
    panel: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => tile_of::<S, T, 1, W>(simd, gemm, first, panel),
            2 => tile_of::<S, T, 2, W>(simd, gemm, first, panel),
            3 => tile_of::<S, T, 3, W>(simd, gemm, first, panel),
            4 => tile_of::<S, T, 4, W>(simd, gemm, first, panel),
            5 => tile_of::<S, T, 5, W>(simd, gemm, first, panel),
            _ => tile_of::<S, T, 6, W>(simd, gemm, first, panel),
        }
    }
}

/// Micro-kernel of `M` rows. Only vector operations may touch the sums here, or the compiler spills them.
#[inline(always)]
unsafe fn tile_of<S: Simd, T: Real, const M: usize, const W: usize>(
    simd: S,
    gemm: &PanelGemm<T>,
    first: usize,
    panel: usize,
) {
    let lanes = Vector::<S, T>::LEN;
    let mut sums = [[Vector::<S, T>::splat(simd, T::ZERO); W]; M];
    let Rows { at, by_row, by_depth, group, by_group } = gemm.a;
    let mut begin = at.wrapping_add(first * by_row);
    let mut b = gemm.b.0.wrapping_add(panel * gemm.b.1);
    let mut left = gemm.depth;
    while left > 0 {
        let here = group.min(left);
        let mut a = begin;
        for _ in 0..here {
            // SAFETY: a row of the panel, and elements of the rows.
            unsafe {
                let mut columns = [Vector::<S, T>::splat(simd, T::ZERO); W];
                for (w, columns) in columns.iter_mut().enumerate() {
                    *columns = load::<S, T>(simd, b.add(w * lanes));
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let x = Vector::<S, T>::splat(simd, *a.add(i * by_row));
                    for (sum, &columns) in sums.iter_mut().zip(&columns) {
                        *sum = x.mul_add(columns, *sum);
                    }
                }
            }
            a = a.wrapping_add(by_depth);
            b = b.wrapping_add(W * lanes);
        }
        begin = begin.wrapping_add(by_group);
        left -= here;
    }
    let (out, [out_row, out_panel]) = gemm.out;
    let out = out.wrapping_add(first * out_row + panel * out_panel);
    // SAFETY: rows of the tile.
    unsafe {
        if gemm.accumulate {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (w, sum) in sums.iter_mut().enumerate() {
                    *sum = load::<S, T>(simd, out.add(i * out_row + w * lanes)) + *sum;
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (w, &sum) in sums.iter().enumerate() {
                store::<S, T>(out.add(i * out_row + w * lanes), sum);
            }
        }
    }
}

/// # Safety
/// A vector may be read there.
#[inline(always)]
pub(super) unsafe fn load<S: Simd, T: Real>(simd: S, at: *const T) -> Vector<S, T> {
    // SAFETY: guaranteed by the caller.
    Vector::<S, T>::from_slice(simd, unsafe { std::slice::from_raw_parts(at, Vector::<S, T>::LEN) })
}

/// # Safety
/// A vector may be written there.
#[inline(always)]
pub(super) unsafe fn store<S: Simd, T: Real>(at: *mut T, value: Vector<S, T>) {
    // SAFETY: guaranteed by the caller.
    value.store_slice(unsafe { std::slice::from_raw_parts_mut(at, Vector::<S, T>::LEN) });
}

/// Packs rows with a stride as the second operand of a multiplication that sums over them: narrow panels of columns,
/// [rows][panel], padded with zeros.
#[inline(never)]
pub(super) fn pack<S: Simd, T: Real>(simd: S, from: &[T], stride: usize, columns: usize, to: &mut [T]) {
    simd.vectorize(
        #[inline(always)]
        || {
            let (lanes, panel) = (Vector::<S, T>::LEN, narrow_panel::<S, T>(columns));
            let rows = from.len().div_ceil(stride);
            for (i, to) in to.chunks_exact_mut(rows * panel).enumerate() {
                let first = i * panel;
                let here = panel.min(columns - first);
                let rows = from.chunks(stride).zip(to.chunks_exact_mut(panel));
                if here == panel {
                    for (row, to) in rows {
                        let row = &row[first..first + panel];
                        for (to, row) in to.chunks_exact_mut(lanes).zip(row.chunks_exact(lanes)) {
                            Vector::<S, T>::from_slice(simd, row).store_slice(to);
                        }
                    }
                    continue;
                }
                for (row, to) in rows {
                    to[..here].copy_from_slice(&row[first..first + here]);
                    to[here..].fill(T::ZERO);
                }
            }
        },
    );
}

/// Packs rows with a stride as the columns of the second operand of a multiplication: panels of rows, [columns][panel],
/// padded with zeros.
#[inline(never)]
pub(super) fn pack_transposed<S: Simd, T: Real>(
    simd: S,
    from: &[T],
    stride: usize,
    columns: usize,
    to: &mut [T],
) {
    simd.vectorize(
        #[inline(always)]
        || {
            let panel = panel::<S, T>();
            let rows = from.len().div_ceil(stride);
            let row = |i: usize| &from[i * stride..][..columns];
            for (i, to) in to.chunks_exact_mut(columns * panel).enumerate() {
                let first = i * panel;
                let here = panel.min(rows - first);
                // Four rows at a time, so that the stores are contiguous.
                for j in (0..here - here % 4).step_by(4) {
                    let at = first + j;
                    let [a, b, c, d] = [row(at), row(at + 1), row(at + 2), row(at + 3)];
                    for (column, to) in to.chunks_exact_mut(panel).enumerate() {
                        to[j..j + 4].copy_from_slice(&[a[column], b[column], c[column], d[column]]);
                    }
                }
                for j in here - here % 4..here {
                    let row = row(first + j);
                    to.chunks_exact_mut(panel).zip(row).for_each(|(to, &x)| to[j] = x);
                }
                if here < panel {
                    to.chunks_exact_mut(panel).for_each(|to| to[here..].fill(T::ZERO));
                }
            }
        },
    );
}
