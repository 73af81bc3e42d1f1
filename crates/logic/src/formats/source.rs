//! Source code: a straight-line program as the statements that C and Rust have in common.
//!
//! A value is a local variable, an operation is an assignment. Compilers take far more than linear time for very long
//! functions, so a large program becomes a chain of functions. Values that are live across functions go through an array
//! `v`, whose elements are reused as soon as their values are dead.

use crate::automaton::Boundary;
use crate::circuit::Circuit;
use crate::formats::FormatError;
use crate::formats::json::Document;
use crate::literal::Literal;
use crate::straight_line::{BitwiseOp, Instruction, SlotAllocator, StraightLineProgram, last_uses};
use std::fmt::Write;
use std::ops::Range;

/// The most operations of a program that is one function, and the operations of a function of a larger one. gcc 12 -O1
/// takes 0.6 ms an operation for functions of 250 operations, 1.4 ms for 1000 and 1.7 ms for 2000.
const SINGLE: usize = 1000;
const BLOCK: usize = 256;
/// The most gates that are written as code.
pub(super) const MAX_GATES: usize = 1 << 22;

/// The syntax of a language.
pub(super) struct Language {
    /// The name of the format.
    pub format: &'static str,
    /// The operator that inverts a word.
    pub not: char,
    /// The keywords that declare a local variable.
    pub declare: &'static str,
    pub zero: &'static str,
}

/// The statements of one function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionBody {
    pub text: String,
    pub reads_inputs: bool,
    /// Whether it reads or writes `v`.
    pub uses_values: bool,
    pub writes_outputs: bool,
}

/// A straight-line program as a chain of functions.
#[derive(Debug)]
pub(super) struct SourceCode {
    pub functions: Vec<FunctionBody>,
    /// The number of bitwise operations.
    pub operations: usize,
    /// The length of `v`.
    pub values: usize,
    /// Whether each input is read.
    pub used: Vec<bool>,
}

