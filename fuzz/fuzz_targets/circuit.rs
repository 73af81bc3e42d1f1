//! Parses arbitrary text as a circuit in JSON. A parsed circuit is simplified, written and parsed again.
#![no_main]

use gatework_logic::{from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(document) = from_json(text) {
        let _ = document.circuit().simplify();
        let again =
            from_json(&to_json(&document)).expect("a circuit that was read can be written and read again");
        assert_eq!(again.circuit(), document.circuit());
    }
});
