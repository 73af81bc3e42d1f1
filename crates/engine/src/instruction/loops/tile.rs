//! Tiles: the operations of a loop on a few hundred elements, with intermediate results in the L1 cache.

use crate::buffer::Buffer;
use crate::dtype::Element;
use crate::kernel::SharedSlice;
use crate::kernel::half::Half;
use crate::ops::Unary;

use super::compile::{CompiledLoop, Pass};
use super::math::Math;
use super::{ElementOp, Operand, Shared, View};

/// Elements of the smallest tile. Columns are split for threads in multiples of it.
pub(super) const TILE: usize = 512;

/// Elements of a costly operation between two prefetches of the next tile. Prefetching more cache lines at once would exceed
/// the core's line fill buffers; with fewer, the overhead of a call dominates.
const PREFETCH_INTERVAL: usize = 128;

/// Rows `first..first + count` of a loop, and the elements `begin..begin + length` of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub first: usize,
    pub count: usize,
    pub begin: usize,
    pub length: usize,
}

impl Tile {
    pub fn size(&self) -> usize {
        self.count * self.length
    }
}

/// A tensor of a loop: its offset in the arena and a stride for each axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strided {
    pub offset: usize,
    pub strides: Vec<usize>,
    /// The 16-bit format of the elements, which are then in the arena of 16-bit numbers.
    pub half: Option<Half>,
    /// Whether the elements of a row are adjacent, and whether the rows are.
    row_contiguous: bool,
    rows_contiguous: bool,
    /// Whether all rows are the same row of memory, which the loop does not write.
    equal_rows: bool,
}

/// Temporary memory of one thread.
#[derive(Clone, Debug)]
pub(super) struct Worker<T: Element> {
    /// Tiles of constants, then of gathered loads, then of the results of operations. An operation reads only tiles before
    /// that of its result.
    tiles: Buffer<T>,
    /// Offsets in the arena of the loads and results that are accessed in place.
    direct: Vec<Option<usize>>,
    /// The part of each load that is in its tile: first element and length of rows, number of rows.
    gathered: Vec<[usize; 3]>,
    /// The reduction of a block of rows, and the number of rows in it.
    pub(super) block: Vec<T>,
    pub(super) block_rows: usize,
}

impl<T: Math> Worker<T> {
    pub fn new() -> Worker<T> {
        Worker {
            tiles: Buffer::zeroed(0),
            direct: Vec::new(),
            gathered: Vec::new(),
            block: Vec::new(),
            block_rows: 0,
        }
    }

    /// Makes room for a loop and broadcasts its constants.
    pub fn prepare(&mut self, compiled: &CompiledLoop) {
        let tiles = compiled.constants.len() + compiled.loads.len() + compiled.ops.len();
        if self.tiles.len() < tiles * compiled.tile {
            self.tiles = Buffer::zeroed(tiles * compiled.tile);
        }
        for (tile, &bits) in self.tiles.chunks_exact_mut(compiled.tile).zip(&compiled.constants) {
            tile.fill(T::from_bits(bits));
        }
        let operands = compiled.loads.len() + compiled.ops.len();
        self.direct.resize(self.direct.len().max(operands), None);
        self.gathered.clear();
        self.gathered.resize(compiled.loads.len(), [0; 3]);
        if let Some(reduce) = compiled.reduce.as_ref().filter(|reduce| !reduce.along_rows) {
            let row = compiled.chunks.max_columns();
            self.block.resize(self.block.len().max(row), T::ZERO);
            self.block[..row].fill(T::neutral(reduce.op));
            self.block_rows = 0;
        }
    }

    /// The elements of an operand in a tile of `size` elements.
    pub fn read<'a>(
        &'a self,
        compiled: &CompiledLoop,
        arena: &'a SharedSlice<'_, T>,
        operand: Operand,
        size: usize,
    ) -> &'a [T] {
        read(&self.tiles, &self.direct, compiled, arena, operand, size)
    }
}

