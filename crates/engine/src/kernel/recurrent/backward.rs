//! Backward pass, in blocks of steps. The gradients of the weights are accumulated block by block while the gate gradients
//! are in the caches. The sums over rows and steps are matrix multiplications over a whole block, whose order does not
//! depend on the chunks of the batch.
//!
//! Gradients vanish over time. Those below [`Cell::least_gradient`] are set to 0, and a chunk of the batch whose gate
//! gradients at a step are all 0 skips the matrix multiplications.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use fearless_simd::{Simd, prelude::*};

use super::{MAX_CHUNK_ROWS, MIN_CHUNK_ROWS, Pass, Steps, for_chunks, load, load_or_zero, store};
use crate::graph::Cell;
use crate::kernel::math::{self, Real, Vector};
use crate::kernel::matmul::{Gemm, GemmElement, span};
use crate::kernel::shared::SharedPtr;

/// Rows of the gate gradients of a block: 128 rows of 4 x 128 units are a quarter of a megabyte.
const BLOCK_ROWS: usize = 128;

/// Alignment of the tensors in the scratch memory, in elements: a cache line of 32-bit elements.
const CACHE_LINE: usize = 16;

/// Rows that are summed before they are added to the total, which bounds the rounding error.
const SUM_ROWS: usize = 64;

/// Offsets into the scratch memory.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// Gradient of the state from the next step, [batch, hidden].
    carry: usize,
    /// Gradient of the cell state of an LSTM from the next step.
    cell_state: usize,
    /// Sums of the gate gradients, [4 * hidden].
    sums: usize,
    /// Gate gradients, [steps of a block, batch, 4 * hidden].
    gates: usize,
    /// Packed weights of the state, and of the inputs, both transposed.
    weights: usize,
    input_weights: usize,
    pub len: usize,
}

impl Scratch {
    pub fn new<T: GemmElement>(cell: Cell, sizes: [usize; 4]) -> Scratch {
        let [_, batch, hidden, features] = sizes;
        let mut len = 0;
        let mut place = |elements: usize| {
            let begin = len;
            len += elements.next_multiple_of(CACHE_LINE);
            begin
        };
        let [carry, cell_state] = [0, 1].map(|_| place(batch * hidden));
        let sums = place(4 * hidden);
        let gates = place(block_steps(sizes) * batch * 4 * hidden);
        let packed = |[begin, end]: &[usize; 2]| T::packed_len((end - begin) * hidden, hidden);
        let weights = place(cell.columns().iter().map(packed).sum());
        let input_weights = place(T::packed_len(cell.gates() * hidden, features));
        Scratch { carry, cell_state, sums, gates, weights, input_weights, len }
    }
}

/// Returns the number of steps of a block.
fn block_steps([time, batch, ..]: [usize; 4]) -> usize {
    (BLOCK_ROWS / batch.max(1)).clamp(1, time.max(1))
}

/// Computes the gradients of all operands from those of the states and the tape.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn backward<T: Real + GemmElement>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "tensor out of bounds of the memory");
    let Pass::Backward { gradients, out, of_inputs } = steps.pass else {
        unreachable!("not a backward pass")
    };
    let scratch = Scratch::new::<T>(steps.cell, steps.sizes());
    let shared = SharedPtr(memory.as_mut_ptr());
    let mut all = Backward { steps: *steps, shared, gradients, out, of_inputs, scratch, is_finite: false };
    // The tile kernels give a row the same bits whatever rows it is computed with; other GEMMs may not.
    let is_ours = T::packed_len(1, 1) > 0;
    let least = if is_ours { MIN_CHUNK_ROWS } else { MAX_CHUNK_ROWS };
    // SAFETY: all tensors are in bounds (asserted above) and disjoint by the plan; the rows of the chunks are disjoint, and
    // sums over all rows are taken when the chunks are complete.
    unsafe {
        all.is_finite = all.has_finite_weights();
        all.pack();
        let block = block_steps(steps.sizes());
        let mut end = steps.time;
        while end > 0 {
            let begin = end.saturating_sub(block);
            let is_nonzero = AtomicBool::new(false);
            for_chunks(steps.batch, least, |first, rows| {
                if all.steps(begin..end, first, rows) {
                    is_nonzero.store(true, Ordering::Relaxed);
                }
            });
            all.accumulate_weights(begin..end, is_nonzero.into_inner());
            end = begin;
        }
        all.finish();
    }
}

