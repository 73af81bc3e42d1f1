//! Networks in the making: a graph, the parameters it needs, and tensors that are written like formulas.
//!
//! ```
//! use gatework_forecast::network::Network;
//!
//! let network = Network::for_prediction();
//! let x = network.input("x", &[32, 168]);
//! let y = x.linear("hidden", 64).relu() * 0.5 + 1.0;
//! let (graph, parts) = network.finish(&[("y", y)])?;
//! assert_eq!(graph.outputs().len(), 1);
//! assert_eq!(parts.parameters[0].name, "hidden.weight");
//! # Ok::<(), gatework_engine::GraphError>(())
//! ```
//!
//! What does not fit is remembered, and [`Network::finish`] reports the first such thing: a formula needs no error
//! handling of its own.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use gatework_engine::graph::Window;
use gatework_engine::{DType, Graph, GraphError, Id};

/// The values that a parameter starts from.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// All the same.
    Constant(f32),
    /// Uniform between minus and plus this.
    Uniform(f64),
    /// Given numbers, row by row.
    Values(Vec<f32>),
}

/// A parameter of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, unique in the network; that of the graph's input too.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Where it starts.
    pub start: Start,
}

/// A mask of dropout: an input of the graph that is drawn anew for every update.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// The name of the input.
    pub name: String,
    /// Windows: its first axis.
    pub rows: usize,
    /// Elements of a window.
    pub elements: usize,
    /// Share of the elements that are dropped.
    pub rate: f64,
}

/// What a network needs beside its data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Parameters, in the order in which they were asked for.
    pub parameters: Vec<Parameter>,
    /// Masks of dropout.
    pub masks: Vec<Mask>,
}

/// A network in the making.
pub struct Network {
    state: RefCell<State>,
    training: bool,
    /// Stands for results of what does not fit.
    nothing: Id,
}

struct State {
    graph: Graph,
    parts: Parts,
    error: Option<GraphError>,
}

/// A tensor of a network.
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
        let nothing = graph.constant(DType::F32, 0.0);
        Network {
            state: RefCell::new(State { graph, parts: Parts::default(), error: None }),
            training,
            nothing,
        }
    }

    /// A network that drops what it is told to drop.
    pub fn for_training() -> Network {
        Network::new(true)
    }

    /// A network that drops nothing.
    pub fn for_prediction() -> Network {
        Network::new(false)
    }

    /// A tensor that is given when the program runs.
    pub fn input(&self, name: &str, sizes: &[usize]) -> Tensor<'_> {
        self.build(|graph| graph.input(name, DType::F32, sizes))
    }

    /// Given numbers, row by row.
    pub fn data(&self, sizes: &[usize], values: &[f64]) -> Tensor<'_> {
        self.build(|graph| graph.data(DType::F32, sizes, values))
    }

    /// A tensor of zeros.
    pub fn zeros(&self, sizes: &[usize]) -> Tensor<'_> {
        self.build(|graph| {
            let zero = graph.constant(DType::F32, 0.0);
            graph.expand(zero, sizes)
        })
    }

    /// A parameter. The same name is the same parameter, whose sizes must not change.
    pub fn parameter(&self, name: &str, shape: &[usize], start: Start) -> Tensor<'_> {
        {
            let parameters = &mut self.state.borrow_mut().parts.parameters;
            if parameters.iter().all(|parameter| parameter.name != name) {
                parameters.push(Parameter { name: name.to_string(), shape: shape.to_vec(), start });
            }
        }
        self.input(name, shape)
    }

    /// Tensors behind each other along an axis.
    pub fn concat<'n>(&'n self, parts: &[Tensor<'n>], axis: usize) -> Tensor<'n> {
        let ids: Vec<Id> = parts.iter().map(|part| part.id).collect();
        self.build(|graph| graph.concat(&ids, axis))
    }

    /// The graph with these outputs, and what else it needs; or the first thing that did not fit.
    pub fn finish(&self, outputs: &[(&str, Tensor<'_>)]) -> Result<(Graph, Parts), GraphError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        for (name, tensor) in outputs {
            state.graph.output(name, tensor.id)?;
        }
        Ok((state.graph.clone(), state.parts.clone()))
    }

    /// The gradients of a scalar with respect to all parameters, in their order.
    pub fn gradients<'n>(&'n self, loss: Tensor<'n>) -> Vec<Tensor<'n>> {
        let mut state = self.state.borrow_mut();
        let State { graph, parts, error } = &mut *state;
        let of = parts
            .parameters
            .iter()
            .map(|parameter| graph.input(&parameter.name, DType::F32, &parameter.shape));
        let of: Result<Vec<Id>, GraphError> = of.collect();
        match of.and_then(|of| graph.gradients(loss.id, &of)) {
            Ok(ids) => ids.into_iter().map(|id| Tensor { network: self, id }).collect(),
            Err(problem) => {
                error.get_or_insert(problem);
                Vec::new()
            }
        }
    }

    /// Notes something that does not fit a model, beyond what the graph itself notices.
    pub fn refuse(&self, operation: &str, problem: impl Into<String>) {
        let error = GraphError { operation: operation.to_string(), problem: problem.into() };
        self.state.borrow_mut().error.get_or_insert(error);
    }

    /// Adds to the graph.
    pub(crate) fn build(&self, build: impl FnOnce(&mut Graph) -> Result<Id, GraphError>) -> Tensor<'_> {
        let mut state = self.state.borrow_mut();
        let id = match build(&mut state.graph) {
            Ok(id) => id,
            Err(error) => {
                state.error.get_or_insert(error);
                self.nothing
            }
        };
        Tensor { network: self, id }
    }
}

