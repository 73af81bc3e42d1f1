//! From inputs to states. A tile is some rows and a vector of units; the four sums of each stay in registers until the
//! functions of the gates have made a state of them.
//!
//! | cell | sums | of the inputs | of the state |
//! |---|---|---|---|
//! | GRU | reset, update, new, what reset is multiplied with | the first three | the first two and the last |
//! | LSTM | input, forget, cell, output gate | all | all |
//!
//! The weights are packed once: for each block of units, [depth][gate][lane]. Where there are few rows, the weights are what
//! takes the time, so those of the inputs are multiplied with several steps at once. A row has the same bits whatever rows
//! and steps it is computed with.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use super::{FEW_ROWS, Pass, Steps, for_shares, load_or_zero, store};
use crate::graph::Cell;
use crate::kernel::math::{self, Real, Vector};
use crate::kernel::matmul::GemmElement;
use crate::kernel::shared::SharedPtr;
use crate::parallel;

/// Sums of a unit.
const SUMS: usize = 4;

/// Rows of a tile at most.
const MOST_ROWS: usize = 8;

/// Rows of a batch up to which its inputs are multiplied ahead, and the rows of all steps that are multiplied together.
const AHEAD_BELOW: usize = 4;
const AHEAD: usize = 32;

/// Bytes of the widest vector, and of a cache line.
const WIDEST: usize = 64;

/// Where everything is in the scratch memory, from its begin.
pub(super) struct Scratch {
    /// What sums begin with: [block of units][sum][lane].
    biases: usize,
    /// Packed weights of the state, and of the inputs.
    weights: usize,
    input_weights: usize,
    /// Sums of the inputs that were multiplied ahead, [row][block][sum][lane].
    ahead: usize,
    pub len: usize,
}

impl Scratch {
    pub fn new<T>(cell: Cell, [_, batch, hidden, features]: [usize; 4]) -> Scratch {
        let units = hidden.next_multiple_of(WIDEST / size_of::<T>());
        let weights = SUMS * units;
        let input_weights = weights + hidden * cell.gates() * units;
        let ahead = input_weights + features * cell.gates() * units;
        let len = ahead + if batch <= AHEAD_BELOW { AHEAD * SUMS * units } else { 0 };
        Scratch { biases: 0, weights, input_weights, ahead, len }
    }
}

/// Runs the cell and fills the tape.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn forward<T: Real + GemmElement>(memory: &mut [T], steps: &Steps) {
    assert!(steps.end::<T>() <= memory.len(), "everything lies in the memory");
    let Pass::Forward { biases, keeps } = steps.pass else { unreachable!("the other direction") };
    let shared = SharedPtr(memory.as_mut_ptr());
    let all = Forward { steps: *steps, shared, keeps, first: 0, rows: steps.batch };
    let level = crate::kernel::level();
    // SAFETY: everything lies in the memory (asserted above), and the scratch memory apart from the rest by the plan.
    dispatch!(level, simd => unsafe { all.pack(simd, biases) });
    for_shares(steps.batch, FEW_ROWS, move |first, rows| {
        let share = Forward { first, rows, ..all };
        // SAFETY: as above; shares have rows of their own.
        dispatch!(level, simd => unsafe {
            match share.steps.cell {
                Cell::Gru => share.run::<_, true>(simd),
                Cell::Lstm => share.run::<_, false>(simd),
            }
        });
    });
}

/// A share of the batch.
#[derive(Clone, Copy)]
struct Forward<T> {
    steps: Steps,
    shared: SharedPtr<T>,
    keeps: bool,
    first: usize,
    rows: usize,
}

/// Rows that lie behind each other and are multiplied with a packed panel.
#[derive(Clone, Copy)]
struct Operand<T> {
    rows: *const T,
    depth: usize,
    panel: *const T,
}

/// The sums of the rows of a tile.
type Sums<S, T> = [[Vector<S, T>; SUMS]; MOST_ROWS];

#[inline(always)]
fn no_sums<S: Simd, T: Real>(simd: S) -> Sums<S, T> {
    [[Vector::<S, T>::splat(simd, T::ZERO); SUMS]; MOST_ROWS]
}

