//! [`Service`]: checks, scales, looks up and batches requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::cache::{Cache, MAX_TOLERANCE};
use super::error::ServiceError;
use super::queue::{Answer, Queue, Request};
use super::statistics::{Counters, Statistics};
use crate::data::scale::FittedScale;
use crate::data::{Batch, Table};
use crate::prediction::{Context, ContextError, Forecaster, Prediction, Prepared};
use crate::specification::Specification;
use crate::trained_network::{Forecast, MAX_ROWS, TrainedNetwork};

/// Options of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceOptions {
    /// Maximum number of cached forecasts; 0 disables the cache.
    pub cache_capacity: usize,
    /// Relative tolerance of the cache, from 0 to 0.25: a window hits an earlier one if no element differs by more than this
    /// times the largest absolute value of the earlier window. 0 is exact. See the [module](super) for the error.
    pub tolerance: f64,
    /// Maximum number of waiting requests; further ones fail with [`ServiceError::Busy`].
    pub queue_capacity: usize,
    /// Maximum number of bytes of weights, programs and cache. If necessary, fewer batches run at the same time, and the
    /// cache is made smaller; a model that is larger by itself is an error.
    pub memory_limit: Option<usize>,
    /// Maximum number of windows per batch.
    pub max_batch: usize,
    /// Maximum number of batches that run at the same time, each on the thread of a caller; 0 is one for each processor.
    /// Requests from worker threads of a rayon pool do not wait, because a batch may need the worker: they run in addition.
    pub concurrency: usize,
    /// Whether series that were not in the training data are scaled by their own values, instead of being rejected.
    pub new_series: bool,
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions {
            cache_capacity: 4096,
            tolerance: 0.0,
            queue_capacity: 4096,
            memory_limit: None,
            max_batch: MAX_ROWS,
            concurrency: 0,
            new_series: false,
        }
    }
}

/// A thread-safe predictor with request batching and a cache.
pub struct Service {
    forecaster: Forecaster,
    new_series: bool,
    queue: Queue,
    cache: Cache,
    counters: Counters,
    /// Bytes of a cached window and its forecast.
    entry_bytes: usize,
}

