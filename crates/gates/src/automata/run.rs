//! Training runs of automata: an experiment trained in memory or into a run folder, and run folders opened again.
//!
//! In addition to the files of every [`RunFolder`], the run of an automaton has `circuit.json`, the hardened circuit, and
//! `target.txt` or `target.png`, a copy of the picture that the experiment refers to.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use gatework_gates::automata::{experiment::AutomatonExperiment, run};
//! use gatework_train::trainer::Quiet;
//!
//! let loaded = AutomatonExperiment::find("checkerboard")?;
//! let trained = run::train(&loaded, None, 2, &Quiet, &AtomicBool::new(false))?;
//! println!("learned: {}, gates: {}", trained.is_success(), trained.gates.active);
//! # Ok::<(), run::RunError>(())
//! ```

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_engine::parallel;
use gatework_logic::{Automaton, Document, from_json, to_json};
use gatework_train::experiment::ExperimentError;
use gatework_train::files::{self, FileError};
use gatework_train::memory;
use gatework_train::run_folder::{self, RunFolder, RunFolderError};
use gatework_train::trainer::{
    self, Attempt, Best, Observer, Options, Outcome, Stage, TaskError, TrainError,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::experiment::{AutomatonExperiment, Experiment, MAX_MEMORY};
use super::model::{GateCounts, Model, ModelError};
use super::search::{CONSTRUCTION, REPAIR};
use super::success::{self, Finding};
use super::task::AutomatonTask;
use crate::kernel::LANES;

/// A run that cannot be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The experiment is not valid.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// Training failed.
    #[error(transparent)]
    Training(#[from] TrainError),
    /// The model file is not valid.
    #[error("{}: {error}", path.display())]
    Model {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        error: ModelError,
    },
    /// The best parameters do not form a model.
    #[error("the result of training is not a model: {0}")]
    Result(TaskError),
    /// Training in memory was interrupted.
    #[error("training was interrupted")]
    Interrupted,
    /// Training ended before its first update.
    #[error("no update was made")]
    NoUpdate,
}

impl RunError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            RunError::Folder(error) => error.is_usage(),
            RunError::Experiment(_) => true,
            _ => false,
        }
    }
}

/// A trained automaton.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trained {
    /// One attempt per seed, up to the first success.
    pub attempts: Vec<Attempt>,
    /// The index in `attempts` of the one that was kept.
    kept_index: usize,
    /// The kept model.
    pub model: Model,
    /// The kept model as a circuit.
    pub automaton: Automaton,
    /// The number of leading channels that the target describes.
    pub observed: usize,
    /// The gates of the kept model.
    pub gates: GateCounts,
    /// What is known of the kept model after its step: whether it stays, heals and so on.
    pub properties: Vec<Finding>,
}

impl Trained {
    /// Returns the attempt that was kept: the first success, or else that with the lowest hard loss.
    pub fn kept(&self) -> &Attempt {
        &self.attempts[self.kept_index]
    }

    /// Returns whether the automaton reproduces the target on start states that it was not trained on.
    pub fn is_success(&self) -> bool {
        self.kept().outcome == Outcome::Succeeded
    }

    /// Returns the circuit with its channels, as `circuit.json` and the export formats hold it.
    pub fn document(&self) -> Document {
        Document::Automaton { automaton: self.automaton.clone(), observed: Some(self.observed) }
    }
}

/// The result of a run, as `summary.json` holds it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The version of the run folder.
    pub version: u64,
    /// The name of the experiment.
    pub experiment: String,
    /// The seed that was kept.
    pub seed: u64,
    /// Whether it succeeded.
    pub success: bool,
    /// The number of seeds that were tried.
    pub attempts: usize,
    /// The updates of the kept seed.
    pub updates: u64,
    /// The search moves of the kept seed.
    pub moves: u64,
    /// Seconds of training, summed over all seeds.
    pub seconds: f64,
    /// The soft loss of the kept model.
    pub soft_loss: f64,
    /// The hard loss of the kept model.
    pub hard_loss: f64,
    /// The first update of the kept seed with hard loss 0.
    pub first_perfect_update: Option<u64>,
    /// The gates of the kept model.
    pub gates: GateCounts,
    /// The wrong bits after each stage of the kept seed, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// The share of the target's bits that were memorised, not learned: those that the repair corrected, or all of an automaton
    /// that was made from the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memorised: Option<f64>,
    /// Whether a picture or pattern stays, heals and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Finding>,
    /// The run folder.
    pub run: std::path::PathBuf,
    /// One entry per seed, if several were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Vec<SeedSummary>>,
}

