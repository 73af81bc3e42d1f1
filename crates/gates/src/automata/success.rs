//! What success asks for besides being right at one step: that a picture or pattern stays, heals, grows in any order of firing
//! and anywhere. The `[success]` table of an experiment.
//!
//! Each property is judged on the hard automaton. From a fixed start state a run is followed until its state repeats, which
//! proves what holds forever; holes are tried at every position. From random start states the model checker decides, or, where
//! it does not within its limits, samples are simulated. [`report`] says which.

use std::time::Duration;

use gatework_logic::check::{self, Answer, Limits, Order, Property, Question};
use gatework_logic::{Automaton, Grid, Simulator, Stop};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::evaluate;
use super::experiment::{AutomatonExperiment, Protocol};
use super::states::{Phase, Start, Target};
use gatework_train::experiment::{Problem, problem};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// The properties that success asks for: the `[success]` table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Success {
    /// Right at every step from that of the experiment on.
    #[serde(skip_serializing_if = "is_false")]
    pub stay: bool,
    /// Right again, for good, after a hole. Includes `stay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heal: Option<Heal>,
    /// Right if only some of the cells update in a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asynchronous: Option<Asynchronous>,
    /// Right on other grids, and wherever the seed lies.
    #[serde(skip_serializing_if = "is_false")]
    pub anywhere: bool,
}

/// A square hole: its cells are set to 0 in all channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heal {
    /// Rows and columns of the hole.
    pub size: usize,
    /// Steps after which the grid is right again; those of the automaton, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<usize>,
}

impl Heal {
    /// Returns the side of a hole if none is given: 5, or less in a small grid.
    pub fn default_size([height, width]: [usize; 2]) -> usize {
        HOLE.min(height.min(width).saturating_sub(1)).max(1)
    }
}

/// Updates of random cells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asynchronous {
    /// Fraction of the cells that update in a step.
    pub fire_rate: f32,
    /// Steps after which the grid is right; four times those of the automaton, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// The hole that is reported if an experiment does not ask for one.
const HOLE: usize = 5;

/// Steps after which a run that has not repeated is not followed further.
const MOST_STEPS: usize = 1000;

/// States of a cycle in which holes are tried.
const MOST_PHASES: usize = 8;

/// Bits of the grids that are simulated at a time.
const BITS_AT_ONCE: usize = 1 << 26;

/// Cell updates up to which holes are tried if the experiment does not ask for it.
const CHEAP_UPDATES: f64 = 2e9;

/// Orders of firing, and start states that are not all, of which samples are simulated.
const SAMPLES: usize = 10;

/// Steps or sizes of `[success]` may not be above this.
const MOST: usize = 1 << 16;

/// The time that the model checker has for a property that is asked for, and for one that is not.
const PROOF_SECONDS: [f64; 2] = [20.0, 3.0];

impl Finding {
    /// Describes the finding as a sentence without its end.
    pub fn sentence(&self) -> String {
        let claim = match (self.property, self.holds) {
            ("stay", true) => "Stays",
            ("stay", false) => "Does not stay",
            ("heal", true) => "Heals",
            ("heal", false) => "Does not heal",
            ("asynchronous", true) => "Grows in any order of firing",
            ("asynchronous", false) => "Does not grow in every order of firing",
            (_, true) => "Grows anywhere",
            (_, false) => "Does not grow anywhere",
        };
        format!("{claim}: {}", self.text)
    }
}

