//! Parameter updates during the backward pass.
//!
//! An optimiser that runs after the backward pass reads all parameters and gradients from memory again. Here each weight
//! matrix is updated right after the last kernel that reads it or writes its gradient, while both are in the caches. The
//! gradients of weight matrices share a small buffer, because each is needed for a short time. Other parameters, which are
//! small, are updated at the end.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::instruction::{Instruction, Stored as _};
use crate::kernel::matmul::ExternalSlices;

use super::binding::{Bindings, ordered};
use super::{ProgramError, Runner, check, find};

/// A function that updates a parameter, given its range in the slice of all parameters, its elements and its gradient.
pub type Update<'a> = &'a mut dyn FnMut(Range<usize>, &mut [f32], &[f32]);

/// When parameters are updated, and where their gradients are.
#[derive(Clone, Debug, Default)]
pub(super) struct Updates {
    /// Parameters are in the slice of the caller, gradients of weight matrices in `gradients`.
    bindings: Bindings,
    /// In the order of their instructions.
    due: Vec<Due>,
    gradients: Buffer<f32>,
}

/// A parameter that is updated after an instruction.
#[derive(Clone, Debug)]
struct Due {
    instruction: usize,
    /// Its range in the slice of parameters.
    range: Range<usize>,
    gradient: Place,
}

/// The offset of a gradient.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the arena.
    Arena(usize),
    /// In [`Updates::gradients`].
    Shared(usize),
}

/// A gradient in the shared buffer.
struct Allocation {
    lifetime: Range<usize>,
    place: Range<usize>,
}

/// The first offset with `len` elements that are free during a lifetime.
fn free_offset(allocations: &[Allocation], lifetime: &Range<usize>, len: usize) -> usize {
    let overlaps =
        |other: &&Allocation| other.lifetime.start < lifetime.end && lifetime.start < other.lifetime.end;
    let mut taken: Vec<&Range<usize>> =
        allocations.iter().filter(overlaps).map(|other| &other.place).collect();
    taken.sort_by_key(|place| place.start);
    let mut begin = 0;
    for place in taken {
        if begin + len <= place.start {
            break;
        }
        begin = begin.max(place.end);
    }
    begin
}

