//! Layer norm, `gain (x - mean) / deviation + bias` of every row, and its gradient: one pass over memory each. The backward
//! pass computes mean and deviation again instead of reading them.
//!
//! ```text
//! n = (x - mean) / deviation, g = dy gain
//! dx = (g - mean of g - n (mean of g n)) / deviation,  dgain = sum over rows of dy n,  dbias = sum over rows of dy
//! ```
//!
//! The sums over rows are taken in blocks of 64 rows, then over the blocks in their order: few additions lose digits, and
//! the number of threads does not matter.

#![expect(unsafe_code, reason = "rows are written by several threads; what they write lies apart")]
#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

use fearless_simd::{Simd, prelude::*};

use super::math::{Real, Vector};
use super::shared::Shared;
use crate::parallel;

/// Rows whose sums are taken one after another.
const BLOCK: usize = 64;

/// Elements that are worth a thread's attention.
const SHARE: usize = 1 << 14;

/// Layer norm in one slice of memory: sizes, and where everything begins. All lies row by row.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Rows.
    pub rows: usize,
    /// Numbers of a row.
    pub columns: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// The operand, `[rows, columns]`.
    pub x: usize,
    /// What a normal row is multiplied with, `[columns]`.
    pub gain: usize,
    /// Forward: what is added to it. Backward: the gradient of the result, `[rows, columns]`.
    pub other: usize,
    /// Forward: the result, `[rows, columns]`. Backward: the gradients of the operand, of the gain and of the bias behind
    /// each other.
    pub out: usize,
    /// Backward: [`LayerNorm::scratch_len`] elements of which nothing is expected.
    pub scratch: Option<usize>,
}

impl LayerNorm {
    /// Elements of scratch memory of the backward pass.
    pub fn scratch_len(rows: usize, columns: usize) -> usize {
        rows.div_ceil(BLOCK) * 2 * columns
    }

    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let passes = if self.scratch.is_some() { 3 } else { 2 };
        (passes * self.rows + 3) * self.columns
    }

    /// The elements behind the last one of everything.
    fn end(&self) -> usize {
        let all = self.rows * self.columns;
        let ends = match self.scratch {
            None => [self.other + self.columns, self.out + all, 0],
            Some(scratch) => {
                let scratch = scratch + LayerNorm::scratch_len(self.rows, self.columns);
                [self.other + all, self.out + all + 2 * self.columns, scratch]
            }
        };
        ends.into_iter().chain([self.x + all, self.gain + self.columns]).max().unwrap_or(0)
    }

    /// Runs `work` on every block of rows: its number, its first element, and its elements.
    fn for_blocks(&self, work: impl Fn(usize, usize, usize) + Sync + Send) {
        let blocks = self.rows.div_ceil(BLOCK);
        let together = SHARE.div_ceil(BLOCK * self.columns);
        parallel::for_each_index(blocks.div_ceil(together), |share| {
            for block in (share * together..blocks).take(together) {
                let rows = BLOCK.min(self.rows - block * BLOCK);
                work(block, block * BLOCK * self.columns, rows * self.columns);
            }
        });
    }
}

/// Computes the result.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn forward<T: Real>(memory: &mut [T], norm: &LayerNorm) {
    assert!(norm.scratch.is_none() && norm.end() <= memory.len(), "everything lies in the memory");
    let shared = Shared(memory.as_mut_ptr());
    norm.for_blocks(move |_, at, len| {
        let shared = shared;
        // SAFETY: everything lies in the memory (asserted above), the plan keeps operands and result apart, and the rows of
        // a block are written by no other.
        let (x, gain, bias, out) = unsafe {
            let row = |at: usize| shared.read(at, norm.columns);
            (shared.read(norm.x + at, len), row(norm.gain), row(norm.other), shared.write(norm.out + at, len))
        };
        dispatch!(super::level(), simd => {
            for (x, out) in x.chunks_exact(norm.columns).zip(out.chunks_exact_mut(norm.columns)) {
                forward_row(simd, Row::new(simd, x, norm.epsilon), gain, bias, out);
            }
        });
    });
}

/// Computes the gradients of the operands from that of the result.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn backward<T: Real>(memory: &mut [T], norm: &LayerNorm) {
    assert!(norm.end() <= memory.len(), "everything lies in the memory");
    let scratch = norm.scratch.expect("the backward pass has scratch memory");
    let (columns, shared) = (norm.columns, Shared(memory.as_mut_ptr()));
    norm.for_blocks(move |block, at, len| {
        let shared = shared;
        // SAFETY: as in the forward pass; every block has sums of its own.
        let (x, dy, gain, dx, sums) = unsafe {
            (
                shared.read(norm.x + at, len),
                shared.read(norm.other + at, len),
                shared.read(norm.gain, columns),
                shared.write(norm.out + at, len),
                shared.write(scratch + block * 2 * columns, 2 * columns),
            )
        };
        sums.fill(T::NIL);
        let (of_gain, of_bias) = sums.split_at_mut(columns);
        dispatch!(super::level(), simd => {
            let rows = x.chunks_exact(columns).zip(dy.chunks_exact(columns)).zip(dx.chunks_exact_mut(columns));
            for ((x, dy), dx) in rows {
                let row = Row::new(simd, x, norm.epsilon);
                backward_row(simd, row, dy, gain, dx, [&mut *of_gain, &mut *of_bias]);
            }
        });
    });
    let blocks = norm.rows.div_ceil(BLOCK);
    // SAFETY: as above; all blocks are done.
    let (sums, out) = unsafe {
        let at = norm.out + norm.rows * columns;
        (shared.read(scratch, blocks * 2 * columns), shared.write(at, 2 * columns))
    };
    out.fill(T::NIL);
    for sums in sums.chunks_exact(2 * columns) {
        out.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
    }
}

