//! Gradients in mixed precision: activations that the backward pass reads are kept in 16 bits.
//!
//! The forward pass, the gradients and all sums are `f32`. Only what the backward pass reads of the forward pass is rounded:
//! each such value `x` is replaced by `round(x)`, which the planner stores in 16 bits as soon as `x` is computed. Views of
//! values become views of rounded values; inputs, constants and small values are read as they are.
//!
//! ```text
//! forward   h = relu(x w + b)                 f32, freed after its last reader of the forward pass
//!           r = round(h)                      16 bits, kept
//! backward  dw = transpose(r) dy, ...         widened where it is read
//! ```

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op};
use crate::kernel::half::Half;
use crate::ops::{Binary, Unary};

/// Least number of elements of a value that is rounded. Smaller ones, such as means and variances of rows, take little
/// memory.
const MIN_LEN: usize = 1024;

impl Graph {
    /// [`Graph::gradients`] in mixed precision: values of the forward pass that the backward pass reads are rounded to a 16-bit
    /// format, in which they take half the memory. The forward pass and the loss are `f32`; the gradients have the rounding
    /// errors of the activations.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph, Half, Program};
    ///
    /// let mut g = Graph::new();
    /// let mut x = g.input("x", DType::F32, &[256, 64])?;
    /// let mut weights = Vec::new();
    /// for layer in 0..24 {
    ///     let w = g.input(&format!("w{layer}"), DType::F32, &[64, 64])?;
    ///     x = g.matmul(x, w)?;
    ///     x = g.tanh(x)?;
    ///     weights.push(w);
    /// }
    /// let loss = g.mean_all(x)?;
    /// // Gradients are computed in the order of the outputs: from the last layer to the first.
    /// let bytes = |mut g: Graph, gradients: Vec<_>| {
    ///     for (layer, gradient) in gradients.into_iter().enumerate().rev() {
    ///         g.output(&format!("dw{layer}"), gradient)?;
    ///     }
    ///     Ok::<usize, Box<dyn std::error::Error>>(Program::new(&g)?.activation_bytes())
    /// };
    /// let (mut full, mut mixed) = (g.clone(), g);
    /// let in_f32 = full.gradients(loss, &weights)?;
    /// let in_bf16 = mixed.mixed_gradients(loss, &weights, Half::Bf16)?;
    /// assert!(bytes(mixed, in_bf16)? < bytes(full, in_f32)? * 2 / 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mixed_gradients(&mut self, loss: Id, of: &[Id], format: Half) -> Result<Vec<Id>, GraphError> {
        let forward = self.nodes().len();
        let gradients = self.gradients(loss, of)?;
        self.round_saved(forward, &gradients, format)
    }

    /// [`Graph::pull_back`] in mixed precision; see [`Graph::mixed_gradients`].
    pub fn mixed_pull_back(&mut self, y: Id, dy: Id, of: &[Id], format: Half) -> Result<Vec<Id>, GraphError> {
        let forward = self.nodes().len();
        let gradients = self.pull_back(y, dy, of)?;
        self.round_saved(forward, &gradients, format)
    }

    /// Rebuilds `wanted` so that nodes from `forward` on read rounded values of the nodes before.
    fn round_saved(&mut self, forward: usize, wanted: &[Id], format: Half) -> Result<Vec<Id>, GraphError> {
        let end = self.nodes().len();
        let mut saved: Vec<Option<Id>> = vec![None; forward];
        // The nodes that replace those of the backward pass.
        let mut new: Vec<Id> = Vec::with_capacity(end - forward);
        for index in forward..end {
            let Node { op, args, shape, dtype } = self.nodes()[index].clone();
            let mut replaced = Vec::with_capacity(args.len());
            for arg in args {
                let read = match (arg.0 as usize).checked_sub(forward) {
                    Some(place) => new[place],
                    None => self.saved(arg, format, &mut saved)?,
                };
                // An extremum is found by comparison: if one side is rounded, the other must be.
                let is_compared = op == Op::Binary(Binary::Equal);
                replaced.push(if is_compared { self.rounded(read, format)? } else { read });
            }
            new.push(self.rebuild(&op, &replaced, shape, dtype)?);
        }
        let find = |id: &Id| (id.0 as usize).checked_sub(forward).map_or(*id, |place| new[place]);
        Ok(wanted.iter().map(find).collect())
    }

    /// What the backward pass reads instead of a node of the forward pass.
    fn saved(&mut self, id: Id, format: Half, known: &mut [Option<Id>]) -> Result<Id, GraphError> {
        if let Some(saved) = known[id.0 as usize] {
            return Ok(saved);
        }
        let Node { op, args, shape, dtype } = self.node(id).clone();
        let saved = match op {
            // The tape of a recurrent cell is a result of its forward pass as well, and stays as it is.
            Op::Input(_) | Op::Constant(_) | Op::Data(_) | Op::Recurrent(_) => id,
            _ if is_view(&op) => {
                let viewed = self.saved(args[0], format, known)?;
                self.rebuild(&op, &[viewed], shape, dtype)?
            }
            _ if shape.elements() < MIN_LEN => id,
            _ => self.rounded(id, format)?,
        };
        known[id.0 as usize] = Some(saved);
        Ok(saved)
    }

    /// A node, rounded if it is `f32`. Views of a value become views of the rounded value.
    fn rounded(&mut self, id: Id, format: Half) -> Result<Id, GraphError> {
        let rounding = if format == Half::Bf16 { Unary::RoundBf16 } else { Unary::RoundF16 };
        let Node { op, args, shape, dtype } = self.node(id).clone();
        if dtype != DType::F32 || op == Op::Unary(rounding) {
            return Ok(id);
        }
        if !is_view(&op) {
            return self.unary(rounding, id);
        }
        let viewed = self.rounded(args[0], format)?;
        self.rebuild(&op, &[viewed], shape, dtype)
    }
}

