//! Compiled programs of a network, by the number of rows.
//!
//! Parameters are read from the arena, and gradients are written to it, without copies of matrices. If an optimiser step is
//! given, each parameter is updated as soon as its gradient is complete.

use gatework_engine::DType::F32;
use gatework_engine::program::ProgramError;
use gatework_engine::{GraphError, Program, Runner, Tensor, parallel};

use super::{Batch, Model, Outputs};
use crate::memory::{self, OutOfMemory};
use crate::optim::Step;
use crate::params::Params;

/// Why a network cannot be compiled or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// An expression of the network does not fit.
    #[error("network for {rows} rows: {error}")]
    Graph {
        /// The number of rows.
        rows: usize,
        /// Its place and its operands.
        error: GraphError,
    },
    /// A batch does not have the inputs of the network.
    #[error("batch of {rows} rows: {error}")]
    Batch {
        /// The number of rows.
        rows: usize,
        /// The input.
        error: ProgramError,
    },
    /// The parameters depend on the number of rows.
    #[error(
        "the network has other parameters for {rows} rows than for 1: names and shapes of parameters must not depend on the number of rows"
    )]
    Parameters {
        /// The number of rows.
        rows: usize,
    },
    /// The loss does not depend on a parameter.
    #[error("the loss does not depend on parameter {name:?}; remove it or use it")]
    UnusedParameter {
        /// The parameter.
        name: String,
    },
    /// The network has no outputs to predict.
    #[error("the network has no outputs; add them with `Outputs::with`")]
    NoOutputs,
    /// The memory of a program is not available.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// The outputs of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The loss and the gradients of all parameters.
    Training,
    /// The loss.
    Evaluation,
    /// The outputs of the trained network.
    Prediction,
}

const LOSS: &str = "loss";

/// Returns the name of the output with the gradient of a parameter.
fn gradient_name(parameter: &str) -> String {
    format!("gradient of {parameter}")
}

/// Compiles a network for a number of rows.
pub(super) fn compile(
    network: &impl Fn(&Model, usize) -> Outputs<'_>,
    rows: usize,
    params: &Params,
    mode: Mode,
) -> Result<Program, NetworkError> {
    let model = Model::default();
    let Outputs { loss, named } = network(&model, rows);
    let parameters = model.parameters();
    let declared = parameters.iter().map(|parameter| (&parameter.name, &parameter.shape));
    if !declared.eq(params.tensors().iter().map(|tensor| (&tensor.name, &tensor.shape))) {
        return Err(NetworkError::Parameters { rows });
    }
    if mode == Mode::Prediction && named.is_empty() {
        return Err(NetworkError::NoOutputs);
    }
    let names: Vec<String> = parameters.iter().map(|parameter| gradient_name(&parameter.name)).collect();
    let outputs = match mode {
        Mode::Training => {
            let of: Vec<Tensor<'_>> = parameters
                .iter()
                .map(|parameter| model.input(&parameter.name, F32, &parameter.shape))
                .collect();
            let gradients = names.iter().map(String::as_str).zip(model.scope.gradients(loss, &of));
            [(LOSS, loss)].into_iter().chain(gradients).collect()
        }
        Mode::Evaluation => vec![(LOSS, loss)],
        Mode::Prediction => named,
    };
    let graph = model.scope.graph(&outputs).map_err(|error| NetworkError::Graph { rows, error })?;
    let is_used = |name: &str| graph.inputs().any(|(input, _)| input == name);
    if let Some(unused) = parameters.iter().find(|p| mode != Mode::Prediction && !is_used(&p.name)) {
        return Err(NetworkError::UnusedParameter { name: unused.name.clone() });
    }
    let program = Program::new(&graph).map_err(|error| NetworkError::Batch { rows, error })?;
    memory::check(program.bytes() as f64, || format!("the network for {rows} rows"))?;
    Ok(program)
}

