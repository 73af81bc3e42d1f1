//! [`Forecaster`]: a trained model with its context, which forecasts tables in the units of the data.

use std::fmt;
use std::path::Path;

use super::context::{Context, Interval, Prediction};
use super::error::PredictError;
use crate::data::scale::UnknownSeries;
use crate::data::{Batch, Table, WindowError, Windows};
use crate::specification::Specification;
use crate::trained_network::{Forecast, MAX_ROWS, ModelMemory, Precision, TrainedNetwork};

/// A trained model. It forecasts tables and histories in the units of the data, with calibrated prediction intervals.
///
/// [`Forecaster::builder`] trains one, [`Forecaster::load`] reads one from a file. Several threads can use it at the same time, without waiting for each other;
/// [`Service`](crate::service::Service) batches their requests and caches forecasts.
///
/// ```
/// use gatework_forecast::{Forecaster, Table, models::NLinear};
///
/// let values: Vec<f64> = (0..200).map(|day| 50.0 + 10.0 * f64::from(day % 7)).collect();
/// let table = Table::from_series("D", [("sales", "2024-01-01", values.clone())])?;
/// let model = Forecaster::builder().model(NLinear {}).horizon(14).epochs(20).fit(&table)?;
///
/// let forecast = &model.predict(&table)?[0];
/// assert_eq!((forecast.id.as_str(), forecast.times[0].as_str()), ("sales", "2024-07-19"));
/// let again = model.predict_one("sales", &values)?;
/// assert_eq!(forecast.values, again.values);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Forecaster {
    network: TrainedNetwork,
    context: Context,
}

/// The forecast of the steps after the last value of a series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeriesForecast {
    /// Id of the series.
    pub id: String,
    /// Times of the steps, written as those of the table.
    pub times: Vec<String>,
    /// Point forecasts, one per step.
    pub values: Vec<f64>,
    /// Prediction intervals, one per level.
    pub intervals: Vec<Interval>,
}

impl SeriesForecast {
    /// Combines a forecast with the id of its series and the times of its steps.
    pub fn new(id: String, times: Vec<String>, prediction: Prediction) -> SeriesForecast {
        let Prediction { values, intervals } = prediction;
        SeriesForecast { id, times, values, intervals }
    }
}

impl Forecaster {
    /// Combines a network and its context.
    pub fn new(mut network: TrainedNetwork, context: Context) -> Forecaster {
        network.metadata = serde_json::to_value(&context).unwrap_or_default();
        Forecaster { network, context }
    }

    /// Reads a model file.
    pub fn load(path: impl AsRef<Path>) -> Result<Forecaster, PredictError> {
        let path = path.as_ref();
        let network = TrainedNetwork::load(path)?;
        let context = serde_json::from_value(network.metadata.clone()).map_err(|error| {
            PredictError::NoContext { path: path.display().to_string(), problem: error.to_string() }
        })?;
        Ok(Forecaster::new(network, context))
    }

    /// Writes the model file, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), PredictError> {
        Ok(self.network.save(path.as_ref())?)
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

    /// Returns the network, which forecasts scaled values.
    pub fn network(&self) -> &TrainedNetwork {
        &self.network
    }

    /// Compiles and runs the programs for these numbers of windows, so that the next forecasts take no longer than later ones.
    /// [`Forecaster::load`] warms up one window.
    pub fn warm_up(&self, sizes: &[usize]) -> Result<(), PredictError> {
        Ok(self.network.warm_up(sizes)?)
    }

