//! DLinear (Zeng, Chen, Zhang, Xu: "Are transformers effective for time series forecasting?", AAAI 2023): the window is
//! split into a moving average and the remainder, and each is mapped to the horizon by a linear layer.

use serde::{Deserialize, Serialize};

use super::{Check, in_range, invalid};
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of DLinear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DLinear {
    /// Length of the moving average, odd.
    pub moving_average: usize,
}

impl Default for DLinear {
    fn default() -> DLinear {
        DLinear { moving_average: 25 }
    }
}

impl DLinear {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let trend = moving_average(x.past, self.moving_average);
        let season = x.past - trend;
        let forecast = x.forecast("season", season) + x.forecast("trend", trend);
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _shape: &BatchShape) -> Check {
        in_range("moving_average", self.moving_average, 1..=1000)?;
        if self.moving_average.is_multiple_of(2) {
            let problem = format!("moving_average is {}, but must be odd", self.moving_average);
            return invalid("moving_average", problem);
        }
        Ok(())
    }
}

/// Returns the moving average of `[rows, time]` over an odd number of steps. The window is padded with its first and last
/// value.
fn moving_average(x: Tensor<'_>, steps: usize) -> Tensor<'_> {
    let (rows, time, half) = (x.size(0), x.size(1), steps / 2);
    if half == 0 {
        return x;
    }
    let first = x.slice(1, 0, 1).expand(&[rows, half]);
    let last = x.slice(1, time - 1, time).expand(&[rows, half]);
    let padded = x.network().concat(&[first, x, last], 1);
    // A sum of shifted slices is vectorised over time.
    let sum = (1..steps).fold(padded.slice(1, 0, time), |sum, k| sum + padded.slice(1, k, k + time));
    sum / steps as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use gatework_engine::Program;

    #[test]
    fn the_moving_average_pads_with_the_end_values() {
        let network = Network::for_prediction();
        let average = moving_average(network.input("x", &[1, 4]), 3);
        let (graph, _) = network.finish(&[("average", average)]).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        runner.write("x", &[3.0f32, 6.0, 9.0, 0.0]).unwrap();
        runner.run();
        assert_eq!(runner.read::<f32>("average").unwrap(), [4.0, 6.0, 5.0, 3.0]);
    }
}