/// Programs of one mode.
pub(super) struct Programs {
    mode: Mode,
    compiled: Vec<Compiled>,
}

/// Maximum number of compiled programs: one for full batches, the others for the last ones of epochs and of validation.
const MAX_PROGRAMS: usize = 6;

struct Compiled {
    rows: usize,
    runner: Runner,
}

impl Programs {
    pub fn new(mode: Mode) -> Programs {
        Programs { mode, compiled: Vec::new() }
    }

    /// Computes the loss of a batch and, in training, the gradients.
    pub fn run(
        &mut self,
        network: &impl Fn(&Model, usize) -> Outputs<'_>,
        batch: &Batch,
        params: &mut Params,
    ) -> Result<f64, NetworkError> {
        let runner = self.prepare(network, batch, params)?;
        let Params { values, grads, .. } = params;
        runner.run_bound(values, Some(grads)).and_then(|()| loss(runner)).map_err(in_batch(batch))
    }

    /// Computes the loss of a batch, and updates each parameter as soon as its gradient is complete.
    pub fn run_and_update(
        &mut self,
        network: &impl Fn(&Model, usize) -> Outputs<'_>,
        batch: &Batch,
        params: &mut Params,
        step: &mut Step<'_>,
    ) -> Result<f64, NetworkError> {
        let runner = self.prepare(network, batch, params)?;
        // Forward, and backward to parameters and activations.
        let multiplications = params.len().saturating_mul(3 * batch.rows());
        let updated = parallel::with_spinning_workers(multiplications, || {
            runner.run_updating(&mut params.values, &mut |range, values, grads| {
                step.apply(range, values, grads);
            })
        });
        updated.and_then(|()| loss(runner)).map_err(in_batch(batch))
    }

    /// Returns the runner for the rows of a batch, which is written to it.
    fn prepare(
        &mut self,
        network: &impl Fn(&Model, usize) -> Outputs<'_>,
        batch: &Batch,
        params: &Params,
    ) -> Result<&mut Runner, NetworkError> {
        let rows = batch.rows();
        let known = self.compiled.iter().position(|compiled| compiled.rows == rows);
        let place = if let Some(place) = known {
            place
        } else {
            let mut runner = compile(network, rows, params, self.mode)?.runner();
            self.bind(&mut runner, params).map_err(in_batch(batch))?;
            if self.compiled.len() == MAX_PROGRAMS {
                self.compiled.remove(0);
            }
            self.compiled.push(Compiled { rows, runner });
            self.compiled.len() - 1
        };
        let runner = &mut self.compiled[place].runner;
        batch.write(runner).map_err(in_batch(batch))?;
        Ok(runner)
    }

    /// Lets a runner read parameters from the arena, and write gradients to it or update the parameters.
    fn bind(&self, runner: &mut Runner, params: &Params) -> Result<(), ProgramError> {
        let tensors = params.tensors();
        let inputs: Vec<_> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone())).collect();
        if self.mode != Mode::Training {
            return runner.bind(&inputs, &[]);
        }
        let names: Vec<String> = tensors.iter().map(|tensor| gradient_name(&tensor.name)).collect();
        let gradients = tensors.iter().zip(&names);
        let gradients: Vec<_> =
            gradients.map(|(tensor, name)| (name.as_str(), tensor.range.clone())).collect();
        runner.bind(&inputs, &gradients)?;
        let updates = inputs.iter().zip(&gradients);
        let updates: Vec<_> =
            updates.map(|((input, range), (gradient, _))| (*input, *gradient, range.clone())).collect();
        runner.bind_updates(&updates)
    }
}

fn loss(runner: &Runner) -> Result<f64, ProgramError> {
    Ok(f64::from(runner.read::<f32>(LOSS)?.first().copied().unwrap_or(0.0)))
}

fn in_batch(batch: &Batch) -> impl FnOnce(ProgramError) -> NetworkError + use<> {
    let rows = batch.rows();
    move |error| NetworkError::Batch { rows, error }
}
