//! Any text as an experiment of any kind.
#![no_main]

use gatework_learn::experiment::Loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Loaded::parse(text, "fuzz.toml", std::path::Path::new("/nowhere"));
});