impl Runner {
    /// Binds parameters: the names of the input and of its gradient among the outputs, and the range of the slice that
    /// [`Runner::run_updating`] is given.
    ///
    /// ```
    /// use gatework_engine::{DType, Graph, Program};
    ///
    /// let mut g = Graph::new();
    /// let (x, w) = (g.input("x", DType::F32, &[1, 2])?, g.input("w", DType::F32, &[2, 1])?);
    /// let y = g.matmul(x, w)?;
    /// let loss = g.sum_all(y)?;
    /// let gradient = g.gradients(loss, &[w])?[0];
    /// g.output("dw", gradient)?;
    /// let mut runner = Program::new(&g)?.runner();
    /// runner.bind_updates(&[("w", "dw", 1..3)])?;
    /// runner.write("x", &[3.0f32, 5.0])?;
    /// let mut parameters = [0.0, 7.0, 7.0];
    /// runner.run_updating(&mut parameters, &mut |_, w, dw| w.iter_mut().zip(dw).for_each(|(w, dw)| *w -= dw))?;
    /// assert_eq!(parameters, [0.0, 4.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind_updates(&mut self, updates: &[(&str, &str, Range<usize>)]) -> Result<(), ProgramError> {
        self.check_unshared()?;
        let program = &self.program;
        let (mut bindings, mut due) = (Bindings::default(), Vec::new());
        let mut allocations: Vec<Allocation> = Vec::new();
        let end = program.instructions.len();
        for (i, (parameter, gradient, range)) in updates.iter().enumerate() {
            let range = ordered(range);
            let collides = |(w, d, other): &&(&str, &str, Range<usize>)| {
                w == parameter || d == gradient || (other.start < range.end && range.start < other.end)
            };
            if let Some((other, ..)) = updates[..i].iter().find(collides) {
                let [first, second] = [other, parameter].map(|name| (*name).to_string());
                return Err(ProgramError::ConflictingParameters { first, second });
            }
            let (_, parameter) = find("input", &program.inputs, parameter)?;
            let (_, gradient) = find("output", &program.outputs, gradient)?;
            check::<f32>(parameter, range.len())?;
            check::<f32>(gradient, range.len())?;
            bindings.add(parameter, &range, 0, &program.inputs);
            bindings.lengths[0] = bindings.lengths[0].max(range.end);
            // A copied parameter can change at any time, one that is read from the slice only after its last reader.
            let readers = parameter.bindable(0, &program.inputs).unwrap_or_default();
            let read_until = readers.iter().map(|matrix| matrix.instruction + 1).max().unwrap_or(0);
            let writers = gradient.bindable(1, &program.outputs).unwrap_or_default();
            let first = writers.iter().map(|matrix| matrix.instruction).min();
            let last = writers.iter().map(|matrix| matrix.instruction + 1).max();
            let (after, place) = match (first, last) {
                (Some(first), Some(last)) => {
                    let lifetime = first..last.max(read_until);
                    let begin = free_offset(&allocations, &lifetime, range.len());
                    let place = begin..begin + range.len();
                    bindings.add(gradient, &place, 1, &program.outputs);
                    let after = lifetime.end;
                    allocations.push(Allocation { lifetime, place });
                    (after, Place::Shared(begin))
                }
                _ => (end, Place::Arena(gradient.offset.unwrap_or(0))),
            };
            due.push(Due { instruction: after.max(1) - 1, range, gradient: place });
        }
        due.sort_by_key(|due| due.instruction);
        bindings.matmuls.sort_by_key(|(instruction, _)| *instruction);
        let gradients = Buffer::zeroed(bindings.lengths[1]);
        self.updates = Updates { bindings, due, gradients };
        Ok(())
    }

    /// Like [`Runner::run`] with the parameters that are bound by [`Runner::bind_updates`]. Calls `update` for each of them as soon
    /// as its gradient is complete and no later kernel reads it. The gradients cannot be read afterwards.
    pub fn run_updating(&mut self, parameters: &mut [f32], update: Update<'_>) -> Result<(), ProgramError> {
        self.check_unshared()?;
        let Runner { program, memory, scratch, updates, .. } = self;
        let Updates { bindings, due, gradients } = updates;
        let (wanted, found) = (bindings.lengths[0], parameters.len());
        if found < wanted {
            return Err(ProgramError::ShortSlice { wanted, found });
        }
        for place in &bindings.copied[0] {
            f32::arena_mut(memory)[place.inside..][..place.len]
                .copy_from_slice(&parameters[place.outside..][..place.len]);
        }
        let (mut bound, mut due) = (bindings.matmuls.iter().peekable(), due.iter().peekable());
        for (index, instruction) in program.instructions.iter().enumerate() {
            match (instruction, bound.next_if(|(bound, _)| *bound == index)) {
                (Instruction::MatMul(matmul), Some(&(_, elsewhere))) => {
                    matmul.run_outside(
                        memory,
                        ExternalSlices { from: parameters, to: gradients, external: elsewhere },
                    );
                }
                _ => instruction.get().run(memory, scratch),
            }
            while let Some(Due { range, gradient, .. }) = due.next_if(|due| due.instruction == index) {
                let gradient = match gradient {
                    Place::Arena(begin) => &f32::arena(memory)[*begin..][..range.len()],
                    Place::Shared(begin) => &gradients[*begin..][..range.len()],
                };
                update(range.clone(), &mut parameters[range.clone()], gradient);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Id;
    use crate::{DType, Graph, Program};
    use proptest::prelude::*;

    /// Layers of some widths with biases, and their parameters. Square weights are used twice.
    fn layers(widths: &[usize], rows: usize) -> (Graph, Vec<(String, Range<usize>)>) {
        let mut g = Graph::new();
        let mut x = g.input("x", DType::F32, &[rows, widths[0]]).unwrap();
        let mut parameters: Vec<(String, Id)> = Vec::new();
        for (layer, pair) in widths.windows(2).enumerate() {
            let w = g.input(&format!("w{layer}"), DType::F32, pair).unwrap();
            let b = g.input(&format!("b{layer}"), DType::F32, &[pair[1]]).unwrap();
            for _ in 0..if pair[0] == pair[1] { 2 } else { 1 } {
                x = g.matmul(x, w).unwrap();
                x = g.add(x, b).unwrap();
                x = g.tanh(x).unwrap();
            }
            parameters.extend([(format!("w{layer}"), w), (format!("b{layer}"), b)]);
        }
        let loss = g.mean_all(x).unwrap();
        g.output("loss", loss).unwrap();
        let of: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
        let gradients = g.gradients(loss, &of).unwrap();
        let (mut places, mut begin) = (Vec::new(), 1);
        for ((name, id), gradient) in parameters.into_iter().zip(gradients) {
            g.output(&format!("d{name}"), gradient).unwrap();
            let end = begin + g.shape(id).elements();
            places.push((name, begin..end));
            begin = end + 2;
        }
        (g, places)
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i * 37 % 23) as f32 * 0.02 - 0.2).collect()
    }

    fn descend(values: &mut [f32], gradient: &[f32]) {
        values.iter_mut().zip(gradient).for_each(|(value, gradient)| *value -= 0.5 * gradient);
    }

    proptest! {
        #![proptest_config(crate::kernel::tests::cases(64))]

        #[test]
        fn updates_equal_those_after_the_backward_pass(
            widths in prop::collection::vec(prop::sample::select(&[1usize, 5, 16, 40][..]), 2..6),
            rows in 1usize..20,
        ) {
            let (g, places) = layers(&widths, rows);
            let program = Program::new(&g).unwrap();
            let mut at_end = numbers(places.last().unwrap().1.end + 3);
            let mut at_once = at_end.clone();
            let x = numbers(rows * widths[0]);
            let mut plain = program.runner();
            let mut runner = program.runner();
            let names: Vec<String> = places.iter().map(|(name, _)| format!("d{name}")).collect();
            let updates: Vec<(&str, &str, Range<usize>)> = places
                .iter()
                .zip(&names)
                .map(|((name, range), gradient)| (name.as_str(), gradient.as_str(), range.clone()))
                .collect();
            runner.bind_updates(&updates).unwrap();
            plain.write("x", &x).unwrap();
            runner.write("x", &x).unwrap();
            for _ in 0..3 {
                for (name, range) in &places {
                    plain.write(name, &at_end[range.clone()]).unwrap();
                }
                plain.run();
                for (name, range) in &places {
                    descend(&mut at_end[range.clone()], plain.read(&format!("d{name}")).unwrap());
                }
                let mut seen = Vec::new();
                runner.run_updating(&mut at_once, &mut |range, values, gradient| {
                    descend(values, gradient);
                    seen.push(range);
                }).unwrap();
                seen.sort_by_key(|range| range.start);
                prop_assert_eq!(&seen, &places.iter().map(|(_, range)| range.clone()).collect::<Vec<_>>());
                prop_assert_eq!(&at_once, &at_end);
                prop_assert_eq!(runner.read::<f32>("loss").unwrap(), plain.read::<f32>("loss").unwrap());
            }
        }
    }

    #[test]
    fn gradients_share_memory_and_updates_are_early() {
        let (g, places) = layers(&[30, 40, 50, 60], 8);
        let mut runner = Program::new(&g).unwrap().runner();
        let names: Vec<String> = places.iter().map(|(name, _)| format!("d{name}")).collect();
        let updates: Vec<(&str, &str, Range<usize>)> = places
            .iter()
            .zip(&names)
            .map(|((name, range), d)| (name.as_str(), d.as_str(), range.clone()))
            .collect();
        runner.bind_updates(&updates).unwrap();
        let weights = 30 * 40 + 40 * 50 + 50 * 60;
        assert!(runner.updates.gradients.len() < weights, "{}", runner.updates.gradients.len());
        let last = runner.program.instructions.len() - 1;
        assert!(runner.updates.due.iter().filter(|due| due.instruction < last).count() >= 2);
    }

    #[test]
    fn conflicting_or_mismatched_parameters_are_refused() {
        let (g, _) = layers(&[2, 3], 1);
        let mut runner = Program::new(&g).unwrap().runner();
        assert!(runner.bind_updates(&[("w0", "dw0", 0..5)]).is_err());
        assert!(runner.bind_updates(&[("w0", "dw9", 0..6)]).is_err());
        for second in [("w0", "db0", 6..9), ("b0", "dw0", 6..9), ("b0", "db0", 5..8)] {
            let error = runner.bind_updates(&[("w0", "dw0", 0..6), second]).unwrap_err();
            assert!(matches!(error, ProgramError::ConflictingParameters { .. }), "{error}");
        }
        runner.bind_updates(&[("w0", "dw0", 2..8)]).unwrap();
        let error = runner.run_updating(&mut [0.0; 7], &mut |_, _, _| {}).unwrap_err().to_string();
        assert_eq!(error, "the bound inputs or outputs need 8 elements, but the slice has 7");
    }
}
