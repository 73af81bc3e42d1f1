//! Grids for many automata at once: a few words per cell, with a halo around every grid, so that the neighbours of a range
//! of cells are the same range at a constant offset.
//!
//! ```text
//! a plane:  an unused vector, the rows of the first grid with a halo row above and below, the next grid, ...
//! a row:    a halo cell, the cells, a halo cell, padding to whole vectors
//! ```
//!
//! Rows are computed once and copied if they are certain to be equal, because they and their neighbours were equal in all
//! steps before. A grid that starts from a single seed has many of them in its first steps.

use super::count::Counters;
use super::program::{EXTRA_PLANES, TrialProgram, UPDATE_PLANE, patterns};
use super::{CELL, Wrong};
use crate::automaton::{Boundary, NEIGHBOURS};
use crate::grid::{Grid, GridError};
use crate::simulate::compiled::{Layout, Vector};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A simulation: the start states, the steps and the target states.
#[derive(Clone, Copy, Debug)]
pub struct SimulationTask<'a> {
    /// The start states.
    pub start: &'a Grid,
    /// The target of the first channels after the last step, one for each start state.
    pub target: &'a Grid,
    /// The cells beyond the edges.
    pub boundary: Boundary,
    /// The number of steps to the target.
    pub steps: usize,
    /// The number of additional steps after which the grids are compared with the target again.
    pub stay: usize,
    /// The masks of the cells that update in each step, repeated periodically, as for
    /// [`crate::Simulator::step_masked`]; empty if all cells update.
    pub fires: &'a [Vec<u64>],
}

/// The start states, steps and targets of a simulation.
#[derive(Clone, Debug)]
pub struct Grids {
    geometry: Geometry,
    observed: usize,
    /// The start planes of all channels.
    start: Vec<Vector>,
    /// The target planes.
    target: Vec<Vector>,
    steps: Vec<PlannedStep>,
    /// The number of steps after which the grids are first compared with the target.
    due: usize,
}

/// The rows that a step computes and copies.
#[derive(Clone, Debug, Default)]
struct PlannedStep {
    /// The ranges of rows that are computed.
    computed: Vec<Range<usize>>,
    /// The rows that are copied: source, destination.
    copied: Vec<(usize, usize)>,
    /// The mask of the cells that update; empty if all cells do.
    fires: Vec<Vector>,
}

/// The planes before and after a step.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneBuffers {
    now: Vec<Vector>,
    next: Vec<Vector>,
    /// The geometry and the number of channels for which the extra planes are filled.
    filled: Option<(Geometry, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    samples: usize,
    height: usize,
    width: usize,
    boundary: Boundary,
}

impl Geometry {
    /// Vectors per row.
    fn stride(&self) -> usize {
        ((self.width + 2) * CELL).div_ceil(Vector::WORDS)
    }

    /// The rows of all grids with their halos.
    fn rows(&self) -> usize {
        self.samples * (self.height + 2)
    }

    /// Vectors per plane: one before the rows and one after them.
    fn plane(&self) -> usize {
        2 + self.rows() * self.stride()
    }

    /// The vectors of a row in a plane, with its halo cells.
    fn row(&self, row: usize) -> Range<usize> {
        let start = 1 + row * self.stride();
        start..start + self.stride()
    }

    /// The rows of a grid, without its halo.
    fn cells(&self, sample: usize) -> Range<usize> {
        let first = sample * (self.height + 2) + 1;
        first..first + self.height
    }

    /// A plane in which all words of a cell are its bit.
    fn spread(&self, bit: impl Fn(usize, usize, usize) -> bool) -> Vec<Vector> {
        let mut plane = vec![Vector::ZERO; self.plane()];
        for sample in 0..self.samples {
            for (y, row) in self.cells(sample).enumerate() {
                let row = &mut plane[self.row(row)];
                for x in (0..self.width).filter(|&x| bit(sample, y, x)) {
                    set_cell(row, x + 1, [u64::MAX; CELL]);
                }
            }
        }
        self.set_halo(&mut plane);
        plane
    }

