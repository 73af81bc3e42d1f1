//! `gatework minimize`: fewer gates for the same function, proved before it is written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{Effort, Options, Start};
use gatework_logic::prove::StateMap;
use gatework_logic::{Document, Stop};
use gatework_train::files;
use serde_json::json;

use super::{Choices, Usage, program};
use crate::classification::TrainedClassifier;
use crate::lookup_tables::{LookupTables, lookup_tables};
use crate::minimize::{self, Control, MinimizeError, PROOF_TIME, Proved};
use crate::progress::Passes;
use crate::reduction::{Comparison, Reduction};
use crate::subject::Subject;

/// Minimise a circuit, and prove the result equivalent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework minimize runs/checkerboard
  gatework minimize runs/game-of-life --effort high -o life.v
  gatework minimize adder.blif -o smaller.blif
  gatework minimize runs/game-of-life --depth 9 -o life.v
  gatework minimize runs/digits --data
  gatework minimize runs/lizard --miter lizard.aig; berkeley-abc -c 'read lizard.aig; sat'

An automaton is proved equivalent in its observed channels, for every start state and every \
number of steps; channels that no observed one depends on are removed. With --from-start it is \
equivalent only for runs from the experiment's start state, which also removes channels that are \
constant or equal in every state that such runs reach.

A classifier is proved to have equal scores for every input that its encoder can produce. With --data, \
gates that the training rows do not need are removed first, as long as the accuracy on held-back rows \
does not fall. That step is measured, not proved.")]
pub struct Minimize {
    /// A run folder, a model.safetensors or a circuit
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// The file to write, in the format of its extension [default: minimized.json in the run folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
    /// Also write the miter for other provers: a circuit whose output is 1 where the two differ
    #[arg(long, value_name = "FILE")]
    miter: Option<PathBuf>,
    /// Assume the start state of the experiment
    #[arg(long)]
    from_start: bool,
    /// Classifiers: first remove gates that the training rows, or those of FILE, do not need
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "the option may be given with and without a file")]
    data: Option<Option<PathBuf>>,
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
    /// The most gates on a path: reduces the depth at the cost of further gates
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Time limit of the proof in seconds; if it is exceeded, nothing is written
    #[arg(long, value_name = "S", default_value_t = PROOF_TIME.as_secs_f64(), value_parser = parse_proof_seconds)]
    proof_seconds: f64,
}

impl Work {
    /// Whether the effort or the depth was given.
    pub fn is_given(&self) -> bool {
        self.effort.is_some() || self.depth.is_some()
    }

