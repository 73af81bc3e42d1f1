//! Prediction intervals by split conformal prediction (Vovk, Gammerman, Shafer 2005): the width is a quantile of the
//! absolute errors on windows that training did not see, whatever the spread of the forecast itself.
//!
//! Errors are measured in units of the series' own season-to-season change, so that series of different magnitude are
//! calibrated together. The unit of a series is computed once, at its first calibration error, so that intervals do not
//! depend on how much history is given later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::seasonal_scale;

/// Calibrated interval widths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conformal {
    /// Steps per season.
    season: usize,
    /// Number of calibration windows.
    windows: usize,
    /// For each level, half the width at each step of the horizon, in units of the series.
    widths: Vec<(f64, Vec<f64>)>,
    /// Units of the series, sorted by id.
    #[serde(default)]
    units: Vec<(String, f64)>,
}

/// Collects calibration errors.
#[derive(Clone, Debug)]
pub struct CalibrationErrors {
    season: usize,
    /// Absolute errors by step of the horizon.
    steps: Vec<Vec<f64>>,
    units: BTreeMap<String, f64>,
}

/// Returns the unit of a series: its mean absolute seasonal difference, or its mean absolute difference if the history is
/// too short or exactly periodic. `None` if the series is constant.
fn unit(history: &[f64], season: usize) -> Option<f64> {
    let known = after_last_gap(history);
    let scales = [season, 1].map(|lag| seasonal_scale(known, lag));
    scales.into_iter().find(|scale| scale.is_finite() && *scale > 0.0)
}

/// Returns the values after the last gap.
pub fn after_last_gap(history: &[f64]) -> &[f64] {
    let begin = history.iter().rposition(|value| value.is_nan()).map_or(0, |gap| gap + 1);
    &history[begin..]
}

impl CalibrationErrors {
    /// Creates an empty collection.
    pub fn new(horizon: usize, season: usize) -> CalibrationErrors {
        CalibrationErrors { season, steps: vec![Vec::new(); horizon], units: BTreeMap::new() }
    }

    /// Adds the errors of one window. The first window of a series determines its unit.
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

    /// Returns the widths for these interval levels.
    pub fn calibrate(mut self, levels: &[f64]) -> Conformal {
        let windows = self.steps.first().map_or(0, Vec::len);
        let mut pooled: Vec<f64> = self.steps.concat();
        for errors in self.steps.iter_mut().chain([&mut pooled]) {
            errors.sort_by(f64::total_cmp);
        }
        let width = |errors: &[f64], level: f64| {
            // With too few windows for one step, the errors of all steps are pooled.
            let own = rank(errors.len(), level).map(|rank| errors[rank]);
            let all = || rank(pooled.len(), level).map(|rank| pooled[rank]);
            own.or_else(all).or(pooled.last().copied()).unwrap_or(0.0)
        };
        // Intervals are nested, even if only the wider one is pooled.
        let widths = |level: f64| {
            let smaller = || levels.iter().copied().filter(move |&other| other <= level);
            let widest = |errors: &Vec<f64>| smaller().map(|level| width(errors, level)).fold(0.0, f64::max);
            self.steps.iter().map(widest).collect()
        };
        Conformal {
            season: self.season,
            windows,
            widths: levels.iter().map(|&level| (level, widths(level))).collect(),
            units: self.units.into_iter().collect(),
        }
    }
}

/// Returns the index of the conformal quantile, the ceil((n + 1) level)-th smallest error; `None` if there are too few
/// errors.
fn rank(count: usize, level: f64) -> Option<usize> {
    let rank = ((count as f64 + 1.0) * level).ceil() as usize;
    (1..=count).contains(&rank).then(|| rank - 1)
}

