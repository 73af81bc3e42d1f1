//! The training of one seed: its state between two updates, and the update itself.

use crate::loss_scale::LossScale;
use crate::optim::{Clip, Optimizer, OptimizerState};
use crate::schedule::LearningRate;

use super::{Losses, Task, TrainError};

/// The settings of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The maximum number of updates.
    pub updates: u64,
    /// The learning rate schedule.
    pub rate: LearningRate,
    /// The optimiser.
    pub optimizer: Optimizer,
    /// The gradient clipping.
    pub clip: Option<Clip>,
    /// The number of consecutive updates with hard loss 0 before success is checked.
    pub stable: u64,
    /// Early-stopping patience: the number of consecutive hard losses that are not below the best.
    pub patience: Option<u64>,
    /// Whether gradients are scaled dynamically, and updates with gradients that are not finite skipped.
    pub scales_loss: bool,
}

/// The losses of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The soft loss.
    pub soft: f64,
    /// The hard loss, if it was computed.
    pub hard: Option<f64>,
}

/// The best parameters so far: those with the lowest hard loss, the latest if several are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Their update.
    pub update: u64,
    /// Their soft loss.
    pub soft: f64,
    /// Their hard loss.
    pub hard: f64,
    /// The parameters.
    pub values: Vec<f32>,
    /// The model that `Task::finish` made of them, if it is better; `hard` is then its loss.
    pub finished: Option<Vec<u8>>,
}

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has not ended.
    Running,
    /// It passed the thorough check.
    Succeeded,
    /// It was stopped early: its hard loss did not improve.
    Stopped,
    /// It used all its updates, or was given up.
    Exhausted,
}

/// The result of a stage of training.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stage {
    /// The name, for example `search`.
    pub name: String,
    /// The number of wrong bits after it.
    pub wrong: u64,
    /// The number of bits that were compared.
    pub of: u64,
}

/// The training of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The seed.
    pub seed: u64,
    /// The number of updates that were made.
    pub update: u64,
    /// The losses of all updates so far.
    pub metrics: Vec<Metric>,
    /// The current number of consecutive updates with hard loss 0.
    pub streak: u64,
    /// The first update with hard loss 0.
    pub first_perfect: Option<u64>,
    /// The number of hard losses since the last improvement.
    pub stale: u64,
    /// The best parameters; after success, those that passed.
    pub best: Option<Best>,
    /// The state of the attempt.
    pub outcome: Outcome,
    /// The number of moves of `Task::finish`.
    pub moves: u64,
    /// Pairs of a number of these moves and the hard loss after them.
    pub trace: Vec<(u64, f64)>,
    /// The wrong bits after each stage of training, in order, if the task has stages.
    pub stages: Vec<Stage>,
    /// Seconds of training.
    pub seconds: f64,
    /// The scale of the loss, if it is scaled.
    pub loss_scale: Option<LossScale>,
    /// The optimiser state.
    pub(super) optimizer: OptimizerState,
}

impl Attempt {
    /// Creates an attempt before its first update.
    pub fn new(seed: u64, settings: &Settings, parameters: usize) -> Attempt {
        Attempt {
            seed,
            update: 0,
            metrics: Vec::new(),
            streak: 0,
            first_perfect: None,
            stale: 0,
            best: None,
            outcome: Outcome::Running,
            moves: 0,
            trace: Vec::new(),
            stages: Vec::new(),
            seconds: 0.0,
            loss_scale: settings.scales_loss.then(LossScale::default),
            optimizer: settings.optimizer.state(parameters),
        }
    }

    /// Makes one update: computes and records the losses, and applies the optimiser unless the attempt has ended.
    pub fn advance(&mut self, task: &mut impl Task, settings: &Settings) -> Result<(), TrainError> {
        let seed = self.seed;
        let failed = |source| TrainError::Task { seed, source };
        let rate = settings.rate.at(self.update, settings.updates) as f32;
        let is_last = self.update + 1 >= settings.updates;
        // Parameters that may be the final ones are not changed until the losses are known.
        let (losses, is_updated) = if let Some(scale) = self.loss_scale {
            (task.step_scaled(self.update, scale.factor()).map_err(failed)?, false)
        } else if is_last || self.streak > 0 {
            (task.step(self.update).map_err(failed)?, false)
        } else {
            let Settings { optimizer, clip, .. } = settings;
            super::step_and_update(task, self.update, optimizer, &mut self.optimizer, rate, *clip)
                .map_err(failed)?
        };
        if !losses.soft.is_finite() {
            return Err(TrainError::NotFinite { seed: self.seed, update: self.update, loss: losses.soft });
        }
        self.record(losses, &task.params().values);
        if self.streak > 0
            && self.streak.is_multiple_of(settings.stable)
            && task.passes(self.update).map_err(failed)?
        {
            self.outcome = Outcome::Succeeded;
        } else if settings.patience.is_some_and(|patience| self.stale >= patience) {
            self.outcome = Outcome::Stopped;
        } else if self.update >= settings.updates {
            self.outcome = Outcome::Exhausted;
        } else if !is_updated {
            let params = task.params_mut();
            let (values, grads) = (&mut params.values, &mut params.grads);
            let unscaled = self.loss_scale.as_mut().map_or(Ok(true), |scale| scale.unscale(grads));
            let overflow = |source| TrainError::Overflow { seed, update: self.update - 1, source };
            if unscaled.map_err(overflow)? {
                settings.optimizer.step(&mut self.optimizer, values, grads, rate, settings.clip);
            }
        }
        Ok(())
    }

