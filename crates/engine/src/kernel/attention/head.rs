//! One head of one element of the batch: packing, and the multiplications of its blocks of queries.

use std::ops::Range;

use fearless_simd::Simd;

use super::super::shared::SharedPtr;
use super::panels::{PanelGemm, Rows, multiply, narrow_panel, pack, pack_transposed, panel};
use super::softmax::{Scores, exponentials, softmax_gradient};
use super::{Attention, Scratch};

/// Approximate number of scores of a block of queries, which stay in the caches.
const BLOCK_SCORES: usize = 1 << 13;

/// Indices of the operands.
const QUERIES: usize = 0;
const KEYS: usize = 1;
const VALUES: usize = 2;
const GRADIENT: usize = 3;

/// One head of one element of the batch.
pub(super) struct Head<'a, T> {
    attention: &'a Attention,
    /// Queries, keys, values, and the gradient of the result: the elements of the head, and the row stride.
    operands: [(&'a [T], usize); 4],
    memory: SharedPtr<T>,
    /// Indices of the element of the batch and of the head.
    index: [usize; 2],
}

/// Splits the scratch memory into slices of the given lengths.
fn split<T, const N: usize>(mut memory: &mut [T], sizes: [usize; N]) -> [&mut [T]; N] {
    sizes.map(|len| {
        let (part, rest) = std::mem::take(&mut memory).split_at_mut(len);
        memory = rest;
        part
    })
}

impl<'a, T: Scratch> Head<'a, T> {
    /// # Safety
    /// All tensors are in bounds; nothing writes the operands, and nothing else accesses the results of this head.
    pub unsafe fn new(memory: SharedPtr<T>, attention: &'a Attention, index: usize) -> Head<'a, T> {
        let [element, head] = [index / attention.heads, index % attention.heads];
        let mut operands: [(&[T], usize); 4] = [(&[], 1); 4];
        let tokens = attention.operands.iter().chain(&attention.gradient);
        for ((to, tokens), (rows, columns)) in operands.iter_mut().zip(tokens).zip(attention.sizes()) {
            let [by_batch, by_row] = tokens.strides;
            let begin = tokens.at + element * by_batch + head * columns;
            // SAFETY: guaranteed by the caller.
            *to = (unsafe { memory.read(begin, (rows - 1) * by_row + columns) }, by_row);
        }
        Head { attention, operands, memory, index: [element, head] }
    }

    pub fn forward<S: Simd>(&self, simd: S) {
        let &Attention { queries, keys, width, values, out, .. } = self.attention;
        let panel = panel::<S, T>();
        let most = self.panels_of_block(panel);
        let sizes = [
            queries.next_multiple_of(panel) * width,
            most * panel * keys,
            most * panel * values,
            most * panel,
        ];
        T::with_scratch(sizes.iter().sum(), |scratch| {
            let [transposed_queries, scores, sums, factors] = split(scratch, sizes);
            self.pack_transposed(simd, QUERIES, transposed_queries);
            for first in (0..queries).step_by(most * panel) {
                let block = Block::new(first, queries.min(first + most * panel), panel);
                // SAFETY: the buffers have the size of the block.
                unsafe {
                    self.scores(simd, &block, KEYS, transposed_queries, scores);
                    exponentials(simd, self.block(&block, scores), factors.as_mut_ptr());
                    self.over_keys(simd, &block, VALUES, scores, sums);
                }
                for (lane, &factor) in factors[..block.queries.len()].iter().enumerate() {
                    let to = self.result(out, [queries, values], first + lane);
                    let sums = sums[lane..].iter().step_by(block.lanes());
                    to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = sum * factor);
                }
            }
        });
    }

    pub fn backward<S: Simd>(&self, simd: S) {
        let &Attention { queries, keys, width, values, out, .. } = self.attention;
        let panel = panel::<S, T>();
        let padded_queries = queries.next_multiple_of(panel);
        let [padded_width, padded_values] =
            [width, values].map(|columns| columns.next_multiple_of(narrow_panel::<S, T>(columns)));
        let most = self.panels_of_block(panel);
        let sizes = [
            padded_queries * width,
            padded_queries * values,
            padded_width * queries,
            padded_values * queries,
            most * panel * keys,
            most * panel * keys,
            most * panel * width,
            padded_width * keys,
            padded_values * keys,
        ];
        T::with_scratch(sizes.iter().sum(), |scratch| {
            let [transposed_queries, transposed_gradient, packed_queries, packed_gradient, rest @ ..] =
                split(scratch, sizes);
            let [weights, gradients, of_queries, of_keys, of_values] = rest;
            self.pack_transposed(simd, QUERIES, transposed_queries);
            self.pack_transposed(simd, GRADIENT, transposed_gradient);
            self.pack(simd, QUERIES, packed_queries);
            self.pack(simd, GRADIENT, packed_gradient);
            for first in (0..queries).step_by(most * panel) {
                let block = Block::new(first, queries.min(first + most * panel), panel);
                // SAFETY: the buffers have the size of the block.
                unsafe {
                    self.scores(simd, &block, KEYS, transposed_queries, weights);
                    self.scores(simd, &block, VALUES, transposed_gradient, gradients);
                    softmax_gradient(simd, self.block(&block, weights), gradients.as_mut_ptr());
                    self.over_keys(simd, &block, KEYS, gradients, of_queries);
                    self.over_queries(simd, &block, QUERIES, gradients, packed_queries, of_keys);
                    self.over_queries(simd, &block, GRADIENT, weights, packed_gradient, of_values);
                }
                for (lane, query) in block.queries.clone().enumerate() {
                    let sums = of_queries[lane..].iter().step_by(block.lanes());
                    let to = self.result(out, [queries, width], query);
                    to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = sum);
                }
            }
            let [keys_at, values_at] = self.attention.key_value_gradients();
            for (i, (of_key, of_value)) in
                of_keys.chunks_exact(padded_width).zip(of_values.chunks_exact(padded_values)).enumerate()
            {
                self.result(keys_at, [keys, width], i).copy_from_slice(&of_key[..width]);
                self.result(values_at, [keys, values], i).copy_from_slice(&of_value[..values]);
            }
        });
    }

    /// Returns the number of panels of queries of a block.
    fn panels_of_block(&self, panel: usize) -> usize {
        let all = self.attention.queries.div_ceil(panel);
        // Blocks of about the same length.
        let blocks = all.div_ceil((BLOCK_SCORES / (self.attention.keys * panel)).max(1));
        all.div_ceil(blocks)
    }

    fn pack<S: Simd>(&self, simd: S, operand: usize, to: &mut [T]) {
        let (from, stride) = self.operands[operand];
        pack(simd, from, stride, self.attention.sizes()[operand].1, to);
    }

    fn pack_transposed<S: Simd>(&self, simd: S, operand: usize, to: &mut [T]) {
        let (from, stride) = self.operands[operand];
        pack_transposed(simd, from, stride, self.attention.sizes()[operand].1, to);
    }

    /// Returns a row of this head of a result with the given offset, rows and columns.
    fn result(&self, begin: usize, [rows, columns]: [usize; 2], row: usize) -> &'a mut [T] {
        let [element, head] = self.index;
        let at = ((element * rows + row) * self.attention.heads + head) * columns;
        // SAFETY: the results of this head are in bounds, and nothing else accesses them.
        unsafe { self.memory.write(begin + at, columns) }
    }

    /// Returns the scores of a block of queries.
    fn block(&self, block: &Block, scores: &mut [T]) -> Scores<T> {
        let scale = T::from_f64(1.0 / (self.attention.width as f64).sqrt());
        Scores { at: scores.as_mut_ptr(), panels: block.panels, keys: self.attention.keys, scale }
    }

    /// Multiplies all keys (or values) with the queries of a block (or the gradients of their results): [panels of
    /// queries][keys][panel].
    ///
    /// # Safety
    /// `transposed` are packed queries or gradients with the columns of the operand, and `to` has room for the result.
    unsafe fn scores<S: Simd>(&self, simd: S, block: &Block, operand: usize, transposed: &[T], to: &mut [T]) {
        let panel = panel::<S, T>();
        let (keys, depth) = self.attention.sizes()[operand];
        let (from, stride) = self.operands[operand];
        let gemm = PanelGemm {
            rows: keys,
            panels: block.panels,
            panel,
            depth,
            a: Rows::strided(from.as_ptr(), stride, 1),
            b: (transposed[block.queries.start * depth..].as_ptr(), depth * panel),
            out: (to.as_mut_ptr(), [panel, keys * panel]),
            accumulate: false,
        };
        // SAFETY: the rows are those of the operand; the rest is guaranteed by the caller.
        unsafe { multiply(simd, &gemm) }
    }

    /// Multiplies the columns of values (or keys) with weights (or gradients of scores): [columns][queries of the block].
    ///
    /// # Safety
    /// The scores are those of the block, and `to` has room for the result.
    unsafe fn over_keys<S: Simd>(&self, simd: S, block: &Block, operand: usize, scores: &[T], to: &mut [T]) {
        let panel = panel::<S, T>();
        let (keys, columns) = self.attention.sizes()[operand];
        let (from, stride) = self.operands[operand];
        let gemm = PanelGemm {
            rows: columns,
            panels: block.panels,
            panel,
            depth: keys,
            a: Rows::strided(from.as_ptr(), 1, stride),
            b: (scores.as_ptr(), keys * panel),
            out: (to.as_mut_ptr(), [block.lanes(), panel]),
            accumulate: false,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { multiply(simd, &gemm) }
    }

    /// Multiplies weights (or gradients of scores) of each key with packed rows of an operand, accumulated over the blocks:
    /// [keys][columns].
    ///
    /// # Safety
    /// The scores are those of the block, `packed` is the operand, and `to` has room for the result.
    unsafe fn over_queries<S: Simd>(
        &self,
        simd: S,
        block: &Block,
        operand: usize,
        scores: &[T],
        packed: &[T],
        to: &mut [T],
    ) {
        let (lanes, keys) = (panel::<S, T>(), self.attention.keys);
        let (queries, columns) = self.attention.sizes()[operand];
        let panel = narrow_panel::<S, T>(columns);
        let panels = columns.div_ceil(panel);
        let gemm = PanelGemm {
            rows: keys,
            panels,
            panel,
            depth: block.queries.len(),
            a: Rows { at: scores.as_ptr(), by_row: lanes, by_depth: 1, group: lanes, by_group: keys * lanes },
            b: (packed[block.queries.start * panel..].as_ptr(), queries * panel),
            out: (to.as_mut_ptr(), [panels * panel, panel]),
            accumulate: block.queries.start > 0,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { multiply(simd, &gemm) }
    }
}

/// Some of the queries, in whole panels except for the last.
struct Block {
    queries: Range<usize>,
    panels: usize,
    panel: usize,
}

impl Block {
    fn new(first: usize, end: usize, panel: usize) -> Block {
        Block { queries: first..end, panels: (end - first).div_ceil(panel), panel }
    }

    /// Returns the number of queries including the padding of the last panel.
    fn lanes(&self) -> usize {
        self.panels * self.panel
    }
}
