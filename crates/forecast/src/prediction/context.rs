//! What a trained model needs beside its network: how files are read and scaled, and how wide intervals are. It is
//! attached to the model's file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::conformal::{Conformal, known_end};
use crate::data::calendar::{Calendar, CalendarError};
use crate::data::scale::{Fit, Scaler, UnknownSeries};
use crate::data::{Schema, Series, Table, WindowError, Windows};
use crate::forecaster::Forecast;
use crate::specification::Specification;

/// What a trained model needs beside its network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Name of the experiment.
    pub name: String,
    /// How files are read.
    pub columns: Schema,
    /// Frequency of the data it was trained on.
    pub frequency: String,
    /// Columns of the calendar.
    pub calendar: Calendar,
    /// How values are scaled.
    pub scaler: Scaler,
    /// Steps of a season.
    pub season: usize,
    /// Intervals.
    pub conformal: Conformal,
    /// Values of the table it was trained on; 0 if that is not known.
    #[serde(default)]
    pub values: usize,
}

/// Data that a model cannot forecast.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ContextError {
    /// Data of another frequency.
    #[error("the data have frequency {found}, but the model was trained on {wanted}")]
    Frequency {
        /// Of the data.
        found: String,
        /// Of the model.
        wanted: String,
    },
    /// The columns of the calendar cannot be added.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// A series without a scale.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// Too few values, or too few rows known in advance.
    #[error(transparent)]
    Windows(#[from] WindowError),
}

/// Data as they were read, and the windows at their end as the model sees them.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// As they were read, with the columns of the calendar.
    pub table: Arc<Table>,
    /// The last window of every series.
    pub windows: Windows,
}

/// The forecast of one window, in the units of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The course that is expected.
    pub values: Vec<f64>,
    /// Intervals, in the order of the shares they hold.
    pub intervals: Vec<Interval>,
}

/// A forecast that is infinite or no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the forecast of series {id:?} is not finite in step {step}: its values are too large for the model, or its training went wrong"
)]
pub struct NotFinite {
    /// The series.
    pub id: String,
    /// The first such step, counted from 1.
    pub step: usize,
}

impl Prediction {
    /// The prediction, if all of its numbers are finite.
    pub fn checked(self, id: &str) -> Result<Prediction, NotFinite> {
        let bounds = self.intervals.iter().flat_map(|interval| [&interval.low, &interval.high]);
        let wrong = |values: &Vec<f64>| values.iter().position(|value| !value.is_finite());
        match [&self.values].into_iter().chain(bounds).filter_map(wrong).min() {
            Some(step) => Err(NotFinite { id: id.to_string(), step: step + 1 }),
            None => Ok(self),
        }
    }
}

/// Bounds that should hold a share of the values.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The share.
    pub share: f64,
    /// Lower bounds.
    pub low: Vec<f64>,
    /// Upper bounds.
    pub high: Vec<f64>,
}

impl Context {
    /// Values that a forecast needs: the input, and those that differences are taken to.
    pub fn needed(&self, specification: &Specification) -> usize {
        specification.input + self.scaler.scaling.difference
    }

    /// Takes the series out of new data that are too short to be forecast; their names.
    pub fn leave_out_short(&self, specification: &Specification, table: &mut Table) -> Vec<String> {
        let needed = self.needed(specification);
        let is_short = |series: &mut Series| known_end(&series.values).len() < needed;
        table.series.extract_if(.., is_short).map(|series| series.id).collect()
    }

    /// Scales new data and finds the window at the end of every series. Series without a known scale are an error.
    pub fn prepare(&self, specification: &Specification, mut table: Table) -> Result<Prepared, ContextError> {
        let found = table.frequency.to_string();
        if found != self.frequency {
            return Err(ContextError::Frequency { found, wanted: self.frequency.clone() });
        }
        // A forecast of differences is added to the values that it is the difference to.
        let needed = self.needed(specification);
        for series in table.series.iter().filter(|_| needed > specification.input) {
            let length = known_end(&series.values).len();
            if length < needed {
                let id = series.id.clone();
                return Err(WindowError::TooShortToForecast { id, length, needed }.into());
            }
        }
        self.calendar.add(&mut table, specification.horizon)?;
        let scaled = self.scaler.apply(&table)?;
        let windows = Windows::at_end(&Arc::new(scaled), specification.input, specification.horizon)?;
        Ok(Prepared { table: Arc::new(table), windows })
    }

