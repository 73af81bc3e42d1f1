//! Memory that several threads work on, each on elements of its own.

#![expect(unsafe_code, reason = "one slice is written by several threads; what they write lies apart")]

use std::marker::PhantomData;

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

/// Memory that the pieces of one piece of work read and write at the same time. Every access is checked against its end; what
/// cannot be checked is promised when it is made.
pub(crate) struct Divided<'a, T> {
    begin: Shared<T>,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<'a, T: Copy> Divided<'a, T> {
    /// # Safety
    /// No piece of the work writes an element that another reads or writes, and none keeps a slice of what it writes next.
    pub unsafe fn new(memory: &'a mut [T]) -> Divided<'a, T> {
        Divided { begin: Shared(memory.as_mut_ptr()), len: memory.len(), life: PhantomData }
    }

    #[inline(always)]
    fn check(&self, begin: usize, span: usize) {
        assert!(span <= self.len && begin <= self.len - span, "pieces lie in the memory");
    }

    /// Elements that the piece reads.
    #[inline(always)]
    pub fn read(&self, begin: usize, len: usize) -> &[T] {
        self.check(begin, len);
        // SAFETY: they lie in the memory, and no other piece writes them.
        unsafe { self.begin.read(begin, len) }
    }

    /// Elements that no other piece reads or writes.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the memory is shared, the elements are not")]
    pub fn write(&self, begin: usize, len: usize) -> &mut [T] {
        self.check(begin, len);
        // SAFETY: they lie in the memory, and are this piece's alone.
        unsafe { self.begin.write(begin, len) }
    }

    /// Copies every `stride`th element from `begin` on. What lies between them may be another piece's.
    #[inline(always)]
    pub fn read_every(&self, begin: usize, stride: usize, to: &mut [T]) {
        match stride {
            // With a stride that it knows, the compiler makes vectors of them.
            2 => self.read_stride(begin, 2, to),
            4 => self.read_stride(begin, 4, to),
            _ => self.read_stride(begin, stride, to),
        }
    }

    #[inline(always)]
    fn read_stride(&self, begin: usize, stride: usize, to: &mut [T]) {
        self.check(begin, span(to.len(), stride));
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: the last one lies in the memory, and no other piece writes them.
            *to = unsafe { self.begin.0.add(begin + i * stride).read() };
        }
    }

    /// Copies to every `stride`th element from `begin` on.
    #[inline(always)]
    pub fn write_every(&self, begin: usize, stride: usize, from: &[T]) {
        self.check(begin, span(from.len(), stride));
        for (i, &from) in from.iter().enumerate() {
            // SAFETY: the last one lies in the memory, and they are this piece's alone.
            unsafe { self.begin.0.add(begin + i * stride).write(from) };
        }
    }

    /// Asks for the cache lines of elements that are read soon, as far as they lie in the memory.
    #[inline(always)]
    pub fn prefetch(&self, begin: usize, len: usize) {
        let line = crate::buffer::ALIGNMENT / size_of::<T>().max(1);
        for at in (begin..self.len.min(begin.saturating_add(len))).step_by(line.max(1)) {
            super::prefetch_line(self.begin.0.wrapping_add(at));
        }
    }
}

/// Elements from the first to the last of some, every `stride`th.
fn span(len: usize, stride: usize) -> usize {
    len.checked_sub(1).map_or(0, |steps| steps.saturating_mul(stride).saturating_add(1))
}
