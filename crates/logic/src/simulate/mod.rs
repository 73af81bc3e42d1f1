//! Running circuits and automata on many samples and cells at once.
//!
//! | file | what is in it |
//! |---|---|
//! | `executor` | [`Executor`]: a circuit on a batch of samples |
//! | `straight` | from a circuit to a straight-line program of four operations |
//! | `compiled` | a program bound to memory, run by one of the next two |
//! | `portable` | an interpreter that works on blocks |
//! | `native` | machine code, generated in memory |
//!
//! [`Runner`] steps large boards, 256 cells per instruction:
//!
//! | file | what is in it |
//! |---|---|
//! | `runner` | [`Runner`]: an automaton on large boards |
//! | `board` | a board, and several steps in one pass over it |
//! | `tile` | the rule as a program for several rows, which share what they have in common |
//! | `functions` | how to see that two values are the same |
//! | `strips` | the layout of a board, in which neighbours need no shifts |
//! | `bits` | strings of bits: windows, and rows turned into columns |
//!
//! [`Simulator`] steps small boards, 64 cells per word:
//!
//! | file | what is in it |
//! |---|---|
//! | `program` | from an automaton to a flat list of instructions over recycled slots |
//! | `neighbours` | the planes of the neighbours, by shifting bit strings |
//! | `kernels` | the inner loops |
//!
//! A step first copies every plane that the program reads into a padded buffer, so that new bits can
//! overwrite the grid at once. It then runs the whole program on one block of words after the other; the
//! block is as long as lets all slots stay in the first-level cache.

mod bits;
mod board;
mod compiled;
mod executor;
mod functions;
mod kernels;
mod native;
mod neighbours;
mod portable;
mod program;
mod runner;
mod straight;
mod strips;
mod tile;
pub mod variants;

pub use executor::{BatchError, Executor};
pub use runner::Runner;

use crate::automaton::{Automaton, AutomatonError};
use crate::grid::{Grid, GridError};
use kernels::{LANES, Lanes};
use neighbours::{Geometry, Segment};
use program::{Instruction, Program};

/// The bytes that the slots of a block should fit in: half of a usual first-level cache.
const BLOCK_BYTES: usize = 16 * 1024;
/// The least words of a block: fewer, and decoding instructions takes longer than running them.
const MIN_BLOCK: usize = 32;
/// The most words of a block.
const MAX_BLOCK: usize = 256;

/// An automaton, ready to run. For large boards and many steps, see [`Runner`].
///
/// Only what the observed channels depend on through time is computed. Channels that are not live (see
/// [`Automaton::observe`]) keep their old content.
///
/// The scratch memory stays with the simulator: after the first step on a grid, steps on grids of that size
/// do not allocate.
///
/// See the example at the top of the crate.
#[derive(Clone, Debug)]
pub struct Simulator {
    program: Program,
    geometry: Option<Geometry>,
    /// Padded copies of the planes that are read: `[plane][sample][padded word]`.
    padded: Vec<u64>,
    /// The slots of one block: `[slot][lanes]`.
    slots: Vec<Lanes>,
    /// The parts of samples that make up the current block.
    segments: Vec<Segment>,
}

impl Simulator {
    /// Compiles an automaton of which the first `observed` channels are looked at (all of them, if it has
    /// fewer).
    pub fn new(automaton: &Automaton, observed: usize) -> Result<Simulator, AutomatonError> {
        let program = Program::new(automaton, observed)?;
        Ok(Simulator { program, geometry: None, padded: Vec::new(), slots: Vec::new(), segments: Vec::new() })
    }

    /// The number of gates that are computed for each cell.
    pub fn gates(&self) -> usize {
        self.program.gates
    }

    /// Whether each channel is live; the others keep their old content.
    pub fn live(&self) -> &[bool] {
        &self.program.live
    }

    /// One step: every cell takes its new bits.
    pub fn step(&mut self, grid: &mut Grid) -> Result<(), GridError> {
        self.run(grid, None, self.block_words())
    }

    /// One asynchronous step: the cells whose mask bit is 1 take their new bits, the others keep theirs.
    ///
    /// The mask has the words of one sample ([`Grid::words_per_sample`]), with bit y * width + x for cell (y,
    /// x), and holds for all samples. Its unused bits do not matter.
    pub fn step_masked(&mut self, grid: &mut Grid, mask: &[u64]) -> Result<(), GridError> {
        if mask.len() != grid.words_per_sample() {
            return Err(GridError::Mask { mask: mask.len(), sample: grid.words_per_sample() });
        }
        self.run(grid, Some(mask), self.block_words())
    }

