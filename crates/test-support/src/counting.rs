//! An allocator that counts, for tests that show that nothing is allocated, or not more than a limit.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement; this one delegates to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts allocations and delegates them to the system. A test makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Allocations of this thread.
    static OF_THREAD: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread has allocated, less those that it has released. Negative if it released memory of other threads.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The maximum of `HELD` since it was last set.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    OF_THREAD.set(OF_THREAD.get() + 1);
}

fn hold(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is delegated to the system's allocator. The counters do not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of allocations of the whole process so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Returns the number of allocations of the calling thread so far. Unlike [`allocations`], it leaves out what the test harness does
/// at the same time in its own thread.
pub fn allocations_of_thread() -> usize {
    OF_THREAD.get()
}

/// Does some work and returns, with its result, the maximum number of bytes that the calling thread held at a time, in addition
/// to those that it held before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get().saturating_sub(before).cast_unsigned())
}
