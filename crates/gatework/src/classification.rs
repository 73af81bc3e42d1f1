//! Trained classifiers: opened from a run folder or a `circuit.json`, evaluated, and applied to files.
//!
//! ```no_run
//! use gatework::classification::TrainedClassifier;
//!
//! let trained = TrainedClassifier::open("runs/digits".as_ref())?.ok_or("not a classifier")?;
//! std::fs::write("classes.csv", trained.predict_file("new.csv".as_ref())?.csv)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gatework_gates::classifier::choose;
use gatework_gates::classifier::data::dialect;
use gatework_gates::classifier::data::table::{Labels, Schema, TableOptions};
use gatework_gates::classifier::data::{DataError, Dataset};
use gatework_gates::classifier::evaluate::{self, Evaluation, Mistake};
use gatework_gates::classifier::experiment::{self, ClassifierExperiment, Files};
use gatework_gates::classifier::reduce::ReductionError;
use gatework_gates::classifier::run::{self, RunError};
use gatework_gates::classifier::task::Prepared;
use gatework_logic::classifier::{Classifier, ClassifierError, arg_max};
use gatework_logic::simulate::Predictor;
use gatework_train::run_folder::{RunFolder, RunFolderError};

use crate::experiment::{ExperimentError, Loaded};
use crate::forecast_csv::field;
use crate::report::{self, MistakeTile, ReportError};

/// A classifier that cannot be opened or applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassificationError {
    /// The run cannot be opened, or its data cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The experiment is not valid.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The file to classify cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The rows do not fit the classifier.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// The data of the experiment are not those of the training.
    #[error(
        "the data have changed since training: their columns, categories or classes are not those of the classifier"
    )]
    DataChanged,
    /// A file has other columns, or images of another size.
    #[error("{}: the features are not those of the classifier", path.display())]
    OtherFeatures {
        /// The file.
        path: PathBuf,
    },
    /// A reduction on data was stopped, or its rows do not fit.
    #[error(transparent)]
    Reduction(#[from] ReductionError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The rows of a table have no pictures.
    #[error("mistakes are drawn as images, but the data are a table")]
    NoImages,
    /// A circuit file has no training rows.
    #[error("{} has no data of its own; name a file with labelled rows", path.display())]
    NoTrainingRows {
        /// The circuit file.
        path: PathBuf,
    },
    /// A circuit file has no test rows.
    #[error("{} has no test rows of its own; name the data to evaluate", path.display())]
    NoTestRows {
        /// The circuit file.
        path: PathBuf,
    },
}

impl ClassificationError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Run(error) => error.is_usage(),
            Self::Experiment(_) | Self::NoImages | Self::NoTestRows { .. } | Self::NoTrainingRows { .. } => {
                true
            }
            _ => false,
        }
    }

    /// The run folder that cannot be used, if that is the error.
    pub fn run_folder(&self) -> Option<&RunFolderError> {
        match self {
            Self::Run(RunError::Folder(error)) => Some(error),
            _ => None,
        }
    }
}

/// A classifier with what is known about its training.
#[derive(Debug)]
#[non_exhaustive]
pub struct TrainedClassifier {
    /// The run folder or the circuit file.
    pub path: PathBuf,
    /// The experiment, if it is a run folder.
    pub loaded: Option<ClassifierExperiment>,
    /// Encoder, circuit and head.
    pub classifier: Classifier,
}

/// Classes and scores of the rows of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Predicted {
    /// A line for each row: its class, and the score of every class.
    pub csv: String,
    /// Number of rows.
    pub rows: usize,
    /// Seconds from values to scores.
    pub seconds: f64,
}

/// An evaluation, with the data that it is about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Evaluated {
    /// Accuracy, confusion matrix, precision and recall.
    pub evaluation: Evaluation,
    /// What the rows are.
    pub what: String,
    /// The rows that are predicted wrongly, those first whose predicted class leads by most.
    pub mistakes: Vec<Mistake>,
    /// The data of the rows.
    pub data: Arc<Dataset>,
}

impl Evaluated {
    /// Draws the most confident mistakes on images as SVG.
    pub fn mistake_sheet(&self, title: &str) -> Result<String, ClassificationError> {
        let shape = self.data.image().ok_or(ClassificationError::NoImages)?;
        let classes = self.data.classes();
        let tile = |mistake: &Mistake| {
            let mut pixels = vec![0.0; shape.values()];
            self.data.copy_row(mistake.row as usize, &mut pixels);
            MistakeTile {
                pixels,
                row: mistake.row,
                class: classes[mistake.label as usize].clone(),
                predicted: classes[mistake.predicted as usize].clone(),
                scores: mistake.scores,
            }
        };
        let tiles: Vec<MistakeTile> = self.mistakes.iter().take(report::MAX_MISTAKES).map(tile).collect();
        let size = [shape.channels, shape.height, shape.width];
        Ok(report::mistake_sheet(title, size, &tiles, self.mistakes.len(), self.evaluation.samples)?)
    }
}

