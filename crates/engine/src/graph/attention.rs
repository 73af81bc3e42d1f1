//! Attention: softmax of products of queries and keys, times values, as a node of its own, and its gradients as another.
//!
//! The heads lie side by side in the last axis, so that what a linear map gives is what attention takes: no axis is moved.

use super::{Graph, GraphError, Id, Op};
use crate::shape::Shape;

impl Graph {
    /// Attention: `softmax(q k' / sqrt(d)) v` for `[.., time, d]`.
    pub fn attention(&mut self, q: Id, k: Id, v: Id) -> Result<Id, GraphError> {
        self.known("attention", &[q, k, v])?;
        if self.misfit(q, k, v, 1).is_some() {
            // Batches that are broadcast, or nothing at all: what it is made of says what becomes of them.
            return self.composed_attention(q, k, v);
        }
        self.multi_head_attention(q, k, v, 1)
    }

    /// Attention of several heads that lie side by side in the last axis: `softmax(q k' / sqrt(d)) v` of each, for queries
    /// `[.., time, heads * d]`, keys `[.., others, heads * d]` and values `[.., others, heads * e]`. The result is
    /// `[.., time, heads * e]`.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input("x", DType::F32, &[32, 168, 64])?;
    /// let seen = g.multi_head_attention(x, x, x, 4)?;
    /// assert_eq!(g.shape(seen), g.shape(x));
    /// # Ok::<(), gatework_engine::GraphError>(())
    /// ```
    pub fn multi_head_attention(&mut self, q: Id, k: Id, v: Id, heads: usize) -> Result<Id, GraphError> {
        self.known("attention", &[q, k, v])?;
        if let Some(problem) = self.misfit(q, k, v, heads) {
            return self.error("attention", &[q, k, v], problem);
        }
        let shape = self.shape(q);
        let rows = shape.axes() - 2;
        let batch = shape[..rows].iter().product();
        let tokens = |g: &mut Graph, x: Id| {
            let sizes = g.shape(x);
            g.reshape(x, &[batch, sizes[rows], sizes[rows + 1]])
        };
        let [flat_q, flat_k, flat_v] = [tokens(self, q)?, tokens(self, k)?, tokens(self, v)?];
        let seen = self.attention_op(heads, flat_q, flat_k, flat_v)?;
        self.reshape(seen, &shape.with(rows + 1, self.shape(v)[rows + 1]))
    }

    /// Why operands do not fit the node of attention.
    fn misfit(&self, q: Id, k: Id, v: Id, heads: usize) -> Option<String> {
        let [queries, keys, values] = [q, k, v].map(|id| self.shape(id));
        let dtype = self.dtype(q);
        if !dtype.is_float() || self.dtype(k) != dtype || self.dtype(v) != dtype {
            return Some("needs operands of one floating-point type".into());
        }
        let axes = queries.axes();
        if axes < 2 || keys.axes() != axes || values.axes() != axes {
            return Some("needs a batch, tokens and columns in all three".into());
        }
        let (rows, columns) = (axes - 2, axes - 1);
        let fits = queries[..rows] == keys[..rows]
            && keys[..columns] == values[..columns]
            && queries[columns] == keys[columns];
        if !fits {
            return Some("needs one batch, a value for each key, and keys as wide as the queries".into());
        }
        if [queries, keys, values].iter().any(|shape| shape.elements() == 0) {
            return Some("there is nothing to attend to".into());
        }
        let share = |columns: usize| heads > 0 && columns.is_multiple_of(heads);
        if !share(queries[columns]) || !share(values[columns]) {
            return Some(format!("{heads} heads cannot share the columns"));
        }
        None
    }

    /// Attention of one head, made of other operations.
    fn composed_attention(&mut self, q: Id, k: Id, v: Id) -> Result<Id, GraphError> {
        let width = self.shape(q).last().copied().unwrap_or(1);
        let keys = self.transpose(k)?;
        // The queries are narrower than the scores.
        let queries = self.scale(q, 1.0 / (width as f64).sqrt())?;
        let scores = self.matmul(queries, keys)?;
        let weights = self.softmax(scores, self.shape(scores).axes() - 1)?;
        self.matmul(weights, v)
    }

    /// The node of attention; see [`Op::Attention`].
    pub(super) fn attention_op(&mut self, heads: usize, q: Id, k: Id, v: Id) -> Result<Id, GraphError> {
        let shape = self.attention_shape(heads, q, k, v)?;
        Ok(self.intern(Op::Attention { heads }, vec![q, k, v], shape, self.dtype(q)))
    }

