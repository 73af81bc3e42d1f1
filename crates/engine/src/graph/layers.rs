//! Layers made of other operations: activations with a parameter, convolution, pooling, losses.
//!
//! None of them is a node of its own: the planner fuses their operations, and their gradients follow from these.

use super::{Graph, GraphError, Id, Window, tensor_methods};
use crate::dtype::DType;
use crate::ops::Reduction;

/// A convolution along the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    /// Distance between two positions of the kernel.
    pub stride: usize,
    /// Distance between two elements of the kernel.
    pub dilation: usize,
    /// Zeros before the first element.
    pub before: usize,
    /// Zeros after the last element.
    pub after: usize,
}

impl Default for Conv1d {
    fn default() -> Conv1d {
        Conv1d { stride: 1, dilation: 1, before: 0, after: 0 }
    }
}

impl Graph {
    /// `x` above zero, `slope * x` below.
    pub fn leaky_relu(&mut self, x: Id, slope: f64) -> Result<Id, GraphError> {
        self.known("leaky_relu", &[x])?;
        if !self.dtype(x).is_float() {
            return self.type_error(
                "leaky_relu",
                &[x],
                "needs floating-point numbers; cast the operand first",
            );
        }
        let zero = self.zeros_like(x)?;
        let above = self.greater(x, zero)?;
        let below = self.scale(x, slope)?;
        self.select(above, x, below)
    }

    /// `x` above zero, `alpha * (exp(x) - 1)` below.
    pub fn elu(&mut self, x: Id, alpha: f64) -> Result<Id, GraphError> {
        let zero = self.zeros_like(x)?;
        let above = self.greater(x, zero)?;
        // Of a large x the exponential is infinite, and its gradient infinity times zero.
        let negative = self.select(above, zero, x)?;
        let below = self.expm1(negative)?;
        let below = self.scale(below, alpha)?;
        self.select(above, x, below)
    }

    /// The logarithm of the sum of exponentials along an axis, which keeps size 1.
    pub fn log_sum_exp(&mut self, x: Id, axis: usize) -> Result<Id, GraphError> {
        let max = self.reduce(Reduction::Max, x, &[axis])?;
        let shifted = self.sub(x, max)?;
        let exp = self.exp(shifted)?;
        let sum = self.sum(exp, &[axis])?;
        let log = self.log(sum)?;
        self.add(log, max)
    }

    /// The variance along an axis, which keeps size 1, with divisor `size - correction`: 0 for a population, 1 for a sample.
    pub fn variance(&mut self, x: Id, axis: usize, correction: usize) -> Result<Id, GraphError> {
        let mean = self.mean(x, &[axis])?;
        let centred = self.sub(x, mean)?;
        let squares = self.square(centred)?;
        let sum = self.sum(squares, &[axis])?;
        let count = self.constant_like(sum, self.shape(x)[axis] as f64 - correction as f64)?;
        self.div(sum, count)
    }

    /// Convolution of `x`, `[batch, channels, time]`, with `kernel`, `[outputs, channels, size]`, plus `bias`,
    /// `[outputs]`.
    pub fn conv1d(
        &mut self,
        x: Id,
        kernel: Id,
        bias: Option<Id>,
        settings: Conv1d,
    ) -> Result<Id, GraphError> {
        self.known("conv1d", &[x, kernel])?;
        let (&[_, channels, _], &[outputs, inputs, size]) = (&*self.shape(x), &*self.shape(kernel)) else {
            return self.error(
                "conv1d",
                &[x, kernel],
                "needs [batch, channels, time] and [outputs, channels, size]",
            );
        };
        if channels != inputs {
            return self.error(
                "conv1d",
                &[x, kernel],
                format!("the input has {channels} channels, but the kernel {inputs}"),
            );
        }
        let Conv1d { stride, dilation, before, after } = settings;
        let padded = self.pad(x, 2, before, after)?;
        let count = Window { size, stride, dilation }.count(self.shape(padded)[2]);
        if size == 0 || stride == 0 || dilation == 0 || count == 0 {
            let problem = format!("a kernel of size {size} with {settings:?} does not fit the time axis");
            return self.error("conv1d", &[x, kernel], problem);
        }
        // One product for each element of the kernel, with a slice of the input: no window is copied.
        let mut sum = None;
        for element in 0..size {
            let matrix = self.slice(kernel, 2, element, element + 1)?;
            let matrix = self.reshape(matrix, &[outputs, channels])?;
            let shifted = self.slice_by(padded, 2, element * dilation, count, stride)?;
            let product = self.matmul(matrix, shifted)?;
            sum = Some(match sum {
                Some(sum) => self.add(sum, product)?,
                None => product,
            });
        }
        let sum = sum.expect("the kernel is not empty");
        match bias {
            Some(bias) => {
                self.known("conv1d", &[bias])?;
                let column = self.reshape(bias, &[outputs, 1])?;
                self.add(sum, column)
            }
            None => Ok(sum),
        }
    }

