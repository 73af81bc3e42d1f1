//! The planes of the neighbours of all cells, by shifting bit strings.
//!
//! The cells of a sample are one string of n = height * width bits. The neighbour (dy, dx) of cell p is the
//! bit p + dy * width + dx, so a plane of neighbours is the shifted string. The edges need special cases:
//!
//! - The shift reads beyond the ends of the string. Each sample is therefore copied with padding on both sides: zeros, or
//!   on a torus the string repeated periodically, for which a shift by whole rows wraps around from bottom to top.
//! - The shift crosses from the end of a row to the next one. This affects one column only, the first for dx = -1 and the
//!   last for dx = 1. Its bits are masked off for zeros; on a torus they come from a second shift, which is one row
//!   shorter (dx = 1) or longer (dx = -1).
//!
//! The second shift is at most 2 * width - 1 bits in either direction, which determines the padding.

use crate::automaton::{Boundary, NEIGHBOURS};
use crate::grid::Grid;
use std::ops::Range;

/// A contiguous part of one sample in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The sample.
    sample: usize,
    /// The first word of the part, counted from the start of the sample.
    word: usize,
    /// The words of the part.
    len: usize,
    /// The first word of the part, counted from the start of the block.
    at: usize,
}

impl Segment {
    /// The words of the part, counted from the start of the block.
    fn in_block(self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

/// Splits a block, given as a range of the words of a plane, at the boundaries of the samples.
pub(super) fn split_at_samples(block: Range<usize>, words_per_sample: usize, segments: &mut Vec<Segment>) {
    segments.clear();
    let mut at = block.start;
    while at < block.end {
        let (sample, word) = (at / words_per_sample, at % words_per_sample);
        let len = (words_per_sample - word).min(block.end - at);
        segments.push(Segment { sample, word, len, at: at - block.start });
        at += len;
    }
}

/// Writes the new words of a block, XORed with `flip`, where the mask of its cells is 1.
pub(super) fn store_masked(plane: &mut [u64], new: &[u64], flip: u64, mask: &[u64], segments: &[Segment]) {
    for &segment in segments {
        let range = segment.in_block();
        let mask = &mask[segment.word..][..segment.len];
        for ((old, new), mask) in plane[range.clone()].iter_mut().zip(&new[range]).zip(mask) {
            *old ^= (*old ^ new ^ flip) & mask;
        }
    }
}

/// A position in a padded bit string: words, and bits within a word.
#[derive(Clone, Copy, Debug)]
struct Offset {
    words: usize,
    bits: u32,
}

/// The shifts that give the plane of one neighbour.
#[derive(Clone, Copy, Debug)]
struct Shift {
    /// The shift for all columns but one.
    near: Offset,
    /// The shift for the column at the edge on a torus.
    far: Offset,
    /// The column at the edge.
    edge: Edge,
}

/// The column for which a shift crosses from one row to another.
#[derive(Clone, Copy, Debug)]
enum Edge {
    None,
    First,
    Last,
}

/// The shifts and masks for grids of one size.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    boundary: Boundary,
    samples: usize,
    height: usize,
    width: usize,
    /// Words per sample.
    words: usize,
    /// The words of padding on either side.
    margin: usize,
    tail_mask: u64,
    shifts: [Shift; NEIGHBOURS],
    first_column: Vec<u64>,
    last_column: Vec<u64>,
    /// On a torus: the words of a padded string that repeat it, and the bit of the string that each starts at.
    repeats: Vec<(usize, usize)>,
}

impl Geometry {
    pub fn new(grid: &Grid, boundary: Boundary) -> Geometry {
        let (height, width, words) = (grid.height(), grid.width(), grid.words_per_sample());
        let margin = (2 * width).div_ceil(64);
        let cells = grid.cells();
        let repeated = (0..margin).chain(margin + cells / 64..words + 2 * margin);
        let start = |word: usize| (word as i64 - margin as i64) * 64;
        let repeats = match boundary {
            Boundary::Torus => {
                repeated.map(|word| (word, start(word).rem_euclid(cells as i64) as usize)).collect()
            }
            Boundary::Zeros => Vec::new(),
        };
        Geometry {
            boundary,
            samples: grid.samples(),
            height,
            width,
            words,
            margin,
            tail_mask: grid.tail_mask(),
            shifts: std::array::from_fn(|neighbour| shift(neighbour, width, margin)),
            first_column: column(grid, 0),
            last_column: column(grid, width - 1),
            repeats,
        }
    }

