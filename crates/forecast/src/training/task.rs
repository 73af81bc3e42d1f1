//! The training task of a network: one seed, driven by the trainer of `gatework-train`.

use super::programs::{Programs, Run};
use crate::data::{Batch, BatchSource};
use crate::network::feed::check_batch;
use crate::specification::{Mode, Specification, SpecificationError, TRAINING_BYTES};
use crate::trained_network::{NetworkError, TrainedNetwork};
use gatework_engine::Half;
use gatework_train::optim::Step;
use gatework_train::params::Params;
use gatework_train::trainer::{Losses, Task, TaskError};

/// A network in training, from one seed.
pub struct ForecastTask<W> {
    specification: Specification,
    seed: u64,
    params: Params,
    source: W,
    batch: Batch,
    training: Programs,
    evaluation: Programs,
    /// The first epoch after which the validation loss is computed.
    validation_start_epoch: u64,
}

impl<W: BatchSource> ForecastTask<W> {
    /// Creates a task with the initial parameters of a seed.
    pub fn new(specification: &Specification, windows: W, seed: u64) -> Result<Self, SpecificationError> {
        let params = specification.params(seed)?;
        Ok(ForecastTask {
            params,
            batch: Batch::new(specification.shape(0)),
            training: Programs::new(specification, Mode::Training),
            evaluation: Programs::new(specification, Mode::Evaluation),
            specification: specification.clone(),
            seed,
            source: windows,
            validation_start_epoch: 1,
        })
    }

    /// Sets the first epoch after which the validation loss is computed. Parameters of earlier epochs are not kept.
    #[must_use]
    pub fn with_validation_start(mut self, epoch: u64) -> Self {
        self.validation_start_epoch = epoch.max(1);
        self
    }

    /// Sets the windows per run of the compiled program. Micro-batches run in parallel. Results depend on their size in the
    /// last bits, but not on the number of threads.
    #[must_use]
    pub fn with_micro_batch(mut self, rows: usize) -> Self {
        (self.training.micro_batch, self.evaluation.micro_batch) = (rows.max(1), rows.max(1));
        self
    }

    /// Sets the 16-bit format in which activations are kept for the backward pass; `None` for `f32`.
    #[must_use]
    pub fn with_activations(mut self, format: Option<Half>) -> Self {
        self.training.activations = format;
        self
    }

    /// Returns about how many bytes of memory training needs, with batches of this many windows and on this many threads.
    pub fn memory(&self, batch: usize, threads: usize) -> Result<f64, TaskError> {
        let programs = self.training.bytes(batch, threads)? + self.evaluation.bytes(batch, threads)?;
        Ok(self.params.len() as f64 * TRAINING_BYTES + programs)
    }

    /// Returns the trained network with these parameter values: the best ones of an attempt.
    pub fn network(&self, values: &[f32]) -> Result<TrainedNetwork, NetworkError> {
        let mut params = self.params.clone();
        if values.len() != params.len() {
            let (found, expected) = (values.len(), params.len());
            return Err(NetworkError::Parameters(format!("{found} values for {expected} parameters")));
        }
        params.values.copy_from_slice(values);
        TrainedNetwork::new(self.specification.clone(), params)
    }

    /// Returns the mean validation loss of the current parameters; `None` if there are no validation windows.
    pub fn validation_loss(&mut self) -> Result<Option<f64>, TaskError> {
        let (mut sum, mut rows) = (0.0, 0);
        for index in 0.. {
            if !self.source.validation(index, &mut self.batch)? {
                break;
            }
            check_batch(self.specification.shape(0), &self.batch, true)?;
            let run = Run { batch: &self.batch, seed: self.seed, update: 0, scale: 1.0 };
            let loss = self.evaluation.run(&run, &self.params, None)?;
            sum += loss * self.batch.shape.rows as f64;
            rows += self.batch.shape.rows;
        }
        Ok((rows > 0).then(|| sum / rows as f64))
    }
}

impl<W: BatchSource> ForecastTask<W> {
    /// Returns the losses of an update. If `step` is given and the batch is a single micro-batch, each parameter is updated
    /// as soon as its gradient is known; otherwise the gradients are left in the arena. They are multiplied by `scale` if
    /// activations are stored as `f16`.
    fn losses(&mut self, update: u64, scale: f32, step: Option<&mut Step<'_>>) -> Result<Losses, TaskError> {
        let epoch = self.source.updates_per_epoch().max(1);
        let validates = update.is_multiple_of(epoch) && update / epoch >= self.validation_start_epoch;
        let hard = if validates { self.validation_loss()? } else { None };
        self.source.training(update, &mut self.batch)?;
        check_batch(self.specification.shape(0), &self.batch, true)?;
        let run = Run { batch: &self.batch, seed: self.seed, update, scale };
        let is_single = self.batch.shape.rows <= self.training.micro_batch;
        if let Some(step) = step.filter(|_| is_single && hard.is_none()) {
            let soft = self.training.run_and_update(&run, &mut self.params, step)?;
            return Ok(Losses { soft, hard });
        }
        // The gradients are taken out of the arena while its values are borrowed.
        let mut grads = std::mem::take(&mut self.params.grads);
        let soft = self.training.run(&run, &self.params, Some(&mut grads));
        self.params.grads = grads;
        Ok(Losses { soft: soft?, hard })
    }
}

