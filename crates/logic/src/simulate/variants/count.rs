//! Counting bits of equal places in many words.

use super::{LANES, Wrong};

/// Binary digits of a count.
const DIGITS: usize = 32;

/// One counter for each of the 64 places of a word, written as binary digits: digit d of all counters is one word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    digits: [u64; DIGITS],
}

impl Counters {
    pub fn new() -> Counters {
        Counters { digits: [0; DIGITS] }
    }

    /// Adds 1 to the counters whose bit is set.
    pub fn add(&mut self, word: u64) {
        let mut carry = word;
        for digit in &mut self.digits {
            if carry == 0 {
                return;
            }
            (*digit, carry) = (*digit ^ carry, *digit & carry);
        }
    }

    /// The counts.
    pub fn counts(&self) -> Wrong {
        let count = |lane: usize| (0..DIGITS).map(|d| ((self.digits[d] >> lane & 1) as u32) << d).sum();
        let mut counts = [0; LANES];
        counts.iter_mut().enumerate().for_each(|(lane, n)| *n = count(lane));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_the_bits_of_their_place() {
        let words: Vec<u64> = crate::arbitrary::numbers().take(300).collect();
        let mut counters = Counters::new();
        words.iter().for_each(|&word| counters.add(word));
        for (lane, count) in counters.counts().into_iter().enumerate() {
            let expected = words.iter().filter(|&word| word >> lane & 1 == 1).count();
            assert_eq!(count as usize, expected, "place {lane}");
        }
    }
}
