//! Logic minimisation: the same function with fewer two-input gates.
//!
//! The cost of a circuit is its number of two-input gates. Inverters are free because gates absorb them, and an XOR
//! costs as much as an AND. The passes work on a structurally hashed XOR-AND graph (XAG). Each pass returns an XAG that
//! is not larger, and the passes are repeated until nothing improves.
//!
//! | module | content |
//! |---|---|
//! | `rewrite` | cut rewriting |
//! | `cuts` | cut enumeration: 4-feasible cuts with their functions |
//! | `npn_library` | optimal chains of all functions of four inputs, by NPN class |
//! | `mutable_xag` | an XAG with in-place substitution and reference counts |
//! | `window` | resubstitution in windows of a large XAG |
//! | `components` | connected components, minimised one by one if they have few inputs |
//! | `local_search` | greedy descent and random walks by resubstitution |
//! | `resubstitution` | resubstitution with complete don't-cares, for XAGs with few inputs |
//! | `resynthesis` | functions with few inputs, rebuilt from their truth tables |
//! | `depth` | fewer gates on the longest path, at the cost of further gates |
//! | `automaton` | automata: channels that are unobservable, constant or redundant |
//!
//! Functional reduction (SAT sweeping) is shared with [`crate::prove`]. Every pass is deterministic: the same circuit
//! and options give the same result.

mod automaton;
mod classifier;
mod components;
mod cuts;
mod depth;
mod local_search;
mod mutable_xag;
mod npn_library;
mod resubstitution;
mod resynthesis;
mod rewrite;
mod samples;
mod window;

pub use automaton::{MinimizedAutomaton, cone_of_influence, minimize_automaton, minimize_automaton_until};

pub use classifier::{MinimizedClassifier, minimize_classifier_until};
pub use samples::{ReduceError, reduce_on_samples};

use crate::circuit::Circuit;
use crate::prove::sat::Limits;
use crate::prove::sweep::Sweeper;
use crate::prove::trace::Trace;
use crate::prove::{ProveError, Verdict, equivalent_by};
use crate::stop::{Stop, Stopped};
use crate::xag::{Xag, translate};

/// The effort of a minimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Effort {
    /// A few passes of cut rewriting and SAT sweeping: well under a minute for a million gates.
    Fast,
    /// All passes until nothing improves.
    #[default]
    Normal,
    /// All passes, with more rounds and long random walks.
    High,
}

/// An assumption about one channel of the initial state of an automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Start {
    /// No assumption.
    #[default]
    Free,
    /// The channel is 0 in all cells.
    Zero,
    /// The channel is 1 in all cells.
    One,
    /// In each cell the channel equals all other `Alike` channels, as in a grid with a single seed cell whose bits are
    /// all 1.
    Alike,
}

/// Options of a minimisation.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The effort.
    pub effort: Effort,
    /// The depth to reach at the cost of further gates, after all other passes. The result is the shallowest circuit that was
    /// found if that is deeper.
    pub depth: Option<usize>,
    /// For automata: assumptions about the initial state, by channel. Missing channels are free, so with an empty list
    /// the result is valid for every initial state.
    pub start: Vec<Start>,
}

/// Sizes before and after a minimisation.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The number of two-input gates before, see [`gates`].
    pub gates_before: usize,
    /// The number of two-input gates after.
    pub gates_after: usize,
    /// The depth before.
    pub depth_before: usize,
    /// The depth after.
    pub depth_after: usize,
    /// The passes that saved gates, each with the number of gates after it.
    pub passes: Vec<(&'static str, usize)>,
}

/// A minimised circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Minimized {
    /// The circuit, with the ports of the original.
    pub circuit: Circuit,
    /// Sizes before and after.
    pub statistics: Statistics,
    trace: Option<Trace>,
}

