//! The parameters of a model: all tensors in one contiguous arena, and their gradients at the same offsets in a second one. An
//! optimiser step is then one pass over two slices, and a checkpoint is a list of names and ranges.

use std::ops::Range;

/// A named tensor in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name, unique among the parameters, such as `update.0`.
    pub name: String,
    /// Extent of each dimension, outermost first; empty for a single number.
    pub shape: Vec<usize>,
    /// The range of its elements, row-major, in [`Params::values`] and [`Params::grads`].
    pub range: Range<usize>,
}

/// All parameters of a model and their gradients.
///
/// ```
/// use gatework_train::params::Params;
///
/// let mut params = Params::new();
/// let weights = params.add("weights", &[2, 3], |i| i as f32);
/// let bias = params.add("bias", &[2], |_| 0.5);
/// params.grads[bias.clone()].fill(1.0);
///
/// assert_eq!((weights, bias), (0..6, 6..8));
/// assert_eq!(params.values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 0.5]);
/// assert_eq!(params.get("bias").map(|tensor| tensor.range.clone()), Some(6..8));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// The elements of all tensors, one tensor after another. Their number must not change.
    pub values: Vec<f32>,
    /// The gradient of each element. Their number must not change.
    pub grads: Vec<f32>,
    tensors: Vec<Tensor>,
}

impl Params {
    /// Creates an empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a tensor whose element `i`, counted row-major, is `init(i)`, and returns its range. Its gradient is zero.
    ///
    /// # Panics
    /// If there is a tensor of that name, or if the shape has more elements than a `usize` can count.
    pub fn add(&mut self, name: &str, shape: &[usize], init: impl FnMut(usize) -> f32) -> Range<usize> {
        assert!(self.get(name).is_none(), "there is a parameter tensor `{name}` already");
        let count = shape.iter().try_fold(1, |count: usize, &extent| count.checked_mul(extent));
        let Some(count) = count else { panic!("parameter tensor `{name}` of shape {shape:?} is too large") };
        let start = self.values.len();
        self.values.extend((0..count).map(init));
        self.grads.resize(self.values.len(), 0.0);
        let range = start..self.values.len();
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), range: range.clone() });
        range
    }

    /// Returns the tensors, in the order in which they were added.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Sets every gradient to zero.
    pub fn zero_grads(&mut self) {
        self.grads.fill(0.0);
    }

    /// Returns the number of elements of all tensors.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_contiguous() {
        let mut params = Params::new();
        let slice = [7.0, 8.0];
        let ranges = [
            params.add("scalar", &[], |_| 3.0),
            params.add("none", &[4, 0], |_| 9.0),
            params.add("pair", &[2], |i| slice[i]),
        ];
        assert_eq!(ranges, [0..1, 1..1, 1..3]);
        assert_eq!(params.values, [3.0, 7.0, 8.0]);
        assert_eq!(params.grads, [0.0; 3]);
        assert_eq!(params.len(), 3);
        let names: Vec<_> = params.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["scalar", "none", "pair"]);
    }

    #[test]
    fn a_tensor_is_found_by_its_name() {
        let mut params = Params::new();
        params.add("a", &[2, 2], |_| 0.0);
        let wanted = Tensor { name: "a".to_owned(), shape: vec![2, 2], range: 0..4 };
        assert_eq!(params.get("a"), Some(&wanted));
        assert_eq!(params.get("b"), None);
    }

    #[test]
    fn zero_grads_leaves_the_values() {
        let mut params = Params::new();
        params.add("a", &[3], |i| i as f32);
        params.grads.fill(5.0);
        params.zero_grads();
        assert_eq!(params.grads, [0.0; 3]);
        assert_eq!(params.values, [0.0, 1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "there is a parameter tensor `a` already")]
    fn a_name_is_used_once() {
        let mut params = Params::new();
        params.add("a", &[1], |_| 0.0);
        params.add("a", &[1], |_| 0.0);
    }
}
