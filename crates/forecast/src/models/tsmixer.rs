//! TSMixer (Chen, Li, Yoder, Arik, Pfister: "TSMixer: an all-MLP architecture for time series forecasting", TMLR 2023), in its
//! form with covariates: past values and covariates are mapped to the length of the horizon, joined by the known-future and static
//! covariates of each step, and mixed by dense layers that alternate between steps and features.
//!
//! The paper uses batch normalisation; here it is layer normalisation over steps and features, which does not depend on other
//! windows.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of TSMixer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TsMixer {
    /// Features of a step.
    pub width: usize,
    /// Width of the hidden layers that mix features.
    pub feed_forward: usize,
    /// Mixing layers.
    pub layers: usize,
    /// Dropout rate.
    pub dropout: f64,
}

impl Default for TsMixer {
    fn default() -> TsMixer {
        TsMixer { width: 64, feed_forward: 64, layers: 4, dropout: 0.1 }
    }
}

impl TsMixer {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let mut past = vec![x.past.reshape(&[rows, input, 1])];
        past.extend(x.past_columns);
        past.extend(x.future_columns.map(|columns| columns.slice(1, 0, input)));
        // [rows, features, input] to [rows, horizon, features]
        let past = x.network.concat(&past, 2).transpose().linear("align", horizon).transpose();
        let mut parts = vec![self.features(past, "past")];
        let future = x.future_columns.map(|columns| columns.slice(1, input, input + horizon));
        parts.extend(future.map(|columns| self.features(columns, "future")));
        parts.extend(x.repeated_statics(horizon).map(|columns| self.features(columns, "static")));
        let mut hidden = x.network.concat(&parts, 2);
        for layer in 0..self.layers {
            let name = format!("layer.{layer}");
            hidden = self.features(self.steps(hidden, &name), &name);
        }
        hidden.linear("head", x.outputs)
    }

    /// Mixes the steps of each feature of `[rows, steps, features]`.
    fn steps<'n>(&self, x: Tensor<'n>, name: &str) -> Tensor<'n> {
        let steps = x.size(1);
        let mixed = x.transpose().linear(&format!("{name}.steps"), steps).relu().dropout(self.dropout);
        normalized(x + mixed.transpose(), &format!("{name}.steps.norm"))
    }

    /// Mixes the features of each step: `[rows, steps, width]`. The residual is projected if the width changes.
    fn features<'n>(&self, x: Tensor<'n>, name: &str) -> Tensor<'n> {
        let hidden = x.linear(&format!("{name}.features.0"), self.feed_forward).relu().dropout(self.dropout);
        let mixed = hidden.linear(&format!("{name}.features.1"), self.width).dropout(self.dropout);
        let residual =
            if x.size(2) == self.width { x } else { x.linear(&format!("{name}.features.skip"), self.width) };
        normalized(residual + mixed, &format!("{name}.features.norm"))
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _: &BatchShape) -> Check {
        in_range("width", self.width, 1..=16_384)?;
        in_range("feed_forward", self.feed_forward, 1..=65_536)?;
        in_range("layers", self.layers, 1..=100)?;
        is_dropout("dropout", self.dropout)
    }
}

/// Layer normalisation over steps and features together.
fn normalized<'n>(x: Tensor<'n>, name: &str) -> Tensor<'n> {
    x.flatten().layer_norm(name).reshape(&x.sizes())
}
