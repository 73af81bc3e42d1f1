//! What a model reads: the tensors of a batch, and the ways in which models put them together.

use super::builder::{Network, Tensor};
use super::distribution::Distribution;
use super::loss::Loss;
use crate::data::BatchShape;

/// Names of the graph's inputs, in the order of the fields of a [`Batch`](crate::data::Batch).
pub(super) const NAMES: [&str; 5] = ["past", "target", "past_columns", "future_columns", "static_columns"];

/// The tensors of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'n> {
    /// The network they belong to.
    pub network: &'n Network,
    /// Their sizes.
    pub shape: BatchShape,
    /// Numbers for each step of the forecast.
    pub outputs: usize,
    /// The distribution whose parameters the outputs are, if they are.
    pub distribution: Option<Distribution>,
    /// What was observed: `[rows, input]`.
    pub past: Tensor<'n>,
    /// What came afterwards, where it is known: `[rows, horizon]`.
    pub target: Option<Tensor<'n>>,
    /// Known up to the present: `[rows, input, columns]`.
    pub past_columns: Option<Tensor<'n>>,
    /// Known in advance: `[rows, input + horizon, columns]`.
    pub future_columns: Option<Tensor<'n>>,
    /// Of the series as a whole: `[rows, columns]`.
    pub static_columns: Option<Tensor<'n>>,
}

impl<'n> Inputs<'n> {
    /// The inputs of a network, with or without what came afterwards.
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

    /// All columns of a window side by side, `[rows, numbers]`, if there are any.
    pub fn columns(&self) -> Option<Tensor<'n>> {
        let flat = [self.past_columns, self.future_columns, self.static_columns];
        let flat: Vec<Tensor<'n>> = flat.into_iter().flatten().map(Tensor::flatten).collect();
        (!flat.is_empty()).then(|| self.network.concat(&flat, 1))
    }

    /// `x`, `[rows, numbers]`, with all columns of the window behind it.
    pub fn with_columns(&self, x: Tensor<'n>) -> Tensor<'n> {
        self.columns().map_or(x, |columns| self.network.concat(&[x, columns], 1))
    }

    /// What is known at each observed step: the value and the columns, `[rows, input, features]`.
    pub fn steps(&self) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = self.shape;
        let mut features = vec![self.past.reshape(&[rows, input, 1])];
        features.extend(self.past_columns);
        features.extend(self.future_columns.map(|columns| columns.slice(1, 0, input)));
        features.extend(self.repeated_statics(input));
        self.network.concat(&features, 2)
    }

    /// The columns of the series as a whole, for each of some steps.
    pub fn repeated_statics(&self, steps: usize) -> Option<Tensor<'n>> {
        let BatchShape { rows, static_columns, .. } = self.shape;
        let repeat =
            |x: Tensor<'n>| x.reshape(&[rows, 1, static_columns]).expand(&[rows, steps, static_columns]);
        self.static_columns.map(repeat)
    }

    /// `x`, `[rows, numbers]`, with what is known of the horizon behind it.
    pub fn with_horizon(&self, x: Tensor<'n>) -> Tensor<'n> {
        let BatchShape { input, horizon, .. } = self.shape;
        let mut parts = vec![x];
        parts.extend(self.future_columns.map(|columns| columns.slice(1, input, input + horizon).flatten()));
        parts.extend(self.static_columns);
        self.network.concat(&parts, 1)
    }

    /// A linear map of `x`, `[rows, numbers]`, to a forecast: `[rows, horizon, outputs]`.
    pub fn forecast(&self, name: &str, x: Tensor<'n>) -> Tensor<'n> {
        let BatchShape { rows, horizon, .. } = self.shape;
        x.linear(name, horizon * self.outputs).reshape(&[rows, horizon, self.outputs])
    }

    /// What the columns add to the forecast of a model that is linear itself: a linear map of them, if there are any.
    pub fn columns_forecast(&self, name: &str) -> Option<Tensor<'n>> {
        self.columns().map(|columns| self.forecast(name, columns))
    }
}
