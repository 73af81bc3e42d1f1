//! Circuits from truth tables: a fresh start for functions of few inputs.
//!
//! A circuit that was learned has the structure that learning found. The search in `search` stays near the
//! structure it starts from, so a small function is also built anew, in two ways:
//!
//! - input by input: f is `x & g`, `x | g`, `x ^ g` or a choice between two functions without x (Shannon's or
//!   Davio's expansion), down to functions of four inputs, whose smallest circuits are known;
//! - inputs that can be exchanged matter only by how many of them are 1: adders count them, and what is left
//!   is a function of the count.

use super::chains::Library;
use super::dense::{MAX_INPUTS, table_words};
use super::table::Table;
use crate::network::{Literal, Network};
use crate::truth::input_word;
use rustc_hash::FxHashMap;

/// The truth tables of the outputs of a network of at most [`MAX_INPUTS`] inputs.
fn output_tables(network: &Network) -> Vec<Table> {
    let words = table_words(network.inputs());
    let mut tables = vec![Table(Vec::with_capacity(words)); network.outputs().len()];
    let mut values = Vec::new();
    for word in 0..words {
        let inputs: Vec<u64> = (0..network.inputs()).map(|input| input_word(input, word)).collect();
        network.eval_words(&inputs, &mut values);
        for (table, output) in tables.iter_mut().zip(network.outputs()) {
            table.0.push(values[output.vertex()] ^ output.mask());
        }
    }
    tables
}

/// A fresh network is given up when it has this many gates more than twice those that it is to replace.
const SLACK: usize = 50;

/// The function of a network, built input by input, unless that becomes much larger.
pub(super) fn by_inputs(network: &Network) -> Option<Network> {
    let tables = output_tables(network);
    let mut fresh = Network::new(network.inputs());
    let signals = (0..network.inputs()).map(Literal::input).collect();
    let outputs = Builder::new(&mut fresh, signals, 2 * network.gates() + SLACK).build_all(&tables)?;
    fresh.set_outputs(outputs);
    Some(fresh.without_dead_gates())
}

/// The function of a network, with adders for inputs that can be exchanged, if there are at least three such.
pub(super) fn by_counting(network: &Network) -> Option<Network> {
    let tables = output_tables(network);
    let groups = symmetric_groups(&tables, network.inputs());
    if groups.iter().all(|group| group.len() < 3) {
        return None;
    }
    let mut fresh = Network::new(network.inputs());
    let counts: Vec<Count> = groups.into_iter().map(|group| Count::new(&mut fresh, group)).collect();
    let signals: Vec<Literal> = counts.iter().flat_map(|count| count.bits.iter().copied()).collect();
    if signals.len() > MAX_INPUTS {
        return None;
    }
    let in_counts =
        |table: &Table| Table::from_bits(signals.len(), |i| table.bit(representative(&counts, i)));
    let tables: Vec<Table> = tables.iter().map(in_counts).collect();
    let outputs = Builder::new(&mut fresh, signals, 2 * network.gates() + SLACK).build_all(&tables)?;
    fresh.set_outputs(outputs);
    Some(fresh.without_dead_gates())
}

/// An input and whether it is counted inverted.
type Member = (usize, bool);

/// Groups of inputs that can be exchanged in all tables. Every input that matters is in one group.
fn symmetric_groups(tables: &[Table], inputs: usize) -> Vec<Vec<Member>> {
    let mut groups: Vec<Vec<Member>> = Vec::new();
    for input in 0..inputs {
        if !tables.iter().any(|table| table.depends_on(input)) {
            continue;
        }
        let fits = |group: &Vec<Member>, inverse: bool| {
            tables.iter().all(|table| table.is_symmetric(group[0].0, input, inverse))
        };
        let place = groups.iter().position(|group| fits(group, false) || fits(group, true));
        match place {
            Some(place) => {
                let inverse = !fits(&groups[place], false);
                groups[place].push((input, inverse));
            }
            None => groups.push(vec![(input, false)]),
        }
    }
    groups
}

/// A group of inputs and the binary digits of how many of them are 1.
struct Count {
    group: Vec<Member>,
    bits: Vec<Literal>,
}

impl Count {
    /// Builds adders. Three digits of a weight become one of it and one of the next.
    fn new(network: &mut Network, group: Vec<Member>) -> Count {
        let literals = group.iter().map(|&(input, not)| Literal::input(input).invert_if(not));
        let mut column: Vec<Literal> = literals.collect();
        let mut bits = Vec::new();
        while !column.is_empty() {
            let mut next = Vec::new();
            let mut place = 0;
            while column.len() - place > 1 {
                let (a, b) = (column[place], column[place + 1]);
                let half = network.xor(a, b);
                let (sum, carry) = if let Some(&c) = column.get(place + 2) {
                    let other = network.xor(b, c);
                    let differs = network.and(half, other);
                    (network.xor(half, c), network.xor(differs, b))
                } else {
                    (half, network.and(a, b))
                };
                place = (place + 3).min(column.len());
                column.push(sum);
                next.push(carry);
            }
            bits.push(column[place]);
            column = next;
        }
        Count { group, bits }
    }
}

/// An assignment of the inputs with these counts, as an index into a table. A count that is too large stands
/// for the largest.
fn representative(counts: &[Count], digits: usize) -> usize {
    let (mut index, mut place) = (0, 0);
    for count in counts {
        let value = digits >> place & ((1 << count.bits.len()) - 1);
        place += count.bits.len();
        for (k, &(input, not)) in count.group.iter().enumerate() {
            index |= usize::from((k < value) != not) << input;
        }
    }
    index
}

