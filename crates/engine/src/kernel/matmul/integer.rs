//! GEMM of integers, which wraps on overflow: the result is exact modulo 2^32 or 2^64, so the order of sums is free.
//!
//! ```text
//! for each block of depth, for each block of columns        panels of two vectors of columns, packed
//!     for each tile of up to 4 rows                         packed: [depth][row]
//!         for each panel: one broadcast, two multiplications and two additions per row and depth
//! ```
//!
//! The longer axis of the result goes along the lanes. A second operand that few rows use is read in place.

use fearless_simd::{Simd, prelude::*};

use super::{Bases, EpiloguePtr, Gemm, GemmElement, apply_epilogue};
use crate::dtype::Element;
use crate::kernel::level;
use crate::parallel;

/// Largest number of rows of a tile.
const TILE_ROWS: usize = 4;

/// Vectors of a panel.
const PANEL_VECTORS: usize = 2;

/// Depth of a block.
const BLOCK_DEPTH: usize = 256;

/// Columns of a block, a multiple of all panels: packed, it takes half of a second-level cache of 512 kB.
const BLOCK_COLUMNS: usize = 128;

/// With at most this many rows, packing the second operand would take longer than reading it in place.
const UNPACKED_MAX_ROWS: usize = 2 * TILE_ROWS;

macro_rules! integer_gemm {
    ($($type:ty)*) => {$(
        impl GemmElement for $type {
            const UNITS: [$type; 2] = [0, 1];

            unsafe fn multiply_tiled(
                bases: Bases<$type>,
                gemm: &Gemm,
                epilogue: EpiloguePtr<$type>,
                threads: bool,
            ) -> bool {
                let (out, [m, n, _]) = (bases.out.wrapping_add(gemm.out.0), gemm.sizes);
                // SAFETY: guaranteed by the caller.
                unsafe {
                    multiply(bases, gemm, threads);
                    apply_epilogue(out, [m, n], gemm.out.1, epilogue);
                }
                true
            }
        }
    )*};
}

integer_gemm!(i32 i64);

/// Matrix that is read: element (i, j) is at `at + i * strides[0] + j * strides[1]`.
#[derive(Clone, Copy)]
struct Source<T> {
    at: *const T,
    strides: [usize; 2],
}

impl<T: Copy> Source<T> {
    fn transposed(self) -> Source<T> {
        Source { strides: [self.strides[1], self.strides[0]], ..self }
    }

    fn pointer(&self, row: usize, column: usize) -> *const T {
        self.at.wrapping_add(row * self.strides[0] + column * self.strides[1])
    }

    /// # Safety
    /// The element may be read.
    #[inline(always)]
    unsafe fn get(&self, row: usize, column: usize) -> T {
        // SAFETY: guaranteed by the caller.
        unsafe { *self.pointer(row, column) }
    }
}

/// A multiplication of which the columns of the result go along the lanes.
#[derive(Clone, Copy)]
struct Product<T> {
    /// Rows and columns of the result, and depth.
    sizes: [usize; 3],
    a: Source<T>,
    b: Source<T>,
    out: *mut T,
    strides: [usize; 2],
    accumulate: bool,
}

// SAFETY: threads compute disjoint chunks of the result, and nothing else is written.
unsafe impl<T: Send> Send for Product<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Product<T> {}

/// Multiplies integer matrices.
///
/// # Safety
/// Same as for [`super::multiply_at`]; no size is 0.
pub(super) unsafe fn multiply<T: Element>(bases: Bases<T>, gemm: &Gemm, threads: bool) {
    let Gemm { sizes: [m, n, k], a, b, out: (out, strides), accumulate } = *gemm;
    let a = Source { at: bases.a.wrapping_add(a.0), strides: a.1 };
    let b = Source { at: bases.b.wrapping_add(b.0), strides: b.1 };
    let mut product =
        Product { sizes: [m, n, k], a, b, out: bases.out.wrapping_add(out), strides, accumulate };
    // Short rows would leave lanes empty, and scattered columns need a store for each lane.
    let is_wide = |columns: usize, stride: usize| (columns >= 32, stride == 1, columns);
    if is_wide(m, strides[0]) > is_wide(n, strides[1]) {
        product = Product {
            sizes: [n, m, k],
            a: b.transposed(),
            b: a.transposed(),
            strides: [strides[1], strides[0]],
            ..product
        };
    }
    let chunks = if threads { parallel::threads() } else { 1 };
    parallel::for_each_index(chunks, |chunk| {
        // SAFETY: guaranteed by the caller; the chunks of a result are disjoint.
        dispatch!(level(), simd => unsafe { product.chunk(chunk, chunks).run(simd) });
    });
}

