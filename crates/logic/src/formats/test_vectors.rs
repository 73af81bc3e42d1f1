//! Test vectors of the testbenches of hardware description languages.
//!
//! Circuits of few inputs are tested exhaustively, others with pseudorandom vectors. An automaton makes a few steps from a
//! pseudorandom state; large grids are tested at a smaller size.

use crate::automaton::Automaton;
use crate::circuit::Circuit;
use crate::formats::FormatError;
use crate::grid::Grid;
use crate::naive::naive_step;

/// The number of test vectors of a circuit.
const VECTORS: usize = 256;
/// The limits of large circuits: bits of all test vectors, and gates evaluated for them.
const MAX_BITS: usize = 1 << 20;
const MAX_EVALUATIONS: usize = 1 << 26;
/// The number of steps of an automaton.
const STEPS: usize = 8;
/// The limits of the tested grid: its bits, and gates evaluated in a step.
const MAX_GRID: usize = 1 << 12;
const MAX_STEP: usize = 1 << 24;

/// A sequence of pseudorandom bits.
fn pseudorandom_bits() -> impl Iterator<Item = bool> {
    pseudorandom_words().map(|word| word & 1 == 1)
}

/// A sequence of pseudorandom words (splitmix64).
pub fn pseudorandom_words() -> impl Iterator<Item = u64> {
    (1u64..).map(|i| {
        let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// Returns the inputs of the test vectors of a circuit.
pub fn vectors(circuit: &Circuit) -> Vec<Vec<bool>> {
    let inputs = circuit.inputs();
    if inputs <= VECTORS.ilog2() as usize {
        return (0..1 << inputs).map(|point| (0..inputs).map(|k| point >> k & 1 == 1).collect()).collect();
    }
    let by_bits = MAX_BITS / (inputs + circuit.outputs().len());
    let by_gates = MAX_EVALUATIONS / circuit.signals();
    let mut bits = pseudorandom_bits();
    let count = VECTORS.min(by_bits).min(by_gates).max(1);
    (0..count).map(|_| bits.by_ref().take(inputs).collect()).collect()
}

/// A run of an automaton that a testbench repeats.
pub struct GridTest {
    /// Height and width of the grid.
    pub size: [usize; 2],
    /// The bits of the start state and of those after each step; channel c of cell (y, x) is bit (y * width + x) * channels + c.
    pub states: Vec<Vec<bool>>,
}

/// Runs an automaton for a testbench, on a grid of the given size or smaller.
pub fn grid_test(automaton: &Automaton, size: [usize; 2]) -> Result<GridTest, FormatError> {
    let [height, width] = tested_size(automaton, size);
    let mut grid = Grid::new(1, height, width, automaton.channels)?;
    for (place, bit) in pseudorandom_bits().take(height * width * automaton.channels).enumerate() {
        let (cell, channel) = (place / automaton.channels, place % automaton.channels);
        grid.set(0, channel, cell / width, cell % width, bit);
    }
    let mut states = vec![bits(&grid)];
    for _ in 0..STEPS {
        grid = naive_step(automaton, &grid)?;
        states.push(bits(&grid));
    }
    Ok(GridTest { size: [height, width], states })
}

/// The bits of a grid in the order of the grid module.
fn bits(grid: &Grid) -> Vec<bool> {
    let cells = (0..grid.height()).flat_map(|y| (0..grid.width()).map(move |x| (y, x)));
    cells.flat_map(|(y, x)| (0..grid.channels()).map(move |c| grid.get(0, c, y, x))).collect()
}

/// The size of the tested grid: the longer side is halved until the grid is small enough, but not below 3, where
/// neighbours would be the same cell.
fn tested_size(automaton: &Automaton, [mut height, mut width]: [usize; 2]) -> [usize; 2] {
    let gates = automaton.circuit.signals();
    while height.max(width) > 3
        && (height * width * automaton.channels > MAX_GRID || height * width * gates > MAX_STEP)
    {
        let longer = if height > width { &mut height } else { &mut width };
        *longer = longer.div_ceil(2).max(3);
    }
    [height, width]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::Boundary;
    use crate::rules;

    #[test]
    fn few_inputs_are_tested_exhaustively() {
        let life = rules::life(Boundary::Torus).circuit;
        assert_eq!(vectors(&life).len(), VECTORS);
        let small = Circuit::new(3, vec![], vec![0]).unwrap();
        assert_eq!(vectors(&small).len(), 8);
        assert_eq!(vectors(&Circuit::new(0, vec![], vec![]).unwrap()).len(), 1);
    }

    #[test]
    fn large_grids_are_tested_at_a_smaller_size() {
        let life = rules::life(Boundary::Torus);
        assert_eq!(tested_size(&life, [8, 9]), [8, 9]);
        assert_eq!(tested_size(&life, [1 << 12, 1 << 12]), [64, 64]);
        let wires = (0..1024).map(|channel| channel * 9 + 4).collect();
        let wide = Automaton::new(1024, Boundary::Zeros, Circuit::new(9216, vec![], wires).unwrap()).unwrap();
        assert_eq!(tested_size(&wide, [8, 8]), [3, 3], "the nine neighbours are different cells");
        assert_eq!(tested_size(&wide, [2, 9]), [2, 3]);
    }
}