impl Service {
    /// Serves the model of a run folder, or a model file.
    pub fn open(path: impl AsRef<Path>, options: &ServiceOptions) -> Result<Service, ServiceError> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_path_buf() };
        Service::new(Forecaster::load(&file)?, options)
    }

    /// Serves a model.
    pub fn new(forecaster: Forecaster, options: &ServiceOptions) -> Result<Service, ServiceError> {
        if !(0.0..=MAX_TOLERANCE).contains(&options.tolerance) {
            return Err(ServiceError::Tolerance(options.tolerance));
        }
        let max_batch = options.max_batch.clamp(1, MAX_ROWS);
        let entry_bytes = entry_bytes(forecaster.network());
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let mut places = if options.concurrency == 0 { processors() } else { options.concurrency };
        let mut cache_capacity = options.cache_capacity;
        if let Some(limit) = options.memory_limit {
            // The largest batch determines the memory of a run. One that does not fill its program needs a buffer, too.
            forecaster.warm_up(&[max_batch, max_batch.next_power_of_two() / 2 + 1])?;
            let memory = forecaster.memory();
            let needed = memory.total();
            let rest = limit.checked_sub(needed).ok_or(ServiceError::Memory { needed, max_batch, limit })?;
            places = places.min(1 + rest / memory.programs.max(1));
            cache_capacity = cache_capacity.min((rest - (places - 1) * memory.programs) / entry_bytes);
        }
        Ok(Service {
            forecaster,
            new_series: options.new_series,
            queue: Queue::new(places, options.queue_capacity, max_batch),
            cache: Cache::new(cache_capacity, options.tolerance),
            counters: Counters::new(),
            entry_bytes,
        })
    }

    /// Compiles and runs the programs for these numbers of windows, up to the largest batch; see [`Forecaster::warm_up`].
    pub fn warm_up(&self, sizes: &[usize]) -> Result<(), ServiceError> {
        let sizes: Vec<usize> = sizes.iter().map(|&rows| rows.min(self.queue.max_batch())).collect();
        Ok(self.forecaster.warm_up(&sizes)?)
    }

    /// Returns the model.
    pub fn forecaster(&self) -> &Forecaster {
        &self.forecaster
    }

    /// Returns the context of the model.
    pub fn context(&self) -> &Context {
        self.forecaster.context()
    }

    /// Returns the specification of the model.
    pub fn specification(&self) -> &Specification {
        self.forecaster.specification()
    }

    /// Returns what the service has done so far, and the memory that it takes.
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot(self.forecaster.memory(), self.cache.len() * self.entry_bytes)
    }

    /// Returns the number of values that a forecast needs: the input, and the lag of differences.
    pub fn min_history(&self) -> usize {
        self.context().min_history(self.specification())
    }

    /// Forecasts the steps after the values of a series. Blocks until the forecast is computed.
    pub fn predict(&self, id: &str, history: &[f64]) -> Result<Prediction, ServiceError> {
        let fit = self.fit(id, history)?;
        let window = self.window(id, &fit, history)?;
        self.predict_window(id, &fit, window, history)
    }

    /// Forecasts the steps after every series of a table, which may have covariates.
    pub fn predict_table(&self, table: &Table) -> Result<Vec<Prediction>, ServiceError> {
        let prepared = self.prepare(table)?;
        let windows = &prepared.windows;
        let mut batch = Batch::new(windows.shape(1));
        let mut predictions = Vec::with_capacity(windows.len());
        let numbers: Vec<u32> = (0..windows.len() as u32).collect();
        for numbers in numbers.chunks(self.queue.max_batch()) {
            let mut inputs = Vec::with_capacity(numbers.len());
            for &number in numbers {
                windows.fill(&[number], &mut batch).map_err(ContextError::from)?;
                inputs.push(fields(&batch).concat());
            }
            let forecasts = self.forecast(inputs)?;
            for (series, forecast) in prepared.table.series[predictions.len()..].iter().zip(&forecasts) {
                let fit = self.fit(&series.id, &series.values)?;
                let prediction = self.context().to_prediction(&series.id, &fit, forecast, 0, &series.values);
                predictions.push(prediction.checked(&series.id)?);
            }
        }
        Ok(predictions)
    }

    /// Scales a table and finds the windows at its end.
    pub(super) fn prepare(&self, table: &Table) -> Result<Prepared, ServiceError> {
        if self.new_series {
            let scaler = self.context().scaler.with_new_series(table);
            let context = Context { scaler, ..self.context().clone() };
            return Ok(context.prepare(self.specification(), table.clone())?);
        }
        Ok(self.context().prepare(self.specification(), table.clone())?)
    }

    /// Returns the scaled window at the end of a history, for models without covariates.
    pub(super) fn window(
        &self,
        id: &str,
        fit: &FittedScale,
        history: &[f64],
    ) -> Result<Vec<f32>, ServiceError> {
        let window = self.context().window(self.specification(), fit, history);
        window.map_err(|problem| ServiceError::of_history(id, problem))
    }

    /// Forecasts a scaled window of a series.
    pub(super) fn predict_window(
        &self,
        id: &str,
        fit: &FittedScale,
        window: Vec<f32>,
        history: &[f64],
    ) -> Result<Prediction, ServiceError> {
        let forecast = self.forecast(vec![window])?.pop();
        let forecast = forecast.ok_or_else(|| ServiceError::Failed("the model gave no forecast".into()))?;
        Ok(self.context().to_prediction(id, fit, &forecast, 0, history).checked(id)?)
    }

    /// Returns the scale of a series.
    pub(super) fn fit(&self, id: &str, history: &[f64]) -> Result<FittedScale, ServiceError> {
        match self.context().scaler.of(id) {
            Some(fit) => Ok(*fit),
            None if self.new_series => Ok(self.context().scaler.fit_series(history)),
            None => Err(ServiceError::UnknownSeries { id: id.to_string() }),
        }
    }

    /// Looks scaled windows up in the cache, and requests the forecasts of the others.
    fn forecast(&self, windows: Vec<Vec<f32>>) -> Result<Vec<Arc<Forecast>>, ServiceError> {
        let begin = Instant::now();
        let mut forecasts: Vec<Option<Arc<Forecast>>> =
            windows.iter().map(|window| self.cache.get(window)).collect();
        for forecast in &forecasts {
            self.counters.count_lookup(forecast.is_some());
        }
        let missing: Vec<Vec<f32>> = windows
            .into_iter()
            .zip(&forecasts)
            .filter_map(|(w, found)| found.is_none().then_some(w))
            .collect();
        if !missing.is_empty() {
            let count = missing.len();
            let answer = self.queue.answer(missing, |batch| self.run(batch)).map_err(|_| {
                self.counters.count_refused(count);
                ServiceError::Busy { waiting: self.queue.capacity() }
            })?;
            let mut computed = answer.map_err(ServiceError::Failed)?.into_iter();
            let missing = forecasts.iter_mut().filter(|forecast| forecast.is_none());
            missing.for_each(|forecast| *forecast = computed.next());
        }
        self.counters.count_latency(begin.elapsed());
        Ok(forecasts.into_iter().flatten().collect())
    }

    /// Runs the model on a batch of requests.
    fn run(&self, requests: &[Arc<Request>]) -> Vec<Answer> {
        let windows = || requests.iter().flat_map(|request| &request.windows);
        let rows = windows().count();
        let mut batch = Batch::new(self.specification().shape(rows));
        windows().enumerate().for_each(|(row, window)| write_row(&mut batch, row, window));
        self.counters.count_batch(rows);
        let all = match self.forecaster.network().predict(&batch) {
            Ok(all) => all,
            Err(error) => return requests.iter().map(|_| Err(error.to_string())).collect(),
        };
        let mut next = 0..rows;
        let answer = |request: &Arc<Request>| {
            let rows = request.windows.iter().zip(next.by_ref());
            let forecast = |(window, row): (&Vec<f32>, usize)| {
                let forecast = Arc::new(row_of(&all, row));
                self.cache.insert(window, &forecast);
                forecast
            };
            Ok(rows.map(forecast).collect())
        };
        requests.iter().map(answer).collect()
    }
}

