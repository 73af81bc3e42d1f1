//! The cache of forecasts: by the exact bits of a window, or by windows within a tolerance.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::trained_network::Forecast;

/// The bits of a window. Keys are compared in full, so that equal hashes never share a forecast.
type Key = Box<[u32]>;

/// Forecasts of earlier windows.
pub(super) enum Cache {
    Disabled,
    /// Forecasts of windows with the same bits.
    Exact(QuickCache<Key, Arc<Forecast>, UnitWeighter, FxBuildHasher>),
    /// Forecasts of windows within a relative tolerance.
    Near(Mutex<NearCache>),
}

impl Cache {
    /// Creates a cache of at most `capacity` forecasts. With 0, nothing is cached.
    pub fn new(capacity: usize, tolerance: f64) -> Cache {
        if capacity == 0 {
            Cache::Disabled
        } else if tolerance > 0.0 {
            Cache::Near(Mutex::new(NearCache::new(capacity, tolerance)))
        } else {
            let lifecycle = DefaultLifecycle::default();
            Cache::Exact(QuickCache::with(capacity, capacity as u64, UnitWeighter, FxBuildHasher, lifecycle))
        }
    }

    pub fn get(&self, window: &[f32]) -> Option<Arc<Forecast>> {
        match self {
            Cache::Disabled => None,
            Cache::Exact(cache) => cache.get(&key(window)),
            Cache::Near(cache) => cache.lock().unwrap_or_else(PoisonError::into_inner).get(window),
        }
    }

    pub fn insert(&self, window: &[f32], forecast: &Arc<Forecast>) {
        match self {
            Cache::Disabled => {}
            Cache::Exact(cache) => cache.insert(key(window), Arc::clone(forecast)),
            Cache::Near(cache) => {
                cache.lock().unwrap_or_else(PoisonError::into_inner).insert(window, Arc::clone(forecast));
            }
        }
    }

    /// Returns the number of cached forecasts.
    pub fn len(&self) -> usize {
        match self {
            Cache::Disabled => 0,
            Cache::Exact(cache) => cache.len(),
            Cache::Near(cache) => cache.lock().unwrap_or_else(PoisonError::into_inner).entries.len(),
        }
    }
}

fn key(window: &[f32]) -> Key {
    window.iter().map(|value| value.to_bits()).collect()
}

/// A cache in which a window hits an earlier one if no element differs by more than the tolerance times the largest absolute
/// value of the earlier one. The oldest entry is dropped first.
///
/// Candidates are found by two numbers that such windows nearly share, the mean and the middle element, in cells of the width
/// of the tolerance: similar windows are in the same or in adjacent cells. Every candidate is compared element by element.
pub(super) struct NearCache {
    capacity: usize,
    tolerance: f64,
    /// In the order of insertion; the first has the number `first`.
    entries: VecDeque<Entry>,
    first: u64,
    cells: FxHashMap<Cell, Vec<u64>>,
}

struct Entry {
    window: Box<[f32]>,
    /// Largest absolute difference of a hit.
    margin: f64,
    forecast: Arc<Forecast>,
    cell: Cell,
}

/// Exponent of the largest absolute value, and the cells of mean and middle element, whose width depends on the exponent.
type Cell = (i32, [i64; 2]);

/// Mean and middle element, and the largest absolute value.
fn features(window: &[f32]) -> ([f64; 2], f64) {
    let sum: f64 = window.iter().map(|value| f64::from(*value)).sum();
    let middle = window.get(window.len() / 2).map_or(0.0, |value| f64::from(*value));
    let largest = window.iter().fold(0.0, |most: f64, value| most.max(f64::from(value.abs())));
    ([sum / window.len().max(1) as f64, middle], largest)
}

/// Returns the least exponent of a power of two that is not less than a number.
fn exponent(largest: f64) -> i32 {
    if largest > 0.0 { largest.log2().ceil().clamp(-1000.0, 1000.0) as i32 } else { -1000 }
}

impl NearCache {
    fn new(capacity: usize, tolerance: f64) -> NearCache {
        let tolerance = tolerance.min(MAX_TOLERANCE);
        NearCache { capacity, tolerance, entries: VecDeque::new(), first: 0, cells: FxHashMap::default() }
    }

    fn cell(&self, exponent: i32, features: [f64; 2]) -> Cell {
        let width = self.tolerance * f64::from(exponent).exp2();
        (exponent, features.map(|feature| (feature / width).floor() as i64))
    }

    fn get(&self, window: &[f32]) -> Option<Arc<Forecast>> {
        let (features, largest) = features(window);
        let middle = exponent(largest);
        // With a tolerance of up to a half, the largest value of a similar window is at most twice as large or small.
        for exponent in [middle, middle - 1, middle + 1] {
            let (_, [a, b]) = self.cell(exponent, features);
            for (i, j) in [0, -1, 1].into_iter().flat_map(|i| [0, -1, 1].map(|j| (i, j))) {
                let cell = (exponent, [a.saturating_add(i), b.saturating_add(j)]);
                for number in self.cells.get(&cell).into_iter().flatten() {
                    let entry = self.entries.get((number - self.first) as usize)?;
                    if entry.is_near(window) {
                        return Some(Arc::clone(&entry.forecast));
                    }
                }
            }
        }
        None
    }

