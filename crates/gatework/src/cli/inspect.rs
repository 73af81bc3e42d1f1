//! `gatework inspect`: shows the content of a run folder, a model or a circuit.

use std::path::PathBuf;

use clap::Args;
use gatework_engine::kernel;
use gatework_forecast::run::ForecastRun;
use gatework_forecast::trained_network::MAX_ROWS;
use gatework_train::files;
use serde_json::Value;

use super::{Usage, program};
use crate::facts;
use crate::report;
use crate::subject::Subject;

/// Show the content of a run folder, a model or a circuit
#[derive(Debug, Args)]
pub struct Inspect {
    /// A run folder, a model.safetensors or a circuit.json
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// Forecasters: show the kernels of the program that is compiled for this batch size
    #[arg(long, value_name = "WINDOWS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_windows)]
    program: Option<usize>,
    /// Circuits and automata: write the histogram of the gate functions as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = super::parse_svg)]
    svg: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(run) = ForecastRun::open(&self.subject)? {
            super::refuse(&[(self.svg.is_some(), "--svg")], "circuits and automata", "a forecaster")?;
            return self.show_forecaster(&run);
        }
        let subject = Subject::open(&self.subject)?;
        if self.program.is_some() {
            let message = format!(
                "--program is for forecasters; {} is not one ({} export writes circuits as programs)",
                self.subject.display(),
                program()
            );
            return Err(Usage(message).into());
        }
        let bars = subject.gate_histogram();
        let facts = facts::of_subject(&subject)?;
        print_facts(&facts);
        print_histogram(&bars);
        if let Some(path) = &self.svg {
            let title = self.subject.display().to_string();
            files::write_atomic(path, report::gate_histogram(&title, &bars).as_bytes())?;
            status!("Wrote {}", path.display());
        }
        if self.json {
            super::print_json(&facts)?;
        }
        Ok(())
    }

    fn show_forecaster(&self, run: &ForecastRun) -> anyhow::Result<()> {
        let mut facts = facts::of_forecaster(run)?;
        let windows = self.program.unwrap_or(1);
        let programs = run.forecaster.network().programs(windows)?;
        facts["programs"] = programs.iter().map(|(what, program)| facts::of_program(what, program)).collect();
        print_facts(&facts);
        for (what, program) in programs {
            if self.program.is_some() {
                print_line!("");
                print_line!("program of {what}, batch {windows}, {}", kernel::simd_name());
                program.to_string().lines().for_each(|line| print_line!("{line}"));
            } else {
                let moved: usize = program.traffic().iter().sum();
                let (kernels, bytes) = (program.kernels().len(), program.bytes());
                let text = format!("{kernels} kernels, {bytes} bytes of memory, {moved} bytes moved");
                print_line!("{:<22} {what}: {text}", "program");
            }
        }
        if self.json {
            super::print_json(&facts)?;
        }
        Ok(())
    }
}

/// Parses the batch size that a program is compiled for.
fn parse_windows(text: &str) -> Result<usize, String> {
    let windows = text.parse().ok().filter(|windows| (1..=MAX_ROWS).contains(windows));
    windows.ok_or_else(|| format!("expected a number of windows from 1 to {MAX_ROWS}"))
}

/// Facts that are printed separately.
const SEPARATE: [&str; 2] = ["functions", "programs"];

/// The facts of an automaton or a circuit, in the order in which they are printed; others follow.
const ORDER: [&str; 30] = [
    "path",
    "experiment",
    "about",
    "success",
    "seed",
    "attempts",
    "updates",
    "moves",
    "seconds",
    "epoch",
    "accuracy",
    "soft_accuracy",
    "validation_accuracy",
    "features",
    "classes",
    "hard_loss",
    "soft_loss",
    "first_perfect_update",
    "grid",
    "steps",
    "boundary",
    "channels",
    "observed_channels",
    "circuit",
    "kernels",
    "perceive_layers",
    "update_layers",
    "learned_gates",
    "parameters",
    "data",
];

fn print_facts(facts: &Value) {
    let Value::Object(facts) = facts else { return };
    let shown = facts.iter().filter(|(key, value)| !SEPARATE.contains(&key.as_str()) && !value.is_null());
    let mut shown: Vec<(&String, &Value)> = shown.collect();
    shown.sort_by_key(|(key, _)| ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len()));
    for (key, value) in shown {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Object(inner) => inner
                .iter()
                .map(|(key, value)| format!("{} {}", key.replace('_', " "), rounded(value)))
                .collect::<Vec<_>>()
                .join(", "),
            other => rounded(other),
        };
        print_line!("{:<22} {text}", key.replace('_', " "));
    }
}

/// A value as text, numbers with four significant digits.
fn rounded(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() && number != 0.0 => {
            let digits = (3 - number.abs().log10().floor() as i32).clamp(0, 9) as usize;
            format!("{number:.digits$}")
        }
        _ => value.to_string(),
    }
}

/// The maximum width of a bar in characters.
const BAR_WIDTH: usize = 40;

fn print_histogram(bars: &[(String, usize)]) {
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1) as f64;
    print_line!("");
    print_line!("gates by function (logarithmic)");
    for (name, count) in bars.iter().filter(|(_, count)| *count > 0) {
        let width = (BAR_WIDTH as f64 * (*count as f64 + 1.0).ln() / (most + 1.0).ln()).ceil() as usize;
        print_line!("{name:>8} {:<BAR_WIDTH$} {count}", "█".repeat(width.min(BAR_WIDTH)));
    }
}
