//! Baseline forecasts, which every model is compared with.
//!
//! Naive2 and Theta are those of the M4 competition: a series that passes a test of seasonality is divided by classical
//! multiplicative seasonal indices, forecast, and multiplied again.

use crate::data::scale::mean;

/// A baseline forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Baseline {
    /// The last value.
    Naive,
    /// The value one season before.
    SeasonalNaive,
    /// The straight line through the first and the last value.
    Drift,
    /// The last value of the seasonally adjusted series.
    Naive2,
    /// Exponential smoothing with half the trend (Assimakopoulos and Nikolopoulos 2000), seasonally adjusted.
    Theta,
}

impl Baseline {
    /// All baselines.
    pub const ALL: [Baseline; 5] =
        [Baseline::Naive, Baseline::SeasonalNaive, Baseline::Drift, Baseline::Naive2, Baseline::Theta];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Naive => "naive",
            Baseline::SeasonalNaive => "seasonal naive",
            Baseline::Drift => "drift",
            Baseline::Naive2 => "naive2",
            Baseline::Theta => "theta",
        }
    }

    /// Forecasts the steps after a history without gaps. The forecast of an empty history is 0.
    pub fn forecast(self, history: &[f64], season: usize, horizon: usize) -> Vec<f64> {
        let Some(&last) = history.last() else { return vec![0.0; horizon] };
        let season = season.max(1);
        match self {
            Baseline::Naive => vec![last; horizon],
            Baseline::SeasonalNaive => {
                let season = season.min(history.len());
                let cycle = &history[history.len() - season..];
                (0..horizon).map(|step| cycle[step % season]).collect()
            }
            Baseline::Drift => {
                let slope = (last - history[0]) / (history.len() - 1).max(1) as f64;
                (1..=horizon).map(|step| last + slope * step as f64).collect()
            }
            Baseline::Naive2 => adjusted(history, season, horizon, |level, horizon| {
                vec![level.last().copied().unwrap_or(0.0); horizon]
            }),
            Baseline::Theta => adjusted(history, season, horizon, theta),
        }
    }
}

/// Forecasts the seasonally adjusted series.
fn adjusted(
    values: &[f64],
    season: usize,
    horizon: usize,
    forecast: impl Fn(&[f64], usize) -> Vec<f64>,
) -> Vec<f64> {
    let indices = if is_seasonal(values, season) { seasonal_indices(values, season) } else { None };
    let indices = indices.unwrap_or_else(|| vec![1.0]);
    let index = |place: usize| indices[place % indices.len()];
    let level: Vec<f64> = values.iter().enumerate().map(|(i, x)| x / index(i)).collect();
    let ahead = forecast(&level, horizon).into_iter().enumerate();
    ahead.map(|(step, x)| x * index(values.len() + step)).collect()
}

/// The seasonality test of the M4 competition: the autocorrelation at the season against its 90 % limits.
fn is_seasonal(values: &[f64], season: usize) -> bool {
    if season < 2 || values.len() / 3 < season {
        return false;
    }
    let (n, mean) = (values.len() as f64, mean(values));
    let centred: Vec<f64> = values.iter().map(|x| x - mean).collect();
    let at = |lag: usize| centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum::<f64>();
    let variance = at(0);
    if variance <= 0.0 {
        return false;
    }
    let squares: f64 = (1..season).map(|lag| (at(lag) / variance).powi(2)).sum();
    (at(season) / variance).abs() > 1.645 / n.sqrt() * (1.0 + 2.0 * squares).sqrt()
}

