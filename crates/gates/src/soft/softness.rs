//! How soft the gates are in training: what lies between a gate's parameters and the shares of its 16 functions.
//!
//! ```text
//! parameters:  16 logits, or 4 logits of a truth table
//!      |  start: pass-through, of a chosen strength in each layer
//! 16 logits
//!      |  divided by a temperature; Gumbel noise; the most certain gates hardened
//! what the kernels run
//! ```
//!
//! The paper's recipe has 16 logits and none of the rest, which is the default. `docs/learning.md` says what the rest is worth.

use crate::kernel::FUNCTIONS;
use serde::{Deserialize, Serialize};

use super::{FUNCTION_A, PASS_THROUGH, soft_max};
use gatework_train::pairs::two;
use gatework_train::params::Params;
use gatework_train::random::Random;

/// Entries of a truth table.
const ENTRIES: usize = 4;

/// The logit by which the function of a hardened gate leads: its share is 1 to the last bit.
const HARD: f32 = 100.0;

/// The `[gates]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Softness {
    /// What is learned of a gate.
    pub numbers: Numbers,
    /// By how much function A leads at the start, in the first layer and in the last; evenly in between.
    #[serde(deserialize_with = "two")]
    pub start: [f32; 2],
    /// Logits are divided by this: the first number at the start of training, the second at its end.
    #[serde(deserialize_with = "two")]
    pub temperature: [f32; 2],
    /// The scale of the Gumbel noise on the logits.
    pub gumbel: f32,
    /// The share of the updates before there is noise.
    pub gumbel_from: f32,
    /// What the entropy of a gate's shares costs at the end of training; nothing at the start, and evenly more in between.
    pub entropy: f32,
    /// The share of the updates before gates are hardened: the most certain ones first, all of them at the end.
    pub harden_from: f32,
}

/// What is learned of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numbers {
    /// A logit for each of the 16 functions.
    #[default]
    Sixteen,
    /// A logit for each of the 4 entries of the truth table, independent of each other: function `i` has the sum of
    /// the logits of its entries that are 1.
    Four,
}

impl Default for Softness {
    fn default() -> Softness {
        Softness {
            numbers: Numbers::Sixteen,
            start: [PASS_THROUGH; 2],
            temperature: [1.0; 2],
            gumbel: 0.0,
            gumbel_from: 0.0,
            entropy: 0.0,
            harden_from: 1.0,
        }
    }
}

