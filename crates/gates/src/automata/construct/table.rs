//! Functions of a few bits that are given as a table, as a decision diagram that becomes gates.
//!
//! Entries may be left open. Halves of a table that agree, or are each other's complement, where both are given need no
//! multiplexer.

use rustc_hash::FxHashMap;

use super::bits::{Bit, Bits};

/// A value of the table; `None` if any value will do.
pub type Entry = Option<bool>;

/// Adds functions of the variables: entry `i` of a table is the value where the variables are the digits of `i`, the lowest
/// first. Uses the order of the variables that needs the fewest gates among a few.
pub fn lookup(bits: &mut Bits, variables: &[Bit], tables: &[Vec<Entry>]) -> Vec<Bit> {
    let count = variables.len();
    let forward: Vec<usize> = (0..count).collect();
    let half = count / 2;
    let interleaved = (0..count).map(|i| if i % 2 == 0 { i / 2 } else { (half + i / 2).min(count - 1) });
    let interleaved: Vec<usize> = interleaved.collect();
    let is_order = |order: &Vec<usize>| (0..count).all(|variable| order.contains(&variable));
    let swapped = (half..count).chain(0..half).collect();
    let mut best: Option<(usize, Bits, Vec<Bit>)> = None;
    for order in [forward.clone(), forward.into_iter().rev().collect(), swapped, interleaved] {
        if !is_order(&order) {
            continue;
        }
        let mut bits = bits.clone();
        let outputs = with_order(&mut bits, variables, tables, &order);
        if best.as_ref().is_none_or(|(gates, ..)| bits.gates() < *gates) {
            best = Some((bits.gates(), bits, outputs));
        }
    }
    let Some((_, with, outputs)) = best else { return vec![Bit::FALSE; tables.len()] };
    *bits = with;
    outputs
}

fn with_order(bits: &mut Bits, variables: &[Bit], tables: &[Vec<Entry>], order: &[usize]) -> Vec<Bit> {
    let ordered: Vec<Bit> = order.iter().map(|&variable| variables[variable]).collect();
    let mut diagram = Diagram { bits, variables: &ordered, known: FxHashMap::default() };
    let at = |index: usize| {
        order.iter().enumerate().map(|(i, &variable)| (index >> i & 1) << variable).sum::<usize>()
    };
    let reorder = |table: &Vec<Entry>| (0..table.len()).map(|index| table[at(index)]).collect();
    tables.iter().map(|table| diagram.add(reorder(table))).collect()
}

/// A decision diagram whose nodes are gates.
struct Diagram<'a> {
    bits: &'a mut Bits,
    variables: &'a [Bit],
    known: FxHashMap<Vec<Entry>, Bit>,
}

impl Diagram<'_> {
    fn add(&mut self, table: Vec<Entry>) -> Bit {
        // The first given entry of a normal table is 0.
        let Some(first) = table.iter().flatten().next().copied() else { return Bit::FALSE };
        if first {
            return self.add(inverted(&table)).not();
        }
        if table.iter().flatten().all(|value| !value) {
            return Bit::FALSE;
        }
        if let Some(&bit) = self.known.get(&table) {
            return bit;
        }
        let (low, high) = table.split_at(table.len() / 2);
        let variable = self.variables[low.len().trailing_zeros() as usize];
        let bit = if let Some(both) = merged(low, high) {
            self.add(both)
        } else if let Some(both) = merged(low, &inverted(high)) {
            let inner = self.add(both);
            self.bits.xor(variable, inner)
        } else {
            let (yes, no) = (self.add(high.to_vec()), self.add(low.to_vec()));
            self.bits.choose(variable, yes, no)
        };
        self.known.insert(table, bit);
        bit
    }
}

fn inverted(table: &[Entry]) -> Vec<Entry> {
    table.iter().map(|entry| entry.map(|value| !value)).collect()
}

/// Returns a table that agrees with both where they are given, if there is one.
fn merged(a: &[Entry], b: &[Entry]) -> Option<Vec<Entry>> {
    let entry = |(a, b): (&Entry, &Entry)| match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        _ => Some(a.or(*b)),
    };
    a.iter().zip(b).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};

    #[test]
    fn a_function_has_the_given_values() {
        let mut random = Random::new(1, Purpose::Check, 0);
        for count in 0..8usize {
            let mut entry = |open: usize| (random.below(3) >= open).then(|| random.below(2) == 1);
            let tables: Vec<Vec<Entry>> =
                (0..3).map(|open| (0..1 << count).map(|_| entry(open)).collect()).collect();
            let mut bits = Bits::new(count.max(1));
            let variables: Vec<Bit> = (0..count).map(Bit::input).collect();
            let outputs = lookup(&mut bits, &variables, &tables);
            let circuit = bits.finish(&outputs).unwrap();
            for index in 0..1 << count {
                let inputs: Vec<bool> = (0..count.max(1)).map(|i| index >> i & 1 == 1).collect();
                let values = circuit.eval(&inputs).unwrap();
                for (table, value) in tables.iter().zip(values) {
                    assert!(table[index].is_none_or(|right| right == value), "{count} bits, entry {index}");
                }
            }
        }
    }
}
