//! A cache of compiled programs.

use std::sync::Arc;

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::FxBuildHasher;

use super::{Program, ProgramError};
use crate::graph::Graph;

/// A thread-safe cache of compiled programs of limited size: a graph that was compiled before costs a hash and a comparison.
///
/// Graphs are compared node by node, so no collision of hashes can return the program of another graph. The comparison is that of
/// the graphs as they were built, not of their canonical forms: finding these would cost a good part of a compilation, and
/// the same code builds the same graph. A program that is being compiled by one thread is awaited by the others.
///
/// ```
/// use gatework_engine::program::ProgramCache;
/// use gatework_engine::{DType, Scope};
///
/// let cache = ProgramCache::new(16);
/// let double = |rows: usize| {
///     let scope = Scope::new();
///     let x = scope.input("x", DType::F32, &[rows]);
///     cache.get(&scope.graph(&[("y", x + x)])?)
/// };
/// for rows in [8, 9, 8, 9] {
///     assert!(double(rows)?.bytes() > 0);
/// }
/// assert_eq!(cache.len(), 2);
/// # Ok::<(), gatework_engine::program::ProgramError>(())
/// ```
#[derive(Debug)]
pub struct ProgramCache {
    programs: Cache<Graph, Arc<Program>, UnitWeighter, FxBuildHasher>,
}

impl ProgramCache {
    /// Creates a cache for this many programs. The least useful ones are dropped when there are more.
    pub fn new(capacity: usize) -> ProgramCache {
        let lifecycle = DefaultLifecycle::default();
        ProgramCache {
            programs: Cache::with(capacity, capacity as u64, UnitWeighter, FxBuildHasher, lifecycle),
        }
    }

    /// Returns the program of a graph, which is compiled if it is not in the cache. Errors are not kept.
    pub fn get(&self, graph: &Graph) -> Result<Arc<Program>, ProgramError> {
        self.programs.get_or_insert_with(graph, || Program::new(graph).map(Arc::new))
    }

    /// The number of programs in the cache.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether there are no programs in the cache.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Scope};

    fn graph(rows: usize, factor: f64) -> Graph {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[rows]);
        scope.graph(&[("y", (x * factor).exp())]).unwrap()
    }

    #[test]
    fn equal_graphs_share_a_program_and_others_do_not() {
        let cache = ProgramCache::new(8);
        let first = cache.get(&graph(4, 2.0)).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get(&graph(4, 2.0)).unwrap()));
        for other in [graph(5, 2.0), graph(4, 3.0)] {
            assert!(!Arc::ptr_eq(&first, &cache.get(&other).unwrap()));
        }
        let relaxed = {
            let scope = Scope::relaxed();
            let x = scope.input("x", DType::F32, &[4]);
            scope.graph(&[("y", (x * 2.0).exp())]).unwrap()
        };
        assert!(!Arc::ptr_eq(&first, &cache.get(&relaxed).unwrap()));
        assert_eq!((cache.len(), cache.is_empty()), (4, false));
    }

    #[test]
    fn the_number_of_programs_is_limited_and_errors_are_not_kept() {
        let cache = ProgramCache::new(4);
        for rows in 1..50 {
            cache.get(&graph(rows, 1.0)).unwrap();
        }
        assert!(cache.len() <= 4, "{}", cache.len());
        let empty = ProgramCache::new(4);
        assert_eq!(empty.get(&Graph::new()).unwrap_err(), ProgramError::NoOutputs);
        assert!(empty.is_empty());
        // A cache without capacity compiles every time.
        assert!(ProgramCache::new(0).get(&graph(1, 1.0)).is_ok());
    }

    #[test]
    fn threads_share_one_compilation() {
        let cache = ProgramCache::new(8);
        let programs: Vec<Arc<Program>> = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| cache.get(&graph(4, 2.0)).unwrap())).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert!(programs.iter().all(|program| Arc::ptr_eq(program, &programs[0])));
    }
}
