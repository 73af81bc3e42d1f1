//! A forecaster as something the trainer can train.
//!
//! A batch is cut into parts of so many windows, the last one shorter. Each part goes through the same compiled program on
//! memory of its own, several at a time if there are threads, and the gradients are added in the order of the parts: the
//! result does not depend on the number of threads. Parameters are read where they lie, and the gradients of the first
//! part are written where they belong; if there is but one part, each parameter is moved as soon as its gradient is known.
//! Programs are compiled when a size is first seen; after that, a step allocates nothing.

use super::programs::{Programs, Run};
use crate::data::{Batch, BatchSource};
use crate::forecaster::{Forecaster, ForecasterError};
use crate::network::feed::check_batch;
use crate::specification::{Specification, SpecificationError, Use};
use gatework_train::optim::Step;
use gatework_train::params::Params;
use gatework_train::trainer::{Losses, Task, TaskError};

/// One seed of a forecaster in training.
pub struct ForecastTask<W> {
    specification: Specification,
    seed: u64,
    params: Params,
    windows: W,
    batch: Batch,
    training: Programs,
    evaluation: Programs,
    /// The epoch after which the validation loss is looked at for the first time.
    first_look: u64,
}

impl<W: BatchSource> ForecastTask<W> {
    /// A forecaster with the start values of a seed.
    pub fn new(specification: &Specification, windows: W, seed: u64) -> Result<Self, SpecificationError> {
        let params = specification.params(seed)?;
        Ok(ForecastTask {
            params,
            batch: Batch::new(specification.shape(0)),
            training: Programs::new(specification, Use::Training),
            evaluation: Programs::new(specification, Use::Evaluation),
            specification: specification.clone(),
            seed,
            windows,
            first_look: 1,
        })
    }

    /// Looks at the validation loss after this epoch for the first time, so that parameters of earlier ones are not kept.
    #[must_use]
    pub fn with_first_look(mut self, epoch: u64) -> Self {
        self.first_look = epoch.max(1);
        self
    }

    /// So many windows go through a program at once. More threads need smaller parts; results depend on it in their last
    /// bits, and not on the threads.
    #[must_use]
    pub fn with_part(mut self, rows: usize) -> Self {
        (self.training.part, self.evaluation.part) = (rows.max(1), rows.max(1));
        self
    }

    /// A forecaster with other values of the parameters: the best ones of an attempt.
    pub fn forecaster(&self, values: &[f32]) -> Result<Forecaster, ForecasterError> {
        let mut params = self.params.clone();
        if values.len() != params.len() {
            let (found, wanted) = (values.len(), params.len());
            return Err(ForecasterError::Parameters(format!("{found} values for {wanted} parameters")));
        }
        params.values.copy_from_slice(values);
        Forecaster::new(self.specification.clone(), params)
    }

    /// What is trained.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Where its windows come from.
    pub fn windows(&self) -> &W {
        &self.windows
    }

    /// The mean loss of the windows kept aside at the present parameters; none if there are no such windows.
    pub fn validation_loss(&mut self) -> Result<Option<f64>, TaskError> {
        let (mut sum, mut rows) = (0.0, 0);
        for index in 0.. {
            if !self.windows.validation(index, &mut self.batch)? {
                break;
            }
            check_batch(self.specification.shape(0), &self.batch, true)?;
            let run = Run { batch: &self.batch, seed: self.seed, update: 0 };
            let loss = self.evaluation.run(&run, &self.params, None)?;
            sum += loss * self.batch.shape.rows as f64;
            rows += self.batch.shape.rows;
        }
        Ok((rows > 0).then(|| sum / rows as f64))
    }
}

impl<W: BatchSource> ForecastTask<W> {
    /// The losses of an update. Where there is a step, and the gradients are those of one part, each parameter is moved as
    /// soon as its own is known; else all gradients are in the arena.
    fn losses(&mut self, update: u64, step: Option<&mut Step<'_>>) -> Result<Losses, TaskError> {
        let epoch = self.windows.updates_per_epoch().max(1);
        let looks = update.is_multiple_of(epoch) && update / epoch >= self.first_look;
        let hard = if looks { self.validation_loss()? } else { None };
        self.windows.training(update, &mut self.batch)?;
        check_batch(self.specification.shape(0), &self.batch, true)?;
        let run = Run { batch: &self.batch, seed: self.seed, update };
        let is_one = self.batch.shape.rows <= self.training.part;
        if let Some(step) = step.filter(|_| is_one && hard.is_none()) {
            let soft = self.training.run_and_move(&run, &mut self.params, step)?;
            return Ok(Losses { soft, hard });
        }
        // The gradients leave the arena while its values are read.
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
        self.losses(update, None)
    }

    fn step_and_move(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        self.losses(update, Some(step))
    }

    fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
        // There is no loss that a forecaster could not get below.
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;
    use crate::models::{DLinear, Model};
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
        }
    }

    #[test]
    fn masks_drop_their_share_keep_the_mean_and_differ_by_row_place_and_update() {
        let batch = Batch::default();
        let draw = |update, site, row| {
            let run = Run { batch: &batch, seed: 1, update };
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
    fn parameters_that_move_on_the_way_end_where_they_would_at_the_end() {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };
        for model in [
            Model::DLinear(DLinear::default()),
            toml::from_str("kind = 'nhits'\nwidth = 24").unwrap(),
            toml::from_str("kind = 'gru'\nhidden = 12").unwrap(),
            toml::from_str("kind = 'transformer'\nwidth = 16\nheads = 2\ndropout = 0.1").unwrap(),
        ] {
            let specification = Specification { model, ..specification() };
            let task = || ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let [mut at_end, mut at_once] = [task(), task()];
            let [mut state, mut other] = [0; 2].map(|_| optimizer.state(at_end.params().len()));
            for update in 1..5 {
                let losses = at_end.step(update).unwrap();
                let Params { values, grads, .. } = at_end.params_mut();
                optimizer.step(&mut state, values, grads, 0.01, None);
                let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
                assert_eq!(at_once.step_and_move(update, &mut step).unwrap(), losses);
                assert!(step.is_taken());
                assert_eq!(at_once.params().values, at_end.params().values, "{}", specification.model.name());
            }
            assert_eq!(state, other);
            // Gradients of several parts are added up first.
            let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
            task().with_part(8).step_and_move(1, &mut step).unwrap();
            assert!(!step.is_taken());
        }
    }

    #[test]
    fn the_validation_loss_is_looked_at_from_the_first_look_on() {
        let specification = specification();
        let looks = |first| {
            let task = ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let mut task = task.with_first_look(first);
            let epoch = task.windows().updates_per_epoch();
            [0, 1, 2, 3].map(|epochs| task.step(epochs * epoch).unwrap().hard.is_some())
        };
        assert_eq!(looks(1), [false, true, true, true]);
        assert_eq!(looks(3), [false, false, false, true]);
    }

    #[test]
    fn a_linear_model_learns_a_signal_better_than_its_last_season() {
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
