//! Scaling of values and covariates for the model, and the inverse transformation of forecasts.
//!
//! The steps, in order: clip outliers, take logarithms, take differences, remove centre and scale. Statistics come from the
//! training subset only, per series or for all series. (Normalisation per window is part of the model.) All steps use 64
//! bits; only the result is rounded to 32 bits, so that small changes of large values are kept.

use serde::{Deserialize, Serialize};

use super::split::{Split, Subset};
use super::table::{Series, Table};

/// The statistics of centre and scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// No centring and scaling.
    None,
    /// Mean and population standard deviation.
    #[default]
    Standard,
    /// Median and interquartile range.
    Robust,
    /// The range is mapped to 0 to 1.
    MinMax,
}

/// The scope of the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Per series.
    #[default]
    Series,
    /// For all series.
    Global,
}

/// Scaling settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scaling {
    /// Statistics of centre and scale.
    pub method: Method,
    /// Scope of the statistics.
    pub scope: Scope,
    /// Whether to take logarithms.
    pub log: bool,
    /// Lag of differences; 0 takes none.
    pub difference: usize,
    /// Clip values at this many robust standard deviations from the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
}

/// The fitted scaling of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedScale {
    /// Lower and upper clipping limits.
    pub(crate) limits: Option<(f64, f64)>,
    /// Added before taking logarithms.
    pub(crate) shift: f64,
    /// Below this value the logarithm is continued by its tangent, so that it is defined everywhere.
    pub(crate) knot: f64,
    pub(crate) center: f64,
    pub(crate) scale: f64,
}

/// The fitted scaling of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaler {
    /// Settings.
    pub scaling: Scaling,
    /// Sorted ids of the series; empty with global scope.
    ids: Vec<String>,
    fits: Vec<FittedScale>,
    /// Mean and standard deviation of past, known-future and static covariates.
    columns: [Vec<(f64, f64)>; 3],
}

/// A series that is not known to the scaler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "series {id:?} was not in the training data, and its scale is not known; scale it by its own values with --new-series or Forecaster::learn_new_series, or train with scaling.scope = \"global\""
)]
pub struct UnknownSeries {
    /// Id of the series.
    pub id: String,
}

impl Scaler {
    /// Fits the scaling to the training subset of a table.
    pub fn fit(scaling: &Scaling, table: &Table, split: &Split) -> Scaler {
        let training = |series: &Series| split.range(Subset::Train, series.values.len());
        let columns = fit_columns(table, split);
        let parts: Vec<&[f64]> = table.series.iter().map(|series| &series.values[training(series)]).collect();
        let mut scaler = Scaler { scaling: *scaling, ids: Vec::new(), fits: Vec::new(), columns };
        match scaling.scope {
            Scope::Global => scaler.fits.push(FittedScale::new(scaling, &parts)),
            Scope::Series => {
                let fits = parts.iter().map(|part| FittedScale::new(scaling, &[part]));
                scaler.insert(table.series.iter().map(|series| series.id.clone()).zip(fits).collect());
            }
        }
        scaler
    }

    /// Adds fitted series.
    fn insert(&mut self, mut fits: Vec<(String, FittedScale)>) {
        fits.extend(std::mem::take(&mut self.ids).into_iter().zip(std::mem::take(&mut self.fits)));
        fits.sort_by(|a, b| a.0.cmp(&b.0));
        (self.ids, self.fits) = fits.into_iter().unzip();
    }

    /// Returns a scaler that also knows the other series of a table, fitted to all of their values.
    #[must_use]
    pub fn with_new_series(&self, table: &Table) -> Scaler {
        let mut scaler = self.clone();
        if self.scaling.scope == Scope::Series {
            let unknown = table.series.iter().filter(|series| self.of(&series.id).is_none());
            let fit = |series: &Series| (series.id.clone(), self.fit_series(&series.values));
            scaler.insert(unknown.map(fit).collect());
        }
        scaler
    }

    /// Fits the scaling to the values of one series.
    pub fn fit_series(&self, values: &[f64]) -> FittedScale {
        FittedScale::new(&self.scaling, &[values])
    }

    /// Returns the scaling of a series.
    pub fn of(&self, id: &str) -> Option<&FittedScale> {
        match self.scaling.scope {
            Scope::Global => self.fits.first(),
            Scope::Series => {
                let place = self.ids.binary_search_by(|known| known.as_str().cmp(id)).ok()?;
                self.fits.get(place)
            }
        }
    }

    /// Returns the ids of the series, sorted; none with global scope.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns the scaling of every series in the order of [`Scaler::ids`], or that of all series.
    pub fn fits(&self) -> &[FittedScale] {
        &self.fits
    }

