//! `gatework train`: trains an experiment into a run folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use gatework_forecast::experiment as forecast;
use gatework_forecast::experiment::Dataset;
use gatework_forecast::run as forecast_run;
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment, Recipe};
use gatework_gates::automata::run::{self, RunError, Trained};
use gatework_gates::automata::states::Start;
use gatework_train::experiment::check_name;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use gatework_train::trainer::{Attempt, Outcome};
use serde_json::Value;

use super::{Choices, Usage, forecaster, program, quoted, resume_command};
use crate::experiment;
use crate::progress::{Progress, work};
use crate::runs;

/// Train an experiment: a built-in one, or your own TOML file
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework train checkerboard
  gatework train lizard --seed 3 --out runs/third-lizard
  gatework list checkerboard > my.toml; gatework train my.toml
  gatework train airpassengers
  gatework train checkerboard --resume")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Train {
    /// A name from `gatework list`, or a TOML file
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: String,
    /// Train exactly this seed, to success or to its last update
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Train seeds 1 to N, each to success or to its last update, and print the success rate (automata) or mean and standard deviation of the scores (forecasters)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Maximum updates of a seed (automata) or epochs (forecasters), instead of those of the experiment
    #[arg(long, alias = "epochs", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Forecasters: steps to forecast, instead of those of the experiment
    #[arg(long, value_name = "N", value_parser = parse_horizon)]
    horizon: Option<usize>,
    /// Automata: train by gradient descent alone, as in the paper, or follow it by a search
    #[arg(long, value_parser = super::choice(RECIPES))]
    recipe: Option<Recipe>,
    /// The run folder [default: runs/NAME, or the first free runs/NAME-2, ...]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume an interrupted run; if there is none, a new one starts
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Replace the run in --out, which is renamed to DIR.old, or the first free DIR.old-2, ...
    #[arg(long)]
    force: bool,
    /// Number of threads [default: all]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = super::parse_threads)]
    threads: Option<usize>,
    /// Automata: show the hidden channels too in rollout.gif
    #[arg(long)]
    hidden: bool,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The recipes.
static RECIPES: &Choices<Recipe> = &[
    ("paper", "Gradient descent as in the paper", Recipe::Paper),
    ("search", "Some gradient descent, then a search on the circuit", Recipe::Search),
];

impl Train {
    pub fn run(&self) -> anyhow::Result<()> {
        let summary = match experiment::Loaded::find(&self.experiment)? {
            experiment::Loaded::Automaton(loaded) => {
                let options = [(self.horizon.is_some(), "--horizon")];
                super::refuse(&options, "forecasters", "an automaton")?;
                self.train_automaton(*loaded)?
            }
            experiment::Loaded::Forecaster(loaded) => {
                let options = [(self.recipe.is_some(), "--recipe"), (self.hidden, "--hidden")];
                super::refuse(&options, "automata", "a forecaster")?;
                self.train_forecaster(*loaded)?
            }
        };
        if self.json {
            super::print_json(&summary)?;
        }
        Ok(())
    }

    fn train_automaton(&self, mut loaded: AutomatonExperiment) -> anyhow::Result<Value> {
        self.override_settings(&mut loaded)?;
        let (path, resume) = self.folder(&loaded.experiment.name);
        let (folder, loaded) = if resume {
            let folder = RunFolder::resume(&path)?;
            let loaded = run::resume(&folder, &loaded.experiment)?;
            (folder, loaded)
        } else {
            let source = Path::new(&self.experiment).parent().unwrap_or(Path::new("."));
            run::begin(&path, self.force, loaded, source)?
        };
        print_replaced(&folder);
        if let Some(summary) = run::finished(&folder)? {
            print_finished(&folder);
            return Ok(summary);
        }
        let stop = super::stop_on_interrupt()?;
        let threads = super::threads(self.threads);
        let finished = {
            let progress = Progress::new(loaded.experiment.updates());
            runs::train_automaton_into(&folder, &loaded, self.hidden, threads, &progress, &stop)
        };
        if let Err(RunError::Folder(RunFolderError::Interrupted { path })) = &finished {
            let search = match loaded.experiment.search() {
                Some(_) => " An interrupted search starts again after gradient descent.",
                None => "",
            };
            anyhow::bail!(
                "interrupted; a checkpoint is written.{search} Resume with: {}",
                resume_command(path)
            );
        }
        let finished = finished?;
        if let Some(error) = finished.gif_error {
            status!("rollout.gif is not written: {:#}", anyhow::Error::from(error));
        }
        print_result(&loaded.experiment, &finished.trained, &folder);
        Ok(finished.summary)
    }

