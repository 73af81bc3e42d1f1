//! `gatework bench all`: all benchmarks, beside the programs that people would use instead.
//!
//! A peer is a file in a folder (`benches/peers`), `BENCH_PEER.py` for Python or a program `BENCH_PEER`: it prints the rows
//! of `gatework bench BENCH --json` that it can measure, under the same names. What it compares its answers with first lies
//! in the folder `cases` there, written by `gatework bench BENCH --cases`. Ours and theirs run in turn, as programs of their
//! own, several times; a row is the median of these rounds. A peer that does not run is named as missing, and the rest
//! goes on.
//!
//! | file | what it does |
//! |---|---|
//! | `rows` | the rows of all contestants, merged; medians, spread, ratios |
//! | `machine` | what the figures depend on: processor, threads, versions |
//! | `markdown` | the report |

mod machine;
mod markdown;
mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use gatework_train::files;
use serde_json::{Value, json};

use self::machine::Machine;
use self::rows::{Comparison, Table};
use gatework::cli;
use gatework::report::ratio_chart;
use gatework::usage::Usage;

/// The benchmarks.
const BENCHES: [&str; 4] = ["automata", "circuits", "engine", "forecast"];

/// Operations of the engine that peers have too.
const OPERATIONS: [&str; 12] =
    ["add", "mul", "relu", "exp", "tanh", "sigmoid", "gelu", "gelu_tanh", "sum", "dot", "softmax", "graphs"];

/// Rows of the automata: all experiments, and what peers have.
const AUTOMATA: [&str; 6] =
    ["game-of-life", "checkerboard", "checkerboard-async", "lizard", "colored-g", "gate network"];

/// Benchmarks that write what peers compare their answers with.
const WITH_CASES: [&str; 3] = ["automata", "circuits", "forecast"];

/// Rivals within our own benchmarks: the benchmark, who, and what was used.
const RIVALS: [(&str, &str, &str); 2] = [
    (
        "circuits",
        "by hand",
        "Life written for AVX2 (crates/gatework/benches/life_by_hand.rs), in turn with ours",
    ),
    (
        "engine",
        "plain loop",
        "a loop that the compiler vectorises for the same instruction set, in turn with ours",
    ),
];

#[derive(Debug, Args)]
pub struct All {
    /// Folder with the peers
    #[arg(long, value_name = "DIR", default_value = "crates/bench/peers")]
    peers: PathBuf,
    /// Python that runs their scripts [default: venv/bin/python in their folder, which benches/peers/setup makes]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Write a report: Markdown in FILE, charts and a JSON file beside it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only this benchmark: automata, circuits, engine, forecast
    #[arg(long, value_name = "NAME")]
    bench: Vec<String>,
    /// Only these rows, as for the benchmark itself
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// How often everything is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for each row in a round; operations of the engine have times of their own
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Threads beside one thread
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = cli::parse_threads)]
    threads: usize,
    /// Short slices of the engine, and a moment for everything
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A program that measures rows of one benchmark.
struct Contestant {
    /// Who, and at what: for messages.
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

/// What came of all rounds.
#[derive(Default)]
struct Outcome {
    table: Table,
    /// Versions and what was used of each peer, by benchmark and name.
    peers: BTreeMap<String, Value>,
    /// Who did not run, and why.
    missing: BTreeMap<String, String>,
}

impl All {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(name) = self.bench.iter().find(|name| !BENCHES.contains(&name.as_str())) {
            return Err(
                Usage(format!("no benchmark is called {name}; there are {}", BENCHES.join(", "))).into()
            );
        }
        if let Some(path) = &self.report {
            super::prepare_report(path)?;
        }
        let machine = Machine::look();
        let mut outcome = Outcome::default();
        for bench in BENCHES {
            if self.bench.is_empty() || self.bench.iter().any(|name| name == bench) {
                self.measure(bench, &mut outcome)?;
            }
        }
        let comparisons = outcome.table.comparisons();
        for comparison in &comparisons {
            answer!("{comparison}");
        }
        for (name, reason) in &outcome.missing {
            say!("missing: {name}: {reason}");
        }
        let result = json!({
            "bench": "all", "machine": machine.json(), "rounds": self.rounds, "peers": outcome.peers,
            "missing": outcome.missing, "rows": outcome.table.json(),
            "comparisons": comparisons.iter().map(Comparison::json).collect::<Vec<_>>(),
        });
        if let Some(path) = &self.report {
            self.write_report(path, &machine, &outcome, &comparisons, &result)?;
        }
        if self.json {
            cli::print_json(&result)?;
        }
        Ok(())
    }

