//! `gatework train`: trains an experiment into a run folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use gatework_forecast::experiment as forecast;
use gatework_forecast::experiment::Dataset;
use gatework_forecast::run as forecast_run;
use gatework_gates::automata::advice;
use gatework_gates::automata::choose::{self, Chosen};
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment, Recipe};
use gatework_gates::automata::picture::Colours;
use gatework_gates::automata::run::{self, RunError};
use gatework_gates::automata::states::{Start, Target};
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_gates::classifier::run as classifier_run;
use gatework_train::experiment::check_name;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use gatework_train::trainer::{Attempt, Outcome, Stage};
use serde_json::Value;

use super::{Choices, Usage, classifier, forecaster, program, quoted, resume_command};
use crate::experiment;
use crate::progress::{Progress, work};
use crate::runs::{self, AutomatonRun};

/// Train an experiment: a built-in one, your own TOML file, a picture or a rule
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework train checkerboard
  gatework train lizard --seed 3 --out runs/third-lizard
  gatework list checkerboard > my.toml; gatework train my.toml
  gatework train heart.png
  gatework train B36/S23
  gatework train digits --seeds 10
  gatework train airpassengers
  gatework train checkerboard --resume")]
pub struct Train {
    /// A name from `gatework list`, a TOML file, a picture (PNG or text), or a rule: B36/S23, B2/S/C3, rule:110
    #[arg(value_name = "NAME|FILE|RULE")]
    experiment: String,
    /// Forecasters: steps to forecast, instead of those of the experiment
    #[arg(long, value_name = "N", value_parser = parse_horizon)]
    horizon: Option<usize>,
    /// Automata: train by gradient descent alone, as in the paper, or follow it by a search
    #[arg(long, value_parser = super::choice(RECIPES))]
    recipe: Option<Recipe>,
    #[command(flatten)]
    options: Options,
}

/// The options of every training run.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Options {
    /// Train exactly this seed, to success or to its last update
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Train seeds 1 to N, each to success or to its last update, and print the success rate (automata) or mean and standard deviation of the scores (classifiers, forecasters)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Maximum updates of a seed (automata) or epochs (classifiers, forecasters), instead of those of the experiment
    #[arg(long, alias = "epochs", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
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
        let job = Job {
            request: &self.experiment,
            recipe: self.recipe,
            horizon: self.horizon,
            options: &self.options,
        };
        if choose::is_picture(Path::new(&self.experiment)) {
            super::refuse(&[(self.horizon.is_some(), "--horizon")], "forecasters", "an automaton")?;
            let chosen = choose::picture(Path::new(&self.experiment))?;
            return job.train_chosen(chosen);
        }
        let summary = match experiment::Loaded::find(&self.experiment)? {
            experiment::Loaded::Automaton(loaded) => {
                let options = [(self.horizon.is_some(), "--horizon")];
                super::refuse(&options, "forecasters", "an automaton")?;
                job.train_automaton(*loaded)?
            }
            experiment::Loaded::Classifier(loaded) => {
                let options = [(self.horizon.is_some(), "--horizon")];
                super::refuse(&options, "forecasters", "a classifier")?;
                let options = [(self.recipe.is_some(), "--recipe"), (self.options.hidden, "--hidden")];
                super::refuse(&options, "automata", "a classifier")?;
                job.train_classifier(*loaded)?
            }
            experiment::Loaded::Forecaster(loaded) => {
                let options = [(self.recipe.is_some(), "--recipe"), (self.options.hidden, "--hidden")];
                super::refuse(&options, "automata", "a forecaster")?;
                job.train_forecaster(*loaded)?
            }
        };
        if self.options.json {
            super::print_json(&summary)?;
        }
        Ok(())
    }
}

/// A request to train something.
pub struct Job<'a> {
    /// What was asked for: a name, a file or a rule.
    pub request: &'a str,
    pub recipe: Option<Recipe>,
    pub horizon: Option<usize>,
    pub options: &'a Options,
}

