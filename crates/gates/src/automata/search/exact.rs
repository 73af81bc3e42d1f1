//! The end of a search that did not succeed: exact repair by a formula, or an automaton that is made from the target.
//!
//! Both are exact. A formula keeps what was learned and memorises the wrong cells only; an automaton that counts coordinates
//! memorises the whole target, but it is right in every later step too. Of a picture, the smaller of both is kept. An automaton
//! that learns a pattern from noise cannot be repaired, so the made one is used after the last run.
//!
//! If the picture has to stay, and the repaired automaton goes on to change it, a clock stops the cells at the last step.

use gatework_logic::Automaton;

use super::{Case, Found, REPAIR_SAMPLES, Search, StopCheck, repair};
use crate::automata::construct::{self, Anchor, Axes};
use crate::automata::experiment::Repair;
use crate::automata::inference;
use crate::automata::model::Model;
use crate::automata::rule::EXHAUSTIVE_BITS;
use crate::automata::states::Target;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Finishing, TaskError};

/// The stage of repair by a formula.
pub const REPAIR: &str = "repair";
/// The stage in which an automaton is made from the target.
pub const CONSTRUCTION: &str = "construction";
/// The stage in which the rule of pairs of grids is inferred.
pub const INFERENCE: &str = "inference";
/// The stage in which a clock is added that stops the cells.
pub const CLOCK: &str = "clock";

/// The number of the first check of a made automaton.
const MADE: u64 = 1 << 61;

