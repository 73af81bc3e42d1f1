//! Minimising automata: fewer gates, and fewer channels where nobody can see the difference.
//!
//! A channel that never reaches an observed one, in this step or a later one, is removed. That is true for
//! every start state. If something is said about the start, channels can also turn out to be constant or equal
//! to others in every state that can be reached; the candidates are proved by induction (van Eijk's method):
//!
//! ```text
//! classes: channels that are equal at the start, one class for those that are constant
//! repeat: assume that the members of each class are equal in all nine cells of a patch
//!         random patches, then the solver: members whose new bits differ leave their class
//! until no class changes
//! ```

use super::{Minimized, Options, Start, minimize};
use crate::automaton::{Automaton, Boundary, CENTRE, NEIGHBOURS};
use crate::circuit::{Circuit, CircuitError};
use crate::formats::names::{self, Ports};
use crate::network::{Literal, Network};
use crate::prove::automaton::{AutomataError, Known, StateMap};
use crate::prove::sat::{self, Answer, Bounds};
use crate::prove::sweep::Random;
use rustc_hash::FxHashMap;

/// A minimised automaton and how its channels correspond to those of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimizedAutomaton {
    /// The automaton. Its first channels are the observed ones.
    pub automaton: Automaton,
    /// Which original channel each channel stands for, and what is known about the others. It holds for every
    /// start state if no assumption about the start was given.
    pub map: StateMap,
    /// The assumptions that `map.known` rests on; empty if there are none.
    pub start: Vec<Start>,
    /// What the passes did to the circuit.
    pub statistics: super::Statistics,
}

/// An automaton that shows the same in its first `observed` channels, in every step from every start state (that
/// `options.start` allows), with fewer gates and channels.
///
/// [`crate::prove::equivalent_automata`] proves the result.
pub fn minimize_automaton(
    automaton: &Automaton,
    observed: usize,
    options: &Options,
) -> Result<MinimizedAutomaton, AutomataError> {
    automaton.check()?;
    let observed = observed.clamp(1, automaton.channels);
    let known = Classes::new(automaton, &options.start).settle(automaton);
    let assumed = substitute(&automaton.circuit, &known);
    let Minimized { circuit, .. } = minimize(&keep_live(&assumed, observed), &options.fast());
    let channels = live_channels(&circuit, observed);
    let projected = project(&circuit, &channels)?;
    let Minimized { circuit, mut statistics } = minimize(&projected, options);
    statistics.gates_before = super::gates(&automaton.circuit);
    statistics.depth_before = automaton.circuit.depth();
    let automaton = Automaton::new(channels.len(), automaton.boundary, circuit)?;
    let map = StateMap { channels, known };
    Ok(MinimizedAutomaton { automaton, map, start: options.start.clone(), statistics })
}

/// The automaton without the channels that never reach an observed one, in this step or a later one. Its gates are those
/// of the original that are left.
pub fn observed_part(automaton: &Automaton, observed: usize) -> Result<Automaton, AutomataError> {
    automaton.check()?;
    let observed = observed.clamp(1, automaton.channels);
    let channels = live_channels(&automaton.circuit, observed);
    let circuit = project(&automaton.circuit, &channels)?;
    Ok(Automaton::new(channels.len(), automaton.boundary, circuit)?)
}

/// The circuit with what is known in the place of the channels that it is known about.
fn substitute(circuit: &Circuit, known: &[Option<Known>]) -> Circuit {
    let network = assume(circuit, known);
    network.to_circuit(circuit)
}

/// The network of a circuit, with what is known about its inputs.
fn assume(circuit: &Circuit, known: &[Option<Known>]) -> Network {
    let mut network = Network::new(circuit.inputs());
    let place = |channel: usize, neighbour: usize| Literal::input(channel * NEIGHBOURS + neighbour);
    let literal = |input: usize| {
        let (channel, neighbour) = (input / NEIGHBOURS, input % NEIGHBOURS);
        match known[channel] {
            None => place(channel, neighbour),
            Some(Known::Zero) => Literal::FALSE,
            Some(Known::One) => Literal::TRUE,
            Some(Known::Same(other)) => place(other, neighbour),
            Some(Known::Opposite(other)) => place(other, neighbour).not(),
        }
    };
    let outputs = network.add_on(circuit, (0..circuit.inputs()).map(literal).collect());
    network.set_outputs(outputs);
    network
}

/// The circuit with the outputs of channels that never reach an observed one set to what they were.
fn keep_live(circuit: &Circuit, observed: usize) -> Circuit {
    let live = crate::cone::Cone::new(&circuit.simplify(), observed).live;
    let keep = |(channel, (&output, live)): (usize, (&u32, bool))| {
        if live { output } else { (channel * NEIGHBOURS + CENTRE) as u32 }
    };
    let outputs = circuit.outputs().iter().zip(live).enumerate().map(keep).collect();
    circuit.with_gates(circuit.nodes().to_vec(), outputs)
}

