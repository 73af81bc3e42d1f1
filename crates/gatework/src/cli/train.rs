//! `gatework train`: from an experiment to a run folder.

pub mod forecaster;
pub mod seeds;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::experiment;
use anyhow::Context as _;
use clap::Args;
use gatework_engine::parallel;
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment, MOST_MEMORY, Recipe};
use gatework_gates::automata::model::Model;
use gatework_gates::automata::states::{Start, TargetSpec};
use gatework_gates::automata::task::AutomatonTask;
use gatework_gates::kernel::LANES;
use gatework_logic::{Document, from_json, to_json};
use gatework_train::files;
use gatework_train::trainer::{self, Attempt, Best, Options, Outcome};
use serde_json::json;

use super::simulate;
use crate::folder::{RunFolder, program};
use crate::progress::{Progress, work};
use crate::report::{self, LossPoint};
use crate::subject::Subject;
use crate::usage::Usage;

/// Train an experiment: built-in, or your own TOML file
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
    /// Run exactly this seed, once, to its end or to success
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run this many seeds, each to its end or to success, and print how many succeed; of a forecaster, mean and spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Updates of a seed at most, epochs of a forecaster, instead of what the experiment says
    #[arg(long, alias = "epochs", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Forecasters: steps to forecast, instead of what the experiment says
    #[arg(long, value_name = "N", value_parser = parse_horizon)]
    horizon: Option<usize>,
    /// What automata are trained with: the paper's gradient descent alone, or followed by a search
    #[arg(long, value_enum)]
    recipe: Option<RecipeName>,
    /// The run folder [default: runs/NAME, or the next free runs/NAME-2, ...]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with a run that was stopped
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Put a new run in the place of the one in --out, which is kept as DIR.old, or the next free DIR.old-2, ...
    #[arg(long)]
    force: bool,
    /// Threads to use [default: all]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = super::parse_threads)]
    threads: Option<usize>,
    /// Automata: show the hidden channels too in rollout.gif
    #[arg(long)]
    hidden: bool,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A recipe, as the command line names it.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RecipeName {
    /// Gradient descent as in the paper
    Paper,
    /// The same for a while, then a search on the circuit
    Search,
}

impl RecipeName {
    fn recipe(self) -> Recipe {
        match self {
            RecipeName::Paper => Recipe::Paper,
            RecipeName::Search => Recipe::Search,
        }
    }
}