impl Minimized {
    /// Checks whether the circuit computes the same function as the original.
    ///
    /// The replacements that [`minimize_until`] has recorded are hints for the proof, which makes it fast for millions
    /// of gates. The proof does not rely on them: each is proved before it is used.
    ///
    /// ```
    /// use gatework_logic::minimize::{Options, minimize_until};
    /// use gatework_logic::{Circuit, Gate, Node, Stop, prove::Verdict};
    ///
    /// let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::A_AND_NOT_B, 0, 1), Node::new(Gate::OR, 2, 3)];
    /// let circuit = Circuit::new(2, gates, vec![4])?;
    /// let small = minimize_until(&circuit, &Options::default(), &Stop::never(), &|_, _| {})?;
    /// assert_eq!(small.prove(&circuit, &Stop::never())?, Verdict::Equal);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prove(&self, original: &Circuit, stop: &Stop<'_>) -> Result<Verdict, ProveError> {
        equivalent_by(original, &self.circuit, self.trace.as_ref(), stop)
    }

    /// Reduces the depth to this limit.
    fn with_depth(
        self,
        limit: usize,
        stop: &Stop<'_>,
        observer: &Observer<'_>,
    ) -> Result<Minimized, Stopped> {
        let mut optimizer = Optimizer::new(&self.circuit, stop, observer);
        (optimizer.statistics, optimizer.trace) = (self.statistics, self.trace);
        optimizer.reduce_depth(limit)?;
        Ok(optimizer.finish(&self.circuit))
    }

    #[cfg(test)]
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }
}

/// Returns the number of two-input gates of a circuit. Dead gates, wires, inverters and constants are not counted, and
/// structurally equal gates are counted once.
pub fn gates(circuit: &Circuit) -> usize {
    Xag::from_circuit(circuit).without_dead_gates().gates()
}

/// Returns a circuit of the same function and ports that has no more gates, and usually fewer. If a depth was asked for, it may
/// have more.
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
    let stop = Stop::never();
    let mut optimizer = Optimizer::new(circuit, &stop, &|_, _| {});
    // It is never stopped.
    let _ = optimizer.run(options);
    optimizer.finish(circuit)
}

/// A function that is called before each pass, with its name and the number of gates.
pub type Observer<'a> = dyn Fn(&'static str, usize) + 'a;

/// Minimises like [`minimize`], unless it is stopped, and records the replacements for [`Minimized::prove`], unless they
/// take too much memory. Calls `observer` before each pass.
pub fn minimize_until(
    circuit: &Circuit,
    options: &Options,
    stop: &Stop<'_>,
    observer: &Observer<'_>,
) -> Result<Minimized, Stopped> {
    let mut optimizer = Optimizer::new(circuit, stop, observer);
    optimizer.record(MAX_TRACE_NODES);
    optimizer.run(options)?;
    Ok(optimizer.finish(circuit))
}

/// Minimises like [`minimize_until`], but records nothing.
fn minimize_untraced(
    circuit: &Circuit,
    options: &Options,
    stop: &Stop<'_>,
    observer: &Observer<'_>,
) -> Result<Minimized, Stopped> {
    let mut optimizer = Optimizer::new(circuit, stop, observer);
    optimizer.run(options)?;
    Ok(optimizer.finish(circuit))
}

/// The maximum number of nodes of a trace, about 50 bytes each with their claims. A proof works without the trace.
const MAX_TRACE_NODES: usize = 1 << 24;

/// Limits of each SAT query of a sweep.
const SWEEP: Limits = Limits { gates: 300, conflicts: 100 };
/// The number of consecutive rounds without a gain that ends the repetition.
const PATIENCE: usize = 3;
/// Above this number of gates, fewer rounds are run and windows are searched with less effort.
const LARGE: usize = 20_000;
/// Above this number of gates, components are searched without random walks at normal effort.
const MAX_WALK_GATES: usize = 2_000;

/// The state of a minimisation between two passes.
struct Optimizer<'a> {
    xag: Xag,
    statistics: Statistics,
    trace: Option<Trace>,
    max_trace_nodes: usize,
    /// The depth that was asked for, once it has been reduced.
    depth: Option<usize>,
    stop: &'a Stop<'a>,
    observer: &'a Observer<'a>,
}

