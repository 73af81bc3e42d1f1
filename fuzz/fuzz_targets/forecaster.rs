//! Parses arbitrary bytes as a forecaster. An accepted forecaster is written and parsed again.
#![no_main]

use gatework_forecast::Forecaster;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(forecaster) = Forecaster::from_bytes(bytes) {
        let again = Forecaster::from_bytes(&forecaster.to_bytes())
            .expect("a forecaster that was written can be read");
        assert_eq!(again.params(), forecaster.params());
    }
});
