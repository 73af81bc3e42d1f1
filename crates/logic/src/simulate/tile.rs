//! Tiles: the rule of an automaton for several rows of cells at once.
//!
//! What a cell computes from its upper neighbours, another cell may compute from its lower ones: the sum of
//! three cells side by side, say, is needed by the rows above, at and below them. A tile therefore is one
//! program for the cells of several rows, one above the other, in which equal operations, and equal functions of a few
//! cells, are merged. The
//! rows share what they have in common, whatever the rule, and the depth-first order of the program makes
//! shared values wait in registers for the row that needs them next.

use super::compiled::{CompiledProgram, Layout, Mode, Vector};
use super::reduction::ReducedXag;
use super::strips::Strips;
use crate::automaton::{Automaton, CENTRE, NEIGHBOURS};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;

/// The most rows of a tile: more, and there is little left to share.
const MAX_ROWS: usize = 16;
/// The most gates of a tile, about: more, and its code leaves the first-level cache.
const MAX_GATES: usize = 4096;

/// What is computed for each cell: the new bits of the live channels.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    circuit: Circuit,
    /// The live channels; plane i of a board holds channel `channels[i]`.
    pub channels: Vec<usize>,
    /// Whether only some cells take their new bits; one more plane then says which.
    masked: bool,
    /// The rows of the highest tile, and the operations for one of its rows.
    rows: usize,
    pub operations: f64,
}

impl Rule {
    /// The rule of an automaton, for its live channels.
    pub fn new(automaton: &Automaton, live: &[bool], masked: bool) -> Rule {
        let channels = (0..live.len()).filter(|&channel| live[channel]).collect();
        let circuit = automaton.circuit.simplify();
        let mut rule = Rule { circuit, channels, masked, rows: 1, operations: 0.0 };
        rule.choose_height();
        rule
    }

    /// The rule for boards whose rows are the columns of the board it was made for.
    pub fn turned(&self) -> Rule {
        let inputs = self.circuit.inputs() as u32;
        // Row by row, neighbour 3 * dy + dx becomes neighbour 3 * dx + dy.
        let turned = |signal: u32| {
            if signal < inputs { signal / 9 * 9 + signal % 3 * 3 + signal % 9 / 3 } else { signal }
        };
        let node = |node: &Node| Node::new(node.gate, turned(node.a), turned(node.b));
        let nodes = self.circuit.nodes().iter().map(node).collect();
        let outputs = self.circuit.outputs().iter().map(|&signal| turned(signal)).collect();
        let mut rule = Rule { circuit: self.circuit.with_gates(nodes, outputs), ..self.clone() };
        rule.choose_height();
        rule
    }

    fn choose_height(&mut self) {
        let size = self.program(1).operations().max(self.planes());
        self.rows = MAX_ROWS;
        while self.rows > 1 && self.rows * size > MAX_GATES {
            self.rows /= 2;
        }
        self.operations = self.program(self.rows).operations() as f64 / self.rows as f64;
    }

    /// The planes of a board that the rule reads.
    pub fn planes(&self) -> usize {
        self.channels.len() + usize::from(self.masked)
    }

