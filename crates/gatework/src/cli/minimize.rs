//! `gatework minimize`: the same function with fewer gates, proved before it is written.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gatework_gates::automata::states::Start as Boards;
use gatework_logic::formats::{self, Format};
pub use gatework_logic::minimize::Options;
use gatework_logic::minimize::{self, Effort, Start, Statistics};
use gatework_logic::prove::{self, Verdict};
use gatework_logic::{Automaton, Circuit, Document};
use gatework_train::files;
use serde_json::json;

use crate::folder::program;
use crate::subject::Subject;
use crate::usage::Usage;

/// Make a circuit smaller, and prove that it still computes the same
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework minimize runs/checkerboard
  gatework minimize runs/game-of-life --effort high -o life.v
  gatework minimize adder.blif -o smaller.blif

An automaton is proved equal in its observed channels, for every start state and every number of steps; channels that
never reach an observed one are removed. With --from-start it is equal only for runs from the experiment's start state,
which lets channels be removed that are constant or equal in every state that such runs reach.")]
pub struct Minimize {
    /// A run folder, a model.safetensors or a circuit
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// The file to write, in the format of its ending [default: in a run folder, minimized.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How hard to try
    #[arg(long, value_enum, default_value = "normal")]
    effort: EffortName,
    /// Use what the experiment's start state makes impossible
    #[arg(long)]
    from_start: bool,
    /// Give up if the proof takes longer; nothing is written then
    #[arg(long, value_name = "S", default_value_t = PROOF_SECONDS, value_parser = parse_proof_seconds)]
    proof_seconds: f64,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The time that a proof may take if nobody says otherwise.
const PROOF_SECONDS: f64 = 600.0;

/// A number of seconds that a clock can wait for.
fn parse_proof_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|&seconds| Duration::try_from_secs_f64(seconds).is_ok());
    seconds.ok_or_else(|| "a number of seconds, 0 or more".to_string())
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EffortName {
    /// A few passes: well under a minute for a million gates
    Fast,
    /// All passes until nothing improves
    Normal,
    /// And long random walks, for circuits of few inputs
    High,
}

impl From<EffortName> for Effort {
    fn from(name: EffortName) -> Effort {
        match name {
            EffortName::Fast => Effort::Fast,
            EffortName::Normal => Effort::Normal,
            EffortName::High => Effort::High,
        }
    }
}

impl Minimize {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(path) =
            self.output.as_deref().filter(|path| path.extension().is_some_and(|e| e == "html"))
        {
            let command =
                format!("{} export {} --minimize -o {}", program(), self.subject.display(), path.display());
            return Err(Usage(format!("a page is no circuit; {command} writes it")).into());
        }
        let format = self.output.as_deref().map(Format::of_path).transpose();
        let format = format.map_err(|error| Usage(error.to_string()))?;
        let subject = Subject::open(&self.subject)?;
        let start = if self.from_start { start_of(&subject)? } else { Vec::new() };
        let options = Options { effort: self.effort.into(), start };
        let smaller = smaller_within(&subject, &options, Duration::from_secs_f64(self.proof_seconds))?;
        let assumes = smaller.assumes_start;
        let name = if assumes { "minimized-from-start.json" } else { "minimized.json" };
        let in_run = subject.loaded.is_some().then(|| subject.path.join(name));
        let path = self.output.clone().or(in_run);
        match &path {
            Some(path) => {
                let format = format.unwrap_or(Format::named("json")?);
                let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                let options = formats::Options { name, grid: None };
                files::write_whole(path, &formats::write(&smaller.document, format, &options)?)?;
                say!("Wrote {}", path.display());
            }
            None => say!("Nothing is written; -o names a file"),
        }
        tell(&subject, &smaller);
        if self.json {
            let statistics = &smaller.statistics;
            super::print_json(&json!({
                "gates_before": statistics.gates_before,
                "gates_after": statistics.gates_after,
                "active_before": subject.circuit.active(),
                "depth_before": statistics.depth_before,
                "depth": statistics.depth_after,
                "channels_before": subject.automaton.as_ref().map(|automaton| automaton.channels),
                "channels": smaller.channels,
                "proved": true,
                "assumes_start": assumes,
                "seconds": smaller.seconds,
                "proof_seconds": smaller.proof_seconds,
                "file": path,
            }))?;
        }
        Ok(())
    }
}

