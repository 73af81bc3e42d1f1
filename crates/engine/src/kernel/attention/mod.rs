//! Attention, `softmax(q k' / sqrt(width)) v` of every head, and its gradient. The scores of a head are never stored as a
//! whole: a block of queries at a time stays in the caches, and the gradient computes it again.
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
//! A lane of a vector is a query: the largest score and the sums of a query are found without looking across lanes, and
//! scores lie as the next product wants them. Queries and gradients are packed once a head; keys and values are read where
//! they lie. Heads have nothing to do with each other, so they run on any number of threads with the same results.

#![expect(unsafe_code, reason = "heads are written by several threads; what they write lies apart")]
#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

mod head;
mod panels;
mod rows;

use std::cell::RefCell;

use super::math::Real;
use super::shared::SharedPtr;
use crate::parallel;
use head::Head;

/// Elements of a cache line.
const LINE: usize = 16;

/// Where rows of all heads lie: the first element, and the strides from one element of the batch and from one row to the
/// next. The heads of a row lie behind each other.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// The first element.
    pub at: usize,
    /// Strides of the batch and of the rows.
    pub strides: [usize; 2],
}

/// Attention in one slice of memory: sizes, and where everything lies.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Elements of the batch.
    pub batch: usize,
    /// Heads.
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
    /// Forward: the result, `[batch, queries, heads * values]`. Backward: the gradients of queries, keys and values behind
    /// each other, each like the result.
    pub out: usize,
}

/// Numbers with scratch memory of their own in every thread. It is as large as it gets from the first run on.
pub trait Scratch: Real {
    /// Gives some work so many elements, whose contents are not defined.
    fn with_scratch(len: usize, work: impl FnOnce(&mut [Self]));
}

macro_rules! scratch {
    ($type:ty) => {
        impl Scratch for $type {
            fn with_scratch(len: usize, work: impl FnOnce(&mut [$type])) {
                thread_local! {
                    static ROOM: RefCell<Vec<$type>> = const { RefCell::new(Vec::new()) };
                }
                ROOM.with_borrow_mut(|room| {
                    if room.len() < len + LINE {
                        room.resize(len + LINE, 0.0);
                    }
                    // From the begin of a cache line on, so that no vector lies in two.
                    let begin = room.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
                    work(&mut room[begin..begin + len]);
                });
            }
        }
    };
}

scratch!(f32);
scratch!(f64);

impl Attention {
    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let [queries, keys, values] = self.lengths();
        let result = self.batch * self.queries * self.heads * self.values;
        match self.gradient {
            None => queries + keys + values + result,
            Some(_) => 2 * (queries + keys + values) + result,
        }
    }

    /// Elements of the queries, keys and values.
    fn lengths(&self) -> [usize; 3] {
        let keys = self.batch * self.heads * self.keys;
        [self.batch * self.heads * self.queries * self.width, keys * self.width, keys * self.values]
    }

    /// Where the gradients of keys and values begin.
    fn results_behind_queries(&self) -> [usize; 2] {
        let [queries, keys, _] = self.lengths();
        [self.out + queries, self.out + queries + keys]
    }

    /// Rows and columns of a head of the queries, keys, values, and of the gradient of the result.
    fn sizes(&self) -> [(usize, usize); 4] {
        let Attention { queries, keys, width, values, .. } = *self;
        [(queries, width), (keys, width), (keys, values), (queries, values)]
    }

    /// The elements behind the last one of everything.
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

/// Computes the result.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn forward<T: Scratch>(memory: &mut [T], attention: &Attention) {
    assert!(attention.gradient.is_none() && attention.end() <= memory.len(), "everything lies in the memory");
    for_each_head(memory, attention, |head| dispatch!(super::level(), simd => head.forward(simd)));
}

/// Computes the gradients of the operands from that of the result.
///
/// # Panics
/// If something reaches beyond the memory.
pub fn backward<T: Scratch>(memory: &mut [T], attention: &Attention) {
    assert!(attention.gradient.is_some() && attention.end() <= memory.len(), "everything lies in the memory");
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
        // SAFETY: everything lies in the memory, as was asserted; the plan keeps operands and results apart.
        work(&unsafe { Head::new(shared, attention, index) });
    });
}
