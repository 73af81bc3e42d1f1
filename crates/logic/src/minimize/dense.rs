//! Small networks with the truth table of every vertex: what can replace a vertex, with all don't-cares.
//!
//! With at most [`MAX_INPUTS`] inputs the whole function of every vertex fits into a few words. Flipping a
//! vertex and evaluating what reads it shows for which inputs an output notices: its *care set*. On the other
//! inputs a replacement may be anything. So the candidates are all expressions of up to two gates over all
//! vertices that do not depend on the one to replace, and a comparison of words tells whether one fits.
//!
//! For a target with on-set `on` and off-set `off`, that is `1` and `0` where it matters:
//!
//! ```text
//! x           fits if  on <= x,            off & x = 0
//! x & y       fits if  on <= x, on <= y,   off & x & y = 0      (and for the inverse with on, off exchanged)
//! x ^ y       fits if  y = x ^ on          on the care set: a look-up
//! x & (g)     fits if  on <= x, and g fits the target  on, off & x
//! x ^ (g)     fits if  g fits the target  on ^ x, off ^ x       on the care set
//! ```

use super::editor::Editor;
use crate::network::{Literal, Network, Operation, normal};
use crate::truth::input_word;
use rustc_hash::FxHashMap;

/// The most inputs of a dense network: a table has 2^12 bits, 64 words.
pub(super) const MAX_INPUTS: usize = 12;

/// The most divisors that pairs are made of, and those that nested pairs are made of.
const MAX_DIVISORS: usize = 400;
const MAX_NESTED_DIVISORS: usize = 80;

/// The words of a truth table.
pub(super) fn table_words(inputs: usize) -> usize {
    1 << inputs.saturating_sub(6)
}

/// A network with truth tables.
pub(super) struct Dense {
    network: Network,
    words: usize,
    /// `words` words for each vertex.
    tables: Vec<u64>,
    references: Vec<u32>,
}

/// One operation of a replacement.
type Gate = (Operation, Literal, Literal);

/// An expression that can replace a vertex: a literal, a gate, or a gate with another one as its operand. The
/// inner gate has the number of the next vertex of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    inner: Option<Gate>,
    outer: Option<Gate>,
    /// The result, if there is no outer gate.
    literal: Literal,
    not: bool,
}

impl Replacement {
    fn literals(&self) -> impl Iterator<Item = Literal> {
        let gates = self.inner.into_iter().chain(self.outer).flat_map(|(_, a, b)| [a, b]);
        gates.chain(self.outer.is_none().then_some(self.literal))
    }

    fn gates(&self) -> usize {
        usize::from(self.inner.is_some()) + usize::from(self.outer.is_some())
    }
}

/// What a replacement must be: 1 on `on`, 0 on `off`, anything elsewhere.
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

/// How a vertex may be replaced, found so far.
pub(super) trait Collect {
    /// Takes a replacement into account. Returns whether the search shall go on.
    fn take(&mut self, gain: isize, replacement: Replacement) -> bool;
}

