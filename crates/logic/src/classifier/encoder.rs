//! The encoder of a classifier: the features of a sample as bits.
//!
//! A numeric feature with thresholds `t0 < t1 < ...` becomes thermometer bits `x > t0`, `x > t1`, ...; a categorical
//! feature becomes one bit per category. A feature may have one more bit that says that its value is missing. The bits of
//! all features, in order, are the inputs of the circuit.
//!
//! A value is a number: the value of a numeric feature, or the index of a category. NaN is a missing value; it sets
//! the missing bit, if there is one, and no other. An index that is no category sets no bit.

use super::ClassifierError;
use crate::circuit::MAX_INPUTS;
use std::ops::Range;

/// The maximum value of a pixel: images are bytes, and their thresholds are in the same unit.
pub const MAX_PIXEL: u32 = 255;

/// A feature of a sample: a column of a table, or a pixel.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// The name of the column or pixel.
    pub name: String,
    /// How its value becomes bits.
    pub kind: FeatureKind,
    /// Whether the last bit of the feature says that its value is missing.
    pub missing: bool,
}

/// How the value of a feature becomes bits.
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureKind {
    /// A number. Bit i is `x > thresholds[i]`. The thresholds are finite and ascend; a feature without thresholds is
    /// ignored.
    Numeric(Vec<f32>),
    /// A category, given by its index. Bit i is `x == i`. The names are distinct.
    Categorical(Vec<String>),
}

impl Feature {
    /// Creates a numeric feature without a missing bit.
    pub fn numeric(name: impl Into<String>, thresholds: Vec<f32>) -> Feature {
        Feature { name: name.into(), kind: FeatureKind::Numeric(thresholds), missing: false }
    }

    /// Creates a categorical feature without a missing bit.
    pub fn categorical(name: impl Into<String>, categories: Vec<String>) -> Feature {
        Feature { name: name.into(), kind: FeatureKind::Categorical(categories), missing: false }
    }

    /// Adds a bit that says that the value is missing.
    #[must_use]
    pub fn with_missing(self) -> Feature {
        Feature { missing: true, ..self }
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> usize {
        let values = match &self.kind {
            FeatureKind::Numeric(thresholds) => thresholds.len(),
            FeatureKind::Categorical(categories) => categories.len(),
        };
        values + usize::from(self.missing)
    }

    /// Calls `push` with the bits of a value, in order.
    fn encode(&self, value: f32, push: &mut impl FnMut(bool)) {
        match &self.kind {
            FeatureKind::Numeric(thresholds) => thresholds.iter().for_each(|&t| push(value > t)),
            #[expect(clippy::float_cmp, reason = "an index is an integer")]
            FeatureKind::Categorical(names) => (0..names.len()).for_each(|i| push(value == i as f32)),
        }
        if self.missing {
            push(value.is_nan());
        }
    }

    fn check(&self, feature: usize) -> Result<(), ClassifierError> {
        let name = || self.name.clone();
        match &self.kind {
            FeatureKind::Numeric(thresholds) => {
                let sorted = thresholds.windows(2).all(|pair| pair[0] < pair[1]);
                let finite = thresholds.iter().all(|threshold| threshold.is_finite());
                if sorted && finite {
                    Ok(())
                } else {
                    Err(ClassifierError::Thresholds { feature, name: name() })
                }
            }
            FeatureKind::Categorical(names) => match super::duplicate(names.iter().map(String::as_str)) {
                Some(category) => {
                    Err(ClassifierError::Category { feature, name: name(), category: category.into() })
                }
                None => Ok(()),
            },
        }
    }
}

/// The features of a classifier, in the order of the values of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    features: Vec<Feature>,
    shape: Option<[usize; 3]>,
}

impl Encoder {
    /// Creates an encoder from its features.
    ///
    /// For images, `shape` is the number of channels, the height and the width; feature
    /// `(channel * height + y) * width + x` is a pixel, and its values are bytes, 0 to [`MAX_PIXEL`].
    pub fn new(features: Vec<Feature>, shape: Option<[usize; 3]>) -> Result<Encoder, ClassifierError> {
        if features.is_empty() {
            return Err(ClassifierError::NoFeatures);
        }
        features.iter().enumerate().try_for_each(|(i, feature)| feature.check(i))?;
        if let Some(feature) = super::duplicate(features.iter().map(|feature| feature.name.as_str())) {
            return Err(ClassifierError::FeatureName(feature.into()));
        }
        let bits = features.iter().map(Feature::bits).fold(0usize, usize::saturating_add);
        if bits > MAX_INPUTS {
            return Err(ClassifierError::TooManyBits { bits });
        }
        if let Some(shape) = shape {
            let pixels = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
            if pixels != Some(features.len()) {
                return Err(ClassifierError::Shape { shape, features: features.len() });
            }
            let numeric =
                |feature: &Feature| matches!(feature.kind, FeatureKind::Numeric(_)) && !feature.missing;
            if let Some(pixel) = features.iter().position(|feature| !numeric(feature)) {
                return Err(ClassifierError::Pixel { feature: pixel, name: features[pixel].name.clone() });
            }
        }
        Ok(Encoder { features, shape })
    }

    /// Returns the features.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Returns the channels, height and width of an image; `None` for a table.
    pub fn shape(&self) -> Option<[usize; 3]> {
        self.shape
    }

    /// Returns the number of bits, which is the number of inputs of the circuit.
    pub fn bits(&self) -> usize {
        self.features.iter().map(Feature::bits).sum()
    }

