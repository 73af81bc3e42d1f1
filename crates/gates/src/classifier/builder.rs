//! Training of a classifier in one call, on data in memory or in files.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use gatework_logic::classifier::{self as logic, Classifier, Rows};
use gatework_logic::simulate::Predictor;
use gatework_logic::{Circuit, Document, to_json};
use gatework_train::files;
use gatework_train::trainer::{Observer, Quiet};

use super::ClassifierError;
use super::choose::{self, Request};
use super::data::augment::Augment;
use super::data::{DataError, Dataset};
use super::encoder::EncoderSettings;
use super::experiment::{ClassifierExperiment, Experiment, TestData, Training};
use super::network::{Connections, NetworkSettings};
use super::run::{self, RunError};
use super::search::SearchSettings;

/// Settings of a classifier that is trained in one call. Those that are not given are chosen for the data.
///
/// ```no_run
/// use gatework_gates::classifier::ClassifierBuilder;
///
/// let digits = gatework_train::datasets::digits();
/// let labels: Vec<u32> = digits.labels.iter().map(|&label| label as u32).collect();
/// let fitted = ClassifierBuilder::new().test(0.2).fit(64, &digits.features, &labels)?;
/// println!("{:.1} % of the test rows, {} gates", 100.0 * fitted.accuracy, fitted.circuit().nodes().len());
/// assert_eq!(fitted.predict(&digits.features)?.len(), labels.len());
/// fitted.save("digits.json")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClassifierBuilder {
    encoder: Option<EncoderSettings>,
    bits: Option<usize>,
    model: Option<NetworkSettings>,
    layers: Option<Vec<usize>>,
    members: Option<usize>,
    wiring: Option<Connections>,
    training: Option<Training>,
    epochs: Option<u64>,
    learning_rate: Option<f64>,
    augment: Option<Augment>,
    sweeps: Option<usize>,
    validation: Option<f64>,
    request: Request,
    seed: u64,
    seeds: Option<u64>,
    threads: usize,
}

/// A trained classifier and its scores.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fitted {
    /// The hard classifier: encoder, circuit and head.
    pub classifier: Classifier,
    /// Share of the test rows that the hard classifier gets right; of the validation rows, if no test rows were held back. With fewer
    /// than about ten rows of every class there are no validation rows either: then it is that of the training rows.
    pub accuracy: f64,
    /// The same for the soft network, before the search.
    pub soft_accuracy: f64,
    /// Share of the validation rows that the hard classifier gets right; of the training rows, if there are none.
    pub validation_accuracy: f64,
    /// The settings, with all that was chosen.
    pub experiment: Experiment,
    predictor: OnceLock<Predictor>,
}

impl Default for ClassifierBuilder {
    fn default() -> ClassifierBuilder {
        ClassifierBuilder {
            encoder: None,
            bits: None,
            model: None,
            layers: None,
            members: None,
            wiring: None,
            training: None,
            epochs: None,
            learning_rate: None,
            augment: None,
            sweeps: None,
            validation: None,
            request: Request::default(),
            seed: 1,
            seeds: None,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }
}

impl ClassifierBuilder {
    /// Settings that are all chosen for the data.
    pub fn new() -> ClassifierBuilder {
        ClassifierBuilder::default()
    }

    /// Networks that are trained side by side, and whose counts are added; 1 if [`Self::layers`] are given.
    pub fn members(mut self, members: usize) -> Self {
        self.members = Some(members);
        self
    }

    /// Gates of each layer of a member. The last number is rounded up to a multiple of the number of classes.
    pub fn layers(mut self, layers: &[usize]) -> Self {
        self.layers = Some(layers.to_vec());
        self
    }

    /// The wires of all layers.
    pub fn wiring(mut self, wiring: Connections) -> Self {
        self.wiring = Some(wiring);
        self
    }

    /// All settings of the network.
    pub fn model(mut self, model: NetworkSettings) -> Self {
        self.model = Some(model);
        self
    }

    /// Most thermometer bits of a numeric feature.
    pub fn bits(mut self, bits: usize) -> Self {
        self.bits = Some(bits);
        self
    }

