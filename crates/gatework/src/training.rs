//! The beginning of a training run: settings that a request replaces, the run folder, and what is there to resume.
//!
//! The functions here return what [`runs`](crate::runs) trains. A run that is already finished is returned as such. Data are read before
//! a folder is created, so invalid data leave none behind.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatework_forecast::experiment::{Dataset, DatasetError, ForecastExperiment};
use gatework_forecast::run as forecast_run;
use gatework_gates::automata::experiment::{AutomatonExperiment, Recipe};
use gatework_gates::automata::run as automata_run;
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_gates::classifier::run as classifier_run;
use gatework_gates::classifier::task::Prepared;
use gatework_train::experiment::{ExperimentError, check_name};
use gatework_train::run_folder::{RunFolder, RunFolderError};
use serde_json::Value;

/// A run that cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// The experiment is not valid with the settings that were requested.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The run of an automaton cannot begin.
    #[error(transparent)]
    Automaton(#[from] automata_run::RunError),
    /// The run of a classifier cannot begin.
    #[error(transparent)]
    Classifier(#[from] classifier_run::RunError),
    /// The run of a forecaster cannot begin.
    #[error(transparent)]
    Forecaster(#[from] forecast_run::RunError),
    /// The data of a forecaster cannot be used.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A setting is out of range.
    #[error("{0}")]
    Setting(String),
}

impl TrainingError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Folder(error) => error.is_usage(),
            Self::Automaton(error) => error.is_usage(),
            Self::Classifier(error) => error.is_usage(),
            Self::Forecaster(error) => error.is_usage(),
            Self::Experiment(_) | Self::Setting(_) => true,
            Self::Dataset(_) => false,
        }
    }
}

/// What is to be trained, with the settings that replace those of the experiment, and where.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The name, file or rule that was asked for. A file gives its name to the run folder.
    pub experiment: &'a str,
    /// The recipe of an automaton.
    pub recipe: Option<Recipe>,
    /// The horizon of a forecaster.
    pub horizon: Option<usize>,
    /// Train exactly this seed.
    pub seed: Option<u64>,
    /// Train seeds 1 to N.
    pub seeds: Option<u64>,
    /// The maximum number of updates of an automaton, or of epochs.
    pub updates: Option<u64>,
    /// The run folder; by default one in `runs`.
    pub out: Option<&'a Path>,
    /// Whether a run in the folder is resumed.
    pub resume: bool,
    /// Whether a run in the folder is renamed, to begin another one.
    pub replace: bool,
}

