//! Whether two literals of a network are equal, asked of a SAT solver.
//!
//! Equal vertices of similar circuits are mostly equal for a local reason. So the question is asked with the
//! nearest gates first: the cone of the two is opened vertex by vertex, latest first, up to a number of gates,
//! and what lies beyond is a free variable. A "no difference" is then true for the whole network. A difference
//! is one only if nothing but inputs lies beyond; otherwise a larger cone is asked.

use crate::network::{Literal, Network, Operation};
use batsat::{Callbacks, ClauseKind, SolverInterface, SolverOpts, lbool};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::BinaryHeap;
use std::time::Instant;

/// What a check found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The literals are equal for every input.
    Equal,
    /// They differ for these values of these inputs, whatever the other inputs are.
    Different(Vec<(usize, bool)>),
    /// The bounds were too tight.
    Unknown,
}

/// Bounds of one check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most gates that are looked at.
    pub gates: usize,
    /// The most conflicts of the solver, per cone.
    pub conflicts: u64,
    /// When to give up.
    pub deadline: Option<Instant>,
}

impl Bounds {
    pub const NONE: Bounds = Bounds { gates: usize::MAX, conflicts: u64::MAX, deadline: None };
}

/// The gates of the first cone that is tried; later ones are larger by [`GROWTH`].
const FIRST_CONE: usize = 64;
const GROWTH: usize = 16;

/// Whether two literals are equal.
pub(crate) fn equal(network: &Network, a: Literal, b: Literal, bounds: Bounds) -> Answer {
    if a == b {
        return Answer::Equal;
    }
    let mut gates = FIRST_CONE;
    loop {
        if bounds.is_late() {
            return Answer::Unknown;
        }
        let cone = Cone::new(network, [a.vertex(), b.vertex()], gates.min(bounds.gates));
        match cone.check(network, a, b, bounds) {
            Answer::Different(_) if !cone.is_whole && gates < bounds.gates => {}
            Answer::Different(_) if !cone.is_whole => return Answer::Unknown,
            answer => return answer,
        }
        gates = gates.saturating_mul(GROWTH);
    }
}

/// The part of a network that a question is asked with.
struct Cone {
    /// Vertices that are opened, latest first.
    opened: Vec<usize>,
    /// Vertices that are free: inputs, and gates if the cone is not whole.
    free: Vec<usize>,
    /// Whether only inputs are free.
    is_whole: bool,
}

impl Cone {
    fn new(network: &Network, roots: [usize; 2], gates: usize) -> Cone {
        let mut queue = BinaryHeap::from(roots);
        let mut cone = Cone { opened: Vec::new(), free: Vec::new(), is_whole: true };
        while let Some(vertex) = queue.pop() {
            while queue.peek() == Some(&vertex) {
                queue.pop();
            }
            if vertex == 0 {
                break;
            }
            if !network.is_gate(vertex) {
                cone.free.push(vertex);
            } else if cone.opened.len() == gates {
                cone.free.push(vertex);
                cone.is_whole = false;
            } else {
                cone.opened.push(vertex);
                queue.extend(network.vertex(vertex).operands().map(Literal::vertex));
            }
        }
        cone
    }

    fn check(&self, network: &Network, a: Literal, b: Literal, bounds: Bounds) -> Answer {
        let mut clauses = Clauses::new(bounds);
        for &vertex in self.free.iter().chain(self.opened.iter().rev()) {
            clauses.add_variable(vertex);
        }
        for &vertex in &self.opened {
            clauses.add_gate(network, vertex);
        }
        let difference = [(a, b.not()), (a.not(), b)];
        for (a, b) in difference {
            match clauses.solve(&[a, b]) {
                Some(false) => {}
                Some(true) => return Answer::Different(self.inputs(network, &clauses)),
                None => return Answer::Unknown,
            }
        }
        Answer::Equal
    }

    /// The values of the inputs in the model that was found.
    fn inputs(&self, network: &Network, clauses: &Clauses) -> Vec<(usize, bool)> {
        let inputs = self.free.iter().filter(|&&vertex| !network.is_gate(vertex));
        inputs.map(|&vertex| (vertex - 1, clauses.value(vertex))).collect()
    }
}

/// The bounds, as the solver asks for them.
struct Budget {
    bounds: Bounds,
    conflicts: u64,
    calls: Cell<u32>,
}

impl Callbacks for Budget {
    fn on_new_clause(&mut self, _: &[batsat::Lit], kind: ClauseKind) {
        self.conflicts += u64::from(kind == ClauseKind::Learnt);
    }

    fn stop(&self) -> bool {
        // Looking at the clock every time would take longer than many decisions.
        self.calls.set(self.calls.get().wrapping_add(1));
        let late = || self.calls.get().is_multiple_of(256) && self.bounds.is_late();
        self.conflicts > self.bounds.conflicts || late()
    }
}

