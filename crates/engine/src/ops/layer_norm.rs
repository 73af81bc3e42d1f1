//! Layer norm.

use std::fmt;

use super::Composite;
#[cfg(feature = "onnx")]
use crate::dtype::DType;
#[cfg(feature = "onnx")]
use crate::graph::Node;
use crate::graph::{Graph, GraphError, Id, Op, tensor_methods};
use crate::instruction::{Execute, Memory, Scratch, Stored as _, View, with_float};
use crate::kernel::norm;
#[cfg(feature = "onnx")]
use crate::onnx::{schema::Attribute, writer::Writer};
use crate::plan::Planner;
use crate::shape::Shape;

/// `gain * (x - mean) / sqrt(variance + epsilon) + bias` of every row. Operands: x `[rows, columns]`, gain and bias `[columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerNorm {
    /// The bits of an `f64`.
    pub epsilon: u64,
}

/// The gradients of [`LayerNorm`]: of x, gain and bias, concatenated. Operands: the gradient of the result, x, gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerNormGradient {
    /// The bits of an `f64`.
    pub epsilon: u64,
}

impl fmt::Display for LayerNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer_norm[{:?}]", f64::from_bits(self.epsilon))
    }
}

impl fmt::Display for LayerNormGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer_norm_gradient[{:?}]", f64::from_bits(self.epsilon))
    }
}

impl Graph {
    /// Layer norm along the last axis: shifted to mean 0 and scaled to variance 1, then `gain * x + bias`.
    pub fn layer_norm(&mut self, x: Id, gain: Id, bias: Id, epsilon: f64) -> Result<Id, GraphError> {
        self.known("layer_norm", &[x, gain, bias])?;
        let shape = self.shape(x);
        let Some(&columns) = shape.last() else {
            return self.error("layer_norm", &[x], "a scalar has no axis");
        };
        let rows = shape.elements().checked_div(columns).unwrap_or(0);
        let dtype = self.dtype(x);
        let fits = |row: Id| {
            *self.shape(row) == [columns] && self.dtype(row) == dtype && dtype.is_float() && rows > 0
        };
        if !fits(gain) || !fits(bias) {
            return self.composed_layer_norm(x, gain, bias, epsilon);
        }
        let flat = self.reshape(x, &[rows, columns])?;
        let normal = LayerNorm { epsilon: epsilon.to_bits() }.build(self, &[flat, gain, bias])?;
        self.reshape(normal, &shape)
    }

    /// Layer norm in elementary operations, with gain and bias of any shape that broadcasts.
    fn composed_layer_norm(&mut self, x: Id, gain: Id, bias: Id, epsilon: f64) -> Result<Id, GraphError> {
        let axis = self.shape(x).axes() - 1;
        let mean = self.mean(x, &[axis])?;
        let centred = self.sub(x, mean)?;
        let squares = self.square(centred)?;
        let variance = self.mean(squares, &[axis])?;
        let variance = self.offset(variance, epsilon)?;
        let scale = self.rsqrt(variance)?;
        let normal = self.mul(centred, scale)?;
        let scaled = self.mul(normal, gain)?;
        self.add(scaled, bias)
    }
}

tensor_methods! {
    /// Layer norm along the last axis: shifted to mean 0 and scaled to variance 1, then `gain * x + bias`.
    layer_norm([gain, bias], epsilon: f64);
}

/// Whether x is `[rows, columns]`, not empty, and gain `[columns]`, of one floating-point type with a third operand.
fn fits(g: &Graph, x: Id, gain: Id, other: Id) -> bool {
    let dtype = g.dtype(x);
    let one_type = dtype.is_float() && g.dtype(gain) == dtype && g.dtype(other) == dtype;
    match (&*g.shape(x), &*g.shape(gain)) {
        (&[rows, columns], &[length]) => one_type && length == columns && rows * columns > 0,
        _ => false,
    }
}

