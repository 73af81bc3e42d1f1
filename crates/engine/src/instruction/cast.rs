//! Casts: the elements of a tensor in another type.

use super::{Execute, Memory, Scratch, Stored, View};

/// Converts every element of `x` to the type of `out`, which is contiguous.
#[derive(Debug)]
pub(crate) struct Cast {
    pub x: View,
    pub out: View,
}

impl Execute for Cast {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("cast {} to {}", self.x.dtype, self.out.dtype)
    }

    fn traffic(&self) -> usize {
        2 * self.x.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.x.dtype, T => with_type!(self.out.dtype, U => cast::<T, U>(self, memory)));
    }
}

/// Integers are not rounded to `f64` on the way.
fn cast<T: Stored, U: Stored>(Cast { x, out }: &Cast, memory: &mut Memory) {
    for (i, place) in x.places().enumerate() {
        let from = T::arena(memory)[place];
        let to =
            if T::DTYPE.is_float() { U::from_number(from.number()) } else { U::from_integer(from.integer()) };
        U::arena_mut(memory)[out.offset + i] = to;
    }
}
