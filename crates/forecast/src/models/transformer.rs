//! A Transformer encoder on patches (PatchTST; Nie, Nguyen, Sinthong, Kalagnanam: "A time series is worth 64 words:
//! long-term forecasting with transformers", ICLR 2023): the window is cut into overlapping patches, which attend to each
//! other; what comes of all of them is mapped to the horizon by one linear layer. Windows are normalised one by one.
//!
//! The norm is that of layers, where the paper has that of batches: its statistics do not depend on other windows.

use gatework_engine::graph::Window;
use serde::{Deserialize, Serialize};

use super::{Check, in_range, is_dropout};
use crate::data::BatchShape;
use crate::network::inputs::Inputs;
use crate::network::{Start, Tensor};

/// Settings of the patch Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transformer {
    /// Steps of a patch; all of the window if that has fewer.
    pub patch: usize,
    /// From one patch to the next; at most a patch.
    pub stride: usize,
    /// Numbers of a token.
    pub width: usize,
    /// Heads of the attention; they share the width.
    pub heads: usize,
    /// Layers of the encoder.
    pub layers: usize,
    /// Width between the two linear maps of a layer.
    pub feed_forward: usize,
    /// Share of the numbers that are dropped in training.
    pub dropout: f64,
    /// Share of the numbers before the last linear map that are dropped in training.
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

/// The longest patch.
const MOST_STEPS: usize = 10_000;

/// Bound of the start values of positions, as in the paper's code.
const POSITION: f64 = 0.02;

impl Transformer {
    /// The forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        // [rows, tokens, patch] to [rows, tokens, width]
        let patches = self.patches(x);
        let tokens = self.tokens(x.shape.input);
        let position = x.network.parameter("position", &[tokens, self.width], Start::Uniform(POSITION));
        let mut hidden = (patches.linear("embedding", self.width) + position).dropout(self.dropout);
        for layer in 0..self.layers {
            hidden = self.layer(hidden, &format!("layer.{layer}"));
        }
        let forecast = x.forecast("head", hidden.flatten().dropout(self.head_dropout));
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Overlapping patches of the window, which goes on with its last value for one stride.
    fn patches<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, .. } = x.shape;
        let window = self.window(input);
        if window.size == 1 {
            return x.past.unfold(window);
        }
        let last = x.past.slice(1, input - 1, input).expand(&[rows, window.stride]);
        x.network.concat(&[x.past, last], 1).unfold(window)
    }

    /// Patches of a window of so many steps.
    pub fn tokens(&self, input: usize) -> usize {
        let window = self.window(input);
        window.count(if window.size == 1 { input } else { input + window.stride })
    }

    /// Patches of a window of so many steps: the settings are those of the paper, whose windows are long.
    fn window(&self, input: usize) -> Window {
        let size = self.patch.min(input);
        Window { size, stride: self.stride.min(size), dilation: 1 }
    }

    /// Attention and two linear maps, each beside what went in.
    fn layer<'n>(&self, x: Tensor<'n>, name: &str) -> Tensor<'n> {
        let seen = x.self_attention(&format!("{name}.attention"), self.heads).dropout(self.dropout);
        let x = (x + seen).layer_norm(&format!("{name}.norm.0"));
        let thought = x.linear(&format!("{name}.feed.0"), self.feed_forward).gelu().dropout(self.dropout);
        let thought = thought.linear(&format!("{name}.feed.1"), self.width).dropout(self.dropout);
        (x + thought).layer_norm(&format!("{name}.norm.1"))
    }

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, _: &BatchShape) -> Check {
        in_range("patch", self.patch, 1..=MOST_STEPS)?;
        in_range("stride", self.stride, 1..=self.patch)?;
        in_range("width", self.width, 1..=16_384)?;
        in_range("heads", self.heads, 1..=self.width)?;
        if !self.width.is_multiple_of(self.heads) {
            return Err(format!("width is {}, which {} heads cannot share", self.width, self.heads));
        }
        in_range("layers", self.layers, 1..=100)?;
        in_range("feed_forward", self.feed_forward, 1..=65_536)?;
        is_dropout("dropout", self.dropout)?;
        is_dropout("head_dropout", self.head_dropout)
    }
}