impl Composite for LayerNorm {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [x, gain, bias] = graph.operands(self, args)?;
        if !fits(graph, x, gain, bias) || graph.shape(bias) != graph.shape(gain) {
            let problem = "needs [rows, columns], [columns] and [columns] of one floating-point type";
            return graph.error("layer_norm", args, problem);
        }
        Ok(graph.intern(Op::LayerNorm(*self), args.to_vec(), graph.shape(x), graph.dtype(x)))
    }

    fn gradient(&self, graph: &mut Graph, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let [x, gain, bias] = graph.operands(self, &graph.node(id).args)?;
        let all = LayerNormGradient { epsilon: self.epsilon }.build(graph, &[dy, x, gain])?;
        let shapes = [x, gain, bias].map(|operand| graph.shape(operand));
        graph.split_gradients(all, &shapes)
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [x, gain, bias] = graph.operands(self, args)?;
        graph.composed_layer_norm(x, gain, bias, f64::from_bits(self.epsilon))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, writer: &mut Writer, node: &Node, args: &[String]) -> Option<String> {
        if node.dtype != DType::F32 {
            // The epsilon of the operator has 32 bits.
            return None;
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let epsilon = Attribute::float("epsilon", f64::from_bits(self.epsilon) as f32);
        Some(writer.node("LayerNormalization", &args, vec![Attribute::int("axis", -1), epsilon]))
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.epsilon, [0, 1, 2], false)
    }
}

impl Composite for LayerNormGradient {
    fn build(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [dy, x, gain] = graph.operands(self, args)?;
        if !fits(graph, x, gain, dy) || graph.shape(dy) != graph.shape(x) {
            let problem = "needs [rows, columns], [rows, columns] and [columns] of one floating-point type";
            return graph.error("layer_norm_gradient", args, problem);
        }
        let shape = Shape::new(&[graph.shape(x).elements() + 2 * graph.shape(gain).elements()])?;
        Ok(graph.intern(Op::LayerNormGradient(*self), args.to_vec(), shape, graph.dtype(x)))
    }

    fn define(&self, graph: &mut Graph, args: &[Id]) -> Result<Id, GraphError> {
        let [dy, x, gain] = graph.operands(self, args)?;
        let bias = graph.zeros_like(gain)?;
        let y = graph.composed_layer_norm(x, gain, bias, f64::from_bits(self.epsilon))?;
        graph.concatenated_gradients(y, dy, &[x, gain, bias])
    }

    fn plan(&self, planner: &mut Planner<'_>, id: Id) -> View {
        plan(planner, id, self.epsilon, [1, 2, 0], true)
    }
}

/// `order`: which operands are x, the gain, and the bias or the gradient of the result.
fn plan(planner: &mut Planner<'_>, id: Id, epsilon: u64, order: [usize; 3], backward: bool) -> View {
    let node = planner.graph.node(id);
    let [x, gain, other] = order.map(|arg| planner.contiguous(node.args[arg]));
    let scratch_len = norm::LayerNorm::scratch_len(x.sizes[0], x.sizes[1]);
    let scratch = backward.then(|| planner.scratch(node.dtype, scratch_len));
    let out = planner.value(id);
    planner.compute(LayerNormKernel { epsilon, x, gain, other, out, scratch }, out)
}

/// Layer norm, or its gradient if it has scratch memory. All tensors are contiguous.
#[derive(Debug)]
struct LayerNormKernel {
    epsilon: u64,
    x: View,
    gain: View,
    /// The bias, or the gradient of the result.
    other: View,
    out: View,
    scratch: Option<View>,
}

impl LayerNormKernel {
    fn arguments(&self) -> norm::LayerNorm {
        norm::LayerNorm {
            rows: self.x.sizes[0],
            columns: self.x.sizes[1],
            epsilon: f64::from_bits(self.epsilon),
            x: self.x.offset,
            gain: self.gain.offset,
            other: self.other.offset,
            out: self.out.offset,
            scratch: self.scratch.map(|scratch| scratch.offset),
        }
    }
}

impl Execute for LayerNormKernel {
    fn views_mut(&mut self) -> Vec<&mut View> {
        let views = [&mut self.x, &mut self.gain, &mut self.other, &mut self.out];
        views.into_iter().chain(&mut self.scratch).collect()
    }