/// The boundary of an automaton, for comments.
pub(super) fn boundary_name(boundary: Boundary) -> &'static str {
    match boundary {
        Boundary::Torus => "a torus",
        Boundary::Zeros => "zeros",
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

impl SourceCode {
    /// The code of a circuit.
    pub fn new(circuit: &Circuit, language: &Language) -> SourceCode {
        let program = StraightLineProgram::new(circuit);
        let block = if program.operations() <= SINGLE { SINGLE } else { BLOCK };
        SourceCode::in_blocks(&program, language, block)
    }

    /// The code in functions of at most `block` operations.
    fn in_blocks(program: &StraightLineProgram, language: &Language, block: usize) -> SourceCode {
        let mut writer = Writer {
            program,
            language,
            last_use: last_uses(program),
            place: vec![None; program.values()],
            places: SlotAllocator::default(),
            used: vec![false; program.inputs],
            values: program.inputs as u32 + 1,
        };
        let functions = split(program, block).into_iter().map(|range| writer.function(range)).collect();
        let operations = program.operations();
        SourceCode { functions, operations, values: writer.places.count(), used: writer.used }
    }
}

/// The ranges of instructions with at most `block` operations each, and the stores after them.
fn split(program: &StraightLineProgram, block: usize) -> Vec<Range<usize>> {
    let is_operation = |&time: &usize| matches!(program.instructions[time], Instruction::Compute { .. });
    let operations = (0..program.instructions.len()).filter(is_operation);
    let mut starts: Vec<usize> = operations.step_by(block).collect();
    match starts.first_mut() {
        Some(first) => *first = 0,
        None => starts.push(0),
    }
    let ends = starts[1..].iter().copied().chain([program.instructions.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Writes one function after the other.
struct Writer<'a> {
    program: &'a StraightLineProgram,
    language: &'a Language,
    last_use: Vec<u32>,
    /// The place in `v` of each value that is live across functions.
    place: Vec<Option<u32>>,
    places: SlotAllocator,
    used: Vec<bool>,
    /// The number of values that are defined so far.
    values: u32,
}

impl Writer<'_> {
    fn function(&mut self, range: Range<usize>) -> FunctionBody {
        let Language { declare, not, .. } = *self.language;
        let instructions = &self.program.instructions[range.clone()];
        let first = self.values;
        let (mut text, mut operations, mut outputs) = (String::new(), String::new(), String::new());
        let mut outside: Vec<u32> = Vec::new();
        for &instruction in instructions {
            outside.extend(instruction.reads().into_iter().flatten().filter(|&value| value < first));
            // Writing to a string never fails, here and below.
            let _ = match instruction {
                Instruction::Compute { op, a, b } => {
                    let (a, b, out) = (self.name(a), self.name(b), self.name(self.values));
                    self.values += 1;
                    match op {
                        BitwiseOp::And => writeln!(operations, "    {declare} {out} = {a} & {b};"),
                        BitwiseOp::AndNot => writeln!(operations, "    {declare} {out} = {not}{a} & {b};"),
                        BitwiseOp::Or => writeln!(operations, "    {declare} {out} = {a} | {b};"),
                        BitwiseOp::Xor => writeln!(operations, "    {declare} {out} = {a} ^ {b};"),
                    }
                }
                Instruction::Store { literal, output } => {
                    writeln!(outputs, "    out[{output}] = {};", self.literal(literal))
                }
            };
        }
        outside.sort_unstable();
        outside.dedup();
        for &value in &outside {
            let source = match self.place[value as usize] {
                Some(place) => format!("v[{place}]"),
                None => format!("in[{}]", value - 1),
            };
            let _ = writeln!(text, "    {declare} {} = {source};", self.name(value));
        }
        text.push_str(&operations);
        let inputs = outside.iter().filter_map(|&value| self.program.input(value));
        inputs.for_each(|input| self.used[input] = true);
        let reads_inputs = outside.first().is_some_and(|&value| self.program.input(value).is_some());
        let reads_values = outside.last().is_some_and(|&value| self.program.input(value).is_none());
        let writes_values = self.spill(&mut text, &outside, first, range.end);
        let writes_outputs = !outputs.is_empty();
        text.push_str(&outputs);
        FunctionBody { text, reads_inputs, uses_values: reads_values || writes_values, writes_outputs }
    }

    /// Releases the places of values that are dead at the end of a function, then stores those from `first` on that are
    /// live. Returns whether there are any.
    fn spill(&mut self, text: &mut String, outside: &[u32], first: u32, end: usize) -> bool {
        for &value in outside.iter().filter(|&&value| (self.last_use[value as usize] as usize) < end) {
            self.place[value as usize].take().into_iter().for_each(|place| self.places.release(place));
        }
        let live: Vec<u32> =
            (first..self.values).filter(|&value| self.last_use[value as usize] as usize >= end).collect();
        for &value in &live {
            let place = self.places.take();
            self.place[value as usize] = Some(place);
            let _ = writeln!(text, "    v[{place}] = {};", self.name(value));
        }
        !live.is_empty()
    }

    fn literal(&self, literal: Literal) -> String {
        let zero = self.language.zero.to_string();
        let name = if literal.is_constant() { zero } else { self.name(literal.node() as u32) };
        if literal.is_inverted() { format!("{}{name}", self.language.not) } else { name }
    }

    /// The variable of a value: `x` and `n` with the number of the signal in a circuit of the same gates.
    fn name(&self, value: u32) -> String {
        format!("{}{}", if self.program.input(value).is_some() { 'x' } else { 'n' }, value - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const LANGUAGE: Language = Language { format: "test", not: '~', declare: "let", zero: "0" };

    /// Executes the statements on words of one bit.
    fn run(code: &SourceCode, inputs: &[bool], outputs: usize) -> Vec<bool> {
        let (mut values, mut out) = (HashMap::new(), vec![false; outputs]);
        for function in &code.functions {
            let mut locals: HashMap<String, bool> = HashMap::new();
            for line in function.text.lines() {
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
            let code = SourceCode::in_blocks(&StraightLineProgram::new(&circuit), &LANGUAGE, block);
            let bits = &bits[..circuit.inputs()];
            prop_assert_eq!(run(&code, bits, circuit.outputs().len()), circuit.eval(bits).unwrap());
        }
    }
}
