//! Proofs: whether two circuits compute the same.
//!
//! ```text
//! both circuits, gate by gate, on random inputs:  a difference is a counterexample
//! both in one network:                            equal gates on equal operands are one
//! SAT sweeping:                                   vertices that compute the same become one
//! each pair of outputs that is still two:         the solver decides
//! ```
//!
//! Circuits of up to 14 inputs are simply run on all of them. A proof knows nothing but the two circuits; it shares
//! the network and the sweep with the minimiser, and none of the passes that change a circuit's structure. The first
//! step and the last check of a counterexample run on the circuits themselves: a gate that was translated wrongly into
//! the network would show there.
//!
//! | file | what is in it |
//! |---|---|
//! | `automaton` | the same for automata, by induction over the steps |
//! | `sat` | one question to the solver: are two literals equal? |
//! | `sweep` | all equal vertices of a network, from the inputs on |

pub(crate) mod automaton;
pub(crate) mod sat;
pub(crate) mod sweep;

pub use automaton::{AutomataError, Known, StateMap, equivalent_automata, equivalent_automata_within};

use crate::circuit::Circuit;
use crate::gate::Gate;
use crate::network::Network;
use crate::truth::input_word;
use sat::{Answer, Bounds};
use std::time::{Duration, Instant};
use sweep::Random;
use thiserror::Error;

/// What a proof says about two circuits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The circuits have the same outputs for every input.
    Equal,
    /// An input for which they differ.
    Different {
        /// The bits of the input.
        input: Vec<bool>,
        /// The first output that differs.
        output: usize,
    },
    /// The time was too short to decide.
    Unknown,
}

/// Why two circuits cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProveError {
    /// Different numbers of inputs.
    #[error("circuits with {left} and {right} inputs cannot be compared")]
    Inputs {
        /// The inputs of the first circuit.
        left: usize,
        /// The inputs of the second circuit.
        right: usize,
    },
    /// Different numbers of outputs.
    #[error("circuits with {left} and {right} outputs cannot be compared")]
    Outputs {
        /// The outputs of the first circuit.
        left: usize,
        /// The outputs of the second circuit.
        right: usize,
    },
    /// The circuits and the network that stands for them disagree.
    #[error("the solver finds a difference that the circuits do not show; this is a fault of Gatework")]
    Contradiction,
    /// The two circuits together are larger than a circuit may be.
    #[error("circuits of {gates} gates together are too large to compare")]
    TooLarge {
        /// The gates of both.
        gates: usize,
    },
}

/// How far a question about inner vertices looks. Most equal vertices are equal for a near reason; what is
/// not found here is left to the outputs.
const INNER: Bounds = Bounds { gates: 1024, conflicts: 1000, deadline: None };
/// 64-bit words of random inputs that both circuits are tried on first.
const TRIALS: usize = 64;

/// Whether two circuits compute the same, however long it takes.
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
    decide(left, right, None)
}

/// Whether two circuits compute the same, or [`Verdict::Unknown`] after about this time.
pub fn equivalent_within(left: &Circuit, right: &Circuit, time: Duration) -> Result<Verdict, ProveError> {
    decide(left, right, Instant::now().checked_add(time))
}

