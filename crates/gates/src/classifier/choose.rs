//! Experiments that are chosen for data: a table, a folder of images or an IDX file, and nothing else is known.
//!
//! Thresholds, gates, epochs and batch follow from the numbers of rows, features and classes ([`settings`]). The experiment is an
//! ordinary one: its TOML names everything that was chosen.
//!
//! ```no_run
//! use gatework_gates::classifier::choose;
//!
//! let chosen = choose::data("flowers.csv".as_ref(), &choose::Request::default())?;
//! println!("{}", chosen.experiment.to_toml());
//! # Ok::<(), gatework_gates::classifier::ClassifierError>(())
//! ```

use std::path::{Path, PathBuf};

use gatework_train::files::{self, FileError};
use gatework_train::schedule::Schedule;

use super::ClassifierError;
use super::data::augment::Augment;
use super::data::dialect::{self, Dialect};
use super::data::table::{Labels, MAX_TEXT, TableOptions, decompress};
use super::data::{DataError, Dataset, ImageShape};
use super::encoder::{DefaultDirection, EncoderSettings, Thresholds};
use super::experiment::{self, DEFAULT_TEST, DataSettings, Experiment, Files, TaskKind, TestData, Training};
use super::network::NetworkSettings;
use super::search::SearchSettings;

/// What is known about the data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The column with the classes of a table.
    pub label: Option<String>,
    /// Test data, or the share that is held back for testing.
    pub test: Option<TestData>,
}

/// An experiment that was chosen for data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen {
    /// The experiment.
    pub experiment: Experiment,
    /// Sentences about what was found in the data, for people.
    pub found: Vec<String>,
    /// The column with the classes of a table.
    pub label: Option<String>,
    /// The classes.
    pub classes: Vec<String>,
}

/// Returns whether a path is that of data, by its name: a table, IDX images, a CIFAR batch, or a folder.
pub fn is_data(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let is_table = [".csv", ".tsv", ".data"].iter().any(|ending| name.ends_with(ending));
    is_table || is_idx(name) || is_cifar(name) || path.is_dir()
}

fn is_idx(name: &str) -> bool {
    name.contains("images-idx3") || name.contains("images.idx3")
}

/// Whether a name in lower case is that of a CIFAR batch.
fn is_cifar(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "bin")
}

/// Chooses an experiment for a table, IDX images, CIFAR batches, or a folder of one of them or of images.
pub fn data(path: &Path, request: &Request) -> Result<Chosen, ClassifierError> {
    let Found { train, test } = find(path)?;
    let mut found = Vec::new();
    let is_table = train.iter().all(|path| !is_image(path));
    if !is_table && request.label.is_some() {
        let message = "a label column is for tables; the classes of images are their folders or files";
        return Err(ClassifierError::Setting(message.into()));
    }
    let table = if is_table {
        let [path] = &train[..] else { unreachable!("only images have several files") };
        let content = decompress(&files::read(path).map_err(DataError::from)?, path, MAX_TEXT)?;
        let dialect = dialect::detect(&content, path, request.label.as_deref())?;
        describe(&dialect, request.label.is_some(), &mut found);
        dialect.options
    } else {
        TableOptions::default()
    };
    let files = Files::new(&train);
    let (data, _) = experiment::load(&files, &table, None, Labels::Needed)?;
    check_classes(&data, request.label.is_some(), &train[0])?;
    if let Some(test) = &test {
        found.push(format!("test data: {}", test.display()));
    }
    let given = test.map(|test| TestData::Files(Files::new(&[test])));
    let test = request.test.clone().or(given);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').find(|part| !part.is_empty()).unwrap_or("data").trim().to_string();
    let experiment = Experiment {
        name: stem,
        about: format!("Chosen for {name}."),
        ..for_data(&data, files, table, test)
    };
    experiment.check().map_err(|problem| ClassifierError::Setting(problem.message))?;
    let label = is_table.then(|| experiment.data.table.label.clone()).flatten();
    Ok(Chosen { experiment, found, label, classes: data.classes().to_vec() })
}

/// Chooses an experiment for data in memory.
pub(super) fn in_memory(data: &Dataset, test: TestData) -> Experiment {
    for_data(data, Files::new(&[]), TableOptions::default(), Some(test))
}

