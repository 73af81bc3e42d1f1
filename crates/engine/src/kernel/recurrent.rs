//! Recurrent cells over time: a product with the state and one pass over the gates for each step.
//!
//! ```text
//! forward   for each share of the batch:            inputs [time, batch, gates * hidden]
//!               for each step:                      weights [hidden, gates * hidden]
//!                   products = state * weights      tape [parts, time, batch, hidden]
//!                   gates, state                    in one pass
//! backward  the same from the last step to the first; the gradient of the state is carried along
//! ```
//!
//! Rows of the batch have nothing to do with each other, so a share of them goes through all steps while the weights stay
//! in the cache, and shares run on any number of threads with the same results. The tape is what the backward pass has
//! to know: the state, and the gates after their functions.
//!
//! | cell | parts of the tape | rows of the gradients |
//! |---|---|---|
//! | GRU | state, reset, update, new, and what reset is multiplied with | reset, update, new, and the latter |
//! | LSTM | output, memory, input, forget, cell, output gate | input, forget, cell, output gate |

#![expect(unsafe_code, reason = "shares of the batch are written by several threads; the rows lie apart")]

use fearless_simd::{Simd, prelude::*};

use super::math::{self, Real, Vector};
use super::matmul::{Product, Shapes, multiply_at};
use crate::graph::Cell;
use crate::parallel;

/// Rows of the batch that go through the steps together.
const ROWS: usize = 32;

/// A cell over time in one slice of memory: sizes, and where everything begins. All tensors lie row by row, except for the
/// weights, which have strides.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The cell.
    pub cell: Cell,
    /// Steps.
    pub time: usize,
    /// Rows.
    pub batch: usize,
    /// Width of the state.
    pub hidden: usize,
    /// Forward: the products with the inputs, [time, batch, gates * hidden]. Backward: the gradients of the states, [time,
    /// batch, hidden].
    pub inputs: usize,
    /// The weights of the state, [hidden, gates * hidden], and their strides.
    pub weights: (usize, [usize; 2]),
    /// Forward: the bias beside the state, [gates * hidden].
    pub bias: usize,
    /// The tape, [parts, time, batch, hidden].
    pub tape: usize,
    /// Backward: the gradients before the functions of the gates, [time, batch, 4 * hidden].
    pub out: usize,
    /// [`Steps::scratch_len`] elements of which nothing is expected.
    pub scratch: usize,
}

impl Steps {
    /// Elements of scratch memory.
    pub fn scratch_len(cell: Cell, batch: usize, hidden: usize) -> usize {
        batch * hidden * (cell.gates() + 2)
    }

    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let step = self.batch * self.hidden * (self.cell.gates() + self.cell.parts() + 1);
        self.time * step + self.hidden * self.width()
    }

    fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Where a part of the tape begins for a row at a step.
    fn part(&self, part: usize, step: usize, row: usize) -> usize {
        self.tape + ((part * self.time + step) * self.batch + row) * self.hidden
    }

    /// The elements behind the last one of everything.
    fn end(&self, backward: bool) -> usize {
        let (steps, width) = (self.time * self.batch, self.width());
        let (w, strides) = self.weights;
        let weights =
            w + self.hidden.saturating_sub(1) * strides[0] + width.saturating_sub(1) * strides[1] + 1;
        let inputs = self.inputs + steps * if backward { self.hidden } else { width };
        let tape = self.tape + self.cell.parts() * steps * self.hidden;
        let scratch = self.scratch + Steps::scratch_len(self.cell, self.batch, self.hidden);
        let rest = if backward { self.out + steps * 4 * self.hidden } else { self.bias + width };
        [weights, inputs, tape, scratch, rest].into_iter().max().unwrap_or(0)
    }
}

/// One slice of memory that several threads work on, each on rows of its own.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: the shares of a batch write to rows that no other share reads or writes.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    /// The elements lie in the memory, and nothing writes to them while the slice lives.
    unsafe fn read<'a>(self, begin: usize, len: usize) -> &'a [T] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(self.0.add(begin), len) }
    }

    /// # Safety
    /// The elements lie in the memory, and nothing else reads or writes them while the slice lives.
    unsafe fn write<'a>(self, begin: usize, len: usize) -> &'a mut [T] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(begin), len) }
    }
}

