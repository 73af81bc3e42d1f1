//! Fitting of the encoder: thresholds of numeric features and categories, from the training rows.
//!
//! A bit that is the same in every training row tells nothing and is left out: a constant feature has no bits. A feature with
//! missing values in the training rows has a bit for them.

mod split;

use gatework_logic::classifier::{ClassifierError, Encoder, Feature, FeatureKind};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::data::{Dataset, Kind};

/// Most bits of a feature.
pub const MAX_BITS: usize = 1 << 12;

/// How features become bits: the `[encoder]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncoderSettings {
    /// Most thermometer bits of a numeric feature.
    pub bits: usize,
    /// How thresholds are chosen.
    pub thresholds: Thresholds,
    /// Smallest share of the training rows in which a bit must be 1, and in which it must be 0.
    pub min_share: f64,
    /// On which side of a threshold missing values are.
    pub default_direction: DefaultDirection,
}

/// On which side of a threshold missing values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DefaultDirection {
    /// Below all thresholds.
    #[default]
    Below,
    /// Above or below each threshold, whichever has more mutual information with the class in the training rows.
    Learned,
}

/// How thresholds are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Thresholds {
    /// Between equal shares of the training rows.
    #[default]
    Quantile,
    /// At equal distances from the smallest to the largest value; for images, of all pixels.
    Uniform,
    /// Where the classes change, as far as the training rows show it, and between equal shares of them with the remaining bits.
    Supervised,
}

impl Default for EncoderSettings {
    fn default() -> EncoderSettings {
        EncoderSettings {
            bits: 8,
            thresholds: Thresholds::Quantile,
            min_share: 0.0,
            default_direction: DefaultDirection::Below,
        }
    }
}

/// An encoder that cannot be fitted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// A setting is out of range.
    #[error("{0}")]
    Setting(String),
    /// No feature differs between two rows.
    #[error("every feature is constant in the training data: there is nothing to learn from")]
    Constant,
    /// The features do not form an encoder.
    #[error(transparent)]
    Encoder(#[from] ClassifierError),
}

impl EncoderSettings {
    /// Checks the range of every number.
    pub fn check(&self) -> Result<(), EncoderError> {
        let fail = |message: String| Err(EncoderError::Setting(message));
        if !(1..=MAX_BITS).contains(&self.bits) {
            return fail(format!("bits is {}, but must be from 1 to {MAX_BITS}", self.bits));
        }
        if !(0.0..0.5).contains(&self.min_share) {
            return fail(format!("min_share is {}, but must be at least 0 and below 0.5", self.min_share));
        }
        Ok(())
    }

    /// Fits an encoder to some rows of a data set.
    pub fn fit(&self, data: &Dataset, rows: &[u32]) -> Result<Encoder, EncoderError> {
        self.check()?;
        let is_image = data.image().is_some();
        let columns: Vec<Column> = (0..data.features().len())
            .into_par_iter()
            .map(|column| {
                let values = Column::new(data, rows, column);
                let is_numeric = data.features()[column].kind == Kind::Numeric;
                let splits = is_numeric
                    && self.thresholds == Thresholds::Supervised
                    && values.values.len() > self.bits + 1;
                Column {
                    splits: if splits { supervised(data, rows, column, self.bits) } else { Vec::new() },
                    ..values
                }
            })
            .collect();
        let extent = |columns: &[Column]| {
            let values = || columns.iter().flat_map(|column| column.values.iter().map(|(value, _)| *value));
            [values().fold(f32::INFINITY, f32::min), values().fold(f32::NEG_INFINITY, f32::max)]
        };
        let of_all = extent(&columns);
        let features: Vec<Feature> = data
            .features()
            .iter()
            .zip(&columns)
            .map(|(feature, column)| {
                let kind = match &feature.kind {
                    Kind::Categorical(names) => FeatureKind::Categorical(names.clone()),
                    Kind::Numeric => {
                        let range = if is_image { of_all } else { extent(std::slice::from_ref(column)) };
                        FeatureKind::Numeric(self.thresholds(column, range))
                    }
                };
                Feature { name: feature.name.clone(), kind, missing: column.missing > 0 && !is_image }
            })
            .collect();
        let shape = data.image().map(|image| [image.channels, image.height, image.width]);
        let encoder = Encoder::new(features, shape)?;
        if columns.iter().all(|column| column.values.len() < 2 && column.missing == 0) {
            return Err(EncoderError::Constant);
        }
        Ok(encoder)
    }

