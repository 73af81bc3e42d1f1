//! The striped (transposed) layout of rows: the horizontal neighbours of a vector of cells are adjacent vectors.
//!
//! A row of `width` cells is divided into 256 strips of `n = width.div_ceil(256)` columns, and this matrix of 256 x n bits
//! is stored transposed (the layout of Farrar's striped Smith-Waterman). Vector j of the row holds column j of every strip:
//! its bit k is cell `k * n + j`. The left neighbours of vector j are vector j - 1, the right neighbours are vector j + 1:
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
//! Only the two edge vectors need a shift, once per row. If the width is not a multiple of 256, there are unused bits
//! after the last cell; the first of them holds the right neighbour of the last cell, and the others are never read.

#![expect(clippy::inline_always, reason = "the edges must be compiled for their instruction set")]

use super::bits::{insert, transpose, window};
use super::compiled::Vector;
use crate::automaton::Boundary;
use fearless_simd::{Level, Simd, dispatch};
use std::ops::Range;

/// The number of strips.
const STRIPS: usize = 256;
/// The number of edge vectors of a plane.
const EDGES: usize = 2;

/// The layout of a row: its planes one after the other, each with an edge vector on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strips {
    pub width: usize,
    /// The vectors of a plane without its edges: the columns of a strip.
    pub vectors: usize,
    /// The stride of rows, in vectors.
    pub stride: usize,
}

impl Strips {
    pub fn new(width: usize, planes: usize) -> Strips {
        let vectors = width.div_ceil(STRIPS);
        // An odd number of cache lines, so that the rows of a tile map to different cache sets.
        let lines = (planes * (vectors + EDGES)).div_ceil(2);
        Strips { width, vectors, stride: (lines | 1) * 2 }
    }

    /// The offset of a plane in a row: that of its left edge.
    pub fn plane(self, plane: usize) -> usize {
        plane * (self.vectors + EDGES)
    }

    /// The vectors of a plane in a row, with its edges.
    fn range(self, plane: usize) -> Range<usize> {
        self.plane(plane)..self.plane(plane + 1)
    }

    /// Fills a plane of a row from the bits of a string, from bit `start` on; the edges are not set.
    pub fn read(self, bits: &[u64], start: usize, plane: usize, row: &mut [Vector]) {
        let vectors = &mut row[self.range(plane)][1..=self.vectors];
        for square in self.squares() {
            let mut block = [0; 64];
            if let Some(words) = self.whole_words(start) {
                self.split(&bits[words], square, &mut block);
            } else {
                self.for_each_line(square, |StripPosition { line, shift }, columns| {
                    block[line] |= window(bits, start + columns.start, columns.len()) << shift;
                });
            }
            transpose(&mut block);
            for (word, lines) in (square.word..).zip(block.chunks_exact(square.span)) {
                for (vector, &line) in vectors[square.first..].iter_mut().zip(lines) {
                    vector.0[word] = line;
                }
            }
        }
    }

    /// Sets the bits of a string, which are 0, from a plane of a row.
    pub fn write(self, row: &[Vector], plane: usize, bits: &mut [u64], start: usize) {
        let vectors = &row[self.range(plane)][1..=self.vectors];
        for square in self.squares() {
            let mut block = [0; 64];
            for (word, lines) in (square.word..).zip(block.chunks_exact_mut(square.span)) {
                for (line, vector) in lines.iter_mut().zip(&vectors[square.first..]) {
                    *line = vector.0[word];
                }
            }
            transpose(&mut block);
            if let Some(words) = self.whole_words(start) {
                self.join(&block, square, &mut bits[words]);
            } else {
                self.for_each_line(square, |StripPosition { line, shift }, columns| {
                    insert(bits, start + columns.start, columns.len(), block[line] >> shift);
                });
            }
        }
    }

    /// The squares of 64x64 bits of a row. If strips have few columns, several groups of strips share a square.
    fn squares(self) -> impl Iterator<Item = Square> {
        let span = self.vectors.next_power_of_two().clamp(64 / Vector::WORDS, 64);
        let words = (0..Vector::WORDS).step_by(64 / span);
        words.flat_map(move |word| {
            (0..self.vectors).step_by(span).map(move |first| Square { word, first, span })
        })
    }

    /// The words of a row that begins at bit `start`, if every word consists of whole strips.
    fn whole_words(self, start: usize) -> Option<Range<usize>> {
        let whole = 64usize.is_multiple_of(self.vectors) && self.width == self.vectors * STRIPS;
        (whole && start.is_multiple_of(64)).then(|| start / 64..(start + self.width) / 64)
    }

    /// Reads the strips of a square from a row whose words consist of whole strips.
    fn split(self, row: &[u64], Square { word, span, .. }: Square, block: &mut [u64; 64]) {
        let (n, mask) = (self.vectors, u64::MAX >> (64 - self.vectors));
        // 64 strips are n words.
        let groups = row.chunks_exact(n).skip(word);
        for (words, shift) in groups.zip((0..64).step_by(span)) {
            for (&word, lines) in words.iter().zip(block.chunks_exact_mut(64 / n)) {
                for (line, at) in lines.iter_mut().zip((0..64).step_by(n)) {
                    *line |= (word >> at & mask) << shift;
                }
            }
        }
    }