/// The result of one seed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SeedSummary {
    /// The seed.
    pub seed: u64,
    /// Whether it succeeded.
    pub success: bool,
    /// Its updates.
    pub updates: u64,
    /// Its search moves.
    pub moves: u64,
    /// Its seconds of training.
    pub seconds: f64,
    /// Its first update with hard loss 0.
    pub first_perfect_update: Option<u64>,
    /// Its lowest hard loss.
    pub best_hard_loss: Option<f64>,
}

/// Begins a run in a new folder, which [`RunFolder::create`] makes: writes the experiment, with a copy of the picture that it
/// refers to, so that the folder is self-contained. `source` is the folder that the path of the picture is relative to.
pub fn begin(
    path: &Path,
    replace: bool,
    mut loaded: AutomatonExperiment,
    source: &Path,
) -> Result<(RunFolder, AutomatonExperiment), RunError> {
    let mut picture = None;
    if let Some(file) = loaded.experiment.target.file() {
        let content = files::read(&source.join(file))?;
        let name = copied_name(file);
        loaded.experiment.target.set_file(&name);
        picture = Some((name, content));
    }
    let experiment = loaded.experiment.to_toml();
    let picture: Vec<(&str, &[u8])> = picture.iter().map(|(name, content)| (&**name, &content[..])).collect();
    let folder = RunFolder::create(path, replace, &experiment, &picture)?;
    files::make_folder(&folder.checkpoints())?;
    Ok((folder, loaded))
}

/// The name of the copy of a target's file: its extension tells its format.
fn copied_name(file: &str) -> String {
    let extension = Path::new(file).extension().and_then(std::ffi::OsStr::to_str);
    let is_plain = |text: &&str| text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    format!("target.{}", extension.filter(is_plain).unwrap_or("txt"))
}

/// Prepares to resume a run: checks that the folder holds the requested experiment, returns the experiment of the folder, and
/// completes a run that was killed while it ended. The texts `about` and `expected` are not compared.
pub fn resume(folder: &RunFolder, requested: &Experiment) -> Result<AutomatonExperiment, RunError> {
    let found = AutomatonExperiment::read(&folder.experiment())?;
    let mut comparable = Experiment {
        about: found.experiment.about.clone(),
        expected: found.experiment.expected.clone(),
        ..requested.clone()
    };
    if requested.target.file().is_some() && found.experiment.target.file().is_some() {
        // The folder has a copy of the file under another name.
        comparable.target.set_file(found.experiment.target.file().unwrap_or_default());
    }
    if requested.seed.is_none() && requested.seeds.is_none() {
        (comparable.seed, comparable.seeds) = (found.experiment.seed, found.experiment.seeds);
    } else if requested.seeds.is_some() {
        comparable.seed = found.experiment.seed;
    }
    if comparable != found.experiment {
        let difference = difference(&json!(found.experiment), &json!(comparable)).unwrap_or_default();
        let (path, name) = (folder.path().to_path_buf(), found.experiment.name);
        return Err(RunFolderError::OtherExperiment { path, name, difference }.into());
    }
    complete(folder, &found.experiment)?;
    Ok(found)
}

