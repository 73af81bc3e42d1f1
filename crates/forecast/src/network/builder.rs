//! A graph builder whose tensors are written as formulas and which records the parameters it creates.
//!
//! ```
//! use gatework_forecast::network::Network;
//!
//! let network = Network::for_prediction();
//! let x = network.input("x", &[32, 168]);
//! let y = x.linear("hidden", 64).relu() * 0.5 + 1.0;
//! let (graph, bindings) = network.finish(&[("y", y)])?;
//! assert_eq!(graph.outputs().len(), 1);
//! assert_eq!(bindings.parameters[0].name, "hidden.weight");
//! # Ok::<(), gatework_engine::GraphError>(())
//! ```
//!
//! Errors are deferred: [`Network::finish`] reports the first one, so that formulas need no error handling.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use gatework_engine::graph::Window;
use gatework_engine::{DType, Graph, GraphError, Half, Id};
use gatework_train::model::{Initializer, Parameter};

/// A dropout mask: an input of the graph that is drawn for every update.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// Name of the graph input.
    pub name: String,
    /// Size of the first axis, the windows.
    pub rows: usize,
    /// Elements per window.
    pub elements: usize,
    /// Probability of dropping an element.
    pub rate: f64,
}

/// The inputs of a graph that must be bound in addition to the batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    /// Parameters, in the order of their creation.
    pub parameters: Vec<Parameter>,
    /// Dropout masks.
    pub masks: Vec<Mask>,
}

/// A graph under construction.
pub struct Network {
    state: RefCell<State>,
    training: bool,
    /// Result of operations that failed.
    placeholder: Id,
}

struct State {
    graph: Graph,
    bindings: Bindings,
    error: Option<GraphError>,
}

/// A tensor of a [`Network`].
#[derive(Clone, Copy)]
pub struct Tensor<'n> {
    network: &'n Network,
    id: Id,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network {{ training: {}, .. }}", self.training)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.id, self.sizes())
    }
}

impl Network {
    fn new(training: bool) -> Network {
        let mut graph = Graph::relaxed();
        let placeholder = graph.constant(DType::F32, 0.0);
        Network {
            state: RefCell::new(State { graph, bindings: Bindings::default(), error: None }),
            training,
            placeholder,
        }
    }

    /// Creates a network with dropout.
    pub fn for_training() -> Network {
        Network::new(true)
    }

    /// Creates a network without dropout.
    pub fn for_prediction() -> Network {
        Network::new(false)
    }

    /// Adds an input, which is bound when the program runs.
    pub fn input(&self, name: &str, sizes: &[usize]) -> Tensor<'_> {
        self.build(|graph| graph.input(name, DType::F32, sizes))
    }

    /// Adds a constant tensor, in row-major order.
    pub fn data(&self, sizes: &[usize], values: &[f64]) -> Tensor<'_> {
        self.build(|graph| graph.data(DType::F32, sizes, values))
    }

    /// Adds a tensor of zeros.
    pub fn zeros(&self, sizes: &[usize]) -> Tensor<'_> {
        self.build(|graph| {
            let zero = graph.constant(DType::F32, 0.0);
            graph.expand(zero, sizes)
        })
    }

    /// Adds a parameter, or returns the existing one of that name, whose shape must be the same.
    pub fn parameter(&self, name: &str, shape: &[usize], initializer: Initializer) -> Tensor<'_> {
        {
            let parameters = &mut self.state.borrow_mut().bindings.parameters;
            if parameters.iter().all(|parameter| parameter.name != name) {
                parameters.push(Parameter { name: name.to_string(), shape: shape.to_vec(), initializer });
            }
        }
        self.input(name, shape)
    }

    /// Concatenates tensors along an axis.
    pub fn concat<'n>(&'n self, bindings: &[Tensor<'n>], axis: usize) -> Tensor<'n> {
        let ids: Vec<Id> = bindings.iter().map(|part| part.id).collect();
        self.build(|graph| graph.concat(&ids, axis))
    }

    /// Returns the graph with these outputs and its bindings, or the first error.
    pub fn finish(&self, outputs: &[(&str, Tensor<'_>)]) -> Result<(Graph, Bindings), GraphError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        for (name, tensor) in outputs {
            state.graph.output(name, tensor.id)?;
        }
        Ok((state.graph.clone(), state.bindings.clone()))
    }

    /// Returns the gradients of a scalar with respect to all parameters, in their order, multiplied by `scale` if it is given.
    /// Activations are stored in the 16-bit format for the backward pass, if one is given.
    pub fn gradients<'n>(
        &'n self,
        loss: Tensor<'n>,
        scale: Option<Tensor<'n>>,
        format: Option<Half>,
    ) -> Vec<Tensor<'n>> {
        let mut state = self.state.borrow_mut();
        let State { graph, bindings, error } = &mut *state;
        let of = bindings
            .parameters
            .iter()
            .map(|parameter| graph.input(&parameter.name, DType::F32, &parameter.shape));
        let of: Result<Vec<Id>, GraphError> = of.collect();
        let dy = scale.map_or_else(|| graph.constant(DType::F32, 1.0), |scale| scale.id);
        let gradients = of.and_then(|of| match format {
            Some(format) => graph.mixed_pull_back(loss.id, dy, &of, format),
            None => graph.pull_back(loss.id, dy, &of),
        });
        match gradients {
            Ok(ids) => ids.into_iter().map(|id| Tensor { network: self, id }).collect(),
            Err(problem) => {
                error.get_or_insert(problem);
                Vec::new()
            }
        }
    }

    /// Adds a node; errors are deferred to [`finish`](Self::finish).
    pub(crate) fn build(&self, build: impl FnOnce(&mut Graph) -> Result<Id, GraphError>) -> Tensor<'_> {
        let mut state = self.state.borrow_mut();
        let id = match build(&mut state.graph) {
            Ok(id) => id,
            Err(error) => {
                state.error.get_or_insert(error);
                self.placeholder
            }
        };
        Tensor { network: self, id }
    }
}

