//! An XAG that is edited in place, with exact reference counts.
//!
//! A pass visits the nodes in topological order and may substitute the visited node by a literal of earlier nodes.
//! The fanouts of a substituted node are not updated at once: the node forwards to its substitute, and each fanout
//! resolves the forward when it is visited. New nodes belong to the visit that added them, and a visit uses only
//! nodes of its own and of earlier visits. Therefore no cycle can arise and no fanout lists are needed.
//!
//! A node is alive while its reference count is above 0. A node that dies dereferences its fanins; it may be
//! referenced again later.

use crate::xag::{Literal, Normal, Xag, XagNode, normal};
use rustc_hash::FxHashMap;

/// An XAG with substitution and reference counting.
pub(super) struct MutableXag {
    inputs: usize,
    nodes: Vec<XagNode>,
    outputs: Vec<Literal>,
    /// Structural hash table.
    table: FxHashMap<XagNode, u32>,
    references: Vec<u32>,
    /// The substitute of each node; the node itself if it was not substituted.
    forward: Vec<Literal>,
    /// The visit that each node belongs to.
    visit: Vec<u32>,
    stack: Vec<u32>,
}

impl MutableXag {
    pub fn new(xag: &Xag) -> MutableXag {
        let nodes: Vec<XagNode> = (0..xag.len()).map(|node| xag.node(node)).collect();
        let table = xag.gate_range().map(|index| (nodes[index], index as u32)).collect();
        MutableXag {
            inputs: xag.inputs(),
            outputs: xag.outputs().to_vec(),
            table,
            references: xag.fanout_counts(),
            forward: (0..nodes.len()).map(|node| Literal::new(node, false)).collect(),
            visit: (0..nodes.len() as u32).collect(),
            nodes,
            stack: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, index: usize) -> XagNode {
        self.nodes[index]
    }

    fn is_normal(&self, gate: usize) -> bool {
        let node = self.nodes[gate];
        matches!(normal(node.operation(), node.a, node.b), Normal::Node(normal, false) if normal == node)
    }

    fn is_gate(&self, node: usize) -> bool {
        node > self.inputs
    }

    /// Returns whether a node has fanouts.
    pub fn is_alive(&self, node: usize) -> bool {
        self.references[node] > 0
    }

    /// Returns whether a node can be a fanin: an input, or a live gate that was not substituted.
    pub fn is_usable(&self, node: usize) -> bool {
        !self.is_gate(node) || self.is_alive(node) && self.forward[node].node() == node
    }

    /// Returns the gates in the order of their visits, in which fanins come first. Gates that turned out to be equal to
    /// something else when they were visited are left out, because their fanins are not in normal form.
    pub fn in_order_of_visits(&self) -> Vec<usize> {
        let mut gates: Vec<usize> =
            (self.inputs + 1..self.len()).filter(|&gate| self.is_normal(gate)).collect();
        gates.sort_by_key(|&gate| self.visit[gate]);
        gates
    }

    /// Follows forwards to a literal of a node that was not substituted.
    fn resolve(&self, mut literal: Literal) -> Literal {
        loop {
            let next = self.forward[literal.node()];
            if next.node() == literal.node() {
                return literal;
            }
            literal = next.invert_if(literal.is_inverted());
        }
    }

    /// Begins the visit of a gate by resolving its fanins. Returns whether the gate remains; it does not if it is dead
    /// or structurally equal to something else by now.
    pub fn begin_visit(&mut self, index: usize) -> bool {
        if !self.is_usable(index) {
            return false;
        }
        let node = self.nodes[index];
        let [a, b] = node.fanins().map(|fanin| self.resolve(fanin));
        if [a, b] == node.fanins() && self.find(index, node) == Some(index) {
            return true;
        }
        self.unhash(index);
        // The reference counts are those of these fanins, in normal form or not.
        self.nodes[index] = XagNode { a, b };
        let normal = normal(node.operation(), a, b);
        match normal {
            Normal::Node(node, false) if self.find(index, node).is_none() => {
                self.nodes[index] = node;
                self.table.insert(node, index as u32);
                true
            }
            _ => {
                let literal = self.add(index, normal);
                self.substitute(index, literal);
                false
            }
        }
    }

    /// Removes a node from the hash table, unless the entry is another node.
    fn unhash(&mut self, index: usize) {
        if self.table.get(&self.nodes[index]) == Some(&(index as u32)) {
            self.table.remove(&self.nodes[index]);
        }
    }

    /// Looks up a structurally equal node that the visit may use.
    pub fn find(&self, visit: usize, node: XagNode) -> Option<usize> {
        let index = *self.table.get(&node)? as usize;
        (self.visit[index] as usize <= visit).then_some(index)
    }

    /// Returns the literal of a normal form; adds its node to this visit if there is none to use.
    pub fn add(&mut self, visit: usize, normal: Normal) -> Literal {
        let (node, inverted) = match normal {
            Normal::Literal(literal) => return literal,
            Normal::Node(node, inverted) => (node, inverted),
        };
        if let Some(index) = self.find(visit, node) {
            return Literal::new(index, inverted);
        }
        let index = self.nodes.len();
        self.nodes.push(node);
        self.references.push(0);
        self.forward.push(Literal::new(index, false));
        self.visit.push(visit as u32);
        self.table.insert(node, index as u32);
        Literal::new(index, inverted)
    }

    /// Substitutes a node by a literal: all its fanouts read the literal from now on.
    pub fn substitute(&mut self, index: usize, literal: Literal) {
        let literal = self.resolve(literal);
        if literal.node() == index {
            return;
        }
        let fanouts = self.references[index];
        self.reference(literal.node());
        self.references[literal.node()] += fanouts - 1;
        self.unhash(index);
        self.forward[index] = literal;
        self.references[index] = 0;
        self.dereference_fanins(index);
    }

    /// Adds a reference to a node. Returns the number of gates that become alive.
    pub fn reference(&mut self, node: usize) -> usize {
        let mut born = 0;
        self.stack.push(node as u32);
        while let Some(node) = self.stack.pop() {
            let node = node as usize;
            self.references[node] += 1;
            if self.references[node] == 1 && self.is_gate(node) {
                born += 1;
                for fanin in self.nodes[node].fanins() {
                    let fanin = self.resolve(fanin);
                    self.stack.push(fanin.node() as u32);
                }
            }
        }
        born
    }

    /// Removes a reference to a node. Returns the number of gates that die.
    pub fn dereference(&mut self, node: usize) -> usize {
        self.references[node] -= 1;
        if self.references[node] > 0 || !self.is_gate(node) {
            return 0;
        }
        1 + self.dereference_fanins(node)
    }

    /// Removes the references from a node to its fanins. Returns the number of gates that die: the size of the MFFC
    /// of the node, without the node itself.
    pub fn dereference_fanins(&mut self, node: usize) -> usize {
        let mut dead = 0;
        self.stack.push(node as u32);
        while let Some(node) = self.stack.pop() {
            for fanin in self.nodes[node as usize].fanins() {
                let fanin = self.resolve(fanin).node();
                self.references[fanin] -= 1;
                if self.references[fanin] == 0 && self.is_gate(fanin) {
                    dead += 1;
                    self.stack.push(fanin as u32);
                }
            }
        }
        dead
    }

    /// Reverts [`MutableXag::dereference_fanins`]. Returns the number of gates that become alive.
    pub fn reference_fanins(&mut self, node: usize) -> usize {
        let fanins = self.nodes[node].fanins().map(|fanin| self.resolve(fanin).node());
        fanins.into_iter().map(|fanin| self.reference(fanin)).sum()
    }

    /// Returns the live part of the graph as an XAG.
    pub fn to_xag(&self) -> Xag {
        let mut xag = Xag::new(self.inputs);
        let mut old_to_new: Vec<Option<Literal>> = vec![None; self.len()];
        for (node, literal) in old_to_new.iter_mut().enumerate().take(self.inputs + 1) {
            *literal = Some(Literal::new(node, false));
        }
        let outputs: Vec<Literal> = self.outputs.iter().map(|&output| self.resolve(output)).collect();
        let mut stack: Vec<usize> = Vec::new();
        for output in &outputs {
            stack.push(output.node());
            while let Some(&index) = stack.last() {
                if old_to_new[index].is_some() {
                    stack.pop();
                    continue;
                }
                let node = self.nodes[index];
                let fanins = node.fanins().map(|fanin| self.resolve(fanin));
                match fanins.map(|f| old_to_new[f.node()].map(|new| new.invert_if(f.is_inverted()))) {
                    [Some(a), Some(b)] => old_to_new[index] = Some(xag.operation(node.operation(), a, b)),
                    _ => stack.extend(
                        fanins.map(Literal::node).iter().filter(|&&fanin| old_to_new[fanin].is_none()),
                    ),
                }
            }
        }
        let new = |output: &Literal| old_to_new[output.node()].unwrap_or(Literal::FALSE);
        xag.set_outputs(outputs.iter().map(|output| new(output).invert_if(output.is_inverted())).collect());
        // Structural hashing of the copy can simplify fanouts, which leaves dead gates.
        let has_dead_gates = xag.fanout_counts()[self.inputs + 1..].contains(&0);
        if has_dead_gates { xag.without_dead_gates() } else { xag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    impl MutableXag {
        /// Counts the references from scratch.
        fn recount(&self) -> Vec<u32> {
            let mut references = vec![0; self.len()];
            let alive = (self.inputs + 1..self.len()).filter(|&node| self.is_alive(node));
            let fanins = alive.flat_map(|node| self.nodes[node].fanins());
            for literal in fanins.chain(self.outputs.iter().copied()) {
                references[self.resolve(literal).node()] += 1;
            }
            references
        }
    }

    proptest! {
        #[test]
        fn reference_counts_are_exact_after_any_substitution(
            circuit in arbitrary::circuit(2..=6, 80),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 100),
        ) {
            let original = Xag::from_circuit(&circuit).without_dead_gates();
            let mut xag = MutableXag::new(&original);
            for (index, choice) in original.gate_range().zip(choices) {
                if !xag.begin_visit(index) {
                    continue;
                }
                let choice = choice.index(index);
                if choice % 3 == 0 && xag.is_usable(choice) {
                    xag.substitute(index, Literal::new(choice, choice % 2 == 0));
                }
                prop_assert_eq!(&xag.recount(), &xag.references);
                if xag.is_usable(index) {
                    let (dead, born) = (xag.dereference_fanins(index), xag.reference_fanins(index));
                    prop_assert_eq!(dead, born);
                }
            }
            prop_assert!(xag.to_xag().gates() <= original.gates());
        }
    }
}
