//! Autoregression with automatic orders: differences by tests, lags by AICc, coefficients by least squares.

use super::History;
use super::least_squares::{Regression, aicc};
use super::seasonal::{centred_average, indices};
use crate::data::scale::mean;

/// The largest number of consecutive lags.
const MAX_LAGS: usize = 24;

/// Values that are used for fitting: the last ones of a long series.
const MAX_VALUES: usize = 4000;

/// The 5 % limit of the KPSS test of a constant level (Kwiatkowski, Phillips, Schmidt, Shin 1992).
const KPSS_LIMIT: f64 = 0.463;

/// The strength of a season above which the series is differenced by it (Wang, Smith, Hyndman 2006).
const STRONG_SEASON: f64 = 0.64;

/// A fitted autoregression.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoregression {
    /// Lag of the seasonal difference; 0 without.
    pub seasonal_difference: usize,
    /// Whether consecutive differences are taken.
    pub difference: bool,
    /// Lags of the differenced series.
    pub lags: Vec<usize>,
    /// The constant, then a coefficient for each lag.
    pub coefficients: Vec<f64>,
}

impl std::fmt::Display for Autoregression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AR({} lags", self.lags.len())?;
        if self.difference {
            write!(f, ", differences")?;
        }
        if self.seasonal_difference > 0 {
            write!(f, ", differences of {} steps", self.seasonal_difference)?;
        }
        write!(f, ")")
    }
}

impl Autoregression {
    /// Chooses differences and lags, and fits the coefficients; `None` if the history is too short.
    pub fn fit(history: &History<'_>, season: usize) -> Option<Autoregression> {
        let values = &history.values[history.values.len().saturating_sub(MAX_VALUES)..];
        let strong = season > 1 && values.len() >= 3 * season && strength(values, season)? > STRONG_SEASON;
        let seasonal_difference = if strong { season } else { 0 };
        let adjusted = differences(values, seasonal_difference);
        let difference = is_integrated(&adjusted);
        let series = if difference { differences(&adjusted, 1) } else { adjusted };
        let least = Autoregression { seasonal_difference, difference, lags: vec![], coefficients: vec![0.0] };
        least.choose_lags(&series, season)
    }

    /// Chooses the lags by AICc, all on the same rows.
    fn choose_lags(self, series: &[f64], season: usize) -> Option<Autoregression> {
        let consecutive = MAX_LAGS.min(series.len() / 5);
        let around = [season.saturating_sub(1), season, season.saturating_add(1)];
        let seasonal: Vec<usize> = around
            .into_iter()
            .chain([2 * season])
            .filter(|lag| season > 1 && *lag > 0 && *lag <= series.len() / 4)
            .collect();
        let mut best: Option<(Autoregression, f64)> = None;
        let reach = consecutive.max(seasonal.iter().copied().max().unwrap_or(0));
        for seasonal in [&[][..], &seasonal] {
            // Seasonal lags first, so that every number of consecutive lags is a prefix of the columns.
            let mut lags: Vec<usize> = seasonal.to_vec();
            lags.extend((1..=consecutive).filter(|lag| !seasonal.contains(lag)));
            let mut regression = Regression::new(lags.len() + 1);
            let mut row = vec![1.0; lags.len() + 1];
            for place in reach..series.len() {
                row[1..].iter_mut().zip(&lags).for_each(|(x, lag)| *x = series[place - lag]);
                regression.add(&row, series[place]);
            }
            for count in seasonal.len()..=lags.len() {
                let Some((coefficients, error)) = regression.solve(count + 1, 0.0) else { continue };
                let criterion = aicc(regression.rows(), error, count + 1);
                if criterion < best.as_ref().map_or(f64::INFINITY, |(_, least)| *least) {
                    let model = Autoregression { lags: lags[..count].to_vec(), coefficients, ..self.clone() };
                    best = Some((model, criterion));
                }
            }
        }
        best.map(|(model, _)| model)
    }

    /// Forecasts the steps after a history.
    pub fn forecast(&self, history: &[f64], horizon: usize) -> Vec<f64> {
        let adjusted = differences(history, self.seasonal_difference);
        let mut series = if self.difference { differences(&adjusted, 1) } else { adjusted.clone() };
        let begin = series.len();
        for _ in 0..horizon {
            let at = |lag: usize| series.len().checked_sub(lag).map_or(0.0, |place| series[place]);
            let sum: f64 = self.lags.iter().zip(&self.coefficients[1..]).map(|(lag, c)| c * at(*lag)).sum();
            series.push(self.coefficients[0] + sum);
        }
        let mut values: Vec<f64> = series[begin..].to_vec();
        if self.difference {
            let mut level = adjusted.last().copied().unwrap_or(0.0);
            for value in &mut values {
                level += *value;
                *value = level;
            }
        }
        if self.seasonal_difference > 0 && history.len() >= self.seasonal_difference {
            let lag = self.seasonal_difference;
            for step in 0..horizon {
                let before =
                    if step < lag { history[history.len() - lag + step] } else { values[step - lag] };
                values[step] += before;
            }
        }
        values
    }
}

