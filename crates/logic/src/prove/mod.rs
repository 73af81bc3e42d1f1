//! Equivalence checking: proves that two circuits, or two automata, compute the same function.
//!
//! ```text
//! simulate both circuits on random inputs:   a difference is a counterexample
//! add both to one XAG:                       structural hashing merges equal gates on equal operands
//! hints of the minimiser, if there are any:  each is proved by itself; equal gates are merged
//! SAT sweeping:                              merges equal nodes, from the inputs on
//! each pair of outputs still different:      the SAT solver decides
//! ```
//!
//! Circuits with at most 14 inputs are simulated exhaustively instead.
//!
//! A proof relies on nothing but the two circuits: hints are proved before they are used. It shares the XAG and the
//! sweeping with the minimiser, but none of the passes that restructure a circuit. The simulation and the final check
//! of a counterexample evaluate the circuits themselves, so they would reveal an error in the conversion to an XAG.
//!
//! | module | content |
//! |---|---|
//! | `automaton` | sequential equivalence of automata, by induction over the steps |
//! | `sat` | SAT queries: whether two literals are equal |
//! | `sweep` | SAT sweeping |
//! | `trace` | the steps of a minimisation, as hints that are proved one by one |

pub(crate) mod automaton;
pub(crate) mod sat;
pub(crate) mod sweep;
pub(crate) mod trace;

pub use automaton::{
    AutomataError, Known, StateMap, equivalent_automata, equivalent_automata_until,
    equivalent_automata_within, miter_of_automata,
};

use crate::circuit::Circuit;
use crate::gate::Gate;
use crate::stop::{Stop, Stopped};
use crate::truth::input_word;
use crate::xag::{Literal, Xag};
use sat::{Answer, Limits};
use std::time::Duration;
use sweep::Random;
use thiserror::Error;
use trace::Trace;

/// The result of an equivalence check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The circuits have equal outputs for every input.
    Equal,
    /// The circuits differ for some input.
    Different {
        /// The counterexample, one bit per input.
        input: Vec<bool>,
        /// The first output that differs.
        output: usize,
    },
    /// The time limit was reached, or the check was stopped, before a decision.
    Unknown,
}

/// An error of an equivalence check.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProveError {
    /// The circuits have different numbers of inputs.
    #[error("cannot compare circuits with {left} and {right} inputs")]
    Inputs {
        /// The inputs of the first circuit.
        left: usize,
        /// The inputs of the second circuit.
        right: usize,
    },
    /// The circuits have different numbers of outputs.
    #[error("cannot compare circuits with {left} and {right} outputs")]
    Outputs {
        /// The outputs of the first circuit.
        left: usize,
        /// The outputs of the second circuit.
        right: usize,
    },
    /// Evaluation of the circuits does not confirm a counterexample of the solver, or a literal and its complement
    /// were proved equal.
    #[error("the steps of the equivalence proof contradict each other; this is a bug in Gatework")]
    Contradiction,
    /// The two circuits together exceed [`MAX_SIGNALS`](crate::circuit::MAX_SIGNALS).
    #[error("circuits with {gates} gates together are too large to compare")]
    TooLarge {
        /// The total number of gates.
        gates: usize,
    },
}

/// Limits of each SAT query about inner nodes. Most equal nodes are equal for local reasons; what is not found here is
/// left to the queries about the outputs.
const SWEEP: Limits = Limits { gates: 1024, conflicts: 1000 };
/// The number of 64-bit words of random inputs that both circuits are simulated on.
const RANDOM_WORDS: usize = 64;

/// Checks whether two circuits compute the same function, without a time limit.
///
/// ```
/// use gatework_logic::{Circuit, Gate, Node, prove};
///
/// let nand = Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2])?;
/// let gates = vec![Node::new(Gate::AND, 1, 0), Node::new(Gate::NOT_A, 2, 2)];
/// let and_then_not = Circuit::new(2, gates, vec![3])?;
/// assert_eq!(prove::equivalent(&nand, &and_then_not)?, prove::Verdict::Equal);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn equivalent(left: &Circuit, right: &Circuit) -> Result<Verdict, ProveError> {
    equivalent_until(left, right, &Stop::never())
}

