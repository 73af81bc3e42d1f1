//! Combinational circuits: a flat array of two-input gates in topological order.
//!
//! A signal is an index: signals `0..inputs` are the inputs, signal `inputs + i` is the output of gate `i`. A gate reads
//! only earlier signals, so a single pass over the array evaluates or rewrites a circuit of millions of gates.
//! [`Circuit::new`] checks this invariant; all other functions rely on it.

use crate::gate::Gate;
use std::borrow::Cow;
use thiserror::Error;

/// The maximum number of inputs of a circuit.
pub const MAX_INPUTS: usize = 1 << 24;
/// The maximum number of signals (inputs and gates) of a circuit.
pub const MAX_SIGNALS: usize = 1 << 30;

/// A gate of a circuit and the signals it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The function of the gate.
    pub gate: Gate,
    /// The signal of the first operand.
    pub a: u32,
    /// The signal of the second operand.
    pub b: u32,
}

impl Node {
    /// Creates a gate that reads the signals `a` and `b`.
    pub const fn new(gate: Gate, a: u32, b: u32) -> Node {
        Node { gate, a, b }
    }

    /// Returns the signals that the gate depends on: one for a wire or an inverter, none for a constant, both otherwise.
    pub fn dependencies(self) -> impl Iterator<Item = u32> {
        let a = self.gate.depends_on_a().then_some(self.a);
        let b = self.gate.depends_on_b().then_some(self.b);
        a.into_iter().chain(b)
    }
}

/// A combinational circuit.
///
/// ```
/// use gatework_logic::{Circuit, Gate, Node};
///
/// // A half adder: signals 0 and 1 are the inputs, 2 is the sum, 3 the carry.
/// let adder = Circuit::new(2, vec![Node::new(Gate::XOR, 0, 1), Node::new(Gate::AND, 0, 1)], vec![2, 3])?;
/// assert_eq!(adder.eval(&[true, true])?, [false, true]);
/// # Ok::<(), gatework_logic::CircuitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    inputs: usize,
    nodes: Vec<Node>,
    outputs: Vec<u32>,
    input_names: Vec<String>,
    output_names: Vec<String>,
}

/// An error of building or evaluating a circuit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CircuitError {
    /// There are more inputs than [`MAX_INPUTS`].
    #[error("the circuit has {inputs} inputs, but the maximum is {MAX_INPUTS}")]
    TooManyInputs {
        /// The number of inputs.
        inputs: usize,
    },
    /// There are more signals than [`MAX_SIGNALS`].
    #[error("the circuit has {inputs} inputs and {gates} gates, but the maximum is {MAX_SIGNALS} together")]
    TooManyGates {
        /// The number of inputs.
        inputs: usize,
        /// The number of gates.
        gates: usize,
    },
    /// A gate reads itself, a later gate, or a signal that does not exist.
    #[error("gate {gate} ({name}) reads signal {signal}, but only signals below {end} come before it")]
    Operand {
        /// The index of the gate.
        gate: usize,
        /// The name of the gate.
        name: &'static str,
        /// The signal it reads.
        signal: u32,
        /// The number of signals before the gate.
        end: usize,
    },
    /// An output refers to a signal that does not exist.
    #[error("output {output} is signal {signal}, but there are only {end} signals")]
    Output {
        /// The index of the output.
        output: usize,
        /// The signal it refers to.
        signal: u32,
        /// The number of signals.
        end: usize,
    },
    /// A list of port names has the wrong length.
    #[error("there are {names} {port} names for {ports} {port}s; give one name per {port}, or none")]
    Names {
        /// `input` or `output`.
        port: &'static str,
        /// The number of names.
        names: usize,
        /// The number of ports.
        ports: usize,
    },
    /// The number of input bits is wrong.
    #[error("the circuit has {inputs} inputs, but {given} bits were given")]
    InputCount {
        /// The number of inputs of the circuit.
        inputs: usize,
        /// The number of bits.
        given: usize,
    },
}