impl Train {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut loaded = match experiment::Loaded::find(&self.experiment)? {
            experiment::Loaded::Automaton(loaded) => *loaded,
            experiment::Loaded::Forecaster(loaded) => {
                self.refuse_for_forecasters()?;
                return forecaster::train(self, *loaded);
            }
        };
        if self.horizon.is_some() {
            return Err(Usage("--horizon is for forecasters; this is an automaton".into()).into());
        }
        self.override_settings(&mut loaded)?;
        let folder = self.folder(&loaded.experiment.name)?;
        if self.resume {
            loaded = check_same(&folder, &loaded.experiment)?;
            folder.complete(&loaded.experiment)?;
        } else {
            let from = Path::new(&self.experiment).parent().unwrap_or(Path::new("."));
            loaded.experiment = folder.write_experiment(&loaded.experiment, from)?;
        }
        // A run whose files are damaged is brought to its end again, from its checkpoints.
        let summary = match folder.summary_if_whole().filter(|_| is_whole(folder.path())) {
            Some(summary) => {
                say!("{} is finished; --force starts it anew", folder.path().display());
                summary
            }
            None => self.train(&loaded, &folder)?,
        };
        if self.json {
            super::print_json(&summary)?;
        }
        Ok(())
    }

    /// An error if there is an option that forecasters have no use for.
    fn refuse_for_forecasters(&self) -> anyhow::Result<()> {
        for (is_given, option) in [(self.recipe.is_some(), "--recipe"), (self.hidden, "--hidden")] {
            if is_given {
                return Err(Usage(format!("{option} is for automata; this is a forecaster")).into());
            }
        }
        Ok(())
    }

    /// Puts what the command line says in the place of what the experiment says, and checks the result.
    fn override_settings(&self, loaded: &mut AutomatonExperiment) -> anyhow::Result<()> {
        let experiment = &mut loaded.experiment;
        if let Some(updates) = self.updates {
            experiment.training.updates = updates;
            if let Some(search) = &mut experiment.search {
                search.after = updates;
            }
        }
        if let Some(recipe) = self.recipe {
            experiment.training.recipe = recipe.recipe();
            if recipe.recipe() == Recipe::Search && experiment.search.is_none() {
                return Err(Usage(format!("{} has no [search] table", self.experiment)).into());
            }
        }
        if self.seed.is_some() || self.seeds.is_some() {
            (experiment.seed, experiment.seeds) = (self.seed, self.seeds);
        }
        Ok(loaded.check(&self.experiment)?)
    }

    /// Trains until there is a winner, all seeds are used or Ctrl-C is pressed, writes what came out and returns the
    /// summary.
    fn train(&self, loaded: &AutomatonExperiment, folder: &RunFolder) -> anyhow::Result<serde_json::Value> {
        let options = self.options(&loaded.experiment, folder);
        let attempts = {
            let stop = stop_on_interrupt()?;
            let progress = Progress::new(loaded.experiment.updates());
            let make = |seed| AutomatonTask::new(loaded, seed);
            trainer::run(&options, make, &progress, &stop)?
        };
        folder.write_metrics(&attempts, &options.settings.rate, options.settings.updates)?;
        if !options.are_met_by(&attempts) {
            let anew = match loaded.experiment.search() {
                Some(_) => " A search that was stopped begins again where gradient descent ended.",
                None => "",
            };
            anyhow::bail!("stopped; a checkpoint is written.{anew} Go on with: {}", folder.resume_command());
        }
        let report = Report { loaded, folder, attempts: &attempts, hidden: self.hidden };
        report.write(!options.until_success)
    }

    fn folder(&self, experiment: &str) -> anyhow::Result<RunFolder> {
        let out = self.out.as_deref();
        // A file is known by its own name: a copied experiment may still have the name of the original. The copy in a
        // run folder has no name of its own.
        let is_file = Path::new(&self.experiment).is_file();
        let stem = Path::new(&self.experiment).file_stem().filter(|stem| is_file && *stem != "experiment");
        let name = stem.map_or(experiment.into(), |stem| stem.to_string_lossy());
        if self.resume { RunFolder::resume(out, &name) } else { RunFolder::create(out, &name, self.force) }
    }

    fn options(&self, experiment: &Experiment, folder: &RunFolder) -> Options {
        let training = &experiment.training;
        let threads = super::threads(self.threads);
        let seeds: Vec<u64> = match (experiment.seed, experiment.seeds) {
            (_, Some(n)) => (1..=n).collect(),
            (Some(seed), None) => vec![seed],
            (None, None) => (1..=training.restarts + 1).collect(),
        };
        // One seed takes the threads that its work is worth; what is left goes to seeds beside it.
        let cells = experiment.automaton.grid.iter().product::<usize>() * training.batch;
        let tiles = cells.div_ceil(LANES);
        let useful = parallel::parts(tiles, tiles.saturating_mul(experiment.automaton.steps)).min(threads);
        let threads_each = if experiment.seeds.is_some() { 1 } else { useful };
        let room = (MOST_MEMORY / experiment.memory()) as usize;
        Options {
            settings: experiment.trainer_settings(),
            side_by_side: (threads / threads_each).min(room).min(seeds.len()),
            threads_each,
            until_success: experiment.seeds.is_none(),
            seeds,
            checkpoints: Some(folder.checkpoints()),
            interval: Duration::from_secs_f64(training.checkpoint_seconds),
        }
    }
}

