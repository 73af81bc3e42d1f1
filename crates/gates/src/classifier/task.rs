//! The training task of a classifier: batches, gradients, and the hard accuracy after every epoch.

use std::sync::Arc;

use gatework_logic::classifier::{Classifier, Encoder, Head};
use gatework_logic::simulate::Predictor;
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Losses, Task, TaskError};

use super::ClassifierError;
use super::bits::{FlatEncoder, PackedBits, write_lane};
use super::data::Dataset;
use super::data::augment::Augment;
use super::encoder::{DefaultDirection, EncoderSettings};
use super::experiment::Training;
use super::information;
use super::missing::DefaultDirections;
use super::network::{Inputs, Network, NetworkSettings, Sampling};

/// Some rows of a data set with their labels, encoded.
#[derive(Clone, Debug)]
pub struct Subset {
    /// The data set.
    pub data: Arc<Dataset>,
    /// The rows.
    pub rows: Vec<u32>,
    /// The class of each row.
    pub labels: Vec<u32>,
    packed: PackedBits,
}

impl Subset {
    /// Encodes some rows.
    pub fn new(data: &Arc<Dataset>, rows: Vec<u32>, encoder: &Encoder) -> Subset {
        Subset::encode(data, rows, &FlatEncoder::new(encoder, &DefaultDirections::default()))
    }

    fn encode(data: &Arc<Dataset>, rows: Vec<u32>, flat: &FlatEncoder) -> Subset {
        let labels = rows.iter().map(|&row| data.labels()[row as usize]).collect();
        let packed = PackedBits::new(flat, data, &rows);
        Subset { data: Arc::clone(data), rows, labels, packed }
    }

    /// Returns the share of the samples that a classifier gets right.
    pub fn accuracy(&self, classifier: &Classifier) -> Result<f64, ClassifierError> {
        let predicted = self.predict(classifier)?;
        let right =
            predicted.iter().zip(&self.labels).filter(|(predicted, label)| predicted == label).count();
        Ok(right as f64 / self.labels.len().max(1) as f64)
    }

    /// Returns the class that a classifier gives each sample.
    pub fn predict(&self, classifier: &Classifier) -> Result<Vec<u32>, ClassifierError> {
        Ok(Predictor::new(classifier).predict_many(self.data.select(&self.rows).as_rows())?)
    }

    /// Returns the share of the samples that a soft network gets right.
    fn soft_accuracy(&self, network: &mut Network) -> f64 {
        network.prepare(Sampling::default());
        let mut right = 0;
        let batch = network.batch();
        for (number, labels) in self.labels.chunks(batch).enumerate() {
            let fill = |sample: usize, lane: usize, rows: &mut [crate::kernel::Row]| {
                write_lane(self.packed.sample(number * batch + sample), lane, rows);
            };
            right += network.evaluate(labels, &fill).correct;
        }
        right as f64 / self.labels.len().max(1) as f64
    }
}

/// Data that are encoded and split, for all seeds.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The fitted encoder.
    pub encoder: Encoder,
    directions: DefaultDirections,
    /// The rows that are trained on.
    pub train: Subset,
    /// The rows that select the best epoch; those of the training, if none are held back.
    pub validation: Subset,
    /// The rows that are not used before training has ended.
    pub test: Option<Subset>,
}

impl Prepared {
    /// Fits the encoder to the training rows, and encodes all rows.
    pub fn new(
        data: &Arc<Dataset>,
        train: Vec<u32>,
        validation: Vec<u32>,
        test: Option<(&Arc<Dataset>, Vec<u32>)>,
        settings: &EncoderSettings,
    ) -> Result<Prepared, ClassifierError> {
        let encoder = settings.fit(data, &train)?;
        let directions = match settings.default_direction {
            DefaultDirection::Below => DefaultDirections::default(),
            DefaultDirection::Learned => DefaultDirections::learn(&encoder, data, &train),
        };
        let flat = FlatEncoder::new(&encoder, &directions);
        let train = Subset::encode(data, train, &flat);
        let validation =
            if validation.is_empty() { train.clone() } else { Subset::encode(data, validation, &flat) };
        let test = test.map(|(data, rows)| Subset::encode(data, rows, &flat));
        Ok(Prepared { encoder, directions, train, validation, test })
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        self.train.data.classes()
    }

    /// Number of updates of an epoch.
    pub fn updates_per_epoch(&self, training: &Training) -> u64 {
        (self.train.rows.len() / self.batch(training)).max(1) as u64
    }

    /// Number of samples of an update.
    pub fn batch(&self, training: &Training) -> usize {
        training.batch.min(self.train.rows.len()).max(1)
    }

