//! SAT sweeping: vertices that compute the same, or the opposite, become one.
//!
//! ```text
//! simulate random inputs; vertices with the same bits (up to inversion) are candidates
//! for each vertex, in order:
//!     build it from its operands' new literals; if it exists, done
//!     a vertex with the same bits exists:  ask the solver
//!         equal:      take that one
//!         different:  keep the input that shows it
//!     64 such inputs:  simulate them, so that these candidates part
//! ```
//!
//! Vertices before the one in question are swept already, so two similar circuits melt together from the
//! inputs on, and each question is about a few gates.

use super::sat::{self, Answer, Bounds};
use crate::network::{Literal, Network};
use rustc_hash::FxHashMap;

/// Words of random inputs at the start.
const WORDS: usize = 16;
/// The most words that are kept for all vertices together, at the start.
const MAX_STORED: usize = 1 << 26;
/// The words that later simulations may add for all vertices together, and the fewest simulations: each takes
/// time in proportion to the network, so a large one gets few.
const MAX_ADDED: usize = 1 << 24;
const MIN_REFINEMENTS: usize = 4;
/// How many candidates of one class may fail before the next simulation.
const MAX_FAILURES: u8 = 2;

/// Random words (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.word() >> 32) as usize * end) >> 32
    }
}

/// The result of a sweep.
pub(crate) struct Swept {
    /// The network with each function once, as far as it was found. It has the same outputs.
    pub network: Network,
    /// Inputs that told candidates apart: 64 assignments each, one word per input.
    #[cfg(test)]
    pub patterns: usize,
}

/// Sweeps a network, asking each question within these bounds.
pub(crate) fn sweep(network: &Network, bounds: Bounds) -> Swept {
    let mut sweeper = Sweeper::new(network, bounds);
    let mut moved: Vec<Literal> = (0..=network.inputs()).map(|vertex| Literal::new(vertex, false)).collect();
    moved.reserve(network.gates());
    for number in network.gate_range() {
        let vertex = network.vertex(number);
        let [a, b] = vertex.operands().map(|o| moved[o.vertex()].invert_if(o.is_inverted()));
        let literal = sweeper.network.operation(vertex.operation(), a, b);
        moved.push(sweeper.settle(literal));
    }
    let outputs = network.outputs().iter().map(|o| moved[o.vertex()].invert_if(o.is_inverted())).collect();
    sweeper.network.set_outputs(outputs);
    #[cfg(test)]
    let patterns = sweeper.columns.len();
    Swept {
        network: sweeper.network,
        #[cfg(test)]
        patterns,
    }
}

struct Sweeper {
    network: Network,
    bounds: Bounds,
    /// Simulated words: `columns[k][vertex]`.
    columns: Vec<Vec<u64>>,
    /// The first bit of each vertex: whether its words are inverted in the hash.
    hashes: Vec<u64>,
    /// What each vertex of the network was found to be.
    settled: Vec<Literal>,
    classes: FxHashMap<u64, Class>,
    pending: Vec<Vec<(usize, bool)>>,
    max_columns: usize,
    random: Random,
}

/// Vertices with the same bits so far.
struct Class {
    first: u32,
    failures: u8,
}

impl Sweeper {
    fn new(network: &Network, bounds: Bounds) -> Sweeper {
        let mut sweeper = Sweeper {
            network: Network::new(network.inputs()),
            bounds,
            columns: Vec::new(),
            hashes: Vec::new(),
            settled: Vec::new(),
            classes: FxHashMap::default(),
            pending: Vec::new(),
            max_columns: WORDS + (MAX_ADDED / network.len()).max(MIN_REFINEMENTS),
            random: Random(0x6a7e),
        };
        let words = WORDS.min(MAX_STORED / network.len()).max(2);
        for _ in 0..words {
            let mut column = vec![0];
            column.extend((0..network.inputs()).map(|_| sweeper.random.word()));
            sweeper.columns.push(column);
        }
        for vertex in 0..=network.inputs() {
            sweeper.enter(vertex);
        }
        sweeper
    }

    /// Whether the words of a vertex are inverted in its hash, so that opposites have one hash.
    fn phase(&self, vertex: usize) -> bool {
        self.columns[0][vertex] & 1 == 1
    }

    /// Puts a vertex with simulated words into its class, or a new one.
    fn enter(&mut self, vertex: usize) {
        let mask = u64::from(self.phase(vertex)).wrapping_neg();
        let hash = self.columns.iter().fold(0, |hash, column| mix(hash, column[vertex] ^ mask));
        self.hashes.push(hash);
        self.settled.push(Literal::new(vertex, false));
        self.classes.entry(hash).or_insert(Class { first: vertex as u32, failures: 0 });
    }

