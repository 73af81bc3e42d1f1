//! Answers compared with the reference implementation, and the limits of a check.

use super::unrolling::Unrolling;
use super::*;
use crate::arbitrary;
use crate::automaton::Boundary;
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::naive::naive_step;
use crate::rules;
use proptest::prelude::*;
use std::time::Duration;

/// Rules that converge more often than random ones: some channels are the AND of the random output and a neighbour.
fn automaton() -> impl Strategy<Value = Automaton> {
    let guard = prop::collection::vec(prop_oneof![Just(None), (any::<u32>(), 0..4u8).prop_map(Some)], 4);
    (arbitrary::automaton(), guard, any::<bool>()).prop_map(|(mut automaton, guards, is_guarded)| {
        if is_guarded {
            let circuit = &automaton.circuit;
            let (inputs, mut nodes) = (circuit.inputs() as u32, circuit.nodes().to_vec());
            let mut outputs = circuit.outputs().to_vec();
            for (output, guard) in outputs.iter_mut().zip(guards) {
                let Some((guard, kind)) = guard else { continue };
                let gate = [Gate::AND, Gate::OR, Gate::A_AND_NOT_B, Gate::FALSE][usize::from(kind)];
                nodes.push(Node::new(gate, guard % inputs, *output));
                *output = inputs + nodes.len() as u32 - 1;
            }
            automaton.circuit = Circuit::new(inputs as usize, nodes, outputs).unwrap();
        }
        automaton
    })
}

fn property() -> impl Strategy<Value = Property> {
    prop_oneof![
        (0..8usize).prop_map(|within| Property::Reaches { within }),
        (0..8usize).prop_map(|from| Property::Stays { from }),
        Just(Property::Attracts),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let window = prop_oneof![Just(None), (1..4usize).prop_map(Some)];
    prop_oneof![3 => Just(Order::Synchronous), 1 => window.prop_map(|window| Order::Any { window })]
}

/// Questions about grids with at most eight bits, and four cells if cells may not fire. The target is often reached.
fn question() -> impl Strategy<Value = Question> {
    (automaton(), 0..6usize, 1..3usize, 0..4u8, property(), order(), any::<[usize; 3]>()).prop_map(
        |(automaton, size, observed, start, property, order, numbers)| {
            let sizes = [[1, 1], [1, 2], [2, 1], [1, 3], [2, 2], [2, 3]];
            let fits = |size: &[usize; 2]| {
                size[0] * size[1] * automaton.channels <= if order == Order::Synchronous { 8 } else { 4 }
            };
            let sizes: Vec<[usize; 2]> = sizes.into_iter().filter(fits).collect();
            let [height, width] = sizes[size % sizes.len()];
            let target = Grid::new(1, height, width, observed.min(automaton.channels)).unwrap();
            let mut question = Question { automaton, target, start: Start::Any, property, order };
            let states = 1 << (height * width * question.automaton.channels);
            let grid = reference::grid(&question, numbers[0] % states);
            let mut late = reference::grid(&question, numbers[1] % states);
            for _ in 0..6 {
                late = naive_step(&question.automaton, &late).unwrap();
            }
            for channel in 0..question.target.channels() {
                question.target.plane_mut(channel).copy_from_slice(late.plane(channel));
            }
            let [y, x] = [numbers[2] % height, (numbers[2] >> 8) % width];
            question.start = match start {
                0 => Start::Any,
                1 => Start::Grid(grid),
                2 => Start::Damaged { grid, cells: numbers[2] % 3 },
                _ => Start::Region { grid, rows: y..height, columns: x..x + 1 },
            };
            question
        },
    )
}

const FEW_STEPS: Limits = Limits { memory: 1 << 30, steps: 24 };

fn quick(question: &Question) -> Answer {
    check_until(question, &FEW_STEPS, &Stop::never(), &|_| {}).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn answers_agree_with_the_enumeration_of_all_states(question in question()) {
        let holds = reference::holds(&question);
        match quick(&question) {
            Answer::Proved(proof) => {
                prop_assert!(holds, "{:?}", proof);
                let with = |property| reference::holds(&Question { property, ..question.clone() });
                let at = |steps| match question.property {
                    Property::Reaches { .. } => with(Property::Reaches { within: steps }),
                    _ => with(Property::Stays { from: steps }),
                };
                prop_assert!(at(proof.steps), "{:?}", proof);
                if proof.is_least && proof.steps > 0 {
                    prop_assert!(!at(proof.steps - 1), "{:?}", proof);
                }
            }
            // That the run is wrong is checked by simulation.
            Answer::Refuted(found) => {
                prop_assert!(!holds, "{:?}", found);
                prop_assert!(reference::is_run(&question, &found), "{:?}", found);
            }
            Answer::Undecided(_) => {
                let is_bounded = match question.property {
                    Property::Reaches { .. } => true,
                    Property::Stays { .. } => question.start == Start::Any,
                    Property::Attracts => false,
                };
                prop_assert!(!is_bounded);
            }
        }
    }

    #[test]
    fn formulas_can_be_satisfied_if_and_only_if_the_property_does_not_hold(question in question()) {
        if let Ok(certificate) = certificate(&question, &FEW_STEPS, &Stop::never()) {
            prop_assert_eq!(certificate.drat.is_some(), reference::holds(&question));
        }
    }
}

#[test]
fn most_questions_are_decided_and_both_answers_occur() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut proved, mut refuted, mut undecided) = (0, 0, 0);
    for _ in 0..300 {
        match quick(&question().new_tree(&mut runner).unwrap().current()) {
            Answer::Proved(_) => proved += 1,
            Answer::Refuted(_) => refuted += 1,
            Answer::Undecided(_) => undecided += 1,
        }
    }
    assert!(proved >= 60 && refuted >= 60 && undecided <= 15, "{proved} {refuted} {undecided}");
}

