//! Properties of all later steps: from all states, by confluence, by k-induction, and lassos that refute them.

use super::bounded::{least, proved};
use super::falsify::Orbit;
use super::unrolling::{Query, Unrolling};
use super::{Answer, CheckError, Context, Counterexample, Limit, Method, Proof};
use crate::grid::Grid;
use crate::simulate::Simulator;
use crate::xag::Literal;

/// The longest period of a lasso that is searched for in each step of runs from some states.
const MAX_PERIOD: usize = 4;
/// The most steps of the undamaged run until it repeats.
const ORBIT_STEPS: usize = 1 << 16;

/// Decides whether all runs from all states are right from some step on.
pub(super) fn attracts_all(context: &Context<'_>, last_wrong: Option<usize>) -> Result<Answer, CheckError> {
    let limit = context.model.most_steps(context.limits);
    let mut query = Query::new(context, Unrolling::from_start(context.model, limit, context.stop)?);
    let mut cycles = Query::new(context, Unrolling::synchronous(context.model, context.stop)?);
    let mut last_wrong = last_wrong;
    let mut step = last_wrong.map_or(0, |step| step + 1).min(limit);
    for period in 1.. {
        if !query.can_be_wrong(step)? {
            let least = least(last_wrong, step, |step| query.can_be_wrong(step));
            return Ok(proved(least, Method::AllStates, &query));
        }
        last_wrong = Some(step);
        // All cells may fire in all steps, in any order of firing.
        cycles.extend(period)?;
        let (changes, wrong) = (cycles.unrolling.changes(0, period), cycles.unrolling.wrong(0));
        if cycles.solve(&[changes.not(), wrong])? {
            let found = cycles.counterexample(0)?;
            return Ok(Answer::Refuted(Counterexample { period: Some(period), ..found }));
        }
        if step == limit {
            return Ok(context.undecided(Limit::Steps));
        }
        if query.is_full() || cycles.is_full() {
            return Ok(context.undecided(Limit::Memory));
        }
        step = (step + 1 + step / 2).min(limit);
    }
    Ok(context.undecided(Limit::Steps))
}

/// Decides whether all runs from some states are right from a step on: a given one, or any.
pub(super) fn stays(context: &Context<'_>, from: Option<usize>) -> Result<Answer, CheckError> {
    let mut search = Search::new(context, from)?;
    for depth in 0.. {
        let step = search.first + depth;
        if step > search.most {
            return Ok(context.undecided(Limit::Steps));
        }
        if search.runs.is_full() || search.free.is_full() {
            return Ok(context.undecided(Limit::Memory));
        }
        if let Some(answer) = search.look_at(step)? {
            return Ok(answer);
        }
    }
    Ok(context.undecided(Limit::Steps))
}

/// The search for a proof or a counterexample, one step after the other.
struct Search<'a> {
    context: Context<'a>,
    /// The step that was asked for, if any.
    from: Option<usize>,
    /// The first step that is looked at.
    first: usize,
    /// The last step that is looked at.
    most: usize,
    /// The runs from the start states.
    runs: Query<'a>,
    /// The runs from all states.
    free: Query<'a>,
    /// The undamaged run in which all cells fire.
    undamaged: Undamaged,
    /// The number of steps in a row, up to the current one, at which all runs are right.
    right: usize,
}

