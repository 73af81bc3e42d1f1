//! What is written, judged by others: ABC, Yosys, Icarus Verilog, a C compiler and rustc.
//!
//! A judge that is not installed is named on stderr and its test passes: nothing was judged. `.ci/run` installs
//! what it can. With `GATEWORK_JUDGES=required` a missing judge is a failure.

use gatework_logic::formats::sequential::Sequential;
use gatework_logic::formats::{self, Format, Options, aiger, blif};
use gatework_logic::{Automaton, Boundary, Circuit, Document, Gate, Grid, Node, naive_step};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scattered numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> u32 {
        (self.next() % end.max(1) as u64) as u32
    }
}

/// A circuit of random gates. A deep one reads mostly the last few signals.
fn circuit(numbers: &mut Numbers, inputs: usize, gates: usize, outputs: usize, deep: bool) -> Circuit {
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..gates {
        let end = inputs + i;
        let gate = Gate::ALL[numbers.below(16) as usize];
        let gate = if end == 0 && !gate.is_constant() { Gate::TRUE } else { gate };
        let mut operand = |near: usize| {
            let back = numbers.below(if deep { near.min(end) } else { end });
            end.saturating_sub(1) as u32 - back.min(end.saturating_sub(1) as u32)
        };
        nodes.push(Node::new(gate, operand(2), operand(9)));
    }
    let signals = inputs + gates;
    let outputs = (0..if signals > 0 { outputs } else { 0 })
        .map(|i| if i % 2 == 0 { numbers.below(signals) } else { (signals - 1 - i % signals) as u32 })
        .collect();
    Circuit::new(inputs, nodes, outputs).unwrap()
}

/// Circuits of every shape, each with a name for messages.
fn circuits() -> Vec<(String, Circuit)> {
    let mut numbers = Numbers(1);
    let mut list: Vec<(String, Circuit)> = Vec::new();
    let mut add = |name: &str, circuit: Circuit| list.push((name.into(), circuit));
    add("no gates", Circuit::new(3, vec![], vec![2, 0, 0]).unwrap());
    add("one input", circuit(&mut numbers, 1, 6, 3, false));
    let constants = vec![Node::new(Gate::TRUE, 0, 0), Node::new(Gate::FALSE, 0, 0)];
    add("constants", Circuit::new(2, constants, vec![2, 3, 1]).unwrap());
    add("every gate", {
        let nodes: Vec<Node> = Gate::ALL.iter().map(|&gate| Node::new(gate, 0, 1)).collect();
        Circuit::new(2, nodes, (2..18).collect()).unwrap()
    });
    let hard = ["carry in", "module", "a", "a", "\u{e9}t\u{e9}", "n7", "", "9", "in", "*/", "// \\"];
    let names = hard.iter().map(|name| (*name).to_string()).collect();
    let named = circuit(&mut numbers, hard.len(), 40, 3, false);
    add("hard names", named.with_names(names, ["out", "a", "x y"].map(String::from).to_vec()).unwrap());
    add("deep", circuit(&mut numbers, 6, 1500, 4, true));
    add("wide", circuit(&mut numbers, 300, 900, 200, false));
    for i in 0..6 {
        add(&format!("random {i}"), circuit(&mut numbers, 2 + 3 * i, 20 + 30 * i, 1 + i, i % 2 == 0));
    }
    list
}

/// Automata with both boundaries, one without gates and one that is constant.
fn automata() -> Vec<(String, Automaton)> {
    let mut numbers = Numbers(2);
    let mut list = vec![
        ("life".to_string(), life()),
        (
            "copies its neighbour".to_string(),
            Automaton::new(1, Boundary::Zeros, Circuit::new(9, vec![], vec![2]).unwrap()).unwrap(),
        ),
        (
            "constant".to_string(),
            Automaton::new(
                1,
                Boundary::Torus,
                Circuit::new(9, vec![Node::new(Gate::TRUE, 0, 0)], vec![9]).unwrap(),
            )
            .unwrap(),
        ),
    ];
    for i in 0..5usize {
        let channels = 1 + i % 3;
        let circuit = circuit(&mut numbers, 9 * channels, 25 + 20 * i, channels, i % 2 == 1);
        let boundary = if i % 2 == 0 { Boundary::Torus } else { Boundary::Zeros };
        list.push((format!("random {i}"), Automaton::new(channels, boundary, circuit).unwrap()));
    }
    list
}

