//! Testbenches: modules that compare a circuit with test vectors and print `PASS` or `FAIL`.
//!
//! Circuits of few inputs are tested exhaustively, others with pseudorandom vectors. An automaton makes a few steps from a
//! pseudorandom state; large grids are tested at a smaller size.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::Circuit;
use crate::formats::FormatError;
use crate::formats::names::Ports;
use crate::grid::Grid;
use crate::naive::naive_step;
use std::fmt::Write;

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
pub(super) fn pseudorandom_words() -> impl Iterator<Item = u64> {
    (1u64..).map(|i| {
        let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// Returns bits as a Verilog constant, bit 0 first; one bit if there are none.
pub(super) fn constant(bits: &[bool]) -> String {
    let digit = |bits: &[bool]| bits.iter().rev().fold(0, |digit, &bit| 2 * digit + u32::from(bit));
    let digits: String = bits.chunks(4).rev().filter_map(|bits| char::from_digit(digit(bits), 16)).collect();
    format!("{}'h{}", bits.len().max(1), if bits.is_empty() { "0" } else { &digits })
}

/// The test vectors of a circuit.
fn vectors(circuit: &Circuit) -> Vec<Vec<bool>> {
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

/// Writes the testbench of a circuit.
pub(super) fn write_circuit(
    text: &mut String,
    name: &str,
    circuit: &Circuit,
    ports: &Ports,
) -> Result<(), FormatError> {
    let connect = |ports: &[String], bits: &str| -> Vec<String> {
        ports.iter().enumerate().map(|(i, port)| format!("        .{port}({bits}[{i}])")).collect()
    };
    let connections = [connect(&ports.inputs, "given"), connect(&ports.outputs, "computed")].concat();
    let top = |ports: &[String]| (ports.len().max(1) - 1).to_string();
    let mut checks = String::new();
    for inputs in vectors(circuit) {
        let outputs = circuit.eval(&inputs)?;
        // Writing to a string never fails, here and below.
        let _ = writeln!(checks, "        check({}, {});", constant(&inputs), constant(&outputs));
    }
    let testbench = include_str!("circuit_testbench.v")
        .replace("@INPUTS", &top(&ports.inputs))
        .replace("@OUTPUTS", &top(&ports.outputs))
        .replace("@CONNECTIONS", &connections.join(",\n"))
        .replace("@DIFFERS", if ports.outputs.is_empty() { "1'b0" } else { "computed !== expected" })
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
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

/// Writes the testbench of an automaton.
pub(super) fn write_grid(
    text: &mut String,
    name: &str,
    automaton: &Automaton,
    size: [usize; 2],
) -> Result<(), FormatError> {
    let [height, width] = tested_size(automaton, size);
    let mut grid = Grid::new(1, height, width, automaton.channels)?;
    for (place, bit) in pseudorandom_bits().take(height * width * automaton.channels).enumerate() {
        let (cell, channel) = (place / automaton.channels, place % automaton.channels);
        grid.set(0, channel, cell / width, cell % width, bit);
    }
    let start = constant(&bits(&grid));
    let mut checks = String::new();
    for _ in 0..STEPS {
        grid = naive_step(automaton, &grid)?;
        let _ = writeln!(checks, "        check({});", constant(&bits(&grid)));
    }
    let testbench = include_str!("grid_testbench.v")
        .replace("@TOP", &(height * width * automaton.channels - 1).to_string())
        .replace("@HEIGHT", &height.to_string())
        .replace("@WIDTH", &width.to_string())
        .replace("@TORUS", if automaton.boundary == Boundary::Torus { "1" } else { "0" })
        .replace("@START", &start)
        .replace("@END", &constant(&bits(&grid)))
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;

    #[test]
    fn constants_have_their_width() {
        assert_eq!(constant(&[]), "1'h0");
        assert_eq!(constant(&[true, false, false, false, true]), "5'h11");
        assert_eq!(constant(&[false, true, true]), "3'h6");
    }

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
