//! A board in strips, and the passes over it.
//!
//! Memory is slower than the gates of a small rule, so several steps are made in one pass over the board:
//!
//! ```text
//! for each chunk of rows:                       (shared out among threads)
//!     step 1 of the chunk and t - 1 rows on both sides, from the board to a buffer
//!     step 2 of the chunk and t - 2 rows on both sides, from that buffer to another
//!     ...
//!     step t of the chunk, to the next board
//! ```
//!
//! The buffers stay in the second-level cache. Rows near the border of two chunks are computed by both, so
//! that chunks do not depend on each other: the result is the same for any number of threads. Beyond its
//! first and last row the board has a margin of t rows: zeros, or copies of the rows at the opposite edge.

use super::bits::turn;
use super::compiled::Vector;
use super::strips::{Edges, Strips};
use super::tile::Tiles;
use crate::automaton::Boundary;
use crate::grid::Grid;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bytes of the two buffers of a chunk: half of a usual second-level cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// The least rows of a chunk.
const MIN_ROWS: usize = 16;
/// The chunks that a board should have at least, for the threads.
const MIN_CHUNKS: usize = 8;
/// Operations on vectors in a pass that are worth threads: about a hundred microseconds.
const THREAD_WORK: f64 = 4e5;
/// The rows of a chunk for each further step of a pass, if only threads gain by it: so few rows are computed twice.
const ROWS_PER_STEP: usize = 32;

/// One sample of a grid, in strips: `[row][plane][vector]`.
pub(super) struct Board<'a> {
    tiles: &'a Tiles,
    strips: Strips,
    edges: Edges,
    boundary: Boundary,
    height: usize,
    /// The rows above and below the board: the most steps of a pass.
    margin: usize,
    /// The rows of a chunk.
    chunk: usize,
    /// The channels in the planes.
    channels: &'a [usize],
    /// Whether the rows of the board are the columns of the grid.
    turned: bool,
    now: Vec<Vector>,
    next: Vec<Vector>,
    /// Memory that no thread uses at the moment.
    buffers: Mutex<Vec<Buffers>>,
}

/// A rule as it is applied to a board.
#[derive(Clone, Copy)]
pub(super) struct Variant<'a> {
    pub tiles: &'a Tiles,
    /// The channels in the planes.
    pub channels: &'a [usize],
    /// Whether the rows of the board are to be the columns of the grid.
    pub turned: bool,
}

/// The memory that a chunk needs.
#[derive(Default)]
struct Buffers {
    /// The rows before and after a step.
    steps: [Vec<Vector>; 2],
    scratch: Vec<Vector>,
}

/// The steps of a pass that are worth it for the sake of threads alone, which meet after each pass.
pub(super) fn steps_for_threads(strips: Strips, height: usize) -> usize {
    if rayon::current_num_threads() == 1 { 1 } else { 1 + chunk_rows(strips, height, 0) / ROWS_PER_STEP }
}

/// The rows of a chunk that is to have a margin.
fn chunk_rows(strips: Strips, height: usize, margin: usize) -> usize {
    let fitting = BUFFER_BYTES / 2 / (strips.stride * size_of::<Vector>());
    let chunk = fitting.saturating_sub(2 * margin).min(height.div_ceil(MIN_CHUNKS));
    chunk.max(MIN_ROWS).max(2 * margin)
}

