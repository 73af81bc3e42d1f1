//! Recurrent cells (GRU and LSTM) over time.
//!
//! A cell over all steps is one node, and so are the gradients of its operands. The result of the forward pass is a tape
//! `[parts, time, batch, hidden]`: the states, then what the backward pass reads (see `kernel::recurrent`).

mod reference;

use std::fmt;

use super::Composite;
use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op};
use crate::instruction::{Execute, Memory, Scratch, Stored as _, View, with_float};
use crate::interpret::Value;
use crate::kernel::recurrent::{self, Pass, Steps};
#[cfg(feature = "onnx")]
use crate::onnx::{schema::Attribute, writer::Writer};
use crate::plan::Planner;
use crate::shape::Shape;

/// A kind of recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// The gated recurrent unit.
    Gru,
    /// The long short-term memory.
    Lstm,
}

impl Cell {
    /// `gru` or `lstm`.
    pub const fn name(self) -> &'static str {
        match self {
            Cell::Gru => "gru",
            Cell::Lstm => "lstm",
        }
    }

    /// Number of gates.
    pub const fn gates(self) -> usize {
        match self {
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// Parts of the tape of the forward pass, of which the states are the first.
    pub const fn parts(self) -> usize {
        match self {
            Cell::Gru => 5,
            Cell::Lstm => 6,
        }
    }

    /// Lengths of the gradients of the operands: of the inputs `[time, batch, features]`, of the transposed input weights
    /// `[gates * hidden, features]` and state weights `[gates * hidden, hidden]`, and of the two biases `[gates * hidden]`.
    pub(crate) const fn gradient_lengths(self, [time, batch, hidden, features]: [usize; 4]) -> [usize; 5] {
        let width = self.gates() * hidden;
        [time * batch * features, width * features, width * hidden, width, width]
    }

    /// Gradients of a state below this are set to 0 between two steps, whatever the scale of the loss. They would become
    /// subnormal numbers, which many processors handle a hundred times slower.
    pub(crate) const fn least_gradient(dtype: DType) -> f64 {
        match dtype {
            DType::F32 => 1e-20,
            _ => 1e-200,
        }
    }

    /// The ranges of the gradient's four columns of gates that belong to the product with the state, in order.
    pub(crate) const fn columns(self) -> &'static [[usize; 2]] {
        match self {
            Cell::Gru => &[[0, 2], [3, 4]],
            Cell::Lstm => &[[0, 4]],
        }
    }
}

/// Weights of a gated recurrent unit (Cho et al. 2014), as nodes or as [tensors](crate::graph::Tensor). The gates are in the order reset, update, new.
#[derive(Clone, Copy, Debug)]
pub struct Gru<T = Id> {
    /// Input weights, `[3 * hidden, inputs]`.
    pub input: T,
    /// State weights, `[3 * hidden, hidden]`.
    pub hidden: T,
    /// Bias of the product with the inputs, `[3 * hidden]`.
    pub input_bias: T,
    /// Bias of the product with the state, `[3 * hidden]`.
    pub hidden_bias: T,
}

/// Weights of a long short-term memory (Hochreiter and Schmidhuber 1997). The gates are in the order input, forget, cell,
/// output.
#[derive(Clone, Copy, Debug)]
pub struct Lstm<T = Id> {
    /// Input weights, `[4 * hidden, inputs]`.
    pub input: T,
    /// State weights, `[4 * hidden, hidden]`.
    pub hidden: T,
    /// Bias of the product with the inputs, `[4 * hidden]`.
    pub input_bias: T,
    /// Bias of the product with the state, `[4 * hidden]`.
    pub hidden_bias: T,
}

/// A recurrent cell over time. Operands: inputs `[time, batch, features]`, input weights `[features, gates * hidden]`, state
/// weights `[hidden, gates * hidden]`, and the biases of both products. The result is the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Recurrent {
    /// The kind of cell.
    pub cell: Cell,
}

/// The gradients of the operands of [`Recurrent`] in order, those of the weights transposed, concatenated. Operands: the
/// gradient of the states `[time, batch, hidden]`, the tape, the inputs, the input weights and the state weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecurrentGradient {
    /// The kind of cell.
    pub cell: Cell,
}

impl fmt::Display for Recurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cell.name())
    }
}

impl fmt::Display for RecurrentGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_gradient", self.cell.name())
    }
}

