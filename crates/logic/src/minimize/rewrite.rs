//! Cut rewriting: a vertex is built anew from the leaves of a cut, if that takes fewer gates.
//!
//! ```text
//! for each vertex, each of its cuts, each smallest circuit of the cut's function:
//!     saved = gates that die when the vertex no longer reads its operands
//!     added = gates of the circuit that are not there yet
//!     keep the best saved - added
//! ```
//!
//! What is there already costs nothing, so the pass finds sharing as well as smaller circuits. A replacement
//! that saves nothing can still open the way for others: the pass takes those too if it is asked to.

use super::chains::{Implementation, Library, Step};
use super::cuts::{Cuts, LEAVES};
use super::editor::Editor;
use crate::network::{Literal, Network, Normal, normal};

/// One pass over a network. With `sideways`, replacements that save nothing are made too; `turn` chooses among
/// circuits that are equally good.
pub(super) fn rewrite(network: &Network, sideways: bool, turn: usize) -> Network {
    let mut editor = Editor::new(network);
    let mut cuts = Cuts::new(network.len());
    for number in network.gate_range() {
        if !editor.begin(number) {
            continue;
        }
        cuts.compute(number, editor.vertex(number));
        if let Some(choice) = best(&mut editor, &cuts, number, sideways, turn) {
            let first = editor.len();
            let literal = choice.build(&mut editor, number);
            for added in first..editor.len() {
                cuts.compute(added, editor.vertex(added));
            }
            editor.replace(number, literal);
        }
    }
    editor.finish()
}

/// A circuit for a vertex, on the leaves of a cut.
#[derive(Clone, Copy)]
struct Choice {
    leaves: [Literal; LEAVES],
    implementation: Implementation<'static>,
}

/// The best replacement of a vertex.
fn best(editor: &mut Editor, cuts: &Cuts, number: usize, sideways: bool, turn: usize) -> Option<Choice> {
    let library = Library::get();
    let mut best: Option<Choice> = None;
    // The gain to beat.
    let mut least = isize::from(!sideways);
    for cut in cuts.of(number) {
        let usable = cut.leaves().iter().all(|&leaf| editor.is_usable(leaf as usize));
        if cut.leaves().len() < 2 || !usable {
            continue;
        }
        for &leaf in cut.leaves() {
            editor.acquire(leaf as usize);
        }
        let saved = 1 + editor.release_operands(number) as isize;
        let mut leaves = [Literal::FALSE; LEAVES];
        for (literal, &leaf) in leaves.iter_mut().zip(cut.leaves()) {
            *literal = Literal::new(leaf as usize, false);
        }
        let implementations = library.implementations(cut.function);
        let variants = implementations.clone().count().max(1);
        for implementation in implementations.cycle().skip(turn % variants).take(variants) {
            let choice = Choice { leaves, implementation };
            if let Some(added) = choice.added(editor, number, saved - least)
                && saved - added >= least
            {
                least = saved - added + 1;
                best = Some(choice);
            }
        }
        editor.acquire_operands(number);
        for &leaf in cut.leaves() {
            editor.release(leaf as usize);
        }
    }
    best
}

impl Choice {
    /// The literals of the inputs of the chain.
    fn inputs(&self) -> [Literal; LEAVES] {
        self.implementation.inputs.map(|(leaf, not)| self.leaves[leaf].invert_if(not))
    }

    /// How many gates are not there yet, or none if that are more than `most` or if the vertex itself would be
    /// used.
    fn added(&self, editor: &Editor, number: usize, most: isize) -> Option<isize> {
        let mut signals = [None; LEAVES + 7];
        for (signal, literal) in signals.iter_mut().zip(self.inputs()) {
            *signal = Some(literal);
        }
        let mut added = 0;
        for (gate, step) in self.implementation.steps.iter().enumerate() {
            let there = match (signals[step.a], signals[step.b]) {
                (Some(a), Some(b)) => match step.normal(a, b) {
                    Normal::Literal(literal) => Some((literal, true)),
                    Normal::Vertex(vertex, inverted) => editor.find(number, vertex).map(|found| {
                        (Literal::new(found, inverted), editor.is_alive(found) && found != number)
                    }),
                },
                _ => None,
            };
            if there.is_some_and(|(literal, _)| literal.vertex() == number) {
                return None;
            }
            added += isize::from(!there.is_some_and(|(_, is_free)| is_free));
            if added > most {
                return None;
            }
            signals[LEAVES + gate] = there.map(|(literal, _)| literal.invert_if(step.not));
        }
        Some(added)
    }

    /// Builds the circuit.
    fn build(&self, editor: &mut Editor, number: usize) -> Literal {
        let mut signals = [Literal::FALSE; LEAVES + 7];
        signals[..LEAVES].copy_from_slice(&self.inputs());
        let mut last = Literal::FALSE;
        for (gate, step) in self.implementation.steps.iter().enumerate() {
            let literal = editor.add(number, step.normal(signals[step.a], signals[step.b]));
            last = literal.invert_if(step.not);
            signals[LEAVES + gate] = last;
        }
        last.invert_if(self.implementation.not)
    }
}

impl Step {
    /// The vertex for two operands, without the inverter behind it.
    fn normal(&self, a: Literal, b: Literal) -> Normal {
        normal(self.operation, a.invert_if(self.not_a), b.invert_if(self.not_b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    #[test]
    fn a_function_of_four_inputs_becomes_smallest() {
        // A multiplexer tree: 3 multiplexers of 3 gates each select among constants and x3.
        for function in (0..=u16::MAX).step_by(997) {
            let mut network = Network::new(4);
            let select = |network: &mut Network, level: usize, low: Literal, high: Literal| {
                let different = network.xor(low, high);
                let chosen = network.and(Literal::input(level), different);
                network.xor(chosen, low)
            };
            let mut row: Vec<Literal> = (0..16).map(|i| Literal(u32::from(function >> i & 1))).collect();
            for level in 0..4 {
                row = row.chunks(2).map(|pair| select(&mut network, level, pair[0], pair[1])).collect();
            }
            network.set_outputs(row);
            let mut small = network.without_dead_gates();
            for turn in 0..8 {
                small = rewrite(&small, turn % 2 == 1, turn);
            }
            assert_eq!(small.gates(), Library::get().size(function), "function {function:04x}");
        }
    }

    proptest! {
        #[test]
        fn the_function_stays_and_gates_do_not_grow(
            circuit in arbitrary::circuit(0..=12, 150),
            sideways in any::<bool>(),
            turn in 0usize..10,
        ) {
            let network = Network::of(&circuit).without_dead_gates();
            let small = rewrite(&network, sideways, turn);
            prop_assert!(small.gates() <= network.gates());
            prop_assert_eq!(equivalent(&circuit, &small.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
