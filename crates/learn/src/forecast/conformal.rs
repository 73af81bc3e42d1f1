//! Intervals that hold a stated share of the values: as wide as the errors were on windows that training did not see
//! (split conformal prediction; Vovk, Gammerman, Shafer 2005). The forecast's own spread says nothing about its error,
//! and plays no part.
//!
//! Errors are counted in units of the series' own season-to-season change, so that large and small series can share
//! what is known about them.

use serde::{Deserialize, Serialize};

use super::metrics::seasonal_scale;

/// Half the width of the intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conformal {
    /// Steps of a season.
    season: usize,
    /// Windows that it was learned from.
    windows: usize,
    /// For each share, one width for each step of the horizon, in units of the series.
    widths: Vec<(f64, Vec<f32>)>,
}

/// Collects errors.
#[derive(Clone, Debug)]
pub struct Errors {
    season: usize,
    /// For each step of the horizon.
    steps: Vec<Vec<f32>>,
}

/// The unit of a series: how much it changes from season to season; 1 if it does not, or is too short to tell.
fn unit(history: &[f32], season: usize) -> f64 {
    let scale = seasonal_scale(known_end(history), season);
    if scale.is_finite() && scale > 0.0 { scale } else { 1.0 }
}

/// The values after the last gap.
pub fn known_end(history: &[f32]) -> &[f32] {
    let begin = history.iter().rposition(|value| value.is_nan()).map_or(0, |gap| gap + 1);
    &history[begin..]
}

impl Errors {
    /// No errors yet.
    pub fn new(horizon: usize, season: usize) -> Errors {
        Errors { season, steps: vec![Vec::new(); horizon] }
    }

    /// Adds the errors of one window.
    pub fn add(&mut self, history: &[f32], actual: &[f32], forecast: &[f32]) {
        let unit = unit(history, self.season);
        for ((errors, y), f) in self.steps.iter_mut().zip(actual).zip(forecast) {
            errors.push((f64::from((y - f).abs()) / unit) as f32);
        }
    }

    /// The widths that hold these shares.
    pub fn calibrate(mut self, shares: &[f64]) -> Conformal {
        let windows = self.steps.first().map_or(0, Vec::len);
        let mut pooled: Vec<f32> = self.steps.concat();
        for errors in self.steps.iter_mut().chain([&mut pooled]) {
            errors.sort_by(f32::total_cmp);
        }
        let width = |errors: &[f32], share: f64| {
            // Too few windows for one step by itself: all steps together.
            let own = rank(errors.len(), share).map(|rank| errors[rank]);
            let all = || rank(pooled.len(), share).map(|rank| pooled[rank]);
            own.or_else(all).or(pooled.last().copied()).unwrap_or(0.0)
        };
        let widths = |share: f64| self.steps.iter().map(|errors| width(errors, share)).collect();
        Conformal {
            season: self.season,
            windows,
            widths: shares.iter().map(|&share| (share, widths(share))).collect(),
        }
    }
}

/// Place of the error that a share of new errors lies below, for any distribution: the ceil((n + 1) share)-th smallest.
/// None if there are too few.
fn rank(count: usize, share: f64) -> Option<usize> {
    let rank = ((count as f64 + 1.0) * share).ceil() as usize;
    (1..=count).contains(&rank).then(|| rank - 1)
}

impl Conformal {
    /// Windows that it was learned from.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// The shares it has intervals for.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        self.widths.iter().map(|(share, _)| *share)
    }

    /// Makes all intervals so many times as wide.
    #[cfg(test)]
    pub(super) fn scale(&mut self, factor: f32) {
        self.widths.iter_mut().flat_map(|(_, widths)| widths).for_each(|width| *width *= factor);
    }

    /// The interval of a share around a forecast: lower and upper bounds.
    pub fn interval(&self, share: f64, history: &[f32], forecast: &[f32]) -> Option<[Vec<f32>; 2]> {
        let (_, widths) = self.widths.iter().find(|(known, _)| *known == share)?;
        let unit = unit(history, self.season);
        let bound = |sign: f64| {
            let at = |(f, width): (&f32, &f32)| (f64::from(*f) + sign * f64::from(*width) * unit) as f32;
            forecast.iter().zip(widths).map(at).collect()
        };
        Some([bound(-1.0), bound(1.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Random};

    const HISTORY: [f32; 3] = [1.0, 2.0, 1.0];

    #[test]
    fn intervals_hold_their_share_of_new_values_whatever_the_errors_look_like() {
        let mut random = Random::new(3, Purpose::Check, 0);
        let mut skewed = || random.uniform().powi(3) * 10.0;
        let mut errors = Errors::new(1, 1);
        (0..2000).for_each(|_| errors.add(&HISTORY, &[skewed()], &[0.0]));
        let conformal = errors.calibrate(&[0.5, 0.9]);
        for share in [0.5, 0.9] {
            let [low, high] = conformal.interval(share, &HISTORY, &[0.0]).unwrap();
            let held = (0..4000).filter(|_| (low[0]..=high[0]).contains(&skewed())).count() as f64 / 4000.0;
            assert!((held - share).abs() < 0.03, "{held} for {share}");
        }
    }

    #[test]
    fn the_spread_of_the_forecast_plays_no_part() {
        let mut errors = Errors::new(3, 1);
        (0..50).for_each(|i| errors.add(&HISTORY, &[i as f32, 1.0, 2.0], &[0.0; 3]));
        let conformal = errors.calibrate(&[0.8]);
        let width = |forecast: &[f32]| {
            let [low, high] = conformal.interval(0.8, &HISTORY, forecast).unwrap();
            low.iter().zip(&high).map(|(low, high)| (high - low).round()).collect::<Vec<_>>()
        };
        assert_eq!(width(&[5.0, 5.0, 5.0]), width(&[-100.0, 0.0, 1000.0]));
        assert!(width(&[5.0; 3])[0] > 20.0 * width(&[5.0; 3])[1]);
    }

    #[test]
    fn widths_follow_the_size_of_a_series() {
        let mut errors = Errors::new(1, 1);
        (0..50).for_each(|i| errors.add(&HISTORY, &[i as f32], &[0.0]));
        let conformal = errors.calibrate(&[0.8]);
        let width = |history: &[f32]| {
            let [low, high] = conformal.interval(0.8, history, &[0.0]).unwrap();
            high[0] - low[0]
        };
        assert_eq!(width(&HISTORY.map(|x| x * 10.0)), 10.0 * width(&HISTORY));
        assert!(width(&[5.0; 4]).is_finite());
    }

    #[test]
    fn few_windows_share_what_is_known_of_all_steps() {
        let mut errors = Errors::new(4, 1);
        (0..3).for_each(|i| errors.add(&HISTORY, &[i as f32; 4], &[0.0; 4]));
        let conformal = errors.calibrate(&[0.9]);
        let [low, _] = conformal.interval(0.9, &HISTORY, &[0.0; 4]).unwrap();
        assert_eq!(low, [-2.0; 4]);
        assert_eq!(rank(3, 0.9), None);
        assert_eq!(rank(9, 0.9), Some(8));
        assert!(conformal.interval(0.5, &HISTORY, &[0.0; 4]).is_none());
    }
}