    /// Updates the halo.
    fn set_halo(&self, plane: &mut [Vector]) {
        let torus = self.boundary == Boundary::Torus;
        for sample in 0..self.samples {
            let cells = self.cells(sample);
            for row in cells.clone() {
                let row = &mut plane[self.row(row)];
                let outside = [0; CELL];
                let (left, right) =
                    if torus { (cell(row, self.width), cell(row, 1)) } else { (outside, outside) };
                set_cell(row, 0, left);
                set_cell(row, self.width + 1, right);
            }
            if torus {
                plane.copy_within(self.row(cells.end - 1), self.row(cells.start - 1).start);
                plane.copy_within(self.row(cells.start), self.row(cells.end).start);
            }
        }
    }
}

/// The words of a cell of a row; cell 0 is the halo.
fn cell(row: &[Vector], at: usize) -> [u64; CELL] {
    std::array::from_fn(|i| row[(at * CELL + i) / Vector::WORDS].0[(at * CELL + i) % Vector::WORDS])
}

fn set_cell(row: &mut [Vector], at: usize, words: [u64; CELL]) {
    for (i, word) in words.into_iter().enumerate() {
        row[(at * CELL + i) / Vector::WORDS].0[(at * CELL + i) % Vector::WORDS] = word;
    }
}

impl Grids {
    /// Lays out the grids of a task.
    pub fn new(task: &SimulationTask<'_>) -> Result<Grids, GridError> {
        let SimulationTask { start, target, boundary, .. } = *task;
        start.difference(target, 0)?;
        if let Some(mask) = task.fires.iter().find(|mask| mask.len() != start.words_per_sample()) {
            return Err(GridError::Mask { mask: mask.len(), sample: start.words_per_sample() });
        }
        let geometry =
            Geometry { samples: start.samples(), height: start.height(), width: start.width(), boundary };
        let planes = |grid: &Grid| {
            let plane = |channel| geometry.spread(|sample, y, x| grid.get(sample, channel, y, x));
            (0..grid.channels()).flat_map(plane).collect::<Vec<Vector>>()
        };
        let start_planes = planes(start);
        let steps = (0..task.steps + task.stay).map(|step| {
            let bit = |y: usize, x: usize| {
                let cell = y * geometry.width + x;
                task.fires[step % task.fires.len()][cell / 64] >> (cell % 64) & 1 == 1
            };
            let fires = if task.fires.is_empty() { Vec::new() } else { geometry.spread(|_, y, x| bit(y, x)) };
            PlannedStep { fires, ..PlannedStep::default() }
        });
        let mut grids = Grids {
            geometry,
            observed: target.channels(),
            steps: steps.collect(),
            start: start_planes,
            target: planes(target),
            due: task.steps,
        };
        grids.find_equal_rows();
        Ok(grids)
    }

    pub(super) fn channels(&self) -> usize {
        self.start.len() / self.geometry.plane()
    }

    /// The number of channels that have a target.
    pub(super) fn observed(&self) -> usize {
        self.observed
    }

    pub(super) fn is_asynchronous(&self) -> bool {
        self.steps.first().is_some_and(|step| !step.fires.is_empty())
    }

    /// Decides which rows are computed in each step, and which are copied.
    fn find_equal_rows(&mut self) {
        let geometry = self.geometry;
        // Rows of one class are equal. Halo rows of zeros have class 0.
        let mut classes = vec![0u32; geometry.rows()];
        let mut known: FxHashMap<Vec<u64>, u32> = FxHashMap::default();
        for sample in 0..geometry.samples {
            for row in geometry.cells(sample) {
                let planes = self.start.chunks_exact(geometry.plane());
                let content = planes.flat_map(|plane| &plane[geometry.row(row)]).flat_map(|v| v.0).collect();
                let next = known.len() as u32 + 1;
                classes[row] = *known.entry(content).or_insert(next);
            }
        }
        let asynchronous = self.is_asynchronous();
        for step in &mut self.steps {
            let mut known: FxHashMap<[u32; 3], usize> = FxHashMap::default();
            let mut after = vec![0u32; geometry.rows()];
            for sample in 0..geometry.samples {
                let cells = geometry.cells(sample);
                let class = |row: usize| match geometry.boundary {
                    Boundary::Torus if row + 1 == cells.start => classes[cells.end - 1],
                    Boundary::Torus if row == cells.end => classes[cells.start],
                    _ => classes[row],
                };
                for row in cells.clone() {
                    let key = [class(row - 1), class(row), class(row + 1)];
                    let first = if asynchronous { row } else { *known.entry(key).or_insert(row) };
                    after[row] = first as u32;
                    match step.computed.last_mut() {
                        _ if first != row => step.copied.push((first, row)),
                        Some(range) if range.end == row => range.end += 1,
                        _ => step.computed.push(row..row + 1),
                    }
                }
            }
            classes = after;
        }
    }

