//! The thread of the model: request batching, and the cache of forecasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::FxBuildHasher;

use super::error::ServiceError;
use crate::data::Batch;
use crate::prediction::Forecaster;
use crate::trained_network::Forecast;

/// Counters of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests answered by the model.
    pub misses: u64,
    /// Batches run by the model.
    pub batches: u64,
}

impl Statistics {
    /// Returns the fraction of requests answered from the cache; 0 before the first request.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// The bits of a window. Keys are compared in full, so that equal hashes never share a forecast.
type Key = Box<[u32]>;

/// Cache and counters, shared by callers and worker.
pub(super) struct Shared {
    /// `None` if nothing is cached.
    cache: Option<Cache<Key, Arc<Forecast>, UnitWeighter, FxBuildHasher>>,
    hits: AtomicU64,
    misses: AtomicU64,
    batches: AtomicU64,
}

impl Shared {
    /// Creates a cache of at most `capacity` forecasts; with 0, nothing is cached.
    pub fn new(capacity: usize) -> Shared {
        let cache = || {
            Cache::with(capacity, capacity as u64, UnitWeighter, FxBuildHasher, DefaultLifecycle::default())
        };
        let [hits, misses, batches] = Default::default();
        Shared { cache: (capacity > 0).then(cache), hits, misses, batches }
    }

    /// Returns a cached forecast, and counts the request.
    fn get(&self, window: &[f32]) -> Option<Arc<Forecast>> {
        let found = self.cache.as_ref().and_then(|cache| cache.get(&key(window)));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn insert(&self, window: &[f32], forecast: &Arc<Forecast>) {
        if let Some(cache) = &self.cache {
            cache.insert(key(window), Arc::clone(forecast));
        }
    }

    pub fn statistics(&self) -> Statistics {
        let [hits, misses, batches] =
            [&self.hits, &self.misses, &self.batches].map(|counter| counter.load(Ordering::Relaxed));
        Statistics { hits, misses, batches }
    }
}

fn key(window: &[f32]) -> Key {
    window.iter().map(|value| value.to_bits()).collect()
}

/// A window to forecast, and the channel of its result.
pub(super) struct Request {
    /// Scaled values, past covariates, known-future covariates and static covariates.
    window: Vec<f32>,
    result: SyncSender<Result<Arc<Forecast>, String>>,
}

/// A cached or pending forecast.
pub(super) enum Pending {
    Cached(Arc<Forecast>),
    Requested(Receiver<Result<Arc<Forecast>, String>>),
}

impl Pending {
    /// Looks a window up in the cache, or requests its forecast from the worker.
    pub fn new(
        window: Vec<f32>,
        shared: &Shared,
        requests: Option<&Sender<Request>>,
    ) -> Result<Pending, ServiceError> {
        if let Some(found) = shared.get(&window) {
            return Ok(Pending::Cached(found));
        }
        let (result, receiver) = sync_channel(1);
        let requests = requests.ok_or(ServiceError::Ended)?;
        requests.send(Request { window, result }).map_err(|_| ServiceError::Ended)?;
        Ok(Pending::Requested(receiver))
    }

    /// Waits for the forecast.
    pub fn wait(self) -> Result<Arc<Forecast>, ServiceError> {
        match self {
            Pending::Cached(forecast) => Ok(forecast),
            Pending::Requested(receiver) => {
                receiver.recv().map_err(|_| ServiceError::Ended)?.map_err(ServiceError::Failed)
            }
        }
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
        self.shared.batches.fetch_add(1, Ordering::Relaxed);
        for (row, request) in waiting.into_iter().enumerate() {
            let forecast = result.as_ref().map(|all| Arc::new(row_of(all, row))).map_err(Clone::clone);
            if let Ok(forecast) = &forecast {
                self.shared.insert(&request.window, forecast);
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
    use std::sync::mpsc::channel;

    use super::*;
    use crate::test_fixtures::untrained;
    use crate::trained_network::ForecastKind;

    fn forecast(value: f32) -> Arc<Forecast> {
        let values = vec![value];
        Arc::new(Forecast { rows: 1, horizon: 1, outputs: 1, kind: ForecastKind::Point, values })
    }

    #[test]
    fn the_cache_returns_exactly_what_was_inserted() {
        let shared = Shared::new(16);
        shared.insert(&[0.0], &forecast(1.0));
        assert_eq!(shared.get(&[0.0]), Some(forecast(1.0)));
        // Equal as numbers, but not as bits.
        assert_eq!(shared.get(&[-0.0]), None);
        assert_eq!(shared.statistics(), Statistics { hits: 1, misses: 1, batches: 0 });
    }

    #[test]
    fn the_cache_is_bounded_and_may_be_disabled() {
        for capacity in [0, 1, 10] {
            let shared = Shared::new(capacity);
            (0..1000).for_each(|i| shared.insert(&[i as f32], &forecast(i as f32)));
            let cached = (0..1000).filter(|i| shared.get(&[*i as f32]).is_some()).count();
            assert!(cached <= capacity, "{cached} for {capacity}");
            assert!(cached > 0 || capacity < 10, "nothing is cached");
            assert_eq!(shared.statistics().hits, cached as u64);
            assert_eq!(shared.cache.is_none(), capacity == 0);
        }
    }

    #[test]
    fn a_window_that_is_requested_every_time_stays_cached() {
        let shared = Shared::new(10);
        shared.insert(&[-1.0], &forecast(-1.0));
        for i in 0..1000 {
            assert_eq!(shared.get(&[-1.0]), Some(forecast(-1.0)), "after {i} other windows");
            shared.insert(&[i as f32], &forecast(i as f32));
        }
    }

    #[test]
    fn the_hit_rate_is_that_of_the_requests() {
        assert_eq!(Statistics { hits: 3, misses: 1, batches: 1 }.hit_rate(), 0.75);
        assert_eq!(Statistics::default().hit_rate(), 0.0);
    }

    #[test]
    fn waiting_requests_are_batched() {
        let (forecaster, dataset) = untrained(|text| text);
        let (sender, requests) = channel();
        let shared = Arc::new(Shared::new(16));
        let pending: Vec<_> = (0..5)
            .map(|i| {
                let window = dataset.scaled.series[0].values[i..i + 24].iter().map(|x| *x as f32).collect();
                Pending::new(window, &shared, Some(&sender)).unwrap()
            })
            .collect();
        drop(sender);
        Worker { forecaster, max_batch: 4, shared: Arc::clone(&shared), requests }.run();
        assert!(pending.into_iter().all(|pending| pending.wait().is_ok()));
        assert_eq!(shared.statistics().batches, 2, "four, then one");
    }
}
