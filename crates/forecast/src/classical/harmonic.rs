//! Dynamic harmonic regression (Hyndman and Athanasopoulos, chapter 10): Fourier terms of every season, a trend and the
//! known-future covariates by least squares, with autoregressive errors.
//!
//! It has any number of seasons of any length, also fractional ones (a year of 365.25 days), and measures the effect of
//! promotions or holidays. On the logarithm, effects are factors.

use super::History;
use super::least_squares::{Regression, aicc};

/// The largest order of a Fourier series.
const MAX_ORDER: usize = 10;

/// The largest number of lags of the errors.
const MAX_LAGS: usize = 14;

/// Ridge on covariates and Fourier terms, relative to the mean square of a column.
const RIDGE: f64 = 1e-6;

/// A fitted regression.
#[derive(Clone, Debug, PartialEq)]
pub struct Harmonic {
    /// Whether it is fitted to the logarithm.
    pub logarithm: bool,
    /// Added before the logarithm.
    pub shift: f64,
    /// Period and order of each season.
    pub fourier: Vec<(f64, usize)>,
    /// Whether there is a linear trend.
    pub trend: bool,
    /// Number of covariates.
    pub covariates: usize,
    /// Coefficients of the columns.
    pub coefficients: Vec<f64>,
    /// Coefficients of the errors at lags 1, 2, ...
    pub errors: Vec<f64>,
    /// Length of the history of the fit: the unit of the trend.
    pub length: usize,
}

impl std::fmt::Display for Harmonic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "regression{}", if self.logarithm { " of the logarithm" } else { "" })?;
        for (period, order) in self.fourier.iter().filter(|(_, order)| *order > 0) {
            write!(f, ", season {period} of order {order}")?;
        }
        if self.trend {
            write!(f, ", trend")?;
        }
        if self.covariates > 0 {
            write!(f, ", {} covariate{}", self.covariates, if self.covariates == 1 { "" } else { "s" })?;
        }
        write!(f, ", AR({}) errors", self.errors.len())
    }
}

impl Harmonic {
    /// Chooses the terms by AICc and fits them; `None` if the history is too short, or on the logarithm of negative values.
    pub fn fit(history: &History<'_>, logarithm: bool) -> Option<Harmonic> {
        let values = history.values;
        let shift = if logarithm { shift(values)? } else { 0.0 };
        let transformed: Vec<f64> =
            values.iter().map(|y| if logarithm { (y + shift).ln() } else { *y }).collect();
        if values.len() < 12 {
            return None;
        }
        let mut model = Harmonic {
            logarithm,
            shift,
            fourier: Vec::new(),
            trend: false,
            covariates: history.columns,
            coefficients: Vec::new(),
            errors: Vec::new(),
            length: values.len(),
        };
        let mut best = model.least_squares(history, &transformed, &[]);
        if values.len() >= 30 {
            model.trend = true;
            let with = model.least_squares(history, &transformed, &[]);
            if with.1 < best.1 { best = with } else { model.trend = false }
        }
        for &period in history.seasons {
            if (values.len() as f64) < 2.0 * period {
                continue;
            }
            model.fourier.push((period, 0));
            let place = model.fourier.len() - 1;
            let longest = ((period / 2.0) as usize).min(MAX_ORDER);
            let mut order_of_best = 0;
            for order in 1..=longest {
                model.fourier[place].1 = order;
                let with = model.least_squares(history, &transformed, &[]);
                if with.1 < best.1 {
                    (best, order_of_best) = (with, order);
                }
            }
            model.fourier[place].1 = order_of_best;
        }
        model.coefficients = best.0?;
        // One step of generalised least squares: errors, their autoregression, and the regression of what it leaves.
        for _ in 0..2 {
            let errors = model.residuals(history, &transformed);
            model.errors = autoregression(&errors);
            let filter = model.errors.clone();
            if let Some(coefficients) = model.least_squares(history, &transformed, &filter).0 {
                model.coefficients = coefficients;
            }
        }
        model.errors = autoregression(&model.residuals(history, &transformed));
        Some(model)
    }