fn decide(left: &Circuit, right: &Circuit, deadline: Option<Instant>) -> Result<Verdict, ProveError> {
    check_ports(left, right)?;
    if left.inputs() <= FEW_INPUTS {
        return try_all_inputs(left, right);
    }
    if let Some(verdict) = try_random_inputs(left, right)? {
        return Ok(verdict);
    }
    let mut network = Network::new(left.inputs());
    let mut outputs = network.add(left);
    outputs.extend(network.add(right));
    network.set_outputs(outputs);
    let network = sweep::sweep(&network.without_dead_gates(), Bounds { deadline, ..INNER }).network;
    let bounds = Bounds { deadline, ..Bounds::NONE };
    let (lefts, rights) = network.outputs().split_at(left.outputs().len());
    let mut verdict = Verdict::Equal;
    for (&a, &b) in lefts.iter().zip(rights) {
        match sat::equal(&network, a, b, bounds) {
            Answer::Equal => {}
            Answer::Unknown => verdict = Verdict::Unknown,
            Answer::Different(bits) => {
                let mut input = vec![false; left.inputs()];
                for (place, bit) in bits {
                    input[place] = bit;
                }
                return first_difference(left, right, input);
            }
        }
    }
    Ok(verdict)
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

/// The verdict for an input that makes a difference, checked on the circuits themselves.
fn first_difference(left: &Circuit, right: &Circuit, input: Vec<bool>) -> Result<Verdict, ProveError> {
    let values = left.eval(&input).ok().zip(right.eval(&input).ok());
    let output = values.and_then(|(lefts, rights)| lefts.iter().zip(&rights).position(|(a, b)| a != b));
    output.map(|output| Verdict::Different { input, output }).ok_or(ProveError::Contradiction)
}

/// Inputs of which all assignments are tried: that is quicker than any argument, and needs none.
const FEW_INPUTS: usize = 14;

/// Runs both circuits on all inputs, 64 at a time.
fn try_all_inputs(left: &Circuit, right: &Circuit) -> Result<Verdict, ProveError> {
    let mut values = [Vec::new(), Vec::new()];
    for block in 0..1usize << left.inputs().saturating_sub(6) {
        let inputs: Vec<u64> = (0..left.inputs()).map(|input| input_word(input, block)).collect();
        if let Some(input) = difference(left, right, &inputs, &mut values) {
            return first_difference(left, right, input);
        }
    }
    Ok(Verdict::Equal)
}

/// One of 64 inputs for which two circuits differ.
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

/// Runs both circuits on random inputs, with every density of ones.
fn try_random_inputs(left: &Circuit, right: &Circuit) -> Result<Option<Verdict>, ProveError> {
    let mut random = Random(1);
    let mut inputs = vec![0; left.inputs()];
    let mut values = [Vec::new(), Vec::new()];
    for trial in 0..TRIALS {
        for word in &mut inputs {
            let (a, b, c) = (random.word(), random.word(), random.word());
            *word = [a, a & b, a | b, a & b & c, a | b | c][trial % 5];
        }
        if let Some(input) = difference(left, right, &inputs, &mut values) {
            return first_difference(left, right, input).map(Some);
        }
    }
    Ok(None)
}

/// The values of all signals for 64 inputs, gate by gate.
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
    use crate::network::Literal;
    use proptest::prelude::*;

    /// Whether an input makes the difference that a verdict claims.
    fn is_counterexample(left: &Circuit, right: &Circuit, verdict: &Verdict) -> bool {
        let Verdict::Different { input, output } = verdict else { return false };
        left.eval(input).unwrap()[*output] != right.eval(input).unwrap()[*output]
    }

    fn same_for_all_inputs(left: &Circuit, right: &Circuit) -> bool {
        (0..1u32 << left.inputs()).all(|i| {
            let bits: Vec<bool> = (0..left.inputs()).map(|k| i >> k & 1 == 1).collect();
            left.eval(&bits) == right.eval(&bits)
        })
    }

    /// Whether all inputs have the bits of `pattern`, added to the first output of a circuit.
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
    fn a_difference_at_one_input_of_many_is_found() {
        let circuit = arbitrary::large(8, 3000).circuit;
        let pattern: Vec<bool> = (0..72).map(|i| i % 3 == 0).collect();
        let mutant = differ_at(&circuit, &pattern);
        let verdict = equivalent(&circuit, &mutant).unwrap();
        assert_eq!(verdict, Verdict::Different { input: pattern, output: 0 });
    }

    #[test]
    fn the_time_is_kept() {
        // Multiplication from the left and from the right: nobody proves this in no time.
        let (a, b) = (multiplier(10, false), multiplier(10, true));
        assert_eq!(equivalent_within(&a, &b, Duration::ZERO), Ok(Verdict::Unknown));
        let (a, b) = (multiplier(3, false), multiplier(3, true));
        assert_eq!(equivalent_within(&a, &b, Duration::from_secs(600)), Ok(Verdict::Equal));
    }

    /// The product of two numbers: multiples of the first added up, or of the second.
    fn multiplier(bits: usize, exchange: bool) -> Circuit {
        let mut network = Network::new(2 * bits);
        let mut sum = vec![Literal::FALSE; 2 * bits];
        for row in 0..bits {
            let mut carry = Literal::FALSE;
            for (column, sum) in sum[row..].iter_mut().enumerate() {
                let (x, y) = if exchange { (column, row) } else { (row, column) };
                let term = network.and(Literal::input(x % bits), Literal::input(bits + y % bits));
                let term = if column < bits { term } else { Literal::FALSE };
                let half = network.xor(*sum, term);
                let (c1, c2) = (network.and(*sum, term), network.and(half, carry));
                *sum = network.xor(half, carry);
                carry = network.or(c1, c2);
            }
        }
        network.set_outputs(sum);
        network.to_circuit(&Circuit::new(2 * bits, vec![], vec![0; 2 * bits]).unwrap())
    }

    #[test]
    fn ports_must_fit() {
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
        fn verdicts_are_those_of_all_inputs(
            left in arbitrary::circuit(4..=4, 60),
            right in arbitrary::circuit(4..=4, 60),
        ) {
            let ports = left.outputs().len().min(right.outputs().len());
            let cut = |c: &Circuit| Circuit::new(4, c.nodes().to_vec(), c.outputs()[..ports].to_vec()).unwrap();
            let (left, right) = (cut(&left), cut(&right));
            match equivalent(&left, &right).unwrap() {
                Verdict::Equal => prop_assert!(same_for_all_inputs(&left, &right)),
                verdict => prop_assert!(is_counterexample(&left, &right, &verdict)),
            }
        }

        #[test]
        fn a_simplified_circuit_is_equal(circuit in arbitrary::circuit(0..=100, 300)) {
            prop_assert_eq!(equivalent(&circuit, &circuit.simplify()), Ok(Verdict::Equal));
        }

        #[test]
        fn a_changed_gate_is_found_if_it_shows(
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
                Verdict::Equal => prop_assert!(same_for_all_inputs(&circuit, &mutant)),
                verdict => prop_assert!(is_counterexample(&circuit, &mutant, &verdict)),
            }
        }
    }
}