    /// Records the result of `Task::finish`.
    pub(super) fn finish(&mut self, finished: super::Finished) {
        self.moves = finished.moves;
        self.trace = finished.trace;
        self.stages = finished.stages;
        let Some(best) = &mut self.best else { return };
        if finished.passes || finished.hard < best.hard {
            best.hard = finished.hard;
            best.finished = Some(finished.model);
        }
        if finished.passes {
            self.outcome = Outcome::Succeeded;
        }
    }

    /// Returns whether the remaining updates are too few for a success, or three quarters of the updates are used and the soft
    /// loss is still above a quarter of its first values. The second criterion is a heuristic: the updates that it saves are
    /// better spent on the next seed.
    pub fn is_unpromising(&self, settings: &Settings) -> bool {
        let needed = settings.stable - self.streak % settings.stable;
        let had_a_chance = settings.updates >= settings.stable;
        let too_late = settings.updates.saturating_sub(self.update) < needed;
        let too_slow =
            self.update >= settings.updates / 4 * 3 && self.recent_loss() > self.first_loss() / 4.0;
        self.outcome == Outcome::Running && had_a_chance && (too_late || too_slow && self.streak == 0)
    }

    /// The mean soft loss of the first updates.
    fn first_loss(&self) -> f64 {
        mean(self.metrics.iter().take(AVERAGED).map(|metric| metric.soft))
    }

    /// The mean soft loss of the last updates.
    fn recent_loss(&self) -> f64 {
        mean(self.metrics.iter().rev().take(AVERAGED).map(|metric| metric.soft))
    }

    /// Records the losses of an update, and the parameters if they are the best.
    fn record(&mut self, losses: Losses, values: &[f32]) {
        if let Some(best) = self.record_losses(losses) {
            best.clear();
            best.extend_from_slice(values);
        }
    }

    /// Records the losses of an update. Returns the buffer of the best parameters if the current ones are the best.
    pub(super) fn record_losses(&mut self, losses: Losses) -> Option<&mut Vec<f32>> {
        let update = self.update;
        self.update += 1;
        self.metrics.push(Metric { soft: losses.soft, hard: losses.hard });
        // NaN is worse than any number.
        let hard = losses.hard.map(|hard| if hard.is_nan() { f64::INFINITY } else { hard })?;
        if hard == 0.0 {
            self.streak += 1;
            self.first_perfect = self.first_perfect.or(Some(update));
        } else {
            self.streak = 0;
        }
        let (is_best, is_better) =
            self.best.as_ref().map_or((true, true), |b| (hard <= b.hard, hard < b.hard));
        self.stale = if is_better { 0 } else { self.stale + 1 };
        if !is_best {
            return None;
        }
        let soft = losses.soft;
        let best =
            self.best.get_or_insert_with(|| Best { update, soft, hard, values: Vec::new(), finished: None });
        (best.update, best.soft, best.hard) = (update, soft, hard);
        Some(&mut best.values)
    }
}