/// Returns one row of a forecast.
fn row_of(all: &Forecast, row: usize) -> Forecast {
    let Forecast { horizon, outputs, ref kind, .. } = *all;
    let width = horizon * outputs;
    let values = all.values[row * width..(row + 1) * width].to_vec();
    Forecast { rows: 1, horizon, outputs, kind: kind.clone(), values }
}

/// Returns the fields of a batch that a model reads: values, past, known-future and static covariates.
fn fields(batch: &Batch) -> [&[f32]; 4] {
    [&batch.past, &batch.past_columns, &batch.future_columns, &batch.static_columns]
}

/// Writes the fields of a window, one after the other, to a row of a batch.
fn write_row(batch: &mut Batch, row: usize, mut window: &[f32]) {
    let rows = batch.shape.rows;
    for field in
        [&mut batch.past, &mut batch.past_columns, &mut batch.future_columns, &mut batch.static_columns]
    {
        let width = field.len() / rows.max(1);
        let (numbers, rest) = window.split_at(width);
        field[row * width..][..width].copy_from_slice(numbers);
        window = rest;
    }
}

/// Returns the bytes of a cached window, its forecast and their bookkeeping.
fn entry_bytes(network: &TrainedNetwork) -> usize {
    let specification = network.specification();
    let inputs = fields(&Batch::new(specification.shape(1))).map(<[f32]>::len).iter().sum::<usize>();
    let outputs = specification.horizon * network.outputs();
    // Every forecast has a copy of its quantile levels.
    let levels = size_of_val(specification.loss.levels().unwrap_or_default());
    size_of::<f32>() * (inputs + outputs) + levels + size_of::<Forecast>() + ENTRY_OVERHEAD
}

/// Upper bound of the bytes of the bookkeeping of a cached forecast: pointers, reference counts, hashes, and capacity of the
/// tables that is not used.
const ENTRY_OVERHEAD: usize = 256;

#[cfg(test)]
mod tests;
