//! Reference implementation of the gradients of recurrent cells, element by element, for the interpreter.
//!
//! They are computed from the tape of the forward pass and drop tiny gradients, as the kernel does, so they are not those of
//! the definition in elementary operations.

use super::Cell;
use crate::dtype::DType;
use crate::interpret::{Value, place};
use crate::shape::Shape;

/// A tensor that is accessed by its indices.
struct Table<'a> {
    shape: Shape,
    elements: &'a mut Vec<f64>,
}

impl Table<'_> {
    fn at(&mut self, index: &[usize]) -> &mut f64 {
        &mut self.elements[place(&self.shape, index)]
    }
}

/// The gradients of the operands; see [`RecurrentGradient`](super::RecurrentGradient).
pub(super) fn gradient(cell: Cell, args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let [tape, inputs, input_weights] = [1, 2, 3].map(|arg| args[arg].to_f64());
    let gates = gate_gradients(cell, args);
    let &[time, batch, hidden] = &*args[0].shape else { unreachable!("three axes") };
    let (features, width) = (args[2].shape[2], cell.gates() * hidden);
    // Columns of the product with the inputs, and of the product with the state.
    let of_input: Vec<usize> = (0..width).collect();
    let of_state: Vec<usize> =
        cell.columns().iter().flat_map(|[begin, end]| begin * hidden..end * hidden).collect();
    let gate = |row: usize, column: usize| gates[row * 4 * hidden + column];
    let rows = time * batch;
    let over_rows = |value: &dyn Fn(usize) -> f64| (0..rows).map(value).sum::<f64>();
    let mut all = Vec::with_capacity(shape.elements());
    for (row, k) in (0..rows).flat_map(|row| (0..features).map(move |k| (row, k))) {
        all.push((0..width).map(|column| gate(row, column) * input_weights[k * width + column]).sum());
    }
    for (&column, k) in of_input.iter().flat_map(|column| (0..features).map(move |k| (column, k))) {
        all.push(over_rows(&|row| gate(row, column) * inputs[row * features + k]));
    }
    for (&column, k) in of_state.iter().flat_map(|column| (0..hidden).map(move |k| (column, k))) {
        // The previous state of every step but the first; the states are the first part of the tape.
        let product = |row: usize| gate(row, column) * tape[(row - batch) * hidden + k];
        all.push((batch..rows).map(product).sum());
    }
    for &column in of_input.iter().chain(&of_state) {
        all.push(over_rows(&|row| gate(row, column)));
    }
    Value::float(dtype, shape, all)
}

/// The gradients of the arguments of the gates, `[time, batch, 4 * hidden]`.
fn gate_gradients(cell: Cell, args: &[&Value]) -> Vec<f64> {
    let [gradients, mut tape, weights] = [0, 1, 4].map(|arg| args[arg].to_f64());
    let &[time, batch, hidden] = &*args[0].shape else { unreachable!("three axes") };
    let width = cell.gates() * hidden;
    let least = Cell::least_gradient(args[0].dtype);
    let drop_least = |gradient: f64| if gradient.abs() < least { 0.0 } else { gradient };
    let mut tape = Table { shape: args[1].shape, elements: &mut tape };
    let mut elements = vec![0.0; time * batch * 4 * hidden];
    // Gradients of the state and of the LSTM cell state, from the next step.
    let (mut of_state, mut of_cell_state) = (vec![0.0; batch * hidden], vec![0.0; batch * hidden]);
    for (t, row) in (0..time).rev().flat_map(|t| (0..batch).map(move |row| (t, row))) {
        let mut next = vec![0.0; hidden];
        for unit in 0..hidden {
            let at = row * hidden + unit;
            let state = drop_least(gradients[t * batch * hidden + at] + of_state[at]);
            let mut part = |part: usize| *tape.at(&[part, t, row, unit]);
            let parts = [0, 1, 2, 3, 4].map(&mut part);
            let derivative = |gate: f64| gate * (1.0 - gate);
            let (rows, products) = match cell {
                Cell::Gru => {
                    let before = if t == 0 { 0.0 } else { *tape.at(&[0, t - 1, row, unit]) };
                    let [_, reset, update, candidate, new_hidden] = parts;
                    let d_candidate = state * (1.0 - update) * (1.0 - candidate * candidate);
                    let d_update = state * (before - candidate) * derivative(update);
                    let d_reset = d_candidate * new_hidden * derivative(reset);
                    next[unit] += state * update;
                    let products = vec![d_reset, d_update, d_candidate * reset];
                    (vec![d_reset, d_update, d_candidate, d_candidate * reset], products)
                }
                Cell::Lstm => {
                    let output = part(5);
                    let before = if t == 0 { 0.0 } else { *tape.at(&[1, t - 1, row, unit]) };
                    let [_, cell_state, input, forget, candidate] = parts;
                    let tanh_state = cell_state.tanh();
                    let d_cell_state =
                        drop_least(of_cell_state[at] + state * output * (1.0 - tanh_state * tanh_state));
                    of_cell_state[at] = d_cell_state * forget;
                    let rows = vec![
                        d_cell_state * candidate * derivative(input),
                        d_cell_state * before * derivative(forget),
                        d_cell_state * input * (1.0 - candidate * candidate),
                        state * tanh_state * derivative(output),
                    ];
                    (rows.clone(), rows)
                }
            };
            let first = (t * batch + row) * 4 * hidden + unit;
            rows.iter().enumerate().for_each(|(i, &value)| elements[first + i * hidden] = value);
            for (gate, value) in products.iter().enumerate() {
                for (k, next) in next.iter_mut().enumerate() {
                    *next += value * weights[k * width + gate * hidden + unit];
                }
            }
        }
        of_state[row * hidden..][..hidden].copy_from_slice(&next);
    }
    elements
}
