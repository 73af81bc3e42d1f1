//! Scopes: graphs under construction, whose tensors are written as expressions.
//!
//! A [`Tensor`] is a handle to a node, as cheap to copy as a reference. Operators and methods add nodes to the graph of its
//! scope. An expression that does not fit adds no node; its tensor, and every expression of it, is invalid. The error is kept
//! with the place of the expression, and [`Scope::graph`] and [`Scope::compile`] report it.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;

use super::{ExpressionError, Graph, GraphError, Id, Tensor};
use crate::dtype::DType;
use crate::program::{Program, ProgramError};

/// A graph under construction, whose tensors are written as expressions.
///
/// ```
/// use gatework_engine::{DType, Scope};
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[4, 2]);
/// let w = scope.input("w", DType::F32, &[2, 3]);
/// let b = scope.input("b", DType::F32, &[3]);
/// let y = (x.matmul(w) + b).relu() * 0.5;
/// let mut runner = scope.compile(&[("y", y)])?.runner();
/// runner.write("x", &[1.0f32; 8])?;
/// runner.write("w", &[2.0f32; 6])?;
/// runner.write("b", &[0.0f32, 1.0, -9.0])?;
/// runner.run();
/// assert_eq!(runner.read::<f32>("y")?[..3], [2.0, 2.5, 0.0]);
/// # Ok::<(), gatework_engine::program::ProgramError>(())
/// ```
///
/// Errors are reported once, when the graph is complete, with the place of the expression and the shapes of its operands:
///
/// ```
/// # use gatework_engine::{DType, Scope};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[2, 3]);
/// let y = (x.matmul(x) + 1.0).relu(); // 3 columns, but 2 rows
/// let error = scope.compile(&[("y", y)]).unwrap_err().to_string();
/// assert!(error.ends_with("matmul(%0 f32[2, 3], %0 f32[2, 3]): needs [.., m, k] and [.., k, n]"), "{error}");
/// assert!(error.contains(".rs:"), "{error}");
/// ```
#[derive(Default)]
pub struct Scope {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    graph: Graph,
    errors: Vec<ExpressionError>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        let (nodes, errors) = (state.graph.nodes().len(), state.errors.len());
        f.debug_struct("Scope").field("nodes", &nodes).field("errors", &errors).finish()
    }
}

impl Scope {
    /// Creates an empty scope. Compiling its graph never changes a result.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Creates an empty scope whose graph may be rewritten by identities of real numbers: see [`Graph::relaxed`].
    pub fn relaxed() -> Scope {
        Scope { state: RefCell::new(State { graph: Graph::relaxed(), errors: Vec::new() }) }
    }