    /// Whether a grid has this size.
    pub fn fits(&self, grid: &Grid) -> bool {
        (self.samples, self.height, self.width) == (grid.samples(), grid.height(), grid.width())
    }

    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Words per padded sample.
    pub fn padded_words(&self) -> usize {
        self.words + 2 * self.margin
    }

    /// Copies a plane, with padding around each sample.
    pub fn pad(&self, plane: &[u64], padded: &mut [u64]) {
        let cells = self.height * self.width;
        let samples = plane.chunks_exact(self.words);
        for (sample, padded) in samples.zip(padded.chunks_exact_mut(self.padded_words())) {
            padded[self.margin..][..self.words].copy_from_slice(sample);
            padded[self.margin + self.words - 1] &= self.tail_mask;
            match self.boundary {
                Boundary::Zeros => {
                    padded[..self.margin].fill(0);
                    padded[self.margin + self.words..].fill(0);
                }
                Boundary::Torus => {
                    for &(word, start) in &self.repeats {
                        padded[word] = window(sample, cells, start);
                    }
                }
            }
        }
    }

    /// Reads one neighbour of every cell of a block, from a padded plane.
    pub fn load(&self, padded: &[u64], neighbour: usize, segments: &[Segment], out: &mut [u64]) {
        let shift = self.shifts[neighbour];
        let edge = match shift.edge {
            Edge::None => None,
            Edge::First => Some(&self.first_column),
            Edge::Last => Some(&self.last_column),
        };
        for &segment in segments {
            let start = segment.sample * self.padded_words() + segment.word;
            let out = &mut out[segment.in_block()];
            let near = Shifted::new(padded, start, shift.near, segment.len);
            match edge.map(|column| &column[segment.word..][..segment.len]) {
                None => near.copy(out),
                Some(column) if self.boundary == Boundary::Zeros => near.copy_except(column, out),
                Some(column) => {
                    near.merge(column, Shifted::new(padded, start, shift.far, segment.len), out);
                }
            }
        }
    }

    /// Clears the unused bits of samples that end in a block.
    pub fn clear_unused(&self, plane: &mut [u64], segments: &[Segment]) {
        if self.tail_mask != u64::MAX {
            for segment in segments.iter().filter(|segment| segment.word + segment.len == self.words) {
                plane[segment.at + segment.len - 1] &= self.tail_mask;
            }
        }
    }
}

/// A part of a padded bit string from any bit on. Word i is `low[i] >> bits | high[i] << (64 - bits)`.
#[derive(Clone, Copy)]
struct Shifted<'a> {
    low: &'a [u64],
    high: &'a [u64],
    bits: u32,
}