impl Success {
    /// Returns true if nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Success::default()
    }

    /// Whether the target has to stay.
    pub fn stays(&self) -> bool {
        self.stay || self.heal.is_some()
    }

    /// Checks that the properties fit a target and a grid.
    pub(super) fn check(&self, loaded: &AutomatonExperiment) -> Result<(), Problem> {
        if self.is_empty() {
            return Ok(());
        }
        if matches!(loaded.target, Target::Rule(_) | Target::Pairs(_)) {
            let message = "success: a rule has no state to stay at; [success] is for pictures and patterns";
            return problem(&["success"], message);
        }
        let settings = &loaded.experiment.automaton;
        if let Some(Heal { size, within }) = self.heal {
            let least = settings.grid[0].min(settings.grid[1]);
            if size == 0 || size >= least {
                let message = format!(
                    "success.heal: size is {size}, but a hole in a grid with sides of {} and {} has 1 to {} rows",
                    settings.grid[0],
                    settings.grid[1],
                    least.saturating_sub(1)
                );
                return problem(&["success", "heal"], message);
            }
            check_within(within, "heal")?;
            if settings.fire_rate.is_some() {
                let message = "success.heal is for cells that all update in every step; remove automaton.fire_rate, or \
                               describe the damage in an [[evaluate]] table";
                return problem(&["success", "heal"], message);
            }
        }
        if let Some(Asynchronous { fire_rate, within }) = self.asynchronous {
            if !(fire_rate > 0.0 && fire_rate <= 1.0) {
                let message =
                    format!("success.asynchronous: fire_rate is {fire_rate}, not above 0 and at most 1");
                return problem(&["success", "asynchronous"], message);
            }
            check_within(within, "asynchronous")?;
        }
        Ok(())
    }
}

fn check_within(within: Option<usize>, key: &str) -> Result<(), Problem> {
    match within {
        Some(within) if within == 0 || within > MOST => {
            problem(&["success", key], format!("success.{key}: within is {within}, not 1 to {MOST}"))
        }
        _ => Ok(()),
    }
}

/// What is known of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// `stay`, `heal`, `asynchronous` or `anywhere`.
    pub property: &'static str,
    /// Whether the experiment asks for it.
    pub asked: bool,
    /// Whether nothing contradicts it.
    pub holds: bool,
    /// Whether it is certain: a run that contradicts, or a proof. What holds and is not proved was seen in simulations.
    pub proved: bool,
    /// What was found, as a sentence without its end.
    pub text: String,
}

/// Returns whether an automaton has every property that its experiment asks for. `seed` selects the samples.
pub fn holds(loaded: &AutomatonExperiment, automaton: &Automaton, seed: u64) -> Result<bool, TaskError> {
    let success = &loaded.experiment.success;
    if success.is_empty() {
        return Ok(true);
    }
    let judge = Judge { loaded, automaton, seed };
    Ok((!success.stays() || judge.stay()?.holds)
        && (!success.anywhere || judge.anywhere()?.holds)
        && (success.heal.is_none_or(|heal| judge.heal(heal).is_ok_and(|found| found.holds)))
        && (success.asynchronous.is_none_or(|how| judge.asynchronous(how).is_ok_and(|found| found.holds))))
}

/// Returns what is known of the properties of an automaton: those that its experiment asks for, and those that are judged
/// quickly. Empty for a rule.
pub fn report(
    loaded: &AutomatonExperiment,
    automaton: &Automaton,
    seed: u64,
) -> Result<Vec<Finding>, TaskError> {
    if matches!(loaded.target, Target::Rule(_) | Target::Pairs(_)) {
        return Ok(Vec::new());
    }
    let (success, judge) = (&loaded.experiment.success, Judge { loaded, automaton, seed });
    let mut found = vec![judge.stay()?];
    let hole = judge.cheap_hole()?.filter(|_| found[0].holds && found[0].proved);
    if let Some(heal) = success.heal.or(hole) {
        let mut healing = judge.heal(heal)?;
        let steps = judge.steps();
        // Damage leads to one of all states.
        let is_from_all = loaded.experiment.start == Start::Random && found[0].holds && found[0].proved;
        if is_from_all && healing.holds && heal.within.is_none_or(|within| within >= steps) {
            healing.proved = true;
            healing.text = format!("right within {steps} steps after any damage, proved from all states");
        }
        found.push(healing);
    }
    if let Some(how) = success.asynchronous {
        found.push(judge.asynchronous(how)?);
    }
    if success.anywhere {
        found.push(judge.anywhere()?);
    }
    Ok(found)
}

/// How a batch of runs goes on from some state, without damage.
enum Course {
    /// Right in every state until all of them repeat after this many steps.
    Repeats(usize),
    /// Right in every state that was looked at.
    Open,
    /// Wrong bits, and the number of steps before.
    Wrong(usize, usize),
}

struct Judge<'a> {
    loaded: &'a AutomatonExperiment,
    automaton: &'a Automaton,
    seed: u64,
}

