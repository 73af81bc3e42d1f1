//! Functional reduction by SAT sweeping (fraiging): merges nodes with equal or complementary functions.
//!
//! ```text
//! simulate random inputs; nodes with the same signature (up to inversion) are candidates
//! for each node, in topological order:
//!     build it from its translated fanins; done if structural hashing finds it
//!     if a node with the same signature exists, query the solver:
//!         equal:      use that node
//!         different:  keep the counterexample
//!     after 64 counterexamples: simulate them to refine the candidate classes
//! ```
//!
//! All earlier nodes are swept already. Two similar circuits are therefore merged from the inputs on, and each query
//! involves few gates.

use super::sat::{self, Answer, Limits};
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Xag, translate};
use rustc_hash::FxHashMap;

/// The number of initial words of random inputs.
const WORDS: usize = 16;
/// The maximum number of initial words of all nodes together.
const MAX_STORED: usize = 1 << 26;
/// The number of words that refinements may add for all nodes together. A refinement takes time linear in the size of
/// the XAG, so a large XAG gets few.
const MAX_ADDED: usize = 1 << 24;
/// The minimum number of refinements, whatever the size.
const MIN_REFINEMENTS: usize = 4;
/// The number of candidates of a class that may fail before the next refinement.
const MAX_FAILURES: u8 = 2;

/// Pseudorandom numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.word() >> 32) as usize * end) >> 32
    }
}

/// Merges equal and complementary nodes of an XAG, with limits for each SAT query. The result has the same outputs;
/// merged nodes may remain as dead gates.
pub(crate) fn sweep(xag: &Xag, limits: Limits, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    Ok(Sweeper::run(xag, limits, stop)?.xag)
}

/// A sweep and its result.
pub(crate) struct Sweeper<'a> {
    /// The swept XAG, with the merged nodes as dead gates.
    pub xag: Xag,
    limits: Limits,
    stop: &'a Stop<'a>,
    /// Simulated words: `columns[k][node]`.
    columns: Vec<Vec<u64>>,
    /// The hash of the signature of each node, the same for complementary signatures.
    hashes: Vec<u64>,
    /// The literal that each node is equal to; the node itself if no earlier node is.
    pub reduced: Vec<Literal>,
    /// Candidate classes, by hash.
    classes: FxHashMap<u64, Class>,
    /// Counterexamples that are not simulated yet.
    pending: Vec<Vec<(usize, bool)>>,
    max_columns: usize,
    random: Random,
}

/// Nodes with the same signature.
struct Class {
    first: u32,
    failures: u8,
}

