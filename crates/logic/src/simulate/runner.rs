//! The runner: an automaton on large boards, many steps at a time.

use super::board::{Board, Variant, steps_for_threads};
use super::compiled::Mode;
use super::strips::Strips;
use super::tile::{Rule, Tiles};
use crate::automaton::{Automaton, AutomatonError};
use crate::grid::{Grid, GridError};
use std::sync::OnceLock;

/// The steps of a pass, for rules that are cheap.
const STEPS_PER_PASS: usize = 8;
/// How much less a turned board must cost to be worth the turning.
const TURNING: f64 = 0.9;
/// The operations that the edges of a row are worth.
const EDGE_COST: f64 = 16.0;
/// A rule with more operations than this is slower than memory: one thread gains nothing by several steps per pass.
const CHEAP: f64 = 64.0;

/// An automaton, ready to run on large boards.
///
/// It computes what [`Simulator`](super::Simulator) computes, on all threads of the current pool. Bringing a
/// board into its own layout and back takes as long as some steps, and rows are processed 256 cells at a
/// time: this pays for wide boards and many steps.
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
    /// For steps of all cells, made when the first is asked for.
    plain: OnceLock<Prepared>,
    /// For asynchronous steps.
    masked: OnceLock<Prepared>,
}

impl Runner {
    /// Prepares an automaton of which the first `observed` channels are looked at (all of them, if it has
    /// fewer). It becomes native code where that is possible.
    pub fn new(automaton: &Automaton, observed: usize) -> Result<Runner, AutomatonError> {
        Runner::with_mode(automaton, observed, Mode::Native)
    }

    /// Prepares an automaton for the interpreter, which runs everywhere.
    pub fn portable(automaton: &Automaton, observed: usize) -> Result<Runner, AutomatonError> {
        Runner::with_mode(automaton, observed, Mode::Portable)
    }

    fn with_mode(automaton: &Automaton, observed: usize, mode: Mode) -> Result<Runner, AutomatonError> {
        let live = automaton.observe(observed)?;
        let automaton = Automaton { circuit: automaton.circuit.simplify(), ..automaton.clone() };
        Ok(Runner { automaton, mode, live, plain: OnceLock::new(), masked: OnceLock::new() })
    }

    fn prepare(&self, masked: bool) -> &Prepared {
        let prepared = if masked { &self.masked } else { &self.plain };
        prepared.get_or_init(|| Prepared::new(Rule::new(&self.automaton, &self.live, masked), self.mode))
    }

    /// Whether each channel is live; the others keep their old content.
    pub fn live(&self) -> &[bool] {
        &self.live
    }

    /// The operations that are computed for each cell, on average: fewer than the gates of the rule if rows, or
    /// columns, share what they have in common.
    pub fn operations(&self) -> f64 {
        let [upright, turned] = &self.prepare(false).rules;
        upright.operations.min(turned.operations)
    }

    /// Makes a number of steps in which every cell takes its new bits.
    pub fn run(&mut self, grid: &mut Grid, steps: usize) -> Result<(), GridError> {
        self.check(grid)?;
        if steps == 0 {
            return Ok(());
        }
        self.prepare(false);
        let Some(prepared) = self.plain.get_mut() else { return Ok(()) };
        let variant = prepared.variant(grid);
        let per_pass = variant.steps_per_pass(grid).min(steps);
        let mut board = Board::new(variant, self.automaton.boundary, grid, per_pass);
        for sample in 0..grid.samples() {
            board.read(grid, sample);
            let mut left = steps;
            while left > 0 {
                board.pass(per_pass.min(left));
                left -= per_pass.min(left);
            }
            board.write(grid, sample);
        }
        Ok(())
    }

    /// Makes an asynchronous step for each mask: the cells whose mask bit is 1 take their new bits, the
    /// others keep theirs.
    ///
    /// A mask has the words of one sample ([`Grid::words_per_sample`]), with bit y * width + x for cell (y,
    /// x), and holds for all samples. Its unused bits do not matter.
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
        let variant = prepared.variant(grid);
        let mut board = Board::new(variant, self.automaton.boundary, grid, 1);
        for sample in 0..grid.samples() {
            board.read(grid, sample);
            for mask in masks {
                board.read_plane(mask.as_ref(), variant.channels.len());
                board.pass(1);
            }
            board.write(grid, sample);
        }
        Ok(())
    }

    fn check(&self, grid: &Grid) -> Result<(), GridError> {
        let (automaton, grid) = (self.live.len(), grid.channels());
        if automaton == grid { Ok(()) } else { Err(GridError::Channels { automaton, grid }) }
    }
}

