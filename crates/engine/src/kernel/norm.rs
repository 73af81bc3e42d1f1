//! Layer normalisation, `gain (x - mean) / deviation + bias` of every row, and its gradient, in one pass over memory each.
//! The backward pass recomputes mean and deviation.
//!
//! ```text
//! n = (x - mean) / deviation, g = dy gain
//! dx = (g - mean of g - n (mean of g n)) / deviation,  dgain = sum over rows of dy n,  dbias = sum over rows of dy
//! ```
//!
//! The sums over rows are taken over blocks of 64 rows, then over the blocks in order: the rounding error stays small, and
//! the result does not depend on the number of threads.

#![expect(unsafe_code, reason = "several threads write disjoint rows")]
#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

use fearless_simd::{Simd, prelude::*};

use super::math::{Real, Vector};
use super::shared::SharedPtr;
use crate::parallel::{self, Wake};

/// Rows that are summed sequentially.
const BLOCK_ROWS: usize = 64;

/// Rows that are processed at a time.
const UNROLL_ROWS: usize = 4;

/// Smallest number of elements of a parallel task.
const TASK_MIN_LEN: usize = 1 << 14;

/// Sizes and offsets of a layer normalisation in one slice of memory. All tensors are row-major and contiguous.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// The operand, `[rows, columns]`.
    pub x: usize,
    /// The gain, `[columns]`.
    pub gain: usize,
    /// Forward: the bias, `[columns]`. Backward: the gradient of the result, `[rows, columns]`.
    pub other: usize,
    /// Forward: the result, `[rows, columns]`. Backward: the gradients of the operand, the gain and the bias, one after
    /// another.
    pub out: usize,
    /// Backward: [`LayerNorm::scratch_len`] uninitialised elements.
    pub scratch: Option<usize>,
}

impl LayerNorm {
    /// Returns the number of elements of scratch memory of the backward pass.
    pub fn scratch_len(rows: usize, columns: usize) -> usize {
        rows.div_ceil(BLOCK_ROWS) * 2 * columns
    }

    /// Returns the number of elements that are read and written.
    pub fn traffic(&self) -> usize {
        let passes = if self.scratch.is_some() { 3 } else { 2 };
        (passes * self.rows + 3) * self.columns
    }

    /// Returns the end of the last tensor in memory.
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

    /// Runs `work` on every block of rows: its index, its first element, and its number of elements.
    fn for_blocks(&self, work: impl Fn(usize, usize, usize) + Sync + Send) {
        let blocks = self.rows.div_ceil(BLOCK_ROWS);
        let task_blocks = TASK_MIN_LEN.div_ceil(BLOCK_ROWS * self.columns);
        parallel::for_each_claimed(blocks.div_ceil(task_blocks), Wake::Always, |task| {
            for block in (task * task_blocks..blocks).take(task_blocks) {
                let rows = BLOCK_ROWS.min(self.rows - block * BLOCK_ROWS);
                work(block, block * BLOCK_ROWS * self.columns, rows * self.columns);
            }
        });
    }
}

/// Computes the normalised rows.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn forward<T: Real>(memory: &mut [T], norm: &LayerNorm) {
    assert!(norm.scratch.is_none() && norm.end() <= memory.len(), "tensor out of bounds of the memory");
    let (all, shared) = (norm.rows * norm.columns, SharedPtr(memory.as_mut_ptr()));
    // SAFETY: all tensors are in bounds (asserted above), and operands and result are disjoint by the plan.
    let (x, gain, bias, out) = unsafe {
        let row = |at: usize| Some(shared.read(at, norm.columns));
        (shared.read(norm.x, all), row(norm.gain), row(norm.other), shared.write(norm.out, all))
    };
    normalise_rows(x, norm.columns, [gain, bias], norm.epsilon, out);
}

/// Computes `gain (x - mean) / deviation + bias` of every row; without a gain it is 1, without a bias 0.
///
/// # Panics
/// If `out` or a parameter has the wrong length.
pub fn normalise_rows<T: Real>(
    x: &[T],
    columns: usize,
    [gain, bias]: [Option<&[T]>; 2],
    epsilon: f64,
    out: &mut [T],
) {
    let is_row = |row: Option<&[T]>| row.is_none_or(|row| row.len() == columns);
    assert!(out.len() == x.len() && is_row(gain) && is_row(bias), "a tensor has the wrong length");
    if x.is_empty() {
        return;
    }
    // Rows are independent, so the size of the groups does not change results.
    let group = TASK_MIN_LEN.div_ceil(columns).next_multiple_of(UNROLL_ROWS) * columns;
    let mut items = vec![(); x.len().div_ceil(group)];
    parallel::for_each_claimed_chunk(out, group, &mut items, Wake::Always, |index, out, ()| {
        let (len, x) = (out.len(), &x[index * group..][..out.len()]);
        dispatch!(super::level(), simd => {
            let whole = len - len % (UNROLL_ROWS * columns);
            let ((x, x_rest), (out, out_rest)) = (x.split_at(whole), out.split_at_mut(whole));
            forward_rows::<_, T, UNROLL_ROWS>(simd, (columns, epsilon), x, [gain, bias], out);
            forward_rows::<_, T, 1>(simd, (columns, epsilon), x_rest, [gain, bias], out_rest);
        });
    });
}

