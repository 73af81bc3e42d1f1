//! Minimising: the same function with fewer two-input gates.
//!
//! The cost of a circuit is its number of two-input gates; inverters are absorbed into gates and are free, and
//! an XOR costs as much as an AND. The passes work on a network of ANDs and XORs with free inverters, in which
//! constants, wires, inverters and equal gates have disappeared. Each returns one that is not larger, and they
//! are repeated until nothing improves.
//!
//! | file | what is in it |
//! |---|---|
//! | `rewrite` | vertices built anew from the leaves of small cuts |
//! | `cuts` | cuts of up to four leaves, with their functions |
//! | `chains` | the smallest circuits of all functions of four inputs |
//! | `editor` | a network that is changed in place |
//! | `window` | resubstitution in windows of a large network |
//! | `component` | parts that share no gate, searched one by one where they have few inputs |
//! | `search` | resubstitution in a small network: descent and random walks |
//! | `dense` | small networks with truth tables: what can replace a vertex, with all don't-cares |
//! | `decompose` | small functions built anew from their truth tables |
//! | `table` | truth tables |
//! | `automaton` | automata: channels that nobody can see, or that are known |
//!
//! SAT sweeping, which merges equal and opposite vertices, is shared with [`crate::prove`]. Every pass is
//! deterministic: the same circuit and options give the same result.

mod automaton;
mod chains;
mod component;
mod cuts;
mod decompose;
mod dense;
mod editor;
mod rewrite;
mod search;
mod table;
mod window;

pub use automaton::{MinimizedAutomaton, minimize_automaton, observed_part};

use crate::circuit::Circuit;
use crate::network::Network;
use crate::prove::sat::Bounds;
use crate::prove::sweep::sweep;

/// How much work a minimisation may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Effort {
    /// A few passes of cut rewriting: well under a minute for a million gates.
    Fast,
    /// All passes until nothing improves.
    #[default]
    Normal,
    /// And long random walks.
    High,
}

/// What is known about a channel of an automaton in the first state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Start {
    /// Nothing.
    #[default]
    Free,
    /// It is 0 in all cells.
    Zero,
    /// It is 1 in all cells.
    One,
    /// In each cell it equals the other channels that are alike, as in a grid that grows from one cell that has
    /// all bits set.
    Alike,
}

/// What a minimisation is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// How much work it may be.
    pub effort: Effort,
    /// For automata: what is known about the first state, by channel. Channels behind the end of the list are
    /// free, so an empty list gives a result for every start state.
    pub start: Vec<Start>,
}

impl Options {
    fn fast(&self) -> Options {
        Options { effort: Effort::Fast, start: self.start.clone() }
    }
}

/// What a minimisation did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The two-input gates before, see [`gates`].
    pub gates_before: usize,
    /// The two-input gates after.
    pub gates_after: usize,
    /// The depth before.
    pub depth_before: usize,
    /// The depth after.
    pub depth_after: usize,
    /// The passes that saved gates, with the gates that were left after each.
    pub passes: Vec<(&'static str, usize)>,
}

/// A minimised circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimized {
    /// The circuit, with the ports of the original.
    pub circuit: Circuit,
    /// What the passes did.
    pub statistics: Statistics,
}

/// The number of two-input gates of a circuit: gates that an output reads, without wires, inverters and
/// constants, equal gates counted once.
pub fn gates(circuit: &Circuit) -> usize {
    Network::of(circuit).without_dead_gates().gates()
}

