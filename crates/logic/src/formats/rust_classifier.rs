//! Rust: encoder and head of a classifier around the function of its circuit.

use super::used_inputs;
use crate::circuit::Circuit;
use crate::classifier::{Classifier, FeatureKind};
use std::fmt::Write;

const TEMPLATE: &str = include_str!("classifier.rs.in");

/// The functions that surround `logic`, the function of the simplified circuit.
pub(super) fn write(text: &mut String, classifier: &Classifier, circuit: &Circuit) {
    let is_image = classifier.encoder().shape().is_some();
    let row = match classifier.encoder().shape() {
        Some([channels, height, width]) => {
            format!(
                "A pixel; a row is an image of {channels}x{height}x{width} bytes: channels, rows, columns."
            )
        }
        None => "A number, the index of a category, or NaN for a missing value.".into(),
    };
    let classes = classifier.head().classes();
    let groups: Vec<String> =
        classes.iter().map(|class| format!("({}, {})", class.outputs, class.offset)).collect();
    let names: Vec<String> = classes.iter().map(|class| format!("    {:?},\n", class.name)).collect();
    let (tests, table) = tests(classifier, &used_inputs(circuit));
    let filled = TEMPLATE
        .replace("@FEATURES", &classifier.encoder().features().len().to_string())
        .replace("@CLASSES", &classes.len().to_string())
        .replace("@ROW", &row)
        .replace("@VALUE", if is_image { "u8" } else { "f32" })
        .replace("@GROUPS", &groups.join(", "))
        .replace("@TESTS", &tests.to_string())
        .replace("@TABLE", &table)
        .replace("@OUTPUTS", &circuit.outputs().len().to_string())
        .replace("@INPUTS", &circuit.inputs().to_string())
        // Last, because names of classes may contain anything.
        .replace("@NAMES", &names.concat());
    text.push_str(&filled);
}

/// The number of comparisons, and their rows in the table of the encoder.
fn tests(classifier: &Classifier, used: &[u32]) -> (usize, String) {
    let encoder = classifier.encoder();
    let mut table = String::new();
    let mut used = used.iter().peekable();
    let mut count = 0;
    for (i, (feature, range)) in encoder.features().iter().zip(encoder.ranges()).enumerate() {
        while let Some(&bit) = used.next_if(|&&bit| range.contains(&(bit as usize))) {
            count += 1;
            let place = bit as usize - range.start;
            // Writing to a string never fails.
            let _ = match &feature.kind {
                FeatureKind::Numeric(thresholds) if place < thresholds.len() => {
                    writeln!(table, "    ({bit}, {i}, {:?}, 0),", thresholds[place])
                }
                FeatureKind::Categorical(names) if place < names.len() => {
                    writeln!(table, "    ({bit}, {i}, {place}.0, 1),")
                }
                _ => writeln!(table, "    ({bit}, {i}, 0.0, 2),"),
            };
        }
    }
    (count, table)
}
