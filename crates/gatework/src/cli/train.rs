//! `gatework train`: trains an experiment into a run folder.

use std::path::{Path, PathBuf};

use clap::Args;
use gatework_forecast::experiment::ForecastExperiment;
use gatework_forecast::run as forecast_run;
use gatework_gates::automata::advice;
use gatework_gates::automata::choose::{self, Chosen};
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment, Recipe};
use gatework_gates::automata::inference;
use gatework_gates::automata::picture::Colours;
use gatework_gates::automata::run::{self, RunError, Trained};
use gatework_gates::automata::search::{CLOCK, CONSTRUCTION, INFERENCE, REPAIR};
use gatework_gates::automata::states::{Start, Target};
use gatework_gates::classifier::choose::{self as classifier_choose, is_data};
use gatework_gates::classifier::experiment::{ClassifierExperiment, Files, TestData};
use gatework_train::run_folder::{RunFolder, RunFolderError};
use gatework_train::trainer::{Attempt, Outcome, Stage};
use serde_json::Value;

use super::{Choices, Usage, classifier, forecaster, program, quoted, resume_command};
use crate::experiment;
use crate::labelled_data::{self, Data};
use crate::progress::{Progress, work};
use crate::runs::{self, AutomatonRun};
use crate::training::{Begun, ForecasterRun, Notice, Request};

/// Train an experiment: a built-in one, your own TOML file, labelled data, a picture or a rule
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework train checkerboard
  gatework train lizard --seed 3 --out runs/third-lizard
  gatework list checkerboard > my.toml; gatework train my.toml
  gatework train heart.png
  gatework train B36/S23
  gatework train digits --seeds 10
  gatework train flowers.csv --label species
  gatework train folder-of-images/
  gatework train airpassengers
  gatework train checkerboard --resume")]
pub struct Train {
    /// A name from `gatework list`, a TOML file, a picture (PNG or text), a rule (B36/S23, B2/S/C3, rule:110), or the data of a classifier: a CSV file, IDX images, a CIFAR batch, or a folder with one folder of PNG files per class
    #[arg(value_name = "NAME|FILE|RULE")]
    experiment: String,
    /// Data of a classifier: the column of the classes [default: class, label or target, or the last one]
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// Data of a classifier: the share of the rows that is held back for testing, or a file or folder of test data [default: 0.2, or test files beside the images]
    #[arg(long, value_name = "SHARE|FILE")]
    test: Option<String>,
    /// Forecasters: steps to forecast, instead of those of the experiment
    #[arg(long, value_name = "N", value_parser = parse_horizon)]
    horizon: Option<usize>,
    /// Automata: train by gradient descent alone, or follow it by a search
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
    #[arg(short, long, alias = "output", value_name = "DIR")]
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
    ("gradient", "Gradient descent that begins with softer gates", Recipe::Gradient),
    ("search", "Some gradient descent, then a search on the circuit", Recipe::Search),
];

