//! Readers, splits and metrics reproduce published figures on known data sets.
//!
//! Requires the environment variable `GATEWORK_DATA`, a folder with `forecast/ett` and `forecast/m4`.

use std::path::PathBuf;
use std::sync::Arc;

use gatework_forecast::data::scale::{Scaler, Scaling};
use gatework_forecast::data::{Batch, Schema, Split, Subset, Table, WindowSizes, Windows, fill_in_order};
use gatework_forecast::evaluation::Baseline;
use gatework_forecast::metrics;

/// Returns the path of a data file, or `None` with a message if the data are not available.
fn file(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("GATEWORK_DATA") else {
        eprintln!("skipped: GATEWORK_DATA is not set");
        return None;
    };
    let plain = PathBuf::from(folder).join(name);
    let packed = plain.with_extension("csv.gz");
    Some(if plain.is_file() { plain } else { packed })
}

/// Returns the mean squared error of the naive forecast over all test windows, in scaled units.
fn repeat_last(name: &str, rows: usize, horizon: usize) -> Option<f64> {
    let schema: Schema = toml::from_str("layout = \"wide\"\ntime = \"date\"").unwrap();
    let table = Table::read(&file(&format!("forecast/ett/{name}.csv"))?, &schema).unwrap();
    let text = format!("train = {}\nvalidation = {}\ntest = {}", rows * 3, rows, rows);
    let split: Split = toml::from_str(&text).unwrap();
    let scaler = Scaler::fit(&Scaling::default(), &table, &split);
    let scaled = Arc::new(scaler.apply(&table).unwrap());
    let windows = Windows::new(&scaled, WindowSizes { input: 336, horizon, stride: 1 }, &split, Subset::Test);
    assert_eq!(windows.len(), 7 * (rows - horizon + 1));
    let (mut batch, mut numbers) = (Batch::default(), Vec::new());
    let (mut sum, mut count) = (0.0, 0);
    for index in 0.. {
        if !fill_in_order(&windows, 256, index, &mut numbers, &mut batch).unwrap() {
            break;
        }
        for (past, target) in batch.past.chunks(336).zip(batch.target.chunks(horizon)) {
            let squares: f64 = target.iter().map(|y| f64::from(y - past[335]).powi(2)).sum();
            sum += squares / horizon as f64;
            count += 1;
        }
    }
    Some(sum / f64::from(count))
}

#[test]
fn the_naive_forecast_of_ett_has_the_published_errors() {
    for (name, rows, known) in
        [("ETTh1", 2880, [1.294, 1.325, 1.330, 1.335]), ("ETTm1", 2880 * 4, [1.214, 1.261, 1.287, 1.322])]
    {
        for (horizon, known) in [96, 192, 336, 720].into_iter().zip(known) {
            let Some(found) = repeat_last(name, rows, horizon) else { return };
            println!("{name} {horizon}: {found:.4}");
            assert!((found - known).abs() < 6e-4, "{name} {horizon}: {found} for {known}");
        }
    }
}

#[test]
fn baselines_of_m4_hourly_have_the_published_scores() {
    let schema: Schema = toml::from_str("layout = \"rows\"").unwrap();
    let (Some(train), Some(test)) =
        (file("forecast/m4/Hourly-train.csv"), file("forecast/m4/Hourly-test.csv"))
    else {
        return;
    };
    let (train, test) = (Table::read(&train, &schema).unwrap(), Table::read(&test, &schema).unwrap());
    assert_eq!((train.series.len(), test.series.len()), (414, 414));
    let score = |baseline: Baseline| {
        let (mut smape, mut mase) = (0.0, 0.0);
        for (history, future) in train.series.iter().zip(&test.series) {
            assert_eq!(history.id, future.id);
            let forecast = baseline.forecast(&history.values, 24, 48);
            smape += metrics::smape(&future.values, &forecast) / 414.0;
            mase += metrics::mase(&history.values, 24, &future.values, &forecast) / 414.0;
        }
        (smape, mase)
    };
    let naive2 = score(Baseline::Naive2);
    for (baseline, smape, mase, owa) in [
        (Baseline::Naive2, 18.383, 2.395, 1.0),
        (Baseline::SeasonalNaive, 13.912, 1.193, 0.628),
        (Baseline::Theta, 18.138, 2.455, 1.006),
    ] {
        let found = score(baseline);
        let found_owa = metrics::owa(found.0, found.1, naive2.0, naive2.1);
        println!("{}: sMAPE {:.4} MASE {:.4} OWA {found_owa:.4}", baseline.name(), found.0, found.1);
        assert!((found.0 - smape).abs() < 6e-4, "{}: sMAPE {} for {smape}", baseline.name(), found.0);
        assert!((found.1 - mase).abs() < 6e-4, "{}: MASE {} for {mase}", baseline.name(), found.1);
        assert!((found_owa - owa).abs() < 6e-4, "{}: OWA {found_owa} for {owa}", baseline.name());
    }
}

#[test]
fn common_files_are_read() {
    for (name, options, series, values, frequency) in [
        ("AirPassengers", "time = \"Month\"\ntarget = \"Passengers\"", 1, 144, "M"),
        (
            "daily-min-temperatures",
            "time = \"Date\"\ntarget = \"Temp\"\nmissing = \"interpolate\"",
            1,
            3652,
            "D",
        ),
        ("statsmodels_sunspots", "time = \"YEAR\"\ntarget = \"SUNACTIVITY\"", 1, 309, "1"),
        ("vega_stocks", "id = \"symbol\"\ntime = \"date\"\ntarget = \"price\"", 5, 560, "M"),
        ("vega_sp500-2000", "time = \"date\"\ntarget = \"close\"\nmissing = \"forward-fill\"", 1, 0, "B"),
    ] {
        let Some(path) = file(&format!("forecast/small/{name}.csv")) else { return };
        let table = Table::read(&path, &toml::from_str(options).unwrap()).unwrap();
        assert_eq!((table.series.len(), table.frequency.to_string().as_str()), (series, frequency), "{name}");
        println!("{name}: {} values, {:?}", table.values(), table.report);
        assert!(values == 0 || table.values() == values, "{name}: {}", table.values());
    }
}