/// What a run reports before it trains.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// There is no run to resume: a new one begins in this folder.
    NothingToResume(&'a Path),
    /// A setting that is allowed, but rarely works.
    Warning(&'a str),
    /// The data of a classifier are loaded.
    Prepared(&'a Prepared),
    /// The run that was in the folder has been renamed.
    Replaced {
        /// The folder.
        path: &'a Path,
        /// Its previous content.
        aside: &'a Path,
    },
}

/// A run that can be trained, or that is finished already.
#[derive(Debug)]
pub enum Begun<T> {
    /// The run is finished; its summary.
    Finished(RunFolder, Value),
    /// What the training needs.
    Ready(T),
}

/// A forecaster that can be trained.
#[derive(Debug)]
#[non_exhaustive]
pub struct ForecasterRun {
    /// The run folder.
    pub folder: RunFolder,
    /// The experiment with the settings of the request.
    pub loaded: ForecastExperiment,
    /// Its data.
    pub dataset: Dataset,
    /// The seeds to train.
    pub seeds: Vec<u64>,
}

/// The folder of a run, and whether there is a run to resume in it.
struct Place {
    path: PathBuf,
    resumes: bool,
}

impl Request<'_> {
    /// Begins or resumes the run of an automaton.
    pub fn begin_automaton(
        &self,
        mut loaded: AutomatonExperiment,
        notify: &dyn Fn(Notice<'_>),
    ) -> Result<Begun<(RunFolder, AutomatonExperiment)>, TrainingError> {
        self.replace_settings(&mut loaded)?;
        let place = self.place(&loaded.experiment.name, notify);
        for warning in gatework_gates::automata::advice::warnings(&loaded) {
            notify(Notice::Warning(&warning));
        }
        let (folder, loaded) = if place.resumes {
            let folder = RunFolder::resume(&place.path)?;
            let loaded = automata_run::resume(&folder, &loaded.experiment)?;
            (folder, loaded)
        } else {
            let source = Path::new(self.experiment).parent().unwrap_or(Path::new("."));
            automata_run::begin(&place.path, self.replace, loaded, source)?
        };
        notify_replaced(&folder, notify);
        Ok(match automata_run::finished(&folder)? {
            Some(summary) => Begun::Finished(folder, summary),
            None => Begun::Ready((folder, loaded)),
        })
    }

    /// Begins or resumes the run of a classifier.
    pub fn begin_classifier(
        &self,
        mut loaded: ClassifierExperiment,
        notify: &dyn Fn(Notice<'_>),
    ) -> Result<Begun<(RunFolder, ClassifierExperiment, Arc<Prepared>)>, TrainingError> {
        let experiment = &mut loaded.experiment;
        experiment.training.epochs = self.updates.unwrap_or(experiment.training.epochs);
        experiment.seed = self.seed.unwrap_or(experiment.seed);
        if self.seed.is_some() || self.seeds.is_some() {
            experiment.seeds = self.seeds;
        }
        experiment.check().map_err(|problem| TrainingError::Setting(problem.message))?;
        let place = self.place(&experiment.name, notify);
        let mut resumed = None;
        if place.resumes {
            let folder = RunFolder::resume(&place.path)?;
            classifier_run::resume(&folder, &loaded.experiment)?;
            if let Some(summary) = classifier_run::finished(&folder)? {
                return Ok(Begun::Finished(folder, summary));
            }
            resumed = Some(folder);
        }
        let prepared = loaded.experiment.prepare().map_err(classifier_run::RunError::from)?;
        notify(Notice::Prepared(&prepared));
        let folder = match resumed {
            Some(folder) => folder,
            None => classifier_run::begin(&place.path, self.replace, &loaded)?,
        };
        notify_replaced(&folder, notify);
        Ok(Begun::Ready((folder, loaded, Arc::new(prepared))))
    }

    /// Begins or resumes the run of a forecaster.
    pub fn begin_forecaster(
        &self,
        mut loaded: ForecastExperiment,
        notify: &dyn Fn(Notice<'_>),
    ) -> Result<Begun<ForecasterRun>, TrainingError> {
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
        let place = self.place(&loaded.experiment.name, notify);
        let mut resumed = None;
        if place.resumes {
            let folder = RunFolder::resume(&place.path)?;
            // Of several seeds, the folder names the one that was kept.
            forecast_run::check_same(&folder, &loaded.experiment, self.seeds.is_some())?;
            if let Some(summary) = forecast_run::finished(&folder, seeds.len())? {
                return Ok(Begun::Finished(folder, summary));
            }
            resumed = Some(folder);
        }
        loaded.experiment.specification().parameters().map_err(forecast_run::RunError::from)?;
        let dataset = Dataset::load(&loaded)?;
        let folder = match resumed {
            Some(folder) => folder,
            None => RunFolder::create(&place.path, self.replace, &loaded.experiment.to_toml(), &[])?,
        };
        notify_replaced(&folder, notify);
        Ok(Begun::Ready(ForecasterRun { folder, loaded, dataset, seeds }))
    }

    /// Replaces settings of an automaton, and checks the result.
    fn replace_settings(&self, loaded: &mut AutomatonExperiment) -> Result<(), TrainingError> {
        let experiment = &mut loaded.experiment;
        if let Some(updates) = self.updates {
            experiment.training.updates = updates;
            if let Some(search) = &mut experiment.search {
                search.after = updates;
            }
        }
        if self.recipe == Some(Recipe::Search) && experiment.search.is_none() {
            return Err(TrainingError::Setting(format!("{} has no [search] table", self.experiment)));
        }
        if let Some(recipe) = self.recipe {
            experiment.training.change_recipe(recipe);
        }
        if self.seed.is_some() || self.seeds.is_some() {
            (experiment.seed, experiment.seeds) = (self.seed, self.seeds);
        }
        Ok(loaded.check(self.experiment)?)
    }

    /// Returns the run folder of an experiment of this name.
    fn place(&self, experiment: &str, notify: &dyn Fn(Notice<'_>)) -> Place {
        // A file gives the run its own name: a copied experiment may still have the name of the original. The copy in a run
        // folder does not.
        let is_file = Path::new(self.experiment).is_file();
        let plain = self.experiment.strip_suffix(".gz").unwrap_or(self.experiment);
        let stem = Path::new(plain).file_stem().and_then(OsStr::to_str);
        let is_own = |stem: &&str| is_file && *stem != "experiment" && check_name(stem).is_ok();
        let name = stem.filter(is_own).unwrap_or(experiment);
        let path = match self.out {
            Some(path) => path.to_path_buf(),
            None if self.resume || self.replace => RunFolder::newest_path(name),
            None => RunFolder::unused_path(name),
        };
        let is_missing = self.resume && RunFolder::is_unused(&path);
        if is_missing {
            notify(Notice::NothingToResume(&path));
        }
        Place { path, resumes: self.resume && !is_missing }
    }
}

fn notify_replaced(folder: &RunFolder, notify: &dyn Fn(Notice<'_>)) {
    if let Some(aside) = folder.replaced() {
        notify(Notice::Replaced { path: folder.path(), aside });
    }
}

#[cfg(test)]
mod tests {
    use gatework_gates::classifier::experiment::Files;

    use super::*;

    fn ignore(_: Notice<'_>) {}

    #[test]
    fn invalid_data_and_settings_leave_no_folder_behind() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let request = Request { out: Some(&path), ..Request::default() };
        let mut loaded = ClassifierExperiment::find("iris").unwrap();
        loaded.experiment.data.train = Files::One(parent.path().join("missing.csv").display().to_string());
        assert!(request.begin_classifier(loaded, &ignore).is_err());

        let request = Request { experiment: "brians-brain", recipe: Some(Recipe::Search), ..request };
        let mut loaded = AutomatonExperiment::find("brians-brain").unwrap();
        loaded.experiment.search = None;
        let error = request.begin_automaton(loaded, &ignore).unwrap_err();
        assert!(error.is_usage());
        assert_eq!(error.to_string(), "brians-brain has no [search] table");
        assert!(!path.exists());
    }

    #[test]
    fn a_run_that_is_not_there_begins_and_says_so() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let request = Request { out: Some(&path), resume: true, updates: Some(3), ..Request::default() };
        let seen = std::cell::Cell::new(0);
        let notify = |notice: Notice<'_>| {
            if matches!(notice, Notice::NothingToResume(missing) if missing == path) {
                seen.set(seen.get() + 1);
            }
        };
        for begun in [1, 1] {
            let loaded = AutomatonExperiment::find("checkerboard").unwrap();
            let Begun::Ready((folder, loaded)) = request.begin_automaton(loaded, &notify).unwrap() else {
                panic!("no model was written");
            };
            assert_eq!((folder.path(), loaded.experiment.updates()), (path.as_path(), 3));
            // The second request resumes the first.
            assert_eq!(seen.get(), begun);
        }
    }
}