    /// All rounds of a benchmark: ours, then each peer with each number of threads, and again.
    fn measure(&self, bench: &str, outcome: &mut Outcome) -> anyhow::Result<()> {
        let ours = self.ours(bench)?;
        let mut peers = self.peers(bench, outcome);
        if !peers.is_empty() && WITH_CASES.contains(&bench) {
            self.write_cases(bench)?;
        }
        for (_, rival, how) in RIVALS.iter().filter(|(of, ..)| *of == bench) {
            outcome.peers.insert(format!("{bench}: {rival}"), json!({ "version": "", "how": how }));
        }
        for round in 1..=self.rounds {
            say!("{bench}: round {round} of {}", self.rounds);
            for contestant in &ours {
                let output =
                    contestant.measure().map_err(anyhow::Error::msg).context(contestant.name.clone())?;
                outcome.table.add(&output);
            }
            peers.retain(|contestant| {
                match contestant.measure().and_then(|output| outcome.accept(&output)) {
                    Ok(()) => true,
                    Err(reason) => {
                        // What it measured before that stays in the tables.
                        let reason =
                            if round > 1 { format!("from round {round} on: {reason}") } else { reason };
                        outcome.missing.insert(contestant.name.clone(), reason);
                        false
                    }
                }
            });
        }
        Ok(())
    }

    /// Our own benchmark. Forecasting measures one number of threads a call, the others one and all.
    fn ours(&self, bench: &str) -> anyhow::Result<Vec<Contestant>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let threads = if bench == "forecast" { self.thread_counts() } else { vec![self.threads] };
        let contestant = |threads: usize| {
            let mut arguments: Vec<String> = [bench, "--json", "--threads"].map(String::from).into();
            arguments.push(threads.to_string());
            if bench != "engine" {
                arguments.extend(["--seconds".into(), self.seconds().to_string()]);
            } else if self.quick {
                arguments.push("--quick".into());
            }
            let usual: &[&str] = match bench {
                "engine" => &OPERATIONS,
                "automata" => &AUTOMATA,
                _ => &[],
            };
            arguments.extend(self.only_or(usual));
            Contestant { name: format!("{bench}: gatework"), program: program.clone(), arguments }
        };
        Ok(threads.into_iter().map(contestant).collect())
    }

    /// Has our benchmark write what peers compare their answers with.
    fn write_cases(&self, bench: &str) -> anyhow::Result<()> {
        let mut arguments = vec![bench.into(), "--cases".into(), self.cases()];
        arguments.extend(self.only_or(&[]));
        let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
        anyhow::ensure!(status.success(), "the cases of {bench} could not be written");
        Ok(())
    }

    fn cases(&self) -> String {
        self.peers.join("cases").display().to_string()
    }

    /// The peers of a benchmark, each with each number of threads.
    fn peers(&self, bench: &str, outcome: &mut Outcome) -> Vec<Contestant> {
        let python = self.python.clone().unwrap_or_else(|| self.peers.join("venv/bin/python"));
        let peers = find_peers(&self.peers, bench);
        if peers.is_empty() {
            let reason = format!("no {bench}_* in {}", self.peers.display());
            outcome.missing.insert(format!("{bench}: peers"), reason);
        }
        let mut contestants = Vec::new();
        for (peer, path) in peers {
            let script = path.extension().is_some();
            for threads in self.thread_counts() {
                let mut arguments = if script { vec![path.display().to_string()] } else { Vec::new() };
                arguments.extend(["--threads".into(), threads.to_string()]);
                if bench != "engine" {
                    arguments.extend(["--seconds".into(), self.seconds().to_string()]);
                }
                if WITH_CASES.contains(&bench) {
                    arguments.extend(["--cases".into(), self.cases()]);
                }
                if self.quick {
                    arguments.push("--quick".into());
                }
                arguments.extend(self.only_or(&[]));
                let plural = if threads > 1 { "s" } else { "" };
                let name = format!("{bench}: {peer}, {threads} thread{plural}");
                let program = if script { &python } else { &path }.clone();
                contestants.push(Contestant { name, program, arguments });
            }
        }
        contestants
    }

    fn thread_counts(&self) -> Vec<usize> {
        if self.threads > 1 { vec![1, self.threads] } else { vec![1] }
    }

    fn seconds(&self) -> f64 {
        if self.quick { 0.01 } else { self.seconds }
    }

    /// The rows that were asked for, or else the usual ones.
    fn only_or(&self, usual: &[&str]) -> Vec<String> {
        let asked: Vec<&str> = self.only.iter().map(String::as_str).collect();
        let names = if asked.is_empty() { usual } else { &asked[..] };
        names.iter().flat_map(|name| ["--only".to_string(), (*name).to_string()]).collect()
    }

    /// Markdown, one chart for each benchmark and number of threads, JSON.
    fn write_report(
        &self,
        path: &Path,
        machine: &Machine,
        outcome: &Outcome,
        comparisons: &[Comparison],
        result: &Value,
    ) -> anyhow::Result<()> {
        let stem =
            path.file_stem().context("the report needs the name of a file")?.to_string_lossy().into_owned();
        let mut charts = Vec::new();
        for rows::Chart { bench, threads, bars } in rows::charts(comparisons) {
            let plural = if threads > 1 { "s" } else { "" };
            let title = format!("{bench}: time of the peer beside ours, {threads} thread{plural}");
            let name = format!("{stem}-{bench}-{threads}.svg");
            files::write_whole(&path.with_file_name(&name), ratio_chart(&title, &bars).as_bytes())?;
            charts.push((title, name));
        }
        let facts = markdown::Facts {
            machine,
            rounds: self.rounds,
            peers: &outcome.peers,
            missing: &outcome.missing,
        };
        let text = markdown::report(&facts, &outcome.table, comparisons, &charts);
        files::write_whole(path, text.as_bytes())?;
        files::write_whole(&path.with_extension("json"), format!("{result:#}\n").as_bytes())?;
        say!("wrote {}", path.display());
        Ok(())
    }
}