/// The observed channels and those that they depend on through time.
fn live_channels(circuit: &Circuit, observed: usize) -> Vec<usize> {
    let live = crate::cone::Cone::new(&circuit.simplify(), observed).live;
    (0..live.len()).filter(|&channel| live[channel]).collect()
}

/// The circuit on the patches of some channels, which depend on no other channel.
fn project(circuit: &Circuit, channels: &[usize]) -> Result<Circuit, CircuitError> {
    let mut network = Network::new(channels.len() * NEIGHBOURS);
    let mut inputs = vec![Literal::FALSE; circuit.inputs()];
    for (place, &channel) in channels.iter().enumerate() {
        for neighbour in 0..NEIGHBOURS {
            inputs[channel * NEIGHBOURS + neighbour] = Literal::input(place * NEIGHBOURS + neighbour);
        }
    }
    let outputs = network.add_on(circuit, inputs);
    network.set_outputs(channels.iter().map(|&channel| outputs[channel]).collect());
    let names = port_names(circuit, channels);
    network.without_dead_gates().to_named_circuit(names.inputs, names.outputs)
}

/// The names of the ports of some channels. Where channels are missing, the others keep the names they would have had.
fn port_names(circuit: &Circuit, channels: &[usize]) -> Ports {
    let all = if channels.len() * NEIGHBOURS == circuit.inputs() {
        Ports { inputs: circuit.input_names().to_vec(), outputs: circuit.output_names().to_vec() }
    } else {
        names::cell_ports(circuit)
    };
    let patches = channels.iter().flat_map(|&c| (0..NEIGHBOURS).map(move |n| c * NEIGHBOURS + n));
    Ports {
        inputs: patches.filter_map(|input| all.inputs.get(input).cloned()).collect(),
        outputs: channels.iter().filter_map(|&channel| all.outputs.get(channel).cloned()).collect(),
    }
}

impl MinimizedAutomaton {
    /// Whether anything is assumed about the first state.
    pub fn assumes_start(&self) -> bool {
        self.map.known.iter().any(Option::is_some)
    }

    /// Whether what is known holds in every first state that the assumptions allow: where the induction begins.
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

/// Channels that may be equal or constant in every state.
struct Classes {
    /// The class of each channel; class 0 is that of the constants.
    class: Vec<usize>,
    /// Whether each channel is the opposite of its class.
    not: Vec<bool>,
    len: usize,
}

/// Words of random patches that candidates are tried on before the solver is asked.
const TRIALS: usize = 64;

impl Classes {
    /// What is equal at the start. Cells beyond an edge of zeros are 0 in every channel, so nothing is 1 there.
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

    /// The first channel of each class.
    fn firsts(&self) -> Vec<Option<usize>> {
        let mut firsts = vec![None; self.len];
        for (channel, &class) in self.class.iter().enumerate().rev() {
            firsts[class] = Some(channel);
        }
        firsts
    }

    /// What the classes say about each channel.
    fn known(&self) -> Vec<Option<Known>> {
        let firsts = self.firsts();
        let of = |channel: usize| match (self.class[channel], firsts[self.class[channel]]) {
            (0, _) => Some(if self.not[channel] { Known::One } else { Known::Zero }),
            (_, Some(first)) if first != channel && self.not[first] == self.not[channel] => {
                Some(Known::Same(first))
            }
            (_, Some(first)) if first != channel => Some(Known::Opposite(first)),
            _ => None,
        };
        (0..self.class.len()).map(of).collect()
    }

    /// Refines the classes until they are proved, and says what is known then.
    fn settle(mut self, automaton: &Automaton) -> Vec<Option<Known>> {
        let mut random = Random(3);
        loop {
            let known = self.known();
            if known.iter().all(Option::is_none) {
                return known;
            }
            let network = assume(&automaton.circuit, &known).without_dead_gates();
            let mut values = Vec::new();
            let mut is_split = false;
            for _ in 0..TRIALS {
                let inputs: Vec<u64> = (0..network.inputs()).map(|_| random.word()).collect();
                network.eval_words(&inputs, &mut values);
                is_split |= self.split(&network, &values);
            }
            if !is_split && !self.ask(&network, &mut values) {
                return known;
            }
        }
    }

