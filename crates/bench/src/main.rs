//! The program `gatework-bench`: measures the speed of Gatework, compares it with other libraries, and evaluates the accuracy
//! of its forecasts. Each sub-command is a file.

#[macro_use]
extern crate gatework;

mod accuracy;
mod all;
mod automata;
mod backtest;
mod circuits;
mod classifiers;
mod engine;
mod forecast;
mod process;
mod scaling;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use serde_json::Value;

use gatework::cli::Usage;

/// Measure the speed of Gatework on this machine, and the accuracy of its forecasts.
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
    /// Simulate and minimise circuits: Life compared with hand-written AVX2, a large rule, networks of up to a million gates
    Circuits(circuits::Circuits),
    /// Classifiers of tables: accuracy, size, training, time of a sample alone and in a batch
    Classifiers(classifiers::Classifiers),
    /// Vector operations at every size, compared with plain loops
    Engine(engine::Engine),
    /// Forecasting models: prediction of one window and of batches, training steps
    Forecast(forecast::ForecastBench),
    /// Accuracy of forecasters by the protocols of the literature, compared with published figures
    Accuracy(accuracy::Accuracy),
    /// Error and coverage of automatic forecasts on values that were held back
    Backtest(backtest::Backtest),
    /// Time and memory as functions of size, with fitted exponents; --report writes tables and plots
    Scaling(scaling::Scaling),
    /// All speed benchmarks, compared with other libraries where installed; --report writes tables and charts
    All(Box<all::All>),
}

fn main() -> ExitCode {
    match gatework::cli::parse::<Bench>() {
        Ok(bench) => gatework::cli::finish(|| bench.run()),
        Err(status) => status,
    }
}

impl Bench {
    fn run(&self) -> anyhow::Result<()> {
        match &self.what {
            What::Automata(automata) => automata.run(),
            What::Circuits(circuits) => circuits.run(),
            What::Classifiers(classifiers) => classifiers.run(),
            What::Engine(engine) => engine.run(),
            What::Forecast(forecast) => forecast.run(),
            What::Accuracy(accuracy) => accuracy.run(),
            What::Backtest(backtest) => backtest.run(),
            What::Scaling(scaling) => scaling.run(),
            What::All(all) => all.run(),
        }
    }
}

/// Returns the numbers of threads to measure with: one, and the largest.
fn thread_counts(most: usize) -> Vec<usize> {
    if most > 1 { vec![1, most] } else { vec![1] }
}

/// Returns a number of threads as text.
fn thread_text(threads: usize) -> String {
    format!("{threads} thread{}", if threads > 1 { "s" } else { "" })
}

/// A column of a printed table: its heading and width, and the key, unit and number of decimals of its values.
type Column = (&'static str, usize, &'static str, f64, usize);

/// Prints the headings of a table, whose first column has names.
fn print_headings(names: &str, width: usize, columns: &[Column]) {
    let cells = columns.iter().map(|(heading, width, ..)| format!("{heading:>width$}"));
    print_line!("{names:<width$}{}", cells.collect::<String>());
}

/// Prints a row of a table. Values that are not known are left out.
fn print_row(name: &str, width: usize, columns: &[Column], row: &Value) {
    let cell = |&(_, width, key, unit, decimals): &Column| match row[key].as_f64() {
        Some(value) => format!("{:>width$.decimals$}", value / unit),
        None => format!("{:>width$}", "-"),
    };
    print_line!("{name:<width$}{}", columns.iter().map(cell).collect::<String>());
}

/// Parses a duration in seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| *s > 0.0 && *s <= 3600.0);
    seconds.ok_or_else(|| "expected a number of seconds above 0 and at most 3600".into())
}

/// Creates the folder of a report before anything is measured, so that a wrong path does not cost an hour.
fn prepare_report(path: &Path) -> anyhow::Result<()> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(Usage(format!("--report needs a file name, not {}", path.display())).into());
    }
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display())),
        None => Ok(()),
    }
}
