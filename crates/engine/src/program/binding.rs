//! Inputs and outputs in slices of the caller.
//!
//! A training step reads every parameter and writes every gradient once. Ports that are used by matrix multiplications only
//! are read and written in the slices of the caller, without a copy; the others, mostly biases, are copied.

use std::ops::Range;

use crate::dtype::DType;
use crate::instruction::{Instruction, Stored as _};
use crate::kernel::matmul::{ExternalRange, ExternalSlices};
use crate::plan::Plan;

use super::{Matrix, Port, ProgramError, Runner, check, find};

/// The places of ports in the slices of the caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings {
    /// Matrix multiplications with matrices in the slices, in order.
    pub matmuls: Vec<(usize, [Option<ExternalRange>; 3])>,
    /// Inputs and outputs that are copied.
    pub copied: [Vec<ExternalRange>; 2],
    /// Least lengths of the slices.
    pub lengths: [usize; 2],
}

/// The matrices that are in a buffer; `None` if it is used by anything but `f32` matrix multiplications.
pub(super) fn matrices(plan: &Plan, buffer: usize) -> Option<Vec<Matrix>> {
    let mut found = Vec::new();
    for (index, _) in plan.touched.iter().enumerate().filter(|(_, touched)| touched.contains(&buffer)) {
        let Instruction::MatMul(matmul) = &plan.instructions[index] else { return None };
        let views = [&matmul.a, &matmul.b, &matmul.out];
        let operands = (0..3).filter(|&operand| views[operand].buffer == buffer);
        found.extend(operands.map(|operand| Matrix { instruction: index, operand }));
        let is_bias = matmul.bias.as_ref().is_some_and(|bias| bias.row.buffer == buffer);
        if is_bias || matmul.out.dtype != DType::F32 {
            return None;
        }
    }
    Some(found)
}

/// A range as an ordered one: empty if it ends before it starts.
pub(super) fn ordered(range: &Range<usize>) -> Range<usize> {
    range.start.min(range.end)..range.end
}

impl Port {
    /// The matrices of an input (side 0) or output (side 1) that can be in a slice of the caller; `None` if it is copied.
    pub(super) fn bindable(&self, side: usize, ports: &[Port]) -> Option<&[Matrix]> {
        // Inputs are only read from their slice, outputs only written to theirs.
        let own = if side == 0 { 0..2 } else { 2..3 };
        // Equal outputs with two names are one buffer, which is written once.
        let is_one = side == 0 || ports.iter().filter(|other| other.offset == self.offset).count() == 1;
        let matrices = self.matrices.as_deref().filter(|_| is_one)?;
        matrices.iter().all(|matrix| own.contains(&matrix.operand)).then_some(matrices)
    }
}

impl Bindings {
    /// Adds an input (side 0) or output (side 1); `all` are the ports of that side.
    pub(super) fn add(&mut self, port: &Port, range: &Range<usize>, side: usize, all: &[Port]) {
        let Some(inside) = port.offset else { return };
        let place = ExternalRange { inside, outside: range.start, len: range.len() };
        self.lengths[side] = self.lengths[side].max(range.end);
        let Some(matrices) = port.bindable(side, all) else {
            self.copied[side].push(place);
            return;
        };
        for &Matrix { instruction, operand } in matrices {
            let known = self.matmuls.iter().position(|(index, _)| *index == instruction);
            let known = known.unwrap_or_else(|| {
                self.matmuls.push((instruction, [None; 3]));
                self.matmuls.len() - 1
            });
            self.matmuls[known].1[operand] = Some(place);
        }
    }
}