/// Methods that are those of the graph.
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
    /// `x` times the normal distribution at `x`.
    gelu() gelu();
    /// `log(1 + exp(x))`, a way to make a number positive.
    softplus() softplus();
    /// e to the power of `x`.
    exp() exp();
    /// The natural logarithm.
    log() log();
    /// The square root.
    sqrt() sqrt();
    /// `x * x`.
    square() square();
    /// The magnitude.
    abs() abs();
    /// `1 / x`.
    recip() recip();
    /// The same elements in another shape.
    reshape(sizes: &[usize]) reshape(sizes);
    /// Repeated to a shape.
    expand(sizes: &[usize]) expand(sizes);
    /// The last two axes exchanged.
    transpose() transpose();
    /// Axes in another order.
    permute(order: &[usize]) permute(order);
    /// The indices `begin..end` of an axis.
    slice(axis: usize, begin: usize, end: usize) slice(axis, begin, end);
    /// Zeros before and behind an axis.
    pad(axis: usize, before: usize, after: usize) pad(axis, before, after);
    /// The sum over an axis, which stays with size 1.
    sum(axis: usize) sum(&[axis]);
    /// The mean over an axis, which stays with size 1.
    mean(axis: usize) mean(&[axis]);
    /// The mean of all elements, a scalar.
    mean_all() mean_all();
    /// The variance along an axis, which stays with size 1; squares divided by the size.
    variance(axis: usize) variance(axis, 0);
    /// Exponentials along an axis that sum to 1.
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
    /// The network it belongs to.
    pub fn network(self) -> &'n Network {
        self.network
    }

    /// The node of the graph.
    pub(crate) fn id(self) -> Id {
        self.id
    }

    /// The sizes of its axes.
    pub fn sizes(self) -> Vec<usize> {
        self.network.state.borrow().graph.shape(self.id).to_vec()
    }

    /// The size of an axis; 1 if there is none.
    pub fn size(self, axis: usize) -> usize {
        self.sizes().get(axis).copied().unwrap_or(1)
    }

    /// The matrix product of the last two axes.
    #[must_use]
    pub fn matmul(self, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.matmul(self.id, other.id))
    }

    /// The larger one, element by element.
    #[must_use]
    pub fn max(self, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.max(self.id, other.id))
    }

    /// `self` where the condition is not 0, else `other`.
    #[must_use]
    pub fn where_or(self, condition: Tensor<'n>, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.select(condition.id, self.id, other.id))
    }

    /// 1 where `self` is less than `other`, else 0.
    #[must_use]
    pub fn less(self, other: Tensor<'n>) -> Tensor<'n> {
        self.network.build(|graph| graph.less(self.id, other.id))
    }

    /// At least this number, element by element.
    #[must_use]
    pub fn at_least(self, least: f64) -> Tensor<'n> {
        self.network.build(|graph| {
            let least = graph.constant_like(self.id, least)?;
            graph.max(self.id, least)
        })
    }

    /// All axes but the first put together: `[rows, ..]` becomes `[rows, elements]`.
    #[must_use]
    pub fn flatten(self) -> Tensor<'n> {
        let sizes = self.sizes();
        let rows = sizes.first().copied().unwrap_or(1);
        self.reshape(&[rows, sizes.iter().skip(1).product()])
    }

    /// Drops a share of the elements of every window (the first axis) in training, and scales the others up, so that the
    /// mean stays.
    #[must_use]
    pub fn dropout(self, rate: f64) -> Tensor<'n> {
        if !self.network.training || rate <= 0.0 {
            return self;
        }
        let sizes = self.sizes();
        let name = {
            let masks = &mut self.network.state.borrow_mut().parts.masks;
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
    fn formulas_compute_what_they_say() {
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
    fn the_first_thing_that_does_not_fit_is_reported() {
        let network = Network::for_prediction();
        let (x, y) = (network.input("x", &[2, 3]), network.input("y", &[4, 5]));
        let wrong = (x.matmul(y) + 1.0).slice(7, 0, 1);
        let error = network.finish(&[("wrong", wrong)]).unwrap_err().to_string();
        assert!(error.starts_with("matmul("), "{error}");
    }

    #[test]
    fn a_parameter_is_asked_for_once_and_shared() {
        let network = Network::for_prediction();
        let x = network.input("x", &[2, 3]);
        let y = x.linear("a", 3).linear("a", 3);
        let (_, parts) = network.finish(&[("y", y)]).unwrap();
        let names: Vec<&str> = parts.parameters.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a.weight", "a.bias"]);
    }

    #[test]
    fn dropout_is_for_training_only() {
        for (network, masks) in [(Network::for_training(), 1), (Network::for_prediction(), 0)] {
            let y = network.input("x", &[2, 3, 4]).dropout(0.5).dropout(0.0);
            let (_, parts) = network.finish(&[("y", y)]).unwrap();
            assert_eq!(parts.masks.len(), masks);
            assert!(parts.masks.iter().all(|mask| (mask.rows, mask.elements) == (2, 12)));
        }
    }
}