/// Every cell takes the bit of one neighbour.
fn copy_of(neighbour: u32, boundary: Boundary) -> Automaton {
    Automaton::new(1, boundary, Circuit::new(9, vec![], vec![neighbour]).unwrap()).unwrap()
}

#[test]
fn a_still_life_of_life_survives_no_damage_but_is_an_attractor() {
    let mut block = Grid::new(1, 6, 6, 1).unwrap();
    for (y, x) in [(2, 2), (2, 3), (3, 2), (3, 3)] {
        block.set(0, 0, y, x, true);
    }
    let start = Start::Grid(block.clone());
    let property = Property::Stays { from: 0 };
    let life = rules::life(Boundary::Zeros);
    let order = Order::Synchronous;
    let question = Question { automaton: life, target: block.clone(), start, property, order };
    let Answer::Proved(proof) = check(&question).unwrap() else { panic!() };
    assert_eq!((proof.steps, proof.method), (0, Method::Orbit { period: 1 }));
    // Also if any cells fire, because no cell changes.
    let any_order = Question { order: Order::Any { window: None }, ..question.clone() };
    assert!(matches!(check(&any_order).unwrap(), Answer::Proved(_)));
    let start = Start::Damaged { grid: block, cells: 1 };
    let damaged = Question { start, property: Property::Stays { from: 3 }, ..question };
    let Answer::Refuted(found) = check(&damaged).unwrap() else { panic!() };
    assert!(found.wrong > 0 && found.steps >= 3);
}

#[test]
fn a_single_run_is_refuted_at_its_first_wrong_step() {
    let mut blinker = Grid::new(1, 5, 5, 1).unwrap();
    (1..4).for_each(|x| blinker.set(0, 0, 2, x, true));
    let (target, start) = (blinker.clone(), Start::Grid(blinker));
    let (automaton, property) = (rules::life(Boundary::Zeros), Property::Stays { from: 2 });
    let question = Question { automaton, target, start, property, order: Order::Synchronous };
    let Answer::Refuted(found) = check(&question).unwrap() else { panic!() };
    assert_eq!((found.steps, found.wrong, found.period), (3, 4, None));
    let attracts = Question { property: Property::Attracts, ..question.clone() };
    let Answer::Refuted(found) = check(&attracts).unwrap() else { panic!() };
    assert_eq!(found.period, Some(2));
    let reaches = Question { property: Property::Reaches { within: 2 }, ..question };
    let Answer::Proved(proof) = check(&reaches).unwrap() else { panic!() };
    assert_eq!((proof.steps, proof.method), (0, Method::Simulation));
}

