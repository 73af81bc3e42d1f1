//! The product of few rows with a matrix: a pass over the matrix as it lies, four of its rows at a time. It is as fast as
//! the matrix comes from memory, so nothing is packed.

use fearless_simd::{Simd, prelude::*};

use super::tiles::{Source, Target};

/// Rows of the result at most.
pub(super) const MOST_ROWS: usize = 3;

/// Rows of the matrix that are read together.
const TOGETHER: usize = 4;

/// Multiplies `a` [rows, depth] with `b` [depth, columns], whose rows are contiguous.
///
/// # Safety
/// The elements of all three matrices lie in memory that may be read, and the result in memory that may be written and that
/// nothing else reads or writes meanwhile. There are at most [`MOST_ROWS`] rows.
pub(super) unsafe fn multiply([rows, columns, depth]: [usize; 3], a: Source, b: Source, out: Target) {
    dispatch!(crate::kernel::level(), simd => {
        // SAFETY: as the caller promises.
        unsafe {
            match rows {
                1 => pass::<_, 1>(simd, columns, depth, a, b, out),
                2 => pass::<_, 2>(simd, columns, depth, a, b, out),
                MOST_ROWS => pass::<_, MOST_ROWS>(simd, columns, depth, a, b, out),
                // A thread may have no rows.
                _ => {}
            }
        }
    });
}

#[inline(always)]
unsafe fn pass<S: Simd, const M: usize>(
    simd: S,
    columns: usize,
    depth: usize,
    a: Source,
    b: Source,
    out: Target,
) {
    let mut out = out;
    let whole = depth - depth % TOGETHER;
    for from in (0..whole).step_by(TOGETHER) {
        // SAFETY: rows of the matrix and elements of the rows.
        unsafe { add::<S, M, TOGETHER>(simd, columns, a.offset(0, from), b.offset(from, 0), out) };
        out.accumulate = true;
    }
    for from in whole..depth {
        // SAFETY: as above.
        unsafe { add::<S, M, 1>(simd, columns, a.offset(0, from), b.offset(from, 0), out) };
        out.accumulate = true;
    }
}

/// The share of `D` rows of the matrix.
#[inline(always)]
unsafe fn add<S: Simd, const M: usize, const D: usize>(
    simd: S,
    columns: usize,
    a: Source,
    b: Source,
    out: Target,
) {
    let lanes = S::f32s::LEN;
    // SAFETY: elements of the first operand, and rows of the second.
    let (factors, rows) = unsafe {
        let factor = |i: usize, d: usize| *a.offset(i, d).at;
        let factors: [[f32; D]; M] = std::array::from_fn(|i| std::array::from_fn(|d| factor(i, d)));
        let row = |d: usize| std::slice::from_raw_parts(b.offset(d, 0).at, columns);
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
