//! Minimisation of automata: fewer gates, and fewer channels where the observed channels stay the same.
//!
//! Channels outside of the cone of influence of the observed channels are removed; this is valid for every initial
//! state. With assumptions about the initial state, channels can also be constant or equal to others in every reachable
//! state. Candidates are proved by induction (signal correspondence, van Eijk's method):
//!
//! ```text
//! classes: channels that are equal in the initial state, with one class for the constants
//! repeat: assume that the members of each class are equal in all nine cells of the neighbourhood
//!         simulate random neighbourhoods, then call the SAT solver:
//!         members whose next-state functions differ leave their class
//! until no class changes
//! ```

use super::{Effort, Minimized, Observer, Options, Start, Statistics, minimize_untraced};
use crate::automaton::{Automaton, Boundary, CENTRE, NEIGHBOURS};
use crate::circuit::{Circuit, CircuitError};
use crate::cone::Cone;
use crate::formats::names::{self, Ports};
use crate::prove::automaton::{AutomataError, Known, StateMap};
use crate::prove::sat::{self, Answer, Limits};
use crate::prove::sweep::Random;
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Xag};
use rustc_hash::FxHashMap;

/// A minimised automaton and the correspondence of its channels to those of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinimizedAutomaton {
    /// The automaton. Its first channels are the observed ones.
    pub automaton: Automaton,
    /// The original channel of each channel, and the invariants that hold for the original. Without assumptions about
    /// the initial state the map is valid for every initial state.
    pub map: StateMap,
    /// The assumptions about the initial state; empty if there are none.
    pub start: Vec<Start>,
    /// Sizes before and after.
    pub statistics: Statistics,
}

/// Returns an automaton with fewer gates and channels whose first `observed` channels are the same in every step, for
/// every initial state that `options.start` allows.
///
/// [`crate::prove::equivalent_automata`] proves the result.
pub fn minimize_automaton(
    automaton: &Automaton,
    observed: usize,
    options: &Options,
) -> Result<MinimizedAutomaton, AutomataError> {
    minimize_automaton_until(automaton, observed, options, &Stop::never(), &|_, _| {})
}

/// Minimises like [`minimize_automaton`]; returns [`AutomataError::Stopped`] if it was stopped. Calls `observer` before
/// each pass.
pub fn minimize_automaton_until(
    automaton: &Automaton,
    observed: usize,
    options: &Options,
    stop: &Stop<'_>,
    observer: &Observer<'_>,
) -> Result<MinimizedAutomaton, AutomataError> {
    automaton.check()?;
    let observed = observed.clamp(1, automaton.channels);
    observer("induction", automaton.circuit.nodes().len());
    let known = Classes::new(automaton, &options.start).prove(automaton, stop)?;
    let assumed = assume(&automaton.circuit, &known).to_circuit(&automaton.circuit);
    let fast = Options { effort: Effort::Fast, ..Options::default() };
    let Minimized { circuit, .. } =
        minimize_untraced(&without_unobservable(&assumed, observed), &fast, stop, observer)?;
    let channels = live_channels(&circuit, observed);
    let projected = project(&circuit, &channels)?;
    let Minimized { circuit, mut statistics, .. } = minimize_untraced(&projected, options, stop, observer)?;
    statistics.gates_before = automaton.gates(observed);
    statistics.depth_before = automaton.circuit.depth();
    let automaton = Automaton::new(channels.len(), automaton.boundary, circuit)?;
    let map = StateMap { channels, known };
    Ok(MinimizedAutomaton { automaton, map, start: options.start.clone(), statistics })
}

/// Returns the automaton reduced to the cone of influence of the first `observed` channels: the channels and gates that
/// can reach an observed channel, now or in a later step.
pub fn cone_of_influence(automaton: &Automaton, observed: usize) -> Result<Automaton, AutomataError> {
    automaton.check()?;
    let observed = observed.clamp(1, automaton.channels);
    let channels = live_channels(&automaton.circuit, observed);
    let circuit = project(&automaton.circuit, &channels)?;
    Ok(Automaton::new(channels.len(), automaton.boundary, circuit)?)
}

