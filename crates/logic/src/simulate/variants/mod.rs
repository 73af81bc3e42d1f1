//! Many automata that differ in a few gates, run side by side.
//!
//! Whoever searches for a circuit wants to know what would become of a board if this gate had another function, or other
//! operands. A *trial* answers that for all 16 functions of a gate at once: a cell is a word, and every bit of the
//! word belongs to another automaton. Four trials of 16 functions each fill the 64 bits.
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

/// Automata that run side by side: the bits of a word.
pub const LANES: usize = 64;
/// Functions of a gate.
pub const FUNCTIONS: usize = 16;
/// Trials that are run together.
pub const TRIALS: usize = LANES / FUNCTIONS;

/// Wrong bits of each automaton: that of trial t with function f at `t * 16 + f`.
pub type Wrong = [u32; LANES];

#[cfg(test)]
mod tests;
