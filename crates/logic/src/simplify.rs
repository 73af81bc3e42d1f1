//! Simplification: constant propagation, and removal of wires, inverters and dead gates.
//!
//! A trained circuit is mostly wires. One forward pass maps every signal to a *literal*: an input or a remaining gate,
//! possibly inverted, or a constant.
//!
//! ```text
//! for each gate, in order:
//!     look up the literals of its operands
//!     an operand is constant, or both are one signal:  the gate is a literal itself, or a constant
//!     an operand is inverted:                          take the gate that absorbs the inverter
//!     the resulting gate is a wire or an inverter:      the gate is that literal
//!     otherwise:                                       keep the gate
//! ```
//!
//! A backward pass then removes dead gates. Both passes use flat arrays only: training simplifies its circuit at every
//! update.

use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::literal::Literal;

/// A gate whose operands are literals, after constant propagation.
enum Reduced {
    Literal(Literal),
    Gate(Node),
}

/// Propagates constants and inverters through a gate that reads two literals.
fn reduce(gate: Gate, a: Literal, b: Literal) -> Reduced {
    if a.is_constant() {
        return Reduced::Literal(b.apply(gate.with_a(a == Literal::TRUE)));
    }
    if b.is_constant() {
        return Reduced::Literal(a.apply(gate.with_b(b == Literal::TRUE)));
    }
    let gate = if a.is_inverted() { gate.not_a() } else { gate };
    let gate = if b.is_inverted() { gate.not_b() } else { gate };
    let (a, b) = (a.signal(), b.signal());
    if a == b {
        return Reduced::Literal(Literal::from_signal(a).apply(gate.same_operand()));
    }
    Reduced::Literal(match gate {
        Gate::FALSE => Literal::FALSE,
        Gate::TRUE => Literal::TRUE,
        Gate::A => Literal::from_signal(a),
        Gate::B => Literal::from_signal(b),
        Gate::NOT_A => Literal::from_signal(a).not(),
        Gate::NOT_B => Literal::from_signal(b).not(),
        _ => return Reduced::Gate(Node::new(gate, a, b)),
    })
}

/// Returns the remaining gates, which read inputs and each other, and the literals of the outputs.
fn resolve(circuit: &Circuit) -> (Vec<Node>, Vec<Literal>) {
    let inputs = circuit.inputs() as u32;
    let mut kept: Vec<Node> = Vec::new();
    let mut literals: Vec<Literal> = Vec::with_capacity(circuit.signals());
    literals.extend((0..inputs).map(Literal::from_signal));
    for node in circuit.nodes() {
        let literal = match node.gate {
            Gate::FALSE => Literal::FALSE,
            Gate::TRUE => Literal::TRUE,
            Gate::A => literals[node.a as usize],
            Gate::B => literals[node.b as usize],
            gate => match reduce(gate, literals[node.a as usize], literals[node.b as usize]) {
                Reduced::Literal(literal) => literal,
                Reduced::Gate(node) => {
                    kept.push(node);
                    Literal::from_signal(inputs + kept.len() as u32 - 1)
                }
            },
        };
        literals.push(literal);
    }
    let outputs = circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect();
    (kept, outputs)
}

/// Removes dead gates and renumbers the others, in place.
fn drop_dead(inputs: usize, nodes: &mut Vec<Node>, outputs: &mut [Literal]) {
    // `place[i]` is first 1 if gate i is live, then its new signal.
    let mut place = vec![0u32; nodes.len()];
    let index = |signal: u32| (signal as usize).checked_sub(inputs);
    for literal in outputs.iter().filter(|literal| !literal.is_constant()) {
        if let Some(i) = index(literal.signal()) {
            place[i] = 1;
        }
    }
    for i in (0..nodes.len()).rev() {
        if place[i] == 1 {
            for operand in [nodes[i].a, nodes[i].b].into_iter().filter_map(index) {
                place[operand] = 1;
            }
        }
    }
    let mut alive = 0;
    for i in 0..nodes.len() {
        if place[i] == 1 {
            place[i] = (inputs + alive) as u32;
            let moved = |signal: u32| index(signal).map_or(signal, |operand| place[operand]);
            nodes[alive] = Node::new(nodes[i].gate, moved(nodes[i].a), moved(nodes[i].b));
            alive += 1;
        }
    }
    nodes.truncate(alive);
    for literal in outputs.iter_mut().filter(|literal| !literal.is_constant()) {
        if let Some(i) = index(literal.signal()) {
            *literal = Literal::from_signal(place[i]).invert_if(literal.is_inverted());
        }
    }
}

/// Turns output literals into signals. Each inverted signal and each constant among them takes an additional gate.
fn realise(inputs: usize, nodes: &mut Vec<Node>, outputs: &[Literal]) -> Vec<u32> {
    let mut inverters: Vec<Option<u32>> = Vec::new();
    let mut constants = [None; 2];
    let signals = inputs + nodes.len();
    let mut add = |node| {
        nodes.push(node);
        (inputs + nodes.len() - 1) as u32
    };
    let mut realise_one = |&literal: &Literal| {
        if literal.is_constant() {
            let value = usize::from(literal == Literal::TRUE);
            let gate = [Gate::FALSE, Gate::TRUE][value];
            *constants[value].get_or_insert_with(|| add(Node::new(gate, 0, 0)))
        } else if literal.is_inverted() {
            let signal = literal.signal();
            if inverters.is_empty() {
                inverters.resize(signals, None);
            }
            *inverters[signal as usize].get_or_insert_with(|| add(Node::new(Gate::NOT_A, signal, signal)))
        } else {
            literal.signal()
        }
    };
    outputs.iter().map(&mut realise_one).collect()
}

