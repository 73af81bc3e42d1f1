//! Reduction of a trained classifier on data, with its accuracy before and after: fewer gates, not equivalent.
//!
//! ```no_run
//! use gatework::classification::TrainedClassifier;
//! use gatework::logic::Stop;
//!
//! let trained = TrainedClassifier::open("runs/digits".as_ref())?.ok_or("not a classifier")?;
//! let reduced = trained.reduce(None, &Stop::never())?;
//! println!("{:?} gates", reduced.gates);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;
use std::sync::Arc;

use gatework_gates::classifier::data::split;
use gatework_gates::classifier::data::table::Labels;
use gatework_gates::classifier::reduce::{Reduced, reduce};
use gatework_gates::classifier::run::RunError;
use gatework_gates::classifier::task::{Prepared, Subset};
use gatework_logic::minimize::gates;
use gatework_logic::{Classifier, Stop};
use serde::Serialize;

use crate::classification::{ClassificationError, TrainedClassifier};

/// Share of the rows that a reduction does not see, if the training held none back.
const HELD_SHARE: f64 = 0.2;

/// A classifier that was reduced on data.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reduction {
    /// The classifier with fewer gates.
    #[serde(skip)]
    pub classifier: Classifier,
    /// Gates before and after, without wires, inverters and duplicates.
    pub gates: [usize; 2],
    /// Rows that the reduction was made on.
    pub rows: usize,
    /// Share of these rows for which each gate may differ; none, if every reduction loses accuracy.
    pub tolerance: Option<f64>,
    /// Accuracy on rows that the reduction did not see, and that decided how far it goes.
    pub held_back: Comparison,
    /// Accuracy on the test rows, which decided nothing.
    pub test: Option<Comparison>,
}

/// The accuracy on some rows before and after a reduction.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Number of rows.
    pub rows: usize,
    /// Accuracy of the original.
    pub before: f64,
    /// Accuracy of the result.
    pub after: f64,
}

/// The rows of a reduction.
struct Rows {
    samples: Subset,
    held: Subset,
    test: Option<Subset>,
}

impl TrainedClassifier {
    /// Removes gates that the training rows do not need, or those of a file with labelled rows, as long as the accuracy on
    /// held-back rows does not fall.
    pub fn reduce(&self, path: Option<&Path>, stop: &Stop<'_>) -> Result<Reduction, ClassificationError> {
        let Rows { samples, held, test } = self.rows(path)?;
        let original = &self.classifier;
        let Reduced { classifier, tolerance, accuracy_before, accuracy, .. } =
            reduce(original, &samples, &held, stop)?;
        let of_test = |rows: Subset| -> Result<Comparison, ClassificationError> {
            let accuracy = |classifier: &Classifier| rows.accuracy(classifier).map_err(RunError::from);
            Ok(Comparison {
                rows: rows.rows.len(),
                before: accuracy(original)?,
                after: accuracy(&classifier)?,
            })
        };
        Ok(Reduction {
            gates: [gates(original.circuit()), gates(classifier.circuit())],
            rows: samples.rows.len(),
            tolerance,
            held_back: Comparison { rows: held.rows.len(), before: accuracy_before, after: accuracy },
            test: test.map(of_test).transpose()?,
            classifier,
        })
    }

    /// Returns the rows of a file, or those of the experiment.
    fn rows(&self, path: Option<&Path>) -> Result<Rows, ClassificationError> {
        let (data, rows, test) = match (path, self.prepare()?) {
            (Some(path), _) => {
                let data = Arc::new(self.read(path, Labels::Needed)?);
                let rows = (0..data.rows() as u32).collect();
                (data, rows, None)
            }
            // Without validation rows, those of the training stand in for them.
            (None, Some(Prepared { train, validation, test, .. })) if validation.rows != train.rows => {
                return Ok(Rows { samples: train, held: validation, test });
            }
            (None, Some(Prepared { train, test, .. })) => (train.data, train.rows, test),
            (None, None) => {
                return Err(ClassificationError::NoTrainingRows { path: self.path.clone() });
            }
        };
        let (rest, held) = split::hold_back(&data, &rows, HELD_SHARE, 1, "validation")?;
        let encoder = self.classifier.encoder();
        Ok(Rows { samples: Subset::new(&data, rest, encoder), held: Subset::new(&data, held, encoder), test })
    }
}