/// A circuit of the same function with fewer gates, or as many. Names of ports stay.
///
/// ```
/// use gatework_logic::minimize::{Options, minimize};
/// use gatework_logic::{Circuit, Gate, Node};
///
/// // (a & b) | (a & !b) is a.
/// let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::A_AND_NOT_B, 0, 1), Node::new(Gate::OR, 2, 3)];
/// let small = minimize(&Circuit::new(2, gates, vec![4])?, &Options::default()).circuit;
/// assert_eq!((small.nodes().len(), small.outputs()), (0, &[0][..]));
/// # Ok::<(), gatework_logic::CircuitError>(())
/// ```
#[must_use]
pub fn minimize(circuit: &Circuit, options: &Options) -> Minimized {
    let mut work = Work::new(circuit);
    // The search of small networks finds what the passes for large ones do, and more.
    let mut is_searched = false;
    if options.effort > Effort::Fast && work.network.gates() <= LARGE {
        work.repeat(Effort::Fast);
        is_searched =
            work.network.inputs() <= dense::MAX_INPUTS && work.network.gates() <= component::MAX_GATES;
        work.search_components(options.effort);
    }
    if !is_searched {
        work.repeat(options.effort);
    }
    let minimized = work.network.to_circuit(circuit);
    work.statistics.gates_after = work.network.gates();
    work.statistics.depth_after = minimized.depth();
    Minimized { circuit: minimized, statistics: work.statistics }
}

/// How far a sweep looks to find equal vertices.
const SWEEP: Bounds = Bounds { gates: 300, conflicts: 100, deadline: None };
/// Rounds without success after which nothing more is expected.
const PATIENCE: usize = 3;
/// In networks of more gates, windows are searched less thoroughly.
const LARGE: usize = 20_000;
/// In networks of more gates, parts of few inputs are not searched by random walks at normal effort.
const FEW: usize = 2_000;

/// A network on its way through the passes.
struct Work {
    network: Network,
    statistics: Statistics,
}

impl Work {
    fn new(circuit: &Circuit) -> Work {
        let network = Network::of(circuit).without_dead_gates();
        let gates = network.gates();
        let statistics = Statistics {
            gates_before: gates,
            gates_after: gates,
            depth_before: circuit.depth(),
            depth_after: 0,
            passes: Vec::new(),
        };
        Work { network, statistics }
    }

    /// Takes the result of a pass unless it is larger.
    fn take(&mut self, pass: &'static str, network: Network) {
        if network.gates() < self.network.gates() {
            self.statistics.passes.push((pass, network.gates()));
        }
        if network.gates() <= self.network.gates() {
            self.network = network;
        }
    }

    fn rewrite(&mut self, turn: usize) {
        self.take("rewrite", rewrite::rewrite(&self.network, false, turn));
    }

    /// Rounds of all passes. A large network gets fewer: what they find is mostly found by the first.
    fn repeat(&mut self, effort: Effort) {
        let is_large = self.network.gates() > LARGE;
        let (rounds, patience) = match (effort, is_large) {
            (Effort::Fast, _) | (Effort::Normal, true) => (2, 1),
            (Effort::Normal, false) => (20, PATIENCE),
            (Effort::High, true) => (10, 1),
            (Effort::High, false) => (100, PATIENCE),
        };
        let mut fruitless = 0;
        for round in 0..rounds {
            let before = self.network.gates();
            self.rewrite(round);
            if round == 0 || effort > Effort::Fast && !is_large {
                self.take("sweep", sweep(&self.network, SWEEP).network.without_dead_gates());
            }
            if effort > Effort::Fast {
                self.take("rewrite", rewrite::rewrite(&self.network, true, round));
                self.rewrite(round);
                self.take(
                    "resubstitute",
                    window::resubstitute(&self.network, self.window(effort, round), round),
                );
            }
            fruitless = if self.network.gates() < before { 0 } else { fruitless + 1 };
            if fruitless == patience || self.network.gates() == 0 {
                break;
            }
        }
    }

    /// The windows of a round.
    fn window(&self, effort: Effort, round: usize) -> window::Size {
        let depth = if self.network.gates() > LARGE { 1 } else { 2 };
        let patience = if effort == Effort::High { 200 } else { 0 };
        window::Size { leaves: 6 + 2 * (round % 3), gates: 24 + 8 * (round % 3), depth, patience }
    }

