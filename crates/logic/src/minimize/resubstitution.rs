//! Resubstitution with complete don't-cares, for XAGs with few inputs.
//!
//! With at most [`MAX_INPUTS`] inputs, exhaustive simulation gives the truth table of every node in a few words.
//! Complementing a node and simulating its fanout cone shows for which assignments an output changes: the *care set*
//! of the node, the complement of its observability don't-cares. A replacement may have any value outside of the care
//! set. The candidates are all expressions of up to two gates over the divisors, which are all nodes outside of the
//! fanout cone. Comparing words tells whether a candidate is valid.
//!
//! For a target with on-set `on` and off-set `off` (its values on the care set), an expression is valid as follows:
//!
//! ```text
//! x           if  on <= x,            off & x = 0
//! x & y       if  on <= x, on <= y,   off & x & y = 0      (and for the inverse with on, off exchanged)
//! x ^ y       if  y = x ^ on          on the care set: a hash table look-up
//! x & (g)     if  on <= x, and g is valid for the target  on, off & x
//! x ^ (g)     if  g is valid for the target  on ^ x, off ^ x       on the care set
//! ```

use super::mutable_xag::MutableXag;
use crate::prove::sweep::mix;
use crate::truth::{input_word, table_words};
use crate::xag::{Literal, Normal, Operation, Xag, normal};
use rustc_hash::FxHashMap;

/// The maximum number of inputs: a truth table has 2^12 bits, 64 words.
pub(super) const MAX_INPUTS: usize = 12;

/// The maximum number of divisors for expressions of one gate.
const MAX_DIVISORS: usize = 400;
/// The maximum number of divisors for expressions of two gates.
const MAX_NESTED_DIVISORS: usize = 80;

/// An XAG with the truth table of every node.
pub(super) struct SimulatedXag {
    xag: Xag,
    words: usize,
    /// `words` words for each node.
    tables: Vec<u64>,
    fanout_counts: Vec<u32>,
}

/// A gate of a replacement.
type Gate = (Operation, Literal, Literal);

/// The outer gate of an expression of two gates: its operation, its other fanin, and whether its output is inverted.
type Outer = (Operation, Literal, bool);

/// An expression that can replace a node: a literal, a gate, or a gate with another gate as its fanin. The inner gate
/// has the index of the next node of the XAG.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    inner: Option<Gate>,
    outer: Option<Gate>,
    /// The result, if there is no outer gate.
    literal: Literal,
    not: bool,
}

impl Replacement {
    fn literal(literal: Literal) -> Replacement {
        Replacement { inner: None, outer: None, literal, not: false }
    }

    fn literals(&self) -> impl Iterator<Item = Literal> {
        let gates = self.inner.into_iter().chain(self.outer).flat_map(|(_, a, b)| [a, b]);
        gates.chain(self.outer.is_none().then_some(self.literal))
    }

    fn gates(&self) -> usize {
        usize::from(self.inner.is_some()) + usize::from(self.outer.is_some())
    }
}

/// An incompletely specified function: 1 on `on`, 0 on `off`, don't-care elsewhere.
#[derive(Clone, Debug)]
struct Target {
    on: Vec<u64>,
    off: Vec<u64>,
}

impl Target {
    fn inverse(&self) -> Target {
        Target { on: self.off.clone(), off: self.on.clone() }
    }
}

impl SimulatedXag {
    /// Simulates an XAG, which has at most [`MAX_INPUTS`] inputs.
    pub fn new(xag: Xag) -> SimulatedXag {
        let words = table_words(xag.inputs());
        let mut tables = vec![0; words];
        for input in 0..xag.inputs() {
            tables.extend((0..words).map(|word| input_word(input, word)));
        }
        for index in xag.gate_range() {
            let node = xag.node(index);
            let (a, b) = (node.a.node() * words, node.b.node() * words);
            for word in 0..words {
                tables.push(node.eval_word(tables[a + word], tables[b + word]));
            }
        }
        let fanout_counts = xag.fanout_counts();
        SimulatedXag { xag, words, tables, fanout_counts }
    }

    pub fn xag(&self) -> &Xag {
        &self.xag
    }

    pub fn into_xag(self) -> Xag {
        self.xag
    }

    fn table(&self, node: usize) -> &[u64] {
        &self.tables[node * self.words..][..self.words]
    }

