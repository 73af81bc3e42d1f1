//! Tiles: the operations of a loop on some hundred elements, with what lies between them in the first cache.

use crate::buffer::Buffer;
use crate::dtype::Element;
use crate::kernel::SharedSlice;
use crate::ops::Unary;
use crate::plan::{Operand, Step};

use super::{Action, Compiled};
use crate::program::math::Math;

/// Elements of the smallest tile; threads share whole ones.
pub(super) const TILE: usize = 512;

/// Elements of a step that takes long between two requests for what the next tile reads. More lines at once than a core waits
/// for at a time would make it wait; with fewer, calls take longer than what they compute.
const AT_ONCE: usize = 128;

/// A part of a loop: `count` rows from `first` on, the elements `begin..begin + length` of each.
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

/// A tensor of a loop: its place in the arena and a stride for each axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strided {
    pub offset: usize,
    pub strides: Vec<usize>,
    /// Whether the elements of a row lie behind each other, and whether its rows do too.
    dense: bool,
    rows_follow: bool,
    /// Whether all rows are the same, and stay the same while the loop runs.
    repeats: bool,
}

/// What one thread needs to run a loop.
#[derive(Clone, Debug)]
pub(super) struct Worker<T: Element> {
    /// Tiles behind each other: constants, what is loaded from places that do not lie behind each other, and the results
    /// of the operations. An operation reads only what lies before its result.
    tiles: Buffer<T>,
    /// Where everything that is not copied begins: what is loaded, and results that are written where they are stored.
    direct: Vec<Option<usize>>,
    /// What was copied together of the loads: first element and length of rows, and how many of them.
    copied: Vec<[usize; 3]>,
    /// Sums of a block of rows, and how many rows they hold.
    pub block: Vec<T>,
    pub block_rows: usize,
}

impl<T: Math> Worker<T> {
    pub fn new() -> Worker<T> {
        Worker {
            tiles: Buffer::zeroed(0),
            direct: Vec::new(),
            copied: Vec::new(),
            block: Vec::new(),
            block_rows: 0,
        }
    }

    /// Makes room for a loop and fills in its constants.
    pub fn prepare(&mut self, compiled: &Compiled) {
        let tiles = compiled.constants.len() + compiled.loads.len() + compiled.steps.len();
        if self.tiles.len() < tiles * compiled.tile {
            self.tiles = Buffer::zeroed(tiles * compiled.tile);
        }
        for (tile, &bits) in self.tiles.chunks_exact_mut(compiled.tile).zip(&compiled.constants) {
            tile.fill(T::from_bits(bits));
        }
        let operands = compiled.loads.len() + compiled.steps.len();
        self.direct.resize(self.direct.len().max(operands), None);
        self.copied.clear();
        self.copied.resize(compiled.loads.len(), [0; 3]);
        if let Some(reduce) = compiled.reduce.as_ref().filter(|reduce| !reduce.along) {
            let row = compiled.pieces.widest();
            self.block.resize(self.block.len().max(row), T::ZERO);
            self.block[..row].fill(T::neutral(reduce.op));
            self.block_rows = 0;
        }
    }

    /// The elements of an operand in a tile of some size.
    pub fn read<'a>(
        &'a self,
        compiled: &Compiled,
        arena: &'a SharedSlice<'_, T>,
        operand: Operand,
        size: usize,
    ) -> &'a [T] {
        read(&self.tiles, &self.direct, compiled, arena, operand, size)
    }
}

/// The elements of an operand in a tile of some size.
fn read<'a, T: Math>(
    tiles: &'a [T],
    direct: &[Option<usize>],
    compiled: &Compiled,
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

impl Compiled {
    /// Tiles before those of the results.
    fn first_slot(&self) -> usize {
        self.constants.len() + self.loads.len()
    }

