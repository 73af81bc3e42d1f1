//! Data sets that come with the crate.
//!
//! | name | rows | origin |
//! |---|---|---|
//! | `digits` | 1,797 images of 8x8 pixels, 10 classes | [`gatework_train::datasets::digits`] |
//! | `iris` | 150 flowers, 4 numbers, 3 classes | Fisher 1936, UCI Machine Learning Repository, CC BY 4.0 |
//! | `monk-1`, `monk-2`, `monk-3` | 124, 169 and 122 robots, 6 categories, 2 classes; 432 for testing | Thrun et al. 1991, UCI, CC BY 4.0 |

use std::path::Path;

use gatework_train::datasets;

use super::table::{Labels, Schema, TableOptions, parse};
use super::{DataError, Dataset, ImageShape, images};

/// The names.
pub const NAMES: [&str; 5] = ["digits", "iris", "monk-1", "monk-2", "monk-3"];

/// Returns the training data, and the test data if they are given, of a built-in data set.
pub fn find(name: &str) -> Option<Result<(Dataset, Option<Dataset>), DataError>> {
    let monk = |train: &str, test: &str| monk(name, train, test);
    Some(match name {
        "digits" => digits().map(|data| (data, None)),
        "iris" => {
            let text = include_str!("../../../data/iris.csv");
            let options = TableOptions::default();
            parse(text.as_bytes(), Path::new(name), &options, None, Labels::Needed).map(|data| (data, None))
        }
        "monk-1" => monk(
            include_str!("../../../data/monk-1-train.csv"),
            include_str!("../../../data/monk-1-test.csv"),
        ),
        "monk-2" => monk(
            include_str!("../../../data/monk-2-train.csv"),
            include_str!("../../../data/monk-2-test.csv"),
        ),
        "monk-3" => monk(
            include_str!("../../../data/monk-3-train.csv"),
            include_str!("../../../data/monk-3-test.csv"),
        ),
        _ => return None,
    })
}

fn digits() -> Result<Dataset, DataError> {
    let digits = datasets::digits();
    let image = ImageShape { channels: 1, height: 8, width: 8 };
    // From 0..=16 to the range of a byte, as in all other images and on the page.
    let pixels = digits.features.iter().map(|&pixel| (pixel * 255.0 / 16.0) as u8).collect();
    let labels = digits.labels.iter().map(|&label| label as u32).collect();
    let classes = (0..digits.classes).map(|class| class.to_string()).collect();
    images::of_bytes(image, pixels, labels, classes, Path::new("digits"))
}

fn monk(name: &str, train: &str, test: &str) -> Result<(Dataset, Option<Dataset>), DataError> {
    let columns = ["head", "body", "smiling", "holding", "jacket", "tie"];
    let options =
        TableOptions { categorical: columns.map(str::to_string).to_vec(), ..TableOptions::default() };
    let train = parse(train.as_bytes(), Path::new(name), &options, None, Labels::Needed)?;
    let schema = Schema { features: train.features().to_vec(), classes: train.classes().to_vec() };
    let test = parse(test.as_bytes(), Path::new(name), &options, Some(&schema), Labels::Needed)?;
    Ok((train, Some(test)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_data_set_is_complete() {
        let sizes = NAMES.map(|name| {
            let (train, test) = find(name).unwrap().unwrap();
            (train.rows(), test.map_or(0, |test| test.rows()), train.features().len(), train.classes().len())
        });
        let right = [(1797, 0, 64, 10), (150, 0, 4, 3), (124, 432, 6, 2), (169, 432, 6, 2), (122, 432, 6, 2)];
        assert_eq!(sizes, right);
        assert!(find("mnist").is_none());
    }

    /// The concept of the first problem: head and body have the same shape, or the jacket is red.
    #[test]
    fn the_test_rows_of_the_first_monk_problem_follow_its_rule() {
        let (_, test) = find("monk-1").unwrap().unwrap();
        let test = test.unwrap();
        for row in 0..test.rows() {
            let is_member = test.value(row, 0) == test.value(row, 1) || test.value(row, 4) == 0.0;
            assert_eq!(test.labels()[row], u32::from(is_member));
        }
    }
}
