//! Truth tables as bit vectors.
//!
//! Bit `i` of a table is the value for assignment `i`, whose bit `k` is input `k`.

/// The tables of the first six inputs: all 64 assignments in one word.
pub(crate) const SIX_INPUTS: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

/// Returns word `word` of the truth table of an input.
pub(crate) fn input_word(input: usize, word: usize) -> u64 {
    SIX_INPUTS.get(input).copied().unwrap_or_else(|| ((word >> (input - 6) & 1) as u64).wrapping_neg())
}

/// Returns the number of words of a truth table.
pub(crate) fn table_words(inputs: usize) -> usize {
    1 << inputs.saturating_sub(6)
}

/// The truth table of a function. With fewer than six inputs the table is repeated to fill a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TruthTable(pub Vec<u64>);

impl TruthTable {
    /// Tabulates `bit`, a function of an assignment.
    pub fn from_bits(inputs: usize, bit: impl Fn(usize) -> bool) -> TruthTable {
        let words = (0..table_words(inputs)).map(|word| {
            (0..64).fold(0, |all, i| all | u64::from(bit((word * 64 + i) & ((1 << inputs) - 1))) << i)
        });
        TruthTable(words.collect())
    }

    pub fn bit(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    pub fn not(&self) -> TruthTable {
        TruthTable(self.0.iter().map(|word| !word).collect())
    }

    pub fn xor(&self, other: &TruthTable) -> TruthTable {
        TruthTable(self.0.iter().zip(&other.0).map(|(a, b)| a ^ b).collect())
    }

    /// Returns the cofactor with respect to an input, as a table of the same size.
    pub fn cofactor(&self, input: usize, value: bool) -> TruthTable {
        if input < 6 {
            let (pattern, shift) = (SIX_INPUTS[input], 1 << input);
            let half = |word: u64| {
                if value {
                    (word & pattern) | (word & pattern) >> shift
                } else {
                    (word & !pattern) | (word & !pattern) << shift
                }
            };
            TruthTable(self.0.iter().map(|&word| half(word)).collect())
        } else {
            let bit = 1 << (input - 6);
            let place = |i: usize| if value { i | bit } else { i & !bit };
            TruthTable((0..self.0.len()).map(|i| self.0[place(i)]).collect())
        }
    }

    pub fn depends_on(&self, input: usize) -> bool {
        self.cofactor(input, false) != self.cofactor(input, true)
    }

    /// Returns the support: the inputs below `inputs` that the function depends on.
    pub fn support(&self, inputs: usize) -> Vec<usize> {
        (0..inputs).filter(|&input| self.depends_on(input)).collect()
    }

    /// Returns whether the function is symmetric in `x` and `y`, or in `x` and `!y` if `inverse`.
    pub fn is_symmetric(&self, x: usize, y: usize, inverse: bool) -> bool {
        self.cofactor(x, false).cofactor(y, !inverse) == self.cofactor(x, true).cofactor(y, inverse)
    }

    /// Returns the function as a 16-bit table of the at most four inputs of its support.
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

    #[test]
    fn bit_i_of_the_table_of_input_k_is_bit_k_of_i() {
        for input in 0..10 {
            for assignment in 0..1usize << 10 {
                let bit = input_word(input, assignment / 64) >> (assignment % 64) & 1;
                assert_eq!(bit as usize, assignment >> input & 1);
            }
        }
    }

    /// A table of nine inputs.
    fn table() -> impl Strategy<Value = TruthTable> {
        prop::collection::vec(any::<u64>(), 8).prop_map(TruthTable)
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
        fn a_function_is_symmetric_if_exchanging_the_inputs_preserves_it(
            table in table(), x in 0usize..9, y in 0usize..9, inverse in any::<bool>(),
        ) {
            prop_assume!(x != y);
            let exchanged = |i: usize| {
                let (a, b) = (i >> x & 1, i >> y & 1);
                let (a, b) = if inverse { (1 - b, 1 - a) } else { (b, a) };
                i & !(1 << x | 1 << y) | a << x | b << y
            };
            let symmetric = TruthTable::from_bits(9, |i| table.bit(i) && table.bit(exchanged(i)));
            prop_assert!(symmetric.is_symmetric(x, y, inverse));
            let is_same = (0..512).all(|i| table.bit(i) == table.bit(exchanged(i)));
            prop_assert_eq!(table.is_symmetric(x, y, inverse), is_same);
        }
    }
}
