//! Training losses. The loss decides the outputs of a network: one value per step, one per quantile level, or the
//! parameters of a distribution.
//!
//! ```toml
//! loss = "mae"                                          # or { kind = "huber", delta = 2.0 }
//! loss = { kind = "quantiles", levels = [0.1, 0.5, 0.9] }
//! ```

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::builder::Tensor;
use super::distribution::Distribution;
use super::normalization::InstanceStatistics;
use gatework_train::kinds::{Kinds, name_or_table, no_settings};

/// A training loss. In TOML a table with `kind` and settings, or the kind alone for default settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Mean squared error.
    #[default]
    #[serde(deserialize_with = "no_settings")]
    Mse,
    /// Mean absolute error.
    #[serde(deserialize_with = "no_settings")]
    Mae,
    /// Huber loss: quadratic up to `delta`, linear beyond.
    Huber {
        /// The error at which the loss becomes linear.
        #[serde(default = "one")]
        delta: f64,
    },
    /// Pinball loss of one quantile.
    Quantile {
        /// The quantile level, between 0 and 1.
        level: f64,
    },
    /// Mean pinball loss of several quantiles.
    Quantiles {
        /// The quantile levels, in ascending order.
        #[serde(default = "default_levels")]
        levels: Vec<f64>,
    },
    /// Negative log-likelihood of the normal distribution.
    #[serde(deserialize_with = "no_settings")]
    Gaussian,
    /// Negative log-likelihood of Student's t distribution.
    #[serde(deserialize_with = "no_settings")]
    StudentT,
    /// Negative log-likelihood of the negative binomial distribution, for counts.
    #[serde(deserialize_with = "no_settings")]
    NegativeBinomial,
}

fn one() -> f64 {
    1.0
}

/// The median and the bounds of the 80 % and 90 % intervals.
fn default_levels() -> Vec<f64> {
    vec![0.05, 0.1, 0.5, 0.9, 0.95]
}

/// Maximum number of quantile levels.
const MAX_LEVELS: usize = 1000;

impl Loss {
    /// Returns the number of network outputs per step.
    pub fn outputs(&self) -> usize {
        match self {
            Loss::Quantiles { levels } => levels.len(),
            _ => self.distribution().map_or(1, Distribution::parameters),
        }
    }

    /// Returns the output distribution of a likelihood loss.
    pub fn distribution(&self) -> Option<Distribution> {
        match self {
            Loss::Gaussian => Some(Distribution::Gaussian),
            Loss::StudentT => Some(Distribution::StudentT),
            Loss::NegativeBinomial => Some(Distribution::NegativeBinomial),
            _ => None,
        }
    }

    /// Returns the levels of a quantile loss.
    pub fn levels(&self) -> Option<&[f64]> {
        match self {
            Loss::Quantile { level } => Some(std::slice::from_ref(level)),
            Loss::Quantiles { levels } => Some(levels),
            _ => None,
        }
    }

    /// Checks that every setting is in its range; the error describes the first one that is not.
    pub fn check(&self) -> Result<(), String> {
        if let Loss::Huber { delta } = self
            && !(*delta > 0.0 && delta.is_finite())
        {
            return Err(format!("loss.delta is {delta}, but must be a number above 0"));
        }
        let levels = self.levels().unwrap_or(&[0.5]);
        if levels.is_empty() || levels.len() > MAX_LEVELS {
            return Err(format!("loss.levels has {} levels, but must have 1 to {MAX_LEVELS}", levels.len()));
        }
        match levels.iter().find(|&&level| !(level > 0.0 && level < 1.0)) {
            Some(level) => Err(format!("loss.levels has {level}, but a level must lie between 0 and 1")),
            None if !levels.is_sorted_by(|a, b| a < b) => {
                Err("loss.levels must be in ascending order".to_owned())
            }
            None => Ok(()),
        }
    }

    /// Maps raw network outputs, `[rows, steps, outputs]`, to a denormalised forecast.
    pub fn forecast<'n>(&self, raw: Tensor<'n>, statistics: &InstanceStatistics<'n>) -> Tensor<'n> {
        match self.distribution() {
            Some(distribution) => distribution.parameters_from(raw, statistics),
            None => statistics.denormalize(raw),
        }
    }

