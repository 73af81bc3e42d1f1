//! Reduction of a classifier on data: gates that the samples do not need are removed, as long as held-back samples do not suffer.
//!
//! [`reduce_on_samples`] replaces gates by what they are on almost all samples. How many samples may differ is decided by rows that
//! the reduction does not see: the tolerance grows until the accuracy on them falls below that of the original.

use gatework_logic::Stop;
use gatework_logic::classifier::Classifier;
use gatework_logic::minimize::{ReduceError, gates, reduce_on_samples};

use super::ClassifierError;
use super::task::Subset;

/// Shares of the samples for which a gate may change.
const TOLERANCES: [f64; 9] = [0.0, 0.0003, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06];

/// A classifier with fewer gates, which is not equivalent to the original.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reduced {
    /// The classifier.
    pub classifier: Classifier,
    /// Share of the samples for which each gate may differ; none, if no reduction kept the accuracy.
    pub tolerance: Option<f64>,
    /// Accuracy of the original on the held-back rows.
    pub accuracy_before: f64,
    /// Accuracy of the result on the held-back rows.
    pub accuracy: f64,
}

/// A reduction that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReductionError {
    /// The reduction was stopped, or the rows do not fit.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// The accuracy cannot be computed.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
}

/// Removes gates that `samples` do not need, as long as the accuracy on `held` is at least that of the original.
pub fn reduce(
    original: &Classifier,
    samples: &Subset,
    held: &Subset,
    stop: &Stop<'_>,
) -> Result<Reduced, ReductionError> {
    let accuracy_before = held.accuracy(original)?;
    let mut best =
        Reduced { classifier: original.clone(), tolerance: None, accuracy_before, accuracy: accuracy_before };
    let rows = samples.data.select(&samples.rows);
    for tolerance in TOLERANCES {
        let classifier = reduce_on_samples(original, rows.as_rows(), tolerance, stop)?;
        let accuracy = held.accuracy(&classifier)?;
        if accuracy < accuracy_before {
            break;
        }
        if gates(classifier.circuit()) <= gates(best.classifier.circuit()) {
            best = Reduced { classifier, tolerance: Some(tolerance), accuracy_before, accuracy };
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::experiment::ClassifierExperiment;

    #[test]
    fn gates_are_removed_without_loss_on_the_held_back_rows() {
        let mut experiment = ClassifierExperiment::find("iris").unwrap().experiment;
        experiment.data.validation = 0.2;
        let prepared = experiment.prepare().unwrap();
        let network = prepared.network(&experiment.model, &experiment.training, 1).unwrap();
        let original = prepared.harden(&network).unwrap();
        let reduced = reduce(&original, &prepared.train, &prepared.validation, &Stop::never()).unwrap();
        assert!(gates(reduced.classifier.circuit()) < gates(original.circuit()));
        assert!(reduced.accuracy >= reduced.accuracy_before && reduced.tolerance.is_some());
        let held = prepared.validation.accuracy(&reduced.classifier).unwrap();
        assert!((held - reduced.accuracy).abs() < 1e-12);
        if reduced.tolerance == Some(0.0) {
            let same = |classifier: &Classifier| prepared.train.predict(classifier).unwrap();
            assert_eq!(same(&reduced.classifier), same(&original));
        }
    }
}
