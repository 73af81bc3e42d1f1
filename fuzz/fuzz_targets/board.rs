//! Parses arbitrary bytes as a PNG picture, and arbitrary text as a grid.
#![no_main]

use gatework_gates::automata::states::Bitmap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Bitmap::from_png(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Bitmap::from_text(text);
    }
});
