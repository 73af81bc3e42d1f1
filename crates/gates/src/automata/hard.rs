//! Hard rollouts on bit planes, with asynchronous updates and damage, compared with a target.

use std::collections::VecDeque;

use gatework_logic::simulate::Runner;
use gatework_logic::{Automaton, AutomatonError, Grid, GridError, Simulator};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use gatework_train::random::{Purpose, Random};

/// Cells that are set to zero in all channels after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The position of the damage.
    pub kind: DamageKind,
    /// Maximum side of the square.
    pub size: usize,
    /// Number of steps without damage, at the beginning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: usize,
    /// The last step with damage; that of the run, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The position of the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageKind {
    /// A square in the middle, the same after every step.
    Centre,
    /// A square of random size and position, clipped at the edge.
    Random,
}

/// Conditions of a run besides the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Fraction of the cells that update in a step; all, if not given.
    pub fire_rate: Option<f32>,
    /// Damage after every step.
    pub damage: Option<Damage>,
    /// Steps after damage in which a cell is not counted as outside the damage.
    pub recovery: usize,
}

/// Minimum number of cells of a grid, and of steps at a time, for which [`Runner`] is faster than [`Simulator`].
///
/// Converting a grid to the runner's layout and back takes as long as many steps: for 512x512 cells as long as 8
/// steps of Life, 25 of a rule of 128 channels and 110 of one that has ten gates for eight channels; for 256x256
/// cells 16, 35 and 500. On smaller grids the runner is not faster.
const RUNNER_CELLS: usize = 512 * 512;
/// See [`RUNNER_CELLS`].
const RUNNER_STEPS: usize = 64;
/// Maximum number of words of the masks that are drawn at a time.
const MASK_WORDS: usize = 1 << 22;

/// A run of a hard automaton on grids.
#[derive(Debug)]
pub struct HardRun {
    simulator: Simulator,
    /// Present for large grids only.
    runner: Option<Runner>,
    grid: Grid,
    conditions: Conditions,
    seed: u64,
    step: usize,
    mask: Vec<u64>,
    damaged: Option<Square>,
    /// The squares that are not counted, and the number of finished steps when they were damaged.
    recent: VecDeque<(usize, Square)>,
}

/// Rows and columns of a damaged square.
#[derive(Clone, Debug)]
struct Square {
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

impl HardRun {
    /// Compiles the fan-in cone of the first `observed` channels.
    pub fn new(
        automaton: &Automaton,
        observed: usize,
        grid: Grid,
        conditions: Conditions,
        seed: u64,
    ) -> Result<HardRun, AutomatonError> {
        let simulator = Simulator::new(automaton, observed)?;
        let is_large = grid.cells() >= RUNNER_CELLS;
        let runner = is_large.then(|| Runner::new(automaton, observed)).transpose()?;
        let mask = vec![0; grid.words_per_sample()];
        Ok(HardRun {
            simulator,
            runner,
            grid,
            conditions,
            seed,
            step: 0,
            mask,
            damaged: None,
            recent: VecDeque::new(),
        })
    }

    /// Estimates the bytes of a run on grids of this size, with a target: two grids, the padded planes of the simulator, the two
    /// layouts of the runner, and the masks.
    pub fn memory(samples: usize, [height, width]: [usize; 2], channels: usize) -> f64 {
        let bits = samples as f64 * height as f64 * width as f64 * channels as f64;
        5.0 * bits / 8.0 + (MASK_WORDS * size_of::<u64>()) as f64
    }

    /// The current state.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Number of steps so far.
    pub fn steps(&self) -> usize {
        self.step
    }

    /// Runs a number of steps: faster than [`HardRun::step`] for many steps on large grids.
    pub fn run(&mut self, steps: usize) -> Result<(), GridError> {
        let end = self.step + steps;
        while self.step < end {
            let damage = self.conditions.damage.map_or(end, |damage| damage.from.max(self.step));
            let left = if damage > self.step { end.min(damage) - self.step } else { end - self.step };
            if self.runner.is_some() && left >= RUNNER_STEPS && self.damage().is_none() {
                self.run_undamaged(left)?;
            } else {
                self.step()?;
            }
        }
        Ok(())
    }

    /// Runs steps without damage on large grids.
    fn run_undamaged(&mut self, steps: usize) -> Result<(), GridError> {
        let Some(runner) = &mut self.runner else { return Ok(()) };
        let end = self.step + steps;
        let Some(rate) = self.conditions.fire_rate else {
            runner.run(&mut self.grid, steps)?;
            (self.step, self.damaged) = (end, None);
            return Ok(());
        };
        let (words, cells) = (self.grid.words_per_sample(), self.grid.cells());
        let at_once = (MASK_WORDS / words).max(1);
        while self.step < end {
            let batch = self.step..end.min(self.step + at_once);
            let mask = |step: usize| {
                let mut mask = vec![0; words];
                fill_mask(
                    &mut mask,
                    cells,
                    rate,
                    &mut Random::new(self.seed, Purpose::CheckFire, step as u64),
                );
                mask
            };
            let masks: Vec<Vec<u64>> = batch.clone().into_par_iter().map(mask).collect();
            runner.run_masked(&mut self.grid, &masks)?;
            (self.step, self.damaged) = (batch.end, None);
        }
        Ok(())
    }