/// Returns the summary of a run that is finished and whose files can be read. A run with damaged files is trained to its end
/// again, from its checkpoints. A run of a newer version is an error.
pub fn finished(folder: &RunFolder) -> Result<Option<Value>, RunError> {
    let summary = match folder.summary() {
        Err(error @ RunFolderError::Newer { .. }) => return Err(error.into()),
        summary => summary.ok().flatten(),
    };
    let Some(summary) = summary else { return Ok(None) };
    let circuit = files::read_text(&folder.path().join("circuit.json"));
    let is_whole = open(folder).is_ok() && circuit.is_ok_and(|text| from_json(&text).is_ok());
    Ok(is_whole.then_some(summary))
}

/// Opens a run: its experiment and its model.
pub fn open(folder: &RunFolder) -> Result<(AutomatonExperiment, Model), RunError> {
    if !folder.experiment().is_file() {
        return Err(RunFolderError::NotARun { path: folder.path().to_path_buf() }.into());
    }
    let loaded = AutomatonExperiment::read(&folder.experiment())?;
    let model = read_model(&folder.model()?)?;
    if !loaded.experiment.has_model_of(&model.shape) {
        return Err(RunFolderError::OtherModel { path: folder.path().to_path_buf() }.into());
    }
    Ok((loaded, model))
}

/// Reads a model file.
pub fn read_model(path: &Path) -> Result<Model, RunError> {
    Model::from_bytes(&files::read(path)?)
        .map_err(|error| RunError::Model { path: path.to_path_buf(), error })
}