impl Dense {
    /// Computes the truth tables of a network, which has at most [`MAX_INPUTS`] inputs.
    pub fn new(network: Network) -> Dense {
        let words = table_words(network.inputs());
        let mut tables = vec![0; words];
        for input in 0..network.inputs() {
            tables.extend((0..words).map(|word| input_word(input, word)));
        }
        for number in network.gate_range() {
            let vertex = network.vertex(number);
            let (a, b) = (vertex.a.vertex() * words, vertex.b.vertex() * words);
            for word in 0..words {
                tables.push(vertex.eval_word(tables[a + word], tables[b + word]));
            }
        }
        let references = network.references();
        Dense { network, words, tables, references }
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn into_network(self) -> Network {
        self.network
    }

    fn table(&self, vertex: usize) -> &[u64] {
        &self.tables[vertex * self.words..][..self.words]
    }

    /// The vertices that depend on a vertex, itself included, and the inputs for which an output notices it.
    fn observe(&self, vertex: usize) -> (Vec<bool>, Vec<u64>) {
        let words = self.words;
        let mut depends = vec![false; self.network.len()];
        depends[vertex] = true;
        let mut flipped = self.tables.clone();
        flipped[vertex * words..][..words].iter_mut().for_each(|word| *word = !*word);
        for number in vertex + 1..self.network.len() {
            let gate = self.network.vertex(number);
            let (a, b) = (gate.a.vertex(), gate.b.vertex());
            if self.network.is_gate(number) && (depends[a] || depends[b]) {
                depends[number] = true;
                for word in 0..words {
                    flipped[number * words + word] =
                        gate.eval_word(flipped[a * words + word], flipped[b * words + word]);
                }
            }
        }
        let mut care = vec![0; words];
        for output in self.network.outputs() {
            let place = output.vertex() * words;
            for (word, care) in care.iter_mut().enumerate() {
                *care |= flipped[place + word] ^ self.tables[place + word];
            }
        }
        (depends, care)
    }

    /// The vertices that die with a vertex, itself included.
    fn cone(&self, vertex: usize) -> Vec<bool> {
        let mut readers = self.references.clone();
        let mut dead = vec![false; self.network.len()];
        let mut stack = vec![vertex];
        while let Some(vertex) = stack.pop() {
            dead[vertex] = true;
            for operand in self.network.vertex(vertex).operands() {
                let operand = operand.vertex();
                readers[operand] -= 1;
                if readers[operand] == 0 && self.network.is_gate(operand) {
                    stack.push(operand);
                }
            }
        }
        dead
    }

    /// Searches replacements of a gate with up to `gates` gates that cost no more gates than they save. The
    /// divisors are tried from the one with number `start` on; if there are very many, not all are.
    pub fn search(&self, vertex: usize, gates: usize, start: usize, collect: &mut impl Collect) {
        let (depends, care) = self.observe(vertex);
        let dead = self.cone(vertex);
        let table = self.table(vertex);
        let target = Target {
            on: table.iter().zip(&care).map(|(&table, &care)| table & care).collect(),
            off: table.iter().zip(&care).map(|(&table, &care)| !table & care).collect(),
        };
        let mut divisors: Vec<usize> = (1..self.network.len()).filter(|&other| !depends[other]).collect();
        if !divisors.is_empty() {
            let start = start % divisors.len();
            divisors.rotate_left(start);
        }
        let saved = dead.iter().filter(|&&dead| dead).count();
        let mut search = Search { dense: self, vertex, divisors, dead, saved, collect };
        search.run(&target, gates);
    }

    /// The network with a vertex replaced.
    pub fn replace(&self, vertex: usize, replacement: &Replacement) -> Network {
        let mut editor = Editor::new(&self.network);
        let last = usize::MAX >> 32;
        let inner = replacement.inner.map(|(operation, a, b)| editor.add(last, normal(operation, a, b)));
        let resolve = |literal: Literal| match inner {
            Some(inner) if literal.vertex() == self.network.len() => inner.invert_if(literal.is_inverted()),
            _ => literal,
        };
        let literal = match replacement.outer {
            Some((operation, a, b)) => editor.add(last, normal(operation, resolve(a), resolve(b))),
            None => replacement.literal,
        };
        editor.replace(vertex, literal.invert_if(replacement.not));
        editor.finish()
    }
}

/// A search for replacements of one vertex.
struct Search<'a, C> {
    dense: &'a Dense,
    vertex: usize,
    divisors: Vec<usize>,
    dead: Vec<bool>,
    saved: usize,
    collect: &'a mut C,
}

