//! Searches the smallest circuits of all functions of four inputs and prints them as the table in
//! `src/minimize/chains.rs`:
//!
//! ```text
//! cargo run --release --example smallest_chains
//! ```
//!
//! A chain is a list of gates on four inputs, each of which is 0 if all inputs are 0. Functions that differ
//! only by the order of the inputs and by inverters (an NPN class; there are 222) need the same number of
//! gates, so the first gate can be taken as `x0 & x1` or `x0 ^ x1`. All chains of one gate, then of two, and
//! so on are enumerated, until every class has one. The order of independent gates is fixed, every gate must
//! be used, and no function is computed twice, which leaves few enough chains to look at all of them up to
//! six gates. Twelve classes are left; they need seven.
//!
//! A gate is a byte: `5 * pair + operation`, where the pair (i, j) with i < j has the number j (j - 1) / 2 + i
//! and the operations are those of [`apply`]. A chain is a word, the first gate in the lowest byte. (No gate
//! that the search keeps has the byte 0 but the first, for it would be that gate again.)

use std::collections::HashMap;

const INPUTS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
/// Chains to print for each class.
const VARIANTS: usize = 6;

fn apply(operation: u8, a: u16, b: u16) -> u16 {
    [a & b, a & !b, !a & b, a ^ b, a | b][usize::from(operation)]
}

/// The smallest function of each class, for every function.
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

/// The function with its first input inverted.
fn invert_first(function: u16) -> u16 {
    (function & 0x5555) << 1 | (function & 0xaaaa) >> 1
}

/// The function with the inputs `input` and `input + 1` exchanged.
fn exchange(function: u16, input: usize) -> u16 {
    let (low, high) = (INPUTS[input], INPUTS[input + 1]);
    let (up, down, shift) = (function & low & !high, function & high & !low, 1 << input);
    function & !(low ^ high) | up << shift | down >> shift
}

struct Search {
    representative: Vec<u16>,
    /// The gates that each class needs, and chains for it.
    found: HashMap<u16, (usize, Vec<u64>)>,
    /// How many chains of its size were met, by class.
    met: HashMap<u16, u64>,
    random: u64,
    /// The functions of the inputs and of the gates so far.
    signals: Vec<u16>,
    codes: Vec<u8>,
    used: Vec<bool>,
    size: usize,
    /// Stop once all classes are found.
    in_hurry: bool,
}

impl Search {
    fn classes_left(&self) -> usize {
        222 - self.found.len()
    }

    fn record(&mut self, function: u16) {
        let class = self.representative[usize::from(function)];
        let (size, chains) = self.found.entry(class).or_insert((self.size, Vec::new()));
        if *size != self.size {
            return;
        }
        let chain = self.codes.iter().rev().fold(0, |word, &code| word << 8 | u64::from(code));
        let met = self.met.entry(class).or_insert(0);
        *met += 1;
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // A fair choice among all chains that are met.
        let place = ((self.random >> 33) % *met) as usize;
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
        if self.in_hurry && self.classes_left() == 0 {
            return;
        }
        let count = self.signals.len();
        for j in 1..count {
            for i in 0..j {
                let newly_used = usize::from(!self.used[i]) + usize::from(!self.used[j]);
                // Each gate to come can use up one more gate than it adds.
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
        let first_is_normal = code == 0 || code == 3;
        let last = self.signals.len() - 1;
        let in_order = match self.codes.last() {
            None => first_is_normal,
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
        met: HashMap::new(),
        random: 1,
        signals: INPUTS.to_vec(),
        codes: Vec::new(),
        used: vec![false; 4],
        size: 0,
        in_hurry: false,
    };
    while search.classes_left() > 0 {
        search.size += 1;
        search.in_hurry = search.size == 7;
        search.extend();
        eprintln!("{} gates: {} of 222 classes left", search.size, search.classes_left());
    }
    let mut classes: Vec<_> = search.found.into_iter().filter(|(_, (size, _))| *size > 0).collect();
    classes.sort_by_key(|&(class, (size, _))| (size, class));
    for (_, (_, mut chains)) in classes {
        chains.sort_unstable();
        chains.dedup();
        let words: Vec<String> = chains.iter().map(|chain| format!("{chain:#x}")).collect();
        println!("    &[{}],", words.join(", "));
    }
}