impl<T: Element> Product<T> {
    /// Returns some rows of the result, or some columns if there are more.
    fn chunk(self, chunk: usize, chunks: usize) -> Self {
        let [m, n, k] = self.sizes;
        if m > n {
            let rows = parallel::chunk_range(m, chunk, chunks);
            let a = Source { at: self.a.pointer(rows.start, 0), ..self.a };
            let out = self.out.wrapping_add(rows.start * self.strides[0]);
            return Self { sizes: [rows.len(), n, k], a, out, ..self };
        }
        let panels = parallel::chunk_range(n.div_ceil(BLOCK_COLUMNS / 4), chunk, chunks);
        let [begin, end] = [panels.start, panels.end].map(|panel| n.min(panel * BLOCK_COLUMNS / 4));
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
        let is_unpacked = m <= UNPACKED_MAX_ROWS && self.b.strides[1] == 1 && self.b.strides[0] >= panel;
        let depth = k.min(BLOCK_DEPTH);
        let columns = if is_unpacked { panel } else { n.min(BLOCK_COLUMNS).next_multiple_of(panel) };
        let (mut panels, mut rows) = (vec![T::ZERO; depth * columns], vec![T::ZERO; depth * TILE_ROWS]);
        for from in (0..k).step_by(BLOCK_DEPTH) {
            let depth = from..k.min(from + BLOCK_DEPTH);
            let accumulate = self.accumulate || from > 0;
            for first in (0..n).step_by(BLOCK_COLUMNS) {
                let last = n.min(first + BLOCK_COLUMNS);
                // SAFETY: guaranteed by the caller; rows, columns and depth are those of the matrices.
                unsafe {
                    if is_unpacked {
                        let whole = last - (last - first) % panel;
                        self.pack_panel(&mut panels, depth.clone(), whole..last, panel);
                    } else {
                        for (i, column) in (first..last).step_by(panel).enumerate() {
                            let to = &mut panels[i * depth.len() * panel..];
                            self.pack_panel(to, depth.clone(), column..last.min(column + panel), panel);
                        }
                    }
                    for row in (0..m).step_by(TILE_ROWS) {
                        let count = TILE_ROWS.min(m - row);
                        self.pack_rows(&mut rows, depth.clone(), row, count);
                        for (i, column) in (first..last).step_by(panel).enumerate() {
                            let len = panel.min(last - column);
                            let (b, stride) = if !is_unpacked {
                                (&panels[i * depth.len() * panel..][..depth.len() * panel], panel)
                            } else if len < panel {
                                (&panels[..depth.len() * panel], panel)
                            } else {
                                let stride = self.b.strides[0];
                                let span = (depth.len() - 1) * stride + panel;
                                (std::slice::from_raw_parts(self.b.pointer(from, column), span), stride)
                            };
                            let to = Tile { product: &self, row, column, len, accumulate };
                            let rows = &rows[..depth.len() * count];
                            match count {
                                1 => to.compute::<S, 1>(simd, rows, b, stride),
                                2 => to.compute::<S, 2>(simd, rows, b, stride),
                                3 => to.compute::<S, 3>(simd, rows, b, stride),
                                _ => to.compute::<S, TILE_ROWS>(simd, rows, b, stride),
                            }
                        }
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
    unsafe fn pack_panel(
        &self,
        to: &mut [T],
        depth: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        panel: usize,
    ) {
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

    /// Packs rows of the first operand as [depth][row].
    ///
    /// # Safety
    /// The elements may be read.
    #[inline(always)]
    unsafe fn pack_rows(&self, to: &mut [T], depth: std::ops::Range<usize>, row: usize, count: usize) {
        for (to, l) in to.chunks_exact_mut(count).zip(depth) {
            for (i, to) in to.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                *to = unsafe { self.a.get(row + i, l) };
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
    /// Multiplies `R` packed rows with a panel whose rows have a stride.
    ///
    /// # Safety
    /// The tile may be read and written, and nothing else accesses it.
    #[inline(always)]
    unsafe fn compute<S: Simd, const R: usize>(&self, simd: S, rows: &[T], b: &[T], stride: usize) {
        let lanes = T::Vector::<S>::LEN;
        let mut sums = [[T::Vector::<S>::splat(simd, T::ZERO); PANEL_VECTORS]; R];
        let (rows, _) = rows.as_chunks::<R>();
        for (rows, b) in rows.iter().zip(b.chunks(stride)) {
            let b0 = T::Vector::<S>::from_slice(simd, &b[..lanes]);
            let b1 = T::Vector::<S>::from_slice(simd, &b[lanes..2 * lanes]);
            for i in 0..R {
                let a = T::Vector::<S>::splat(simd, rows[i]);
                sums[i][0] += a * b0;
                sums[i][1] += a * b1;
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