/// What a folder that is resumed has to run: the same as was asked for.
fn check_same(folder: &RunFolder, asked: &Experiment) -> anyhow::Result<AutomatonExperiment> {
    let there = folder.experiment()?;
    let mut comparable = asked.clone();
    if matches!(asked.target, TargetSpec::Text { .. } | TargetSpec::Png { .. }) {
        // The folder has a copy of the picture under a name of its own.
        comparable.target = there.experiment.target.clone();
    }
    if asked.seed.is_none() && asked.seeds.is_none() {
        (comparable.seed, comparable.seeds) = (there.experiment.seed, there.experiment.seeds);
    } else if asked.seeds.is_some() {
        comparable.seed = there.experiment.seed;
    }
    if comparable != there.experiment {
        let (path, name) = (folder.path().display(), &there.experiment.name);
        let other = difference(&json!(there.experiment), &json!(comparable)).unwrap_or_default();
        let message = format!("{path} belongs to another experiment ({name}): {other}");
        return Err(Usage(message).into());
    }
    Ok(there)
}

/// The first setting in which two tables differ, and how.
fn difference(there: &serde_json::Value, asked: &serde_json::Value) -> Option<String> {
    let (Some(a), Some(b)) = (there.as_object(), asked.as_object()) else {
        return (there != asked).then(|| format!(" was {there} there, is {asked} here"));
    };
    let key = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key))?;
    let missing = serde_json::Value::Null;
    let inner = difference(a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing))?;
    let dot = if inner.starts_with(' ') { "" } else { "." };
    Some(format!("{key}{dot}{inner}"))
}

/// Whether the files that a run ends with can be read.
fn is_whole(run: &Path) -> bool {
    let circuit = files::read_text(&run.join("circuit.json"));
    Subject::open(run).is_ok() && circuit.is_ok_and(|text| from_json(&text).is_ok())
}

/// Parses a number of steps.
fn parse_horizon(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| "a number of steps above 0".into())
}

/// Set by Ctrl-C. A second one ends the program at once.
pub fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("cannot listen to Ctrl-C")?;
    Ok(stop)
}

/// What is written when training has ended.
struct Report<'a> {
    loaded: &'a AutomatonExperiment,
    folder: &'a RunFolder,
    attempts: &'a [Attempt],
    hidden: bool,
}

