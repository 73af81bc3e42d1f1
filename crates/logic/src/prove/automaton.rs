//! Sequential equivalence: whether the observed channels of two automata agree in every step.
//!
//! The second automaton may have fewer channels. A [`StateMap`] gives the channel of the first automaton that each of
//! its channels corresponds to, and invariants of the other channels of the first (such as: always equal to channel 3).
//! The proof is by induction over the steps:
//!
//! ```text
//! assume, for all cells:   channel k of the second = channel map(k) of the first, and the invariants hold
//! prove, for one cell:     next state of channel k = next state of channel map(k), and the invariants hold
//! ```
//!
//! The induction step is one equivalence check of two circuits on the neighbourhood of the first automaton. It covers
//! asynchronous updates too, because a cell updates all of its bits or none. The base case is not checked here: the
//! caller initialises the second automaton according to the map and guarantees that the invariants hold in the initial
//! state.

use super::{ProveError, Verdict, equivalent_until};
use crate::automaton::{Automaton, AutomatonError, Boundary, NEIGHBOURS};
use crate::circuit::{Circuit, CircuitError, Node};
use crate::gate::Gate;
use crate::stop::{Stop, Stopped};
use std::time::Duration;
use thiserror::Error;

/// An invariant of a channel, which holds in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// The channel is 0 in all cells.
    Zero,
    /// The channel is 1 in all cells.
    One,
    /// The channel equals another channel in all cells.
    Same(usize),
    /// The channel is the complement of another channel in all cells.
    Opposite(usize),
}

/// The correspondence of the channels of two automata.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StateMap {
    /// For each channel of the second automaton, the corresponding channel of the first.
    pub channels: Vec<usize>,
    /// For each channel of the first automaton, its invariant, if it has one. A channel that an invariant refers to has
    /// none itself.
    pub known: Vec<Option<Known>>,
}

