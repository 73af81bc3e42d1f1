//! The simulator for small grids, 64 cells per word.
//!
//! A step first copies every plane that the rule reads into a padded buffer, so that new bits can overwrite the grid at
//! once. It then interprets the whole rule on one block of words after the other; a block is as long as lets all slots
//! stay in the first-level cache.

use super::interpreter::{BlockPorts, BlockProgram};
use super::neighbours::{self, Geometry, Segment};
use crate::automaton::{Automaton, AutomatonError, Boundary, CENTRE, NEIGHBOURS};
use crate::cone::Cone;
use crate::grid::{Grid, GridError};
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;
use crate::xag::Xag;
use fearless_simd::{Level, Simd, dispatch};
use std::ops::Range;

/// The words of a group that the inner loops compute at once.
const GROUP: usize = 4;
/// The bytes that the slots of a block should fit in: half of a usual first-level cache.
const BLOCK_BYTES: usize = 16 * 1024;
/// The fewest words of a block: with fewer, decoding instructions takes longer than executing them.
const MIN_BLOCK: usize = 32;
/// The most words of a block.
const MAX_BLOCK: usize = 256;

/// A cellular automaton, ready to run. For large grids and many steps, see [`Runner`](super::Runner).
///
/// Only the fan-in cone of the observed channels is computed, through time. Channels that are not live (see
/// [`Automaton::observe`]) keep their old content.
///
/// The simulator keeps its scratch memory: after the first step on a grid, steps on grids of that size do not allocate.
///
/// See the example at the top of the crate.
#[derive(Clone, Debug)]
pub struct Simulator {
    rule: RuleProgram,
    geometry: Option<Geometry>,
    /// Padded copies of the planes that are read: `[plane][sample][padded word]`.
    padded: Vec<u64>,
    /// The slots of one block: `[slot][group]`.
    slots: Vec<[u64; GROUP]>,
    /// The parts of samples that make up the current block.
    segments: Vec<Segment>,
}

/// The rule of an automaton as a program on blocks. Input `9 * channel + neighbour` is a neighbour of every cell.
#[derive(Clone, Debug)]
struct RuleProgram {
    boundary: Boundary,
    live: Vec<bool>,
    gates: usize,
    program: BlockProgram,
    /// The channels that are read, and the position of each channel in this list.
    read: Vec<usize>,
    plane: Vec<usize>,
    /// The channel of each output of the program.
    written: Vec<usize>,
}

impl RuleProgram {
    fn new(automaton: &Automaton, observed: usize) -> Result<RuleProgram, AutomatonError> {
        automaton.check()?;
        let circuit = automaton.circuit.simplify();
        let Cone { live, gates } = Cone::new(&circuit, observed);
        let keeps_value =
            |channel: usize| circuit.outputs()[channel] as usize == channel * NEIGHBOURS + CENTRE;
        let written: Vec<usize> =
            (0..live.len()).filter(|&channel| live[channel] && !keeps_value(channel)).collect();
        let xag = Xag::from_circuit(&circuit);
        let outputs: Vec<Literal> = written.iter().map(|&channel| xag.outputs()[channel]).collect();
        let program = StraightLineProgram::lower(&xag, &outputs);
        let mut is_read = vec![false; live.len()];
        let values = program.instructions.iter().flat_map(|instruction| instruction.reads()).flatten();
        for input in values.filter_map(|value| program.input(value)) {
            is_read[input / NEIGHBOURS] = true;
        }
        let read: Vec<usize> = (0..live.len()).filter(|&channel| is_read[channel]).collect();
        let mut plane = vec![0; live.len()];
        read.iter().enumerate().for_each(|(i, &channel)| plane[channel] = i);
        Ok(RuleProgram {
            boundary: automaton.boundary,
            live,
            gates,
            program: BlockProgram::new(&program, |_| false),
            read,
            plane,
            written,
        })
    }
}

impl Simulator {
    /// Compiles an automaton of which the first `observed` channels are observed (all of them, if it has fewer).
    pub fn new(automaton: &Automaton, observed: usize) -> Result<Simulator, AutomatonError> {
        let rule = RuleProgram::new(automaton, observed)?;
        Ok(Simulator { rule, geometry: None, padded: Vec::new(), slots: Vec::new(), segments: Vec::new() })
    }