    /// Returns the loss of a forecast, `[rows, steps, outputs]`, given targets, `[rows, steps]`: a scalar.
    pub fn of<'n>(&self, forecast: Tensor<'n>, target: Tensor<'n>) -> Tensor<'n> {
        let network = forecast.network();
        let sizes = [target.size(0), target.size(1)];
        // A single output needs no innermost axis of size 1.
        let (forecast, target) = match self.outputs() {
            1 => (forecast.reshape(&sizes), target),
            _ => (forecast, target.reshape(&[sizes[0], sizes[1], 1])),
        };
        match self {
            Loss::Mse => network.build(|graph| graph.mse(forecast.id(), target.id())),
            Loss::Mae => network.build(|graph| graph.mae(forecast.id(), target.id())),
            Loss::Huber { delta } => network.build(|graph| graph.huber(forecast.id(), target.id(), *delta)),
            Loss::Quantile { level } => pinball(forecast, target, std::slice::from_ref(level)),
            Loss::Quantiles { levels } => pinball(forecast, target, levels),
            Loss::Gaussian => Distribution::Gaussian.negative_log_likelihood(forecast, target),
            Loss::StudentT => Distribution::StudentT.negative_log_likelihood(forecast, target),
            Loss::NegativeBinomial => {
                Distribution::NegativeBinomial.negative_log_likelihood(forecast, target)
            }
        }
    }
}

/// Returns the mean pinball loss: `max(level * error, (level - 1) * error)`.
fn pinball<'n>(forecast: Tensor<'n>, target: Tensor<'n>, levels: &[f64]) -> Tensor<'n> {
    let error = target - forecast;
    let levels = forecast.network().data(&[levels.len()], levels);
    (error * levels).max(error * (levels - 1.0)).mean_all()
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        name_or_table(deserializer)
    }
}

impl Kinds for Loss {
    const EXPECTED: &str = "the name of a loss, or a table with its `kind` and settings";

    fn from_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Network;
    use super::*;
    use gatework_engine::Program;

    const EVERY: [&str; 7] =
        ["mse", "mae", "huber", "quantiles", "gaussian", "student-t", "negative-binomial"];

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        loss: Loss,
    }

    fn parse(text: &str) -> Result<Loss, toml::de::Error> {
        toml::from_str::<File>(text).map(|file| file.loss)
    }

    fn value(loss: &Loss, forecast: &[f32], target: f32) -> f64 {
        let network = Network::for_prediction();
        let inputs = [network.input("f", &[1, 1, forecast.len()]), network.input("y", &[1, 1])];
        let (graph, _) = network.finish(&[("loss", loss.of(inputs[0], inputs[1]))]).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        runner.write("f", forecast).unwrap();
        runner.write("y", &[target]).unwrap();
        runner.run();
        f64::from(runner.read::<f32>("loss").unwrap()[0])
    }

    #[test]
    fn losses_have_the_values_of_their_formulas() {
        let near = |loss: &str, forecast: &[f32], target: f32, expected: f64| {
            let value = value(&parse(&format!("loss = {loss}")).unwrap(), forecast, target);
            assert!((value - expected).abs() < 1e-6, "{loss}: {value} for {expected}");
        };
        near("'mse'", &[1.0], 3.0, 4.0);
        near("'mae'", &[1.0], 3.0, 2.0);
        near("'huber'", &[1.0], 3.0, 1.5);
        near("'huber'", &[1.0], 1.5, 0.125);
        near("{ kind = 'quantile', level = 0.9 }", &[1.0], 3.0, 1.8);
        near("{ kind = 'quantile', level = 0.9 }", &[3.0], 1.0, 0.2);
        near("{ kind = 'quantiles', levels = [0.1, 0.9] }", &[3.0, 3.0], 1.0, 1.0);
    }

    #[test]
    fn a_quantile_loss_is_minimal_at_the_quantile() {
        let loss = Loss::Quantile { level: 0.8 };
        let mean = |forecast: f32| (0..10).map(|i| value(&loss, &[forecast], i as f32)).sum::<f64>();
        let best = (0..10).min_by(|&a, &b| mean(a as f32).total_cmp(&mean(b as f32))).unwrap();
        assert!(best == 7 || best == 8, "{best}");
    }

    #[test]
    fn a_loss_is_written_as_a_name_or_a_table() {
        for name in EVERY {
            let loss = parse(&format!("loss = '{name}'")).unwrap();
            assert_eq!(loss, parse(&format!("loss = {{ kind = '{name}' }}")).unwrap());
            let text = toml::to_string(&File { loss: loss.clone() }).unwrap();
            assert_eq!(parse(&text).unwrap(), loss, "{text}");
            assert_eq!(loss.check(), Ok(()));
        }
        for text in ["'rmse'", "{ kind = 'mse', delta = 1.0 }", "'quantile'", "{ kind = 'huber', d = 1.0 }"] {
            assert!(parse(&format!("loss = {text}")).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_out_of_range_are_rejected() {
        for text in ["{ kind = 'huber', delta = 0.0 }", "{ kind = 'quantile', level = 1.0 }"] {
            assert!(parse(&format!("loss = {text}")).unwrap().check().is_err(), "{text}");
        }
        for levels in ["[]", "[0.5, 0.5]", "[0.9, 0.1]", "[nan]"] {
            let loss = parse(&format!("loss = {{ kind = 'quantiles', levels = {levels} }}")).unwrap();
            assert!(loss.check().is_err(), "{levels}");
        }
    }
}
