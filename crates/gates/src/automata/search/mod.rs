//! Discrete search on the hard automaton after gradient descent.
//!
//! The soft network computes with values between 0 and 1. Its hardened version is often wrong where the soft one is right,
//! so the search continues from the best parameters of training:
//!
//! | file | what it does |
//! |---|---|
//! | `annealing` | simulated annealing (Gibbs sampling) over gate functions and wires; minimises the wrong cells |
//! | `harder` | grids on which a circuit fails that is right on those of the search |
//! | `repair` | for a fixed picture or a rule: exact repair of the remaining wrong cells by a formula |
//! | `exact` | chooses between the repair and an automaton that is made from the target |
//! | `shrink` | after a success: a smaller circuit that passes the same checks |
//! | `grow` | adds the gates of formulas to a layered network |
//!
//! Several annealing chains run in parallel from the same model. They synchronise after a fixed number of moves, so the
//! result does not depend on the number of threads.

mod annealing;
mod exact;
mod grow;
mod harder;
mod repair;
mod shrink;

use gatework_logic::simulate::variants::{Grids, SimulationTask};
use gatework_logic::{Automaton, Boundary, Gate, Grid};
use rayon::prelude::*;

use super::evaluate;
use super::experiment::{AutomatonExperiment, Protocol, SearchSettings};
use super::hard::fill_mask;
use super::model::Model;
use annealing::{Chain, MoveSettings};
pub use exact::{CLOCK, CONSTRUCTION, INFERENCE, REPAIR};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Finishing, Stage, TaskError};
pub(super) use grow::path_from;
use harder::MAX_HARDER;

/// The stage of annealing.
const SEARCH: &str = "search";

/// Moves between two synchronisations of the chains.
const MOVES_PER_ROUND: u64 = 50;

/// Logit of the chosen function, where the others have 0: the initial logit of a gate in training.
pub(super) const MARGIN: f32 = crate::soft::PASS_THROUGH;

/// Draws of fresh grids in a run on which a circuit may be right that does not pass the checks.
const MAX_BARREN: u32 = 4;

/// Grids of a case for exact repair, if start states are random.
const REPAIR_SAMPLES: usize = 16;

/// Returns true if the search should stop. Called with the progress.
pub type StopCheck<'a> = dyn Fn(Finishing) -> bool + 'a;

/// Returns true if an automaton passes the checks of training. The number selects the fresh start states.
pub type Check<'a> = dyn Fn(&Automaton, u64) -> Result<bool, TaskError> + 'a;

/// Start states and what they should become.
struct Case {
    start: Grid,
    target: Grid,
    steps: usize,
    /// Cells that update in each step, as bit masks; all cells, if empty.
    fires: Vec<Vec<u64>>,
}

impl Case {
    /// Returns the task for variants of an automaton, which are also compared with the target `stay` steps later.
    fn task(&self, boundary: Boundary, stay: usize) -> SimulationTask<'_> {
        SimulationTask {
            start: &self.start,
            target: &self.target,
            boundary,
            steps: self.steps,
            stay,
            fires: &self.fires,
        }
    }
}

/// The result of a search.
pub struct Found {
    /// The model. Its wires, and even its size, may differ from those of the trained model.
    pub model: Model,
    /// Wrong bits that remain on the grids of the search.
    pub wrong: u32,
    /// Moves of all runs.
    pub moves: u64,
    /// Number of moves and wrong bits at that time, in order.
    pub trace: Vec<(u64, u32)>,
    /// Whether the model passes every check.
    pub passes: bool,
    /// Wrong bits after each stage.
    pub stages: Vec<Stage>,
}

/// A search for one seed of an experiment.
pub struct Search<'a> {
    /// The experiment.
    pub loaded: &'a AutomatonExperiment,
    /// The search's settings.
    pub settings: &'a SearchSettings,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The checks of training.
    pub check: &'a Check<'a>,
}

