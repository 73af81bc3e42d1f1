//! Short parallel loops: the caller starts at once, and other workers claim chunks as soon as they are awake.
//!
//! ```text
//! caller   opens its board, requests helpers if there are too few, claims chunks until none is left, closes the board,
//!          waits for the helpers that are inside a chunk
//! helper   a job in the rayon pool: requests further helpers; while the board is open, claims chunks; spins, running
//!          other jobs of the pool if there are any, until SPIN after the last loop
//! ```
//!
//! Waking a thread takes longer than adding a hundred thousand numbers. Nothing here waits for a thread that has not started:
//! if no helper arrives in time, the caller computes all chunks itself. After a loop the helpers spin for some
//! microseconds, so that the next loop of a sequence finds them awake.

#![expect(unsafe_code, reason = "helpers borrow the loop of their caller, which waits for them")]

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use super::{chunk_range, threads};
use crate::kernel::SharedPtr;

/// How long helpers spin after a loop, in nanoseconds. Loops with smaller gaps are a sequence.
const SPIN: u64 = 50_000;

/// Helpers that a thread requests at a time. A request for a sleeping thread is a system call, so helpers request others.
const REQUESTS: usize = 2;

/// Rounds of spinning between two looks at the clock and at other jobs of the pool.
const ROUNDS: u32 = 64;

/// Set in [`Board::state`] while there is a loop. The other bits count the helpers inside, in steps of [`INSIDE`].
const OPEN: usize = 1;
const INSIDE: usize = 2;

/// Largest number of segments of a loop.
const MAX_SEGMENTS: usize = 16;

/// A loop, on the stack of its caller. Its chunks are divided into a segment for each thread, which is where that thread
/// begins: the chunks of the next loop over the same memory are then in the caches of the same core.
struct Loop<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    count: usize,
    segments: usize,
    /// The chunks of each segment that are claimed.
    claimed: [Counter; MAX_SEGMENTS],
}

/// A counter in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicUsize);

impl Loop<'_> {
    /// Runs chunks until all are claimed, beginning with a segment. Returns whether there were any.
    fn claim(&self, first: usize) -> bool {
        let mut has_work = false;
        for segment in 0..self.segments {
            let segment = (first + segment) % self.segments;
            let (chunks, claimed) =
                (chunk_range(self.count, segment, self.segments), &self.claimed[segment].0);
            // Looks before it counts, so that the counter cannot overflow.
            while claimed.load(Ordering::Relaxed) < chunks.len() {
                let index = claimed.fetch_add(1, Ordering::Relaxed);
                if index < chunks.len() {
                    has_work = true;
                    (self.work)(chunks.start + index);
                }
            }
        }
        has_work
    }
}

/// Which threads take part in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Sleeping threads are woken. For loops that take longer than that.
    Always,
    /// Sleeping threads are woken only if the caller ran another loop just before, so that there will probably be a next one.
    InSequence,
}

/// Where a thread publishes its loops. A helper belongs to one board.
#[derive(Default)]
struct Board {
    /// [`OPEN`] and the number of helpers inside.
    state: AtomicUsize,
    /// The loop; valid while the board is open or a helper is inside.
    current: AtomicPtr<Loop<'static>>,
    /// Helpers that were requested and have not returned, and the number that the current loop can use.
    helpers: AtomicUsize,
    wanted: AtomicUsize,
    /// When the last loop ended.
    last: AtomicU64,
    /// The panic of a helper.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    static BOARD: Arc<Board> = Arc::default();
    /// Whether this thread is a spinning helper.
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

/// Returns the time in nanoseconds since the first call, at least [`SPIN`].
fn now() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed().as_nanos() as u64 + SPIN
}

