//! Conway's Life written by hand for AVX2, to compare compiled circuits with.
//!
//! One bit per cell, 256 cells per instruction. The cells to the left and right come from unaligned loads and shifts. The sum of
//! three horizontal neighbours is computed once and used for the rows above, at and below: the code walks down a column of
//! vectors and keeps the sums of the last rows in registers. 256 cells take 25 operations, 3 loads and a store. A pass over the
//! grid makes several steps, chunk by chunk in the L2 cache, and chunks run in parallel.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_slli_epi64,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use std::cell::RefCell;

use rayon::prelude::*;

/// Rows to walk down before the next column; they stay in the L1 cache.
const BAND: usize = 32;
/// Largest number of steps in a pass; as many rows above and below the grid repeat the opposite edge.
const MARGIN: usize = 8;
/// Rows of a chunk.
const CHUNK: usize = 192;

thread_local! {
    /// Rows of a chunk before and after a step.
    static BUFFERS: RefCell<[Vec<u64>; 2]> = RefCell::default();
}

/// A torus whose width is a multiple of 256.
pub struct Life {
    height: usize,
    /// Words of a row, without the word on either side that repeats the opposite edge.
    words: usize,
    /// Words from one row to the next.
    stride: usize,
    /// `[row][word]`, with a margin above and below.
    now: Vec<u64>,
    next: Vec<u64>,
}

impl Life {
    /// Returns a grid from the bits of its cells, row by row. `None` without AVX2 or for an unsupported size.
    pub fn new(height: usize, width: usize, cells: &[u64]) -> Option<Life> {
        #[cfg(target_arch = "x86_64")]
        let able = std::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let able = false;
        let words = width / 64;
        if !able
            || width == 0
            || !width.is_multiple_of(256)
            || cells.len() != height * words
            || height < MARGIN
        {
            return None;
        }
        let stride = words + 2;
        let mut now = vec![0; (height + 2 * MARGIN) * stride];
        for (row, cells) in now.chunks_exact_mut(stride).skip(MARGIN).zip(cells.chunks_exact(words)) {
            row[1..=words].copy_from_slice(cells);
            wrap_row(row);
        }
        let next = now.clone();
        Some(Life { height, words, stride, now, next })
    }

    /// Returns the bits of the cells, row by row.
    pub fn cells(&self) -> Vec<u64> {
        let rows = self.now.chunks_exact(self.stride).skip(MARGIN).take(self.height);
        rows.flat_map(|row| &row[1..=self.words]).copied().collect()
    }

    /// Runs a number of steps.
    pub fn run(&mut self, steps: usize) {
        for done in (0..steps).step_by(MARGIN) {
            self.pass(MARGIN.min(steps - done));
        }
    }

