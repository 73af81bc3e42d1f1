//! Model checking of learned automata: questions about a run folder, and counterexamples as GIFs.
//!
//! ```no_run
//! use gatework::check::Check;
//! use gatework::logic::check::{Answer, check};
//! use gatework::subject::Subject;
//!
//! let subject = Subject::open("runs/checkerboard".as_ref())?;
//! // From every state of a 16x16 grid: right from step 20 on, forever?
//! let options = Check { within: Some(20), stay: true, ..Check::default() };
//! for question in options.questions(&subject)? {
//!     match check(&question)? {
//!         Answer::Proved(proof) => println!("right from step {} on", proof.steps),
//!         Answer::Refuted(found) => print!("{}", found.start.to_text(0)),
//!         _ => println!("undecided"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::states::{Phase, Start as ExperimentStart, StateError, Target};
use gatework_logic::check::{
    Answer, CheckError as QuestionError, Counterexample, Limits, Order, Progress, Proof, Property, Question,
    Start, check_until,
};
use gatework_logic::{Automaton, AutomatonError, Grid, GridError, Simulator, Stop};
use gatework_train::memory::{self, OutOfMemory};
use gatework_train::random::{Purpose, Random};

use crate::report::{self, Animation, Colouring, Picture, ReportError};
use crate::subject::{Subject, SubjectError};

/// A question that cannot be asked, or whose answer cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// There is no automaton.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// There is no target.
    #[error("a circuit file has no target: give a run folder, or a target")]
    NoTarget,
    /// The target is a function of the start state.
    #[error(
        "the target of this experiment depends on the start state, so there is no state to reach; minimize proves rules equal"
    )]
    TargetDependsOnStart,
    /// More than one state is right.
    #[error("the target may begin anywhere, so there is no single state to reach; give one with --target")]
    SeveralTargets,
    /// Damage needs a start state, and the experiment starts from random ones.
    #[error("there is no start state to damage: {0}")]
    NoStart(&'static str),
    /// Start or target cannot be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// A grid cannot be made.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// A grid does not fit into memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The automaton is not valid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The question is not valid, or too large.
    #[error(transparent)]
    Question(#[from] QuestionError),
    /// The GIF cannot be made.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl CheckError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Subject(error) => error.is_usage(),
            Self::Automaton(_) | Self::Report(_) => false,
            Self::Question(error) => !matches!(
                error,
                QuestionError::Inconsistent | QuestionError::Stopped(_) | QuestionError::Format(_)
            ),
            _ => true,
        }
    }
}

/// Damage of the start state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// At most this many cells, anywhere, with any bits.
    Cells(usize),
    /// Any bits in a rectangle.
    Region {
        /// The rows.
        rows: Range<usize>,
        /// The columns.
        columns: Range<usize>,
    },
}

/// What to ask. What is `None` is taken from the experiment.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// Height and width of the grid.
    pub size: Option<[usize; 2]>,
    /// Whether all states are start states; by default if the experiment starts from random states.
    pub from_any: Option<bool>,
    /// The damage of the start state.
    pub damage: Option<Damage>,
    /// The step of the undamaged run that is the start state, or that is damaged.
    pub at: usize,
    /// The number of steps in which the target has to be reached; if `None`, it has to be reached at some step, and all
    /// later states have to be right.
    pub within: Option<usize>,
    /// Whether all states after `within` have to be right.
    pub stay: bool,
    /// Which cells fire.
    pub order: Order,
    /// The target, instead of that of the experiment.
    pub target: Option<Grid>,
}

impl Check {
    /// Returns the questions about an automaton: one for each start state of the experiment.
    pub fn questions(&self, subject: &Subject) -> Result<Vec<Question>, CheckError> {
        let automaton = subject.automaton()?;
        let loaded = subject.loaded.as_ref();
        let of_target = self.target.as_ref().map(|target| [target.height(), target.width()]);
        let trained = loaded.map(|loaded| loaded.experiment.automaton.grid);
        if let (Some(start), Some(target)) = (self.size, of_target)
            && start != target
        {
            return Err(QuestionError::Shape { start, target }.into());
        }
        let [height, width] = self.size.or(of_target).or(trained).ok_or(CheckError::NoTarget)?;
        memory::check(height as f64 * width as f64 * automaton.channels as f64, || {
            format!("a check on {height}x{width} cells with {} channels", automaton.channels)
        })?;
        let zeros = Grid::new(1, height, width, automaton.channels)?;
        let target = match (&self.target, loaded) {
            (Some(target), _) => target.clone(),
            (None, Some(loaded)) => target_of(loaded, &zeros)?,
            (None, None) => return Err(CheckError::NoTarget),
        };
        let property = match (self.within, self.stay) {
            (Some(within), false) => Property::Reaches { within },
            (Some(from), true) => Property::Stays { from },
            (None, _) => Property::Attracts,
        };
        let question = |start: Start| Question {
            automaton: automaton.clone(),
            target: target.clone(),
            start,
            property,
            order: self.order,
        };
        Ok(self.starts(loaded, automaton, &zeros)?.into_iter().map(question).collect())
    }

    /// Describes the property that is asked for.
    pub fn property(&self) -> String {
        let damage = match &self.damage {
            Some(Damage::Cells(cells)) => format!(" with at most {} damaged", count(*cells, "cell")),
            Some(Damage::Region { rows, columns }) => {
                format!(
                    " with any damage in rows {} to {} and columns {} to {}",
                    rows.start,
                    rows.end.saturating_sub(1),
                    columns.start,
                    columns.end.saturating_sub(1)
                )
            }
            None => String::new(),
        };
        let at = match self.at {
            0 => String::new(),
            step => format!(" from the state at step {step}"),
        };
        let runs = match self.order {
            Order::Any { window: Some(window) } => {
                format!("every run in which each cell fires at least once in {}", count(window, "step"))
            }
            Order::Any { window: None } => "every run, in any order of firing,".to_string(),
            _ => "every run".to_string(),
        };
        let claim = match (self.within, self.stay) {
            (Some(n), false) => format!("reaches the target within {}", count(n, "step")),
            (Some(n), true) => format!("is at the target from step {n} on"),
            (None, _) => "ends at the target for good".into(),
        };
        format!("{runs}{at}{damage} {claim}")
    }

