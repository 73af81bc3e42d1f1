//! Training of an experiment into a run folder.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_train::files;
use gatework_train::run_folder::{self, RunFolder, RunFolderError};
use gatework_train::trainer::{self, Attempt, Observer, Options};
use serde_json::{Value, json};

use super::score::{default_step, scaled_score, score};
use super::train::{concurrent_seeds, forecaster, settings, train};
use super::{RunError, SeedScores};
use crate::Forecaster;
use crate::data::Subset;
use crate::evaluation::{Evaluation, ScaledErrors, Watch};
use crate::experiment::{Dataset, Experiment};
use crate::prediction::PredictError;

/// The file in the checkpoint folder with the fingerprint of the data.
const DATA_FILE: &str = "data.txt";

/// Time between checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// An experiment that is to be trained into a run folder.
#[derive(Debug)]
pub struct Job<'a> {
    /// The experiment, with absolute paths (see [`prepare`](super::prepare)).
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
    pub forecaster: Forecaster,
    /// The subset that it was evaluated on: the test subset, unless that is empty.
    pub subset: Subset,
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
        if !self.folder.experiment().is_file() {
            self.folder.write("experiment.toml", self.experiment.to_toml().as_bytes())?;
        }
        let attempts = self.attempts(observer, stop)?;
        self.folder.write("metrics.csv", self.metrics(&attempts).as_bytes())?;
        let mut scored = Vec::new();
        for attempt in attempts {
            scored.push(self.score(attempt, begin, stop)?);
        }
        let seeds = SeedScores::new(&scored);
        scored.sort_by(|a, b| a.validation.total_cmp(&b.validation));
        let mut kept = scored.into_iter().next().ok_or(RunError::NoValidation)?;
        kept.seeds = seeds;
        let experiment = Experiment { seed: kept.attempt.seed, ..self.experiment.clone() };
        self.folder.write("experiment.toml", experiment.to_toml().as_bytes())?;
        self.folder.write("model.safetensors", &kept.forecaster.to_bytes())?;
        Ok(kept)
    }

    /// Ends the run: writes the summary and returns it.
    pub fn finish(&self, trained: &Trained) -> Result<Value, RunError> {
        let Trained { attempt, forecaster, evaluation, .. } = trained;
        let best = attempt.best.as_ref();
        let mut summary = json!({
            "version": run_folder::VERSION,
            "experiment": self.experiment.name,
            "model": forecaster.specification().model.name(),
            "parameters": forecaster.parameters(),
            "horizon": forecaster.specification().horizon,
            "seed": attempt.seed,
            "updates": attempt.update,
            "epochs": self.experiment.training.epochs(self.dataset.updates_per_epoch(self.experiment)),
            "best_update": best.map(|best| best.update),
            "seconds": attempt.seconds,
            "training_loss": best.map(|best| best.soft),
            "validation_loss": trained.validation,
            "evaluated_on": trained.subset.name(),
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
        let concurrent_attempts =
            concurrent_seeds(experiment, dataset, threads.min(self.seeds.len()), threads);
        let options = Options {
            settings: self.settings(),
            seeds: self.seeds.clone(),
            until_success: false,
            concurrent_attempts,
            threads_per_attempt: threads / concurrent_attempts.max(1),
            checkpoints: Some(folder.checkpoints()),
            interval: CHECKPOINT_INTERVAL,
        };
        let attempts = train(experiment, dataset, &options, observer, stop)?;
        if !options.is_complete(&attempts) {
            return Err(self.interrupted());
        }
        Ok(attempts)
    }

    fn interrupted(&self) -> RunError {
        RunFolderError::Interrupted { path: self.folder.path().to_path_buf() }.into()
    }

    /// Returns the settings of the training loop.
    pub fn settings(&self) -> trainer::Settings {
        settings(self.experiment, self.dataset)
    }

    /// Evaluates the model of a seed. If it is interrupted, a resumed run evaluates it again.
    fn score(&self, attempt: Attempt, begin: Instant, stop: &AtomicBool) -> Result<Trained, RunError> {
        let watch = |_, _| {
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.score_until(attempt, begin, &watch).map_err(|error| match error {
            RunError::Predict(PredictError::Interrupted(_)) => self.interrupted(),
            error => error,
        })
    }

    fn score_until(&self, attempt: Attempt, begin: Instant, watch: Watch<'_>) -> Result<Trained, RunError> {
        let best = attempt.best.as_ref().ok_or(RunError::NoValidation)?;
        let has_test = !self.dataset.windows(Subset::Test, 1).is_empty();
        let subset = if has_test { Subset::Test } else { Subset::Validation };
        let forecaster = forecaster(self.experiment, self.dataset, best, watch)?;
        let step = default_step(self.dataset, subset);
        let evaluation = score(&forecaster, self.dataset, subset, step, watch)?;
        let scaled = scaled_score(&forecaster, self.dataset, subset, watch)?;
        let (validation, seeds) = (best.hard, SeedScores::default());
        Ok(Trained { attempt, validation, forecaster, subset, step, evaluation, scaled, seeds, begin })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{BUILT_IN, ForecastExperiment};
    use gatework_train::experiment::Source;
    use gatework_train::trainer::Quiet;

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
}
