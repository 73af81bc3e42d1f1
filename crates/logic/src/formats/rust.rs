//! Rust: a circuit as one file without dependencies, 64 samples per word.
//!
//! ```ignore
//! pub fn adder(input: &[u64; 2], output: &mut [u64; 2]);
//! ```
//!
//! Bit `k` of `input[i]` is input `i` of sample `k`. An automaton has `rule` with 9 words per channel, and
//! `step(now, next, height, width, torus)` on grids whose rows are aligned to words: cell (y, x) of channel c is
//! bit `x % 64` of word `(c * height + y) * row_words(width) + x / 64`. The unused bits of a row are 0, and
//! remain 0.
//!
//! A classifier has `logic` for its circuit, and `predict(row)`, `scores(row)` and `predict_many(rows, labels)`, with
//! encoder and head.
//!
//! The file is a module: `mod adder;`. It compiles without warnings, without `unsafe`, and in `no_std`. Ports with names
//! have constants, such as `IN_A`.

use super::names::{NameRule, Ports, Scope, identifier};
use super::source::{Language, SourceCode, boundary_name, simple};
use super::{Document, Format, FormatError, Options, rust_classifier};
use crate::automaton::{Boundary, NEIGHBOURS};
use std::fmt::Write;

/// The entry of Rust in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "rust",
    endings: &["rs"],
    about: "one Rust file without dependencies, 64 samples per word",
    text: true,
    grid: false,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

const LANGUAGE: Language = Language { format: "Rust", not: '!', declare: "let", zero: "0u64" };

/// The keywords of Rust and the names that every file defines.
const RULE: NameRule = identifier(
    "Self _ abstract as async await become box break const continue crate do dyn else enum extern false final \
     fn for gen if impl in let loop macro match mod move mut override priv pub ref return row_words rule self \
     shifted static step struct super trait true try type typeof unsafe unsized use virtual where while yield",
);

/// The file of a circuit or an automaton.
fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    let circuit = simple(document, LANGUAGE.format)?;
    let name = RULE.repair(&options.title(document).to_lowercase());
    let code = SourceCode::new(&circuit, &LANGUAGE);
    let (inputs, outputs, operations) = (circuit.inputs(), circuit.outputs().len(), code.operations);
    let mut text = format!(
        "//! {name}: {inputs} inputs, {outputs} outputs, {operations} operations; 64 samples per word. Written by Gatework.\n\n"
    );
    write_constants(&mut text, document);
    match document {
        Document::Circuit(_) => write_function(&mut text, &name, &code, [inputs, outputs]),
        Document::Classifier(classifier) => {
            write_function(&mut text, "logic", &code, [inputs, outputs]);
            rust_classifier::write(&mut text, classifier, &circuit);
        }
        Document::Automaton { automaton, .. } => {
            write_function(&mut text, "rule", &code, [inputs, outputs]);
            write_step(&mut text, &code, automaton.channels, automaton.boundary);
        }
    }
    Ok(text)
}

/// Writes constants for the ports that have names.
fn write_constants(text: &mut String, document: &Document) {
    let circuit = document.circuit();
    let uppercase = |names: &[String], kind: &str| {
        names.iter().map(|port| format!("{kind}_{port}").to_uppercase()).collect()
    };
    let names = Ports {
        inputs: uppercase(circuit.input_names(), "IN"),
        outputs: uppercase(circuit.output_names(), "OUT"),
    };
    let ports = names.admit(&mut Scope::new(&RULE));
    for (kind, names) in [("input", &ports.inputs), ("output", &ports.outputs)] {
        for (i, name) in names.iter().enumerate() {
            // Writing to a string never fails, here and below.
            let _ = writeln!(text, "/// The index of an {kind}.\npub const {name}: usize = {i};");
        }
        text.push_str(if names.is_empty() { "" } else { "\n" });
    }
}

fn write_function(text: &mut String, name: &str, code: &SourceCode, [inputs, outputs]: [usize; 2]) {
    let mut bodies = String::new();
    let many = code.functions.len() > 1;
    for (i, body) in code.functions.iter().enumerate() {
        let unused = |used: bool| if used { "" } else { "_" };
        let (input, values) = (unused(body.reads_inputs), unused(body.uses_values));
        let output = unused(body.writes_outputs);
        let (head, values) = if many {
            (
                format!("#[inline(never)]\nfn {name}_part{i}"),
                format!(" {values}v: &mut [u64; {}],", code.values),
            )
        } else {
            let about =
                format!("/// Computes {outputs} output words from {inputs} input words.\n#[inline]\n");
            (format!("{about}pub fn {name}"), String::new())
        };
        let _ = writeln!(
            bodies,
            "{head}({input}input: &[u64; {inputs}],{values} {output}output: &mut [u64; {outputs}]) {{"
        );
        bodies.push_str(&body.text.replace("in[", "input[").replace("out[", "output["));
        bodies.push_str("}\n\n");
    }
    if many {
        let _ = writeln!(
            text,
            "/// Computes {outputs} output words from {inputs} input words.\n\
             pub fn {name}(input: &[u64; {inputs}], output: &mut [u64; {outputs}]) {{\n    \
             let mut v = [0u64; {}];",
            code.values
        );
        for i in 0..code.functions.len() {
            let _ = writeln!(text, "    {name}_part{i}(input, &mut v, output);");
        }
        text.push_str("}\n\n");
    }
    text.push_str(&bodies);
}

/// The step of an automaton.
const STEP: &str = include_str!("step.rs.in");

fn write_step(text: &mut String, code: &SourceCode, channels: usize, boundary: Boundary) {
    let mut loads = String::new();
    for input in (0..code.used.len()).filter(|&input| code.used[input]) {
        let (channel, place) = (input / NEIGHBOURS, input % NEIGHBOURS);
        let (dy, dx) = (place / 3, (place % 3) as i32 - 1);
        let _ = writeln!(loads, "            input[{input}] = cell({channel}, {dy}, {dx});");
    }
    if loads.is_empty() {
        loads.push_str("            let _ = (&cell, &mut input);\n");
    }
    let step = STEP
        .replace("@LOADS", &loads)
        .replace("@BOUNDARY", boundary_name(boundary))
        .replace("@CHANNELS", &channels.to_string())
        .replace("@INPUTS", &(NEIGHBOURS * channels).to_string());
    text.push_str(&step);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    #[test]
    fn a_nand_in_rust() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2]).unwrap();
        let text =
            write(&circuit.into(), &Options { name: Some("mod".into()), grid: None, ..Options::default() })
                .unwrap();
        let expected = "/// Computes 1 output words from 2 input words.\n#[inline]\n\
                        pub fn _mod(input: &[u64; 2], output: &mut [u64; 1]) {\n    let x0 = input[0];\n    \
                        let x1 = input[1];\n    let n2 = x0 & x1;\n    output[0] = !n2;\n}\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn constants_of_the_same_name_get_suffixes() {
        let circuit = Circuit::new(2, vec![], vec![]).unwrap();
        let names = ["a", "A"].map(String::from).to_vec();
        let text = write(&circuit.with_names(names, vec![]).unwrap().into(), &Options::default()).unwrap();
        assert!(
            text.contains("pub const IN_A: usize = 0;") && text.contains("pub const IN_A_2: usize = 1;"),
            "{text}"
        );
    }
}
