//! Memory that several threads work on, each on elements of its own.

#![expect(unsafe_code, reason = "one slice is written by several threads; what they write lies apart")]

/// One slice of memory. The threads that share it write to elements that no other reads or writes.
#[derive(Clone, Copy)]
pub(super) struct Shared<T>(pub *mut T);

// SAFETY: the threads write to elements that no other thread reads or writes.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    /// The elements lie in the memory, and nothing writes to them while the slice lives.
    pub unsafe fn read<'a>(self, begin: usize, len: usize) -> &'a [T] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(self.0.add(begin), len) }
    }

    /// # Safety
    /// The elements lie in the memory, and nothing else reads or writes them while the slice lives.
    pub unsafe fn write<'a>(self, begin: usize, len: usize) -> &'a mut [T] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(begin), len) }
    }
}
