//! Buffers of numbers: aligned to cache lines, zeroed, and in huge pages if they are large.
//!
//! A pass over memory that exceeds the caches needs an address translation per page. Adding 16 million numbers takes almost
//! twice as long with pages of 4 kB as with pages of 2 MB, so large buffers request huge pages.

#![expect(unsafe_code, reason = "zeroed bytes are reinterpreted as numbers")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::dtype::Element;

/// A type that buffers hold: an [`Element`], or the bits of a 16-bit floating-point number.
pub trait Stored: Copy + PartialEq + fmt::Debug + sealed::Sealed {}

impl<T: Element> Stored for T {}
impl Stored for u16 {}

mod sealed {
    pub trait Sealed {}
    impl<T: super::Element> Sealed for T {}
    impl Sealed for u16 {}
}

/// Alignment of every buffer in bytes: a cache line.
pub const ALIGNMENT: usize = 64;

/// Smallest buffer in bytes for which huge pages are requested.
const HUGE_PAGES_MIN_BYTES: usize = 4 << 20;

/// Bytes of a huge page, and the alignment of large buffers.
const HUGE_PAGE: usize = 2 << 20;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

enum Memory {
    /// Allocated from the heap.
    Lines(Vec<Line>),
    /// Mapped pages; the buffer begins at offset `start`.
    Pages { pages: MmapMut, start: usize },
}

/// Owned slice of numbers, aligned to 64 bytes and initially zero.
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

impl<T: Stored> Buffer<T> {
    /// Creates a buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        // A length that exceeds the memory aborts in the allocator, as with a `Vec`.
        let bytes = len.saturating_mul(size_of::<T>());
        let memory = map_huge_pages(bytes)
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

/// Maps pages for a large buffer, or returns `None` if it is small or mapping fails.
fn map_huge_pages(bytes: usize) -> Option<Memory> {
    if bytes < HUGE_PAGES_MIN_BYTES || cfg!(miri) {
        return None;
    }
    let pages = MmapMut::map_anon(bytes.checked_add(HUGE_PAGE)?).ok()?;
    // Best effort: without huge pages the buffer is only slower.
    #[cfg(target_os = "linux")]
    let _ = pages.advise(memmap2::Advice::HugePage);
    let start = pages.as_ptr().align_offset(HUGE_PAGE);
    (start <= HUGE_PAGE).then_some(Memory::Pages { pages, start })
}

impl<T: Stored> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory is aligned to 64 bytes, has room for `len` elements of `T` (ensured by `zeroed`) and is
        // initialised; every bit pattern is a valid `T`, since `Stored` is sealed and implemented for numbers only. The
        // buffer owns the memory, so it outlives the borrow.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl<T: Stored> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start_mut(), self.len) }
    }
}

impl<T: Stored> Default for Buffer<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Stored> From<&[T]> for Buffer<T> {
    fn from(values: &[T]) -> Self {
        let mut buffer = Self::zeroed(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl<T: Stored> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T: Stored> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Stored> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_length_are_aligned_and_zero() {
        let large = if cfg!(miri) { 2000 } else { HUGE_PAGES_MIN_BYTES / 4 };
        for len in [0, 1, 15, 16, 17, 1000, large, large + 1] {
            let buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            assert!(buffer.iter().all(|&x| x.to_bits() == 0));
        }
    }

    #[test]
    fn written_elements_can_be_read_and_cloned() {
        for len in [3, if cfg!(miri) { 500 } else { HUGE_PAGES_MIN_BYTES / 8 + 5 }] {
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