/// The number of updates that the first and the recent loss are averaged over.
const AVERAGED: usize = 10;

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len().max(1) as f64;
    numbers.sum::<f64>() / count
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::optim::Step;
    use crate::params::Params;
    use crate::trainer::TaskError;

    /// Learns the parameters 3, 3, 3; the hard loss is the number of parameters that do not round to 3.
    pub struct Threes {
        pub params: Params,
        pub poison: Option<u64>,
    }

    impl Threes {
        pub fn new(seed: u64) -> Threes {
            let mut params = Params::new();
            params.add("x", &[3], |i| seed as f32 * 0.1 + i as f32);
            Threes { params, poison: None }
        }
    }

    impl Task for Threes {
        fn params(&self) -> &Params {
            &self.params
        }

        fn params_mut(&mut self) -> &mut Params {
            &mut self.params
        }

        fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
            let params = &mut self.params;
            let (mut soft, mut hard) = (0.0, 0.0);
            for (value, grad) in params.values.iter().zip(&mut params.grads) {
                soft += f64::from(value - 3.0).powi(2);
                hard += f64::from(u8::from(value.round() != 3.0));
                *grad = 2.0 * (value - 3.0);
            }
            if self.poison == Some(update) {
                soft = f64::NAN;
            }
            Ok(Losses { soft, hard: Some(hard) })
        }

        fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
            Ok(self.params.values.iter().all(|v| v.round() == 3.0))
        }
    }

    pub fn settings() -> Settings {
        Settings {
            updates: 200,
            rate: LearningRate::constant(0.1),
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: Some(Clip::Value(100.0)),
            stable: 5,
            patience: None,
            scales_loss: false,
        }
    }

    #[test]
    fn an_attempt_succeeds_when_it_is_stable() {
        let (mut task, settings) = (Threes::new(1), settings());
        let mut attempt = Attempt::new(1, &settings, 3);
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        assert_eq!(attempt.outcome, Outcome::Succeeded);
        assert_eq!(attempt.first_perfect, Some(attempt.update - 5));
        let best = attempt.best.unwrap();
        assert_eq!((best.update, &best.values), (attempt.update - 1, &task.params().values));
    }

    /// The same with a hard loss in every third update only, and the optimiser step applied at once in between.
    struct AtOnce(Threes, bool);

    impl Task for AtOnce {
        fn params(&self) -> &Params {
            &self.0.params
        }

        fn params_mut(&mut self) -> &mut Params {
            &mut self.0.params
        }

        fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
            let losses = self.0.step(update)?;
            Ok(Losses { hard: losses.hard.filter(|_| update.is_multiple_of(3)), ..losses })
        }

        fn step_and_update(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
            let losses = self.step(update)?;
            if self.1 && losses.hard.is_none() {
                let Params { values, grads, .. } = &mut self.0.params;
                step.apply(0..3, values, grads);
                grads.fill(f32::NAN);
            }
            Ok(losses)
        }

        fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
            self.0.passes(update)
        }
    }

    #[test]
    fn an_optimiser_step_that_is_applied_at_once_gives_the_same_result() {
        for (clip, patience, updates) in
            [(None, None, 40), (Some(Clip::Norm(1.0)), None, 40), (None, Some(2), 200), (None, None, 7)]
        {
            let settings = Settings { clip, patience, updates, stable: 2, ..settings() };
            let run = |at_once: bool| {
                let mut task = AtOnce(Threes::new(9), at_once);
                let mut attempt = Attempt::new(1, &settings, 3);
                while attempt.outcome == Outcome::Running {
                    attempt.advance(&mut task, &settings).unwrap();
                }
                (attempt, task.0.params.values)
            };
            assert_eq!(run(true), run(false), "{clip:?} {patience:?} {updates}");
        }
    }

    /// The same with gradients that are infinite above a scale.
    pub struct Overflowing {
        pub task: Threes,
        /// The largest scale with finite gradients.
        pub limit: f32,
    }

    impl Task for Overflowing {
        fn params(&self) -> &Params {
            &self.task.params
        }

        fn params_mut(&mut self) -> &mut Params {
            &mut self.task.params
        }

        fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
            self.step_scaled(update, 1.0)
        }

        fn step_scaled(&mut self, update: u64, scale: f32) -> Result<Losses, TaskError> {
            let losses = self.task.step_scaled(update, scale)?;
            if scale > self.limit {
                self.task.params.grads[1] = f32::INFINITY;
            }
            Ok(losses)
        }

        fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
            self.task.passes(update)
        }
    }

    #[test]
    fn scaling_the_loss_changes_nothing_but_skipped_updates() {
        let run = |scales_loss: bool, updates: u64, limit: f32| {
            let settings = Settings { scales_loss, updates, stable: 100, ..settings() };
            let mut task = Overflowing { task: Threes::new(9), limit };
            let mut attempt = Attempt::new(1, &settings, 3);
            while attempt.outcome == Outcome::Running {
                attempt.advance(&mut task, &settings)?;
            }
            Ok::<_, TrainError>((attempt, task.task.params.values))
        };
        let (plain, values) = run(false, 20, f32::MAX).unwrap();
        let (scaled, same) = run(true, 20, f32::MAX).unwrap();
        assert_eq!((&scaled.metrics, &scaled.optimizer, &same), (&plain.metrics, &plain.optimizer, &values));
        // Ten updates halve the scale from 65536 to 64; all others are made.
        let (scaled, same) = run(true, 30, 64.0).unwrap();
        assert_eq!(
            (&scaled.metrics[10..], &scaled.optimizer, &same),
            (&plain.metrics[..], &plain.optimizer, &values)
        );
        let scale = scaled.loss_scale.unwrap();
        assert_eq!((scale.factor(), scale.skipped()), (64.0, 10));
        let error = run(true, 30, 0.0).unwrap_err();
        assert!(matches!(error, TrainError::Overflow { seed: 1, update: 16, .. }), "{error}");
        assert!(error.to_string().contains("train in bf16 or f32"), "{error}");
    }

    #[test]
    fn a_loss_of_nan_is_never_the_best() {
        let (attempt, _) = after([(1.0, f64::NAN), (1.0, 5.0), (1.0, f64::NAN)]);
        assert_eq!((attempt.best.map(|best| best.hard), attempt.stale), (Some(5.0), 1));
    }

    #[test]
    fn an_exhausted_attempt_keeps_its_best_parameters() {
        let (mut task, settings) = (Threes::new(1), Settings { updates: 4, ..settings() });
        let mut attempt = Attempt::new(1, &settings, 3);
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        assert_eq!((attempt.outcome, attempt.update, attempt.metrics.len()), (Outcome::Exhausted, 4, 4));
        let lowest = attempt.metrics.iter().filter_map(|m| m.hard).fold(f64::INFINITY, f64::min);
        assert_eq!(attempt.best.unwrap().hard, lowest);
    }

    /// An attempt with these losses, at most 100 updates, and success after 5 consecutive hard losses of 0.
    fn after(losses: impl IntoIterator<Item = (f64, f64)>) -> (Attempt, Settings) {
        let settings = Settings { updates: 100, ..settings() };
        let mut attempt = Attempt::new(1, &settings, 1);
        losses.into_iter().for_each(|(soft, hard)| attempt.record(Losses { soft, hard: Some(hard) }, &[0.0]));
        (attempt, settings)
    }

    #[test]
    fn an_attempt_is_hopeless_if_too_few_updates_remain() {
        let hopeless = |wrong: usize, right: usize| {
            let losses = std::iter::repeat_n((0.0, 1.0), wrong).chain(std::iter::repeat_n((0.0, 0.0), right));
            let (attempt, settings) = after(losses);
            attempt.is_unpromising(&settings)
        };
        assert!(!hopeless(95, 0) && hopeless(96, 0));
        assert!(!hopeless(95, 4) && hopeless(96, 3));
    }

    #[test]
    fn an_attempt_is_hopeless_if_its_late_loss_is_high() {
        let hopeless = |updates: usize, last: f64, hard: f64| {
            let losses = std::iter::repeat_n((100.0, 9.0), updates - 10);
            let (attempt, settings) = after(losses.chain(std::iter::repeat_n((last, hard), 10)));
            attempt.is_unpromising(&settings)
        };
        assert!(hopeless(75, 26.0, 1.0));
        assert!(!hopeless(74, 26.0, 1.0), "it has time");
        assert!(!hopeless(75, 24.0, 1.0), "it gets there");
        assert!(!hopeless(75, 26.0, 0.0), "its circuit is right already");
    }

    #[test]
    fn best_parameters_and_patience_depend_on_computed_hard_losses_only() {
        let settings = Settings { patience: Some(2), ..settings() };
        let mut attempt = Attempt::new(1, &settings, 1);
        let looks = [None, Some(3.0), None, None, Some(2.0), Some(2.0), None, Some(4.0)];
        for (i, hard) in looks.into_iter().enumerate() {
            attempt.record(Losses { soft: 1.0, hard }, &[i as f32]);
        }
        let best = attempt.best.as_ref().unwrap();
        assert_eq!((best.update, best.hard, &best.values[..], attempt.stale), (5, 2.0, &[5.0f32][..], 2));
    }

    #[test]
    fn an_attempt_stops_when_its_patience_is_used_up() {
        let (mut task, settings) = (Threes::new(1), Settings { patience: Some(3), ..settings() });
        let mut attempt = Attempt::new(1, &settings, 3);
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        // The hard loss is the same whole number for several updates in a row.
        assert_eq!((attempt.outcome, attempt.stale), (Outcome::Stopped, 3));
        assert!(attempt.update < 50, "{}", attempt.update);
    }

    #[test]
    fn a_loss_of_nan_is_an_error_with_its_update() {
        let (mut task, settings) = (Threes { poison: Some(3), ..Threes::new(1) }, settings());
        let mut attempt = Attempt::new(9, &settings, 3);
        let error =
            std::iter::repeat_with(|| attempt.advance(&mut task, &settings)).find_map(Result::err).unwrap();
        assert!(matches!(error, TrainError::NotFinite { seed: 9, update: 3, .. }));
    }
}