    /// Makes a network and its initial parameters.
    pub fn network(
        &self,
        settings: &NetworkSettings,
        training: &Training,
        seed: u64,
    ) -> Result<Network, ClassifierError> {
        let mut inputs = if settings.convolutions.is_empty() {
            Inputs::from(self.encoder.bits())
        } else {
            Inputs::planes(&self.encoder)?
        };
        if settings.informed {
            let Subset { packed, labels, .. } = &self.train;
            inputs.relevance = Some(information::relevance(packed, labels, self.classes().len()));
        }
        Ok(Network::new(settings, inputs, self.classes().len(), self.batch(training), seed)?)
    }

    /// Returns the hard classifier of a network.
    pub fn harden(&self, network: &Network) -> Result<Classifier, ClassifierError> {
        let circuit = self.directions.apply(network.harden()?)?;
        let head =
            Head::equal_groups(self.classes().to_vec(), circuit.outputs().len(), network.temperature())?;
        Ok(Classifier::new(self.encoder.clone(), circuit, head)?)
    }
}

/// Training of one seed.
pub struct ClassifierTask {
    prepared: Arc<Prepared>,
    training: Training,
    augment: Augment,
    seed: u64,
    network: Network,
    updates: u64,
    flat: FlatEncoder,
    /// The epoch of the order, and the samples in the order in which they are trained on.
    order: (Option<u64>, Vec<u32>),
    labels: Vec<u32>,
}

impl ClassifierTask {
    /// Draws the wires and initial parameters of a seed.
    pub fn new(
        prepared: &Arc<Prepared>,
        settings: &NetworkSettings,
        training: &Training,
        augment: Augment,
        seed: u64,
    ) -> Result<ClassifierTask, ClassifierError> {
        Ok(ClassifierTask {
            network: prepared.network(settings, training, seed)?,
            updates: training.epochs * prepared.updates_per_epoch(training),
            flat: FlatEncoder::new(&prepared.encoder, &prepared.directions),
            prepared: Arc::clone(prepared),
            training: training.clone(),
            augment,
            seed,
            order: (None, Vec::new()),
            labels: Vec::new(),
        })
    }

    /// Returns the hard classifier of some parameters, with its share of correct test samples (validation samples, if there
    /// are none for testing) and that of the soft network.
    pub fn result(&mut self, values: &[f32]) -> Result<(Classifier, f64, f64), ClassifierError> {
        self.network.params.values.copy_from_slice(values);
        let classifier = self.prepared.harden(&self.network)?;
        let subset = self.prepared.test.as_ref().unwrap_or(&self.prepared.validation);
        let accuracy = subset.accuracy(&classifier)?;
        Ok((classifier, accuracy, subset.soft_accuracy(&mut self.network)))
    }

    /// Draws the order of an epoch.
    fn shuffle(&mut self, epoch: u64) {
        if self.order.0 != Some(epoch) {
            let mut order: Vec<u32> = (0..self.prepared.train.rows.len() as u32).collect();
            Random::new(self.seed, Purpose::Shuffle, epoch).shuffle(&mut order);
            self.order = (Some(epoch), order);
        }
    }

    /// Returns the fraction of the training before an update.
    fn progress(&self, update: u64) -> f32 {
        update as f32 / self.updates.max(1) as f32
    }

    /// Returns the scale of the Gumbel noise of an update.
    fn gumbel(&self, update: u64) -> Option<f32> {
        let progress = self.progress(update);
        let [from, until] = self.training.gumbel_range;
        (self.training.gumbel > 0.0 && (from..until).contains(&progress)).then_some(self.training.gumbel)
    }
}