    /// Writes the strips of a square to a row whose words consist of whole strips.
    fn join(self, block: &[u64; 64], Square { word, span, .. }: Square, row: &mut [u64]) {
        let (n, mask) = (self.vectors, u64::MAX >> (64 - self.vectors));
        let groups = row.chunks_exact_mut(n).skip(word);
        for (words, shift) in groups.zip((0..64).step_by(span)) {
            for (word, lines) in words.iter_mut().zip(block.chunks_exact(64 / n)) {
                let strips = lines.iter().zip((0..64).step_by(n));
                *word = strips.fold(0, |word, (line, at)| word | (line >> shift & mask) << at);
            }
        }
    }

    /// Visits the strips of a square: the position of each in the square, and its columns in the grid.
    #[inline(always)]
    fn for_each_line(
        self,
        Square { word, first, span }: Square,
        mut visit: impl FnMut(StripPosition, Range<usize>),
    ) {
        for group in 0..64 / span {
            for line in 0..64 {
                let start = ((word + group) * 64 + line) * self.vectors;
                let end = (start + self.vectors.min(first + span)).min(self.width);
                if start + first >= end {
                    return;
                }
                visit(StripPosition { line, shift: group * span }, start + first..end);
            }
        }
    }

    /// The edges of the rows of a grid with this boundary.
    pub fn edges(self, boundary: Boundary) -> Edges {
        let place = |x: usize| CellPosition {
            vector: 1 + x % self.vectors,
            word: x / self.vectors / 64,
            bit: x / self.vectors % 64,
        };
        Edges {
            vectors: self.vectors,
            torus: u64::from(boundary == Boundary::Torus),
            last: place(self.width - 1),
            after: (self.width < self.vectors * STRIPS).then(|| place(self.width)),
        }
    }
}

/// 64x64 bits of a row: `64 / span` groups of 64 strips, and `span` columns of each.
#[derive(Clone, Copy)]
struct Square {
    /// The word of each vector that holds the first group.
    word: usize,
    /// The first column.
    first: usize,
    span: usize,
}

/// The position of a strip in a square: a line, and the first bit in it.
#[derive(Clone, Copy)]
struct StripPosition {
    line: usize,
    shift: usize,
}

/// The position of a cell in a plane of a row.
#[derive(Clone, Copy, Debug)]
struct CellPosition {
    vector: usize,
    word: usize,
    bit: usize,
}

/// The edge vectors of the rows of a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edges {
    vectors: usize,
    /// 1 on a torus, else 0.
    torus: u64,
    /// The last cell.
    last: CellPosition,
    /// The bit after the last cell, if there is one.
    after: Option<CellPosition>,
}

impl Edges {
    /// Updates the edges of the first planes of every row, and the bits after its last cells, after its cells have changed.
    pub fn set_all(&self, strips: Strips, planes: usize, rows: &mut [Vector]) {
        dispatch!(Level::new(), simd => self.set_rows(simd, strips, planes, rows));
    }

    #[inline(always)]
    fn set_rows<S: Simd>(&self, _: S, strips: Strips, planes: usize, rows: &mut [Vector]) {
        for row in rows.chunks_exact_mut(strips.stride) {
            for plane in row.chunks_exact_mut(strips.vectors + EDGES).take(planes) {
                self.set(plane);
            }
        }
    }

    /// Updates the edges of a plane of a row.
    #[inline(always)]
    pub fn set(&self, plane: &mut [Vector]) {
        let n = self.vectors;
        let plane = &mut plane[..n + EDGES];
        let mut first = plane[1].0[0] & self.torus;
        let last = plane[self.last.vector].0[self.last.word] >> self.last.bit & self.torus;
        if let Some(CellPosition { vector, word, bit }) = self.after {
            let word = &mut plane[vector].0[word];
            *word = *word & !(1 << bit) | first << bit;
            first = 0;
        }
        let [a, b, c, d] = plane[n].0;
        let carries = Vector([last << 63, a, b, c]);
        plane[0] = Vector([a, b, c, d]).zip(carries, |word, carry| word << 1 | carry >> 63);
        let [a, b, c, d] = plane[1].0;
        let carries = Vector([b, c, d, first]);
        plane[n + 1] = Vector([a, b, c, d]).zip(carries, |word, carry| word >> 1 | carry << 63);
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

    proptest! {
        #[test]
        fn a_row_that_is_read_and_written_is_unchanged(
            width in prop_oneof![1usize..600, 16_000usize..18_000, (0u32..8).prop_map(|n| 256 << n)],
            start in prop_oneof![0usize..130, Just(128)],
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
        fn adjacent_vectors_are_horizontal_neighbours(width in 1usize..800, boundary in arbitrary::boundary()) {
            let bits: Vec<u64> = arbitrary::numbers().take(width.div_ceil(64)).collect();
            let strips = Strips::new(width, 1);
            let mut row = vec![Vector::ZERO; strips.stride];
            strips.read(&bits, 0, 0, &mut row);
            strips.edges(boundary).set(&mut row);
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
