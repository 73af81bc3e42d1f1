//! Model checking of automata: proves what an automaton does on a grid, from all start states at once.
//!
//! A [`Question`] has an automaton, a target, a set of start states, a [`Property`] and the order in which cells fire.
//! [`check`] proves the property, refutes it with a start state that [`Counterexample`] replays, or gives up.
//!
//! ```
//! use gatework_logic::check::{Answer, Property, Question, check};
//! use gatework_logic::{Automaton, Boundary, Circuit, Grid};
//!
//! // Every cell takes the bit of the cell above; zeros enter at the top.
//! let falling = Automaton::new(1, Boundary::Zeros, Circuit::new(9, vec![], vec![1])?)?;
//! let empty = Grid::new(1, 6, 4, 1)?;
//!
//! // From all 2^24 states the grid is empty after six steps, and stays empty.
//! let question = Question::from_any(falling, empty, Property::Stays { from: 10 });
//! let Answer::Proved(proof) = check(&question)? else { panic!() };
//! assert_eq!(proof.steps, 6);
//!
//! // Five steps are too few: a bit in the top row is still there.
//! let question = Question { property: Property::Stays { from: 5 }, ..question };
//! let Answer::Refuted(found) = check(&question)? else { panic!() };
//! assert!((0..4).any(|x| found.start.get(0, 0, 0, x)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Method
//!
//! ```text
//! channels outside of the cone of influence of the target's channels are removed
//! simulation of random start states:       a state that is wrong is a counterexample
//! one start state, all cells fire:         the orbit is followed until it repeats
//! unrolling:                               the XAG of the rule, once for each cell and step, with structural hashing and
//!                                          constants; the incremental SAT solver decides "some cell is wrong at step k"
//! settling:                                bits that are the same in all runs from some step on, one after the other
//! no bound on the steps:                   the first of these that succeeds
//!   from all states:                       right at step k of all runs => right at all later steps
//!   confluence:                            all runs are in one state at step k, whose orbit is right
//!   k-induction:                           k right states in a row are followed by a right state
//!   lasso:                                 a wrong state that recurs after p steps is a counterexample
//! ```
//!
//! The theorem behind the first row: every state at step `k + n` is also the state at step `k` of another run, that which
//! starts at step `n`. If all states are start states, what holds at step `k` of all runs holds at every later step. This
//! makes unbounded properties from all states as simple as bounded ones, and the least `k` is the exact bound.
//!
//! A counterexample is simulated before it is returned. A proof relies on the XAG and the solver;
//! [`certificate`](certificate()) and [`Question::to_aiger`] give it to independent programs.
//!
//! | module | content |
//! |---|---|
//! | `model` | the automaton reduced to its live channels, and memory estimates |
//! | `unrolling` | XAGs of several steps, and SAT queries on them |
//! | `falsify` | simulation of random runs, and orbits of single states |
//! | `settling` | bits that are the same in all runs from some step on |
//! | `bounded` | properties that one unrolling decides |
//! | `unbounded` | confluence, induction and lassos |
//! | `certificate` | questions as DIMACS, with DRAT proofs |
//! | `question` | questions as AIGER with bad states and constraints |

mod bounded;
mod certificate;
mod falsify;
mod model;
mod question;
#[cfg(test)]
mod reference;
mod settling;
#[cfg(test)]
mod tests;
mod unbounded;
mod unrolling;

use crate::automaton::{Automaton, AutomatonError};
use crate::formats::FormatError;
use crate::grid::{Grid, GridError};
use crate::stop::{Stop, Stopped};
use model::Model;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use thiserror::Error;

pub use certificate::{Certificate, certificate};

/// The states in which runs start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// All states.
    Any,
    /// One state: a grid of one sample with all channels of the automaton.
    Grid(Grid),
    /// A grid in which at most this many cells have any other bits in any of their channels.
    Damaged {
        /// The grid before the damage.
        grid: Grid,
        /// The most cells that are damaged.
        cells: usize,
    },
    /// A grid in which the cells of a rectangle have any bits.
    Region {
        /// The grid before the damage.
        grid: Grid,
        /// The rows of the rectangle.
        rows: Range<usize>,
        /// The columns of the rectangle.
        columns: Range<usize>,
    },
}

