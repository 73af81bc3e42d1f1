//! ABC reads BLIF and AIGER files, proves them equivalent, and writes files that are read back.

use crate::cases::{Numbers, automata, documents, life, written};
use crate::judge::{Folder, Judge};
use gatework_logic::formats::sequential::Sequential;
use gatework_logic::formats::{self, Format, aiger, blif};
use gatework_logic::{Circuit, Grid, naive_step};
use std::path::Path;

#[test]
fn abc_proves_blif_and_aiger_equivalent() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (name, document) in documents() {
        let folder = Folder::new();
        folder.write("a.blif", written(&document, "blif"));
        folder.write("a.aig", written(&document, "aiger"));
        let said = abc.run(&folder, &["-q", "cec -n a.blif a.aig"]);
        assert!(said.contains("Networks are equivalent"), "{name}: {said}");
    }
}

#[test]
fn abc_detects_a_changed_circuit() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    let folder = Folder::new();
    let life = life().circuit;
    let mut nodes = life.nodes().to_vec();
    nodes[3].gate = nodes[3].gate.not();
    let changed = Circuit::new(9, nodes, life.outputs().to_vec()).unwrap();
    folder.write("a.blif", written(&life.into(), "blif"));
    folder.write("b.aig", written(&changed.into(), "aiger"));
    let said = abc.run(&folder, &["-q", "cec -n a.blif b.aig"]);
    assert!(said.contains("NOT EQUIVALENT"), "{said}");
}

#[test]
fn files_that_abc_writes_are_read_as_the_same_function() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (name, document) in documents() {
        let folder = Folder::new();
        folder.write("a.blif", written(&document, "blif"));
        abc.run(&folder, &["-q", "read a.blif; strash; write_aiger -s b.aig; collapse; write_blif c.blif"]);
        for file in ["b.aig", "c.blif"] {
            // ABC does not collapse circuits whose BDDs get too large.
            let bytes = match std::fs::read(folder.path().join(file)) {
                Err(_) if file == "c.blif" => continue,
                bytes => bytes.unwrap_or_else(|error| panic!("{name}, {file}: {error}")),
            };
            let format = Format::of_path(Path::new(file)).unwrap();
            let again =
                formats::read(&bytes, format).unwrap_or_else(|error| panic!("{name}, {file}: {error}"));
            assert_same_function(&name, again.circuit(), document.circuit());
        }
    }
}

#[test]
fn abc_unrolls_the_latches_of_a_grid_to_the_steps_of_the_automaton() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (name, automaton) in automata() {
        let folder = Folder::new();
        let (size, steps) = ([3, 4], 4);
        let grid = Sequential::grid(&automaton, size, automaton.channels).unwrap();
        folder.write("a.aig", aiger::write_binary(&grid).unwrap());
        folder.write("a.blif", blif::write_sequential(&grid, "grid"));
        let mut cells = Grid::new(1, size[0], size[1], automaton.channels).unwrap();
        let mut expected = Vec::new();
        for _ in 0..steps {
            for cell in 0..size[0] * size[1] {
                expected
                    .extend((0..automaton.channels).map(|c| cells.get(0, c, cell / size[1], cell % size[1])));
            }
            cells = naive_step(&automaton, &cells).unwrap();
        }
        for file in ["a.aig", "a.blif"] {
            let frames = format!("read {file}; strash; frames -i -F {steps}; write_aiger b.aig");
            abc.run(&folder, &["-q", &frames]);
            let bytes = folder.read("b.aig");
            let unrolled = aiger::read_sequential(&bytes).unwrap().combinational().unwrap();
            let inputs = vec![false; unrolled.inputs()];
            assert_eq!(unrolled.eval(&inputs).unwrap(), expected, "{name}, {file}");
        }
    }
}

fn assert_same_function(name: &str, left: &Circuit, right: &Circuit) {
    assert_eq!((left.inputs(), left.outputs().len()), (right.inputs(), right.outputs().len()), "{name}");
    let mut numbers = Numbers(3);
    for _ in 0..200 {
        let bits: Vec<bool> = (0..left.inputs()).map(|_| numbers.next() & 1 == 1).collect();
        assert_eq!(left.eval(&bits), right.eval(&bits), "{name} at {bits:?}");
    }
}
