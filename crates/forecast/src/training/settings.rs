//! Training settings, the `[training]` table of an experiment.
//!
//! ```toml
//! [training]
//! epochs = 10
//! batch = 32
//! patience = 3
//! learning_rate = 0.005
//! decay = { factor = 0.5, hold = 1 }      # after every epoch but the first
//! ```

use gatework_engine::Half;
use serde::{Deserialize, Serialize};

use gatework_train::experiment::{Problem, problem};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer::Settings;

/// Minimum number of updates if the number of epochs is not given: with few windows, ten epochs train next to nothing.
pub const MIN_UPDATES: u64 = 1000;

/// Minimum number of epochs if it is not given.
const MIN_EPOCHS: u64 = 10;

/// How activations are stored for the backward pass of training. Parameters, optimiser state, sums and gradients are always
/// `f32`, and so is everything that a trained model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationPrecision {
    /// In 32 bits.
    #[default]
    F32,
    /// In 16 bits with the range of `f32`: 8 significant bits.
    Bf16,
    /// In 16 bits with 11 significant bits, up to 65,504. An update whose gradients overflow is skipped.
    F16,
}

impl ActivationPrecision {
    /// Returns the 16-bit format, if it is one.
    pub fn half(self) -> Option<Half> {
        match self {
            ActivationPrecision::F32 => None,
            ActivationPrecision::Bf16 => Some(Half::Bf16),
            ActivationPrecision::F16 => Some(Half::F16),
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_default(&self) -> bool {
        *self == ActivationPrecision::default()
    }
}

/// Training settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// Maximum number of epochs. Default: ten, or as many as make [`MIN_UPDATES`] updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Windows per update.
    pub batch: usize,
    /// Whether the windows of all series at one time follow each other: a batch of 7 x 32 then holds 32 times of all of
    /// seven series, as in papers whose samples have several variates.
    #[serde(alias = "together", skip_serializing_if = "std::ops::Not::not")]
    pub group_by_time: bool,
    /// Early-stopping patience: epochs in a row without a lower validation loss that end the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// The first epoch after which the validation loss is computed; parameters of earlier epochs are not kept. If it is
    /// the last epoch, the final parameters are kept.
    #[serde(alias = "first_look", skip_serializing_if = "Option::is_none")]
    pub validation_start_epoch: Option<u64>,
    /// Initial learning rate; of a one-cycle schedule, the maximum.
    pub learning_rate: f64,
    /// Learning-rate schedule; `every` of a step schedule counts updates.
    pub schedule: Schedule,
    /// Learning-rate decay per epoch, instead of a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay: Option<Decay>,
    /// Updates of linear warm-up from 0.
    pub warmup: u64,
    /// The optimiser.
    pub optimizer: Optimizer,
    /// Gradient clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// Windows per run of the compiled program; gradients of several runs are accumulated. Default: a size that suits the
    /// model on one thread.
    #[serde(alias = "part", skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// How activations are stored: `f32`, `bf16` or `f16`.
    #[serde(skip_serializing_if = "ActivationPrecision::is_default")]
    pub precision: ActivationPrecision,
}

/// Learning-rate decay per epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with a factor, { factor = 0.5 }")]
pub struct Decay {
    /// Factor from one epoch to the next.
    pub factor: f64,
    /// Epochs after the first that keep the initial rate.
    #[serde(default)]
    pub hold: u64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            epochs: None,
            batch: 32,
            group_by_time: false,
            patience: None,
            validation_start_epoch: None,
            learning_rate: 1e-3,
            schedule: Schedule::Constant,
            decay: None,
            warmup: 0,
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: None,
            micro_batch: None,
            precision: ActivationPrecision::default(),
        }
    }
}

impl Training {
    /// Checks that every setting is in its range.
    pub fn check(&self) -> Result<(), Problem> {
        let at_least_one = [
            ("epochs", self.epochs.unwrap_or(1)),
            ("batch", self.batch as u64),
            ("patience", self.patience.unwrap_or(1)),
            ("validation_start_epoch", self.validation_start_epoch.unwrap_or(1)),
            ("micro_batch", self.micro_batch.unwrap_or(1) as u64),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return problem(&["training", name], format!("training.{name} is 0, but must be at least 1"));
        }
        if let (Some(first), Some(epochs)) = (self.validation_start_epoch, self.epochs)
            && first > epochs
        {
            let message =
                format!("training.validation_start_epoch is {first}, but there are {epochs} epochs");
            return problem(&["training", "validation_start_epoch"], message);
        }
        if self.decay.is_some() && self.schedule != Schedule::Constant {
            return problem(&["training"], "training has both a schedule and a decay; remove one of them");
        }
        let located = |key: &[&str]| {
            let key: Vec<String> = key.iter().map(ToString::to_string).collect();
            move |message: String| Problem { message: format!("{}: {message}", key.join(".")), key }
        };
        self.settings(1).rate.validate().map_err(located(&["training", "learning_rate"]))?;
        self.optimizer.validate().map_err(located(&["training", "optimizer"]))?;
        self.clip.map_or(Ok(()), |clip| clip.validate().map_err(located(&["training"])))
    }

