//! Experiments on classifiers: TOML files, read and checked before data are loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatework_train::experiment::{ExperimentError, Problem, Source, check_name, problem};
use gatework_train::memory;
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer;
use serde::{Deserialize, Serialize};

use super::ClassifierError;
use super::data::augment::Augment;
use super::data::table::{Labels, Schema, TableOptions};
use super::data::{DataError, Dataset, built_in, images, split, table};
use super::encoder::EncoderSettings;
use super::network::{Connections, NetworkError, NetworkSettings};
use super::search::SearchSettings;
use super::task::Prepared;

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 10] = [
    ("digits", include_str!("../../experiments/digits.toml")),
    ("iris", include_str!("../../experiments/iris.toml")),
    ("monk-1", include_str!("../../experiments/monk-1.toml")),
    ("monk-2", include_str!("../../experiments/monk-2.toml")),
    ("monk-3", include_str!("../../experiments/monk-3.toml")),
    ("breast-cancer", include_str!("../../experiments/breast-cancer.toml")),
    ("adult", include_str!("../../experiments/adult.toml")),
    ("mnist", include_str!("../../experiments/mnist.toml")),
    ("mnist-48k", include_str!("../../experiments/mnist-48k.toml")),
    ("mnist-conv", include_str!("../../experiments/mnist-conv.toml")),
];

/// Prefix of data paths relative to the folder in the environment variable `GATEWORK_DATA`.
const DATA_FOLDER: &str = "$GATEWORK_DATA";

/// The settings of an experiment: its TOML file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name; by default that of the file.
    #[serde(default)]
    pub name: String,
    /// The kind of task.
    pub task: TaskKind,
    /// A one-line description.
    #[serde(default)]
    pub about: String,
    /// The expected training time, as text.
    #[serde(default)]
    pub expected: String,
    /// The seed of wires, initial parameters and batches.
    #[serde(default = "one")]
    pub seed: u64,
    /// Trains seeds 1 to this number, as `train --seeds` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
    /// The data.
    pub data: DataSettings,
    /// How features become bits.
    #[serde(default)]
    pub encoder: EncoderSettings,
    /// The network.
    pub model: NetworkSettings,
    /// Random changes of training images.
    #[serde(default, skip_serializing_if = "Augment::is_none")]
    pub augment: Augment,
    /// Training by gradient descent.
    #[serde(default)]
    pub training: Training,
    /// Search on the hard circuit after training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchSettings>,
}

fn one() -> u64 {
    1
}

/// The kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TaskKind {
    /// A classifier.
    Classifier,
}

/// One or several files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a file, or a list of files")]
pub enum Files {
    /// The path of a file or folder, or the name of a built-in data set.
    One(String),
    /// Paths of files.
    Several(Vec<String>),
}

impl Files {
    /// Names some files, or one file.
    pub(super) fn new(paths: &[PathBuf]) -> Files {
        match paths {
            [path] => Files::One(path.display().to_string()),
            paths => Files::Several(paths.iter().map(|path| path.display().to_string()).collect()),
        }
    }

    fn paths(&mut self) -> &mut [String] {
        match self {
            Files::One(path) => std::slice::from_mut(path),
            Files::Several(paths) => paths,
        }
    }

    fn as_slice(&self) -> &[String] {
        match self {
            Files::One(path) => std::slice::from_ref(path),
            Files::Several(paths) => paths,
        }
    }
}

/// The test rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a share from 0 to 1, a file, or a list of files")]
pub enum TestData {
    /// A share of the data.
    Share(f64),
    /// Files of their own.
    Files(Files),
}

/// The data: the `[data]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSettings {
    /// A text table, IDX images, CIFAR batches, a folder of PNG files, or a built-in data set. A leading `$GATEWORK_DATA/`
    /// stands for the folder in that environment variable.
    pub train: Files,
    /// The test data: files, or a share of the data. Without it the data have test rows of their own, or a fifth is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestData>,
    /// Share of the training rows that is held back to select the best epoch; with 0, the training rows select it.
    #[serde(default = "default_validation")]
    pub validation: f64,
    /// The seed of the split, which is the same for all seeds of the training.
    #[serde(default = "one")]
    pub split_seed: u64,
    /// How a text table is read.
    #[serde(default)]
    pub table: TableOptions,
}

