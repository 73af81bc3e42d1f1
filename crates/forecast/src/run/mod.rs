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

mod job;
mod quantize;
mod score;
mod seeds;
mod train;

use std::path::{Path, PathBuf};

use gatework_train::experiment::{ExperimentError, Source};
use gatework_train::files::FileError;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use gatework_train::trainer::TrainError;
use serde_json::Value;

use crate::data::{DataError, Subset};
use crate::experiment::{Dataset, DatasetError, Experiment, ForecastExperiment};
use crate::prediction::{Forecaster, PredictError};
use crate::{NetworkError, SpecificationError};

pub use job::{Job, Trained};
pub use quantize::Quantized;
pub use score::{default_step, holdout_error, scaled_score, score, score_ensemble};
pub use seeds::{SeedScores, mean_and_deviation};
pub(crate) use train::{forecaster, settings, train};

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
    #[error("{}: its data can no longer be used: {error}", path.join("experiment.toml").display())]
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
    #[error("the {} subset is shorter than the horizon of {horizon}: there is nothing to evaluate", subset.name())]
    NoOrigins {
        /// The subset.
        subset: Subset,
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

impl From<NetworkError> for RunError {
    fn from(error: NetworkError) -> RunError {
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
        if without_texts(&found) == without_texts(&Experiment { seed, ..requested.clone() }) {
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
fn without_texts(experiment: &Experiment) -> Experiment {
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
        Err(error @ RunError::Predict(PredictError::Network(NetworkError::Newer { .. }))) => Err(error),
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

/// The run of a forecaster, opened.
pub struct ForecastRun {
    /// The run folder.
    pub folder: RunFolder,
    /// The experiment.
    pub loaded: ForecastExperiment,
    /// The trained model.
    pub forecaster: Forecaster,
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
        let forecaster = Forecaster::load(&folder.model()?)?;
        if *forecaster.specification() != loaded.experiment.specification() {
            return Err(RunFolderError::OtherModel { path: folder.path().to_path_buf() }.into());
        }
        Ok(Some(ForecastRun { folder, loaded, forecaster }))
    }

    /// Loads the data of the run, scaled as in training.
    pub fn dataset(&self) -> Result<Dataset, RunError> {
        let failed =
            |error| RunError::RunData { path: self.folder.path().to_path_buf(), error: Box::new(error) };
        Dataset::load_for(&self.loaded, self.forecaster.context()).map_err(failed)
    }

    /// Returns the number of values at training time and now, if they differ. Values of the training subset may then have
    /// moved into the subset that is evaluated.
    pub fn changed_size(&self, dataset: &Dataset) -> Option<(usize, usize)> {
        let (then, now) = (self.forecaster.context().values, dataset.table.values());
        (then != 0 && then != now).then_some((then, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BUILT_IN;
    use crate::test_fixtures::untrained;
    use gatework_train::run_folder;
    use serde_json::json;

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
}