#[test]
fn damage_that_disappears_is_proved_harmless_by_confluence() {
    // A cell stays 1 below a 1, so columns of ones stay forever on a torus, and shorter ones get shorter.
    let nodes = vec![Node::new(Gate::AND, 1, 4)];
    let automaton = Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![9]).unwrap()).unwrap();
    let empty = Grid::new(1, 5, 5, 1).unwrap();
    let ask = |rows| {
        let start = Start::Region { grid: empty.clone(), rows, columns: 1..4 };
        let (automaton, target) = (automaton.clone(), empty.clone());
        let property = Property::Attracts;
        check(&Question { automaton, target, start, property, order: Order::Synchronous }).unwrap()
    };
    let Answer::Proved(proof) = ask(2..4) else { panic!() };
    assert_eq!((proof.steps, proof.method), (2, Method::Confluence { step: 2, period: 1 }));
    let Answer::Refuted(found) = ask(0..5) else { panic!() };
    assert_eq!(found.period, Some(1));
}

#[test]
fn grids_that_are_too_large_are_refused_with_what_fits() {
    let target = Grid::new(1, 3000, 4000, 1).unwrap();
    let question = Question::from_any(rules::life(Boundary::Torus), target, Property::Stays { from: 50 });
    let message = check(&question).unwrap_err().to_string();
    let begin = "3000x4000 cells with 26 gates each, unrolled for 50 steps, may take";
    assert!(message.starts_with(begin), "{message}");
    assert!(
        message.contains("this fits: a grid of ") && !message.contains("steps on this grid"),
        "{message}"
    );
    let model = Model::new(&Question { target: Grid::new(1, 300, 300, 1).unwrap(), ..question }).unwrap();
    let message = model.check_memory(500, &Limits::default()).unwrap_err().to_string();
    assert!(message.contains(" steps on this grid, or a higher limit"), "{message}");
}

#[test]
fn cells_settle_one_after_the_other_in_any_order_of_firing() {
    let target = Grid::new(1, 5, 4, 1).unwrap();
    for (order, steps) in [(Order::Synchronous, 5), (Order::Any { window: Some(3) }, 15)] {
        let property = Property::Attracts;
        let question =
            Question { order, ..Question::from_any(copy_of(1, Boundary::Zeros), target.clone(), property) };
        let Answer::Proved(proof) = check(&question).unwrap() else { panic!() };
        assert_eq!((proof.steps, proof.method), (steps, Method::Settling));
    }
}

#[test]
fn questions_that_do_not_fit_together_are_errors() {
    let grid = |height, width, channels| Grid::new(1, height, width, channels).unwrap();
    let question = Question::from_any(copy_of(4, Boundary::Zeros), grid(2, 3, 1), Property::Attracts);
    let message = |question: Question| check(&question).unwrap_err().to_string();
    let with_start = |start| message(Question { start, ..question.clone() });
    assert!(with_start(Start::Grid(grid(3, 3, 1))).contains("3x3 cells, but the target is 2x3"));
    assert!(with_start(Start::Grid(grid(2, 3, 2))).contains("channels"));
    let region = Start::Region { grid: grid(2, 3, 1), rows: 1..3, columns: 0..1 };
    assert!(with_start(region).contains("not a region of a grid of 2x3 cells"));
    assert!(message(Question { target: grid(2, 3, 2), ..question.clone() }).contains("channels"));
    let window = Order::Any { window: Some(0) };
    assert!(message(Question { order: window, ..question.clone() }).contains("at least 1"));
    let two = Grid::new(2, 2, 3, 1).unwrap();
    assert!(message(Question { target: two, ..question }).contains("samples"));
}

#[test]
fn a_check_ends_at_any_poll_and_says_that_it_was_stopped() {
    let target = Grid::new(1, 6, 5, 1).unwrap();
    let question = Question::from_any(copy_of(1, Boundary::Zeros), target, Property::Attracts);
    let ask = |stop: &Stop<'_>| check_until(&question, &Limits::default(), stop, &|_| {}).unwrap();
    let never = Stop::never();
    assert!(matches!(ask(&never), Answer::Proved(Proof { steps: 6, is_least: true, .. })));
    for poll in 1..never.polls() {
        match ask(&Stop::at_poll(poll)) {
            Answer::Undecided(Undecided { limit: Limit::Time, .. }) => {}
            // A proof is kept, but its bound may not be the least.
            Answer::Proved(proof) => assert!(proof.steps >= 6),
            answer => panic!("{answer:?}"),
        }
    }
    let late = check_until(&question, &Limits::default(), &Stop::after(Duration::ZERO), &|_| {}).unwrap();
    assert!(matches!(late, Answer::Undecided(_)));
}

