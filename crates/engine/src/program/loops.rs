//! Fused loops: the operations of a loop on one tile after another, with what lies between them in the first cache.
//!
//! The axes of a loop are put in an order in which the ones that a reduction takes away come last (or last but one, if
//! the last axis stays, or they are so short that rows along them would be nothing but beginnings and ends), and axes that
//! no tensor of the loop can tell apart become one. A tile is a part of a row, or several short rows.

use crate::dtype::DType;
use crate::kernel::prefetch;
use crate::ops::Reduction;
use crate::plan::{Loop, Operand, Step, View};

use super::math::Math;
use super::memory::Memory;

/// Elements of a tile.
const TILE: usize = 512;

/// Elements of a loop from which on what a tile reads is asked for while the tile before is computed: less than that lies in
/// the caches.
const FAR: usize = 1 << 16;

/// Elements that go into one result at most if rows run across the results: these few are added up plainly.
const SHORT: usize = 16;

/// A loop that is ready to run: its axes in their order, its tensors by strides.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// Sizes of the axes; the last one is the row.
    sizes: Vec<usize>,
    loads: Vec<Strided>,
    constants: Vec<u64>,
    steps: Vec<Step>,
    stores: Vec<(usize, Strided)>,
    reduce: Option<CompiledReduce>,
    /// Rows that make a tile together.
    rows: usize,
}

/// A tensor of a loop: its place in the arena and a stride for each axis.
#[derive(Clone, Debug)]
struct Strided {
    offset: usize,
    strides: Vec<usize>,
}

#[derive(Clone, Debug)]
struct CompiledReduce {
    op: Reduction,
    from: Operand,
    /// Begin and length of the result in the arena.
    out: usize,
    length: usize,
    /// Rows of the loop that go into one result (or one row of results).
    rows: usize,
    /// Whether a row becomes one number, or rows are put together element by element.
    along: bool,
}

/// Slots of a loop and the constants, for one type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T> {
    slots: Vec<Vec<T>>,
    /// What is loaded from places that do not lie behind each other.
    gathered: Vec<Vec<T>>,
    /// Where everything else that is loaded begins.
    direct: Vec<Option<usize>>,
    constants: Vec<Vec<T>>,
    /// Sums of a block of rows, and how many rows they hold.
    block: Vec<T>,
    block_rows: usize,
}

/// Rows that are added up before they are added to a result: an addend goes through few additions even if there are very
/// many rows.
const BLOCK_ROWS: usize = 64;

impl Compiled {
    /// Orders the axes and puts those together that belong together. `place` is where a buffer begins.
    pub fn new(body: &Loop, place: impl Fn(usize) -> usize, lengths: impl Fn(usize) -> usize) -> Compiled {
        let axes = body.sizes.len();
        let reduced: Vec<usize> = body.reduce.as_ref().map_or_else(Vec::new, |reduce| reduce.axes.clone());
        let kept: Vec<usize> = (0..axes).filter(|axis| !reduced.contains(axis)).collect();
        let last_stays = axes > 0 && !reduced.contains(&(axes - 1)) && !reduced.is_empty();
        // Kept axes, reduced axes; and behind them the last axis if it stays.
        let mut order = kept.clone();
        if last_stays {
            order.pop();
        }
        let outer = order.len();
        order.extend(&reduced);
        if last_stays {
            order.push(axes - 1);
        }
        let strided = |view: &View| Strided {
            offset: place(view.buffer) + view.offset,
            strides: order.iter().map(|&axis| view.strides[axis]).collect(),
        };
        let mut compiled = Compiled {
            sizes: order.iter().map(|&axis| body.sizes[axis]).collect(),
            loads: body.loads.iter().map(&strided).collect(),
            constants: body.constants.iter().map(|scalar| scalar.bits()).collect(),
            steps: body.steps.clone(),
            stores: body.stores.iter().map(|(slot, view)| (*slot, strided(view))).collect(),
            reduce: None,
            rows: 1,
        };
        let reduced_count: usize = reduced.iter().map(|&axis| body.sizes[axis]).product();
        compiled.merge(&[outer, outer + reduced.len()]);
        if compiled.sizes.is_empty() {
            compiled.sizes.push(1);
            compiled.tensors().for_each(|tensor| tensor.strides.push(1));
        }
        let from = body.reduce.as_ref().map_or(Operand::Slot(0), |reduce| compiled.operand_of(reduce.slot));
        let across = last_stays || !reduced.is_empty() && compiled.turn(reduced_count);
        let row = compiled.sizes[compiled.sizes.len() - 1];
        compiled.rows = (TILE / row.max(1)).max(1);
        compiled.reduce = body.reduce.as_ref().map(|reduce| CompiledReduce {
            op: reduce.op,
            from,
            out: place(reduce.out),
            length: lengths(reduce.out),
            rows: if across { reduced_count } else { (reduced_count / row.max(1)).max(1) },
            along: !across,
        });
        compiled
    }

