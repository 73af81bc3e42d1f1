//! The numeric engine of Gatework: graphs of operations on tensors, and SIMD kernels that choose their instruction set at
//! run time.
//!
//! | module | what is in it |
//! |---|---|
//! | [`graph`] | numeric expressions as data: interned nodes, a builder with shapes and broadcasting |
//! | [`ops`] | the table of operations: meaning and gradient |
//! | `grad` | [`Graph::gradients`]: reverse mode, graph to graph |
//! | `rewrite` | [`Graph::rewrite`]: the canonical form |
//! | `plan` | from a graph to kernels in an order: fusion, views, one arena |
//! | `instruction` | what a plan consists of: loops, matrix multiplications, gather, ... |
//! | [`program`] | compiled graphs and their runners |
//! | [`interpret`] | the oracle: slow, scalar, obvious |
//! | [`kernel`] | everything that is fast; each routine has a slow twin that the tests compare it with |
//! | [`parallel`] | the split of work between threads that never changes a result |
//! | [`vector`] | operations on slices, to be called directly |
//! | [`shape`], [`dtype`], [`buffer`] | the sizes and types of tensors, and memory for them |

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

#[cfg(test)]
mod arbitrary;
pub mod buffer;
pub mod dtype;
mod grad;
pub mod graph;
mod instruction;
pub mod interpret;
pub mod kernel;
pub mod ops;
pub mod parallel;
mod plan;
pub mod program;
mod rewrite;
pub mod shape;
pub mod vector;

pub use dtype::DType;
pub use graph::{Graph, GraphError, Id};
pub use program::{Program, Runner};
pub use shape::{Shape, ShapeError};
