//! gcc, g++ and rustc compile the exported code, which is compared with the reference implementations.

use crate::cases::{Numbers, documents, long, scattered, written_as};
use crate::judge::{Folder, Judge};
use gatework_logic::{Automaton, Boundary, Circuit, Document, Grid, naive_step};
use std::fmt::Write as _;
use std::process::Command;

/// Words as the elements of a C or Rust array.
fn array(words: &[u64]) -> String {
    words.iter().map(|word| format!("0x{word:x}")).collect::<Vec<_>>().join(", ")
}

/// Random input words, and the output words.
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

/// The sizes of the test grids.
const SIZES: [[usize; 2]; 8] = [[1, 1], [3, 2], [5, 63], [4, 64], [3, 65], [1, 130], [70, 3], [2, 128]];

/// The words of a grid in the layout of the exported code: rows are aligned to words.
fn rows(grid: &Grid) -> Vec<u64> {
    let row_words = grid.width().div_ceil(64);
    let mut words = vec![0; grid.channels() * grid.height() * row_words];
    for c in 0..grid.channels() {
        for y in 0..grid.height() {
            for x in (0..grid.width()).filter(|&x| grid.get(0, c, y, x)) {
                words[(c * grid.height() + y) * row_words + x / 64] |= 1 << (x % 64);
            }
        }
    }
    words
}

/// A grid before and after a step.
struct GridStep {
    height: usize,
    width: usize,
    torus: bool,
    now: Vec<u64>,
    next: Vec<u64>,
}

/// Steps of grids of all sizes, with both boundaries.
fn steps(automaton: &Automaton) -> Vec<GridStep> {
    let mut numbers = Numbers(5);
    let mut list = Vec::new();
    for [height, width] in SIZES {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            let grid = scattered(&mut numbers, automaton, [height, width]);
            let next = naive_step(&Automaton { boundary, ..automaton.clone() }, &grid).unwrap();
            let torus = boundary == Boundary::Torus;
            list.push(GridStep { height, width, torus, now: rows(&grid), next: rows(&next) });
        }
    }
    list
}

/// A C function that compares a header with the reference. Arrays have an additional word, because C has no empty arrays.
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
        for GridStep { height, width, torus, now, next } in steps(automaton) {
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

/// Writes headers, and a C program that compares them with the reference.
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
fn c_headers_compile_without_warnings_and_compute_the_same_bits() {
    let Some(gcc) = Judge::find("gcc", "--version") else { return };
    let folder = Folder::new();
    c_program(&folder, &[documents(), vec![long()]].concat());
    gcc.run(&folder, &["-std=c99", "-pedantic", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "a", "a.c"]);
    let said = Command::new(folder.path().join("a")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "PASS\n");
}

#[test]
fn c_headers_are_valid_cpp() {
    let Some(cpp) = Judge::find("g++", "--version") else { return };
    let folder = Folder::new();
    c_program(&folder, &documents());
    let strict =
        ["-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "a.c"];
    cpp.run(&folder, &strict);
}

/// A Rust function that compares an exported module with the reference.
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
        for GridStep { height, width, torus, now, next } in steps(automaton) {
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
fn rust_modules_compile_without_warnings_and_compute_the_same_bits() {
    let Some(rustc) = Judge::find("rustc", "--version") else { return };
    let folder = Folder::new();
    let mut text = String::from("#![deny(warnings)]\n");
    let mut main = String::from("fn main() {\n");
    for (i, (_, document)) in [documents(), vec![long()]].concat().iter().enumerate() {
        let name = format!("dut{i}");
        folder.write(&format!("{name}.rs"), written_as(&name, document, "rust"));
        text += &rust_test(&name, document);
        let _ = writeln!(main, "    test_{name}();");
    }
    folder.write("a.rs", text + &main + "    println!(\"PASS\");\n}\n");
    rustc.run(&folder, &["--edition", "2021", "-o", "a", "a.rs"]);
    let said = Command::new(folder.path().join("a")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "PASS\n", "{}", String::from_utf8_lossy(&said.stderr));
}
