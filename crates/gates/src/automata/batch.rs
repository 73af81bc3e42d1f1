//! The batch of an update: start states, the plan of cells to compute, and targets.

use gatework_logic::Grid;

use super::cells::{Plan, Planner, Shape};
use super::experiment::{AutomatonExperiment, Experiment};
use super::hard::{Conditions, HardRun, fill_mask};
use super::model::Model;
use super::rollout::Goal;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// The grids of an update, in groups that roll out independently of each other.
pub(super) struct Batch {
    /// The plan of every group.
    pub plan: Plan,
    /// The target of each group.
    pub goals: Vec<Goal>,
    /// The targets of each group for states before the last.
    pub late: Vec<Vec<Goal>>,
    /// Entries of the start states, group by group.
    pub start: Vec<f32>,
    /// The start states as bits.
    pub grids: Grid,
    /// The targets as bits.
    pub target: Grid,
    /// Bit masks of the cells that fire, one for each step; empty if all do.
    pub masks: Vec<Vec<u64>>,
}

/// Draws the batches of a seed.
pub(super) struct BatchSource {
    loaded: AutomatonExperiment,
    seed: u64,
    /// Makes the plan of one group.
    planner: Planner,
    groups: usize,
    /// Numbers from one entry of a state to the next.
    stride: usize,
    /// The last batch, if all batches are equal.
    batch: Option<Batch>,
    /// The last plan, if all plans are equal.
    plan: Option<Plan>,
}

impl BatchSource {
    /// Prepares batches for rollouts whose states have entries of `stride` numbers.
    pub fn new(loaded: &AutomatonExperiment, seed: u64, stride: usize) -> BatchSource {
        let experiment = &loaded.experiment;
        let [height, width] = experiment.automaton.grid;
        let (batch, boundary) = (experiment.training.batch, experiment.automaton.boundary);
        // Grids with the same start state are rolled out together, because their cells are the same.
        let groups = if experiment.shares_cells() { 1 } else { independent_groups(batch, height * width) };
        let planner = Planner::new(Shape { samples: batch / groups, height, width, boundary });
        BatchSource { loaded: loaded.clone(), seed, planner, groups, stride, batch: None, plan: None }
    }

    /// Returns the batch of an update. `model` is the current one, which advances half-grown start states.
    pub fn next(&mut self, update: u64, model: &Model) -> Result<Batch, TaskError> {
        match self.batch.take() {
            Some(batch) => Ok(batch),
            None => self.draw(update, model),
        }
    }

    /// Keeps the parts of a batch that later ones can reuse.
    pub fn recycle(&mut self, batch: Batch) {
        let experiment = &self.loaded.experiment;
        if experiment.automaton.fire_rate.is_some() || experiment.training.steps.is_some() {
            return;
        }
        if experiment.shares_cells() {
            self.batch = Some(batch);
        } else {
            self.plan = Some(batch.plan);
        }
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups
    }