    /// The offsets of the inputs and outputs of a rule that computes some channels.
    pub(super) fn layout(&self, channels: usize, computed: &[usize]) -> Layout {
        let (plane, stride) = (self.geometry.plane() * Vector::WORDS, self.geometry.stride() * Vector::WORDS);
        // The source begins one vector before the row above the first one that is computed.
        let neighbour =
            |channel: usize, n: usize| channel * plane + Vector::WORDS + n / 3 * stride + n % 3 * CELL - CELL;
        let cells = (0..channels).flat_map(|channel| (0..NEIGHBOURS).map(move |n| neighbour(channel, n)));
        let extra = (0..EXTRA_PLANES).map(|i| neighbour(channels + i, 4));
        let outputs = computed.iter().map(|channel| channel * plane + Vector::WORDS);
        Layout {
            inputs: cells.chain(extra).map(|word| word as u32).collect(),
            outputs: outputs.map(|word| word as u32).collect(),
        }
    }

    /// Runs a program and counts the wrong bits of each automaton.
    pub(super) fn run(
        &self,
        program: &TrialProgram,
        buffers: &mut PlaneBuffers,
        scratch: &mut Vec<Vector>,
    ) -> Wrong {
        let plane = self.geometry.plane();
        let channels = self.channels();
        self.prepare(channels, buffers);
        for &channel in &program.channels {
            let planes = channel * plane..(channel + 1) * plane;
            buffers.now[planes.clone()].copy_from_slice(&self.start[planes]);
        }
        let mut counters = Counters::new();
        for (index, step) in self.steps.iter().enumerate() {
            self.step(program, step, channels, buffers, scratch);
            if index + 1 == self.due || index + 1 == self.steps.len() {
                self.count(&buffers.now, &mut counters);
            }
        }
        counters.counts()
    }

    /// Resizes the buffers and fills the planes after those of the channels.
    fn prepare(&self, channels: usize, buffers: &mut PlaneBuffers) {
        let plane = self.geometry.plane();
        if buffers.filled == Some((self.geometry, channels)) {
            return;
        }
        for planes in [&mut buffers.now, &mut buffers.next] {
            planes.clear();
            planes.resize((channels + EXTRA_PLANES) * plane, Vector::ZERO);
            for (i, cell) in patterns().into_iter().enumerate() {
                let vector = Vector(std::array::from_fn(|i| cell[i % CELL]));
                planes[(channels + i) * plane..][..plane].fill(vector);
            }
        }
        buffers.filled = Some((self.geometry, channels));
    }

    fn step(
        &self,
        program: &TrialProgram,
        step: &PlannedStep,
        channels: usize,
        buffers: &mut PlaneBuffers,
        scratch: &mut Vec<Vector>,
    ) {
        let (plane, stride) = (self.geometry.plane(), self.geometry.stride());
        if !step.fires.is_empty() {
            buffers.now[(channels + UPDATE_PLANE) * plane..][..plane].copy_from_slice(&step.fires);
        }
        for rows in &step.computed {
            let source = &buffers.now[(rows.start - 1) * stride..];
            let target = &mut buffers.next[rows.start * stride..];
            program.compiled.run(source, target, rows.len() * stride, scratch);
        }
        for &channel in &program.channels {
            let plane = &mut buffers.next[channel * plane..][..plane];
            for &(from, to) in &step.copied {
                plane.copy_within(self.geometry.row(from), self.geometry.row(to).start);
            }
            self.geometry.set_halo(plane);
        }
        std::mem::swap(&mut buffers.now, &mut buffers.next);
    }

    fn count(&self, now: &[Vector], counters: &mut Counters) {
        let plane = self.geometry.plane();
        for (target, now) in self.target.chunks_exact(plane).zip(now.chunks_exact(plane)) {
            for sample in 0..self.geometry.samples {
                for row in self.geometry.cells(sample) {
                    let vectors = target[self.geometry.row(row)].iter().zip(&now[self.geometry.row(row)]);
                    let words = vectors.flat_map(|(target, now)| target.zip(*now, |a, b| a ^ b).0);
                    let cells = words.skip(CELL).take(self.geometry.width * CELL).enumerate();
                    cells.for_each(|(i, wrong)| counters.add(i, wrong));
                }
            }
        }
    }
}