    /// Returns the fanout cone of a node, including the node, and its care set.
    fn fanout_cone_and_care_set(&self, node: usize) -> (Vec<bool>, Vec<u64>) {
        let words = self.words;
        let mut cone = vec![false; self.xag.len()];
        cone[node] = true;
        let mut flipped = self.tables.clone();
        flipped[node * words..][..words].iter_mut().for_each(|word| *word = !*word);
        for index in node + 1..self.xag.len() {
            let gate = self.xag.node(index);
            let (a, b) = (gate.a.node(), gate.b.node());
            if self.xag.is_gate(index) && (cone[a] || cone[b]) {
                cone[index] = true;
                for word in 0..words {
                    flipped[index * words + word] =
                        gate.eval_word(flipped[a * words + word], flipped[b * words + word]);
                }
            }
        }
        let mut care = vec![0; words];
        for output in self.xag.outputs() {
            let first = output.node() * words;
            for (word, care) in care.iter_mut().enumerate() {
                *care |= flipped[first + word] ^ self.tables[first + word];
            }
        }
        (cone, care)
    }

    /// Returns the maximum fanout-free cone of a node, including the node.
    fn mffc(&self, node: usize) -> Vec<bool> {
        let mut references = self.fanout_counts.clone();
        let mut mffc = vec![false; self.xag.len()];
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            mffc[node] = true;
            for fanin in self.xag.node(node).fanins() {
                let fanin = fanin.node();
                references[fanin] -= 1;
                if references[fanin] == 0 && self.xag.is_gate(fanin) {
                    stack.push(fanin);
                }
            }
        }
        mffc
    }

    /// Searches replacements of a gate with up to `gates` gates that add no more gates than they save. Calls `visit`
    /// with the gain of each, until it returns false. The divisors are tried from the one with index `start` on, up to
    /// a maximum number.
    pub fn search(
        &self,
        node: usize,
        gates: usize,
        start: usize,
        visit: &mut impl FnMut(isize, Replacement) -> bool,
    ) {
        let (cone, care) = self.fanout_cone_and_care_set(node);
        let mffc = self.mffc(node);
        let table = self.table(node);
        let target = Target {
            on: table.iter().zip(&care).map(|(&table, &care)| table & care).collect(),
            off: table.iter().zip(&care).map(|(&table, &care)| !table & care).collect(),
        };
        let mut divisors: Vec<usize> = (1..self.xag.len()).filter(|&other| !cone[other]).collect();
        if !divisors.is_empty() {
            let start = start % divisors.len();
            divisors.rotate_left(start);
        }
        let saved = mffc.iter().filter(|&&inside| inside).count();
        let mut search = Search { xag: self, node, divisors, mffc, saved, visit };
        search.run(&target, gates);
    }

    /// Returns the XAG with a node replaced.
    pub fn replace(&self, node: usize, replacement: &Replacement) -> Xag {
        let mut xag = MutableXag::new(&self.xag);
        // A visit that may use all nodes: a replacement reads no node of the fanout cone.
        let visit = usize::MAX >> 32;
        let inner = replacement.inner.map(|(operation, a, b)| xag.add(visit, normal(operation, a, b)));
        let resolve = |literal: Literal| match inner {
            Some(inner) if literal.node() == self.xag.len() => inner.invert_if(literal.is_inverted()),
            _ => literal,
        };
        let literal = match replacement.outer {
            Some((operation, a, b)) => xag.add(visit, normal(operation, resolve(a), resolve(b))),
            None => replacement.literal,
        };
        xag.substitute(node, literal.invert_if(replacement.not));
        xag.to_xag()
    }
}

/// A search for replacements of one node. Its functions return `None` once `visit` has ended the search.
struct Search<'a, V> {
    xag: &'a SimulatedXag,
    node: usize,
    divisors: Vec<usize>,
    mffc: Vec<bool>,
    /// The number of gates of the MFFC.
    saved: usize,
    visit: &'a mut V,
}