impl Graph {
    /// The states of a GRU after every step of `x` `[batch, time, inputs]`: `[batch, time, hidden]`. The initial state is zero.
    pub fn gru(&mut self, x: Id, cell: &Gru) -> Result<Id, GraphError> {
        self.cell(Cell::Gru, x, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])
    }

    /// The outputs of an LSTM after every step of `x` `[batch, time, inputs]`: `[batch, time, hidden]`. The initial state is
    /// zero.
    pub fn lstm(&mut self, x: Id, cell: &Lstm) -> Result<Id, GraphError> {
        self.cell(Cell::Lstm, x, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])
    }

    fn cell(&mut self, cell: Cell, x: Id, weights: [Id; 4]) -> Result<Id, GraphError> {
        let [input, hidden, input_bias, hidden_bias] = weights;
        let args = [x, input, hidden, input_bias, hidden_bias];
        self.known(cell.name(), &args)?;
        let (&[batch, time, inputs], &[rows, state]) = (&*self.shape(x), &*self.shape(hidden)) else {
            return self.error(cell.name(), &args, "needs [batch, time, inputs] and weights with two axes");
        };
        let gates = cell.gates();
        let fits = time > 0
            && rows == gates * state
            && *self.shape(input) == [rows, inputs]
            && [input_bias, hidden_bias].iter().all(|&bias| *self.shape(bias) == [rows]);
        if !fits {
            let problem = format!(
                "needs at least one step, weights [{gates} * hidden, inputs] and [{gates} * hidden, hidden], and biases \
                 [{gates} * hidden]"
            );
            return self.error(cell.name(), &args, problem);
        }
        // Time first, so that the memory of a step is contiguous.
        let by_step = self.permute(x, &[1, 0, 2])?;
        let (input, hidden) = (self.transpose(input)?, self.transpose(hidden)?);
        let tape = Recurrent { cell }.build(self, &[by_step, input, hidden, input_bias, hidden_bias])?;
        let states = self.slice(tape, 0, 0, 1)?;
        let states = self.reshape(states, &[time, batch, state])?;
        self.permute(states, &[1, 0, 2])
    }

    /// The tape of a cell in elementary operations, step by step; see [`Recurrent`].
    fn composed_recurrent(&mut self, cell: Cell, args: [Id; 5]) -> Result<Id, GraphError> {
        let [x, input, hidden, input_bias, hidden_bias] = args;
        let &[time, batch, features] = &*self.shape(x) else { unreachable!("inputs have three axes") };
        let &[width, gates] = &*self.shape(hidden) else { unreachable!("weights have two axes") };
        let zero = self.constant(self.dtype(x), 0.0);
        let zeros = self.expand(zero, &[batch, width])?;
        let (mut state, mut cell_state) = (zeros, zeros);
        let mut tape: Vec<Vec<Id>> = vec![Vec::new(); cell.parts()];
        for t in 0..time {
            let now = self.slice(x, 0, t, t + 1)?;
            let now = self.reshape(now, &[batch, features])?;
            let from_input = self.matmul(now, input)?;
            let from_input = self.add(from_input, input_bias)?;
            // The initial state is not multiplied: its product would be NaN with infinite weights.
            let from_state = if t == 0 {
                self.expand(hidden_bias, &[batch, gates])?
            } else {
                let product = self.matmul(state, hidden)?;
                self.add(product, hidden_bias)?
            };
            let both = self.add(from_input, from_state)?;
            let columns = |g: &mut Graph, x: Id, gate: usize| g.slice(x, 1, gate * width, (gate + 1) * width);
            let sigmoid_gate = |g: &mut Graph, gate: usize| {
                let gate = columns(g, both, gate)?;
                g.sigmoid(gate)
            };
            let parts = match cell {
                Cell::Gru => {
                    let (reset, update) = (sigmoid_gate(self, 0)?, sigmoid_gate(self, 1)?);
                    let new_hidden = columns(self, from_state, 2)?;
                    let reset_hidden = self.mul(reset, new_hidden)?;
                    let new_input = columns(self, from_input, 2)?;
                    let sum = self.add(new_input, reset_hidden)?;
                    let candidate = self.tanh(sum)?;
                    let (rest, old) = (self.one_minus(update)?, self.mul(update, state)?);
                    let new = self.mul(rest, candidate)?;
                    state = self.add(new, old)?;
                    vec![state, reset, update, candidate, new_hidden]
                }
                Cell::Lstm => {
                    let [input, forget, output] = [0, 1, 3].map(|gate| sigmoid_gate(self, gate));
                    let (input, forget, output) = (input?, forget?, output?);
                    let candidate = columns(self, both, 2)?;
                    let candidate = self.tanh(candidate)?;
                    let (old, new) = (self.mul(forget, cell_state)?, self.mul(input, candidate)?);
                    cell_state = self.add(old, new)?;
                    let tanh_state = self.tanh(cell_state)?;
                    state = self.mul(output, tanh_state)?;
                    vec![state, cell_state, input, forget, candidate, output]
                }
            };
            for (steps, part) in tape.iter_mut().zip(parts) {
                steps.push(self.reshape(part, &[1, 1, batch, width])?);
            }
        }
        let parts = tape.iter().map(|steps| self.concat(steps, 1)).collect::<Result<Vec<_>, _>>()?;
        self.concat(&parts, 0)
    }
}

