//! The builder: one method for each elementary operation. Each works out the shape and type of its result, or says what does
//! not fit. Methods of element-wise operations are generated from their table in `ops`.

use super::{Graph, GraphError, Id, Op, Scalar, Window, tensor_methods};
use crate::dtype::DType;
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

impl Graph {
    /// A tensor that is given when the program runs. The same name is the same input.
    pub fn input(&mut self, name: &str, dtype: DType, sizes: &[usize]) -> Result<Id, GraphError> {
        let shape = Shape::new(sizes)?;
        let known = self.inputs().find(|(known, _)| *known == name).map(|(_, id)| id);
        if let Some(id) = known.filter(|&id| (self.dtype(id), self.shape(id)) != (dtype, shape)) {
            let (name, known) = (name.to_string(), Box::new(self.operand(id)));
            return Err(GraphError::InputExists { name, known, requested: format!("{dtype}{shape}") });
        }
        Ok(self.intern(Op::Input(name.into()), vec![], shape, dtype))
    }

    /// A scalar constant. For an integer type the value is truncated and saturated.
    pub fn constant(&mut self, dtype: DType, value: f64) -> Id {
        let scalar = match dtype {
            DType::F64 => Scalar::Float(value.to_bits()),
            DType::F32 => Scalar::Float(f64::from(value as f32).to_bits()),
            DType::I32 => Scalar::Int(i64::from(value as i32)),
            DType::I64 => Scalar::Int(value as i64),
        };
        self.intern(Op::Constant(scalar), vec![], Shape::SCALAR, dtype)
    }

    /// A constant tensor in row-major order. For an integer type the values are truncated and saturated.
    pub fn data(&mut self, dtype: DType, sizes: &[usize], values: &[f64]) -> Result<Id, GraphError> {
        let shape = Shape::new(sizes)?;
        if values.len() != shape.elements() {
            return self.error("data", &[], format!("{dtype}{shape} cannot hold {} values", values.len()));
        }
        let bits = |&value: &f64| match dtype {
            DType::F64 => value.to_bits(),
            DType::F32 => f64::from(value as f32).to_bits(),
            DType::I32 => i64::from(value as i32) as u64,
            DType::I64 => value as i64 as u64,
        };
        Ok(self.intern(Op::Data(values.iter().map(bits).collect()), vec![], shape, dtype))
    }

    /// A tensor of zeros with the shape and type of another.
    pub fn zeros_like(&mut self, x: Id) -> Result<Id, GraphError> {
        self.constant_like(x, 0.0)
    }

    /// A tensor filled with one value, with the shape and type of another.
    pub fn constant_like(&mut self, x: Id, value: f64) -> Result<Id, GraphError> {
        self.known("constant_like", &[x])?;
        let scalar = self.constant(self.dtype(x), value);
        self.expand(scalar, &self.shape(x))
    }

    /// `x * factor`.
    pub fn scale(&mut self, x: Id, factor: f64) -> Result<Id, GraphError> {
        let factor = self.constant_like(x, factor)?;
        self.mul(x, factor)
    }

    /// `x + amount`.
    pub fn offset(&mut self, x: Id, amount: f64) -> Result<Id, GraphError> {
        let amount = self.constant_like(x, amount)?;
        self.add(x, amount)
    }

    /// `1 - x`.
    pub fn one_minus(&mut self, x: Id) -> Result<Id, GraphError> {
        let one = self.constant_like(x, 1.0)?;
        self.sub(one, x)
    }

    /// 1 if `a > b`, else 0.
    pub fn greater(&mut self, a: Id, b: Id) -> Result<Id, GraphError> {
        self.less(b, a)
    }

    /// 1 if `a >= b`, else 0.
    pub fn greater_equal(&mut self, a: Id, b: Id) -> Result<Id, GraphError> {
        self.less_equal(b, a)
    }

    /// Applies a function to each element.
    pub fn unary(&mut self, op: Unary, x: Id) -> Result<Id, GraphError> {
        let row = op.row();
        self.known(row.name, &[x])?;
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        if !dtype.is_float() && row.integer.is_none() {
            return self.type_error(row.name, &[x], "needs floating-point numbers; cast the operand first");
        }
        Ok(self.intern(Op::Unary(op), vec![x], shape, dtype))
    }