/// Returns the differences at a lag; the values themselves at lag 0.
fn differences(values: &[f64], lag: usize) -> Vec<f64> {
    if lag == 0 {
        return values.to_vec();
    }
    values.get(lag..).unwrap_or_default().iter().zip(values).map(|(a, b)| a - b).collect()
}

/// Returns the strength of a season: 1 without any remainder, 0 without any season.
pub fn strength(values: &[f64], season: usize) -> Option<f64> {
    let trend = centred_average(values, season);
    let indices = indices(values, &trend, season, false)?;
    let inside = || values.iter().zip(&trend).enumerate().filter(|(_, (_, trend))| !trend.is_nan());
    let detrended: Vec<f64> = inside().map(|(_, (y, trend))| y - trend).collect();
    let remainder: Vec<f64> = inside().map(|(i, (y, trend))| y - trend - indices[i % season]).collect();
    let (whole, rest) = (variance(&detrended), variance(&remainder));
    Some(if whole > 0.0 { (1.0 - rest / whole).max(0.0) } else { 0.0 })
}

fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    values.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / values.len().max(1) as f64
}

/// Returns whether the level of a series wanders, by the KPSS test.
fn is_integrated(values: &[f64]) -> bool {
    let n = values.len();
    if n < 8 {
        return false;
    }
    let centre = mean(values);
    let centred: Vec<f64> = values.iter().map(|x| x - centre).collect();
    let mut level = 0.0;
    let squares: f64 = centred
        .iter()
        .map(|x| {
            level += x;
            level * level
        })
        .sum();
    // Newey and West with the number of lags of forecast::ndiffs.
    let lags = (4.0 * (n as f64 / 100.0).powf(0.25)) as usize;
    let covariance =
        |lag: usize| centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum::<f64>() / n as f64;
    let long_run: f64 = covariance(0)
        + 2.0 * (1..=lags).map(|lag| (1.0 - lag as f64 / (lags as f64 + 1.0)) * covariance(lag)).sum::<f64>();
    long_run > 0.0 && squares / (n as f64 * n as f64 * long_run) > KPSS_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};
    use proptest::prelude::*;

    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut random = Random::new(seed, Purpose::Check, 0);
        move || (0..12).map(|_| f64::from(random.uniform())).sum::<f64>() - 6.0
    }

    #[test]
    fn the_coefficients_of_a_process_are_found() {
        let mut noise = noise(1);
        let mut values = vec![0.0, 0.0];
        for i in 2..3000 {
            values.push(5.0 + 1.2 * values[i - 1] - 0.6 * values[i - 2] + noise());
        }
        let model = Autoregression::fit(&History::of(&values), 1).unwrap();
        assert!(!model.difference && model.lags.len() < 6, "{model}");
        assert!((model.coefficients[1] - 1.2).abs() < 0.06 && (model.coefficients[2] + 0.6).abs() < 0.06);
        // Far ahead, the forecast is the mean of the process.
        let forecast = model.forecast(&values, 200);
        assert!((forecast[199] - 5.0 / 0.4).abs() < 0.3, "{}", forecast[199]);
    }

    #[test]
    fn a_random_walk_is_differenced_and_noise_is_not() {
        let mut noise = noise(2);
        let mut level = 100.0;
        let walk: Vec<f64> = (0..500)
            .map(|_| {
                level += noise();
                level
            })
            .collect();
        assert!(Autoregression::fit(&History::of(&walk), 1).unwrap().difference);
        let values: Vec<f64> = (0..500).map(|_| noise()).collect();
        assert!(!Autoregression::fit(&History::of(&values), 1).unwrap().difference);
    }

    #[test]
    fn a_strong_season_is_continued() {
        let values: Vec<f64> = (0..96).map(|i| 10.0 * f64::from(i % 12) + 2.0 * f64::from(i)).collect();
        let model = Autoregression::fit(&History::of(&values), 12).unwrap();
        assert_eq!(model.seasonal_difference, 12);
        for (step, value) in model.forecast(&values, 24).into_iter().enumerate() {
            let expected = 10.0 * (step % 12) as f64 + 2.0 * (96 + step) as f64;
            assert!((value - expected).abs() < 0.5, "{step}: {value} for {expected}");
        }
    }

    proptest! {
        #[test]
        fn any_history_is_forecast(
            values in prop::collection::vec(-1e4f64..1e4, 0..80), season in 0usize..20, horizon in 0usize..30,
        ) {
            if let Some(model) = Autoregression::fit(&History::of(&values), season) {
                prop_assert_eq!(model.forecast(&values, horizon).len(), horizon);
                prop_assert_eq!(model.forecast(&[], horizon).len(), horizon);
            }
        }
    }
}
