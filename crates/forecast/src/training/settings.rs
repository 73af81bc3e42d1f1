//! How a forecaster is trained, as a file says it.
//!
//! ```toml
//! [training]
//! epochs = 10
//! batch = 32
//! patience = 3
//! learning_rate = 0.005
//! decay = { factor = 0.5, hold = 1 }      # after every epoch but the first
//! ```

use serde::{Deserialize, Serialize};

use gatework_train::experiment::{Problem, problem};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer::Settings;

/// Updates of a training whose epochs are not given, at least: with few windows, ten epochs are next to nothing.
pub const LEAST_UPDATES: u64 = 1000;

/// Epochs of a training that does not name them, at least.
const FEWEST_EPOCHS: u64 = 10;

/// How a forecaster is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// Times that every window is seen, at most. If not given: ten, or as many as make [`LEAST_UPDATES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Windows of an update.
    pub batch: usize,
    /// Whether the windows of all series at one time follow each other: a batch of 7 x 32 is then 32 times with all of
    /// seven series, as in papers whose samples have several columns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// Epochs in a row without a lower validation loss that end the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// The epoch after which the validation loss is looked at for the first time: what came before is not kept. With that of
    /// the last epoch, the last parameters are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_look: Option<u64>,
    /// The learning rate at first; of a one-cycle schedule the highest.
    pub learning_rate: f64,
    /// The course of the learning rate; `every` of a step counts updates.
    pub schedule: Schedule,
    /// The fall of the learning rate from epoch to epoch, in place of a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay: Option<Decay>,
    /// Updates in which the learning rate rises from 0.
    pub warmup: u64,
    /// The optimiser.
    pub optimizer: Optimizer,
    /// The limit of the gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// Windows that go through a program at once; if not given, as suits the model on one thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<usize>,
}

/// A fall of the learning rate from epoch to epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with a factor, { factor = 0.5 }")]
pub struct Decay {
    /// Factor from one epoch to the next.
    pub factor: f64,
    /// Epochs at the first rate beyond the first one.
    #[serde(default)]
    pub hold: u64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            epochs: None,
            batch: 32,
            together: false,
            patience: None,
            first_look: None,
            learning_rate: 1e-3,
            schedule: Schedule::Constant,
            decay: None,
            warmup: 0,
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: None,
            part: None,
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
            ("first_look", self.first_look.unwrap_or(1)),
            ("part", self.part.unwrap_or(1) as u64),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return problem(&["training", name], format!("training.{name} is 0, but must be at least 1"));
        }
        if let (Some(first), Some(epochs)) = (self.first_look, self.epochs)
            && first > epochs
        {
            let message = format!("training.first_look is {first}, but there are {epochs} epochs");
            return problem(&["training", "first_look"], message);
        }
        if self.decay.is_some() && self.schedule != Schedule::Constant {
            return problem(&["training"], "training has a schedule and a decay, but one of them has to do");
        }
        let located = |key: &[&str]| {
            let key: Vec<String> = key.iter().map(ToString::to_string).collect();
            move |message: String| Problem { message: format!("{}: {message}", key.join(".")), key }
        };
        self.settings(1).rate.validate().map_err(located(&["training", "learning_rate"]))?;
        self.optimizer.validate().map_err(located(&["training", "optimizer"]))?;
        self.clip.map_or(Ok(()), |clip| clip.validate().map_err(located(&["training"])))
    }

    /// Times that every window is seen, at most, for epochs of so many updates.
    pub fn epochs(&self, updates_per_epoch: u64) -> u64 {
        let usual = || LEAST_UPDATES.div_ceil(updates_per_epoch.max(1)).max(FEWEST_EPOCHS);
        self.epochs.unwrap_or_else(usual).max(self.first_look.unwrap_or(1))
    }

    /// The settings of the trainer, for epochs of so many updates. There is one update more than the epochs have: at its
    /// begin the validation loss of the last epoch is looked at.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_the_linear_models_halves_after_every_epoch_but_the_first() {
        let text = "epochs = 4\nlearning_rate = 0.005\ndecay = { factor = 0.5, hold = 1 }\npatience = 3";
        let training: Training = toml::from_str(text).unwrap();
        assert_eq!(training.check(), Ok(()));
        let settings = training.settings(100);
        assert_eq!((settings.updates, settings.patience), (401, Some(3)));
        let rates = [0, 99, 100, 200, 300].map(|update| settings.rate.at(update, settings.updates));
        assert_eq!(rates, [0.005, 0.005, 0.005, 0.0025, 0.00125]);
    }

    #[test]
    fn few_windows_are_seen_more_often() {
        let usual = Training::default();
        assert_eq!([1, 3, 100, 5000].map(|epoch| usual.epochs(epoch)), [1000, 334, 10, 10]);
        assert_eq!(Training { epochs: Some(4), ..usual }.epochs(3), 4);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("epochs = 0", "training.epochs is 0"),
            ("patience = 0", "training.patience is 0"),
            ("first_look = 0", "training.first_look is 0"),
            ("epochs = 3\nfirst_look = 4", "training.first_look is 4, but there are 3 epochs"),
            ("learning_rate = -1.0", "training.learning_rate"),
            ("schedule = 'cosine'\ndecay = { factor = 0.5 }", "a schedule and a decay"),
            ("decay = { factor = 0.0 }", "schedule.factor is 0"),
            ("optimizer = { kind = 'adam', beta1 = 2.0 }", "training.optimizer: beta1 is 2"),
            ("clip = { norm = 0.0 }", "clip.norm is 0"),
        ] {
            let error = toml::from_str::<Training>(text).unwrap().check().unwrap_err().message;
            assert!(error.contains(word), "{error}");
        }
        assert!(toml::from_str::<Training>("epoch = 3").is_err());
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        let training = Training { clip: Some(Clip::Norm(1.0)), patience: Some(2), ..Training::default() };
        assert_eq!(toml::from_str::<Training>(&toml::to_string(&training).unwrap()).unwrap(), training);
    }
}