    /// Applies a function to each pair of elements. Shapes broadcast.
    pub fn binary(&mut self, op: Binary, a: Id, b: Id) -> Result<Id, GraphError> {
        let [a, b] = self.broadcast(op.row().name, [a, b])?;
        let (shape, dtype) = (self.shape(a), self.dtype(a));
        Ok(self.intern(Op::Binary(op), vec![a, b], shape, dtype))
    }

    /// `a` where `condition` is not 0, else `b`. Shapes broadcast.
    pub fn select(&mut self, condition: Id, a: Id, b: Id) -> Result<Id, GraphError> {
        let args = self.broadcast("select", [condition, a, b])?;
        let (shape, dtype) = (self.shape(args[1]), self.dtype(args[1]));
        Ok(self.intern(Op::Select, args.to_vec(), shape, dtype))
    }

    /// Operands of one type, broadcast to one shape.
    fn broadcast<const N: usize>(&mut self, name: &str, args: [Id; N]) -> Result<[Id; N], GraphError> {
        self.known(name, &args)?;
        if args.iter().any(|&arg| self.dtype(arg) != self.dtype(args[0])) {
            return self.type_error(name, &args, "the types differ; cast an operand");
        }
        let mut shape = self.shape(args[0]);
        for &arg in &args[1..] {
            let Some(both) = shape.broadcast(&self.shape(arg)) else {
                let operands = args.iter().map(|&arg| self.operand(arg)).collect();
                return Err(GraphError::Broadcast { operation: name.to_string(), operands });
            };
            shape = both;
        }
        let mut expanded = args;
        for arg in &mut expanded {
            *arg = self.expand(*arg, &shape)?;
        }
        Ok(expanded)
    }

    /// Converts to another type.
    pub fn cast(&mut self, x: Id, dtype: DType) -> Result<Id, GraphError> {
        self.known("cast", &[x])?;
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        Ok(self.intern(Op::Cast, vec![x], self.shape(x), dtype))
    }

    /// Broadcasts to a shape.
    pub fn expand(&mut self, x: Id, sizes: &[usize]) -> Result<Id, GraphError> {
        self.known("expand", &[x])?;
        let shape = Shape::new(sizes)?;
        if self.shape(x).broadcast(&shape) != Some(shape) {
            return self.error("expand", &[x], format!("does not broadcast to {shape}"));
        }
        // Missing leading axes have size 1.
        let mut full = vec![1; shape.axes() - self.shape(x).axes()];
        full.extend_from_slice(&self.shape(x));
        let x = self.reshape(x, &full)?;
        if self.shape(x) == shape {
            return Ok(x);
        }
        Ok(self.intern(Op::Expand, vec![x], shape, self.dtype(x)))
    }

    /// The same elements in another shape.
    pub fn reshape(&mut self, x: Id, sizes: &[usize]) -> Result<Id, GraphError> {
        self.known("reshape", &[x])?;
        let shape = Shape::new(sizes)?;
        if shape.elements() != self.shape(x).elements() {
            return self.error("reshape", &[x], format!("{shape} has a different number of elements"));
        }
        if shape == self.shape(x) {
            return Ok(x);
        }
        Ok(self.intern(Op::Reshape, vec![x], shape, self.dtype(x)))
    }

    /// Axes in another order: axis `i` of the result is axis `order[i]` of the operand.
    pub fn permute(&mut self, x: Id, order: &[usize]) -> Result<Id, GraphError> {
        self.known("permute", &[x])?;
        let shape = self.shape(x);
        let mut seen = vec![false; shape.axes()];
        let valid = order.len() == shape.axes()
            && order.iter().all(|&axis| axis < seen.len() && !std::mem::replace(&mut seen[axis], true));
        if !valid {
            return self.error("permute", &[x], format!("{order:?} does not name every axis once"));
        }
        if order.is_sorted() {
            return Ok(x);
        }
        let sizes: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        Ok(self.intern(Op::Permute(order.to_vec()), vec![x], Shape::from_checked(&sizes), self.dtype(x)))
    }