    /// The largest element of windows of the last axis. The remainder after the last whole window is a window as well.
    pub fn max_pool1d(&mut self, x: Id, window: Window) -> Result<Id, GraphError> {
        self.known("max_pool1d", &[x])?;
        // Refuses windows that do not fit.
        self.unfold(x, window)?;
        let length = self.shape(x).last().copied().unwrap_or(0);
        let count = window.count(length);
        let covered = (count.max(1) - 1) * window.stride + (window.size - 1) * window.dilation + 1;
        let mut padded = x;
        if length > covered && count * window.stride < length {
            let axis = self.shape(x).axes() - 1;
            let least = self.constant(self.dtype(x), f64::NEG_INFINITY);
            let missing =
                self.expand(least, &self.shape(x).with(axis, window.stride - (length - covered)))?;
            padded = self.concat(&[x, missing], axis)?;
        }
        self.pool(padded, window, |g, windows, axis| g.reduce(Reduction::Max, windows, &[axis]))
    }

    /// The mean of windows of the last axis.
    pub fn avg_pool1d(&mut self, x: Id, window: Window) -> Result<Id, GraphError> {
        self.pool(x, window, |g, windows, axis| g.mean(windows, &[axis]))
    }

    fn pool(
        &mut self,
        x: Id,
        window: Window,
        reduce: impl Fn(&mut Graph, Id, usize) -> Result<Id, GraphError>,
    ) -> Result<Id, GraphError> {
        let windows = self.unfold(x, window)?;
        let axis = self.shape(windows).axes() - 1;
        let pooled = reduce(self, windows, axis)?;
        let shape = self.shape(pooled);
        self.reshape(pooled, &shape[..axis])
    }

    /// Linear interpolation of the last axis to another length. Elements are at the centres of equal parts of the axis; before
    /// the first and after the last centre the value is constant.
    pub fn interpolate_linear(&mut self, x: Id, length: usize) -> Result<Id, GraphError> {
        self.known("interpolate_linear", &[x])?;
        if !self.dtype(x).is_float() {
            return self.type_error(
                "interpolate_linear",
                &[x],
                "needs floating-point numbers; cast the operand first",
            );
        }
        let shape = self.shape(x);
        let Some(&size) = shape.last().filter(|&&size| size > 0 && length > 0) else {
            return self.error(
                "interpolate_linear",
                &[x],
                format!("cannot be interpolated to length {length}"),
            );
        };
        let axis = shape.axes() - 1;
        let (mut left, mut right, mut share) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..length {
            let at = ((i as f64 + 0.5) * size as f64 / length as f64 - 0.5).clamp(0.0, (size - 1) as f64);
            left.push(at.floor());
            right.push((at.floor() + 1.0).min((size - 1) as f64));
            share.push(at - at.floor());
        }
        let left = self.data(DType::I32, &[length], &left)?;
        let right = self.data(DType::I32, &[length], &right)?;
        let share = self.data(self.dtype(x), &[length], &share)?;
        let (left, right) = (self.gather(x, left, axis)?, self.gather(x, right, axis)?);
        let rise = self.sub(right, left)?;
        let rise = self.mul(rise, share)?;
        self.add(left, rise)
    }

    /// Mean squared error, a scalar.
    pub fn mse(&mut self, prediction: Id, target: Id) -> Result<Id, GraphError> {
        let difference = self.sub(prediction, target)?;
        let squares = self.square(difference)?;
        self.mean_all(squares)
    }

