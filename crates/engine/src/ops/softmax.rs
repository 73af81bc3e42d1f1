//! Softmax along an axis, and its logarithm.

use std::fmt;

use super::Composite;
#[cfg(feature = "onnx")]
use crate::graph::Node;
use crate::graph::{Graph, GraphError, Id, Op, tensor_methods};
use crate::instruction::{Execute, Memory, Scratch, Stored, View, with_float};
#[cfg(feature = "onnx")]
use crate::onnx::{schema::Attribute, writer::Writer};
use crate::ops::Reduction;
use crate::plan::Planner;
use crate::vector::{self, RealNumber};

/// `exp(x) / sum exp(x)` along the last axis, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Softmax {
    /// Whether it is the logarithm.
    pub log: bool,
}

impl fmt::Display for Softmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.log { "log_softmax" } else { "softmax" })
    }
}

impl Graph {
    /// Softmax along an axis: exponentials that sum to 1.
    pub fn softmax(&mut self, x: Id, axis: usize) -> Result<Id, GraphError> {
        self.softmax_along(x, axis, Softmax { log: false })
    }

    /// The logarithm of [`Graph::softmax`].
    pub fn log_softmax(&mut self, x: Id, axis: usize) -> Result<Id, GraphError> {
        self.softmax_along(x, axis, Softmax { log: true })
    }

    /// Moves the axis to the end and back.
    fn softmax_along(&mut self, x: Id, axis: usize, op: Softmax) -> Result<Id, GraphError> {
        self.axis_size(&op.to_string(), x, axis)?;
        let mut order: Vec<usize> = (0..self.shape(x).axes()).collect();
        let last = order.len() - 1;
        order.swap(axis, last);
        let moved = self.permute(x, &order)?;
        let result = op.build(self, &[moved])?;
        self.permute(result, &order)
    }

    /// Softmax along the last axis, or its logarithm, in elementary operations.
    pub(super) fn composed_softmax(&mut self, x: Id, log: bool) -> Result<Id, GraphError> {
        let axis = self.shape(x).axes() - 1;
        let max = self.reduce(Reduction::Max, x, &[axis])?;
        let shifted = self.sub(x, max)?;
        let powers = self.exp(shifted)?;
        let sum = self.sum(powers, &[axis])?;
        if log {
            let sum = self.log(sum)?;
            self.sub(shifted, sum)
        } else {
            self.div(powers, sum)
        }
    }
}

tensor_methods! {
    /// Softmax along an axis: exponentials that sum to 1.
    softmax([], axis: usize);
    /// The logarithm of [`Tensor::softmax`](crate::graph::Tensor::softmax).
    log_softmax([], axis: usize);
}

impl Composite for Softmax {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [x] = graph.operands(self, args)?;
        if graph.shape(x).axes() == 0 || !graph.dtype(x).is_float() {
            return graph.error(&self.to_string(), args, "needs an axis of floating-point numbers");
        }
        Ok(graph.intern(Op::Softmax(*self), vec![x], graph.shape(x), graph.dtype(x)))
    }

    fn gradient(&self, graph: &mut Graph, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let axis = graph.shape(id).axes() - 1;
        let dx = if self.log {
            let sum = graph.sum(dy, &[axis])?;
            let probabilities = graph.exp(id)?;
            let share = graph.mul(probabilities, sum)?;
            graph.sub(dy, share)?
        } else {
            let weighted = graph.mul(dy, id)?;
            let sum = graph.sum(weighted, &[axis])?;
            let centred = graph.sub(dy, sum)?;
            graph.mul(id, centred)?
        };
        Ok(vec![Some(dx)])
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [x] = graph.operands(self, args)?;
        graph.composed_softmax(x, self.log)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, writer: &mut Writer, _: &Node, args: &[String]) -> Option<String> {
        let operator = if self.log { "LogSoftmax" } else { "Softmax" };
        Some(writer.node(operator, &[&args[0]], vec![Attribute::int("axis", -1)]))
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        let x = planner.contiguous(planner.graph.node(id).args[0]);
        let out = planner.value(id);
        planner.compute(SoftmaxKernel { op: *self, x, out }, out)
    }
}

/// Softmax of every row of a contiguous tensor.
#[derive(Debug)]
struct SoftmaxKernel {
    op: Softmax,
    x: View,
    out: View,
}

impl SoftmaxKernel {
    fn rows_and_columns(&self) -> [usize; 2] {
        let columns = self.out.sizes[self.out.sizes.axes() - 1];
        [self.out.elements().checked_div(columns).unwrap_or(0), columns]
    }
}

impl Execute for SoftmaxKernel {
    fn views_mut(&mut self) -> Vec<&mut View> {
        vec![&mut self.x, &mut self.out]
    }

    fn describe(&self) -> String {
        format!("{} {}{:?}", self.op, self.out.dtype, self.rows_and_columns())
    }

    fn traffic(&self) -> usize {
        2 * self.out.bytes()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        let [rows, columns] = self.rows_and_columns();
        if rows > 0 && columns > 0 {
            with_float!(self.out.dtype, T => softmax::<T>(self, columns, T::arena_mut(memory)));
        }
    }
}

/// Operand and result do not overlap.
fn softmax<T: RealNumber + Stored>(kernel: &SoftmaxKernel, columns: usize, arena: &mut [T]) {
    let (x, out, length) = (kernel.x.offset, kernel.out.offset, kernel.out.elements());
    let (x, out) = if x < out {
        let (low, high) = arena.split_at_mut(out);
        (&low[x..x + length], &mut high[..length])
    } else {
        let (low, high) = arena.split_at_mut(x);
        (&high[..length], &mut low[out..out + length])
    };
    let rows = if kernel.op.log { vector::log_softmax_rows } else { vector::softmax_rows };
    rows(x, columns, out).expect("whole rows");
}