    /// Swaps the last two axes.
    pub fn transpose(&mut self, x: Id) -> Result<Id, GraphError> {
        self.known("transpose", &[x])?;
        let axes = self.shape(x).axes();
        if axes < 2 {
            return self.error("transpose", &[x], "has fewer than two axes");
        }
        let mut order: Vec<usize> = (0..axes).collect();
        order.swap(axes - 2, axes - 1);
        self.permute(x, &order)
    }

    /// The indices `begin..end` of an axis.
    pub fn slice(&mut self, x: Id, axis: usize, begin: usize, end: usize) -> Result<Id, GraphError> {
        self.known("slice", &[x])?;
        self.slice_by(x, axis, begin, end.saturating_sub(begin), 1)
    }

    /// `count` indices of an axis starting at `begin`, every `step`-th.
    pub fn slice_by(
        &mut self,
        x: Id,
        axis: usize,
        begin: usize,
        count: usize,
        step: usize,
    ) -> Result<Id, GraphError> {
        let size = self.axis_size("slice", x, axis)?;
        let last = (count.max(1) - 1).checked_mul(step).and_then(|span| span.checked_add(begin));
        if step == 0 || begin > size || last.is_none_or(|last| count > 0 && last >= size) {
            let problem = format!(
                "axis {axis} has size {size}, but {count} indices starting at {begin} with step {step} were asked for"
            );
            return self.error("slice", &[x], problem);
        }
        // Unused parameters have one value, so that equal slices are one node.
        let (begin, step) = (if count > 0 { begin } else { 0 }, if count > 1 { step } else { 1 });
        if count == size && step == 1 {
            return Ok(x);
        }
        let shape = self.shape(x).with(axis, count);
        Ok(self.intern(Op::Slice { axis, begin, step }, vec![x], shape, self.dtype(x)))
    }

    /// Adds zeros before and after an axis.
    pub fn pad(&mut self, x: Id, axis: usize, before: usize, after: usize) -> Result<Id, GraphError> {
        let size = self.axis_size("pad", x, axis)?;
        if before == 0 && after == 0 {
            return Ok(x);
        }
        let size = size.saturating_add(before).saturating_add(after);
        let shape = Shape::new(&self.shape(x).with(axis, size))?;
        Ok(self.intern(Op::Pad { axis, before, after }, vec![x], shape, self.dtype(x)))
    }

    /// Concatenates tensors along an axis.
    pub fn concat(&mut self, parts: &[Id], axis: usize) -> Result<Id, GraphError> {
        self.known("concat", parts)?;
        let Some(&first) = parts.first() else {
            return self.error("concat", &[], "needs at least one operand");
        };
        self.axis_size("concat", first, axis)?;
        let mut size = 0usize;
        for &part in parts {
            let fits = self.dtype(part) == self.dtype(first)
                && self.shape(part).axes() == self.shape(first).axes()
                && self.shape(part).with(axis, 0) == self.shape(first).with(axis, 0);
            if !fits {
                return self.error(
                    "concat",
                    parts,
                    format!("types, or sizes other than that of axis {axis}, differ"),
                );
            }
            size = size.saturating_add(self.shape(part)[axis]);
        }
        if parts.len() == 1 {
            return Ok(first);
        }
        let shape = Shape::new(&self.shape(first).with(axis, size))?;
        Ok(self.intern(Op::Concat(axis), parts.to_vec(), shape, self.dtype(first)))
    }

    /// The slices of `x` at `indices` of an axis, a vector of `i32`. Indices outside give zeros.
    pub fn gather(&mut self, x: Id, indices: Id, axis: usize) -> Result<Id, GraphError> {
        self.axis_size("gather", x, axis)?;
        self.check_indices("gather", x, indices)?;
        let shape = Shape::new(&self.shape(x).with(axis, self.shape(indices)[0]))?;
        Ok(self.intern(Op::Gather(axis), vec![x, indices], shape, self.dtype(x)))
    }

    /// Adds the slices of `x` along an axis at `indices` to zeros whose axis has `size`.
    pub fn scatter_add(&mut self, x: Id, indices: Id, axis: usize, size: usize) -> Result<Id, GraphError> {
        let count = self.axis_size("scatter_add", x, axis)?;
        self.check_indices("scatter_add", x, indices)?;
        if self.shape(indices)[0] != count {
            return self.error(
                "scatter_add",
                &[x, indices],
                format!("needs {count} indices, one for each slice of axis {axis}"),
            );
        }
        let shape = Shape::new(&self.shape(x).with(axis, size))?;
        Ok(self.intern(Op::ScatterAdd { axis, size }, vec![x, indices], shape, self.dtype(x)))
    }

