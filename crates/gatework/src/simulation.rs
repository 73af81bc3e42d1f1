//! Simulation of learned automata on grids of any size, with an animated GIF of the run.
//!
//! ```no_run
//! use gatework::{simulation::Simulation, subject::Subject};
//!
//! let subject = Subject::open("runs/checkerboard".as_ref())?;
//! let result = Simulation { size: Some([64, 64]), steps: Some(80), gif: true, ..Simulation::default() }.run(&subject)?;
//! std::fs::write("checkerboard.gif", result.gif.unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;
use std::time::{Duration, Instant};

use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::hard::{Conditions, Damage, HardRun};
use gatework_gates::automata::states::{Start, StateError, Target};
use gatework_logic::minimize::{Effort, Options};
use gatework_logic::{Automaton, AutomatonError, Grid, GridError};
use gatework_train::memory::{self, OutOfMemory};
use gatework_train::random::{Purpose, Random};

use crate::minimize;
use crate::report::{self, Animation, Colouring, Picture, ReportError};
use crate::subject::{Subject, SubjectError};

/// A simulation that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// There is no automaton.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The grid cannot be made.
    #[error(transparent)]
    Size(GridError),
    /// The grid does not fit into memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The start state cannot be made.
    #[error(transparent)]
    Start(StateError),
    /// The circuit does not fit the automaton.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The grid does not fit the automaton.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// The GIF cannot be made.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl SimulationError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Subject(error) => error.is_usage(),
            Self::Size(_) | Self::Start(_) | Self::Report(ReportError::TooLarge { .. }) => true,
            _ => false,
        }
    }
}

/// The settings of a simulation. What is `None` is taken from training, or has a default for circuits.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    /// Height and width; 64 x 64 for circuits.
    pub size: Option<[usize; 2]>,
    /// The number of steps; 80 for circuits.
    pub steps: Option<usize>,
    /// The fraction of the cells that update in a step; 1 for circuits.
    pub fire_rate: Option<f32>,
    /// The damage after each step.
    pub damage: Option<Damage>,
    /// The start state; random for circuits.
    pub start: Option<Start>,
    /// The seed of the start state, of asynchronous updates and of damage.
    pub seed: u64,
    /// Whether to make a GIF.
    pub gif: bool,
    /// Whether the GIF shows all channels, not only the observed ones.
    pub hidden: bool,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// Height and width.
    pub size: [usize; 2],
    /// The number of steps.
    pub steps: usize,
    /// Seconds of simulation.
    pub seconds: f64,
    /// The number of ones in each observed channel after the last step.
    pub ones: Vec<usize>,
    /// The number of bits that differ from the target, if there is one.
    pub wrong: Option<usize>,
    /// The number of bits that were compared: all but those that were damaged in the last step.
    pub compared: usize,
    /// The number of cells that were damaged in the last step.
    pub damaged: usize,
    /// The GIF.
    pub gif: Option<Vec<u8>>,
}

impl Simulation {
    /// Runs the simulation.
    pub fn run(&self, subject: &Subject) -> Result<Simulated, SimulationError> {
        self.run_observed(subject, |_, _| ())
    }

