//! Views: tensors as an offset, sizes and strides in a buffer.

use crate::dtype::DType;
use crate::graph::Window;
use crate::kernel::half::Half;
use crate::shape::{MAX_AXES, Shape};

/// A tensor in the arena of its type: element (i, j, ..) is at `offset + i * strides[0] + j * strides[1] + ..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub buffer: usize,
    pub dtype: DType,
    /// The 16-bit format that the elements are stored in, if they are. Only loops access such tensors.
    pub half: Option<Half>,
    /// The first element, counted from the start of the buffer while planning, from the start of the arena afterwards.
    pub offset: usize,
    pub sizes: Shape,
    /// Elements from one index of an axis to the next, 0 for a broadcast axis; 0 after the last axis.
    strides: [usize; MAX_AXES],
}

impl View {
    /// A whole buffer as a contiguous tensor.
    pub fn whole(buffer: usize, dtype: DType, sizes: Shape) -> View {
        View { buffer, dtype, half: None, offset: 0, sizes, strides: padded(&sizes.strides()) }
    }

    /// The same elements of another buffer, in a 16-bit format or not.
    pub fn moved(self, buffer: usize, half: Option<Half>) -> View {
        View { buffer, half, ..self }
    }

    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.sizes.axes()]
    }

    pub fn elements(&self) -> usize {
        self.sizes.elements()
    }

    pub fn bytes(&self) -> usize {
        self.elements() * self.element_bytes()
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> usize {
        if self.half.is_some() { Half::BYTES } else { self.dtype.size() }
    }

    /// Whether the elements are adjacent in memory, in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(self.strides()).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
    }

    /// The offset of an element, which is given by its row-major index.
    pub fn place(&self, mut index: usize) -> usize {
        let mut place = self.offset;
        for (&size, &stride) in self.sizes.iter().zip(self.strides()).rev() {
            place += index % size * stride;
            index /= size;
        }
        place
    }

    /// The offsets of all elements in row-major order.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.elements()).map(|index| self.place(index))
    }

    /// The same elements in another shape, or `None` if that needs a copy: axes are split, and neighbouring axes with
    /// compatible strides coalesced.
    pub fn reshaped(&self, shape: Shape) -> Option<View> {
        if self.is_contiguous() || shape.elements() == 0 {
            let whole = View::whole(self.buffer, self.dtype, shape);
            return Some(View { offset: self.offset, half: self.half, ..whole });
        }
        let axes = self.sizes.iter().zip(self.strides()).rev().filter(|&(&size, _)| size != 1);
        let mut axes = axes.map(|(&size, &stride)| (size, stride)).peekable();
        let mut strides = [0; MAX_AXES];
        // The remaining size of the group of coalesced axes that the axis of the shape falls into.
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
        Some(View { sizes: shape, strides, ..*self })
    }

    /// Axes of size 1 broadcast.
    pub fn expanded(mut self, shape: Shape) -> View {
        for axis in (0..shape.axes()).filter(|&axis| self.sizes[axis] != shape[axis]) {
            self.strides[axis] = 0;
        }
        View { sizes: shape, ..self }
    }

    /// Axes in another order.
    pub fn permuted(&self, order: &[usize]) -> View {
        let pick = |from: &[usize]| order.iter().map(|&axis| from[axis]).collect::<Vec<_>>();
        let (sizes, strides) = (Shape::from_checked(&pick(&self.sizes)), padded(&pick(self.strides())));
        View { sizes, strides, ..*self }
    }

    /// The first `axes` axes, at index 0 of the others.
    pub fn leading(&self, axes: usize) -> View {
        let strides = padded(&self.strides[..axes]);
        View { sizes: Shape::from_checked(&self.sizes[..axes]), strides, ..*self }
    }

    /// `count` indices of an axis starting at `begin`, every `step`-th.
    pub fn sliced(mut self, axis: usize, begin: usize, count: usize, step: usize) -> View {
        self.offset += begin * self.strides[axis];
        self.sizes = self.sizes.with(axis, count);
        self.strides[axis] = step_stride(count, self.strides[axis], step);
        self
    }

    /// One index of an axis, which keeps size 1.
    pub fn at(self, axis: usize, index: usize) -> View {
        self.sliced(axis, index, 1, 1)
    }

    /// Windows of the last axis; they overlap in memory.
    pub fn unfolded(&self, window: &Window) -> View {
        let last = self.sizes.axes() - 1;
        let (count, stride) = (window.count(self.sizes[last]), self.strides[last]);
        let mut strides = self.strides;
        strides[last] = step_stride(count, stride, window.stride);
        strides[last + 1] = step_stride(window.size, stride, window.dilation);
        let sizes = [&self.sizes[..last], &[count, window.size]].concat();
        View { sizes: Shape::from_checked(&sizes), strides, ..*self }
    }
}

fn padded(strides: &[usize]) -> [usize; MAX_AXES] {
    let mut all = [0; MAX_AXES];
    all[..strides.len()].copy_from_slice(strides);
    all
}

/// The stride of `count` indices, every `step`-th. With one index the stride is never used, and the product may overflow.
fn step_stride(count: usize, stride: usize, step: usize) -> usize {
    if count > 1 { stride * step } else { stride }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(sizes: &[usize]) -> View {
        View::whole(0, DType::F32, Shape::new(sizes).unwrap())
    }

    proptest! {
        #[test]
        fn reshaped_views_have_the_same_offsets(
            order in Just([0, 1, 2]).prop_shuffle(), cut in 0usize..3, split: [bool; 3],
        ) {
            let view = whole(&[4, 6, 2]).permuted(&order);
            let count = view.sizes[cut] / 2;
            let view = view.sliced(cut, 1, count, 1);
            // Every axis whole or split, then one pair of neighbours merged.
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
                if let Some(reshaped) = view.reshaped(Shape::new(&joined).unwrap()) {
                    prop_assert!(reshaped.places().eq(view.places()));
                }
            }
        }
    }

    #[test]
    fn rows_of_a_column_slice_coalesce_without_a_copy() {
        let view = whole(&[5, 7, 8]).sliced(2, 2, 3, 1);
        let rows = view.reshaped(Shape::new(&[35, 3]).unwrap()).unwrap();
        assert_eq!((rows.offset, rows.strides()), (2, &[8, 1][..]));
        assert!(view.reshaped(Shape::new(&[5, 21]).unwrap()).is_none());
    }
}
