//! The tensors of a batch as a model reads them, and the ways in which models combine them.

use super::builder::{Network, Tensor};
use super::distribution::Distribution;
use super::loss::Loss;
use crate::data::BatchShape;

/// Names of the graph's inputs, in the order of the fields of a [`Batch`](crate::data::Batch).
pub(super) const NAMES: [&str; 5] = ["past", "target", "past_columns", "future_columns", "static_columns"];

/// The tensors of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'n> {
    /// The network that the tensors belong to.
    pub network: &'n Network,
    /// Sizes of the batch.
    pub shape: BatchShape,
    /// Network outputs per step.
    pub outputs: usize,
    /// The output distribution, for likelihood losses.
    pub distribution: Option<Distribution>,
    /// Observed values: `[rows, input]`.
    pub past: Tensor<'n>,
    /// Targets, in training and evaluation: `[rows, horizon]`.
    pub target: Option<Tensor<'n>>,
    /// Past covariates: `[rows, input, columns]`.
    pub past_columns: Option<Tensor<'n>>,
    /// Known-future covariates: `[rows, input + horizon, columns]`.
    pub future_columns: Option<Tensor<'n>>,
    /// Static covariates: `[rows, columns]`.
    pub static_columns: Option<Tensor<'n>>,
}

impl<'n> Inputs<'n> {
    /// Adds the inputs of a batch to a network, with or without targets.
    pub fn new(network: &'n Network, shape: BatchShape, loss: &Loss, with_target: bool) -> Inputs<'n> {
        let BatchShape { rows, input, horizon, past_columns, future_columns, static_columns } = shape;
        let columns =
            |count: usize, name: &str, sizes: &[usize]| (count > 0).then(|| network.input(name, sizes));
        Inputs {
            network,
            shape,
            outputs: loss.outputs(),
            distribution: loss.distribution(),
            past: network.input(NAMES[0], &[rows, input]),
            target: with_target.then(|| network.input(NAMES[1], &[rows, horizon])),
            past_columns: columns(past_columns, NAMES[2], &[rows, input, past_columns]),
            future_columns: columns(future_columns, NAMES[3], &[rows, input + horizon, future_columns]),
            static_columns: columns(static_columns, NAMES[4], &[rows, static_columns]),
        }
    }

    /// Returns all covariates of a window, flattened to `[rows, numbers]`; `None` if there are none.
    pub fn columns(&self) -> Option<Tensor<'n>> {
        let flat = [self.past_columns, self.future_columns, self.static_columns];
        let flat: Vec<Tensor<'n>> = flat.into_iter().flatten().map(Tensor::flatten).collect();
        (!flat.is_empty()).then(|| self.network.concat(&flat, 1))
    }

    /// Appends all covariates of the window to `x`, `[rows, numbers]`.
    pub fn with_columns(&self, x: Tensor<'n>) -> Tensor<'n> {
        self.columns().map_or(x, |columns| self.network.concat(&[x, columns], 1))
    }

    /// Returns the features of each observed step, value and covariates: `[rows, input, features]`.
    pub fn steps(&self) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = self.shape;
        let mut features = vec![self.past.reshape(&[rows, input, 1])];
        features.extend(self.past_columns);
        features.extend(self.future_columns.map(|columns| columns.slice(1, 0, input)));
        features.extend(self.repeated_statics(input));
        self.network.concat(&features, 2)
    }

    /// Returns the static covariates, repeated for each step: `[rows, steps, columns]`.
    pub fn repeated_statics(&self, steps: usize) -> Option<Tensor<'n>> {
        let BatchShape { rows, static_columns, .. } = self.shape;
        let repeat =
            |x: Tensor<'n>| x.reshape(&[rows, 1, static_columns]).expand(&[rows, steps, static_columns]);
        self.static_columns.map(repeat)
    }

    /// Appends the known-future covariates of the horizon and the static covariates to `x`, `[rows, numbers]`.
    pub fn with_horizon(&self, x: Tensor<'n>) -> Tensor<'n> {
        let BatchShape { input, horizon, .. } = self.shape;
        let mut parts = vec![x];
        parts.extend(self.future_columns.map(|columns| columns.slice(1, input, input + horizon).flatten()));
        parts.extend(self.static_columns);
        self.network.concat(&parts, 1)
    }

    /// Maps `x`, `[rows, numbers]`, to a forecast by a linear layer: `[rows, horizon, outputs]`.
    pub fn forecast(&self, name: &str, x: Tensor<'n>) -> Tensor<'n> {
        let BatchShape { rows, horizon, .. } = self.shape;
        x.linear(name, horizon * self.outputs).reshape(&[rows, horizon, self.outputs])
    }

    /// Returns the contribution of the covariates to a linear model: a linear layer; `None` if there are none.
    pub fn columns_forecast(&self, name: &str) -> Option<Tensor<'n>> {
        self.columns().map(|columns| self.forecast(name, columns))
    }
}