    /// Returns location and scale of past, known-future and static covariates.
    pub fn columns(&self) -> &[Vec<(f64, f64)>; 3] {
        &self.columns
    }

    /// Scales a table. Values without a predecessor for the difference become NaN.
    pub fn apply(&self, table: &Table) -> Result<Table, UnknownSeries> {
        let mut scaled = table.clone();
        for series in &mut scaled.series {
            let fit = self.of(&series.id).ok_or_else(|| UnknownSeries { id: series.id.clone() })?;
            fit.apply(&self.scaling, &mut series.values);
            self.apply_columns([&mut series.past, &mut series.future, &mut series.fixed]);
        }
        Ok(scaled)
    }

    /// Scales rows of past, known-future and static covariates.
    pub fn apply_columns(&self, rows: [&mut [f64]; 3]) {
        for (values, fits) in rows.into_iter().zip(&self.columns) {
            for row in values.chunks_mut(fits.len().max(1)) {
                for (value, (center, scale)) in row.iter_mut().zip(fits) {
                    *value = (*value - center) / scale;
                }
            }
        }
    }
}

impl FittedScale {
    /// Inverts the scaling of a forecast. `history` holds the unscaled values before it.
    pub fn invert(&self, scaling: &Scaling, history: &[f64], forecast: &mut [f64]) {
        let lag = scaling.difference;
        for step in 0..forecast.len() {
            let mut value = forecast[step] * self.scale + self.center;
            if lag > 0 {
                // The value one lag before: an inverted forecast, or a known value.
                let before = if step >= lag {
                    Some(forecast[step - lag])
                } else {
                    (history.len() + step).checked_sub(lag).and_then(|place| history.get(place).copied())
                };
                value += self.forward(scaling, before.unwrap_or(0.0));
            }
            forecast[step] = self.backward(scaling, value);
        }
    }

    fn new(scaling: &Scaling, parts: &[&[f64]]) -> FittedScale {
        let mut fit = FittedScale { limits: None, shift: 0.0, knot: 1.0, center: 0.0, scale: 1.0 };
        let mut values = parts.concat();
        sort_known(&mut values);
        fit.limits = scaling.clip.and_then(|clip| limits(&values, f64::from(clip)));
        let least = values.first().map_or(0.0, |least| fit.limits.map_or(*least, |(low, _)| least.max(low)));
        if scaling.log {
            fit.shift = if least > 0.0 { 0.0 } else { 1.0 - least };
            fit.knot = (least + fit.shift).max(f64::MIN_POSITIVE) / 2.0;
        }
        values.clear();
        for part in parts {
            values.extend_from_slice(part);
            let begin = values.len() - part.len();
            fit.apply(scaling, &mut values[begin..]);
        }
        sort_known(&mut values);
        (fit.center, fit.scale) = center_and_scale(scaling.method, &values);
        fit
    }

    /// Scales consecutive values of a series. Values without a predecessor for the difference become NaN.
    pub fn apply(&self, scaling: &Scaling, values: &mut [f64]) {
        // From the end, so that predecessors are still unscaled.
        for place in (0..values.len()).rev() {
            let before = place.checked_sub(scaling.difference).map_or(f64::NAN, |before| values[before]);
            values[place] = self.apply_one(scaling, values[place], before);
        }
    }

    /// Scales one value, given the value one lag before.
    pub fn apply_one(&self, scaling: &Scaling, value: f64, before: f64) -> f64 {
        let before = if scaling.difference == 0 { 0.0 } else { self.forward(scaling, before) };
        (self.forward(scaling, value) - before - self.center) / self.scale
    }

    /// Clips a value and takes its logarithm.
    fn forward(&self, scaling: &Scaling, value: f64) -> f64 {
        let value = self.limits.map_or(value, |(low, high)| value.clamp(low, high));
        if !scaling.log {
            return value;
        }
        let x = value + self.shift;
        if x < self.knot { self.knot.ln() + (x - self.knot) / self.knot } else { x.ln() }
    }

    /// Inverts the logarithm. Clipping is not inverted.
    fn backward(&self, scaling: &Scaling, value: f64) -> f64 {
        if !scaling.log {
            return value;
        }
        let edge = self.knot.ln();
        let x = if value < edge { self.knot * (1.0 + value - edge) } else { value.exp() };
        x - self.shift
    }
}

/// Removes values that are not finite, and sorts the others.
fn sort_known(values: &mut Vec<f64>) {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
}

/// Returns clipping limits of sorted values; `None` if more than half of them are equal.
fn limits(sorted: &[f64], clip: f64) -> Option<(f64, f64)> {
    let middle = quantile(sorted, 0.5)?;
    let mut distances: Vec<f64> = sorted.iter().map(|x| (x - middle).abs()).collect();
    distances.sort_by(f64::total_cmp);
    // 1.4826 scales the median absolute deviation to the standard deviation of a normal distribution.
    let reach = quantile(&distances, 0.5)? * 1.4826 * clip;
    (reach > 0.0).then_some((middle - reach, middle + reach))
}