impl Variant<'_> {
    fn steps_per_pass(&self, grid: &Grid) -> usize {
        if self.tiles.operations <= CHEAP {
            return STEPS_PER_PASS;
        }
        let height = if self.turned { grid.width() } else { grid.height() };
        steps_for_threads(self.tiles.strips(), height).min(STEPS_PER_PASS)
    }
}

/// A rule upright and turned, and what was compiled for the last board.
///
/// Only rows share what they have in common. A rule that adds up columns shares more on a board with its rows
/// as columns, and a narrow board fills more of a vector that way.
#[derive(Clone, Debug)]
struct Prepared {
    /// Upright and turned.
    rules: [Rule; 2],
    mode: Mode,
    /// What was compiled last, and whether it is turned.
    tiles: Option<(bool, Tiles)>,
}

impl Prepared {
    fn new(rule: Rule, mode: Mode) -> Prepared {
        let turned = rule.turned();
        Prepared { rules: [rule, turned], mode, tiles: None }
    }

    /// The better way to apply the rule to a grid.
    fn variant(&mut self, grid: &Grid) -> Variant<'_> {
        let turned = self.cost(true, grid) < TURNING * self.cost(false, grid);
        let rule = &self.rules[usize::from(turned)];
        let strips = Strips::new(if turned { grid.height() } else { grid.width() }, rule.planes());
        let last = self.tiles.take().filter(|(last, tiles)| *last == turned && tiles.strips() == strips);
        let tiles = last.map_or_else(|| Tiles::new(rule, strips, self.mode), |(_, tiles)| tiles);
        let (_, tiles) = self.tiles.insert((turned, tiles));
        Variant { tiles, channels: &rule.channels, turned }
    }

    /// The operations of a step.
    fn cost(&self, turned: bool, grid: &Grid) -> f64 {
        let (rows, width) =
            if turned { (grid.width(), grid.height()) } else { (grid.height(), grid.width()) };
        let strips = Strips::new(width, 1);
        // The edges of a row cost a few operations too.
        (self.rules[usize::from(turned)].operations + EDGE_COST / strips.vectors as f64)
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

    /// Checks some steps against the naive twin.
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
        fn steps_are_the_naive_steps(
            (automaton, grid, _) in arbitrary::situation(),
            observed in 0usize..5,
            steps in 0usize..12,
        ) {
            check(&automaton, observed, &grid, steps);
        }

        #[test]
        fn masked_steps_are_the_naive_masked_steps(
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
    fn narrow_boards_and_rules_of_columns_are_turned() {
        let life = rules::life(Boundary::Torus);
        let mut prepared = Prepared::new(Rule::new(&life, &[true], false), Mode::Portable);
        assert!(!prepared.variant(&Grid::new(1, 512, 512, 1).unwrap()).turned);
        assert!(prepared.variant(&Grid::new(1, 512, 60, 1).unwrap()).turned);
        let mut turned = Prepared::new(prepared.rules[1].clone(), Mode::Portable);
        assert!(turned.variant(&Grid::new(1, 512, 512, 1).unwrap()).turned);
        check(&life, 1, &arbitrary::scattered(2, 300, 20, 1), 10);
    }

    #[test]
    fn life_is_the_naive_life_on_several_chunks() {
        for (height, width) in [(170, 256), (131, 270)] {
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                check(&rules::life(boundary), 1, &arbitrary::scattered(1, height, width, 1), 11);
            }
        }
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        // Large enough to be worth threads, see `board::THREAD_WORK`.
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
                runner.plain.get_mut().unwrap().variant(&grid).steps_per_pass(&grid)
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
    fn misfits_are_errors() {
        let mut runner = Runner::new(&rules::life(Boundary::Torus), 1).unwrap();
        let mut wide = Grid::new(1, 2, 2, 2).unwrap();
        assert_eq!(runner.run(&mut wide, 1), Err(GridError::Channels { automaton: 1, grid: 2 }));
        let mut grid = Grid::new(1, 9, 9, 1).unwrap();
        assert_eq!(runner.run_masked(&mut grid, &[[0]]), Err(GridError::Mask { mask: 1, sample: 2 }));
    }
}
