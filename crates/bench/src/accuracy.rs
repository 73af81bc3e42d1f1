//! `gatework bench accuracy`: forecasters by the protocols of the literature, beside its figures.
//!
//! An experiment is trained for every horizon that it has published figures for, with several seeds. Every run has a
//! folder of its own; what is finished is not made again, what was stopped goes on. The tables are written anew after
//! every run.

mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use gatework::experiment;
use gatework_forecast::data::Subset;
use gatework_forecast::experiment::Dataset;
use gatework_forecast::experiment::{ForecastExperiment, Published};
use gatework_train::files;
use serde_json::{Value, json};

use self::table::{Row, to_csv, to_markdown};
use gatework::cli::train::forecaster::{Job, check_same, prepare};
use gatework::cli::{self, train};
use gatework::folder::RunFolder;
use gatework::forecast_run::{ForecastRun, score_together};
use gatework::usage::Usage;

/// Forecasters by the protocols of the literature, beside its figures
#[derive(Debug, Args)]
#[command(
    after_help = "Figures, over the test part: mse and mae of the scaled values from every origin (ETT); smape, mase
and owa in the units of the data (M4). Runs whose published figures have an owa are scored together
too, by the median of their forecasts.

Written to the folder: accuracy.csv, accuracy.md, and one run folder NAME-HORIZON-SEED for each row.

Examples:
  GATEWORK_DATA=data gatework bench accuracy experiments/accuracy/*.toml
  gatework bench accuracy experiments/accuracy/etth1-*.toml --horizon 96 --seeds 1"
)]
pub struct Accuracy {
    /// Experiments with published figures
    #[arg(value_name = "FILE.toml", required = true)]
    experiments: Vec<PathBuf>,
    /// Seeds 1 to N
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only these horizons
    #[arg(long, value_name = "N")]
    horizon: Vec<usize>,
    /// Folder of the runs and the tables
    #[arg(long, value_name = "DIR", default_value = "runs/accuracy")]
    out: PathBuf,
    /// Train nothing: make the tables of the runs that are finished
    #[arg(long)]
    tables: bool,
    /// Threads to use [default: all]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// One run that is to be made.
struct Planned {
    loaded: ForecastExperiment,
    published: Published,
    folder: PathBuf,
    /// What came of it.
    summary: Option<Value>,
}

impl Accuracy {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut runs = self.plan()?;
        let stop = train::stop_on_interrupt()?;
        for place in 0..runs.len() {
            runs[place].summary = self.finish(&runs[place], &stop)?;
            self.write(&rows(&runs))?;
        }
        let mut rows = rows(&runs);
        rows.extend(together(&runs)?);
        self.write(&rows)?;
        answer!("{}", to_markdown(&rows).trim_end());
        if self.json {
            cli::print_json(&json!({ "bench": "accuracy", "rows": rows }))?;
        }
        Ok(())
    }

    /// All runs, the first seed of everything first.
    fn plan(&self) -> anyhow::Result<Vec<Planned>> {
        let mut runs = Vec::new();
        for seed in 1..=self.seeds {
            for path in &self.experiments {
                let experiment::Loaded::Forecaster(loaded) = experiment::Loaded::read(path)? else {
                    return Err(Usage(format!("{} is no forecaster", path.display())).into());
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

    /// The summary of a run: made before, or now.
    fn finish(&self, planned: &Planned, stop: &AtomicBool) -> anyhow::Result<Option<Value>> {
        let folder = RunFolder::at(&planned.folder);
        if planned.folder.join("experiment.toml").is_file() {
            check_same(&folder, &planned.loaded.experiment, false)
                .context("the experiment has changed since; remove the folder to run it anew")?;
            if let Some(summary) = folder.summary()? {
                return Ok(Some(summary));
            }
        }
        if self.tables {
            return Ok(None);
        }
        say!("\n{}", planned.folder.display());
        files::make_folder(&planned.folder)?;
        let experiment = &planned.loaded.experiment;
        let dataset = Dataset::load(&planned.loaded)?;
        let threads = cli::threads(self.threads);
        let seeds = vec![experiment.seed];
        Job { experiment, dataset: &dataset, folder: &folder, seeds, threads, stop }.run().map(Some)
    }

    fn write(&self, rows: &[Row]) -> anyhow::Result<()> {
        files::make_folder(&self.out)?;
        files::write_whole(&self.out.join("accuracy.csv"), to_csv(rows).as_bytes())?;
        files::write_whole(&self.out.join("accuracy.md"), to_markdown(rows).as_bytes())?;
        Ok(())
    }
}

/// One row for each experiment and horizon that has a finished run.
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

/// The medians of the forecasts of all runs on the same data, where an OWA is published.
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
            ForecastRun::open(folder)?.with_context(|| format!("{} is no run folder", folder.display()))
        };
        let mut opened = folders.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        let evaluation = score_together(&mut opened, Subset::Test, None)?;
        let name = format!("median of {}", folders.len());
        let mut row = Row::new(&name, first.published.horizon, &first.published.figures);
        row.add(&json!({ "scores": evaluation.scores }));
        rows.push(row);
    }
    Ok(rows)
}