impl<W: BatchSource> Task for ForecastTask<W> {
    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        self.losses(update, 1.0, None)
    }

    fn step_and_update(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        self.losses(update, 1.0, Some(step))
    }

    fn step_scaled(&mut self, update: u64, scale: f32) -> Result<Losses, TaskError> {
        let losses = self.losses(update, scale, None)?;
        if self.training.activations != Some(Half::F16) {
            self.params.grads.iter_mut().for_each(|grad| *grad *= scale);
        }
        Ok(losses)
    }

    fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
        // Forecasters have no target loss.
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;
    use crate::models::{DLinear, Model, Nhits};
    use crate::test_signal::{Signal, seasonal_naive};
    use crate::training::programs::draw_mask;
    use gatework_train::optim::Optimizer;
    use gatework_train::schedule::LearningRate;
    use gatework_train::trainer::{Attempt, Outcome, Settings};

    fn specification() -> Specification {
        Specification {
            model: Model::DLinear(DLinear { moving_average: 25 }),
            loss: Loss::Mse,
            normalization: None,
            input: 48,
            horizon: 12,
            past_columns: 0,
            future_columns: 0,
            static_columns: 0,
        }
    }

    fn settings(updates: u64) -> Settings {
        Settings {
            updates,
            rate: LearningRate::constant(0.01),
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: None,
            stable: 1,
            patience: None,
            scales_loss: false,
        }
    }

    #[test]
    fn masks_have_their_rate_and_differ_by_row_site_and_update() {
        let batch = Batch::default();
        let draw = |update, site, row| {
            let run = Run { batch: &batch, seed: 1, update, scale: 1.0 };
            let mut numbers = vec![f32::NAN; 10_001];
            draw_mask(&run, site, row, 0.3, &mut numbers);
            numbers
        };
        let mask = draw(1, 2, 3);
        let dropped = mask.iter().filter(|&&x| x == 0.0).count();
        assert!((2800..3200).contains(&dropped), "{dropped}");
        let mean = mask.iter().sum::<f32>() / mask.len() as f32;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert_eq!(mask, draw(1, 2, 3));
        assert!([draw(2, 2, 3), draw(1, 1, 3), draw(1, 2, 4)].iter().all(|other| *other != mask));
    }

    #[test]
    fn updating_parameters_during_the_backward_pass_changes_no_bit() {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };
        for model in [
            Model::DLinear(DLinear::default()),
            toml::from_str("kind = 'nhits'\nwidth = 24").unwrap(),
            toml::from_str("kind = 'gru'\nhidden = 12").unwrap(),
            toml::from_str("kind = 'transformer'\nwidth = 16\nheads = 2\ndropout = 0.1").unwrap(),
        ] {
            let specification = Specification { model, ..specification() };
            let task = || ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let [mut after, mut during] = [task(), task()];
            let [mut state, mut other] = [0; 2].map(|_| optimizer.state(after.params().len()));
            for update in 1..5 {
                let losses = after.step(update).unwrap();
                let Params { values, grads, .. } = after.params_mut();
                optimizer.step(&mut state, values, grads, 0.01, None);
                let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
                assert_eq!(during.step_and_update(update, &mut step).unwrap(), losses);
                assert!(step.is_applied());
                assert_eq!(during.params().values, after.params().values, "{}", specification.model.name());
            }
            assert_eq!(state, other);
            // Gradients of several micro-batches are accumulated first.
            let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
            task().with_micro_batch(8).step_and_update(1, &mut step).unwrap();
            assert!(!step.is_applied());
        }
    }

    #[test]
    fn the_validation_loss_is_computed_from_its_start_epoch_on() {
        let specification = specification();
        let validated = |first| {
            let task = ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let mut task = task.with_validation_start(first);
            let epoch = task.source.updates_per_epoch();
            [0, 1, 2, 3].map(|epochs| task.step(epochs * epoch).unwrap().hard.is_some())
        };
        assert_eq!(validated(1), [false, true, true, true]);
        assert_eq!(validated(3), [false, false, false, true]);
    }

    #[test]
    fn activations_in_16_bits_change_gradients_little_and_are_scaled_exactly() {
        let model = Model::Nhits(Nhits { width: 48, ..Nhits::default() });
        let specification = Specification { model, input: 24, horizon: 8, ..specification() };
        let gradients = |format, scale: f32, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let task = ForecastTask::new(&specification, Signal::new(&specification, 96), 1).unwrap();
                let mut task = task.with_activations(format).with_micro_batch(32);
                let losses = task.step_scaled(1, scale).unwrap();
                (losses.soft, task.params.grads.clone())
            })
        };
        let norm = |numbers: &[f32]| numbers.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let (loss, exact) = gradients(None, 1.0, 1);
        for format in Half::ALL {
            let (same, grads) = gradients(Some(format), 1.0, 1);
            assert!((same - loss).abs() < 1e-6 * loss, "{format}: {same} for {loss}");
            let differences: Vec<f32> = grads.iter().zip(&exact).map(|(a, b)| a - b).collect();
            let distance = norm(&differences) / norm(&exact);
            assert!(distance > 0.0 && distance < 0.01, "{format}: {distance}");
            assert_eq!(gradients(Some(format), 1.0, 3), (same, grads.clone()), "{format} on three threads");
            let scaled: Vec<f32> = grads.iter().map(|grad| 1024.0 * grad).collect();
            assert_eq!(gradients(Some(format), 1024.0, 1), (same, scaled), "{format}");
        }
    }

    #[test]
    fn a_linear_model_beats_the_seasonal_naive_forecast() {
        let specification = specification();
        let mut task = ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
        let settings = settings(401);
        let mut attempt = Attempt::new(1, &settings, task.params().len());
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        let (loss, naive) = (attempt.best.unwrap().hard, seasonal_naive(&specification));
        assert!(loss < 0.7 * naive, "{loss} for {naive}");
    }
}