    /// What a slot holds. A slot that is only a copy, and the last one, is not needed.
    fn operand_of(&mut self, slot: usize) -> Operand {
        match self.steps.last() {
            Some(&Step::Copy(x))
                if slot + 1 == self.steps.len() && self.stores.iter().all(|(stored, _)| *stored != slot) =>
            {
                self.steps.pop();
                x
            }
            _ => Operand::Slot(slot),
        }
    }

    /// Moves the axis before a last one that holds all of the few elements of a result behind it, if that makes rows long;
    /// whether it did.
    fn turn(&mut self, reduced: usize) -> bool {
        let [.., results, row] = self.sizes[..] else { return false };
        let turns = row == reduced && row <= SHORT && results > row;
        if turns {
            let axis = self.sizes.len() - 2;
            self.sizes.swap(axis, axis + 1);
            self.tensors().for_each(|tensor| tensor.strides.swap(axis, axis + 1));
        }
        turns
    }

    fn tensors(&mut self) -> impl Iterator<Item = &mut Strided> {
        self.loads.iter_mut().chain(self.stores.iter_mut().map(|(_, tensor)| tensor))
    }

    /// Puts neighbouring axes together that every tensor walks in one stride, except across borders.
    fn merge(&mut self, borders: &[usize]) {
        for axis in (1..self.sizes.len()).rev() {
            let size = self.sizes[axis];
            let one_stride = |tensor: &mut Strided| tensor.strides[axis - 1] == tensor.strides[axis] * size;
            let joins =
                !borders.contains(&axis) && (self.sizes[axis - 1] == 1 || self.tensors().all(one_stride));
            if joins {
                self.sizes[axis - 1] *= size;
                self.sizes.remove(axis);
                self.tensors().for_each(|tensor| {
                    tensor.strides.remove(axis - 1);
                });
            }
        }
    }

