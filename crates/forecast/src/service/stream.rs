//! A series with a sliding window, which every observation advances by one step in place.

use crate::Specification;
use crate::data::frequency::{Frequency, TimeStep};
use crate::data::scale::FittedScale;
use crate::data::time::TimeKind;
use crate::data::{Table, is_finite_f32};
use crate::prediction::Prediction;

use super::client::Service;
use super::error::ServiceError;

/// A sliding window of rows.
///
/// The buffer is twice as long as the window. New rows are appended; when the end is reached, the window is copied to the
/// beginning, so that a push is amortised O(1).
struct SlidingWindow {
    /// Numbers per window.
    length: usize,
    values: Vec<f32>,
    end: usize,
}

impl SlidingWindow {
    /// Creates a window of these numbers.
    fn new(mut values: Vec<f32>) -> SlidingWindow {
        let length = values.len();
        values.resize(2 * length, 0.0);
        SlidingWindow { length, values, end: length }
    }

    fn push(&mut self, row: &[f64]) {
        if self.end + row.len() > self.values.len() {
            self.values.copy_within(self.end - self.length..self.end, 0);
            self.end = self.length;
        }
        let free = self.values[self.end..].iter_mut();
        free.zip(row).for_each(|(to, number)| *to = *number as f32);
        self.end += row.len();
    }

    fn window(&self) -> &[f32] {
        &self.values[self.end - self.length..self.end]
    }
}

/// Returns the last numbers in the precision of the model.
fn last(numbers: &[f64], count: usize) -> Vec<f32> {
    numbers[numbers.len() - count..].iter().map(|number| *number as f32).collect()
}

/// A series with a sliding window of values and covariates.
pub struct Stream<'a> {
    service: &'a Service,
    id: String,
    fit: FittedScale,
    /// The latest values, and the number of values dropped before them.
    history: Vec<f64>,
    dropped: usize,
    /// Scaled values, past covariates and known-future covariates.
    windows: [SlidingWindow; 3],
    /// Static covariates.
    fixed: Vec<f32>,
    /// Frequency, a time on its grid, and the steps from there to the first value.
    frequency: Frequency,
    origin: i64,
    first: i64,
}