impl Report<'_> {
    /// The attempt that is kept: the first success, or else that with the lowest hard loss.
    fn kept(&self) -> anyhow::Result<(&Attempt, &Best)> {
        let succeeded = self.attempts.iter().find(|a| a.outcome == Outcome::Succeeded);
        let by_loss = |a: &&Attempt, b: &&Attempt| {
            let hard = |attempt: &Attempt| attempt.best.as_ref().map_or(f64::INFINITY, |best| best.hard);
            hard(a).total_cmp(&hard(b))
        };
        let kept = succeeded.or_else(|| self.attempts.iter().min_by(by_loss));
        kept.and_then(|kept| Some((kept, kept.best.as_ref()?))).context("no update was made")
    }

    fn write(&self, all_seeds: bool) -> anyhow::Result<serde_json::Value> {
        let (kept, best) = self.kept()?;
        let experiment = &self.loaded.experiment;
        let model =
            Model::of_best(&experiment.model_shape(), kept.seed, best).map_err(anyhow::Error::from_boxed)?;
        let automaton = model.harden();
        let observed = self.loaded.target.channels();
        let gates = model.gate_counts(observed);

        let points: Vec<LossPoint> = kept
            .metrics
            .iter()
            .enumerate()
            .map(|(update, m)| LossPoint {
                update: update as u64,
                soft: m.soft,
                hard: m.hard.unwrap_or(f64::NAN),
            })
            .chain(kept.trace.iter().map(|&(moves, hard)| LossPoint {
                update: kept.update + moves,
                soft: f64::NAN,
                hard,
            }))
            .collect();
        let title = format!("{}, seed {}", experiment.name, kept.seed);
        let histogram = simulate::histogram(&model.functions());
        let gif = simulate::training_gif(self.loaded, &automaton, kept.seed, self.hidden);
        let document = Document::Automaton { automaton, observed: Some(observed) };
        self.folder.write("model.safetensors", &model.to_bytes())?;
        self.folder.write("circuit.json", to_json(&document).as_bytes())?;
        self.folder.write(
            "loss.svg",
            report::loss_plot(&title, &points, (kept.moves > 0).then_some(kept.update)).as_bytes(),
        )?;
        self.folder.write("gates.svg", report::gate_histogram(&title, &histogram).as_bytes())?;
        match gif {
            Ok(gif) => self.folder.write("rollout.gif", &gif)?,
            Err(error) => say!("no rollout.gif: {error:#}"),
        }

        let seconds: f64 = self.attempts.iter().map(|a| a.seconds).sum();
        let mut summary = json!({
            "experiment": experiment.name,
            "seed": kept.seed,
            "success": kept.outcome == Outcome::Succeeded,
            "attempts": self.attempts.len(),
            "updates": kept.update,
            "moves": kept.moves,
            "seconds": seconds,
            "soft_loss": best.soft,
            "hard_loss": best.hard,
            "first_perfect_update": kept.first_perfect,
            "gates": gates,
            "run": self.folder.path(),
        });
        if all_seeds {
            summary["seeds"] = self.seed_table();
        }
        self.folder.finish(experiment, &summary)?;
        self.tell(kept, best, &summary, all_seeds);
        Ok(summary)
    }

    fn seed_table(&self) -> serde_json::Value {
        let row = |a: &Attempt| {
            json!({
                "seed": a.seed,
                "success": a.outcome == Outcome::Succeeded,
                "updates": a.update,
                "moves": a.moves,
                "seconds": a.seconds,
                "first_perfect_update": a.first_perfect,
                "best_hard_loss": a.best.as_ref().map(|best| best.hard),
            })
        };
        self.attempts.iter().map(row).collect()
    }

    /// The summary for people.
    fn tell(&self, kept: &Attempt, best: &Best, summary: &serde_json::Value, all_seeds: bool) {
        let run = self.folder.path().display();
        let gates = &summary["gates"];
        if all_seeds {
            let won: Vec<&Attempt> =
                self.attempts.iter().filter(|a| a.outcome == Outcome::Succeeded).collect();
            say!("\n{} of {} seeds succeeded", won.len(), self.attempts.len());
            for a in &won {
                say!("  seed {:<4} {:>7.1} s, {}", a.seed, a.seconds, work(a));
            }
        } else if kept.outcome == Outcome::Succeeded {
            let seconds: f64 = self.attempts.iter().map(|a| a.seconds).sum();
            let tried = match self.attempts.len() {
                1 => String::new(),
                n => format!(", number {n} of those tried"),
            };
            say!(
                "\nLearned: seed {}{tried}, after {}; {seconds:.1} s of training in all",
                kept.seed,
                work(kept)
            );
        } else {
            let count = match self.attempts.len() {
                1 => format!("seed {}", kept.seed),
                n => format!("{n} seeds"),
            };
            say!("\nNot learned with {count}; the best hard loss is {} (seed {}).", best.hard, kept.seed);
            if best.hard == 0.0 {
                say!("No bit was wrong, but not for long enough, or not on fresh start states.");
            }
            say!(
                "Try another --seed, more --updates, or more training.restarts in a copy of the experiment."
            );
        }
        say!(
            "Gates: {} in all, {} active, {} reachable",
            gates["total"],
            gates["active"],
            gates["reachable"]
        );
        say!("Run folder: {run}");
        say!("  {run}/rollout.gif     the rule at work");
        say!("  {run}/loss.svg        soft and hard loss");
        let Experiment { automaton, start, .. } = &self.loaded.experiment;
        // A pattern that comes from noise should stay; a picture is there at its step and then goes on.
        let steps = if *start == Start::Random { (automaton.steps * 4).max(100) } else { automaton.steps };
        let program = program();
        say!("Next: {program} evaluate {run}");
        say!("      {program} simulate {run} --size 64x64 --steps {steps} --gif big.gif");
    }
}