/// Conway's Life from adders.
fn life() -> Automaton {
    let mut nodes = Vec::new();
    let mut gate = |gate, a, b| {
        nodes.push(Node::new(gate, a, b));
        8 + nodes.len() as u32
    };
    let mut counts: Vec<Vec<u32>> = vec![vec![0, 1, 2, 3, 5, 6, 7, 8], vec![], vec![], vec![]];
    for weight in 0..3 {
        while counts[weight].len() > 1 {
            let (a, b) = (counts[weight].remove(0), counts[weight].remove(0));
            let (sum, carry) = (gate(Gate::XOR, a, b), gate(Gate::AND, a, b));
            counts[weight].push(sum);
            counts[weight + 1].push(carry);
        }
    }
    let (ones, twos, fours) = (counts[0][0], counts[1][0], counts[2][0]);
    let few = gate(Gate::A_AND_NOT_B, twos, fours);
    let alive = gate(Gate::OR, ones, 4);
    let output = gate(Gate::AND, few, alive);
    Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![output]).unwrap()).unwrap()
}

/// A program that may be installed.
struct Judge(&'static str);

impl Judge {
    /// Finds a program, or says that it is missing.
    fn find(name: &'static str, version: &str) -> Option<Judge> {
        let found = Command::new(name).arg(version).output().is_ok();
        if !found {
            // Not with eprintln!, which the test harness shows only for failures.
            let _ =
                writeln!(std::io::stderr(), "skipped: the judge {name} is not installed; nothing was judged");
            let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
            assert!(!required, "the judge {name} is required but not installed");
        }
        found.then_some(Judge(name))
    }

    /// Runs the program in a folder and returns what it prints; it must succeed.
    fn run(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = Command::new(self.0).args(arguments).current_dir(folder).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}:\n{text}", self.0);
        text
    }
}

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gatework-judges-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn written(document: &Document, format: &str) -> Vec<u8> {
    written_as("dut", document, format)
}

fn written_as(name: &str, document: &Document, format: &str) -> Vec<u8> {
    let options = Options { name: Some(name.into()), grid: None };
    formats::write(document, Format::named(format).unwrap(), &options).unwrap()
}

/// All circuits, and the rules of all automata.
fn documents() -> Vec<(String, Document)> {
    let circuits = circuits().into_iter().map(|(name, circuit)| (name, circuit.into()));
    circuits.chain(automata().into_iter().map(|(name, automaton)| (name, automaton.into()))).collect()
}

#[test]
fn abc_proves_that_blif_and_aiger_are_one_function() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (i, (name, document)) in documents().into_iter().enumerate() {
        let folder = Folder::new(&format!("abc-{i}"));
        folder.write("a.blif", written(&document, "blif"));
        folder.write("a.aig", written(&document, "aiger"));
        let said = abc.run(&folder.0, &["-q", "cec -n a.blif a.aig"]);
        assert!(said.contains("Networks are equivalent"), "{name}: {said}");
    }
}

#[test]
fn abc_finds_a_circuit_that_was_changed() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    let folder = Folder::new("abc-changed");
    let life = life().circuit;
    let mut nodes = life.nodes().to_vec();
    nodes[3].gate = nodes[3].gate.not();
    let changed = Circuit::new(9, nodes, life.outputs().to_vec()).unwrap();
    folder.write("a.blif", written(&life.into(), "blif"));
    folder.write("b.aig", written(&changed.into(), "aiger"));
    let said = abc.run(&folder.0, &["-q", "cec -n a.blif b.aig"]);
    assert!(said.contains("NOT EQUIVALENT"), "{said}");
}

#[test]
fn abc_writes_what_is_read_back_as_the_same_function() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (i, (name, document)) in documents().into_iter().enumerate() {
        let folder = Folder::new(&format!("abc-back-{i}"));
        folder.write("a.blif", written(&document, "blif"));
        abc.run(&folder.0, &["-q", "read a.blif; strash; write_aiger -s b.aig; collapse; write_blif c.blif"]);
        for file in ["b.aig", "c.blif"] {
            // ABC does not collapse what gets too large.
            let Ok(bytes) = std::fs::read(folder.0.join(file)) else { continue };
            let format = Format::of_path(Path::new(file)).unwrap();
            let again =
                formats::read(&bytes, format).unwrap_or_else(|error| panic!("{name}, {file}: {error}"));
            assert_same_function(&name, again.circuit(), document.circuit());
        }
    }
}

