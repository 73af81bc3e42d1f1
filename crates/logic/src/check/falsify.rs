//! Simulation: random runs that may be counterexamples, and the orbits of single states.

use super::model::Model;
use super::{Answer, CheckError, Context, Counterexample, Method, Proof, Property, Start};
use crate::grid::Grid;
use crate::prove::sweep::Random;
use crate::simulate::Simulator;

/// The most random runs that are simulated at once.
const MAX_SAMPLES: usize = 64;
/// The most bits of all random states together.
const MAX_BITS: usize = 1 << 24;
/// The steps that are simulated beyond the first step that counts.
const EXTRA_STEPS: usize = 64;
/// The random runs that are followed until they repeat, and the most steps of each.
const ORBITS: usize = 8;
/// See [`ORBITS`].
const ORBIT_STEPS: usize = 1 << 12;

/// The result of the simulation of random runs.
pub(super) struct Simulated {
    pub found: Option<Counterexample>,
    /// The last step that is known to be too early for the property.
    pub last_wrong: Option<usize>,
}

/// Simulates random runs.
pub(super) fn simulate(context: &Context<'_>) -> Result<Simulated, CheckError> {
    let model = context.model;
    let mut random = Random(1);
    let starts = random_starts(model, &mut random)?;
    let mut simulator = model.simulator()?;
    let mut fires = Fires::new(model);
    let samples = starts.samples();
    let mut grid = starts.clone();
    // For each sample, whether it has been right.
    let mut was_right = vec![false; samples];
    let (first, last) = match model.property {
        Property::Reaches { within } => (within, within),
        Property::Stays { from } => {
            (from, from.saturating_add(if model.is_from_any() { 0 } else { EXTRA_STEPS }))
        }
        // Long enough for a pattern to grow over the grid.
        Property::Attracts => (usize::MAX, EXTRA_STEPS.max(2 * (model.height() + model.width()))),
    };
    let mut last_wrong = None;
    for step in 0..=last {
        context.stop.check()?;
        context.report("simulation", step, 0);
        let wrong: Vec<usize> = (0..samples).map(|sample| model.wrong(&grid, sample)).collect();
        for (was_right, &wrong) in was_right.iter_mut().zip(&wrong) {
            *was_right |= wrong == 0;
        }
        let counts = |sample: &usize| match model.property {
            Property::Reaches { .. } => !was_right[*sample],
            _ => wrong[*sample] > 0,
        };
        let bad = (0..samples).filter(counts).max_by_key(|&sample| wrong[sample]);
        if bad.is_some() && step <= first {
            last_wrong = Some(step);
        }
        if let Some(sample) = bad.filter(|_| step >= first) {
            let found = Counterexample {
                start: sample_of(&starts, sample)?,
                fires: fires.masks,
                steps: step,
                wrong: wrong[sample],
                period: None,
            };
            return Ok(Simulated { found: Some(found), last_wrong });
        }
        if bad.is_none() && matches!(model.property, Property::Reaches { .. }) {
            break;
        }
        // A counterexample holds the masks of all its steps.
        if fires.bytes() > context.limits.memory / 4 {
            break;
        }
        if step < last {
            match fires.draw(model, &mut random) {
                Some(mask) => simulator.step_masked(&mut grid, mask)?,
                None => simulator.step(&mut grid)?,
            }
        }
    }
    let found = match model.property {
        // All cells may fire in all steps, in any order of firing.
        Property::Attracts => wrong_cycle(context, &starts)?,
        _ => None,
    };
    Ok(Simulated { found, last_wrong })
}

