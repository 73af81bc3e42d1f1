//! The command line: one file a verb.
//!
//! Answers go to stdout, what is said on the way to stderr; with `--json` stdout has one JSON object. Exit status: 0 done,
//! 1 it failed, 2 it was asked wrongly.

pub mod evaluate;
pub mod export;
pub mod inspect;
pub mod list;
pub mod minimize;
pub mod predict;
pub mod simulate;
pub mod study;
pub mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gatework_train::experiment::ExperimentError;

use crate::output;
pub use crate::output::print_json;
use crate::usage::Usage;

/// Learn circuits on a CPU, look at them, run them.
///
/// Begin with `gatework list`, then `gatework train checkerboard`.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what can be trained out of the box
    List(list::List),
    /// Train an experiment: built-in, or your own TOML file
    Train(train::Train),
    /// Let a learned rule run on a board, and make a GIF of it
    Simulate(simulate::Simulate),
    /// Make a circuit smaller, and prove that it still computes the same
    Minimize(minimize::Minimize),
    /// Show what is in a run folder, a model or a circuit
    Inspect(inspect::Inspect),
    /// Write a circuit in another format: BLIF, AIGER, Verilog, C, Rust, ...
    Export(export::Export),
    /// Score a learned rule by the published protocols, a forecaster beside the baselines
    Evaluate(evaluate::Evaluate),
    /// Forecast new data with a trained forecaster
    Predict(predict::Predict),
    /// Compare settings of an experiment over many seeds
    Study(study::Study),
}

/// Parses the command line and runs its verb.
pub fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    finish(|| match verb {
        Verb::List(verb) => verb.run(),
        Verb::Train(verb) => verb.run(),
        Verb::Simulate(verb) => verb.run(),
        Verb::Minimize(verb) => verb.run(),
        Verb::Inspect(verb) => verb.run(),
        Verb::Export(verb) => verb.run(),
        Verb::Evaluate(verb) => verb.run(),
        Verb::Predict(verb) => verb.run(),
        Verb::Study(verb) => verb.run(),
    })
}

/// Runs the work of a command line, prints its error and returns the exit status.
pub fn finish(work: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    if std::env::args_os().any(|argument| argument == "--json") {
        output::keep_for_programs();
    }
    let Err(error) = work().and_then(|()| output::finish()) else { return ExitCode::SUCCESS };
    say!("error: {}", printable(&format!("{error:#}")));
    let asked_wrongly = error.chain().any(|cause| cause.is::<Usage>() || cause.is::<ExperimentError>());
    ExitCode::from(if asked_wrongly { 2 } else { 1 })
}

/// Characters of a message at most: it may quote a file.
const LONGEST_MESSAGE: usize = 2000;

/// A message that does nothing to a terminal and has an end, whatever it quotes.
fn printable(message: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    let mut text: String = message.chars().take(LONGEST_MESSAGE).map(harmless).collect();
    if message.chars().nth(LONGEST_MESSAGE).is_some() {
        text.push_str(" ...");
    }
    text
}

/// The middle one of sorted numbers, or half-way between the middle two.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(*middle, sorted[(sorted.len() - 1) / 2]))
}

/// Number of threads: what was asked for, or all there are.
pub fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Parses a number of threads.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 thread is needed".into()),
        Ok(n) if n > 1024 => Err("at most 1024 threads".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a number".into()),
    }
}

/// Parses HEIGHTxWIDTH, or one number for a square.
pub fn parse_size(text: &str) -> Result<[usize; 2], String> {
    let wrong = || "a size is HEIGHTxWIDTH, for example 64x64, with sides of 1 to 65536".to_string();
    let (height, width) = text.split_once(['x', 'X']).unwrap_or((text, text));
    let side =
        |text: &str| text.trim().parse().ok().filter(|side| (1..=1 << 16).contains(side)).ok_or_else(wrong);
    Ok([side(height)?, side(width)?])
}

/// Parses a share of cells.
pub fn parse_rate(text: &str) -> Result<f32, String> {
    let rate: Option<f32> = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "a rate is above 0 and at most 1, for example 0.6".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_nothing_to_a_terminal_and_have_an_end() {
        assert_eq!(printable("a\n\u{1b}[31mb\u{7}"), "a\n\u{fffd}[31mb\u{fffd}");
        let long = printable(&"ä".repeat(LONGEST_MESSAGE + 1));
        assert!(long.chars().count() == LONGEST_MESSAGE + 4 && long.ends_with(" ..."));
    }
}
