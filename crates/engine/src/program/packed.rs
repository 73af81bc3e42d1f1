//! Weights that are packed once.
//!
//! A product brings its second operand into panels before it multiplies. Where that is an input which only products read,
//! a runner keeps the panels, and packs again only after the input was written: forecasts with the same weights pack
//! nothing.

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
    /// Whether the panels hold what the input holds.
    packed: bool,
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
                all.push(Weights { kernel, input, shapes, epilogue, panels, packed: false });
            }
        }
        all.sort_by_key(|weights| weights.kernel);
        all
    }

    /// Takes note that an input was written.
    pub fn written(&mut self, input: usize) {
        self.packed &= self.input != input;
    }

    /// Runs the product.
    pub fn multiply(&mut self, memory: &mut Memory) {
        let memory = f32::arena_mut(memory);
        if !self.packed {
            self.panels.pack(memory, &self.shapes);
            self.packed = true;
        }
        multiply_panels(memory, &self.shapes, self.epilogue, &self.panels);
    }
}

#[cfg(test)]
mod tests {
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
        assert!(runner.weights.len() == 2 && runner.weights.iter().all(|weights| weights.packed));
        runner.write("w", &unit.map(|x| 2.0 * x)).unwrap();
        let packed: Vec<bool> = runner.weights.iter().map(|weights| weights.packed).collect();
        assert_eq!(packed, [false, true]);
        runner.run();
        assert!(runner.read::<f32>("z").unwrap().iter().zip(&x).all(|(z, x)| *z == 2.0 * x));
        runner.write_half("v", Half::F16, &[0x3c00, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        runner.run_timed();
        assert_eq!(runner.read::<f32>("z").unwrap()[..4], [0.0, 0.0, 0.0, 6.0]);
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
