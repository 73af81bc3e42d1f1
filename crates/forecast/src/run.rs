//! Training runs of forecasters: an experiment trained into a run folder, opened again and evaluated.
//!
//! In addition to the files of every [`RunFolder`], the checkpoint folder has `data.txt`, a fingerprint of the training data: a
//! run is not resumed on other data.
//!
//! ```no_run
//! use std::{path::Path, sync::atomic::AtomicBool};
//!
//! use gatework_forecast::{experiment::{Dataset, ForecastExperiment}, run::{Job, prepare}};
//! use gatework_train::{run_folder::RunFolder, trainer::Quiet};
//!
//! let loaded = prepare(ForecastExperiment::read(Path::new("sales.toml"))?)?;
//! let dataset = Dataset::load(&loaded)?;
//! let folder = RunFolder::create(Path::new("runs/sales"), false, &loaded.experiment.to_toml(), &[])?;
//! let job = Job { experiment: &loaded.experiment, dataset: &dataset, folder: &folder, seeds: vec![1], threads: 2 };
//! let trained = job.train(&Quiet, &AtomicBool::new(false))?;
//! println!("mean absolute error: {}", trained.evaluation.scores[0].mae);
//! job.finish(&trained)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gatework_train::experiment::{ExperimentError, Source};
use gatework_train::files::{self, FileError};
use gatework_train::run_folder::{self, RunFolder, RunFolderError};
use gatework_train::trainer::{self, Attempt, Best, Observer, Options, TaskError, TrainError};
use serde_json::{Value, json};

use crate::data::{DataError, Subset, Table, Windows};
use crate::evaluation::{
    EnsembleMember, Evaluation, ScaledErrors, Score, calibrate, evaluate, scaled_errors,
};
use crate::experiment::{Dataset, DatasetError, Experiment, ForecastExperiment};
use crate::metrics;
use crate::prediction::{Context, PredictError, Predictor};
use crate::{ForecastTask, Forecaster, ForecasterError, Model, SpecificationError};

/// The maximum number of windows that intervals are calibrated on.
const MAX_CALIBRATION_WINDOWS: usize = 5000;

/// The maximum number of forecast origins of an evaluation without an explicit step.
const MAX_ORIGINS: usize = 2000;

/// The maximum number of values that a baseline reads over all of these origins.
const MAX_BASELINE_VALUES: usize = 5_000_000;

/// The file in the checkpoint folder with the fingerprint of the data.
const DATA_FILE: &str = "data.txt";

/// Time between checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// A run that cannot be made, opened or evaluated.
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
    /// The data of the experiment cannot be found.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data of a run cannot be used any more.
    #[error("the data of {} can no longer be used: {error}", path.display())]
    RunData {
        /// The run folder.
        path: PathBuf,
        /// What is wrong.
        error: Box<DatasetError>,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// Training failed.
    #[error(transparent)]
    Training(#[from] TrainError),
    /// The model cannot be loaded or used.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The data and the horizon leave no forecast origins.
    #[error("the {} part is shorter than the horizon of {horizon}: there is nothing to evaluate", part.name())]
    NoOrigins {
        /// The part of the data.
        part: Subset,
        /// The horizon.
        horizon: usize,
    },
    /// Runs that are to be evaluated together have different data.
    #[error("{} has other data than {}", path.display(), first.display())]
    DifferentData {
        /// The run folder.
        path: PathBuf,
        /// The first run folder.
        first: PathBuf,
    },
    /// There are no seeds to train.
    #[error("there are no seeds to train; give at least one")]
    NoSeeds,
    /// There are no runs to evaluate.
    #[error("there are no runs to evaluate")]
    NoRuns,
    /// Training ended before its first validation.
    #[error("the validation loss was never computed")]
    NoValidation,
}

impl From<ForecasterError> for RunError {
    fn from(error: ForecasterError) -> RunError {
        RunError::Predict(error.into())
    }
}

impl RunError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            RunError::Folder(error) => error.is_usage(),
            RunError::Experiment(_)
            | RunError::NoOrigins { .. }
            | RunError::DifferentData { .. }
            | RunError::NoSeeds => true,
            _ => false,
        }
    }
}