impl Judge<'_> {
    fn steps(&self) -> usize {
        self.loaded.experiment.automaton.steps
    }

    /// Whether all runs are known: there is a list of start states, and all cells update.
    fn is_deterministic(&self) -> bool {
        let experiment = &self.loaded.experiment;
        experiment.start != Start::Random && experiment.automaton.fire_rate.is_none()
    }

    fn simulator(&self) -> Result<Simulator, TaskError> {
        Ok(Simulator::new(self.automaton, self.loaded.target.channels())?)
    }

    /// The start states: all of a list, or random ones.
    fn start(&self, [height, width]: [usize; 2], samples: usize) -> Result<Grid, TaskError> {
        let start = &self.loaded.experiment.start;
        let samples = if start.is_fixed() { 1 } else { start.count().unwrap_or(samples) };
        let mut grid = Grid::new(samples, height, width, self.automaton.channels)?;
        start.fill_in_order(&mut grid, &mut Random::new(self.seed, Purpose::Check, 1 << 40))?;
        Ok(grid)
    }

    fn wrong(&self, grid: &Grid, target: &mut Grid) -> Result<usize, TaskError> {
        let channels = self.loaded.target.channels();
        if let Target::Pattern { phase: Phase::Any, .. } = &self.loaded.target {
            let before = std::mem::replace(target, Grid::new(1, 1, 1, 1)?);
            *target = self.loaded.target.aligned(grid, self.automaton.boundary, before);
        }
        Ok(grid.difference(target, channels)?)
    }

    /// Follows a batch that is to be right now and at all later steps, until it repeats or for `most` steps.
    fn follow(
        &self,
        simulator: &mut Simulator,
        grid: &mut Grid,
        target: &mut Grid,
        most: usize,
    ) -> Result<Course, TaskError> {
        // Brent's algorithm: the state is compared with one whose step is a power of two.
        let (mut anchor, mut since, mut power) = (grid.clone(), 0, 1);
        for step in 0..=most {
            let wrong = self.wrong(grid, target)?;
            if wrong > 0 {
                return Ok(Course::Wrong(wrong, step));
            }
            if step > 0 && *grid == anchor {
                return Ok(Course::Repeats(since));
            }
            if since == power {
                (anchor, since, power) = (grid.clone(), 0, 2 * power);
            }
            simulator.step(grid)?;
            since += 1;
        }
        Ok(Course::Open)
    }

    fn finding(&self, property: &'static str, holds: bool, proved: bool, text: String) -> Finding {
        let success = &self.loaded.experiment.success;
        let asked = match property {
            "stay" => success.stays(),
            "heal" => success.heal.is_some(),
            "asynchronous" => success.asynchronous.is_some(),
            _ => success.anywhere,
        };
        Finding { property, asked, holds, proved, text }
    }

    fn stay(&self) -> Result<Finding, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let steps = self.steps();
        let finding = |holds, proved, text| Ok(self.finding("stay", holds, proved, text));
        if let Some(fire_rate) = settings.fire_rate {
            let score = self.simulate(settings.grid, 4 * steps, Some(fire_rate), self.checks())?;
            let right = score.wrong == 0 && score.settled.is_some_and(|settled| settled <= steps);
            let orders = format!("in {} runs with random orders of firing", score.samples);
            return finding(
                right,
                !right,
                match score.settled {
                    _ if right => format!("right at every step from {steps} to {} {orders}", 4 * steps),
                    Some(settled) => {
                        format!("right from step {settled} on {orders}, not from step {steps} on")
                    }
                    None => {
                        format!(
                            "{} of {} bits are wrong at step {} {orders}",
                            score.wrong,
                            score.bits,
                            4 * steps
                        )
                    }
                },
            );
        }
        let mut grid = self.start(settings.grid, self.checks())?;
        let mut target = self.loaded.target.grids(&grid, settings.boundary, steps)?;
        let mut simulator = self.simulator()?;
        for _ in 0..steps {
            simulator.step(&mut grid)?;
        }
        let most = if self.is_deterministic() { MOST_STEPS } else { (3 * steps).max(100) };
        let bits = grid.samples() * grid.cells() * self.loaded.target.channels();
        match self.follow(&mut simulator, &mut grid, &mut target, most)? {
            Course::Wrong(wrong, 0) => {
                finding(false, true, format!("{wrong} of {bits} bits are wrong at step {steps}"))
            }
            Course::Wrong(wrong, 1) => finding(
                false,
                true,
                format!("right at step {steps} only, {wrong} of {bits} bits are wrong one step later"),
            ),
            Course::Wrong(wrong, later) => finding(
                false,
                true,
                format!(
                    "right from step {steps} to {} only, {wrong} of {bits} bits are wrong at step {}",
                    steps + later - 1,
                    steps + later
                ),
            ),
            Course::Repeats(period) if self.is_deterministic() => finding(
                true,
                true,
                format!("right at every step from {steps} on, proved ({})", repeats(period)),
            ),
            _ => {
                let simulated = format!(
                    "right at every step from {steps} to {} of {} runs",
                    steps + most,
                    grid.samples()
                );
                if self.is_deterministic() {
                    return finding(true, false, format!("{simulated}; the state did not repeat"));
                }
                self.proof(simulated)
            }
        }
    }

    /// Asks the model checker whether runs from all states stay. `simulated` is what is known without an answer.
    fn proof(&self, simulated: String) -> Result<Finding, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let finding = |holds, proved, text| Ok(self.finding("stay", holds, proved, text));
        let Some(target) = self.target_of_proof()? else { return finding(true, false, simulated) };
        let question = Question {
            automaton: self.automaton.clone(),
            target,
            start: check::Start::Any,
            property: Property::Stays { from: settings.steps },
            order: Order::Synchronous,
        };
        let [asked, other] = PROOF_SECONDS;
        let seconds = if self.loaded.experiment.success.stays() { asked } else { other };
        let stop = Stop::after(Duration::from_secs_f64(seconds));
        let limits = Limits { memory: 1 << 30, ..Limits::default() };
        match check::check_until(&question, &limits, &stop, &|_| {}) {
            Ok(Answer::Proved(proof)) => finding(
                true,
                true,
                format!("right at every step from {} on, proved from all states", proof.steps),
            ),
            Ok(Answer::Refuted(_)) if self.is_at_any_phase() => finding(true, false, simulated),
            Ok(Answer::Refuted(found)) => finding(
                false,
                true,
                format!(
                    "{simulated}, but there is a start state from which {} bits are wrong at step {}",
                    found.wrong, found.steps
                ),
            ),
            _ => finding(true, false, format!("{simulated}; not proved within {seconds} s")),
        }
    }

    /// Whether several states count as right.
    fn is_at_any_phase(&self) -> bool {
        matches!(self.loaded.target, Target::Pattern { phase: Phase::Any, .. })
    }

    /// The state that all runs are to end in: the target. Of a pattern that may begin anywhere, the state in which the run from
    /// zeros ends, or `None` if that is not right: many such patterns are counted from the edge, and always end there.
    fn target_of_proof(&self) -> Result<Option<Grid>, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let [height, width] = settings.grid;
        let mut grid = Grid::new(1, height, width, self.automaton.channels)?;
        let target = self.loaded.target.grids(&grid, settings.boundary, settings.steps)?;
        if !self.is_at_any_phase() {
            return Ok(Some(target));
        }
        let mut simulator = self.simulator()?;
        for _ in 0..settings.steps {
            simulator.step(&mut grid)?;
        }
        let aligned = self.loaded.target.aligned(&grid, settings.boundary, target);
        let is_right = grid.difference(&aligned, self.loaded.target.channels())? == 0;
        Ok(is_right.then_some(aligned))
    }

    /// The hole of a report if the experiment asks for none, and it is tried quickly.
    fn cheap_hole(&self) -> Result<Option<Heal>, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let cells = settings.grid[0] * settings.grid[1];
        let gates = self.simulator()?.gates();
        let updates = (cells * cells) as f64 * settings.steps as f64 * gates as f64;
        let has_room = settings.grid[0].min(settings.grid[1]) > 1;
        let cheap = updates / 64.0 <= CHEAP_UPDATES && has_room && self.is_deterministic();
        Ok(cheap.then(|| Heal { size: Heal::default_size(settings.grid), within: None }))
    }

    fn heal(&self, Heal { size, within }: Heal) -> Result<Finding, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let (steps, within) = (self.steps(), within.unwrap_or(settings.steps));
        let mut grid = self.start(settings.grid, self.checks())?;
        let mut target = self.loaded.target.grids(&grid, settings.boundary, steps)?;
        let mut simulator = self.simulator()?;
        for _ in 0..steps {
            simulator.step(&mut grid)?;
        }
        let mut states = vec![grid.clone()];
        let most = if self.is_deterministic() { MOST_STEPS } else { 0 };
        let course = self.follow(&mut simulator, &mut grid, &mut target, most)?;
        // The run has reached its cycle; the state before may not be in it.
        let mut is_proved = false;
        if let Course::Repeats(period) = course {
            let mut cycle = Vec::new();
            for _ in 0..period.min(MOST_PHASES) {
                cycle.push(grid.clone());
                simulator.step(&mut grid)?;
            }
            is_proved = period <= MOST_PHASES && cycle.contains(&states[0]);
            states.extend(cycle);
            states.dedup();
            states.truncate(MOST_PHASES);
        }
        let mut slowest = 0;
        let hole = format!("holes of {size}x{size} cells");
        for state in &states {
            let holes = self.holes(state, size);
            let results: Vec<Healing> = holes
                .par_chunks((BITS_AT_ONCE / (state.cells() * state.channels())).max(1))
                .map(|holes| self.healing(state, holes, size, within))
                .collect::<Result<_, _>>()?;
            for result in results {
                match result {
                    Healing::Healed { steps, repeats } => {
                        slowest = slowest.max(steps);
                        is_proved &= repeats;
                    }
                    Healing::Wrong { at: [y, x], wrong, steps } => {
                        let text = format!(
                            "after a hole of {size}x{size} cells from row {}, column {}, {wrong} bits are wrong {steps} steps later",
                            y + 1,
                            x + 1
                        );
                        return Ok(self.finding("heal", false, true, text));
                    }
                }
            }
        }
        let count = self.holes(&states[0], size).len();
        let text = if is_proved {
            format!("{hole} close within {slowest} steps, proved at all {count} positions")
        } else {
            format!("{hole} close within {slowest} steps, in {count} simulations")
        };
        Ok(self.finding("heal", true, is_proved, text))
    }

    /// The samples and first cells of holes: every position in a fixed state, one in each of several states.
    fn holes(&self, state: &Grid, size: usize) -> Vec<[usize; 3]> {
        let (height, width) = (state.height(), state.width());
        if self.is_deterministic() {
            let positions = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
            let samples = 0..state.samples();
            return samples.flat_map(|sample| positions.clone().map(move |(y, x)| [sample, y, x])).collect();
        }
        let mut random = Random::new(self.seed, Purpose::Check, 1 << 41 | size as u64);
        (0..state.samples()).map(|sample| [sample, random.below(height), random.below(width)]).collect()
    }

    /// Digs holes into copies of a state, and follows them.
    fn healing(
        &self,
        state: &Grid,
        holes: &[[usize; 3]],
        size: usize,
        within: usize,
    ) -> Result<Healing, TaskError> {
        let (height, width, words) = (state.height(), state.width(), state.words_per_sample());
        let boundary = self.automaton.boundary;
        let mut grid = Grid::new(holes.len(), height, width, state.channels())?;
        for channel in 0..state.channels() {
            let from = state.plane(channel);
            let copies = grid.plane_mut(channel).chunks_exact_mut(words);
            for (to, &[sample, ..]) in copies.zip(holes) {
                to.copy_from_slice(&from[sample * words..][..words]);
            }
        }
        let target = self.loaded.target.grids(&grid, boundary, self.steps())?;
        for (copy, &[_, y, x]) in holes.iter().enumerate() {
            for (row, column) in
                (y..height.min(y + size)).flat_map(|y| (x..width.min(x + size)).map(move |x| (y, x)))
            {
                (0..state.channels()).for_each(|channel| grid.set(copy, channel, row, column, false));
            }
        }
        let (mut simulator, mut target) = (self.simulator()?, target);
        let mut right_since = None;
        for step in 1..=within {
            simulator.step(&mut grid)?;
            let right = self.wrong(&grid, &mut target)? == 0;
            right_since = if right { right_since.or(Some(step)) } else { None };
        }
        let begin = grid.clone();
        match self.follow(&mut simulator, &mut grid, &mut target, within.max(100))? {
            Course::Wrong(_, later) => {
                // The first grid with a wrong bit is shown.
                let mut again = begin;
                for _ in 0..later {
                    simulator.step(&mut again)?;
                }
                self.wrong(&again, &mut target)?;
                let channels = self.loaded.target.channels();
                let wrong_of = |copy: usize| -> usize {
                    let bits =
                        |plane: &Grid, channel: usize| plane.plane(channel)[copy * words..][..words].to_vec();
                    let differ = |channel| {
                        let (a, b) = (bits(&again, channel), bits(&target, channel));
                        a.iter().zip(&b).map(|(a, b)| (a ^ b).count_ones() as usize).sum::<usize>()
                    };
                    (0..channels).map(differ).sum()
                };
                let copy = (0..holes.len()).find(|&copy| wrong_of(copy) > 0).unwrap_or(0);
                let [_, y, x] = holes[copy];
                Ok(Healing::Wrong { at: [y, x], wrong: wrong_of(copy), steps: within + later })
            }
            course => Ok(Healing::Healed {
                steps: right_since.unwrap_or(within),
                repeats: matches!(course, Course::Repeats(_)),
            }),
        }
    }

    fn asynchronous(&self, Asynchronous { fire_rate, within }: Asynchronous) -> Result<Finding, TaskError> {
        let within = within.unwrap_or(4 * self.steps());
        let stays = self.loaded.experiment.success.stays();
        let last = if stays { 2 * within } else { within };
        let grid = self.loaded.experiment.automaton.grid;
        let score = self.simulate(grid, last, Some(fire_rate), SAMPLES)?;
        let right = score.wrong == 0 && score.settled.is_some_and(|settled| settled <= within);
        let orders = format!("if {:.0} % of the cells update, in {} runs", 100.0 * fire_rate, score.samples);
        let text = match score.settled {
            Some(settled) if right => format!("right from step {settled} to {last} {orders}"),
            Some(settled) => format!("right from step {settled} on only {orders}"),
            None => format!("{} of {} bits are wrong at step {last} {orders}", score.wrong, score.bits),
        };
        Ok(self.finding("asynchronous", right, !right, text))
    }

    fn anywhere(&self) -> Result<Finding, TaskError> {
        let settings = &self.loaded.experiment.automaton;
        let mut sizes = Vec::new();
        for (grid, shifts) in self.other_grids() {
            sizes.push(format!("{}x{}", grid[0], grid[1]));
            let ratio = |axis: usize| grid[axis].div_ceil(settings.grid[axis]);
            // A picture has its size on any grid; a pattern fills the grid.
            let is_picture = matches!(self.loaded.target, Target::Picture(_));
            let steps = if is_picture { self.steps() } else { self.steps() * ratio(0).max(ratio(1)) };
            let wrong = if settings.fire_rate.is_some() {
                self.simulate(grid, steps, settings.fire_rate, SAMPLES)?.wrong
            } else {
                self.wrong_after(grid, steps, &shifts)?
            };
            if wrong > 0 {
                let text = format!(
                    "{wrong} bits are wrong at step {steps} on a grid of {}x{} cells",
                    grid[0], grid[1]
                );
                return Ok(self.finding("anywhere", false, true, text));
            }
        }
        let places = if self.loaded.experiment.start == Start::Seed {
            ", with the seed in the middle and near the corners"
        } else {
            ""
        };
        let text = format!("right on grids of {} cells{places}", sizes.join(" and "));
        Ok(self.finding("anywhere", true, false, text))
    }

    /// Other grids, and by how much the seed is shifted from the middle.
    fn other_grids(&self) -> Vec<([usize; 2], Vec<[isize; 2]>)> {
        let [height, width] = self.loaded.experiment.automaton.grid;
        let middle = vec![[0, 0]];
        match &self.loaded.target {
            // An even number of further rows, so that the picture stays around the seed.
            Target::Picture(_) if self.loaded.experiment.start == Start::Seed => {
                let [dy, dx] = [height as isize, width as isize];
                let corners = vec![[0, 0], [-dy, -dx], [-dy, dx], [dy, -dx], [dy, dx]];
                vec![([height + 2, width + 6], middle), ([3 * height, 3 * width], corners)]
            }
            Target::Pattern { tile, .. } => {
                let [rows, columns] = tile.size();
                vec![
                    ([height + 2 * rows, width + 4 * columns], middle.clone()),
                    ([3 * height, 3 * width], middle),
                ]
            }
            _ => vec![([height + 2, width + 6], middle.clone()), ([3 * height, 3 * width], middle)],
        }
    }

    /// Returns the wrong bits after some steps on a grid, with start state and target shifted.
    fn wrong_after(&self, size: [usize; 2], steps: usize, shifts: &[[isize; 2]]) -> Result<usize, TaskError> {
        let start = self.start(size, SAMPLES)?;
        let target = self.loaded.target.grids(&start, self.automaton.boundary, steps)?;
        let mut simulator = self.simulator()?;
        let mut all = 0;
        for &shift in shifts {
            let (mut grid, mut target) = (shifted(&start, shift)?, shifted(&target, shift)?);
            for _ in 0..steps {
                simulator.step(&mut grid)?;
            }
            all += self.wrong(&grid, &mut target)?;
        }
        Ok(all)
    }

    fn checks(&self) -> usize {
        self.loaded.experiment.training.checks
    }

    fn simulate(
        &self,
        grid: [usize; 2],
        steps: usize,
        fire_rate: Option<f32>,
        samples: usize,
    ) -> Result<evaluate::Score, TaskError> {
        let protocol = Protocol { samples, fire_rate, ..Protocol::new("success", grid, steps) };
        Ok(evaluate::score(self.automaton, self.loaded, &protocol, self.seed)?)
    }
}

