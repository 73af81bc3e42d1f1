//! Evaluation of a classifier: accuracy, confusion matrix, precision and recall.

use serde::Serialize;

/// How often each class was predicted for the samples of each class.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Evaluation {
    /// Number of samples.
    pub samples: usize,
    /// Share of the samples that are predicted correctly.
    pub accuracy: f64,
    /// Samples of each class (row) for which each class (column) was predicted.
    pub confusion: Vec<Vec<usize>>,
    /// The scores of each class.
    pub classes: Vec<ClassScore>,
}

/// The scores of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClassScore {
    /// The name.
    pub name: String,
    /// Number of samples of the class.
    pub samples: usize,
    /// Share of the samples with this prediction that are of the class; none, if it was never predicted.
    pub precision: Option<f64>,
    /// Share of the samples of the class with this prediction; none, if there are none.
    pub recall: Option<f64>,
}

impl Evaluation {
    /// Compares predictions with labels.
    ///
    /// # Panics
    /// If their numbers differ, or a class does not exist.
    pub fn new(classes: &[String], labels: &[u32], predicted: &[u32]) -> Evaluation {
        assert_eq!(labels.len(), predicted.len(), "a prediction for each label");
        let mut confusion = vec![vec![0; classes.len()]; classes.len()];
        for (&label, &predicted) in labels.iter().zip(predicted) {
            confusion[label as usize][predicted as usize] += 1;
        }
        let share = |part: usize, of: usize| (of > 0).then(|| part as f64 / of as f64);
        let score = |(class, name): (usize, &String)| {
            let samples: usize = confusion[class].iter().sum();
            let predicted: usize = confusion.iter().map(|row| row[class]).sum();
            let right = confusion[class][class];
            ClassScore {
                name: name.clone(),
                samples,
                precision: share(right, predicted),
                recall: share(right, samples),
            }
        };
        let right: usize = (0..classes.len()).map(|class| confusion[class][class]).sum();
        Evaluation {
            samples: labels.len(),
            accuracy: share(right, labels.len()).unwrap_or(0.0),
            classes: classes.iter().enumerate().map(score).collect(),
            confusion,
        }
    }
}

/// A sample that is predicted wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Mistake {
    /// The row of the data.
    pub row: u32,
    /// Its class.
    pub label: u32,
    /// The predicted class.
    pub predicted: u32,
    /// The scores of its class and of the predicted one.
    pub scores: [u32; 2],
}

/// Returns the rows that are predicted wrongly, those first whose predicted class leads by the highest score. `scores` has one
/// score per class for each row.
///
/// # Panics
/// If the numbers of rows, labels, predictions and scores do not fit.
pub fn mistakes(rows: &[u32], labels: &[u32], predicted: &[u32], scores: &[u32]) -> Vec<Mistake> {
    assert!(rows.len() == labels.len() && rows.len() == predicted.len(), "a label and a prediction a row");
    let classes = scores.len() / rows.len().max(1);
    let mut mistakes: Vec<Mistake> = (0..rows.len())
        .filter(|&at| labels[at] != predicted[at])
        .map(|at| {
            let score = |class: u32| scores[at * classes + class as usize];
            let (label, predicted) = (labels[at], predicted[at]);
            Mistake { row: rows[at], label, predicted, scores: [score(label), score(predicted)] }
        })
        .collect();
    mistakes.sort_by_key(|mistake| std::cmp::Reverse(mistake.scores[0].abs_diff(mistake.scores[1])));
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_and_recall_follow_from_the_confusion_matrix() {
        let classes: Vec<String> = ["a", "b", "c"].map(str::to_string).to_vec();
        let evaluation = Evaluation::new(&classes, &[0, 0, 1, 1, 1], &[0, 1, 1, 1, 0]);
        assert_eq!(evaluation.confusion, [[1, 1, 0], [1, 2, 0], [0, 0, 0]]);
        assert!((evaluation.accuracy - 0.6).abs() < 1e-12);
        let scores: Vec<_> = evaluation.classes.iter().map(|class| (class.precision, class.recall)).collect();
        assert_eq!(scores, [(Some(0.5), Some(0.5)), (Some(2.0 / 3.0), Some(2.0 / 3.0)), (None, None)]);
    }

    #[test]
    fn the_most_confident_mistake_is_first() {
        let scores = [5, 3, /**/ 2, 4, /**/ 1, 9, /**/ 6, 6];
        let found = mistakes(&[7, 8, 9, 10], &[1, 1, 0, 0], &[0, 1, 1, 0], &scores);
        let rows: Vec<_> = found.iter().map(|mistake| (mistake.row, mistake.scores)).collect();
        assert_eq!(rows, [(9, [1, 9]), (7, [3, 5])]);
    }
}
