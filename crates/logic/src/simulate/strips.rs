//! Boards in strips: a layout in which the cells beside 256 cells are 256 other cells, without a shift.
//!
//! A row of `width` cells is cut into 256 strips of `n = width.div_ceil(256)` columns. Vector j of the row
//! holds column j of every strip: its bit k is cell `k * n + j`. The cells to the left of vector j are
//! vector j - 1, and those to the right are vector j + 1:
//!
//! ```text
//!             bit 0   bit 1   bit 2  ...
//! left edge      -1     n-1    2n-1         = vector n-1, shifted by one bit
//! vector 0        0       n      2n
//! vector 1        1     n+1    2n+1
//! ...
//! vector n-1    n-1    2n-1    3n-1
//! right edge      n      2n      3n         = vector 0, shifted by one bit
//! ```
//!
//! Only the two edge vectors need a shift, once a row. A width that is no multiple of 256 leaves bits beyond
//! the last cell; the first of them stands for the cell behind the last one, and nothing reads the others.

use super::compiled::Vector;
use crate::automaton::Boundary;
use std::ops::Range;

/// The number of strips.
const STRIPS: usize = 256;
/// The vectors of the two edges.
const EDGES: usize = 2;

/// The size of the rows of a board in strips. A row holds its planes one after the other, each with an edge
/// vector on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strips {
    pub width: usize,
    /// The vectors of a plane of a row, without its edges: the columns of a strip.
    pub vectors: usize,
    /// The vectors from one row to the next.
    pub stride: usize,
}

impl Strips {
    pub fn new(width: usize, planes: usize) -> Strips {
        let vectors = width.div_ceil(STRIPS);
        // An odd number of cache lines, so that the rows of a tile are spread over the sets of the cache.
        let lines = (planes * (vectors + EDGES)).div_ceil(2);
        Strips { width, vectors, stride: (lines | 1) * 2 }
    }

    /// Where a plane begins in a row: its left edge.
    pub fn plane(self, plane: usize) -> usize {
        plane * (self.vectors + EDGES)
    }

    /// Where a plane with its edges is in a row.
    fn range(self, plane: usize) -> Range<usize> {
        self.plane(plane)..self.plane(plane + 1)
    }

    /// Fills a plane of a row from the bits of a string, from bit `start` on; the edges are not set.
    pub fn read(self, bits: &[u64], start: usize, plane: usize, row: &mut [Vector]) {
        let vectors = &mut row[self.range(plane)][1..=self.vectors];
        for (group, word) in (0..STRIPS).step_by(64).zip(0..) {
            for first in (0..self.vectors).step_by(64) {
                let mut block = [0; 64];
                for (strip, line) in block.iter_mut().enumerate() {
                    let columns = self.columns(group + strip, first);
                    if columns.is_empty() {
                        break;
                    }
                    *line = window(bits, start + columns.start, columns.len());
                }
                transpose(&mut block);
                for (vector, line) in vectors[first..].iter_mut().zip(block) {
                    vector.0[word] = line;
                }
            }
        }
    }

    /// Sets the bits of a string, which are 0, from a plane of a row.
    pub fn write(self, row: &[Vector], plane: usize, bits: &mut [u64], start: usize) {
        let vectors = &row[self.range(plane)][1..=self.vectors];
        for (group, word) in (0..STRIPS).step_by(64).zip(0..) {
            for first in (0..self.vectors).step_by(64) {
                let mut block = [0; 64];
                for (line, vector) in block.iter_mut().zip(&vectors[first..]) {
                    *line = vector.0[word];
                }
                transpose(&mut block);
                for (strip, &line) in block.iter().enumerate() {
                    let columns = self.columns(group + strip, first);
                    if columns.is_empty() {
                        break;
                    }
                    insert(bits, start + columns.start, columns.len(), line);
                }
            }
        }
    }

    /// The columns `first..first + 64` of a strip, as columns of the board.
    fn columns(self, strip: usize, first: usize) -> Range<usize> {
        let start = strip * self.vectors;
        (start + first).min(self.width)..(start + self.vectors.min(first + 64)).min(self.width)
    }

