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
use gatework_gates::automata::states::{Bitmap, Start, StateError, Target};
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
    /// A grid that is the start state, in the centre of a larger one if need be.
    pub grid: Option<StartGrid>,
    /// The seed of the start state, of asynchronous updates and of damage.
    pub seed: u64,
    /// Whether to make a GIF.
    pub gif: bool,
    /// Whether the GIF shows all channels, not only the observed ones.
    pub hidden: bool,
}

/// A grid that a simulation starts from.
#[derive(Clone, Debug)]
pub enum StartGrid {
    /// A picture, whose colours become those of the target.
    Picture {
        /// The picture.
        picture: Bitmap,
        /// The same as letters for red, green, blue and yellow, if it is such a text: for targets without colours.
        letters: Option<Bitmap>,
    },
    /// The bits of the first channels, as a counterexample of `check` has all of them.
    Channels(Grid),
}

impl StartGrid {
    /// Reads a PNG, RLE or text file. Text of `#` and `.` is the first channel; of several blocks, each is a channel.
    pub fn from_bytes(bytes: &[u8]) -> Result<StartGrid, StateError> {
        let text = std::str::from_utf8(bytes).ok();
        if let Some(grid) = text.and_then(|text| Grid::from_text(text).ok()) {
            return Ok(StartGrid::Channels(grid));
        }
        let letters = text.and_then(|text| Bitmap::from_text(text).ok());
        Bitmap::from_bytes(bytes).map(|(picture, _)| StartGrid::Picture { picture, letters })
    }

    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        match self {
            StartGrid::Picture { picture, .. } => picture.size(),
            StartGrid::Channels(grid) => [grid.height(), grid.width()],
        }
    }

    /// Copies it to the centre of a grid whose observed channels have the colours of a palette.
    fn place(&self, to: &mut Grid, observed: usize, palette: &[[u8; 3]]) -> Result<(), StateError> {
        let from = match self {
            StartGrid::Picture { letters: Some(letters), .. } if palette.is_empty() => {
                return letters.place(to, 0);
            }
            StartGrid::Picture { picture, .. } => return picture.in_palette(observed, palette).place(to, 0),
            StartGrid::Channels(grid) => grid,
        };
        let text = |grid: &Grid| format!("{}x{}", grid.height(), grid.width());
        if from.height() > to.height() || from.width() > to.width() {
            return Err(StateError::Size { found: text(from), grid: text(to) });
        }
        if from.channels() > to.channels() {
            return Err(StateError::Channels { found: from.channels(), channels: to.channels() });
        }
        let (top, left) = ((to.height() - from.height()) / 2, (to.width() - from.width()) / 2);
        for channel in 0..from.channels() {
            for (y, x) in (0..from.height()).flat_map(|y| (0..from.width()).map(move |x| (y, x))) {
                to.set(0, channel, top + y, left + x, from.get(0, channel, y, x));
            }
        }
        Ok(())
    }
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
        let default = trained.map_or([64, 64], |e| e.automaton.grid);
        let given = self.grid.as_ref().map_or([1, 1], StartGrid::size);
        let larger = [default[0].max(given[0]), default[1].max(given[1])];
        let [height, width] = self.size.unwrap_or(larger);
        let steps = self.steps.or(trained.map(|e| e.automaton.steps)).unwrap_or(80);
        let fire_rate =
            self.fire_rate.or(trained.and_then(|e| e.automaton.fire_rate)).filter(|rate| *rate < 1.0);
        let start = self.start.clone().or(trained.map(|e| e.start.clone())).unwrap_or(Start::Random);
        let channels = if self.hidden { automaton.channels } else { subject.observed };
        let palette = subject.loaded.as_ref().map(|loaded| loaded.target.palette()).unwrap_or_default();
        let film = self.gif.then(|| Film::new([height, width], channels, subject.observed, &palette, steps));
        let mut film = film.transpose()?;
        memory::check(HardRun::memory(1, [height, width], automaton.channels), || {
            format!("a grid of {height}x{width} cells with {} channels", automaton.channels)
        })?;
        let mut grid = Grid::new(1, height, width, automaton.channels).map_err(SimulationError::Size)?;
        match &self.grid {
            Some(start) => {
                start.place(&mut grid, subject.observed, &palette).map_err(SimulationError::Start)?;
            }
            None => start
                .fill(&mut grid, &mut Random::new(self.seed, Purpose::Check, 0))
                .map_err(SimulationError::Start)?,
        }
        // A rule has no target if cells are skipped or damaged.
        let is_undisturbed = fire_rate.is_none() && self.damage.is_none();
        let has_target = |loaded: &&AutomatonExperiment| match loaded.target {
            Target::Pairs(_) => is_undisturbed && steps == loaded.experiment.automaton.steps,
            _ => is_undisturbed || !loaded.target.is_rule(),
        };
        let target = match subject.loaded.as_ref().filter(has_target) {
            Some(loaded) => loaded.target.grids(&grid, automaton.boundary, steps).ok(),
            None => None,
        };
        let conditions = Conditions { fire_rate, damage: self.damage, recovery: 0 };
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
        let aligned = |target| match &subject.loaded {
            Some(loaded) => loaded.target.aligned(run.grid(), automaton.boundary, target),
            None => target,
        };
        let wrong = target.map(|target| run.wrong_outside_damage(&aligned(target))).transpose()?;
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
    colouring: Colouring,
    animation: Animation,
}

impl Film {
    /// A film of the first `channels` of a simulation of `steps` steps; an error if its frames have too many cells.
    fn new(
        size: [usize; 2],
        channels: usize,
        observed: usize,
        palette: &[[u8; 3]],
        steps: usize,
    ) -> Result<Film, ReportError> {
        let mosaic = (channels > observed).then_some(channels);
        let [height, width] = Picture::size(mosaic, size[0], size[1])?;
        let frames = MAX_FRAMES.min(MAX_FRAME_CELLS / (height * width).max(1)).max(2);
        let stride = steps.div_ceil(frames).max(1);
        // A few seconds, whatever the number of frames.
        let delay = match steps / stride {
            0..=25 => 20,
            26..=50 => 12,
            51..=100 => 8,
            _ => 4,
        };
        // A mosaic of all channels is black and white.
        let colouring =
            if mosaic.is_some() { Colouring::Ink } else { Colouring::of_target(observed, palette) };
        let options = report::Options { delay, labels: true, ..Default::default() };
        let animation = Animation::new(&colouring.colours(), options);
        Ok(Film { channels, observed, stride, steps, colouring, animation })
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
            Picture::from_channels(grid.height(), grid.width(), self.observed, self.colouring, value)
        };
        self.animation.show_labelled(picture?, format!("STEP {}", run.steps()))
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
    let conditions = Conditions { fire_rate: experiment.automaton.fire_rate, damage: None, recovery: 0 };
    let mut run = HardRun::new(automaton, channels, grid, conditions, seed)?;
    let mut film = Film::new([height, width], channels, observed, &loaded.target.palette(), steps)?;
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