impl Train {
    pub fn run(&self) -> anyhow::Result<()> {
        let path = Path::new(&self.experiment);
        let is_built_in = experiment::built_in().any(|(name, _)| name == self.experiment);
        if !is_built_in && path.join("experiment.toml").is_file() {
            let message = format!(
                "{} is a run folder; resume it with: {}; or train its experiment.toml with another --out",
                path.display(),
                resume_command(path)
            );
            return Err(Usage(message).into());
        }
        let job = Job {
            request: &self.experiment,
            recipe: self.recipe,
            horizon: self.horizon,
            options: &self.options,
        };
        if !is_built_in && (is_table(&self.experiment) || is_data(path)) {
            let summary = job.train_classifier(self.labelled_data(path)?)?;
            return if self.options.json { super::print_json(&summary) } else { Ok(()) };
        }
        let options = [(self.label.is_some(), "--label"), (self.test.is_some(), "--test")];
        super::refuse(&options, "the data of a classifier", "something else")?;
        if choose::is_picture(path) {
            super::refuse(&[(self.horizon.is_some(), "--horizon")], "forecasters", "an automaton")?;
            let chosen = choose::picture(path)?;
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

    /// Chooses an experiment for the data of a classifier, and says what was chosen; an error for values over time.
    fn labelled_data(&self, path: &Path) -> anyhow::Result<ClassifierExperiment> {
        let is_classifier = self.label.is_some() || self.test.is_some();
        if is_table(&self.experiment)
            && !is_classifier
            && (self.horizon.is_some() || path.is_file() && !is_data(path))
        {
            return Err(self.over_time("is a table, not an experiment").into());
        }
        if !path.exists() {
            return Err(Usage(format!("{} does not exist", self.experiment)).into());
        }
        if !is_data(path) {
            return Err(Usage(format!(
                "{} cannot be read for a classifier; write it as CSV",
                self.experiment
            ))
            .into());
        }
        let options = [(self.recipe.is_some(), "--recipe"), (self.options.hidden, "--hidden")];
        super::refuse(&options, "automata", "a classifier")?;
        super::refuse(&[(self.horizon.is_some(), "--horizon")], "forecasters", "a classifier")?;
        let test = self.test.as_deref().map(|test| match test.parse() {
            Ok(share) => TestData::Share(share),
            Err(_) => TestData::Files(Files::One(test.to_string())),
        });
        let request = classifier_choose::Request { label: self.label.clone(), test };
        match labelled_data::examine(path, &request)? {
            Data::Labelled(labelled) => {
                classifier::print_chosen(&self.experiment, &labelled);
                Ok(labelled.loaded)
            }
            Data::OverTime { times, label } => {
                let Usage(message) = self.over_time(&format!("is a table with times in {times:?}"));
                let classify = label.map_or_else(
                    || "--label names the column of the classes".to_string(),
                    |label| {
                        format!("{} train {} --label {}", program(), quoted(&self.experiment), quoted(&label))
                    },
                );
                Err(Usage(format!("{message}; to learn classes: {classify}")).into())
            }
        }
    }

    /// The error for values over time, which says how they are forecast.
    fn over_time(&self, what: &str) -> Usage {
        let (name, horizon) = (&self.experiment, self.horizon.unwrap_or(28));
        Usage(format!(
            "{name} {what}; to forecast it without an experiment: {} forecast {} --horizon {horizon}; to train a forecaster of \
             your choice, name the table in a TOML file (data = {name:?})",
            program(),
            quoted(name)
        ))
    }
}

/// Returns whether a name is that of a file of rows and columns.
pub(super) fn is_table(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".csv", ".csv.gz", ".tsv", ".parquet"].iter().any(|ending| name.ends_with(ending))
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

    fn train_automaton(&self, loaded: AutomatonExperiment) -> anyhow::Result<Value> {
        let (folder, loaded) = match self.request().begin_automaton(loaded, &print_notice)? {
            Begun::Finished(folder, summary) => return Ok(print_finished(&folder, summary)),
            Begun::Ready(ready) => ready,
        };
        let stop = super::stop_on_interrupt()?;
        let threads = super::threads(self.options.threads);
        let finished = {
            let progress = Progress::new(loaded.experiment.updates(), loaded.compared_bits());
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

    fn train_classifier(&self, loaded: ClassifierExperiment) -> anyhow::Result<Value> {
        let (folder, loaded, prepared) = match self.request().begin_classifier(loaded, &print_notice)? {
            Begun::Finished(folder, summary) => return Ok(print_finished(&folder, summary)),
            Begun::Ready(ready) => ready,
        };
        let threads = super::threads(self.options.threads);
        classifier::train(&folder, &loaded, &prepared, threads, &*super::stop_on_interrupt()?)
    }

    fn train_forecaster(&self, loaded: ForecastExperiment) -> anyhow::Result<Value> {
        let ready = match self.request().begin_forecaster(loaded, &print_notice)? {
            Begun::Finished(folder, summary) => return Ok(print_finished(&folder, summary)),
            Begun::Ready(ready) => ready,
        };
        let ForecasterRun { folder, loaded, dataset, seeds, .. } = ready;
        let (experiment, threads) = (&loaded.experiment, super::threads(self.options.threads));
        let job = forecast_run::Job { experiment, dataset: &dataset, folder: &folder, seeds, threads };
        forecaster::train(&job, &*super::stop_on_interrupt()?)
    }

    fn request(&self) -> Request<'_> {
        let Options { seed, seeds, updates, ref out, resume, force, .. } = *self.options;
        Request {
            experiment: self.request,
            recipe: self.recipe,
            horizon: self.horizon,
            seed,
            seeds,
            updates,
            out: out.as_deref(),
            resume,
            replace: force,
        }
    }
}

/// Prints what a run reports before it trains.
fn print_notice(notice: Notice<'_>) {
    match notice {
        Notice::NothingToResume(path) => {
            status!("There is nothing to resume in {}: a new run starts", path.display());
        }
        Notice::Warning(warning) => status!("warning: {warning}"),
        Notice::Prepared(prepared) => classifier::print_data(prepared),
        Notice::Replaced { path, aside } => {
            status!("The previous run in {} was renamed to {}", path.display(), aside.display());
        }
    }
}

/// Parses a number of steps.
pub(super) fn parse_horizon(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| "expected a number of steps above 0".into())
}

/// Says that a run is finished, and returns its summary.
fn print_finished(folder: &RunFolder, summary: Value) -> Value {
    status!("{} is finished; --force starts a new run", folder.path().display());
    summary
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
        let memorised = kept.stages.iter().any(|stage| stage.name == CONSTRUCTION);
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
    print_stages(&kept.stages, loaded);
    print_properties(loaded, trained);
    status!("Gates of a cell: {}, without wires, inverters and duplicates", trained.gates.used);
    let run = folder.path().display().to_string();
    status!("Run folder: {run}");
    status!("  {run}/experiment.toml  the settings, to edit and train again with another --out");
    status!("  {run}/circuit.json     the circuit");
    if finished.gif_error.is_none() {
        status!("  {run}/rollout.gif      a simulation");
    }
    status!("  {run}/loss.svg         soft and hard loss");
    let Experiment { automaton, start, .. } = experiment;
    // A pattern from random states should be stable; a picture is complete at its step only.
    let steps = if *start == Start::Random { (automaton.steps * 4).max(100) } else { automaton.steps };
    let (program, run) = (program(), quoted(&run));
    status!("Next: {program} evaluate {run}");
    status!("      {program} simulate {run} --size 64x64 --steps {steps} --gif big.gif");
    status!("      {program} minimize {run}");
    status!("      {program} export {run} --minimize -o page.html");
}

/// Prints the wrong bits after each stage, and what the last stage did.
fn print_stages(stages: &[Stage], loaded: &AutomatonExperiment) {
    let Some(last) = stages.last() else { return };
    let share = |stage: &Stage| {
        let name = if stage.name == "descent" { "gradient descent" } else { &stage.name };
        format!("{} after {name}", stage.wrong)
    };
    let all: Vec<String> = stages.iter().map(share).collect();
    status!("Wrong bits of {}: {}", last.of, all.join(", "));
    for stage in stages {
        match stage.name.as_str() {
            REPAIR => {
                let percent = 100.0 * run::memorised(stages);
                status!("  repair: a formula corrects the wrong bits ({percent:.0} % of all are memorised)");
            }
            CLOCK => {
                status!("  clock: hidden channels count the steps and stop the cells after the last one");
            }
            INFERENCE => print_inferred(loaded),
            CONSTRUCTION if loaded.target.is_rule() => {
                status!("  construction: the circuit is that of the given rule; nothing of it was learned");
            }
            CONSTRUCTION => {
                let is_smaller = loaded.experiment.start != Start::Random;
                let why = match stages.iter().rev().find(|stage| stage.name == "search") {
                    Some(search) if search.wrong == 0 && !is_smaller => {
                        "because what the search found is right on its own grids only"
                    }
                    _ => "because the search did not find a smaller or a right circuit",
                };
                status!("  construction: made from the target, {why};");
                status!(
                    "  cells count their coordinates in hidden channels and look the target up (all bits are memorised)"
                );
            }
            _ => {}
        }
    }
}

/// Prints the rule that pairs of grids follow.
fn print_inferred(loaded: &AutomatonExperiment) {
    let Target::Pairs(pairs) = &loaded.target else { return };
    let settings = &loaded.experiment.automaton;
    let Some(found) = inference::infer(pairs, settings.boundary, settings.steps) else { return };
    status!(
        "  inference: the pairs follow a rule of the {} family, {}; they show {} of its {} cases, and the others are 0",
        found.family,
        found.rule.name(),
        found.known,
        found.cases
    );
}

/// Prints whether a picture or pattern stays, heals and so on.
fn print_properties(loaded: &AutomatonExperiment, trained: &Trained) {
    for finding in trained.properties.iter().filter(|finding| finding.asked || trained.is_success()) {
        status!("{}", finding.sentence());
        if finding.property == "stay" && !finding.holds && !finding.asked {
            let how = if matches!(loaded.target, Target::Picture(_)) { "--stay of grow, or " } else { "" };
            status!("  {how}stay = true in [success] asks for it");
        }
    }
}