    /// Adds an entry, unless an element is not finite: then no difference would be, and any window could hit.
    fn insert(&mut self, window: &[f32], forecast: Arc<Forecast>) {
        if !window.iter().all(|value| value.is_finite()) {
            return;
        }
        while self.entries.len() >= self.capacity
            && let Some(oldest) = self.entries.pop_front()
        {
            if let Some(numbers) = self.cells.get_mut(&oldest.cell) {
                numbers.retain(|number| *number != self.first);
                if numbers.is_empty() {
                    self.cells.remove(&oldest.cell);
                }
            }
            self.first += 1;
        }
        let (features, largest) = features(window);
        let cell = self.cell(exponent(largest), features);
        self.cells.entry(cell).or_default().push(self.first + self.entries.len() as u64);
        let margin = self.tolerance * largest;
        self.entries.push_back(Entry { window: window.into(), margin, forecast, cell });
    }
}

/// Largest tolerance; larger ones count as this one.
pub(super) const MAX_TOLERANCE: f64 = 0.25;

impl Entry {
    /// Returns whether no element of a window differs by more than the margin.
    fn is_near(&self, window: &[f32]) -> bool {
        let is_near = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() <= self.margin;
        self.window.len() == window.len() && self.window.iter().zip(window).all(is_near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trained_network::ForecastKind;
    use proptest::prelude::*;

    fn forecast(value: f32) -> Arc<Forecast> {
        let values = vec![value];
        Arc::new(Forecast { rows: 1, horizon: 1, outputs: 1, kind: ForecastKind::Point, values })
    }

    #[test]
    fn an_exact_cache_returns_exactly_what_was_inserted() {
        let cache = Cache::new(16, 0.0);
        cache.insert(&[0.0], &forecast(1.0));
        assert_eq!(cache.get(&[0.0]), Some(forecast(1.0)));
        // Equal as numbers, but not as bits.
        assert_eq!(cache.get(&[-0.0]), None);
    }

    #[test]
    fn caches_are_bounded_and_may_be_disabled() {
        for (capacity, tolerance) in [(0, 0.0), (1, 0.0), (10, 0.0), (0, 0.1), (1, 0.1), (10, 0.1)] {
            let cache = Cache::new(capacity, tolerance);
            // Windows of one pattern, whose elements differ by more than a tenth.
            let window = |i: usize| {
                [(i % 32) as f32, (i / 32) as f32, 32.0].map(|x| if x < 32.0 { 8.0 * x } else { x })
            };
            (0..1000).for_each(|i| cache.insert(&window(i), &forecast(i as f32)));
            let cached = (0..1000).filter(|i| cache.get(&window(*i)).is_some()).count();
            assert!(cache.len() <= capacity, "{} for {capacity}", cache.len());
            assert!(cached > 0 || capacity < 10, "nothing is cached");
            assert_eq!(matches!(cache, Cache::Disabled), capacity == 0);
        }
    }

    #[test]
    fn a_window_that_is_requested_every_time_stays_cached() {
        let cache = Cache::new(10, 0.0);
        cache.insert(&[-1.0], &forecast(-1.0));
        for i in 0..1000 {
            assert_eq!(cache.get(&[-1.0]), Some(forecast(-1.0)), "after {i} other windows");
            cache.insert(&[i as f32], &forecast(i as f32));
        }
    }

    /// The difference of an infinite element to any other is infinite, and so would be the margin.
    #[test]
    fn near_caches_do_not_keep_windows_that_are_not_finite() {
        let cache = Cache::new(10, 0.1);
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            cache.insert(&[bad, 0.0, 1.0], &forecast(1.0));
            for other in [[0.0, 0.0, bad], [bad, 0.0, 1.0], [1.0, 0.0, 1.0]] {
                assert_eq!(cache.get(&other), None, "{other:?}");
            }
        }
        assert_eq!(cache.len(), 0);
    }

    proptest! {
        /// A hit is within the tolerance, and a window that is within it hits. The reference searches all windows.
        #[test]
        fn near_caches_agree_with_a_linear_search(
            windows in prop::collection::vec(prop::collection::vec(-2f32..2.0, 6), 1..30),
            pick: prop::sample::Index, noise in prop::collection::vec(-0.03f32..0.03, 6), exponent in -20i32..20,
        ) {
            let scale = (exponent as f32).exp2();
            let cache = Cache::new(20, 0.01);
            let scaled = |window: &[f32]| window.iter().map(|x| x * scale).collect::<Vec<f32>>();
            for (i, window) in windows.iter().enumerate() {
                cache.insert(&scaled(window), &forecast(i as f32));
            }
            let kept = windows.len().saturating_sub(20);
            let mut wanted = pick.get(&windows).clone();
            wanted.iter_mut().zip(noise).for_each(|(x, noise)| *x += noise);
            let wanted = scaled(&wanted);
            let is_near = |window: &Vec<f32>| {
                let window = scaled(window);
                let most = window.iter().fold(0.0f64, |most, x| most.max(f64::from(x.abs())));
                window.iter().zip(&wanted).all(|(a, b)| (f64::from(*a) - f64::from(*b)).abs() <= 0.01 * most)
            };
            match cache.get(&wanted) {
                Some(found) => prop_assert!(is_near(&windows[found.values[0] as usize])),
                None => prop_assert!(!windows[kept..].iter().any(is_near)),
            }
        }
    }
}
