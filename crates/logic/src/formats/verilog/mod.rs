//! Structural Verilog: one assignment per gate, and a self-checking testbench.
//!
//! A circuit is a combinational module with a port for each input and output. An automaton is three modules:
//!
//! | module | contents |
//! |---|---|
//! | `name_rule` | the circuit: `patch[k * channels + c]` is channel `c` of neighbour `k`, `next[c]` the new bit |
//! | `name_cell` | a register with the rule: takes `start` if `load`, else the new bits if `enable` |
//! | `name_grid` | `HEIGHT x WIDTH` cells; beyond the edge is the opposite edge if `TORUS`, else zeros |
//!
//! In `start` and `state`, channel `c` of cell (y, x) is bit `(y * WIDTH + x) * channels + c`. The default size
//! is that of [`super::Options::grid`], or 8x8.
//!
//! A classifier is one module with comparators, gates, adders and arg-max; see the file `classifier`.
//!
//! The testbench is the last module of the file, compiled only if `GATEWORK_TESTBENCH` is defined. Its test vectors come
//! from the reference implementations ([`crate::Circuit::eval`], [`crate::naive_step`]). It prints `PASS`, or a line that
//! begins with `FAIL` for every difference:
//!
//! ```text
//! iverilog -DGATEWORK_TESTBENCH -o test life.v && vvp test
//! ```
//!
//! Names that are not identifiers, or are keywords of Verilog or SystemVerilog, are renamed (see [`super::names`]).

mod classifier;
mod testbench;

pub(crate) use classifier::MAX_PIPELINE;

use super::names::{self, NameRule, Ports, Scope, identifier};
use super::{Document, Format, FormatError, Options};
use crate::automaton::{Automaton, Boundary, NEIGHBOURS};
use crate::circuit::Circuit;
use crate::gate::Gate;
use std::fmt::Write;

/// The entry of Verilog in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "verilog",
    endings: &["v"],
    about: "structural Verilog with a testbench, for FPGA and chip flows",
    text: true,
    grid: true,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

/// The most gates of a module.
const MAX_GATES: usize = 1 << 24;
/// The most cells of a grid.
const MAX_CELLS: usize = 1 << 24;
/// The default size of a grid.
const SIZE: [usize; 2] = [8, 8];

/// The keywords of IEEE 1364-2005, and those of IEEE 1800 that are common names.
const RULE: NameRule = identifier(include_str!("keywords.txt"));

/// Writes a circuit or an automaton.
fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    let circuit = document.circuit().simplify();
    let gates = circuit.nodes().len();
    if gates > MAX_GATES {
        let message = format!("{gates} gates, but at most {MAX_GATES} are written");
        return Err(FormatError::TooLarge { format: "Verilog", message });
    }
    let [height, width] = options.grid.unwrap_or(SIZE);
    if height.checked_mul(width).is_none_or(|cells| cells > MAX_CELLS) {
        let message = format!("a grid of {height}x{width}, but at most {MAX_CELLS} cells are written");
        return Err(FormatError::TooLarge { format: "Verilog", message });
    }
    let name = RULE.repair(options.title(document));
    let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
    let mut text =
        format!("// {name}: {inputs} inputs, {outputs} outputs, {gates} gates. Written by Gatework.\n\n");
    match document {
        Document::Classifier(model) => classifier::write(&mut text, &name, model, options)?,
        Document::Circuit(_) => {
            let mut scope = Scope::new(&RULE);
            let ports = names::ports(document).admit(&mut scope);
            write_circuit(&mut text, &name, &circuit, &ports, &scope.prefix('n'));
            testbench::write_circuit(&mut text, &name, &circuit, &ports)?;
        }
        Document::Automaton { automaton, .. } => {
            write_rule(&mut text, &name, &circuit, automaton.channels);
            write_grid(&mut text, &name, automaton, [height, width]);
            testbench::write_grid(&mut text, &name, automaton, [height, width])?;
        }
    }
    Ok(text)
}

/// The formula of a gate.
fn formula(gate: Gate, a: &str, b: &str) -> String {
    match gate {
        Gate::AND => format!("{a} & {b}"),
        Gate::A_AND_NOT_B => format!("{a} & ~{b}"),
        Gate::A => a.into(),
        Gate::NOT_A_AND_B => format!("~{a} & {b}"),
        Gate::B => b.into(),
        Gate::XOR => format!("{a} ^ {b}"),
        Gate::OR => format!("{a} | {b}"),
        Gate::NOR => format!("~({a} | {b})"),
        Gate::XNOR => format!("~({a} ^ {b})"),
        Gate::NOT_B => format!("~{b}"),
        Gate::A_OR_NOT_B => format!("{a} | ~{b}"),
        Gate::NOT_A => format!("~{a}"),
        Gate::NOT_A_OR_B => format!("~{a} | {b}"),
        Gate::NAND => format!("~({a} & {b})"),
        Gate::TRUE => "~1'b0".into(),
        _ => "1'b0".into(),
    }
}

