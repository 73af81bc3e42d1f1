//! `gatework bench circuits`: how fast circuits run, and how fast they are minimised.
//!
//! | file | rows |
//! |---|---|
//! | `life` | `life` (learned, minimised, proved), `life-adders`, `life-by-hand`: a torus of 4096x4096 cells |
//! | `networks` | `checkerboard`: a rule as it comes from training; `network-*`: random networks |
//! | `minimize` | `minimize-*`: random networks minimised and proved |
//! | `cases` | none: circuits and boards for peers |
//!
//! Answers are compared with each other and with a slower way; rivals are timed in turn, and the best time of each
//! counts.

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
use gatework::usage::Usage;

/// What can be asked for by --only; the three rows of Life come together.
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

/// The fields of the rows.
const ROWS: &str = "Rows of --json, each with \"name\", \"threads\" and \"gates\":
  life, life-adders, life-by-hand, checkerboard
      gcells_per_second     cells that took a step, in 10^9 a second
      operations_per_cell   vector operations for a cell, after sharing between rows
      ratio_to_hand         rate beside life-by-hand, for the rows of Life
      gates_learned, gates_before, minimize_seconds, proved_seconds
                            how the circuit of life came about
  network-10k, network-100k, network-1m
      native                machine code, or else the interpreter
      ready_seconds, first_result_seconds, samples_per_second
  minimize-10k, minimize-100k, minimize-1m; minimize-layered-... with --full or --only
      gates_before, gates_after
                            two-input gates, without wires, inverters and equal gates
      minimize_seconds, minimize_processor_seconds, peak_rss_mb, proved, proved_seconds,
      proved_processor_seconds
      microseconds_per_gate, ratio_to_smaller
                            processor time to minimise a gate, and beside the next smaller network: 1 is linear";

#[derive(Debug, Args)]
#[command(after_help = ROWS)]
pub struct Circuits {
    /// Only rows whose name begins like this
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// All rows, also the slowest
    #[arg(long)]
    full: bool,
    /// Seconds to measure each row
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Most threads to measure [default: all]
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Measure nothing, but write circuits as C and boards before and after into DIR, for peers to compare theirs with
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
        let all = cli::threads(self.threads);
        let thread_counts = if all > 1 { vec![1, all] } else { vec![1] };
        let contestants = if self.wants("life") { Some(life::contestants()?) } else { None };
        let mut results = Vec::new();
        for &threads in &thread_counts {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            pool.install(|| -> anyhow::Result<()> {
                if let Some(contestants) = &contestants {
                    self.life(contestants, threads, &mut results)?;
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

    /// Refuses a name that no row has.
    fn check_names(&self) -> Result<(), Usage> {
        let unknown = |only: &&String| !NAMES.iter().any(|name| name.starts_with(only.as_str()));
        match self.only.iter().find(unknown) {
            Some(only) => Err(Usage(format!("no row is called {only}...; there are {}", NAMES.join(", ")))),
            None => Ok(()),
        }
    }
}

/// The time that a call takes.
fn timed<E>(call: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    call()?;
    Ok(begin.elapsed())
}

/// Shows a row and keeps it.
fn push(results: &mut Vec<Value>, row: Value) {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
    let threads = row["threads"].as_f64().unwrap_or(f64::NAN);
    answer!(
        "{:<14} {threads:>2} thread{:<1} {}",
        text("name"),
        if threads > 1.0 { "s" } else { "" },
        figures(&row)
    );
    results.push(row);
}

/// What a row says, for people.
fn figures(row: &Value) -> String {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let optional = |key: &str, show: fn(f64) -> String| row[key].as_f64().map_or(String::new(), show);
    if row.get("gcells_per_second").is_some() {
        let operations = optional("operations_per_cell", |n| format!("  {n:.1} operations a cell"));
        let ratio = optional("ratio_to_hand", |ratio| format!("  {ratio:.2} of the version by hand"));
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
        let ratio = optional("ratio_to_smaller", |r| format!(", {r:.2} of that of the smaller network"));
        format!(
            "{:>9.3} s ({:.3} s of the processor)  {} gates of {}  peak {:.0} MB  proved in {:.3} s ({:.3} s)  \
             {:.2} us a gate{ratio}",
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