/// Methods that forward to the graph.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $method:ident($($given:expr),*);)*) => {
        impl Tensor<'_> {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self, $($argument: $type),*) -> Self {
                self.network.build(|graph| graph.$method(self.id, $($given),*))
            })*
        }
    };
}

methods! {
    /// `max(x, 0)`.
    relu() relu();
    /// The hyperbolic tangent.
    tanh() tanh();
    /// `1 / (1 + exp(-x))`.
    sigmoid() sigmoid();
    /// `x` times the normal cumulative distribution function at `x`.
    gelu() gelu();
    /// `log(1 + exp(x))`.
    softplus() softplus();
    /// e to the power of `x`.
    exp() exp();
    /// The natural logarithm.
    log() log();
    /// The square root.
    sqrt() sqrt();
    /// `x * x`.
    square() square();
    /// The absolute value.
    abs() abs();
    /// `1 / x`.
    recip() recip();
    /// Reshapes without moving elements.
    reshape(sizes: &[usize]) reshape(sizes);
    /// Broadcasts to a shape.
    expand(sizes: &[usize]) expand(sizes);
    /// Swaps the last two axes.
    transpose() transpose();
    /// Permutes the axes.
    permute(order: &[usize]) permute(order);
    /// The indices `begin..end` of an axis.
    slice(axis: usize, begin: usize, end: usize) slice(axis, begin, end);
    /// Pads an axis with zeros.
    pad(axis: usize, before: usize, after: usize) pad(axis, before, after);
    /// The sum over an axis, which is kept with size 1.
    sum(axis: usize) sum(&[axis]);
    /// The mean over an axis, which is kept with size 1.
    mean(axis: usize) mean(&[axis]);
    /// The mean of all elements, a scalar.
    mean_all() mean_all();
    /// The variance along an axis, which is kept with size 1; the population variance.
    variance(axis: usize) variance(axis, 0);
    /// Softmax along an axis.
    softmax(axis: usize) softmax(axis);
    /// Windows of the last axis: `[.., n]` becomes `[.., windows, size]`.
    unfold(window: Window) unfold(window);
    /// The largest element of windows of the last axis.
    max_pool(window: Window) max_pool1d(window);
    /// The mean of windows of the last axis.
    average_pool(window: Window) avg_pool1d(window);
    /// Linear interpolation of the last axis to another length.
    interpolate(length: usize) interpolate_linear(length);
}

