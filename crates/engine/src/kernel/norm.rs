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
use super::shared::SharedPtr;
use crate::parallel;

/// Rows whose sums are taken one after another.
const BLOCK: usize = 64;

/// Rows that are looked at together.
const TOGETHER: usize = 4;

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
    let shared = SharedPtr(memory.as_mut_ptr());
    norm.for_blocks(move |_, at, len| {
        let shared = shared;
        // SAFETY: everything lies in the memory (asserted above), the plan keeps operands and result apart, and the rows of
        // a block are written by no other.
        let (x, gain, bias, out) = unsafe {
            let row = |at: usize| shared.read(at, norm.columns);
            (shared.read(norm.x + at, len), row(norm.gain), row(norm.other), shared.write(norm.out + at, len))
        };
        dispatch!(super::level(), simd => {
            let whole = len - len % (TOGETHER * norm.columns);
            let ((x, x_rest), (out, out_rest)) = (x.split_at(whole), out.split_at_mut(whole));
            forward_rows::<_, T, TOGETHER>(simd, norm, x, [gain, bias], out);
            forward_rows::<_, T, 1>(simd, norm, x_rest, [gain, bias], out_rest);
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
    let (columns, shared) = (norm.columns, SharedPtr(memory.as_mut_ptr()));
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
        sums.fill(T::ZERO);
        dispatch!(super::level(), simd => {
            let whole = len - len % (TOGETHER * columns);
            let ((x, x_rest), (dy, dy_rest)) = (x.split_at(whole), dy.split_at(whole));
            let (dx, dx_rest) = dx.split_at_mut(whole);
            backward_rows::<_, T, TOGETHER>(simd, norm, [x, dy, gain], dx, sums);
            backward_rows::<_, T, 1>(simd, norm, [x_rest, dy_rest, gain], dx_rest, sums);
        });
    });
    let blocks = norm.rows.div_ceil(BLOCK);
    // SAFETY: as above; all blocks are done.
    let (sums, out) = unsafe {
        let at = norm.out + norm.rows * columns;
        (shared.read(scratch, blocks * 2 * columns), shared.write(at, 2 * columns))
    };
    out.fill(T::ZERO);
    for sums in sums.chunks_exact(2 * columns) {
        out.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
    }
}

/// Some rows, their means, and one over their deviations. A row's sum is a chain of additions, each of which waits for the
/// one before; several rows at a time fill the gaps.
#[derive(Clone, Copy)]
struct Rows<'a, T, const R: usize> {
    x: [&'a [T]; R],
    means: [T; R],
    scales: [T; R],
}

impl<'a, T: Real, const R: usize> Rows<'a, T, R> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, x: &'a [T], norm: &LayerNorm) -> Rows<'a, T, R> {
        let columns = norm.columns;
        let x = rows::<T, R>(x, columns);
        let mut sums = [Vector::<S, T>::splat(simd, T::ZERO); R];
        let mut squares = sums;
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |place| {
                for r in 0..R {
                    sums[r] += load::<S, T>(simd, x[r], place, T::ZERO);
                }
            },
        );
        let means = averages::<S, T, R>(sums, columns);
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |place| {
                for r in 0..R {
                    let centred = load::<S, T>(simd, x[r], place, means[r]) - means[r];
                    squares[r] = centred.mul_add(centred, squares[r]);
                }
            },
        );
        let one = Vector::<S, T>::splat(simd, T::ONE);
        let mut scales = averages::<S, T, R>(squares, columns);
        for scale in &mut scales {
            let variance = Vector::<S, T>::splat(simd, *scale) + T::from_f64(norm.epsilon);
            *scale = (one / variance.sqrt()).as_slice()[0];
        }
        Rows { x, means, scales }
    }

    /// Numbers of a row when it is normal.
    #[inline(always)]
    fn normal<S: Simd>(&self, simd: S, row: usize, place: Place) -> Vector<S, T> {
        let mean = self.means[row];
        (load::<S, T>(simd, self.x[row], place, mean) - mean) * self.scales[row]
    }
}

/// Some rows that follow each other.
#[inline(always)]
fn rows<T, const R: usize>(x: &[T], columns: usize) -> [&[T]; R] {
    std::array::from_fn(|r| &x[r * columns..][..columns])
}

/// The means of so many numbers each, whose sums are those of the lanes.
#[inline(always)]
fn averages<S: Simd, T: Real, const R: usize>(sums: [Vector<S, T>; R], count: usize) -> [T; R] {
    let mut averages = [T::ZERO; R];
    // Not by `map`, whose code knows nothing of the instruction set.
    for (average, sums) in averages.iter_mut().zip(sums) {
        *average = sums.reduce_sum() / T::from_f64(count as f64);
    }
    averages
}

