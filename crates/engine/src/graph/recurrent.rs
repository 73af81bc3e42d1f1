//! Recurrent cells over time. A cell is one node, and so are the gradients of its operands.

use super::{Graph, GraphError, Id, Op};
use crate::dtype::DType;
use crate::shape::Shape;

/// A recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// The gated recurrent unit.
    Gru,
    /// The long short-term memory.
    Lstm,
}

impl Cell {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Cell::Gru => "gru",
            Cell::Lstm => "lstm",
        }
    }

    /// Gates of the cell.
    pub const fn gates(self) -> usize {
        match self {
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// Parts of what the forward pass keeps, the states first.
    pub const fn parts(self) -> usize {
        match self {
            Cell::Gru => 5,
            Cell::Lstm => 6,
        }
    }

    /// Lengths of the gradients of the operands, from steps, rows, width of the state and of the inputs: of the inputs [time,
    /// batch, features], of the weights of the inputs [gates * hidden, features] and of the state [gates * hidden, hidden]
    /// (both turned), and of the biases beside them [gates * hidden].
    pub(crate) const fn gradient_lengths(self, [time, batch, hidden, features]: [usize; 4]) -> [usize; 5] {
        let width = self.gates() * hidden;
        [time * batch * features, width * features, width * hidden, width, width]
    }

    /// Gradients of a state that are smaller are dropped on their way back through the steps, however large the others are:
    /// they would become subnormal, and many processors are a hundred times slower with such numbers.
    pub(crate) const fn least_gradient(dtype: DType) -> f64 {
        match dtype {
            DType::F32 => 1e-20,
            _ => 1e-200,
        }
    }

    /// Where the gradients of the products with the state are among the four columns of the gradient, in their order: first
    /// column and the one behind the last.
    pub(crate) const fn columns(self) -> &'static [[usize; 2]] {
        match self {
            Cell::Gru => &[[0, 2], [3, 4]],
            Cell::Lstm => &[[0, 4]],
        }
    }
}

/// Weights of a gated recurrent unit (Cho et al. 2014), with the gates in the order reset, update, new.
#[derive(Clone, Copy, Debug)]
pub struct Gru {
    /// Of the inputs: [3 hidden, inputs].
    pub input: Id,
    /// Of the state: [3 hidden, hidden].
    pub hidden: Id,
    /// Beside the inputs: [3 hidden].
    pub input_bias: Id,
    /// Beside the state: [3 hidden].
    pub hidden_bias: Id,
}

/// Weights of a long short-term memory (Hochreiter and Schmidhuber 1997), with the gates in the order input, forget,
/// cell, output.
#[derive(Clone, Copy, Debug)]
pub struct Lstm {
    /// Of the inputs: [4 hidden, inputs].
    pub input: Id,
    /// Of the state: [4 hidden, hidden].
    pub hidden: Id,
    /// Beside the inputs: [4 hidden].
    pub input_bias: Id,
    /// Beside the state: [4 hidden].
    pub hidden_bias: Id,
}