    /// Returns the maximum number of epochs, given the updates per epoch.
    pub fn epochs(&self, updates_per_epoch: u64) -> u64 {
        let default = || MIN_UPDATES.div_ceil(updates_per_epoch.max(1)).max(MIN_EPOCHS);
        self.epochs.unwrap_or_else(default).max(self.validation_start_epoch.unwrap_or(1))
    }

    /// Returns the settings of the trainer, given the updates per epoch. There is one update more than the epochs have:
    /// the validation loss of the last epoch is computed at its beginning.
    pub fn settings(&self, updates_per_epoch: u64) -> Settings {
        let epoch = updates_per_epoch.max(1);
        let schedule = match self.decay {
            Some(Decay { factor, hold }) => {
                Schedule::Step { every: epoch, factor, hold: hold.saturating_mul(epoch) }
            }
            None => self.schedule.clone(),
        };
        Settings {
            updates: self.epochs(epoch).saturating_mul(epoch).saturating_add(1),
            rate: LearningRate { base: self.learning_rate, schedule, warmup: self.warmup },
            optimizer: self.optimizer.clone(),
            clip: self.clip,
            stable: 1,
            patience: self.patience,
            scales_loss: self.precision == ActivationPrecision::F16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decay_halves_the_rate_after_every_epoch_but_the_first() {
        let text = "epochs = 4\nlearning_rate = 0.005\ndecay = { factor = 0.5, hold = 1 }\npatience = 3";
        let training: Training = toml::from_str(text).unwrap();
        assert_eq!(training.check(), Ok(()));
        let settings = training.settings(100);
        assert_eq!((settings.updates, settings.patience), (401, Some(3)));
        let rates = [0, 99, 100, 200, 300].map(|update| settings.rate.at(update, settings.updates));
        assert_eq!(rates, [0.005, 0.005, 0.005, 0.0025, 0.00125]);
    }

    #[test]
    fn few_windows_are_trained_for_more_epochs() {
        let default = Training::default();
        assert_eq!([1, 3, 100, 5000].map(|epoch| default.epochs(epoch)), [1000, 334, 10, 10]);
        assert_eq!(Training { epochs: Some(4), ..default }.epochs(3), 4);
    }

    #[test]
    fn settings_out_of_range_are_rejected() {
        for (text, word) in [
            ("epochs = 0", "training.epochs is 0"),
            ("patience = 0", "training.patience is 0"),
            ("first_look = 0", "training.validation_start_epoch is 0"),
            ("epochs = 3\nfirst_look = 4", "training.validation_start_epoch is 4, but there are 3 epochs"),
            ("learning_rate = -1.0", "training.learning_rate"),
            ("schedule = 'cosine'\ndecay = { factor = 0.5 }", "both a schedule and a decay"),
            ("decay = { factor = 0.0 }", "schedule.factor is 0"),
            ("optimizer = { kind = 'adam', beta1 = 2.0 }", "training.optimizer: beta1 is 2"),
            ("clip = { norm = 0.0 }", "clip.norm is 0"),
        ] {
            let error = toml::from_str::<Training>(text).unwrap().check().unwrap_err().message;
            assert!(error.contains(word), "{error}");
        }
        assert!(toml::from_str::<Training>("epoch = 3").is_err());
        let error = toml::from_str::<Training>("precision = 'f64'").unwrap_err().to_string();
        assert!(error.contains("expected one of `f32`, `bf16`, `f16`"), "{error}");
    }

    #[test]
    fn settings_survive_serialisation() {
        let training = Training { clip: Some(Clip::Norm(1.0)), patience: Some(2), ..Training::default() };
        assert_eq!(toml::from_str::<Training>(&toml::to_string(&training).unwrap()).unwrap(), training);
    }

    #[test]
    fn former_keys_are_read_and_the_current_ones_written() {
        let former: Training = toml::from_str("first_look = 2\ntogether = true\npart = 8").unwrap();
        let current = "validation_start_epoch = 2\ngroup_by_time = true\nmicro_batch = 8";
        assert_eq!(former, toml::from_str(current).unwrap());
        let text = toml::to_string(&former).unwrap();
        assert!(current.lines().all(|line| text.contains(line)), "{text}");
    }
}
