//! The fan-in cone of the observed channels of an automaton, through time.
//!
//! A channel is live if it is observed, or if the next value of a live channel depends on it.

use crate::automaton::NEIGHBOURS;
use crate::circuit::{Circuit, Node};

/// The live channels and the gates that they depend on.
pub(crate) struct Cone {
    /// Whether each channel is live.
    pub live: Vec<bool>,
    /// The number of gates that the live channels depend on.
    pub gates: usize,
}

impl Cone {
    /// The cone of the first `observed` channels. The circuit has the ports of an automaton.
    pub fn new(circuit: &Circuit, observed: usize) -> Cone {
        let mut live: Vec<bool> = (0..circuit.outputs().len()).map(|channel| channel < observed).collect();
        let mut gates = 0;
        let mut visited = vec![false; circuit.signals()];
        let mut stack: Vec<u32> = circuit.outputs().iter().take(observed).copied().collect();
        while let Some(signal) = stack.pop() {
            if std::mem::replace(&mut visited[signal as usize], true) {
                continue;
            }
            if let Some(node) = circuit.node(signal) {
                gates += 1;
                stack.extend(Node::dependencies(node));
            } else {
                let channel = signal as usize / NEIGHBOURS;
                if !std::mem::replace(&mut live[channel], true) {
                    stack.push(circuit.outputs()[channel]);
                }
            }
        }
        Cone { live, gates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Gate;

    #[test]
    fn a_channel_that_keeps_its_value_is_live_if_it_is_observed() {
        let circuit = Circuit::new(18, vec![], vec![4, 13]).unwrap();
        assert_eq!(Cone::new(&circuit, 1).live, [true, false]);
    }

    #[test]
    fn channels_are_live_through_several_steps() {
        // Channel 0 reads channel 1, which reads channel 2; channel 3 reads channel 0.
        let nodes = vec![Node::new(Gate::AND, 0, 9), Node::new(Gate::OR, 36, 10)];
        let circuit = Circuit::new(36, nodes, vec![37, 18, 22, 0]).unwrap();
        assert_eq!(Cone::new(&circuit, 1).live, [true, true, true, false]);
    }

    #[test]
    fn deep_chains_do_not_overflow_the_stack() {
        let gates = (0..200_000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, 1)).collect();
        assert_eq!(Cone::new(&Circuit::new(9, gates, vec![200_008]).unwrap(), 1).gates, 200_000);
    }
}
