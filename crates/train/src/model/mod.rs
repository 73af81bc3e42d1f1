//! Models: graphs with named parameters that are trained in one call.
//!
//! A network is a function that declares the inputs and parameters of a [`Model`] for a number of rows, and returns its
//! [`Outputs`]: a scalar loss, and what the trained network is asked for. [`Training`] compiles it, trains its parameters, and
//! returns a [`Trained`] network.
//!
//! | file | what is in it |
//! |---|---|
//! | `initializer` | the initial values of parameters |
//! | `batch` | batches of named inputs; mini-batches of a table in memory |
//! | `programs` | compiled programs of a network, by the number of rows |
//! | `task` | the [`Task`](crate::trainer::Task) of a network: one seed in training |
//! | `training` | settings, training in one call, and its result |
//!
//! ```
//! use gatework_engine::DType::F32;
//! use gatework_train::model::{Initializer, Model, Outputs, Table, Training};
//!
//! fn line(model: &Model, rows: usize) -> Outputs<'_> {
//!     let x = model.input("x", F32, &[rows, 1]);
//!     let y = x * model.parameter("slope", &[1], Initializer::Zeros)
//!         + model.parameter("intercept", &[1], Initializer::Zeros);
//!     Outputs::new(y.mse(model.input("target", F32, &[rows, 1]))).with("y", y)
//! }
//!
//! let x: Vec<f32> = (0..32).map(|i| i as f32 / 32.0).collect();
//! let target: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
//! let table = Table::new(32).with("x", 1, x)?.with("target", 1, target)?;
//! let trained = Training::new(line).updates(500).learning_rate(0.05).run(|seed| table.minibatches(8, seed))?;
//! assert!((trained.get("slope").unwrap()[0] - 3.0).abs() < 1e-2);
//!
//! let mut runner = trained.runner(2)?;
//! runner.write("x", &[0.0f32, 10.0])?;
//! runner.run();
//! assert!((runner.read::<f32>("y")?[1] - 29.0).abs() < 0.1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod initializer;
mod programs;
mod task;
mod training;

use std::cell::RefCell;

use gatework_engine::{DType, GraphError, Scope, Tensor};

pub use batch::{Batch, Minibatches, Table, TableError, Values};
pub use initializer::{Initializer, Parameter, initial_params};
pub use programs::NetworkError;
pub use task::GraphTask;
pub use training::{Trained, Training, TrainingError};

/// A graph under construction that records its parameters. It may be rewritten by identities of real numbers: see
/// [`Graph::relaxed`](gatework_engine::Graph::relaxed).
#[derive(Debug)]
pub struct Model {
    scope: Scope,
    parameters: RefCell<Vec<Parameter>>,
}

impl Default for Model {
    fn default() -> Model {
        Model { scope: Scope::relaxed(), parameters: RefCell::default() }
    }
}

/// The outputs of a network.
#[derive(Clone, Debug)]
pub struct Outputs<'m> {
    loss: Tensor<'m>,
    named: Vec<(&'static str, Tensor<'m>)>,
}

impl<'m> Outputs<'m> {
    /// The scalar that training minimises: a mean over the rows.
    pub fn new(loss: Tensor<'m>) -> Outputs<'m> {
        Outputs { loss, named: Vec::new() }
    }

    /// Adds an output of the trained network.
    #[must_use]
    pub fn with(mut self, name: &'static str, tensor: Tensor<'m>) -> Outputs<'m> {
        self.named.push((name, tensor));
        self
    }
}

impl Model {
    /// The scope of its tensors.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A tensor that every batch has. The same name is the same input.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, sizes: &[usize]) -> Tensor<'_> {
        self.scope.input(name, dtype, sizes)
    }

    /// A parameter of type `f32`. The same name is the same parameter, whose shape must be the same.
    #[track_caller]
    pub fn parameter(&self, name: &str, sizes: &[usize], initializer: Initializer) -> Tensor<'_> {
        let mut parameters = self.parameters.borrow_mut();
        if parameters.iter().all(|parameter| parameter.name != name) {
            parameters.push(Parameter { name: name.to_string(), shape: sizes.to_vec(), initializer });
        }
        self.scope.input(name, DType::F32, sizes)
    }

    /// The parameters, in the order of their declaration.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.parameters.borrow().clone()
    }
}

/// Returns the parameters of a network, or the errors of its expressions.
fn parameters_of(network: &impl Fn(&Model, usize) -> Outputs<'_>) -> Result<Vec<Parameter>, GraphError> {
    let model = Model::default();
    let outputs = network(&model, 1);
    model.scope.graph(&[("loss", outputs.loss)])?;
    Ok(model.parameters())
}

#[cfg(test)]
mod tests;
