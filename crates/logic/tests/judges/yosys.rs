//! Yosys reads Verilog, BLIF and AIGER files and synthesises grids.

use crate::cases::{Numbers, automata, circuits, scattered, written};
use crate::judge::{Folder, Judge};
use gatework_logic::formats::sequential::Sequential;
use gatework_logic::formats::{self, Format, Options, aiger};
use gatework_logic::{Grid, naive_step};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The outputs by name and the next values of the latches, for inputs by name: Yosys reorders ports.
fn step_by_name(
    sequential: &Sequential,
    input: impl Fn(&str) -> bool,
    state: &[bool],
) -> (HashMap<String, bool>, Vec<bool>) {
    let circuit = &sequential.circuit;
    let inputs: Vec<bool> = (0..sequential.inputs()).map(|i| input(&circuit.input_name(i))).collect();
    let (outputs, next) = sequential.step(&inputs, state).unwrap();
    let name = |(i, bit): (usize, bool)| (circuit.output_name(i).into_owned(), bit);
    (outputs.into_iter().enumerate().map(name).collect(), next)
}

#[test]
fn yosys_reads_the_verilog_the_blif_and_the_aiger_as_the_same_function() {
    let Some(yosys) = Judge::find("yosys", "-V") else { return };
    // A few different shapes, because Yosys is slow to start.
    let wanted = ["no gates", "constants", "every gate", "random 3"];
    for (name, circuit) in circuits().into_iter().filter(|(name, _)| wanted.contains(&&**name)) {
        let folder = Folder::new();
        let mut script = String::new();
        for (format, read) in [("verilog", "read_verilog"), ("blif", "read_blif"), ("aag", "read_aiger")] {
            folder.write(&format!("a.{format}"), written(&circuit.clone().into(), format));
            let _ = write!(
                script,
                "{read} a.{format}; synth -flatten -noabc -auto-top; check -assert; aigmap; \
                 write_aiger -ascii -symbols {format}.aag; design -reset; "
            );
        }
        yosys.run(&folder, &["-q", "-p", &script]);
        for format in ["verilog", "blif", "aag"] {
            let bytes = folder.read(&format!("{format}.aag"));
            let again = aiger::read_sequential(&bytes).unwrap();
            let mut numbers = Numbers(7);
            for _ in 0..100 {
                let bits: Vec<bool> = (0..circuit.inputs()).map(|_| numbers.next() & 1 == 1).collect();
                let input = |name: &str| bits[name[1..].parse::<usize>().unwrap()];
                let (outputs, _) = step_by_name(&again, input, &[]);
                for (k, bit) in circuit.eval(&bits).unwrap().into_iter().enumerate() {
                    assert_eq!(outputs[&format!("y{k}")], bit, "{name} as {format}, output {k} at {bits:?}");
                }
            }
        }
    }
}

#[test]
fn yosys_synthesises_a_grid_that_steps_like_the_automaton() {
    let Some(yosys) = Judge::find("yosys", "-V") else { return };
    for (name, automaton) in [0, 1, 4].map(|i| automata().swap_remove(i)) {
        let folder = Folder::new();
        let (height, width, channels) = (3, 4, automaton.channels);
        let options = Options { name: Some("dut".into()), grid: Some([height, width]), ..Options::default() };
        let document = automaton.clone().into();
        folder.write("a.v", formats::write(&document, Format::named("verilog").unwrap(), &options).unwrap());
        let script = "read_verilog a.v; hierarchy -check -top dut_grid; synth -flatten -noabc; check -assert; \
                      dffunmap; aigmap; write_aiger -ascii -symbols b.aag";
        yosys.run(&folder, &["-q", "-p", script]);
        let sequential = aiger::read_sequential(&folder.read("b.aag")).unwrap();
        assert_eq!(sequential.latches.len(), height * width * channels, "{name}");
        let mut cells = scattered(&mut Numbers(8), &automaton, [height, width]);
        let bit = |cells: &Grid, place: usize| {
            let cell = place / channels;
            cells.get(0, place % channels, cell / width, cell % width)
        };
        let start = cells.clone();
        let mut state = vec![false; sequential.latches.len()];
        for step in 0..6 {
            let input = |name: &str| match name.strip_prefix("start[") {
                Some(place) => bit(&start, place.trim_end_matches(']').parse().unwrap()),
                None => name == "enable" || name == "load" && step == 0,
            };
            let (outputs, next) = step_by_name(&sequential, input, &state);
            if step > 0 {
                for place in 0..height * width * channels {
                    assert_eq!(
                        outputs[&format!("state[{place}]")],
                        bit(&cells, place),
                        "{name}, step {step}"
                    );
                }
                cells = naive_step(&automaton, &cells).unwrap();
            }
            state = next;
        }
    }
}
