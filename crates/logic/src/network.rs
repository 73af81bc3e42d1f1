//! The network that minimising and proving work on: AND and XOR vertices with inverters on the edges.
//!
//! Ten of the sixteen gates depend on both operands. Eight of them are an AND with inverters around it, two
//! are an XOR with or without an inverter behind it. A gate absorbs the inverters of its operands and of its
//! result, so they cost nothing, and two kinds of vertices say everything: the number of vertices *is* the
//! number of two-input gates. What is equal up to inverters is the same vertex, which one hash table
//! guarantees while the network grows.
//!
//! Vertex 0 is the constant 0, vertices `1..=inputs` are the inputs, the others read only vertices before
//! them.

use crate::circuit::{Circuit, CircuitError, Node};
use crate::gate::{Gate, Unary};
pub(crate) use crate::literal::Literal;
use rustc_hash::FxHashMap;

/// What a vertex computes of its two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    And,
    Xor,
}

/// The operands of a vertex, in the order that tells the operation: an AND has the smaller literal first, an
/// XOR the larger one. The operands of an XOR are never inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Vertex {
    pub a: Literal,
    pub b: Literal,
}

impl Vertex {
    /// Stands for the constant and the inputs.
    pub const LEAF: Vertex = Vertex { a: Literal::FALSE, b: Literal::FALSE };

    pub fn operation(self) -> Operation {
        if self.a <= self.b { Operation::And } else { Operation::Xor }
    }

    pub fn operands(self) -> [Literal; 2] {
        [self.a, self.b]
    }

    /// The values for 64 assignments of the operands.
    pub fn eval_word(self, a: u64, b: u64) -> u64 {
        match self.operation() {
            Operation::And => (a ^ self.a.mask()) & (b ^ self.b.mask()),
            Operation::Xor => a ^ b,
        }
    }
}

/// What an operation on two literals is: something that exists anyway, or a vertex and an inverter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Normal {
    Literal(Literal),
    Vertex(Vertex, bool),
}

/// The normal form of an AND.
pub(crate) fn normal_and(a: Literal, b: Literal) -> Normal {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    if a == Literal::FALSE || a == b.not() {
        Normal::Literal(Literal::FALSE)
    } else if a == Literal::TRUE || a == b {
        Normal::Literal(b)
    } else {
        Normal::Vertex(Vertex { a, b }, false)
    }
}

/// The normal form of an XOR.
pub(crate) fn normal_xor(a: Literal, b: Literal) -> Normal {
    let inverted = a.is_inverted() != b.is_inverted();
    let (a, b) = (Literal(a.0 & !1), Literal(b.0 & !1));
    let (a, b) = if a >= b { (a, b) } else { (b, a) };
    if a == b {
        Normal::Literal(Literal::FALSE.invert_if(inverted))
    } else if b == Literal::FALSE {
        Normal::Literal(a.invert_if(inverted))
    } else {
        Normal::Vertex(Vertex { a, b }, inverted)
    }
}

/// The normal form of an operation.
pub(crate) fn normal(operation: Operation, a: Literal, b: Literal) -> Normal {
    match operation {
        Operation::And => normal_and(a, b),
        Operation::Xor => normal_xor(a, b),
    }
}

/// A network of AND and XOR vertices.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    inputs: usize,
    vertices: Vec<Vertex>,
    outputs: Vec<Literal>,
    table: FxHashMap<Vertex, u32>,
}

impl Network {
    /// A network without gates.
    pub fn new(inputs: usize) -> Network {
        let vertices = vec![Vertex::LEAF; inputs + 1];
        Network { inputs, vertices, outputs: Vec::new(), table: FxHashMap::default() }
    }

    /// The network of a circuit. Wires, inverters and constants disappear, equal gates become one; gates that
    /// no output reads stay.
    pub fn of(circuit: &Circuit) -> Network {
        let mut network = Network::new(circuit.inputs());
        network.outputs = network.add(circuit);
        network
    }

    /// Adds a circuit on the inputs of the network and returns the literals of its outputs.
    pub fn add(&mut self, circuit: &Circuit) -> Vec<Literal> {
        self.add_on(circuit, (0..self.inputs).map(Literal::input).collect())
    }