impl Bounds {
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Vertices as clauses of a solver (Tseitin's encoding).
struct Clauses {
    solver: batsat::Solver<Budget>,
    variables: FxHashMap<usize, batsat::Var>,
    clause: Vec<batsat::Lit>,
}

impl Clauses {
    fn new(bounds: Bounds) -> Clauses {
        let budget = Budget { bounds, conflicts: 0, calls: Cell::new(0) };
        let solver = batsat::Solver::new(SolverOpts::default(), budget);
        let mut clauses = Clauses { solver, variables: FxHashMap::default(), clause: Vec::new() };
        clauses.add_variable(0);
        clauses.add(&[Literal::TRUE]);
        clauses
    }

    fn add_variable(&mut self, vertex: usize) {
        let variable = self.solver.new_var_default();
        self.variables.insert(vertex, variable);
    }

    fn literal(&self, literal: Literal) -> batsat::Lit {
        batsat::Lit::new(self.variables[&literal.vertex()], !literal.is_inverted())
    }

    fn add(&mut self, literals: &[Literal]) {
        let mut clause = std::mem::take(&mut self.clause);
        clause.clear();
        clause.extend(literals.iter().map(|&literal| self.literal(literal)));
        self.solver.add_clause_reuse(&mut clause);
        self.clause = clause;
    }

    fn add_gate(&mut self, network: &Network, vertex: usize) {
        let gate = network.vertex(vertex);
        let (y, a, b) = (Literal::new(vertex, false), gate.a, gate.b);
        match gate.operation() {
            Operation::And => {
                self.add(&[y.not(), a]);
                self.add(&[y.not(), b]);
                self.add(&[y, a.not(), b.not()]);
            }
            Operation::Xor => {
                self.add(&[y.not(), a, b]);
                self.add(&[y.not(), a.not(), b.not()]);
                self.add(&[y, a, b.not()]);
                self.add(&[y, a.not(), b]);
            }
        }
    }

    /// Whether the assumptions can hold, if it was found out.
    fn solve(&mut self, assumptions: &[Literal]) -> Option<bool> {
        let assumptions: Vec<batsat::Lit> = assumptions.iter().map(|&a| self.literal(a)).collect();
        let answer = self.solver.solve_limited(&assumptions);
        if answer == lbool::UNDEF { None } else { Some(answer == lbool::TRUE) }
    }

    fn value(&self, vertex: usize) -> bool {
        self.solver.value_var(self.variables[&vertex]) == lbool::TRUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    /// A chain of `n` XORs, and one with the operands of each pair exchanged.
    fn chains(n: usize) -> (Network, Literal, Literal) {
        let mut network = Network::new(n);
        let inputs: Vec<Literal> = (0..n).map(Literal::input).collect();
        let forward = inputs.iter().fold(Literal::FALSE, |sum, &x| network.xor(sum, x));
        let backward = inputs.iter().rev().fold(Literal::FALSE, |sum, &x| network.xor(sum, x));
        (network, forward, backward)
    }

    #[test]
    fn bounds_are_kept() {
        let (network, a, b) = chains(60);
        let few = Bounds { conflicts: 10, ..Bounds::NONE };
        assert_eq!(equal(&network, a, b, few), Answer::Unknown);
        let now = Bounds { deadline: Some(Instant::now()), ..Bounds::NONE };
        assert_eq!(equal(&network, a, b, now), Answer::Unknown);
        let small = Bounds { gates: 30, ..Bounds::NONE };
        assert_eq!(equal(&network, a, b, small), Answer::Unknown);
    }

    #[test]
    fn constants_can_be_asked() {
        let mut network = Network::new(2);
        let (a, b) = (Literal::input(0), Literal::input(1));
        let (both, neither) = (network.and(a, b), network.and(a.not(), b.not()));
        let never = network.and(both, neither);
        assert_eq!(equal(&network, never, Literal::FALSE, Bounds::NONE), Answer::Equal);
        assert_eq!(equal(&network, Literal::TRUE, never.not(), Bounds::NONE), Answer::Equal);
        let answer = equal(&network, Literal::TRUE, both, Bounds::NONE);
        assert!(matches!(answer, Answer::Different(inputs) if !inputs.is_empty()));
    }

    proptest! {
        #[test]
        fn answers_are_those_of_all_inputs(circuit in arbitrary::circuit(6..=6, 80)) {
            let network = Network::of(&circuit);
            let inputs: Vec<u64> = (0..6).map(|k| (0..64).fold(0, |w, i| w | (i >> k & 1) << i)).collect();
            let mut values = Vec::new();
            network.eval_words(&inputs, &mut values);
            let word = |literal: Literal| values[literal.vertex()] ^ literal.mask();
            for pair in network.outputs().windows(2) {
                let (a, b) = (pair[0], pair[1]);
                match equal(&network, a, b, Bounds::NONE) {
                    Answer::Equal => prop_assert_eq!(word(a), word(b)),
                    Answer::Different(bits) => {
                        let fits = |&(input, bit): &(usize, bool)| inputs[input] ^ u64::from(!bit).wrapping_neg();
                        let places = bits.iter().map(fits).fold(u64::MAX, |all, word| all & word);
                        prop_assert!(places != 0 && (word(a) ^ word(b)) & places == places);
                    }
                    Answer::Unknown => prop_assert!(false, "there were no bounds"),
                }
            }
        }
    }
}
