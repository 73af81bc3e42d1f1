//! Reads arbitrary bytes as a network in safetensors form. A network that was read can be written as a classifier.
#![no_main]

use gatework_logic::classifier::import::from_tensors;
use gatework_logic::{Document, from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(classifier) = from_tensors(bytes) {
        let document = Document::Classifier(classifier);
        assert_eq!(from_json(&to_json(&document)).expect("a network can be written and read"), document);
    }
});
