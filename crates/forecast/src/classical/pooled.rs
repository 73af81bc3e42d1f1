//! One autoregression for all series: coefficients are estimated from all of them together, so that series which are too short for
//! a model of their own are forecast by what they have in common (Montero-Manso and Hyndman 2021).
//!
//! The change of a series from one step to the next, in units of its mean change, depends on its distance from its mean and on the
//! distances of its last value from lagged ones: those of the last steps, and those of a season before.

use super::least_squares::{Regression, aicc};
use crate::metrics::seasonal_scale;

/// The largest number of consecutive lags.
const MAX_LAGS: usize = 12;

/// Rows that the coefficients are estimated from, and steps at the end of a series that are among them.
const MAX_ROWS: usize = 200_000;
const MAX_STEPS: usize = 2000;

/// Ridge relative to the mean square of a column: series have many lags in common with each other.
const RIDGE: f64 = 1e-4;

/// Ranges of a history that a forecast may leave it by.
const MAX_RANGES: f64 = 10.0;

/// An autoregression of all series of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// The lags, from 2: lag 1 is the value that all others are compared with.
    pub lags: Vec<usize>,
    /// The constant, the coefficient of the distance from the mean, and one for each lag.
    pub coefficients: Vec<f64>,
    /// Number of series that they were estimated from.
    pub series: usize,
}

impl std::fmt::Display for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AR({} lags) of {} series", self.lags.len() + 1, self.series)
    }
}

/// Returns the unit of a history: its mean change; `None` if it never changes.
fn unit(history: &[f64]) -> Option<f64> {
    Some(seasonal_scale(history, 1)).filter(|scale| scale.is_finite() && *scale > 0.0)
}

/// Writes the features of a step: the constant, the distance from the mean, and distances from lagged values. A lag before
/// the beginning of the series says nothing: its distance is 0.
fn features(before: &[f64], mean: f64, unit: f64, lags: &[usize], row: &mut Vec<f64>) {
    let last = before.last().copied().unwrap_or(0.0);
    row.clear();
    row.extend([1.0, (mean - last) / unit]);
    let distance = |lag: &usize| {
        let place = before.len().checked_sub(*lag);
        place.map_or(0.0, |place| (before[place] - last) / unit)
    };
    row.extend(lags.iter().map(distance));
}

impl Pooled {
    /// Chooses the lags by AICc and estimates the coefficients; `None` if there are too few values.
    pub fn fit(histories: &[&[f64]], season: usize) -> Option<Pooled> {
        let mut lengths: Vec<usize> = histories.iter().map(|history| history.len()).collect();
        lengths.sort_unstable();
        let typical = lengths.get(lengths.len() / 2).copied()?;
        let around = [season.saturating_sub(1), season, season.saturating_add(1)];
        let seasonal: Vec<usize> =
            around.into_iter().filter(|lag| season > 1 && *lag > 1 && lag + 2 <= typical).collect();
        let consecutive = MAX_LAGS.min(typical / 2);
        // Seasonal lags first, so that every number of consecutive lags is a prefix of the columns.
        let orders: Vec<Vec<usize>> = [&seasonal[..], &[]]
            .into_iter()
            .map(|first| {
                let others = (2..=consecutive).filter(|lag| !first.contains(lag));
                first.iter().copied().chain(others).collect()
            })
            .collect();
        // All choices are compared on the same rows.
        let reach = orders.iter().flatten().copied().max().unwrap_or(1).min(typical.saturating_sub(2)).max(1);
        let mut best: Option<(Pooled, f64)> = None;
        for (lags, fewest) in orders.iter().zip([seasonal.len(), 0]) {
            let regression = regression(histories, lags, reach);
            for count in fewest..=lags.len() {
                let Some((coefficients, error)) = regression.solve(count + 2, RIDGE) else { continue };
                let criterion = aicc(regression.rows(), error, count + 2);
                if criterion < best.as_ref().map_or(f64::INFINITY, |(_, least)| *least) {
                    let model =
                        Pooled { lags: lags[..count].to_vec(), coefficients, series: histories.len() };
                    best = Some((model, criterion));
                }
            }
        }
        best.map(|(model, _)| model)
    }