#[test]
fn a_counterexample_that_takes_long_to_confirm_ends_at_any_poll() {
    // A bit moves around a ring, and the target is right except at one of its places.
    let mut start = Grid::new(1, 1, 200, 1).unwrap();
    start.set(0, 0, 0, 0, true);
    let target = Grid::new(1, 1, 200, 1).unwrap();
    let (automaton, order) = (copy_of(3, Boundary::Torus), Order::Synchronous);
    let start = Start::Grid(start);
    let question = Question { automaton, target, start, property: Property::Attracts, order };
    let never = Stop::never();
    let ask = |stop: &Stop<'_>| check_until(&question, &Limits::default(), stop, &|_| {}).unwrap();
    assert!(matches!(ask(&never), Answer::Refuted(Counterexample { period: Some(200), .. })));
    // The confirmation alone polls once for each step of the period.
    for poll in [1, never.polls() - 200, never.polls() - 100, never.polls()] {
        let answer = ask(&Stop::at_poll(poll));
        assert!(matches!(answer, Answer::Undecided(Undecided { limit: Limit::Time, .. })), "{answer:?}");
    }
}

#[test]
fn the_masks_of_random_runs_stay_within_the_memory_limit() {
    // Cells keep their bits, so that no random run in any order is ever wrong.
    let target = Grid::new(1, 64, 64, 1).unwrap();
    let start = Start::Grid(target.clone());
    let (automaton, order) = (copy_of(4, Boundary::Zeros), Order::Any { window: None });
    let question = Question { automaton, target, start, property: Property::Stays { from: 100_000 }, order };
    let limits = Limits { memory: 10_000_000, steps: 1 };
    let steps = Cell::new(0);
    let observer = |progress: Progress| {
        if progress.stage == "simulation" {
            steps.set(progress.steps);
        }
    };
    let _ = check_until(&question, &limits, &Stop::never(), &observer);
    // A mask has 512 bytes, and a quarter of the memory may hold them.
    assert!((4800..5000).contains(&steps.get()), "{} steps", steps.get());
}

#[test]
fn the_counter_of_damaged_cells_ends_at_the_poll_that_stops_it() {
    let grid = Grid::new(1, 20, 20, 1).unwrap();
    let (start, order) = (Start::Damaged { grid: grid.clone(), cells: 150 }, Order::Synchronous);
    let property = Property::Reaches { within: 1 };
    let question = Question { automaton: copy_of(1, Boundary::Zeros), target: grid, start, property, order };
    let model = Model::new(&question).unwrap();
    let never = Stop::never();
    let Ok(all) = Unrolling::from_start(&model, 1, &never) else { panic!() };
    assert!(all.xag.gates() > 80_000 && never.polls() >= 400);
    for poll in [1, 200, 400] {
        let stop = Stop::at_poll(poll);
        assert!(Unrolling::from_start(&model, 1, &stop).is_err() && stop.polls() == poll);
        assert!(matches!(question.to_aiger(&Limits::default(), &stop), Err(CheckError::Stopped(_))));
    }
}

#[test]
fn the_memory_estimate_counts_the_comparisons_of_all_steps() {
    let target = Grid::new(1, 30, 30, 1).unwrap();
    let property = Property::Reaches { within: 20 };
    let question = Question::from_any(copy_of(3, Boundary::Torus), target, property);
    let model = Model::new(&question).unwrap();
    let stop = Stop::never();
    let Ok(mut unrolling) = Unrolling::from_start(&model, 20, &stop) else { panic!() };
    unrolling.extend(20, &stop).unwrap();
    for step in 0..=20 {
        unrolling.wrong(step);
    }
    let memory = unrolling.xag.gates() as u64 * model::GATE_BYTES;
    assert!(memory > 1_000_000);
    assert!(model.check_memory(20, &Limits { memory, steps: 1 }).is_err());
}

#[test]
fn any_number_of_steps_is_an_answer_or_an_error() {
    let nodes = vec![Node::new(Gate::AND, 1, 4)];
    let automaton = Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![9]).unwrap()).unwrap();
    let target = Grid::new(1, 5, 5, 1).unwrap();
    let start = Start::Region { grid: target.clone(), rows: 2..4, columns: 1..4 };
    for order in [Order::Synchronous, Order::Any { window: Some(usize::MAX) }] {
        let (automaton, target, start) = (automaton.clone(), target.clone(), start.clone());
        let property = Property::Reaches { within: usize::MAX };
        let error = check(&Question { automaton, target, start, property, order }).unwrap_err();
        assert!(matches!(error, CheckError::TooLarge { steps: usize::MAX, .. }), "{error}");
    }
}
