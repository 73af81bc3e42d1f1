//! Sequential circuits: a combinational circuit whose last ports are latches.
//!
//! BLIF and AIGER files with latches hold a [`Sequential`]. A whole grid of an automaton is one, with a copy of the rule
//! for every cell and a latch for every bit of every cell.

use crate::automaton::{Automaton, NEIGHBOURS};
use crate::circuit::{Circuit, Node};
use crate::formats::names::{self, Ports};
use crate::formats::{FormatError, json::Document};
use crate::gate::Gate;

/// The most latches and gates of a grid.
pub const MAX_GRID_GATES: usize = 1 << 26;

/// A circuit with latches.
///
/// The last inputs of the circuit are the present values of the latches, its last outputs are their next values, both in
/// the order of `latches`. The ports before them are the inputs and outputs of the sequential circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequential {
    /// The combinational circuit.
    pub circuit: Circuit,
    /// The initial value of each latch; `None` if it is undefined.
    pub latches: Vec<Option<bool>>,
}

impl Sequential {
    /// The number of inputs that are not latches.
    pub fn inputs(&self) -> usize {
        self.circuit.inputs().saturating_sub(self.latches.len())
    }

    /// The number of outputs that are not latches.
    pub fn outputs(&self) -> usize {
        self.circuit.outputs().len().saturating_sub(self.latches.len())
    }

    /// Returns the circuit if there are no latches.
    pub fn combinational(self) -> Result<Circuit, FormatError> {
        if self.latches.is_empty() { Ok(self.circuit) } else { Err(FormatError::Latches(self.latches.len())) }
    }

    /// Returns the outputs and the next values of the latches.
    pub fn step(&self, inputs: &[bool], state: &[bool]) -> Result<(Vec<bool>, Vec<bool>), FormatError> {
        let mut outputs = self.circuit.eval(&[inputs, state].concat())?;
        let next = outputs.split_off(self.outputs());
        Ok((outputs, next))
    }

    /// Returns a grid of an automaton that starts from zeros; it has no inputs.
    ///
    /// The latch `(y * width + x) * channels + c` is channel `c` of cell (y, x), named `cell_y_x_c`. The
    /// outputs are the present bits of the first `observed` channels of every cell, `out_y_x_c`.
    pub fn grid(
        automaton: &Automaton,
        [height, width]: [usize; 2],
        observed: usize,
    ) -> Result<Sequential, FormatError> {
        automaton.check()?;
        let (channels, rule) = (automaton.channels, automaton.circuit.simplify());
        let size =
            height.checked_mul(width).and_then(|cells| cells.checked_mul(channels + rule.nodes().len()));
        if size.is_none_or(|size| size > MAX_GRID_GATES) {
            let gates = rule.nodes().len();
            let message = format!(
                "{height}x{width} cells of {channels} bits and {gates} gates each exceed the limit of {MAX_GRID_GATES}"
            );
            return Err(FormatError::TooLarge { format: "a grid", message });
        }
        let latches = height * width * channels;
        // The constant 0 stands for the cells beyond an edge of zeros.
        let mut nodes = vec![Node::new(Gate::FALSE, 0, 0)];
        let mut next = Vec::with_capacity(latches);
        for cell in 0..height * width {
            let patch = |input| neighbour(automaton, [height, width], cell, input).unwrap_or(latches) as u32;
            let first = (latches + nodes.len()) as u32;
            let place = |signal: u32| match (signal as usize).checked_sub(rule.inputs()) {
                Some(gate) => first + gate as u32,
                None => patch(signal as usize),
            };
            for node in rule.nodes() {
                let constant = node.gate.is_constant();
                let [a, b] = if constant { [0, 0] } else { [place(node.a), place(node.b)] };
                nodes.push(Node::new(node.gate, a, b));
            }
            next.extend(rule.outputs().iter().map(|&signal| place(signal)));
        }
        let names = names_of_cells([height, width], channels, observed.min(channels));
        let mut outputs: Vec<u32> =
            (0..latches as u32).filter(|bit| (*bit as usize % channels) < observed).collect();
        outputs.append(&mut next);
        let circuit =
            Circuit::new(latches, nodes, outputs)?.simplify().with_names(names.inputs, names.outputs)?;
        Ok(Sequential { circuit, latches: vec![Some(false); latches] })
    }
}

