//! Accuracy metrics of forecasts. Slices of different lengths are compared up to the shorter one; the error of empty
//! slices is NaN.

/// Returns the mean of a function over pairs.
fn mean(actual: &[f64], forecast: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    let count = actual.len().min(forecast.len()) as f64;
    actual.iter().zip(forecast).map(|(y, f)| of(*y, *f)).sum::<f64>() / count
}

/// Mean absolute error.
pub fn mae(actual: &[f64], forecast: &[f64]) -> f64 {
    mean(actual, forecast, |y, f| (y - f).abs())
}

/// Mean squared error.
pub fn mse(actual: &[f64], forecast: &[f64]) -> f64 {
    mean(actual, forecast, |y, f| (y - f) * (y - f))
}

/// Root mean squared error.
pub fn rmse(actual: &[f64], forecast: &[f64]) -> f64 {
    mse(actual, forecast).sqrt()
}

/// Mean absolute percentage error. Steps whose actual value is 0 are left out.
pub fn mape(actual: &[f64], forecast: &[f64]) -> f64 {
    let pairs = actual.iter().zip(forecast).filter(|(y, _)| **y != 0.0);
    let (sum, count) =
        pairs.fold((0.0, 0.0), |(sum, count), (y, f)| (sum + ((y - f) / y).abs(), count + 1.0));
    100.0 * sum / count
}

/// Symmetric mean absolute percentage error as in the M4 competition: 200 |y - f| / (|y| + |f|), 0 where both are 0.
pub fn smape(actual: &[f64], forecast: &[f64]) -> f64 {
    mean(actual, forecast, |y, f| {
        let size = y.abs() + f.abs();
        if size == 0.0 { 0.0 } else { 200.0 * (y - f).abs() / size }
    })
}

/// Mean absolute error of the seasonal naive forecast within a history, the denominator of MASE. NaN for a history that is
/// not longer than a season.
pub fn seasonal_scale(history: &[f64], season: usize) -> f64 {
    let season = season.max(1);
    mae(history.get(season..).unwrap_or_default(), history)
}

/// Mean absolute scaled error (Hyndman and Koehler 2006): relative to the seasonal naive forecast within the history.
pub fn mase(history: &[f64], season: usize, actual: &[f64], forecast: &[f64]) -> f64 {
    mae(actual, forecast) / seasonal_scale(history, season)
}

/// Overall weighted average of the M4 competition: the mean of sMAPE and MASE, each relative to that of Naive2.
pub fn owa(smape: f64, mase: f64, naive2_smape: f64, naive2_mase: f64) -> f64 {
    f64::midpoint(smape / naive2_smape, mase / naive2_mase)
}

/// Empirical coverage: the fraction of actual values within the bounds.
pub fn coverage(actual: &[f64], low: &[f64], high: &[f64]) -> f64 {
    let inside =
        actual.iter().zip(low).zip(high).filter(|((y, low), high)| (*low..=*high).contains(y)).count();
    inside as f64 / actual.len().min(low.len()).min(high.len()) as f64
}

/// Mean pinball loss of a quantile.
pub fn pinball(actual: &[f64], forecast: &[f64], level: f64) -> f64 {
    mean(actual, forecast, |y, f| if y >= f { level * (y - f) } else { (1.0 - level) * (f - y) })
}

/// Continuous ranked probability score from quantile forecasts: twice the mean of their pinball losses, which
/// converges to the score as the levels become dense.
pub fn crps_of_quantiles(actual: &[f64], forecasts: &[(f64, &[f64])]) -> f64 {
    let sum: f64 = forecasts.iter().map(|(level, forecast)| pinball(actual, forecast, *level)).sum();
    2.0 * sum / forecasts.len() as f64
}