/// Returns a quantile of sorted values, by linear interpolation.
fn quantile(sorted: &[f64], level: f64) -> Option<f64> {
    let place = level * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[place as usize], sorted[place.ceil() as usize]);
    Some(low + (place - place.floor()) * (high - low))
}

/// Returns centre and scale of sorted values. A constant series has scale 1.
fn center_and_scale(method: Method, sorted: &[f64]) -> (f64, f64) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return (0.0, 1.0) };
    let at = |level| quantile(sorted, level).unwrap_or(0.0);
    let (center, scale) = match method {
        Method::None => (0.0, 1.0),
        Method::Standard => mean_and_deviation(sorted),
        Method::Robust => (at(0.5), at(0.75) - at(0.25)),
        Method::MinMax => (*first, last - first),
    };
    let useful = scale.is_finite() && scale > 1e-12 * center.abs().max(f64::MIN_POSITIVE);
    (center, if useful { scale } else { 1.0 })
}

/// Returns the mean, 0 for no values. It is computed relative to the first value, and so exact for constant values.
pub fn mean(values: &[f64]) -> f64 {
    let first = values.first().copied().unwrap_or(0.0);
    first + values.iter().map(|x| x - first).sum::<f64>() / values.len().max(1) as f64
}

/// Returns mean and population standard deviation.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let squares = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    (mean, (squares / values.len().max(1) as f64).sqrt())
}

