//! A trained model with its context: forecasts of windows in the units of the data.

use std::path::Path;

use super::context::{Context, NotFinite, Prediction};
use crate::data::scale::UnknownSeries;
use crate::data::{Batch, Table, WindowError, Windows};
use crate::forecaster::{Forecast, Forecaster, ForecasterError, Precision};
use crate::specification::Specification;

/// Windows that are forecast at once.
pub const MAX_ROWS: usize = 256;

/// A forecast that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The model cannot be read or used.
    #[error(transparent)]
    Forecaster(#[from] ForecasterError),
    /// The windows cannot be made.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// A series without a scale.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// A forecast that is no number.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// Models that cannot forecast together.
    #[error("models forecast together only the same horizon of the same series from the same origins")]
    NotAlike,
    /// The file of the model says nothing about its data.
    #[error("{path}: the model says nothing of its data: {problem}")]
    NoContext {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

/// A trained model with its context.
pub struct Predictor {
    forecaster: Forecaster,
    context: Context,
    batch: Batch,
    forecast: Forecast,
}

impl Predictor {
    /// Puts a model and its context together.
    pub fn new(mut forecaster: Forecaster, context: Context) -> Predictor {
        forecaster.metadata = serde_json::to_value(&context).unwrap_or_default();
        let forecast = Forecast::empty();
        let batch = Batch::new(forecaster.specification().shape(0));
        Predictor { forecaster, context, batch, forecast }
    }

    /// Reads the file of a model.
    pub fn load(path: &Path) -> Result<Predictor, PredictError> {
        let forecaster = Forecaster::load(path)?;
        let context = serde_json::from_value(forecaster.metadata.clone()).map_err(|error| {
            PredictError::NoContext { path: path.display().to_string(), problem: error.to_string() }
        })?;
        Ok(Predictor::new(forecaster, context))
    }

    /// The file of the model.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.forecaster.to_bytes()
    }

    /// The network.
    pub fn specification(&self) -> &Specification {
        self.forecaster.specification()
    }

    /// Everything else.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The model, which forecasts in its own units.
    pub fn forecaster_mut(&mut self) -> &mut Forecaster {
        &mut self.forecaster
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.forecaster.params().len()
    }

    /// The same model with another context.
    #[must_use]
    pub fn with_context(self, context: Context) -> Predictor {
        Predictor::new(self.forecaster, context)
    }

    /// The same model with rounded weights, and the bytes that they take.
    pub fn with_precision(&self, precision: Precision) -> Result<(Predictor, usize), PredictError> {
        let (forecaster, bytes) = self.forecaster.with_precision(precision)?;
        Ok((Predictor::new(forecaster, self.context.clone()), bytes))
    }

    /// Learns the scale of series that were not there in training from all of their values, until the program ends.
    pub fn learn_new_series(&mut self, table: &Table) {
        self.context.scaler = self.context.scaler.with_new_series(table);
    }

    /// Forecasts windows of a scaled table. `table` has the same series in their own units.
    pub fn predict_windows(
        &mut self,
        windows: &Windows,
        numbers: &[u32],
        table: &Table,
    ) -> Result<Vec<Prediction>, PredictError> {
        let mut predictions = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(MAX_ROWS) {
            self.batch.set_rows(numbers.len());
            windows.fill(numbers, &mut self.batch)?;
            self.forecaster.predict_into(&self.batch, &mut self.forecast)?;
            for (row, number) in numbers.iter().enumerate() {
                let number = *number as usize;
                let place = windows.place(number);
                let (series, origin) = place.ok_or(WindowError::Number { number, count: windows.len() })?;
                let series = &table.series[series];
                let scaler = &self.context.scaler;
                let unknown = || UnknownSeries { id: series.id.clone() };
                let fit = *scaler.of(&series.id).ok_or_else(unknown)?;
                let history = &series.values[..origin];
                let prediction = self.context.restore(&series.id, &fit, &self.forecast, row, history);
                predictions.push(prediction.checked(&series.id)?);
            }
        }
        Ok(predictions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Part;
    use crate::test_fixtures::untrained_model;

    impl Predictor {
        /// Makes all intervals that were calibrated so many times as wide.
        pub fn scale_conformal(&mut self, factor: f64) {
            self.context.conformal.scale(factor);
        }
    }

    #[test]
    fn a_forecast_does_not_depend_on_the_batch_it_is_in() {
        let (mut predictor, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Part::Train, 1);
        let all: Vec<u32> = (0..windows.len() as u32).collect();
        let together = predictor.predict_windows(&windows, &all, &dataset.table).unwrap();
        for (number, forecast) in all.iter().zip(&together) {
            let alone = &predictor.predict_windows(&windows, &[*number], &dataset.table).unwrap()[0];
            for (a, b) in alone.values.iter().zip(&forecast.values) {
                assert!((a - b).abs() < 1e-3 * b.abs(), "{a} for {b}");
            }
        }
    }

    #[test]
    fn a_model_comes_back_from_its_file_with_its_context() {
        let (predictor, _) = untrained_model("nlinear", "mae");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, predictor.to_bytes()).unwrap();
        let again = Predictor::load(&path).unwrap();
        assert_eq!(again.context(), predictor.context());
        let bare =
            Forecaster::new(predictor.specification().clone(), predictor.specification().params(1).unwrap());
        std::fs::write(&path, bare.unwrap().to_bytes()).unwrap();
        let message = Predictor::load(&path).err().unwrap().to_string();
        assert!(message.contains("says nothing of its data"), "{message}");
    }
}
