//! Several programs in one memory.

use super::{Program, Runner};
use crate::instruction::Memory;

/// Runners of several programs that take turns in one memory, such as those of a model for several batch sizes. The memory is
/// that of the largest program that has run, not the sum of all.
///
/// ```
/// use gatework_engine::program::Session;
/// use gatework_engine::{DType, Graph, Program};
///
/// let mut session = Session::default();
/// for rows in [1, 4] {
///     let mut g = Graph::new();
///     let x = g.input("x", DType::F32, &[rows, 2])?;
///     let sum = g.sum(x, &[1])?;
///     g.output("sum", sum)?;
///     session.add(&Program::new(&g)?);
/// }
/// let runner = session.runner(1).unwrap();
/// runner.write("x", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
/// runner.run();
/// assert_eq!(runner.read::<f32>("sum")?, [3.0, 7.0, 11.0, 15.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Session {
    /// All but the active one are without memory.
    runners: Vec<Runner>,
    active: Option<usize>,
}

impl Session {
    /// Adds a program and returns its index.
    pub fn add(&mut self, program: &Program) -> usize {
        self.runners.push(program.idle_runner());
        self.runners.len() - 1
    }

    /// Returns the runner of a program, or `None` if there is no such index. If another runner was used in the meantime, its
    /// inputs and outputs are undefined and all inputs have to be written again.
    pub fn runner(&mut self, index: usize) -> Option<&mut Runner> {
        if index >= self.runners.len() {
            return None;
        }
        if self.active != Some(index) {
            self.activate(index);
        }
        self.runners.get_mut(index)
    }

    /// Moves the memory from the active runner to another one, or allocates more.
    fn activate(&mut self, index: usize) {
        let active = self.active.and_then(|active| self.runners.get_mut(active));
        let (mut memory, scratch, quantization, weights) = active.map_or_else(Default::default, |active| {
            let Runner { memory, scratch, quantization, program, .. } = active;
            let weights = program.weights.clone();
            (std::mem::take(memory), std::mem::take(scratch), std::mem::take(quantization), weights)
        });
        let runner = &mut self.runners[index];
        let mut is_new = weights.as_ref().map(std::sync::Arc::as_ptr)
            != runner.program.weights.as_ref().map(std::sync::Arc::as_ptr);
        if !memory.has_room(runner.program.memory) {
            // Freed before the larger one is allocated.
            drop(memory);
            memory = Memory::new(runner.program.memory);
            is_new = true;
        }
        (runner.memory, runner.scratch, runner.quantization) = (memory, scratch, quantization);
        runner.load(is_new);
        self.active = Some(index);
    }

    /// Returns the programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.runners.iter().map(Runner::program)
    }

    /// Returns the bytes of the memory. Shared weights are not part of it, apart from a copy of the plain ones.
    pub fn bytes(&self) -> usize {
        self.runners.iter().map(|runner| runner.memory.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::weights::tests::{layers, shared};

    #[test]
    fn programs_in_one_memory_compute_what_they_compute_alone() {
        let (_, values) = layers(1);
        let weights = shared(&layers(1).0, &values);
        let mut session = Session::default();
        let batches = [1, 7, 3, 64];
        for rows in batches {
            session.add(&Program::with_weights(&layers(rows).0, &weights).unwrap());
        }
        assert_eq!(session.bytes(), 0, "memory is allocated on demand");
        for index in [0, 1, 0, 3, 2, 3, 1] {
            let (g, inputs) = layers(batches[index]);
            let mut alone = Program::with_weights(&g, &weights).unwrap().runner();
            alone.write("x", &inputs[0].1).unwrap();
            alone.run();
            let runner = session.runner(index).unwrap();
            runner.write("x", &inputs[0].1).unwrap();
            runner.run();
            assert_eq!(runner.read::<f32>("y").unwrap(), alone.read::<f32>("y").unwrap(), "{index}");
        }
        let largest = session.programs().map(Program::bytes).max();
        assert_eq!(Some(session.bytes()), largest);
        assert!(session.runner(4).is_none());
    }
}