    fn check_indices(&self, name: &str, x: Id, indices: Id) -> Result<(), GraphError> {
        self.known(name, &[indices])?;
        if self.dtype(indices) == DType::I32 && self.shape(indices).axes() == 1 {
            return Ok(());
        }
        self.type_error(name, &[x, indices], "indices must be a vector of i32")
    }

    /// Windows of the last axis: `[.., n]` becomes `[.., windows, size]`.
    pub fn unfold(&mut self, x: Id, window: Window) -> Result<Id, GraphError> {
        self.known("unfold", &[x])?;
        let shape = self.shape(x);
        let length = shape.last().copied().unwrap_or(0);
        let count = window.count(length);
        if window.size == 0 || window.stride == 0 || window.dilation == 0 || count == 0 {
            return self.error("unfold", &[x], format!("{window:?} does not fit the last axis"));
        }
        let mut sizes = shape.to_vec();
        sizes.pop();
        sizes.extend([count, window.size]);
        Ok(self.intern(Op::Unfold(window), vec![x], Shape::new(&sizes)?, self.dtype(x)))
    }

    /// Adds windows `[.., windows, size]` where [`Graph::unfold`] takes them from an axis of `length`.
    pub fn fold(&mut self, x: Id, window: Window, length: usize) -> Result<Id, GraphError> {
        self.known("fold", &[x])?;
        let shape = self.shape(x);
        let fits = shape.axes() >= 2 && shape[shape.axes() - 2..] == [window.count(length), window.size];
        if !fits || window.stride == 0 || window.dilation == 0 {
            return self.error("fold", &[x], format!("is not the {window:?} of an axis of size {length}"));
        }
        let mut sizes = shape[..shape.axes() - 2].to_vec();
        sizes.push(length);
        Ok(self.intern(Op::Fold(window, length), vec![x], Shape::new(&sizes)?, self.dtype(x)))
    }

    /// Cumulative sums along the last axis, or from its end if `reverse`.
    pub fn cumsum(&mut self, x: Id, reverse: bool) -> Result<Id, GraphError> {
        self.known("cumsum", &[x])?;
        if self.shape(x).axes() == 0 {
            return self.error("cumsum", &[x], "a scalar has no axis");
        }
        Ok(self.intern(Op::CumSum { reverse }, vec![x], self.shape(x), self.dtype(x)))
    }

    /// Reduces axes, which keep size 1.
    pub fn reduce(&mut self, op: Reduction, x: Id, axes: &[usize]) -> Result<Id, GraphError> {
        self.known(op.name(), &[x])?;
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        axes.dedup();
        let mut shape = self.shape(x);
        for &axis in &axes {
            self.axis_size(op.name(), x, axis)?;
            shape = shape.with(axis, 1);
        }
        if axes.is_empty() {
            return Ok(x);
        }
        Ok(self.intern(Op::Reduce(op, axes), vec![x], shape, self.dtype(x)))
    }

    /// The sum over axes, which keep size 1.
    pub fn sum(&mut self, x: Id, axes: &[usize]) -> Result<Id, GraphError> {
        self.reduce(Reduction::Sum, x, axes)
    }

    /// The sum of all elements, a scalar.
    pub fn sum_all(&mut self, x: Id) -> Result<Id, GraphError> {
        self.known("sum", &[x])?;
        let axes: Vec<usize> = (0..self.shape(x).axes()).collect();
        let sum = self.sum(x, &axes)?;
        self.reshape(sum, &[])
    }

    /// The mean over axes, which keep size 1; NaN for no elements.
    pub fn mean(&mut self, x: Id, axes: &[usize]) -> Result<Id, GraphError> {
        let sum = self.sum(x, axes)?;
        if !self.dtype(x).is_float() {
            return self.type_error("mean", &[x], "needs floating-point numbers; cast the operand first");
        }
        let count = self.shape(x).elements() as f64 / self.shape(sum).elements().max(1) as f64;
        let count = self.constant_like(sum, count)?;
        self.div(sum, count)
    }

