//! The thread of the model: the queue of requests, and request batching.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use super::cache::Cache;
use super::error::ServiceError;
use super::statistics::{Counters, Statistics};
use crate::data::Batch;
use crate::prediction::Forecaster;
use crate::trained_network::Forecast;

/// Cache and counters, shared by callers and worker.
pub(super) struct Shared {
    pub cache: Cache,
    pub counters: Counters,
    /// Bytes of a cached window and its forecast.
    pub entry_bytes: usize,
    /// Most requests that wait.
    pub queue_capacity: usize,
}

impl Shared {
    /// Returns a cached forecast, and counts the request.
    fn get(&self, window: &[f32]) -> Option<Arc<Forecast>> {
        let found = self.cache.get(window);
        self.counters.count_lookup(found.is_some());
        found
    }

    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot(self.cache.len() * self.entry_bytes)
    }
}

/// A window to forecast, and the channel of its result.
pub(super) struct Request {
    /// Scaled values, past covariates, known-future covariates and static covariates.
    window: Vec<f32>,
    result: SyncSender<Result<Arc<Forecast>, String>>,
}

/// A cached or pending forecast.
pub(super) struct Pending {
    begin: Instant,
    forecast: Source,
}

enum Source {
    Cached(Arc<Forecast>),
    Requested(Receiver<Result<Arc<Forecast>, String>>),
}

impl Pending {
    /// Looks a window up in the cache, or requests its forecast from the worker. A full queue is an error.
    pub fn new(
        window: Vec<f32>,
        shared: &Shared,
        requests: Option<&SyncSender<Request>>,
    ) -> Result<Pending, ServiceError> {
        let begin = Instant::now();
        if let Some(found) = shared.get(&window) {
            return Ok(Pending { begin, forecast: Source::Cached(found) });
        }
        let (result, receiver) = sync_channel(1);
        let requests = requests.ok_or(ServiceError::Ended)?;
        requests.try_send(Request { window, result }).map_err(|error| match error {
            TrySendError::Full(_) => {
                shared.counters.count_refused();
                ServiceError::Busy { waiting: shared.queue_capacity }
            }
            TrySendError::Disconnected(_) => ServiceError::Ended,
        })?;
        Ok(Pending { begin, forecast: Source::Requested(receiver) })
    }

    /// Waits for the forecast.
    pub fn wait(self, shared: &Shared) -> Result<Arc<Forecast>, ServiceError> {
        let forecast = match self.forecast {
            Source::Cached(forecast) => forecast,
            Source::Requested(receiver) => {
                receiver.recv().map_err(|_| ServiceError::Ended)?.map_err(ServiceError::Failed)?
            }
        };
        shared.counters.count_latency(self.begin.elapsed());
        Ok(forecast)
    }
}

/// The thread of the model.
pub(super) struct Worker {
    pub forecaster: Forecaster,
    /// Maximum number of windows per batch.
    pub max_batch: usize,
    pub shared: Arc<Shared>,
    pub requests: Receiver<Request>,
}

impl Worker {
    /// Answers requests until all senders are gone. All requests that wait when a batch starts are part of it, up to the
    /// maximum; a batch never waits for further requests.
    pub fn run(mut self) {
        let mut batch = Batch::new(self.forecaster.specification().shape(0));
        while let Ok(first) = self.requests.recv() {
            let mut waiting = vec![first];
            while waiting.len() < self.max_batch {
                let Ok(next) = self.requests.try_recv() else { break };
                waiting.push(next);
            }
            self.answer(waiting, &mut batch);
        }
    }

    fn answer(&mut self, waiting: Vec<Request>, batch: &mut Batch) {
        batch.set_rows(waiting.len());
        batch.target.fill(0.0);
        for (row, request) in waiting.iter().enumerate() {
            write_row(batch, row, &request.window);
        }
        let result = self.forecaster.network_mut().predict(batch).map_err(|error| error.to_string());
        self.shared.counters.count_batch(waiting.len(), self.forecaster.network_mut().memory());
        for (row, request) in waiting.into_iter().enumerate() {
            let forecast = result.as_ref().map(|all| Arc::new(row_of(all, row))).map_err(Clone::clone);
            if let Ok(forecast) = &forecast {
                self.shared.cache.insert(&request.window, forecast);
            }
            // An error means that the caller no longer waits.
            let _ = request.result.send(forecast);
        }
    }
}

/// Returns one row of a forecast.
fn row_of(all: &Forecast, row: usize) -> Forecast {
    let width = all.horizon * all.outputs;
    Forecast { rows: 1, values: all.values[row * width..][..width].to_vec(), kind: all.kind.clone(), ..*all }
}

/// Returns the fields of a batch that a forecast depends on.
pub(super) fn inputs(batch: &Batch) -> [&[f32]; 4] {
    [&batch.past, &batch.past_columns, &batch.future_columns, &batch.static_columns]
}

/// Writes a window into a row of a batch.
fn write_row(batch: &mut Batch, row: usize, mut window: &[f32]) {
    let rows = batch.shape.rows;
    let fields =
        [&mut batch.past, &mut batch.past_columns, &mut batch.future_columns, &mut batch.static_columns];
    for field in fields {
        let width = field.len() / rows;
        let (numbers, remainder) = window.split_at(width);
        field[row * width..][..width].copy_from_slice(numbers);
        window = remainder;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::untrained;

    fn shared() -> Arc<Shared> {
        let (cache, counters) = (Cache::new(16, 0.0), Counters::new());
        Arc::new(Shared { cache, counters, entry_bytes: 100, queue_capacity: 5 })
    }

    #[test]
    fn waiting_requests_are_batched_and_a_full_queue_is_busy() {
        let (forecaster, dataset) = untrained(|text| text);
        let shared = shared();
        let (sender, requests) = sync_channel(5);
        let window = |i: usize| {
            dataset.scaled.series[0].values[i..i + 24].iter().map(|x| *x as f32).collect::<Vec<_>>()
        };
        let pending: Vec<_> =
            (0..5).map(|i| Pending::new(window(i), &shared, Some(&sender)).unwrap()).collect();
        let error = Pending::new(window(5), &shared, Some(&sender)).err().unwrap();
        assert!(matches!(error, ServiceError::Busy { waiting: 5 }), "{error}");
        drop(sender);
        Worker { forecaster, max_batch: 4, shared: Arc::clone(&shared), requests }.run();
        assert!(pending.into_iter().all(|pending| pending.wait(&shared).is_ok()));
        let statistics = shared.statistics();
        assert_eq!(statistics.batch_sizes[..3], [1, 0, 1], "four, then one");
        assert_eq!((statistics.misses, statistics.refused, statistics.calls()), (5, 1, 6));
        assert_eq!((statistics.cache, statistics.latency.count()), (500, 5));
    }
}
