//! SAT queries: whether two literals of an XAG are equal.
//!
//! Equal nodes of similar circuits are mostly equal for local reasons. A query therefore starts with a part of the fan-in
//! cone: gates are expanded in reverse topological order up to a maximum number, and the fanins at the border are free
//! variables. If the literals are equal in the partial cone they are equal in the XAG. A difference is real only if all
//! free variables are inputs; otherwise the query is repeated with a larger cone.

use crate::stop::{STRIDE, Stop, Stopped};
use crate::xag::{Literal, Operation, Xag};
use batsat::{Callbacks, ClauseKind, SolverInterface, SolverOpts, lbool};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::BinaryHeap;

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
}

impl Limits {
    pub const NONE: Limits = Limits { gates: usize::MAX, conflicts: u64::MAX };
}

/// The maximum number of gates of the first cone.
const FIRST_CONE: usize = 64;
/// The factor by which the maximum grows when the query is repeated.
const GROWTH: usize = 16;

/// The number of decisions of the solver between two polls. A decision in a cone of a million
/// gates can take milliseconds.
const DECISION_STRIDE: usize = 16;

/// Decides whether two literals are equal.
pub(crate) fn equal(xag: &Xag, a: Literal, b: Literal, limits: Limits, stop: &Stop<'_>) -> Answer {
    if a == b {
        return Answer::Equal;
    }
    let mut gates = FIRST_CONE;
    loop {
        let Some(cone) = Cone::new(xag, [a.node(), b.node()], gates.min(limits.gates), stop) else {
            return Answer::Unknown;
        };
        match cone.check(xag, a, b, limits, stop) {
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
    /// Returns the cone of two nodes, or `None` if it is time to stop.
    fn new(xag: &Xag, roots: [usize; 2], max_gates: usize, stop: &Stop<'_>) -> Option<Cone> {
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
                if cone.gates.len().is_multiple_of(STRIDE) && stop.is_due() {
                    return None;
                }
                cone.gates.push(node);
                queue.extend(xag.node(node).fanins().map(Literal::node));
            }
        }
        Some(cone)
    }

    fn check(&self, xag: &Xag, a: Literal, b: Literal, limits: Limits, stop: &Stop<'_>) -> Answer {
        let mut clauses = Clauses::new(limits, stop);
        for &node in self.free.iter().chain(self.gates.iter().rev()) {
            clauses.add_variable(node);
        }
        for gates in self.gates.chunks(STRIDE) {
            if stop.is_due() {
                return Answer::Unknown;
            }
            for &node in gates {
                clauses.add_gate(xag, node);
            }
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
    fn inputs(&self, xag: &Xag, clauses: &Clauses<'_>) -> Vec<(usize, bool)> {
        let inputs = self.free.iter().filter(|&&node| !xag.is_gate(node));
        inputs.map(|&node| (node - 1, clauses.value(node))).collect()
    }
}

/// Calls `add` with each clause of the Tseitin encoding of a gate.
pub(crate) fn gate_clauses(xag: &Xag, node: usize, mut add: impl FnMut(&[Literal])) {
    let gate = xag.node(node);
    let (y, a, b) = (Literal::new(node, false), gate.a, gate.b);
    match gate.operation() {
        Operation::And => {
            add(&[y.not(), a]);
            add(&[y.not(), b]);
            add(&[y, a.not(), b.not()]);
        }
        Operation::Xor => {
            add(&[y.not(), a, b]);
            add(&[y.not(), a.not(), b.not()]);
            add(&[y, a, b.not()]);
            add(&[y, a.not(), b]);
        }
    }
}

/// The limits of a query, as callbacks of the solver.
struct Budget<'a> {
    limits: Limits,
    stop: &'a Stop<'a>,
    conflicts: u64,
    calls: Cell<usize>,
}

impl Callbacks for Budget<'_> {
    fn on_new_clause(&mut self, _: &[batsat::Lit], kind: ClauseKind) {
        self.conflicts += u64::from(kind == ClauseKind::Learnt);
    }

    /// Returns whether to end the search. The solver polls before each decision, and once more after the search has
    /// ended: that answer must be the same, or the search starts again.
    fn stop(&self) -> bool {
        // Reading the clock each time would take longer than many decisions.
        let calls = self.calls.replace(self.calls.get().wrapping_add(1));
        self.conflicts > self.limits.conflicts
            || self.stop.was_due()
            || calls.is_multiple_of(DECISION_STRIDE) && self.stop.is_due()
    }
}

/// The Tseitin encoding of a cone.
pub(crate) struct Clauses<'a> {
    stop: &'a Stop<'a>,
    solver: batsat::Solver<Budget<'a>>,
    variables: FxHashMap<usize, batsat::Var>,
    clause: Vec<batsat::Lit>,
}

