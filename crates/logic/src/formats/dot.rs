//! DOT: a circuit as a graph for Graphviz.
//!
//! Inputs are on the left, outputs on the right. A gate is a box with its formula, in which `a` is the operand with the
//! solid line and `b` the one with the dashed line. Names are quoted, so every name is allowed.

use super::names;
use super::{Document, Format, FormatError, Options, used_inputs};
use crate::gate::Gate;
use std::fmt::Write;

/// The entry of DOT in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "dot",
    endings: &["dot", "gv"],
    about: "a graph for Graphviz",
    text: true,
    grid: false,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

/// The most gates that are drawn; Graphviz takes minutes for more.
const MAX_GATES: usize = 10_000;

/// Quotes a string and removes line breaks.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a gate is symmetric in its operands.
fn is_symmetric(gate: Gate) -> bool {
    gate == gate.swap()
}

/// The label of a gate.
fn label(gate: Gate) -> String {
    gate.name().replace('A', if is_symmetric(gate) { "A" } else { "a" }).replace('B', "b")
}

fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    let circuit = document.circuit().simplify();
    let (inputs, gates) = (circuit.inputs(), circuit.nodes().len());
    if gates > MAX_GATES {
        let message = format!(
            "{gates} gates, but at most {MAX_GATES} are drawn; minimise it, or if it is minimal, write BLIF or Verilog"
        );
        return Err(FormatError::TooLarge { format: "DOT", message });
    }
    let ports = names::ports(document);
    let mut text = format!(
        "digraph {} {{\n    rankdir=LR;\n    node [fontname=\"Helvetica\", shape=box, style=rounded];\n",
        quoted(options.title(document))
    );
    // Writing to a string never fails, here and below.
    for input in used_inputs(&circuit) {
        let name = quoted(&ports.inputs[input as usize]);
        let _ = writeln!(text, "    s{input} [label={name}, shape=plaintext];");
    }
    for (i, node) in circuit.nodes().iter().enumerate() {
        let signal = inputs + i;
        let _ = writeln!(text, "    s{signal} [label={}];", quoted(&label(node.gate)));
        for (k, operand) in node.dependencies().enumerate() {
            let dashed = if k == 1 && !is_symmetric(node.gate) { " [style=dashed]" } else { "" };
            let _ = writeln!(text, "    s{operand} -> s{signal}{dashed};");
        }
    }
    for (i, (name, signal)) in ports.outputs.iter().zip(circuit.outputs()).enumerate() {
        let _ = writeln!(text, "    o{i} [label={}, shape=plaintext];\n    s{signal} -> o{i};", quoted(name));
    }
    text.push_str("}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};

    #[test]
    fn a_gate_is_a_box_with_two_lines() {
        let circuit = Circuit::new(3, vec![Node::new(Gate::A_AND_NOT_B, 0, 1)], vec![3]).unwrap();
        let names = vec!["say \"a\"".into(), "b\n".into(), "unused".into()];
        let text = write(&circuit.with_names(names, vec![]).unwrap().into(), &Options::default()).unwrap();
        let expected = "    s0 [label=\"say \\\"a\\\"\", shape=plaintext];\n    s1 [label=\"b \", shape=plaintext];\n    \
                        s3 [label=\"a&!b\"];\n    s0 -> s3;\n    s1 -> s3 [style=dashed];\n    \
                        o0 [label=\"y0\", shape=plaintext];\n    s3 -> o0;\n}\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn labels_are_formulas() {
        let labels: Vec<String> = Gate::ALL.map(label).to_vec();
        assert_eq!(labels[1], "AND");
        assert_eq!(labels[14], "NAND");
        assert_eq!(labels[11], "a|!b");
    }

    #[test]
    fn large_circuits_are_errors() {
        let nodes = (0..=MAX_GATES as u32).map(|i| Node::new(Gate::XOR, i, i + 1)).collect();
        let circuit = Circuit::new(2, nodes, vec![MAX_GATES as u32 + 2]).unwrap();
        assert!(write(&circuit.into(), &Options::default()).unwrap_err().to_string().contains("10001 gates"));
    }
}