impl<'a> Sweeper<'a> {
    fn new(xag: &Xag, limits: Limits, stop: &'a Stop<'a>) -> Sweeper<'a> {
        let mut sweeper = Sweeper {
            xag: Xag::new(xag.inputs()),
            limits,
            stop,
            columns: Vec::new(),
            hashes: Vec::new(),
            reduced: Vec::new(),
            classes: FxHashMap::default(),
            pending: Vec::new(),
            max_columns: WORDS + (MAX_ADDED / xag.len()).max(MIN_REFINEMENTS),
            random: Random(0x6a7e),
        };
        let words = WORDS.min(MAX_STORED / xag.len()).max(2);
        for _ in 0..words {
            let mut column = vec![0];
            column.extend((0..xag.inputs()).map(|_| sweeper.random.word()));
            sweeper.columns.push(column);
        }
        for node in 0..=xag.inputs() {
            sweeper.enter(node);
        }
        sweeper
    }

    /// Adds the swept nodes and the outputs of an XAG.
    pub fn run(xag: &Xag, limits: Limits, stop: &'a Stop<'a>) -> Result<Sweeper<'a>, Stopped> {
        let mut sweeper = Sweeper::new(xag, limits, stop);
        let mut old_to_new: Vec<Literal> = (0..=xag.inputs()).map(|node| Literal::new(node, false)).collect();
        old_to_new.reserve(xag.gates());
        for index in xag.gate_range() {
            stop.check()?;
            let literal = sweeper.xag.add_copy(xag.node(index), &old_to_new);
            old_to_new.push(sweeper.reduce(literal));
        }
        sweeper.xag.set_outputs(xag.outputs().iter().map(|&output| translate(output, &old_to_new)).collect());
        Ok(sweeper)
    }

    /// Returns whether the signature of a node is inverted in its hash.
    fn phase(&self, node: usize) -> bool {
        self.columns[0][node] & 1 == 1
    }

    /// Enters a simulated node into its class, or a new one.
    fn enter(&mut self, node: usize) {
        let mask = u64::from(self.phase(node)).wrapping_neg();
        let hash = self.columns.iter().fold(0, |hash, column| mix(hash, column[node] ^ mask));
        self.hashes.push(hash);
        self.reduced.push(Literal::new(node, false));
        self.classes.entry(hash).or_insert(Class { first: node as u32, failures: 0 });
    }

    /// Returns the literal of the first node that a literal of the new XAG is equal to.
    fn reduce(&mut self, literal: Literal) -> Literal {
        let node = literal.node();
        if node == self.hashes.len() {
            let gate = self.xag.node(node);
            for column in &mut self.columns {
                column.push(gate.eval_word(column[gate.a.node()], column[gate.b.node()]));
            }
            self.enter(node);
            self.reduced[node] = self.compare(node);
        }
        self.reduced[node].invert_if(literal.is_inverted())
    }

    /// Queries the solver about a new node and the first of its class.
    fn compare(&mut self, node: usize) -> Literal {
        let own = Literal::new(node, false);
        let Some(class) = self.classes.get_mut(&self.hashes[node]) else { return own };
        let first = class.first as usize;
        if first == node || class.failures >= MAX_FAILURES {
            return own;
        }
        let candidate = Literal::new(first, self.phase(first) != self.phase(node));
        match sat::equal(&self.xag, own, candidate, self.limits, self.stop) {
            Answer::Equal => return candidate,
            Answer::Unknown => self.fail(node),
            Answer::Different(pattern) => {
                self.fail(node);
                self.pending.push(pattern);
                if self.pending.len() == 64 {
                    self.refine();
                }
            }
        }
        own
    }

    fn fail(&mut self, node: usize) {
        if let Some(class) = self.classes.get_mut(&self.hashes[node]) {
            class.failures += 1;
        }
    }

    /// Simulates the pending counterexamples, one bit each, and rebuilds the classes.
    fn refine(&mut self) {
        if self.columns.len() >= self.max_columns {
            self.pending.clear();
            return;
        }
        let mut inputs: Vec<u64> = (0..self.xag.inputs()).map(|_| self.random.word()).collect();
        for (bit, pattern) in self.pending.drain(..).enumerate() {
            for (input, value) in pattern {
                inputs[input] = inputs[input] & !(1 << bit) | u64::from(value) << bit;
            }
        }
        let mut column = Vec::new();
        self.xag.eval_words(&inputs, &mut column);
        self.classes.clear();
        for (node, &word) in column.iter().enumerate().take(self.hashes.len()) {
            let mask = u64::from(self.phase(node)).wrapping_neg();
            self.hashes[node] = mix(self.hashes[node], word ^ mask);
            if self.reduced[node] == Literal::new(node, false) {
                let class = Class { first: node as u32, failures: 0 };
                self.classes.entry(self.hashes[node]).or_insert(class);
            }
        }
        self.columns.push(column);
    }
}

/// Extends a hash by a word.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let z = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z ^ z >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn equal_and_complementary_nodes_are_merged() {
        // (a & b) | (a & c) is a & (b | c); the second output is the complement.
        let mut xag = Xag::new(3);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let (ab, ac) = (xag.and(a, b), xag.and(a, c));
        let sum = xag.or(ab, ac);
        let b_or_c = xag.or(b, c);
        let product = xag.and(a, b_or_c).not();
        xag.set_outputs(vec![sum, product]);
        let swept = sweep(&xag, Limits::NONE, &Stop::never()).unwrap();
        assert_eq!(swept.outputs()[0], swept.outputs()[1].not());
        assert_eq!(swept.without_dead_gates().gates(), 3);
    }

    #[test]
    fn counterexamples_refine_the_candidate_classes() {
        // Different conjunctions of 40 inputs each, which are 0 for all random inputs.
        let mut xag = Xag::new(120);
        let inputs: Vec<Literal> = (0..120).map(Literal::input).collect();
        let product = |range: std::ops::Range<usize>, xag: &mut Xag| {
            inputs[range].iter().fold(Literal::TRUE, |product, &x| xag.and(product, x))
        };
        let outputs: Vec<Literal> = (0..80).map(|i| product(i..i + 40, &mut xag)).collect();
        xag.set_outputs(outputs);
        let stop = Stop::never();
        let swept = Sweeper::run(&xag, Limits::NONE, &stop).unwrap();
        let mut distinct = swept.xag.outputs().to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 80);
        assert!(swept.columns.len() > WORDS);
    }

    proptest! {
        #[test]
        fn sweeping_preserves_the_function(circuit in arbitrary::circuit(0..=6, 120)) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let swept = sweep(&xag, Limits::NONE, &Stop::never()).unwrap().without_dead_gates();
            prop_assert!(swept.gates() <= xag.gates());
            let swept = swept.to_circuit(&circuit);
            for i in 0..1u32 << circuit.inputs() {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|k| i >> k & 1 == 1).collect();
                prop_assert_eq!(swept.eval(&bits), circuit.eval(&bits));
            }
        }
    }
}
