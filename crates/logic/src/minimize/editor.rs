//! A network that is changed in place, with exact reference counts.
//!
//! A pass visits the vertices in order and may replace the one it visits by a literal of what comes before it.
//! Nothing else is touched: a replaced vertex points to its replacement, and a vertex that reads it finds out
//! when it is visited. New vertices belong to the visit that made them, and a visit uses only vertices of its
//! own or of earlier visits. So there are no cycles, and no lists of readers are needed.
//!
//! A vertex is alive if something reads it. One that loses its last reader gives up its operands; it may come
//! back to life later.

use crate::network::{Literal, Network, Normal, Vertex, normal};
use rustc_hash::FxHashMap;

/// A network under change.
pub(super) struct Editor {
    inputs: usize,
    vertices: Vec<Vertex>,
    outputs: Vec<Literal>,
    table: FxHashMap<Vertex, u32>,
    references: Vec<u32>,
    /// What each vertex is replaced by; itself if it is not.
    forward: Vec<Literal>,
    /// The visit that each vertex belongs to.
    visit: Vec<u32>,
    stack: Vec<u32>,
}

impl Editor {
    pub fn new(network: &Network) -> Editor {
        let vertices: Vec<Vertex> = (0..network.len()).map(|vertex| network.vertex(vertex)).collect();
        let table = network.gate_range().map(|number| (vertices[number], number as u32)).collect();
        Editor {
            inputs: network.inputs(),
            outputs: network.outputs().to_vec(),
            table,
            references: network.references(),
            forward: (0..vertices.len()).map(|vertex| Literal::new(vertex, false)).collect(),
            visit: (0..vertices.len() as u32).collect(),
            vertices,
            stack: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    pub fn vertex(&self, vertex: usize) -> Vertex {
        self.vertices[vertex]
    }

    pub fn is_gate(&self, vertex: usize) -> bool {
        vertex > self.inputs
    }

    /// Whether something reads a vertex.
    pub fn is_alive(&self, vertex: usize) -> bool {
        self.references[vertex] > 0
    }

    /// Whether a vertex can be read now: an input, or an alive gate that is not replaced.
    pub fn is_usable(&self, vertex: usize) -> bool {
        !self.is_gate(vertex) || self.is_alive(vertex) && self.forward[vertex].vertex() == vertex
    }

    fn resolve(&self, mut literal: Literal) -> Literal {
        loop {
            let next = self.forward[literal.vertex()];
            if next.vertex() == literal.vertex() {
                return literal;
            }
            literal = next.invert_if(literal.is_inverted());
        }
    }

    /// Begins the visit of a gate: brings its operands up to date. Returns whether there is still a gate.
    pub fn begin(&mut self, number: usize) -> bool {
        if !self.is_usable(number) {
            return false;
        }
        let vertex = self.vertices[number];
        let [a, b] = vertex.operands().map(|operand| self.resolve(operand));
        if [a, b] == vertex.operands() && self.find(number, vertex) == Some(number) {
            return true;
        }
        self.forget(number);
        // The references are counted for these operands, normal or not.
        self.vertices[number] = Vertex { a, b };
        let normal = normal(vertex.operation(), a, b);
        match normal {
            Normal::Vertex(vertex, false) if self.find(number, vertex).is_none() => {
                self.vertices[number] = vertex;
                self.table.insert(vertex, number as u32);
                true
            }
            _ => {
                let literal = self.add(number, normal);
                self.replace(number, literal);
                false
            }
        }
    }

    /// Removes a vertex from the table, if it is the one that is found there.
    fn forget(&mut self, number: usize) {
        if self.table.get(&self.vertices[number]) == Some(&(number as u32)) {
            self.table.remove(&self.vertices[number]);
        }
    }

    /// A vertex like this that the visit may use.
    pub fn find(&self, visit: usize, vertex: Vertex) -> Option<usize> {
        let number = *self.table.get(&vertex)? as usize;
        (self.visit[number] as usize <= visit).then_some(number)
    }

    /// A literal for a normal form; the vertex is made in this visit if there is none to use.
    pub fn add(&mut self, visit: usize, normal: Normal) -> Literal {
        let (vertex, inverted) = match normal {
            Normal::Literal(literal) => return literal,
            Normal::Vertex(vertex, inverted) => (vertex, inverted),
        };
        if let Some(number) = self.find(visit, vertex) {
            return Literal::new(number, inverted);
        }
        let number = self.vertices.len();
        self.vertices.push(vertex);
        self.references.push(0);
        self.forward.push(Literal::new(number, false));
        self.visit.push(visit as u32);
        self.table.insert(vertex, number as u32);
        Literal::new(number, inverted)
    }

    /// Everything that reads the vertex reads the literal from now on.
    pub fn replace(&mut self, number: usize, literal: Literal) {
        let literal = self.resolve(literal);
        if literal.vertex() == number {
            return;
        }
        let readers = self.references[number];
        self.acquire(literal.vertex());
        self.references[literal.vertex()] += readers - 1;
        self.forget(number);
        self.forward[number] = literal;
        self.references[number] = 0;
        self.release_operands(number);
    }

    /// One more reader of a vertex. Returns how many gates come to life.
    pub fn acquire(&mut self, vertex: usize) -> usize {
        let mut born = 0;
        self.stack.push(vertex as u32);
        while let Some(vertex) = self.stack.pop() {
            let vertex = vertex as usize;
            self.references[vertex] += 1;
            if self.references[vertex] == 1 && self.is_gate(vertex) {
                born += 1;
                for operand in self.vertices[vertex].operands() {
                    let operand = self.resolve(operand);
                    self.stack.push(operand.vertex() as u32);
                }
            }
        }
        born
    }

    /// One reader less of a vertex. Returns how many gates die.
    pub fn release(&mut self, vertex: usize) -> usize {
        self.references[vertex] -= 1;
        if self.references[vertex] > 0 || !self.is_gate(vertex) {
            return 0;
        }
        1 + self.release_operands(vertex)
    }

    /// Takes away what a vertex reads. Returns how many gates die.
    pub fn release_operands(&mut self, vertex: usize) -> usize {
        let mut dead = 0;
        self.stack.push(vertex as u32);
        while let Some(vertex) = self.stack.pop() {
            for operand in self.vertices[vertex as usize].operands() {
                let operand = self.resolve(operand).vertex();
                self.references[operand] -= 1;
                if self.references[operand] == 0 && self.is_gate(operand) {
                    dead += 1;
                    self.stack.push(operand as u32);
                }
            }
        }
        dead
    }

    /// Gives back what a vertex reads. Returns how many gates come to life.
    pub fn acquire_operands(&mut self, vertex: usize) -> usize {
        let operands = self.vertices[vertex].operands().map(|operand| self.resolve(operand).vertex());
        operands.into_iter().map(|operand| self.acquire(operand)).sum()
    }

    /// The network as it is now, without what is dead.
    pub fn finish(&self) -> Network {
        let mut network = Network::new(self.inputs);
        let mut moved: Vec<Option<Literal>> = vec![None; self.len()];
        for (vertex, literal) in moved.iter_mut().enumerate().take(self.inputs + 1) {
            *literal = Some(Literal::new(vertex, false));
        }
        let outputs: Vec<Literal> = self.outputs.iter().map(|&output| self.resolve(output)).collect();
        let mut stack: Vec<usize> = Vec::new();
        for output in &outputs {
            stack.push(output.vertex());
            while let Some(&number) = stack.last() {
                if moved[number].is_some() {
                    stack.pop();
                    continue;
                }
                let vertex = self.vertices[number];
                let operands = vertex.operands().map(|operand| self.resolve(operand));
                match operands.map(|o| moved[o.vertex()].map(|moved| moved.invert_if(o.is_inverted()))) {
                    [Some(a), Some(b)] => moved[number] = Some(network.operation(vertex.operation(), a, b)),
                    _ => stack.extend(operands.map(Literal::vertex).iter().filter(|&&o| moved[o].is_none())),
                }
            }
        }
        let moved = |output: &Literal| moved[output.vertex()].unwrap_or(Literal::FALSE);
        network.set_outputs(outputs.iter().map(|o| moved(o).invert_if(o.is_inverted())).collect());
        // Building anew can simplify what read a vertex.
        let is_dead = network.references()[self.inputs + 1..].contains(&0);
        if is_dead { network.without_dead_gates() } else { network }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    impl Editor {
        /// The references, counted anew.
        fn recount(&self) -> Vec<u32> {
            let mut references = vec![0; self.len()];
            let alive = (self.inputs + 1..self.len()).filter(|&vertex| self.is_alive(vertex));
            let operands = alive.flat_map(|vertex| self.vertices[vertex].operands());
            for literal in operands.chain(self.outputs.iter().copied()) {
                references[self.resolve(literal).vertex()] += 1;
            }
            references
        }
    }

    proptest! {
        #[test]
        fn references_are_exact_after_any_replacement(
            circuit in arbitrary::circuit(2..=6, 80),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 100),
        ) {
            let network = Network::of(&circuit).without_dead_gates();
            let mut editor = Editor::new(&network);
            for (number, choice) in network.gate_range().zip(choices) {
                if !editor.begin(number) {
                    continue;
                }
                let choice = choice.index(number);
                if choice % 3 == 0 && editor.is_usable(choice) {
                    editor.replace(number, Literal::new(choice, choice % 2 == 0));
                }
                prop_assert_eq!(&editor.recount(), &editor.references);
                if editor.is_usable(number) {
                    let (dead, born) = (editor.release_operands(number), editor.acquire_operands(number));
                    prop_assert_eq!(dead, born);
                }
            }
            prop_assert!(editor.finish().gates() <= network.gates());
        }
    }
}
