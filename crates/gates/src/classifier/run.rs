//! Training runs of classifiers: an experiment trained in memory or into a run folder, and run folders opened again.
//!
//! In addition to the files of every [`RunFolder`], the run of a classifier has `circuit.json`: the hard classifier with its
//! encoder and head, which is all that prediction needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_logic::classifier::Classifier;
use gatework_logic::{Document, from_json, minimize, to_json};
use gatework_train::experiment::ExperimentError;
use gatework_train::files::{self, FileError};
use gatework_train::run_folder::{self, RunFolder, RunFolderError};
use gatework_train::tensor_file::{NamedTensor, TensorFormat};
use gatework_train::trainer::{self, Attempt, Observer, Options, Task as _, TrainError};
use safetensors::Dtype;
use serde::Serialize;
use serde_json::{Value, json};

use super::ClassifierError;
use super::experiment::{ClassifierExperiment, Experiment};
use super::search;
use super::task::{ClassifierTask, Prepared};
use crate::automata::run::difference;

/// The format of `model.safetensors`: the parameters of the soft network.
const FORMAT: TensorFormat = TensorFormat { key: "gatework-classifier", version: 2 };

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
    /// The data or the settings cannot be used.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// Training failed.
    #[error(transparent)]
    Training(#[from] TrainError),
    /// `circuit.json` is not a classifier.
    #[error("{}: {message}", path.display())]
    Circuit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Training in memory was interrupted.
    #[error("training was interrupted")]
    Interrupted,
    /// Training ended before its first epoch.
    #[error("no epoch was completed")]
    NoEpoch,
}

impl RunError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            RunError::Folder(error) => error.is_usage(),
            RunError::Experiment(_) | RunError::Classifier(_) => true,
            _ => false,
        }
    }
}

/// The result of one seed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// Share of the test samples that the hard circuit gets right; of the validation samples, if there is no test.
    pub accuracy: f64,
    /// The same for the soft network.
    pub soft_accuracy: f64,
    /// Share of the validation samples that the hard circuit gets right.
    pub validation_accuracy: f64,
    /// The epoch of the best parameters, counted from 1.
    pub epoch: u64,
    /// Updates that were made.
    pub updates: u64,
    /// The accuracy before the search, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained_accuracy: Option<f64>,
    /// Seconds of training and search.
    pub seconds: f64,
}

/// A trained classifier.
#[non_exhaustive]
pub struct Trained {
    /// One attempt per seed.
    pub attempts: Vec<Attempt>,
    /// The result of each seed.
    pub seeds: Vec<SeedResult>,
    /// The index of the seed that was kept: that with the highest validation accuracy, the first one of several.
    pub kept: usize,
    /// The hard classifier of that seed.
    pub classifier: Classifier,
}