    /// Returns the bytes that the model takes in memory.
    pub fn memory(&self) -> ModelMemory {
        self.network.memory()
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

    /// Forecasts the steps after the last value of every series of a table. Its known-future covariates must continue for the
    /// horizon; see [`Forecaster::predict_with_future`]. Covariates that the model does not read are ignored.
    pub fn predict(&self, table: &Table) -> Result<Vec<SeriesForecast>, PredictError> {
        self.predict_observed(table, |_, _| {})
    }

    /// Forecasts like [`Forecaster::predict`], and calls `observe` from time to time with the number of finished series and
    /// the number of all.
    pub fn predict_observed(
        &self,
        table: &Table,
        mut observe: impl FnMut(usize, usize),
    ) -> Result<Vec<SeriesForecast>, PredictError> {
        let prepared = self.context.prepare(self.specification(), table.clone())?;
        let count = prepared.windows.len();
        let numbers: Vec<u32> = (0..count as u32).collect();
        let mut forecasts = Vec::with_capacity(count);
        for numbers in numbers.chunks(MAX_ROWS) {
            let predictions = self.predict_windows(&prepared.windows, numbers, &prepared.table)?;
            for (series, prediction) in prepared.table.series[forecasts.len()..].iter().zip(predictions) {
                let Prediction { values, intervals } = prediction;
                let end = series.values.len();
                let times = (end..end + values.len()).map(|position| table.time(series, position)).collect();
                forecasts.push(SeriesForecast { id: series.id.clone(), times, values, intervals });
            }
            observe(forecasts.len(), count);
        }
        Ok(forecasts)
    }

    /// Forecasts a table whose known-future covariates are given here: the id of a series, the name of a covariate, and its
    /// numbers after the last value of the series.
    ///
    /// ```no_run
    /// # use gatework_forecast::{Forecaster, Table};
    /// # fn example(model: &Forecaster, table: &Table) -> Result<(), Box<dyn std::error::Error>> {
    /// let forecast = model.predict_with_future(table, &[("sales", "promotion", &[1.0, 1.0, 0.0])])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn predict_with_future(
        &self,
        table: &Table,
        future: &[(&str, &str, &[f64])],
    ) -> Result<Vec<SeriesForecast>, PredictError> {
        let mut table = table.clone();
        for (id, name, numbers) in future {
            table.set_future(id, name, numbers)?;
        }
        self.predict(&table)
    }

    /// Forecasts the steps after the values of a series, for models without covariates. The history has the frequency of the
    /// training data.
    pub fn predict_one(&self, id: &str, history: &[f64]) -> Result<Prediction, PredictError> {
        Ok(self.predict_many(&[(id, history)])?.remove(0))
    }

    /// Forecasts the steps after the values of several series in batches, for models without covariates.
    pub fn predict_many<I: AsRef<str>, H: AsRef<[f64]>>(
        &self,
        histories: &[(I, H)],
    ) -> Result<Vec<Prediction>, PredictError> {
        let specification = self.specification();
        let (mut batch, mut forecast) = (Batch::new(specification.shape(0)), Forecast::empty());
        let mut predictions = Vec::with_capacity(histories.len());
        for histories in histories.chunks(MAX_ROWS) {
            batch.set_rows(histories.len());
            let mut fits = Vec::with_capacity(histories.len());
            for (row, (id, history)) in batch.past.chunks_mut(specification.input).zip(histories) {
                let id = id.as_ref();
                let unknown = || UnknownSeries { id: id.to_string() };
                let fit = *self.context.scaler.of(id).ok_or_else(unknown)?;
                let window = self.context.window(specification, &fit, history.as_ref());
                row.copy_from_slice(&window.map_err(|problem| PredictError::of_history(id, problem))?);
                fits.push(fit);
            }
            self.network.predict_into(&batch, &mut forecast)?;
            for (row, ((id, history), fit)) in histories.iter().zip(&fits).enumerate() {
                let id = id.as_ref();
                let prediction = self.context.to_prediction(id, fit, &forecast, row, history.as_ref());
                predictions.push(prediction.checked(id)?);
            }
        }
        Ok(predictions)
    }

    /// Forecasts windows of a scaled table. `table` holds the same series in their own units.
    pub fn predict_windows(
        &self,
        windows: &Windows,
        numbers: &[u32],
        table: &Table,
    ) -> Result<Vec<Prediction>, PredictError> {
        let mut predictions = Vec::with_capacity(numbers.len());
        let (mut batch, mut forecast) = (Batch::new(windows.shape(0)), Forecast::empty());
        for numbers in numbers.chunks(MAX_ROWS) {
            batch.set_rows(numbers.len());
            windows.fill(numbers, &mut batch)?;
            self.network.predict_into(&batch, &mut forecast)?;
            for (row, number) in numbers.iter().enumerate() {
                let number = *number as usize;
                let place = windows.origin(number);
                let (series, origin) = place.ok_or(WindowError::Number { number, count: windows.len() })?;
                let series = &table.series[series];
                let scaler = &self.context.scaler;
                let unknown = || UnknownSeries { id: series.id.clone() };
                let fit = *scaler.of(&series.id).ok_or_else(unknown)?;
                let history = &series.values[..origin];
                let prediction = self.context.to_prediction(&series.id, &fit, &forecast, row, history);
                predictions.push(prediction.checked(&series.id)?);
            }
        }
        Ok(predictions)
    }
}

impl fmt::Debug for Forecaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forecaster").field("specification", self.specification()).finish_non_exhaustive()
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
        let (forecaster, dataset) = untrained_model("dlinear", "mae");
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