/// Runs `work` on every index below `count`, on this thread and on those threads of the current pool that are awake in time.
///
/// `work` should take some microseconds. A loop of this kind within `work` may run on one thread.
pub fn for_each_claimed(count: usize, wake: Wake, work: impl Fn(usize) + Sync) {
    let threads = threads().min(count);
    if threads < 2 {
        return (0..count).for_each(work);
    }
    let segments = threads.min(MAX_SEGMENTS);
    let job = Loop { work: &work, count, segments, claimed: Default::default() };
    BOARD.with(|board| board.run(&job, threads - 1, wake));
}

/// Runs `work` on chunks of `size` elements of a slice, each with its index and its own item, as [`for_each_claimed`]. The
/// last chunk may be shorter.
///
/// # Panics
/// If there are fewer items than chunks.
pub fn for_each_claimed_chunk<T: Send + Sync, W: Send + Sync>(
    slice: &mut [T],
    size: usize,
    items: &mut [W],
    wake: Wake,
    work: impl Fn(usize, &mut [T], &mut W) + Sync,
) {
    let (size, len) = (size.max(1), slice.len());
    let count = len.div_ceil(size);
    assert!(items.len() >= count, "{} items for {count} chunks", items.len());
    let (slice, items) = (SharedPtr(slice.as_mut_ptr()), SharedPtr(items.as_mut_ptr()));
    for_each_claimed(count, wake, |index| {
        let begin = index * size;
        // SAFETY: the chunk is within the slice and the item within the items, which are borrowed exclusively, and every index
        // is claimed once.
        let (chunk, item) =
            unsafe { (slice.write(begin, size.min(len - begin)), &mut items.write(index, 1)[0]) };
        work(index, chunk, item);
    });
}

/// Closes a board and waits for its helpers, also during a panic.
struct Close<'a>(&'a Board);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let Board { state, last, .. } = self.0;
        last.store(now(), Ordering::Relaxed);
        state.fetch_and(!OPEN, Ordering::Relaxed);
        let mut rounds = 0u32;
        while state.load(Ordering::Acquire) != 0 {
            rounds = rounds.wrapping_add(1);
            // The helper may have lost its processor.
            if rounds.is_multiple_of(1 << 12) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        if std::thread::panicking() {
            // The panic of this thread goes on; that of a helper must not reach the next loop.
            self.0.take_panic();
        }
    }
}

