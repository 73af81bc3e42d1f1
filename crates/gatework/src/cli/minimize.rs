//! `gatework minimize`: fewer gates for the same function, proved before it is written.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gatework_logic::Document;
use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{Effort, Options, Start};
use gatework_train::files;
use serde_json::json;

use super::{Choices, Usage, program};
use crate::lookup_tables::{LookupTables, lookup_tables};
use crate::minimize::{self, Control, PROOF_TIME, Proved};
use crate::progress::Passes;
use crate::subject::Subject;

/// Minimise a circuit, and prove the result equivalent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework minimize runs/checkerboard
  gatework minimize runs/game-of-life --effort high -o life.v
  gatework minimize adder.blif -o smaller.blif

An automaton is proved equivalent in its observed channels, for every start state and every
number of steps; channels that no observed one depends on are removed. With --from-start it is
equivalent only for runs from the experiment's start state, which also removes channels that are
constant or equal in every state that such runs reach.")]
pub struct Minimize {
    /// A run folder, a model.safetensors or a circuit
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// The file to write, in the format of its extension [default: in a run folder, minimized.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
    /// Assume the start state of the experiment
    #[arg(long)]
    from_start: bool,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// How much work a minimisation and its proof may take.
#[derive(Debug, Args)]
pub struct Work {
    /// How much work to spend [default: normal]
    #[arg(long, value_parser = super::choice(EFFORTS))]
    effort: Option<Effort>,
    /// Time limit of the proof in seconds; if it is exceeded, nothing is written
    #[arg(long, value_name = "S", default_value_t = PROOF_TIME.as_secs_f64(), value_parser = parse_proof_seconds)]
    proof_seconds: f64,
}

impl Work {
    /// Whether the effort was given.
    pub fn has_effort(&self) -> bool {
        self.effort.is_some()
    }

    /// Minimises a circuit and proves the result, until Ctrl-C.
    pub fn minimize(
        &self,
        document: &Document,
        start: Vec<Start>,
        passes: &Passes,
    ) -> anyhow::Result<Proved> {
        let options = Options { effort: self.effort.unwrap_or(Effort::Normal), start };
        let stop = super::stop_on_interrupt()?;
        let control = Control {
            proof_time: Duration::from_secs_f64(self.proof_seconds),
            stop: &stop,
            observer: &|pass, gates| passes.show(pass, gates),
        };
        Ok(minimize::with_proof_controlled(document, &options, control)?)
    }
}

/// Parses a number of seconds.
fn parse_proof_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|&seconds| Duration::try_from_secs_f64(seconds).is_ok());
    seconds.ok_or_else(|| "expected a number of seconds, 0 or more".to_string())
}

/// How much work to spend.
static EFFORTS: &Choices<Effort> = &[
    ("fast", "A few passes: well under a minute for a million gates", Effort::Fast),
    ("normal", "All passes until nothing improves", Effort::Normal),
    ("high", "Also long random walks, for circuits with few inputs", Effort::High),
];

impl Minimize {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(path) =
            self.output.as_deref().filter(|path| path.extension().is_some_and(|e| e == "html"))
        {
            let (program, subject) = (program(), self.subject.display());
            let message = format!(
                "a web page is not a circuit; {program} export {subject} --minimize -o {} writes it",
                path.display()
            );
            return Err(Usage(message).into());
        }
        let format = self.output.as_deref().map(Format::of_path).transpose();
        let format = format.map_err(|error| Usage(error.to_string()))?;
        let subject = Subject::open(&self.subject)?;
        let start = match (&subject.loaded, self.from_start) {
            (_, false) => Vec::new(),
            (Some(loaded), true) => minimize::start_of(&loaded.experiment),
            (None, true) => {
                let message = "--from-start needs a run folder: a circuit file has no start state";
                return Err(Usage(message.into()).into());
            }
        };
        let passes = Passes::default();
        let proved = self.work.minimize(&subject.document(), start, &passes)?;
        let name = if proved.assumes_start { "minimized-from-start.json" } else { "minimized.json" };
        let in_run = subject.loaded.is_some().then(|| subject.path.join(name));
        let path = self.output.clone().or(in_run);
        let bytes = path.as_deref().map(|path| {
            passes.show("write", proved.statistics.gates_after);
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let options = formats::Options { name, ..formats::Options::default() };
            formats::write(&proved.document, format.unwrap_or(Format::named("json")?), &options)
        });
        drop(passes);
        match path.as_deref().zip(bytes.transpose()?) {
            Some((path, bytes)) => {
                files::write_atomic(path, &bytes)?;
                status!("Wrote {}", path.display());
            }
            None => status!("Nothing is written; -o names a file"),
        }
        print_proved(&subject, &proved);
        // Classifiers are made for FPGAs; the mapper takes seconds for large circuits.
        let tables = subject.classifier.as_ref().and_then(|_| lookup_tables(proved.document.circuit()));
        if let Some(LookupTables { lut4, lut6 }) = tables {
            print_line!(
                "{lut4} lookup tables of 4 inputs, or {lut6} of 6 inputs, without encoder and head (ABC)"
            );
        }
        if self.json {
            let statistics = &proved.statistics;
            super::print_json(&json!({
                "gates_before": statistics.gates_before,
                "gates_after": statistics.gates_after,
                "depth_before": statistics.depth_before,
                "depth": statistics.depth_after,
                "channels_before": subject.automaton.as_ref().map(|automaton| automaton.channels),
                "channels": proved.channels,
                "lut4": tables.map(|tables| tables.lut4),
                "lut6": tables.map(|tables| tables.lut6),
                "proved": true,
                "assumes_start": proved.assumes_start,
                "seconds": proved.seconds,
                "proof_seconds": proved.proof_seconds,
                "file": path,
            }))?;
        }
        Ok(())
    }
}

/// Prints gates, depth and what was proved.
pub fn print_proved(subject: &Subject, proved: &Proved) {
    let statistics = &proved.statistics;
    let per_cell = if subject.automaton.is_some() { " per cell" } else { "" };
    print_line!(
        "{} gates{per_cell}, without wires, inverters and duplicates: {} after {:.2} s; depth {} -> {}",
        statistics.gates_before,
        statistics.gates_after,
        proved.seconds,
        statistics.depth_before,
        statistics.depth_after
    );
    let seconds = proved.proof_seconds;
    let (Some(automaton), Some(channels)) = (&subject.automaton, &proved.channels) else {
        let what = match &subject.classifier {
            Some(_) => "the scores are equal for every input that the encoder can produce",
            None => "the outputs are equal for every input",
        };
        print_line!("Proved in {seconds:.2} s: {what}");
        return;
    };
    if channels.len() < automaton.channels {
        print_line!("{} of {} channels remain", channels.len(), automaton.channels);
    }
    let start =
        if proved.assumes_start { "from the experiment's start state" } else { "from every start state" };
    let equal = match subject.observed {
        1 => "the first channel is equal".to_string(),
        n => format!("the first {n} channels are equal"),
    };
    print_line!("Proved by induction in {seconds:.2} s: {equal} {start}, after any number of steps");
}
