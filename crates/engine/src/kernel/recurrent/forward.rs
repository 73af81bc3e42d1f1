//! Forward pass. A tile is some rows and a vector of units; its four sums per unit stay in registers until the activations
//! of the gates have computed a state from them.
//!
//! | cell | sums | of the inputs | of the state |
//! |---|---|---|---|
//! | GRU | reset, update, new, factor of reset | the first three | the first two and the last |
//! | LSTM | input, forget, cell, output gate | all | all |
//!
//! The weights are packed once: for each block of units, [depth][gate][lane]. With few rows, the time goes into reading the
//! weights, so the input weights are multiplied with the inputs of several steps at a time. The bits of a row do not depend
//! on the rows and steps it is computed with.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use super::{MIN_CHUNK_ROWS, Pass, Steps, for_chunks, load_or_zero, store};
use crate::graph::Cell;
use crate::kernel::math::{self, Real, Vector};
use crate::kernel::matmul::GemmElement;
use crate::kernel::shared::SharedPtr;
use crate::parallel;

/// Sums of a unit.
const SUMS: usize = 4;

/// Largest number of rows of a tile.
const MAX_TILE_ROWS: usize = 8;

/// Largest batch whose inputs are multiplied for several steps at a time, and the rows of all these steps.
const PRECOMPUTE_MAX_BATCH: usize = 4;
const PRECOMPUTE_ROWS: usize = 32;

/// Bytes of the widest vector, and of a cache line.
const MAX_VECTOR_BYTES: usize = 64;

/// Offsets into the scratch memory.
pub(super) struct Scratch {
    /// Initial values of the sums: [block of units][sum][lane].
    biases: usize,
    /// Packed weights of the state, and of the inputs.
    weights: usize,
    input_weights: usize,
    /// Precomputed sums of the inputs of several steps, [row][block][sum][lane].
    precomputed: usize,
    /// Cell states of an LSTM whose gates are not saved, [row][hidden]: each step replaces those of the step before.
    cell_states: usize,
    pub len: usize,
}

impl Scratch {
    pub fn new<T>(cell: Cell, [_, batch, hidden, features]: [usize; 4]) -> Scratch {
        let units = hidden.next_multiple_of(MAX_VECTOR_BYTES / size_of::<T>());
        let weights = SUMS * units;
        let input_weights = weights + hidden * cell.gates() * units;
        let precomputed = input_weights + features * cell.gates() * units;
        let cell_states =
            precomputed + if batch <= PRECOMPUTE_MAX_BATCH { PRECOMPUTE_ROWS * SUMS * units } else { 0 };
        let len = cell_states + if cell == Cell::Lstm { batch * hidden } else { 0 };
        Scratch { biases: 0, weights, input_weights, precomputed, cell_states, len }
    }
}

/// Computes all states and, if the gates are saved, the rest of the tape.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn forward<T: Real + GemmElement>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "tensor out of bounds of the memory");
    let Pass::Forward { biases, saves_gates } = steps.pass else { unreachable!("not a forward pass") };
    let shared = SharedPtr(memory.as_mut_ptr());
    let all = Forward { steps: *steps, shared, saves_gates, first: 0, rows: steps.batch };
    let level = crate::kernel::level();
    // SAFETY: all tensors are in bounds (asserted above), and the scratch memory is disjoint from the rest by the plan.
    dispatch!(level, simd => unsafe { all.pack(simd, biases) });
    for_chunks(steps.batch, MIN_CHUNK_ROWS, move |first, rows| {
        let chunk = Forward { first, rows, ..all };
        // SAFETY: as above; the rows of the chunks are disjoint.
        dispatch!(level, simd => unsafe {
            match chunk.steps.cell {
                Cell::Gru => chunk.run::<_, true>(simd),
                Cell::Lstm => chunk.run::<_, false>(simd),
            }
        });
    });
}

/// Forward pass of a chunk of the batch.
#[derive(Clone, Copy)]
struct Forward<T> {
    steps: Steps,
    shared: SharedPtr<T>,
    saves_gates: bool,
    first: usize,
    rows: usize,
}

/// Contiguous rows that are multiplied with a packed panel.
#[derive(Clone, Copy)]
struct Operand<T> {
    rows: *const T,
    depth: usize,
    panel: *const T,
}

