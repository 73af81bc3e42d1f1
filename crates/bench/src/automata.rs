//! `gatework-bench automata`: one training update of each built-in experiment, and of a dense network of soft gates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gatework_engine::kernel;
use gatework_gates::automata::experiment::{AutomatonExperiment, BUILT_IN};
use gatework_gates::automata::task::{AutomatonTask, StepTimes};
use gatework_train::files;
use gatework_train::trainer::Task;
use serde_json::{Value, json};

use super::process;
use gatework::cli;
use gatework_bench::gate_network::{self, GateNetwork};

#[derive(Debug, Args)]
pub struct Automata {
    /// Only these experiments, or "gate network": a dense network of soft gates on a batch of bits
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Seconds to measure each row
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Largest number of threads [default: all]
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Measure nothing; write the gate network and its losses to DIR, for peers to compare theirs with
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The columns of the printed table.
const COLUMNS: [super::Column; 8] = [
    ("threads", 8, "threads", 1.0, 0),
    ("update ms", 11, "update_ms", 1.0, 3),
    ("forward", 11, "forward_ms", 1.0, 3),
    ("backward", 11, "backward_ms", 1.0, 3),
    ("optimiser", 11, "optimizer_ms", 1.0, 3),
    ("hard ms", 10, "hard_ms", 1.0, 3),
    ("G gates/s", 13, "gate_evals_per_second", 1e9, 3),
    ("RSS MB", 10, "peak_rss_mb", 1.0, 3),
];

/// Updates before the measurement: they move the gates from their initial state and warm caches and threads.
const WARM_UP: u64 = 10;

impl Automata {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(folder) = &self.cases {
            return self.write_cases(folder);
        }
        let names = self.names();
        // Wrong names are reported before anything is measured.
        for name in names.iter().filter(|name| *name != gate_network::NAME) {
            AutomatonExperiment::find(name)?;
        }
        super::print_headings("experiment", 20, &COLUMNS);
        let mut results = Vec::new();
        for name in &names {
            // With several experiments, each runs in its own process, so that the peak memory is its own.
            let rows = if names.len() > 1 { self.measure_apart(name)? } else { self.measure_here(name)? };
            for row in &rows {
                super::print_row(name, 20, &COLUMNS, row);
            }
            results.extend(rows);
        }
        if self.json {
            cli::print_json(
                &json!({ "bench": "automata", "simd": kernel::simd_name(), "results": results }),
            )?;
        }
        Ok(())
    }

    /// Returns the selected rows.
    fn names(&self) -> Vec<String> {
        if self.only.is_empty() {
            BUILT_IN.iter().map(|(name, _)| (*name).to_string()).collect()
        } else {
            self.only.clone()
        }
    }

    /// Measures one experiment, or the gate network, in this process.
    fn measure_here(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let measure = |threads| match name {
            gate_network::NAME => self.measure_network(threads),
            _ => self.measure(&AutomatonExperiment::find(name)?, threads),
        };
        super::thread_counts(cli::threads(self.threads)).into_iter().map(measure).collect()
    }

    /// Measures one experiment in another process.
    fn measure_apart(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let output = Command::new(std::env::current_exe()?)
            .args(["automata", "--json", "--only", name, "--seconds", &self.seconds.to_string()])
            .args(["--threads", &cli::threads(self.threads).to_string()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{name}: {}", said.trim_end());
        let mut result: Value = serde_json::from_slice(&output.stdout).with_context(|| name.to_string())?;
        match result["results"].take() {
            Value::Array(rows) => Ok(rows),
            _ => anyhow::bail!("{name}: the other process returned no rows"),
        }
    }

    /// Writes the reference results for peers. Experiments have golden files instead.
    fn write_cases(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        if self.only.is_empty() || self.only.iter().any(|name| name == gate_network::NAME) {
            let case = GateNetwork::new()?.case(4);
            files::write_atomic(&folder.join("automata.json"), case.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// Measures updates of the gate network; times are medians.
    fn measure_network(&self, threads: usize) -> anyhow::Result<Value> {
        process::reset_peak();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let mut network = GateNetwork::new()?;
        let mut times = Vec::new();
        pool.install(|| {
            (0..WARM_UP).for_each(|_| _ = network.update());
            let begin = Instant::now();
            while times.is_empty() || begin.elapsed().as_secs_f64() < self.seconds {
                let start = Instant::now();
                network.update();
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        });
        times.sort_by(f64::total_cmp);
        let update_ms = cli::median(&times).context("no update was measured")?;
        Ok(json!({
            "experiment": gate_network::NAME,
            "threads": threads,
            "update_ms": update_ms,
            "gate_evals_per_second": network.gate_evaluations() / (update_ms * 1e-3),
            "peak_rss_mb": process::peak_memory(),
            "updates": times.len(),
        }))
    }

    /// Measures updates of an experiment; times are medians.
    fn measure(&self, loaded: &AutomatonExperiment, threads: usize) -> anyhow::Result<Value> {
        process::reset_peak();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let samples = pool.install(|| {
            let settings = loaded.experiment.trainer_settings();
            let mut task = AutomatonTask::new(loaded, 1).map_err(|error| anyhow::anyhow!("{error}"))?;
            let mut state = settings.optimizer.state(task.params().len());
            let mut samples: Vec<Sample> = Vec::new();
            let begin = Instant::now();
            for update in 0.. {
                let start = Instant::now();
                task.step(update).map_err(|error| anyhow::anyhow!("{error}"))?;
                let stepped = start.elapsed();
                let params = task.params_mut();
                let rate = settings.rate.at(update, settings.updates) as f32;
                let optimizer = Instant::now();
                settings.optimizer.step(&mut state, &mut params.values, &params.grads, rate, settings.clip);
                if update >= WARM_UP {
                    samples.push(Sample { stepped, times: task.times(), optimizer: optimizer.elapsed() });
                    if begin.elapsed().as_secs_f64() > self.seconds {
                        break;
                    }
                }
            }
            Ok::<_, anyhow::Error>((samples, task.gate_evaluations()))
        });
        let (samples, evaluations) = samples?;
        let median = |of: fn(&Sample) -> Duration| {
            let mut times: Vec<Duration> = samples.iter().map(of).collect();
            times.sort_unstable();
            times.get(times.len() / 2).map(|t| t.as_secs_f64() * 1e3).context("no update was measured")
        };
        let update_ms = median(|s| s.stepped.saturating_sub(s.times.hard) + s.optimizer)?;
        Ok(json!({
            "experiment": loaded.experiment.name,
            "threads": threads,
            "update_ms": update_ms,
            "forward_ms": median(|s| s.times.soft.forward)?,
            "backward_ms": median(|s| s.times.soft.backward)?,
            "optimizer_ms": median(|s| s.optimizer)?,
            "hard_ms": median(|s| s.times.hard)?,
            "gate_evals_per_second": evaluations / (update_ms * 1e-3),
            "peak_rss_mb": process::peak_memory(),
            "updates": samples.len(),
        }))
    }
}

struct Sample {
    stepped: Duration,
    times: StepTimes,
    optimizer: Duration,
}