/// Returns classical multiplicative indices, one per step of the season; `None` if the series reaches 0.
fn seasonal_indices(values: &[f64], season: usize) -> Option<Vec<f64>> {
    let half = season / 2;
    let mut sums = vec![(0.0, 0.0); season];
    for place in half..values.len() - half {
        // Centred moving average over one season; for even seasons the two ends have half weight.
        let around = &values[place - half..=place + half];
        let ends = if season.is_multiple_of(2) { f64::midpoint(around[0], around[season]) } else { 0.0 };
        let trend = (around.iter().sum::<f64>() - ends) / season as f64;
        let ratio = values[place] / trend;
        if !ratio.is_finite() {
            return None;
        }
        let (sum, count) = &mut sums[place % season];
        (*sum, *count) = (*sum + ratio, *count + 1.0);
    }
    let means: Vec<f64> = sums.iter().map(|(sum, count)| sum / count).collect();
    let mean = means.iter().sum::<f64>() / season as f64;
    let indices: Vec<f64> = means.iter().map(|x| x / mean).collect();
    indices.iter().all(|x| x.is_finite() && *x != 0.0).then_some(indices)
}

/// The Theta method: half the regression line, half exponential smoothing of the series with its curvature doubled.
fn theta(values: &[f64], horizon: usize) -> Vec<f64> {
    let (base, slope) = regression(values);
    let line = |place: usize| base + slope * place as f64;
    let doubled: Vec<f64> = values.iter().enumerate().map(|(i, x)| 2.0 * x - line(i)).collect();
    let level = smoothed_level(&doubled);
    (0..horizon).map(|step| f64::midpoint(line(values.len() + step), level)).collect()
}

/// Returns intercept and slope of the regression line.
fn regression(values: &[f64]) -> (f64, f64) {
    let (mean_place, mean) = ((values.len() as f64 - 1.0) / 2.0, mean(values));
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (i, x) in values.iter().enumerate() {
        covariance += (i as f64 - mean_place) * (x - mean);
        variance += (i as f64 - mean_place).powi(2);
    }
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    (mean - slope * mean_place, slope)
}

/// Returns the last level of simple exponential smoothing, with rate and first level fitted by least squares.
fn smoothed_level(values: &[f64]) -> f64 {
    // The error may have several minima: a grid search, then a golden-section search around its best point.
    const GRID: usize = 50;
    // Centred, to avoid cancellation.
    let mean = mean(values);
    let values: Vec<f64> = values.iter().map(|x| x - mean).collect();
    let rate = |i: usize| 1e-4 + (0.9999 - 1e-4) * i as f64 / GRID as f64;
    let error = |alpha: f64| smooth(&values, alpha).0;
    let best = (0..=GRID).min_by(|a, b| error(rate(*a)).total_cmp(&error(rate(*b)))).unwrap_or(0);
    let (mut low, mut high) = (rate(best.saturating_sub(1)), rate((best + 1).min(GRID)));
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    for _ in 0..40 {
        let (a, b) = (high - golden * (high - low), low + golden * (high - low));
        if error(a) < error(b) { high = b } else { low = a }
    }
    mean + smooth(&values, f64::midpoint(low, high)).1
}

