//! One seed's training: its state between two updates, and how it takes one.

use crate::optim::{Clip, Optimizer, OptimizerState};
use crate::schedule::LearningRate;

use super::{Losses, Task, TrainError};

/// How to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Updates at most.
    pub updates: u64,
    /// Learning rate over time.
    pub rate: LearningRate,
    /// Optimiser.
    pub optimizer: Optimizer,
    /// Limit of the gradient.
    pub clip: Option<Clip>,
    /// Updates in a row with hard loss 0 before success is checked.
    pub stable: u64,
    /// So many looks at the hard loss in a row that are not below the best end the attempt.
    pub patience: Option<u64>,
}

/// What is remembered of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Soft loss.
    pub soft: f64,
    /// Hard loss, if it was looked at.
    pub hard: Option<f64>,
}

/// The best parameters so far: those with the lowest hard loss, the latest of equals.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The update they were seen at.
    pub update: u64,
    /// Their soft loss.
    pub soft: f64,
    /// Their hard loss.
    pub hard: f64,
    /// The parameters.
    pub values: Vec<f32>,
    /// What the task made of them after the last update, if that is better; the losses are then those of it.
    pub finished: Option<Vec<u8>>,
}

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It can go on.
    Running,
    /// It learned what it should.
    Succeeded,
    /// Its hard loss did not fall any more.
    Stopped,
    /// It used up its updates, or could not succeed any more with those that were left.
    Exhausted,
}

/// One seed's training.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The seed.
    pub seed: u64,
    /// Updates whose losses are known: the number of the next one.
    pub update: u64,
    /// Losses of all updates so far.
    pub metrics: Vec<Metric>,
    /// Updates in a row with hard loss 0, up to now.
    pub streak: u64,
    /// The first update with hard loss 0.
    pub first_perfect: Option<u64>,
    /// Looks at the hard loss since it was last below all before.
    pub stale: u64,
    /// The best parameters; on success those that succeeded.
    pub best: Option<Best>,
    /// How it stands.
    pub outcome: Outcome,
    /// Moves that the task made after the last update.
    pub moves: u64,
    /// The hard loss after so many of these moves.
    pub trace: Vec<(u64, f64)>,
    /// Seconds spent.
    pub seconds: f64,
    /// Of the optimiser.
    pub(super) optimizer: OptimizerState,
}