    /// All settings of the encoder.
    pub fn encoder(mut self, encoder: EncoderSettings) -> Self {
        self.encoder = Some(encoder);
        self
    }

    /// Passes over the training rows.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// Learning rate.
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.learning_rate = Some(rate);
        self
    }

    /// All settings of the training.
    pub fn training(mut self, training: Training) -> Self {
        self.training = Some(training);
        self
    }

    /// Random changes of training images.
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }

    /// Most passes of the search on the hard circuit that follows the training; 0 for none.
    pub fn sweeps(mut self, sweeps: usize) -> Self {
        self.sweeps = Some(sweeps);
        self
    }

    /// Share of the training rows that is held back to select the best epoch; with 0, the training rows select it.
    pub fn validation(mut self, share: f64) -> Self {
        self.validation = Some(share);
        self
    }

    /// Share of the rows that is held back for testing: none for data in memory, a fifth for files, unless it is given.
    pub fn test(mut self, share: f64) -> Self {
        self.request.test = Some(TestData::Share(share));
        self
    }

    /// The column with the classes, for [`ClassifierBuilder::fit_file`].
    pub fn label(mut self, column: impl Into<String>) -> Self {
        self.request.label = Some(column.into());
        self
    }

    /// The seed of wires, initial parameters and batches.
    pub fn seed(mut self, seed: u64) -> Self {
        (self.seed, self.seeds) = (seed, None);
        self
    }

    /// Trains seeds 1 to `count`, and keeps the one with the highest validation accuracy.
    pub fn seeds(mut self, count: u64) -> Self {
        self.seeds = Some(count);
        self
    }

    /// Number of threads; the result does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Trains on rows of `columns` numbers, one row after another, and the class of each row. NaN is a missing value.
    pub fn fit(&self, columns: usize, x: &[f32], y: &[u32]) -> Result<Fitted, ClassifierError> {
        let data = Dataset::new(columns, x.to_vec(), y.to_vec())?;
        self.fit_dataset(data, &Quiet, &AtomicBool::new(false))
    }

    /// Trains on a file or a folder: a table, IDX images, CIFAR batches, or a folder with one folder of PNG files per class.
    pub fn fit_file(&self, path: impl AsRef<Path>) -> Result<Fitted, ClassifierError> {
        let experiment = self.change(choose::data(path.as_ref(), &self.request)?.experiment);
        let (data, test) = experiment.load()?;
        self.train(experiment, data, test, &Quiet, &AtomicBool::new(false))
    }

    /// Trains on a data set. `observer` sees every update; `stop` ends the training with an error.
    pub fn fit_dataset(
        &self,
        data: Dataset,
        observer: &impl Observer,
        stop: &AtomicBool,
    ) -> Result<Fitted, ClassifierError> {
        if data.class_counts().iter().filter(|&&rows| rows > 0).count() < 2 {
            let message = "all rows have the same class; a classifier needs at least two classes";
            return Err(DataError::Unusable(message.into()).into());
        }
        let test = self.request.test.clone().unwrap_or(TestData::Share(0.0));
        let experiment = self.change(choose::in_memory(&data, test));
        self.train(experiment, data, None, observer, stop)
    }

    /// Replaces what was chosen by what was given.
    fn change(&self, mut experiment: Experiment) -> Experiment {
        let given = self.clone();
        let Experiment { encoder, model, training, augment, search, data, .. } = &mut experiment;
        *encoder = given.encoder.unwrap_or_else(|| encoder.clone());
        *training = given.training.unwrap_or_else(|| training.clone());
        *model = given.model.unwrap_or_else(|| model.clone());
        *augment = given.augment.unwrap_or(*augment);
        if let Some(sweeps) = given.sweeps {
            let settings = SearchSettings { sweeps, ..search.unwrap_or_default() };
            *search = (sweeps > 0).then_some(settings);
        }
        encoder.bits = given.bits.unwrap_or(encoder.bits);
        training.epochs = given.epochs.unwrap_or(training.epochs);
        training.learning_rate = given.learning_rate.unwrap_or(training.learning_rate);
        data.validation = given.validation.unwrap_or(data.validation);
        model.wiring = given.wiring.unwrap_or(model.wiring);
        if let Some(layers) = given.layers {
            // The chosen temperature and members are those of the chosen layers.
            (model.layers, model.members, model.temperature) = (layers, 1, None);
        }
        model.members = given.members.unwrap_or(model.members);
        (experiment.seed, experiment.seeds) = (self.seed, self.seeds);
        experiment
    }

    /// Trains an experiment on data.
    fn train(
        &self,
        mut experiment: Experiment,
        data: Dataset,
        test: Option<Dataset>,
        observer: &impl Observer,
        stop: &AtomicBool,
    ) -> Result<Fitted, ClassifierError> {
        experiment.check().map_err(|problem| ClassifierError::Setting(problem.message))?;
        if let Some(last) = experiment.model.layers.last_mut() {
            *last = last.next_multiple_of(data.classes().len().max(1));
        }
        if self.sweeps.is_none() {
            // The search that was chosen is that of the chosen network.
            experiment.search = choose::search(&data, &experiment);
        }
        let prepared = Arc::new(experiment.split(data, test)?);
        let loaded = ClassifierExperiment { experiment };
        let trained =
            run::train(&loaded, &prepared, None, self.threads, observer, stop).map_err(in_memory)?;
        let result = trained.result();
        Ok(Fitted {
            accuracy: result.accuracy,
            soft_accuracy: result.soft_accuracy,
            validation_accuracy: result.validation_accuracy,
            experiment: loaded.experiment,
            classifier: trained.classifier,
            predictor: OnceLock::new(),
        })
    }
}