/// Checks an experiment whose settings may have changed, and makes the paths of its data absolute, so that a copy of it can be
/// used from any folder.
pub fn prepare(mut loaded: ForecastExperiment) -> Result<ForecastExperiment, RunError> {
    let (data, test) = (loaded.data_file()?, loaded.test_file()?);
    let absolute = |path: PathBuf| {
        let absolute = std::path::absolute(&path);
        let path = absolute.map_err(|error| FileError { action: "find", path, error })?;
        Ok::<String, FileError>(path.display().to_string())
    };
    if let Some(path) = data {
        loaded.experiment.data = absolute(path)?;
    }
    loaded.experiment.test_data = test.map(absolute).transpose()?;
    let text = loaded.experiment.to_toml();
    Ok(ForecastExperiment::from_source(&Source::new(&text, &loaded.experiment.name, &loaded.folder))?)
}

/// Checks that a folder holds a run of the requested experiment, with the same settings and, unless `any_seed`, the same seed.
pub fn check_same(folder: &RunFolder, requested: &Experiment, any_seed: bool) -> Result<(), RunError> {
    let source = Source::read(&folder.experiment())?;
    let (mut name, mut difference) = (None, "it is not a forecaster");
    if source.task()? == "forecaster" {
        let found = ForecastExperiment::from_source(&source)?.experiment;
        let seed = if any_seed { found.seed } else { requested.seed };
        if settings(&found) == settings(&Experiment { seed, ..requested.clone() }) {
            return Ok(());
        }
        name = Some(found.name);
        difference = "its settings or its seed differ";
    }
    let name = name.or_else(|| source.top_level("name").map(|(name, _)| name)).unwrap_or_default();
    let (path, difference) = (folder.path().to_path_buf(), difference.to_string());
    Err(RunFolderError::OtherExperiment { path, name, difference }.into())
}

/// The experiment without its descriptive texts.
fn settings(experiment: &Experiment) -> Experiment {
    Experiment { about: String::new(), expected: String::new(), published: Vec::new(), ..experiment.clone() }
}

/// Returns the summary of a run that is finished with at least `seeds` seeds and whose model can be loaded; `None` if the run
/// is to be trained (again). A run of a newer version of Gatework is an error, so that it is not overwritten.
pub fn finished(folder: &RunFolder, seeds: usize) -> Result<Option<Value>, RunError> {
    let summary = match folder.summary() {
        Ok(Some(summary)) => summary,
        Err(error @ RunFolderError::Newer { .. }) => return Err(error.into()),
        Ok(None) | Err(_) => return Ok(None),
    };
    match ForecastRun::open(folder.path()) {
        Ok(Some(_)) => {
            let trained = summary["seeds"]["seeds"].as_array().map_or(1, Vec::len);
            Ok((seeds <= trained).then_some(summary))
        }
        Err(error @ RunError::Predict(PredictError::Forecaster(ForecasterError::Newer { .. }))) => Err(error),
        Ok(None) | Err(_) => Ok(None),
    }
}

/// Returns the existing files of a run, including its checkpoints.
pub fn files_of(run: &Path) -> Vec<PathBuf> {
    let names =
        ["model.safetensors", "experiment.toml", "metrics.csv", "summary.json", "forecast.svg", "loss.svg"];
    let checkpoints = std::fs::read_dir(RunFolder::at(run).checkpoints()).into_iter().flatten().flatten();
    let files = names.iter().map(|name| run.join(name)).chain(checkpoints.map(|file| file.path()));
    files.filter(|path| path.exists()).collect()
}

/// An experiment that is to be trained into a run folder.
#[derive(Debug)]
pub struct Job<'a> {
    /// The experiment, with absolute paths (see [`prepare`]).
    pub experiment: &'a Experiment,
    /// Its data.
    pub dataset: &'a Dataset,
    /// The run folder.
    pub folder: &'a RunFolder,
    /// The seeds. The one with the lowest validation loss is kept.
    pub seeds: Vec<u64>,
    /// The number of threads. The result does not depend on it.
    pub threads: usize,
}

/// A trained and evaluated forecaster.
#[non_exhaustive]
pub struct Trained {
    /// The training of the kept seed.
    pub attempt: Attempt,
    /// Its lowest validation loss.
    pub validation: f64,
    /// The model with its intervals.
    pub predictor: Predictor,
    /// The part of the data that it was evaluated on: the test part, unless that is empty.
    pub part: Subset,
    /// The steps from one forecast origin to the next.
    pub step: usize,
    /// Its scores compared with the baselines.
    pub evaluation: Evaluation,
    /// Its errors in scaled units.
    pub scaled: Option<ScaledErrors>,
    /// The scores of all seeds.
    pub seeds: SeedScores,
    begin: Instant,
}

