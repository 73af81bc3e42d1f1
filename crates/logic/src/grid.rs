//! Grids: the states of cellular automata as bit planes.
//!
//! A grid is a batch of `samples` states of `height` x `width` cells with `channels` bits each. Every channel is a plane
//! of 64-bit words. The cells of a sample are in row-major order (cell (y, x) is bit y * width + x), and each sample
//! starts at a word boundary. The layout is `planes[channel][sample][word]`, so a bitwise operation on a word updates 64
//! cells. The unused bits at the end of a sample are always 0.

use std::fmt;
use thiserror::Error;

/// The maximum number of words of a grid (2 GiB).
pub const MAX_WORDS: usize = 1 << 28;

/// A batch of automaton states as bit planes.
///
/// ```
/// use gatework_logic::Grid;
///
/// let mut grid = Grid::new(1, 20, 20, 3)?;
/// grid.set(0, 2, 10, 10, true);
/// assert_eq!(grid.count_ones(0, 2), 1);
/// # Ok::<(), gatework_logic::GridError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    samples: usize,
    height: usize,
    width: usize,
    channels: usize,
    words_per_sample: usize,
    planes: Vec<u64>,
}

/// The dimensions of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSize {
    /// The number of samples.
    pub samples: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
    /// The number of bits of a cell.
    pub channels: usize,
}

impl fmt::Display for GridSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GridSize { samples, height, width, channels } = self;
        write!(f, "{samples} samples, {height}x{width} cells and {channels} channels")
    }
}

/// An error of creating or using a grid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GridError {
    /// A dimension of the grid is 0.
    #[error("a grid cannot be empty: {0}")]
    Empty(GridSize),
    /// The grid has more words than [`MAX_WORDS`].
    #[error("a grid of {0} exceeds {MAX_WORDS} words")]
    TooLarge(GridSize),
    /// There is not enough memory for the grid.
    #[error("there is not enough memory for a grid of {0}")]
    Memory(GridSize),
    /// The automaton and the grid have different numbers of channels.
    #[error("the automaton has {automaton} channels, but the grid has {grid}")]
    Channels {
        /// The number of channels of the automaton.
        automaton: usize,
        /// The number of channels of the grid.
        grid: usize,
    },
    /// The mask of cells does not have the size of a sample.
    #[error("the mask has {mask} words, but a sample has {sample}")]
    Mask {
        /// The number of words of the mask.
        mask: usize,
        /// The number of words of a sample.
        sample: usize,
    },
    /// The grids to compare have different shapes.
    #[error("cannot compare grids of {left:?} and {right:?} samples, rows and columns")]
    Shape {
        /// Samples, rows and columns of the first grid.
        left: [usize; 3],
        /// Samples, rows and columns of the second grid.
        right: [usize; 3],
    },
    /// A grid to compare has too few channels.
    #[error("cannot compare {asked} channels: a grid has only {channels}")]
    TooFewChannels {
        /// The number of channels to compare.
        asked: usize,
        /// The number of channels of the grid with fewer channels.
        channels: usize,
    },
}