impl Start {
    /// The grid before damage, unless all states are start states.
    pub fn grid(&self) -> Option<&Grid> {
        match self {
            Start::Any => None,
            Start::Grid(grid) | Start::Damaged { grid, .. } | Start::Region { grid, .. } => Some(grid),
        }
    }
}

/// What all runs have to do. A state is right if the channels of the target have the target's bits in all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Property {
    /// The state is right at a step from 0 to `within`, maybe at another one for each run; what follows does not matter.
    Reaches {
        /// The last step that counts.
        within: usize,
    },
    /// The state is right at step `from` and at every later step.
    Stays {
        /// The first step at which the state has to be right.
        from: usize,
    },
    /// The state is right at all steps from some step on: every attractor that a run can end in is right at all its
    /// steps. There is no bound on the steps before.
    Attracts,
}

/// Which cells take their new bits in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// All cells.
    #[default]
    Synchronous,
    /// Any subset of the cells, another one in each step: the property has to hold for every choice.
    ///
    /// With a window, every cell fires at least once in each sequence of that many steps; 1 is the same as synchronous.
    /// Without a window a cell may never fire, so only what is right from the start can be proved.
    Any {
        /// The number of steps in which every cell fires at least once.
        window: Option<usize>,
    },
}

/// A question about an automaton on a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The automaton.
    pub automaton: Automaton,
    /// The target, a grid of one sample. Its channels are compared with the first channels of the automaton.
    pub target: Grid,
    /// The start states.
    pub start: Start,
    /// What has to hold.
    pub property: Property,
    /// Which cells fire.
    pub order: Order,
}

impl Question {
    /// Asks for a property of the runs from all states, in which all cells fire in every step.
    pub fn from_any(automaton: Automaton, target: Grid, property: Property) -> Question {
        Question { automaton, target, start: Start::Any, property, order: Order::Synchronous }
    }

    /// Checks that automaton, grids and regions fit together.
    pub fn validate(&self) -> Result<(), CheckError> {
        self.automaton.check()?;
        let shape = |grid: &Grid| [grid.height(), grid.width()];
        if self.target.samples() != 1 || self.start.grid().is_some_and(|grid| grid.samples() != 1) {
            return Err(CheckError::Samples);
        }
        if self.target.channels() > self.automaton.channels {
            let (grid, automaton) = (self.target.channels(), self.automaton.channels);
            return Err(GridError::Channels { automaton, grid }.into());
        }
        if let Some(grid) = self.start.grid() {
            if shape(grid) != shape(&self.target) {
                return Err(CheckError::Shape { start: shape(grid), target: shape(&self.target) });
            }
            if grid.channels() != self.automaton.channels {
                let (grid, automaton) = (grid.channels(), self.automaton.channels);
                return Err(GridError::Channels { automaton, grid }.into());
            }
        }
        if let Start::Region { rows, columns, .. } = &self.start {
            let [height, width] = shape(&self.target);
            if rows.is_empty() || columns.is_empty() || rows.end > height || columns.end > width {
                return Err(CheckError::Region {
                    rows: rows.clone(),
                    columns: columns.clone(),
                    height,
                    width,
                });
            }
        }
        match self.order {
            Order::Any { window: Some(0) } => Err(CheckError::Window),
            _ => Ok(()),
        }
    }
}