/// The error of a run that has no folder.
fn in_memory(error: RunError) -> ClassifierError {
    match error {
        RunError::Classifier(error) => error,
        RunError::Training(error) => error.into(),
        error => ClassifierError::Setting(error.to_string()),
    }
}

impl Fitted {
    /// Returns the class of each row, as an index of [`Fitted::classes`]. Rows follow one another; NaN is a missing value.
    pub fn predict<'a>(&self, rows: impl Into<Rows<'a>>) -> Result<Vec<u32>, logic::ClassifierError> {
        self.predictor().predict_many(rows)
    }

    /// Returns the scores of each row: for each class, the number of its outputs that are 1.
    pub fn scores<'a>(&self, rows: impl Into<Rows<'a>>) -> Result<Vec<u32>, logic::ClassifierError> {
        self.predictor().scores_many(rows)
    }

    /// The names of the classes.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classifier.head().classes().iter().map(|class| class.name.as_str())
    }

    /// The circuit between encoder and head.
    pub fn circuit(&self) -> &Circuit {
        self.classifier.circuit()
    }

    /// The classifier as native code, which is compiled by the first prediction.
    pub fn predictor(&self) -> &Predictor {
        self.predictor.get_or_init(|| Predictor::new(&self.classifier))
    }

    /// Writes encoder, circuit and head as JSON, which all commands of Gatework read.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ClassifierError> {
        let text = to_json(&Document::Classifier(self.classifier.clone()));
        Ok(files::write_atomic(path.as_ref(), text.as_bytes()).map_err(DataError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exclusive or of two bits, and a column that says nothing.
    fn exclusive_or() -> (Vec<f32>, Vec<u32>) {
        let rows = (0..64).map(|i| [(i & 1) as f32, (i >> 1 & 1) as f32, (i % 7) as f32]);
        let labels = (0..64).map(|i: u32| (i ^ i >> 1) & 1);
        (rows.flatten().collect(), labels.collect())
    }

    #[test]
    fn what_is_given_replaces_what_is_chosen() {
        let (x, y) = exclusive_or();
        let data = Dataset::new(3, x, y).unwrap();
        let chosen = choose::in_memory(&data, TestData::Share(0.0));
        let builder = ClassifierBuilder::new().layers(&[41]).epochs(3).bits(2).sweeps(0).validation(0.25);
        let changed = builder.seed(7).change(chosen.clone());
        let model = changed.model;
        assert_eq!((model.layers, model.members, model.temperature), (vec![41], 1, None));
        assert_eq!((changed.training.epochs, changed.encoder.bits, changed.search), (3, 2, None));
        assert_eq!((changed.data.validation, changed.seed), (0.25, 7));
        assert_eq!(changed.training.learning_rate, chosen.training.learning_rate);
        assert_eq!(ClassifierBuilder::new().change(chosen.clone()), chosen);
    }

    #[test]
    fn predictions_are_those_of_the_classifier() {
        let (x, y) = exclusive_or();
        let fitted = ClassifierBuilder::new().layers(&[41]).epochs(2).sweeps(0).fit(3, &x, &y).unwrap();
        assert_eq!(fitted.experiment.model.layers, [42]);
        assert_eq!(fitted.circuit().outputs().len(), 42);
        assert_eq!(fitted.classes().collect::<Vec<_>>(), ["0", "1"]);
        let one_by_one = x.chunks(3).map(|row| fitted.classifier.predict(row).unwrap() as u32);
        assert_eq!(fitted.predict(&x[..]).unwrap(), one_by_one.collect::<Vec<_>>());
        assert_eq!(fitted.scores(&x[..3]).unwrap(), fitted.classifier.scores(&x[..3]).unwrap());
    }

    #[test]
    fn the_search_is_chosen_for_the_network_that_was_given() {
        let (x, y) = exclusive_or();
        let search = |builder: ClassifierBuilder| builder.epochs(1).fit(3, &x, &y).unwrap().experiment.search;
        assert_eq!(search(ClassifierBuilder::new()), None);
        assert_eq!(search(ClassifierBuilder::new().layers(&[40])), Some(SearchSettings::default()));
        assert_eq!(search(ClassifierBuilder::new().members(1)), Some(SearchSettings::default()));
        assert_eq!(search(ClassifierBuilder::new().layers(&[40]).sweeps(0)), None);
        let given = ClassifierBuilder::new().layers(&[40]).sweeps(2);
        assert_eq!(search(given).map(|search| search.sweeps), Some(2));
    }

    #[test]
    fn rows_of_one_class_are_refused() {
        for class in [0, 1] {
            let error = ClassifierBuilder::new().fit(2, &[0.0, 1.0, 2.0, 3.0], &[class; 2]).unwrap_err();
            assert!(error.to_string().contains("needs at least two classes"), "{error}");
        }
    }

    #[test]
    fn a_saved_classifier_is_read_again() {
        let (x, y) = exclusive_or();
        let fitted = ClassifierBuilder::new().layers(&[40]).epochs(1).sweeps(0).fit(3, &x, &y).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("circuit.json");
        fitted.save(&path).unwrap();
        assert_eq!(run::read_classifier(&path).unwrap(), fitted.classifier);
    }

    #[test]
    fn a_file_is_fitted_as_the_command_line_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flowers.csv");
        let rows =
            (0..60).map(|i| format!("{},{},{}\n", i % 10, i % 4, if i % 10 > 4 { "tall" } else { "short" }));
        std::fs::write(&path, format!("height,width,size\n{}", rows.collect::<String>())).unwrap();
        let builder = ClassifierBuilder::new().epochs(2).sweeps(0);
        let fitted = builder.clone().label("size").fit_file(&path).unwrap();
        assert_eq!(fitted.classes().collect::<Vec<_>>(), ["short", "tall"]);
        let error = builder.label("depth").fit_file(&path).unwrap_err();
        assert!(error.to_string().contains("depth"), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let (x, y) = exclusive_or();
        let error = |builder: ClassifierBuilder| builder.fit(3, &x, &y).unwrap_err().to_string();
        assert!(error(ClassifierBuilder::new().validation(1.0)).contains("validation is 1"));
        assert!(error(ClassifierBuilder::new().test(-0.5)).contains("test is -0.5"));
        assert!(error(ClassifierBuilder::new().epochs(0)).contains("epochs is 0"));
        assert!(error(ClassifierBuilder::new().layers(&[])).contains("model: "));
        for layers in [&[usize::MAX][..], &[usize::MAX - 1, 40]] {
            assert!(error(ClassifierBuilder::new().layers(layers)).contains("but the limit is"));
        }
        let error = ClassifierBuilder::new().fit(3, &x[..5], &y).unwrap_err();
        assert!(matches!(error, ClassifierError::Data(_)), "{error}");
    }
}
