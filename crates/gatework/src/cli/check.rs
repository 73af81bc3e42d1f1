//! `gatework check`: proves that an automaton reaches its target, from all states or after any damage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_logic::check::{
    self, Answer, Counterexample, Limit, Limits, Order, Progress, Proof, Question, Undecided,
};
use gatework_logic::{Grid, Stop};
use gatework_train::files;
use serde_json::{Value, json};

use super::{Choices, program, quoted};
use crate::check::{Check as Options, Damage, count, gif};
use crate::progress::Passes;
use crate::subject::Subject;

/// Prove that an automaton reaches its target from every state, or find a state from which it does not
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework check runs/checkerboard --within 20 --stay
  gatework check runs/checkerboard --grid 24x24
  gatework check runs/lizard --damage-at 12 --damage-cells 1 --within 12
  gatework check runs/checkerboard --within 30 --stay --any-order 2

Without --within: every run ends at the target for good, after any number of steps; the automaton has no \
other attractor.

A refuted property comes with a counterexample: a start state as text, and a GIF of the run from it. Exit \
status: 0 proved, 1 refuted or undecided.")]
pub struct Check {
    /// A run folder, a model.safetensors or a circuit.json
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// Height and width [default: as in training]
    #[arg(long, value_name = "HxW", value_parser = super::parse_size)]
    grid: Option<[usize; 2]>,
    /// The start states [default: any if training starts from random states, else start]
    #[arg(long, value_parser = super::choice(FROM))]
    from: Option<bool>,
    /// Give at most this many cells of the start state any bits
    #[arg(long, value_name = "K", conflicts_with = "damage_region")]
    damage_cells: Option<usize>,
    /// Give the cells of a rectangle of the start state any bits: height, width, and its first row and column
    #[arg(long, value_name = "HxW+Y+X", value_parser = parse_region)]
    damage_region: Option<Damage>,
    /// Begin with the state after this many steps from the start, and damage that
    #[arg(long, value_name = "STEP", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    damage_at: u64,
    /// The number of steps in which the target has to be reached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    within: Option<u64>,
    /// The state has to be right at step N and at all later ones
    #[arg(long, requires = "within")]
    stay: bool,
    /// In each step any cells may fire, but each at least once in W steps; without W a cell may never fire
    #[arg(long, value_name = "W", num_args = 0..=1, default_missing_value = "any", value_parser = parse_order)]
    any_order: Option<Order>,
    /// The target as text, instead of that of the experiment
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Time limit in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Memory limit of the unrolled circuit in GB
    #[arg(long, value_name = "GB", default_value_t = 4.0, value_parser = parse_memory)]
    memory: f64,
    /// Write the start state of a counterexample [default: in a run folder, counterexample.txt]
    #[arg(short, long, value_name = "FILE.txt")]
    output: Option<PathBuf>,
    /// Write a GIF of a counterexample [default: in a run folder, counterexample.gif]
    #[arg(long, value_name = "FILE.gif", value_parser = super::parse_gif)]
    gif: Option<PathBuf>,
    /// Write the question as AIGER 1.9, for other model checkers
    #[arg(long, value_name = "FILE.aig")]
    aiger: Option<PathBuf>,
    /// Write the question as a formula that is unsatisfiable if the property holds
    #[arg(long, value_name = "FILE.cnf")]
    dimacs: Option<PathBuf>,
    /// Write a DRAT proof of that formula, for drat-trim
    #[arg(long, value_name = "FILE.drat", requires = "dimacs")]
    drat: Option<PathBuf>,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The start states: whether all states are.
static FROM: &Choices<bool> =
    &[("any", "All states", true), ("start", "The start state of the experiment", false)];

impl Check {
    pub fn run(&self) -> anyhow::Result<()> {
        let subject = Subject::open(&self.subject)?;
        let options = self.options()?;
        let questions = options.questions(&subject)?;
        let limits = Limits { memory: (self.memory * 1e9) as u64, ..Limits::default() };
        let flag = super::stop_on_interrupt()?;
        let stop = Stop::after(Duration::from_secs_f64(self.seconds)).or_flag(&flag);
        if let [question] = &questions[..] {
            self.write_question(question, &limits, &stop)?;
        } else if self.aiger.is_some() || self.dimacs.is_some() {
            bail!("the experiment has {} start states, but a file holds one question", questions.len());
        }
        let begin = Instant::now();
        let passes = Passes::default();
        let observer = |progress: Progress| {
            let Progress { stage, steps, gates, .. } = progress;
            passes.show(&format!("{stage}, {steps} steps"), gates);
        };
        let answer = crate::check::answer(&questions, &limits, &stop, &observer)?;
        drop(passes);
        let (question, answer) = answer.context("the experiment has no start state")?;
        self.conclude(&subject, &options.property(), question, &answer, begin.elapsed().as_secs_f64(), &stop)
    }

