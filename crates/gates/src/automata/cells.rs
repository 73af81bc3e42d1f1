//! Plans: the cells that a rollout computes.
//!
//! A state is an array of entries. Cells whose whole past neighbourhood is identical have the same value and share an
//! entry. This is exact, and it makes the first steps of a grid that starts from one seed cell nearly free. Entry 0 stands
//! for all cells outside a grid and is always zero. Entries that a step computes come next, in tiles of 32, and then those
//! that it copies, because their cells do not fire.
//!
//! Gradients work on entries as well: the gradient of an entry is the sum over its cells, all of which have the same entries
//! as neighbours.

use crate::kernel::LANES;
use gatework_logic::Boundary;
use rustc_hash::FxHashMap;

/// Cells of a 3x3 neighbourhood.
pub const NEIGHBOURS: usize = 9;

/// Entries of the preceding state that the 32 lanes of a tile read: neighbour by lane. Unused lanes read entry 0.
pub type Tile = [[u32; LANES]; NEIGHBOURS];

/// Number, size and boundary of grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of independent grids.
    pub samples: usize,
    /// Rows of a grid.
    pub height: usize,
    /// Columns of a grid.
    pub width: usize,
    /// The cells outside the grid.
    pub boundary: Boundary,
}

impl Shape {
    /// Cells of one grid.
    pub fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Cells of all grids.
    pub fn total(&self) -> usize {
        self.samples * self.cells()
    }

    /// Returns a neighbour of a cell in the same grid, or `None` if it lies outside.
    pub fn neighbour(&self, cell: usize, neighbour: usize) -> Option<usize> {
        let (sample, cell) = (cell / self.cells(), cell % self.cells());
        let y = self.boundary.neighbour(cell / self.width, neighbour / 3, self.height)?;
        let x = self.boundary.neighbour(cell % self.width, neighbour % 3, self.width)?;
        Some(sample * self.cells() + y * self.width + x)
    }
}

/// One step of a plan: how the entries of the next state follow from those of the preceding one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanStep {
    /// Number of computed entries; they are 1, 2, ... of the next state.
    pub computed: usize,
    /// The entries they read.
    pub tiles: Vec<Tile>,
    /// Entries of the preceding state that are copied; they follow the computed ones.
    pub kept: Vec<u32>,
}

impl PlanStep {
    /// Number of entries of the next state.
    pub fn entries(&self) -> usize {
        1 + self.computed + self.kept.len()
    }
}

/// All steps of a rollout.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Entries of the start state.
    pub start_entries: usize,
    /// The distinct steps; a step that repeats is stored once.
    pub distinct: Vec<PlanStep>,
    /// Index of each step in `distinct`.
    pub steps: Vec<usize>,
    /// The entry of each cell in the last state.
    pub last: Vec<u32>,
}

impl Plan {
    /// Iterates over the steps in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PlanStep> + ExactSizeIterator {
        self.steps.iter().map(|&step| &self.distinct[step])
    }

    /// Number of computed entries of all steps.
    pub fn computed(&self) -> usize {
        self.iter().map(|step| step.computed).sum()
    }
}

/// Makes plans for grids of one shape.
#[derive(Clone, Debug)]
pub struct Planner {
    shape: Shape,
    /// Cell number plus one of each cell's neighbours, or 0 outside.
    neighbours: Vec<[u32; NEIGHBOURS]>,
}

impl Planner {
    /// Computes the neighbours of all cells.
    pub fn new(shape: Shape) -> Planner {
        let of_cell = |cell| std::array::from_fn(|n| shape.neighbour(cell, n).map_or(0, |at| at as u32 + 1));
        Planner { shape, neighbours: (0..shape.total()).map(of_cell).collect() }
    }

    /// Number, size and boundary of the grids.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes a plan in which every cell has its own entry: entry `i + 1` is cell `i` at the start. `masks` tells for
    /// each step which cells of a grid fire; without masks all do.
    pub fn separate(&self, steps: usize, masks: Option<&[Vec<bool>]>) -> Plan {
        let start: Vec<u32> = (1..=self.shape.total() as u32).collect();
        self.plan(start, steps, masks, false)
    }

    /// Makes a plan in which cells that must have the same value share an entry. `start` is the entry of each cell
    /// at the start, counted from 1.
    pub fn merged(&self, start: Vec<u32>, steps: usize, masks: Option<&[Vec<bool>]>) -> Plan {
        self.plan(start, steps, masks, true)
    }

    fn plan(&self, start: Vec<u32>, steps: usize, masks: Option<&[Vec<bool>]>, merge: bool) -> Plan {
        let start_entries = start.iter().max().map_or(1, |&most| most as usize + 1);
        let mut plan = Plan { start_entries, distinct: Vec::new(), steps: Vec::new(), last: start };
        for index in 0..steps {
            let mask = masks.map(|masks| &masks[index][..]);
            let (step, next) = self.step(&plan.last, mask, merge);
            // Without masks a step depends on the preceding entries only: once both repeat, all later steps do.
            let repeats = mask.is_none() && plan.distinct.last() == Some(&step) && next == plan.last;
            if !repeats {
                plan.distinct.push(step);
            }
            plan.steps.push(plan.distinct.len() - 1);
            plan.last = next;
            if repeats {
                plan.steps.resize(steps, plan.distinct.len() - 1);
                break;
            }
        }
        plan
    }