#[inline(always)]
fn forward_rows<S: Simd, T: Real, const R: usize>(
    simd: S,
    norm: &LayerNorm,
    x: &[T],
    [gain, bias]: [&[T]; 2],
    out: &mut [T],
) {
    let columns = norm.columns;
    for (x, out) in x.chunks_exact(R * columns).zip(out.chunks_exact_mut(R * columns)) {
        let rows = Rows::<T, R>::new(simd, x, norm);
        for (r, out) in out.chunks_exact_mut(columns).enumerate() {
            each_vector::<S, T>(
                columns,
                #[inline(always)]
                |place| {
                    let gain = load::<S, T>(simd, gain, place, T::ZERO);
                    let bias = load::<S, T>(simd, bias, place, T::ZERO);
                    store::<S, T>(out, place, rows.normal(simd, r, place).mul_add(gain, bias));
                },
            );
        }
    }
}

/// The gradients of some rows; those of gain and bias are added to `sums`.
#[inline(always)]
fn backward_rows<S: Simd, T: Real, const R: usize>(
    simd: S,
    norm: &LayerNorm,
    [x, dy, gain]: [&[T]; 3],
    dx: &mut [T],
    sums: &mut [T],
) {
    let columns = norm.columns;
    let (of_gain, of_bias) = sums.split_at_mut(columns);
    let chunks = x.chunks_exact(R * columns).zip(dy.chunks_exact(R * columns));
    for ((x, dy), dx) in chunks.zip(dx.chunks_exact_mut(R * columns)) {
        let (dy, rows) = (rows::<T, R>(dy, columns), Rows::<T, R>::new(simd, x, norm));
        let mut levels = [Vector::<S, T>::splat(simd, T::ZERO); R];
        let mut slopes = levels;
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |place| {
                let gain = load::<S, T>(simd, gain, place, T::ZERO);
                let mut gain_sum = load::<S, T>(simd, of_gain, place, T::ZERO);
                let mut bias_sum = load::<S, T>(simd, of_bias, place, T::ZERO);
                for r in 0..R {
                    let dy = load::<S, T>(simd, dy[r], place, T::ZERO);
                    let (g, normal) = (dy * gain, rows.normal(simd, r, place));
                    levels[r] += g;
                    slopes[r] = g.mul_add(normal, slopes[r]);
                    gain_sum = dy.mul_add(normal, gain_sum);
                    bias_sum += dy;
                }
                store::<S, T>(of_gain, place, gain_sum);
                store::<S, T>(of_bias, place, bias_sum);
            },
        );
        let levels = averages::<S, T, R>(levels, columns);
        let slopes = averages::<S, T, R>(slopes, columns);
        for (r, dx) in dx.chunks_exact_mut(columns).enumerate() {
            let slope = Vector::<S, T>::splat(simd, slopes[r]);
            each_vector::<S, T>(
                columns,
                #[inline(always)]
                |place| {
                    let g =
                        load::<S, T>(simd, dy[r], place, T::ZERO) * load::<S, T>(simd, gain, place, T::ZERO);
                    let value = (g - levels[r] - rows.normal(simd, r, place) * slope) * rows.scales[r];
                    store::<S, T>(dx, place, value);
                },
            );
        }
    }
}

/// Where a vector of a row begins, and whether it is a whole one.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    is_whole: bool,
}

/// Goes through the vectors of a row. The last one, which may reach beyond the row, is apart: what it takes would keep the
/// others from staying in registers.
#[inline(always)]
fn each_vector<S: Simd, T: Real>(columns: usize, mut work: impl FnMut(Place)) {
    let whole = columns - columns % Vector::<S, T>::LEN;
    for at in (0..whole).step_by(Vector::<S, T>::LEN) {
        work(Place { at, is_whole: true });
    }
    if whole < columns {
        work(Place { at: whole, is_whole: false });
    }
}

/// A vector of a row; lanes behind its end have a given number.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, x: &[T], Place { at, is_whole }: Place, fill: T) -> Vector<S, T> {
    if is_whole {
        return Vector::<S, T>::from_slice(simd, &x[at..at + Vector::<S, T>::LEN]);
    }
    let mut vector = Vector::<S, T>::splat(simd, fill);
    vector.as_mut_slice()[..x.len() - at].copy_from_slice(&x[at..]);
    vector
}

/// Stores the lanes up to the end of a row.
#[inline(always)]
fn store<S: Simd, T: Real>(x: &mut [T], Place { at, is_whole }: Place, value: Vector<S, T>) {
    if is_whole {
        value.store_slice(&mut x[at..at + Vector::<S, T>::LEN]);
    } else {
        let end = x.len();
        x[at..].copy_from_slice(&value.as_slice()[..end - at]);
    }
}
