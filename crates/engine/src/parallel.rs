//! Parallel loops over chunks of work whose number does not depend on the number of threads.
//!
//! A sum that is taken chunk by chunk, in the order of the chunks, has the same bits with 1, 2 or 64 threads.
//! [`chunk_count`] decides how many chunks some work is split into, [`chunk_range`] which units belong to a chunk, and
//! [`for_each`] runs them. [`for_each_claimed`] is for loops that take microseconds, for which [`for_each`] would wake threads
//! too late.

mod claim;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use claim::{Wake, for_each_claimed, for_each_claimed_chunk};

/// Fewer units of work (tiles, for example) than this run on one thread: waking a second one takes longer.
const MIN_PARALLEL_UNITS: usize = 16;

/// Fewest multiplications for which idle workers spin instead of going to sleep: about a millisecond of one thread.
const SPIN_MIN_MULTIPLICATIONS: usize = 1 << 26;

/// Largest number of chunks: each has partial sums of its own, which are added sequentially.
const MAX_CHUNKS: usize = 64;

/// Returns the number of chunks for `units` of work that can run concurrently (the tiles of one step), out of `total` units
/// in all steps: a power of two, with at least two units per chunk, and few enough that the partial sums of all chunks stay
/// in the caches.
pub fn chunk_count(units: usize, total: usize) -> usize {
    if total < MIN_PARALLEL_UNITS {
        return 1;
    }
    let at_most = power_of_two_below(units / 2);
    at_most.min(power_of_two_below(units / 16).clamp(4, MAX_CHUNKS))
}

fn power_of_two_below(n: usize) -> usize {
    if n == 0 { 1 } else { 1 << n.ilog2() }
}

/// Returns the units of chunk `chunk` out of `chunks`. The ranges are contiguous, and their lengths differ by at most one.
pub fn chunk_range(units: usize, chunk: usize, chunks: usize) -> std::ops::Range<usize> {
    units * chunk / chunks..units * (chunk + 1) / chunks
}

/// Returns the number of threads of the current pool.
pub fn threads() -> usize {
    rayon::current_num_threads().max(1)
}