/// Random start states: random bits or damage, and for all states also zeros and ones.
fn random_starts(model: &Model, random: &mut Random) -> Result<Grid, CheckError> {
    let (height, width, channels) = (model.height(), model.width(), model.channels.len());
    let bits = height.saturating_mul(width).saturating_mul(channels);
    let samples = (MAX_BITS / bits.max(1)).clamp(1, MAX_SAMPLES);
    let mut grid = Grid::new(samples, height, width, channels)?;
    let set_cell = |grid: &mut Grid, sample: usize, cell: usize, bits: &mut dyn FnMut() -> bool| {
        (0..channels).for_each(|c| grid.set(sample, c, cell / width, cell % width, bits()));
    };
    for sample in 0..samples {
        if let Some(start) = model.start.grid() {
            let words = grid.words_per_sample();
            for channel in 0..channels {
                grid.plane_mut(channel)[sample * words..][..words].copy_from_slice(start.plane(channel));
            }
        }
        let mut bit = |sample: usize| match (sample, model.is_from_any()) {
            (1, true) => false,
            (2, true) => true,
            _ => random.word() & 1 == 1,
        };
        match &model.start {
            Start::Any => {
                (0..height * width).for_each(|cell| set_cell(&mut grid, sample, cell, &mut || bit(sample)));
            }
            Start::Region { rows, columns, .. } => {
                for y in rows.clone() {
                    for x in columns.clone() {
                        set_cell(&mut grid, sample, y * width + x, &mut || bit(sample));
                    }
                }
            }
            Start::Damaged { cells, .. } => {
                for _ in 0..(*cells).min(MAX_BITS / samples) {
                    let cell = random.below(height * width);
                    set_cell(&mut grid, sample, cell, &mut || random.word() & 1 == 1);
                }
            }
            Start::Grid(_) => {}
        }
    }
    Ok(grid)
}

/// Returns one sample of a grid.
fn sample_of(grid: &Grid, sample: usize) -> Result<Grid, CheckError> {
    let mut one = Grid::new(1, grid.height(), grid.width(), grid.channels())?;
    let words = grid.words_per_sample();
    for channel in 0..grid.channels() {
        one.plane_mut(channel).copy_from_slice(&grid.plane(channel)[sample * words..][..words]);
    }
    Ok(one)
}

/// Random masks of the cells that fire.
struct Fires {
    masks: Vec<Vec<u64>>,
    /// For each cell, the steps since it last fired.
    ages: Vec<usize>,
}

impl Fires {
    fn new(model: &Model) -> Fires {
        Fires { masks: Vec::new(), ages: vec![0; if model.is_async { model.cells() } else { 0 }] }
    }

    /// The memory of the masks so far.
    fn bytes(&self) -> u64 {
        self.masks.len() as u64 * self.masks.last().map_or(0, |mask| 8 * mask.len() as u64)
    }

    /// Draws the cells that fire in the next step; `None` if all do.
    fn draw(&mut self, model: &Model, random: &mut Random) -> Option<&[u64]> {
        if !model.is_async {
            return None;
        }
        let mut mask = vec![0u64; model.cells().div_ceil(64)];
        for (cell, age) in self.ages.iter_mut().enumerate() {
            let has_to = model.window.is_some_and(|window| *age + 1 >= window);
            let fires = has_to || random.word() & 1 == 1;
            *age = if fires { 0 } else { *age + 1 };
            mask[cell / 64] |= u64::from(fires) << (cell % 64);
        }
        self.masks.push(mask);
        self.masks.last().map(Vec::as_slice)
    }
}

/// Returns a random run that ends in a cycle with a wrong state.
fn wrong_cycle(context: &Context<'_>, starts: &Grid) -> Result<Option<Counterexample>, CheckError> {
    for sample in 0..starts.samples().min(ORBITS) {
        let start = sample_of(starts, sample)?;
        let orbit = Orbit::follow(context, &start, ORBIT_STEPS)?;
        if let Some((steps, period)) = orbit.and_then(|orbit| orbit.recurring_wrong()) {
            return Ok(Some(Counterexample { start, fires: vec![], steps, wrong: 0, period: Some(period) }));
        }
    }
    Ok(None)
}

/// A run in which all cells fire, until it repeats.
pub(super) struct Orbit {
    /// The step at which the state equals that `period` steps before.
    pub steps: usize,
    pub period: usize,
    /// The last wrong step, up to `steps`.
    pub last_wrong: Option<usize>,
}