/// Runs `work` on the shares of the batch: the first row and how many there are.
fn for_shares(steps: &Steps, work: impl Fn(usize, usize) + Sync + Send) {
    let shares = steps.batch.div_ceil(ROWS);
    parallel::for_each_index(shares, |share| {
        let first = share * ROWS;
        work(first, ROWS.min(steps.batch - first));
    });
}

/// Runs the cell and fills the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn forward<T: Real + Product>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end(false) <= memory.len(), "everything lies in the memory");
    let (hidden, width) = (steps.hidden, steps.width());
    let shared = Shared(memory.as_mut_ptr());
    for_shares(steps, move |first, rows| {
        let shared = shared;
        let products = steps.scratch + first * width;
        for t in 0..steps.time {
            if t > 0 {
                let shapes = Shapes {
                    sizes: [rows, width, hidden],
                    a: (steps.part(0, t - 1, first), [hidden, 1]),
                    b: steps.weights,
                    out: (products, [width, 1]),
                    accumulate: false,
                };
                // SAFETY: everything lies in the memory (asserted above); the products are rows of this share in the
                // scratch memory, which the plan keeps apart from the rest.
                unsafe { multiply_at(shared.0, &shapes, gemm::Parallelism::None) };
            }
            // SAFETY: rows of this share only, inside the memory; the tensors are apart from each other by the plan.
            let mut pass = unsafe {
                let part = |part| shared.write(steps.part(part, t, first), rows * hidden);
                Forward {
                    hidden,
                    inputs: shared.read(steps.inputs + (t * steps.batch + first) * width, rows * width),
                    products: (t > 0).then(|| shared.read(products, rows * width)),
                    bias: shared.read(steps.bias, width),
                    // The state, or the memory of an LSTM.
                    before: (t > 0).then(|| {
                        shared.read(
                            steps.part(usize::from(steps.cell == Cell::Lstm), t - 1, first),
                            rows * hidden,
                        )
                    }),
                    parts: [0, 1, 2, 3, 4].map(part),
                    last: if steps.cell == Cell::Lstm { part(5) } else { &mut [] },
                }
            };
            match steps.cell {
                Cell::Gru => dispatch!(super::level(), simd => pass.gru(simd)),
                Cell::Lstm => dispatch!(super::level(), simd => pass.lstm(simd)),
            }
        }
    });
}

/// One step of one share, after the product.
struct Forward<'a, T> {
    hidden: usize,
    inputs: &'a [T],
    products: Option<&'a [T]>,
    bias: &'a [T],
    before: Option<&'a [T]>,
    parts: [&'a mut [T]; 5],
    last: &'a mut [T],
}

/// A vector from a place of a slice; what is behind the end repeats the first lane.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, x: &[T], at: usize, end: usize) -> Vector<S, T> {
    if at + Vector::<S, T>::LEN <= end {
        return Vector::<S, T>::from_slice(simd, &x[at..at + Vector::<S, T>::LEN]);
    }
    let mut vector = Vector::<S, T>::splat(simd, x[at]);
    vector.as_mut_slice()[..end - at].copy_from_slice(&x[at..end]);
    vector
}

/// Stores the lanes up to the end.
#[inline(always)]
fn store<S: Simd, T: Real>(x: &mut [T], at: usize, end: usize, value: Vector<S, T>) {
    if at + Vector::<S, T>::LEN <= end {
        value.store_slice(&mut x[at..at + Vector::<S, T>::LEN]);
    } else {
        x[at..end].copy_from_slice(&value.as_slice()[..end - at]);
    }
}