    /// The operations on a tile. `next`: the row and the element that the next one begins with, if it is far away.
    pub(super) fn tile<T: Math>(
        &self,
        arena: &SharedSlice<'_, T>,
        worker: &mut Worker<T>,
        tile: &Tile,
        next: Option<(usize, usize)>,
    ) {
        let size = tile.size();
        if let Some(next) = next.filter(|_| self.long.is_none()) {
            // The processor goes on by itself.
            self.ask_for(arena, next, size.min(TILE));
        }
        let Worker { tiles, direct, copied, .. } = worker;
        let gathered = tiles[self.constants.len() * self.tile..].chunks_exact_mut(self.tile);
        let (loaded, results) = direct.split_at_mut(self.loads.len());
        let places = loaded.iter_mut().zip(copied.iter_mut());
        for ((load, gathered), (direct, copied)) in self.loads.iter().zip(gathered).zip(places) {
            *direct = load.contiguous(&self.sizes, tile);
            if direct.is_none() && !load.is_there(copied, tile) {
                load.gather(arena, &self.sizes, tile, &mut gathered[..size]);
                *copied = [tile.begin, tile.length, tile.count];
            }
        }
        for (result, home) in results.iter_mut().zip(&self.homes) {
            *result = home.and_then(|store| self.stores[store].1.contiguous(&self.sizes, tile));
        }
        for (slot, step) in self.steps.iter().enumerate() {
            let (before, behind) = tiles.split_at_mut((self.first_slot() + slot) * self.tile);
            let read = |operand: Operand| read(before, direct, self, arena, operand, size);
            let out = match direct[self.loads.len() + slot] {
                Some(place) => arena.write(place, size),
                None => &mut behind[..size],
            };
            let next = next.filter(|_| self.long == Some(slot));
            match (self.actions[slot], *step) {
                (Action::Nothing, _) => {}
                (Action::Pair(pair, [a, b, c]), _) => T::pair(pair, [read(a), read(b), read(c)], out),
                (Action::Affine([a, b, c], minus), Step::Unary(op, _)) => {
                    T::unary_of_affine(op, [read(a), read(b), read(c)], minus, out);
                }
                (_, Step::Unary(op, x)) => self.unary(arena, next, op, (read(x), out)),
                (_, Step::Binary(op, [a, b])) => T::binary(op, read(a), read(b), out),
                (_, Step::Select([condition, a, b])) => T::select(read(condition), read(a), read(b), out),
                (_, Step::Copy(x)) => out.copy_from_slice(read(x)),
            }
        }
        for (number, (slot, store)) in self.stores.iter().enumerate() {
            let is_there = self.homes[*slot] == Some(number) && direct[self.loads.len() + slot].is_some();
            if !is_there {
                let from = read(tiles, direct, self, arena, Operand::Slot(*slot), size);
                store.scatter(arena, &self.sizes, tile, from);
            }
        }
    }

    /// A function of a tile; meanwhile the next tile, if one is given, is asked for.
    fn unary<T: Math>(
        &self,
        arena: &SharedSlice<'_, T>,
        next: Option<(usize, usize)>,
        op: Unary,
        (x, out): (&[T], &mut [T]),
    ) {
        let Some((row, begin)) = next else { return T::unary(op, x, out) };
        for (part, (x, out)) in x.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)).enumerate() {
            self.ask_for(arena, (row, begin + part * AT_ONCE), x.len());
            T::unary(op, x, out);
        }
    }

    /// Asks for what a tile of some elements reads: it begins with an element of a row.
    pub(super) fn ask_for<T: Copy>(
        &self,
        arena: &SharedSlice<'_, T>,
        (row, begin): (usize, usize),
        size: usize,
    ) {
        let last = self.sizes.len() - 1;
        for load in self.loads.iter().filter(|load| load.strides[last] == 1) {
            arena.prefetch(load.row(&self.sizes, row) + begin, size);
        }
    }
}

impl Strided {
    pub fn new(offset: usize, strides: Vec<usize>) -> Strided {
        Strided { offset, strides, ..Strided::default() }
    }

    /// Remembers that all of several rows are the same, if they are; nothing of them may be written while the loop runs.
    pub fn find_repeats(&mut self, sizes: &[usize]) {
        let mut outer = self.strides.iter().zip(&sizes[..sizes.len() - 1]).filter(|&(_, &size)| size > 1);
        self.repeats = outer.clone().count() > 0 && outer.all(|(&stride, _)| stride == 0);
    }

