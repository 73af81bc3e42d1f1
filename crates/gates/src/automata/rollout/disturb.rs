//! What is done to the soft state between two steps in training, so that it becomes bits: rounding, noise, flips, and a
//! price on values between 0 and 1. `docs/learning.md` says what it is worth.

use serde::{Deserialize, Serialize};

use super::goal::GRADIENT_SCALE;
use gatework_train::random::{Purpose, Random};

/// The `[state]` table of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Disturbance {
    /// How values become bits. Gradients pass as if they had not.
    pub round: Rounding,
    /// Noise that is added, evenly from minus this to plus this; the sum stays within 0 and 1.
    pub noise: f32,
    /// The chance that a value x becomes 1 - x.
    pub flip: f32,
    /// What the sum of x (1 - x) over all states but the first and the last costs at the end of training; nothing at the
    /// start, and evenly more in between.
    pub penalty: f32,
}

/// How values become bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Not at all.
    #[default]
    None,
    /// To the nearer one.
    Nearest,
    /// To 1 with the value as its chance.
    Stochastic,
}

impl Disturbance {
    /// Whether nothing is done.
    pub fn is_none(&self) -> bool {
        *self == Disturbance::default()
    }

    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), String> {
        for (fits, message) in [
            ((0.0..=1.0).contains(&self.noise), "state.noise is not from 0 to 1"),
            ((0.0..=1.0).contains(&self.flip), "state.flip is not from 0 to 1"),
            (self.penalty >= 0.0 && self.penalty.is_finite(), "state.penalty is not a number from 0 on"),
        ] {
            if !fits {
                return Err(message.into());
            }
        }
        Ok(())
    }
}

/// The disturbance of one group of boards in one update.
#[derive(Clone, Copy, Debug)]
pub struct Disturbed<'a> {
    /// What is done.
    pub settings: &'a Disturbance,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Tells this group and update from all others: it and as many numbers behind it as there are steps.
    pub time: u64,
    /// The share of the updates that is over.
    pub progress: f32,
}

impl Disturbed<'_> {
    /// Disturbs the state after `step` steps: entries of `stride` numbers, of which the first `channels` are values.
    pub(super) fn apply(&self, step: usize, state: &mut [f32], stride: usize, channels: usize) {
        let Disturbance { round, noise, .. } = *self.settings;
        let mut random = self.random(step);
        for value in values(state, stride, channels) {
            if noise > 0.0 {
                *value = (*value + noise * (2.0 * random.uniform() - 1.0)).clamp(0.0, 1.0);
            }
            match round {
                Rounding::None => {}
                Rounding::Nearest => *value = value.round(),
                Rounding::Stochastic => *value = if random.uniform() < *value { 1.0 } else { 0.0 },
            }
            if self.flips(&mut random) {
                *value = 1.0 - *value;
            }
        }
    }

    /// From the gradient of a disturbed state to that of the state before it was disturbed.
    pub(super) fn pull_back(
        &self,
        step: usize,
        state: &[f32],
        grads: &mut [f32],
        stride: usize,
        channels: usize,
    ) {
        let price = self.settings.penalty * self.progress * GRADIENT_SCALE;
        let mut random = self.random(step);
        for (at, grad) in values(grads, stride, channels).enumerate() {
            let value = state[at / channels * stride + at % channels];
            if self.settings.noise > 0.0 {
                random.bits();
            }
            if self.settings.round == Rounding::Stochastic {
                random.bits();
            }
            if price > 0.0 {
                *grad += price * (1.0 - 2.0 * value);
            }
            if self.flips(&mut random) {
                *grad = -*grad;
            }
        }
    }

    fn flips(&self, random: &mut Random) -> bool {
        self.settings.flip > 0.0 && random.uniform() < self.settings.flip
    }

    fn random(&self, step: usize) -> Random {
        Random::new(self.seed, Purpose::Disturb, self.time + step as u64)
    }
}

/// The values of entries, without what is behind the channels.
fn values(state: &mut [f32], stride: usize, channels: usize) -> impl Iterator<Item = &mut f32> {
    state.chunks_exact_mut(stride).flat_map(move |entry| &mut entry[..channels])
}

#[cfg(test)]
mod tests {
    use gatework_logic::Boundary;

    use super::super::{Boards, Goal, Rollout};
    use super::*;
    use crate::automata::cells::{Plan, Planner, Shape};
    use crate::automata::model::{FirstLayer, Model, ModelShape};
    use crate::soft::Wiring;

    const CHANNELS: usize = 3;
    const STEPS: usize = 4;

