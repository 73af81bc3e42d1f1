//! The calling side of a service: checks and scales requests.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::cache::{Cache, MAX_TOLERANCE};
use super::error::ServiceError;
use super::statistics::{Counters, Statistics};
use super::worker::{Pending, Request, Shared, Worker, inputs};
use crate::data::scale::{FittedScale, Scaling};
use crate::data::{Batch, Table};
use crate::prediction::{Context, ContextError, Forecaster, PredictError, Prediction, Prepared};
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
    /// Maximum number of bytes of weights, programs and cache. The cache is made smaller if necessary; a model that is larger
    /// by itself is an error.
    pub memory_limit: Option<usize>,
    /// Maximum number of windows per batch.
    pub max_batch: usize,
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
            new_series: false,
        }
    }
}

/// A thread-safe predictor with request batching and a cache.
pub struct Service {
    context: Context,
    specification: Specification,
    options: ServiceOptions,
    shared: Arc<Shared>,
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves the model of a run folder, or a model file.
    pub fn open(path: &Path, options: &ServiceOptions) -> Result<Service, ServiceError> {
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_path_buf() };
        Service::new(Forecaster::load(&file)?, options)
    }

    /// Serves a model.
    pub fn new(mut forecaster: Forecaster, options: &ServiceOptions) -> Result<Service, ServiceError> {
        let (specification, context) = (forecaster.specification().clone(), forecaster.context().clone());
        if !(0.0..=MAX_TOLERANCE).contains(&options.tolerance) {
            return Err(ServiceError::Tolerance(options.tolerance));
        }
        let max_batch = options.max_batch.clamp(1, MAX_ROWS);
        let entry_bytes = entry_bytes(forecaster.network_mut());
        let cache_capacity = match options.memory_limit {
            None => options.cache_capacity,
            Some(limit) => {
                // The largest program determines the memory of all.
                forecaster.network_mut().warm_up(&[max_batch]).map_err(PredictError::from)?;
                let needed = forecaster.network_mut().memory().total();
                let rest =
                    limit.checked_sub(needed).ok_or(ServiceError::Memory { needed, max_batch, limit })?;
                options.cache_capacity.min(rest / entry_bytes)
            }
        };
        let queue_capacity = options.queue_capacity.max(1);
        let shared = Shared {
            cache: Cache::new(cache_capacity, options.tolerance),
            counters: Counters::new(),
            entry_bytes,
            queue_capacity,
        };
        shared.counters.set_memory(forecaster.network_mut().memory());
        let shared = Arc::new(shared);
        let (sender, requests) = sync_channel(queue_capacity);
        let worker = Worker { forecaster, max_batch, shared: Arc::clone(&shared), requests };
        let thread = std::thread::Builder::new().name("forecasts".into()).spawn(move || worker.run())?;
        Ok(Service {
            context,
            specification,
            options: *options,
            shared,
            requests: Some(sender),
            thread: Some(thread),
        })
    }

    /// Returns the context of the model.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the specification of the model.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Returns the counters of requests and batches.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// Returns the number of values that a forecast needs: the input, and the lag of differences.
    pub fn min_history(&self) -> usize {
        self.context.min_history(&self.specification)
    }

    fn scaling(&self) -> &Scaling {
        &self.context.scaler.scaling
    }

    /// Forecasts the steps after the values of a series. Blocks until the forecast is computed.
    pub fn predict(&self, id: &str, history: &[f64]) -> Result<Prediction, ServiceError> {
        self.check_no_covariates()?;
        let fit = self.fit(id, history)?;
        self.check(id, history)?;
        let mut window = history[history.len() - self.min_history()..].to_vec();
        fit.apply(self.scaling(), &mut window);
        self.predict_window(id, &fit, to_f32(&window[self.scaling().difference..]), history)
    }

    /// Forecasts the steps after every series of a table, which may have covariates.
    pub fn predict_table(&self, table: &Table) -> Result<Vec<Prediction>, ServiceError> {
        let prepared = self.prepare(table)?;
        let windows = &prepared.windows;
        let mut batch = Batch::new(windows.shape(1));
        let (mut pending, mut forecasts) = (VecDeque::new(), Vec::with_capacity(windows.len()));
        for number in 0..windows.len() as u32 {
            windows.fill(&[number], &mut batch).map_err(ContextError::from)?;
            // A table may have more series than the queue has places: then it waits for its own first request.
            let next = loop {
                match (self.request(inputs(&batch).concat()), pending.pop_front()) {
                    (Err(ServiceError::Busy { .. }), Some(first)) => forecasts.push(self.wait(first)?),
                    (next, first) => {
                        first.into_iter().for_each(|first| pending.push_front(first));
                        break next?;
                    }
                }
            };
            pending.push_back(next);
        }
        for pending in pending {
            forecasts.push(self.wait(pending)?);
        }
        let mut predictions = Vec::with_capacity(forecasts.len());
        for (series, forecast) in prepared.table.series.iter().zip(forecasts) {
            let fit = self.fit(&series.id, &series.values)?;
            let prediction = self.context.to_prediction(&series.id, &fit, &forecast, 0, &series.values);
            predictions.push(prediction.checked(&series.id)?);
        }
        Ok(predictions)
    }

    /// Scales a table and finds the windows at its end.
    pub(super) fn prepare(&self, table: &Table) -> Result<Prepared, ServiceError> {
        if self.options.new_series {
            let scaler = self.context.scaler.with_new_series(table);
            let context = Context { scaler, ..self.context.clone() };
            return Ok(context.prepare(&self.specification, table.clone())?);
        }
        Ok(self.context.prepare(&self.specification, table.clone())?)
    }

    /// Checks that the model reads no covariates.
    pub(super) fn check_no_covariates(&self) -> Result<(), ServiceError> {
        let Specification { past_columns, future_columns, static_columns, .. } = self.specification;
        if past_columns + future_columns + static_columns > 0 {
            return Err(ServiceError::NeedsCovariates);
        }
        Ok(())
    }

    /// Forecasts a scaled window of a series.
    pub(super) fn predict_window(
        &self,
        id: &str,
        fit: &FittedScale,
        window: Vec<f32>,
        history: &[f64],
    ) -> Result<Prediction, ServiceError> {
        let forecast = self.wait(self.request(window)?)?;
        Ok(self.context.to_prediction(id, fit, &forecast, 0, history).checked(id)?)
    }

    /// Returns the scale of a series.
    pub(super) fn fit(&self, id: &str, history: &[f64]) -> Result<FittedScale, ServiceError> {
        match self.context.scaler.of(id) {
            Some(fit) => Ok(*fit),
            None if self.options.new_series => Ok(self.context.scaler.fit_series(history)),
            None => Err(ServiceError::UnknownSeries { id: id.to_string() }),
        }
    }

    /// Checks that a history is long enough, and finite where the model reads it.
    pub(super) fn check(&self, id: &str, history: &[f64]) -> Result<(), ServiceError> {
        let (found, needed) = (history.len(), self.min_history());
        if found < needed {
            return Err(ServiceError::TooShort { id: id.to_string(), found, needed });
        }
        match history.iter().enumerate().skip(found - needed).find(|(_, value)| !value.is_finite()) {
            Some((index, value)) => Err(ServiceError::NotFinite { id: id.to_string(), index, value: *value }),
            None => Ok(()),
        }
    }

    /// Looks a window up in the cache, or requests its forecast.
    fn request(&self, window: Vec<f32>) -> Result<Pending, ServiceError> {
        Pending::new(window, &self.shared, self.requests.as_ref())
    }

    fn wait(&self, pending: Pending) -> Result<Arc<Forecast>, ServiceError> {
        pending.wait(&self.shared)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The worker ends when the sender is dropped.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the bytes of a cached window, its forecast and their bookkeeping.
fn entry_bytes(network: &TrainedNetwork) -> usize {
    let specification = network.specification();
    let inputs = inputs(&Batch::new(specification.shape(1))).map(<[f32]>::len).iter().sum::<usize>();
    let outputs = specification.horizon * network.outputs();
    size_of::<f32>() * (inputs + outputs) + size_of::<Forecast>() + ENTRY_OVERHEAD
}

/// Bytes of the bookkeeping of a cached forecast: pointers, reference counts, hashes and allocator overhead.
const ENTRY_OVERHEAD: usize = 128;

/// Rounds scaled values to the precision of the model.
pub(super) fn to_f32(scaled: &[f64]) -> Vec<f32> {
    scaled.iter().map(|value| *value as f32).collect()
}

#[cfg(test)]
mod tests;
