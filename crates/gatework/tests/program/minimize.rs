//! `gatework minimize`: the result is smaller, proved equivalent, and simulates alike.

use crate::Place;

/// A circuit with a redundant gate: (a & b) | (a & !b) | c.
const WASTE: &str = "\
.model waste
.inputs a b c
.outputs y
.names a b p
11 1
.names a b q
10 1
.names p q r
1- 1
-1 1
.names r c y
1- 1
-1 1
.end
";

#[test]
fn a_run_becomes_smaller_and_shows_the_same() {
    let place = Place::new().trained();
    let result = place.json(&["minimize", "run"]);
    assert_eq!((&result["proved"], &result["file"]), (&true.into(), &"run/minimized.json".into()));
    assert!(result["gates_after"].as_u64().unwrap() <= result["gates_before"].as_u64().unwrap());
    assert!(result["depth"].is_u64() && result["seconds"].is_f64() && result["proof_seconds"].is_f64());
    let gates = place.json(&["inspect", "run/minimized.json"])["circuit"]["simplified_gates"].clone();
    assert!(gates.as_u64().unwrap() >= result["gates_after"].as_u64().unwrap(), "inverters may come on top");
    // From zeros, because random bits fall differently on fewer channels.
    let ones = |subject: &str| {
        let arguments = ["simulate", subject, "--size", "30x41", "--steps", "9", "--start", "zeros"];
        place.json(&arguments)["ones"].clone()
    };
    assert_eq!(ones("run"), ones("run/minimized.json"));
    let from_start = place.json(&["minimize", "run", "--from-start", "--effort", "fast", "-o", "start.blif"]);
    assert_eq!(from_start["proved"], true);
    assert!(place.read("start.blif").starts_with(b".model start\n"));
}

#[test]
fn a_circuit_becomes_smaller_in_any_format() {
    let place = Place::new();
    place.write("waste.blif", WASTE);
    for output in ["small.blif", "small.aig", "small.json", "small.v", "small.h"] {
        let result = place.json(&["minimize", "waste.blif", "--effort", "high", "-o", output]);
        assert_eq!((&result["gates_before"], &result["gates_after"]), (&4.into(), &1.into()), "{output}");
        assert!(!place.read(output).is_empty());
    }
    assert_eq!(place.json(&["minimize", "small.aig"])["gates_after"], 1);
    let output = place.gatework(&["minimize", "waste.blif"]).assert().success().get_output().clone();
    let [said, answer] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    assert!(answer.contains("Proved in") && said.contains("Nothing is written"), "{answer}{said}");
}

#[test]
fn exports_can_be_minimised_on_the_way() {
    let place = Place::new();
    place.write("waste.blif", WASTE);
    place.gatework(&["export", "waste.blif", "--minimize", "-o", "small.blif"]).assert().success();
    assert_eq!(String::from_utf8(place.read("small.blif")).unwrap().matches(".names").count(), 1);
    let place = place.trained();
    place.gatework(&["export", "run", "--minimize", "-o", "run.html"]).assert().success();
    assert!(place.read("run.html").starts_with(b"<!DOCTYPE html>"));
}

#[test]
fn what_cannot_be_minimised_is_refused_and_nothing_is_written() {
    let place = Place::new();
    place.write("waste.blif", WASTE);
    place.write("cut.blif", &WASTE[..60]);
    for (status, arguments, part) in [
        (
            2,
            &["minimize", "waste.blif", "-o", "small.txt"][..],
            "no format has the file extension of small.txt",
        ),
        (2, &["minimize", "nowhere"], "nowhere does not exist"),
        (
            2,
            &["minimize", "waste.blif", "-o", "small.html"],
            "gatework export waste.blif --minimize -o small.html",
        ),
        (2, &["minimize", "waste.blif", "--from-start"], "--from-start needs a run folder"),
        (2, &["minimize", "waste.blif", "--effort", "heroic"], "fast, normal, high"),
        (1, &["minimize", "cut.blif", "-o", "small.blif"], "cut.blif"),
        (1, &["minimize", "waste.blif", "-o", "none/small.blif"], "cannot write none/small.blif"),
    ] {
        let said = place.refused(status, arguments);
        assert!(said.contains(part), "{part:?} is missing in: {said}");
        assert!(!place.path("small.txt").exists() && !place.path("small.blif").exists());
    }
}

#[test]
fn a_proof_that_takes_too_long_ends_and_nothing_is_written() {
    let place = Place::new();
    // 15 inputs are too many for exhaustive simulation, and a time limit of 0 leaves no time for a proof.
    let inputs = ".inputs a b c d e f g h i j k l m n o";
    place.write("waste.blif", &WASTE.replace(".inputs a b c", inputs));
    place.write("small.blif", "precious");
    let arguments = ["minimize", "waste.blif", "--proof-seconds", "0", "-o", "small.blif"];
    let said = place.refused(1, &arguments);
    assert!(said.contains("given up after") && said.contains("nothing is written"), "{said}");
    assert_eq!(place.read("small.blif"), b"precious");
    let said = place.refused(2, &["minimize", "waste.blif", "--proof-seconds=-1"]);
    assert!(said.contains("--proof-seconds"), "{said}");
    assert_eq!(place.json(&["minimize", "waste.blif", "--proof-seconds", "600"])["gates_after"], 1);
}
