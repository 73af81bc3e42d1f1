//! Rounding of the soft state between two steps, with straight-through gradients.

use serde::{Deserialize, Serialize};

use crate::deserialize::{self, Removed};
use gatework_train::random::{Purpose, Random};

/// The `[state]` table of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateSettings {
    /// How the values of a state are rounded to bits between two steps. Gradients pass straight through.
    pub round: Rounding,
    #[serde(skip_serializing, deserialize_with = "deserialize::state_noise")]
    noise: Removed,
    #[serde(skip_serializing, deserialize_with = "deserialize::state_flip")]
    flip: Removed,
    #[serde(skip_serializing, deserialize_with = "deserialize::state_penalty")]
    penalty: Removed,
}

impl StateSettings {
    /// Returns true if states are left unchanged.
    pub fn is_none(&self) -> bool {
        self.round == Rounding::None
    }
}

/// How the values of a soft state are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rounding {
    /// No rounding.
    #[default]
    None,
    /// To the nearer bit.
    Nearest,
    /// To 1 with the value as its probability.
    Stochastic,
}

/// The rounding of one group of grids in one update.
#[derive(Clone, Copy, Debug)]
pub struct StateRounding {
    /// How values are rounded.
    pub rounding: Rounding,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Random stream of the first step. Step `t` uses `time + t`, so ranges of different groups and updates must not
    /// overlap.
    pub time: u64,
}

impl StateRounding {
    /// Rounds the state after `step` steps: entries of `stride` numbers, of which the first `channels` are values.
    pub(super) fn apply(&self, step: usize, state: &mut [f32], stride: usize, channels: usize) {
        let mut random = Random::new(self.seed, Purpose::Disturb, self.time + step as u64);
        for value in state.chunks_exact_mut(stride).flat_map(|entry| &mut entry[..channels]) {
            match self.rounding {
                Rounding::None => {}
                Rounding::Nearest => *value = value.round(),
                Rounding::Stochastic => *value = if random.uniform() < *value { 1.0 } else { 0.0 },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gatework_logic::Boundary;

    use super::super::{Goal, GridGroup, Rollout};
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

    /// Loss, gradient and intermediate states of a small rollout with targets for the last `late` states.
    fn run(rounding: Rounding, late: usize, logits: &[f32]) -> (f64, Vec<f32>, Vec<Vec<f32>>) {
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
        let group = GridGroup {
            plan: &plans[0],
            start: &start,
            goal: &goals[0],
            late: &goals[1..],
            rounding: Some(StateRounding { rounding, seed: 7, time: 0 }),
        };
        let mut grads = vec![0.0; logits.len()];
        let (loss, _) = rollout.gradient(&[group], &mut grads);
        let states: Vec<Vec<f32>> = (1..STEPS)
            .map(|step| {
                let state = rollout.rolls[0].states.get(step);
                state[stride..].chunks_exact(stride).flat_map(|entry| entry[..CHANNELS].to_vec()).collect()
            })
            .collect();
        (loss, grads, states)
    }

    #[test]
    fn gradients_include_the_losses_of_late_states() {
        let logits = model().params.values;
        let (_, grads, _) = run(Rounding::None, 3, &logits);
        let largest = grads.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        for i in (0..logits.len()).step_by(7) {
            let moved = |by: f32| {
                let mut logits = logits.clone();
                logits[i] += by;
                run(Rounding::None, 3, &logits).0
            };
            let slope = (moved(0.02) - moved(-0.02)) / 0.04;
            let off = (f64::from(grads[i]) - slope).abs();
            assert!(off < 0.01 * f64::from(largest), "{i}: {} {slope}", grads[i]);
        }
    }

    #[test]
    fn rounding_and_late_targets_change_the_loss() {
        let logits = model().params.values;
        let (plain, ..) = run(Rounding::None, 1, &logits);
        for (rounding, late) in [(Rounding::Nearest, 1), (Rounding::Stochastic, 1), (Rounding::None, 2)] {
            let (loss, ..) = run(rounding, late, &logits);
            assert!((loss - plain).abs() > 1e-5, "{rounding:?}, {late} states");
        }
    }

    #[test]
    fn rounded_states_are_bits_and_stochastic_rounding_keeps_the_mean() {
        let logits = model().params.values;
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            let (_, grads, states) = run(rounding, 1, &logits);
            assert!(states.iter().flatten().all(|&x| x == 0.0 || x == 1.0));
            assert!(grads.iter().any(|&g| g != 0.0), "gradients pass straight through");
        }
        let mut state = vec![0.3; 10_000];
        StateRounding { rounding: Rounding::Stochastic, seed: 1, time: 0 }.apply(0, &mut state, 1, 1);
        let mean = state.iter().sum::<f32>() / 10_000.0;
        assert!((mean - 0.3).abs() < 0.02, "{mean}");
    }
}
