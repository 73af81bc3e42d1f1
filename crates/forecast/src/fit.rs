//! [`fit`]: trains a forecaster on a table in memory.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_train::experiment::Problem;
use gatework_train::trainer::{Options, Quiet, TrainError};

use crate::data::{Schema, Table};
use crate::evaluation::unwatched;
use crate::experiment::{Dataset, DatasetError, Experiment};
use crate::prediction::{Forecaster, PredictError};
use crate::run;
use crate::specification::SpecificationError;

/// A forecaster that cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// A setting is invalid.
    #[error("{}", .0.message)]
    Experiment(Problem),
    /// The table cannot be used for the experiment.
    #[error(transparent)]
    Data(#[from] DatasetError),
    /// The network cannot be built.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// Training has failed.
    #[error(transparent)]
    Training(#[from] TrainError),
    /// The validation loss was never finite.
    #[error("the validation loss was never finite: training has diverged; lower training.learning_rate")]
    Diverged,
    /// The trained model cannot be built, or its intervals cannot be calibrated.
    #[error(transparent)]
    Predict(#[from] PredictError),
}

/// Trains a forecaster on a table, keeps the parameters with the lowest validation loss, and calibrates its intervals on
/// the validation subset. The columns of the experiment are those of the table; its `data` is not read. All cores are
/// used; the result depends only on the table and the experiment.
pub fn fit(table: &Table, experiment: &Experiment) -> Result<Forecaster, FitError> {
    let mut experiment = experiment.clone();
    let columns = table.columns.clone();
    let (past, future, fixed) = (columns.past, columns.future, columns.fixed);
    experiment.columns = Schema { past, future, fixed, ..experiment.columns };
    experiment.check().map_err(FitError::Experiment)?;
    experiment.specification().parameters()?;
    let dataset = Dataset::from_table(&experiment, table.clone())?;
    let options = Options {
        settings: run::settings(&experiment, &dataset),
        seeds: vec![experiment.seed],
        until_success: false,
        concurrent_attempts: 1,
        threads_per_attempt: std::thread::available_parallelism().map_or(1, usize::from),
        checkpoints: None,
        interval: Duration::MAX,
    };
    let attempts = run::train(&experiment, &dataset, &options, &Quiet, &AtomicBool::new(false))?;
    let best = attempts.into_iter().next().and_then(|attempt| attempt.best).ok_or(FitError::Diverged)?;
    Ok(run::forecaster(&experiment, &dataset, &best, &unwatched)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{DLinear, NLinear};

    fn table() -> Table {
        let values = |level: f64| (0..120).map(|t| level + f64::from(t % 7)).collect::<Vec<_>>();
        Table::from_series("D", [("a", "2024-01-01", values(10.0)), ("b", "2024-01-01", values(500.0))])
            .unwrap()
    }

    #[test]
    fn a_periodic_table_is_forecast_with_intervals() {
        let table = table();
        let mut experiment = Experiment::new(NLinear {}, 7);
        experiment.training.epochs = Some(60);
        experiment.training.learning_rate = 0.01;
        let mut model = fit(&table, &experiment).unwrap();
        let predictions = model.predict(&table).unwrap();
        for (series, prediction) in table.series.iter().zip(&predictions) {
            let season = &series.values[113..];
            for (value, expected) in prediction.values.iter().zip(season) {
                assert!((value - expected).abs() < 0.5, "{prediction:?} for {season:?}");
            }
            assert_eq!(prediction.intervals.iter().map(|i| i.level).collect::<Vec<_>>(), [0.8, 0.95]);
        }
        assert_eq!(fit(&table, &experiment).unwrap().to_bytes(), model.to_bytes());
    }

    #[test]
    fn invalid_settings_and_short_tables_are_rejected() {
        let message = |experiment: &Experiment| fit(&table(), experiment).err().unwrap().to_string();
        let model = DLinear { moving_average: 4 };
        assert!(message(&Experiment::new(model, 7)).contains("moving_average is 4, but must be odd"));
        let short = message(&Experiment::new(NLinear {}, 90));
        assert!(short.contains("series \"a\" has 96 values for training"), "{short}");
    }
}
