//! Multi-head attention, `softmax(q k' / sqrt(width)) v` of every head, and its gradient. The scores of a head are never
//! stored as a whole: a block of queries at a time stays in the caches, and the backward pass recomputes it (as in
//! FlashAttention).
//!
//! ```text
//! forward   for each head of each element of the batch, for each block of queries:
//!               p = e^(k q' scale - largest)                    [queries in panels][keys]
//!               out' = v' p / sum of p
//! backward  the same p / sum, and
//!               dp = v dout',  ds = scale p (dp - sum of p dp)  like p
//!               dq' = k' ds,  dk += ds q,  dv += p dout
//! ```
//!
//! A lane of a vector is a query: the largest score and the sums of a query need no operations across lanes, and the scores
//! have the layout of the next multiplication. Queries and gradients are packed once per head; keys and values are read in
//! place. Heads are independent, so they run on any number of threads with the same results.

#![expect(unsafe_code, reason = "several threads write disjoint heads")]
#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod head;
mod panels;
mod softmax;

use std::cell::RefCell;

use super::math::Real;
use super::shared::SharedPtr;
use crate::parallel;
use head::Head;

/// Elements of a cache line.
const CACHE_LINE: usize = 16;

/// Offset and strides of a tensor with rows of all heads. The heads of a row are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// Offset of the first element.
    pub at: usize,
    /// Strides of the batch and of the rows.
    pub strides: [usize; 2],
}

/// Sizes and offsets of attention in one slice of memory.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Batch size.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Rows of the queries.
    pub queries: usize,
    /// Rows of the keys and of the values.
    pub keys: usize,
    /// Columns of a head of the queries and of the keys.
    pub width: usize,
    /// Columns of a head of the values.
    pub values: usize,
    /// Queries, keys, values.
    pub operands: [Tokens; 3],
    /// Backward: the gradient of the result.
    pub gradient: Option<Tokens>,
    /// Forward: the result, `[batch, queries, heads * values]`. Backward: the gradients of queries, keys and values, one
    /// after another, each with the layout of the result.
    pub out: usize,
}

/// Element type with thread-local scratch memory, which is allocated by the first run.
pub trait Scratch: Real {
    /// Calls `work` with `len` elements of unspecified contents.
    fn with_scratch(len: usize, work: impl FnOnce(&mut [Self]));
}

macro_rules! scratch {
    ($type:ty) => {
        impl Scratch for $type {
            fn with_scratch(len: usize, work: impl FnOnce(&mut [$type])) {
                thread_local! {
                    static SCRATCH: RefCell<Vec<$type>> = const { RefCell::new(Vec::new()) };
                }
                SCRATCH.with_borrow_mut(|scratch| {
                    if scratch.len() < len + CACHE_LINE {
                        scratch.resize(len + CACHE_LINE, 0.0);
                    }
                    // Aligned to a cache line, so that no vector straddles two.
                    let begin = scratch.as_ptr().align_offset(CACHE_LINE * size_of::<f32>()).min(CACHE_LINE);
                    work(&mut scratch[begin..begin + len]);
                });
            }
        }
    };
}

scratch!(f32);
scratch!(f64);

impl Attention {
    /// Returns the number of elements that are read and written.
    pub fn traffic(&self) -> usize {
        let [queries, keys, values] = self.lengths();
        let result = self.batch * self.queries * self.heads * self.values;
        match self.gradient {
            None => queries + keys + values + result,
            Some(_) => 2 * (queries + keys + values) + result,
        }
    }

    /// Returns the number of elements of the queries, keys and values.
    fn lengths(&self) -> [usize; 3] {
        let keys = self.batch * self.heads * self.keys;
        [self.batch * self.heads * self.queries * self.width, keys * self.width, keys * self.values]
    }

    /// Returns the offsets of the gradients of keys and values.
    fn key_value_gradients(&self) -> [usize; 2] {
        let [queries, keys, _] = self.lengths();
        [self.out + queries, self.out + queries + keys]
    }

    /// Returns the rows and columns of a head of the queries, keys, values, and of the gradient of the result.
    fn sizes(&self) -> [(usize, usize); 4] {
        let Attention { queries, keys, width, values, .. } = *self;
        [(queries, width), (keys, width), (keys, values), (queries, values)]
    }

    /// Returns the end of the last tensor in memory.
    fn end(&self) -> usize {
        let end = |(tokens, (rows, columns)): (&Tokens, (usize, usize))| {
            let [by_batch, by_row] = tokens.strides;
            tokens.at + (self.batch - 1) * by_batch + (rows - 1) * by_row + self.heads * columns
        };
        let read = self.operands.iter().chain(&self.gradient).zip(self.sizes()).map(end).max().unwrap_or(0);
        let written = match self.gradient {
            None => self.batch * self.queries * self.heads * self.values,
            Some(_) => self.lengths().iter().sum(),
        };
        read.max(self.out + written)
    }
}

/// Computes the attention of all heads.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn forward<T: Scratch>(memory: &mut [T], attention: &Attention) {
    assert!(
        attention.gradient.is_none() && attention.end() <= memory.len(),
        "tensor out of bounds of the memory"
    );
    for_each_head(memory, attention, |head| dispatch!(super::level(), simd => head.forward(simd)));
}

/// Computes the gradients of the operands.
///
/// # Panics
/// If a tensor is out of bounds.
pub fn backward<T: Scratch>(memory: &mut [T], attention: &Attention) {
    assert!(
        attention.gradient.is_some() && attention.end() <= memory.len(),
        "tensor out of bounds of the memory"
    );
    for_each_head(memory, attention, |head| dispatch!(super::level(), simd => head.backward(simd)));
}

fn for_each_head<T: Scratch>(
    memory: &mut [T],
    attention: &Attention,
    work: impl Fn(&Head<'_, T>) + Sync + Send,
) {
    let shared = SharedPtr(memory.as_mut_ptr());
    parallel::for_each_index(attention.batch * attention.heads, move |index| {
        let shared = shared;
        // SAFETY: all tensors are in bounds, as was asserted; operands and results are disjoint by the plan.
        work(&unsafe { Head::new(shared, attention, index) });
    });
}
