//! NLinear (Zeng, Chen, Zhang, Xu: "Are transformers effective for time series forecasting?", AAAI 2023): one linear map of
//! the window less its last value, which is added to the forecast again.

use serde::{Deserialize, Serialize};

use super::Check;
use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;

/// Settings of NLinear; there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NLinear {}

impl NLinear {
    /// The forecast, `[rows, horizon, outputs]`. The last value is taken off and added by the normalisation, which is that
    /// of the last value for this model.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let forecast = x.forecast("linear", x.past);
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, _shape: &BatchShape) -> Check {
        Ok(())
    }
}
