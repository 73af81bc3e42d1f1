//! Bit strings in words: unaligned windows and bit-matrix transposition.

/// Returns the `len` bits (1 to 64) of a string from bit `start` on.
#[inline]
pub(super) fn window(bits: &[u64], start: usize, len: usize) -> u64 {
    let (word, shift) = (start / 64, start % 64);
    let mut window = bits[word] >> shift;
    if shift + len > 64 {
        window |= bits[word + 1] << (64 - shift);
    }
    window & u64::MAX >> (64 - len)
}

/// Writes `len` bits (1 to 64) of a string from bit `start` on, which must be 0 before.
#[inline]
pub(super) fn insert(bits: &mut [u64], start: usize, len: usize, value: u64) {
    let (word, shift) = (start / 64, start % 64);
    let value = value & u64::MAX >> (64 - len);
    bits[word] |= value << shift;
    if shift + len > 64 {
        bits[word + 1] |= value >> (64 - shift);
    }
}

/// Transposes a 64x64 bit matrix: the off-diagonal blocks of size 32 are exchanged, then those of size 16 within each
/// block, and so on (Hacker's Delight, 7-3).
pub(super) fn transpose(block: &mut [u64; 64]) {
    let (mut size, mut mask) = (32, u64::MAX >> 32);
    while size > 0 {
        for pair in block.chunks_exact_mut(2 * size) {
            let (upper, lower) = pair.split_at_mut(size);
            for (upper, lower) in upper.iter_mut().zip(lower) {
                let moved = (*upper >> size ^ *lower) & mask;
                *upper ^= moved << size;
                *lower ^= moved;
            }
        }
        size /= 2;
        mask ^= mask << size;
    }
}

/// Transposes a bit matrix of any size, stored row by row.
pub(super) fn transpose_grid(bits: &[u64], height: usize, width: usize) -> Vec<u64> {
    let mut transposed = vec![0; (height * width).div_ceil(64)];
    for top in (0..height).step_by(64) {
        for left in (0..width).step_by(64) {
            let (rows, columns) = (64.min(height - top), 64.min(width - left));
            let mut block = [0; 64];
            for (row, line) in block.iter_mut().take(rows).enumerate() {
                *line = window(bits, (top + row) * width + left, columns);
            }
            transpose(&mut block);
            for (column, &line) in block.iter().take(columns).enumerate() {
                insert(&mut transposed, (left + column) * height + top, rows, line);
            }
        }
    }
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn a_transposed_block_has_rows_for_columns() {
        let mut block = [0; 64];
        block.iter_mut().zip(arbitrary::numbers()).for_each(|(line, number)| *line = number);
        let before = block;
        transpose(&mut block);
        for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
            assert_eq!(block[row] >> column & 1, before[column] >> row & 1);
        }
    }

    proptest! {
        #[test]
        fn a_transposed_grid_has_rows_for_columns(height in 1usize..150, width in 1usize..150) {
            let bits: Vec<u64> = arbitrary::numbers().take((height * width).div_ceil(64)).collect();
            let transposed = transpose_grid(&bits, height, width);
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                prop_assert_eq!(window(&transposed, x * height + y, 1), window(&bits, y * width + x, 1));
            }
        }
    }
}
