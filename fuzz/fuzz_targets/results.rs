//! Parses arbitrary text as the results of a study.
#![no_main]

use gatework_gates::automata::study::rows_from_csv;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = rows_from_csv(text);
});