    /// The number of gates in the fan-in cone of the observed channels.
    pub fn gates(&self) -> usize {
        self.rule.gates
    }

    /// Whether each channel is live; the others keep their old content.
    pub fn live(&self) -> &[bool] {
        &self.rule.live
    }

    /// Makes one step in which every cell takes its new bits.
    pub fn step(&mut self, grid: &mut Grid) -> Result<(), GridError> {
        self.run(grid, None, self.block_words())
    }

    /// Makes one asynchronous step: the cells whose mask bit is 1 take their new bits, the others keep theirs.
    ///
    /// The mask has the words of one sample ([`Grid::words_per_sample`]), with bit y * width + x for cell (y,
    /// x), and applies to all samples. Its unused bits are ignored.
    pub fn step_masked(&mut self, grid: &mut Grid, mask: &[u64]) -> Result<(), GridError> {
        if mask.len() != grid.words_per_sample() {
            return Err(GridError::Mask { mask: mask.len(), sample: grid.words_per_sample() });
        }
        self.run(grid, Some(mask), self.block_words())
    }

    /// Makes one step, in blocks of at most `block` words.
    fn run(&mut self, grid: &mut Grid, mask: Option<&[u64]>, block: usize) -> Result<(), GridError> {
        let channels = self.rule.live.len();
        if grid.channels() != channels {
            return Err(GridError::Channels { automaton: channels, grid: grid.channels() });
        }
        let geometry = match self.geometry.take() {
            Some(geometry) if geometry.fits(grid) => geometry,
            _ => Geometry::new(grid, self.rule.boundary),
        };
        self.read_planes(&geometry, grid);
        let words = grid.samples() * grid.words_per_sample();
        let block = block.min(words);
        self.slots.resize(self.rule.program.slots() * block.div_ceil(GROUP), [0; GROUP]);
        let level = Level::new();
        for start in (0..words).step_by(block) {
            let end = words.min(start + block);
            neighbours::split_at_samples(start..end, grid.words_per_sample(), &mut self.segments);
            let mut ports = GridPorts {
                rule: &self.rule,
                geometry: &geometry,
                padded: &self.padded,
                segments: &self.segments,
                block: start..end,
                mask,
                grid,
            };
            dispatch!(level, simd => run_block(simd, &mut self.slots, &mut ports));
        }
        self.geometry = Some(geometry);
        Ok(())
    }

    fn read_planes(&mut self, geometry: &Geometry, grid: &Grid) {
        let padded_plane = geometry.samples() * geometry.padded_words();
        self.padded.resize(self.rule.read.len() * padded_plane, 0);
        for (padded, &channel) in self.padded.chunks_exact_mut(padded_plane).zip(&self.rule.read) {
            geometry.pad(grid.plane(channel), padded);
        }
    }

    fn block_words(&self) -> usize {
        let fitting = BLOCK_BYTES / (8 * self.rule.program.slots().max(1));
        (fitting / GROUP * GROUP).clamp(MIN_BLOCK, MAX_BLOCK)
    }
}

#[expect(clippy::inline_always, reason = "the code of a block must be compiled for its instruction set")]
#[inline(always)]
fn run_block<S: Simd>(_: S, slots: &mut [[u64; GROUP]], ports: &mut GridPorts<'_>) {
    ports.rule.program.run(slots, ports.block.len().div_ceil(GROUP), ports);
}

/// A block of words of all samples: reads neighbours from the padded planes, writes new bits to the grid.
struct GridPorts<'a> {
    rule: &'a RuleProgram,
    geometry: &'a Geometry,
    padded: &'a [u64],
    segments: &'a [Segment],
    block: Range<usize>,
    mask: Option<&'a [u64]>,
    grid: &'a mut Grid,
}

