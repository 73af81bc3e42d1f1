//! Straight-line code: what the C and the Rust of a circuit have in common.
//!
//! A signal is a local variable, a gate is an assignment. Compilers take far more than linear time for very
//! long functions, so a large circuit becomes a chain of functions. What one of them
//! computes and a later one, or the output, reads goes through an array `v`, whose places are used again as
//! soon as they are free.

use crate::circuit::{Circuit, Node};
use crate::formats::FormatError;
use crate::formats::json::Document;
use crate::gate::Gate;
use std::fmt::Write;

/// The most gates of a circuit that is one function, and the gates of a function of a larger one. gcc 12 -O1
/// takes 0.6 ms a gate for functions of 250 gates, 1.4 ms for 1000 and 1.7 ms for 2000.
const SINGLE: usize = 1000;
const BLOCK: usize = 256;
/// The most gates that are written as code.
pub(super) const MAX_GATES: usize = 1 << 22;

/// How a language spells things.
pub(super) struct Language {
    /// The name of the format.
    pub format: &'static str,
    /// The operator that inverts a word.
    pub not: char,
    /// What declares a local variable.
    pub declare: &'static str,
    pub zero: &'static str,
}

/// The statements of one function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub text: String,
    /// Whether it reads inputs, reads or writes `v`, and writes outputs.
    pub reads_inputs: bool,
    pub uses_values: bool,
    pub writes_outputs: bool,
}

/// A circuit as blocks of statements.
#[derive(Debug)]
pub(super) struct Program {
    pub blocks: Vec<Block>,
    /// Places in `v`.
    pub values: usize,
    /// Whether each input is read.
    pub used: Vec<bool>,
}

/// The formula of a gate.
pub(super) fn formula(gate: Gate, a: &str, b: &str, not: char, zero: &str) -> String {
    match gate {
        Gate::AND => format!("{a} & {b}"),
        Gate::A_AND_NOT_B => format!("{a} & {not}{b}"),
        Gate::A => a.into(),
        Gate::NOT_A_AND_B => format!("{not}{a} & {b}"),
        Gate::B => b.into(),
        Gate::XOR => format!("{a} ^ {b}"),
        Gate::OR => format!("{a} | {b}"),
        Gate::NOR => format!("{not}({a} | {b})"),
        Gate::XNOR => format!("{not}({a} ^ {b})"),
        Gate::NOT_B => format!("{not}{b}"),
        Gate::A_OR_NOT_B => format!("{a} | {not}{b}"),
        Gate::NOT_A => format!("{not}{a}"),
        Gate::NOT_A_OR_B => format!("{not}{a} | {b}"),
        Gate::NAND => format!("{not}({a} & {b})"),
        Gate::TRUE => format!("{not}{zero}"),
        _ => zero.into(),
    }
}

/// The simplified circuit of a document, if it is not too large to be code.
pub(super) fn simple(document: &Document, format: &'static str) -> Result<Circuit, FormatError> {
    let circuit = document.circuit().simplify();
    if circuit.nodes().len() > MAX_GATES {
        let message = format!(
            "{} gates, but at most {MAX_GATES} are written; minimise it first, or use BLIF or AIGER",
            circuit.nodes().len()
        );
        return Err(FormatError::TooLarge { format, message });
    }
    Ok(circuit)
}

/// Where signals are kept between blocks.
struct Places {
    /// The block that reads a signal last.
    last: Vec<u32>,
    /// The place of a signal in `v`.
    place: Vec<u32>,
    free: Vec<u32>,
    count: u32,
}

impl Places {
    fn new(circuit: &Circuit, block: usize) -> Places {
        let mut last = vec![0; circuit.signals()];
        for (i, node) in circuit.nodes().iter().enumerate() {
            for signal in node.dependencies() {
                last[signal as usize] = (i / block) as u32;
            }
        }
        let place = vec![u32::MAX; circuit.signals()];
        Places { last, place, free: Vec::new(), count: 0 }
    }

    /// Gives a signal a place of its own.
    fn take(&mut self, signal: u32) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.place[signal as usize] = place;
        place
    }
}

impl Program {
    /// The program of a simplified circuit.
    pub fn new(circuit: &Circuit, language: &Language) -> Program {
        let block = if circuit.nodes().len() <= SINGLE { SINGLE } else { BLOCK };
        Program::in_blocks(circuit, language, block)
    }

    /// The program in functions of at most `block` gates.
    fn in_blocks(circuit: &Circuit, language: &Language, block: usize) -> Program {
        let mut places = Places::new(circuit, block);
        let mut used = vec![false; circuit.inputs()];
        let outputs = outputs_by_block(circuit, block);
        let mut blocks = Vec::new();
        for (number, outputs) in outputs.iter().enumerate() {
            let first = (number * block).min(circuit.nodes().len());
            let nodes = &circuit.nodes()[first..(first + block).min(circuit.nodes().len())];
            let mut writer =
                BlockWriter { circuit, language, first: circuit.inputs() + first, text: String::new() };
            let loaded = writer.loads(nodes, outputs, &places);
            writer.gates(nodes);
            let stored = writer.stores(nodes, number as u32, &mut places);
            writer.outputs(outputs);
            let inputs = |signal: &&u32| (**signal as usize) < circuit.inputs();
            loaded.iter().filter(inputs).for_each(|&input| used[input as usize] = true);
            blocks.push(Block {
                text: writer.text,
                reads_inputs: loaded.iter().any(|signal| inputs(&signal)),
                uses_values: stored || loaded.iter().any(|signal| !inputs(&signal)),
                writes_outputs: !outputs.is_empty(),
            });
        }
        Program { blocks, values: places.count as usize, used }
    }
}

