//! `gatework-bench circuits`: speed of simulation and of minimisation.
//!
//! | file | rows |
//! |---|---|
//! | `life` | `life` (learned, minimised, proved), `life-adders`, `life-by-hand`: a torus of 4096x4096 cells |
//! | `networks` | `checkerboard`: a rule of the size that training produces; `network-*`: random networks |
//! | `minimize` | `minimize-*`: random networks minimised and proved |
//! | `cases` | none: circuits and grids for peers |
//!
//! Answers are checked against each other and against a reference implementation. Runs of alternatives are interleaved, and a
//! time is the minimum.

mod cases;
mod life;
mod minimize;
mod networks;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use gatework_engine::kernel;
use serde_json::{Value, json};

use gatework::cli;
use gatework::cli::Usage;

/// Names for --only; `life` selects all three rows of Life.
const NAMES: [&str; 11] = [
    "life",
    "checkerboard",
    "network-10k",
    "network-100k",
    "network-1m",
    "minimize-10k",
    "minimize-100k",
    "minimize-1m",
    "minimize-layered-10k",
    "minimize-layered-100k",
    "minimize-layered-1m",
];

/// Help on the fields of the rows.
const ROWS: &str = "Rows of --json, each with \"name\", \"threads\" and \"gates\":
  life, life-adders, life-by-hand, checkerboard
      gcells_per_second     updated cells, in 10^9 per second
      operations_per_cell   vector operations per cell, after sharing between rows
      ratio_to_hand         rate relative to life-by-hand, for the rows of Life
      gates_learned, gates_before, minimize_seconds, proved_seconds
                            how the circuit of life was made
  network-10k, network-100k, network-1m
      native                true for machine code, false for the interpreter
      ready_seconds, first_result_seconds, samples_per_second
  minimize-10k, minimize-100k, minimize-1m; minimize-layered-... with --full or --only
      gates_before, gates_after
                            two-input gates, after structural hashing; inverters are free
      minimize_seconds, minimize_processor_seconds, peak_rss_mb, proved, proved_seconds,
      proved_processor_seconds
      microseconds_per_gate, ratio_to_smaller
                            CPU time per gate, and its ratio to that of the next smaller network: 1 is linear";

#[derive(Debug, Args)]
#[command(after_help = ROWS)]
pub struct Circuits {
    /// Only rows whose name starts with NAME
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// All rows, including the slowest
    #[arg(long)]
    full: bool,
    /// Seconds to measure each row
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Largest number of threads [default: all]
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Measure nothing; write circuits as C and grids before and after some steps to DIR, for peers to compare theirs with
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Circuits {
    pub fn run(&self) -> anyhow::Result<()> {
        self.check_names()?;
        if let Some(folder) = &self.cases {
            return self.write_cases(folder);
        }
        let life_circuits = if self.wants("life") { Some(life::circuits()?) } else { None };
        let mut results = Vec::new();
        for threads in super::thread_counts(cli::threads(self.threads)) {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            pool.install(|| -> anyhow::Result<()> {
                if let Some(life_circuits) = &life_circuits {
                    self.life(life_circuits, threads, &mut results)?;
                }
                if self.wants("checkerboard") {
                    self.large_rule(threads, &mut results)?;
                }
                for (name, gates) in
                    [("network-10k", 10_000), ("network-100k", 100_000), ("network-1m", 1_000_000)]
                {
                    if self.wants(name) {
                        self.network(name, gates, threads, &mut results)?;
                    }
                }
                Ok(())
            })?;
        }
        self.minimize(&mut results)?;
        if self.json {
            cli::print_json(
                &json!({ "bench": "circuits", "simd": kernel::simd_name(), "results": results }),
            )?;
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    /// Rejects names that match no row.
    fn check_names(&self) -> Result<(), Usage> {
        let unknown = |only: &&String| !NAMES.iter().any(|name| name.starts_with(only.as_str()));
        match self.only.iter().find(unknown) {
            Some(only) => {
                Err(Usage(format!("no row starts with {only}; expected one of {}", NAMES.join(", "))))
            }
            None => Ok(()),
        }
    }
}

/// Returns the time of a call.
fn timed<E>(call: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    call()?;
    Ok(begin.elapsed())
}

/// Prints a row and stores it.
fn push(results: &mut Vec<Value>, row: Value) {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
    let threads = row["threads"].as_f64().unwrap_or(f64::NAN);
    print_line!(
        "{:<14} {threads:>2} thread{:<1} {}",
        text("name"),
        if threads > 1.0 { "s" } else { "" },
        figures(&row)
    );
    results.push(row);
}

/// Formats the figures of a row.
fn figures(row: &Value) -> String {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let optional = |key: &str, show: fn(f64) -> String| row[key].as_f64().map_or(String::new(), show);
    if row.get("gcells_per_second").is_some() {
        let operations = optional("operations_per_cell", |n| format!("  {n:.1} operations per cell"));
        let ratio = optional("ratio_to_hand", |ratio| format!("  {ratio:.2}x the rate of hand-written AVX2"));
        format!("{:>9.3} G cells/s{operations}{ratio}", number("gcells_per_second"))
    } else if row.get("samples_per_second").is_some() {
        format!(
            "{:>9.0} samples/s  ready in {:.3} s, first result after {:.3} s  {}",
            number("samples_per_second"),
            number("ready_seconds"),
            number("first_result_seconds"),
            if row["native"] == json!(true) { "native" } else { "portable" }
        )
    } else {
        let ratio = optional("ratio_to_smaller", |r| format!(", {r:.2}x that of the smaller network"));
        format!(
            "{:>9.3} s ({:.3} s CPU)  {} gates of {}  peak {:.0} MB  proved in {:.3} s ({:.3} s)  \
             {:.2} us per gate{ratio}",
            number("minimize_seconds"),
            number("minimize_processor_seconds"),
            row["gates_after"],
            row["gates_before"],
            number("peak_rss_mb"),
            number("proved_seconds"),
            number("proved_processor_seconds"),
            number("microseconds_per_gate"),
        )
    }
}
