//! XOR-AND graphs (XAGs): AND and XOR nodes with complemented edges.
//!
//! The minimiser and the equivalence checker work on this graph. Ten of the sixteen two-input gates depend on both
//! operands: eight are an AND with inverters on its inputs and output, two are an XOR or an XNOR. Inverters are
//! absorbed by the gates around them and cost nothing, so the number of nodes *is* the number of two-input gates.
//! Structural hashing makes nodes unique: gates that are equal up to inverters are the same node.
//!
//! Node 0 is the constant 0 and nodes `1..=inputs` are the inputs. The other nodes are in topological order.

use crate::circuit::{Circuit, CircuitError, Node};
use crate::gate::{Gate, Unary};
pub(crate) use crate::literal::Literal;
use crate::stop::{Stop, Stopped};
use rustc_hash::FxHashMap;

/// The function of an XAG node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    And,
    Xor,
}

/// An AND or XOR node. The order of the fanins encodes the operation: an AND has the smaller literal first, an XOR
/// the larger one. The fanins of an XOR are never inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct XagNode {
    pub a: Literal,
    pub b: Literal,
}

impl XagNode {
    /// Placeholder for the constant and the inputs.
    pub const LEAF: XagNode = XagNode { a: Literal::FALSE, b: Literal::FALSE };

    pub fn operation(self) -> Operation {
        if self.a <= self.b { Operation::And } else { Operation::Xor }
    }

    pub fn fanins(self) -> [Literal; 2] {
        [self.a, self.b]
    }

    /// Evaluates the node for 64 assignments, given the values of the (uninverted) fanin nodes.
    pub fn eval_word(self, a: u64, b: u64) -> u64 {
        match self.operation() {
            Operation::And => (a ^ self.a.mask()) & (b ^ self.b.mask()),
            Operation::Xor => a ^ b,
        }
    }
}

/// Normal form of an operation on two literals: one of the literals or a constant, or a node with an optional
/// output inverter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Normal {
    Literal(Literal),
    Node(XagNode, bool),
}

fn normal_and(a: Literal, b: Literal) -> Normal {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    if a == Literal::FALSE || a == b.not() {
        Normal::Literal(Literal::FALSE)
    } else if a == Literal::TRUE || a == b {
        Normal::Literal(b)
    } else {
        Normal::Node(XagNode { a, b }, false)
    }
}

fn normal_xor(a: Literal, b: Literal) -> Normal {
    let inverted = a.is_inverted() != b.is_inverted();
    let (a, b) = (Literal(a.0 & !1), Literal(b.0 & !1));
    let (a, b) = if a >= b { (a, b) } else { (b, a) };
    if a == b {
        Normal::Literal(Literal::FALSE.invert_if(inverted))
    } else if b == Literal::FALSE {
        Normal::Literal(a.invert_if(inverted))
    } else {
        Normal::Node(XagNode { a, b }, inverted)
    }
}

/// Returns the normal form of an operation on two literals.
pub(crate) fn normal(operation: Operation, a: Literal, b: Literal) -> Normal {
    match operation {
        Operation::And => normal_and(a, b),
        Operation::Xor => normal_xor(a, b),
    }
}

/// Translates a literal with a map from old nodes to new literals.
pub(crate) fn translate(literal: Literal, old_to_new: &[Literal]) -> Literal {
    old_to_new[literal.node()].invert_if(literal.is_inverted())
}

/// A structurally hashed XOR-AND graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xag {
    inputs: usize,
    nodes: Vec<XagNode>,
    outputs: Vec<Literal>,
    /// Structural hash table.
    table: FxHashMap<XagNode, u32>,
}

impl Xag {
    /// Creates an XAG without gates and outputs.
    pub fn new(inputs: usize) -> Xag {
        let nodes = vec![XagNode::LEAF; inputs + 1];
        Xag { inputs, nodes, outputs: Vec::new(), table: FxHashMap::default() }
    }

    /// Converts a circuit. Wires, inverters, constants and structurally equal gates disappear; dead gates stay.
    pub fn from_circuit(circuit: &Circuit) -> Xag {
        let mut xag = Xag::new(circuit.inputs());
        xag.outputs = xag.add_circuit(circuit);
        xag
    }

