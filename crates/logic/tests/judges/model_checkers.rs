//! ABC decides questions that are written as AIGER, and CaDiCaL those that are written as DIMACS, as `check` does.

use crate::cases::{Numbers, automata};
use crate::judge::{Folder, Judge};
use gatework_logic::check::{Answer, Limits, Order, Property, Question, Start, certificate, check};
use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Node, Stop, naive_step};

/// A rule that erodes to zeros: the majority of a cell, the cell above and the cell to the left.
fn eroding(boundary: Boundary) -> Automaton {
    let gates = vec![
        Node::new(Gate::AND, 1, 3),
        Node::new(Gate::OR, 1, 3),
        Node::new(Gate::AND, 4, 10),
        Node::new(Gate::OR, 9, 11),
    ];
    Automaton::new(1, boundary, Circuit::new(9, gates, vec![12]).unwrap()).unwrap()
}

/// Questions with a last step, or from all states, of every kind of start and order.
fn questions() -> Vec<(String, Question)> {
    let mut numbers = Numbers(5);
    let mut rules: Vec<(String, Automaton)> = vec![
        ("eroding".into(), eroding(Boundary::Zeros)),
        ("eroding torus".into(), eroding(Boundary::Torus)),
    ];
    rules.extend(automata().into_iter().filter(|(_, automaton)| automaton.channels <= 4));
    let mut questions = Vec::new();
    for (name, automaton) in rules {
        let mut grid = Grid::new(1, 4, 3, automaton.channels).unwrap();
        let mut target = grid.clone();
        for channel in 0..automaton.channels {
            grid.plane_mut(channel)[0] = numbers.next() & grid.tail_mask();
        }
        if !name.starts_with("eroding") {
            target = (0..9).fold(grid.clone(), |grid, _| naive_step(&automaton, &grid).unwrap());
        }
        let first = Grid::new(1, 4, 3, 1).map(|mut first| {
            first.plane_mut(0).copy_from_slice(target.plane(0));
            first
        });
        let target = first.unwrap();
        let starts = [
            Start::Any,
            Start::Grid(grid.clone()),
            Start::Damaged { grid: target_state(&grid, &target), cells: 2 },
            Start::Region { grid: target_state(&grid, &target), rows: 1..3, columns: 0..2 },
        ];
        for start in starts {
            for property in
                [Property::Stays { from: 5 }, Property::Stays { from: 6 }, Property::Reaches { within: 4 }]
            {
                for order in [Order::Synchronous, Order::Any { window: Some(2) }] {
                    let (automaton, target, start) = (automaton.clone(), target.clone(), start.clone());
                    let name = format!("{name}, {start:?}, {property:?}, {order:?}");
                    questions.push((name, Question { automaton, target, start, property, order }));
                }
            }
        }
    }
    questions
}

/// The grid with the target in its first channel.
fn target_state(grid: &Grid, target: &Grid) -> Grid {
    let mut state = grid.clone();
    state.plane_mut(0).copy_from_slice(target.plane(0));
    state
}

#[test]
fn abc_gives_the_same_answers() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    let (mut proved, mut refuted) = (0, 0);
    for (name, question) in questions() {
        let limits = Limits { steps: 12, ..Limits::default() };
        let answer = gatework_logic::check::check_until(&question, &limits, &Stop::never(), &|_| {}).unwrap();
        let folder = Folder::new();
        folder.write("q.aig", question.to_aiger(&limits, &Stop::never()).unwrap());
        match answer {
            Answer::Proved(_) => {
                proved += 1;
                let said = abc.run(&folder, &["-q", "read q.aig; fold; pdr"]);
                assert!(said.contains("Property proved"), "{name}: {said}");
            }
            Answer::Refuted(found) => {
                refuted += 1;
                let frames = format!("read q.aig; fold; bmc3 -F {}", found.steps + 1);
                let said = abc.run(&folder, &["-q", &frames]);
                assert!(said.contains("was asserted in frame"), "{name}: {said}");
            }
            _ => {}
        }
    }
    assert!(proved > 20 && refuted > 20, "{proved} proved, {refuted} refuted");
}

#[test]
fn cadical_gives_the_same_answers() {
    let Some(cadical) = Judge::find("cadical", "--version") else { return };
    for (name, question) in questions() {
        let bounded = matches!(question.property, Property::Reaches { .. }) || question.start == Start::Any;
        if !bounded {
            continue;
        }
        let is_proved = matches!(check(&question).unwrap(), Answer::Proved(_));
        let certificate = certificate(&question, &Limits::default(), &Stop::never()).unwrap();
        assert_eq!(certificate.drat.is_some(), is_proved, "{name}");
        let folder = Folder::new();
        folder.write("q.cnf", certificate.dimacs);
        let said = cadical.run_with_status(&folder, &["-q", "q.cnf"], if is_proved { 20 } else { 10 });
        assert!(said.contains(if is_proved { "s UNSATISFIABLE" } else { "s SATISFIABLE" }), "{name}: {said}");
        // Debian has no drat-trim; where it is installed, it checks the proof.
        if let (Some(proof), Some(checker)) = (certificate.drat, Judge::find_optional("drat-trim")) {
            folder.write("q.drat", proof);
            let said = checker.run(&folder, &["q.cnf", "q.drat"]);
            assert!(said.contains("s VERIFIED"), "{name}: {said}");
        }
    }
}
