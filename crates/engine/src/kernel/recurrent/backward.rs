//! From gradients of the states to those of the operands, in blocks of steps: what the steps of a block leave for the
//! weights is added up while it lies in the caches, if a step of the batch is no larger than these. Sums over rows and steps
//! are taken by products over a whole block, whose order does not depend on the shares of the batch.
//!
//! Going back, a gradient fades. What is below [`Cell::least_gradient`] is dropped, and a share of the batch whose gates have
//! no gradient at a step multiplies nothing there.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use fearless_simd::{Simd, prelude::*};

use super::{FEW_ROWS, Pass, ROWS, Steps, for_shares, load, load_or_zero, store};
use crate::graph::Cell;
use crate::kernel::math::{self, Real, Vector};
use crate::kernel::matmul::{Gemm, GemmElement, span};
use crate::kernel::shared::SharedPtr;

/// Rows of the gradients of a block: 128 of four times 128 units take a quarter of a megabyte.
const BLOCK_ROWS: usize = 128;

/// Parts of the scratch memory begin at a multiple of so many elements: at a cache line, if they are of 32 bits.
const LINE: usize = 16;

/// Rows that are added up before they are added to a sum: an addend goes through few additions even if there are many rows.
const SUMMED: usize = 64;

/// Where everything is in the scratch memory, from its begin.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// The gradient of the state that comes from the next step, [batch, hidden].
    carry: usize,
    /// The same of the memory of an LSTM.
    memory: usize,
    /// The sums of the gradients of the gates, [4 * hidden].
    sums: usize,
    /// The gradients of the gates, [steps of a block, batch, 4 * hidden].
    gates: usize,
    /// Packed weights of the state, and of the inputs, both turned.
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
            len += elements.next_multiple_of(LINE);
            begin
        };
        let [carry, memory] = [0, 1].map(|_| place(batch * hidden));
        let sums = place(4 * hidden);
        let gates = place(block_steps(sizes) * batch * 4 * hidden);
        let packed = |[begin, end]: &[usize; 2]| T::packed_len((end - begin) * hidden, hidden);
        let weights = place(cell.columns().iter().map(packed).sum());
        let input_weights = place(T::packed_len(cell.gates() * hidden, features));
        Scratch { carry, memory, sums, gates, weights, input_weights, len }
    }
}

/// Steps of a block.
fn block_steps([time, batch, ..]: [usize; 4]) -> usize {
    (BLOCK_ROWS / batch.max(1)).clamp(1, time.max(1))
}