    /// Writes the columns of a position.
    fn row(&self, history: &History<'_>, position: usize, row: &mut Vec<f64>) {
        row.clear();
        row.push(1.0);
        if self.trend {
            row.push(position as f64 / self.length as f64 - 0.5);
        }
        for (period, order) in &self.fourier {
            for k in 1..=*order {
                let angle = (position as f64 / period * k as f64).fract() * std::f64::consts::TAU;
                row.push(angle.sin());
                // The sine of the highest order of an even season is 0 everywhere, the cosine is not.
                row.push(angle.cos());
            }
        }
        row.extend((0..self.covariates).map(|column| history.covariate(position, column)));
    }

    /// Returns the coefficients and AICc after filtering rows by an autoregression of the errors.
    fn least_squares(&self, history: &History<'_>, y: &[f64], filter: &[f64]) -> (Option<Vec<f64>>, f64) {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(y.len());
        for position in 0..y.len() {
            let mut row = Vec::new();
            self.row(history, position, &mut row);
            rows.push(row);
        }
        let columns = rows.first().map_or(0, Vec::len);
        let mut regression = Regression::new(columns);
        for position in filter.len()..y.len() {
            let mut row = rows[position].clone();
            let mut target = y[position];
            for (lag, c) in filter.iter().enumerate() {
                target -= c * y[position - lag - 1];
                row.iter_mut().zip(&rows[position - lag - 1]).for_each(|(x, before)| *x -= c * before);
            }
            regression.add(&row, target);
        }
        match regression.solve(columns, RIDGE) {
            Some((solution, error)) => (Some(solution), aicc(regression.rows(), error, columns)),
            None => (None, f64::INFINITY),
        }
    }

    /// Returns the fitted value at a position, without the errors.
    fn fitted(&self, history: &History<'_>, position: usize, row: &mut Vec<f64>) -> f64 {
        self.row(history, position, row);
        row.iter().zip(&self.coefficients).map(|(x, c)| x * c).sum()
    }

    fn residuals(&self, history: &History<'_>, y: &[f64]) -> Vec<f64> {
        let mut row = Vec::new();
        y.iter().enumerate().map(|(position, y)| y - self.fitted(history, position, &mut row)).collect()
    }

    /// Forecasts the steps after a history. The trend ends with the history of the fit.
    pub fn forecast(&self, history: &History<'_>, horizon: usize) -> Vec<f64> {
        let n = history.values.len();
        let lags = self.errors.len().min(n);
        let mut row = Vec::new();
        let transform = |y: f64| if self.logarithm { (y + self.shift).max(1e-9).ln() } else { y };
        let mut errors: Vec<f64> = (n - lags..n)
            .map(|position| transform(history.values[position]) - self.fitted(history, position, &mut row))
            .collect();
        (0..horizon)
            .map(|step| {
                let recent = errors.iter().rev();
                let error: f64 = self.errors.iter().zip(recent).map(|(c, error)| c * error).sum();
                errors.push(error);
                let value = self.fitted(history, n + step, &mut row) + error;
                if self.logarithm { value.min(80.0).exp() - self.shift } else { value }
            })
            .collect()
    }
}

/// Returns what is added before the logarithm: nothing for positive values, a part of the mean for counts with zeros.
/// `None` if there are negative values or nothing else than zeros.
fn shift(values: &[f64]) -> Option<f64> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let centre = values.iter().sum::<f64>() / values.len() as f64;
    if least < 0.0 || centre <= 0.0 {
        return None;
    }
    // Close to zero, the logarithm would exaggerate differences.
    Some(if least > 0.05 * centre { 0.0 } else { 0.1 * centre })
}

