//! Recurrent cells over time: two products and one pass over the gates for each step.
//!
//! ```text
//! forward   for each share of the batch:                       inputs [time, batch, features]
//!               for each step:
//!                   from_input = input * input weights         [features, gates * hidden]
//!                   from_state = state * weights               [hidden, gates * hidden]
//!                   gates, state                               in one pass, to the tape [parts, time, batch, hidden]
//! backward  the same from the last step to the first; the gradient of the state is carried along
//! ```
//!
//! The weights are packed once. Rows of the batch have nothing to do with each other, so a share of them goes through all
//! steps while the weights stay in the cache, and shares run on any number of threads with the same results. Products are
//! made where they are needed, because those of all steps would not stay in a cache; a batch of few rows takes the inputs
//! of several steps at once. The tape is what the backward pass has to know: the state, and the gates after their functions.
//!
//! | cell | parts of the tape | rows of the gradients |
//! |---|---|---|
//! | GRU | state, reset, update, new, and what reset is multiplied with | reset, update, new, and the latter |
//! | LSTM | output, memory, input, forget, cell, output gate | input, forget, cell, output gate |

#![expect(unsafe_code, reason = "shares of the batch are written by several threads; the rows lie apart")]

use fearless_simd::{Simd, prelude::*};

use super::math::{self, Real, Vector};
use super::matmul::{Product, Shapes, span};
use super::shared::Shared;
use crate::graph::Cell;
use crate::parallel;

/// Rows of the batch that go through the steps together, at most, and at least if there are threads without work.
const ROWS: usize = 32;
const FEW_ROWS: usize = 8;

/// Elements of a cache line.
const LINE: usize = 16;

/// A cell over time in one slice of memory: sizes, and where everything begins. All tensors lie row by row, except for the
/// weights, which have strides.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The cell.
    pub cell: Cell,
    /// Whether this is its gradient.
    pub backward: bool,
    /// Steps.
    pub time: usize,
    /// Rows.
    pub batch: usize,
    /// Width of the state.
    pub hidden: usize,
    /// Forward: width of the inputs. Backward: 0.
    pub features: usize,
    /// Forward: the inputs, [time, batch, features]. Backward: the gradients of the states, [time, batch, hidden].
    pub inputs: usize,
    /// Forward: the weights of the inputs, [features, gates * hidden], and their strides.
    pub input_weights: (usize, [usize; 2]),
    /// Forward: the bias beside the inputs, [gates * hidden].
    pub input_bias: usize,
    /// The weights of the state, [hidden, gates * hidden], and their strides.
    pub weights: (usize, [usize; 2]),
    /// Forward: the bias beside the state, [gates * hidden].
    pub bias: usize,
    /// The tape, [parts, time, batch, hidden].
    pub tape: usize,
    /// Forward: whether the gates are kept on the tape; without a gradient nobody reads them.
    pub keeps: bool,
    /// Backward: the gradients before the functions of the gates, [time, batch, 4 * hidden].
    pub out: usize,
    /// [`Steps::scratch_len`] elements of which nothing is expected.
    pub scratch: usize,
}

impl Steps {
    /// Elements of scratch memory.
    pub fn scratch_len<T: Product>(
        cell: Cell,
        [batch, hidden, features]: [usize; 3],
        backward: bool,
    ) -> usize {
        let width = cell.gates() * hidden;
        let packed = if backward {
            cell.columns().iter().map(|[begin, end]| T::packed_len((end - begin) * hidden, hidden)).sum()
        } else {
            T::packed_len(hidden, width) + T::packed_len(features, width)
        };
        shares_len(cell, batch, hidden, backward) + packed
    }