#[test]
fn abc_unrolls_the_latches_of_a_grid_as_the_automaton_steps() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for (i, (name, automaton)) in automata().into_iter().enumerate() {
        let folder = Folder::new(&format!("abc-grid-{i}"));
        let (size, steps) = ([3, 4], 4);
        let grid = Sequential::grid(&automaton, size, automaton.channels).unwrap();
        folder.write("a.aig", aiger::write_binary(&grid).unwrap());
        folder.write("a.blif", blif::write_sequential(&grid, "grid"));
        let mut board = Grid::new(1, size[0], size[1], automaton.channels).unwrap();
        let mut expected = Vec::new();
        for _ in 0..steps {
            for cell in 0..size[0] * size[1] {
                expected
                    .extend((0..automaton.channels).map(|c| board.get(0, c, cell / size[1], cell % size[1])));
            }
            board = naive_step(&automaton, &board).unwrap();
        }
        for file in ["a.aig", "a.blif"] {
            let frames = format!("read {file}; strash; frames -i -F {steps}; write_aiger b.aig");
            abc.run(&folder.0, &["-q", &frames]);
            let bytes = std::fs::read(folder.0.join("b.aig")).unwrap();
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

#[test]
fn icarus_passes_every_testbench() {
    let (Some(iverilog), Some(vvp)) = (Judge::find("iverilog", "-V"), Judge::find("vvp", "-V")) else {
        return;
    };
    for (i, (name, document)) in documents().into_iter().enumerate() {
        let folder = Folder::new(&format!("icarus-{i}"));
        folder.write("a.v", written(&document, "verilog"));
        iverilog.run(&folder.0, &["-g2001", "-Wall", "-DGATEWORK_TESTBENCH", "-o", "a.vvp", "a.v"]);
        let said = vvp.run(&folder.0, &["a.vvp"]);
        assert!(said.contains("PASS") && !said.contains("FAIL"), "{name}: {said}");
    }
}

#[test]
fn a_testbench_fails_for_another_circuit() {
    let (Some(iverilog), Some(vvp)) = (Judge::find("iverilog", "-V"), Judge::find("vvp", "-V")) else {
        return;
    };
    for document in [Document::from(life()), life().circuit.into()] {
        let folder =
            Folder::new(if matches!(document, Document::Circuit(_)) { "wrong-circuit" } else { "wrong" });
        let text = String::from_utf8(written(&document, "verilog")).unwrap();
        folder.write("a.v", text.replacen(" | ", " & ", 1));
        iverilog.run(&folder.0, &["-DGATEWORK_TESTBENCH", "-o", "a.vvp", "a.v"]);
        let said = vvp.run(&folder.0, &["a.vvp"]);
        assert!(said.contains("FAIL") && !said.contains("PASS"), "{said}");
    }
}

/// The outputs by name, and the next values of the latches, for inputs by name: Yosys has its own order.
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
    // Yosys is slow to start: the shapes that differ most will do.
    let wanted = ["no gates", "constants", "every gate", "random 3"];
    for (i, (name, circuit)) in
        circuits().into_iter().filter(|(name, _)| wanted.contains(&&**name)).enumerate()
    {
        let folder = Folder::new(&format!("yosys-{i}"));
        let mut script = String::new();
        for (format, read) in [("verilog", "read_verilog"), ("blif", "read_blif"), ("aag", "read_aiger")] {
            folder.write(&format!("a.{format}"), written(&circuit.clone().into(), format));
            let _ = write!(
                script,
                "{read} a.{format}; synth -flatten -noabc -auto-top; check -assert; aigmap; \
                 write_aiger -ascii -symbols {format}.aag; design -reset; "
            );
        }
        yosys.run(&folder.0, &["-q", "-p", &script]);
        for format in ["verilog", "blif", "aag"] {
            let bytes = std::fs::read(folder.0.join(format!("{format}.aag"))).unwrap();
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
    for (i, (name, automaton)) in automata().into_iter().enumerate().filter(|(i, _)| [0, 1, 4].contains(i)) {
        let folder = Folder::new(&format!("yosys-grid-{i}"));
        let (height, width, channels) = (3, 4, automaton.channels);
        let options = Options { name: Some("dut".into()), grid: Some([height, width]) };
        let document = automaton.clone().into();
        folder.write("a.v", formats::write(&document, Format::named("verilog").unwrap(), &options).unwrap());
        let script = "read_verilog a.v; hierarchy -check -top dut_grid; synth -flatten -noabc; check -assert; \
                      dffunmap; aigmap; write_aiger -ascii -symbols b.aag";
        yosys.run(&folder.0, &["-q", "-p", script]);
        let sequential = aiger::read_sequential(&std::fs::read(folder.0.join("b.aag")).unwrap()).unwrap();
        assert_eq!(sequential.latches.len(), height * width * channels, "{name}");
        let mut board = scattered(&mut Numbers(8), &automaton, [height, width]);
        let bit = |board: &Grid, place: usize| {
            let cell = place / channels;
            board.get(0, place % channels, cell / width, cell % width)
        };
        let start = board.clone();
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
                        bit(&board, place),
                        "{name}, step {step}"
                    );
                }
                board = naive_step(&automaton, &board).unwrap();
            }
            state = next;
        }
    }
}