impl<'n> Tensor<'n> {
    /// Returns the network that the tensor belongs to.
    pub fn network(self) -> &'n Network {
        self.network
    }

    /// Returns the node of the graph.
    pub(crate) fn id(self) -> Id {
        self.id
    }

    /// Returns the sizes of the axes.
    pub fn sizes(self) -> Vec<usize> {
        self.network.state.borrow().graph.shape(self.id).to_vec()
    }

    /// Returns the size of an axis; 1 if there is no such axis.
    pub fn size(self, axis: usize) -> usize {
        self.sizes().get(axis).copied().unwrap_or(1)
    }

    /// Multiplies matrices of the last two axes.
    #[must_use]
    pub fn matmul(self, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.matmul(self.id, other.id))
    }

    /// Elementwise maximum.
    #[must_use]
    pub fn max(self, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.max(self.id, other.id))
    }

    /// Flattens all axes but the first: `[rows, ..]` becomes `[rows, elements]`.
    #[must_use]
    pub fn flatten(self) -> Tensor<'n> {
        let sizes = self.sizes();
        let rows = sizes.first().copied().unwrap_or(1);
        self.reshape(&[rows, sizes.iter().skip(1).product()])
    }

    /// Applies dropout in networks for training: elements are zeroed with probability `rate`, the others scaled by
    /// `1 / (1 - rate)`.
    #[must_use]
    pub fn dropout(self, rate: f64) -> Tensor<'n> {
        if !self.network.training || rate <= 0.0 {
            return self;
        }
        let sizes = self.sizes();
        let name = {
            let masks = &mut self.network.state.borrow_mut().bindings.masks;
            let name = format!("dropout.{}", masks.len());
            let (rows, elements) = (sizes.first().copied().unwrap_or(1), sizes.iter().skip(1).product());
            masks.push(Mask { name: name.clone(), rows, elements, rate });
            name
        };
        self * self.network.input(&name, &sizes)
    }
}

/// Operators between tensors, and between a tensor and a number.
macro_rules! operators {
    ($($operator:ident $method:ident;)*) => {$(
        impl<'n> $operator for Tensor<'n> {
            type Output = Tensor<'n>;

            fn $method(self, other: Tensor<'n>) -> Tensor<'n> {
                self.network.build(|graph| graph.$method(self.id, other.id))
            }
        }

        impl<'n> $operator<f64> for Tensor<'n> {
            type Output = Tensor<'n>;

            fn $method(self, number: f64) -> Tensor<'n> {
                self.network.build(|graph| {
                    let number = graph.constant_like(self.id, number)?;
                    graph.$method(self.id, number)
                })
            }
        }
    )*};
}

operators! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl<'n> Neg for Tensor<'n> {
    type Output = Tensor<'n>;

    fn neg(self) -> Tensor<'n> {
        self.network.build(|graph| graph.neg(self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_engine::Program;

    #[test]
    fn formulas_are_evaluated() {
        let network = Network::for_prediction();
        let x = network.input("x", &[2, 2]);
        let y = (x * 2.0 - 1.0).abs() + x.sum(1) / 4.0;
        let (graph, _) = network.finish(&[("y", y)]).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        runner.write("x", &[1.0f32, 2.0, -1.0, 0.0]).unwrap();
        runner.run();
        assert_eq!(runner.read::<f32>("y").unwrap(), [1.75, 3.75, 2.75, 0.75]);
    }

    #[test]
    fn the_first_error_is_reported() {
        let network = Network::for_prediction();
        let (x, y) = (network.input("x", &[2, 3]), network.input("y", &[4, 5]));
        let wrong = (x.matmul(y) + 1.0).slice(7, 0, 1);
        let error = network.finish(&[("wrong", wrong)]).unwrap_err().to_string();
        assert!(error.starts_with("matmul("), "{error}");
    }

    #[test]
    fn parameters_of_one_name_are_shared() {
        let network = Network::for_prediction();
        let x = network.input("x", &[2, 3]);
        let y = x.linear("a", 3).linear("a", 3);
        let (_, bindings) = network.finish(&[("y", y)]).unwrap();
        let names: Vec<&str> = bindings.parameters.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a.weight", "a.bias"]);
    }

    #[test]
    fn only_networks_for_training_have_dropout() {
        for (network, masks) in [(Network::for_training(), 1), (Network::for_prediction(), 0)] {
            let y = network.input("x", &[2, 3, 4]).dropout(0.5).dropout(0.0);
            let (_, bindings) = network.finish(&[("y", y)]).unwrap();
            assert_eq!(bindings.masks.len(), masks);
            assert!(bindings.masks.iter().all(|mask| (mask.rows, mask.elements) == (2, 12)));
        }
    }
}
