//! NLinear (Zeng, Chen, Zhang, Xu: "Are transformers effective for time series forecasting?", AAAI 2023): the last
//! value is subtracted from the window, a linear layer maps the differences to the horizon, and the value is added back.

use serde::{Deserialize, Serialize};

use super::Check;
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// NLinear, which has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NLinear {}

impl NLinear {
    /// Returns the forecast, `[rows, horizon, outputs]`. The last value is handled by the default normalisation of the model.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let forecast = x.forecast("linear", x.past);
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, _shape: &BatchShape) -> Check {
        Ok(())
    }
}