    /// Where the packed weights of the state begin: behind what the shares of the batch have in the scratch memory.
    fn packed(&self) -> usize {
        self.scratch + shares_len(self.cell, self.batch, self.hidden, self.backward)
    }

    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let parts = if self.keeps { self.cell.parts() } else { 1 + usize::from(self.cell == Cell::Lstm) };
        // Backward: the gradients of the states, and those of the gates.
        let rest = if self.backward { 5 * self.hidden } else { self.features };
        self.time * self.batch * (self.hidden * parts + rest) + (self.hidden + self.features) * self.width()
    }

    fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Where a part of the tape begins for a row at a step.
    fn part(&self, part: usize, step: usize, row: usize) -> usize {
        self.tape + ((part * self.time + step) * self.batch + row) * self.hidden
    }

    /// The elements behind the last one of everything.
    fn end<T: Product>(&self) -> usize {
        let Steps { batch, hidden, features, backward, .. } = *self;
        let (steps, width) = (self.time * batch, self.width());
        let matrix = |rows: usize, (at, strides): (usize, [usize; 2])| at + span(rows, width, strides);
        let inputs = self.inputs + steps * if backward { hidden } else { features };
        let tape = self.tape + self.cell.parts() * steps * hidden;
        let scratch = self.scratch + Steps::scratch_len::<T>(self.cell, [batch, hidden, features], backward);
        let rest = if backward {
            self.out + steps * 4 * hidden
        } else {
            matrix(features, self.input_weights).max(self.bias + width).max(self.input_bias + width)
        };
        [matrix(hidden, self.weights), inputs, tape, scratch, rest].into_iter().max().unwrap_or(0)
    }
}

/// Elements of the scratch memory that shares of the batch have: forward, products with the state and with the inputs;
/// backward, two gradients that are carried along.
fn shares_len(cell: Cell, batch: usize, hidden: usize, backward: bool) -> usize {
    let columns = cell.gates() * hidden;
    let len = if backward { batch * 2 * hidden } else { (batch + batch.max(ROWS)) * columns };
    len.next_multiple_of(LINE)
}

/// Runs `work` on the shares of the batch: the first row and how many there are.
fn for_shares<T: Product>(steps: &Steps, work: impl Fn(usize, usize) + Sync + Send) {
    // Products of our own give a row the same bits whatever rows it is with; others may not.
    let is_ours = T::packed_len(steps.hidden, steps.width()) > 0;
    let least = if is_ours { FEW_ROWS } else { ROWS };
    let rows = steps.batch.div_ceil(parallel::threads()).clamp(least, ROWS);
    parallel::for_each_index(steps.batch.div_ceil(rows), |share| {
        let first = share * rows;
        work(first, rows.min(steps.batch - first));
    });
}