fn default_validation() -> f64 {
    0.1
}

/// Share of the data that is held back for testing if the experiment does not say.
pub(super) const DEFAULT_TEST: f64 = 0.2;

/// Training by gradient descent: the `[training]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Passes over the training rows.
    pub epochs: u64,
    /// Samples of an update.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// Learning rate schedule.
    pub schedule: Schedule,
    /// Updates of linear warm-up.
    pub warmup: u64,
    /// Optimiser.
    pub optimizer: Optimizer,
    /// Gradient clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// Scale of the Gumbel noise on the logits of gates.
    pub gumbel: f32,
    /// Fractions of the updates between which the noise is on.
    pub gumbel_range: [f32; 2],
    /// Fraction of the updates after which the forward pass uses the most likely function of each gate and candidate of each wire,
    /// with the gradients of the soft ones; never, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straight_through: Option<f32>,
    /// Early-stopping patience in epochs; none, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: f64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            epochs: 30,
            batch: 128,
            learning_rate: 0.02,
            schedule: Schedule::Constant,
            warmup: 0,
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: None,
            gumbel: 0.0,
            gumbel_range: [0.0, 1.0],
            straight_through: None,
            patience: None,
            checkpoint_seconds: 10.0,
        }
    }
}

/// Most epochs and samples of a batch.
const MAX_EPOCHS: u64 = 1 << 24;

/// Largest number of seeds.
const MAX_SEEDS: u64 = 100_000;

/// Largest shift of images, in pixels.
const MAX_SHIFT: usize = 1 << 12;
const MAX_BATCH: usize = 1 << 16;

impl Training {
    /// Checks the range of every number.
    pub fn check(&self) -> Result<(), Problem> {
        let fail = |key: &str, message: String| problem(&["training", key], message);
        if !(1..=MAX_EPOCHS).contains(&self.epochs) {
            return fail(
                "epochs",
                format!("training.epochs is {}, but must be from 1 to {MAX_EPOCHS}", self.epochs),
            );
        }
        if !(1..=MAX_BATCH).contains(&self.batch) {
            return fail(
                "batch",
                format!("training.batch is {}, but must be from 1 to {MAX_BATCH}", self.batch),
            );
        }
        if !(self.gumbel >= 0.0 && self.gumbel.is_finite()) {
            return fail("gumbel", format!("training.gumbel is {}, but must be at least 0", self.gumbel));
        }
        if let Some(from) = self.straight_through.filter(|from| !(0.0..=1.0).contains(from)) {
            let message = format!("training.straight_through is {from}, but must be from 0 to 1");
            return fail("straight_through", message);
        }
        if self.patience == Some(0) {
            return fail("patience", "training.patience is 0, but must be at least 1".into());
        }
        if !(self.checkpoint_seconds >= 0.0 && self.checkpoint_seconds < 1e9) {
            let message = format!(
                "training.checkpoint_seconds is {}, but must be from 0 to 1e9",
                self.checkpoint_seconds
            );
            return fail("checkpoint_seconds", message);
        }
        for (key, checked) in [
            ("learning_rate", self.rate().validate()),
            ("optimizer", self.optimizer.validate()),
            ("clip", self.clip.map_or(Ok(()), |clip| clip.validate())),
        ] {
            checked
                .map_err(|message| Problem::new(&["training", key], format!("training.{key}: {message}")))?;
        }
        Ok(())
    }

    /// Returns the learning rate.
    fn rate(&self) -> LearningRate {
        LearningRate { base: self.learning_rate, schedule: self.schedule.clone(), warmup: self.warmup }
    }

    /// Returns the settings of the trainer for a number of updates per epoch.
    pub fn trainer_settings(&self, updates_per_epoch: u64) -> trainer::Settings {
        trainer::Settings {
            updates: self.epochs.saturating_mul(updates_per_epoch),
            rate: self.rate(),
            optimizer: self.optimizer.clone(),
            clip: self.clip,
            // All epochs are trained, also if no validation row is wrong.
            stable: u64::MAX,
            patience: self.patience,
            scales_loss: false,
        }
    }
}

/// An experiment that was read and checked.
#[derive(Clone, Debug)]
pub struct ClassifierExperiment {
    /// The settings.
    pub experiment: Experiment,
}

