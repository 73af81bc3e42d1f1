//! A mutable rule, and the gates that trials change.

use crate::automaton::{Automaton, NEIGHBOURS};
use crate::circuit::Node;

/// A mutable copy of the rule of an automaton. Signals are numbered as in a [`crate::Circuit`]: the inputs, nine of each
/// channel, then the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) channels: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<u32>,
}

/// A node that a trial changes: its gate to each of the sixteen functions, and its operands to those given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The number of the trial, below [`TRIALS`](super::TRIALS).
    pub trial: usize,
    /// The index of the node.
    pub node: usize,
    /// The signal of its first operand in the trial.
    pub a: u32,
    /// The signal of its second operand in the trial.
    pub b: u32,
}

impl Rule {
    /// Copies the rule of an automaton.
    pub fn new(automaton: &Automaton) -> Rule {
        let circuit = &automaton.circuit;
        Rule {
            channels: automaton.channels,
            nodes: circuit.nodes().to_vec(),
            outputs: circuit.outputs().to_vec(),
        }
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.channels * NEIGHBOURS
    }

    /// The nodes, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The signal of each channel's new bit.
    pub fn outputs(&self) -> &[u32] {
        &self.outputs
    }

    /// Replaces a node. Returns `false` and changes nothing if an operand is not a signal before the node.
    pub fn set(&mut self, node: usize, new: Node) -> bool {
        let before = (self.inputs() + node) as u32;
        let fits = node < self.nodes.len() && new.a < before && new.b < before;
        if fits {
            self.nodes[node] = new;
        }
        fits
    }
}
