//! Trend and seasonality after Prophet (Taylor and Letham: "Forecasting at scale", The American Statistician 2018): the
//! sum of a piecewise linear trend, Fourier series of known periods, and a linear function of the covariates.
//!
//! Prophet fits the coefficients to one series. Here they are a linear function of the window, initialised with ridge
//! regression and then trained on all windows, so that it learns how to weight the past:
//!
//! ```text
//! coefficients = W window + b,   initially (A' A + ridge)^-1 A'
//! forecast     = B coefficients
//! ```
//!
//! A holds the basis functions at the steps of the window, B at those of the horizon.

use serde::{Deserialize, Serialize};

use super::{Check, has_length, in_range, invalid};
use crate::data::BatchShape;
use crate::network::distribution::Distribution;
use crate::network::inputs::Inputs;
use crate::network::{Initializer, Tensor};

/// Settings of the decomposition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decomposition {
    /// The seasons; if empty, one as long as the horizon.
    pub seasons: Vec<Season>,
    /// Number of changepoints of the trend in the window.
    pub changepoints: usize,
    /// Ridge penalty of the initial fit.
    pub ridge: f64,
}

/// A season.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Season {
    /// Period in steps.
    pub period: f64,
    /// Number of harmonics.
    #[serde(default = "default_order")]
    pub order: usize,
}

fn default_order() -> usize {
    3
}

impl Default for Decomposition {
    fn default() -> Decomposition {
        Decomposition { seasons: Vec::new(), changepoints: 3, ridge: 1.0 }
    }
}

/// Maximum number of multiplications in the initial fit.
const MAX_MULTIPLICATIONS: usize = 1_000_000_000;

/// Fraction of the window in which the slope may change, as in Prophet.
const CHANGEPOINT_RANGE: f64 = 0.8;

impl Decomposition {
    /// Returns the forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let functions = self.functions(0, &x.shape).len();
        let fit = self.least_squares(&x.shape);
        // Only the location is fitted; other outputs, such as a standard deviation, start at zero.
        let location = x.distribution.map(Distribution::location);
        let is_location = |output: usize| location.is_none_or(|location| location == output);
        let mut starts = Vec::with_capacity(input * x.outputs * functions);
        for step in fit.chunks(functions) {
            for output in 0..x.outputs {
                let factor = if is_location(output) { 1.0 } else { 0.0 };
                starts.extend(step.iter().map(|weight| (factor * weight) as f32));
            }
        }
        let sizes = [input, x.outputs * functions];
        let weight = x.network.parameter("coefficients.weight", &sizes, Initializer::Values(starts));
        let bias = x.network.parameter("coefficients.bias", &[sizes[1]], Initializer::Constant(0.0));
        let coefficients = x.past.matmul(weight) + bias;
        let ahead: Vec<f64> = (0..horizon).flat_map(|step| self.functions(input + step, &x.shape)).collect();
        let basis = x.network.data(&[horizon, functions], &ahead).transpose();
        let forecast = coefficients.reshape(&[rows, x.outputs, functions]).matmul(basis).transpose();
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// Returns the basis functions at a step, counted from the start of the window: level, slope, changes of slope, seasons.
    fn functions(&self, step: usize, shape: &BatchShape) -> Vec<f64> {
        let time = step as f64 / shape.input as f64;
        let mut values = vec![1.0, time];
        values.extend((0..self.changepoints).map(|i| {
            let place = CHANGEPOINT_RANGE * (i + 1) as f64 / (self.changepoints + 1) as f64;
            (time - place).max(0.0)
        }));
        let whole = [Season { period: shape.horizon.max(2) as f64, order: default_order() }];
        let seasons = if self.seasons.is_empty() { &whole[..] } else { &self.seasons };
        for season in seasons {
            for k in 1..=season.order {
                let turn = 2.0 * std::f64::consts::PI * k as f64 * step as f64 / season.period;
                values.extend([turn.sin(), turn.cos()]);
            }
        }
        values
    }

    /// Returns the linear map from a window to its coefficients, `[input, functions]`, by ridge regression.
    fn least_squares(&self, shape: &BatchShape) -> Vec<f64> {
        let rows: Vec<Vec<f64>> = (0..shape.input).map(|step| self.functions(step, shape)).collect();
        let count = self.functions(0, shape).len();
        let mut normal = vec![vec![0.0; count]; count];
        for row in &rows {
            for (i, line) in normal.iter_mut().enumerate() {
                line.iter_mut().zip(row).for_each(|(sum, x)| *sum += row[i] * x);
            }
        }
        for (i, line) in normal.iter_mut().enumerate() {
            // Level and slope are not penalised.
            line[i] += if i < 2 { 1e-6 } else { self.ridge };
        }
        let factor = cholesky(normal);
        rows.iter().flat_map(|row| solve(&factor, row)).collect()
    }

    /// Checks the settings for windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        has_length("seasons", self.seasons.len(), 0..=20)?;
        in_range("changepoints", self.changepoints, 0..=100)?;
        for season in &self.seasons {
            if !(1..=50).contains(&season.order) {
                return invalid("seasons", format!("an order is {}, but must be in 1 to 50", season.order));
            }
            if !(season.period >= 2.0 && season.period.is_finite()) {
                return invalid("seasons", format!("a period is {}, but must be at least 2", season.period));
            }
        }
        if !(self.ridge > 0.0 && self.ridge.is_finite()) {
            return invalid("ridge", format!("ridge is {}, but must be a number above 0", self.ridge));
        }
        let functions = self.functions(0, shape).len();
        if functions * functions * shape.input > MAX_MULTIPLICATIONS {
            let problem = format!("{functions} basis functions are too many for an input of {}", shape.input);
            return invalid("seasons", problem);
        }
        Ok(())
    }
}

/// Returns the lower triangle L with `L L' = matrix`, which is symmetric and positive definite.
fn cholesky(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for i in 0..matrix.len() {
        for j in 0..=i {
            let sum = matrix[i][j] - (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum::<f64>();
            matrix[i][j] = if i == j { sum.max(1e-300).sqrt() } else { sum / matrix[j][j] };
        }
    }
    matrix
}

/// Solves `L L' x = b`.
fn solve(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        let sum: f64 = (0..i).map(|k| factor[i][k] * x[k]).sum();
        x[i] = (x[i] - sum) / factor[i][i];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| factor[k][i] * x[k]).sum();
        x[i] = (x[i] - sum) / factor[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_fit_recovers_known_coefficients() {
        let model =
            Decomposition { seasons: vec![Season { period: 12.0, order: 2 }], changepoints: 0, ridge: 1e-6 };
        let shape = BatchShape { rows: 1, input: 48, horizon: 12, ..BatchShape::default() };
        let truth = [3.0, -2.0, 0.5, 1.0, 0.0, -0.25];
        let window: Vec<f64> = (0..48)
            .map(|step| model.functions(step, &shape).iter().zip(truth).map(|(f, c)| f * c).sum())
            .collect();
        let weights = model.least_squares(&shape);
        for (i, truth) in truth.iter().enumerate() {
            let found: f64 = weights.chunks(6).zip(&window).map(|(w, x)| w[i] * x).sum();
            assert!((found - truth).abs() < 1e-4, "coefficient {i}: {found} for {truth}");
        }
    }
}
