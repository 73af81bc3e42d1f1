//! Values brought to one size for a model, and its forecasts brought back.
//!
//! In this order: outliers are cut, the logarithm is taken, differences are taken, centre and scale are removed. What
//! is removed is learned from the training part alone, for each series or for all together. (Normalising each window
//! by itself belongs to the model.) All of it is done in 64 bits: the model sees 32, but only of what is left, so that
//! small changes of large values are not lost.

use serde::{Deserialize, Serialize};

use super::split::{Split, Subset};
use super::table::{Series, Table};

/// How centre and scale are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// They are left as they are.
    None,
    /// Mean and population standard deviation.
    #[default]
    Standard,
    /// Median and the distance between the quartiles.
    Robust,
    /// The range becomes 0 to 1.
    MinMax,
}

/// What is scaled together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each series by itself.
    #[default]
    Series,
    /// All series.
    Global,
}

/// How values are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scaling {
    /// Centre and scale.
    pub method: Method,
    /// What is scaled together.
    pub scope: Scope,
    /// Take the logarithm.
    pub log: bool,
    /// Take the difference to the value so many steps before; 0 does not.
    pub difference: usize,
    /// Cut values further from the median than so many robust standard deviations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
}

/// What was learned from the training part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedScale {
    /// Values are cut below and above.
    limits: Option<(f64, f64)>,
    /// Added before the logarithm.
    shift: f64,
    /// Below it, the logarithm goes on as its tangent, so that every number has one.
    knot: f64,
    center: f64,
    scale: f64,
}

/// Scales the series of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaler {
    /// How.
    pub scaling: Scaling,
    /// Ids of the series in alphabetical order; empty if they are scaled together.
    ids: Vec<String>,
    fits: Vec<FittedScale>,
    /// Mean and standard deviation of past, future and static columns.
    columns: [Vec<(f64, f64)>; 3],
}

/// A series that the scaler does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "series {id:?} was not there in training, and its scale is not known; --new-series learns it from its own values, with scope = \"global\" it is not needed"
)]
pub struct UnknownSeries {
    /// The series.
    pub id: String,
}

impl Scaler {
    /// Learns from the training part of a table.
    pub fn fit(scaling: &Scaling, table: &Table, split: &Split) -> Scaler {
        let training = |series: &Series| split.range(Subset::Train, series.values.len());
        let columns = fit_columns(table, split);
        let parts: Vec<&[f64]> = table.series.iter().map(|series| &series.values[training(series)]).collect();
        let mut scaler = Scaler { scaling: *scaling, ids: Vec::new(), fits: Vec::new(), columns };
        match scaling.scope {
            Scope::Global => scaler.fits.push(FittedScale::new(scaling, &parts)),
            Scope::Series => {
                let fits = parts.iter().map(|part| FittedScale::new(scaling, &[part]));
                scaler.learn(table.series.iter().map(|series| series.id.clone()).zip(fits).collect());
            }
        }
        scaler
    }

    /// Adds what was learned of series.
    fn learn(&mut self, mut fits: Vec<(String, FittedScale)>) {
        fits.extend(std::mem::take(&mut self.ids).into_iter().zip(std::mem::take(&mut self.fits)));
        fits.sort_by(|a, b| a.0.cmp(&b.0));
        (self.ids, self.fits) = fits.into_iter().unzip();
    }

    /// A scaler for other series, those it does not know learned from all of their values.
    #[must_use]
    pub fn with_new_series(&self, table: &Table) -> Scaler {
        let mut scaler = self.clone();
        if self.scaling.scope == Scope::Series {
            let unknown = table.series.iter().filter(|series| self.of(&series.id).is_none());
            let fit = |series: &Series| (series.id.clone(), self.learn_one(&series.values));
            scaler.learn(unknown.map(fit).collect());
        }
        scaler
    }

    /// What can be learned of a series from these values.
    pub fn learn_one(&self, values: &[f64]) -> FittedScale {
        FittedScale::new(&self.scaling, &[values])
    }

