//! Any text as an experiment of any kind.
#![no_main]

use gatework_train::experiment::Source;
use gatework::experiment::Loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Loaded::from_source(&Source::new(text, "fuzz.toml", "/nowhere"));
});
