//! Rolling forecast origins at the end of a table, and the evaluation of models there.

use super::backtest::{
    EnsembleMember, Evaluation, ForecastWindow, Scorer, evaluate, for_each_window, unwatched,
};
use crate::data::{Length, Split, Subset, Table, WindowError, WindowSizes, Windows};
use crate::prediction::{Forecaster, Interval, PredictError, Prepared};

/// The last forecast origins of every series: from each one, the horizon is forecast and compared with the actual values.
/// The last origin is one horizon before the last value.
///
/// ```
/// use gatework_forecast::Origins;
///
/// // With a horizon of 12: forecasts that begin 36, 24 and 12 values before the end.
/// let origins = Origins::last(3).step(12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origins {
    pub(crate) windows: usize,
    pub(crate) step: usize,
}

impl Origins {
    /// The last `windows` origins, one step apart.
    pub fn last(windows: usize) -> Origins {
        Origins { windows, step: 1 }
    }

    /// Sets the number of values between consecutive origins, at least 1.
    #[must_use]
    pub fn step(self, step: usize) -> Origins {
        Origins { step: step.max(1), ..self }
    }

    /// Returns the number of values from the first origin to the end.
    pub(crate) fn reach(self, horizon: usize) -> usize {
        self.windows.saturating_sub(1).saturating_mul(self.step).saturating_add(horizon)
    }

    /// Scales a table as a model needs it, and finds the windows of the origins.
    fn prepare(self, forecaster: &Forecaster, table: &Table) -> Result<Prepared, PredictError> {
        if self.windows == 0 {
            return Err(PredictError::NoOrigins);
        }
        let (specification, context) = (forecaster.specification(), forecaster.context());
        let reach = self.reach(specification.horizon);
        let needed = reach.saturating_add(context.min_history(specification));
        if let Some(series) = table.series.iter().find(|series| series.values.len() < needed) {
            let (id, length) = (series.id.clone(), series.values.len());
            return Err(WindowError::TooShortToEvaluate { id, length, needed }.into());
        }
        let split = Split { train: None, validation: Length::Steps(0), test: Length::Steps(reach) };
        let sizes =
            WindowSizes { input: specification.input, horizon: specification.horizon, stride: self.step };
        Ok(context.prepare_windows(specification, table.clone(), |scaled| {
            Ok(Windows::new(scaled, sizes, &split, Subset::Test))
        })?)
    }
}

impl Forecaster {
    /// Scores the model and the baselines on the last forecast origins of a table. The model is not trained again, so that
    /// the values after the origins should not be those it was trained on;
    /// [`cross_validate`](crate::ForecasterBuilder::cross_validate) holds them out.
    pub fn evaluate(&self, table: &Table, origins: Origins) -> Result<Evaluation, PredictError> {
        let Prepared { table, windows } = origins.prepare(self, table)?;
        if windows.is_empty() {
            return Err(PredictError::NoOrigins);
        }
        evaluate(&[EnsembleMember { forecaster: self, windows: &windows }], &table, &unwatched)
    }
}

/// Calls `visit` with the number of the series, the position of the first step and the point forecast of every origin.
pub(crate) fn for_each_origin(
    forecaster: &Forecaster,
    table: &Table,
    origins: Origins,
    mut visit: impl FnMut(usize, usize, Vec<f64>),
) -> Result<(), PredictError> {
    let Prepared { table, windows } = origins.prepare(forecaster, table)?;
    let mut number = 0;
    for_each_window(&[EnsembleMember { forecaster, windows: &windows }], &table, &unwatched, |window| {
        if let Some((series, _)) = windows.origin(number) {
            visit(series, window.origin, window.forecast.values.clone());
        }
        number += 1;
    })
}

/// A forecast from an origin of an evaluation, and what came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OriginForecast {
    /// Id of the series.
    pub id: String,
    /// Times of the steps, written as those of the table.
    pub times: Vec<String>,
    /// The actual values.
    pub actual: Vec<f64>,
    /// Point forecasts, one per step.
    pub values: Vec<f64>,
    /// Prediction intervals, one per level.
    pub intervals: Vec<Interval>,
}

/// Collects the forecasts of several models from different origins.
#[derive(Default)]
pub(crate) struct Evaluator {
    scorer: Option<Scorer>,
    name: &'static str,
    forecasts: Vec<OriginForecast>,
}

impl Evaluator {
    /// Adds the forecasts of a model.
    pub fn add(
        &mut self,
        forecaster: &Forecaster,
        table: &Table,
        origins: Origins,
    ) -> Result<(), PredictError> {
        let Prepared { table, windows } = origins.prepare(forecaster, table)?;
        self.name = forecaster.specification().model.name();
        let scorer = self.scorer.get_or_insert_with(|| Scorer::new(forecaster.context().season));
        let forecasts = &mut self.forecasts;
        for_each_window(&[EnsembleMember { forecaster, windows: &windows }], &table, &unwatched, |window| {
            scorer.add(&window);
            let ForecastWindow { series, origin, forecast } = window;
            let steps = origin..origin + forecast.values.len();
            forecasts.push(OriginForecast {
                id: series.id.clone(),
                times: steps.clone().map(|position| table.time(series, position)).collect(),
                actual: series.values[steps].to_vec(),
                values: forecast.values.clone(),
                intervals: forecast.intervals.clone(),
            });
        })
    }

    /// Returns the scores over all forecasts, and the forecasts.
    pub fn finish(self) -> Result<(Evaluation, Vec<OriginForecast>), PredictError> {
        match self.scorer.filter(|_| !self.forecasts.is_empty()) {
            Some(scorer) => Ok((scorer.finish(self.name), self.forecasts)),
            None => Err(PredictError::NoOrigins),
        }
    }
}