/// Runs the cell and fills the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn forward<T: Real + Product>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "everything lies in the memory");
    let Steps { time, batch, hidden, features, .. } = *steps;
    let (width, packed) = (steps.width(), steps.packed());
    let packed_inputs = packed + T::packed_len(hidden, width);
    let shared = Shared(memory.as_mut_ptr());
    // SAFETY: everything lies in the memory (asserted above), the packed weights in the scratch memory.
    unsafe {
        T::pack(shared.0, [hidden, width], steps.weights, packed);
        T::pack(shared.0, [features, width], steps.input_weights, packed_inputs);
    }
    for_shares::<T>(steps, move |first, rows| {
        let shared = shared;
        let (from_state, from_input) =
            (steps.scratch + first * width, steps.scratch + (batch + first) * width);
        // The inputs of a whole batch lie behind each other, step after step.
        let at_once = if rows == batch { (ROWS / rows).max(1) } else { 1 };
        let multiply = |rows: usize, depth: usize, a: usize, b: (usize, [usize; 2]), packed, out: usize| {
            let (a, out) = ((a, [depth, 1]), (out, [width, 1]));
            let shapes = Shapes { sizes: [rows, width, depth], a, b, out, accumulate: false };
            // SAFETY: everything lies in the memory (asserted above); the products are rows of this share in the scratch
            // memory, which the plan keeps apart from the rest.
            unsafe { T::multiply_packed(shared.0, &shapes, packed) };
        };
        for t in 0..time {
            if t % at_once == 0 {
                let (rows, inputs) =
                    (rows * at_once.min(time - t), steps.inputs + (t * batch + first) * features);
                multiply(rows, features, inputs, steps.input_weights, packed_inputs, from_input);
            }
            if t > 0 {
                multiply(rows, hidden, steps.part(0, t - 1, first), steps.weights, packed, from_state);
            }
            // SAFETY: rows of this share only, inside the memory; the tensors are apart from each other by the plan.
            let mut pass = unsafe {
                let part = |part| shared.write(steps.part(part, t, first), rows * hidden);
                Forward {
                    hidden,
                    keeps: steps.keeps,
                    from_input: shared.read(from_input + t % at_once * rows * width, rows * width),
                    from_state: (t > 0).then(|| shared.read(from_state, rows * width)),
                    input_bias: shared.read(steps.input_bias, width),
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

/// One step of one share, after the products.
struct Forward<'a, T> {
    hidden: usize,
    keeps: bool,
    from_input: &'a [T],
    from_state: Option<&'a [T]>,
    input_bias: &'a [T],
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

/// A vector from a place of a slice, or zeros if there is none.
#[inline(always)]
fn load_or_zero<S: Simd, T: Real>(simd: S, x: Option<&[T]>, at: usize, end: usize) -> Vector<S, T> {
    match x {
        Some(x) => load::<S, T>(simd, x, at, end),
        None => Vector::<S, T>::splat(simd, T::NIL),
    }
}

/// Stores the lanes of one gate of one row.
#[inline(always)]
fn store_gate<S: Simd, T: Real>(to: &mut [T], hidden: usize, gate: usize, at: usize, value: Vector<S, T>) {
    store::<S, T>(to, gate * hidden + at, (gate + 1) * hidden, value);
}

impl<T: Real> Forward<'_, T> {
    /// The share of the state and the bias in a gate.
    #[inline(always)]
    fn state_share<S: Simd>(&self, simd: S, row: usize, gate: usize, at: usize) -> Vector<S, T> {
        let begin = gate * self.hidden;
        let bias = load::<S, T>(simd, self.bias, begin + at, begin + self.hidden);
        match self.from_state {
            Some(products) => {
                let row = row * self.bias.len() + begin;
                load::<S, T>(simd, products, row + at, row + self.hidden) + bias
            }
            None => bias,
        }
    }

    /// The share of the input and its bias.
    #[inline(always)]
    fn input_share<S: Simd>(&self, simd: S, row: usize, gate: usize, at: usize) -> Vector<S, T> {
        let begin = gate * self.hidden;
        let bias = load::<S, T>(simd, self.input_bias, begin + at, begin + self.hidden);
        let row = row * self.bias.len() + begin;
        load::<S, T>(simd, self.from_input, row + at, row + self.hidden) + bias
    }

    /// Both shares of a gate.
    #[inline(always)]
    fn gate<S: Simd>(&self, simd: S, row: usize, gate: usize, at: usize) -> Vector<S, T> {
        self.input_share(simd, row, gate, at) + self.state_share(simd, row, gate, at)
    }

    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) {
        for row in 0..self.from_input.len() / self.bias.len().max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let reset = math::sigmoid::<S, T>(simd, self.gate(simd, row, 0, at));
                let update = math::sigmoid::<S, T>(simd, self.gate(simd, row, 1, at));
                let remembered = self.state_share(simd, row, 2, at);
                let input = self.input_share(simd, row, 2, at);
                let fresh = math::tanh::<S, T>(simd, input + reset * remembered);
                // (1 - update) * fresh + update * state
                let state = fresh + update * (load_or_zero::<S, T>(simd, self.before, place, end) - fresh);
                store::<S, T>(self.parts[0], place, end, state);
                if self.keeps {
                    store::<S, T>(self.parts[1], place, end, reset);
                    store::<S, T>(self.parts[2], place, end, update);
                    store::<S, T>(self.parts[3], place, end, fresh);
                    store::<S, T>(self.parts[4], place, end, remembered);
                }
            }
        }
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) {
        for row in 0..self.from_input.len() / self.bias.len().max(1) {
            let (begin, end) = (row * self.hidden, (row + 1) * self.hidden);
            for at in (0..self.hidden).step_by(Vector::<S, T>::LEN) {
                let place = begin + at;
                let write = math::sigmoid::<S, T>(simd, self.gate(simd, row, 0, at));
                let keep = math::sigmoid::<S, T>(simd, self.gate(simd, row, 1, at));
                let fresh = math::tanh::<S, T>(simd, self.gate(simd, row, 2, at));
                let show = math::sigmoid::<S, T>(simd, self.gate(simd, row, 3, at));
                let memory = keep * load_or_zero::<S, T>(simd, self.before, place, end) + write * fresh;
                let output = show * math::tanh::<S, T>(simd, memory);
                store::<S, T>(self.parts[0], place, end, output);
                store::<S, T>(self.parts[1], place, end, memory);
                if self.keeps {
                    store::<S, T>(self.parts[2], place, end, write);
                    store::<S, T>(self.parts[3], place, end, keep);
                    store::<S, T>(self.parts[4], place, end, fresh);
                    store::<S, T>(self.last, place, end, show);
                }
            }
        }
    }
}

/// The gradients before the functions of the gates, from those of the states and the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn backward<T: Real + Product>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "everything lies in the memory");
    let (hidden, batch) = (steps.hidden, steps.batch);
    let shared = Shared(memory.as_mut_ptr());
    let parts = || parts_of_weights::<T>(steps);
    for part in parts() {
        // SAFETY: everything lies in the memory (asserted above), the packed weights in the scratch memory.
        unsafe { T::pack(shared.0, [part.depth, hidden], part.weights, part.packed) };
    }
    for_shares::<T>(steps, move |first, rows| {
        let shared = shared;
        let carry = steps.scratch + first * hidden;
        let second = steps.scratch + (batch + first) * hidden;
        for t in (0..steps.time).rev() {
            let rows_out = steps.out + (t * batch + first) * 4 * hidden;
            // SAFETY: rows of this share only, inside the memory (asserted above); the tensors are apart from each other by
            // the plan, and so are the two parts of the scratch memory.
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
                    out: shared.write(rows_out, rows * 4 * hidden),
                }
            };
            match steps.cell {
                Cell::Gru => dispatch!(super::level(), simd => pass.gru(simd)),
                Cell::Lstm => dispatch!(super::level(), simd => pass.lstm(simd)),
            }
            if t == 0 {
                break;
            }
            for part in parts() {
                let shapes = Shapes {
                    sizes: [rows, hidden, part.depth],
                    a: (rows_out + part.column, [4 * hidden, 1]),
                    b: part.weights,
                    out: (carry, [hidden, 1]),
                    // What a GRU keeps of its state is there already.
                    accumulate: steps.cell == Cell::Gru,
                };
                // SAFETY: everything lies in the memory; what is written are rows of this share in the scratch memory.
                unsafe { T::multiply_packed(shared.0, &shapes, part.packed) };
            }
        }
    });
}

