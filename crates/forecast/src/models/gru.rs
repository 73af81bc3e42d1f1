//! A recurrent network of gated units (Cho et al.: "Learning phrase representations using RNN encoder-decoder for
//! statistical machine translation", EMNLP 2014). The window is read step by step; the last state is mapped to the
//! whole horizon at once.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of the gated recurrent network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gru {
    /// Numbers of a state.
    pub hidden: usize,
    /// Layers above each other.
    pub layers: usize,
    /// Share of the numbers between layers that are dropped in training.
    pub dropout: f64,
}

impl Default for Gru {
    fn default() -> Gru {
        Gru { hidden: 128, layers: 2, dropout: 0.0 }
    }
}

impl Gru {
    /// The forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = x.shape;
        let mut states = x.steps();
        for layer in 0..self.layers {
            let below = if layer == 0 { states } else { states.dropout(self.dropout) };
            states = below.gru(&format!("layer.{layer}"), self.hidden);
        }
        let last = states.slice(1, input - 1, input).reshape(&[rows, self.hidden]);
        x.forecast("head", x.with_horizon(last))
    }

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        check_recurrent(self.hidden, self.layers, self.dropout, shape)
    }
}

/// Steps of all layers at most: each is a piece of the program.
const MOST_STEPS: usize = 10_000;

/// Limits of recurrent networks.
pub(super) fn check_recurrent(hidden: usize, layers: usize, dropout: f64, shape: &BatchShape) -> Check {
    in_range("hidden", hidden, 1..=16_384)?;
    in_range("layers", layers, 1..=32)?;
    let steps = layers * (shape.input + shape.horizon);
    in_range("layers times steps (input + horizon)", steps, 1..=MOST_STEPS)?;
    is_dropout("dropout", dropout)
}
