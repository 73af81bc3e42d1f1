//! Boolean circuits and the cellular automata they drive.
//!
//! | file | what is in it |
//! |---|---|
//! | [`gate`] | the sixteen two-input gates |
//! | [`circuit`] | circuits: a flat list of gates in topological order |
//! | [`Circuit::simplify`] | wires, constants and inverters disappear into the gates that read them |
//! | [`automaton`] | a circuit as the rule of a cellular automaton |
//! | `cone` | the fan-in cone of the observed channels, through time |
//! | [`rules`] | automata that are known: Life |
//! | [`grid`] | boards of cells as bit planes |
//! | [`simulate`] | the bit-parallel simulator |
//! | [`mod@minimize`] | the same function with fewer gates |
//! | `xag` | XOR-AND graphs with structural hashing: the representation that is minimised, proved and compiled |
//! | `literal` | vertices with an optional inverter, shared by all logic networks |
//! | `straight_line` | circuits as straight-line programs, from which all back ends generate code |
//! | [`prove`] | equivalence of circuits, by SAT |
//! | [`naive`] | its naive twin, cell by cell |
//! | [`formats`] | files: JSON, BLIF, AIGER, Verilog, C, Rust, WebAssembly, DOT, SVG |
//! | `truth` | truth tables in words |
//! | `arbitrary` | random circuits, automata and grids for the tests |
//!
//! # Example
//!
//! A rule of two gates: a cell becomes 1 if exactly one of its left, its right and its own bit is 1, or all
//! three.
//!
//! ```
//! use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Node, Simulator};
//!
//! // One channel: the inputs 0..9 are the 3x3 patch, so 3 is the left, 4 the centre and 5 the right cell.
//! let gates = vec![Node::new(Gate::XOR, 3, 5), Node::new(Gate::XOR, 9, 4)];
//! let circuit = Circuit::new(9, gates, vec![10])?;
//! let automaton = Automaton::new(1, Boundary::Torus, circuit)?;
//!
//! let mut grid = Grid::new(1, 1, 70, 1)?;
//! grid.set(0, 0, 0, 35, true);
//! let mut simulator = Simulator::new(&automaton, 1)?;
//! for _ in 0..4 {
//!     simulator.step(&mut grid)?;
//! }
//! // Four steps spread a single cell to three.
//! assert_eq!(grid.count_ones(0, 0), 3);
//! assert!(grid.get(0, 0, 0, 31) && grid.get(0, 0, 0, 35) && grid.get(0, 0, 0, 39));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod arbitrary;
pub mod automaton;
pub mod circuit;
mod cone;
pub mod formats;
pub mod gate;
pub mod grid;
mod literal;
pub mod minimize;
pub mod naive;
pub mod prove;
pub mod rules;
mod simplify;
pub mod simulate;
mod straight_line;
mod truth;
mod xag;

pub use automaton::{Automaton, AutomatonError, Boundary};
pub use circuit::{Circuit, CircuitError, Node};
pub use formats::json::{Document, JsonError, from_json, to_json};
pub use gate::{Gate, Unary};
pub use grid::{Grid, GridError};
pub use minimize::{Effort, Minimized, MinimizedAutomaton, minimize, minimize_automaton};
pub use naive::{StepError, naive_step, naive_step_masked};
pub use simulate::Simulator;
