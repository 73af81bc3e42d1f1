//! Operations: what each computes, accepts and passes on to its operands.
//!
//! | file | what is in it |
//! |---|---|
//! | `elementwise` | the tables of element-wise operations and of reductions |
//! | `softmax`, `layer_norm`, `attention`, `recurrent` | composite operations, one file each |
//!
//! A composite operation is one node that could be written with elementary operations, and has a kernel because that is
//! faster. Its file holds everything about it: the builder with its shape rule, the gradient, the definition that the
//! interpreter evaluates, the ONNX form, the plan and the instruction.
//!
//! # Adding an operation
//!
//! | operation | places |
//! |---|---|
//! | element-wise | a row in `ops/elementwise.rs` (name, scalar and integer meaning, ONNX form, gradient); the slice function in `vector` and its line in `instruction/loops/math.rs`; its cost in `instruction/loops/compile.rs` if it is not a transcendental function |
//! | reduction | a row in the table of `ops/elementwise.rs` (name, binary operation, neutral element, ONNX operator); two arms in `instruction/loops/math.rs` (of a slice, of two rows); its gradient in `grad.rs` |
//! | composite | a file in `ops` that implements `Composite` and lists its `tensor_methods!`; a variant of [`Op`](crate::graph::Op) and its arm in `Op::composite` |
//! | layer made of other operations | a method in `graph/layers.rs`, and its row of `tensor_methods!` there |

pub mod attention;
mod elementwise;
pub mod layer_norm;
pub mod recurrent;
pub mod softmax;

use std::fmt;

use crate::graph::{Graph, GraphError, Id, Node};
use crate::instruction::View;
use crate::interpret::{Value, by_definition};
#[cfg(feature = "onnx")]
use crate::onnx::writer::Writer;
use crate::plan::Planner;
use crate::shape::Shape;

#[cfg(feature = "onnx")]
pub(crate) use elementwise::OnnxForm;
pub use elementwise::{Binary, Reduction, Unary};
pub(crate) use elementwise::{BinaryGradient, UnaryGradient};

/// A composite operation. Its [`Display`](fmt::Display) form is its name with its parameters.
pub(crate) trait Composite: fmt::Display {
    /// Adds the node on checked operands: works out the shape and type of the result, or says what does not fit.
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError>;

    /// The gradients of the operands of node `id`, given the gradient `dy` of its result.
    fn gradient(&self, graph: &mut Graph, id: Id, _dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        graph.error("gradients", &graph.node(id).args, format!("{self} cannot be differentiated"))
    }

    /// Adds the result in elementary operations.
    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError>;

    /// The value for the interpreter: that of the definition.
    fn evaluate(&self, node: &Node, args: &[&Value]) -> Value {
        by_definition(node, args, |graph, args| self.define(graph, args))
    }

    /// Writes the operation with an ONNX operator of its own, and returns the name of the result. `None` writes the definition.
    /// Sizes of `node` that depend on the batch are not those of the model.
    #[cfg(feature = "onnx")]
    fn onnx(&self, _writer: &mut Writer, _node: &Node, _args: &[String]) -> Option<String> {
        None
    }

    /// Adds the instructions that compute node `id`.
    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View;
}

impl Graph {
    /// The operands of an operation that takes `N` of them, checked to be nodes of this graph.
    fn operands<const N: usize>(&self, op: &impl Composite, args: &[Id]) -> Result<[Id; N], GraphError> {
        self.known(&op.to_string(), args)?;
        match <[Id; N]>::try_from(args) {
            Ok(args) => Ok(args),
            Err(_) => self.error(&op.to_string(), args, format!("takes {N} operands")),
        }
    }

    /// Gradients of the sum of `y * dy`, flattened and concatenated.
    fn concatenated_gradients(&mut self, y: Id, dy: Id, of: &[Id]) -> Result<Id, GraphError> {
        let mut gradients = self.pull_back(y, dy, of)?;
        for gradient in &mut gradients {
            *gradient = self.reshape(*gradient, &[self.shape(*gradient).elements()])?;
        }
        self.concat(&gradients, 0)
    }

    /// Splits a vector of concatenated gradients into tensors of these shapes.
    fn split_gradients(&mut self, all: Id, shapes: &[Shape]) -> Result<Vec<Option<Id>>, GraphError> {
        let mut begin = 0;
        let split = |shape: &Shape| {
            let gradient = self.slice(all, 0, begin, begin + shape.elements())?;
            begin += shape.elements();
            Ok(Some(self.reshape(gradient, shape)?))
        };
        shapes.iter().map(split).collect()
    }
}