/// Chooses an experiment for data of which `files` and `table` say where they come from.
fn for_data(data: &Dataset, files: Files, table: TableOptions, test: Option<TestData>) -> Experiment {
    let share = share_of(test.as_ref());
    let shape = Shape::of(data, share);
    let (encoder, model, augment, training) = settings(&shape);
    let search = search_of(&shape, &model);
    Experiment {
        name: "data".into(),
        task: TaskKind::Classifier,
        about: String::new(),
        expected: String::new(),
        seed: 1,
        seeds: None,
        data: DataSettings {
            train: files,
            test,
            validation: validation_of(data, share),
            split_seed: 1,
            table,
        },
        encoder,
        model,
        augment,
        training,
        search,
    }
}

/// The share of the rows that is held back for testing.
fn share_of(test: Option<&TestData>) -> f64 {
    match test {
        None => DEFAULT_TEST,
        Some(TestData::Share(share)) => *share,
        Some(TestData::Files(_)) => 0.0,
    }
}

/// Chooses the search of an experiment with settings that were given.
pub(super) fn search(data: &Dataset, experiment: &Experiment) -> Option<SearchSettings> {
    let shape = Shape::of(data, share_of(experiment.data.test.as_ref()));
    search_of(&shape, &experiment.model)
}

/// Share of the training rows that selects the best epoch.
const VALIDATION: f64 = 0.1;

/// Returns the share of the training rows that selects the best epoch: none if that is less than a row of every class.
fn validation_of(data: &Dataset, test: f64) -> f64 {
    let mut rows = vec![0.0; data.classes().len()];
    for &label in data.labels() {
        rows[label as usize] += 1.0;
    }
    let held = |rows: f64, share: f64| (rows * share).round();
    let is_held = |&rows: &f64| held(rows - held(rows, test), VALIDATION) >= 1.0;
    if rows.iter().any(is_held) { VALIDATION } else { 0.0 }
}

/// The sizes that settings are chosen from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shape {
    /// Rows that are trained on.
    pub rows: usize,
    /// Numeric features.
    pub numbers: usize,
    /// Categories of all other features.
    pub categories: usize,
    /// Classes.
    pub classes: usize,
    /// The size of images.
    pub image: Option<ImageShape>,
}

impl Shape {
    /// Returns the sizes of a data set of which a share is held back for testing.
    fn of(data: &Dataset, test: f64) -> Shape {
        use super::data::Kind;
        let categories = |kind: &Kind| if let Kind::Categorical(names) = kind { names.len() } else { 0 };
        Shape {
            rows: (data.rows() as f64 * (1.0 - test) * (1.0 - VALIDATION)) as usize,
            numbers: data.features().iter().filter(|feature| feature.kind == Kind::Numeric).count(),
            categories: data.features().iter().map(|feature| categories(&feature.kind)).sum(),
            classes: data.classes().len(),
            image: data.image(),
        }
    }
}

/// Files of training data, and test data that lie beside them.
struct Found {
    train: Vec<PathBuf>,
    test: Option<PathBuf>,
}

/// Finds the files of a path.
fn find(path: &Path) -> Result<Found, ClassifierError> {
    let alone = |path: &Path| Found { train: vec![path.to_path_buf()], test: None };
    if !path.is_dir() {
        return Ok(Found { test: test_of(path), ..alone(path) });
    }
    let failed = |error| DataError::File(FileError { action: "read", path: path.to_path_buf(), error });
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut entries: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    entries.sort();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    // The folders of images with their split: train/CLASS/*.png and test/CLASS/*.png.
    if let Some(train) = entries.iter().find(|entry| entry.is_dir() && name(entry) == "train") {
        let test = entries.iter().find(|entry| entry.is_dir() && name(entry) == "test");
        return Ok(Found { test: test.cloned(), ..alone(train) });
    }
    if let Some(images) = entries.iter().find(|entry| is_idx(&name(entry)) && name(entry).contains("train")) {
        return Ok(Found { test: test_of(images), ..alone(images) });
    }
    let is_batch = |entry: &&PathBuf| is_cifar(&name(entry));
    let (test, train): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.iter().filter(is_batch).cloned().partition(|entry| name(entry).contains("test"));
    if !train.is_empty() {
        return Ok(Found { train, test: test.into_iter().next() });
    }
    Ok(alone(path))
}

