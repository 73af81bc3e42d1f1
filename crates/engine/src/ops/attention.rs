//! Multi-head attention.
//!
//! Heads are adjacent columns of the last axis, which is how a linear layer produces them: no axis is moved.

use std::fmt;

use super::Composite;
use crate::graph::{Graph, GraphError, Id, Op, tensor_methods};
use crate::instruction::{Execute, Memory, Scratch, Stored as _, View, with_float};
use crate::kernel::attention::{self, Tokens};
use crate::plan::Planner;
use crate::shape::Shape;

/// `softmax(q k' / sqrt(d)) v` of every head. Operands: queries `[batch, tokens, heads * d]`, keys `[batch, others, heads * d]`,
/// values `[batch, others, heads * e]`. The result is `[batch, tokens, heads * e]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
}

/// The gradients of [`Attention`]: of queries, keys and values, concatenated. Operands: the gradient of the result, queries,
/// keys, values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttentionGradient {
    /// Number of heads.
    pub heads: usize,
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention[{}]", self.heads)
    }
}

impl fmt::Display for AttentionGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention_gradient[{}]", self.heads)
    }
}

impl Graph {
    /// Attention with one head: `softmax(q k' / sqrt(d)) v` for `[.., time, d]`. Batches broadcast.
    pub fn attention(&mut self, q: Id, k: Id, v: Id) -> Result<Id, GraphError> {
        self.known("attention", &[q, k, v])?;
        if shape_problem(self, [q, k, v], 1).is_some() {
            // Broadcast batches and empty operands; if it is anything else, the elementary operations report it.
            return self.composed_attention(q, k, v);
        }
        self.multi_head_attention(q, k, v, 1)
    }

    /// Attention with several heads, which are adjacent columns of the last axis: `softmax(q k' / sqrt(d)) v` of each, for
    /// queries `[.., time, heads * d]`, keys `[.., others, heads * d]` and values `[.., others, heads * e]`. The result is
    /// `[.., time, heads * e]`.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input("x", DType::F32, &[32, 168, 64])?;
    /// let y = g.multi_head_attention(x, x, x, 4)?;
    /// assert_eq!(g.shape(y), g.shape(x));
    /// # Ok::<(), gatework_engine::GraphError>(())
    /// ```
    pub fn multi_head_attention(&mut self, q: Id, k: Id, v: Id, heads: usize) -> Result<Id, GraphError> {
        self.known("attention", &[q, k, v])?;
        if let Some(problem) = shape_problem(self, [q, k, v], heads) {
            return self.error("attention", &[q, k, v], problem);
        }
        let shape = self.shape(q);
        let rows = shape.axes() - 2;
        let batch = shape[..rows].iter().product();
        let tokens = |g: &mut Graph, x: Id| {
            let sizes = g.shape(x);
            g.reshape(x, &[batch, sizes[rows], sizes[rows + 1]])
        };
        let args = [tokens(self, q)?, tokens(self, k)?, tokens(self, v)?];
        let result = Attention { heads }.build(self, &args)?;
        self.reshape(result, &shape.with(rows + 1, self.shape(v)[rows + 1]))
    }

    /// Attention with one head in elementary operations.
    fn composed_attention(&mut self, q: Id, k: Id, v: Id) -> Result<Id, GraphError> {
        let width = self.shape(q).last().copied().unwrap_or(1);
        let keys = self.transpose(k)?;
        // Scaling the queries is cheaper than scaling the scores.
        let queries = self.scale(q, 1.0 / (width as f64).sqrt())?;
        let scores = self.matmul(queries, keys)?;
        let weights = self.softmax(scores, self.shape(scores).axes() - 1)?;
        self.matmul(weights, v)
    }

