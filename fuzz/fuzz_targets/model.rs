//! Parses arbitrary bytes as an automaton model. An accepted model is hardened, written and parsed again.
#![no_main]

use gatework_gates::automata::model::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = Model::from_bytes(bytes) {
        let _ = model.harden();
        let _ = Model::from_bytes(&model.to_bytes())
            .expect("a model that was read can be written and read again");
    }
});