/// Builds functions of some signals, each only once.
struct Builder<'a> {
    network: &'a mut Network,
    signals: Vec<Literal>,
    built: FxHashMap<Table, Literal>,
    /// The most gates that are built.
    most: usize,
}

impl Builder<'_> {
    fn new(network: &mut Network, signals: Vec<Literal>, most: usize) -> Builder<'_> {
        Builder { network, signals, built: FxHashMap::default(), most }
    }

    /// Builds functions, unless they need too many gates.
    fn build_all(mut self, tables: &[Table]) -> Option<Vec<Literal>> {
        tables.iter().map(|table| self.build(table)).collect()
    }

    fn build(&mut self, table: &Table) -> Option<Literal> {
        if table.bit(0) {
            return Some(self.build(&table.not())?.not());
        }
        if let Some(&literal) = self.built.get(table) {
            return Some(literal);
        }
        if self.network.gates() > self.most {
            return None;
        }
        let support = table.support(self.signals.len());
        let literal = match support[..] {
            [] => Literal::FALSE,
            // It is 0 where all inputs are 0.
            [input] => self.signals[input],
            _ if support.len() <= 4 => self.build_smallest(table, &support),
            _ => self.expand(table, &support)?,
        };
        self.built.insert(table.clone(), literal);
        Some(literal)
    }

    /// A function of up to four signals.
    fn build_smallest(&mut self, table: &Table, support: &[usize]) -> Literal {
        let function = table.project(support);
        let Some(implementation) = Library::get().implementations(function).next() else {
            return Literal::FALSE;
        };
        // An input behind the support does not matter.
        let leaf = |leaf: usize| support.get(leaf).map_or(Literal::FALSE, |&input| self.signals[input]);
        let inputs = implementation.inputs.map(|(input, not)| leaf(input).invert_if(not));
        implementation.build(self.network, inputs)
    }

    /// A function of more signals, by the input that leaves least.
    fn expand(&mut self, table: &Table, support: &[usize]) -> Option<Literal> {
        let weight = |table: &Table| {
            let support = table.support(self.signals.len());
            if support.len() <= 4 { Library::get().size(table.project(&support)) } else { 1 << support.len() }
        };
        let cost = |&&input: &&usize| {
            let (low, high) = (table.cofactor(input, false), table.cofactor(input, true));
            let different = low.xor(&high);
            let mut weights = [weight(&low), weight(&high), weight(&different)];
            weights.sort_unstable();
            weights[0] + weights[1]
        };
        let &input = support.iter().min_by_key(cost)?;
        let (low, high) = (table.cofactor(input, false), table.cofactor(input, true));
        let different = low.xor(&high);
        let [w0, w1, wd] = [&low, &high, &different].map(weight);
        let x = self.signals[input];
        if w0.max(wd) <= w1.max(w0) && w0.max(wd) <= w1.max(wd) {
            // Davio: low ^ x & (low ^ high).
            let (low, different) = (self.build(&low)?, self.build(&different)?);
            let term = self.network.and(x, different);
            Some(self.network.xor(low, term))
        } else if w1.max(wd) <= w1.max(w0) {
            let (high, different) = (self.build(&high)?, self.build(&different)?);
            let term = self.network.and(x.not(), different);
            Some(self.network.xor(high, term))
        } else {
            // Shannon: x & high | !x & low, which are never both 1.
            let (low, high) = (self.build(&low)?, self.build(&high)?);
            let (a, b) = (self.network.and(x, high), self.network.and(x.not(), low));
            Some(self.network.or(a, b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    #[test]
    fn life_counts_its_neighbours() {
        let life = Network::of(&crate::rules::life(Boundary::Torus).circuit);
        let groups = symmetric_groups(&output_tables(&life), 9);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [8, 1]);
        assert!(by_counting(&life).unwrap().gates() < 50);
    }

    #[test]
    fn inverted_inputs_are_counted_too() {
        // Majority of a, !b, c, !d, e.
        let literals: Vec<Literal> = (0..5).map(|i| Literal::input(i).invert_if(i % 2 == 1)).collect();
        let table = Table::from_bits(5, |i| {
            literals.iter().enumerate().filter(|(k, l)| (i >> k & 1 == 1) != l.is_inverted()).count() >= 3
        });
        let groups = symmetric_groups(&[table], 5);
        assert_eq!(groups, [vec![(0, false), (1, true), (2, false), (3, true), (4, false)]]);
    }

    proptest! {
        #[test]
        fn the_function_stays(circuit in arbitrary::circuit(0..=9, 60)) {
            let network = Network::of(&circuit);
            for fresh in [by_inputs(&network), by_counting(&network)].into_iter().flatten() {
                prop_assert_eq!(equivalent(&circuit, &fresh.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }

        #[test]
        fn symmetric_functions_stay(values in prop::collection::vec(any::<bool>(), 18)) {
            // Any function of a count of eight inputs and a ninth one.
            let table = Table::from_bits(9, |i| values[2 * (i & 255).count_ones() as usize + (i >> 8)]);
            let mut network = Network::new(9);
            let signals = (0..9).map(Literal::input).collect();
            let outputs = Builder::new(&mut network, signals, 10_000).build_all(&[table]);
            network.set_outputs(outputs.unwrap());
            let ports = crate::Circuit::new(9, vec![], vec![0]).unwrap();
            let circuit = network.to_circuit(&ports);
            if let Some(fresh) = by_counting(&network) {
                prop_assert_eq!(equivalent(&circuit, &fresh.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }
    }
}