/// The outputs that each block writes: those whose gates it computes. The first also writes inputs.
fn outputs_by_block(circuit: &Circuit, block: usize) -> Vec<Vec<(usize, u32)>> {
    let mut blocks = vec![Vec::new(); circuit.nodes().len().div_ceil(block).max(1)];
    for (output, &signal) in circuit.outputs().iter().enumerate() {
        let gate = (signal as usize).checked_sub(circuit.inputs());
        blocks[gate.map_or(0, |gate| gate / block)].push((output, signal));
    }
    blocks
}

/// Writes the statements of one block.
struct BlockWriter<'c> {
    circuit: &'c Circuit,
    language: &'c Language,
    /// The signal of the first gate of the block.
    first: usize,
    text: String,
}

impl BlockWriter<'_> {
    /// Reads what comes from outside of the block, and returns those signals.
    fn loads(&mut self, nodes: &[Node], outputs: &[(usize, u32)], places: &Places) -> Vec<u32> {
        let read = nodes.iter().flat_map(|node| node.dependencies());
        let mut outside: Vec<u32> = read
            .chain(outputs.iter().map(|&(_, signal)| signal))
            .filter(|&s| (s as usize) < self.first)
            .collect();
        outside.sort_unstable();
        outside.dedup();
        for &signal in &outside {
            let name = self.name(signal);
            let source = if (signal as usize) < self.circuit.inputs() {
                format!("in[{signal}]")
            } else {
                format!("v[{}]", places.place[signal as usize])
            };
            // Writing to a string never fails, here and below.
            let _ = writeln!(self.text, "    {} {name} = {source};", self.language.declare);
        }
        outside
    }

    fn gates(&mut self, nodes: &[Node]) {
        let Language { not, declare, zero, .. } = *self.language;
        for (i, node) in nodes.iter().enumerate() {
            let (a, b) = (self.name(node.a), self.name(node.b));
            let formula = formula(node.gate, &a, &b, not, zero);
            let _ = writeln!(self.text, "    {declare} n{} = {formula};", self.first + i);
        }
    }

    /// Frees the places that no later block reads, then keeps what later blocks read.
    fn stores(&mut self, nodes: &[Node], block: u32, places: &mut Places) -> bool {
        let mut read: Vec<u32> = nodes.iter().flat_map(|node| node.dependencies()).collect();
        read.sort_unstable();
        read.dedup();
        for signal in read {
            let place = places.place[signal as usize];
            if place != u32::MAX && places.last[signal as usize] == block {
                places.free.push(place);
            }
        }
        let mut stored = false;
        for signal in self.first..self.first + nodes.len() {
            if places.last[signal] > block {
                let place = places.take(signal as u32);
                let _ = writeln!(self.text, "    v[{place}] = n{signal};");
                stored = true;
            }
        }
        stored
    }

    fn outputs(&mut self, outputs: &[(usize, u32)]) {
        for &(output, signal) in outputs {
            let name = self.name(signal);
            let _ = writeln!(self.text, "    out[{output}] = {name};");
        }
    }

    fn name(&self, signal: u32) -> String {
        format!("{}{signal}", if (signal as usize) < self.circuit.inputs() { 'x' } else { 'n' })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const LANGUAGE: Language = Language { format: "test", not: '~', declare: "let", zero: "0" };

    /// Runs the statements, one bit a word.
    fn run(program: &Program, inputs: &[bool], outputs: usize) -> Vec<bool> {
        let (mut values, mut out) = (HashMap::new(), vec![false; outputs]);
        for block in &program.blocks {
            let mut locals: HashMap<String, bool> = HashMap::new();
            for line in block.text.lines() {
                let (target, formula) = line.trim().trim_end_matches(';').split_once(" = ").unwrap();
                let get = |name: &str| match name.split_once('[') {
                    Some(("in", place)) => inputs[place.trim_end_matches(']').parse::<usize>().unwrap()],
                    Some(_) => values[name],
                    None => name != "0" && locals[name],
                };
                let value = value(formula, &get);
                match target.strip_prefix("out[") {
                    Some(place) => out[place.trim_end_matches(']').parse::<usize>().unwrap()] = value,
                    None if target.starts_with("v[") => drop(values.insert(target.to_string(), value)),
                    None => drop(locals.insert(target.trim_start_matches("let ").into(), value)),
                }
            }
        }
        out
    }

    fn value(formula: &str, get: &impl Fn(&str) -> bool) -> bool {
        if let Some(inner) = formula.strip_prefix("~(") {
            return !value(inner.trim_end_matches(')'), get);
        }
        match formula.split(' ').collect::<Vec<_>>()[..] {
            [a, "&", b] => value(a, get) & value(b, get),
            [a, "|", b] => value(a, get) | value(b, get),
            [a, "^", b] => value(a, get) ^ value(b, get),
            _ => formula.strip_prefix('~').map_or_else(|| get(formula), |operand| !get(operand)),
        }
    }

    proptest! {
        #[test]
        fn blocks_of_any_length_compute_the_circuit(
            circuit in arbitrary::circuit(0..=10, 100),
            block in 1usize..40,
            bits in prop::collection::vec(any::<bool>(), 10),
        ) {
            let simple = circuit.simplify();
            let program = Program::in_blocks(&simple, &LANGUAGE, block);
            let bits = &bits[..circuit.inputs()];
            prop_assert_eq!(run(&program, bits, circuit.outputs().len()), circuit.eval(bits).unwrap());
        }
    }
}
