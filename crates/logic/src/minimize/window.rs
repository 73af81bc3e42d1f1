//! Resubstitution in windows: parts of a large network, small enough for truth tables.
//!
//! A window has few leaves; what is inside is computed from them, and what is read outside are its outputs. As a
//! network of its own it goes through the searches of `search`, which may use every vertex inside as a divisor
//! and every don't-care at the outputs. Windows of one pass share no inside vertex.
//!
//! A smaller window is taken only if each of its outputs depends on no leaf that it did not depend on before.
//! Then nothing in the network depends on more than before, so any number of windows can be exchanged at once
//! without a cycle.

use super::search;
use crate::network::{Literal, Network};
use rustc_hash::FxHashMap;

/// How large windows are and how hard they are searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The most leaves.
    pub leaves: usize,
    /// The most gates inside.
    pub gates: usize,
    /// The gates of the expressions that are tried.
    pub depth: usize,
    /// Steps without success before a random walk ends; 0 for no walk.
    pub patience: usize,
}

/// One pass over a network. `turn` shifts the windows.
pub(super) fn resubstitute(network: &Network, size: Size, turn: usize) -> Network {
    let mut pass = Pass::new(network, size);
    let gates = network.gates();
    // From the outputs to the inputs, from another place each turn.
    for step in 0..gates {
        let pivot = network.inputs() + 1 + (2 * gates - 1 - step - (turn * 7919) % gates) % gates;
        if !pass.taken[pivot] {
            pass.visit(pivot, turn);
        }
    }
    pass.finish()
}

struct Pass<'a> {
    network: &'a Network,
    size: Size,
    references: Vec<u32>,
    readers: Readers,
    /// Whether a vertex is inside a window already.
    taken: Vec<bool>,
    /// The window that computes a vertex anew, and which of its outputs it is.
    replaced: FxHashMap<usize, (usize, usize)>,
    windows: Vec<Exchange>,
}

/// A window that is exchanged: its leaves and its new inside.
struct Exchange {
    leaves: Vec<usize>,
    inside: Network,
}

/// The gates that read each vertex, in one array.
struct Readers {
    starts: Vec<u32>,
    readers: Vec<u32>,
}

impl Readers {
    fn new(network: &Network) -> Readers {
        let mut starts = vec![0u32; network.len() + 1];
        for number in network.gate_range() {
            for operand in network.vertex(number).operands() {
                starts[operand.vertex() + 1] += 1;
            }
        }
        for vertex in 0..network.len() {
            starts[vertex + 1] += starts[vertex];
        }
        let mut ends = starts.clone();
        let mut readers = vec![0; starts[network.len()] as usize];
        for number in network.gate_range() {
            for operand in network.vertex(number).operands() {
                let end = &mut ends[operand.vertex()];
                readers[*end as usize] = number as u32;
                *end += 1;
            }
        }
        Readers { starts, readers }
    }

