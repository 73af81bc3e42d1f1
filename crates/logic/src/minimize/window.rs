//! Windowed resubstitution: local search in small parts of a large XAG.
//!
//! A window is a set of gates that are determined by a few leaves. Its outputs are the gates with fanouts outside of the
//! window. Extracted as an XAG of its own, the window is small enough for truth tables, so `local_search` can use every
//! node inside as a divisor and all don't-cares of the window. The windows of one pass share no gates.
//!
//! A smaller window is accepted only if no output depends on a leaf that it did not depend on before. Then no node of
//! the whole XAG gets a larger fan-in cone, so any number of windows can be replaced at once without creating a cycle.

use super::local_search;
use crate::prove::trace::Trace;
use crate::stop::{Stop, Stopped};
use crate::xag::{Fanouts, Literal, Xag};
use rustc_hash::FxHashMap;

/// The size of windows and the effort of their search.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowOptions {
    /// The maximum number of leaves.
    pub max_leaves: usize,
    /// The maximum number of gates.
    pub max_gates: usize,
    /// The maximum number of gates of a replacement.
    pub replacement_gates: usize,
    /// The number of consecutive steps without a gain that ends a random walk; 0 for no walk.
    pub patience: usize,
}

/// Runs one pass over an XAG. `round` shifts the positions of the windows.
pub(super) fn resubstitute(
    xag: &Xag,
    options: WindowOptions,
    round: usize,
    trace: Option<&mut Trace>,
    stop: &Stop<'_>,
) -> Result<Xag, Stopped> {
    let mut pass = Pass::new(xag, options, stop)?;
    let gates = xag.gates();
    // From the outputs to the inputs, with another first pivot in each round.
    for step in 0..gates {
        stop.check()?;
        let pivot = xag.inputs() + 1 + (2 * gates - 1 - step - (round * 7919) % gates) % gates;
        if !pass.in_window[pivot] {
            pass.visit(pivot, round, stop)?;
        }
    }
    if let Some(trace) = trace {
        for (step, window) in pass.windows.iter().enumerate() {
            stop.check_at(step)?;
            trace.claim_replacement(&window.outputs, &window.xag, &window.leaves);
        }
    }
    Ok(pass.finish())
}

struct Pass<'a> {
    xag: &'a Xag,
    options: WindowOptions,
    fanout_counts: Vec<u32>,
    fanouts: Fanouts,
    /// Whether a node is a gate of an earlier window.
    in_window: Vec<bool>,
    /// For each output of a replaced window, the index of the window and of the output.
    replaced: FxHashMap<usize, (usize, usize)>,
    windows: Vec<Replacement>,
}

/// The new content of a window.
struct Replacement {
    leaves: Vec<usize>,
    outputs: Vec<usize>,
    xag: Xag,
}

/// The leaves and the gates of a window, both sorted once it is complete.
struct Window {
    leaves: Vec<usize>,
    gates: Vec<usize>,
}

/// The maximum number of fanouts of a node that are tried as gates of a window.
const MAX_FANOUTS: usize = 16;