    /// Adds a circuit on these literals and returns those of its outputs.
    pub fn add_on(&mut self, circuit: &Circuit, mut literals: Vec<Literal>) -> Vec<Literal> {
        literals.reserve(circuit.nodes().len());
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

    /// Adds another network, with these vertices as its inputs, and returns the literals of its outputs.
    pub fn add_network(&mut self, other: &Network, inputs: &[usize]) -> Vec<Literal> {
        let mut literals = vec![Literal::FALSE];
        literals.extend(inputs.iter().map(|&vertex| Literal::new(vertex, false)));
        for number in other.gate_range() {
            let vertex = other.vertex(number);
            let [a, b] = vertex.operands().map(|o| literals[o.vertex()].invert_if(o.is_inverted()));
            literals.push(self.operation(vertex.operation(), a, b));
        }
        other.outputs().iter().map(|o| literals[o.vertex()].invert_if(o.is_inverted())).collect()
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of vertices, with the constant and the inputs.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// The number of AND and XOR vertices.
    pub fn gates(&self) -> usize {
        self.vertices.len() - self.inputs - 1
    }

    /// The numbers of the AND and XOR vertices.
    pub fn gate_range(&self) -> std::ops::Range<usize> {
        self.inputs + 1..self.vertices.len()
    }

    pub fn vertex(&self, vertex: usize) -> Vertex {
        self.vertices[vertex]
    }

    pub fn is_gate(&self, vertex: usize) -> bool {
        vertex > self.inputs
    }

    pub fn outputs(&self) -> &[Literal] {
        &self.outputs
    }

    pub fn set_outputs(&mut self, outputs: Vec<Literal>) {
        self.outputs = outputs;
    }

    pub fn and(&mut self, a: Literal, b: Literal) -> Literal {
        self.normal(normal_and(a, b))
    }

    pub fn xor(&mut self, a: Literal, b: Literal) -> Literal {
        self.normal(normal_xor(a, b))
    }

    pub fn or(&mut self, a: Literal, b: Literal) -> Literal {
        self.and(a.not(), b.not()).not()
    }

    pub fn operation(&mut self, operation: Operation, a: Literal, b: Literal) -> Literal {
        self.normal(normal(operation, a, b))
    }

    /// Any of the sixteen gates.
    pub fn gate(&mut self, gate: Gate, a: Literal, b: Literal) -> Literal {
        let (x, y) = (gate.with_a(false), gate.with_a(true));
        match (x, y) {
            _ if x == y => b.apply(x),
            (Unary::False, _) => {
                let b = b.apply(y);
                self.and(a, b)
            }
            (_, Unary::False) => {
                let b = b.apply(x);
                self.and(a.not(), b)
            }
            (Unary::True, _) => {
                let b = b.apply(y);
                self.and(a, b.not()).not()
            }
            (_, Unary::True) => {
                let b = b.apply(x);
                self.and(a.not(), b.not()).not()
            }
            _ => self.xor(a, b).invert_if(x == Unary::Not),
        }
    }

    fn normal(&mut self, normal: Normal) -> Literal {
        match normal {
            Normal::Literal(literal) => literal,
            Normal::Vertex(vertex, inverted) => {
                let next = self.vertices.len() as u32;
                let number = *self.table.entry(vertex).or_insert(next);
                if number == next {
                    self.vertices.push(vertex);
                }
                Literal::new(number as usize, inverted)
            }
        }
    }

    /// How many operands and outputs read each vertex.
    pub fn references(&self) -> Vec<u32> {
        let mut references = vec![0; self.len()];
        let operands = self.vertices[self.inputs + 1..].iter().flat_map(|vertex| vertex.operands());
        for literal in operands.chain(self.outputs.iter().copied()) {
            references[literal.vertex()] += 1;
        }
        references
    }

    /// The network without the gates that no output reads.
    pub fn without_dead_gates(&self) -> Network {
        let mut needed = vec![false; self.len()];
        for output in &self.outputs {
            needed[output.vertex()] = true;
        }
        for vertex in self.gate_range().rev() {
            if needed[vertex] {
                for operand in self.vertices[vertex].operands() {
                    needed[operand.vertex()] = true;
                }
            }
        }
        let mut kept = Network::new(self.inputs);
        let mut moved: Vec<Literal> = (0..=self.inputs).map(|vertex| Literal::new(vertex, false)).collect();
        moved.resize(self.len(), Literal::FALSE);
        for number in self.gate_range().filter(|&vertex| needed[vertex]) {
            let vertex = self.vertices[number];
            let [a, b] = vertex.operands().map(|o| moved[o.vertex()].invert_if(o.is_inverted()));
            moved[number] = kept.operation(vertex.operation(), a, b);
        }
        kept.outputs = self.outputs.iter().map(|o| moved[o.vertex()].invert_if(o.is_inverted())).collect();
        kept
    }

    /// The values of all vertices for 64 assignments of the inputs.
    pub fn eval_words(&self, inputs: &[u64], values: &mut Vec<u64>) {
        values.clear();
        values.push(0);
        values.extend_from_slice(inputs);
        for number in self.gate_range() {
            let vertex = self.vertices[number];
            values.push(vertex.eval_word(values[vertex.a.vertex()], values[vertex.b.vertex()]));
        }
    }

    /// A circuit of one gate per vertex, and an inverter or a constant for outputs that need one. A vertex
    /// whose outputs are all inverted becomes the inverted gate.
    pub fn to_circuit(&self, ports: &Circuit) -> Circuit {
        let (nodes, outputs) = self.to_gates();
        ports.with_gates(nodes, outputs)
    }

    /// A circuit as [`Network::to_circuit`] makes it, with other names for its ports; empty lists stand for the
    /// default names.
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
        let mut wanted = vec![[false; 2]; self.len()];
        for output in &self.outputs {
            wanted[output.vertex()][usize::from(output.is_inverted())] = true;
        }
        let inverted: Vec<bool> =
            (0..self.len()).map(|vertex| vertex >= first && wanted[vertex] == [false, true]).collect();
        let build = |number: usize| {
            let vertex = self.vertices[number];
            let gate = match vertex.operation() {
                Operation::And => Gate::AND,
                Operation::Xor => Gate::XOR,
            };
            let [not_a, not_b] = vertex.operands().map(|o| o.is_inverted() != inverted[o.vertex()]);
            let gate = if not_a { gate.not_a() } else { gate };
            let gate = if not_b { gate.not_b() } else { gate };
            let gate = if inverted[number] { gate.not() } else { gate };
            Node::new(gate, vertex.a.vertex() as u32 - 1, vertex.b.vertex() as u32 - 1)
        };
        let mut nodes: Vec<Node> = self.gate_range().map(build).collect();
        let outputs = self.realise_outputs(&inverted, &mut nodes);
        (nodes, outputs)
    }

    /// The signals of the outputs, with one more gate for each constant and each inverter that is left.
    fn realise_outputs(&self, inverted: &[bool], nodes: &mut Vec<Node>) -> Vec<u32> {
        let mut added: FxHashMap<Literal, u32> = FxHashMap::default();
        let mut realise = |&output: &Literal| {
            let vertex = output.vertex();
            if vertex > 0 && output.is_inverted() == inverted[vertex] {
                return vertex as u32 - 1;
            }
            *added.entry(output).or_insert_with(|| {
                nodes.push(match output {
                    Literal::FALSE => Node::new(Gate::FALSE, 0, 0),
                    Literal::TRUE => Node::new(Gate::TRUE, 0, 0),
                    _ => Node::new(Gate::NOT_A, vertex as u32 - 1, vertex as u32 - 1),
                });
                (self.inputs + nodes.len() - 1) as u32
            })
        };
        self.outputs.iter().map(&mut realise).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn every_gate_is_one_vertex_or_none() {
        for gate in Gate::ALL {
            let circuit = Circuit::new(2, vec![Node::new(gate, 0, 1)], vec![2]).unwrap();
            let network = Network::of(&circuit);
            assert_eq!(network.gates(), usize::from(gate.depends_on_a() && gate.depends_on_b()), "{gate}");
            for i in 0..4 {
                let bits = [i & 1 == 1, i & 2 == 2];
                assert_eq!(network.to_circuit(&circuit).eval(&bits), circuit.eval(&bits), "{gate}");
            }
        }
    }

    #[test]
    fn gates_that_are_equal_up_to_inverters_are_one() {
        let gates = vec![Node::new(Gate::OR, 0, 1), Node::new(Gate::NOR, 1, 0), Node::new(Gate::XNOR, 2, 3)];
        let network = Network::of(&Circuit::new(2, gates, vec![2, 3, 4]).unwrap());
        assert_eq!((network.gates(), network.outputs()[2]), (1, Literal::FALSE));
    }

    #[test]
    fn an_inverted_output_needs_no_inverter() {
        let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::XOR, 2, 0)];
        let mut network = Network::of(&Circuit::new(2, gates, vec![2, 3]).unwrap());
        network.set_outputs(network.outputs().iter().map(|output| output.not()).collect());
        let ports = Circuit::new(2, vec![], vec![0, 1]).unwrap();
        let circuit = network.to_circuit(&ports);
        assert_eq!(circuit.nodes(), [Node::new(Gate::NAND, 0, 1), Node::new(Gate::XOR, 2, 0)]);
    }

