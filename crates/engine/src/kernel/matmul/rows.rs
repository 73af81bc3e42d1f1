//! The product of few rows with a matrix: a pass over the matrix as it lies, four of its rows at a time. It is as fast as
//! the matrix comes from memory, so nothing is packed.

use fearless_simd::{Simd, prelude::*};

use super::tiles::{Source, Target};

/// Rows of the result at most.
pub(super) const MOST_ROWS: usize = 3;

/// Rows of the matrix that are read together.
const TOGETHER: usize = 4;

/// Elements of a row that are looked at together for zeros.
const LOOK: usize = 256;

/// Multiplies `a` [rows, depth] with `b` [depth, columns], whose rows are contiguous. If all elements of `b` are known to be
/// finite, those rows of it are not read that a single row of `a` multiplies with 0; the bits are the same, but for a sum
/// that is -0, which nothing is added to (as in `sparse`).
///
/// # Safety
/// The elements of all three matrices lie in memory that may be read, and the result in memory that may be written and that
/// nothing else reads or writes meanwhile. There are at most [`MOST_ROWS`] rows.
pub(super) unsafe fn multiply(
    [rows, columns, depth]: [usize; 3],
    a: Source,
    b: Source,
    out: Target,
    is_finite: bool,
) {
    dispatch!(crate::kernel::level(), simd => {
        let pass = Pass { simd, columns, depth, a, b };
        // SAFETY: as the caller promises.
        unsafe {
            match rows {
                1 if is_finite => pass.without_zeros(out),
                1 => pass.all::<1>(out),
                2 => pass.all::<2>(out),
                MOST_ROWS => pass.all::<MOST_ROWS>(out),
                // A thread may have no rows.
                _ => {}
            }
        }
    });
}

struct Pass<S> {
    simd: S,
    columns: usize,
    depth: usize,
    a: Source,
    b: Source,
}

impl<S: Simd> Pass<S> {
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn all<const M: usize>(&self, mut out: Target) {
        let whole = self.depth - self.depth % TOGETHER;
        for from in (0..whole).step_by(TOGETHER) {
            // SAFETY: rows of the matrix and elements of the rows.
            unsafe { self.add::<M, TOGETHER>([0, 1, 2, 3].map(|i| from + i), out) };
            out.accumulate = true;
        }
        for from in whole..self.depth {
            // SAFETY: as above.
            unsafe { self.add::<M, 1>([from], out) };
            out.accumulate = true;
        }
    }

    /// One row, without the rows of the matrix that it multiplies with 0.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn without_zeros(&self, mut out: Target) {
        for from in (0..self.depth).step_by(LOOK) {
            let (mut places, mut len) = ([0; LOOK], 0);
            for place in from..self.depth.min(from + LOOK) {
                // What is 0 is written, too, and overwritten by the next.
                places[len] = place;
                // SAFETY: an element of the row.
                len += usize::from(unsafe { *self.a.offset(0, place).at != 0.0 });
            }
            let (whole, rest) = places[..len].as_chunks::<TOGETHER>();
            for &places in whole {
                // SAFETY: rows of the matrix and elements of the row.
                unsafe { self.add::<1, TOGETHER>(places, out) };
                out.accumulate = true;
            }
            for &place in rest {
                // SAFETY: as above.
                unsafe { self.add::<1, 1>([place], out) };
                out.accumulate = true;
            }
        }
        if !out.accumulate {
            // SAFETY: a row of the result.
            unsafe { std::slice::from_raw_parts_mut(out.at, self.columns) }.fill(0.0);
        }
    }

    /// The share of `D` rows of the matrix.
    ///
    /// # Safety
    /// As for [`multiply`]; there are such rows.
    #[inline(always)]
    unsafe fn add<const M: usize, const D: usize>(&self, places: [usize; D], out: Target) {
        let (simd, columns, lanes) = (self.simd, self.columns, S::f32s::LEN);
        // SAFETY: elements of the first operand, and rows of the second.
        let (factors, rows) = unsafe {
            let factor = |i: usize, d: usize| *self.a.offset(i, places[d]).at;
            let factors: [[f32; D]; M] = std::array::from_fn(|i| std::array::from_fn(|d| factor(i, d)));
            let row = |d: usize| std::slice::from_raw_parts(self.b.offset(places[d], 0).at, columns);
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
