//! Parses arbitrary text as an experiment.
#![no_main]

use gatework::experiment::Loaded;
use gatework_train::experiment::Source;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Loaded::from_source(&Source::new(text, "fuzz.toml", "/nowhere"));
});