impl Circuit {
    /// Creates a circuit. Every operand must precede its gate, and every output must exist.
    ///
    /// The operands of constants are ignored and stored as 0.
    pub fn new(inputs: usize, mut nodes: Vec<Node>, outputs: Vec<u32>) -> Result<Circuit, CircuitError> {
        if inputs > MAX_INPUTS {
            return Err(CircuitError::TooManyInputs { inputs });
        }
        if nodes.len() > MAX_SIGNALS - inputs {
            return Err(CircuitError::TooManyGates { inputs, gates: nodes.len() });
        }
        for (i, node) in nodes.iter_mut().enumerate() {
            let end = inputs + i;
            if node.gate.is_constant() {
                (node.a, node.b) = (0, 0);
            } else if node.a.max(node.b) as usize >= end {
                let signal = if node.a as usize >= end { node.a } else { node.b };
                return Err(CircuitError::Operand { gate: i, name: node.gate.name(), signal, end });
            }
        }
        let end = inputs + nodes.len();
        if let Some(output) = outputs.iter().position(|&signal| signal as usize >= end) {
            return Err(CircuitError::Output { output, signal: outputs[output], end });
        }
        Ok(Circuit { inputs, nodes, outputs, input_names: Vec::new(), output_names: Vec::new() })
    }

    /// Names the ports; an empty list stands for the default names.
    pub fn with_names(
        mut self,
        input_names: Vec<String>,
        output_names: Vec<String>,
    ) -> Result<Circuit, CircuitError> {
        let check = |port, names: &[String], ports| {
            let fits = names.is_empty() || names.len() == ports;
            if fits { Ok(()) } else { Err(CircuitError::Names { port, names: names.len(), ports }) }
        };
        check("input", &input_names, self.inputs)?;
        check("output", &output_names, self.outputs.len())?;
        self.input_names = input_names;
        self.output_names = output_names;
        Ok(self)
    }

    /// Replaces the gates and outputs and keeps the port names. The caller guarantees the topological order and the
    /// number of outputs.
    pub(crate) fn with_gates(&self, nodes: Vec<Node>, outputs: Vec<u32>) -> Circuit {
        let (input_names, output_names) = (self.input_names.clone(), self.output_names.clone());
        Circuit { inputs: self.inputs, nodes, outputs, input_names, output_names }
    }

    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the gates, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the signals of the outputs.
    pub fn outputs(&self) -> &[u32] {
        &self.outputs
    }

    /// Returns the number of signals: inputs and gates.
    pub fn signals(&self) -> usize {
        self.inputs + self.nodes.len()
    }

    /// Returns the names of the inputs; empty for the default names.
    pub fn input_names(&self) -> &[String] {
        &self.input_names
    }

