//! `gatework-bench all`: all benchmarks, compared with other libraries.
//!
//! A peer is a file in a folder (`crates/bench/peers`): a script `BENCH_PEER.py` or a program `BENCH_PEER`. It prints the rows of
//! `gatework-bench BENCH --json` that it can measure, under the same names. Before that it checks its answers against the
//! reference results in the folder `cases` there, which `gatework-bench BENCH --cases` writes. Our benchmark and the peers run
//! as separate processes, interleaved, in several rounds; a row is the median over the rounds. A peer that fails is reported as
//! missing.
//!
//! | file | contents |
//! |---|---|
//! | `rows` | rows of all programs, merged: medians, spreads, ratios |
//! | `machine` | processor, load and version |
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
use gatework::cli::Usage;
use gatework::report::ratio_chart;

/// The benchmarks.
const BENCHES: [&str; 5] = ["automata", "circuits", "classifiers", "engine", "forecast"];

/// Engine operations that peers also have.
const OPERATIONS: [&str; 12] =
    ["add", "mul", "relu", "exp", "tanh", "sigmoid", "gelu", "gelu_tanh", "sum", "dot", "softmax", "graphs"];

/// Rows of `automata`: all experiments, and the gate network.
const AUTOMATA: [&str; 6] =
    ["game-of-life", "checkerboard", "checkerboard-async", "lizard", "colored-g", "gate network"];

/// Benchmarks that write reference results for peers.
const WITH_CASES: [&str; 4] = ["automata", "circuits", "classifiers", "forecast"];

/// Alternatives within our own benchmarks: benchmark, name, description.
const ALTERNATIVES: [(&str, &str, &str); 2] = [
    (
        "circuits",
        "by hand",
        "Life written by hand for AVX2 (crates/bench/src/circuits/life/by_hand.rs), interleaved with ours",
    ),
    (
        "engine",
        "plain loop",
        "a loop that the compiler vectorises for the same instruction set, interleaved with ours",
    ),
];

#[derive(Debug, Args)]
pub struct All {
    /// Folder with the peers
    #[arg(long, value_name = "DIR", default_value = "crates/bench/peers")]
    peers: PathBuf,
    /// Python interpreter for their scripts [default: venv/bin/python in their folder, as crates/bench/peers/setup creates it]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Write a report: Markdown to FILE, with charts and a JSON file in the same folder
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only this benchmark: automata, circuits, classifiers, engine, forecast
    #[arg(long, value_name = "NAME")]
    bench: Vec<String>,
    /// Only these rows, as for the benchmark itself
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Number of interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for each row in a round; does not apply to operations of the engine
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Number of threads to compare with one thread
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = cli::parse_threads)]
    threads: usize,
    /// Short slices and short measurements
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A program that measures rows of one benchmark.
struct Competitor {
    /// Benchmark, peer and threads, for messages.
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

/// Results of all rounds.
#[derive(Default)]
struct Outcome {
    table: Table,
    /// Version and description of each peer, by benchmark and name.
    peers: BTreeMap<String, Value>,
    /// Peers that failed, and why.
    missing: BTreeMap<String, String>,
}

impl All {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(name) = self.bench.iter().find(|name| !BENCHES.contains(&name.as_str())) {
            return Err(Usage(format!(
                "no benchmark is called {name}; expected one of {}",
                BENCHES.join(", ")
            ))
            .into());
        }
        if let Some(path) = &self.report {
            super::prepare_report(path)?;
        }
        let machine = Machine::detect();
        let mut outcome = Outcome::default();
        for bench in BENCHES {
            if self.bench.is_empty() || self.bench.iter().any(|name| name == bench) {
                self.measure(bench, &mut outcome)?;
            }
        }
        let comparisons = outcome.table.comparisons();
        for comparison in &comparisons {
            print_line!("{comparison}");
        }
        for (name, reason) in &outcome.missing {
            status!("missing: {name}: {reason}");
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

    /// Runs all rounds of a benchmark; in each round ours, then each peer with each number of threads.
    fn measure(&self, bench: &str, outcome: &mut Outcome) -> anyhow::Result<()> {
        let ours = self.ours(bench)?;
        let mut peers = self.peers(bench, outcome);
        if !peers.is_empty() && WITH_CASES.contains(&bench) {
            self.write_cases(bench)?;
        }
        for (_, name, how) in ALTERNATIVES.iter().filter(|(of, ..)| *of == bench) {
            outcome.peers.insert(format!("{bench}: {name}"), json!({ "version": "", "how": how }));
        }
        for round in 1..=self.rounds {
            status!("{bench}: round {round} of {}", self.rounds);
            for competitor in &ours {
                let output =
                    competitor.measure().map_err(anyhow::Error::msg).context(competitor.name.clone())?;
                outcome.table.add(&output);
            }
            peers.retain(|competitor| {
                match competitor.measure().and_then(|output| outcome.accept(&output)) {
                    Ok(()) => true,
                    Err(reason) => {
                        // Its earlier rounds stay in the tables.
                        let reason =
                            if round > 1 { format!("failed in round {round}: {reason}") } else { reason };
                        outcome.missing.insert(competitor.name.clone(), reason);
                        false
                    }
                }
            });
        }
        Ok(())
    }

    /// Returns our own benchmark. `forecast` and `classifiers` measure one number of threads per process, the others
    /// two.
    fn ours(&self, bench: &str) -> anyhow::Result<Vec<Competitor>> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let threads = if ["classifiers", "forecast"].contains(&bench) {
            super::thread_counts(self.threads)
        } else {
            vec![self.threads]
        };
        let competitor = |threads: usize| {
            let mut arguments: Vec<String> = [bench, "--json", "--threads"].map(String::from).into();
            arguments.push(threads.to_string());
            if bench != "engine" {
                arguments.extend(["--seconds".into(), self.seconds().to_string()]);
            } else if self.quick {
                arguments.push("--quick".into());
            }
            let default: &[&str] = match bench {
                "engine" => &OPERATIONS,
                "automata" => &AUTOMATA,
                _ => &[],
            };
            arguments.extend(self.only_or(default));
            Competitor { name: format!("{bench}: gatework"), program: program.clone(), arguments }
        };
        Ok(threads.into_iter().map(competitor).collect())
    }

