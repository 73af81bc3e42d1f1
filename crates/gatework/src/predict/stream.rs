//! A series that goes on: every observation moves the window by one, in place.

use gatework_learn::data::scale::Fit;

use super::service::{Service, ServiceError};
use gatework_learn::forecast::context::Prediction;

/// A series that goes on.
///
/// The window lies in memory twice as long as it has to be: a new value is written behind it and the window moves on;
/// only when the end is reached is it copied to the beginning, once for every window's length.
pub struct Stream<'a> {
    service: &'a Service,
    id: String,
    fit: Fit,
    /// Values as they came.
    history: Vec<f32>,
    /// Values as the model sees them; the window is the last `input` of the first `end`.
    scaled: Vec<f32>,
    end: usize,
}

impl<'a> Stream<'a> {
    /// A series with what is known of it so far.
    pub fn new(service: &'a Service, id: &str, history: &[f32]) -> Result<Stream<'a>, ServiceError> {
        service.check(id, history)?;
        let fit = service.fit(id, history)?;
        let (input, scaling) = (service.specification().input, &service.context().scaler.scaling);
        let mut scaled = history[history.len() - service.needed()..].to_vec();
        fit.apply(scaling, &mut scaled);
        scaled.drain(..scaling.difference);
        scaled.resize(2 * input, 0.0);
        Ok(Stream { service, id: id.to_string(), fit, history: history.to_vec(), scaled, end: input })
    }

    /// The series.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Takes in a new observation.
    pub fn push(&mut self, value: f32) -> Result<(), ServiceError> {
        if !value.is_finite() {
            let place = self.history.len();
            return Err(ServiceError::NotFinite { id: self.id.clone(), place, value });
        }
        self.history.push(value);
        let scaling = &self.service.context().scaler.scaling;
        let input = self.service.specification().input;
        if self.end == self.scaled.len() {
            self.scaled.copy_within(self.end - input.., 0);
            self.end = input;
        }
        let before = self.history[self.history.len() - 1 - scaling.difference];
        self.scaled[self.end] = self.fit.apply_one(scaling, value, before);
        self.end += 1;
        Ok(())
    }

    /// Forecasts what comes next.
    pub fn forecast(&self) -> Result<Prediction, ServiceError> {
        let input = self.service.specification().input;
        let window = self.scaled[self.end - input..self.end].to_vec();
        self.service.restore(&self.fit, window, &self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::tests::untrained;
    use super::super::service::{Service, Settings};
    use super::*;

    #[test]
    fn a_stream_says_what_the_whole_history_says() {
        for difference in ["", "\ndifference = 1", "\ndifference = 12"] {
            let change = |text: String| text.replace("log = true", &format!("log = true{difference}"));
            let (predictor, dataset) = untrained(change);
            let values = &dataset.table.series[0].values;
            let service = Service::new(predictor, &Settings::default()).unwrap();
            let mut stream = Stream::new(&service, "Passengers", &values[..40]).unwrap();
            let memory = stream.scaled.as_ptr();
            for (place, value) in values.iter().enumerate().skip(40) {
                stream.push(*value).unwrap();
                let whole = service.predict("Passengers", &values[..=place]).unwrap();
                assert_eq!(stream.forecast().unwrap(), whole, "after {place}{difference}");
            }
            assert_eq!(stream.scaled.as_ptr(), memory, "the window stays where it is");
            // What the stream asks for was asked for with the whole history before: every second question is a hit.
            assert_eq!(service.statistics().hit_rate(), 0.5);
        }
    }

    #[test]
    fn what_is_no_number_is_refused_and_changes_nothing() {
        let (predictor, dataset) = untrained(|text| text);
        let values = &dataset.table.series[0].values;
        let service = Service::new(predictor, &Settings::default()).unwrap();
        let mut stream = Stream::new(&service, "Passengers", values).unwrap();
        let before = stream.forecast().unwrap();
        assert!(stream.push(f32::NAN).unwrap_err().to_string().contains("value 144 of the history is NaN"));
        assert_eq!(stream.forecast().unwrap(), before);
        assert!(Stream::new(&service, "Passengers", &values[..3]).is_err());
    }
}