    proptest! {
        #[test]
        fn the_function_stays(circuit in arbitrary::circuit(0..=6, 80)) {
            let network = Network::of(&circuit).without_dead_gates();
            let back = network.to_circuit(&circuit);
            let checked = Circuit::new(back.inputs(), back.nodes().to_vec(), back.outputs().to_vec());
            prop_assert_eq!(checked.as_ref(), Ok(&back));
            prop_assert!(network.gates() <= circuit.simplify().nodes().len());
            for i in 0..1u32 << circuit.inputs() {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|k| i >> k & 1 == 1).collect();
                prop_assert_eq!(back.eval(&bits), circuit.eval(&bits));
            }
        }

        #[test]
        fn words_are_64_evaluations(circuit in arbitrary::circuit(6..=6, 60)) {
            let network = Network::of(&circuit);
            let inputs: Vec<u64> = (0..6).map(|k| (0..64).fold(0, |w, i| w | (i >> k & 1) << i)).collect();
            let mut values = Vec::new();
            network.eval_words(&inputs, &mut values);
            for i in 0..64 {
                let bits: Vec<bool> = (0..6).map(|k| i >> k & 1 == 1).collect();
                let expected = circuit.eval(&bits).unwrap();
                for (&output, expected) in network.outputs().iter().zip(expected) {
                    prop_assert_eq!((values[output.vertex()] ^ output.mask()) >> i & 1 == 1, expected);
                }
            }
        }
    }
}
