//! Parses arbitrary text as a classifier in JSON. A classifier that was read is run, written and parsed again.
#![no_main]

use gatework_logic::{Document, from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(Document::Classifier(classifier)) = from_json(text) {
        let row = vec![0.5f32; classifier.encoder().features().len()];
        let label = classifier.predict(&row).expect("the row has a value for every feature");
        assert!(label < classifier.head().classes().len());
        let text = to_json(&classifier.clone().into());
        let again = from_json(&text).expect("a classifier that was read can be written and read again");
        assert_eq!(again, Document::Classifier(classifier));
    }
});
