//! Bit-parallel simulation of circuits and automata: many samples or cells per instruction.
//!
//! | file | contents |
//! |---|---|
//! | `executor` | [`Executor`]: a circuit on a batch of samples |
//! | `compiled` | a straight-line program with its inputs and outputs at fixed offsets in memory |
//! | `interpreter` | the block interpreter |
//! | `native` | x86-64 code generation |
//! | `predictor` | [`Predictor`]: a classifier on a batch of samples |
//! | `encode` | the bit-sliced encoder of a classifier |
//!
//! [`Runner`] steps large grids, 256 cells per instruction:
//!
//! | file | contents |
//! |---|---|
//! | `runner` | [`Runner`]: an automaton on large grids |
//! | `striped_grid` | a grid in striped layout, and several steps in one pass over it (temporal blocking) |
//! | `tile` | the rule unrolled over several rows (unroll-and-jam), with common subexpressions shared |
//! | `reduction` | functional reduction of the unrolled rule |
//! | `strips` | the striped layout of a row, in which neighbours need no shifts |
//! | `bits` | bit strings: windows at any bit, and transposition |
//!
//! [`Simulator`] steps small grids, 64 cells per word:
//!
//! | file | contents |
//! |---|---|
//! | `simulator` | [`Simulator`]: blocks of words through the interpreter |
//! | `neighbours` | the planes of the neighbours, by shifting bit strings |
//!
//! [`variants`] runs many automata that differ in a few gates, one per bit.

mod bits;
mod compiled;
mod encode;
mod executor;
mod interpreter;
mod native;
mod neighbours;
mod predictor;
mod reduction;
mod runner;
mod simulator;
mod striped_grid;
mod strips;
mod tile;
pub mod variants;

pub use executor::{BatchError, Executor};
pub use predictor::Predictor;
pub use runner::Runner;
pub use simulator::Simulator;
