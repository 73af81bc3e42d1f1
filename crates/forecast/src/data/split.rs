//! Training, validation and test subsets of a series, split by time.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The length of a subset: a number of steps, or a fraction of the series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Length {
    /// Number of steps.
    Steps(usize),
    /// Fraction between 0 and 1.
    Fraction(f64),
}

impl From<usize> for Length {
    fn from(steps: usize) -> Length {
        Length::Steps(steps)
    }
}

impl From<f64> for Length {
    fn from(fraction: f64) -> Length {
        Length::Fraction(fraction)
    }
}

impl Length {
    fn of(self, length: usize) -> usize {
        match self {
            Length::Steps(steps) => steps,
            Length::Fraction(fraction) => (fraction.clamp(0.0, 1.0) * length as f64).round() as usize,
        }
    }

    /// Returns whether a fraction is in its range.
    pub fn is_valid(self) -> bool {
        match self {
            Length::Steps(_) => true,
            Length::Fraction(fraction) => (0.0..1.0).contains(&fraction),
        }
    }
}

/// Lengths of the subsets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Split {
    /// Training subset. Default: the remainder; if given, values after the test subset are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<Length>,
    /// Validation subset, for early stopping and calibration of intervals.
    pub validation: Length,
    /// Test subset, for evaluation.
    pub test: Length,
}

impl Default for Split {
    fn default() -> Split {
        Split { train: None, validation: Length::Fraction(0.1), test: Length::Fraction(0.1) }
    }
}

/// A subset of each series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// Training subset.
    Train,
    /// Validation subset.
    Validation,
    /// Test subset.
    Test,
}

impl Subset {
    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Subset::Train => "train",
            Subset::Validation => "validation",
            Subset::Test => "test",
        }
    }
}

impl Split {
    /// Returns the range of a subset in a series of this length. Subsets that do not fit are shortened, the training
    /// subset first.
    pub fn range(&self, subset: Subset, length: usize) -> Range<usize> {
        let (validation, test) = (self.validation.of(length), self.test.of(length));
        let train = match self.train {
            Some(train) => train.of(length).min(length),
            None => length.saturating_sub(validation).saturating_sub(test),
        };
        let validation_end = (train + validation).min(length);
        match subset {
            Subset::Train => 0..train,
            Subset::Validation => train..validation_end,
            Subset::Test => validation_end..(validation_end + test).min(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Split {
        toml::from_str(text).unwrap()
    }

    fn ranges(split: &Split, length: usize) -> [Range<usize>; 3] {
        [Subset::Train, Subset::Validation, Subset::Test].map(|subset| split.range(subset, length))
    }

    #[test]
    fn subsets_are_consecutive() {
        assert_eq!(ranges(&split("validation = 12\ntest = 12"), 144), [0..120, 120..132, 132..144]);
        assert_eq!(ranges(&split("validation = 0.1\ntest = 0.2"), 100), [0..70, 70..80, 80..100]);
        // The protocol of ETTh1: the end of the file is not used.
        let ett = split("train = 8640\nvalidation = 2880\ntest = 2880");
        assert_eq!(ranges(&ett, 17_420), [0..8640, 8640..11_520, 11_520..14_400]);
        assert!(toml::from_str::<Split>("tset = 1").is_err());
    }

    proptest! {
        #[test]
        fn subsets_never_overlap_nor_exceed_the_series(
            length in 0usize..1000,
            train in prop::option::of(0usize..1000),
            validation in 0usize..1000,
            test in 0.0..1.0f64,
        ) {
            let split = Split {
                train: train.map(Length::Steps),
                validation: Length::Steps(validation),
                test: Length::Fraction(test),
            };
            let [a, b, c] = ranges(&split, length);
            prop_assert!(a.start == 0 && a.end == b.start && b.end == c.start && c.end <= length);
            prop_assert!(b.start <= b.end && c.start <= c.end);
        }
    }
}