/// Checks whether two circuits compute the same function; returns [`Verdict::Unknown`] after about this time.
pub fn equivalent_within(left: &Circuit, right: &Circuit, time: Duration) -> Result<Verdict, ProveError> {
    equivalent_until(left, right, &Stop::after(time))
}

/// Checks whether two circuits compute the same function; returns [`Verdict::Unknown`] if it was stopped.
pub fn equivalent_until(left: &Circuit, right: &Circuit, stop: &Stop<'_>) -> Result<Verdict, ProveError> {
    equivalent_by(left, right, None, stop)
}

/// Returns the miter of two circuits: one output, which is 1 for the inputs for which they differ.
///
/// ```
/// use gatework_logic::{Circuit, Gate, Node, prove};
///
/// let or = Circuit::new(2, vec![Node::new(Gate::OR, 0, 1)], vec![2])?;
/// let xor = Circuit::new(2, vec![Node::new(Gate::XOR, 0, 1)], vec![2])?;
/// let miter = prove::miter(&or, &xor)?;
/// assert_eq!(miter.eval(&[true, false])?, [false]);
/// assert_eq!(miter.eval(&[true, true])?, [true]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn miter(left: &Circuit, right: &Circuit) -> Result<Circuit, ProveError> {
    check_ports(left, right)?;
    let mut xag = Xag::new(left.inputs());
    let (lefts, rights) = (xag.add_circuit(left), xag.add_circuit(right));
    let mut differences: Vec<Literal> = lefts.iter().zip(&rights).map(|(&a, &b)| xag.xor(a, b)).collect();
    // A balanced tree.
    while differences.len() > 1 {
        differences = differences
            .chunks(2)
            .map(|pair| if let [a, b] = *pair { xag.or(a, b) } else { pair[0] })
            .collect();
    }
    xag.set_outputs(vec![differences.first().copied().unwrap_or(Literal::FALSE)]);
    let too_large = |_| ProveError::TooLarge { gates: left.nodes().len() + right.nodes().len() };
    xag.to_named_circuit(left.input_names().to_vec(), vec!["different".into()]).map_err(too_large)
}

/// Checks like [`equivalent_until`], with the steps that lead from one circuit to the other as hints.
pub(crate) fn equivalent_by(
    left: &Circuit,
    right: &Circuit,
    trace: Option<&Trace>,
    stop: &Stop<'_>,
) -> Result<Verdict, ProveError> {
    check_ports(left, right)?;
    match decide(left, right, trace, stop) {
        Ok(Some(input)) => confirm_counterexample(left, right, input),
        Ok(None) => Ok(Verdict::Equal),
        Err(Failure::Stopped) => Ok(Verdict::Unknown),
        Err(Failure::Contradiction) => Err(ProveError::Contradiction),
    }
}

/// Why a check ended without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The check was stopped.
    Stopped,
    /// A literal and its complement were proved equal.
    Contradiction,
}

impl From<Stopped> for Failure {
    fn from(Stopped: Stopped) -> Failure {
        Failure::Stopped
    }
}

/// Returns an input for which two circuits differ, or `None` if they are equal.
fn decide(
    left: &Circuit,
    right: &Circuit,
    trace: Option<&Trace>,
    stop: &Stop<'_>,
) -> Result<Option<Vec<bool>>, Failure> {
    if left.inputs() <= MAX_EXHAUSTIVE_INPUTS {
        return Ok(simulate_all_inputs(left, right, stop)?);
    }
    if let Some(input) = simulate_random_inputs(left, right, stop)? {
        return Ok(Some(input));
    }
    let mut xag = match trace.filter(|trace| trace.is_usable_for(left, right)) {
        Some(trace) => trace.merge(left, right, stop)?,
        None => combine(left, right, stop)?,
    };
    let (lefts, rights) = xag.outputs().split_at(left.outputs().len());
    let different = lefts.iter().zip(rights).filter(|(a, b)| a != b).flat_map(|(&a, &b)| [a, b]);
    xag.set_outputs(different.collect());
    stop.check()?;
    let xag = sweep::sweep(&xag.without_dead_gates(), SWEEP, stop)?;
    for pair in xag.outputs().chunks_exact(2) {
        let (a, b) = (pair[0], pair[1]);
        match sat::equal(&xag, a, b, Limits::NONE, stop) {
            Answer::Equal => {}
            Answer::Unknown => return Err(Failure::Stopped),
            Answer::Different(bits) => {
                let mut input = vec![false; left.inputs()];
                for (place, bit) in bits {
                    input[place] = bit;
                }
                return Ok(Some(input));
            }
        }
    }
    Ok(None)
}

