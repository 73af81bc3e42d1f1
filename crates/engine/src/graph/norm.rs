//! Layer norm as a node of its own, and its gradients as another.

use super::{Graph, GraphError, Id, Op};
use crate::shape::Shape;

impl Graph {
    /// The last axis shifted to mean 0 and scaled to variance 1, then `gain * x + bias`.
    pub fn layer_norm(&mut self, x: Id, gain: Id, bias: Id, epsilon: f64) -> Result<Id, GraphError> {
        self.known("layer_norm", &[x, gain, bias])?;
        let shape = self.shape(x);
        let Some(&columns) = shape.last() else {
            return self.error("layer_norm", &[x], "a single number has no axis");
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
        let normal = self.layer_norm_op(epsilon.to_bits(), flat, gain, bias)?;
        self.reshape(normal, &shape)
    }

    /// Layer norm, made of other operations: gain and bias of any shape that can be broadcast.
    pub(super) fn composed_layer_norm(
        &mut self,
        x: Id,
        gain: Id,
        bias: Id,
        epsilon: f64,
    ) -> Result<Id, GraphError> {
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

    /// Rows and columns of an operand of layer norm with a row of factors.
    fn norm_sizes(&self, name: &str, args: [Id; 3]) -> Result<[usize; 2], GraphError> {
        self.known(name, &args)?;
        let [x, gain, other] = args;
        let dtype = self.dtype(x);
        let one_type = dtype.is_float() && self.dtype(gain) == dtype && self.dtype(other) == dtype;
        match (&*self.shape(x), &*self.shape(gain)) {
            (&[rows, columns], &[length]) if one_type && length == columns && rows * columns > 0 => {
                Ok([rows, columns])
            }
            _ => self.error(name, &args, "needs [rows, columns] and [columns] of one floating-point type"),
        }
    }

    /// The node of layer norm; see [`Op::LayerNorm`].
    pub(super) fn layer_norm_op(
        &mut self,
        epsilon: u64,
        x: Id,
        gain: Id,
        bias: Id,
    ) -> Result<Id, GraphError> {
        self.norm_sizes("layer_norm", [x, gain, bias])?;
        if self.shape(bias) != self.shape(gain) {
            return self.error("layer_norm", &[x, gain, bias], "needs a bias for each column");
        }
        Ok(self.intern(Op::LayerNorm { epsilon }, vec![x, gain, bias], self.shape(x), self.dtype(x)))
    }

    /// The node of the gradients of layer norm; see [`Op::LayerNormGradient`].
    pub(super) fn layer_norm_gradient_op(
        &mut self,
        epsilon: u64,
        dy: Id,
        x: Id,
        gain: Id,
    ) -> Result<Id, GraphError> {
        let [rows, columns] = self.norm_sizes("layer_norm_gradient", [x, gain, dy])?;
        if self.shape(dy) != self.shape(x) {
            let problem = "needs a gradient for each number of the result";
            return self.error("layer_norm_gradient", &[dy, x, gain], problem);
        }
        let shape = Shape::new(&[(rows + 2) * columns])?;
        Ok(self.intern(Op::LayerNormGradient { epsilon }, vec![dy, x, gain], shape, self.dtype(x)))
    }

    /// The gradients of the operands of layer norm.
    pub(crate) fn layer_norm_gradients(&mut self, id: Id, dy: Id) -> Result<Vec<Option<Id>>, GraphError> {
        let node = self.node(id).clone();
        let (&Op::LayerNorm { epsilon }, &[x, gain, bias]) = (&node.op, &node.args[..]) else {
            unreachable!("layer norm has three operands")
        };
        let all = self.layer_norm_gradient_op(epsilon, dy, x, gain)?;
        let shapes = [x, gain, bias].map(|operand| self.shape(operand));
        self.parts(all, &shapes)
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
        fn layer_norm_equals_what_it_is_made_of(rows in 1usize..150, columns in 1usize..40, seed: u64) {
            for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-12)] {
                let plain = graph(dtype, [rows, columns], false);
                let inputs = arbitrary::values(&plain, seed);
                let fused = graph(dtype, [rows, columns], true);
                assert_close(&run(&fused, &inputs), &run(&plain, &inputs), tolerance);
            }
        }

        #[test]
        fn the_interpreter_agrees(rows in 1usize..70, columns in 1usize..9, seed: u64) {
            let g = graph(DType::F64, [rows, columns], true);
            let inputs = arbitrary::values(&g, seed);
            let right = g.interpret(&arbitrary::named(&inputs)).unwrap();
            assert_close(&run(&g, &inputs), &right.iter().map(Value::to_f64).collect::<Vec<_>>(), 1e-12);
        }

        #[test]
        fn every_instruction_set_agrees(rows in 1usize..5, columns in 1usize..70, seed: u64) {
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
    fn a_gain_for_every_number_is_broadcast_and_a_single_number_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3]).unwrap();
        let y = g.layer_norm(x, x, x, 1e-5).unwrap();
        assert_eq!(g.shape(y), g.shape(x));
        let one = g.constant(DType::F32, 1.0);
        assert!(g.layer_norm(one, one, one, 1e-5).unwrap_err().to_string().contains("no axis"));
    }

    #[test]
    fn second_gradients_are_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 3]).unwrap();
        let row = g.input("row", DType::F32, &[3]).unwrap();
        let y = g.layer_norm(x, row, row, 1e-5).unwrap();
        let squares = g.square(y).unwrap();
        let sum = g.sum_all(squares).unwrap();
        let gradient = g.gradients(sum, &[x]).unwrap()[0];
        let sum = g.sum_all(gradient).unwrap();
        let error = g.gradients(sum, &[x]).unwrap_err().to_string();
        assert!(error.contains("gradient of layer norm"), "{error}");
    }
}
