//! N-BEATS (Oreshkin, Carpov, Chapados, Bengio: "N-BEATS: neural basis expansion analysis for interpretable time series
//! forecasting", ICLR 2020): blocks of fully connected layers. Each subtracts its backcast from the window,
//! passes on the remainder, and adds to the forecast.
//!
//! ```text
//! h = relu(W relu(.. x)),   theta = W h
//! backcast, forecast = basis(theta)
//! x <- x - backcast,        y <- y + forecast
//! ```
//!
//! Generic blocks have the identity as their basis. Interpretable ones have polynomials of time (trend) or sines and
//! cosines (seasonality).

use serde::{Deserialize, Serialize};

use super::{Check, has_length, in_range, invalid};
use crate::data::BatchShape;
use crate::network::inputs::Inputs;
use crate::network::{Network, Tensor};

/// Settings of N-BEATS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NBeats {
    /// The stacks, in order.
    pub stacks: Vec<Stack>,
}

/// A stack of blocks with one basis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stack {
    /// Basis of its blocks.
    pub basis: Basis,
    /// Number of blocks.
    pub blocks: usize,
    /// Fully connected layers per block.
    pub layers: usize,
    /// Width of the layers.
    pub width: usize,
    /// Whether the blocks share their weights.
    pub shared: bool,
}

/// The basis of the blocks of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The identity: any function.
    Generic,
    /// A polynomial of time, of degree 2.
    Trend,
    /// Sines and cosines: all harmonics that fit the horizon.
    Seasonality,
}

/// Maximum number of basis function values.
const MAX_VALUES: usize = 4_000_000;

/// Degree of the trend polynomial.
const DEGREE: usize = 2;

impl Default for Stack {
    fn default() -> Stack {
        Stack { basis: Basis::Generic, blocks: 1, layers: 4, width: 512, shared: false }
    }
}

impl Default for NBeats {
    /// The generic architecture: 30 blocks.
    fn default() -> NBeats {
        NBeats { stacks: vec![Stack { blocks: 30, ..Stack::default() }] }
    }
}

impl NBeats {
    /// The interpretable architecture of the paper: a trend, then a seasonality.
    pub fn interpretable() -> NBeats {
        let stack = |basis, width| Stack { basis, blocks: 3, width, shared: true, ..Stack::default() };
        NBeats { stacks: vec![stack(Basis::Trend, 256), stack(Basis::Seasonality, 2048)] }
    }

    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let mut rest = x.past;
        let mut forecast = x.network.zeros(&[x.shape.rows, x.shape.horizon, x.outputs]);
        let blocks: usize = self.stacks.iter().map(|stack| stack.blocks).sum();
        let mut last = 0;
        for (index, stack) in self.stacks.iter().enumerate() {
            for block in 0..stack.blocks {
                let name =
                    if stack.shared { format!("stack.{index}") } else { format!("stack.{index}.{block}") };
                last += 1;
                let (backcast, part) = stack.block(x, rest, &name, last == blocks && !stack.shared);
                rest = backcast.map_or(rest, |backcast| rest - backcast);
                forecast = forecast + part;
            }
        }
        forecast
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        let long = shape.horizon * (shape.horizon + shape.input) > MAX_VALUES;
        if long && self.stacks.iter().any(|stack| stack.basis == Basis::Seasonality) {
            return invalid(
                "stacks",
                "input and horizon are too long for a seasonality basis of all harmonics",
            );
        }
        has_length("stacks", self.stacks.len(), 1..=100)?;
        for stack in &self.stacks {
            in_range("blocks", stack.blocks, 1..=100)?;
            in_range("layers", stack.layers, 1..=100)?;
            in_range("width", stack.width, 1..=65_536)?;
        }
        Ok(())
    }
}

impl Stack {
    /// Returns the backcast of a block, unless it is the last one, and its contribution to the forecast.
    fn block<'n>(
        &self,
        x: &Inputs<'n>,
        rest: Tensor<'n>,
        name: &str,
        last: bool,
    ) -> (Option<Tensor<'n>>, Tensor<'n>) {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let mut hidden = x.with_columns(rest);
        for layer in 0..self.layers {
            hidden = hidden.linear(&format!("{name}.{layer}"), self.width).relu();
        }
        // A basis has one row per coefficient.
        let bases = self.basis.rows(x.network, input, horizon);
        let expand = |part: &str, basis: Option<Tensor<'n>>, steps: usize, outputs: usize| {
            let name = format!("{name}.{part}");
            match basis {
                None => hidden.linear(&name, steps * outputs).reshape(&[rows, steps, outputs]),
                Some(basis) => {
                    let coefficients = hidden.linear_without_bias(&name, outputs * basis.size(0));
                    let coefficients = coefficients.reshape(&[rows, outputs, basis.size(0)]);
                    coefficients.matmul(basis).transpose()
                }
            }
        };
        let (past, future) = bases.map_or((None, None), |(past, future)| (Some(past), Some(future)));
        let backcast = (!last).then(|| expand("backcast", past, input, 1).reshape(&[rows, input]));
        (backcast, expand("forecast", future, horizon, x.outputs))
    }
}

impl Basis {
    /// Returns the basis functions of the window, `[functions, input]`, and of the horizon, `[functions, horizon]`.
    fn rows(self, network: &Network, input: usize, horizon: usize) -> Option<(Tensor<'_>, Tensor<'_>)> {
        let functions: Vec<Box<dyn Fn(f64) -> f64>> = match self {
            Basis::Generic => return None,
            Basis::Trend => (0..=DEGREE as i32).map(|p| Box::new(move |t: f64| t.powi(p)) as _).collect(),
            Basis::Seasonality => harmonics(horizon),
        };
        let table = |steps: usize| {
            let at = |i: usize| i as f64 / steps as f64;
            let values: Vec<f64> =
                functions.iter().flat_map(|function| (0..steps).map(move |i| function(at(i)))).collect();
            network.data(&[functions.len(), steps], &values)
        };
        Some((table(input), table(horizon)))
    }
}

/// Returns cosines and sines of 0 to `horizon / 2 - 1` turns.
fn harmonics(horizon: usize) -> Vec<Box<dyn Fn(f64) -> f64>> {
    let turns = (0..(horizon / 2).max(1)).map(|k| 2.0 * std::f64::consts::PI * k as f64);
    turns
        .flat_map(|turn| {
            let cosine: Box<dyn Fn(f64) -> f64> = Box::new(move |t: f64| (turn * t).cos());
            let sine: Box<dyn Fn(f64) -> f64> = Box::new(move |t: f64| (turn * t).sin());
            if turn == 0.0 { vec![cosine] } else { vec![cosine, sine] }
        })
        .collect()
}
