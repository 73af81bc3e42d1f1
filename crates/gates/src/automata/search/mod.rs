//! Discrete search: what gradient descent began is finished on the hard automaton.
//!
//! The soft network computes with values between 0 and 1, and its discretised twin is often wrong where it is right. So
//! when the updates of a seed are used up, the search takes over:
//!
//! | file | what it does |
//! |---|---|
//! | `bath` | a heat bath over functions and wires, which lowers the number of wrong bits |
//! | `correct` | for a fixed picture: an exact formula for the cells that are left |
//! | `shrink` | after a success: the same with fewer gates |
//! | `grow` | adds the gates of formulas to a network |
//!
//! Several baths run side by side from the same start. They are compared after every few moves, so what is found does not
//! depend on the number of threads.

mod bath;
mod correct;
mod grow;
mod shrink;

use gatework_logic::simulate::variants::{Grids as Boards, SimulationTask as Task};
use gatework_logic::{Automaton, Boundary, Gate, Grid};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::evaluate;
use super::experiment::Loaded;
use super::hard::fill_mask;
use super::model::Model;
use bath::{Bath, Heat};
use gatework_train::pairs::{two, twos};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// How to search: the `[search]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Updates before the search begins.
    pub after: u64,
    /// Moves of the first try; see `tries`.
    pub moves: u64,
    /// Temperatures of the first and of the last move, in wrong bits.
    #[serde(deserialize_with = "two")]
    pub temperature: [f64; 2],
    /// Heights and widths of the boards; without it, the grid of the training.
    #[serde(default, deserialize_with = "twos", skip_serializing_if = "Vec::is_empty")]
    pub grids: Vec<[usize; 2]>,
    /// Boards of each size, if they start at random.
    #[serde(default = "one")]
    pub boards: usize,
    /// Further steps after which boards should still be right.
    #[serde(default)]
    pub stay: usize,
    /// The weight of an active gate; a wire has 1.
    #[serde(default = "default_active")]
    pub active: f64,
    /// Share of the trials that try another operand.
    #[serde(default = "default_rewire")]
    pub rewire: f64,
    /// Baths that start together.
    #[serde(default = "default_baths")]
    pub baths: usize,
    /// By which factor each bath is hotter than the one before it. If it is not 1, baths exchange their temperatures now
    /// and then, as in parallel tempering.
    #[serde(default = "default_ladder")]
    pub ladder: f64,
    /// Tries, each from the start. Which of them are lucky cannot be foreseen, so their lengths are as Luby, Sinclair and
    /// Zuckerman found best (1993): 1, 1, 2, 1, 1, 2, 4, ... times `moves`.
    #[serde(default = "one")]
    pub tries: usize,
    /// Tries after the first begin with other wires and without training: some wires are hopeless.
    #[serde(default)]
    pub redraw: bool,
    /// Tries after the first begin with the best so far, after so many further updates of gradient descent.
    #[serde(default)]
    pub retrain: u64,
    /// Share of the trials whose gate is drawn among those that the gradient of the soft loss would change first.
    #[serde(default)]
    pub guided: f64,
    /// Moves after a success, for a circuit with fewer gates.
    #[serde(default)]
    pub shrink: u64,
}

fn one() -> usize {
    1
}

fn default_active() -> f64 {
    0.03
}

fn default_rewire() -> f64 {
    0.5
}

fn default_baths() -> usize {
    2
}

fn default_ladder() -> f64 {
    1.0
}

/// Moves between two comparisons of the baths.
const MOVES_TOGETHER: u64 = 50;

/// The logit of a function that was chosen, where the others have 0: that of a gate at the start of training.
const MARGIN: f32 = crate::soft::PASS_THROUGH;

/// Boards of a lesson that starts at random.
const LESSON_BOARDS: usize = 16;

/// What a search asks of the training that it belongs to. Every number stands for other boards.
pub trait Teacher {
    /// Whether an automaton passes the checks of training.
    fn passes(&self, automaton: &Automaton, number: u64) -> Result<bool, TaskError>;

    /// By how much the soft loss rises with each logit of a model.
    fn slopes(&self, model: &Model, number: u64) -> Result<Vec<f32>, TaskError>;

