//! A soft automaton as something the trainer can train.

use std::time::{Duration, Instant};

use gatework_logic::{Automaton, Grid, Simulator};

use super::board::Start;
use super::cells::{Plan, Planner, Shape};
use super::experiment::{self, Experiment, Loaded};
use super::hard::{Conditions, HardRun, fill_mask};
use super::model::Model;
use super::rollout::{Boards, Goal, Rollout, Times};
use super::search::Search;
use crate::gates;
use crate::params::Params;
use crate::random::{Purpose, Random};
use crate::train::{Finished, Losses, Task, TaskError};

/// Start states are all checked, not drawn, if there are so few of them: those of 12 bits.
const FEW_BITS: usize = 12;

/// How long the parts of an update took.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimes {
    /// The soft roll-out.
    pub soft: Times,
    /// The hard roll-out beside it.
    pub hard: Duration,
}

/// What the start states of a roll-out, the cells to compute and the goal are.
struct Round {
    /// Of each group of boards; all groups are the same in this.
    plan: Plan,
    /// Of one group after the other.
    goals: Vec<Goal>,
    start: Vec<f32>,
    /// The same start, and the target, in bits.
    boards: Grid,
    target: Grid,
    /// Bits of the cells that fire, one mask a step.
    masks: Vec<Vec<u64>>,
}

/// One seed of an experiment.
pub struct AutomatonTask {
    loaded: Loaded,
    seed: u64,
    model: Model,
    rollout: Rollout,
    /// For one group of boards.
    planner: Planner,
    /// Groups of boards that roll independently of each other.
    groups: usize,
    /// Made once, if every update is the same.
    fixed: Option<Round>,
    /// The plan of a synchronous grid with start states of its own.
    plan: Option<Plan>,
    times: StepTimes,
    /// Cells that the last update computed, in all its steps.
    computed: usize,
}