    /// Searches the parts that have few inputs. With very many of them there is no time for random walks.
    fn search_components(&mut self, effort: Effort) {
        let (walks, patience) = match effort {
            Effort::High => (8, 5000),
            _ if self.network.gates() > FEW => (0, 0),
            _ => (2, 300),
        };
        let thoroughness = component::Thoroughness { walks, patience };
        self.take("search", component::search_components(&self.network, thoroughness));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::network::Literal;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    fn with_effort(circuit: &Circuit, effort: Effort) -> Minimized {
        minimize(circuit, &Options { effort, ..Options::default() })
    }

    /// Life as a sum of all patches that give a living cell: hundreds of gates without any adder.
    fn life_from_its_patches() -> Circuit {
        let mut network = Network::new(9);
        let mut alive = Literal::FALSE;
        for patch in 0..512u32 {
            let count = (patch & !16).count_ones();
            if count == 3 || count == 2 && patch & 16 != 0 {
                let literal = |input: usize| Literal::input(input).invert_if(patch >> input & 1 == 0);
                let this = (0..9).fold(Literal::TRUE, |all, input| network.and(all, literal(input)));
                alive = network.or(alive, this);
            }
        }
        network.set_outputs(vec![alive]);
        network.to_circuit(&Circuit::new(9, vec![], vec![0]).unwrap())
    }

    #[test]
    fn life_needs_at_most_26_gates_from_any_circuit() {
        let patches = life_from_its_patches();
        assert!(gates(&patches) > 300);
        for circuit in [patches, crate::rules::life(Boundary::Torus).circuit] {
            let small = with_effort(&circuit, Effort::Normal);
            assert!(small.statistics.gates_after <= 26, "{} gates", small.statistics.gates_after);
            assert_eq!(equivalent(&circuit, &small.circuit), Ok(Verdict::Equal));
        }
    }

    #[test]
    fn names_and_empty_circuits_stay() {
        let circuit = Circuit::new(1, vec![], vec![0]).unwrap();
        let named = circuit.with_names(vec!["in".into()], vec!["out".into()]).unwrap();
        assert_eq!(with_effort(&named, Effort::High).circuit, named);
        let nothing = Circuit::new(0, vec![], vec![]).unwrap();
        assert_eq!(with_effort(&nothing, Effort::High).circuit, nothing);
    }

    /// Gates on scattered earlier signals, so that little is equal.
    fn scattered(inputs: usize, gates: usize, outputs: usize) -> Circuit {
        let mut state = 7u64;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize % end) as u32
        };
        let mut nodes = Vec::new();
        for i in 0..gates {
            let gate = [crate::Gate::AND, crate::Gate::XOR, crate::Gate::OR][next(3) as usize];
            nodes.push(crate::Node::new(gate, next(inputs + i), next(inputs + i)));
        }
        let outputs = (0..outputs).map(|_| next(inputs + gates)).collect();
        Circuit::new(inputs, nodes, outputs).unwrap()
    }

    #[test]
    fn more_effort_is_never_worse_however_many_gates_have_few_inputs() {
        for (inputs, gates, outputs) in [(8, 25_000, 3), (12, 4000, 2000)] {
            let circuit = scattered(inputs, gates, outputs);
            let [fast, normal] = [Effort::Fast, Effort::Normal]
                .map(|effort| with_effort(&circuit, effort).statistics.gates_after);
            assert!(normal <= fast && fast < super::gates(&circuit), "{normal} {fast}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_function_stays_and_the_result_is_repeatable(
            circuit in prop_oneof![arbitrary::circuit(0..=8, 60), arbitrary::circuit(13..=60, 250)],
            effort in prop_oneof![Just(Effort::Fast), Just(Effort::Normal)],
        ) {
            let small = with_effort(&circuit, effort);
            prop_assert_eq!(equivalent(&circuit, &small.circuit), Ok(Verdict::Equal));
            prop_assert_eq!(small.statistics.gates_before, gates(&circuit));
            prop_assert_eq!(small.statistics.gates_after, gates(&small.circuit));
            prop_assert!(small.statistics.gates_after <= small.statistics.gates_before);
            prop_assert_eq!(&with_effort(&circuit, effort), &small);
            let again = with_effort(&small.circuit, effort);
            prop_assert!(again.statistics.gates_after <= small.statistics.gates_after);
        }
    }
}
