//! Resynthesis of functions with few inputs from their truth tables.
//!
//! A learned circuit has the structure that training found, and local search stays near the structure it starts from.
//! Functions with few inputs are therefore also built from scratch, in two ways:
//!
//! - by expansion: a Shannon or Davio expansion removes one input at a time, down to functions of four inputs, whose
//!   optimal chains are known;
//! - by symmetry: a function depends on a group of symmetric inputs only through the number of ones among them, so
//!   adders count the ones, and the remainder is a function of the counts.

use super::npn_library::NpnLibrary;
use super::resubstitution::MAX_INPUTS;
use crate::stop::{Stop, Stopped};
use crate::truth::{TruthTable, input_word, table_words};
use crate::xag::{Literal, Xag};
use rustc_hash::FxHashMap;

/// Returns the truth tables of the outputs of an XAG with at most [`MAX_INPUTS`] inputs.
fn output_tables(xag: &Xag, stop: &Stop<'_>) -> Result<Vec<TruthTable>, Stopped> {
    let words = table_words(xag.inputs());
    let mut tables = vec![TruthTable(Vec::with_capacity(words)); xag.outputs().len()];
    let mut values = Vec::new();
    for word in 0..words {
        stop.check()?;
        let inputs: Vec<u64> = (0..xag.inputs()).map(|input| input_word(input, word)).collect();
        xag.eval_words(&inputs, &mut values);
        for (table, output) in tables.iter_mut().zip(xag.outputs()) {
            table.0.push(values[output.node()] ^ output.mask());
        }
    }
    Ok(tables)
}

/// Resynthesis stops at twice the gates of the original plus this number.
const SLACK: usize = 50;

/// Rebuilds an XAG by Shannon and Davio expansion, unless the result becomes much larger.
pub(super) fn by_expansion(xag: &Xag, stop: &Stop<'_>) -> Result<Option<Xag>, Stopped> {
    let signals = (0..xag.inputs()).map(Literal::input).collect();
    build(Xag::new(xag.inputs()), signals, 2 * xag.gates() + SLACK, &output_tables(xag, stop)?, stop)
}

/// Rebuilds an XAG by counting symmetric inputs, if there is a group of at least three and the result does not become
/// much larger.
pub(super) fn by_symmetry(xag: &Xag, stop: &Stop<'_>) -> Result<Option<Xag>, Stopped> {
    let tables = output_tables(xag, stop)?;
    let groups = symmetric_groups(&tables, xag.inputs(), stop)?;
    if groups.iter().all(|group| group.len() < 3) {
        return Ok(None);
    }
    let mut fresh = Xag::new(xag.inputs());
    let counts: Vec<Count> = groups.into_iter().map(|group| Count::new(&mut fresh, group)).collect();
    let signals: Vec<Literal> = counts.iter().flat_map(|count| count.bits.iter().copied()).collect();
    if signals.len() > MAX_INPUTS {
        return Ok(None);
    }
    let of_counts =
        |table: &TruthTable| TruthTable::from_bits(signals.len(), |i| table.bit(representative(&counts, i)));
    let tables: Vec<TruthTable> = tables.iter().map(of_counts).collect();
    build(fresh, signals, 2 * xag.gates() + SLACK, &tables, stop)
}

/// Adds functions of these signals as the outputs of an XAG, unless it gets more than `max_gates` gates.
fn build(
    mut xag: Xag,
    signals: Vec<Literal>,
    max_gates: usize,
    tables: &[TruthTable],
    stop: &Stop<'_>,
) -> Result<Option<Xag>, Stopped> {
    let mut builder = Builder { xag: &mut xag, signals, built: FxHashMap::default(), max_gates, stop };
    let outputs: Option<Vec<Literal>> = tables.iter().map(|table| builder.build(table)).collect();
    if stop.was_due() {
        return Err(Stopped);
    }
    let Some(outputs) = outputs else { return Ok(None) };
    xag.set_outputs(outputs);
    Ok(Some(xag.without_dead_gates()))
}

/// An input and whether it is inverted.
type Member = (usize, bool);