    /// Minimises a circuit and proves the result, until `stop` is set.
    pub fn minimize(
        &self,
        document: &Document,
        start: Vec<Start>,
        passes: &Passes,
        stop: &AtomicBool,
    ) -> anyhow::Result<Proved> {
        let options = Options { effort: self.effort.unwrap_or(Effort::Normal), depth: self.depth, start };
        let control = Control {
            proof_time: Duration::from_secs_f64(self.proof_seconds),
            stop,
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
        let miter_format = self.miter.as_deref().map(Format::of_path).transpose();
        let miter_format = miter_format.map_err(|error| Usage(error.to_string()))?;
        let subject = Subject::open(&self.subject)?;
        if subject.classifier.is_some() && self.miter.is_some() {
            return Err(Usage(MinimizeError::Miter.to_string()).into());
        }
        let start = match (&subject.loaded, self.from_start) {
            (_, false) => Vec::new(),
            (Some(loaded), true) => minimize::start_of(&loaded.experiment),
            (None, true) => {
                let message = "--from-start needs a run folder: a circuit file has no start state";
                return Err(Usage(message.into()).into());
            }
        };
        let stop = super::stop_on_interrupt()?;
        let passes = Passes::default();
        let reduction = self.reduce(&passes, &stop)?;
        let document = match &reduction {
            Some(reduction) => reduction.classifier.clone().into(),
            None => subject.document(),
        };
        let proved = self.work.minimize(&document, start, &passes, &stop)?;
        let name = match (proved.assumes_start, &reduction) {
            (true, _) => "minimized-from-start.json",
            (_, Some(_)) => "minimized-on-data.json",
            (_, None) => "minimized.json",
        };
        let in_run = subject.is_run().then(|| subject.path.join(name));
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
        if let (Some(path), Some(format)) = (&self.miter, miter_format) {
            let miter = proved.miter(&document)?;
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let options = formats::Options { name, ..formats::Options::default() };
            files::write_atomic(path, &formats::write(&miter.into(), format, &options)?)?;
            status!("Wrote {}, whose output is 1 where the two differ: unsatisfiable", path.display());
        }
        if let Some(reduction) = &reduction {
            print_reduction(reduction);
            print_line!("Then minimised with proof:");
        }
        print_proved(&subject, &proved);
        let tables = lookup_tables(proved.document.circuit());
        if let Some(LookupTables { lut4, lut6 }) = tables {
            let of = match (&subject.classifier, &subject.automaton) {
                (Some(_), _) => ", without encoder and head",
                (_, Some(_)) => " for a cell",
                _ => "",
            };
            print_line!("{lut4} lookup tables of 4 inputs, or {lut6} of 6 inputs{of} (ABC)");
        }
        if self.json {
            let statistics = &proved.statistics;
            let before = reduction.as_ref().map_or(statistics.gates_before, |reduction| reduction.gates[0]);
            super::print_json(&json!({
                "gates_before": before,
                "gates_after": statistics.gates_after,
                "depth_before": reduction.is_none().then_some(statistics.depth_before),
                "depth": statistics.depth_after,
                "channels_before": subject.automaton.as_ref().map(|automaton| automaton.channels),
                "channels": proved.map.as_ref().map(|map| &map.channels),
                "lut4": tables.map(|tables| tables.lut4),
                "lut6": tables.map(|tables| tables.lut6),
                // A reduction on data is measured, not proved.
                "proved": reduction.is_none(),
                "assumes_start": proved.assumes_start,
                "seconds": proved.seconds,
                "proof_seconds": proved.proof_seconds,
                "on_data": reduction,
                "file": path,
            }))?;
        }
        Ok(())
    }

    /// Removes the gates of a classifier that data do not need, if that was asked for.
    fn reduce(&self, passes: &Passes, stop: &AtomicBool) -> anyhow::Result<Option<Reduction>> {
        let Some(data) = &self.data else { return Ok(None) };
        let Some(trained) = TrainedClassifier::open(&self.subject)? else {
            let message = format!("--data is for classifiers, which {} is not", self.subject.display());
            return Err(Usage(message).into());
        };
        if trained.loaded.is_none() && data.is_none() {
            let message = "a circuit file has no data of its own; write --data=FILE with labelled rows";
            return Err(Usage(message.into()).into());
        }
        passes.show("data", trained.classifier.circuit().nodes().len());
        match trained.reduce(data.as_deref(), &Stop::never().or_flag(stop)) {
            Err(_) if stop.load(Ordering::Relaxed) => Err(MinimizeError::Interrupted.into()),
            reduced => Ok(Some(reduced?)),
        }
    }
}

/// Prints what a reduction on data removed, and what it is worth.
fn print_reduction(reduction: &Reduction) {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let [before, after] = reduction.gates;
    match reduction.tolerance {
        Some(tolerance) => print_line!(
            "{before} gates: {after} by what {} rows show, where each gate may differ in {} of them; not equivalent",
            reduction.rows,
            percent(tolerance)
        ),
        None => print_line!("{before} gates: every reduction on the data loses accuracy, so none is made"),
    }
    let print = |what: &str, Comparison { rows, before, after, .. }: &Comparison| {
        print_line!("accuracy on {rows} {what} rows: {} -> {}", percent(*before), percent(*after));
    };
    print("held-back", &reduction.held_back);
    if let Some(test) = &reduction.test {
        print("test", test);
    }
}

/// Prints gates, depth and what was proved.
pub fn print_proved(subject: &Subject, proved: &Proved) {
    let statistics = &proved.statistics;
    let of_cell = if subject.automaton.is_some() { " of a cell" } else { "" };
    print_line!(
        "Gates{of_cell}: {} -> {}, without wires, inverters and duplicates; depth {} -> {}; {:.2} s",
        statistics.gates_before,
        statistics.gates_after,
        statistics.depth_before,
        statistics.depth_after,
        proved.seconds
    );
    let seconds = proved.proof_seconds;
    let (Some(automaton), Some(StateMap { channels, .. })) = (&subject.automaton, &proved.map) else {
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
