//! Counters and latencies of a service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::trained_network::{MAX_ROWS, ModelMemory};

/// Batch sizes that are counted: 1, 2, 3 to 4, ... up to the largest.
const SIZES: usize = MAX_ROWS.ilog2() as usize + 1;

/// What a service has done since it was started, and the memory that it takes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Windows answered from the cache.
    pub hits: u64,
    /// Windows that were not in the cache, without refused ones.
    pub misses: u64,
    /// Windows refused because the queue was full.
    pub refused: u64,
    /// Batches run by the model.
    pub batches: u64,
    /// Batches by size: entry `i` counts those of more than 2^(i-1) and at most 2^i windows.
    pub batch_sizes: [u64; SIZES],
    /// Bytes of the model: weights and programs.
    pub model: ModelMemory,
    /// Bytes of the cached windows and forecasts.
    pub cache: usize,
    /// Times from a request to its answer.
    pub latency: Latencies,
}

impl Statistics {
    /// Returns the number of windows that were requested, refused ones included.
    pub fn calls(&self) -> u64 {
        self.hits + self.misses + self.refused
    }

    /// Returns the fraction of answered windows that were answered from the cache; 0 before the first one.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// Buckets per power of two of a latency.
const STEPS: u32 = 4;

/// Latencies below 2^`MIN_BITS` nanoseconds share the first bucket.
const MIN_BITS: u32 = 8;

/// Number of buckets: up to 2^40 nanoseconds, about 18 minutes.
const BUCKETS: usize = ((40 - MIN_BITS) * STEPS) as usize;

/// A histogram of latencies with four buckets per power of two: quantiles are accurate to 25 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; BUCKETS],
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: [0; BUCKETS] }
    }
}

impl Latencies {
    /// Returns the upper bound of the bucket of a quantile, such as 0.99; `None` before the first request.
    pub fn quantile(&self, level: f64) -> Option<Duration> {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * level.clamp(0.0, 1.0)).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map(|bucket| Duration::from_nanos(upper_bound(bucket)))
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Returns the bucket of a latency.
fn bucket(nanoseconds: u64) -> usize {
    let bits = nanoseconds.max(1).ilog2();
    if bits < MIN_BITS {
        return 0;
    }
    let fraction = (nanoseconds >> (bits - STEPS.ilog2())) & u64::from(STEPS - 1);
    (((bits - MIN_BITS) * STEPS) as usize + fraction as usize).min(BUCKETS - 1)
}

/// Returns the latency that a bucket ends before.
fn upper_bound(bucket: usize) -> u64 {
    let (bits, fraction) = (MIN_BITS + bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    (u64::from(STEPS) + fraction + 1) << (bits - STEPS.ilog2())
}

/// Counters that callers share.
pub(super) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    refused: AtomicU64,
    batch_sizes: [AtomicU64; SIZES],
    latencies: [AtomicU64; BUCKETS],
}

impl Counters {
    pub fn new() -> Counters {
        let [hits, misses, refused] = Default::default();
        let batch_sizes = std::array::from_fn(|_| AtomicU64::new(0));
        let latencies = std::array::from_fn(|_| AtomicU64::new(0));
        Counters { hits, misses, refused, batch_sizes, latencies }
    }

    /// Counts a look-up in the cache.
    pub fn count_lookup(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts windows that were looked up in vain and refused.
    pub fn count_refused(&self, windows: usize) {
        self.misses.fetch_sub(windows as u64, Ordering::Relaxed);
        self.refused.fetch_add(windows as u64, Ordering::Relaxed);
    }

    pub fn count_batch(&self, rows: usize) {
        let size = rows.clamp(1, MAX_ROWS).next_power_of_two().ilog2() as usize;
        self.batch_sizes[size].fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_latency(&self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters, with the bytes of the model and of the cache.
    pub fn snapshot(&self, model: ModelMemory, cache: usize) -> Statistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let batch_sizes = self.batch_sizes.each_ref().map(load);
        Statistics {
            hits: load(&self.hits),
            misses: load(&self.misses),
            refused: load(&self.refused),
            batches: batch_sizes.iter().sum(),
            batch_sizes,
            model,
            cache,
            latency: Latencies { counts: self.latencies.each_ref().map(load) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_and_calls_follow_from_the_counters() {
        let statistics = Statistics { hits: 3, misses: 1, refused: 2, ..Statistics::default() };
        assert_eq!((statistics.hit_rate(), statistics.calls()), (0.75, 6));
        assert_eq!(Statistics::default().hit_rate(), 0.0);
        assert_eq!(Statistics::default().latency.quantile(0.5), None);
    }

    #[test]
    fn batches_are_counted_by_size() {
        let counters = Counters::new();
        for rows in [1, 2, 3, 4, 5, 256, 300] {
            counters.count_batch(rows);
        }
        let statistics = counters.snapshot(ModelMemory::default(), 11);
        assert_eq!(statistics.batch_sizes, [1, 1, 2, 1, 0, 0, 0, 0, 2]);
        assert_eq!((statistics.batches, statistics.cache), (7, 11));
    }

    proptest! {
        #[test]
        fn quantiles_are_upper_bounds_within_a_quarter(
            mut nanoseconds in prop::collection::vec(256u64..1 << 39, 1..50), level in 0f64..=1.0,
        ) {
            let counters = Counters::new();
            for ns in &nanoseconds {
                counters.count_latency(Duration::from_nanos(*ns));
            }
            nanoseconds.sort_unstable();
            let rank = ((nanoseconds.len() as f64 * level).ceil() as usize).clamp(1, nanoseconds.len());
            let right = nanoseconds[rank - 1];
            let latency = counters.snapshot(ModelMemory::default(), 0).latency;
            let found = latency.quantile(level).unwrap().as_nanos() as u64;
            prop_assert!(found > right && found <= right + right / 4 + 1, "{found} for {right}");
            prop_assert_eq!(latency.count(), nanoseconds.len() as u64);
        }
    }
}