/// The elements of an operand in a tile of `size` elements.
fn read<'a, T: Math>(
    tiles: &'a [T],
    direct: &[Option<usize>],
    compiled: &CompiledLoop,
    arena: &'a SharedSlice<'_, T>,
    operand: Operand,
    size: usize,
) -> &'a [T] {
    let number = match operand {
        Operand::Constant(constant) => return &tiles[constant * compiled.tile..][..size],
        Operand::Load(load) => load,
        Operand::Slot(slot) => compiled.loads.len() + slot,
    };
    match direct[number] {
        Some(place) => arena.read(place, size),
        None => &tiles[(compiled.constants.len() + number) * compiled.tile..][..size],
    }
}

impl CompiledLoop {
    /// Number of tiles before those of results.
    fn first_slot(&self) -> usize {
        self.constants.len() + self.loads.len()
    }

    /// Runs the operations on a tile. `next` is the first row and element of the next tile, if that is to be prefetched.
    pub(super) fn tile<T: Math>(
        &self,
        shared: &Shared<'_, T>,
        worker: &mut Worker<T>,
        tile: &Tile,
        next: Option<(usize, usize)>,
    ) {
        let (size, arena) = (tile.size(), &shared.arena);
        if let Some(next) = next.filter(|_| self.costly.is_none()) {
            // The hardware prefetcher continues from there.
            self.prefetch(shared, next, size.min(TILE));
        }
        let Worker { tiles, direct, gathered, .. } = worker;
        let load_tiles = tiles[self.constants.len() * self.tile..].chunks_exact_mut(self.tile);
        let (loaded, results) = direct.split_at_mut(self.loads.len());
        let states = loaded.iter_mut().zip(gathered.iter_mut());
        for ((load, load_tile), (direct, gathered)) in self.loads.iter().zip(load_tiles).zip(states) {
            *direct = load.contiguous(&self.sizes, tile).filter(|_| load.half.is_none());
            if direct.is_none() && !load.is_gathered(gathered, tile) {
                load.gather(shared, &self.sizes, tile, &mut load_tile[..size]);
                *gathered = [tile.begin, tile.length, tile.count];
            }
        }
        for (result, direct_store) in results.iter_mut().zip(&self.direct_stores) {
            *result = direct_store.and_then(|store| self.stores[store].1.contiguous(&self.sizes, tile));
        }
        for (slot, op) in self.ops.iter().enumerate() {
            let (before, after) = tiles.split_at_mut((self.first_slot() + slot) * self.tile);
            let read = |operand: Operand| read(before, direct, self, arena, operand, size);
            let out = match direct[self.loads.len() + slot] {
                Some(place) => arena.write(place, size),
                None => &mut after[..size],
            };
            let next = next.filter(|_| self.costly == Some(slot));
            match (self.passes[slot], *op) {
                (Pass::Merged, _) => {}
                (Pass::Pair(pair, [a, b, c]), _) => T::pair(pair, [read(a), read(b), read(c)], out),
                (Pass::OfAffine([a, b, c], minus), ElementOp::Unary(op, _)) => {
                    T::unary_of_affine(op, [read(a), read(b), read(c)], minus, out);
                }
                (_, ElementOp::Unary(op, x)) => self.unary(shared, next, op, (read(x), out)),
                (_, ElementOp::Binary(op, [a, b])) => T::binary(op, read(a), read(b), out),
                (_, ElementOp::Select([condition, a, b])) => {
                    T::select(read(condition), read(a), read(b), out);
                }
                (_, ElementOp::Copy(x)) => out.copy_from_slice(read(x)),
            }
        }
        for (number, (slot, store)) in self.stores.iter().enumerate() {
            let is_stored =
                self.direct_stores[*slot] == Some(number) && direct[self.loads.len() + slot].is_some();
            if !is_stored {
                let from = read(tiles, direct, self, arena, Operand::Slot(*slot), size);
                store.scatter(shared, &self.sizes, tile, from);
            }
        }
    }

