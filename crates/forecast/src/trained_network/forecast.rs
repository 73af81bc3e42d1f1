//! Forecasts in the units of the model: points, quantiles, distribution parameters or samples.

use crate::network::distribution::Distribution;

/// The meaning of the numbers of a forecast.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ForecastKind {
    /// One value per step.
    Point,
    /// One value per step and quantile level.
    Quantiles(Vec<f64>),
    /// The parameters of a distribution.
    Distribution(Distribution),
    /// Samples of the distribution in ascending order.
    Samples,
}

/// Forecasts for the windows of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Number of windows.
    pub rows: usize,
    /// Number of steps.
    pub horizon: usize,
    /// Numbers per step.
    pub outputs: usize,
    /// Meaning of these numbers.
    pub kind: ForecastKind,
    /// `[rows, horizon, outputs]`.
    pub values: Vec<f32>,
}

impl Forecast {
    /// Returns a forecast without rows, to be filled by [`TrainedNetwork::predict_into`](crate::TrainedNetwork::predict_into).
    pub fn empty() -> Forecast {
        Forecast { rows: 0, horizon: 0, outputs: 0, kind: ForecastKind::Point, values: Vec::new() }
    }

    /// Returns the numbers of one step.
    pub fn step(&self, row: usize, step: usize) -> &[f32] {
        &self.values[(row * self.horizon + step) * self.outputs..][..self.outputs]
    }

    /// Returns the point forecast of a step: the mean of a distribution or of samples, or the median of quantiles. If all
    /// quantile levels are on one side of 0.5, the nearest one is taken.
    pub fn point(&self, row: usize, step: usize) -> f64 {
        let values = self.step(row, step);
        match &self.kind {
            ForecastKind::Point => f64::from(values[0]),
            ForecastKind::Quantiles(levels) => interpolate(values, median_position(levels)),
            ForecastKind::Distribution(distribution) => distribution.mean(values),
            ForecastKind::Samples => values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64,
        }
    }

    /// Returns a quantile of a step, or `None` if the forecast does not determine it. Quantiles are interpolated between
    /// the trained levels and never extrapolated.
    pub fn quantile(&self, row: usize, step: usize, level: f64) -> Option<f64> {
        let values = self.step(row, step);
        match &self.kind {
            _ if !(level > 0.0 && level < 1.0) => None,
            ForecastKind::Point => None,
            ForecastKind::Quantiles(levels) => {
                position(levels, level).map(|place| interpolate(values, place))
            }
            ForecastKind::Distribution(distribution) => Some(distribution.quantile(values, level)),
            ForecastKind::Samples => {
                let place = level * values.len() as f64 - 0.5;
                let left = place.floor().clamp(0.0, (values.len() - 1) as f64);
                let right = (left + 1.0).min((values.len() - 1) as f64);
                let fraction = (place - left).clamp(0.0, 1.0);
                let at = |place: f64| f64::from(values[place as usize]);
                Some(at(left) + fraction * (at(right) - at(left)))
            }
        }
    }
}

/// Tolerance within which two quantile levels are equal: levels are computed from interval levels.
const LEVEL_TOLERANCE: f64 = 1e-9;

/// The position of a level between two quantile levels: their indices, and the fraction of the way from one to the other.
type Position = (usize, usize, f64);

/// Returns the position of a level; `None` if it is outside the levels.
fn position(levels: &[f64], level: f64) -> Option<Position> {
    let right = levels.iter().position(|&known| known >= level - LEVEL_TOLERANCE)?;
    if (levels[right] - level).abs() <= LEVEL_TOLERANCE {
        return Some((right, right, 0.0));
    }
    let left = right.checked_sub(1)?;
    Some((left, right, (level - levels[left]) / (levels[right] - levels[left])))
}

/// Returns the position of the median, or of the nearest level if all levels are on one side of it.
pub(crate) fn median_position(levels: &[f64]) -> Position {
    let below = levels.iter().all(|&level| level < 0.5);
    let nearest = if below { levels.len().saturating_sub(1) } else { 0 };
    position(levels, 0.5).unwrap_or((nearest, nearest, 0.0))
}

/// Interpolates between quantiles. Quantiles are trained independently and can cross, so their values are sorted first
/// (V. Chernozhukov, I. Fernandez-Val, A. Galichon, "Quantile and probability curves without crossing", 2010).
fn interpolate(values: &[f32], (left, right, fraction): Position) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let [left, right] = [left, right].map(|index| f64::from(sorted[index]));
    left + fraction * (right - left)
}
