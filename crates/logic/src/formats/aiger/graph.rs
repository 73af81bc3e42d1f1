//! And-inverter graphs: a circuit as ANDs and inverters, and back.
//!
//! A literal is `2 * variable + inverted`; variable 0 is the constant 0, the inputs (latches last) are the
//! variables from 1, the ANDs follow. A circuit reads signals from 0, so input `i` is variable `i + 1`.

use crate::circuit::{Circuit, Node};
use crate::formats::FormatError;
use crate::formats::sequential::Sequential;
use crate::gate::Gate;

/// The largest literal that AIGER tools are sure to read.
const MAX_LITERAL: usize = i32::MAX as usize;

/// An AND and the literals it reads.
pub(super) type And = [u32; 2];

/// An and-inverter graph; every AND reads smaller variables.
#[derive(Debug)]
pub(super) struct Graph {
    /// Inputs, latches included.
    pub inputs: usize,
    pub ands: Vec<And>,
    /// The literals of the outputs, latches included.
    pub outputs: Vec<u32>,
}

impl Graph {
    /// The graph of a circuit. An XOR takes three ANDs, other gates one or none.
    pub fn of(sequential: &Sequential) -> Result<Graph, FormatError> {
        let circuit = &sequential.circuit;
        if 2 * (circuit.inputs() + 3 * circuit.nodes().len()) + 1 > MAX_LITERAL {
            let message = format!("{} gates may need literals beyond {MAX_LITERAL}", circuit.nodes().len());
            return Err(FormatError::TooLarge { format: "AIGER", message });
        }
        let mut graph = Graph { inputs: circuit.inputs(), ands: Vec::new(), outputs: Vec::new() };
        let mut literals: Vec<u32> = (1..=circuit.inputs() as u32).map(|variable| 2 * variable).collect();
        for node in circuit.nodes() {
            let literal = if node.gate.is_constant() {
                u32::from(node.gate == Gate::TRUE)
            } else {
                graph.gate(node.gate, literals[node.a as usize], literals[node.b as usize])
            };
            literals.push(literal);
        }
        graph.outputs = circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect();
        Ok(graph)
    }

    fn and(&mut self, a: u32, b: u32) -> u32 {
        match [a.min(b), a.max(b)] {
            [0, _] => 0,
            [1, other] => other,
            [a, b] if a == b => a,
            [a, b] if a ^ 1 == b => 0,
            [a, b] => {
                self.ands.push([b, a]);
                2 * (self.inputs + self.ands.len()) as u32
            }
        }
    }

    /// The literal of a gate that reads two literals.
    fn gate(&mut self, gate: Gate, a: u32, b: u32) -> u32 {
        // Of a gate and its complement, the one with fewer ones is an AND, a wire, an XOR or a constant.
        let inverted =
            gate.index().count_ones() > 2 || matches!(gate, Gate::NOT_A | Gate::NOT_B | Gate::XNOR);
        let literal = match if inverted { gate.not() } else { gate } {
            Gate::A => a,
            Gate::B => b,
            Gate::AND => self.and(a, b),
            Gate::A_AND_NOT_B => self.and(a, b ^ 1),
            Gate::NOT_A_AND_B => self.and(a ^ 1, b),
            Gate::NOR => self.and(a ^ 1, b ^ 1),
            Gate::XOR => {
                // Of the signals themselves, whatever is inverted: the same XOR is always the same ANDs.
                let ([x, y], differ) = ([a & !1, b & !1], (a ^ b) & 1);
                let (both, neither) = (self.and(x, y), self.and(x ^ 1, y ^ 1));
                self.and(both ^ 1, neither ^ 1) ^ differ
            }
            _ => 0,
        };
        literal ^ u32::from(inverted)
    }

