//! A long short-term memory (Hochreiter and Schmidhuber 1997) with attention (Luong, Pham, Manning: "Effective approaches
//! to attention-based neural machine translation", EMNLP 2015): the last state is the query, all states are keys and
//! values, and state and context are mapped to the whole horizon by a linear layer.

use serde::{Deserialize, Serialize};

use super::Check;
use super::gru::check_recurrent;
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of the LSTM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lstm {
    /// Size of the hidden state.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Whether the last state attends to all states.
    pub attention: bool,
    /// Dropout rate between layers.
    pub dropout: f64,
}

impl Default for Lstm {
    fn default() -> Lstm {
        Lstm { hidden: 128, layers: 2, attention: true, dropout: 0.0 }
    }
}

impl Lstm {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = x.shape;
        let mut states = x.steps();
        for layer in 0..self.layers {
            let below = if layer == 0 { states } else { states.dropout(self.dropout) };
            states = below.lstm(&format!("layer.{layer}"), self.hidden);
        }
        let last = states.slice(1, input - 1, input);
        let mut seen = last.reshape(&[rows, self.hidden]);
        if self.attention {
            // score(last, state) = last' W state
            let query = last.linear_without_bias("attention", self.hidden);
            let context = query.matmul(states.transpose()).softmax(2).matmul(states);
            seen = x.network.concat(&[seen, context.reshape(&[rows, self.hidden])], 1);
        }
        x.forecast("head", x.with_horizon(seen))
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        check_recurrent(self.hidden, self.layers, self.dropout, shape)
    }
}