/// Returns the test images that belong to training images of the MNIST family, if they are in the same folder.
fn test_of(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    if !is_idx(&name.to_lowercase()) {
        return None;
    }
    let candidates = ["t10k", "test"].map(|test| images.with_file_name(name.replacen("train", test, 1)));
    candidates.into_iter().find(|candidate| candidate != images && candidate.is_file())
}

/// Returns whether a path is that of images: a folder, IDX images or a CIFAR batch.
pub fn is_image(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    path.is_dir() || is_idx(&name) || is_cifar(&name)
}

/// Most classes of a column of fractions that was not named by the user.
const MAX_FRACTIONS: usize = 20;

/// Refuses a column that is no class: one value only, or a quantity.
fn check_classes(data: &Dataset, is_given: bool, path: &Path) -> Result<(), ClassifierError> {
    let (classes, rows) = (data.classes().len(), data.rows());
    let fail = |message: String| Err(DataError::content(path, message).into());
    if classes < 2 {
        let class = data.classes().first().map_or("", String::as_str);
        return fail(format!("all rows have the class {class:?}; a classifier needs at least two classes"));
    }
    let are_fractions = || {
        let numbers: Vec<Option<f64>> = data.classes().iter().map(|class| class.parse().ok()).collect();
        classes > MAX_FRACTIONS
            && numbers.iter().all(Option::is_some)
            && numbers.iter().flatten().any(|number| number.fract() != 0.0)
    };
    let is_quantity = classes > 2 && classes > rows / 2 || !is_given && are_fractions();
    if data.image().is_none() && is_quantity {
        return fail(format!(
            "the column of the classes has {classes} different values in {rows} rows, as a quantity or a name has; \
             name another one with --label"
        ));
    }
    Ok(())
}

/// Adds what was found in a table.
fn describe(dialect: &Dialect, is_given: bool, found: &mut Vec<String>) {
    let Dialect { options, label, ignored, .. } = dialect;
    let header = if options.header { "with a header" } else { "without a header" };
    found.push(format!("a table {header}, separated by {:?}", options.separator));
    let how = if is_given { "" } else { "; --label names another" };
    found.push(format!("classes: column {label:?}{how}"));
    if !options.missing.is_empty() {
        found.push(format!("missing values: {}", options.missing.join(", ")));
    }
    if options.decimal != '.' {
        found.push("numbers have a decimal comma".to_string());
    }
    if options.grouped {
        found.push("numbers have groups of thousands".to_string());
    }
    for name in &options.dates {
        found.push(format!("dates: column {name:?}, as days"));
    }
    for (name, unit) in &options.units {
        found.push(format!("numbers with the unit {unit:?}: column {name:?}"));
    }
    for (name, reason) in ignored {
        found.push(format!("ignored: column {name:?}, because {reason}"));
    }
}

/// Gates times rows of a search: less than two minutes of a core.
const SEARCH_WORK: usize = 5_000_000_000;

/// Chooses the search on the hard circuit. Images have none: they are trained on random changes that a search does not see.
/// A network with several members has none: a search of all their gates takes long and gains little more.
fn search_of(shape: &Shape, model: &NetworkSettings) -> Option<SearchSettings> {
    let settings = SearchSettings::default();
    let gates = if model.members > 1 { usize::MAX } else { model.gates() };
    let affordable = SEARCH_WORK / shape.rows.saturating_mul(gates).max(1);
    let sweeps = settings.sweeps.min(affordable);
    (shape.image.is_none() && sweeps > 0).then_some(SearchSettings { sweeps, ..settings })
}

/// Samples that training sees, if the bounds of the epochs allow.
const SAMPLES: usize = 1_000_000;

/// Most input bits; features have fewer bits each if there are more of them.
const MAX_INPUTS: usize = 1 << 14;

/// Gates of a layer for each category, which is a bit that few rows have: with fewer gates, most of them are read by none.
const GATES_OF_A_CATEGORY: usize = 8;

/// Most members of the network of a table, and gates times samples of their training: about half a minute of a core.
const MEMBERS: usize = 8;
const MEMBERS_WORK: usize = 10_000_000_000;

/// Number of wires of which each bit should be a candidate. With fewer, the candidates are drawn by mutual information.
const READERS: usize = 4;

/// Gates of a layer for each class if a table has one network, as far as there are as many rows: the outputs of a class count finely.
const GATES_OF_A_CLASS: usize = 300;

