//! [`Forecaster`]: a trained model with its context, which forecasts tables in the units of the data.

use std::path::Path;

use super::context::{Context, ContextError, NotFinite, Prediction};
use crate::data::scale::UnknownSeries;
use crate::data::{Batch, Table, WindowError, Windows};
use crate::specification::Specification;
use crate::trained_network::{Forecast, MAX_ROWS, NetworkError, Precision, TrainedNetwork};

/// A forecast that cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The model cannot be read or run.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The windows are invalid.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// A series is not known to the scaler.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// The table does not fit the model.
    #[error(transparent)]
    Table(#[from] ContextError),
    /// A forecast is not finite.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The members of an ensemble forecast different windows.
    #[error(
        "the members of an ensemble must forecast the same horizon of the same series from the same origins"
    )]
    EnsembleMismatch,
    /// The model file has no context.
    #[error(
        "{path}: the model file has no information about its data: {problem}; train it with an experiment"
    )]
    NoContext {
        /// Path of the file.
        path: String,
        /// Why the context cannot be read.
        problem: String,
    },
}

/// A trained model with its context.
pub struct Forecaster {
    network: TrainedNetwork,
    context: Context,
    batch: Batch,
    forecast: Forecast,
}

impl Forecaster {
    /// Combines a model and its context.
    pub fn new(mut network: TrainedNetwork, context: Context) -> Forecaster {
        network.metadata = serde_json::to_value(&context).unwrap_or_default();
        let forecast = Forecast::empty();
        let batch = Batch::new(network.specification().shape(0));
        Forecaster { network, context, batch, forecast }
    }

    /// Reads a model file.
    pub fn load(path: &Path) -> Result<Forecaster, PredictError> {
        let network = TrainedNetwork::load(path)?;
        let context = serde_json::from_value(network.metadata.clone()).map_err(|error| {
            PredictError::NoContext { path: path.display().to_string(), problem: error.to_string() }
        })?;
        Ok(Forecaster::new(network, context))
    }

    /// Returns the bytes of the model file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.network.to_bytes()
    }

    /// Returns the specification of the model.
    pub fn specification(&self) -> &Specification {
        self.network.specification()
    }

    /// Returns the context of the model.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the model, which forecasts scaled values.
    pub fn network_mut(&mut self) -> &mut TrainedNetwork {
        &mut self.network
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.network.parameter_count()
    }

    /// Replaces the context.
    #[must_use]
    pub fn with_context(self, context: Context) -> Forecaster {
        Forecaster::new(self.network, context)
    }

    /// Returns the model with quantised parameters, and their size in bytes.
    pub fn with_precision(&self, precision: Precision) -> Result<(Forecaster, usize), PredictError> {
        let (network, bytes) = self.network.with_precision(precision)?;
        Ok((Forecaster::new(network, self.context.clone()), bytes))
    }

    /// Computes the scale of series that were not in the training data from all of their values.
    pub fn learn_new_series(&mut self, table: &Table) {
        self.context.scaler = self.context.scaler.with_new_series(table);
    }

    /// Forecasts the steps after the last value of every series of a table.
    pub fn predict(&mut self, table: &Table) -> Result<Vec<Prediction>, PredictError> {
        let prepared = self.context.prepare(self.specification(), table.clone())?;
        let numbers: Vec<u32> = (0..prepared.windows.len() as u32).collect();
        self.predict_windows(&prepared.windows, &numbers, &prepared.table)
    }

    /// Forecasts windows of a scaled table. `table` holds the same series in their own units.
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
            self.network.predict_into(&self.batch, &mut self.forecast)?;
            for (row, number) in numbers.iter().enumerate() {
                let number = *number as usize;
                let place = windows.origin(number);
                let (series, origin) = place.ok_or(WindowError::Number { number, count: windows.len() })?;
                let series = &table.series[series];
                let scaler = &self.context.scaler;
                let unknown = || UnknownSeries { id: series.id.clone() };
                let fit = *scaler.of(&series.id).ok_or_else(unknown)?;
                let history = &series.values[..origin];
                let prediction = self.context.to_prediction(&series.id, &fit, &self.forecast, row, history);
                predictions.push(prediction.checked(&series.id)?);
            }
        }
        Ok(predictions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Subset;
    use crate::test_fixtures::untrained_model;

    impl Forecaster {
        /// Multiplies the widths of calibrated intervals.
        pub fn scale_conformal(&mut self, factor: f64) {
            self.context.conformal.scale(factor);
        }
    }

    #[test]
    fn forecasts_do_not_depend_on_the_batch() {
        let (mut forecaster, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Subset::Train, 1);
        let all: Vec<u32> = (0..windows.len() as u32).collect();
        let batched = forecaster.predict_windows(&windows, &all, &dataset.table).unwrap();
        for (number, forecast) in all.iter().zip(&batched) {
            let alone = &forecaster.predict_windows(&windows, &[*number], &dataset.table).unwrap()[0];
            for (a, b) in alone.values.iter().zip(&forecast.values) {
                assert!((a - b).abs() < 1e-3 * b.abs(), "{a} for {b}");
            }
        }
    }

    #[test]
    fn a_model_file_holds_the_context() {
        let (forecaster, _) = untrained_model("nlinear", "mae");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, forecaster.to_bytes()).unwrap();
        let again = Forecaster::load(&path).unwrap();
        assert_eq!(again.context(), forecaster.context());
        let bare = TrainedNetwork::new(
            forecaster.specification().clone(),
            forecaster.specification().params(1).unwrap(),
        );
        std::fs::write(&path, bare.unwrap().to_bytes()).unwrap();
        let message = Forecaster::load(&path).err().unwrap().to_string();
        assert!(message.contains("has no information about its data"), "{message}");
    }
}