    /// What a literal of the new network is found to be.
    fn settle(&mut self, literal: Literal) -> Literal {
        let vertex = literal.vertex();
        if vertex == self.hashes.len() {
            let gate = self.network.vertex(vertex);
            for column in &mut self.columns {
                column.push(gate.eval_word(column[gate.a.vertex()], column[gate.b.vertex()]));
            }
            self.enter(vertex);
            self.settled[vertex] = self.compare(vertex);
        }
        self.settled[vertex].invert_if(literal.is_inverted())
    }

    /// Compares a new vertex with the first of its class.
    fn compare(&mut self, vertex: usize) -> Literal {
        let own = Literal::new(vertex, false);
        let Some(class) = self.classes.get_mut(&self.hashes[vertex]) else { return own };
        let first = class.first as usize;
        if first == vertex || class.failures >= MAX_FAILURES || self.bounds.is_late() {
            return own;
        }
        let candidate = Literal::new(first, self.phase(first) != self.phase(vertex));
        match sat::equal(&self.network, own, candidate, self.bounds) {
            Answer::Equal => return candidate,
            Answer::Unknown => self.fail(vertex),
            Answer::Different(pattern) => {
                self.fail(vertex);
                self.pending.push(pattern);
                if self.pending.len() == 64 {
                    self.refine();
                }
            }
        }
        own
    }

    fn fail(&mut self, vertex: usize) {
        if let Some(class) = self.classes.get_mut(&self.hashes[vertex]) {
            class.failures += 1;
        }
    }

    /// Simulates the pending inputs, one bit each, and builds the classes anew.
    fn refine(&mut self) {
        if self.columns.len() >= self.max_columns {
            self.pending.clear();
            return;
        }
        let mut inputs: Vec<u64> = (0..self.network.inputs()).map(|_| self.random.word()).collect();
        for (bit, pattern) in self.pending.drain(..).enumerate() {
            for (input, value) in pattern {
                inputs[input] = inputs[input] & !(1 << bit) | u64::from(value) << bit;
            }
        }
        let mut column = Vec::new();
        self.network.eval_words(&inputs, &mut column);
        self.classes.clear();
        for (vertex, &word) in column.iter().enumerate().take(self.hashes.len()) {
            let mask = u64::from(self.phase(vertex)).wrapping_neg();
            self.hashes[vertex] = mix(self.hashes[vertex], word ^ mask);
            if self.settled[vertex] == Literal::new(vertex, false) {
                let class = Class { first: vertex as u32, failures: 0 };
                self.classes.entry(self.hashes[vertex]).or_insert(class);
            }
        }
        self.columns.push(column);
    }
}

/// A hash of the words so far and one more.
fn mix(hash: u64, word: u64) -> u64 {
    let z = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z ^ z >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn equal_and_opposite_vertices_become_one() {
        // (a & b) | (a & c) is a & (b | c); the inverse of it with NANDs.
        let mut network = Network::new(3);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let (ab, ac) = (network.and(a, b), network.and(a, c));
        let sum = network.or(ab, ac);
        let b_or_c = network.or(b, c);
        let product = network.and(a, b_or_c).not();
        network.set_outputs(vec![sum, product]);
        let swept = sweep(&network, Bounds::NONE).network;
        assert_eq!(swept.outputs()[0], swept.outputs()[1].not());
        assert_eq!(swept.without_dead_gates().gates(), 3);
    }

    #[test]
    fn rare_values_tell_candidates_apart() {
        // Conjunctions of 40 inputs each, all different, that random inputs never make 1.
        let mut network = Network::new(120);
        let inputs: Vec<Literal> = (0..120).map(Literal::input).collect();
        let product = |range: std::ops::Range<usize>, network: &mut Network| {
            inputs[range].iter().fold(Literal::TRUE, |product, &x| network.and(product, x))
        };
        let outputs: Vec<Literal> = (0..80).map(|i| product(i..i + 40, &mut network)).collect();
        network.set_outputs(outputs);
        let swept = sweep(&network, Bounds::NONE);
        let mut distinct = swept.network.outputs().to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 80);
        assert!(swept.patterns > WORDS);
    }

    proptest! {
        #[test]
        fn the_function_stays(circuit in arbitrary::circuit(0..=6, 120)) {
            let network = Network::of(&circuit).without_dead_gates();
            let swept = sweep(&network, Bounds::NONE).network.without_dead_gates();
            prop_assert!(swept.gates() <= network.gates());
            let swept = swept.to_circuit(&circuit);
            for i in 0..1u32 << circuit.inputs() {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|k| i >> k & 1 == 1).collect();
                prop_assert_eq!(swept.eval(&bits), circuit.eval(&bits));
            }
        }
    }
}
