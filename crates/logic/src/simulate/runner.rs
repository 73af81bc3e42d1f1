//! Simulation of an automaton on large grids, many steps at a time.

use super::compiled::Mode;
use super::striped_grid::{OrientedRule, StripedGrid, steps_for_threads};
use super::strips::Strips;
use super::tile::{CompiledTiles, TileRule};
use crate::automaton::{Automaton, AutomatonError};
use crate::grid::{Grid, GridError};
use std::sync::OnceLock;

/// The steps per pass of cheap rules.
const STEPS_PER_PASS: usize = 8;
/// The cost of a transposed grid, relative to the original, below which it pays to transpose the grid.
const TRANSPOSE_RATIO: f64 = 0.9;
/// The cost of the edges of a row, in operations.
const EDGE_COST: f64 = 16.0;
/// The operations per cell up to which a rule is limited by memory bandwidth, so that several steps per pass pay off even
/// for one thread.
const MAX_CHEAP_OPERATIONS: f64 = 64.0;

/// A cellular automaton, ready to run on large grids.
///
/// The results are those of [`Simulator`](super::Simulator), computed on all threads of the current pool. Converting a
/// grid to the striped layout and back takes as long as a few steps, and rows are processed 256 cells at a time, so this
/// pays off for wide grids and many steps.
///
/// ```
/// use gatework_logic::{Boundary, Grid, rules, simulate::Runner};
///
/// let mut grid = Grid::new(1, 300, 500, 1)?;
/// for (y, x) in [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
///     grid.set(0, 0, y, x, true);
/// }
/// Runner::new(&rules::life(Boundary::Torus), 1)?.run(&mut grid, 400)?;
/// // In 400 steps a glider moves 100 cells down and right.
/// assert!(grid.get(0, 0, 100, 101) && grid.count_ones(0, 0) == 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Runner {
    automaton: Automaton,
    mode: Mode,
    live: Vec<bool>,
    /// The rule for synchronous steps, prepared at the first one.
    plain: OnceLock<PreparedRule>,
    /// The rule for asynchronous steps.
    masked: OnceLock<PreparedRule>,
}

impl Runner {
    /// Prepares an automaton of which the first `observed` channels are observed (all of them, if it has fewer), with
    /// native code if the processor is supported.
    pub fn new(automaton: &Automaton, observed: usize) -> Result<Runner, AutomatonError> {
        Runner::with_mode(automaton, observed, Mode::Native)
    }

    /// Prepares an automaton for the interpreter, which runs on every processor.
    pub fn portable(automaton: &Automaton, observed: usize) -> Result<Runner, AutomatonError> {
        Runner::with_mode(automaton, observed, Mode::Interpreter)
    }

    fn with_mode(automaton: &Automaton, observed: usize, mode: Mode) -> Result<Runner, AutomatonError> {
        let live = automaton.observe(observed)?;
        let automaton = Automaton { circuit: automaton.circuit.simplify(), ..automaton.clone() };
        Ok(Runner { automaton, mode, live, plain: OnceLock::new(), masked: OnceLock::new() })
    }

    fn prepare(&self, masked: bool) -> &PreparedRule {
        let prepared = if masked { &self.masked } else { &self.plain };
        prepared
            .get_or_init(|| PreparedRule::new(TileRule::new(&self.automaton, &self.live, masked), self.mode))
    }

    /// Whether each channel is live; the others keep their old content.
    pub fn live(&self) -> &[bool] {
        &self.live
    }

    /// The average number of bitwise operations per cell. It is less than the number of gates if rows or columns have
    /// common subexpressions.
    pub fn operations(&self) -> f64 {
        let [original, transposed] = &self.prepare(false).rules;
        original.operations.min(transposed.operations)
    }

    /// Makes a number of steps in which every cell takes its new bits.
    pub fn run(&mut self, grid: &mut Grid, steps: usize) -> Result<(), GridError> {
        self.check(grid)?;
        if steps == 0 {
            return Ok(());
        }
        self.prepare(false);
        let Some(prepared) = self.plain.get_mut() else { return Ok(()) };
        let rule = prepared.choose(grid);
        let per_pass = rule.steps_per_pass(grid).min(steps);
        let mut striped = StripedGrid::new(rule, self.automaton.boundary, grid, per_pass);
        for sample in 0..grid.samples() {
            striped.read(grid, sample);
            let mut left = steps;
            while left > 0 {
                striped.pass(per_pass.min(left));
                left -= per_pass.min(left);
            }
            striped.write(grid, sample);
        }
        Ok(())
    }