    /// Attention with several heads in elementary operations.
    fn composed_heads(&mut self, args: [Id; 3], heads: usize) -> Result<Id, GraphError> {
        let mut split = |x: Id| {
            let &[batch, rows, columns] = &*self.shape(x) else { unreachable!("operands have three axes") };
            let split = self.reshape(x, &[batch, rows, heads, columns / heads])?;
            self.permute(split, &[0, 2, 1, 3])
        };
        let [q, k, v] = args;
        let (q, k, v) = (split(q)?, split(k)?, split(v)?);
        let width = self.shape(q)[3];
        let keys = self.transpose(k)?;
        let scores = self.matmul(q, keys)?;
        let scores = self.scale(scores, 1.0 / (width as f64).sqrt())?;
        let weights = self.composed_softmax(scores, false)?;
        let result = self.matmul(weights, v)?;
        let &[batch, heads, rows, columns] = &*self.shape(result) else {
            unreachable!("there are four axes")
        };
        let result = self.permute(result, &[0, 2, 1, 3])?;
        self.reshape(result, &[batch, rows, heads * columns])
    }
}

tensor_methods! {
    /// Attention with one head, of queries `[.., time, d]`: `softmax(q k' / sqrt(d)) v`. Batches broadcast.
    attention([k, v]);
    /// Attention with several heads, which are adjacent columns of the last axis: see
    /// [`Graph::multi_head_attention`].
    multi_head_attention([k, v], heads: usize);
}

/// Why operands do not fit attention, if they do not.
fn shape_problem(g: &Graph, args: [Id; 3], heads: usize) -> Option<String> {
    let [queries, keys, values] = args.map(|id| g.shape(id));
    let dtype = g.dtype(args[0]);
    if !dtype.is_float() || args.iter().any(|&arg| g.dtype(arg) != dtype) {
        return Some("needs operands of one floating-point type".into());
    }
    let axes = queries.axes();
    if axes < 2 || keys.axes() != axes || values.axes() != axes {
        return Some("needs [.., tokens, columns] with the same number of axes in all operands".into());
    }
    let (rows, columns) = (axes - 2, axes - 1);
    let fits = queries[..rows] == keys[..rows]
        && keys[..columns] == values[..columns]
        && queries[columns] == keys[columns];
    if !fits {
        return Some("needs equal batches, as many values as keys, and keys as wide as queries".into());
    }
    if [queries, keys, values].iter().any(|shape| shape.elements() == 0) {
        return Some("an operand is empty".into());
    }
    let divides = |columns: usize| heads > 0 && columns.is_multiple_of(heads);
    if !divides(queries[columns]) || !divides(values[columns]) {
        return Some(format!("the columns cannot be divided into {heads} heads"));
    }
    None
}

/// The shape of the result of attention on `[batch, tokens, columns]`.
fn result_shape(g: &Graph, args: [Id; 3], heads: usize) -> Result<Shape, GraphError> {
    let needs_axes = || (g.shape(args[0]).axes() != 3).then(|| "needs [batch, tokens, columns]".into());
    match shape_problem(g, args, heads).or_else(needs_axes) {
        Some(problem) => g.error("attention", &args, problem),
        None => Ok(Shape::new(&g.shape(args[0]).with(2, g.shape(args[2])[2]))?),
    }
}

impl Composite for Attention {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args = graph.operands(self, args)?;
        let shape = result_shape(graph, args, self.heads)?;
        Ok(graph.intern(Op::Attention(*self), args.to_vec(), shape, graph.dtype(args[0])))
    }

    fn gradient(&self, graph: &mut Graph, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let [q, k, v] = graph.operands(self, &graph.node(id).args)?;
        let all = AttentionGradient { heads: self.heads }.build(graph, &[dy, q, k, v])?;
        let shapes = [q, k, v].map(|operand| graph.shape(operand));
        graph.split_gradients(all, &shapes)
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args = graph.operands(self, args)?;
        graph.composed_heads(args, self.heads)
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.heads, false)
    }
}

