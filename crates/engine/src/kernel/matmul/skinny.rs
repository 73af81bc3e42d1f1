//! GEMM of up to three rows, at the speed of memory: one pass over the second matrix.
//!
//! An unpacked matrix is read four rows at a time, so packing it for one use would not pay. A matrix that is packed already
//! is read panel by panel. Both add the products in the order of the depth, so that the bits are the same.

use fearless_simd::{Simd, prelude::*};

use super::tiles::{BLOCK_DEPTH, MAX_PANEL, Rhs, SCRATCH, Source, Target, load, store};
use crate::kernel::half::{Half, widen, widen_f16_rows};

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

/// Multiplies like [`multiply`], with a packed matrix.
///
/// # Safety
/// The first operand and the panels may be read, and the result may be written; nothing else accesses the result meanwhile.
/// There are at most [`MAX_ROWS`] rows.
pub(super) unsafe fn multiply_packed(
    [rows, columns, depth]: [usize; 3],
    a: Source,
    b: Rhs,
    is_finite: bool,
    out: Target,
) {
    let run = |scratch: &mut [f32]| {
        dispatch!(crate::kernel::level(), simd => {
            let gemm = PanelGemm { simd, columns, depth, a, b, is_finite };
            // SAFETY: guaranteed by the caller.
            unsafe {
                match rows {
                    1 => gemm.run::<1, 4>(out, scratch),
                    2 => gemm.run::<2, 2>(out, scratch),
                    MAX_ROWS => gemm.run::<MAX_ROWS, 2>(out, scratch),
                    // The chunk of a thread may be empty.
                    _ => {}
                }
            }
        });
    };
    if matches!(b, Rhs::Half(_)) {
        SCRATCH.with_borrow_mut(|scratch| run(&mut scratch.panels[..]));
    } else {
        run(&mut []);
    }
}

struct PanelGemm<S> {
    simd: S,
    columns: usize,
    depth: usize,
    a: Source,
    /// Packed panels.
    b: Rhs,
    /// Whether all elements of the panels are finite.
    is_finite: bool,
}

/// Elements of the rows that are multiplied with a block of panels: all of them, or the nonzero ones of a single row.
struct Factors<const M: usize> {
    /// Offsets within a panel of the row that the values are multiplied with.
    offsets: [u32; BLOCK_DEPTH],
    values: [[f32; M]; BLOCK_DEPTH],
    len: usize,
}

impl<S: Simd> PanelGemm<S> {
    const PANEL: usize = 2 * S::f32s::LEN;

    /// Multiplies `M` rows with `P` panels at a time.
    ///
    /// # Safety
    /// Same as for [`multiply_packed`].
    #[inline(always)]
    unsafe fn run<const M: usize, const P: usize>(&self, mut out: Target, scratch: &mut [f32]) {
        let mut factors = Factors { offsets: [0; BLOCK_DEPTH], values: [[0.0; M]; BLOCK_DEPTH], len: 0 };
        for from in (0..self.depth).step_by(BLOCK_DEPTH) {
            let depth = BLOCK_DEPTH.min(self.depth - from);
            // SAFETY: elements of the rows.
            unsafe { self.collect(from, depth, &mut factors) };
            let target = |column: usize| Target { at: out.at.wrapping_add(column), ..out };
            let mut column = 0;
            // SAFETY: the columns are columns of the result, and their panels have the depth of the block.
            unsafe {
                while column + P * Self::PANEL <= self.columns {
                    let panels = self.panels(&factors, from, depth, column, P, scratch);
                    self.add::<M, P>(&factors, panels, depth, target(column), P * Self::PANEL);
                    column += P * Self::PANEL;
                }
                while column < self.columns {
                    let panels = self.panels(&factors, from, depth, column, 1, scratch);
                    let width = Self::PANEL.min(self.columns - column);
                    self.add::<M, 1>(&factors, panels, depth, target(column), width);
                    column += Self::PANEL;
                }
            }
            out.accumulate = true;
        }
    }

    /// Returns the address of consecutive panels of a block. Of those in half precision, the rows that are multiplied are
    /// expanded.
    ///
    /// # Safety
    /// The panels may be read.
    #[inline(always)]
    unsafe fn panels<const M: usize>(
        &self,
        factors: &Factors<M>,
        from: usize,
        depth: usize,
        column: usize,
        count: usize,
        scratch: &mut [f32],
    ) -> *const f32 {
        match self.b {
            Rhs::Packed(b) => b.panel(from, depth, column, Self::PANEL),
            Rhs::Half(b) => {
                let (halves, to) =
                    (b.panel(from, depth, column, Self::PANEL), &mut scratch[..count * depth * Self::PANEL]);
                // SAFETY: guaranteed by the caller.
                let halves = unsafe { std::slice::from_raw_parts(halves, to.len()) };
                if factors.len == depth {
                    widen(Half::F16, halves, to);
                } else {
                    let len = depth * Self::PANEL;
                    for (halves, to) in halves.chunks_exact(len).zip(to.chunks_exact_mut(len)) {
                        widen_f16_rows(halves, &factors.offsets[..factors.len], Self::PANEL, to);
                    }
                }
                to.as_ptr()
            }
            Rhs::Unpacked(_) => unreachable!("unpacked matrices have a kernel of their own"),
        }
    }