impl<'a> Search<'a> {
    fn new(context: &Context<'a>, from: Option<usize>) -> Result<Search<'a>, CheckError> {
        let first = from.unwrap_or(0);
        let steps = context.model.most_steps(context.limits);
        let most = first.saturating_add(steps);
        Ok(Search {
            context: *context,
            from,
            first,
            most,
            runs: Query::new(context, Unrolling::from_start(context.model, most, context.stop)?),
            free: Query::new(context, Unrolling::from_all(context.model, steps + 1, context.stop)?),
            undamaged: Undamaged::new(context)?,
            right: 0,
        })
    }

    /// Returns the answer if this step gives one.
    fn look_at(&mut self, step: usize) -> Result<Option<Answer>, CheckError> {
        let can_be_wrong = self.runs.can_be_wrong(step)?;
        if can_be_wrong && self.from.is_some() {
            return Ok(Some(Answer::Refuted(self.runs.counterexample(step)?)));
        }
        self.right = if can_be_wrong { 0 } else { self.right + 1 };
        if let Some(answer) = self.confluence(step)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.all_states(step)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.induction(step)? {
            return Ok(Some(answer));
        }
        if can_be_wrong { self.lasso(step) } else { Ok(None) }
    }

    /// Proves that all runs are in one state at this step, from which on all states are right.
    fn confluence(&mut self, step: usize) -> Result<Option<Answer>, CheckError> {
        let is_async = self.context.model.is_async;
        let Some((state, period, right_from)) = self.undamaged.at(step, is_async)? else { return Ok(None) };
        if self.from.is_some() && right_from > step + 1 {
            return Ok(None);
        }
        let differs = self.runs.unrolling.differs(step, state);
        if self.runs.solve(&[differs])? {
            return Ok(None);
        }
        let steps = self.from.unwrap_or(right_from.max(step));
        Ok(Some(self.proved(steps, Method::Confluence { step, period })))
    }

    /// Proves that all runs from all states are right after the steps since the first one.
    fn all_states(&mut self, step: usize) -> Result<Option<Answer>, CheckError> {
        let depth = step - self.first;
        if self.free.can_be_wrong(depth)? {
            return Ok(None);
        }
        // The steps before were found to be right, or were not asked for.
        Ok(Some(self.proved(self.from.unwrap_or(depth), Method::AllStates)))
    }

    /// Proves that the right states up to this step are followed by right states.
    fn induction(&mut self, step: usize) -> Result<Option<Answer>, CheckError> {
        if self.right == 0 {
            return Ok(None);
        }
        self.free.extend(self.right)?;
        let right = (0..self.right).map(|step| self.free.unrolling.wrong(step).not());
        let mut assumptions: Vec<Literal> = right.collect();
        assumptions.push(self.free.unrolling.wrong(self.right));
        if self.free.solve(&assumptions)? {
            return Ok(None);
        }
        let steps = step + 1 - self.right;
        Ok(Some(self.proved(steps, Method::Induction { states: self.right })))
    }

    /// Returns a run with a wrong state that recurs.
    fn lasso(&mut self, step: usize) -> Result<Option<Answer>, CheckError> {
        if self.context.model.is_async {
            return Ok(None);
        }
        for period in 1..=MAX_PERIOD.min(step) {
            let unrolling = &mut self.runs.unrolling;
            let (changes, wrong) = (unrolling.changes(step - period, step), unrolling.wrong(step));
            if self.runs.solve(&[changes.not(), wrong])? {
                let found = self.runs.counterexample(step)?;
                return Ok(Some(Answer::Refuted(Counterexample { period: Some(period), ..found })));
            }
        }
        Ok(None)
    }

    fn proved(&self, steps: usize, method: Method) -> Answer {
        let gates = self.runs.unrolling.xag.gates().max(self.free.unrolling.xag.gates());
        Answer::Proved(Proof { steps, is_least: false, method, gates })
    }
}

/// The undamaged run, step by step.
struct Undamaged {
    simulator: Simulator,
    grid: Grid,
    step: usize,
    /// The run until it repeats, if it does within a limit.
    orbit: Option<Orbit>,
}

impl Undamaged {
    fn new(context: &Context<'_>) -> Result<Undamaged, CheckError> {
        let model = context.model;
        let Some(start) = model.start.grid() else { return Err(CheckError::Inconsistent) };
        let orbit = Orbit::follow(context, start, ORBIT_STEPS)?;
        Ok(Undamaged { simulator: model.simulator()?, grid: start.clone(), step: 0, orbit })
    }

    /// Returns the state at a step, the period with which it repeats, and the first step from which on all states are
    /// right. `None` if wrong states recur, or if the state depends on which cells fire.
    fn at(&mut self, step: usize, is_async: bool) -> Result<Option<(&Grid, usize, usize)>, CheckError> {
        let Some(orbit) = &self.orbit else { return Ok(None) };
        let Some(right_from) = orbit.right_from() else { return Ok(None) };
        // A state that all cells keep is kept in any order of firing.
        if is_async && orbit.period > 1 {
            return Ok(None);
        }
        let step = if is_async { step.max(orbit.steps) } else { step };
        while self.step < step {
            self.simulator.step(&mut self.grid)?;
            self.step += 1;
        }
        Ok(Some((&self.grid, orbit.period, if is_async { 0 } else { right_from })))
    }
}