/// Whether operands have one floating-point type.
fn have_one_type(g: &Graph, args: &[Id]) -> bool {
    let dtype = g.dtype(args[0]);
    dtype.is_float() && args.iter().all(|&arg| g.dtype(arg) == dtype)
}

impl Composite for Recurrent {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args @ [x, input, hidden, input_bias, hidden_bias] = graph.operands(self, args)?;
        if let (&[time, batch, features], &[state, width]) = (&*graph.shape(x), &*graph.shape(hidden)) {
            let fits = width == self.cell.gates() * state
                && *graph.shape(input) == [features, width]
                && [input_bias, hidden_bias].iter().all(|&bias| *graph.shape(bias) == [width]);
            if fits && have_one_type(graph, &args) {
                let shape = Shape::new(&[self.cell.parts(), time, batch, state])?;
                return Ok(graph.intern(Op::Recurrent(*self), args.to_vec(), shape, graph.dtype(x)));
            }
        }
        let problem = "needs [time, batch, features], [features, gates], [hidden, gates] and two of [gates], of one type";
        graph.error(self.cell.name(), &args, problem)
    }

    /// Only the states of the tape are read by other nodes, so only they have a gradient.
    fn gradient(&self, graph: &mut Graph, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let [inputs, input_weights, weights, ..]: [Id; 5] = graph.operands(self, &graph.node(id).args)?;
        let &[_, time, batch, hidden] = &*graph.shape(id) else { unreachable!("the tape has four axes") };
        let features = graph.shape(inputs)[2];
        let of_states = graph.slice(dy, 0, 0, 1)?;
        let of_states = graph.reshape(of_states, &[time, batch, hidden])?;
        let gradient = RecurrentGradient { cell: self.cell };
        let all = gradient.build(graph, &[of_states, id, inputs, input_weights, weights])?;
        let width = self.cell.gates() * hidden;
        let shapes: [&[usize]; 5] =
            [&[time, batch, features], &[width, features], &[width, hidden], &[width], &[width]];
        let shapes: Vec<Shape> = shapes.iter().map(|sizes| Shape::new(sizes)).collect::<Result<_, _>>()?;
        let mut gradients = graph.split_gradients(all, &shapes)?;
        for transposed in gradients[1..3].iter_mut().flatten() {
            *transposed = graph.transpose(*transposed)?;
        }
        Ok(gradients)
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args = graph.operands(self, args)?;
        graph.composed_recurrent(self.cell, args)
    }

    /// Writes the states only: `[1, time, batch, hidden]`. The gates of ONNX are in another order.
    #[cfg(feature = "onnx")]
    fn onnx(&self, writer: &mut Writer, node: &Node, args: &[String]) -> Option<String> {
        let hidden = node.shape[3];
        let (operator, order): (&str, &[usize]) = match self.cell {
            Cell::Gru => ("GRU", &[1, 0, 2]),
            Cell::Lstm => ("LSTM", &[0, 3, 1, 2]),
        };
        let rows = writer.integers(order.iter().flat_map(|gate| gate * hidden..(gate + 1) * hidden));
        let biases = [&args[3], &args[4]].map(|bias| writer.node("Gather", &[bias, &rows], vec![]));
        let weights = [&args[1], &args[2]].map(|weight| {
            let gates_first = writer.transpose(weight, &[1, 0]);
            writer.node("Gather", &[&gates_first, &rows], vec![])
        });
        let bias = writer.node("Concat", &[&biases[0], &biases[1]], vec![Attribute::int("axis", 0)]);
        // The first axis is that of directions.
        let first = writer.integers([0]);
        let [input, hidden_weights, bias] =
            [&weights[0], &weights[1], &bias].map(|x| writer.node("Unsqueeze", &[x, &first], vec![]));
        let mut settings = vec![Attribute::int("hidden_size", hidden as i64)];
        if self.cell == Cell::Gru {
            settings.push(Attribute::int("linear_before_reset", 1));
        }
        let states = writer.node(operator, &[&args[0], &input, &hidden_weights, &bias], settings);
        Some(writer.transpose(&states, &[1, 0, 2, 3]))
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.cell, false)
    }
}