    /// Collects the elements of a block. Zeros of a single row are left out if all elements of the matrix are finite.
    #[inline(always)]
    unsafe fn collect<const M: usize>(&self, from: usize, depth: usize, factors: &mut Factors<M>) {
        let is_skipped = M == 1 && self.is_finite;
        factors.len = 0;
        for k in 0..depth {
            // SAFETY: elements of the rows.
            let values = std::array::from_fn(|i| unsafe { *self.a.offset(i, from + k).at });
            // Branch-free: an element that is left out is overwritten by the next.
            factors.offsets[factors.len] = (k * Self::PANEL) as u32;
            factors.values[factors.len] = values;
            factors.len += usize::from(!is_skipped || values[0] != 0.0);
        }
    }

    /// Adds the products with `P` panels to `width` columns of the result, or writes them there. As in [`SkinnyGemm::add`],
    /// products of whole vectors are added with one rounding, those of the columns after them with two.
    ///
    /// # Safety
    /// The panels have this depth, which the offsets do not exceed, and the columns may be written.
    #[inline(always)]
    unsafe fn add<const M: usize, const P: usize>(
        &self,
        factors: &Factors<M>,
        panels: *const f32,
        depth: usize,
        out: Target,
        width: usize,
    ) {
        let (simd, lanes) = (self.simd, S::f32s::LEN);
        let is_whole = width == P * Self::PANEL;
        let mut rows = [[0.0; MAX_PANEL]; M];
        // SAFETY: columns of the result; the rows have room for a panel, and only one panel is not whole.
        unsafe {
            if !is_whole && out.accumulate {
                for (i, row) in rows.iter_mut().enumerate() {
                    let from = std::slice::from_raw_parts(out.at.add(i * out.stride), width);
                    row[..width].copy_from_slice(from);
                }
            }
            let mut at: [*mut f32; M] = std::array::from_fn(|i| out.at.wrapping_add(i * out.stride));
            if !is_whole {
                at.iter_mut().zip(&mut rows).for_each(|(at, row)| *at = row.as_mut_ptr());
            }
            let mut sums = [[[S::f32s::splat(simd, 0.0); 2]; P]; M];
            if out.accumulate {
                for (sums, at) in sums.iter_mut().zip(at) {
                    for (p, [left, right]) in sums.iter_mut().enumerate() {
                        *left = load(simd, at.add(2 * p * lanes));
                        *right = load(simd, at.add((2 * p + 1) * lanes));
                    }
                }
            }
            let entries = factors.offsets[..factors.len].iter().zip(&factors.values[..factors.len]);
            if is_whole {
                for (&offset, values) in entries {
                    let panel = panels.add(offset as usize);
                    for p in 0..P {
                        let at = panel.add(p * depth * Self::PANEL);
                        let (low, high) = (load(simd, at), load(simd, at.add(lanes)));
                        for (sums, &value) in sums.iter_mut().zip(values) {
                            let x = S::f32s::splat(simd, value);
                            sums[p] = [x.mul_add(low, sums[p][0]), x.mul_add(high, sums[p][1])];
                        }
                    }
                }
            } else {
                for (&offset, values) in entries {
                    let at = panels.add(offset as usize);
                    let loaded = [load(simd, at), load(simd, at.add(lanes))];
                    for (sums, &value) in sums.iter_mut().zip(values) {
                        let x = S::f32s::splat(simd, value);
                        for (i, sum) in sums[0].iter_mut().enumerate() {
                            let is_fused = (i + 1) * lanes <= width;
                            *sum = if is_fused { x.mul_add(loaded[i], *sum) } else { x * loaded[i] + *sum };
                        }
                    }
                }
            }
            for (sums, at) in sums.into_iter().zip(at) {
                for (p, [left, right]) in sums.into_iter().enumerate() {
                    store(simd, at.add(2 * p * lanes), left);
                    store(simd, at.add((2 * p + 1) * lanes), right);
                }
            }
            if !is_whole {
                for (i, row) in rows.iter().enumerate() {
                    std::slice::from_raw_parts_mut(out.at.add(i * out.stride), width)
                        .copy_from_slice(&row[..width]);
                }
            }
        }
    }
}
