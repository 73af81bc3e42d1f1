//! Writes a trained forecaster as an ONNX model, which forecasts in units of the data.
//!
//! ```text
//! cargo run --release -p gatework-forecast --features onnx --example export_onnx [FILE]
//! ```

use gatework_forecast::{Forecaster, Table, models::NLinear};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sales = |day: i32| 100.0 + 0.1 * f64::from(day) + 20.0 * f64::from((day % 7 - 3).abs());
    let table = Table::from_series("D", [("sales", "2024-01-01", (0..365).map(sales).collect())])?;
    let model = Forecaster::builder().model(NLinear {}).horizon(7).fit(&table)?;
    let bytes = model.to_onnx()?;
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, &bytes)?,
        None => println!("{} bytes", bytes.len()),
    }
    Ok(())
}