/// Converts a circuit to an XAG, substituting known channels in its inputs.
fn assume(circuit: &Circuit, known: &[Option<Known>]) -> Xag {
    let mut xag = Xag::new(circuit.inputs());
    let input = |channel: usize, neighbour: usize| Literal::input(channel * NEIGHBOURS + neighbour);
    let literal = |index: usize| {
        let (channel, neighbour) = (index / NEIGHBOURS, index % NEIGHBOURS);
        match known[channel] {
            None => input(channel, neighbour),
            Some(Known::Zero) => Literal::FALSE,
            Some(Known::One) => Literal::TRUE,
            Some(Known::Same(other)) => input(other, neighbour),
            Some(Known::Opposite(other)) => input(other, neighbour).not(),
        }
    };
    let outputs = xag.add_circuit_on(circuit, (0..circuit.inputs()).map(literal).collect());
    xag.set_outputs(outputs);
    xag
}

/// Replaces the next-state functions of channels that never reach an observed one by the identity.
fn without_unobservable(circuit: &Circuit, observed: usize) -> Circuit {
    let live = Cone::new(&circuit.simplify(), observed).live;
    let next = |(channel, (&output, live)): (usize, (&u32, bool))| {
        if live { output } else { (channel * NEIGHBOURS + CENTRE) as u32 }
    };
    let outputs = circuit.outputs().iter().zip(live).enumerate().map(next).collect();
    circuit.with_gates(circuit.nodes().to_vec(), outputs)
}

/// Returns the observed channels and the channels that can reach them in a later step.
fn live_channels(circuit: &Circuit, observed: usize) -> Vec<usize> {
    let live = Cone::new(&circuit.simplify(), observed).live;
    (0..live.len()).filter(|&channel| live[channel]).collect()
}

/// Restricts a circuit to some channels, which depend on no other channel.
fn project(circuit: &Circuit, channels: &[usize]) -> Result<Circuit, CircuitError> {
    let mut xag = Xag::new(channels.len() * NEIGHBOURS);
    let mut inputs = vec![Literal::FALSE; circuit.inputs()];
    for (place, &channel) in channels.iter().enumerate() {
        for neighbour in 0..NEIGHBOURS {
            inputs[channel * NEIGHBOURS + neighbour] = Literal::input(place * NEIGHBOURS + neighbour);
        }
    }
    let outputs = xag.add_circuit_on(circuit, inputs);
    xag.set_outputs(channels.iter().map(|&channel| outputs[channel]).collect());
    let names = port_names(circuit, channels);
    xag.without_dead_gates().to_named_circuit(names.inputs, names.outputs)
}

/// Returns the port names of some channels. If channels are removed, the others keep the default names of their
/// original indices.
fn port_names(circuit: &Circuit, channels: &[usize]) -> Ports {
    let all = if channels.len() * NEIGHBOURS == circuit.inputs() {
        Ports { inputs: circuit.input_names().to_vec(), outputs: circuit.output_names().to_vec() }
    } else {
        names::cell_ports(circuit)
    };
    let inputs = channels.iter().flat_map(|&c| (0..NEIGHBOURS).map(move |n| c * NEIGHBOURS + n));
    Ports {
        inputs: inputs.filter_map(|input| all.inputs.get(input).cloned()).collect(),
        outputs: channels.iter().filter_map(|&channel| all.outputs.get(channel).cloned()).collect(),
    }
}

impl MinimizedAutomaton {
    /// Returns whether the result is valid only under assumptions about the initial state.
    pub fn assumes_start(&self) -> bool {
        self.map.known.iter().any(Option::is_some)
    }

