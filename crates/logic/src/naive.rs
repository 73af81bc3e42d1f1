//! Reference implementation of the simulator: cell by cell and bit by bit.
//!
//! The tests compare all faster simulators with it.

use crate::automaton::{Automaton, AutomatonError, Boundary};
use crate::circuit::CircuitError;
use crate::grid::{Grid, GridError};
use thiserror::Error;

/// An automaton, a grid and a mask that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// The automaton is not valid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The grid or the mask has the wrong size.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// The circuit cannot be evaluated.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
}

/// Returns the grid after one step in which every cell takes its new bits.
pub fn naive_step(automaton: &Automaton, grid: &Grid) -> Result<Grid, StepError> {
    naive_step_masked(automaton, grid, &vec![u64::MAX; grid.words_per_sample()])
}

/// Returns the grid after one step in which the cells whose mask bit is 1 take their new bits.
///
/// The mask has the words of one sample and applies to all samples.
pub fn naive_step_masked(automaton: &Automaton, grid: &Grid, mask: &[u64]) -> Result<Grid, StepError> {
    automaton.check()?;
    if grid.channels() != automaton.channels {
        return Err(GridError::Channels { automaton: automaton.channels, grid: grid.channels() }.into());
    }
    if mask.len() != grid.words_per_sample() {
        return Err(GridError::Mask { mask: mask.len(), sample: grid.words_per_sample() }.into());
    }
    let mut next = grid.clone();
    for sample in 0..grid.samples() {
        for y in 0..grid.height() {
            for x in 0..grid.width() {
                let cell = y * grid.width() + x;
                if mask[cell / 64] >> (cell % 64) & 1 == 1 {
                    let bits = automaton.circuit.eval(&patch(automaton, grid, sample, y, x))?;
                    for (channel, bit) in bits.into_iter().enumerate() {
                        next.set(sample, channel, y, x, bit);
                    }
                }
            }
        }
    }
    Ok(next)
}

/// The inputs of the circuit at one cell.
fn patch(automaton: &Automaton, grid: &Grid, sample: usize, y: usize, x: usize) -> Vec<bool> {
    let (height, width) = (grid.height(), grid.width());
    let mut bits = Vec::with_capacity(9 * grid.channels());
    for channel in 0..grid.channels() {
        for dy in [-1, 0, 1] {
            for dx in [-1, 0, 1] {
                let (row, column) = (y as isize + dy, x as isize + dx);
                let inside = (0..height as isize).contains(&row) && (0..width as isize).contains(&column);
                let row = row.rem_euclid(height as isize) as usize;
                let column = column.rem_euclid(width as isize) as usize;
                let visible = inside || automaton.boundary == Boundary::Torus;
                bits.push(visible && grid.get(sample, channel, row, column));
            }
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Circuit;

    /// An automaton in which every cell takes the bit of one neighbour.
    fn copy_of(neighbour: u32, boundary: Boundary) -> Automaton {
        Automaton::new(1, boundary, Circuit::new(9, vec![], vec![neighbour]).unwrap()).unwrap()
    }

    #[test]
    fn a_cell_reads_its_neighbour() {
        let mut grid = Grid::new(1, 4, 5, 1).unwrap();
        grid.set(0, 0, 2, 2, true);
        for neighbour in 0..9 {
            // Reading (dy, dx) moves the content by (-dy, -dx).
            let (dy, dx) = (neighbour / 3, neighbour % 3);
            let next = naive_step(&copy_of(neighbour as u32, Boundary::Zeros), &grid).unwrap();
            assert!(next.get(0, 0, 3 - dy, 3 - dx) && next.count_ones(0, 0) == 1, "neighbour {neighbour}");
        }
    }

    #[test]
    fn a_torus_wraps_and_zeros_do_not() {
        let mut grid = Grid::new(1, 3, 4, 1).unwrap();
        grid.set(0, 0, 2, 3, true);
        let wrapped = naive_step(&copy_of(0, Boundary::Torus), &grid).unwrap();
        assert!(wrapped.get(0, 0, 0, 0) && wrapped.count_ones(0, 0) == 1);
        let lost = naive_step(&copy_of(0, Boundary::Zeros), &grid).unwrap();
        assert_eq!(lost.count_ones(0, 0), 0);
    }

    #[test]
    fn grids_and_masks_of_other_sizes_are_errors() {
        let automaton = copy_of(4, Boundary::Torus);
        let wide = naive_step(&automaton, &Grid::new(1, 2, 2, 2).unwrap()).unwrap_err();
        assert_eq!(wide, StepError::Grid(GridError::Channels { automaton: 1, grid: 2 }));
        let masked = naive_step_masked(&automaton, &Grid::new(1, 2, 2, 1).unwrap(), &[]).unwrap_err();
        assert_eq!(masked, StepError::Grid(GridError::Mask { mask: 0, sample: 1 }));
    }
}