    /// What was learned of a series.
    pub fn of(&self, id: &str) -> Option<&FittedScale> {
        match self.scaling.scope {
            Scope::Global => self.fits.first(),
            Scope::Series => {
                let place = self.ids.binary_search_by(|known| known.as_str().cmp(id)).ok()?;
                self.fits.get(place)
            }
        }
    }

    /// The table as the model sees it. Values without a predecessor to take the difference to are NaN.
    pub fn apply(&self, table: &Table) -> Result<Table, UnknownSeries> {
        let mut scaled = table.clone();
        for series in &mut scaled.series {
            let fit = self.of(&series.id).ok_or_else(|| UnknownSeries { id: series.id.clone() })?;
            fit.apply(&self.scaling, &mut series.values);
            self.apply_columns([&mut series.past, &mut series.future, &mut series.fixed]);
        }
        Ok(scaled)
    }

    /// Scales rows of past, future and static columns.
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
    /// Brings a forecast back. `history` are the values before it, as they are in the table.
    pub fn invert(&self, scaling: &Scaling, history: &[f64], forecast: &mut [f64]) {
        let lag = scaling.difference;
        for step in 0..forecast.len() {
            let mut value = forecast[step] * self.scale + self.center;
            if lag > 0 {
                // The value so many steps before: a forecast already brought back, or one that is known.
                let before = if step >= lag {
                    Some(forecast[step - lag])
                } else {
                    (history.len() + step).checked_sub(lag).and_then(|place| history.get(place).copied())
                };
                value += self.flatten(scaling, before.unwrap_or(0.0));
            }
            forecast[step] = self.unflatten(scaling, value);
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

    /// Scales values of one series in their order. Those without a predecessor to take the difference to become NaN.
    pub fn apply(&self, scaling: &Scaling, values: &mut [f64]) {
        // From the end, so that predecessors are still as they were.
        for place in (0..values.len()).rev() {
            let before = place.checked_sub(scaling.difference).map_or(f64::NAN, |before| values[before]);
            values[place] = self.apply_one(scaling, values[place], before);
        }
    }

    /// Scales one value, with the one that its difference is taken to.
    pub fn apply_one(&self, scaling: &Scaling, value: f64, before: f64) -> f64 {
        let before = if scaling.difference == 0 { 0.0 } else { self.flatten(scaling, before) };
        (self.flatten(scaling, value) - before - self.center) / self.scale
    }

    /// Outliers cut, logarithm taken.
    fn flatten(&self, scaling: &Scaling, value: f64) -> f64 {
        let value = self.limits.map_or(value, |(low, high)| value.clamp(low, high));
        if !scaling.log {
            return value;
        }
        let x = value + self.shift;
        if x < self.knot { self.knot.ln() + (x - self.knot) / self.knot } else { x.ln() }
    }

    /// The way back from the logarithm. What was cut stays cut.
    fn unflatten(&self, scaling: &Scaling, value: f64) -> f64 {
        if !scaling.log {
            return value;
        }
        let edge = self.knot.ln();
        let x = if value < edge { self.knot * (1.0 + value - edge) } else { value.exp() };
        x - self.shift
    }
}

/// Leaves out what is not known, and sorts the rest.
fn sort_known(values: &mut Vec<f64>) {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
}

/// Robust limits of sorted values; none if more than half of them are equal.
fn limits(sorted: &[f64], clip: f64) -> Option<(f64, f64)> {
    let middle = quantile(sorted, 0.5)?;
    let mut distances: Vec<f64> = sorted.iter().map(|x| (x - middle).abs()).collect();
    distances.sort_by(f64::total_cmp);
    // 1.4826 makes the median distance the standard deviation of a normal distribution.
    let reach = quantile(&distances, 0.5)? * 1.4826 * clip;
    (reach > 0.0).then_some((middle - reach, middle + reach))
}

/// Quantile of sorted values, by linear interpolation.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[place as usize], sorted[place.ceil() as usize]);
    Some(low + (place - place.floor()) * (high - low))
}

/// Centre and scale of sorted values. A constant series has scale 1.
fn center_and_scale(method: Method, sorted: &[f64]) -> (f64, f64) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return (0.0, 1.0) };
    let at = |share| quantile(sorted, share).unwrap_or(0.0);
    let (center, scale) = match method {
        Method::None => (0.0, 1.0),
        Method::Standard => mean_and_deviation(sorted),
        Method::Robust => (at(0.5), at(0.75) - at(0.25)),
        Method::MinMax => (*first, last - first),
    };
    let useful = scale.is_finite() && scale > 1e-12 * center.abs().max(f64::MIN_POSITIVE);
    (center, if useful { scale } else { 1.0 })
}

