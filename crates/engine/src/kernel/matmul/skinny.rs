//! GEMM of up to three rows: one pass over the unpacked second matrix, four of its rows at a time. It runs at the speed of
//! memory, so packing would not pay.

use fearless_simd::{Simd, prelude::*};

use super::tiles::{Source, Target};

/// Largest number of rows.
pub(super) const MAX_ROWS: usize = 3;

/// Rows of the second matrix that are read at a time.
const UNROLL: usize = 4;

/// Elements of a row that are searched for zeros at a time.
const SEARCH_LEN: usize = 256;

/// Multiplies `a` [rows, depth] with `b` [depth, columns], whose rows are contiguous. If all elements of `b` are known to
/// be finite, a single row skips the rows of `b` that it would multiply with 0. The bits are the same, except that a sum of
/// -0 stays -0 (as in `sparse`).
///
/// # Safety
/// The three matrices may be read, and the result may be written; nothing else accesses the result meanwhile. There are at
/// most [`MAX_ROWS`] rows.
pub(super) unsafe fn multiply(
    [rows, columns, depth]: [usize; 3],
    a: Source,
    b: Source,
    out: Target,
    is_finite: bool,
) {
    dispatch!(crate::kernel::level(), simd => {
        let gemm = SkinnyGemm { simd, columns, depth, a, b };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match rows {
                1 if is_finite => gemm.without_zeros(out),
                1 => gemm.all::<1>(out),
                2 => gemm.all::<2>(out),
                MAX_ROWS => gemm.all::<MAX_ROWS>(out),
                // The chunk of a thread may be empty.
                _ => {}
            }
        }
    });
}

struct SkinnyGemm<S> {
    simd: S,
    columns: usize,
    depth: usize,
    a: Source,
    b: Source,
}

impl<S: Simd> SkinnyGemm<S> {
    /// # Safety
    /// Same as for [`multiply`].
    #[inline(always)]
    unsafe fn all<const M: usize>(&self, mut out: Target) {
        let whole = self.depth - self.depth % UNROLL;
        for from in (0..whole).step_by(UNROLL) {
            // SAFETY: rows of the matrix and elements of the rows.
            unsafe { self.add::<M, UNROLL>([0, 1, 2, 3].map(|i| from + i), out) };
            out.accumulate = true;
        }
        for from in whole..self.depth {
            // SAFETY: as above.
            unsafe { self.add::<M, 1>([from], out) };
            out.accumulate = true;
        }
    }

    /// Multiplies one row, without the rows of the matrix that it multiplies with 0.
    ///
    /// # Safety
    /// Same as for [`multiply`].
    #[inline(always)]
    unsafe fn without_zeros(&self, mut out: Target) {
        for from in (0..self.depth).step_by(SEARCH_LEN) {
            let (mut indices, mut len) = ([0; SEARCH_LEN], 0);
            for index in from..self.depth.min(from + SEARCH_LEN) {
                // Branch-free: the index of a zero is written, too, and overwritten by the next.
                indices[len] = index;
                // SAFETY: an element of the row.
                len += usize::from(unsafe { *self.a.offset(0, index).at != 0.0 });
            }
            let (whole, rest) = indices[..len].as_chunks::<UNROLL>();
            for &indices in whole {
                // SAFETY: rows of the matrix and elements of the row.
                unsafe { self.add::<1, UNROLL>(indices, out) };
                out.accumulate = true;
            }
            for &index in rest {
                // SAFETY: as above.
                unsafe { self.add::<1, 1>([index], out) };
                out.accumulate = true;
            }
        }
        if !out.accumulate {
            // SAFETY: a row of the result.
            unsafe { std::slice::from_raw_parts_mut(out.at, self.columns) }.fill(0.0);
        }
    }

    /// Adds the products with `D` rows of the matrix.
    ///
    /// # Safety
    /// Same as for [`multiply`]; the indices are rows of the matrix.
    #[inline(always)]
    unsafe fn add<const M: usize, const D: usize>(&self, indices: [usize; D], out: Target) {
        let (simd, columns, lanes) = (self.simd, self.columns, S::f32s::LEN);
        // SAFETY: elements of the first operand, and rows of the second.
        let (factors, rows) = unsafe {
            let factor = |i: usize, d: usize| *self.a.offset(i, indices[d]).at;
            let factors: [[f32; D]; M] = std::array::from_fn(|i| std::array::from_fn(|d| factor(i, d)));
            let row = |d: usize| std::slice::from_raw_parts(self.b.offset(indices[d], 0).at, columns);
            (factors, std::array::from_fn::<&[f32], D, _>(row))
        };
        let vectors: [[S::f32s; D]; M] =
            std::array::from_fn(|i| std::array::from_fn(|d| S::f32s::splat(simd, factors[i][d])));
        let mut at = 0;
        while at + lanes <= columns {
            let mut loaded = [S::f32s::splat(simd, 0.0); D];
            for (values, row) in loaded.iter_mut().zip(&rows) {
                *values = S::f32s::from_slice(simd, &row[at..at + lanes]);
            }
            for (i, vectors) in vectors.iter().enumerate() {
                // SAFETY: a vector of a row of the result.
                let to = unsafe { std::slice::from_raw_parts_mut(out.at.add(i * out.stride + at), lanes) };
                let mut sum =
                    if out.accumulate { S::f32s::from_slice(simd, to) } else { S::f32s::splat(simd, 0.0) };
                for (factor, &values) in vectors.iter().zip(&loaded) {
                    sum = factor.mul_add(values, sum);
                }
                sum.store_slice(to);
            }
            at += lanes;
        }
        for at in at..columns {
            for (i, factors) in factors.iter().enumerate() {
                // SAFETY: an element of the result.
                let to = unsafe { &mut *out.at.add(i * out.stride + at) };
                let before = if out.accumulate { *to } else { 0.0 };
                *to = factors.iter().zip(&rows).fold(before, |sum, (factor, row)| factor * row[at] + sum);
            }
        }
    }
}
