//! VHDL (IEEE 1076-1993): one assignment per gate, and a self-checking testbench.
//!
//! A circuit is a combinational entity with a port for each input and output. An automaton is three entities:
//!
//! | entity | contents |
//! |---|---|
//! | `name_rule` | the circuit: `patch(k * channels + c)` is channel `c` of neighbour `k`, `new_bits(c)` the new bit |
//! | `name_cell` | a register with the rule: takes `start` if `load`, else the new bits if `enable` |
//! | `name_grid` | `HEIGHT x WIDTH` cells; beyond the edge is the opposite edge if `TORUS`, else zeros |
//!
//! In `start` and `state`, channel `c` of cell (y, x) is bit `(y * WIDTH + x) * channels + c`. The default size is that of
//! [`super::Options::grid`], or 8x8.
//!
//! The testbench is the last entity of the file, which synthesis leaves out if it begins with another one. Its test vectors are
//! those of the Verilog. It reports `PASS` or `FAIL`:
//!
//! ```text
//! ghdl -a life.vhd && ghdl -e life_testbench && ghdl -r life_testbench
//! ```
//!
//! [`testbench`] is the name of the entity. A `FAIL` ends the simulation with an error.
//!
//! Identifiers of VHDL do not distinguish capitals and have no leading, trailing or double underscores, so names are written in
//! lower case, and others are changed; those that become equal get a number (see [`super::names`]).

use super::names::{self, NameRule, Ports, Scope, identifier};
use super::test_vectors::{GridTest, grid_test, vectors};
use super::{Document, Format, FormatError, Options};
use crate::automaton::{Automaton, Boundary, NEIGHBOURS};
use crate::circuit::Circuit;
use crate::gate::Gate;
use std::fmt::Write;

/// The entry of VHDL in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "vhdl",
    endings: &["vhd", "vhdl"],
    about: "structural VHDL with a testbench, of circuits and automata",
    text: true,
    grid: true,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

/// The most gates of an entity.
const MAX_GATES: usize = 1 << 24;
/// The most cells of a grid.
const MAX_CELLS: usize = 1 << 24;
/// The default size of a grid.
const SIZE: [usize; 2] = [8, 8];

/// The keywords of IEEE 1076-2008, and names of the standard packages that the files use.
const KEYWORDS: &str = include_str!("keywords.txt");
/// The rule for names that [`legal`] returns.
const RULE: NameRule = identifier("");

/// The context of an entity.
const LIBRARY: &str = "library ieee;\nuse ieee.std_logic_1164.all;\n\n";

/// Returns a legal identifier, as close as possible to a name.
fn legal(name: &str) -> String {
    let lower = name.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let joined = words.join("_");
    let is_keyword = KEYWORDS.split_whitespace().any(|keyword| keyword == joined);
    if is_keyword || !joined.starts_with(|c: char| c.is_ascii_alphabetic()) {
        format!("p_{joined}").trim_end_matches('_').to_string()
    } else {
        joined
    }
}

/// Returns the name of the testbench in a file with this title ([`Options::name`]).
///
/// ```
/// assert_eq!(gatework_logic::formats::vhdl::testbench("Game of Life"), "game_of_life_testbench");
/// ```
pub fn testbench(title: &str) -> String {
    format!("{}_testbench", legal(title))
}

/// Writes a circuit or an automaton.
fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    if matches!(document, Document::Classifier(_)) {
        return Err(FormatError::NoClassifier("vhdl"));
    }
    let circuit = document.circuit().simplify();
    let gates = circuit.nodes().len();
    if gates > MAX_GATES {
        let message = format!("{gates} gates, but at most {MAX_GATES} are written");
        return Err(FormatError::TooLarge { format: "VHDL", message });
    }
    let [height, width] = options.grid.unwrap_or(SIZE);
    if height.checked_mul(width).is_none_or(|cells| cells > MAX_CELLS) {
        let message = format!("a grid of {height}x{width}, but at most {MAX_CELLS} cells are written");
        return Err(FormatError::TooLarge { format: "VHDL", message });
    }
    let name = legal(options.title(document));
    let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
    let mut text =
        format!("-- {name}: {inputs} inputs, {outputs} outputs, {gates} gates. Written by Gatework.\n\n");
    if let Document::Automaton { automaton, .. } = document {
        write_rule(&mut text, &name, &circuit, automaton.channels);
        write_grid(&mut text, &name, automaton, [height, width]);
        write_grid_testbench(&mut text, &name, automaton, [height, width])?;
    } else {
        let mut scope = Scope::new(&RULE);
        let Ports { inputs, outputs } = names::ports(document);
        let [inputs, outputs] = [inputs, outputs].map(|names| names.iter().map(|n| legal(n)).collect());
        let ports = Ports { inputs, outputs }.admit(&mut scope);
        // No two underscores may follow one another.
        write_circuit(&mut text, &name, &circuit, &ports, &scope.prefix_with('n', 'n'));
        write_circuit_testbench(&mut text, &name, &circuit, &ports)?;
    }
    Ok(text)
}

