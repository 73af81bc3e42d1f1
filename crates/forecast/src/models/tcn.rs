//! A temporal convolutional network (Bai, Kolter, Koltun: "An empirical evaluation of generic convolutional and recurrent
//! networks for sequence modeling", 2018): residual blocks of two causal convolutions each, whose dilation doubles from
//! block to block, so that the receptive field grows exponentially. The weight normalisation of the paper is left out.

use serde::{Deserialize, Serialize};

use super::{Check, has_length, in_range, is_dropout};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Returns the last `steps` of `[rows, time, channels]`, or all if there are fewer.
fn last_steps(x: Tensor<'_>, steps: usize) -> Tensor<'_> {
    let time = x.size(1);
    if time <= steps { x } else { x.slice(1, time - steps, time) }
}

/// Settings of the temporal convolutional network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcn {
    /// Channels of each block.
    pub channels: Vec<usize>,
    /// Kernel size.
    pub kernel: usize,
    /// Dropout rate.
    pub dropout: f64,
}

impl Default for Tcn {
    fn default() -> Tcn {
        Tcn { channels: vec![32, 64, 128], kernel: 3, dropout: 0.2 }
    }
}

impl Tcn {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        // [rows, time, channels]
        let mut hidden = x.steps();
        for (block, &channels) in self.channels.iter().enumerate() {
            let seen = last_steps(hidden, self.receptive_field(block));
            hidden = self.block(seen, &format!("block.{block}"), channels, 1 << block);
        }
        let width = hidden.size(2);
        let last = last_steps(hidden, 1).reshape(&[x.shape.rows, width]);
        x.forecast("head", x.with_horizon(last))
    }

    /// Returns the receptive field, at the input of a block, of the last step of the output.
    fn receptive_field(&self, block: usize) -> usize {
        let reach = |block: usize| (2 * self.kernel.saturating_sub(1)).saturating_mul(1 << block);
        (block..self.channels.len()).map(reach).fold(1, usize::saturating_add)
    }

    /// Two convolutions with a residual connection.
    fn block<'n>(&self, x: Tensor<'n>, name: &str, channels: usize, dilation: usize) -> Tensor<'n> {
        let mut hidden = x;
        for layer in 0..2 {
            let name = format!("{name}.{layer}");
            let convolved = hidden.causal_convolution(&name, channels, self.kernel, dilation);
            hidden = convolved.relu().dropout(self.dropout);
        }
        let residual = if x.size(2) == channels { x } else { x.linear(&format!("{name}.beside"), channels) };
        (hidden + residual).relu()
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _shape: &BatchShape) -> Check {
        has_length("channels", self.channels.len(), 1..=16)?;
        for &channels in &self.channels {
            in_range("channels", channels, 1..=16_384)?;
        }
        in_range("kernel", self.kernel, 1..=1000)?;
        is_dropout("dropout", self.dropout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;
    use crate::network::Network;
    use gatework_engine::Program;

    /// Reference implementation: computes all steps of all blocks.
    fn from_every_step<'n>(tcn: &Tcn, x: &Inputs<'n>) -> Tensor<'n> {
        let mut hidden = x.steps();
        for (block, &channels) in tcn.channels.iter().enumerate() {
            hidden = tcn.block(hidden, &format!("block.{block}"), channels, 1 << block);
        }
        let width = hidden.size(2);
        x.forecast("head", x.with_horizon(last_steps(hidden, 1).reshape(&[x.shape.rows, width])))
    }

    #[test]
    fn steps_outside_the_receptive_field_have_no_effect() {
        let tcn = Tcn { channels: vec![3, 4, 4], kernel: 3, dropout: 0.0 };
        assert_eq!([0, 1, 2].map(|block| tcn.receptive_field(block)), [29, 25, 17]);
        for input in [7, 28, 29, 40] {
            let (past_columns, future_columns, static_columns) = (0, 0, 0);
            let shape =
                BatchShape { rows: 2, input, horizon: 3, past_columns, future_columns, static_columns };
            let network = Network::for_prediction();
            let x = Inputs::new(&network, shape, &Loss::Mse, false);
            let outputs = [("needed", tcn.forward(&x)), ("all", from_every_step(&tcn, &x))];
            let (graph, bindings) = network.finish(&outputs).unwrap();
            let mut runner = Program::new(&graph).unwrap().runner();
            let numbers =
                |count: usize| (0..count).map(|i| (i * 37 % 23) as f32 * 0.1 - 1.0).collect::<Vec<_>>();
            runner.write("past", &numbers(2 * input)).unwrap();
            for parameter in &bindings.parameters {
                runner.write(&parameter.name, &numbers(parameter.shape.iter().product())).unwrap();
            }
            runner.run();
            let (needed, all) = (runner.read::<f32>("needed").unwrap(), runner.read::<f32>("all").unwrap());
            assert!(all.iter().any(|&x| x != 0.0));
            for (a, b) in needed.iter().zip(all) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{input} steps: {a} for {b}");
            }
        }
    }
}