    /// The circuit of the graph, simplified.
    pub fn circuit(self) -> Result<Circuit, FormatError> {
        let inputs = self.inputs;
        let complements = self.complements();
        let is_complement = |literal: u32| complements[(literal >> 1) as usize];
        // Gate 0 of the circuit is the constant 0, so AND `i` is gate `i + 1`.
        let signal = |literal: u32| match (literal >> 1) as usize {
            0 => inputs as u32,
            variable if variable <= inputs => variable as u32 - 1,
            variable => variable as u32,
        };
        let is_inverted = |literal: u32| (literal & 1 == 1) != is_complement(literal);
        let node = |gate: Gate, a: u32, b: u32| {
            let gate = if is_inverted(a) { gate.not_a() } else { gate };
            Node::new(if is_inverted(b) { gate.not_b() } else { gate }, signal(a), signal(b))
        };
        let mut nodes = Vec::with_capacity(self.ands.len() + 1);
        nodes.push(Node::new(Gate::FALSE, 0, 0));
        for (i, &and) in self.ands.iter().enumerate() {
            let (gate, [a, b]) = self.xor(and).map_or((Gate::AND, and), |operands| (Gate::XOR, operands));
            let gate = if complements[inputs + 1 + i] { gate.not() } else { gate };
            nodes.push(node(gate, b, a));
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for &literal in &self.outputs {
            if is_inverted(literal) {
                nodes.push(Node::new(Gate::NOT_A, signal(literal), signal(literal)));
                outputs.push((inputs + nodes.len() - 1) as u32);
            } else {
                outputs.push(signal(literal));
            }
        }
        Ok(Circuit::new(inputs, nodes, outputs)?.simplify())
    }

    /// For each variable whether its gate computes the complement: it is an AND of which some output is the
    /// complement, and none the AND itself. So a NAND that is an output needs no inverter.
    fn complements(&self) -> Vec<bool> {
        let mut complements = vec![false; self.inputs + 1 + self.ands.len()];
        for inverted in [1, 0] {
            for literal in self.outputs.iter().filter(|&&literal| literal & 1 == inverted) {
                let variable = (literal >> 1) as usize;
                complements[variable] = inverted == 1 && variable > self.inputs;
            }
        }
        complements
    }

    /// The operands of the XOR that an AND is the last of: `!(a & b) & !(!a & !b)`.
    fn xor(&self, [left, right]: And) -> Option<[u32; 2]> {
        let operands = |literal: u32| {
            let and = ((literal >> 1) as usize).checked_sub(self.inputs + 1)?;
            self.ands.get(and).filter(|_| literal & 1 == 1).copied()
        };
        let ([a, b], [c, d]) = (operands(left)?, operands(right)?);
        (a ^ 1 == c && b ^ 1 == d || a ^ 1 == d && b ^ 1 == c).then_some([a, b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn every_gate_becomes_ands_and_comes_back() {
        for gate in Gate::ALL {
            let circuit = Circuit::new(2, vec![Node::new(gate, 0, 1)], vec![2]).unwrap();
            let graph = Graph::of(&circuit.clone().into()).unwrap();
            let ands = [0, 1, 3][usize::from(gate.depends_on_a() && gate.depends_on_b())
                + usize::from(matches!(gate, Gate::XOR | Gate::XNOR))];
            assert_eq!(graph.ands.len(), ands, "{gate}");
            arbitrary::assert_same_function(&graph.circuit().unwrap(), &circuit);
        }
    }

    #[test]
    fn an_xor_is_one_gate_again() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::XOR, 0, 1)], vec![2]).unwrap();
        assert_eq!(Graph::of(&circuit.clone().into()).unwrap().circuit().unwrap(), circuit);
    }

    proptest! {
        #[test]
        fn the_function_stays(circuit in arbitrary::circuit(0..=20, 100)) {
            let graph = Graph::of(&circuit.clone().into()).unwrap();
            for (i, [a, b]) in graph.ands.iter().enumerate() {
                let variable = (graph.inputs + 1 + i) as u32;
                prop_assert!(2 * variable > *a && a >= b && *b > 1);
            }
            arbitrary::assert_same_function(&graph.circuit().unwrap(), &circuit);
        }
    }
}