/// The formula of a gate.
fn formula(gate: Gate, a: &str, b: &str) -> String {
    match gate {
        Gate::AND => format!("{a} and {b}"),
        Gate::A_AND_NOT_B => format!("{a} and not {b}"),
        Gate::A => a.into(),
        Gate::NOT_A_AND_B => format!("not {a} and {b}"),
        Gate::B => b.into(),
        Gate::XOR => format!("{a} xor {b}"),
        Gate::OR => format!("{a} or {b}"),
        Gate::NOR => format!("not ({a} or {b})"),
        Gate::XNOR => format!("not ({a} xor {b})"),
        Gate::NOT_B => format!("not {b}"),
        Gate::A_OR_NOT_B => format!("{a} or not {b}"),
        Gate::NOT_A => format!("not {a}"),
        Gate::NOT_A_OR_B => format!("not {a} or {b}"),
        Gate::NAND => format!("not ({a} and {b})"),
        Gate::TRUE => "'1'".into(),
        _ => "'0'".into(),
    }
}

/// Writes an architecture with an assignment for each gate and each output.
fn write_gates(text: &mut String, entity: &str, circuit: &Circuit, ports: &Ports, prefix: &str) {
    let operand = |signal: u32| match ports.inputs.get(signal as usize) {
        Some(input) => input.clone(),
        None => format!("{prefix}{signal}"),
    };
    // Writing to a string never fails, here and below.
    let _ = writeln!(text, "architecture gates of {entity} is");
    for signal in circuit.inputs()..circuit.signals() {
        let _ = writeln!(text, "    signal {prefix}{signal} : std_logic;");
    }
    text.push_str("begin\n");
    for (i, node) in circuit.nodes().iter().enumerate() {
        let formula = formula(node.gate, &operand(node.a), &operand(node.b));
        let _ = writeln!(text, "    {prefix}{} <= {formula};", circuit.inputs() + i);
    }
    for (output, &signal) in ports.outputs.iter().zip(circuit.outputs()) {
        let _ = writeln!(text, "    {output} <= {};", operand(signal));
    }
    text.push_str("end architecture;\n\n");
}

/// Writes an entity with one port for each input and output.
fn write_circuit(text: &mut String, name: &str, circuit: &Circuit, ports: &Ports, prefix: &str) {
    let inputs = ports.inputs.iter().map(|port| format!("        {port} : in std_logic"));
    let outputs = ports.outputs.iter().map(|port| format!("        {port} : out std_logic"));
    let list: Vec<String> = inputs.chain(outputs).collect();
    let ports_of_entity =
        if list.is_empty() { String::new() } else { format!("    port (\n{}\n    );\n", list.join(";\n")) };
    let _ = write!(text, "{LIBRARY}entity {name} is\n{ports_of_entity}end entity;\n\n");
    write_gates(text, name, circuit, ports, prefix);
}

/// Writes the rule of an automaton, with vectors as ports.
fn write_rule(text: &mut String, name: &str, circuit: &Circuit, channels: usize) {
    let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
    let ports = Ports {
        inputs: (0..inputs)
            .map(|input| format!("patch({})", input % NEIGHBOURS * channels + input / NEIGHBOURS))
            .collect(),
        outputs: (0..outputs).map(|channel| format!("new_bits({channel})")).collect(),
    };
    let _ = write!(
        text,
        "-- The rule: channel c of neighbour k (row by row, 4 is the cell itself) is patch(k * {channels} + c).\n\
         {LIBRARY}entity {name}_rule is\n    port (\n        patch : in std_logic_vector({} downto 0);\n        \
         new_bits : out std_logic_vector({} downto 0)\n    );\nend entity;\n\n",
        inputs - 1,
        outputs - 1
    );
    write_gates(text, &format!("{name}_rule"), circuit, &ports, "n");
}

/// The constant of a boundary.
fn torus(automaton: &Automaton) -> &'static str {
    if automaton.boundary == Boundary::Torus { "true" } else { "false" }
}

/// Writes the cell and the grid of an automaton.
fn write_grid(text: &mut String, name: &str, automaton: &Automaton, [height, width]: [usize; 2]) {
    let channels = automaton.channels;
    let grid = include_str!("grid.vhd")
        .replace("@TOP", &(channels - 1).to_string())
        .replace("@PATCH", &(NEIGHBOURS * channels - 1).to_string())
        .replace("@CHANNELS", &channels.to_string())
        .replace("@HEIGHT", &height.to_string())
        .replace("@WIDTH", &width.to_string())
        .replace("@TORUS", torus(automaton))
        .replace('@', name);
    text.push_str(&grid);
}

