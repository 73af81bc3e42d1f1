//! Memory for numbers: aligned to cache lines, zeroed, and in huge pages where it is large.
//!
//! A pass over memory that is too large for the caches needs a translation for every page. Pages of 4 kB make an addition
//! of 16 million numbers almost twice as slow as pages of 2 MB, so large buffers ask the system for those.

#![expect(unsafe_code, reason = "bytes that the system zeroed are given a type")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::dtype::Element;

/// Bytes of a cache line, and the alignment of every buffer.
pub const ALIGNMENT: usize = 64;

/// Bytes from which on huge pages are asked for.
const LARGE: usize = 4 << 20;

/// Bytes of a huge page, to whose multiples large buffers are aligned.
const HUGE_PAGE: usize = 2 << 20;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

enum Memory {
    /// From the heap.
    Lines(Vec<Line>),
    /// Pages from the system; the buffer begins at `start`.
    Pages { pages: MmapMut, start: usize },
}

/// A slice of numbers with an address that is a multiple of 64, filled with zeros at first.
///
/// ```
/// use gatework_engine::buffer::Buffer;
///
/// let mut buffer = Buffer::<f32>::zeroed(1000);
/// buffer[3] = 1.5;
/// assert_eq!(buffer[..4], [0.0, 0.0, 0.0, 1.5]);
/// ```
pub struct Buffer<T> {
    memory: Memory,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        // A length that does not fit into memory ends the program in the allocator, as it does with a `Vec`.
        let bytes = len.saturating_mul(size_of::<T>());
        let memory = large_pages(bytes)
            .unwrap_or_else(|| Memory::Lines(vec![Line([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)]));
        Self { memory, len, element: PhantomData }
    }

    fn start(&self) -> *const T {
        match &self.memory {
            Memory::Lines(lines) => lines.as_ptr().cast(),
            Memory::Pages { pages, start } => pages[*start..].as_ptr().cast(),
        }
    }

    fn start_mut(&mut self) -> *mut T {
        match &mut self.memory {
            Memory::Lines(lines) => lines.as_mut_ptr().cast(),
            Memory::Pages { pages, start } => pages[*start..].as_mut_ptr().cast(),
        }
    }
}

/// Pages for that many bytes, if they are many and the system has them.
fn large_pages(bytes: usize) -> Option<Memory> {
    if bytes < LARGE || cfg!(miri) {
        return None;
    }
    let pages = MmapMut::map_anon(bytes.checked_add(HUGE_PAGE)?).ok()?;
    // Without huge pages the buffer is only slower.
    #[cfg(target_os = "linux")]
    let _ = pages.advise(memmap2::Advice::HugePage);
    let start = pages.as_ptr().align_offset(HUGE_PAGE);
    (start <= HUGE_PAGE).then_some(Memory::Pages { pages, start })
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory begins at a multiple of 64, holds at least `len` elements of `T` (checked when it was made)
        // and is initialised; every pattern of bits is a valid `T`, since `Element` is sealed and has numbers only. The
        // buffer owns it, so it lives as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start_mut(), self.len) }
    }
}

impl<T: Element> Default for Buffer<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Element> From<&[T]> for Buffer<T> {
    fn from(values: &[T]) -> Self {
        let mut buffer = Self::zeroed(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl<T: Element> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T: Element> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_length_are_aligned_and_zero() {
        let large = if cfg!(miri) { 2000 } else { LARGE / 4 };
        for len in [0, 1, 15, 16, 17, 1000, large, large + 1] {
            let buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            assert!(buffer.iter().all(|&x| x.to_bits() == 0));
        }
    }

    #[test]
    fn what_is_written_can_be_read_and_cloned() {
        for len in [3, if cfg!(miri) { 500 } else { LARGE / 8 + 5 }] {
            let mut buffer = Buffer::<i64>::zeroed(len);
            for (i, x) in buffer.iter_mut().enumerate() {
                *x = i as i64;
            }
            let clone = buffer.clone();
            buffer[0] = 7;
            assert!(clone.iter().enumerate().all(|(i, &x)| x == i as i64));
            assert_ne!(buffer, clone);
        }
    }
}