    /// Runs up to [`MARGIN`] steps in one pass over the grid.
    fn pass(&mut self, steps: usize) {
        let (stride, height) = (self.stride, self.height);
        self.now.copy_within(height * stride..(height + MARGIN) * stride, 0);
        self.now.copy_within(MARGIN * stride..2 * MARGIN * stride, (height + MARGIN) * stride);
        let now = &self.now;
        let run = |(index, rows): (usize, &mut [u64])| {
            BUFFERS.with_borrow_mut(|buffers| {
                run_chunk(&now[index * CHUNK * stride..], rows, stride, steps, buffers);
            });
        };
        let cells = &mut self.next[MARGIN * stride..(height + MARGIN) * stride];
        if rayon::current_num_threads() > 1 {
            cells.par_chunks_mut(CHUNK * stride).enumerate().for_each(run);
        } else {
            cells.chunks_mut(CHUNK * stride).enumerate().for_each(run);
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }
}

/// Runs several steps of a chunk. `source` begins [`MARGIN`] rows above it, and so do the buffers of the intermediate steps,
/// which hold as many rows around the chunk as the later steps need.
fn run_chunk(source: &[u64], target: &mut [u64], stride: usize, steps: usize, buffers: &mut [Vec<u64>; 2]) {
    let rows = target.len() / stride;
    let [before, after] = buffers;
    for step in 1..=steps {
        let around = steps - step;
        let first = MARGIN - around;
        let source = if step == 1 { source } else { before.as_slice() };
        let source = &source[(first - 1) * stride..];
        if step == steps {
            step_rows(source, target, stride);
        } else {
            after.resize((rows + 2 * MARGIN) * stride, 0);
            step_rows(source, &mut after[first * stride..(first + rows + 2 * around) * stride], stride);
        }
        std::mem::swap(before, after);
    }
}

/// Runs one step of some rows; `source` begins with the row above them.
fn step_rows(source: &[u64], target: &mut [u64], stride: usize) {
    for (band, rows) in target.chunks_mut(BAND * stride).enumerate() {
        step_band(&source[band * BAND * stride..], rows, stride);
        rows.chunks_exact_mut(stride).for_each(wrap_row);
    }
}

/// Repeats the opposite edges at both ends of a row.
fn wrap_row(row: &mut [u64]) {
    let last = row.len() - 1;
    row[0] = row[last - 1];
    row[last] = row[1];
}

#[cfg(not(target_arch = "x86_64"))]
fn step_band(_: &[u64], _: &mut [u64], _: usize) {}

/// Runs one step of some rows; `source` begins with the row above them.
#[cfg(target_arch = "x86_64")]
fn step_band(source: &[u64], target: &mut [u64], stride: usize) {
    let rows = target.len() / stride;
    assert!(source.len() >= (rows + 2) * stride && target.len() == rows * stride);
    for word in (1..stride - 1).step_by(4) {
        // SAFETY: `Life::new` has checked for AVX2. A row has `stride - 2` words of cells, a multiple of four, so four words
        // from `word` and one on either side are within every row. The assertion keeps the rows within the slices.
        unsafe { step_column(source.as_ptr().add(word), target.as_mut_ptr().add(word), stride, rows) }
    }
}

/// Contributions of a row of cells to the counts of its neighbours.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Sums {
    cell: __m256i,
    /// Sum of the left and the right cell, and its carry.
    two: [__m256i; 2],
    /// Sum of all three cells, and its carry.
    three: [__m256i; 2],
}

/// Returns the sums of four words of a row.
///
/// # Safety
/// The words from `at - 1` to `at + 4` are readable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sums(at: *const u64) -> Sums {
    // SAFETY: guaranteed by the caller.
    let [before, cell, after] = unsafe {
        [
            _mm256_loadu_si256(at.sub(1).cast()),
            _mm256_loadu_si256(at.cast()),
            _mm256_loadu_si256(at.add(1).cast()),
        ]
    };
    let left = _mm256_or_si256(_mm256_slli_epi64::<1>(cell), _mm256_srli_epi64::<63>(before));
    let right = _mm256_or_si256(_mm256_srli_epi64::<1>(cell), _mm256_slli_epi64::<63>(after));
    let (sum, carry) = (_mm256_xor_si256(left, right), _mm256_and_si256(left, right));
    let three = [_mm256_xor_si256(sum, cell), _mm256_or_si256(carry, _mm256_and_si256(sum, cell))];
    Sums { cell, two: [sum, carry], three }
}

/// Runs one step of a column of vectors.
///
/// # Safety
/// Four words are readable in each of the `rows + 2` rows from `source`, with one more on either side, and writable in each
/// of the `rows` rows from `target`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn step_column(source: *const u64, target: *mut u64, stride: usize, rows: usize) {
    // SAFETY: the rows are in range, as the caller guarantees.
    unsafe {
        let mut above = sums(source);
        let mut here = sums(source.add(stride));
        for row in 0..rows {
            let below = sums(source.add((row + 2) * stride));
            _mm256_storeu_si256(target.add(row * stride).cast(), next_cells(&above, &here, &below));
            (above, here) = (here, below);
        }
    }
}

/// Returns the cells of a row after the step.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn next_cells(above: &Sums, here: &Sums, below: &Sums) -> __m256i {
    let outer = _mm256_xor_si256(above.three[0], below.three[0]);
    let ones = _mm256_xor_si256(outer, here.two[0]);
    let carry = _mm256_or_si256(
        _mm256_and_si256(above.three[0], below.three[0]),
        _mm256_and_si256(outer, here.two[0]),
    );
    // The count is ones + 2 * (four carries): 2 or 3 if exactly one carry is set.
    let odd = _mm256_xor_si256(
        _mm256_xor_si256(above.three[1], below.three[1]),
        _mm256_xor_si256(here.two[1], carry),
    );
    let many = _mm256_or_si256(
        _mm256_and_si256(above.three[1], below.three[1]),
        _mm256_and_si256(here.two[1], carry),
    );
    _mm256_and_si256(_mm256_andnot_si256(many, odd), _mm256_or_si256(ones, here.cell))
}