    /// The damage of the next step.
    fn damage(&self) -> Option<Damage> {
        let is_due =
            |damage: &Damage| self.step >= damage.from && damage.until.is_none_or(|until| self.step < until);
        self.conditions.damage.filter(is_due)
    }

    /// Runs one step of the rule, then damages the grids.
    pub fn step(&mut self) -> Result<(), GridError> {
        if let Some(rate) = self.conditions.fire_rate {
            let mut random = Random::new(self.seed, Purpose::CheckFire, self.step as u64);
            fill_mask(&mut self.mask, self.grid.cells(), rate, &mut random);
            self.simulator.step_masked(&mut self.grid, &self.mask)?;
        } else {
            self.simulator.step(&mut self.grid)?;
        }
        self.damaged = self.damage().map(|damage| self.square(damage));
        if let Some(square) = self.damaged.clone() {
            for sample in 0..self.grid.samples() {
                for channel in 0..self.grid.channels() {
                    for y in square.rows.clone() {
                        for x in square.columns.clone() {
                            self.grid.set(sample, channel, y, x, false);
                        }
                    }
                }
            }
        }
        self.step += 1;
        let (now, recovery) = (self.step, self.conditions.recovery);
        self.recent.extend(self.damaged.clone().map(|square| (now, square)));
        while self.recent.front().is_some_and(|(step, _)| step.saturating_add(recovery) < now) {
            self.recent.pop_front();
        }
        Ok(())
    }

    fn square(&self, damage: Damage) -> Square {
        let (height, width) = (self.grid.height(), self.grid.width());
        let cut = |begin: usize, side: usize, size: usize| begin..begin.saturating_add(side).min(size);
        match damage.kind {
            DamageKind::Centre => {
                let middle = |size: usize| cut(size.saturating_sub(damage.size) / 2, damage.size, size);
                Square { rows: middle(height), columns: middle(width) }
            }
            DamageKind::Random => {
                let mut random = Random::new(self.seed, Purpose::Damage, self.step as u64);
                let side = random.below(damage.size.max(1)).saturating_add(1);
                let (y, x) = (random.below(height), random.below(width));
                Square { rows: cut(y, side, height), columns: cut(x, side, width) }
            }
        }
    }

    /// Counts the wrong bits in the leading channels of all samples.
    pub fn wrong(&self, target: &Grid) -> Result<usize, GridError> {
        self.grid.difference(target, target.channels())
    }

    /// Cells of a grid that the last step's damage has set to zero.
    pub fn damaged_cells(&self) -> usize {
        self.damaged.as_ref().map_or(0, |square| square.rows.len() * square.columns.len())
    }

