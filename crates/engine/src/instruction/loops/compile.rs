//! Compilation of a loop: what can be decided before it runs.
//!
//! Kept axes come first, then reduced axes, so that rows run along a reduction. If the last axis is kept, or the reduction
//! is so short that most of the time would go into starting rows, rows run across the results instead. Neighbouring axes
//! with compatible strides are coalesced. A tile is a part of a row, or several short rows.

use std::ops::Range;

use super::chunks::{Chunks, RowUse};
use super::math::{Pair, takes_affine};
use super::reduce::{BLOCK_ROWS, CompiledReduction};
use super::tile::{Strided, TILE};
use super::{ElementOp, Loop, Operand, View};
use crate::dtype::DType;
use crate::ops::{Binary, Unary};

/// Bytes of the L1 cache that the operands and results of a tile may take.
const TILE_BYTES: usize = 16 << 10;

/// Largest number of units of [`TILE`] elements in a tile.
const MAX_TILE_UNITS: usize = 4;

/// The cost of a transcendental function, in additions.
const COSTLY: usize = 6;

/// Longest reduction for which rows run across the results: its few elements are added in order.
const MAX_SHORT_REDUCTION: usize = 16;

/// A loop that is ready to run: axes in their final order, tensors as offsets and strides.
#[derive(Clone, Debug)]
pub(super) struct CompiledLoop {
    /// Sizes of the axes; the last one is the length of a row.
    pub sizes: Vec<usize>,
    pub loads: Vec<Strided>,
    pub constants: Vec<u64>,
    pub ops: Vec<ElementOp>,
    pub stores: Vec<(usize, Strided)>,
    pub reduce: Option<CompiledReduction>,
    /// For each operation the store that its result is written to directly.
    pub direct_stores: Vec<Option<usize>>,
    /// For each operation how it is executed.
    pub passes: Vec<Pass>,
    /// The first costly operation: the next tile is prefetched while it computes. Not used for [`Pass::OfAffine`], which
    /// reads its operands itself: there prefetching is a loss.
    pub costly: Option<usize>,
    /// Largest number of elements of a tile.
    pub tile: usize,
    /// Whole rows of a tile.
    pub rows: usize,
    pub chunks: Chunks,
}

/// A range of an arena; the flag says whether it is that of 16-bit numbers.
type Place = (bool, Range<usize>);

/// How an operation is executed on a tile.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    /// In a pass of its own.
    Single,
    /// Together with the operation before it.
    Pair(Pair, [Operand; 3]),
    /// As a function of `a b + c`, or of `a b - c` if the flag is set.
    OfAffine([Operand; 3], bool),
    /// As a part of a later pass.
    Merged,
}

