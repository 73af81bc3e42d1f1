//! `gatework-bench forecast`: speed of forecasting models. For each model: prediction of one window (median and 99th percentile)
//! and of batches of 32 and 256, training steps (forward, backward, Adam), and memory and latency of the served model.

mod cases;
mod served;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use gatework_engine::{Program, kernel};
use gatework_forecast::specification::Mode;
use gatework_forecast::trained_network::Precision;
use gatework_forecast::{ForecastTask, Specification, TrainedNetwork};
use gatework_train::trainer::{self, Task};
use serde_json::{Value, json};

use super::process;
use gatework::cli::{self, predict::PRECISIONS};
use gatework_bench::wave::{self, ADAM, Wave, wave};

/// The columns of the printed table.
const COLUMNS: [super::Column; 11] = [
    ("params", 10, "parameters", 1.0, 0),
    ("p50 us", 9, "predict_p50_us", 1.0, 1),
    ("p99 us", 9, "predict_p99_us", 1.0, 1),
    ("32: ms", 11, "predict_32_ms", 1.0, 3),
    ("256: ms", 11, "predict_256_ms", 1.0, 3),
    ("train 32", 11, "train_32_ms", 1.0, 3),
    ("train 256", 11, "train_256_ms", 1.0, 3),
    ("MB (32)", 10, "train_32_mb", 1.0, 1),
    ("MB (256)", 10, "train_256_mb", 1.0, 1),
    ("first us", 10, "first_call_us", 1.0, 1),
    ("tenth us", 10, "tenth_call_us", 1.0, 1),
];

/// A model of 26 million parameters.
const LARGEST: &str = "nbeats 30 blocks";

/// Learning rate of training steps.
const RATE: f32 = 1e-4;

