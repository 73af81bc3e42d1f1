//! A synthetic signal for tests: a trend, two seasons and noise.

use crate::data::{Batch, BatchSource};
use crate::specification::Specification;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Periods of the two seasons.
pub const PERIODS: [usize; 2] = [12, 8];

/// Standard deviation of the noise: no forecast has a mean squared error much below its square.
pub const NOISE: f64 = 0.1;

/// Length of the signal, and of its training subset.
const LENGTH: usize = 1200;
const TRAINING: usize = 900;

/// Batches of windows of the signal.
pub struct Signal {
    values: Vec<f32>,
    specification: Specification,
    rows: usize,
}

/// Returns the signal without noise.
fn clean(t: usize) -> f64 {
    let turn = |period: usize| 2.0 * std::f64::consts::PI * t as f64 / period as f64;
    2e-3 * t as f64 + turn(PERIODS[0]).sin() + 0.5 * (turn(PERIODS[1]) + 1.0).cos()
}

/// Returns uniform noise with standard deviation [`NOISE`].
fn noise(t: usize) -> f64 {
    let uniform = f64::from(Random::new(1, Purpose::Check, t as u64).uniform());
    (uniform - 0.5) * 12f64.sqrt() * NOISE
}

impl Signal {
    /// Creates batches of `rows` windows for a model.
    pub fn new(specification: &Specification, rows: usize) -> Signal {
        // Centred, as a scaler would leave it.
        let values = (0..LENGTH).map(|t| (clean(t) + noise(t) - 1.2) as f32).collect();
        Signal { values, specification: specification.clone(), rows }
    }

    /// Fills a batch with windows that begin at the given steps. Known-future covariates are the phase of the first season;
    /// other covariates are small integers.
    pub fn fill(&self, begins: &[usize], batch: &mut Batch) {
        let shape = self.specification.shape(begins.len());
        if batch.shape != shape {
            *batch = Batch::new(shape);
        }
        let (input, horizon) = (shape.input, shape.horizon);
        for (row, &begin) in begins.iter().enumerate() {
            let values = &self.values[begin..begin + input + horizon];
            batch.past[row * input..][..input].copy_from_slice(&values[..input]);
            batch.target[row * horizon..][..horizon].copy_from_slice(&values[input..]);
            let width = shape.future_columns;
            for (t, columns) in batch.future_columns[row * (input + horizon) * width..]
                .chunks_mut(width.max(1))
                .take(input + horizon)
                .enumerate()
            {
                let turn = 2.0 * std::f64::consts::PI * (begin + t) as f64 / PERIODS[0] as f64;
                columns.iter_mut().enumerate().for_each(|(i, x)| *x = (turn + i as f64).sin() as f32);
            }
        }
        batch.past_columns.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 2) as f32);
        batch.static_columns.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 3) as f32);
    }

    fn span(&self) -> usize {
        self.specification.input + self.specification.horizon
    }

    /// Returns the first steps of the validation windows.
    fn validation_begins(&self) -> Vec<usize> {
        (TRAINING - self.specification.input..=LENGTH - self.span()).step_by(3).collect()
    }
}

impl BatchSource for Signal {
    fn updates_per_epoch(&self) -> u64 {
        20
    }

    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
        let mut random = Random::new(5, Purpose::Start, update);
        let begins: Vec<usize> = (0..self.rows).map(|_| random.below(TRAINING - self.span() + 1)).collect();
        self.fill(&begins, batch);
        Ok(())
    }

    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
        let begins = self.validation_begins();
        let begins: Vec<usize> = begins.into_iter().skip(index as usize * 64).take(64).collect();
        if begins.is_empty() {
            return Ok(false);
        }
        self.fill(&begins, batch);
        Ok(true)
    }
}

/// Returns the mean squared validation error of the seasonal naive forecast.
pub fn seasonal_naive(specification: &Specification) -> f64 {
    let signal = Signal::new(specification, 1);
    let (mut sum, mut count) = (0.0, 0);
    for begin in signal.validation_begins() {
        let now = begin + specification.input;
        for step in 0..specification.horizon {
            let season = now + step % PERIODS[0] - PERIODS[0];
            sum += f64::from(signal.values[now + step] - signal.values[season]).powi(2);
            count += 1;
        }
    }
    sum / f64::from(count)
}