/// Writes an assignment for each gate and each output.
fn write_gates(text: &mut String, circuit: &Circuit, ports: &Ports, prefix: &str) {
    let operand = |signal: u32| match ports.inputs.get(signal as usize) {
        Some(input) => input.clone(),
        None => format!("{prefix}{signal}"),
    };
    for (i, node) in circuit.nodes().iter().enumerate() {
        let formula = formula(node.gate, &operand(node.a), &operand(node.b));
        // Writing to a string never fails, here and below.
        let _ = writeln!(text, "    wire {prefix}{} = {formula};", circuit.inputs() + i);
    }
    for (output, &signal) in ports.outputs.iter().zip(circuit.outputs()) {
        let _ = writeln!(text, "    assign {output} = {};", operand(signal));
    }
}

/// Writes a module with one port for each input and output.
fn write_circuit(text: &mut String, name: &str, circuit: &Circuit, ports: &Ports, prefix: &str) {
    let inputs = ports.inputs.iter().map(|port| format!("    input wire {port}"));
    let outputs = ports.outputs.iter().map(|port| format!("    output wire {port}"));
    let list: Vec<String> = inputs.chain(outputs).collect();
    let _ = writeln!(text, "module {name} (\n{}\n);", list.join(",\n"));
    write_gates(text, circuit, ports, prefix);
    text.push_str("endmodule\n\n");
}

/// Writes the rule of an automaton, with vectors as ports. The bits of a neighbour are adjacent, so that a grid
/// concatenates the vectors of nine cells: simulators take minutes for bits that are wired one by one.
fn write_rule(text: &mut String, name: &str, circuit: &Circuit, channels: usize) {
    let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
    let ports = Ports {
        inputs: (0..inputs)
            .map(|input| format!("patch[{}]", input % NEIGHBOURS * channels + input / NEIGHBOURS))
            .collect(),
        outputs: (0..outputs).map(|channel| format!("next[{channel}]")).collect(),
    };
    let _ = writeln!(
        text,
        "// The rule: channel c of neighbour k (row by row, 4 is the cell itself) is patch[k * {channels} + c].\n\
         module {name}_rule (\n    input wire [{}:0] patch,\n    output wire [{}:0] next\n);",
        inputs - 1,
        outputs - 1
    );
    write_gates(text, circuit, &ports, "n");
    text.push_str("endmodule\n\n");
}

/// The cell and the grid of an automaton.
const GRID: &str = include_str!("grid.v");

fn write_grid(text: &mut String, name: &str, automaton: &Automaton, [height, width]: [usize; 2]) {
    let channels = automaton.channels;
    let torus = u8::from(automaton.boundary == Boundary::Torus);
    let grid = GRID
        .replace("@@", "\0")
        .replace("@TOP", &(channels - 1).to_string())
        .replace("@PATCH", &(NEIGHBOURS * channels - 1).to_string())
        .replace("@CHANNELS", &channels.to_string())
        .replace("@HEIGHT", &height.to_string())
        .replace("@WIDTH", &width.to_string())
        .replace("@TORUS", &torus.to_string())
        .replace('@', name)
        .replace('\0', "@");
    text.push_str(&grid);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Node;
    use crate::formats;
    use crate::rules;

    #[test]
    fn a_circuit_is_a_module() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::XNOR, 0, 1)], vec![2]).unwrap();
        let names = vec!["carry in".into(), "wire".into()];
        let text = write(&circuit.with_names(names, vec![]).unwrap().into(), &Options::default()).unwrap();
        let module = "module circuit (\n    input wire carry_in,\n    input wire _wire,\n    output wire y0\n);\n    \
                      wire n2 = ~(carry_in ^ _wire);\n    assign y0 = n2;\nendmodule\n";
        assert!(text.contains(module), "{text}");
    }

    #[test]
    fn an_automaton_is_a_rule_a_cell_and_a_grid() {
        let options = Options { name: Some("life".into()), grid: Some([5, 7]), ..Options::default() };
        let bytes = formats::write(&rules::life(Boundary::Zeros).into(), &FORMAT, &options).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        for part in
            ["module life_rule (", "module life_cell (", "module life_grid #(", "parameter HEIGHT = 5,"]
        {
            assert!(text.contains(part), "{part}");
        }
        assert!(
            text.contains("parameter TORUS = 0\n")
                && text.contains("always @(posedge clk)")
                && !text.contains("@_")
        );
    }

    #[test]
    fn grids_that_are_too_large_are_errors() {
        let options = Options { name: None, grid: Some([1 << 20, 1 << 20]), ..Options::default() };
        let error = write(&rules::life(Boundary::Zeros).into(), &options).unwrap_err().to_string();
        assert!(
            error.starts_with("the circuit is too large for Verilog: a grid of 1048576x1048576"),
            "{error}"
        );
    }
}