/// Weights of the state that meet columns of the gradients which lie side by side.
struct PartOfWeights {
    column: usize,
    depth: usize,
    /// Turned, [depth, hidden].
    weights: (usize, [usize; 2]),
    packed: usize,
}

fn parts_of_weights<T: Product>(steps: &Steps) -> impl Iterator<Item = PartOfWeights> {
    let (hidden, (weights, [by_row, by_column])) = (steps.hidden, steps.weights);
    let (mut row, mut packed) = (0, steps.packed());
    steps.cell.columns().iter().map(move |[begin, end]| {
        let depth = (end - begin) * hidden;
        let weights = (weights + row * by_column, [by_column, by_row]);
        let part = PartOfWeights { column: begin * hidden, depth, weights, packed };
        row += depth;
        packed += T::packed_len(depth, hidden);
        part
    })
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
    out: &'a mut [T],
}

impl<T: Real> Backward<'_, T> {
    #[inline(always)]
    fn gru<S: Simd>(&mut self, simd: S) {
        let one = Vector::<S, T>::splat(simd, T::ONE);
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
            }
        }
    }

    #[inline(always)]
    fn lstm<S: Simd>(&mut self, simd: S) {
        let one = Vector::<S, T>::splat(simd, T::ONE);
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
                let seen = math::tanh::<S, T>(simd, memory);
                let carried = (!self.is_last).then_some(&*self.memory);
                let d_memory =
                    load_or_zero::<S, T>(simd, carried, place, end) + output * show * (one - seen * seen);
                let before = load_or_zero::<S, T>(simd, self.before, place, end);
                store::<S, T>(self.memory, place, end, d_memory * keep);
                store_gate::<S, T>(self.out, hidden, row * 4, at, d_memory * fresh * write * (one - write));
                store_gate::<S, T>(
                    self.out,
                    hidden,
                    row * 4 + 1,
                    at,
                    d_memory * before * keep * (one - keep),
                );
                store_gate::<S, T>(
                    self.out,
                    hidden,
                    row * 4 + 2,
                    at,
                    d_memory * write * (one - fresh * fresh),
                );
                store_gate::<S, T>(self.out, hidden, row * 4 + 3, at, output * seen * show * (one - show));
            }
        }
    }
}
