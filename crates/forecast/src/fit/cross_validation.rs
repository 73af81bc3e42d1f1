//! Cross-validation over time: models are trained on earlier values only, and forecast those held out.

use super::FitError;
use super::builder::ForecasterBuilder;
use crate::data::{Length, Split, Table};
use crate::evaluation::{Evaluation, Evaluator, OriginForecast, Origins};

/// How often a model is trained in a cross-validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refit {
    /// Once, on the values before the first forecast origin.
    #[default]
    Never,
    /// For every forecast origin, on the values before it.
    Always,
}

/// The result of a cross-validation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CrossValidation {
    /// Scores of the model over all forecasts, then those of the baselines.
    pub evaluation: Evaluation,
    /// The forecasts from every origin.
    pub forecasts: Vec<OriginForecast>,
}

impl ForecasterBuilder<'_> {
    /// Scores these options on the last forecast origins of a table: models are trained on the values before, and forecast the
    /// values after them. No test subset is set aside, since the forecast values are held out.
    ///
    /// ```
    /// use gatework_forecast::{Forecaster, Origins, Refit, Table, models::NLinear};
    ///
    /// let values: Vec<f64> = (0..200).map(|day| 50.0 + 10.0 * f64::from(day % 7)).collect();
    /// let table = Table::from_series("D", [("sales", "2024-01-01", values)])?;
    /// let options = Forecaster::builder().model(NLinear {}).horizon(7).epochs(5);
    /// let result = options.cross_validate(&table, Origins::last(3).step(7), Refit::Never)?;
    /// assert_eq!(result.forecasts.len(), 3);
    /// let [model, naive, ..] = &result.evaluation.scores[..] else { unreachable!() };
    /// println!("{}: {:.2}, {}: {:.2}", model.name, model.mae, naive.name, naive.mae);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cross_validate(
        &self,
        table: &Table,
        origins: Origins,
        refit: Refit,
    ) -> Result<CrossValidation, FitError> {
        let mut evaluator = Evaluator::default();
        let horizon = self.experiment().horizon;
        match refit {
            Refit::Never => {
                let model = self.fit_held_out(&table.without_last(origins.reach(horizon)))?;
                evaluator.add(&model, table, origins)?;
            }
            Refit::Always => {
                for later in (0..origins.windows).rev() {
                    let known = table.without_last(later.saturating_mul(origins.step));
                    let model = self.fit_held_out(&known.without_last(horizon))?;
                    evaluator.add(&model, &known, Origins::last(1))?;
                }
            }
        }
        let (evaluation, forecasts) = evaluator.finish()?;
        Ok(CrossValidation { evaluation, forecasts })
    }

    /// Trains without a test subset.
    fn fit_held_out(&self, table: &Table) -> Result<crate::Forecaster, FitError> {
        let split = Split { test: Length::Steps(0), ..self.experiment().split };
        self.fit_split(table, split)
    }
}