impl Composite for AttentionGradient {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let args @ [dy, q, k, v] = graph.operands(self, args)?;
        let result = result_shape(graph, [q, k, v], self.heads)?;
        if (graph.shape(dy), graph.dtype(dy)) != (result, graph.dtype(q)) {
            let problem = "the gradient must have the shape and type of the result";
            return graph.error("attention_gradient", &args, problem);
        }
        let elements = [q, k, v].iter().map(|&id| graph.shape(id).elements()).sum();
        let shape = Shape::new(&[elements])?;
        Ok(graph.intern(Op::AttentionGradient(*self), args.to_vec(), shape, graph.dtype(q)))
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [dy, q, k, v] = graph.operands(self, args)?;
        let y = graph.composed_heads([q, k, v], self.heads)?;
        graph.concatenated_gradients(y, dy, &[q, k, v])
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.heads, true)
    }
}

fn plan(planner: &mut Planner<'_>, id: Id, heads: usize, backward: bool) -> View {
    let node = planner.graph.node(id);
    let mut args = node.args.iter().map(|&arg| {
        let view = planner.view(arg);
        // Rows that overlap or are broadcast are copied.
        let has_rows = view.strides()[2] == 1 && view.strides()[1] >= view.sizes[2];
        if has_rows { view } else { planner.contiguous(arg) }
    });
    let gradient = if backward { args.next() } else { None };
    let operands = [0; 3].map(|_| args.next().expect("attention has three operands"));
    drop(args);
    let out = planner.value(id);
    planner.compute(AttentionKernel { heads, operands, gradient, out }, out)
}

/// Attention, or its gradient. Operands are `[batch, tokens, columns]`; the columns of a token are adjacent.
#[derive(Debug)]
struct AttentionKernel {
    heads: usize,
    /// Queries, keys and values.
    operands: [View; 3],
    /// The gradient of the result, if the gradients of the operands are computed.
    gradient: Option<View>,
    out: View,
}

impl AttentionKernel {
    fn arguments(&self) -> attention::Attention {
        let tokens =
            |view: &View| Tokens { at: view.offset, strides: [view.strides()[0], view.strides()[1]] };
        let [queries, keys, values] = &self.operands;
        attention::Attention {
            batch: queries.sizes[0],
            heads: self.heads,
            queries: queries.sizes[1],
            keys: keys.sizes[1],
            width: keys.sizes[2] / self.heads,
            values: values.sizes[2] / self.heads,
            operands: [tokens(queries), tokens(keys), tokens(values)],
            gradient: self.gradient.as_ref().map(tokens),
            out: self.out.offset,
        }
    }
}

impl Execute for AttentionKernel {
    fn views_mut(&mut self) -> Vec<&mut View> {
        self.operands.iter_mut().chain(&mut self.gradient).chain([&mut self.out]).collect()
    }

    fn describe(&self) -> String {
        let attention::Attention { batch, heads, queries, keys, width, .. } = self.arguments();
        let gradient = if self.gradient.is_some() { " gradient" } else { "" };
        format!("attention{gradient} {}: {batch} of {heads} heads, {queries}x{keys}x{width}", self.out.dtype)
    }