/// Steps whose inputs are multiplied together if there are few rows.
fn steps_ahead(batch: usize) -> usize {
    AHEAD / batch.max(1)
}

impl<T: Real + GemmElement> Forward<T> {
    /// Rows of a tile: as many as there are registers for the sums that are added to at a time.
    const fn tile_rows<S: Simd, const GRU: bool>() -> usize {
        match (size_of::<Vector<S, T>>() == WIDEST, GRU) {
            (true, true) => MOST_ROWS,
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
    /// Everything lies in the memory, and nothing else uses the scratch memory.
    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, _: S, biases: [usize; 2]) {
        let Steps { cell, hidden, features, weights, input_weights, scratch: begin, .. } = self.steps;
        let (scratch, lanes) = (self.scratch(), Vector::<S, T>::LEN);
        let padded = hidden.next_multiple_of(lanes);
        // SAFETY: a bias for every gate and unit; the sums of the scratch memory.
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
    /// The weights, [depth, gates * hidden], may be read, and all of them be written from `to` on.
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

    /// Goes through all steps.
    ///
    /// # Safety
    /// Everything lies in the memory, is packed, and nothing else writes to the rows of this share.
    #[inline(always)]
    unsafe fn run<S: Simd, const GRU: bool>(&self, simd: S) {
        let Steps { time, batch, hidden, .. } = self.steps;
        let blocks = hidden.div_ceil(Vector::<S, T>::LEN);
        let is_ahead = batch <= AHEAD_BELOW;
        let mut sums = no_sums::<S, T>(simd);
        for t in 0..time {
            if is_ahead && t.is_multiple_of(steps_ahead(batch)) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.look_ahead::<S, GRU>(simd, t) };
            }
            for block in 0..blocks {
                let start = if is_ahead { self.ahead::<S>(t, block) } else { self.biases::<S>(block) };
                let inputs = if is_ahead { None } else { Some(self.inputs::<S>(t, block)) };
                let states = if t > 0 { Some(self.states::<S>(t - 1, block)) } else { None };
                for tile in tiles(self.rows, Self::tile_rows::<S, GRU>()) {
                    // SAFETY: rows of this share, a block of the packed weights.
                    unsafe {
                        add_up::<S, T, GRU>(simd, &tile, start, inputs, states, &mut sums);
                        self.gates::<S, GRU>(simd, t, tile, block, &sums);
                    }
                }
            }
        }
    }

