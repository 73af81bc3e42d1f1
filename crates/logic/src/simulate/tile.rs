//! Tiles: the rule of an automaton unrolled over several rows (unroll-and-jam).
//!
//! Neighbouring rows have common subexpressions: a function of the upper neighbours of one cell may be a function of the
//! lower neighbours of another. In Life, the sum of three adjacent cells is needed by the rows above, at and below them.
//! A tile is one program for several rows, in which structural hashing and functional reduction merge these
//! subexpressions, whatever the rule. The depth-first order of the program keeps shared values in registers until the
//! next row uses them.

use super::compiled::{CompiledProgram, Layout, Mode, Vector};
use super::reduction::ReducedXag;
use super::strips::Strips;
use crate::automaton::{Automaton, CENTRE, NEIGHBOURS};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;

/// The most rows of a tile: more rows share little more.
const MAX_ROWS: usize = 16;
/// The approximate limit of gates of a tile, whose code should stay in the first-level cache.
const MAX_GATES: usize = 4096;

/// The rule of an automaton for its live channels, to be unrolled over rows.
#[derive(Clone, Debug)]
pub(super) struct TileRule {
    circuit: Circuit,
    /// The live channels; plane i of a grid holds channel `channels[i]`.
    pub channels: Vec<usize>,
    /// Whether steps are asynchronous; an additional plane is then the mask of the cells that take their new bits.
    masked: bool,
    /// The rows of the largest tile.
    rows: usize,
    /// The operations per row of the largest tile.
    pub operations: f64,
}

impl TileRule {
    /// Creates the rule of an automaton and chooses the size of its tiles.
    pub fn new(automaton: &Automaton, live: &[bool], masked: bool) -> TileRule {
        let channels = (0..live.len()).filter(|&channel| live[channel]).collect();
        let circuit = automaton.circuit.simplify();
        let mut rule = TileRule { circuit, channels, masked, rows: 1, operations: 0.0 };
        rule.choose_rows();
        rule
    }

    /// The rule for transposed grids.
    pub fn transposed(&self) -> TileRule {
        let inputs = self.circuit.inputs() as u32;
        // Neighbour 3 * dy + dx becomes neighbour 3 * dx + dy.
        let transposed = |signal: u32| {
            if signal < inputs { signal / 9 * 9 + signal % 3 * 3 + signal % 9 / 3 } else { signal }
        };
        let node = |node: &Node| Node::new(node.gate, transposed(node.a), transposed(node.b));
        let nodes = self.circuit.nodes().iter().map(node).collect();
        let outputs = self.circuit.outputs().iter().map(|&signal| transposed(signal)).collect();
        let mut rule = TileRule { circuit: self.circuit.with_gates(nodes, outputs), ..self.clone() };
        rule.choose_rows();
        rule
    }

    fn choose_rows(&mut self) {
        let size = self.program(1).operations().max(self.planes());
        self.rows = MAX_ROWS;
        while self.rows > 1 && self.rows * size > MAX_GATES {
            self.rows /= 2;
        }
        self.operations = self.program(self.rows).operations() as f64 / self.rows as f64;
    }

    /// The number of planes of a grid: the live channels, and the mask.
    pub fn planes(&self) -> usize {
        self.channels.len() + usize::from(self.masked)
    }

    /// The program of a tile. Its inputs are `[row][plane][left, centre, right]`, with a row above and a row below the
    /// tile; its outputs are `[row][live channel]`.
    fn program(&self, rows: usize) -> StraightLineProgram {
        let planes = self.planes();
        let input =
            |row: usize, plane: usize, column: usize| Literal::input((row * planes + plane) * 3 + column);
        let mut xag = ReducedXag::new((rows + 2) * planes * 3);
        let mut outputs = Vec::with_capacity(rows * self.channels.len());
        for row in 0..rows {
            // The outputs of live channels read live channels only.
            let mut patch = vec![Literal::FALSE; self.circuit.inputs()];
            for (plane, &channel) in self.channels.iter().enumerate() {
                for (neighbour, literal) in patch[channel * NEIGHBOURS..][..NEIGHBOURS].iter_mut().enumerate()
                {
                    *literal = input(row + neighbour / 3, plane, neighbour % 3);
                }
            }
            let old: Vec<Literal> =
                self.channels.iter().map(|channel| patch[channel * NEIGHBOURS + CENTRE]).collect();
            let new = xag.add_on(&self.circuit, patch);
            for (&channel, old) in self.channels.iter().zip(old) {
                let new = new[channel];
                outputs.push(if self.masked {
                    let mask = input(row + 1, planes - 1, 1);
                    let changed = xag.gate(Gate::XOR, old, new);
                    let changed = xag.gate(Gate::AND, changed, mask);
                    xag.gate(Gate::XOR, old, changed)
                } else {
                    new
                });
            }
        }
        xag.lower(&outputs)
    }