impl TrainedClassifier {
    /// Opens the run folder or the `circuit.json` of a classifier; `None` if the path is something else.
    pub fn open(path: &Path) -> Result<Option<TrainedClassifier>, ClassificationError> {
        let folder = RunFolder::at(path);
        let (loaded, classifier) = if folder.experiment().is_file() {
            let Loaded::Classifier(_) = Loaded::read(&folder.experiment())? else { return Ok(None) };
            if !run::circuit_path(&folder).is_file() {
                return Err(RunError::from(RunFolderError::Unfinished { path: path.to_path_buf() }).into());
            }
            let (loaded, classifier) = run::open(&folder)?;
            (Some(loaded), classifier)
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "json") {
            let Ok(classifier) = run::read_classifier(path) else { return Ok(None) };
            (None, classifier)
        } else {
            return Ok(None);
        };
        Ok(Some(TrainedClassifier { path: path.to_path_buf(), loaded, classifier }))
    }

    /// Evaluates the test rows of the experiment, or the validation rows if there are none.
    pub fn evaluate(&self) -> Result<Evaluated, ClassificationError> {
        let Some(prepared) = self.prepare()? else {
            return Err(ClassificationError::NoTestRows { path: self.path.clone() });
        };
        let (subset, what) = match prepared.test {
            Some(test) => (test, "test rows"),
            None => (prepared.validation, "validation rows"),
        };
        self.evaluate_rows(subset.data, &subset.rows, what.into())
    }

    /// Evaluates a file or folder with the classes of its rows.
    pub fn evaluate_file(&self, path: &Path) -> Result<Evaluated, ClassificationError> {
        let data = self.read(path, Labels::Needed)?;
        let rows: Vec<u32> = (0..data.rows() as u32).collect();
        self.evaluate_rows(Arc::new(data), &rows, path.display().to_string())
    }

    fn evaluate_rows(
        &self,
        data: Arc<Dataset>,
        rows: &[u32],
        what: String,
    ) -> Result<Evaluated, ClassificationError> {
        let scores = Predictor::new(&self.classifier).scores_many(data.select(rows).as_rows())?;
        let labels: Vec<u32> = rows.iter().map(|&row| data.labels()[row as usize]).collect();
        let predicted: Vec<u32> =
            scores.chunks_exact(data.classes().len()).map(|scores| arg_max(scores) as u32).collect();
        Ok(Evaluated {
            evaluation: Evaluation::new(data.classes(), &labels, &predicted),
            what,
            mistakes: evaluate::mistakes(rows, &labels, &predicted, &scores),
            data,
        })
    }

    /// Returns the data of the experiment, which must be those of the training; `None` for a circuit file.
    pub(crate) fn prepare(&self) -> Result<Option<Prepared>, ClassificationError> {
        let Some(loaded) = &self.loaded else { return Ok(None) };
        let prepared = loaded.experiment.prepare().map_err(RunError::from)?;
        let (schema, data) = (Schema::of(&self.classifier), &prepared.train.data);
        if data.features() != schema.features || data.classes() != schema.classes {
            return Err(ClassificationError::DataChanged);
        }
        Ok(Some(prepared))
    }

    /// Classifies the rows of a file or folder, which may be without classes.
    pub fn predict_file(&self, path: &Path) -> Result<Predicted, ClassificationError> {
        let data = self.read(path, Labels::Optional)?;
        let rows: Vec<u32> = (0..data.rows() as u32).collect();
        let values = data.select(&rows);
        let predictor = Predictor::new(&self.classifier);
        let begin = Instant::now();
        let scores = predictor.scores_many(values.as_rows())?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Predicted { csv: to_csv(data.classes(), &scores), rows: data.rows(), seconds })
    }

    /// Reads data with the features and classes of the classifier.
    pub(crate) fn read(&self, path: &Path, labels: Labels) -> Result<Dataset, ClassificationError> {
        let schema = Schema::of(&self.classifier);
        let options = match &self.loaded {
            Some(loaded) => loaded.experiment.data.table.clone(),
            None if choose::is_image(path) => TableOptions::default(),
            None => dialect::of_schema(path, &schema)?,
        };
        let files = Files::One(path.display().to_string());
        let (data, _) = experiment::load(&files, &options, Some(&schema), labels)?;
        if data.features() != schema.features {
            return Err(ClassificationError::OtherFeatures { path: path.to_path_buf() });
        }
        Ok(data)
    }
}

/// Returns the class and the scores of every row as CSV.
fn to_csv(classes: &[String], scores: &[u32]) -> String {
    let names: Vec<String> = classes.iter().map(|name| field(name)).collect();
    let mut csv = format!("row,class,{}\n", names.join(","));
    for (row, scores) in scores.chunks_exact(names.len()).enumerate() {
        let _ = write!(csv, "{row},{}", names[arg_max(scores)]);
        for score in scores {
            let _ = write!(csv, ",{score}");
        }
        csv.push('\n');
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_hold_commas_or_quotes_are_quoted() {
        let classes = ["a,b".to_string(), "c\"d".to_string(), "e".to_string()];
        let expected = "row,class,\"a,b\",\"c\"\"d\",e\n0,\"c\"\"d\",1,3,2\n1,\"a,b\",5,0,0\n";
        assert_eq!(to_csv(&classes, &[1, 3, 2, 5, 0, 0]), expected);
    }

    #[test]
    fn a_path_that_is_not_a_classifier_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (text, json) = (folder.path().join("a.txt"), folder.path().join("a.json"));
        std::fs::write(&text, "x").unwrap();
        std::fs::write(&json, "{}").unwrap();
        for path in [folder.path(), &text, &json, &folder.path().join("missing.json")] {
            assert!(TrainedClassifier::open(path).unwrap().is_none(), "{}", path.display());
        }
    }
}