/// Continuous ranked probability score of one value from samples: mean |x - y| - half the mean |x - x'| (Gneiting and
/// Raftery 2007). The samples are sorted in place.
pub fn crps_of_samples(actual: f64, samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    let distance = samples.iter().map(|x| (x - actual).abs()).sum::<f64>() / n;
    // For sorted samples the sum over all pairs takes one pass: sample i is the larger of i pairs.
    let spread: f64 = samples.iter().enumerate().map(|(i, x)| x * (2.0 * i as f64 + 1.0 - n)).sum();
    distance - spread / (n * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn metrics_follow_their_definitions() {
        let (y, f) = ([1.0, 2.0, 4.0], [2.0, 2.0, 1.0]);
        assert_eq!(mae(&y, &f), 4.0 / 3.0);
        assert_eq!(mse(&y, &f), 10.0 / 3.0);
        assert_eq!(rmse(&y, &f), (10.0f64 / 3.0).sqrt());
        assert!((mape(&y, &f) - 100.0 * (1.0 + 0.75) / 3.0).abs() < 1e-12);
        assert!((smape(&y, &f) - (200.0 / 3.0 + 120.0) / 3.0).abs() < 1e-12);
        assert_eq!(smape(&[0.0], &[0.0]), 0.0);
        assert_eq!(mape(&[0.0, 1.0], &[5.0, 2.0]), 100.0);
        assert!(mae(&[], &[]).is_nan());
    }

    #[test]
    fn mase_is_relative_to_the_seasonal_naive_forecast() {
        let history = [1.0, 5.0, 2.0, 7.0];
        assert_eq!(seasonal_scale(&history, 2), 1.5);
        assert_eq!(mase(&history, 2, &[3.0], &[6.0]), 2.0);
        assert!(seasonal_scale(&history, 9).is_nan());
        assert_eq!(owa(9.0, 1.0, 18.0, 4.0), 0.375);
    }

    #[test]
    fn the_seasonal_naive_forecast_of_the_history_has_mase_1() {
        let history: Vec<f64> = (0..50).map(|i| (i * i % 17) as f64).collect();
        let forecast = &history[..43];
        assert!((mase(&history, 7, &history[7..], forecast) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn coverage_counts_values_within_bounds() {
        assert_eq!(coverage(&[1., 2., 3., 4.], &[0., 2., 4., 4.], &[2., 3., 5., 4.]), 0.75);
    }

    #[test]
    fn crps_of_a_normal_distribution_is_known() {
        // CRPS of N(0, 1) at 0 is 2 phi(0) - 1 / sqrt(pi) = 0.233695.
        let quantile = |p: f64| {
            // Bisection on the series of the normal distribution function.
            let (mut low, mut high) = (-8.0f64, 8.0f64);
            for _ in 0..60 {
                let x = f64::midpoint(low, high);
                let mut term = x;
                let mut sum = x;
                for k in 1..200 {
                    term *= x * x / f64::from(2 * k + 1);
                    sum += term;
                }
                let cdf = 0.5 + sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
                if cdf < p { low = x } else { high = x }
            }
            low
        };
        let n = 400;
        let levels: Vec<f64> = (0..n).map(|i| (f64::from(i) + 0.5) / f64::from(n)).collect();
        let mut samples: Vec<f64> = levels.iter().map(|p| quantile(*p)).collect();
        let by_quantile: Vec<[f64; 1]> = samples.iter().map(|x| [*x]).collect();
        let pairs: Vec<(f64, &[f64])> =
            levels.iter().copied().zip(by_quantile.iter().map(<[f64; 1]>::as_slice)).collect();
        assert!((crps_of_quantiles(&[0.0], &pairs) - 0.233_695).abs() < 1e-3);
        assert!((crps_of_samples(0.0, &mut samples) - 0.233_695).abs() < 2e-3);
    }

    proptest! {
        #[test]
        fn crps_of_samples_equals_the_sum_over_all_pairs(
            y in -10f64..10.0,
            mut samples in prop::collection::vec(-10f64..10.0, 1..20),
        ) {
            let n = samples.len() as f64;
            let away: f64 = samples.iter().map(|x| (x - y).abs()).sum::<f64>() / n;
            let pairs: f64 = samples.iter().flat_map(|a| samples.iter().map(move |b| (a - b).abs())).sum();
            let reference = away - pairs / (2.0 * n * n);
            prop_assert!((crps_of_samples(y, &mut samples) - reference).abs() < 1e-5);
        }

        #[test]
        fn a_perfect_forecast_has_zero_error(y in prop::collection::vec(-100f64..100.0, 1..20)) {
            let levels: [(f64, &[f64]); 2] = [(0.1, &y), (0.9, &y)];
            prop_assert_eq!([mae(&y, &y), rmse(&y, &y), smape(&y, &y), crps_of_quantiles(&y, &levels)], [0.0; 4]);
        }
    }
}