/// What was done, for people.
pub fn tell(subject: &Subject, smaller: &Smaller) {
    let statistics = &smaller.statistics;
    let each = if subject.automaton.is_some() { " a cell" } else { "" };
    answer!(
        "{} active gates{each}, {} when wires, inverters and equal gates are taken out: {} after {:.2} s; depth {} -> {}",
        subject.circuit.active(),
        statistics.gates_before,
        statistics.gates_after,
        smaller.seconds,
        statistics.depth_before,
        statistics.depth_after
    );
    let time = smaller.proof_seconds;
    match (&subject.automaton, &smaller.channels) {
        (Some(automaton), Some(channels)) => {
            if channels.len() < automaton.channels {
                answer!("{} of {} channels are left", channels.len(), automaton.channels);
            }
            let from = if smaller.assumes_start {
                "from the experiment's start state"
            } else {
                "from every start state"
            };
            let same = match subject.observed {
                1 => "the first channel is the same".to_string(),
                n => format!("the first {n} channels are the same"),
            };
            answer!("Proved by induction in {time:.2} s: {same} {from}, after any number of steps");
        }
        _ => answer!("Proved in {time:.2} s: the outputs are the same for every input"),
    }
}

/// A smaller circuit or automaton that was proved equal.
pub struct Smaller {
    pub document: Document,
    pub statistics: Statistics,
    /// Of an automaton: the original channels that are left, in their order.
    pub channels: Option<Vec<usize>>,
    /// Whether it is equal only for runs from the experiment's start state.
    pub assumes_start: bool,
    /// Time to minimise.
    pub seconds: f64,
    /// Time to prove.
    pub proof_seconds: f64,
}

/// Minimises a subject and proves the result.
pub fn smaller(subject: &Subject, options: &Options) -> anyhow::Result<Smaller> {
    smaller_within(subject, options, Duration::from_secs_f64(PROOF_SECONDS))
}

/// Minimises a subject and proves the result, if the proof takes no longer than this.
fn smaller_within(subject: &Subject, options: &Options, proof: Duration) -> anyhow::Result<Smaller> {
    match &subject.automaton {
        Some(automaton) => smaller_automaton(automaton, subject.observed, options, proof),
        None => smaller_circuit(&subject.circuit, options, proof),
    }
}

fn smaller_circuit(circuit: &Circuit, options: &Options, proof: Duration) -> anyhow::Result<Smaller> {
    let begin = Instant::now();
    let result = minimize::minimize(circuit, options);
    let seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    demand_equal(&prove::equivalent_within(circuit, &result.circuit, proof)?, begin.elapsed())?;
    Ok(Smaller {
        document: result.circuit.into(),
        statistics: result.statistics,
        channels: None,
        assumes_start: false,
        seconds,
        proof_seconds: begin.elapsed().as_secs_f64(),
    })
}

fn smaller_automaton(
    automaton: &Automaton,
    observed: usize,
    options: &Options,
    proof: Duration,
) -> anyhow::Result<Smaller> {
    let begin = Instant::now();
    let result = minimize::minimize_automaton(automaton, observed, options)?;
    let seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let (small, map) = (&result.automaton, &result.map);
    let verdict = prove::equivalent_automata_within(automaton, small, observed, map, proof)?;
    demand_equal(&verdict, begin.elapsed())?;
    anyhow::ensure!(result.holds_at_start(), "what was used of the start state does not hold in it");
    Ok(Smaller {
        assumes_start: result.assumes_start(),
        document: Document::Automaton { automaton: result.automaton, observed: Some(observed) },
        statistics: result.statistics,
        channels: Some(result.map.channels),
        seconds,
        proof_seconds: begin.elapsed().as_secs_f64(),
    })
}

/// A result that is not proved is not written.
fn demand_equal(verdict: &Verdict, time: Duration) -> anyhow::Result<()> {
    match verdict {
        Verdict::Equal => Ok(()),
        Verdict::Unknown => anyhow::bail!(
            "the proof that the smaller circuit is equal was given up after {:.1} s; nothing is written \
             ({} minimize --proof-seconds gives it longer)",
            time.as_secs_f64(),
            program()
        ),
        Verdict::Different { input, output } => {
            let bits: String = input.iter().map(|&bit| if bit { '1' } else { '0' }).collect();
            anyhow::bail!(
                "the smaller circuit differs in output {output} for input {bits}; nothing is written (this is a fault of Gatework)"
            )
        }
    }
}

/// What the experiment says about the first state of each channel.
fn start_of(subject: &Subject) -> anyhow::Result<Vec<Start>> {
    let Some(loaded) = &subject.loaded else {
        return Err(Usage(
            "--from-start needs a run folder: a circuit does not say what it starts from".into(),
        )
        .into());
    };
    let channels = loaded.experiment.automaton.channels;
    Ok(match &loaded.experiment.start {
        Boards::Zeros => vec![Start::Zero; channels],
        Boards::Seed => vec![Start::Alike; channels],
        // Boards have one channel or three.
        Boards::Boards { .. } => {
            (0..channels).map(|channel| if channel < 3 { Start::Free } else { Start::Zero }).collect()
        }
        _ => vec![Start::Free; channels],
    })
}