impl CompiledLoop {
    pub fn new(body: &Loop) -> CompiledLoop {
        let (axes, dtype) = (body.sizes.len(), body.dtype);
        let reduced: Vec<usize> = body.reduce.as_ref().map_or_else(Vec::new, |reduce| reduce.axes.clone());
        let last_kept = axes > 0 && !reduced.contains(&(axes - 1)) && !reduced.is_empty();
        // Kept axes, reduced axes, and then the last axis if it is kept.
        let mut order: Vec<usize> = (0..axes).filter(|axis| !reduced.contains(axis)).collect();
        if last_kept {
            order.pop();
        }
        let outer = order.len();
        order.extend(&reduced);
        if last_kept {
            order.push(axes - 1);
        }
        let strided =
            |view: &View| Strided::new(view, order.iter().map(|&axis| view.strides()[axis]).collect());
        let mut compiled = CompiledLoop {
            sizes: order.iter().map(|&axis| body.sizes[axis]).collect(),
            loads: body.loads.iter().map(&strided).collect(),
            constants: body.constants.iter().map(|scalar| scalar.bits()).collect(),
            ops: body.ops.clone(),
            stores: body.stores.iter().map(|(slot, view)| (*slot, strided(view))).collect(),
            reduce: None,
            direct_stores: Vec::new(),
            passes: Vec::new(),
            costly: body.ops.iter().position(|op| cost(op) >= COSTLY),
            tile: TILE,
            rows: 1,
            chunks: Chunks::whole([1; 3]),
        };
        let reduced_len: usize = reduced.iter().map(|&axis| body.sizes[axis]).product();
        compiled.coalesce(&[outer, outer + reduced.len()]);
        if compiled.sizes.is_empty() {
            compiled.sizes.push(1);
            compiled.tensors().for_each(|tensor| tensor.strides.push(1));
        }
        let from = body.reduce.as_ref().map_or(Operand::Slot(0), |reduce| compiled.operand_of(reduce.slot));
        let across_rows = last_kept || !reduced.is_empty() && compiled.transpose_short_reduction(reduced_len);
        let row = compiled.row();
        compiled.reduce = body.reduce.as_ref().map(|reduce| CompiledReduction {
            op: reduce.op,
            from,
            out: reduce.out.offset,
            length: reduce.out.elements(),
            rows: if across_rows { reduced_len } else { (reduced_len / row.max(1)).max(1) },
            along_rows: !across_rows,
        });
        let sizes = compiled.sizes.clone();
        compiled.tensors().for_each(|tensor| tensor.classify(&sizes));
        compiled.chunks = compiled.split(dtype);
        let is_disjoint = compiled.is_disjoint();
        let direct_store = |slot| compiled.direct_store(slot).filter(|_| is_disjoint);
        compiled.direct_stores = (0..compiled.ops.len()).map(direct_store).collect();
        if is_disjoint {
            compiled.loads.iter_mut().for_each(|load| load.find_equal_rows(&sizes));
        }
        compiled.passes = compiled.fuse_passes(dtype);
        compiled.tile = compiled.tile_len(dtype);
        compiled.rows = compiled.tile_rows();
        compiled
    }

    /// Elements of a tile, so that its operands and intermediate results fit into the L1 cache. Larger tiles spend less time
    /// on computing offsets.
    fn tile_len(&self, dtype: DType) -> usize {
        let results = self.passes.iter().zip(&self.direct_stores);
        let kept = results.filter(|(pass, store)| !matches!(pass, Pass::Merged) && store.is_none());
        let tiles = kept.count() + self.loads.len() + self.constants.len();
        let fitting = TILE_BYTES / dtype.size() / tiles.max(1);
        // A tile of several rows would have to be copied if only the rows themselves are contiguous.
        let mut tensors = self.loads.iter().chain(self.stores.iter().map(|(_, store)| store));
        let max = if tensors.any(Strided::only_rows_contiguous) { self.row() } else { fitting };
        // Constants are broadcast to a tile in every run.
        let all = self.sizes.iter().product::<usize>().next_multiple_of(TILE);
        fitting.min(max).clamp(TILE, (MAX_TILE_UNITS * TILE).min(all).max(TILE)) / TILE * TILE
    }

    /// Rows of a tile, if it takes whole rows.
    fn tile_rows(&self) -> usize {
        let row = self.row().max(1);
        let across_rows = self.reduce.as_ref().is_some_and(|reduce| !reduce.along_rows);
        match self.tile / row {
            _ if self.chunks.max_columns() < row => 1,
            rows if across_rows => rows.clamp(1, BLOCK_ROWS),
            rows => rows.max(1),
        }
    }

    /// The store that the result of an operation can be written to directly: one that is not loaded as well.
    fn direct_store(&self, slot: usize) -> Option<usize> {
        let fits = |(stored, tensor): &(usize, Strided)| *stored == slot && tensor.half.is_none();
        let store = self.stores.iter().position(fits)?;
        (!self.loads.contains(&self.stores[store].1)).then_some(store)
    }

