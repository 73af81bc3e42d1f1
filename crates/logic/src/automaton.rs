//! Cellular automata whose rule is a circuit, applied to the 3x3 neighbourhood of every cell.
//!
//! The circuit has 9 inputs per channel. Input `channel * 9 + neighbour` is a bit of a neighbour, in row-major order: 0
//! is up-left, 1 is up, 4 is the cell itself and 8 is down-right. Its outputs are the next state of the cell, one bit per
//! channel.

use crate::circuit::Circuit;
use crate::cone::Cone;
use crate::minimize::{self, cone_of_influence};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of cells of the 3x3 neighbourhood, including the cell itself.
pub const NEIGHBOURS: usize = 9;
/// The index of the cell itself in its neighbourhood.
pub const CENTRE: usize = 4;

/// The boundary condition of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// Periodic: opposite edges are adjacent.
    Torus,
    /// Cells beyond the edge are 0.
    Zeros,
}

impl Boundary {
    /// Returns the row (or column) `at + offset - 1` of a grid with `size` rows, for an offset of 0, 1 or 2; `None` if it
    /// is beyond the edge.
    pub fn neighbour(self, at: usize, offset: usize, size: usize) -> Option<usize> {
        match self {
            Boundary::Torus => Some((at + size + offset - 1) % size),
            Boundary::Zeros => (at + offset).checked_sub(1).filter(|&at| at < size),
        }
    }
}

/// A cellular automaton whose rule is a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automaton {
    /// The number of bits of a cell.
    pub channels: usize,
    /// The boundary condition.
    pub boundary: Boundary,
    /// The rule: 9 inputs per channel, one output per channel.
    pub circuit: Circuit,
}

/// A mismatch of the channels of an automaton and the ports of its circuit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AutomatonError {
    /// The automaton has no channels.
    #[error("an automaton needs at least one channel")]
    NoChannels,
    /// The circuit has the wrong number of inputs.
    #[error(
        "an automaton with {channels} channels needs 9 inputs per channel, but its circuit has {inputs} inputs"
    )]
    Inputs {
        /// The number of channels of the automaton.
        channels: usize,
        /// The number of inputs of the circuit.
        inputs: usize,
    },
    /// The circuit has the wrong number of outputs.
    #[error(
        "an automaton with {channels} channels needs one output per channel, but its circuit has {outputs} outputs"
    )]
    Outputs {
        /// The number of channels of the automaton.
        channels: usize,
        /// The number of outputs of the circuit.
        outputs: usize,
    },
}

impl Automaton {
    /// Creates an automaton. The circuit must have 9 inputs and one output per channel.
    pub fn new(channels: usize, boundary: Boundary, circuit: Circuit) -> Result<Automaton, AutomatonError> {
        let automaton = Automaton { channels, boundary, circuit };
        automaton.check()?;
        Ok(automaton)
    }

    /// Checks that the ports of the circuit match the channels. The fields are public, so functions that rely on it call
    /// this first.
    pub fn check(&self) -> Result<(), AutomatonError> {
        let (channels, inputs, outputs) =
            (self.channels, self.circuit.inputs(), self.circuit.outputs().len());
        if channels == 0 {
            Err(AutomatonError::NoChannels)
        } else if channels.checked_mul(NEIGHBOURS) != Some(inputs) {
            Err(AutomatonError::Inputs { channels, inputs })
        } else if channels != outputs {
            Err(AutomatonError::Outputs { channels, outputs })
        } else {
            Ok(())
        }
    }

    /// Returns the number of gates of a cell: those in the fan-in cone of the first `observed` channels over any number of steps,
    /// without wires, inverters and duplicates. This is the number that every report of gates means. Returns 0 for an automaton
    /// whose ports do not match.
    pub fn gates(&self, observed: usize) -> usize {
        cone_of_influence(self, observed).map_or(0, |cone| minimize::gates(&cone.circuit))
    }

    /// Returns which channels are live: those that can reach one of the first `observed` channels, now or in a later
    /// step (their cone of influence).
    ///
    /// Dependencies are those of the simplified circuit. The observed channels themselves are live. All channels are
    /// observed if `observed` exceeds their number.
    pub fn observe(&self, observed: usize) -> Result<Vec<bool>, AutomatonError> {
        self.check()?;
        Ok(Cone::new(&self.circuit.simplify(), observed).live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Node;
    use crate::gate::Gate;

    fn signal(channel: u32, neighbour: u32) -> u32 {
        channel * 9 + neighbour
    }

    #[test]
    fn ports_must_match_the_channels() {
        let circuit = |inputs, outputs| Circuit::new(inputs, vec![], vec![0; outputs]).unwrap();
        let new = |channels, inputs, outputs| {
            Automaton::new(channels, Boundary::Torus, circuit(inputs, outputs)).map(|_| ())
        };
        assert_eq!(new(2, 18, 2), Ok(()));
        assert_eq!(new(300, 2700, 300), Ok(()));
        assert_eq!(new(0, 1, 0), Err(AutomatonError::NoChannels));
        assert_eq!(new(2, 17, 2), Err(AutomatonError::Inputs { channels: 2, inputs: 17 }));
        assert_eq!(new(2, 18, 1), Err(AutomatonError::Outputs { channels: 2, outputs: 1 }));
        assert_eq!(new(usize::MAX, 18, 1), Err(AutomatonError::Inputs { channels: usize::MAX, inputs: 18 }));
    }

    #[test]
    fn live_channels_reach_an_observed_one_in_later_steps() {
        // Channel 0 reads 1, 1 reads 2, 2 reads itself, and 3 reads 0, but no channel reads 3.
        let outputs = vec![signal(1, 0), signal(2, 4), signal(2, 4), signal(0, 4)];
        let automaton =
            Automaton::new(4, Boundary::Zeros, Circuit::new(36, vec![], outputs).unwrap()).unwrap();
        assert_eq!(automaton.observe(1).unwrap(), [true, true, true, false]);
        assert_eq!(automaton.observe(4).unwrap(), [true; 4]);
        assert_eq!(automaton.observe(usize::MAX).unwrap(), [true; 4]);
        assert_eq!(automaton.observe(0).unwrap(), [false; 4]);
    }

    #[test]
    fn dependencies_are_those_of_the_simplified_circuit() {
        let gates =
            vec![Node::new(Gate::XOR, signal(1, 4), signal(1, 4)), Node::new(Gate::OR, 18, signal(0, 4))];
        let circuit = Circuit::new(18, gates, vec![19, signal(1, 4)]).unwrap();
        let automaton = Automaton::new(2, Boundary::Torus, circuit).unwrap();
        assert_eq!(automaton.observe(1).unwrap(), [true, false]);
    }

    #[test]
    fn boundaries_have_kebab_case_names() {
        assert_eq!(
            serde_json::to_string(&[Boundary::Torus, Boundary::Zeros]).unwrap(),
            r#"["torus","zeros"]"#
        );
    }
}
