//! Truth tables in words: bit `i` of a table is the value for assignment `i`, whose bit `k` is input `k`.

/// The tables of six inputs: all 64 assignments in one word.
pub(crate) const SIX_INPUTS: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

/// Word `word` of the truth table of an input.
pub(crate) fn input_word(input: usize, word: usize) -> u64 {
    SIX_INPUTS.get(input).copied().unwrap_or_else(|| ((word >> (input - 6) & 1) as u64).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_i_of_the_table_of_input_k_is_bit_k_of_i() {
        for input in 0..10 {
            for assignment in 0..1usize << 10 {
                let bit = input_word(input, assignment / 64) >> (assignment % 64) & 1;
                assert_eq!(bit as usize, assignment >> input & 1);
            }
        }
    }
}