/// Sums of the rows of a tile.
type Sums<S, T> = [[Vector<S, T>; SUMS]; MAX_TILE_ROWS];

#[inline(always)]
fn no_sums<S: Simd, T: Real>(simd: S) -> Sums<S, T> {
    [[Vector::<S, T>::splat(simd, T::ZERO); SUMS]; MAX_TILE_ROWS]
}

/// Returns the number of steps whose inputs are multiplied at a time if there are few rows.
fn precomputed_steps(batch: usize) -> usize {
    PRECOMPUTE_ROWS / batch.max(1)
}

impl<T: Real + GemmElement> Forward<T> {
    /// Returns the rows of a tile: as many as there are registers for the sums that are updated at a time.
    const fn tile_rows<S: Simd, const GRU: bool>() -> usize {
        match (size_of::<Vector<S, T>>() == MAX_VECTOR_BYTES, GRU) {
            (true, true) => MAX_TILE_ROWS,
            (true, false) => 6,
            (false, true) => 4,
            (false, false) => 3,
        }
    }

    fn scratch(&self) -> Scratch {
        Scratch::new::<T>(self.steps.cell, self.steps.sizes())
    }

    fn at(&self, place: usize) -> *mut T {
        self.shared.0.wrapping_add(place)
    }

    /// Packs biases and weights.
    ///
    /// # Safety
    /// All tensors are in bounds, and nothing else uses the scratch memory.
    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, _: S, biases: [usize; 2]) {
        let Steps { cell, hidden, features, weights, input_weights, scratch: begin, .. } = self.steps;
        let (scratch, lanes) = (self.scratch(), Vector::<S, T>::LEN);
        let padded = hidden.next_multiple_of(lanes);
        // SAFETY: one bias per gate and unit; the initial sums in the scratch memory.
        let ([input_bias, bias], sums) = unsafe {
            let biases = biases.map(|bias| self.shared.read(bias, cell.gates() * hidden));
            (biases, self.shared.write(begin + scratch.biases, SUMS * padded))
        };
        for (unit, sum) in (0..padded).flat_map(|unit| (0..SUMS).map(move |sum| (unit, sum))) {
            let of =
                |bias: &[T], gate: usize| if unit < hidden { bias[gate * hidden + unit] } else { T::ZERO };
            sums[(unit / lanes * SUMS + sum) * lanes + unit % lanes] = match (cell, sum) {
                (Cell::Gru, 2) => of(input_bias, 2),
                (Cell::Gru, 3) => of(bias, 2),
                _ => of(input_bias, sum) + of(bias, sum),
            };
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.pack_weights(lanes, hidden, weights, begin + scratch.weights);
            self.pack_weights(lanes, features, input_weights, begin + scratch.input_weights);
        }
    }

    /// Packs weights, for each block of units as [depth][gate][lane].
    ///
    /// # Safety
    /// The weights, [depth, gates * hidden], may be read, and as many elements may be written from `to` on.
    #[inline(always)]
    unsafe fn pack_weights(
        &self,
        lanes: usize,
        depth: usize,
        (at, [by_depth, by_column]): (usize, [usize; 2]),
        to: usize,
    ) {
        let (gates, hidden) = (self.steps.cell.gates(), self.steps.hidden);
        let padded = hidden.next_multiple_of(lanes);
        // SAFETY: guaranteed by the caller.
        let packed = unsafe { self.shared.write(to, depth * gates * padded) };
        for (unit, gate) in (0..padded).flat_map(|unit| (0..gates).map(move |gate| (unit, gate))) {
            let first = (unit / lanes * depth * gates + gate) * lanes + unit % lanes;
            let column = at + (gate * hidden + unit) * by_column;
            for (k, to) in packed.iter_mut().skip(first).step_by(gates * lanes).take(depth).enumerate() {
                // SAFETY: an element of the weights.
                *to = if unit < hidden { unsafe { *self.at(column + k * by_depth) } } else { T::ZERO };
            }
        }
    }

    /// Computes all steps.
    ///
    /// # Safety
    /// All tensors are in bounds, the weights are packed, and nothing else writes the rows of this chunk.
    #[inline(always)]
    unsafe fn run<S: Simd, const GRU: bool>(&self, simd: S) {
        let Steps { time, batch, hidden, .. } = self.steps;
        let blocks = hidden.div_ceil(Vector::<S, T>::LEN);
        let is_precomputed = batch <= PRECOMPUTE_MAX_BATCH;
        let mut sums = no_sums::<S, T>(simd);
        for t in 0..time {
            if is_precomputed && t.is_multiple_of(precomputed_steps(batch)) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.precompute_inputs::<S, GRU>(simd, t) };
            }
            for block in 0..blocks {
                let start =
                    if is_precomputed { self.precomputed::<S>(t, block) } else { self.biases::<S>(block) };
                let inputs = if is_precomputed { None } else { Some(self.inputs::<S>(t, block)) };
                let states = if t > 0 { Some(self.states::<S>(t - 1, block)) } else { None };
                for tile in tiles(self.rows, Self::tile_rows::<S, GRU>()) {
                    // SAFETY: rows of this chunk, and a block of the packed weights.
                    unsafe {
                        sum_tile::<S, T, GRU>(simd, &tile, start, inputs, states, &mut sums);
                        self.gates::<S, GRU>(simd, t, tile, block, &sums);
                    }
                }
            }
        }
    }

    /// Multiplies the inputs of several steps, whose rows are contiguous.
    ///
    /// # Safety
    /// Same as for [`Forward::run`]; there is one chunk.
    #[inline(always)]
    unsafe fn precompute_inputs<S: Simd, const GRU: bool>(&self, simd: S, t: usize) {
        let Steps { time, batch, hidden, .. } = self.steps;
        let (lanes, rows) = (Vector::<S, T>::LEN, precomputed_steps(batch).min(time - t) * batch);
        let mut sums = no_sums::<S, T>(simd);
        for block in 0..hidden.div_ceil(lanes) {
            let (to, stride) = self.precomputed::<S>(t, block);
            let (start, inputs) = (self.biases::<S>(block), self.inputs::<S>(t, block));
            for tile in tiles(rows, Self::tile_rows::<S, GRU>()) {
                // SAFETY: inputs of these steps, and the rows of their sums.
                unsafe {
                    sum_tile::<S, T, GRU>(simd, &tile, start, Some(inputs), None, &mut sums);
                    for (row, sums) in tile.zip(&sums) {
                        for (sum, value) in sums.iter().enumerate() {
                            let to = to.add(row * stride + sum * lanes);
                            value.store_slice(std::slice::from_raw_parts_mut(to, lanes));
                        }
                    }
                }
            }
        }
    }

    /// Returns the initial sums of a block of units, with a row stride of 0.
    fn biases<S: Simd>(&self, block: usize) -> (*mut T, usize) {
        (self.at(self.steps.scratch + self.scratch().biases + block * SUMS * Vector::<S, T>::LEN), 0)
    }

    /// Returns the precomputed sums of a block of units, and their row stride.
    fn precomputed<S: Simd>(&self, t: usize, block: usize) -> (*mut T, usize) {
        let Steps { batch, hidden, scratch, .. } = self.steps;
        let (blocks, sums) = (hidden.div_ceil(Vector::<S, T>::LEN), SUMS * Vector::<S, T>::LEN);
        let row = t % precomputed_steps(batch) * batch * blocks;
        (self.at(scratch + self.scratch().precomputed + (row + block) * sums), blocks * sums)
    }

    /// Returns the inputs of a step with the weights of a block of units.
    fn inputs<S: Simd>(&self, t: usize, block: usize) -> Operand<T> {
        let Steps { batch, features, inputs, .. } = self.steps;
        let rows = inputs + (t * batch + self.first) * features;
        self.operand::<S>(rows, features, self.scratch().input_weights, block)
    }

    /// Returns the states of a step with the weights of a block of units.
    fn states<S: Simd>(&self, t: usize, block: usize) -> Operand<T> {
        let rows = self.steps.part(0, t, self.first);
        self.operand::<S>(rows, self.steps.hidden, self.scratch().weights, block)
    }

    fn operand<S: Simd>(&self, rows: usize, depth: usize, weights: usize, block: usize) -> Operand<T> {
        let panel = depth * self.steps.cell.gates() * Vector::<S, T>::LEN;
        Operand { rows: self.at(rows), depth, panel: self.at(self.steps.scratch + weights + block * panel) }
    }

    /// Applies the activations of the gates to the sums of some rows and a block of units.
    ///
    /// # Safety
    /// Same as for [`Forward::run`].
    #[inline(always)]
    unsafe fn gates<S: Simd, const GRU: bool>(
        &self,
        simd: S,
        t: usize,
        rows: Range<usize>,
        block: usize,
        sums: &Sums<S, T>,
    ) {
        let (unit, end) = (block * Vector::<S, T>::LEN, self.steps.hidden);
        for (row, &sums) in rows.zip(sums) {
            let place = |part: usize, t: usize| {
                if part == 0 || self.saves_gates {
                    return self.steps.part(part, t, self.first + row);
                }
                self.steps.scratch + self.scratch().cell_states + (self.first + row) * self.steps.hidden
            };
            // The state, or the cell state of an LSTM.
            let carried = usize::from(!GRU);
            // SAFETY: in bounds, and only rows of this chunk.
            let before = (t > 0).then(|| unsafe { self.shared.read(place(carried, t - 1), end) });
            let before = load_or_zero::<S, T>(simd, before, unit, end);
            let parts = if GRU { gru::<S, T>(simd, sums, before) } else { lstm::<S, T>(simd, sums, before) };
            let saved = if self.saves_gates { self.steps.cell.parts() } else { 1 + carried };
            for (part, value) in parts.into_iter().enumerate().take(saved) {
                // SAFETY: as above; nothing else references the row.
                store::<S, T>(unsafe { self.shared.write(place(part, t), end) }, unit, end, value);
            }
        }
    }
}

