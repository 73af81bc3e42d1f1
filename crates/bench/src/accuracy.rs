//! `gatework-bench accuracy`: accuracy of forecasters by the protocols of the literature, compared with published figures.
//!
//! An experiment is trained for every horizon with published figures, with several seeds. Every run has its own folder: finished
//! runs are not repeated, and interrupted runs are resumed. The tables are rewritten after every run.

mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use gatework::experiment;
use gatework_forecast::data::Subset;
use gatework_forecast::evaluation::unwatched;
use gatework_forecast::experiment::Dataset;
use gatework_forecast::experiment::{ForecastExperiment, Published};
use gatework_train::files;
use serde_json::{Value, json};

use self::table::{Row, to_csv, to_markdown};
use gatework::cli::Usage;
use gatework::cli::{self, forecaster};
use gatework_forecast::run::{ForecastRun, Job, check_same, default_step, prepare, score_ensemble};
use gatework_train::run_folder::RunFolder;

/// Accuracy of forecasters by the protocols of the literature, compared with published figures
#[derive(Debug, Args)]
#[command(
    after_help = "Figures on the test set: mse and mae of the scaled values over all forecast origins (ETT); smape,
mase and owa in the units of the data (M4). Runs whose published figures include owa are also scored
as an ensemble, by the median of their forecasts.

Writes accuracy.csv, accuracy.md and a run folder NAME-HORIZON-SEED for each run.