    /// Plans one step. Returns it with the new entries of all cells.
    fn step(&self, entries: &[u32], mask: Option<&[bool]>, merge: bool) -> (PlanStep, Vec<u32>) {
        let cells = self.shape.cells();
        let fires = |cell: usize| mask.is_none_or(|mask| mask[cell % cells]);
        let mut step = PlanStep::default();
        let mut next = vec![0u32; entries.len()];
        let mut seen: FxHashMap<[u32; NEIGHBOURS], u32> = FxHashMap::default();
        for cell in (0..entries.len()).filter(|&cell| fires(cell)) {
            let key = self.neighbours[cell].map(|at| if at == 0 { 0 } else { entries[at as usize - 1] });
            let mut add = || step.push(key);
            next[cell] = if merge { *seen.entry(key).or_insert_with(add) } else { add() };
        }
        let mut seen: FxHashMap<u32, u32> = FxHashMap::default();
        for cell in (0..entries.len()).filter(|&cell| !fires(cell)) {
            let mut add = || {
                step.kept.push(entries[cell]);
                (step.computed + step.kept.len()) as u32
            };
            next[cell] = if merge { *seen.entry(entries[cell]).or_insert_with(add) } else { add() };
        }
        (step, next)
    }
}

impl PlanStep {
    fn push(&mut self, neighbours: [u32; NEIGHBOURS]) -> u32 {
        let lane = self.computed % LANES;
        if lane == 0 {
            self.tiles.push([[0; LANES]; NEIGHBOURS]);
        }
        let tile = self.tiles.len() - 1;
        for (lanes, entry) in self.tiles[tile].iter_mut().zip(neighbours) {
            lanes[lane] = entry;
        }
        self.computed += 1;
        self.computed as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planner(samples: usize, height: usize, width: usize, boundary: Boundary) -> Planner {
        Planner::new(Shape { samples, height, width, boundary })
    }

    #[test]
    fn neighbours_wrap_on_a_torus_and_end_at_zeros() {
        let shape = planner(2, 2, 3, Boundary::Torus).shape();
        let of = |shape: Shape, cell| (0..9).map(move |n| shape.neighbour(cell, n)).collect::<Vec<_>>();
        let expected = [5, 3, 4, 2, 0, 1, 5, 3, 4].map(Some);
        assert_eq!(of(shape, 0), expected);
        assert_eq!(of(shape, 6), expected.map(|cell| cell.map(|cell| cell + 6)), "samples are apart");
        let zeros = Shape { boundary: Boundary::Zeros, ..shape };
        assert_eq!(of(zeros, 0), [None, None, None, None, Some(0), Some(1), None, Some(3), Some(4)]);
    }

    #[test]
    fn separate_plans_of_synchronous_grids_repeat_one_step() {
        let plan = planner(2, 5, 7, Boundary::Torus).separate(6, None);
        assert_eq!((plan.distinct.len(), plan.steps.len()), (1, 6));
        assert_eq!(plan.computed(), 6 * 70);
        assert_eq!(plan.last, (1..=70).collect::<Vec<u32>>());
    }

    #[test]
    fn a_seed_grows_by_one_cell_a_step_and_zeros_grow_from_the_edge() {
        let mut start = vec![1; 400];
        start[10 * 20 + 10] = 2;
        let plan = planner(1, 20, 20, Boundary::Torus).merged(start, 12, None);
        let computed: Vec<usize> = plan.iter().map(|step| step.computed).collect();
        assert_eq!(computed, [10, 26, 50, 82, 122, 170, 226, 290, 362, 400, 400, 400]);

        let plan = planner(1, 16, 16, Boundary::Zeros).merged(vec![1; 256], 15, None);
        let computed: Vec<usize> = plan.iter().map(|step| step.computed).collect();
        assert_eq!(computed[..8], [9, 25, 49, 81, 121, 169, 225, 256]);
    }

    #[test]
    fn cells_that_do_not_fire_are_copied() {
        let masks = vec![vec![true, false, true, false], vec![false; 4]];
        let plan = planner(1, 2, 2, Boundary::Zeros).separate(2, Some(&masks));
        let steps: Vec<&PlanStep> = plan.iter().collect();
        assert_eq!((steps[0].computed, &steps[0].kept[..]), (2, &[2, 4][..]));
        assert_eq!((steps[1].computed, &steps[1].kept[..]), (0, &[1, 3, 2, 4][..]));
        assert_eq!(plan.last, [1, 2, 3, 4]);
    }
}