    /// Multiplies the inputs of some steps, all of whose rows lie behind each other.
    ///
    /// # Safety
    /// Same as for [`Forward::run`]; there is one share.
    #[inline(always)]
    unsafe fn look_ahead<S: Simd, const GRU: bool>(&self, simd: S, t: usize) {
        let Steps { time, batch, hidden, .. } = self.steps;
        let (lanes, rows) = (Vector::<S, T>::LEN, steps_ahead(batch).min(time - t) * batch);
        let mut sums = no_sums::<S, T>(simd);
        for block in 0..hidden.div_ceil(lanes) {
            let (to, stride) = self.ahead::<S>(t, block);
            let (start, inputs) = (self.biases::<S>(block), self.inputs::<S>(t, block));
            for tile in tiles(rows, Self::tile_rows::<S, GRU>()) {
                // SAFETY: inputs of these steps, and rows for their sums.
                unsafe {
                    add_up::<S, T, GRU>(simd, &tile, start, Some(inputs), None, &mut sums);
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

    /// What the sums of a block of units start with, the same for all rows.
    fn biases<S: Simd>(&self, block: usize) -> (*mut T, usize) {
        (self.at(self.steps.scratch + self.scratch().biases + block * SUMS * Vector::<S, T>::LEN), 0)
    }

    /// Sums of a block of units that were made ahead, and the distance from row to row.
    fn ahead<S: Simd>(&self, t: usize, block: usize) -> (*mut T, usize) {
        let Steps { batch, hidden, scratch, .. } = self.steps;
        let (blocks, sums) = (hidden.div_ceil(Vector::<S, T>::LEN), SUMS * Vector::<S, T>::LEN);
        let row = t % steps_ahead(batch) * batch * blocks;
        (self.at(scratch + self.scratch().ahead + (row + block) * sums), blocks * sums)
    }

    /// The inputs of a step, and the weights of a block of units.
    fn inputs<S: Simd>(&self, t: usize, block: usize) -> Operand<T> {
        let Steps { batch, features, inputs, .. } = self.steps;
        let rows = inputs + (t * batch + self.first) * features;
        self.operand::<S>(rows, features, self.scratch().input_weights, block)
    }

    /// The states of a step, and the weights of a block of units.
    fn states<S: Simd>(&self, t: usize, block: usize) -> Operand<T> {
        let rows = self.steps.part(0, t, self.first);
        self.operand::<S>(rows, self.steps.hidden, self.scratch().weights, block)
    }

    fn operand<S: Simd>(&self, rows: usize, depth: usize, weights: usize, block: usize) -> Operand<T> {
        let panel = depth * self.steps.cell.gates() * Vector::<S, T>::LEN;
        Operand { rows: self.at(rows), depth, panel: self.at(self.steps.scratch + weights + block * panel) }
    }

    /// The functions of the gates on the sums of some rows of the share and of a block of units.
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
            let place = |part: usize, t: usize| self.steps.part(part, t, self.first + row);
            // The state, or the memory of an LSTM.
            let carried = usize::from(!GRU);
            // SAFETY: rows of this share only, inside the memory.
            let before = (t > 0).then(|| unsafe { self.shared.read(place(carried, t - 1), end) });
            let before = load_or_zero::<S, T>(simd, before, unit, end);
            let parts = if GRU { gru::<S, T>(simd, sums, before) } else { lstm::<S, T>(simd, sums, before) };
            let kept = if self.keeps { self.steps.cell.parts() } else { 1 + carried };
            for (part, value) in parts.into_iter().enumerate().take(kept) {
                // SAFETY: as above; nothing else has a reference to the row.
                store::<S, T>(unsafe { self.shared.write(place(part, t), end) }, unit, end, value);
            }
        }
    }
}

/// Tiles of up to `most` rows, as even as they can be.
#[inline(always)]
fn tiles(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = rows.div_ceil(most);
    (0..tiles).map(move |tile| parallel::chunk_range(rows, tile, tiles))
}

/// What the gates of a GRU make of their sums: the five parts of its tape, and one more that nobody stores.
#[inline(always)]
fn gru<S: Simd, T: Real>(simd: S, sums: [Vector<S, T>; SUMS], before: Vector<S, T>) -> [Vector<S, T>; 6] {
    let [reset, update, input, remembered] = sums;
    let reset = math::sigmoid::<S, T>(simd, reset);
    let update = math::sigmoid::<S, T>(simd, update);
    let fresh = math::tanh::<S, T>(simd, input + reset * remembered);
    // (1 - update) * fresh + update * state
    let state = fresh + update * (before - fresh);
    [state, reset, update, fresh, remembered, remembered]
}

/// The same of an LSTM.
#[inline(always)]
fn lstm<S: Simd, T: Real>(simd: S, sums: [Vector<S, T>; SUMS], before: Vector<S, T>) -> [Vector<S, T>; 6] {
    let [write, keep, fresh, show] = sums;
    let write = math::sigmoid::<S, T>(simd, write);
    let keep = math::sigmoid::<S, T>(simd, keep);
    let fresh = math::tanh::<S, T>(simd, fresh);
    let show = math::sigmoid::<S, T>(simd, show);
    let memory = keep * before + write * fresh;
    [show * math::tanh::<S, T>(simd, memory), memory, write, keep, fresh, show]
}

/// The sums of the rows of a tile: what they start with (and the distance from row to row), the inputs and the states times
/// their weights.
///
/// # Safety
/// The rows, the panels and what the sums start with may be read.
#[inline(always)]
unsafe fn add_up<S: Simd, T: Real, const GRU: bool>(
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

/// The sums of `R` rows.
///
/// # Safety
/// Same as for [`add_up`].
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

/// Adds the products of `R` rows with a panel of `G` gates to the sums that `slots` name.
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