    /// Returns the thresholds of a column, in ascending order.
    fn thresholds(&self, column: &Column, [low, high]: [f32; 2]) -> Vec<f32> {
        let count: usize = column.values.iter().map(|(_, count)| count).sum();
        let least = (self.min_share * count as f64).ceil().max(1.0) as usize;
        let positions = (1..=self.bits).map(|i| i as f64 / (self.bits + 1) as f64);
        let mut thresholds: Vec<f32> = match self.thresholds {
            // All boundaries, if there are few.
            Thresholds::Quantile | Thresholds::Supervised if column.values.len() <= self.bits + 1 => {
                column.values.windows(2).map(|pair| middle(pair[0].0, pair[1].0)).collect()
            }
            Thresholds::Supervised => {
                let others = self.bits - column.splits.len();
                let shares = (1..=others).map(|i| i as f64 / (others + 1) as f64);
                let quantiles = shares.filter_map(|share| column.quantile(share * count as f64));
                column.splits.iter().copied().chain(quantiles).collect()
            }
            Thresholds::Quantile => {
                positions.filter_map(|share| column.quantile(share * count as f64)).collect()
            }
            Thresholds::Uniform => {
                let (low, high) = (f64::from(low), f64::from(high));
                positions.map(|share| (low + (high - low) * share) as f32).collect()
            }
        };
        thresholds.sort_unstable_by(f32::total_cmp);
        thresholds.dedup();
        thresholds.retain(|&threshold| {
            let above: usize =
                column.values.iter().filter(|(value, _)| *value > threshold).map(|(_, n)| n).sum();
            above >= least && count - above >= least
        });
        thresholds
    }
}

/// The different values of a feature in ascending order, with the number of rows of each.
struct Column {
    values: Vec<(f32, usize)>,
    /// Rows without a value.
    missing: usize,
    /// Thresholds where the classes change, in ascending order.
    splits: Vec<f32>,
}

/// Returns at most `bits` thresholds of a feature where the classes change.
fn supervised(data: &Dataset, rows: &[u32], column: usize, bits: usize) -> Vec<f32> {
    let pair = |&row: &u32| (data.value(row as usize, column), data.labels()[row as usize]);
    let mut sorted: Vec<(f32, u32)> = rows.iter().map(pair).filter(|(value, _)| !value.is_nan()).collect();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let splits = split::splits(&sorted, data.classes().len(), bits);
    splits.into_iter().map(|at| middle(sorted[at - 1].0, sorted[at].0)).collect()
}

impl Column {
    fn new(data: &Dataset, rows: &[u32], column: usize) -> Column {
        if let Some(bytes) = data.bytes() {
            let mut counts = [0usize; 256];
            for &row in rows {
                counts[usize::from(bytes[row as usize * data.features().len() + column])] += 1;
            }
            let values = (0u8..=255).zip(counts).filter(|(_, count)| *count > 0);
            return Column {
                values: values.map(|(value, count)| (value.into(), count)).collect(),
                missing: 0,
                splits: Vec::new(),
            };
        }
        let mut all: Vec<f32> = rows.iter().map(|&row| data.value(row as usize, column)).collect();
        all.retain(|value| !value.is_nan());
        let missing = rows.len() - all.len();
        all.sort_unstable_by(f32::total_cmp);
        let mut values: Vec<(f32, usize)> = Vec::new();
        for value in all {
            match values.last_mut() {
                // Equal as numbers: 0 and -0 are one value.
                Some((last, count)) if *last >= value => *count += 1,
                _ => values.push((value, 1)),
            }
        }
        Column { values, missing, splits: Vec::new() }
    }

    /// Returns the boundary between two values that is nearest to a number of rows, unless there is one value only.
    fn quantile(&self, rows: f64) -> Option<f32> {
        let mut below = 0;
        let mut best: Option<(f64, f32)> = None;
        for pair in self.values.windows(2) {
            below += pair[0].1;
            let distance = (below as f64 - rows).abs();
            if best.is_some_and(|(least, _)| least <= distance) {
                break;
            }
            best = Some((distance, middle(pair[0].0, pair[1].0)));
        }
        best.map(|(_, threshold)| threshold)
    }
}