/// Trains an experiment on up to `threads` threads, until a seed succeeds, all seeds are used, or `stop` is set.
///
/// With a folder, training starts from the checkpoints in it, and writes checkpoints, `metrics.csv`, `model.safetensors` and
/// `circuit.json`; [`finish`] then ends the run. The result does not depend on the number of threads.
pub fn train(
    loaded: &AutomatonExperiment,
    folder: Option<&RunFolder>,
    threads: usize,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Trained, RunError> {
    let options = options(&loaded.experiment, folder, threads);
    let attempts = trainer::run(&options, |seed| AutomatonTask::new(loaded, seed), observer, stop)?;
    if let Some(folder) = folder {
        folder
            .write("metrics.csv", metrics(&attempts, &options.settings, loaded.compared_bits()).as_bytes())?;
    }
    if !options.is_complete(&attempts) {
        return Err(folder.map_or(RunError::Interrupted, |folder| {
            RunFolderError::Interrupted { path: folder.path().to_path_buf() }.into()
        }));
    }
    let (kept_index, best) = kept(&attempts).ok_or(RunError::NoUpdate)?;
    let shape = loaded.experiment.model_shape();
    let model = Model::of_best(&shape, attempts[kept_index].seed, best).map_err(RunError::Result)?;
    let (automaton, observed) = (model.harden(), loaded.target.channels());
    let seed = attempts[kept_index].seed;
    let properties = success::report(loaded, &automaton, seed).map_err(RunError::Result)?;
    let gates = model.gate_counts(observed);
    let trained = Trained { attempts, kept_index, model, automaton, observed, gates, properties };
    if let Some(folder) = folder {
        folder.write("model.safetensors", &trained.model.to_bytes())?;
        folder.write("circuit.json", to_json(&trained.document()).as_bytes())?;
    }
    Ok(trained)
}

/// Ends a run: writes the summary, and the seed that was kept into the experiment.
pub fn finish(folder: &RunFolder, experiment: &Experiment, trained: &Trained) -> Result<Value, RunError> {
    let summary = serde_json::to_value(summary(folder, experiment, trained)).expect("all keys are strings");
    folder.stage_summary(&summary)?;
    complete(folder, experiment)?;
    Ok(summary)
}

/// Completes the end of a run, if its summary is staged.
fn complete(folder: &RunFolder, experiment: &Experiment) -> Result<(), RunError> {
    // A damaged one is written again at the end of the run.
    let Ok(Some(summary)) = folder.staged_summary() else { return Ok(()) };
    let experiment = Experiment { seed: summary["seed"].as_u64(), ..experiment.clone() };
    folder.write("experiment.toml", experiment.to_toml().as_bytes())?;
    Ok(folder.commit_summary()?)
}

/// The seeds, threads and checkpoints of a run.
fn options(experiment: &Experiment, folder: Option<&RunFolder>, threads: usize) -> Options {
    let (training, threads) = (&experiment.training, threads.max(1));
    let seeds: Vec<u64> = match (experiment.seed, experiment.seeds) {
        (_, Some(n)) => (1..=n).collect(),
        (Some(seed), None) => vec![seed],
        (None, None) => (1..=training.restarts + 1).collect(),
    };
    // A seed gets as many threads as its work can use; the remaining threads train further seeds at the same time.
    let cells = experiment.automaton.grid.iter().product::<usize>() * training.batch;
    let tiles = cells.div_ceil(LANES);
    let useful = parallel::chunk_count(tiles, tiles.saturating_mul(experiment.automaton.steps)).min(threads);
    let threads_per_attempt = if experiment.seeds.is_some() { 1 } else { useful };
    let concurrent = (threads / threads_per_attempt).min(seeds.len());
    Options {
        settings: experiment.trainer_settings(),
        concurrent_attempts: in_memory(concurrent, experiment.memory()),
        threads_per_attempt,
        until_success: experiment.seeds.is_none(),
        seeds,
        checkpoints: folder.map(RunFolder::checkpoints),
        interval: Duration::from_secs_f64(training.checkpoint_seconds),
    }
}

/// The number of concurrent attempts, at most `wanted` and at least 1, that fit into memory if each needs this many bytes.
pub(super) fn in_memory(wanted: usize, bytes: f64) -> usize {
    memory::concurrent(wanted, |count| {
        let all = count as f64 * bytes;
        if all <= MAX_MEMORY { all } else { f64::INFINITY }
    })
}

/// The attempt to keep: the first success, or else that with the lowest hard loss.
fn kept(attempts: &[Attempt]) -> Option<(usize, &Best)> {
    let hard = |index: &usize| attempts[*index].best.as_ref().map_or(f64::INFINITY, |best| best.hard);
    let succeeded = attempts.iter().position(|attempt| attempt.outcome == Outcome::Succeeded);
    let kept = succeeded.or_else(|| (0..attempts.len()).min_by(|a, b| hard(a).total_cmp(&hard(b))))?;
    Some((kept, attempts[kept].best.as_ref()?))
}

fn summary(folder: &RunFolder, experiment: &Experiment, trained: &Trained) -> Summary {
    let (attempts, kept) = (&trained.attempts, trained.kept());
    let best = kept.best.as_ref();
    let seed_summary = |attempt: &Attempt| SeedSummary {
        seed: attempt.seed,
        success: attempt.outcome == Outcome::Succeeded,
        updates: attempt.update,
        moves: attempt.moves,
        seconds: attempt.seconds,
        first_perfect_update: attempt.first_perfect,
        best_hard_loss: attempt.best.as_ref().map(|best| best.hard),
    };
    Summary {
        version: run_folder::VERSION,
        experiment: experiment.name.clone(),
        seed: kept.seed,
        success: trained.is_success(),
        attempts: attempts.len(),
        updates: kept.update,
        moves: kept.moves,
        seconds: attempts.iter().map(|attempt| attempt.seconds).sum(),
        soft_loss: best.map_or(f64::NAN, |best| best.soft),
        hard_loss: best.map_or(f64::NAN, |best| best.hard),
        first_perfect_update: kept.first_perfect,
        gates: trained.gates,
        stages: kept.stages.clone(),
        memorised: trained.is_success().then(|| memorised(&kept.stages)),
        properties: trained.properties.clone(),
        run: folder.path().to_path_buf(),
        seeds: experiment.seeds.map(|_| attempts.iter().map(seed_summary).collect()),
    }
}

/// Returns the share of the bits that the last stages memorised: those that were wrong before a repair, or all if the automaton was
/// made from the target.
pub fn memorised(stages: &[Stage]) -> f64 {
    let is = |name: &'static str| move |stage: &Stage| stage.name == name;
    if stages.iter().any(is(CONSTRUCTION)) {
        return 1.0;
    }
    let Some(repair) = stages.iter().position(is(REPAIR)) else { return 0.0 };
    let before = repair.checked_sub(1).map_or(0, |before| stages[before].wrong);
    before as f64 / stages[repair].of.max(1) as f64
}

/// Returns the percentage of the bits that are right.
pub fn percent(wrong: f64, bits: usize) -> f64 {
    100.0 * (1.0 - wrong / bits.max(1) as f64)
}

/// The losses of every update as CSV, and the percentage of right bits; search moves are counted on from the updates, and have a hard
/// loss only.
fn metrics(attempts: &[Attempt], settings: &trainer::Settings, bits: usize) -> String {
    let mut text = String::from("seed,update,learning_rate,soft_loss,hard_loss,accuracy\n");
    for attempt in attempts {
        for (update, metric) in attempt.metrics.iter().enumerate() {
            let rate = settings.rate.at(update as u64, settings.updates);
            // Empty where the hard loss was not computed.
            let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
            let accuracy = metric.hard.map_or_else(String::new, |hard| format!("{:.3}", percent(hard, bits)));
            let _ = writeln!(text, "{},{update},{rate},{},{hard},{accuracy}", attempt.seed, metric.soft);
        }
        for (moves, hard) in &attempt.trace {
            let _ = writeln!(text, "{},{},,,{hard},", attempt.seed, attempt.update + moves);
        }
    }
    text
}

/// Describes the first setting in which two experiments differ.
pub(crate) fn difference(found: &Value, requested: &Value) -> Option<String> {
    let (Some(a), Some(b)) = (found.as_object(), requested.as_object()) else {
        return (found != requested).then(|| format!(" is {found} there, but {requested} is requested"));
    };
    let key = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key))?;
    let inner = difference(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))?;
    let dot = if inner.starts_with(' ') { "" } else { "." };
    Some(format!("{key}{dot}{inner}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_experiments_is_named_with_its_path() {
        let (a, b) = (json!({ "x": { "y": 1, "z": 2 } }), json!({ "x": { "y": 1, "z": 3 }, "w": 1 }));
        let text = difference(&a["x"], &b["x"]).unwrap();
        assert_eq!(text, "z is 2 there, but 3 is requested");
        assert_eq!(
            difference(&json!({ "x": a["x"] }), &json!({ "x": b["x"] })).unwrap(),
            format!("x.{text}")
        );
        assert_eq!(difference(&a, &a), None);
    }

    #[test]
    fn a_run_is_resumed_if_only_texts_differ() {
        let parent = tempfile::tempdir().unwrap();
        let loaded = AutomatonExperiment::find("checkerboard").unwrap();
        let path = parent.path().join("run");
        let (folder, _) = begin(&path, false, loaded.clone(), Path::new(".")).unwrap();
        let mut requested = loaded.experiment;
        (requested.about, requested.expected) = ("another text".into(), "1 s".into());
        resume(&folder, &requested).unwrap();
        requested.training.batch += 1;
        let message = resume(&folder, &requested).unwrap_err().to_string();
        assert!(message.contains("training.batch"), "{message}");
    }

    #[test]
    fn a_damaged_summary_is_ignored_and_that_of_a_newer_version_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&parent.path().join("run"), false, "", &[]).unwrap();
        assert!(finished(&folder).unwrap().is_none());
        folder.write("summary.json", b"{").unwrap();
        assert!(finished(&folder).unwrap().is_none());
        let newer = json!({ "version": run_folder::VERSION + 1 }).to_string();
        folder.write("summary.json", newer.as_bytes()).unwrap();
        assert!(matches!(finished(&folder), Err(RunError::Folder(RunFolderError::Newer { .. }))));
    }

    #[test]
    fn zero_threads_are_one_thread() {
        let loaded = AutomatonExperiment::find("checkerboard").unwrap();
        let options = options(&loaded.experiment, None, 0);
        assert_eq!((options.concurrent_attempts, options.threads_per_attempt), (1, 1));
    }
}