    /// Returns the names of the outputs; empty for the default names.
    pub fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// Returns the name of an input; `x0`, `x1`, ... by default.
    pub fn input_name(&self, input: usize) -> Cow<'_, str> {
        self.input_names.get(input).map_or_else(|| format!("x{input}").into(), |name| name.as_str().into())
    }

    /// Returns the name of an output; `y0`, `y1`, ... by default.
    pub fn output_name(&self, output: usize) -> Cow<'_, str> {
        self.output_names.get(output).map_or_else(|| format!("y{output}").into(), |name| name.as_str().into())
    }

    /// Returns the gate that drives a signal, or `None` for an input.
    pub fn node(&self, signal: u32) -> Option<Node> {
        self.nodes.get((signal as usize).checked_sub(self.inputs)?).copied()
    }

    /// Evaluates the circuit for one assignment of the inputs. This is the reference implementation that tests compare
    /// faster evaluations with.
    pub fn eval(&self, inputs: &[bool]) -> Result<Vec<bool>, CircuitError> {
        if inputs.len() != self.inputs {
            return Err(CircuitError::InputCount { inputs: self.inputs, given: inputs.len() });
        }
        let mut values = Vec::with_capacity(self.signals());
        values.extend_from_slice(inputs);
        for node in &self.nodes {
            // A constant may precede all signals, so its operands cannot be read.
            let value = match node.gate {
                Gate::FALSE => false,
                Gate::TRUE => true,
                gate => gate.eval(values[node.a as usize], values[node.b as usize]),
            };
            values.push(value);
        }
        Ok(self.outputs.iter().map(|&signal| values[signal as usize]).collect())
    }

    /// Returns the number of gates on the longest path to an output, without wires and constants.
    pub fn depth(&self) -> usize {
        let mut depths = vec![0u32; self.signals()];
        for (i, node) in self.nodes.iter().enumerate() {
            let before = node.dependencies().map(|signal| depths[signal as usize]).max().unwrap_or(0);
            let counts = !(node.gate.is_wire() || node.gate.is_constant());
            depths[self.inputs + i] = before + u32::from(counts);
        }
        self.outputs.iter().map(|&signal| depths[signal as usize]).max().unwrap_or(0) as usize
    }

    /// Returns the number of active gates: those that are not wires (`A` or `B`).
    pub fn active(&self) -> usize {
        self.nodes.iter().filter(|node| !node.gate.is_wire()).count()
    }

    /// Returns the number of active gates in the fan-in cones of the outputs.
    pub fn reachable(&self) -> usize {
        let mut needed = vec![false; self.signals()];
        for &signal in &self.outputs {
            needed[signal as usize] = true;
        }
        let mut count = 0;
        for (i, node) in self.nodes.iter().enumerate().rev() {
            if needed[self.inputs + i] {
                count += usize::from(!node.gate.is_wire());
                for signal in node.dependencies() {
                    needed[signal as usize] = true;
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<const N: usize>(list: [(Gate, u32, u32); N]) -> Vec<Node> {
        list.into_iter().map(|(gate, a, b)| Node::new(gate, a, b)).collect()
    }

    #[test]
    fn a_full_adder_computes_sum_and_carry() {
        let gates = nodes([
            (Gate::XOR, 0, 1),
            (Gate::AND, 0, 1),
            (Gate::XOR, 3, 2),
            (Gate::AND, 3, 2),
            (Gate::OR, 4, 6),
        ]);
        let adder = Circuit::new(3, gates, vec![5, 7]).unwrap();
        for i in 0..8u32 {
            let bits = [0, 1, 2].map(|k| i >> k & 1 == 1);
            let sum = i.count_ones();
            assert_eq!(adder.eval(&bits).unwrap(), [sum & 1 == 1, sum >= 2]);
        }
        assert_eq!((adder.depth(), adder.active(), adder.reachable()), (3, 5, 5));
    }

    #[test]
    fn operands_must_precede_their_gate() {
        let error = Circuit::new(2, nodes([(Gate::A, 0, 1), (Gate::AND, 1, 3)]), vec![]).unwrap_err();
        assert_eq!(error, CircuitError::Operand { gate: 1, name: "AND", signal: 3, end: 3 });
        assert_eq!(error.to_string(), "gate 1 (AND) reads signal 3, but only signals below 3 come before it");
    }

    #[test]
    fn outputs_must_exist() {
        let error = Circuit::new(2, vec![], vec![0, 2]).unwrap_err();
        assert_eq!(error, CircuitError::Output { output: 1, signal: 2, end: 2 });
    }

    #[test]
    fn the_number_of_inputs_is_limited() {
        let error = Circuit::new(usize::MAX, vec![], vec![]).unwrap_err();
        assert_eq!(error, CircuitError::TooManyInputs { inputs: usize::MAX });
    }

    #[test]
    fn constants_need_no_operands() {
        let gates = nodes([(Gate::TRUE, 0, 0), (Gate::FALSE, 77, u32::MAX), (Gate::XOR, 0, 1)]);
        let circuit = Circuit::new(0, gates, vec![0, 1, 2]).unwrap();
        assert_eq!(circuit.eval(&[]).unwrap(), [true, false, true]);
        assert_eq!(circuit.nodes()[1], Node::new(Gate::FALSE, 0, 0));
    }

    #[test]
    fn eval_checks_the_number_of_input_bits() {
        let circuit = Circuit::new(2, vec![], vec![1]).unwrap();
        assert_eq!(circuit.eval(&[true]), Err(CircuitError::InputCount { inputs: 2, given: 1 }));
    }

    #[test]
    fn reachable_ignores_operands_that_do_not_matter() {
        // The AND is an operand of a wire that passes its other operand, and of a constant.
        let gates = nodes([
            (Gate::AND, 0, 1),
            (Gate::NOT_A, 0, 0),
            (Gate::B, 2, 3),
            (Gate::TRUE, 2, 2),
            (Gate::OR, 4, 5),
            (Gate::XOR, 2, 6),
        ]);
        let circuit = Circuit::new(2, gates, vec![6]).unwrap();
        assert_eq!((circuit.active(), circuit.reachable(), circuit.depth()), (5, 3, 2));
    }

    #[test]
    fn ports_have_default_or_given_names() {
        let circuit = Circuit::new(2, vec![], vec![1]).unwrap();
        assert_eq!((circuit.input_name(1), circuit.output_name(0)), ("x1".into(), "y0".into()));
        let named = circuit.clone().with_names(vec!["a".into(), "b".into()], vec![]).unwrap();
        assert_eq!((named.input_name(1), named.output_name(0)), ("b".into(), "y0".into()));
        let error = circuit.with_names(vec![], vec!["p".into(), "q".into()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there are 2 output names for 1 outputs; give one name per output, or none"
        );
    }
}
