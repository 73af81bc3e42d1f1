//! Bit-parallel simulation of many automata that differ in a few gates.
//!
//! A search over circuits evaluates what a grid becomes if a gate has another function or other operands. A *trial* does
//! this for all 16 functions of a gate at once: a cell is a few words, and every bit of the words belongs to another
//! automaton. Several trials of 16 functions each fill the bits of a cell.
//!
//! | file | contents |
//! |---|---|
//! | `rule` | [`Rule`]: a circuit whose gates can be changed; [`Site`]: a gate that a trial changes |
//! | `program` | [`Variants`]: the rule and its trials as a straight-line program |
//! | `grids` | [`Grids`]: start states, steps and targets, laid out so that a neighbour is a constant offset |
//! | `count` | the number of wrong bits of each automaton |

mod count;
mod grids;
mod program;
mod rule;

pub use grids::{Grids, SimulationTask};
pub use program::Variants;
pub use rule::{Rule, Site};

/// Words per cell. More words amortise the compilation of a program, but the planes should stay in the cache.
const CELL: usize = 2;
/// The number of automata that are simulated at once: the bits of a cell.
pub const LANES: usize = 64 * CELL;
/// The number of functions of a gate.
pub const FUNCTIONS: usize = 16;
/// The number of trials that are simulated at once.
pub const TRIALS: usize = LANES / FUNCTIONS;

/// The number of wrong bits of each automaton: trial t with function f is at `t * 16 + f`.
pub type Wrong = [u32; LANES];

#[cfg(test)]
mod tests;
