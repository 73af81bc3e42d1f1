//! SAT queries: whether two literals of an XAG are equal.
//!
//! Equal nodes of similar circuits are mostly equal for local reasons. A query therefore starts with a part of the fan-in
//! cone: gates are expanded in reverse topological order up to a maximum number, and the fanins at the border are free
//! variables. If the literals are equal in the partial cone they are equal in the XAG. A difference is real only if all
//! free variables are inputs; otherwise the query is repeated with a larger cone.

use crate::xag::{Literal, Operation, Xag};
use batsat::{Callbacks, ClauseKind, SolverInterface, SolverOpts, lbool};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The literals are equal for every input.
    Equal,
    /// The literals differ for these values of these inputs, for any values of the others.
    Different(Vec<(usize, bool)>),
    /// The limits were exceeded.
    Unknown,
}

/// Limits of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of gates of the cone.
    pub gates: usize,
    /// The maximum number of conflicts of the solver, per cone.
    pub conflicts: u64,
    /// The time at which the query ends.
    pub deadline: Option<Instant>,
}

impl Limits {
    pub const NONE: Limits = Limits { gates: usize::MAX, conflicts: u64::MAX, deadline: None };
}

/// The maximum number of gates of the first cone.
const FIRST_CONE: usize = 64;
/// The factor by which the maximum grows when the query is repeated.
const GROWTH: usize = 16;

/// Decides whether two literals are equal.
pub(crate) fn equal(xag: &Xag, a: Literal, b: Literal, limits: Limits) -> Answer {
    if a == b {
        return Answer::Equal;
    }
    let mut gates = FIRST_CONE;
    loop {
        if limits.is_past_deadline() {
            return Answer::Unknown;
        }
        let cone = Cone::new(xag, [a.node(), b.node()], gates.min(limits.gates));
        match cone.check(xag, a, b, limits) {
            Answer::Different(_) if !cone.is_complete && gates < limits.gates => {}
            Answer::Different(_) if !cone.is_complete => return Answer::Unknown,
            answer => return answer,
        }
        gates = gates.saturating_mul(GROWTH);
    }
}

/// A partial fan-in cone.
struct Cone {
    /// The gates, in reverse topological order.
    gates: Vec<usize>,
    /// The free variables: inputs, and gates if the cone is not complete.
    free: Vec<usize>,
    /// Whether all free variables are inputs.
    is_complete: bool,
}

impl Cone {
    fn new(xag: &Xag, roots: [usize; 2], max_gates: usize) -> Cone {
        let mut queue = BinaryHeap::from(roots);
        let mut cone = Cone { gates: Vec::new(), free: Vec::new(), is_complete: true };
        while let Some(node) = queue.pop() {
            while queue.peek() == Some(&node) {
                queue.pop();
            }
            if node == 0 {
                break;
            }
            if !xag.is_gate(node) {
                cone.free.push(node);
            } else if cone.gates.len() == max_gates {
                cone.free.push(node);
                cone.is_complete = false;
            } else {
                cone.gates.push(node);
                queue.extend(xag.node(node).fanins().map(Literal::node));
            }
        }
        cone
    }

    fn check(&self, xag: &Xag, a: Literal, b: Literal, limits: Limits) -> Answer {
        let mut clauses = Clauses::new(limits);
        for &node in self.free.iter().chain(self.gates.iter().rev()) {
            clauses.add_variable(node);
        }
        for &node in &self.gates {
            clauses.add_gate(xag, node);
        }
        let difference = [(a, b.not()), (a.not(), b)];
        for (a, b) in difference {
            match clauses.solve(&[a, b]) {
                Some(false) => {}
                Some(true) => return Answer::Different(self.inputs(xag, &clauses)),
                None => return Answer::Unknown,
            }
        }
        Answer::Equal
    }

    /// Returns the values of the inputs in the model that was found.
    fn inputs(&self, xag: &Xag, clauses: &Clauses) -> Vec<(usize, bool)> {
        let inputs = self.free.iter().filter(|&&node| !xag.is_gate(node));
        inputs.map(|&node| (node - 1, clauses.value(node))).collect()
    }
}

/// The limits of a query, as callbacks of the solver.
struct Budget {
    limits: Limits,
    conflicts: u64,
    calls: Cell<u32>,
}

impl Callbacks for Budget {
    fn on_new_clause(&mut self, _: &[batsat::Lit], kind: ClauseKind) {
        self.conflicts += u64::from(kind == ClauseKind::Learnt);
    }

    fn stop(&self) -> bool {
        // Reading the clock each time would take longer than many decisions.
        self.calls.set(self.calls.get().wrapping_add(1));
        let is_late = || self.calls.get().is_multiple_of(256) && self.limits.is_past_deadline();
        self.conflicts > self.limits.conflicts || is_late()
    }
}