    /// Number of operations, for people.
    pub fn operations(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, Step::Copy(_))).count()
    }

    /// Runs the loop.
    pub fn run<T: Math>(&self, memory: &mut Memory, scratch: &mut Scratch<T>) {
        scratch.prepare(self);
        if let Some(reduce) = &self.reduce {
            T::arena_mut(memory)[reduce.out..][..reduce.length].fill(T::neutral(reduce.op));
        }
        let (&row, outer) = self.sizes.split_last().expect("a loop has an axis");
        let rows: usize = outer.iter().product();
        if row == 0 || rows == 0 {
            return;
        }
        let mut sums = Sums::default();
        let mut first = 0;
        while first < rows {
            // Tiles do not cross into the rows of another result.
            let group = self.reduce.as_ref().map_or(usize::MAX, |reduce| reduce.rows.max(1));
            let until_next = if self.reduce.as_ref().is_some_and(|r| !r.along) {
                group - first % group
            } else {
                usize::MAX
            };
            let count = self.rows.min(rows - first).min(until_next);
            let mut begin = 0;
            while begin < row {
                let length = (row - begin).min(TILE);
                if rows * row >= FAR {
                    let next =
                        if begin + length < row { (first, begin + length) } else { (first + count, 0) };
                    self.ask_for(T::arena(memory), next, rows, count * length);
                }
                self.tile(memory, scratch, first, count, begin, length);
                self.fold(memory, scratch, &mut sums, first, count, begin, length);
                begin += length;
            }
            first += count;
            scratch.block_rows += count;
            self.flush_block(memory, scratch, first, first == rows);
        }
        sums.flush(memory);
    }

    /// Asks for what a tile of some elements reads, if there is one: it begins with an element of a row.
    fn ask_for<T>(&self, arena: &[T], (row, begin): (usize, usize), rows: usize, size: usize) {
        let last = self.sizes.len() - 1;
        for load in self.loads.iter().filter(|load| row < rows && load.strides[last] == 1) {
            let place = load.row(&self.sizes, row) + begin;
            prefetch(&arena[place..arena.len().min(place + size)]);
        }
    }

    /// The operations on `count` rows from `first` on, the elements `begin..begin + length` of each.
    fn tile<T: Math>(
        &self,
        memory: &mut Memory,
        scratch: &mut Scratch<T>,
        first: usize,
        count: usize,
        begin: usize,
        length: usize,
    ) {
        let size = count * length;
        let arena = T::arena(memory);
        for ((load, gathered), direct) in
            self.loads.iter().zip(&mut scratch.gathered).zip(&mut scratch.direct)
        {
            let place = load.contiguous(&self.sizes, first, count, begin);
            if place.is_none() {
                load.gather(arena, &self.sizes, first, count, begin, &mut gathered[..size]);
            }
            *direct = place;
        }
        for (slot, step) in self.steps.iter().enumerate() {
            let mut result = std::mem::take(&mut scratch.slots[slot]);
            let read = |operand: Operand| scratch.read(arena, operand, size);
            let out = &mut result[..size];
            match *step {
                Step::Unary(op, x) => T::unary(op, read(x), out),
                Step::Binary(op, [a, b]) => T::binary(op, read(a), read(b), out),
                Step::Select([condition, a, b]) => T::select(read(condition), read(a), read(b), out),
                Step::Copy(x) => out.copy_from_slice(read(x)),
            }
            scratch.slots[slot] = result;
        }
        let arena = T::arena_mut(memory);
        for (slot, store) in &self.stores {
            store.scatter(arena, &self.sizes, first, count, begin, &scratch.slots[*slot][..size]);
        }
    }

    /// Adds a tile to the results of the reduction.
    #[expect(clippy::too_many_arguments, reason = "where the tile lies")]
    fn fold<T: Math>(
        &self,
        memory: &mut Memory,
        scratch: &mut Scratch<T>,
        sums: &mut Sums,
        first: usize,
        count: usize,
        begin: usize,
        length: usize,
    ) {
        let Some(reduce) = &self.reduce else { return };
        if reduce.along {
            for row in 0..count {
                let tile = scratch.read(T::arena(memory), reduce.from, count * length);
                let part = T::part(reduce.op, &tile[row * length..][..length]);
                sums.add(memory, reduce.op, reduce.out + (first + row) / reduce.rows, part);
            }
            return;
        }
        let mut block = std::mem::take(&mut scratch.block);
        for part in scratch.read(T::arena(memory), reduce.from, count * length).chunks_exact(length) {
            T::combine(reduce.op, &mut block[begin..begin + length], part);
        }
        scratch.block = block;
    }

    /// Adds a block of rows to the result that they belong to, if the block or the result is complete; `next` is the first
    /// row that is not in the block.
    fn flush_block<T: Math>(
        &self,
        memory: &mut Memory,
        scratch: &mut Scratch<T>,
        next: usize,
        is_last: bool,
    ) {
        let Some(reduce) = self.reduce.as_ref().filter(|reduce| !reduce.along) else { return };
        if scratch.block_rows < BLOCK_ROWS && !next.is_multiple_of(reduce.rows) && !is_last {
            return;
        }
        let row = self.sizes[self.sizes.len() - 1];
        let place = reduce.out + (next - 1) / reduce.rows * row;
        let block = &mut scratch.block[..row];
        T::combine(reduce.op, &mut T::arena_mut(memory)[place..place + row], block);
        block.fill(T::neutral(reduce.op));
        scratch.block_rows = 0;
    }
}