impl Board {
    /// Runs a loop with up to `others` helpers.
    fn run(self: &Arc<Self>, job: &Loop<'_>, others: usize, wake: Wake) {
        if self.state.load(Ordering::Relaxed) != 0 {
            // A loop within a chunk of this thread.
            job.claim(0);
            return;
        }
        self.current.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        // In one order with the count of helpers: either this thread sees that a helper is gone, or the helper sees the loop.
        self.state.swap(OPEN, Ordering::SeqCst);
        let close = Close(self);
        if wake == Wake::Always || now() < self.last.load(Ordering::Relaxed) + SPIN {
            self.wanted.store(others, Ordering::Relaxed);
            self.request();
        }
        job.claim(0);
        drop(close);
        if let Some(panic) = self.take_panic() {
            resume_unwind(panic);
        }
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Requests a few of the helpers that are missing.
    fn request(self: &Arc<Self>) {
        let missing = self.wanted.load(Ordering::Relaxed).saturating_sub(self.helpers.load(Ordering::SeqCst));
        for _ in 0..missing.min(REQUESTS) {
            let index = 1 + self.helpers.fetch_add(1, Ordering::Relaxed);
            let board = Arc::clone(self);
            rayon::spawn(move || board.help(index));
        }
    }

    /// Claims chunks of the loops of this board until there has been none for some time. `index` is the segment that it
    /// begins with.
    fn help(self: &Arc<Self>, index: usize) {
        // A helper that waits for work may find the request for another one.
        if !IS_HELPER.replace(true) {
            self.request_if_open();
            loop {
                let has_worked = (0..ROUNDS).any(|_| self.enter(index));
                let is_idle = || rayon::yield_now() != Some(rayon::Yield::Executed);
                if !has_worked && is_idle() && now() > self.last.load(Ordering::Relaxed) + SPIN {
                    break;
                }
            }
            IS_HELPER.set(false);
        }
        self.helpers.fetch_sub(1, Ordering::SeqCst);
        self.request_if_open();
    }

    /// Requests helpers for a loop that has begun.
    fn request_if_open(self: &Arc<Self>) {
        if self.state.load(Ordering::SeqCst) & OPEN != 0 {
            self.request();
        }
    }

    /// Claims chunks if the board is open; returns whether there were any.
    fn enter(&self, index: usize) -> bool {
        std::hint::spin_loop();
        let state = self.state.load(Ordering::Relaxed);
        let inside = state + INSIDE;
        if state & OPEN == 0
            || self.state.compare_exchange(state, inside, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // SAFETY: the board was open when this helper entered, so its caller has stored a loop and does not return before this
        // helper has left.
        let job = unsafe { &*self.current.load(Ordering::Relaxed) };
        let has_work = catch_unwind(AssertUnwindSafe(|| job.claim(index))).unwrap_or_else(|panic| {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            true
        });
        self.state.fetch_sub(INSIDE, Ordering::Release);
        has_work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn every_index_is_claimed_once() {
        for threads in [1, 2, 3] {
            pool(threads).install(|| {
                for count in (0..20).chain([1000]) {
                    let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    for_each_claimed(count, Wake::InSequence, |index| {
                        _ = seen[index].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1), "{threads} {count}");
                }
            });
        }
    }

    #[test]
    fn helpers_take_part_and_serve_many_loops() {
        pool(3).install(|| {
            for _ in 0..50 {
                // Blocks unless all three threads take a chunk.
                let barrier = Barrier::new(3);
                for_each_claimed(3, Wake::Always, |_| _ = barrier.wait());
            }
        });
    }

    #[test]
    fn callers_outside_of_a_pool_and_nested_loops_finish() {
        let sum = AtomicUsize::new(0);
        for_each_claimed(10, Wake::Always, |outer| {
            for_each_claimed(10, Wake::Always, |inner| {
                _ = sum.fetch_add(10 * outer + inner, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), (0..100usize).sum::<usize>());
    }

    #[test]
    fn many_callers_share_a_pool() {
        let pool = pool(4);
        let total = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|_| {
                    for _ in 0..100 {
                        for_each_claimed(7, Wake::InSequence, |index| {
                            _ = total.fetch_add(index, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 8 * 100 * 21);
    }

    #[test]
    fn a_panic_in_any_chunk_reaches_the_caller_and_the_next_loop_works() {
        pool(2).install(|| {
            for panicking in 0..4 {
                let barrier = Barrier::new(2);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    for_each_claimed(4, Wake::Always, |index| {
                        if index < 2 {
                            barrier.wait();
                        }
                        assert!(index != panicking && index != 3 - panicking, "expected");
                    });
                }));
                assert!(result.is_err());
                let count = AtomicUsize::new(0);
                for_each_claimed(5, Wake::Always, |_| _ = count.fetch_add(1, Ordering::Relaxed));
                assert_eq!(count.into_inner(), 5);
            }
        });
    }

    #[test]
    fn chunks_are_disjoint_and_have_their_own_items() {
        pool(3).install(|| {
            for (len, size) in [(0, 3), (1, 3), (10, 3), (1000, 7), (5, 0)] {
                let (mut slice, mut items) = (vec![0; len], vec![0; len.div_ceil(size.max(1))]);
                for_each_claimed_chunk(&mut slice, size, &mut items, Wake::Always, |index, chunk, item| {
                    chunk.fill(index + 1);
                    *item += chunk.len();
                });
                assert!(slice.iter().enumerate().all(|(i, &x)| x == i / size.max(1) + 1));
                assert_eq!(items.iter().sum::<usize>(), len);
            }
        });
    }
}