impl Job<'_> {
    /// Trains all seeds, evaluates them, and writes the metrics, the best model, and its seed into the experiment.
    /// [`finish`](Self::finish) then ends the run.
    pub fn train(&self, observer: &impl Observer, stop: &AtomicBool) -> Result<Trained, RunError> {
        if self.seeds.is_empty() {
            return Err(RunError::NoSeeds);
        }
        let begin = Instant::now();
        files::make_folder(&self.folder.checkpoints())?;
        self.check_data()?;
        let attempts = self.attempts(observer, stop)?;
        self.folder.write("metrics.csv", self.metrics(&attempts).as_bytes())?;
        let mut scored = Vec::new();
        for attempt in attempts {
            scored.push(self.score(attempt, begin)?);
        }
        let seeds = SeedScores::new(&scored);
        scored.sort_by(|a, b| a.validation.total_cmp(&b.validation));
        let mut kept = scored.into_iter().next().ok_or(RunError::NoValidation)?;
        kept.seeds = seeds;
        let experiment = Experiment { seed: kept.attempt.seed, ..self.experiment.clone() };
        self.folder.write("experiment.toml", experiment.to_toml().as_bytes())?;
        self.folder.write("model.safetensors", &kept.predictor.to_bytes())?;
        Ok(kept)
    }

    /// Ends the run: writes the summary and returns it.
    pub fn finish(&self, trained: &Trained) -> Result<Value, RunError> {
        let Trained { attempt, predictor, evaluation, .. } = trained;
        let best = attempt.best.as_ref();
        let mut summary = json!({
            "version": run_folder::VERSION,
            "experiment": self.experiment.name,
            "model": predictor.specification().model.name(),
            "parameters": predictor.parameters(),
            "horizon": predictor.specification().horizon,
            "seed": attempt.seed,
            "updates": attempt.update,
            "epochs": self.experiment.training.epochs(self.updates_per_epoch()),
            "best_update": best.map(|best| best.update),
            "seconds": attempt.seconds,
            "training_loss": best.map(|best| best.soft),
            "validation_loss": trained.validation,
            "evaluated_on": trained.part.name(),
            "origins": evaluation.windows,
            "step": trained.step,
            "scores": evaluation.scores,
            "scaled": trained.scaled,
            "run": self.folder.path(),
            "total_seconds": trained.begin.elapsed().as_secs_f64(),
        });
        if self.seeds.len() > 1 {
            summary["seeds"] = trained.seeds.to_json();
        }
        self.folder.write_summary(&summary)?;
        Ok(summary)
    }

    /// Records the fingerprint of the data; an error if checkpoints of other data exist.
    fn check_data(&self) -> Result<(), RunError> {
        let path = self.folder.checkpoints().join(DATA_FILE);
        let fingerprint = format!("{:016x}\n", self.dataset.table.fingerprint());
        if path.is_file() && files::read_text(&path)? != fingerprint {
            return Err(RunFolderError::OtherData { path: self.folder.path().to_path_buf() }.into());
        }
        Ok(files::write_atomic(&path, fingerprint.as_bytes())?)
    }

    fn attempts(&self, observer: &impl Observer, stop: &AtomicBool) -> Result<Vec<Attempt>, RunError> {
        let Job { experiment, dataset, folder, threads, .. } = *self;
        let concurrent_attempts = threads.min(self.seeds.len());
        let options = Options {
            settings: self.settings(),
            seeds: self.seeds.clone(),
            until_success: false,
            concurrent_attempts,
            threads_per_attempt: threads / concurrent_attempts.max(1),
            checkpoints: Some(folder.checkpoints()),
            interval: CHECKPOINT_INTERVAL,
        };
        let specification = experiment.specification();
        let make = |seed| -> Result<ForecastTask<_>, TaskError> {
            let training = &experiment.training;
            let task = ForecastTask::new(&specification, dataset.loader(experiment, seed), seed)?
                .with_validation_start(training.validation_start_epoch.unwrap_or(1));
            Ok(match training.micro_batch {
                Some(rows) => task.with_micro_batch(rows),
                None => task,
            })
        };
        let attempts = trainer::run(&options, make, observer, stop)?;
        if !options.is_complete(&attempts) {
            return Err(RunFolderError::Interrupted { path: folder.path().to_path_buf() }.into());
        }
        Ok(attempts)
    }

    /// Returns the settings of the training loop.
    pub fn settings(&self) -> trainer::Settings {
        self.experiment.training.settings(self.updates_per_epoch())
    }

    fn updates_per_epoch(&self) -> u64 {
        self.dataset.loader(self.experiment, 0).updates_per_epoch()
    }

    /// The model with the best parameters of a seed, and calibrated intervals.
    fn predictor(&self, best: &Best) -> Result<Predictor, RunError> {
        let specification = self.experiment.specification();
        let mut params = specification.params(self.experiment.seed)?;
        params.values.copy_from_slice(&best.values);
        let context = self.dataset.context(self.experiment);
        let mut predictor = Predictor::new(Forecaster::new(specification, params)?, context);
        let count = self.dataset.windows(Subset::Validation, 1).len();
        let stride = count.div_ceil(MAX_CALIBRATION_WINDOWS).max(1);
        let windows = self.dataset.windows(Subset::Validation, stride);
        let conformal = calibrate(&mut predictor, &windows, &self.dataset.table, &self.experiment.intervals)?;
        let context = Context { conformal, ..predictor.context().clone() };
        Ok(predictor.with_context(context))
    }

    fn score(&self, attempt: Attempt, begin: Instant) -> Result<Trained, RunError> {
        let best = attempt.best.as_ref().ok_or(RunError::NoValidation)?;
        let has_test = !self.dataset.windows(Subset::Test, 1).is_empty();
        let part = if has_test { Subset::Test } else { Subset::Validation };
        let (mut predictor, step) = (self.predictor(best)?, default_step(self.dataset, part));
        let evaluation = score(&mut predictor, self.dataset, part, step)?;
        let scaled = scaled_score(&mut predictor, self.dataset, part)?;
        let (validation, seeds) = (best.hard, SeedScores::default());
        Ok(Trained { attempt, validation, predictor, part, step, evaluation, scaled, seeds, begin })
    }

    /// The losses of every update as CSV.
    fn metrics(&self, attempts: &[Attempt]) -> String {
        let settings = self.settings();
        let mut text = String::from("seed,update,learning_rate,training_loss,validation_loss\n");
        for attempt in attempts {
            for (update, metric) in attempt.metrics.iter().enumerate() {
                let rate = settings.rate.at(update as u64, settings.updates);
                let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
                let _ = writeln!(text, "{},{update},{rate},{},{hard}", attempt.seed, metric.soft);
            }
        }
        text
    }
}