/// A question that cannot be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The automaton is not valid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// A grid has the wrong number of channels, or cannot be made.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// A grid has several samples.
    #[error("start and target are one grid each, not a batch of several samples")]
    Samples,
    /// Start and target have different sizes.
    #[error("the start is {}x{} cells, but the target is {}x{}", start[0], start[1], target[0], target[1])]
    Shape {
        /// Rows and columns of the start.
        start: [usize; 2],
        /// Rows and columns of the target.
        target: [usize; 2],
    },
    /// The damaged region is empty or outside of the grid.
    #[error("the rows {rows:?} and columns {columns:?} are not a region of a grid of {height}x{width} cells")]
    Region {
        /// The rows of the region.
        rows: Range<usize>,
        /// The columns of the region.
        columns: Range<usize>,
        /// The rows of the grid.
        height: usize,
        /// The columns of the grid.
        width: usize,
    },
    /// The window of a firing order is 0.
    #[error("a cell cannot fire within 0 steps: the window is at least 1")]
    Window,
    /// The unrolled circuit is estimated not to fit into memory.
    #[error(
        "{}x{} cells with {gates} gates each, unrolled for {steps} steps, may take {:.1} GB, but the limit is {:.1} GB; {fits}",
        size[0], size[1], *bytes as f64 / 1e9, *limit as f64 / 1e9
    )]
    TooLarge {
        /// Rows and columns of the grid.
        size: [usize; 2],
        /// The gates of a cell.
        gates: usize,
        /// The steps of the unrolling.
        steps: usize,
        /// The estimated bytes.
        bytes: u64,
        /// The most bytes that may be used.
        limit: u64,
        /// Which grid or number of steps would fit.
        fits: String,
    },
    /// The question cannot be written as a file.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A certificate was asked for a property that one bounded query does not decide.
    #[error("{0}")]
    Certificate(&'static str),
    /// The computation was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// A counterexample was not confirmed by simulation: a bug.
    #[error("the counterexample of the solver is not one in the simulation: this is a bug of Gatework")]
    Inconsistent,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The property holds for all runs.
    Proved(Proof),
    /// The property does not hold for this run.
    Refuted(Counterexample),
    /// The limits were reached before an answer was found.
    Undecided(Undecided),
}

/// A proof: how a property was proved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// For [`Property::Reaches`], a step by which all runs have been right. Otherwise a step from which on all runs are
    /// right; it may be below the step that was asked for.
    pub steps: usize,
    /// Whether a run exists that is wrong one step earlier, so that `steps` cannot be lowered.
    pub is_least: bool,
    /// The argument.
    pub method: Method,
    /// The gates of the unrolled circuit, after structural hashing; 0 if there was none.
    pub gates: usize,
}

/// The argument of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// One SAT query about the unrolled circuit.
    Unrolling,
    /// All runs from all states are right at one step, and therefore at all later ones.
    AllStates,
    /// Bits have the same value in all runs from some step on, and let further bits settle, until the target has.
    Settling,
    /// There is one run, which was simulated up to a right state.
    Simulation,
    /// There is one run, which was simulated until it repeated after this many steps.
    Orbit {
        /// The steps of the cycle at its end.
        period: usize,
    },
    /// All runs are in the same state at a step, from which on the run was simulated until it repeated.
    Confluence {
        /// The step.
        step: usize,
        /// The steps of the cycle at the end.
        period: usize,
    },
    /// After this many right states in a row, the next one is right.
    Induction {
        /// The number of states.
        states: usize,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Unrolling => write!(f, "SAT on the unrolled circuit"),
            Method::AllStates => {
                write!(
                    f,
                    "SAT on the unrolled circuit; what holds at a step from all states holds at all later steps"
                )
            }
            Method::Settling => {
                write!(f, "SAT on neighbourhoods: bits that have settled in all runs let others settle")
            }
            Method::Simulation => write!(f, "simulation of the only run"),
            Method::Orbit { period } => write!(f, "simulation until the state repeats, with period {period}"),
            Method::Confluence { step, period } => write!(
                f,
                "SAT on the unrolled circuit: all runs are in one state at step {step}, which repeats with period {period}"
            ),
            Method::Induction { states } => write!(f, "{states}-induction over the steps, by SAT"),
        }
    }
}

/// A run that does not have the property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counterexample {
    /// The start state, with all channels of the automaton. Channels that the target does not depend on are those of the
    /// grid before damage, or 0.
    pub start: Grid,
    /// The cells that fire in each step, as masks of the words of a sample; empty if all cells fire in all steps.
    pub fires: Vec<Vec<u64>>,
    /// A step at which the state is wrong. For [`Property::Reaches`], the states before are wrong as well.
    pub steps: usize,
    /// The number of wrong bits at that step.
    pub wrong: usize,
    /// For a run that never settles: the state at this step recurs after `period` steps.
    pub period: Option<usize>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undecided {
    /// The limit that was reached.
    pub limit: Limit,
    /// The steps of the longest unrolling that was looked at.
    pub steps: usize,
}