    /// Makes an asynchronous step for each mask: the cells whose mask bit is 1 take their new bits, the others keep
    /// theirs.
    ///
    /// A mask has the words of one sample ([`Grid::words_per_sample`]), with bit y * width + x for cell (y,
    /// x), and applies to all samples. Its unused bits are ignored.
    pub fn run_masked<M: AsRef<[u64]>>(&mut self, grid: &mut Grid, masks: &[M]) -> Result<(), GridError> {
        self.check(grid)?;
        let words = grid.words_per_sample();
        if let Some(mask) = masks.iter().map(|mask| mask.as_ref().len()).find(|&mask| mask != words) {
            return Err(GridError::Mask { mask, sample: words });
        }
        if masks.is_empty() {
            return Ok(());
        }
        self.prepare(true);
        let Some(prepared) = self.masked.get_mut() else { return Ok(()) };
        let rule = prepared.choose(grid);
        let mut striped = StripedGrid::new(rule, self.automaton.boundary, grid, 1);
        for sample in 0..grid.samples() {
            striped.read(grid, sample);
            for mask in masks {
                striped.read_plane(mask.as_ref(), rule.channels.len());
                striped.pass(1);
            }
            striped.write(grid, sample);
        }
        Ok(())
    }

    fn check(&self, grid: &Grid) -> Result<(), GridError> {
        let (automaton, grid) = (self.live.len(), grid.channels());
        if automaton == grid { Ok(()) } else { Err(GridError::Channels { automaton, grid }) }
    }
}

impl OrientedRule<'_> {
    fn steps_per_pass(&self, grid: &Grid) -> usize {
        if self.tiles.operations <= MAX_CHEAP_OPERATIONS {
            return STEPS_PER_PASS;
        }
        let height = if self.transposed { grid.width() } else { grid.height() };
        steps_for_threads(self.tiles.strips(), height).min(STEPS_PER_PASS)
    }
}

/// A rule for both orientations of a grid, and the tiles that were compiled for the last grid.
///
/// Only rows share subexpressions. A rule that adds columns shares more on a transposed grid, and a narrow grid fills more
/// of a vector if it is transposed.
#[derive(Clone, Debug)]
struct PreparedRule {
    /// The rule itself and its transposition.
    rules: [TileRule; 2],
    mode: Mode,
    /// The tiles that were compiled last, and whether they are for a transposed grid.
    tiles: Option<(bool, CompiledTiles)>,
}

impl PreparedRule {
    fn new(rule: TileRule, mode: Mode) -> PreparedRule {
        let transposed = rule.transposed();
        PreparedRule { rules: [rule, transposed], mode, tiles: None }
    }