/// Returns a threshold that the larger value exceeds and the smaller does not.
fn middle(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if middle < high { middle } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::data::{Feature as Column, Values};

    fn thresholds(settings: &EncoderSettings, values: &[f32]) -> Vec<f32> {
        let data = Dataset::new(
            2,
            values.iter().flat_map(|&v| [v, v.to_bits() as f32 % 2.0]).collect(),
            vec![0; values.len()],
        );
        let rows: Vec<u32> = (0..values.len() as u32).collect();
        let encoder = settings.fit(&data.unwrap(), &rows).unwrap();
        match &encoder.features()[0].kind {
            FeatureKind::Numeric(thresholds) => thresholds.clone(),
            FeatureKind::Categorical(_) => unreachable!(),
        }
    }

    #[test]
    fn thresholds_lie_between_values() {
        let quantile = |bits| EncoderSettings { bits, ..EncoderSettings::default() };
        assert_eq!(thresholds(&quantile(8), &[3.0, 1.0, 1.0, 2.0]), [1.5, 2.5]);
        let many: Vec<f32> = (0..100).map(|i| i as f32).collect();
        assert_eq!(thresholds(&quantile(3), &many), [24.5, 49.5, 74.5]);
        let skewed: Vec<f32> = (0..100).map(|i| if i < 90 { 0.0 } else { i as f32 }).collect();
        assert_eq!(thresholds(&quantile(3), &skewed), [45.0], "a boundary is used once");
        let uniform =
            EncoderSettings { bits: 3, thresholds: Thresholds::Uniform, ..EncoderSettings::default() };
        assert_eq!(thresholds(&uniform, &[0.0, 1.0, 8.0]), [2.0, 4.0, 6.0]);
        let next = f32::from_bits(1.0f32.to_bits() + 1);
        assert_eq!(thresholds(&quantile(1), &[1.0, next]), [1.0]);
    }

    #[test]
    fn supervised_thresholds_are_where_the_classes_change_and_the_others_quantiles() {
        let rows: Vec<u32> = (0..100).collect();
        let labels = rows.iter().map(|row| u32::from((37..61).contains(row))).collect();
        let data = Dataset::new(2, rows.iter().flat_map(|&row| [row as f32, 0.0]).collect(), labels).unwrap();
        let settings =
            |bits| EncoderSettings { bits, thresholds: Thresholds::Supervised, ..EncoderSettings::default() };
        let of = |bits| match &settings(bits).fit(&data, &rows).unwrap().features()[0].kind {
            FeatureKind::Numeric(thresholds) => thresholds.clone(),
            FeatureKind::Categorical(_) => unreachable!(),
        };
        assert_eq!(of(2), [36.5, 60.5]);
        assert_eq!(of(5), [24.5, 36.5, 49.5, 60.5, 74.5]);
    }

    #[test]
    fn bits_that_are_rarely_set_or_constant_are_left_out() {
        let rare = EncoderSettings {
            bits: 1,
            thresholds: Thresholds::Uniform,
            min_share: 0.3,
            ..EncoderSettings::default()
        };
        assert!(thresholds(&rare, &[0.0, 0.0, 0.0, 1.0]).is_empty());
        assert_eq!(thresholds(&rare, &[0.0, 0.0, 1.0, 1.0]), [0.5]);
    }

    #[test]
    fn missing_values_have_a_bit_and_constant_data_are_refused() {
        let data = Dataset::new(2, vec![1.0, 5.0, f32::NAN, 5.0], vec![0, 1]).unwrap();
        let encoder = EncoderSettings::default().fit(&data, &[0, 1]).unwrap();
        assert_eq!(encoder.bits(), 1);
        assert!(encoder.features()[0].missing);
        let error = EncoderSettings::default().fit(&data, &[0]).unwrap_err();
        assert_eq!(error, EncoderError::Constant);
    }

    #[test]
    fn categories_are_bits() {
        let kind = Kind::Categorical(vec!["a".into(), "b".into(), "c".into()]);
        let features = vec![Column { name: "x".into(), kind }];
        let data = Dataset::from_parts(
            features,
            Values::Numbers(vec![0.0, 2.0]),
            vec![0, 0],
            vec!["y".into()],
            None,
        );
        assert_eq!(EncoderSettings::default().fit(&data.unwrap(), &[0, 1]).unwrap().bits(), 3);
    }
}
