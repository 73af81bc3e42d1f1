//! Fused loops: the operations of a loop on one tile after another, with what lies between them in the first cache.
//!
//! The axes of a loop are put in an order in which the ones that a reduction takes away come last (or last but one, if
//! the last axis stays, or they are so short that rows along them would be nothing but beginnings and ends), and axes that
//! no tensor of the loop can tell apart become one. A tile is a part of a row, or several short rows.
//!
//! `tile` has the operations on a tile, `reduce` what becomes of it at the end, `pieces` how threads share a large loop.

mod pieces;
mod reduce;
mod tile;

use std::ops::Range;

use crate::dtype::{DType, Element};
use crate::kernel::SharedSlice;
use crate::ops::{Binary, Unary};
use crate::parallel;
use crate::plan::{Loop, Operand, Step, View};

use super::math::{Math, Pair, takes_affine};
use super::memory::Memory;
use pieces::{Piece, Pieces, Rows};
use reduce::{BLOCK_ROWS, CompiledReduce, Total};
use tile::{Strided, TILE, Tile, Worker};

/// Elements of a loop from which on what a tile reads is asked for while the tile before is computed: less than that lies in
/// the caches.
const FAR: usize = 1 << 16;

/// Bytes that what is read and kept of a tile may take in the first cache.
const CACHED: usize = 16 << 10;

/// Most units of [`TILE`] elements in a tile.
const MOST_TILES: usize = 4;

/// The weight of a step that takes long.
const LONG: usize = 6;

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
    /// For each step the store that its result can be written to at once.
    homes: Vec<Option<usize>>,
    actions: Vec<Action>,
    /// The first step that takes long: what the next tile reads is asked for while it computes, unless it reads its operands
    /// itself while it does so (`Action::Affine`), where asking on top of that takes longer.
    long: Option<usize>,
    /// Most elements of a tile, and rows that make one together.
    tile: usize,
    rows: usize,
    /// What threads share.
    pieces: Pieces,
}

/// What is done for a step.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// What it says.
    Step,
    /// It, and the one before it, in one pass.
    Pair(Pair, [Operand; 3]),
    /// Its function of `a b + c`, or of `a b - c`, in one pass.
    Affine([Operand; 3], bool),
    /// A later one does it.
    Nothing,
}

/// What loops of one type need to run, kept from one run to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T: Element> {
    workers: Vec<Worker<T>>,
    /// Parts of results, and of rows of results, of the pieces.
    totals: Vec<Total<T>>,
    rows: Vec<T>,
}

/// What the threads that run a loop share.
struct Common<'a, T> {
    arena: SharedSlice<'a, T>,
    totals: SharedSlice<'a, Total<T>>,
    rows: SharedSlice<'a, T>,
}