#[derive(Clone, Copy)]
struct Backward<T> {
    steps: Steps,
    shared: SharedPtr<T>,
    gradients: usize,
    out: usize,
    of_inputs: bool,
    scratch: Scratch,
    /// Whether all weights are finite, so that their products with zeros are zeros.
    is_finite: bool,
}

impl<T: Real + GemmElement> Backward<T> {
    /// Returns the offset of a tensor in the scratch memory.
    fn place(&self, of: impl Fn(&Scratch) -> usize) -> usize {
        self.steps.scratch + of(&self.scratch)
    }

    /// Returns the offsets of the gradients of all operands.
    fn parts(&self) -> [usize; 5] {
        let mut begin = self.out;
        self.steps.cell.gradient_lengths(self.steps.sizes()).map(|len| {
            begin += len;
            begin - len
        })
    }

    /// Packs the weights, and clears the sums.
    ///
    /// # Safety
    /// All tensors are in bounds, and nothing else uses the scratch memory.
    unsafe fn pack(&self) {
        let Steps { hidden, features, input_weights: (at, [by_row, by_column]), .. } = self.steps;
        // SAFETY: guaranteed by the caller; the scratch memory has room for the packed weights.
        unsafe {
            self.shared.write(self.place(|scratch| scratch.sums), 4 * hidden).fill(T::ZERO);
            for part in self.weight_slices() {
                T::pack(self.shared.0, [part.depth, hidden], part.weights, part.packed);
            }
            if self.of_inputs {
                let transposed = (at, [by_column, by_row]);
                let to = self.place(|scratch| scratch.input_weights);
                T::pack(self.shared.0, [self.steps.width(), features], transposed, to);
            }
        }
    }

    /// Returns whether all weights are finite.
    ///
    /// # Safety
    /// They are in bounds, and nothing writes them.
    unsafe fn has_finite_weights(&self) -> bool {
        let Steps { hidden, features, input_weights, weights, .. } = self.steps;
        [(hidden, weights), (features, input_weights)].into_iter().all(|(rows, (at, strides))| {
            // SAFETY: guaranteed by the caller; elements between rows are checked too, which is harmless.
            is_finite(unsafe { self.shared.read(at, span(rows, self.steps.width(), strides)) })
        })
    }

    /// Computes the steps of a block for a chunk of the batch, and returns whether any gate gradient is not 0.
    ///
    /// # Safety
    /// All tensors are in bounds and packed; nothing else uses the rows of this chunk.
    unsafe fn steps(&self, block: Range<usize>, first: usize, rows: usize) -> bool {
        let Steps { cell, time, batch, hidden, features, .. } = self.steps;
        let shared = self.shared;
        let carry = self.place(|scratch| scratch.carry) + first * hidden;
        let cell_state = self.place(|scratch| scratch.cell_state) + first * hidden;
        let mut is_nonzero = false;
        for t in block.clone().rev() {
            let gates = self.gates(t - block.start) + first * 4 * hidden;
            // SAFETY: in bounds, and only rows of this chunk; the tensors are disjoint by the plan, and so are those in the
            // scratch memory.
            let mut pass = unsafe {
                let part = |part| shared.read(self.steps.part(part, t, first), rows * hidden);
                let carried = usize::from(cell == Cell::Lstm);
                Step {
                    hidden,
                    is_last: t + 1 == time,
                    gradients: shared.read(self.gradients + (t * batch + first) * hidden, rows * hidden),
                    parts: [0, 1, 2, 3, 4].map(part),
                    output_gate: if cell == Cell::Lstm { part(5) } else { &[] },
                    before: (t > 0)
                        .then(|| shared.read(self.steps.part(carried, t - 1, first), rows * hidden)),
                    carry: shared.write(carry, rows * hidden),
                    cell_state: shared.write(cell_state, rows * hidden),
                    out: shared.write(gates, rows * 4 * hidden),
                }
            };
            let is_step_nonzero = match cell {
                Cell::Gru => dispatch!(crate::kernel::level(), simd => pass.gru(simd)),
                Cell::Lstm => dispatch!(crate::kernel::level(), simd => pass.lstm(simd)),
            };
            is_nonzero |= is_step_nonzero;
            let input_gradients = (self.parts()[0] + (t * batch + first) * features, [features, 1]);
            if !is_step_nonzero && self.is_finite {
                // SAFETY: in bounds, and only rows of this chunk.
                unsafe {
                    // For a GRU, it holds the gradient that bypasses the gates.
                    if cell == Cell::Lstm {
                        shared.write(carry, rows * hidden).fill(T::ZERO);
                    }
                    if self.of_inputs {
                        shared.write(input_gradients.0, rows * features).fill(T::ZERO);
                    }
                }
                continue;
            }
            if self.of_inputs {
                let (at, [by_row, by_column]) = self.steps.input_weights;
                let gemm = Gemm {
                    sizes: [rows, features, self.steps.width()],
                    a: (gates, [4 * hidden, 1]),
                    b: (at, [by_column, by_row]),
                    out: input_gradients,
                    accumulate: false,
                };
                // SAFETY: in bounds; only rows of this chunk are written.
                unsafe {
                    T::multiply_packed(shared.0, &gemm, self.place(|scratch| scratch.input_weights));
                }
            }
            if t == 0 {
                break;
            }
            for part in self.weight_slices() {
                let gemm = Gemm {
                    sizes: [rows, hidden, part.depth],
                    a: (gates + part.column, [4 * hidden, 1]),
                    b: part.weights,
                    out: (carry, [hidden, 1]),
                    // The gradient that bypasses the gates of a GRU is already there.
                    accumulate: cell == Cell::Gru,
                };
                // SAFETY: in bounds; only rows of this chunk in the scratch memory are written.
                unsafe { T::multiply_packed(shared.0, &gemm, part.packed) };
            }
        }
        is_nonzero
    }

