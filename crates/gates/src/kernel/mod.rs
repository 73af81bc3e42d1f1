//! SIMD kernels of soft gate networks on tiles of 32 lanes, forward and backward.
//!
//! A soft gate is `out = c0 + c1 a + c2 b + c3 ab`: the probabilities of the 16 Boolean functions collapse
//! to four coefficients that depend on the logits only, so they are computed once per update
//! ([`Coefficients`]) and a gate costs three fused multiply-adds per lane.
//!
//! A lane is one cell of one sample. A [`Row`] holds the 32 values of one node, a tile is an array of rows,
//! and a wire is a row number: every load is contiguous, and a tile passes through all layers while it is in
//! the cache.
//!
//! ```text
//! infer:     for each layer, for each gate:   out = a (c3 b + c1) + (c2 b + c0)
//!
//! gradient:  infer, keeping every row; then for each layer from the last, for each gate:
//!              g = c3 * gradient of out            (scaled once, the sums are divided by c3 at the end)
//!              gradient of a += g (b + c1/c3)
//!              gradient of b += ga + g c2/c3
//!              sums          += g, ga, gb, gab     (the gradient of the four coefficients, times c3)
//! ```
//!
//! The gates of a layer are visited along trails: walks through the graph whose nodes are rows and whose
//! edges are gates, so that operand `b` of a gate is operand `a` of the next one and its pending gradient
//! stays in registers ([`GateProgram`]). The scaling by `c3` saves a multiplication: six multiply-adds and
//! three additions per lane remain.
//!
//! Wires that are learned are mixtures of candidate rows, a layer of its own before the gates ([`Mixture`]).
//! Small networks that all channels of an automaton share run on wider rows ([`Kernels`]).

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod coefficients;
mod kernels;
mod mixture;
pub mod pooling;
mod program;
pub mod reference;
mod tile;
pub mod transpose;

pub use coefficients::{Coefficients, FUNCTIONS, GateTable, Sums};
pub use kernels::{GROUP, KernelWorkspace, Kernels, WideRow};
pub use mixture::{CANDIDATE_GROUP, Mixture};
pub use program::{GateProgram, Layer, Order, WireError, Wires};
pub use tile::Workspace;

/// Lanes of a tile: cells that are computed together.
pub const LANES: usize = 32;

/// The values of one node for all lanes of a tile.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Row(pub [f32; LANES]);

impl Row {
    /// A row of zeros.
    pub const ZERO: Row = Row([0.0; LANES]);
}
