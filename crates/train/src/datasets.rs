//! Small data sets that come with the crate.

use std::io::Read;

use flate2::read::GzDecoder;

/// Examples with numeric features, each of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The features, one example after another.
    pub features: Vec<f32>,
    /// The class of each example, from 0.
    pub labels: Vec<i32>,
    /// The number of features per example.
    pub columns: usize,
    /// The number of classes.
    pub classes: usize,
}

impl Dataset {
    /// The number of examples.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }
}

/// Returns 1,797 images of handwritten digits, of 8 x 8 pixels with values from 0 to 16, and the digits 0 to 9.
///
/// These are the test images of the UCI data set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998,
/// <https://doi.org/10.24432/C50P49>, CC BY 4.0), in the order in which scikit-learn's `load_digits` has them.
///
/// ```
/// let digits = gatework_train::datasets::digits();
/// assert_eq!((digits.rows(), digits.columns, digits.classes), (1797, 64, 10));
/// assert_eq!(digits.labels[..5], [0, 1, 2, 3, 4]);
/// ```
pub fn digits() -> Dataset {
    const CSV: &[u8] = include_bytes!("../data/digits.csv.gz");
    const COLUMNS: usize = 64;
    let mut text = String::new();
    GzDecoder::new(CSV).read_to_string(&mut text).expect("the file of the crate is intact");
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let numbers = line.split(',').map(|number| number.parse::<u8>().expect("a number from 0 to 16"));
        features.extend(numbers.map(f32::from));
        labels.extend(features.pop().map(|label| label as i32));
    }
    Dataset { features, labels, columns: COLUMNS, classes: 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_complete() {
        let Dataset { features, labels, columns, classes } = digits();
        assert_eq!(features.len(), labels.len() * columns);
        assert!(features.iter().all(|pixel| (0.0..=16.0).contains(pixel)));
        let mut counts = vec![0; classes];
        for label in labels {
            counts[label as usize] += 1;
        }
        // The class distribution that the description of the data set states.
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }
}