impl<'a> Board<'a> {
    /// An empty board of the size of a grid, for passes of at most `margin` steps.
    pub fn new(variant: Variant<'a>, boundary: Boundary, grid: &Grid, margin: usize) -> Board<'a> {
        let Variant { tiles, channels, turned } = variant;
        let strips = tiles.strips();
        let height = if turned { grid.width() } else { grid.height() };
        let vectors = (height + 2 * margin) * strips.stride;
        Board {
            tiles,
            strips,
            edges: strips.edges(boundary),
            boundary,
            height,
            margin,
            chunk: chunk_rows(strips, height, margin),
            channels,
            turned,
            now: vec![Vector::ZERO; vectors],
            next: vec![Vector::ZERO; vectors],
            buffers: Mutex::default(),
        }
    }

    /// Reads a sample of a grid.
    pub fn read(&mut self, grid: &Grid, sample: usize) {
        let words = grid.words_per_sample();
        for (plane, &channel) in self.channels.iter().enumerate() {
            self.read_plane(&grid.plane(channel)[sample * words..][..words], plane);
        }
    }

    /// Reads a plane from the bits of the cells of a grid, row by row.
    pub fn read_plane(&mut self, bits: &[u64], plane: usize) {
        let (strips, width, edges) = (self.strips, self.strips.width, self.edges);
        let turned = if self.turned { turn(bits, width, self.height) } else { Vec::new() };
        let bits = if self.turned { &turned } else { bits };
        let rows = self.now.chunks_exact_mut(strips.stride).skip(self.margin).take(self.height);
        for (y, row) in rows.enumerate() {
            strips.read(bits, y * width, plane, row);
            edges.set(&mut row[strips.plane(plane)..]);
        }
    }

    /// Writes the board to a sample of a grid.
    pub fn write(&self, grid: &mut Grid, sample: usize) {
        let words = grid.words_per_sample();
        for (plane, &channel) in self.channels.iter().enumerate() {
            let bits = &mut grid.plane_mut(channel)[sample * words..][..words];
            bits.fill(0);
            let rows = self.now.chunks_exact(self.strips.stride).skip(self.margin).take(self.height);
            for (y, row) in rows.enumerate() {
                self.strips.write(row, plane, bits, y * self.strips.width);
            }
            if self.turned {
                bits.copy_from_slice(&turn(bits, self.height, self.strips.width));
            }
        }
    }

    /// Makes `steps` steps, at least 1 and at most the margin, in one pass.
    pub fn pass(&mut self, steps: usize) {
        if self.boundary == Boundary::Torus {
            self.wrap_rows(steps);
        }
        let mut next = std::mem::take(&mut self.next);
        let cells = &mut next[self.margin * self.strips.stride..][..self.height * self.strips.stride];
        let chunk = self.chunk * self.strips.stride;
        let work = self.tiles.operations * (self.height * self.strips.vectors * steps) as f64;
        let run = |(index, target): (usize, &mut [Vector])| {
            let start = index * self.chunk;
            let mut buffers = self.buffers().pop().unwrap_or_default();
            self.run_chunk(start..self.height.min(start + self.chunk), steps, target, &mut buffers);
            self.buffers().push(buffers);
        };
        if work > THREAD_WORK && rayon::current_num_threads() > 1 {
            cells.par_chunks_mut(chunk).enumerate().for_each(run);
        } else {
            cells.chunks_mut(chunk).enumerate().for_each(run);
        }
        self.next = std::mem::replace(&mut self.now, next);
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Buffers>> {
        // Nothing can go wrong while the list is locked.
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the rows that lie beyond the edge of a torus.
    fn wrap_rows(&mut self, rows: usize) {
        let (stride, height) = (self.strips.stride, self.height);
        let mut copy = |from: usize, to: usize| {
            self.now.copy_within(from * stride..(from + 1) * stride, to * stride);
        };
        for distance in 1..=rows {
            // The row above the first one is the last one, and so on, around a low board more than once.
            let above = height - 1 - (distance - 1) % height;
            let below = (distance - 1) % height;
            copy(self.margin + above, self.margin - distance);
            copy(self.margin + below, self.margin + height + distance - 1);
        }
    }

    /// Makes `steps` steps of some rows; `target` is where the last one goes.
    fn run_chunk(&self, rows: Range<usize>, steps: usize, target: &mut [Vector], buffers: &mut Buffers) {
        let stride = self.strips.stride;
        let Buffers { steps: [before, after], scratch } = buffers;
        for step in 1..=steps {
            let around = steps - step;
            let range = self.around(&rows, around);
            let len = range.len();
            // On the board, rows are counted from the top of its margin; a buffer has such a margin above the
            // chunk.
            let in_buffer = |row: usize| row - rows.start;
            let source = if step == 1 {
                &self.now[(range.start - 1) * stride..]
            } else {
                &before[in_buffer(range.start - 1) * stride..]
            };
            if step == steps {
                self.step_rows(source, target, len, scratch);
            } else {
                after.resize((rows.len() + 2 * self.margin) * stride, Vector::ZERO);
                self.step_rows(source, &mut after[in_buffer(range.start) * stride..], len, scratch);
                self.clear_outside(&rows, after);
            }
            std::mem::swap(before, after);
        }
    }

    /// The rows of a chunk and `around` rows on both sides, counted from the top of the margin; on a board
    /// with zeros around it, only those that exist.
    fn around(&self, rows: &Range<usize>, around: usize) -> Range<usize> {
        let (start, end) = (rows.start + self.margin - around, rows.end + self.margin + around);
        match self.boundary {
            Boundary::Torus => start..end,
            Boundary::Zeros => start.max(self.margin)..end.min(self.margin + self.height),
        }
    }

    /// Clears the rows of a buffer that lie beyond the edge of a board with zeros around it.
    fn clear_outside(&self, rows: &Range<usize>, buffer: &mut [Vector]) {
        if self.boundary == Boundary::Zeros {
            let stride = self.strips.stride;
            let above = self.margin.saturating_sub(rows.start);
            buffer[..above * stride].fill(Vector::ZERO);
            let end = (self.height + self.margin - rows.start) * stride;
            if let Some(below) = buffer.get_mut(end..) {
                below.fill(Vector::ZERO);
            }
        }
    }

    /// One step of some rows.
    fn step_rows(&self, source: &[Vector], target: &mut [Vector], rows: usize, scratch: &mut Vec<Vector>) {
        self.tiles.run(source, target, rows, scratch);
        let rows = &mut target[..rows * self.strips.stride];
        self.edges.set_all(self.strips, self.channels.len(), rows);
    }
}
