//! Parses arbitrary text as a study, and as the results of one.
#![no_main]

use gatework_gates::automata::study::{Study, rows_from_csv};
use gatework_train::experiment::Source;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Study::from_source(&Source::new(text, "fuzz.toml", "/nowhere"));
    let _ = rows_from_csv(text);
});
