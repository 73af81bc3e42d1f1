//! Checkpoints: the complete state of an attempt in one safetensors file.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Metric, Outcome, Settings};
use super::{Losses, Task};
use crate::files;
use crate::optim::OptimizerState;

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// It is truncated, not a checkpoint, or belongs to another experiment.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The metadata key of the state that is not stored as tensors.
const STATE: &str = "gatework-checkpoint";

/// The version of checkpoints that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct State {
    /// 0 in checkpoints that were written before they had a version.
    #[serde(default)]
    version: u64,
    seed: u64,
    optimizer_step: u64,
    outcome: Outcome,
    seconds: f64,
    #[serde(default)]
    moves: u64,
    #[serde(default)]
    trace: Vec<(u64, f64)>,
    /// The hard loss of the result of [`Task::finish`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<f64>,
}

impl Attempt {
    /// Writes the attempt and the current parameters of the task atomically.
    pub fn save(&self, task: &impl Task, path: &Path) -> Result<(), files::FileError> {
        let best = self.best.as_ref();
        let state = State {
            version: VERSION,
            seed: self.seed,
            optimizer_step: self.optimizer.step,
            outcome: self.outcome,
            seconds: self.seconds,
            moves: self.moves,
            trace: self.trace.clone(),
            finished: best.and_then(|best| best.finished.as_ref().map(|_| best.hard)),
        };
        let state = serde_json::to_string(&state).expect("numbers and names");
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
        let views = tensors.iter().map(|(name, dtype, data)| {
            let size = data.len() * 8 / dtype.bitsize();
            (*name, TensorView::new(*dtype, vec![size], data).expect("as many bytes as the shape says"))
        });
        let metadata = [(STATE.to_string(), state)].into();
        let bytes = safetensors::serialize(views, Some(metadata)).expect("names and shapes are valid");
        files::write_atomic(path, &bytes)
    }

    /// Reads an attempt, and sets the parameters of the task.
    pub fn load(
        path: &Path,
        seed: u64,
        settings: &Settings,
        task: &mut impl Task,
    ) -> Result<Attempt, CheckpointError> {
        let bytes = files::read(path)?;
        Attempt::from_bytes(&bytes, seed, settings, task)
            .map_err(|problem| CheckpointError::Unusable { path: path.to_path_buf(), problem })
    }

    /// Reads and validates an attempt from the bytes of a file.
    pub fn from_bytes(
        bytes: &[u8],
        seed: u64,
        settings: &Settings,
        task: &mut impl Task,
    ) -> Result<Attempt, String> {
        let broken = |error: safetensors::SafeTensorError| format!("not a complete checkpoint ({error})");
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let file = SafeTensors::deserialize(bytes).map_err(broken)?;
        let state =
            header.metadata().as_ref().and_then(|m| m.get(STATE)).ok_or("not a checkpoint of Gatework")?;
        files::check_json_version(state, VERSION).map_err(|error| error.to_string())?;
        let state: State =
            serde_json::from_str(state).map_err(|error| format!("unreadable state: {error}"))?;
        if state.seed != seed {
            return Err(format!("it is of seed {}, not of seed {seed}", state.seed));
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
            return Err(format!("it has {} parameters, but this experiment has {n}", values.len()));
        }
        let is_loss = |loss: f64| loss.is_finite() && loss >= 0.0;
        if state.finished.iter().chain(state.trace.iter().map(|(_, loss)| loss)).any(|&loss| !is_loss(loss)) {
            return Err("a loss of its finished model is not finite".into());
        }
        if soft.len() != hard.len() || soft.iter().chain(hard.iter().flatten()).any(|loss| !loss.is_finite())
        {
            return Err(format!("its losses are not numbers of {} updates", soft.len()));
        }
        if !(soft.len().saturating_sub(1)..=soft.len()).contains(&(state.optimizer_step as usize)) {
            return Err(format!("{} updates, but {} optimiser steps", soft.len(), state.optimizer_step));
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
        let State { outcome, seconds, moves, trace, .. } = state;
        Ok(Attempt { outcome, moves, trace, seconds, optimizer, ..attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::super::attempt::tests::{Threes, settings};
    use super::*;

    #[test]
    fn an_attempt_continues_identically_after_it_was_saved_and_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed-1.safetensors");
        let settings = settings();
        let (mut whole_task, mut task) = (Threes::new(1), Threes::new(1));
        let mut whole = Attempt::new(1, &settings, 3);
        let mut attempt = Attempt::new(1, &settings, 3);
        for update in 0..20 {
            whole.advance(&mut whole_task, &settings).unwrap();
            if update % 7 == 3 {
                attempt.save(&task, &path).unwrap();
                task = Threes::new(1);
                attempt = Attempt::load(&path, 1, &settings, &mut task).unwrap();
            }
            attempt.advance(&mut task, &settings).unwrap();
        }
        assert_eq!(attempt, whole);
        assert_eq!(task.params().values, whole_task.params().values);
    }

    #[test]
    fn damaged_and_foreign_checkpoints_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed-1.safetensors");
        let settings = settings();
        let mut task = Threes::new(1);
        let mut attempt = Attempt::new(1, &settings, 3);
        attempt.advance(&mut task, &settings).unwrap();
        attempt.save(&task, &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut load = |bytes: &[u8], seed| {
            std::fs::write(&path, bytes).unwrap();
            Attempt::load(&path, seed, &settings, &mut task).unwrap_err().to_string()
        };
        for cut in [0, 7, 60, bytes.len() - 1] {
            assert!(load(&bytes[..cut], 1).contains("not a complete checkpoint"), "cut at {cut}");
        }
        assert!(load(&bytes, 2).contains("it is of seed 1, not of seed 2"));
        let soft = attempt.metrics[0].soft.to_le_bytes();
        let place = bytes.windows(8).position(|window| window == soft).unwrap();
        let mut poisoned = bytes.clone();
        poisoned[place..place + 8].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(load(&poisoned, 1).contains("not numbers"));
        let version = bytes.windows(11).position(|window| window == b"\\\"version\\\"").unwrap() + 12;
        let mut newer = bytes.clone();
        assert_eq!(newer[version], b'1');
        newer[version] = b'2';
        assert!(load(&newer, 1).contains("a newer version of Gatework (format 2"));
    }
}