/// A limit of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The time, or a flag that ends the check.
    Time,
    /// The memory of the unrolled circuit.
    Memory,
    /// The maximum number of steps of an unrolling without a bound.
    Steps,
}

/// Limits of a check other than time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of the unrolled circuit and the solver, as estimated.
    pub memory: u64,
    /// The most steps of an unrolling, where the property has no bound.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 4 << 30, steps: 1000 }
    }
}

/// What a check does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The stage.
    pub stage: &'static str,
    /// The steps of the unrolling or of the simulation.
    pub steps: usize,
    /// The gates of the unrolling.
    pub gates: usize,
}

/// A function that observes the progress of a check.
pub type Observer<'a> = dyn Fn(Progress) + 'a;

/// Answers a question with the default limits, however long it takes.
pub fn check(question: &Question) -> Result<Answer, CheckError> {
    check_until(question, &Limits::default(), &Stop::never(), &|_| {})
}

/// Answers a question within limits; [`Answer::Undecided`] if they are reached. Calls `observer` before each query.
pub fn check_until(
    question: &Question,
    limits: &Limits,
    stop: &Stop<'_>,
    observer: &Observer<'_>,
) -> Result<Answer, CheckError> {
    question.validate()?;
    let model = Model::new(question)?;
    let steps = Cell::new(0);
    let context = Context { model: &model, limits, stop, observer, steps: &steps };
    let answer = context.answer().and_then(|answer| match answer {
        Answer::Refuted(found) => Ok(Answer::Refuted(model.confirm(question, found, stop)?)),
        answer => Ok(answer),
    });
    match answer {
        Err(CheckError::Stopped(_)) => Ok(context.undecided(Limit::Time)),
        answer => answer,
    }
}

/// A question in its reduced form, with the limits of its answer.
#[derive(Clone, Copy)]
struct Context<'a> {
    model: &'a Model,
    limits: &'a Limits,
    stop: &'a Stop<'a>,
    observer: &'a Observer<'a>,
    /// The steps that were last reported.
    steps: &'a Cell<usize>,
}

impl Context<'_> {
    fn answer(&self) -> Result<Answer, CheckError> {
        if self.model.is_single_run() {
            return falsify::follow_orbit(self);
        }
        let (unrolled, most) = match self.model.property {
            Property::Reaches { within: steps } | Property::Stays { from: steps } => (steps.max(1), steps),
            Property::Attracts => (1, self.limits.steps),
        };
        if self.model.check_memory(1, self.limits).is_err() {
            return self.model.check_memory(unrolled, self.limits).map(|()| self.undecided(Limit::Memory));
        }
        let simulated = falsify::simulate(self)?;
        if let Some(found) = simulated.found {
            return Ok(Answer::Refuted(found));
        }
        if let Some(steps) = settling::settle(self, most)? {
            return Ok(bounded::settled(self, steps, simulated.last_wrong));
        }
        self.model.check_memory(unrolled, self.limits)?;
        match (self.model.property, self.model.is_from_any()) {
            (Property::Stays { from }, true) => bounded::stays(self, from, simulated.last_wrong),
            (Property::Reaches { within }, _) => bounded::reaches(self, within, simulated.last_wrong),
            (Property::Attracts, true) => unbounded::attracts_all(self, simulated.last_wrong),
            (Property::Stays { from }, false) => unbounded::stays(self, Some(from)),
            (Property::Attracts, false) => unbounded::stays(self, None),
        }
    }

    fn undecided(&self, limit: Limit) -> Answer {
        Answer::Undecided(Undecided { limit, steps: self.steps.get() })
    }

    fn report(&self, stage: &'static str, steps: usize, gates: usize) {
        self.steps.set(steps);
        (self.observer)(Progress { stage, steps, gates });
    }
}
