//! Cumulative sums along the last axis.

use super::{Execute, Memory, Scratch, Stored, View};

/// Writes the cumulative sums of `x` along its last axis, or from its end, to `out`, which is contiguous.
#[derive(Debug)]
pub(crate) struct CumSum {
    pub x: View,
    pub reverse: bool,
    pub out: View,
}

impl Execute for CumSum {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("cumsum {}", self.x.dtype)
    }

    fn traffic(&self) -> usize {
        2 * self.x.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.x.dtype, T => cumsum::<T>(self, T::arena_mut(memory)));
    }
}

/// Floating-point sums are accumulated in `f64`.
fn cumsum<T: Stored>(CumSum { x, reverse, out }: &CumSum, arena: &mut [T]) {
    let length = x.sizes.last().copied().unwrap_or(1);
    for row in 0..x.elements() / length.max(1) {
        let (mut sum, mut exact) = (0.0f64, 0i64);
        for i in 0..length {
            let i = row * length + if *reverse { length - 1 - i } else { i };
            let element = arena[x.place(i)];
            arena[out.offset + i] = if T::DTYPE.is_float() {
                sum += element.number();
                T::from_number(sum)
            } else {
                exact = exact.wrapping_add(element.integer());
                T::from_integer(exact)
            };
        }
    }
}
