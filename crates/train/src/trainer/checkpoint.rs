//! Checkpoints: the complete state of an attempt in one safetensors file.
//!
//! The checkpoint before the last one is kept under another name. It is used if the last one is damaged or missing: a file
//! system may lose what was written before a power failure, and a disk may flip bits.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Metric, Outcome, Settings, Stage};
use super::{Losses, Task};
use crate::files;
use crate::loss_scale::LossScale;
use crate::optim::OptimizerState;
use crate::tensor_file::{TensorFileError, TensorFormat};

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// It is damaged: truncated, or its checksum does not match.
    #[error("{}: {problem}; remove the file to train its seed from the beginning", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: TensorFileError,
    },
    /// It belongs to another experiment, or to a newer version of Gatework.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: CheckpointProblem,
    },
}

impl CheckpointError {
    fn is_of_another_task(&self) -> bool {
        matches!(self, CheckpointError::Unusable { problem: CheckpointProblem::State(_), .. })
    }
}

/// Bytes that are not those of a usable checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointProblem {
    /// The bytes are not those of a checkpoint.
    #[error(transparent)]
    Format(#[from] TensorFileError),
    /// The checkpoint does not belong to the task, or its state is inconsistent.
    #[error("{0}")]
    State(String),
}

impl From<String> for CheckpointProblem {
    fn from(problem: String) -> CheckpointProblem {
        CheckpointProblem::State(problem)
    }
}

const FORMAT: TensorFormat = TensorFormat { key: "gatework-checkpoint", version: 2 };

/// The state that is not stored as tensors.
#[derive(Serialize, Deserialize)]
struct State {
    seed: u64,
    optimizer_step: u64,
    outcome: Outcome,
    seconds: f64,
    #[serde(default)]
    moves: u64,
    #[serde(default)]
    trace: Vec<(u64, f64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Stage>,
    /// The hard loss of the result of [`Task::finish`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<LossScale>,
}

/// Returns the path of the checkpoint before the one at `path`.
fn previous(path: &Path) -> PathBuf {
    path.with_extension("previous.safetensors")
}

impl Attempt {
    /// Writes the attempt and the current parameters of the task atomically. The checkpoint that was there is kept under
    /// another name.
    pub fn save(&self, task: &impl Task, path: &Path) -> Result<(), files::FileError> {
        let best = self.best.as_ref();
        let state = State {
            seed: self.seed,
            optimizer_step: self.optimizer.step,
            outcome: self.outcome,
            seconds: self.seconds,
            moves: self.moves,
            trace: self.trace.clone(),
            stages: self.stages.clone(),
            finished: best.and_then(|best| best.finished.as_ref().map(|_| best.hard)),
            loss_scale: self.loss_scale,
        };
        let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let losses = |loss: fn(&Metric) -> f64| {
            self.metrics.iter().flat_map(|m| loss(m).to_le_bytes()).collect::<Vec<u8>>()
        };
        let tensors = [
            ("values", Dtype::F32, floats(&task.params().values)),
            ("first", Dtype::F32, floats(&self.optimizer.first)),
            ("second", Dtype::F32, floats(&self.optimizer.second)),
            ("best", Dtype::F32, best.map_or_else(Vec::new, |best| floats(&best.values))),
            ("finished", Dtype::U8, best.and_then(|best| best.finished.clone()).unwrap_or_default()),
            ("soft", Dtype::F64, losses(|m| m.soft)),
            // NaN where the hard loss was not computed.
            ("hard", Dtype::F64, losses(|m| m.hard.unwrap_or(f64::NAN))),
        ];
        let tensors = tensors.map(|(name, dtype, data)| {
            let size = data.len() * 8 / dtype.bitsize();
            (name.to_string(), dtype, vec![size], data)
        });
        files::write_keeping_previous(path, &previous(path), &FORMAT.write(&state, &tensors))
    }

