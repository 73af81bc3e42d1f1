//! The cone of an automaton: everything that can reach the observed channels through time, in an order to
//! compute it.
//!
//! A channel is live if it is observed, or if the new value of a live channel depends on it. The walk starts
//! at the observed outputs and goes depth first; an input that it meets makes its channel live, so the output
//! of that channel is walked too. Depth first also is a good order for a machine: a value is computed shortly
//! before it is used, so few values are alive at a time.

use crate::automaton::{CENTRE, NEIGHBOURS};
use crate::circuit::{Circuit, Node};

/// One step of the computation of the live channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Read an input.
    Load { input: u32 },
    /// Compute a gate; its operands come earlier in the order.
    Compute { signal: u32 },
    /// Write a signal as the new value of a channel.
    Store { signal: u32, channel: usize },
}

/// What the observed channels depend on through time.
pub(crate) struct Cone {
    /// Whether each channel is live.
    pub live: Vec<bool>,
    /// Every needed input and gate once, before its first use, and a store for each live channel that may
    /// change.
    pub events: Vec<Event>,
}

impl Cone {
    /// The cone of the first `observed` channels. The circuit has the ports of an automaton.
    pub fn new(circuit: &Circuit, observed: usize) -> Cone {
        let outputs = circuit.outputs();
        let mut live: Vec<bool> = (0..outputs.len()).map(|channel| channel < observed).collect();
        let mut queue: Vec<usize> = (0..outputs.len().min(observed)).rev().collect();
        let mut walk = Walk::new(circuit);
        while let Some(channel) = queue.pop() {
            let output = outputs[channel];
            if output as usize == channel * NEIGHBOURS + CENTRE {
                continue; // The channel keeps its value.
            }
            let before = walk.events.len();
            walk.reach(output);
            for event in &walk.events[before..] {
                if let Event::Load { input } = *event {
                    let source = input as usize / NEIGHBOURS;
                    if !live[source] {
                        live[source] = true;
                        queue.push(source);
                    }
                }
            }
            walk.events.push(Event::Store { signal: output, channel });
        }
        Cone { live, events: walk.events }
    }
}

/// The computation of all outputs of a circuit; the `channel` of a store is the number of the output.
pub(crate) fn order(circuit: &Circuit) -> Vec<Event> {
    let mut walk = Walk::new(circuit);
    for (channel, &signal) in circuit.outputs().iter().enumerate() {
        walk.reach(signal);
        walk.events.push(Event::Store { signal, channel });
    }
    walk.events
}

/// A walk that meets every signal once, after the signals that it depends on.
struct Walk<'a> {
    circuit: &'a Circuit,
    done: Vec<bool>,
    stack: Vec<u32>,
    events: Vec<Event>,
}

impl Walk<'_> {
    fn new(circuit: &Circuit) -> Walk<'_> {
        Walk { circuit, done: vec![false; circuit.signals()], stack: Vec::new(), events: Vec::new() }
    }

    /// Adds what is still missing to compute a signal.
    fn reach(&mut self, signal: u32) {
        self.stack.push(signal);
        while let Some(&signal) = self.stack.last() {
            if self.done[signal as usize] {
                self.stack.pop();
                continue;
            }
            let waiting = self.stack.len();
            let node = self.circuit.node(signal);
            let operands = node.into_iter().flat_map(Node::dependencies);
            self.stack.extend(operands.filter(|&operand| !self.done[operand as usize]));
            if self.stack.len() == waiting {
                self.done[signal as usize] = true;
                self.events.push(match node {
                    Some(_) => Event::Compute { signal },
                    None => Event::Load { input: signal },
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Gate;

    #[test]
    fn values_come_before_their_uses_and_only_once() {
        let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::OR, 9, 1), Node::new(Gate::XOR, 10, 9)];
        let cone = Cone::new(&Circuit::new(9, gates, vec![11]).unwrap(), 1);
        let events = [
            Event::Load { input: 1 },
            Event::Load { input: 0 },
            Event::Compute { signal: 9 },
            Event::Compute { signal: 10 },
            Event::Compute { signal: 11 },
            Event::Store { signal: 11, channel: 0 },
        ];
        assert_eq!(cone.events, events);
    }

    #[test]
    fn a_channel_that_keeps_its_value_needs_no_events() {
        let cone = Cone::new(&Circuit::new(9, vec![], vec![4]).unwrap(), 1);
        assert_eq!((cone.live, cone.events), (vec![true], vec![]));
    }

    #[test]
    fn every_output_of_a_circuit_is_stored() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2, 0, 2]).unwrap();
        let stores = [(2, 0), (0, 1), (2, 2)].map(|(signal, channel)| Event::Store { signal, channel });
        let events = order(&circuit);
        assert_eq!(events[2], Event::Compute { signal: 2 });
        assert_eq!(events[3..], stores);
    }

    #[test]
    fn deep_chains_need_no_deep_stack() {
        let gates = (0..200_000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, 1)).collect();
        let cone = Cone::new(&Circuit::new(9, gates, vec![200_008]).unwrap(), 1);
        assert_eq!(cone.events.len(), 200_003);
    }
}