/// Computes the gradients of the operands.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn backward<T: Real>(memory: &mut [T], norm: &LayerNorm) {
    assert!(norm.end() <= memory.len(), "tensor out of bounds of the memory");
    let scratch = norm.scratch.expect("the backward pass needs scratch memory");
    let (columns, shared) = (norm.columns, SharedPtr(memory.as_mut_ptr()));
    norm.for_blocks(move |block, at, len| {
        let shared = shared;
        // SAFETY: as in the forward pass; every block has its own sums.
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
            let whole = len - len % (UNROLL_ROWS * columns);
            let ((x, x_rest), (dy, dy_rest)) = (x.split_at(whole), dy.split_at(whole));
            let (dx, dx_rest) = dx.split_at_mut(whole);
            backward_rows::<_, T, UNROLL_ROWS>(simd, norm, [x, dy, gain], dx, sums);
            backward_rows::<_, T, 1>(simd, norm, [x_rest, dy_rest, gain], dx_rest, sums);
        });
    });
    let blocks = norm.rows.div_ceil(BLOCK_ROWS);
    // SAFETY: as above; all blocks are complete.
    let (sums, out) = unsafe {
        let at = norm.out + norm.rows * columns;
        (shared.read(scratch, blocks * 2 * columns), shared.write(at, 2 * columns))
    };
    out.fill(T::ZERO);
    for sums in sums.chunks_exact(2 * columns) {
        out.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
    }
}

/// Rows with their means and the reciprocals of their deviations. The additions of a row form a dependency chain; several
/// rows at a time hide its latency.
#[derive(Clone, Copy)]
struct Rows<'a, T, const R: usize> {
    x: [&'a [T]; R],
    means: [T; R],
    scales: [T; R],
}

impl<'a, T: Real, const R: usize> Rows<'a, T, R> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, x: &'a [T], columns: usize, epsilon: f64) -> Rows<'a, T, R> {
        let x = rows::<T, R>(x, columns);
        let mut sums = [Vector::<S, T>::splat(simd, T::ZERO); R];
        let mut squares = sums;
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |position| {
                for r in 0..R {
                    sums[r] += load::<S, T>(simd, x[r], position, T::ZERO);
                }
            },
        );
        let means = averages::<S, T, R>(sums, columns);
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |position| {
                for r in 0..R {
                    let centred = load::<S, T>(simd, x[r], position, means[r]) - means[r];
                    squares[r] = centred.mul_add(centred, squares[r]);
                }
            },
        );
        let one = Vector::<S, T>::splat(simd, T::ONE);
        let mut scales = averages::<S, T, R>(squares, columns);
        for scale in &mut scales {
            let variance = Vector::<S, T>::splat(simd, *scale) + T::from_f64(epsilon);
            *scale = (one / variance.sqrt()).as_slice()[0];
        }
        Rows { x, means, scales }
    }

    /// Returns normalised elements of a row.
    #[inline(always)]
    fn normalised<S: Simd>(&self, simd: S, row: usize, position: Position) -> Vector<S, T> {
        let mean = self.means[row];
        (load::<S, T>(simd, self.x[row], position, mean) - mean) * self.scales[row]
    }
}

/// Returns consecutive rows.
#[inline(always)]
fn rows<T, const R: usize>(x: &[T], columns: usize) -> [&[T]; R] {
    let mut rows = [x; R];
    // `array::from_fn` would not always be inlined.
    for (row, x) in rows.iter_mut().zip(x.chunks_exact(columns)) {
        *row = x;
    }
    rows
}

/// Returns the means of `count` numbers each, given their sums per lane.
#[inline(always)]
fn averages<S: Simd, T: Real, const R: usize>(sums: [Vector<S, T>; R], count: usize) -> [T; R] {
    let mut averages = [T::ZERO; R];
    // `array::map` would not be compiled for the instruction set.
    for (average, sums) in averages.iter_mut().zip(sums) {
        *average = sums.reduce_sum() / T::from_f64(count as f64);
    }
    averages
}