    /// One step, in blocks of at most `block` words.
    fn run(&mut self, grid: &mut Grid, mask: Option<&[u64]>, block: usize) -> Result<(), GridError> {
        let channels = self.program.live.len();
        if grid.channels() != channels {
            return Err(GridError::Channels { automaton: channels, grid: grid.channels() });
        }
        let geometry = match self.geometry.take() {
            Some(geometry) if geometry.fits(grid) => geometry,
            _ => Geometry::new(grid, self.program.boundary),
        };
        self.read_planes(&geometry, grid);
        let words = grid.samples() * grid.words_per_sample();
        let block = block.min(words);
        let lanes = block.div_ceil(LANES);
        self.slots.resize(self.program.slots * lanes, [0; LANES]);
        for start in (0..words).step_by(block) {
            let end = words.min(start + block);
            neighbours::split_at_samples(start..end, grid.words_per_sample(), &mut self.segments);
            self.run_block(&geometry, Block { start, end, lanes, mask }, grid);
        }
        self.geometry = Some(geometry);
        Ok(())
    }

    fn read_planes(&mut self, geometry: &Geometry, grid: &Grid) {
        let padded_plane = geometry.samples() * geometry.padded_words();
        self.padded.resize(self.program.planes.len() * padded_plane, 0);
        for (padded, &channel) in self.padded.chunks_exact_mut(padded_plane).zip(&self.program.planes) {
            geometry.pad(grid.plane(channel), padded);
        }
    }

    fn block_words(&self) -> usize {
        let fitting = BLOCK_BYTES / (8 * self.program.slots.max(1));
        (fitting / LANES * LANES).clamp(MIN_BLOCK, MAX_BLOCK)
    }

    fn run_block(&mut self, geometry: &Geometry, block: Block<'_>, grid: &mut Grid) {
        let padded_plane = geometry.samples() * geometry.padded_words();
        let lanes = block.lanes;
        let place = |slot: u32| slot as usize * lanes..(slot as usize + 1) * lanes;
        for &instruction in &self.program.instructions {
            match instruction {
                Instruction::Load { out, plane, neighbour } => {
                    let padded = &self.padded[plane as usize * padded_plane..][..padded_plane];
                    let out = self.slots[place(out)].as_flattened_mut();
                    geometry.load(padded, usize::from(neighbour), &self.segments, out);
                }
                Instruction::Fill { out, value } => {
                    self.slots[place(out)].fill([if value { u64::MAX } else { 0 }; LANES]);
                }
                Instruction::Gate { gate, out, a, b } => {
                    // The compiler of programs never writes to a slot that it reads, so this is never an
                    // error.
                    if let Ok([out, a, b]) = self.slots.get_disjoint_mut([place(out), place(a), place(b)]) {
                        kernels::gate(gate, out, a, b);
                    }
                }
                Instruction::Not { out, a } => {
                    if let Ok([out, a]) = self.slots.get_disjoint_mut([place(out), place(a)]) {
                        kernels::not(out, a);
                    }
                }
                Instruction::Store { a, channel } => {
                    let plane = &mut grid.plane_mut(channel as usize)[block.start..block.end];
                    let new = self.slots[place(a)].as_flattened();
                    match block.mask {
                        None => plane.copy_from_slice(&new[..plane.len()]),
                        Some(mask) => neighbours::store_masked(plane, new, mask, &self.segments),
                    }
                    geometry.clear_unused(plane, &self.segments);
                }
            }
        }
    }
}