    /// Returns the offset of the gate gradients of a step of a block.
    fn gates(&self, step: usize) -> usize {
        self.place(|scratch| scratch.gates) + step * self.steps.batch * 4 * self.steps.hidden
    }

    /// Adds the gradients of weights and biases of a block. `is_nonzero`: whether any gate gradient is not 0.
    ///
    /// # Safety
    /// All tensors are in bounds, the gate gradients of the block are complete, and nothing else uses the result.
    unsafe fn accumulate_weights(&self, block: Range<usize>, is_nonzero: bool) {
        let Steps { time, batch, hidden, features, .. } = self.steps;
        let (rows, width) = (block.len() * batch, self.steps.width());
        let inputs = self.steps.inputs + block.start * batch * features;
        // The states are finite where the gradients are.
        // SAFETY: the inputs of the block, which nothing writes.
        if !is_nonzero && block.end < time && is_finite(unsafe { self.shared.read(inputs, rows * features) })
        {
            return;
        }
        let gates = self.gates(0);
        let accumulate = block.end < time;
        let [_, of_input_weights, of_weights, ..] = self.parts();
        let multiply = |sizes, a, b, out| {
            // SAFETY: the matrices are in bounds; this kernel alone writes the result.
            unsafe { T::multiply_within(self.shared.0, &Gemm { sizes, a, b, out, accumulate }) };
        };
        multiply(
            [features, width, rows],
            (inputs, [1, features]),
            (gates, [4 * hidden, 1]),
            (of_input_weights, [1, features]),
        );
        // The state before the first step is zero.
        let without = usize::from(block.start == 0);
        let before = (self.steps.part(0, (block.start + without).max(1) - 1, 0), [hidden, 1]);
        let gates = gates + without * batch * 4 * hidden;
        for part in self.weight_slices() {
            let transposed = (gates + part.column, [1, 4 * hidden]);
            let out = (of_weights + part.first * hidden, [hidden, 1]);
            multiply([part.depth, hidden, rows - without * batch], transposed, before, out);
        }
        // SAFETY: the gate gradients, and their sums.
        let (gates, sums) = unsafe {
            let sums = self.place(|scratch| scratch.sums);
            (self.shared.read(self.gates(0), rows * 4 * hidden), self.shared.write(sums, 4 * hidden))
        };
        dispatch!(crate::kernel::level(), simd => add_rows::<_, T>(simd, gates, sums));
    }

