//! Weights that are packed once.
//!
//! A matrix multiplication packs its second operand into panels. If that is an input which only matrix multiplications read,
//! a runner keeps the panels and packs again only after the input was written: inference with constant weights packs nothing.
//! For a single row the weights are not packed; then a runner remembers whether they are all finite, because rows of weights
//! for activations that are 0 can be skipped in that case. On request the panels hold 8-bit integers.

use crate::kernel::int8::{self, Activations};
use crate::kernel::matmul::{
    Epilogue, ExternalSlices, Gemm, PreparedRhs, multiply_external, multiply_prepared, span,
};

use super::{Matrix, Program, Runner};
use crate::instruction::{Instruction, Memory, Stored as _};
use crate::parallel;

/// The weights of one matrix multiplication.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The matrix multiplication, by its index in the program.
    pub instruction: usize,
    /// The input that holds the weights, by its index.
    input: usize,
    shapes: Gemm,
    epilogue: Option<Epilogue>,
    form: Form,
    state: State,
}

/// The format of packed weights.
#[derive(Clone, Debug)]
enum Form {
    Panels(PreparedRhs),
    Int8(Box<Quantized>),
}

/// 8-bit weights, and memory for activations.
#[derive(Clone, Debug, Default)]
struct Quantized {
    /// `None` if a weight is not finite; then the product is computed in `f32`.
    weights: Option<int8::Weights>,
    /// One entry for every [`int8::CHUNK_ROWS`] rows.
    activations: Vec<Activations>,
    bias: Vec<f32>,
}

/// Whether packed weights are up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The input was written since it was packed.
    Written,
    /// It was used once since it was written. Unpacked weights are checked for being finite in the second use, because for one
    /// use it does not pay.
    Used,
    /// The panels hold the elements of the input.
    Packed,
}

impl Runner {
    /// Quantises weights: [`Runner::run`] multiplies them as 8-bit integers from now on, with a scale for each output, and
    /// activations with a scale for each row (see [`kernel::int8`](crate::kernel::int8)). Weights are `f32` inputs that are
    /// used as whole second operands of matrix multiplications only; their names are returned. Weights that are not finite are
    /// multiplied in `f32`, and so are all weights on processors without 8-bit dot products.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph, Program};
    ///
    /// let mut g = Graph::new();
    /// let (x, w) = (g.input("x", DType::F32, &[1, 2])?, g.input("w", DType::F32, &[2, 2])?);
    /// let y = g.matmul(x, w)?;
    /// g.output("y", y)?;
    /// let mut runner = Program::new(&g)?.runner();
    /// let names = runner.quantize();
    /// assert!(names == ["w"] || names.is_empty());
    /// runner.write("x", &[1.0f32, 0.5])?;
    /// runner.write("w", &[1.0f32, 2.0, -1.0, 4.0])?;
    /// runner.run();
    /// let y = runner.read::<f32>("y")?;
    /// assert!((y[0] - 0.5).abs() < 0.02 && (y[1] - 4.0).abs() < 0.05);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quantize(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for (input, port) in self.program.inputs.iter().enumerate().filter(|_| int8::is_fast()) {
            let readers = readers(&self.program, input);
            let is_whole = |shapes: &Gemm| shapes.sizes[1] * shapes.sizes[2] == port.shape.elements();
            let fits = |reader: &Reader| {
                reader.is_second
                    && reader.product.is_some_and(|(shapes, _)| fits_int8(&shapes) && is_whole(&shapes))
            };
            if readers.is_empty() || !readers.iter().all(fits) {
                continue;
            }
            for Reader { instruction, product, .. } in readers {
                let Some((shapes, epilogue)) = product else { continue };
                let form = Form::Int8(Box::default());
                self.weights.retain(|weights| weights.instruction != instruction);
                self.weights.push(Weights {
                    instruction,
                    input,
                    shapes,
                    epilogue,
                    form,
                    state: State::Written,
                });
            }
            names.push(port.name.clone());
        }
        self.weights.sort_by_key(|weights| weights.instruction);
        names
    }
}

/// A matrix multiplication that reads an input.
struct Reader {
    instruction: usize,
    /// Whether the input is the second operand.
    is_second: bool,
    /// The product, if the batch has one only.
    product: Option<(Gemm, Option<Epilogue>)>,
}