    fn train_forecaster(&self, mut loaded: forecast::ForecastExperiment) -> anyhow::Result<Value> {
        let experiment = &mut loaded.experiment;
        let training = &mut experiment.training;
        if let Some(epochs) = self.updates {
            training.epochs = Some(epochs);
            training.validation_start_epoch = training.validation_start_epoch.map(|first| first.min(epochs));
        }
        experiment.horizon = self.horizon.unwrap_or(experiment.horizon);
        let seed = self.seed.unwrap_or(experiment.seed);
        let seeds: Vec<u64> = self.seeds.map_or_else(|| vec![seed], |count| (1..=count).collect());
        experiment.seed = seeds[0];
        let loaded = forecast_run::prepare(loaded)?;
        let (path, resume) = self.folder(&loaded.experiment.name);
        let mut resumed = None;
        if resume {
            let folder = RunFolder::resume(&path)?;
            // Of several seeds, the folder names the one that was kept.
            forecast_run::check_same(&folder, &loaded.experiment, self.seeds.is_some())?;
            if let Some(summary) = forecast_run::finished(&folder, seeds.len())? {
                print_finished(&folder);
                return Ok(summary);
            }
            resumed = Some(folder);
        }
        loaded.experiment.specification().parameters()?;
        let dataset = Dataset::load(&loaded)?;
        // Created last, so that invalid data leave no folder behind.
        let experiment = loaded.experiment.to_toml();
        let folder = match resumed {
            Some(folder) => folder,
            None => RunFolder::create(&path, self.force, &experiment, &[])?,
        };
        print_replaced(&folder);
        let (experiment, threads) = (&loaded.experiment, super::threads(self.threads));
        let job = forecast_run::Job { experiment, dataset: &dataset, folder: &folder, seeds, threads };
        forecaster::train(&job, &*super::stop_on_interrupt()?)
    }

    /// Replaces settings of the experiment by options, and checks the result.
    fn override_settings(&self, loaded: &mut AutomatonExperiment) -> anyhow::Result<()> {
        let experiment = &mut loaded.experiment;
        if let Some(updates) = self.updates {
            experiment.training.updates = updates;
            if let Some(search) = &mut experiment.search {
                search.after = updates;
            }
        }
        if self.recipe == Some(Recipe::Search) && experiment.search.is_none() {
            return Err(Usage(format!("{} has no [search] table", self.experiment)).into());
        }
        experiment.training.recipe = self.recipe.unwrap_or(experiment.training.recipe);
        if self.seed.is_some() || self.seeds.is_some() {
            (experiment.seed, experiment.seeds) = (self.seed, self.seeds);
        }
        Ok(loaded.check(&self.experiment)?)
    }

    /// Returns the path of the run folder, and whether there is a run to resume in it.
    fn folder(&self, experiment: &str) -> (PathBuf, bool) {
        // A file gives the run its own name: a copied experiment may still have the name of the original. The copy in a run
        // folder does not.
        let is_file = Path::new(&self.experiment).is_file();
        let stem = Path::new(&self.experiment).file_stem().and_then(OsStr::to_str);
        let is_own = |stem: &&str| is_file && *stem != "experiment" && check_name(stem).is_ok();
        let name = stem.filter(is_own).unwrap_or(experiment);
        let path = match &self.out {
            Some(path) => path.clone(),
            None if self.resume || self.force => RunFolder::newest_path(name),
            None => RunFolder::unused_path(name),
        };
        let starts = self.resume && RunFolder::is_unused(&path);
        if starts {
            status!("There is nothing to resume in {}: a new run starts", path.display());
        }
        (path, self.resume && !starts)
    }
}

fn print_replaced(folder: &RunFolder) {
    if let Some(aside) = folder.replaced() {
        status!("The previous run in {} was renamed to {}", folder.path().display(), aside.display());
    }
}

/// Parses a number of steps.
fn parse_horizon(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| "expected a number of steps above 0".into())
}

fn print_finished(folder: &RunFolder) {
    status!("{} is finished; --force starts a new run", folder.path().display());
}

/// Prints the result of training an automaton.
fn print_result(experiment: &Experiment, trained: &Trained, folder: &RunFolder) {
    let (attempts, kept) = (&trained.attempts, trained.kept());
    status!("");
    if experiment.seeds.is_some() {
        let is_success = |attempt: &&Attempt| attempt.outcome == Outcome::Succeeded;
        status!("{} of {} seeds succeeded", attempts.iter().filter(is_success).count(), attempts.len());
        for attempt in attempts.iter().filter(is_success) {
            status!("  seed {:<4} {:>7.1} s, {}", attempt.seed, attempt.seconds, work(attempt));
        }
    } else if trained.is_success() {
        let seconds: f64 = attempts.iter().map(|attempt| attempt.seconds).sum();
        let tried = match attempts.len() {
            1 => String::new(),
            n => format!(" (attempt {n})"),
        };
        status!(
            "Learned: seed {}{tried}, after {}; {seconds:.1} s of training in total",
            kept.seed,
            work(kept)
        );
    } else {
        let count = match attempts.len() {
            1 => format!("seed {}", kept.seed),
            n => format!("{n} seeds"),
        };
        let hard = kept.best.as_ref().map_or(f64::NAN, |best| best.hard);
        status!("Not learned with {count}; the best hard loss is {hard} (seed {}).", kept.seed);
        if hard == 0.0 {
            status!("The hard loss reached 0, but not for long enough, or not on new start states.");
        }
        status!("Try another --seed, more --updates, or more training.restarts in a copy of the experiment.");
    }
    let gates = trained.gates;
    status!("Gates: {} in total, {} active, {} reachable", gates.total, gates.active, gates.reachable);
    let run = folder.path().display().to_string();
    status!("Run folder: {run}");
    status!("  {run}/rollout.gif     a simulation");
    status!("  {run}/loss.svg        soft and hard loss");
    let Experiment { automaton, start, .. } = experiment;
    // A pattern from random states should be stable; a picture is complete at its step only.
    let steps = if *start == Start::Random { (automaton.steps * 4).max(100) } else { automaton.steps };
    let (program, run) = (program(), quoted(&run));
    status!("Next: {program} evaluate {run}");
    status!("      {program} simulate {run} --size 64x64 --steps {steps} --gif big.gif");
}