impl Search<'_> {
    /// Returns the result without a search, if the target are pairs of grids and a rule of a small family explains them.
    pub(super) fn inferred(&self, model: &Model) -> Result<Option<Found>, TaskError> {
        let Target::Pairs(pairs) = &self.loaded.target else { return Ok(None) };
        let settings = &self.loaded.experiment.automaton;
        if self.settings.repair == Repair::None || settings.fire_rate.is_some() {
            return Ok(None);
        }
        let found = inference::infer(pairs, settings.boundary, settings.steps);
        let automaton = found.and_then(|found| found.rule.automaton_of(settings.channels, settings.boundary));
        let Some(model) = automaton.and_then(|automaton| construct::embed(&automaton, model)) else {
            return Ok(None);
        };
        let is_right = self.passes(&model, MADE)?;
        let stages = vec![self.stage(INFERENCE, 0)];
        let found = Found { model, wrong: 0, moves: 0, trace: vec![(0, 0)], passes: true, stages };
        Ok(is_right.then_some(found))
    }

    /// Applies exact repair to the result of a run where that is possible. Returns `None` if it was stopped.
    pub(super) fn repaired(
        &self,
        found: Found,
        run: u64,
        stop: &StopCheck<'_>,
    ) -> Result<Option<Found>, TaskError> {
        let wrong = f64::from(found.wrong);
        let stopped = || stop(Finishing { stage: REPAIR, hard: wrong, done: 0, total: 0 });
        if !self.is_repairable() {
            return Ok(Some(found));
        }
        let made = match self.settings.repair {
            Repair::Smallest if !self.loaded.target.is_rule() => self.make(&found.model)?,
            _ => None,
        };
        let formula = match self.settings.repair {
            // A formula for most of the picture is larger than a table of it.
            Repair::Smallest if made.is_some() && 2 * u64::from(found.wrong) > self.target_ones()? => None,
            Repair::Smallest | Repair::Formula => self.by_formula(&found, run, &stopped)?,
            Repair::Coordinates | Repair::None => None,
        };
        if stopped() {
            return Ok(None);
        }
        let observed = self.loaded.target.channels();
        let gates = |model: &Model| model.gate_counts(observed).used;
        let made =
            made.filter(|made| formula.as_ref().is_none_or(|(formula, _)| gates(made) < gates(formula)));
        Ok(Some(match (made, formula) {
            (Some(made), _) => self.succeeded(found, made, &[CONSTRUCTION]),
            (None, Some((formula, stages))) => self.succeeded(found, formula, &stages),
            (None, None) => found,
        }))
    }

    /// Whether a formula can repair wrong cells: the start is fixed, or there is one step.
    fn is_repairable(&self) -> bool {
        let experiment = &self.loaded.experiment;
        let applies = experiment.start.has_equal_channels() || experiment.automaton.steps == 1;
        applies && experiment.automaton.fire_rate.is_none()
    }

    /// Number of ones in the target on the grid of training.
    fn target_ones(&self) -> Result<u64, TaskError> {
        let mut random = Random::new(self.seed, Purpose::Search, MADE);
        let case = self.case(self.loaded.experiment.automaton.grid, 1, 0, &mut random)?;
        let channels = 0..case.target.channels();
        Ok(channels.map(|channel| case.target.count_ones(0, channel) as u64).sum())
    }

    /// Replaces the result of all runs by an automaton that is made from the target, where that is possible.
    pub(super) fn made(&self, found: Found, stop: &StopCheck<'_>) -> Result<Found, TaskError> {
        if !matches!(self.settings.repair, Repair::Smallest | Repair::Coordinates) {
            return Ok(found);
        }
        stop(Finishing { stage: CONSTRUCTION, hard: f64::from(found.wrong), done: 0, total: 0 });
        Ok(match self.make(&found.model)? {
            Some(made) => self.succeeded(found, made, &[CONSTRUCTION]),
            None => found,
        })
    }

    fn succeeded(&self, found: Found, model: Model, last: &[&str]) -> Found {
        let mut stages = found.stages;
        stages.extend(last.iter().map(|stage| self.stage(stage, 0)));
        Found { model, wrong: 0, passes: true, stages, ..found }
    }

    /// Returns the model with a formula for its wrong cells, and a clock if it needs one to stay, if that passes every check. With
    /// the stages that were needed.
    fn by_formula(
        &self,
        found: &Found,
        run: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(Model, Vec<&'static str>)>, TaskError> {
        let experiment = &self.loaded.experiment;
        let one_step = experiment.automaton.steps == 1;
        let time = run << 32 | u64::from(u32::MAX);
        let bits = experiment.automaton.channels * gatework_logic::automaton::NEIGHBOURS;
        let repaired = match &self.loaded.target {
            Target::Rule(rule)
                if one_step
                    && bits <= EXHAUSTIVE_BITS
                    && rule.channels() == experiment.automaton.channels =>
            {
                repair::repair_rule(&found.model, rule, stop)?
            }
            _ => {
                let mut random = Random::new(self.seed, Purpose::Search, time);
                let protocols =
                    self.protocols().filter(|protocol| protocol.steps == experiment.automaton.steps);
                let sizes = self.sizes().iter().copied().chain(protocols.map(|protocol| protocol.grid));
                let cases = sizes.map(|size| self.case(size, REPAIR_SAMPLES, 0, &mut random));
                let cases: Vec<Case> = cases.collect::<Result<_, _>>()?;
                repair::repair(&found.model, &cases, &mut random, stop)?
            }
        };
        let Some(model) = repaired else { return Ok(None) };
        let mut stages = if found.wrong > 0 { vec![REPAIR] } else { Vec::new() };
        if self.passes(&model, time)? {
            return Ok(Some((model, stages)));
        }
        // Healing cells count anew, so a clock is not enough for them.
        let success = &experiment.success;
        if !success.stay || success.heal.is_some() || !experiment.start.has_equal_channels() {
            return Ok(None);
        }
        let stopped =
            construct::stopped(&model.harden(), self.loaded.target.channels(), experiment.automaton.steps);
        let Some(model) = stopped.and_then(|automaton| construct::embed(&automaton, &model)) else {
            return Ok(None);
        };
        stages.push(CLOCK);
        Ok(if self.passes(&model, time)? { Some((model, stages)) } else { None })
    }

    /// Makes an automaton from the target, if that is possible and passes every check. The model gives its perception.
    fn make(&self, model: &Model) -> Result<Option<Model>, TaskError> {
        for from_corner in [false, true] {
            let made = self.automaton(from_corner).and_then(|automaton| construct::embed(&automaton, model));
            let Some(made) = made else { continue };
            if self.passes(&made, MADE)? {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }

    /// Makes an automaton from the target. One that counts from the edge can also count from the corner, which is larger and
    /// withstands damage.
    fn automaton(&self, from_corner: bool) -> Option<Automaton> {
        let (experiment, target) = (&self.loaded.experiment, &self.loaded.target);
        let (channels, boundary) = (experiment.automaton.channels, experiment.automaton.boundary);
        if let Target::Rule(rule) = target {
            return (rule.channels() == channels && !from_corner).then(|| rule.automaton(boundary));
        }
        let mut axes = target.axes(&experiment.start, boundary, experiment.automaton.grid)?;
        if from_corner {
            axes = (axes.anchor == Anchor::Edge).then_some(Axes { anchor: Anchor::Corner, ..axes })?;
        }
        let bit = |channel: usize, y: usize, x: usize| target.bit(channel, y, x);
        construct::automaton(&axes, channels, target.channels(), boundary, bit)
    }
}