/// Partitions the support into groups of inputs in which all functions are symmetric.
fn symmetric_groups(
    tables: &[TruthTable],
    inputs: usize,
    stop: &Stop<'_>,
) -> Result<Vec<Vec<Member>>, Stopped> {
    let mut groups: Vec<Vec<Member>> = Vec::new();
    for input in 0..inputs {
        stop.check()?;
        if !tables.iter().any(|table| table.depends_on(input)) {
            continue;
        }
        let is_symmetric = |group: &Vec<Member>, inverse: bool| {
            tables.iter().all(|table| table.is_symmetric(group[0].0, input, inverse))
        };
        let found = groups.iter().position(|group| is_symmetric(group, false) || is_symmetric(group, true));
        match found {
            Some(found) => {
                let inverse = !is_symmetric(&groups[found], false);
                groups[found].push((input, inverse));
            }
            None => groups.push(vec![(input, false)]),
        }
    }
    Ok(groups)
}

/// A group of inputs and the binary digits of the number of ones among them.
struct Count {
    group: Vec<Member>,
    bits: Vec<Literal>,
}

impl Count {
    /// Builds the adders. A full adder turns three bits of one weight into a sum of that weight and a carry of the next.
    fn new(xag: &mut Xag, group: Vec<Member>) -> Count {
        let literals = group.iter().map(|&(input, not)| Literal::input(input).invert_if(not));
        let mut column: Vec<Literal> = literals.collect();
        let mut bits = Vec::new();
        while !column.is_empty() {
            let mut next = Vec::new();
            let mut place = 0;
            while column.len() - place > 1 {
                let (a, b) = (column[place], column[place + 1]);
                let half = xag.xor(a, b);
                let (sum, carry) = if let Some(&c) = column.get(place + 2) {
                    let other = xag.xor(b, c);
                    let differs = xag.and(half, other);
                    (xag.xor(half, c), xag.xor(differs, b))
                } else {
                    (half, xag.and(a, b))
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

/// Returns an assignment of the inputs with these counts. Counts above the size of a group stand for that size.
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
    xag: &'a mut Xag,
    signals: Vec<Literal>,
    built: FxHashMap<TruthTable, Literal>,
    max_gates: usize,
    stop: &'a Stop<'a>,
}

impl Builder<'_> {
    /// Builds a function, unless the XAG has too many gates or it is time to stop.
    fn build(&mut self, table: &TruthTable) -> Option<Literal> {
        if table.bit(0) {
            return Some(self.build(&table.not())?.not());
        }
        if let Some(&literal) = self.built.get(table) {
            return Some(literal);
        }
        if self.xag.gates() > self.max_gates || self.stop.is_due() {
            return None;
        }
        let support = table.support(self.signals.len());
        let literal = match support[..] {
            [] => Literal::FALSE,
            // Not inverted: the function is 0 if all inputs are 0.
            [input] => self.signals[input],
            _ if support.len() <= 4 => self.build_optimal(table, &support),
            _ => self.expand(table, &support)?,
        };
        self.built.insert(table.clone(), literal);
        Some(literal)
    }

    /// Builds an optimal chain of a function with two to four inputs.
    fn build_optimal(&mut self, table: &TruthTable, support: &[usize]) -> Literal {
        let function = table.project(support);
        let Some(implementation) = NpnLibrary::get().implementations(function).next() else {
            return Literal::FALSE;
        };
        // The function does not depend on inputs beyond the support.
        let leaf = |leaf: usize| support.get(leaf).map_or(Literal::FALSE, |&input| self.signals[input]);
        let leaves = std::array::from_fn(leaf);
        implementation.build(leaves, |operation, a, b| self.xag.operation(operation, a, b))
    }

    /// Expands a function with respect to the input that leaves the cheapest cofactors.
    fn expand(&mut self, table: &TruthTable, support: &[usize]) -> Option<Literal> {
        let weight = |table: &TruthTable| {
            let support = table.support(self.signals.len());
            if support.len() <= 4 {
                NpnLibrary::get().size(table.project(&support))
            } else {
                1 << support.len()
            }
        };
        let cost = |&&input: &&usize| {
            let (low, high) = (table.cofactor(input, false), table.cofactor(input, true));
            let difference = low.xor(&high);
            let mut weights = [weight(&low), weight(&high), weight(&difference)];
            weights.sort_unstable();
            weights[0] + weights[1]
        };
        let &input = support.iter().min_by_key(cost)?;
        let (low, high) = (table.cofactor(input, false), table.cofactor(input, true));
        let difference = low.xor(&high);
        let [w0, w1, wd] = [&low, &high, &difference].map(weight);
        let x = self.signals[input];
        if w0.max(wd) <= w1.max(w0) && w0.max(wd) <= w1.max(wd) {
            // Positive Davio: low ^ x & (low ^ high).
            let (low, difference) = (self.build(&low)?, self.build(&difference)?);
            let term = self.xag.and(x, difference);
            Some(self.xag.xor(low, term))
        } else if w1.max(wd) <= w1.max(w0) {
            // Negative Davio: high ^ !x & (low ^ high).
            let (high, difference) = (self.build(&high)?, self.build(&difference)?);
            let term = self.xag.and(x.not(), difference);
            Some(self.xag.xor(high, term))
        } else {
            // Shannon: x & high | !x & low.
            let (low, high) = (self.build(&low)?, self.build(&high)?);
            let (a, b) = (self.xag.and(x, high), self.xag.and(x.not(), low));
            Some(self.xag.or(a, b))
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
    fn life_is_symmetric_in_its_neighbours() {
        let life = Xag::from_circuit(&crate::rules::life(Boundary::Torus).circuit);
        let groups =
            symmetric_groups(&output_tables(&life, &Stop::never()).unwrap(), 9, &Stop::never()).unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [8, 1]);
        assert!(by_symmetry(&life, &Stop::never()).unwrap().unwrap().gates() < 50);
    }

    #[test]
    fn inverted_inputs_can_be_symmetric() {
        // Majority of a, !b, c, !d, e.
        let literals: Vec<Literal> = (0..5).map(|i| Literal::input(i).invert_if(i % 2 == 1)).collect();
        let table = TruthTable::from_bits(5, |i| {
            literals.iter().enumerate().filter(|(k, l)| (i >> k & 1 == 1) != l.is_inverted()).count() >= 3
        });
        let groups = symmetric_groups(&[table], 5, &Stop::never()).unwrap();
        assert_eq!(groups, [vec![(0, false), (1, true), (2, false), (3, true), (4, false)]]);
    }

    #[test]
    fn resynthesis_ends_at_the_poll_that_stops_it() {
        let life = Xag::from_circuit(&crate::rules::life(Boundary::Torus).circuit);
        for resynthesize in [by_expansion, by_symmetry] {
            let never = Stop::never();
            assert!(resynthesize(&life, &never).is_ok());
            // More than the truth tables, whose eight words are one poll each.
            assert!(never.polls() > 8 + 3, "{} polls", never.polls());
            for poll in 1..=never.polls() {
                let stop = Stop::at_poll(poll);
                assert!(resynthesize(&life, &stop).is_err());
                assert!(stop.polls() <= poll + 1);
            }
        }
    }

    proptest! {
        #[test]
        fn resynthesis_preserves_the_function(circuit in arbitrary::circuit(0..=9, 60)) {
            let xag = Xag::from_circuit(&circuit);
            let stop = Stop::never();
            let built = [by_expansion(&xag, &stop).unwrap(), by_symmetry(&xag, &stop).unwrap()];
            for fresh in built.into_iter().flatten() {
                prop_assert_eq!(equivalent(&circuit, &fresh.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }

        #[test]
        fn resynthesis_by_symmetry_preserves_symmetric_functions(values in prop::collection::vec(any::<bool>(), 18)) {
            // A random function of the count of eight inputs and of a ninth input.
            let table = TruthTable::from_bits(9, |i| values[2 * (i & 255).count_ones() as usize + (i >> 8)]);
            let signals = (0..9).map(Literal::input).collect();
            let xag = build(Xag::new(9), signals, 10_000, &[table], &Stop::never()).unwrap().unwrap();
            let ports = crate::Circuit::new(9, vec![], vec![0]).unwrap();
            let circuit = xag.to_circuit(&ports);
            if let Some(fresh) = by_symmetry(&xag, &Stop::never()).unwrap() {
                prop_assert_eq!(equivalent(&circuit, &fresh.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }
    }
}
