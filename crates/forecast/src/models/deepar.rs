//! DeepAR (Salinas, Flunkert, Gasthaus, Januschowski: "DeepAR: probabilistic forecasting with autoregressive recurrent
//! networks", International Journal of Forecasting 2020): an LSTM reads a value and forecasts the distribution of the
//! next one, in the window and the horizon alike. Training reads the true values (teacher forcing); prediction draws
//! sample paths (`trained_network::sampling`).

use serde::{Deserialize, Serialize};

use super::gru::check_recurrent;
use super::{Check, invalid};
use crate::data::BatchShape;
use crate::network::inputs::Inputs;
use crate::network::layers::LstmState;
use crate::network::{Network, Tensor};

/// Settings of DeepAR.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeepAr {
    /// Size of the hidden state.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Dropout rate between layers.
    pub dropout: f64,
    /// Number of sample paths per forecast.
    pub samples: usize,
}

impl Default for DeepAr {
    fn default() -> DeepAr {
        DeepAr { hidden: 40, layers: 3, dropout: 0.1, samples: 200 }
    }
}

impl DeepAr {
    /// Returns the distribution of every value after the first, `[rows, input + horizon - 1, outputs]`, if targets are given;
    /// otherwise those of the horizon, `[rows, horizon, outputs]`, along the path of the means.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let Some(target) = x.target else { return self.mean_path(x) };
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let steps = input + horizon - 1;
        let values = x.network.concat(&[x.past, target], 1).slice(1, 0, steps);
        let mut features = vec![values.reshape(&[rows, steps, 1])];
        features.extend(x.future_columns.map(|columns| columns.slice(1, 1, steps + 1)));
        features.extend(x.repeated_statics(steps));
        let mut states = x.network.concat(&features, 2);
        for layer in 0..self.layers {
            let below = if layer == 0 { states } else { states.dropout(self.dropout) };
            states = below.lstm(&layer_name(layer), self.hidden);
        }
        states.linear("head", x.outputs)
    }

    /// Returns zero states, one per layer.
    fn start<'n>(&self, network: &'n Network, rows: usize) -> Vec<LstmState<'n>> {
        let zeros = network.zeros(&[rows, self.hidden]);
        vec![LstmState { output: zeros, memory: zeros }; self.layers]
    }

    /// Returns the states before the last value of the window is read.
    pub fn encode<'n>(&self, x: &Inputs<'n>) -> Vec<LstmState<'n>> {
        let mut states = self.start(x.network, x.shape.rows);
        for t in 1..x.shape.input {
            let value = x.past.slice(1, t - 1, t);
            advance(features(x.network, value, columns_at(x, t), x.static_columns), &mut states);
        }
        states
    }

    /// Advances by one step with features `[rows, features]`, and returns the raw outputs.
    pub fn step<'n>(features: Tensor<'n>, states: &mut [LstmState<'n>], outputs: usize) -> Tensor<'n> {
        advance(features, states).linear("head", outputs)
    }

    /// Returns the forecast along the path of the means.
    fn mean_path<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let mut states = self.encode(x);
        let mut value = x.past.slice(1, input - 1, input);
        let mut outputs = Vec::new();
        for t in input..input + horizon {
            let features = features(x.network, value, columns_at(x, t), x.static_columns);
            let output = DeepAr::step(features, &mut states, x.outputs);
            value = x.distribution.map_or(output, |distribution| distribution.raw_mean(output));
            outputs.push(output.reshape(&[rows, 1, x.outputs]));
        }
        x.network.concat(&outputs, 1)
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        super::in_range("samples", self.samples, 1..=100_000)?;
        if shape.past_columns > 0 {
            let problem =
                "it does not support past covariates (columns.past); use known-future ones (columns.future)";
            return invalid("kind", problem);
        }
        check_recurrent(self.hidden, self.layers, self.dropout, shape)
    }
}

/// Advances the states of all layers by one step, and returns the output of the last.
fn advance<'n>(features: Tensor<'n>, states: &mut [LstmState<'n>]) -> Tensor<'n> {
    let mut below = features;
    for (layer, state) in states.iter_mut().enumerate() {
        *state = below.lstm_step(&layer_name(layer), *state);
        below = state.output;
    }
    below
}

fn layer_name(layer: usize) -> String {
    format!("layer.{layer}")
}

/// Returns the known-future covariates of a step, `[rows, columns]`.
fn columns_at<'n>(x: &Inputs<'n>, t: usize) -> Option<Tensor<'n>> {
    x.future_columns
        .map(|columns| columns.slice(1, t, t + 1).reshape(&[x.shape.rows, x.shape.future_columns]))
}

/// Returns the features of a step: the previous value and the covariates.
pub(crate) fn features<'n>(
    network: &'n Network,
    value: Tensor<'n>,
    columns: Option<Tensor<'n>>,
    statics: Option<Tensor<'n>>,
) -> Tensor<'n> {
    let parts: Vec<Tensor<'n>> = [Some(value), columns, statics].into_iter().flatten().collect();
    network.concat(&parts, 1)
}
