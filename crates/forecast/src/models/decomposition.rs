//! Trend and seasonality, after Prophet (Taylor and Letham: "Forecasting at scale", The American Statistician 2018): a
//! forecast is a sum of a trend in pieces of lines, of seasons as Fourier series of known periods, and of what the columns
//! add, all of it linear.
//!
//! Prophet fits the coefficients to one series. Here they are a linear function of the window, which starts as the fit
//! by least squares and is then trained on all windows, so that it learns which part of the past to trust:
//!
//! ```text
//! coefficients = W window + b,   W starts as (A' A + ridge)^-1 A'
//! forecast     = B coefficients
//! ```
//!
//! A has the basis functions at the steps of the window, B at those of the horizon.

use serde::{Deserialize, Serialize};

use super::{Check, in_range};
use crate::data::BatchShape;
use crate::network::distribution::Distribution;
use crate::network::inputs::Inputs;
use crate::network::{Start, Tensor};

/// Settings of the decomposition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decomposition {
    /// The seasons; if there are none, one as long as the horizon.
    pub seasons: Vec<Season>,
    /// Places in the window at which the slope of the trend may change.
    pub changepoints: usize,
    /// How much squares of coefficients count beside squares of errors in the fit that training starts from.
    pub ridge: f64,
}

/// A season.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Season {
    /// Steps until it repeats.
    pub period: f64,
    /// Sines and cosines that it is made of.
    #[serde(default = "usual_order")]
    pub order: usize,
}

fn usual_order() -> usize {
    3
}

impl Default for Decomposition {
    fn default() -> Decomposition {
        Decomposition { seasons: Vec::new(), changepoints: 3, ridge: 1.0 }
    }
}

/// Products at most of the fit that training starts from.
const MOST_PRODUCTS: usize = 1_000_000_000;

/// Share of the window in which the slope may change, as in Prophet.
const CHANGEPOINT_RANGE: f64 = 0.8;

impl Decomposition {
    /// The forecast, `[rows, horizon, outputs]`.
    pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
        let BatchShape { rows, input, horizon, .. } = x.shape;
        let functions = self.functions(0, &x.shape).len();
        let fit = self.least_squares(&x.shape);
        // The fit is that of the level; other outputs, such as a deviation, start from nothing.
        let level = x.distribution.map(Distribution::level);
        let is_level = |output: usize| level.is_none_or(|level| level == output);
        let mut starts = Vec::with_capacity(input * x.outputs * functions);
        for step in fit.chunks(functions) {
            for output in 0..x.outputs {
                let factor = if is_level(output) { 1.0 } else { 0.0 };
                starts.extend(step.iter().map(|weight| (factor * weight) as f32));
            }
        }
        let sizes = [input, x.outputs * functions];
        let weight = x.network.parameter("coefficients.weight", &sizes, Start::Values(starts));
        let bias = x.network.parameter("coefficients.bias", &[sizes[1]], Start::Constant(0.0));
        let coefficients = x.past.matmul(weight) + bias;
        let ahead: Vec<f64> = (0..horizon).flat_map(|step| self.functions(input + step, &x.shape)).collect();
        let basis = x.network.data(&[horizon, functions], &ahead).transpose();
        let forecast = coefficients.reshape(&[rows, x.outputs, functions]).matmul(basis).transpose();
        x.columns_forecast("columns").map_or(forecast, |columns| forecast + columns)
    }

    /// The basis functions at a step, counted from the begin of the window: level, slope, changes of slope, seasons.
    fn functions(&self, step: usize, shape: &BatchShape) -> Vec<f64> {
        let time = step as f64 / shape.input as f64;
        let mut values = vec![1.0, time];
        values.extend((0..self.changepoints).map(|i| {
            let place = CHANGEPOINT_RANGE * (i + 1) as f64 / (self.changepoints + 1) as f64;
            (time - place).max(0.0)
        }));
        let whole = [Season { period: shape.horizon.max(2) as f64, order: usual_order() }];
        let seasons = if self.seasons.is_empty() { &whole[..] } else { &self.seasons };
        for season in seasons {
            for k in 1..=season.order {
                let turn = 2.0 * std::f64::consts::PI * k as f64 * step as f64 / season.period;
                values.extend([turn.sin(), turn.cos()]);
            }
        }
        values
    }

    /// The linear map from a window to its coefficients, `[input, functions]`, by least squares with a ridge.
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
            // The level and the slope are free.
            line[i] += if i < 2 { 1e-6 } else { self.ridge };
        }
        let factor = cholesky(normal);
        rows.iter().flat_map(|row| solve(&factor, row)).collect()
    }

    /// Whether the settings fit windows of these sizes.
    pub fn check(&self, shape: &BatchShape) -> Check {
        in_range("the number of seasons", self.seasons.len(), 0..=20)?;
        in_range("changepoints", self.changepoints, 0..=100)?;
        for season in &self.seasons {
            in_range("order", season.order, 1..=50)?;
            if !(season.period >= 2.0 && season.period.is_finite()) {
                return Err(format!("a period is {}, but must be at least 2", season.period));
            }
        }
        if !(self.ridge > 0.0 && self.ridge.is_finite()) {
            return Err(format!("ridge is {}, but must be a number above 0", self.ridge));
        }
        let functions = self.functions(0, shape).len();
        if functions * functions * shape.input > MOST_PRODUCTS {
            return Err(format!("{functions} basis functions are too many for windows of {}", shape.input));
        }
        Ok(())
    }
}

/// The lower triangle L with `L L' = matrix`, which is symmetric and positive definite.
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
    fn the_fit_recovers_what_a_window_is_made_of() {
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
