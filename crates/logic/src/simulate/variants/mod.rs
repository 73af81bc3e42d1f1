//! Many automata that differ in a few gates, run side by side.
//!
//! Whoever searches for a circuit wants to know what would become of a board if this gate had another function, or other
//! operands. A *trial* answers that for all 16 functions of a gate at once: a cell is a few words, and every bit of the
//! wordss belongs to another automaton. A few trials of 16 functions each fill the bits of a cell.
//!
//! | file | what is in it |
//! |---|---|
//! | `rule` | [`Rule`]: a circuit whose gates can be changed; [`Site`]: where a trial tries something else |
//! | `program` | what the observed channels need, compiled with the trials in it |
//! | `boards` | [`Boards`]: start states, steps and targets, laid out so that a neighbour is an offset |
//! | `count` | wrong bits of each of the 64 automata |

mod boards;
mod count;
mod program;
mod rule;

pub use boards::{Boards, Task};
pub use program::Variants;
pub use rule::{Rule, Site};

/// Words of a cell. The more, the less it costs to compile a program, but the planes should stay in the cache.
const CELL: usize = 2;
/// Automata that run side by side: the bits of a cell.
pub const LANES: usize = 64 * CELL;
/// Functions of a gate.
pub const FUNCTIONS: usize = 16;
/// Trials that are run together.
pub const TRIALS: usize = LANES / FUNCTIONS;

/// Wrong bits of each automaton: that of trial t with function f at `t * 16 + f`.
pub type Wrong = [u32; LANES];

#[cfg(test)]
mod tests;
