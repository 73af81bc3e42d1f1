//! Data sets of classifiers: features, labels, files and splits.
//!
//! A [`Dataset`] has rows of numeric or categorical features and a class for each. It comes from memory ([`Dataset::new`]), from a
//! text table ([`table`]), from IDX files, CIFAR batches or folders of PNG images ([`images`]), or is built in ([`built_in`]).
//! [`split`] divides it into subsets that have the classes in equal shares.

pub mod augment;
pub mod built_in;
pub mod dialect;
pub mod images;
mod reading;
pub mod split;
pub mod table;

use std::path::PathBuf;

use gatework_logic::classifier::Rows;
use gatework_train::files::FileError;

/// Most classes of a data set.
pub const MAX_CLASSES: usize = 4096;

/// Most categories of a feature.
pub const MAX_CATEGORIES: usize = 4096;

/// Most values (rows x features) of a data set.
pub const MAX_VALUES: usize = 1 << 32;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of a file is not valid.
    #[error("{}{}: {message}", path.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, of a text file.
        line: Option<u64>,
        /// What is wrong, and what to do.
        message: String,
    },
    /// A row in memory is not valid.
    #[error("row {row}: {message}")]
    Row {
        /// The row, counted from 0.
        row: usize,
        /// What is wrong.
        message: String,
    },
    /// The data as a whole cannot be used.
    #[error("{0}")]
    Unusable(String),
}

impl DataError {
    /// An error of a file as a whole.
    pub(crate) fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> DataError {
        DataError::Content { path: path.into(), line: None, message: message.into() }
    }
}

/// Whether a feature is a number or one of some categories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A finite number.
    Numeric,
    /// One of these texts; the value is its index.
    Categorical(Vec<String>),
}

/// A column of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name, unique among the features.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

impl Feature {
    /// A numeric feature.
    pub fn numeric(name: impl Into<String>) -> Feature {
        Feature { name: name.into(), kind: Kind::Numeric }
    }
}

/// The size of the images whose pixels are the features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImageShape {
    /// Number of colour channels; the pixels of one channel follow each other, row by row.
    pub channels: usize,
    /// Number of rows of pixels.
    pub height: usize,
    /// Number of pixels in a row.
    pub width: usize,
}

impl ImageShape {
    /// Number of values of an image; it saturates.
    pub fn values(self) -> usize {
        self.channels.saturating_mul(self.height).saturating_mul(self.width)
    }
}

/// The values of all rows, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers, indices of categories, and NaN for missing values.
    Numbers(Vec<f32>),
    /// Pixels.
    Bytes(Vec<u8>),
}

impl Values {
    /// Returns the values as a classifier reads them.
    pub fn as_rows(&self) -> Rows<'_> {
        match self {
            Values::Numbers(numbers) => Rows::Floats(numbers),
            Values::Bytes(bytes) => Rows::Bytes(bytes),
        }
    }
}

/// Features with the class of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    features: Vec<Feature>,
    values: Values,
    labels: Vec<u32>,
    classes: Vec<String>,
    image: Option<ImageShape>,
}

impl Dataset {
    /// Creates a data set from rows of numbers, one after another, and the class of each row. NaN is a missing value.
    ///
    /// ```
    /// use gatework_gates::classifier::data::Dataset;
    ///
    /// let data = Dataset::new(2, vec![0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], vec![0, 1, 1, 0])?;
    /// assert_eq!((data.rows(), data.classes().len()), (4, 2));
    /// # Ok::<(), gatework_gates::classifier::data::DataError>(())
    /// ```
    pub fn new(columns: usize, values: Vec<f32>, labels: Vec<u32>) -> Result<Dataset, DataError> {
        let most = labels.iter().max().map_or(0, |&most| most as usize + 1);
        if most > MAX_CLASSES {
            let message =
                format!("the largest label is {}, but there are at most {MAX_CLASSES} classes", most - 1);
            return Err(DataError::Unusable(message));
        }
        let features = (0..columns).map(|column| Feature::numeric(format!("x{column}"))).collect();
        let classes = (0..most).map(|class| class.to_string()).collect();
        if let Some(at) = values.iter().position(|value| value.is_infinite()) {
            let message = format!("feature {} is infinite", at % columns.max(1));
            return Err(DataError::Row { row: at / columns.max(1), message });
        }
        Dataset::from_parts(features, Values::Numbers(values), labels, classes, None)
    }