    /// Sets the edges of a plane of a row, and the bit behind its last cell, after its cells have changed.
    #[inline]
    pub fn set_edges(self, boundary: Boundary, row: &mut [Vector], plane: usize) {
        let row = &mut row[self.range(plane)];
        let torus = boundary == Boundary::Torus;
        let n = self.vectors;
        let first = row[1].0[0] & u64::from(torus);
        let full = self.width == n * STRIPS;
        if !full {
            let (bit, vector) = (self.width / n, &mut row[1 + self.width % n].0[self.width / n / 64]);
            *vector = *vector & !(1 << (bit % 64)) | first << (bit % 64);
        }
        let last = self.width - 1;
        let last = row[1 + last % n].0[last / n / 64] >> (last / n % 64) & u64::from(torus);
        let [a, b, c, d] = row[n].0;
        row[0] = Vector([a << 1 | last, b << 1 | a >> 63, c << 1 | b >> 63, d << 1 | c >> 63]);
        let [a, b, c, d] = row[1].0;
        let first = if full { first } else { 0 };
        row[n + 1] = Vector([a >> 1 | b << 63, b >> 1 | c << 63, c >> 1 | d << 63, d >> 1 | first << 63]);
    }
}

/// The `len` bits (1 to 64) of a string from bit `start` on.
fn window(bits: &[u64], start: usize, len: usize) -> u64 {
    let (word, shift) = (start / 64, start % 64);
    let mut window = bits[word] >> shift;
    if shift + len > 64 {
        window |= bits[word + 1] << (64 - shift);
    }
    window & u64::MAX >> (64 - len)
}

/// Sets `len` bits (1 to 64) of a string, which are 0, from bit `start` on.
fn insert(bits: &mut [u64], start: usize, len: usize, value: u64) {
    let (word, shift) = (start / 64, start % 64);
    let value = value & u64::MAX >> (64 - len);
    bits[word] |= value << shift;
    if shift + len > 64 {
        bits[word + 1] |= value >> (64 - shift);
    }
}

/// Exchanges the rows and the columns of 64x64 bits: squares of half the size change places, then their
/// halves, and so on.
fn transpose(block: &mut [u64; 64]) {
    let (mut size, mut mask) = (32, u64::MAX >> 32);
    while size > 0 {
        for row in (0..64).filter(|row| row & size == 0) {
            let moved = (block[row] >> size ^ block[row + size]) & mask;
            block[row] ^= moved << size;
            block[row + size] ^= moved;
        }
        size /= 2;
        mask ^= mask << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    fn bit(words: &[u64], at: usize) -> bool {
        words[at / 64] >> (at % 64) & 1 == 1
    }

    #[test]
    fn a_transposed_block_has_rows_for_columns() {
        let mut block = [0; 64];
        block.iter_mut().zip(arbitrary::numbers()).for_each(|(line, number)| *line = number);
        let before = block;
        transpose(&mut block);
        for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
            assert_eq!(block[row] >> column & 1, before[column] >> row & 1);
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back(
            width in prop_oneof![1usize..600, 16_000usize..18_000],
            start in 0usize..130,
        ) {
            let words = (start + width).div_ceil(64);
            let mut bits: Vec<u64> = arbitrary::numbers().take(words).collect();
            let strips = Strips::new(width, 2);
            let mut row = vec![Vector::ZERO; strips.stride];
            strips.read(&bits, start, 1, &mut row);
            for x in 0..width {
                let (vector, lane) = (row[strips.plane(1) + 1 + x % strips.vectors], x / strips.vectors);
                prop_assert_eq!(bit(&vector.0, lane), bit(&bits, start + x));
            }
            let mut back = vec![0; words];
            strips.write(&row, 1, &mut back, start);
            for x in (0..start).chain(start + width..words * 64) {
                bits[x / 64] &= !(1 << (x % 64));
            }
            prop_assert_eq!(back, bits);
        }

        #[test]
        fn the_vectors_beside_a_vector_are_its_neighbours(width in 1usize..800, boundary in arbitrary::boundary()) {
            let bits: Vec<u64> = arbitrary::numbers().take(width.div_ceil(64)).collect();
            let strips = Strips::new(width, 1);
            let mut row = vec![Vector::ZERO; strips.stride];
            strips.read(&bits, 0, 0, &mut row);
            strips.set_edges(boundary, &mut row, 0);
            for x in 0..width {
                let (j, lane) = (x % strips.vectors, x / strips.vectors);
                let inside = |x: Option<usize>| x.filter(|&x| x < width);
                let wrapped = |x: usize| (boundary == Boundary::Torus).then_some(x);
                let left = inside(x.checked_sub(1)).or(wrapped(width - 1).filter(|_| x == 0));
                let right = inside(Some(x + 1)).or(wrapped(0));
                prop_assert_eq!(bit(&row[j].0, lane), left.is_some_and(|x| bit(&bits, x)));
                prop_assert_eq!(bit(&row[j + 2].0, lane), right.is_some_and(|x| bit(&bits, x)));
            }
        }
    }
}