/// Returns the models: name, windows per sample (one for each column), settings.
fn models() -> [(&'static str, usize, Value); 9] {
    let transformer = json!({
        "kind": "transformer", "patch": 1, "stride": 1, "width": 64, "heads": 4, "layers": 2, "feed_forward": 256,
        "dropout": 0.0,
    });
    [
        ("nhits 4x512", 1, json!({ "kind": "nhits", "layers": 4, "downsampling": [24, 12, 1] })),
        ("nhits 2x512", 1, json!({ "kind": "nhits", "downsampling": [24, 12, 1] })),
        ("nbeats 3 blocks", 1, json!({ "kind": "nbeats", "stacks": [{ "blocks": 3 }] })),
        ("gru 2x128", 1, json!({ "kind": "gru" })),
        ("lstm 2x128", 1, json!({ "kind": "lstm", "attention": false })),
        ("tcn 32,64,128", 1, json!({ "kind": "tcn", "dropout": 0.0 })),
        ("transformer d64", 1, transformer),
        ("dlinear 336-96, 7", 7, json!({ "kind": "dlinear" })),
        // The settings of the paper. Peers do not measure it.
        (LARGEST, 1, json!({ "kind": "nbeats" })),
    ]
}

/// Forecasting models: prediction and training
#[derive(Debug, Args)]
pub struct ForecastBench {
    /// Only models whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Seconds for each measurement
    #[arg(long, default_value = "1", value_parser = super::parse_seconds)]
    seconds: f64,
    /// Number of threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = cli::parse_threads)]
    threads: usize,
    /// Predict with quantised weights; training is not affected
    #[arg(long, value_parser = cli::choice(PRECISIONS))]
    weights: Option<Precision>,
    /// Show the kernels of the training program of a batch of 32, with their times
    #[arg(long)]
    kernels: bool,
    /// Measure nothing; write parameters, windows, forecasts and losses to DIR, for peers to compare theirs with
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn specification(name: &str, model: &Value) -> anyhow::Result<Specification> {
    let (input, horizon) = if name.starts_with("dlinear") { (336, 96) } else { (168, 24) };
    wave::specification(model, input, horizon).with_context(|| name.to_string())
}

impl ForecastBench {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(folder) = &self.cases {
            return self.write_cases(folder);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build()?;
        super::print_headings("model", 18, &COLUMNS);
        let mut results = Vec::new();
        for (name, columns, model) in models() {
            if !self.wants(name) {
                continue;
            }
            let specification = specification(name, &model)?;
            if self.kernels {
                pool.install(|| print_kernels(name, &specification))?;
                continue;
            }
            let row = pool.install(|| self.measure(name, columns, &specification))?;
            super::print_row(name, 18, &COLUMNS, &row);
            results.push(row);
        }
        if self.json {
            cli::print_json(&json!({
                "bench": "forecast", "simd": kernel::simd_name(), "threads": self.threads,
                "weights": self.weights.map_or("f32", Precision::name), "results": results,
            }))?;
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    fn measure(&self, name: &str, columns: usize, specification: &Specification) -> anyhow::Result<Value> {
        let params = specification.params(1)?;
        let count = params.len();
        let mut network = TrainedNetwork::new(specification.clone(), params)?;
        if let Some(weights) = self.weights {
            (network, _) = network.with_precision(weights)?;
        }
        let predict = |samples: usize| {
            let batch = Wave::new(specification, samples * columns).0;
            let mut forecast = network.predict(&batch)?;
            self.times(|| Ok(network.predict_into(&batch, &mut forecast)?))
        };
        let (one, some, many) = (predict(1)?, predict(32)?, predict(256)?);
        let mut row = json!({
            "model": name,
            "parameters": count,
            "predict_p50_us": quantile(&one, 0.5) * 1e6,
            "predict_p99_us": quantile(&one, 0.99) * 1e6,
            "predict_32_ms": quantile(&some, 0.5) * 1e3,
            "predict_256_ms": quantile(&many, 0.5) * 1e3,
            "windows_per_second_32": (32 * columns) as f64 / quantile(&some, 0.5),
            "windows_per_second_256": (256 * columns) as f64 / quantile(&many, 0.5),
        });
        served::measure(&mut row, &network, self.seconds)?;
        drop(network);
        for samples in [32, 256] {
            process::reset_peak();
            let times = self.training(specification, samples * columns)?;
            row[format!("train_{samples}_ms")] = json!(quantile(&times, 0.5) * 1e3);
            row[format!("train_{samples}_least_ms")] = json!(times[0] * 1e3);
            row[format!("train_{samples}_mb")] = json!(process::peak_memory());
        }
        Ok(row)
    }

    /// Returns the sorted times of training steps.
    fn training(&self, specification: &Specification, rows: usize) -> anyhow::Result<Vec<f64>> {
        let mut task = ForecastTask::new(specification, Wave::new(specification, rows), 1)?;
        let mut state = ADAM.state(task.params().len());
        let mut update = 0;
        let mut step = || {
            let step = trainer::step_and_update(&mut task, update, &ADAM, &mut state, RATE, None);
            let (_, is_moved) = step.map_err(|error| anyhow::anyhow!("{error}"))?;
            update += 1;
            if !is_moved {
                let params = task.params_mut();
                ADAM.step(&mut state, &mut params.values, &params.grads, RATE, None);
            }
            Ok(())
        };
        step()?;
        self.times(step)
    }

    /// Returns the sorted times of calls in seconds, after two calls that warm up.
    fn times(&self, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
        call()?;
        call()?;
        let (mut times, begin) = (Vec::new(), Instant::now());
        while times.len() < 5 || begin.elapsed().as_secs_f64() < self.seconds {
            let start = Instant::now();
            call()?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

/// Returns a quantile of sorted times.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Prints the kernels of the training program with their times, equal kernels in one line.
fn print_kernels(name: &str, specification: &Specification) -> anyhow::Result<()> {
    let begin = Instant::now();
    let (graph, _) = specification.network(32, Mode::Training)?;
    let program = Program::new(&graph)?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut runner = program.runner();
    // Values as in training: ReLU activations are sparse, and GEMM skips zeros.
    let params = specification.params(1)?;
    for (name, _) in graph.inputs() {
        let numbers = runner.input_mut::<f32>(name)?;
        match params.tensors().iter().find(|tensor| tensor.name == name) {
            Some(tensor) => numbers.copy_from_slice(&params.values[tensor.range.clone()]),
            None => numbers.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i + 1)),
        }
    }
    let timings = runner.timings(7);
    let mut groups: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for row in &timings.kernels {
        let group = groups.entry(&row.kernel).or_default();
        *group = (group.0 + 1, group.1 + row.time.as_secs_f64());
    }
    let mut groups: Vec<(&str, (usize, f64))> = groups.into_iter().collect();
    groups.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    print_line!(
        "{name}: {} nodes, {} kernels, {:.1} MB, compiled in {seconds:.3} s, {:.3} ms",
        graph.nodes().len(),
        timings.kernels.len(),
        program.bytes() as f64 / 1e6,
        timings.total().as_secs_f64() * 1e3,
    );
    for (kernel, (count, time)) in groups {
        print_line!("  {:>9.3} ms {count:>5} {kernel}", time * 1e3);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_specification_of_the_benchmark_builds() {
        for (name, _, model) in models() {
            assert!(specification(name, &model).unwrap().check().is_ok(), "{name}");
        }
    }
}