impl Limits {
    pub fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The Tseitin encoding of a cone.
struct Clauses {
    solver: batsat::Solver<Budget>,
    variables: FxHashMap<usize, batsat::Var>,
    clause: Vec<batsat::Lit>,
}

impl Clauses {
    fn new(limits: Limits) -> Clauses {
        let budget = Budget { limits, conflicts: 0, calls: Cell::new(0) };
        let solver = batsat::Solver::new(SolverOpts::default(), budget);
        let mut clauses = Clauses { solver, variables: FxHashMap::default(), clause: Vec::new() };
        clauses.add_variable(0);
        clauses.add(&[Literal::TRUE]);
        clauses
    }

    fn add_variable(&mut self, node: usize) {
        let variable = self.solver.new_var_default();
        self.variables.insert(node, variable);
    }

    fn literal(&self, literal: Literal) -> batsat::Lit {
        batsat::Lit::new(self.variables[&literal.node()], !literal.is_inverted())
    }

    fn add(&mut self, literals: &[Literal]) {
        let mut clause = std::mem::take(&mut self.clause);
        clause.clear();
        clause.extend(literals.iter().map(|&literal| self.literal(literal)));
        self.solver.add_clause_reuse(&mut clause);
        self.clause = clause;
    }

    fn add_gate(&mut self, xag: &Xag, node: usize) {
        let gate = xag.node(node);
        let (y, a, b) = (Literal::new(node, false), gate.a, gate.b);
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

    /// Returns whether the formula is satisfiable under assumptions; `None` if the limits were exceeded.
    fn solve(&mut self, assumptions: &[Literal]) -> Option<bool> {
        let assumptions: Vec<batsat::Lit> = assumptions.iter().map(|&a| self.literal(a)).collect();
        let answer = self.solver.solve_limited(&assumptions);
        if answer == lbool::UNDEF { None } else { Some(answer == lbool::TRUE) }
    }

    fn value(&self, node: usize) -> bool {
        self.solver.value_var(self.variables[&node]) == lbool::TRUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    /// Returns the parity of `n` inputs as two chains of XORs, from the first input on and from the last.
    fn parities(n: usize) -> (Xag, Literal, Literal) {
        let mut xag = Xag::new(n);
        let inputs: Vec<Literal> = (0..n).map(Literal::input).collect();
        let forward = inputs.iter().fold(Literal::FALSE, |sum, &x| xag.xor(sum, x));
        let backward = inputs.iter().rev().fold(Literal::FALSE, |sum, &x| xag.xor(sum, x));
        (xag, forward, backward)
    }

    #[test]
    fn limits_are_kept() {
        let (xag, a, b) = parities(60);
        let few = Limits { conflicts: 10, ..Limits::NONE };
        assert_eq!(equal(&xag, a, b, few), Answer::Unknown);
        let now = Limits { deadline: Some(Instant::now()), ..Limits::NONE };
        assert_eq!(equal(&xag, a, b, now), Answer::Unknown);
        let small = Limits { gates: 30, ..Limits::NONE };
        assert_eq!(equal(&xag, a, b, small), Answer::Unknown);
    }

    #[test]
    fn literals_can_be_compared_with_constants() {
        let mut xag = Xag::new(2);
        let (a, b) = (Literal::input(0), Literal::input(1));
        let (both, neither) = (xag.and(a, b), xag.and(a.not(), b.not()));
        let never = xag.and(both, neither);
        assert_eq!(equal(&xag, never, Literal::FALSE, Limits::NONE), Answer::Equal);
        assert_eq!(equal(&xag, Literal::TRUE, never.not(), Limits::NONE), Answer::Equal);
        let answer = equal(&xag, Literal::TRUE, both, Limits::NONE);
        assert!(matches!(answer, Answer::Different(inputs) if !inputs.is_empty()));
    }

    proptest! {
        #[test]
        fn answers_match_exhaustive_simulation(circuit in arbitrary::circuit(6..=6, 80)) {
            let xag = Xag::from_circuit(&circuit);
            let inputs: Vec<u64> = (0..6).map(|k| (0..64).fold(0, |w, i| w | (i >> k & 1) << i)).collect();
            let mut values = Vec::new();
            xag.eval_words(&inputs, &mut values);
            let word = |literal: Literal| values[literal.node()] ^ literal.mask();
            for pair in xag.outputs().windows(2) {
                let (a, b) = (pair[0], pair[1]);
                match equal(&xag, a, b, Limits::NONE) {
                    Answer::Equal => prop_assert_eq!(word(a), word(b)),
                    Answer::Different(bits) => {
                        let fits = |&(input, bit): &(usize, bool)| inputs[input] ^ u64::from(!bit).wrapping_neg();
                        let places = bits.iter().map(fits).fold(u64::MAX, |all, word| all & word);
                        prop_assert!(places != 0 && (word(a) ^ word(b)) & places == places);
                    }
                    Answer::Unknown => prop_assert!(false, "there were no limits"),
                }
            }
        }
    }
}
