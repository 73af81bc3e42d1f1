//! Parses arbitrary bytes as a trained network. An accepted network is written and parsed again.
#![no_main]

use gatework_forecast::TrainedNetwork;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(network) = TrainedNetwork::from_bytes(bytes) {
        let again = TrainedNetwork::from_bytes(&network.to_bytes())
            .expect("a trained network that was written can be read");
        assert_eq!(again.params(), network.params());
    }
});