    /// Writes the gradients of the biases.
    ///
    /// # Safety
    /// Same as for [`Backward::accumulate_weights`].
    unsafe fn finish(&self) {
        let Steps { hidden, .. } = self.steps;
        let [.., of_input_bias, of_bias] = self.parts();
        // SAFETY: the sums, and the last tensors of the result.
        let (sums, of_input_bias, of_bias) = unsafe {
            let sums = self.shared.read(self.place(|scratch| scratch.sums), 4 * hidden);
            let [input, state] = [of_input_bias, of_bias].map(|at| self.shared.write(at, self.steps.width()));
            (sums, input, state)
        };
        of_input_bias.copy_from_slice(&sums[..self.steps.width()]);
        for part in self.weight_slices() {
            of_bias[part.first..][..part.depth].copy_from_slice(&sums[part.column..][..part.depth]);
        }
    }

    fn weight_slices(&self) -> impl Iterator<Item = WeightSlice> {
        let (hidden, (weights, [by_row, by_column])) = (self.steps.hidden, self.steps.weights);
        let (mut first, mut packed) = (0, self.place(|scratch| scratch.weights));
        self.steps.cell.columns().iter().map(move |[begin, end]| {
            let depth = (end - begin) * hidden;
            let weights = (weights + first * by_column, [by_column, by_row]);
            let part = WeightSlice { column: begin * hidden, first, depth, weights, packed };
            first += depth;
            packed += T::packed_len(depth, hidden);
            part
        })
    }
}

/// Weights of the state that belong to adjacent columns of the gate gradients.
struct WeightSlice {
    /// First column of the gate gradients, and of the weights.
    column: usize,
    first: usize,
    depth: usize,
    /// Transposed, [depth, hidden].
    weights: (usize, [usize; 2]),
    packed: usize,
}

/// Returns whether all numbers are finite.
fn is_finite<T: Real>(numbers: &[T]) -> bool {
    // Without an early exit within a chunk, the compiler vectorises the loop.
    let all = |chunk: &[T]| chunk.iter().fold(true, |all, x| all & x.to_f64().is_finite());
    numbers.chunks(1024).all(all)
}

/// Adds all rows to `sums`, which is as long as a row.
#[inline(always)]
fn add_rows<S: Simd, T: Real>(simd: S, rows: &[T], sums: &mut [T]) {
    let (lanes, width) = (Vector::<S, T>::LEN, sums.len());
    let mut column = 0;
    while column < width {
        let end = width.min(column + 4 * lanes);
        for rows in rows.chunks(SUM_ROWS * width) {
            let mut own = [Vector::<S, T>::splat(simd, T::ZERO); 4];
            for row in rows.chunks_exact(width) {
                for (own, at) in own.iter_mut().zip((column..end).step_by(lanes)) {
                    *own += load::<S, T>(simd, row, at, end);
                }
            }
            for (own, at) in own.into_iter().zip((column..end).step_by(lanes)) {
                let sum = load::<S, T>(simd, sums, at, end) + own;
                store::<S, T>(sums, at, end, sum);
            }
        }
        column = end;
    }
}

/// One step of one chunk, before the matrix multiplications.
struct Step<'a, T> {
    hidden: usize,
    is_last: bool,
    gradients: &'a [T],
    parts: [&'a [T]; 5],
    output_gate: &'a [T],
    before: Option<&'a [T]>,
    /// Gradient of the state from the next step.
    carry: &'a mut [T],
    /// Gradient of the cell state of an LSTM from the next step.
    cell_state: &'a mut [T],
    out: &'a mut [T],
}

/// Stores the lanes of one gate of one row.
#[inline(always)]
fn store_gate<S: Simd, T: Real>(to: &mut [T], hidden: usize, gate: usize, at: usize, value: Vector<S, T>) {
    store::<S, T>(to, gate * hidden + at, (gate + 1) * hidden, value);
}

/// Returns the gradient, or 0 where it is negligible.
#[inline(always)]
fn flush_small<S: Simd, T: Real>(simd: S, gradient: Vector<S, T>) -> Vector<S, T> {
    let least = Vector::<S, T>::splat(simd, T::from_f64(Cell::least_gradient(T::DTYPE)));
    gradient.abs().simd_lt(least).select(Vector::<S, T>::splat(simd, T::ZERO), gradient)
}