/// Returns tiles of up to `most` rows, of lengths as equal as possible.
#[inline(always)]
fn tiles(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = rows.div_ceil(most);
    (0..tiles).map(move |tile| parallel::chunk_range(rows, tile, tiles))
}

/// Computes the five parts of the tape of a GRU from the sums of its gates, and one more that is not stored.
#[inline(always)]
fn gru<S: Simd, T: Real>(simd: S, sums: [Vector<S, T>; SUMS], before: Vector<S, T>) -> [Vector<S, T>; 6] {
    let [reset, update, new_input, new_hidden] = sums;
    let reset = math::sigmoid::<S, T>(simd, reset);
    let update = math::sigmoid::<S, T>(simd, update);
    let candidate = math::tanh::<S, T>(simd, new_input + reset * new_hidden);
    // (1 - update) * candidate + update * state
    let state = candidate + update * (before - candidate);
    [state, reset, update, candidate, new_hidden, new_hidden]
}

/// Computes the six parts of the tape of an LSTM.
#[inline(always)]
fn lstm<S: Simd, T: Real>(simd: S, sums: [Vector<S, T>; SUMS], before: Vector<S, T>) -> [Vector<S, T>; 6] {
    let [input, forget, candidate, output] = sums;
    let input = math::sigmoid::<S, T>(simd, input);
    let forget = math::sigmoid::<S, T>(simd, forget);
    let candidate = math::tanh::<S, T>(simd, candidate);
    let output = math::sigmoid::<S, T>(simd, output);
    let cell_state = forget * before + input * candidate;
    [output * math::tanh::<S, T>(simd, cell_state), cell_state, input, forget, candidate, output]
}