impl<'a> Pass<'a> {
    fn new(xag: &'a Xag, options: WindowOptions, stop: &Stop<'_>) -> Result<Pass<'a>, Stopped> {
        Ok(Pass {
            xag,
            options,
            fanout_counts: xag.fanout_counts(),
            fanouts: Fanouts::new(xag, stop)?,
            in_window: vec![false; xag.len()],
            replaced: FxHashMap::default(),
            windows: Vec::new(),
        })
    }

    fn visit(&mut self, pivot: usize, round: usize, stop: &Stop<'_>) -> Result<(), Stopped> {
        let window = self.grow(pivot);
        if window.gates.len() < 3 {
            return Ok(());
        }
        let (original, outputs) = self.extract(&window);
        let mut smaller = local_search::descend(&original, self.options.replacement_gates, stop)?;
        if self.options.patience > 0 {
            smaller = local_search::walk(&smaller, self.options.patience, (pivot + round) as u64, stop)?;
        }
        for &node in &window.gates {
            self.in_window[node] = true;
        }
        if smaller.gates() < original.gates() && has_no_larger_support(&smaller, &original) {
            for (place, &output) in outputs.iter().enumerate() {
                self.replaced.insert(output, (self.windows.len(), place));
            }
            self.windows.push(Replacement { leaves: window.leaves, outputs, xag: smaller });
        }
        Ok(())
    }

    /// Grows a window around a pivot: towards the inputs, expanding the leaf that adds the fewest leaves, then by the
    /// gates that the window determines.
    fn grow(&self, pivot: usize) -> Window {
        let mut window = Window { leaves: vec![], gates: vec![] };
        window.expand(self.xag, pivot);
        while window.gates.len() < self.options.max_gates {
            let added = |&leaf: &usize| {
                let fanins = self.xag.node(leaf).fanins();
                fanins.iter().filter(|fanin| !window.contains(fanin.node())).count()
            };
            let can_expand = |&leaf: &usize| self.xag.is_gate(leaf) && !self.in_window[leaf];
            let candidates = window.leaves.iter().copied().filter(can_expand);
            // Of equally good leaves the last, so that the window has no holes.
            let best = candidates.min_by_key(|leaf| (added(leaf), usize::MAX - leaf));
            match best {
                Some(leaf) if window.leaves.len() + added(&leaf) - 1 <= self.options.max_leaves => {
                    window.expand(self.xag, leaf);
                }
                _ => break,
            }
        }
        self.add_fanouts(&mut window);
        window.leaves.sort_unstable();
        window.gates.sort_unstable();
        window
    }

    /// Adds gates whose fanins are both in the window.
    fn add_fanouts(&self, window: &mut Window) {
        let mut queue: Vec<usize> = window.leaves.iter().chain(&window.gates).copied().collect();
        let mut next = 0;
        while next < queue.len() && window.gates.len() < self.options.max_gates {
            let fanouts = self.fanouts.of(queue[next]);
            next += 1;
            for &fanout in fanouts.iter().take(MAX_FANOUTS) {
                let fanout = fanout as usize;
                let mut fanins = self.xag.node(fanout).fanins().into_iter();
                let is_determined = fanins.all(|fanin| window.contains(fanin.node()));
                if is_determined && !window.contains(fanout) && !self.in_window[fanout] {
                    window.gates.push(fanout);
                    queue.push(fanout);
                }
            }
        }
    }

    /// Returns the window as an XAG on its leaves, and the nodes that are its outputs.
    fn extract(&self, window: &Window) -> (Xag, Vec<usize>) {
        let mut inside = Xag::new(window.leaves.len());
        let mut old_to_new: FxHashMap<usize, Literal> = FxHashMap::default();
        old_to_new.extend(window.leaves.iter().enumerate().map(|(i, &leaf)| (leaf, Literal::input(i))));
        let mut fanouts_inside: FxHashMap<usize, u32> = FxHashMap::default();
        for &index in &window.gates {
            let node = self.xag.node(index);
            let [a, b] = node.fanins().map(|fanin| {
                *fanouts_inside.entry(fanin.node()).or_insert(0) += 1;
                old_to_new[&fanin.node()].invert_if(fanin.is_inverted())
            });
            old_to_new.insert(index, inside.operation(node.operation(), a, b));
        }
        let has_fanout_outside =
            |node: &usize| self.fanout_counts[*node] > fanouts_inside.get(node).copied().unwrap_or(0);
        let outputs: Vec<usize> = window.gates.iter().copied().filter(has_fanout_outside).collect();
        inside.set_outputs(outputs.iter().map(|output| old_to_new[output]).collect());
        (inside.without_dead_gates(), outputs)
    }

    /// Returns the XAG with all accepted windows replaced.
    fn finish(&self) -> Xag {
        let mut fresh = Xag::new(self.xag.inputs());
        let mut old_to_new: Vec<Option<Literal>> = vec![None; self.xag.len()];
        for (node, literal) in old_to_new.iter_mut().enumerate().take(self.xag.inputs() + 1) {
            *literal = Some(Literal::new(node, false));
        }
        let mut stack: Vec<usize> = Vec::new();
        for output in self.xag.outputs() {
            stack.push(output.node());
            while let Some(&node) = stack.last() {
                if old_to_new[node].is_some() {
                    stack.pop();
                } else if !self.build(node, &mut fresh, &mut old_to_new) {
                    let dependencies = self.dependencies(node);
                    stack.extend(dependencies.into_iter().filter(|&node| old_to_new[node].is_none()));
                }
            }
        }
        let outputs = self.xag.outputs().iter().map(|&output| translate_built(output, &old_to_new)).collect();
        fresh.set_outputs(outputs);
        fresh.without_dead_gates()
    }

    /// Returns the nodes that a node is built from: its fanins, or the support of its replacement.
    fn dependencies(&self, node: usize) -> Vec<usize> {
        let Some(&(window, place)) = self.replaced.get(&node) else {
            return self.xag.node(node).fanins().map(Literal::node).to_vec();
        };
        let Replacement { leaves, xag, .. } = &self.windows[window];
        let support = supports(xag)[xag.outputs()[place].node()];
        (0..leaves.len()).filter(|&leaf| support >> leaf & 1 == 1).map(|leaf| leaves[leaf]).collect()
    }

    /// Builds a node if its dependencies are built. Returns whether it did.
    fn build(&self, node: usize, fresh: &mut Xag, old_to_new: &mut [Option<Literal>]) -> bool {
        if self.dependencies(node).iter().any(|&dependency| old_to_new[dependency].is_none()) {
            return false;
        }
        let Some(&(window, place)) = self.replaced.get(&node) else {
            let gate = self.xag.node(node);
            let [a, b] = gate.fanins().map(|fanin| translate_built(fanin, old_to_new));
            old_to_new[node] = Some(fresh.operation(gate.operation(), a, b));
            return true;
        };
        let Replacement { leaves, xag, .. } = &self.windows[window];
        let output = xag.outputs()[place];
        let mut inner: Vec<Option<Literal>> = vec![Some(Literal::FALSE)];
        inner.extend(leaves.iter().map(|&leaf| old_to_new[leaf]));
        for index in xag.gate_range() {
            let gate = xag.node(index);
            let [a, b] = gate.fanins().map(|f| inner[f.node()].map(|l| l.invert_if(f.is_inverted())));
            inner.push(a.zip(b).map(|(a, b)| fresh.operation(gate.operation(), a, b)));
        }
        old_to_new[node] = inner[output.node()].map(|literal| literal.invert_if(output.is_inverted()));
        true
    }
}