impl Runner {
    /// Binds `f32` inputs and outputs to ranges of the slices that [`Runner::run_bound`] is given. Other ports are written and
    /// read as usual.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph, Program};
    ///
    /// let mut g = Graph::new();
    /// let (x, w) = (g.input("x", DType::F32, &[1, 2])?, g.input("w", DType::F32, &[2, 2])?);
    /// let y = g.matmul(x, w)?;
    /// g.output("y", y)?;
    /// let mut runner = Program::new(&g)?.runner();
    /// runner.bind(&[("w", 1..5)], &[("y", 0..2)])?;
    /// runner.write("x", &[1.0f32, 10.0])?;
    /// let mut to = [0.0; 2];
    /// runner.run_bound(&[9.0, 1.0, 2.0, 3.0, 4.0], Some(&mut to))?;
    /// assert_eq!(to, [31.0, 42.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(
        &mut self,
        inputs: &[(&str, Range<usize>)],
        outputs: &[(&str, Range<usize>)],
    ) -> Result<(), ProgramError> {
        self.check_unshared()?;
        let mut bindings = Bindings::default();
        for (name, range) in inputs {
            let (_, port) = find("input", &self.program.inputs, name)?;
            check::<f32>(port, range.len())?;
            bindings.add(port, &ordered(range), 0, &self.program.inputs);
        }
        for (name, range) in outputs {
            let (_, port) = find("output", &self.program.outputs, name)?;
            check::<f32>(port, range.len())?;
            bindings.add(port, &ordered(range), 1, &self.program.outputs);
        }
        bindings.matmuls.sort_by_key(|(instruction, _)| *instruction);
        self.bindings = bindings;
        Ok(())
    }

    /// Like [`Runner::run`], but reads bound inputs from `from` and writes bound outputs to `to`. Without `to`, outputs are in the
    /// runner.
    pub fn run_bound(&mut self, from: &[f32], to: Option<&mut [f32]>) -> Result<(), ProgramError> {
        self.check_unshared()?;
        let [read, written] = self.bindings.lengths;
        let given = to.as_ref().map_or(written, |to| to.len());
        for (found, wanted) in [(from.len(), read), (given, written)] {
            if found < wanted {
                return Err(ProgramError::ShortSlice { wanted, found });
            }
        }
        let Runner { program, memory, scratch, bindings, .. } = self;
        for place in &bindings.copied[0] {
            f32::arena_mut(memory)[place.inside..][..place.len]
                .copy_from_slice(&from[place.outside..][..place.len]);
        }
        let (inside, to) = (to.is_none(), to.unwrap_or_default());
        let mut bound = bindings.matmuls.iter().peekable();
        for (index, instruction) in program.instructions.iter().enumerate() {
            match (instruction, bound.next_if(|(bound, _)| *bound == index)) {
                (Instruction::MatMul(matmul), Some((_, [a, b, out]))) => {
                    let elsewhere = [*a, *b, out.filter(|_| !inside)];
                    matmul.run_outside(memory, ExternalSlices { from, to: &mut *to, external: elsewhere });
                }
                _ => instruction.get().run(memory, scratch),
            }
        }
        for place in bindings.copied[1].iter().filter(|_| !inside) {
            to[place.outside..][..place.len]
                .copy_from_slice(&f32::arena(memory)[place.inside..][..place.len]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, Program};

    /// Two layers with a loss, and the gradients of all parameters.
    fn layers() -> (Graph, Vec<(String, Range<usize>)>) {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[5, 7]).unwrap();
        let sizes: [(&str, &[usize]); 4] = [("w1", &[7, 9]), ("b1", &[9]), ("w2", &[9, 4]), ("b2", &[4])];
        let [w1, b1, w2, b2] = sizes.map(|(name, sizes)| g.input(name, DType::F32, sizes).unwrap());
        let hidden = g.matmul(x, w1).unwrap();
        let hidden = g.add(hidden, b1).unwrap();
        let hidden = g.tanh(hidden).unwrap();
        let y = g.matmul(hidden, w2).unwrap();
        let y = g.add(y, b2).unwrap();
        let square = g.mul(y, y).unwrap();
        let loss = g.mean_all(square).unwrap();
        let gradients = g.gradients(loss, &[w1, b1, w2, b2]).unwrap();
        g.output("loss", loss).unwrap();
        let (mut places, mut begin) = (Vec::new(), 3);
        for ((name, sizes), gradient) in sizes.into_iter().zip(gradients) {
            g.output(&format!("d{name}"), gradient).unwrap();
            let count = sizes.iter().product::<usize>();
            places.push((name.to_string(), begin..begin + count));
            begin += count;
        }
        (g, places)
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i * 37 % 23) as f32 * 0.1 - 1.0).collect()
    }

    #[test]
    fn bound_ports_give_the_results_of_written_and_read_ones() {
        let (g, places) = layers();
        let program = Program::new(&g).unwrap();
        let (x, values) = (numbers(35), numbers(150));
        let mut plain = program.runner();
        plain.write("x", &x).unwrap();
        for (name, range) in &places {
            plain.write(name, &values[range.clone()]).unwrap();
        }
        plain.run();

        let mut bound = program.runner();
        let inputs: Vec<(&str, Range<usize>)> =
            places.iter().map(|(name, range)| (name.as_str(), range.clone())).collect();
        let names: Vec<String> = places.iter().map(|(name, _)| format!("d{name}")).collect();
        let outputs: Vec<(&str, Range<usize>)> =
            names.iter().zip(&places).map(|(name, (_, range))| (name.as_str(), range.clone())).collect();
        bound.bind(&inputs, &outputs).unwrap();
        bound.write("x", &x).unwrap();
        let mut gradients = vec![0.0; 150];
        bound.run_bound(&values, Some(&mut gradients)).unwrap();
        for (name, range) in &outputs {
            assert_eq!(plain.read::<f32>(name).unwrap(), &gradients[range.clone()], "{name}");
        }
        assert_eq!(plain.read::<f32>("loss").unwrap(), bound.read::<f32>("loss").unwrap());

        bound.run_bound(&values, None).unwrap();
        for (name, _) in &outputs {
            assert_eq!(plain.read::<f32>(name).unwrap(), bound.read::<f32>(name).unwrap(), "{name}");
        }
    }

    #[test]
    fn weights_and_their_gradients_are_not_copied() {
        let (g, places) = layers();
        let mut runner = Program::new(&g).unwrap().runner();
        let inputs: Vec<(&str, Range<usize>)> =
            places.iter().map(|(name, range)| (name.as_str(), range.clone())).collect();
        runner.bind(&inputs, &[("dw1", 0..63), ("dw2", 63..99), ("db1", 99..108)]).unwrap();
        let lengths = |copied: &[ExternalRange]| copied.iter().map(|place| place.len).collect::<Vec<_>>();
        assert_eq!(lengths(&runner.bindings.copied[0]), [9, 4]);
        assert_eq!(lengths(&runner.bindings.copied[1]), [9]);
    }

    #[test]
    fn short_slices_and_mismatched_ranges_are_refused() {
        let (g, _) = layers();
        let mut runner = Program::new(&g).unwrap().runner();
        assert!(runner.bind(&[("w1", 0..62)], &[]).is_err());
        assert!(runner.bind(&[("w9", 0..62)], &[]).is_err());
        runner.bind(&[("w1", 2..65)], &[("dw1", 0..63)]).unwrap();
        let error = runner.run_bound(&[0.0; 64], None).unwrap_err().to_string();
        assert_eq!(error, "the bound inputs or outputs need 65 elements, but the slice has 64");
        assert!(runner.run_bound(&[0.0; 65], Some(&mut [0.0; 62])).is_err());
    }

    #[test]
    fn equal_outputs_are_written_to_both_ranges() {
        let mut g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, DType::F32, &[2, 2]).unwrap());
        let y = g.matmul(x, w).unwrap();
        g.output("y", y).unwrap();
        g.output("again", y).unwrap();
        let mut runner = Program::new(&g).unwrap().runner();
        runner.bind(&[("w", 0..4)], &[("y", 0..4), ("again", 4..8)]).unwrap();
        runner.write("x", &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let mut to = [0.0; 8];
        runner.run_bound(&[0.0, 1.0, 1.0, 0.0], Some(&mut to)).unwrap();
        assert_eq!(to, [2.0, 1.0, 4.0, 3.0, 2.0, 1.0, 4.0, 3.0]);
    }

    #[test]
    fn an_output_that_is_read_again_is_bound() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 2]).unwrap();
        let [w, v] = ["w", "v"].map(|name| g.input(name, DType::F32, &[2, 2]).unwrap());
        let y = g.matmul(x, w).unwrap();
        let z = g.matmul(y, v).unwrap();
        g.output("y", y).unwrap();
        g.output("z", z).unwrap();
        let mut runner = Program::new(&g).unwrap().runner();
        runner.bind(&[("w", 4..8), ("v", 0..4)], &[("y", 4..8), ("z", 0..4)]).unwrap();
        runner.write("x", &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let from = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0];
        let mut to = [9.0; 8];
        runner.run_bound(&from, Some(&mut to)).unwrap();
        assert_eq!(to, [3.0, 1.0, 7.0, 3.0, 1.0, 3.0, 3.0, 7.0]);
    }
}
