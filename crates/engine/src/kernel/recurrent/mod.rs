//! GRU and LSTM over time: matrix multiplications fused with the activations of the gates.
//!
//! ```text
//! forward    for each chunk of the batch, for each step:                inputs [time, batch, features]
//!                for each block of units, for each tile of rows:
//!                    sums  = bias + input * input weights               [features, gates * hidden]
//!                                 + state * weights                     [hidden, gates * hidden]
//!                    gates, state                                       from registers to the tape
//!                                                                       [parts, time, batch, hidden]
//! backward   for each block of steps, from the last to the first:
//!                for each chunk of the batch, for each step:
//!                    gate gradients                                     [steps of the block, batch, 4 * hidden]
//!                    gradient of the previous state = gate gradients * weights
//!                    gradient of the inputs = gate gradients * input weights
//!                gradients of weights and biases += gate gradients * states, * inputs, * 1
//! ```
//!
//! The rows of the batch are independent, so a chunk of them goes through all steps while the weights stay in the cache,
//! and chunks run on any number of threads with the same results. The gate gradients of all steps are never stored: those
//! of a block of steps are used while they are in the caches. The tape holds what the backward pass needs: the states, and
//! the gates after their activations. Without a backward pass, it holds the states alone.
//!
//! | cell | parts of the tape | columns of the gate gradients |
//! |---|---|---|
//! | GRU | state, reset, update, new, and the factor of reset | reset, update, new, and the factor of reset |
//! | LSTM | output, cell state, input, forget, cell, output gate | input, forget, cell, output gate |

#![expect(unsafe_code, reason = "several threads write disjoint rows of the batch")]

mod backward;
mod forward;

use fearless_simd::{Simd, prelude::*};

use super::math::{Real, Vector};
use super::matmul::{GemmElement, span};
use crate::graph::Cell;
use crate::parallel;

pub use backward::backward;
pub use forward::forward;

/// Largest number of rows of a chunk, and the smallest if threads would otherwise be idle.
const MAX_CHUNK_ROWS: usize = 32;
const MIN_CHUNK_ROWS: usize = 8;

/// Sizes and offsets of a recurrent layer in one slice of memory. All tensors are row-major and contiguous, except for the
/// weights, which have strides.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The cell.
    pub cell: Cell,
    /// Number of steps.
    pub time: usize,
    /// Rows of the batch.
    pub batch: usize,
    /// Number of hidden units.
    pub hidden: usize,
    /// Number of input features.
    pub features: usize,
    /// The inputs, [time, batch, features].
    pub inputs: usize,
    /// The weights of the inputs, [features, gates * hidden], and their strides.
    pub input_weights: (usize, [usize; 2]),
    /// The weights of the state, [hidden, gates * hidden], and their strides.
    pub weights: (usize, [usize; 2]),
    /// The tape, [parts, time, batch, hidden]; the states only, if the gates are not saved.
    pub tape: usize,
    /// [`Steps::scratch_len`] uninitialised elements.
    pub scratch: usize,
    /// The direction.
    pub pass: Pass,
}

/// Operands and results of one direction.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Computes the states from the inputs.
    Forward {
        /// Input bias and hidden bias, [gates * hidden] each.
        biases: [usize; 2],
        /// Whether the gates are saved; only the backward pass needs them. If not, the tape has the states only.
        saves_gates: bool,
    },
    /// Computes the gradients of all operands from those of the states.
    Backward {
        /// The gradients of the states, [time, batch, hidden].
        gradients: usize,
        /// The gradients of the operands, one after another; see [`Cell::gradient_lengths`].
        out: usize,
        /// Whether the gradient of the inputs is needed.
        of_inputs: bool,
    },
}

impl Steps {
    /// Returns the number of elements of scratch memory. `sizes`: steps, batch, hidden units and input features.
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

    /// Returns whether this is the backward pass.
    pub fn is_backward(&self) -> bool {
        matches!(self.pass, Pass::Backward { .. })
    }

    /// Returns the number of elements that are read and written.
    pub fn traffic(&self) -> usize {
        let rows = self.time * self.batch;
        let weights = (self.hidden + self.features) * self.width();
        match self.pass {
            Pass::Forward { saves_gates, .. } => {
                let parts = if saves_gates { self.cell.parts() } else { 1 };
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

    /// Returns the offset of a part of the tape for a row at a step.
    fn part(&self, part: usize, step: usize, row: usize) -> usize {
        self.tape + ((part * self.time + step) * self.batch + row) * self.hidden
    }

    /// Returns the end of the last tensor in memory.
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
        let parts = match self.pass {
            Pass::Forward { saves_gates: false, .. } => 1,
            _ => self.cell.parts(),
        };
        let tape = self.tape + parts * rows * self.hidden;
        let scratch = self.scratch + Steps::scratch_len::<T>(self.cell, self.sizes(), self.is_backward());
        let weights = matrix(self.hidden, self.weights).max(matrix(self.features, self.input_weights));
        [weights, self.inputs + rows * self.features, tape, scratch, rest].into_iter().max().unwrap_or(0)
    }
}

/// Runs `work` on chunks of the batch of at least `least` rows: the first row and the number of rows.
fn for_chunks(batch: usize, least: usize, work: impl Fn(usize, usize) + Sync + Send) {
    let rows = batch.div_ceil(parallel::threads()).clamp(least, MAX_CHUNK_ROWS);
    parallel::for_each_index(batch.div_ceil(rows), |chunk| {
        let first = chunk * rows;
        work(first, rows.min(batch - first));
    });
}

/// Loads a vector from an index of a slice; lanes from `end` on repeat the first one.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, x: &[T], at: usize, end: usize) -> Vector<S, T> {
    if at + Vector::<S, T>::LEN <= end {
        return Vector::<S, T>::from_slice(simd, &x[at..at + Vector::<S, T>::LEN]);
    }
    let mut vector = Vector::<S, T>::splat(simd, x[at]);
    vector.as_mut_slice()[..end - at].copy_from_slice(&x[at..end]);
    vector
}

/// Stores the lanes before `end`.
#[inline(always)]
fn store<S: Simd, T: Real>(x: &mut [T], at: usize, end: usize, value: Vector<S, T>) {
    if at + Vector::<S, T>::LEN <= end {
        value.store_slice(&mut x[at..at + Vector::<S, T>::LEN]);
    } else {
        x[at..end].copy_from_slice(&value.as_slice()[..end - at]);
    }
}

/// Loads a vector from an index of a slice, or zeros if there is no slice.
#[inline(always)]
fn load_or_zero<S: Simd, T: Real>(simd: S, x: Option<&[T]>, at: usize, end: usize) -> Vector<S, T> {
    match x {
        Some(x) => load::<S, T>(simd, x, at, end),
        None => Vector::<S, T>::splat(simd, T::ZERO),
    }
}