impl Job<'_> {
    /// Trains an experiment that was chosen for a file, and says what was chosen.
    pub fn train_chosen(&self, chosen: Chosen) -> anyhow::Result<()> {
        let Chosen { loaded, colours, .. } = chosen;
        print_chosen(self.request, &loaded, colours);
        let summary = self.train_automaton(loaded)?;
        if self.options.json {
            super::print_json(&summary)?;
        }
        Ok(())
    }

    fn train_automaton(&self, mut loaded: AutomatonExperiment) -> anyhow::Result<Value> {
        self.override_settings(&mut loaded)?;
        let (path, resume) = self.folder(&loaded.experiment.name);
        for warning in advice::warnings(&loaded) {
            status!("warning: {warning}");
        }
        let (folder, loaded) = if resume {
            let folder = RunFolder::resume(&path)?;
            let loaded = run::resume(&folder, &loaded.experiment)?;
            (folder, loaded)
        } else {
            let source = Path::new(self.request).parent().unwrap_or(Path::new("."));
            run::begin(&path, self.options.force, loaded, source)?
        };
        print_replaced(&folder);
        if let Some(summary) = run::finished(&folder)? {
            print_finished(&folder);
            return Ok(summary);
        }
        let stop = super::stop_on_interrupt()?;
        let threads = super::threads(self.options.threads);
        let finished = {
            let progress = Progress::new(loaded.experiment.updates());
            runs::train_automaton_into(&folder, &loaded, self.options.hidden, threads, &progress, &stop)
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
        if let Some(error) = &finished.gif_error {
            status!("rollout.gif is not written: {:#}", anyhow::Error::msg(error.to_string()));
        }
        print_result(&loaded, &finished, &folder);
        Ok(finished.summary)
    }

    fn train_classifier(&self, mut loaded: ClassifierExperiment) -> anyhow::Result<Value> {
        let experiment = &mut loaded.experiment;
        experiment.training.epochs = self.options.updates.unwrap_or(experiment.training.epochs);
        experiment.seed = self.options.seed.unwrap_or(experiment.seed);
        if self.options.seed.is_some() || self.options.seeds.is_some() {
            experiment.seeds = self.options.seeds;
        }
        if let Err(problem) = experiment.check() {
            return Err(Usage(problem.message).into());
        }
        let (path, resume) = self.folder(&experiment.name);
        let mut resumed = None;
        if resume {
            let folder = RunFolder::resume(&path)?;
            classifier_run::resume(&folder, &loaded.experiment)?;
            if let Some(summary) = classifier_run::finished(&folder)? {
                print_finished(&folder);
                return Ok(summary);
            }
            resumed = Some(folder);
        }
        // Before the folder is created, so that invalid data leave none behind.
        let prepared = classifier::prepare(&loaded.experiment)?;
        let folder = match resumed {
            Some(folder) => folder,
            None => classifier_run::begin(&path, self.options.force, &loaded)?,
        };
        print_replaced(&folder);
        let threads = super::threads(self.options.threads);
        classifier::train(&folder, &loaded, &prepared, threads, &*super::stop_on_interrupt()?)
    }

    fn train_forecaster(&self, mut loaded: forecast::ForecastExperiment) -> anyhow::Result<Value> {
        let experiment = &mut loaded.experiment;
        let training = &mut experiment.training;
        if let Some(epochs) = self.options.updates {
            training.epochs = Some(epochs);
            training.validation_start_epoch = training.validation_start_epoch.map(|first| first.min(epochs));
        }
        experiment.horizon = self.horizon.unwrap_or(experiment.horizon);
        let seed = self.options.seed.unwrap_or(experiment.seed);
        let seeds: Vec<u64> = self.options.seeds.map_or_else(|| vec![seed], |count| (1..=count).collect());
        experiment.seed = seeds[0];
        let loaded = forecast_run::prepare(loaded)?;
        let (path, resume) = self.folder(&loaded.experiment.name);
        let mut resumed = None;
        if resume {
            let folder = RunFolder::resume(&path)?;
            // Of several seeds, the folder names the one that was kept.
            forecast_run::check_same(&folder, &loaded.experiment, self.options.seeds.is_some())?;
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
            None => RunFolder::create(&path, self.options.force, &experiment, &[])?,
        };
        print_replaced(&folder);
        let (experiment, threads) = (&loaded.experiment, super::threads(self.options.threads));
        let job = forecast_run::Job { experiment, dataset: &dataset, folder: &folder, seeds, threads };
        forecaster::train(&job, &*super::stop_on_interrupt()?)
    }

    /// Replaces settings of the experiment by options, and checks the result.
    fn override_settings(&self, loaded: &mut AutomatonExperiment) -> anyhow::Result<()> {
        let experiment = &mut loaded.experiment;
        if let Some(updates) = self.options.updates {
            experiment.training.updates = updates;
            if let Some(search) = &mut experiment.search {
                search.after = updates;
            }
        }
        if self.recipe == Some(Recipe::Search) && experiment.search.is_none() {
            return Err(Usage(format!("{} has no [search] table", self.request)).into());
        }
        experiment.training.recipe = self.recipe.unwrap_or(experiment.training.recipe);
        if self.options.seed.is_some() || self.options.seeds.is_some() {
            (experiment.seed, experiment.seeds) = (self.options.seed, self.options.seeds);
        }
        Ok(loaded.check(self.request)?)
    }

    /// Returns the path of the run folder, and whether there is a run to resume in it.
    fn folder(&self, experiment: &str) -> (PathBuf, bool) {
        // A file gives the run its own name: a copied experiment may still have the name of the original. The copy in a run
        // folder does not.
        let is_file = Path::new(self.request).is_file();
        let stem = Path::new(self.request).file_stem().and_then(OsStr::to_str);
        let is_own = |stem: &&str| is_file && *stem != "experiment" && check_name(stem).is_ok();
        let name = stem.filter(is_own).unwrap_or(experiment);
        let path = match &self.options.out {
            Some(path) => path.clone(),
            None if self.options.resume || self.options.force => RunFolder::newest_path(name),
            None => RunFolder::unused_path(name),
        };
        let starts = self.options.resume && RunFolder::is_unused(&path);
        if starts {
            status!("There is nothing to resume in {}: a new run starts", path.display());
        }
        (path, self.options.resume && !starts)
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

/// Prints what was chosen for a picture or tile.
fn print_chosen(file: &str, loaded: &AutomatonExperiment, colours: Colours) {
    let Experiment { automaton, search, .. } = &loaded.experiment;
    let (Target::Picture(bitmap) | Target::Pattern { tile: bitmap, .. }) = &loaded.target else { return };
    let [height, width] = bitmap.size();
    status!(
        "{file}: {height}x{width} cells, {} set; {} with the background, as {}",
        bitmap.set_cells(),
        counted(colours.found, "colour"),
        counted(bitmap.channels(), "channel")
    );
    if colours.lost > 0 {
        let kept = bitmap.palette().len();
        status!("warning: {} replaced by similar ones; {kept} remain", are(colours.lost, "colour"));
    }
    let moves = search.as_ref().map_or(0, |search| search.moves);
    let (updates, [rows, columns]) = (loaded.experiment.updates(), automaton.grid);
    status!(
        "Chosen: {rows}x{columns} cells with {}, {}; {} and {} a run",
        counted(automaton.channels, "channel"),
        counted(automaton.steps, "step"),
        counted(updates as usize, "update"),
        counted(moves as usize, "search move")
    );
}

/// Returns a number with its noun.
fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns a number with its noun and a verb.
fn are(number: usize, noun: &str) -> String {
    format!("{} {}", counted(number, noun), if number == 1 { "is" } else { "are" })
}

/// Prints the result of training an automaton.
fn print_result(loaded: &AutomatonExperiment, finished: &AutomatonRun, folder: &RunFolder) {
    let (experiment, trained) = (&loaded.experiment, &finished.trained);
    let (attempts, kept) = (&trained.attempts, trained.kept());
    status!("");
    if experiment.seeds.is_some() {
        let is_success = |attempt: &&Attempt| attempt.outcome == Outcome::Succeeded;
        status!(
            "{} of {} succeeded",
            attempts.iter().filter(is_success).count(),
            counted(attempts.len(), "seed")
        );
        for attempt in attempts.iter().filter(is_success) {
            let how = attempt.stages.last().map_or_else(String::new, |stage| format!(", {}", stage.name));
            status!("  seed {:<4} {:>7.1} s, {}{how}", attempt.seed, attempt.seconds, work(attempt));
        }
    } else if trained.is_success() {
        let seconds: f64 = attempts.iter().map(|attempt| attempt.seconds).sum();
        let tried = match attempts.len() {
            1 => String::new(),
            n => format!(" (attempt {n})"),
        };
        let memorised = kept.stages.last().is_some_and(|stage| stage.name == "construction");
        let verb = if memorised { "Made" } else { "Learned" };
        status!(
            "{verb}: seed {}{tried}, after {}; {seconds:.1} s of training in total",
            kept.seed,
            work(kept)
        );
    } else {
        let count = match attempts.len() {
            1 => format!("seed {}", kept.seed),
            n => format!("{n} seeds"),
        };
        let hard = kept.best.as_ref().map_or(f64::NAN, |best| best.hard);
        status!("Not learned with {count}; at best {hard} bits are wrong (seed {}).", kept.seed);
        for line in advice::advice(loaded, &trained.automaton, hard) {
            status!("{line}");
        }
    }
    if trained.is_success() && kept.stages.is_empty() {
        status!("Gradient descent alone was enough: no search, no repair");
    }
    print_stages(&kept.stages, loaded.target.is_rule());
    status!("Gates of a cell: {}, without wires, inverters and duplicates", trained.gates.used);
    let run = folder.path().display().to_string();
    status!("Run folder: {run}");
    status!("  {run}/experiment.toml the settings, to edit and train again with another --out");
    if finished.gif_error.is_none() {
        status!("  {run}/rollout.gif     a simulation");
    }
    status!("  {run}/loss.svg        soft and hard loss");
    let Experiment { automaton, start, .. } = experiment;
    // A pattern from random states should be stable; a picture is complete at its step only.
    let steps = if *start == Start::Random { (automaton.steps * 4).max(100) } else { automaton.steps };
    let (program, run) = (program(), quoted(&run));
    status!("Next: {program} evaluate {run}");
    status!("      {program} simulate {run} --size 64x64 --steps {steps} --gif big.gif");
}

/// Prints the wrong bits after each stage, and what the last stage did.
fn print_stages(stages: &[Stage], is_rule: bool) {
    let Some(last) = stages.last() else { return };
    let share = |stage: &Stage| {
        let name = if stage.name == "descent" { "gradient descent" } else { &stage.name };
        format!("{} after {name}", stage.wrong)
    };
    let all: Vec<String> = stages.iter().map(share).collect();
    status!("Wrong bits of {}: {}", last.of, all.join(", "));
    match last.name.as_str() {
        "repair" => {
            let before = stages.iter().rev().nth(1).map_or(0, |stage| stage.wrong);
            let percent = 100.0 * before as f64 / last.of.max(1) as f64;
            status!("  repair: a formula corrects the wrong bits ({percent:.0} % of all are memorised)");
        }
        "construction" if is_rule => {
            status!("  construction: the circuit is that of the given rule; nothing of it was learned");
        }
        "construction" => {
            status!(
                "  construction: made from the target, because the search did not find a smaller or a right circuit;"
            );
            status!(
                "  cells count their coordinates in hidden channels and look the target up (all bits are memorised)"
            );
        }
        _ => {}
    }
}