impl ClassifierExperiment {
    /// Finds a built-in experiment, or reads a file if the name has a dot or a slash in it.
    pub fn find(name: &str) -> Result<ClassifierExperiment, ExperimentError> {
        ClassifierExperiment::from_source(&Source::find(name, &BUILT_IN)?)
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<ClassifierExperiment, ExperimentError> {
        ClassifierExperiment::from_source(&Source::read(path)?)
    }

    /// Reads an experiment and checks it. Paths of data become absolute, so that the copy in a run folder is valid too.
    pub fn from_source(source: &Source) -> Result<ClassifierExperiment, ExperimentError> {
        let mut experiment: Experiment = source.parse()?;
        if experiment.name.is_empty() {
            experiment.name = source.default_name().unwrap_or_default();
        }
        experiment.check().map_err(|problem| source.locate(problem, &[]))?;
        let of_folder = |path: &mut String| {
            let is_own = !path.starts_with(DATA_FOLDER) && !built_in::NAMES.contains(&path.as_str());
            if is_own && let Ok(absolute) = std::path::absolute(source.folder().join(&*path)) {
                *path = absolute.display().to_string();
            }
        };
        experiment.data.train.paths().iter_mut().for_each(of_folder);
        if let Some(TestData::Files(files)) = &mut experiment.data.test {
            files.paths().iter_mut().for_each(of_folder);
        }
        Ok(ClassifierExperiment { experiment })
    }
}

impl Experiment {
    /// Checks all settings that do not depend on the data.
    pub fn check(&self) -> Result<(), Problem> {
        check_name(&self.name)?;
        if let Some(seeds) = self.seeds.filter(|seeds| !(1..=MAX_SEEDS).contains(seeds)) {
            return problem(&["seeds"], format!("seeds is {seeds}, but must be from 1 to {MAX_SEEDS}"));
        }
        if self.augment.shift > MAX_SHIFT {
            let message =
                format!("augment.shift is {}, but must be at most {MAX_SHIFT} pixels", self.augment.shift);
            return problem(&["augment", "shift"], message);
        }
        let share = |key: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                return Ok(());
            }
            problem(&["data", key], format!("data.{key} is {value}, but must be at least 0 and below 1"))
        };
        share("validation", self.data.validation)?;
        if let Some(TestData::Share(value)) = self.data.test {
            share("test", value)?;
        }
        let of_encoder = |error| Problem::new(&["encoder"], format!("encoder: {error}"));
        self.encoder.check().map_err(of_encoder)?;
        let of_model = |error| Problem::new(&["model"], format!("model: {error}"));
        self.model.check().map_err(of_model)?;
        self.search.map_or(Ok(()), SearchSettings::check)?;
        self.training.check()
    }

    /// Returns the experiment as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment holds nothing that TOML lacks")
    }

    /// Returns the files that the data are read from, whether they exist or not. Built-in data have none.
    pub fn data_files(&self) -> Vec<PathBuf> {
        let test = if let Some(TestData::Files(files)) = &self.data.test { files.as_slice() } else { &[] };
        let given = self.data.train.as_slice().iter().chain(test);
        let own = given.filter(|path| !built_in::NAMES.contains(&path.as_str()));
        own.filter_map(|path| resolve(path).ok()).flat_map(|path| images::files_of(&path)).collect()
    }

    /// Loads the data, splits and encodes them.
    pub fn prepare(&self) -> Result<Prepared, ClassifierError> {
        let (data, test) = self.load()?;
        self.split(data, test)
    }

    /// Loads the data, and the test data if they have files of their own.
    pub(super) fn load(&self) -> Result<(Dataset, Option<Dataset>), ClassifierError> {
        let (data, given) = load(&self.data.train, &self.data.table, None, Labels::Needed)?;
        let Some(TestData::Files(files)) = &self.data.test else {
            return Ok((data, given.filter(|_| self.data.test.is_none())));
        };
        let schema = Schema { features: data.features().to_vec(), classes: data.classes().to_vec() };
        let test = load(files, &self.data.table, Some(&schema), Labels::Needed)?.0;
        Ok((data, Some(test)))
    }

    /// Splits and encodes data. Without test data of their own, the share of the settings is held back.
    pub(super) fn split(&self, data: Dataset, test: Option<Dataset>) -> Result<Prepared, ClassifierError> {
        let data = Arc::new(data);
        let all: Vec<u32> = (0..data.rows() as u32).collect();
        let seed = self.data.split_seed;
        let share = if let Some(TestData::Share(share)) = self.data.test { share } else { DEFAULT_TEST };
        let (rest, test) = match test {
            Some(test) => (all, Some(whole(test))),
            None if share == 0.0 => (all, None),
            None => {
                let (rest, test) = split::hold_back(&data, &all, share, seed, "testing")?;
                (rest, Some((Arc::clone(&data), test)))
            }
        };
        let (train, validation) = match self.data.validation {
            0.0 => (rest, Vec::new()),
            share => split::hold_back(&data, &rest, share, seed, "validation")?,
        };
        self.check_memory(&data)?;
        let test = test.as_ref().map(|(data, rows)| (data, rows.clone()));
        self.model.check_classes(data.classes().len())?;
        Prepared::new(&data, train, validation, test, &self.encoder)
    }

    /// Checks that the memory of a seed is available.
    fn check_memory(&self, data: &Dataset) -> Result<(), ClassifierError> {
        let bits: f64 = data.features().len() as f64 * self.encoder.bits as f64;
        let gates = self.model.gates() as f64;
        let wires =
            if self.model.wiring == Connections::Learned { 2.0 * self.model.candidates as f64 } else { 0.0 };
        // Of convolutions, only the planes are kept.
        let (circuit, rows_of_planes) = match (&self.model.convolutions[..], data.image()) {
            ([], _) => (0.0, 0.0),
            (_, None) => return Err(NetworkError::NoImage.into()),
            (_, Some(image)) => {
                let planes = [image.channels * self.encoder.bits, image.height, image.width];
                (self.model.applications(planes)? as f64, self.model.planes(planes)? as f64)
            }
        };
        // Parameters, gradients, two moments and the best; activations of a batch; bits of all rows; the hard circuit.
        let parameters = 20.0 * gates * (16.0 + wires) + 64.0 * circuit;
        let activations = 4.0 * self.training.batch as f64 * (3.0 * gates + bits + 2.0 * rows_of_planes);
        let rows = data.rows() as f64 * bits / 4.0;
        Ok(memory::check(parameters + activations + rows, || "this classifier".into())?)
    }
}

