//! `gatework-bench`: how fast Gatework is on this machine, compared with its peers, and how well it forecasts. One file per
//! benchmark.

#[macro_use]
extern crate gatework;

mod accuracy;
mod all;
mod automata;
mod circuits;
mod engine;
mod forecast;
mod memory;
mod processor;
mod scaling;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use gatework::usage::Usage;

/// Measure how fast Gatework is on this machine, and how well it forecasts.
#[derive(Debug, Parser)]
#[command(name = "gatework-bench", version, about, max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One update of each built-in experiment: forward, backward, optimiser, hard loss
    Automata(automata::Automata),
    /// Circuits at work: Life beside a version written by hand, a large rule, networks of up to a million gates, minimising
    Circuits(circuits::Circuits),
    /// Vector operations at every size, beside plain loops
    Engine(engine::Engine),
    /// Forecasting models: one window, batches, whole training steps
    Forecast(forecast::ForecastBench),
    /// Forecasters by the protocols of the literature, beside its figures
    Accuracy(accuracy::Accuracy),
    /// Time and memory against size, with fitted exponents; with --report a page of tables and plots
    Scaling(scaling::Scaling),
    /// All of these beside other programs, where they are installed; with --report a page of tables and charts
    All(Box<all::All>),
}

fn main() -> ExitCode {
    let bench = Bench::parse();
    gatework::cli::finish(|| bench.run())
}

impl Bench {
    fn run(&self) -> anyhow::Result<()> {
        match &self.what {
            What::Automata(automata) => automata.run(),
            What::Circuits(circuits) => circuits.run(),
            What::Engine(engine) => engine.run(),
            What::Forecast(forecast) => forecast.run(),
            What::Accuracy(accuracy) => accuracy.run(),
            What::Scaling(scaling) => scaling.run(),
            What::All(all) => all.run(),
        }
    }
}

/// Parses a time to measure.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| *s > 0.0 && *s <= 3600.0);
    seconds.ok_or_else(|| "a number of seconds above 0 and at most 3600".into())
}

/// Makes the folder of a report before anything is measured: a wrong path should not cost an hour.
fn prepare_report(path: &Path) -> anyhow::Result<()> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(Usage(format!("--report needs the name of a file, not {}", path.display())).into());
    }
    match path.parent() {
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))
        }
        None => Ok(()),
    }
}
