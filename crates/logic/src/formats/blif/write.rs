//! Writer of BLIF files: one model, one `.names` per gate.

use super::RULE;
use crate::circuit::Node;
use crate::formats::names::{Ports, Scope};
use crate::formats::sequential::Sequential;
use crate::gate::Gate;
use std::fmt::Write;

/// The longest line of a list of names, unless a name is longer.
const LINE: usize = 80;

/// The names of all signals. Inner signals are numbered.
struct Signals {
    inputs: Vec<String>,
    /// The output of each gate that is one: the gate has its name.
    ports: Vec<Option<u32>>,
    outputs: Vec<String>,
    prefix: String,
}

impl Signals {
    fn new(sequential: &Sequential) -> Signals {
        let circuit = &sequential.circuit;
        let (inputs, outputs) = (circuit.inputs(), sequential.outputs());
        let mut scope = Scope::new(&RULE);
        let names = Ports::new(circuit, outputs).admit_linked(&mut scope, circuit.outputs());
        let mut ports = vec![None; circuit.nodes().len()];
        for (output, &signal) in circuit.outputs()[..outputs].iter().enumerate() {
            if let Some(gate) = (signal as usize).checked_sub(inputs) {
                ports[gate].get_or_insert(output as u32);
            }
        }
        Signals { inputs: names.inputs, ports, outputs: names.outputs, prefix: scope.prefix('n') }
    }

    fn name(&self, signal: u32) -> String {
        match (signal as usize).checked_sub(self.inputs.len()) {
            None => self.inputs[signal as usize].clone(),
            Some(gate) => match self.ports[gate] {
                Some(output) => self.outputs[output as usize].clone(),
                None => format!("{}{signal}", self.prefix),
            },
        }
    }

    /// Whether an output is a copy of a signal with another name.
    fn is_copy(&self, output: usize, signal: u32) -> bool {
        match (signal as usize).checked_sub(self.inputs.len()) {
            Some(gate) => self.ports[gate] != Some(output as u32),
            None => self.inputs[signal as usize] != self.outputs[output],
        }
    }
}

/// Writes a sequential circuit.
pub fn write_sequential(sequential: &Sequential, title: &str) -> String {
    let signals = Signals::new(sequential);
    let circuit = &sequential.circuit;
    let (inputs, outputs) = (sequential.inputs(), sequential.outputs());
    let mut text = format!(".model {}\n", RULE.repair(title));
    write_list(&mut text, ".inputs", &signals.inputs[..inputs]);
    write_list(&mut text, ".outputs", &signals.outputs);
    for (latch, start) in sequential.latches.iter().enumerate() {
        let next = signals.name(circuit.outputs()[outputs + latch]);
        let start = start.map_or(2, u8::from);
        // Writing to a string never fails.
        let _ = writeln!(text, ".latch {next} {} {start}", signals.inputs[inputs + latch]);
    }
    for (i, node) in circuit.nodes().iter().enumerate() {
        write_gate(&mut text, *node, &signals, (circuit.inputs() + i) as u32);
    }
    for (output, &signal) in circuit.outputs()[..outputs].iter().enumerate() {
        if signals.is_copy(output, signal) {
            let _ = writeln!(text, ".names {} {}\n1 1", signals.name(signal), signals.outputs[output]);
        }
    }
    text.push_str(".end\n");
    text
}

/// Writes a list of names, with a continuation where the line gets long.
fn write_list(text: &mut String, directive: &str, names: &[String]) {
    text.push_str(directive);
    let mut column = directive.len();
    for name in names {
        if column + name.len() + 3 > LINE {
            text.push_str(" \\\n");
            column = 0;
        }
        text.push(' ');
        text.push_str(name);
        column += name.len() + 1;
    }
    text.push('\n');
}

fn write_gate(text: &mut String, node: Node, signals: &Signals, signal: u32) {
    let (a, b, y) = (node.a, node.b, signals.name(signal));
    let (operands, cubes): (Vec<u32>, &str) = match node.gate {
        Gate::FALSE => (vec![], ""),
        Gate::TRUE => (vec![], "1\n"),
        Gate::A => (vec![a], "1 1\n"),
        Gate::B => (vec![b], "1 1\n"),
        Gate::NOT_A => (vec![a], "0 1\n"),
        Gate::NOT_B => (vec![b], "0 1\n"),
        Gate::AND => (vec![a, b], "11 1\n"),
        Gate::A_AND_NOT_B => (vec![a, b], "10 1\n"),
        Gate::NOT_A_AND_B => (vec![a, b], "01 1\n"),
        Gate::NOR => (vec![a, b], "00 1\n"),
        Gate::XOR => (vec![a, b], "10 1\n01 1\n"),
        Gate::XNOR => (vec![a, b], "00 1\n11 1\n"),
        Gate::OR => (vec![a, b], "1- 1\n-1 1\n"),
        Gate::A_OR_NOT_B => (vec![a, b], "1- 1\n-0 1\n"),
        Gate::NOT_A_OR_B => (vec![a, b], "0- 1\n-1 1\n"),
        _ => (vec![a, b], "0- 1\n-0 1\n"),
    };
    text.push_str(".names");
    for operand in operands {
        text.push(' ');
        text.push_str(&signals.name(operand));
    }
    let _ = write!(text, " {y}\n{cubes}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::Circuit;

    fn written(circuit: Circuit) -> String {
        write_sequential(&circuit.into(), "t e")
    }

    #[test]
    fn gates_that_are_outputs_have_the_names_of_the_outputs() {
        let gates = vec![Node::new(Gate::XOR, 0, 1), Node::new(Gate::NAND, 0, 2)];
        let circuit = Circuit::new(2, gates, vec![3, 3, 0]).unwrap();
        assert_eq!(
            written(circuit),
            ".model t_e\n.inputs x0 x1\n.outputs y0 y1 y2\n.names x0 x1 n2\n10 1\n01 1\n.names x0 n2 y0\n0- 1\n\
             -0 1\n.names y0 y1\n1 1\n.names x0 y2\n1 1\n.end\n"
        );
    }

    #[test]
    fn names_are_made_legal_and_distinct() {
        let circuit = Circuit::new(3, vec![Node::new(Gate::AND, 0, 1)], vec![3]).unwrap();
        let names = vec![".a b".into(), "n3".into(), "n3".into()];
        let text = written(circuit.with_names(names, vec!["n3".into()]).unwrap());
        assert!(text.contains(".inputs _.a_b n3 n3_2\n.outputs n3_3\n.names _.a_b n3 n3_3\n"), "{text}");
    }

    #[test]
    fn long_lists_are_continued() {
        let text = written(Circuit::new(100, vec![], vec![]).unwrap());
        assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
        assert_eq!(text.matches(" \\\n").count(), 5);
    }
}