    /// The program of a tile. Its inputs are `[row][plane][left, here, right]` with a row above and a row
    /// below the tile, its outputs `[row][live channel]`.
    fn program(&self, rows: usize) -> StraightLineProgram {
        let planes = self.planes();
        let input =
            |row: usize, plane: usize, column: usize| Literal::input((row * planes + plane) * 3 + column);
        let mut xag = ReducedXag::new((rows + 2) * planes * 3);
        let mut outputs = Vec::with_capacity(rows * self.channels.len());
        for row in 0..rows {
            // A live output reads live channels only.
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

    /// The offsets of the inputs from the left edge of the row above a tile, and of the outputs from the left
    /// edge of its first row.
    fn layout(&self, rows: usize, strips: Strips) -> Layout {
        let left = |row: usize, plane: usize| row * strips.stride + strips.plane(plane);
        let inputs = (0..rows + 2).flat_map(|row| (0..self.planes()).map(move |plane| left(row, plane)));
        let outputs = (0..rows).flat_map(|row| (0..self.channels.len()).map(move |plane| left(row, plane)));
        Layout::at_vectors(inputs.flat_map(|left| left..left + 3), outputs.map(|left| left + 1))
    }
}

/// A rule for boards of one width, compiled for tiles of several heights.
#[derive(Clone, Debug)]
pub(super) struct Tiles {
    strips: Strips,
    /// Programs by the rows of their tile, from many to 1.
    compiled: Vec<(usize, CompiledProgram)>,
    /// Operations for a vector of cells, in the highest tile.
    pub operations: f64,
}

impl Tiles {
    pub fn new(rule: &Rule, strips: Strips, mode: Mode) -> Tiles {
        let mut rows = rule.rows;
        let mut compiled = Vec::new();
        loop {
            compiled
                .push((rows, CompiledProgram::new(&rule.program(rows), &rule.layout(rows, strips), mode)));
            match rows {
                1 => return Tiles { strips, compiled, operations: rule.operations },
                2..=4 => rows = 1,
                _ => rows /= 4,
            }
        }
    }

    /// The layout of the boards.
    pub fn strips(&self) -> Strips {
        self.strips
    }

    /// Computes `rows` new rows. `source` begins with the row above the first of them and ends after the row
    /// below the last; `target` begins with the first.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], rows: usize, scratch: &mut Vec<Vector>) {
        let Strips { vectors, stride, .. } = self.strips;
        let mut done = 0;
        for (height, compiled) in &self.compiled {
            while rows - done >= *height {
                compiled.run(&source[done * stride..], &mut target[done * stride..], vectors, scratch);
                done += height;
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
    fn rows_share_what_they_have_in_common() {
        let rule = Rule::new(&rules::life(Boundary::Torus), &[true], false);
        // Alone, a row takes 26 operations. Of these, 12 add up cells of one row: the sum of three for the row
        // above and below, and of the outer two of the row itself. They come down to 5 for each row, those of
        // the sum of three, but for two more rows than the tile has.
        assert_eq!(rule.program(1).operations(), 26);
        assert_eq!(rule.program(16).operations(), 16 * 14 + 18 * 5);
    }

    #[test]
    fn rows_share_what_they_compute_in_different_ways() {
        // The sum of three cells, from the left for the row above and from the right for the row below.
        let nodes = [(0, 1), (9, 2), (8, 7), (11, 6)].map(|(a, b)| Node::new(Gate::XOR, a, b));
        let nodes = nodes.into_iter().chain([Node::new(Gate::AND, 10, 12)]).collect();
        let automaton =
            Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![13]).unwrap()).unwrap();
        let rule = Rule::new(&automaton, &[true], false);
        assert_eq!(rule.program(1).operations(), 5);
        // Each of the 18 rows is added up once, from the left.
        assert_eq!(rule.program(16).operations(), 16 + 18 * 2);
    }

    #[test]
    fn a_turned_rule_shares_what_columns_have_in_common() {
        let rule = Rule::new(&rules::life(Boundary::Torus), &[true], false);
        let turned = rule.turned();
        // The middle row of the turned rule has the cells above and below; nothing else is alike.
        assert!(turned.operations > rule.operations + 5.0, "{} {}", turned.operations, rule.operations);
        assert_eq!(turned.turned().circuit, rule.circuit);
    }

    #[test]
    fn large_rules_have_low_tiles() {
        let rule = Rule::new(&crate::arbitrary::large(2, 20_000), &[true; 2], false);
        let tiles = Tiles::new(&rule, Strips::new(256, 2), Mode::Portable);
        let heights: Vec<usize> = tiles.compiled.iter().map(|&(rows, _)| rows).collect();
        assert_eq!(heights.last(), Some(&1));
        assert!(heights.windows(2).all(|pair| pair[0] > pair[1]), "{heights:?}");
    }
}