impl Task for ClassifierTask {
    fn params(&self) -> &Params {
        &self.network.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.network.params
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        let per_epoch = self.prepared.updates_per_epoch(&self.training);
        let (epoch, position) = (update / per_epoch, update % per_epoch);
        self.shuffle(epoch);
        let batch = self.prepared.batch(&self.training);
        let samples = &self.order.1[position as usize * batch..][..batch];
        let train = &self.prepared.train;
        self.labels.clear();
        self.labels.extend(samples.iter().map(|&sample| train.labels[sample as usize]));
        let gumbel = self.gumbel(update);
        let mut noise = Random::new(self.seed, Purpose::Gumbel, update);
        let is_hard = self.training.straight_through.is_some_and(|from| self.progress(update) >= from);
        self.network.prepare(Sampling { gumbel: gumbel.map(|scale| (scale, &mut noise)), is_hard });
        let image = train.data.image().filter(|_| !self.augment.is_none());
        let (flat, augment, seed) = (&self.flat, self.augment, self.seed);
        let fill = |number: usize, lane: usize, rows: &mut [crate::kernel::Row]| {
            let sample = samples[number] as usize;
            let Some(shape) = image else { return write_lane(train.packed.sample(sample), lane, rows) };
            let columns = train.data.features().len();
            let (mut values, mut changed) = (vec![0.0; columns], vec![0.0; columns]);
            train.data.copy_row(train.rows[sample] as usize, &mut values);
            let mut random = Random::new(seed, Purpose::Augment, update);
            // Four blocks for each sample: more than the numbers that a change needs.
            random.seek(number as u32 * 4);
            augment.apply(shape, &values, &mut changed, &mut random);
            let mut words = vec![0; flat.bits().div_ceil(64)];
            flat.encode(&changed, &mut words);
            write_lane(&words, lane, rows);
        };
        let result = self.network.gradient(&self.labels, &fill);
        let is_epoch_end = position + 1 == per_epoch;
        let hard = if is_epoch_end {
            let classifier = self.prepared.harden(&self.network)?;
            Some(1.0 - self.prepared.validation.accuracy(&classifier)?)
        } else {
            None
        };
        Ok(Losses { soft: result.loss / batch as f64, hard })
    }

    /// A classifier is never finished early: a validation error of 0 does not mean that there is nothing left to learn.
    fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::experiment::ClassifierExperiment;

    fn task(augment: Augment, gumbel: f32) -> ClassifierTask {
        let mut experiment = ClassifierExperiment::find("digits").unwrap().experiment;
        experiment.model.layers = vec![40, 40];
        experiment.training.gumbel = gumbel;
        experiment.training.batch = 300;
        let prepared = Arc::new(experiment.prepare().unwrap());
        ClassifierTask::new(&prepared, &experiment.model, &experiment.training, augment, 3).unwrap()
    }

    /// Random numbers are a function of the update's number: a task that begins in the middle, as a resumed one does, has
    /// the losses and gradients of an uninterrupted one.
    #[test]
    fn training_resumes_with_the_same_losses_and_gradients() {
        let shift = Augment { shift: 1, flip: true, reflect: false };
        for (augment, gumbel) in [(Augment::default(), 0.0), (shift, 0.0), (Augment::default(), 0.5)] {
            let mut whole = task(augment, gumbel);
            let per_epoch = whole.prepared.updates_per_epoch(&whole.training);
            assert_eq!(per_epoch, 4);
            for update in 0..6 {
                let losses = whole.step(update).unwrap();
                assert_eq!(losses.hard.is_some(), update == 3, "after every epoch");
                let params = whole.params_mut();
                for (value, grad) in params.values.iter_mut().zip(&params.grads) {
                    *value -= 0.05 * grad.signum();
                }
            }
            let mut later = task(augment, gumbel);
            later.params_mut().values.copy_from_slice(&whole.params().values);
            let (a, b) = (whole.step(6).unwrap(), later.step(6).unwrap());
            assert_eq!((a.soft, a.hard), (b.soft, b.hard));
            assert_eq!(whole.params().grads, later.params().grads);
            assert!(whole.params().grads.iter().any(|&grad| grad != 0.0));
        }
    }

    /// Runs of experiments that do not name the setting were trained with missing values below all thresholds.
    #[test]
    fn missing_values_are_below_all_thresholds_unless_their_direction_is_learned() {
        let values = (0..40).map(|row| if row < 10 { f32::NAN } else { row as f32 }).collect();
        let labels = (0..40).map(|row| u32::from(!(10..30).contains(&row))).collect();
        let data = Arc::new(Dataset::new(1, values, labels).unwrap());
        let directions = |default_direction| {
            let settings = EncoderSettings { default_direction, ..EncoderSettings::default() };
            Prepared::new(&data, (0..40).collect(), Vec::new(), None, &settings).unwrap().directions
        };
        let settings: EncoderSettings = toml::from_str("bits = 8").unwrap();
        assert_eq!(directions(settings.default_direction), DefaultDirections::default());
        assert_ne!(directions(DefaultDirection::Learned), DefaultDirections::default());
    }

    #[test]
    fn no_row_is_in_two_subsets() {
        let task = task(Augment::default(), 0.0);
        let Prepared { train, validation, test, .. } = &*task.prepared;
        let mut rows = [&train.rows[..], &validation.rows, &test.as_ref().unwrap().rows].concat();
        rows.sort_unstable();
        assert_eq!(rows, (0..1797).collect::<Vec<u32>>());
    }
}