    fn of(&self, vertex: usize) -> &[u32] {
        &self.readers[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }
}

/// A window: sorted leaves, sorted inside vertices.
struct Window {
    leaves: Vec<usize>,
    inside: Vec<usize>,
}

impl<'a> Pass<'a> {
    fn new(network: &'a Network, size: Size) -> Pass<'a> {
        Pass {
            network,
            size,
            references: network.references(),
            readers: Readers::new(network),
            taken: vec![false; network.len()],
            replaced: FxHashMap::default(),
            windows: Vec::new(),
        }
    }

    fn visit(&mut self, pivot: usize, turn: usize) {
        let window = self.grow(pivot);
        if window.inside.len() < 3 {
            return;
        }
        let (inside, outputs) = self.extract(&window);
        let mut smaller = search::descend(&inside, self.size.depth);
        if self.size.patience > 0 {
            smaller = search::walk(&smaller, self.size.patience, (pivot + turn) as u64);
        }
        for &vertex in &window.inside {
            self.taken[vertex] = true;
        }
        if smaller.gates() < inside.gates() && depends_on_no_more(&smaller, &inside) {
            for (place, &output) in outputs.iter().enumerate() {
                self.replaced.insert(output, (self.windows.len(), place));
            }
            self.windows.push(Exchange { leaves: window.leaves, inside: smaller });
        }
    }

    fn may_open(&self, vertex: usize) -> bool {
        self.network.is_gate(vertex) && !self.taken[vertex]
    }

    /// Grows a window from a vertex: towards the inputs, opening the leaf that adds fewest leaves, then adds
    /// what can be computed from what is there.
    fn grow(&self, pivot: usize) -> Window {
        let mut window = Window { leaves: vec![], inside: vec![] };
        window.open(self.network, pivot);
        while window.inside.len() < self.size.gates {
            let added = |&leaf: &usize| {
                let operands = self.network.vertex(leaf).operands();
                operands.iter().filter(|operand| !window.contains(operand.vertex())).count()
            };
            let candidates = window.leaves.iter().copied().filter(|&leaf| self.may_open(leaf));
            // Of equals the latest vertex, so that a window has no holes.
            let best = candidates.min_by_key(|leaf| (added(leaf), usize::MAX - leaf));
            match best {
                Some(leaf) if window.leaves.len() + added(&leaf) - 1 <= self.size.leaves => {
                    window.open(self.network, leaf);
                }
                _ => break,
            }
        }
        self.add_readers(&mut window);
        window.leaves.sort_unstable();
        window.inside.sort_unstable();
        window
    }

    /// Adds gates that read nothing but the window.
    fn add_readers(&self, window: &mut Window) {
        let mut queue: Vec<usize> = window.leaves.iter().chain(&window.inside).copied().collect();
        let mut next = 0;
        while next < queue.len() && window.inside.len() < self.size.gates {
            let readers = self.readers.of(queue[next]);
            next += 1;
            // A vertex that everybody reads would take long and give little.
            for &reader in readers.iter().take(16) {
                let reader = reader as usize;
                let fits = self.network.vertex(reader).operands().iter().all(|o| window.contains(o.vertex()));
                if fits && !window.contains(reader) && !self.taken[reader] {
                    window.inside.push(reader);
                    queue.push(reader);
                }
            }
        }
    }

    /// The inside as a network on the leaves, and the vertices that are its outputs.
    fn extract(&self, window: &Window) -> (Network, Vec<usize>) {
        let mut inside = Network::new(window.leaves.len());
        let mut moved: FxHashMap<usize, Literal> = FxHashMap::default();
        moved.extend(window.leaves.iter().enumerate().map(|(i, &leaf)| (leaf, Literal::input(i))));
        let mut readers: FxHashMap<usize, u32> = FxHashMap::default();
        for &number in &window.inside {
            let vertex = self.network.vertex(number);
            let [a, b] = vertex.operands().map(|operand| {
                *readers.entry(operand.vertex()).or_insert(0) += 1;
                moved[&operand.vertex()].invert_if(operand.is_inverted())
            });
            moved.insert(number, inside.operation(vertex.operation(), a, b));
        }
        let is_read_outside =
            |vertex: &usize| self.references[*vertex] > readers.get(vertex).copied().unwrap_or(0);
        let outputs: Vec<usize> = window.inside.iter().copied().filter(is_read_outside).collect();
        inside.set_outputs(outputs.iter().map(|output| moved[output]).collect());
        (inside.without_dead_gates(), outputs)
    }

    /// The network with all exchanges.
    fn finish(&self) -> Network {
        let mut fresh = Network::new(self.network.inputs());
        let mut moved: Vec<Option<Literal>> = vec![None; self.network.len()];
        for (vertex, literal) in moved.iter_mut().enumerate().take(self.network.inputs() + 1) {
            *literal = Some(Literal::new(vertex, false));
        }
        let mut stack: Vec<usize> = Vec::new();
        for output in self.network.outputs() {
            stack.push(output.vertex());
            while let Some(&vertex) = stack.last() {
                if moved[vertex].is_some() {
                    stack.pop();
                } else if !self.build(vertex, &mut fresh, &mut moved) {
                    let needed = self.needed(vertex);
                    stack.extend(needed.into_iter().filter(|&vertex| moved[vertex].is_none()));
                }
            }
        }
        let moved = |output: &Literal| moved[output.vertex()].unwrap_or(Literal::FALSE);
        let outputs = self.network.outputs().iter().map(|o| moved(o).invert_if(o.is_inverted())).collect();
        fresh.set_outputs(outputs);
        fresh.without_dead_gates()
    }

    /// What a vertex is built from: its operands, or the leaves that its new circuit reads.
    fn needed(&self, vertex: usize) -> Vec<usize> {
        let Some(&(window, place)) = self.replaced.get(&vertex) else {
            return self.network.vertex(vertex).operands().map(Literal::vertex).to_vec();
        };
        let Exchange { leaves, inside } = &self.windows[window];
        let support = supports(inside)[inside.outputs()[place].vertex()];
        (0..leaves.len()).filter(|&leaf| support >> leaf & 1 == 1).map(|leaf| leaves[leaf]).collect()
    }

    /// Builds a vertex if all that it needs is there.
    fn build(&self, vertex: usize, fresh: &mut Network, moved: &mut [Option<Literal>]) -> bool {
        if self.needed(vertex).iter().any(|&needed| moved[needed].is_none()) {
            return false;
        }
        let Some(&(window, place)) = self.replaced.get(&vertex) else {
            let gate = self.network.vertex(vertex);
            let [a, b] = gate.operands().map(|o| read(moved, o));
            moved[vertex] = Some(fresh.operation(gate.operation(), a, b));
            return true;
        };
        let Exchange { leaves, inside } = &self.windows[window];
        let output = inside.outputs()[place];
        let mut inner: Vec<Option<Literal>> = vec![Some(Literal::FALSE)];
        inner.extend(leaves.iter().map(|&leaf| moved[leaf]));
        for number in inside.gate_range() {
            let gate = inside.vertex(number);
            let [a, b] = gate.operands().map(|o| inner[o.vertex()].map(|l| l.invert_if(o.is_inverted())));
            inner.push(a.zip(b).map(|(a, b)| fresh.operation(gate.operation(), a, b)));
        }
        moved[vertex] = inner[output.vertex()].map(|literal| literal.invert_if(output.is_inverted()));
        true
    }
}

/// What a literal has become.
fn read(moved: &[Option<Literal>], literal: Literal) -> Literal {
    moved[literal.vertex()].unwrap_or(Literal::FALSE).invert_if(literal.is_inverted())
}

impl Window {
    fn contains(&self, vertex: usize) -> bool {
        self.inside.contains(&vertex) || self.leaves.contains(&vertex)
    }

