//! A series that goes on: every observation moves the window by one, in place, and its columns with it.

use crate::Specification;
use crate::data::Table;
use crate::data::frequency::{Frequency, Step};
use crate::data::scale::Fit;
use crate::data::time::Kind;
use crate::prediction::Prediction;

use super::batching::{Service, ServiceError, seen};

/// Rows that move on by one, in place.
///
/// They lie in memory twice as long as it has to be: a new row is written behind them; only when the end is reached are
/// they copied to the beginning, once for every window's length.
struct Sliding {
    /// Numbers of the window.
    length: usize,
    values: Vec<f32>,
    end: usize,
}

impl Sliding {
    /// The last so many of some scaled numbers.
    fn new(numbers: &[f64], length: usize) -> Sliding {
        let mut values = seen(&numbers[numbers.len() - length..]);
        values.resize(2 * length, 0.0);
        Sliding { length, values, end: length }
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

/// A series that goes on, with the columns that the model reads.
pub struct Stream<'a> {
    service: &'a Service,
    id: String,
    fit: Fit,
    /// The last values as they came, and how many there were before.
    history: Vec<f64>,
    before: usize,
    /// Values, past columns and columns known in advance, as the model sees them.
    windows: [Sliding; 3],
    /// Static columns.
    fixed: Vec<f32>,
    /// The grid, the time on it that others are counted from, and the steps from there to the first value.
    frequency: Frequency,
    origin: i64,
    first: i64,
}

impl<'a> Stream<'a> {
    /// A series with what is known of it so far, for a model that reads values alone.
    pub fn new(service: &'a Service, id: &str, history: &[f64]) -> Result<Stream<'a>, ServiceError> {
        service.check_values_alone()?;
        service.check(id, history)?;
        let fit = service.fit(id, history)?;
        let (input, scaling) = (service.specification().input, &service.context().scaler.scaling);
        let mut scaled = history[history.len() - service.needed()..].to_vec();
        fit.apply(scaling, &mut scaled);
        let empty = || Sliding::new(&[], 0);
        Ok(Stream {
            windows: [Sliding::new(&scaled, input), empty(), empty()],
            fixed: Vec::new(),
            frequency: Frequency { kind: Kind::Integer, step: Step::Ticks(1) },
            origin: 0,
            first: 0,
            service,
            id: id.to_string(),
            fit,
            history: history.to_vec(),
            before: 0,
        })
    }

    /// The series of a table, which may have columns; those known in advance go on for the horizon.
    pub fn of_table(service: &'a Service, table: &Table) -> Result<Stream<'a>, ServiceError> {
        let [series] = &table.series[..] else {
            return Err(ServiceError::NotOneSeries(table.series.len()));
        };
        service.check(&series.id, &series.values)?;
        let prepared = service.prepare(table)?;
        let Specification { input, horizon, past_columns, future_columns, .. } = *service.specification();
        let scaled = &prepared.windows.table().series[0];
        let ahead = (scaled.values.len() + horizon) * future_columns;
        Ok(Stream {
            windows: [
                Sliding::new(&scaled.values, input),
                Sliding::new(&scaled.past, input * past_columns),
                Sliding::new(&scaled.future[..ahead], (input + horizon) * future_columns),
            ],
            fixed: seen(&scaled.fixed),
            frequency: table.frequency,
            origin: series.origin,
            first: table.frequency.steps(series.origin, series.start).unwrap_or(0),
            service,
            id: series.id.clone(),
            fit: service.fit(&series.id, &series.values)?,
            history: series.values.clone(),
            before: 0,
        })
    }

    /// The series.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Takes in a new observation of a series without columns of its own.
    pub fn push(&mut self, value: f64) -> Result<(), ServiceError> {
        self.push_row(value, &[], &[])
    }

    /// Takes in a new observation: its value, its past columns, and the columns known in advance of the time that is a
    /// horizon later. Columns of the calendar are added to them. What is refused changes nothing.
    pub fn push_row(&mut self, value: f64, past: &[f64], future: &[f64]) -> Result<(), ServiceError> {
        let context = self.service.context();
        for (kind, found, needed) in [
            ("past", past.len(), context.columns.past.len()),
            ("future", future.len(), context.columns.future.len()),
        ] {
            if found != needed {
                return Err(ServiceError::Columns { kind, found, needed });
            }
        }
        let not_finite = |numbers: &[f64]| numbers.iter().copied().find(|number| !number.is_finite());
        if let Some(value) = not_finite(&[value]).or(not_finite(past)).or(not_finite(future)) {
            let place = self.before + self.history.len();
            return Err(ServiceError::NotFinite { id: self.id.clone(), place, value });
        }
        let (mut past, mut future) = (past.to_vec(), future.to_vec());
        let later = (self.before + self.history.len() + self.service.specification().horizon) as i64;
        let tick = self.frequency.at(self.origin, self.first + later).unwrap_or(self.origin);
        context.calendar.add_row(&self.frequency, tick, &mut future);
        context.scaler.apply_columns([&mut past, &mut future, &mut []]);
        self.history.push(value);
        let scaling = &context.scaler.scaling;
        let before = self.history[self.history.len() - 1 - scaling.difference];
        let value = self.fit.apply_one(scaling, value, before);
        self.windows.iter_mut().zip([&[value][..], &past, &future]).for_each(|(w, row)| w.push(row));
        self.forget();
        Ok(())
    }

    /// Forgets values that no forecast needs any more, many at a time.
    fn forget(&mut self) {
        // Two seasons say how much a series changes from one to the next, if it was not there in training.
        let kept = self.service.needed().max(2 * self.service.context().season) + 1;
        if self.history.len() > 2 * kept {
            let old = self.history.len() - kept;
            self.history.drain(..old);
            self.before += old;
        }
    }

    /// Forecasts what comes next.
    pub fn forecast(&self) -> Result<Prediction, ServiceError> {
        let mut window = self.windows.each_ref().map(Sliding::window).concat();
        window.extend_from_slice(&self.fixed);
        self.service.restore(&self.id, &self.fit, window, &self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batching::{Service, Settings};
    use super::*;
    use crate::test_fixtures::{untrained, with_covariates};

    #[test]
    fn a_stream_says_what_the_whole_history_says() {
        for difference in ["", "\ndifference = 1", "\ndifference = 12"] {
            let change = |text: String| text.replace("log = true", &format!("log = true{difference}"));
            let (predictor, dataset) = untrained(change);
            let values = &dataset.table.series[0].values;
            let service = Service::new(predictor, &Settings::default()).unwrap();
            let mut stream = Stream::new(&service, "Passengers", &values[..40]).unwrap();
            let memory = stream.windows[0].values.as_ptr();
            for (place, value) in values.iter().enumerate().skip(40) {
                stream.push(*value).unwrap();
                let whole = service.predict("Passengers", &values[..=place]).unwrap();
                assert_eq!(stream.forecast().unwrap(), whole, "after {place}{difference}");
            }
            assert_eq!(stream.windows[0].values.as_ptr(), memory, "the window stays where it is");
            // What the stream asks for was asked for with the whole history before: every second question is a hit.
            assert_eq!(service.statistics().hit_rate(), 0.5);
        }
    }

    #[test]
    fn a_stream_with_columns_says_what_the_whole_table_says() {
        let (predictor, mut table) = with_covariates();
        table.series.truncate(1);
        let whole = table.series[0].clone();
        let service = Service::new(predictor, &Settings::default()).unwrap();
        // The table as it was after so many values.
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
            let wanted = service.predict_table(&until(place + 1)).unwrap();
            assert_eq!(stream.forecast().unwrap(), wanted[0], "after {place}");
        }
        assert_eq!(service.statistics().hit_rate(), 0.5);
        let before = stream.forecast().unwrap();
        let message = stream.push(1.0).unwrap_err().to_string();
        assert!(
            message.contains("0 past columns were given with an observation, but the model reads 1"),
            "{message}"
        );
        assert!(stream.push_row(1.0, &[f64::NAN], &[0.0]).is_err());
        assert_eq!(stream.forecast().unwrap(), before);
        let (_, two) = with_covariates();
        assert!(matches!(Stream::of_table(&service, &two), Err(ServiceError::NotOneSeries(2))));
        assert!(matches!(Stream::new(&service, "a", &whole.values), Err(ServiceError::NeedsColumns)));
    }

    #[test]
    fn what_is_no_number_is_refused_and_changes_nothing() {
        let (predictor, dataset) = untrained(|text| text);
        let values = &dataset.table.series[0].values;
        let service = Service::new(predictor, &Settings::default()).unwrap();
        let mut stream = Stream::new(&service, "Passengers", values).unwrap();
        let before = stream.forecast().unwrap();
        assert!(stream.push(f64::NAN).unwrap_err().to_string().contains("value 144 of the history is NaN"));
        assert_eq!(stream.forecast().unwrap(), before);
        assert!(Stream::new(&service, "Passengers", &values[..3]).is_err());
    }
}
