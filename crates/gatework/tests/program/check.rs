//! `gatework check`: proofs, counterexamples that replay, and questions that cannot be asked.

use gatework::logic::{Boundary, Circuit, Document, Grid, Simulator, from_json, to_json};

use crate::{Place, assert_says, place, trained};

/// A folder with `falling.json`, in which bits move down and are lost beyond the edge, and an empty target of 5x4 cells.
fn falling() -> Place {
    let place = place();
    let circuit = Circuit::new(9, vec![], vec![1]).unwrap();
    let automaton = gatework::logic::Automaton::new(1, Boundary::Zeros, circuit).unwrap();
    place.write("falling.json", &to_json(&Document::Automaton { automaton, observed: None }));
    place.write("empty.txt", "....\n....\n....\n....\n....\n");
    place
}

#[test]
fn a_proof_has_its_bound_and_exit_status_0() {
    let place = falling();
    let result = place.json("check falling.json --target empty.txt --within 9 --stay");
    assert_eq!((&result["answer"], &result["steps"]), (&"proved".into(), &5.into()));
    assert_eq!((&result["is_least"], &result["grid"]), (&true.into(), &serde_json::json!([5, 4])));
    let said = place.stdout("check falling.json --target empty.txt");
    assert_says(
        &said,
        &["Proved in", "every run ends at the target for good", "right from step 5 on, forever"],
    );
    // A cell that rests for one step delays what is above it.
    let slow = place.json("check falling.json --target empty.txt --within 12 --stay --any-order 2");
    assert_eq!((&slow["answer"], &slow["steps"]), (&"proved".into(), &10.into()));
}

#[test]
fn a_counterexample_is_written_and_replays() {
    let place = falling();
    let options = "--target empty.txt --within 4 -o bad.txt --gif bad.gif";
    let output = place.command(&format!("check falling.json {options}")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let [said, answer] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    assert_says(&said, &["does not hold: every run reaches the target within 4 steps"]);
    assert_says(&said, &["simulate falling.json --start bad.txt --size 5x4 --steps 4"]);
    assert_says(&answer, &["Refuted in", "bits wrong at step 4"]);
    assert!(place.read("bad.gif").starts_with(b"GIF89a"));
    let mut grid = Grid::from_text(&place.text("bad.txt")).unwrap();
    let Document::Automaton { automaton, .. } = from_json(&place.text("falling.json")).unwrap() else {
        panic!()
    };
    let mut simulator = Simulator::new(&automaton, 1).unwrap();
    for _ in 0..=4 {
        assert!(grid.count_ones(0, 0) > 0);
        simulator.step(&mut grid).unwrap();
    }
}

#[test]
fn questions_are_written_for_other_programs() {
    let place = falling();
    place.run(
        "check falling.json --target empty.txt --within 5 --stay --aiger q.aig --dimacs q.cnf --drat q.drat",
    );
    assert!(place.text("q.cnf").starts_with("p cnf ") && place.text("q.drat").ends_with("0\n"));
    assert!(place.read("q.aig").starts_with(b"aig "));
    let said = place.refused(2, "check falling.json --target empty.txt --dimacs q.cnf");
    assert_says(&said, &["one formula decides only"]);
}

#[test]
fn questions_that_cannot_be_asked_are_refused() {
    let place = falling();
    let refused = |options: &str| place.refused(2, &format!("check falling.json {options}"));
    assert_says(&refused("--within 5"), &["has no target"]);
    assert_says(&refused("--target empty.txt --stay"), &["--within"]);
    assert_says(&refused("--target empty.txt --damage-region 5x5"), &["HEIGHTxWIDTH+ROW+COLUMN"]);
    assert_says(&refused("--target empty.txt --damage-cells 2"), &["no start state to damage"]);
    assert_says(
        &refused("--target empty.txt --damage-at 1 --damage-region 5x5+0+0"),
        &["not a region of a grid of 5x4"],
    );
    assert_says(&refused("--target empty.txt --any-order 0"), &["1 to 1000"]);
    assert_says(&refused("--target empty.txt --grid 9x9"), &["9x9 cells, but the target is 5x4"]);
    place.write("large.txt", &(".".repeat(100) + "\n").repeat(100));
    assert_says(&refused("--target large.txt --within 500 --memory 0.001"), &["this fits: a grid of"]);
    place.write("odd.txt", "..\n.\n");
    assert_says(&place.refused(1, "check falling.json --target odd.txt"), &["odd.txt: line 2 has 1 cells"]);
}

#[test]
fn a_run_is_checked_on_its_training_grid() {
    let place = trained();
    let mut command = place.command("check run --within 40 --seconds 20 --json");
    let output = command.output().unwrap();
    // Whether the learned rule heals depends on the seed; the answer is one of three.
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["grid"], serde_json::json!([9, 10]));
    assert_eq!(output.status.code(), Some(i32::from(result["answer"] != "proved")));
    assert_eq!(result["answer"] == "refuted", place.path("run/counterexample.gif").is_file());
}
