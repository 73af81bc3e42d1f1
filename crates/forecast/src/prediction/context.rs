//! What a trained model stores about its data: columns, frequency, scaling and interval widths. The context is part of the
//! model file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::conformal::{Conformal, after_last_gap};
use crate::data::calendar::{Calendar, CalendarError};
use crate::data::scale::{FittedScale, Scaler, UnknownSeries};
use crate::data::{Columns, DataProblem, Schema, Series, Table, WindowError, Windows, is_finite_f32};
use crate::specification::Specification;
use crate::trained_network::Forecast;

/// What a trained model stores about its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Name of the experiment.
    pub name: String,
    /// Columns of the data file.
    pub columns: Schema,
    /// Frequency of the training data.
    pub frequency: String,
    /// Calendar features.
    pub calendar: Calendar,
    /// Scaling of values and covariates.
    pub scaler: Scaler,
    /// Steps per season.
    pub season: usize,
    /// Interval widths.
    pub conformal: Conformal,
    /// Number of values of the training table; 0 if unknown.
    #[serde(default)]
    pub values: usize,
}

/// Data that a model cannot forecast.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The frequency is not that of the training data.
    #[error("the data have frequency {found}, but the model was trained on {expected}")]
    Frequency {
        /// Frequency of the data.
        found: String,
        /// Frequency of the training data.
        expected: String,
    },
    /// The calendar features cannot be computed.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// A series is not known to the scaler.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// Too few values, or too few rows of known-future covariates.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// The table is inconsistent, or has no covariate that the model reads.
    #[error(transparent)]
    Data(#[from] DataProblem),
}

/// A table and its scaled windows at the forecast origin.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The table as read, with calendar features.
    pub table: Arc<Table>,
    /// The last window of every series, scaled.
    pub windows: Windows,
}

/// The forecast of one window, in the units of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Point forecasts, one per step.
    pub values: Vec<f64>,
    /// Prediction intervals, one per level.
    pub intervals: Vec<Interval>,
}

/// A forecast that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the forecast of series {id:?} is not finite at step {step}: its values are too large for the model, or training has diverged"
)]
pub struct NotFinite {
    /// Id of the series.
    pub id: String,
    /// The first such step, from 1.
    pub step: usize,
}

impl Prediction {
    /// Returns the prediction if all of its numbers are finite.
    pub fn checked(self, id: &str) -> Result<Prediction, NotFinite> {
        let bounds = self.intervals.iter().flat_map(|interval| [&interval.low, &interval.high]);
        let not_finite = |values: &Vec<f64>| values.iter().position(|value| !value.is_finite());
        match [&self.values].into_iter().chain(bounds).filter_map(not_finite).min() {
            Some(step) => Err(NotFinite { id: id.to_string(), step: step + 1 }),
            None => Ok(self),
        }
    }
}

/// A history that a model cannot forecast. The errors of forecasters and services add the series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HistoryProblem {
    /// The model reads covariates, but only values were given.
    NeedsCovariates,
    /// There are fewer values than the model reads.
    TooShort { found: usize, needed: usize },
    /// A value is not finite in `f32`; its index counts from 0.
    NotFinite { index: usize, value: f64 },
}

/// A prediction interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Nominal coverage, between 0 and 1.
    pub level: f64,
    /// Lower bounds.
    pub low: Vec<f64>,
    /// Upper bounds.
    pub high: Vec<f64>,
}

impl Context {
    /// Returns the number of values that a forecast needs: the input, and the lag of differences.
    pub fn min_history(&self, specification: &Specification) -> usize {
        specification.input + self.scaler.scaling.difference
    }

    /// Removes the series that are too short to be forecast, and returns their ids.
    pub fn remove_short_series(&self, specification: &Specification, table: &mut Table) -> Vec<String> {
        let needed = self.min_history(specification);
        let is_short = |series: &mut Series| after_last_gap(&series.values).len() < needed;
        table.series.extract_if(.., is_short).map(|series| series.id).collect()
    }

