//! Errors of graphs: operands that do not fit an operation, with their types and shapes.

use std::fmt;
use std::panic::Location;

use super::Id;
use crate::dtype::DType;
use crate::shape::{Shape, ShapeError};

/// An operand in an error message, for example `%3 f32[2, 3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The node.
    pub id: Id,
    /// Its type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.id, self.dtype, self.shape)
    }
}

/// An operation that cannot be built on its operands, or a graph that is not legal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The types of the operands do not fit the operation.
    #[error("{operation}({}): {problem}", list(operands))]
    Types {
        /// The operation.
        operation: String,
        /// Its operands.
        operands: Vec<Operand>,
        /// What it needs.
        problem: &'static str,
    },
    /// The shapes of the operands do not broadcast to one shape.
    #[error("{operation}({}): the shapes do not broadcast", list(operands))]
    Broadcast {
        /// The operation.
        operation: String,
        /// Its operands.
        operands: Vec<Operand>,
    },
    /// An operand does not have the axis that the operation is applied to.
    #[error("{operation}({operand}): has no axis {axis}")]
    Axis {
        /// The operation.
        operation: String,
        /// The operand.
        operand: Box<Operand>,
        /// The missing axis.
        axis: usize,
    },
    /// The operands, or the settings of the operation, do not fit in another way.
    #[error("{operation}({}): {problem}", list(operands))]
    Operands {
        /// The operation.
        operation: String,
        /// Its operands.
        operands: Vec<Operand>,
        /// What does not fit.
        problem: String,
    },
    /// The sizes are not a valid shape.
    #[error("shape: {0}")]
    Shape(#[from] ShapeError),
    /// An operand is not a node of the graph.
    #[error("{operation}: {id} is not a node of this graph")]
    UnknownNode {
        /// The operation.
        operation: String,
        /// The unknown node.
        id: Id,
    },
    /// An input of that name exists, with another type or shape.
    #[error("input {name:?}({known}): exists already, but is now {requested}")]
    InputExists {
        /// The name.
        name: String,
        /// The existing input.
        known: Box<Operand>,
        /// The requested type and shape.
        requested: String,
    },
    /// An output of that name exists.
    #[error("output {name:?}: an output of that name exists already")]
    OutputExists {
        /// The name.
        name: String,
    },
    /// A node is not one that the builder creates.
    #[error("{node}: {problem}")]
    Illegal {
        /// The node.
        node: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A tensor belongs to another [`Scope`](super::Scope).
    #[error("{operation}: a tensor of another scope; all tensors of an expression must belong to one scope")]
    ForeignTensor {
        /// The operation.
        operation: String,
    },
    /// The expressions of a [`Scope`](super::Scope) that cannot be built, one line each.
    #[error("{}", lines(.0))]
    Expressions(Vec<ExpressionError>),
}

/// An expression that cannot be built, and its place in the source code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {error}")]
pub struct ExpressionError {
    /// File, line and column of the expression.
    pub place: &'static Location<'static>,
    /// What does not fit.
    pub error: GraphError,
}

fn list(operands: &[Operand]) -> String {
    operands.iter().map(Operand::to_string).collect::<Vec<_>>().join(", ")
}

fn lines(errors: &[ExpressionError]) -> String {
    errors.iter().map(ExpressionError::to_string).collect::<Vec<_>>().join("\n")
}
