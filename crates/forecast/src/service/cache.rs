//! Results that were computed before, keyed by the model and everything the result depends on.
//!
//! Keys are compared in full: two inputs never share a result because their hashes are equal. There are two
//! generations: what is asked for moves to the young one; when that is full, the old one is forgotten and the young one
//! becomes old. So at most twice the capacity is kept, and what was asked for lately stays.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// How often results were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Results that were there.
    pub hits: u64,
    /// Results that had to be computed.
    pub misses: u64,
    /// Batches that went through the model.
    pub batches: u64,
}

impl Statistics {
    /// Share of the results that were there; 0 before the first question.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// Remembers results.
#[derive(Clone, Debug)]
pub struct Cache<K, V> {
    capacity: usize,
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    /// A cache for so many results of a generation; with 0 it remembers nothing.
    pub fn new(capacity: usize) -> Cache<K, V> {
        Cache { capacity, young: FxHashMap::default(), old: FxHashMap::default() }
    }

    /// The result of a key.
    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Remembers a result.
    pub fn insert(&mut self, key: K, value: V) {
        if self.capacity == 0 {
            return;
        }
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Results that are remembered.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// True if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out_and_nothing_else() {
        let mut cache = Cache::new(4);
        cache.insert(1, "one");
        assert_eq!((cache.get(&1), cache.get(&2)), (Some("one"), None));
    }

    #[test]
    fn it_stays_bounded_and_keeps_what_is_asked_for() {
        let mut cache = Cache::new(10);
        for key in 0..1000 {
            cache.insert(key, key);
            assert!(cache.get(&0).is_some(), "asked for every time, at {key}");
            assert!(cache.len() <= 20);
        }
        assert_eq!(cache.get(&5), None);
        assert_eq!(cache.get(&999), Some(999));
    }

    #[test]
    fn without_capacity_nothing_is_remembered() {
        let mut cache = Cache::new(0);
        cache.insert(1, 1);
        assert!(cache.is_empty() && cache.get(&1).is_none());
    }

    #[test]
    fn the_hit_rate_is_that_of_the_questions() {
        assert_eq!(Statistics { hits: 3, misses: 1, batches: 1 }.hit_rate(), 0.75);
        assert_eq!(Statistics::default().hit_rate(), 0.0);
    }
}