/// Words for each input, sample after sample, as a C or Rust array.
fn array(words: &[u64]) -> String {
    words.iter().map(|word| format!("0x{word:x}")).collect::<Vec<_>>().join(", ")
}

/// Scattered words for the inputs, and the words of the outputs.
fn samples(circuit: &Circuit) -> (Vec<u64>, Vec<u64>) {
    let mut numbers = Numbers(4);
    let inputs: Vec<u64> = (0..circuit.inputs()).map(|_| numbers.next()).collect();
    let mut outputs = vec![0u64; circuit.outputs().len()];
    for sample in 0..64 {
        let bits: Vec<bool> = inputs.iter().map(|word| word >> sample & 1 == 1).collect();
        for (word, bit) in outputs.iter_mut().zip(circuit.eval(&bits).unwrap()) {
            *word |= u64::from(bit) << sample;
        }
    }
    (inputs, outputs)
}

/// The sizes of boards that exported steps are tested on.
const SIZES: [[usize; 2]; 8] = [[1, 1], [3, 2], [5, 63], [4, 64], [3, 65], [1, 130], [70, 3], [2, 128]];

/// A board as the exported code lays it out: rows that start at a word.
fn rows(grid: &Grid) -> Vec<u64> {
    let words = grid.width().div_ceil(64);
    let mut board = vec![0; grid.channels() * grid.height() * words];
    for c in 0..grid.channels() {
        for y in 0..grid.height() {
            for x in (0..grid.width()).filter(|&x| grid.get(0, c, y, x)) {
                board[(c * grid.height() + y) * words + x / 64] |= 1 << (x % 64);
            }
        }
    }
    board
}

/// A board of random bits.
fn scattered(numbers: &mut Numbers, automaton: &Automaton, [height, width]: [usize; 2]) -> Grid {
    let mut grid = Grid::new(1, height, width, automaton.channels).unwrap();
    for place in 0..height * width * automaton.channels {
        let (cell, channel) = (place / automaton.channels, place % automaton.channels);
        grid.set(0, channel, cell / width, cell % width, numbers.next() & 1 == 1);
    }
    grid
}

/// A board before and after a step.
struct Step {
    height: usize,
    width: usize,
    torus: bool,
    now: Vec<u64>,
    next: Vec<u64>,
}

/// Steps of boards of all sizes, with both boundaries.
fn steps(automaton: &Automaton) -> Vec<Step> {
    let mut numbers = Numbers(5);
    let mut list = Vec::new();
    for [height, width] in SIZES {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            let grid = scattered(&mut numbers, automaton, [height, width]);
            let next = naive_step(&Automaton { boundary, ..automaton.clone() }, &grid).unwrap();
            let torus = boundary == Boundary::Torus;
            list.push(Step { height, width, torus, now: rows(&grid), next: rows(&next) });
        }
    }
    list
}

/// A C function that compares a header with the slow twins. Arrays have one word more, for some have none.
fn c_test(name: &str, document: &Document) -> String {
    let (inputs, outputs) = samples(document.circuit());
    let function = if matches!(document, Document::Automaton { .. }) { "_rule" } else { "" };
    let mut text = format!(
        "#include \"{name}.h\"\nstatic int test_{name}(void)\n{{\nconst uint64_t in[] = {{{} }};\n\
         const uint64_t expected[] = {{{} }};\nuint64_t out[{}] = {{0}};\n{name}{function}(in, out);\n\
         if (memcmp(out, expected, {} * 8)) return puts(\"FAIL {name}\");\n",
        array(&[&inputs[..], &[0]].concat()),
        array(&[&outputs[..], &[0]].concat()),
        outputs.len() + 1,
        outputs.len()
    );
    if let Document::Automaton { automaton, .. } = document {
        for Step { height, width, torus, now, next } in steps(automaton) {
            let _ = writeln!(
                text,
                "{{\nstatic const uint64_t now[] = {{{}}};\nstatic const uint64_t expected[] = {{{}}};\n\
                 static uint64_t next[{}];\n{name}_step(now, next, {height}, {width}, {});\n\
                 if (memcmp(next, expected, sizeof next)) return puts(\"FAIL {name} {height}x{width}\");\n}}",
                array(&now),
                array(&next),
                now.len(),
                u8::from(torus)
            );
        }
    }
    text + "return 0;\n}\n"
}

