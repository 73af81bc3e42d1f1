//! Scores of several seeds of an experiment.

use serde_json::{Value, json};

use super::Trained;
use crate::evaluation::Score;

/// The scores of several seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SeedScores {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// For each score its name and one value per seed.
    pub scores: Vec<(&'static str, Vec<f64>)>,
}

impl SeedScores {
    pub(super) fn new(trained: &[Trained]) -> SeedScores {
        let mut all = SeedScores::default();
        for trained in trained {
            let Score { mae, rmse, smape, mase, owa, .. } = trained.evaluation.scores[0];
            let scores = [
                ("validation loss", trained.validation),
                ("MAE", mae),
                ("RMSE", rmse),
                ("sMAPE", smape),
                ("MASE", mase),
                ("OWA", owa),
            ];
            let scaled =
                trained.scaled.map(|scaled| [("scaled MSE", scaled.mse), ("scaled MAE", scaled.mae)]);
            all.seeds.push(trained.attempt.seed);
            for (name, value) in scores.into_iter().chain(scaled.into_iter().flatten()) {
                match all.scores.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(value),
                    None => all.scores.push((name, vec![value])),
                }
            }
        }
        all
    }

    /// Returns mean, standard deviation and values of each score.
    pub fn to_json(&self) -> Value {
        let score = |(name, values): &(&str, Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(values);
            let value = json!({ "mean": mean, "spread": deviation, "values": values });
            (name.to_lowercase().replace(' ', "_"), value)
        };
        let scores: serde_json::Map<String, Value> = self.scores.iter().map(score).collect();
        json!({ "seeds": self.seeds, "figures": scores })
    }
}

/// Returns the mean and the sample standard deviation, which is 0 for a single number.
pub fn mean_and_deviation(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[1.0, 2.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
    }
}