/// All rows of a data set.
fn whole(data: Dataset) -> (Arc<Dataset>, Vec<u32>) {
    let rows = (0..data.rows() as u32).collect();
    (Arc::new(data), rows)
}

/// Reads data from files, or finds a built-in data set, which may have test rows of its own.
pub fn load(
    files: &Files,
    options: &TableOptions,
    schema: Option<&Schema>,
    labels: Labels,
) -> Result<(Dataset, Option<Dataset>), DataError> {
    let mut joined: Option<Dataset> = None;
    for path in files.as_slice() {
        if let Some(found) = built_in::find(path) {
            if files.as_slice().len() > 1 {
                let message = format!("the built-in data set {path:?} cannot be joined with other files");
                return Err(DataError::Unusable(message));
            }
            let (data, test) = found?;
            let Some(schema) = schema else { return Ok((data, test)) };
            return data.with_schema(schema).map(|data| (data, None)).map_err(DataError::Unusable);
        }
        let known = joined
            .as_ref()
            .map(|data| Schema { features: data.features().to_vec(), classes: data.classes().to_vec() });
        let data = read(&resolve(path)?, options, schema.or(known.as_ref()), labels)?;
        joined = Some(match joined {
            Some(first) => first.join(data)?,
            None => data,
        });
    }
    let data = joined.ok_or_else(|| DataError::Unusable("data.train is an empty list of files".into()))?;
    Ok((data, None))
}

/// Reads a file or folder of any kind.
pub fn read(
    path: &Path,
    options: &TableOptions,
    schema: Option<&Schema>,
    labels: Labels,
) -> Result<Dataset, DataError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let data = if path.is_dir() {
        images::read_png_folder(path, schema.map(|schema| &schema.classes[..]))?
    } else if name.contains("images-idx3") || name.contains("images.idx3") {
        images::read_idx(path)?
    } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bin")) {
        images::read_cifar(path)?
    } else {
        return table::read(path, options, schema, labels);
    };
    match schema {
        Some(schema) => data.with_schema(schema).map_err(|message| DataError::content(path, message)),
        None => Ok(data),
    }
}

