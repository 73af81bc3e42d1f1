//! DeepAR (Salinas, Flunkert, Gasthaus, Januschowski: "DeepAR: probabilistic forecasting with autoregressive recurrent
//! networks", International Journal of Forecasting 2020): an LSTM reads a value and forecasts the distribution of the next
//! one, over the window and the horizon alike. In training the true values are read; in prediction values are drawn
//! from the distributions and read in turn, and many such paths together are the forecast
//! (`forecast::sampling`).

use serde::{Deserialize, Serialize};

use super::Check;
use super::gru::check_recurrent;
use crate::data::BatchShape;
use crate::network::inputs::Inputs;
use crate::network::layers::LstmState;
use crate::network::{Network, Tensor};

/// Settings of DeepAR.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeepAr {
    /// Numbers of a state.
    pub hidden: usize,
    /// Layers above each other.
    pub layers: usize,
    /// Share of the numbers between layers that are dropped in training.
    pub dropout: f64,
    /// Paths that are drawn for a forecast.
    pub samples: usize,
}

impl Default for DeepAr {
    fn default() -> DeepAr {
        DeepAr { hidden: 40, layers: 3, dropout: 0.1, samples: 200 }
    }
}

impl DeepAr {
    /// The distribution of every value after the first, `[rows, input + horizon - 1, outputs]`, if what came is known;
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

    /// States of zeros, one for each layer.
    fn start<'n>(&self, network: &'n Network, rows: usize) -> Vec<LstmState<'n>> {
        let zeros = network.zeros(&[rows, self.hidden]);
        vec![LstmState { output: zeros, memory: zeros }; self.layers]
    }

    /// The states before the last value of the window is read.
    pub fn encode<'n>(&self, x: &Inputs<'n>) -> Vec<LstmState<'n>> {
        let mut states = self.start(x.network, x.shape.rows);
        for t in 1..x.shape.input {
            let value = x.past.slice(1, t - 1, t);
            advance(features(x.network, value, columns_at(x, t), x.static_columns), &mut states);
        }
        states
    }

    /// Reads the features of one step, `[rows, features]`, and gives what the network puts out for it.
    pub fn step<'n>(features: Tensor<'n>, states: &mut [LstmState<'n>], outputs: usize) -> Tensor<'n> {
        advance(features, states).linear("head", outputs)
    }

    /// The forecast along the path of the means.
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

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        super::in_range("samples", self.samples, 1..=100_000)?;
        if shape.past_columns > 0 {
            return Err(
                "it cannot read columns that end at the present (past_columns); use future columns".into()
            );
        }
        check_recurrent(self.hidden, self.layers, self.dropout, shape)
    }
}

/// Moves the states of all layers on by one step, and gives the output of the last.
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

/// What is known in advance of a step, `[rows, columns]`.
fn columns_at<'n>(x: &Inputs<'n>, t: usize) -> Option<Tensor<'n>> {
    x.future_columns
        .map(|columns| columns.slice(1, t, t + 1).reshape(&[x.shape.rows, x.shape.future_columns]))
}

/// What a step reads: the value before it, and what is known of it.
pub(crate) fn features<'n>(
    network: &'n Network,
    value: Tensor<'n>,
    columns: Option<Tensor<'n>>,
    statics: Option<Tensor<'n>>,
) -> Tensor<'n> {
    let parts: Vec<Tensor<'n>> = [Some(value), columns, statics].into_iter().flatten().collect();
    network.concat(&parts, 1)
}