/// Sums of rows, with what rounding lost: a result that several tiles go into is written when it is complete.
#[derive(Debug, Default)]
struct Sums {
    place: usize,
    sum: f64,
    lost: f64,
    /// Writes the sum into the arena of its type.
    write: Option<fn(&mut Memory, usize, f64)>,
}

impl Sums {
    /// Adds what a reduction makes of a part of a row.
    fn add<T: Math>(&mut self, memory: &mut Memory, op: Reduction, place: usize, part: T) {
        if op != Reduction::Sum || !T::DTYPE.is_float() {
            T::combine(op, &mut T::arena_mut(memory)[place..=place], &[part]);
            return;
        }
        if self.place != place || self.write.is_none() {
            self.flush(memory);
            *self = Sums {
                place,
                sum: 0.0,
                lost: 0.0,
                write: Some(|memory, place, sum| T::arena_mut(memory)[place] = T::from_number(sum)),
            };
        }
        // Neumaier's sum: what is too small for the sum is kept beside it.
        let x = part.number();
        let sum = self.sum + x;
        self.lost += if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        self.sum = sum;
    }

    fn flush(&mut self, memory: &mut Memory) {
        if let Some(write) = self.write.take() {
            let sum = if self.sum.is_finite() { self.sum + self.lost } else { self.sum };
            write(memory, self.place, sum);
        }
    }
}

impl Strided {
    /// Where the elements of a tile begin, if they lie behind each other.
    fn contiguous(&self, sizes: &[usize], first: usize, count: usize, begin: usize) -> Option<usize> {
        let last = sizes.len() - 1;
        let dense = self.strides[last] == 1 || sizes[last] == 1;
        let rows_follow = count == 1
            || (0..last)
                .rev()
                .scan(sizes[last], |expected, axis| {
                    let fits = sizes[axis] == 1 || self.strides[axis] == *expected;
                    *expected *= sizes[axis];
                    Some(fits)
                })
                .all(|fits| fits);
        (dense && rows_follow).then(|| self.row(sizes, first) + begin * self.strides[last])
    }

    /// Where a row begins.
    fn row(&self, sizes: &[usize], mut row: usize) -> usize {
        let mut place = self.offset;
        for axis in (0..sizes.len() - 1).rev() {
            place += row % sizes[axis] * self.strides[axis];
            row /= sizes[axis];
        }
        place
    }

    fn gather<T: Copy>(
        &self,
        arena: &[T],
        sizes: &[usize],
        first: usize,
        count: usize,
        begin: usize,
        to: &mut [T],
    ) {
        let stride = self.strides[sizes.len() - 1];
        for (row, to) in to.chunks_exact_mut(to.len() / count).enumerate() {
            let place = self.row(sizes, first + row) + begin * stride;
            match stride {
                0 => to.fill(arena[place]),
                1 => to.copy_from_slice(&arena[place..place + to.len()]),
                2 => gather_every::<T, 2>(&arena[place..], to),
                4 => gather_every::<T, 4>(&arena[place..], to),
                _ => to.iter_mut().zip(arena[place..].iter().step_by(stride)).for_each(|(to, &x)| *to = x),
            }
        }
    }

    fn scatter<T: Copy>(
        &self,
        arena: &mut [T],
        sizes: &[usize],
        first: usize,
        count: usize,
        begin: usize,
        from: &[T],
    ) {
        let stride = self.strides[sizes.len() - 1];
        if let Some(place) = self.contiguous(sizes, first, count, begin) {
            arena[place..place + from.len()].copy_from_slice(from);
            return;
        }
        for (row, from) in from.chunks_exact(from.len() / count).enumerate() {
            let place = self.row(sizes, first + row) + begin * stride;
            if stride == 1 {
                arena[place..place + from.len()].copy_from_slice(from);
            } else {
                arena[place..].iter_mut().step_by(stride.max(1)).zip(from).for_each(|(to, &x)| *to = x);
            }
        }
    }
}

