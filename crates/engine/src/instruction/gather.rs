//! Gather: slices of an axis at given indices.

use super::{Execute, Memory, Scratch, Stored, View};

/// Copies the slices of `x` at `indices` of an axis to `out`, which is contiguous. Indices outside give zeros.
#[derive(Debug)]
pub(crate) struct Gather {
    pub x: View,
    pub indices: View,
    pub axis: usize,
    pub out: View,
}

impl Execute for Gather {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.indices, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("gather {}", self.x.dtype)
    }

    fn traffic(&self) -> usize {
        2 * self.out.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.x.dtype, T => gather::<T>(self, memory));
    }
}

fn gather<T: Stored>(Gather { x, indices, axis, out }: &Gather, memory: &mut Memory) {
    for i in 0..indices.elements() {
        let index = i32::arena(memory)[indices.place(i)];
        let to = out.at(*axis, i);
        match usize::try_from(index).ok().filter(|&index| index < x.sizes[*axis]) {
            Some(index) => {
                let from = x.at(*axis, index);
                let arena = T::arena_mut(memory);
                from.places().zip(to.places()).for_each(|(from, to)| arena[to] = arena[from]);
            }
            None => to.places().for_each(|to| T::arena_mut(memory)[to] = T::ZERO),
        }
    }
}