impl<'a> Optimizer<'a> {
    fn new(circuit: &Circuit, stop: &'a Stop<'a>, observer: &'a Observer<'a>) -> Optimizer<'a> {
        let xag = Xag::from_circuit(circuit).without_dead_gates();
        let gates = xag.gates();
        let statistics = Statistics {
            gates_before: gates,
            gates_after: gates,
            depth_before: circuit.depth(),
            depth_after: 0,
            passes: Vec::new(),
        };
        Optimizer { xag, statistics, trace: None, max_trace_nodes: 0, depth: None, stop, observer }
    }

    /// Records the replacements, as long as the trace has at most this number of nodes.
    fn record(&mut self, max_nodes: usize) {
        self.max_trace_nodes = max_nodes;
        self.trace = (self.xag.len() <= max_nodes).then(|| Trace::new(&self.xag));
    }

    /// Runs all passes, then reduces the depth if that was asked for.
    fn run(&mut self, options: &Options) -> Result<(), Stopped> {
        // The search of small XAGs finds all that the passes for large ones find.
        let mut is_searched = false;
        if options.effort > Effort::Fast && self.xag.gates() <= LARGE {
            self.repeat(Effort::Fast)?;
            is_searched =
                self.xag.inputs() <= resubstitution::MAX_INPUTS && self.xag.gates() <= components::MAX_GATES;
            self.minimize_components(options.effort)?;
        }
        if !is_searched {
            self.repeat(options.effort)?;
        }
        options.depth.map_or(Ok(()), |limit| self.reduce_depth(limit))
    }

    /// Reduces the depth. The result is then proved without hints.
    fn reduce_depth(&mut self, limit: usize) -> Result<(), Stopped> {
        self.depth = Some(limit);
        if depth::depth(&self.xag) > limit {
            (self.observer)("depth", self.xag.gates());
            self.xag = depth::reduce_depth(&self.xag, limit, self.stop)?;
            self.trace = None;
        }
        Ok(())
    }

    fn finish(mut self, ports: &Circuit) -> Minimized {
        let mut circuit = self.xag.to_circuit(ports);
        if let Some(limit) = self.depth {
            circuit = depth::without_late_inverters(&circuit, limit);
        }
        self.statistics.gates_after = self.xag.gates();
        self.statistics.depth_after = circuit.depth();
        Minimized { circuit, statistics: self.statistics, trace: self.trace }
    }

    /// Runs a pass and takes its result unless it is larger.
    fn pass(
        &mut self,
        pass: &'static str,
        run: impl FnOnce(&Xag, Option<&mut Trace>, &Stop<'_>) -> Result<Xag, Stopped>,
    ) -> Result<(), Stopped> {
        self.stop.check()?;
        (self.observer)(pass, self.xag.gates());
        let xag = run(&self.xag, self.trace.as_mut(), self.stop)?;
        if xag.gates() < self.xag.gates() {
            self.statistics.passes.push((pass, xag.gates()));
        }
        if xag.gates() <= self.xag.gates() {
            self.xag = xag;
            if let Some(trace) = &mut self.trace {
                trace.advance(&self.xag, self.stop)?;
            }
        }
        self.trace.take_if(|trace| trace.nodes() > self.max_trace_nodes);
        Ok(())
    }

    fn rewrite(&mut self, zero_gain: bool, round: usize) -> Result<(), Stopped> {
        self.pass("rewrite", |xag, trace, stop| rewrite::rewrite(xag, zero_gain, round, trace, stop))
    }

    /// Runs rounds of all passes. Large XAGs get fewer rounds, because the first ones save the most.
    fn repeat(&mut self, effort: Effort) -> Result<(), Stopped> {
        let is_large = self.xag.gates() > LARGE;
        let (rounds, patience) = match (effort, is_large) {
            (Effort::Fast, _) | (Effort::Normal, true) => (2, 1),
            (Effort::Normal, false) => (20, PATIENCE),
            (Effort::High, true) => (10, 1),
            (Effort::High, false) => (100, PATIENCE),
        };
        let mut failures = 0;
        for round in 0..rounds {
            let before = self.xag.gates();
            self.rewrite(false, round)?;
            if round == 0 || effort > Effort::Fast && !is_large {
                self.pass("sweep", sweep)?;
            }
            if effort > Effort::Fast {
                self.rewrite(true, round)?;
                self.rewrite(false, round)?;
                let options = self.window_options(effort, round);
                self.pass("resubstitute", |xag, trace, stop| {
                    window::resubstitute(xag, options, round, trace, stop)
                })?;
            }
            failures = if self.xag.gates() < before { 0 } else { failures + 1 };
            if failures == patience || self.xag.gates() == 0 {
                break;
            }
        }
        Ok(())
    }

    fn window_options(&self, effort: Effort, round: usize) -> window::WindowOptions {
        window::WindowOptions {
            max_leaves: 6 + 2 * (round % 3),
            max_gates: 24 + 8 * (round % 3),
            replacement_gates: if self.xag.gates() > LARGE { 1 } else { 2 },
            patience: if effort == Effort::High { 200 } else { 0 },
        }
    }

    fn minimize_components(&mut self, effort: Effort) -> Result<(), Stopped> {
        let (walks, patience) = match effort {
            Effort::High => (8, 5000),
            _ if self.xag.gates() > MAX_WALK_GATES => (0, 0),
            _ => (2, 300),
        };
        let budget = components::Budget { walks, patience };
        self.pass("search", |xag, trace, stop| components::minimize_components(xag, budget, trace, stop))
    }
}

