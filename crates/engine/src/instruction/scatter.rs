//! Scatter: slices added at given indices of an axis.

use super::{Execute, Memory, Scratch, Stored, View};

/// Adds the slices of `x` along an axis to `out` at `indices` of that axis. Indices outside are skipped.
#[derive(Debug)]
pub(crate) struct ScatterAdd {
    pub x: View,
    pub indices: View,
    pub axis: usize,
    pub out: View,
}

impl Execute for ScatterAdd {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.indices, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("scatter_add {}", self.x.dtype)
    }

    fn traffic(&self) -> usize {
        self.x.bytes() + self.out.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.x.dtype, T => scatter_add::<T>(self, memory));
    }
}

fn scatter_add<T: Stored>(ScatterAdd { x, indices, axis, out }: &ScatterAdd, memory: &mut Memory) {
    for i in 0..indices.elements() {
        let index = i32::arena(memory)[indices.place(i)];
        let Some(index) = usize::try_from(index).ok().filter(|&index| index < out.sizes[*axis]) else {
            continue;
        };
        let (from, to) = (x.at(*axis, i), out.at(*axis, index));
        let arena = T::arena_mut(memory);
        from.places().zip(to.places()).for_each(|(from, to)| arena[to] = T::plus(arena[to], arena[from]));
    }
}