/// Returns an XAG with the outputs of both circuits.
fn combine(left: &Circuit, right: &Circuit, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let mut xag = Xag::new(left.inputs());
    let mut outputs = xag.add_circuit(left);
    stop.check()?;
    outputs.extend(xag.add_circuit(right));
    xag.set_outputs(outputs);
    Ok(xag)
}

fn check_ports(left: &Circuit, right: &Circuit) -> Result<(), ProveError> {
    let gates = left.nodes().len() + right.nodes().len();
    if left.inputs() != right.inputs() {
        Err(ProveError::Inputs { left: left.inputs(), right: right.inputs() })
    } else if left.outputs().len() != right.outputs().len() {
        Err(ProveError::Outputs { left: left.outputs().len(), right: right.outputs().len() })
    } else if left.inputs() + gates >= crate::circuit::MAX_SIGNALS {
        Err(ProveError::TooLarge { gates })
    } else {
        Ok(())
    }
}

/// Returns the verdict for a counterexample after evaluating the circuits on it.
fn confirm_counterexample(left: &Circuit, right: &Circuit, input: Vec<bool>) -> Result<Verdict, ProveError> {
    let values = left.eval(&input).ok().zip(right.eval(&input).ok());
    let output = values.and_then(|(lefts, rights)| lefts.iter().zip(&rights).position(|(a, b)| a != b));
    output.map(|output| Verdict::Different { input, output }).ok_or(ProveError::Contradiction)
}

/// The maximum number of inputs for exhaustive simulation.
const MAX_EXHAUSTIVE_INPUTS: usize = 14;

/// Simulates both circuits on all inputs, 64 at a time. Returns an input for which they differ.
fn simulate_all_inputs(
    left: &Circuit,
    right: &Circuit,
    stop: &Stop<'_>,
) -> Result<Option<Vec<bool>>, Stopped> {
    let mut values = [Vec::new(), Vec::new()];
    for block in 0..1usize << left.inputs().saturating_sub(6) {
        stop.check()?;
        let inputs: Vec<u64> = (0..left.inputs()).map(|input| input_word(input, block)).collect();
        if let Some(input) = difference(left, right, &inputs, &mut values) {
            return Ok(Some(input));
        }
    }
    Ok(None)
}

/// Returns one of 64 inputs for which two circuits differ.
fn difference(
    left: &Circuit,
    right: &Circuit,
    inputs: &[u64],
    values: &mut [Vec<u64>; 2],
) -> Option<Vec<bool>> {
    eval_words(left, inputs, &mut values[0]);
    eval_words(right, inputs, &mut values[1]);
    let mut pairs = left.outputs().iter().zip(right.outputs());
    let word = pairs.find_map(|(&a, &b)| {
        Some(values[0][a as usize] ^ values[1][b as usize]).filter(|&difference| difference != 0)
    })?;
    Some(inputs.iter().map(|input| input >> word.trailing_zeros() & 1 == 1).collect())
}

/// Simulates both circuits on random inputs, with several densities of ones. Returns an input for which they differ.
fn simulate_random_inputs(
    left: &Circuit,
    right: &Circuit,
    stop: &Stop<'_>,
) -> Result<Option<Vec<bool>>, Stopped> {
    let mut random = Random(1);
    let mut inputs = vec![0; left.inputs()];
    let mut values = [Vec::new(), Vec::new()];
    for trial in 0..RANDOM_WORDS {
        stop.check()?;
        for word in &mut inputs {
            let (a, b, c) = (random.word(), random.word(), random.word());
            *word = [a, a & b, a | b, a & b & c, a | b | c][trial % 5];
        }
        if let Some(input) = difference(left, right, &inputs, &mut values) {
            return Ok(Some(input));
        }
    }
    Ok(None)
}

