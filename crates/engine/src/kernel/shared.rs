//! Memory that several threads access at the same time, each its own elements.

#![expect(unsafe_code, reason = "several threads write disjoint elements of one slice")]

use std::marker::PhantomData;

/// Pointer to memory that several threads share. No thread accesses an element that another one writes.
#[derive(Clone, Copy)]
pub struct SharedPtr<T>(pub *mut T);

// SAFETY: no thread accesses an element that another one writes.
unsafe impl<T: Send> Send for SharedPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    /// # Safety
    /// The elements are within the memory, and nothing writes them during `'a`.
    pub unsafe fn read<'a>(&self, begin: usize, len: usize) -> &'a [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.0.add(begin), len) }
    }

    /// # Safety
    /// The elements are within the memory, and nothing else reads or writes them during `'a`.
    pub unsafe fn write<'a>(&self, begin: usize, len: usize) -> &'a mut [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(begin), len) }
    }
}

/// Slice that the chunks of a parallel loop read and write concurrently. Every access is checked against its bounds; that
/// accesses do not alias is guaranteed by whoever creates it.
pub(crate) struct SharedSlice<'a, T> {
    begin: SharedPtr<T>,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<'a, T: Copy> SharedSlice<'a, T> {
    /// # Safety
    /// No chunk of the loop writes an element that another one reads or writes, and no chunk keeps a slice of elements that
    /// it writes later.
    pub unsafe fn new(memory: &'a mut [T]) -> SharedSlice<'a, T> {
        SharedSlice { begin: SharedPtr(memory.as_mut_ptr()), len: memory.len(), life: PhantomData }
    }

    #[inline(always)]
    fn check(&self, begin: usize, span: usize) {
        assert!(span <= self.len && begin <= self.len - span, "chunk out of bounds of the shared memory");
    }

    /// Returns elements that no other chunk writes.
    #[inline(always)]
    pub fn read(&self, begin: usize, len: usize) -> &[T] {
        self.check(begin, len);
        // SAFETY: in bounds, and no other chunk writes them.
        unsafe { self.begin.read(begin, len) }
    }

    /// Returns elements that no other chunk reads or writes.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the memory is shared, the elements are not")]
    pub fn write(&self, begin: usize, len: usize) -> &mut [T] {
        self.check(begin, len);
        // SAFETY: in bounds, and accessed by this chunk only.
        unsafe { self.begin.write(begin, len) }
    }

    /// Gathers every `stride`th element from `begin` on. Other chunks may write the elements in between.
    #[inline(always)]
    pub fn read_every(&self, begin: usize, stride: usize, to: &mut [T]) {
        match stride {
            // The compiler vectorises loops with a constant stride.
            2 => self.read_stride(begin, 2, to),
            4 => self.read_stride(begin, 4, to),
            _ => self.read_stride(begin, stride, to),
        }
    }

    #[inline(always)]
    fn read_stride(&self, begin: usize, stride: usize, to: &mut [T]) {
        self.check(begin, span(to.len(), stride));
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: the last element is in bounds, and no other chunk writes them.
            *to = unsafe { self.begin.0.add(begin + i * stride).read() };
        }
    }

    /// Scatters to every `stride`th element from `begin` on.
    #[inline(always)]
    pub fn write_every(&self, begin: usize, stride: usize, from: &[T]) {
        self.check(begin, span(from.len(), stride));
        for (i, &from) in from.iter().enumerate() {
            // SAFETY: the last element is in bounds, and they are accessed by this chunk only.
            unsafe { self.begin.0.add(begin + i * stride).write(from) };
        }
    }

    /// Prefetches the cache lines of a range, as far as it is in bounds.
    #[inline(always)]
    pub fn prefetch(&self, begin: usize, len: usize) {
        let line = crate::buffer::ALIGNMENT / size_of::<T>().max(1);
        for at in (begin..self.len.min(begin.saturating_add(len))).step_by(line.max(1)) {
            super::prefetch_line(self.begin.0.wrapping_add(at));
        }
    }
}

/// Number of elements from the first to the last of `len` elements with a stride.
fn span(len: usize, stride: usize) -> usize {
    len.checked_sub(1).map_or(0, |steps| steps.saturating_mul(stride).saturating_add(1))
}
