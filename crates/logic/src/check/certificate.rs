//! Questions as DIMACS, with DRAT proofs.

use super::unrolling::Unrolling;
use super::{CheckError, Limits, Model, Property, Question};
use crate::prove::sat::gate_clauses;
use crate::stop::{Stop, Stopped};
use crate::xag::Literal;
use batsat::{Callbacks, ClauseKind, SolverInterface, SolverOpts, lbool};
use std::fmt::Write as _;

/// A propositional formula, and the proof that it is unsatisfiable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// The formula in the DIMACS format.
    pub dimacs: String,
    /// The proof in the DRAT text format; `None` if the formula is satisfiable, which refutes the property.
    pub drat: Option<String>,
}

/// Returns the formula of a question that one bounded query decides, and a proof of unsatisfiability.
///
/// The formula is unsatisfiable if and only if the property holds. It says that a run is wrong at all steps up to the
/// last one ([`Property::Reaches`]), or that a run from any state is wrong at the first step that counts
/// ([`Property::Stays`] from all states; see the [module](super) for the steps after it). Other questions are errors.
///
/// The proof lists the clauses that the solver learnt. Each follows from the formula and the clauses before it by unit
/// propagation, and the last one is empty. Programs such as `drat-trim` check it without the solver.
pub fn certificate(question: &Question, limits: &Limits, stop: &Stop<'_>) -> Result<Certificate, CheckError> {
    question.validate()?;
    let model = Model::new(question)?;
    let (first, last) = match model.property {
        Property::Reaches { within } => (0, within),
        Property::Stays { from } if model.is_from_any() => (from, from),
        _ => {
            let message =
                "one formula decides only what is reached within some steps, or what stays from all states";
            return Err(CheckError::Certificate(message));
        }
    };
    model.check_memory(last.max(1), limits)?;
    let mut unrolling = Unrolling::from_start(&model, last, stop)?;
    unrolling.extend(last, stop)?;
    let wrong: Vec<Vec<Literal>> = (first..=last).map(|step| vec![unrolling.wrong(step)]).collect();
    let formula = Formula::new(&unrolling, &wrong);
    let drat = formula.refute(stop)?;
    Ok(Certificate { dimacs: formula.to_dimacs(), drat })
}

/// A formula in conjunctive normal form; variables are numbered from 1, and negative numbers are complements.
struct Formula {
    variables: usize,
    clauses: Vec<Vec<i32>>,
}

impl Formula {
    /// The gates of the fan-in cone of all constraints, with these additional clauses.
    fn new(unrolling: &Unrolling<'_>, additional: &[Vec<Literal>]) -> Formula {
        let xag = &unrolling.xag;
        let all = || unrolling.constraints.iter().chain(additional);
        let mut is_used = vec![false; xag.len()];
        all().flatten().for_each(|literal| is_used[literal.node()] = true);
        for node in xag.gate_range().rev() {
            if is_used[node] {
                for fanin in xag.node(node).fanins() {
                    is_used[fanin.node()] = true;
                }
            }
        }
        let mut numbers = vec![0i32; xag.len()];
        let mut variables = 0;
        for node in (0..xag.len()).filter(|&node| is_used[node]) {
            variables += 1;
            numbers[node] = variables as i32;
        }
        let literal = |literal: &Literal| {
            let number = numbers[literal.node()];
            if literal.is_inverted() { -number } else { number }
        };
        let mut clauses: Vec<Vec<i32>> = Vec::new();
        if is_used[0] {
            clauses.push(vec![literal(&Literal::TRUE)]);
        }
        for node in xag.gate_range().filter(|&node| is_used[node]) {
            gate_clauses(xag, node, |clause| clauses.push(clause.iter().map(literal).collect()));
        }
        clauses.extend(all().map(|clause| clause.iter().map(literal).collect()));
        Formula { variables, clauses }
    }

    fn to_dimacs(&self) -> String {
        let mut text = format!("p cnf {} {}\n", self.variables, self.clauses.len());
        self.clauses.iter().for_each(|clause| write_clause(&mut text, clause.iter().copied()));
        text
    }

    /// Returns a DRAT proof, or `None` if the formula is satisfiable.
    fn refute(&self, stop: &Stop<'_>) -> Result<Option<String>, Stopped> {
        let mut solver = batsat::Solver::new(SolverOpts::default(), Recorder { stop, text: String::new() });
        let variables: Vec<batsat::Var> = (0..self.variables).map(|_| solver.new_var_default()).collect();
        let literal =
            |number: &i32| batsat::Lit::new(variables[number.unsigned_abs() as usize - 1], *number > 0);
        for (i, clause) in self.clauses.iter().enumerate() {
            stop.check_at(i)?;
            solver.add_clause_reuse(&mut clause.iter().map(literal).collect());
        }
        let answer = solver.solve_limited(&[]);
        if answer == lbool::UNDEF {
            return Err(Stopped);
        }
        let mut text = std::mem::take(&mut solver.cb_mut().text);
        text.push_str("0\n");
        Ok((answer == lbool::FALSE).then_some(text))
    }
}

