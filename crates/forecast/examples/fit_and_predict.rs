//! Fits a forecaster on a table in memory and prints a forecast with its intervals.

use gatework_forecast::data::Table;
use gatework_forecast::experiment::Experiment;
use gatework_forecast::fit;
use gatework_forecast::models::NLinear;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wave = |day: i32| 100.0 + 0.1 * f64::from(day) + 20.0 * f64::from((day % 7 - 3).abs());
    let table = Table::from_series("D", [("sales", "2024-01-01", (0..365).map(wave).collect())])?;
    let mut experiment = Experiment::new(NLinear {}, 7);
    experiment.training.epochs = Some(30);
    let mut model = fit(&table, &experiment)?;
    let forecast = &model.predict(&table)?[0];
    let interval = &forecast.intervals[0];
    for (step, value) in forecast.values.iter().enumerate() {
        let time = table.time(&table.series[0], 365 + step);
        println!("{time}  {value:7.2}  [{:7.2}, {:7.2}]", interval.low[step], interval.high[step]);
    }
    Ok(())
}
