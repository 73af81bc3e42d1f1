//! Compares two models with the baselines by cross-validation over time, with and without refitting.

use gatework_forecast::models::{DLinear, Model, NLinear};
use gatework_forecast::{Forecaster, Origins, Refit, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let load = |hour: i32| 50.0 + 20.0 * (f64::from(hour % 24) / 4.0).sin() + f64::from(hour * 37 % 11);
    let table = Table::from_series("h", [("load", "2024-01-01 00:00", (0..600).map(load).collect())])?;
    // Forecasts of the last four days, from the midnight before each of them.
    let origins = Origins::last(4).step(24);
    for refit in [Refit::Never, Refit::Always] {
        for model in [Model::from(NLinear {}), DLinear::default().into()] {
            let options = Forecaster::builder().model(model).horizon(24).input(48).epochs(5);
            let result = options.cross_validate(&table, origins, refit)?;
            println!("refit: {refit:?}, {} forecasts", result.forecasts.len());
            for score in &result.evaluation.scores {
                println!("  {:15} MAE {:6.2}  MASE {:5.2}", score.name, score.mae, score.mase);
            }
        }
    }
    Ok(())
}
