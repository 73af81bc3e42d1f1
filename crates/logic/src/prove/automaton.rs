//! Whether two automata show the same, for every start state and any number of steps.
//!
//! The second automaton may have fewer channels. A [`StateMap`] says which channel of the first one each of its
//! channels stands for, and what is known about other channels of the first (such as: always equal to channel
//! 3). The proof is by induction over the steps:
//!
//! ```text
//! assume, for all cells:   channel k of the second = channel map(k) of the first, and what is known holds
//! then, for one cell:      the new bit of channel k = the new bit of channel map(k), and what is known holds
//! ```
//!
//! The step is one equivalence of two circuits on the patch of the first automaton. It also holds for cells
//! that are left out of a step, for a cell takes all of its new bits or none. That the start state agrees with
//! the map is how the second automaton is started; that it agrees with what is known is an assumption of
//! whoever states it.

use super::{ProveError, Verdict, decide};
use crate::automaton::{Automaton, AutomatonError, Boundary, NEIGHBOURS};
use crate::circuit::{Circuit, CircuitError, Node};
use crate::gate::Gate;
use std::time::{Duration, Instant};
use thiserror::Error;

/// What is known about a channel in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// It is 0 in all cells.
    Zero,
    /// It is 1 in all cells.
    One,
    /// It equals another channel in all cells.
    Same(usize),
    /// It is the opposite of another channel in all cells.
    Opposite(usize),
}

/// How the channels of two automata correspond.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StateMap {
    /// For each channel of the second automaton, the channel of the first that it stands for.
    pub channels: Vec<usize>,
    /// For each channel of the first automaton, what is known about it. A channel that another one is compared
    /// with is itself unknown.
    pub known: Vec<Option<Known>>,
}

/// Why two automata cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AutomataError {
    /// One of them is not an automaton.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// Different boundaries.
    #[error("automata with different boundaries cannot be compared")]
    Boundary,
    /// The map does not fit the automata.
    #[error("the state map is for {map} channels, but there are {channels}")]
    Map {
        /// The channels of the map.
        map: usize,
        /// The channels of the automaton.
        channels: usize,
    },
    /// The map names a channel that is not there, or compares with a channel that is compared itself.
    #[error("the state map refers to channel {0}, which does not exist or is itself known")]
    Channel(usize),
    /// An observed channel is missing.
    #[error("channel {0} is observed, but the second automaton has another channel in its place")]
    Observed(usize),
    /// Cells beyond the edge are 0 in all channels, which contradicts what the map says.
    #[error("channel {0} is said to be 1 or the opposite of another, but cells beyond the edge are 0")]
    Edge(usize),
    /// The circuits are too large.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The circuits cannot be compared.
    #[error(transparent)]
    Prove(#[from] ProveError),
}

