//! Cellular automata: one circuit, applied to the 3x3 patch of every cell.
//!
//! The circuit reads 9 bits per channel, input `channel * 9 + neighbour`, with the neighbours row by row: 0
//! is up-left, 1 up, 4 the cell itself, 8 down-right. Its outputs are the new bits of the cell, one per
//! channel.

use crate::circuit::Circuit;
use crate::cone::Cone;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The cells of a 3x3 patch.
pub const NEIGHBOURS: usize = 9;
/// The neighbour that is the cell itself.
pub const CENTRE: usize = 4;

/// What lies beyond the edge of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// The opposite edge.
    Torus,
    /// Cells that are always 0.
    Zeros,
}

impl Boundary {
    /// The row (or column) before, at or behind one of `size`, for an offset of 0, 1 or 2; none if it lies outside.
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
    /// Bits of a cell.
    pub channels: usize,
    /// What lies beyond the edge of a board.
    pub boundary: Boundary,
    /// The rule: 9 inputs per channel, one output per channel.
    pub circuit: Circuit,
}

/// Why a circuit is not the rule of an automaton.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AutomatonError {
    /// An automaton without channels.
    #[error("an automaton needs at least one channel")]
    NoChannels,
    /// The wrong number of inputs.
    #[error(
        "an automaton of {channels} channels reads 9 inputs for each, but its circuit has {inputs} inputs"
    )]
    Inputs {
        /// The channels of the automaton.
        channels: usize,
        /// The inputs of the circuit.
        inputs: usize,
    },
    /// The wrong number of outputs.
    #[error(
        "an automaton of {channels} channels writes one output each, but its circuit has {outputs} outputs"
    )]
    Outputs {
        /// The channels of the automaton.
        channels: usize,
        /// The outputs of the circuit.
        outputs: usize,
    },
}

impl Automaton {
    /// An automaton, checked: the circuit has 9 inputs and one output per channel.
    pub fn new(channels: usize, boundary: Boundary, circuit: Circuit) -> Result<Automaton, AutomatonError> {
        let automaton = Automaton { channels, boundary, circuit };
        automaton.check()?;
        Ok(automaton)
    }

    /// Whether the ports of the circuit fit the channels. The fields are public, so whoever relies on it
    /// checks.
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

    /// The live channels: those that can reach one of the first `observed` channels, now or in a later step.
    ///
    /// The dependences are those of the simplified circuit. The observed channels themselves are live; all
    /// channels are observed if `observed` is larger than their number.
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
    fn ports_are_checked() {
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
    fn live_channels_reach_the_observed_ones_through_time() {
        // 0 reads 1, 1 reads 2, 2 reads itself; 3 reads 0 but nobody reads 3.
        let outputs = vec![signal(1, 0), signal(2, 4), signal(2, 4), signal(0, 4)];
        let automaton =
            Automaton::new(4, Boundary::Zeros, Circuit::new(36, vec![], outputs).unwrap()).unwrap();
        assert_eq!(automaton.observe(1).unwrap(), [true, true, true, false]);
        assert_eq!(automaton.observe(4).unwrap(), [true; 4]);
        assert_eq!(automaton.observe(usize::MAX).unwrap(), [true; 4]);
        assert_eq!(automaton.observe(0).unwrap(), [false; 4]);
    }

    #[test]
    fn a_dependence_that_simplifies_away_is_none() {
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