    /// Adds a circuit with as many inputs as the XAG, on these inputs, and returns the literals of its outputs.
    pub fn add_circuit(&mut self, circuit: &Circuit) -> Vec<Literal> {
        assert_eq!(circuit.inputs(), self.inputs, "the numbers of inputs differ");
        self.add_circuit_on(circuit, (0..self.inputs).map(Literal::input).collect())
    }

    /// Adds a circuit with these literals as its inputs and returns the literals of its outputs.
    pub fn add_circuit_on(&mut self, circuit: &Circuit, mut literals: Vec<Literal>) -> Vec<Literal> {
        literals.reserve(circuit.nodes().len());
        self.table.reserve(circuit.nodes().len());
        for node in circuit.nodes() {
            let literal = match node.gate {
                Gate::FALSE => Literal::FALSE,
                Gate::TRUE => Literal::TRUE,
                gate => self.gate(gate, literals[node.a as usize], literals[node.b as usize]),
            };
            literals.push(literal);
        }
        circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect()
    }

    /// Adds another XAG with these literals as its inputs and returns the literals of its outputs.
    pub fn add_xag(&mut self, other: &Xag, inputs: &[Literal]) -> Vec<Literal> {
        let mut literals = vec![Literal::FALSE];
        literals.extend_from_slice(inputs);
        for index in other.gate_range() {
            literals.push(self.add_copy(other.node(index), &literals));
        }
        other.outputs().iter().map(|&output| translate(output, &literals)).collect()
    }

