//! Reverse-mode differentiation, from graph to graph.
//!
//! The nodes are visited in reverse order; each passes the gradient of its result on to its operands by the rule of its
//! operation, and gradients that arrive at one node are added. The gradients are ordinary nodes: they are interned, rewritten
//! and planned together with the rest of the graph.

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op};
use crate::ops::{BinaryGradient, Reduction, UnaryGradient};

impl Graph {
    /// The gradients of a scalar with respect to some nodes, as new nodes of the same graph.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input("x", DType::F64, &[3])?;
    /// let squares = g.square(x)?;
    /// let loss = g.sum_all(squares)?;
    /// let dx = g.gradients(loss, &[x])?[0]; // 2 x
    /// assert_eq!(g.shape(dx), g.shape(x));
    /// # Ok::<(), gatework_engine::GraphError>(())
    /// ```
    pub fn gradients(&mut self, loss: Id, of: &[Id]) -> Result<Vec<Id>, GraphError> {
        self.known("gradients", &[&[loss], of].concat())?;
        if self.shape(loss).axes() != 0 {
            return self.error("gradients", &[loss], "the loss must be a scalar");
        }
        let one = self.constant(self.dtype(loss), 1.0);
        self.pull_back(loss, one, of)
    }

    /// The vector-Jacobian product: gradients of the sum of `y * dy` with respect to some nodes.
    pub fn pull_back(&mut self, y: Id, dy: Id, of: &[Id]) -> Result<Vec<Id>, GraphError> {
        self.known("pull_back", &[&[y, dy], of].concat())?;
        if let Some(&id) = [&[y], of].concat().iter().find(|&&id| !self.dtype(id).is_float()) {
            return self.type_error("gradients", &[id], "integers cannot be differentiated");
        }
        if (self.shape(y), self.dtype(y)) != (self.shape(dy), self.dtype(dy)) {
            return self.error(
                "gradients",
                &[y, dy],
                "the gradient must have the shape and type of the result",
            );
        }
        let mut adjoints: Vec<Option<Id>> = vec![None; y.0 as usize + 1];
        adjoints[y.0 as usize] = Some(dy);
        for index in (0..=y.0).rev() {
            let Some(dy) = adjoints[index as usize] else { continue };
            let args = self.node(Id(index)).args.clone();
            for (arg, part) in args.into_iter().zip(self.rule(Id(index), dy)?) {
                let Some(part) = part.filter(|_| self.dtype(arg).is_float()) else { continue };
                let place = arg.0 as usize;
                adjoints[place] = Some(match adjoints[place] {
                    Some(sum) => self.add(sum, part)?,
                    None => part,
                });
            }
        }
        let found = |id: &Id| adjoints.get(id.0 as usize).copied().flatten();
        of.iter().map(|id| found(id).map_or_else(|| self.zeros_like(*id), Ok)).collect()
    }

    /// Undoes a permutation. The gradient of a slice is mostly padding, which is applied after the permutation, so that it is
    /// written in the order in which it is read.
    fn permute_back(&mut self, dy: Id, order: &[usize]) -> Result<Id, GraphError> {
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        let Node { op: Op::Pad { axis, before, after }, args, .. } = self.node(dy).clone() else {
            return self.permute(dy, &inverse);
        };
        let inside = self.permute(args[0], &inverse)?;
        self.pad(inside, order[axis], before, after)
    }

