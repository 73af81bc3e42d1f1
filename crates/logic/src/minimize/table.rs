//! Truth tables of up to twelve inputs, and what can be seen in them.

use super::dense::table_words;
use crate::truth::input_word;

/// A truth table: bit i belongs to the inputs with the binary digits of i. With fewer than six inputs the
/// table is repeated to fill a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table(pub Vec<u64>);

impl Table {
    pub fn not(&self) -> Table {
        Table(self.0.iter().map(|word| !word).collect())
    }

    pub fn xor(&self, other: &Table) -> Table {
        Table(self.0.iter().zip(&other.0).map(|(a, b)| a ^ b).collect())
    }

    /// The function with an input fixed, as a function that does not depend on it.
    pub fn cofactor(&self, input: usize, value: bool) -> Table {
        if input < 6 {
            let (pattern, shift) = (input_word(input, 0), 1 << input);
            let half = |word: u64| {
                if value {
                    (word & pattern) | (word & pattern) >> shift
                } else {
                    (word & !pattern) | (word & !pattern) << shift
                }
            };
            Table(self.0.iter().map(|&word| half(word)).collect())
        } else {
            let bit = 1 << (input - 6);
            let place = |i: usize| if value { i | bit } else { i & !bit };
            Table((0..self.0.len()).map(|i| self.0[place(i)]).collect())
        }
    }

    pub fn depends_on(&self, input: usize) -> bool {
        self.cofactor(input, false) != self.cofactor(input, true)
    }

    /// The inputs that matter, of so many.
    pub fn support(&self, inputs: usize) -> Vec<usize> {
        (0..inputs).filter(|&input| self.depends_on(input)).collect()
    }

    /// Whether two inputs can be exchanged: `x` and `y`, or `x` and the inverse of `y`.
    pub fn is_symmetric(&self, x: usize, y: usize, inverse: bool) -> bool {
        self.cofactor(x, false).cofactor(y, !inverse) == self.cofactor(x, true).cofactor(y, inverse)
    }

    pub fn bit(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    /// The table of so many inputs with these bits.
    pub fn from_bits(inputs: usize, bit: impl Fn(usize) -> bool) -> Table {
        let words = (0..table_words(inputs)).map(|word| {
            (0..64).fold(0, |all, i| all | u64::from(bit((word * 64 + i) & ((1 << inputs) - 1))) << i)
        });
        Table(words.collect())
    }

    /// The function of at most four inputs, as the table of these inputs.
    pub fn project(&self, support: &[usize]) -> u16 {
        (0..16usize).fold(0, |all, i| {
            let place = support.iter().enumerate().map(|(k, &input)| (i >> k & 1) << input).sum();
            all | u16::from(self.bit(place)) << i
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of nine inputs from eight words.
    fn table() -> impl Strategy<Value = Table> {
        prop::collection::vec(any::<u64>(), 8).prop_map(Table)
    }

    proptest! {
        #[test]
        fn cofactors_fix_an_input(table in table(), input in 0usize..9, value in any::<bool>()) {
            let cofactor = table.cofactor(input, value);
            for i in 0..512 {
                let place = if value { i | 1 << input } else { i & !(1 << input) };
                prop_assert_eq!(cofactor.bit(i), table.bit(place));
            }
            prop_assert!(!cofactor.depends_on(input));
        }

        #[test]
        fn exchanging_symmetric_inputs_changes_nothing(
            table in table(), x in 0usize..9, y in 0usize..9, inverse in any::<bool>(),
        ) {
            prop_assume!(x != y);
            let exchanged = |i: usize| {
                let (a, b) = (i >> x & 1, i >> y & 1);
                let (a, b) = if inverse { (1 - b, 1 - a) } else { (b, a) };
                i & !(1 << x | 1 << y) | a << x | b << y
            };
            let symmetric = Table::from_bits(9, |i| table.bit(i) && table.bit(exchanged(i)));
            prop_assert!(symmetric.is_symmetric(x, y, inverse));
            let is_same = (0..512).all(|i| table.bit(i) == table.bit(exchanged(i)));
            prop_assert_eq!(table.is_symmetric(x, y, inverse), is_same);
        }
    }
}