/// Every `N`th element, from the first on. With a stride that it knows, the compiler makes vectors of them.
fn gather_every<T: Copy, const N: usize>(from: &[T], to: &mut [T]) {
    let (last, to) = to.split_last_mut().expect("a tile has an element");
    to.iter_mut().zip(from.as_chunks::<N>().0).for_each(|(to, chunk)| *to = chunk[0]);
    *last = from[to.len() * N];
}

impl<T: Math> Scratch<T> {
    /// The elements of an operand in a tile.
    fn read<'a>(&'a self, arena: &'a [T], operand: Operand, size: usize) -> &'a [T] {
        match operand {
            Operand::Slot(slot) => &self.slots[slot][..size],
            Operand::Constant(constant) => &self.constants[constant][..size],
            Operand::Load(load) => match self.direct[load] {
                Some(place) => &arena[place..place + size],
                None => &self.gathered[load][..size],
            },
        }
    }

    /// Makes room for a loop and fills in its constants.
    fn prepare(&mut self, compiled: &Compiled) {
        let grow = |list: &mut Vec<Vec<T>>, count: usize| {
            if list.len() < count {
                list.resize_with(count, Vec::new);
            }
            list.iter_mut()
                .take(count)
                .filter(|slot| slot.is_empty())
                .for_each(|slot| slot.resize(TILE, T::ZERO));
        };
        grow(&mut self.slots, compiled.steps.len());
        grow(&mut self.gathered, compiled.loads.len());
        self.direct.resize(self.direct.len().max(compiled.loads.len()), None);
        grow(&mut self.constants, compiled.constants.len());
        for (constant, &bits) in self.constants.iter_mut().zip(&compiled.constants) {
            constant.fill(T::from_bits(bits));
        }
        if let Some(reduce) = compiled.reduce.as_ref().filter(|reduce| !reduce.along) {
            let row = compiled.sizes[compiled.sizes.len() - 1];
            self.block.resize(self.block.len().max(row), T::ZERO);
            self.block[..row].fill(T::neutral(reduce.op));
            self.block_rows = 0;
        }
    }
}

impl Compiled {
    /// The names of the operations, in order.
    pub fn names(&self) -> Vec<&'static str> {
        let name = |step: &Step| match step {
            Step::Unary(op, _) => op.row().name,
            Step::Binary(op, _) => op.row().name,
            Step::Select(_) => "select",
            Step::Copy(_) => "copy",
        };
        let reduce = self.reduce.as_ref().map(|reduce| reduce.op.name());
        self.steps.iter().map(name).chain(reduce).collect()
    }

    /// Elements that are read from the arena and written to it. What repeats along an axis is read once.
    pub fn traffic(&self) -> usize {
        let elements = |tensor: &Strided| {
            let moved = self.sizes.iter().zip(&tensor.strides).filter(|&(_, &stride)| stride != 0);
            moved.map(|(&size, _)| size).product::<usize>()
        };
        let stores = self.stores.iter().map(|(_, tensor)| tensor);
        let reduced = self.reduce.as_ref().map_or(0, |reduce| reduce.length);
        self.loads.iter().chain(stores).map(elements).sum::<usize>() + reduced
    }
}

/// The type of a loop, for people.
pub(super) fn describe(dtype: DType, compiled: &Compiled) -> String {
    let reduce = compiled.reduce.as_ref().map_or(String::new(), |reduce| format!(", {}", reduce.op.name()));
    format!(
        "loop {dtype}{:?}: {} operations, {} loads, {} stores{reduce}",
        compiled.sizes,
        compiled.operations(),
        compiled.loads.len(),
        compiled.stores.len()
    )
}