impl<'a> BlockPorts<'a, [u64; GROUP]> for GridPorts<'a> {
    /// No input is read in place.
    fn input(&self, _: u32) -> &'a [[u64; GROUP]] {
        &[]
    }

    fn load(&self, input: u32, slot: &mut [[u64; GROUP]]) {
        let (channel, neighbour) = (input as usize / NEIGHBOURS, input as usize % NEIGHBOURS);
        let plane = self.geometry.samples() * self.geometry.padded_words();
        let padded = &self.padded[self.rule.plane[channel] * plane..][..plane];
        self.geometry.load(padded, neighbour, self.segments, slot.as_flattened_mut());
    }

    fn store(&mut self, output: u32, words: &[[u64; GROUP]], inverted: bool) {
        let plane = &mut self.grid.plane_mut(self.rule.written[output as usize])[self.block.clone()];
        let (new, flip) = (words.as_flattened(), if inverted { u64::MAX } else { 0 });
        match self.mask {
            None => plane.iter_mut().zip(new).for_each(|(old, new)| *old = new ^ flip),
            Some(mask) => neighbours::store_masked(plane, new, flip, mask, self.segments),
        }
        self.geometry.clear_unused(plane, self.segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;
    use crate::naive::naive_step_masked;
    use proptest::prelude::*;

    /// Compares a few steps with the reference implementation, each with its own mask.
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
        fn a_step_equals_the_reference(
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
    fn every_neighbour_is_read_on_small_grids() {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            for (height, width) in (1..6).flat_map(|height| (1..6).map(move |width| (height, width))) {
                // Each channel becomes one of the neighbours.
                let circuit = Circuit::new(81, vec![], (0..9).map(|n| n * 9 + n).collect()).unwrap();
                let automaton = Automaton::new(9, boundary, circuit).unwrap();
                let grid = arbitrary::scattered(2, height, width, 9);
                let masks = vec![vec![u64::MAX; grid.words_per_sample()]; 3];
                check(&automaton, 9, &grid, &masks, MAX_BLOCK);
            }
        }
    }

    #[test]
    fn life_on_several_blocks_equals_the_reference() {
        for (height, width) in [(150, 128), (130, 150)] {
            let grid = arbitrary::scattered(1, height, width, 1);
            let masks = vec![vec![u64::MAX; grid.words_per_sample()]; 3];
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                check(&crate::rules::life(boundary), 1, &grid, &masks, 100);
            }
        }
    }

    #[test]
    fn bits_beyond_the_last_cell_are_not_read() {
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
    fn a_glider_returns_after_36_steps_on_a_9x9_torus() {
        let mut simulator = Simulator::new(&crate::rules::life(Boundary::Torus), 1).unwrap();
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        for (y, x) in [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            grid.set(0, 0, y, x, true);
        }
        let start = grid.clone();
        // A glider moves one cell down and right in four steps.
        for step in 1..=36 {
            simulator.step(&mut grid).unwrap();
            assert_eq!(grid == start, step == 36, "step {step}");
        }
    }

    #[test]
    fn grids_and_masks_of_other_sizes_are_errors() {
        let mut simulator = Simulator::new(&crate::rules::life(Boundary::Torus), 1).unwrap();
        let mut wide = Grid::new(1, 3, 3, 2).unwrap();
        assert_eq!(simulator.step(&mut wide), Err(GridError::Channels { automaton: 1, grid: 2 }));
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        assert_eq!(simulator.step_masked(&mut grid, &[0]), Err(GridError::Mask { mask: 1, sample: 2 }));
        let mut broken = crate::rules::life(Boundary::Torus);
        broken.channels = 2;
        assert!(Simulator::new(&broken, 1).is_err());
    }

    #[test]
    fn only_the_planes_of_the_cone_are_read() {
        // Channel 0 is the AND of two neighbours in channel 1, which keeps its value; channel 2 reads everything.
        let nodes = vec![Node::new(Gate::AND, 9, 10), Node::new(Gate::OR, 27, 5)];
        let circuit = Circuit::new(27, nodes, vec![27, 13, 28]).unwrap();
        let automaton = Automaton::new(3, Boundary::Torus, circuit).unwrap();
        let rule = Simulator::new(&automaton, 1).unwrap().rule;
        assert_eq!((rule.read, rule.written, rule.live), (vec![1], vec![0], vec![true, true, false]));
        assert_eq!((rule.gates, rule.program.slots()), (1, 2));
    }
}
