//! Several seeds of a forecaster: what each has learned, their mean and their spread.

use gatework_forecast::evaluation::{Evaluation, ScaledErrors, Score};
use gatework_forecast::prediction::Predictor;
use gatework_train::trainer::Attempt;
use serde_json::{Value, json};

use crate::number;

/// A seed that was trained, and how good it is.
pub struct Scored {
    /// Its training.
    pub attempt: Attempt,
    /// Its lowest validation loss.
    pub validation: f64,
    /// What it has become.
    pub predictor: Predictor,
    /// Beside the baselines.
    pub evaluation: Evaluation,
    /// In scaled units.
    pub scaled: Option<ScaledErrors>,
}

/// The figures of several seeds.
pub struct Seeds {
    seeds: Vec<u64>,
    /// For each figure its name and a number for each seed.
    figures: Vec<(&'static str, Vec<f64>)>,
}

/// The figures of a seed, by name.
fn figures(scored: &Scored) -> Vec<(&'static str, f64)> {
    let Score { mae, rmse, smape, mase, owa, .. } = &scored.evaluation.scores[0];
    let mut figures = vec![
        ("validation loss", scored.validation),
        ("MAE", *mae),
        ("RMSE", *rmse),
        ("sMAPE", *smape),
        ("MASE", *mase),
        ("OWA", *owa),
    ];
    if let Some(scaled) = scored.scaled {
        figures.extend([("scaled MSE", scaled.mse), ("scaled MAE", scaled.mae)]);
    }
    figures
}

/// Mean and standard deviation (n - 1; 0 for one number).
pub fn mean_and_spread(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

impl Seeds {
    /// The figures of the seeds.
    pub fn of(scored: &[Scored]) -> Seeds {
        let mut all: Vec<(&'static str, Vec<f64>)> = Vec::new();
        for scored in scored {
            for (name, value) in figures(scored) {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(value),
                    None => all.push((name, vec![value])),
                }
            }
        }
        Seeds { seeds: scored.iter().map(|scored| scored.attempt.seed).collect(), figures: all }
    }

    /// Shows a row for each figure: mean, spread, and each seed.
    pub fn tell(&self) {
        say_part!("\n{:<16} {:>10} {:>10}", "", "mean", "spread");
        for seed in &self.seeds {
            say_part!(" {:>10}", format!("seed {seed}"));
        }
        say!();
        for (name, values) in &self.figures {
            let (mean, spread) = mean_and_spread(values);
            let mut cells = number::column(&[&[mean], &values[..]].concat(), 4);
            cells.splice(1..1, number::column(&[spread], 4));
            say!("{name:<16}{}", cells.iter().fold(String::new(), |row, cell| format!("{row} {cell:>10}")));
        }
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let figure = |(name, values): &(&str, Vec<f64>)| {
            let (mean, spread) = mean_and_spread(values);
            let value = json!({ "mean": mean, "spread": spread, "values": values });
            (name.to_lowercase().replace(' ', "_"), value)
        };
        let figures: serde_json::Map<String, Value> = self.figures.iter().map(figure).collect();
        json!({ "seeds": self.seeds, "figures": figures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_the_standard_deviation_of_a_sample() {
        assert_eq!(mean_and_spread(&[1.0, 2.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_and_spread(&[4.0]), (4.0, 0.0));
    }
}
