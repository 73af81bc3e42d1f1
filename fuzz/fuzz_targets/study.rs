//! Parses arbitrary text as a study.
#![no_main]

use gatework_gates::automata::study::Study;
use gatework_train::experiment::Source;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Study::from_source(&Source::new(text, "fuzz.toml", "/nowhere"));
});
