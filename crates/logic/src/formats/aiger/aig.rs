//! And-inverter graphs, and their conversion from and to XAGs.
//!
//! Variables are the nodes of a [`Literal`]: 0 is the constant, the inputs (latches last) follow from 1, the ANDs come
//! after them. An AIGER file holds the same numbers.

use crate::circuit::{Circuit, Node};
use crate::formats::FormatError;
use crate::formats::sequential::Sequential;
use crate::literal::Literal;
use crate::xag::{Operation, Xag};

/// The largest literal that AIGER tools are sure to read.
const MAX_LITERAL: usize = i32::MAX as usize;

/// An AND and the literals it reads.
pub(super) type And = [Literal; 2];

/// An and-inverter graph; every AND reads smaller variables.
#[derive(Debug)]
pub(super) struct Aig {
    /// The number of inputs and latches.
    pub inputs: usize,
    pub ands: Vec<And>,
    /// The outputs, then the next values of the latches.
    pub outputs: Vec<Literal>,
}

impl Aig {
    /// The AIG of a circuit, with structural hashing. An XOR takes three ANDs, other gates one or none.
    pub fn new(sequential: &Sequential) -> Result<Aig, FormatError> {
        let circuit = &sequential.circuit;
        if 2 * (circuit.inputs() + 3 * circuit.nodes().len()) + 1 > MAX_LITERAL {
            let message = format!("{} gates may need literals beyond {MAX_LITERAL}", circuit.nodes().len());
            return Err(FormatError::TooLarge { format: "AIGER", message });
        }
        Ok(Aig::from_xag(&Xag::from_circuit(circuit).without_dead_gates()))
    }

    fn from_xag(xag: &Xag) -> Aig {
        let mut aig = Aig { inputs: xag.inputs(), ands: Vec::new(), outputs: Vec::new() };
        let mut literals: Vec<Literal> = (0..=xag.inputs()).map(|node| Literal::new(node, false)).collect();
        let map = |literals: &[Literal], literal: Literal| {
            literals[literal.node()].invert_if(literal.is_inverted())
        };
        for index in xag.gate_range() {
            let node = xag.node(index);
            let [a, b] = node.fanins().map(|operand| map(&literals, operand));
            literals.push(match node.operation() {
                Operation::And => aig.and(a, b),
                Operation::Xor => {
                    let (both, neither) = (aig.and(a, b), aig.and(a.not(), b.not()));
                    aig.and(both.not(), neither.not())
                }
            });
        }
        aig.outputs = xag.outputs().iter().map(|&output| map(&literals, output)).collect();
        aig
    }

    /// Adds an AND; the larger literal comes first, as in a file.
    fn and(&mut self, a: Literal, b: Literal) -> Literal {
        self.ands.push([a.max(b), a.min(b)]);
        Literal::new(self.inputs + self.ands.len(), false)
    }

    /// The circuit of the graph, in which every gate reads the smaller signal first.
    pub fn to_circuit(&self) -> Result<Circuit, FormatError> {
        let circuit = self.to_xag().to_named_circuit(Vec::new(), Vec::new())?;
        let sorted = |&Node { gate, a, b }: &Node| {
            if a <= b { Node::new(gate, a, b) } else { Node::new(gate.swap(), b, a) }
        };
        let nodes = circuit.nodes().iter().map(sorted).collect();
        Ok(Circuit::new(self.inputs, nodes, circuit.outputs().to_vec())?)
    }

    /// The XAG of the graph. Three ANDs that compute an XOR become one node.
    fn to_xag(&self) -> Xag {
        let mut xag = Xag::new(self.inputs);
        let mut literals: Vec<Literal> = (0..=self.inputs).map(|node| Literal::new(node, false)).collect();
        for &and in &self.ands {
            let xor = self.xor_operands(and);
            let [a, b] = xor.unwrap_or(and).map(|o| literals[o.node()].invert_if(o.is_inverted()));
            literals.push(if xor.is_some() { xag.xor(a, b) } else { xag.and(a, b) });
        }
        let outputs = self.outputs.iter().map(|o| literals[o.node()].invert_if(o.is_inverted()));
        xag.set_outputs(outputs.collect());
        xag.without_dead_gates()
    }

    /// The operands of the XOR that an AND is the last of: `!(a & b) & !(!a & !b)`.
    fn xor_operands(&self, [left, right]: And) -> Option<And> {
        let operands = |literal: Literal| {
            let and = literal.node().checked_sub(self.inputs + 1)?;
            self.ands.get(and).filter(|_| literal.is_inverted()).copied()
        };
        let ([a, b], [c, d]) = (operands(left)?, operands(right)?);
        (a.not() == c && b.not() == d || a.not() == d && b.not() == c).then_some([a, b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::gate::Gate;
    use proptest::prelude::*;

    #[test]
    fn every_gate_becomes_ands_and_comes_back() {
        for gate in Gate::ALL {
            let circuit = Circuit::new(2, vec![Node::new(gate, 0, 1)], vec![2]).unwrap();
            let aig = Aig::new(&circuit.clone().into()).unwrap();
            let ands = [0, 1, 3][usize::from(gate.depends_on_a() && gate.depends_on_b())
                + usize::from(matches!(gate, Gate::XOR | Gate::XNOR))];
            assert_eq!(aig.ands.len(), ands, "{gate}");
            arbitrary::assert_same_function(&aig.to_circuit().unwrap(), &circuit);
        }
    }

    #[test]
    fn three_ands_are_an_xor_again() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::XOR, 0, 1)], vec![2]).unwrap();
        assert_eq!(Aig::new(&circuit.clone().into()).unwrap().to_circuit().unwrap(), circuit);
    }

    proptest! {
        #[test]
        fn the_function_is_preserved(circuit in arbitrary::circuit(0..=20, 100)) {
            let aig = Aig::new(&circuit.clone().into()).unwrap();
            for (i, [a, b]) in aig.ands.iter().enumerate() {
                prop_assert!(aig.inputs + 1 + i > a.node() && a >= b && !b.is_constant());
            }
            arbitrary::assert_same_function(&aig.to_circuit().unwrap(), &circuit);
        }
    }
}