/// A C program that compares many headers with the slow twins, and the headers.
fn c_program(folder: &Folder, documents: &[(String, Document)]) {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n");
    let mut main = String::from("int main(void)\n{\nint failed = 0;\n");
    for (i, (_, document)) in documents.iter().enumerate() {
        let name = format!("dut{i}");
        folder.write(&format!("{name}.h"), written_as(&name, document, "c"));
        text += &c_test(&name, document);
        let _ = writeln!(main, "failed |= test_{name}();");
    }
    folder.write("a.c", text + &main + "if (!failed) puts(\"PASS\");\nreturn 0;\n}\n");
}

#[test]
fn the_c_compiles_without_a_warning_and_computes_the_same_bits() {
    let Some(gcc) = Judge::find("gcc", "--version") else { return };
    let folder = Folder::new("c");
    c_program(&folder, &[documents(), vec![long()]].concat());
    gcc.run(&folder.0, &["-std=c99", "-pedantic", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "a", "a.c"]);
    let said = Command::new(folder.0.join("a")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "PASS\n");
}

#[test]
fn the_c_is_cpp_too() {
    let Some(cpp) = Judge::find("g++", "--version") else { return };
    let folder = Folder::new("cpp");
    c_program(&folder, &documents());
    let strict =
        ["-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "a.c"];
    cpp.run(&folder.0, &strict);
}

/// A circuit that is written as several functions.
fn long() -> (String, Document) {
    let circuit = circuit(&mut Numbers(6), 40, 12_000, 60, false);
    // Every seventh gate is an output, so most are needed.
    let outputs = (40..circuit.signals() as u32).rev().step_by(7).collect();
    let circuit = Circuit::new(40, circuit.nodes().to_vec(), outputs).unwrap();
    ("long".into(), circuit.into())
}

/// A Rust function that compares an exported module with the slow twins.
fn rust_test(name: &str, document: &Document) -> String {
    let (inputs, outputs) = samples(document.circuit());
    let function = if matches!(document, Document::Automaton { .. }) { "rule" } else { name };
    let mut text = format!(
        "#[allow(dead_code)]\nmod {name};\nfn test_{name}() {{\n    let mut out = [0u64; {count}];\n    \
         {name}::{function}(&[{}], &mut out);\n    let expected: [u64; {count}] = [{}];\n    \
         assert_eq!(out, expected);\n",
        array(&inputs),
        array(&outputs),
        count = outputs.len(),
    );
    if let Document::Automaton { automaton, .. } = document {
        for Step { height, width, torus, now, next } in steps(automaton) {
            let _ = writeln!(
                text,
                "    let mut next = [0u64; {}];\n    {name}::step(&[{}], &mut next, {height}, {width}, {torus});\n    \
                 assert_eq!(next, [{}], \"{height}x{width} {torus}\");",
                now.len(),
                array(&now),
                array(&next)
            );
        }
    }
    text + "}\n"
}

#[test]
fn the_rust_compiles_without_a_warning_and_computes_the_same_bits() {
    let Some(rustc) = Judge::find("rustc", "--version") else { return };
    let folder = Folder::new("rust");
    let mut text = String::from("#![deny(warnings)]\n");
    let mut main = String::from("fn main() {\n");
    for (i, (_, document)) in [documents(), vec![long()]].concat().iter().enumerate() {
        let name = format!("dut{i}");
        folder.write(&format!("{name}.rs"), written_as(&name, document, "rust"));
        text += &rust_test(&name, document);
        let _ = writeln!(main, "    test_{name}();");
    }
    folder.write("a.rs", text + &main + "    println!(\"PASS\");\n}\n");
    rustc.run(&folder.0, &["--edition", "2021", "-o", "a", "a.rs"]);
    let said = Command::new(folder.0.join("a")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "PASS\n", "{}", String::from_utf8_lossy(&said.stderr));
}