    fn model() -> Model {
        let shape = ModelShape {
            channels: CHANNELS,
            boundary: Boundary::Torus,
            kernels: 1,
            perceive: vec![9, 8, 4, 2],
            first: FirstLayer::Moore,
            update: vec![9, 6, 3],
            wiring: Wiring::Random,
        };
        let mut model = Model::new(&shape, 1).unwrap();
        let mut random = Random::new(5, Purpose::Check, 0);
        model.params.values.fill_with(|| 12.0 * random.uniform() - 6.0);
        model
    }

    /// Loss with all its parts, gradient and states of a small roll-out.
    fn run(settings: &Disturbance, late: usize, logits: &[f32]) -> (f64, Vec<f32>, Vec<Vec<f32>>) {
        let model = model();
        let mut random = Random::new(6, Purpose::Check, 0);
        let planner = Planner::new(Shape { samples: 1, height: 3, width: 2, boundary: Boundary::Torus });
        let plans: Vec<Plan> = (0..late).map(|before| planner.separate(STEPS - before, None)).collect();
        let target: Vec<f32> = (0..6 * 2).map(|_| random.uniform()).collect();
        let goals: Vec<Goal> = plans.iter().map(|plan| Goal::new(plan, 2, &target)).collect();
        let mut rollout = Rollout::new(&model, 2).unwrap();
        rollout.set_logits(logits);
        let stride = rollout.stride();
        let start: Vec<f32> =
            (0..6 * stride).map(|i| if i % stride < CHANNELS { random.uniform() } else { 0.0 }).collect();
        let progress = 0.5;
        let boards = Boards {
            plan: &plans[0],
            start: &start,
            goal: &goals[0],
            late: &goals[1..],
            disturbed: Some(Disturbed { settings, seed: 7, time: 0, progress }),
        };
        let mut grads = vec![0.0; logits.len()];
        let (loss, _) = rollout.gradient(&[boards], &mut grads);
        let states: Vec<Vec<f32>> = rollout.rolls[0].states[1..STEPS]
            .iter()
            .map(|state| {
                state[stride..].chunks_exact(stride).flat_map(|entry| entry[..CHANNELS].to_vec()).collect()
            })
            .collect();
        let between: f64 = states.iter().flatten().map(|&x| f64::from(x) * f64::from(1.0 - x)).sum();
        (loss + f64::from(settings.penalty * progress) * between, grads, states)
    }

    #[test]
    fn gradients_go_back_through_noise_flips_the_penalty_and_late_targets() {
        let settings = Disturbance { noise: 0.02, flip: 0.3, penalty: 0.8, ..Disturbance::default() };
        let logits = model().params.values;
        let (_, grads, _) = run(&settings, 3, &logits);
        let largest = grads.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        for i in (0..logits.len()).step_by(7) {
            let moved = |by: f32| {
                let mut logits = logits.clone();
                logits[i] += by;
                run(&settings, 3, &logits).0
            };
            let slope = (moved(0.02) - moved(-0.02)) / 0.04;
            let off = (f64::from(grads[i]) - slope).abs();
            assert!(off < 0.01 * f64::from(largest), "{i}: {} {slope}", grads[i]);
        }
    }

    #[test]
    fn every_part_of_the_disturbance_matters() {
        let logits = model().params.values;
        let (plain, ..) = run(&Disturbance::default(), 1, &logits);
        for (settings, late) in [
            (Disturbance { noise: 0.1, ..Disturbance::default() }, 1),
            (Disturbance { flip: 0.1, ..Disturbance::default() }, 1),
            (Disturbance { penalty: 0.1, ..Disturbance::default() }, 1),
            (Disturbance { round: Rounding::Nearest, ..Disturbance::default() }, 1),
            (Disturbance::default(), 2),
        ] {
            assert!((run(&settings, late, &logits).0 - plain).abs() > 1e-5, "{settings:?}");
        }
    }

    #[test]
    fn rounded_states_are_bits_and_chance_follows_the_value() {
        let logits = model().params.values;
        for round in [Rounding::Nearest, Rounding::Stochastic] {
            let (_, grads, states) = run(&Disturbance { round, ..Disturbance::default() }, 1, &logits);
            assert!(states.iter().flatten().all(|&x| x == 0.0 || x == 1.0));
            assert!(grads.iter().any(|&g| g != 0.0), "gradients pass");
        }
        let settings = Disturbance { round: Rounding::Stochastic, ..Disturbance::default() };
        let mut state = vec![0.3; 10_000];
        Disturbed { settings: &settings, seed: 1, time: 0, progress: 0.0 }.apply(0, &mut state, 1, 1);
        let mean = state.iter().sum::<f32>() / 10_000.0;
        assert!((mean - 0.3).abs() < 0.02, "{mean}");
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        assert!(Disturbance::default().validate().is_ok());
        for wrong in [
            Disturbance { noise: 2.0, ..Disturbance::default() },
            Disturbance { flip: -0.1, ..Disturbance::default() },
            Disturbance { penalty: f32::NAN, ..Disturbance::default() },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