impl Grid {
    /// Creates a grid of zeros. Every dimension must be at least 1, and the size at most [`MAX_WORDS`] words.
    pub fn new(samples: usize, height: usize, width: usize, channels: usize) -> Result<Grid, GridError> {
        let size = GridSize { samples, height, width, channels };
        if [samples, height, width, channels].contains(&0) {
            return Err(GridError::Empty(size));
        }
        let words_per_sample = height.checked_mul(width).map(|cells| cells.div_ceil(64));
        let words = words_per_sample
            .and_then(|words| words.checked_mul(samples)?.checked_mul(channels))
            .filter(|&words| words <= MAX_WORDS);
        match (words_per_sample, words) {
            (Some(words_per_sample), Some(words)) => {
                let mut planes = Vec::new();
                let reserved = planes.try_reserve_exact(words);
                reserved.map_err(|_| GridError::Memory(size))?;
                planes.resize(words, 0);
                Ok(Grid { samples, height, width, channels, words_per_sample, planes })
            }
            _ => Err(GridError::TooLarge(size)),
        }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of bits of a cell.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the number of cells of a sample.
    pub fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Returns the number of words of one channel of one sample, which is also the length of a mask of cells.
    pub fn words_per_sample(&self) -> usize {
        self.words_per_sample
    }

    /// Returns a mask of the used bits of the last word of a sample.
    pub fn tail_mask(&self) -> u64 {
        u64::MAX >> (self.cells().wrapping_neg() % 64)
    }

    /// Returns one bit of a cell. Panics outside of the grid, as indexing does.
    pub fn get(&self, sample: usize, channel: usize, y: usize, x: usize) -> bool {
        let (word, bit) = self.locate(sample, channel, y, x);
        self.planes[word] >> bit & 1 == 1
    }

    /// Sets one bit of a cell. Panics outside of the grid, as indexing does.
    pub fn set(&mut self, sample: usize, channel: usize, y: usize, x: usize, value: bool) {
        let (word, bit) = self.locate(sample, channel, y, x);
        self.planes[word] = self.planes[word] & !(1 << bit) | u64::from(value) << bit;
    }

    /// Returns the word of a bit in `planes`, and its position there.
    fn locate(&self, sample: usize, channel: usize, y: usize, x: usize) -> (usize, usize) {
        let inside = sample < self.samples && channel < self.channels && y < self.height && x < self.width;
        assert!(inside, "cell ({y}, {x}) of sample {sample}, channel {channel} is outside of the grid");
        let cell = y * self.width + x;
        ((channel * self.samples + sample) * self.words_per_sample + cell / 64, cell % 64)
    }

    /// Returns the words of a channel, sample after sample. Panics if there is no such channel, as indexing does.
    pub fn plane(&self, channel: usize) -> &[u64] {
        let words = self.samples * self.words_per_sample;
        &self.planes[channel * words..][..words]
    }

    /// Returns the words of a channel for writing; the unused bits of each sample must stay 0 (see
    /// [`Grid::tail_mask`]). Panics if there is no such channel, as indexing does.
    pub fn plane_mut(&mut self, channel: usize) -> &mut [u64] {
        let words = self.samples * self.words_per_sample;
        &mut self.planes[channel * words..][..words]
    }

    /// Counts the ones of a channel of a sample. Panics outside of the grid, as indexing does.
    pub fn count_ones(&self, sample: usize, channel: usize) -> usize {
        let words = &self.plane(channel)[sample * self.words_per_sample..][..self.words_per_sample];
        words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Counts the bits that differ in the first `channels` channels of all samples.
    ///
    /// The grids may have different numbers of channels, but at least that many.
    pub fn difference(&self, other: &Grid, channels: usize) -> Result<usize, GridError> {
        let shape = |grid: &Grid| [grid.samples, grid.height, grid.width];
        if shape(self) != shape(other) {
            return Err(GridError::Shape { left: shape(self), right: shape(other) });
        }
        let fewest = self.channels.min(other.channels);
        if channels > fewest {
            return Err(GridError::TooFewChannels { asked: channels, channels: fewest });
        }
        let words = channels * self.samples * self.words_per_sample;
        let pairs = self.planes[..words].iter().zip(&other.planes[..words]);
        Ok(pairs.map(|(a, b)| (a ^ b).count_ones() as usize).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_bit_changes_no_other_bit() {
        for (samples, height, width, channels) in [(1, 1, 1, 1), (3, 5, 13, 2), (2, 8, 8, 3), (1, 2, 100, 2)]
        {
            let mut grid = Grid::new(samples, height, width, channels).unwrap();
            for (s, c, y, x) in [(0, 0, 0, 0), (samples - 1, channels - 1, height - 1, width - 1)] {
                grid.set(s, c, y, x, true);
                assert!(grid.get(s, c, y, x));
                let total: usize = (0..samples)
                    .flat_map(|s| (0..channels).map(move |c| (s, c)))
                    .map(|(s, c)| grid.count_ones(s, c))
                    .sum();
                assert_eq!((total, grid.count_ones(s, c)), (1, 1));
                grid.set(s, c, y, x, false);
                assert!(!grid.get(s, c, y, x));
            }
        }
    }

    #[test]
    fn samples_start_at_a_word_boundary() {
        let mut grid = Grid::new(2, 5, 13, 2).unwrap();
        assert_eq!(grid.words_per_sample(), 2);
        grid.set(1, 1, 4, 12, true);
        assert_eq!(grid.plane(0), [0; 4]);
        assert_eq!(grid.plane(1), [0, 0, 0, 1]);
    }

    #[test]
    fn the_tail_mask_covers_the_used_bits() {
        let tail = |height, width| Grid::new(1, height, width, 1).unwrap().tail_mask();
        assert_eq!([tail(1, 1), tail(3, 3), tail(8, 8), tail(5, 13)], [1, 0x1ff, u64::MAX, 1]);
    }

    #[test]
    fn difference_counts_the_first_channels() {
        let mut left = Grid::new(2, 3, 3, 3).unwrap();
        let mut right = Grid::new(2, 3, 3, 2).unwrap();
        left.set(0, 0, 1, 1, true);
        left.set(1, 1, 2, 2, true);
        right.set(1, 1, 2, 1, true);
        assert_eq!([0, 1, 2].map(|channels| left.difference(&right, channels).unwrap()), [0, 1, 3]);
        assert_eq!(left.difference(&right, 3), Err(GridError::TooFewChannels { asked: 3, channels: 2 }));
        let other = Grid::new(1, 3, 3, 3).unwrap();
        assert_eq!(left.difference(&other, 1), Err(GridError::Shape { left: [2, 3, 3], right: [1, 3, 3] }));
    }

    #[test]
    fn empty_and_oversized_grids_are_errors() {
        assert!(matches!(Grid::new(1, 0, 4, 1), Err(GridError::Empty { .. })));
        assert!(matches!(Grid::new(1, usize::MAX, 2, 1), Err(GridError::TooLarge { .. })));
        assert!(matches!(Grid::new(usize::MAX, 1, 1, usize::MAX), Err(GridError::TooLarge { .. })));
        assert!(matches!(Grid::new(1, 1 << 20, 1 << 20, 1), Err(GridError::TooLarge { .. })));
    }
}