/// Merges equal nodes.
fn sweep(xag: &Xag, trace: Option<&mut Trace>, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let Sweeper { xag: swept, reduced, .. } = Sweeper::run(xag, SWEEP, stop)?;
    if let Some(trace) = trace {
        let nodes = swept.gate_range().map(|index| swept.node(index));
        let literals = trace.add_nodes(swept.inputs(), nodes, stop)?;
        for (step, (&literal, &reduced)) in literals.iter().zip(&reduced).enumerate() {
            stop.check_at(step)?;
            trace.claim(literal, translate(reduced, &literals));
        }
    }
    Ok(swept.without_dead_gates())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::prove::{Verdict, equivalent};
    use crate::xag::Literal;
    use proptest::prelude::*;

    fn with_effort(circuit: &Circuit, effort: Effort) -> Minimized {
        minimize(circuit, &Options { effort, ..Options::default() })
    }

    /// Conway's Life as a sum of minterms: hundreds of gates without any adder.
    fn life_as_sum_of_minterms() -> Circuit {
        let mut xag = Xag::new(9);
        let mut alive = Literal::FALSE;
        for index in 0..512u32 {
            let count = (index & !16).count_ones();
            if count == 3 || count == 2 && index & 16 != 0 {
                let literal = |input: usize| Literal::input(input).invert_if(index >> input & 1 == 0);
                let minterm = (0..9).fold(Literal::TRUE, |all, input| xag.and(all, literal(input)));
                alive = xag.or(alive, minterm);
            }
        }
        xag.set_outputs(vec![alive]);
        xag.to_circuit(&Circuit::new(9, vec![], vec![0]).unwrap())
    }

    #[test]
    fn life_is_minimized_to_at_most_26_gates() {
        let minterms = life_as_sum_of_minterms();
        assert!(gates(&minterms) > 300);
        for circuit in [minterms, crate::rules::life(Boundary::Torus).circuit] {
            let small = with_effort(&circuit, Effort::Normal);
            assert!(small.statistics.gates_after <= 26, "{} gates", small.statistics.gates_after);
            assert_eq!(equivalent(&circuit, &small.circuit), Ok(Verdict::Equal));
        }
    }

    #[test]
    fn names_and_empty_circuits_are_preserved() {
        let circuit = Circuit::new(1, vec![], vec![0]).unwrap();
        let named = circuit.with_names(vec!["in".into()], vec!["out".into()]).unwrap();
        assert_eq!(with_effort(&named, Effort::High).circuit, named);
        let nothing = Circuit::new(0, vec![], vec![]).unwrap();
        assert_eq!(with_effort(&nothing, Effort::High).circuit, nothing);
    }

    #[test]
    fn an_output_that_is_needed_inverted_as_well_does_not_add_to_the_depth() {
        use crate::{Gate, Node};
        // y = a & b, z = !(a & b), and the same behind a chain of four ANDs.
        let nodes = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::NAND, 0, 1)];
        let flat = Circuit::new(2, nodes, vec![2, 3]).unwrap();
        let chain = (0..4u32).map(|i| Node::new(Gate::AND, if i == 0 { 0 } else { 4 + i }, i + 1));
        let nodes = chain.chain([Node::new(Gate::NOT_A, 8, 8)]).collect();
        let deep = Circuit::new(5, nodes, vec![8, 9]).unwrap();
        for (circuit, limit, gates) in [(flat, 1, 1), (deep, 3, 4)] {
            let small = minimize(&circuit, &Options { depth: Some(limit), ..Options::default() });
            assert_eq!((small.statistics.depth_after, small.statistics.gates_after), (limit, gates));
            assert_eq!(small.circuit.simplify().depth(), limit, "also in files");
            assert_eq!(small.prove(&circuit, &Stop::never()), Ok(Verdict::Equal));
        }
    }

    /// Returns a circuit of random gates on random earlier signals.
    fn random(inputs: usize, gates: usize, outputs: usize) -> Circuit {
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
    fn normal_effort_is_not_worse_than_fast_with_many_gates_on_few_inputs() {
        for (inputs, gates, outputs) in [(8, 25_000, 3), (12, 4000, 2000)] {
            let circuit = random(inputs, gates, outputs);
            let [fast, normal] = [Effort::Fast, Effort::Normal]
                .map(|effort| with_effort(&circuit, effort).statistics.gates_after);
            assert!(normal <= fast && fast < super::gates(&circuit), "{normal} {fast}");
        }
    }

    /// A pass that has begun: its name, the number of gates, and the number of polls before it.
    type Begun = (&'static str, usize, u64);

    /// Runs all passes and returns the result and the passes.
    fn observed(circuit: &Circuit, stop: &Stop<'_>) -> (Result<Minimized, Stopped>, Vec<Begun>) {
        let passes = std::cell::RefCell::new(Vec::new());
        let observer = |pass, gates| passes.borrow_mut().push((pass, gates, stop.polls()));
        let result = minimize_until(circuit, &Options::default(), stop, &observer);
        (result, passes.into_inner())
    }

    #[test]
    fn every_pass_polls_and_no_pass_follows_a_stop() {
        // Few inputs, for the search of components, and many, for the resubstitution in windows.
        for (inputs, gates, last) in [(10, 100, "search"), (40, 300, "resubstitute")] {
            let circuit = random(inputs, gates, 20);
            let never = Stop::never();
            let (result, passes) = observed(&circuit, &never);
            assert!(result.is_ok());
            assert_eq!(passes.last().map(|&(pass, ..)| pass), Some(last));
            let ends = passes.iter().skip(1).map(|&(.., polls)| polls).chain([never.polls()]);
            for (&(pass, gates, begin), end) in passes.iter().zip(ends) {
                // A component with many inputs is not searched.
                let expected =
                    if pass == "search" && inputs > resubstitution::MAX_INPUTS { 1 } else { gates };
                assert!(end - begin >= expected as u64, "{pass}: {} polls, {gates} gates", end - begin);
            }
            for poll in (1..=never.polls()).step_by(never.polls().div_ceil(50) as usize) {
                let stop = Stop::at_poll(poll);
                let (result, begun) = observed(&circuit, &stop);
                assert_eq!(result, Err(Stopped));
                assert!(stop.polls() <= poll + 1, "{} polls after {poll}", stop.polls());
                assert_eq!(begun[..], passes[..begun.len()]);
                assert!(begun.iter().all(|&(.., polls)| polls < poll), "a pass began after the stop");
            }
        }
    }

    #[test]
    fn a_trace_that_becomes_too_large_is_dropped_and_the_result_is_proved_without() {
        let circuit = random(40, 300, 20);
        let (stop, observer) = (Stop::never(), |_: &'static str, _: usize| {});
        let traced = |max_nodes: usize| {
            let mut optimizer = Optimizer::new(&circuit, &stop, &observer);
            optimizer.record(max_nodes);
            optimizer.run(&Options::default()).unwrap();
            optimizer.finish(&circuit)
        };
        let all = traced(usize::MAX);
        let nodes = all.trace().unwrap().nodes();
        assert_eq!(traced(nodes), all);
        let first = Xag::from_circuit(&circuit).without_dead_gates().len();
        assert!(first < nodes);
        for max_nodes in [0, first - 1, first, nodes - 1] {
            let dropped = traced(max_nodes);
            assert_eq!((dropped.trace(), &dropped.circuit), (None, &all.circuit), "{max_nodes}");
            assert_eq!(dropped.prove(&circuit, &stop), Ok(Verdict::Equal));
        }
        let untraced = minimize_untraced(&circuit, &Options::default(), &stop, &observer).unwrap();
        assert_eq!((untraced.trace(), &untraced.circuit), (None, &all.circuit));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn minimization_preserves_the_function_and_is_deterministic(
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
