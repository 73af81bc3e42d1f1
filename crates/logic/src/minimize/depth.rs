//! Reduces the depth of an XAG at the cost of gates.
//!
//! ```text
//! balance:  trees of ANDs or of XORs are rebuilt so that the operands that arrive last pass the fewest gates
//! select:   the gates between a late operand and a late gate are computed for both values of the operand, which then
//!           selects one of the two results, as in a carry-select adder
//! ```
//!
//! Both repeat until the limit is reached, or the depth does not shrink any more.

use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Operation, Xag, translate};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The largest number of gates between the operand and the gate of a selection.
const MAX_SPAN: usize = 12;
/// The most gates that a selection computes twice.
const MAX_CONE: usize = 64;
/// The most gates of the result, as a multiple of those of the original, and in addition to it.
const MAX_GROWTH: usize = 4;
const MIN_GATES: usize = 1000;

/// Returns an XAG of at most this depth with the same function, or the one of the smallest depth that was found.
pub(super) fn reduce_depth(xag: &Xag, limit: usize, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let max_gates = xag.gates() * MAX_GROWTH + MIN_GATES;
    let mut best = xag.clone();
    while depth(&best) > limit {
        let mut next = balance(&best, stop)?;
        if depth(&next) > limit {
            next = select(&next, limit, max_gates, stop)?;
        }
        if depth(&next) >= depth(&best) {
            break;
        }
        best = next;
    }
    Ok(best)
}

/// The number of gates on the longest path to an output, not counting inverters of outputs: see [`without_late_inverters`].
pub(super) fn depth(xag: &Xag) -> usize {
    let levels = Leveled::of(xag).levels;
    xag.outputs().iter().map(|output| levels[output.node()]).max().unwrap_or(0) as usize
}

/// Replaces inverters by gates with the inverted function where an output behind an inverter would be deeper than the limit: the
/// circuit of an XAG has such an inverter where a node is an output both inverted and not.
pub(super) fn without_late_inverters(circuit: &Circuit, limit: usize) -> Circuit {
    if circuit.depth() <= limit {
        return circuit.clone();
    }
    let nodes = circuit.nodes().iter().map(|node| match (node.gate, circuit.node(node.a)) {
        (Gate::NOT_A, Some(Node { gate, a, b })) => Node::new(gate.not(), a, b),
        _ => *node,
    });
    circuit.with_gates(nodes.collect(), circuit.outputs().to_vec())
}

/// An XAG with the depth of each node.
struct Leveled {
    xag: Xag,
    levels: Vec<u32>,
}

impl Leveled {
    fn new(inputs: usize) -> Leveled {
        Leveled { xag: Xag::new(inputs), levels: vec![0; inputs + 1] }
    }

    fn of(xag: &Xag) -> Leveled {
        let mut leveled = Leveled { xag: xag.clone(), levels: vec![0; xag.inputs() + 1] };
        leveled.update();
        leveled
    }

    /// Computes the depth of new nodes.
    fn update(&mut self) {
        for index in self.levels.len()..self.xag.len() {
            let fanins = self.xag.node(index).fanins();
            let before = fanins.map(|fanin| self.levels[fanin.node()]);
            self.levels.push(before[0].max(before[1]) + 1);
        }
    }

    fn level(&self, literal: Literal) -> u32 {
        self.levels[literal.node()]
    }

    fn operation(&mut self, operation: Operation, a: Literal, b: Literal) -> Literal {
        let literal = self.xag.operation(operation, a, b);
        self.update();
        literal
    }

    /// Combines operands, those that arrive first before the others.
    fn combine(&mut self, operation: Operation, operands: &[Literal]) -> Literal {
        let neutral = if operation == Operation::And { Literal::TRUE } else { Literal::FALSE };
        let mut heap: BinaryHeap<Reverse<(u32, Literal)>> =
            operands.iter().map(|&literal| Reverse((self.level(literal), literal))).collect();
        loop {
            match (heap.pop(), heap.pop()) {
                (None, _) => return neutral,
                (Some(Reverse((_, last))), None) => return last,
                (Some(Reverse((_, a))), Some(Reverse((_, b)))) => {
                    let literal = self.operation(operation, a, b);
                    heap.push(Reverse((self.level(literal), literal)));
                }
            }
        }
    }

