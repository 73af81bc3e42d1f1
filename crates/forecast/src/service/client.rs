//! The calling side of a service: checks and scales requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::error::ServiceError;
use super::worker::{Pending, Request, Shared, Statistics, Worker, inputs};
use crate::data::scale::{FittedScale, Scaling};
use crate::data::{Batch, Table};
use crate::prediction::{Context, ContextError, Forecaster, Prediction, Prepared};
use crate::specification::Specification;
use crate::trained_network::MAX_ROWS;

/// Options of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Maximum number of cached forecasts; 0 disables the cache.
    pub cache_capacity: usize,
    /// Maximum number of windows per batch.
    pub max_batch: usize,
    /// Whether series that were not in the training data are scaled by their own values, instead of being rejected.
    pub new_series: bool,
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions { cache_capacity: 4096, max_batch: MAX_ROWS, new_series: false }
    }
}

/// A thread-safe predictor with request batching and a cache.
pub struct Service {
    context: Context,
    specification: Specification,
    options: ServiceOptions,
    shared: Arc<Shared>,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves the model of a run folder, or a model file.
    pub fn open(path: &Path, options: &ServiceOptions) -> Result<Service, ServiceError> {
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_path_buf() };
        Service::new(Forecaster::load(&file)?, options)
    }

    /// Serves a model.
    pub fn new(forecaster: Forecaster, options: &ServiceOptions) -> Result<Service, ServiceError> {
        let (specification, context) = (forecaster.specification().clone(), forecaster.context().clone());
        let shared = Arc::new(Shared::new(options.cache_capacity));
        let (sender, requests) = channel();
        let max_batch = options.max_batch.clamp(1, MAX_ROWS);
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
        let mut pending = Vec::with_capacity(windows.len());
        for number in 0..windows.len() as u32 {
            windows.fill(&[number], &mut batch).map_err(ContextError::from)?;
            pending.push(self.request(inputs(&batch).concat())?);
        }
        let mut predictions = Vec::with_capacity(pending.len());
        for (series, pending) in prepared.table.series.iter().zip(pending) {
            let fit = self.fit(&series.id, &series.values)?;
            let forecast = pending.wait()?;
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
        let forecast = self.request(window)?.wait()?;
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

/// Rounds scaled values to the precision of the model.
pub(super) fn to_f32(scaled: &[f64]) -> Vec<f32> {
    scaled.iter().map(|value| *value as f32).collect()
}

#[cfg(test)]
mod tests;
