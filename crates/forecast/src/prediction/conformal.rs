//! Intervals that hold a stated share of the values: as wide as the errors were on windows that training did not see
//! (split conformal prediction; Vovk, Gammerman, Shafer 2005). The forecast's own spread says nothing about its error,
//! and plays no part.
//!
//! Errors are counted in units of the series' own season-to-season change, so that large and small series can share
//! what is known about them. The unit of a series is learned once, when its first error is seen: how much of its past is
//! at hand afterwards changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::seasonal_scale;

/// Half the width of the intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conformal {
    /// Steps of a season.
    season: usize,
    /// Windows that it was learned from.
    windows: usize,
    /// For each share, one width for each step of the horizon, in units of the series.
    widths: Vec<(f64, Vec<f64>)>,
    /// The units of the series, in the order of their names.
    #[serde(default)]
    units: Vec<(String, f64)>,
}

/// Collects errors.
#[derive(Clone, Debug)]
pub struct Errors {
    season: usize,
    /// For each step of the horizon.
    steps: Vec<Vec<f64>>,
    units: BTreeMap<String, f64>,
}

/// The unit of a series: how much it changes from season to season, or from step to step if it is too short to tell or the
/// seasons are all alike; none if it never changes.
fn unit(history: &[f64], season: usize) -> Option<f64> {
    let known = known_end(history);
    let scales = [season, 1].map(|lag| seasonal_scale(known, lag));
    scales.into_iter().find(|scale| scale.is_finite() && *scale > 0.0)
}

/// The values after the last gap.
pub fn known_end(history: &[f64]) -> &[f64] {
    let begin = history.iter().rposition(|value| value.is_nan()).map_or(0, |gap| gap + 1);
    &history[begin..]
}

impl Errors {
    /// No errors yet.
    pub fn new(horizon: usize, season: usize) -> Errors {
        Errors { season, steps: vec![Vec::new(); horizon], units: BTreeMap::new() }
    }

    /// Adds the errors of one window of a series. The first one says what its unit is.
    pub fn add(&mut self, id: &str, history: &[f64], actual: &[f64], forecast: &[f64]) {
        let known = self.units.get(id).copied();
        let unit = known.unwrap_or_else(|| unit(history, self.season).unwrap_or(1.0));
        if known.is_none() {
            self.units.insert(id.to_string(), unit);
        }
        for ((errors, y), f) in self.steps.iter_mut().zip(actual).zip(forecast) {
            let error = (y - f).abs() / unit;
            errors.push(error.min(f64::MAX));
        }
    }

