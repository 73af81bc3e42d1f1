//! Quantises a model, saves and loads it, and serves it to several threads: warm-up, a cache with a tolerance, limits and
//! statistics.

use gatework_forecast::service::{Service, ServiceOptions};
use gatework_forecast::trained_network::Precision;
use gatework_forecast::{Forecaster, Table, models::Nhits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let load = |hour: i32| 50.0 + 20.0 * (f64::from(hour % 24) / 4.0).sin() + f64::from(hour * 37 % 11);
    let values: Vec<f64> = (0..500).map(load).collect();
    let table = Table::from_series("h", [("load", "2024-01-01 00:00", values.clone())])?;
    let model = Nhits { width: 64, ..Nhits::default() };
    let model = Forecaster::builder().model(model).horizon(12).input(48).epochs(3).fit(&table)?;

    // The file holds 8-bit weights; loading it does not expand them.
    let (quantized, bytes) = model.with_precision(Precision::Int8)?;
    let path = std::env::temp_dir().join(format!("gatework-serve-{}.safetensors", std::process::id()));
    quantized.save(&path)?;
    let served = Forecaster::load(&path)?;
    std::fs::remove_file(&path)?;
    println!("{} parameters in {bytes} bytes", served.parameters());

    // Many histories in one call.
    let histories = [("load", &values[..480]), ("load", &values[..490])];
    println!("{:.1?}", served.predict_many(&histories)?[1].values);

    let options = ServiceOptions { tolerance: 0.01, queue_capacity: 64, ..ServiceOptions::default() };
    let service = Service::new(served, &options)?;
    service.warm_up(&[1, 4])?;
    std::thread::scope(|scope| {
        for first in [400, 410, 420, 430] {
            let (service, values) = (&service, &values);
            scope.spawn(move || {
                for end in first..first + 10 {
                    match service.predict("load", &values[..end]) {
                        Ok(forecast) => println!("hour {end}: {:.1}", forecast.values[0]),
                        Err(error) => eprintln!("hour {end}: {error}"),
                    }
                }
            });
        }
    });
    let statistics = service.statistics();
    println!("{} calls, {} hits, {} batches", statistics.calls(), statistics.hits, statistics.batches);
    println!("{:?} for 99 % of them, {} bytes", statistics.latency.quantile(0.99), statistics.model.total());
    Ok(())
}
