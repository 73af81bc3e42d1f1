//! Recurrent cells over time: products, and the functions of the gates on what comes out of them.
//!
//! ```text
//! forward    for each share of the batch, for each step:                inputs [time, batch, features]
//!                for each block of units, for each tile of rows:
//!                    sums  = bias + input * input weights               [features, gates * hidden]
//!                                 + state * weights                     [hidden, gates * hidden]
//!                    gates, state                                       from registers to the tape
//!                                                                       [parts, time, batch, hidden]
//! backward   for each block of steps, from the last to the first:
//!                for each share of the batch, for each step:
//!                    gradients of the gates                             [steps of the block, batch, 4 * hidden]
//!                    gradient of the state before = they * weights      carried along
//!                    gradient of the inputs = they * input weights
//!                gradients of weights and biases += they * states, they * inputs, they
//! ```
//!
//! Rows of the batch have nothing to do with each other, so a share of them goes through all steps while the weights stay in
//! the cache, and shares run on any number of threads with the same results. The gradients of the gates, which all other
//! gradients are made from, are never stored as a whole: those of a block of steps are used while they lie in the
//! caches. The tape is what the backward pass has to know: the state, and the gates after their functions.
//!
//! | cell | parts of the tape | columns of the gradients of the gates |
//! |---|---|---|
//! | GRU | state, reset, update, new, and what reset is multiplied with | reset, update, new, and the latter |
//! | LSTM | output, memory, input, forget, cell, output gate | input, forget, cell, output gate |

#![expect(unsafe_code, reason = "shares of the batch are written by several threads; the rows lie apart")]

mod backward;
mod forward;

use fearless_simd::{Simd, prelude::*};

use super::math::{Real, Vector};
use super::matmul::{GemmElement, span};
use crate::graph::Cell;
use crate::parallel;

pub use backward::backward;
pub use forward::forward;

/// Rows of the batch that go through the steps together, at most, and at least if there are threads without work.
const ROWS: usize = 32;
const FEW_ROWS: usize = 8;

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
    /// Width of the inputs.
    pub features: usize,
    /// The inputs, [time, batch, features].
    pub inputs: usize,
    /// The weights of the inputs, [features, gates * hidden], and their strides.
    pub input_weights: (usize, [usize; 2]),
    /// The weights of the state, [hidden, gates * hidden], and their strides.
    pub weights: (usize, [usize; 2]),
    /// The tape, [parts, time, batch, hidden].
    pub tape: usize,
    /// [`Steps::scratch_len`] elements of which nothing is expected.
    pub scratch: usize,
    /// The direction.
    pub pass: Pass,
}

/// What only one direction has.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// From inputs to states.
    Forward {
        /// The biases beside the inputs and beside the state, [gates * hidden] each.
        biases: [usize; 2],
        /// Whether the gates are kept on the tape; without a gradient nobody reads them.
        keeps: bool,
    },
    /// From gradients of the states to those of all operands.
    Backward {
        /// The gradients of the states, [time, batch, hidden].
        gradients: usize,
        /// The gradients of the operands behind each other, see [`Cell::gradient_lengths`].
        out: usize,
        /// Whether those of the inputs are asked for.
        of_inputs: bool,
    },
}

impl Steps {
    /// Elements of scratch memory. `sizes`: steps, rows, width of the state and of the inputs.
    pub fn scratch_len<T: GemmElement + Real>(cell: Cell, sizes: [usize; 4], backward: bool) -> usize {
        if backward {
            backward::Scratch::new::<T>(cell, sizes).len
        } else {
            forward::Scratch::new::<T>(cell, sizes).len
        }
    }

    fn sizes(&self) -> [usize; 4] {
        [self.time, self.batch, self.hidden, self.features]
    }

    /// Whether this is the gradient.
    pub fn is_backward(&self) -> bool {
        matches!(self.pass, Pass::Backward { .. })
    }

    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let rows = self.time * self.batch;
        let weights = (self.hidden + self.features) * self.width();
        match self.pass {
            Pass::Forward { keeps, .. } => {
                let parts = if keeps { self.cell.parts() } else { 1 + usize::from(self.cell == Cell::Lstm) };
                rows * (self.hidden * parts + self.features) + weights
            }
            Pass::Backward { of_inputs, .. } => {
                let inputs = self.features * (1 + usize::from(of_inputs));
                rows * (self.hidden * (self.cell.parts() + 1) + inputs) + 2 * weights
            }
        }
    }

    fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Where a part of the tape begins for a row at a step.
    fn part(&self, part: usize, step: usize, row: usize) -> usize {
        self.tape + ((part * self.time + step) * self.batch + row) * self.hidden
    }

    /// The element behind the last one of everything.
    fn end<T: GemmElement + Real>(&self) -> usize {
        let (rows, width) = (self.time * self.batch, self.width());
        let matrix = |rows: usize, (at, strides): (usize, [usize; 2])| at + span(rows, width, strides);
        let rest = match self.pass {
            Pass::Forward { biases, .. } => biases[0].max(biases[1]) + width,
            Pass::Backward { gradients, out, .. } => {
                let parts = self.cell.gradient_lengths(self.sizes());
                (gradients + rows * self.hidden).max(out + parts.iter().sum::<usize>())
            }
        };
        let tape = self.tape + self.cell.parts() * rows * self.hidden;
        let scratch = self.scratch + Steps::scratch_len::<T>(self.cell, self.sizes(), self.is_backward());
        let weights = matrix(self.hidden, self.weights).max(matrix(self.features, self.input_weights));
        [weights, self.inputs + rows * self.features, tape, scratch, rest].into_iter().max().unwrap_or(0)
    }
}

/// Runs `work` on the shares of the batch, of `least` rows at least: the first row and how many there are.
fn for_shares(batch: usize, least: usize, work: impl Fn(usize, usize) + Sync + Send) {
    let rows = batch.div_ceil(parallel::threads()).clamp(least, ROWS);
    parallel::for_each_index(batch.div_ceil(rows), |share| {
        let first = share * rows;
        work(first, rows.min(batch - first));
    });
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
        None => Vector::<S, T>::splat(simd, T::ZERO),
    }
}
