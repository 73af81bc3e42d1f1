//! Settling: bits that are the same in all runs from all states, from some step on.
//!
//! ```text
//! known(0) = no bit
//! known(t + l) = known(t), and every bit that has one value after l steps from all states in which known(t) holds
//! ```
//!
//! By induction, the bits of `known(t)` have their values at every step from `t` on. Each step of the argument is a set of SAT
//! queries on the neighbourhood of single bits, so it works on grids and for orders of firing for which the unrolling of
//! the whole run is too large. Rules that grow a pattern from the edge or from settled cells are proved in this way.

use super::unrolling::{Query, Unrolling};
use super::{CheckError, Context};
use crate::prove::sweep::Random;
use crate::xag::Literal;

/// The most windows of steps that one step of the argument looks ahead.
const MAX_LOOKAHEAD: usize = 3;
/// The number of words of random runs that rule out bits before the solver is called.
const RANDOM_WORDS: usize = 4;

/// Returns a step, at most `most`, from which on all runs from all states are right, if settling shows it.
pub(super) fn settle(context: &Context<'_>, most: usize) -> Result<Option<usize>, CheckError> {
    let model = context.model;
    let window = match (model.is_async, model.window) {
        (false, _) => 1,
        (true, Some(window)) => window,
        // A cell that never fires never settles.
        (true, None) => return Ok(None),
    };
    if model.check_memory(window, context.limits).is_err() {
        return Ok(None);
    }
    let mut settling = Settling::new(context);
    let mut step = 0;
    loop {
        context.report("settling", step, 0);
        match settling.is_right() {
            Some(true) => return Ok(Some(step)),
            Some(false) => return Ok(None),
            None => {}
        }
        let mut progress = None;
        for windows in 1..=MAX_LOOKAHEAD {
            let steps = window.saturating_mul(windows);
            if step + steps > most || model.check_memory(steps, context.limits).is_err() {
                break;
            }
            if settling.advance(steps, window)? {
                progress = Some(steps);
                break;
            }
        }
        let Some(steps) = progress else { return Ok(None) };
        step += steps;
    }
}

struct Settling<'a> {
    context: Context<'a>,
    /// The value of each bit that has settled.
    known: Vec<Option<bool>>,
    random: Random,
}

impl<'a> Settling<'a> {
    fn new(context: &Context<'a>) -> Settling<'a> {
        let bits = context.model.cells() * context.model.channels.len();
        Settling { context: *context, known: vec![None; bits], random: Random(2) }
    }

    /// Returns whether all bits of the target are right, if all have settled or one is wrong.
    fn is_right(&self) -> Option<bool> {
        let (target, channels) = (&self.context.model.target, self.context.model.channels.len());
        let mut is_right = Some(true);
        for cell in 0..target.cells() {
            for channel in 0..target.channels() {
                let expected = target.get(0, channel, cell / target.width(), cell % target.width());
                match self.known[cell * channels + channel] {
                    Some(bit) if bit != expected => return Some(false),
                    Some(_) => {}
                    None => is_right = None,
                }
            }
        }
        is_right
    }

    /// Adds the bits that have one value after some steps. Returns whether there are any.
    fn advance(&mut self, steps: usize, window: usize) -> Result<bool, CheckError> {
        let context = self.context;
        let constant = |(bit, known): (usize, &Option<bool>)| match known {
            Some(value) => Literal::FALSE.invert_if(*value),
            None => Literal::input(bit),
        };
        let start = self.known.iter().enumerate().map(constant).collect();
        let mut unrolling = Unrolling::from_states(context.model, start, steps);
        unrolling.extend(steps, context.stop)?;
        let mut settled: Vec<(usize, bool)> = Vec::new();
        let candidates = self.candidates(&unrolling, steps, window)?;
        let mut query = Query::new(&context, unrolling);
        for (bit, value) in candidates {
            let literal = query.unrolling.frame(steps)[bit].invert_if(value);
            if literal == Literal::FALSE || !query.solve_silently(&[literal])? {
                settled.push((bit, value));
            }
        }
        for &(bit, value) in &settled {
            self.known[bit] = Some(value);
        }
        Ok(!settled.is_empty())
    }

    /// Returns the bits that have one value in random runs.
    fn candidates(
        &mut self,
        unrolling: &Unrolling<'_>,
        steps: usize,
        window: usize,
    ) -> Result<Vec<(usize, bool)>, CheckError> {
        let open = (0..self.known.len()).filter(|&bit| self.known[bit].is_none());
        let mut candidates: Vec<(usize, Option<bool>)> = open.map(|bit| (bit, None)).collect();
        let mut values = Vec::new();
        for _ in 0..RANDOM_WORDS {
            self.context.stop.check()?;
            let inputs = self.random_inputs(unrolling, steps, window);
            unrolling.xag.eval_words(&inputs, &mut values);
            let frame = unrolling.frame(steps);
            candidates.retain_mut(|(bit, value)| {
                let word = values[frame[*bit].node()] ^ frame[*bit].mask();
                let is_one = word == u64::MAX;
                (is_one || word == 0) && *value.get_or_insert(is_one) == is_one
            });
        }
        Ok(candidates.into_iter().filter_map(|(bit, value)| Some((bit, value?))).collect())
    }

    /// Returns 64 random assignments in which every cell fires in each window.
    fn random_inputs(&mut self, unrolling: &Unrolling<'_>, steps: usize, window: usize) -> Vec<u64> {
        let (bits, cells) = (self.known.len(), self.context.model.cells());
        let mut inputs: Vec<u64> = (0..unrolling.xag.inputs()).map(|_| self.random.word()).collect();
        if inputs.len() > bits {
            for step in window - 1..steps {
                for cell in 0..cells {
                    let before = step + 1 - window..step;
                    let fired = before.fold(0, |fired, step| fired | inputs[bits + step * cells + cell]);
                    inputs[bits + step * cells + cell] |= !fired;
                }
            }
        }
        inputs
    }
}
