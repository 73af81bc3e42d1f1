//! Finds size-optimal Boolean chains of all functions of four inputs by exhaustive search, and prints them as the table of
//! `src/minimize/npn_library.rs`:
//!
//! ```text
//! cargo run --release -p gatework-logic --example smallest_chains > crates/logic/src/minimize/npn_chains.txt
//! ```
//!
//! A chain is a list of gates on four inputs, each of which is normal: 0 if all inputs are 0. Functions of one NPN class
//! (equal up to negated inputs, permuted inputs and a negated output; there are 222) need the same number of gates, so
//! the first gate can be assumed to be `x0 & x1` or `x0 ^ x1`. All chains of one gate, then of two, and so on are
//! enumerated until every class has one. To prune the search, independent gates are in a fixed order, every gate must be
//! used, and no function is computed twice. Up to six gates the enumeration is complete; the twelve remaining classes
//! need seven.
//!
//! A gate is a byte: `5 * pair + operation`, where the pair (i, j) with i < j has the number j (j - 1) / 2 + i and the
//! operations are those of [`apply`]. A chain is a word, the first gate in the lowest byte. (Byte 0 can only be the first
//! gate: a later one would repeat it.)

use std::collections::HashMap;

const INPUTS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
/// The maximum number of chains to print per class.
const VARIANTS: usize = 6;

fn apply(operation: u8, a: u16, b: u16) -> u16 {
    [a & b, a & !b, !a & b, a ^ b, a | b][usize::from(operation)]
}

/// Returns the representative of the NPN class of every function: its smallest truth table.
fn representatives() -> Vec<u16> {
    let mut smallest = vec![u16::MAX; 1 << 16];
    let mut reached = vec![false; 1 << 16];
    for start in 0..=u16::MAX {
        let mut queue = if reached[usize::from(start)] { vec![] } else { vec![start] };
        while let Some(function) = queue.pop() {
            if !std::mem::replace(&mut reached[usize::from(function)], true) {
                smallest[usize::from(function)] = start;
                queue.extend([!function, invert_first(function)]);
                queue.extend((0..3).map(|input| exchange(function, input)));
            }
        }
    }
    smallest
}

/// Inverts the first input of a function.
fn invert_first(function: u16) -> u16 {
    (function & 0x5555) << 1 | (function & 0xaaaa) >> 1
}

/// Exchanges the inputs `input` and `input + 1` of a function.
fn exchange(function: u16, input: usize) -> u16 {
    let (low, high) = (INPUTS[input], INPUTS[input + 1]);
    let (up, down, shift) = (function & low & !high, function & high & !low, 1 << input);
    function & !(low ^ high) | up << shift | down >> shift
}

struct Search {
    representative: Vec<u16>,
    /// The size of each class, and chains of that size.
    found: HashMap<u16, (usize, Vec<u64>)>,
    /// The number of chains of that size so far, by class.
    seen: HashMap<u16, u64>,
    random: u64,
    /// The functions of the inputs and of the gates so far.
    signals: Vec<u16>,
    codes: Vec<u8>,
    used: Vec<bool>,
    size: usize,
    /// Whether to stop once all classes are found.
    stop_early: bool,
}

impl Search {
    fn remaining_classes(&self) -> usize {
        222 - self.found.len()
    }

    fn record(&mut self, function: u16) {
        let class = self.representative[usize::from(function)];
        let (size, chains) = self.found.entry(class).or_insert((self.size, Vec::new()));
        if *size != self.size {
            return;
        }
        let chain = self.codes.iter().rev().fold(0, |word, &code| word << 8 | u64::from(code));
        let seen = self.seen.entry(class).or_insert(0);
        *seen += 1;
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Reservoir sampling of all chains of the class.
        let place = ((self.random >> 33) % *seen) as usize;
        if chains.len() < VARIANTS {
            chains.push(chain);
        } else if place < VARIANTS {
            chains[place] = chain;
        }
    }

    fn extend(&mut self) {
        let remaining = self.size - self.codes.len();
        if remaining == 0 {
            return self.record(*self.signals.last().unwrap());
        }
        if self.stop_early && self.remaining_classes() == 0 {
            return;
        }
        let count = self.signals.len();
        for j in 1..count {
            for i in 0..j {
                let newly_used = usize::from(!self.used[i]) + usize::from(!self.used[j]);
                // Each further gate can use at most one more gate than it adds.
                let unused = self.used[4..].iter().filter(|&&used| !used).count() + 1
                    - usize::from(i >= 4 && !self.used[i])
                    - usize::from(j >= 4 && !self.used[j]);
                if unused > remaining || newly_used == 0 && remaining == 1 && count > 5 {
                    continue;
                }
                for operation in 0..5 {
                    self.step(i, j, operation);
                }
            }
        }
    }

    fn step(&mut self, i: usize, j: usize, operation: u8) {
        let code = (5 * (j * (j - 1) / 2 + i)) as u8 + operation;
        let can_be_first = code == 0 || code == 3;
        let last = self.signals.len() - 1;
        let in_order = match self.codes.last() {
            None => can_be_first,
            Some(&previous) => j == last || code > previous,
        };
        let function = apply(operation, self.signals[i], self.signals[j]);
        if !in_order || function == 0 || self.signals.contains(&function) {
            return;
        }
        let before = (self.used[i], self.used[j]);
        (self.used[i], self.used[j]) = (true, true);
        self.used.push(false);
        self.signals.push(function);
        self.codes.push(code);
        self.extend();
        self.codes.pop();
        self.signals.pop();
        self.used.pop();
        (self.used[i], self.used[j]) = before;
    }
}

fn main() {
    let mut search = Search {
        representative: representatives(),
        found: HashMap::from([(0, (0, vec![])), (0x00ff, (0, vec![]))]),
        seen: HashMap::new(),
        random: 1,
        signals: INPUTS.to_vec(),
        codes: Vec::new(),
        used: vec![false; 4],
        size: 0,
        stop_early: false,
    };
    while search.remaining_classes() > 0 {
        search.size += 1;
        search.stop_early = search.size == 7;
        search.extend();
        eprintln!("{} gates: {} of 222 classes remain", search.size, search.remaining_classes());
    }
    let mut classes: Vec<_> = search.found.into_iter().filter(|(_, (size, _))| *size > 0).collect();
    classes.sort_by_key(|&(class, (size, _))| (size, class));
    for (_, (_, mut chains)) in classes {
        chains.sort_unstable();
        chains.dedup();
        let words: Vec<String> = chains.iter().map(|chain| format!("{chain:x}")).collect();
        println!("{}", words.join(" "));
    }
}