    /// The best that some updates of gradient descent make of a model.
    /// `None` if it was stopped.
    fn trained(
        &self,
        model: &Model,
        updates: u64,
        number: u64,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Model>, TaskError>;
}

/// A start, and what should become of it.
struct Lesson {
    start: Grid,
    target: Grid,
    steps: usize,
    fires: Vec<Vec<u64>>,
}

impl Lesson {
    /// What variants of an automaton are asked, also so many steps later.
    fn task(&self, boundary: Boundary, stay: usize) -> Task<'_> {
        Task {
            start: &self.start,
            target: &self.target,
            boundary,
            steps: self.steps,
            stay,
            fires: &self.fires,
        }
    }
}

/// What a search found.
pub struct Found {
    /// The model; its wires, and even its size, may differ from those that it began with.
    pub model: Model,
    /// Wrong bits that are left on the boards of the search.
    pub wrong: u32,
    /// Moves that were made, in all tries.
    pub moves: u64,
    /// Wrong bits after so many moves, in order.
    pub trace: Vec<(u64, u32)>,
    /// Whether it passes every check.
    pub passes: bool,
}

/// A search for one seed of an experiment.
pub struct Search<'a> {
    /// The experiment.
    pub loaded: &'a Loaded,
    /// How to search.
    pub settings: &'a Settings,
    /// The seed.
    pub seed: u64,
}