impl<'a> Shifted<'a> {
    /// The `len` words from `offset` on, in the padded string that has word 0 at `start`.
    fn new(padded: &'a [u64], start: usize, offset: Offset, len: usize) -> Shifted<'a> {
        let words = &padded[start + offset.words..][..=len];
        Shifted { low: &words[..len], high: &words[1..], bits: offset.bits }
    }

    #[inline]
    fn word(self, i: usize) -> u64 {
        // Two shifts, because `bits` may be 0.
        self.low[i] >> self.bits | self.high[i] << 1 << (63 - self.bits)
    }

    fn copy(self, out: &mut [u64]) {
        if self.bits == 0 {
            out.copy_from_slice(self.low);
        } else {
            self.map(out, |_, word| word);
        }
    }

    fn copy_except(self, column: &[u64], out: &mut [u64]) {
        let column = &column[..out.len()];
        self.map(out, |i, word| word & !column[i]);
    }

    fn merge(self, column: &[u64], far: Shifted<'_>, out: &mut [u64]) {
        let len = out.len();
        let column = &column[..len];
        let far = Shifted { low: &far.low[..len], high: &far.high[..len], bits: far.bits };
        self.map(out, |i, word| word & !column[i] | far.word(i) & column[i]);
    }

    /// Writes a function of every word and its number.
    #[inline]
    fn map(self, out: &mut [u64], f: impl Fn(usize, u64) -> u64) {
        let len = out.len();
        let own = Shifted { low: &self.low[..len], high: &self.high[..len], bits: self.bits };
        for (i, out) in out.iter_mut().enumerate() {
            *out = f(i, own.word(i));
        }
    }
}

/// The shift of a neighbour, in strings with `margin` words of padding on either side.
fn shift(neighbour: usize, width: usize, margin: usize) -> Shift {
    let (dy, dx) = (neighbour as i64 / 3 - 1, neighbour as i64 % 3 - 1);
    let width = width as i64;
    let offset = |bits: i64| {
        // At least 1, as `bits` is above -2 * width.
        let place = (margin as i64 * 64 + bits) as usize;
        Offset { words: place / 64, bits: (place % 64) as u32 }
    };
    let near = dy * width + dx;
    let edge = match dx {
        -1 => Edge::First,
        0 => Edge::None,
        _ => Edge::Last,
    };
    Shift { near: offset(near), far: offset(near - dx * width), edge }
}

/// The mask of the cells of one column.
fn column(grid: &Grid, x: usize) -> Vec<u64> {
    let mut words = vec![0; grid.words_per_sample()];
    for cell in (x..grid.cells()).step_by(grid.width()) {
        words[cell / 64] |= 1 << (cell % 64);
    }
    words
}

/// Returns 64 bits, from `start` on, of the periodic repetition of a string of `bits` bits.
fn window(string: &[u64], bits: usize, start: usize) -> u64 {
    if bits < 64 {
        let mut repeated = u128::from(string[0] & ((1 << bits) - 1));
        let mut len = bits;
        while len < 128 {
            repeated |= repeated << len;
            len *= 2;
        }
        return (repeated >> start) as u64;
    }
    let (word, shift) = (start / 64, start % 64);
    let high = string.get(word + 1).copied().unwrap_or(0);
    let read = string[word] >> shift | high << 1 << (63 - shift);
    let left = bits - start;
    if left < 64 { read & ((1 << left) - 1) | string[0] << left } else { read }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_split_at_samples() {
        let mut segments = Vec::new();
        split_at_samples(5..12, 4, &mut segments);
        let expected =
            [(1, 1, 3, 0), (2, 0, 4, 3)].map(|(sample, word, len, at)| Segment { sample, word, len, at });
        assert_eq!(segments, expected);
    }

    #[test]
    fn columns_are_one_cell_per_row() {
        let grid = Grid::new(1, 3, 30, 1).unwrap();
        assert_eq!(column(&grid, 0), [1 | 1 << 30 | 1 << 60, 0]);
        assert_eq!(column(&grid, 29), [1 << 29 | 1 << 59, 1 << 25]);
    }

    proptest! {
        #[test]
        fn a_window_is_a_part_of_the_repeated_string(
            string in prop::collection::vec(any::<u64>(), 4),
            bits in 1usize..=256,
            start in any::<prop::sample::Index>(),
        ) {
            let start = start.index(bits);
            let read = window(&string[..bits.div_ceil(64)], bits, start);
            for i in 0..64 {
                let bit = (start + i) % bits;
                prop_assert_eq!(read >> i & 1, string[bit / 64] >> (bit % 64) & 1, "bit {}", i);
            }
        }
    }
}