    /// Reads the checkpoint at `path` and sets the parameters of the task; `None` if there is none. If the file is damaged or
    /// missing, the checkpoint before it is read; `damaged` is then called with the error.
    pub fn resume(
        path: &Path,
        seed: u64,
        settings: &Settings,
        task: &mut impl Task,
        damaged: impl FnOnce(&CheckpointError),
    ) -> Result<Option<Attempt>, CheckpointError> {
        let previous = previous(path);
        // The next checkpoint must not replace the last one that is whole.
        let restore = || files::rename(&previous, path);
        if !path.exists() && previous.exists() {
            // Interrupted while the checkpoint was replaced.
            restore()?;
        }
        if !path.exists() {
            return Ok(None);
        }
        match Attempt::load(path, seed, settings, task) {
            // The version may be damaged, too.
            Err(error) if previous.exists() && !error.is_of_another_task() => {
                let Ok(attempt) = Attempt::load(&previous, seed, settings, task) else { return Err(error) };
                damaged(&error);
                restore()?;
                Ok(Some(attempt))
            }
            attempt => attempt.map(Some),
        }
    }

    /// Reads an attempt, and sets the parameters of the task.
    pub fn load(
        path: &Path,
        seed: u64,
        settings: &Settings,
        task: &mut impl Task,
    ) -> Result<Attempt, CheckpointError> {
        let bytes = files::read(path)?;
        let path = path.to_path_buf();
        Attempt::from_bytes(&bytes, seed, settings, task).map_err(|problem| match problem {
            CheckpointProblem::Format(problem) if !matches!(problem, TensorFileError::Newer(_)) => {
                CheckpointError::Damaged { path, problem }
            }
            problem => CheckpointError::Unusable { path, problem },
        })
    }

