//! Arg-max and arg-min along an axis.

use super::{Execute, Memory, Scratch, Stored, View};

/// Writes the index of the largest or smallest element of `x` along an axis to `out`, a contiguous `i32` tensor. NaN wins
/// over every number; of equal elements the first wins.
#[derive(Debug)]
pub(crate) struct ArgReduce {
    pub x: View,
    pub axis: usize,
    pub largest: bool,
    pub out: View,
}

impl Execute for ArgReduce {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("arg_reduce {}", self.x.dtype)
    }

    fn traffic(&self) -> usize {
        2 * self.x.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.x.dtype, T => arg_reduce::<T>(self, memory));
    }
}

fn arg_reduce<T: Stored>(&ArgReduce { x, axis, largest, out }: &ArgReduce, memory: &mut Memory) {
    let (length, stride) = (x.sizes[axis], x.strides()[axis]);
    let first = x.at(axis, 0);
    for i in 0..first.elements() {
        let (place, arena) = (first.place(i), T::arena(memory));
        let mut best = 0;
        for j in 1..length {
            let (current, next) = (arena[place + best * stride], arena[place + j * stride]);
            let wins = if largest { next > current } else { next < current };
            if !current.is_nan() && (wins || next.is_nan()) {
                best = j;
            }
        }
        i32::arena_mut(memory)[out.offset + i] = best as i32;
    }
}