    /// Adds a copy of a node of another XAG, whose fanins are translated by `old_to_new`.
    pub fn add_copy(&mut self, node: XagNode, old_to_new: &[Literal]) -> Literal {
        self.operation(node.operation(), translate(node.a, old_to_new), translate(node.b, old_to_new))
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of nodes, including the constant and the inputs.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of AND and XOR nodes.
    pub fn gates(&self) -> usize {
        self.nodes.len() - self.inputs - 1
    }

    /// Returns the indices of the AND and XOR nodes.
    pub fn gate_range(&self) -> std::ops::Range<usize> {
        self.inputs + 1..self.nodes.len()
    }

    pub fn node(&self, index: usize) -> XagNode {
        self.nodes[index]
    }

    pub fn is_gate(&self, node: usize) -> bool {
        node > self.inputs
    }

    pub fn outputs(&self) -> &[Literal] {
        &self.outputs
    }

    pub fn set_outputs(&mut self, outputs: Vec<Literal>) {
        self.outputs = outputs;
    }

    pub fn and(&mut self, a: Literal, b: Literal) -> Literal {
        self.insert(normal_and(a, b))
    }

    pub fn xor(&mut self, a: Literal, b: Literal) -> Literal {
        self.insert(normal_xor(a, b))
    }

    pub fn or(&mut self, a: Literal, b: Literal) -> Literal {
        self.and(a.not(), b.not()).not()
    }

    pub fn operation(&mut self, operation: Operation, a: Literal, b: Literal) -> Literal {
        self.insert(normal(operation, a, b))
    }

    /// Adds any of the sixteen two-input gates.
    pub fn gate(&mut self, gate: Gate, a: Literal, b: Literal) -> Literal {
        let (x, y) = (gate.with_a(false), gate.with_a(true));
        match (x, y) {
            _ if x == y => b.apply(x),
            (Unary::False, _) => self.and(a, b.apply(y)),
            (_, Unary::False) => self.and(a.not(), b.apply(x)),
            (Unary::True, _) => self.and(a, b.apply(y).not()).not(),
            (_, Unary::True) => self.and(a.not(), b.apply(x).not()).not(),
            _ => self.xor(a, b).invert_if(x == Unary::Not),
        }
    }

    /// Returns the literal of a normal form, adding its node unless the hash table has it.
    fn insert(&mut self, normal: Normal) -> Literal {
        match normal {
            Normal::Literal(literal) => literal,
            Normal::Node(node, inverted) => {
                let next = self.nodes.len() as u32;
                let index = *self.table.entry(node).or_insert(next);
                if index == next {
                    self.nodes.push(node);
                }
                Literal::new(index as usize, inverted)
            }
        }
    }

    /// Returns the number of fanouts of each node: gate fanins and outputs.
    pub fn fanout_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.len()];
        let fanins = self.nodes[self.inputs + 1..].iter().flat_map(|node| node.fanins());
        for literal in fanins.chain(self.outputs.iter().copied()) {
            counts[literal.node()] += 1;
        }
        counts
    }

    /// Returns a copy without the gates that no output depends on.
    pub fn without_dead_gates(&self) -> Xag {
        let mut live = vec![false; self.len()];
        for output in &self.outputs {
            live[output.node()] = true;
        }
        for node in self.gate_range().rev() {
            if live[node] {
                for fanin in self.nodes[node].fanins() {
                    live[fanin.node()] = true;
                }
            }
        }
        let mut copy = Xag::new(self.inputs);
        let mut old_to_new: Vec<Literal> = (0..=self.inputs).map(|node| Literal::new(node, false)).collect();
        old_to_new.resize(self.len(), Literal::FALSE);
        for index in self.gate_range().filter(|&node| live[node]) {
            old_to_new[index] = copy.add_copy(self.nodes[index], &old_to_new);
        }
        copy.outputs = self.outputs.iter().map(|&output| translate(output, &old_to_new)).collect();
        copy
    }

    /// Computes the values of all nodes for 64 assignments of the inputs.
    pub fn eval_words(&self, inputs: &[u64], values: &mut Vec<u64>) {
        values.clear();
        values.push(0);
        values.extend_from_slice(inputs);
        for index in self.gate_range() {
            let node = self.nodes[index];
            values.push(node.eval_word(values[node.a.node()], values[node.b.node()]));
        }
    }

    /// Converts to a circuit with the port names of `ports`: one gate per node, plus an inverter or a constant for
    /// outputs that need one. A node that is read only by inverted outputs becomes the inverted gate.
    pub fn to_circuit(&self, ports: &Circuit) -> Circuit {
        let (nodes, outputs) = self.to_gates();
        ports.with_gates(nodes, outputs)
    }

    /// Converts to a circuit like [`Xag::to_circuit`], with new port names; empty lists stand for the default names.
    pub fn to_named_circuit(
        &self,
        input_names: Vec<String>,
        output_names: Vec<String>,
    ) -> Result<Circuit, CircuitError> {
        let (nodes, outputs) = self.to_gates();
        Circuit::new(self.inputs, nodes, outputs)?.with_names(input_names, output_names)
    }

    fn to_gates(&self) -> (Vec<Node>, Vec<u32>) {
        let first = self.inputs + 1;
        // For each node, whether an output reads it uninverted, and inverted.
        let mut polarities = vec![[false; 2]; self.len()];
        for output in &self.outputs {
            polarities[output.node()][usize::from(output.is_inverted())] = true;
        }
        let inverted: Vec<bool> =
            (0..self.len()).map(|node| node >= first && polarities[node] == [false, true]).collect();
        let build = |index: usize| {
            let node = self.nodes[index];
            let gate = match node.operation() {
                Operation::And => Gate::AND,
                Operation::Xor => Gate::XOR,
            };
            let [not_a, not_b] = node.fanins().map(|fanin| fanin.is_inverted() != inverted[fanin.node()]);
            let gate = if not_a { gate.not_a() } else { gate };
            let gate = if not_b { gate.not_b() } else { gate };
            let gate = if inverted[index] { gate.not() } else { gate };
            Node::new(gate, node.a.node() as u32 - 1, node.b.node() as u32 - 1)
        };
        let mut nodes: Vec<Node> = self.gate_range().map(build).collect();
        let outputs = self.output_signals(&inverted, &mut nodes);
        (nodes, outputs)
    }

    /// Returns the signals of the outputs and appends a gate for each constant and each remaining inverter.
    fn output_signals(&self, inverted: &[bool], nodes: &mut Vec<Node>) -> Vec<u32> {
        let mut added: FxHashMap<Literal, u32> = FxHashMap::default();
        let mut signal = |&output: &Literal| {
            let node = output.node();
            if node > 0 && output.is_inverted() == inverted[node] {
                return node as u32 - 1;
            }
            *added.entry(output).or_insert_with(|| {
                nodes.push(match output {
                    Literal::FALSE => Node::new(Gate::FALSE, 0, 0),
                    Literal::TRUE => Node::new(Gate::TRUE, 0, 0),
                    _ => Node::new(Gate::NOT_A, node as u32 - 1, node as u32 - 1),
                });
                (self.inputs + nodes.len() - 1) as u32
            })
        };
        self.outputs.iter().map(&mut signal).collect()
    }
}