/// Returns the coefficients of the autoregression of residuals, with its order by AICc. Coefficients are damped until they
/// do not explode.
fn autoregression(errors: &[f64]) -> Vec<f64> {
    let lags = MAX_LAGS.min(errors.len() / 5);
    let mut regression = Regression::new(lags);
    let mut row = vec![0.0; lags];
    for place in lags..errors.len() {
        row.iter_mut().enumerate().for_each(|(lag, x)| *x = errors[place - lag - 1]);
        regression.add(&row, errors[place]);
    }
    let fits = (0..=lags).filter_map(|count| {
        let (coefficients, error) = regression.solve(count, RIDGE)?;
        Some((aicc(regression.rows(), error, count), coefficients))
    });
    let best = fits.min_by(|a, b| a.0.total_cmp(&b.0));
    let mut coefficients = best.map_or_else(Vec::new, |(_, coefficients)| coefficients);
    while explodes(&coefficients) {
        let mut factor = 1.0;
        for c in &mut coefficients {
            factor *= 0.98;
            *c *= factor;
        }
    }
    coefficients
}

/// Returns whether the response to one error grows.
fn explodes(coefficients: &[f64]) -> bool {
    let mut response = vec![1.0];
    for _ in 0..400 {
        let next: f64 = coefficients.iter().zip(response.iter().rev()).map(|(c, x)| c * x).sum();
        response.push(next);
    }
    !response.iter().all(|x| x.abs() < 50.0) || response[response.len() - 20..].iter().any(|x| x.abs() > 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seasons_of_any_length_and_promotions_are_continued() {
        let promoted = |i: usize| f64::from(u8::from(i * 13 % 29 < 4));
        let covariates: Vec<f64> = (0..830).map(promoted).collect();
        let truth = |i: usize| {
            let angle = i as f64 * std::f64::consts::TAU;
            100.0 + 10.0 * (angle / 7.0).sin() + 20.0 * (angle / 182.625).cos() + 30.0 * promoted(i)
        };
        let values: Vec<f64> = (0..800).map(truth).collect();
        let history =
            History { values: &values, covariates: &covariates, columns: 1, seasons: &[7.0, 182.625] };
        let model = Harmonic::fit(&history, false).unwrap();
        for (step, value) in model.forecast(&history, 30).into_iter().enumerate() {
            assert!((value - truth(800 + step)).abs() < 0.5, "{step}: {value}, {model}");
        }
        // On the logarithm the effect is a factor.
        let values: Vec<f64> = (0..800).map(|i| 50.0 * (1.0 + promoted(i))).collect();
        let history = History { values: &values, ..history };
        let forecast = Harmonic::fit(&history, true).unwrap().forecast(&history, 30);
        for (step, value) in forecast.into_iter().enumerate() {
            assert!((value / (50.0 * (1.0 + promoted(800 + step))) - 1.0).abs() < 0.01, "{step}: {value}");
        }
    }

    #[test]
    fn an_explosive_response_is_recognised() {
        assert!(explodes(&[1.2]) && explodes(&[0.5, 0.8]));
        assert!(!explodes(&[0.9]) && !explodes(&[1.2, -0.6]) && !explodes(&[]) && !explodes(&[1.0]));
    }

    #[test]
    fn only_values_above_zero_have_logarithms() {
        assert_eq!(shift(&[1.0, 2.0]), Some(0.0));
        assert_eq!(shift(&[0.0, 2.0]), Some(0.1));
        assert_eq!(shift(&[-1.0, 2.0]), None);
        assert_eq!(shift(&[0.0; 4]), None);
    }

    proptest! {
        #[test]
        fn any_history_is_forecast(
            values in prop::collection::vec(-1e4f64..1e4, 0..80),
            season in 2.0f64..20.0,
            horizon in 0usize..20,
            positive in any::<bool>(),
        ) {
            let values: Vec<f64> = values.into_iter().map(|x| if positive { x.abs() } else { x }).collect();
            let history = History { values: &values, covariates: &[], columns: 0, seasons: &[season] };
            for logarithm in [false, true] {
                let Some(model) = Harmonic::fit(&history, logarithm) else { continue };
                let forecast = model.forecast(&history, horizon);
                prop_assert_eq!(forecast.len(), horizon);
                prop_assert!(forecast.iter().all(|x| x.is_finite()), "{:?}", forecast);
            }
        }
    }
}
