//! Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011), vectorised over blocks.
//!
//! A block of four words is a function of a key and a counter. The first word of the counter is incremented from block to
//! block, and wraps.

use super::level;

/// Blocks that are computed at a time.
const LANES: usize = 8;

/// Returns the four words of a block.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        counter = round(counter, key);
        key = next(key);
    }
    counter
}

/// Fills a slice with a dropout mask: each element is independently 0 with probability `dropped / 65536`, and `kept`
/// otherwise.
pub fn mask(counter: [u32; 4], key: [u32; 2], dropped: u16, kept: f32, numbers: &mut [f32]) {
    dispatch!(level(), _ => mask_pass(counter, key, dropped, kept, numbers));
}

/// Returns the number of blocks that [`mask`] uses for a slice.
pub const fn mask_blocks(elements: usize) -> usize {
    // 16 random bits per element.
    elements.div_ceil(8 * LANES) * LANES
}

#[inline(always)]
fn round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let p0 = u64::from(counter[0]) * 0xd251_1f53;
    let p1 = u64::from(counter[2]) * 0xcd9e_8d57;
    [(p1 >> 32) as u32 ^ counter[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ counter[3] ^ key[1], p0 as u32]
}

#[inline(always)]
fn next(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)]
}

/// Returns the first words of [`LANES`] consecutive blocks, their second words, and so on.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "a lane is a column of four arrays")]
fn lanes(counter: [u32; 4], mut key: [u32; 2]) -> [[u32; LANES]; 4] {
    let mut words = counter.map(|word| [word; LANES]);
    words[0].iter_mut().zip(0..).for_each(|(word, lane)| *word = word.wrapping_add(lane));
    for _ in 0..10 {
        for lane in 0..LANES {
            let block = round([words[0][lane], words[1][lane], words[2][lane], words[3][lane]], key);
            (0..4).for_each(|word| words[word][lane] = block[word]);
        }
        key = next(key);
    }
    words
}

#[inline(always)]
fn advance([first, rest @ ..]: [u32; 4], blocks: usize) -> [u32; 4] {
    let [b, c, d] = rest;
    [first.wrapping_add(blocks as u32), b, c, d]
}

#[inline(always)]
fn mask_pass(mut counter: [u32; 4], key: [u32; 2], dropped: u16, kept: f32, numbers: &mut [f32]) {
    let (chunks, rest) = numbers.as_chunks_mut::<{ 8 * LANES }>();
    for chunk in chunks {
        *chunk = mask_chunk(counter, key, dropped, kept);
        counter = advance(counter, LANES);
    }
    rest.copy_from_slice(&mask_chunk(counter, key, dropped, kept)[..rest.len()]);
}

/// Uses the lower and then the upper halves of the first words, then those of the second words, and so on.
#[inline(always)]
fn mask_chunk(counter: [u32; 4], key: [u32; 2], dropped: u16, kept: f32) -> [f32; 8 * LANES] {
    let mut chunk = [0.0; 8 * LANES];
    for (words, numbers) in lanes(counter, key).iter().zip(chunk.as_chunks_mut::<{ 2 * LANES }>().0) {
        let (lower, upper) = numbers.split_at_mut(LANES);
        for ((lower, upper), word) in lower.iter_mut().zip(upper).zip(words) {
            *lower = if word & 0xffff < u32::from(dropped) { 0.0 } else { kept };
            *upper = if word >> 16 < u32::from(dropped) { 0.0 } else { kept };
        }
    }
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::on_every_level;

    #[test]
    fn philox_gives_the_published_test_vectors() {
        // Known answers of the reference implementation (Random123, kat_vectors).
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn masks_are_equal_on_every_level_and_prefixes_of_longer_ones() {
        let mut expected = [0.0; 200];
        mask([1, 2, 3, 4], [5, 6], 20_000, 2.0, &mut expected);
        assert_eq!(mask_blocks(64), 8);
        assert_eq!(mask_blocks(65), 16);
        let words = |half: u32| philox([1, 2, 3, 4], [5, 6])[0] >> (16 * half) & 0xffff;
        assert_eq!([expected[0] == 0.0, expected[LANES] == 0.0], [words(0) < 20_000, words(1) < 20_000]);
        on_every_level(|| {
            for length in [0, 1, 63, 64, 65, 200] {
                let mut numbers = vec![1.0; length];
                mask([1, 2, 3, 4], [5, 6], 20_000, 2.0, &mut numbers);
                assert_eq!(numbers, expected[..length]);
            }
        });
    }
}