/// The gates that read each node, as a compressed adjacency list.
pub(crate) struct Fanouts {
    starts: Vec<u32>,
    gates: Vec<u32>,
}

impl Fanouts {
    pub fn new(xag: &Xag, stop: &Stop<'_>) -> Result<Fanouts, Stopped> {
        let mut starts = vec![0u32; xag.len() + 1];
        for index in xag.gate_range() {
            stop.check_at(index)?;
            for fanin in xag.node(index).fanins() {
                starts[fanin.node() + 1] += 1;
            }
        }
        for node in 0..xag.len() {
            starts[node + 1] += starts[node];
        }
        let mut ends = starts.clone();
        let mut gates = vec![0; starts[xag.len()] as usize];
        for index in xag.gate_range() {
            stop.check_at(index)?;
            for fanin in xag.node(index).fanins() {
                let end = &mut ends[fanin.node()];
                gates[*end as usize] = index as u32;
                *end += 1;
            }
        }
        Ok(Fanouts { starts, gates })
    }

    /// Returns the gates that read a node.
    pub fn of(&self, node: usize) -> &[u32] {
        &self.gates[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn a_gate_is_one_node_if_it_depends_on_both_operands_and_none_otherwise() {
        for gate in Gate::ALL {
            let circuit = Circuit::new(2, vec![Node::new(gate, 0, 1)], vec![2]).unwrap();
            let xag = Xag::from_circuit(&circuit);
            assert_eq!(xag.gates(), usize::from(gate.depends_on_a() && gate.depends_on_b()), "{gate}");
            for i in 0..4 {
                let bits = [i & 1 == 1, i & 2 == 2];
                assert_eq!(xag.to_circuit(&circuit).eval(&bits), circuit.eval(&bits), "{gate}");
            }
        }
    }

    #[test]
    fn gates_that_are_equal_up_to_inverters_are_hashed_to_one_node() {
        let gates = vec![Node::new(Gate::OR, 0, 1), Node::new(Gate::NOR, 1, 0), Node::new(Gate::XNOR, 2, 3)];
        let xag = Xag::from_circuit(&Circuit::new(2, gates, vec![2, 3, 4]).unwrap());
        assert_eq!((xag.gates(), xag.outputs()[2]), (1, Literal::FALSE));
    }

    #[test]
    fn an_inverted_output_is_absorbed_by_its_gate() {
        let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::XOR, 2, 0)];
        let mut xag = Xag::from_circuit(&Circuit::new(2, gates, vec![2, 3]).unwrap());
        xag.set_outputs(xag.outputs().iter().map(|output| output.not()).collect());
        let ports = Circuit::new(2, vec![], vec![0, 1]).unwrap();
        let circuit = xag.to_circuit(&ports);
        assert_eq!(circuit.nodes(), [Node::new(Gate::NAND, 0, 1), Node::new(Gate::XOR, 2, 0)]);
    }

    proptest! {
        #[test]
        fn converting_to_an_xag_and_back_preserves_the_function(circuit in arbitrary::circuit(0..=6, 80)) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let back = xag.to_circuit(&circuit);
            let checked = Circuit::new(back.inputs(), back.nodes().to_vec(), back.outputs().to_vec());
            prop_assert_eq!(checked.as_ref(), Ok(&back));
            prop_assert!(xag.gates() <= circuit.simplify().nodes().len());
            for i in 0..1u32 << circuit.inputs() {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|k| i >> k & 1 == 1).collect();
                prop_assert_eq!(back.eval(&bits), circuit.eval(&bits));
            }
        }

        #[test]
        fn eval_words_matches_64_single_evaluations(circuit in arbitrary::circuit(6..=6, 60)) {
            let xag = Xag::from_circuit(&circuit);
            let inputs: Vec<u64> = (0..6).map(|k| (0..64).fold(0, |w, i| w | (i >> k & 1) << i)).collect();
            let mut values = Vec::new();
            xag.eval_words(&inputs, &mut values);
            for i in 0..64 {
                let bits: Vec<bool> = (0..6).map(|k| i >> k & 1 == 1).collect();
                let expected = circuit.eval(&bits).unwrap();
                for (&output, expected) in xag.outputs().iter().zip(expected) {
                    prop_assert_eq!((values[output.node()] ^ output.mask()) >> i & 1 == 1, expected);
                }
            }
        }
    }
}