/// Computes the sums of the rows of a tile: their initial values (with a row stride), the inputs and the states times their
/// weights.
///
/// # Safety
/// The rows, the panels and the initial values may be read.
#[inline(always)]
unsafe fn sum_tile<S: Simd, T: Real, const GRU: bool>(
    simd: S,
    tile: &Range<usize>,
    (start, stride): (*mut T, usize),
    inputs: Option<Operand<T>>,
    states: Option<Operand<T>>,
    sums: &mut Sums<S, T>,
) {
    let row = tile.start;
    let start = (start.wrapping_add(row * stride).cast_const(), stride);
    let inputs = inputs.map(|x| Operand { rows: x.rows.wrapping_add(row * x.depth), ..x });
    let states = states.map(|x| Operand { rows: x.rows.wrapping_add(row * x.depth), ..x });
    // SAFETY: guaranteed by the caller.
    unsafe {
        match tile.len() {
            1 => tile_of::<S, T, 1, GRU>(simd, start, inputs, states, sums),
            2 => tile_of::<S, T, 2, GRU>(simd, start, inputs, states, sums),
            3 => tile_of::<S, T, 3, GRU>(simd, start, inputs, states, sums),
            4 => tile_of::<S, T, 4, GRU>(simd, start, inputs, states, sums),
            5 => tile_of::<S, T, 5, GRU>(simd, start, inputs, states, sums),
            6 => tile_of::<S, T, 6, GRU>(simd, start, inputs, states, sums),
            7 => tile_of::<S, T, 7, GRU>(simd, start, inputs, states, sums),
            _ => tile_of::<S, T, 8, GRU>(simd, start, inputs, states, sums),
        }
    }
}