/// The scores of several seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SeedScores {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// For each score its name and one value per seed.
    pub scores: Vec<(&'static str, Vec<f64>)>,
}

impl SeedScores {
    fn new(trained: &[Trained]) -> SeedScores {
        let mut all = SeedScores::default();
        for trained in trained {
            let Score { mae, rmse, smape, mase, owa, .. } = trained.evaluation.scores[0];
            let scores = [
                ("validation loss", trained.validation),
                ("MAE", mae),
                ("RMSE", rmse),
                ("sMAPE", smape),
                ("MASE", mase),
                ("OWA", owa),
            ];
            let scaled =
                trained.scaled.map(|scaled| [("scaled MSE", scaled.mse), ("scaled MAE", scaled.mae)]);
            all.seeds.push(trained.attempt.seed);
            for (name, value) in scores.into_iter().chain(scaled.into_iter().flatten()) {
                match all.scores.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(value),
                    None => all.scores.push((name, vec![value])),
                }
            }
        }
        all
    }

    /// Returns mean, standard deviation and values of each score.
    pub fn to_json(&self) -> Value {
        let score = |(name, values): &(&str, Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(values);
            let value = json!({ "mean": mean, "spread": deviation, "values": values });
            (name.to_lowercase().replace(' ', "_"), value)
        };
        let scores: serde_json::Map<String, Value> = self.scores.iter().map(score).collect();
        json!({ "seeds": self.seeds, "figures": scores })
    }
}

