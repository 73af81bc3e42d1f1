//! WebAssembly: a circuit or an automaton as a module for any browser or runtime.
//!
//! The modules use fixed-width SIMD, which all current browsers and runtimes support, so one instruction computes a gate
//! for 128 samples or cells. They have no imports. Numbers are `i32`; memory holds eight bits per byte, the lowest first.
//!
//! **A circuit** ([`circuit_to_wasm`]) exports
//!
//! | export | effect |
//! |---|---|
//! | `memory` | the memory |
//! | `init(samples)` | allocates memory for a number of samples, with all inputs 0; returns 1, or 0 if there is not enough memory |
//! | `input(i)`, `output(i)` | returns the address of the bits of a port, one per sample; 0 if there is no such port |
//! | `run()` | computes the outputs of all samples |
//!
//! **An automaton** ([`automaton_to_wasm`]) exports
//!
//! | export | effect |
//! |---|---|
//! | `memory` | the memory |
//! | `init(height, width)` | allocates a grid of zeros at step 0; returns 1, or 0 if a side is not 1 to 32768 or there is not enough memory |
//! | `plane(channel)` | returns the address of cell (0, 0) of a channel; 0 if the channel is not live. It changes with every step. |
//! | `row_bytes()` | returns the stride of rows in bytes |
//! | `fire(rate, seed)` | sets the probability that a cell updates in a step to rate / 65536; the default is 65536, all cells |
//! | `step(n)` | computes `n` steps |
//!
//! Cell (y, x) is bit `x % 8` of the byte `plane(channel) + y * row_bytes() + x / 8`. Bits beyond the width are
//! undefined. A channel is live if an observed channel depends on it, now or in a later step; the others are not computed.
//!
//! **A classifier** ([`classifier_to_wasm`]) exports
//!
//! | export | effect |
//! |---|---|
//! | `memory` | the memory |
//! | `row()` | returns the address of the values of a sample: an `f32` for each feature, NaN for a missing value |
//! | `predict()` | computes the scores and returns the index of the class |
//! | `scores()` | returns the address of the scores: an `i32` for each class |
//!
//! In a browser or in Node:
//!
//! ```js
//! const { instance } = await WebAssembly.instantiate(bytes, {});
//! const { memory, init, plane, row_bytes, step } = instance.exports;
//! init(64, 64);
//! new Uint8Array(memory.buffer)[plane(0) + 32 * row_bytes() + 4] = 1;  // cell (32, 32) of channel 0
//! step(100);
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `body` | code generation from a straight-line program |
//! | `circuit`, `automaton`, `classifier` | the three kinds of modules |
//! | `fire` | the random number generator of asynchronous steps |
//! | `assembly` | the sections of a module |

mod assembly;
mod automaton;
mod body;
mod circuit;
mod classifier;
mod fire;
#[cfg(test)]
mod tests;

use crate::automaton::{Automaton, AutomatonError};
use crate::circuit::Circuit;
use crate::classifier::Classifier;
use crate::formats::json::Document;
use crate::formats::{Format, FormatError, Options};
use thiserror::Error;

/// The most inputs, gates and outputs of a module together: engines reject modules of more than 1 GiB, and each takes up to
/// 64 bytes (most gates take 25).
pub const MAX_OPERATIONS: usize = 1 << 24;

/// The entry of WebAssembly in [`FORMATS`](super::FORMATS).
pub(crate) static FORMAT: Format = Format {
    name: "wasm",
    endings: &["wasm"],
    about: "a WebAssembly module with SIMD",
    text: false,
    grid: false,
    reader: None,
    writer: Some(write),
};

fn write(document: &Document, _: &Options) -> Result<Vec<u8>, FormatError> {
    let module = match document {
        Document::Circuit(circuit) => circuit_to_wasm(circuit),
        Document::Classifier(classifier) => classifier_to_wasm(classifier),
        Document::Automaton { automaton, observed } => {
            automaton_to_wasm(automaton, observed.unwrap_or(automaton.channels))
        }
    };
    module.map_err(|error| match error {
        WasmError::Automaton(error) => error.into(),
        WasmError::TooLarge { .. } => FormatError::TooLarge { format: "wasm", message: error.to_string() },
    })
}

/// A circuit or an automaton that cannot be a module.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WasmError {
    /// The circuit exceeds [`MAX_OPERATIONS`].
    #[error(
        "a WebAssembly module may have {MAX_OPERATIONS} inputs, gates and outputs together, but the circuit has \
         {operations}; minimise it first"
    )]
    TooLarge {
        /// The inputs, gates and outputs of the simplified circuit.
        operations: usize,
    },
    /// The automaton is not valid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
}

/// Returns the module of a circuit; see the [module documentation](self) for its exports.
pub fn circuit_to_wasm(circuit: &Circuit) -> Result<Vec<u8>, WasmError> {
    let circuit = circuit.simplify();
    check_size(circuit.signals() + circuit.outputs().len())?;
    Ok(circuit::module(&circuit))
}

/// Returns the module of an automaton of which the first `observed` channels are observed (at least one, and at most all);
/// see the [module documentation](self) for its exports.
pub fn automaton_to_wasm(automaton: &Automaton, observed: usize) -> Result<Vec<u8>, WasmError> {
    automaton.check()?;
    let circuit = automaton.circuit.simplify();
    check_size(circuit.signals() + circuit.outputs().len())?;
    Ok(automaton::module(&Automaton { circuit, ..*automaton }, observed.max(1)))
}

/// Returns the module of a classifier; see the [module documentation](self) for its exports.
pub fn classifier_to_wasm(classifier: &Classifier) -> Result<Vec<u8>, WasmError> {
    let circuit = classifier.circuit().simplify();
    // An adder takes five operations for each output.
    check_size(circuit.signals() + 6 * circuit.outputs().len())?;
    Ok(classifier::module(classifier))
}

fn check_size(operations: usize) -> Result<(), WasmError> {
    if operations > MAX_OPERATIONS { Err(WasmError::TooLarge { operations }) } else { Ok(()) }
}