impl Compiled {
    /// Orders the axes and puts those together that belong together. `place` is where a buffer begins.
    pub fn new(
        dtype: DType,
        body: &Loop,
        place: impl Fn(usize) -> usize,
        lengths: impl Fn(usize) -> usize,
    ) -> Compiled {
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
        let strided = |view: &View| {
            let strides = order.iter().map(|&axis| view.strides[axis]).collect();
            Strided::new(place(view.buffer) + view.offset, strides)
        };
        let mut compiled = Compiled {
            sizes: order.iter().map(|&axis| body.sizes[axis]).collect(),
            loads: body.loads.iter().map(&strided).collect(),
            constants: body.constants.iter().map(|scalar| scalar.bits()).collect(),
            steps: body.steps.clone(),
            stores: body.stores.iter().map(|(slot, view)| (*slot, strided(view))).collect(),
            reduce: None,
            homes: Vec::new(),
            actions: Vec::new(),
            long: body.steps.iter().position(|step| weight(step) >= LONG),
            tile: TILE,
            rows: 1,
            pieces: Pieces::uncut([1; 3]),
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
        compiled.reduce = body.reduce.as_ref().map(|reduce| CompiledReduce {
            op: reduce.op,
            from,
            out: place(reduce.out),
            length: lengths(reduce.out),
            rows: if across { reduced_count } else { (reduced_count / row.max(1)).max(1) },
            along: !across,
        });
        let sizes = compiled.sizes.clone();
        compiled.tensors().for_each(|tensor| tensor.settle(&sizes));
        compiled.pieces = compiled.cut(dtype);
        let is_apart = compiled.is_apart();
        let home = |slot| compiled.home(slot).filter(|_| is_apart);
        compiled.homes = (0..compiled.steps.len()).map(home).collect();
        if is_apart {
            compiled.loads.iter_mut().for_each(|load| load.find_repeats(&sizes));
        }
        compiled.actions = compiled.pair_up(dtype);
        compiled.tile = compiled.fitting_tile(dtype);
        compiled.rows = compiled.fitting_rows();
        compiled
    }

    /// Elements of a tile, so that all that is read and kept of one fits into the first cache. The fewer tiles, the less time
    /// goes into finding out where they lie.
    fn fitting_tile(&self, dtype: DType) -> usize {
        let results = self.actions.iter().zip(&self.homes);
        let kept = results.filter(|(action, home)| !matches!(action, Action::Nothing) && home.is_none());
        let tiles = kept.count() + self.loads.len() + self.constants.len();
        let fitting = CACHED / dtype.size() / tiles.max(1);
        // What lies in rows that do not follow each other would have to be copied for a tile of several.
        let mut tensors = self.loads.iter().chain(self.stores.iter().map(|(_, store)| store));
        let most = if tensors.any(Strided::is_direct_in_rows) { self.row() } else { fitting };
        // Constants are written anew for every run.
        let all = self.sizes.iter().product::<usize>().next_multiple_of(TILE);
        fitting.min(most).clamp(TILE, (MOST_TILES * TILE).min(all).max(TILE)) / TILE * TILE
    }

    /// Rows of a tile, if it takes them whole.
    fn fitting_rows(&self) -> usize {
        let row = self.row().max(1);
        let across = self.reduce.as_ref().is_some_and(|reduce| !reduce.along);
        match self.tile / row {
            _ if self.pieces.widest() < row => 1,
            rows if across => rows.clamp(1, BLOCK_ROWS),
            rows => rows.max(1),
        }
    }

    /// The store that the result of a step can be written to at once: one that nothing is loaded from.
    fn home(&self, slot: usize) -> Option<usize> {
        let store = self.stores.iter().position(|(stored, _)| *stored == slot)?;
        (!self.loads.contains(&self.stores[store].1)).then_some(store)
    }

    /// What is done for each step: two cheap ones of which only the second reads the first are one pass, and so are a function
    /// and the cheap ones that only it reads.
    fn pair_up(&mut self, dtype: DType) -> Vec<Action> {
        let mut readers = vec![0; self.steps.len()];
        let mut count = |operand: &Operand| {
            if let Operand::Slot(slot) = operand {
                readers[*slot] += 1;
            }
        };
        self.steps.iter().for_each(|step| operands(step).iter().for_each(&mut count));
        self.stores.iter().for_each(|(slot, _)| count(&Operand::Slot(*slot)));
        self.reduce.iter().for_each(|reduce| count(&reduce.from));
        let mut actions = vec![Action::Step; self.steps.len()];
        for slot in 0..self.steps.len() {
            let step = self.steps[slot];
            if let Step::Unary(op, Operand::Slot(before)) = step
                && takes_affine(dtype, op)
                && readers[before] == 1
                && let Some(affine) = self.affine(before, actions[before])
            {
                (actions[before], actions[slot]) = (Action::Nothing, affine);
            }
            let Step::Binary(second, [a, b]) = step else { continue };
            let turned = matches!(second, Binary::Add | Binary::Mul).then_some((b, a));
            for (inner, other) in [(a, b)].into_iter().chain(turned) {
                let Operand::Slot(inner) = inner else { continue };
                let Step::Binary(first, [x, y]) = self.steps[inner] else { continue };
                let is_free = readers[inner] == 1 && matches!(actions[inner], Action::Step);
                if let Some(pair) = Pair::of(first, second).filter(|_| is_free) {
                    (actions[inner], actions[slot]) = (Action::Nothing, Action::Pair(pair, [x, y, other]));
                    break;
                }
            }
        }
        actions
    }

    /// A cheap step as what a function is applied to, if it is one that can be. Sums and products become `a 1 + b` and
    /// `a b + -0`, which are the same to the bit.
    fn affine(&mut self, slot: usize, action: Action) -> Option<Action> {
        match (action, self.steps[slot]) {
            (Action::Pair(Pair::MulAdd, operands), _) => Some(Action::Affine(operands, false)),
            (Action::Pair(Pair::MulSub, operands), _) => Some(Action::Affine(operands, true)),
            (Action::Step, Step::Binary(Binary::Add, [a, b])) => {
                Some(Action::Affine([a, self.constant(1.0), b], false))
            }
            (Action::Step, Step::Binary(Binary::Sub, [a, b])) => {
                Some(Action::Affine([a, self.constant(1.0), b], true))
            }
            (Action::Step, Step::Binary(Binary::Mul, [a, b])) => {
                Some(Action::Affine([a, b, self.constant(-0.0)], false))
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

    /// The pieces that threads share.
    fn cut(&self, dtype: DType) -> Pieces {
        let (row, outer) = (self.row(), &self.sizes[..self.sizes.len() - 1]);
        let all: usize = outer.iter().product();
        let rows = self.reduce.as_ref().map_or(1, |reduce| reduce.rows.max(1));
        let sizes = [all / rows, rows, row];
        if all == 0 || row == 0 || !self.is_apart() {
            return Pieces::uncut(sizes);
        }
        let along = self.reduce.as_ref().is_some_and(|reduce| reduce.along);
        Pieces::new(sizes, if along { Rows::Along } else { Rows::Across }, self.weight() * dtype.size() / 4)
    }

    /// Whether an element that is stored is read, if at all, for the same element only, and stored once: pieces of the loop
    /// then do not meet in memory.
    fn is_apart(&self) -> bool {
        if self.sizes.contains(&0) {
            return true;
        }
        let range = |tensor: &Strided| tensor.offset..tensor.offset + tensor.span(&self.sizes);
        let mut written: Vec<_> =
            self.stores.iter().map(|(_, tensor)| (Some(tensor), range(tensor))).collect();
        written.extend(self.reduce.as_ref().map(|reduce| (None, reduce.out..reduce.out + reduce.length)));
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        let is_free = |load: &Strided| {
            written.iter().all(|(store, place)| *store == Some(load) || !meet(&range(load), place))
        };
        let once = |(i, (store, place)): (usize, &(Option<&Strided>, Range<usize>))| {
            store.is_none_or(|store| store.is_one_to_one(&self.sizes))
                && written[..i].iter().all(|(_, other)| !meet(place, other))
        };
        self.loads.iter().all(is_free) && written.iter().enumerate().all(once)
    }

    /// What an element takes: 1 for a load, a store or a cheap operation.
    fn weight(&self) -> usize {
        let steps = self.steps.iter().map(weight).sum::<usize>();
        self.loads.len() + self.stores.len() + usize::from(self.reduce.is_some()) + steps
    }

    /// Elements of a row.
    fn row(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
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
    #[expect(unsafe_code, reason = "what makes pieces lie apart was found out when they were cut")]
    pub fn run<T: Math>(&self, memory: &mut Memory, scratch: &mut Scratch<T>) {
        let arena = T::arena_mut(memory);
        if self.sizes.contains(&0) {
            if let Some(reduce) = &self.reduce {
                arena[reduce.out..][..reduce.length].fill(T::neutral(reduce.op));
            }
            return;
        }
        let workers = parallel::threads().min(self.pieces.count());
        scratch.prepare(self, workers);
        // SAFETY: a loop is cut only if its pieces do not meet in memory (`is_apart`); totals and rows of results that are not
        // complete belong to one piece each.
        let common = unsafe {
            Common {
                arena: SharedSlice::new(arena),
                totals: SharedSlice::new(&mut scratch.totals),
                rows: SharedSlice::new(&mut scratch.rows),
            }
        };
        parallel::for_each_with(&mut scratch.workers[..workers], self.pieces.count(), |worker, number| {
            self.run_piece(&common, worker, &self.pieces.piece(number));
        });
        self.join(T::arena_mut(memory), &scratch.totals, &scratch.rows);
    }

    fn run_piece<T: Math>(&self, common: &Common<'_, T>, worker: &mut Worker<T>, piece: &Piece) {
        let is_far = self.sizes.iter().product::<usize>() >= FAR;
        // Tiles do not cross into the rows of another result.
        let group =
            self.reduce.as_ref().filter(|reduce| !reduce.along).map_or(usize::MAX, |reduce| reduce.rows);
        let mut current = None;
        let mut first = piece.rows.start;
        while first < piece.rows.end {
            let count = self.rows.min(piece.rows.end - first).min(group - first % group);
            for begin in piece.columns.clone().step_by(self.tile) {
                let tile = Tile { first, count, begin, length: self.tile.min(piece.columns.end - begin) };
                let in_row = begin + tile.length < piece.columns.end;
                let next =
                    if in_row { (first, begin + tile.length) } else { (first + count, piece.columns.start) };
                let next = Some(next).filter(|next| is_far && next.0 < piece.rows.end);
                self.tile(&common.arena, worker, &tile, next);
                self.fold(common, worker, &mut current, (piece, &tile));
            }
            first += count;
            worker.block_rows += count;
            self.flush_block(common, worker, piece, first);
        }
        self.finish(common, current, piece);
    }
}

impl<T: Math> Scratch<T> {
    /// Makes room for a loop on some threads.
    fn prepare(&mut self, compiled: &Compiled, workers: usize) {
        if self.workers.len() < workers {
            self.workers.resize_with(workers, Worker::new);
        }
        self.workers[..workers].iter_mut().for_each(|worker| worker.prepare(compiled));
        let Some(reduce) = compiled.reduce.as_ref().filter(|_| compiled.joins()) else { return };
        let (totals, rows) = if reduce.along {
            (compiled.pieces.count(), 0)
        } else {
            let shares = reduce.length / compiled.row() * compiled.pieces.row_shares();
            (0, shares * compiled.row())
        };
        self.totals.resize(self.totals.len().max(totals), Total::new(reduce.op));
        self.rows.resize(self.rows.len().max(rows), T::ZERO);
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

fn operands(step: &Step) -> &[Operand] {
    match step {
        Step::Unary(_, x) | Step::Copy(x) => std::slice::from_ref(x),
        Step::Binary(_, operands) => operands,
        Step::Select(operands) => operands,
    }
}

/// What a step takes, in cheap operations.
fn weight(step: &Step) -> usize {
    use Unary::{Abs, Floor, Neg, Recip, Relu, Rsqrt, Sign, Sqrt, Square};
    match step {
        Step::Unary(Neg | Abs | Square | Relu | Sign | Floor, _) => 1,
        Step::Unary(Sqrt | Recip | Rsqrt, _) | Step::Binary(Binary::Div, _) => 2,
        Step::Unary(..) => LONG,
        Step::Binary(..) | Step::Select(_) | Step::Copy(_) => 1,
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

#[cfg(test)]
mod tests;
