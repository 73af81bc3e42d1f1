//! Weights that are packed once.
//!
//! A product brings its second operand into panels before it multiplies. Where that is an input which only products read,
//! a runner keeps the panels, and packs again only after the input was written: forecasts of dense networks with the same
//! weights pack nothing. The weights of a single row are read as they lie; of those a runner remembers whether they are all
//! finite, because then rows that meet a 0 need not be read. On request the panels hold 8-bit integers.

use crate::kernel::int8::{self, Activations};
use crate::kernel::matmul::{Epilogue, Outside, Panels, Shapes, multiply_outside, multiply_panels};

use super::memory::{Memory, Stored};
use super::{Instruction, Program, Runner};

/// The weights of one product.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The product, among the kernels.
    pub kernel: usize,
    /// The input, among the inputs.
    input: usize,
    shapes: Shapes,
    epilogue: Option<Epilogue>,
    form: Form,
    state: State,
}

/// How weights are held.
#[derive(Clone, Debug)]
enum Form {
    Panels(Panels),
    Int8(Box<Quantized>),
}

/// Weights of 8 bits, and memory for what they are multiplied with.
#[derive(Clone, Debug, Default)]
struct Quantized {
    /// None if a weight is not finite: then the product is that of the numbers as they are.
    weights: Option<int8::Weights>,
    activations: Activations,
    bias: Vec<f32>,
}

/// What is known of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: it was written.
    Written,
    /// Nothing, but it was multiplied with since. Only then a look at weights that are read as they lie is worth its time.
    Used,
    /// The panels hold what the input holds.
    Packed,
}

impl Runner {
    /// From now on multiplies weights as 8-bit integers with a scale for each output, and activations with a scale for each
    /// row (see [`kernel::int8`](crate::kernel::int8)): those products of `f32` whose second matrix is an input that nothing
    /// but products read. Returns how many these are. A product with weights that are not finite stays as it is.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph, Program};
    ///
    /// let mut g = Graph::new();
    /// let (x, w) = (g.input("x", DType::F32, &[1, 2])?, g.input("w", DType::F32, &[2, 2])?);
    /// let y = g.matmul(x, w)?;
    /// g.output("y", y)?;
    /// let mut runner = Program::new(&g)?.runner();
    /// assert_eq!(runner.quantize(), 1);
    /// runner.write("x", &[1.0f32, 0.5])?;
    /// runner.write("w", &[1.0f32, 2.0, -1.0, 4.0])?;
    /// runner.run();
    /// let y = runner.read::<f32>("y")?;
    /// assert!((y[0] - 0.5).abs() < 0.02 && (y[1] - 4.0).abs() < 0.05);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quantize(&mut self) -> usize {
        self.weights = Weights::with(&self.program, int8_form);
        self.weights.len()
    }
}

/// Panels, where they are worth it.
fn panels(shapes: &Shapes) -> Option<Form> {
    Panels::of(shapes).map(Form::Panels)
}

/// 8-bit integers, where rows of the first matrix and of the result are contiguous and sums cannot overflow.
fn int8_form(shapes: &Shapes) -> Option<Form> {
    let [_, n, k] = shapes.sizes;
    let fits = shapes.a.1[1] == 1 && shapes.out.1[1] == 1 && !shapes.accumulate;
    (fits && n > 0 && (1..=int8::MOST_INPUTS).contains(&k)).then(|| Form::Int8(Box::default()))
}

impl Weights {
    /// Those of all products of a program whose second operand is an input that is nothing else, where packing pays.
    pub fn of(program: &Program) -> Vec<Weights> {
        Weights::with(program, panels)
    }

