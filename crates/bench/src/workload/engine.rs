//! Workloads of the engine. The reference is the graph interpreter, which evaluates every operation by its definition.

use gatework_engine::graph::{Gru, Lstm};
use gatework_engine::interpret::Value as Tensor;
use gatework_engine::kernel::int8::{Activations, Weights};
use gatework_engine::{DType, Graph, GraphError, Id, Program};

use super::{Call, ensure_close};

/// Relative error that is accepted before anything is timed.
const TOLERANCE: f64 = 1e-4;

/// An operation on two slices and a result of the same length. Reductions write the first element.
pub type SliceOperation = fn(&[f32], &[f32], &mut [f32]);

/// The same operation in a graph.
pub type GraphOperation = fn(&mut Graph, Id, Id) -> Result<Id, GraphError>;

/// Builds a graph and returns its outputs.
pub type Build<'a> = &'a dyn Fn(&mut Graph) -> Result<Vec<Id>, GraphError>;

/// Returns `count` multiples of 1/16 between -1.9 and 1.85.
pub fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 61) as f32 / 16.0 - 1.9).collect()
}

/// Prepares an operation on slices of `n` elements.
pub fn slices(n: usize, run: SliceOperation, reference: GraphOperation) -> anyhow::Result<Call> {
    let (a, b, mut out) = (numbers(n), numbers(n + 7).split_off(7), vec![0.0; n]);
    let mut g = Graph::new();
    let operands = [g.input("a", DType::F32, &[n])?, g.input("b", DType::F32, &[n])?];
    let result = reference(&mut g, operands[0], operands[1])?;
    g.output("y", result)?;
    let expected = g.interpret(&[("a", tensor(&g, operands[0], &a)), ("b", tensor(&g, operands[1], &b))])?;
    run(&a, &b, &mut out);
    let expected = expected[0].to_f64();
    ensure_close(&out[..expected.len()], &expected, TOLERANCE)?;
    Ok(Box::new(move || run(&a, &b, &mut out)))
}

/// Prepares a compiled graph, with [`numbers`] as inputs.
pub fn program(build: Build<'_>) -> anyhow::Result<Call> {
    scaled_program(1.0, build)
}

fn scaled_program(scale: f32, build: Build<'_>) -> anyhow::Result<Call> {
    let mut g = Graph::new();
    let outputs = build(&mut g)?;
    for (i, id) in outputs.iter().enumerate() {
        g.output(&format!("y{i}"), *id)?;
    }
    let mut runner = Program::new(&g)?.runner();
    let mut inputs = Vec::new();
    for (name, id) in g.inputs() {
        let values: Vec<f32> = numbers(g.shape(id).elements()).iter().map(|x| x * scale).collect();
        runner.write(name, &values)?;
        inputs.push((name, tensor(&g, id, &values)));
    }
    runner.run();
    for (i, expected) in g.interpret(&inputs)?.iter().enumerate() {
        ensure_close(runner.read::<f32>(&format!("y{i}"))?, &expected.to_f64(), TOLERANCE)?;
    }
    Ok(Box::new(move || runner.run()))
}

/// Prepares a GEMM of `[m, k]` and `[k, n]`.
pub fn matmul([m, k, n]: [usize; 3]) -> anyhow::Result<Call> {
    program(&|g| {
        let (x, w) = (g.input("x", DType::F32, &[m, k])?, g.input("w", DType::F32, &[k, n])?);
        Ok(vec![g.matmul(x, w)?])
    })
}

/// Prepares a layer norm of `rows` by `columns`, with its gradients if `is_backward`.
pub fn layer_norm(rows: usize, columns: usize, is_backward: bool) -> anyhow::Result<Call> {
    program(&|g| {
        let x = g.input("x", DType::F32, &[rows, columns])?;
        let (gain, bias) = (g.input("g", DType::F32, &[columns])?, g.input("b", DType::F32, &[columns])?);
        let y = g.layer_norm(x, gain, bias, 1e-5)?;
        if is_backward { gradients(g, y, &[x, gain, bias]) } else { Ok(vec![y]) }
    })
}

/// Prepares multi-head self-attention on `[batch, tokens, width]`, with its gradients if `is_backward`.
pub fn attention(
    [batch, tokens, width]: [usize; 3],
    heads: usize,
    is_backward: bool,
) -> anyhow::Result<Call> {
    program(&|g| {
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, DType::F32, &[batch, tokens, width]));
        let (q, k, v) = (q?, k?, v?);
        let y = g.multi_head_attention(q, k, v, heads)?;
        if is_backward { gradients(g, y, &[q, k, v]) } else { Ok(vec![y]) }
    })
}