    fn draw(&mut self, update: u64, model: &Model) -> Result<Batch, TaskError> {
        let known = self.plan.take();
        let experiment = &self.loaded.experiment;
        let shape = self.planner.shape();
        let steps = experiment.training.steps.map_or(experiment.automaton.steps, |[least, most]| {
            least + Random::new(self.seed, Purpose::Steps, update).below(most - least + 1)
        });
        let grids = self.start_states(update, model)?;
        let target = self.loaded.target.grids(&grids, shape.boundary, steps)?;
        let masks = self.masks(update, steps, grids.words_per_sample());
        let fires: Vec<Vec<bool>> = masks
            .iter()
            .map(|mask| (0..shape.cells()).map(|cell| mask[cell / 64] >> (cell % 64) & 1 == 1).collect())
            .collect();
        let fires = (!fires.is_empty()).then_some(&fires[..]);

        let alike = experiment.shares_cells();
        let (entries, start) = if alike {
            distinct_cells(&grids, self.stride)
        } else {
            (Vec::new(), cells(&grids, self.stride))
        };
        let plan_of = |steps| {
            if alike {
                self.planner.merged(entries.clone(), steps, fires)
            } else {
                self.planner.separate(steps, fires)
            }
        };
        let plan = known.unwrap_or_else(|| plan_of(steps));
        let wanted = cells(&target, target.channels());
        let goals_of = |plan: &Plan| -> Vec<Goal> {
            let groups = wanted.chunks_exact(shape.total() * target.channels());
            groups.map(|wanted| Goal::new(plan, target.channels(), wanted)).collect()
        };
        let goals = goals_of(&plan);
        let mut late = vec![Vec::new(); goals.len()];
        for before in 1..experiment.training.late.min(steps) {
            let of_groups = goals_of(&plan_of(steps - before));
            late.iter_mut().zip(of_groups).for_each(|(late, goal)| late.push(goal));
        }
        Ok(Batch { plan, goals, late, start, grids, target, masks })
    }

    /// Draws the cells that fire in each step; returns no masks if all do.
    fn masks(&self, update: u64, steps: usize, words: usize) -> Vec<Vec<u64>> {
        let Some(rate) = self.loaded.experiment.automaton.fire_rate else { return Vec::new() };
        let mut random = Random::new(self.seed, Purpose::Fire, update);
        let mut masks = vec![vec![0u64; words]; steps];
        for mask in &mut masks {
            fill_mask(mask, self.planner.shape().cells(), rate, &mut random);
        }
        masks
    }

    /// Draws the start states of an update.
    fn start_states(&self, update: u64, model: &Model) -> Result<Grid, TaskError> {
        let experiment = &self.loaded.experiment;
        let shape = self.planner.shape();
        let samples = self.groups * shape.samples;
        let mut grids = Grid::new(samples, shape.height, shape.width, experiment.automaton.channels)?;
        experiment.start.fill(&mut grids, &mut Random::new(self.seed, Purpose::Start, update))?;
        if experiment.training.half_grown > 0.0 {
            let random = Random::new(self.seed, Purpose::HalfGrown, update);
            advance_some(experiment, model, &mut grids, random)?;
        }
        Ok(grids)
    }
}

/// Advances a fraction of the grids by a random number of steps of the hard automaton.
fn advance_some(
    experiment: &Experiment,
    model: &Model,
    grids: &mut Grid,
    mut random: Random,
) -> Result<(), TaskError> {
    let chance = experiment.training.half_grown;
    let advances: Vec<bool> = (0..grids.samples()).map(|_| random.uniform() < chance).collect();
    let conditions = Conditions { fire_rate: experiment.automaton.fire_rate, damage: None, recovery: 0 };
    let channels = grids.channels();
    let mut run = HardRun::new(&model.harden(), channels, grids.clone(), conditions, random.word())?;
    for _ in 0..=random.below(experiment.automaton.steps) {
        run.step()?;
    }
    let words = grids.words_per_sample();
    for channel in 0..channels {
        let advanced = run.grid().plane(channel).chunks_exact(words).zip(&advances);
        for (grid, (advanced, &advances)) in grids.plane_mut(channel).chunks_exact_mut(words).zip(advanced) {
            if advances {
                grid.copy_from_slice(advanced);
            }
        }
    }
    Ok(())
}

/// Minimum number of cells of a group: smaller groups would not fill their tiles.
const GROUP_CELLS: usize = 128;

/// Returns the number of groups of equal size into which a batch is split: a power of two, at most eight.
fn independent_groups(batch: usize, cells: usize) -> usize {
    let fits = |groups: &usize| batch.is_multiple_of(*groups) && batch / groups * cells >= GROUP_CELLS;
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Returns all cells of all samples, `stride` numbers each: their channels, then zeros.
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

/// Returns the entry of each cell, counted from 1 and shared by equal cells, and the numbers of all entries.
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