    /// Counts the wrong bits outside the cells that damage has set to zero in the last step, or in the steps of recovery before.
    pub fn wrong_outside_damage(&self, target: &Grid) -> Result<usize, GridError> {
        let wrong = self.wrong(target)?;
        let (height, width) = (self.grid.height(), self.grid.width());
        let mut is_damaged = vec![false; height * width];
        let is_recent = |step: usize| step.saturating_add(self.conditions.recovery) >= self.step;
        for (_, square) in self.recent.iter().filter(|(step, _)| is_recent(*step)) {
            for y in square.rows.clone() {
                is_damaged[y * width..][square.columns.clone()].fill(true);
            }
        }
        let mut damaged = 0;
        for (cell, _) in is_damaged.iter().enumerate().filter(|(_, is_damaged)| **is_damaged) {
            let (y, x) = (cell / width, cell % width);
            let bits =
                (0..self.grid.samples()).flat_map(|sample| (0..target.channels()).map(move |c| (sample, c)));
            damaged += bits
                .filter(|&(sample, c)| target.get(sample, c, y, x) != self.grid.get(sample, c, y, x))
                .count();
        }
        Ok(wrong - damaged)
    }
}

/// Sets the bit of every cell that fires.
pub fn fill_mask(mask: &mut [u64], cells: usize, rate: f32, random: &mut Random) {
    mask.fill(0);
    for cell in 0..cells {
        if random.uniform() <= rate {
            mask[cell / 64] |= 1 << (cell % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use gatework_logic::{Boundary, Circuit, rules};

    use super::*;
    use crate::automata::states::Start;

    /// A rule that keeps every cell.
    fn still() -> Automaton {
        Automaton::new(1, Boundary::Torus, Circuit::new(9, vec![], vec![4]).unwrap()).unwrap()
    }

    fn ones(height: usize, width: usize) -> Grid {
        let mut grid = Grid::new(2, height, width, 1).unwrap();
        for i in 0..2 * height * width {
            grid.set(i % 2, 0, i / 2 / width, i / 2 % width, true);
        }
        grid
    }

    #[test]
    fn central_damage_ends_in_time_and_is_not_counted() {
        let damage = Some(Damage { kind: DamageKind::Centre, size: 4, from: 0, until: Some(2) });
        let conditions = Conditions { fire_rate: Some(0.5), damage, recovery: 0 };
        let target = ones(10, 8);
        let mut run = HardRun::new(&still(), 1, target.clone(), conditions, 1).unwrap();
        run.step().unwrap();
        assert_eq!((run.wrong(&target).unwrap(), run.wrong_outside_damage(&target).unwrap()), (32, 0));
        assert_eq!(run.damaged_cells(), 16);
        assert!(!run.grid().get(0, 0, 3, 2) && run.grid().get(0, 0, 2, 2));
        run.step().unwrap();
        run.step().unwrap();
        assert_eq!(
            run.wrong_outside_damage(&target).unwrap(),
            32,
            "damage has ended, and this rule does not heal"
        );
    }

    #[test]
    fn damaged_cells_count_again_after_the_recovery() {
        let damage = Some(Damage { kind: DamageKind::Centre, size: 4, from: 0, until: Some(2) });
        let conditions = Conditions { fire_rate: None, damage, recovery: 3 };
        let target = ones(10, 8);
        let mut run = HardRun::new(&still(), 1, target.clone(), conditions, 1).unwrap();
        let mut wrong = || {
            run.step().unwrap();
            run.wrong_outside_damage(&target).unwrap()
        };
        let wrong: Vec<usize> = (0..7).map(|_| wrong()).collect();
        assert_eq!(wrong, [0, 0, 0, 0, 0, 32, 32], "damage ends after step 2");
    }

    #[test]
    fn many_steps_on_a_large_grid_equal_single_steps() {
        let life = rules::life(Boundary::Torus);
        let mut start = Grid::new(1, RUNNER_CELLS / 512 + 3, 512, 1).unwrap();
        Start::Random.fill(&mut start, &mut Random::new(1, Purpose::Check, 0)).unwrap();
        let damage = Some(Damage { kind: DamageKind::Random, size: 90, from: 0, until: Some(3) });
        let late = damage.map(|damage| Damage { from: RUNNER_STEPS + 1, until: None, ..damage });
        for (fire_rate, damage) in
            [(None, None), (None, damage), (Some(0.5), None), (Some(0.7), damage), (None, late)]
        {
            let run = || {
                HardRun::new(&life, 1, start.clone(), Conditions { fire_rate, damage, recovery: 0 }, 4)
                    .unwrap()
            };
            let (mut single, mut fast) = (run(), run());
            assert!(fast.runner.is_some());
            let steps = RUNNER_STEPS + 5;
            (0..steps).for_each(|_| single.step().unwrap());
            fast.run(steps).unwrap();
            assert!(fast.grid == single.grid && fast.steps() == steps, "{fire_rate:?} {damage:?}");
            let wrong = |run: &HardRun| run.wrong_outside_damage(&start).unwrap();
            assert_eq!(wrong(&fast), wrong(&single));
        }
    }

    #[test]
    fn damage_of_any_size_is_clipped_at_the_edge() {
        for kind in [DamageKind::Centre, DamageKind::Random] {
            let conditions = Conditions {
                fire_rate: None,
                damage: Some(Damage { kind, size: usize::MAX, from: 0, until: None }),
                recovery: 0,
            };
            let mut run = HardRun::new(&still(), 1, ones(7, 3), conditions, 1).unwrap();
            run.step().unwrap();
            assert!((1..=21).contains(&run.damaged_cells()));
        }
    }

    #[test]
    fn random_damage_stays_inside_and_is_bounded() {
        let damage = Some(Damage { kind: DamageKind::Random, size: 5, from: 0, until: None });
        for step in 0..50 {
            let conditions = Conditions { fire_rate: None, damage, recovery: 0 };
            let mut run = HardRun::new(&still(), 1, ones(7, 3), conditions, step).unwrap();
            run.step().unwrap();
            let wrong = run.wrong(&ones(7, 3)).unwrap();
            assert!((2..=2 * 5 * 3).contains(&wrong), "{wrong}");
        }
    }

    #[test]
    fn damage_begins_at_its_step() {
        let damage = Some(Damage { kind: DamageKind::Centre, size: 3, from: 2, until: Some(3) });
        let mut run =
            HardRun::new(&still(), 1, ones(5, 5), Conditions { fire_rate: None, damage, recovery: 0 }, 1)
                .unwrap();
        let wrong: Vec<usize> = (0..4)
            .map(|_| {
                run.step().unwrap();
                run.wrong(&ones(5, 5)).unwrap()
            })
            .collect();
        assert_eq!(wrong, [0, 0, 18, 18]);
        assert_eq!(run.damaged_cells(), 0);
    }
}