impl Orbit {
    /// Follows a run for at most that many steps; `None` if it did not repeat (Brent's algorithm).
    pub fn follow(context: &Context<'_>, start: &Grid, most: usize) -> Result<Option<Orbit>, CheckError> {
        Orbit::follow_while(context, start, most, |_| true)
    }

    /// Follows a run like [`Orbit::follow`]; `None` also at the first step whose number of wrong bits is not accepted.
    fn follow_while(
        context: &Context<'_>,
        start: &Grid,
        most: usize,
        accepts: impl Fn(usize) -> bool,
    ) -> Result<Option<Orbit>, CheckError> {
        let mut simulator = context.model.simulator()?;
        let (mut saved, mut grid) = (start.clone(), start.clone());
        let (mut period, mut power) = (0, 1);
        let mut last_wrong = (context.model.wrong(&grid, 0) > 0).then_some(0);
        for steps in 1..=most {
            context.stop.check()?;
            if period == power {
                saved.clone_from(&grid);
                (period, power) = (0, 2 * power);
            }
            simulator.step(&mut grid)?;
            period += 1;
            context.steps.set(steps);
            let wrong = context.model.wrong(&grid, 0);
            if wrong > 0 {
                last_wrong = Some(steps);
            }
            if !accepts(wrong) {
                return Ok(None);
            }
            if saved == grid {
                return Ok(Some(Orbit { steps, period, last_wrong }));
            }
        }
        Ok(None)
    }

    /// Returns a wrong step in the cycle, and its period.
    pub fn recurring_wrong(&self) -> Option<(usize, usize)> {
        let wrong = self.last_wrong.filter(|&step| step + self.period > self.steps)?;
        Some((wrong, self.period))
    }

    /// Returns the first step from which on all states are right, unless a wrong one recurs.
    pub fn right_from(&self) -> Option<usize> {
        self.recurring_wrong().is_none().then(|| self.last_wrong.map_or(0, |step| step + 1))
    }
}

/// Answers a question about one run by simulation.
pub(super) fn follow_orbit(context: &Context<'_>) -> Result<Answer, CheckError> {
    let model = context.model;
    let Start::Grid(start) = &model.start else { return Err(CheckError::Inconsistent) };
    let refuted = |steps: usize, period: Option<usize>| {
        Answer::Refuted(Counterexample { start: start.clone(), fires: vec![], steps, wrong: 0, period })
    };
    let proved =
        |steps: usize, method: Method| Answer::Proved(Proof { steps, is_least: true, method, gates: 0 });
    let first = match model.property {
        Property::Attracts => 0,
        Property::Stays { from } | Property::Reaches { within: from } => from,
    };
    let mut simulator: Simulator = model.simulator()?;
    let mut grid = start.clone();
    let mut last_wrong = None;
    for step in 0..=first {
        context.stop.check()?;
        context.report("simulation", step, 0);
        if model.wrong(&grid, 0) > 0 {
            last_wrong = Some(step);
        } else if matches!(model.property, Property::Reaches { .. }) {
            return Ok(proved(step, Method::Simulation));
        }
        if step < first {
            simulator.step(&mut grid)?;
        }
    }
    if last_wrong == Some(first) && model.property != Property::Attracts {
        return Ok(refuted(first, None));
    }
    if model.property != Property::Attracts {
        // The first wrong step refutes the property, however long the run is.
        let orbit = Orbit::follow_while(context, &grid, usize::MAX, |wrong| wrong == 0)?;
        return Ok(match orbit {
            Some(Orbit { period, .. }) => {
                proved(last_wrong.map_or(0, |step| step + 1), Method::Orbit { period })
            }
            None => refuted(first + context.steps.get(), None),
        });
    }
    let Some(orbit) = Orbit::follow(context, &grid, usize::MAX)? else {
        return Err(CheckError::Inconsistent);
    };
    Ok(match (orbit.right_from(), orbit.recurring_wrong()) {
        (Some(step), _) => proved(step, Method::Orbit { period: orbit.period }),
        (None, recurring) => {
            let (steps, period) = recurring.unwrap_or((orbit.steps, orbit.period));
            refuted(steps, Some(period))
        }
    })
}