    /// Whether a tile was copied already: the same parts of rows that are all the same.
    fn is_there(&self, &[begin, length, count]: &[usize; 3], tile: &Tile) -> bool {
        self.repeats && begin == tile.begin && length == tile.length && count >= tile.count
    }

    /// Looks at how the elements lie, when the axes are settled.
    pub fn settle(&mut self, sizes: &[usize]) {
        let mut expected = sizes[sizes.len() - 1];
        self.dense = self.strides[sizes.len() - 1] == 1 || expected == 1;
        self.rows_follow = (0..sizes.len() - 1).rev().all(|axis| {
            let follows = sizes[axis] == 1 || self.strides[axis] == expected;
            expected *= sizes[axis];
            follows
        });
    }

    /// Whether the elements of a row lie behind each other, but those of several have to be copied for every tile.
    pub fn is_direct_in_rows(&self) -> bool {
        self.dense && !self.rows_follow && !self.repeats
    }

    /// Where the elements of a tile begin, if they lie behind each other.
    fn contiguous(&self, sizes: &[usize], tile: &Tile) -> Option<usize> {
        let is_contiguous = self.dense && (tile.count == 1 || self.rows_follow);
        is_contiguous.then(|| self.row(sizes, tile.first) + tile.begin * self.strides[sizes.len() - 1])
    }

    /// Where a row begins.
    fn row(&self, sizes: &[usize], mut row: usize) -> usize {
        let mut place = self.offset;
        for axis in (1..sizes.len() - 1).rev() {
            place += row % sizes[axis] * self.strides[axis];
            row /= sizes[axis];
        }
        // The first axis needs no division; if it is the last one too, there is one row.
        if sizes.len() > 1 { place + row * self.strides[0] } else { place }
    }

    /// Copies the elements of a tile together.
    fn gather<T: Copy>(&self, arena: &SharedSlice<'_, T>, sizes: &[usize], tile: &Tile, to: &mut [T]) {
        let stride = self.strides[sizes.len() - 1];
        for (row, to) in to.chunks_exact_mut(tile.length).enumerate() {
            let place = self.row(sizes, tile.first + row) + tile.begin * stride;
            match stride {
                0 => to.fill(arena.read(place, 1)[0]),
                1 => to.copy_from_slice(arena.read(place, to.len())),
                _ => arena.read_every(place, stride, to),
            }
        }
    }

    /// Copies the elements of a tile to where they belong.
    fn scatter<T: Copy>(&self, arena: &SharedSlice<'_, T>, sizes: &[usize], tile: &Tile, from: &[T]) {
        let stride = self.strides[sizes.len() - 1];
        if let Some(place) = self.contiguous(sizes, tile) {
            arena.write(place, from.len()).copy_from_slice(from);
            return;
        }
        for (row, from) in from.chunks_exact(tile.length).enumerate() {
            let place = self.row(sizes, tile.first + row) + tile.begin * stride;
            if stride == 1 {
                arena.write(place, from.len()).copy_from_slice(from);
            } else {
                arena.write_every(place, stride.max(1), from);
            }
        }
    }

    /// The elements from the first to the last.
    pub(super) fn span(&self, sizes: &[usize]) -> usize {
        1 + self.strides.iter().zip(sizes).map(|(stride, size)| stride * (size - 1)).sum::<usize>()
    }

    /// Whether no two elements have one place: the strides, in their order, step over what lies within.
    pub(super) fn is_one_to_one(&self, sizes: &[usize]) -> bool {
        let mut axes: Vec<(usize, usize)> = self.strides.iter().copied().zip(sizes.iter().copied()).collect();
        axes.retain(|&(_, size)| size > 1);
        axes.sort_unstable();
        let mut span = 0;
        axes.iter().all(|&(stride, size)| {
            let apart = stride > span;
            span += stride * (size - 1);
            apart
        })
    }
}