impl Search<'_> {
    /// Searches from a model until one passes every check, all runs are used or `stop`, which is called with the progress
    /// now and then, returns true. Returns `None` if it was stopped.
    pub fn run(&self, model: &Model, stop: &StopCheck<'_>) -> Result<Option<Found>, TaskError> {
        if let Some(found) = self.inferred(model)? {
            return Ok(Some(found));
        }
        let mut best: Option<Found> = None;
        let (mut moves, mut trace) = (0, Vec::new());
        let runs = self.settings.runs as u64;
        let total = (1..=runs).fold(0u64, |sum, run| sum.saturating_add(self.moves_of(run - 1)));
        for run in 0..runs {
            let redraw = run > 0 && self.settings.redraw;
            let redrawn = redraw.then(|| self.redrawn(model, run)).transpose()?;
            let begin = redrawn.as_ref().unwrap_or(model);
            let shown = |progress: Finishing| match progress.stage {
                SEARCH => stop(Finishing { done: moves + progress.done, total, ..progress }),
                _ => stop(progress),
            };
            let Some(found) = self.anneal(begin, run, &shown)? else { return Ok(None) };
            let better = best.as_ref().is_none_or(|best| found.passes || found.wrong < best.wrong);
            let passes = found.passes;
            trace.extend(found.trace.iter().map(|&(at, wrong)| (moves + at, wrong)));
            moves += found.moves;
            if better {
                best = Some(found);
            }
            if passes {
                break;
            }
        }
        let Some(mut best) = best else { return Ok(None) };
        if !best.passes {
            best = self.made(best, stop)?;
        }
        if best.passes && self.settings.shrink > 0 {
            moves += self.settings.shrink;
            let Some(model) = self.shrunk(best.model, 1 << 62, stop)? else { return Ok(None) };
            best = Found { model, ..best };
        }
        if best.passes && trace.last().is_some_and(|&(_, wrong)| wrong > 0) {
            trace.push((moves, 0));
        }
        let begin = trace.first().map_or(0, |&(_, wrong)| wrong);
        best.stages.insert(0, self.stage("descent", begin));
        Ok(Some(Found { moves, trace, ..best }))
    }

    /// Moves of a run.
    fn moves_of(&self, run: u64) -> u64 {
        self.settings.moves.saturating_mul(luby(run + 1))
    }

    /// Describes the result of a stage by its wrong bits on the grids of the search.
    fn stage(&self, name: &str, wrong: u32) -> Stage {
        let samples = match &self.loaded.experiment.start {
            start if start.is_fixed() => 1,
            start => start.count().unwrap_or(self.settings.samples),
        };
        let cells: usize = self.sizes().iter().map(|[height, width]| height * width).sum();
        let times = if self.settings.stay > 0 { 2 } else { 1 };
        let of = cells * samples * self.loaded.target.channels() * times;
        Stage { name: name.into(), wrong: u64::from(wrong), of: of as u64 }
    }

    /// Draws new wires for an untrained model of the same shape.
    fn redrawn(&self, model: &Model, run: u64) -> Result<Model, TaskError> {
        let seed = Random::new(self.seed, Purpose::Redraw, run).word();
        Ok(Model::new(&model.shape, seed)?)
    }

    /// Runs all chains until one of them passes every check or the moves of this run are used, then tries exact
    /// repair.
    fn anneal(&self, model: &Model, run: u64, stop: &StopCheck<'_>) -> Result<Option<Found>, TaskError> {
        let observed = self.loaded.target.channels();
        let time = |number: u64| run << 32 | number;
        let mut draws = 0;
        let mut grids = self.grids(time(draws))?;
        let mut chains: Vec<Chain> = (0..self.settings.chains as u64)
            .map(|chain| {
                let random = Random::new(self.seed, Purpose::Search, (chain + 1) << 48 | time(0));
                Chain::new(model, observed, &grids, random)
            })
            .collect::<Result<_, _>>()?;
        let (mut moves, mut trace) = (0, Vec::new());
        let (mut harder, mut barren): (Vec<Grids>, _) = (Vec::new(), 0);
        let most = self.moves_of(run);
        while moves < most {
            let wrong = chains.iter().map(Chain::wrong).min().unwrap_or(0);
            trace.push((moves, wrong));
            if stop(Finishing { stage: SEARCH, hard: f64::from(wrong), done: moves, total: most }) {
                return Ok(None);
            }
            let (until, settings) = ((moves + MOVES_PER_ROUND).min(most), self.settings);
            chains.par_iter_mut().try_for_each(|chain| {
                (moves..until).try_for_each(|number| match chain.wrong() {
                    0 => Ok(()),
                    _ => chain.step(&grids, &move_settings(settings, number, most)),
                })
            })?;
            moves = until;
            if chains.iter().all(|chain| chain.wrong() > 0) {
                continue;
            }
            for chain in chains.iter().filter(|chain| chain.wrong() == 0) {
                let model = chain.best_model(MARGIN);
                if self.passes(&model, time(draws))? {
                    trace.push((moves, 0));
                    let stages = vec![self.stage(SEARCH, 0)];
                    return Ok(Some(Found { model, wrong: 0, moves, trace, passes: true, stages }));
                }
            }
            let experiment = &self.loaded.experiment;
            if experiment.start.is_fixed() && experiment.automaton.fire_rate.is_none() {
                break;
            }
            // Right on these grids, but not on others.
            draws += 1;
            let failed = chains.iter().position(|chain| chain.wrong() == 0);
            grids = self.grids(time(draws))?;
            grids.extend(harder.iter().cloned());
            chains.par_iter_mut().try_for_each(|chain| chain.set_grids(&grids))?;
            let Some(failed) = failed.filter(|&failed| chains[failed].wrong() == 0) else { continue };
            let Some(case) = self.harder(&chains[failed].model(MARGIN).harden(), time(draws))? else {
                // No grid tells the search what is wrong. Others may, but not for long.
                barren += 1;
                if barren == MAX_BARREN {
                    break;
                }
                continue;
            };
            harder.truncate(MAX_HARDER - 1);
            harder.insert(0, Grids::new(&case.task(experiment.automaton.boundary, 0))?);
            grids.truncate(self.sizes().len());
            grids.extend(harder.iter().cloned());
            chains.par_iter_mut().try_for_each(|chain| chain.set_grids(&grids))?;
        }
        let Some(best) = chains.iter().min_by_key(|chain| chain.best()) else { return Ok(None) };
        let model = best.best_model(MARGIN);
        let wrong = if harder.is_empty() {
            best.best()
        } else {
            // Only the grids of the experiment count.
            let random = Random::new(self.seed, Purpose::Search, time(draws));
            Chain::new(&model, observed, &self.grids(time(draws))?, random)?.wrong()
        };
        trace.push((moves, wrong));
        let stages = vec![self.stage(SEARCH, wrong)];
        self.repaired(Found { model, wrong, moves, trace, passes: false, stages }, run, stop)
    }

    /// Returns true if a model passes the checks of training and all protocols under the conditions of training. The
    /// number selects the fresh start states.
    fn passes(&self, model: &Model, number: u64) -> Result<bool, TaskError> {
        let automaton = model.harden();
        if !(self.check)(&automaton, number)? {
            return Ok(false);
        }
        let seed = Random::new(self.seed, Purpose::Check, u64::MAX - number).word();
        for protocol in self.loaded.experiment.counted_protocols() {
            if evaluate::score(&automaton, self.loaded, protocol, seed)?.wrong > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The protocols without damage and with the fire rate of training.
    fn protocols(&self) -> impl Iterator<Item = &Protocol> {
        let experiment = &self.loaded.experiment;
        let rate = experiment.automaton.fire_rate;
        experiment.counted_protocols().filter(move |p| p.damage.is_none() && p.fire_rate == rate)
    }

    /// Draws the grids of a run, of all sizes.
    fn grids(&self, time: u64) -> Result<Vec<Grids>, TaskError> {
        let automaton = &self.loaded.experiment.automaton;
        let mut random = Random::new(self.seed, Purpose::Search, time);
        let grids = |&size| {
            let case = self.case(size, self.settings.samples, self.settings.stay, &mut random)?;
            Ok(Grids::new(&case.task(automaton.boundary, self.settings.stay))?)
        };
        self.sizes().iter().map(grids).collect()
    }

    /// Heights and widths of the grids.
    fn sizes(&self) -> &[[usize; 2]] {
        match &self.settings.grids[..] {
            [] => std::slice::from_ref(&self.loaded.experiment.automaton.grid),
            sizes => sizes,
        }
    }

    /// Draws grids of one size: `samples` of them, or one if the start state is fixed.
    fn case(
        &self,
        size: [usize; 2],
        samples: usize,
        stay: usize,
        random: &mut Random,
    ) -> Result<Case, TaskError> {
        self.case_of(size, samples, self.loaded.experiment.automaton.steps, stay, random)
    }

    /// Draws grids of one size for a number of steps.
    fn case_of(
        &self,
        [height, width]: [usize; 2],
        samples: usize,
        steps: usize,
        stay: usize,
        random: &mut Random,
    ) -> Result<Case, TaskError> {
        let experiment = &self.loaded.experiment;
        let automaton = &experiment.automaton;
        let samples =
            if experiment.start.is_fixed() { 1 } else { experiment.start.count().unwrap_or(samples) };
        let mut start = Grid::new(samples, height, width, automaton.channels)?;
        experiment.start.fill_in_order(&mut start, random)?;
        let target = self.loaded.target.grids(&start, automaton.boundary, steps)?;
        let mut fires = Vec::new();
        if let Some(rate) = automaton.fire_rate {
            fires = vec![vec![0; start.words_per_sample()]; steps + stay];
            for mask in &mut fires {
                fill_mask(mask, start.cells(), rate, random);
            }
        }
        Ok(Case { start, target, steps, fires })
    }
}

/// Returns the settings of a move. The temperature falls geometrically over `moves` moves.
fn move_settings(settings: &SearchSettings, number: u64, moves: u64) -> MoveSettings {
    let SearchSettings { temperature: [first, last], active, rewire, .. } = *settings;
    let temperature = first * (last / first).powf(number as f64 / moves as f64);
    MoveSettings { temperature, active, rewire }
}

/// Returns the `n`-th number, from 1, of the sequence 1, 1, 2, 1, 1, 2, 4, 1, ... of Luby, Sinclair and Zuckerman.
fn luby(n: u64) -> u64 {
    let block = (n + 1).next_power_of_two();
    if n + 1 == block { block / 2 } else { luby(n + 1 - block / 2) }
}

/// Sets the logits of a gate so that one function leads by `margin`.
pub(super) fn one_hot(logits: &mut [f32], gate: Gate, margin: f32) {
    logits.fill(0.0);
    logits[usize::from(gate.index())] = margin;
}

#[cfg(test)]
pub(super) mod tests;