impl Search<'_> {
    /// Searches from a model on, until it is right, all tries are used or `stop`, which is told the wrong bits now and then,
    /// says so. `None` if it was stopped.
    pub fn run(
        &self,
        model: &Model,
        teacher: &dyn Teacher,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Found>, TaskError> {
        let mut best: Option<Found> = None;
        let (mut moves, mut trace) = (0, Vec::new());
        for attempt in 0..self.settings.tries as u64 {
            let another = match &best {
                Some(_) if self.settings.redraw => Some(self.redrawn(model, attempt)?),
                Some(best) if self.settings.retrain > 0 => {
                    match teacher.trained(&best.model, self.settings.retrain, attempt << 32, stop)? {
                        None => return Ok(None),
                        trained => trained,
                    }
                }
                _ => None,
            };
            let begin = another.as_ref().unwrap_or(model);
            let Some(found) = self.attempt(begin, attempt, teacher, stop)? else { return Ok(None) };
            let better = best.as_ref().is_none_or(|best| found.passes || found.wrong < best.wrong);
            let passes = found.passes;
            trace.extend(found.trace.iter().map(|&(at, wrong)| (moves + at, wrong)));
            moves += found.moves;
            let found = if passes && self.settings.shrink > 0 {
                let passes = |model: &Model, number| self.passes(model, teacher, number);
                moves += self.settings.shrink;
                let shrunk = self.shrunk(found.model, attempt << 32 | 1 << 31, &passes, stop)?;
                let Some(model) = shrunk else { return Ok(None) };
                Found { model, ..found }
            } else {
                found
            };
            if better {
                best = Some(found);
            }
            if passes {
                break;
            }
        }
        Ok(best.map(|best| Found { moves, trace, ..best }))
    }

    /// A model of the same shape that was not trained, with other wires.
    fn redrawn(&self, model: &Model, attempt: u64) -> Result<Model, TaskError> {
        let seed = Random::new(self.seed, Purpose::Redraw, attempt).word();
        Ok(Model::new(&model.shape, seed)?)
    }

    /// One try.
    fn attempt(
        &self,
        model: &Model,
        attempt: u64,
        teacher: &dyn Teacher,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Found>, TaskError> {
        let observed = self.loaded.target.channels();
        let time = |number: u64| attempt << 32 | number;
        let mut draws = 0;
        let mut boards = self.boards(time(draws))?;
        let mut baths: Vec<Bath> = (0..self.settings.baths as u64)
            .map(|bath| {
                let random = Random::new(self.seed, Purpose::Search, (bath + 1) << 48 | time(0));
                Bath::new(model, observed, &boards, random)
            })
            .collect::<Result<_, _>>()?;
        // The rung of the ladder of temperatures that each bath is on.
        let mut rungs: Vec<usize> = (0..baths.len()).collect();
        let mut random = Random::new(self.seed, Purpose::Temper, attempt);
        let (mut moves, mut trace) = (0, Vec::new());
        let most = self.settings.moves.saturating_mul(luby(attempt + 1));
        while moves < most {
            let wrong = baths.iter().map(Bath::wrong).min().unwrap_or(0);
            trace.push((moves, wrong));
            if stop(f64::from(wrong)) {
                return Ok(None);
            }
            if self.settings.guided > 0.0 {
                for bath in &mut baths {
                    bath.follow(&teacher.slopes(&bath.model(MARGIN), time(moves))?);
                }
            }
            let until = (moves + MOVES_TOGETHER).min(most);
            baths.par_iter_mut().zip(&rungs).try_for_each(|(bath, &rung)| {
                let unfinished = |bath: &Bath| bath.wrong() > 0;
                (moves..until).try_for_each(|number| {
                    if unfinished(bath) { bath.step(&boards, &self.heat(number, most, rung)) } else { Ok(()) }
                })
            })?;
            moves = until;
            if self.settings.ladder != 1.0 {
                let wrong: Vec<u32> = baths.iter().map(Bath::wrong).collect();
                exchange(&mut rungs, &wrong, |rung| self.heat(moves, most, rung).temperature, &mut random);
            }
            if baths.iter().all(|bath| bath.wrong() > 0) {
                continue;
            }
            for bath in baths.iter().filter(|bath| bath.wrong() == 0) {
                let model = bath.best_model(MARGIN);
                if self.passes(&model, teacher, time(draws))? {
                    trace.push((moves, 0));
                    return Ok(Some(Found { model, wrong: 0, moves, trace, passes: true }));
                }
            }
            let experiment = &self.loaded.experiment;
            if experiment.start.is_fixed() && experiment.automaton.fire_rate.is_none() {
                break;
            }
            // Right on these boards, but not on others.
            draws += 1;
            boards = self.boards(time(draws))?;
            baths.par_iter_mut().try_for_each(|bath| bath.look_at(&boards))?;
        }
        let Some(best) = baths.iter().min_by_key(|bath| bath.best()) else { return Ok(None) };
        let (model, wrong) = (best.best_model(MARGIN), best.best());
        trace.push((moves, wrong));
        self.corrected(Found { model, wrong, moves, trace, passes: false }, teacher, attempt).map(Some)
    }

    /// What was found, mended if a formula can do that.
    fn corrected(&self, found: Found, teacher: &dyn Teacher, attempt: u64) -> Result<Found, TaskError> {
        let experiment = &self.loaded.experiment;
        let one_step = experiment.automaton.steps == 1;
        if !(experiment.start.starts_alike() || one_step) || experiment.automaton.fire_rate.is_some() {
            return Ok(found);
        }
        let time = attempt << 32 | u64::from(u32::MAX);
        let mut random = Random::new(self.seed, Purpose::Search, time);
        let protocols = self.protocols().filter(|protocol| protocol.steps == experiment.automaton.steps);
        let grids = self.grids().iter().copied().chain(protocols.map(|protocol| protocol.grid));
        let lessons = grids.map(|grid| self.lesson(grid, LESSON_BOARDS, 0, &mut random));
        let lessons: Vec<Lesson> = lessons.collect::<Result<_, _>>()?;
        let Some(model) = correct::correct(&found.model, &lessons, &mut random)? else { return Ok(found) };
        if self.passes(&model, teacher, time)? {
            let mut trace = found.trace;
            trace.push((found.moves, 0));
            return Ok(Found { model, wrong: 0, trace, passes: true, ..found });
        }
        Ok(found)
    }

    /// The temperature falls by the same factor with every one of so many moves; every rung is hotter than the one below.
    fn heat(&self, number: u64, moves: u64, rung: usize) -> Heat {
        let Settings { temperature: [first, last], active, rewire, ladder, guided, .. } = *self.settings;
        let lowest = first * (last / first).powf(number as f64 / moves as f64);
        let temperature = lowest * ladder.powi(rung as i32);
        Heat { temperature, active, rewire, guided }
    }

    /// True if the checks of training pass, and all protocols that ask for nothing unusual; every number stands for other
    /// boards.
    fn passes(&self, model: &Model, teacher: &dyn Teacher, number: u64) -> Result<bool, TaskError> {
        let automaton = model.harden();
        if !teacher.passes(&automaton, number)? {
            return Ok(false);
        }
        let seed = Random::new(self.seed, Purpose::Check, u64::MAX - number).word();
        for protocol in self.protocols() {
            if evaluate::score(&automaton, self.loaded, protocol, seed)?.wrong > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The protocols without damage, with as many cells firing as in training.
    fn protocols(&self) -> impl Iterator<Item = &evaluate::Protocol> {
        let experiment = &self.loaded.experiment;
        let rate = experiment.automaton.fire_rate;
        experiment.protocols.iter().filter(move |p| p.damage.is_none() && p.fire_rate == rate)
    }

    /// The boards of a try, drawn for the given time.
    fn boards(&self, time: u64) -> Result<Vec<Boards>, TaskError> {
        let automaton = &self.loaded.experiment.automaton;
        let mut random = Random::new(self.seed, Purpose::Search, time);
        let lesson = |&grid| {
            let lesson = self.lesson(grid, self.settings.boards, self.settings.stay, &mut random)?;
            Ok(Boards::new(&lesson.task(automaton.boundary, self.settings.stay))?)
        };
        self.grids().iter().map(lesson).collect()
    }

    /// Heights and widths of the boards.
    fn grids(&self) -> &[[usize; 2]] {
        match &self.settings.grids[..] {
            [] => std::slice::from_ref(&self.loaded.experiment.automaton.grid),
            grids => grids,
        }
    }

    /// Boards of a size, all alike if they start alike.
    fn lesson(
        &self,
        [height, width]: [usize; 2],
        boards: usize,
        stay: usize,
        random: &mut Random,
    ) -> Result<Lesson, TaskError> {
        let experiment = &self.loaded.experiment;
        let automaton = &experiment.automaton;
        let boards = if experiment.start.is_fixed() { 1 } else { boards };
        let mut start = Grid::new(boards, height, width, automaton.channels)?;
        experiment.start.fill(&mut start, random)?;
        let target = self.loaded.target.boards(&start, automaton.boundary, automaton.steps)?;
        let mut fires = Vec::new();
        if let Some(rate) = automaton.fire_rate {
            fires = vec![vec![0; start.words_per_sample()]; automaton.steps + stay];
            for mask in &mut fires {
                fill_mask(mask, start.cells(), rate, random);
            }
        }
        Ok(Lesson { start, target, steps: automaton.steps, fires })
    }
}

/// The numbers 1, 1, 2, 1, 1, 2, 4, 1, ..., counted from 1: a power of two ends every block of all that was before, twice.
fn luby(n: u64) -> u64 {
    let block = (n + 1).next_power_of_two();
    if n + 1 == block { block / 2 } else { luby(n + 1 - block / 2) }
}

/// Exchanges the rungs of baths that are next to each other on the ladder, with the chance that keeps each temperature in
/// equilibrium: always if the hotter bath has fewer wrong bits.
fn exchange(rungs: &mut [usize], wrong: &[u32], temperature: impl Fn(usize) -> f64, random: &mut Random) {
    for lower in 0..rungs.len().saturating_sub(1) {
        let on = |rung: usize| rungs.iter().position(|&r| r == rung);
        let (Some(cold), Some(hot)) = (on(lower), on(lower + 1)) else { return };
        let colder = 1.0 / temperature(lower) - 1.0 / temperature(lower + 1);
        let gain = (f64::from(wrong[cold]) - f64::from(wrong[hot])) * colder;
        if f64::from(random.uniform()) < gain.exp() {
            rungs.swap(cold, hot);
        }
    }
}

/// Logits that choose a function.
fn one_hot(logits: &mut [f32], gate: Gate, margin: f32) {
    logits.fill(0.0);
    logits[usize::from(gate.index())] = margin;
}

#[cfg(test)]
mod tests;