    /// A row of a forecast of a series, in the units of the data. `history` are the values before it.
    pub fn restore(
        &self,
        id: &str,
        fit: &Fit,
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
        let own = |share: f64| {
            // Quantiles of differences do not add up: the errors of the past decide then.
            let bounds = [0.5 - share / 2.0, 0.5 + share / 2.0].map(quantile);
            match bounds {
                [Some(low), Some(high)] if scaling.difference == 0 => Some([invert(low), invert(high)]),
                _ => None,
            }
        };
        let interval = |share: f64| {
            let calibrated = || self.conformal.interval(share, id, history, &values);
            let [low, high] = own(share).or_else(calibrated)?;
            Some(Interval { share, low, high })
        };
        let mut intervals: Vec<Interval> = self.conformal.shares().filter_map(interval).collect();
        nest(&mut intervals);
        Prediction { values, intervals }
    }
}

/// Makes every interval hold those of smaller shares: some may come from the model, others from past errors.
fn nest(intervals: &mut [Interval]) {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by(|&a, &b| intervals[a].share.total_cmp(&intervals[b].share));
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
    use crate::data::time::Kind;
    use crate::prediction::Predictor;
    use crate::test_fixtures::untrained_model;

    #[test]
    fn data_of_another_frequency_and_unknown_series_are_refused() {
        let (mut predictor, dataset) = untrained_model("dlinear", "mae");
        let prepare = |predictor: &Predictor, table: &Table| {
            predictor.context().prepare(predictor.specification(), table.clone())
        };
        let mut table = Table::clone(&dataset.table);
        assert!(prepare(&predictor, &table).is_ok());
        table.series[0].id = "other".into();
        let message = prepare(&predictor, &table).unwrap_err().to_string();
        assert!(message.contains("series \"other\" was not there in training"), "{message}");
        predictor.learn_new_series(&table);
        assert!(prepare(&predictor, &table).is_ok());
        table.frequency = Frequency::parse("D", Kind::Date).unwrap();
        let message = prepare(&predictor, &table).unwrap_err().to_string();
        assert!(message.contains("frequency D, but the model was trained on M"), "{message}");
    }

    #[test]
    fn intervals_hold_those_of_smaller_shares() {
        let interval = |share, low: f64, high: f64| Interval { share, low: vec![low], high: vec![high] };
        let mut intervals = [interval(0.95, 2.0, 5.0), interval(0.5, 3.0, 4.0), interval(0.8, 1.0, 4.5)];
        nest(&mut intervals);
        assert_eq!(intervals, [interval(0.95, 1.0, 5.0), interval(0.5, 3.0, 4.0), interval(0.8, 1.0, 4.5)]);
    }

    #[test]
    fn a_gap_among_the_values_that_differences_are_taken_to_is_refused() {
        let (predictor, dataset) = untrained_model("dlinear", "mae");
        let mut context = predictor.context().clone();
        context.scaler.scaling.difference = 40;
        let mut table = Table::clone(&dataset.table);
        let end = table.series[0].values.len();
        table.series[0].values[end - 35] = f64::NAN;
        let message = context.prepare(predictor.specification(), table).unwrap_err().to_string();
        assert!(message.contains("34") && message.contains("64"), "{message}");
    }

    #[test]
    fn intervals_come_from_the_model_where_it_has_them_and_from_past_errors_elsewhere() {
        for (loss, own) in [("mae", false), ("quantiles", true), ("gaussian", true)] {
            let (mut predictor, dataset) = untrained_model("dlinear", loss);
            let windows = dataset.windows(crate::data::Part::Test, 1);
            let mut widths = Vec::new();
            for scale in [1.0, 10.0] {
                let forecast = &predictor.predict_windows(&windows, &[0], &dataset.table).unwrap()[0];
                let interval = &forecast.intervals[0];
                widths.push(interval.high[3] - interval.low[3]);
                predictor.scale_conformal(scale);
                predictor.scale_conformal(10.0);
            }
            assert_eq!(widths[0] == widths[1], own, "{loss}: {widths:?}");
        }
    }
}
