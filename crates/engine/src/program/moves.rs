//! Kernels that move elements or walk along an axis: gather, scatter, running sums, arg-max, casts.

use crate::dtype::DType;
use crate::plan::View;
use crate::shape::{MOST_AXES, Shape};
use crate::vector::RealNumber;
use crate::{parallel, vector};

use super::memory::{Memory, Stored};

/// Elements of a share of the rows of a softmax.
const SHARE: usize = 1 << 14;

/// A view with its place in the arena. It lies on the stack, so that parts of it cost nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub offset: usize,
    pub sizes: Shape,
    strides: [usize; MOST_AXES],
}

impl Placed {
    pub fn new(view: &View, begin: usize) -> Placed {
        let mut strides = [0; MOST_AXES];
        strides[..view.strides.len()].copy_from_slice(&view.strides);
        Placed { offset: begin + view.offset, sizes: Shape::from_checked(&view.sizes), strides }
    }

    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.sizes.axes()]
    }

    pub fn elements(&self) -> usize {
        self.sizes.elements()
    }

    /// The first axes only.
    pub fn leading(&self, axes: usize) -> Placed {
        Placed { sizes: Shape::from_checked(&self.sizes[..axes]), ..*self }
    }

    /// The places of all elements, row by row.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.elements()).map(|flat| self.place(flat))
    }

    /// The place of an element, counted row by row.
    pub fn place(&self, mut flat: usize) -> usize {
        let mut place = self.offset;
        for (&size, &stride) in self.sizes.iter().zip(self.strides()).rev() {
            place += flat % size * stride;
            flat /= size;
        }
        place
    }

    /// The view with one index of an axis.
    fn at(mut self, axis: usize, index: usize) -> Placed {
        self.offset += index * self.strides[axis];
        self.sizes = self.sizes.with(axis, 1);
        self
    }
}

/// Zeros.
pub(super) fn zero<T: Stored>(memory: &mut Memory, begin: usize, length: usize) {
    T::arena_mut(memory)[begin..][..length].fill(T::ZERO);
}

/// The elements of `x` in another type, row by row.
pub(super) fn cast_to<T: Stored>(memory: &mut Memory, x: &Placed, to: DType, out: usize) {
    match to {
        DType::F32 => cast::<T, f32>(memory, x, out),
        DType::F64 => cast::<T, f64>(memory, x, out),
        DType::I32 => cast::<T, i32>(memory, x, out),
        DType::I64 => cast::<T, i64>(memory, x, out),
    }
}

/// The elements of `x` in another type, row by row. Integers are not rounded on the way.
fn cast<T: Stored, U: Stored>(memory: &mut Memory, x: &Placed, out: usize) {
    for (i, place) in x.places().enumerate() {
        let from = T::arena(memory)[place];
        let to =
            if T::DTYPE.is_float() { U::from_number(from.number()) } else { U::from_integer(from.integer()) };
        U::arena_mut(memory)[out + i] = to;
    }
}

/// Slices of an axis at indices, row by row.
pub(super) fn gather<T: Stored>(memory: &mut Memory, x: &Placed, indices: &Placed, axis: usize, out: usize) {
    let count = indices.elements();
    let mut result = Placed { offset: out, sizes: x.sizes.with(axis, count), ..*x };
    // The result is dense, so its own strides say where a slice goes.
    let mut stride = 1;
    for axis in (0..result.sizes.axes()).rev() {
        result.strides[axis] = stride;
        stride *= result.sizes[axis];
    }
    for i in 0..count {
        let index = i32::arena(memory)[indices.place(i)];
        let to = result.at(axis, i);
        match usize::try_from(index).ok().filter(|&index| index < x.sizes[axis]) {
            Some(index) => {
                let from = x.at(axis, index);
                let arena = T::arena_mut(memory);
                from.places().zip(to.places()).for_each(|(from, to)| arena[to] = arena[from]);
            }
            None => to.places().for_each(|to| T::arena_mut(memory)[to] = T::ZERO),
        }
    }
}

/// Slices of `x` added up at indices of an axis of `out`, which holds zeros.
pub(super) fn scatter_add<T: Stored>(
    memory: &mut Memory,
    x: &Placed,
    indices: &Placed,
    axis: usize,
    out: &Placed,
) {
    for i in 0..indices.elements() {
        let index = i32::arena(memory)[indices.place(i)];
        let Some(index) = usize::try_from(index).ok().filter(|&index| index < out.sizes[axis]) else {
            continue;
        };
        let (from, to) = (x.at(axis, i), out.at(axis, index));
        let arena = T::arena_mut(memory);
        from.places().zip(to.places()).for_each(|(from, to)| arena[to] = T::plus(arena[to], arena[from]));
    }
}

/// Running sums along the last axis, row by row; in `f64` for floating point.
pub(super) fn cumsum<T: Stored>(memory: &mut Memory, x: &Placed, reverse: bool, out: usize) {
    let length = x.sizes.last().copied().unwrap_or(1);
    let arena = T::arena_mut(memory);
    for row in 0..x.elements() / length.max(1) {
        let (mut sum, mut exact) = (0.0f64, 0i64);
        for i in 0..length {
            let i = row * length + if reverse { length - 1 - i } else { i };
            let element = arena[x.place(i)];
            arena[out + i] = if T::DTYPE.is_float() {
                sum += element.number();
                T::from_number(sum)
            } else {
                exact = exact.wrapping_add(element.integer());
                T::from_integer(exact)
            };
        }
    }
}

/// The index of the largest or smallest element along an axis.
pub(super) fn arg_reduce<T: Stored>(memory: &mut Memory, x: &Placed, axis: usize, largest: bool, out: usize) {
    // The first of a row, and from it on along the axis; NaN is before everything.
    let (length, stride) = (x.sizes[axis], x.strides[axis]);
    let first = x.at(axis, 0);
    for i in 0..first.elements() {
        let (place, arena) = (first.place(i), T::arena(memory));
        let mut best = 0;
        for j in 1..length {
            let (most, next) = (arena[place + best * stride], arena[place + j * stride]);
            let wins = if largest { next > most } else { next < most };
            if !most.is_nan() && (wins || next.is_nan()) {
                best = j;
            }
        }
        i32::arena_mut(memory)[out + i] = best as i32;
    }
}

/// The softmax of every row, or its logarithm. Operand and result lie apart.
pub(super) fn softmax<T: RealNumber + Stored>(
    memory: &mut Memory,
    x: usize,
    out: usize,
    rows: usize,
    row: usize,
    log: bool,
) {
    let (arena, length) = (T::arena_mut(memory), rows * row);
    let (x, out) = if x < out {
        let (low, high) = arena.split_at_mut(out);
        (&low[x..x + length], &mut high[..length])
    } else {
        let (low, high) = arena.split_at_mut(x);
        (&high[..length], &mut low[out..out + length])
    };
    let work = |(x, out): (&[T], &mut [T])| {
        for (x, out) in x.chunks_exact(row).zip(out.chunks_exact_mut(row)) {
            let done = if log { vector::log_softmax(x, out) } else { vector::softmax(x, out) };
            done.expect("rows have one length");
        }
    };
    if row == 0 || rows == 0 {
        return;
    }
    // Rows are whole and have nothing to do with each other: how they are shared changes no result.
    let share = row * (SHARE / row).max(1);
    if length < 2 * share || rayon::current_num_threads() < 2 {
        work((x, out));
    } else {
        parallel::for_each(x.chunks(share).zip(out.chunks_mut(share)).collect(), work);
    }
}