impl<V: FnMut(isize, Replacement) -> bool> Search<'_, V> {
    fn run(&mut self, target: &Target, gates: usize) -> Option<()> {
        let is_empty = |set: &[u64]| set.iter().all(|&word| word == 0);
        for (set, literal) in [(&target.on, Literal::FALSE), (&target.off, Literal::TRUE)] {
            if is_empty(set) {
                return self.offer(Replacement::literal(literal));
            }
        }
        let inverse = target.inverse();
        for literal in self.covers(&target.on) {
            if self.is_disjoint(literal, &target.off) {
                self.offer(Replacement::literal(literal))?;
            }
        }
        if gates >= 1 {
            self.divisors.truncate(MAX_DIVISORS);
            self.pairs(target, &inverse, None)?;
        }
        if gates >= 2 && self.saved >= 2 {
            self.divisors.truncate(MAX_NESTED_DIVISORS);
            self.nested(target, &inverse)?;
        }
        Some(())
    }

    /// Tries expressions of two gates.
    fn nested(&mut self, target: &Target, inverse: &Target) -> Option<()> {
        for (target, not) in [(target, false), (inverse, true)] {
            for literal in self.covers(&target.on) {
                let rest = Target { on: target.on.clone(), off: self.intersection(literal, &target.off) };
                self.pairs(&rest, &rest.inverse(), Some((Operation::And, literal, not)))?;
            }
        }
        for i in 0..self.divisors.len() {
            let divisor = self.divisors[i];
            let flip = |a: &[u64], b: &[u64]| -> Vec<u64> {
                let table = self.xag.table(divisor);
                a.iter().zip(b).zip(table).map(|((&a, &b), &x)| a & !x | b & x).collect()
            };
            let rest = Target { on: flip(&target.on, &target.off), off: flip(&target.off, &target.on) };
            let outer = (Operation::Xor, Literal::new(divisor, false), false);
            self.pairs(&rest, &rest.inverse(), Some(outer))?;
        }
        Some(())
    }

    /// Tries gates of two divisors, alone or as a fanin of an outer gate.
    fn pairs(&mut self, target: &Target, inverse: &Target, outer: Option<Outer>) -> Option<()> {
        for (target, not) in [(target, false), (inverse, true)] {
            let covers = self.covers(&target.on);
            for (i, &a) in covers.iter().enumerate() {
                let rest = self.intersection(a, &target.off);
                for &b in &covers[..i] {
                    if self.is_disjoint(b, &rest) {
                        self.offer(self.build((Operation::And, a, b), not, outer))?;
                    }
                }
            }
        }
        self.xor_pairs(target, outer)
    }

    /// Tries XORs of two divisors.
    fn xor_pairs(&mut self, target: &Target, outer: Option<Outer>) -> Option<()> {
        let care: Vec<u64> = target.on.iter().zip(&target.off).map(|(&on, &off)| on | off).collect();
        let Some(first) = care.iter().position(|&word| word != 0) else { return Some(()) };
        let bit = care[first].trailing_zeros();
        // The hash of a table on the care set, and whether the table is inverted so that its first bit is 0.
        let hash = |word: &dyn Fn(usize) -> u64| {
            let inverted = word(first) >> bit & 1 == 1;
            let mask = u64::from(inverted).wrapping_neg();
            let mix = |hash: u64, i: usize| mix(hash, (word(i) ^ mask) & care[i]);
            ((0..care.len()).fold(0, mix), inverted)
        };
        let mut divisor_of_hash: FxHashMap<u64, usize> = FxHashMap::default();
        for i in 0..self.divisors.len() {
            let table = self.xag.table(self.divisors[i]);
            let (other, not_other) = hash(&|word| table[word] ^ target.on[word]);
            if let Some(&b) = divisor_of_hash.get(&other) {
                let (a, table_b) = (self.divisors[i], self.xag.table(b));
                let not = not_other != hash(&|word| table_b[word]).1;
                let mask = u64::from(not).wrapping_neg();
                let is_equal =
                    |word: usize| (table[word] ^ table_b[word] ^ target.on[word] ^ mask) & care[word] == 0;
                if (0..care.len()).all(is_equal) {
                    let gate = (Operation::Xor, Literal::new(a, false), Literal::new(b, false));
                    self.offer(self.build(gate, not, outer))?;
                }
            }
            divisor_of_hash.insert(hash(&|word| table[word]).0, self.divisors[i]);
        }
        Some(())
    }

    /// Builds the replacement for a gate, inverted if `not`, within an outer gate.
    fn build(&self, gate: Gate, not: bool, outer: Option<Outer>) -> Replacement {
        let literal = Literal::FALSE;
        match outer {
            None => Replacement { inner: None, outer: Some(gate), literal, not },
            Some((operation, other, outer_not)) => {
                let inner = Literal::new(self.xag.xag.len(), not);
                let outer = Some((operation, other, inner));
                Replacement { inner: Some(gate), outer, literal, not: outer_not }
            }
        }
    }

    /// Returns the literals of divisors that are 1 on all of a set.
    fn covers(&self, set: &[u64]) -> Vec<Literal> {
        let mut covers = Vec::new();
        for &divisor in &self.divisors {
            let table = self.xag.table(divisor);
            let is_missing = |mask: u64| table.iter().zip(set).any(|(&x, &set)| set & !(x ^ mask) != 0);
            if !is_missing(0) {
                covers.push(Literal::new(divisor, false));
            } else if !is_missing(u64::MAX) {
                covers.push(Literal::new(divisor, true));
            }
        }
        covers
    }

    fn intersection(&self, literal: Literal, set: &[u64]) -> Vec<u64> {
        let table = self.xag.table(literal.node());
        table.iter().zip(set).map(|(&x, &set)| (x ^ literal.mask()) & set).collect()
    }

    fn is_disjoint(&self, literal: Literal, set: &[u64]) -> bool {
        let table = self.xag.table(literal.node());
        table.iter().zip(set).all(|(&x, &set)| (x ^ literal.mask()) & set == 0)
    }

    /// Passes a replacement to `visit` unless it adds more gates than it saves or reads the replaced node.
    fn offer(&mut self, replacement: Replacement) -> Option<()> {
        let own = self.xag.xag.node(self.node);
        let is_own =
            |(operation, a, b): Gate| matches!(normal(operation, a, b), Normal::Node(node, _) if node == own);
        if replacement.inner.is_some_and(is_own) || replacement.outer.is_some_and(is_own) {
            return Some(());
        }
        let gain = self.saved as isize - replacement.gates() as isize - self.kept(&replacement) as isize;
        (gain < 0 || (self.visit)(gain, replacement)).then_some(())
    }

    /// Returns the number of gates of the MFFC that a replacement keeps alive.
    fn kept(&self, replacement: &Replacement) -> usize {
        let is_inside = |literal: &Literal| self.mffc.get(literal.node()).is_some_and(|&inside| inside);
        let mut stack: Vec<usize> = replacement.literals().filter(is_inside).map(Literal::node).collect();
        let mut kept = Vec::new();
        while let Some(node) = stack.pop() {
            if !kept.contains(&node) {
                kept.push(node);
                let fanins = self.xag.xag.node(node).fanins();
                stack.extend(fanins.iter().filter(|fanin| is_inside(fanin)).map(|fanin| fanin.node()));
            }
        }
        kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    /// Returns the first 200 replacements of a node, with their gains.
    fn replacements(
        xag: &SimulatedXag,
        node: usize,
        gates: usize,
        start: usize,
    ) -> Vec<(isize, Replacement)> {
        let mut found = Vec::new();
        xag.search(node, gates, start, &mut |gain, replacement| {
            found.push((gain, replacement));
            found.len() < 200
        });
        found
    }

    #[test]
    fn observability_dont_cares_are_used() {
        // The only fanout of (a & b) ^ (a | b) is an AND with !(a & b), so it matters only where a & b is 0: the OR
        // alone can replace it.
        let mut xag = Xag::new(2);
        let [a, b] = [0, 1].map(Literal::input);
        let (both, any) = (xag.and(a, b), xag.or(a, b));
        let one = xag.xor(both, any);
        let exactly_one = xag.and(one, both.not());
        xag.set_outputs(vec![exactly_one, both]);
        let found = replacements(&SimulatedXag::new(xag), one.node(), 0, 0);
        assert!(found.iter().any(|(gain, r)| *gain == 1 && r.literal.node() == any.node()));
    }

    proptest! {
        #[test]
        fn every_replacement_preserves_the_function_and_has_its_gain(circuit in arbitrary::circuit(2..=8, 40)) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let simulated = SimulatedXag::new(xag.clone());
            for node in xag.gate_range() {
                for (gain, replacement) in replacements(&simulated, node, 2, node).iter().step_by(7) {
                    let next = simulated.replace(node, replacement);
                    prop_assert!(next.gates() as isize <= xag.gates() as isize - gain);
                    prop_assert_eq!(equivalent(&circuit, &next.to_circuit(&circuit)), Ok(Verdict::Equal));
                }
            }
        }
    }
}