    /// Applies a function to a tile and prefetches the next tile, if one is given.
    fn unary<T: Math>(
        &self,
        shared: &Shared<'_, T>,
        next: Option<(usize, usize)>,
        op: Unary,
        (x, out): (&[T], &mut [T]),
    ) {
        let Some((row, begin)) = next else { return T::unary(op, x, out) };
        for (i, (x, out)) in x.chunks(PREFETCH_INTERVAL).zip(out.chunks_mut(PREFETCH_INTERVAL)).enumerate() {
            self.prefetch(shared, (row, begin + i * PREFETCH_INTERVAL), x.len());
            T::unary(op, x, out);
        }
    }

    /// Prefetches the operands of a tile, which is given by its first row, its first element and its size.
    pub(super) fn prefetch<T: Copy>(
        &self,
        shared: &Shared<'_, T>,
        (row, begin): (usize, usize),
        size: usize,
    ) {
        let last = self.sizes.len() - 1;
        for load in self.loads.iter().filter(|load| load.strides[last] == 1) {
            let place = load.row(&self.sizes, row) + begin;
            match load.half {
                Some(_) => shared.halves.prefetch(place, size),
                None => shared.arena.prefetch(place, size),
            }
        }
    }
}

impl Strided {
    /// A view with its strides in the order of the axes of a loop.
    pub fn new(view: &View, strides: Vec<usize>) -> Strided {
        Strided { offset: view.offset, strides, half: view.half, ..Strided::default() }
    }

    /// Finds out whether all rows are the same row of memory. The loop must not write it.
    pub fn find_equal_rows(&mut self, sizes: &[usize]) {
        let mut outer = self.strides.iter().zip(&sizes[..sizes.len() - 1]).filter(|&(_, &size)| size > 1);
        self.equal_rows = outer.clone().count() > 0 && outer.all(|(&stride, _)| stride == 0);
    }

    /// Whether the tile of a load holds the elements already: the same part of rows that are all equal.
    fn is_gathered(&self, &[begin, length, count]: &[usize; 3], tile: &Tile) -> bool {
        self.equal_rows && begin == tile.begin && length == tile.length && count >= tile.count
    }

    /// Finds out what is contiguous, once the axes are final.
    pub fn classify(&mut self, sizes: &[usize]) {
        let mut expected = sizes[sizes.len() - 1];
        self.row_contiguous = self.strides[sizes.len() - 1] == 1 || expected == 1;
        self.rows_contiguous = (0..sizes.len() - 1).rev().all(|axis| {
            let follows = sizes[axis] == 1 || self.strides[axis] == expected;
            expected *= sizes[axis];
            follows
        });
    }

    /// Whether rows are contiguous, but several of them have to be gathered for every tile.
    pub fn only_rows_contiguous(&self) -> bool {
        self.row_contiguous && !self.rows_contiguous && !self.equal_rows
    }

    /// The offset of a tile, if its elements are adjacent.
    fn contiguous(&self, sizes: &[usize], tile: &Tile) -> Option<usize> {
        let is_contiguous = self.row_contiguous && (tile.count == 1 || self.rows_contiguous);
        is_contiguous.then(|| self.row(sizes, tile.first) + tile.begin * self.strides[sizes.len() - 1])
    }

    /// The offset of a row.
    fn row(&self, sizes: &[usize], mut row: usize) -> usize {
        let mut place = self.offset;
        for axis in (1..sizes.len() - 1).rev() {
            place += row % sizes[axis] * self.strides[axis];
            row /= sizes[axis];
        }
        // The first axis needs no division; if it is also the last one, there is one row.
        if sizes.len() > 1 { place + row * self.strides[0] } else { place }
    }