/// Records the learnt clauses.
struct Recorder<'a> {
    stop: &'a Stop<'a>,
    text: String,
}

impl Callbacks for Recorder<'_> {
    fn on_new_clause(&mut self, clause: &[batsat::Lit], kind: ClauseKind) {
        if kind == ClauseKind::Learnt && !clause.is_empty() {
            let number = |literal: &batsat::Lit| {
                let variable = literal.var().idx() as i32 + 1;
                if literal.sign() { variable } else { -variable }
            };
            write_clause(&mut self.text, clause.iter().map(number));
        }
    }

    fn stop(&self) -> bool {
        self.stop.is_due()
    }
}

fn write_clause(text: &mut String, clause: impl Iterator<Item = i32>) {
    for literal in clause {
        // Writing to a string never fails.
        let _ = write!(text, "{literal} ");
    }
    text.push_str("0\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::{Automaton, Boundary};
    use crate::check::{Order, Start};
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;
    use crate::grid::Grid;

    fn clauses(lines: &str) -> Vec<Vec<i32>> {
        let parse = |line: &str| -> Vec<i32> {
            let mut numbers: Vec<i32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert_eq!(numbers.pop(), Some(0));
            numbers
        };
        lines.lines().filter(|line| !line.starts_with('p')).map(parse).collect()
    }

    /// Whether unit propagation finds a conflict if all literals of a clause are false: an independent checker of proofs.
    fn follows_by_propagation(formula: &[Vec<i32>], clause: &[i32]) -> bool {
        let mut is_true: std::collections::HashSet<i32> = clause.iter().map(|literal| -literal).collect();
        loop {
            let before = is_true.len();
            for clause in formula {
                if clause.iter().any(|literal| is_true.contains(literal)) {
                    continue;
                }
                let open: Vec<i32> =
                    clause.iter().copied().filter(|literal| !is_true.contains(&-literal)).collect();
                match open[..] {
                    [] => return true,
                    [unit] => drop(is_true.insert(unit)),
                    _ => {}
                }
            }
            if is_true.len() == before {
                return false;
            }
        }
    }

    fn assert_refutes(certificate: &Certificate) -> usize {
        let mut formula = clauses(&certificate.dimacs);
        let proof = clauses(certificate.drat.as_ref().unwrap());
        for clause in &proof {
            assert!(follows_by_propagation(&formula, clause), "{clause:?}");
            formula.push(clause.clone());
        }
        assert_eq!(proof.last().map(Vec::len), Some(0), "the last clause is not empty");
        proof.len()
    }

    /// The majority of a cell, the cell above and the cell to the left; beyond the edge are zeros.
    fn eroding() -> Automaton {
        let nodes = vec![
            Node::new(Gate::AND, 1, 3),
            Node::new(Gate::OR, 1, 3),
            Node::new(Gate::AND, 4, 10),
            Node::new(Gate::OR, 9, 11),
        ];
        Automaton::new(1, Boundary::Zeros, Circuit::new(9, nodes, vec![12]).unwrap()).unwrap()
    }

    fn ask(property: Property) -> Question {
        Question::from_any(eroding(), Grid::new(1, 4, 4, 1).unwrap(), property)
    }

    fn certify(question: &Question) -> Result<Certificate, CheckError> {
        certificate(question, &Limits::default(), &Stop::never())
    }

    #[test]
    fn proofs_follow_from_the_formula_by_unit_propagation() {
        let stays = ask(Property::Stays { from: 7 });
        let order = Order::Any { window: Some(2) };
        let any_order = Question { order, ..ask(Property::Reaches { within: 14 }) };
        let start = Start::Damaged { grid: Grid::new(1, 4, 4, 1).unwrap(), cells: 3 };
        let damaged = Question { start, ..ask(Property::Reaches { within: 6 }) };
        let clauses =
            [stays, any_order, damaged].map(|question| assert_refutes(&certify(&question).unwrap()));
        assert!(clauses.iter().any(|&clauses| clauses > 10), "no proof needs a search: {clauses:?}");
    }

    #[test]
    fn a_formula_that_can_be_satisfied_has_no_proof() {
        assert_eq!(certify(&ask(Property::Stays { from: 6 })).unwrap().drat, None);
        assert!(certify(&ask(Property::Attracts)).unwrap_err().to_string().contains("one formula"));
    }
}
