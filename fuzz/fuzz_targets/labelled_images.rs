//! Parses arbitrary bytes as IDX files, a CIFAR batch and a PNG image.
#![no_main]

use std::path::Path;

use gatework_gates::classifier::data::images::{parse_cifar, parse_idx, parse_png};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (middle, bytes) = input;
    let (images, labels) = bytes.split_at(usize::from(middle).min(bytes.len()));
    let path = Path::new("fuzz");
    for data in [parse_idx(images, path, labels, path), parse_cifar(bytes, path)].into_iter().flatten() {
        assert_eq!(data.image().map(|image| image.values()), Some(data.features().len()));
        assert!(data.labels().iter().all(|&label| (label as usize) < data.classes().len()));
    }
    let mut pixels = Vec::new();
    if let Ok(image) = parse_png(bytes, path, &mut pixels) {
        assert_eq!(image.values(), pixels.len());
    }
});
