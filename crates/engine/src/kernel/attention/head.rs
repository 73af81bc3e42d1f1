//! One head of one element of the batch: what is packed for it, and the products of its blocks of queries.

use std::ops::Range;

use fearless_simd::Simd;

use super::super::shared::Shared;
use super::panels::{Product, Rows, multiply, pack, pack_turned, panel};
use super::rows::{Scores, exponentials, softmax_gradient};
use super::{Attention, Scratch};
use crate::parallel;

/// Scores of a block of queries: in the forward pass they stay in the first cache, in the backward pass, where there are two
/// of them and the sums over queries want long blocks, in the second.
const FORWARD_BLOCK: usize = 1 << 12;
const BACKWARD_BLOCK: usize = 1 << 14;

/// Operands by their number.
const QUERIES: usize = 0;
const KEYS: usize = 1;
const VALUES: usize = 2;
const GRADIENT: usize = 3;

/// One head of one element of the batch.
pub(super) struct Head<'a, T> {
    attention: &'a Attention,
    /// Queries, keys, values, and the gradient of the result: from their first element of the head to behind the last, and
    /// the stride of their rows.
    operands: [(&'a [T], usize); 4],
    memory: Shared<T>,
    /// Element of the batch, and head.
    index: [usize; 2],
}

/// Parts of the scratch memory, of so many elements each.
fn split<T, const N: usize>(mut memory: &mut [T], sizes: [usize; N]) -> [&mut [T]; N] {
    sizes.map(|len| {
        let (part, rest) = std::mem::take(&mut memory).split_at_mut(len);
        memory = rest;
        part
    })
}

impl<'a, T: Scratch> Head<'a, T> {
    /// # Safety
    /// Everything lies in the memory; what is read is written by nothing else, and the results of this head are neither read
    /// nor written by anything else.
    pub unsafe fn new(memory: Shared<T>, attention: &'a Attention, index: usize) -> Head<'a, T> {
        let [element, head] = [index / attention.heads, index % attention.heads];
        let mut operands: [(&[T], usize); 4] = [(&[], 1); 4];
        let tokens = attention.operands.iter().chain(&attention.gradient);
        for ((to, tokens), (rows, columns)) in operands.iter_mut().zip(tokens).zip(attention.sizes()) {
            let [by_batch, by_row] = tokens.strides;
            let begin = tokens.at + element * by_batch + head * columns;
            // SAFETY: as the caller promises.
            *to = (unsafe { memory.read(begin, (rows - 1) * by_row + columns) }, by_row);
        }
        Head { attention, operands, memory, index: [element, head] }
    }

    pub fn forward<S: Simd>(&self, simd: S) {
        let &Attention { queries, keys, width, values, out, .. } = self.attention;
        let panel = panel::<S, T>();
        let [padded_keys, padded_values] = [keys, values].map(|columns| columns.next_multiple_of(panel));
        let blocks = self.blocks(FORWARD_BLOCK, padded_keys);
        let most = queries.div_ceil(blocks);
        let sizes =
            [padded_keys * width, padded_values * keys, padded_keys * most, padded_values * most, most];
        T::with_scratch(sizes.iter().sum(), |scratch| {
            let [turned_keys, packed_values, scores, sums, factors] = split(scratch, sizes);
            self.pack_turned(simd, KEYS, turned_keys);
            self.pack(simd, VALUES, packed_values);
            for block in 0..blocks {
                let rows = parallel::share(queries, block, blocks);
                // SAFETY: all of these are as large as they have to be for the block.
                unsafe {
                    self.scores(simd, &rows, QUERIES, turned_keys, scores);
                    exponentials(simd, self.block(&rows, scores), factors);
                    self.over_keys(simd, &rows, VALUES, scores, packed_values, sums);
                }
                for ((i, sums), &factor) in rows.zip(sums.chunks_exact(padded_values)).zip(&*factors) {
                    let to = self.result(out, [queries, values], i);
                    to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = sum * factor);
                }
            }
        });
    }

    pub fn backward<S: Simd>(&self, simd: S) {
        let &Attention { queries, keys, width, values, out, .. } = self.attention;
        let panel = panel::<S, T>();
        let [padded_keys, padded_width, padded_values] =
            [keys, width, values].map(|columns| columns.next_multiple_of(panel));
        let blocks = self.blocks(BACKWARD_BLOCK, padded_keys);
        let most = queries.div_ceil(blocks);
        let sizes = [
            padded_keys * width,
            padded_keys * values,
            padded_width * queries,
            padded_width * keys,
            padded_values * queries,
            padded_keys * most,
            padded_keys * most,
            padded_width * most,
            padded_width * keys,
            padded_values * keys,
        ];
        T::with_scratch(sizes.iter().sum(), |scratch| {
            let [turned_keys, turned_values, packed_queries, packed_keys, packed_gradient, rest @ ..] =
                split(scratch, sizes);
            let [weights, gradients, of_queries, of_keys, of_values] = rest;
            self.pack_turned(simd, KEYS, turned_keys);
            self.pack_turned(simd, VALUES, turned_values);
            self.pack(simd, QUERIES, packed_queries);
            self.pack(simd, KEYS, packed_keys);
            self.pack(simd, GRADIENT, packed_gradient);
            for block in 0..blocks {
                let rows = parallel::share(queries, block, blocks);
                // SAFETY: all of these are as large as they have to be for the block.
                unsafe {
                    self.scores(simd, &rows, QUERIES, turned_keys, weights);
                    self.scores(simd, &rows, GRADIENT, turned_values, gradients);
                    softmax_gradient(simd, self.block(&rows, weights), gradients.as_mut_ptr());
                    self.over_keys(simd, &rows, KEYS, gradients, packed_keys, of_queries);
                    self.over_queries(simd, &rows, QUERIES, gradients, packed_queries, of_keys);
                    self.over_queries(simd, &rows, GRADIENT, weights, packed_gradient, of_values);
                }
                for (i, sums) in rows.zip(of_queries.chunks_exact(padded_width)) {
                    self.result(out, [queries, width], i).copy_from_slice(&sums[..width]);
                }
            }
            let [keys_at, values_at] = self.attention.results_behind_queries();
            for (i, (of_key, of_value)) in
                of_keys.chunks_exact(padded_width).zip(of_values.chunks_exact(padded_values)).enumerate()
            {
                self.result(keys_at, [keys, width], i).copy_from_slice(&of_key[..width]);
                self.result(values_at, [keys, values], i).copy_from_slice(&of_value[..values]);
            }
        });
    }

    /// Blocks of queries whose scores take about so many elements.
    fn blocks(&self, scores: usize, padded_keys: usize) -> usize {
        self.attention.queries.div_ceil((scores / padded_keys).max(6))
    }

    fn pack<S: Simd>(&self, simd: S, operand: usize, to: &mut [T]) {
        let (from, stride) = self.operands[operand];
        pack(simd, from, stride, self.attention.sizes()[operand].1, to);
    }

    fn pack_turned<S: Simd>(&self, simd: S, operand: usize, to: &mut [T]) {
        let (from, stride) = self.operands[operand];
        pack_turned(simd, from, stride, self.attention.sizes()[operand].1, to);
    }

    /// A row of this head of a result of so many rows and columns that begins somewhere.
    fn result(&self, begin: usize, [rows, columns]: [usize; 2], row: usize) -> &'a mut [T] {
        let [element, head] = self.index;
        let at = ((element * rows + row) * self.attention.heads + head) * columns;
        // SAFETY: the results of this head lie in the memory, and nothing else reads or writes them.
        unsafe { self.memory.write(begin + at, columns) }
    }

    /// The scores of a block of queries.
    fn block(&self, rows: &Range<usize>, scores: &mut [T]) -> Scores<T> {
        let scale = T::from_f64(1.0 / (self.attention.width as f64).sqrt());
        Scores { at: scores.as_mut_ptr(), rows: rows.len(), columns: self.attention.keys, scale }
    }

    /// The products of some queries (or gradients of the result) with all keys (or values): [panels][rows][panel].
    ///
    /// # Safety
    /// What is turned are keys or values, and the result has room.
    unsafe fn scores<S: Simd>(
        &self,
        simd: S,
        rows: &Range<usize>,
        operand: usize,
        turned: &[T],
        to: &mut [T],
    ) {
        let (panel, depth) = (panel::<S, T>(), self.attention.sizes()[operand].1);
        let (from, stride) = self.operands[operand];
        let product = Product {
            rows: rows.len(),
            panels: self.attention.keys.div_ceil(panel),
            depth,
            a: Rows::plain(from[rows.start * stride..].as_ptr(), stride, 1),
            b: (turned.as_ptr(), depth * panel),
            out: (to.as_mut_ptr(), [panel, rows.len() * panel]),
            accumulate: false,
        };
        // SAFETY: the rows are rows of the operand; the rest is as the caller promises.
        unsafe { multiply(simd, &product) }
    }

    /// Weights (or gradients of scores) times packed values (or keys): [rows][columns].
    ///
    /// # Safety
    /// The scores are [panels][rows][panel], what is packed is the operand, and the result has room.
    unsafe fn over_keys<S: Simd>(
        &self,
        simd: S,
        rows: &Range<usize>,
        operand: usize,
        scores: &[T],
        packed: &[T],
        to: &mut [T],
    ) {
        let panel = panel::<S, T>();
        let (keys, columns) = self.attention.sizes()[operand];
        let panels = columns.div_ceil(panel);
        let product = Product {
            rows: rows.len(),
            panels,
            depth: keys,
            a: Rows {
                at: scores.as_ptr(),
                by_row: panel,
                by_depth: 1,
                group: panel,
                by_group: rows.len() * panel,
            },
            b: (packed.as_ptr(), keys * panel),
            out: (to.as_mut_ptr(), [panels * panel, panel]),
            accumulate: false,
        };
        // SAFETY: as the caller promises.
        unsafe { multiply(simd, &product) }
    }

    /// The transpose of weights (or gradients of scores) times packed rows of an operand, for each key, added up over the
    /// blocks: [keys][columns].
    ///
    /// # Safety
    /// The scores are [panels][rows][panel], what is packed is the operand, and the result has room.
    unsafe fn over_queries<S: Simd>(
        &self,
        simd: S,
        rows: &Range<usize>,
        operand: usize,
        scores: &[T],
        packed: &[T],
        to: &mut [T],
    ) {
        let panel = panel::<S, T>();
        let (queries, columns) = self.attention.sizes()[operand];
        let panels = columns.div_ceil(panel);
        for (first, (scores, to)) in (0..self.attention.keys)
            .step_by(panel)
            .zip(scores.chunks(rows.len() * panel).zip(to.chunks_mut(panel * panels * panel)))
        {
            let product = Product {
                rows: panel.min(self.attention.keys - first),
                panels,
                depth: rows.len(),
                a: Rows::plain(scores.as_ptr(), 1, panel),
                b: (packed[rows.start * panel..].as_ptr(), queries * panel),
                out: (to.as_mut_ptr(), [panels * panel, panel]),
                accumulate: rows.start > 0,
            };
            // SAFETY: as the caller promises.
            unsafe { multiply(simd, &product) }
        }
    }
}
