//! Shapes: the sizes of the axes of a tensor, at most [`MAX_AXES`].

use std::fmt;
use std::ops::Deref;

/// Largest number of axes of a tensor.
pub const MAX_AXES: usize = 6;

/// Largest number of elements of a tensor.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// The sizes of the axes of a tensor. A scalar has no axes.
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
    /// 0 after the last axis.
    sizes: [usize; MAX_AXES],
}

/// Sizes that are not a valid shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Too many axes.
    #[error("{0} axes are too many: at most {MAX_AXES} are supported")]
    Axes(usize),
    /// Too many elements.
    #[error("{0:?} has too many elements: at most 2^40 are supported")]
    Elements(Vec<usize>),
}

impl Shape {
    /// The shape of a scalar.
    pub const SCALAR: Shape = Shape { axes: 0, sizes: [0; MAX_AXES] };

    /// Creates a shape, if the sizes are within the limits.
    pub fn new(sizes: &[usize]) -> Result<Shape, ShapeError> {
        if sizes.len() > MAX_AXES {
            return Err(ShapeError::Axes(sizes.len()));
        }
        let elements = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        // Strides can overflow even if another size is 0.
        let strides = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size.max(1)));
        if elements.zip(strides).is_none_or(|(_, strides)| strides > MAX_ELEMENTS) {
            return Err(ShapeError::Elements(sizes.to_vec()));
        }
        Ok(Shape::from_checked(sizes))
    }

    /// Creates a shape from sizes that are known to be within the limits.
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

    /// The strides of a contiguous tensor in row-major order.
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

    /// The shape that two shapes broadcast to: axes are aligned at the last one, and a size of 1 matches any other.
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
    fn shapes_beyond_the_limits_are_refused() {
        assert_eq!(Shape::new(&[1; 7]), Err(ShapeError::Axes(7)));
        assert!(Shape::new(&[usize::MAX, 2]).is_err());
        assert!(Shape::new(&[0, usize::MAX, usize::MAX]).is_err());
        assert_eq!(shape(&[5, 0, 2]).elements(), 0);
        assert_eq!(shape(&[5, 3, 2]).strides(), [6, 2, 1]);
    }
}
