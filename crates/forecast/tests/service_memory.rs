//! The cache of a service takes no more memory than its statistics say. A counting allocator checks it.

use gatework_forecast::models::NLinear;
use gatework_forecast::service::{Service, ServiceOptions};
use gatework_forecast::{Forecaster, Loss, Table};
use gatework_test_support::counting::{CountingAllocator, peak_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Forecasts per cache.
const CAPACITY: usize = 1000;

/// Returns the bytes that this thread holds at the most for a service that forecasts many windows, and the bytes of its cache.
fn memory(values: &[f64], loss: &Loss, cache_capacity: usize, tolerance: f64) -> (usize, usize) {
    let table = Table::from_series("D", [("a", "2024-01-01", values[..200].to_vec())]).unwrap();
    let options = Forecaster::builder().model(NLinear {}).input(8).horizon(2).epochs(1).loss(loss.clone());
    let forecaster = options.fit(&table).unwrap();
    let options = ServiceOptions { cache_capacity, tolerance, concurrency: 1, ..ServiceOptions::default() };
    let (cache, peak) = peak_of(|| {
        let service = Service::new(forecaster, &options).unwrap();
        for end in 8..values.len() {
            service.predict("a", &values[..end]).unwrap();
        }
        service.statistics().cache
    });
    (peak, cache)
}

#[test]
fn the_cache_takes_no_more_memory_than_reported() {
    // Windows that differ.
    let values: Vec<f64> = (0..2 * CAPACITY).map(|i| (i * i % 1009) as f64).collect();
    for loss in
        [Loss::Mse, Loss::Quantiles { levels: (1..40).map(|level| f64::from(level) / 40.0).collect() }]
    {
        for tolerance in [0.0, 1e-6] {
            let (without, _) = memory(&values, &loss, 0, tolerance);
            let (with, reported) = memory(&values, &loss, CAPACITY, tolerance);
            let taken = with.saturating_sub(without);
            println!("{taken} of {reported}");
            assert!(reported >= CAPACITY * 9 / 10 * 40, "the cache is full");
            assert!(taken <= reported, "{taken} bytes, but {reported} are reported");
            assert!(reported <= 2 * taken, "{taken} bytes, but {reported} are reported");
        }
    }
}
