//! Views: where the elements of a tensor lie in memory.

use crate::graph::Window;
use crate::shape::Shape;

/// A tensor in the memory of its type: element (i, j, ..) lies at `offset + i * strides[0] + j * strides[1] + ..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The buffer it lies in.
    pub buffer: usize,
    /// The first element, from the begin of the buffer.
    pub offset: usize,
    /// Sizes of the axes.
    pub sizes: Vec<usize>,
    /// Elements from one index of an axis to the next; 0 for an axis that repeats.
    pub strides: Vec<usize>,
}

impl View {
    /// All of a buffer, row by row.
    pub fn whole(buffer: usize, shape: &Shape) -> View {
        View { buffer, offset: 0, sizes: shape.to_vec(), strides: shape.strides() }
    }

    /// Whether the elements lie behind each other, row by row.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
    }

    /// The same elements in another shape, if no copy is needed for it.
    pub fn reshaped(&self, shape: &Shape) -> Option<View> {
        let whole = View::whole(self.buffer, shape);
        self.is_contiguous().then_some(View { offset: self.offset, ..whole })
    }

    /// Axes of size 1 repeated.
    pub fn expanded(&self, shape: &Shape) -> View {
        let stride =
            |((&size, &wanted), &stride): ((&usize, &usize), &usize)| if size == wanted { stride } else { 0 };
        let strides = self.sizes.iter().zip(&**shape).zip(&self.strides).map(stride).collect();
        View { sizes: shape.to_vec(), strides, ..self.clone() }
    }

    /// Axes in another order.
    pub fn permuted(&self, order: &[usize]) -> View {
        let pick = |from: &[usize]| order.iter().map(|&axis| from[axis]).collect();
        View { sizes: pick(&self.sizes), strides: pick(&self.strides), ..*self }
    }

    /// `count` indices of an axis from `begin` on, every `step`-th.
    pub fn sliced(mut self, axis: usize, begin: usize, count: usize, step: usize) -> View {
        self.offset += begin * self.strides[axis];
        self.sizes[axis] = count;
        self.strides[axis] *= step;
        self
    }

    /// Windows of the last axis; they overlap in memory.
    pub fn unfolded(mut self, window: &Window) -> View {
        let (length, stride) = (self.sizes.pop().unwrap_or(0), self.strides.pop().unwrap_or(0));
        self.sizes.extend([window.count(length), window.size]);
        self.strides.extend([stride * window.stride, stride * window.dilation]);
        self
    }
}
