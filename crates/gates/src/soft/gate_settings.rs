//! How gates are parameterised in training: the `[gates]` table of an experiment.
//!
//! ```text
//! parameters:  16 logits, or 4 logits of a truth table
//!      |  initial values: pass-through, with a chosen logit in each layer
//! 16 logits
//!      |  Gumbel noise
//! logits that the kernels run
//! ```
//!
//! The defaults are the paper's recipe: 16 logits, a pass-through logit of 10 in every layer and no noise.

use crate::kernel::FUNCTIONS;
use serde::{Deserialize, Serialize};

use super::{FUNCTION_A, PASS_THROUGH};
use crate::deserialize::{self, Removed, two};
use gatework_train::params::Params;
use gatework_train::random::Random;

/// Entries of a truth table.
const ENTRIES: usize = 4;

/// The `[gates]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateSettings {
    /// Parameters of a gate.
    pub numbers: Numbers,
    /// Initial pass-through logit of the first and of the last layer, interpolated linearly in between.
    #[serde(deserialize_with = "two")]
    pub start: [f32; 2],
    /// Scale of the Gumbel noise on the logits.
    pub gumbel: f32,
    /// Fraction of the updates before the noise begins.
    pub gumbel_from: f32,
    #[serde(skip_serializing, deserialize_with = "deserialize::gates_temperature")]
    temperature: Removed,
    #[serde(skip_serializing, deserialize_with = "deserialize::gates_entropy")]
    entropy: Removed,
    #[serde(skip_serializing, deserialize_with = "deserialize::gates_harden_from")]
    harden_from: Removed,
}

/// Parameters of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Numbers {
    /// One logit for each of the 16 functions.
    #[default]
    Sixteen,
    /// One logit for each of the 4 entries of the truth table, independent of each other. The logit of function `i` is
    /// the sum of the logits of its entries that are 1.
    Four,
}

impl Default for GateSettings {
    fn default() -> GateSettings {
        GateSettings {
            numbers: Numbers::Sixteen,
            start: [PASS_THROUGH; 2],
            gumbel: 0.0,
            gumbel_from: 0.0,
            temperature: Removed,
            entropy: Removed,
            harden_from: Removed,
        }
    }
}

impl GateSettings {
    /// Returns true for the paper's settings.
    pub fn is_default(&self) -> bool {
        *self == GateSettings::default()
    }

