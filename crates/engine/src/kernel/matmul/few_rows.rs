//! A few rows times a matrix whose rows are contiguous: rows of the matrix are added to those of the result, four at a time, so the
//! matrix is read once and not packed.

use fearless_simd::{Simd, prelude::*};

use super::general::Product;
use crate::dtype::Element;

/// Largest number of rows.
const MAX_ROWS: usize = 8;

/// Rows of the second operand that are added at a time.
const DEPTH: usize = 4;

/// Columns of a block: this many columns of all rows fit into the first-level cache.
const BLOCK_COLUMNS: usize = 256;

/// Returns whether there are few rows, and the columns of the second operand and of the result are contiguous.
pub(super) fn applies<T>(product: &Product<T>) -> bool {
    product.sizes[0] <= MAX_ROWS && product.b.strides[1] == 1 && product.strides[1] == 1
}

impl<T: Element> Product<T> {
    /// # Safety
    /// Same as for [`super::multiply_at`]; [`applies`] returns true.
    #[inline(always)]
    pub unsafe fn few_rows<S: Simd>(&self, simd: S) {
        let [m, n, k] = self.sizes;
        for first in (0..n).step_by(BLOCK_COLUMNS) {
            let len = BLOCK_COLUMNS.min(n - first);
            for from in (0..k).step_by(DEPTH) {
                // SAFETY: guaranteed by the caller; rows, columns and depth are those of the matrices.
                unsafe {
                    match k - from {
                        1 => self.add_rows::<S, 1>(simd, m, from, first, len),
                        2 => self.add_rows::<S, 2>(simd, m, from, first, len),
                        3 => self.add_rows::<S, 3>(simd, m, from, first, len),
                        _ => self.add_rows::<S, DEPTH>(simd, m, from, first, len),
                    }
                }
            }
        }
    }

    /// Adds multiples of `D` rows of the second operand to the columns of all rows of the result.
    ///
    /// # Safety
    /// Same as for [`Product::few_rows`].
    #[inline(always)]
    unsafe fn add_rows<S: Simd, const D: usize>(
        &self,
        simd: S,
        m: usize,
        from: usize,
        first: usize,
        len: usize,
    ) {
        let lanes = T::Vector::<S>::LEN;
        let accumulate = self.accumulate || from > 0;
        let mut b: [&[T]; D] = [&[]; D];
        for (l, b) in b.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *b = unsafe { std::slice::from_raw_parts(self.b.pointer(from + l, first), len) };
        }
        for i in 0..m {
            let mut a = [T::Vector::<S>::splat(simd, T::ZERO); D];
            for (l, a) in a.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                *a = T::Vector::<S>::splat(simd, unsafe { self.a.get(i, from + l) });
            }
            // SAFETY: guaranteed by the caller.
            let row = unsafe {
                std::slice::from_raw_parts_mut(self.out.wrapping_add(i * self.strides[0] + first), len)
            };
            let whole = len - len % lanes;
            for at in (0..whole).step_by(lanes) {
                let to = &mut row[at..at + lanes];
                let zero = T::Vector::<S>::splat(simd, T::ZERO);
                let mut sum = if accumulate { T::Vector::<S>::from_slice(simd, to) } else { zero };
                for l in 0..D {
                    sum = T::multiply_add::<S>(
                        a[l],
                        T::Vector::<S>::from_slice(simd, &b[l][at..at + lanes]),
                        sum,
                    );
                }
                sum.store_slice(to);
            }
            for (j, to) in row.iter_mut().enumerate().skip(whole) {
                let mut sum = T::Vector::<S>::splat(simd, if accumulate { *to } else { T::ZERO });
                for l in 0..D {
                    sum = T::multiply_add::<S>(a[l], T::Vector::<S>::splat(simd, b[l][j]), sum);
                }
                *to = sum.as_slice()[0];
            }
        }
    }
}
