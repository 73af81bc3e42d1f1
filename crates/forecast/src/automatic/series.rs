//! Series as the comparison sees them, and what is remarkable about their values.

use crate::classical::History;
use crate::classical::intermittent::is_intermittent;
use crate::data::Table;
use crate::metrics::seasonal_scale;

/// Distance from the median, in robust standard deviations, beyond which a value is an outlier.
const OUTLIER: f64 = 6.0;

/// Which series are chosen for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Group {
    /// Demand that is zero most of the time.
    Intermittent,
    /// Too short for the comparison of all candidates.
    Short,
    /// All others.
    Regular,
}

impl Group {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Group::Intermittent => "intermittent",
            Group::Short => "short",
            Group::Regular => "regular",
        }
    }
}

/// A series without gaps.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Number of the series in the table.
    pub number: usize,
    /// Values; gaps are filled by interpolation.
    pub values: Vec<f64>,
    /// Known-future covariates: `[values and horizon, columns]`.
    pub covariates: Vec<f64>,
    /// Number of covariates.
    pub columns: usize,
    /// Lengths of the seasons.
    pub seasons: Vec<f64>,
    /// Its group.
    pub group: Group,
    /// Whether no value is negative.
    pub nonnegative: bool,
    /// What is remarkable.
    pub quality: Quality,
}

/// What is remarkable about a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quality {
    /// Number of values.
    pub values: usize,
    /// Values that are missing and were filled.
    pub filled: usize,
    /// Positions of outliers.
    pub outliers: Vec<usize>,
    /// Number of zeros.
    pub zeros: usize,
    /// Whether all values are equal.
    pub constant: bool,
    /// Whether no value is negative.
    pub nonnegative: bool,
}

impl Prepared {
    /// Prepares all series that have a value. Covariates are used only if they are known over the horizon of every series.
    pub fn all(
        table: &Table,
        seasons: &[f64],
        horizon: usize,
        reach: impl Fn(usize) -> bool,
    ) -> Vec<Prepared> {
        let columns = if covariates_known(table, horizon) { table.columns.future.len() } else { 0 };
        let prepared = table.series.iter().enumerate().map(|(number, series)| {
            let (values, filled) = without_gaps(&series.values);
            let group = if is_intermittent(&values) {
                Group::Intermittent
            } else if reach(values.len()) {
                Group::Regular
            } else {
                Group::Short
            };
            let mut quality =
                Quality::of(&values, seasons.first().map_or(1, |season| season.round() as usize));
            // Values that were filled while reading a file are in its report.
            quality.filled = filled;
            let nonnegative = values.iter().all(|y| *y >= 0.0);
            let covariates = if columns > 0 { series.future.clone() } else { Vec::new() };
            Prepared {
                number,
                values,
                covariates,
                columns,
                seasons: seasons.to_vec(),
                group,
                nonnegative,
                quality,
            }
        });
        prepared.filter(|series| !series.values.is_empty()).collect()
    }

    /// Returns the whole history.
    pub fn history(&self) -> History<'_> {
        History {
            values: &self.values,
            covariates: &self.covariates,
            columns: self.columns,
            seasons: &self.seasons,
        }
    }

    /// Returns the season for scaled errors.
    pub fn season(&self) -> usize {
        self.history().season()
    }

    /// Returns what errors are divided by: the mean seasonal change before an origin.
    pub fn scale(&self, origin: usize) -> f64 {
        let history = &self.values[..origin];
        let scales = [self.season(), 1].map(|lag| seasonal_scale(history, lag));
        let known = scales.into_iter().find(|scale| scale.is_finite() && *scale > 0.0);
        known.unwrap_or_else(|| history.last().map_or(1.0, |x| x.abs()).max(1e-12))
    }

    /// Cuts a forecast at zero if the series is never negative.
    pub fn bounded(&self, mut forecast: Vec<f64>) -> Vec<f64> {
        if self.nonnegative {
            for y in &mut forecast {
                *y = y.max(0.0);
            }
        }
        forecast
    }
}

/// Returns whether every series has all known-future covariates over the horizon.
pub fn covariates_known(table: &Table, horizon: usize) -> bool {
    let columns = table.columns.future.len();
    let known = |series: &crate::data::Series| {
        let needed = (series.values.len() + horizon) * columns;
        series.future.len() >= needed && series.future[..needed].iter().all(|x| x.is_finite())
    };
    columns > 0 && table.series.iter().all(known)
}

/// Fills gaps by interpolation. Returns the number of values that were filled.
fn without_gaps(values: &[f64]) -> (Vec<f64>, usize) {
    let mut filled = values.to_vec();
    let mut count = 0;
    let mut before: Option<usize> = None;
    for place in 0..values.len() {
        if values[place].is_nan() {
            continue;
        }
        let begin = before.map_or(0, |before| before + 1);
        let left = before.map_or(values[place], |before| values[before]);
        for (gap, value) in filled[begin..place].iter_mut().enumerate() {
            let share = before.map_or(0.0, |before| (gap + 1) as f64 / (place - before) as f64);
            *value = left + share * (values[place] - left);
        }
        count += place - begin;
        before = Some(place);
    }
    filled.truncate(before.map_or(0, |last| last + 1));
    (filled, count)
}

impl Quality {
    /// Finds outliers of the series without its level and season.
    fn of(values: &[f64], season: usize) -> Quality {
        let first = values.first().copied().unwrap_or(0.0);
        let constant = values.iter().all(|y| *y == first);
        let zeros = values.iter().filter(|y| **y == 0.0).count();
        let outliers =
            if constant || is_intermittent(values) { Vec::new() } else { outliers(values, season) };
        let nonnegative = values.iter().all(|y| *y >= 0.0);
        Quality { values: values.len(), filled: 0, outliers, zeros, constant, nonnegative }
    }
}

/// Positions whose value differs from the median of the neighbours and of the same step of other seasons by more than
/// [`OUTLIER`] robust standard deviations.
fn outliers(values: &[f64], season: usize) -> Vec<usize> {
    if values.len() < 12 {
        return Vec::new();
    }
    let season = if values.len() >= 4 * season { season } else { 1 };
    let remainder: Vec<f64> = (0..values.len())
        .map(|place| {
            let lags = (1..=3).flat_map(|k| [place.checked_sub(k * season), Some(place + k * season)]);
            let mut around: Vec<f64> =
                lags.flatten().filter_map(|other| values.get(other)).copied().collect();
            values[place] - median(&mut around)
        })
        .collect();
    let mut sizes: Vec<f64> = remainder.iter().map(|x| x.abs()).collect();
    let scale = 1.4826 * median(&mut sizes);
    let is_outlier = |place: &usize| scale > 0.0 && remainder[*place].abs() > OUTLIER * scale;
    (0..values.len()).filter(is_outlier).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_counted() {
        let nan = f64::NAN;
        assert_eq!(without_gaps(&[1.0, nan, nan, 4.0, nan]), (vec![1.0, 2.0, 3.0, 4.0], 2));
        assert_eq!(without_gaps(&[nan, 3.0]), (vec![3.0, 3.0], 1));
        assert_eq!(without_gaps(&[nan]), (vec![], 0));
    }

    #[test]
    fn outliers_are_values_unlike_their_season() {
        let mut values: Vec<f64> =
            (0..84).map(|i| 100.0 * f64::from(i % 7) + f64::from(i * 31 % 11)).collect();
        assert!(outliers(&values, 7).is_empty());
        values[40] += 300.0;
        assert_eq!(outliers(&values, 7), [40]);
        assert!(outliers(&[5.0; 30], 7).is_empty());
    }
}