impl<'a> Stream<'a> {
    /// Creates a stream from a history, for a model without covariates.
    pub fn new(service: &'a Service, id: &str, history: &[f64]) -> Result<Stream<'a>, ServiceError> {
        let fit = service.fit(id, history)?;
        let window = service.window(id, &fit, history)?;
        let empty = || SlidingWindow::new(Vec::new());
        Ok(Stream {
            windows: [SlidingWindow::new(window), empty(), empty()],
            fixed: Vec::new(),
            frequency: Frequency { kind: TimeKind::Integer, step: TimeStep::Ticks(1) },
            origin: 0,
            first: 0,
            service,
            id: id.to_string(),
            fit,
            history: history.to_vec(),
            dropped: 0,
        })
    }

    /// Creates a stream from a table of one series, which may have covariates. Known-future covariates must extend over
    /// the horizon.
    pub fn of_table(service: &'a Service, table: &Table) -> Result<Stream<'a>, ServiceError> {
        let [series] = &table.series[..] else {
            return Err(ServiceError::NotOneSeries(table.series.len()));
        };
        let checked = service.context().check_history(service.specification(), &series.values);
        checked.map_err(|problem| ServiceError::of_history(&series.id, problem))?;
        let prepared = service.prepare(table)?;
        let Specification { input, horizon, past_columns, future_columns, .. } = *service.specification();
        let scaled = &prepared.windows.table().series[0];
        let ahead = (scaled.values.len() + horizon) * future_columns;
        Ok(Stream {
            windows: [
                SlidingWindow::new(last(&scaled.values, input)),
                SlidingWindow::new(last(&scaled.past, input * past_columns)),
                SlidingWindow::new(last(&scaled.future[..ahead], (input + horizon) * future_columns)),
            ],
            fixed: last(&scaled.fixed, scaled.fixed.len()),
            frequency: table.frequency,
            origin: series.origin,
            first: table.frequency.steps(series.origin, series.start).unwrap_or(0),
            service,
            id: series.id.clone(),
            fit: service.fit(&series.id, &series.values)?,
            history: series.values.clone(),
            dropped: 0,
        })
    }

    /// Returns the id of the series.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Appends an observation of a series without covariates.
    pub fn push(&mut self, value: f64) -> Result<(), ServiceError> {
        self.push_row(value, &[], &[])
    }

    /// Appends an observation: its value, its past covariates, and the known-future covariates one horizon later. Calendar
    /// features are computed. An error leaves the stream unchanged.
    pub fn push_row(&mut self, value: f64, past: &[f64], future: &[f64]) -> Result<(), ServiceError> {
        let context = self.service.context();
        for (kind, found, needed) in [
            ("past", past.len(), context.columns.past.len()),
            ("known-future", future.len(), context.columns.future.len()),
        ] {
            if found != needed {
                return Err(ServiceError::Covariates { kind, found, needed });
            }
        }
        let not_finite = |numbers: &[f64]| numbers.iter().copied().find(|number| !is_finite_f32(*number));
        if let Some(value) = not_finite(&[value]).or(not_finite(past)).or(not_finite(future)) {
            let index = self.dropped + self.history.len();
            return Err(ServiceError::NotFinite { id: self.id.clone(), index, value });
        }
        let (mut past, mut future) = (past.to_vec(), future.to_vec());
        let later = (self.dropped + self.history.len() + self.service.specification().horizon) as i64;
        let tick = self.frequency.at(self.origin, self.first + later).unwrap_or(self.origin);
        context.calendar.add_row(&self.frequency, tick, &mut future);
        context.scaler.apply_columns([&mut past, &mut future, &mut []]);
        self.history.push(value);
        let scaling = &context.scaler.scaling;
        let before = self.history[self.history.len() - 1 - scaling.difference];
        let value = self.fit.apply_one(scaling, value, before);
        self.windows.iter_mut().zip([&[value][..], &past, &future]).for_each(|(w, row)| w.push(row));
        self.drop_old_values();
        Ok(())
    }

    /// Drops values that no forecast needs, many at a time.
    fn drop_old_values(&mut self) {
        // Intervals of a series that was not in the training data need two seasons.
        let kept = self.service.min_history().max(2 * self.service.context().season) + 1;
        if self.history.len() > 2 * kept {
            let old = self.history.len() - kept;
            self.history.drain(..old);
            self.dropped += old;
        }
    }

    /// Forecasts the steps after the last observation.
    pub fn forecast(&self) -> Result<Prediction, ServiceError> {
        let mut window = self.windows.each_ref().map(SlidingWindow::window).concat();
        window.extend_from_slice(&self.fixed);
        self.service.predict_window(&self.id, &self.fit, window, &self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::*;
    use crate::test_fixtures::{untrained, with_covariates};

    #[test]
    fn a_stream_forecasts_like_the_whole_history() {
        for difference in ["", "\ndifference = 1", "\ndifference = 12"] {
            let change = |text: String| text.replace("log = true", &format!("log = true{difference}"));
            let (forecaster, dataset) = untrained(change);
            let values = &dataset.table.series[0].values;
            let service = Service::new(forecaster, &ServiceOptions::default()).unwrap();
            let mut stream = Stream::new(&service, "Passengers", &values[..40]).unwrap();
            let memory = stream.windows[0].values.as_ptr();
            for (place, value) in values.iter().enumerate().skip(40) {
                stream.push(*value).unwrap();
                let whole = service.predict("Passengers", &values[..=place]).unwrap();
                assert_eq!(stream.forecast().unwrap(), whole, "after {place}{difference}");
            }
            assert_eq!(stream.windows[0].values.as_ptr(), memory, "the buffer is not reallocated");
            // Each window of the stream was requested with the whole history before: every second request is a hit.
            assert_eq!(service.statistics().hit_rate(), 0.5);
        }
    }

    #[test]
    fn a_stream_with_covariates_forecasts_like_the_whole_table() {
        let (forecaster, mut table) = with_covariates();
        table.series.truncate(1);
        let whole = table.series[0].clone();
        let service = Service::new(forecaster, &ServiceOptions::default()).unwrap();
        // The table up to this many values.
        let until = |count: usize| {
            let mut table = table.clone();
            let series = &mut table.series[0];
            series.values.truncate(count);
            series.past.truncate(count);
            series.future.truncate(count + 4);
            table
        };
        let mut stream = Stream::of_table(&service, &until(12)).unwrap();
        for place in 12..40 {
            stream
                .push_row(whole.values[place], &whole.past[place..=place], &[whole.future[place + 4]])
                .unwrap();
            let expected = service.predict_table(&until(place + 1)).unwrap();
            assert_eq!(stream.forecast().unwrap(), expected[0], "after {place}");
        }
        assert_eq!(service.statistics().hit_rate(), 0.5);
        let before = stream.forecast().unwrap();
        let message = stream.push(1.0).unwrap_err().to_string();
        assert!(
            message.contains("0 past covariates were given with an observation, but the model reads 1"),
            "{message}"
        );
        assert!(stream.push_row(1.0, &[f64::NAN], &[0.0]).is_err());
        assert_eq!(stream.forecast().unwrap(), before);
        let (_, two) = with_covariates();
        assert!(matches!(Stream::of_table(&service, &two), Err(ServiceError::NotOneSeries(2))));
        assert!(matches!(Stream::new(&service, "a", &whole.values), Err(ServiceError::NeedsCovariates)));
    }

    #[test]
    fn values_that_are_not_finite_are_rejected_without_effect() {
        let (forecaster, dataset) = untrained(|text| text);
        let values = &dataset.table.series[0].values;
        let service = Service::new(forecaster, &ServiceOptions::default()).unwrap();
        let mut stream = Stream::new(&service, "Passengers", values).unwrap();
        let before = stream.forecast().unwrap();
        assert!(stream.push(f64::NAN).unwrap_err().to_string().contains("value 144 of the history is NaN"));
        assert_eq!(stream.forecast().unwrap(), before);
        assert!(Stream::new(&service, "Passengers", &values[..3]).is_err());
    }
}
