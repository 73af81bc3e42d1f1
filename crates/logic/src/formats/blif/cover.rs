//! Synthesis of covers: the cubes of a `.names` as a tree of two-input gates.
//!
//! A cover of at most two inputs is one gate. In a larger one, every cube is a balanced tree of ANDs over its literals,
//! and the cover is a balanced tree of ORs over its cubes, so the depth is logarithmic.

use crate::circuit::Node;
use crate::gate::Gate;

/// A cover: a sum of products, or the complement of one.
#[derive(Debug, Default)]
pub(super) struct Cover<'t> {
    /// One character for each input: `0`, `1` or `-`.
    pub cubes: Vec<&'t str>,
    /// Whether the cubes are the off-set of the function.
    pub complemented: bool,
}

/// A signal, and whether it is inverted.
pub(super) type SignedSignal = (u32, bool);

/// A list of gates under construction.
#[derive(Debug)]
pub(super) struct Gates {
    inputs: usize,
    pub nodes: Vec<Node>,
}

impl Gates {
    pub fn new(inputs: usize) -> Gates {
        Gates { inputs, nodes: Vec::new() }
    }

    fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        (self.inputs + self.nodes.len() - 1) as u32
    }

    fn constant(&mut self, value: bool) -> u32 {
        self.push(Node::new(if value { Gate::TRUE } else { Gate::FALSE }, 0, 0))
    }

    /// Adds a gate, which absorbs the inverters of its operands.
    fn gate(&mut self, gate: Gate, (a, not_a): SignedSignal, (b, not_b): SignedSignal) -> u32 {
        let gate = if not_a { gate.not_a() } else { gate };
        self.push(Node::new(if not_b { gate.not_b() } else { gate }, a, b))
    }

    /// Adds a balanced tree of an associative gate.
    fn tree(&mut self, gate: Gate, mut literals: Vec<SignedSignal>) -> Option<SignedSignal> {
        while literals.len() > 1 {
            let pairs = literals.chunks(2).map(|pair| match *pair {
                [left, right] => (self.gate(gate, left, right), false),
                _ => pair[0],
            });
            literals = pairs.collect();
        }
        literals.pop()
    }

    /// Adds the gates of a cover and returns its signal.
    pub fn cover(&mut self, cover: &Cover, operands: &[u32]) -> u32 {
        match *operands {
            [] => self.constant(cover.value(&[])),
            [a] => {
                let [at_0, at_1] = [false, true].map(|bit| cover.value(&[bit]));
                let gate = [[Gate::FALSE, Gate::A], [Gate::NOT_A, Gate::TRUE]];
                self.push(Node::new(gate[usize::from(at_0)][usize::from(at_1)], a, a))
            }
            [a, b] => {
                let value = |a, b| u8::from(cover.value(&[a, b]));
                let index = value(true, true)
                    | value(true, false) << 1
                    | value(false, true) << 2
                    | value(false, false) << 3;
                self.push(Node::new(Gate::ALL[usize::from(index)], a, b))
            }
            _ => self.sum_of_products(cover, operands),
        }
    }

    fn sum_of_products(&mut self, cover: &Cover, operands: &[u32]) -> u32 {
        let mut products = Vec::with_capacity(cover.cubes.len());
        for cube in &cover.cubes {
            let literals = cube.bytes().zip(operands).filter(|(bit, _)| *bit != b'-');
            match self.tree(Gate::AND, literals.map(|(bit, &operand)| (operand, bit == b'0')).collect()) {
                Some(product) => products.push(product),
                None => return self.constant(!cover.complemented),
            }
        }
        match self.tree(Gate::OR, products) {
            None => self.constant(cover.complemented),
            Some((signal, inverted)) if inverted == cover.complemented => signal,
            Some((signal, _)) => self.push(Node::new(Gate::NOT_A, signal, signal)),
        }
    }
}

impl Cover<'_> {
    /// The value at one point.
    fn value(&self, bits: &[bool]) -> bool {
        let covers =
            |cube: &&str| cube.bytes().zip(bits).all(|(bit, &value)| bit == b'-' || (bit == b'1') == value);
        self.cubes.iter().any(covers) != self.complemented
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Circuit;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gates_compute_the_cover(
            (cubes, inputs) in (0usize..6).prop_flat_map(|inputs| {
                let cube = prop::collection::vec(prop_oneof![Just('0'), Just('1'), Just('-')], inputs);
                (prop::collection::vec(cube.prop_map(String::from_iter), 0..8), Just(inputs))
            }),
            complemented in any::<bool>(),
        ) {
            let cover = Cover { cubes: cubes.iter().map(String::as_str).collect(), complemented };
            let mut gates = Gates::new(inputs);
            let output = gates.cover(&cover, &(0..inputs as u32).collect::<Vec<_>>());
            let circuit = Circuit::new(inputs, gates.nodes, vec![output]).unwrap();
            for point in 0..1u32 << inputs {
                let bits: Vec<bool> = (0..inputs).map(|k| point >> k & 1 == 1).collect();
                prop_assert_eq!(circuit.eval(&bits).unwrap(), [cover.value(&bits)]);
            }
        }
    }
}
