//! Shapes: the sizes of a tensor's axes, at most [`MAX_AXES`] of them.

use std::fmt;
use std::ops::Deref;

/// Axes of a tensor at most.
pub const MAX_AXES: usize = 6;

/// Elements of a tensor at most.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// The sizes of a tensor's axes. A scalar has none.
///
/// ```
/// use gatework_engine::Shape;
///
/// let shape = Shape::new(&[32, 168])?;
/// assert_eq!((shape.axes(), shape.elements(), shape.to_string()), (2, 5376, "[32, 168]".into()));
/// # Ok::<(), gatework_engine::ShapeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    axes: u8,
    /// Sizes behind the last axis are 0.
    sizes: [usize; MAX_AXES],
}

/// Sizes that are no shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Too many axes.
    #[error("{0} axes are more than {MAX_AXES}")]
    Axes(usize),
    /// Too many elements.
    #[error("{0:?} has more than 2^40 elements")]
    Elements(Vec<usize>),
}

impl Shape {
    /// The shape of a single number.
    pub const SCALAR: Shape = Shape { axes: 0, sizes: [0; MAX_AXES] };

    /// A shape with these sizes.
    pub fn new(sizes: &[usize]) -> Result<Shape, ShapeError> {
        if sizes.len() > MAX_AXES {
            return Err(ShapeError::Axes(sizes.len()));
        }
        let elements = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        // With a zero among the sizes the others could still overflow a stride.
        let strides = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size.max(1)));
        if elements.zip(strides).is_none_or(|(_, strides)| strides > MAX_ELEMENTS) {
            return Err(ShapeError::Elements(sizes.to_vec()));
        }
        Ok(Shape::from_checked(sizes))
    }

    /// A shape from sizes that come from other shapes and are not larger than they are together.
    pub(crate) fn from_checked(sizes: &[usize]) -> Shape {
        let mut shape = Shape { axes: sizes.len() as u8, sizes: [0; MAX_AXES] };
        shape.sizes[..sizes.len()].copy_from_slice(sizes);
        shape
    }

    /// Number of axes.
    pub fn axes(&self) -> usize {
        usize::from(self.axes)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// Elements from one index of an axis to the next, axis by axis, in row-major order.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.axes()];
        for axis in (1..self.axes()).rev() {
            strides[axis - 1] = strides[axis] * self[axis];
        }
        strides
    }

    /// The shape with another size of one axis.
    #[must_use]
    pub fn with(mut self, axis: usize, size: usize) -> Shape {
        self.sizes[..usize::from(self.axes)][axis] = size;
        self
    }

    /// The shape that two shapes broadcast to: axes are matched from the last, and a size of 1 fits any other.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let axes = self.axes().max(other.axes());
        let size = |shape: &Shape, axis: usize| match (axis + shape.axes()).checked_sub(axes) {
            Some(axis) => shape[axis],
            None => 1,
        };
        let mut sizes = [0; MAX_AXES];
        for (axis, both) in sizes.iter_mut().enumerate().take(axes) {
            *both = match (size(self, axis), size(other, axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Shape::new(&sizes[..axes]).ok()
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes[..usize::from(self.axes)]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[usize]) -> Shape {
        Shape::new(sizes).unwrap()
    }

    #[test]
    fn shapes_broadcast_from_their_last_axis() {
        for (a, b, both) in [
            (&[3, 4][..], &[4][..], Some(&[3, 4][..])),
            (&[3, 1], &[1, 5], Some(&[3, 5])),
            (&[], &[2, 2], Some(&[2, 2])),
            (&[0], &[1], Some(&[0])),
            (&[3], &[4], None),
            (&[2, 3], &[2], None),
        ] {
            assert_eq!(shape(a).broadcast(&shape(b)), both.map(shape), "{a:?} {b:?}");
            assert_eq!(shape(b).broadcast(&shape(a)), both.map(shape), "{b:?} {a:?}");
        }
    }

    #[test]
    fn absurd_shapes_are_refused() {
        assert_eq!(Shape::new(&[1; 7]), Err(ShapeError::Axes(7)));
        assert!(Shape::new(&[usize::MAX, 2]).is_err());
        assert!(Shape::new(&[0, usize::MAX, usize::MAX]).is_err());
        assert_eq!(shape(&[5, 0, 2]).elements(), 0);
        assert_eq!(shape(&[5, 3, 2]).strides(), [6, 2, 1]);
    }
}
