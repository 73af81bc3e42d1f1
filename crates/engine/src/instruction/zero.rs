//! Zeros: fills a whole buffer.

use super::{Execute, Memory, Scratch, Stored as _, View};
use crate::dtype::Element as _;

/// Fills a contiguous tensor with zeros.
#[derive(Debug)]
pub(crate) struct Zero {
    pub out: View,
}

impl Execute for Zero {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.out]
    }

    fn describe(&self) -> String {
        format!("zero {}[{}]", self.out.dtype, self.out.elements())
    }

    fn traffic(&self) -> usize {
        self.out.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_type!(self.out.dtype, T => {
            T::arena_mut(memory)[self.out.offset..][..self.out.elements()].fill(T::ZERO);
        });
    }
}