    /// Adds calendar features, scales the table and finds the window at the end of every series. Series that are not known
    /// to the scaler are an error.
    pub fn prepare(&self, specification: &Specification, table: Table) -> Result<Prepared, ContextError> {
        // A forecast of differences is added to earlier values, which must be known.
        let needed = self.min_history(specification);
        for series in table.series.iter().filter(|_| needed > specification.input) {
            let length = after_last_gap(&series.values).len();
            if length < needed {
                let id = series.id.clone();
                return Err(WindowError::TooShortToForecast { id, length, needed }.into());
            }
        }
        self.prepare_windows(specification, table, |scaled| {
            Windows::at_series_end(scaled, specification.input, specification.horizon)
        })
    }

    /// Selects the covariates of the model, adds calendar features, scales the table and finds windows of it.
    pub(crate) fn prepare_windows(
        &self,
        specification: &Specification,
        table: Table,
        windows: impl FnOnce(&Arc<Table>) -> Result<Windows, WindowError>,
    ) -> Result<Prepared, ContextError> {
        table.check()?;
        let found = table.frequency.to_string();
        if found != self.frequency {
            return Err(ContextError::Frequency { found, expected: self.frequency.clone() });
        }
        let Schema { past, future, fixed, .. } = &self.columns;
        let columns = Columns { past: past.clone(), future: future.clone(), fixed: fixed.clone() };
        let mut table = table.select(&columns)?;
        self.calendar.add(&mut table, specification.horizon)?;
        let windows = windows(&Arc::new(self.scaler.apply(&table)?))?;
        Ok(Prepared { table: Arc::new(table), windows })
    }

    /// Checks that a history is long enough, and finite where the model reads it. Returns the index of the first value that it
    /// reads.
    pub(crate) fn check_history(
        &self,
        specification: &Specification,
        history: &[f64],
    ) -> Result<usize, HistoryProblem> {
        let (found, needed) = (history.len(), self.min_history(specification));
        let begin = found.checked_sub(needed).ok_or(HistoryProblem::TooShort { found, needed })?;
        match history[begin..].iter().position(|value| !is_finite_f32(*value)) {
            Some(place) => {
                let index = begin + place;
                Err(HistoryProblem::NotFinite { index, value: history[index] })
            }
            None => Ok(begin),
        }
    }

    /// Returns the scaled window at the end of the history of a series, for models without covariates.
    pub(crate) fn window(
        &self,
        specification: &Specification,
        fit: &FittedScale,
        history: &[f64],
    ) -> Result<Vec<f32>, HistoryProblem> {
        let Specification { past_columns, future_columns, static_columns, .. } = *specification;
        if past_columns + future_columns + static_columns > 0 {
            return Err(HistoryProblem::NeedsCovariates);
        }
        let begin = self.check_history(specification, history)?;
        let mut window = history[begin..].to_vec();
        fit.apply(&self.scaler.scaling, &mut window);
        let scaled = &window[self.scaler.scaling.difference..];
        Ok(scaled.iter().map(|value| *value as f32).collect())
    }

    /// Returns a row of a forecast in the units of the data, with intervals. `history` holds the values before the origin.
    pub fn to_prediction(
        &self,
        id: &str,
        fit: &FittedScale,
        forecast: &Forecast,
        row: usize,
        history: &[f64],
    ) -> Prediction {
        let scaling = &self.scaler.scaling;
        let invert = |mut values: Vec<f64>| {
            fit.invert(scaling, history, &mut values);
            values
        };
        let steps = 0..forecast.horizon;
        let values = invert(steps.clone().map(|step| forecast.point(row, step)).collect());
        let quantile = |level: f64| {
            steps.clone().map(|step| forecast.quantile(row, step, level)).collect::<Option<Vec<f64>>>()
        };
        let own = |level: f64| {
            // Quantiles of differences cannot be summed: these intervals are calibrated.
            let bounds = [0.5 - level / 2.0, 0.5 + level / 2.0].map(quantile);
            match bounds {
                [Some(low), Some(high)] if scaling.difference == 0 => Some([invert(low), invert(high)]),
                _ => None,
            }
        };
        let interval = |level: f64| {
            let calibrated = || self.conformal.interval(level, id, history, &values);
            let [low, high] = own(level).or_else(calibrated)?;
            Some(Interval { level, low, high })
        };
        let mut intervals: Vec<Interval> = self.conformal.levels().filter_map(interval).collect();
        nest(&mut intervals);
        Prediction { values, intervals }
    }
}

