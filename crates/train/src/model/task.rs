//! The training task of a network: one seed, driven by the [trainer](crate::trainer).

use std::borrow::Borrow;

use super::programs::{Mode, NetworkError, Programs};
use super::{Batch, Model, Outputs, Parameter, initial_params, parameters_of};
use crate::memory;
use crate::optim::Step;
use crate::params::Params;
use crate::trainer::{Losses, Task, TaskError};

/// When the validation loss is computed, and on what.
#[derive(Clone, Debug, Default)]
pub(super) struct Validation {
    pub batches: Vec<Batch>,
    /// The number of updates from one validation to the next.
    pub every: u64,
}

/// A network in training, from one seed.
///
/// Update `n` uses batch `n` of the iterator, so a resumed task skips the batches before. The hard loss is the validation loss;
/// without validation, it is the loss of the last update, so that the final parameters are the best.
pub struct GraphTask<F, I> {
    network: F,
    params: Params,
    batches: I,
    /// The number of batches that were taken.
    taken: u64,
    training: Programs,
    evaluation: Programs,
    validation: Validation,
    /// The last update.
    last: u64,
}

/// Bytes of a parameter in training: value, gradient, two moments and the best value so far.
const PARAMETER_BYTES: f64 = 20.0;

/// Returns the parameters of a network with the initial values of a seed.
pub(super) fn initial(
    network: &impl Fn(&Model, usize) -> Outputs<'_>,
    seed: u64,
) -> Result<Params, NetworkError> {
    let parameters = parameters_of(network).map_err(|error| NetworkError::Graph { rows: 1, error })?;
    let elements = |parameter: &Parameter| parameter.shape.iter().map(|&size| size as f64).product::<f64>();
    let count: f64 = parameters.iter().map(elements).sum();
    memory::check(count * PARAMETER_BYTES, || format!("training {:.1} million parameters", count / 1e6))?;
    Ok(initial_params(&parameters, seed))
}

impl<F, I> GraphTask<F, I>
where
    F: Fn(&Model, usize) -> Outputs<'_>,
    I: Iterator<Item: Borrow<Batch>>,
{
    /// Creates a task of `updates` updates with the initial parameters of a seed.
    pub fn new(network: F, batches: I, updates: u64, seed: u64) -> Result<Self, NetworkError> {
        Ok(GraphTask {
            params: initial(&network, seed)?,
            network,
            batches,
            taken: 0,
            training: Programs::new(Mode::Training),
            evaluation: Programs::new(Mode::Evaluation),
            validation: Validation::default(),
            last: updates.saturating_sub(1),
        })
    }

    /// Computes the validation loss every `every` updates, and after the last one.
    #[must_use]
    pub fn with_validation(mut self, batches: Vec<Batch>, every: u64) -> Self {
        self.validation = Validation { batches, every: every.max(1) };
        self
    }

    /// Returns the mean loss over the rows of the validation batches; `None` if there are none.
    pub fn validation_loss(&mut self) -> Result<Option<f64>, NetworkError> {
        let (mut sum, mut rows) = (0.0, 0);
        for batch in &self.validation.batches {
            sum += self.evaluation.run(&self.network, batch, &mut self.params)? * batch.rows() as f64;
            rows += batch.rows();
        }
        Ok((rows > 0).then(|| sum / rows as f64))
    }

    /// Returns the losses of an update. Applies the step, if given, unless the hard loss is computed.
    fn losses(&mut self, update: u64, step: Option<&mut Step<'_>>) -> Result<Losses, TaskError> {
        let is_last = update >= self.last;
        let is_due = update > 0 && update.is_multiple_of(self.validation.every.max(1));
        let hard = if is_last || is_due { self.validation_loss()? } else { None };
        let Some(skipped) = update.checked_sub(self.taken) else {
            return Err(format!("update {update} was made already; updates are made in order").into());
        };
        let Some(batch) = self.batches.nth(skipped as usize) else {
            return Err(format!("update {update}: there is no further batch; the iterator has ended").into());
        };
        self.taken = update + 1;
        let (batch, network) = (batch.borrow(), &self.network);
        if batch.rows() == 0 {
            return Err(format!("update {update}: the batch has no rows").into());
        }
        if let Some(step) = step.filter(|_| hard.is_none() && !is_last) {
            let soft = self.training.run_and_update(network, batch, &mut self.params, step)?;
            return Ok(Losses { soft, hard });
        }
        let soft = self.training.run(network, batch, &mut self.params)?;
        Ok(Losses { soft, hard: hard.or(is_last.then_some(soft)) })
    }
}

impl<F, I> Task for GraphTask<F, I>
where
    F: Fn(&Model, usize) -> Outputs<'_>,
    I: Iterator<Item: Borrow<Batch>>,
{
    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        self.losses(update, None)
    }

    fn step_and_update(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        self.losses(update, Some(step))
    }

    fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
        // There is no target loss.
        Ok(false)
    }
}