impl<T: Real> Forward<'_, T> {
    /// The share of the state and the bias in a gate.
    #[inline(always)]
    fn state_share<S: Simd>(&self, simd: S, row: usize, gate: usize, at: usize) -> Vector<S, T> {
        let begin = gate * self.hidden;
        let bias = load::<S, T>(simd, self.bias, begin + at, begin + self.hidden);
        match self.products {
            Some(products) => {
                let row = row * self.bias.len() + begin;
                load::<S, T>(simd, products, row + at, row + self.hidden) + bias
            }
            None => bias,
        }
    }

    #[inline(always)]
    fn input_share<S: Simd>(&self, simd: S, row: usize, gate: usize, at: usize) -> Vector<S, T> {
        let row = row * self.bias.len() + gate * self.hidden;
        load::<S, T>(simd, self.inputs, row + at, row + self.hidden)
    }

    /// What there was before at a place: zeros at the first step.
    #[inline(always)]
    fn before<S: Simd>(&self, simd: S, at: usize, end: usize) -> Vector<S, T> {
        self.before
            .map_or_else(|| Vector::<S, T>::splat(simd, T::NIL), |before| load::<S, T>(simd, before, at, end))
    }

    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) {
        for row in 0..self.inputs.len() / self.bias.len().max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let gate =
                    |gate| self.input_share(simd, row, gate, at) + self.state_share(simd, row, gate, at);
                let reset = math::sigmoid::<S, T>(simd, gate(0));
                let update = math::sigmoid::<S, T>(simd, gate(1));
                let remembered = self.state_share(simd, row, 2, at);
                let fresh = math::tanh::<S, T>(simd, self.input_share(simd, row, 2, at) + reset * remembered);
                // (1 - update) * fresh + update * state
                let state = fresh + update * (self.before(simd, begin + at, end) - fresh);
                for (part, value) in self.parts.iter_mut().zip([state, reset, update, fresh, remembered]) {
                    store::<S, T>(part, begin + at, end, value);
                }
            }
        }
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) {
        for row in 0..self.inputs.len() / self.bias.len().max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let gate =
                    |gate| self.input_share(simd, row, gate, at) + self.state_share(simd, row, gate, at);
                let write = math::sigmoid::<S, T>(simd, gate(0));
                let keep = math::sigmoid::<S, T>(simd, gate(1));
                let fresh = math::tanh::<S, T>(simd, gate(2));
                let show = math::sigmoid::<S, T>(simd, gate(3));
                let memory = keep * self.before(simd, begin + at, end) + write * fresh;
                let output = show * math::tanh::<S, T>(simd, memory);
                for (part, value) in self.parts.iter_mut().zip([output, memory, write, keep, fresh]) {
                    store::<S, T>(part, begin + at, end, value);
                }
                store::<S, T>(self.last, begin + at, end, show);
            }
        }
    }
}

/// The gradients before the functions of the gates, from those of the states and the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn backward<T: Real + Product>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end(true) <= memory.len(), "everything lies in the memory");
    let (hidden, width, batch) = (steps.hidden, steps.width(), steps.batch);
    let shared = Shared(memory.as_mut_ptr());
    for_shares(steps, move |first, rows| {
        let shared = shared;
        let carry = steps.scratch + first * hidden;
        let second = steps.scratch + (batch + first) * hidden;
        let gates = steps.scratch + 2 * batch * hidden + first * width;
        for t in (0..steps.time).rev() {
            // SAFETY: rows of this share only, inside the memory (asserted above); the tensors are apart from each other by
            // the plan, and so are the three parts of the scratch memory.
            let mut pass = unsafe {
                let part = |part| shared.read(steps.part(part, t, first), rows * hidden);
                Backward {
                    hidden,
                    is_last: t + 1 == steps.time,
                    gradients: shared.read(steps.inputs + (t * batch + first) * hidden, rows * hidden),
                    parts: [0, 1, 2, 3, 4].map(part),
                    show: if steps.cell == Cell::Lstm { part(5) } else { &[] },
                    before: (t > 0).then(|| {
                        shared.read(
                            steps.part(usize::from(steps.cell == Cell::Lstm), t - 1, first),
                            rows * hidden,
                        )
                    }),
                    carry: shared.write(carry, rows * hidden),
                    memory: shared.write(second, rows * hidden),
                    gates: shared.write(gates, rows * width),
                    out: shared.write(steps.out + (t * batch + first) * 4 * hidden, rows * 4 * hidden),
                }
            };
            match steps.cell {
                Cell::Gru => dispatch!(super::level(), simd => pass.gru(simd)),
                Cell::Lstm => dispatch!(super::level(), simd => pass.lstm(simd)),
            }
            if t == 0 {
                break;
            }
            let (weights, [by_row, by_column]) = steps.weights;
            let shapes = Shapes {
                sizes: [rows, hidden, width],
                a: (gates, [width, 1]),
                b: (weights, [by_column, by_row]),
                out: (carry, [hidden, 1]),
                // What a GRU keeps of its state is there already.
                accumulate: steps.cell == Cell::Gru,
            };
            // SAFETY: everything lies in the memory; what is written are rows of this share in the scratch memory.
            unsafe { multiply_at(shared.0, &shapes, gemm::Parallelism::None) };
        }
    });
}

