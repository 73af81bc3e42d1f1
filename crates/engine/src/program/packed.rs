//! Weights that are packed once.
//!
//! A product brings its second operand into panels before it multiplies. Where that is an input which only products read,
//! a runner keeps the panels, and packs again only after the input was written: forecasts of dense networks with the same
//! weights pack nothing. The weights of a single row are read as they lie; of those a runner remembers whether they are all
//! finite, because then rows that meet a 0 need not be read.

use crate::kernel::matmul::{Epilogue, Panels, Shapes, multiply_panels};

use super::memory::{Memory, Stored};
use super::{Instruction, Program};

/// The panels of one product.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The product, among the kernels.
    pub kernel: usize,
    /// The input, among the inputs.
    input: usize,
    shapes: Shapes,
    epilogue: Option<Epilogue>,
    panels: Panels,
    state: State,
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

impl Weights {
    /// Those of all products of a program whose second operand is an input that is nothing else.
    pub fn of(program: &Program) -> Vec<Weights> {
        let mut all = Vec::new();
        for (input, port) in program.inputs.iter().enumerate() {
            let Some(matrices) = &port.matrices else { continue };
            for &(kernel, _) in matrices.iter().filter(|&&(_, matrix)| matrix == 1) {
                let Instruction::MatMul(products) = &program.kernels[kernel].1 else { continue };
                let Some((shapes, epilogue)) = products.single() else { continue };
                let Some(panels) = Panels::of(&shapes) else { continue };
                all.push(Weights { kernel, input, shapes, epilogue, panels, state: State::Written });
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
        self.state = match self.state {
            State::Written if self.panels.is_as_it_lies() => {
                self.panels.forget();
                State::Used
            }
            State::Written | State::Used => {
                self.panels.pack(memory, &self.shapes);
                State::Packed
            }
            State::Packed => State::Packed,
        };
        multiply_panels(memory, &self.shapes, self.epilogue, &self.panels);
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