/// Both cells return whether any gate gradient is not 0.
impl<T: Real> Step<'_, T> {
    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) -> bool {
        let (one, zero) = (Vector::<S, T>::splat(simd, T::ONE), Vector::<S, T>::splat(simd, T::ZERO));
        let mut total = zero;
        let hidden = self.hidden;
        for row in 0..self.gradients.len() / hidden.max(1) {
            let (begin, end) = (row * hidden, (row + 1) * hidden);
            for at in (0..hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let reset = load::<S, T>(simd, self.parts[1], place, end);
                let update = load::<S, T>(simd, self.parts[2], place, end);
                let candidate = load::<S, T>(simd, self.parts[3], place, end);
                let new_hidden = load::<S, T>(simd, self.parts[4], place, end);
                let carried = (!self.is_last).then_some(&*self.carry);
                let state = load::<S, T>(simd, self.gradients, place, end)
                    + load_or_zero::<S, T>(simd, carried, place, end);
                let state = flush_small::<S, T>(simd, state);
                // state = candidate + update * (before - candidate)
                let before = load_or_zero::<S, T>(simd, self.before, place, end);
                let d_update = state * (before - candidate) * update * (one - update);
                let d_candidate = state * (one - update) * (one - candidate * candidate);
                let d_new_hidden = d_candidate * reset;
                let d_reset = d_candidate * new_hidden * reset * (one - reset);
                store::<S, T>(self.carry, place, end, state * update);
                store_gate::<S, T>(self.out, hidden, row * 4, at, d_reset);
                store_gate::<S, T>(self.out, hidden, row * 4 + 1, at, d_update);
                store_gate::<S, T>(self.out, hidden, row * 4 + 2, at, d_candidate);
                store_gate::<S, T>(self.out, hidden, row * 4 + 3, at, d_new_hidden);
                total += d_reset.abs() + d_update.abs() + d_candidate.abs();
            }
        }
        !total.simd_eq(zero).all_true()
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) -> bool {
        let (one, zero) = (Vector::<S, T>::splat(simd, T::ONE), Vector::<S, T>::splat(simd, T::ZERO));
        let mut total = zero;
        let hidden = self.hidden;
        for row in 0..self.gradients.len() / hidden.max(1) {
            let (begin, end) = (row * hidden, (row + 1) * hidden);
            for at in (0..hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let cell_state = load::<S, T>(simd, self.parts[1], place, end);
                let input = load::<S, T>(simd, self.parts[2], place, end);
                let forget = load::<S, T>(simd, self.parts[3], place, end);
                let candidate = load::<S, T>(simd, self.parts[4], place, end);
                let output_gate = load::<S, T>(simd, self.output_gate, place, end);
                let carried = (!self.is_last).then_some(&*self.carry);
                let output = load::<S, T>(simd, self.gradients, place, end)
                    + load_or_zero::<S, T>(simd, carried, place, end);
                let output = flush_small::<S, T>(simd, output);
                let tanh_state = math::tanh::<S, T>(simd, cell_state);
                let carried = (!self.is_last).then_some(&*self.cell_state);
                let d_cell_state = load_or_zero::<S, T>(simd, carried, place, end)
                    + output * output_gate * (one - tanh_state * tanh_state);
                let d_cell_state = flush_small::<S, T>(simd, d_cell_state);
                let before = load_or_zero::<S, T>(simd, self.before, place, end);
                let d_input = d_cell_state * candidate * input * (one - input);
                let d_forget = d_cell_state * before * forget * (one - forget);
                let d_candidate = d_cell_state * input * (one - candidate * candidate);
                let d_output_gate = output * tanh_state * output_gate * (one - output_gate);
                store::<S, T>(self.cell_state, place, end, d_cell_state * forget);
                store_gate::<S, T>(self.out, hidden, row * 4, at, d_input);
                store_gate::<S, T>(self.out, hidden, row * 4 + 1, at, d_forget);
                store_gate::<S, T>(self.out, hidden, row * 4 + 2, at, d_candidate);
                store_gate::<S, T>(self.out, hidden, row * 4 + 3, at, d_output_gate);
                total += (d_input.abs() + d_forget.abs()) + (d_candidate.abs() + d_output_gate.abs());
            }
        }
        !total.simd_eq(zero).all_true()
    }
}