/// The words of all samples that are computed together.
#[derive(Clone, Copy)]
struct Block<'a> {
    start: usize,
    end: usize,
    /// The length of a slot.
    lanes: usize,
    mask: Option<&'a [u64]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::circuit::Circuit;
    use crate::naive::naive_step_masked;
    use proptest::prelude::*;

    /// Checks a few steps against the naive twin, with a mask of its own for each.
    fn check(automaton: &Automaton, observed: usize, start: &Grid, masks: &[Vec<u64>], block: usize) {
        let mut simulator = Simulator::new(automaton, observed).unwrap();
        let (mut fast, mut slow) = (start.clone(), start.clone());
        for mask in masks {
            simulator.run(&mut fast, Some(mask), block).unwrap();
            slow = naive_step_masked(automaton, &slow, mask).unwrap();
            for channel in 0..automaton.channels {
                let expected = if simulator.live()[channel] { &slow } else { start };
                assert_eq!(fast.plane(channel), expected.plane(channel), "channel {channel}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_step_is_the_naive_step(
            (automaton, grid, masks) in arbitrary::situation(),
            observed in 0usize..5,
            block in 1usize..20,
        ) {
            check(&automaton, observed, &grid, &masks, block);
        }

        #[test]
        fn a_step_without_a_mask_changes_every_cell((automaton, grid, _) in arbitrary::situation()) {
            let mut simulator = Simulator::new(&automaton, usize::MAX).unwrap();
            let (mut fast, mut masked) = (grid.clone(), grid);
            simulator.step(&mut fast).unwrap();
            let all = vec![u64::MAX; masked.words_per_sample()];
            simulator.step_masked(&mut masked, &all).unwrap();
            prop_assert_eq!(fast, masked);
        }

        #[test]
        fn unused_bits_stay_0((automaton, grid, masks) in arbitrary::situation()) {
            let mut simulator = Simulator::new(&automaton, usize::MAX).unwrap();
            let mut grid = grid;
            for mask in &masks {
                simulator.step_masked(&mut grid, mask).unwrap();
                simulator.step(&mut grid).unwrap();
            }
            for channel in 0..grid.channels() {
                for sample in grid.plane(channel).chunks_exact(grid.words_per_sample()) {
                    prop_assert_eq!(sample[sample.len() - 1] & !grid.tail_mask(), 0);
                }
            }
        }

        #[test]
        fn one_simulator_steps_grids_of_any_size(
            (automaton, grid, _) in arbitrary::situation(),
            height in 1usize..12,
            width in 1usize..80,
        ) {
            let mut simulator = Simulator::new(&automaton, usize::MAX).unwrap();
            simulator.step(&mut Grid::new(2, height, width, automaton.channels).unwrap()).unwrap();
            let (mut reused, mut fresh) = (grid.clone(), grid);
            simulator.step(&mut reused).unwrap();
            Simulator::new(&automaton, usize::MAX).unwrap().step(&mut fresh).unwrap();
            prop_assert_eq!(reused, fresh);
        }
    }

    #[test]
    fn every_small_board_sees_every_neighbour() {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            for (height, width) in (1..6).flat_map(|height| (1..6).map(move |width| (height, width))) {
                // One channel per neighbour, which becomes that neighbour.
                let circuit = Circuit::new(81, vec![], (0..9).map(|n| n * 9 + n).collect()).unwrap();
                let automaton = Automaton::new(9, boundary, circuit).unwrap();
                let grid = arbitrary::scattered(2, height, width, 9);
                let masks = vec![vec![u64::MAX; grid.words_per_sample()]; 3];
                check(&automaton, 9, &grid, &masks, MAX_BLOCK);
            }
        }
    }

    #[test]
    fn life_is_the_naive_life_on_several_blocks() {
        for (height, width) in [(150, 128), (130, 150)] {
            let grid = arbitrary::scattered(1, height, width, 1);
            let masks = vec![vec![u64::MAX; grid.words_per_sample()]; 3];
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                check(&crate::rules::life(boundary), 1, &grid, &masks, 100);
            }
        }
    }

    #[test]
    fn stray_bits_beyond_the_cells_are_not_read() {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            let mut simulator = Simulator::new(&crate::rules::life(boundary), 1).unwrap();
            for size in [3, 9] {
                let mut clean = arbitrary::scattered(1, size, size, 1);
                let mut dirty = clean.clone();
                let tail = dirty.tail_mask();
                dirty.plane_mut(0)[clean.words_per_sample() - 1] |= !tail;
                simulator.step(&mut clean).unwrap();
                simulator.step(&mut dirty).unwrap();
                assert_eq!(clean, dirty, "{boundary:?}, {size}x{size}");
            }
        }
    }

    #[test]
    fn a_glider_flies() {
        let mut simulator = Simulator::new(&crate::rules::life(Boundary::Torus), 1).unwrap();
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        for (y, x) in [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            grid.set(0, 0, y, x, true);
        }
        let start = grid.clone();
        // A glider moves one cell down and right in four steps, and around a board of nine in 36.
        for step in 1..=36 {
            simulator.step(&mut grid).unwrap();
            assert_eq!(grid == start, step == 36, "step {step}");
        }
    }

    #[test]
    fn misfits_are_errors() {
        let mut simulator = Simulator::new(&crate::rules::life(Boundary::Torus), 1).unwrap();
        let mut wide = Grid::new(1, 3, 3, 2).unwrap();
        assert_eq!(simulator.step(&mut wide), Err(GridError::Channels { automaton: 1, grid: 2 }));
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        assert_eq!(simulator.step_masked(&mut grid, &[0]), Err(GridError::Mask { mask: 1, sample: 2 }));
        let mut broken = crate::rules::life(Boundary::Torus);
        broken.channels = 2;
        assert!(Simulator::new(&broken, 1).is_err());
    }
}