impl Trained {
    /// Returns the result of the seed that was kept.
    pub fn result(&self) -> &SeedResult {
        &self.seeds[self.kept]
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
    /// The result of the seed that was kept.
    #[serde(flatten)]
    pub kept: SeedResult,
    /// Mean test accuracy of all seeds.
    pub mean_accuracy: f64,
    /// Sample standard deviation of the test accuracy of all seeds; 0 for one seed.
    pub deviation: f64,
    /// Gates of the hard circuit without wires, inverters and duplicates.
    pub gates: usize,
    /// Gates of the hard circuit as it was trained, at all positions of the convolutions.
    pub network_gates: usize,
    /// Bits of the encoder.
    pub input_bits: usize,
    /// Training, validation and test rows.
    pub rows: [usize; 3],
    /// The run folder.
    pub run: PathBuf,
    /// One entry per seed, if several were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Vec<SeedResult>>,
}

/// Begins a run in a new folder, which [`RunFolder::create`] makes.
pub fn begin(path: &Path, replace: bool, loaded: &ClassifierExperiment) -> Result<RunFolder, RunError> {
    let folder = RunFolder::create(path, replace, &loaded.experiment.to_toml(), &[])?;
    files::make_folder(&folder.checkpoints())?;
    Ok(folder)
}

/// Checks that a folder holds the run of an experiment. The texts `about` and `expected` are not compared.
pub fn resume(folder: &RunFolder, requested: &Experiment) -> Result<(), RunError> {
    let found = ClassifierExperiment::read(&folder.experiment())?.experiment;
    let comparable =
        Experiment { about: found.about.clone(), expected: found.expected.clone(), ..requested.clone() };
    if comparable != found {
        let difference = difference(&json!(found), &json!(comparable)).unwrap_or_default();
        let (path, name) = (folder.path().to_path_buf(), found.name);
        return Err(RunFolderError::OtherExperiment { path, name, difference }.into());
    }
    Ok(())
}

/// Returns the summary of a run that is finished and whose circuit can be read.
pub fn finished(folder: &RunFolder) -> Result<Option<Value>, RunError> {
    let summary = match folder.summary() {
        Err(error @ RunFolderError::Newer { .. }) => return Err(error.into()),
        summary => summary.ok().flatten(),
    };
    Ok(summary.filter(|_| read_classifier(&circuit_path(folder)).is_ok()))
}

/// The path of the hard classifier of a run.
pub fn circuit_path(folder: &RunFolder) -> PathBuf {
    folder.path().join("circuit.json")
}

/// Opens a run: its experiment and its hard classifier.
pub fn open(folder: &RunFolder) -> Result<(ClassifierExperiment, Classifier), RunError> {
    if !folder.experiment().is_file() {
        return Err(RunFolderError::NotARun { path: folder.path().to_path_buf() }.into());
    }
    Ok((ClassifierExperiment::read(&folder.experiment())?, read_classifier(&circuit_path(folder))?))
}

/// Reads a classifier from a `circuit.json`.
pub fn read_classifier(path: &Path) -> Result<Classifier, RunError> {
    let failed = |message: String| RunError::Circuit { path: path.to_path_buf(), message };
    match from_json(&files::read_text(path)?).map_err(|error| failed(error.to_string()))? {
        Document::Classifier(classifier) => Ok(classifier),
        _ => Err(failed("the circuit is not a classifier".into())),
    }
}

/// Trains all seeds of an experiment on up to `threads` threads, or until `stop` is set. With a folder, training starts from the
/// checkpoints in it and writes the files of the run; [`finish`] then ends it. The result does not depend on the number of
/// threads.
pub fn train(
    loaded: &ClassifierExperiment,
    prepared: &Arc<Prepared>,
    folder: Option<&RunFolder>,
    threads: usize,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Trained, RunError> {
    let experiment = &loaded.experiment;
    let options = options(experiment, prepared, folder, threads);
    let Experiment { model, training, augment, .. } = experiment;
    let make = |seed: u64| ClassifierTask::new(prepared, model, training, *augment, seed);
    let attempts = trainer::run(&options, |seed| Ok(make(seed)?), observer, stop)?;
    if let Some(folder) = folder {
        folder.write("metrics.csv", metrics(&attempts, &options.settings).as_bytes())?;
    }
    if !options.is_complete(&attempts) {
        return Err(folder.map_or(RunError::Interrupted, |folder| {
            RunFolderError::Interrupted { path: folder.path().to_path_buf() }.into()
        }));
    }
    let per_epoch = prepared.updates_per_epoch(training);
    let mut seeds: Vec<SeedResult> = Vec::new();
    let mut kept: Option<(usize, Classifier, ClassifierTask)> = None;
    for (index, attempt) in attempts.iter().enumerate() {
        let best = attempt.best.as_ref().ok_or(RunError::NoEpoch)?;
        let mut task = make(attempt.seed)?;
        let (mut classifier, mut accuracy, soft_accuracy) = task.result(&best.values)?;
        let mut validation_accuracy = 1.0 - best.hard;
        let (mut seconds, mut trained_accuracy) = (attempt.seconds, None);
        if let Some(settings) = experiment.search {
            let begin = Instant::now();
            let Prepared { train, validation, test, .. } = &**prepared;
            let found = search::search(&classifier, train, validation, settings, attempt.seed, stop)?;
            if stop.load(Ordering::Relaxed) {
                return Err(folder.map_or(RunError::Interrupted, |folder| {
                    RunFolderError::Interrupted { path: folder.path().to_path_buf() }.into()
                }));
            }
            trained_accuracy = Some(accuracy);
            accuracy = test.as_ref().unwrap_or(validation).accuracy(&found.classifier)?;
            (classifier, validation_accuracy) = (found.classifier, found.accuracy);
            seconds += begin.elapsed().as_secs_f64();
        }
        if kept.as_ref().is_none_or(|(kept, ..)| validation_accuracy > seeds[*kept].validation_accuracy) {
            kept = Some((index, classifier, task));
        }
        seeds.push(SeedResult {
            seed: attempt.seed,
            accuracy,
            soft_accuracy,
            validation_accuracy,
            epoch: best.update / per_epoch + 1,
            updates: attempt.update,
            trained_accuracy,
            seconds,
        });
    }
    let (kept, classifier, task) = kept.ok_or(RunError::NoEpoch)?;
    if let Some(folder) = folder {
        folder.write("model.safetensors", &model_bytes(&task, attempts[kept].seed))?;
        folder.write("circuit.json", to_json(&Document::Classifier(classifier.clone())).as_bytes())?;
    }
    Ok(Trained { attempts, seeds, kept, classifier })
}

/// Ends a run: writes the summary.
pub fn finish(
    folder: &RunFolder,
    experiment: &Experiment,
    prepared: &Prepared,
    trained: &Trained,
) -> Result<Value, RunError> {
    let (mean_accuracy, deviation) = mean_and_deviation(trained.seeds.iter().map(|seed| seed.accuracy));
    let circuit = trained.classifier.circuit();
    let summary = Summary {
        version: run_folder::VERSION,
        experiment: experiment.name.clone(),
        kept: trained.result().clone(),
        mean_accuracy,
        deviation,
        gates: minimize::gates(circuit),
        network_gates: circuit.nodes().len(),
        input_bits: prepared.encoder.bits(),
        rows: [
            prepared.train.rows.len(),
            prepared.validation.rows.len(),
            prepared.test.as_ref().map_or(0, |test| test.rows.len()),
        ],
        run: folder.path().to_path_buf(),
        seeds: experiment.seeds.map(|_| trained.seeds.clone()),
    };
    let summary = serde_json::to_value(summary).expect("all keys are strings");
    folder.write_summary(&summary)?;
    Ok(summary)
}

/// Returns the mean and the sample standard deviation of some numbers.
pub fn mean_and_deviation(numbers: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = numbers.clone().count() as f64;
    let mean = numbers.clone().sum::<f64>() / count.max(1.0);
    let squares: f64 = numbers.map(|number| (number - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// The seeds, threads and checkpoints of a run.
fn options(
    experiment: &Experiment,
    prepared: &Prepared,
    folder: Option<&RunFolder>,
    threads: usize,
) -> Options {
    let (training, threads) = (&experiment.training, threads.max(1));
    let seeds: Vec<u64> = experiment.seeds.map_or_else(|| vec![experiment.seed], |n| (1..=n).collect());
    let concurrent_attempts = threads.min(seeds.len());
    Options {
        settings: training.trainer_settings(prepared.updates_per_epoch(training)),
        concurrent_attempts,
        threads_per_attempt: threads / concurrent_attempts,
        until_success: false,
        seeds,
        checkpoints: folder.map(RunFolder::checkpoints),
        interval: Duration::from_secs_f64(training.checkpoint_seconds),
    }
}

/// The parameters of the soft network as safetensors.
fn model_bytes(task: &ClassifierTask, seed: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Header {
        seed: u64,
    }
    let params = task.params();
    let tensor = |tensor: &gatework_train::params::Tensor| -> NamedTensor {
        let data = params.values[tensor.range.clone()].iter().flat_map(|value| value.to_le_bytes()).collect();
        (tensor.name.clone(), Dtype::F32, tensor.shape.clone(), data)
    };
    FORMAT.write(&Header { seed }, &params.tensors().iter().map(tensor).collect::<Vec<_>>())
}

/// The losses of every update as CSV; the validation error is empty where it was not computed.
fn metrics(attempts: &[Attempt], settings: &trainer::Settings) -> String {
    let mut text = String::from("seed,update,learning_rate,loss,validation_error\n");
    for attempt in attempts {
        for (update, metric) in attempt.metrics.iter().enumerate() {
            let rate = settings.rate.at(update as u64, settings.updates);
            let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
            let _ = writeln!(text, "{},{update},{rate},{},{hard}", attempt.seed, metric.soft);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::trainer::Quiet;

    fn small() -> ClassifierExperiment {
        let mut loaded = ClassifierExperiment::find("digits").unwrap();
        let experiment = &mut loaded.experiment;
        (experiment.model.layers, experiment.training.epochs, experiment.seeds) = (vec![80], 3, Some(2));
        experiment.training.checkpoint_seconds = 0.0;
        experiment.search = Some(search::SearchSettings { sweeps: 1, pairs: 4 });
        loaded
    }

    /// Sets the flag after some updates.
    struct StopAt<'a>(u64, &'a AtomicBool);

    impl Observer for StopAt<'_> {
        fn updated(&self, attempt: &Attempt) {
            self.1.fetch_or(attempt.update >= self.0, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_resumed_run_equals_an_uninterrupted_one_on_any_number_of_threads() {
        let (loaded, parent) = (small(), tempfile::tempdir().unwrap());
        let prepared = Arc::new(loaded.experiment.prepare().unwrap());
        let go = AtomicBool::new(false);
        let whole = train(&loaded, &prepared, None, 1, &Quiet, &go).unwrap();
        let folder = begin(&parent.path().join("run"), false, &loaded).unwrap();
        let stop = AtomicBool::new(false);
        let stopped = train(&loaded, &prepared, Some(&folder), 1, &StopAt(14, &stop), &stop);
        assert!(matches!(stopped, Err(RunError::Folder(RunFolderError::Interrupted { .. }))));
        resume(&folder, &loaded.experiment).unwrap();
        let resumed = train(&loaded, &prepared, Some(&folder), 2, &Quiet, &go).unwrap();
        assert_eq!(resumed.classifier, whole.classifier);
        let accuracies = |trained: &Trained| -> Vec<f64> {
            trained
                .seeds
                .iter()
                .flat_map(|seed| [seed.accuracy, seed.soft_accuracy, seed.validation_accuracy])
                .collect()
        };
        assert_eq!(accuracies(&resumed), accuracies(&whole));

        let summary = finish(&folder, &loaded.experiment, &prepared, &resumed).unwrap();
        assert_eq!(finished(&folder).unwrap(), Some(summary.clone()));
        let (_, read) = open(&folder).unwrap();
        let accuracy = prepared.test.as_ref().unwrap().accuracy(&read).unwrap();
        assert!((summary["accuracy"].as_f64().unwrap() - accuracy).abs() < 1e-12);
        let mut other = loaded.experiment.clone();
        other.training.batch += 1;
        let message = resume(&folder, &other).unwrap_err().to_string();
        assert!(message.contains("training.batch"), "{message}");
    }
}
