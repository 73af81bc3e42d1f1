//! A gated recurrent unit (Cho et al.: "Learning phrase representations using RNN encoder-decoder for
//! statistical machine translation", EMNLP 2014). The window is read step by step; the last state is mapped to the
//! whole horizon by a linear layer.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, invalid, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of the GRU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gru {
    /// Size of the hidden state.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Dropout rate between layers.
    pub dropout: f64,
}

impl Default for Gru {
    fn default() -> Gru {
        Gru { hidden: 128, layers: 2, dropout: 0.0 }
    }
}

impl Gru {
    /// Returns the forecast, `[rows, horizon, outputs]`.
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

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        check_recurrent(self.hidden, self.layers, self.dropout, shape)
    }
}

/// Maximum number of steps of all layers: the program is unrolled.
const MAX_STEPS: usize = 10_000;

/// Checks the settings of a recurrent network.
pub(super) fn check_recurrent(hidden: usize, layers: usize, dropout: f64, shape: &BatchShape) -> Check {
    in_range("hidden", hidden, 1..=16_384)?;
    in_range("layers", layers, 1..=32)?;
    let steps = layers * (shape.input + shape.horizon);
    if steps > MAX_STEPS {
        let problem = format!("layers times (input + horizon) is {steps}, but must be at most {MAX_STEPS}");
        return invalid("layers", problem);
    }
    is_dropout("dropout", dropout)
}
