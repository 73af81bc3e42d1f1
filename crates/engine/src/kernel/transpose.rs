//! Transposed copies between cells x channels and channels x cells, in blocks of 8x8.

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

use std::ops::Range;

use fearless_simd::{Simd, f32x8, mask32x8, prelude::*};

use super::gates::{LANES, Row};
use super::level;

/// Side of the blocks.
pub const BLOCK: usize = 8;

/// Transposes an 8x8 block held in registers: exchanges its quarters, then transposes each.
#[inline(always)]
pub(crate) fn transpose_block<S: Simd>(simd: S, rows: [f32x8<S>; BLOCK]) -> [f32x8<S>; BLOCK] {
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
pub(crate) fn transpose_quarters<S: Simd>(simd: S, [r0, r1, r2, r3]: [f32x8<S>; 4]) -> [f32x8<S>; 4] {
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

/// Reads some channels of up to 32 cells, each at `source[index * stride..]`, and puts channel `c` into row `row(c)`
/// of `target`: a gather with a transposition. `stride` is a multiple of 8, and so is the first channel.
pub fn gather(
    source: &[f32],
    stride: usize,
    indices: &[u32; LANES],
    channels: Range<usize>,
    target: &mut [Row],
    row: impl Fn(usize) -> usize + Copy,
) {
    check(stride, &channels);
    dispatch!(level(), simd => {
        for first in channels.clone().step_by(BLOCK) {
            let here = (channels.end - first).min(BLOCK);
            for lane in (0..LANES).step_by(BLOCK) {
                let mut rows = [f32x8::splat(simd, 0.0); BLOCK];
                for (row, &index) in rows.iter_mut().zip(&indices[lane..]) {
                    let at = index as usize * stride + first;
                    *row = f32x8::from_slice(simd, &source[at..at + BLOCK]);
                }
                for (c, values) in transpose_block(simd, rows).iter().enumerate().take(here) {
                    values.store_slice(&mut target[row(first + c)].0[lane..lane + BLOCK]);
                }
            }
        }
    });
}

/// The opposite of [`gather`]: adds row `row(c)` of `source`, lane by lane, to `target[index * stride + c]`, where
/// `index` is what `place` makes of the lane's entry in `indices`.
pub fn scatter_add(
    source: &[Row],
    row: impl Fn(usize) -> usize + Copy,
    channels: Range<usize>,
    indices: &[u32; LANES],
    place: impl Fn(u32) -> usize + Copy,
    target: &mut [f32],
    stride: usize,
) {
    check(stride, &channels);
    dispatch!(level(), simd => {
        for first in channels.clone().step_by(BLOCK) {
            for lane in (0..LANES).step_by(BLOCK) {
                let block = load_rows(simd, source, row, first..channels.end, lane);
                for (i, values) in transpose_block(simd, block).iter().enumerate() {
                    let at = place(indices[lane + i]) * stride + first;
                    let to = &mut target[at..at + BLOCK];
                    (f32x8::from_slice(simd, to) + *values).store_slice(to);
                }
            }
        }
    });
}

/// Writes the first lanes of `source`, one row a channel, as cells of `stride` numbers, as many as fit into
/// `target`. Numbers from `channels` to `stride` are set to zero.
pub fn spread(source: &[Row], channels: usize, target: &mut [f32], stride: usize) {
    check(stride, &(0..channels));
    dispatch!(level(), simd => {
        for first in (0..channels).step_by(BLOCK) {
            for lane in (0..LANES).step_by(BLOCK) {
                let block = load_rows(simd, source, |c| c, first..channels, lane);
                let cells = target.chunks_exact_mut(stride).skip(lane);
                for (values, cell) in transpose_block(simd, block).iter().zip(cells) {
                    values.store_slice(&mut cell[first..first + BLOCK]);
                }
            }
        }
    });
}

/// Eight lanes of the rows of the first eight channels; zeros behind the last channel.
#[inline(always)]
fn load_rows<S: Simd>(
    simd: S,
    source: &[Row],
    row: impl Fn(usize) -> usize,
    channels: Range<usize>,
    lane: usize,
) -> [f32x8<S>; BLOCK] {
    let mut block = [f32x8::splat(simd, 0.0); BLOCK];
    for (values, channel) in block.iter_mut().zip(channels) {
        *values = f32x8::from_slice(simd, &source[row(channel)].0[lane..lane + BLOCK]);
    }
    block
}

fn check(stride: usize, channels: &Range<usize>) {
    let fits = stride.is_multiple_of(BLOCK) && channels.start.is_multiple_of(BLOCK) && channels.end <= stride;
    assert!(fits, "channels {channels:?} of cells of {stride} numbers, in blocks of {BLOCK}");
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

    #[test]
    fn gather_spread_and_scatter_are_what_the_loops_say() {
        for channels in [1usize, 3, 8, 12, 16] {
            let (stride, step) = (channels.next_multiple_of(BLOCK), 2);
            let cells: Vec<f32> = (0..40 * stride).map(|i| i as f32).collect();
            let indices: [u32; LANES] = std::array::from_fn(|lane| (lane as u32 * 7 + 3) % 40);
            let mut rows = vec![Row::ZERO; channels * step];
            gather(&cells, stride, &indices, 0..channels, &mut rows, |c| c * step);
            for (lane, &index) in indices.iter().enumerate() {
                for c in 0..channels {
                    assert_eq!(rows[c * step].0[lane], cells[index as usize * stride + c]);
                }
            }

            let dense: Vec<Row> = rows.iter().copied().step_by(step).collect();
            let mut copies = vec![-1.0; 29 * stride];
            spread(&dense, channels, &mut copies, stride);
            for (lane, cell) in copies.chunks_exact(stride).enumerate() {
                for (c, &value) in cell.iter().enumerate() {
                    assert_eq!(value, if c < channels { dense[c].0[lane] } else { 0.0 });
                }
            }

            let mut sums = vec![1.0; 41 * stride];
            scatter_add(&rows, |c| c * step, 0..channels, &indices, |i| i as usize + 1, &mut sums, stride);
            let mut expected = vec![1.0; sums.len()];
            for (lane, &index) in indices.iter().enumerate() {
                for c in 0..channels {
                    expected[(index as usize + 1) * stride + c] += rows[c * step].0[lane];
                }
            }
            assert_eq!(sums, expected);
        }
    }
}
