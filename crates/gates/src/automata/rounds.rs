//! What an update rolls out: start states, the cells to compute, goals.

use gatework_logic::Grid;

use super::cells::{Plan, Planner, Shape};
use super::experiment::{Experiment, Loaded};
use super::hard::{Conditions, HardRun, fill_mask};
use super::model::Model;
use super::rollout::Goal;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// What the start states of a roll-out, the cells to compute and the goals are.
pub(super) struct Round {
    /// Of each group of boards; all groups are the same in this.
    pub plan: Plan,
    /// Of one group after the other.
    pub goals: Vec<Goal>,
    /// Of each group, the goals of states before the last.
    pub late: Vec<Vec<Goal>>,
    /// Entries of the start states, group by group.
    pub start: Vec<f32>,
    /// The same start, and the target, in bits.
    pub boards: Grid,
    /// The target.
    pub target: Grid,
    /// Bits of the cells that fire, one mask a step.
    pub masks: Vec<Vec<u64>>,
}

/// Draws the rounds of a seed.
pub(super) struct Rounds {
    loaded: Loaded,
    seed: u64,
    /// For one group of boards.
    planner: Planner,
    /// Groups of boards that roll independently of each other.
    groups: usize,
    /// Numbers from one entry of a state to the next.
    stride: usize,
    /// What was used last, if it can be used again: a round if all are the same, or the plan of one.
    round: Option<Round>,
    plan: Option<Plan>,
}

impl Rounds {
    /// For the states of a roll-out.
    pub fn new(loaded: &Loaded, seed: u64, stride: usize) -> Rounds {
        let experiment = &loaded.experiment;
        let [height, width] = experiment.automaton.grid;
        let (batch, boundary) = (experiment.training.batch, experiment.automaton.boundary);
        // Boards that start alike are rolled out together, because their cells are the same.
        let groups = if experiment.shares_cells() { 1 } else { independent_groups(batch, height * width) };
        let planner = Planner::new(Shape { samples: batch / groups, height, width, boundary });
        Rounds { loaded: loaded.clone(), seed, planner, groups, stride, round: None, plan: None }
    }

    /// The round of an update. `model` is as it is then: half-grown boards are its work.
    pub fn next(&mut self, update: u64, model: &Model) -> Result<Round, TaskError> {
        match self.round.take() {
            Some(round) => Ok(round),
            None => self.draw(update, model),
        }
    }

    /// Takes back a round that is over.
    pub fn give_back(&mut self, round: Round) {
        let experiment = &self.loaded.experiment;
        if experiment.automaton.fire_rate.is_some() || experiment.training.steps.is_some() {
            return;
        }
        if experiment.shares_cells() {
            self.round = Some(round);
        } else {
            self.plan = Some(round.plan);
        }
    }

    /// Groups of boards.
    pub fn groups(&self) -> usize {
        self.groups
    }

    fn draw(&mut self, update: u64, model: &Model) -> Result<Round, TaskError> {
        let known = self.plan.take();
        let experiment = &self.loaded.experiment;
        let shape = self.planner.shape();
        let steps = experiment.training.steps.map_or(experiment.automaton.steps, |[least, most]| {
            least + Random::new(self.seed, Purpose::Steps, update).below(most - least + 1)
        });
        let boards = self.start_boards(update, model)?;
        let target = self.loaded.target.boards(&boards, shape.boundary, steps)?;
        let masks = self.masks(update, steps, boards.words_per_sample());
        let fires: Vec<Vec<bool>> = masks
            .iter()
            .map(|mask| (0..shape.cells()).map(|cell| mask[cell / 64] >> (cell % 64) & 1 == 1).collect())
            .collect();
        let fires = (!fires.is_empty()).then_some(&fires[..]);

        let alike = experiment.shares_cells();
        let (entries, start) = if alike {
            distinct_cells(&boards, self.stride)
        } else {
            (Vec::new(), cells(&boards, self.stride))
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
        Ok(Round { plan, goals, late, start, boards, target, masks })
    }

    /// The cells that fire in each step, unless all do.
    fn masks(&self, update: u64, steps: usize, words: usize) -> Vec<Vec<u64>> {
        let Some(rate) = self.loaded.experiment.automaton.fire_rate else { return Vec::new() };
        let mut random = Random::new(self.seed, Purpose::Fire, update);
        let mut masks = vec![vec![0u64; words]; steps];
        for mask in &mut masks {
            fill_mask(mask, self.planner.shape().cells(), rate, &mut random);
        }
        masks
    }

    /// The start states of an update.
    fn start_boards(&self, update: u64, model: &Model) -> Result<Grid, TaskError> {
        let experiment = &self.loaded.experiment;
        let shape = self.planner.shape();
        let samples = self.groups * shape.samples;
        let mut boards = Grid::new(samples, shape.height, shape.width, experiment.automaton.channels)?;
        experiment.start.fill(&mut boards, &mut Random::new(self.seed, Purpose::Start, update))?;
        if experiment.training.half_grown > 0.0 {
            let random = Random::new(self.seed, Purpose::HalfGrown, update);
            grow_some(experiment, model, &mut boards, random)?;
        }
        Ok(boards)
    }
}

/// Lets a share of the boards grow for some steps.
fn grow_some(
    experiment: &Experiment,
    model: &Model,
    boards: &mut Grid,
    mut random: Random,
) -> Result<(), TaskError> {
    let chance = experiment.training.half_grown;
    let is_grown: Vec<bool> = (0..boards.samples()).map(|_| random.uniform() < chance).collect();
    let conditions = Conditions { fire_rate: experiment.automaton.fire_rate, damage: None };
    let channels = boards.channels();
    let mut run = HardRun::new(&model.harden(), channels, boards.clone(), conditions, random.word())?;
    for _ in 0..=random.below(experiment.automaton.steps) {
        run.step()?;
    }
    let words = boards.words_per_sample();
    for channel in 0..channels {
        let grown = run.grid().plane(channel).chunks_exact(words).zip(&is_grown);
        for (board, (grown, &is_grown)) in boards.plane_mut(channel).chunks_exact_mut(words).zip(grown) {
            if is_grown {
                board.copy_from_slice(grown);
            }
        }
    }
    Ok(())
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