    /// Returns whether the invariants hold in every initial state that the assumptions allow: the base case of the
    /// induction.
    pub fn holds_at_start(&self) -> bool {
        let start = |channel: usize| self.start.get(channel).copied().unwrap_or_default();
        let holds = |(channel, known): (usize, &Option<Known>)| match *known {
            None => true,
            Some(Known::Zero) => start(channel) == Start::Zero,
            Some(Known::One) => start(channel) == Start::One,
            Some(Known::Same(other)) => start(channel) == start(other) && start(channel) != Start::Free,
            Some(Known::Opposite(other)) => {
                matches!(
                    (start(channel), start(other)),
                    (Start::Zero, Start::One) | (Start::One, Start::Zero)
                )
            }
        };
        self.map.known.iter().enumerate().all(holds)
    }
}

/// Equivalence classes of channels that may be equal or constant in every state.
struct Classes {
    /// The class of each channel; class 0 holds the constants.
    class: Vec<usize>,
    /// Whether each channel is the complement of its class.
    not: Vec<bool>,
    len: usize,
}

/// The number of 64-bit words of random neighbourhoods that candidates are simulated on before a SAT query.
const RANDOM_WORDS: usize = 64;

/// Limits of a SAT query about two channels.
const QUERY: Limits = Limits { conflicts: 100_000, ..Limits::NONE };

impl Classes {
    /// Returns the classes of the initial state. Beyond a boundary of zeros all channels are 0, so no channel is
    /// constant 1 there.
    fn new(automaton: &Automaton, start: &[Start]) -> Classes {
        let mut classes = Classes { class: vec![], not: vec![], len: 2 };
        for channel in 0..automaton.channels {
            let start = start.get(channel).copied().unwrap_or_default();
            let (class, not) = match start {
                Start::Zero => (0, false),
                Start::One if automaton.boundary == Boundary::Torus => (0, true),
                Start::Alike => (1, false),
                Start::Free | Start::One => {
                    classes.len += 1;
                    (classes.len - 1, false)
                }
            };
            classes.class.push(class);
            classes.not.push(not);
        }
        classes
    }

    /// Returns the first channel of each class, its representative.
    fn representatives(&self) -> Vec<Option<usize>> {
        let mut representatives = vec![None; self.len];
        for (channel, &class) in self.class.iter().enumerate().rev() {
            representatives[class] = Some(channel);
        }
        representatives
    }

    /// Returns the invariant of each channel, if it has one.
    fn known(&self) -> Vec<Option<Known>> {
        let representatives = self.representatives();
        let of = |channel: usize| match (self.class[channel], representatives[self.class[channel]]) {
            (0, _) => Some(if self.not[channel] { Known::One } else { Known::Zero }),
            (_, Some(first)) if first != channel && self.not[first] == self.not[channel] => {
                Some(Known::Same(first))
            }
            (_, Some(first)) if first != channel => Some(Known::Opposite(first)),
            _ => None,
        };
        (0..self.class.len()).map(of).collect()
    }

    /// Refines the classes until they are inductive and returns the proved invariants.
    fn prove(mut self, automaton: &Automaton, stop: &Stop<'_>) -> Result<Vec<Option<Known>>, Stopped> {
        let mut random = Random(3);
        loop {
            let known = self.known();
            if known.iter().all(Option::is_none) {
                return Ok(known);
            }
            let xag = assume(&automaton.circuit, &known).without_dead_gates();
            let mut values = Vec::new();
            let mut is_split = false;
            for _ in 0..RANDOM_WORDS {
                stop.check()?;
                let inputs: Vec<u64> = (0..xag.inputs()).map(|_| random.word()).collect();
                xag.eval_words(&inputs, &mut values);
                is_split |= self.split(&xag, &values);
            }
            if !is_split && !self.refute(&xag, &mut values, stop)? {
                return Ok(known);
            }
        }
    }