    /// The mean of all elements, a scalar.
    pub fn mean_all(&mut self, x: Id) -> Result<Id, GraphError> {
        self.known("mean", &[x])?;
        let axes: Vec<usize> = (0..self.shape(x).axes()).collect();
        let mean = self.mean(x, &axes)?;
        self.reshape(mean, &[])
    }

    /// The index (`i32`) of the largest element along an axis, which keeps size 1; the first of equal ones.
    pub fn arg_max(&mut self, x: Id, axis: usize) -> Result<Id, GraphError> {
        self.arg_reduce(x, axis, true)
    }

    /// The index (`i32`) of the smallest element along an axis, which keeps size 1; the first of equal ones.
    pub fn arg_min(&mut self, x: Id, axis: usize) -> Result<Id, GraphError> {
        self.arg_reduce(x, axis, false)
    }

    fn arg_reduce(&mut self, x: Id, axis: usize, largest: bool) -> Result<Id, GraphError> {
        let size = self.axis_size("arg_reduce", x, axis)?;
        if size == 0 || size > i32::MAX as usize {
            return self.error(
                "arg_reduce",
                &[x],
                format!("axis {axis} is empty, or too large for an i32 index"),
            );
        }
        let shape = self.shape(x).with(axis, 1);
        Ok(self.intern(Op::ArgReduce { largest, axis }, vec![x], shape, DType::I32))
    }

    /// The matrix product of the last two axes: `[.., m, k]` times `[.., k, n]`. The axes before broadcast.
    pub fn matmul(&mut self, a: Id, b: Id) -> Result<Id, GraphError> {
        self.known("matmul", &[a, b])?;
        let (left, right) = (self.shape(a), self.shape(b));
        if self.dtype(a) != self.dtype(b) || !self.dtype(a).is_float() {
            return self.type_error("matmul", &[a, b], "needs two operands of one floating-point type");
        }
        if left.axes() < 2 || right.axes() < 2 || left[left.axes() - 1] != right[right.axes() - 2] {
            return self.error("matmul", &[a, b], "needs [.., m, k] and [.., k, n]");
        }
        if left.axes() > 2 && right.axes() == 2 {
            // One matrix for the whole batch: one product with many rows.
            let (rows, k) = (left[..left.axes() - 1].iter().product(), left[left.axes() - 1]);
            let flat = self.reshape(a, &[rows, k])?;
            let product = self.matmul(flat, b)?;
            return self.reshape(product, &left.with(left.axes() - 1, right[1]));
        }
        let (left_batch, left_matrix) = left.split_at(left.axes() - 2);
        let (right_batch, right_matrix) = right.split_at(right.axes() - 2);
        let (left_shape, right_shape) = (Shape::from_checked(left_batch), Shape::from_checked(right_batch));
        let Some(batch) = left_shape.broadcast(&right_shape) else {
            return self.error("matmul", &[a, b], "the batches do not broadcast");
        };
        let sizes = |rows: usize, columns: usize| [&batch[..], &[rows, columns]].concat();
        let (m, k, n) = (left_matrix[0], left_matrix[1], right_matrix[1]);
        let args = vec![self.expand(a, &sizes(m, k))?, self.expand(b, &sizes(k, n))?];
        Ok(self.intern(Op::MatMul, args, Shape::new(&sizes(m, n))?, self.dtype(a)))
    }

    /// The size of an axis that must exist.
    pub(crate) fn axis_size(&self, name: &str, x: Id, axis: usize) -> Result<usize, GraphError> {
        self.known(name, &[x])?;
        match self.shape(x).get(axis) {
            Some(&size) => Ok(size),
            None => Err(GraphError::Axis {
                operation: name.to_string(),
                operand: Box::new(self.operand(x)),
                axis,
            }),
        }
    }

