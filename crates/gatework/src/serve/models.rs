//! Loaded models. A model is loaded when it is first needed and replaced when the files of its run have changed. While a new
//! version loads, and if it cannot be loaded, requests are answered by the one before.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::SystemTime;

use gatework_forecast::run::ForecastRun;
use gatework_forecast::service::{Service, ServiceOptions};
use gatework_gates::classifier::run as classifier_run;
use gatework_logic::simulate::Predictor;
use gatework_train::run_folder::RunFolder;

use super::classes::Classes;
use super::forecasts::Forecasts;
use super::problem::Problem;
use super::runs::{Kind, Run};

/// The number of models that are kept.
const MAX_MODELS: usize = 64;

/// A model that predicts.
pub enum Model {
    Forecaster(Box<Forecasts>),
    Classifier(Box<Classes>),
}

/// The loaded models by run folder.
#[derive(Default)]
pub struct Models {
    slots: Mutex<HashMap<PathBuf, Arc<Slot>>>,
}

#[derive(Default)]
struct Slot {
    current: Mutex<Option<Current>>,
    /// Held while a version is loaded.
    loading: Mutex<()>,
}

#[derive(Clone)]
struct Current {
    /// Those of the files that a model is loaded from.
    stamp: [Stamp; 2],
    model: Arc<Model>,
}

/// Time and size of a file; `None` if it cannot be found. They tell versions apart: files are replaced as a whole, so a new
/// version has another time.
pub type Stamp = Option<(SystemTime, u64)>;

/// Returns the stamp of a file.
pub fn stamp(file: &Path) -> Stamp {
    let data = file.metadata().ok()?;
    Some((data.modified().ok()?, data.len()))
}

impl Models {
    /// Returns the model of a run.
    pub fn get(&self, run: &Run) -> Result<Arc<Model>, Problem> {
        let stamp = ["model.safetensors", "circuit.json"].map(|name| stamp(&run.path.join(name)));
        let slot = self.slot(&run.path);
        let current = slot.current();
        let _loading = match current {
            Some(current) if current.stamp == stamp => return Ok(current.model),
            Some(current) => match slot.loading.try_lock() {
                Ok(loading) => loading,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(current.model),
            },
            None => slot.loading.lock().unwrap_or_else(PoisonError::into_inner),
        };
        // Another request may have loaded it meanwhile.
        let before = slot.current();
        if let Some(current) = before.as_ref().filter(|current| current.stamp == stamp) {
            return Ok(Arc::clone(&current.model));
        }
        let model = match (load(run), before) {
            (Ok(model), _) => Arc::new(model),
            // It is not tried again before the files change.
            (Err(_), Some(before)) => before.model,
            (Err(problem), None) => return Err(problem),
        };
        *slot.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Current { stamp, model: Arc::clone(&model) });
        Ok(model)
    }

    fn slot(&self, path: &Path) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(path) {
            return Arc::clone(slot);
        }
        if slots.len() >= MAX_MODELS {
            slots.retain(|path, _| path.is_dir());
        }
        if slots.len() >= MAX_MODELS
            && let Some(any) = slots.keys().next().cloned()
        {
            slots.remove(&any);
        }
        Arc::clone(slots.entry(path.to_path_buf()).or_default())
    }
}

impl Slot {
    fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn load(run: &Run) -> Result<Model, Problem> {
    let damaged = |error: &dyn std::fmt::Display| Problem::damaged(&run.name, error);
    let has = |name: &str| run.path.join(name).is_file();
    match run.kind()? {
        Kind::Forecaster if has("model.safetensors") => {
            // Whether a series is new is told in the response.
            let options = ServiceOptions { new_series: true, ..ServiceOptions::default() };
            let opened = ForecastRun::open(&run.path).map_err(|error| damaged(&error))?;
            let opened = opened.ok_or_else(|| damaged(&"it is not the run of a forecaster"))?;
            let service = Service::new(opened.forecaster, &options).map_err(|error| damaged(&error))?;
            service.warm_up(&[1]).map_err(|error| damaged(&error))?;
            let table = OnceLock::new();
            Ok(Model::Forecaster(Box::new(Forecasts { service, loaded: opened.loaded, table })))
        }
        Kind::Classifier if has("circuit.json") => {
            let (loaded, classifier) =
                classifier_run::open(&RunFolder::at(&run.path)).map_err(|error| damaged(&error))?;
            let predictor = Predictor::new(&classifier);
            let options = loaded.experiment.data.table;
            Ok(Model::Classifier(Box::new(Classes { classifier, predictor, options })))
        }
        Kind::Automaton => Err(Problem::conflict(format!(
            "run {:?} is an automaton, which predicts nothing; classifiers and forecasters do",
            run.name
        ))),
        _ => Err(Problem::conflict(format!(
            "run {:?} has no model yet: its training is not finished",
            run.name
        ))),
    }
}