    fn options(&self) -> anyhow::Result<Options> {
        let read = |path: &PathBuf| -> anyhow::Result<Grid> {
            Grid::from_text(&files::read_text(path)?).with_context(|| path.display().to_string())
        };
        Ok(Options {
            size: self.grid,
            from_any: self.from,
            damage: self.damage_cells.map(Damage::Cells).or(self.damage_region.clone()),
            at: self.damage_at as usize,
            within: self.within.map(|steps| steps as usize),
            stay: self.stay,
            order: self.any_order.unwrap_or_default(),
            target: self.target.as_ref().map(read).transpose()?,
        })
    }

    /// Writes the question in the formats that were asked for.
    fn write_question(&self, question: &Question, limits: &Limits, stop: &Stop<'_>) -> anyhow::Result<()> {
        let write = |path: &Path, bytes: &[u8]| -> anyhow::Result<()> {
            files::write_atomic(path, bytes)?;
            status!("Wrote {}", path.display());
            Ok(())
        };
        if let Some(path) = &self.aiger {
            write(path, &question.to_aiger(limits, stop).map_err(crate::check::CheckError::from)?)?;
        }
        if let Some(path) = &self.dimacs {
            let certificate =
                check::certificate(question, limits, stop).map_err(crate::check::CheckError::from)?;
            write(path, certificate.dimacs.as_bytes())?;
            match (&self.drat, &certificate.drat) {
                (Some(path), Some(proof)) => write(path, proof.as_bytes())?,
                (Some(path), None) => {
                    status!("{} is not written: the formula is satisfiable", path.display());
                }
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Prints the answer, and writes a counterexample.
    fn conclude(
        &self,
        subject: &Subject,
        property: &str,
        question: &Question,
        answer: &Answer,
        seconds: f64,
        stop: &Stop<'_>,
    ) -> anyhow::Result<()> {
        let [height, width] = [question.target.height(), question.target.width()];
        let mut summary = json!({ "grid": [height, width], "property": property, "seconds": seconds });
        let result = match answer {
            Answer::Proved(proof) => {
                self.print_proof(property, proof, seconds);
                summary["answer"] = "proved".into();
                summary["steps"] = proof.steps.into();
                summary["is_least"] = proof.is_least.into();
                summary["method"] = proof.method.to_string().into();
                summary["gates"] = proof.gates.into();
                Ok(())
            }
            Answer::Refuted(found) => {
                let files = self.write_counterexample(subject, question, found, stop)?;
                let bits = question.target.cells() * question.target.channels();
                let again = match found.period {
                    Some(period) => format!(", and again every {}", count(period, "step")),
                    None => String::new(),
                };
                print_line!(
                    "Refuted in {seconds:.2} s: a run has {} of {bits} bits wrong at step {}{again}",
                    found.wrong,
                    found.steps
                );
                summary["answer"] = "refuted".into();
                summary["steps"] = found.steps.into();
                summary["wrong"] = found.wrong.into();
                summary["period"] = json!(found.period);
                summary["counterexample"] = files;
                Err(anyhow::anyhow!("the property does not hold: {property}"))
            }
            Answer::Undecided(Undecided { limit, steps, .. }) => {
                let (limit, help) = match limit {
                    Limit::Memory => ("memory", "--memory allows more"),
                    Limit::Steps => ("number of steps", "--within asks for a bound"),
                    _ => ("time", "--seconds allows more"),
                };
                print_line!("Undecided after {seconds:.2} s and {}", count(*steps, "step"));
                summary["answer"] = "undecided".into();
                summary["steps"] = (*steps).into();
                Err(anyhow::anyhow!(
                    "undecided within the limit of the {limit}; {help}, and a smaller --grid takes less"
                ))
            }
            _ => Err(anyhow::anyhow!("the answer is not known to this version")),
        };
        if self.json {
            super::print_json(&summary)?;
        }
        result
    }

    fn print_proof(&self, property: &str, proof: &Proof, seconds: f64) {
        let least = if proof.is_least && proof.steps > 0 {
            "; this is the earliest step that holds for all runs"
        } else {
            ""
        };
        let steps = match (self.within, self.stay) {
            (Some(_), false) => format!("reached within {}", count(proof.steps, "step")),
            _ => format!("right from step {} on, forever", proof.steps),
        };
        print_line!("Proved in {seconds:.2} s: {property}");
        print_line!("The target is {steps}{least}");
        let gates = match proof.gates {
            0 => String::new(),
            gates => format!("; {}", count(gates, "gate")),
        };
        print_line!("Method: {}{gates}", proof.method);
    }

    /// Writes the start state and the GIF of a counterexample, and returns their paths.
    fn write_counterexample(
        &self,
        subject: &Subject,
        question: &Question,
        found: &Counterexample,
        stop: &Stop<'_>,
    ) -> anyhow::Result<Value> {
        let in_run = |name: &str| subject.loaded.is_some().then(|| subject.path.join(name));
        let text = self.output.clone().or_else(|| in_run("counterexample.txt"));
        let animation = self.gif.clone().or_else(|| in_run("counterexample.gif"));
        if let Some(path) = &text {
            files::write_atomic(path, found.start.to_text(0).as_bytes())?;
            status!("Wrote {}", path.display());
            if found.fires.is_empty() {
                let quote = |path: &Path| quoted(&path.display().to_string());
                let steps = (found.steps + found.period.unwrap_or(0)).max(1);
                let is_async = |loaded: &AutomatonExperiment| loaded.experiment.automaton.fire_rate.is_some();
                let synchronous =
                    if subject.loaded.as_ref().is_some_and(is_async) { " --async 1" } else { "" };
                status!(
                    "Replay: {} simulate {} --start {} --size {}x{}{synchronous} --steps {steps}",
                    program(),
                    quote(&self.subject),
                    quote(path),
                    found.start.height(),
                    found.start.width()
                );
            }
        }
        let mut shown = None;
        if let Some(path) = &animation {
            let palette = subject.loaded.as_ref().map(|loaded| loaded.target.palette()).unwrap_or_default();
            if let Some(bytes) = gif(question, found, &palette, stop)? {
                files::write_atomic(path, &bytes)?;
                status!("Wrote {}", path.display());
                shown = Some(path);
            } else {
                status!("{} is not written: the time limit was reached", path.display());
            }
        }
        Ok(json!({ "start": text, "gif": shown }))
    }
}

/// Parses HEIGHTxWIDTH+ROW+COLUMN.
fn parse_region(text: &str) -> Result<Damage, String> {
    let wrong = || "expected HEIGHTxWIDTH+ROW+COLUMN, for example 5x5+8+3".to_string();
    let mut words = text.split('+');
    let [height, width] = super::parse_size(words.next().unwrap_or_default()).map_err(|_| wrong())?;
    let mut first = || words.next()?.parse::<usize>().ok().filter(|first| *first < 1 << 16);
    let (Some(y), Some(x), None) = (first(), first(), words.next()) else { return Err(wrong()) };
    Ok(Damage::Region { rows: y..y + height, columns: x..x + width })
}

/// Parses the number of steps in which each cell fires, or `any`.
fn parse_order(text: &str) -> Result<Order, String> {
    if text == "any" {
        return Ok(Order::Any { window: None });
    }
    let window = text.parse::<usize>().ok().filter(|&window| (1..=1000).contains(&window));
    window.map(|window| Order::Any { window: Some(window) }).ok_or_else(|| {
        "expected the number of steps in which each cell fires at least once, 1 to 1000, or any".to_string()
    })
}

/// Parses a number of seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|&seconds| Duration::try_from_secs_f64(seconds).is_ok());
    seconds.ok_or_else(|| "expected a number of seconds, 0 or more".to_string())
}

/// Parses a number of gigabytes.
fn parse_memory(text: &str) -> Result<f64, String> {
    let memory = text.parse::<f64>().ok().filter(|gigabytes| (0.001..=1e6).contains(gigabytes));
    memory.ok_or_else(|| "expected a number of gigabytes, for example 2.5".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_a_size_and_a_first_cell() {
        assert_eq!(parse_region("5x4+8+3"), Ok(Damage::Region { rows: 8..13, columns: 3..7 }));
        for text in ["", "5x4", "5x4+8", "5x4+8+3+1", "0x4+8+3", "5x4+-1+3", "5x4+99999999999+3"] {
            assert!(parse_region(text).is_err(), "{text}");
        }
    }
}