    /// Writes the reference results for peers.
    fn write_cases(&self, bench: &str) -> anyhow::Result<()> {
        let mut arguments = vec![bench.into(), "--cases".into(), self.cases()];
        arguments.extend(self.only_or(&[]));
        let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
        anyhow::ensure!(status.success(), "cannot write the reference results of {bench}");
        Ok(())
    }

    fn cases(&self) -> String {
        self.peers.join("cases").display().to_string()
    }

    /// Returns the peers of a benchmark, each with each number of threads.
    fn peers(&self, bench: &str, outcome: &mut Outcome) -> Vec<Competitor> {
        let python = self.python.clone().unwrap_or_else(|| self.peers.join("venv/bin/python"));
        let peers = find_peers(&self.peers, bench);
        if peers.is_empty() {
            let reason = format!("no {bench}_* in {}", self.peers.display());
            outcome.missing.insert(format!("{bench}: peers"), reason);
        }
        let mut competitors = Vec::new();
        for (peer, path) in peers {
            let script = path.extension().is_some();
            for threads in super::thread_counts(self.threads) {
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
                let name = format!("{bench}: {peer}, {}", super::thread_text(threads));
                let program = if script { &python } else { &path }.clone();
                competitors.push(Competitor { name, program, arguments });
            }
        }
        competitors
    }

    fn seconds(&self) -> f64 {
        if self.quick { 0.01 } else { self.seconds }
    }

    /// Returns the options that select the rows of --only, or else the default rows.
    fn only_or(&self, default: &[&str]) -> Vec<String> {
        let asked: Vec<&str> = self.only.iter().map(String::as_str).collect();
        let names = if asked.is_empty() { default } else { &asked[..] };
        names.iter().flat_map(|name| ["--only".to_string(), (*name).to_string()]).collect()
    }

    /// Writes Markdown, a chart for each benchmark and number of threads, and JSON.
    fn write_report(
        &self,
        path: &Path,
        machine: &Machine,
        outcome: &Outcome,
        comparisons: &[Comparison],
        result: &Value,
    ) -> anyhow::Result<()> {
        let stem = path.file_stem().context("--report needs a file name")?.to_string_lossy().into_owned();
        let mut charts = Vec::new();
        for rows::Chart { bench, threads, bars } in rows::charts(comparisons) {
            let threads_text = super::thread_text(threads as usize);
            let title = format!("{bench}: time of the peer relative to ours, {threads_text}");
            let name = format!("{stem}-{bench}-{threads}.svg");
            files::write_atomic(&path.with_file_name(&name), ratio_chart(&title, &bars).as_bytes())?;
            charts.push((title, name));
        }
        let facts = markdown::Facts {
            machine,
            rounds: self.rounds,
            peers: &outcome.peers,
            missing: &outcome.missing,
        };
        let text = markdown::report(&facts, &outcome.table, comparisons, &charts);
        files::write_atomic(path, text.as_bytes())?;
        files::write_atomic(&path.with_extension("json"), format!("{result:#}\n").as_bytes())?;
        status!("wrote {}", path.display());
        Ok(())
    }
}

impl Outcome {
    /// Adds the rows of a peer, unless its workload differs from ours.
    fn accept(&mut self, output: &Value) -> Result<(), String> {
        let named = |key: &str| output[key].as_str().ok_or_else(|| format!("the output has no \"{key}\""));
        let name = format!("{}: {}", named("bench")?, named("peer")?);
        self.table.same_work(output)?;
        self.peers.insert(name, json!({ "version": output["version"], "how": output["how"] }));
        self.table.add(output);
        Ok(())
    }
}

impl Competitor {
    /// Runs the program and parses the last line of its output. Errors are one line.
    fn measure(&self) -> Result<Value, String> {
        let output = Command::new(&self.program)
            .args(&self.arguments)
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.program.display()))?;
        let last =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().lines().last().unwrap_or("").to_string();
        if !output.status.success() {
            return Err(format!("failed ({}): {}", output.status, last(&output.stderr)));
        }
        serde_json::from_str(&last(&output.stdout))
            .map_err(|error| format!("the last line of the output is not JSON: {error}"))
    }
}

/// Finds the peers of a benchmark: scripts `BENCH_PEER.py` and programs `BENCH_PEER`.
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

    #[cfg(unix)]
    #[test]
    fn a_failed_program_is_reported_in_one_line() {
        let run = |script: &str| {
            let arguments = vec!["-c".to_string(), script.to_string()];
            Competitor { name: "x".into(), program: "sh".into(), arguments }.measure()
        };
        assert_eq!(run("echo text; echo '{\"peer\": \"a\"}'").unwrap(), json!({ "peer": "a" }));
        assert!(run("echo first >&2; echo no module >&2; exit 3").unwrap_err().ends_with("no module"));
        assert!(run("echo text").unwrap_err().contains("not JSON"));
    }
}