    /// Forecasts the steps after a history; `None` if the forecast leaves its range by far.
    pub fn forecast(&self, history: &[f64], horizon: usize) -> Option<Vec<f64>> {
        let last = history.last().copied()?;
        let Some(unit) = unit(history) else { return Some(vec![last; horizon]) };
        let mean = history.iter().sum::<f64>() / history.len() as f64;
        let (low, high) =
            history.iter().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(*y), high.max(*y)));
        let room = MAX_RANGES * (high - low);
        let mut values = history.to_vec();
        let mut row = Vec::with_capacity(self.coefficients.len());
        for _ in 0..horizon {
            features(&values, mean, unit, &self.lags, &mut row);
            let change: f64 = row.iter().zip(&self.coefficients).map(|(x, c)| x * c).sum();
            let value = values[values.len() - 1] + unit * change;
            if !(low - room..=high + room).contains(&value) {
                return None;
            }
            values.push(value);
        }
        Some(values.split_off(history.len()))
    }
}

/// Collects the rows of all series: a change, and the features before it.
fn regression(histories: &[&[f64]], lags: &[usize], reach: usize) -> Regression {
    let mut regression = Regression::new(lags.len() + 2);
    let most = (MAX_ROWS / histories.len().max(1)).clamp(20, MAX_STEPS);
    let mut row = Vec::with_capacity(lags.len() + 2);
    for history in histories {
        let Some(unit) = unit(history) else { continue };
        let mean = history.iter().sum::<f64>() / history.len() as f64;
        for place in reach.max(history.len().saturating_sub(most))..history.len() {
            features(&history[..place], mean, unit, lags, &mut row);
            regression.add(&row, (history[place] - history[place - 1]) / unit);
        }
    }
    regression
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};
    use proptest::prelude::*;

    #[test]
    fn short_series_learn_their_season_from_each_other() {
        let mut random = Random::new(8, Purpose::Check, 0);
        let mut series = |number: usize| -> Vec<f64> {
            let wave = |i: usize| ((i + 5 * number) as f64 / 12.0 * std::f64::consts::TAU).sin();
            (0..30).map(|i| 50.0 + 8.0 * wave(i) + 4.0 * (f64::from(random.uniform()) - 0.5)).collect()
        };
        let all: Vec<Vec<f64>> = (0..40).map(&mut series).collect();
        let histories: Vec<&[f64]> = all.iter().map(|values| &values[..24]).collect();
        let model = Pooled::fit(&histories, 12).unwrap();
        let mean_error = |forecast: &dyn Fn(&[f64]) -> Vec<f64>| -> f64 {
            let of = |values: &Vec<f64>| -> f64 {
                forecast(&values[..24]).iter().zip(&values[24..]).map(|(a, b)| (a - b).abs()).sum()
            };
            all.iter().map(of).sum::<f64>() / 240.0
        };
        let ours = mean_error(&|history| model.forecast(history, 6).unwrap());
        let seasonal_naive = mean_error(&|history| history[12..18].to_vec());
        assert!(ours < 1.2 && ours < 0.95 * seasonal_naive, "{ours} and {seasonal_naive}");
    }

    #[test]
    fn constant_series_stay_and_explosions_are_refused() {
        let model = Pooled { lags: vec![2], coefficients: vec![0.0, -3.0, 0.0], series: 1 };
        assert_eq!(model.forecast(&[4.0; 9], 3), Some(vec![4.0; 3]));
        assert_eq!(model.forecast(&[1.0, 2.0, 1.0, 5.0], 60), None);
        assert_eq!(model.forecast(&[], 2), None);
        assert_eq!(Pooled::fit(&[], 4), None);
    }

    proptest! {
        #[test]
        fn any_series_are_forecast(
            all in prop::collection::vec(prop::collection::vec(-1e4f64..1e4, 0..40), 0..6),
            season in 0usize..15, horizon in 0usize..20,
        ) {
            let histories: Vec<&[f64]> = all.iter().map(Vec::as_slice).collect();
            if let Some(model) = Pooled::fit(&histories, season) {
                for forecast in histories.iter().filter_map(|history| model.forecast(history, horizon)) {
                    prop_assert!(forecast.len() == horizon && forecast.iter().all(|x| x.is_finite()));
                }
            }
        }
    }
}