/// Returns bits as a string literal.
fn literal<'a>(bits: impl Iterator<Item = &'a bool>) -> String {
    let digits: String = bits.map(|&bit| if bit { '1' } else { '0' }).collect();
    format!("\"{digits}\"")
}

/// Writes the testbench of a circuit.
fn write_circuit_testbench(
    text: &mut String,
    name: &str,
    circuit: &Circuit,
    ports: &Ports,
) -> Result<(), FormatError> {
    let connect = |ports: &[String], bits: &str| -> Vec<String> {
        ports.iter().enumerate().map(|(i, port)| format!("        {port} => {bits}({i})")).collect()
    };
    let connections = [connect(&ports.inputs, "given"), connect(&ports.outputs, "computed")].concat();
    let connections = match &connections[..] {
        [] => String::new(),
        connections => format!(" port map (\n{}\n    )", connections.join(",\n")),
    };
    let mut checks = String::new();
    for inputs in vectors(circuit) {
        let outputs = circuit.eval(&inputs)?;
        let _ = writeln!(checks, "        check({}, {});", literal(inputs.iter()), literal(outputs.iter()));
    }
    let testbench = include_str!("circuit_testbench.vhd")
        .replace("@INPUTS", &ports.inputs.len().to_string())
        .replace("@OUTPUTS", &ports.outputs.len().to_string())
        .replace("@CONNECTIONS", &connections)
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
}

/// Writes the testbench of an automaton.
fn write_grid_testbench(
    text: &mut String,
    name: &str,
    automaton: &Automaton,
    size: [usize; 2],
) -> Result<(), FormatError> {
    let GridTest { size: [height, width], states } = grid_test(automaton, size)?;
    // The bit with the highest index is the first of a literal.
    let state = |bits: &Vec<bool>| literal(bits.iter().rev());
    let mut checks = String::new();
    for bits in &states[1..] {
        let _ = writeln!(checks, "        check({});", state(bits));
    }
    let testbench = include_str!("grid_testbench.vhd")
        .replace("@TOP", &(height * width * automaton.channels - 1).to_string())
        .replace("@HEIGHT", &height.to_string())
        .replace("@WIDTH", &width.to_string())
        .replace("@TORUS", torus(automaton))
        .replace("@START", &state(&states[0]))
        .replace("@END", &state(&states[states.len() - 1]))
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Node;
    use crate::rules;

    #[test]
    fn names_are_identifiers() {
        for (name, expected) in [
            ("carry in", "carry_in"),
            ("_x__Y_", "x_y"),
            ("Signal", "p_signal"),
            ("0", "p_0"),
            ("", "p"),
            ("ß", "p"),
            ("a1", "a1"),
        ] {
            assert_eq!(legal(name), expected, "{name}");
        }
    }

    #[test]
    fn a_circuit_is_an_entity() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::XNOR, 0, 1)], vec![2]).unwrap();
        let names = vec!["in".into(), "IN".into()];
        let text = write(&circuit.with_names(names, vec![]).unwrap().into(), &Options::default()).unwrap();
        let entity = "entity circuit is\n    port (\n        p_in : in std_logic;\n        p_in_2 : in std_logic;\n        \
                      y0 : out std_logic\n    );\nend entity;\n\narchitecture gates of circuit is\n    \
                      signal n2 : std_logic;\nbegin\n    n2 <= not (p_in xor p_in_2);\n    y0 <= n2;\nend architecture;\n";
        assert!(text.contains(entity), "{text}");
    }

    #[test]
    fn inner_signals_have_no_double_underscores() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::AND, 0, 1)], vec![2]).unwrap();
        let names = vec!["nmi".into(), "n_reset".into()];
        let text = write(&circuit.with_names(names, vec![]).unwrap().into(), &Options::default()).unwrap();
        assert!(text.contains("nn2 <= nmi and n_reset;") && !text.contains("__"), "{text}");
    }

    #[test]
    fn an_automaton_is_a_rule_a_cell_and_a_grid() {
        let options = Options { name: Some("Life".into()), grid: Some([5, 7]), ..Options::default() };
        let text = write(&rules::life(Boundary::Zeros).into(), &options).unwrap();
        for part in ["entity life_rule is", "entity life_cell is", "HEIGHT : positive := 5;", ":= false"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains('@'));
    }

    #[test]
    fn grids_that_are_too_large_are_errors() {
        let options = Options { name: None, grid: Some([1 << 20, 1 << 20]), ..Options::default() };
        let error = write(&rules::life(Boundary::Zeros).into(), &options).unwrap_err().to_string();
        assert!(error.starts_with("the circuit is too large for VHDL: a grid of 1048576x1048576"), "{error}");
    }
}
