//! A temporal convolutional network (Bai, Kolter, Koltun: "An empirical evaluation of generic convolutional and recurrent
//! networks for sequence modeling", 2018): residual blocks of two causal convolutions each, whose dilation doubles from
//! block to block, so that the last step sees far back. Weights are used as they are, without the paper's normalisation.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, is_dropout};
use crate::data::BatchShape;
use crate::forecast::inputs::Inputs;
use crate::forecast::network::Tensor;

/// Settings of the temporal convolutional network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcn {
    /// Channels of each block.
    pub channels: Vec<usize>,
    /// Steps that a convolution reads.
    pub kernel: usize,
    /// Share of the channels' values that are dropped in training.
    pub dropout: f64,
}

impl Default for Tcn {
    fn default() -> Tcn {
        Tcn { channels: vec![32, 64, 128], kernel: 3, dropout: 0.2 }
    }
}

impl Tcn {
    /// The forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = x.shape;
        // [rows, time, channels]
        let mut hidden = x.steps();
        for (block, &channels) in self.channels.iter().enumerate() {
            hidden = self.block(hidden, &format!("block.{block}"), channels, 1 << block);
        }
        let width = hidden.size(2);
        let last = hidden.slice(1, input - 1, input).reshape(&[rows, width]);
        x.forecast("head", x.with_horizon(last))
    }

    /// Two convolutions, and what went in beside them.
    fn block<'n>(&self, x: Tensor<'n>, name: &str, channels: usize, dilation: usize) -> Tensor<'n> {
        let mut hidden = x;
        for layer in 0..2 {
            let name = format!("{name}.{layer}");
            let convolved = hidden.causal_convolution(&name, channels, self.kernel, dilation);
            hidden = convolved.relu().dropout(self.dropout);
        }
        let beside = if x.size(2) == channels { x } else { x.linear(&format!("{name}.beside"), channels) };
        (hidden + beside).relu()
    }

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, _shape: &BatchShape) -> Check {
        in_range("the number of blocks (channels)", self.channels.len(), 1..=16)?;
        for &channels in &self.channels {
            in_range("channels", channels, 1..=16_384)?;
        }
        in_range("kernel", self.kernel, 1..=1000)?;
        is_dropout("dropout", self.dropout)
    }
}