impl Attempt {
    /// An attempt before its first update.
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
            seconds: 0.0,
            optimizer: settings.optimizer.state(parameters),
        }
    }

    /// Takes one update: losses, bookkeeping, and a step of the optimiser unless that was the end.
    pub fn advance(&mut self, task: &mut impl Task, settings: &Settings) -> Result<(), TrainError> {
        let seed = self.seed;
        let failed = |source| TrainError::Task { seed, source };
        let rate = settings.rate.at(self.update, settings.updates) as f32;
        let is_last = self.update + 1 >= settings.updates;
        // A model that may be finished stays as it is until that is known.
        let (losses, is_moved) = if is_last || self.streak > 0 {
            (task.step(self.update).map_err(failed)?, false)
        } else {
            let Settings { optimizer, clip, .. } = settings;
            super::step_and_move(task, self.update, optimizer, &mut self.optimizer, rate, *clip)
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
        } else if !is_moved {
            let params = task.params_mut();
            let (values, grads) = (&mut params.values, &params.grads);
            settings.optimizer.step(&mut self.optimizer, values, grads, rate, settings.clip);
        }
        Ok(())
    }

    /// Takes note of what the task made of its best parameters after the last update.
    pub(super) fn finish(&mut self, finished: super::Finished) {
        self.moves = finished.moves;
        self.trace = finished.trace;
        let Some(best) = &mut self.best else { return };
        if finished.passes || finished.hard < best.hard {
            best.hard = finished.hard;
            best.finished = Some(finished.model);
        }
        if finished.passes {
            self.outcome = Outcome::Succeeded;
        }
    }

    /// True if the updates that are left are too few for a success, whatever they bring; or if three quarters of them
    /// are gone and the soft loss is still above a quarter of what it was at first. That is a bet, not a proof: the
    /// updates that it saves are worth more to the next seed.
    pub fn is_hopeless(&self, settings: &Settings) -> bool {
        let needed = settings.stable - self.streak % settings.stable;
        let had_a_chance = settings.updates >= settings.stable;
        let too_late = settings.updates.saturating_sub(self.update) < needed;
        let too_slow =
            self.update >= settings.updates / 4 * 3 && self.recent_loss() > self.first_loss() / 4.0;
        self.outcome == Outcome::Running && had_a_chance && (too_late || too_slow && self.streak == 0)
    }

    /// Mean soft loss of the first few updates.
    fn first_loss(&self) -> f64 {
        mean(self.metrics.iter().take(FEW).map(|metric| metric.soft))
    }

    /// Mean soft loss of the last few updates.
    fn recent_loss(&self) -> f64 {
        mean(self.metrics.iter().rev().take(FEW).map(|metric| metric.soft))
    }

    /// Takes note of an update at these parameters.
    fn record(&mut self, losses: Losses, values: &[f32]) {
        if let Some(best) = self.note(losses) {
            best.clear();
            best.extend_from_slice(values);
        }
    }

    /// Takes note of the losses of an update. Returns the place of the best parameters if these are the best.
    pub(super) fn note(&mut self, losses: Losses) -> Option<&mut Vec<f32>> {
        let update = self.update;
        self.update += 1;
        self.metrics.push(Metric { soft: losses.soft, hard: losses.hard });
        // A loss that is no number is worse than any that is one.
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

/// Updates whose losses are averaged to say where an attempt stands.
const FEW: usize = 10;

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

    /// Learns to be 3, 3, 3; hard loss is the number of parameters that round to something else.
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

    /// The same, seen without its hard loss but in every third update, and moved at once in between.
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

        fn step_and_move(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
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
    fn parameters_that_move_at_once_change_nothing() {
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

    #[test]
    fn a_loss_that_is_no_number_is_never_the_best() {
        let (attempt, _) = after([(1.0, f64::NAN), (1.0, 5.0), (1.0, f64::NAN)]);
        assert_eq!((attempt.best.map(|best| best.hard), attempt.stale), (Some(5.0), 1));
    }

    #[test]
    fn an_attempt_that_runs_out_keeps_its_best() {
        let (mut task, settings) = (Threes::new(1), Settings { updates: 4, ..settings() });
        let mut attempt = Attempt::new(1, &settings, 3);
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        assert_eq!((attempt.outcome, attempt.update, attempt.metrics.len()), (Outcome::Exhausted, 4, 4));
        let lowest = attempt.metrics.iter().filter_map(|m| m.hard).fold(f64::INFINITY, f64::min);
        assert_eq!(attempt.best.unwrap().hard, lowest);
    }

    /// An attempt with these losses, of 100 updates at most and 5 that must be right in a row.
    fn after(losses: impl IntoIterator<Item = (f64, f64)>) -> (Attempt, Settings) {
        let settings = Settings { updates: 100, ..settings() };
        let mut attempt = Attempt::new(1, &settings, 1);
        losses.into_iter().for_each(|(soft, hard)| attempt.record(Losses { soft, hard: Some(hard) }, &[0.0]));
        (attempt, settings)
    }

    #[test]
    fn an_attempt_is_hopeless_once_the_updates_left_are_too_few() {
        let hopeless = |wrong: usize, right: usize| {
            let losses = std::iter::repeat_n((0.0, 1.0), wrong).chain(std::iter::repeat_n((0.0, 0.0), right));
            let (attempt, settings) = after(losses);
            attempt.is_hopeless(&settings)
        };
        assert!(!hopeless(95, 0) && hopeless(96, 0));
        assert!(!hopeless(95, 4) && hopeless(96, 3));
    }

    #[test]
    fn an_attempt_is_hopeless_if_its_loss_is_high_late() {
        let hopeless = |updates: usize, last: f64, hard: f64| {
            let losses = std::iter::repeat_n((100.0, 9.0), updates - 10);
            let (attempt, settings) = after(losses.chain(std::iter::repeat_n((last, hard), 10)));
            attempt.is_hopeless(&settings)
        };
        assert!(hopeless(75, 26.0, 1.0));
        assert!(!hopeless(74, 26.0, 1.0), "it has time");
        assert!(!hopeless(75, 24.0, 1.0), "it gets there");
        assert!(!hopeless(75, 26.0, 0.0), "its circuit is right already");
    }

    #[test]
    fn the_best_is_what_was_looked_at_and_patience_counts_looks() {
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
    fn an_attempt_without_patience_left_stops_at_once() {
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
    fn a_loss_that_is_no_number_stops_with_its_update() {
        let (mut task, settings) = (Threes { poison: Some(3), ..Threes::new(1) }, settings());
        let mut attempt = Attempt::new(9, &settings, 3);
        let error =
            std::iter::repeat_with(|| attempt.advance(&mut task, &settings)).find_map(Result::err).unwrap();
        assert!(matches!(error, TrainError::NotFinite { seed: 9, update: 3, .. }));
    }
}