/// Replaces the prefix that stands for the folder of the data.
fn resolve(path: &str) -> Result<PathBuf, DataError> {
    let Some(rest) = path.strip_prefix(DATA_FOLDER) else { return Ok(path.into()) };
    let folder = std::env::var_os(&DATA_FOLDER[1..]).ok_or_else(|| {
        DataError::content(
            path,
            "the environment variable GATEWORK_DATA is not set; set it to the folder of the data",
        )
    })?;
    Ok(PathBuf::from(folder).join(rest.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_experiment_is_valid_and_complete_as_toml() {
        for (name, text) in BUILT_IN {
            let loaded = ClassifierExperiment::from_source(&Source::new(text, name, ".")).unwrap();
            assert_eq!(loaded.experiment.name, name);
            let again = Source::new(loaded.experiment.to_toml(), name, ".");
            assert_eq!(ClassifierExperiment::from_source(&again).unwrap().experiment, loaded.experiment);
        }
    }

    #[test]
    fn built_in_data_fit_their_experiments() {
        for name in built_in::NAMES {
            let prepared = ClassifierExperiment::find(name).unwrap().experiment.prepare().unwrap();
            assert!(prepared.encoder.bits() > 4 && prepared.test.is_some(), "{name}");
        }
    }

    fn error(changes: &[(&str, &str)]) -> String {
        let mut text = BUILT_IN[0].1.to_string();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        let loaded = ClassifierExperiment::from_source(&Source::new(text, "x.toml", "."));
        loaded.map_err(|error| error.to_string()).map(|_| ()).unwrap_err()
    }

    #[test]
    fn settings_out_of_range_are_named_with_their_line() {
        for (changes, right) in [
            ([("test = 0.2", "test = 1.5")], "data.test is 1.5, but must be"),
            ([("epochs = 60", "epochs = 0")], "training.epochs is 0"),
            ([("batch = 128", "batch = 0")], "training.batch is 0"),
            ([("layers = [1000, 1000]", "layers = []")], "model: layers is empty"),
            ([("layers = [1000, 1000]", "layers = [5, 0]")], "model: layers[1] is 0"),
            ([("bits = 3", "bits = 0")], "encoder: bits is 0"),
            (
                [("epochs = 60", "epochs = 60\nstraight_through = 1.5")],
                "training.straight_through is 1.5, but must be from 0 to 1",
            ),
            ([("candidates = 16", "candidates = 5")], "model: candidates is 5"),
            ([("learning_rate = 0.05", "learning_rate = -1.0")], "training.learning_rate:"),
            (
                [("learning_rate = 0.05", "learning_rate = 0.05\n[search]\nsweeps = 0")],
                "search.sweeps is 0, but must be from 1 to 1000",
            ),
            ([("epochs = 60", "epocs = 60")], "unknown field `epocs`"),
        ] {
            let message = error(&changes);
            let is_located = message.split(':').nth(1).is_some_and(|line| line.parse::<u32>().is_ok());
            assert!(is_located && message.contains(right), "{message}");
        }
    }

    #[test]
    fn a_number_of_gates_that_does_not_suit_the_classes_is_an_error() {
        let mut experiment = ClassifierExperiment::find("iris").unwrap().experiment;
        experiment.model.layers = vec![100];
        let message = experiment.prepare().unwrap_err().to_string();
        assert!(message.ends_with("make it a multiple of 3, such as 102"), "{message}");
    }

    #[test]
    fn paths_are_absolute_and_stay_so_in_a_copy() {
        let text = "task = 'classifier'\n[data]\ntrain = ['a.csv', '$GATEWORK_DATA/b.csv']\ntest = 'c.csv'\n[model]\n";
        let read = |text: &str, folder: &str| {
            ClassifierExperiment::from_source(&Source::new(text, "x.toml", folder)).unwrap().experiment
        };
        let first = read(text, "some/folder");
        let train: Vec<&String> = first.data.train.as_slice().iter().collect();
        assert!(Path::new(train[0]).is_absolute() && train[0].ends_with("a.csv"), "{train:?}");
        assert_eq!(train[1], "$GATEWORK_DATA/b.csv");
        assert_eq!(read(&first.to_toml(), "runs/other").data, first.data);
    }
}