    fn describe(&self) -> String {
        let gradient = if self.scratch.is_some() { " gradient" } else { "" };
        format!("layer_norm{gradient} {}{}", self.x.dtype, self.x.sizes)
    }

    fn traffic(&self) -> usize {
        self.arguments().traffic() * self.x.dtype.size()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_float!(self.x.dtype, T => match self.scratch {
            None => norm::forward(T::arena_mut(memory), &self.arguments()),
            Some(_) => norm::backward(T::arena_mut(memory), &self.arguments()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary::{self, assert_close, run};
    use crate::dtype::DType;
    use crate::interpret::Value;
    use proptest::prelude::*;

    /// The result and the gradients of a weighted sum of it, as outputs.
    fn graph(dtype: DType, [rows, columns]: [usize; 2], fused: bool) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", dtype, &[rows, columns]).unwrap();
        let gain = g.input("gain", dtype, &[columns]).unwrap();
        let bias = g.input("bias", dtype, &[columns]).unwrap();
        let weights = g.input("weights", dtype, &[rows, columns]).unwrap();
        let y = if fused {
            g.layer_norm(x, gain, bias, 1e-2)
        } else {
            g.composed_layer_norm(x, gain, bias, 1e-2)
        };
        let y = y.unwrap();
        let weighted = g.mul(y, weights).unwrap();
        let loss = g.sum_all(weighted).unwrap();
        let gradients = g.gradients(loss, &[x, gain, bias]).unwrap();
        g.output("y", y).unwrap();
        gradients.iter().enumerate().for_each(|(i, &id)| g.output(&format!("d{i}"), id).unwrap());
        g
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn layer_norm_equals_its_definition(rows in 1usize..150, columns in 1usize..40, seed: u64) {
            for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-12)] {
                let plain = graph(dtype, [rows, columns], false);
                let inputs = arbitrary::values(&plain, seed);
                let fused = graph(dtype, [rows, columns], true);
                assert_close(&run(&fused, &inputs), &run(&plain, &inputs), tolerance);
            }
        }

        #[test]
        fn layer_norm_equals_the_interpreter(rows in 1usize..70, columns in 1usize..9, seed: u64) {
            let g = graph(DType::F64, [rows, columns], true);
            let inputs = arbitrary::values(&g, seed);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap();
            assert_close(&run(&g, &inputs), &right.iter().map(Value::to_f64).collect::<Vec<_>>(), 1e-12);
        }

        #[test]
        fn instruction_sets_agree(rows in 1usize..5, columns in 1usize..70, seed: u64) {
            let g = graph(DType::F32, [rows, columns], true);
            let inputs = arbitrary::values(&g, seed);
            let right = run(&graph(DType::F32, [rows, columns], false), &inputs);
            crate::kernel::tests::on_every_level(|| assert_close(&run(&g, &inputs), &right, 1e-4));
        }
    }

    #[test]
    fn layer_norm_has_the_same_bits_on_any_number_of_threads() {
        let g = graph(DType::F32, [1000, 70], true);
        let inputs = arbitrary::values(&g, 7);
        let results = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&g, &inputs))
        });
        assert_eq!(results[0], results[1]);
    }

    #[test]
    fn gains_are_broadcast_and_scalars_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3]).unwrap();
        let y = g.layer_norm(x, x, x, 1e-5).unwrap();
        assert_eq!(g.shape(y), g.shape(x));
        let one = g.constant(DType::F32, 1.0);
        assert!(g.layer_norm(one, one, one, 1e-5).unwrap_err().to_string().contains("has no axis"));
    }

    #[test]
    fn second_derivatives_are_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3]).unwrap();
        let row = g.input("row", DType::F32, &[3]).unwrap();
        let y = g.layer_norm(x, row, row, 1e-5).unwrap();
        let squares = g.square(y).unwrap();
        let sum = g.sum_all(squares).unwrap();
        let gradient = g.gradients(sum, &[x]).unwrap()[0];
        let sum = g.sum_all(gradient).unwrap();
        let error = g.gradients(sum, &[x]).unwrap_err().to_string();
        assert!(error.contains("layer_norm_gradient[1e-5] cannot be differentiated"), "{error}");
    }
}