    /// Mean absolute error, a scalar.
    pub fn mae(&mut self, prediction: Id, target: Id) -> Result<Id, GraphError> {
        let difference = self.sub(prediction, target)?;
        let sizes = self.abs(difference)?;
        self.mean_all(sizes)
    }

    /// Mean Huber loss, a scalar: `d^2 / 2` for differences up to `delta`, linear beyond.
    pub fn huber(&mut self, prediction: Id, target: Id, delta: f64) -> Result<Id, GraphError> {
        let difference = self.sub(prediction, target)?;
        let size = self.abs(difference)?;
        let squares = self.square(difference)?;
        let near = self.scale(squares, 0.5)?;
        let far = self.offset(size, -0.5 * delta)?;
        let far = self.scale(far, delta)?;
        let limit = self.constant_like(size, delta)?;
        let is_far = self.less(limit, size)?;
        let losses = self.select(is_far, far, near)?;
        self.mean_all(losses)
    }

    /// Mean cross-entropy of the softmax of `logits` `[rows, classes]` with class indices `[rows]` of `i32`, a scalar. For an
    /// index outside the loss is the logarithm of the sum of exponentials.
    pub fn cross_entropy(&mut self, logits: Id, classes: Id) -> Result<Id, GraphError> {
        self.known("cross_entropy", &[logits, classes])?;
        let (&[rows, count], &[targets]) = (&*self.shape(logits), &*self.shape(classes)) else {
            return self.error("cross_entropy", &[logits, classes], "needs [rows, classes] and [rows]");
        };
        if rows != targets || self.dtype(classes) != DType::I32 {
            return self.error("cross_entropy", &[logits, classes], "needs one i32 class index for each row");
        }
        let numbers: Vec<f64> = (0..count).map(|class| class as f64).collect();
        let numbers = self.data(DType::I32, &[1, count], &numbers)?;
        let classes = self.reshape(classes, &[rows, 1])?;
        let hit = self.equal(classes, numbers)?;
        let hit = self.cast(hit, self.dtype(logits))?;
        let zero = self.zeros_like(logits)?;
        let picked = self.select(hit, logits, zero)?;
        let picked = self.sum(picked, &[1])?;
        let all = self.log_sum_exp(logits, 1)?;
        let losses = self.sub(all, picked)?;
        self.mean_all(losses)
    }

    /// Mean cross-entropy of the sigmoid of logits with targets between 0 and 1, a scalar.
    pub fn binary_cross_entropy(&mut self, logits: Id, targets: Id) -> Result<Id, GraphError> {
        let positive = self.softplus(logits)?;
        let product = self.mul(logits, targets)?;
        let losses = self.sub(positive, product)?;
        self.mean_all(losses)
    }
}

tensor_methods! {
    /// `x` above zero, `slope * x` below.
    leaky_relu([], slope: f64);
    /// `x` above zero, `alpha * (exp(x) - 1)` below.
    elu([], alpha: f64);
    /// The logarithm of the sum of exponentials along an axis, which keeps size 1.
    log_sum_exp([], axis: usize);
    /// The variance along an axis, which keeps size 1, with divisor `size - correction`: 0 for a population, 1 for a sample.
    variance([], axis: usize, correction: usize);
    /// The largest element of windows of the last axis. The remainder after the last whole window is a window as well.
    max_pool1d([], window: Window);
    /// The mean of windows of the last axis.
    avg_pool1d([], window: Window);
    /// Linear interpolation of the last axis to another length: see [`Graph::interpolate_linear`].
    interpolate_linear([], length: usize);
    /// Mean squared error, a scalar.
    mse([target]);
    /// Mean absolute error, a scalar.
    mae([target]);
    /// Mean Huber loss, a scalar: `d^2 / 2` for differences up to `delta`, linear beyond.
    huber([target], delta: f64);
    /// Mean cross-entropy of the softmax of logits `[rows, classes]` with class indices `[rows]` of `i32`, a scalar: see
    /// [`Graph::cross_entropy`].
    cross_entropy([classes]);
    /// Mean cross-entropy of the sigmoid of logits with targets between 0 and 1, a scalar.
    binary_cross_entropy([targets]);
}