    /// Runs the simulation, and reports the number of finished steps and of all steps from time to time.
    pub fn run_observed(
        &self,
        subject: &Subject,
        progress: impl Fn(usize, usize),
    ) -> Result<Simulated, SimulationError> {
        let automaton = subject.automaton()?;
        let trained = subject.loaded.as_ref().map(|loaded| &loaded.experiment);
        let [height, width] = self.size.or(trained.map(|e| e.automaton.grid)).unwrap_or([64, 64]);
        let steps = self.steps.or(trained.map(|e| e.automaton.steps)).unwrap_or(80);
        let fire_rate =
            self.fire_rate.or(trained.and_then(|e| e.automaton.fire_rate)).filter(|rate| *rate < 1.0);
        let start = self.start.clone().or(trained.map(|e| e.start.clone())).unwrap_or(Start::Random);
        let channels = if self.hidden { automaton.channels } else { subject.observed };
        let film = self.gif.then(|| Film::new([height, width], channels, subject.observed, steps));
        let mut film = film.transpose()?;
        memory::check(HardRun::memory(1, [height, width], automaton.channels), || {
            format!("a grid of {height}x{width} cells with {} channels", automaton.channels)
        })?;
        let mut grid = Grid::new(1, height, width, automaton.channels).map_err(SimulationError::Size)?;
        start
            .fill(&mut grid, &mut Random::new(self.seed, Purpose::Check, 0))
            .map_err(SimulationError::Start)?;
        // Game of Life has no target if cells are skipped or damaged.
        let is_undisturbed = fire_rate.is_none() && self.damage.is_none();
        let has_target =
            |loaded: &&AutomatonExperiment| is_undisturbed || loaded.target != Target::GameOfLife;
        let target = match subject.loaded.as_ref().filter(has_target) {
            Some(loaded) => loaded.target.grids(&grid, automaton.boundary, steps).ok(),
            None => None,
        };
        let conditions = Conditions { fire_rate, damage: self.damage };
        let automaton = minimized_for(automaton, (height * width).saturating_mul(steps));
        let mut run = HardRun::new(&automaton, channels, grid, conditions, self.seed)?;
        film.iter_mut().try_for_each(|film| film.record(&run))?;
        let begin = Instant::now();
        let chunk =
            if is_undisturbed { steps.div_ceil(100).max(MIN_CHUNK) } else { MASK_CELLS / (height * width) };
        let stride = film.as_ref().map_or(steps, |film| film.stride);
        while run.steps() < steps {
            let next = (run.steps() + 1).next_multiple_of(stride).min(steps);
            run.run(chunk.clamp(1, next - run.steps()))?;
            film.iter_mut().try_for_each(|film| film.record(&run))?;
            progress(run.steps(), steps);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let wrong = target.map(|target| run.wrong_outside_damage(&target)).transpose()?;
        Ok(Simulated {
            size: [height, width],
            steps,
            seconds,
            ones: (0..subject.observed).map(|channel| run.grid().count_ones(0, channel)).collect(),
            wrong,
            compared: (height * width - run.damaged_cells()) * subject.observed,
            damaged: run.damaged_cells(),
            gif: film.map(|film| film.animation.finish()).transpose()?,
        })
    }
}

/// Minimum number of steps between two reports of progress, if all cells update. Large grids are converted to another layout
/// before and after, which takes as long as up to a hundred steps.
const MIN_CHUNK: usize = 1024;

/// Cells x steps between two reports of progress, if the cells that update or are damaged are drawn one by one.
const MASK_CELLS: usize = 1 << 28;

/// Gates x cells x steps above which minimising the circuit first saves time.
const LONG_RUN: usize = 1 << 36;

/// Time limit of the equivalence proof before a long simulation.
const PROOF_TIME: Duration = Duration::from_secs(2);

/// For a long simulation, an automaton with fewer gates that was proved equivalent in all channels; otherwise the original.
fn minimized_for(automaton: &Automaton, cell_steps: usize) -> Cow<'_, Automaton> {
    if cell_steps.saturating_mul(automaton.circuit.reachable()) < LONG_RUN {
        return Cow::Borrowed(automaton);
    }
    let options = Options { effort: Effort::Fast, ..Options::default() };
    // As a circuit: all channels remain.
    match minimize::with_proof(&automaton.circuit.clone().into(), &options, PROOF_TIME) {
        Ok(proved) => {
            Cow::Owned(Automaton { circuit: proved.document.circuit().clone(), ..automaton.clone() })
        }
        Err(_) => Cow::Borrowed(automaton),
    }
}

/// The maximum number of frames of a GIF. Longer runs show every n-th step.
const MAX_FRAMES: usize = 240;

/// The maximum number of cells in all frames of a GIF, to bound its size and the time to encode it.
const MAX_FRAME_CELLS: usize = 1 << 30;

/// The frames of a simulation.
struct Film {
    channels: usize,
    observed: usize,
    stride: usize,
    steps: usize,
    animation: Animation,
}

impl Film {
    /// A film of the first `channels` of a simulation of `steps` steps; an error if its frames have too many cells.
    fn new(size: [usize; 2], channels: usize, observed: usize, steps: usize) -> Result<Film, ReportError> {
        let mosaic = (channels > observed).then_some(channels);
        let [height, width] = Picture::size(mosaic, size[0], size[1])?;
        let frames = MAX_FRAMES.min(MAX_FRAME_CELLS / (height * width).max(1)).max(2);
        let stride = steps.div_ceil(frames).max(1);
        let delay = if steps / stride > 100 { 4 } else { 8 };
        let colouring = Film::colouring(channels, observed);
        let options = report::Options { delay, ..Default::default() };
        let animation = Animation::new(&colouring.colours(), options);
        Ok(Film { channels, observed, stride, steps, animation })
    }

    /// A mosaic of all channels is black and white.
    fn colouring(channels: usize, observed: usize) -> Colouring {
        if channels > observed { Colouring::Ink } else { Colouring::for_loss_channels(observed) }
    }

