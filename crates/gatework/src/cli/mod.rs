//! The command line: one file per verb.
//!
//! Results go to stdout, progress and errors to stderr; with `--json`, stdout has one JSON object. Exit status: 0 success,
//! 1 failure, 2 wrong usage. A verb parses its options, calls a library and prints the result.

pub mod check;
pub mod classifier;
pub mod errors;
pub mod evaluate;
pub mod export;
pub mod forecast;
pub mod forecaster;
pub mod grow;
pub mod inspect;
pub mod list;
pub mod minimize;
pub mod predict;
pub mod quantize;
#[cfg(feature = "serve")]
pub mod serve;
pub mod simulate;
pub mod study;
pub mod train;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};

use crate::experiment;
use crate::output;
pub use crate::output::print_json;
pub use crate::study::median;
use crate::subject::SubjectError;
pub use errors::Usage;

/// Learn logic circuits and forecasters on a CPU; minimise, prove, run and export them
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Start with: gatework list
            gatework train checkerboard"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the built-in experiments
    List(list::List),
    /// Train an experiment: a built-in one, your own TOML file, a picture or a rule
    Train(train::Train),
    /// Forecast a table of time series: columns, models and intervals are chosen for it
    Forecast(forecast::Forecast),
    /// Grow a picture from one cell, or a tile over the plane: all settings are chosen for it
    Grow(grow::Grow),
    /// Simulate a learned automaton on a grid of any size, and write a GIF of it
    Simulate(simulate::Simulate),
    /// Minimise a circuit, and prove the result equivalent
    Minimize(minimize::Minimize),
    /// Prove that an automaton reaches its target from every state, or find a state from which it does not
    Check(check::Check),
    /// Show the content of a run folder, a model or a circuit
    Inspect(inspect::Inspect),
    /// Write a circuit as Verilog, C, Rust, WebAssembly, BLIF, AIGER, a web page, ..., or a forecaster as ONNX
    Export(export::Export),
    /// Evaluate a classifier, an automaton by the published protocols, or a forecaster compared with the baselines
    Evaluate(evaluate::Evaluate),
    /// Classify or forecast new data with a trained model
    Predict(predict::Predict),
    /// Write a copy of a forecaster with quantised weights
    Quantize(quantize::Quantize),
    /// Show runs in a browser, train from the page, and answer predictions over HTTP
    #[cfg(feature = "serve")]
    Serve(Box<serve::Serve>),
    /// Compare settings of an experiment over many seeds
    Study(study::Study),
    /// Moved to the program gatework-bench
    #[command(hide = true)]
    Bench(Bench),
}