/// Whether an operation shows elements of its operand without computing anything.
fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Expand | Op::Permute(_) | Op::Slice { .. } | Op::Unfold(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Window;
    use crate::ops::Reduction;
    use crate::program::Program;

    /// Numbers with many significant bits.
    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + seed * 104_729) % 20_011) as f32 / 9973.0 - 1.0).collect()
    }

    /// The numbers of an input. Square matrices are scaled so that products with them keep their magnitude.
    fn input(g: &Graph, id: Id, seed: usize) -> Vec<f32> {
        let factor = match *g.shape(id) {
            [rows, columns] if rows == columns => 1.5 / (rows as f32).sqrt(),
            _ => 1.0,
        };
        numbers(g.shape(id).elements(), seed).iter().map(|x| x * factor).collect()
    }

    /// Runs a graph on such numbers. Returns the outputs in order.
    fn run(g: &Graph, program: &Program) -> Vec<Vec<f32>> {
        let mut runner = program.runner();
        for (i, (name, id)) in g.inputs().enumerate() {
            runner.write(name, &input(g, id, i)).unwrap();
        }
        runner.run();
        g.outputs().iter().map(|(name, _)| runner.read::<f32>(name).unwrap().to_vec()).collect()
    }

    /// The loss and the gradients of layers of one width, last layer first; the format of the activations, if it is not `f32`.
    fn layers(
        [rows, width, depth]: [usize; 3],
        activation: fn(&mut Graph, Id) -> Result<Id, GraphError>,
        format: Option<Half>,
    ) -> Graph {
        let mut g = Graph::new();
        let mut x = g.input("x", DType::F32, &[rows, width]).unwrap();
        let mut weights = Vec::new();
        for layer in 0..depth {
            let w = g.input(&format!("w{layer}"), DType::F32, &[width, width]).unwrap();
            let b = g.input(&format!("b{layer}"), DType::F32, &[width]).unwrap();
            x = g.matmul(x, w).unwrap();
            x = g.add(x, b).unwrap();
            x = activation(&mut g, x).unwrap();
            weights.extend([w, b]);
        }
        let square = g.square(x).unwrap();
        let loss = g.mean_all(square).unwrap();
        let gradients = match format {
            Some(format) => g.mixed_gradients(loss, &weights, format).unwrap(),
            None => g.gradients(loss, &weights).unwrap(),
        };
        g.output("loss", loss).unwrap();
        for (i, &gradient) in gradients.iter().enumerate().rev() {
            g.output(&format!("d{i}"), gradient).unwrap();
        }
        g
    }

    /// The distance of two slices, relative to the norm of the second.
    fn distance(a: &[f32], b: &[f32]) -> f64 {
        let norm = |numbers: &mut dyn Iterator<Item = f32>| {
            numbers.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
        };
        norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
    }

    #[test]
    fn the_loss_is_the_same_and_gradients_have_the_rounding_errors_of_activations() {
        for activation in [Graph::relu, Graph::tanh, Graph::gelu, Graph::silu] {
            let full = layers([96, 40, 3], activation, None);
            let exact = run(&full, &Program::new(&full).unwrap());
            for (format, bound) in [(Half::Bf16, 2f64.powi(-7)), (Half::F16, 2f64.powi(-10))] {
                let mixed = layers([96, 40, 3], activation, Some(format));
                assert_eq!(mixed.check(), Ok(()));
                let ours = run(&mixed, &Program::new(&mixed).unwrap());
                // The sum of the loss may be taken in another order.
                assert!(distance(&ours[0], &exact[0]) < 1e-6, "{ours:?}");
                let errors: Vec<f64> =
                    ours[1..].iter().zip(&exact[1..]).map(|(a, b)| distance(a, b)).collect();
                assert!(errors.iter().all(|&error| error < bound), "{format}: {errors:?}");
                assert!(errors.iter().any(|&error| error > bound / 64.0), "{format} is used: {errors:?}");
            }
        }
    }

    #[test]
    fn the_interpreter_agrees() {
        for format in Half::ALL {
            let g = layers([64, 24, 2], Graph::tanh, Some(format));
            let inputs: Vec<(String, crate::interpret::Value)> = g
                .inputs()
                .enumerate()
                .map(|(i, (name, id))| {
                    let elements = input(&g, id, i).iter().map(|&x| x.into()).collect();
                    (name.to_string(), crate::interpret::Value::float(DType::F32, g.shape(id), elements))
                })
                .collect();
            let right = g.interpret(&crate::arbitrary::named(&inputs)).unwrap();
            for (ours, right) in run(&g, &Program::new(&g).unwrap()).iter().zip(&right) {
                let right: Vec<f32> = right.to_f64().iter().map(|&x| x as f32).collect();
                // Sums in another order may round to the next 16-bit number.
                assert!(distance(ours, &right) < 1e-4, "{format}: {}", distance(ours, &right));
            }
        }
    }

    #[test]
    fn activations_of_twelve_layers_take_at_most_0_6_of_the_memory() {
        for (activation, name) in [(Graph::relu as fn(&mut Graph, Id) -> _, "relu"), (Graph::gelu, "gelu")] {
            let bytes = |format| {
                Program::new(&layers([1024, 64, 12], activation, format)).unwrap().activation_bytes() as f64
            };
            let full = bytes(None);
            for format in Half::ALL {
                let ratio = bytes(Some(format)) / full;
                assert!(ratio <= 0.6, "{name}: {ratio}");
            }
        }
    }

    /// A value that is stored in 16 bits has the same readers as one that is an input: loops on all kinds of views, matrix
    /// multiplications, and kernels of composite operations.
    #[test]
    fn stored_values_are_read_by_every_instruction() {
        let read = |g: &mut Graph, x: Id| -> Result<(), GraphError> {
            let y = g.input("y", DType::F32, &[300, 20])?;
            let transposed = g.transpose(x)?;
            let shifted = g.offset(transposed, 1.0)?;
            let slice = g.slice_by(x, 1, 3, 90, 3)?;
            let slice = g.exp(slice)?;
            let windows = g.unfold(x, Window { size: 5, stride: 2, dilation: 3 })?;
            let most = g.reduce(Reduction::Max, windows, &[2])?;
            let product = g.matmul(x, y)?;
            let wide = g.slice(product, 1, 0, 7)?;
            let other = g.matmul(transposed, wide)?;
            let softmax = g.softmax(x, 1)?;
            let padded = g.pad(x, 0, 1, 2)?;
            let both = g.concat(&[x, slice], 1)?;
            let row = g.slice(x, 0, 4, 5)?;
            let rows = g.expand(row, &[300, 300])?;
            let broadcast = g.matmul(rows, y)?;
            let sums = g.cumsum(transposed, false)?;
            let nodes = [shifted, slice, most, product, other, softmax, padded, both, broadcast, sums, x];
            nodes.iter().enumerate().try_for_each(|(i, &id)| g.output(&format!("o{i}"), id))
        };
        for format in Half::ALL {
            let (mut narrow, mut wide) = (Graph::new(), Graph::new());
            let x = narrow.input("x", DType::F32, &[400, 300]).unwrap();
            let rounded = narrow.rounded(x, format).unwrap();
            read(&mut narrow, rounded).unwrap();
            let given = wide.input("x", DType::F32, &[400, 300]).unwrap();
            read(&mut wide, given).unwrap();
            let ours = run(&narrow, &Program::new(&narrow).unwrap());
            let mut runner = Program::new(&wide).unwrap().runner();
            let mut rounded = vec![0.0; 400 * 300];
            crate::kernel::half::round(format, &numbers(400 * 300, 0), &mut rounded);
            runner.write("x", &rounded).unwrap();
            runner.write("y", &numbers(300 * 20, 1)).unwrap();
            runner.run();
            for (i, ours) in ours.iter().enumerate() {
                let right = runner.read::<f32>(&format!("o{i}")).unwrap();
                // Products of slices are added in another order.
                let is_product = [3, 4, 8].contains(&i);
                assert!(ours == right || is_product && distance(ours, right) < 1e-6, "{format}, output {i}");
            }
        }
    }

    #[test]
    fn a_loop_that_reduces_other_axes_stores_16_bits() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[30, 7, 20]).unwrap();
        let y = g.tanh(x).unwrap();
        let rounded = g.rounded(y, Half::Bf16).unwrap();
        for (i, axes) in [&[0][..], &[1], &[2], &[0, 2]].iter().enumerate() {
            let sum = g.sum(rounded, axes).unwrap();
            g.output(&format!("sum{i}"), sum).unwrap();
        }
        g.output("rounded", rounded).unwrap();
        let [sum0, sum1, sum2, sum02, rounded]: [Vec<f32>; 5] =
            run(&g, &Program::new(&g).unwrap()).try_into().unwrap();
        let at = |i: usize, j: usize, k: usize| f64::from(rounded[(i * 7 + j) * 20 + k]);
        for (i, j, k) in (0..30).flat_map(|i| (0..7).flat_map(move |j| (0..20).map(move |k| (i, j, k)))) {
            let expected = [
                (sum0[j * 20 + k], (0..30).map(|i| at(i, j, k)).sum::<f64>()),
                (sum1[i * 20 + k], (0..7).map(|j| at(i, j, k)).sum()),
                (sum2[i * 7 + j], (0..20).map(|k| at(i, j, k)).sum()),
                (
                    sum02[j],
                    (0..30).flat_map(|i| (0..20).map(move |k| (i, k))).map(|(i, k)| at(i, j, k)).sum(),
                ),
            ];
            assert!(expected.iter().all(|&(ours, right)| (f64::from(ours) - right).abs() < 1e-4));
        }
    }

    #[test]
    fn the_gradient_of_a_maximum_has_a_place_for_every_window() {
        // The maxima are fewer than `MIN_LEN`, and the operand is an input.
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[40, 60]).unwrap();
        let most = g.reduce(Reduction::Max, x, &[1]).unwrap();
        let loss = g.sum_all(most).unwrap();
        let gradient = g.mixed_gradients(loss, &[x], Half::Bf16).unwrap()[0];
        g.output("dx", gradient).unwrap();
        let gradient = &run(&g, &Program::new(&g).unwrap())[0];
        for row in gradient.chunks(60) {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{row:?}");
        }
    }
}