    /// Checks the range of every number.
    pub fn validate(&self) -> Result<(), String> {
        for (fits, message) in [
            (self.start.iter().all(|x| x.is_finite()), "gates.start must be two finite numbers"),
            (self.gumbel >= 0.0 && self.gumbel.is_finite(), "gates.gumbel must be at least 0"),
            ((0.0..=1.0).contains(&self.gumbel_from), "gates.gumbel_from must be from 0 to 1"),
        ] {
            if !fits {
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// Sets the logits of all layers to their initial values.
    pub fn initialize(&self, logits: &mut Params) {
        let ranges: Vec<_> = logits.tensors().iter().map(|tensor| tensor.range.clone()).collect();
        let last = ranges.len().saturating_sub(1).max(1) as f32;
        for (layer, range) in ranges.into_iter().enumerate() {
            let fraction = layer as f32 / last;
            let pass_through = self.start[0] + (self.start[1] - self.start[0]) * fraction;
            for (i, logit) in logits.values[range].iter_mut().enumerate() {
                *logit = if i % FUNCTIONS == FUNCTION_A { pass_through } else { 0.0 };
            }
        }
    }

    /// Returns the truth tables that are trained instead of 16 logits, with [`Numbers::Four`]. Their initial values
    /// pass the first operand through, as those of the logits do.
    pub fn truth_tables(&self, logits: &Params) -> Option<Params> {
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

    /// Writes the logits that the kernels run to `noisy`: `logits`, plus Gumbel noise once the fraction `progress` of
    /// the updates has reached `gumbel_from`. The gradient of the logits is that of the noisy ones.
    pub fn add_noise(&self, logits: &[f32], progress: f32, random: &mut Random, noisy: &mut Vec<f32>) {
        noisy.clear();
        noisy.extend_from_slice(logits);
        if self.gumbel > 0.0 && progress >= self.gumbel_from {
            for logit in noisy {
                // The logarithms of 0 and 1 are not usable.
                let uniform = random.uniform().clamp(1e-7, 1.0 - 1e-7);
                *logit -= self.gumbel * (-uniform.ln()).ln();
            }
        }
    }
}

/// Computes the 16 logits of each truth table.
pub fn expand(tables: &[f32], logits: &mut [f32]) {
    for (table, logits) in tables.chunks_exact(ENTRIES).zip(logits.chunks_exact_mut(FUNCTIONS)) {
        for (function, logit) in logits.iter_mut().enumerate() {
            *logit = (0..ENTRIES).filter(|entry| function >> entry & 1 == 1).map(|entry| table[entry]).sum();
        }
    }
}

/// Computes the gradients of truth tables from those of their 16 logits: the adjoint of [`expand`].
pub fn contract(logit_grads: &[f32], table_grads: &mut [f32]) {
    for (logits, table) in logit_grads.chunks_exact(FUNCTIONS).zip(table_grads.chunks_exact_mut(ENTRIES)) {
        for (entry, grad) in table.iter_mut().enumerate() {
            *grad = (0..FUNCTIONS).filter(|function| function >> entry & 1 == 1).map(|f| logits[f]).sum();
        }
    }
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

    fn softmax(logits: &[f32]) -> Vec<f32> {
        let total: f32 = logits.iter().map(|x| x.exp()).sum();
        logits.iter().map(|x| x.exp() / total).collect()
    }

    /// Compares `grads` with finite differences of a function.
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
    fn truth_table_entries_are_independent_and_contract_is_the_gradient_of_expand() {
        let table: Vec<f32> = vec![0.3, -1.2, 2.0, 0.1];
        let mut logits = vec![0.0; FUNCTIONS];
        expand(&table, &mut logits);
        let probabilities = softmax(&logits);
        for (entry, logit) in table.iter().enumerate() {
            let one: f32 = (0..FUNCTIONS).filter(|f| f >> entry & 1 == 1).map(|f| probabilities[f]).sum();
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
        let settings = GateSettings { numbers: Numbers::Four, start: [6.0, 6.0], ..GateSettings::default() };
        settings.initialize(&mut params);
        assert_eq!(super::super::arg_max(&params.values), [FUNCTION_A as u8; 3]);
        let tables = settings.truth_tables(&params).unwrap();
        let mut expanded = vec![0.0; params.len()];
        expand(&tables.values, &mut expanded);
        assert_eq!(super::super::arg_max(&expanded), [FUNCTION_A as u8; 3]);
        assert!(GateSettings::default().truth_tables(&params).is_none());
    }

    #[test]
    fn noise_begins_at_its_fraction_of_the_updates_and_has_the_mean_of_gumbel() {
        let settings = GateSettings { gumbel: 2.0, gumbel_from: 0.5, ..GateSettings::default() };
        let zeros = vec![0.0; 16 * 1000];
        let mut noisy = Vec::new();
        settings.add_noise(&zeros, 0.4, &mut random(), &mut noisy);
        assert_eq!(noisy, zeros);
        settings.add_noise(&zeros, 0.6, &mut random(), &mut noisy);
        let mean = noisy.iter().sum::<f32>() / noisy.len() as f32;
        assert!((mean - 2.0 * 0.5772).abs() < 0.1, "{mean}");
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert!(GateSettings::default().validate().is_ok());
        for wrong in [
            GateSettings { gumbel: -1.0, ..GateSettings::default() },
            GateSettings { gumbel_from: 1.5, ..GateSettings::default() },
            GateSettings { start: [f32::INFINITY, 1.0], ..GateSettings::default() },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