    fn attention_shape(&self, heads: usize, q: Id, k: Id, v: Id) -> Result<Shape, GraphError> {
        self.known("attention", &[q, k, v])?;
        let problem = self
            .misfit(q, k, v, heads)
            .or_else(|| (self.shape(q).axes() != 3).then(|| "needs [batch, tokens, columns]".into()));
        match problem {
            Some(problem) => self.error("attention", &[q, k, v], problem),
            None => Ok(Shape::new(&self.shape(q).with(2, self.shape(v)[2]))?),
        }
    }

    /// The node of the gradients of attention; see [`Op::AttentionGradient`].
    pub(super) fn attention_gradient_op(&mut self, heads: usize, args: [Id; 4]) -> Result<Id, GraphError> {
        let [dy, q, k, v] = args;
        self.known("attention_gradient", &args)?;
        let result = self.attention_shape(heads, q, k, v)?;
        if (self.shape(dy), self.dtype(dy)) != (result, self.dtype(q)) {
            return self.error("attention_gradient", &args, "needs a gradient for each number of the result");
        }
        let elements = [q, k, v].iter().map(|&id| self.shape(id).elements()).sum();
        let shape = Shape::new(&[elements])?;
        Ok(self.intern(Op::AttentionGradient { heads }, args.to_vec(), shape, self.dtype(q)))
    }

    /// The gradients of the operands of attention.
    pub(crate) fn attention_gradients(&mut self, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let node = self.node(id).clone();
        let (&Op::Attention { heads }, &[q, k, v]) = (&node.op, &node.args[..]) else {
            unreachable!("attention has three operands")
        };
        let all = self.attention_gradient_op(heads, [dy, q, k, v])?;
        let shapes = [q, k, v].map(|operand| self.shape(operand));
        self.parts(all, &shapes)
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
        fn attention_equals_what_it_is_made_of(sizes in sizes(70, 20), seed: u64) {
            for (dtype, tolerance) in [(DType::F32, 3e-5), (DType::F64, 1e-13)] {
                let plain = graph(dtype, sizes, false);
                let inputs = arbitrary::values(&plain, seed);
                assert_close(&run(&graph(dtype, sizes, true), &inputs), &run(&plain, &inputs), tolerance);
            }
        }

        #[test]
        fn the_interpreter_agrees(sizes in sizes(12, 5), seed: u64) {
            let g = graph(DType::F64, sizes, true);
            let inputs = arbitrary::values(&g, seed);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap();
            assert_close(&run(&g, &inputs), &right.iter().map(Value::to_f64).collect::<Vec<_>>(), 1e-13);
        }

        #[test]
        fn every_instruction_set_agrees(sizes in sizes(40, 20), seed: u64) {
            // One head runs on the thread that asks for an instruction set.
            let sizes = Sizes { batch: 1, heads: 1, ..sizes };
            let g = graph(DType::F32, sizes, true);
            let inputs = arbitrary::values(&g, seed);
            let right = run(&graph(DType::F32, sizes, false), &inputs);
            crate::kernel::tests::on_every_level(|| assert_close(&run(&g, &inputs), &right, 3e-5));
        }
    }

    #[test]
    fn many_queries_go_through_in_blocks() {
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
    fn columns_of_one_product_are_attended_to_where_they_lie() {
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

    /// What the kernel does not take: a batch that is repeated, and no keys at all.
    #[test]
    fn operands_of_other_batches_and_empty_ones_are_attended_to_as_well() {
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
    fn a_score_that_is_no_number_spoils_its_query_alone() {
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
    fn operands_that_do_not_fit_and_second_gradients_are_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3, 4]).unwrap();
        let y = g.input("y", DType::F32, &[2, 5, 4]).unwrap();
        let i = g.input("i", DType::I32, &[2, 3, 4]).unwrap();
        let empty = g.input("empty", DType::F32, &[2, 0, 4]).unwrap();
        for (args, heads, problem) in [
            ([x, y, x], 1, "a value for each key"),
            ([x, x, x], 3, "3 heads"),
            ([x, x, x], 0, "0 heads"),
            ([i, i, i], 1, "floating-point"),
            ([x, empty, empty], 1, "nothing to attend to"),
        ] {
            let error = g.multi_head_attention(args[0], args[1], args[2], heads).unwrap_err().to_string();
            assert!(error.contains("attention(") && error.contains(problem), "{error}");
        }
        let seen = g.attention(x, y, y).unwrap();
        let sum = g.sum_all(seen).unwrap();
        let gradient = g.gradients(sum, &[x]).unwrap()[0];
        let sum = g.sum_all(gradient).unwrap();
        let error = g.gradients(sum, &[x]).unwrap_err().to_string();
        assert!(error.contains("gradient of attention"), "{error}");
    }
}
