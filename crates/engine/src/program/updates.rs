//! Parameters that change as soon as they can.
//!
//! The optimiser reads and writes every parameter of a network, and reads every gradient. After a whole backward pass these
//! come from memory again. Here each parameter whose gradient only products write, as weights are, is handed over right
//! behind the last kernel that needs it or adds to its gradient, when both are in the caches, and these gradients share a
//! little memory: the next one is written where one lay that nobody needs any more. The others, which are small, come at the
//! end.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::kernel::matmul::ExternalSlices;

use super::bound::{Bindings, ordered};
use super::memory::Stored;
use super::{Instruction, ProgramError, Runner, check, execute, find};

/// What changes a parameter: it gets its place among all, its elements and its gradient.
pub type Update<'a> = &'a mut dyn FnMut(Range<usize>, &mut [f32], &[f32]);

/// When and where parameters are handed over.
#[derive(Clone, Debug, Default)]
pub(super) struct Updates {
    /// Parameters in the first slice, gradients of products in `gradients`.
    bindings: Bindings,
    /// In the order in which they are due.
    due: Vec<Due>,
    gradients: Buffer<f32>,
}

/// A parameter that is handed over behind a kernel.
#[derive(Clone, Debug)]
struct Due {
    kernel: usize,
    /// Its elements among the parameters.
    range: Range<usize>,
    gradient: Place,
}

/// Where a gradient lies from its first element on.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the memory of the program.
    Inside(usize),
    /// Among those of products.
    Outside(usize),
}

/// A gradient of a product while it is needed.
struct Life {
    kernels: Range<usize>,
    place: Range<usize>,
}

/// The first place for `len` elements that nothing occupies which lives at the same time.
fn free_place(lives: &[Life], kernels: &Range<usize>, len: usize) -> usize {
    let meets = |life: &&Life| life.kernels.start < kernels.end && kernels.start < life.kernels.end;
    let mut taken: Vec<&Range<usize>> = lives.iter().filter(meets).map(|life| &life.place).collect();
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
    /// Says which inputs are parameters, which outputs their gradients, and where the parameters lie in the slice that
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
        let program = &self.program;
        let (mut bindings, mut due) = (Bindings::default(), Vec::new());
        let mut lives: Vec<Life> = Vec::new();
        let end = program.kernels.len();
        for (i, (parameter, gradient, range)) in updates.iter().enumerate() {
            let range = ordered(range);
            let meets = |(w, d, other): &&(&str, &str, Range<usize>)| {
                w == parameter || d == gradient || (other.start < range.end && range.start < other.end)
            };
            if let Some((other, ..)) = updates[..i].iter().find(meets) {
                let [first, second] = [other, parameter].map(|name| (*name).to_string());
                return Err(ProgramError::Twice { first, second });
            }
            let (_, parameter) = find("input", &program.inputs, parameter)?;
            let (_, gradient) = find("output", &program.outputs, gradient)?;
            check::<f32>(parameter, range.len())?;
            check::<f32>(gradient, range.len())?;
            bindings.add(parameter, &range, 0, &program.inputs);
            bindings.lengths[0] = bindings.lengths[0].max(range.end);
            // A parameter that is copied can change at any time; one that products read where it lies only behind them.
            let readers = parameter.elsewhere(0, &program.inputs).unwrap_or_default();
            let needed = readers.iter().map(|(kernel, _)| kernel + 1).max().unwrap_or(0);
            let inside = Place::Inside(gradient.offset.unwrap_or(0));
            let writers = gradient.elsewhere(1, &program.outputs).unwrap_or_default();
            let first = writers.iter().map(|(kernel, _)| *kernel).min();
            let last = writers.iter().map(|(kernel, _)| kernel + 1).max();
            let (behind, place) = match (first, last) {
                (Some(first), Some(last)) => {
                    let behind = last.max(needed);
                    let begin = free_place(&lives, &(first..behind), range.len());
                    let place = begin..begin + range.len();
                    bindings.add(gradient, &place, 1, &program.outputs);
                    lives.push(Life { kernels: first..behind, place });
                    (behind, Place::Outside(begin))
                }
                _ => (end, inside),
            };
            due.push(Due { kernel: behind.max(1) - 1, range, gradient: place });
        }
        due.sort_by_key(|due| due.kernel);
        bindings.products.sort_by_key(|(kernel, _)| *kernel);
        let gradients = Buffer::zeroed(bindings.lengths[1]);
        self.updates = Updates { bindings, due, gradients };
        Ok(())
    }

    /// Computes the outputs like [`Runner::run`] with the parameters that [`Runner::bind_updates`] names, and hands each of
    /// them over with its gradient, and where it lies, when nothing else needs it any more: `update` may change it. The
    /// gradients cannot be read afterwards.
    pub fn run_updating(&mut self, parameters: &mut [f32], update: Update<'_>) -> Result<(), ProgramError> {
        let Runner { program, memory, scratch, updates, .. } = self;
        let Updates { bindings, due, gradients } = updates;
        let (wanted, found) = (bindings.lengths[0], parameters.len());
        if found < wanted {
            return Err(ProgramError::Bound { wanted, found });
        }
        for place in &bindings.copied[0] {
            f32::arena_mut(memory)[place.inside..][..place.len]
                .copy_from_slice(&parameters[place.outside..][..place.len]);
        }
        let (mut bound, mut due) = (bindings.products.iter().peekable(), due.iter().peekable());
        for (index, kernel) in program.kernels.iter().enumerate() {
            match (&kernel.1, bound.next_if(|(bound, _)| *bound == index)) {
                (Instruction::MatMul(products), Some(&(_, elsewhere))) => {
                    products.run_outside(
                        memory,
                        ExternalSlices { from: parameters, to: gradients, external: elsewhere },
                    );
                }
                _ => execute(kernel, memory, scratch),
            }
            while let Some(Due { range, gradient, .. }) = due.next_if(|due| due.kernel == index) {
                let gradient = match gradient {
                    Place::Inside(begin) => &f32::arena(memory)[*begin..][..range.len()],
                    Place::Outside(begin) => &gradients[*begin..][..range.len()],
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

    /// Layers of some widths with biases, the second weights used twice if they can be; and its parameters.
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
        values.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= 0.5 * slope);
    }

    proptest! {
        #![proptest_config(crate::kernel::tests::cases(64))]

        #[test]
        fn parameters_move_as_they_would_behind_the_whole_pass(
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
    fn gradients_share_memory_and_are_handed_over_on_the_way() {
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
        let last = runner.program.kernels.len() - 1;
        assert!(runner.updates.due.iter().filter(|due| due.kernel < last).count() >= 2);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (g, _) = layers(&[2, 3], 1);
        let mut runner = Program::new(&g).unwrap().runner();
        assert!(runner.bind_updates(&[("w0", "dw0", 0..5)]).is_err());
        assert!(runner.bind_updates(&[("w0", "dw9", 0..6)]).is_err());
        for second in [("w0", "db0", 6..9), ("b0", "dw0", 6..9), ("b0", "db0", 5..8)] {
            let error = runner.bind_updates(&[("w0", "dw0", 0..6), second]).unwrap_err();
            assert!(matches!(error, ProgramError::Twice { .. }), "{error}");
        }
        runner.bind_updates(&[("w0", "dw0", 2..8)]).unwrap();
        let error = runner.run_updating(&mut [0.0; 7], &mut |_, _, _| {}).unwrap_err().to_string();
        assert_eq!(error, "the bound inputs or outputs need 8 elements, but the slice has 7");
    }
}
