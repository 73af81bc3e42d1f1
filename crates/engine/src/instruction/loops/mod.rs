//! Fused loops: element-wise operations on one tile after another, with intermediate results in the L1 cache.
//!
//! | file | what is in it |
//! |---|---|
//! | `compile` | order and coalescing of axes, fused passes, tile sizes |
//! | `tile` | the operations on one tile, prefetching |
//! | `reduce` | the reduction at the end of a loop |
//! | `chunks` | how a large loop is split for threads |
//! | `math` | the operations on slices, for each element type |

mod chunks;
mod compile;
mod math;
mod reduce;
mod tile;

use super::{Execute, Memory, Scratch, View};
use crate::dtype::{DType, Element};
use crate::graph::Scalar;
use crate::kernel::SharedSlice;
use crate::ops::{Binary, Reduction, Unary};
use crate::parallel;

use chunks::Chunk;
use compile::CompiledLoop;
use math::Math;
use reduce::Accumulator;
use tile::{Tile, Worker};

/// Minimum number of elements of a loop that prefetches the operands of a tile while the previous one is computed. Smaller
/// loops stay in the caches.
const PREFETCH_MIN_LEN: usize = 1 << 16;

/// An operand of an element-wise operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// The result of an earlier operation of the loop.
    Slot(usize),
    /// A tensor in memory, by its index in [`Loop::loads`].
    Load(usize),
    /// A constant, by its index in [`Loop::constants`].
    Constant(usize),
}

/// One operation of a loop. Its result is the slot of its index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ElementOp {
    Unary(Unary, Operand),
    Binary(Binary, [Operand; 2]),
    Select([Operand; 3]),
    /// The operand itself, to be stored or reduced.
    Copy(Operand),
}

/// One loop over a shape: element-wise operations with their loads and stores.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub dtype: DType,
    pub sizes: Vec<usize>,
    pub loads: Vec<View>,
    pub constants: Vec<Scalar>,
    pub ops: Vec<ElementOp>,
    /// Slots and where they are stored.
    pub stores: Vec<(usize, View)>,
    pub reduce: Option<Reduce>,
    compiled: Option<CompiledLoop>,
}

/// The reduction at the end of a loop.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub op: Reduction,
    pub slot: usize,
    /// Reduced axes of the loop.
    pub axes: Vec<usize>,
    /// The result, contiguous.
    pub out: View,
}

impl Loop {
    pub fn new(dtype: DType, sizes: &[usize]) -> Loop {
        Loop {
            dtype,
            sizes: sizes.to_vec(),
            loads: Vec::new(),
            constants: Vec::new(),
            ops: Vec::new(),
            stores: Vec::new(),
            reduce: None,
            compiled: None,
        }
    }

    /// A loop that copies a tensor.
    pub fn copy(x: View, out: View) -> Loop {
        Loop {
            loads: vec![x],
            ops: vec![ElementOp::Copy(Operand::Load(0))],
            stores: vec![(0, out)],
            ..Loop::new(x.dtype, &x.sizes)
        }
    }

    /// A loop that adds a tensor to another.
    pub fn add_to(x: View, out: View) -> Loop {
        Loop {
            loads: vec![out, x],
            ops: vec![ElementOp::Binary(Binary::Add, [Operand::Load(0), Operand::Load(1)])],
            stores: vec![(0, out)],
            ..Loop::new(x.dtype, &x.sizes)
        }
    }

    fn compiled(&self) -> &CompiledLoop {
        self.compiled.as_ref().expect("instructions are prepared before they run")
    }

    /// The names of the operations, in order.
    pub fn names(&self) -> Vec<&'static str> {
        let name = |op: &ElementOp| match op {
            ElementOp::Unary(op, _) => op.row().name,
            ElementOp::Binary(op, _) => op.row().name,
            ElementOp::Select(_) => "select",
            ElementOp::Copy(_) => "copy",
        };
        let reduce = self.reduce.as_ref().map(|reduce| reduce.op.name());
        self.compiled().ops.iter().map(name).chain(reduce).collect()
    }
}

impl Execute for Loop {
    fn views_mut(&mut self) -> Vec<&mut View> {
        let stores = self.stores.iter_mut().map(|(_, view)| view);
        let reduced = self.reduce.as_mut().map(|reduce| &mut reduce.out);
        self.loads.iter_mut().chain(stores).chain(reduced).collect()
    }

    fn prepare(&mut self) {
        self.compiled = Some(CompiledLoop::new(self));
    }

    fn describe(&self) -> String {
        let compiled = self.compiled();
        let operations = compiled.ops.iter().filter(|op| !matches!(op, ElementOp::Copy(_))).count();
        let reduce = self.reduce.as_ref().map_or(String::new(), |reduce| format!(", {}", reduce.op.name()));
        format!(
            "loop {}{:?}: {operations} operations, {} loads, {} stores{reduce}",
            self.dtype,
            compiled.sizes,
            self.loads.len(),
            self.stores.len()
        )
    }