    /// Splits off channels whose simulated next states differ from those of their class. Returns whether there are any.
    fn split(&mut self, xag: &Xag, values: &[u64]) -> bool {
        let representatives = self.representatives();
        let word = |classes: &Classes, channel: usize| {
            let output = xag.outputs()[channel];
            values[output.node()] ^ output.mask() ^ u64::from(classes.not[channel]).wrapping_neg()
        };
        let mut new_classes: FxHashMap<(usize, u64), usize> = FxHashMap::default();
        let mut moves = Vec::new();
        for channel in 0..self.class.len() {
            let class = self.class[channel];
            let expected = match representatives[class] {
                Some(first) if class > 0 => word(self, first),
                _ => 0,
            };
            let own = word(self, channel);
            if own != expected {
                let next = self.len + new_classes.len();
                moves.push((channel, *new_classes.entry((class, own)).or_insert(next)));
            }
        }
        self.len += new_classes.len();
        for &(channel, class) in &moves {
            self.class[channel] = class;
        }
        !moves.is_empty()
    }

    /// Queries the SAT solver until a candidate is not proved, and splits it off. Returns whether there was one.
    fn refute(&mut self, xag: &Xag, values: &mut Vec<u64>, stop: &Stop<'_>) -> Result<bool, Stopped> {
        let representatives = self.representatives();
        let literal =
            |classes: &Classes, channel: usize| xag.outputs()[channel].invert_if(classes.not[channel]);
        for channel in 0..self.class.len() {
            let class = self.class[channel];
            let expected = match representatives[class] {
                Some(first) if class > 0 => literal(self, first),
                _ if class == 0 => Literal::FALSE,
                _ => continue,
            };
            let is_split = match sat::equal(xag, literal(self, channel), expected, QUERY, stop) {
                Answer::Equal => continue,
                Answer::Unknown => {
                    stop.check()?;
                    false
                }
                Answer::Different(pattern) => {
                    let mut inputs = vec![0; xag.inputs()];
                    for (input, bit) in pattern {
                        inputs[input] = u64::from(bit).wrapping_neg();
                    }
                    xag.eval_words(&inputs, values);
                    self.split(xag, values)
                }
            };
            if !is_split {
                self.class[channel] = self.len;
                self.len += 1;
            }
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use crate::grid::Grid;
    use crate::naive::naive_step;
    use crate::prove::{Verdict, equivalent_automata};
    use proptest::prelude::*;

    fn options(start: Vec<Start>) -> Options {
        Options { effort: Effort::Fast, start, ..Options::default() }
    }

    #[test]
    fn a_minimization_ends_at_the_poll_that_stops_it() {
        let automaton = arbitrary::large(4, 300);
        let options = options(vec![Start::Alike; 4]);
        let run = |stop: &Stop<'_>| minimize_automaton_until(&automaton, 1, &options, stop, &|_, _| {});
        let never = Stop::never();
        assert!(run(&never).is_ok());
        for poll in (1..=never.polls()).step_by(never.polls() as usize / 50) {
            let stop = Stop::at_poll(poll);
            assert_eq!(run(&stop), Err(AutomataError::Stopped(Stopped)));
            assert!(stop.polls() <= poll + 1, "{} polls after {poll}", stop.polls());
        }
    }

    #[test]
    fn unobservable_channels_are_removed() {
        // Channel 0 reads 2, 2 reads itself, and 1 reads 0, but no channel reads 1.
        let circuit = Circuit::new(27, vec![], vec![18, 0, 22]).unwrap();
        let automaton = Automaton::new(3, Boundary::Zeros, circuit).unwrap();
        let small = minimize_automaton(&automaton, 1, &options(vec![])).unwrap();
        assert_eq!((small.automaton.channels, &small.map.channels[..]), (2, &[0, 2][..]));
        assert_eq!(small.automaton.circuit.outputs(), [9, 13]);
    }

    #[test]
    fn equal_channels_are_kept_if_the_initial_state_is_free() {
        // Channel 0 is the XOR of two channels with the same rule, which may differ in the initial state only.
        let circuit = Circuit::new(27, vec![Node::new(Gate::XOR, 13, 22)], vec![27, 12, 12]).unwrap();
        let automaton = Automaton::new(3, Boundary::Zeros, circuit).unwrap();
        let free = minimize_automaton(&automaton, 1, &options(vec![])).unwrap();
        assert_eq!((free.automaton.channels, free.statistics.gates_after), (3, 1));
        let alike = minimize_automaton(&automaton, 1, &options(vec![Start::Alike; 3])).unwrap();
        assert_eq!((alike.automaton.channels, alike.statistics.gates_after), (1, 0));
        let proof = equivalent_automata(&automaton, &alike.automaton, 1, &alike.map);
        assert_eq!(proof, Ok(Verdict::Equal));
    }

    #[test]
    fn a_channel_that_stays_0_is_proved_constant() {
        // Channel 1 becomes 1 only next to a 1. Channel 0 copies it.
        let gates = vec![Node::new(Gate::OR, 9, 10), Node::new(Gate::AND, 18, 4)];
        let circuit = Circuit::new(18, gates, vec![13, 19]).unwrap();
        let automaton = Automaton::new(2, Boundary::Torus, circuit).unwrap();
        let small = minimize_automaton(&automaton, 1, &options(vec![Start::Free, Start::Zero])).unwrap();
        assert_eq!(small.map.known, [None, Some(Known::Zero)]);
        assert_eq!((small.automaton.channels, small.statistics.gates_after), (1, 0));
    }

    fn start() -> impl Strategy<Value = Start> {
        prop_oneof![Just(Start::Free), Just(Start::Zero), Just(Start::One), Just(Start::Alike)]
    }

    /// Steps both automata from the same initial state and compares channel 0.
    fn assert_same_rollout(automaton: &Automaton, small: &MinimizedAutomaton, mut grid: Grid) {
        let channels = small.automaton.channels;
        let mut smaller = Grid::new(grid.samples(), grid.height(), grid.width(), channels).unwrap();
        for (place, &channel) in small.map.channels.iter().enumerate() {
            smaller.plane_mut(place).copy_from_slice(grid.plane(channel));
        }
        for _ in 0..4 {
            grid = naive_step(automaton, &grid).unwrap();
            smaller = naive_step(&small.automaton, &smaller).unwrap();
            assert_eq!(grid.plane(0), smaller.plane(0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn minimized_automata_are_proved_equivalent(
            automaton in arbitrary::automaton(),
            observed in 1usize..4,
            start in prop::collection::vec(start(), 0..5),
        ) {
            let small = minimize_automaton(&automaton, observed, &options(start)).unwrap();
            let proof = equivalent_automata(&automaton, &small.automaton, observed, &small.map);
            prop_assert_eq!(proof, Ok(Verdict::Equal));
            prop_assert!(small.holds_at_start());
        }

        #[test]
        fn observed_channels_are_equal_for_every_initial_state_that_is_allowed(
            (automaton, mut grid, _) in arbitrary::situation(),
            start in prop::collection::vec(start(), 4),
        ) {
            let small = minimize_automaton(&automaton, 1, &options(start.clone())).unwrap();
            let tail = grid.tail_mask();
            let alike = grid.plane(0).to_vec();
            for (channel, start) in start.iter().enumerate().take(automaton.channels) {
                let words = grid.words_per_sample();
                let plane = grid.plane_mut(channel);
                match start {
                    Start::Free => {}
                    Start::Zero => plane.fill(0),
                    Start::One => {
                        plane.fill(u64::MAX);
                        plane.chunks_exact_mut(words).for_each(|sample| sample[words - 1] &= tail);
                    }
                    Start::Alike => plane.copy_from_slice(&alike),
                }
            }
            assert_same_rollout(&automaton, &small, grid);
        }

        #[test]
        fn observed_channels_are_equal_for_every_initial_state((automaton, grid, _) in arbitrary::situation()) {
            let small = minimize_automaton(&automaton, 1, &options(vec![])).unwrap();
            assert_same_rollout(&automaton, &small, grid);
        }
    }
}