/// Runs `work`, which takes about `multiplications` multiplications. If there are many, the other workers of the pool
/// spin-wait for parallel loops of `work` until it returns. Waking a sleeping thread takes longer than a short kernel runs,
/// so without spinning most kernels of a long sequence would finish before a second thread joins.
///
/// `work` should have the thread pool to itself: a worker that waits for its own subtask may pick up a spinning task and
/// leave it only when that task's `work` ends.
pub fn with_spinning_workers<R>(multiplications: usize, work: impl FnOnce() -> R) -> R {
    /// Stops the spinning workers when it is dropped, also during a panic.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let others = threads() - 1;
    if others == 0 || multiplications < SPIN_MIN_MULTIPLICATIONS {
        return work();
    }
    let is_done = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let stop = Stop(&is_done);
        for _ in 0..others {
            scope.spawn(|_| {
                while !is_done.load(Ordering::Relaxed) {
                    if rayon::yield_now() != Some(rayon::Yield::Executed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let result = work();
        drop(stop);
        result
    })
}

/// Runs `work` on every item, on the threads of the current pool.
pub fn for_each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync + Send) {
    use rayon::prelude::*;
    if items.len() < 2 || threads() < 2 {
        items.into_iter().for_each(work);
    } else {
        items.into_par_iter().with_max_len(1).for_each(work);
    }
}

/// Runs `work` on every index below `count`, on the threads of the current pool. Does not allocate if the pool
/// has one thread.
pub fn for_each_index(count: usize, work: impl Fn(usize) + Sync + Send) {
    use rayon::prelude::*;
    if count < 2 || threads() < 2 {
        (0..count).for_each(work);
    } else {
        (0..count).into_par_iter().with_max_len(1).for_each(work);
    }
}

/// Runs `work` on every index below `count`, with one thread per element of `workers`. The indices are assigned
/// dynamically, so which worker gets which index is not deterministic. Does not allocate if there is one worker.
pub fn for_each_with<W: Send>(workers: &mut [W], count: usize, work: impl Fn(&mut W, usize) + Sync + Send) {
    use rayon::prelude::*;
    assert!(!workers.is_empty() || count == 0, "no workers for {count} indices");
    if let [worker] = workers {
        (0..count).for_each(|index| work(worker, index));
        return;
    }
    let next = AtomicUsize::new(0);
    workers.par_iter_mut().with_max_len(1).for_each(|worker| {
        let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        indices.take_while(|&index| index < count).for_each(|index| work(worker, index));
    });
}

/// Runs `work` on chunks of `size` elements of a slice, each with its index and its own item, on the threads of the current
/// pool. The last chunk may be shorter.
///
/// # Panics
/// If there are fewer items than chunks.
pub fn for_each_chunk<T: Send, W: Send>(
    slice: &mut [T],
    size: usize,
    items: &mut [W],
    work: impl Fn(usize, &mut [T], &mut W) + Sync + Send,
) {
    use rayon::prelude::*;
    let size = size.max(1);
    let count = slice.len().div_ceil(size);
    let items = &mut items[..count];
    if count < 2 || threads() < 2 {
        let chunks = slice.chunks_mut(size).zip(items).enumerate();
        chunks.for_each(|(index, (chunk, item))| work(index, chunk, item));
    } else {
        let chunks = slice.par_chunks_mut(size).zip(items).with_max_len(1).enumerate();
        chunks.for_each(|(index, (chunk, item))| work(index, chunk, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_workers_share_the_work_and_stop_when_it_ends() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            for round in 0..20 {
                let barrier = std::sync::Barrier::new(3);
                // Blocks unless all three threads take an index.
                let result = with_spinning_workers(SPIN_MIN_MULTIPLICATIONS, || {
                    for_each_index(3, |_| _ = barrier.wait());
                    round
                });
                assert_eq!(result, round);
            }
            let nested = with_spinning_workers(SPIN_MIN_MULTIPLICATIONS, || {
                with_spinning_workers(SPIN_MIN_MULTIPLICATIONS, || 7)
            });
            assert_eq!(nested, 7);
            let panics = std::panic::catch_unwind(|| {
                with_spinning_workers(SPIN_MIN_MULTIPLICATIONS, || panic!("expected"))
            });
            assert!(panics.is_err());
        });
        // Also from a thread outside of any pool.
        assert_eq!(with_spinning_workers(SPIN_MIN_MULTIPLICATIONS, || 5), 5);
    }

    #[test]
    fn workers_take_every_index_once_and_work_at_the_same_time() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let barrier = std::sync::Barrier::new(3);
        let mut workers = [const { Vec::new() }; 3];
        pool.install(|| {
            for_each_with(&mut workers, 100, |seen, index| {
                // Blocks until every worker has one of the first three indices.
                if index < 3 {
                    barrier.wait();
                }
                seen.push(index);
            });
        });
        assert!(workers.iter().all(|seen| !seen.is_empty()));
        let mut seen = workers.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn chunk_ranges_cover_all_units_once() {
        for units in 0..100 {
            for chunks in 1..10 {
                let covered: Vec<usize> =
                    (0..chunks).flat_map(|chunk| chunk_range(units, chunk, chunks)).collect();
                assert_eq!(covered, (0..units).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn chunk_counts_grow_with_the_work() {
        let chunks_of = |units| chunk_count(units, 20 * units);
        assert_eq!([0, 1, 2, 4, 8, 16, 60, 64, 128, 4096].map(chunks_of), [1, 1, 1, 2, 4, 4, 4, 4, 8, 64]);
        assert_eq!(chunk_count(6, 6), 1, "too little for a second thread");
    }
}
