//! A matrix times a few columns, if the rows of the matrix are contiguous: every element of the result is a dot product.
//!
//! Four rows at a time share the loads of a column; two sums per row hide the latency of the additions.

use fearless_simd::{Simd, prelude::*};

use super::general::{Product, Source};
use crate::dtype::Element;
use crate::kernel::level;
use crate::parallel;

/// Rows of a block.
const ROWS: usize = 4;

/// Largest number of columns.
const MAX_COLUMNS: usize = 4;

/// Multiplies, if the result has few columns (or rows) and the rows of the matrix (or the columns) are contiguous; returns
/// whether it has.
///
/// # Safety
/// Same as for [`super::multiply_at`]; no size is 0.
pub(super) unsafe fn multiply<T: Element>(product: Product<T>, threads: bool) -> bool {
    let applies = |product: &Product<T>| product.sizes[1] <= MAX_COLUMNS && product.a.strides[1] == 1;
    let transposed = product.transposed();
    let Some(mut product) = [product, transposed].into_iter().find(applies) else { return false };
    let [rows, columns, depth] = product.sizes;
    let mut packed = Vec::new();
    if product.b.strides[0] != 1 {
        packed.reserve_exact(columns * depth);
        for (column, l) in (0..columns).flat_map(|column| (0..depth).map(move |l| (column, l))) {
            // SAFETY: an element of the second operand.
            packed.push(unsafe { *product.b.pointer(l, column) });
        }
        product.b = Source { at: packed.as_ptr(), strides: [1, depth] };
    }
    let chunks = if threads { parallel::threads() } else { 1 };
    parallel::for_each_index(chunks, |chunk| {
        let blocks = parallel::chunk_range(rows.div_ceil(ROWS), chunk, chunks);
        let rows = blocks.start * ROWS..rows.min(blocks.end * ROWS);
        // SAFETY: guaranteed by the caller; chunks have disjoint rows.
        dispatch!(level(), simd => unsafe { product.dots(simd, rows) });
    });
    true
}

impl<T: Element> Product<T> {
    /// Computes rows of the result.
    ///
    /// # Safety
    /// Same as for [`multiply`]; the rows of the first operand and the columns of the second are contiguous.
    #[inline(always)]
    unsafe fn dots<S: Simd>(&self, simd: S, rows: std::ops::Range<usize>) {
        for (row, column) in
            rows.clone().step_by(ROWS).flat_map(|row| (0..self.sizes[1]).map(move |j| (row, j)))
        {
            // SAFETY: guaranteed by the caller; the rows are in range.
            unsafe {
                match rows.end - row {
                    1 => self.dots_of_rows::<S, 1>(simd, row, column),
                    2 => self.dots_of_rows::<S, 2>(simd, row, column),
                    3 => self.dots_of_rows::<S, 3>(simd, row, column),
                    _ => self.dots_of_rows::<S, ROWS>(simd, row, column),
                }
            }
        }
    }

    /// Computes the elements of `R` rows in one column.
    ///
    /// # Safety
    /// Same as for [`Product::dots`].
    #[inline(always)]
    unsafe fn dots_of_rows<S: Simd, const R: usize>(&self, simd: S, row: usize, column: usize) {
        let lanes = T::Vector::<S>::LEN;
        // SAFETY: guaranteed by the caller.
        let vector = unsafe { std::slice::from_raw_parts(self.b.pointer(0, column), self.sizes[2]) };
        let mut matrix: [&[T]; R] = [&[]; R];
        for (i, matrix) in matrix.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *matrix = unsafe { std::slice::from_raw_parts(self.a.pointer(row + i, 0), vector.len()) };
        }
        let mut sums = [[T::Vector::<S>::splat(simd, T::ZERO); 2]; R];
        let whole = vector.len() - vector.len() % (2 * lanes);
        for at in (0..whole).step_by(2 * lanes) {
            let x = T::Vector::<S>::from_slice(simd, &vector[at..at + lanes]);
            let y = T::Vector::<S>::from_slice(simd, &vector[at + lanes..at + 2 * lanes]);
            for i in 0..R {
                let row = &matrix[i][at..at + 2 * lanes];
                let (a, b) = (T::Vector::<S>::from_slice(simd, &row[..lanes]), &row[lanes..]);
                sums[i][0] = T::multiply_add::<S>(a, x, sums[i][0]);
                sums[i][1] = T::multiply_add::<S>(T::Vector::<S>::from_slice(simd, b), y, sums[i][1]);
            }
        }
        // The remainder is padded with zeros on both sides.
        for at in (whole..vector.len()).step_by(lanes) {
            let x = padded(simd, &vector[at..]);
            for i in 0..R {
                sums[i][0] = T::multiply_add::<S>(padded(simd, &matrix[i][at..]), x, sums[i][0]);
            }
        }
        for (i, [a, b]) in sums.into_iter().enumerate() {
            let sum = (a + b).as_slice().iter().fold(T::ZERO, |sum, &x| T::plus(sum, x));
            // SAFETY: an element of the result.
            unsafe {
                let to = self.out.wrapping_add((row + i) * self.strides[0] + column * self.strides[1]);
                *to = if self.accumulate { T::plus(*to, sum) } else { sum };
            }
        }
    }
}

/// Returns the first elements of a slice, followed by zeros if there are less than a vector.
#[inline(always)]
fn padded<S: Simd, T: Element>(simd: S, from: &[T]) -> T::Vector<S> {
    let mut vector = T::Vector::<S>::splat(simd, T::ZERO);
    for (to, &x) in vector.as_mut_slice().iter_mut().zip(from) {
        *to = x;
    }
    vector
}
