//! Bit-sliced counters: the number of ones at each bit position of many words.

use super::{CELL, LANES, Wrong};

/// The binary digits of a counter.
const DIGITS: usize = 32;

/// One counter for each bit of a cell, stored bit-sliced: digit d of 64 counters is one word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    digits: [[u64; DIGITS]; CELL],
}

impl Counters {
    pub fn new() -> Counters {
        Counters { digits: [[0; DIGITS]; CELL] }
    }

    /// Adds 1 to the counters whose bit is set in a word of a cell.
    pub fn add(&mut self, index: usize, word: u64) {
        let mut carry = word;
        for digit in &mut self.digits[index % CELL] {
            if carry == 0 {
                return;
            }
            (*digit, carry) = (*digit ^ carry, *digit & carry);
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> Wrong {
        let count = |lane: usize| {
            let digits = self.digits[lane / 64].iter().enumerate();
            digits.map(|(d, digit)| ((digit >> (lane % 64) & 1) as u32) << d).sum()
        };
        let mut counts = [0; LANES];
        counts.iter_mut().enumerate().for_each(|(lane, n)| *n = count(lane));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_position_has_its_own_counter() {
        let words: Vec<u64> = crate::arbitrary::numbers().take(300 * CELL).collect();
        let mut counters = Counters::new();
        words.iter().enumerate().for_each(|(i, &word)| counters.add(i, word));
        for (lane, count) in counters.counts().into_iter().enumerate() {
            let words = words.iter().skip(lane / 64).step_by(CELL);
            let expected = words.filter(|&word| word >> (lane % 64) & 1 == 1).count();
            assert_eq!(count as usize, expected, "place {lane}");
        }
    }
}