/// Moved to the program gatework-bench
#[derive(Debug, Args)]
struct Bench {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

impl Bench {
    fn run(&self) -> anyhow::Result<()> {
        let arguments: Vec<String> = self.arguments.iter().map(|argument| quoted(argument)).collect();
        let command = format!("cargo run --release -p gatework-bench -- {}", arguments.join(" "));
        let message = format!(
            "benchmarks are a separate program; in a clone of the repository, run: {}",
            command.trim_end()
        );
        Err(Usage(message).into())
    }
}

/// Parses the command line and runs its verb.
pub fn main() -> ExitCode {
    let verb = match parse::<Cli>() {
        Ok(cli) => cli.verb,
        Err(status) => return status,
    };
    finish(|| match verb {
        Verb::List(verb) => verb.run(),
        Verb::Train(verb) => verb.run(),
        Verb::Forecast(verb) => verb.run(),
        Verb::Grow(verb) => verb.run(),
        Verb::Simulate(verb) => verb.run(),
        Verb::Minimize(verb) => verb.run(),
        Verb::Check(verb) => verb.run(),
        Verb::Inspect(verb) => verb.run(),
        Verb::Export(verb) => verb.run(),
        Verb::Evaluate(verb) => verb.run(),
        Verb::Predict(verb) => verb.run(),
        Verb::Quantize(verb) => verb.run(),
        #[cfg(feature = "serve")]
        Verb::Serve(verb) => verb.run(),
        Verb::Study(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(),
    })
}

/// Parses the command line. If there is nothing to run, prints help, version or what is wrong, and returns the exit status.
pub fn parse<T: Parser>() -> Result<T, ExitCode> {
    T::try_parse().map_err(|message| {
        let text = message.render();
        if message.use_stderr() {
            text.to_string().lines().for_each(|line| status!("{line}"));
            if let Some(tip) = tip(&message) {
                status!("tip: {tip}");
            }
            return ExitCode::from(2);
        }
        let is_styled = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let text = if is_styled { text.ansi().to_string() } else { text.to_string() };
        finish(|| output::write(text.as_bytes()))
    })
}

/// Returns what may have been meant, if the first argument is not a verb.
fn tip(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (program, quoted) = (program(), quoted(word));
    if experiment::built_in().any(|(name, _)| name == word) {
        return Some(format!("{word} is an experiment; train it with: {program} train {quoted}"));
    }
    let is_path = Path::new(word).exists();
    is_path.then(|| format!("{word} is a path; the command comes first, as in: {program} inspect {quoted}"))
}

/// Runs a command, prints its error and returns the exit status.
pub fn finish(command: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    #[cfg(unix)]
    block_file_size_signal();
    if std::env::args_os().any(|argument| argument == "--json") {
        output::reserve_for_json();
    }
    let Err(error) = command().and_then(|()| output::finish()) else { return ExitCode::SUCCESS };
    status!("error: {}", errors::message(&error));
    ExitCode::from(if errors::is_usage(&error) { 2 } else { 1 })
}

/// Blocks SIGXFSZ in this thread and those that it starts. A write beyond the file size limit (`ulimit -f`) is then an error
/// of that write, instead of the end of the process.
#[cfg(unix)]
fn block_file_size_signal() {
    use nix::sys::signal::{SigSet, Signal};
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // If this fails, the signal ends the process.
    let _ = signals.thread_block();
}

/// Returns how this program was called, quoted for a shell: it may not be in the search path.
pub fn program() -> String {
    std::env::args_os().next().map_or("gatework".into(), |name| quoted(&name.to_string_lossy()))
}

/// Quotes an argument for a shell.
pub fn quoted(argument: &str) -> String {
    // Only a zero byte cannot be quoted, and an argument has none.
    shlex::try_quote(argument).map_or_else(|_| argument.to_string(), std::borrow::Cow::into_owned)
}

/// Returns the command that resumes a run. The experiment in the folder has the settings of the run.
pub fn resume_command(run: &Path) -> String {
    let quoted = |path: &Path| quoted(&path.display().to_string());
    let experiment = quoted(&run.join("experiment.toml"));
    format!("{} train {experiment} --resume --out {}", program(), quoted(run))
}

/// Returns a flag that Ctrl-C sets. A second Ctrl-C ends the program at once, and so does the first one after the flag is dropped:
/// a verb keeps the flag while its work polls it.
pub fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::downgrade(&stop);
    ctrlc::set_handler(move || {
        if seen.upgrade().is_none_or(|stop| stop.swap(true, Ordering::SeqCst)) {
            std::process::exit(130);
        }
    })
    .context("cannot handle Ctrl-C")?;
    Ok(stop)
}

/// Returns the error for a path that does not exist, or that is not what a verb works on.
fn not_predictable(path: &Path, what: &str) -> anyhow::Error {
    if path.exists() {
        Usage(format!("{} is {what}", path.display())).into()
    } else {
        SubjectError::missing(path).into()
    }
}

/// Returns an error if an option is given that is for another kind of experiment.
fn refuse(options: &[(bool, &str)], for_kind: &str, kind: &str) -> anyhow::Result<()> {
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Usage(format!("{option} is for {for_kind}; this is {kind}")).into()),
        None => Ok(()),
    }
}

/// Returns the number of threads: as requested, or all.
pub fn threads(requested: Option<usize>) -> usize {
    requested.unwrap_or_else(crate::runs::available_threads)
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

/// Values of an option with their names and descriptions.
pub type Choices<T> = [(&'static str, &'static str, T)];

/// Parses the name of one of these values.
pub fn choice<T: Clone + Send + Sync>(choices: &'static Choices<T>) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, about, _)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(names).map(|chosen| {
        let found = choices.iter().find(|(name, ..)| *name == chosen);
        found.map(|(_, _, value)| value.clone()).expect("the parser accepts the names of choices only")
    })
}

/// Parses HEIGHTxWIDTH, or one number for a square.
pub fn parse_size(text: &str) -> Result<[usize; 2], String> {
    let wrong = || "expected HEIGHTxWIDTH, for example 64x64, with sides of 1 to 65536".to_string();
    let (height, width) = text.split_once(['x', 'X']).unwrap_or((text, text));
    let side =
        |text: &str| text.trim().parse().ok().filter(|side| (1..=1 << 16).contains(side)).ok_or_else(wrong);
    Ok([side(height)?, side(width)?])
}

/// Parses the path of a GIF.
pub fn parse_gif(text: &str) -> Result<PathBuf, String> {
    parse_path(text, "gif")
}

/// Parses the path of an SVG.
pub fn parse_svg(text: &str) -> Result<PathBuf, String> {
    parse_path(text, "svg")
}

/// Parses the path of a file with an extension. Another one would suggest another format.
fn parse_path(text: &str, extension: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_right = path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    if is_right { Ok(path) } else { Err(format!("expected a file name that ends in .{extension}")) }
}

/// Parses a fraction of cells.
pub fn parse_rate(text: &str) -> Result<f32, String> {
    let rate: Option<f32> = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "a rate is above 0 and at most 1, for example 0.6".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// clap wraps a paragraph at the width of the terminal. A line break within one would leave ragged lines.
    #[test]
    fn paragraphs_of_the_help_have_no_line_breaks() {
        use clap::CommandFactory as _;
        for verb in Cli::command().get_subcommands() {
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_prose = |line: &&str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                assert!(!pair.iter().all(is_prose), "{}: {pair:?}", verb.get_name());
            }
        }
    }

    #[test]
    fn the_command_that_resumes_a_run_is_quoted_for_a_shell() {
        let command = resume_command(Path::new("my runs/it's"));
        assert!(command.ends_with(r#" --resume --out "my runs/it's""#), "{command}");
    }
}