/// Computes the sums of `R` rows.
///
/// # Safety
/// Same as for [`sum_tile`].
#[inline(always)]
unsafe fn tile_of<S: Simd, T: Real, const R: usize, const GRU: bool>(
    simd: S,
    (start, stride): (*const T, usize),
    inputs: Option<Operand<T>>,
    states: Option<Operand<T>>,
    out: &mut Sums<S, T>,
) {
    let lanes = Vector::<S, T>::LEN;
    let mut sums = [[Vector::<S, T>::splat(simd, T::ZERO); SUMS]; R];
    // SAFETY: guaranteed by the caller.
    unsafe {
        for (i, sums) in sums.iter_mut().enumerate() {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = load::<S, T>(simd, start.add(i * stride + j * lanes));
            }
        }
        match (inputs, GRU) {
            (Some(x), true) => multiply::<S, T, R, 3>(simd, x, &mut sums, [0, 1, 2]),
            (Some(x), false) => multiply::<S, T, R, 4>(simd, x, &mut sums, [0, 1, 2, 3]),
            (None, _) => {}
        }
        match (states, GRU) {
            (Some(x), true) => multiply::<S, T, R, 3>(simd, x, &mut sums, [0, 1, 3]),
            (Some(x), false) => multiply::<S, T, R, 4>(simd, x, &mut sums, [0, 1, 2, 3]),
            (None, _) => {}
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        *out = sums;
    }
}

/// Adds the products of `R` rows with a panel of `G` gates to the sums with the indices `slots`.
///
/// # Safety
/// The rows and the panel may be read.
#[inline(always)]
unsafe fn multiply<S: Simd, T: Real, const R: usize, const G: usize>(
    simd: S,
    x: Operand<T>,
    sums: &mut [[Vector<S, T>; SUMS]; R],
    slots: [usize; G],
) {
    let lanes = Vector::<S, T>::LEN;
    let mut own = [[Vector::<S, T>::splat(simd, T::ZERO); G]; R];
    for i in 0..R {
        for gate in 0..G {
            own[i][gate] = sums[i][slots[gate]];
        }
    }
    for k in 0..x.depth {
        // SAFETY: elements of the rows, and a row of the panel.
        unsafe {
            let panel = x.panel.add(k * G * lanes);
            let mut weights = [Vector::<S, T>::splat(simd, T::ZERO); G];
            for (gate, weights) in weights.iter_mut().enumerate() {
                *weights = load::<S, T>(simd, panel.add(gate * lanes));
            }
            for (i, own) in own.iter_mut().enumerate() {
                let x = Vector::<S, T>::splat(simd, *x.rows.add(i * x.depth + k));
                for (own, weights) in own.iter_mut().zip(weights) {
                    *own = x.mul_add(weights, *own);
                }
            }
        }
    }
    for i in 0..R {
        for gate in 0..G {
            sums[i][slots[gate]] = own[i][gate];
        }
    }
}

/// # Safety
/// A vector may be read there.
#[inline(always)]
unsafe fn load<S: Simd, T: Real>(simd: S, at: *const T) -> Vector<S, T> {
    // SAFETY: guaranteed by the caller.
    Vector::<S, T>::from_slice(simd, unsafe { std::slice::from_raw_parts(at, Vector::<S, T>::LEN) })
}