impl From<Circuit> for Sequential {
    fn from(circuit: Circuit) -> Sequential {
        Sequential { circuit, latches: Vec::new() }
    }
}

/// The latch that an input of the rule reads at a cell; `None` beyond an edge of zeros.
fn neighbour(automaton: &Automaton, [height, width]: [usize; 2], cell: usize, input: usize) -> Option<usize> {
    let (channel, place) = (input / NEIGHBOURS, input % NEIGHBOURS);
    let y = automaton.boundary.neighbour(cell / width, place / 3, height)?;
    let x = automaton.boundary.neighbour(cell % width, place % 3, width)?;
    Some((y * width + x) * automaton.channels + channel)
}

fn names_of_cells([height, width]: [usize; 2], channels: usize, observed: usize) -> Ports {
    let name = |prefix: &str, suffix: &str, bit: usize| {
        let (cell, channel) = (bit / channels, bit % channels);
        format!("{prefix}_{}_{}_{channel}{suffix}", cell / width, cell % width)
    };
    let bits = 0..height * width * channels;
    let seen = bits.clone().filter(|bit| bit % channels < observed);
    let outputs =
        seen.map(|bit| name("out", "", bit)).chain(bits.clone().map(|bit| name("cell", "_next", bit)));
    Ports { outputs: outputs.collect(), inputs: bits.map(|bit| name("cell", "", bit)).collect() }
}

/// Returns the simplified circuit of a document with names for all ports, or the grid of an automaton.
pub(super) fn of_document(document: &Document, grid: Option<[usize; 2]>) -> Result<Sequential, FormatError> {
    match (document, grid) {
        (Document::Automaton { automaton, observed }, Some(size)) => {
            Sequential::grid(automaton, size, observed.unwrap_or(automaton.channels))
        }
        (Document::Circuit(_) | Document::Classifier(_), Some(_)) => Err(FormatError::NotAnAutomaton),
        (_, None) => {
            let ports = names::ports(document);
            Ok(document.circuit().simplify().with_names(ports.inputs, ports.outputs)?.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::grid::Grid;
    use crate::naive::naive_step;
    use crate::rules;
    use proptest::prelude::*;

    /// The bits of a grid in the order of the latches.
    fn bits(grid: &Grid) -> Vec<bool> {
        let (height, width) = (grid.height(), grid.width());
        let cells = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        cells.flat_map(|(y, x)| (0..grid.channels()).map(move |c| grid.get(0, c, y, x))).collect()
    }

    #[test]
    fn grids_that_are_too_large_are_errors() {
        let life = rules::life(Boundary::Torus);
        let message = Sequential::grid(&life, [usize::MAX, 2], 1).unwrap_err().to_string();
        assert!(message.starts_with("the circuit is too large for a grid:"), "{message}");
    }

    proptest! {
        #[test]
        fn a_step_of_the_latches_is_a_step_of_the_grid(
            automaton in arbitrary::automaton(),
            height in 1usize..6,
            width in 1usize..6,
            observed in 1usize..5,
        ) {
            let sequential = Sequential::grid(&automaton, [height, width], observed).unwrap();
            let mut grid = arbitrary::scattered(1, height, width, automaton.channels);
            for _ in 0..3 {
                let (outputs, next) = sequential.step(&[], &bits(&grid)).unwrap();
                let seen: Vec<bool> = bits(&grid)
                    .chunks(automaton.channels)
                    .flat_map(|cell| cell[..observed.min(automaton.channels)].to_vec())
                    .collect();
                prop_assert_eq!(outputs, seen);
                grid = naive_step(&automaton, &grid).unwrap();
                prop_assert_eq!(next, bits(&grid));
            }
        }
    }
}
