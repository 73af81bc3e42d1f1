//! Parses arbitrary bytes as a CSV table of time series, in every layout and with every policy for missing values, and as it is
//! guessed to be.
#![no_main]

use gatework_forecast::data::guess::{Hints, guess_csv};
use gatework_forecast::data::{Decimal, Layout, Missing, Schema, read_csv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (options, bytes) = input;
    let mut schema = Schema {
        layout: [Layout::Long, Layout::Wide, Layout::Rows][usize::from(options % 3)],
        missing: [Missing::Error, Missing::Drop, Missing::ForwardFill, Missing::Interpolate]
            [usize::from(options / 3 % 4)],
        ..Schema::default()
    };
    if options & 0x80 != 0 {
        schema.past = vec!["p".into()];
        schema.future = vec!["f".into()];
        schema.fixed = vec!["s".into()];
        schema.id_parts = vec!["i".into()];
        schema.decimal = Some(Decimal::Comma);
        schema.date_format = Some("%d/%m/%y %H:%M".into());
    }
    if let Ok(guess) = guess_csv(bytes, "fuzz.csv", &Hints::default()) {
        let _ = read_csv(bytes, "fuzz.csv", &guess.schema);
    }
    let Ok(table) = read_csv(bytes, "fuzz.csv", &schema) else { return };
    for series in &table.series {
        assert_eq!(series.past.len(), series.values.len() * schema.past.len());
        assert!(series.future.len() >= series.values.len() * schema.future.len());
        assert!(schema.missing == Missing::Drop || series.values.iter().all(|value| value.is_finite()));
        let _ = table.time(series, series.values.len());
    }
});
