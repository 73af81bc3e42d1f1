//! Work split into parts whose number does not depend on the number of threads.
//!
//! A result that is summed part by part, in the order of the parts, has the same bits with 1, 2 or 64
//! threads. [`parts`] says how many parts some work is worth, [`for_each`] runs them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Units of work (tiles, for example) that are not worth a second thread: waking it takes longer.
const FEW: usize = 16;

/// Multiplications from which on threads stay awake for all of some work: about a millisecond of one thread.
const MANY: usize = 1 << 26;

/// Parts at most: each has sums of its own, and they are added one after another.
const MOST_PARTS: usize = 64;

/// Into how many parts `units` of work that can be done at the same time (tiles of one step) are split, out of
/// `total` in all steps: a power of two, at least two units each, and few enough that the sums every part keeps
/// do not crowd the caches.
pub fn parts(units: usize, total: usize) -> usize {
    if total < FEW {
        return 1;
    }
    let at_most = power_of_two_below(units / 2);
    at_most.min(power_of_two_below(units / 16).clamp(4, MOST_PARTS))
}

fn power_of_two_below(n: usize) -> usize {
    if n == 0 { 1 } else { 1 << n.ilog2() }
}

/// The units of part `part` out of `parts`: contiguous, and of lengths that differ by one at most.
pub fn share(units: usize, part: usize, parts: usize) -> std::ops::Range<usize> {
    units * part / parts..units * (part + 1) / parts
}

/// Threads of the current pool.
pub fn threads() -> usize {
    rayon::current_num_threads().max(1)
}

/// Runs `work` of so many multiplications. If they are many, the other threads of the pool stay awake meanwhile and look for
/// what it shares with them: a thread that has gone to sleep takes longer to wake than a short kernel takes, and of a hundred
/// kernels in a row one after another would be over before anybody comes to help.
///
/// For work that has its pool to itself: a thread that waits for work of its own may come to attend to another's until that
/// ends.
pub fn attended<R>(multiplications: usize, work: impl FnOnce() -> R) -> R {
    /// Lets the others go, also if the work panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let others = threads() - 1;
    if others == 0 || multiplications < MANY {
        return work();
    }
    let ended = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let end = End(&ended);
        for _ in 0..others {
            scope.spawn(|_| {
                while !ended.load(Ordering::Relaxed) {
                    if rayon::yield_now() != Some(rayon::Yield::Executed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let result = work();
        drop(end);
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

/// Runs `work` on every index below `count`, on the threads of the current pool. One thread allocates nothing.
pub fn for_each_index(count: usize, work: impl Fn(usize) + Sync + Send) {
    use rayon::prelude::*;
    if count < 2 || threads() < 2 {
        (0..count).for_each(work);
    } else {
        (0..count).into_par_iter().with_max_len(1).for_each(work);
    }
}

/// Runs `work` on every index below `count`, on a thread for each of the workers: one that is free takes the next index. What
/// a worker keeps is its own, and which indices it has seen before is not known. One worker allocates nothing.
pub fn for_each_with<W: Send>(workers: &mut [W], count: usize, work: impl Fn(&mut W, usize) + Sync + Send) {
    use rayon::prelude::*;
    assert!(!workers.is_empty() || count == 0, "there is a worker");
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

/// Runs `work` on parts of `size` elements of a slice, each with its number and an item of its own, on the threads of the
/// current pool. The last part may be shorter.
///
/// # Panics
/// If there are fewer items than parts.
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
        let parts = slice.chunks_mut(size).zip(items).enumerate();
        parts.for_each(|(number, (part, item))| work(number, part, item));
    } else {
        let parts = slice.par_chunks_mut(size).zip(items).with_max_len(1).enumerate();
        parts.for_each(|(number, (part, item))| work(number, part, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attended_work_is_shared_and_those_who_wait_for_it_go_when_it_ends() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            for round in 0..20 {
                let meeting = std::sync::Barrier::new(3);
                // Nobody comes past the meeting unless all three threads take an index.
                let result = attended(MANY, || {
                    for_each_index(3, |_| _ = meeting.wait());
                    round
                });
                assert_eq!(result, round);
            }
            let nested = attended(MANY, || attended(MANY, || 7));
            assert_eq!(nested, 7);
            let panics = std::panic::catch_unwind(|| attended(MANY, || panic!("as it should")));
            assert!(panics.is_err());
        });
        // From a thread that is none of a pool, too.
        assert_eq!(attended(MANY, || 5), 5);
    }

    #[test]
    fn workers_take_every_index_once_and_work_at_the_same_time() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let meeting = std::sync::Barrier::new(3);
        let mut workers = [const { Vec::new() }; 3];
        pool.install(|| {
            for_each_with(&mut workers, 100, |seen, index| {
                // Nobody comes past the first three indices before all workers have one.
                if index < 3 {
                    meeting.wait();
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
    fn shares_cover_all_units_once() {
        for units in 0..100 {
            for parts in 1..10 {
                let covered: Vec<usize> = (0..parts).flat_map(|part| share(units, part, parts)).collect();
                assert_eq!(covered, (0..units).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn small_work_is_split_for_few_threads_and_large_work_for_many() {
        let parts_of = |units| parts(units, 20 * units);
        assert_eq!([0, 1, 2, 4, 8, 16, 60, 64, 128, 4096].map(parts_of), [1, 1, 1, 2, 4, 4, 4, 4, 8, 64]);
        assert_eq!(parts(6, 6), 1, "too little for a second thread");
    }
}