impl<C: Collect> Search<'_, C> {
    fn run(&mut self, target: &Target, gates: usize) -> Option<()> {
        let is_empty = |set: &[u64]| set.iter().all(|&word| word == 0);
        for (set, literal) in [(&target.on, Literal::FALSE), (&target.off, Literal::TRUE)] {
            if is_empty(set) {
                return self.offer(Replacement { inner: None, outer: None, literal, not: false });
            }
        }
        let inverse = target.inverse();
        for literal in self.above(&target.on) {
            if self.is_disjoint(literal, &target.off) {
                self.offer(Replacement { inner: None, outer: None, literal, not: false })?;
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

    /// Expressions of two gates.
    fn nested(&mut self, target: &Target, inverse: &Target) -> Option<()> {
        for (target, not) in [(target, false), (inverse, true)] {
            for literal in self.above(&target.on) {
                let table = self.dense.table(literal.vertex());
                let off = target.off.iter().zip(table).map(|(&off, &x)| off & (x ^ literal.mask())).collect();
                let rest = Target { on: target.on.clone(), off };
                self.pairs(&rest, &rest.inverse(), Some((Operation::And, literal, not)))?;
            }
        }
        for i in 0..self.divisors.len() {
            let divisor = self.divisors[i];
            let flip = |(a, b): (&Vec<u64>, &Vec<u64>)| -> Vec<u64> {
                let table = self.dense.table(divisor);
                a.iter().zip(b).zip(table).map(|((&a, &b), &x)| a & !x | b & x).collect()
            };
            let rest = Target { on: flip((&target.on, &target.off)), off: flip((&target.off, &target.on)) };
            let outer = (Operation::Xor, Literal::new(divisor, false), false);
            self.pairs(&rest, &rest.inverse(), Some(outer))?;
        }
        Some(())
    }

    /// Gates of two divisors that fit a target, alone or as the operand of an outer gate.
    fn pairs(
        &mut self,
        target: &Target,
        inverse: &Target,
        outer: Option<(Operation, Literal, bool)>,
    ) -> Option<()> {
        for (target, not) in [(target, false), (inverse, true)] {
            let above = self.above(&target.on);
            for (i, &a) in above.iter().enumerate() {
                let rest = self.intersection(a, &target.off);
                for &b in &above[..i] {
                    if self.is_disjoint(b, &rest) {
                        self.offer(self.build((Operation::And, a, b), not, outer))?;
                    }
                }
            }
        }
        self.xor_pairs(target, outer)
    }

    /// XORs of two divisors that fit a target.
    fn xor_pairs(&mut self, target: &Target, outer: Option<(Operation, Literal, bool)>) -> Option<()> {
        let care: Vec<u64> = target.on.iter().zip(&target.off).map(|(&on, &off)| on | off).collect();
        let Some(first) = care.iter().position(|&word| word != 0) else { return Some(()) };
        let bit = care[first].trailing_zeros();
        // The hash of a table on the care set, and whether the table is inverted so that its first bit is 0.
        let hash = |word: &dyn Fn(usize) -> u64| {
            let inverted = word(first) >> bit & 1 == 1;
            let mask = u64::from(inverted).wrapping_neg();
            let mix = |hash: u64, i: usize| {
                let z =
                    (hash.rotate_left(23) ^ (word(i) ^ mask) & care[i]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                z ^ z >> 29
            };
            ((0..care.len()).fold(0, mix), inverted)
        };
        let mut places: FxHashMap<u64, usize> = FxHashMap::default();
        for i in 0..self.divisors.len() {
            let table = self.dense.table(self.divisors[i]);
            let (other, not_other) = hash(&|word| table[word] ^ target.on[word]);
            if let Some(&b) = places.get(&other) {
                let (a, table_b) = (self.divisors[i], self.dense.table(b));
                let not = not_other != hash(&|word| table_b[word]).1;
                let mask = u64::from(not).wrapping_neg();
                let fits =
                    |word: usize| (table[word] ^ table_b[word] ^ target.on[word] ^ mask) & care[word] == 0;
                if (0..care.len()).all(fits) {
                    let gate = (Operation::Xor, Literal::new(a, false), Literal::new(b, false));
                    self.offer(self.build(gate, not, outer))?;
                }
            }
            places.insert(hash(&|word| table[word]).0, self.divisors[i]);
        }
        Some(())
    }

    /// The replacement of a gate, inverted if `not`, within an outer gate.
    fn build(&self, gate: Gate, not: bool, outer: Option<(Operation, Literal, bool)>) -> Replacement {
        let literal = Literal::FALSE;
        match outer {
            None => Replacement { inner: None, outer: Some(gate), literal, not },
            Some((operation, other, outer_not)) => {
                let inner = Literal::new(self.dense.network.len(), not);
                let outer = Some((operation, other, inner));
                Replacement { inner: Some(gate), outer, literal, not: outer_not }
            }
        }
    }

    /// The literals that are 1 on a set.
    fn above(&self, set: &[u64]) -> Vec<Literal> {
        let mut above = Vec::new();
        for &divisor in &self.divisors {
            let table = self.dense.table(divisor);
            let missing = |mask: u64| table.iter().zip(set).any(|(&x, &set)| set & !(x ^ mask) != 0);
            if !missing(0) {
                above.push(Literal::new(divisor, false));
            } else if !missing(u64::MAX) {
                above.push(Literal::new(divisor, true));
            }
        }
        above
    }

    fn intersection(&self, literal: Literal, set: &[u64]) -> Vec<u64> {
        let table = self.dense.table(literal.vertex());
        table.iter().zip(set).map(|(&x, &set)| (x ^ literal.mask()) & set).collect()
    }

    fn is_disjoint(&self, literal: Literal, set: &[u64]) -> bool {
        let table = self.dense.table(literal.vertex());
        table.iter().zip(set).all(|(&x, &set)| (x ^ literal.mask()) & set == 0)
    }

    /// Offers a replacement if it costs no more than it saves. Ends the search if it was enough.
    fn offer(&mut self, replacement: Replacement) -> Option<()> {
        let own = self.dense.network.vertex(self.vertex);
        let is_own = |(operation, a, b): Gate| matches!(normal(operation, a, b), crate::network::Normal::Vertex(vertex, _) if vertex == own);
        if replacement.inner.is_some_and(is_own) || replacement.outer.is_some_and(is_own) {
            return Some(());
        }
        let gain = self.saved as isize - replacement.gates() as isize - self.kept(&replacement) as isize;
        (gain < 0 || self.collect.take(gain, replacement)).then_some(())
    }

    /// How many of the vertices that would die are needed by a replacement.
    fn kept(&self, replacement: &Replacement) -> usize {
        let is_dead = |literal: &Literal| self.dead.get(literal.vertex()).is_some_and(|&dead| dead);
        let mut stack: Vec<usize> = replacement.literals().filter(is_dead).map(Literal::vertex).collect();
        let mut kept = Vec::new();
        while let Some(vertex) = stack.pop() {
            if !kept.contains(&vertex) {
                kept.push(vertex);
                let operands = self.dense.network.vertex(vertex).operands();
                stack.extend(operands.iter().filter(|operand| is_dead(operand)).map(|o| o.vertex()));
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

    struct All(Vec<(isize, Replacement)>);

    impl Collect for All {
        fn take(&mut self, gain: isize, replacement: Replacement) -> bool {
            self.0.push((gain, replacement));
            self.0.len() < 200
        }
    }

    #[test]
    fn dont_cares_are_used() {
        // (a & b) ^ (a | b) is read only where a & b is 0, by an AND with !(a & b): the OR alone does it.
        let mut network = Network::new(2);
        let [a, b] = [0, 1].map(Literal::input);
        let (both, any) = (network.and(a, b), network.or(a, b));
        let one = network.xor(both, any);
        let exactly_one = network.and(one, both.not());
        network.set_outputs(vec![exactly_one, both]);
        let dense = Dense::new(network);
        let mut found = All(vec![]);
        dense.search(one.vertex(), 0, 0, &mut found);
        assert!(
            found
                .0
                .iter()
                .any(|(gain, replacement)| *gain == 1 && replacement.literal.vertex() == any.vertex())
        );
    }

    proptest! {
        #[test]
        fn every_replacement_keeps_the_function_and_the_promise(circuit in arbitrary::circuit(2..=8, 40)) {
            let network = Network::of(&circuit).without_dead_gates();
            let dense = Dense::new(network.clone());
            for vertex in network.gate_range() {
                let mut found = All(vec![]);
                dense.search(vertex, 2, vertex, &mut found);
                for (gain, replacement) in found.0.iter().step_by(7) {
                    let next = dense.replace(vertex, replacement);
                    prop_assert!(next.gates() as isize <= network.gates() as isize - gain);
                    prop_assert_eq!(equivalent(&circuit, &next.to_circuit(&circuit)), Ok(Verdict::Equal));
                }
            }
        }
    }
}
