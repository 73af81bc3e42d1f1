//! A Transformer encoder on patches (PatchTST; Nie, Nguyen, Sinthong, Kalagnanam: "A time series is worth 64 words:
//! long-term forecasting with transformers", ICLR 2023): the window is cut into overlapping patches, which are the tokens
//! of a Transformer encoder; a linear layer maps all tokens to the horizon. Windows are instance-normalised.
//!
//! The paper uses batch normalisation; here it is layer normalisation, which does not depend on other windows.

use gatework_engine::graph::Window;
use serde::{Deserialize, Serialize};

use super::{Check, in_range, invalid, is_dropout};
use crate::data::BatchShape;
use crate::network::inputs::Inputs;
use crate::network::{Initializer, Tensor};

/// Settings of the patch Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transformer {
    /// Steps per patch, at most the whole window.
    pub patch: usize,
    /// Stride of the patches, at most their size.
    pub stride: usize,
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
    /// Dropout rate before the head.
    pub head_dropout: f64,
}

impl Default for Transformer {
    fn default() -> Transformer {
        Transformer {
            patch: 16,
            stride: 8,
            width: 128,
            heads: 16,
            layers: 3,
            feed_forward: 256,
            dropout: 0.2,
            head_dropout: 0.0,
        }
    }
}

/// Maximum patch size.
const MAX_STEPS: usize = 10_000;

/// Bound of the initial positional embedding, as in the code of the paper.
const POSITION: f64 = 0.02;

impl Transformer {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        // [rows, tokens, patch] to [rows, tokens, width]
        let patches = self.patches(x);
        let tokens = self.tokens(x.shape.input);
        let position = x.network.parameter("position", &[tokens, self.width], Initializer::Uniform(POSITION));
        let mut hidden = (patches.linear("embedding", self.width) + position).dropout(self.dropout);
        for layer in 0..self.layers {
            let name = format!("layer.{layer}");
            hidden = hidden.encoder_layer(&name, self.heads, self.feed_forward, self.dropout);
        }
        let forecast = x.forecast("head", hidden.flatten().dropout(self.head_dropout));
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Returns overlapping patches of the window, padded by one stride with its last value.
    fn patches<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = x.shape;
        let window = self.window(input);
        if window.size == 1 {
            return x.past.unfold(window);
        }
        let last = x.past.slice(1, input - 1, input).expand(&[rows, window.stride]);
        x.network.concat(&[x.past, last], 1).unfold(window)
    }

    /// Returns the number of patches of a window.
    pub fn tokens(&self, input: usize) -> usize {
        let window = self.window(input);
        window.count(if window.size == 1 { input } else { input + window.stride })
    }

    /// Returns patch size and stride, limited to the window: the defaults are meant for long windows.
    fn window(&self, input: usize) -> Window {
        let size = self.patch.min(input);
        Window { size, stride: self.stride.min(size), dilation: 1 }
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _: &BatchShape) -> Check {
        in_range("patch", self.patch, 1..=MAX_STEPS)?;
        in_range("stride", self.stride, 1..=self.patch)?;
        in_range("width", self.width, 1..=16_384)?;
        in_range("heads", self.heads, 1..=self.width)?;
        if !self.width.is_multiple_of(self.heads) {
            let problem = format!("width is {}, which is not a multiple of {} heads", self.width, self.heads);
            return invalid("width", problem);
        }
        in_range("layers", self.layers, 1..=100)?;
        in_range("feed_forward", self.feed_forward, 1..=65_536)?;
        is_dropout("dropout", self.dropout)?;
        is_dropout("head_dropout", self.head_dropout)
    }
}