impl Composite for RecurrentGradient {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args @ [of_states, tape, inputs, input_weights, weights] = graph.operands(self, args)?;
        if let (&[time, batch, hidden], &[.., features]) = (&*graph.shape(of_states), &*graph.shape(inputs)) {
            let width = self.cell.gates() * hidden;
            let fits = *graph.shape(tape) == [self.cell.parts(), time, batch, hidden]
                && *graph.shape(inputs) == [time, batch, features]
                && *graph.shape(input_weights) == [features, width]
                && *graph.shape(weights) == [hidden, width];
            if fits && have_one_type(graph, &args) {
                let lengths = self.cell.gradient_lengths([time, batch, hidden, features]);
                let shape = Shape::new(&[lengths.iter().sum()])?;
                let dtype = graph.dtype(of_states);
                return Ok(graph.intern(Op::RecurrentGradient(*self), args.to_vec(), shape, dtype));
            }
        }
        let problem = "needs the gradient of the states, the tape, the inputs and both weights, of one type";
        graph.error(&self.to_string(), &args, problem)
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        graph.error(&self.to_string(), args, "has no definition in elementary operations")
    }

    fn evaluate(&self, node: &Node, args: &[&Value]) -> Value {
        reference::gradient(self.cell, args, node.shape, node.dtype)
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.cell, true)
    }
}

fn plan(planner: &mut Planner<'_>, id: Id, cell: Cell, backward: bool) -> View {
    let node = planner.graph.node(id);
    let [inputs, weights] = if backward { [2, 4] } else { [0, 2] };
    let &[time, batch, features] = &*planner.graph.shape(node.args[inputs]) else {
        unreachable!("inputs have three axes")
    };
    let hidden = planner.graph.shape(node.args[weights])[0];
    let sizes = [time, batch, hidden, features];
    // The kernel packs the weights, so these need not be contiguous.
    let is_weights = |i: usize| i == weights || i + 1 == weights;
    let view =
        |(i, &arg): (usize, &Id)| if is_weights(i) { planner.view(arg) } else { planner.contiguous(arg) };
    let args = node.args.iter().enumerate().map(view).collect();
    let scratch_len = with_float!(node.dtype, T => Steps::scratch_len::<T>(cell, sizes, backward));
    let scratch = planner.scratch(node.dtype, scratch_len);
    let all = if backward {
        planner.is_read(id, |begin| begin < time * batch * features)
    } else {
        planner.is_read(id, |begin| begin > 0)
    };
    // Without a backward pass, the other parts of the tape need no memory: every reader is a slice of the first.
    let out = if backward || all { planner.value(id) } else { planner.first_of(id, 1) };
    planner.compute(RecurrentKernel { cell, backward, all, sizes, args, out, scratch }, out)
}

/// A recurrent cell over time, or its gradient. All tensors but the weights are contiguous.
#[derive(Debug)]
struct RecurrentKernel {
    cell: Cell,
    backward: bool,
    /// Forward: whether more of the tape is read than the states; if not, `out` has the states only. Backward: whether the gradient of the inputs is read.
    all: bool,
    /// Steps, batch, width of the state, and width of the inputs.
    sizes: [usize; 4],
    /// The operands of the node.
    args: Vec<View>,
    out: View,
    scratch: View,
}

impl RecurrentKernel {
    fn arguments(&self) -> Steps {
        let [time, batch, hidden, features] = self.sizes;
        let place = |arg: usize| self.args[arg].offset;
        let matrix = |arg: usize| (place(arg), [self.args[arg].strides()[0], self.args[arg].strides()[1]]);
        let out = self.out.offset;
        let (inputs, tape, pass) = if self.backward {
            (2, place(1), Pass::Backward { gradients: place(0), out, of_inputs: self.all })
        } else {
            (0, out, Pass::Forward { biases: [place(3), place(4)], saves_gates: self.all })
        };
        Steps {
            cell: self.cell,
            time,
            batch,
            hidden,
            features,
            inputs: place(inputs),
            input_weights: matrix(inputs + 1),
            weights: matrix(inputs + 2),
            tape,
            scratch: self.scratch.offset,
            pass,
        }
    }
}

impl Execute for RecurrentKernel {
    fn views_mut(&mut self) -> Vec<&mut View> {
        self.args.iter_mut().chain([&mut self.out, &mut self.scratch]).collect()
    }

    fn describe(&self) -> String {
        let [time, batch, hidden, features] = self.sizes;
        let (name, dtype) = (self.cell.name(), self.out.dtype);
        let gradient = if self.backward { " gradient" } else { "" };
        let (inputs, outputs) = (features + hidden, self.cell.gates() * hidden);
        format!("{name}{gradient} {dtype}: {time} steps of {batch}x{inputs}x{outputs}")
    }

    fn traffic(&self) -> usize {
        self.arguments().traffic() * self.out.dtype.size()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_float!(self.out.dtype, T => if self.backward {
            recurrent::backward(T::arena_mut(memory), &self.arguments());
        } else {
            recurrent::forward(T::arena_mut(memory), &self.arguments());
        });
    }
}

#[cfg(test)]
mod tests;
