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

    /// The same elements in another shape, if no copy is needed for it: axes are split, and neighbours joined that one
    /// stride walks through.
    pub fn reshaped(&self, shape: &Shape) -> Option<View> {
        if self.is_contiguous() || shape.elements() == 0 {
            return Some(View { offset: self.offset, ..View::whole(self.buffer, shape) });
        }
        let axes = self.sizes.iter().zip(&self.strides).rev().filter(|&(&size, _)| size != 1);
        let mut axes = axes.map(|(&size, &stride)| (size, stride)).peekable();
        let mut strides = vec![0; shape.axes()];
        // What is left of the group of axes of the view that the axis of the shape falls into.
        let (mut size, mut stride) = (1, 1);
        for axis in (0..shape.axes()).rev().filter(|&axis| shape[axis] != 1) {
            if size == 1 {
                (size, stride) = axes.next()?;
                while let Some((outer, _)) = axes.next_if(|&(_, outer)| outer == stride * size) {
                    size *= outer;
                }
            }
            if size % shape[axis] != 0 {
                return None;
            }
            strides[axis] = stride;
            stride *= shape[axis];
            size /= shape[axis];
        }
        Some(View { buffer: self.buffer, offset: self.offset, sizes: shape.to_vec(), strides })
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
        self.strides[axis] = used(count, self.strides[axis], step);
        self
    }

    /// Windows of the last axis; they overlap in memory.
    pub fn unfolded(mut self, window: &Window) -> View {
        let (length, stride) = (self.sizes.pop().unwrap_or(0), self.strides.pop().unwrap_or(0));
        let count = window.count(length);
        self.sizes.extend([count, window.size]);
        self.strides.extend([used(count, stride, window.stride), used(window.size, stride, window.dilation)]);
        self
    }
}

/// The stride of so many indices, every `step`-th. Of one index no stride is used, and the product may be too large.
fn used(count: usize, stride: usize, step: usize) -> usize {
    if count > 1 { stride * step } else { stride }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The places of all elements, row by row.
    fn places(view: &View) -> Vec<usize> {
        let elements = view.sizes.iter().product();
        let place = |mut flat: usize| {
            let mut place = view.offset;
            for (&size, &stride) in view.sizes.iter().zip(&view.strides).rev() {
                place += flat % size * stride;
                flat /= size;
            }
            place
        };
        (0..elements).map(place).collect()
    }

    proptest! {
        #[test]
        fn a_view_in_another_shape_has_the_same_places(
            order in Just([0, 1, 2]).prop_shuffle(), cut in 0usize..3, split: [bool; 3],
        ) {
            let view = View::whole(0, &Shape::new(&[4, 6, 2]).unwrap()).permuted(&order);
            let count = view.sizes[cut] / 2;
            let view = view.sliced(cut, 1, count, 1);
            // Every axis whole or split, neighbours joined or not.
            let mut sizes = Vec::new();
            for (&size, split) in view.sizes.iter().zip(split) {
                sizes.extend(if split && size % 2 == 0 { vec![2, size / 2] } else { vec![size] });
            }
            for join in 0..sizes.len() {
                let mut joined = sizes.clone();
                let last = joined.remove(join);
                if join > 0 {
                    joined[join - 1] *= last;
                } else {
                    joined.insert(0, last);
                }
                if let Some(reshaped) = view.reshaped(&Shape::new(&joined).unwrap()) {
                    prop_assert_eq!(places(&reshaped), places(&view));
                }
            }
        }
    }

    #[test]
    fn columns_of_rows_join_without_a_copy() {
        let view = View::whole(0, &Shape::new(&[5, 7, 8]).unwrap()).sliced(2, 2, 3, 1);
        let rows = view.reshaped(&Shape::new(&[35, 3]).unwrap()).unwrap();
        assert_eq!((rows.offset, rows.strides), (2, vec![8, 1]));
        assert!(view.reshaped(&Shape::new(&[5, 21]).unwrap()).is_none());
    }
}