/// Returns mean and standard deviation of each covariate over all series.
fn fit_columns(table: &Table, split: &Split) -> [Vec<(f64, f64)>; 3] {
    let names = &table.columns;
    let fit = |width: usize, of: &dyn Fn(&Series) -> &[f64], by_time: bool| -> Vec<(f64, f64)> {
        let column = |c: usize| {
            let values = table.series.iter().flat_map(move |series| {
                let rows = if by_time { split.range(Subset::Train, series.values.len()).end } else { 1 };
                of(series).chunks(width).take(rows).map(move |row| row[c])
            });
            let (mean, deviation) = mean_and_deviation(&values.filter(|x| x.is_finite()).collect::<Vec<_>>());
            (mean, if deviation > 0.0 { deviation } else { 1.0 })
        };
        (0..width).map(column).collect()
    };
    [
        fit(names.past.len(), &|series| &series.past, true),
        fit(names.future.len(), &|series| &series.future, true),
        fit(names.fixed.len(), &|series| &series.fixed, false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Length, Schema, read_csv};
    use proptest::prelude::*;

    fn table(series: &[Vec<f64>]) -> Table {
        use std::fmt::Write as _;
        let mut text = "unique_id,ds,y,p,f,s\n".to_string();
        for (id, values) in series.iter().enumerate() {
            for (i, value) in values.iter().enumerate() {
                writeln!(text, "{id},{i},{value},{},{},{id}", i * 10, i % 2).unwrap();
            }
        }
        let schema: Schema =
            toml::from_str("past = [\"p\"]\nfuture = [\"f\"]\nstatic = [\"s\"]\nfrequency = \"1\"").unwrap();
        read_csv(text.as_bytes(), "a", &schema).unwrap()
    }

    fn all() -> Split {
        Split { train: None, validation: Length::Steps(0), test: Length::Steps(0) }
    }

    fn scaled(options: &str, values: &[f64], split: &Split) -> Vec<f64> {
        let table = table(&[values.to_vec()]);
        let scaler = Scaler::fit(&toml::from_str(options).unwrap(), &table, split);
        scaler.apply(&table).unwrap().series[0].values.clone()
    }

    #[test]
    fn methods_have_known_results() {
        let values = [1., 2., 3., 4., 5.];
        let root = 2f64.sqrt();
        assert_eq!(scaled("", &values, &all()), [-2. / root, -1. / root, 0., 1. / root, 2. / root]);
        assert_eq!(scaled("method = \"min-max\"", &values, &all()), [0., 0.25, 0.5, 0.75, 1.]);
        assert_eq!(scaled("method = \"robust\"", &values, &all()), [-1., -0.5, 0., 0.5, 1.]);
        assert_eq!(scaled("method = \"none\"\nlog = true", &[1.0, 2.0], &all()), [0.0, 2f64.ln()]);
        let differences = scaled("method = \"none\"\ndifference = 2", &values, &all());
        assert!(differences[..2].iter().all(|x| x.is_nan()));
        assert_eq!(differences[2..], [2., 2., 2.]);
    }

    #[test]
    fn statistics_come_from_the_training_subset() {
        let split = Split { validation: Length::Steps(2), ..all() };
        let early = scaled("", &[1., 2., 3., 4., 5.], &split);
        let late = scaled("", &[1., 2., 3., 400., -5e6], &split);
        assert_eq!(early[..3], late[..3]);
    }

    #[test]
    fn constant_series_become_zero() {
        for method in ["standard", "robust", "min-max"] {
            assert_eq!(scaled(&format!("method = \"{method}\""), &[7.0; 5], &all()), [0.0; 5]);
        }
        assert_eq!(scaled("", &[0.1; 7], &all()), [0.0; 7]);
    }

    #[test]
    fn outliers_are_clipped() {
        let values = [1., 2., 3., 4., 1000.];
        let cut = scaled("method = \"none\"\nclip = 3.0", &values, &all());
        assert_eq!(cut[..4], values[..4]);
        assert!(cut[4] < 10.0, "{cut:?}");
        assert_eq!(scaled("method = \"none\"\nclip = 3.0", &[1., 1., 1., 9.], &all()), [1., 1., 1., 9.]);
    }

    #[test]
    fn global_scope_has_one_scale() {
        let table = table(&[vec![0.; 3], vec![2.; 3]]);
        let scaler = Scaler::fit(&toml::from_str("scope = \"global\"").unwrap(), &table, &all());
        let values: Vec<f64> = scaler.apply(&table).unwrap().series.iter().map(|s| s.values[0]).collect();
        assert_eq!(values, [-1., 1.]);
        assert!(scaler.of("unknown").is_some());
    }

    #[test]
    fn covariates_are_standardised_and_unknown_series_reported() {
        let known = table(&[vec![1., 2., 3., 4.], vec![5., 6., 7., 9.]]);
        let scaler = Scaler::fit(&Scaling::default(), &known, &all());
        let scaled = scaler.apply(&known).unwrap();
        assert_eq!(scaled.series[0].future, [-1., 1., -1., 1.]);
        assert_eq!((scaled.series[0].fixed[0], scaled.series[1].fixed[0]), (-1., 1.));
        assert!(scaled.series[0].past.iter().sum::<f64>().abs() < 1e-6);
        let mut other = known.clone();
        other.series[1].id = "new".into();
        let message = scaler.apply(&other).unwrap_err().to_string();
        assert!(message.contains("series \"new\" was not in the training data"), "{message}");
        assert!(scaler.with_new_series(&other).apply(&other).is_ok());
    }

    #[test]
    fn covariates_keep_small_changes_and_constant_ones_become_0() {
        let columns = |level: f64| {
            let rows = (0..50).map(|i| format!("{i},{i},{},0.1\n", level + f64::from(i * i % 7)));
            let text = format!("ds,y,p,q\n{}", rows.collect::<String>());
            let schema: Schema = toml::from_str("past = [\"p\", \"q\"]").unwrap();
            let table = read_csv(text.as_bytes(), "a", &schema).unwrap();
            let scaled = Scaler::fit(&Scaling::default(), &table, &all()).apply(&table).unwrap();
            scaled.series[0].past.clone()
        };
        let (near, far) = (columns(0.0), columns(1.7e9));
        assert!(near.iter().zip(&far).all(|(near, far)| (near - far).abs() < 1e-6));
        assert!(near.iter().skip(1).step_by(2).all(|constant| *constant == 0.0));
    }

    proptest! {
        #[test]
        fn scaling_is_inverted(
            changes in prop::collection::vec(-50f64..50.0, 10..40),
            level in prop::sample::select(&[0.0, 1.0, 2e8][..]),
            method in 0usize..4,
            log in any::<bool>(),
            difference in 0usize..4,
            ahead in 1usize..7,
        ) {
            let method = [Method::None, Method::Standard, Method::Robust, Method::MinMax][method];
            let scaling = Scaling { method, log, difference, ..Scaling::default() };
            let values: Vec<f64> = changes.iter().map(|change| level + change).collect();
            let table = table(std::slice::from_ref(&values));
            // The scale comes from the first half: forecasts may be outside its range.
            let split = Split { validation: Length::Fraction(0.5), ..all() };
            let scaler = Scaler::fit(&scaling, &table, &split);
            let text = serde_json::to_string(&scaler).unwrap();
            let scaler: Scaler = serde_json::from_str(&text).unwrap();
            let known = values.len() - ahead;
            let mut forecast = scaler.apply(&table).unwrap().series[0].values[known..].to_vec();
            scaler.of("0").unwrap().invert(&scaling, &values[..known], &mut forecast);
            for (found, value) in forecast.iter().zip(&values[known..]) {
                prop_assert!((found - value).abs() < 1e-5, "{found} for {value}");
            }
        }
    }
}
