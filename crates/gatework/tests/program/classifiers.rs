//! Classifiers: from training to the exported files.

use gatework_test_support::program::Place;

use crate::{assert_says, place};

/// A folder in which a small classifier is trained into `run`.
fn trained() -> Place {
    let place = place();
    place.run("train monk-3 --updates 5 --out run");
    place
}

#[test]
fn a_classifier_is_trained_evaluated_and_applied() {
    let place = trained();
    let facts = place.json("inspect run");
    assert_eq!(
        (&facts["features"], &facts["classes"], &facts["experiment"]),
        (&6.into(), &2.into(), &"monk-3".into())
    );
    let evaluation = place.json("evaluate run --svg confusion.svg");
    assert_eq!((&evaluation["samples"], &evaluation["accuracy"]), (&432.into(), &facts["accuracy"]));
    assert!(place.text("confusion.svg").starts_with("<svg"));
    place.run("predict run monk-3 -o classes.csv");
    assert!(place.text("classes.csv").starts_with("row,class,"));
    assert_says(&place.refused(2, "evaluate run --svg confusion.png"), &["ends in .svg"]);
}

#[test]
fn the_minimised_circuit_of_a_run_is_kept_and_exported() {
    let place = trained();
    let minimized = place.json("minimize run");
    assert_eq!(minimized["file"], "run/minimized.json");
    let said = place.stderr("export run --minimize -o a.v");
    assert_says(&said, &["Using run/minimized.json"]);
}

/// The name of a module is what synthesis tools are given, and that of a function is what a program calls.
#[test]
fn exports_are_named_after_the_experiment_or_the_file_that_is_written() {
    let place = trained();
    place.run("export run -o any.v");
    assert!(place.text("any.v").contains("module monk_3 ("), "{}", place.text("any.v"));
    place.run("minimize run/circuit.json -o small.json");
    place.run("export small.json -o problem.h");
    assert!(place.text("problem.h").contains("unsigned problem_predict("));
    place.run("export small.json -o other.h --name given");
    assert!(place.text("other.h").contains("unsigned given_predict("));
    place.run("export run -o page.html");
    assert!(place.text("page.html").contains("<title>Monk 3</title>"));
}

#[test]
fn verbs_of_automata_say_that_it_is_a_classifier() {
    let place = trained();
    for verb in ["simulate run", "check run"] {
        assert_says(&place.refused(2, verb), &["run is a classifier, not an automaton; predict, evaluate"]);
    }
}

#[test]
fn rows_that_select_the_best_epoch_are_called_by_their_name() {
    let place = place();
    let held_back = place.stderr("train digits --updates 1");
    assert_says(&held_back, &["145 validation", "best validation accuracy"]);
    let all = place.stderr("train iris --updates 1");
    assert_says(&all, &[" 0 validation", "best training accuracy"]);
}