/// Returns the mean and the sample standard deviation, which is 0 for a single number.
pub fn mean_and_deviation(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// The run of a forecaster, opened.
pub struct ForecastRun {
    /// The run folder.
    pub folder: RunFolder,
    /// The experiment.
    pub loaded: ForecastExperiment,
    /// The trained model.
    pub predictor: Predictor,
}

impl ForecastRun {
    /// Opens a run folder, or the model file in one. Returns `None` if it is not the run of a forecaster.
    pub fn open(path: &Path) -> Result<Option<ForecastRun>, RunError> {
        let is_model = path.file_name().is_some_and(|name| name == "model.safetensors");
        let folder = RunFolder::at(if is_model { path.parent().unwrap_or(Path::new("")) } else { path });
        if !folder.experiment().is_file() {
            return Ok(None);
        }
        let source = Source::read(&folder.experiment())?;
        if source.task()? != "forecaster" {
            return Ok(None);
        }
        let loaded = ForecastExperiment::from_source(&source)?;
        let predictor = Predictor::load(&folder.model()?)?;
        if *predictor.specification() != loaded.experiment.specification() {
            return Err(RunFolderError::OtherModel { path: folder.path().to_path_buf() }.into());
        }
        Ok(Some(ForecastRun { folder, loaded, predictor }))
    }

    /// Loads the data of the run, scaled as in training.
    pub fn dataset(&self) -> Result<Dataset, RunError> {
        let failed =
            |error| RunError::RunData { path: self.folder.path().to_path_buf(), error: Box::new(error) };
        Dataset::load_for(&self.loaded, self.predictor.context()).map_err(failed)
    }

    /// Returns the number of values at training time and now, if they differ. Values of the training part may then have moved
    /// into the part that is evaluated.
    pub fn changed_size(&self, dataset: &Dataset) -> Option<(usize, usize)> {
        let (then, now) = (self.predictor.context().values, dataset.table.values());
        (then != 0 && then != now).then_some((then, now))
    }
}

/// Returns the step between forecast origins for which neither the number of origins nor the work of the baselines, which read
/// the whole history at each origin, is too large.
pub fn default_step(dataset: &Dataset, part: Subset) -> usize {
    let count = dataset.windows(part, 1).len();
    let longest = dataset.table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    count.div_ceil(MAX_ORIGINS).max((count * longest).div_ceil(MAX_BASELINE_VALUES)).max(1)
}

/// Scores a model on a part of its data, compared with the baselines.
pub fn score(
    predictor: &mut Predictor,
    dataset: &Dataset,
    part: Subset,
    step: usize,
) -> Result<Evaluation, RunError> {
    let windows = windows(dataset, part, step)?;
    Ok(evaluate(&mut [EnsembleMember { predictor, windows: &windows }], &dataset.table)?)
}

/// Scores the median of the forecasts of several runs on a part of their data, which must be the same. `datasets` has the data
/// of each run.
pub fn score_ensemble(
    runs: &mut [ForecastRun],
    datasets: &[Dataset],
    part: Subset,
    step: usize,
) -> Result<Evaluation, RunError> {
    let first = datasets.first().ok_or(RunError::NoRuns)?;
    if let Some(other) = datasets.iter().position(|dataset| dataset.table.series != first.table.series) {
        let path = |index: usize| runs[index].folder.path().to_path_buf();
        return Err(RunError::DifferentData { path: path(other), first: path(0) });
    }
    let windows =
        datasets.iter().map(|dataset| windows(dataset, part, step)).collect::<Result<Vec<_>, _>>()?;
    let mut members: Vec<EnsembleMember<'_>> = runs
        .iter_mut()
        .zip(&windows)
        .map(|(run, windows)| EnsembleMember { predictor: &mut run.predictor, windows })
        .collect();
    Ok(evaluate(&mut members, &first.table)?)
}

/// Returns the errors in scaled units over every window of a part. `None` for models that draw samples, for which that would
/// take too long.
pub fn scaled_score(
    predictor: &mut Predictor,
    dataset: &Dataset,
    part: Subset,
) -> Result<Option<ScaledErrors>, RunError> {
    if matches!(predictor.specification().model, Model::DeepAr(_)) {
        return Ok(None);
    }
    Ok(Some(scaled_errors(predictor, &windows(dataset, part, 1)?)?))
}

/// The windows of a part; an error if there are none.
fn windows(dataset: &Dataset, part: Subset, step: usize) -> Result<Windows, RunError> {
    let windows = dataset.windows(part, step);
    if windows.is_empty() {
        return Err(RunError::NoOrigins { part, horizon: windows.shape(0).horizon });
    }
    Ok(windows)
}

/// Returns the mean absolute error of forecasts of the last horizon of every series, from the values before. `None` if a series
/// is too short or has gaps there.
pub fn holdout_error(predictor: &mut Predictor, table: &Table) -> Result<Option<f64>, RunError> {
    let specification = predictor.specification().clone();
    let mut history = table.clone();
    let past = history.columns.past.len();
    for series in &mut history.series {
        let end = series.values.len().saturating_sub(specification.horizon);
        series.values.truncate(end);
        series.past.truncate(end * past);
    }
    let Ok(prepared) = predictor.context().prepare(&specification, history) else { return Ok(None) };
    let numbers: Vec<u32> = (0..prepared.windows.len() as u32).collect();
    let forecasts = predictor.predict_windows(&prepared.windows, &numbers, &prepared.table)?;
    let errors = table.series.iter().zip(&forecasts).map(|(series, forecast)| {
        metrics::mae(&series.values[series.values.len() - specification.horizon..], &forecast.values)
    });
    Ok(Some(errors.sum::<f64>() / forecasts.len() as f64).filter(|error| error.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BUILT_IN;
    use crate::test_fixtures::untrained;
    use gatework_train::trainer::Quiet;

    /// Returns a finished run of the built-in experiment with an untrained model.
    fn finished_run(parent: &Path) -> RunFolder {
        let folder = RunFolder::create(&parent.join("run"), false, BUILT_IN[0].1, &[]).unwrap();
        folder.write("model.safetensors", &untrained(|text| text).0.to_bytes()).unwrap();
        folder.write_summary(&json!({ "version": run_folder::VERSION })).unwrap();
        folder
    }

    #[test]
    fn a_corrupt_experiment_file_is_reported_with_its_line() {
        let parent = tempfile::tempdir().unwrap();
        let folder = finished_run(parent.path());
        let path = folder.experiment().display().to_string();
        let requested = ForecastExperiment::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        for (text, expected) in [
            ("name = \"x\"\ntask = forecaster\nhorizon = 3\n", format!("{path}:2: ")),
            ("name = \"x\"\n", format!("{path}: there is no task; write task = ")),
            (
                "name = \"x\"\ntask = \"forecast\"\n",
                format!("{path}:2: the task is \"forecast\"; there are "),
            ),
        ] {
            folder.write("experiment.toml", text.as_bytes()).unwrap();
            let message = ForecastRun::open(folder.path()).err().unwrap().to_string();
            assert!(message.starts_with(&expected), "{message}");
            let message = check_same(&folder, &requested.experiment, false).unwrap_err().to_string();
            assert!(message.starts_with(&expected), "{message}");
        }
        folder.write("experiment.toml", b"name = \"x\"\ntask = \"automaton\"\n").unwrap();
        assert!(ForecastRun::open(folder.path()).unwrap().is_none());
    }

    #[test]
    fn a_run_of_a_newer_version_is_an_error_and_a_corrupt_one_is_not_finished() {
        let parent = tempfile::tempdir().unwrap();
        let folder = finished_run(parent.path());
        assert!(finished(&folder, 1).unwrap().is_some());
        assert!(finished(&folder, 2).unwrap().is_none(), "the second seed is not trained");
        folder.write_summary(&json!({ "version": run_folder::VERSION + 1 })).unwrap();
        let error = finished(&folder, 1).unwrap_err();
        assert!(matches!(error, RunError::Folder(RunFolderError::Newer { .. })), "{error}");
        folder.write("summary.json", b"{").unwrap();
        assert!(finished(&folder, 1).unwrap().is_none());

        folder.write_summary(&json!({ "version": run_folder::VERSION })).unwrap();
        let path = folder.model().unwrap();
        let mut model = std::fs::read(&path).unwrap();
        let version = model.windows(11).position(|window| window == b"\\\"version\\\"").unwrap() + 12;
        model[version] = b'9';
        std::fs::write(&path, &model).unwrap();
        let message = finished(&folder, 1).unwrap_err().to_string();
        assert!(message.contains("a newer version of Gatework (format 9"), "{message}");
        std::fs::write(&path, b"").unwrap();
        assert!(finished(&folder, 1).unwrap().is_none());
    }

    #[test]
    fn a_job_needs_a_seed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&parent.path().join("run"), false, "", &[]).unwrap();
        let loaded = ForecastExperiment::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        let dataset = Dataset::load(&loaded).unwrap();
        let experiment = &loaded.experiment;
        let job = Job { experiment, dataset: &dataset, folder: &folder, seeds: Vec::new(), threads: 1 };
        let error = job.train(&Quiet, &AtomicBool::new(false)).err().unwrap();
        assert!(matches!(error, RunError::NoSeeds) && error.is_usage(), "{error}");
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[1.0, 2.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
    }
}
