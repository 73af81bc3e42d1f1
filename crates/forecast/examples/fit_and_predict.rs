//! Fits a forecaster on a table in memory and prints a forecast with its 80 % interval.

use gatework_forecast::{Forecaster, Table, models::NLinear};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sales = |day: i32| 100.0 + 0.1 * f64::from(day) + 20.0 * f64::from((day % 7 - 3).abs());
    let table = Table::from_series("D", [("sales", "2024-01-01", (0..365).map(sales).collect())])?;
    let model = Forecaster::builder().model(NLinear {}).horizon(7).fit(&table)?;
    let forecast = &model.predict(&table)?[0];
    let interval = &forecast.intervals[0];
    for (step, time) in forecast.times.iter().enumerate() {
        println!(
            "{time} {:7.2} [{:7.2}, {:7.2}]",
            forecast.values[step], interval.low[step], interval.high[step]
        );
    }
    Ok(())
}
