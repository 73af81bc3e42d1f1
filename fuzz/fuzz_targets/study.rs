//! Any text as a study, and as its results.
#![no_main]

use gatework_learn::automata::study::{Study, rows_from_csv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Study::parse(text, "fuzz.toml", std::path::Path::new("/nowhere"));
    let _ = rows_from_csv(text);
});