/// Widens intervals so that they are nested: some come from the model, others from calibration.
fn nest(intervals: &mut [Interval]) {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by(|&a, &b| intervals[a].level.total_cmp(&intervals[b].level));
    for pair in order.windows(2) {
        let Interval { low, high, .. } = intervals[pair[0]].clone();
        let wider = &mut intervals[pair[1]];
        wider.low.iter_mut().zip(low).for_each(|(to, low)| *to = to.min(low));
        wider.high.iter_mut().zip(high).for_each(|(to, high)| *to = to.max(high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::frequency::Frequency;
    use crate::data::time::TimeKind;
    use crate::prediction::Forecaster;
    use crate::test_fixtures::untrained_model;

    #[test]
    fn other_frequencies_and_unknown_series_are_rejected() {
        let (mut forecaster, dataset) = untrained_model("dlinear", "mae");
        let prepare = |forecaster: &Forecaster, table: &Table| {
            forecaster.context().prepare(forecaster.specification(), table.clone())
        };
        let mut table = Table::clone(&dataset.table);
        assert!(prepare(&forecaster, &table).is_ok());
        table.series[0].id = "other".into();
        let message = prepare(&forecaster, &table).unwrap_err().to_string();
        assert!(message.contains("series \"other\" was not in the training data"), "{message}");
        forecaster.learn_new_series(&table);
        assert!(prepare(&forecaster, &table).is_ok());
        table.frequency = Frequency::parse("D", TimeKind::Date).unwrap();
        let message = prepare(&forecaster, &table).unwrap_err().to_string();
        assert!(message.contains("frequency D, but the model was trained on M"), "{message}");
    }

    #[test]
    fn intervals_are_nested() {
        let interval = |level, low: f64, high: f64| Interval { level, low: vec![low], high: vec![high] };
        let mut intervals = [interval(0.95, 2.0, 5.0), interval(0.5, 3.0, 4.0), interval(0.8, 1.0, 4.5)];
        nest(&mut intervals);
        assert_eq!(intervals, [interval(0.95, 1.0, 5.0), interval(0.5, 3.0, 4.0), interval(0.8, 1.0, 4.5)]);
    }

    #[test]
    fn a_gap_within_the_lag_of_differences_is_rejected() {
        let (forecaster, dataset) = untrained_model("dlinear", "mae");
        let mut context = forecaster.context().clone();
        context.scaler.scaling.difference = 40;
        let mut table = Table::clone(&dataset.table);
        let end = table.series[0].values.len();
        table.series[0].values[end - 35] = f64::NAN;
        let message = context.prepare(forecaster.specification(), table).unwrap_err().to_string();
        assert!(message.contains("34") && message.contains("64"), "{message}");
    }

    #[test]
    fn intervals_come_from_the_model_or_from_calibration() {
        for (loss, own) in [("mae", false), ("quantiles", true), ("gaussian", true)] {
            let (mut forecaster, dataset) = untrained_model("dlinear", loss);
            let windows = dataset.windows(crate::data::Subset::Test, 1);
            let mut widths = Vec::new();
            for scale in [1.0, 10.0] {
                let forecast = &forecaster.predict_windows(&windows, &[0], &dataset.table).unwrap()[0];
                let interval = &forecast.intervals[0];
                widths.push(interval.high[3] - interval.low[3]);
                forecaster.scale_conformal(scale);
                forecaster.scale_conformal(10.0);
            }
            assert_eq!(widths[0] == widths[1], own, "{loss}: {widths:?}");
        }
    }
}