/// Computes the values of all signals for 64 assignments of the inputs.
fn eval_words(circuit: &Circuit, inputs: &[u64], values: &mut Vec<u64>) {
    values.clear();
    values.extend_from_slice(inputs);
    for node in circuit.nodes() {
        values.push(match node.gate {
            Gate::FALSE => 0,
            Gate::TRUE => u64::MAX,
            gate => gate.eval_word(values[node.a as usize], values[node.b as usize]),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::xag::Literal;
    use proptest::prelude::*;

    /// Returns whether a verdict holds a valid counterexample.
    fn is_counterexample(left: &Circuit, right: &Circuit, verdict: &Verdict) -> bool {
        let Verdict::Different { input, output } = verdict else { return false };
        left.eval(input).unwrap()[*output] != right.eval(input).unwrap()[*output]
    }

    fn equal_for_all_inputs(left: &Circuit, right: &Circuit) -> bool {
        (0..1u32 << left.inputs()).all(|i| {
            let bits: Vec<bool> = (0..left.inputs()).map(|k| i >> k & 1 == 1).collect();
            left.eval(&bits) == right.eval(&bits)
        })
    }

    /// Inverts the first output of a circuit for the single input `pattern`.
    fn differ_at(circuit: &Circuit, pattern: &[bool]) -> Circuit {
        let mut nodes = circuit.nodes().to_vec();
        let mut push = |node| {
            nodes.push(node);
            (circuit.inputs() + nodes.len() - 1) as u32
        };
        let mut all = push(Node::new(Gate::TRUE, 0, 0));
        for (input, &bit) in pattern.iter().enumerate() {
            all = push(Node::new(if bit { Gate::AND } else { Gate::A_AND_NOT_B }, all, input as u32));
        }
        let mut outputs = circuit.outputs().to_vec();
        outputs[0] = push(Node::new(Gate::XOR, outputs[0], all));
        Circuit::new(circuit.inputs(), nodes, outputs).unwrap()
    }

    #[test]
    fn a_difference_at_a_single_assignment_is_found() {
        let circuit = arbitrary::large(8, 3000).circuit;
        let pattern: Vec<bool> = (0..72).map(|i| i % 3 == 0).collect();
        let mutant = differ_at(&circuit, &pattern);
        let verdict = equivalent(&circuit, &mutant).unwrap();
        assert_eq!(verdict, Verdict::Different { input: pattern, output: 0 });
    }

    #[test]
    fn the_time_limit_is_kept() {
        // Multipliers with exchanged factors are hard to prove equal.
        let (a, b) = (multiplier(10, false), multiplier(10, true));
        assert_eq!(equivalent_within(&a, &b, Duration::ZERO), Ok(Verdict::Unknown));
        let (a, b) = (multiplier(3, false), multiplier(3, true));
        assert_eq!(equivalent_within(&a, &b, Duration::from_secs(600)), Ok(Verdict::Equal));
    }

    #[test]
    fn a_check_ends_at_the_poll_that_stops_it() {
        type Check<'a> = &'a dyn Fn(&Stop<'_>) -> Result<Verdict, ProveError>;
        let random = arbitrary::large(2, 400).circuit;
        let (options, never) = (crate::minimize::Options::default(), Stop::never());
        let small = crate::minimize::minimize_until(&random, &options, &never, &|_, _| {}).unwrap();
        let [a, b] = [false, true].map(|exchange| multiplier(6, exchange));
        let checks: [Check<'_>; 3] = [
            &|stop| small.prove(&random, stop),
            // Random simulation and sweeping, and exhaustive simulation.
            &|stop| equivalent_until(&random, &small.circuit, stop),
            &|stop| equivalent_until(&a, &b, stop),
        ];
        for check in checks {
            let never = Stop::never();
            assert_eq!(check(&never), Ok(Verdict::Equal));
            assert!(never.polls() > RANDOM_WORDS as u64 / 2, "{} polls", never.polls());
            for poll in (1..=never.polls()).step_by(never.polls().div_ceil(30) as usize) {
                let stop = Stop::at_poll(poll);
                assert_eq!(check(&stop), Ok(Verdict::Unknown));
                assert!(stop.polls() <= poll + 1, "{} polls after {poll}", stop.polls());
            }
        }
    }

    /// Returns an array multiplier, with the factors exchanged if `exchange`.
    fn multiplier(bits: usize, exchange: bool) -> Circuit {
        let mut xag = Xag::new(2 * bits);
        let mut sum = vec![Literal::FALSE; 2 * bits];
        for row in 0..bits {
            let mut carry = Literal::FALSE;
            for (column, sum) in sum[row..].iter_mut().enumerate() {
                let (x, y) = if exchange { (column, row) } else { (row, column) };
                let term = xag.and(Literal::input(x % bits), Literal::input(bits + y % bits));
                let term = if column < bits { term } else { Literal::FALSE };
                let half = xag.xor(*sum, term);
                let (c1, c2) = (xag.and(*sum, term), xag.and(half, carry));
                *sum = xag.xor(half, carry);
                carry = xag.or(c1, c2);
            }
        }
        xag.set_outputs(sum);
        xag.to_circuit(&Circuit::new(2 * bits, vec![], vec![0; 2 * bits]).unwrap())
    }

    #[test]
    fn circuits_must_have_the_same_ports() {
        let circuit = |inputs, outputs| Circuit::new(inputs, vec![], vec![0; outputs]).unwrap();
        let compare = |left: (usize, usize), right: (usize, usize)| {
            equivalent(&circuit(left.0, left.1), &circuit(right.0, right.1))
        };
        assert_eq!(compare((2, 1), (3, 1)), Err(ProveError::Inputs { left: 2, right: 3 }));
        assert_eq!(compare((2, 1), (2, 2)), Err(ProveError::Outputs { left: 1, right: 2 }));
        assert_eq!(compare((1, 0), (1, 0)), Ok(Verdict::Equal));
    }

    proptest! {
        #[test]
        fn verdicts_match_exhaustive_evaluation(
            left in arbitrary::circuit(4..=4, 60),
            right in arbitrary::circuit(4..=4, 60),
        ) {
            let ports = left.outputs().len().min(right.outputs().len());
            let cut = |c: &Circuit| Circuit::new(4, c.nodes().to_vec(), c.outputs()[..ports].to_vec()).unwrap();
            let (left, right) = (cut(&left), cut(&right));
            match equivalent(&left, &right).unwrap() {
                Verdict::Equal => prop_assert!(equal_for_all_inputs(&left, &right)),
                verdict => prop_assert!(is_counterexample(&left, &right, &verdict)),
            }
        }

        #[test]
        fn a_simplified_circuit_is_proved_equal(circuit in arbitrary::circuit(0..=100, 300)) {
            prop_assert_eq!(equivalent(&circuit, &circuit.simplify()), Ok(Verdict::Equal));
        }

        #[test]
        fn a_changed_gate_is_found_if_it_is_observable(
            circuit in arbitrary::circuit(1..=8, 60),
            place in any::<prop::sample::Index>(),
            index in 0usize..16,
        ) {
            prop_assume!(!circuit.nodes().is_empty());
            let mut nodes = circuit.nodes().to_vec();
            let place = place.index(nodes.len());
            nodes[place].gate = Gate::ALL[index];
            let mutant = Circuit::new(circuit.inputs(), nodes, circuit.outputs().to_vec()).unwrap();
            match equivalent(&circuit, &mutant).unwrap() {
                Verdict::Equal => prop_assert!(equal_for_all_inputs(&circuit, &mutant)),
                verdict => prop_assert!(is_counterexample(&circuit, &mutant, &verdict)),
            }
        }
    }
}
