//! A grid in striped layout, and temporally blocked steps on it.
//!
//! Memory bandwidth limits small rules, so one pass over the grid makes several steps (temporal blocking):
//!
//! ```text
//! for each chunk of rows, in parallel:
//!     step 1 of the chunk and t - 1 rows on both sides, from the grid to a buffer
//!     step 2 of the chunk and t - 2 rows on both sides, from that buffer to another
//!     ...
//!     step t of the chunk, to the next grid
//! ```
//!
//! The buffers stay in the second-level cache. Rows near the border of two chunks are computed by both, so that chunks
//! are independent and the result is the same for any number of threads. Above its first and below its last row the grid
//! has a halo of t rows: zeros, or copies of the rows at the opposite edge.

use super::bits::transpose_grid;
use super::compiled::Vector;
use super::strips::{Edges, Strips};
use super::tile::CompiledTiles;
use crate::automaton::Boundary;
use crate::grid::Grid;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bytes of the two buffers of a chunk: half of a usual second-level cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// The fewest rows of a chunk.
const MIN_ROWS: usize = 16;
/// The fewest chunks of a grid with enough rows, so that threads have work.
const MIN_CHUNKS: usize = 8;
/// The vector operations of a pass above which it runs in parallel: about 100 microseconds.
const THREAD_WORK: f64 = 4e5;
/// The rows of a chunk for each additional step of a pass that only saves thread synchronisation: with so many rows,
/// few are computed twice.
const ROWS_PER_STEP: usize = 32;

/// One sample of a grid in striped layout: `[row][plane][vector]`.
pub(super) struct StripedGrid<'a> {
    tiles: &'a CompiledTiles,
    strips: Strips,
    edges: Edges,
    boundary: Boundary,
    height: usize,
    /// The halo rows above and below the grid: the most steps of a pass.
    margin: usize,
    /// Rows per chunk.
    chunk: usize,
    /// The channel of each plane.
    channels: &'a [usize],
    /// Whether the grid is stored transposed.
    transposed: bool,
    now: Vec<Vector>,
    next: Vec<Vector>,
    /// Buffers that no thread uses at the moment.
    buffers: Mutex<Vec<Buffers>>,
}

/// A rule compiled for one orientation of a grid.
#[derive(Clone, Copy)]
pub(super) struct OrientedRule<'a> {
    pub tiles: &'a CompiledTiles,
    /// The channel of each plane.
    pub channels: &'a [usize],
    /// Whether the grid is to be stored transposed.
    pub transposed: bool,
}

/// The buffers of a chunk.
#[derive(Default)]
struct Buffers {
    /// The rows before and after a step.
    steps: [Vec<Vector>; 2],
    scratch: Vec<Vector>,
}

/// Returns the steps of a pass that pay off only because threads synchronise less often.
pub(super) fn steps_for_threads(strips: Strips, height: usize) -> usize {
    if rayon::current_num_threads() == 1 { 1 } else { 1 + chunk_rows(strips, height, 0) / ROWS_PER_STEP }
}

/// Returns the rows of a chunk with a halo of `margin` rows.
fn chunk_rows(strips: Strips, height: usize, margin: usize) -> usize {
    let fitting = BUFFER_BYTES / 2 / (strips.stride * size_of::<Vector>());
    let chunk = fitting.saturating_sub(2 * margin).min(height.div_ceil(MIN_CHUNKS));
    chunk.max(MIN_ROWS).max(2 * margin)
}

impl<'a> StripedGrid<'a> {
    /// Creates a grid of zeros with the size of another, for passes of at most `margin` steps.
    pub fn new(rule: OrientedRule<'a>, boundary: Boundary, grid: &Grid, margin: usize) -> StripedGrid<'a> {
        let OrientedRule { tiles, channels, transposed } = rule;
        let strips = tiles.strips();
        let height = if transposed { grid.width() } else { grid.height() };
        let vectors = (height + 2 * margin) * strips.stride;
        StripedGrid {
            tiles,
            strips,
            edges: strips.edges(boundary),
            boundary,
            height,
            margin,
            chunk: chunk_rows(strips, height, margin),
            channels,
            transposed,
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

    /// Reads a plane from the bits of the cells of a grid, stored row by row.
    pub fn read_plane(&mut self, bits: &[u64], plane: usize) {
        let (strips, width, edges) = (self.strips, self.strips.width, self.edges);
        let transposed = if self.transposed { transpose_grid(bits, width, self.height) } else { Vec::new() };
        let bits = if self.transposed { &transposed } else { bits };
        let rows = self.now.chunks_exact_mut(strips.stride).skip(self.margin).take(self.height);
        for (y, row) in rows.enumerate() {
            strips.read(bits, y * width, plane, row);
            edges.set(&mut row[strips.plane(plane)..]);
        }
    }

    /// Writes the cells to a sample of a grid.
    pub fn write(&self, grid: &mut Grid, sample: usize) {
        let words = grid.words_per_sample();
        for (plane, &channel) in self.channels.iter().enumerate() {
            let bits = &mut grid.plane_mut(channel)[sample * words..][..words];
            bits.fill(0);
            let rows = self.now.chunks_exact(self.strips.stride).skip(self.margin).take(self.height);
            for (y, row) in rows.enumerate() {
                self.strips.write(row, plane, bits, y * self.strips.width);
            }
            if self.transposed {
                bits.copy_from_slice(&transpose_grid(bits, self.height, self.strips.width));
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
        // A poisoned lock cannot leave the list in an invalid state.
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the halo of a torus.
    fn wrap_rows(&mut self, rows: usize) {
        let (stride, height) = (self.strips.stride, self.height);
        let mut copy = |from: usize, to: usize| {
            self.now.copy_within(from * stride..(from + 1) * stride, to * stride);
        };
        for distance in 1..=rows {
            // The row above the first one is the last one; a grid of few rows repeats more than once.
            let above = height - 1 - (distance - 1) % height;
            let below = (distance - 1) % height;
            copy(self.margin + above, self.margin - distance);
            copy(self.margin + below, self.margin + height + distance - 1);
        }
    }

    /// Makes `steps` steps of some rows and writes the last one to `target`.
    fn run_chunk(&self, rows: Range<usize>, steps: usize, target: &mut [Vector], buffers: &mut Buffers) {
        let stride = self.strips.stride;
        let Buffers { steps: [before, after], scratch } = buffers;
        for step in 1..=steps {
            let around = steps - step;
            let range = self.around(&rows, around);
            let len = range.len();
            // Rows are counted from the top of the halo, in the grid and in the buffers.
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

    /// The rows of a chunk and `around` rows on both sides, counted from the top of the halo. With a boundary of zeros,
    /// only rows that exist.
    fn around(&self, rows: &Range<usize>, around: usize) -> Range<usize> {
        let (start, end) = (rows.start + self.margin - around, rows.end + self.margin + around);
        match self.boundary {
            Boundary::Torus => start..end,
            Boundary::Zeros => start.max(self.margin)..end.min(self.margin + self.height),
        }
    }

    /// With a boundary of zeros, clears the rows of a buffer beyond the edge of the grid.
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

    /// Makes one step of some rows.
    fn step_rows(&self, source: &[Vector], target: &mut [Vector], rows: usize, scratch: &mut Vec<Vector>) {
        self.tiles.run(source, target, rows, scratch);
        let rows = &mut target[..rows * self.strips.stride];
        self.edges.set_all(self.strips, self.channels.len(), rows);
    }
}