/// A row, its mean, and one over its deviation.
#[derive(Clone, Copy)]
struct Row<'a, T> {
    x: &'a [T],
    mean: T,
    scale: T,
}

impl<'a, T: Real> Row<'a, T> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, x: &'a [T], epsilon: f64) -> Row<'a, T> {
        let zero = Vector::<S, T>::splat(simd, T::NIL);
        let mut sums = [zero; 2];
        for (i, at) in (0..x.len()).step_by(Vector::<S, T>::LEN).enumerate() {
            sums[i % 2] += load::<S, T>(simd, x, at, T::NIL);
        }
        let mean = average::<S, T>(sums[0] + sums[1], x.len());
        let (mut squares, by) = ([zero; 2], Vector::<S, T>::splat(simd, mean));
        for (i, at) in (0..x.len()).step_by(Vector::<S, T>::LEN).enumerate() {
            let centred = load::<S, T>(simd, x, at, mean) - by;
            squares[i % 2] = centred.mul_add(centred, squares[i % 2]);
        }
        let variance = average::<S, T>(squares[0] + squares[1], x.len());
        let scale = Vector::<S, T>::splat(simd, T::ONE)
            / (Vector::<S, T>::splat(simd, variance) + T::from_f64(epsilon)).sqrt();
        Row { x, mean, scale: scale.as_slice()[0] }
    }

    /// Numbers of the normal row.
    #[inline(always)]
    fn normal<S: Simd>(&self, simd: S, at: usize) -> Vector<S, T> {
        (load::<S, T>(simd, self.x, at, self.mean) - self.mean) * self.scale
    }
}

/// The mean of so many numbers whose sum is that of the lanes.
#[inline(always)]
fn average<S: Simd, T: Real>(sums: Vector<S, T>, count: usize) -> T {
    let mut lanes = sums;
    let mut half = Vector::<S, T>::LEN / 2;
    while half > 0 {
        let lanes = lanes.as_mut_slice();
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes.as_slice()[0] / T::from_f64(count as f64)
}

#[inline(always)]
fn forward_row<S: Simd, T: Real>(simd: S, row: Row<'_, T>, gain: &[T], bias: &[T], out: &mut [T]) {
    for at in (0..out.len()).step_by(Vector::<S, T>::LEN) {
        let gain = load::<S, T>(simd, gain, at, T::NIL);
        let value = row.normal(simd, at).mul_add(gain, load::<S, T>(simd, bias, at, T::NIL));
        store::<S, T>(out, at, value);
    }
}

#[inline(always)]
fn backward_row<S: Simd, T: Real>(
    simd: S,
    row: Row<'_, T>,
    dy: &[T],
    gain: &[T],
    dx: &mut [T],
    [of_gain, of_bias]: [&mut [T]; 2],
) {
    let zero = Vector::<S, T>::splat(simd, T::NIL);
    let (mut sums, mut products) = (zero, zero);
    for at in (0..dx.len()).step_by(Vector::<S, T>::LEN) {
        let (dy, normal) = (load::<S, T>(simd, dy, at, T::NIL), row.normal(simd, at));
        let g = dy * load::<S, T>(simd, gain, at, T::NIL);
        sums += g;
        products = g.mul_add(normal, products);
        store::<S, T>(of_gain, at, dy.mul_add(normal, load::<S, T>(simd, of_gain, at, T::NIL)));
        store::<S, T>(of_bias, at, dy + load::<S, T>(simd, of_bias, at, T::NIL));
    }
    let (level, slope) = (average::<S, T>(sums, dx.len()), average::<S, T>(products, dx.len()));
    let slope = Vector::<S, T>::splat(simd, slope);
    for at in (0..dx.len()).step_by(Vector::<S, T>::LEN) {
        let g = load::<S, T>(simd, dy, at, T::NIL) * load::<S, T>(simd, gain, at, T::NIL);
        let value = (g - level - row.normal(simd, at) * slope) * row.scale;
        store::<S, T>(dx, at, value);
    }
}

/// A vector from a place of a slice; lanes behind its end have a given number.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, x: &[T], at: usize, fill: T) -> Vector<S, T> {
    if at + Vector::<S, T>::LEN <= x.len() {
        return Vector::<S, T>::from_slice(simd, &x[at..at + Vector::<S, T>::LEN]);
    }
    let mut vector = Vector::<S, T>::splat(simd, fill);
    vector.as_mut_slice()[..x.len() - at].copy_from_slice(&x[at..]);
    vector
}

/// Stores the lanes up to the end of a slice.
#[inline(always)]
fn store<S: Simd, T: Real>(x: &mut [T], at: usize, value: Vector<S, T>) {
    if at + Vector::<S, T>::LEN <= x.len() {
        value.store_slice(&mut x[at..at + Vector::<S, T>::LEN]);
    } else {
        let end = x.len();
        x[at..].copy_from_slice(&value.as_slice()[..end - at]);
    }
}