    /// Parts channels whose new bits differ from those of their class. Returns whether there are any.
    fn split(&mut self, network: &Network, values: &[u64]) -> bool {
        let firsts = self.firsts();
        let word = |classes: &Classes, channel: usize| {
            let output = network.outputs()[channel];
            values[output.vertex()] ^ output.mask() ^ u64::from(classes.not[channel]).wrapping_neg()
        };
        let mut parted: FxHashMap<(usize, u64), usize> = FxHashMap::default();
        let mut moves = Vec::new();
        for channel in 0..self.class.len() {
            let class = self.class[channel];
            let expected = match firsts[class] {
                Some(first) if class > 0 => word(self, first),
                _ => 0,
            };
            let own = word(self, channel);
            if own != expected {
                let next = self.len + parted.len();
                moves.push((channel, *parted.entry((class, own)).or_insert(next)));
            }
        }
        self.len += parted.len();
        for &(channel, class) in &moves {
            self.class[channel] = class;
        }
        !moves.is_empty()
    }

    /// Asks the solver about every candidate; parts those that differ. Returns whether there are any.
    fn ask(&mut self, network: &Network, values: &mut Vec<u64>) -> bool {
        let firsts = self.firsts();
        let literal =
            |classes: &Classes, channel: usize| network.outputs()[channel].invert_if(classes.not[channel]);
        for channel in 0..self.class.len() {
            let class = self.class[channel];
            let expected = match firsts[class] {
                Some(first) if class > 0 => literal(self, first),
                _ if class == 0 => Literal::FALSE,
                _ => continue,
            };
            match sat::equal(network, literal(self, channel), expected, ASK) {
                Answer::Equal => {}
                Answer::Different(pattern) => {
                    let mut inputs = vec![0; network.inputs()];
                    for (input, bit) in pattern {
                        inputs[input] = u64::from(bit).wrapping_neg();
                    }
                    network.eval_words(&inputs, values);
                    if !self.split(network, values) {
                        self.class[channel] = self.len;
                        self.len += 1;
                    }
                    return true;
                }
                Answer::Unknown => {
                    self.class[channel] = self.len;
                    self.len += 1;
                    return true;
                }
            }
        }
        false
    }
}

/// Bounds of one question about two channels.
const ASK: Bounds = Bounds { conflicts: 100_000, ..Bounds::NONE };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use crate::minimize::Effort;
    use crate::naive::naive_step;
    use crate::prove::{Verdict, equivalent_automata};
    use proptest::prelude::*;

    fn options(start: Vec<Start>) -> Options {
        Options { effort: Effort::Fast, start }
    }

    #[test]
    fn dead_channels_are_removed() {
        // 0 reads 2, 2 reads itself; 1 reads 0, but nobody reads 1.
        let circuit = Circuit::new(27, vec![], vec![18, 0, 22]).unwrap();
        let automaton = Automaton::new(3, Boundary::Zeros, circuit).unwrap();
        let small = minimize_automaton(&automaton, 1, &options(vec![])).unwrap();
        assert_eq!((small.automaton.channels, &small.map.channels[..]), (2, &[0, 2][..]));
        assert_eq!(small.automaton.circuit.outputs(), [9, 13]);
    }

    #[test]
    fn equal_channels_stay_if_the_start_is_free() {
        // Channel 0 is the XOR of two channels with the same rule: 0 after one step, but not in the first.
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
    fn a_channel_that_is_never_1_is_known() {
        // Channel 1 becomes 1 only next to a 1; channel 0 shows it.
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn results_are_proved(
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
        fn observed_channels_show_the_same_from_every_start_that_was_allowed(
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
            let (samples, height, width) = (grid.samples(), grid.height(), grid.width());
            let mut smaller = crate::Grid::new(samples, height, width, small.automaton.channels).unwrap();
            for (place, &channel) in small.map.channels.iter().enumerate() {
                smaller.plane_mut(place).copy_from_slice(grid.plane(channel));
            }
            for _ in 0..4 {
                grid = naive_step(&automaton, &grid).unwrap();
                smaller = naive_step(&small.automaton, &smaller).unwrap();
                prop_assert_eq!(grid.plane(0), smaller.plane(0));
            }
        }

        #[test]
        fn observed_channels_show_the_same_from_any_start((automaton, grid, _) in arbitrary::situation()) {
            let small = minimize_automaton(&automaton, 1, &options(vec![])).unwrap();
            let (samples, height, width) = (grid.samples(), grid.height(), grid.width());
            let channels = small.automaton.channels;
            let mut smaller = crate::Grid::new(samples, height, width, channels).unwrap();
            for (place, &channel) in small.map.channels.iter().enumerate() {
                smaller.plane_mut(place).copy_from_slice(grid.plane(channel));
            }
            let mut grid = grid;
            for _ in 0..3 {
                grid = naive_step(&automaton, &grid).unwrap();
                smaller = naive_step(&small.automaton, &smaller).unwrap();
                prop_assert_eq!(grid.plane(0), smaller.plane(0));
            }
        }
    }
}
