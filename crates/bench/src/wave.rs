//! Forecasting windows cut from a synthetic wave.

use anyhow::Context as _;
use gatework_forecast::Specification;
use gatework_forecast::data::{Batch, BatchSource};
use gatework_train::optim::Optimizer;
use gatework_train::trainer::TaskError;
use serde_json::{Value, json};

/// The optimiser of the forecasting benchmarks.
pub const ADAM: Optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };

/// Returns the specification of a model without normalisation.
pub fn specification(model: &Value, input: usize, horizon: usize) -> anyhow::Result<Specification> {
    let text = json!({ "model": model, "normalization": "none", "input": input, "horizon": horizon });
    serde_json::from_value(text).with_context(|| format!("invalid model {model}"))
}

/// Windows of a sine wave with a sawtooth added; every update sees the same batch.
pub struct Wave(pub Batch);

impl Wave {
    /// Returns a batch of `rows` windows.
    pub fn new(specification: &Specification, rows: usize) -> Wave {
        let mut batch = Batch::new(specification.shape(rows));
        batch.past.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i));
        batch.target.iter_mut().enumerate().for_each(|(i, x)| *x = wave(i + 5));
        Wave(batch)
    }
}

/// Returns value `i` of the wave.
pub fn wave(i: usize) -> f32 {
    ((i * 37 % 101) as f32 * 0.01 + (i as f32 * 0.26).sin()) * 0.5
}

impl BatchSource for Wave {
    fn updates_per_epoch(&self) -> u64 {
        u64::MAX
    }

    fn training(&mut self, _: u64, batch: &mut Batch) -> Result<(), TaskError> {
        if batch.shape == self.0.shape {
            batch.past.copy_from_slice(&self.0.past);
            batch.target.copy_from_slice(&self.0.target);
        } else {
            *batch = self.0.clone();
        }
        Ok(())
    }

    fn validation(&mut self, _: u64, _: &mut Batch) -> Result<bool, TaskError> {
        Ok(false)
    }
}