    /// Copies the elements of a tile into a contiguous slice.
    fn gather<T: Math>(&self, shared: &Shared<'_, T>, sizes: &[usize], tile: &Tile, to: &mut [T]) {
        let stride = self.strides[sizes.len() - 1];
        if let Some((format, place)) = self.half.zip(self.contiguous(sizes, tile)) {
            return T::widen(format, shared.halves.read(place, to.len()), to);
        }
        for (row, to) in to.chunks_exact_mut(tile.length).enumerate() {
            let place = self.row(sizes, tile.first + row) + tile.begin * stride;
            match self.half {
                None => read_row(&shared.arena, place, stride, to),
                Some(format) => widen_row(&shared.halves, format, place, stride, to),
            }
        }
    }

    /// Copies the elements of a tile from a contiguous slice.
    fn scatter<T: Math>(&self, shared: &Shared<'_, T>, sizes: &[usize], tile: &Tile, from: &[T]) {
        let stride = self.strides[sizes.len() - 1];
        if let Some(place) = self.contiguous(sizes, tile) {
            match self.half {
                None => shared.arena.write(place, from.len()).copy_from_slice(from),
                Some(format) => T::narrow(format, from, shared.halves.write(place, from.len())),
            }
            return;
        }
        for (row, from) in from.chunks_exact(tile.length).enumerate() {
            let place = self.row(sizes, tile.first + row) + tile.begin * stride;
            match self.half {
                None => write_row(&shared.arena, place, stride, from),
                Some(format) => narrow_row(&shared.halves, format, place, stride, from),
            }
        }
    }

    /// Elements from the lowest to the highest offset.
    pub(super) fn span(&self, sizes: &[usize]) -> usize {
        1 + self.strides.iter().zip(sizes).map(|(stride, size)| stride * (size - 1)).sum::<usize>()
    }

    /// Whether no two elements share an offset: in ascending order, every stride exceeds the span of the axes before it.
    pub(super) fn is_injective(&self, sizes: &[usize]) -> bool {
        let mut axes: Vec<(usize, usize)> = self.strides.iter().copied().zip(sizes.iter().copied()).collect();
        axes.retain(|&(_, size)| size > 1);
        axes.sort_unstable();
        let mut span = 0;
        axes.iter().all(|&(stride, size)| {
            let exceeds = stride > span;
            span += stride * (size - 1);
            exceeds
        })
    }
}

/// Copies a part of a row.
fn read_row<T: Copy>(arena: &SharedSlice<'_, T>, place: usize, stride: usize, to: &mut [T]) {
    match stride {
        0 => to.fill(arena.read(place, 1)[0]),
        1 => to.copy_from_slice(arena.read(place, to.len())),
        _ => arena.read_every(place, stride, to),
    }
}

/// Writes a part of a row.
fn write_row<T: Copy>(arena: &SharedSlice<'_, T>, place: usize, stride: usize, from: &[T]) {
    if stride == 1 {
        arena.write(place, from.len()).copy_from_slice(from);
    } else {
        arena.write_every(place, stride.max(1), from);
    }
}

/// Elements of a row that are converted at once.
const BLOCK: usize = 64;

/// Reads a part of a row that is stored in 16 bits.
fn widen_row<T: Math>(
    halves: &SharedSlice<'_, u16>,
    format: Half,
    place: usize,
    stride: usize,
    to: &mut [T],
) {
    let mut block = [0; BLOCK];
    for (i, to) in to.chunks_mut(BLOCK).enumerate() {
        let block = &mut block[..to.len()];
        read_row(halves, place + i * BLOCK * stride, stride, block);
        T::widen(format, block, to);
    }
}

/// Writes a part of a row that is stored in 16 bits.
fn narrow_row<T: Math>(halves: &SharedSlice<'_, u16>, format: Half, place: usize, stride: usize, from: &[T]) {
    let mut block = [0; BLOCK];
    for (i, from) in from.chunks(BLOCK).enumerate() {
        let block = &mut block[..from.len()];
        T::narrow(format, from, block);
        write_row(halves, place + i * BLOCK * stride, stride, block);
    }
}