impl AutomatonTask {
    /// Draws the wires of a seed and compiles them.
    pub fn new(loaded: &Loaded, seed: u64) -> Result<AutomatonTask, TaskError> {
        let model = Model::new(&loaded.experiment.model_shape(), seed)?;
        let rollout = Rollout::new(&model, loaded.target.channels())?;
        let [height, width] = loaded.experiment.automaton.grid;
        let boundary = loaded.experiment.automaton.boundary;
        let batch = loaded.experiment.training.batch;
        // Boards that start alike are rolled out together, because their cells are the same.
        let groups =
            if loaded.experiment.start.is_fixed() { 1 } else { independent_groups(batch, height * width) };
        let planner = Planner::new(Shape { samples: batch / groups, height, width, boundary });
        let loaded = loaded.clone();
        let mut task = AutomatonTask {
            loaded,
            seed,
            model,
            rollout,
            planner,
            groups,
            fixed: None,
            plan: None,
            times: StepTimes::default(),
            computed: 0,
        };
        let synchronous = task.loaded.experiment.automaton.fire_rate.is_none();
        if synchronous && task.loaded.experiment.start.is_fixed() {
            task.fixed = Some(task.round(0)?);
        }
        Ok(task)
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How long the last update took.
    pub fn times(&self) -> StepTimes {
        self.times
    }

    /// Soft gate evaluations of the last update, forward: gates x cells that were computed. Cells that must have the
    /// same value are computed once, and those that do not fire not at all.
    pub fn gate_evaluations(&self) -> f64 {
        self.computed as f64 * self.model.gates_per_cell() as f64
    }

    /// Draws what an update needs.
    fn round(&mut self, update: u64) -> Result<Round, TaskError> {
        let experiment = &self.loaded.experiment;
        let shape = self.planner.shape();
        let steps = experiment.automaton.steps;
        let channels = experiment.automaton.channels;
        let mut boards = Grid::new(self.groups * shape.samples, shape.height, shape.width, channels)?;
        let mut random = Random::new(self.seed, Purpose::Start, update);
        experiment.start.fill(&mut boards, &mut random)?;
        let target = self.loaded.target.boards(&boards, shape.boundary, steps)?;

        let mut random = Random::new(self.seed, Purpose::Fire, update);
        let mut masks = Vec::new();
        if let Some(rate) = experiment.automaton.fire_rate {
            masks = vec![vec![0u64; boards.words_per_sample()]; steps];
            for mask in &mut masks {
                fill_mask(mask, shape.cells(), rate, &mut random);
            }
        }
        let fires: Vec<Vec<bool>> = masks
            .iter()
            .map(|mask| (0..shape.cells()).map(|cell| mask[cell / 64] >> (cell % 64) & 1 == 1).collect())
            .collect();
        let fires = (!fires.is_empty()).then_some(&fires[..]);

        let stride = self.rollout.stride();
        let (plan, start) = if experiment.start.is_fixed() {
            let (entries, start) = distinct_cells(&boards, stride);
            (self.planner.merged(entries, steps, fires), start)
        } else {
            let plan = match (self.plan.take(), fires) {
                (Some(plan), None) => plan,
                _ => self.planner.separate(steps, fires),
            };
            (plan, cells(&boards, stride))
        };
        let wanted = cells(&target, target.channels());
        let goals = wanted
            .chunks_exact(shape.total() * target.channels())
            .map(|wanted| Goal::new(&plan, target.channels(), wanted))
            .collect();
        Ok(Round { plan, goals, start, boards, target, masks })
    }

    /// Wrong bits of the hard automaton after the steps of a round.
    fn hard_loss(&self, round: &Round) -> Result<usize, TaskError> {
        let mut grid = round.boards.clone();
        let loss_channels = round.target.channels();
        let mut simulator = Simulator::new(&self.model.harden(), loss_channels)?;
        for step in 0..self.loaded.experiment.automaton.steps {
            match round.masks.get(step) {
                None => simulator.step(&mut grid),
                Some(mask) => simulator.step_masked(&mut grid, mask),
            }?;
        }
        Ok(grid.difference(&round.target, loss_channels)?)
    }
}

impl Task for AutomatonTask {
    fn params(&self) -> &Params {
        &self.model.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.model.params
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        let fixed = self.fixed.take();
        let is_fixed = fixed.is_some();
        let round = match fixed {
            Some(round) => round,
            None => self.round(update)?,
        };
        let params = &mut self.model.params;
        params.zero_grads();
        self.rollout.set_logits(&params.values);
        let starts = round.start.chunks_exact(round.start.len() / round.goals.len());
        let groups: Vec<Boards<'_>> =
            starts.zip(&round.goals).map(|(start, goal)| Boards { plan: &round.plan, start, goal }).collect();
        let (soft, times) = self.rollout.gradient(&groups, &mut params.grads);
        let price = self.loaded.experiment.training.gate_price;
        if price > 0.0 {
            gates::add_price(&params.values, price, &mut params.grads);
        }
        let begin = Instant::now();
        let hard = self.hard_loss(&round)? as f64;
        self.times = StepTimes { soft: times, hard: begin.elapsed() };
        self.computed = self.groups * round.plan.computed();
        if is_fixed {
            self.fixed = Some(round);
        } else if round.masks.is_empty() {
            self.plan = Some(round.plan);
        }
        Ok(Losses { soft, hard: Some(hard) })
    }

    fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
        self.grows_right(&self.model.harden(), update)
    }

    fn finishes(&self) -> bool {
        self.loaded.experiment.search().is_some()
    }

    fn finish(&mut self, best: &[f32], stop: &dyn Fn(f64) -> bool) -> Result<Option<Finished>, TaskError> {
        let Some(settings) = self.loaded.experiment.search() else { return Ok(None) };
        let mut model = self.model.clone();
        model.params.values.copy_from_slice(best);
        let search = Search { loaded: &self.loaded, settings, seed: self.seed };
        // Checks of training have the numbers of updates.
        let check = |automaton: &Automaton, number| self.grows_right(automaton, u64::MAX - number);
        let found = search.run(&model, &check, stop)?;
        Ok(found.map(|found| Finished {
            hard: f64::from(found.wrong),
            moves: found.moves,
            trace: found.trace.into_iter().map(|(moves, wrong)| (moves, f64::from(wrong))).collect(),
            passes: found.passes,
            model: found.model.to_bytes(),
        }))
    }
}