    /// Builds the node of an operation on operands. `shape` and `dtype` are those of the result where the operands do not
    /// determine them.
    pub(crate) fn rebuild(
        &mut self,
        op: &Op,
        args: &[Id],
        shape: Shape,
        dtype: DType,
    ) -> Result<Id, GraphError> {
        match (op, args) {
            (Op::Input(name), []) => self.input(name, dtype, &shape),
            (Op::Constant(_) | Op::Data(_), []) => Ok(self.intern(op.clone(), vec![], shape, dtype)),
            (Op::Unary(op), &[x]) => self.unary(*op, x),
            (Op::Binary(op), &[a, b]) => self.binary(*op, a, b),
            (Op::Select, &[condition, a, b]) => self.select(condition, a, b),
            (Op::Cast, &[x]) => self.cast(x, dtype),
            (Op::Reduce(op, axes), &[x]) => self.reduce(*op, x, axes),
            (Op::ArgReduce { largest, axis }, &[x]) => self.arg_reduce(x, *axis, *largest),
            (Op::Reshape, &[x]) => self.reshape(x, &shape),
            (Op::Expand, &[x]) => self.expand(x, &shape),
            (Op::Permute(order), &[x]) => self.permute(x, order),
            (&Op::Slice { axis, begin, step }, &[x]) => self.slice_by(x, axis, begin, shape[axis], step),
            (&Op::Pad { axis, before, after }, &[x]) => self.pad(x, axis, before, after),
            (Op::Concat(axis), parts) => self.concat(parts, *axis),
            (Op::Gather(axis), &[x, indices]) => self.gather(x, indices, *axis),
            (&Op::ScatterAdd { axis, size }, &[x, indices]) => self.scatter_add(x, indices, axis, size),
            (Op::Unfold(window), &[x]) => self.unfold(x, *window),
            (Op::Fold(window, length), &[x]) => self.fold(x, *window, *length),
            (Op::CumSum { reverse }, &[x]) => self.cumsum(x, *reverse),
            (Op::MatMul, &[a, b]) => self.matmul(a, b),
            _ => match op.composite() {
                Some(composite) => composite.build(self, args),
                None => self.error(&op.to_string(), args, "has a wrong number of operands"),
            },
        }
    }
}

tensor_methods! {
    /// A tensor of zeros with the same shape and type.
    zeros_like([]);
    /// A tensor filled with one value, with the same shape and type.
    constant_like([], value: f64);
    /// `x * factor`. For an integer type the factor is truncated and saturated.
    scale([], factor: f64);
    /// `x + amount`. For an integer type the amount is truncated and saturated.
    offset([], amount: f64);
    /// `1 - x`.
    one_minus([]);
    /// Converts to another type.
    cast([], dtype: DType);
    /// Broadcasts to a shape.
    expand([], sizes: &[usize]);
    /// The same elements in another shape.
    reshape([], sizes: &[usize]);
    /// Axes in another order: axis `i` of the result is axis `order[i]` of the operand.
    permute([], order: &[usize]);
    /// Swaps the last two axes.
    transpose([]);
    /// The indices `begin..end` of an axis.
    slice([], axis: usize, begin: usize, end: usize);
    /// `count` indices of an axis starting at `begin`, every `step`-th.
    slice_by([], axis: usize, begin: usize, count: usize, step: usize);
    /// Adds zeros before and after an axis.
    pad([], axis: usize, before: usize, after: usize);
    /// The slices at `indices` of an axis, a vector of `i32`. Indices outside give zeros.
    gather([indices], axis: usize);
    /// Adds the slices along an axis at `indices` to zeros whose axis has `size`.
    scatter_add([indices], axis: usize, size: usize);
    /// Windows of the last axis: `[.., n]` becomes `[.., windows, size]`.
    unfold([], window: Window);
    /// Adds windows `[.., windows, size]` where [`Tensor::unfold`](super::Tensor::unfold) takes them from an axis of `length`.
    fold([], window: Window, length: usize);
    /// Cumulative sums along the last axis, or from its end if `reverse`.
    cumsum([], reverse: bool);
    /// The sum over axes, which keep size 1.
    sum([], axes: &[usize]);
    /// The sum of all elements, a scalar.
    sum_all([]);
    /// The mean over axes, which keep size 1; NaN for no elements.
    mean([], axes: &[usize]);
    /// The mean of all elements, a scalar.
    mean_all([]);
    /// The index (`i32`) of the largest element along an axis, which keeps size 1; the first of equal ones.
    arg_max([], axis: usize);
    /// The index (`i32`) of the smallest element along an axis, which keeps size 1; the first of equal ones.
    arg_min([], axis: usize);
    /// The matrix product of the last two axes: `[.., m, k]` times `[.., k, n]`. The axes before broadcast.
    matmul([other]);
}