impl<'a> Clauses<'a> {
    pub fn new(limits: Limits, stop: &'a Stop<'a>) -> Clauses<'a> {
        let budget = Budget { limits, stop, conflicts: 0, calls: Cell::new(0) };
        let solver = batsat::Solver::new(SolverOpts::default(), budget);
        let mut clauses = Clauses { stop, solver, variables: FxHashMap::default(), clause: Vec::new() };
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

    pub fn add(&mut self, literals: &[Literal]) {
        let mut clause = std::mem::take(&mut self.clause);
        clause.clear();
        clause.extend(literals.iter().map(|&literal| self.literal(literal)));
        self.solver.add_clause_reuse(&mut clause);
        self.clause = clause;
    }

    fn add_gate(&mut self, xag: &Xag, node: usize) {
        gate_clauses(xag, node, |clause| self.add(clause));
    }

    /// Adds the gates of the fan-in cone of a literal that are not there yet.
    pub fn add_cone(&mut self, xag: &Xag, root: Literal) -> Result<(), Stopped> {
        let mut stack = vec![root.node()];
        let mut gates = Vec::new();
        while let Some(node) = stack.pop() {
            if self.variables.contains_key(&node) {
                continue;
            }
            self.stop.check_at(gates.len())?;
            self.add_variable(node);
            if xag.is_gate(node) {
                gates.push(node);
                stack.extend(xag.node(node).fanins().map(Literal::node));
            }
        }
        for (i, &node) in gates.iter().enumerate() {
            self.stop.check_at(i)?;
            self.add_gate(xag, node);
        }
        Ok(())
    }

    /// Returns whether the formula is satisfiable under assumptions; `None` if the limits were exceeded.
    pub fn solve(&mut self, assumptions: &[Literal]) -> Option<bool> {
        let assumptions: Vec<batsat::Lit> = assumptions.iter().map(|&a| self.literal(a)).collect();
        let answer = self.solver.solve_limited(&assumptions);
        if answer == lbool::UNDEF { None } else { Some(answer == lbool::TRUE) }
    }

    /// Returns the value of a node in the model that was found; false if the node was not added.
    pub fn value(&self, node: usize) -> bool {
        let variable = self.variables.get(&node);
        variable.is_some_and(|&variable| self.solver.value_var(variable) == lbool::TRUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

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
        assert_eq!(equal(&xag, a, b, few, &Stop::never()), Answer::Unknown);
        assert_eq!(equal(&xag, a, b, Limits::NONE, &Stop::after(Duration::ZERO)), Answer::Unknown);
        let small = Limits { gates: 30, ..Limits::NONE };
        assert_eq!(equal(&xag, a, b, small, &Stop::never()), Answer::Unknown);
    }

    #[test]
    fn a_search_that_was_stopped_stays_stopped() {
        let flag = AtomicBool::new(false);
        let stop = Stop::never().or_flag(&flag);
        let budget = Budget { limits: Limits::NONE, stop: &stop, conflicts: 0, calls: Cell::new(0) };
        assert!((0..1000).all(|_| !budget.stop()));
        flag.store(true, Ordering::Relaxed);
        assert!((0..DECISION_STRIDE).any(|_| budget.stop()));
        assert!((0..1000).all(|_| budget.stop()));
    }

    #[test]
    fn a_deadline_that_has_passed_ends_a_search_before_its_first_decision() {
        let stop = Stop::after(Duration::ZERO);
        let budget = Budget { limits: Limits::NONE, stop: &stop, conflicts: 0, calls: Cell::new(0) };
        assert!((0..1000).all(|_| budget.stop()));
    }

    #[test]
    fn a_query_ends_at_the_poll_that_stops_it() {
        let (xag, a, b) = parities(60);
        let never = Stop::never();
        assert_eq!(equal(&xag, a, b, Limits::NONE, &never), Answer::Equal);
        assert!(never.polls() > 20, "{} polls", never.polls());
        for poll in (1..=never.polls()).step_by(never.polls().div_ceil(50) as usize) {
            let stop = Stop::at_poll(poll);
            assert_eq!(equal(&xag, a, b, Limits::NONE, &stop), Answer::Unknown);
            assert_eq!(stop.polls(), poll);
        }
    }

    #[test]
    fn literals_can_be_compared_with_constants() {
        let mut xag = Xag::new(2);
        let (a, b) = (Literal::input(0), Literal::input(1));
        let (both, neither) = (xag.and(a, b), xag.and(a.not(), b.not()));
        let never = xag.and(both, neither);
        assert_eq!(equal(&xag, never, Literal::FALSE, Limits::NONE, &Stop::never()), Answer::Equal);
        assert_eq!(equal(&xag, Literal::TRUE, never.not(), Limits::NONE, &Stop::never()), Answer::Equal);
        let answer = equal(&xag, Literal::TRUE, both, Limits::NONE, &Stop::never());
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
                match equal(&xag, a, b, Limits::NONE, &Stop::never()) {
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
