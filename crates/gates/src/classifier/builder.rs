//! Training of a classifier on data in memory, in one call.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_logic::classifier::Classifier;
use gatework_train::trainer::{self, Observer, Options, Quiet};

use super::ClassifierError;
use super::data::augment::Augment;
use super::data::{Dataset, split};
use super::encoder::EncoderSettings;
use super::experiment::Training;
use super::network::{Connections, NetworkSettings};
use super::task::{ClassifierTask, Prepared};

/// Settings of a classifier that is trained on data in memory. Every setting has a default.
///
/// ```no_run
/// use gatework_gates::classifier::ClassifierBuilder;
///
/// let digits = gatework_train::datasets::digits();
/// let labels: Vec<u32> = digits.labels.iter().map(|&label| label as u32).collect();
/// let fitted = ClassifierBuilder::new().layers(&[2000]).epochs(40).fit(64, &digits.features, &labels)?;
/// println!("{:.1} % of the validation rows", 100.0 * fitted.validation_accuracy);
/// # Ok::<(), gatework_gates::classifier::ClassifierError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassifierBuilder {
    encoder: EncoderSettings,
    model: NetworkSettings,
    training: Training,
    augment: Augment,
    validation: f64,
    seed: u64,
    threads: usize,
}

/// A trained classifier and its scores.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fitted {
    /// The hard classifier.
    pub classifier: Classifier,
    /// Share of the validation rows that the hard classifier gets right.
    pub validation_accuracy: f64,
    /// The same for the soft network.
    pub soft_accuracy: f64,
}

impl Default for ClassifierBuilder {
    fn default() -> ClassifierBuilder {
        ClassifierBuilder {
            encoder: EncoderSettings::default(),
            model: NetworkSettings::default(),
            training: Training::default(),
            augment: Augment::default(),
            validation: 0.1,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }
}

impl ClassifierBuilder {
    /// Default settings.
    pub fn new() -> ClassifierBuilder {
        ClassifierBuilder::default()
    }

    /// Gates of each layer. The last number is rounded up to a multiple of the number of classes.
    #[must_use]
    pub fn layers(mut self, layers: &[usize]) -> Self {
        self.model.layers = layers.to_vec();
        self
    }

    /// The wires of all layers.
    #[must_use]
    pub fn wiring(mut self, wiring: Connections) -> Self {
        self.model.wiring = wiring;
        self
    }

    /// All settings of the network.
    #[must_use]
    pub fn model(mut self, model: NetworkSettings) -> Self {
        self.model = model;
        self
    }

    /// Most thermometer bits of a numeric feature.
    #[must_use]
    pub fn bits(mut self, bits: usize) -> Self {
        self.encoder.bits = bits;
        self
    }

    /// All settings of the encoder.
    #[must_use]
    pub fn encoder(mut self, encoder: EncoderSettings) -> Self {
        self.encoder = encoder;
        self
    }

    /// Passes over the training rows.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.training.epochs = epochs;
        self
    }

    /// Learning rate.
    #[must_use]
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.training.learning_rate = rate;
        self
    }

    /// All settings of the training.
    #[must_use]
    pub fn training(mut self, training: Training) -> Self {
        self.training = training;
        self
    }

    /// Random changes of training images, for [`ClassifierBuilder::fit_dataset`].
    #[must_use]
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = augment;
        self
    }

    /// Share of the rows that is held back to select the best epoch; with 0, the training rows select it.
    #[must_use]
    pub fn validation(mut self, share: f64) -> Self {
        self.validation = share;
        self
    }

    /// The seed of wires, initial parameters, batches and the split.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of threads; the result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Trains on rows of `columns` numbers, one row after another, and the class of each row. NaN is a missing value.
    pub fn fit(&self, columns: usize, x: &[f32], y: &[u32]) -> Result<Fitted, ClassifierError> {
        let data = Dataset::new(columns, x.to_vec(), y.to_vec())?;
        self.fit_dataset(data, &Quiet, &AtomicBool::new(false))
    }

    /// Trains on a data set. `observer` sees every update; `stop` ends training early with the best parameters so far.
    pub fn fit_dataset(
        &self,
        data: Dataset,
        observer: &impl Observer,
        stop: &AtomicBool,
    ) -> Result<Fitted, ClassifierError> {
        self.training.check().map_err(|problem| ClassifierError::Setting(problem.message))?;
        if !(0.0..1.0).contains(&self.validation) {
            let message = format!("validation is {}, but must be at least 0 and below 1", self.validation);
            return Err(ClassifierError::Setting(message));
        }
        let mut model = self.model.clone();
        if let Some(last) = model.layers.last_mut().filter(|last| **last > 0) {
            *last = last.next_multiple_of(data.classes().len());
        }
        let all: Vec<u32> = (0..data.rows() as u32).collect();
        let (train, validation) = match self.validation {
            0.0 => (all, Vec::new()),
            share => split::hold_back(&data, &all, share, self.seed, "validation")?,
        };
        let prepared = Arc::new(Prepared::new(&Arc::new(data), train, validation, None, &self.encoder)?);
        let make =
            |seed: u64| Ok(ClassifierTask::new(&prepared, &model, &self.training, self.augment, seed)?);
        let options = Options {
            settings: self.training.trainer_settings(prepared.updates_per_epoch(&self.training)),
            seeds: vec![self.seed],
            until_success: false,
            concurrent_attempts: 1,
            threads_per_attempt: self.threads,
            checkpoints: None,
            interval: Duration::MAX,
        };
        // Settings that do not fit are found before training begins.
        let mut task = ClassifierTask::new(&prepared, &model, &self.training, self.augment, self.seed)?;
        let attempts = trainer::run(&options, make, observer, stop)?;
        let best = attempts.first().and_then(|attempt| attempt.best.as_ref());
        let best = best
            .ok_or_else(|| ClassifierError::Setting("training was stopped before its first epoch".into()))?;
        let (classifier, validation_accuracy, soft_accuracy) = task.result(&best.values)?;
        Ok(Fitted { classifier, validation_accuracy, soft_accuracy })
    }
}