/// One step of one share, before the product.
struct Backward<'a, T> {
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
    /// The gradients of the products with the state.
    gates: &'a mut [T],
    out: &'a mut [T],
}

impl<T: Real> Backward<'_, T> {
    /// What comes from the next step: nothing at the last one.
    #[inline(always)]
    fn carried<S: Simd>(&self, simd: S, carry: &[T], at: usize, end: usize) -> Vector<S, T> {
        if self.is_last { Vector::<S, T>::splat(simd, T::NIL) } else { load::<S, T>(simd, carry, at, end) }
    }

    #[inline(always)]
    fn before<S: Simd>(&self, simd: S, at: usize, end: usize) -> Vector<S, T> {
        self.before
            .map_or_else(|| Vector::<S, T>::splat(simd, T::NIL), |before| load::<S, T>(simd, before, at, end))
    }

    /// Stores the gradients of gates of a row.
    #[inline(always)]
    fn put<S: Simd, const N: usize>(
        to: &mut [T],
        hidden: usize,
        row: usize,
        at: usize,
        values: [Vector<S, T>; N],
    ) {
        for (gate, value) in values.into_iter().enumerate() {
            let begin = (row * N + gate) * hidden;
            store::<S, T>(to, begin + at, begin + hidden, value);
        }
    }

    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) {
        let one = Vector::<S, T>::splat(simd, T::ONE);
        for row in 0..self.gradients.len() / self.hidden.max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let [_, reset, update, fresh, remembered] =
                    [0, 1, 2, 3, 4].map(|part: usize| load::<S, T>(simd, self.parts[part], place, end));
                let state = load::<S, T>(simd, self.gradients, place, end)
                    + self.carried(simd, self.carry, place, end);
                // state = fresh + update * (before - fresh)
                let d_update = state * (self.before(simd, place, end) - fresh) * update * (one - update);
                let d_fresh = state * (one - update) * (one - fresh * fresh);
                let d_remembered = d_fresh * reset;
                let d_reset = d_fresh * remembered * reset * (one - reset);
                store::<S, T>(self.carry, place, end, state * update);
                Self::put(self.gates, self.hidden, row, at, [d_reset, d_update, d_remembered]);
                Self::put(self.out, self.hidden, row, at, [d_reset, d_update, d_fresh, d_remembered]);
            }
        }
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) {
        let one = Vector::<S, T>::splat(simd, T::ONE);
        for row in 0..self.gradients.len() / self.hidden.max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let [_, memory, write, keep, fresh] =
                    [0, 1, 2, 3, 4].map(|part: usize| load::<S, T>(simd, self.parts[part], place, end));
                let show = load::<S, T>(simd, self.show, place, end);
                let output = load::<S, T>(simd, self.gradients, place, end)
                    + self.carried(simd, self.carry, place, end);
                let seen = math::tanh::<S, T>(simd, memory);
                let d_memory =
                    self.carried(simd, self.memory, place, end) + output * show * (one - seen * seen);
                let d_write = d_memory * fresh * write * (one - write);
                let d_keep = d_memory * self.before(simd, place, end) * keep * (one - keep);
                let d_fresh = d_memory * write * (one - fresh * fresh);
                let d_show = output * seen * show * (one - show);
                store::<S, T>(self.memory, place, end, d_memory * keep);
                let gradients = [d_write, d_keep, d_fresh, d_show];
                Self::put(self.gates, self.hidden, row, at, gradients);
                Self::put(self.out, self.hidden, row, at, gradients);
            }
        }
    }
}