/// Chooses settings for data of some size.
///
/// Two layers with learned wires: each has as many gates as half the rows, or eight for each category if these are more, within
/// bounds that follow from the classes. The temperature is half the root of the outputs of a class, which suits a rate that is
/// higher than the default. Tables have several such networks, as members whose sums are added; if training would take too long, they
/// have one, with more gates for many classes.
#[must_use]
pub fn settings(shape: &Shape) -> (EncoderSettings, NetworkSettings, Augment, Training) {
    let Shape { rows, numbers, categories, classes, image } = *shape;
    let pixels = image.map_or(0, |image| image.height * image.width);
    let is_large_image = pixels >= 256;
    let (bits, thresholds, min_share) = match image {
        // The strokes of grey images are black or white; small ones are made of shades.
        Some(image) if image.channels == 1 && is_large_image => (1, Thresholds::Uniform, 0.001),
        Some(_) => (3, Thresholds::Uniform, 0.001),
        None => (32, Thresholds::Supervised, 0.0),
    };
    let room = MAX_INPUTS.saturating_sub(categories) / numbers.max(1);
    // Images have no missing values.
    let default_direction = if image.is_none() { DefaultDirection::Learned } else { DefaultDirection::Below };
    let encoder = EncoderSettings { bits: bits.min(room.max(1)), thresholds, min_share, default_direction };
    let classes = classes.max(1);
    let gates = (rows / 2).max(GATES_OF_A_CATEGORY.saturating_mul(categories));
    let gates = gates.clamp(300.max(20 * classes), 4000.max(200 * classes)).next_multiple_of(classes);
    let augment = Augment { shift: usize::from(is_large_image), ..Augment::default() };
    let training = Training {
        epochs: (SAMPLES / rows.max(1)).clamp(20, 100) as u64,
        batch: if rows < 1000 { 32 } else { 128 },
        learning_rate: 0.1,
        schedule: Schedule::Cosine { minimum: 0.0 },
        ..Training::default()
    };
    let members = match image {
        None => {
            let samples = rows.saturating_mul(training.epochs as usize);
            (MEMBERS_WORK / samples.saturating_mul(2 * gates).max(1)).clamp(1, MEMBERS)
        }
        Some(_) => 1,
    };
    // One network of a large table is wide instead.
    let of_classes = if image.is_none() && members == 1 { rows.min(GATES_OF_A_CLASS * classes) } else { 0 };
    let gates = gates.max(of_classes).next_multiple_of(classes);
    let temperature = Some(((gates / classes) as f32).sqrt() / 2.0);
    let model =
        NetworkSettings { layers: vec![gates; 2], members, temperature, ..NetworkSettings::default() };
    let all_bits = numbers.saturating_mul(encoder.bits).saturating_add(categories);
    let informed = image.is_none() && 2 * gates * model.candidates < READERS.saturating_mul(all_bits);
    (encoder, NetworkSettings { informed, ..model }, augment, training)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::data::{Dataset, images};

    #[test]
    fn every_category_has_gates_of_its_own() {
        let shape = Shape { rows: 500, numbers: 1, categories: 300, classes: 2, image: None };
        assert_eq!(settings(&shape).1.layers, [2400; 2]);
        assert_eq!(settings(&Shape { categories: 10, ..shape }).1.layers, [300; 2]);
    }

    #[test]
    fn small_tables_have_several_networks_and_wide_ones_informed_candidates() {
        let shape = Shape { rows: 500, numbers: 10, categories: 0, classes: 2, image: None };
        let model = settings(&shape).1;
        assert_eq!((model.members, model.informed, search_of(&shape, &model)), (MEMBERS, false, None));
        assert!(settings(&Shape { numbers: 500, ..shape }).1.informed);
        assert_eq!(settings(&shape).0.default_direction, DefaultDirection::Learned);
        let large = Shape { rows: 1_000_000, ..shape };
        let model = settings(&large).1;
        assert_eq!(model.members, 1);
        let image = Some(ImageShape { channels: 1, height: 8, width: 8 });
        assert_eq!(settings(&Shape { numbers: 64, image, ..shape }).1.members, 1);
    }

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn chosen(path: &Path) -> Result<Chosen, String> {
        data(path, &Request::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_every_size_are_valid() {
        let grey = ImageShape { channels: 1, height: 28, width: 28 };
        let colour = ImageShape { channels: 3, height: 96, width: 96 };
        for rows in [2, 50, 10_000, 10_000_000] {
            for classes in [2, 3, 26, 4096] {
                for (numbers, categories, image) in [
                    (1, 0, None),
                    (0, 4, None),
                    (30_000, 50_000, None),
                    (784, 0, Some(grey)),
                    (27_648, 0, Some(colour)),
                ] {
                    let shape = Shape { rows, numbers, categories, classes, image };
                    let (encoder, model, _, training) = settings(&shape);
                    encoder.check().unwrap();
                    model.check().unwrap();
                    model.check_classes(classes).unwrap();
                    training.check().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_table_is_prepared_without_any_setting() {
        let folder = tempfile::tempdir().unwrap();
        let rows =
            (0..60).map(|i| format!("{i};{};{};{}\n", i * 7 % 13, ["a", "b", "?"][i % 3], i * 7 % 13 / 7));
        let path = write(
            folder.path(),
            "some table.csv",
            &format!("id;size;kind;big\n{}", rows.collect::<String>()),
        );
        let chosen = chosen(&path).unwrap();
        let experiment = &chosen.experiment;
        assert_eq!(
            (&*experiment.name, &experiment.data.table.ignore[..]),
            ("some table", &["id".to_string()][..])
        );
        assert!(
            chosen.found.iter().any(|text| text == "classes: column \"big\"; --label names another"),
            "{:?}",
            chosen.found
        );
        let prepared = experiment.prepare().unwrap();
        assert_eq!((prepared.classes().len(), prepared.encoder.features().len()), (2, 2));
    }

    #[test]
    fn a_column_that_is_no_class_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let prices: Vec<String> = (0..50).map(|i| format!("{},{}\n", i % 5, f64::from(i) * 1.37)).collect();
        let message = chosen(&write(folder.path(), "p.csv", &prices.concat())).unwrap_err();
        assert!(message.contains("has 50 different values in 50 rows"), "{message}");
        let message = chosen(&write(folder.path(), "q.csv", "1,a\n2,a\n")).unwrap_err();
        assert!(
            message.ends_with("all rows have the class \"a\"; a classifier needs at least two classes"),
            "{message}"
        );
    }

    fn png(shade: u8) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 4, 4);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&[shade; 16]).unwrap();
        file
    }

    #[test]
    fn folders_of_images_may_have_a_split() {
        let folder = tempfile::tempdir().unwrap();
        for (part, shade) in [("train", 0), ("test", 9)] {
            for class in ["cat", "dog"] {
                let path = folder.path().join(part).join(class);
                std::fs::create_dir_all(&path).unwrap();
                for i in 0..3 {
                    std::fs::write(path.join(format!("{i}.png")), png(shade + i)).unwrap();
                }
            }
        }
        let whole = chosen(folder.path()).unwrap().experiment;
        assert!(matches!(whole.data.test, Some(TestData::Files(Files::One(path))) if path.ends_with("test")));
        let part = chosen(&folder.path().join("train")).unwrap().experiment;
        assert_eq!(part.data.test, None);
        let request = Request { label: Some("x".into()), test: None };
        assert!(data(folder.path(), &request).unwrap_err().to_string().contains("is for tables"));
    }

    #[test]
    fn test_images_of_the_mnist_family_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let idx = |count: u8| {
            [&[0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 1], &vec![7; count.into()][..]].concat()
        };
        let labels = |count: u8| {
            [&[0, 0, 8, 1, 0, 0, 0, count], &(0..count).map(|i| i % 2).collect::<Vec<u8>>()[..]].concat()
        };
        for (name, count) in [("train", 4), ("t10k", 2)] {
            std::fs::write(folder.path().join(format!("{name}-images-idx3-ubyte")), idx(count)).unwrap();
            std::fs::write(folder.path().join(format!("{name}-labels-idx1-ubyte")), labels(count)).unwrap();
        }
        let train = folder.path().join("train-images-idx3-ubyte");
        assert!(is_data(&train) && images::read_idx(&train).is_ok_and(|data: Dataset| data.rows() == 4));
        for path in [folder.path(), &train] {
            let experiment = chosen(path).unwrap().experiment;
            assert!(
                matches!(experiment.data.test, Some(TestData::Files(Files::One(path))) if path.contains("t10k"))
            );
        }
        assert!(!is_data(Path::new("digits")) && !is_data(Path::new("heart.png")));
    }
}
