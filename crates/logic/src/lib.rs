//! Boolean circuits: minimisation, equivalence checking, bit-parallel simulation and export.
//!
//! A [`Circuit`] is a flat array of two-input gates. Build one gate by gate or read it from a file ([`formats`]), make it
//! smaller ([`minimize()`]), prove that two circuits compute the same function ([`prove`]), run it ([`simulate`]) and write
//! it as Verilog, BLIF, AIGER, C, Rust or WebAssembly. An [`Automaton`] is a cellular automaton whose rule is a circuit;
//! it can be minimised, proved, simulated and exported as well.
//!
//! ```
//! use gatework_logic::formats::{self, Format};
//! use gatework_logic::minimize::{self, minimize};
//! use gatework_logic::{Circuit, Gate, Node, prove};
//!
//! // (a & b) | (a & c): signals 0 to 2 are the inputs, 3 to 5 the gates.
//! let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::AND, 0, 2), Node::new(Gate::OR, 3, 4)];
//! let circuit = Circuit::new(3, gates, vec![5])?;
//!
//! let small = minimize(&circuit, &minimize::Options::default()).circuit;
//! assert_eq!(small.nodes().len(), 2);
//! assert_eq!(prove::equivalent(&circuit, &small)?, prove::Verdict::Equal);
//! let blif = formats::write(&small.into(), Format::named("blif")?, &formats::Options::default())?;
//! assert!(blif.starts_with(b".model circuit"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`gate`] | the sixteen two-input gates |
//! | [`circuit`] | circuits; [`Circuit::simplify`] removes wires, constants, inverters and dead gates |
//! | [`mod@minimize`] | logic minimisation of circuits and automata |
//! | [`prove`] | equivalence checking of circuits and automata by SAT |
//! | [`mod@check`] | model checking: what an automaton does on a grid, from all start states |
//! | [`formats`] | JSON, BLIF, AIGER, Verilog, C, Rust, WebAssembly, DOT and SVG files |
//! | [`classifier`] | classifiers: an encoder, a circuit and a head of group sums |
//! | [`automaton`] | cellular automata whose rule is a circuit |
//! | [`grid`] | the states of automata, as bit planes |
//! | [`simulate`] | bit-parallel simulation of circuits and automata |
//! | [`naive`] | the reference implementation of the simulator |
//! | [`rules`] | well-known automata |
//!
//! Internal modules: `xag` (the XOR-AND graph that minimisation, proofs and compilation work on), `literal` (its edges),
//! `straight_line` (the program from which simulators and exported code are generated), `simplify`, `cone` (the cone of
//! influence of observed channels), `stop` (when to give up), `truth` (truth tables) and `arbitrary` (random circuits for tests).
//!
//! # Cellular automata
//!
//! A rule of two gates, which is the parity of a cell and of its left and right neighbour:
//!
//! ```
//! use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Node, Simulator};
//!
//! // One channel: inputs 0..9 are the 3x3 neighbourhood; 3 is the left, 4 the centre and 5 the right cell.
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
//! // After four steps a single cell has become three.
//! assert_eq!(grid.count_ones(0, 0), 3);
//! assert!(grid.get(0, 0, 0, 31) && grid.get(0, 0, 0, 35) && grid.get(0, 0, 0, 39));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod arbitrary;
pub mod automaton;
pub mod check;
pub mod circuit;
pub mod classifier;
mod cone;
pub mod formats;
pub mod gate;
pub mod grid;
mod grid_text;
mod literal;
pub mod minimize;
pub mod naive;
pub mod prove;
pub mod rules;
mod simplify;
pub mod simulate;
mod stop;
mod straight_line;
mod truth;
mod xag;

pub use automaton::{Automaton, AutomatonError, Boundary};
pub use circuit::{Circuit, CircuitError, Node};
pub use classifier::{Classifier, ClassifierError};
pub use formats::json::{Document, JsonError, from_json, to_json};
pub use gate::{Gate, Unary};
pub use grid::{Grid, GridError, GridSize};
pub use grid_text::GridTextError;
pub use minimize::{Effort, Minimized, MinimizedAutomaton, minimize, minimize_automaton};
pub use naive::{StepError, naive_step, naive_step_masked};
pub use simulate::{Predictor, Simulator};
pub use stop::{Stop, Stopped};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