    /// Computes a node for both values of another one, `pivot`, which selects the result. `None` if too many gates are
    /// between the two.
    fn selected(&mut self, node: usize, pivot: usize) -> Option<Literal> {
        let mut cone: Vec<usize> = Vec::new();
        let mut depends: FxHashMap<usize, bool> = FxHashMap::default();
        self.depends_on(node, pivot, &mut depends, &mut cone)?;
        cone.sort_unstable();
        let [low, high] = [Literal::FALSE, Literal::TRUE].map(|value| {
            let mut values: FxHashMap<usize, Literal> = FxHashMap::default();
            values.insert(pivot, value);
            for &index in &cone {
                let gate = self.xag.node(index);
                let [a, b] = gate.fanins().map(|fanin| {
                    let value = values.get(&fanin.node());
                    value.map_or(fanin, |value| value.invert_if(fanin.is_inverted()))
                });
                values.insert(index, self.operation(gate.operation(), a, b));
            }
            values[&node]
        });
        let differs = self.operation(Operation::Xor, low, high);
        let changed = self.operation(Operation::And, differs, Literal::new(pivot, false));
        Some(self.operation(Operation::Xor, changed, low))
    }

    /// Whether a node depends on the pivot; lists those that do, without the pivot. `None` if there are too many.
    fn depends_on(
        &self,
        node: usize,
        pivot: usize,
        known: &mut FxHashMap<usize, bool>,
        cone: &mut Vec<usize>,
    ) -> Option<bool> {
        if node == pivot {
            return Some(true);
        }
        if self.levels[node] <= self.levels[pivot] {
            return Some(false);
        }
        if let Some(&answer) = known.get(&node) {
            return Some(answer);
        }
        if known.len() >= 4 * MAX_CONE {
            return None;
        }
        let mut answer = false;
        for fanin in self.xag.node(node).fanins() {
            answer |= self.depends_on(fanin.node(), pivot, known, cone)?;
        }
        known.insert(node, answer);
        if answer {
            cone.push(node);
        }
        (cone.len() <= MAX_CONE).then_some(answer)
    }

    /// Returns a literal of the same function that arrives at this level, or as early as was found.
    fn earlier(&mut self, literal: Literal, required: i64) -> Literal {
        let mut best = literal;
        let mut pivot = literal.node();
        for span in 1..=MAX_SPAN {
            if i64::from(self.level(best)) <= required || !self.xag.is_gate(pivot) {
                break;
            }
            let [a, b] = self.xag.node(pivot).fanins();
            pivot = if self.level(a) >= self.level(b) { a.node() } else { b.node() };
            // A selection takes two gates after the operand.
            if span < 3 || self.levels[pivot] + 2 >= self.level(best) || pivot == 0 {
                continue;
            }
            let Some(selected) = self.selected(literal.node(), pivot) else { break };
            let selected = selected.invert_if(literal.is_inverted());
            if self.level(selected) < self.level(best) {
                best = selected;
            }
        }
        best
    }
}

/// Rebuilds trees of equal operations by the levels of their operands. A gate with several readers is not part of a
/// tree, so no gate is computed twice.
fn balance(xag: &Xag, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    Ok(balanced(xag, stop)?.without_dead_gates())
}

/// Whether each node is an inner one of a tree: its only reader is a gate that can take its operands instead.
fn inner_nodes(xag: &Xag) -> Vec<bool> {
    let fanouts = xag.fanout_counts();
    let mut is_inner = vec![false; xag.len()];
    for index in xag.gate_range() {
        let operation = xag.node(index).operation();
        for fanin in xag.node(index).fanins() {
            let node = fanin.node();
            is_inner[node] = xag.is_gate(node)
                && fanouts[node] == 1
                && xag.node(node).operation() == operation
                && (operation == Operation::Xor || !fanin.is_inverted());
        }
    }
    is_inner
}

/// Rebuilds each tree once, at its root.
fn balanced(xag: &Xag, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let is_inner = inner_nodes(xag);
    let mut result = Leveled::new(xag.inputs());
    let mut map: Vec<Literal> = (0..=xag.inputs()).map(|node| Literal::new(node, false)).collect();
    for index in xag.gate_range() {
        stop.check_at(index)?;
        if is_inner[index] {
            // Nothing but the tree reads it.
            map.push(Literal::FALSE);
            continue;
        }
        let operation = xag.node(index).operation();
        let (mut operands, mut is_inverted) = (Vec::new(), false);
        let mut open = xag.node(index).fanins().to_vec();
        while let Some(literal) = open.pop() {
            if is_inner[literal.node()] {
                is_inverted ^= literal.is_inverted();
                open.extend(xag.node(literal.node()).fanins());
            } else {
                operands.push(translate(literal, &map));
            }
        }
        map.push(result.combine(operation, &operands).invert_if(is_inverted));
    }
    result.xag.set_outputs(xag.outputs().iter().map(|&output| translate(output, &map)).collect());
    Ok(result.xag)
}

