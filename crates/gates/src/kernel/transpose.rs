//! Transposed copies between cells x channels and channels x cells, in blocks of 8x8.

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

use std::ops::Range;

use fearless_simd::{Simd, f32x8, prelude::*};

use gatework_engine::dispatch;
use gatework_engine::simd::level;
pub use gatework_engine::simd::transpose::BLOCK;
use gatework_engine::simd::transpose::transpose_block;

use super::{LANES, Row};

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
    use super::*;

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
