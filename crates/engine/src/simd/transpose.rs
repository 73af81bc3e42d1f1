//! Transposition of 8x8 blocks of `f32` held in registers.

use fearless_simd::{Simd, f32x8, mask32x8, prelude::*};

/// Side of the blocks.
pub const BLOCK: usize = 8;

/// Transposes an 8x8 block held in registers: exchanges its quarters, then transposes each.
#[inline(always)]
pub fn transpose_block<S: Simd>(simd: S, rows: [f32x8<S>; BLOCK]) -> [f32x8<S>; BLOCK] {
    let [mut left, mut right] = [[rows[0]; 4]; 2];
    for i in 0..4 {
        let ((low, high), (low4, high4)) = (rows[i].split(), rows[i + 4].split());
        left[i] = low.combine(low4);
        right[i] = high.combine(high4);
    }
    let [c0, c1, c2, c3] = transpose_quarters(simd, left);
    let [c4, c5, c6, c7] = transpose_quarters(simd, right);
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// Transposes two 4x4 blocks that lie side by side in four vectors.
#[inline(always)]
pub fn transpose_quarters<S: Simd>(simd: S, [r0, r1, r2, r3]: [f32x8<S>; 4]) -> [f32x8<S>; 4] {
    // [x.0 x.1 y.0 y.1] and [x.2 x.3 y.2 y.3], in every block of four lanes
    let low = mask32x8::from_bitmask(simd, 0b0011_0011);
    let halves = |x: f32x8<S>, y: f32x8<S>| {
        (low.select(x, y.slide_within_blocks::<2>(y)), low.select(x.slide_within_blocks::<2>(x), y))
    };
    // [x.0 y.0 x.2 y.2] and [x.1 y.1 x.3 y.3]
    let even = mask32x8::from_bitmask(simd, 0b0101_0101);
    let pairs = |x: f32x8<S>, y: f32x8<S>| {
        (even.select(x, y.slide_within_blocks::<3>(y)), even.select(x.slide_within_blocks::<1>(x), y))
    };
    let ((t0, t2), (t1, t3)) = (halves(r0, r2), halves(r1, r3));
    let ((c0, c1), (c2, c3)) = (pairs(t0, t1), pairs(t2, t3));
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use fearless_simd::Level;

    use super::*;

    #[test]
    fn a_block_is_transposed() {
        for level in [Level::new(), Level::baseline()] {
            let mut out = [[0.0f32; BLOCK]; BLOCK];
            dispatch!(level, simd => {
                let rows = std::array::from_fn(|i| f32x8::from_fn(simd, |j| (i * BLOCK + j) as f32));
                for (row, to) in transpose_block(simd, rows).iter().zip(&mut out) {
                    row.store_slice(to);
                }
            });
            for (i, row) in out.iter().enumerate() {
                for (j, &value) in row.iter().enumerate() {
                    assert_eq!(value, (j * BLOCK + i) as f32);
                }
            }
        }
    }
}