/// The readers of an input, if it is read by matrix multiplications only.
fn readers(program: &Program, input: usize) -> Vec<Reader> {
    let reader = |&Matrix { instruction, operand }: &Matrix| {
        let product = match &program.instructions[instruction] {
            Instruction::MatMul(matmul) => matmul.single(),
            _ => None,
        };
        Reader { instruction, is_second: operand == 1, product }
    };
    program.inputs[input].matrices.iter().flatten().map(reader).collect()
}

/// Whether a product can be computed with 8-bit integers: rows of the result are contiguous, the first operand and the result
/// are disjoint, and sums cannot overflow.
fn fits_int8(shapes: &Gemm) -> bool {
    let Gemm { sizes: [m, n, k], a: (a, a_strides), out: (out, strides), accumulate, .. } = *shapes;
    let (a_end, out_end) = (a + span(m, k, a_strides), out + span(m, n, strides));
    strides[1] == 1
        && !accumulate
        && (a_end <= out || out_end <= a)
        && (1..=int8::MAX_INPUTS).contains(&k)
        && (1..=int8::MAX_OUTPUTS).contains(&n)
}

impl Weights {
    /// The weights of all matrix multiplications of a program for which packing pays.
    pub fn of(program: &Program) -> Vec<Weights> {
        let mut all = Vec::new();
        for input in 0..program.inputs.len() {
            for Reader { instruction, is_second, product } in readers(program, input) {
                let Some((shapes, epilogue)) = product.filter(|_| is_second) else { continue };
                let Some(panels) = PreparedRhs::new(&shapes) else { continue };
                let form = Form::Panels(panels);
                all.push(Weights { instruction, input, shapes, epilogue, form, state: State::Written });
            }
        }
        all.sort_by_key(|weights| weights.instruction);
        all
    }

    /// Marks the weights as written if they are those of an input.
    pub fn invalidate(&mut self, input: usize) {
        if self.input == input {
            self.state = State::Written;
        }
    }

    /// Runs the matrix multiplication.
    pub fn multiply(&mut self, memory: &mut Memory) {
        let memory = f32::arena_mut(memory);
        let Weights { shapes, epilogue, form, state, .. } = self;
        match form {
            Form::Panels(panels) => {
                *state = match *state {
                    State::Written if panels.is_unpacked() => {
                        panels.forget();
                        State::Used
                    }
                    State::Written | State::Used => {
                        panels.pack(memory, shapes);
                        State::Packed
                    }
                    State::Packed => State::Packed,
                };
                multiply_prepared(memory, shapes, *epilogue, panels);
            }
            Form::Int8(quantized) => {
                if *state != State::Packed {
                    quantized.pack(memory, shapes);
                    *state = State::Packed;
                }
                quantized.multiply(memory, shapes, *epilogue);
            }
        }
    }
}

impl Quantized {
    fn pack(&mut self, memory: &[f32], shapes: &Gemm) {
        let ([_, n, k], (b, [by_input, by_output])) = (shapes.sizes, shapes.b);
        let weight = |output: usize, input: usize| memory[b + input * by_input + output * by_output];
        self.weights = int8::Weights::quantize_by(n, k, weight).ok();
    }