    fn starts(
        &self,
        loaded: Option<&AutomatonExperiment>,
        automaton: &Automaton,
        zeros: &Grid,
    ) -> Result<Vec<Start>, CheckError> {
        let start = loaded.map(|loaded| &loaded.experiment.start);
        let is_random = matches!(start, None | Some(ExperimentStart::Random));
        let needs_start = self.damage.is_some() || self.at > 0 || self.from_any == Some(false);
        if self.from_any == Some(true) || is_random && !needs_start {
            return if needs_start {
                Err(CheckError::NoStart("all states are start states"))
            } else {
                Ok(vec![Start::Any])
            };
        }
        let starts = match start {
            Some(ExperimentStart::Grids { grids }) => {
                grids.iter().map(|grid| ExperimentStart::Grids { grids: vec![grid.clone()] }).collect()
            }
            // The state of a rule that heals does not depend on where the run began.
            None | Some(ExperimentStart::Random) if self.at > 0 => vec![ExperimentStart::Zeros],
            Some(ExperimentStart::Random) => {
                return Err(CheckError::NoStart("the experiment starts from random states"));
            }
            None => {
                return Err(CheckError::NoStart(
                    "a circuit file has none, except after some steps from zeros",
                ));
            }
            Some(start) => vec![start.clone()],
        };
        let of = |start: &ExperimentStart| {
            let mut grid = zeros.clone();
            start.fill(&mut grid, &mut Random::new(0, Purpose::Check, 0))?;
            let mut simulator = Simulator::new(automaton, automaton.channels)?;
            for _ in 0..self.at {
                simulator.step(&mut grid)?;
            }
            Ok(match self.damage.clone() {
                None => Start::Grid(grid),
                Some(Damage::Cells(cells)) => Start::Damaged { grid, cells },
                Some(Damage::Region { rows, columns }) => Start::Region { grid, rows, columns },
            })
        };
        starts.iter().map(of).collect()
    }
}

/// Returns the target of an experiment, which must be one state that does not depend on the start.
fn target_of(loaded: &AutomatonExperiment, zeros: &Grid) -> Result<Grid, CheckError> {
    let automaton = &loaded.experiment.automaton;
    match &loaded.target {
        Target::Rule(_) | Target::Pairs(_) => Err(CheckError::TargetDependsOnStart),
        Target::Pattern { phase: Phase::Any, .. } | Target::Pattern { family: Some(_), .. } => {
            Err(CheckError::SeveralTargets)
        }
        target => Ok(target.grids(zeros, automaton.boundary, automaton.steps)?),
    }
}

/// Answers questions about several start states: returns the first one that is not proved, or else that with the latest step, and
/// its answer. `None` if there is no question.
pub fn answer<'a>(
    questions: &'a [Question],
    limits: &Limits,
    stop: &Stop<'_>,
    observer: &dyn Fn(Progress),
) -> Result<Option<(&'a Question, Answer)>, CheckError> {
    let mut latest: Option<(&Question, Proof)> = None;
    for question in questions {
        let proof = match check_until(question, limits, stop, observer)? {
            Answer::Proved(proof) => proof,
            answer => return Ok(Some((question, answer))),
        };
        if latest.as_ref().is_none_or(|(_, before)| before.steps <= proof.steps) {
            latest = Some((question, proof));
        }
    }
    Ok(latest.map(|(question, proof)| (question, Answer::Proved(proof))))
}

/// Returns a number with its unit in the singular or plural.
pub(crate) fn count(n: usize, unit: &str) -> String {
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

/// The maximum number of frames of a GIF.
const MAX_FRAMES: usize = 240;

/// Returns the GIF of a counterexample, from its start to the wrong step and through one period after it. The palette has
/// the colours of the target, or is empty. `None` if the stop is due before it is complete.
pub fn gif(
    question: &Question,
    found: &Counterexample,
    palette: &[[u8; 3]],
    stop: &Stop<'_>,
) -> Result<Option<Vec<u8>>, CheckError> {
    let observed = question.target.channels();
    let colouring = Colouring::of_target(observed, palette);
    let steps = found.steps + found.period.unwrap_or(0);
    let stride = steps.div_ceil(MAX_FRAMES).max(1);
    let delay = if steps / stride > 100 { 4 } else { 12 };
    let options = report::Options { delay, labels: true, ..report::Options::default() };
    let mut animation = Animation::new(&colouring.colours(), options);
    let mut simulator = Simulator::new(&question.automaton, observed)?;
    let mut grid = found.start.clone();
    for step in 0..=steps {
        if stop.is_due() {
            return Ok(None);
        }
        if step.is_multiple_of(stride) || step == steps {
            let value = |channel, y, x| f32::from(u8::from(grid.get(0, channel, y, x)));
            let picture = Picture::from_channels(grid.height(), grid.width(), observed, colouring, value)?;
            animation.show_labelled(picture, format!("STEP {step}"))?;
        }
        match found.fires.get(step) {
            Some(mask) => simulator.step_masked(&mut grid, mask)?,
            None => simulator.step(&mut grid)?,
        }
    }
    Ok(Some(animation.finish()?))
}
