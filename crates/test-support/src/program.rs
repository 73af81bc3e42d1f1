//! Data and assertions of the whole-program tests.

use std::fmt::Write as _;

/// An experiment on the table of [`sales`].
pub const SALES: &str = "
name = 'sales'
task = 'forecaster'
data = 'sales.csv'
model = 'nlinear'
horizon = 7
input = 14
season = 7

[split]
validation = 14
test = 14

[training]
epochs = 20
learning_rate = 0.01
";

/// Returns a table of two series of 80 days with a season of a week, as CSV.
pub fn sales() -> String {
    let mut text = String::from("unique_id,ds,y\n");
    for (id, base, days) in [("north", 100, 80), ("south, small", 20, 80)] {
        for day in 0..days {
            let _ = writeln!(text, "\"{id}\",{day},{}", base + day + 10 * (day % 7));
        }
    }
    text
}

/// Asserts that a message has all of these parts and is not of a panic.
///
/// # Panics
/// If it is not so.
pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}