impl Circuit {
    /// Returns the same function without wires, inner constants and inverters, and dead gates.
    ///
    /// Every gate of the result depends on both of its operands, except for inverters and constants that are
    /// outputs. The time is linear in the number of gates. Equal gates are not merged.
    ///
    /// ```
    /// use gatework_logic::{Circuit, Gate, Node};
    ///
    /// // An inverter, a wire, and a gate that reads both.
    /// let gates = vec![Node::new(Gate::NOT_A, 0, 1), Node::new(Gate::B, 0, 1), Node::new(Gate::AND, 2, 3)];
    /// let simple = Circuit::new(2, gates, vec![4])?.simplify();
    /// assert_eq!(simple.nodes(), [Node::new(Gate::NOT_A_AND_B, 0, 1)]);
    /// # Ok::<(), gatework_logic::CircuitError>(())
    /// ```
    #[must_use]
    pub fn simplify(&self) -> Circuit {
        let (mut nodes, mut outputs) = resolve(self);
        drop_dead(self.inputs(), &mut nodes, &mut outputs);
        let outputs = realise(self.inputs(), &mut nodes, &outputs);
        self.with_gates(nodes, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    fn simplify<const N: usize>(inputs: usize, gates: [(Gate, u32, u32); N], outputs: Vec<u32>) -> Circuit {
        let nodes = gates.into_iter().map(|(gate, a, b)| Node::new(gate, a, b)).collect();
        Circuit::new(inputs, nodes, outputs).unwrap().simplify()
    }

    #[test]
    fn outputs_may_be_inputs() {
        let simple = simplify(2, [(Gate::A, 1, 0), (Gate::NOT_B, 0, 2), (Gate::NOT_A, 3, 3)], vec![0, 2, 4]);
        assert_eq!((simple.nodes(), simple.outputs()), (&[][..], &[0, 1, 1][..]));
    }

    #[test]
    fn outputs_share_constants_and_inverters() {
        let gates = [(Gate::XOR, 0, 0), (Gate::NOT_A, 1, 0), (Gate::NAND, 0, 0), (Gate::NOT_A, 0, 0)];
        let simple = simplify(1, gates, vec![1, 2, 3, 4, 1]);
        let expected =
            [Node::new(Gate::FALSE, 0, 0), Node::new(Gate::TRUE, 0, 0), Node::new(Gate::NOT_A, 0, 0)];
        assert_eq!((simple.nodes(), simple.outputs()), (&expected[..], &[1, 2, 3, 3, 1][..]));
    }

    #[test]
    fn dead_gates_are_removed() {
        let simple = simplify(2, [(Gate::AND, 0, 1), (Gate::OR, 0, 1), (Gate::XOR, 2, 3)], vec![3]);
        assert_eq!((simple.nodes(), simple.outputs()), (&[Node::new(Gate::OR, 0, 1)][..], &[2][..]));
    }

    #[test]
    fn port_names_are_preserved() {
        let circuit = Circuit::new(1, vec![], vec![0]).unwrap();
        let named = circuit.with_names(vec!["in".into()], vec!["out".into()]).unwrap();
        assert_eq!(named.simplify(), named);
    }

    proptest! {
        #[test]
        fn the_function_is_preserved_for_every_input(circuit in arbitrary::circuit(0..=6, 80)) {
            let simple = circuit.simplify();
            for i in 0..1u32 << circuit.inputs() {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|k| i >> k & 1 == 1).collect();
                prop_assert_eq!(simple.eval(&bits), circuit.eval(&bits));
            }
        }

        #[test]
        fn the_function_is_preserved_for_many_inputs(
            circuit in arbitrary::circuit(7..=100, 300),
            bits in prop::collection::vec(any::<bool>(), 400),
        ) {
            let simple = circuit.simplify();
            for bits in bits.windows(circuit.inputs()).step_by(17) {
                prop_assert_eq!(simple.eval(bits), circuit.eval(bits));
            }
        }

        #[test]
        fn the_result_is_legal_and_simple(circuit in arbitrary::circuit(0..=20, 200)) {
            let simple = circuit.simplify();
            let nodes = simple.nodes().to_vec();
            let checked = Circuit::new(simple.inputs(), nodes, simple.outputs().to_vec());
            prop_assert_eq!(checked.as_ref(), Ok(&simple));
            prop_assert_eq!(simple.reachable(), simple.nodes().len());
            prop_assert!(simple.nodes().len() <= circuit.reachable() + circuit.outputs().len());
            for (i, node) in simple.nodes().iter().enumerate() {
                let both = node.gate.depends_on_a() && node.gate.depends_on_b() && node.a != node.b;
                prop_assert!(both || simple.outputs().contains(&((simple.inputs() + i) as u32)));
            }
        }

        #[test]
        fn simplifying_twice_changes_nothing(circuit in arbitrary::circuit(0..=20, 200)) {
            let once = circuit.simplify();
            prop_assert_eq!(once.simplify(), once);
        }
    }
}
