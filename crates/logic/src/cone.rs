//! The cone of an automaton: everything that can reach the observed channels through time, in an order to
//! compute it.
//!
//! A channel is live if it is observed, or if the new value of a live channel depends on it. The walk starts
//! at the observed outputs and goes depth first; an input that it meets makes its channel live, so the output
//! of that channel is walked too. Depth first also is a good order for a machine: a value is computed shortly
//! before it is used, so few values are alive at a time.

use crate::automaton::{CENTRE, NEIGHBOURS};
use crate::circuit::Circuit;

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
        let mut events = Vec::new();
        let mut done = vec![false; circuit.signals()];
        let mut stack = Vec::new();
        while let Some(channel) = queue.pop() {
            let output = outputs[channel];
            if output as usize == channel * NEIGHBOURS + CENTRE {
                continue; // The channel keeps its value.
            }
            stack.push(output);
            while let Some(&signal) = stack.last() {
                if done[signal as usize] {
                    stack.pop();
                    continue;
                }
                let Some(node) = circuit.node(signal) else {
                    done[signal as usize] = true;
                    events.push(Event::Load { input: signal });
                    let source = signal as usize / NEIGHBOURS;
                    if !live[source] {
                        live[source] = true;
                        queue.push(source);
                    }
                    continue;
                };
                let waiting = stack.len();
                stack.extend(node.dependencies().filter(|&operand| !done[operand as usize]));
                if stack.len() == waiting {
                    done[signal as usize] = true;
                    events.push(Event::Compute { signal });
                }
            }
            events.push(Event::Store { signal: output, channel });
        }
        Cone { live, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Node;
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
    fn deep_chains_need_no_deep_stack() {
        let gates = (0..200_000).map(|i| Node::new(Gate::XOR, if i == 0 { 0 } else { 8 + i }, 1)).collect();
        let cone = Cone::new(&Circuit::new(9, gates, vec![200_008]).unwrap(), 1);
        assert_eq!(cone.events.len(), 200_003);
    }
}
