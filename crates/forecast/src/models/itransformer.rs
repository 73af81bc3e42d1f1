//! iTransformer (Liu, Hu, Zhang, Wu, Wang, Ma, Long: "iTransformer: inverted transformers are effective for time series forecasting",
//! ICLR 2024): the window of each variate is one token, attention is between variates, and a linear layer maps the token of the
//! target to the horizon.
//!
//! The variates of a window are its values and its covariates. Known-future covariates are embedded with their horizon. Without
//! any covariates there is one token, and the model is a residual network of dense layers.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, invalid, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of iTransformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ITransformer {
    /// Width of a token.
    pub width: usize,
    /// Attention heads; the width must be a multiple of them.
    pub heads: usize,
    /// Encoder layers.
    pub layers: usize,
    /// Width of the feed-forward layers.
    pub feed_forward: usize,
    /// Dropout rate.
    pub dropout: f64,
}

impl Default for ITransformer {
    fn default() -> ITransformer {
        ITransformer { width: 256, heads: 8, layers: 2, feed_forward: 256, dropout: 0.1 }
    }
}

impl ITransformer {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, static_columns, .. } = x.shape;
        // [rows, variates, input] to [rows, variates, width]
        let mut observed = vec![x.past.reshape(&[rows, 1, input])];
        observed.extend(x.past_columns.map(Tensor::transpose));
        let mut tokens = vec![x.network.concat(&observed, 1).linear("embedding", self.width)];
        tokens.extend(x.future_columns.map(|columns| columns.transpose().linear("future", self.width)));
        let fixed = x.static_columns.map(|columns| columns.reshape(&[rows, 1, static_columns]));
        tokens.extend(fixed.map(|columns| columns.linear("static", self.width)));
        let mut hidden = x.network.concat(&tokens, 1).dropout(self.dropout);
        for layer in 0..self.layers {
            let name = format!("layer.{layer}");
            hidden = hidden.encoder_layer(&name, self.heads, self.feed_forward, self.dropout);
        }
        x.forecast("head", hidden.slice(1, 0, 1).reshape(&[rows, self.width]))
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _: &BatchShape) -> Check {
        in_range("width", self.width, 1..=16_384)?;
        in_range("heads", self.heads, 1..=self.width)?;
        if !self.width.is_multiple_of(self.heads) {
            let problem = format!("width is {}, which is not a multiple of {} heads", self.width, self.heads);
            return invalid("width", problem);
        }
        in_range("layers", self.layers, 1..=100)?;
        in_range("feed_forward", self.feed_forward, 1..=65_536)?;
        is_dropout("dropout", self.dropout)
    }
}