    /// A tensor that is given when the program runs. The same name is the same input.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, sizes: &[usize]) -> Tensor<'_> {
        self.build("input", [], |graph, []| graph.input(name, dtype, sizes))
    }

    /// A scalar constant. For an integer type the value is truncated and saturated.
    #[track_caller]
    pub fn constant(&self, dtype: DType, value: f64) -> Tensor<'_> {
        self.build("constant", [], |graph, []| Ok(graph.constant(dtype, value)))
    }

    /// A constant tensor in row-major order. For an integer type the values are truncated and saturated.
    #[track_caller]
    pub fn data(&self, dtype: DType, sizes: &[usize], values: &[f64]) -> Tensor<'_> {
        self.build("data", [], |graph, []| graph.data(dtype, sizes, values))
    }

    /// A tensor that is filled with one value.
    #[track_caller]
    pub fn full(&self, dtype: DType, sizes: &[usize], value: f64) -> Tensor<'_> {
        self.build("full", [], |graph, []| {
            let scalar = graph.constant(dtype, value);
            graph.expand(scalar, sizes)
        })
    }

    /// Concatenates tensors along an axis.
    #[track_caller]
    pub fn concat(&self, parts: &[Tensor<'_>], axis: usize) -> Tensor<'_> {
        let place = Location::caller();
        let id = self.operands("concat", parts, place);
        let id = id.and_then(|ids| self.record(place, |graph| graph.concat(&ids, axis)));
        Tensor { scope: self, id }
    }

    /// The gradients of a scalar with respect to some tensors. [`Tensor::gradients`] takes an array instead of a slice.
    #[track_caller]
    pub fn gradients(&self, loss: Tensor<'_>, of: &[Tensor<'_>]) -> Vec<Tensor<'_>> {
        self.several("gradients", &[loss], of, |graph, loss, of| graph.gradients(loss[0], of))
    }

    /// The vector-Jacobian product: gradients of the sum of `y * dy` with respect to some tensors. [`Tensor::pull_back`] takes
    /// an array instead of a slice.
    #[track_caller]
    pub fn pull_back(&self, y: Tensor<'_>, dy: Tensor<'_>, of: &[Tensor<'_>]) -> Vec<Tensor<'_>> {
        self.several("pull_back", &[y, dy], of, |graph, args, of| graph.pull_back(args[0], args[1], of))
    }

    /// Returns the graph of these outputs: the nodes that they depend on, with their names. Reports all expressions of the
    /// scope that do not fit, as [`GraphError::Expressions`].
    #[track_caller]
    pub fn graph(&self, outputs: &[(&str, Tensor<'_>)]) -> Result<Graph, GraphError> {
        let place = Location::caller();
        let state = self.state.borrow();
        let (mut errors, mut ids) = (state.errors.clone(), Vec::new());
        for (name, tensor) in outputs {
            if std::ptr::eq(self, tensor.scope) {
                ids.extend(tensor.id.map(|id| (*name, id)));
            } else {
                let error = GraphError::ForeignTensor { operation: format!("output {name:?}") };
                errors.push(ExpressionError { place, error });
            }
        }
        if errors.is_empty() { state.graph.with_outputs(&ids) } else { Err(GraphError::Expressions(errors)) }
    }

    /// Compiles the graph of these outputs. Errors are those of [`Scope::graph`] and [`Program::new`].
    #[track_caller]
    pub fn compile(&self, outputs: &[(&str, Tensor<'_>)]) -> Result<Program, ProgramError> {
        Program::new(&self.graph(outputs)?)
    }

    /// Adds a node on operands. The tensor is invalid if an operand is, or if `build` fails.
    #[track_caller]
    pub(crate) fn build<const N: usize>(
        &self,
        operation: &str,
        operands: [Tensor<'_>; N],
        build: impl FnOnce(&mut Graph, [Id; N]) -> Result<Id, GraphError>,
    ) -> Tensor<'_> {
        let place = Location::caller();
        let ids = self.operands(operation, &operands, place).and_then(|ids| <[Id; N]>::try_from(ids).ok());
        Tensor { scope: self, id: ids.and_then(|ids| self.record(place, |graph| build(graph, ids))) }
    }

    /// Adds one node for each tensor of `of`, given `operands`. All are invalid if an operand is, or if `build` fails.
    #[track_caller]
    fn several(
        &self,
        operation: &str,
        operands: &[Tensor<'_>],
        of: &[Tensor<'_>],
        build: impl FnOnce(&mut Graph, &[Id], &[Id]) -> Result<Vec<Id>, GraphError>,
    ) -> Vec<Tensor<'_>> {
        let place = Location::caller();
        let ids = self.operands(operation, &[operands, of].concat(), place);
        let results = ids.and_then(|ids| {
            let (operands, of) = ids.split_at(operands.len());
            self.record(place, |graph| build(graph, operands, of))
        });
        let ids = results.map_or_else(|| vec![None; of.len()], |ids| ids.into_iter().map(Some).collect());
        ids.into_iter().map(|id| Tensor { scope: self, id }).collect()
    }

    /// The nodes of operands; `None` if one is invalid. A tensor of another scope is an error.
    fn operands(
        &self,
        operation: &str,
        operands: &[Tensor<'_>],
        place: &'static Location<'static>,
    ) -> Option<Vec<Id>> {
        if operands.iter().any(|operand| !std::ptr::eq(self, operand.scope)) {
            let error = GraphError::ForeignTensor { operation: operation.to_string() };
            return self.record(place, |_| Err(error));
        }
        operands.iter().map(|operand| operand.id).collect()
    }

    /// Changes the graph. An error is kept with its place.
    fn record<T>(
        &self,
        place: &'static Location<'static>,
        change: impl FnOnce(&mut Graph) -> Result<T, GraphError>,
    ) -> Option<T> {
        let State { graph, errors } = &mut *self.state.borrow_mut();
        change(graph).map_err(|error| errors.push(ExpressionError { place, error })).ok()
    }

    /// Reads the graph.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Graph) -> T) -> T {
        read(&self.state.borrow().graph)
    }
}

#[cfg(test)]
mod tests;
