//! Automata that are made by a formula instead of being learned: the last resort of the search.
//!
//! A cell that knows its coordinates can look its target up in a table. Coordinates are counters in hidden channels. They
//! start from the seed cell and spread with the cells that are alive, or they start from the edge of the grid:
//!
//! | file | what it makes |
//! |---|---|
//! | `bits` | a circuit, gate by gate, with constants folded and equal gates shared |
//! | `table` | a function of a few bits, given as a table with don't-cares |
//! | `coordinates` | the counters, and the automaton that reads a picture or tile from them |
//! | `clock` | a clock that stops an automaton at a step |
//! | `embed` | any circuit as the layers of a [`Model`](super::model::Model) |
//!
//! The result is exact by construction. It memorises the target, and the report of a run says so.

pub(super) mod bits;
mod clock;
mod coordinates;
mod embed;
mod table;

pub(super) use clock::stopped;
pub(super) use coordinates::{Anchor, Axes, automaton};
pub(super) use embed::embed;
pub(super) use table::lookup;

/// Number of bits that tell this many values apart.
pub(super) fn bits_for(values: usize) -> usize {
    values.max(1).next_power_of_two().trailing_zeros() as usize
}