    /// Adds a frame, if the current step is one of those that are shown.
    fn record(&mut self, run: &HardRun) -> Result<(), ReportError> {
        if !run.steps().is_multiple_of(self.stride) && run.steps() != self.steps {
            return Ok(());
        }
        let grid = run.grid();
        let value = |channel, y, x| f32::from(u8::from(grid.get(0, channel, y, x)));
        let picture = if self.channels > self.observed {
            Picture::mosaic(self.channels, grid.height(), grid.width(), value)
        } else {
            let colouring = Film::colouring(self.channels, self.observed);
            Picture::from_channels(grid.height(), grid.width(), colouring, value)
        };
        self.animation.show(picture?)
    }
}

/// Returns the GIF of a training run. A pattern is shown for twice the steps of training, which shows whether it is stable; a
/// picture is grown to the step of training.
pub fn training_gif(
    loaded: &AutomatonExperiment,
    automaton: &Automaton,
    seed: u64,
    hidden: bool,
) -> Result<Vec<u8>, SimulationError> {
    let experiment = &loaded.experiment;
    // A rule that is trained for one step on a tiny grid, such as Game of Life, is shown on a larger grid.
    let is_single_step = experiment.automaton.steps == 1;
    let [height, width] = if is_single_step { [48, 48] } else { experiment.automaton.grid };
    let is_picture = matches!(loaded.target, Target::Picture(_));
    let steps =
        if is_single_step { 100 } else { experiment.automaton.steps * if is_picture { 1 } else { 2 } };
    let mut grid = Grid::new(1, height, width, automaton.channels)?;
    let mut random = Random::new(seed, Purpose::Check, 1);
    experiment.start.fill(&mut grid, &mut random).map_err(SimulationError::Start)?;
    let observed = loaded.target.channels();
    let channels = if hidden { automaton.channels } else { observed };
    let conditions = Conditions { fire_rate: experiment.automaton.fire_rate, damage: None };
    let mut run = HardRun::new(automaton, channels, grid, conditions, seed)?;
    let mut film = Film::new([height, width], channels, observed, steps)?;
    film.record(&run)?;
    for _ in 0..steps {
        run.step()?;
        film.record(&run)?;
    }
    Ok(film.animation.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::prove::{Verdict, equivalent_within};
    use gatework_logic::{Boundary, Circuit, Document, Gate, Node, rules, to_json};

    #[test]
    fn progress_ends_with_the_last_step_and_frames_are_taken_at_their_stride() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life.json");
        let document = Document::Automaton { automaton: rules::life(Boundary::Torus), observed: None };
        std::fs::write(&path, to_json(&document)).unwrap();
        let subject = Subject::open(&path).unwrap();
        for (gif, fire_rate, steps, reports) in [
            (false, None, 2500, vec![1024, 2048, 2500]),
            // Every 11th step: 2500 steps in at most 240 frames.
            (true, None, 2500, (1..=227).map(|frame| frame * 11).chain([2500]).collect()),
            (false, Some(0.5), 3, vec![3]),
        ] {
            let seen = std::cell::RefCell::new(Vec::new());
            let simulation = Simulation {
                size: Some([8, 8]),
                steps: Some(steps),
                gif,
                fire_rate,
                ..Simulation::default()
            };
            simulation
                .run_observed(&subject, |done, total| {
                    assert_eq!(total, steps);
                    seen.borrow_mut().push(done);
                })
                .unwrap();
            assert_eq!(seen.into_inner(), reports);
        }
    }

    #[test]
    fn only_a_long_simulation_minimises_the_circuit() {
        let mut life = rules::life(Boundary::Torus);
        // The conjunction of two copies of the circuit.
        let own = life.circuit.nodes().to_vec();
        let moved = |signal: u32| if signal < 9 { signal } else { signal + own.len() as u32 };
        let copies = own.iter().map(|node| Node::new(node.gate, moved(node.a), moved(node.b)));
        let mut nodes: Vec<Node> = own.iter().copied().chain(copies).collect();
        let output = life.circuit.outputs()[0];
        nodes.push(Node::new(Gate::AND, output, moved(output)));
        let last = 8 + nodes.len() as u32;
        life.circuit = Circuit::new(9, nodes, vec![last]).unwrap();
        assert!(matches!(minimized_for(&life, 1 << 20), Cow::Borrowed(_)));
        let minimized = minimized_for(&life, 1 << 40);
        assert!(minimized.circuit.nodes().len() <= own.len());
        assert_eq!(equivalent_within(&minimized.circuit, &life.circuit, PROOF_TIME), Ok(Verdict::Equal));
    }
}
