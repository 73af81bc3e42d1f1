//! Decomposition by local regression: STL (Cleveland, Cleveland, McRae, Terpenning 1990), and MSTL (Bandara, Hyndman,
//! Bergmeir 2021) for several seasons.

/// Iterations of STL, and passes of MSTL over the seasons, as in the R package forecast.
const INNER: usize = 2;
const PASSES: usize = 2;

/// A series as a sum of components.
#[derive(Clone, Debug, PartialEq)]
pub struct Decomposition {
    /// The trend.
    pub trend: Vec<f64>,
    /// A component for each season.
    pub seasonal: Vec<Vec<f64>>,
}

/// The windows of STL in values; odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Seasons that the seasonal component is smoothed over.
    pub seasonal: usize,
    /// Values that the trend is smoothed over.
    pub trend: usize,
    /// Values of the low-pass filter.
    pub low_pass: usize,
    /// Iterations.
    pub inner: usize,
}

impl Windows {
    /// Returns the usual windows for a period: the trend is smoothed over about one and a half seasons.
    pub fn new(period: usize, seasonal: usize) -> Windows {
        let odd = |x: f64| (x.ceil() as usize) | 1;
        let trend = odd(1.5 * period as f64 / (1.0 - 1.5 / seasonal as f64));
        Windows { seasonal, trend, low_pass: odd(period as f64 + 1.0), inner: INNER }
    }
}

/// Decomposes a series with one season. The series has at least two seasons.
pub fn stl(values: &[f64], period: usize, windows: Windows) -> Decomposition {
    let n = values.len();
    let (mut trend, mut seasonal) = (vec![0.0; n], vec![0.0; n]);
    if period < 2 || n < 2 * period {
        return Decomposition { trend: loess_all(values, windows.trend.max(3)), seasonal: vec![seasonal] };
    }
    for _ in 0..windows.inner {
        // The cycle-subseries, smoothed and extended by one season at both ends.
        let mut cycle = vec![0.0; n + 2 * period];
        for phase in 0..period {
            let sub: Vec<f64> = (phase..n).step_by(period).map(|i| values[i] - trend[i]).collect();
            for at in 0..sub.len() + 2 {
                cycle[phase + at * period] = loess(&sub, windows.seasonal, at as f64 - 1.0);
            }
        }
        let average = moving_average(&moving_average(&moving_average(&cycle, period), period), 3);
        let low = loess_all(&average, windows.low_pass);
        for i in 0..n {
            seasonal[i] = cycle[i + period] - low[i];
        }
        let adjusted: Vec<f64> = values.iter().zip(&seasonal).map(|(y, s)| y - s).collect();
        trend = loess_all(&adjusted, windows.trend);
    }
    Decomposition { trend, seasonal: vec![seasonal] }
}

/// Decomposes a series with several seasons, the shortest first. Those that are not repeated twice have a component of
/// zeros.
pub fn mstl(values: &[f64], periods: &[usize]) -> Decomposition {
    let mut seasonal = vec![vec![0.0; values.len()]; periods.len()];
    let mut adjusted = values.to_vec();
    let mut trend = vec![0.0; values.len()];
    for _ in 0..if periods.len() > 1 { PASSES } else { 1 } {
        for (number, &period) in periods.iter().enumerate().filter(|(_, period)| 2 * **period <= values.len())
        {
            let component = &mut seasonal[number];
            adjusted.iter_mut().zip(component.iter()).for_each(|(y, s)| *y += s);
            let found = stl(&adjusted, period, Windows::new(period, 7 + 4 * (number + 1)));
            trend = found.trend;
            *component = found.seasonal.into_iter().next().unwrap_or_default();
            adjusted.iter_mut().zip(component.iter()).for_each(|(y, s)| *y -= s);
        }
    }
    if !periods.iter().any(|period| 2 * period <= values.len()) {
        trend = loess_all(values, (values.len() / 4).max(3) | 1);
    }
    Decomposition { trend, seasonal }
}

fn moving_average(values: &[f64], window: usize) -> Vec<f64> {
    let mut sum: f64 = values[..window].iter().sum();
    let mut averages = vec![sum / window as f64];
    for i in window..values.len() {
        sum += values[i] - values[i - window];
        averages.push(sum / window as f64);
    }
    averages
}

fn loess_all(values: &[f64], window: usize) -> Vec<f64> {
    (0..values.len()).map(|at| loess(values, window, at as f64)).collect()
}

/// Local linear regression with tricube weights over the `window` values nearest to a place.
fn loess(values: &[f64], window: usize, at: f64) -> f64 {
    let n = values.len();
    let count = window.min(n);
    let first = (at - (count as f64 - 1.0) / 2.0).ceil().clamp(0.0, (n - count) as f64) as usize;
    let last = first + count - 1;
    let mut reach = (at - first as f64).max(last as f64 - at);
    if window > n {
        reach += ((window - n) / 2) as f64;
    }
    let (mut total, mut mean) = (0.0, 0.0);
    let mut weights = Vec::with_capacity(count);
    for place in first..=last {
        let distance = (place as f64 - at).abs();
        // Within a thousandth, as in the original program.
        let weight = if distance <= 0.001 * reach {
            1.0
        } else if distance <= 0.999 * reach {
            (1.0 - (distance / reach).powi(3)).powi(3)
        } else {
            0.0
        };
        weights.push(weight);
        total += weight;
        mean += weight * place as f64;
    }
    if total <= 0.0 {
        return values[first];
    }
    mean /= total;
    let places = || (first..=last).zip(&weights);
    let spread: f64 = places().map(|(place, w)| w / total * (place as f64 - mean).powi(2)).sum();
    let range = (n.saturating_sub(1)) as f64;
    let slope = if spread.sqrt() > 0.001 * range { (at - mean) / spread } else { 0.0 };
    places().map(|(place, w)| w / total * (1.0 + slope * (place as f64 - mean)) * values[place]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sum_of_components_is_taken_apart() {
        let season = |i: usize, period: usize| (i as f64 / period as f64 * std::f64::consts::TAU).sin();
        let values: Vec<f64> =
            (0..400).map(|i| 0.1 * i as f64 + 5.0 * season(i, 7) + 8.0 * season(i, 50)).collect();
        let found = mstl(&values, &[7, 50]);
        for i in 20..380 {
            assert!((found.seasonal[0][i] - 5.0 * season(i, 7)).abs() < 0.4, "{i}");
            assert!((found.seasonal[1][i] - 8.0 * season(i, 50)).abs() < 0.8, "{i}");
            assert!((found.trend[i] - 0.1 * i as f64).abs() < 1.0, "{i}");
        }
    }

    #[test]
    fn local_regression_reproduces_a_line() {
        let line: Vec<f64> = (0..30).map(|i| 3.0 - 0.5 * f64::from(i)).collect();
        for window in [3, 7, 41] {
            for at in [-1.0, 0.0, 12.0, 29.0, 30.0] {
                assert!((loess(&line, window, at) - (3.0 - 0.5 * at)).abs() < 1e-9, "{window} {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_series_is_decomposed(
            values in prop::collection::vec(-100.0f64..100.0, 1..60), period in 1usize..30,
        ) {
            let found = mstl(&values, &[period, 2 * period]);
            prop_assert_eq!(found.trend.len(), values.len());
            prop_assert!(found.trend.iter().chain(found.seasonal.iter().flatten()).all(|x| x.is_finite()));
        }
    }
}
