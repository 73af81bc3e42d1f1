//! NHITS (Challu, Olivares, Oreshkin, Garza, Mergenthaler, Dubrawski: "N-HiTS: neural hierarchical interpolation for time
//! series forecasting", AAAI 2023): N-BEATS with multi-rate stacks. A stack reads the pooled window and forecasts a few
//! knots, which are interpolated to the horizon.

use gatework_engine::graph::Window;
use serde::{Deserialize, Serialize};

use super::{Check, has_length, in_range, invalid, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of NHITS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nhits {
    /// Pooling size of each stack.
    pub pooling: Vec<usize>,
    /// Steps per knot of each stack.
    pub downsampling: Vec<usize>,
    /// Blocks per stack.
    pub blocks: usize,
    /// Fully connected layers per block.
    pub layers: usize,
    /// Width of the layers.
    pub width: usize,
    /// Pooling function.
    pub pool: Pool,
    /// Interpolation of knots.
    pub interpolation: Interpolation,
    /// Dropout rate between layers.
    pub dropout: f64,
}

/// A pooling function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// The maximum.
    Max,
    /// The mean.
    Average,
}

/// The interpolation of knots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interpolation {
    /// Piecewise linear.
    Linear,
    /// The nearest knot.
    Nearest,
}

/// Maximum of knots times steps.
const MAX_WEIGHTS: usize = 4_000_000;

impl Default for Nhits {
    fn default() -> Nhits {
        Nhits {
            pooling: vec![2, 2, 1],
            downsampling: vec![4, 2, 1],
            blocks: 1,
            layers: 2,
            width: 512,
            pool: Pool::Max,
            interpolation: Interpolation::Linear,
            dropout: 0.0,
        }
    }
}

impl Nhits {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, horizon, .. } = x.shape;
        let mut rest = x.past;
        let mut forecast = x.network.zeros(&[rows, horizon, x.outputs]);
        let stacks = self.pooling.len();
        for (stack, (&pooling, &downsampling)) in self.pooling.iter().zip(&self.downsampling).enumerate() {
            for block in 0..self.blocks {
                let name = format!("stack.{stack}.{block}");
                let hidden = self.hidden(x, self.pooled(rest, pooling), &name);
                forecast = forecast + self.interpolated(x, hidden, downsampling, &name);
                // The backcast of the last block is not used.
                if stack + 1 < stacks || block + 1 < self.blocks {
                    rest = rest - hidden.linear(&format!("{name}.backcast"), x.shape.input);
                }
            }
        }
        forecast
    }

    /// Pools the window.
    fn pooled<'n>(&self, rest: Tensor<'n>, steps: usize) -> Tensor<'n> {
        let window = Window { size: steps, stride: steps, dilation: 1 };
        match self.pool {
            _ if steps <= 1 => rest,
            Pool::Max => rest.max_pool(window),
            Pool::Average => rest.average_pool(window),
        }
    }

    fn hidden<'n>(&self, x: &Inputs<'n>, pooled: Tensor<'n>, name: &str) -> Tensor<'n> {
        let mut hidden = x.with_columns(pooled);
        for layer in 0..self.layers {
            hidden = hidden.linear(&format!("{name}.{layer}"), self.width).relu().dropout(self.dropout);
        }
        hidden
    }

    /// Returns the forecast of a block, interpolated to the horizon: `[rows, horizon, outputs]`.
    fn interpolated<'n>(
        &self,
        x: &Inputs<'n>,
        hidden: Tensor<'n>,
        downsampling: usize,
        name: &str,
    ) -> Tensor<'n> {
        let BatchShape { rows, horizon, .. } = x.shape;
        let knots = (horizon / downsampling.max(1)).max(1);
        let theta = hidden.linear(&format!("{name}.forecast"), x.outputs * knots);
        let theta = theta.reshape(&[rows, x.outputs, knots]);
        let steps = match self.interpolation {
            _ if knots == horizon => theta,
            Interpolation::Linear => {
                theta.matmul(x.network.data(&[knots, horizon], &weights(knots, horizon, true)))
            }
            Interpolation::Nearest => {
                theta.matmul(x.network.data(&[knots, horizon], &weights(knots, horizon, false)))
            }
        };
        steps.transpose()
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        has_length("pooling", self.pooling.len(), 1..=100)?;
        if self.pooling.len() != self.downsampling.len() {
            let (pooling, downsampling) = (self.pooling.len(), self.downsampling.len());
            let problem = format!("pooling has {pooling} entries, but downsampling has {downsampling}");
            return invalid("downsampling", problem);
        }
        for &pooling in &self.pooling {
            in_range("pooling", pooling, 1..=shape.input)?;
        }
        for &downsampling in &self.downsampling {
            in_range("downsampling", downsampling, 1..=100_000)?;
            let knots = shape.horizon / downsampling;
            if downsampling > 1 && knots * shape.horizon > MAX_WEIGHTS {
                let problem = format!("downsampling is {downsampling}, which is too small for this horizon");
                return invalid("downsampling", problem);
            }
        }
        in_range("blocks", self.blocks, 1..=100)?;
        in_range("layers", self.layers, 1..=100)?;
        in_range("width", self.width, 1..=65_536)?;
        is_dropout("dropout", self.dropout)
    }
}

/// Returns the interpolation weights, `[knots, steps]`. Each knot is at the centre of its segment of the horizon; values are
/// constant before the first and after the last knot.
fn weights(knots: usize, steps: usize, linear: bool) -> Vec<f64> {
    let mut weights = vec![0.0; knots * steps];
    for step in 0..steps {
        let at = ((step as f64 + 0.5) * knots as f64 / steps as f64 - 0.5).clamp(0.0, (knots - 1) as f64);
        let (left, fraction) = if linear { (at.floor(), at - at.floor()) } else { (at.round(), 0.0) };
        let right = (left as usize + 1).min(knots - 1);
        weights[left as usize * steps + step] += 1.0 - fraction;
        weights[right * steps + step] += fraction;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use gatework_engine::Program;

    #[test]
    fn interpolation_by_weights_equals_that_of_the_engine() {
        for (knots, steps) in [(1, 5), (3, 12), (4, 24), (5, 7)] {
            let network = Network::for_prediction();
            let x = network.input("x", &[2, knots]);
            let ours = x.matmul(network.data(&[knots, steps], &weights(knots, steps, true)));
            let (graph, _) = network.finish(&[("ours", ours), ("engine", x.interpolate(steps))]).unwrap();
            let mut runner = Program::new(&graph).unwrap().runner();
            let values: Vec<f32> = (0..2 * knots).map(|i| (i * i % 7) as f32).collect();
            runner.write("x", &values).unwrap();
            runner.run();
            let (ours, engine) = (runner.read::<f32>("ours").unwrap(), runner.read::<f32>("engine").unwrap());
            assert!(ours.iter().zip(engine).all(|(a, b)| (a - b).abs() < 1e-5), "{ours:?} {engine:?}");
        }
    }
}