/// The gradients of all operands, from those of the states and the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn backward<T: Real + GemmElement>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "everything lies in the memory");
    let Pass::Backward { gradients, out, of_inputs } = steps.pass else {
        unreachable!("the other direction")
    };
    let scratch = Scratch::new::<T>(steps.cell, steps.sizes());
    let shared = SharedPtr(memory.as_mut_ptr());
    let mut all = Backward { steps: *steps, shared, gradients, out, of_inputs, scratch, is_finite: false };
    // Products of our own give a row the same bits whatever rows it is with; others may not.
    let is_ours = T::packed_len(1, 1) > 0;
    let least = if is_ours { FEW_ROWS } else { ROWS };
    // SAFETY: everything lies in the memory (asserted above), and the tensors apart from each other by the plan; shares have
    // rows of their own, and what is added up over all rows is added up when the shares are done.
    unsafe {
        all.is_finite = all.has_finite_weights();
        all.pack();
        let block = block_steps(steps.sizes());
        let mut end = steps.time;
        while end > 0 {
            let begin = end.saturating_sub(block);
            let is_left = AtomicBool::new(false);
            for_shares(steps.batch, least, |first, rows| {
                if all.steps(begin..end, first, rows) {
                    is_left.store(true, Ordering::Relaxed);
                }
            });
            all.add_up(begin..end, is_left.into_inner());
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
    /// Whether all weights are finite: zeros that are multiplied with them stay zeros then.
    is_finite: bool,
}

impl<T: Real + GemmElement> Backward<T> {
    /// Where something begins that is in the scratch memory.
    fn place(&self, of: impl Fn(&Scratch) -> usize) -> usize {
        self.steps.scratch + of(&self.scratch)
    }

    /// Where the parts of the result begin.
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
    /// Everything lies in the memory, and nothing else uses the scratch memory.
    unsafe fn pack(&self) {
        let Steps { hidden, features, input_weights: (at, [by_row, by_column]), .. } = self.steps;
        // SAFETY: guaranteed by the caller; there is room for what is packed.
        unsafe {
            self.shared.write(self.place(|scratch| scratch.sums), 4 * hidden).fill(T::ZERO);
            for part in self.parts_of_weights() {
                T::pack(self.shared.0, [part.depth, hidden], part.weights, part.packed);
            }
            if self.of_inputs {
                let turned = (at, [by_column, by_row]);
                let to = self.place(|scratch| scratch.input_weights);
                T::pack(self.shared.0, [self.steps.width(), features], turned, to);
            }
        }
    }

    /// Whether all weights are finite.
    ///
    /// # Safety
    /// They lie in the memory, and nothing writes to them.
    unsafe fn has_finite_weights(&self) -> bool {
        let Steps { hidden, features, input_weights, weights, .. } = self.steps;
        [(hidden, weights), (features, input_weights)].into_iter().all(|(rows, (at, strides))| {
            // SAFETY: guaranteed by the caller; what lies between rows is looked at, too, and does no harm.
            is_finite(unsafe { self.shared.read(at, span(rows, self.steps.width(), strides)) })
        })
    }

    /// Goes back through the steps of a block with a share of the batch. Whether any gradient of a gate is not 0.
    ///
    /// # Safety
    /// Everything lies in the memory and is packed; the rows of this share are used by nothing else.
    unsafe fn steps(&self, block: Range<usize>, first: usize, rows: usize) -> bool {
        let Steps { cell, time, batch, hidden, features, .. } = self.steps;
        let shared = self.shared;
        let carry = self.place(|scratch| scratch.carry) + first * hidden;
        let memory = self.place(|scratch| scratch.memory) + first * hidden;
        let mut is_left = false;
        for t in block.clone().rev() {
            let gates = self.gates(t - block.start) + first * 4 * hidden;
            // SAFETY: rows of this share only, inside the memory; the tensors are apart from each other by the plan, and so
            // are the parts of the scratch memory.
            let mut pass = unsafe {
                let part = |part| shared.read(self.steps.part(part, t, first), rows * hidden);
                let carried = usize::from(cell == Cell::Lstm);
                Step {
                    hidden,
                    is_last: t + 1 == time,
                    gradients: shared.read(self.gradients + (t * batch + first) * hidden, rows * hidden),
                    parts: [0, 1, 2, 3, 4].map(part),
                    show: if cell == Cell::Lstm { part(5) } else { &[] },
                    before: (t > 0)
                        .then(|| shared.read(self.steps.part(carried, t - 1, first), rows * hidden)),
                    carry: shared.write(carry, rows * hidden),
                    memory: shared.write(memory, rows * hidden),
                    out: shared.write(gates, rows * 4 * hidden),
                }
            };
            let is_left_here = match cell {
                Cell::Gru => dispatch!(crate::kernel::level(), simd => pass.gru(simd)),
                Cell::Lstm => dispatch!(crate::kernel::level(), simd => pass.lstm(simd)),
            };
            is_left |= is_left_here;
            let input_gradients = (self.parts()[0] + (t * batch + first) * features, [features, 1]);
            if !is_left_here && self.is_finite {
                // SAFETY: rows of this share only, inside the memory.
                unsafe {
                    // That of a GRU holds what went past the gates.
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
                let shapes = Gemm {
                    sizes: [rows, features, self.steps.width()],
                    a: (gates, [4 * hidden, 1]),
                    b: (at, [by_column, by_row]),
                    out: input_gradients,
                    accumulate: false,
                };
                // SAFETY: everything lies in the memory; what is written are rows of this share.
                unsafe {
                    T::multiply_packed(shared.0, &shapes, self.place(|scratch| scratch.input_weights));
                }
            }
            if t == 0 {
                break;
            }
            for part in self.parts_of_weights() {
                let shapes = Gemm {
                    sizes: [rows, hidden, part.depth],
                    a: (gates + part.column, [4 * hidden, 1]),
                    b: part.weights,
                    out: (carry, [hidden, 1]),
                    // What a GRU keeps of its state is there already.
                    accumulate: cell == Cell::Gru,
                };
                // SAFETY: everything lies in the memory; what is written are rows of this share in the scratch memory.
                unsafe { T::multiply_packed(shared.0, &shapes, part.packed) };
            }
        }
        is_left
    }

    /// Where the gradients of the gates of a step of a block begin.
    fn gates(&self, step: usize) -> usize {
        self.place(|scratch| scratch.gates) + step * self.steps.batch * 4 * self.steps.hidden
    }

    /// Adds what the steps of a block have left for weights and biases. `is_left`: whether any gradient of a gate is not 0.
    ///
    /// # Safety
    /// Everything lies in the memory, the gradients of the gates of the block are complete, and nothing else uses the result.
    unsafe fn add_up(&self, block: Range<usize>, is_left: bool) {
        let Steps { time, batch, hidden, features, .. } = self.steps;
        let (rows, width) = (block.len() * batch, self.steps.width());
        let inputs = self.steps.inputs + block.start * batch * features;
        // The states are finite where the gradients are.
        // SAFETY: the inputs of the block, which nothing writes.
        if !is_left && block.end < time && is_finite(unsafe { self.shared.read(inputs, rows * features) }) {
            return;
        }
        let gates = self.gates(0);
        let accumulate = block.end < time;
        let [_, of_input_weights, of_weights, ..] = self.parts();
        let product = |sizes, a, b, out| {
            // SAFETY: the matrices lie in the memory; the result is a part of what this kernel writes.
            unsafe { T::multiply_within(self.shared.0, &Gemm { sizes, a, b, out, accumulate }) };
        };
        product(
            [features, width, rows],
            (inputs, [1, features]),
            (gates, [4 * hidden, 1]),
            (of_input_weights, [1, features]),
        );
        // The first step begins with zeros.
        let without = usize::from(block.start == 0);
        let before = (self.steps.part(0, (block.start + without).max(1) - 1, 0), [hidden, 1]);
        let gates = gates + without * batch * 4 * hidden;
        for part in self.parts_of_weights() {
            let turned = (gates + part.column, [1, 4 * hidden]);
            let out = (of_weights + part.first * hidden, [hidden, 1]);
            product([part.depth, hidden, rows - without * batch], turned, before, out);
        }
        // SAFETY: the gradients of the gates, and their sums.
        let (gates, sums) = unsafe {
            let sums = self.place(|scratch| scratch.sums);
            (self.shared.read(self.gates(0), rows * 4 * hidden), self.shared.write(sums, 4 * hidden))
        };
        dispatch!(crate::kernel::level(), simd => add_rows::<_, T>(simd, gates, sums));
    }

    /// Writes the gradients of the biases.
    ///
    /// # Safety
    /// Same as for [`Backward::add_up`].
    unsafe fn finish(&self) {
        let Steps { hidden, .. } = self.steps;
        let [.., of_input_bias, of_bias] = self.parts();
        // SAFETY: the sums, and the last parts of the result.
        let (sums, of_input_bias, of_bias) = unsafe {
            let sums = self.shared.read(self.place(|scratch| scratch.sums), 4 * hidden);
            let [input, state] = [of_input_bias, of_bias].map(|at| self.shared.write(at, self.steps.width()));
            (sums, input, state)
        };
        of_input_bias.copy_from_slice(&sums[..self.steps.width()]);
        for part in self.parts_of_weights() {
            of_bias[part.first..][..part.depth].copy_from_slice(&sums[part.column..][..part.depth]);
        }
    }

    fn parts_of_weights(&self) -> impl Iterator<Item = PartOfWeights> {
        let (hidden, (weights, [by_row, by_column])) = (self.steps.hidden, self.steps.weights);
        let (mut first, mut packed) = (0, self.place(|scratch| scratch.weights));
        self.steps.cell.columns().iter().map(move |[begin, end]| {
            let depth = (end - begin) * hidden;
            let weights = (weights + first * by_column, [by_column, by_row]);
            let part = PartOfWeights { column: begin * hidden, first, depth, weights, packed };
            first += depth;
            packed += T::packed_len(depth, hidden);
            part
        })
    }
}

/// Weights of the state that meet columns of the gradients which lie side by side.
struct PartOfWeights {
    /// The first column of the gradients, and of the weights.
    column: usize,
    first: usize,
    depth: usize,
    /// Turned, [depth, hidden].
    weights: (usize, [usize; 2]),
    packed: usize,
}

/// Whether all numbers are finite.
fn is_finite<T: Real>(numbers: &[T]) -> bool {
    // Without an end before the end of a piece: so it is done in vectors.
    let all = |piece: &[T]| piece.iter().fold(true, |all, x| all & x.to_f64().is_finite());
    numbers.chunks(1024).all(all)
}

/// Adds all rows to `sums`, which is as long as a row.
#[inline(always)]
fn add_rows<S: Simd, T: Real>(simd: S, rows: &[T], sums: &mut [T]) {
    let (lanes, width) = (Vector::<S, T>::LEN, sums.len());
    let mut column = 0;
    while column < width {
        let end = width.min(column + 4 * lanes);
        for rows in rows.chunks(SUMMED * width) {
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

/// One step of one share, before the products.
struct Step<'a, T> {
    hidden: usize,
    is_last: bool,
    gradients: &'a [T],
    parts: [&'a [T]; 5],
    show: &'a [T],
    before: Option<&'a [T]>,
    /// The gradient of the state that comes from the next step.
    carry: &'a mut [T],
    /// The same of the memory of an LSTM.
    memory: &'a mut [T],
    out: &'a mut [T],
}

/// Stores the lanes of one gate of one row.
#[inline(always)]
fn store_gate<S: Simd, T: Real>(to: &mut [T], hidden: usize, gate: usize, at: usize, value: Vector<S, T>) {
    store::<S, T>(to, gate * hidden + at, (gate + 1) * hidden, value);
}

/// A gradient, or 0 if next to nothing is left of it.
#[inline(always)]
fn drop_least<S: Simd, T: Real>(simd: S, gradient: Vector<S, T>) -> Vector<S, T> {
    let least = Vector::<S, T>::splat(simd, T::from_f64(Cell::least_gradient(T::DTYPE)));
    gradient.abs().simd_lt(least).select(Vector::<S, T>::splat(simd, T::ZERO), gradient)
}

/// Both cells return whether any gradient of a gate is not 0.
impl<T: Real> Step<'_, T> {
    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) -> bool {
        let (one, zero) = (Vector::<S, T>::splat(simd, T::ONE), Vector::<S, T>::splat(simd, T::ZERO));
        let mut left = zero;
        let hidden = self.hidden;
        for row in 0..self.gradients.len() / hidden.max(1) {
            let (begin, end) = (row * hidden, (row + 1) * hidden);
            for at in (0..hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let reset = load::<S, T>(simd, self.parts[1], place, end);
                let update = load::<S, T>(simd, self.parts[2], place, end);
                let fresh = load::<S, T>(simd, self.parts[3], place, end);
                let remembered = load::<S, T>(simd, self.parts[4], place, end);
                let carried = (!self.is_last).then_some(&*self.carry);
                let state = load::<S, T>(simd, self.gradients, place, end)
                    + load_or_zero::<S, T>(simd, carried, place, end);
                let state = drop_least::<S, T>(simd, state);
                // state = fresh + update * (before - fresh)
                let before = load_or_zero::<S, T>(simd, self.before, place, end);
                let d_update = state * (before - fresh) * update * (one - update);
                let d_fresh = state * (one - update) * (one - fresh * fresh);
                let d_remembered = d_fresh * reset;
                let d_reset = d_fresh * remembered * reset * (one - reset);
                store::<S, T>(self.carry, place, end, state * update);
                store_gate::<S, T>(self.out, hidden, row * 4, at, d_reset);
                store_gate::<S, T>(self.out, hidden, row * 4 + 1, at, d_update);
                store_gate::<S, T>(self.out, hidden, row * 4 + 2, at, d_fresh);
                store_gate::<S, T>(self.out, hidden, row * 4 + 3, at, d_remembered);
                left += d_reset.abs() + d_update.abs() + d_fresh.abs();
            }
        }
        !left.simd_eq(zero).all_true()
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) -> bool {
        let (one, zero) = (Vector::<S, T>::splat(simd, T::ONE), Vector::<S, T>::splat(simd, T::ZERO));
        let mut left = zero;
        let hidden = self.hidden;
        for row in 0..self.gradients.len() / hidden.max(1) {
            let (begin, end) = (row * hidden, (row + 1) * hidden);
            for at in (0..hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let memory = load::<S, T>(simd, self.parts[1], place, end);
                let write = load::<S, T>(simd, self.parts[2], place, end);
                let keep = load::<S, T>(simd, self.parts[3], place, end);
                let fresh = load::<S, T>(simd, self.parts[4], place, end);
                let show = load::<S, T>(simd, self.show, place, end);
                let carried = (!self.is_last).then_some(&*self.carry);
                let output = load::<S, T>(simd, self.gradients, place, end)
                    + load_or_zero::<S, T>(simd, carried, place, end);
                let output = drop_least::<S, T>(simd, output);
                let seen = math::tanh::<S, T>(simd, memory);
                let carried = (!self.is_last).then_some(&*self.memory);
                let d_memory =
                    load_or_zero::<S, T>(simd, carried, place, end) + output * show * (one - seen * seen);
                let d_memory = drop_least::<S, T>(simd, d_memory);
                let before = load_or_zero::<S, T>(simd, self.before, place, end);
                let d_write = d_memory * fresh * write * (one - write);
                let d_keep = d_memory * before * keep * (one - keep);
                let d_fresh = d_memory * write * (one - fresh * fresh);
                let d_show = output * seen * show * (one - show);
                store::<S, T>(self.memory, place, end, d_memory * keep);
                store_gate::<S, T>(self.out, hidden, row * 4, at, d_write);
                store_gate::<S, T>(self.out, hidden, row * 4 + 1, at, d_keep);
                store_gate::<S, T>(self.out, hidden, row * 4 + 2, at, d_fresh);
                store_gate::<S, T>(self.out, hidden, row * 4 + 3, at, d_show);
                left += (d_write.abs() + d_keep.abs()) + (d_fresh.abs() + d_show.abs());
            }
        }
        !left.simd_eq(zero).all_true()
    }
}
