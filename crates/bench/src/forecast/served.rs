//! Served models: memory for batches of 1 to 256 windows, the first calls after loading, the speed of quantised weights, and
//! the latency of requests from many threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gatework_forecast::models::NLinear;
use gatework_forecast::service::{Service, ServiceOptions};
use gatework_forecast::trained_network::Precision;
use gatework_forecast::{Forecast, Forecaster, Specification, Table, TrainedNetwork};
use serde_json::{Value, json};

use super::quantile;
use crate::process;
use gatework_bench::wave::{Wave, wave};

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Int8];

/// Threads that request forecasts.
const THREADS: usize = 16;

/// Adds the measurements of a served model to its row.
pub(super) fn measure(row: &mut Value, network: &TrainedNetwork, seconds: f64) -> anyhow::Result<()> {
    let resident = resident_growth(network)?;
    let [first, tenth] = first_and_tenth_call(network)?;
    row["weights_mb"] = json!((4 * network.parameter_count()) as f64 / 1e6);
    row["first_call_us"] = json!(first * 1e6);
    row["tenth_call_us"] = json!(tenth * 1e6);
    let networks = PRECISIONS.map(|precision| network.with_precision(precision));
    let networks: Vec<TrainedNetwork> =
        networks.into_iter().map(|built| built.map(|(network, _)| network)).collect::<Result<_, _>>()?;
    for (name, rows, unit) in [("served_predict_us", 1, 1e6), ("served_predict_32_ms", 32, 1e3)] {
        row[name] = by_precision(&interleaved(&networks, rows, seconds)?.map(|time| time * unit));
    }
    row["file_mb"] = by_precision(&sizes(&networks, |network| network.to_bytes().len()));
    for network in &networks {
        network.warm_up(&std::array::from_fn::<usize, 9, _>(|i| 1 << i))?;
    }
    row["served_mb"] = by_precision(&sizes(&networks, |network| network.memory().total()));
    row["served_resident_mb"] = json!(resident);
    row["service"] = under_load(network.specification(), network, seconds)?;
    Ok(())
}

fn by_precision(numbers: &[f64; 3]) -> Value {
    PRECISIONS
        .iter()
        .zip(numbers)
        .map(|(precision, number)| (precision.name().to_string(), json!(number)))
        .collect()
}

/// Returns megabytes of each network.
fn sizes(networks: &[TrainedNetwork], bytes: impl Fn(&TrainedNetwork) -> usize) -> [f64; 3] {
    std::array::from_fn(|i| bytes(&networks[i]) as f64 / 1e6)
}

/// Returns by how many megabytes the resident memory of the process grows when the model is loaded from a file and forecasts
/// batches of 1 to 256 windows, if known. Memory that the process has freed before may be used again, so that this is exact
/// only for the first model of a process.
fn resident_growth(network: &TrainedNetwork) -> anyhow::Result<Option<f64>> {
    let folder = std::env::temp_dir().join(format!("gatework-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("model.safetensors");
    network.save(&path)?;
    let before = process::resident_memory();
    let network = TrainedNetwork::load(&path)?;
    network.warm_up(&std::array::from_fn::<usize, 9, _>(|i| 1 << i))?;
    let after = process::resident_memory();
    std::fs::remove_dir_all(&folder)?;
    Ok(before.zip(after).map(|(before, after)| after - before))
}

/// Returns the seconds of the first and the tenth forecast of one window after a model is loaded: the median of five times
/// that it is loaded.
fn first_and_tenth_call(network: &TrainedNetwork) -> anyhow::Result<[f64; 2]> {
    let (bytes, batch) = (network.to_bytes(), Wave::new(network.specification(), 1).0);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        let network = TrainedNetwork::from_bytes(&bytes)?;
        for call in 1..=10 {
            let start = Instant::now();
            network.predict(&batch)?;
            let time = start.elapsed().as_secs_f64();
            match call {
                1 => times[0].push(time),
                10 => times[1].push(time),
                _ => {}
            }
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    }))
}

/// Returns the median time of a forecast by each network in seconds. The networks take turns.
fn interleaved(networks: &[TrainedNetwork], rows: usize, seconds: f64) -> anyhow::Result<[f64; 3]> {
    let batch = Wave::new(networks[0].specification(), rows).0;
    let mut forecast = Forecast::empty();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let begin = Instant::now();
    while times[0].len() < 5 || begin.elapsed().as_secs_f64() < seconds {
        for (network, times) in networks.iter().zip(&mut times) {
            // The first of three calls brings the weights back into the caches.
            network.predict_into(&batch, &mut forecast)?;
            for _ in 0..2 {
                let start = Instant::now();
                network.predict_into(&batch, &mut forecast)?;
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    }))
}

/// Returns latencies and rate of forecasts of one window that 16 threads request at the same time, without a cache.
fn under_load(
    specification: &Specification,
    network: &TrainedNetwork,
    seconds: f64,
) -> anyhow::Result<Value> {
    let Specification { input, horizon, .. } = *specification;
    let values: Vec<f64> = (0..3 * (input + horizon)).map(|i| f64::from(wave(i))).collect();
    let table = Table::from_series("h", [("wave", "2024-01-01 00:00:00", values.clone())])?;
    // Any model of these sizes has a context that fits.
    let plain =
        Forecaster::builder().model(NLinear {}).input(input).horizon(horizon).epochs(1).fit(&table)?;
    let network = TrainedNetwork::from_bytes(&network.to_bytes())?;
    let forecaster = Forecaster::new(network, plain.context().clone());
    let options = ServiceOptions { cache_capacity: 0, ..ServiceOptions::default() };
    let service = Service::new(forecaster, &options)?;
    let (stop, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (service, values, stop, failed) = (&service, &values, &stop, &failed);
            scope.spawn(move || {
                let mut end = input + thread;
                while !stop.load(Ordering::Relaxed) {
                    end = input + (end + 7) % (values.len() - input);
                    if service.predict("wave", &values[..end]).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds.max(0.01)));
        stop.store(true, Ordering::Relaxed);
    });
    let (elapsed, statistics) = (begin.elapsed().as_secs_f64(), service.statistics());
    anyhow::ensure!(failed.into_inner() == 0, "requests of a served model failed");
    let microseconds = |level: f64| {
        let latency = statistics.latency.quantile(level).context("no requests were answered")?;
        Ok::<f64, anyhow::Error>(latency.as_secs_f64() * 1e6)
    };
    Ok(json!({
        "threads": THREADS,
        "p50_us": microseconds(0.5)?,
        "p99_us": microseconds(0.99)?,
        "per_second": statistics.calls() as f64 / elapsed,
        "windows_per_batch": statistics.misses as f64 / statistics.batches.max(1) as f64,
        "mb": statistics.model.total() as f64 / 1e6,
    }))
}