impl Softness {
    /// Whether it is all as in the paper.
    pub fn is_default(&self) -> bool {
        *self == Softness::default()
    }

    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), String> {
        let share = |x: f32| (0.0..=1.0).contains(&x);
        for (fits, message) in [
            (self.start.iter().all(|x| x.is_finite()), "gates.start is not two numbers"),
            (
                self.temperature.iter().all(|x| *x > 0.0 && x.is_finite()),
                "gates.temperature is not two numbers above 0",
            ),
            (self.gumbel >= 0.0 && self.gumbel.is_finite(), "gates.gumbel is not a number from 0 on"),
            (self.entropy >= 0.0 && self.entropy.is_finite(), "gates.entropy is not a number from 0 on"),
            (share(self.gumbel_from), "gates.gumbel_from is not from 0 to 1"),
            (share(self.harden_from), "gates.harden_from is not from 0 to 1"),
        ] {
            if !fits {
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// Sets the logits of all layers to the start.
    pub fn start(&self, logits: &mut Params) {
        let ranges: Vec<_> = logits.tensors().iter().map(|tensor| tensor.range.clone()).collect();
        let last = ranges.len().saturating_sub(1).max(1) as f32;
        for (layer, range) in ranges.into_iter().enumerate() {
            let part = layer as f32 / last;
            let lead = self.start[0] + (self.start[1] - self.start[0]) * part;
            for (i, logit) in logits.values[range].iter_mut().enumerate() {
                *logit = if i % FUNCTIONS == FUNCTION_A { lead } else { 0.0 };
            }
        }
    }

    /// The truth tables to learn in place of 16 logits, if that is so; they start where the logits do.
    pub fn tables(&self, logits: &Params) -> Option<Params> {
        if self.numbers == Numbers::Sixteen {
            return None;
        }
        let mut tables = Params::new();
        for tensor in logits.tensors() {
            let mut shape = tensor.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = ENTRIES;
            }
            let lead = logits.values[tensor.range.start + FUNCTION_A];
            // Entries are f(1,1), f(1,0), f(0,1), f(0,0).
            tables.add(&tensor.name, &shape, |i| if i % ENTRIES < 2 { lead / 2.0 } else { -lead / 2.0 });
        }
        Some(tables)
    }

    /// The logits that the kernels run after this share of the updates.
    pub fn soften(&self, logits: &[f32], progress: f32, random: &mut Random, soft: &mut Vec<f32>) {
        soft.clear();
        let temperature = self.temperature_at(progress);
        soft.extend(logits.iter().map(|logit| logit / temperature));
        if self.gumbel > 0.0 && progress >= self.gumbel_from {
            for logit in &mut *soft {
                // Away from 0 and 1, where the logarithms end.
                let uniform = random.uniform().clamp(1e-7, 1.0 - 1e-7);
                *logit -= self.gumbel * (-uniform.ln()).ln();
            }
        }
        if progress > self.harden_from {
            let part = (progress - self.harden_from) / (1.0 - self.harden_from);
            harden_most_certain(soft, part);
        }
    }

    /// Adds what the entropy costs to the gradients of the soft logits, and makes them gradients of the logits.
    pub fn pull_back(&self, soft: &[f32], progress: f32, grads: &mut [f32]) {
        if self.entropy > 0.0 {
            add_entropy(soft, self.entropy * progress, grads);
        }
        let temperature = self.temperature_at(progress);
        for grad in grads {
            *grad /= temperature;
        }
    }

    fn temperature_at(&self, progress: f32) -> f32 {
        self.temperature[0] * (self.temperature[1] / self.temperature[0]).powf(progress)
    }
}

/// The 16 logits of truth tables.
pub fn expand(tables: &[f32], logits: &mut [f32]) {
    for (table, logits) in tables.chunks_exact(ENTRIES).zip(logits.chunks_exact_mut(FUNCTIONS)) {
        for (function, logit) in logits.iter_mut().enumerate() {
            *logit = (0..ENTRIES).filter(|entry| function >> entry & 1 == 1).map(|entry| table[entry]).sum();
        }
    }
}

/// The gradients of truth tables from those of their 16 logits.
pub fn contract(logit_grads: &[f32], table_grads: &mut [f32]) {
    for (logits, table) in logit_grads.chunks_exact(FUNCTIONS).zip(table_grads.chunks_exact_mut(ENTRIES)) {
        for (entry, grad) in table.iter_mut().enumerate() {
            *grad = (0..FUNCTIONS).filter(|function| function >> entry & 1 == 1).map(|f| logits[f]).sum();
        }
    }
}

/// Adds the gradient of `price` times the sum of the entropies of all gates' shares.
fn add_entropy(logits: &[f32], price: f32, grads: &mut [f32]) {
    for (logits, grads) in logits.chunks_exact(FUNCTIONS).zip(grads.chunks_exact_mut(FUNCTIONS)) {
        let shares = soft_max(logits);
        // A share of 0 has no part in the entropy.
        let log = |share: f32| share.max(f32::MIN_POSITIVE).ln();
        let entropy: f32 = -shares.iter().map(|&share| share * log(share)).sum::<f32>();
        for (grad, share) in grads.iter_mut().zip(shares) {
            *grad -= price * share * (log(share) + entropy);
        }
    }
}

/// Gives the gates whose two best functions are farthest apart their best function alone: this part of all gates. No
/// gradient flows to their logits then.
fn harden_most_certain(logits: &mut [f32], part: f32) {
    let mut gates: Vec<(f32, usize)> =
        logits.chunks_exact(FUNCTIONS).map(margin).enumerate().map(|(gate, margin)| (margin, gate)).collect();
    gates.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
    let count = (gates.len() as f32 * part).round() as usize;
    let best = super::arg_max(logits);
    for &(_, gate) in gates.iter().take(count) {
        let logits = &mut logits[gate * FUNCTIONS..][..FUNCTIONS];
        logits.fill(0.0);
        logits[usize::from(best[gate])] = HARD;
    }
}

/// By how much the best logit leads.
fn margin(logits: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &logit in logits {
        if logit > first {
            (first, second) = (logit, first);
        } else {
            second = second.max(logit);
        }
    }
    first - second
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::Purpose;

    fn random() -> Random {
        Random::new(3, Purpose::Check, 0)
    }

    fn logits(gates: usize) -> Params {
        let (mut params, mut random) = (Params::new(), random());
        params.add("layer", &[gates, FUNCTIONS], |_| 4.0 * random.uniform() - 2.0);
        params
    }

    /// Finite differences of a function of logits against what `grads` says.
    fn check_gradient(at: &[f32], grads: &[f32], of: impl Fn(&[f32]) -> f64) {
        for i in 0..at.len() {
            let moved = |by: f32| {
                let mut at = at.to_vec();
                at[i] += by;
                of(&at)
            };
            let slope = (moved(0.01) - moved(-0.01)) / 0.02;
            assert!((f64::from(grads[i]) - slope).abs() < 2e-3, "{i}: {} {slope}", grads[i]);
        }
    }

    #[test]
    fn a_gradient_goes_back_through_temperature_and_entropy() {
        let softness = Softness { temperature: [2.0, 0.5], entropy: 0.7, ..Softness::default() };
        let (progress, weights) = (0.3, logits(2).values);
        let params = logits(2);
        let mut soft = Vec::new();
        let value = |logits: &[f32]| {
            let mut soft = Vec::new();
            softness.soften(logits, progress, &mut random(), &mut soft);
            let linear: f64 = soft.iter().zip(&weights).map(|(x, w)| f64::from(x * w)).sum();
            let entropy = |gate: &[f32]| -> f64 {
                -soft_max(gate).iter().map(|&p| f64::from(p) * f64::from(p).ln()).sum::<f64>()
            };
            linear + 0.7 * 0.3 * soft.chunks_exact(FUNCTIONS).map(entropy).sum::<f64>()
        };
        softness.soften(&params.values, progress, &mut random(), &mut soft);
        let mut grads = weights.clone();
        softness.pull_back(&soft, progress, &mut grads);
        check_gradient(&params.values, &grads, value);
    }

    #[test]
    fn truth_tables_are_independent_entries_and_their_gradients_come_back() {
        let table: Vec<f32> = vec![0.3, -1.2, 2.0, 0.1];
        let mut logits = vec![0.0; FUNCTIONS];
        expand(&table, &mut logits);
        let shares = soft_max(&logits);
        for (entry, logit) in table.iter().enumerate() {
            let one: f32 = (0..FUNCTIONS).filter(|f| f >> entry & 1 == 1).map(|f| shares[f]).sum();
            assert!((one - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{entry}: {one}");
        }
        let weights: Vec<f32> = (0..16).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
        let mut grads = vec![0.0; 4];
        contract(&weights, &mut grads);
        check_gradient(&table, &grads, |table| {
            let mut logits = vec![0.0; FUNCTIONS];
            expand(table, &mut logits);
            logits.iter().zip(&weights).map(|(x, w)| f64::from(x * w)).sum()
        });
    }

    #[test]
    fn both_kinds_of_parameters_start_as_wires() {
        let mut params = logits(3);
        let softness = Softness { numbers: Numbers::Four, start: [6.0, 6.0], ..Softness::default() };
        softness.start(&mut params);
        assert_eq!(super::super::arg_max(&params.values), [FUNCTION_A as u8; 3]);
        let tables = softness.tables(&params).unwrap();
        let mut expanded = vec![0.0; params.len()];
        expand(&tables.values, &mut expanded);
        assert_eq!(super::super::arg_max(&expanded), [FUNCTION_A as u8; 3]);
        assert!(Softness::default().tables(&params).is_none());
    }

    #[test]
    fn the_most_certain_gates_are_hardened_first_and_all_of_them_at_the_end() {
        let softness = Softness { harden_from: 0.5, ..Softness::default() };
        let params = logits(10);
        let hard = |progress| {
            let mut soft = Vec::new();
            softness.soften(&params.values, progress, &mut random(), &mut soft);
            assert_eq!(super::super::arg_max(&soft), super::super::arg_max(&params.values));
            soft.chunks_exact(FUNCTIONS).map(|gate| soft_max(gate).contains(&1.0)).collect::<Vec<bool>>()
        };
        assert_eq!(hard(0.5), [false; 10]);
        assert_eq!(hard(1.0), [true; 10]);
        let half = hard(0.75);
        assert_eq!(half.iter().filter(|hard| **hard).count(), 5);
        let margins: Vec<f32> = params.values.chunks_exact(FUNCTIONS).map(margin).collect();
        let of =
            |kind: bool| margins.iter().zip(&half).filter(move |(_, hard)| **hard == kind).map(|(m, _)| *m);
        assert!(of(true).fold(f32::INFINITY, f32::min) >= of(false).fold(0.0, f32::max));
    }

    #[test]
    fn noise_begins_when_it_should_and_has_the_mean_of_gumbel() {
        let softness = Softness { gumbel: 2.0, gumbel_from: 0.5, ..Softness::default() };
        let zeros = vec![0.0; 16 * 1000];
        let mut soft = Vec::new();
        softness.soften(&zeros, 0.4, &mut random(), &mut soft);
        assert_eq!(soft, zeros);
        softness.soften(&zeros, 0.6, &mut random(), &mut soft);
        let mean = soft.iter().sum::<f32>() / soft.len() as f32;
        assert!((mean - 2.0 * 0.5772).abs() < 0.1, "{mean}");
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        assert!(Softness::default().validate().is_ok());
        for wrong in [
            Softness { temperature: [1.0, 0.0], ..Softness::default() },
            Softness { gumbel: -1.0, ..Softness::default() },
            Softness { entropy: f32::NAN, ..Softness::default() },
            Softness { harden_from: 1.5, ..Softness::default() },
            Softness { start: [f32::INFINITY, 1.0], ..Softness::default() },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