    /// How each operation is executed. Two cheap operations are one pass if only the second reads the first; so are a
    /// function and the cheap operations that only it reads.
    fn fuse_passes(&mut self, dtype: DType) -> Vec<Pass> {
        let mut readers = vec![0; self.ops.len()];
        let mut count = |operand: &Operand| {
            if let Operand::Slot(slot) = operand {
                readers[*slot] += 1;
            }
        };
        self.ops.iter().for_each(|op| operands(op).iter().for_each(&mut count));
        self.stores.iter().for_each(|(slot, _)| count(&Operand::Slot(*slot)));
        self.reduce.iter().for_each(|reduce| count(&reduce.from));
        let mut passes = vec![Pass::Single; self.ops.len()];
        for slot in 0..self.ops.len() {
            let op = self.ops[slot];
            if let ElementOp::Unary(op, Operand::Slot(before)) = op
                && takes_affine(dtype, op)
                && readers[before] == 1
                && let Some(affine) = self.affine(before, passes[before])
            {
                (passes[before], passes[slot]) = (Pass::Merged, affine);
            }
            let ElementOp::Binary(second, [a, b]) = op else { continue };
            let swapped = matches!(second, Binary::Add | Binary::Mul).then_some((b, a));
            for (inner, other) in [(a, b)].into_iter().chain(swapped) {
                let Operand::Slot(inner) = inner else { continue };
                let ElementOp::Binary(first, [x, y]) = self.ops[inner] else { continue };
                let is_free = readers[inner] == 1 && matches!(passes[inner], Pass::Single);
                if let Some(pair) = Pair::of(first, second).filter(|_| is_free) {
                    (passes[inner], passes[slot]) = (Pass::Merged, Pass::Pair(pair, [x, y, other]));
                    break;
                }
            }
        }
        passes
    }

    /// A function of the result of a cheap operation as one pass. Sums and products become `a * 1 + b` and `a * b + -0`, which
    /// have the same bits.
    fn affine(&mut self, slot: usize, pass: Pass) -> Option<Pass> {
        match (pass, self.ops[slot]) {
            (Pass::Pair(Pair::MulAdd, operands), _) => Some(Pass::OfAffine(operands, false)),
            (Pass::Pair(Pair::MulSub, operands), _) => Some(Pass::OfAffine(operands, true)),
            (Pass::Single, ElementOp::Binary(Binary::Add, [a, b])) => {
                Some(Pass::OfAffine([a, self.constant(1.0), b], false))
            }
            (Pass::Single, ElementOp::Binary(Binary::Sub, [a, b])) => {
                Some(Pass::OfAffine([a, self.constant(1.0), b], true))
            }
            (Pass::Single, ElementOp::Binary(Binary::Mul, [a, b])) => {
                Some(Pass::OfAffine([a, b, self.constant(-0.0)], false))
            }
            _ => None,
        }
    }

    /// A floating-point constant as an operand.
    fn constant(&mut self, value: f64) -> Operand {
        let bits = value.to_bits();
        let known = self.constants.iter().position(|&constant| constant == bits);
        Operand::Constant(known.unwrap_or_else(|| {
            self.constants.push(bits);
            self.constants.len() - 1
        }))
    }

    /// Splits the loop for threads.
    pub fn split(&self, dtype: DType) -> Chunks {
        let (row, outer) = (self.row(), &self.sizes[..self.sizes.len() - 1]);
        let all: usize = outer.iter().product();
        let rows = self.reduce.as_ref().map_or(1, |reduce| reduce.rows.max(1));
        let sizes = [all / rows, rows, row];
        if all == 0 || row == 0 || !self.is_disjoint() {
            return Chunks::whole(sizes);
        }
        let along_rows = self.reduce.as_ref().is_some_and(|reduce| reduce.along_rows);
        let row_use = if along_rows { RowUse::Reduced } else { RowUse::Combined };
        Chunks::new(sizes, row_use, self.cost() * dtype.size() / 4)
    }