    fn traffic(&self) -> usize {
        self.arguments().traffic() * self.out.dtype.size()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_float!(self.out.dtype, T => match self.gradient {
            None => attention::forward(T::arena_mut(memory), &self.arguments()),
            Some(_) => attention::backward(T::arena_mut(memory), &self.arguments()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary::{self, assert_close, run};
    use crate::dtype::DType;
    use crate::interpret::Value;
    use crate::program::Program;
    use proptest::prelude::*;

    /// Sizes of attention.
    #[derive(Clone, Copy, Debug)]
    struct Sizes {
        batch: usize,
        heads: usize,
        queries: usize,
        keys: usize,
        width: usize,
        values: usize,
    }

    /// The result and the gradients of a weighted sum of it, as outputs.
    fn graph(dtype: DType, sizes: Sizes, fused: bool) -> Graph {
        let Sizes { batch, heads, queries, keys, width, values } = sizes;
        let mut g = Graph::new();
        let mut input = |name: &str, rows: usize, columns: usize| {
            g.input(name, dtype, &[batch, rows, heads * columns]).unwrap()
        };
        let args = [input("q", queries, width), input("k", keys, width), input("v", keys, values)];
        let weights = input("weights", queries, values);
        let [q, k, v] = args;
        let seen = if fused { g.multi_head_attention(q, k, v, heads) } else { g.composed_heads(args, heads) };
        let seen = seen.unwrap();
        let weighted = g.mul(seen, weights).unwrap();
        let loss = g.sum_all(weighted).unwrap();
        let gradients = g.gradients(loss, &args).unwrap();
        g.output("seen", seen).unwrap();
        gradients.iter().enumerate().for_each(|(i, &id)| g.output(&format!("d{i}"), id).unwrap());
        g
    }

    fn sizes(most_tokens: usize, most_columns: usize) -> impl Strategy<Value = Sizes> {
        let tokens = 1..=most_tokens;
        let columns = 1..=most_columns;
        (1usize..3, 1usize..4, tokens.clone(), tokens, columns.clone(), columns).prop_map(
            |(batch, heads, queries, keys, width, values)| Sizes {
                batch,
                heads,
                queries,
                keys,
                width,
                values,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn attention_equals_its_definition(sizes in sizes(70, 20), seed: u64) {
            for (dtype, tolerance) in [(DType::F32, 3e-5), (DType::F64, 1e-13)] {
                let plain = graph(dtype, sizes, false);
                let inputs = arbitrary::values(&plain, seed);
                assert_close(&run(&graph(dtype, sizes, true), &inputs), &run(&plain, &inputs), tolerance);
            }
        }

        #[test]
        fn attention_equals_the_interpreter(sizes in sizes(12, 5), seed: u64) {
            let g = graph(DType::F64, sizes, true);
            let inputs = arbitrary::values(&g, seed);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap();
            assert_close(&run(&g, &inputs), &right.iter().map(Value::to_f64).collect::<Vec<_>>(), 1e-13);
        }

        #[test]
        fn instruction_sets_agree(sizes in sizes(40, 20), seed: u64) {
            // A single head runs on the current thread, which the instruction set is overridden for.
            let sizes = Sizes { batch: 1, heads: 1, ..sizes };
            let g = graph(DType::F32, sizes, true);
            let inputs = arbitrary::values(&g, seed);
            let right = run(&graph(DType::F32, sizes, false), &inputs);
            crate::kernel::tests::on_every_level(|| assert_close(&run(&g, &inputs), &right, 3e-5));
        }
    }

    #[test]
    fn many_queries_are_processed_in_blocks() {
        let sizes = Sizes { batch: 1, heads: 2, queries: 300, keys: 210, width: 8, values: 8 };
        let plain = graph(DType::F64, sizes, false);
        let inputs = arbitrary::values(&plain, 3);
        assert_close(&run(&graph(DType::F64, sizes, true), &inputs), &run(&plain, &inputs), 1e-12);
    }

    #[test]
    fn attention_has_the_same_bits_on_any_number_of_threads() {
        let sizes = Sizes { batch: 3, heads: 4, queries: 33, keys: 50, width: 7, values: 9 };
        let g = graph(DType::F32, sizes, true);
        let inputs = arbitrary::values(&g, 7);
        let results = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&g, &inputs))
        });
        assert_eq!(results[0], results[1]);
    }

    #[test]
    fn column_slices_of_one_product_are_not_copied() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 5, 24]).unwrap();
        let [q, k, v] = [0, 8, 16].map(|begin| g.slice(x, 2, begin, begin + 8).unwrap());
        let seen = g.multi_head_attention(q, k, v, 2).unwrap();
        let plain = g.composed_heads([q, k, v], 2).unwrap();
        g.output("seen", seen).unwrap();
        let kernels = Program::new(&g).unwrap().kernels();
        assert_eq!(kernels, ["attention f32: 2 of 2 heads, 5x5x4"]);
        g.output("plain", plain).unwrap();
        let results = run(&g, &arbitrary::values(&g, 5));
        assert_close(&results[..1], &results[1..], 1e-5);
    }

    /// The kernel takes neither broadcast batches nor empty operands.
    #[test]
    fn broadcast_batches_and_empty_keys_are_composed() {
        for (batch, keys) in [([1, 1], 5), ([1, 3], 5), ([2, 1], 1), ([2, 3], 0)] {
            let mut g = Graph::new();
            let q = g.input("q", DType::F64, &[2, 3, 4, 6]).unwrap();
            let k = g.input("k", DType::F64, &[batch[0], batch[1], keys, 6]).unwrap();
            let v = g.input("v", DType::F64, &[batch[0], batch[1], keys, 2]).unwrap();
            let seen = g.attention(q, k, v).unwrap();
            assert_eq!(g.shape(seen)[..], [2, 3, 4, 2]);
            let squares = g.square(seen).unwrap();
            let loss = g.sum_all(squares).unwrap();
            let gradients = g.gradients(loss, &[q, k, v]).unwrap();
            g.output("seen", seen).unwrap();
            gradients.iter().enumerate().for_each(|(i, &id)| g.output(&format!("d{i}"), id).unwrap());
            let inputs = arbitrary::values(&g, 11);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap();
            let right: Vec<Vec<f64>> = right.iter().map(Value::to_f64).collect();
            assert_close(&run(&g, &inputs), &right, 1e-12);
            if keys == 1 {
                // All weight is on the only key.
                let values = inputs[2].1.to_f64();
                let repeated = |i: usize| values[i / 24 * 2 + i % 2];
                assert!(right[0].iter().enumerate().all(|(i, x)| (x - repeated(i)).abs() < 1e-14));
            }
        }
    }

    #[test]
    fn a_nan_score_affects_only_its_query() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[3, 4]).unwrap();
        let k = g.input("k", DType::F32, &[5, 4]).unwrap();
        let seen = g.attention(x, k, k).unwrap();
        g.output("seen", seen).unwrap();
        let mut inputs = arbitrary::values(&g, 1);
        for bad in [f64::NAN, f64::INFINITY] {
            let mut numbers = inputs[0].1.to_f64();
            numbers[4] = bad;
            inputs[0].1 = Value::float(DType::F32, g.shape(x), numbers);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap()[0].to_f64();
            let ours = run(&g, &inputs).remove(0);
            let is_nan = |numbers: &[f64]| numbers.iter().map(|x| x.is_nan()).collect::<Vec<_>>();
            assert_eq!(is_nan(&ours), is_nan(&right));
            assert!(ours[..4].iter().chain(&ours[8..]).all(|x| x.is_finite()) && ours[4].is_nan());
        }
    }

    #[test]
    fn mismatched_operands_and_second_derivatives_are_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3, 4]).unwrap();
        let y = g.input("y", DType::F32, &[2, 5, 4]).unwrap();
        let i = g.input("i", DType::I32, &[2, 3, 4]).unwrap();
        let empty = g.input("empty", DType::F32, &[2, 0, 4]).unwrap();
        for (args, heads, problem) in [
            ([x, y, x], 1, "as many values as keys"),
            ([x, x, x], 3, "3 heads"),
            ([x, x, x], 0, "0 heads"),
            ([i, i, i], 1, "floating-point"),
            ([x, empty, empty], 1, "empty"),
        ] {
            let error = g.multi_head_attention(args[0], args[1], args[2], heads).unwrap_err().to_string();
            assert!(error.contains("attention(") && error.contains(problem), "{error}");
        }
        let seen = g.attention(x, y, y).unwrap();
        let sum = g.sum_all(seen).unwrap();
        let gradient = g.gradients(sum, &[x]).unwrap()[0];
        let sum = g.sum_all(gradient).unwrap();
        let error = g.gradients(sum, &[x]).unwrap_err().to_string();
        assert!(error.contains("attention_gradient[1] cannot be differentiated"), "{error}");
    }
}