    /// The same, where they have a form.
    fn with(program: &Program, form: fn(&Shapes) -> Option<Form>) -> Vec<Weights> {
        let mut all = Vec::new();
        for (input, port) in program.inputs.iter().enumerate() {
            let Some(matrices) = &port.matrices else { continue };
            for &(kernel, _) in matrices.iter().filter(|&&(_, matrix)| matrix == 1) {
                let Instruction::MatMul(products) = &program.kernels[kernel].1 else { continue };
                let Some((shapes, epilogue)) = products.single() else { continue };
                let Some(form) = form(&shapes) else { continue };
                all.push(Weights { kernel, input, shapes, epilogue, form, state: State::Written });
            }
        }
        all.sort_by_key(|weights| weights.kernel);
        all
    }

    /// Takes note that an input was written.
    pub fn written(&mut self, input: usize) {
        if self.input == input {
            self.state = State::Written;
        }
    }

    /// Runs the product.
    pub fn multiply(&mut self, memory: &mut Memory) {
        let memory = f32::arena_mut(memory);
        let Weights { shapes, epilogue, form, state, .. } = self;
        match form {
            Form::Panels(panels) => {
                *state = match *state {
                    State::Written if panels.is_as_it_lies() => {
                        panels.forget();
                        State::Used
                    }
                    State::Written | State::Used => {
                        panels.pack(memory, shapes);
                        State::Packed
                    }
                    State::Packed => State::Packed,
                };
                multiply_panels(memory, shapes, *epilogue, panels);
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
    fn pack(&mut self, memory: &[f32], shapes: &Shapes) {
        let ([_, n, k], (b, [by_input, by_output])) = (shapes.sizes, shapes.b);
        let weight = |output: usize, input: usize| memory[b + input * by_input + output * by_output];
        self.weights = int8::Weights::quantize_by(n, k, weight).ok();
    }

    fn multiply(&mut self, memory: &mut [f32], shapes: &Shapes, epilogue: Option<Epilogue>) {
        let Quantized { weights, activations, bias } = self;
        let Some(weights) = weights else {
            let inside = Outside { from: &[], to: &mut [], elsewhere: [None; 3] };
            return multiply_outside(memory, std::slice::from_ref(shapes), epilogue, inside);
        };
        let Shapes { sizes: [m, n, k], a: (a, [by_row, _]), out: (out, [stride, _]), .. } = *shapes;
        bias.clear();
        bias.extend_from_slice(epilogue.map_or(&[], |epilogue| &memory[epilogue.bias..][..n]));
        let bias = epilogue.map(|_| &bias[..]);
        let relu = epilogue.is_some_and(|epilogue| epilogue.relu);
        for first in (0..m).step_by(int8::ROWS) {
            activations.clear();
            for row in first..m.min(first + int8::ROWS) {
                activations.push(&memory[a + row * by_row..][..k]);
            }
            weights.multiply_quantized(activations, bias, relu, &mut memory[out + first * stride..], stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::kernel::half::Half;
    use crate::{DType, Graph, Program};

    #[test]
    fn weights_are_packed_once_and_again_when_they_change() {
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
        runner.write_half("v", Half::F16, &[0x3c00, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        runner.run_timed();
        assert_eq!(runner.read::<f32>("z").unwrap()[..4], [0.0, 0.0, 0.0, 6.0]);
    }

    /// 0 times infinity is no number, also if the weights of a single row were finite before.
    #[test]
    fn weights_of_a_single_row_are_looked_through_again_when_they_change() {
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
    fn quantized_weights_give_almost_the_same_and_follow_what_is_written() {
        for batch in [1, 2, 5, 70] {
            let (g, inputs) = layers(batch);
            let program = Program::new(&g).unwrap();
            let [mut exact, mut rounded] = [0, 1].map(|_| program.runner());
            assert_eq!(rounded.quantize(), 2, "both products");
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
                assert!(most > 0.2 && error < 0.02 * most && error > 0.0, "{batch}: {error} of {most}");
            }
        }
    }

    #[test]
    fn weights_that_are_not_finite_are_multiplied_as_they_are() {
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

    /// An input that is also something else than a second operand is not packed: it is no input that only products read.
    #[test]
    fn what_is_read_otherwise_is_multiplied_as_it_lies() {
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
