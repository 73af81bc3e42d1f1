//! Cut enumeration: 4-feasible cuts with their functions.
//!
//! A cut of a node is a set of nodes, its leaves, that determine the node. The cuts of a node are the unions of a cut
//! of each fanin that have at most four leaves. Only a few cuts are kept per node (priority cuts), so enumeration takes
//! linear time.

use super::npn_library::INPUTS;
use crate::xag::{Operation, XagNode};

/// The maximum number of leaves of a cut.
pub(super) const LEAVES: usize = 4;
/// The maximum number of cuts per node, without the trivial cut.
const KEPT: usize = 8;

/// A cut, with its leaves in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Cut {
    leaves: [u32; LEAVES],
    len: u8,
    /// The truth table of the node. Input i is leaf i; it does not depend on inputs without a leaf.
    pub function: u16,
}

impl Cut {
    /// Returns the cut whose only leaf is the node itself.
    fn trivial(node: usize) -> Cut {
        Cut { leaves: [node as u32, 0, 0, 0], len: 1, function: INPUTS[0] }
    }

    pub fn leaves(&self) -> &[u32] {
        &self.leaves[..usize::from(self.len)]
    }

    /// Returns whether this cut dominates another: all its leaves are leaves of the other.
    fn dominates(&self, other: &Cut) -> bool {
        self.len <= other.len && self.leaves().iter().all(|leaf| other.leaves().contains(leaf))
    }

    /// Returns the union of the leaves, if it is 4-feasible.
    fn union(&self, other: &Cut) -> Option<Cut> {
        let (a, b) = (self.leaves(), other.leaves());
        let mut union = Cut::default();
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            let next = match (a.get(i), b.get(j)) {
                (Some(&x), Some(&y)) => x.min(y),
                (Some(&x), None) | (None, Some(&x)) => x,
                (None, None) => break,
            };
            i += usize::from(a.get(i) == Some(&next));
            j += usize::from(b.get(j) == Some(&next));
            *union.leaves.get_mut(usize::from(union.len))? = next;
            union.len += 1;
        }
        Some(union)
    }

    /// Returns the function in terms of the leaves of a larger cut.
    fn function_in(&self, larger: &Cut) -> u16 {
        let mut function = self.function;
        let mut place = usize::from(larger.len);
        for i in (0..usize::from(self.len)).rev() {
            place -= 1;
            while larger.leaves[place] != self.leaves[i] {
                place -= 1;
            }
            for input in i..place {
                function = exchange(function, input);
            }
        }
        function
    }
}

/// Exchanges the inputs `input` and `input + 1` of a function.
fn exchange(function: u16, input: usize) -> u16 {
    let (low, high) = (INPUTS[input], INPUTS[input + 1]);
    let shift = 1 << input;
    function & !(low ^ high) | (function & low & !high) << shift | (function & high & !low) >> shift
}

/// The cuts of all nodes of an XAG.
pub(super) struct Cuts {
    cuts: Vec<[Cut; KEPT]>,
    lens: Vec<u8>,
}

impl Cuts {
    /// Creates empty cut sets for this number of nodes.
    pub fn new(nodes: usize) -> Cuts {
        Cuts { cuts: vec![[Cut::default(); KEPT]; nodes], lens: vec![0; nodes] }
    }

    /// Returns the cuts of a node, without the trivial cut; empty for nodes that were not computed.
    pub fn of(&self, node: usize) -> &[Cut] {
        self.lens.get(node).map_or(&[], |&len| &self.cuts[node][..usize::from(len)])
    }

    /// Computes the cuts of a gate from those of its fanins.
    pub fn compute(&mut self, index: usize, node: XagNode) {
        if index >= self.lens.len() {
            self.cuts.resize(index + 1, [Cut::default(); KEPT]);
            self.lens.resize(index + 1, 0);
        }
        let (mut kept, mut len) = ([Cut::default(); KEPT], 0);
        let [trivial_a, trivial_b] = node.fanins().map(|fanin| Cut::trivial(fanin.node()));
        for a in self.of(node.a.node()).iter().chain([&trivial_a]) {
            for b in self.of(node.b.node()).iter().chain([&trivial_b]) {
                if let Some(mut cut) = a.union(b) {
                    cut.function = combine(node, a.function_in(&cut), b.function_in(&cut));
                    insert(&mut kept, &mut len, cut);
                }
            }
        }
        self.cuts[index] = kept;
        self.lens[index] = len as u8;
    }
}

/// Returns the function of a node, given those of its fanin nodes.
fn combine(node: XagNode, a: u16, b: u16) -> u16 {
    match node.operation() {
        Operation::And => (a ^ node.a.mask() as u16) & (b ^ node.b.mask() as u16),
        Operation::Xor => a ^ b,
    }
}

/// Inserts a cut unless a kept one dominates it, and removes the cuts that it dominates. If the set is full, the cut
/// replaces one with more leaves.
fn insert(kept: &mut [Cut; KEPT], len: &mut usize, cut: Cut) {
    if kept[..*len].iter().any(|other| other.dominates(&cut)) {
        return;
    }
    let mut remaining = 0;
    for i in 0..*len {
        if !cut.dominates(&kept[i]) {
            kept[remaining] = kept[i];
            remaining += 1;
        }
    }
    *len = remaining;
    if *len < KEPT {
        kept[*len] = cut;
        *len += 1;
    } else if let Some(larger) = kept.iter_mut().rev().find(|other| other.len > cut.len) {
        *larger = cut;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::xag::{Literal, Xag};
    use proptest::prelude::*;

    fn all_cuts(xag: &Xag) -> Cuts {
        let mut cuts = Cuts::new(xag.len());
        for index in xag.gate_range() {
            cuts.compute(index, xag.node(index));
        }
        cuts
    }

    #[test]
    fn the_sum_of_a_full_adder_has_a_cut_at_the_inputs() {
        let mut xag = Xag::new(3);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let half = xag.xor(a, b);
        let sum = xag.xor(half, c);
        let cuts = all_cuts(&xag);
        let functions: Vec<_> = cuts.of(sum.node()).iter().map(|cut| (cut.leaves(), cut.function)).collect();
        assert_eq!(functions, [(&[1, 2, 3][..], 0x9696), (&[3, 4][..], 0x6666)]);
    }

    proptest! {
        #[test]
        fn functions_of_cuts_match_simulation(
            circuit in arbitrary::circuit(4..=8, 60),
            inputs in prop::collection::vec(any::<u64>(), 8),
        ) {
            let xag = Xag::from_circuit(&circuit);
            let cuts = all_cuts(&xag);
            let mut values = Vec::new();
            xag.eval_words(&inputs[..xag.inputs()], &mut values);
            for index in xag.gate_range() {
                prop_assert!(!cuts.of(index).is_empty());
                for cut in cuts.of(index) {
                    for bit in 0..64 {
                        let value = |node: usize| values[node] >> bit & 1;
                        let digits = cut.leaves().iter().enumerate().map(|(i, &leaf)| value(leaf as usize) << i);
                        prop_assert_eq!(u64::from(cut.function) >> digits.sum::<u64>() & 1, value(index));
                    }
                }
            }
        }
    }
}