impl AutomatonTask {
    /// Whether an automaton makes of fresh start states what it should; `number` says which ones are drawn.
    fn grows_right(&self, automaton: &Automaton, number: u64) -> Result<bool, TaskError> {
        let experiment = &self.loaded.experiment;
        let mut random = Random::new(self.seed, Purpose::Check, number);
        // Boards share the cells that fire in a step, so each asynchronous board makes a run of its own.
        let (runs, boards) = match (experiment.automaton.fire_rate, &experiment.start) {
            (Some(_), _) => (experiment.training.checks, 1),
            (None, start) if start.is_fixed() => (1, 1),
            (None, _) => (1, experiment.training.checks),
        };
        for _ in 0..runs {
            let boards = check_boards(experiment, boards, &mut random)?;
            if !grows_right(&self.loaded, automaton, boards, random.word())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Fresh start states: `samples` of them, or all there are if these are few and nothing else is left to chance.
fn check_boards(experiment: &Experiment, samples: usize, random: &mut Random) -> Result<Grid, TaskError> {
    let [height, width] = experiment.automaton.grid;
    let channels = experiment.automaton.channels;
    let cells = height * width;
    let bits = cells * channels;
    let synchronous = experiment.automaton.fire_rate.is_none();
    if experiment.start != Start::Random || bits > FEW_BITS || !synchronous {
        let mut boards = Grid::new(samples, height, width, channels)?;
        experiment.start.fill(&mut boards, random)?;
        return Ok(boards);
    }
    let mut boards = Grid::new(1 << bits, height, width, channels)?;
    for sample in 0..1 << bits {
        for bit in 0..bits {
            let (channel, cell) = (bit / cells, bit % cells);
            boards.set(sample, channel, cell / width, cell % width, sample >> bit & 1 == 1);
        }
    }
    Ok(boards)
}

/// True if boards become their targets; `seed` chooses the cells that fire.
fn grows_right(loaded: &Loaded, automaton: &Automaton, boards: Grid, seed: u64) -> Result<bool, TaskError> {
    let experiment::Grid { boundary, steps, fire_rate, .. } = loaded.experiment.automaton;
    let target = loaded.target.boards(&boards, boundary, steps)?;
    let conditions = Conditions { fire_rate, damage: None };
    let mut run = HardRun::new(automaton, target.channels(), boards, conditions, seed)?;
    for _ in 0..steps {
        run.step()?;
    }
    Ok(run.wrong(&target)? == 0)
}

/// Cells of a group of boards at least: smaller groups would not fill their tiles.
const GROUP_CELLS: usize = 128;

/// Into how many groups of equal size a batch is split: a power of two, eight at most.
fn independent_groups(batch: usize, cells: usize) -> usize {
    let fits = |groups: &usize| batch.is_multiple_of(*groups) && batch / groups * cells >= GROUP_CELLS;
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// All cells of all samples, `stride` numbers each: their channels, then zeros.
fn cells(grid: &Grid, stride: usize) -> Vec<f32> {
    let (cells, words) = (grid.cells(), grid.words_per_sample());
    let mut numbers = vec![0.0; grid.samples() * cells * stride];
    for channel in 0..grid.channels() {
        let plane = grid.plane(channel);
        for (i, number) in numbers.iter_mut().skip(channel).step_by(stride).enumerate() {
            let (sample, cell) = (i / cells, i % cells);
            *number = (plane[sample * words + cell / 64] >> (cell % 64) & 1) as f32;
        }
    }
    numbers
}

/// The entry of each cell, counted from 1, equal cells sharing one; and the entries' numbers.
fn distinct_cells(grid: &Grid, stride: usize) -> (Vec<u32>, Vec<f32>) {
    let numbers = cells(grid, stride);
    let mut seen = rustc_hash::FxHashMap::default();
    let mut distinct = Vec::new();
    let entries = numbers
        .chunks_exact(stride)
        .map(|cell| {
            let key: Vec<bool> = cell.iter().map(|&x| x != 0.0).collect();
            *seen.entry(key).or_insert_with(|| {
                distinct.extend_from_slice(cell);
                (distinct.len() / stride) as u32
            })
        })
        .collect();
    (entries, distinct)
}