impl Outcome {
    /// Takes the rows of a peer, unless it did other work than ours.
    fn accept(&mut self, output: &Value) -> Result<(), String> {
        let named = |key: &str| output[key].as_str().ok_or_else(|| format!("its output has no \"{key}\""));
        let name = format!("{}: {}", named("bench")?, named("peer")?);
        self.table.same_work(output)?;
        self.peers.insert(name, json!({ "version": output["version"], "how": output["how"] }));
        self.table.add(output);
        Ok(())
    }
}

impl Contestant {
    /// Runs it and reads the last line of what it prints; the error is one line.
    fn measure(&self) -> Result<Value, String> {
        let output = Command::new(&self.program)
            .args(&self.arguments)
            .output()
            .map_err(|error| format!("{} does not run: {error}", self.program.display()))?;
        let last =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().lines().last().unwrap_or("").to_string();
        if !output.status.success() {
            return Err(format!("it failed ({}): {}", output.status, last(&output.stderr)));
        }
        serde_json::from_str(&last(&output.stdout))
            .map_err(|error| format!("its last line is not JSON: {error}"))
    }
}

/// The peers of a benchmark, by name: scripts `BENCH_PEER.py` and programs `BENCH_PEER`.
fn find_peers(folder: &Path, bench: &str) -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let peer = name.strip_prefix(bench)?.strip_prefix('_')?;
        let peer = peer.strip_suffix(".py").unwrap_or(peer).to_string();
        (!peer.contains('.')).then_some((peer, path))
    };
    entries.filter_map(|entry| named(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_or_program_is_a_peer_of_the_benchmark_in_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "engine_torch.py",
            "engine_jax.py",
            "engine_candle",
            "engine.py",
            "engine_torch.txt",
            "forecast_torch.py",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let peers: Vec<String> = find_peers(folder.path(), "engine").into_keys().collect();
        assert_eq!(peers, ["candle", "jax", "torch"]);
        assert!(find_peers(&folder.path().join("nothing"), "engine").is_empty());
    }

    #[test]
    fn a_contestant_that_fails_says_why_in_one_line() {
        let run = |script: &str| {
            let arguments = vec!["-c".to_string(), script.to_string()];
            Contestant { name: "x".into(), program: "sh".into(), arguments }.measure()
        };
        assert_eq!(run("echo text; echo '{\"peer\": \"a\"}'").unwrap(), json!({ "peer": "a" }));
        assert!(run("echo first >&2; echo no module >&2; exit 3").unwrap_err().ends_with("no module"));
        assert!(run("echo text").unwrap_err().contains("not JSON"));
    }
}