/// Returns the sum of squared one-step errors and the last level, for the optimal first level.
///
/// The error of step t is e_t - d_t l with d_t = (1 - alpha)^t and l the first level, so l = sum e d / sum d d.
fn smooth(values: &[f64], alpha: f64) -> (f64, f64) {
    let (mut level, mut decay) = (0.0, 1.0);
    let (mut ee, mut ed, mut dd) = (0.0, 0.0, 0.0);
    for x in values {
        let error = x - level;
        ee += error * error;
        ed += error * decay;
        dd += decay * decay;
        level += alpha * error;
        decay *= 1.0 - alpha;
    }
    let first = ed / dd;
    (ee - first * ed, level + decay * first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn simple_baselines_have_known_forecasts() {
        let history = [1., 2., 3., 4., 7.];
        assert_eq!(Baseline::Naive.forecast(&history, 2, 3), [7., 7., 7.]);
        assert_eq!(Baseline::SeasonalNaive.forecast(&history, 2, 3), [4., 7., 4.]);
        assert_eq!(Baseline::Drift.forecast(&history, 2, 2), [8.5, 10.]);
        assert_eq!(Baseline::SeasonalNaive.forecast(&[5.], 7, 2), [5., 5.]);
    }

    #[test]
    fn theta_continues_a_line_with_half_its_slope() {
        let history: Vec<f64> = (0..40).map(|i| 3.0 + 2.0 * i as f64).collect();
        let forecast = Baseline::Theta.forecast(&history, 1, 2);
        // A line has no curvature to double: smoothing follows it, and half the slope remains.
        assert!((forecast[1] - forecast[0] - 1.0).abs() < 1e-3, "{forecast:?}");
        assert!((forecast[0] - 82.0).abs() < 0.1, "{forecast:?}");
    }

    #[test]
    fn seasonality_is_detected_and_continued() {
        let season = [0.5, 1.0, 1.5, 1.0];
        let history: Vec<f64> = (0..80).map(|i| 100.0 * season[i % 4]).collect();
        for baseline in [Baseline::Naive2, Baseline::Theta] {
            let forecast = baseline.forecast(&history, 4, 5);
            for (step, value) in forecast.iter().enumerate() {
                assert!((value - 100.0 * season[step % 4]).abs() < 0.2, "{} {forecast:?}", baseline.name());
            }
        }
        // Fewer than three seasons are not tested.
        let short = &history[..11];
        assert_eq!(Baseline::Naive2.forecast(short, 4, 2), Baseline::Naive.forecast(short, 4, 2));
    }

    #[test]
    fn a_season_of_any_length_is_not_longer_than_the_history() {
        for baseline in Baseline::ALL {
            let longest = baseline.forecast(&[1., 5., 2.], usize::MAX, 2);
            assert_eq!(longest, baseline.forecast(&[1., 5., 2.], 3, 2), "{}", baseline.name());
        }
    }

    #[test]
    fn forecasts_are_equivariant_to_the_level() {
        let waves = |level: f64| -> Vec<f64> {
            (0..60).map(|i| level + f64::from(i * 7 % 13) + 0.2 * f64::from(i)).collect()
        };
        for baseline in [Baseline::Naive, Baseline::SeasonalNaive, Baseline::Drift, Baseline::Theta] {
            let forecast = |level: f64| baseline.forecast(&waves(level), 5, 4);
            for (far, near) in forecast(2e8).iter().zip(forecast(1e3)) {
                assert!((far - 2e8 - (near - 1e3)).abs() < 1e-5, "{}", baseline.name());
            }
        }
    }

    #[test]
    fn smoothing_matches_a_grid_search() {
        let values = [3.0, 5.0, 4.0, 8.0, 6.0, 7.0];
        // Every rate and first level on a fine grid.
        let mut least = f64::INFINITY;
        for alpha in (1..1000).map(|i| f64::from(i) / 1000.0) {
            for first in (0..400).map(|i| f64::from(i) / 40.0) {
                let (mut level, mut sum) = (first, 0.0);
                for x in values {
                    sum += (x - level) * (x - level);
                    level += alpha * (x - level);
                }
                least = f64::min(least, sum);
            }
        }
        let found = (1..1000).map(|i| smooth(&values, f64::from(i) / 1000.0).0).fold(f64::INFINITY, f64::min);
        assert!(found <= least + 1e-9 && found > least - 0.02, "{found} for {least}");
    }

    proptest! {
        #[test]
        fn every_baseline_forecasts_any_history(
            history in prop::collection::vec(-1e3f64..1e3, 0..60),
            season in 0usize..20,
            horizon in 0usize..30,
        ) {
            for baseline in Baseline::ALL {
                let forecast = baseline.forecast(&history, season, horizon);
                prop_assert_eq!(forecast.len(), horizon);
                prop_assert!(forecast.iter().all(|x| x.is_finite()), "{} {:?}", baseline.name(), forecast);
            }
        }
    }
}