    fn traffic(&self) -> usize {
        let elements = |view: &View| {
            let read =
                view.sizes.iter().zip(view.strides()).filter(|&(&size, &stride)| stride != 0 || size == 0);
            read.map(|(&size, _)| size).product::<usize>()
        };
        let stores = self.stores.iter().map(|(_, view)| view);
        let reduced = self.reduce.as_ref().map_or(0, |reduce| reduce.out.elements());
        let bytes = |view: &View| elements(view) * view.element_bytes();
        self.loads.iter().chain(stores).map(bytes).sum::<usize>() + reduced * self.dtype.size()
    }

    fn run(&self, memory: &mut Memory, scratch: &mut Scratch) {
        let compiled = self.compiled();
        match self.dtype {
            DType::F32 => compiled.run(memory, &mut scratch.f32s),
            DType::F64 => compiled.run(memory, &mut scratch.f64s),
            DType::I32 => compiled.run(memory, &mut scratch.i32s),
            DType::I64 => compiled.run(memory, &mut scratch.i64s),
        }
    }
}

/// Temporary memory of the loops of one element type.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopScratch<T: Element> {
    workers: Vec<Worker<T>>,
    /// Partial results of the chunks: of reductions to numbers, and of reductions to rows.
    totals: Vec<Accumulator<T>>,
    rows: Vec<T>,
}

impl<T: Math> LoopScratch<T> {
    /// Makes room for a loop on a number of threads.
    fn prepare(&mut self, compiled: &CompiledLoop, workers: usize) {
        if self.workers.len() < workers {
            self.workers.resize_with(workers, Worker::new);
        }
        self.workers[..workers].iter_mut().for_each(|worker| worker.prepare(compiled));
        let Some(reduce) = compiled.reduce.as_ref().filter(|_| compiled.has_partial_results()) else {
            return;
        };
        let (totals, rows) = if reduce.along_rows {
            (compiled.chunks.count(), 0)
        } else {
            let parts = reduce.length / compiled.row() * compiled.chunks.row_splits();
            (0, parts * compiled.row())
        };
        self.totals.resize(self.totals.len().max(totals), Accumulator::new(reduce.op));
        self.rows.resize(self.rows.len().max(rows), T::ZERO);
    }
}

/// Memory that the threads of a loop share.
struct Shared<'a, T> {
    arena: SharedSlice<'a, T>,
    /// Numbers that are stored in 16 bits.
    halves: SharedSlice<'a, u16>,
    totals: SharedSlice<'a, Accumulator<T>>,
    rows: SharedSlice<'a, T>,
}

impl CompiledLoop {
    /// Runs the loop.
    #[expect(unsafe_code, reason = "chunks are known to be disjoint since the loop was compiled")]
    fn run<T: Math>(&self, memory: &mut Memory, scratch: &mut LoopScratch<T>) {
        let (arena, halves) = T::arenas_mut(memory);
        if self.sizes.contains(&0) {
            if let Some(reduce) = &self.reduce {
                arena[reduce.out..][..reduce.length].fill(T::neutral(reduce.op));
            }
            return;
        }
        let workers = parallel::threads().min(self.chunks.count());
        scratch.prepare(self, workers);
        // SAFETY: a loop has several chunks only if these do not alias (`is_disjoint`); partial totals and rows belong to
        // one chunk each.
        let shared = unsafe {
            Shared {
                arena: SharedSlice::new(arena),
                halves: SharedSlice::new(halves),
                totals: SharedSlice::new(&mut scratch.totals),
                rows: SharedSlice::new(&mut scratch.rows),
            }
        };
        parallel::for_each_with(&mut scratch.workers[..workers], self.chunks.count(), |worker, index| {
            self.run_chunk(&shared, worker, &self.chunks.chunk(index));
        });
        self.combine_partial_results(T::arena_mut(memory), &scratch.totals, &scratch.rows);
    }

    fn run_chunk<T: Math>(&self, shared: &Shared<'_, T>, worker: &mut Worker<T>, chunk: &Chunk) {
        let prefetches = self.sizes.iter().product::<usize>() >= PREFETCH_MIN_LEN;
        // Tiles do not extend into the rows of another result.
        let group =
            self.reduce.as_ref().filter(|reduce| !reduce.along_rows).map_or(usize::MAX, |reduce| reduce.rows);
        let mut current = None;
        let mut first = chunk.rows.start;
        while first < chunk.rows.end {
            let count = self.rows.min(chunk.rows.end - first).min(group - first % group);
            for begin in chunk.columns.clone().step_by(self.tile) {
                let tile = Tile { first, count, begin, length: self.tile.min(chunk.columns.end - begin) };
                let in_row = begin + tile.length < chunk.columns.end;
                let next =
                    if in_row { (first, begin + tile.length) } else { (first + count, chunk.columns.start) };
                let next = Some(next).filter(|next| prefetches && next.0 < chunk.rows.end);
                self.tile(shared, worker, &tile, next);
                self.reduce_tile(shared, worker, &mut current, (chunk, &tile));
            }
            first += count;
            worker.block_rows += count;
            self.flush_block(shared, worker, chunk, first);
        }
        self.finish(shared, current, chunk);
    }
}

#[cfg(test)]
mod tests;