/// What becomes of holes.
enum Healing {
    /// All are right again after some steps; whether the states repeat.
    Healed { steps: usize, repeats: bool },
    /// One is wrong after some steps.
    Wrong { at: [usize; 2], wrong: usize, steps: usize },
}

fn repeats(period: usize) -> String {
    match period {
        1 => "the state is a fixed point".into(),
        period => format!("the state repeats every {period} steps"),
    }
}

/// Returns a grid whose cells are shifted by rows and columns, around the edge.
fn shifted(grid: &Grid, [rows, columns]: [isize; 2]) -> Result<Grid, TaskError> {
    let (height, width) = (grid.height(), grid.width());
    let mut moved = Grid::new(grid.samples(), height, width, grid.channels())?;
    let to = |at: usize, by: isize, size: usize| (at as isize + by).rem_euclid(size as isize) as usize;
    for sample in 0..grid.samples() {
        for channel in 0..grid.channels() {
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                if grid.get(sample, channel, y, x) {
                    moved.set(sample, channel, to(y, rows, height), to(x, columns, width), true);
                }
            }
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::choose;
    use crate::automata::construct;
    use gatework_train::experiment::Source;

    /// A picture of 7x9 cells that grows from a seed, with more settings.
    fn picture(settings: &str) -> AutomatonExperiment {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("arrow.txt");
        std::fs::write(
            &path,
            "....#....\n.....#...\n......#..\n########.\n......#..\n.....#...\n....#....\n",
        )
        .unwrap();
        let text = choose::picture(&path).unwrap().loaded.experiment.to_toml() + settings;
        AutomatonExperiment::from_source(&Source::new(text, "arrow.toml", folder.path())).unwrap()
    }

    /// The automaton that counts coordinates.
    fn made(loaded: &AutomatonExperiment) -> Automaton {
        let (experiment, target) = (&loaded.experiment, &loaded.target);
        let (boundary, channels) = (experiment.automaton.boundary, experiment.automaton.channels);
        let axes = target.axes(&experiment.start, boundary, experiment.automaton.grid).unwrap();
        construct::automaton(&axes, channels, 1, boundary, |c, y, x| target.bit(c, y, x)).unwrap()
    }

    const ALL: &str = "\n[success]\nstay = true\nheal = { size = 3 }\nasynchronous = { fire_rate = 0.5, within = 60 }\n\
                       anywhere = true\n";

    #[test]
    fn an_automaton_that_counts_coordinates_has_all_properties() {
        let loaded = picture(ALL);
        let automaton = made(&loaded);
        let found = report(&loaded, &automaton, 1).unwrap();
        let names: Vec<&str> = found.iter().map(|finding| finding.property).collect();
        assert_eq!(names, ["stay", "heal", "asynchronous", "anywhere"]);
        assert!(found.iter().all(|finding| finding.asked && finding.holds), "{found:?}");
        assert!(
            found[0].proved && found[0].text.ends_with("proved (the state is a fixed point)"),
            "{found:?}"
        );
        assert!(found[1].proved && found[1].text.ends_with("proved at all 63 positions"), "{found:?}");
        assert!(holds(&loaded, &automaton, 1).unwrap());
    }

    #[test]
    fn a_clock_stays_and_does_not_heal() {
        let loaded = picture("");
        let (automaton, steps) = (made(&loaded), loaded.experiment.automaton.steps);
        let stopped = construct::stopped(&automaton, 1, steps).unwrap();
        let found = report(&loaded, &stopped, 1).unwrap();
        assert!(found[0].holds && found[0].proved && !found[0].asked, "{found:?}");
        assert!(found[1].property == "heal" && !found[1].holds, "{found:?}");
        assert!(found[1].text.contains("after a hole of 5x5 cells from row"), "{found:?}");
        assert!(holds(&loaded, &stopped, 1).unwrap(), "nothing is asked for");
        let asked = picture("\n[success]\nheal = { size = 5 }\n");
        assert!(!holds(&asked, &stopped, 1).unwrap());
    }

    #[test]
    fn a_picture_that_is_not_there_yet_does_not_stay() {
        let mut loaded = picture("\n[success]\nstay = true\n");
        let automaton = made(&loaded);
        loaded.experiment.automaton.steps = 1;
        let found = report(&loaded, &automaton, 1).unwrap();
        assert!(!found[0].holds && found[0].proved, "{found:?}");
        assert!(found[0].text.ends_with("of 63 bits are wrong at step 1"), "{found:?}");
        assert!(!holds(&loaded, &automaton, 1).unwrap());
        assert_eq!(found.len(), 1, "what does not stay is not damaged");
    }

    #[test]
    fn a_pattern_that_may_begin_anywhere_is_proved_where_it_ends() {
        let base = AutomatonExperiment::find("bricks").unwrap().experiment.to_toml();
        let text = base.replace("phase = \"anchored\"", "phase = \"any\"") + "\n[success]\nstay = true\n";
        let loaded = AutomatonExperiment::from_source(&Source::new(text, "x.toml", ".")).unwrap();
        assert!(matches!(loaded.target, Target::Pattern { phase: Phase::Any, .. }));
        let found = report(&loaded, &made(&loaded), 1).unwrap();
        assert!(found[0].proved && found[0].text.ends_with("on, proved from all states"), "{found:?}");
    }

    #[test]
    fn a_pattern_from_noise_is_proved_from_all_states() {
        let text = "\n[success]\nstay = true\nheal = { size = 4 }\nanywhere = true\n";
        let base = AutomatonExperiment::find("checkerboard").unwrap().experiment.to_toml();
        let loaded = AutomatonExperiment::from_source(&Source::new(base + text, "x.toml", ".")).unwrap();
        let automaton = made(&loaded);
        let found = report(&loaded, &automaton, 1).unwrap();
        assert!(found.iter().all(|finding| finding.holds), "{found:?}");
        assert!(found[..2].iter().all(|finding| finding.proved), "{found:?}");
        assert!(
            found[..2].iter().all(|finding| finding.text.ends_with("proved from all states")),
            "{found:?}"
        );
    }

    #[test]
    fn properties_that_make_no_sense_are_refused() {
        let refused = |name: &str, settings: &str| {
            let base = AutomatonExperiment::find(name).unwrap().experiment.to_toml();
            let source = Source::new(base + settings, "x.toml", ".");
            AutomatonExperiment::from_source(&source).unwrap_err().to_string()
        };
        for (name, settings, part) in [
            ("game-of-life", "\n[success]\nstay = true\n", "[success] is for pictures and patterns"),
            ("lizard", "\n[success]\nheal = { size = 20 }\n", "has 1 to 19 rows"),
            ("lizard", "\n[success]\nheal = { size = 5, within = 0 }\n", "within is 0"),
            ("lizard", "\n[success]\nheals = true\n", "unknown field `heals`"),
            ("lizard", "\n[success]\nasynchronous = { fire_rate = 1.5 }\n", "fire_rate is 1.5"),
            ("checkerboard-async", "\n[success]\nheal = { size = 5 }\n", "remove automaton.fire_rate"),
        ] {
            let message = refused(name, settings);
            assert!(message.contains(part), "{name}: {message}");
        }
    }
}
