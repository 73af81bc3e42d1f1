//! Trains with a known-future covariate, and compares forecasts of a week with and without promotions.

use gatework_forecast::{Forecaster, Table, models::Nhits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_promoted = |day: i32| f64::from(u8::from(f64::from(day * day).sin() > 0.5)); // irregular
    let sales = |day: i32| 100.0 + 10.0 * f64::from(day % 7) + 40.0 * is_promoted(day);
    let table = Table::from_series("D", [("shop", "2024-01-01", (0..300).map(sales).collect())])?;
    let promotions: Vec<f64> = (0..300).map(is_promoted).collect();
    let table = table.with_future_covariate("promotion", [("shop", promotions)])?;

    let model = Nhits { width: 64, ..Nhits::default() };
    let model = Forecaster::builder()
        .model(model)
        .horizon(7)
        .input(28)
        .epochs(60)
        .learning_rate(0.003)
        .fit(&table)?;
    let without = model.predict_with_future(&table, &[("shop", "promotion", &[0.0; 7])])?;
    let with = model.predict_with_future(&table, &[("shop", "promotion", &[1.0; 7])])?;
    for (step, time) in with[0].times.iter().enumerate() {
        println!(
            "{time} {:6.1} without, {:6.1} with a promotion",
            without[0].values[step], with[0].values[step]
        );
    }
    Ok(())
}
