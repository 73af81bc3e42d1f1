//! Reversible instance normalisation (RevIN; Kim et al., ICLR 2022) as part of the graph: each window is normalised by
//! its own statistics before the model reads it, and the forecast is denormalised by the same statistics.

use serde::{Deserialize, Serialize};

use super::builder::Tensor;

/// Added to variances, so that constant windows do not divide by zero.
const EPSILON: f64 = 1e-5;

/// How a window is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Normalization {
    /// Windows are left unchanged.
    None,
    /// Mean 0 and standard deviation 1.
    Instance,
    /// The last value is subtracted.
    Last,
    /// Divided by one plus the mean absolute value (DeepAR). Keeps the sign, as counts require.
    Scale,
}

/// Statistics of each window, `[rows, 1]`. `None` stands for a centre of 0 or a scale of 1.
#[derive(Clone, Copy, Debug)]
pub struct InstanceStatistics<'n> {
    /// Subtracted by [`normalize`](Self::normalize).
    pub centre: Option<Tensor<'n>>,
    /// The divisor of [`normalize`](Self::normalize).
    pub scale: Option<Tensor<'n>>,
}

impl Normalization {
    /// Returns the statistics of windows, `[rows, time]`.
    pub fn statistics(self, past: Tensor<'_>) -> InstanceStatistics<'_> {
        let input = past.size(1);
        let (centre, scale) = match self {
            Normalization::None => (None, None),
            Normalization::Instance => (Some(past.mean(1)), Some((past.variance(1) + EPSILON).sqrt())),
            Normalization::Last => (Some(past.slice(1, input - 1, input)), None),
            Normalization::Scale => (None, Some(past.abs().mean(1) + 1.0)),
        };
        InstanceStatistics { centre, scale }
    }
}

impl<'n> InstanceStatistics<'n> {
    /// Normalises values, `[rows, time]`.
    pub fn normalize(&self, x: Tensor<'n>) -> Tensor<'n> {
        let centred = self.centre.map_or(x, |centre| x - centre);
        self.scale.map_or(centred, |scale| centred / scale)
    }

    /// Denormalises values, `[rows, time, outputs]`.
    pub fn denormalize(&self, x: Tensor<'n>) -> Tensor<'n> {
        let scaled = self.denormalize_scale(x);
        self.centre.map_or(scaled, |centre| scaled + per_step(centre))
    }

    /// Denormalises dispersions such as standard deviations, `[rows, time, outputs]`, which have no centre.
    pub fn denormalize_scale(&self, x: Tensor<'n>) -> Tensor<'n> {
        self.scale.map_or(x, |scale| x * per_step(scale))
    }
}

/// Reshapes `[rows, 1]` so that it broadcasts over steps and outputs.
pub(super) fn per_step(x: Tensor<'_>) -> Tensor<'_> {
    x.reshape(&[x.size(0), 1, 1])
}