    /// The offsets of the inputs from the left edge of the row above the tile, and of the outputs from the left edge of
    /// its first row.
    fn layout(&self, rows: usize, strips: Strips) -> Layout {
        let left = |row: usize, plane: usize| row * strips.stride + strips.plane(plane);
        let inputs = (0..rows + 2).flat_map(|row| (0..self.planes()).map(move |plane| left(row, plane)));
        let outputs = (0..rows).flat_map(|row| (0..self.channels.len()).map(move |plane| left(row, plane)));
        Layout::at_vectors(inputs.flat_map(|left| left..left + 3), outputs.map(|left| left + 1))
    }
}

/// A rule compiled for grids of one width, as tiles of several sizes.
#[derive(Clone, Debug)]
pub(super) struct CompiledTiles {
    strips: Strips,
    /// The number of rows and the program of each tile, from the largest to a single row.
    compiled: Vec<(usize, CompiledProgram)>,
    /// The operations per vector of cells, in the largest tile.
    pub operations: f64,
}

impl CompiledTiles {
    pub fn new(rule: &TileRule, strips: Strips, mode: Mode) -> CompiledTiles {
        let mut rows = rule.rows;
        let mut compiled = Vec::new();
        loop {
            compiled
                .push((rows, CompiledProgram::new(&rule.program(rows), &rule.layout(rows, strips), mode)));
            match rows {
                1 => return CompiledTiles { strips, compiled, operations: rule.operations },
                2..=4 => rows = 1,
                _ => rows /= 4,
            }
        }
    }

    /// The layout of the rows.
    pub fn strips(&self) -> Strips {
        self.strips
    }

    /// Computes `rows` new rows. `source` begins with the row above the first of them and ends after the row below the
    /// last one; `target` begins with the first.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], rows: usize, scratch: &mut Vec<Vector>) {
        let Strips { vectors, stride, .. } = self.strips;
        let mut done = 0;
        for (tile_rows, compiled) in &self.compiled {
            while rows - done >= *tile_rows {
                compiled.run(&source[done * stride..], &mut target[done * stride..], vectors, scratch);
                done += tile_rows;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::Boundary;
    use crate::rules;

    #[test]
    fn rows_share_common_subexpressions() {
        let rule = TileRule::new(&rules::life(Boundary::Torus), &[true], false);
        // A single row takes 26 operations, of which 12 add cells of one row: three of the row above, three of the row
        // below, and the outer two of the row itself. In a tile, adding three cells of a row takes 5 operations for each
        // of its rows and the two rows around it.
        assert_eq!(rule.program(1).operations(), 26);
        assert_eq!(rule.program(16).operations(), 16 * 14 + 18 * 5);
    }

    #[test]
    fn rows_share_equal_functions_of_different_structure() {
        // The sum of three cells, added from the left in the row above and from the right in the row below.
        let nodes = [(0, 1), (9, 2), (8, 7), (11, 6)].map(|(a, b)| Node::new(Gate::XOR, a, b));
        let nodes = nodes.into_iter().chain([Node::new(Gate::AND, 10, 12)]).collect();
        let automaton =
            Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![13]).unwrap()).unwrap();
        let rule = TileRule::new(&automaton, &[true], false);
        assert_eq!(rule.program(1).operations(), 5);
        // Each of the 18 rows is added once.
        assert_eq!(rule.program(16).operations(), 16 + 18 * 2);
    }

    #[test]
    fn a_transposed_rule_shares_subexpressions_of_columns() {
        let rule = TileRule::new(&rules::life(Boundary::Torus), &[true], false);
        let transposed = rule.transposed();
        // Life adds whole rows; the columns of the neighbourhood share little.
        assert!(
            transposed.operations > rule.operations + 5.0,
            "{} {}",
            transposed.operations,
            rule.operations
        );
        assert_eq!(transposed.transposed().circuit, rule.circuit);
    }

    #[test]
    fn large_rules_have_tiles_of_few_rows() {
        let rule = TileRule::new(&crate::arbitrary::large(2, 20_000), &[true; 2], false);
        let tiles = CompiledTiles::new(&rule, Strips::new(256, 2), Mode::Interpreter);
        let sizes: Vec<usize> = tiles.compiled.iter().map(|&(rows, _)| rows).collect();
        assert_eq!(sizes.last(), Some(&1));
        assert!(sizes.windows(2).all(|pair| pair[0] > pair[1]), "{sizes:?}");
    }
}
