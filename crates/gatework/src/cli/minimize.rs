//! `gatework minimize`: fewer gates for the same function, proved before it is written.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use gatework_logic::formats::{self, Format, FormatError};
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
    /// The file to write, in the format of its extension [default: minimized.json in the run folder; with --depth
    /// minimized-depth-N.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
    /// Also write the miter for other provers: a circuit whose output is 1 where the two differ; of an automaton,
    /// the induction step
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
        self.refuse_page()?;
        let format = self.output.as_deref().map(Format::of_path).transpose();
        let format = format.map_err(|error| Usage(error.to_string()))?;
        let miter_format = self.miter.as_deref().map(Format::of_path).transpose();
        let miter_format = miter_format.map_err(|error| Usage(error.to_string()))?;
        if let Some(format) = [format, miter_format].into_iter().flatten().find(|format| !format.can_write())
        {
            return Err(Usage(FormatError::CannotWrite(format.name).to_string()).into());
        }
        self.check_miter()?;
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
        let in_run = || subject.path.join(self.name_in_run(proved.assumes_start));
        let path = self.output.clone().or_else(|| subject.is_run().then(in_run));
        passes.show("write", proved.statistics.gates_after);
        let json = Format::named("json")?;
        let result = path.as_deref().map(|path| bytes_of(&proved.document, path, format.unwrap_or(json)));
        let result = result.transpose()?;
        // Both files are made before either is written.
        let miter = self.miter.as_deref().zip(miter_format);
        let miter_of =
            |(path, format)| anyhow::Ok((path, bytes_of(&proved.miter(&document)?.into(), path, format)?));
        let miter = miter.map(miter_of).transpose()?;
        drop(passes);
        match path.as_deref().zip(result) {
            Some((path, bytes)) => {
                files::write_atomic(path, &bytes)?;
                status!("Wrote {}", path.display());
            }
            None => status!("Nothing is written; -o names a file"),
        }
        if let Some((path, bytes)) = miter {
            files::write_atomic(path, &bytes)?;
            let what = what_the_miter_is(&subject, &proved);
            status!("Wrote {}, {what}: never", path.display());
        }
        if let Some(reduction) = &reduction {
            print_reduction(reduction);
            print_line!("Then minimised with proof:");
        }
        print_proved(&subject, &proved);
        // Nobody else reads them.
        let is_read = self.json || std::io::stdout().is_terminal();
        let tables = is_read.then(|| lookup_tables(proved.document.circuit(), &stop)).flatten();
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

    /// Refuses a web page, which `export` writes.
    fn refuse_page(&self) -> Result<(), Usage> {
        if let Some(path) =
            self.output.as_deref().filter(|path| path.extension().is_some_and(|e| e == "html"))
        {
            let (program, subject) = (program(), self.subject.display());
            let message = format!(
                "a web page is not a circuit; {program} export {subject} --minimize -o {} writes it",
                path.display()
            );
            return Err(Usage(message));
        }
        Ok(())
    }

    /// The name of the file in a run folder. A circuit of limited depth does not replace the smallest one.
    fn name_in_run(&self, assumes_start: bool) -> String {
        let what = match (assumes_start, &self.data) {
            (true, _) => "-from-start",
            (_, Some(_)) => "-on-data",
            (_, None) => "",
        };
        let depth = self.work.depth.map(|depth| format!("-depth-{depth}")).unwrap_or_default();
        format!("minimized{what}{depth}.json")
    }

    /// Refuses a miter that would replace another file of this command, or that cannot be written, before the work begins.
    fn check_miter(&self) -> Result<(), Usage> {
        let Some(miter) = &self.miter else { return Ok(()) };
        let Some(own) = place_of(miter) else {
            return Err(Usage(format!("cannot write {}: its folder does not exist", miter.display())));
        };
        let in_run = [true, false].map(|assumes_start| self.subject.join(self.name_in_run(assumes_start)));
        let results = self.output.as_ref().map_or(&in_run[..], std::slice::from_ref);
        let is_own = |path: &&PathBuf| place_of(path).as_ref() == Some(&own);
        if let Some(path) = results.iter().chain([&self.subject]).find(is_own) {
            let message = format!("--miter would replace {}: name another file", path.display());
            return Err(Usage(message));
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

/// The folder of a file, without links, and the file's name. `None` if the folder does not exist.
fn place_of(path: &Path) -> Option<(PathBuf, OsString)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((folder.canonicalize().ok()?, path.file_name()?.to_os_string()))
}

/// The content of a file, whose stem is the name of the circuit.
fn bytes_of(document: &Document, path: &Path, format: &Format) -> Result<Vec<u8>, FormatError> {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    formats::write(document, format, &formats::Options { name, ..formats::Options::default() })
}

/// What the output of the miter says.
fn what_the_miter_is(subject: &Subject, proved: &Proved) -> &'static str {
    match (&subject.automaton, proved.assumes_start) {
        (None, _) => "whose output is 1 where the two differ",
        (Some(_), false) => "the induction step, whose output is 1 where new cells differ",
        (Some(_), true) => {
            "the induction step, assuming the invariants of the start state, whose output is 1 where new cells differ"
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
