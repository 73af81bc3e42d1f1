//! Properties that one unrolling decides: those with a last step, and those that hold from all states.

use super::unrolling::{Query, Unrolling};
use super::{Answer, CheckError, Context, Method, Proof, Property};
use crate::stop::Stopped;

/// Decides whether all runs from all states are right at step `from`, and therefore at all later steps.
pub(super) fn stays(
    context: &Context<'_>,
    from: usize,
    last_wrong: Option<usize>,
) -> Result<Answer, CheckError> {
    let mut query = Query::new(context, Unrolling::from_start(context.model, from, context.stop)?);
    if query.can_be_wrong(from)? {
        return Ok(Answer::Refuted(query.counterexample(from)?));
    }
    let least = least(last_wrong, from, |step| query.can_be_wrong(step));
    Ok(proved(least, Method::AllStates, &query))
}

/// The most conflicts of the solver in the search for the least step.
const LEAST_CONFLICTS: u64 = 10_000;

/// Returns the proof that all runs are right from a step on, at an earlier step if the solver shows that soon.
pub(super) fn settled(context: &Context<'_>, step: usize, last_wrong: Option<usize>) -> Answer {
    let model = context.model;
    let reaches = matches!(model.property, Property::Reaches { .. });
    let is_small = !model.is_async && model.check_memory(step.max(1), context.limits).is_ok();
    let Ok(unrolling) = Unrolling::from_start(model, step, context.stop) else {
        let (steps, method) = (step, Method::Settling);
        return Answer::Proved(Proof { steps, is_least: false, method, gates: 0 });
    };
    let mut query = Query::limited(context, unrolling, LEAST_CONFLICTS);
    let least = least(last_wrong.filter(|_| reaches || model.is_from_any()), step, |step| {
        match (is_small, reaches) {
            (false, _) => Err(Stopped),
            // States at the target at one step may leave it, unless all states are start states.
            (true, false) if !model.is_from_any() => Err(Stopped),
            (true, false) => query.can_be_wrong(step),
            (true, true) => query.can_be_wrong_until(step),
        }
    });
    let method = if least.0 == step { Method::Settling } else { Method::AllStates };
    proved(least, if reaches && least.0 < step { Method::Unrolling } else { method }, &query)
}

/// Decides whether all runs are right at a step up to `within`.
pub(super) fn reaches(
    context: &Context<'_>,
    within: usize,
    last_wrong: Option<usize>,
) -> Result<Answer, CheckError> {
    let mut query = Query::new(context, Unrolling::from_start(context.model, within, context.stop)?);
    // Most rules that reach the target are right at the last step, which is a simpler query.
    if query.can_be_wrong(within)? && query.can_be_wrong_until(within)? {
        return Ok(Answer::Refuted(query.counterexample(within)?));
    }
    let least = least(last_wrong, within, |step| query.can_be_wrong_until(step));
    Ok(proved(least, Method::Unrolling, &query))
}

/// Returns the least step at which no run can be wrong, given that none can at `end` and that one is at `last_wrong`, and
/// whether it is known to be the least. Runs that can be wrong at a step can be wrong at all earlier ones.
pub(super) fn least(
    last_wrong: Option<usize>,
    end: usize,
    mut can_be_wrong: impl FnMut(usize) -> Result<bool, Stopped>,
) -> (usize, bool) {
    let (mut low, mut high) = (last_wrong.map_or(0, |step| step + 1).min(end), end);
    while low < high {
        let middle = low.midpoint(high);
        match can_be_wrong(middle) {
            Ok(true) => low = middle + 1,
            Ok(false) => high = middle,
            Err(Stopped) => return (high, false),
        }
    }
    (high, true)
}

pub(super) fn proved((steps, is_least): (usize, bool), method: Method, query: &Query<'_>) -> Answer {
    Answer::Proved(Proof { steps, is_least, method, gates: query.unrolling.xag.gates() })
}