    /// Returns the range of bits of each feature.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.features.iter().scan(0, |next, feature| {
            let start = *next;
            *next += feature.bits();
            Some(start..*next)
        })
    }

    /// Returns the number of rows, each with a value for every feature.
    pub fn count(&self, rows: Rows<'_>) -> Result<usize, ClassifierError> {
        let (features, values) = (self.features.len(), rows.len());
        if values.is_multiple_of(features) {
            Ok(values / features)
        } else {
            Err(ClassifierError::Row { values, features })
        }
    }

    /// Returns the bits of one row. This is the reference implementation that tests compare faster encoders with.
    pub fn encode_row(&self, row: Rows<'_>) -> Result<Vec<bool>, ClassifierError> {
        if row.len() != self.features.len() {
            return Err(ClassifierError::Row { values: row.len(), features: self.features.len() });
        }
        let mut bits = Vec::with_capacity(self.bits());
        for (i, feature) in self.features.iter().enumerate() {
            feature.encode(row.get(i), &mut |bit| bits.push(bit));
        }
        Ok(bits)
    }
}

/// The values of samples, row by row.
///
/// Images are usually bytes; [`Rows::Bytes`] saves the conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rows<'a> {
    /// Numbers, and indices of categories. NaN is a missing value.
    Floats(&'a [f32]),
    /// Integers from 0 to 255.
    Bytes(&'a [u8]),
}

impl Rows<'_> {
    /// Returns the number of values of all rows.
    pub fn len(&self) -> usize {
        match self {
            Rows::Floats(values) => values.len(),
            Rows::Bytes(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a value. Panics if it does not exist.
    pub fn get(&self, index: usize) -> f32 {
        match self {
            Rows::Floats(values) => values[index],
            Rows::Bytes(values) => f32::from(values[index]),
        }
    }
}

impl<'a> From<&'a [f32]> for Rows<'a> {
    fn from(values: &'a [f32]) -> Rows<'a> {
        Rows::Floats(values)
    }
}

impl<'a> From<&'a [u8]> for Rows<'a> {
    fn from(values: &'a [u8]) -> Rows<'a> {
        Rows::Bytes(values)
    }
}

impl<'a> From<&'a Vec<f32>> for Rows<'a> {
    fn from(values: &'a Vec<f32>) -> Rows<'a> {
        Rows::Floats(values)
    }
}

impl<'a> From<&'a Vec<u8>> for Rows<'a> {
    fn from(values: &'a Vec<u8>) -> Rows<'a> {
        Rows::Bytes(values)
    }
}

impl<'a, const N: usize> From<&'a [f32; N]> for Rows<'a> {
    fn from(values: &'a [f32; N]) -> Rows<'a> {
        Rows::Floats(values)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Rows<'a> {
    fn from(values: &'a [u8; N]) -> Rows<'a> {
        Rows::Bytes(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder() -> Encoder {
        let color = Feature::categorical("color", vec!["red".into(), "green".into()]).with_missing();
        Encoder::new(vec![Feature::numeric("size", vec![0.5, 2.0]), color], None).unwrap()
    }

    fn bits(row: [f32; 2]) -> String {
        let bits = encoder().encode_row(Rows::from(&row)).unwrap();
        bits.into_iter().map(|bit| if bit { '1' } else { '0' }).collect()
    }

    #[test]
    fn values_become_thermometer_and_one_hot_bits() {
        assert_eq!(encoder().bits(), 5);
        assert_eq!(encoder().ranges().collect::<Vec<_>>(), [0..2, 2..5]);
        assert_eq!(bits([0.5, 0.0]), "00100");
        assert_eq!(bits([0.6, 1.0]), "10010");
        assert_eq!(bits([f32::INFINITY, 2.0]), "11000");
        assert_eq!(bits([f32::NAN, f32::NAN]), "00001");
        assert_eq!(bits([f32::NEG_INFINITY, 0.5]), "00000");
        let bytes = encoder().encode_row(Rows::from(&[2u8, 1])).unwrap();
        assert_eq!(bytes, [true, false, false, true, false]);
    }

    #[test]
    fn faulty_features_are_errors() {
        let message = |features, shape| Encoder::new(features, shape).unwrap_err().to_string();
        assert_eq!(message(vec![], None), "a classifier needs at least one feature");
        for thresholds in [vec![1.0, 1.0], vec![2.0, 1.0], vec![f32::NAN], vec![f32::INFINITY]] {
            assert_eq!(
                message(vec![Feature::numeric("a", thresholds)], None),
                "the thresholds of feature 0 (\"a\") are not finite numbers in ascending order"
            );
        }
        let twice = Feature::categorical("a", vec!["x".into(), "x".into()]);
        assert_eq!(message(vec![twice], None), "feature 0 (\"a\") has the category \"x\" twice");
        let pixel = |name: &str| Feature::numeric(name, vec![127.0]);
        assert_eq!(message(vec![pixel("a"), pixel("a")], None), "two features have the name \"a\"");
        assert_eq!(
            message(vec![pixel("a"), pixel("b")], Some([1, 2, 2])),
            "an image of 1x2x2 (channels, height, width) does not have 2 features"
        );
        assert_eq!(
            message(vec![pixel("a").with_missing()], Some([1, 1, 1])),
            "feature 0 (\"a\") of an image must be numeric and cannot be missing"
        );
    }
}