/// An error of an equivalence check of automata.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AutomataError {
    /// One of the automata is invalid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The automata have different boundaries.
    #[error("cannot compare automata with different boundaries")]
    Boundary,
    /// The map has the wrong number of channels.
    #[error("the state map has {map} channels, but the automaton has {channels}")]
    Map {
        /// The number of channels of the map.
        map: usize,
        /// The number of channels of the automaton.
        channels: usize,
    },
    /// The map refers to a channel that does not exist, or to one that has an invariant itself.
    #[error("the state map refers to channel {0}, which does not exist or has an invariant itself")]
    Channel(usize),
    /// An observed channel is not mapped to itself.
    #[error("observed channel {0} must be channel {0} of the second automaton")]
    Observed(usize),
    /// An invariant contradicts the boundary, where all channels are 0.
    #[error("channel {0} cannot be constant 1 or a complement: cells beyond the boundary are 0")]
    Edge(usize),
    /// The circuits of the induction step are too large.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The circuits of the induction step cannot be compared.
    #[error(transparent)]
    Prove(#[from] ProveError),
    /// A minimisation was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Checks whether the first `observed` channels of two automata agree after any number of steps, from every initial
/// state that the map allows. There is no time limit. A counterexample is a neighbourhood of the first automaton.
pub fn equivalent_automata(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<Verdict, AutomataError> {
    equivalent_automata_until(first, second, observed, map, &Stop::never())
}

/// Checks like [`equivalent_automata`]; returns [`Verdict::Unknown`] after about this time.
pub fn equivalent_automata_within(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
    time: Duration,
) -> Result<Verdict, AutomataError> {
    equivalent_automata_until(first, second, observed, map, &Stop::after(time))
}

/// Checks like [`equivalent_automata`]; returns [`Verdict::Unknown`] if it was stopped.
pub fn equivalent_automata_until(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
    stop: &Stop<'_>,
) -> Result<Verdict, AutomataError> {
    let (left, right) = induction_step(first, second, observed, map)?;
    Ok(equivalent_until(&left, &right, stop)?)
}

/// Returns the miter of the induction step that [`equivalent_automata`] proves: a circuit on a neighbourhood of the first
/// automaton, whose output is 1 where the step does not hold.
pub fn miter_of_automata(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<Circuit, AutomataError> {
    let (left, right) = induction_step(first, second, observed, map)?;
    Ok(super::miter(&left, &right)?)
}

/// Returns two circuits that are equal if the induction step holds.
fn induction_step(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<(Circuit, Circuit), AutomataError> {
    check(first, second, observed, map)?;
    let known: Vec<usize> = (0..first.channels).filter(|&channel| map.known[channel].is_some()).collect();
    let mut left = Builder::new(first.circuit.inputs());
    let inputs = left.substituted_inputs(map);
    let next_state = left.add(&first.circuit, &inputs);
    let outputs = map.channels.iter().chain(&known).map(|&channel| next_state[channel]).collect();
    let left = Circuit::new(left.inputs, left.nodes, outputs)?;
    // The second automaton, and the invariants applied to the next state of the first.
    let mut right = Builder::new(first.circuit.inputs());
    let inputs = right.substituted_inputs(map);
    let mapped: Vec<u32> =
        map.channels.iter().flat_map(|&c| inputs[c * NEIGHBOURS..][..NEIGHBOURS].to_vec()).collect();
    let mut outputs = right.add(&second.circuit, &mapped);
    let next_state = right.add(&first.circuit, &inputs);
    for &channel in &known {
        let signal = right.known(map.known[channel], |other| next_state[other]);
        outputs.push(signal.unwrap_or(next_state[channel]));
    }
    let right = Circuit::new(right.inputs, right.nodes, outputs)?;
    Ok((left, right))
}

fn check(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<(), AutomataError> {
    first.check()?;
    second.check()?;
    if first.boundary != second.boundary {
        return Err(AutomataError::Boundary);
    }
    if map.channels.len() != second.channels {
        return Err(AutomataError::Map { map: map.channels.len(), channels: second.channels });
    }
    if map.known.len() != first.channels {
        return Err(AutomataError::Map { map: map.known.len(), channels: first.channels });
    }
    let mut mapped = map.channels.iter().copied();
    if let Some(channel) = mapped.find(|&channel| channel >= first.channels) {
        return Err(AutomataError::Channel(channel));
    }
    if let Some(channel) = (0..observed.min(first.channels)).find(|&c| map.channels.get(c) != Some(&c)) {
        return Err(AutomataError::Observed(channel));
    }
    for (channel, known) in map.known.iter().enumerate() {
        if let Some(Known::Same(other) | Known::Opposite(other)) = *known
            && map.known.get(other) != Some(&None)
        {
            return Err(AutomataError::Channel(other));
        }
        let can_be_1 = matches!(known, Some(Known::One | Known::Opposite(_)));
        if can_be_1 && first.boundary == Boundary::Zeros {
            return Err(AutomataError::Edge(channel));
        }
    }
    Ok(())
}

/// Builds a circuit gate by gate.
struct Builder {
    inputs: usize,
    nodes: Vec<Node>,
}

impl Builder {
    fn new(inputs: usize) -> Builder {
        Builder { inputs, nodes: Vec::new() }
    }

    fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        (self.inputs + self.nodes.len() - 1) as u32
    }

    /// Returns the signal of a channel with an invariant. `signal` gives the signals of other channels.
    fn known(&mut self, known: Option<Known>, signal: impl Fn(usize) -> u32) -> Option<u32> {
        Some(match known? {
            Known::Zero => self.push(Node::new(Gate::FALSE, 0, 0)),
            Known::One => self.push(Node::new(Gate::TRUE, 0, 0)),
            Known::Same(other) => signal(other),
            Known::Opposite(other) => self.push(Node::new(Gate::NOT_A, signal(other), signal(other))),
        })
    }

    /// Returns the inputs of the first automaton, with the invariants substituted.
    fn substituted_inputs(&mut self, map: &StateMap) -> Vec<u32> {
        let input = |channel: usize, neighbour: usize| (channel * NEIGHBOURS + neighbour) as u32;
        let mut inputs = Vec::with_capacity(self.inputs);
        for (channel, &known) in map.known.iter().enumerate() {
            for neighbour in 0..NEIGHBOURS {
                let signal = self.known(known, |other| input(other, neighbour));
                inputs.push(signal.unwrap_or(input(channel, neighbour)));
            }
        }
        inputs
    }

    /// Adds a circuit with these signals as its inputs and returns the signals of its outputs.
    fn add(&mut self, circuit: &Circuit, inputs: &[u32]) -> Vec<u32> {
        let mut signals = inputs.to_vec();
        for node in circuit.nodes() {
            let signal = if node.gate.is_constant() {
                self.push(*node)
            } else {
                self.push(Node::new(node.gate, signals[node.a as usize], signals[node.b as usize]))
            };
            signals.push(signal);
        }
        circuit.outputs().iter().map(|&output| signals[output as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn automaton(boundary: Boundary, nodes: Vec<Node>, outputs: Vec<u32>) -> Automaton {
        let channels = outputs.len();
        Automaton::new(channels, boundary, Circuit::new(9 * channels, nodes, outputs).unwrap()).unwrap()
    }

    /// Channel 0 is the XOR of channels 1 and 2, whose next state is the left neighbour of channel 1.
    fn twins(boundary: Boundary) -> Automaton {
        automaton(boundary, vec![Node::new(Gate::XOR, 13, 22)], vec![27, 12, 12])
    }

    #[test]
    fn equality_of_channels_must_be_an_invariant() {
        // If the twins are equal, channel 0 is 0.
        let zero = automaton(Boundary::Torus, vec![Node::new(Gate::FALSE, 0, 0)], vec![9]);
        let mut map = StateMap { channels: vec![0], known: vec![None, None, Some(Known::Same(1))] };
        let twins = twins(Boundary::Torus);
        assert_eq!(equivalent_automata(&twins, &zero, 1, &map), Ok(Verdict::Equal));
        map.known[2] = None;
        let verdict = equivalent_automata(&twins, &zero, 1, &map);
        assert!(matches!(verdict, Ok(Verdict::Different { output: 0, .. })));
        // Invariants are checked: channel 2 does not stay 0.
        map.known[2] = Some(Known::Zero);
        let verdict = equivalent_automata(&twins, &zero, 1, &map);
        assert!(matches!(verdict, Ok(Verdict::Different { .. })));
    }

    #[test]
    fn invariants_hold_beyond_the_boundary() {
        let mut map = StateMap { channels: vec![0, 1, 2], known: vec![None, None, Some(Known::Opposite(1))] };
        let zeros = twins(Boundary::Zeros);
        assert_eq!(equivalent_automata(&zeros, &zeros, 1, &map), Err(AutomataError::Edge(2)));
        map.known[2] = Some(Known::Same(1));
        assert_eq!(equivalent_automata(&zeros, &zeros, 1, &map), Ok(Verdict::Equal));
    }

    #[test]
    fn state_maps_are_validated() {
        let twins = twins(Boundary::Torus);
        let try_map = |channels: Vec<usize>, known: Vec<Option<Known>>| {
            equivalent_automata(&twins, &twins, 1, &StateMap { channels, known })
        };
        let none = vec![None; 3];
        assert_eq!(try_map(vec![0, 1], none.clone()), Err(AutomataError::Map { map: 2, channels: 3 }));
        assert_eq!(try_map(vec![0, 1, 2], vec![None]), Err(AutomataError::Map { map: 1, channels: 3 }));
        assert_eq!(try_map(vec![0, 1, 3], none.clone()), Err(AutomataError::Channel(3)));
        assert_eq!(try_map(vec![1, 0, 2], none.clone()), Err(AutomataError::Observed(0)));
        let circular = vec![None, Some(Known::Same(2)), Some(Known::Same(1))];
        assert_eq!(try_map(vec![0, 1, 2], circular), Err(AutomataError::Channel(2)));
        assert_eq!(try_map(vec![0, 1, 2], none), Ok(Verdict::Equal));
    }
}