/// Translates a literal of a node that is built.
fn translate_built(literal: Literal, old_to_new: &[Option<Literal>]) -> Literal {
    old_to_new[literal.node()].unwrap_or(Literal::FALSE).invert_if(literal.is_inverted())
}

impl Window {
    fn contains(&self, node: usize) -> bool {
        self.gates.contains(&node) || self.leaves.contains(&node)
    }

    /// Makes a node a gate of the window; its fanins become leaves.
    fn expand(&mut self, xag: &Xag, node: usize) {
        self.leaves.retain(|&leaf| leaf != node);
        self.gates.push(node);
        for fanin in xag.node(node).fanins() {
            if !self.contains(fanin.node()) {
                self.leaves.push(fanin.node());
            }
        }
    }
}

/// Returns the structural support of each node, as a bit set of inputs.
fn supports(xag: &Xag) -> Vec<u64> {
    let mut supports = vec![0];
    supports.extend((0..xag.inputs()).map(|input| 1 << input));
    for index in xag.gate_range() {
        let [a, b] = xag.node(index).fanins().map(|fanin| supports[fanin.node()]);
        supports.push(a | b);
    }
    supports
}

/// Returns whether the support of each output is contained in that of the same output of another XAG.
fn has_no_larger_support(xag: &Xag, other: &Xag) -> bool {
    let (own, others) = (supports(xag), supports(other));
    let mut pairs = xag.outputs().iter().zip(other.outputs());
    pairs.all(|(a, b)| own[a.node()] & !others[b.node()] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn resubstitution_preserves_the_function_and_adds_no_gates(
            circuit in arbitrary::circuit(5..=40, 300),
            round in 0usize..5,
            max_leaves in 4usize..8,
        ) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            prop_assume!(xag.gates() > 0);
            let patience = 10 * (round % 2);
            let options = WindowOptions { max_leaves, max_gates: 20, replacement_gates: 1, patience };
            let smaller = resubstitute(&xag, options, round, None, &Stop::never()).unwrap();
            prop_assert!(smaller.gates() <= xag.gates());
            prop_assert_eq!(equivalent(&circuit, &smaller.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