    fn multiply(&mut self, memory: &mut [f32], shapes: &Gemm, epilogue: Option<Epilogue>) {
        let Quantized { weights, activations, bias } = self;
        let Some(weights) = weights else {
            let inside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
            return multiply_external(memory, std::slice::from_ref(shapes), epilogue, inside);
        };
        let Gemm { sizes: [m, n, k], a: (a, [by_row, by_column]), out: (out, [stride, _]), .. } = *shapes;
        bias.clear();
        bias.extend_from_slice(epilogue.map_or(&[], |epilogue| &memory[epilogue.bias..][..n]));
        let bias = epilogue.map(|_| &bias[..]);
        let relu = epilogue.is_some_and(|epilogue| epilogue.relu);
        activations.resize_with(m.div_ceil(int8::CHUNK_ROWS), Activations::default);
        // Rows and results are disjoint (`fits_int8`).
        let (rows, out) = if a < out {
            let (before, after) = memory.split_at_mut(out);
            (&before[a..], after)
        } else {
            let (before, after) = memory.split_at_mut(a);
            (&*after, &mut before[out..])
        };
        let len = ((m.max(1) - 1) * stride + n).min(out.len());
        parallel::for_each_chunk(
            &mut out[..len],
            int8::CHUNK_ROWS * stride,
            activations,
            |chunk, out, activations| {
                let first = chunk * int8::CHUNK_ROWS;
                activations.clear(k);
                for row in first..m.min(first + int8::CHUNK_ROWS) {
                    let from = &rows[row * by_row..];
                    if by_column == 1 {
                        activations.push(&from[..k]);
                    } else {
                        activations.push_strided(from, by_column);
                    }
                }
                weights.multiply_quantized(activations, bias, relu, out, stride);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{State, int8};
    use crate::{DType, Graph, Program};

    #[test]
    fn weights_are_packed_again_only_when_they_change() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[6, 3]).unwrap();
        let [w, v] = ["w", "v"].map(|name| g.input(name, DType::F32, &[3, 3]).unwrap());
        let y = g.matmul(x, w).unwrap();
        let z = g.matmul(y, v).unwrap();
        g.output("z", z).unwrap();
        let mut runner = Program::new(&g).unwrap().runner();
        let unit = [1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let x: Vec<f32> = (0..18).map(|i| i as f32).collect();
        runner.write("x", &x).unwrap();
        runner.write("w", &unit).unwrap();
        runner.write("v", &unit).unwrap();
        runner.run();
        assert_eq!(runner.read::<f32>("z").unwrap(), x);
        assert!(
            runner.weights.len() == 2 && runner.weights.iter().all(|weights| weights.state == State::Packed)
        );
        runner.write("w", &unit.map(|x| 2.0 * x)).unwrap();
        let states: Vec<State> = runner.weights.iter().map(|weights| weights.state).collect();
        assert_eq!(states, [State::Written, State::Packed]);
        runner.run();
        assert!(runner.read::<f32>("z").unwrap().iter().zip(&x).all(|(z, x)| *z == 2.0 * x));
        runner.write("v", &[1.0f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
        runner.run_timed();
        assert_eq!(runner.read::<f32>("z").unwrap()[..4], [0.0, 0.0, 0.0, 6.0]);
    }

    /// 0 times infinity is NaN, also if the weights were finite before.
    #[test]
    fn weights_for_a_single_row_are_checked_again_when_they_change() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[1, 2]).unwrap();
        let w = g.input("w", DType::F32, &[2, 3]).unwrap();
        let y = g.matmul(x, w).unwrap();
        g.output("y", y).unwrap();
        let mut runner = Program::new(&g).unwrap().runner();
        runner.write("x", &[0.0f32, 2.0]).unwrap();
        for (first, right) in [(1.0f32, 6.0), (f32::INFINITY, f32::NAN), (-3.0, 6.0), (f32::NAN, f32::NAN)] {
            runner.write("w", &[first, 1.0, 1.0, 3.0, 4.0, 5.0]).unwrap();
            for state in [State::Used, State::Packed, State::Packed] {
                runner.run();
                assert_eq!(runner.weights[0].state, state);
                let y = runner.read::<f32>("y").unwrap();
                assert!(y[0] == right || y[0].is_nan() && right.is_nan(), "{first}: {y:?}");
                assert_eq!(y[1..], [8.0, 10.0]);
            }
        }
    }

    /// A network of two layers, and its inputs.
    fn layers(batch: usize) -> (Graph, Vec<(&'static str, Vec<f32>)>) {
        let mut g = Graph::new();
        let number = |seed: usize, i: usize| ((i * 7919 + seed * 31) % 1013) as f32 / 506.5 - 1.0;
        let (mut y, mut inputs) = (g.input("x", DType::F32, &[batch, 37]).unwrap(), Vec::new());
        inputs.push(("x", (0..batch * 37).map(|i| number(1, i)).collect()));
        for (names, sizes) in [(["v", "b"], [37, 50]), (["w", "c"], [50, 21])] {
            let w = g.input(names[0], DType::F32, &sizes).unwrap();
            let b = g.input(names[1], DType::F32, &sizes[1..]).unwrap();
            y = g.matmul(y, w).unwrap();
            y = g.add(y, b).unwrap();
            y = g.relu(y).unwrap();
            inputs.push((names[0], (0..sizes[0] * sizes[1]).map(|i| number(sizes[0], i) / 6.0).collect()));
            inputs.push((names[1], (0..sizes[1]).map(|i| number(7, i)).collect()));
        }
        g.output("y", y).unwrap();
        (g, inputs)
    }

    #[test]
    fn quantized_weights_are_close_and_follow_writes() {
        for batch in [1, 2, 5, 70] {
            let (g, inputs) = layers(batch);
            let program = Program::new(&g).unwrap();
            let [mut exact, mut rounded] = [0, 1].map(|_| program.runner());
            assert!(rounded.quantize() == ["v", "w"] || !int8::is_fast(), "both products");
            for factor in [1.0f32, -0.5] {
                for (name, values) in &inputs {
                    let scaled: Vec<f32> = values.iter().map(|x| x * factor).collect();
                    exact.write(name, &scaled).unwrap();
                    rounded.write(name, &scaled).unwrap();
                }
                exact.run();
                rounded.run();
                let [exact, rounded] = [&exact, &rounded].map(|runner| runner.read::<f32>("y").unwrap());
                let most = exact.iter().fold(0.0f32, |most, x| most.max(*x));
                let error = exact.iter().zip(rounded).fold(0.0f32, |most, (x, y)| most.max((x - y).abs()));
                assert!(
                    most > 0.2 && error < 0.02 * most && (error > 0.0 || !int8::is_fast()),
                    "{batch}: {error} of {most}"
                );
            }
        }
    }

    /// NaN and infinity propagate through several layers.
    #[test]
    fn nonfinite_activations_propagate() {
        let (g, inputs) = layers(4);
        let mut runner = Program::new(&g).unwrap().runner();
        runner.quantize();
        for bad in [f32::NAN, f32::INFINITY] {
            for (name, values) in &inputs {
                let mut values = values.clone();
                if *name == "x" {
                    values[5] = bad;
                }
                runner.write(name, &values).unwrap();
            }
            runner.run();
            let y = runner.read::<f32>("y").unwrap();
            assert!(y[..21].iter().all(|y| !y.is_finite()) && y[21..].iter().all(|y| y.is_finite()));
        }
    }

    #[test]
    fn quantized_products_have_the_same_bits_on_any_number_of_threads() {
        let (g, inputs) = layers(300);
        let results = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut runner = Program::new(&g).unwrap().runner();
                runner.quantize();
                for (name, values) in &inputs {
                    runner.write(name, values).unwrap();
                }
                runner.run();
                runner.read::<f32>("y").unwrap().to_vec()
            })
        });
        assert!(results.iter().all(|result| *result == results[0]));
    }

    /// Only whole inputs: whether slices could be quantised would depend on the batch.
    #[test]
    fn slices_of_weights_are_not_quantized() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[5, 4]).unwrap();
        let w = g.input("w", DType::F32, &[8, 3]).unwrap();
        let part = g.slice(w, 0, 4, 8).unwrap();
        let y = g.matmul(x, part).unwrap();
        g.output("y", y).unwrap();
        let mut runner = Program::new(&g).unwrap().runner();
        assert!(runner.quantize().is_empty());
        assert_eq!(runner.weights.len(), 1, "its panels are kept");
    }

    #[test]
    fn nonfinite_weights_are_multiplied_in_f32() {
        let (g, inputs) = layers(4);
        let mut runner = Program::new(&g).unwrap().runner();
        runner.quantize();
        for (name, values) in &inputs {
            runner.write(name, values).unwrap();
        }
        runner.write("w", &[f32::NAN; 50 * 21]).unwrap();
        runner.run();
        assert!(runner.read::<f32>("y").unwrap().iter().all(|y| y.is_nan()));
    }

    /// Only inputs that are read by matrix multiplications alone are packed.
    #[test]
    fn weights_with_other_readers_are_not_packed() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 4]).unwrap();
        let w = g.input("w", DType::F32, &[4, 4]).unwrap();
        let y = g.matmul(x, w).unwrap();
        let z = g.add(y, w).unwrap();
        g.output("z", z).unwrap();
        let runner = Program::new(&g).unwrap().runner();
        assert!(runner.weights.is_empty());
    }
}
