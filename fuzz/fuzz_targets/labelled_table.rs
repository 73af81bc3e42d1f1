//! Parses arbitrary bytes as a table of a classifier, with every option and with those that are detected, then again with the
//! schema that was found.
#![no_main]

use std::path::Path;

use gatework_gates::classifier::data::dialect::detect;
use gatework_gates::classifier::data::table::{Labels, Schema, TableOptions, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let options = TableOptions {
        header: choice & 1 == 0,
        label: (choice & 2 != 0).then(|| "1".into()),
        separator: [',', ' ', ';', '\t'][usize::from(choice >> 2 & 3)],
        missing: vec!["?".into()],
        comment: (choice & 16 != 0).then_some('|'),
        grouped: choice & 128 != 0,
        trim: if choice & 32 != 0 { ".".into() } else { String::new() },
        ..TableOptions::default()
    };
    let path = Path::new("fuzz.csv");
    let options = match detect(bytes, path, options.label.as_deref()) {
        Ok(dialect) if choice & 64 != 0 => dialect.options,
        _ => options,
    };
    let Ok(data) = parse(bytes, path, &options, None, Labels::Needed) else { return };
    for row in 0..data.rows() {
        assert!(data.labels()[row] < data.classes().len() as u32);
        assert!((0..data.features().len()).all(|column| !data.value(row, column).is_infinite()));
    }
    let schema = Schema { features: data.features().to_vec(), classes: data.classes().to_vec() };
    let again = parse(bytes, path, &options, Some(&schema), Labels::Needed);
    let again = again.expect("a table fits its own schema");
    assert_eq!(again.labels(), data.labels());
});