impl Conformal {
    /// Returns the number of calibration windows.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Returns the interval levels.
    pub fn levels(&self) -> impl Iterator<Item = f64> + '_ {
        self.widths.iter().map(|(level, _)| *level)
    }

    /// Multiplies all widths by a factor.
    #[cfg(test)]
    pub(super) fn scale(&mut self, factor: f64) {
        self.widths.iter_mut().flat_map(|(_, widths)| widths).for_each(|width| *width *= factor);
    }

    /// Returns the unit of a series. For a series that was not calibrated it is computed from its history; if that is
    /// constant, the median of the known units is used.
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

    /// Returns the lower and upper bounds of an interval around a forecast; `None` if the level is not calibrated.
    pub fn interval(&self, level: f64, id: &str, history: &[f64], forecast: &[f64]) -> Option<[Vec<f64>; 2]> {
        let (_, widths) = self.widths.iter().find(|(known, _)| *known == level)?;
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
    fn empirical_coverage_matches_the_level_for_skewed_errors() {
        let mut random = Random::new(3, Purpose::Check, 0);
        let mut skewed = || f64::from(random.uniform()).powi(3) * 10.0;
        let mut errors = CalibrationErrors::new(1, 1);
        (0..2000).for_each(|_| errors.add("a", &HISTORY, &[skewed()], &[0.0]));
        let conformal = errors.calibrate(&[0.5, 0.9]);
        for level in [0.5, 0.9] {
            let [low, high] = conformal.interval(level, "a", &HISTORY, &[0.0]).unwrap();
            let coverage =
                (0..4000).filter(|_| (low[0]..=high[0]).contains(&skewed())).count() as f64 / 4000.0;
            assert!((coverage - level).abs() < 0.03, "{coverage} for {level}");
        }
    }

    #[test]
    fn widths_do_not_depend_on_the_forecast() {
        let mut errors = CalibrationErrors::new(3, 1);
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
    fn widths_scale_with_the_series() {
        let mut errors = CalibrationErrors::new(1, 1);
        (0..50).for_each(|i| errors.add("a", &HISTORY, &[i as f64], &[0.0]));
        let conformal = errors.calibrate(&[0.8]);
        let width = |id: &str, history: &[f64]| {
            let [low, high] = conformal.interval(0.8, id, history, &[0.0]).unwrap();
            high[0] - low[0]
        };
        assert_eq!(width("new", &HISTORY.map(|x| x * 10.0)), 10.0 * width("new", &HISTORY));
        // A constant series has the median unit.
        assert_eq!(width("new", &[5.0; 4]), width("a", &HISTORY));
    }

    #[test]
    fn widths_do_not_depend_on_the_length_of_the_history() {
        let history: Vec<f64> = (0..40).map(|i| (i * 7 % 13) as f64 * 100.0).collect();
        let mut errors = CalibrationErrors::new(1, 12);
        (30..40).for_each(|end| errors.add("a", &history[..end], &[50.0], &[0.0]));
        let conformal = errors.calibrate(&[0.8]);
        let interval = |begin: usize| conformal.interval(0.8, "a", &history[begin..], &[0.0]).unwrap();
        assert!([10, 27, 28, 35, 39].iter().all(|&begin| interval(begin) == interval(0)));
        // The unit of a short unknown series is its mean absolute difference, not 1.
        let [low, _] = conformal.interval(0.8, "new", &history[34..], &[0.0]).unwrap();
        assert!(low[0] < -10.0, "{low:?}");
    }

    #[test]
    fn intervals_are_nested() {
        let mut errors = CalibrationErrors::new(2, 1);
        // Windows suffice for 80 % of a single step, but not for 95 %.
        (0..10).for_each(|i| errors.add("a", &HISTORY, &[100.0 + i as f64, 0.1], &[0.0; 2]));
        let conformal = errors.calibrate(&[0.95, 0.5, 0.8]);
        let width = |level| conformal.interval(level, "a", &HISTORY, &[0.0; 2]).unwrap()[1].clone();
        for step in 0..2 {
            assert!(width(0.5)[step] <= width(0.8)[step] && width(0.8)[step] <= width(0.95)[step]);
        }
    }

    #[test]
    fn widths_of_huge_errors_are_finite() {
        let mut errors = CalibrationErrors::new(1, 1);
        (0..20).for_each(|_| errors.add("a", &HISTORY, &[3e38], &[-3e38]));
        let [_, high] = errors.calibrate(&[0.8]).interval(0.8, "a", &HISTORY, &[0.0]).unwrap();
        assert!(high[0] > 0.0 && high[0].is_finite());
    }

    #[test]
    fn few_windows_pool_the_errors_of_all_steps() {
        let mut errors = CalibrationErrors::new(4, 1);
        (0..3).for_each(|i| errors.add("a", &HISTORY, &[i as f64; 4], &[0.0; 4]));
        let conformal = errors.calibrate(&[0.9]);
        let [low, _] = conformal.interval(0.9, "a", &HISTORY, &[0.0; 4]).unwrap();
        assert_eq!(low, [-2.0; 4]);
        assert_eq!(rank(3, 0.9), None);
        assert_eq!(rank(9, 0.9), Some(8));
        assert!(conformal.interval(0.5, "a", &HISTORY, &[0.0; 4]).is_none());
    }
}