/// Computes gates that arrive too late for this depth by selection.
fn select(xag: &Xag, limit: usize, max_gates: usize, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let mut required = vec![i64::MAX; xag.len()];
    for output in xag.outputs() {
        required[output.node()] = limit as i64;
    }
    for index in xag.gate_range().rev() {
        let before = required[index].saturating_sub(1);
        for fanin in xag.node(index).fanins() {
            let fanin = &mut required[fanin.node()];
            *fanin = before.min(*fanin);
        }
    }
    let mut result = Leveled::new(xag.inputs());
    let mut map: Vec<Literal> = (0..=xag.inputs()).map(|node| Literal::new(node, false)).collect();
    for index in xag.gate_range() {
        stop.check_at(index)?;
        let gate = xag.node(index);
        let literal = result.operation(gate.operation(), translate(gate.a, &map), translate(gate.b, &map));
        let is_late = i64::from(result.level(literal)) > required[index];
        let literal = if is_late && result.xag.gates() < max_gates {
            result.earlier(literal, required[index])
        } else {
            literal
        };
        map.push(literal);
    }
    result.xag.set_outputs(xag.outputs().iter().map(|&output| translate(output, &map)).collect());
    Ok(result.xag.without_dead_gates())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    fn reduced(xag: &Xag, limit: usize) -> Xag {
        reduce_depth(xag, limit, &Stop::never()).unwrap()
    }

    fn ports(inputs: usize) -> Circuit {
        Circuit::new(inputs, vec![], vec![0]).unwrap()
    }

    #[test]
    fn a_chain_becomes_a_tree() {
        for operation in [Operation::And, Operation::Xor] {
            let mut xag = Xag::new(16);
            let all =
                (1..16).fold(Literal::input(0), |all, i| xag.operation(operation, all, Literal::input(i)));
            xag.set_outputs(vec![all]);
            let small = reduced(&xag, 1);
            assert_eq!((depth(&xag), depth(&small), small.gates()), (15, 4, 15));
        }
    }

    #[test]
    fn a_long_chain_is_rebuilt_once() {
        // Chains of ANDs with an inverter in the middle, and of XORs.
        for operation in [Operation::And, Operation::Xor] {
            let mut xag = Xag::new(400);
            let step =
                |all: Literal, i: usize| xag.operation(operation, all.invert_if(i == 200), Literal::input(i));
            let all = (1..400).fold(Literal::input(0), step);
            xag.set_outputs(vec![all.not()]);
            let built = balanced(&xag, &Stop::never()).unwrap();
            assert_eq!(
                (built.gates(), built.without_dead_gates().gates()),
                (399, 399),
                "no gate is built in vain"
            );
        }
    }

    #[test]
    fn the_carries_of_an_adder_are_selected() {
        let bits = 12;
        let mut xag = Xag::new(2 * bits);
        let (mut carry, mut outputs) = (Literal::FALSE, Vec::new());
        for i in 0..bits {
            let (a, b) = (Literal::input(i), Literal::input(bits + i));
            let sum = xag.xor(a, b);
            outputs.push(xag.xor(sum, carry));
            let both = xag.and(a, b);
            let through = xag.and(sum, carry);
            carry = xag.or(both, through);
        }
        outputs.push(carry);
        xag.set_outputs(outputs);
        assert!(depth(&xag) > 20);
        let small = reduced(&xag, 14);
        assert!(depth(&small) <= 14, "{} with {} gates", depth(&small), small.gates());
        let names = Circuit::new(2 * bits, vec![], vec![0; bits + 1]).unwrap();
        assert_eq!(equivalent(&xag.to_circuit(&names), &small.to_circuit(&names)), Ok(Verdict::Equal));
    }

    #[test]
    fn what_is_shallow_enough_is_unchanged() {
        let mut xag = Xag::new(3);
        let and = xag.and(Literal::input(0), Literal::input(1));
        let or = xag.or(and, Literal::input(2));
        xag.set_outputs(vec![or]);
        assert_eq!(reduced(&xag, 2), xag);
        assert_eq!(
            equivalent(&xag.to_circuit(&ports(3)), &reduced(&xag, 0).to_circuit(&ports(3))),
            Ok(Verdict::Equal)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_function_is_preserved_and_the_depth_does_not_grow(
            circuit in arbitrary::circuit(1..=12, 120), limit in 0usize..12,
        ) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let small = reduced(&xag, limit);
            prop_assert!(depth(&small) <= depth(&xag));
            let balanced = balanced(&xag, &Stop::never()).unwrap();
            prop_assert!(balanced.gates() <= xag.gates(), "{} of {}", balanced.gates(), xag.gates());
            let shallow = without_late_inverters(&small.to_circuit(&circuit), limit);
            prop_assert!(shallow.depth() <= depth(&small).max(limit).max(1));
            prop_assert_eq!(equivalent(&circuit, &shallow), Ok(Verdict::Equal));
            prop_assert_eq!(equivalent(&circuit, &small.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