impl Graph {
    /// The states of a GRU after every step of `x` [batch, time, inputs]: [batch, time, hidden]. It starts from zeros.
    pub fn gru(&mut self, x: Id, cell: &Gru) -> Result<Id, GraphError> {
        self.cell(Cell::Gru, x, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])
    }

    /// The outputs of an LSTM after every step of `x` [batch, time, inputs]: [batch, time, hidden]. It starts from zeros.
    pub fn lstm(&mut self, x: Id, cell: &Lstm) -> Result<Id, GraphError> {
        self.cell(Cell::Lstm, x, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])
    }

    /// Checks the sizes of a cell and runs it.
    fn cell(&mut self, cell: Cell, x: Id, weights: [Id; 4]) -> Result<Id, GraphError> {
        let [input, hidden, input_bias, hidden_bias] = weights;
        let args = [x, input, hidden, input_bias, hidden_bias];
        self.known(cell.name(), &args)?;
        let (&[batch, time, inputs], &[rows, state]) = (&*self.shape(x), &*self.shape(hidden)) else {
            return self.error(cell.name(), &args, "needs [batch, time, inputs] and weights of two axes");
        };
        let gates = cell.gates();
        let fits = time > 0
            && rows == gates * state
            && *self.shape(input) == [rows, inputs]
            && [input_bias, hidden_bias].iter().all(|&bias| *self.shape(bias) == [rows]);
        if !fits {
            let problem = format!("needs steps, and weights and biases for {gates} gates of the hidden size");
            return self.error(cell.name(), &args, problem);
        }
        // Step after step, so that what a step reads and writes lies together.
        let by_step = self.permute(x, &[1, 0, 2])?;
        let (input, hidden) = (self.transpose(input)?, self.transpose(hidden)?);
        let tape = self.recurrent(cell, [by_step, input, hidden, input_bias, hidden_bias])?;
        let states = self.slice(tape, 0, 0, 1)?;
        let states = self.reshape(states, &[time, batch, state])?;
        self.permute(states, &[1, 0, 2])
    }

    /// The node of a cell; see [`Op::Recurrent`].
    pub(super) fn recurrent(&mut self, cell: Cell, args: [Id; 5]) -> Result<Id, GraphError> {
        self.known(cell.name(), &args)?;
        let [x, input, hidden, biases @ ..] = args;
        let dtype = self.dtype(x);
        let one_type = dtype.is_float() && args.iter().all(|&arg| self.dtype(arg) == dtype);
        if let (&[time, batch, features], &[state, width]) = (&*self.shape(x), &*self.shape(hidden)) {
            let fits = width == cell.gates() * state
                && *self.shape(input) == [features, width]
                && biases.iter().all(|&bias| *self.shape(bias) == [width]);
            if one_type && fits {
                let shape = Shape::new(&[cell.parts(), time, batch, state])?;
                return Ok(self.intern(Op::Recurrent(cell), args.to_vec(), shape, dtype));
            }
        }
        let needs = "needs [time, batch, features], [features, gates], [hidden, gates] and two of [gates], of one type";
        self.error(cell.name(), &args, needs)
    }

    /// The node of the gradients of a cell; see [`Op::RecurrentGradient`]. Operands: the gradients of the states, what the
    /// cell kept, its inputs, and the weights of these and of the state.
    pub(super) fn recurrent_gradient(&mut self, cell: Cell, args: [Id; 5]) -> Result<Id, GraphError> {
        let name = Op::RecurrentGradient(cell).to_string();
        self.known(&name, &args)?;
        let [gradients, tape, inputs, input_weights, weights] = args;
        let dtype = self.dtype(gradients);
        let one_type = dtype.is_float() && args.iter().all(|&arg| self.dtype(arg) == dtype);
        if let (&[time, batch, hidden], &[.., features]) = (&*self.shape(gradients), &*self.shape(inputs)) {
            let width = cell.gates() * hidden;
            let fits = *self.shape(tape) == [cell.parts(), time, batch, hidden]
                && *self.shape(inputs) == [time, batch, features]
                && *self.shape(input_weights) == [features, width]
                && *self.shape(weights) == [hidden, width];
            if one_type && fits {
                let parts = cell.gradient_lengths([time, batch, hidden, features]);
                let shape = Shape::new(&[parts.iter().sum()])?;
                return Ok(self.intern(Op::RecurrentGradient(cell), args.to_vec(), shape, dtype));
            }
        }
        self.error(&name, &args, "needs the gradients of the states, what the cell kept, inputs and weights")
    }

    /// The gradients of the operands of a cell, from that of its result, of which only the states are read by others.
    pub(crate) fn recurrent_gradients(
        &mut self,
        cell: Cell,
        tape: Id,
        dy: Id,
    ) -> Result<Vec<Option<Id>>, GraphError> {
        let [inputs, input_weights, weights] = [0, 1, 2].map(|arg| self.node(tape).args[arg]);
        let &[_, time, batch, hidden] = &*self.shape(tape) else { unreachable!("the tape has four axes") };
        let features = self.shape(inputs)[2];
        let of_states = self.slice(dy, 0, 0, 1)?;
        let of_states = self.reshape(of_states, &[time, batch, hidden])?;
        let all = self.recurrent_gradient(cell, [of_states, tape, inputs, input_weights, weights])?;
        let width = cell.gates() * hidden;
        let shapes: [&[usize]; 5] =
            [&[time, batch, features], &[width, features], &[width, hidden], &[width], &[width]];
        let shapes: Vec<Shape> = shapes.iter().map(|sizes| Shape::new(sizes)).collect::<Result<_, _>>()?;
        let mut parts = self.parts(all, &shapes)?;
        // Those of the weights are turned.
        for part in parts[1..3].iter_mut().flatten() {
            *part = self.transpose(*part)?;
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests;
