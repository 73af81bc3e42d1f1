//! Evaluations for the pages of runs: an automaton by the protocols of its experiment, a classifier on its test rows.
//!
//! They take processor time, so one runs at a time, and results, also errors, are kept until the run or its data change.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, TryLockError};

use gatework_gates::automata::evaluate::{Score, score};
use gatework_gates::automata::experiment::Experiment;
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_train::experiment::Source;
use serde_json::{Value, json};

use super::models::{self, Stamp};
use super::problem::Problem;
use super::runs::{Kind, Run};
use crate::classification::TrainedClassifier;
use crate::subject::Subject;

/// The number of results that are kept.
const MAX_RESULTS: usize = 64;

/// The files that an evaluation depends on, with their stamps.
type Files = Vec<(PathBuf, Stamp)>;

/// What an evaluation has found, or why it failed.
type Outcome = Result<Value, Problem>;

/// The results of evaluations by run folder.
#[derive(Default)]
pub struct Evaluations {
    results: Mutex<HashMap<PathBuf, (Files, Outcome)>>,
    /// Held during an evaluation.
    running: Mutex<()>,
}

impl Evaluations {
    /// Returns the evaluation of a run.
    pub fn get(&self, run: &Run) -> Outcome {
        let files = files(run);
        let known = || {
            let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            results.get(&run.path).filter(|(of, _)| *of == files).map(|(_, result)| result.clone())
        };
        if let Some(result) = known() {
            return result;
        }
        let _running = match self.running.try_lock() {
            Ok(running) => running,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Problem::busy("an evaluation is running")),
        };
        // Another request may have finished it meanwhile.
        if let Some(result) = known() {
            return result;
        }
        let result = evaluate(run);
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if results.len() >= MAX_RESULTS {
            results.clear();
        }
        results.insert(run.path.clone(), (files, result.clone()));
        result
    }
}

/// Returns the files that the evaluation of a run depends on: those of the run, and its target or its data.
fn files(run: &Run) -> Files {
    let own = ["experiment.toml", "model.safetensors", "circuit.json"].map(|name| run.path.join(name));
    let others = match (Source::read(&own[0]), run.kind()) {
        (Ok(source), Ok(Kind::Automaton)) => {
            let experiment = source.parse::<Experiment>().ok();
            experiment.and_then(|it| it.target.file().map(|file| run.path.join(file))).into_iter().collect()
        }
        (Ok(source), Ok(Kind::Classifier)) => ClassifierExperiment::from_source(&source)
            .map_or_else(|_| Vec::new(), |loaded| loaded.experiment.data_files()),
        _ => Vec::new(),
    };
    let stamped = |path: PathBuf| {
        let stamp = models::stamp(&path);
        (path, stamp)
    };
    own.into_iter().chain(others).map(stamped).collect()
}

fn evaluate(run: &Run) -> Outcome {
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

#[cfg(test)]
mod tests {
    use gatework_gates::classifier::experiment::BUILT_IN;

    use super::*;

    #[test]
    fn an_evaluation_that_fails_is_kept_until_the_data_change() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let experiment = |train: &str| {
            let (_, iris) = BUILT_IN.into_iter().find(|(name, _)| *name == "iris").unwrap();
            let mut toml: toml::Table = iris.parse().unwrap();
            toml["data"]["train"] = train.into();
            write("experiment.toml", &toml.to_string());
        };
        experiment("rows.csv");
        write("rows.csv", "a,class\n1,x\n");
        let run = Run { name: "run".into(), path: folder.path().into() };
        let evaluations = Evaluations::default();
        let kept = || {
            let results = evaluations.results.lock().unwrap();
            results.get(&run.path).map(|(files, result)| (files.clone(), result.is_err()))
        };
        let detail = evaluations.get(&run).unwrap_err().detail();
        assert!(detail.contains("the run is not finished"), "{detail}");
        assert_eq!(kept(), Some((files(&run), true)));
        assert_eq!(evaluations.get(&run).unwrap_err().detail(), detail);
        write("rows.csv", "a,class\n1,x\n2,y\n");
        assert_ne!(kept(), Some((files(&run), true)), "other data");
        evaluations.get(&run).unwrap_err();
        experiment("other.csv");
        assert_ne!(kept(), Some((files(&run), true)), "another experiment");
    }

    #[test]
    fn the_target_of_an_automaton_counts_also_if_it_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let mut toml: toml::Table = include_str!("../../tests/program/small.toml").parse().unwrap();
        toml.insert("target".into(), toml::toml! { kind = "picture" file = "target.png" }.into());
        std::fs::write(folder.path().join("experiment.toml"), toml.to_string()).unwrap();
        std::fs::write(folder.path().join("target.png"), "broken").unwrap();
        let run = Run { name: "run".into(), path: folder.path().into() };
        let before = files(&run);
        std::fs::write(folder.path().join("target.png"), "another").unwrap();
        assert_ne!(files(&run), before);
    }
}
