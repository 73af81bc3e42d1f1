//! Cuts: sets of at most four vertices that a vertex is a function of, with that function.
//!
//! The cuts of a vertex are the unions of a cut of each operand that have at most four leaves. Only the best
//! few are kept, so a pass over a network takes time in proportion to its size.

use super::chains::INPUTS;
use crate::network::{Operation, Vertex};

/// The most leaves of a cut.
pub(super) const LEAVES: usize = 4;
/// The most cuts that are kept for a vertex, not counting the vertex itself.
const KEPT: usize = 8;

/// A cut, with its leaves in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Cut {
    leaves: [u32; LEAVES],
    len: u8,
    /// The vertex as a function of the leaves; of the inputs of the table, those behind the last leaf do not
    /// matter.
    pub function: u16,
}

impl Cut {
    /// The vertex itself.
    fn trivial(vertex: usize) -> Cut {
        Cut { leaves: [vertex as u32, 0, 0, 0], len: 1, function: INPUTS[0] }
    }

    pub fn leaves(&self) -> &[u32] {
        &self.leaves[..usize::from(self.len)]
    }

    /// Whether all leaves are leaves of another cut.
    fn is_within(&self, other: &Cut) -> bool {
        self.len <= other.len && self.leaves().iter().all(|leaf| other.leaves().contains(leaf))
    }

    /// The union of the leaves, if it is small enough.
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

    /// The function, with the leaves of a larger cut as inputs.
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

/// The function with the inputs `input` and `input + 1` exchanged.
fn exchange(function: u16, input: usize) -> u16 {
    let (low, high) = (INPUTS[input], INPUTS[input + 1]);
    let shift = 1 << input;
    function & !(low ^ high) | (function & low & !high) << shift | (function & high & !low) >> shift
}

/// The cuts of the vertices of a network.
pub(super) struct Cuts {
    cuts: Vec<[Cut; KEPT]>,
    lens: Vec<u8>,
}

impl Cuts {
    /// Room for the cuts of a network.
    pub fn new(vertices: usize) -> Cuts {
        Cuts { cuts: vec![[Cut::default(); KEPT]; vertices], lens: vec![0; vertices] }
    }

    /// The cuts of a vertex, without the vertex itself. None if they were not computed.
    pub fn of(&self, vertex: usize) -> &[Cut] {
        self.lens.get(vertex).map_or(&[], |&len| &self.cuts[vertex][..usize::from(len)])
    }

    /// Computes the cuts of a gate from those of its operands.
    pub fn compute(&mut self, number: usize, vertex: Vertex) {
        if number >= self.lens.len() {
            self.cuts.resize(number + 1, [Cut::default(); KEPT]);
            self.lens.resize(number + 1, 0);
        }
        let (mut kept, mut len) = ([Cut::default(); KEPT], 0);
        let [trivial_a, trivial_b] = vertex.operands().map(|operand| Cut::trivial(operand.vertex()));
        for a in self.of(vertex.a.vertex()).iter().chain([&trivial_a]) {
            for b in self.of(vertex.b.vertex()).iter().chain([&trivial_b]) {
                if let Some(mut cut) = a.union(b) {
                    cut.function = combine(vertex, a.function_in(&cut), b.function_in(&cut));
                    keep(&mut kept, &mut len, cut);
                }
            }
        }
        self.cuts[number] = kept;
        self.lens[number] = len as u8;
    }
}

/// The function of a vertex, from those of its operands.
fn combine(vertex: Vertex, a: u16, b: u16) -> u16 {
    match vertex.operation() {
        Operation::And => (a ^ vertex.a.mask() as u16) & (b ^ vertex.b.mask() as u16),
        Operation::Xor => a ^ b,
    }
}

/// Keeps a cut unless one that is kept lies within it; drops those that it lies within. With no room left, a
/// cut of more leaves makes room.
fn keep(kept: &mut [Cut; KEPT], len: &mut usize, cut: Cut) {
    if kept[..*len].iter().any(|other| other.is_within(&cut)) {
        return;
    }
    let mut left = 0;
    for i in 0..*len {
        if !cut.is_within(&kept[i]) {
            kept[left] = kept[i];
            left += 1;
        }
    }
    *len = left;
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
    use crate::network::{Literal, Network};
    use proptest::prelude::*;

    fn all_cuts(network: &Network) -> Cuts {
        let mut cuts = Cuts::new(network.len());
        for number in network.gate_range() {
            cuts.compute(number, network.vertex(number));
        }
        cuts
    }

    #[test]
    fn a_full_adder_is_a_function_of_its_inputs() {
        let mut network = Network::new(3);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let half = network.xor(a, b);
        let sum = network.xor(half, c);
        let cuts = all_cuts(&network);
        let functions: Vec<_> =
            cuts.of(sum.vertex()).iter().map(|cut| (cut.leaves(), cut.function)).collect();
        assert_eq!(functions, [(&[1, 2, 3][..], 0x9696), (&[3, 4][..], 0x6666)]);
    }

    proptest! {
        #[test]
        fn functions_are_those_of_the_network(
            circuit in arbitrary::circuit(4..=8, 60),
            inputs in prop::collection::vec(any::<u64>(), 8),
        ) {
            let network = Network::of(&circuit);
            let cuts = all_cuts(&network);
            let mut values = Vec::new();
            network.eval_words(&inputs[..network.inputs()], &mut values);
            for number in network.gate_range() {
                prop_assert!(!cuts.of(number).is_empty());
                for cut in cuts.of(number) {
                    for bit in 0..64 {
                        let value = |vertex: usize| values[vertex] >> bit & 1;
                        let digits = cut.leaves().iter().enumerate().map(|(i, &leaf)| value(leaf as usize) << i);
                        prop_assert_eq!(u64::from(cut.function) >> digits.sum::<u64>() & 1, value(number));
                    }
                }
            }
        }
    }
}
