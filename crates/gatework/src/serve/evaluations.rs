//! Evaluations for the pages of runs: an automaton by the protocols of its experiment, a classifier on its test rows.
//!
//! They take processor time, so one runs at a time, and results are kept until the run changes.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, TryLockError};

use gatework_gates::automata::evaluate::{Score, score};
use serde_json::{Value, json};

use super::models::{Stamp, stamp};
use super::problem::Problem;
use super::runs::{Kind, Run};
use crate::classification::TrainedClassifier;
use crate::subject::Subject;

/// The number of results that are kept.
const MAX_RESULTS: usize = 64;

/// The results of evaluations by run folder.
#[derive(Default)]
pub struct Evaluations {
    results: Mutex<HashMap<PathBuf, (Stamp, Value)>>,
    /// Held during an evaluation.
    running: Mutex<()>,
}

impl Evaluations {
    /// Returns the evaluation of a run.
    pub fn get(&self, run: &Run) -> Result<Value, Problem> {
        let stamp = stamp(&run.path);
        let known = || {
            let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            results.get(&run.path).filter(|(of, _)| *of == stamp).map(|(_, result)| result.clone())
        };
        if let Some(result) = known() {
            return Ok(result);
        }
        let _running = match self.running.try_lock() {
            Ok(running) => running,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Problem::busy("an evaluation is running")),
        };
        // Another request may have finished it meanwhile.
        if let Some(result) = known() {
            return Ok(result);
        }
        let result = evaluate(run)?;
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if results.len() >= MAX_RESULTS {
            results.clear();
        }
        results.insert(run.path.clone(), (stamp, result.clone()));
        Ok(result)
    }
}

fn evaluate(run: &Run) -> Result<Value, Problem> {
    let failed = |error: &dyn Display| Problem::conflict(format!("run {:?}: {error}", run.name));
    match run.kind()? {
        Kind::Automaton => {
            let subject = Subject::open(&run.path).map_err(|error| failed(&error))?;
            let automaton = subject.automaton().map_err(|error| failed(&error))?;
            let loaded = subject.loaded.as_ref().ok_or_else(|| failed(&"it has no experiment"))?;
            let protocols = loaded.experiment.protocols.iter();
            let scores: Result<Vec<Score>, _> =
                protocols.map(|protocol| score(automaton, loaded, protocol, 0)).collect();
            Ok(json!({ "protocols": scores.map_err(|error| failed(&error))? }))
        }
        Kind::Classifier => {
            let trained = TrainedClassifier::open(&run.path).map_err(|error| failed(&error))?;
            let trained = trained.ok_or_else(|| failed(&"it has no classifier"))?;
            let evaluated = trained.evaluate().map_err(|error| failed(&error))?;
            let mut result = json!(evaluated.evaluation);
            result["data"] = json!(evaluated.what);
            // Rows of tables are no pictures.
            let sheet = (!evaluated.mistakes.is_empty()).then(|| evaluated.mistake_sheet(&run.name).ok());
            result["mistakes"] = json!(sheet.flatten());
            Ok(result)
        }
        Kind::Forecaster => Err(Problem::conflict(format!(
            "run {:?} is a forecaster: its scores are in its summary",
            run.name
        ))),
    }
}