    /// The widths that hold these shares.
    pub fn calibrate(mut self, shares: &[f64]) -> Conformal {
        let windows = self.steps.first().map_or(0, Vec::len);
        let mut pooled: Vec<f64> = self.steps.concat();
        for errors in self.steps.iter_mut().chain([&mut pooled]) {
            errors.sort_by(f64::total_cmp);
        }
        let width = |errors: &[f64], share: f64| {
            // Too few windows for one step by itself: all steps together.
            let own = rank(errors.len(), share).map(|rank| errors[rank]);
            let all = || rank(pooled.len(), share).map(|rank| pooled[rank]);
            own.or_else(all).or(pooled.last().copied()).unwrap_or(0.0)
        };
        // A larger share is never narrower, even if it is that of all steps together and the smaller one is not.
        let widths = |share: f64| {
            let smaller = || shares.iter().copied().filter(move |&other| other <= share);
            let widest = |errors: &Vec<f64>| smaller().map(|share| width(errors, share)).fold(0.0, f64::max);
            self.steps.iter().map(widest).collect()
        };
        Conformal {
            season: self.season,
            windows,
            widths: shares.iter().map(|&share| (share, widths(share))).collect(),
            units: self.units.into_iter().collect(),
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
    pub(super) fn scale(&mut self, factor: f64) {
        self.widths.iter_mut().flat_map(|(_, widths)| widths).for_each(|width| *width *= factor);
    }

    /// The unit of a series. That of one that was not there in training comes from what is known of it or, if that says
    /// nothing, is the median of those that were.
    fn unit(&self, id: &str, history: &[f64]) -> f64 {
        if let Ok(place) = self.units.binary_search_by(|(known, _)| known.as_str().cmp(id)) {
            return self.units[place].1;
        }
        let median = || {
            let mut units: Vec<f64> = self.units.iter().map(|(_, unit)| *unit).collect();
            units.sort_by(f64::total_cmp);
            units.get(units.len() / 2).copied()
        };
        unit(history, self.season).or_else(median).unwrap_or(1.0)
    }

    /// The interval of a share around the forecast of a series: lower and upper bounds.
    pub fn interval(&self, share: f64, id: &str, history: &[f64], forecast: &[f64]) -> Option<[Vec<f64>; 2]> {
        let (_, widths) = self.widths.iter().find(|(known, _)| *known == share)?;
        let unit = self.unit(id, history);
        let bound = |sign: f64| {
            let at = |(f, width): (&f64, &f64)| f + sign * width * unit;
            forecast.iter().zip(widths).map(at).collect()
        };
        Some([bound(-1.0), bound(1.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};

    const HISTORY: [f64; 3] = [1.0, 2.0, 1.0];

    #[test]
    fn intervals_hold_their_share_of_new_values_whatever_the_errors_look_like() {
        let mut random = Random::new(3, Purpose::Check, 0);
        let mut skewed = || f64::from(random.uniform()).powi(3) * 10.0;
        let mut errors = Errors::new(1, 1);
        (0..2000).for_each(|_| errors.add("a", &HISTORY, &[skewed()], &[0.0]));
        let conformal = errors.calibrate(&[0.5, 0.9]);
        for share in [0.5, 0.9] {
            let [low, high] = conformal.interval(share, "a", &HISTORY, &[0.0]).unwrap();
            let held = (0..4000).filter(|_| (low[0]..=high[0]).contains(&skewed())).count() as f64 / 4000.0;
            assert!((held - share).abs() < 0.03, "{held} for {share}");
        }
    }

    #[test]
    fn the_spread_of_the_forecast_plays_no_part() {
        let mut errors = Errors::new(3, 1);
        (0..50).for_each(|i| errors.add("a", &HISTORY, &[i as f64, 1.0, 2.0], &[0.0; 3]));
        let conformal = errors.calibrate(&[0.8]);
        let width = |forecast: &[f64]| {
            let [low, high] = conformal.interval(0.8, "a", &HISTORY, forecast).unwrap();
            low.iter().zip(&high).map(|(low, high)| (high - low).round()).collect::<Vec<_>>()
        };
        assert_eq!(width(&[5.0, 5.0, 5.0]), width(&[-100.0, 0.0, 1000.0]));
        assert!(width(&[5.0; 3])[0] > 20.0 * width(&[5.0; 3])[1]);
    }

    #[test]
    fn widths_follow_the_size_of_a_series() {
        let mut errors = Errors::new(1, 1);
        (0..50).for_each(|i| errors.add("a", &HISTORY, &[i as f64], &[0.0]));
        let conformal = errors.calibrate(&[0.8]);
        let width = |id: &str, history: &[f64]| {
            let [low, high] = conformal.interval(0.8, id, history, &[0.0]).unwrap();
            high[0] - low[0]
        };
        assert_eq!(width("new", &HISTORY.map(|x| x * 10.0)), 10.0 * width("new", &HISTORY));
        // A series that says nothing is taken to be like the others.
        assert_eq!(width("new", &[5.0; 4]), width("a", &HISTORY));
    }

    #[test]
    fn how_much_of_a_series_is_at_hand_changes_nothing() {
        let history: Vec<f64> = (0..40).map(|i| (i * 7 % 13) as f64 * 100.0).collect();
        let mut errors = Errors::new(1, 12);
        (30..40).for_each(|end| errors.add("a", &history[..end], &[50.0], &[0.0]));
        let conformal = errors.calibrate(&[0.8]);
        let interval = |begin: usize| conformal.interval(0.8, "a", &history[begin..], &[0.0]).unwrap();
        assert!([10, 27, 28, 35, 39].iter().all(|&begin| interval(begin) == interval(0)));
        // A short piece of an unknown series is measured from step to step, not in ones.
        let [low, _] = conformal.interval(0.8, "new", &history[34..], &[0.0]).unwrap();
        assert!(low[0] < -10.0, "{low:?}");
    }

    #[test]
    fn a_larger_share_is_never_narrower() {
        let mut errors = Errors::new(2, 1);
        // One step is hard and the other easy; there are windows enough for 80 % of a step, not for 95 %.
        (0..10).for_each(|i| errors.add("a", &HISTORY, &[100.0 + i as f64, 0.1], &[0.0; 2]));
        let conformal = errors.calibrate(&[0.95, 0.5, 0.8]);
        let width = |share| conformal.interval(share, "a", &HISTORY, &[0.0; 2]).unwrap()[1].clone();
        for step in 0..2 {
            assert!(width(0.5)[step] <= width(0.8)[step] && width(0.8)[step] <= width(0.95)[step]);
        }
    }

    #[test]
    fn errors_of_huge_values_are_finite() {
        let mut errors = Errors::new(1, 1);
        (0..20).for_each(|_| errors.add("a", &HISTORY, &[3e38], &[-3e38]));
        let [_, high] = errors.calibrate(&[0.8]).interval(0.8, "a", &HISTORY, &[0.0]).unwrap();
        assert!(high[0] > 0.0 && high[0].is_finite());
    }

    #[test]
    fn few_windows_share_what_is_known_of_all_steps() {
        let mut errors = Errors::new(4, 1);
        (0..3).for_each(|i| errors.add("a", &HISTORY, &[i as f64; 4], &[0.0; 4]));
        let conformal = errors.calibrate(&[0.9]);
        let [low, _] = conformal.interval(0.9, "a", &HISTORY, &[0.0; 4]).unwrap();
        assert_eq!(low, [-2.0; 4]);
        assert_eq!(rank(3, 0.9), None);
        assert_eq!(rank(9, 0.9), Some(8));
        assert!(conformal.interval(0.5, "a", &HISTORY, &[0.0; 4]).is_none());
    }
}