/// Recurrent cells.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// Gated recurrent unit.
    Gru,
    /// Long short-term memory.
    Lstm,
}

/// Prepares a recurrent layer on `[batch, steps, inputs]`, with its gradients if `is_backward`.
pub fn recurrent(
    cell: Cell,
    [batch, steps, inputs]: [usize; 3],
    hidden: usize,
    is_backward: bool,
) -> anyhow::Result<Call> {
    let rows = hidden * if matches!(cell, Cell::Gru) { 3 } else { 4 };
    // Small weights: with large ones a recurrent network is chaotic and amplifies rounding errors.
    scaled_program(1.0 / 16.0, &|g| {
        let x = g.input("x", DType::F32, &[batch, steps, inputs])?;
        let mut weight = |name, sizes: &[usize]| g.input(name, DType::F32, sizes);
        let input = weight("wi", &[rows, inputs])?;
        let recurrent = weight("wh", &[rows, hidden])?;
        let (input_bias, hidden_bias) = (weight("bi", &[rows])?, weight("bh", &[rows])?);
        let y = match cell {
            Cell::Gru => g.gru(x, &Gru { input, hidden: recurrent, input_bias, hidden_bias }),
            Cell::Lstm => g.lstm(x, &Lstm { input, hidden: recurrent, input_bias, hidden_bias }),
        }?;
        if is_backward {
            gradients(g, y, &[x, input, recurrent, input_bias, hidden_bias])
        } else {
            Ok(vec![y])
        }
    })
}

/// Prepares an int8 GEMM: 4 rows of 256 activations times 64 rows of weights.
pub fn int8() -> anyhow::Result<Call> {
    const ROWS: usize = 4;
    const OUTPUTS: usize = 64;
    const INPUTS: usize = 256;
    let numbers_of_weights = numbers(OUTPUTS * INPUTS);
    let weights = Weights::quantize(&numbers_of_weights, OUTPUTS, INPUTS)?;
    let (x, mut rows, mut out) = (numbers(ROWS * INPUTS), Activations::default(), vec![0.0; ROWS * OUTPUTS]);
    weights.multiply(&x, &mut rows, &mut out)?;
    let dot = |i: usize| -> f64 {
        let (row, output) = (i / OUTPUTS, i % OUTPUTS);
        let pairs = x[row * INPUTS..][..INPUTS].iter().zip(&numbers_of_weights[output * INPUTS..][..INPUTS]);
        pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
    };
    // Both operands are rounded to one of 255 steps. The largest dot products are about 300; 3 is 1 % of that.
    for (i, out) in out.iter().enumerate() {
        let expected = dot(i);
        anyhow::ensure!(
            (f64::from(*out) - expected).abs() < 3.0,
            "element {i} is {out}, expected {expected}"
        );
    }
    Ok(Box::new(move || weights.multiply(&x, &mut rows, &mut out).expect("lengths fit")))
}

/// Returns the gradients of the mean of `y` squared.
fn gradients(g: &mut Graph, y: Id, of: &[Id]) -> Result<Vec<Id>, GraphError> {
    let squares = g.square(y)?;
    let loss = g.mean_all(squares)?;
    g.gradients(loss, of)
}

fn tensor(g: &Graph, id: Id, values: &[f32]) -> Tensor {
    Tensor::float(DType::F32, g.shape(id), values.iter().map(|&x| x.into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_agree_with_the_interpreter() -> anyhow::Result<()> {
        slices(100, |a, b, out| gatework_engine::vector::add(a, b, out).expect("same length"), Graph::add)?();
        matmul([3, 5, 4])?();
        int8()?();
        for is_backward in [false, true] {
            layer_norm(3, 8, is_backward)?();
            attention([2, 5, 8], 2, is_backward)?();
            recurrent(Cell::Gru, [2, 3, 4], 5, is_backward)?();
            recurrent(Cell::Lstm, [2, 3, 4], 5, is_backward)?();
        }
        Ok(())
    }

    #[test]
    fn a_wrong_answer_is_refused() {
        let wrong: SliceOperation = |_, _, out| out.fill(7.0);
        assert!(slices(100, wrong, Graph::add).is_err());
    }
}