    /// Reads and validates an attempt from the bytes of a file.
    pub fn from_bytes(
        bytes: &[u8],
        seed: u64,
        settings: &Settings,
        task: &mut impl Task,
    ) -> Result<Attempt, CheckpointProblem> {
        let (state, file): (State, SafeTensors<'_>) = FORMAT.read(bytes)?;
        if state.seed != seed {
            return Err(format!("it is of seed {}, not of seed {seed}", state.seed).into());
        }
        let tensor = |name: &str, dtype: Dtype| {
            let tensor = file.tensor(name).map_err(|_| format!("tensor {name} is missing"))?;
            if tensor.dtype() == dtype {
                Ok(tensor.data())
            } else {
                Err(format!("tensor {name} does not have type {dtype:?}"))
            }
        };
        let floats = |name: &str| -> Result<Vec<f32>, String> {
            Ok(tensor(name, Dtype::F32)?.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
        };
        let losses = |name: &str| -> Result<Vec<f64>, String> {
            Ok(tensor(name, Dtype::F64)?.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect())
        };
        let (values, best, soft, hard) =
            (floats("values")?, floats("best")?, losses("soft")?, losses("hard")?);
        let n = task.params().len();
        let hard: Vec<Option<f64>> =
            hard.into_iter().map(|hard| Some(hard).filter(|hard| !hard.is_nan())).collect();
        if values.len() != n || hard.iter().any(Option::is_some) && best.len() != n {
            return Err(format!("it has {} parameters, but this experiment has {n}", values.len()).into());
        }
        let is_loss = |loss: f64| loss.is_finite() && loss >= 0.0;
        if state.finished.iter().chain(state.trace.iter().map(|(_, loss)| loss)).any(|&loss| !is_loss(loss)) {
            return Err("a loss of its finished model is not finite".to_string().into());
        }
        if soft.len() != hard.len() || soft.iter().chain(hard.iter().flatten()).any(|loss| !loss.is_finite())
        {
            return Err(format!("its losses are not numbers of {} updates", soft.len()).into());
        }
        state.loss_scale.map_or(Ok(()), |scale| scale.validate())?;
        if state.loss_scale.is_some() != settings.scales_loss {
            let (its, ours) = if settings.scales_loss { ("without", "with") } else { ("with", "without") };
            return Err(format!("it was trained {its} loss scaling, but this experiment is {ours}").into());
        }
        let skipped = state.loss_scale.map_or(0, |scale| scale.skipped());
        let steps = state.optimizer_step.saturating_add(skipped);
        if !(soft.len().saturating_sub(1)..=soft.len()).contains(&(steps as usize)) {
            return Err(format!("{} updates, but {steps} optimiser steps", soft.len()).into());
        }
        let optimizer =
            OptimizerState { step: state.optimizer_step, first: floats("first")?, second: floats("second")? };
        settings.optimizer.check_state(&optimizer, n)?;
        task.params_mut().values.copy_from_slice(&values);
        let mut attempt = Attempt::new(seed, settings, n);
        for (soft, hard) in soft.into_iter().zip(hard) {
            attempt.record_losses(Losses { soft, hard });
        }
        if let Some(at_best) = &mut attempt.best {
            at_best.values = best;
            if let Some(hard) = state.finished {
                at_best.hard = hard;
                at_best.finished = Some(tensor("finished", Dtype::U8)?.to_vec());
            }
        }
        let State { outcome, seconds, moves, trace, stages, loss_scale, .. } = state;
        Ok(Attempt { outcome, moves, trace, stages, seconds, loss_scale, optimizer, ..attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::super::attempt::tests::{Overflowing, Threes, settings};
    use super::*;

    /// Trains without interruption, and with checkpoints that are loaded.
    fn assert_resumes(settings: &Settings, make: impl Fn() -> Overflowing) -> Attempt {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed-1.safetensors");
        let (mut whole_task, mut task) = (make(), make());
        let mut whole = Attempt::new(1, settings, 3);
        let mut attempt = Attempt::new(1, settings, 3);
        for update in 0..20 {
            whole.advance(&mut whole_task, settings).unwrap();
            if update % 7 == 3 {
                attempt.save(&task, &path).unwrap();
                task = make();
                attempt = Attempt::load(&path, 1, settings, &mut task).unwrap();
            }
            attempt.advance(&mut task, settings).unwrap();
        }
        assert_eq!(attempt, whole);
        assert_eq!(task.params().values, whole_task.params().values);
        whole
    }

    #[test]
    fn an_attempt_continues_identically_after_it_was_saved_and_loaded() {
        assert_resumes(&settings(), || Overflowing { task: Threes::new(1), limit: f32::MAX });
    }

    #[test]
    fn the_loss_scale_continues_after_it_was_saved_and_loaded() {
        let scaling = Settings { scales_loss: true, ..settings() };
        let make = || Overflowing { task: Threes::new(9), limit: 64.0 };
        let attempt = assert_resumes(&scaling, make);
        assert_eq!(attempt.loss_scale.unwrap().skipped(), 10);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed-1.safetensors");
        attempt.save(&make(), &path).unwrap();
        let message = Attempt::load(&path, 1, &settings(), &mut make()).unwrap_err().to_string();
        assert!(message.contains("trained with loss scaling, but this experiment is without"), "{message}");
    }

    /// Trains for two updates with a checkpoint after each, and returns the paths of the last one and the one before it.
    fn two_checkpoints(folder: &Path) -> [PathBuf; 2] {
        let path = folder.join("seed-1.safetensors");
        let settings = settings();
        let mut task = Threes::new(1);
        let mut attempt = Attempt::new(1, &settings, 3);
        for _ in 0..2 {
            attempt.advance(&mut task, &settings).unwrap();
            attempt.save(&task, &path).unwrap();
        }
        [path.clone(), previous(&path)]
    }

    /// Resumes seed 1, and returns the number of updates and the reported damage.
    fn resumed(path: &Path) -> Result<(Option<u64>, Option<String>), CheckpointError> {
        let mut reported = None;
        let report = |error: &CheckpointError| reported = Some(error.to_string());
        let attempt = Attempt::resume(path, 1, &settings(), &mut Threes::new(1), report)?;
        Ok((attempt.map(|attempt| attempt.update), reported))
    }

    #[test]
    fn a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let [last, previous] = two_checkpoints(folder.path());
        assert_eq!(resumed(&last).unwrap(), (Some(2), None));
        let [whole, before] = [&last, &previous].map(|path| std::fs::read(path).unwrap());
        for bit in (0..8 * whole.len()).step_by(11) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&last, &flipped).unwrap();
            std::fs::write(&previous, &before).unwrap();
            let (updates, reported) = resumed(&last).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
            match reported {
                Some(message) => {
                    assert!(message.contains("seed-1.safetensors") && updates == Some(1), "bit {bit}");
                    assert_eq!(std::fs::read(&last).unwrap(), before, "the whole one is the last one now");
                }
                None => assert_eq!(updates, Some(2), "bit {bit}"),
            }
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&last, &flipped).unwrap();
        std::fs::write(&previous, &before).unwrap();
        let message = resumed(&last).unwrap().1.unwrap();
        assert!(message.contains("the checksum does not match"), "{message}");
        // Both are damaged, or the only one is.
        std::fs::write(&last, &flipped).unwrap();
        std::fs::write(&previous, &flipped).unwrap();
        assert!(matches!(resumed(&last), Err(CheckpointError::Damaged { path, .. }) if path == last));
        std::fs::remove_file(&previous).unwrap();
        assert!(matches!(resumed(&last), Err(CheckpointError::Damaged { .. })));
    }

    #[test]
    fn a_missing_checkpoint_is_replaced_by_the_one_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let [last, previous] = two_checkpoints(folder.path());
        std::fs::remove_file(&last).unwrap();
        assert_eq!(resumed(&last).unwrap(), (Some(1), None));
        assert!(last.exists() && !previous.exists());
        std::fs::remove_file(&last).unwrap();
        assert_eq!(resumed(&last).unwrap(), (None, None));
    }

    #[test]
    fn checkpoints_of_other_seeds_states_and_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [path, _] = two_checkpoints(folder.path());
        let bytes = std::fs::read(&path).unwrap();
        let load = |bytes: &[u8], seed| {
            std::fs::write(&path, bytes).unwrap();
            Attempt::load(&path, seed, &settings(), &mut Threes::new(1)).unwrap_err().to_string()
        };
        for cut in [0, 7, 60, bytes.len() - 1] {
            assert!(load(&bytes[..cut], 1).contains("not a complete safetensors file"), "cut at {cut}");
        }
        assert!(load(&bytes, 2).contains("it is of seed 1, not of seed 2"));
        let changed = |from: &str, to: &str| {
            let mut changed = bytes.clone();
            let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            changed[at..at + from.len()].copy_from_slice(to.as_bytes());
            changed
        };
        let newer = changed(r#"\"version\":2"#, r#"\"version\":3"#);
        assert!(load(&newer, 1).contains("a newer version of Gatework (format 3"));
        // A file of version 1 has no checksum: its state is checked all the same.
        let (state, file): (serde_json::Value, SafeTensors<'_>) = FORMAT.read(&bytes).unwrap();
        let mut state = state.as_object().unwrap().clone();
        state.remove("checksum");
        state.insert("version".into(), 1.into());
        let state = serde_json::Value::from(state).to_string();
        let mut old =
            safetensors::serialize(file.tensors(), Some([(FORMAT.key.into(), state)].into())).unwrap();
        std::fs::write(&path, &old).unwrap();
        assert!(Attempt::load(&path, 1, &settings(), &mut Threes::new(1)).is_ok());
        let soft = Attempt::from_bytes(&bytes, 1, &settings(), &mut Threes::new(1)).unwrap().metrics[0].soft;
        let place = old.windows(8).position(|window| window == soft.to_le_bytes()).unwrap();
        old[place..place + 8].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(load(&old, 1).contains("not numbers"));
    }
}