    /// Moves a vertex inside; its operands become leaves.
    fn open(&mut self, network: &Network, vertex: usize) {
        self.leaves.retain(|&leaf| leaf != vertex);
        self.inside.push(vertex);
        for operand in network.vertex(vertex).operands() {
            if !self.contains(operand.vertex()) {
                self.leaves.push(operand.vertex());
            }
        }
    }
}

/// The inputs that each vertex depends on, as bits.
fn supports(network: &Network) -> Vec<u64> {
    let mut supports = vec![0];
    supports.extend((0..network.inputs()).map(|input| 1 << input));
    for number in network.gate_range() {
        let [a, b] = network.vertex(number).operands().map(|operand| supports[operand.vertex()]);
        supports.push(a | b);
    }
    supports
}

/// Whether no output of a network depends on an input that it does not depend on in another one.
fn depends_on_no_more(network: &Network, other: &Network) -> bool {
    let (own, others) = (supports(network), supports(other));
    let mut pairs = network.outputs().iter().zip(other.outputs());
    pairs.all(|(a, b)| own[a.vertex()] & !others[b.vertex()] == 0)
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
        fn the_function_stays_and_gates_do_not_grow(
            circuit in arbitrary::circuit(5..=40, 300),
            turn in 0usize..5,
            leaves in 4usize..8,
        ) {
            let network = Network::of(&circuit).without_dead_gates();
            prop_assume!(network.gates() > 0);
            let size = Size { leaves, gates: 20, depth: 1, patience: 10 * (turn % 2) };
            let smaller = resubstitute(&network, size, turn);
            prop_assert!(smaller.gates() <= network.gates());
            prop_assert_eq!(equivalent(&circuit, &smaller.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
