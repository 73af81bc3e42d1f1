//! Cut rewriting: rebuilds a node from the leaves of a cut if that takes fewer gates.
//!
//! ```text
//! for each node, each of its cuts, each optimal chain of the cut's function:
//!     saved = gates of the MFFC of the node, bounded by the leaves
//!     added = gates of the chain that the graph does not have yet
//!     keep the best saved - added
//! ```
//!
//! Existing gates cost nothing, so the pass finds sharing as well as smaller structures. Replacements of zero gain save
//! nothing themselves but change the structure for later passes; they are optional.

use super::cuts::{Cuts, LEAVES};
use super::mutable_xag::MutableXag;
use super::npn_library::{Implementation, MAX_GATES, NpnLibrary};
use crate::prove::trace::Trace;
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Normal, Xag, normal, translate};

/// Runs one pass over an XAG. With `zero_gain`, replacements that save nothing are applied too. `round` determines
/// which of several equally good chains is chosen.
pub(super) fn rewrite(
    original: &Xag,
    zero_gain: bool,
    round: usize,
    trace: Option<&mut Trace>,
    stop: &Stop<'_>,
) -> Result<Xag, Stopped> {
    let mut replacements = Vec::new();
    let mut xag = MutableXag::new(original);
    let mut cuts = Cuts::new(original.len());
    for index in original.gate_range() {
        stop.check()?;
        if !xag.begin_visit(index) {
            continue;
        }
        cuts.compute(index, xag.node(index));
        if let Some(Candidate { leaves, implementation }) = best(&mut xag, &cuts, index, zero_gain, round) {
            let first = xag.len();
            let literal = implementation.build(leaves, |op, a, b| xag.add(index, normal(op, a, b)));
            for added in first..xag.len() {
                cuts.compute(added, xag.node(added));
            }
            if trace.is_some() {
                replacements.push(Replacement { node: index, literal, leaves });
            }
            xag.substitute(index, literal);
        }
    }
    if let Some(trace) = trace {
        record(trace, &xag, &replacements, stop)?;
    }
    Ok(xag.to_xag())
}

/// A node and the literal that has replaced it, a function of the same leaves.
struct Replacement {
    node: usize,
    literal: Literal,
    leaves: [Literal; LEAVES],
}

/// Adds all nodes to the trace, dead or alive, and a claim for each replacement.
fn record(
    trace: &mut Trace,
    xag: &MutableXag,
    replacements: &[Replacement],
    stop: &Stop<'_>,
) -> Result<(), Stopped> {
    let mut literals = trace.current().to_vec();
    literals.resize(xag.len(), Literal::FALSE);
    for (step, index) in xag.in_order_of_visits().into_iter().enumerate() {
        stop.check_at(step)?;
        literals[index] = trace.add_copy(xag.node(index), &literals);
    }
    for (step, replacement) in replacements.iter().enumerate() {
        stop.check_at(step)?;
        let [node, literal] = [Literal::new(replacement.node, false), replacement.literal];
        let leaves = replacement.leaves.map(|leaf| translate(leaf, &literals));
        trace.claim_on(translate(node, &literals), translate(literal, &literals), leaves);
    }
    Ok(())
}

/// An implementation of a node on the leaves of a cut.
#[derive(Clone, Copy)]
struct Candidate {
    leaves: [Literal; LEAVES],
    implementation: Implementation<'static>,
}

/// Returns the best replacement of a node.
fn best(xag: &mut MutableXag, cuts: &Cuts, index: usize, zero_gain: bool, round: usize) -> Option<Candidate> {
    let mut best: Option<Candidate> = None;
    let mut min_gain = isize::from(!zero_gain);
    for cut in cuts.of(index) {
        let usable = cut.leaves().iter().all(|&leaf| xag.is_usable(leaf as usize));
        if cut.leaves().len() < 2 || !usable {
            continue;
        }
        for &leaf in cut.leaves() {
            xag.reference(leaf as usize);
        }
        let saved = 1 + xag.dereference_fanins(index) as isize;
        let mut leaves = [Literal::FALSE; LEAVES];
        for (literal, &leaf) in leaves.iter_mut().zip(cut.leaves()) {
            *literal = Literal::new(leaf as usize, false);
        }
        let implementations = NpnLibrary::get().implementations(cut.function);
        let variants = implementations.clone().count().max(1);
        for implementation in implementations.cycle().skip(round % variants).take(variants) {
            let candidate = Candidate { leaves, implementation };
            if let Some(added) = candidate.added_gates(xag, index, saved - min_gain) {
                min_gain = saved - added + 1;
                best = Some(candidate);
            }
        }
        xag.reference_fanins(index);
        for &leaf in cut.leaves() {
            xag.dereference(leaf as usize);
        }
    }
    best
}

impl Candidate {
    /// Returns the number of gates to add, or `None` if it exceeds `max` or if the implementation would read the node
    /// itself.
    fn added_gates(&self, xag: &MutableXag, index: usize, max: isize) -> Option<isize> {
        let mut signals = [None; LEAVES + MAX_GATES];
        for (signal, literal) in signals.iter_mut().zip(self.implementation.chain_inputs(self.leaves)) {
            *signal = Some(literal);
        }
        let mut added = 0;
        for (gate, step) in self.implementation.steps.iter().enumerate() {
            // The literal of the gate if it exists, and whether it is alive.
            let existing = match (signals[step.a], signals[step.b]) {
                (Some(a), Some(b)) => {
                    match normal(step.operation, a.invert_if(step.not_a), b.invert_if(step.not_b)) {
                        Normal::Literal(literal) => Some((literal, true)),
                        Normal::Node(node, inverted) => xag
                            .find(index, node)
                            .map(|found| (Literal::new(found, inverted), xag.is_alive(found))),
                    }
                }
                _ => None,
            };
            if existing.is_some_and(|(literal, _)| literal.node() == index) {
                return None;
            }
            added += isize::from(!existing.is_some_and(|(_, is_alive)| is_alive));
            if added > max {
                return None;
            }
            signals[LEAVES + gate] = existing.map(|(literal, _)| literal.invert_if(step.not));
        }
        Some(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    #[test]
    fn functions_of_four_inputs_become_optimal() {
        // A multiplexer tree that selects among the bits of the truth table.
        for function in (0..=u16::MAX).step_by(997) {
            let mut xag = Xag::new(4);
            let select = |xag: &mut Xag, level: usize, low: Literal, high: Literal| {
                let different = xag.xor(low, high);
                let chosen = xag.and(Literal::input(level), different);
                xag.xor(chosen, low)
            };
            let mut row: Vec<Literal> = (0..16).map(|i| Literal(u32::from(function >> i & 1))).collect();
            for level in 0..4 {
                row = row.chunks(2).map(|pair| select(&mut xag, level, pair[0], pair[1])).collect();
            }
            xag.set_outputs(row);
            let mut small = xag.without_dead_gates();
            for round in 0..8 {
                small = rewrite(&small, round % 2 == 1, round, None, &Stop::never()).unwrap();
            }
            assert_eq!(small.gates(), NpnLibrary::get().size(function), "function {function:04x}");
        }
    }

    proptest! {
        #[test]
        fn rewriting_preserves_the_function_and_adds_no_gates(
            circuit in arbitrary::circuit(0..=12, 150),
            zero_gain in any::<bool>(),
            round in 0usize..10,
        ) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let small = rewrite(&xag, zero_gain, round, None, &Stop::never()).unwrap();
            prop_assert!(small.gates() <= xag.gates());
            prop_assert_eq!(equivalent(&circuit, &small.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