#[inline(always)]
fn forward_rows<S: Simd, T: Real, const R: usize>(
    simd: S,
    (columns, epsilon): (usize, f64),
    x: &[T],
    [gain, bias]: [Option<&[T]>; 2],
    out: &mut [T],
) {
    for (x, out) in x.chunks_exact(R * columns).zip(out.chunks_exact_mut(R * columns)) {
        let rows = Rows::<T, R>::new(simd, x, columns, epsilon);
        for (r, out) in out.chunks_exact_mut(columns).enumerate() {
            each_vector::<S, T>(
                columns,
                #[inline(always)]
                |position| {
                    let gain = parameter::<S, T>(simd, gain, position, T::ONE);
                    let bias = parameter::<S, T>(simd, bias, position, T::ZERO);
                    store::<S, T>(out, position, rows.normalised(simd, r, position).mul_add(gain, bias));
                },
            );
        }
    }
}

/// Computes the gradients of some rows, and adds those of gain and bias to `sums`.
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
    let (gain, of_bias) = (&gain[..columns], &mut of_bias[..columns]);
    let chunks = x.chunks_exact(R * columns).zip(dy.chunks_exact(R * columns));
    for ((x, dy), dx) in chunks.zip(dx.chunks_exact_mut(R * columns)) {
        let (dy, rows) = (rows::<T, R>(dy, columns), Rows::<T, R>::new(simd, x, columns, norm.epsilon));
        let mut sum_g = [Vector::<S, T>::splat(simd, T::ZERO); R];
        let mut sum_gn = sum_g;
        each_vector::<S, T>(
            columns,
            #[inline(always)]
            |position| {
                let gain = load::<S, T>(simd, gain, position, T::ZERO);
                let mut gain_sum = load::<S, T>(simd, of_gain, position, T::ZERO);
                let mut bias_sum = load::<S, T>(simd, of_bias, position, T::ZERO);
                for r in 0..R {
                    let dy = load::<S, T>(simd, dy[r], position, T::ZERO);
                    let (g, normalised) = (dy * gain, rows.normalised(simd, r, position));
                    sum_g[r] += g;
                    sum_gn[r] = g.mul_add(normalised, sum_gn[r]);
                    gain_sum = dy.mul_add(normalised, gain_sum);
                    bias_sum += dy;
                }
                store::<S, T>(of_gain, position, gain_sum);
                store::<S, T>(of_bias, position, bias_sum);
            },
        );
        let mean_g = averages::<S, T, R>(sum_g, columns);
        let mean_gn = averages::<S, T, R>(sum_gn, columns);
        for (r, dx) in dx.chunks_exact_mut(columns).enumerate() {
            let mean_gn = Vector::<S, T>::splat(simd, mean_gn[r]);
            each_vector::<S, T>(
                columns,
                #[inline(always)]
                |position| {
                    let g = load::<S, T>(simd, dy[r], position, T::ZERO)
                        * load::<S, T>(simd, gain, position, T::ZERO);
                    let value =
                        (g - mean_g[r] - rows.normalised(simd, r, position) * mean_gn) * rows.scales[r];
                    store::<S, T>(dx, position, value);
                },
            );
        }
    }
}

/// Position of a vector in a row, and whether all of its lanes are in the row.
#[derive(Clone, Copy)]
struct Position {
    at: usize,
    is_whole: bool,
}

/// Calls `work` for each vector of a row. The last, partial vector is handled separately: its code would make the compiler
/// spill the registers of the others.
#[inline(always)]
fn each_vector<S: Simd, T: Real>(columns: usize, mut work: impl FnMut(Position)) {
    let mut at = 0;
    // This condition is also the bounds check of slices of `columns` elements, which the compiler then removes.
    while at + Vector::<S, T>::LEN <= columns {
        work(Position { at, is_whole: true });
        at += Vector::<S, T>::LEN;
    }
    if at < columns {
        work(Position { at, is_whole: false });
    }
}

/// Loads a vector of a row; lanes after the end are `fill`.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, x: &[T], Position { at, is_whole }: Position, fill: T) -> Vector<S, T> {
    if is_whole {
        return Vector::<S, T>::from_slice(simd, &x[at..at + Vector::<S, T>::LEN]);
    }
    let mut vector = Vector::<S, T>::splat(simd, fill);
    vector.as_mut_slice()[..x.len() - at].copy_from_slice(&x[at..]);
    vector
}

/// Loads a vector of a parameter, or returns the value that it has by default.
#[inline(always)]
fn parameter<S: Simd, T: Real>(simd: S, row: Option<&[T]>, at: Position, default: T) -> Vector<S, T> {
    match row {
        Some(row) => load::<S, T>(simd, row, at, T::ZERO),
        None => Vector::<S, T>::splat(simd, default),
    }
}

/// Stores the lanes that are in the row.
#[inline(always)]
fn store<S: Simd, T: Real>(x: &mut [T], Position { at, is_whole }: Position, value: Vector<S, T>) {
    if is_whole {
        value.store_slice(&mut x[at..at + Vector::<S, T>::LEN]);
    } else {
        let end = x.len();
        x[at..].copy_from_slice(&value.as_slice()[..end - at]);
    }
}