/// Whether the first `observed` channels of two automata are the same in every state that the map allows and
/// after any number of steps, however long it takes. A difference is a patch of the first automaton.
pub fn equivalent_automata(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<Verdict, AutomataError> {
    let (left, right) = step(first, second, observed, map)?;
    Ok(decide(&left, &right, None)?)
}

/// The same, or [`Verdict::Unknown`] after about this time.
pub fn equivalent_automata_within(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
    time: Duration,
) -> Result<Verdict, AutomataError> {
    let deadline = Instant::now().checked_add(time);
    let (left, right) = step(first, second, observed, map)?;
    Ok(decide(&left, &right, deadline)?)
}

/// The step of the induction: two circuits that are equal if it holds.
fn step(
    first: &Automaton,
    second: &Automaton,
    observed: usize,
    map: &StateMap,
) -> Result<(Circuit, Circuit), AutomataError> {
    check(first, second, observed, map)?;
    let known: Vec<usize> = (0..first.channels).filter(|&channel| map.known[channel].is_some()).collect();
    let mut left = Builder::new(first.circuit.inputs());
    let patch = left.known_patch(map);
    let new_bits = left.add(&first.circuit, &patch);
    let outputs = map.channels.iter().chain(&known).map(|&channel| new_bits[channel]).collect();
    let left = Circuit::new(left.inputs, left.nodes, outputs)?;
    // The second automaton, and what is known about the new bits of the first.
    let mut right = Builder::new(first.circuit.inputs());
    let patch = right.known_patch(map);
    let inputs: Vec<u32> =
        map.channels.iter().flat_map(|&c| patch[c * NEIGHBOURS..][..NEIGHBOURS].to_vec()).collect();
    let mut outputs = right.add(&second.circuit, &inputs);
    let new_bits = right.add(&first.circuit, &patch);
    for &channel in &known {
        let signal = right.known(map.known[channel], |other| new_bits[other]);
        outputs.push(signal.unwrap_or(new_bits[channel]));
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
    let mut named = map.channels.iter().copied();
    if let Some(channel) = named.find(|&channel| channel >= first.channels) {
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
        let is_1_somewhere = matches!(known, Some(Known::One | Known::Opposite(_)));
        if is_1_somewhere && first.boundary == Boundary::Zeros {
            return Err(AutomataError::Edge(channel));
        }
    }
    Ok(())
}

/// A circuit that is put together.
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

    /// What is known, as a signal; `signal` gives the signals of other channels.
    fn known(&mut self, known: Option<Known>, signal: impl Fn(usize) -> u32) -> Option<u32> {
        Some(match known? {
            Known::Zero => self.push(Node::new(Gate::FALSE, 0, 0)),
            Known::One => self.push(Node::new(Gate::TRUE, 0, 0)),
            Known::Same(other) => signal(other),
            Known::Opposite(other) => self.push(Node::new(Gate::NOT_A, signal(other), signal(other))),
        })
    }

    /// The patch, with what is known in the place of the channels that it is known about.
    fn known_patch(&mut self, map: &StateMap) -> Vec<u32> {
        let place = |channel: usize, neighbour: usize| (channel * NEIGHBOURS + neighbour) as u32;
        let mut patch = Vec::with_capacity(self.inputs);
        for (channel, &known) in map.known.iter().enumerate() {
            for neighbour in 0..NEIGHBOURS {
                let signal = self.known(known, |other| place(other, neighbour));
                patch.push(signal.unwrap_or(place(channel, neighbour)));
            }
        }
        patch
    }

    /// Adds a circuit on these signals and returns the signals of its outputs.
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

    /// Channel 0 is the XOR of channels 1 and 2, which both take the left neighbour of channel 1.
    fn twins(boundary: Boundary) -> Automaton {
        automaton(boundary, vec![Node::new(Gate::XOR, 13, 22)], vec![27, 12, 12])
    }

    #[test]
    fn equal_channels_must_be_known_to_be_equal() {
        // If the twins are equal, channel 0 is 0.
        let zero = automaton(Boundary::Torus, vec![Node::new(Gate::FALSE, 0, 0)], vec![9]);
        let mut map = StateMap { channels: vec![0], known: vec![None, None, Some(Known::Same(1))] };
        let twins = twins(Boundary::Torus);
        assert_eq!(equivalent_automata(&twins, &zero, 1, &map), Ok(Verdict::Equal));
        map.known[2] = None;
        let verdict = equivalent_automata(&twins, &zero, 1, &map);
        assert!(matches!(verdict, Ok(Verdict::Different { output: 0, .. })));
        // What is claimed must stay true: here channel 2 does not stay 0.
        map.known[2] = Some(Known::Zero);
        let verdict = equivalent_automata(&twins, &zero, 1, &map);
        assert!(matches!(verdict, Ok(Verdict::Different { .. })));
    }

    #[test]
    fn the_edge_is_zero() {
        let mut map = StateMap { channels: vec![0, 1, 2], known: vec![None, None, Some(Known::Opposite(1))] };
        let zeros = twins(Boundary::Zeros);
        assert_eq!(equivalent_automata(&zeros, &zeros, 1, &map), Err(AutomataError::Edge(2)));
        map.known[2] = Some(Known::Same(1));
        assert_eq!(equivalent_automata(&zeros, &zeros, 1, &map), Ok(Verdict::Equal));
    }

    #[test]
    fn maps_are_checked() {
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