    /// Chooses the cheaper orientation for a grid.
    fn choose(&mut self, grid: &Grid) -> OrientedRule<'_> {
        let transposed = self.cost(true, grid) < TRANSPOSE_RATIO * self.cost(false, grid);
        let rule = &self.rules[usize::from(transposed)];
        let strips = Strips::new(if transposed { grid.height() } else { grid.width() }, rule.planes());
        let last = self.tiles.take().filter(|(last, tiles)| *last == transposed && tiles.strips() == strips);
        let tiles = last.map_or_else(|| CompiledTiles::new(rule, strips, self.mode), |(_, tiles)| tiles);
        let (_, tiles) = self.tiles.insert((transposed, tiles));
        OrientedRule { tiles, channels: &rule.channels, transposed }
    }

    /// The cost of a step, in operations.
    fn cost(&self, transposed: bool, grid: &Grid) -> f64 {
        let (rows, width) =
            if transposed { (grid.width(), grid.height()) } else { (grid.height(), grid.width()) };
        let strips = Strips::new(width, 1);
        (self.rules[usize::from(transposed)].operations + EDGE_COST / strips.vectors as f64)
            * (rows * strips.vectors) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{naive_step, naive_step_masked};
    use crate::{Boundary, Circuit, Gate, Node, arbitrary, rules};
    use proptest::prelude::*;

    fn both(automaton: &Automaton, observed: usize) -> [Runner; 2] {
        [Runner::new(automaton, observed).unwrap(), Runner::portable(automaton, observed).unwrap()]
    }

    /// Checks the live channels against an expected grid, and the others against the start.
    fn compare(runner: &Runner, result: &Grid, expected: &Grid, start: &Grid) {
        for (channel, &live) in runner.live().iter().enumerate() {
            let expected = if live { expected } else { start };
            assert!(result.plane(channel) == expected.plane(channel), "channel {channel}");
        }
    }

    /// Compares some steps with the reference implementation.
    fn check(automaton: &Automaton, observed: usize, start: &Grid, steps: usize) {
        let expected = (0..steps).fold(start.clone(), |grid, _| naive_step(automaton, &grid).unwrap());
        for mut runner in both(automaton, observed) {
            let mut grid = start.clone();
            runner.run(&mut grid, steps).unwrap();
            compare(&runner, &grid, &expected, start);
        }
    }

    proptest! {
        #[test]
        fn steps_equal_the_reference(
            (automaton, grid, _) in arbitrary::situation(),
            observed in 0usize..5,
            steps in 0usize..12,
        ) {
            check(&automaton, observed, &grid, steps);
        }

        #[test]
        fn masked_steps_equal_the_reference(
            (automaton, start, masks) in arbitrary::situation(),
            observed in 0usize..5,
        ) {
            let step = |grid: Grid, mask: &Vec<u64>| naive_step_masked(&automaton, &grid, mask).unwrap();
            let expected = masks.iter().fold(start.clone(), step);
            for mut runner in both(&automaton, observed) {
                let mut grid = start.clone();
                runner.run_masked(&mut grid, &masks).unwrap();
                compare(&runner, &grid, &expected, &start);
            }
        }
    }

    #[test]
    fn every_width_sees_every_neighbour() {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            for (height, width) in
                [(1, 255), (2, 256), (3, 257), (5, 300), (2, 511), (4, 512), (3, 513), (3, 700)]
            {
                // One channel per neighbour, which becomes that neighbour.
                let circuit = Circuit::new(81, vec![], (0..9).map(|n| n * 9 + n).collect()).unwrap();
                let automaton = Automaton::new(9, boundary, circuit).unwrap();
                check(&automaton, 9, &arbitrary::scattered(2, height, width, 9), 3);
            }
        }
    }

    #[test]
    fn narrow_grids_and_rules_that_add_columns_are_transposed() {
        let life = rules::life(Boundary::Torus);
        let mut prepared = PreparedRule::new(TileRule::new(&life, &[true], false), Mode::Interpreter);
        assert!(!prepared.choose(&Grid::new(1, 512, 512, 1).unwrap()).transposed);
        assert!(prepared.choose(&Grid::new(1, 512, 60, 1).unwrap()).transposed);
        let mut transposed = PreparedRule::new(prepared.rules[1].clone(), Mode::Interpreter);
        assert!(transposed.choose(&Grid::new(1, 512, 512, 1).unwrap()).transposed);
        check(&life, 1, &arbitrary::scattered(2, 300, 20, 1), 10);
    }

    #[test]
    fn life_on_several_chunks_equals_the_reference() {
        for (height, width) in [(170, 256), (131, 270)] {
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                check(&rules::life(boundary), 1, &arbitrary::scattered(1, height, width, 1), 11);
            }
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        // Large enough to run in parallel, see `striped_grid::THREAD_WORK`.
        let start = arbitrary::scattered(1, 2000, 2000, 1);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut grid = start.clone();
            pool.install(|| Runner::new(&rules::life(Boundary::Torus), 1).unwrap().run(&mut grid, 50))
                .unwrap();
            grid
        };
        assert!(run(1) == run(3));
    }

    #[test]
    fn threads_make_several_steps_of_a_large_rule_in_a_pass() {
        // A chain through all inputs, again and again.
        let gates = [Gate::AND, Gate::XOR].into_iter().cycle().zip(0..200);
        let nodes = gates.map(|(gate, i)| Node::new(gate, 35 + i, i * 7 % 36)).collect();
        let circuit = Circuit::new(36, nodes, vec![235, 234, 233, 232]).unwrap();
        let rule = Automaton::new(4, Boundary::Torus, circuit).unwrap();
        let start = arbitrary::scattered(1, 600, 520, 4);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (mut runner, mut grid) = (Runner::new(&rule, 4).unwrap(), start.clone());
            let per_pass = pool.install(|| {
                runner.run(&mut grid, 11).unwrap();
                runner.plain.get_mut().unwrap().choose(&grid).steps_per_pass(&grid)
            });
            (per_pass, grid)
        };
        let ((one, alone), (several, together)) = (run(1), run(3));
        assert!(one == 1 && several > 1 && alone == together, "{one} and {several} steps");
    }

    #[test]
    fn one_runner_runs_grids_of_any_size() {
        let life = rules::life(Boundary::Torus);
        let mut runner = Runner::new(&life, 1).unwrap();
        for (height, width) in [(5, 300), (40, 20), (5, 300), (1, 1)] {
            let mut grid = arbitrary::scattered(1, height, width, 1);
            let expected = naive_step(&life, &grid).unwrap();
            runner.run(&mut grid, 1).unwrap();
            assert!(grid == expected, "{height}x{width}");
        }
    }

    #[test]
    fn grids_and_masks_of_other_sizes_are_errors() {
        let mut runner = Runner::new(&rules::life(Boundary::Torus), 1).unwrap();
        let mut wide = Grid::new(1, 2, 2, 2).unwrap();
        assert_eq!(runner.run(&mut wide, 1), Err(GridError::Channels { automaton: 1, grid: 2 }));
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        assert_eq!(runner.run_masked(&mut grid, &[[0]]), Err(GridError::Mask { mask: 1, sample: 2 }));
    }
}
