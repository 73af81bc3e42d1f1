//! Compares training with activations in f32, bf16 and f16: validation losses, memory, and time of an update.
//!
//! ```text
//! cargo run --release -p gatework-forecast --example mixed_precision -- EXPERIMENT.toml... [--seeds N]
//! ```
//!
//! Without an experiment, it trains a small N-HiTS on the built-in table of airline passengers.
//!
//! The updates of the three precisions are interleaved, so that the load of the machine affects all of them alike.

use std::path::Path;
use std::time::{Duration, Instant};

use gatework_engine::Program;
use gatework_forecast::ForecastTask;
use gatework_forecast::data::Target;
use gatework_forecast::experiment::{Dataset, Experiment, ForecastExperiment};
use gatework_forecast::models::Nhits;
use gatework_forecast::training::ActivationPrecision;
use gatework_train::trainer::{Attempt, Outcome};

const PRECISIONS: [ActivationPrecision; 3] =
    [ActivationPrecision::F32, ActivationPrecision::Bf16, ActivationPrecision::F16];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let seeds = match names.iter().position(|name| name == "--seeds") {
        Some(at) => names.drain(at..).nth(1).unwrap_or_default().parse()?,
        None => 3,
    };
    if names.is_empty() {
        let experiment = passengers();
        let loaded = ForecastExperiment { experiment: experiment.clone(), folder: ".".into() };
        compare(&experiment, &Dataset::load(&loaded)?, 1)?;
    }
    for name in names {
        let loaded = ForecastExperiment::read(Path::new(&name))?;
        compare(&loaded.experiment, &Dataset::load(&loaded)?, seeds)?;
    }
    Ok(())
}

/// Returns the experiment that is trained if none is named.
fn passengers() -> Experiment {
    let mut experiment = Experiment::new(Nhits { width: 64, ..Nhits::default() }, 12);
    (experiment.name, experiment.data) = ("airpassengers".into(), "airpassengers".into());
    experiment.columns.time = "Month".into();
    experiment.columns.target = Target::One("Passengers".into());
    experiment.training.epochs = Some(10);
    experiment
}

/// Trains an experiment in every precision and prints a line for each.
fn compare(experiment: &Experiment, dataset: &Dataset, seeds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let specification = experiment.specification();
    let rows = experiment.training.micro_batch.unwrap_or(experiment.training.batch);
    for precision in PRECISIONS {
        let (graph, _) = specification.training_network(rows, precision.half())?;
        let program = Program::new(&graph)?;
        let (activations, all) = (program.activation_bytes() as f64 / 1e3, program.bytes() as f64 / 1e3);
        println!(
            "{} {precision:?}: {activations:.0} kB of activations for {rows} windows, {all:.0} kB in all",
            experiment.name
        );
    }
    let mut losses = [const { Vec::new() }; 3];
    let mut times = [const { Vec::new() }; 3];
    let mut skipped = 0;
    for seed in 1..=seeds {
        let mut runs = Vec::new();
        for precision in PRECISIONS {
            let mut experiment = experiment.clone();
            experiment.training.precision = precision;
            let loader = dataset.loader(&experiment, seed);
            let task = ForecastTask::new(&specification, loader, seed)?;
            let mut task = task.with_activations(precision.half());
            if let Some(rows) = experiment.training.micro_batch {
                task = task.with_micro_batch(rows);
            }
            let settings = experiment.training.settings(dataset.updates_per_epoch(&experiment));
            let attempt = Attempt::new(seed, &settings, specification.params(seed)?.len());
            runs.push((task, settings, attempt));
        }
        while runs.iter().any(|(_, _, attempt)| attempt.outcome == Outcome::Running) {
            for ((task, settings, attempt), times) in runs.iter_mut().zip(&mut times) {
                if attempt.outcome == Outcome::Running {
                    let begin = Instant::now();
                    attempt.advance(task, settings)?;
                    times.push(begin.elapsed());
                }
            }
        }
        for ((_, _, attempt), losses) in runs.iter().zip(&mut losses) {
            losses.extend(attempt.best.as_ref().map(|best| best.hard));
            skipped += attempt.loss_scale.map_or(0, |scale| scale.skipped());
        }
    }
    for ((precision, losses), times) in PRECISIONS.iter().zip(&losses).zip(&mut times) {
        times.sort();
        let median = times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64);
        let (name, milliseconds) = (&experiment.name, 1e3 * median);
        println!("{name} {precision:?}: losses {losses:.5?}, {milliseconds:.3} ms per update (median)");
    }
    println!("{}: {skipped} updates skipped in f16", experiment.name);
    Ok(())
}
