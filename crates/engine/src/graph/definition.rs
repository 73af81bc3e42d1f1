//! What the operations that have kernels of their own are made of: elementary operations.
//!
//! The interpreter evaluates these definitions instead of formulas of its own, and the gradients of layer norm and attention
//! are those of their definitions by the rules of elementary operations. So their kernels are compared with what nobody
//! derived by hand. The gradient of a recurrent cell reads what the forward pass kept, and is the one that is not here.

use super::{Cell, Graph, GraphError, Id, Op};
use crate::dtype::DType;
use crate::ops::Reduction;
use crate::shape::Shape;

impl Graph {
    /// A graph that computes an operation that is not elementary, on operands of some shapes: inputs named by their numbers,
    /// and one output, all of them `f64`.
    pub(crate) fn definition(op: &Op, operands: &[Shape]) -> Result<Graph, GraphError> {
        let mut g = Graph::new();
        let input = |(i, shape): (usize, &Shape)| g.input(&i.to_string(), DType::F64, shape);
        let args = operands.iter().enumerate().map(input).collect::<Result<Vec<Id>, _>>()?;
        let result = match (op, &args[..]) {
            (&Op::Softmax { log }, &[x]) => g.composed_softmax(x, log)?,
            (&Op::LayerNorm { epsilon }, &[x, gain, bias]) => {
                g.composed_layer_norm(x, gain, bias, f64::from_bits(epsilon))?
            }
            (&Op::LayerNormGradient { epsilon }, &[dy, x, gain]) => {
                let bias = g.zeros_like(gain)?;
                let y = g.composed_layer_norm(x, gain, bias, f64::from_bits(epsilon))?;
                g.pull_back_in_line(y, dy, &[x, gain, bias])?
            }
            (&Op::Attention { heads }, &[q, k, v]) => g.composed_heads([q, k, v], heads)?,
            (&Op::AttentionGradient { heads }, &[dy, q, k, v]) => {
                let y = g.composed_heads([q, k, v], heads)?;
                g.pull_back_in_line(y, dy, &[q, k, v])?
            }
            (&Op::Recurrent(cell), &[x, input, hidden, input_bias, hidden_bias]) => {
                g.composed_recurrent(cell, [x, input, hidden, input_bias, hidden_bias])?
            }
            _ => unreachable!("{op} is elementary, or has other operands"),
        };
        g.output("result", result)?;
        Ok(g)
    }

    /// Gradients of the sum of `y * dy`, behind each other in one axis.
    fn pull_back_in_line(&mut self, y: Id, dy: Id, of: &[Id]) -> Result<Id, GraphError> {
        let mut parts = self.pull_back(y, dy, of)?;
        for part in &mut parts {
            *part = self.reshape(*part, &[self.shape(*part).elements()])?;
        }
        self.concat(&parts, 0)
    }

    /// Softmax along the last axis, or its logarithm.
    fn composed_softmax(&mut self, x: Id, log: bool) -> Result<Id, GraphError> {
        let axis = self.shape(x).axes() - 1;
        let most = self.reduce(Reduction::Max, x, &[axis])?;
        let shifted = self.sub(x, most)?;
        let powers = self.exp(shifted)?;
        let sum = self.sum(powers, &[axis])?;
        if log {
            let sum = self.log(sum)?;
            self.sub(shifted, sum)
        } else {
            self.div(powers, sum)
        }
    }

    /// Attention of several heads: every one on its own.
    pub(super) fn composed_heads(&mut self, args: [Id; 3], heads: usize) -> Result<Id, GraphError> {
        let mut split = |x: Id| {
            let &[batch, rows, columns] = &*self.shape(x) else { unreachable!("operands have three axes") };
            let apart = self.reshape(x, &[batch, rows, heads, columns / heads])?;
            self.permute(apart, &[0, 2, 1, 3])
        };
        let [q, k, v] = args;
        let (q, k, v) = (split(q)?, split(k)?, split(v)?);
        let width = self.shape(q)[3];
        let keys = self.transpose(k)?;
        let scores = self.matmul(q, keys)?;
        let scores = self.scale(scores, 1.0 / (width as f64).sqrt())?;
        let weights = self.composed_softmax(scores, false)?;
        let seen = self.matmul(weights, v)?;
        let &[batch, heads, rows, columns] = &*self.shape(seen) else { unreachable!("there are four axes") };
        let together = self.permute(seen, &[0, 2, 1, 3])?;
        self.reshape(together, &[batch, rows, heads * columns])
    }

    /// A cell step by step: `[parts, time, batch, hidden]`, the states first; see [`Op::Recurrent`]. Operands: inputs `[time,
    /// batch, features]`, weights `[features, gates]` and `[hidden, gates]`, and two biases.
    pub(super) fn composed_recurrent(&mut self, cell: Cell, args: [Id; 5]) -> Result<Id, GraphError> {
        let [x, input, hidden, input_bias, hidden_bias] = args;
        let &[time, batch, features] = &*self.shape(x) else { unreachable!("inputs have three axes") };
        let &[width, gates] = &*self.shape(hidden) else { unreachable!("weights have two axes") };
        let zero = self.constant(self.dtype(x), 0.0);
        let nothing = self.expand(zero, &[batch, width])?;
        let (mut state, mut memory) = (nothing, nothing);
        let mut kept: Vec<Vec<Id>> = vec![Vec::new(); cell.parts()];
        for t in 0..time {
            let now = self.slice(x, 0, t, t + 1)?;
            let now = self.reshape(now, &[batch, features])?;
            let from_input = self.matmul(now, input)?;
            let from_input = self.add(from_input, input_bias)?;
            // Before the first step there is no state, and nothing is multiplied.
            let from_state = if t == 0 {
                self.expand(hidden_bias, &[batch, gates])?
            } else {
                let product = self.matmul(state, hidden)?;
                self.add(product, hidden_bias)?
            };
            let both = self.add(from_input, from_state)?;
            let part = |g: &mut Graph, x: Id, gate: usize| g.slice(x, 1, gate * width, (gate + 1) * width);
            let open = |g: &mut Graph, gate: usize| {
                let part = part(g, both, gate)?;
                g.sigmoid(part)
            };
            let parts = match cell {
                Cell::Gru => {
                    let (reset, update) = (open(self, 0)?, open(self, 1)?);
                    let remembered = part(self, from_state, 2)?;
                    let let_in = self.mul(reset, remembered)?;
                    let fresh = part(self, from_input, 2)?;
                    let fresh = self.add(fresh, let_in)?;
                    let fresh = self.tanh(fresh)?;
                    let (rest, old) = (self.one_minus(update)?, self.mul(update, state)?);
                    let new = self.mul(rest, fresh)?;
                    state = self.add(new, old)?;
                    vec![state, reset, update, fresh, remembered]
                }
                Cell::Lstm => {
                    let (write, keep, show) = (open(self, 0)?, open(self, 1)?, open(self, 3)?);
                    let fresh = part(self, both, 2)?;
                    let fresh = self.tanh(fresh)?;
                    let (old, new) = (self.mul(keep, memory)?, self.mul(write, fresh)?);
                    memory = self.add(old, new)?;
                    let seen = self.tanh(memory)?;
                    state = self.mul(show, seen)?;
                    vec![state, memory, write, keep, fresh, show]
                }
            };
            for (kept, part) in kept.iter_mut().zip(parts) {
                kept.push(self.reshape(part, &[1, 1, batch, width])?);
            }
        }
        let parts = kept.iter().map(|steps| self.concat(steps, 1)).collect::<Result<Vec<_>, _>>()?;
        self.concat(&parts, 0)
    }
}