Examples:
  GATEWORK_DATA=data gatework-bench accuracy crates/bench/experiments/accuracy/*.toml
  gatework-bench accuracy crates/bench/experiments/accuracy/etth1-*.toml --horizon 96 --seeds 1"
)]
pub struct Accuracy {
    /// Experiments with published figures
    #[arg(value_name = "FILE.toml", required = true)]
    experiments: Vec<PathBuf>,
    /// Number of seeds, from 1
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only these horizons
    #[arg(long, value_name = "N")]
    horizon: Vec<usize>,
    /// Folder for the runs and the tables
    #[arg(long, value_name = "DIR", default_value = "runs/accuracy")]
    out: PathBuf,
    /// Train nothing; write the tables of the finished runs
    #[arg(long)]
    tables: bool,
    /// Number of threads [default: all]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A run to train or to read.
struct Planned {
    loaded: ForecastExperiment,
    published: Published,
    folder: PathBuf,
    /// Summary of the finished run.
    summary: Option<Value>,
}

impl Accuracy {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut runs = self.plan()?;
        let stop = cli::stop_on_interrupt()?;
        for place in 0..runs.len() {
            runs[place].summary = self.finish(&runs[place], &stop)?;
            self.write(&rows(&runs))?;
        }
        let mut rows = rows(&runs);
        rows.extend(together(&runs)?);
        self.write(&rows)?;
        to_markdown(&rows).lines().for_each(|line| print_line!("{line}"));
        if self.json {
            cli::print_json(&json!({ "bench": "accuracy", "rows": rows }))?;
        }
        Ok(())
    }

    /// Returns all runs, ordered by seed.
    fn plan(&self) -> anyhow::Result<Vec<Planned>> {
        let mut runs = Vec::new();
        for seed in 1..=self.seeds {
            for path in &self.experiments {
                let experiment::Loaded::Forecaster(loaded) = experiment::Loaded::read(path)? else {
                    return Err(Usage(format!("{} is not a forecasting experiment", path.display())).into());
                };
                if loaded.experiment.published.is_empty() {
                    return Err(Usage(format!("{} has no published figures", path.display())).into());
                }
                let wanted = |published: &&Published| {
                    self.horizon.is_empty() || self.horizon.contains(&published.horizon)
                };
                for published in loaded.experiment.published.iter().filter(wanted) {
                    let mut loaded = ForecastExperiment::clone(&loaded);
                    (loaded.experiment.seed, loaded.experiment.horizon) = (seed, published.horizon);
                    let loaded = prepare(loaded)?;
                    let name = format!("{}-{}-{seed}", loaded.experiment.name, published.horizon);
                    let (published, folder) = (published.clone(), self.out.join(name));
                    runs.push(Planned { loaded, published, folder, summary: None });
                }
            }
        }
        Ok(runs)
    }

    /// Returns the summary of a run, training it if needed; `None` if it is not finished and --tables is given.
    fn finish(&self, planned: &Planned, stop: &AtomicBool) -> anyhow::Result<Option<Value>> {
        let folder = RunFolder::at(&planned.folder);
        if planned.folder.join("experiment.toml").is_file() {
            check_same(&folder, &planned.loaded.experiment, false)
                .context("the experiment has changed since this run; remove its folder to train again")?;
            if let Some(summary) = folder.summary()? {
                return Ok(Some(summary));
            }
        }
        if self.tables {
            return Ok(None);
        }
        status!("");
        status!("{}", planned.folder.display());
        files::make_folder(&planned.folder)?;
        let experiment = &planned.loaded.experiment;
        let dataset = Dataset::load(&planned.loaded)?;
        let threads = cli::threads(self.threads);
        let seeds = vec![experiment.seed];
        let job = Job { experiment, dataset: &dataset, folder: &folder, seeds, threads };
        forecaster::train(&job, stop).map(Some)
    }

    fn write(&self, rows: &[Row]) -> anyhow::Result<()> {
        files::make_folder(&self.out)?;
        files::write_atomic(&self.out.join("accuracy.csv"), to_csv(rows).as_bytes())?;
        files::write_atomic(&self.out.join("accuracy.md"), to_markdown(rows).as_bytes())?;
        Ok(())
    }
}

/// Returns a row for each experiment and horizon with a finished run.
fn rows(runs: &[Planned]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        let Some(summary) = &run.summary else { continue };
        let (name, horizon) = (&run.loaded.experiment.name, run.published.horizon);
        let known = rows.iter().position(|row| row.experiment == *name && row.horizon == horizon);
        let place = known.unwrap_or_else(|| {
            rows.push(Row::new(name, horizon, &run.published.figures));
            rows.len() - 1
        });
        rows[place].add(summary);
    }
    rows.sort_by(|a, b| (&a.experiment, a.horizon).cmp(&(&b.experiment, b.horizon)));
    rows
}

/// Scores the median of the forecasts of all runs on the same data, where an OWA is published.
fn together(runs: &[Planned]) -> anyhow::Result<Vec<Row>> {
    let with_owa = |run: &&Planned| run.summary.is_some() && run.published.figures.contains_key("owa");
    let mut groups: Vec<(&Planned, Vec<&Path>)> = Vec::new();
    for run in runs.iter().filter(with_owa) {
        let of = |run: &Planned| (run.loaded.experiment.data.clone(), run.published.horizon);
        match groups.iter_mut().find(|(first, _)| of(first) == of(run)) {
            Some((_, folders)) => folders.push(&run.folder),
            None => groups.push((run, vec![&run.folder])),
        }
    }
    let mut rows = Vec::new();
    for (first, folders) in groups.into_iter().filter(|(_, folders)| folders.len() > 1) {
        let open = |folder: &&Path| {
            ForecastRun::open(folder)?.with_context(|| format!("{} is not a run folder", folder.display()))
        };
        let opened = folders.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        let datasets = opened.iter().map(forecaster::dataset).collect::<anyhow::Result<Vec<_>>>()?;
        let step = default_step(&datasets[0], Subset::Test);
        let evaluation = score_ensemble(&opened, &datasets, Subset::Test, step, &unwatched)?;
        let name = format!("median of {}", folders.len());
        let mut row = Row::new(&name, first.published.horizon, &first.published.figures);
        row.add(&json!({ "scores": evaluation.scores }));
        rows.push(row);
    }
    Ok(rows)
}