    /// The gradients of the operands of a node; `None` where they are zero.
    fn rule(&mut self, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let node = self.node(id).clone();
        let arg = |i: usize| node.args[i];
        let shape = |g: &Graph, i: usize| g.shape(node.args[i]);
        Ok(match node.op {
            Op::Input(_) | Op::Constant(_) | Op::Data(_) => vec![],
            Op::Unary(op) => vec![(op.row().gradient)(self, UnaryGradient { x: arg(0), y: id, dy })?],
            Op::Binary(op) => {
                (op.row().gradient)(self, BinaryGradient { a: arg(0), b: arg(1), dy })?.to_vec()
            }
            Op::Select => {
                let zero = self.zeros_like(dy)?;
                let (a, b) = (self.select(arg(0), dy, zero)?, self.select(arg(0), zero, dy)?);
                vec![None, Some(a), Some(b)]
            }
            Op::Cast => {
                let from = self.dtype(arg(0));
                vec![if from.is_float() { Some(self.cast(dy, from)?) } else { None }]
            }
            Op::Reduce(Reduction::Sum, _) => vec![Some(self.expand(dy, &shape(self, 0))?)],
            Op::Reduce(_, ref axes) => {
                // Shared evenly among all elements that equal the result.
                let hits = self.equal(arg(0), id)?;
                let count = self.sum(hits, axes)?;
                let share = self.div(dy, count)?;
                vec![Some(self.mul(hits, share)?)]
            }
            Op::ArgReduce { .. } => vec![None],
            Op::Reshape => vec![Some(self.reshape(dy, &shape(self, 0))?)],
            Op::Expand => {
                let from = shape(self, 0);
                let axes: Vec<usize> =
                    (0..from.axes()).filter(|&axis| from[axis] != node.shape[axis]).collect();
                vec![Some(self.sum(dy, &axes)?)]
            }
            Op::Permute(ref order) => vec![Some(self.permute_back(dy, order)?)],
            Op::Slice { axis, begin, step } => {
                let (size, count) = (shape(self, 0)[axis], node.shape[axis]);
                vec![Some(if step == 1 {
                    self.pad(dy, axis, begin, size - begin - count)?
                } else {
                    let indices: Vec<f64> = (0..count).map(|i| (begin + i * step) as f64).collect();
                    let indices = self.data(DType::I32, &[count], &indices)?;
                    self.scatter_add(dy, indices, axis, size)?
                })]
            }
            Op::Pad { axis, before, .. } => {
                vec![Some(self.slice(dy, axis, before, before + shape(self, 0)[axis])?)]
            }
            Op::Concat(axis) => {
                let mut begin = 0;
                let mut parts = Vec::new();
                for i in 0..node.args.len() {
                    let end = begin + shape(self, i)[axis];
                    parts.push(Some(self.slice(dy, axis, begin, end)?));
                    begin = end;
                }
                parts
            }
            Op::Gather(axis) => vec![Some(self.scatter_add(dy, arg(1), axis, shape(self, 0)[axis])?), None],
            Op::ScatterAdd { axis, .. } => vec![Some(self.gather(dy, arg(1), axis)?), None],
            Op::Unfold(window) => {
                let length = shape(self, 0).last().copied().unwrap_or(0);
                vec![Some(self.fold(dy, window, length)?)]
            }
            Op::Fold(window, _) => vec![Some(self.unfold(dy, window)?)],
            Op::CumSum { reverse } => vec![Some(self.cumsum(dy, !reverse)?)],
            Op::MatMul => {
                let (left, right) = (self.transpose(arg(0))?, self.transpose(arg(1))?);
                vec![Some(self.matmul(dy, right)?), Some(self.matmul(left, dy)?)]
            }
            ref other => {
                let composite = other.composite().expect("every other operation is composite");
                composite.gradient(self, id, dy)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Window;
    use crate::interpret::Value;
    use crate::ops::{Binary, Unary};

    /// Compares the gradients of a weighted sum of an expression of x and y, `[2, 6]` each, with finite differences.
    fn assert_gradients(what: &str, build: impl Fn(&mut Graph, Id, Id) -> Result<Id, GraphError>) {
        let mut g = Graph::new();
        let x = g.input("x", DType::F64, &[2, 6]).unwrap();
        let y = g.input("y", DType::F64, &[2, 6]).unwrap();
        let result = build(&mut g, x, y).unwrap_or_else(|error| panic!("{what}: {error}"));
        // Different weights, so that the elements of the result have different gradients.
        let weights: Vec<f64> = (0..g.shape(result).elements()).map(|i| 1.0 + 0.37 * i as f64).collect();
        let weights = g.data(DType::F64, &g.shape(result), &weights).unwrap();
        let weighted = g.mul(result, weights).unwrap();
        let loss = g.sum_all(weighted).unwrap();
        let gradients = g.gradients(loss, &[x, y]).unwrap();
        assert_eq!(g.check(), Ok(()), "{what}");

        // Away from the discontinuities of derivatives, and inside the domain of log.
        let base: Vec<f64> = (0..24).map(|i| 0.31 + 0.057 * f64::from(i * 7 % 24)).collect();
        let run = |numbers: &[f64], id: Id| {
            let value =
                |range: std::ops::Range<usize>| Value::float(DType::F64, g.shape(x), numbers[range].to_vec());
            g.interpret_nodes(&[("x", value(0..12)), ("y", value(12..24))], &[id]).unwrap()[0].to_f64()
        };
        let ours = [run(&base, gradients[0]), run(&base, gradients[1])].concat();
        for i in 0..24 {
            let h = 1e-6;
            let moved = |by: f64| {
                let mut numbers = base.clone();
                numbers[i] += by;
                run(&numbers, loss)[0]
            };
            let difference = (moved(h) - moved(-h)) / (2.0 * h);
            assert!(
                (ours[i] - difference).abs() < 1e-6 * difference.abs().max(1.0),
                "{what}, {i}: {} for {difference}",
                ours[i]
            );
        }
    }

    #[test]
    fn elementwise_gradients_equal_finite_differences() {
        // The derivative of a rounding is taken to be 1, though it is a step function.
        for &op in Unary::ALL.iter().filter(|op| op.rounds_to().is_none()) {
            assert_gradients(op.row().name, |g, x, _| g.unary(op, x));
        }
        for &op in Binary::ALL {
            assert_gradients(op.row().name, |g, x, y| g.binary(op, x, y));
        }
    }

    #[test]
    fn other_gradients_equal_finite_differences() {
        let window = Window { size: 3, stride: 2, dilation: 1 };
        assert_gradients("select", |g, x, y| {
            let less = g.less(x, y)?;
            g.select(less, x, y)
        });
        assert_gradients("expand", |g, x, _| g.expand(x, &[3, 2, 6]));
        assert_gradients("permute", |g, x, _| g.permute(x, &[1, 0]));
        assert_gradients("slice", |g, x, _| g.slice(x, 1, 2, 5));
        assert_gradients("slice by steps", |g, x, _| g.slice_by(x, 1, 1, 3, 2));
        assert_gradients("pad", |g, x, _| g.pad(x, 1, 2, 1));
        assert_gradients("concat", |g, x, y| g.concat(&[x, y, x], 0));
        assert_gradients("unfold", |g, x, _| g.unfold(x, window));
        assert_gradients("fold", |g, x, _| {
            let windows = g.reshape(x, &[2, 2, 3])?;
            g.fold(windows, window, 5)
        });
        assert_gradients("cumsum", |g, x, _| g.cumsum(x, false));
        assert_gradients("cumsum from the end", |g, x, _| g.cumsum(x, true));
        assert_gradients("sum", |g, x, _| g.sum(x, &[0]));
        assert_gradients("max", |g, x, _| g.reduce(Reduction::Max, x, &[1]));
        assert_gradients("min", |g, x, _| g.reduce(Reduction::Min, x, &[0, 1]));
        assert_gradients("matmul", |g, x, y| {
            let y = g.transpose(y)?;
            g.matmul(x, y)
        });
        assert_gradients("layer_norm", |g, x, y| {
            let gain = g.sum(y, &[0])?;
            let gain = g.reshape(gain, &[6])?;
            let bias = g.square(gain)?;
            g.layer_norm(x, gain, bias, 1e-3)
        });
        assert_gradients("attention", |g, x, y| {
            let values = g.square(x)?;
            g.multi_head_attention(x, y, values, 2)
        });
        assert_gradients("cast", |g, x, _| {
            let one = g.cast(x, DType::F64)?;
            g.mul(one, one)
        });
        assert_gradients("gather", |g, x, _| {
            let indices = g.data(DType::I32, &[4], &[5.0, 0.0, 5.0, -1.0])?;
            g.gather(x, indices, 1)
        });
        assert_gradients("scatter_add", |g, x, _| {
            let indices = g.data(DType::I32, &[6], &[1.0, 0.0, 1.0, 3.0, 9.0, 2.0])?;
            g.scatter_add(x, indices, 1, 4)
        });
    }

    #[test]
    fn integers_cannot_be_differentiated() {
        let mut g = Graph::new();
        let i = g.input("i", DType::I32, &[2]).unwrap();
        let sum = g.sum_all(i).unwrap();
        let message = g.gradients(sum, &[i]).unwrap_err().to_string();
        assert!(
            message.contains("integers cannot be differentiated") && message.contains("i32"),
            "{message}"
        );
    }

    #[test]
    fn nodes_that_the_loss_does_not_depend_on_have_zero_gradients() {
        let mut g = Graph::new();
        let (x, y) = (g.input("x", DType::F64, &[2]).unwrap(), g.input("y", DType::F64, &[3]).unwrap());
        let loss = g.sum_all(x).unwrap();
        let gradient = g.gradients(loss, &[y]).unwrap()[0];
        assert_eq!(g.interpret_nodes(&[], &[gradient]).unwrap()[0].to_f64(), [0.0; 3]);
    }
}