/// The mean; 0 of nothing. It is the first value and the mean distance to it: where all values are equal, it is exact.
pub fn mean(values: &[f64]) -> f64 {
    let first = values.first().copied().unwrap_or(0.0);
    first + values.iter().map(|x| x - first).sum::<f64>() / values.len().max(1) as f64
}

/// Mean and population standard deviation.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let squares = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    (mean, (squares / values.len().max(1) as f64).sqrt())
}

/// Mean and standard deviation of every column that goes with the series, over all of them.
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
    fn methods_do_what_their_names_say() {
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
    fn nothing_is_learned_from_what_comes_after_training() {
        let split = Split { validation: Length::Steps(2), ..all() };
        let early = scaled("", &[1., 2., 3., 4., 5.], &split);
        let late = scaled("", &[1., 2., 3., 400., -5e6], &split);
        assert_eq!(early[..3], late[..3]);
    }

    #[test]
    fn constant_series_become_zero_and_come_back() {
        for method in ["standard", "robust", "min-max"] {
            assert_eq!(scaled(&format!("method = \"{method}\""), &[7.0; 5], &all()), [0.0; 5]);
        }
        assert_eq!(scaled("", &[0.1; 7], &all()), [0.0; 7]);
    }

    #[test]
    fn outliers_are_cut() {
        let values = [1., 2., 3., 4., 1000.];
        let cut = scaled("method = \"none\"\nclip = 3.0", &values, &all());
        assert_eq!(cut[..4], values[..4]);
        assert!(cut[4] < 10.0, "{cut:?}");
        assert_eq!(scaled("method = \"none\"\nclip = 3.0", &[1., 1., 1., 9.], &all()), [1., 1., 1., 9.]);
    }

    #[test]
    fn all_series_together_have_one_scale() {
        let table = table(&[vec![0.; 3], vec![2.; 3]]);
        let scaler = Scaler::fit(&toml::from_str("scope = \"global\"").unwrap(), &table, &all());
        let values: Vec<f64> = scaler.apply(&table).unwrap().series.iter().map(|s| s.values[0]).collect();
        assert_eq!(values, [-1., 1.]);
        assert!(scaler.of("unheard of").is_some());
    }

    #[test]
    fn columns_are_standardised_and_unknown_series_are_named() {
        let known = table(&[vec![1., 2., 3., 4.], vec![5., 6., 7., 9.]]);
        let scaler = Scaler::fit(&Scaling::default(), &known, &all());
        let scaled = scaler.apply(&known).unwrap();
        assert_eq!(scaled.series[0].future, [-1., 1., -1., 1.]);
        assert_eq!((scaled.series[0].fixed[0], scaled.series[1].fixed[0]), (-1., 1.));
        assert!(scaled.series[0].past.iter().sum::<f64>().abs() < 1e-6);
        let mut other = known.clone();
        other.series[1].id = "new".into();
        let message = scaler.apply(&other).unwrap_err().to_string();
        assert!(message.contains("series \"new\" was not there in training"), "{message}");
        assert!(scaler.with_new_series(&other).apply(&other).is_ok());
    }

    #[test]
    fn columns_far_from_0_keep_their_changes_and_constant_ones_become_0() {
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
        fn forecasts_come_back(
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
            // The scale comes from the first half: what is forecast may lie outside of it.
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