    /// Creates a data set from its parts.
    pub fn from_parts(
        features: Vec<Feature>,
        values: Values,
        labels: Vec<u32>,
        classes: Vec<String>,
        image: Option<ImageShape>,
    ) -> Result<Dataset, DataError> {
        let count = match &values {
            Values::Numbers(numbers) => numbers.len(),
            Values::Bytes(bytes) => bytes.len(),
        };
        let unusable = |message: String| Err(DataError::Unusable(message));
        if features.is_empty() {
            return unusable("there are no features".into());
        }
        if labels.is_empty() {
            return unusable("there are no rows".into());
        }
        if labels.len().checked_mul(features.len()) != Some(count) {
            let (rows, columns) = (labels.len(), features.len());
            return unusable(format!("{rows} labels of {columns} features, but {count} values"));
        }
        if classes.len() > MAX_CLASSES {
            return unusable(format!("there are {} classes; the limit is {MAX_CLASSES}", classes.len()));
        }
        if let Some(row) = labels.iter().position(|&label| label as usize >= classes.len()) {
            let message = format!("label {} of {} classes", labels[row], classes.len());
            return Err(DataError::Row { row, message });
        }
        if image.is_some_and(|image| image.values() != features.len()) {
            return unusable("the size of the images is not the number of features".into());
        }
        Ok(Dataset { features, values, labels, classes, image })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// The columns.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The class of each row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The size of the images, if the features are pixels.
    pub fn image(&self) -> Option<ImageShape> {
        self.image
    }

    /// The pixels of all rows, if the values are bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.values {
            Values::Bytes(bytes) => Some(bytes),
            Values::Numbers(_) => None,
        }
    }

    /// Returns one value.
    pub fn value(&self, row: usize, column: usize) -> f32 {
        let at = row * self.features.len() + column;
        match &self.values {
            Values::Numbers(numbers) => numbers[at],
            Values::Bytes(bytes) => f32::from(bytes[at]),
        }
    }

    /// Copies the values of a row.
    pub fn copy_row(&self, row: usize, to: &mut [f32]) {
        let range = row * self.features.len()..(row + 1) * self.features.len();
        match &self.values {
            Values::Numbers(numbers) => to.copy_from_slice(&numbers[range]),
            Values::Bytes(bytes) => {
                to.iter_mut().zip(&bytes[range]).for_each(|(to, &byte)| *to = f32::from(byte));
            }
        }
    }

    /// Returns the values of some rows, one row after another, in their own type.
    pub fn select(&self, rows: &[u32]) -> Values {
        fn copy<T: Copy>(from: &[T], columns: usize, rows: &[u32]) -> Vec<T> {
            rows.iter().flat_map(|&row| &from[row as usize * columns..][..columns]).copied().collect()
        }
        match &self.values {
            Values::Numbers(numbers) => Values::Numbers(copy(numbers, self.features.len(), rows)),
            Values::Bytes(bytes) => Values::Bytes(copy(bytes, self.features.len(), rows)),
        }
    }

    /// Returns the values of some rows as numbers, one row after another.
    pub fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let columns = self.features.len();
        let mut values = vec![0.0; rows.len() * columns];
        for (&row, to) in rows.iter().zip(values.chunks_exact_mut(columns)) {
            self.copy_row(row as usize, to);
        }
        values
    }

    /// Number of rows of each class.
    pub fn class_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.classes.len()];
        self.labels.iter().for_each(|&label| counts[label as usize] += 1);
        counts
    }

    /// Gives images the classes of the training data. The error says what does not fit.
    pub(crate) fn with_schema(mut self, schema: &table::Schema) -> Result<Dataset, String> {
        if self.features != schema.features {
            let (found, expected) = (self.features.len(), schema.features.len());
            return Err(format!("the images have {found} values, but those of the training {expected}"));
        }
        if let Some(class) = self.classes.iter().find(|class| !schema.classes.contains(class)) {
            return Err(format!("the class {class:?} is not in the training data"));
        }
        let index =
            |class: &String| schema.classes.iter().position(|known| known == class).unwrap_or(0) as u32;
        let indices: Vec<u32> = self.classes.iter().map(index).collect();
        self.labels.iter_mut().for_each(|label| *label = indices[*label as usize]);
        self.classes.clone_from(&schema.classes);
        Ok(self)
    }

    /// Returns the rows of this data set followed by those of another with the same features and classes.
    pub fn join(mut self, other: Dataset) -> Result<Dataset, DataError> {
        if self.features != other.features || self.classes != other.classes || self.image != other.image {
            let message = "the files differ in their features, their classes or the size of their images";
            return Err(DataError::Unusable(message.into()));
        }
        match (&mut self.values, other.values) {
            (Values::Numbers(numbers), Values::Numbers(others)) => numbers.extend(others),
            (Values::Bytes(bytes), Values::Bytes(others)) => bytes.extend(others),
            _ => return Err(DataError::Unusable("one file has images and the other a table".into())),
        }
        self.labels.extend(other.labels);
        Ok(self)
    }
}
