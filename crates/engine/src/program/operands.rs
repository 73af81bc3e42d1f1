//! Second operands that a runner packs once.
//!
//! A matrix multiplication packs its second operand into panels. If that is an input which only matrix multiplications read,
//! a runner keeps the panels and packs again only after the input was written: inference with constant weights packs nothing.
//! For a single row the operand is not packed; then a runner remembers whether it is finite, because rows of it for activations
//! that are 0 can be skipped in that case.

use crate::kernel::matmul::{Epilogue, Gemm, PreparedRhs, multiply_prepared};

use super::{Matrix, Program};
use crate::instruction::{Instruction, Memory, Stored as _};

/// The second operand of one matrix multiplication.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    /// The matrix multiplication, by its index in the program.
    pub instruction: usize,
    /// The input that holds the operand, by its index.
    input: usize,
    shapes: Gemm,
    epilogue: Option<Epilogue>,
    panels: PreparedRhs,
    state: State,
}

/// Whether packed elements are up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The input was written since it was packed.
    Written,
    /// It was used once since it was written. Unpacked operands are checked for being finite in the second use, because for one
    /// use it does not pay.
    Used,
    /// The panels hold the elements of the input.
    Packed,
}

impl Operand {
    /// The operands of all matrix multiplications of a program for which packing pays.
    pub fn of(program: &Program) -> Vec<Operand> {
        let mut all = Vec::new();
        for (input, port) in program.inputs.iter().enumerate() {
            let second = port.matrices.iter().flatten().filter(|matrix| matrix.operand == 1);
            for &Matrix { instruction, .. } in second {
                let Instruction::MatMul(matmul) = &program.instructions[instruction] else { continue };
                let Some((shapes, epilogue)) = matmul.single() else { continue };
                let Some(panels) = PreparedRhs::new(&shapes) else { continue };
                all.push(Operand { instruction, input, shapes, epilogue, panels, state: State::Written });
            }
        }
        all.sort_by_key(|operand| operand.instruction);
        all
    }

    /// Marks the operand as written if it is that of an input.
    pub fn invalidate(&mut self, input: usize) {
        if self.input == input {
            self.state = State::Written;
        }
    }

    /// Runs the matrix multiplication.
    pub fn multiply(&mut self, memory: &mut Memory) {
        let memory = f32::arena_mut(memory);
        let Operand { shapes, epilogue, panels, state, .. } = self;
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
}

#[cfg(test)]
mod tests {
    use super::State;
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
            runner.operands.len() == 2
                && runner.operands.iter().all(|operand| operand.state == State::Packed)
        );
        runner.write("w", &unit.map(|x| 2.0 * x)).unwrap();
        let states: Vec<State> = runner.operands.iter().map(|operand| operand.state).collect();
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
                assert_eq!(runner.operands[0].state, state);
                let y = runner.read::<f32>("y").unwrap();
                assert!(y[0] == right || y[0].is_nan() && right.is_nan(), "{first}: {y:?}");
                assert_eq!(y[1..], [8.0, 10.0]);
            }
        }
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
        assert!(runner.operands.is_empty());
    }
}