    /// Whether every stored element is stored once and loaded, if at all, for the same element only. Then the chunks of the
    /// loop do not alias.
    pub fn is_disjoint(&self) -> bool {
        if self.sizes.contains(&0) {
            return true;
        }
        // The flag tells the two arenas apart.
        let range = |tensor: &Strided| {
            (tensor.half.is_some(), tensor.offset..tensor.offset + tensor.span(&self.sizes))
        };
        let mut written: Vec<_> =
            self.stores.iter().map(|(_, tensor)| (Some(tensor), range(tensor))).collect();
        let reduced = self.reduce.as_ref();
        written.extend(reduced.map(|reduce| (None, (false, reduce.out..reduce.out + reduce.length))));
        let overlap = |a: &Place, b: &Place| a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end;
        let is_free = |load: &Strided| {
            written.iter().all(|(store, place)| *store == Some(load) || !overlap(&range(load), place))
        };
        let stored_once = |(i, (store, place)): (usize, &(Option<&Strided>, Place))| {
            store.is_none_or(|store| store.is_injective(&self.sizes))
                && written[..i].iter().all(|(_, other)| !overlap(place, other))
        };
        self.loads.iter().all(is_free) && written.iter().enumerate().all(stored_once)
    }

    /// The cost of an element, in loads, stores and additions.
    fn cost(&self) -> usize {
        let ops = self.ops.iter().map(cost).sum::<usize>();
        self.loads.len() + self.stores.len() + usize::from(self.reduce.is_some()) + ops
    }

    /// Elements of a row.
    pub fn row(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    /// The operand that a slot holds. Removes the last operation if it is only a copy for the reduction.
    fn operand_of(&mut self, slot: usize) -> Operand {
        match self.ops.last() {
            Some(&ElementOp::Copy(x))
                if slot + 1 == self.ops.len() && self.stores.iter().all(|(stored, _)| *stored != slot) =>
            {
                self.ops.pop();
                x
            }
            _ => Operand::Slot(slot),
        }
    }

    /// Swaps the last two axes if the last one is a whole short reduction and that makes rows longer. Returns whether it did.
    fn transpose_short_reduction(&mut self, reduced_len: usize) -> bool {
        let [.., results, row] = self.sizes[..] else { return false };
        let swaps = row == reduced_len && row <= MAX_SHORT_REDUCTION && results > row;
        if swaps {
            let axis = self.sizes.len() - 2;
            self.sizes.swap(axis, axis + 1);
            self.tensors().for_each(|tensor| tensor.strides.swap(axis, axis + 1));
        }
        swaps
    }

    fn tensors(&mut self) -> impl Iterator<Item = &mut Strided> {
        self.loads.iter_mut().chain(self.stores.iter_mut().map(|(_, tensor)| tensor))
    }

    /// Coalesces neighbouring axes whose strides are compatible in all tensors, except across `borders`.
    fn coalesce(&mut self, borders: &[usize]) {
        for axis in (1..self.sizes.len()).rev() {
            let size = self.sizes[axis];
            let is_compatible =
                |tensor: &mut Strided| tensor.strides[axis - 1] == tensor.strides[axis] * size;
            let joins =
                !borders.contains(&axis) && (self.sizes[axis - 1] == 1 || self.tensors().all(is_compatible));
            if joins {
                self.sizes[axis - 1] *= size;
                self.sizes.remove(axis);
                self.tensors().for_each(|tensor| {
                    tensor.strides.remove(axis - 1);
                });
            }
        }
    }
}

fn operands(op: &ElementOp) -> &[Operand] {
    match op {
        ElementOp::Unary(_, x) | ElementOp::Copy(x) => std::slice::from_ref(x),
        ElementOp::Binary(_, operands) => operands,
        ElementOp::Select(operands) => operands,
    }
}

/// The cost of an operation, in additions.
fn cost(op: &ElementOp) -> usize {
    use Unary::{Abs, Floor, Neg, Recip, Relu, RoundBf16, RoundF16, Rsqrt, Sign, Sqrt, Square};
    match op {
        ElementOp::Unary(Neg | Abs | Square | Relu | Sign | Floor, _) => 1,
        ElementOp::Unary(Sqrt | Recip | Rsqrt | RoundBf16 | RoundF16, _)
        | ElementOp::Binary(Binary::Div, _) => 2,
        ElementOp::Unary(..) => COSTLY,
        ElementOp::Binary(..) | ElementOp::Select(_) | ElementOp::Copy(_) => 1,
    }
}
