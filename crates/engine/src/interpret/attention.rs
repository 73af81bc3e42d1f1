//! Attention, number by number.

use super::Value;
use crate::dtype::DType;
use crate::shape::Shape;

/// Tokens of several heads, `[batch, rows, heads * columns]`.
struct Tokens {
    shape: Shape,
    elements: Vec<f64>,
    heads: usize,
}

impl Tokens {
    fn new(value: &Value, heads: usize) -> Tokens {
        Tokens { shape: value.shape, elements: value.to_f64(), heads }
    }

    fn zeros(like: &Tokens) -> Tokens {
        Tokens { elements: vec![0.0; like.elements.len()], ..*like }
    }

    fn columns(&self) -> usize {
        self.shape[2] / self.heads
    }

    /// A row of a head.
    fn row(&mut self, [element, head]: [usize; 2], row: usize) -> &mut [f64] {
        let columns = self.columns();
        let begin = (element * self.shape[1] + row) * self.shape[2] + head * columns;
        &mut self.elements[begin..begin + columns]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// The weights of all keys for one query.
fn weights(q: &mut Tokens, k: &mut Tokens, head: [usize; 2], query: usize) -> Vec<f64> {
    let scale = 1.0 / (q.columns() as f64).sqrt();
    let scores: Vec<f64> =
        (0..k.shape[1]).map(|key| scale * dot(q.row(head, query), k.row(head, key))).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|x| x / sum).collect()
}

/// All elements of the batch, heads and queries.
fn queries(q: &Tokens) -> impl Iterator<Item = ([usize; 2], usize)> + use<> {
    let (batch, rows, heads) = (q.shape[0], q.shape[1], q.heads);
    (0..batch * heads * rows).map(move |i| ([i / rows / heads, i / rows % heads], i % rows))
}

/// The result; see [`Op::Attention`](crate::graph::Op::Attention).
pub(super) fn forward(heads: usize, args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let [mut q, mut k, mut v] = [0, 1, 2].map(|arg| Tokens::new(args[arg], heads));
    let mut out = Tokens { shape, elements: vec![0.0; shape.elements()], heads };
    for (head, query) in queries(&q) {
        for (key, weight) in weights(&mut q, &mut k, head, query).into_iter().enumerate() {
            add(out.row(head, query), weight, v.row(head, key));
        }
    }
    Value::float(dtype, shape, out.elements)
}

/// The gradients of queries, keys and values; see [`Op::AttentionGradient`](crate::graph::Op::AttentionGradient).
pub(super) fn backward(heads: usize, args: &[&Value], shape: Shape, dtype: DType) -> Value {
    let [mut dy, mut q, mut k, mut v] = [0, 1, 2, 3].map(|arg| Tokens::new(args[arg], heads));
    let [mut of_q, mut of_k, mut of_v] = [&q, &k, &v].map(Tokens::zeros);
    let scale = 1.0 / (q.columns() as f64).sqrt();
    for (head, query) in queries(&q) {
        let weights = weights(&mut q, &mut k, head, query);
        let of_weights: Vec<f64> =
            (0..weights.len()).map(|key| dot(dy.row(head, query), v.row(head, key))).collect();
        let mean = dot(&weights, &of_weights);
        for (key, (&weight, of_weight)) in weights.iter().zip(of_weights).enumerate() {
            let of_score = scale * weight * (of_weight - mean);
            add(of_q.row(head, query), of_score, k.row(head, key));
            add(of_k.row(head, key), of_score, q.row(head, query));
            add(of_v.row(head, key), weight, dy.row(head, query));
        }
    }
    Value::float(dtype, shape, [of_q.elements, of_k.elements, of_v.elements].concat())
}
