//! Classical seasonal decomposition: centred moving averages and seasonal indices, and the length of a season.

use crate::data::scale::mean;

/// The least autocorrelation at a season that is taken from the data alone.
const MIN_CORRELATION: f64 = 0.25;

/// Returns the centred moving average over one season, NaN within half a season of the ends. For even seasons the two
/// ends of the average have half weight.
pub fn centred_average(values: &[f64], season: usize) -> Vec<f64> {
    let half = season / 2;
    let mut average = vec![f64::NAN; values.len()];
    for place in half..values.len().saturating_sub(half) {
        let around = &values[place - half..=place + half];
        let ends = if season.is_multiple_of(2) { f64::midpoint(around[0], around[season]) } else { 0.0 };
        average[place] = (around.iter().sum::<f64>() - ends) / season as f64;
    }
    average
}

/// Returns the seasonal indices, which have mean 0, or 1 if they are factors; `None` if some step of the season has no
/// trend, or a factor is not positive.
pub fn indices(values: &[f64], trend: &[f64], season: usize, factors: bool) -> Option<Vec<f64>> {
    let mut sums = vec![(0.0, 0.0); season];
    for (place, (y, trend)) in values.iter().zip(trend).enumerate().filter(|(_, (_, trend))| !trend.is_nan())
    {
        let (sum, count) = &mut sums[place % season];
        (*sum, *count) = (*sum + if factors { y / trend } else { y - trend }, *count + 1.0);
    }
    let means: Vec<f64> = sums.iter().map(|(sum, count)| sum / count).collect();
    let centre = mean(&means);
    let indices: Vec<f64> = means.iter().map(|x| if factors { x / centre } else { x - centre }).collect();
    indices.iter().all(|x| x.is_finite() && (!factors || *x > 0.0)).then_some(indices)
}

/// Returns the autocorrelations at lags 0 to `lags`; zeros for a constant series.
pub fn autocorrelation(values: &[f64], lags: usize) -> Vec<f64> {
    let centre = mean(values);
    let centred: Vec<f64> = values.iter().map(|x| x - centre).collect();
    let at = |lag: usize| -> f64 {
        centred.get(lag..).unwrap_or_default().iter().zip(&centred).map(|(a, b)| a * b).sum()
    };
    let variance = at(0);
    let scale = if variance > 0.0 { 1.0 / variance } else { 0.0 };
    (0..=lags).map(|lag| at(lag) * scale).collect()
}

/// Finds the length of a season from the data: the highest peak of the autocorrelation of the series without its trend,
/// after the first zero. 1 if there is none.
pub fn detect(values: &[f64]) -> usize {
    const LONGEST: usize = 400;
    let recent = &values[values.len().saturating_sub(4000)..];
    let lags = (recent.len() / 3).min(LONGEST);
    if lags < 3 {
        return 1;
    }
    let (middle, centre) = ((recent.len() as f64 - 1.0) / 2.0, mean(recent));
    let products: f64 = recent.iter().enumerate().map(|(i, y)| (i as f64 - middle) * (y - centre)).sum();
    let squares: f64 = (0..recent.len()).map(|i| (i as f64 - middle).powi(2)).sum();
    let slope = products / squares;
    let flat: Vec<f64> = recent.iter().enumerate().map(|(i, y)| y - slope * (i as f64 - middle)).collect();
    let correlation = autocorrelation(&flat, lags + 1);
    let Some(begin) = correlation.iter().position(|x| *x < 0.0) else { return 1 };
    let is_peak =
        |lag: &usize| correlation[*lag] > correlation[lag - 1] && correlation[*lag] >= correlation[lag + 1];
    let peaks: Vec<usize> = (begin.max(2)..=lags).filter(is_peak).collect();
    let highest = peaks.iter().map(|lag| correlation[*lag]).fold(0.0, f64::max);
    let limit = MIN_CORRELATION.max(2.0 / (recent.len() as f64).sqrt());
    // The first peak that is nearly as high as the highest: multiples of a season are peaks too.
    peaks.into_iter().find(|lag| correlation[*lag] >= 0.85 * highest && highest >= limit).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};

    #[test]
    fn indices_are_those_of_the_series() {
        let season = [3.0, -1.0, -4.0, 2.0];
        let values: Vec<f64> = (0..40).map(|i| 100.0 + 0.5 * f64::from(i) + season[i as usize % 4]).collect();
        let found = indices(&values, &centred_average(&values, 4), 4, false).unwrap();
        assert!(found.iter().zip(season).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        let factors = [1.2, 0.8, 0.9, 1.1];
        let values: Vec<f64> = (0..40).map(|i| 10.0 * factors[i % 4]).collect();
        let found = indices(&values, &centred_average(&values, 4), 4, true).unwrap();
        assert!(found.iter().zip(factors).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert_eq!(indices(&values[..5], &centred_average(&values[..5], 4), 4, true), None);
    }

    #[test]
    fn the_season_of_the_data_is_found() {
        let wave = |i: usize, period: f64| (i as f64 / period * std::f64::consts::TAU).sin();
        let mut random = Random::new(4, Purpose::Check, 0);
        let noise: Vec<f64> = (0..300).map(|_| f64::from(random.uniform()) - 0.5).collect();
        for period in [5, 11, 24] {
            let values: Vec<f64> = (0..300).map(|i| wave(i, period as f64) + 0.5 * noise[i]).collect();
            assert_eq!(detect(&values), period);
        }
        assert_eq!(detect(&noise), 1);
        assert_eq!(detect(&[1.0; 50]), 1);
        assert_eq!(detect(&(0..50).map(f64::from).collect::<Vec<_>>()), 1);
        assert_eq!(detect(&[]), 1);
    }
}
