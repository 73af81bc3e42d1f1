//! TiDE (Das, Kong, Leach, Mathur, Sen, Yu: "Long-term forecasting with TiDE: time-series dense encoder", TMLR 2023): covariates
//! of each step are projected to a few numbers; dense residual blocks encode them together with the window and decode a vector for
//! each step of the horizon; a last block maps it, with the covariates of its step, to the forecast. A linear map of the window
//! is added.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of TiDE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tide {
    /// Width of the hidden layers of encoder and decoder.
    pub hidden: usize,
    /// Residual blocks of the encoder.
    pub encoder: usize,
    /// Residual blocks of the decoder.
    pub decoder: usize,
    /// Numbers that are decoded for each step of the horizon.
    pub decoded: usize,
    /// Width of the hidden layer of the last block, which is applied to each step.
    pub step_hidden: usize,
    /// Numbers that the known-future covariates of a step are projected to.
    pub projected: usize,
    /// Dropout rate.
    pub dropout: f64,
}

impl Default for Tide {
    fn default() -> Tide {
        Tide { hidden: 256, encoder: 2, decoder: 2, decoded: 8, step_hidden: 64, projected: 4, dropout: 0.2 }
    }
}

impl Tide {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        // [rows, input + horizon, projected]
        let projected = x.future_columns.map(|columns| {
            self.block(columns, "projection", self.step_hidden, self.projected).layer_norm("projection.norm")
        });
        let mut parts = vec![x.past];
        parts.extend(x.past_columns.map(Tensor::flatten));
        parts.extend(projected.map(Tensor::flatten));
        parts.extend(x.static_columns);
        let mut hidden = x.network.concat(&parts, 1);
        for layer in 0..self.encoder {
            let name = format!("encoder.{layer}");
            hidden = self.block(hidden, &name, self.hidden, self.hidden).layer_norm(&format!("{name}.norm"));
        }
        for layer in 0..self.decoder {
            let name = format!("decoder.{layer}");
            let width = if layer + 1 < self.decoder { self.hidden } else { horizon * self.decoded };
            hidden = self.block(hidden, &name, self.hidden, width).layer_norm(&format!("{name}.norm"));
        }
        let mut step = hidden.reshape(&[rows, horizon, self.decoded]);
        if let Some(projected) = projected {
            step = x.network.concat(&[step, projected.slice(1, input, input + horizon)], 2);
        }
        self.block(step, "step", self.step_hidden, x.outputs) + x.forecast("linear", x.past)
    }

    /// A residual block: one hidden layer, and a linear map of the input.
    fn block<'n>(&self, x: Tensor<'n>, name: &str, hidden: usize, width: usize) -> Tensor<'n> {
        let dense = x.linear(&format!("{name}.0"), hidden).relu().linear(&format!("{name}.1"), width);
        dense.dropout(self.dropout) + x.linear(&format!("{name}.skip"), width)
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _: &BatchShape) -> Check {
        in_range("hidden", self.hidden, 1..=65_536)?;
        in_range("encoder", self.encoder, 1..=100)?;
        in_range("decoder", self.decoder, 1..=100)?;
        in_range("decoded", self.decoded, 1..=1024)?;
        in_range("step_hidden", self.step_hidden, 1..=65_536)?;
        in_range("projected", self.projected, 1..=1024)?;
        is_dropout("dropout", self.dropout)
    }
}
