//! Recurrent cells over time, written out step by step. The products with the inputs are one product for all steps.

use super::{Graph, GraphError, Id};

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

/// What the steps of a cell have in common.
struct Steps {
    /// Products with the inputs and their bias, [batch, time, gates].
    inputs: Id,
    /// Weights of the state, [hidden, gates].
    weights: Id,
    bias: Id,
    batch: usize,
    time: usize,
    hidden: usize,
}

impl Graph {
    /// The states of a GRU after every step of `x` [batch, time, inputs]: [batch, time, hidden]. It starts from zeros.
    pub fn gru(&mut self, x: Id, cell: &Gru) -> Result<Id, GraphError> {
        let steps = self.steps("gru", x, 3, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])?;
        let mut state = self.start(x, &steps)?;
        let mut states = Vec::with_capacity(steps.time);
        for t in 0..steps.time {
            let product = self.matmul(state, steps.weights)?;
            let from_state = self.add(product, steps.bias)?;
            let from_input = self.step_inputs(&steps, t)?;
            let both = self.add(from_input, from_state)?;
            let reset = self.gate(&steps, both, 0)?;
            let update = self.gate(&steps, both, 1)?;
            let remembered = self.gate_slice(&steps, from_state, 2)?;
            let remembered = self.mul(reset, remembered)?;
            let fresh = self.gate_slice(&steps, from_input, 2)?;
            let fresh = self.add(fresh, remembered)?;
            let fresh = self.tanh(fresh)?;
            // (1 - update) * fresh + update * state
            let change = self.sub(state, fresh)?;
            let change = self.mul(update, change)?;
            state = self.add(fresh, change)?;
            states.push(self.reshape(state, &[steps.batch, 1, steps.hidden])?);
        }
        self.concat(&states, 1)
    }

    /// The outputs of an LSTM after every step of `x` [batch, time, inputs]: [batch, time, hidden]. It starts from zeros.
    pub fn lstm(&mut self, x: Id, cell: &Lstm) -> Result<Id, GraphError> {
        let steps = self.steps("lstm", x, 4, [cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])?;
        let mut output = self.start(x, &steps)?;
        let mut memory = output;
        let mut outputs = Vec::with_capacity(steps.time);
        for t in 0..steps.time {
            let product = self.matmul(output, steps.weights)?;
            let from_state = self.add(product, steps.bias)?;
            let from_input = self.step_inputs(&steps, t)?;
            let both = self.add(from_input, from_state)?;
            let write = self.gate(&steps, both, 0)?;
            let keep = self.gate(&steps, both, 1)?;
            let fresh = self.gate_slice(&steps, both, 2)?;
            let fresh = self.tanh(fresh)?;
            let show = self.gate(&steps, both, 3)?;
            let kept = self.mul(keep, memory)?;
            let written = self.mul(write, fresh)?;
            memory = self.add(kept, written)?;
            let seen = self.tanh(memory)?;
            output = self.mul(show, seen)?;
            outputs.push(self.reshape(output, &[steps.batch, 1, steps.hidden])?);
        }
        self.concat(&outputs, 1)
    }

    /// Checks the sizes of a cell and multiplies the inputs of all steps.
    fn steps(&mut self, name: &str, x: Id, gates: usize, weights: [Id; 4]) -> Result<Steps, GraphError> {
        let [input, hidden, input_bias, hidden_bias] = weights;
        let args = [x, input, hidden, input_bias, hidden_bias];
        self.known(name, &args)?;
        let (&[batch, time, inputs], &[rows, state]) = (&*self.shape(x), &*self.shape(hidden)) else {
            return self.error(name, &args, "needs [batch, time, inputs] and weights of two axes");
        };
        let fits = time > 0
            && rows == gates * state
            && *self.shape(input) == [rows, inputs]
            && [input_bias, hidden_bias].iter().all(|&bias| *self.shape(bias) == [rows]);
        if !fits {
            let problem = format!("needs steps, and weights and biases for {gates} gates of the hidden size");
            return self.error(name, &args, problem);
        }
        let matrix = self.transpose(input)?;
        let product = self.matmul(x, matrix)?;
        let product = self.add(product, input_bias)?;
        let weights = self.transpose(hidden)?;
        Ok(Steps { inputs: product, weights, bias: hidden_bias, batch, time, hidden: state })
    }

    /// A state of zeros.
    fn start(&mut self, x: Id, steps: &Steps) -> Result<Id, GraphError> {
        let zero = self.constant(self.dtype(x), 0.0);
        self.expand(zero, &[steps.batch, steps.hidden])
    }

    /// The products with the inputs of one step, [batch, gates].
    fn step_inputs(&mut self, steps: &Steps, t: usize) -> Result<Id, GraphError> {
        let slice = self.slice(steps.inputs, 1, t, t + 1)?;
        let width = self.shape(slice)[2];
        self.reshape(slice, &[steps.batch, width])
    }

    /// The part of one gate.
    fn gate_slice(&mut self, steps: &Steps, x: Id, gate: usize) -> Result<Id, GraphError> {
        self.slice(x, 1, gate * steps.hidden, (gate + 1) * steps.hidden)
    }

    /// One gate, opened by a sigmoid.
    fn gate(&mut self, steps: &Steps, x: Id, gate: usize) -> Result<Id, GraphError> {
        let slice = self.gate_slice(steps, x, gate)?;
        self.sigmoid(slice)
    }
}
